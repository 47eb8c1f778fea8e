//! What the database asks for, as plain values: no devices, no bridges, only rows read and checked.
//!
//! A value that cannot be used is left out with a warning, as Open vSwitch does, so that one bad row does not stop the
//! others. So is one that asks for what is not supported: nothing is ignored without a word. Warnings are collected
//! ([`Desired::warnings`]), so that each is logged when it comes up and not whenever the rows are read.

use crate::lldp::AutoAttachSpec;
use crate::threads::parse_affinity;
use crate::tuning::Tuning;
use base::MacAddr;
pub use control::ControllerSpec;
use flow::Field;
use ofproto::{IpfixSettings, TableSettings};
use openflow::Version;
use openflow::versions::Versions;
use ovsdb_client::Replica;
use ovsdb_client::schemas::vswitch::{
    self as db, Bridge, Interface, OpenVSwitch, Port, autoattach, bridge, interface, open_vswitch, port, ssl,
};
use ovsdb_client::typed::{Column, Elements, Enumeration, Pairs, Ref, Row, Table, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use tls::CaCert;
use xlate::VlanMode;
use xlate::model::PriorityTags;

/// The other_config of a row.
pub type Config<'a> = Pairs<'a, String, String>;

/// All of it.
#[derive(Debug, Default)]
pub struct Desired {
    /// Open_vSwitch row.
    pub root: Option<Ref<OpenVSwitch>>,
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
    pub row: Ref<Bridge>,
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
    /// What ports with LLDP announce, where there is a row for it.
    pub auto_attach: Option<AutoAttachSpec>,
    /// By name.
    pub ports: BTreeMap<String, PortSpec>,
}

/// A Port row.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Row.
    pub row: Ref<Port>,
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
    pub row: Ref<Interface>,
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
    /// Whether LLDP is enabled.
    pub lldp: bool,
    /// Cores that receive queues are asked on, by queue.
    pub rxq_affinity: BTreeMap<usize, usize>,
}

/// Keys of other_config that Open vSwitch knows, that are not supported, and that change what the switch does. Keys
/// that only tune it, or belong to a protocol that is switched on elsewhere, are not here.
const UNSUPPORTED_KEYS: &[(&str, &[&str])] = &[
    (OpenVSwitch::NAME, &["flow-restore-wait", "enable-statistics", "ct-zone-limit"]),
    (Port::NAME, &["bond-primary", "lacp-system-id", "qinq-ethtype"]),
    (Interface::NAME, &["lacp-port-id", "lacp-aggregation-key"]),
];
/// Booleans in other_config that are not supported when true.
const UNSUPPORTED_FLAGS: &[(&str, &[&str])] = &[(OpenVSwitch::NAME, &["dpdk-init", "userspace-tso-enable"])];

impl Desired {
    /// Reads the replica.
    pub fn read(db: &Replica) -> Self {
        let Some(root) = db.all(OpenVSwitch).next() else { return Self::default() };
        let reader = Reader { db, warnings: RefCell::default() };
        let config = root.get(open_vswitch::OTHER_CONFIG);
        reader.keys::<OpenVSwitch>("switch", config);
        let bridges = root
            .get(open_vswitch::BRIDGES)
            .into_iter()
            .filter_map(|row| db.find(row))
            .filter_map(|row| reader.bridge(row))
            .map(|b| (b.name.clone(), b))
            .collect();
        Self {
            root: Some(root.reference()),
            next_cfg: root.get(open_vswitch::NEXT_CFG),
            other_config: owned(config),
            tuning: Tuning::read(config, &|warning| reader.warn(warning)),
            bridges,
            managers: reader.managers(root.get(open_vswitch::MANAGER_OPTIONS)),
            tls: root.get(open_vswitch::SSL).and_then(|row| db.find(row)).map(tls_config),
            warnings: reader.warnings.into_inner(),
        }
    }
}

