//! What the database asks for, as plain values: no devices, no bridges, only rows read and checked.
//!
//! A value that cannot be used is left out with a warning, as Open vSwitch does, so that one bad row does not stop the
//! others. So is one that asks for what is not supported: nothing is ignored without a word. Warnings are collected
//! ([`Desired::warnings`]), so that each is logged when it comes up and not whenever the rows are read.

use crate::threads::parse_affinity;
use crate::tuning::Tuning;
use base::MacAddr;
pub use control::ControllerSpec;
use flow::Field;
use ofproto::{IpfixSettings, TableSettings};
use openflow::Version;
use openflow::versions::Versions;
use ovsdb::Uuid;
use ovsdb_client::{Replica, Row};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use tls::CaCert;
use xlate::VlanMode;
use xlate::model::PriorityTags;

/// All of it.
#[derive(Debug, Default)]
pub struct Desired {
    /// Open_vSwitch row.
    pub root: Option<Uuid>,
    /// Open_vSwitch:next_cfg.
    pub next_cfg: i64,
    /// Open_vSwitch:other_config.
    pub other_config: BTreeMap<String, String>,
    /// Caches, threads and limits.
    pub tuning: Tuning,
    /// By name.
    pub bridges: BTreeMap<String, BridgeSpec>,
    /// Managers of the database that are connected to over bridges.
    pub managers: BTreeSet<SocketAddrV4>,
    /// Keys and certificates, where there is a row for them.
    pub tls: Option<tls::Config>,
    /// What cannot be used or is not supported, in whole lines.
    pub warnings: BTreeSet<String>,
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
    /// Address of the local port and, unless a datapath id is given, origin of that.
    pub hwaddr: Option<MacAddr>,
    /// Datapath id.
    pub datapath_id: Option<u64>,
    /// Description for controllers.
    pub dp_desc: Option<String>,
    /// Serial number for controllers.
    pub dp_sn: Option<String>,
    /// Whether NORMAL forwards frames to reserved addresses.
    pub forward_bpdu: bool,
    /// Seconds until a learned address is forgotten.
    pub mac_aging_secs: u32,
    /// Most learned addresses.
    pub mac_table_size: u32,
    /// Flow tables that have a row.
    pub tables: BTreeMap<u8, TableSettings>,
    /// Fields whose prefixes are tracked, by table, where they are not the usual ones.
    pub prefixes: BTreeMap<u8, Vec<Field>>,
    /// Controllers.
    pub controllers: Vec<ControllerSpec>,
    /// Whether those that are connected to over the bridge are let through it.
    pub in_band: bool,
    /// The queue that is used for them.
    pub in_band_queue: Option<u32>,
    /// Packet-ins that wait for a connection to take them, unless its row says otherwise.
    pub packet_in_queue: usize,
    /// Exporters of what packets and flows there are.
    pub ipfix: IpfixSettings,
    /// By name.
    pub ports: BTreeMap<String, PortSpec>,
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
    /// The address that it stands for when the bridge's is chosen, if not its interface's.
    pub mac: Option<MacAddr>,
    /// Its interfaces, by name.
    pub interfaces: Vec<InterfaceSpec>,
}

/// An Interface row.
#[derive(Clone, Debug)]
pub struct InterfaceSpec {
    /// Row; zero if there is none.
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
    /// Address asked for, of an internal interface other than the bridge's own.
    pub mac: Option<MacAddr>,
    /// MTU asked for.
    pub mtu_request: Option<u32>,
    /// Cores that receive queues are asked on, by queue.
    pub rxq_affinity: BTreeMap<usize, usize>,
}

/// Keys of other_config that Open vSwitch knows, that are not supported, and that change what the switch does. Keys
/// that only tune it, or belong to a protocol that is switched on elsewhere, are not here.
const UNSUPPORTED_KEYS: &[(&str, &[&str])] = &[
    ("Open_vSwitch", &["flow-restore-wait", "enable-statistics", "ct-zone-limit"]),
    ("Port", &["bond-primary", "lacp-system-id", "qinq-ethtype"]),
    ("Interface", &["lacp-port-id", "lacp-aggregation-key"]),
];
/// Booleans in other_config that are not supported when true.
const UNSUPPORTED_FLAGS: &[(&str, &[&str])] = &[("Open_vSwitch", &["dpdk-init", "userspace-tso-enable"])];

