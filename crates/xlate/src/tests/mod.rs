//! Translations over tables of all kinds: cases one by one, and properties over random tables and packets.
//!
//! This file has the bridges that tests share, and random rules, actions and keys.

mod bonds;
mod cases;
mod ct;
mod limits;
mod mirrors;
mod monitor;
mod multicast;
mod naive;
mod overlay;
mod ports;
mod properties;
mod qos;
mod regions;
mod stateful;
mod tunnels;
mod wire;

use crate::model::{Network, Port, PortConfig, new_tables};
use crate::*;
use base::{DpPort, MacAddr, Millis, PortNo};
use dpif::{Collectors, DpAction, HashKind, MeterId};
use flow::{Field, FlowKey, Match, OptionPlace, OptionTable, PlacedOption, TunOption, layout};
use openflow::action::{Sample, SampleDirection, SampleForm};
use openflow::meter::MeterConfig;
use openflow::switch::FragHandling;
use openflow::{Action, Ct, CtZone, Subfield};
use parking_lot::RwLock;
use proptest::prelude::*;
use std::sync::Arc;

/// Two bridges with four ports each, port 3 a patch between them, port 4 an access port of VLAN 5.
fn network(rules: &[(u8, Match, u16, Vec<Action>)]) -> Network {
    network_and_peer(rules, &[Action::SetEthSrc(PEER_SRC), output(PortNo(1)), output(PortNo::NORMAL)])
}

/// The source address that the second bridge sets.
const PEER_SRC: MacAddr = MacAddr([2, 9, 9, 9, 9, 9]);

/// The same bridges, with the actions of the second one.
fn network_and_peer(rules: &[(u8, Match, u16, Vec<Action>)], peer: &[Action]) -> Network {
    network_with(rules, Vec::new(), peer)
}

/// Adds a rule to tables.
fn add_rule(tables: &Tables, table: u8, m: &Match, priority: u16, actions: &[Action]) -> Arc<Rule> {
    let rules = &tables[usize::from(table)].rules;
    let rule = Arc::new(Rule {
        minimatch: rules.compress(&placed(m)),
        priority: priority.into(),
        table,
        cookie: 0,
        idle_timeout: 0,
        hard_timeout: 0,
        importance: 0,
        flags: openflow::flow_mod::FlowFlags::default(),
        actions: actions.into(),
        created: Millis(0),
        modified: 0.into(),
        versions: classifier::Versions::new(0),
        conjunctions: model::conjunctions_of(actions),
        count: model::Count::default(),
    });
    rules.insert(Arc::clone(&rule));
    rule
}

/// The mapped tunnel options: of 4, 8 and 20 bytes.
fn options() -> OptionTable {
    let placed = |(field, places): &(Field, &[u8])| {
        let places: Vec<_> = places.iter().copied().filter_map(OptionPlace::new).collect();
        PlacedOption::new(*field, &places)
    };
    OPTIONS.iter().filter_map(placed).collect()
}

/// Their fields, and their places in keys.
const OPTIONS: [(Field, &[u8]); 3] =
    [(Field::TunMetadata0, &[5]), (Field::TunMetadata1, &[9, 2]), (Field::TunMetadata2, &[10, 11, 12, 30, 4])];

/// A match with its options at their places.
fn placed(m: &Match) -> Match {
    let (mut m, table) = (m.clone(), options());
    for option in m.take_options() {
        assert!(m.place_option(&option, table.get(option.field()).expect("it is mapped")));
    }
    m
}

/// A meter, whose id in the datapath is ten times its number.
fn meter(id: u32) -> Meter {
    let config = MeterConfig { meter_id: id, flags: 1, bands: Vec::new() };
    Meter { config, datapath_id: MeterId(id.wrapping_mul(10)), created: Millis(0) }
}

/// Meters 1 and 2.
fn meters() -> Meters {
    let mut meters = Meters::default();
    (1..3).for_each(|id| meters.insert(id, Arc::new(meter(id))));
    meters
}

