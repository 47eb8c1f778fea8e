//! The columns of the database that the switch reads and writes.
//!
//! Columns that configure are kept apart from those that report: the switch is configured anew only when one of the
//! former changes, so that its own reports do not set it to work.

use ovsdb_client::{Change, ChangeKind, Wanted};

/// A table, its columns that configure, and its columns that report.
type Table = (&'static str, &'static [&'static str], &'static [&'static str]);

const TABLES: &[Table] = &[
    (
        "Open_vSwitch",
        &["bridges", "next_cfg", "other_config", "ssl", "manager_options"],
        &[
            "cur_cfg",
            "ovs_version",
            "db_version",
            "system_type",
            "system_version",
            "datapath_types",
            "iface_types",
            "dpdk_initialized",
        ],
    ),
    (
        "Bridge",
        &[
            "name",
            "datapath_type",
            "ports",
            "controller",
            "fail_mode",
            "protocols",
            "other_config",
            "mirrors",
            "netflow",
            "sflow",
            "ipfix",
            "auto_attach",
            "flow_tables",
            "flood_vlans",
            "stp_enable",
            "rstp_enable",
            "mcast_snooping_enable",
        ],
        &["datapath_id", "datapath_version"],
    ),
    ("Flow_Table", &["name", "flow_limit", "overflow_policy", "groups", "prefixes"], &[]),
    (
        "Port",
        &[
            "name",
            "interfaces",
            "tag",
            "trunks",
            "vlan_mode",
            "cvlans",
            "other_config",
            "protected",
            "qos",
            "lacp",
            "mac",
        ],
        &[],
    ),
    (
        "Interface",
        &[
            "name",
            "type",
            "options",
            "ofport_request",
            "mac",
            "mtu_request",
            "ingress_policing_rate",
            "ingress_policing_kpkts_rate",
            "bfd",
            "cfm_mpid",
            "lldp",
            "other_config",
        ],
        &[
            "ofport",
            "mac_in_use",
            "mtu",
            "ifindex",
            "admin_state",
            "link_state",
            "link_speed",
            "link_resets",
            "duplex",
            "statistics",
            "status",
            "error",
        ],
    ),
    (
        "Controller",
        &[
            "target",
            "type",
            "connection_mode",
            "local_ip",
            "max_backoff",
            "inactivity_probe",
            "enable_async_messages",
            "controller_rate_limit",
            "controller_burst_limit",
            "controller_queue_size",
            "other_config",
        ],
        &["is_connected", "role", "status"],
    ),
    (
        "IPFIX",
        &[
            "targets",
            "sampling",
            "obs_domain_id",
            "obs_point_id",
            "cache_active_timeout",
            "cache_max_flows",
            "other_config",
        ],
        &[],
    ),
    ("Flow_Sample_Collector_Set", &["id", "bridge", "ipfix"], &[]),
    ("Manager", &["target", "connection_mode"], &[]),
    ("SSL", &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"], &[]),
];

/// All of them, for the replica.
pub fn wanted() -> Wanted {
    let mut wanted = Wanted::new();
    for (table, configuring, reporting) in TABLES {
        wanted.table(table);
        for column in configuring.iter().chain(*reporting) {
            wanted.column(table, column);
        }
    }
    wanted
}

/// Whether a change is one of configuration.
pub fn configures(change: &Change) -> bool {
    let ChangeKind::Modified(old) = &change.kind else { return true };
    let table = TABLES.iter().find(|(table, ..)| *table == &*change.table);
    table.is_some_and(|(_, configuring, _)| old.iter().any(|(column, _)| configuring.contains(&column)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_columns_are_in_the_schema_and_none_is_both() {
        let schema = ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
        for (name, configuring, reporting) in TABLES {
            let table = schema.table(name).unwrap();
            for column in configuring.iter().chain(*reporting) {
                assert!(table.column(column).is_some(), "{name}.{column}");
            }
            assert!(configuring.iter().all(|c| !reporting.contains(c)), "{name}");
        }
    }
}