impl Desired {
    /// Reads the replica.
    pub fn read(db: &Replica) -> Self {
        let Some(root) = db.rows("Open_vSwitch").next() else { return Self::default() };
        let reader = Reader { db, warnings: RefCell::default() };
        reader.keys("switch", &root);
        let bridges = root
            .uuids("bridges")
            .into_iter()
            .filter_map(|uuid| db.row("Bridge", uuid))
            .filter_map(|row| reader.bridge(&row))
            .map(|b| (b.name.clone(), b))
            .collect();
        Self {
            root: Some(root.uuid()),
            next_cfg: root.integer("next_cfg"),
            other_config: owned(&root, "other_config"),
            tuning: Tuning::read(&root, &|warning| reader.warn(warning)),
            bridges,
            managers: reader.managers(&root),
            tls: root.uuids("ssl").first().and_then(|uuid| db.row("SSL", *uuid)).map(|row| tls_config(&row)),
            warnings: reader.warnings.into_inner(),
        }
    }
}

/// A row of the table SSL. The CA's name `none` has everybody trusted, as on the command line.
fn tls_config(row: &Row<'_>) -> tls::Config {
    let file = |column| Some(row.string(column)).filter(|name| !name.is_empty()).map(PathBuf::from);
    let ca_cert = file("ca_cert").map(|path| match row.boolean("bootstrap_ca_cert") {
        _ if path.as_os_str() == "none" => CaCert::None,
        true => CaCert::Bootstrap(path),
        false => CaCert::File(path),
    });
    tls::Config {
        private_key: file("private_key"),
        certificate: file("certificate"),
        ca_cert,
        ..tls::Config::default()
    }
}

fn owned(row: &Row<'_>, column: &str) -> BTreeMap<String, String> {
    row.map(column).into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// An address that a device can have.
fn unicast(text: &str) -> Option<MacAddr> {
    text.parse().ok().filter(|mac: &MacAddr| !mac.is_multicast() && !mac.is_zero())
}

/// The rows, and what is wrong with them.
struct Reader<'a> {
    db: &'a Replica,
    warnings: RefCell<BTreeSet<String>>,
}

