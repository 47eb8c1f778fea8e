//! Random tables, packets and changes in turn: after each pass, every flow in the datapath treats every packet that
//! it matches as a fresh translation would, a full pass finds nothing to correct, and there are no more flows
//! than the traffic needs.
//!
//! The datapath has no connection tracker, so that the test resumes tracked packets with a state of its own.
//!
//! `PROPTEST_CASES` sets the number of sequences; a failure names the seed of its sequence and its steps.

use super::*;
use crate::Extent;
use crate::revalidate::normalise::have_same_effect;
use base::DpPort;
use base::rng::Rng;
use dpif::{DpAction, DpFlowEntry, Dpif, Upcall, UpcallHandler};
use flow::{FlowKey, FlowMask};
use openflow::flow_text::parse_flow_line;
use openflow::{GroupCommand, parse_group};
use std::fmt::Write;
use xlate::PortConfig;

/// The number of steps of a sequence.
const STEPS: u64 = 60;

fn cases() -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(50)
}

/// A lab with two bridges of three ports each, connected by patch ports (number 9), and a log of its steps.
struct World {
    lab: Lab,
    bridges: [Arc<Ofproto>; 2],
    rng: Rng,
    /// The ports and frames of the traffic.
    traffic: Vec<(String, Vec<u8>)>,
    done: String,
    /// The number of flows compared with fresh translations, and of packets in their match regions.
    compared: (u64, u64),
    /// The number of misses of packets from the tracker.
    tracked: u64,
}

fn pick<'a>(rng: &mut Rng, choices: &[&'a str]) -> &'a str {
    choices[rng.below(choices.len() as u64) as usize]
}

fn random_match(rng: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..rng.below(3) {
        text += pick(
            rng,
            &["in_port=1,", "in_port=2,", "in_port=9,", "dl_src=02:00:00:00:00:01,", "dl_vlan=5,", "reg0=1,"],
        );
        text +=
            pick(rng, &["", "dl_dst=02:00:00:00:00:02,", "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,", "reg0=2/6,"]);
    }
    text += pick(
        rng,
        &[
            "",
            "",
            "ip,nw_dst=10.0.0.0/8,",
            "ip,nw_dst=10.1.0.0/16,",
            "ip,nw_dst=10.1.0.2,",
            "ip,nw_src=10.0.0.1,",
            "ip,nw_ttl=1,",
            "tcp,tp_dst=80,",
            "tcp,tp_dst=0x50/0xfff0,",
            "udp,tp_src=80,",
            "tcp,nw_dst=10.1.0.0/16,tp_src=443,",
            "ct_state=-trk,ip,",
            "ct_state=+trk+est,tcp,",
            "ct_state=+trk,ip,nw_dst=10.1.0.0/16,",
            "ct_zone=1,",
            "ct_mark=1/3,",
        ],
    );
    text
}

fn random_actions(rng: &mut Rng) -> String {
    let mut text = String::new();
    if rng.below(5) == 0 {
        text += pick(
            rng,
            &[
                "ct(table=1),",
                "ct(table=3,zone=1),",
                "ct(commit,zone=NXM_NX_REG0[0..15],exec(load:1->NXM_NX_CT_MARK[]),table=2),",
                "ct(commit,zone=1,nat(src=10.9.0.1),table=1),",
                "ct(nat,table=2),",
                "ct_clear,",
            ],
        );
    }
    for _ in 0..rng.below(4) {
        text += pick(
            rng,
            &[
                "1,",
                "2,",
                "9,",
                "3,",
                "NORMAL,",
                "NORMAL,",
                "FLOOD,",
                "CONTROLLER,",
                "IN_PORT,",
                "resubmit(,1),",
                "resubmit(,2),",
                "resubmit(,3),",
                "resubmit(2,1),",
                "mod_dl_dst:02:00:00:00:00:02,",
                "mod_nw_dst:10.1.0.2,",
                "mod_tp_dst:80,",
                "load:1->NXM_NX_REG0[],",
                "move:NXM_OF_ETH_SRC[0..3]->NXM_NX_REG0[0..3],",
                "move:NXM_OF_IP_DST[]->NXM_NX_REG0[],",
                "mod_vlan_vid:5,",
                "strip_vlan,",
                "dec_ttl,",
                "exit,",
                "clone(mod_dl_src:02:00:00:00:00:03,2),",
                "group:1,",
                "group:2,",
                "group:3,",
                "learn(table=2,priority=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),",
                "learn(table=3,limit=2,cookie=7,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_SRC[],load:1->NXM_NX_REG0[1]),",
            ],
        );
    }
    if text.is_empty() { "drop".to_owned() } else { text }
}

