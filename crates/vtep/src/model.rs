//! The values that the core computes with: the contents of both databases by name, without rows and connections.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use base::MacAddr;
use ovsdb::Uuid;

/// A column of string pairs.
pub(crate) type Pairs = BTreeMap<String, String>;

/// The bridge with the tunnels that BFD monitors.
pub(crate) const BFD_BRIDGE: &str = "vtep_bfd";
/// The address for which Mcast_Macs_Local and Mcast_Macs_Remote say where unknown destinations are (vtep(5)).
pub(crate) const UNKNOWN_DST: &str = "unknown-dst";

/// A VLAN of a physical port, which is bound to a logical switch; VLAN 0 stands for untagged frames.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Binding {
    pub(crate) vlan: u16,
    /// The name of the physical port.
    pub(crate) port: String,
}

impl Binding {
    /// The patch port in the bridge of the physical switch.
    pub(crate) fn physical_patch(&self) -> String {
        format!("{self}-p")
    }

    /// The patch port in the bridge of the logical switch.
    pub(crate) fn logical_patch(&self) -> String {
        format!("{self}-l")
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{}", self.vlan, self.port)
    }
}

/// A tunnel endpoint of remote addresses, a row of Physical_Locator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Locator {
    pub(crate) ip: Ipv4Addr,
    /// The VXLAN network identifier of frames to and from there, if the logical switch has none for all of them.
    pub(crate) key: Option<u32>,
}

/// The end of a tunnel and its VXLAN network identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) ip: Ipv4Addr,
    pub(crate) key: u32,
}

/// The receivers of a frame to several or unknown destinations (Logical_Switch:`replication_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Replication {
    /// One service node, which replicates the frame.
    #[default]
    ServiceNode,
    /// All locators of unknown destinations.
    SourceNode,
}

/// What the controller configures of a logical switch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LogicalSwitch {
    /// Its VXLAN network identifier. Without it there are tunnels only to locators that have one.
    pub(crate) tunnel_key: Option<u32>,
    pub(crate) replication: Replication,
    /// The tunnel endpoints of remote addresses.
    pub(crate) unicast: BTreeMap<MacAddr, Locator>,
    /// The tunnel endpoints of multicast addresses.
    pub(crate) groups: BTreeMap<MacAddr, BTreeSet<Locator>>,
    /// The tunnel endpoints of all other destinations.
    pub(crate) unknown: BTreeSet<Locator>,
}

impl LogicalSwitch {
    /// All tunnel endpoints.
    pub(crate) fn locators(&self) -> impl Iterator<Item = &Locator> {
        self.unicast.values().chain(self.groups.values().flatten()).chain(&self.unknown)
    }

    /// The end of the tunnel to a locator; `None` if there is no key for it.
    pub(crate) fn endpoint(&self, locator: Locator) -> Option<Endpoint> {
        Some(Endpoint { ip: locator.ip, key: locator.key.or(self.tunnel_key)? })
    }
}

/// What the controller configures of BFD on a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BfdSettings {
    /// Tunnel:`bfd_params`.
    pub(crate) params: Pairs,
    /// Tunnel:`bfd_config_remote`.
    pub(crate) remote: Pairs,
}

/// The configuration in the hardware_vtep database that concerns one physical switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vtep {
    /// The name of the physical switch, and of its bridge.
    pub(crate) name: String,
    pub(crate) tunnel_ip: Ipv4Addr,
    /// Bound VLANs with the names of their logical switches.
    pub(crate) bindings: BTreeMap<Binding, String>,
    pub(crate) logical: BTreeMap<String, LogicalSwitch>,
    /// By remote tunnel endpoint.
    pub(crate) bfd: BTreeMap<Ipv4Addr, BfdSettings>,
}

/// The counters of a binding, of which Logical_Binding_Stats is a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counters {
    pub(crate) packets_from_local: i64,
    pub(crate) bytes_from_local: i64,
    pub(crate) packets_to_local: i64,
    pub(crate) bytes_to_local: i64,
}

