//! Megaflows of random stateful pipelines that a datapath with a connection tracker requests: every packet in the region of
//! one has its verdict. Rules send packets through groups of all types, the tracker, and look-ups by the connection's original
//! direction, and push and pop headers on the way.

use super::ct::known;
use super::regions::{in_region, pick};
use super::*;
use base::Clock;
use base::rng::Rng;
use datapath::{Config, Datapath};
use dpif::{ControllerUpcall, DpActions, DpFlow, DpFlowStats, FlowId, Upcall, UpcallHandler, UpcallReply};
use flow::text::NoNames;
use netdev::{Netdev, memory};
use packet::Packet;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Random pipelines of one run.
const ROUNDS: u32 = 150;
/// Packets of a round.
const PACKETS: usize = 60;

/// Matches that need no other one.
const MATCHES: [&str; 23] = [
    "ip,ct_state=+trk+new",
    "ip,ct_state=+trk+est",
    "ip,ct_state=-trk",
    "ip,ct_state=+trk+rpl",
    "ip,ct_state=+trk+rel",
    "ip,ct_state=+trk+inv",
    "ip,ct_state=+trk+dnat",
    "ip,ct_state=+trk-new,ct_mark=1/1",
    "ip,ct_mark=0x2/0x6",
    "ip,ct_label=0x1/0x3",
    "ip,ct_zone=1",
    "ip,ct_state=+trk+est,ct_nw_src=10.0.0.0/31,ct_nw_proto=6",
    "ip,ct_state=+trk,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_dst=80/0xfffe",
    "ipv6,ct_state=+trk,ct_ipv6_src=fd00::/127",
    "tcp,tcp_flags=+syn-ack",
    "tcp,nw_src=10.0.0.0/30,tcp_dst=80",
    "udp,tp_src=1000/0xfffe",
    // Masks that are no prefixes.
    "tcp,tp_dst=0x1/0x1",
    "udp,tp_dst=0x0/0x9",
    "tcp,tp_src=0x1/0x5",
    "tcp6,tp_dst=0x1/0x3",
    "ip,dl_vlan=9",
    "ip,vlan_tci=0x1000/0x1000",
];

/// Actions before the last one, apart from `ct`.
const CHANGES: [&str; 19] = [
    "ct_clear",
    "load:1->reg1",
    "set_field:2->reg2",
    "move:NXM_NX_CT_MARK[0..3]->NXM_NX_REG1[0..3]",
    "move:NXM_NX_CT_LABEL[0..7]->NXM_NX_REG2[0..7]",
    "move:NXM_NX_CT_ZONE[]->NXM_NX_REG1[0..15]",
    "mod_nw_tos:32",
    "set_field:3->pkt_mark",
    "dec_ttl",
    "output:2",
    "mod_dl_dst:02:00:00:00:00:07",
    "clone(ct(commit,zone=1),output:2)",
    "push_vlan:0x8100,set_field:0x1009->vlan_tci",
    "mod_vlan_vid:5",
    "pop_vlan",
    "output:3",
    "multipath(symmetric_l4,3,hrw,4,0,NXM_NX_REG1[0..3])",
    "multipath(nw_src,3,hrw,4,0,NXM_NX_REG2[0..3])",
    "learn(table=9,NXM_OF_ETH_SRC[],load:NXM_NX_CT_MARK[0..3]->NXM_NX_REG1[0..3])",
];

/// Actions of rules for IPv4.
const CHANGES_V4: [&str; 5] = [
    // The headers are parsed again.
    "push_mpls:0x8847,pop_mpls:0x0800",
    "mod_nw_src:10.0.0.1",
    "mod_nw_dst:10.0.0.3",
    "mod_tp_src:1000",
    "mod_tp_dst:81",
];

