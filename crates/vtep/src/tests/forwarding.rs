//! The flows of a plan, interpreted, and a naive model of what the emulated VTEP forwards.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use base::MacAddr;
use proptest::prelude::*;

use super::settled;
use super::snapshots::{any_mac, any_switch, any_vtep, at, example, group, ip, mac, open_ports};
use crate::flow::{FlowId, Flows, Matching, Treatment};
use crate::model::{Binding, Endpoint, Learned, Locator, Replication, Role, Switch, Vtep};
use crate::plan::plan;

/// A receiver of a frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Receiver {
    /// A physical port, and the VLAN of the frame.
    Port(String, Option<u16>),
    /// A tunnel, by its remote endpoint and key.
    Tunnel(Ipv4Addr, u32),
}

/// A sender of a frame.
#[derive(Debug, Clone)]
enum Sender {
    Port(String, Option<u16>),
    Tunnel { logical: String, from: Endpoint },
}

/// Addresses that bound ports have.
type Local = BTreeMap<(String, MacAddr), Binding>;

/// The receivers by the flows of the plan.
fn interpreted(vtep: &Vtep, switch: &Switch, local: &Local, sender: &Sender, destination: MacAddr) -> Vec<Receiver> {
    let mut flows = plan(vtep, switch, &Learned::new()).flows;
    for ((logical, mac), binding) in local {
        let bridge = switch.bridges.iter().find(|(_, bridge)| bridge.role == Role::Logical(logical.clone()));
        let Some((bridge, _)) = bridge else { continue };
        if let Some(port) = switch.ofport(&binding.logical_patch()) {
            let learned = (FlowId::learned(*mac), Treatment::Output(vec![port]));
            flows.get_mut(bridge).expect("flows of the bridge").extend([learned]);
        }
    }
    let mut walk = Walk { switch, flows: &flows, destination, receivers: Vec::new() };
    match sender {
        Sender::Port(name, vlan) => walk.enter(name, *vlan),
        Sender::Tunnel { logical, from } => {
            let bridge = switch.bridges.values().find(|bridge| bridge.role == Role::Logical(logical.clone()));
            let ports = bridge.into_iter().flat_map(|bridge| &bridge.ports);
            for (name, _) in ports.filter(|(_, port)| port.endpoint() == Some(*from)) {
                walk.enter(name, None);
            }
        }
    }
    walk.receivers.sort();
    walk.receivers
}

struct Walk<'a> {
    switch: &'a Switch,
    flows: &'a BTreeMap<String, Flows>,
    destination: MacAddr,
    receivers: Vec<Receiver>,
}

impl Walk<'_> {
    /// The frame arrives at a port.
    fn enter(&mut self, name: &str, vlan: Option<u16>) {
        let mut bridges = self.switch.bridges.iter();
        let (bridge, _) = bridges.find(|(_, bridge)| bridge.ports.contains_key(name)).expect("the bridge of the port");
        let port = self.switch.ofport(name).expect("an open port");
        self.look_up(bridge, 0, port, vlan);
    }

    fn look_up(&mut self, bridge: &str, table: u8, port: u16, vlan: Option<u16>) {
        let matches = |matching: Matching| match matching {
            Matching::Any => true,
            Matching::Port(wanted) => wanted == port,
            Matching::PortVlan(wanted, tag) => wanted == port && vlan == Some(tag),
            Matching::Destination(mac) => mac == self.destination,
        };
        let flows = self.flows.get(bridge).into_iter().flatten();
        let flows = flows.filter(|(id, _)| id.table == table && matches(id.matching));
        let Some((_, treatment)) = flows.max_by_key(|(id, _)| id.priority) else { return };
        match treatment.clone() {
            Treatment::Output(ports) => ports.into_iter().for_each(|to| self.output(bridge, port, to, vlan)),
            Treatment::Untag(to) => self.output(bridge, port, to, None),
            Treatment::Tag { vlan, port: to } => self.output(bridge, port, to, Some(vlan)),
            Treatment::LookUp | Treatment::Learn => self.look_up(bridge, 1, port, vlan),
        }
    }

    fn output(&mut self, bridge: &str, from: u16, to: u16, vlan: Option<u16>) {
        if from == to {
            return;
        }
        let ports = &self.switch.bridges[bridge].ports;
        let (name, port) = ports.iter().find(|(name, _)| self.switch.ofport(name) == Some(to)).expect("a port");
        match (port.kind.as_str(), port.remote()) {
            ("patch", _) => self.enter(&port.options["peer"].clone(), vlan),
            (_, Some(remote)) => {
                self.receivers.push(Receiver::Tunnel(remote, port.options["key"].parse().expect("a key")));
            }
            _ => self.receivers.push(Receiver::Port(name.clone(), vlan)),
        }
    }
}

