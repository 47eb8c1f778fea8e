//! The hardware_vtep database: read as values of the core, and changed.

mod read;
mod write;

use ovsdb_client::schemas::vtep::{
    logical_binding_stats, logical_router, logical_switch, mcast_macs_local, mcast_macs_remote, physical_locator,
    physical_locator_set, physical_port, physical_switch, tunnel, ucast_macs_local, ucast_macs_remote,
};
use ovsdb_client::{Wanted, columns};

pub(crate) use read::read;
pub(crate) use write::write;

/// A reason for which the physical switch cannot be emulated. The texts of the last two are Open vSwitch's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// No row of Physical_Switch has the name.
    #[error("no physical switch named {0} in database hardware_vtep")]
    Missing(String),
    /// The bridge of the physical switch does not exist.
    #[error("couldn't find OVS bridge {0}")]
    NoBridge(String),
    /// `tunnel_ips` has another number of elements.
    #[error("exactly one 'tunnel_ips' should be set")]
    TunnelIps,
    /// The element of `tunnel_ips` is no IPv4 address.
    #[error("tunnel_ips: \"{0}\" is not an IPv4 address, which VXLAN tunnels need")]
    TunnelIp(String),
}

/// The columns to replicate.
pub(crate) fn wanted() -> Wanted {
    Wanted::from(&columns! {
        physical_switch { NAME, DESCRIPTION, TUNNEL_IPS, PORTS, TUNNELS, SWITCH_FAULT_STATUS }
        physical_port { NAME, VLAN_BINDINGS, VLAN_STATS, ACL_BINDINGS, PORT_FAULT_STATUS }
        logical_binding_stats { PACKETS_FROM_LOCAL, BYTES_FROM_LOCAL, PACKETS_TO_LOCAL, BYTES_TO_LOCAL }
        logical_switch { NAME, TUNNEL_KEY, REPLICATION_MODE }
        logical_router { NAME, SWITCH_BINDING }
        ucast_macs_local { MAC, LOCATOR, LOGICAL_SWITCH }
        ucast_macs_remote { MAC, LOCATOR, LOGICAL_SWITCH }
        mcast_macs_local { MAC, LOCATOR_SET, LOGICAL_SWITCH }
        mcast_macs_remote { MAC, LOCATOR_SET, LOGICAL_SWITCH }
        physical_locator_set { LOCATORS }
        physical_locator { DST_IP, ENCAPSULATION_TYPE, TUNNEL_KEY }
        tunnel { LOCAL, REMOTE, BFD_CONFIG_LOCAL, BFD_CONFIG_REMOTE, BFD_PARAMS, BFD_STATUS }
    })
}
