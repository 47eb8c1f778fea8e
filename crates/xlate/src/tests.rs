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
    let mut net = Network::default();
    for id in 0..2u32 {
        let tables = new_tables();
        if id == 0 {
            for (table, m, priority, actions) in rules {
                let mut cls = tables[usize::from(*table)].rules.write();
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
                    modified: Millis(0),
                    stats: Arc::default(),
                }));
            }
        } else {
            let mut cls = tables[0].rules.write();
            let minimatch = cls.compress(&Match::ANY);
            let actions =
                vec![Action::SetEthSrc(MacAddr([2, 9, 9, 9, 9, 9])), output(PortNo(1)), output(PortNo::NORMAL)];
            cls.insert(Arc::new(Rule {
                minimatch,
                priority: 0,
                table: 0,
                cookie: 0,
                idle_timeout: 0,
                hard_timeout: 0,
                importance: 0,
                flags: openflow::flow_mod::FlowFlags::default(),
                actions: actions.into(),
                created: Millis(0),
                modified: Millis(0),
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
                (no, Port { no, name: format!("p{n}"), out: out(n), config: PortConfig::default(), bundle })
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
    (arb_match(), 0..5u8, 1..3u64, any::<bool>(), 0..3u64).prop_map(|(m, mac, ttl, tcp, port)| {
        let mut key = m.key().clone();
        key.set(Field::Reg1, 0);
        key.set(Field::EthSrc, 0x0200_0000_0000 | u128::from(mac));
        if key.get(Field::InPortOxm) == 0 {
            key.set(Field::InPortOxm, 1);
        }
        if key.get(Field::VlanTci) != 0 {
            key.set_vlan(0, 0x8100, key.vlan_tci());
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

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

    /// The datapath's packet at each output is the one that the actions, carried out one by one, would have made.
    #[test]
    fn committed_late_is_as_good_as_at_once(actions in prop::collection::vec(arb_action(), 0..8), key in arb_key()) {
        // Only what the naive interpreter below knows.
        let actions: Vec<_> = actions.into_iter().filter(|a| !matches!(
            a, Action::Output { port: PortNo::NORMAL | PortNo::FLOOD | PortNo::CONTROLLER | PortNo(3), .. }
            | Action::OutputTrunc { .. } | Action::WriteActions(_) | Action::Resubmit { .. } | Action::Clone(_)
            | Action::OutputReg { .. })).collect();
        let net = network(&[(0, Match::ANY, 0, actions.clone())]);
        let verdict = translate(&net, &key, false);
        let mut at_dp = key.clone();
        let mut got = Vec::new();
        execute(&verdict.actions, &mut at_dp, &mut got);
        got.retain(|(port, _)| *port != u32::MAX);
        prop_assert_eq!(got, naive(&actions, &key));
    }
}

/// Carries datapath actions out on a key.
fn execute(actions: &[DpAction], key: &mut FlowKey, out: &mut Vec<(u32, FlowKey)>) {
    for action in actions {
        match action {
            DpAction::Output(port) => out.push((port.0, packet_part(key))),
            DpAction::Set { field, value, mask } => key.set(*field, key.get(*field) & !mask | value & mask),
            DpAction::PushVlan { tpid, tci } => {
                let (outer_tpid, outer) = key.vlan(0);
                key.set_vlan(1, outer_tpid, outer);
                key.set_vlan(0, *tpid, *tci | 0x1000);
            }
            DpAction::PopVlan => {
                let (tpid, tci) = key.vlan(1);
                key.set_vlan(0, tpid, tci);
                key.set_vlan(1, 0, 0);
            }
            DpAction::Controller(_) => out.push((u32::MAX, packet_part(key))),
            DpAction::Clone(inner) => execute(inner, &mut key.clone(), out),
            DpAction::Trunc(_) | DpAction::Drop(_) => {}
        }
    }
}

fn packet_part(key: &FlowKey) -> FlowKey {
    let mut key = key.clone();
    key.0[..layout::ETH_DST].fill(0);
    key
}

/// Actions one by one, each at once, with no thought of masks.
fn naive(actions: &[Action], start: &FlowKey) -> Vec<(u32, FlowKey)> {
    let mut key = start.clone();
    let (mut out, mut stack) = (Vec::new(), Vec::new());
    for action in actions {
        let is_ip = key.eth_type() == 0x800;
        let tagged = key.vlan_tci() != 0;
        let push = |key: &mut FlowKey, tpid, tci| {
            let (outer_tpid, outer) = key.vlan(0);
            key.set_vlan(1, outer_tpid, outer);
            key.set_vlan(0, tpid, tci);
        };
        match action {
            Action::Output { port, .. } => {
                let port = if *port == PortNo::IN_PORT { start.in_port() } else { *port };
                let back = matches!(action, Action::Output { port: PortNo::IN_PORT, .. });
                if port.0 < 5 && (back || port != start.in_port()) {
                    out.push((port.0, packet_part(&key)));
                }
            }
            Action::SetEthDst(mac) => key.set(Field::EthDst, mac.to_u64().into()),
            Action::SetVlanVid { vid, push_if_needed } => {
                if !tagged && *push_if_needed {
                    push(&mut key, 0x8100, 0x1000 | vid);
                } else if tagged {
                    key.set(Field::VlanVid, u128::from(*vid) | 0x1000);
                }
            }
            Action::SetVlanPcp { pcp, push_if_needed } => {
                if !tagged && *push_if_needed {
                    push(&mut key, 0x8100, 0x1000);
                }
                if tagged || *push_if_needed {
                    key.set(Field::VlanPcp, (*pcp).into());
                }
            }
            Action::PopVlan if tagged => {
                let (tpid, tci) = key.vlan(1);
                key.set_vlan(0, tpid, tci);
                key.set_vlan(1, 0, 0);
            }
            Action::PushVlan(tpid) => {
                let tci = key.vlan_tci() | 0x1000;
                push(&mut key, *tpid, tci);
            }
            Action::DecTtl(_) if is_ip => {
                let ttl = key.get(Field::IpTtl);
                if ttl <= 1 {
                    return out;
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
            Action::StackPush(src) => stack.push(if is_ip { key.get(src.field) } else { 0 }),
            Action::StackPop(dst) => {
                if let Some(v) = stack.pop()
                    && is_ip
                {
                    key.set(dst.field, v);
                }
            }
            Action::Exit => return out,
            _ => {}
        }
    }
    out
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