/// Types of groups, with their selection methods.
const KINDS: [&str; 7] = [
    "select",
    "select,selection_method=dp_hash",
    "select,selection_method=dp_hash,selection_method_param=7",
    "select,selection_method=hash,fields(ip_src,tcp_dst)",
    "indirect",
    "all",
    "ff",
];

/// Groups of the rules of each table.
const GROUPS: u32 = 2;

/// A random `ct` that continues in `table`, if any.
fn random_ct(rng: &mut Rng, table: Option<u8>) -> String {
    let mut parts = Vec::new();
    parts.extend(table.map(|table| format!("table={table}")));
    let zones = ["zone=1", "zone=2", "zone=NXM_NX_REG1[0..15]", "zone=NXM_NX_PKT_MARK[0..15]", "zone=NXM_NX_CT_ZONE[]"];
    if rng.below(3) > 0 {
        parts.push(pick(rng, &zones).into());
    }
    let commits = rng.below(2) == 0;
    if commits {
        parts.push(pick(rng, &["commit", "commit", "commit", "commit,force"]).into());
        let execs = [
            "set_field:1->ct_mark",
            "set_field:2/0x6->ct_mark",
            "load:3->NXM_NX_CT_LABEL[0..1]",
            "move:NXM_NX_REG1[]->NXM_NX_CT_MARK[]",
            "move:NXM_OF_ETH_SRC[0..7]->NXM_NX_CT_LABEL[0..7]",
            "move:NXM_NX_CT_MARK[]->NXM_NX_CT_MARK[]",
        ];
        if rng.below(2) == 0 {
            let list: Vec<_> = (0..=rng.below(2)).map(|_| pick(rng, &execs)).collect();
            parts.push(format!("exec({})", list.join(",")));
        }
        if rng.below(6) == 0 {
            parts.push(pick(rng, &["alg=ftp", "alg=tftp"]).into());
        }
    }
    if rng.below(2) == 0 {
        let forms = [
            "nat",
            "nat(src=10.0.0.8-10.0.0.9)",
            "nat(dst=10.0.0.2:80-81)",
            "nat(src=[fd00::8])",
            "nat(src=10.0.0.8:2000-2003,hash)",
        ];
        parts.push(if commits { pick(rng, &forms) } else { "nat" }.into());
    }
    format!("ct({})", parts.join(","))
}

/// A random group of the rules of `table`.
fn random_group(rng: &mut Rng, table: u8, id: u32) -> Group {
    let kind = pick(rng, &KINDS);
    let n = if kind == "indirect" { 1 } else { 1 + rng.below(3) };
    let mut text = format!("group_id={id},type={kind}");
    for i in 0..n {
        let actions = match rng.below(7) {
            0 => random_ct(rng, None) + ",output:2",
            1 | 2 => random_ct(rng, Some(table + 1)),
            3 => format!("resubmit(,{})", table + 1),
            4 => format!("resubmit(,{},ct)", table + 1),
            5 => "mod_vlan_vid:6,output:1".into(),
            _ => format!("mod_dl_dst:02:00:00:00:00:0{i},output:2"),
        };
        let property = match kind {
            "ff" => format!("watch_port:{},", 1 + rng.below(5)),
            _ if kind.starts_with("select") => format!("weight:{},", 1 + rng.below(3)),
            _ => String::new(),
        };
        text += &format!(",bucket={property}actions={actions}");
    }
    group_of_text(&text)
}

/// The number of a group of the rules of `table`.
fn group_of(table: u8, n: u32) -> u32 {
    u32::from(table) * GROUPS + n
}

