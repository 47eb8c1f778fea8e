//! Properties of translations over random tables and packets.

use crate::model::{Network, Port, PortConfig, new_tables};
use crate::*;
use base::{DpPort, MacAddr, Millis, PortNo};
use dpif::DpAction;
use flow::{Field, FlowKey, Match, layout};
use openflow::{Action, Subfield};
use parking_lot::RwLock;
use proptest::prelude::*;
use std::sync::Arc;

/// Two bridges with four ports each, port 3 a patch between them, port 4 an access port of VLAN 5.
fn network(rules: &[(u8, Match, u16, Vec<Action>)]) -> Network {
    network_and_peer(rules, &[Action::SetEthSrc(PEER_SRC), output(PortNo(1)), output(PortNo::NORMAL)])
}

/// What the second bridge sets as source address.
const PEER_SRC: MacAddr = MacAddr([2, 9, 9, 9, 9, 9]);

/// The same, and what the second bridge does.
fn network_and_peer(rules: &[(u8, Match, u16, Vec<Action>)], peer: &[Action]) -> Network {
    let mut net = Network::default();
    for id in 0..2u32 {
        let tables = new_tables();
        if id == 0 {
            for (table, m, priority, actions) in rules {
                let cls = &tables[usize::from(*table)].rules;
                let minimatch = cls.compress(m);
                cls.insert(Arc::new(Rule {
                    minimatch,
                    priority: *priority,
                    table: *table,
                    cookie: 0,
                    idle_timeout: 0,
                    hard_timeout: 0,
                    importance: 0,
                    flags: openflow::flow_mod::FlowFlags::default(),
                    actions: actions.clone().into(),
                    created: Millis(0),
                    modified: 0.into(),
                    versions: classifier::Versions::new(0),
                    conjunctions: Box::default(),
                    stats: Arc::default(),
                }));
            }
        } else {
            let cls = &tables[0].rules;
            let minimatch = cls.compress(&Match::ANY);
            cls.insert(Arc::new(Rule {
                minimatch,
                priority: 0,
                table: 0,
                cookie: 0,
                idle_timeout: 0,
                hard_timeout: 0,
                importance: 0,
                flags: openflow::flow_mod::FlowFlags::default(),
                actions: peer.into(),
                created: Millis(0),
                modified: 0.into(),
                versions: classifier::Versions::new(0),
                conjunctions: Box::default(),
                stats: Arc::default(),
            }));
        }
        let mut macs = MacTable::default();
        macs.learn(0, MacAddr([2, 0, 0, 0, 0, 1]), PortNo(1), Millis(1));
        macs.learn(5, MacAddr([2, 0, 0, 0, 0, 2]), PortNo(4), Millis(1));
        let out =
            |n: u32| if n == 3 { PortOut::Patch(1 - id, PortNo(3)) } else { PortOut::Device(DpPort(10 * id + n)) };
        let ports = (1..5)
            .map(|n| {
                let no = PortNo(n);
                let bundle = Some(n as usize - 1);
                (no, Port { no, name: format!("p{n}"), out: out(n), config: PortConfig::default(), live: true, bundle })
            })
            .collect();
        let bundles = (1..5u32)
            .map(|n| Bundle {
                name: format!("p{n}"),
                ports: vec![PortNo(n)],
                mode: if n == 4 { VlanMode::Access } else { VlanMode::Trunk },
                tag: if n == 4 { 5 } else { 0 },
                trunks: None,
                priority_tags: model::PriorityTags::Never,
                protected: false,
                floodable: true,
            })
            .collect();
        for n in [1, 2, 4] {
            net.ports.insert(DpPort(10 * id + n), (id, PortNo(n)));
        }
        let bridge = Bridge {
            id,
            name: format!("br{id}"),
            ports,
            bundles,
            tables,
            macs: Arc::new(RwLock::new(macs)),
            miss_to_controller: false,
            forward_bpdu: false,
        };
        net.bridges.insert(id, Arc::new(bridge));
    }
    net
}

fn output(port: PortNo) -> Action {
    Action::Output { port, max_len: 0xffff }
}

