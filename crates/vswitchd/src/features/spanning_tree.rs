//! STP and RSTP: columns of bridges and ports, to the settings of the protocols, and their state to status columns.
//!
//! A port takes part if it has one interface, which is neither internal nor the output of a mirror, and its other_config
//! does not exclude it. As in Open vSwitch 4.0.0, numbers of STP ports are configured for all ports or for none, a second
//! port with the same number is left out, and priorities and path costs of STP are cut to their width.

use crate::bridge::{Bridge, Port};
use crate::commands;
use crate::devices::Devices;
use crate::feature::{Feature, Report};
use crate::levels::{BridgeLevel, BridgeReport, BridgeRows, BridgeTarget, PortLevel, PortReport, PortRows, PortTarget};
use crate::protocol_settings;
use crate::reader::{Config, Reader};
use base::{BridgePort, MacAddr, PortNo};
use netdev::Duplex;
use ovsdb::Uuid;
use ovsdb_client::schemas::vswitch::{bridge, mirror, port};
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Transaction, columns};
use protocols::Protocol;
use spanning_tree::settings::{DEFAULT_MBPS, RSTP_COST_MAX, Version, rstp_path_cost, stp_path_cost};
use spanning_tree::status::{Column, Counters, Protocol as Flavour};
use spanning_tree::{BridgeSettings, PortSettings, RstpSettings, Settings, StpSettings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use unixctl::Commands;

/// The protocol of a bridge.
#[derive(Debug, Default)]
pub struct SpanningTree;

/// Part of a port in it.
#[derive(Debug, Default)]
pub struct SpanningTreePort;

/// The protocol of a bridge, with its parameters; an address that is not configured is that of the bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpanningTreeSpec {
    /// The protocol, if one is enabled.
    pub flavour: Option<spanning_tree::Flavour>,
    /// The configured address, or the key whose value is none.
    pub address: Option<Result<MacAddr, String>>,
    /// Output ports of mirrors, by row.
    pub mirror_outputs: BTreeSet<Uuid>,
}

/// Part of a port in the protocols.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpanningTreePortSpec {
    /// Settings of STP.
    pub stp: PortSpec,
    /// Settings of RSTP.
    pub rstp: PortSpec,
    /// `rstp-admin-p2p-mac`.
    pub link: LinkType,
    /// `rstp-port-admin-edge`.
    pub admin_edge: bool,
    /// The opposite of `rstp-port-auto-edge`.
    pub is_without_auto_edge: bool,
    /// `rstp-port-mcheck`.
    pub mcheck: bool,
}

/// The settings that both protocols have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortSpec {
    /// Whether the port takes no part.
    pub is_excluded: bool,
    /// The number, which may be out of range.
    pub number: Option<i64>,
    /// The priority.
    pub priority: Option<u8>,
    /// The path cost; `None` for the one that follows from the link's speed.
    pub path_cost: Option<u32>,
}

/// Whether the link of a port connects two bridges at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkType {
    /// It does.
    #[default]
    PointToPoint,
    /// It may connect more.
    Shared,
    /// It does if it is full duplex.
    Automatic,
}

/// A whole number of other_config.
fn integer(reader: &Reader<'_>, what: &str, config: Config<'_>, key: &str) -> Option<i64> {
    reader.checked(what, config, key, "a whole number", |text| text.parse().ok())
}

