//! What the database asks for, as plain values: no devices, no bridges, only rows read and checked.
//!
//! A value that cannot be used is left out with a warning, as Open vSwitch does, so that one bad row does not stop the
//! others.

use base::MacAddr;
use openflow::Version;
use openflow::versions::Versions;
use ovsdb::Uuid;
use ovsdb_client::{Replica, Row};
use std::collections::BTreeMap;
use xlate::VlanMode;
use xlate::model::PriorityTags;

/// The columns that are read and written, table by table.
pub const WANTED: &[(&str, &[&str])] = &[
    (
        "Open_vSwitch",
        &[
            "bridges",
            "next_cfg",
            "cur_cfg",
            "ovs_version",
            "db_version",
            "system_type",
            "system_version",
            "datapath_types",
            "iface_types",
            "statistics",
            "other_config",
            "external_ids",
            "dpdk_initialized",
        ],
    ),
    (
        "Bridge",
        &[
            "name",
            "datapath_type",
            "datapath_id",
            "datapath_version",
            "ports",
            "controller",
            "fail_mode",
            "protocols",
            "other_config",
            "external_ids",
            "status",
            "mirrors",
            "netflow",
            "sflow",
            "ipfix",
            "stp_enable",
            "rstp_enable",
            "mcast_snooping_enable",
            "flood_vlans",
        ],
    ),
    (
        "Port",
        &[
            "name",
            "interfaces",
            "tag",
            "trunks",
            "vlan_mode",
            "other_config",
            "protected",
            "qos",
            "status",
            "statistics",
            "fake_bridge",
            "mac",
        ],
    ),
    (
        "Interface",
        &[
            "name",
            "type",
            "options",
            "ofport",
            "ofport_request",
            "mac",
            "mac_in_use",
            "mtu",
            "mtu_request",
            "ifindex",
            "admin_state",
            "link_state",
            "link_speed",
            "link_resets",
            "duplex",
            "statistics",
            "status",
            "error",
            "external_ids",
            "other_config",
            "ingress_policing_rate",
        ],
    ),
    (
        "Controller",
        &[
            "target",
            "connection_mode",
            "max_backoff",
            "inactivity_probe",
            "is_connected",
            "role",
            "status",
            "other_config",
        ],
    ),
];

/// All of it.
#[derive(Debug, Default)]
pub struct Desired {
    /// Open_vSwitch row.
    pub root: Option<Uuid>,
    /// Open_vSwitch:next_cfg.
    pub next_cfg: i64,
    /// Open_vSwitch:other_config.
    pub other_config: BTreeMap<String, String>,
    /// By name.
    pub bridges: BTreeMap<String, BridgeSpec>,
}

/// A Bridge row.
#[derive(Clone, Debug)]
pub struct BridgeSpec {
    /// Row.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// `system` (also for the empty string), `netdev`, `dummy`.
    pub datapath_type: String,
    /// Whether there is to be no traffic without a controller.
    pub fail_secure: bool,
    /// OpenFlow versions.
    pub versions: Versions,
    /// Bridge:other_config.
    pub other_config: BTreeMap<String, String>,
    /// Controllers.
    pub controllers: Vec<ControllerSpec>,
    /// By name.
    pub ports: BTreeMap<String, PortSpec>,
}

/// A Controller row.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSpec {
    /// Row.
    pub uuid: Uuid,
    /// Connection method.
    pub target: String,
    /// Milliseconds between attempts at most.
    pub max_backoff_ms: u64,
    /// Milliseconds of silence until a probe, 0 for none.
    pub probe_ms: u64,
}

/// A Port row.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Row.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// How it treats tags.
    pub mode: VlanMode,
    /// Access or native VLAN.
    pub tag: u16,
    /// VLANs of a trunk, empty for all.
    pub trunks: Vec<u16>,
    /// Tags for priorities.
    pub priority_tags: PriorityTags,
    /// No traffic to other protected ports.
    pub protected: bool,
    /// Its interfaces.
    pub interfaces: Vec<InterfaceSpec>,
}

/// An Interface row.
#[derive(Clone, Debug)]
pub struct InterfaceSpec {
    /// Row.
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// Type; `system` for the empty string, `internal` for a bridge's own.
    pub kind: String,
    /// Interface:options.
    pub options: BTreeMap<String, String>,
    /// Port number asked for.
    pub ofport_request: Option<u16>,
    /// Port number that it had before.
    pub ofport: Option<u16>,
    /// Address asked for.
    pub mac: Option<MacAddr>,
    /// MTU asked for.
    pub mtu_request: Option<u32>,
}

impl Desired {
    /// Reads the replica.
    pub fn read(db: &Replica) -> Self {
        let Some(root) = db.rows("Open_vSwitch").next() else { return Self::default() };
        let bridges = root
            .uuids("bridges")
            .into_iter()
            .filter_map(|uuid| db.row("Bridge", uuid))
            .filter_map(|row| bridge(db, &row))
            .map(|b| (b.name.clone(), b))
            .collect();
        Self {
            root: Some(root.uuid()),
            next_cfg: root.integer("next_cfg"),
            other_config: owned(&root, "other_config"),
            bridges,
        }
    }
}