fn arb_match() -> impl Strategy<Value = Match> {
    (0..3u8, 0..4u8, 0..3u8, 0..3u8, 0..3u8, 0..3u8).prop_map(|(port, eth, vlan, ip, tcp, reg)| {
        let mut m = Match::ANY;
        if port > 0 {
            m.set(Field::InPort, port.into());
        }
        if eth > 1 {
            m.set_masked(
                Field::EthDst,
                0x0200_0000_0000 | u128::from(eth),
                if eth == 2 { 3 } else { 0xffff_ffff_ffff },
            );
        }
        if vlan > 0 {
            m.set_masked(Field::VlanTci, if vlan == 1 { 0 } else { 0x1005 }, 0x1fff);
        }
        if ip > 0 {
            m.set(Field::EthType, 0x800);
            m.set_masked(Field::Ipv4Src, 0x0a00_0001, if ip == 1 { 0xff00_0000 } else { 0xffff_ffff });
            if tcp > 0 {
                m.set(Field::IpProto, 6);
                m.set(Field::TcpDst, tcp.into());
            }
        }
        if reg > 0 {
            m.set(Field::Reg1, reg.into());
        }
        m
    })
}

fn arb_action() -> impl Strategy<Value = Action> {
    let port = prop_oneof![
        6 => (1..6u32).prop_map(PortNo),
        2 => Just(PortNo::NORMAL),
        1 => Just(PortNo::FLOOD),
        1 => Just(PortNo::IN_PORT),
        1 => Just(PortNo::CONTROLLER)
    ];
    let leaf = prop_oneof![
        6 => port.prop_map(output),
        1 => (0..3u8).prop_map(|n| Action::SetEthDst(MacAddr([2, 0, 0, 0, 0, n]))),
        1 => (0..9u16).prop_map(|vid| Action::SetVlanVid { vid, push_if_needed: vid % 2 == 0 }),
        1 => (0..8u8).prop_map(|pcp| Action::SetVlanPcp { pcp, push_if_needed: pcp % 2 == 0 }),
        1 => Just(Action::PopVlan),
        1 => Just(Action::PushVlan(0x8100)),
        1 => Just(Action::PushVlan(0x88a8)),
        1 => Just(Action::DecTtl(vec![0])),
        1 => (0..9u8).prop_map(|n| Action::SetIpv4Src([10, 0, 0, n].into())),
        1 => (0..9u8).prop_map(|n| Action::SetIpDscp(n << 2)),
        1 => (0..9u16).prop_map(Action::SetL4Dst),
        1 => any::<u8>().prop_map(|v| Action::SetField { field: Field::EthSrc, value: u128::from(v) & 0xf0, mask: 0xf0 }),
        1 => (0..3u64).prop_map(|value| Action::RegLoad { dst: Subfield::whole(Field::Reg1), value }),
        1 => Just(Action::RegMove {
            src: Subfield { field: Field::Ipv4Src, offset: 4, n_bits: 8 },
            dst: Subfield { field: Field::Reg1, offset: 0, n_bits: 8 },
        }),
        1 => Just(Action::RegMove {
            src: Subfield { field: Field::EthSrc, offset: 0, n_bits: 16 },
            dst: Subfield { field: Field::EthDst, offset: 8, n_bits: 16 },
        }),
        1 => Just(Action::StackPush(Subfield::whole(Field::Ipv4Dst))),
        1 => Just(Action::StackPop(Subfield::whole(Field::Ipv4Src))),
        3 => (1..4u8).prop_map(|t| Action::Resubmit { in_port: None, table: Some(t) }),
        1 => Just(Action::OutputReg { src: Subfield::whole(Field::Reg1), max_len: 0 }),
        1 => Just(Action::OutputTrunc { port: PortNo(2), max_len: 60 }),
        1 => Just(Action::Exit),
        1 => Just(Action::WriteActions(vec![output(PortNo(2)), Action::PopVlan])),
        1 => Just(Action::WriteActions(vec![Action::SetEthDst(MacAddr([2, 7, 7, 7, 7, 7])), output(PortNo(4))])),
    ];
    prop_oneof![
        8 => leaf.clone(),
        1 => prop::collection::vec(leaf, 1..4).prop_map(Action::Clone),
    ]
}

