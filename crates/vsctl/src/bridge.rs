//! The bridge commands: add-br, del-br, list-br, br-exists, br-to-vlan, br-to-parent, external ids.

use std::collections::BTreeSet;

use ovsdb_client::schemas::vswitch::{self as db, bridge, interface, open_vswitch, port};
use ovsdb_client::typed::{Column, Map, Pairs, Ref, Table};
use ovsdb_client::{Transaction, columns};

use crate::command::Command;
use crate::context::{Context, Failure, Output, quoted};
use crate::model::{Bridge, Fake};
use crate::needs::Needs;

type Done = Result<(), Failure>;

/// What the bridges and ports are read from.
pub(crate) fn needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns(&columns! {
        open_vswitch { BRIDGES }
        bridge { NAME, CONTROLLER, FAIL_MODE, PORTS }
        port { NAME, FAKE_BRIDGE, TAG, INTERFACES, BOND_FAKE_IFACE }
        interface { NAME, TYPE, OFPORT, ERROR }
    });
    needs.rows(db::Controller);
    Ok(())
}

pub(crate) fn external_id_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    self::needs(needs, command)?;
    needs.columns(&columns! { bridge { EXTERNAL_IDS } port { EXTERNAL_IDS } });
    Ok(())
}

pub(crate) fn add_br(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let name = command.arg(0);
    if name.is_empty() {
        return Err(Failure::fatal("bridge name must not be empty string"));
    }
    match (command.arg_opt(1), command.arg_opt(2)) {
        (None, _) => add_real_bridge(context, command, name),
        (Some(_), None) => Err(Failure::fatal("'add-br' command takes exactly 1 or 3 arguments")),
        (Some(parent), Some(vlan)) => {
            let vlan = vlan.parse::<i64>().ok().filter(|vlan| (0..=4095).contains(vlan));
            let vlan = vlan.ok_or_else(|| Failure::fatal("add-br: vlan must be between 0 and 4095"))?;
            add_fake_bridge(context, command, name, parent, vlan)
        }
    }
}

fn add_real_bridge(context: &mut Context<'_>, command: &Command, name: &str) -> Done {
    let root = context.root();
    let (txn, model) = context.txn_and_model();
    if command.has("--may-exist")
        && let Some(bridge) = model.bridges.get(name)
    {
        return match &bridge.fake {
            None => Ok(()),
            Some(Fake { vlan, .. }) => Err(Failure::fatal(format!(
                "\"--may-exist add-br {name}\" but {name} is a VLAN bridge for VLAN {vlan}"
            ))),
        };
    }
    model.check_free(name, &format!("cannot create a bridge named {name}"))?;
    let iface = txn.insert(db::Interface).set(interface::NAME, name).set(interface::TYPE, "internal").reference();
    let port = txn.insert(db::Port).set(port::NAME, name).set(port::INTERFACES, [iface]).reference();
    let bridge = txn.insert(db::Bridge).set(bridge::NAME, name).set(bridge::PORTS, [port]).reference();
    txn.verify(root, open_vswitch::BRIDGES);
    txn.add(root, open_vswitch::BRIDGES, [bridge]);
    model.bridges.insert(name.to_owned(), Bridge { row: bridge, fake: None, ports: BTreeSet::new() });
    context.new_ports.push(name.to_owned());
    Ok(())
}

fn add_fake_bridge(context: &mut Context<'_>, command: &Command, name: &str, parent: &str, vlan: i64) -> Done {
    let (txn, model) = context.txn_and_model();
    if command.has("--may-exist")
        && let Some(bridge) = model.bridges.get(name)
    {
        let wrong = |what: String| Err(Failure::fatal(format!("{} but {name} {what}", quoted(command))));
        return match &bridge.fake {
            None => wrong("is not a VLAN bridge".to_owned()),
            Some(fake) if fake.parent != parent => wrong(format!("has the wrong parent {}", fake.parent)),
            Some(fake) if fake.vlan != vlan => wrong(format!("is a VLAN bridge for the wrong VLAN {}", fake.vlan)),
            Some(_) => Ok(()),
        };
    }
    model.check_free(name, &format!("cannot create a bridge named {name}"))?;
    let Some(Bridge { row, fake, .. }) = model.bridges.get(parent) else {
        return Err(Failure::fatal(format!("parent bridge {parent} does not exist")));
    };
    let row = *row;
    if fake.is_some() {
        return Err(Failure::fatal("cannot create bridge with fake bridge as parent"));
    }
    if let Some(child) = model.child(parent, vlan) {
        return Err(Failure::fatal(format!("bridge {parent} already has a child VLAN bridge {child} on VLAN {vlan}")));
    }
    let iface = txn.insert(db::Interface).set(interface::NAME, name).set(interface::TYPE, "internal").reference();
    let port = txn.insert(db::Port).set(port::NAME, name).set(port::INTERFACES, [iface]);
    let port = port.set(port::FAKE_BRIDGE, true).set(port::TAG, Some(vlan)).reference();
    txn.verify(row, bridge::PORTS);
    txn.add(row, bridge::PORTS, [port]);
    context.new_ports.push(name.to_owned());
    // The parent's ports with this tag belong to the new bridge from now on.
    context.forget_model();
    Ok(())
}

