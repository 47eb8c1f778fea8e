//! The changes that lead from the present state to the wanted one: pure, a value for each row or port.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use base::MacAddr;

use crate::flow::{FlowId, Flows, Treatment};
use crate::model::{Binding, Bridge, Counters, Port, Report, Role, Stray, TunnelReport, UNKNOWN_DST};

/// A change of the Open_vSwitch database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SwitchChange {
    /// Adds a bridge without ports.
    AddBridge {
        bridge: String,
        role: Role,
        datapath_type: String,
    },
    /// Gives a bridge another datapath, and has it forward nothing without flows.
    SetBridge {
        bridge: String,
        datapath_type: String,
    },
    RemoveBridge {
        bridge: String,
    },
    AddPort {
        bridge: String,
        name: String,
        port: Port,
    },
    SetPort {
        bridge: String,
        name: String,
        port: Port,
    },
    RemovePort {
        bridge: String,
        name: String,
    },
}

/// A change of the hardware_vtep database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VtepChange {
    Describe(String),
    AddPort(String),
    RemovePort(String),
    AddUnicast(String, MacAddr),
    RemoveUnicast(String, MacAddr),
    AddUnknown(String),
    RemoveUnknown(String),
    /// Adds a tunnel, or changes its status.
    SetTunnel(Ipv4Addr, TunnelReport),
    RemoveTunnel(Ipv4Addr),
    SetCounters(Binding, Counters),
    RemoveCounters(Binding),
    SetFaults(BTreeSet<String>),
    SetPortFaults(String, BTreeSet<String>),
    RemoveStray(Stray),
}

/// A change of a bridge's flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlowChange {
    Add(FlowId, Treatment),
    Delete(FlowId),
}

impl fmt::Display for SwitchChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddBridge { bridge, role: Role::Logical(logical), .. } => {
                write!(f, "adding bridge {bridge} for logical switch {logical}")
            }
            Self::AddBridge { bridge, .. } => write!(f, "adding bridge {bridge}"),
            Self::SetBridge { bridge, .. } => write!(f, "changing bridge {bridge}"),
            Self::RemoveBridge { bridge } => write!(f, "removing bridge {bridge}"),
            Self::AddPort { bridge, name, port } => {
                write!(f, "adding port {name} to bridge {bridge}")?;
                port.remote().map_or(Ok(()), |remote| write!(f, " for the tunnel to {remote}"))
            }
            Self::SetPort { bridge, name, .. } => write!(f, "changing port {name} of bridge {bridge}"),
            Self::RemovePort { bridge, name } => write!(f, "removing port {name} from bridge {bridge}"),
        }
    }
}

impl fmt::Display for VtepChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Describe(text) => write!(f, "setting the description to {text:?}"),
            Self::AddPort(port) => write!(f, "adding physical port {port}"),
            Self::RemovePort(port) => write!(f, "removing physical port {port}"),
            Self::AddUnicast(logical, mac) => write!(f, "adding local address {mac} of logical switch {logical}"),
            Self::RemoveUnicast(logical, mac) => write!(f, "removing local address {mac} of logical switch {logical}"),
            Self::AddUnknown(logical) => write!(f, "adding {UNKNOWN_DST} of logical switch {logical}"),
            Self::RemoveUnknown(logical) => write!(f, "removing {UNKNOWN_DST} of logical switch {logical}"),
            Self::SetTunnel(remote, _) => write!(f, "setting the status of the tunnel to {remote}"),
            Self::RemoveTunnel(remote) => write!(f, "removing the tunnel to {remote}"),
            Self::SetCounters(binding, _) => write!(f, "setting the statistics of binding {binding}"),
            Self::RemoveCounters(binding) => write!(f, "removing the statistics of binding {binding}"),
            Self::SetFaults(faults) => write!(f, "setting the faults of the switch to {}", list(faults)),
            Self::SetPortFaults(port, faults) => write!(f, "setting the faults of port {port} to {}", list(faults)),
            Self::RemoveStray(Stray::Unicast(row)) => write!(f, "removing row {row} of Ucast_Macs_Local"),
            Self::RemoveStray(Stray::Multicast(row)) => write!(f, "removing row {row} of Mcast_Macs_Local"),
            Self::RemoveStray(Stray::Tunnel(row)) => write!(f, "removing tunnel {row}"),
        }
    }
}

