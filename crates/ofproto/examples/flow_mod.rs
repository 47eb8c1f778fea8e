//! Measures the cost of a flow table change with many cached flows: `flow_mod [MEGAFLOWS [SOURCES]]`, by default 100,000 flows
//! of 1,000 sources. Prints a line of JSON for each change: milliseconds from the flow-mod until no
//! cached flow is stale, the number of flows that looked into the table, of flows that the change could affect (because they
//! share packets with the rule, by their matches), of flows translated again, and of flows that changed.
//!
//! Each source has a rule of its own in table 0, and each destination one in table 1.

mod common;

use common::Bench;
use datapath::Config;
use dpif::Dpif;
use flow::{Field, FlowKey, Match};
use ofproto::Extent;
use openflow::flow_text::parse_flow_line;
use serde_json::json;
use std::time::Instant;

fn address(net: u32, n: u32) -> String {
    std::net::Ipv4Addr::from(net << 24 | n).to_string()
}

fn frame(src: u32, dst: u32) -> Vec<u8> {
    let mut key = FlowKey::ZERO;
    key.set(Field::EthSrc, 0x0200_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x0800);
    key.set(Field::Ipv4Src, (10 << 24 | src).into());
    key.set(Field::Ipv4Dst, (11 << 24 | dst).into());
    key.set(Field::IpProto, 17);
    key.set(Field::IpTtl, 64);
    flow::compose::compose(&key, &[])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|w| w.parse::<u32>());
    let megaflows = numbers.next().transpose()?.unwrap_or(100_000).max(1);
    let sources = numbers.next().transpose()?.unwrap_or(1000).clamp(1, megaflows);
    let destinations = megaflows.div_ceil(sources);
    let limit = 2 * u64::from(megaflows) + 20_000;
    let mut bench = Bench::new(Config::default(), 3, limit)?;
    for n in 0..sources {
        bench.flow(&format!("table=0,priority=10,ip,nw_src={},actions=resubmit(,1)", address(10, n)))?;
    }
    for n in 0..destinations {
        bench.flow(&format!("table=1,priority=10,ip,nw_dst={},actions=2", address(11, n)))?;
    }
    for dst in 0..destinations {
        bench.send(1, &mut (0..sources).map(|src| frame(src, dst)));
    }
    bench.switch.pass(Extent::Full);
    let set_ups = bench.packets as f64 / bench.busy.as_secs_f64();
    let bytes = bench.switch.remembered_bytes() as f64 / bench.dp.stats().flows as f64;
    let (one, other) = (address(11, 0), address(10, 0));
    let changes = [
        ("modify a rule", format!("modify_strict table=1,priority=10,ip,nw_dst={one},actions=3")),
        ("add a rule above", format!("add table=1,priority=20,ip,nw_dst={one},actions=2")),
        ("delete it", format!("delete_strict table=1,priority=20,ip,nw_dst={one}")),
        ("add a rule below", "add table=1,priority=1,ip,actions=2".to_owned()),
        ("modify a rule of table 0", format!("modify_strict table=0,priority=10,ip,nw_src={other},actions=drop")),
        ("add a rule for all", "add table=0,priority=30,ip,actions=3".to_owned()),
        ("delete it again", "delete_strict table=0,priority=30,ip".to_owned()),
    ];
    for (what, line) in changes {
        let flows = bench.dp.stats().flows;
        let rule = parse_flow_line(&line, &flow::text::NoNames)?.flow_mod.matching;
        let dump = bench.dp.flow_dump();
        let overlapping = dump.iter().filter(|e| rule.overlaps(&without_port(&Match::new(&e.key, e.mask.clone()))));
        let overlapping = overlapping.count();
        drop(dump);
        let began = Instant::now();
        bench.flow(&line)?;
        let report = bench.switch.pass(Extent::Changes);
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        // A full pass finds no stale flow.
        let fixed_up = bench.switch.pass(Extent::Full).fixed_up;
        let line = json!({
            "change": what,
            "megaflows": flows,
            "ms": (ms * 1000.0).round() / 1000.0,
            "looked_into_table": report.candidates,
            "overlap": overlapping,
            "translated": report.translated,
            "changed": report.changed,
            "removed": report.removed,
            "left_stale": fixed_up,
        });
        println!("{line}");
    }
    let line = json!({"set_ups_per_second": set_ups as u64, "remembered_bytes_per_megaflow": bytes as u64});
    println!("{line}");
    Ok(())
}

/// A match without the ingress port, which rules number by the bridge and datapath flows by the datapath.
fn without_port(m: &Match) -> Match {
    let mut m = m.clone();
    m.clear(Field::InPortOxm);
    m
}