/// What the emulator reports of BFD on a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TunnelReport {
    /// Tunnel:`bfd_status`.
    pub(crate) status: Pairs,
    /// The keys of Tunnel:`bfd_config_local` that the emulator sets.
    pub(crate) local: Pairs,
}

/// A row that has no place in the report: a duplicate, or of an earlier tunnel endpoint of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stray {
    /// Of Ucast_Macs_Local.
    Unicast(Uuid),
    /// Of Mcast_Macs_Local.
    Multicast(Uuid),
    /// Of Tunnel.
    Tunnel(Uuid),
}

/// What the emulator writes to the hardware_vtep database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Report {
    /// Physical_Switch:`description`.
    pub(crate) description: String,
    /// The names of physical ports.
    pub(crate) ports: BTreeSet<String>,
    /// Learned addresses with the names of their logical switches.
    pub(crate) unicast: BTreeSet<(String, MacAddr)>,
    /// Logical switches whose unknown destinations are also here.
    pub(crate) unknown: BTreeSet<String>,
    /// By remote tunnel endpoint.
    pub(crate) tunnels: BTreeMap<Ipv4Addr, TunnelReport>,
    pub(crate) counters: BTreeMap<Binding, Counters>,
    /// Physical_Switch:`switch_fault_status`.
    pub(crate) faults: BTreeSet<String>,
    /// Physical_Port:`port_fault_status` of ports with faults.
    pub(crate) port_faults: BTreeMap<String, BTreeSet<String>>,
    pub(crate) strays: BTreeSet<Stray>,
}

impl Report {
    /// Adds the faults of problems, those of ports for ports that are reported.
    pub(crate) fn add_faults(&mut self, problems: &BTreeSet<Problem>) {
        for problem in problems {
            match &problem.fault {
                Fault::Unreported => {}
                Fault::Switch(fault) => drop(self.faults.insert((*fault).to_owned())),
                Fault::Port(port, fault) if self.ports.contains(port) => {
                    self.port_faults.entry(port.clone()).or_default().insert((*fault).to_owned());
                }
                Fault::Port(..) => {}
            }
        }
    }
}

/// The part that a bridge plays for the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has the physical ports.
    Physical,
    /// It is the logical switch of this name.
    Logical(String),
    /// It has the tunnels that BFD monitors.
    Bfd,
    /// None: it stays as it is.
    Foreign,
}

/// A bridge of the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bridge {
    pub(crate) role: Role,
    pub(crate) datapath_type: String,
    /// Whether it forwards nothing without flows (Bridge:`fail_mode`).
    pub(crate) is_secure: bool,
    /// By name, without the local port.
    pub(crate) ports: BTreeMap<String, Port>,
}

/// A port of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Port {
    /// Interface:`type`.
    pub(crate) kind: String,
    /// Interface:`options`.
    pub(crate) options: Pairs,
    /// Interface:`bfd`.
    pub(crate) bfd: Pairs,
}

impl Port {
    /// A patch port.
    pub(crate) fn patch(peer: String) -> Self {
        Self { kind: "patch".to_owned(), options: [("peer".to_owned(), peer)].into(), bfd: Pairs::new() }
    }

    /// The tunnel of a logical switch.
    pub(crate) fn tunnel(to: Endpoint) -> Self {
        let options = [("remote_ip".to_owned(), to.ip.to_string()), ("key".to_owned(), to.key.to_string())];
        Self { kind: "vxlan".to_owned(), options: options.into(), bfd: Pairs::new() }
    }

    /// A tunnel for BFD.
    pub(crate) fn monitored(remote: Ipv4Addr, bfd: Pairs) -> Self {
        Self { kind: "vxlan".to_owned(), options: [("remote_ip".to_owned(), remote.to_string())].into(), bfd }
    }

    /// The remote endpoint of a tunnel.
    pub(crate) fn remote(&self) -> Option<Ipv4Addr> {
        if self.kind == "vxlan" { self.options.get("remote_ip")?.parse().ok() } else { None }
    }