/// Random actions of a rule in `table`, for IPv4 or IPv6.
fn random_actions(rng: &mut Rng, table: u8, is_v4: bool) -> String {
    let mut list = Vec::new();
    for _ in 0..rng.below(4) {
        list.push(match rng.below(10) {
            0 | 1 => random_ct(rng, None),
            2 | 3 => format!("resubmit(,{},ct)", table + 1),
            4 => format!("group:{}", group_of(table, rng.below(GROUPS.into()) as u32)),
            5 if is_v4 => pick(rng, &CHANGES_V4).into(),
            _ => pick(rng, &CHANGES).into(),
        });
    }
    match rng.below(if table == 0 { 4 } else { 7 }) {
        6 => list.push(format!("group:{}", group_of(table, 0))),
        3 if table == 0 => list.push(format!("group:{}", group_of(table, 0))),
        0..2 => list.push(random_ct(rng, Some(table + 1))),
        2 => list.push(format!("resubmit(,{})", table + 1)),
        3 => list.push(format!("resubmit(,{},ct),output:1", table + 1)),
        _ => list.push(pick(rng, &["output:1", "output:2", "output:1,output:2"]).into()),
    }
    list.join(",")
}

/// Tables 0 to 4.
fn random_rules(rng: &mut Rng) -> Vec<(u8, Match, u16, Vec<Action>)> {
    let mut rules = Vec::new();
    for table in 0..5u8 {
        let n = if table == 0 { 2 } else { 4 };
        for i in 0..n + 2 {
            // Each table ends with two rules for all packets.
            let matching = match i - n {
                0 => "ip",
                1 => "ipv6",
                _ => pick(rng, &MATCHES),
            };
            let text = format!("{matching},actions=drop");
            let flow = openflow::parse_flow(&text, openflow::FlowModCommand::Add, &NoNames).expect("a match");
            let is_v4 = !["ipv6", "tcp6"].iter().any(|v6| matching.starts_with(v6));
            let actions = random_actions(rng, table, is_v4);
            let parsed = openflow::parse_actions(&actions, &NoNames);
            let actions = parsed.unwrap_or_else(|error| panic!("{actions}: {error:?}"));
            rules.push((table, flow.flow_mod.matching, 100 - i as u16, actions));
        }
    }
    rules
}

/// Random tables and groups.
fn random_network(rng: &mut Rng) -> Network {
    let rules = random_rules(rng);
    let of_tables = (0..5).flat_map(|table| (0..GROUPS).map(move |n| (table, group_of(table, n))));
    let groups = of_tables.map(|(table, id)| random_group(rng, table, id)).collect();
    network_with(&rules, groups, &[Action::SetEthSrc(PEER_SRC), output(PortNo(1)), output(PortNo::NORMAL)])
}

/// A frame of one of few connections: TCP, UDP, an echo message, or an ICMP error about one of these.
fn random_frame(rng: &mut Rng) -> Vec<u8> {
    let is_v6 = rng.below(3) == 0;
    let net: u128 = if is_v6 { 0xfd00 << 112 } else { 0x0a00_0000 };
    let (mut src, mut dst) = (net | rng.below(2) as u128, net | (2 + rng.below(2) as u128));
    let proto = pick(rng, &[6, 6, 17, if is_v6 { 58 } else { 1 }]);
    let mut ports = (1000 + u128::from(rng.below(2)), 80 + u128::from(rng.below(2)));
    if rng.below(3) == 0 {
        src = if rng.below(3) == 0 { net | 8 } else { src };
        (src, dst, ports) = (dst, src, (ports.1, ports.0));
    }
    let mut key = FlowKey::ZERO;
    key.set(Field::EthDst, 0x0200_0000_0001);
    key.set(Field::EthSrc, 0x0200_0000_0010 | u128::from(rng.below(2)));
    if rng.below(4) == 0 {
        key.set_vlan(0, 0x8100, 0x1009);
    }
    let l3 = if key.vlan_tci() == 0 { 14 } else { 18 };
    let ip = if is_v6 { (0x86dd, Field::Ipv6Src, Field::Ipv6Dst) } else { (0x800, Field::Ipv4Src, Field::Ipv4Dst) };
    let icmp = if is_v6 { (Field::Icmpv6Type, Field::Icmpv6Code) } else { (Field::Icmpv4Type, Field::Icmpv4Code) };
    for (field, value) in
        [(Field::EthType, ip.0), (ip.1, src), (ip.2, dst), (Field::IpTtl, 64), (Field::IpProto, proto)]
    {
        key.set(field, value);
    }
    match proto {
        6 | 17 => {
            key.set(Field::TcpSrc, ports.0);
            key.set(Field::TcpDst, ports.1);
        }
        _ => key.set(icmp.0, pick(rng, if is_v6 { &[128, 129] } else { &[8, 0] })),
    }
    if proto == 6 {
        key.set(Field::TcpFlags, pick(rng, &[0x02, 0x02, 0x12, 0x10, 0x11, 0x04]));
    }
    let frame = flow::compose(&key, &[7; 16]);
    if rng.below(8) > 0 {
        return frame;
    }
    let mut error = key;
    for field in [Field::TcpSrc, Field::TcpDst, Field::TcpFlags] {
        error.set(field, 0);
    }
    error.set(ip.1, dst);
    error.set(ip.2, src);
    error.set(Field::IpProto, if is_v6 { 58 } else { 1 });
    error.set(icmp.0, if is_v6 { 1 } else { 3 });
    error.set(icmp.1, 1);
    flow::compose(&error, &frame[l3..])
}