/// A match and actions that fit each other. Only IP has connections.
fn random_rule(rng: &mut Rng) -> String {
    let (matching, actions) = (random_match(rng), random_actions(rng));
    let is_ip = ["ip,", "tcp,", "udp,"].iter().any(|protocol| matching.contains(protocol));
    let ip = if actions.contains("ct(") && !is_ip { "ip," } else { "" };
    format!("{matching}{ip}actions={actions}")
}

/// A priority of its own for a rule, one of a few for clauses of conjunctions: which one of two rules of equal priority
/// applies to packets that match both is undefined, and may change with any other rule.
fn priority_of(rng: &mut Rng, rule: &str) -> u64 {
    let matching = rule.split("actions=").next().unwrap_or_default();
    let hash = matching.bytes().fold(7, |hash: u64, byte| (hash * 31 + u64::from(byte)) % 1999);
    1 + 2000 * rng.below(5) + if rule.contains("conjunction(") { 1999 } else { hash }
}

/// A table, mostly the first one.
fn random_table(rng: &mut Rng) -> u64 {
    rng.below(8).saturating_sub(4)
}

fn random_frame(rng: &mut Rng) -> Vec<u8> {
    let mut key = FlowKey::ZERO;
    key.set(Field::EthSrc, 0x0200_0000_0001 + u128::from(rng.below(4)));
    let dst = if rng.below(6) == 0 { 0xffff_ffff_ffff } else { 0x0200_0000_0001 + u128::from(rng.below(4)) };
    key.set(Field::EthDst, dst);
    if rng.below(4) == 0 {
        key.set_vlan(0, 0x8100, 0x1005 + rng.below(2) as u16);
    }
    if rng.below(4) == 0 {
        key.set(Field::EthType, 0x88b5);
    } else {
        key.set(Field::EthType, 0x0800);
        key.set(Field::Ipv4Src, 0x0a00_0001 + u128::from(rng.below(3)));
        key.set(Field::Ipv4Dst, [0x0a01_0002, 0x0a01_0103, 0x0a02_0002, 0x0b00_0001][rng.below(4) as usize]);
        key.set(Field::IpTtl, 1 + 63 * u128::from(rng.below(4).min(1)));
        key.set(Field::IpProto, if rng.below(3) == 0 { 17 } else { 6 });
        key.set(Field::TcpSrc, [80, 443, 1024, 1025][rng.below(4) as usize]);
        key.set(Field::TcpDst, [80, 81, 443, 2000][rng.below(4) as usize]);
    }
    flow::compose::compose(&key, &[0; 20])
}

impl World {
    fn new(seed: u64) -> Self {
        let mut lab = Lab::new();
        lab.dp.set_self_check(1);
        let bridges = ["a", "b"].map(|name| lab.bridge(name, 3));
        for (i, name) in ["a-9", "b-9"].into_iter().enumerate() {
            let mut specs: Vec<_> = bridges[i].ports().into_iter().map(|p| p.spec).collect();
            let out = PortOut::Patch(bridges[1 - i].id(), PortNo(9));
            specs.push(PortSpec { no: PortNo(9), name: name.into(), out, device: None, tunnel: None, mac: MAC_A });
            set_ports(&bridges[i], specs);
        }
        let rng = Rng::seeded(seed);
        let mut world = Self {
            lab,
            bridges,
            rng,
            traffic: Vec::new(),
            done: format!("seed {seed}\n"),
            compared: (0, 0),
            tracked: 0,
        };
        for _ in 0..6 {
            world.change_group(GroupCommand::AddOrModify);
        }
        for bridge in 0..2 {
            // The default actions are not always a drop, and are often changed.
            let actions = random_actions(&mut world.rng);
            world.flow_mod(bridge, &format!("add priority=0,actions={actions}"));
            let tracked = pick(&mut world.rng, &["ct(table=1)", "ct(table=1,zone=1),NORMAL", "NORMAL"]);
            world.flow_mod(bridge, &format!("add priority=2000,ip,actions={tracked}"));
        }
        for _ in 0..world.rng.below(12) {
            world.add_rule();
        }
        world
    }

    fn flow_mod(&mut self, bridge: usize, line: &str) {
        let _ = writeln!(self.done, "{}: {line}", self.bridges[bridge].name());
        // Inconsistent flows are skipped.
        let Ok(parsed) = parse_flow_line(line, &flow::text::NoNames) else { return };
        if let Err(error) = self.bridges[bridge].flow_mod(&parsed.flow_mod) {
            assert_eq!(error, OfpError::BacBadOutGroup, "{line}");
        }
    }