fn arb_rules() -> impl Strategy<Value = Vec<(u8, Match, u16, Vec<Action>)>> {
    let rule = (0..4u8, arb_match(), 0..4u16, prop::collection::vec(arb_action(), 0..6));
    prop::collection::vec(rule, 1..12)
}

fn arb_key() -> impl Strategy<Value = FlowKey> {
    (arb_match(), 0..5u8, 1..3u64, any::<bool>(), 0..3u64, 0..4u16).prop_map(|(m, mac, ttl, tcp, port, inner)| {
        let mut key = m.key().clone();
        key.set(Field::Reg1, 0);
        key.set(Field::EthSrc, 0x0200_0000_0000 | u128::from(mac));
        if key.get(Field::InPortOxm) == 0 {
            key.set(Field::InPortOxm, 1);
        }
        if key.get(Field::VlanTci) != 0 {
            key.set_vlan(0, 0x8100, key.vlan_tci());
            if inner > 0 {
                key.set_vlan(1, 0x8100, 0x1000 | inner);
            }
        }
        if key.eth_type() == 0x800 {
            key.set(Field::IpTtl, u128::from(ttl) * 32 - 31);
            if tcp {
                key.set(Field::IpProto, 6);
                key.set(Field::TcpDst, port.into());
            }
        }
        key
    })
}

/// Cases a property, unless `PROPTEST_CASES` says otherwise.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// A packet that agrees in the bits read has the same verdict: the cache may answer for it.
    #[test]
    fn bits_not_read_do_not_matter(rules in arb_rules(), key in arb_key(), noise: [u64; flow::WORDS]) {
        let net = network(&rules);
        let verdict = translate(&net, &key, false);
        let mut other = key.clone();
        let unread = other.0.iter_mut().zip(noise).zip(verdict.reads.mask().0);
        for ((bits, noise), read) in unread.skip(layout::ETH_DST) {
            *bits ^= noise & !read;
        }
        let again = translate(&net, &other, false);
        prop_assert_eq!(&verdict.actions, &again.actions);
        prop_assert_eq!(verdict.reads.order(), again.reads.order());
        prop_assert_eq!(verdict.effects.len(), again.effects.len());
        prop_assert_eq!(verdict.error, again.error);
    }

    /// The same with bits that packets have, so that values in the tables are met.
    #[test]
    fn unread_bits_of_another_packet_do_not_matter(rules in arb_rules(), key in arb_key(), other in arb_key()) {
        let net = network(&rules);
        let verdict = translate(&net, &key, false);
        let mut mixed = other;
        for ((bits, own), read) in mixed.0.iter_mut().zip(key.0).zip(verdict.reads.mask().0) {
            *bits = own & read | *bits & !read;
        }
        mixed.set_in_port(key.in_port());
        let again = translate(&net, &mixed, false);
        prop_assert_eq!(&verdict.actions, &again.actions);
        prop_assert_eq!(verdict.reads.order(), again.reads.order());
    }

    /// The datapath's packet at each output is the one that the actions, carried out one by one, would have made,
    /// over tables, clones, action sets and a patch port.
    #[test]
    fn committed_late_is_as_good_as_at_once(rules in arb_rules(), key in arb_key(), noise in arb_key()) {
        let rules = for_naive(rules);
        let net = network_and_peer(&rules, &[Action::SetEthSrc(PEER_SRC), output(PortNo(1))]);
        let verdict = translate(&net, &key, false);
        prop_assert_eq!(verdict.error, None);
        // What was not read may be anything.
        let mut other = noise;
        for ((bits, own), read) in other.0.iter_mut().zip(key.0).zip(verdict.reads.mask().0) {
            *bits = own & read | *bits & !read;
        }
        other.set_in_port(key.in_port());
        for key in [key, other] {
            let mut got = Vec::new();
            execute(&verdict.actions, &mut Wire::new(&key), &mut got);
            got.retain(|(port, ..)| *port != u32::MAX);
            let mut naive = Naive { rules: &rules, at: Wire::new(&key), ..Naive::new() };
            naive.table(0);
            naive.action_set();
            prop_assert_eq!(got, naive.out);
        }
    }
}

