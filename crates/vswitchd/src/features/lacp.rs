//! LACP: Port:lacp and other_config of ports and interfaces, to the settings of the protocol; Interface:lacp_current.

use crate::bridge::Bridge;
use crate::commands;
use crate::devices::Devices;
use crate::feature::{Feature, Report};
use crate::levels::{InterfaceLevel, InterfaceReport, InterfaceRows, PortLevel, PortRows, PortTarget};
use crate::protocol_settings;
use crate::reader::{Config, Reader};
use ::lacp::select::Fallback;
use ::lacp::{BondSettings, Carrier, MemberSettings, Mode, Settings, Timeout};
use base::{BridgePort, MacAddr, PortNo};
use ovsdb_client::schemas::vswitch::{interface, port};
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Transaction, columns};
use protocols::Protocol;
use std::collections::BTreeMap;
use std::sync::Arc;
use unixctl::Commands;

/// LACP of a port.
#[derive(Debug, Default)]
pub struct Lacp;

/// The settings of a port; `None` without LACP.
pub type LacpSpec = Option<PortLacp>;

/// The settings of a port with LACP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortLacp {
    /// The part that it takes in a negotiation.
    pub mode: Mode,
    /// The interval of LACPDUs that is requested from the partner.
    pub timeout: Timeout,
    /// System identifier; the bridge's address if none is configured.
    pub system: Option<MacAddr>,
    /// System priority.
    pub system_priority: Option<u16>,
    /// Conduct without a partner.
    pub fallback: Fallback,
}

impl Feature for Lacp {
    type Level = PortLevel;
    type Spec = LacpSpec;
    const NAME: &'static str = "lacp";
    const COLUMNS: &'static [AnyColumn] = &columns! { port { NAME, LACP, OTHER_CONFIG } };

    fn read(reader: &Reader<'_>, rows: PortRows<'_>) -> LacpSpec {
        let (what, row) = (rows.what(), rows.port);
        let mode = match row.get(port::LACP)? {
            Ok(port::Lacp::Active) => Mode::Active,
            Ok(port::Lacp::Passive) => Mode::Passive,
            Ok(port::Lacp::Off) => return None,
            Err(other) => {
                reader.warn(format!("{what}: unknown LACP mode {other}"));
                return None;
            }
        };
        let config = row.get(port::OTHER_CONFIG);
        let system = match config.get("lacp-system-id").map(system_id) {
            None => None,
            Some(Ok(system)) => Some(system),
            Some(Err(complaint)) => {
                reader.warn(format!("{what}: {complaint}"));
                return None;
            }
        };
        let timeout = |text: &str| match text.to_ascii_lowercase().as_str() {
            "fast" => Some(Timeout::Fast),
            "slow" => Some(Timeout::Slow),
            _ => None,
        };
        let falls_back = reader.flag(&what, config, "lacp-fallback-ab").unwrap_or(false);
        Some(PortLacp {
            mode,
            timeout: reader.checked(&what, config, "lacp-time", "fast or slow", timeout).unwrap_or_default(),
            system,
            system_priority: from_1_to_65535(reader, &what, config, "lacp-system-priority"),
            fallback: if falls_back { Fallback::ActiveBackup } else { Fallback::Off },
        })
    }

    fn apply(&mut self, spec: &LacpSpec, target: &mut PortTarget) {
        target.protocols.set(Protocol::LACP, spec.is_some());
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::lacp::register(commands, devices);
    }
}

/// Parses a system identifier. Open vSwitch ignores what follows an address. The error is its words.
fn system_id(text: &str) -> Result<MacAddr, String> {
    let address = text.get(..17).unwrap_or(text).parse::<MacAddr>();
    match address {
        Err(_) => Err(format!("LACP system ID ({text}) must be an Ethernet address.")),
        Ok(MacAddr::ZERO) => Err("Invalid zero LACP system ID.".to_owned()),
        Ok(system) => Ok(system),
    }
}

