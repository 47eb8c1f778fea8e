//! What is running, written back to the database.

use crate::bridge::RunningBridge;
use crate::control::Controller;
use crate::desired::Desired;
use crate::devices::Devices;
use crate::interface::RunningInterface;
use base::{Millis, PortNo};
use netdev::Duplex;
use ofproto::conn::rconn::State;
use ofproto::{PacketInStats, ServiceStatus};
use openflow::switch::Role;
use ovsdb::{Datum, Uuid};
use ovsdb_client::Transaction;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Name and version of the operating system, read once.
static SYSTEM: OnceLock<(Option<String>, Option<String>)> = OnceLock::new();

/// Writes everything but statistics. Only what differs from the replica is sent.
pub fn write(
    txn: &mut Transaction<'_>,
    desired: &Desired,
    bridges: &BTreeMap<String, RunningBridge>,
    failed: &BTreeMap<String, String>,
    devices: &Devices,
) {
    if let Some(root) = desired.root {
        let set = |txn: &mut Transaction<'_>, column: &str, value: Datum| txn.set("Open_vSwitch", root, column, value);
        set(txn, "cur_cfg", Datum::scalar(desired.next_cfg));
        set(txn, "ovs_version", Datum::scalar(cli::program::COMPATIBLE_VERSION));
        set(txn, "db_version", Datum::scalar(crate::DB_VERSION));
        set(txn, "dpdk_initialized", Datum::scalar(false));
        set(txn, "datapath_types", Datum::set(devices.datapath_types()));
        set(txn, "iface_types", Datum::set(devices.iface_types()));
        let (system_type, system_version) = SYSTEM.get_or_init(system).clone();
        // What the administrator set stays.
        for (column, value) in [("system_type", system_type), ("system_version", system_version)] {
            if txn.datum("Open_vSwitch", root, column).is_some_and(Datum::is_empty)
                && let Some(value) = value
            {
                set(txn, column, Datum::scalar(value));
            }
        }
    }
    for (name, bridge) in bridges {
        let Some(spec) = desired.bridges.get(name) else { continue };
        if !txn.contains("Bridge", spec.uuid) {
            // Deleted since it was read; its end is to come.
            continue;
        }
        let id = format!("{:016x}", bridge.ofproto.identity().datapath_id);
        txn.set("Bridge", spec.uuid, "datapath_id", Datum::scalar(id));
        txn.set("Bridge", spec.uuid, "datapath_version", Datum::scalar("<built-in>"));
        for interface in bridge.interfaces.values() {
            if txn.contains("Interface", interface.uuid) {
                interface_status(txn, interface, bridge);
            }
        }
        let now = bridge.dp.switch.clock().now();
        for (uuid, controller) in &bridge.control.controllers {
            if txn.contains("Controller", *uuid) {
                controller_status(txn, *uuid, controller, now);
            }
        }
    }
    for (name, error) in failed {
        let Some(spec) = desired.bridges.get(name) else { continue };
        let rows = spec.ports.values().flat_map(|p| &p.interfaces);
        for interface in rows.filter(|i| txn.contains("Interface", i.uuid)).collect::<Vec<_>>() {
            txn.set("Interface", interface.uuid, "ofport", Datum::scalar(-1));
            txn.set("Interface", interface.uuid, "error", Datum::scalar(error.as_str()));
        }
    }
}

fn optional<A: Into<ovsdb::Atom>>(value: Option<A>) -> Datum {
    value.map_or_else(Datum::empty, Datum::scalar)
}