/// The elements, for the log.
fn list(faults: &BTreeSet<String>) -> String {
    let names: Vec<&str> = faults.iter().map(String::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The changes of bridges and ports; `present` may have bridges without a role, which stay. Ports and bridges are
/// removed first, as a name may be that of a new port in another bridge.
pub(crate) fn of_switch(present: &BTreeMap<String, Bridge>, wanted: &BTreeMap<String, Bridge>) -> Vec<SwitchChange> {
    let mut changes = Vec::new();
    for (bridge, was) in present.iter().filter(|(_, was)| was.role != Role::Foreign) {
        match wanted.get(bridge) {
            None => changes.push(SwitchChange::RemoveBridge { bridge: bridge.clone() }),
            Some(is) => {
                let gone = was.ports.keys().filter(|name| !is.ports.contains_key(*name));
                changes
                    .extend(gone.map(|name| SwitchChange::RemovePort { bridge: bridge.clone(), name: name.clone() }));
            }
        }
    }
    for (bridge, is) in wanted {
        let was = present.get(bridge);
        match was {
            None => changes.push(SwitchChange::AddBridge {
                bridge: bridge.clone(),
                role: is.role.clone(),
                datapath_type: is.datapath_type.clone(),
            }),
            Some(was) if was.datapath_type != is.datapath_type || was.is_secure != is.is_secure => {
                changes
                    .push(SwitchChange::SetBridge { bridge: bridge.clone(), datapath_type: is.datapath_type.clone() });
            }
            Some(_) => {}
        }
        for (name, port) in &is.ports {
            let (bridge, name, port) = (bridge.clone(), name.clone(), port.clone());
            match was.and_then(|was| was.ports.get(&name)) {
                None => changes.push(SwitchChange::AddPort { bridge, name, port }),
                Some(present) if *present != port => changes.push(SwitchChange::SetPort { bridge, name, port }),
                Some(_) => {}
            }
        }
    }
    changes
}

/// The elements of the first set that are not in the second one.
fn without<'a, T: Ord + Clone>(first: &'a BTreeSet<T>, second: &'a BTreeSet<T>) -> impl Iterator<Item = T> + 'a {
    first.difference(second).cloned()
}

/// The changes of the report.
pub(crate) fn of_report(present: &Report, wanted: &Report) -> Vec<VtepChange> {
    let mut changes = Vec::new();
    if present.description != wanted.description {
        changes.push(VtepChange::Describe(wanted.description.clone()));
    }
    changes.extend(without(&present.strays, &wanted.strays).map(VtepChange::RemoveStray));
    changes.extend(without(&present.unicast, &wanted.unicast).map(|(ls, mac)| VtepChange::RemoveUnicast(ls, mac)));
    changes.extend(without(&present.unknown, &wanted.unknown).map(VtepChange::RemoveUnknown));
    let gone = present.tunnels.keys().filter(|remote| !wanted.tunnels.contains_key(*remote));
    changes.extend(gone.map(|remote| VtepChange::RemoveTunnel(*remote)));
    let gone = present.counters.keys().filter(|binding| !wanted.counters.contains_key(*binding));
    changes.extend(gone.map(|binding| VtepChange::RemoveCounters(binding.clone())));
    changes.extend(without(&present.ports, &wanted.ports).map(VtepChange::RemovePort));

    changes.extend(without(&wanted.ports, &present.ports).map(VtepChange::AddPort));
    changes.extend(without(&wanted.unknown, &present.unknown).map(VtepChange::AddUnknown));
    changes.extend(without(&wanted.unicast, &present.unicast).map(|(ls, mac)| VtepChange::AddUnicast(ls, mac)));
    for (remote, tunnel) in &wanted.tunnels {
        if present.tunnels.get(remote) != Some(tunnel) {
            changes.push(VtepChange::SetTunnel(*remote, tunnel.clone()));
        }
    }
    if present.faults != wanted.faults {
        changes.push(VtepChange::SetFaults(wanted.faults.clone()));
    }
    // The faults of a port go with it.
    for port in &wanted.ports {
        let (was, is) = (present.port_faults.get(port), wanted.port_faults.get(port));
        let was = was.filter(|_| present.ports.contains(port));
        if was != is {
            changes.push(VtepChange::SetPortFaults(port.clone(), is.cloned().unwrap_or_default()));
        }
    }
    for (binding, counters) in &wanted.counters {
        if present.counters.get(binding) != Some(counters) {
            changes.push(VtepChange::SetCounters(binding.clone(), *counters));
        }
    }
    changes
}

/// The changes of a bridge's flows: deletions first.
pub(crate) fn of_flows(present: &Flows, wanted: &Flows) -> Vec<FlowChange> {
    let gone = present.keys().filter(|id| !wanted.contains_key(*id)).map(|id| FlowChange::Delete(*id));
    let added = wanted.iter().filter(|(id, treatment)| present.get(id) != Some(treatment));
    gone.chain(added.map(|(id, treatment)| FlowChange::Add(*id, treatment.clone()))).collect()
}