/// A group of this description, as `ovs-ofctl add-group` reads it.
fn group_of_text(text: &str) -> Group {
    let parsed = openflow::parse_group(text, openflow::GroupCommand::Add, &flow::text::NoNames);
    let group = parsed.unwrap_or_else(|error| panic!("{text}: {error:?}")).group_mod;
    Group {
        id: group.group_id,
        kind: group.kind,
        buckets: group.buckets.into_iter().map(GroupBucket::new).collect(),
        properties: group.properties,
        created: Millis(0),
        counters: Arc::default(),
        spread: crate::groups::Spread::default(),
    }
}

/// The same bridges, with groups and meters in the first one.
fn network_with(rules: &[(u8, Match, u16, Vec<Action>)], groups: Vec<Group>, peer: &[Action]) -> Network {
    let mut net = Network { ct_clear: true, psample: true, ..Network::default() };
    let mut of_first = Groups::default();
    groups.into_iter().for_each(|group| of_first.insert(group.id, Arc::new(group)));
    for id in 0..2u32 {
        let tables = new_tables();
        if id == 0 {
            rules.iter().for_each(|(table, m, priority, actions)| _ = add_rule(&tables, *table, m, *priority, actions));
            let meters = Arc::new(meters());
            tables.publish(View { version: 1, groups: Arc::new(of_first.clone()), meters });
        } else {
            add_rule(&tables, 0, &Match::ANY, 0, peer);
        }
        let mut macs = MacTable::default();
        macs.learn(0, MacAddr([2, 0, 0, 0, 0, 1]), PortNo(1), Millis(1));
        macs.learn(5, MacAddr([2, 0, 0, 0, 0, 2]), PortNo(4), Millis(1));
        let out =
            |n: u32| if n == 3 { PortOut::Patch(1 - id, PortNo(3)) } else { PortOut::Device(DpPort(10 * id + n)) };
        let ports = (1..5)
            .map(|n| {
                let no = PortNo(n);
                (
                    no,
                    Port {
                        no,
                        name: format!("p{n}").into(),
                        out: out(n),
                        config: PortConfig::default(),
                        live: true,
                        mac: MacAddr::ZERO,
                        ifindex: if n == 2 { 1002 } else { 0 },
                        tunnel: None,
                        bundle: None,
                    },
                )
            })
            .collect();
        let bundles = (1..5u32).map(|n| Bundle {
            name: format!("p{n}").into(),
            ports: vec![PortNo(n)],
            mode: if n == 4 { VlanMode::Access } else { VlanMode::Trunk },
            tag: if n == 4 { 5 } else { 0 },
            trunks: None,
            cvlans: None,
            priority_tags: model::PriorityTags::Never,
            protected: false,
            floodable: true,
            multicast: Default::default(),
        });
        for n in [1, 2, 4] {
            net.ports.insert(DpPort(10 * id + n), (id, PortNo(n)));
        }
        let mut bridge = Bridge {
            id,
            name: format!("br{id}").into(),
            ports,
            bundles: Default::default(),
            tables,
            macs: Arc::new(RwLock::new(macs)),
            miss_to_controller: false,
            misses: Default::default(),
            fragments: FragHandling::Normal,
            options: options(),
            forward_bpdu: false,
            snooping: None,
            dhcp_to_local: false,
            queue_marks: Default::default(),
            ipfix: None,
            local: None,
            sflow: None,
            netflow: false,
            mirrors: None,
            flood_vlans: None,
        };
        bridge.set_bundles(bundles);
        net.bridges.insert(id, Arc::new(bridge));
    }
    net
}

/// Changes the bundles of a bridge, which are in the order of their names.
fn edit_bundles(bridge: &mut Bridge, f: impl FnOnce(&mut [Bundle])) {
    let mut bundles: Vec<Bundle> = bridge.bundles.values().map(|bundle| (**bundle).clone()).collect();
    f(&mut bundles);
    bridge.set_bundles(bundles);
}

/// The same network with IPFIX collectors.
fn observed(mut net: Network, ipfix: Ipfix) -> Network {
    for bridge in net.bridges.values_mut() {
        Arc::get_mut(bridge).expect("nobody else has it").ipfix = Some(ipfix.clone());
    }
    net
}