    fn change_group(&mut self, command: GroupCommand) {
        let rng = &mut self.rng;
        let (bridge, kind) = (rng.below(2) as usize, pick(rng, &["all", "select", "ff", "indirect"]));
        let mut text = format!("group_id={}", 1 + rng.below(3));
        if command != GroupCommand::Delete {
            text += &format!(",type={kind}");
            for _ in 0..if kind == "indirect" { 1 } else { 1 + rng.below(3) } {
                let watch =
                    if kind == "ff" { pick(rng, &["watch_port:3,", "watch_port:2,", "watch_group:3,"]) } else { "" };
                let actions =
                    ["1", "2", "3", "9", "mod_dl_src:02:00:00:00:00:04,1", "resubmit(,3)", "group:3", "normal"];
                text += &format!(",bucket={watch}{}", pick(rng, &actions));
            }
        }
        let _ = writeln!(self.done, "{bridge}: {command:?} {text}");
        let group = parse_group(&text, command, &flow::text::NoNames).expect("a group").group_mod;
        if let Err(error) = self.bridges[bridge].transaction(|t| t.group_mod(&group)) {
            assert_eq!(error, OfpError::GmfcLoop, "{text}");
        }
    }

    fn add_rule(&mut self) {
        let rng = &mut self.rng;
        let table = random_table(rng);
        let bridge = rng.below(2) as usize;
        let rule = match rng.below(6) {
            0 => format!("{}actions=conjunction({},{}/2)", random_match(rng), 1 + rng.below(2), 1 + rng.below(2)),
            _ => random_rule(rng),
        };
        let conj = pick(rng, &["", "", "", "", "", "", "conj_id=1,", "conj_id=2,"]);
        let rule = format!("{conj}{rule}");
        let priority = priority_of(rng, &rule);
        self.flow_mod(bridge, &format!("add table={table},priority={priority},{rule}"));
    }

    fn change_rules(&mut self) {
        let bridge = self.rng.below(2) as usize;
        let rules = self.bridges[bridge].collect(&crate::flow_table::Criteria::any());
        if rules.is_empty() {
            return self.add_rule();
        }
        let rule = &rules[self.rng.below(rules.len() as u64) as usize];
        let matching = flow::text::match_to_string(&rule.minimatch.expand(), &flow::text::NoNames);
        let comma = if matching.is_empty() { "" } else { "," };
        let strict = format!("table={},priority={},{matching}{comma}", rule.table, rule.priority);
        match self.rng.below(8) {
            0..4 => self.flow_mod(bridge, &format!("delete_strict {strict}")),
            4 => {
                let loose = random_match(&mut self.rng);
                self.flow_mod(bridge, &format!("delete {loose}"));
            }
            _ => {
                let actions = random_actions(&mut self.rng);
                self.flow_mod(bridge, &format!("modify_strict {strict}actions={actions}"));
            }
        }
    }

    fn send(&mut self, port: &str, frame: &[u8]) {
        let _ = writeln!(self.done, "packet {port} {}", self.lab.switch.key_of(frame, PortNo(0)).0.len());
        self.lab.send_at_once(port, &[frame.to_vec()]);
        let (bridge, no) = port.split_once('-').expect("a port of a bridge");
        let of = &self.bridges[usize::from(bridge == "b")];
        let port = of.port(PortNo(no.parse().expect("a number"))).map(|port| port.spec.out);
        if let Some(PortOut::Device(port)) = port {
            let key = self.lab.switch.key_of(frame, PortNo(port.0));
            self.resume_from_tracker(port, &key, &Packet::from_slice(frame), 0);
        }
    }

    /// Resumes a packet from the tracker, as often as it was sent there.
    fn resume_from_tracker(&mut self, port: DpPort, key: &FlowKey, packet: &Packet, times: u128) {
        let mut verdict = xlate::translate(&self.lab.switch.network(), key, false);
        let actions = crate::upcall::dp_actions(&mut verdict);
        for pair in actions.windows(2).filter(|_| times < 3) {
            let [DpAction::Ct(ct), DpAction::Recirc(id)] = pair else { continue };
            let mut back = key.clone();
            back.set(Field::RecircId, (*id).into());
            back.set(Field::CtZone, ct.zone.into());
            // Tracked and new, established, or both, in turn.
            let seed = key.get(Field::EthDst) + key.get(Field::TcpDst) + times;
            back.set(Field::CtState, 0x20 | 1 << (seed % 2));
            back.set(Field::CtMark, seed % 3);
            let covers = |entry: &DpFlowEntry| entry.key.eq_masked(&back, &entry.mask);
            if !self.lab.dp.flow_dump().iter().any(covers) {
                let reply = self.lab.switch.miss(Upcall { port, key: &back, packet });
                self.tracked += 1;
                if let Some((id, flow)) = reply.install {
                    self.lab.dp.flow_put(id, flow).expect("room");
                }
            }
            self.resume_from_tracker(port, &back, packet, times + 1);
        }
    }

