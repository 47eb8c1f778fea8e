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
use ovsdb_client::Transaction;
use ovsdb_client::schemas::vswitch::{self as db, bridge, controller, interface, open_vswitch};
use ovsdb_client::typed::Ref;
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
        txn.set(root, open_vswitch::CUR_CFG, desired.next_cfg);
        txn.set(root, open_vswitch::OVS_VERSION, Some(cli::program::COMPATIBLE_VERSION));
        txn.set(root, open_vswitch::DB_VERSION, Some(crate::DB_VERSION));
        txn.set(root, open_vswitch::DPDK_INITIALIZED, false);
        txn.set(root, open_vswitch::DATAPATH_TYPES, devices.types.datapath_types());
        txn.set(root, open_vswitch::IFACE_TYPES, devices.types.iface_types());
        let (system_type, system_version) = SYSTEM.get_or_init(system).clone();
        // What the administrator set stays.
        for (column, value) in
            [(open_vswitch::SYSTEM_TYPE, system_type), (open_vswitch::SYSTEM_VERSION, system_version)]
        {
            if txn.get(root, column).is_none() && value.is_some() {
                txn.set(root, column, value);
            }
        }
    }
    for (name, running) in bridges {
        let Some(spec) = desired.bridges.get(name) else { continue };
        if !txn.contains(spec.row) {
            // Deleted since it was read; its end is to come.
            continue;
        }
        let id = format!("{:016x}", running.ofproto.identity().datapath_id);
        txn.set(spec.row, bridge::DATAPATH_ID, Some(id));
        txn.set(spec.row, bridge::DATAPATH_VERSION, "<built-in>");
        for interface in running.interfaces.values() {
            if txn.contains(interface.row) {
                interface_status(txn, interface, running);
            }
        }
        let now = running.dp.switch.clock().now();
        for (row, controller) in &running.control.controllers {
            if txn.contains(*row) {
                controller_status(txn, *row, controller, now);
            }
        }
    }
    for (name, error) in failed {
        let Some(spec) = desired.bridges.get(name) else { continue };
        let rows = spec.ports.values().flat_map(|p| &p.interfaces);
        for row in rows.map(|i| i.row).filter(|row| txn.contains(*row)).collect::<Vec<_>>() {
            txn.set(row, interface::OFPORT, Some(-1));
            txn.set(row, interface::ERROR, Some(error));
        }
    }
}

fn interface_status(txn: &mut Transaction<'_>, running: &RunningInterface, bridge: &RunningBridge) {
    let row = running.row;
    let ofport = running.ofport.map_or(-1, |p| i64::from(p.to_of10()));
    txn.set(row, interface::OFPORT, Some(ofport));
    txn.set(row, interface::ERROR, running.error());
    let admin = |on: bool| if on { interface::AdminState::Up } else { interface::AdminState::Down };
    let link = |on: bool| if on { interface::LinkState::Up } else { interface::LinkState::Down };
    match running.device() {
        Some(device) => {
            let status = device.status();
            txn.set(row, interface::MAC_IN_USE, Some(device.mac().to_string()));
            txn.set(row, interface::MTU, device.mtu());
            txn.set(row, interface::IFINDEX, status.ifindex);
            txn.set(row, interface::ADMIN_STATE, Some(admin(status.admin_up)));
            txn.set(row, interface::LINK_STATE, Some(link(status.carrier)));
            txn.set(row, interface::LINK_RESETS, Some(status.link_resets as i64));
            txn.set(row, interface::LINK_SPEED, status.speed.map(|s| s as i64));
            let duplex = |d| if d == Duplex::Full { interface::Duplex::Full } else { interface::Duplex::Half };
            txn.set(row, interface::DUPLEX, status.duplex.map(duplex));
            let mut details = status.details;
            if let Some(offload) = running.offload(&bridge.dp) {
                details.insert("offload".to_owned(), offload);
            }
            txn.set(row, interface::STATUS, details);
        }
        None => {
            let port = running.ofport.and_then(|no| bridge.ofproto.port(no));
            txn.set(row, interface::MAC_IN_USE, port.map(|p| p.spec.mac.to_string()));
            let up = running.state.is_ok();
            txn.clear(row, interface::MTU);
            txn.clear(row, interface::LINK_SPEED);
            txn.clear(row, interface::DUPLEX);
            txn.clear(row, interface::STATUS);
            txn.set(row, interface::IFINDEX, up.then_some(0));
            txn.set(row, interface::LINK_RESETS, up.then_some(0));
            txn.set(row, interface::ADMIN_STATE, up.then(|| admin(true)));
            txn.set(row, interface::LINK_STATE, up.then(|| link(true)));
            if !up {
                txn.clear(row, interface::STATISTICS);
            }
        }
    }
}

fn controller_status(txn: &mut Transaction<'_>, row: Ref<db::Controller>, running: &Controller, now: Millis) {
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    let mut set = |key: &str, value: String| map.insert(key.to_owned(), value);
    let (mut connected, mut role) = (false, None);
    match &running.service {
        // A listener has as many states as it has connections; none is reported.
        Ok(service) if service.is_listener() => {}
        Ok(service) => {
            let ServiceStatus { rconn, role: said, packet_ins } = service.status();
            connected = rconn.is_connected();
            role = said.map(|role| match role {
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

/// Writes counters of interfaces.
pub fn write_statistics(txn: &mut Transaction<'_>, bridges: &BTreeMap<String, RunningBridge>) {
    for bridge in bridges.values() {
        let known = bridge.interfaces.values().filter(|i| txn.contains(i.row)).collect::<Vec<_>>();
        for running in known {
            let counters: BTreeMap<String, i64> = match running.device() {
                Some(device) => device.stats().columns().into_iter().map(|(k, v)| (k.to_owned(), v as i64)).collect(),
                None => patch_counters(bridge, running.ofport),
            };
            txn.set(running.row, interface::STATISTICS, counters);
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
