//! The controllers of a bridge, the versions of OpenFlow that it speaks, and who decides on flows without a controller.

use crate::commands;
use crate::control::Controller as Connection;
use crate::devices::Devices;
use crate::feature::{Feature, Report};
use crate::levels::{BridgeLevel, BridgeReport, BridgeRows, BridgeTarget};
use crate::reader::{Config, Reader};
use base::Millis;
use ofproto::conn::rconn::State;
use ofproto::conn::service::DSCP;
use ofproto::{PacketInStats, RateLimit, ServiceStatus, Settings};
use openflow::Version;
use openflow::switch::Role;
use openflow::versions::Versions;
use ovsdb_client::schemas::vswitch::{Controller, bridge, controller};
use ovsdb_client::typed::{AnyColumn, Column, Elements, Enumeration, Ref, Row};
use ovsdb_client::{Transaction, columns};
use std::collections::BTreeMap;
use std::sync::Arc;
use unixctl::Commands;

/// A DSCP has six bits.
const DSCP_MAX: u8 = 63;
/// Packet-ins that a row may have wait.
const QUEUE_SIZES: std::ops::RangeInclusive<i64> = 1..=512;

/// Controllers, protocols and fail mode of a bridge.
#[derive(Debug, Default)]
pub struct Controllers;

/// The settings of OpenFlow connections of a bridge.
#[derive(Clone, PartialEq, Debug)]
pub struct ControllersSpec {
    /// Versions of OpenFlow.
    pub versions: Versions,
    /// Whether there is to be no traffic without a controller.
    pub fail_secure: bool,
    /// Packet-ins that wait for a connection to take them, unless its row says otherwise.
    pub packet_in_queue: usize,
    /// The controllers.
    pub controllers: Vec<ControllerSpec>,
}

impl Default for ControllersSpec {
    fn default() -> Self {
        Self {
            versions: Versions::of(&ofproto::conn::service::SUPPORTED),
            fail_secure: false,
            packet_in_queue: ofproto::conn::remote::PACKET_IN_QUEUE,
            controllers: Vec::new(),
        }
    }
}

/// A Controller row.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSpec {
    /// Row.
    pub row: Ref<Controller>,
    /// Connection method.
    pub target: String,
    /// Whether it is a primary controller, not one for service.
    pub primary: bool,
    /// Whether it is reached through the bridge.
    pub in_band: bool,
    /// The DSCP of its packets.
    pub dscp: u8,
    /// How its connection is kept.
    pub settings: Settings,
}

impl Feature for Controllers {
    type Level = BridgeLevel;
    type Spec = ControllersSpec;
    const NAME: &'static str = "controllers";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME, CONTROLLER, FAIL_MODE, PROTOCOLS, OTHER_CONFIG }
        controller {
            TARGET, TYPE, CONNECTION_MODE, LOCAL_IP, MAX_BACKOFF, INACTIVITY_PROBE, ENABLE_ASYNC_MESSAGES,
            CONTROLLER_RATE_LIMIT, CONTROLLER_BURST_LIMIT, CONTROLLER_QUEUE_SIZE, OTHER_CONFIG,
        }
    };
    const REPORTS: &'static [AnyColumn] = &columns! { controller { IS_CONNECTED, ROLE, STATUS } };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> ControllersSpec {
        let (what, row) = (rows.what(), rows.bridge);
        let packet_in_queue = packet_in_queue(reader, &what, row.get(bridge::OTHER_CONFIG));
        let controllers = row.get(bridge::CONTROLLER).into_iter().filter_map(|row| reader.find(row));
        ControllersSpec {
            versions: versions(reader, &what, row.get(bridge::PROTOCOLS)),
            fail_secure: row.get(bridge::FAIL_MODE) == Some(Ok(bridge::FailMode::Secure)),
            packet_in_queue,
            controllers: controllers.map(|row| controller_spec(reader, &what, row, packet_in_queue)).collect(),
        }
    }

    fn apply(&mut self, spec: &ControllersSpec, target: &mut BridgeTarget<'_>) {
        let running = &mut *target.running;
        running.control.listen(&running.ofproto, spec, target.confinement);
        running.control.configure(&running.ofproto, spec, target.confinement);
        running.control.refresh_in_band(&running.ofproto);
    }

    fn report(&self, of: BridgeReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let now = of.running.dp.switch.clock().now();
        for (row, connection) in &of.running.control.controllers {
            if txn.contains(*row) {
                report_connection(txn, *row, connection, now);
            }
        }
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::bridge::register_reconnect(commands, devices);
    }
}

