//! The core: from the configuration and the present state of both databases to the wanted bridges, flows and report.
//!
//! Pure: [`plan`] depends on its arguments only. It keeps the names of existing bridges and tunnels, so that a second
//! run, with the state that the first one asked for, asks for the same.

mod flows;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::flow::Flows;
use crate::model::{
    BFD_BRIDGE, BfdSettings, Binding, Bridge, Counters, Endpoint, Fault, Learned, LogicalSwitch, Observed, Pairs, Port,
    Problem, Report, Role, Switch, TunnelReport, Vtep,
};

/// Physical_Switch:`description`, as Open vSwitch's emulator sets it.
const DESCRIPTION: &str = "OVS VTEP Emulator";

/// The parameters of BFD with their defaults (vtep(5)). An empty default stands for a key that is not set.
const BFD_PARAMS: &[(&str, &str)] = &[
    ("enable", "false"),
    ("min_rx", "1000"),
    ("min_tx", "100"),
    ("decay_min_rx", "0"),
    ("forwarding_if_rx", ""),
    ("cpath_down", "false"),
    ("check_tnl_key", "false"),
];
/// The keys of Interface:`bfd_status` that Tunnel:`bfd_status` has, too.
const BFD_STATUS: &[&str] = &["state", "forwarding", "diagnostic", "remote_state", "remote_diagnostic"];
/// The beginning of the names of tunnels.
const TUNNEL: &str = "vx";
const BFD_LOCAL_IP: &str = "169.254.1.0";
const BFD_REMOTE_IP: &str = "169.254.1.1";
const BFD_MAC: &str = "00:23:20:00:00:01";

/// The wanted state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// All bridges that have a role.
    pub(crate) bridges: BTreeMap<String, Bridge>,
    /// The flows of each of them.
    pub(crate) flows: BTreeMap<String, Flows>,
    pub(crate) report: Report,
    /// Ports that cannot be as wanted. The report has their faults.
    pub(crate) problems: BTreeSet<Problem>,
}

/// Computes the wanted state. Flows and counters are those of ports that exist: they are complete once the switch has
/// opened the ports of an earlier plan.
pub(crate) fn plan(vtep: &Vtep, switch: &Switch, learned: &Learned) -> Plan {
    let physical = physical_ports(vtep, switch);
    let bindings = bindings(vtep, &physical);
    let mut bridges = bridges(vtep, switch, &bindings, &physical);
    let mut problems = leave_conflicts_out(&mut bridges, switch, &physical);
    problems.extend(without_effect(vtep, switch, &bridges, (&bindings, &physical)));
    let flows = flows::flows(vtep, switch, &bridges, &bindings);
    let mut report = report(switch, &bridges, &bindings, &physical, learned);
    report.add_faults(&problems);
    Plan { bridges, flows, report, problems }
}

/// The ports of the physical switch: all ports of its bridge but the patch ports of bindings.
fn physical_ports(vtep: &Vtep, switch: &Switch) -> BTreeMap<String, Port> {
    let ports = switch.bridges.get(&vtep.name).map(|bridge| &bridge.ports);
    let ports = ports.into_iter().flatten().filter(|(name, port)| !port.is_physical_patch(name));
    ports.map(|(name, port)| (name.clone(), port.clone())).collect()
}

/// The bindings of ports that exist, by logical switch.
fn bindings(vtep: &Vtep, physical: &BTreeMap<String, Port>) -> BTreeMap<String, BTreeSet<Binding>> {
    let mut found: BTreeMap<String, BTreeSet<Binding>> = BTreeMap::new();
    for (binding, logical) in &vtep.bindings {
        if physical.contains_key(&binding.port) && vtep.logical.contains_key(logical) {
            found.entry(logical.clone()).or_default().insert(binding.clone());
        }
    }
    found
}