    /// The remote endpoint of a logical switch's tunnel.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        Some(Endpoint { ip: self.remote()?, key: self.options.get("key")?.parse().ok()? })
    }

    /// Returns true if this is the patch port `name` of a binding, at the side of the physical switch.
    pub(crate) fn is_physical_patch(&self, name: &str) -> bool {
        let binding = name.strip_suffix("-p");
        let peer = self.options.get("peer").and_then(|peer| peer.strip_suffix("-l"));
        let vlan = binding.and_then(|binding| binding.split_once('-')).map(|(vlan, _)| vlan);
        let has_vlan = vlan.is_some_and(|vlan| vlan.len() == 4 && vlan.bytes().all(|byte| byte.is_ascii_digit()));
        self.kind == "patch" && has_vlan && binding == peer
    }
}

/// What the switch reports of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Observed {
    /// Its OpenFlow port number, if it is open.
    pub(crate) ofport: Option<u16>,
    /// Why it is not open.
    pub(crate) error: Option<String>,
    /// Interface:`bfd_status`.
    pub(crate) bfd_status: Pairs,
    pub(crate) received: Traffic,
    pub(crate) sent: Traffic,
}

/// Packets and bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traffic {
    pub(crate) packets: i64,
    pub(crate) bytes: i64,
}

/// The bridges and interfaces in the Open_vSwitch database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Switch {
    /// By name.
    pub(crate) bridges: BTreeMap<String, Bridge>,
    /// By the name of the interface.
    pub(crate) observed: BTreeMap<String, Observed>,
}

impl Switch {
    /// The OpenFlow port number of an open interface.
    pub(crate) fn ofport(&self, name: &str) -> Option<u16> {
        self.observed.get(name)?.ofport
    }
}

/// The addresses that the bridges of logical switches have learned, by bridge, with their ports.
pub(crate) type Learned = BTreeMap<String, BTreeMap<MacAddr, u16>>;

/// A fault that the controller sees (vtep(5), "Error Notification").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The log alone has the problem: it does not concern this switch, or the database has no column for it.
    Unreported,
    /// In Physical_Switch:`switch_fault_status`.
    Switch(&'static str),
    /// In Physical_Port:`port_fault_status` of the port of this name.
    Port(String, &'static str),
}

impl Fault {
    /// The controller's remote addresses do not fit into a flow table.
    pub(crate) const MAC_TABLE: Self = Self::Switch("mac_table_exhaustion");
    /// A tunnel could not be opened.
    pub(crate) const TUNNEL: Self = Self::Switch("tunnel_exhaustion");
    /// A logical router is bound to a logical switch of this switch.
    pub(crate) const ROUTER: Self = Self::Switch("lr_support_fault");
    /// Another problem.
    pub(crate) const SWITCH: Self = Self::Switch("unspecified_fault");

    /// A binding of the port has no effect.
    pub(crate) fn vlan_map(port: &str) -> Self {
        Self::Port(port.to_owned(), "invalid_vlan_map")
    }

    /// The port has an access control list.
    pub(crate) fn acl_binding(port: &str) -> Self {
        Self::Port(port.to_owned(), "invalid_ACL_binding")
    }

    /// The port has another problem.
    pub(crate) fn port(port: &str) -> Self {
        Self::Port(port.to_owned(), "unspecified_fault")
    }
}

/// A part of the configuration that has no effect; the text says which, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) text: String,
    pub(crate) fault: Fault,
}

impl Problem {
    /// A problem that the log alone has.
    pub(crate) fn unreported(text: String) -> Self {
        Self { text, fault: Fault::Unreported }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_ports_of_bindings_are_recognised() {
        let binding = Binding { vlan: 7, port: "eth-1".to_owned() };
        let (name, patch) = (binding.physical_patch(), Port::patch(binding.logical_patch()));
        assert_eq!((name.as_str(), patch.options["peer"].as_str()), ("0007-eth-1-p", "0007-eth-1-l"));
        assert!(patch.is_physical_patch(&name));
        // Ports of others.
        assert!(!patch.is_physical_patch("0008-eth-1-p") && !patch.is_physical_patch(&binding.logical_patch()));
        assert!(!Port::patch("to-br1-l".to_owned()).is_physical_patch("to-br1-p"));
        assert!(!Port::default().is_physical_patch(&name));
    }
}