/// Leaves what the naive interpreter knows: no NORMAL or controller, and look-ups in later tables only.
fn for_naive(mut rules: Vec<(u8, Match, u16, Vec<Action>)>) -> Vec<(u8, Match, u16, Vec<Action>)> {
    fn filter(actions: &mut Vec<Action>, table: u8) {
        actions.retain_mut(|a| match a {
            Action::Output { port: PortNo::NORMAL | PortNo::CONTROLLER, .. } | Action::OutputTrunc { .. } => false,
            Action::Resubmit { table: t, .. } => {
                *t = t.map(|t| t + table);
                true
            }
            Action::Clone(inner) => {
                filter(inner, table);
                true
            }
            _ => true,
        });
    }
    for (i, (table, _, priority, actions)) in rules.iter_mut().enumerate() {
        // No two rules are as good as each other.
        *priority = i as u16;
        filter(actions, *table);
    }
    rules
}

/// A packet: its key, and VLAN tags inside of the two that the key has room for, outermost first.
#[derive(Clone)]
struct Wire {
    key: FlowKey,
    hidden: Vec<(u16, u16)>,
}

impl Wire {
    fn new(key: &FlowKey) -> Self {
        Self { key: key.clone(), hidden: Vec::new() }
    }

    fn push(&mut self, tpid: u16, tci: u16) {
        let ((outer_tpid, outer), inner) = (self.key.vlan(0), self.key.vlan(1));
        if inner.1 & 0x1000 != 0 {
            self.hidden.insert(0, inner);
        }
        self.key.set_vlan(1, outer_tpid, outer);
        self.key.set_vlan(0, tpid, tci | 0x1000);
    }

    /// Takes the outer tag off, and leaves those inside of the second where they are.
    fn pop(&mut self) {
        let (tpid, tci) = self.key.vlan(1);
        self.key.set_vlan(0, tpid, tci);
        self.key.set_vlan(1, 0, 0);
    }

    /// What goes out: all tags in order, and the rest of the headers.
    fn sent(&self, port: u32) -> Sent {
        let mut key = packet_part(&self.key);
        let mut tags: Vec<_> = (0..2).map(|n| key.vlan(n)).filter(|(_, tci)| tci & 0x1000 != 0).collect();
        tags.extend(&self.hidden);
        key.set_vlan(0, 0, 0);
        key.set_vlan(1, 0, 0);
        (port, tags, key)
    }
}

/// Port, tags, other headers.
type Sent = (u32, Vec<(u16, u16)>, FlowKey);

/// Carries datapath actions out on a packet.
fn execute(actions: &[DpAction], wire: &mut Wire, out: &mut Vec<Sent>) {
    for action in actions {
        match action {
            DpAction::Output(port) => out.push(wire.sent(port.0)),
            DpAction::Set { field, value, mask } => {
                wire.key.set(*field, wire.key.get(*field) & !mask | value & mask);
            }
            DpAction::PushVlan { tpid, tci } => wire.push(*tpid, *tci),
            DpAction::PopVlan => {
                wire.pop();
                // The datapath sees all of the packet.
                if !wire.hidden.is_empty() {
                    let n = if wire.key.vlan(0).1 & 0x1000 == 0 { 0 } else { 1 };
                    let (tpid, tci) = wire.hidden.remove(0);
                    wire.key.set_vlan(n, tpid, tci);
                }
            }
            DpAction::Controller(_) => out.push(wire.sent(u32::MAX)),
            DpAction::Clone(inner) => execute(inner, &mut wire.clone(), out),
            DpAction::Trunc(_) | DpAction::Drop(_) => {}
        }
    }
}

fn packet_part(key: &FlowKey) -> FlowKey {
    let mut key = key.clone();
    key.0[..layout::ETH_DST].fill(0);
    key
}

/// Tables looked up one rule after the other, actions carried out one by one, each at once, with no thought of masks.
struct Naive<'a> {
    rules: &'a [(u8, Match, u16, Vec<Action>)],
    at: Wire,
    stack: Vec<u128>,
    set: Vec<Action>,
    out: Vec<Sent>,
    exit: bool,
}