fn bridges(
    vtep: &Vtep,
    switch: &Switch,
    bindings: &BTreeMap<String, BTreeSet<Binding>>,
    physical: &BTreeMap<String, Port>,
) -> BTreeMap<String, Bridge> {
    let mut found = BTreeMap::new();
    let Some(present) = switch.bridges.get(&vtep.name) else { return found };
    let mut ports = physical.clone();
    for binding in bindings.values().flatten() {
        ports.insert(binding.physical_patch(), Port::patch(binding.logical_patch()));
    }
    found.insert(vtep.name.clone(), Bridge { ports, ..present.clone() });

    let bridge = |role, ports| Bridge { role, datapath_type: present.datapath_type.clone(), is_secure: true, ports };
    let mut names = Names::of(switch);
    let mut remotes = BTreeSet::new();
    for (logical, bindings) in bindings {
        let role = Role::Logical(logical.clone());
        let existing = switch.bridges.iter().find(|(_, bridge)| bridge.role == role);
        let mut ports: BTreeMap<String, Port> =
            bindings.iter().map(|binding| (binding.logical_patch(), Port::patch(binding.physical_patch()))).collect();
        let tunnels = vtep.logical.get(logical).map(|logical| tunnels(vtep, logical)).unwrap_or_default();
        remotes.extend(tunnels.iter().map(|to| to.ip));
        let present = existing.map(|(_, bridge)| &bridge.ports);
        for (to, name) in names_of_tunnels(&tunnels, present) {
            ports.insert(name.unwrap_or_else(|| names.next(TUNNEL)), Port::tunnel(to));
        }
        let name = existing.map(|(name, _)| name.clone());
        let name = name.unwrap_or_else(|| names.next(&format!("{}_vtep_ls", vtep.name)));
        found.insert(name, bridge(role, ports));
    }
    let monitored = |remote: Ipv4Addr| {
        let settings = vtep.bfd.get(&remote).cloned().unwrap_or_default();
        (bfd_port(remote), Port::monitored(remote, bfd(&settings)))
    };
    found.insert(BFD_BRIDGE.to_owned(), bridge(Role::Bfd, remotes.into_iter().map(monitored).collect()));
    found
}

/// The tunnels with the names of present ones that lead there: those with the same key first, then others, whose keys change.
fn names_of_tunnels(
    tunnels: &BTreeSet<Endpoint>,
    present: Option<&BTreeMap<String, Port>>,
) -> BTreeMap<Endpoint, Option<String>> {
    let mut free: BTreeMap<&String, &Port> =
        present.into_iter().flatten().filter(|(name, _)| name.starts_with(TUNNEL)).collect();
    let mut named: BTreeMap<Endpoint, Option<String>> = tunnels.iter().map(|to| (*to, None)).collect();
    let same = |port: &Port, to: &Endpoint| port.endpoint() == Some(*to);
    let moved = |port: &Port, to: &Endpoint| port.remote() == Some(to.ip);
    for suits in [&same as &dyn Fn(&Port, &Endpoint) -> bool, &moved] {
        for (to, name) in named.iter_mut().filter(|(_, name)| name.is_none()) {
            let found = free.iter().find(|(_, port)| suits(port, to)).map(|(name, _)| *name);
            *name = found.and_then(|found| free.remove_entry(found)).map(|(name, _)| name.clone());
        }
    }
    named
}

/// Leaves out ports whose name another port has that this program does not manage.
fn leave_conflicts_out(
    bridges: &mut BTreeMap<String, Bridge>,
    switch: &Switch,
    physical: &BTreeMap<String, Port>,
) -> BTreeSet<Problem> {
    let foreign = switch.bridges.iter().filter(|(_, bridge)| bridge.role == Role::Foreign);
    let foreign = foreign.flat_map(|(name, bridge)| bridge.ports.keys().chain([name]));
    let taken: BTreeSet<&String> = foreign.chain(physical.keys()).collect();
    let mut problems = BTreeSet::new();
    for bridge in bridges.values_mut() {
        let is_physical = bridge.role == Role::Physical;
        bridge.ports.retain(|name, port| {
            let is_free = !taken.contains(name) || is_physical && physical.get(name) == Some(port);
            if !is_free {
                let text = format!("port {name} is left out, as another port has its name");
                problems.insert(Problem { text, fault: fault_of(name, port, physical) });
            }
            is_free
        });
    }
    problems
}

/// The fault if a port is not there.
fn fault_of(name: &str, port: &Port, physical: &BTreeMap<String, Port>) -> Fault {
    let binding = name.strip_suffix("-p").or_else(|| name.strip_suffix("-l"));
    match binding.and_then(|binding| binding.split_once('-')).filter(|_| port.kind == "patch") {
        Some((_, bound)) => Fault::vlan_map(bound),
        None if physical.contains_key(name) => Fault::port(name),
        None if port.kind == "vxlan" => Fault::TUNNEL,
        None => Fault::SWITCH,
    }
}

/// Ports that are not open, bound ports that no flow can name, and logical switches without tunnels.
fn without_effect(
    vtep: &Vtep,
    switch: &Switch,
    bridges: &BTreeMap<String, Bridge>,
    (bindings, physical): (&BTreeMap<String, BTreeSet<Binding>>, &BTreeMap<String, Port>),
) -> BTreeSet<Problem> {
    let mut problems = BTreeSet::new();
    for (name, port) in bridges.values().flat_map(|bridge| &bridge.ports) {
        if let Some(error) = switch.observed.get(name).and_then(|observed| observed.error.as_ref()) {
            let fault = fault_of(name, port, physical);
            problems.insert(Problem { text: format!("port {name}: {error}"), fault });
        }
    }
    for binding in bindings.values().flatten().filter(|binding| !switch.observed.contains_key(&binding.port)) {
        let text = format!("physical port {}: bonds are not supported", binding.port);
        problems.insert(Problem { text, fault: Fault::vlan_map(&binding.port) });
    }
    for (name, logical) in vtep.logical.iter().filter(|(name, _)| bindings.contains_key(*name)) {
        if logical.locators().any(|locator| logical.endpoint(*locator).is_none()) {
            let text = format!("logical switch {name}: without a tunnel key, remote addresses are out of reach");
            problems.insert(Problem { text, fault: Fault::SWITCH });
        }
    }
    problems
}