/// A row of the table SSL. The CA's name `none` has everybody trusted, as on the command line.
fn tls_config(row: Row<'_, db::Ssl>) -> tls::Config {
    let file =
        |column: Column<db::Ssl, String>| Some(row.get(column)).filter(|name| !name.is_empty()).map(PathBuf::from);
    let ca_cert = file(ssl::CA_CERT).map(|path| match row.get(ssl::BOOTSTRAP_CA_CERT) {
        _ if path.as_os_str() == "none" => CaCert::None,
        true => CaCert::Bootstrap(path),
        false => CaCert::File(path),
    });
    tls::Config {
        private_key: file(ssl::PRIVATE_KEY),
        certificate: file(ssl::CERTIFICATE),
        ca_cert,
        ..tls::Config::default()
    }
}

/// A row of the table AutoAttach.
fn auto_attach(row: Row<'_, db::AutoAttach>) -> AutoAttachSpec {
    let mapping = |(isid, vlan): (i64, i64)| Some((u32::try_from(isid).ok()?, u16::try_from(vlan).ok()?));
    AutoAttachSpec {
        system_name: row.get(autoattach::SYSTEM_NAME).to_owned(),
        system_description: row.get(autoattach::SYSTEM_DESCRIPTION).to_owned(),
        mappings: Arc::new(row.get(autoattach::MAPPINGS).into_iter().filter_map(mapping).collect()),
    }
}