impl Feature for SpanningTree {
    type Level = BridgeLevel;
    type Spec = SpanningTreeSpec;
    const NAME: &'static str = "spanning-tree";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME, STP_ENABLE, RSTP_ENABLE, OTHER_CONFIG, MIRRORS }
        mirror { OUTPUT_PORT }
    };
    const REPORTS: &'static [AnyColumn] = &columns! { bridge { STATUS, RSTP_STATUS } };
    const IS_PROTOCOL: bool = true;

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> SpanningTreeSpec {
        let row = rows.bridge;
        let (has_stp, has_rstp) = (row.get(bridge::STP_ENABLE), row.get(bridge::RSTP_ENABLE));
        if !has_stp && !has_rstp {
            return SpanningTreeSpec::default();
        }
        let name = row.get(bridge::NAME);
        if has_stp && has_rstp {
            let text = "RSTP and STP are mutually exclusive but both are configured; enabling RSTP";
            reader.warn(format!("{name}: {text}"));
        }
        let (what, config) = (rows.what(), row.get(bridge::OTHER_CONFIG));
        let (flavour, key) = if has_rstp {
            (spanning_tree::Flavour::Rstp(rstp(reader, &what, config)), "rstp-address")
        } else {
            (spanning_tree::Flavour::Stp(stp(reader, &what, config)), "stp-system-id")
        };
        let output = |mirror| Some(reader.find(mirror)?.get(mirror::OUTPUT_PORT)?.uuid());
        SpanningTreeSpec {
            flavour: Some(flavour),
            address: config.get(key).map(|text| text.parse().map_err(|_| key.to_owned())),
            mirror_outputs: row.get(bridge::MIRRORS).into_iter().filter_map(output).collect(),
        }
    }

    fn apply(&mut self, spec: &SpanningTreeSpec, target: &mut BridgeTarget<'_>) {
        if let Some(Err(key)) = &spec.address {
            let (name, mac) = (target.running.ofproto.name(), target.mac);
            tracing::error!(target: "bridge", "bridge {name}: invalid {key}, defaulting to {mac}");
        }
        target.protocols.set(Protocol::STP, spec.flavour.is_some());
    }

    fn report(&self, of: BridgeReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let status = of.running.dp.switch.spanning_tree_of(of.running.ofproto.id());
        let (stp, rstp) = match status {
            None => (Column::new(), Column::new()),
            Some(status) if status.protocol == Flavour::Stp => (status.stp_column(), Column::new()),
            Some(status) => (Column::new(), status.rstp_column()),
        };
        txn.set(of.row, bridge::STATUS, map(stp));
        txn.set(of.row, bridge::RSTP_STATUS, map(rstp));
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::spanning_tree::register(commands, devices);
    }
}