impl Reader<'_> {
    fn warn(&self, warning: String) {
        self.warnings.borrow_mut().insert(warning);
    }

    /// Warns of keys of other_config that are not supported.
    fn keys(&self, what: &str, row: &Row<'_>) {
        let of =
            |list: &'static [(&str, &[&str])]| list.iter().filter(|(t, _)| *t == row.table()).flat_map(|(_, k)| *k);
        for key in of(UNSUPPORTED_KEYS) {
            if row.map_get("other_config", key).is_some() {
                self.warn(format!("{what}: other_config:{key} is set, which is not supported"));
            }
        }
        for key in of(UNSUPPORTED_FLAGS) {
            if row.map_get("other_config", key) == Some("true") {
                self.warn(format!("{what}: other_config:{key} is set, which is not supported"));
            }
        }
    }

    /// Warns of columns that have a value and are not supported; each with what it configures.
    fn columns(&self, what: &str, row: &Row<'_>, columns: &[(&str, &str)]) {
        for (column, configures) in columns {
            if !row.is_empty(column) {
                self.warn(format!("{what}: {configures} is configured, which is not supported"));
            }
        }
    }

    fn bridge(&self, row: &Row<'_>) -> Option<BridgeSpec> {
        let name = row.string("name").to_owned();
        if name.contains('/') || name.is_empty() {
            self.warn(format!("ignoring bridge with invalid name \"{name}\""));
            return None;
        }
        let what = format!("bridge {name}");
        self.keys(&what, row);
        self.columns(
            &what,
            row,
            &[
                ("mirrors", "mirroring"),
                ("netflow", "NetFlow"),
                ("sflow", "sFlow"),
                ("flood_vlans", "flood_vlans"),
                ("auto_attach", "Auto Attach"),
            ],
        );
        for column in ["stp_enable", "rstp_enable", "mcast_snooping_enable"] {
            if row.boolean(column) {
                self.warn(format!("{what}: {column} is set, which is not supported"));
            }
        }
        let mut ports: BTreeMap<String, PortSpec> = row
            .uuids("ports")
            .into_iter()
            .filter_map(|uuid| self.db.row("Port", uuid))
            .map(|port| self.port(&name, &port))
            .map(|p| (p.name.clone(), p))
            .collect();
        if !ports.contains_key(&name) {
            self.warn(format!("{what}: no port named {name}, synthesizing one"));
            ports.insert(name.clone(), PortSpec::local(&name));
        }
        let datapath_type = match row.string("datapath_type") {
            "" => "system",
            other => other,
        };
        let text = |key: &str, len_max: usize| {
            let text = row.map_get("other_config", key)?;
            if text.len() > len_max {
                self.warn(format!("{what}: {key} is longer than {len_max} bytes and will be cut"));
            }
            Some(text.to_owned())
        };
        let packet_in_queue = self.packet_in_queue(&what, row);
        let (tables, prefixes) = self.flow_tables(&what, row);
        Some(BridgeSpec {
            uuid: row.uuid(),
            datapath_type: datapath_type.to_owned(),
            fail_secure: row.string_opt("fail_mode") == Some("secure"),
            versions: self.versions(&what, &row.strings("protocols")),
            hwaddr: self.checked(&what, row, "hwaddr", "an Ethernet address of one device", unicast),
            datapath_id: self.checked(&what, row, "datapath-id", "0x and hex digits, or 16 of them", datapath_id),
            dp_desc: text("dp-desc", 255),
            dp_sn: text("dp-sn", 31),
            forward_bpdu: self
                .checked(&what, row, "forward-bpdu", "true or false", |v| v.parse().ok())
                .unwrap_or(false),
            mac_aging_secs: self.number(&what, row, "mac-aging-time").unwrap_or(xlate::mac::AGING_SECS),
            mac_table_size: self.number(&what, row, "mac-table-size").unwrap_or(xlate::mac::TABLE_SIZE as u32),
            tables,
            prefixes,
            controllers: row
                .uuids("controller")
                .into_iter()
                .filter_map(|u| self.db.row("Controller", u))
                .map(|r| self.controller(&name, &r, packet_in_queue))
                .collect(),
            in_band: row.map_get("other_config", "disable-in-band") != Some("true"),
            in_band_queue: self.in_band_queue(&what, row),
            packet_in_queue,
            ipfix: self.ipfix(&what, row),
            ports,
            name,
        })
    }

    /// A value of other_config, unless it is wrong.
    fn checked<T>(
        &self,
        what: &str,
        row: &Row<'_>,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = row.map_get("other_config", key)?;
        let value = parse(text);
        if value.is_none() {
            self.warn(format!("{what}: other_config:{key} is \"{text}\", which is not {expected}"));
        }
        value
    }

    fn number(&self, what: &str, row: &Row<'_>, key: &str) -> Option<u32> {
        self.checked(what, row, key, "a number from 1", |v| v.parse().ok().filter(|n| *n > 0))
    }

    fn versions(&self, what: &str, protocols: &[&str]) -> Versions {
        if protocols.is_empty() {
            return Versions::of(&ofproto::conn::service::SUPPORTED);
        }
        let named: Vec<Version> = protocols.iter().filter_map(|p| Version::from_name(p)).collect();
        if named.len() != protocols.len() {
            let protocols = protocols.join(",");
            self.warn(format!("{what}: of protocols {protocols}, not all are versions of OpenFlow from 1.0 to 1.5"));
        }
        Versions::of(&named)
    }

    fn port(&self, bridge: &str, row: &Row<'_>) -> PortSpec {
        let name = row.string("name").to_owned();
        let what = format!("port {name}");
        self.keys(&what, row);
        self.columns(&what, row, &[("qos", "QoS")]);
        if row.string_opt("lacp").is_some_and(|lacp| lacp != "off") {
            self.warn(format!("{what}: LACP is configured, which is not supported"));
        }
        let tag = row.integer_opt("tag").filter(|t| (0..4096).contains(t)).map(|t| t as u16);
        let trunks: Vec<u16> = row.integers("trunks").into_iter().filter_map(|v| u16::try_from(v).ok()).collect();
        let mode = match row.string_opt("vlan_mode") {
            Some("access") => VlanMode::Access,
            Some("trunk") => VlanMode::Trunk,
            Some("native-tagged") => VlanMode::NativeTagged,
            Some("native-untagged") => VlanMode::NativeUntagged,
            Some(other) => {
                self.warn(format!("{what}: vlan_mode {other} is not supported, falling back to trunk mode"));
                VlanMode::Trunk
            }
            None if tag.is_some() => VlanMode::Access,
            None => VlanMode::Trunk,
        };
        let priority_tags = self.checked(&what, row, "priority-tags", "always, if-nonzero or never", |v| match v {
            "always" => Some(PriorityTags::Always),
            "if-nonzero" | "true" => Some(PriorityTags::IfNonzero),
            "never" | "false" => Some(PriorityTags::Never),
            _ => None,
        });
        let mut interfaces: Vec<InterfaceSpec> = row
            .uuids("interfaces")
            .into_iter()
            .filter_map(|u| self.db.row("Interface", u))
            .map(|r| self.interface(bridge, &r))
            .collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        PortSpec {
            uuid: row.uuid(),
            mode,
            tag: tag.unwrap_or(0),
            trunks,
            priority_tags: priority_tags.unwrap_or(PriorityTags::Never),
            protected: row.boolean("protected"),
            mac: row.string_opt("mac").and_then(unicast),
            interfaces,
            name,
        }
    }

    fn interface(&self, bridge: &str, row: &Row<'_>) -> InterfaceSpec {
        let name = row.string("name").to_owned();
        let what = format!("interface {name}");
        self.keys(&what, row);
        self.columns(&what, row, &[("bfd", "BFD"), ("cfm_mpid", "CFM"), ("lldp", "LLDP")]);
        if row.integer("ingress_policing_rate") != 0 || row.integer("ingress_policing_kpkts_rate") != 0 {
            self.warn(format!("{what}: ingress policing is configured, which is not supported"));
        }
        let kind = match row.string("type") {
            _ if name == bridge => "internal",
            "" => "system",
            other => other,
        };
        let number = |column: &str| {
            row.integer_opt(column).and_then(|n| u16::try_from(n).ok()).filter(|n| (1..0xff00).contains(n))
        };
        let mtu_request = row.integer_opt("mtu_request").and_then(|m| u32::try_from(m).ok());
        if kind == "patch" && mtu_request.is_some() {
            self.warn(format!("{what}: mtu_request is ignored, a patch port has no MTU"));
        }
        let affinity = self.checked(&what, row, "pmd-rxq-affinity", "a list of queue:core", parse_affinity);
        InterfaceSpec {
            uuid: row.uuid(),
            kind: kind.to_owned(),
            options: owned(row, "options"),
            ofport_request: number("ofport_request"),
            ofport: number("ofport"),
            mac: self.interface_mac(&what, row, kind, name == bridge),
            mtu_request,
            rxq_affinity: affinity.unwrap_or_default(),
            name,
        }
    }

    fn interface_mac(&self, what: &str, row: &Row<'_>, kind: &str, is_local: bool) -> Option<MacAddr> {
        let text = row.string_opt("mac")?;
        if is_local {
            self.warn(format!("{what}: ignoring mac in Interface record, use other_config:hwaddr of the bridge"));
            return None;
        }
        if kind != "internal" && kind != "dummy-internal" {
            self.warn(format!("{what}: ignoring mac, which is for internal interfaces only"));
            return None;
        }
        let mac = unicast(text);
        if mac.is_none() {
            self.warn(format!("{what}: mac is \"{text}\", which is not an Ethernet address of one device"));
        }
        mac
    }
}

impl PortSpec {
    /// The port of a bridge whose rows have no local port.
    fn local(name: &str) -> Self {
        Self {
            uuid: Uuid::ZERO,
            name: name.to_owned(),
            mode: VlanMode::Trunk,
            tag: 0,
            trunks: Vec::new(),
            priority_tags: PriorityTags::Never,
            protected: false,
            mac: None,
            interfaces: vec![InterfaceSpec {
                uuid: Uuid::ZERO,
                name: name.to_owned(),
                kind: "internal".to_owned(),
                options: BTreeMap::new(),
                ofport_request: None,
                ofport: None,
                mac: None,
                mtu_request: None,
                rxq_affinity: BTreeMap::new(),
            }],
        }
    }
}

/// A datapath id: 16 hex digits, or fewer after `0x`; not zero.
fn datapath_id(text: &str) -> Option<u64> {
    let digits = match text.strip_prefix("0x") {
        Some(digits) => digits,
        None if text.len() == 16 => text,
        None => return None,
    };
    // from_str_radix takes a sign.
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|id| hex && *id != 0)
}

mod control;
mod ipfix;
mod tables;
#[cfg(test)]
mod tests;