impl Naive<'_> {
    fn new() -> Self {
        Self { rules: &[], at: Wire::new(&FlowKey::ZERO), stack: vec![], set: vec![], out: vec![], exit: false }
    }

    fn table(&mut self, table: u8) {
        let matching = self.rules.iter().filter(|(t, m, ..)| *t == table && m.matches(&self.at.key));
        if let Some((.., actions)) = matching.max_by_key(|(_, _, priority, _)| *priority) {
            self.actions(actions);
        }
    }

    fn action_set(&mut self) {
        let set = std::mem::take(&mut self.set);
        let pops: Vec<_> = set.iter().filter(|a| matches!(a, Action::PopVlan)).take(1).cloned().collect();
        let last = |f: fn(&Action) -> bool| set.iter().rfind(|a| f(a)).cloned().into_iter();
        self.actions(&pops);
        self.actions(&last(|a| matches!(a, Action::SetEthDst(_))).collect::<Vec<_>>());
        self.actions(&last(|a| matches!(a, Action::Output { .. })).collect::<Vec<_>>());
    }

    fn output(&mut self, port: u32) {
        match port {
            1 | 2 | 4 => self.out.push(self.at.sent(port)),
            3 => {
                let mut there = self.at.clone();
                there.key.set(Field::EthSrc, PEER_SRC.to_u64().into());
                self.out.push(there.sent(11));
            }
            _ => {}
        }
    }

    fn actions(&mut self, actions: &[Action]) {
        for action in actions {
            if self.exit || !self.action(action) {
                return;
            }
        }
    }

    /// Whether the list goes on.
    fn action(&mut self, action: &Action) -> bool {
        let in_port = self.at.key.in_port();
        let key = &mut self.at.key;
        let is_ip = key.eth_type() == 0x800;
        let tagged = key.vlan_tci() & 0x1000 != 0;
        match action {
            Action::Output { port: PortNo::FLOOD, .. } => {
                (1..5).filter(|n| *n != in_port.0).for_each(|n| self.output(n));
            }
            Action::Output { port: PortNo::IN_PORT, .. } => self.output(in_port.0),
            Action::Output { port, .. } if *port != in_port => self.output(port.0),
            Action::OutputReg { src, .. } => {
                let port = key.get(src.field) as u32;
                if port != in_port.0 {
                    self.output(port);
                }
            }
            Action::SetEthDst(mac) => key.set(Field::EthDst, mac.to_u64().into()),
            Action::SetVlanVid { vid, push_if_needed } => {
                if !tagged && *push_if_needed {
                    self.at.push(0x8100, 0x1000 | vid);
                } else if tagged {
                    key.set(Field::VlanVid, u128::from(*vid) | 0x1000);
                }
            }
            Action::SetVlanPcp { pcp, push_if_needed } => {
                if !tagged && *push_if_needed {
                    self.at.push(0x8100, 0x1000);
                }
                if tagged || *push_if_needed {
                    self.at.key.set(Field::VlanPcp, (*pcp).into());
                }
            }
            Action::PopVlan if tagged => self.at.pop(),
            Action::PushVlan(tpid) => self.at.push(*tpid, 0x1000),
            Action::DecTtl(_) if is_ip => {
                let ttl = key.get(Field::IpTtl);
                if ttl <= 1 {
                    return false;
                }
                key.set(Field::IpTtl, ttl - 1);
            }
            Action::SetIpv4Src(ip) if is_ip => key.set(Field::Ipv4Src, ip.to_bits().into()),
            Action::SetIpDscp(tos) if is_ip => key.set(Field::IpDscp, (tos >> 2).into()),
            Action::SetL4Dst(port) if is_ip && key.ip_proto() == 6 => key.set(Field::TcpDst, (*port).into()),
            Action::SetField { field, value, mask } => key.set(*field, key.get(*field) & !mask | value),
            Action::RegLoad { dst, value } => key.set(dst.field, (*value).into()),
            Action::RegMove { src, dst } => {
                let present = src.field != Field::Ipv4Src || is_ip;
                let value =
                    if present { key.get(src.field) >> src.offset & 0xffff & ((1 << src.n_bits) - 1) } else { 0 };
                let mask = dst.mask();
                key.set(dst.field, key.get(dst.field) & !mask | value << dst.offset);
            }
            Action::StackPush(src) => {
                let value = if is_ip { key.get(src.field) } else { 0 };
                self.stack.push(value);
            }
            Action::StackPop(dst) => {
                if let Some(v) = self.stack.pop()
                    && is_ip
                {
                    key.set(dst.field, v);
                }
            }
            Action::Resubmit { table, .. } => self.table(table.expect("tables are named")),
            Action::Clone(inner) => {
                let saved = (self.at.clone(), self.stack.clone(), self.set.clone());
                self.actions(inner);
                (self.at, self.stack, self.set) = saved;
            }
            Action::WriteActions(actions) => self.set.extend(actions.iter().cloned()),
            Action::Exit => self.exit = true,
            _ => {}
        }
        true
    }
}