fn owned(row: &Row<'_>, column: &str) -> BTreeMap<String, String> {
    row.map(column).into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn bridge(db: &Replica, row: &Row<'_>) -> Option<BridgeSpec> {
    let name = row.string("name").to_owned();
    if name.contains('/') || name.is_empty() {
        tracing::warn!(target: "bridge", "ignoring bridge with invalid name \"{name}\"");
        return None;
    }
    for (column, what) in [
        ("mirrors", "mirrors"),
        ("netflow", "NetFlow"),
        ("sflow", "sFlow"),
        ("ipfix", "IPFIX"),
        ("flood_vlans", "flood_vlans"),
    ] {
        if !row.is_empty(column) {
            tracing::warn!(target: "bridge", "bridge {name}: {what} is configured, which is not supported");
        }
    }
    for column in ["stp_enable", "rstp_enable", "mcast_snooping_enable"] {
        if row.boolean(column) {
            tracing::warn!(target: "bridge", "bridge {name}: {column} is set, which is not supported");
        }
    }
    let ports = row
        .uuids("ports")
        .into_iter()
        .filter_map(|uuid| db.row("Port", uuid))
        .map(|port| self::port(db, &name, &port))
        .map(|p| (p.name.clone(), p))
        .collect();
    let datapath_type = match row.string("datapath_type") {
        "" => "system",
        other => other,
    };
    Some(BridgeSpec {
        uuid: row.uuid(),
        datapath_type: datapath_type.to_owned(),
        fail_secure: row.string_opt("fail_mode") == Some("secure"),
        versions: versions(&name, &row.strings("protocols")),
        other_config: owned(row, "other_config"),
        controllers: row
            .uuids("controller")
            .into_iter()
            .filter_map(|u| db.row("Controller", u))
            .map(|r| controller(&r))
            .collect(),
        ports,
        name,
    })
}

fn versions(bridge: &str, protocols: &[&str]) -> Versions {
    let supported = Versions::of(&ofproto::conn::service::SUPPORTED);
    if protocols.is_empty() {
        return supported;
    }
    let named: Vec<Version> = protocols.iter().filter_map(|p| Version::from_name(p)).collect();
    let set = Versions(Versions::of(&named).0 & supported.0);
    if set.0.count_ones() as usize != protocols.len() {
        tracing::warn!(
            target: "bridge",
            "bridge {bridge}: protocols {} are configured, of which only OpenFlow10 and OpenFlow13 are supported",
            protocols.join(",")
        );
    }
    set
}

fn controller(row: &Row<'_>) -> ControllerSpec {
    let ms = |column: &str, default: i64| row.integer_opt(column).unwrap_or(default).max(0) as u64;
    ControllerSpec {
        uuid: row.uuid(),
        target: row.string("target").to_owned(),
        max_backoff_ms: ms("max_backoff", 8000),
        probe_ms: ms("inactivity_probe", 5000),
    }
}

fn port(db: &Replica, bridge: &str, row: &Row<'_>) -> PortSpec {
    let name = row.string("name").to_owned();
    let tag = row.integer_opt("tag").filter(|t| (0..4096).contains(t)).map(|t| t as u16);
    let trunks: Vec<u16> = row.integers("trunks").into_iter().filter_map(|v| u16::try_from(v).ok()).collect();
    let mode = match row.string_opt("vlan_mode") {
        Some("access") => VlanMode::Access,
        Some("trunk") => VlanMode::Trunk,
        Some("native-tagged") => VlanMode::NativeTagged,
        Some("native-untagged") => VlanMode::NativeUntagged,
        Some(other) => {
            tracing::warn!(target: "bridge", "port {name}: vlan_mode {other} is not supported, falling back to trunk mode");
            VlanMode::Trunk
        }
        None if tag.is_some() => VlanMode::Access,
        None => VlanMode::Trunk,
    };
    if !row.is_empty("qos") {
        tracing::warn!(target: "bridge", "port {name}: QoS is configured, which is not supported");
    }
    let priority_tags = match row.map_get("other_config", "priority-tags") {
        Some("always") => PriorityTags::Always,
        Some("if-nonzero" | "true") => PriorityTags::IfNonzero,
        _ => PriorityTags::Never,
    };
    PortSpec {
        uuid: row.uuid(),
        mode,
        tag: tag.unwrap_or(0),
        trunks,
        priority_tags,
        protected: row.boolean("protected"),
        interfaces: row
            .uuids("interfaces")
            .into_iter()
            .filter_map(|u| db.row("Interface", u))
            .map(|r| interface(bridge, &r))
            .collect(),
        name,
    }
}

fn interface(bridge: &str, row: &Row<'_>) -> InterfaceSpec {
    let name = row.string("name").to_owned();
    let kind = match row.string("type") {
        _ if name == bridge => "internal",
        "" => "system",
        other => other,
    };
    let number =
        |column: &str| row.integer_opt(column).and_then(|n| u16::try_from(n).ok()).filter(|n| (1..0xff00).contains(n));
    InterfaceSpec {
        uuid: row.uuid(),
        kind: kind.to_owned(),
        options: owned(row, "options"),
        ofport_request: number("ofport_request"),
        ofport: number("ofport"),
        mac: row.string_opt("mac").and_then(|m| m.parse().ok()).filter(|m: &MacAddr| !m.is_multicast() && !m.is_zero()),
        mtu_request: row.integer_opt("mtu_request").and_then(|m| u32::try_from(m).ok()),
        name,
    }
}