fn versions(reader: &Reader<'_>, what: &str, protocols: Elements<'_, bridge::Protocols>) -> Versions {
    if protocols.is_empty() {
        return Versions::of(&ofproto::conn::service::SUPPORTED);
    }
    let names: Vec<&str> = protocols.iter().map(Enumeration::name_of).collect();
    let named: Vec<Version> = names.iter().filter_map(|name| Version::from_name(name)).collect();
    if named.len() != names.len() {
        let protocols = names.join(",");
        reader.warn(format!("{what}: of protocols {protocols}, not all are versions of OpenFlow from 1.0 to 1.5"));
    }
    Versions::of(&named)
}

/// Bridge:other_config:controller-queue-size.
fn packet_in_queue(reader: &Reader<'_>, what: &str, config: Config<'_>) -> usize {
    let number = |text: &str| text.parse().ok().filter(|n| QUEUE_SIZES.contains(n)).map(|n: i64| n as usize);
    let queue = reader.checked(what, config, "controller-queue-size", "a number from 1 to 512", number);
    queue.unwrap_or(ofproto::conn::remote::PACKET_IN_QUEUE)
}

/// A controller of the bridge that `what` names, which has `packet_in_queue` packet-ins wait unless the row says
/// otherwise.
fn controller_spec(
    reader: &Reader<'_>,
    what: &str,
    row: Row<'_, Controller>,
    packet_in_queue: usize,
) -> ControllerSpec {
    let target = row.get(controller::TARGET).to_owned();
    let what = format!("{what}: controller {target}");
    let config = row.get(controller::OTHER_CONFIG);
    reader.unsupported(&what, row, controller::LOCAL_IP, "an address of the local port");
    let primary = match row.get(controller::TYPE) {
        Some(kind) => kind == Ok(controller::Type::Primary),
        None => !(target.starts_with("ptcp:") || target.starts_with("pssl:") || target.starts_with("punix:")),
    };
    // The schema has bounds for all of these.
    let number = |column: Column<Controller, Option<i64>>| row.get(column).and_then(|n| u32::try_from(n).ok());
    let defaults = Settings::default();
    let settings = Settings {
        probe_ms: number(controller::INACTIVITY_PROBE).map_or(defaults.probe_ms, u64::from),
        max_backoff_ms: number(controller::MAX_BACKOFF).map_or(defaults.max_backoff_ms, u64::from),
        packet_in_limit: number(controller::CONTROLLER_RATE_LIMIT)
            .filter(|rate| *rate > 0)
            .map(|rate| RateLimit::new(rate, number(controller::CONTROLLER_BURST_LIMIT))),
        packet_in_queue: number(controller::CONTROLLER_QUEUE_SIZE).map_or(packet_in_queue, |n| n as usize),
        asynchronous: row.get(controller::ENABLE_ASYNC_MESSAGES).unwrap_or(defaults.asynchronous),
    };
    let parse = |text: &str| text.parse().ok().filter(|dscp| *dscp <= DSCP_MAX);
    let dscp = reader.checked(&what, config, "dscp", "a number from 0 to 63", parse).unwrap_or(DSCP);
    let in_band = row.get(controller::CONNECTION_MODE) != Some(Ok(controller::ConnectionMode::OutOfBand));
    ControllerSpec { row: row.reference(), target, primary, in_band, dscp, settings }
}

fn report_connection(txn: &mut Transaction<'_>, row: Ref<Controller>, running: &Connection, now: Millis) {
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    let mut set = |key: &str, value: String| map.insert(key.to_owned(), value);
    let (mut connected, mut role) = (false, None);
    match &running.service {
        // A listener has as many states as it has connections; none is reported.
        Ok(service) if service.is_listener() => {}
        Ok(service) => {
            let ServiceStatus { rconn, role: current, packet_ins } = service.status();
            connected = rconn.is_connected();
            role = current.map(|role| match role {
                Role::Primary => controller::Role::Master,
                Role::Secondary => controller::Role::Slave,
                Role::Equal | Role::NoChange => controller::Role::Other,
            });
            set("state", rconn.state().name().to_owned());
            if let Some(at) = rconn.connected_at {
                set("sec_since_connect", (now.since(at) / 1000).to_string());
            }
            if let Some(at) = rconn.disconnected_at {
                set("sec_since_disconnect", (now.since(at) / 1000).max(1).to_string());
            }
            if let Some(error) = rconn.last_error {
                set("last_error", error);
            }
            for (kind, stats) in ["miss", "action"].iter().zip(packet_ins.iter().flatten()) {
                let PacketInStats { bypassed, queued, dropped, backlog } = *stats;
                let counters = [("bypassed", bypassed), ("queued", queued), ("dropped", dropped), ("backlog", backlog)];
                for (name, counter) in counters {
                    set(&format!("packet-in-{kind}-{name}"), counter.to_string());
                }
            }
        }
        Err(error) => {
            set("last_error", error.clone());
            set("state", State::Void.name().to_owned());
        }
    }
    txn.set(row, controller::IS_CONNECTED, connected);
    txn.set(row, controller::ROLE, role);
    txn.set(row, controller::STATUS, map);
}