#[test]
fn endless_resubmits_end_in_an_error() {
    let again = vec![Action::Resubmit { in_port: None, table: Some(0) }];
    let net = network(&[(0, Match::ANY, 0, again)]);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    assert_eq!(translate(&net, &key, false).error, Some(TranslationError::Depth));
    let twice = vec![Action::Resubmit { in_port: None, table: Some(1) }; 60];
    let net = network(&[
        (0, Match::ANY, 0, twice.clone()),
        (1, Match::ANY, 0, twice.iter().map(|_| Action::Resubmit { in_port: None, table: Some(2) }).collect()),
        (2, Match::ANY, 0, vec![Action::Resubmit { in_port: None, table: Some(3) }; 60]),
    ]);
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.error, verdict.actions.len()), (Some(TranslationError::Resubmits), 0));
}

#[test]
fn a_learned_address_is_forwarded_and_others_flooded() {
    let net = network(&[(0, Match::ANY, 0, vec![output(PortNo::NORMAL)])]);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(2));
    key.set(Field::EthSrc, 0x0200_0000_0077);
    key.set(Field::EthDst, 0x0200_0000_0001);
    let verdict = translate(&net, &key, false);
    assert_eq!(verdict.actions, [DpAction::Output(DpPort(1))]);
    assert!(verdict.effects.iter().any(|e| matches!(e, Effect::LearnMac { bridge: 0, vlan: 0, port: PortNo(2), .. })));
    // In VLAN 5 the access port 4 is untagged.
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set_vlan(0, 0x8100, 0x1005);
    assert_eq!(translate(&net, &key, false).actions, [DpAction::PopVlan, DpAction::Output(DpPort(4))]);
}

/// The one flow `actions`, and what becomes of `key`.
fn actions_for(key: &FlowKey, actions: Vec<Action>) -> Verdict {
    translate(&network(&[(0, Match::ANY, 0, actions)]), key, false)
}

fn tagged(vid: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set_vlan(0, 0x8100, 0x1000 | vid);
    key
}

#[test]
fn an_id_written_unread_is_not_taken_for_the_packets_own_by_a_push() {
    // The packet's id happens to be the one that is written: others, that the same megaflow covers, have another one.
    let key = tagged(9);
    let actions =
        vec![Action::SetVlanVid { vid: 9, push_if_needed: true }, Action::PushVlan(0x8100), output(PortNo(2))];
    let verdict = actions_for(&key, actions);
    let mut other = key;
    other.0[layout::ETH_SRC] ^= 0xfff & !verdict.reads.mask().0[layout::ETH_SRC];
    let mut out = Vec::new();
    execute(&verdict.actions, &mut Wire::new(&other), &mut out);
    assert_eq!(out[0].1, [(0x8100, 0x1000), (0x8100, 0x1009)]);
}

#[test]
fn a_third_tag_is_pushed_onto_the_two_that_are_there() {
    let mut key = tagged(5);
    key.set_vlan(1, 0x8100, 0x1006);
    let verdict = actions_for(&key, vec![Action::PushVlan(0x88a8), output(PortNo(2))]);
    assert_eq!(verdict.actions, [DpAction::PushVlan { tpid: 0x88a8, tci: 0x1000 }, DpAction::Output(DpPort(2))]);
    let and_pop = vec![Action::PushVlan(0x88a8), Action::PopVlan, Action::PopVlan, output(PortNo(2))];
    let verdict = actions_for(&key, and_pop);
    assert!(!verdict.actions.iter().skip(1).any(|a| matches!(a, DpAction::PushVlan { .. })), "{:?}", verdict.actions);
}

