//! The wanted flows.
//!
//! The bridge of the physical switch joins each bound VLAN of a port to a patch port, with the VLAN tag removed. In the
//! bridge of a logical switch, frames from patch ports teach where their source is. Then table 1 finds the
//! destination: a learned address, an address that the controller has reported, or else all bound ports. Frames from
//! bound ports also go to the tunnels of their multicast address, or else to those of unknown destinations; frames from a
//! tunnel never do, as the sender has already replicated them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::{bfd_port, tunnels};
use crate::flow::{DESTINATIONS, FlowId, Flows, Matching, Treatment};
use crate::model::{Binding, Bridge, Endpoint, Locator, LogicalSwitch, Replication, Role, Switch, Vtep};

/// Priority of flows for tagged frames, and for the frames to them.
const TAGGED_PRIORITY: u16 = 200;
/// Priority of flows for the remaining frames of a port.
const UNTAGGED_PRIORITY: u16 = 100;
/// Priority of flows for frames from bound ports.
const LOCAL_PRIORITY: u16 = 0x8000;
/// Priority of flows for frames from tunnels.
const TUNNEL_PRIORITY: u16 = 1000;
/// Priority of flows for destinations that are neither learned nor reported, of frames from tunnels.
const REPLICATED_PRIORITY: u16 = 2;
/// Priority of flows for multicast addresses that the controller has reported.
const GROUP_PRIORITY: u16 = 1;

/// The flows of all bridges.
pub(super) fn flows(
    vtep: &Vtep,
    switch: &Switch,
    bridges: &BTreeMap<String, Bridge>,
    bindings: &BTreeMap<String, BTreeSet<Binding>>,
) -> BTreeMap<String, Flows> {
    let of = |bridge: &Bridge| match &bridge.role {
        Role::Physical => physical(switch, bindings),
        Role::Logical(name) => vtep.logical.get(name).map(|of| logical(vtep, switch, bridge, of)).unwrap_or_default(),
        Role::Bfd | Role::Foreign => Flows::new(),
    };
    bridges.iter().map(|(name, bridge)| (name.clone(), of(bridge))).collect()
}

fn flow(table: u8, priority: u16, matching: Matching, treatment: Treatment) -> (FlowId, Treatment) {
    (FlowId { table, priority, matching }, treatment)
}

/// The flows of the physical switch.
fn physical(switch: &Switch, bindings: &BTreeMap<String, BTreeSet<Binding>>) -> Flows {
    let mut flows = Flows::new();
    for binding in bindings.values().flatten() {
        let ports = (switch.ofport(&binding.port), switch.ofport(&binding.physical_patch()));
        let (Some(port), Some(patch)) = ports else { continue };
        let vlan = binding.vlan;
        flows.extend(if vlan == 0 {
            [
                flow(0, UNTAGGED_PRIORITY, Matching::Port(port), Treatment::Output(vec![patch])),
                flow(0, UNTAGGED_PRIORITY, Matching::Port(patch), Treatment::Output(vec![port])),
            ]
        } else {
            [
                flow(0, TAGGED_PRIORITY, Matching::PortVlan(port, vlan), Treatment::Untag(patch)),
                flow(0, TAGGED_PRIORITY, Matching::Port(patch), Treatment::Tag { vlan, port }),
            ]
        });
    }
    flows
}

/// The flows of a logical switch.
fn logical(vtep: &Vtep, switch: &Switch, bridge: &Bridge, logical: &LogicalSwitch) -> Flows {
    let open = |kind: &'static str| {
        let ports = bridge.ports.iter().filter(move |(_, port)| port.kind == kind);
        ports.filter_map(|(name, port)| Some((switch.ofport(name)?, port)))
    };
    let local: Vec<u16> = open("patch").map(|(port, _)| port).collect();
    let wanted = tunnels(vtep, logical);
    let tunnels: BTreeMap<Endpoint, u16> =
        open("vxlan").filter_map(|(number, port)| Some((port.endpoint()?, number))).collect();

    let mut flows = Flows::from([flow(0, 0, Matching::Any, Treatment::Output(Vec::new()))]);
    for port in &local {
        flows.extend([flow(0, LOCAL_PRIORITY, Matching::Port(*port), Treatment::Learn)]);
    }
    for port in tunnels.values() {
        flows.extend([
            flow(0, TUNNEL_PRIORITY, Matching::Port(*port), Treatment::LookUp),
            flow(DESTINATIONS, REPLICATED_PRIORITY, Matching::Port(*port), Treatment::Output(local.clone())),
        ]);
    }
    let reach = |locator: &Locator| {
        let to = logical.endpoint(*locator).filter(|to| wanted.contains(to))?;
        Some((to.ip, *tunnels.get(&to)?))
    };
    let flood = |locators: &BTreeSet<Locator>| {
        let remote: Vec<(Ipv4Addr, u16)> = locators.iter().filter_map(reach).collect();
        let chosen = match logical.replication {
            Replication::SourceNode => &remote[..],
            Replication::ServiceNode => {
                let healthy = remote.iter().position(|(remote, _)| !is_down(switch, *remote)).unwrap_or(0);
                remote.get(healthy..=healthy).unwrap_or_default()
            }
        };
        Treatment::Output(local.iter().copied().chain(chosen.iter().map(|(_, port)| *port)).collect())
    };
    flows.extend([flow(DESTINATIONS, 0, Matching::Any, flood(&logical.unknown))]);
    for (group, locators) in &logical.groups {
        flows.extend([flow(DESTINATIONS, GROUP_PRIORITY, Matching::Destination(*group), flood(locators))]);
    }
    for (mac, locator) in &logical.unicast {
        if let Some((_, port)) = reach(locator) {
            flows.insert(FlowId::remote(*mac), Treatment::Output(vec![port]));
        }
    }
    flows
}

/// Returns true if BFD reports that a tunnel does not forward.
fn is_down(switch: &Switch, remote: Ipv4Addr) -> bool {
    let observed = switch.observed.get(&bfd_port(remote));
    observed.and_then(|observed| observed.bfd_status.get("forwarding")).is_some_and(|forwarding| forwarding == "false")
}