    /// Several changes at once, of which the last sometimes fails, and undoes the others.
    fn bundle(&mut self) {
        let at = self.rng.below(2) as usize;
        let lines: Vec<String> = (0..=self.rng.below(4))
            .map(|_| match self.rng.below(4) {
                0 => format!("delete {}", random_match(&mut self.rng)),
                _ => {
                    let (table, rule) = (random_table(&mut self.rng), random_rule(&mut self.rng));
                    format!("add table={table},priority={},{rule}", priority_of(&mut self.rng, &rule))
                }
            })
            .collect();
        let fails = self.rng.below(2) == 0;
        let _ = writeln!(self.done, "{at}: fails {fails} {lines:?}");
        let bridge = &self.bridges[at];
        // Sets of fields may change their order when rules that were removed before leave the tables.
        let flows = || {
            let dump = crate::show::dump_flows(bridge, &flow::text::NoNames);
            dump.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
        };
        let before = flows();
        let result = bridge.transaction(|t| {
            for parsed in lines.iter().filter_map(|line| parse_flow_line(line, &flow::text::NoNames).ok()) {
                t.flow_mod(&parsed.flow_mod)?;
            }
            if fails { Err(OfpError::BfcMsgFailed) } else { Ok(()) }
        });
        match result {
            Ok(((), removed)) => bridge.finish_removal(removed),
            Err(_) => assert_eq!(flows(), before, "{}", self.done),
        }
    }

    fn packet(&mut self) {
        let frame = random_frame(&mut self.rng);
        let port = format!("{}-{}", pick(&mut self.rng, &["a", "b"]), 1 + self.rng.below(3));
        self.send(&port, &frame);
        self.traffic.push((port, frame));
    }

    fn step(&mut self) {
        self.change_or_send();
        if self.rng.below(3) == 0 && self.lab.switch.settles_at_once() {
            let _ = writeln!(self.done, "settled at once");
            self.compare_all();
        }
    }

    fn change_or_send(&mut self) {
        match self.rng.below(22) {
            20 => self.change_group(GroupCommand::AddOrModify),
            21 if self.rng.below(4) == 0 => self.change_group(GroupCommand::Delete),
            21 => self.change_group(GroupCommand::AddOrModify),
            0 if self.rng.below(2) == 0 => self.bundle(),
            0..3 => self.add_rule(),
            3..5 => self.change_rules(),
            5 => {
                let bridge = self.rng.below(2) as usize;
                match self.rng.below(3) {
                    0 => {
                        let _ = writeln!(self.done, "flush {bridge}");
                        self.bridges[bridge].flush_macs();
                    }
                    1 => self.configure_port(bridge),
                    _ => self.move_port(bridge),
                }
            }
            6..8 => self.check(Extent::Round),
            8 => self.check(Extent::Full),
            9 => {
                self.lab.clock.warp(1000);
                self.lab.switch.housekeeping();
            }
            _ => self.packet(),
        }
    }

    fn configure_port(&mut self, bridge: usize) {
        let bits = self.rng.below(16);
        let config = PortConfig {
            no_recv_stp: bits & 8 != 0,
            no_recv: bits & 1 != 0,
            no_flood: bits & 2 != 0,
            no_fwd: bits & 4 != 0,
            ..PortConfig::default()
        };
        let _ = writeln!(self.done, "port {bridge} 3 {config:?}");
        self.bridges[bridge].set_port_config(PortNo(3), config);
    }

    /// Removes port 2 from the bridge, or adds it again, sometimes as an access port.
    fn move_port(&mut self, bridge: usize) {
        let of = &self.bridges[bridge];
        let mut specs: Vec<_> = of.ports().into_iter().map(|p| p.spec).collect();
        let name = format!("{}-2", of.name());
        if specs.iter().any(|s| s.no == PortNo(2)) {
            specs.retain(|s| s.no != PortNo(2));
        } else {
            let info =
                self.lab.dp.ports().into_iter().find(|p| p.device.name() == name).expect("the datapath keeps it");
            let out = PortOut::Device(info.number);
            specs.push(PortSpec { no: PortNo(2), name, out, device: None, tunnel: None, mac: MAC_A });
        }
        let access = self.rng.below(2) == 0;
        let _ =
            writeln!(self.done, "ports {bridge} {:?} access {access}", specs.iter().map(|s| s.no).collect::<Vec<_>>());
        let bundles = specs.iter().map(bundle).map(|b| {
            let (mode, tag) = if access && b.ports == [PortNo(2)] { (VlanMode::Access, 5) } else { (b.mode, b.tag) };
            BundleSpec { mode, tag, ..b }
        });
        let bundles = bundles.collect();
        of.set_ports(specs, bundles);
    }

