//! The commands for physical switches, their ports, and which VLANs of ports are bound to which logical switches.

use std::collections::BTreeMap;

use ovsdb::{Atom, Datum, Uuid};
use ovsdb_client::Transaction;

use crate::model::{PhysicalSwitch, no_port};
use crate::{Command, Context, Done, Failure, Needs, Output};

/// The tables and columns of names and bindings.
pub(crate) fn needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Global", &["switches"]);
    needs.columns("Physical_Switch", &["name", "ports"]);
    needs.columns("Physical_Port", &["name", "vlan_bindings"]);
    needs.columns("Logical_Switch", &["name"]);
    needs.columns("Logical_Router", &["name"]);
    Ok(())
}

pub(crate) fn add_switch(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let name = command.arg(0);
    let root = context.root();
    let (txn, model) = context.txn_and_model();
    if model.physical.contains_key(name) {
        if command.has("--may-exist") {
            return Ok(());
        }
        return Err(Failure::fatal(format!("cannot create physical switch {name} because it already exists")));
    }
    let row = txn.insert_row("Physical_Switch");
    txn.set_datum("Physical_Switch", row, "name", name);
    txn.verify_column("Global", root, "switches");
    txn.add_elements("Global", root, "switches", &Datum::scalar(row));
    model.physical.insert(name.to_owned(), PhysicalSwitch { row, ports: BTreeMap::new() });
    Ok(())
}

pub(crate) fn del_switch(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let name = command.arg(0);
    let root = context.root();
    let (txn, model) = context.txn_and_model();
    let row = match model.physical(name) {
        Ok(switch) => switch.row,
        Err(_) if command.has("--if-exists") => return Ok(()),
        Err(error) => return Err(error),
    };
    txn.verify_column("Global", root, "switches");
    txn.remove_elements("Global", root, "switches", &Datum::scalar(row));
    // The server deletes unreferenced rows; rows of this very transaction are never inserted.
    for port in txn.uuids("Physical_Switch", row, "ports") {
        txn.forget_row("Physical_Port", port);
    }
    txn.forget_row("Physical_Switch", row);
    model.physical.remove(name);
    Ok(())
}

pub(crate) fn list_switches(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    context.model().physical.keys().for_each(|name| output.line(name));
    Ok(())
}

pub(crate) fn switch_exists(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    if context.model().physical.contains_key(command.arg(0)) { Ok(()) } else { Err(Failure::Exit(2)) }
}

pub(crate) fn list_ports(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    context.model().physical(command.arg(0))?.ports.keys().for_each(|name| output.line(name));
    Ok(())
}

pub(crate) fn add_port(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (switch_name, name) = (command.arg(0), command.arg(1));
    let (txn, model) = context.txn_and_model();
    let switch = model.physical(switch_name)?.row;
    let ports = model.physical.get_mut(switch_name).map(|switch| &mut switch.ports);
    let Some(ports) = ports else { return Ok(()) };
    if ports.contains_key(name) {
        if command.has("--may-exist") {
            return Ok(());
        }
        return Err(Failure::fatal(format!(
            "cannot create a port named {name} on {switch_name} because a port with that name already exists"
        )));
    }
    let row = txn.insert_row("Physical_Port");
    txn.set_datum("Physical_Port", row, "name", name);
    txn.verify_column("Physical_Switch", switch, "ports");
    txn.add_elements("Physical_Switch", switch, "ports", &Datum::scalar(row));
    ports.insert(name.to_owned(), row);
    Ok(())
}

pub(crate) fn del_port(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (switch_name, name) = (command.arg(0), command.arg(1));
    let (txn, model) = context.txn_and_model();
    let found = model.physical.get_mut(switch_name).filter(|switch| switch.ports.contains_key(name));
    let Some(switch) = found else {
        return if command.has("--if-exists") { Ok(()) } else { Err(no_port(name)) };
    };
    if let Some(row) = switch.ports.remove(name) {
        txn.verify_column("Physical_Switch", switch.row, "ports");
        txn.remove_elements("Physical_Switch", switch.row, "ports", &Datum::scalar(row));
        txn.forget_row("Physical_Port", row);
    }
    Ok(())
}

/// The VLANs of a port that are bound, with the rows of their logical switches.
fn bindings(txn: &Transaction<'_>, port: Uuid) -> BTreeMap<i64, Uuid> {
    let bound = txn.datum("Physical_Port", port, "vlan_bindings").into_iter().flat_map(Datum::pairs);
    bound.filter_map(|(vlan, switch)| Some((vlan.as_integer()?, switch.as_uuid()?))).collect()
}

/// The number of a VLAN that is bound; only its decimal form without leading zeros names it.
fn bound_by(txn: &Transaction<'_>, port: Uuid, vlan: &str) -> Option<i64> {
    bindings(txn, port).into_keys().find(|number| number.to_string() == vlan)
}

pub(crate) fn bind(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let port = model.port(command.arg(0), command.arg(1))?;
    let vlan = command.arg(2);
    // Numbers that are no VLAN are the database's to refuse, as it knows the range.
    let number = cli::leading_integer(vlan, 0);
    let switch = model.logical(command.arg(3))?;
    if bound_by(txn, port, vlan).is_some() {
        return Err(Failure::fatal(format!("multiple bindings for vlan {vlan}")));
    }
    txn.verify_column("Physical_Port", port, "vlan_bindings");
    txn.add_elements("Physical_Port", port, "vlan_bindings", &Datum::map([(number, switch)]));
    Ok(())
}

pub(crate) fn unbind(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let port = model.port(command.arg(0), command.arg(1))?;
    let vlan = command.arg(2);
    let number = bound_by(txn, port, vlan).ok_or_else(|| Failure::fatal(format!("no binding for vlan {vlan}")))?;
    txn.verify_column("Physical_Port", port, "vlan_bindings");
    txn.remove_elements("Physical_Port", port, "vlan_bindings", &Datum::scalar(Atom::Integer(number)));
    Ok(())
}

pub(crate) fn list_bindings(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let port = model.port(command.arg(0), command.arg(1))?;
    for (vlan, switch) in bindings(txn, port) {
        output.line(format!("{vlan:04} {}", txn.string("Logical_Switch", switch, "name")));
    }
    Ok(())
}
