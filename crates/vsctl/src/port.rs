//! The commands for ports, bonds and interfaces.

use std::collections::BTreeSet;

use ovsdb::{Datum, Uuid};

use crate::bridge::delete_port_row;
use crate::{Command, Context, Done, Failure, Needs, Output};
use dbctl::context::quoted;

pub(crate) fn add_port_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    crate::bridge::needs(needs, command)?;
    setting_needs(needs, command.args_from(2))
}

pub(crate) fn add_bond_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    crate::bridge::needs(needs, command)?;
    setting_needs(needs, bond_arguments(command).1)
}

fn setting_needs(needs: &mut Needs<'_>, settings: &[String]) -> Done {
    let Ok(port) = needs.table("Port") else { return Ok(()) };
    for setting in settings {
        // The command reports a wrong setting itself, after the wrong names of ports.
        let _ = dbctl::database::setting_needs(needs, port, setting);
    }
    Ok(())
}

/// The interfaces and the settings of an add-bond command.
fn bond_arguments(command: &Command) -> (&[String], &[String]) {
    let rest = command.args_from(2);
    let count = rest.iter().position(|arg| arg.contains('=')).unwrap_or(rest.len());
    rest.split_at(count)
}

pub(crate) fn list_ports(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    for name in &context.model().bridge(command.arg(0))?.ports {
        output.line(name);
    }
    Ok(())
}

pub(crate) fn list_ifaces(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let model = context.model();
    let ports = model.bridge(command.arg(0))?.ports.iter().filter_map(|port| model.ports.get(port));
    let names: BTreeSet<&String> = ports.flat_map(|port| &port.ifaces).collect();
    for name in names {
        output.line(name);
    }
    Ok(())
}

pub(crate) fn port_to_br(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    output.line(&context.model().port(command.arg(0))?.bridge);
    Ok(())
}

pub(crate) fn iface_to_br(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let model = context.model();
    let iface = model.iface(command.arg(0))?;
    output.line(&model.port(&iface.port)?.bridge);
    Ok(())
}

pub(crate) fn add_port(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let name = command.arg(1);
    add(context, command, &[name.to_owned()], command.args_from(2))
}

pub(crate) fn add_bond(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (ifaces, settings) = bond_arguments(command);
    if ifaces.len() < 2 {
        return Err(Failure::fatal(format!(
            "add-bond requires at least 2 interfaces, but only {} were specified",
            ifaces.len()
        )));
    }
    add(context, command, ifaces, settings)
}

/// Adds a port of `ifaces` to a bridge.
fn add(context: &mut Context<'_>, command: &Command, ifaces: &[String], settings: &[String]) -> Done {
    let (bridge, name) = (command.arg(0), command.arg(1));
    if name.is_empty() {
        return Err(Failure::fatal("port name must not be empty string"));
    }
    if ifaces.iter().any(String::is_empty) {
        return Err(Failure::fatal("interface name must not be empty string"));
    }
    let (txn, model) = context.txn_and_model();
    if command.has("--may-exist")
        && let Some(port) = model.ports.get(name)
    {
        return check_same(command, port, ifaces);
    }
    model.check_free(name, &format!("cannot create a port named {name}"))?;
    for iface in ifaces.iter().filter(|iface| *iface != name) {
        model.check_free(iface, &format!("cannot create an interface named {iface}"))?;
    }
    let found = model.bridge(bridge)?.clone();
    let mut rows: Vec<(String, Uuid)> = Vec::with_capacity(ifaces.len());
    for iface in ifaces {
        let row = txn.insert_row("Interface");
        txn.set_datum("Interface", row, "name", iface.as_str());
        rows.push((iface.clone(), row));
    }
    let row = txn.insert_row("Port");
    txn.set_datum("Port", row, "name", name);
    txn.set_datum("Port", row, "interfaces", Datum::set(rows.iter().map(|(_, row)| *row)));
    if command.has("--fake-iface") {
        txn.set_datum("Port", row, "bond_fake_iface", true);
    }
    if let Some(fake) = &found.fake {
        txn.set_datum("Port", row, "tag", fake.vlan);
    }
    txn.verify_column("Bridge", found.row, "ports");
    txn.add_elements("Bridge", found.row, "ports", &Datum::scalar(row));
    let schema = context.schema.clone();
    if let Some(table) = schema.table("Port") {
        for setting in settings {
            dbctl::database::apply_setting(context, table, row, setting)?;
        }
    }
    let (txn, model) = context.txn_and_model();
    // A port of a fake bridge stays with it unless its settings give it another bridge's tag.
    let tag = txn.integer("Port", row, "tag");
    let parent = found.fake.as_ref().map(|fake| fake.parent.as_str());
    let by_tag = tag.and_then(|vlan| model.child(parent.unwrap_or(bridge), vlan).cloned());
    let owner = by_tag.unwrap_or_else(|| bridge.to_owned());
    model.add_port(name, &owner, row, None, rows);
    context.added.extend(ifaces.iter().cloned());
    Ok(())
}

