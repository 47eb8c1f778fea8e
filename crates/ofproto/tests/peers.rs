//! Compares translations with those of Open vSwitch: generated tables and packets, `ofproto/trace` of `ovs-vswitchd` on one
//! side and ours on the other. The comparison covers the packets sent at each port, with their headers; the datapath
//! actions may differ. Our megaflows must be correct for every packet that they match, by Open vSwitch's
//! result for it, and not narrower than Open vSwitch's, on average.
//!
//! Without Open vSwitch's programs the test is skipped; see the crate `oracle`.

use base::rng::Rng;
use base::{Clock, DpPort, MacAddr, PortNo};
use dpif::DpAction;
use flow::text::{NoNames, parse_match};
use flow::{Field, FlowKey};
use ofproto::{BundleSpec, Ofproto, PortSpec, Switch};
use openflow::{FlowModCommand, GroupCommand, parse_flow, parse_group};
use std::path::Path;
use std::sync::Arc;
use xlate::trace::Tracing;
use xlate::{PortOut, Start, VlanMode, translate_from};

const TABLES: u64 = 60;
const PACKETS: u64 = 12;
/// OpenFlow and datapath port numbers are equal, except for LOCAL.
const LOCAL_DP: u32 = 100;

/// A running Open vSwitch with four dummy ports.
fn theirs(folder: &Path) -> oracle::Switch {
    let mut setup = "set Open_vSwitch . other_config:vlan-limit=0".to_owned();
    for n in 1..=4 {
        let tag = if n == 4 { " tag=5" } else { "" };
        setup += &format!(" -- add-port br0 p{n}{tag} -- set interface p{n} type=dummy ofport_request={n}");
    }
    let switch = oracle::Switch::start(folder, &setup);
    let ports = switch.run("ovs-appctl", &["dpif/show"]).expect("shows");
    assert!((1..=4).all(|n| ports.contains(&format!("p{n} {n}/{n}:"))), "{ports}");
    assert!(ports.contains(&format!("65534/{LOCAL_DP}:")), "{ports}");
    switch
}

/// The same bridge in our switch.
fn ours() -> (Arc<Switch>, Arc<Ofproto>) {
    let switch = Switch::new(Clock::stopped());
    let bridge = switch.add_bridge("br0");
    let spec = |no: PortNo| PortSpec {
        no,
        name: format!("p{no}"),
        out: PortOut::Device(DpPort(if no == PortNo::LOCAL { LOCAL_DP } else { no.0 })),
        device: None,
        tunnel: None,
        mac: MacAddr::ZERO,
    };
    let specs: Vec<_> = (1..=4).map(PortNo).chain([PortNo::LOCAL]).map(spec).collect();
    let bundle = |s: &PortSpec| BundleSpec {
        name: s.name.clone(),
        ports: vec![s.no],
        mode: if s.no == PortNo(4) { VlanMode::Access } else { VlanMode::Trunk },
        tag: if s.no == PortNo(4) { 5 } else { 0 },
        trunks: Vec::new(),
        cvlans: Vec::new(),
        priority_tags: xlate::model::PriorityTags::Never,
        protected: false,
        multicast: Default::default(),
    };
    let bundles = specs.iter().map(bundle).collect();
    bridge.set_ports(specs, bundles);
    (switch, bridge)
}

/// The number of bits of a mask, without fields that are the same for all packets (recirculation, packet type).
fn bits(mask: &FlowKey) -> u64 {
    let mut mask = mask.clone();
    for field in [Field::RecircId, Field::PacketType] {
        mask.set(field, 0);
    }
    mask.0.iter().map(|word| u64::from(word.count_ones())).sum()
}

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

