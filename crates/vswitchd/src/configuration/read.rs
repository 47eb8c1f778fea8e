//! Reads the stale parts of one bridge from the database: its list of ports, their interfaces, and settings of all.

use crate::bridge::{Bridge, Interface, Port};
use crate::feature::{Counts, Settings};
use crate::interface::InterfaceSpec;
use crate::levels::{BridgeRows, InterfaceRows, PortRows};
use crate::reader::owned;
use crate::references::{Location, References};
use ovsdb::Uuid;
use ovsdb_client::Replica;
use ovsdb_client::schemas::vswitch::{self as db, bridge, interface, port};
use ovsdb_client::typed::{Column, Ref, Row};
use std::collections::BTreeSet;

/// Reads what is stale of a bridge.
pub(super) fn read_bridge(
    bridge: &mut Bridge,
    db: &Replica,
    root: Row<'_, db::OpenVSwitch>,
    (references, counts): (&mut References, &mut Counts),
) {
    // The row of a bridge that is about to end may be gone.
    let Some(row) = db.find(bridge.row) else { return };
    if std::mem::take(&mut bridge.work.is_port_list_stale) {
        read_port_list(bridge, row, references);
    }
    for port in std::mem::take(&mut bridge.work.stale_ports) {
        read_port(bridge, db, port, references);
    }
    read_local_port(bridge, references);
    if std::mem::take(&mut bridge.work.is_stale) {
        let at = Location::Bridge(bridge.name.clone());
        let rows = BridgeRows { root, bridge: row };
        bridge.work.is_pending |= bridge.settings.read(db, Some(rows), &at, (references, counts));
    }
    for port in std::mem::take(&mut bridge.work.stale_port_settings) {
        let Some(of) = bridge.ports.get_mut(&port) else { continue };
        let rows = db.find(of.row).map(|port| PortRows { port });
        let at = Location::Port(bridge.name.clone(), port);
        if of.settings.read(db, rows, &at, (references, counts)) {
            bridge.apply_port_settings(port, counts);
        }
    }
    for name in std::mem::take(&mut bridge.work.stale_interfaces) {
        let port = bridge.port_row(&name).unwrap_or_else(|| Ref::new(Uuid::ZERO));
        let Some(of) = bridge.interfaces.get_mut(&name) else { continue };
        let rows = db.find(of.spec.row).map(|interface| InterfaceRows { bridge: row, port, interface });
        let at = Location::Interface(bridge.name.clone(), name.clone());
        if of.settings.read(db, rows, &at, (references, counts)) {
            bridge.work.interfaces.insert(name);
        }
    }
}

/// Compares the bridge's list of ports with the ports that it has.
fn read_port_list(bridge: &mut Bridge, row: Row<'_, db::Bridge>, references: &mut References) {
    let list: Vec<Uuid> = row.get(bridge::PORTS).into_iter().map(|port| port.uuid()).collect();
    let before = std::mem::replace(&mut bridge.port_list, list);
    let n_made = usize::from(bridge.ports.contains_key(&Uuid::ZERO));
    let before = if before.len() + n_made == bridge.ports.len() {
        // All ports of the list were read. To compare lists takes less time than to compare ports.
        before
    } else {
        bridge.ports.keys().copied().filter(|port| !port.is_zero()).collect()
    };
    let (old, new) = without_common_ends(&before, &bridge.port_list);
    let mut have = old.iter().copied().peekable();
    let mut gone = Vec::new();
    // Both are sorted.
    for &port in new {
        while let Some(before) = have.next_if(|have| *have < port) {
            gone.push(before);
        }
        if have.next_if_eq(&port).is_none() {
            bridge.work.stale_ports.insert(port);
        }
    }
    gone.extend(have);
    gone.into_iter().for_each(|port| bridge.remove_port(port, references));
}

/// Returns both lists without the elements at their beginnings and ends that they have in common.
fn without_common_ends<'a>(a: &'a [Uuid], b: &'a [Uuid]) -> (&'a [Uuid], &'a [Uuid]) {
    let n = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[n..], &b[n..]);
    let n = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    (&a[..a.len() - n], &b[..b.len() - n])
}