#[test]
fn changes_that_nobody_sees_are_no_actions() {
    let actions = vec![Action::SetEthDst(MacAddr([2; 6])), output(PortNo(2)), Action::PopVlan, output(PortNo(77))];
    assert_eq!(actions_for(&tagged(5), actions).actions.last(), Some(&DpAction::Output(DpPort(2))));
    let verdict = actions_for(&tagged(5), vec![Action::SetEthDst(MacAddr([2; 6])), output(PortNo(3))]);
    assert!(verdict.actions.len() > 1);
    let in_vain =
        actions_for(&tagged(5), vec![Action::SetEthDst(MacAddr([2; 6])), Action::Clone(vec![output(PortNo(77))])]);
    assert_eq!((in_vain.actions.len(), in_vain.drop), (0, Some(base::DropReason::NoPort)));
    let dropped = actions_for(&tagged(5), vec![Action::PopVlan, Action::PushVlan(0x8100), output(PortNo(77))]);
    assert_eq!((dropped.actions.len(), dropped.drop), (0, Some(base::DropReason::NoPort)));
}

#[test]
fn an_expired_ttl_ends_its_own_list_only() {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthType, 0x800);
    key.set(Field::IpTtl, 1);
    let to_one = Action::Resubmit { in_port: None, table: Some(1) };
    let net = network(&[
        (
            0,
            Match::ANY,
            0,
            vec![to_one, output(PortNo(4)), Action::Clone(vec![Action::DecTtl(vec![0]), output(PortNo(2))])],
        ),
        (1, Match::ANY, 0, vec![Action::DecTtl(vec![0]), output(PortNo(2))]),
    ]);
    let outputs =
        |v: &Verdict| v.actions.iter().filter(|a| matches!(a, DpAction::Output(_))).cloned().collect::<Vec<_>>();
    let verdict = translate(&net, &key, false);
    assert_eq!(outputs(&verdict), [DpAction::Output(DpPort(4))]);
    assert_eq!(verdict.actions.len(), 3);
}

#[test]
fn exit_in_a_clone_is_an_exit() {
    let verdict =
        actions_for(&tagged(5), vec![output(PortNo(4)), Action::Clone(vec![Action::Exit]), output(PortNo(2))]);
    assert_eq!(verdict.actions, [DpAction::Output(DpPort(4))]);
}

#[test]
fn truncation_is_for_devices() {
    let cut = |port| Action::OutputTrunc { port, max_len: 60 };
    let all =
        [PortNo::NORMAL, PortNo::FLOOD, PortNo::ALL, PortNo::TABLE, PortNo::CONTROLLER, PortNo::IN_PORT, PortNo(3)];
    let mut actions: Vec<_> = all.into_iter().map(cut).collect();
    actions.push(cut(PortNo(2)));
    let verdict = actions_for(&tagged(5), actions);
    assert_eq!(verdict.actions, [DpAction::Trunc(60), DpAction::Output(DpPort(2))]);
}

#[test]
fn output_by_register_takes_numbers_of_openflow_10() {
    let reg = Subfield::whole(Field::Reg1);
    let via = |value| vec![Action::RegLoad { dst: reg, value }, Action::OutputReg { src: reg, max_len: 0 }];
    assert_eq!(actions_for(&tagged(5), via(0xfff8)).actions, [DpAction::Output(DpPort(1))]);
    assert!(actions_for(&tagged(5), via(0xffff_fff8)).actions.is_empty());
}

#[test]
fn of_an_action_set_an_output_goes_before_a_resubmit() {
    let set = vec![output(PortNo(2)), Action::Resubmit { in_port: None, table: Some(1) }];
    let net =
        network(&[(0, Match::ANY, 0, vec![Action::WriteActions(set)]), (1, Match::ANY, 0, vec![output(PortNo(4))])]);
    assert_eq!(translate(&net, &tagged(5), false).actions, [DpAction::Output(DpPort(2))]);
}

#[test]
fn tunnel_fields_do_not_cross_a_patch() {
    let actions = vec![Action::SetTunnel { id: 5, wide: false }, output(PortNo(3))];
    let mut net = network(&[(0, Match::ANY, 0, actions)]);
    let mut m = Match::ANY;
    m.set(Field::TunId, 5);
    let other = network(&[(0, m, 1, vec![output(PortNo(2))]), (0, Match::ANY, 0, vec![output(PortNo(1))])]);
    Arc::get_mut(net.bridges.get_mut(&1).expect("two bridges")).expect("not shared").tables =
        Arc::clone(&other.bridges[&0].tables);
    assert_eq!(translate(&net, &tagged(5), false).actions, [DpAction::Output(DpPort(11))]);
}

