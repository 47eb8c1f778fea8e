//! Random configurations, switches and reports, made of few names, so that they meet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use base::MacAddr;
use ovsdb::Uuid;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use crate::flow::{FlowId, Flows, Matching, Treatment};
use crate::model::{
    BFD_BRIDGE, BfdSettings, Binding, Bridge, Counters, Endpoint, Learned, Locator, LogicalSwitch, Observed, Pairs,
    Port, Replication, Report, Role, Stray, Switch, TunnelReport, Vtep,
};

/// The name of the physical switch.
pub(super) const PHYSICAL: &str = "ps";

/// The tunnel endpoint of this number; that of the switch is the first one.
pub(super) fn ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number)
}

pub(super) fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// A multicast address.
pub(super) fn group(number: u8) -> MacAddr {
    MacAddr([3, 0, 0, 0, 0, number])
}

/// The locator of this number, without a tunnel key of its own.
pub(super) fn at(number: u8) -> Locator {
    Locator { ip: ip(number), key: None }
}

fn any_ip() -> impl Strategy<Value = Ipv4Addr> {
    (1..5_u8).prop_map(ip)
}

pub(super) fn any_mac() -> impl Strategy<Value = MacAddr> {
    (1..5_u8).prop_map(mac)
}

fn any_port_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c-d", "e-p"]).prop_map(str::to_owned)
}

fn any_logical_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["x", "y", "z"]).prop_map(str::to_owned)
}

pub(super) fn any_binding() -> impl Strategy<Value = Binding> {
    (prop::sample::select(vec![0, 7, 4095]), any_port_name()).prop_map(|(vlan, port)| Binding { vlan, port })
}

fn any_pairs(keys: &'static [&'static str]) -> impl Strategy<Value = Pairs> {
    let key = prop::sample::select(keys).prop_map(str::to_owned);
    btree_map(key, prop::sample::select(vec!["true", "false"]).prop_map(str::to_owned), 0..3)
}

/// A locator, mostly without a tunnel key of its own.
fn any_locator() -> impl Strategy<Value = Locator> {
    (any_ip(), option::weighted(0.2, 1..5_u32)).prop_map(|(ip, key)| Locator { ip, key })
}

fn any_logical() -> impl Strategy<Value = LogicalSwitch> {
    let replication = prop::sample::select(vec![Replication::ServiceNode, Replication::SourceNode]);
    let locators = || btree_set(any_locator(), 0..4);
    let groups = btree_map((7..9_u8).prop_map(group), btree_set(any_locator(), 1..4), 0..3);
    (option::weighted(0.8, 1..4_u32), replication, btree_map(any_mac(), any_locator(), 0..4), groups, locators())
        .prop_map(|(tunnel_key, replication, unicast, groups, unknown)| LogicalSwitch {
            tunnel_key,
            replication,
            unicast,
            groups,
            unknown,
        })
}

/// A configuration.
pub(super) fn any_vtep() -> impl Strategy<Value = Vtep> {
    let logical = btree_map(any_logical_name(), any_logical(), 0..4);
    let bfd = (any_pairs(&["enable", "cpath_down", "other"]), any_pairs(&["bfd_dst_ip"]));
    let bfd = btree_map(any_ip(), bfd.prop_map(|(params, remote)| BfdSettings { params, remote }), 0..3);
    (btree_map(any_binding(), any_logical_name(), 0..6), logical, bfd).prop_map(|(bindings, logical, bfd)| Vtep {
        name: PHYSICAL.to_owned(),
        tunnel_ip: ip(1),
        bindings,
        logical,
        bfd,
    })
}

/// A port that is no physical one: of an emulator, of another program, or damaged.
fn any_other_port() -> impl Strategy<Value = Port> {
    prop_oneof![
        (any_ip(), 1..4_u32).prop_map(|(ip, key)| Port::tunnel(Endpoint { ip, key })),
        any_binding().prop_map(|binding| Port::patch(binding.physical_patch())),
        any_ip().prop_map(|ip| Port::monitored(ip, Pairs::new())),
        Just(Port { kind: "vxlan".to_owned(), ..Port::default() }),
    ]
}

fn any_bridge() -> impl Strategy<Value = (String, Bridge)> {
    let logical = (1..4_u8).prop_map(|number| format!("{PHYSICAL}_vtep_ls{number}"));
    let role = prop_oneof![
        (logical.clone(), any_logical_name()).prop_map(|(name, logical)| (name, Role::Logical(logical))),
        (logical, Just(Role::Foreign)),
        Just((BFD_BRIDGE.to_owned(), Role::Bfd)),
    ];
    let datapath_type = prop::sample::select(vec!["", "netdev"]);
    (role, datapath_type, any::<bool>()).prop_map(|((name, role), datapath_type, is_secure)| {
        (name, Bridge { role, datapath_type: datapath_type.to_owned(), is_secure, ports: BTreeMap::new() })
    })
}