fn interface_status(txn: &mut Transaction<'_>, interface: &RunningInterface, bridge: &RunningBridge) {
    let uuid = interface.uuid;
    let mut set = |column: &str, value: Datum| txn.set("Interface", uuid, column, value);
    let ofport = interface.ofport.map_or(-1, |p| i64::from(p.to_of10()));
    set("ofport", Datum::scalar(ofport));
    set("error", optional(interface.error()));
    let state = |on: bool| Datum::scalar(if on { "up" } else { "down" });
    match interface.device() {
        Some(device) => {
            let status = device.status();
            set("mac_in_use", Datum::scalar(device.mac().to_string()));
            set("mtu", optional(device.mtu().map(i64::from)));
            set("ifindex", optional(status.ifindex.map(i64::from)));
            set("admin_state", state(status.admin_up));
            set("link_state", state(status.carrier));
            set("link_resets", Datum::scalar(status.link_resets as i64));
            set("link_speed", optional(status.speed.map(|s| s as i64)));
            let duplex = status.duplex.map(|d| if d == Duplex::Full { "full" } else { "half" });
            set("duplex", optional(duplex));
            let mut details = status.details;
            if let Some(offload) = interface.offload(&bridge.dp) {
                details.insert("offload".to_owned(), offload);
            }
            set("status", Datum::map(details));
        }
        None => {
            let port = interface.ofport.and_then(|no| bridge.ofproto.port(no));
            set("mac_in_use", optional(port.map(|p| p.spec.mac.to_string())));
            let up = interface.state.is_ok();
            for column in ["mtu", "link_speed", "duplex", "status"] {
                set(column, Datum::empty());
            }
            set("ifindex", if up { Datum::scalar(0) } else { Datum::empty() });
            set("link_resets", if up { Datum::scalar(0) } else { Datum::empty() });
            set("admin_state", if up { state(true) } else { Datum::empty() });
            set("link_state", if up { state(true) } else { Datum::empty() });
            if !up {
                set("statistics", Datum::empty());
            }
        }
    }
}

fn controller_status(txn: &mut Transaction<'_>, uuid: Uuid, controller: &Controller, now: Millis) {
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    let mut set = |key: &str, value: String| map.insert(key.to_owned(), value);
    let (mut connected, mut role) = (false, None);
    match &controller.service {
        // A listener has as many states as it has connections; none is reported.
        Ok(service) if service.is_listener() => {}
        Ok(service) => {
            let ServiceStatus { rconn, role: said, packet_ins } = service.status();
            connected = rconn.is_connected();
            role = said.map(|role| match role {
                Role::Primary => "master",
                Role::Secondary => "slave",
                Role::Equal | Role::NoChange => "other",
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
    txn.set("Controller", uuid, "is_connected", Datum::scalar(connected));
    txn.set("Controller", uuid, "role", optional(role));
    txn.set("Controller", uuid, "status", Datum::map(map));
}

/// Writes counters of interfaces.
pub fn write_statistics(txn: &mut Transaction<'_>, bridges: &BTreeMap<String, RunningBridge>) {
    for bridge in bridges.values() {
        let rows = bridge.interfaces.values().filter(|i| txn.contains("Interface", i.uuid)).collect::<Vec<_>>();
        for interface in rows {
            let counters: BTreeMap<String, i64> = match interface.device() {
                Some(device) => device.stats().columns().into_iter().map(|(k, v)| (k.to_owned(), v as i64)).collect(),
                None => patch_counters(bridge, interface.ofport),
            };
            txn.set("Interface", interface.uuid, "statistics", Datum::map(counters));
        }
    }
}

fn patch_counters(bridge: &RunningBridge, no: Option<PortNo>) -> BTreeMap<String, i64> {
    let Some(port) = no.and_then(|no| bridge.ofproto.port(no)) else { return BTreeMap::new() };
    let p = &port.patch;
    [("rx_packets", &p.rx_packets), ("rx_bytes", &p.rx_bytes), ("tx_packets", &p.tx_packets), ("tx_bytes", &p.tx_bytes)]
        .into_iter()
        .map(|(name, counter)| (name.to_owned(), counter.load(Ordering::Relaxed) as i64))
        .collect()
}

/// Name and version of the operating system (os-release(5)).
fn system() -> (Option<String>, Option<String>) {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches('"').to_owned()).filter(|v| !v.is_empty())
    };
    (value("ID"), value("VERSION_ID"))
}