/// Actions for any flow, outputs first.
const ANY: [&str; 26] = [
    "output:1",
    "output:2",
    "output:3",
    "output:4",
    "normal",
    "flood",
    "in_port",
    "LOCAL",
    "all",
    "mod_dl_src:02:00:00:00:00:09",
    "mod_dl_dst:02:00:00:00:00:02",
    "strip_vlan",
    "load:1->NXM_NX_REG1[]",
    "load:2->NXM_NX_REG1[0..1]",
    "output:NXM_NX_REG1[]",
    "move:NXM_OF_ETH_SRC[0..15]->NXM_OF_ETH_DST[8..23]",
    "push:NXM_OF_ETH_DST[]",
    "pop:NXM_OF_ETH_SRC[]",
    "load:0->NXM_OF_IN_PORT[]",
    "output(port=2,max_len=64)",
    "exit",
    "move:NXM_NX_REG1[0..3]->NXM_OF_ETH_SRC[4..7]",
    "group:1",
    "group:2",
    "group:3",
    "group:4",
];
const VLAN_10: [&str; 4] = ["mod_vlan_vid:5", "mod_vlan_vid:7", "mod_vlan_pcp:3", "mod_vlan_pcp:0"];
const VLAN_13: [&str; 3] = ["push_vlan:0x8100", "push_vlan:0x88a8", "push_vlan:0x8100,set_field:4103->vlan_vid"];
const IP: [&str; 4] = ["mod_nw_src:10.0.0.9", "mod_nw_dst:10.0.0.8", "mod_nw_tos:32", "dec_ttl"];
const PORTS: [&str; 2] = ["mod_tp_dst:2", "mod_tp_src:9"];
const SETS: [&str; 2] =
    ["write_actions(output:3,set_field:02:00:00:00:00:07->eth_dst)", "write_actions(strip_vlan,output:2)"];

/// Buckets of groups.
const BUCKETS: [&str; 8] = [
    "output:1",
    "output:2",
    "mod_dl_src:02:00:00:00:00:0e,output:3",
    "output:2,mod_dl_dst:02:00:00:00:00:0f,output:4",
    "strip_vlan,output:2",
    "mod_nw_src:10.0.0.7,output:1",
    "resubmit(,2)",
    "in_port",
];

/// Groups 1 to 4, in the text of `ovs-ofctl`. (Each switch has its own selection for `select`.)
fn random_groups(rng: &mut Rng) -> Vec<String> {
    (1..5)
        .map(|id| {
            let kind = pick(rng, &["all", "indirect", "ff"]);
            let n = if kind == "indirect" { 1 } else { 1 + rng.below(3) };
            let mut text = format!("group_id={id},type={kind}");
            for _ in 0..n {
                let watch = pick(rng, &["watch_port:2,", "watch_port:77,", "watch_group:3,", "watch_group:66,"]);
                let next = if rng.below(4) == 0 { format!("group:{}", id + 1) } else { pick(rng, &BUCKETS).into() };
                text += &format!(",bucket={}{next}", if kind == "ff" { watch } else { "" });
            }
            text
        })
        .collect()
}

/// A clause of a conjunctive match. The two clauses have different priorities, as the order of ties is unspecified.
fn random_clause(rng: &mut Rng) -> String {
    let id = 1 + rng.below(2);
    let m = pick(
        rng,
        &["ip,nw_src=10.0.0.0/8", "tcp,tp_dst=2", "in_port=1", "in_port=2", "dl_dst=02:00:00:00:00:02", "ip", ""],
    );
    let priority = 70 + id * 20_001;
    format!("table={},priority={priority},{m},actions=conjunction({id},{}/2)", rng.below(2), 1 + rng.below(2))
}

