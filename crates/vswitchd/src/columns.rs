//! The columns of the database that the switch reads and writes.
//!
//! Columns that configure are kept apart from those that report: the switch is configured anew only when one of the
//! former changes, so that its own reports do not set it to work.

use ovsdb_client::schemas::vswitch::{
    autoattach, bridge, controller, flow_sample_collector_set, flow_table, interface, ipfix, manager, open_vswitch,
    port, ssl,
};
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Change, Wanted, columns};

/// Columns that configure.
const CONFIGURING: &[AnyColumn] = &columns! {
    open_vswitch { BRIDGES, NEXT_CFG, OTHER_CONFIG, SSL, MANAGER_OPTIONS }
    bridge {
        NAME, DATAPATH_TYPE, PORTS, CONTROLLER, FAIL_MODE, PROTOCOLS, OTHER_CONFIG, MIRRORS, NETFLOW, SFLOW, IPFIX,
        AUTO_ATTACH, FLOW_TABLES, FLOOD_VLANS, STP_ENABLE, RSTP_ENABLE, MCAST_SNOOPING_ENABLE,
    }
    autoattach { MAPPINGS, SYSTEM_DESCRIPTION, SYSTEM_NAME }
    flow_table { NAME, FLOW_LIMIT, OVERFLOW_POLICY, GROUPS, PREFIXES }
    port { NAME, INTERFACES, TAG, TRUNKS, VLAN_MODE, CVLANS, OTHER_CONFIG, PROTECTED, QOS, LACP, MAC }
    interface {
        NAME, TYPE, OPTIONS, OFPORT_REQUEST, MAC, MTU_REQUEST, INGRESS_POLICING_RATE, INGRESS_POLICING_KPKTS_RATE,
        BFD, CFM_MPID, LLDP, OTHER_CONFIG,
    }
    controller {
        TARGET, TYPE, CONNECTION_MODE, LOCAL_IP, MAX_BACKOFF, INACTIVITY_PROBE, ENABLE_ASYNC_MESSAGES,
        CONTROLLER_RATE_LIMIT, CONTROLLER_BURST_LIMIT, CONTROLLER_QUEUE_SIZE, OTHER_CONFIG,
    }
    ipfix { TARGETS, SAMPLING, OBS_DOMAIN_ID, OBS_POINT_ID, CACHE_ACTIVE_TIMEOUT, CACHE_MAX_FLOWS, OTHER_CONFIG }
    flow_sample_collector_set { ID, BRIDGE, IPFIX }
    manager { TARGET, CONNECTION_MODE }
    ssl { PRIVATE_KEY, CERTIFICATE, CA_CERT, BOOTSTRAP_CA_CERT }
};

/// Columns that report.
const REPORTING: &[AnyColumn] = &columns! {
    open_vswitch {
        CUR_CFG, OVS_VERSION, DB_VERSION, SYSTEM_TYPE, SYSTEM_VERSION, DATAPATH_TYPES, IFACE_TYPES, DPDK_INITIALIZED,
    }
    bridge { DATAPATH_ID, DATAPATH_VERSION }
    interface {
        OFPORT, MAC_IN_USE, MTU, IFINDEX, ADMIN_STATE, LINK_STATE, LINK_SPEED, LINK_RESETS, DUPLEX, STATISTICS,
        STATUS, ERROR,
    }
    controller { IS_CONNECTED, ROLE, STATUS }
};

/// All of them, for the replica.
pub fn wanted() -> Wanted {
    Wanted::from([CONFIGURING, REPORTING].concat().as_slice())
}

/// Whether a change is one of configuration.
pub fn configures(change: &Change) -> bool {
    CONFIGURING.iter().any(|column| change.touches(*column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_column_both_configures_and_reports() {
        assert!(CONFIGURING.iter().all(|column| !REPORTING.contains(column)));
    }
}