pub(crate) fn del_br(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let name = command.arg(0);
    let root = context.root();
    let (txn, model) = context.txn_and_model();
    let bridge = match model.bridge(name) {
        Ok(bridge) => bridge.clone(),
        Err(_) if command.has("--if-exists") => return Ok(()),
        Err(error) => return Err(error),
    };
    if let Some(fake) = &bridge.fake {
        let rows = bridge.ports.iter().filter_map(|port| model.ports.get(port)).map(|port| port.row);
        let rows: Vec<Ref<db::Port>> = rows.chain([fake.port_row]).collect();
        txn.verify(bridge.row, bridge::PORTS);
        txn.remove(bridge.row, bridge::PORTS, rows.iter().copied());
        for row in rows {
            delete_port_row(txn, row);
        }
    } else {
        txn.verify(root, open_vswitch::BRIDGES);
        txn.remove(root, open_vswitch::BRIDGES, [bridge.row]);
        for row in txn.get(bridge.row, bridge::PORTS).iter().collect::<Vec<_>>() {
            delete_port_row(txn, row);
        }
        delete_if_new(txn, bridge.row);
    }
    let mut names = model.children(name);
    names.push(name.to_owned());
    for name in names {
        if let Some(bridge) = model.bridges.remove(&name) {
            for port in &bridge.ports {
                model.remove_port(port);
            }
        }
    }
    Ok(())
}

/// Drops a port that this very transaction inserted, with its interfaces. Rows of the database go away by themselves
/// when nothing refers to them any more.
pub(crate) fn delete_port_row(txn: &mut Transaction<'_>, row: Ref<db::Port>) {
    for iface in txn.get(row, port::INTERFACES).iter().collect::<Vec<_>>() {
        delete_if_new(txn, iface);
    }
    delete_if_new(txn, row);
}

/// Drops a row that this very transaction inserted.
pub(crate) fn delete_if_new<T: Table>(txn: &mut Transaction<'_>, row: Ref<T>) {
    if txn.replica().find(row).is_none() {
        txn.delete(row);
    }
}

pub(crate) fn list_br(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (real, fake) = (command.has("--real"), command.has("--fake"));
    let both = real == fake;
    for (name, bridge) in &context.model().bridges {
        if both || bridge.fake.is_some() == fake {
            output.line(name);
        }
    }
    Ok(())
}

pub(crate) fn br_exists(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    if context.model().bridges.contains_key(command.arg(0)) { Ok(()) } else { Err(Failure::Exit(2)) }
}

pub(crate) fn br_to_vlan(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let bridge = context.model().bridge(command.arg(0))?;
    output.line(bridge.fake.as_ref().map_or(0, |fake| fake.vlan).to_string());
    Ok(())
}

pub(crate) fn br_to_parent(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let name = command.arg(0);
    let bridge = context.model().bridge(name)?;
    output.line(bridge.fake.as_ref().map_or(name, |fake| fake.parent.as_str()));
    Ok(())
}

/// What a fake bridge's external ids begin with, among those of its port.
const FAKE_PREFIX: &str = "fake-bridge-";

/// A bridge's external ids, or those that are kept for a fake one.
fn external_ids<'a>(txn: &'a Transaction<'_>, found: &Bridge) -> (Pairs<'a, String, String>, &'static str) {
    match &found.fake {
        None => (txn.get(found.row, bridge::EXTERNAL_IDS), ""),
        Some(fake) => (txn.get(fake.port_row, port::EXTERNAL_IDS), FAKE_PREFIX),
    }
}

/// Gives one of a row's external ids a value, or removes it.
fn set_id<T: Table>(
    txn: &mut Transaction<'_>,
    row: Ref<T>,
    ids: Column<T, Map<String, String>>,
    key: &str,
    value: Option<&str>,
) {
    match value {
        Some(value) => txn.add(row, ids, [(key, value)]),
        None => txn.remove(row, ids, [key]),
    }
}

pub(crate) fn set_external_id(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let (key, value) = (command.arg(1), command.arg_opt(2));
    let found = model.bridge(command.arg(0))?;
    match &found.fake {
        None => set_id(txn, found.row, bridge::EXTERNAL_IDS, key, value),
        Some(fake) => set_id(txn, fake.port_row, port::EXTERNAL_IDS, &format!("{FAKE_PREFIX}{key}"), value),
    }
    Ok(())
}

pub(crate) fn get_external_id(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let (ids, prefix) = external_ids(txn, model.bridge(command.arg(0))?);
    if let Some(key) = command.arg_opt(1) {
        if let Some(value) = ids.get(format!("{prefix}{key}")) {
            output.line(value);
        }
        return Ok(());
    }
    for (key, value) in ids {
        if let Some(key) = key.strip_prefix(prefix) {
            output.line(format!("{key}={value}"));
        }
    }
    Ok(())
}