/// A flow, in the text of `ovs-ofctl`.
fn random_flow(rng: &mut Rng, of13: bool) -> String {
    if rng.below(4) == 0 {
        return random_clause(rng);
    }
    let table = rng.below(3);
    let mut text = format!("table={table},priority={}", rng.below(60_000));
    text += pick(rng, &["", "", "", "", ",conj_id=1", ",conj_id=2"]);
    text += pick(rng, &["", "", ",in_port=1", ",in_port=2"]);
    text += pick(rng, &["", "", ",dl_dst=02:00:00:00:00:02", ",dl_dst=02:00:00:00:00:00/ff:ff:ff:ff:ff:fc"]);
    text += pick(rng, &["", "", ",dl_vlan=5", ",vlan_tci=0", ",dl_vlan_pcp=3"]);
    text += pick(rng, &["", "", "", ",reg1=1", ",reg1=0/2"]);
    let proto = pick(rng, &["", ",ip", ",tcp", ",tcp,tp_dst=2", ",ip,nw_src=10.0.0.0/8", ",udp,nw_tos=32"]);
    text += proto;
    let mut actions = Vec::new();
    for _ in 0..=rng.below(5) {
        actions.push(match rng.below(10) {
            0 | 1 => format!("resubmit(,{})", table + 1 + rng.below(2)),
            2 if of13 => pick(rng, &VLAN_13).into(),
            2 => pick(rng, &VLAN_10).into(),
            3 | 4 if proto.contains("tcp") || proto.contains("udp") => pick(rng, &PORTS).into(),
            3..=5 if !proto.is_empty() => pick(rng, &IP).into(),
            6 => format!("clone({},{},{})", pick(rng, &ANY[9..15]), pick(rng, &ANY[..8]), pick(rng, &ANY[..8])),
            _ => pick(rng, &ANY).into(),
        });
    }
    if of13 && rng.below(4) == 0 {
        actions.push(pick(rng, &SETS).into());
    }
    text + ",actions=" + &actions.join(",")
}

fn random_packet(rng: &mut Rng) -> String {
    let (port, src, dst) = (1 + rng.below(4), 1 + rng.below(3), 1 + rng.below(4));
    let addresses = format!("in_port={port},dl_src=02:00:00:00:00:0{src},dl_dst=02:00:00:00:00:0{dst}");
    // Open vSwitch requires a field's prerequisites before it.
    let vlan = pick(rng, &["", "", ",dl_vlan=5,dl_vlan_pcp=0", ",dl_vlan=5,dl_vlan_pcp=3", ",dl_vlan=9,dl_vlan_pcp=3"]);
    let proto = pick(
        rng,
        &[
            "",
            "tcp,tp_src=5,tp_dst=2,nw_src=10.0.0.1,nw_dst=1.2.3.4,nw_ttl=64,",
            "udp,udp_dst=2,udp_src=1,nw_src=11.0.0.1,nw_tos=32,nw_ttl=9,",
            "icmp,nw_src=10.9.9.9,nw_ttl=1,",
        ],
    );
    format!("{proto}{addresses}{vlan}")
}

/// A sent packet: port, tags, outermost first, and headers by name.
type Seen = (u32, Vec<(u16, u16)>, Vec<u128>);

const HEADERS: [(&str, &str, Field); 10] = [
    ("eth", "src", Field::EthSrc),
    ("eth", "dst", Field::EthDst),
    ("ipv4", "src", Field::Ipv4Src),
    ("ipv4", "dst", Field::Ipv4Dst),
    ("ipv4", "tos", Field::IpDscpShifted),
    ("ipv4", "ttl", Field::IpTtl),
    ("tcp", "src", Field::TcpSrc),
    ("tcp", "dst", Field::TcpDst),
    ("udp", "src", Field::UdpSrc),
    ("udp", "dst", Field::UdpDst),
];

#[derive(Clone)]
struct Wire {
    key: FlowKey,
    tags: Vec<(u16, u16)>,
}

impl Wire {
    fn new(key: &FlowKey) -> Self {
        let tags = (0..2).map(|n| key.vlan(n)).filter(|(_, tci)| tci & 0x1000 != 0);
        Self { key: key.clone(), tags: tags.collect() }
    }

    fn seen(&self, port: u32) -> Seen {
        (port, self.tags.clone(), HEADERS.iter().map(|(_, _, field)| self.key.get(*field)).collect())
    }

