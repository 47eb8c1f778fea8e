//! The experiment of "The Design and Implementation of Open vSwitch" (NSDI'15, section 7.2): four flows, and short TCP
//! connections of one request and one response each, 400 at a time, between two hosts, with source ports at random:
//! `nsdi15 [--connections N]`, a million by default. Prints a line of JSON for each row of the paper's tables 1
//! (the effect of each optimisation of the classifier) and 2 (look-ups per packet, with and without microflow cache).
//!
//! The hosts' addresses lie on either side of the flows of priority 2 and 4, so that packets of the two directions match flows
//! of different priorities.

mod common;

use base::rng::Rng;
use classifier::Options;
use common::Bench;
use datapath::Config;
use datapath::megaflow::IndexKind;
use dpif::Dpif;
use flow::{Field, FlowKey};
use serde_json::json;

const FLOWS: [&str; 4] = [
    "priority=1,arp,actions=NORMAL",
    "priority=2,ip,nw_dst=11.1.1.1/16,actions=NORMAL",
    "priority=3,tcp,nw_dst=9.1.1.1,tcp_src=10,tcp_dst=10,actions=NORMAL",
    "priority=4,ip,nw_dst=9.1.1.1/24,actions=NORMAL",
];
const PARALLEL: u64 = 400;
const FLOWS_MAX: u64 = 4_000_000;

const SYN: u16 = 2;
const ACK: u16 = 0x10;
const PSH: u16 = 8;
const FIN: u16 = 1;
/// The packets of a connection: true if the client sends it, and its flags.
const PACKETS: [(bool, u16); 10] = [
    (true, SYN),
    (false, SYN | ACK),
    (true, ACK),
    (true, PSH | ACK),
    (false, PSH | ACK),
    (true, ACK),
    (true, FIN | ACK),
    (false, ACK),
    (false, FIN | ACK),
    (true, ACK),
];

/// The settings of one run.
struct Setting {
    megaflows: bool,
    options: Options,
    microflows: bool,
    index: IndexKind,
}

fn frame(from_client: bool, flags: u16) -> Vec<u8> {
    let mut key = FlowKey::ZERO;
    let (client, server) = ((0x0200_0000_0001, 0x0901_0102), (0x0200_0000_0002, 0x0b01_0101));
    let (src, dst) = if from_client { (client, server) } else { (server, client) };
    key.set(Field::EthSrc, src.0);
    key.set(Field::EthDst, dst.0);
    key.set(Field::EthType, 0x0800);
    key.set(Field::Ipv4Src, src.1);
    key.set(Field::Ipv4Dst, dst.1);
    key.set(Field::IpProto, 6);
    key.set(Field::IpTtl, 64);
    key.set(Field::TcpFlags, flags.into());
    flow::compose::compose(&key, &[])
}

/// The offset of the TCP ports in frames of this experiment.
const PORTS_AT: usize = 14 + 20;

fn run(setting: &Setting, connections: u64) -> Result<Bench, Box<dyn std::error::Error>> {
    let config = Config { index: setting.index, ..Config::default() };
    let mut bench = Bench::new(config, 2, FLOWS_MAX)?;
    bench.dp.set_microflow_inverse_probability(u32::from(setting.microflows));
    bench.switch.set_megaflows(setting.megaflows);
    bench.bridge.tables()[0].rules.set_options(setting.options);
    for flow in FLOWS {
        bench.flow(flow)?;
    }
    let frames = PACKETS.map(|(from_client, flags)| frame(from_client, flags));
    let mut rng = Rng::seeded(15);
    let mut left = connections;
    while left > 0 {
        let n = left.min(PARALLEL);
        left -= n;
        // Each session has a server port of its own.
        let ports: Vec<(u16, u16)> =
            (0..n).map(|session| (1024 + rng.below(64_512) as u16, 12_000 + session as u16)).collect();
        for ((from_client, _), frame) in PACKETS.iter().zip(&frames) {
            let mut burst = ports.iter().map(|(client, server)| {
                let (src, dst) = if *from_client { (client, server) } else { (server, client) };
                let mut frame = frame.clone();
                frame[PORTS_AT..PORTS_AT + 2].copy_from_slice(&src.to_be_bytes());
                frame[PORTS_AT + 2..PORTS_AT + 4].copy_from_slice(&dst.to_be_bytes());
                frame
            });
            bench.send(if *from_client { 1 } else { 2 }, &mut burst);
        }
        bench.switch.pass(ofproto::Extent::Changes);
    }
    bench.switch.revalidate();
    Ok(bench)
}

fn packets_per_second(bench: &Bench) -> u64 {
    (bench.packets as f64 / bench.busy.as_secs_f64()) as u64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let connections = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 1_000_000,
        ["--connections", n] => n.parse()?,
        _ => return Err("usage: nsdi15 [--connections N]".into()),
    };
    let (all, none) = (Options::ALL, Options::NONE);
    let table1 = [
        ("megaflows disabled", false, all),
        ("none", true, none),
        ("priority sorting only", true, Options { priority_sorting: true, ..none }),
        ("prefix tracking only", true, Options { prefix_tries: true, ports_trie: true, ..none }),
        ("staged lookup only", true, Options { stages: true, ..none }),
        ("all", true, all),
    ];
    for (name, megaflows, options) in table1 {
        let setting = Setting { megaflows, options, microflows: true, index: IndexKind::default() };
        let bench = run(&setting, connections)?;
        let stats = bench.dp.stats();
        let line = json!({
            "table": 1,
            "optimizations": name,
            "connections": connections,
            "packets": bench.packets,
            "received": bench.received,
            "flows": stats.flows,
            "masks": stats.masks,
            "packets_per_second": packets_per_second(&bench),
        });
        println!("{line}");
    }
    let on = |on: bool| if on { "enabled" } else { "disabled" };
    for (microflows, optimized) in [(true, true), (false, true), (true, false), (false, false)] {
        let options = if optimized { all } else { none };
        let of = |index| run(&Setting { megaflows: true, options, microflows, index }, connections);
        let (tree, tuples) = (of(IndexKind::Tree)?, of(IndexKind::TupleSpace)?);
        let probes = |bench: &Bench| {
            let probes: u64 = bench.dp.thread_stats().iter().map(|t| t.probes).sum();
            probes as f64 / bench.packets as f64
        };
        let line = json!({
            "table": 2,
            "microflows": on(microflows),
            "optimizations": on(optimized),
            "tuples_per_packet": probes(&tuples),
            "nodes_per_packet": probes(&tree),
            "packets_per_second": packets_per_second(&tree),
            "packets_per_second_tuples": packets_per_second(&tuples),
        });
        println!("{line}");
    }
    Ok(())
}