/// The receivers by the configuration alone. All tunnels are healthy.
fn expected(vtep: &Vtep, switch: &Switch, local: &Local, sender: &Sender, destination: MacAddr) -> Vec<Receiver> {
    let physical = &switch.bridges[&vtep.name].ports;
    let bindings: BTreeMap<&Binding, &String> = vtep
        .bindings
        .iter()
        .filter(|(binding, logical)| physical.contains_key(&binding.port) && vtep.logical.contains_key(*logical))
        .collect();
    // The binding of the sender, and the frame's VLAN in the logical switch.
    let (logical, from, vlan) = match sender {
        Sender::Port(port, vlan) => {
            let of = |vlan: u16| bindings.get_key_value(&Binding { vlan, port: port.clone() });
            let tagged = vlan.filter(|vlan| *vlan != 0).and_then(of).map(|found| (found, None));
            match tagged.or_else(|| Some((of(0)?, *vlan))) {
                Some(((binding, logical), vlan)) => ((*logical).clone(), Some((*binding).clone()), vlan),
                None => return Vec::new(),
            }
        }
        Sender::Tunnel { logical, .. } => (logical.clone(), None, None),
    };
    let Some(of) = vtep.logical.get(&logical) else { return Vec::new() };
    let members: Vec<&Binding> = bindings.iter().filter(|(_, name)| ***name == logical).map(|(b, _)| *b).collect();
    if members.is_empty() {
        return Vec::new();
    }
    let own = match sender {
        Sender::Tunnel { from, .. } => Some(*from),
        Sender::Port(..) => None,
    };
    let end = |at: &Locator| {
        let key = at.key.or(of.tunnel_key).filter(|_| at.ip != vtep.tunnel_ip)?;
        Some(Endpoint { ip: at.ip, key })
    };
    let tunnel = |at: &Locator| end(at).map(|to| Receiver::Tunnel(to.ip, to.key));
    let mut remotes = of.unicast.values().chain(&of.unknown).chain(of.groups.values().flatten());
    if own.is_some_and(|own| !remotes.any(|at| end(at) == Some(own))) {
        return Vec::new();
    }
    let port = |binding: &Binding| {
        Receiver::Port(binding.port.clone(), if binding.vlan == 0 { vlan } else { Some(binding.vlan) })
    };
    let learned = local.get(&(logical.clone(), destination)).filter(|binding| members.contains(binding));
    let remote = of.unicast.get(&destination).and_then(|at| Some((end(at)?, tunnel(at)?)));
    let mut receivers = match (learned, remote) {
        (Some(binding), _) if from.as_ref() == Some(binding) => Vec::new(),
        (Some(binding), _) => vec![port(binding)],
        (None, Some((remote, _))) if own == Some(remote) => Vec::new(),
        (None, Some((_, receiver))) => vec![receiver],
        (None, None) => {
            let others = members.iter().filter(|member| from.as_ref() != Some(**member)).map(|member| port(member));
            let locators = of.groups.get(&destination).unwrap_or(&of.unknown);
            let unknown: Vec<Receiver> = locators.iter().filter_map(tunnel).collect();
            let count = match of.replication {
                _ if own.is_some() => 0,
                Replication::ServiceNode => 1,
                Replication::SourceNode => unknown.len(),
            };
            others.chain(unknown.into_iter().take(count)).collect()
        }
    };
    receivers.sort();
    receivers
}

fn any_sender() -> impl Strategy<Value = Sender> {
    let vlan = prop::sample::select(vec![None, Some(7), Some(8), Some(4095)]);
    prop_oneof![
        (prop::sample::select(vec!["a", "b", "c-d", "e-p"]), vlan)
            .prop_map(|(port, vlan)| Sender::Port(port.to_owned(), vlan)),
        (prop::sample::select(vec!["x", "y", "z"]), 1..5_u8, 1..5_u32).prop_map(|(logical, number, key)| {
            Sender::Tunnel { logical: logical.to_owned(), from: Endpoint { ip: ip(number), key } }
        }),
    ]
}

tally::proptest! {
    #[test]
    fn flows_forward_as_configured(
        vtep in any_vtep(), switch in any_switch(), sender in any_sender(),
        destination in prop_oneof![3 => any_mac(), 1 => (7..10_u8).prop_map(group)],
        learned in proptest::collection::btree_set(any_mac(), 0..3),
    ) {
        let switch = settled(&vtep, switch);
        let known = vtep.bindings.iter().flat_map(|(binding, logical)| {
            learned.iter().map(move |mac| ((logical.clone(), *mac), binding.clone()))
        });
        let ports = &switch.bridges[&vtep.name].ports;
        let local: Local = known.filter(|(_, binding)| ports.contains_key(&binding.port)).collect();
        if let Sender::Port(name, _) = &sender && !ports.contains_key(name) {
            return Ok(());
        }
        let found = interpreted(&vtep, &switch, &local, &sender, destination);
        assert_eq!(found, expected(&vtep, &switch, &local, &sender, destination));
    }
}