/// Translates misses, and keeps them.
#[derive(Debug)]
struct Handler {
    net: Network,
    flows: Mutex<Vec<(FlowKey, Verdict)>>,
    next: AtomicU64,
    /// Packets of installed flows, whose verdict was that of the flow, or not.
    agreed: AtomicU64,
    differed: Mutex<Vec<FlowKey>>,
}

/// The actions for the datapath.
fn dp_actions(verdict: &Verdict) -> DpActions {
    let dropped = verdict.drop.filter(|_| verdict.actions.is_empty()).map(DpAction::Drop);
    verdict.actions.iter().cloned().chain(dropped).collect()
}

impl UpcallHandler for Handler {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let verdict = translate(&self.net, upcall.key, false);
        let actions = dp_actions(&verdict);
        let id = FlowId(self.next.fetch_add(1, Ordering::Relaxed));
        let flow = DpFlow::new(upcall.key, &verdict.reads, actions.clone(), 0);
        self.flows.lock().push((upcall.key.clone(), verdict));
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}

    fn check(&self, _port: DpPort, key: &FlowKey, _id: FlowId, actions: &DpActions) -> bool {
        let same = dp_actions(&translate(&self.net, key, false)) == *actions;
        if same {
            self.agreed.fetch_add(1, Ordering::Relaxed);
        } else {
            self.differed.lock().push(key.clone());
        }
        same
    }
}

/// Sends packets through a datapath with random tables; returns the translated misses and the handler.
fn run(rng: &mut Rng) -> Arc<Handler> {
    let handler = Arc::new(Handler {
        net: random_network(rng),
        flows: Mutex::default(),
        next: AtomicU64::new(1),
        agreed: AtomicU64::new(0),
        differed: Mutex::default(),
    });
    let clock = Clock::stopped();
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, clock.clone()).expect("no thread");
    dp.set_handler(handler.clone());
    dp.set_self_check(1);
    let mut wires: Vec<_> = (1..3)
        .map(|n| {
            let (near, far) = memory::pair(&format!("p{n}"), &format!("far{n}")).expect("descriptors");
            assert_eq!(dp.port_add(near, Some(DpPort(n))).expect("opens"), DpPort(n));
            (far.open_tx().expect("opens"), far)
        })
        .collect();
    for _ in 0..PACKETS {
        let at = rng.below(2) as usize;
        wires[at].0.send_batch(&mut [Packet::from_slice(&random_frame(rng))].into_iter().collect());
        dp.run_until_idle(100);
        if rng.below(12) == 0 {
            clock.warp(pick(rng, &[10, 2000, 40_000]));
        }
    }
    dp.shutdown();
    handler
}