    /// Executes our datapath actions.
    fn ours(&mut self, actions: &[DpAction], out: &mut Vec<Seen>) {
        for action in actions {
            match action {
                DpAction::Output(port) => out.push(self.seen(port.0)),
                DpAction::Set { field: Field::VlanTci, value, mask } => {
                    let tci = &mut self.tags[0].1;
                    *tci = *tci & !(*mask as u16) | (value & mask) as u16 | 0x1000;
                }
                DpAction::Set { field, value, mask } => {
                    self.key.set(*field, self.key.get(*field) & !mask | value & mask);
                }
                DpAction::PushVlan { tpid, tci } => self.tags.insert(0, (*tpid, *tci | 0x1000)),
                DpAction::PopVlan => _ = self.tags.remove(0),
                DpAction::Clone(inner) => self.clone().ours(inner, out),
                DpAction::Trunc(_) | DpAction::Drop(_) | DpAction::Controller(_) => {}
                other => panic!("no flow of these tests asks for {other:?}"),
            }
        }
    }

    /// Executes Open vSwitch's actions, from their text.
    fn theirs(&mut self, text: &str, out: &mut Vec<Seen>) {
        for action in split(text) {
            let (name, args) = match action.split_once('(') {
                Some((name, rest)) => (name, rest.strip_suffix(')').expect("closed")),
                None => (action, ""),
            };
            match name {
                "drop" | "trunc" | "userspace" => {}
                "pop_vlan" => _ = self.tags.remove(0),
                "push_vlan" => {
                    let arg = |name: &str| {
                        let value = |a: &str| a.strip_prefix(name)?.strip_prefix('=').map(number);
                        split(args).into_iter().find_map(value).map(|v| v as u16)
                    };
                    let tci = arg("vid").unwrap_or(0) | arg("pcp").unwrap_or(0) << 13 | 0x1000;
                    self.tags.insert(0, (arg("tpid").unwrap_or(0x8100), tci));
                }
                "clone" => self.clone().theirs(args, out),
                "set" => self.set(args),
                port => out.push(self.seen(port.parse().unwrap_or_else(|_| panic!("{action} in {text}")))),
            }
        }
    }

    fn set(&mut self, args: &str) {
        let (header, fields) = args.split_once('(').expect("a header");
        for field in split(fields.strip_suffix(')').expect("closed")) {
            let (name, value) = field.split_once('=').expect("a value");
            let known = HEADERS.iter().find(|(h, n, _)| *h == header && *n == name);
            let (.., field) = known.unwrap_or_else(|| panic!("{args}"));
            let (value, mask) = value.split_once('/').unwrap_or((value, ""));
            let mask = if mask.is_empty() { field.info().full_mask() } else { number(mask) };
            self.key.set(*field, self.key.get(*field) & !mask | number(value) & mask);
        }
    }
}