/// The tunnels that receive a frame to an unknown destination.
fn flooded(vtep: &Vtep, switch: &Switch) -> BTreeSet<Receiver> {
    let sender = Sender::Port("a".to_owned(), None);
    let all = interpreted(vtep, switch, &Local::new(), &sender, mac(9));
    all.into_iter().filter(|receiver| matches!(receiver, Receiver::Tunnel(..))).collect()
}

#[test]
fn a_service_node_is_one_that_bfd_finds_forwarding() {
    let (vtep, switch) = example();
    let mut switch = settled(&vtep, switch);
    let mut report = |remote, forwarding: &str| {
        let observed = switch.observed.get_mut(&format!("bfd{}", ip(remote))).expect("the interface");
        observed.bfd_status = [("forwarding".to_owned(), forwarding.to_owned())].into();
        flooded(&vtep, &switch)
    };
    assert_eq!(report(2, "true"), [Receiver::Tunnel(ip(2), 33)].into());
    assert_eq!(report(2, "false"), [Receiver::Tunnel(ip(3), 33)].into());
    // If all of them are down, the first one is as good as any.
    assert_eq!(report(3, "false"), [Receiver::Tunnel(ip(2), 33)].into());
    assert_eq!(report(2, "true"), [Receiver::Tunnel(ip(2), 33)].into());
    switch.observed.clear();
    open_ports(&mut switch);
    assert_eq!(flooded(&vtep, &switch), [Receiver::Tunnel(ip(2), 33)].into());
}

/// The tunnels that receive a frame of a bound port.
fn tunnels_to(vtep: &Vtep, switch: &Switch, destination: MacAddr) -> Vec<Receiver> {
    let sender = Sender::Port("a".to_owned(), None);
    let mut all = interpreted(vtep, switch, &Local::new(), &sender, destination);
    all.retain(|receiver| matches!(receiver, Receiver::Tunnel(..)));
    all
}

#[test]
fn a_multicast_address_has_locators_of_its_own() {
    let (mut vtep, switch) = example();
    let logical = vtep.logical.get_mut("x").expect("a logical switch");
    logical.replication = Replication::SourceNode;
    logical.groups.insert(group(7), [at(3), at(4)].into());
    let switch = settled(&vtep, switch);
    let to = |number| Receiver::Tunnel(ip(number), 33);
    assert_eq!(tunnels_to(&vtep, &switch, group(7)), [to(3), to(4)]);
    assert_eq!(tunnels_to(&vtep, &switch, group(8)), [to(2), to(3)]);
    vtep.logical.get_mut("x").expect("a logical switch").replication = Replication::ServiceNode;
    assert_eq!(tunnels_to(&vtep, &switch, group(7)), [to(3)]);
    // Frames from a tunnel were replicated before.
    let sender = Sender::Tunnel { logical: "x".to_owned(), from: Endpoint { ip: ip(2), key: 33 } };
    let found = interpreted(&vtep, &switch, &Local::new(), &sender, group(7));
    assert_eq!(found, [Receiver::Port("a".to_owned(), None), Receiver::Port("b".to_owned(), Some(7))]);
}

#[test]
fn a_locator_may_have_a_key_of_its_own() {
    let (mut vtep, switch) = example();
    let before = settled(&vtep, switch.clone());
    let logical = vtep.logical.get_mut("x").expect("a logical switch");
    logical.unicast.insert(mac(1), Locator { ip: ip(2), key: Some(7) });
    // The tunnel with the key of the logical switch stays beside it.
    let switch = settled(&vtep, before);
    assert_eq!(tunnels_to(&vtep, &switch, mac(1)), [Receiver::Tunnel(ip(2), 7)]);
    assert_eq!(tunnels_to(&vtep, &switch, mac(9)), [Receiver::Tunnel(ip(2), 33)]);
    let bridge = switch.bridges.values().find(|bridge| bridge.role == Role::Logical("x".to_owned())).expect("a bridge");
    let ends: Vec<_> = bridge.ports.iter().filter_map(|(name, port)| Some((name.as_str(), port.endpoint()?))).collect();
    let end = |number, key| Endpoint { ip: ip(number), key };
    assert_eq!(ends, [("vx1", end(2, 33)), ("vx2", end(3, 33)), ("vx3", end(2, 7))]);
    // Without a key for the logical switch, only that locator is in reach.
    vtep.logical.get_mut("x").expect("a logical switch").tunnel_key = None;
    let switch = settled(&vtep, switch);
    assert_eq!(tunnels_to(&vtep, &switch, mac(1)), [Receiver::Tunnel(ip(2), 7)]);
    assert_eq!(tunnels_to(&vtep, &switch, mac(9)), []);
}