fn map(column: Column) -> BTreeMap<String, String> {
    column.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn counters(counters: Counters) -> BTreeMap<String, i64> {
    counters.into_iter().map(|(key, value)| (key.to_owned(), i64::try_from(value).unwrap_or(i64::MAX))).collect()
}

/// The parameters of STP, with an address that [`configure`] fills in.
fn stp(reader: &Reader<'_>, what: &str, config: Config<'_>) -> StpSettings {
    let number = |key| integer(reader, what, config, key);
    let seconds = |key, default| number(key).map_or(default, |value| u64::try_from(value).unwrap_or(0));
    let default = StpSettings::new(MacAddr::default());
    StpSettings {
        priority: number("stp-priority").map_or(default.priority, |value| value as u16),
        hello_time_s: seconds("stp-hello-time", default.hello_time_s),
        max_age_s: seconds("stp-max-age", default.max_age_s),
        forward_delay_s: seconds("stp-forward-delay", default.forward_delay_s),
        ..default
    }
}

/// The parameters of RSTP, with an address that [`configure`] fills in.
fn rstp(reader: &Reader<'_>, what: &str, config: Config<'_>) -> RstpSettings {
    let number = |key| integer(reader, what, config, key);
    let seconds = |key, default| number(key).map_or(default, |value| u64::try_from(value).unwrap_or(0));
    let default = RstpSettings::new(MacAddr::default());
    let version = match number("rstp-force-protocol-version") {
        Some(0) => Version::StpCompatible,
        None | Some(2) => Version::Rapid,
        Some(other) => {
            reader.warn(format!("{what}: other_config:rstp-force-protocol-version is {other}, which is not 0 or 2"));
            Version::Rapid
        }
    };
    RstpSettings {
        priority: number("rstp-priority").map_or(default.priority, |value| value as u16),
        max_age_s: seconds("rstp-max-age", default.max_age_s),
        forward_delay_s: seconds("rstp-forward-delay", default.forward_delay_s),
        transmit_hold_count: seconds("rstp-transmit-hold-count", default.transmit_hold_count),
        version,
        ..default
    }
}

impl Feature for SpanningTreePort {
    type Level = PortLevel;
    type Spec = SpanningTreePortSpec;
    const NAME: &'static str = "spanning-tree-port";
    const COLUMNS: &'static [AnyColumn] = &columns! { port { NAME, OTHER_CONFIG } };
    const REPORTS: &'static [AnyColumn] = &columns! { port { STATUS, STATISTICS, RSTP_STATUS, RSTP_STATISTICS } };
    const IS_PROTOCOL: bool = true;

    fn read(reader: &Reader<'_>, rows: PortRows<'_>) -> SpanningTreePortSpec {
        let (what, config) = (rows.what(), rows.port.get(port::OTHER_CONFIG));
        let flag = |key| reader.flag(&what, config, key);
        let number = |key| integer(reader, &what, config, key);
        let rstp_cost = number("rstp-path-cost").filter(|cost| {
            let is_valid = (0..=i64::from(RSTP_COST_MAX)).contains(cost);
            if !is_valid {
                reader
                    .warn(format!("{what}: other_config:rstp-path-cost is {cost}, which is not up to {RSTP_COST_MAX}"));
            }
            is_valid
        });
        let link = match number("rstp-admin-p2p-mac") {
            None | Some(1) => LinkType::PointToPoint,
            Some(0) => LinkType::Shared,
            Some(2) => LinkType::Automatic,
            Some(other) => {
                reader.warn(format!("{what}: other_config:rstp-admin-p2p-mac is {other}, which is not 0, 1 or 2"));
                LinkType::PointToPoint
            }
        };
        SpanningTreePortSpec {
            stp: PortSpec {
                is_excluded: flag("stp-enable") == Some(false),
                // A text that is no number is no valid number, either.
                number: config.get("stp-port-num").map(|text| text.parse().unwrap_or(0)),
                priority: number("stp-port-priority").map(|value| value as u8),
                path_cost: number("stp-path-cost").map(|value| u32::from(value as u16)),
            },
            rstp: PortSpec {
                is_excluded: flag("rstp-enable") == Some(false) || flag("rstp-admin-port-state") == Some(false),
                number: config.get("rstp-port-num").map(|text| text.parse().unwrap_or(0)),
                priority: number("rstp-port-priority").map(|value| value as u8),
                path_cost: rstp_cost.filter(|cost| *cost != 0).map(|cost| cost as u32),
            },
            link,
            admin_edge: flag("rstp-port-admin-edge").unwrap_or(false),
            is_without_auto_edge: flag("rstp-port-auto-edge") == Some(false),
            mcheck: flag("rstp-port-mcheck").unwrap_or(false),
        }
    }

    fn apply(&mut self, _: &SpanningTreePortSpec, target: &mut PortTarget) {
        // Whether a protocol runs is a matter of the bridge: the mark has the settings collected again.
        target.protocols.set(Protocol::STP, false);
    }

    fn report(&self, of: PortReport<'_>, what: Report, txn: &mut Transaction<'_>) {
        let number = of.interfaces.first().and_then(|name| of.bridge.interfaces.get(name)?.ofport);
        let status = number.and_then(|port| {
            of.bridge.dp.switch.spanning_tree_port(BridgePort { bridge: of.bridge.ofproto.id(), port })
        });
        let now = of.bridge.dp.switch.clock().now();
        let (stp, rstp) = match &status {
            Some((Flavour::Stp, status)) => (Some(status), None),
            Some((Flavour::Rstp, status)) => (None, Some(status)),
            None => (None, None),
        };
        txn.set(of.row, port::RSTP_STATUS, map(rstp.map(|port| port.rstp_column()).unwrap_or_default()));
        // The time in a state is part of the status: the passage of time alone is not written.
        if what != Report::Statistics {
            txn.set(of.row, port::STATUS, map(stp.map(|port| port.stp_column(now)).unwrap_or_default()));
        }
        txn.set(of.row, port::STATISTICS, counters(stp.map(|port| port.stp_counters()).unwrap_or_default()));
        txn.set(of.row, port::RSTP_STATISTICS, counters(rstp.map(|port| port.rstp_counters(now)).unwrap_or_default()));
    }
}

/// Configures spanning tree protocols on all datapaths.
pub(crate) fn configure(bridges: &BTreeMap<String, Bridge>, devices: &Devices) {
    for (kind, dp) in devices.datapaths() {
        let of_datapath = bridges.values().filter(|bridge| bridge.running.datapath_type == kind);
        let settings = |bridge: &Bridge| Some((bridge.running.ofproto.id(), bridge_settings(bridge)?));
        let settings = Settings { bridges: of_datapath.filter_map(settings).collect() };
        if !settings.bridges.is_empty() {
            protocol_settings::start(&dp);
        }
        dp.switch.configure_spanning_tree(settings);
    }
}

/// The settings of a bridge; `None` if it runs no protocol.
fn bridge_settings(bridge: &Bridge) -> Option<BridgeSettings> {
    let spec = bridge.settings.spec::<SpanningTree>();
    let ofproto = &bridge.running.ofproto;
    let own_address = || ofproto.port(PortNo::LOCAL).map_or_else(MacAddr::default, |port| port.spec.mac);
    let address = match &spec.address {
        Some(Ok(address)) => *address,
        _ => own_address(),
    };
    let mut flavour = spec.flavour?;
    match &mut flavour {
        spanning_tree::Flavour::Stp(parameters) => parameters.address = address,
        spanning_tree::Flavour::Rstp(parameters) => parameters.address = address,
    }
    let mut ports = BTreeMap::new();
    let mut named: Vec<(&Uuid, &Port)> = bridge.ports.iter().collect();
    named.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let is_stp = matches!(flavour, spanning_tree::Flavour::Stp(_));
    let taking_part = named.into_iter().filter(|(row, _)| !spec.mirror_outputs.contains(row));
    let settings: Vec<_> = taking_part.filter_map(|(_, port)| port_settings(bridge, port, is_stp)).collect();
    if is_stp && settings.iter().any(|(.., number)| number.is_some()) && settings.iter().any(|(.., n)| n.is_none()) {
        tracing::error!(
            target: "bridge",
            "bridge {}: must manually configure all STP port IDs or none, disabling",
            bridge.name
        );
        return None;
    }
    let mut taken = BTreeSet::new();
    for (number, mut port, wanted) in settings {
        match wanted {
            Some(wanted) if !is_valid_number(is_stp, wanted) => {
                let key = if is_stp { "stp-port-num" } else { "rstp-port-num" };
                tracing::error!(target: "bridge", "port {}: invalid {key}", port.name);
                continue;
            }
            Some(wanted) if is_stp && !taken.insert(wanted) => {
                tracing::error!(target: "bridge", "port {}: duplicate stp-port-num {wanted}, disabling", port.name);
                continue;
            }
            wanted => port.number = wanted.map(|number| number as u16),
        }
        ports.insert(number, port);
    }
    let numbers = bridge.running.interfaces.values().filter_map(|interface| interface.published);
    let bystanders = numbers.filter(|number| !ports.contains_key(number)).collect();
    Some(BridgeSettings { name: bridge.name.clone(), flavour, ports, bystanders })
}

fn is_valid_number(is_stp: bool, number: i64) -> bool {
    let max = if is_stp { spanning_tree::stp::PORT_NUMBER_MAX } else { spanning_tree::rstp::PORT_NUMBER_MAX };
    (1..=i64::from(max)).contains(&number)
}

/// The settings of a port that takes part, with the number that is configured for it.
fn port_settings(bridge: &Bridge, port: &Port, is_stp: bool) -> Option<(PortNo, PortSettings, Option<i64>)> {
    let spec = port.settings.spec::<SpanningTreePort>();
    let own = if is_stp { &spec.stp } else { &spec.rstp };
    let [interface] = port.interfaces.as_slice() else { return None };
    let running = bridge.running.interfaces.get(interface)?;
    let is_internal = running.device().is_some_and(|device| crate::interface::is_internal(&**device));
    if own.is_excluded || is_internal {
        return None;
    }
    let number = running.published.filter(|number| *number != PortNo::LOCAL)?;
    let of_port = bridge.running.ofproto.port(number)?;
    let status = running.device().map(|device| device.status());
    let speed = status.as_ref().and_then(|status| status.speed).map(|bps| bps / 1_000_000).filter(|mbps| *mbps > 0);
    let mbps = speed.unwrap_or(DEFAULT_MBPS);
    let automatic = if is_stp { stp_path_cost(mbps) } else { rstp_path_cost(mbps) };
    let is_half_duplex = status.as_ref().is_some_and(|status| status.duplex == Some(Duplex::Half));
    let default = PortSettings::new(&port.name, of_port.spec.mac, own.path_cost.unwrap_or(automatic));
    let settings = PortSettings {
        priority: own.priority.unwrap_or(default.priority),
        is_up: status.as_ref().is_none_or(|status| status.carrier && status.admin_up),
        point_to_point: match spec.link {
            LinkType::PointToPoint => true,
            LinkType::Shared => false,
            LinkType::Automatic => !is_half_duplex,
        },
        admin_edge: spec.admin_edge,
        auto_edge: !spec.is_without_auto_edge,
        mcheck: spec.mcheck,
        ..default
    };
    Some((number, settings, own.number))
}