/// A number, IPv4 or Ethernet address.
fn number(text: &str) -> u128 {
    if let Ok(ip) = text.parse::<std::net::Ipv4Addr>() {
        return ip.to_bits().into();
    }
    if text.contains(':') {
        return u128::from_str_radix(&text.replace(':', ""), 16).expect("hexadecimal");
    }
    match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).expect("hexadecimal"),
        None => text.parse().expect("decimal"),
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[test]
fn translations_agree_with_open_vswitch() {
    let Some(peers) = oracle::folder() else { return };
    let peer = theirs(&peers);
    let (mut flows, mut traces, mut wrong) = (0, 0, Vec::new());
    // Bits in the matches of our megaflows, and theirs; packets that the megaflow of another packet of ours covers.
    let (mut width, mut covered) = ((0, 0), 0);
    for seed in 0..TABLES {
        let rng = &mut Rng::seeded(seed);
        let (switch, bridge) = ours();
        peer.run("ovs-ofctl", &["del-flows", "br0"]).expect("deletes");
        let of13 = seed % 2 == 1;
        let version = if of13 { "OpenFlow13" } else { "OpenFlow10" };
        let mut table = String::new();
        peer.run("ovs-ofctl", &["-O", "OpenFlow13", "del-groups", "br0"]).expect("deletes");
        for text in random_groups(rng) {
            peer.run("ovs-ofctl", &["-O", "OpenFlow13", "add-group", "br0", &text]).expect(&text);
            let group = parse_group(&text, GroupCommand::Add, &NoNames).expect(&text).group_mod;
            bridge.transaction(|t| t.group_mod(&group)).expect("adds");
            table += &format!("  {text}\n");
        }
        let mut cached: Vec<(FlowKey, FlowKey, Vec<DpAction>, Vec<Seen>)> = Vec::new();
        for _ in 0..12 {
            let text = random_flow(rng, of13);
            // Flows that Open vSwitch refuses are skipped.
            if peer.run("ovs-ofctl", &["-O", version, "add-flow", "br0", &text]).is_ok() {
                let parsed = parse_flow(&text, FlowModCommand::Add, &NoNames).unwrap_or_else(|e| panic!("{text}: {e}"));
                bridge.flow_mod(&parsed.flow_mod).expect("adds");
                table += &format!("  {text}\n");
                flows += 1;
            }
        }
        for _ in 0..PACKETS {
            let packet = random_packet(rng);
            let trace = peer.run("ovs-appctl", &["ofproto/trace", "br0", &packet]).expect("traces");
            let line = |title: &str| trace.lines().find_map(|l| l.strip_prefix(title)).expect("a line");
            let theirs = line("Datapath actions: ").to_owned();
            let key = bridge.parse_trace_flow(&packet).expect("a packet");
            let net = switch.network();
            let verdict = translate_from(&net, &net.bridges[&bridge.id()], &key, Start::Tables, Tracing::from(true));
            let (mut expected, mut got) = (Vec::new(), Vec::new());
            Wire::new(&key).theirs(&theirs, &mut expected);
            Wire::new(&key).ours(&verdict.actions, &mut got);
            // The order in which ports are flooded does not matter.
            expected.sort_unstable();
            got.sort_unstable();
            traces += 1;
            // Open vSwitch loses the innermost of three tags.
            if expected != got && got.iter().all(|(_, tags, _)| tags.len() < 3) {
                wrong.push(format!("{table}  {packet}\n  theirs: {theirs}\n  ours:   {:?}\n", verdict.actions));
            }
            let megaflow = line("Megaflow: ");
            let matched = parse_match(megaflow, &NoNames).unwrap_or_else(|e| panic!("{megaflow}: {e}"));
            width.0 += bits(&verdict.mask());
            width.1 += bits(matched.mask());
            cached.push((key, verdict.mask(), verdict.actions, expected));
        }
        for (i, (made_for, mask, actions, _)) in cached.iter().enumerate() {
            let others = cached.iter().enumerate().filter(|(j, (key, ..))| *j != i && key.eq_masked(made_for, mask));
            for (_, (key, .., expected)) in others {
                let mut got = Vec::new();
                Wire::new(key).ours(actions, &mut got);
                got.sort_unstable();
                covered += 1;
                if *expected != got && got.iter().all(|(_, tags, _)| tags.len() < 3) {
                    wrong.push(format!("{table}  too wide: {key:?} is covered by the megaflow of {made_for:?}\n"));
                }
            }
        }
    }
    tally::report!(
        "{traces} traces over {flows} flows; bits matched on average: ours {}, theirs {}; {covered} packets covered by \
         another's megaflow",
        width.0 / traces,
        width.1 / traces
    );
    assert!(width.0 <= width.1, "our megaflows match {} bits, theirs {}", width.0, width.1);
    assert!(covered > 100, "{covered} packets");
    assert!(flows > TABLES * 3, "only {flows} flows were taken");
    assert!(wrong.is_empty(), "{} of {traces} differ:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

/// Matches of flows with `learn`, and further specifications for them.
const LEARNERS: [(&str, [&str; 3]); 3] = [
    ("", ["NXM_OF_IN_PORT[]", "reg3=5", "eth_type=0x806"]),
    ("ip,", ["eth_type=0x800,NXM_OF_IP_SRC[]=NXM_OF_IP_DST[]", "eth_type=0x800,nw_proto=17", "NXM_OF_ETH_TYPE[]"]),
    (
        "tcp,",
        [
            "eth_type=0x800,nw_proto=6,NXM_OF_TCP_DST[]=NXM_OF_TCP_SRC[]",
            "eth_type=0x800,nw_proto=6,NXM_OF_IP_DST[8..31]=NXM_OF_IP_SRC[8..31],NXM_OF_TCP_SRC[]",
            "load:NXM_OF_TCP_SRC[]->NXM_NX_REG5[16..31]",
        ],
    ),
];
/// Specifications for any flow.
const LEARNED: [&str; 12] = [
    "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
    "NXM_OF_VLAN_TCI[0..11]",
    "NXM_OF_VLAN_TCI[]",
    "NXM_OF_ETH_SRC[0..23]=NXM_OF_ETH_DST[24..47]",
    "NXM_NX_REG0[0..15]=NXM_OF_ETH_TYPE[]",
    "load:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15]",
    "load:5->NXM_NX_REG2[]",
    "load:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
    "load:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG4[4..15]",
    "output:NXM_OF_IN_PORT[]",
    "output:NXM_NX_REG0[0..15]",
    "output:NXM_NX_REG1[]",
];
const SETTINGS: [&str; 9] = [
    "idle_timeout=5",
    "hard_timeout=77",
    "priority=9",
    "cookie=0x7",
    "limit=2",
    "fin_idle_timeout=3,fin_hard_timeout=4",
    "send_flow_rem",
    "table=11",
    "result_dst=NXM_NX_REG0[0]",
];

fn random_learner(rng: &mut Rng) -> String {
    let (m, own) = LEARNERS[rng.below(3) as usize];
    let mut args = vec!["table=10"];
    args.extend((0..rng.below(3)).map(|_| pick(rng, &SETTINGS)).collect::<Vec<_>>());
    args.push(pick(rng, &own));
    args.extend((0..rng.below(4)).map(|_| pick(rng, &LEARNED)).collect::<Vec<_>>());
    let before =
        pick(rng, &["", "", "mod_vlan_vid:9,", "load:0xfffb->NXM_NX_REG0[0..15],", "load:0x77->NXM_NX_REG1[],"]);
    let port = pick(rng, &["", "in_port=1,", "in_port=2,"]);
    format!("priority={},{port}{m}actions={before}learn({})", rng.below(60_000), args.join(","))
}

/// An Ethernet frame: TCP, UDP, ARP or something else, with a tag or not.
fn random_frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1 + rng.below(3) as u8, 2, 0, 0, 0, 0, 1 + rng.below(3) as u8];
    if rng.below(3) == 0 {
        frame.extend([0x81, 0, 0x60, 5]);
    }
    match rng.below(4) {
        0 => frame.extend([0x88, 0xb5]),
        1 => frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]),
        n => {
            let (proto, len) = if n == 2 { (6, 40) } else { (17, 28) };
            frame.extend([8, 0, 0x45, 0, 0, len, 0, 0, 0, 0, 64, proto, 0, 0]);
            frame.extend([10, 0, 0, 1 + rng.below(3) as u8, 10, 0, 0, 9, 0, 5, 0, 1 + rng.below(3) as u8]);
            frame.extend(if n == 2 {
                &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 9, 0, 0, 0, 0][..]
            } else {
                &[0, 8, 0, 0]
            });
        }
    }
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A learned flow in the text of `ovs-ofctl dump-flows` (without its flags, in OpenFlow 1.0).
fn in_words(fm: &openflow::FlowMod) -> String {
    format!(
        "table={:?} priority={} cookie={:#x} idle={} hard={} {} actions={}",
        fm.table_id,
        fm.priority,
        fm.new_cookie,
        fm.idle_timeout,
        fm.hard_timeout,
        flow::text::match_to_string(&fm.matching, &NoNames),
        openflow::actions_to_string(&fm.actions, &NoNames, openflow::Version::V10),
    )
}