    /// Runs a pass, and compares all flows afterwards.
    fn check(&mut self, extent: Extent) {
        let _ = writeln!(self.done, "pass {extent:?}");
        let report = self.lab.switch.pass(extent);
        assert_eq!(report.fixed_up, 0, "{}", self.done);
        // Pushed statistics may teach flows, which is a change for the next pass.
        let switch = &self.lab.switch;
        let mut last = None;
        while last != Some(switch.last_change()) {
            last = Some(switch.last_change());
            switch.pass(Extent::Changes);
        }
        self.compare_all();
    }

    /// Compares all flows with translations of packets in their match regions.
    fn compare_all(&mut self) {
        let entries = self.lab.dp.flow_dump();
        let samples: Vec<FlowKey> = (0..8)
            .map(|_| {
                let frame = random_frame(&mut self.rng);
                self.lab.switch.key_of(&frame, PortNo(0))
            })
            .collect();
        for entry in &entries {
            self.compared.0 += 1;
            self.compare(entry, &entry.key);
            self.compare(entry, &entry.key.masked(&entry.mask));
            for sample in &samples {
                self.compare(entry, &mixed(sample, &entry.key, &entry.mask));
            }
        }
    }

    fn compare(&mut self, entry: &DpFlowEntry, key: &FlowKey) {
        self.compared.1 += 1;
        let mut verdict = xlate::translate(&self.lab.switch.network(), key, false);
        let fresh = crate::upcall::dp_actions(&mut verdict);
        assert!(
            have_same_effect((&plain(&entry.actions), &entry.mask), (&plain(&fresh), &verdict.mask()), key),
            "{}flow {:?} mask {:?}\npacket {key:?}\ncached {:?}\nfresh {fresh:?}",
            self.done,
            entry.key,
            entry.mask,
            entry.actions,
        );
    }

    /// Sends all traffic until it teaches nothing more, and returns the number of flows that forward it.
    fn flows_for_traffic(&mut self) -> u64 {
        for _ in 0..2 {
            self.lab.clock.warp(6000);
            for (port, frame) in std::mem::take(&mut self.traffic) {
                self.send(&port, &frame);
                self.traffic.push((port, frame));
            }
            self.check(Extent::Full);
        }
        self.lab.dp.stats().flows
    }
}

/// `key` in the bits of `mask`, `sample` in the others.
fn mixed(sample: &FlowKey, key: &FlowKey, mask: &FlowMask) -> FlowKey {
    FlowKey(std::array::from_fn(|i| key.0[i] & mask.0[i] | sample.0[i] & !mask.0[i]))
}

/// Actions without the packet's metadata in packet-ins.
fn plain(actions: &[DpAction]) -> Vec<DpAction> {
    let each = |a: &DpAction| match a {
        DpAction::Controller(c) => {
            let mut c = (**c).clone();
            c.metadata = FlowKey::ZERO;
            DpAction::Controller(Arc::new(c))
        }
        other => other.with_nested(|inner| plain(inner).into()),
    };
    actions.iter().map(each).collect()
}

#[test]
fn cached_flows_equal_fresh_translations() {
    let (mut compared, mut flows, mut translated, mut checks, mut tracked) = ((0, 0), (0, 0), 0, 0, 0);
    for seed in 0..cases() {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.check(Extent::Round);
        let now = world.flows_for_traffic();
        world.lab.switch.purge();
        let anew = world.flows_for_traffic();
        assert!(now <= 2 * anew, "{now} flows, where a cache built anew has {anew}; {}", world.done);
        compared = (compared.0 + world.compared.0, compared.1 + world.compared.1);
        flows = (flows.0 + now, flows.1 + anew);
        let status = world.lab.switch.revalidator_status();
        assert_eq!((status.fixed_up, status.self_check_failed), (0, 0), "{}", world.done);
        translated += status.translated;
        tracked += world.tracked;
        checks += status.self_checks;
    }
    tally::report!(
        "{} sequences of {STEPS} steps: {} flows compared in {} packets, {tracked} misses behind the tracker, {translated} \
         re-translated, {checks} packets checked by themselves; {} flows, built anew {}",
        cases(),
        compared.0,
        compared.1,
        flows.0,
        flows.1
    );
}