/// Samples every packet for the first set of collectors.
fn sample(sampling_port: PortNo) -> Sample {
    Sample {
        form: SampleForm::Port,
        probability: u16::MAX,
        collector_set_id: 1,
        obs_domain_id: 2.into(),
        obs_point_id: 3.into(),
        sampling_port,
        direction: SampleDirection::Default,
    }
}

fn output(port: PortNo) -> Action {
    Action::Output { port, max_len: 0xffff }
}

fn arb_match() -> impl Strategy<Value = Match> {
    (0..3u8, 0..4u8, 0..3u8, 0..4u8, 0..3u8, 0..3u8).prop_map(|(port, eth, vlan, ip, tcp, reg)| {
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
        if ip == 3 {
            m.set(Field::EthType, 0x88e7);
            if tcp > 0 {
                m.set_masked(Field::PbbIsid, tcp.into(), if tcp == 1 { 1 } else { 0xff_ffff });
            }
        } else if ip > 0 {
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
        1 => Just(Action::PushPbb),
        1 => Just(Action::PopPbb),
        1 => (0..3u128).prop_map(|value| Action::SetField { field: Field::PbbIsid, value, mask: 0xff_ffff }),
        1 => Just(Action::SetField { field: Field::PbbUca, value: 1, mask: 1 }),
        1 => Just(Action::RegMove {
            src: Subfield { field: Field::PbbIsid, offset: 0, n_bits: 4 },
            dst: Subfield { field: Field::Reg1, offset: 0, n_bits: 4 },
        }),
        1 => Just(Action::DecTtl(None)),
        1 => (0..9u8).prop_map(|n| Action::SetIpv4Src([10, 0, 0, n].into())),
        1 => (0..9u8).prop_map(|n| Action::SetIpDscp(n << 2)),
        1 => (0..9u16).prop_map(Action::SetL4Dst),
        1 => any::<u8>().prop_map(|v| Action::SetField { field: Field::EthSrc, value: u128::from(v) & 0xf0, mask: 0xf0 }),
        1 => (0..3u128).prop_map(|value| Action::RegLoad { dst: Subfield::whole(Field::Reg1), value }),
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
        1 => Just(Action::CtClear),
        1 => Just(Action::DebugSlow),
        1 => (1..4u8).prop_map(|t| Action::ResubmitCt { in_port: None, table: Some(t) }),
        2 => (0..4u8, 0..8u8).prop_map(|(table, what)| ct(table, what)),
        1 => Just(Action::WriteActions(vec![output(PortNo(2)), Action::PopVlan])),
        1 => Just(Action::WriteActions(vec![Action::SetEthDst(MacAddr([2, 7, 7, 7, 7, 7])), output(PortNo(4))])),
    ];
    prop_oneof![
        8 => leaf.clone(),
        1 => prop::collection::vec(leaf, 1..4).prop_map(Action::Clone),
    ]
}

/// A `ct`: with a copy that resumes in `table`, unless that is 0; the bits of `what` select its other parameters.
fn ct(table: u8, what: u8) -> Action {
    let reg1 = Subfield { field: Field::Reg1, offset: 0, n_bits: 16 };
    let from = |field| Subfield { field, offset: 0, n_bits: 8 };
    let mut exec = Vec::new();
    if what & 1 != 0 {
        exec.push(Action::SetField { field: Field::CtMark, value: 1, mask: 0x3 });
    }
    if what & 2 != 0 {
        let dst = Subfield { field: Field::CtLabel, offset: 64, n_bits: 8 };
        exec.push(Action::RegMove { src: from(Field::EthSrc), dst });
    }
    let zone = if what & 4 != 0 { CtZone::Field(reg1) } else { CtZone::Immediate((what & 1).into()) };
    let table = (table > 0).then_some(table);
    Action::Ct(Box::new(Ct { commit: !exec.is_empty(), zone, table, exec, ..Ct::default() }))
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

/// The number of cases of a property, unless `PROPTEST_CASES` is set.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(800)
}