fn read_port(bridge: &mut Bridge, db: &Replica, uuid: Uuid, references: &mut References) {
    // A port may have gone to another bridge.
    if bridge.port_list.binary_search(&uuid).is_err() {
        return;
    }
    let Some(row) = db.find(Ref::<db::Port>::new(uuid)) else { return };
    let name = row.get(port::NAME).to_owned();
    let mut rows: Vec<Row<'_, db::Interface>> =
        row.get(port::INTERFACES).into_iter().filter_map(|interface| db.find(interface)).collect();
    rows.sort_by_key(|row| row.get(interface::NAME));
    let names: Vec<String> = rows.iter().map(|row| row.get(interface::NAME).to_owned()).collect();
    add_port(bridge, uuid, (row.reference(), &name), names, references);
    for row in &rows {
        let spec = interface_spec(&bridge.name, *row);
        let interface = row.get(interface::NAME);
        let remembered = row.get(interface::OFPORT).and_then(|n| u16::try_from(n).ok()).filter(|n| is_number(*n));
        add_interface(bridge, interface, InterfaceSpec { ofport: remembered, ..spec }, uuid, references);
    }
    bridge.want_fake_interface(uuid, row.get(port::BOND_FAKE_IFACE) && rows.len() > 1);
}

fn add_port(
    bridge: &mut Bridge,
    uuid: Uuid,
    (row, name): (Ref<db::Port>, &str),
    interfaces: Vec<String>,
    references: &mut References,
) {
    let before = bridge.ports.get_mut(&uuid).map(|port| std::mem::replace(&mut port.interfaces, interfaces.clone()));
    match before {
        Some(before) => {
            for gone in before.iter().filter(|name| !interfaces.contains(name)) {
                bridge.remove_interface(gone, uuid, references);
            }
            if before != interfaces {
                // The first one's address counts for the bridge's.
                bridge.work.interfaces.extend(interfaces);
            }
        }
        None => {
            references.own(uuid, Location::Port(bridge.name.clone(), uuid));
            let port = Port { row, name: name.to_owned(), interfaces, settings: Settings::default() };
            bridge.ports.insert(uuid, port);
            bridge.work.stale_port_settings.insert(uuid);
        }
    }
    bridge.port_names.insert(name.to_owned(), uuid);
    bridge.work.removed_bundles.remove(name);
    bridge.work.bundles.insert(uuid);
}

fn add_interface(bridge: &mut Bridge, name: &str, spec: InterfaceSpec, port: Uuid, references: &mut References) {
    let at = || Location::Interface(bridge.name.clone(), name.to_owned());
    match bridge.interfaces.get_mut(name) {
        Some(interface) if interface.spec.row == spec.row && interface.port == port => {
            if interface.spec != spec {
                bridge.work.interfaces.insert(name.to_owned());
            }
            interface.spec = spec;
        }
        before => {
            if let Some(before) = before {
                references.disown(before.spec.row.uuid(), &at());
                (before.spec, before.port) = (spec, port);
                before.settings.set_stale();
                references.own(before.spec.row.uuid(), at());
            } else {
                references.own(spec.row.uuid(), at());
                bridge.interfaces.insert(name.to_owned(), Interface::new(spec, port));
            }
            bridge.work.interfaces.insert(name.to_owned());
            bridge.work.stale_interfaces.insert(name.to_owned());
        }
    }
}

/// Gives a bridge whose rows have no local port one without a row.
fn read_local_port(bridge: &mut Bridge, references: &mut References) {
    let is_made = bridge.port_names.get(&bridge.name) == Some(&Uuid::ZERO);
    let has_row = bridge.port_names.get(&bridge.name).is_some_and(|row| !row.is_zero());
    let mut warnings = BTreeSet::new();
    if has_row {
        if bridge.ports.contains_key(&Uuid::ZERO) {
            bridge.remove_port(Uuid::ZERO, references);
        }
    } else {
        warnings.insert(format!("bridge {}: no port named {}, synthesizing one", bridge.name, bridge.name));
        if !is_made {
            let name = bridge.name.clone();
            add_port(bridge, Uuid::ZERO, (Ref::none(), &name), vec![name.clone()], references);
            add_interface(bridge, &name, InterfaceSpec::internal_without_row(), Uuid::ZERO, references);
        }
    }
    references.warn(&bridge.warnings, &warnings);
    bridge.warnings = warnings;
}

/// A number that a port can have, other than a reserved one.
fn is_number(number: u16) -> bool {
    (1..0xff00).contains(&number)
}

/// The interface as its row has it, without the number that it had before.
fn interface_spec(bridge: &str, row: Row<'_, db::Interface>) -> InterfaceSpec {
    let kind = match row.get(interface::TYPE) {
        _ if row.get(interface::NAME) == bridge => "internal",
        "" => "system",
        other => other,
    };
    let number = |column: Column<db::Interface, Option<i64>>| {
        row.get(column).and_then(|n| u16::try_from(n).ok()).filter(|n| is_number(*n))
    };
    InterfaceSpec {
        row: row.reference(),
        kind: kind.to_owned(),
        options: owned(row.get(interface::OPTIONS)),
        ofport_request: number(interface::OFPORT_REQUEST),
        ofport: None,
    }
}
