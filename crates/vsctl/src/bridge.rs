//! The bridge commands: add-br, del-br, list-br, br-exists, br-to-vlan, br-to-parent, external ids.

use std::collections::BTreeSet;

use ovsdb::{Datum, Uuid};

use crate::model::{Bridge, Fake};
use crate::{Command, Context, Done, Failure, Needs, Output};
use dbctl::context::quoted;

/// The tables and columns of bridges and ports.
pub(crate) fn needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Open_vSwitch", &["bridges"]);
    needs.columns("Bridge", &["name", "controller", "fail_mode", "ports"]);
    needs.columns("Port", &["name", "fake_bridge", "tag", "interfaces", "bond_fake_iface"]);
    needs.columns("Interface", &["name", "type", "ofport", "error"]);
    needs.columns("Controller", &[]);
    Ok(())
}

pub(crate) fn external_id_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    self::needs(needs, command)?;
    needs.columns("Bridge", &["external_ids"]);
    needs.columns("Port", &["external_ids"]);
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
            let vlan = leading_number(vlan);
            if !(0..=4095).contains(&vlan) {
                return Err(Failure::fatal("add-br: vlan must be between 0 and 4095"));
            }
            add_fake_bridge(context, command, name, parent, vlan)
        }
    }
}

/// Reads the number that a text begins with, as C's `atoi`: 0 if there is none.
fn leading_number(text: &str) -> i64 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits.get(..end).and_then(|digits| digits.parse::<i64>().ok());
    sign * number.unwrap_or(if end == 0 { 0 } else { i64::MAX })
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
    let iface = txn.insert_row("Interface");
    txn.set_datum("Interface", iface, "name", name);
    txn.set_datum("Interface", iface, "type", "internal");
    let port = txn.insert_row("Port");
    txn.set_datum("Port", port, "name", name);
    txn.set_datum("Port", port, "interfaces", iface);
    let bridge = txn.insert_row("Bridge");
    txn.set_datum("Bridge", bridge, "name", name);
    txn.set_datum("Bridge", bridge, "ports", port);
    txn.verify_column("Open_vSwitch", root, "bridges");
    txn.add_elements("Open_vSwitch", root, "bridges", &Datum::scalar(bridge));
    model.bridges.insert(name.to_owned(), Bridge { row: bridge, fake: None, ports: BTreeSet::new() });
    context.added.push(name.to_owned());
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
    let iface = txn.insert_row("Interface");
    txn.set_datum("Interface", iface, "name", name);
    txn.set_datum("Interface", iface, "type", "internal");
    let port_row = txn.insert_row("Port");
    txn.set_datum("Port", port_row, "name", name);
    txn.set_datum("Port", port_row, "interfaces", iface);
    txn.set_datum("Port", port_row, "fake_bridge", true);
    txn.set_datum("Port", port_row, "tag", vlan);
    txn.verify_column("Bridge", row, "ports");
    txn.add_elements("Bridge", row, "ports", &Datum::scalar(port_row));
    context.added.push(name.to_owned());
    // The parent's ports with this tag belong to the new bridge from now on.
    context.drop_model();
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
        let rows: Vec<Uuid> = rows.chain([fake.port_row]).collect();
        txn.verify_column("Bridge", bridge.row, "ports");
        txn.remove_elements("Bridge", bridge.row, "ports", &Datum::set(rows.iter().copied()));
        for row in rows {
            delete_port_row(txn, row);
        }
    } else {
        txn.verify_column("Open_vSwitch", root, "bridges");
        txn.remove_elements("Open_vSwitch", root, "bridges", &Datum::scalar(bridge.row));
        for row in txn.uuids("Bridge", bridge.row, "ports") {
            delete_port_row(txn, row);
        }
        txn.forget_row("Bridge", bridge.row);
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

/// Takes a port with its interfaces out of the transaction. The server deletes the rows, as nothing refers to them any
/// more.
pub(crate) fn delete_port_row(txn: &mut ovsdb_client::Transaction<'_>, row: Uuid) {
    for iface in txn.uuids("Port", row, "interfaces") {
        txn.forget_row("Interface", iface);
    }
    txn.forget_row("Port", row);
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

/// The prefix of a fake bridge's external ids, among those of its port.
const FAKE_PREFIX: &str = "fake-bridge-";

/// The table, the row and the prefix under which a bridge's external ids are kept.
fn external_ids(bridge: &Bridge) -> (&'static str, Uuid, &'static str) {
    match &bridge.fake {
        None => ("Bridge", bridge.row, ""),
        Some(fake) => ("Port", fake.port_row, FAKE_PREFIX),
    }
}

pub(crate) fn set_external_id(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let (table, row, prefix) = external_ids(model.bridge(command.arg(0))?);
    let key = format!("{prefix}{}", command.arg(1));
    match command.arg_opt(2) {
        Some(value) => txn.add_elements(table, row, "external_ids", &Datum::map([(key, value)])),
        None => txn.remove_elements(table, row, "external_ids", &Datum::scalar(key)),
    }
    Ok(())
}

pub(crate) fn get_external_id(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let (table, row, prefix) = external_ids(model.bridge(command.arg(0))?);
    let Some(ids) = txn.datum(table, row, "external_ids") else { return Ok(()) };
    if let Some(key) = command.arg_opt(1) {
        if let Some(value) = ids.get_str(&format!("{prefix}{key}")) {
            output.line(value);
        }
        return Ok(());
    }
    for (key, value) in ids.pairs() {
        if let (Some(key), Some(value)) = (key.as_str().and_then(|key| key.strip_prefix(prefix)), value.as_str()) {
            output.line(format!("{key}={value}"));
        }
    }
    Ok(())
}