fn learned_by_them(peer: &oracle::Switch) -> Vec<String> {
    let mut all = Vec::new();
    for table in ["table=10", "table=11"] {
        let dump = peer.run("ovs-ofctl", &["--no-stats", "dump-flows", "br0", table]).expect("dumps");
        for line in dump.lines().filter(|l| l.contains("actions=")) {
            let line = line.trim().replace(" actions=", ",actions=");
            let parsed = parse_flow(&line, FlowModCommand::Add, &NoNames).unwrap_or_else(|e| panic!("{line}: {e}"));
            all.push(in_words(&parsed.flow_mod));
        }
    }
    all.sort();
    all
}

fn learned_by_us(bridge: &Ofproto) -> Vec<String> {
    let words = |rule: &Arc<xlate::Rule>| {
        let mut fm = openflow::FlowMod::new(FlowModCommand::Add);
        fm.table_id = Some(rule.table);
        (fm.priority, fm.new_cookie) = (rule.openflow_priority(), rule.cookie);
        (fm.idle_timeout, fm.hard_timeout) = (rule.idle_timeout, rule.hard_timeout);
        fm.matching = rule.minimatch.expand();
        fm.actions = rule.actions.to_vec();
        in_words(&fm)
    };
    let rules = bridge.collect(&ofproto::flow_table::Criteria::any());
    let mut all: Vec<_> = rules.iter().filter(|r| r.table >= 10).map(words).collect();
    all.sort();
    all
}