/// The tunnels of a logical switch.
fn tunnels(vtep: &Vtep, logical: &LogicalSwitch) -> BTreeSet<Endpoint> {
    let remote = logical.locators().filter(|locator| locator.ip != vtep.tunnel_ip);
    remote.filter_map(|locator| logical.endpoint(*locator)).collect()
}

/// The name of the port in [`BFD_BRIDGE`] that leads to a remote endpoint.
fn bfd_port(remote: Ipv4Addr) -> String {
    format!("bfd{remote}")
}

/// Interface:`bfd` of a tunnel.
fn bfd(settings: &BfdSettings) -> Pairs {
    let mut found = Pairs::new();
    for (key, default) in BFD_PARAMS {
        let value = settings.params.get(*key).map_or(*default, String::as_str);
        if !value.is_empty() {
            found.insert((*key).to_owned(), value.to_owned());
        }
    }
    let remote = |key: &str, default: &str| settings.remote.get(key).map_or(default, String::as_str).to_owned();
    found.insert("bfd_dst_ip".to_owned(), remote("bfd_dst_ip", BFD_REMOTE_IP));
    found.insert("bfd_local_dst_mac".to_owned(), remote("bfd_dst_mac", BFD_MAC));
    found.insert("bfd_remote_dst_mac".to_owned(), BFD_MAC.to_owned());
    found
}

/// Names of bridges and ports. A bridge has a port of its own name, so both share one set.
struct Names(BTreeSet<String>);

impl Names {
    fn of(switch: &Switch) -> Self {
        let names = switch.bridges.iter().flat_map(|(name, bridge)| bridge.ports.keys().chain([name]));
        Self(names.cloned().collect())
    }

    /// The beginning with the least number that makes it a new name.
    fn next(&mut self, beginning: &str) -> String {
        let mut number = 1_u64;
        loop {
            let name = format!("{beginning}{number}");
            if self.0.insert(name.clone()) {
                return name;
            }
            number += 1;
        }
    }
}

fn report(
    switch: &Switch,
    bridges: &BTreeMap<String, Bridge>,
    bindings: &BTreeMap<String, BTreeSet<Binding>>,
    physical: &BTreeMap<String, Port>,
    learned: &Learned,
) -> Report {
    let mut report = Report {
        description: DESCRIPTION.to_owned(),
        ports: physical.keys().cloned().collect(),
        unknown: bindings.keys().cloned().collect(),
        ..Report::default()
    };
    for binding in bindings.values().flatten() {
        let observed = switch.observed.get(&binding.logical_patch());
        report.counters.insert(binding.clone(), observed.map(counters).unwrap_or_default());
    }
    for (name, bridge) in bridges {
        let Role::Logical(logical) = &bridge.role else { continue };
        let local = |port: &u16| {
            bridge.ports.iter().any(|(name, spec)| spec.kind == "patch" && switch.ofport(name) == Some(*port))
        };
        for (mac, port) in learned.get(name).into_iter().flatten() {
            if local(port) && !mac.is_multicast() {
                report.unicast.insert((logical.clone(), *mac));
            }
        }
    }
    for (name, port) in bridges.get(BFD_BRIDGE).into_iter().flat_map(|bridge| &bridge.ports) {
        let Some(remote) = port.remote() else { continue };
        let observed = switch.observed.get(name);
        let value = |key: &str| Some((key.to_owned(), observed?.bfd_status.get(key)?.clone()));
        let mut status: Pairs = BFD_STATUS.iter().filter_map(|key| value(key)).collect();
        if let Some(error) = observed.and_then(|observed| observed.error.as_ref()) {
            status.insert("info".to_owned(), error.clone());
        }
        status.insert("enabled".to_owned(), port.bfd.get("enable").cloned().unwrap_or_default());
        let local = [("bfd_dst_ip", BFD_LOCAL_IP), ("bfd_dst_mac", BFD_MAC)];
        let local = local.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        report.tunnels.insert(remote, TunnelReport { status, local });
    }
    report
}

/// The counters of a binding. The patch port is that of the logical switch: what it receives, the physical port has
/// received.
fn counters(observed: &Observed) -> Counters {
    Counters {
        packets_from_local: observed.received.packets,
        bytes_from_local: observed.received.bytes,
        packets_to_local: observed.sent.packets,
        bytes_to_local: observed.sent.bytes,
    }
}