/// A switch with the bridge of the physical switch.
pub(super) fn any_switch() -> impl Strategy<Value = Switch> {
    let others = vec((prop::sample::select(vec!["vx1", "vx2", "bfd192.0.2.2", "t0"]), any_other_port()), 0..4);
    (btree_set(any_port_name(), 0..4), vec(any_bridge(), 0..3), others).prop_map(|(physical, bridges, others)| {
        let mut bridges: BTreeMap<String, Bridge> = bridges.into_iter().collect();
        // The names of ports are unique in a switch.
        for (index, (name, port)) in others.into_iter().collect::<BTreeMap<_, _>>().into_iter().enumerate() {
            let count = bridges.len().max(1);
            if let Some(bridge) = bridges.values_mut().nth(index % count) {
                bridge.ports.insert(name.to_owned(), port);
            }
        }
        let ports = physical.into_iter().map(|name| (name, Port::default())).collect();
        let bridge = Bridge { role: Role::Physical, datapath_type: "netdev".to_owned(), is_secure: false, ports };
        bridges.insert(PHYSICAL.to_owned(), bridge);
        let mut switch = Switch { bridges, observed: BTreeMap::new() };
        open_ports(&mut switch);
        switch
    })
}

/// Numbers all ports, across bridges, so that no test mistakes a port for one of another bridge.
pub(super) fn open_ports(switch: &mut Switch) {
    let names: BTreeSet<&String> = switch.bridges.values().flat_map(|bridge| bridge.ports.keys()).collect();
    let numbered = names.into_iter().zip(1..);
    let open = |number| Observed { ofport: Some(number), ..Observed::default() };
    switch.observed = numbered.map(|(name, number)| (name.clone(), open(number))).collect();
}

/// Learned addresses.
pub(super) fn any_learned() -> impl Strategy<Value = Learned> {
    let bridge = (1..4_u8).prop_map(|number| format!("{PHYSICAL}_vtep_ls{number}"));
    btree_map(bridge, btree_map(any_mac(), 1..12_u16, 0..4), 0..3)
}

fn any_fault() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["unspecified_fault", "tunnel_exhaustion"]).prop_map(str::to_owned)
}

/// A present report.
pub(super) fn any_report() -> impl Strategy<Value = Report> {
    let counters = (0..3_i64).prop_map(|n| Counters { packets_from_local: n, ..Counters::default() });
    let tunnel = (any_pairs(&["state", "enabled"]), any_pairs(&["bfd_dst_ip", "bfd_dst_mac"]));
    let tunnel = tunnel.prop_map(|(status, local)| TunnelReport { status, local });
    let stray = any::<[u8; 16]>().prop_map(|bytes| Stray::Unicast(Uuid::from_bytes(bytes)));
    (
        prop::sample::select(vec!["", "other"]).prop_map(str::to_owned),
        btree_set(any_port_name(), 0..4),
        btree_set((any_logical_name(), any_mac()), 0..4),
        btree_set(any_logical_name(), 0..3),
        btree_map(any_ip(), tunnel, 0..3),
        btree_map(any_binding(), counters, 0..4),
        (btree_set(any_fault(), 0..2), btree_map(any_port_name(), btree_set(any_fault(), 1..2), 0..3)),
        btree_set(stray, 0..2),
    )
        .prop_map(
            |(description, ports, unicast, unknown, tunnels, counters, (faults, mut port_faults), strays)| {
                port_faults.retain(|port, _| ports.contains(port));
                Report { description, ports, unicast, unknown, tunnels, counters, faults, port_faults, strays }
            },
        )
}

/// Present flows.
pub(super) fn any_flows() -> impl Strategy<Value = Flows> {
    let matching = prop_oneof![
        Just(Matching::Any),
        (1..6_u16).prop_map(Matching::Port),
        (1..6_u16).prop_map(|port| Matching::PortVlan(port, 7)),
        any_mac().prop_map(Matching::Destination),
    ];
    let id = (0..2_u8, prop::sample::select(vec![0, 1, 100, 200, 900, 1000, 0x8000]), matching);
    let id = id.prop_map(|(table, priority, matching)| FlowId { table, priority, matching });
    let treatment =
        prop_oneof![vec(1..6_u16, 0..3).prop_map(Treatment::Output), Just(Treatment::LookUp), Just(Treatment::Learn),];
    btree_map(id, treatment, 0..8)
}

/// A logical switch over two ports and two tunnels, and a switch without its bridges.
pub(super) fn example() -> (Vtep, Switch) {
    let logical = LogicalSwitch {
        tunnel_key: Some(33),
        unicast: [(mac(1), at(2))].into(),
        unknown: [at(2), at(3)].into(),
        ..LogicalSwitch::default()
    };
    let binding = |vlan, port: &str| (Binding { vlan, port: port.to_owned() }, "x".to_owned());
    let vtep = Vtep {
        name: PHYSICAL.to_owned(),
        tunnel_ip: ip(1),
        bindings: [binding(0, "a"), binding(7, "b")].into(),
        logical: [("x".to_owned(), logical)].into(),
        bfd: BTreeMap::new(),
    };
    let ports = ["a", "b"].map(|name| (name.to_owned(), Port::default())).into();
    let bridge = Bridge { role: Role::Physical, datapath_type: String::new(), is_secure: false, ports };
    let mut switch = Switch { bridges: [(PHYSICAL.to_owned(), bridge)].into(), observed: BTreeMap::new() };
    open_ports(&mut switch);
    (vtep, switch)
}