#[test]
fn packets_teach_the_same_flows_as_in_open_vswitch() {
    let Some(peers) = oracle::folder() else { return };
    let peer = theirs(&peers);
    let (mut learned, mut learners) = (0, 0);
    for seed in 0..40 {
        let rng = &mut Rng::seeded(1000 + seed);
        let (_switch, bridge) = ours();
        peer.run("ovs-ofctl", &["del-flows", "br0"]).expect("deletes");
        let mut flows = String::new();
        for _ in 0..3 {
            let text = random_learner(rng);
            if peer.run("ovs-ofctl", &["add-flow", "br0", &text]).is_ok() {
                let parsed = parse_flow(&text, FlowModCommand::Add, &NoNames).unwrap_or_else(|e| panic!("{text}: {e}"));
                bridge.flow_mod(&parsed.flow_mod).unwrap_or_else(|e| panic!("{text}: {e}"));
                flows += &format!("  {text}\n");
                learners += 1;
            }
        }
        for _ in 0..6 {
            let (port, frame) = (1 + rng.below(3) as u32, random_frame(rng));
            let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
            // Open vSwitch's cached flows teach their flows once more while their statistics are new.
            peer.run("ovs-appctl", &["revalidator/purge"]).expect("purges");
            peer.run("ovs-appctl", &["netdev-dummy/receive", &format!("p{port}"), &hex]).expect("receives");
            let mut key = bridge.switch().expect("lives").key_of(&frame, PortNo(port));
            key.set_in_port(PortNo(port));
            bridge.side_effects(&key, Start::Tables, packet::Packet::from_slice(&frame));
            let want = learned_by_us(&bridge);
            // Its threads push learned flows with a delay.
            let theirs = (0..100).map(|_| learned_by_them(&peer)).find(|theirs| *theirs == want);
            assert!(
                theirs.is_some(),
                "{flows}port {port}: {hex}\ntheirs: {:#?}\nours: {want:#?}",
                learned_by_them(&peer)
            );
        }
        learned += learned_by_us(&bridge).len();
    }
    tally::report!("{learned} flows learned by {learners}");
    assert!(learned > 60, "{learned} flows learned by {learners}");
}