fn from_1_to_65535(reader: &Reader<'_>, what: &str, config: Config<'_>, key: &str) -> Option<u16> {
    let number = |text: &str| text.parse().ok().filter(|n| *n != 0);
    reader.checked(what, config, key, "a number from 1 to 65535", number)
}

/// LACP of an interface, as a member of its port.
#[derive(Debug, Default)]
pub struct Member;

/// The settings of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemberSpec {
    /// Port number in LACPDUs; the OpenFlow port if none is configured.
    pub port_id: Option<u16>,
    /// Port priority.
    pub port_priority: Option<u16>,
    /// Aggregation key; the port number in LACPDUs if none is configured.
    pub key: Option<u16>,
}

impl Feature for Member {
    type Level = InterfaceLevel;
    type Spec = MemberSpec;
    const NAME: &'static str = "lacp-member";
    const COLUMNS: &'static [AnyColumn] = &columns! { interface { NAME, OTHER_CONFIG } };
    const REPORTS: &'static [AnyColumn] = &columns! { interface { LACP_CURRENT } };
    const IS_PROTOCOL: bool = true;

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> MemberSpec {
        let (what, config) = (rows.what(), rows.interface.get(interface::OTHER_CONFIG));
        let number = |key| from_1_to_65535(reader, &what, config, key);
        MemberSpec {
            port_id: number("lacp-port-id"),
            port_priority: number("lacp-port-priority"),
            key: number("lacp-aggregation-key"),
        }
    }

    // Whatever has an interface applied also has LACP of its port configured.

    fn report(&self, of: InterfaceReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let bridge = of.bridge.ofproto.id();
        let current =
            of.running.ofport.and_then(|port| of.bridge.dp.switch.has_lacp_partner(BridgePort { bridge, port }));
        txn.set(of.row, interface::LACP_CURRENT, current);
    }
}

/// Configures LACP on all datapaths.
pub fn configure(bridges: &BTreeMap<String, Bridge>, devices: &Devices) {
    for (kind, dp) in devices.datapaths() {
        let of_kind = bridges.values().filter(|bridge| bridge.running.datapath_type == kind);
        let settings = Settings { bonds: of_kind.flat_map(bonds).collect() };
        if !settings.bonds.is_empty() {
            protocol_settings::start(&dp);
        }
        dp.switch.configure_lacp(settings);
    }
}

/// The ports with LACP of a bridge that have an interface which could be opened.
fn bonds(bridge: &Bridge) -> impl Iterator<Item = ((u32, String), BondSettings)> {
    bridge.lacp().filter_map(|(name, spec, interfaces)| {
        let spec = spec.as_ref()?;
        let members: BTreeMap<_, _> = interfaces.iter().filter_map(|interface| member(bridge, interface)).collect();
        let default_priority = if members.len() == 1 { 65535 } else { 65534 };
        let bond = BondSettings {
            mode: spec.mode,
            timeout: spec.timeout,
            system: spec.system.or_else(|| Some(bridge.running.ofproto.port(PortNo::LOCAL)?.spec.mac))?,
            system_priority: spec.system_priority.unwrap_or(default_priority),
            fallback: spec.fallback,
            members,
        };
        (!bond.members.is_empty()).then(|| ((bridge.running.ofproto.id(), name.to_owned()), bond))
    })
}

fn member(bridge: &Bridge, name: &str) -> Option<(BridgePort, MemberSettings)> {
    let at = bridge.bridge_port(name)?;
    let spec = bridge.lacp_member(name)?;
    let port = bridge.running.ofproto.port(at.port)?;
    let carrier = match &port.spec.device {
        Some(device) => {
            let status = device.status();
            Carrier { up: status.carrier, resets: status.link_resets }
        }
        None => Carrier { up: true, resets: 0 },
    };
    let settings = MemberSettings {
        name: name.to_owned(),
        mac: port.spec.mac,
        port_id: spec.port_id.unwrap_or_else(|| at.port.to_of10()),
        port_priority: spec.port_priority.unwrap_or(u16::MAX),
        key: spec.key.unwrap_or(0),
        carrier,
    };
    Some((at, settings))
}