/// Checks that an existing port is what the command would have created.
fn check_same(command: &Command, port: &crate::model::Port, ifaces: &[String]) -> Done {
    let (bridge, name) = (command.arg(0), command.arg(1));
    // A name twice is one more than the port has.
    let mut wanted = ifaces.to_vec();
    wanted.sort();
    let actual = if port.bridge != bridge {
        format!("is actually attached to bridge {}", port.bridge)
    } else if port.ifaces.iter().ne(&wanted) {
        let names: Vec<&str> = port.ifaces.iter().map(String::as_str).collect();
        format!("actually has interface(s) {}", names.join(", "))
    } else {
        return Ok(());
    };
    Err(Failure::fatal(format!("{} but {name} {actual}", quoted(command))))
}

pub(crate) fn add_bond_iface(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (port, name) = (command.arg(0), command.arg(1));
    let (txn, model) = context.txn_and_model();
    let port_row = model.port(port)?.row;
    if command.has("--may-exist")
        && let Some(iface) = model.ifaces.get(name)
    {
        if iface.port == port {
            return Ok(());
        }
        return Err(Failure::fatal(format!(
            "{} but {name} is actually attached to port {}",
            quoted(command),
            iface.port
        )));
    }
    model.check_free(name, &format!("cannot create an interface named {name}"))?;
    let row = txn.insert_row("Interface");
    txn.set_datum("Interface", row, "name", name);
    txn.verify_column("Port", port_row, "interfaces");
    txn.add_elements("Port", port_row, "interfaces", &Datum::scalar(row));
    model.add_iface(name, port, row);
    context.added.push(name.to_owned());
    Ok(())
}

pub(crate) fn del_bond_iface(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let name = command.arg(command.args.len().saturating_sub(1));
    let wanted = if command.args.len() == 2 { command.arg_opt(0) } else { None };
    let (txn, model) = context.txn_and_model();
    let iface = match model.iface(name) {
        Ok(iface) => iface.clone(),
        Err(_) if command.has("--if-exists") => return Ok(()),
        Err(error) => return Err(error),
    };
    if let Some(wanted) = wanted {
        model.port(wanted)?;
        if iface.port != wanted {
            return Err(Failure::fatal(format!("port {wanted} does not have an interface {name}")));
        }
    }
    let port = model.port(&iface.port)?;
    if port.ifaces.len() < 2 {
        return Err(Failure::fatal(format!("cannot delete last interface from port {}", iface.port)));
    }
    txn.verify_column("Port", port.row, "interfaces");
    txn.remove_elements("Port", port.row, "interfaces", &Datum::scalar(iface.row));
    txn.forget_row("Interface", iface.row);
    model.remove_iface(name);
    Ok(())
}

pub(crate) fn del_port(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let target = command.arg(command.args.len().saturating_sub(1));
    let wanted = if command.args.len() == 2 { command.arg_opt(0) } else { None };
    let if_exists = command.has("--if-exists");
    let (txn, model) = context.txn_and_model();
    let by_iface = |name: &str| model.ifaces.get(name).map(|iface| iface.port.clone());
    let name = match model.ports.contains_key(target) {
        true => Some(target.to_owned()),
        false if command.has("--with-iface") => by_iface(target),
        false => None,
    };
    let Some(name) = name else {
        if model.bridges.contains_key(target) && !if_exists {
            return Err(Failure::fatal(format!(
                "cannot delete port {target} because it is the local port for bridge {target} (deleting this port \
                 requires deleting the entire bridge)"
            )));
        }
        let what = if command.has("--with-iface") { "port or interface" } else { "port" };
        return if if_exists { Ok(()) } else { Err(Failure::fatal(format!("no {what} named {target}"))) };
    };
    let port = model.port(&name)?.clone();
    if let Some(wanted) = wanted {
        check_owner(model, wanted, target, &port.bridge)?;
    }
    let bridge_row = model.bridge(&port.bridge)?.row;
    txn.verify_column("Bridge", bridge_row, "ports");
    txn.remove_elements("Bridge", bridge_row, "ports", &Datum::scalar(port.row));
    delete_port_row(txn, port.row);
    model.remove_port(&name);
    Ok(())
}

/// Checks that the port called `target`, which is on bridge `actual`, is on bridge `wanted`.
fn check_owner(model: &crate::model::Model, wanted: &str, target: &str, actual: &str) -> Done {
    model.bridge(wanted)?;
    if wanted == actual {
        return Ok(());
    }
    let parent = model.bridges.get(actual).and_then(|bridge| bridge.fake.as_ref()).map(|fake| fake.parent.as_str());
    let aside =
        if parent == Some(wanted) { format!(" (although its child bridge {actual} does)") } else { String::new() };
    Err(Failure::fatal(format!("bridge {wanted} does not have a port {target}{aside}")))
}