/// Another packet in the region of `mask`: headers of any packet or of one of `seen`, and the connection of one of them or any.
fn sampled(rng: &mut Rng, key: &FlowKey, mask: &FlowKey, seen: &[(FlowKey, Verdict)]) -> Option<FlowKey> {
    let mut other = in_region(rng, key, mask)?;
    let mut connection = key.clone();
    if key.get(Field::CtState) & 0x20 != 0 {
        let of = &seen[rng.below(seen.len() as u64) as usize].0;
        if rng.below(3) == 0 {
            known(rng, &mut connection);
        } else if of.get(Field::CtState) & 0x20 != 0 && of.eth_type() == key.eth_type() {
            for word in 0..layout::ETH_DST {
                let bits = crate::ct::connection_bits(word);
                connection.0[word] = connection.0[word] & !bits | of.0[word] & bits;
            }
        }
    }
    // Any hash that the datapath may compute, and any mark that a packet may have.
    if key.get(Field::DpHash) != 0 {
        connection.set(Field::DpHash, 1 + u128::from(rng.below(1 << 31)));
    }
    connection.set(Field::PktMark, rng.below(4).into());
    for (word, read) in mask.0.iter().enumerate().take(layout::ETH_DST) {
        other.0[word] = key.0[word] & read | connection.0[word] & !read;
    }
    other.set(Field::RecircId, key.get(Field::RecircId));
    Some(other)
}

static RUNS: AtomicU64 = AtomicU64::new(0);
static COUNTS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(ROUNDS))]

    #[test]
    fn regions_of_stateful_pipelines_have_one_verdict(seed: u64) {
        let rng = &mut Rng::seeded(seed);
        let handler = run(rng);
        let differed = handler.differed.lock();
        prop_assert!(differed.is_empty(), "not the verdict of their flows: {:?}", differed);
        let (net, flows) = (&handler.net, handler.flows.lock());
        let masks: Vec<_> = flows.iter().map(|(_, verdict)| verdict.mask()).collect();
        let mut counts = [flows.len() as u64, 0, handler.agreed.load(Ordering::Relaxed), 0, 0];
        for (at, (key, verdict)) in flows.iter().enumerate() {
            counts[3] += u64::from(key.get(Field::RecircId) != 0);
            for _ in 0..6 {
                let Some(other) = sampled(rng, key, &masks[at], &flows) else { continue };
                let again = translate(net, &other, false);
                prop_assert_eq!(&again.actions, &verdict.actions, "{:?} {:?}", key, other);
                prop_assert_eq!(&again.reads, &verdict.reads, "{:?} {:?}", key, other);
                prop_assert!(again.effects == verdict.effects, "{:?} {:?}", key, other);
                prop_assert_eq!((again.error, again.drop), (verdict.error, verdict.drop));
                counts[1] += 1;
            }
            // Flows that overlap have the same actions.
            for (before, (known, earlier)) in flows[..at].iter().enumerate() {
                let both = masks[at].masked(&masks[before]);
                if key.eq_masked(known, &both) {
                    prop_assert_eq!(&earlier.actions, &verdict.actions, "{:?} {:?}", known, key);
                    counts[4] += 1;
                }
            }
        }
        COUNTS.iter().zip(counts).for_each(|(all, n)| _ = all.fetch_add(n, Ordering::Relaxed));
        if RUNS.fetch_add(1, Ordering::Relaxed) + 1 == u64::from(ROUNDS) {
            let [flows, samples, hits, recirculated, overlaps] = COUNTS.each_ref().map(|n| n.load(Ordering::Relaxed));
            tally::report!(
                "{ROUNDS} stateful pipelines, {flows} megaflows, {recirculated} of them recirculated: {samples} packets of their regions, {hits} packets of the datapath, {overlaps} overlaps"
            );
            prop_assert!(samples > flows && 2 * recirculated > flows && hits > flows / 4, "too few");
        }
    }
}