fn owned(pairs: Config<'_>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
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
    fn keys<T: Table>(&self, what: &str, config: Config<'_>) {
        let of = |list: &'static [(&str, &[&str])]| list.iter().filter(|(t, _)| *t == T::NAME).flat_map(|(_, k)| *k);
        for key in of(UNSUPPORTED_KEYS) {
            if config.get(*key).is_some() {
                self.warn(format!("{what}: other_config:{key} is set, which is not supported"));
            }
        }
        for key in of(UNSUPPORTED_FLAGS) {
            if config.get(*key) == Some("true") {
                self.warn(format!("{what}: other_config:{key} is set, which is not supported"));
            }
        }
    }

    /// Warns if a column has a value, which is not supported; `configures` says what it would.
    fn unsupported<T: Table, V: Value>(&self, what: &str, row: Row<'_, T>, column: Column<T, V>, configures: &str) {
        if !row.untyped().is_empty(column.name()) {
            self.warn(format!("{what}: {configures} is configured, which is not supported"));
        }
    }

    fn bridge(&self, row: Row<'_, Bridge>) -> Option<BridgeSpec> {
        let name = row.get(bridge::NAME).to_owned();
        if name.contains('/') || name.is_empty() {
            self.warn(format!("ignoring bridge with invalid name \"{name}\""));
            return None;
        }
        let what = format!("bridge {name}");
        let config = row.get(bridge::OTHER_CONFIG);
        self.keys::<Bridge>(&what, config);
        self.unsupported(&what, row, bridge::MIRRORS, "mirroring");
        self.unsupported(&what, row, bridge::NETFLOW, "NetFlow");
        self.unsupported(&what, row, bridge::SFLOW, "sFlow");
        self.unsupported(&what, row, bridge::FLOOD_VLANS, "flood_vlans");
        for column in [bridge::STP_ENABLE, bridge::RSTP_ENABLE, bridge::MCAST_SNOOPING_ENABLE] {
            if row.get(column) {
                self.warn(format!("{what}: {} is set, which is not supported", column.name()));
            }
        }
        let mut ports: BTreeMap<String, PortSpec> = row
            .get(bridge::PORTS)
            .into_iter()
            .filter_map(|port| self.db.find(port))
            .map(|port| self.port(&name, port))
            .map(|p| (p.name.clone(), p))
            .collect();
        if !ports.contains_key(&name) {
            self.warn(format!("{what}: no port named {name}, synthesizing one"));
            ports.insert(name.clone(), PortSpec::local(&name));
        }
        let datapath_type = match row.get(bridge::DATAPATH_TYPE) {
            "" => "system",
            other => other,
        };
        let text = |key: &str, len_max: usize| {
            let text = config.get(key)?;
            if text.len() > len_max {
                self.warn(format!("{what}: {key} is longer than {len_max} bytes and will be cut"));
            }
            Some(text.to_owned())
        };
        let packet_in_queue = self.packet_in_queue(&what, config);
        let (tables, prefixes) = self.flow_tables(&what, row);
        Some(BridgeSpec {
            row: row.reference(),
            datapath_type: datapath_type.to_owned(),
            fail_secure: row.get(bridge::FAIL_MODE) == Some(Ok(bridge::FailMode::Secure)),
            versions: self.versions(&what, row.get(bridge::PROTOCOLS)),
            hwaddr: self.checked(&what, config, "hwaddr", "an Ethernet address of one device", unicast),
            datapath_id: self.checked(&what, config, "datapath-id", "0x and hex digits, or 16 of them", datapath_id),
            dp_desc: text("dp-desc", 255),
            dp_sn: text("dp-sn", 31),
            forward_bpdu: self
                .checked(&what, config, "forward-bpdu", "true or false", |v| v.parse().ok())
                .unwrap_or(false),
            mac_aging_secs: self.number(&what, config, "mac-aging-time").unwrap_or(xlate::mac::AGING_SECS),
            mac_table_size: self.number(&what, config, "mac-table-size").unwrap_or(xlate::mac::TABLE_SIZE as u32),
            tables,
            prefixes,
            controllers: row
                .get(bridge::CONTROLLER)
                .into_iter()
                .filter_map(|row| self.db.find(row))
                .map(|row| self.controller(&name, row, packet_in_queue))
                .collect(),
            in_band: config.get("disable-in-band") != Some("true"),
            in_band_queue: self.in_band_queue(&what, config),
            packet_in_queue,
            ipfix: self.ipfix(&what, row),
            auto_attach: row.get(bridge::AUTO_ATTACH).and_then(|row| self.db.find(row)).map(auto_attach),
            ports,
            name,
        })
    }

    /// A value of other_config, unless it is wrong.
    fn checked<T>(
        &self,
        what: &str,
        config: Config<'_>,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = config.get(key)?;
        let value = parse(text);
        if value.is_none() {
            self.warn(format!("{what}: other_config:{key} is \"{text}\", which is not {expected}"));
        }
        value
    }

    fn number(&self, what: &str, config: Config<'_>, key: &str) -> Option<u32> {
        self.checked(what, config, key, "a number from 1", |v| v.parse().ok().filter(|n| *n > 0))
    }

    fn versions(&self, what: &str, protocols: Elements<'_, bridge::Protocols>) -> Versions {
        if protocols.is_empty() {
            return Versions::of(&ofproto::conn::service::SUPPORTED);
        }
        let names: Vec<&str> = protocols.iter().map(Enumeration::name_of).collect();
        let named: Vec<Version> = names.iter().filter_map(|name| Version::from_name(name)).collect();
        if named.len() != names.len() {
            let protocols = names.join(",");
            self.warn(format!("{what}: of protocols {protocols}, not all are versions of OpenFlow from 1.0 to 1.5"));
        }
        Versions::of(&named)
    }

    fn port(&self, bridge: &str, row: Row<'_, Port>) -> PortSpec {
        let name = row.get(port::NAME).to_owned();
        let what = format!("port {name}");
        let config = row.get(port::OTHER_CONFIG);
        self.keys::<Port>(&what, config);
        self.unsupported(&what, row, port::QOS, "QoS");
        if row.get(port::LACP).is_some_and(|lacp| lacp != Ok(port::Lacp::Off)) {
            self.warn(format!("{what}: LACP is configured, which is not supported"));
        }
        let tag = row.get(port::TAG).filter(|t| (0..4096).contains(t)).map(|t| t as u16);
        let trunks: Vec<u16> = row.get(port::TRUNKS).into_iter().filter_map(|v| u16::try_from(v).ok()).collect();
        let mode = match row.get(port::VLAN_MODE) {
            Some(Ok(port::VlanMode::Access)) => VlanMode::Access,
            Some(Ok(port::VlanMode::Trunk)) => VlanMode::Trunk,
            Some(Ok(port::VlanMode::NativeTagged)) => VlanMode::NativeTagged,
            Some(Ok(port::VlanMode::NativeUntagged)) => VlanMode::NativeUntagged,
            Some(other) => {
                let other = Enumeration::name_of(other);
                self.warn(format!("{what}: vlan_mode {other} is not supported, falling back to trunk mode"));
                VlanMode::Trunk
            }
            None if tag.is_some() => VlanMode::Access,
            None => VlanMode::Trunk,
        };
        let priority_tags = self.checked(&what, config, "priority-tags", "always, if-nonzero or never", |v| match v {
            "always" => Some(PriorityTags::Always),
            "if-nonzero" | "true" => Some(PriorityTags::IfNonzero),
            "never" | "false" => Some(PriorityTags::Never),
            _ => None,
        });
        let mut interfaces: Vec<InterfaceSpec> = row
            .get(port::INTERFACES)
            .into_iter()
            .filter_map(|interface| self.db.find(interface))
            .map(|interface| self.interface(bridge, interface))
            .collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        PortSpec {
            row: row.reference(),
            mode,
            tag: tag.unwrap_or(0),
            trunks,
            priority_tags: priority_tags.unwrap_or(PriorityTags::Never),
            protected: row.get(port::PROTECTED),
            mac: row.get(port::MAC).and_then(unicast),
            interfaces,
            name,
        }
    }

    /// Whether LLDP is enabled on an interface of this type.
    fn lldp(&self, what: &str, row: Row<'_, Interface>, kind: &str) -> bool {
        let config = row.get(interface::LLDP);
        for (key, _) in config.into_iter().filter(|(key, _)| *key != "enable") {
            self.warn(format!("{what}: lldp:{key} is not supported"));
        }
        let enabled = match config.get("enable") {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                self.warn(format!("{what}: lldp:enable is \"{other}\", which is not true or false"));
                false
            }
        };
        if enabled && kind == "patch" {
            self.warn(format!("{what}: lldp:enable is ignored, a patch port has no LLDP"));
        }
        enabled && kind != "patch"
    }

    fn interface(&self, bridge: &str, row: Row<'_, Interface>) -> InterfaceSpec {
        let name = row.get(interface::NAME).to_owned();
        let what = format!("interface {name}");
        let config = row.get(interface::OTHER_CONFIG);
        self.keys::<Interface>(&what, config);
        self.unsupported(&what, row, interface::BFD, "BFD");
        self.unsupported(&what, row, interface::CFM_MPID, "CFM");
        if [interface::INGRESS_POLICING_RATE, interface::INGRESS_POLICING_KPKTS_RATE].iter().any(|c| row.get(*c) != 0) {
            self.warn(format!("{what}: ingress policing is configured, which is not supported"));
        }
        let kind = match row.get(interface::TYPE) {
            _ if name == bridge => "internal",
            "" => "system",
            other => other,
        };
        let number = |column: Column<Interface, Option<i64>>| {
            row.get(column).and_then(|n| u16::try_from(n).ok()).filter(|n| (1..0xff00).contains(n))
        };
        let mtu_request = row.get(interface::MTU_REQUEST).and_then(|m| u32::try_from(m).ok());
        if kind == "patch" && mtu_request.is_some() {
            self.warn(format!("{what}: mtu_request is ignored, a patch port has no MTU"));
        }
        let affinity = self.checked(&what, config, "pmd-rxq-affinity", "a list of queue:core", parse_affinity);
        InterfaceSpec {
            row: row.reference(),
            kind: kind.to_owned(),
            options: owned(row.get(interface::OPTIONS)),
            ofport_request: number(interface::OFPORT_REQUEST),
            ofport: number(interface::OFPORT),
            mac: self.interface_mac(&what, row, kind, name == bridge),
            mtu_request,
            lldp: self.lldp(&what, row, kind),
            rxq_affinity: affinity.unwrap_or_default(),
            name,
        }
    }

    fn interface_mac(&self, what: &str, row: Row<'_, Interface>, kind: &str, is_local: bool) -> Option<MacAddr> {
        let text = row.get(interface::MAC)?;
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
            row: Ref::none(),
            name: name.to_owned(),
            mode: VlanMode::Trunk,
            tag: 0,
            trunks: Vec::new(),
            priority_tags: PriorityTags::Never,
            protected: false,
            mac: None,
            interfaces: vec![InterfaceSpec {
                row: Ref::none(),
                name: name.to_owned(),
                kind: "internal".to_owned(),
                options: BTreeMap::new(),
                ofport_request: None,
                ofport: None,
                mac: None,
                mtu_request: None,
                lldp: false,
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