#[test]
fn writing_an_id_tags_a_packet() {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    let set = Action::SetField { field: Field::DlVlan, value: 5, mask: 0xfff };
    let verdict = actions_for(&key, vec![set, output(PortNo(2))]);
    assert_eq!(verdict.actions, [DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 }, DpAction::Output(DpPort(2))]);
}

#[test]
fn a_packet_out_to_the_tables_can_miss_to_the_controller() {
    let mut net = network(&[]);
    Arc::get_mut(net.bridges.get_mut(&0).expect("two bridges")).expect("not shared").miss_to_controller = true;
    let verdict = translate_from(&net, &net.bridges[&0], &tagged(5), Start::Actions(&[output(PortNo::TABLE)]), false);
    let [DpAction::Controller(what)] = &verdict.actions[..] else { panic!("{:?}", verdict.actions) };
    assert_eq!((what.reason, what.cookie, what.table_miss), (0, 0, false));
}

#[test]
fn bits_beyond_a_value_of_128_are_zero() {
    let part = |field, offset| Subfield { field, offset, n_bits: 4 };
    let src = part(Field::TunMetadata0, 900);
    let net = network(&[(
        0,
        Match::ANY,
        0,
        vec![Action::RegMove { src, dst: part(Field::Reg1, 0) }, Action::StackPush(src), output(PortNo(2))],
    )]);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::Reg1, 0xff);
    assert_eq!(translate(&net, &key, false).final_key.get(Field::Reg1), 0xf0);
}

fn at_port(port: u32) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(port));
    key
}

fn to(table: u8) -> Action {
    Action::Resubmit { in_port: None, table: Some(table) }
}

#[test]
fn later_tables_cost_no_depth_and_no_stack() {
    // Up through 200 tables and back to the start, nested as deep as it goes.
    let rules: Vec<_> =
        (0..200).map(|t| (t, Match::ANY, 0, vec![to(if t == 199 { 0 } else { t + 1 }), output(PortNo(2))])).collect();
    let verdict = translate(&network(&rules), &at_port(1), false);
    assert_eq!(
        (verdict.error, verdict.drop),
        (Some(TranslationError::Resubmits), Some(base::DropReason::TooManyResubmits))
    );
    let up = translate(&network(&rules[..199]), &at_port(1), false);
    assert_eq!((up.error, up.actions.len()), (None, 199));
}

#[test]
fn clones_within_clones_end() {
    let rules: Vec<_> = (0..200).map(|t| (t, Match::ANY, 0, vec![Action::Clone(vec![to((t + 1) % 200)])])).collect();
    let verdict = translate(&network(&rules), &at_port(1), false);
    assert_eq!(
        (verdict.error, verdict.drop),
        (Some(TranslationError::Depth), Some(base::DropReason::RecursionTooDeep))
    );
}

#[test]
fn each_limit_has_its_own_reason() {
    let many = |action: Action| {
        let net = network(&[(0, Match::ANY, 0, vec![to(1); 70]), (1, Match::ANY, 0, vec![action; 70])]);
        let verdict = translate(&net, &at_port(1), true);
        let mut text = String::new();
        trace::format(&verdict.trace, &mut text);
        (verdict.drop, verdict.error.map(TranslationError::summary), text)
    };
    let (drop, summary, text) = many(Action::StackPush(Subfield::whole(Field::Reg0)));
    assert_eq!((drop, summary), (Some(base::DropReason::StackTooDeep), Some("Stack too deep")));
    assert!(text.ends_with(">>>> resubmits yielded over 64 kB of stack <<<<\n"), "{text}");
    let (drop, summary, text) = many(Action::Controller(Box::default()));
    assert_eq!((drop, summary), (Some(base::DropReason::TooManyActions), Some("Too many actions")));
    assert!(text.ends_with(">>>> resubmits yielded over 64 kB of actions <<<<\n"), "{text}");
    let (drop, ..) = many(output(PortNo(2)));
    assert_eq!(drop, None);
}
