//! Connections to controllers and managers, their failure modes, and the files for TLS.

use ovsdb::{Datum, Uuid};
use ovsdb_client::Transaction;

use crate::bridge::delete_if_new;
use crate::command::Command;
use crate::context::{Context, Failure, Output};
use crate::needs::Needs;

type Done = Result<(), Failure>;

pub(crate) fn controller_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    crate::bridge::needs(needs, command)?;
    needs.columns("Controller", &["target", "inactivity_probe"]);
    Ok(())
}

pub(crate) fn manager_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Open_vSwitch", &["manager_options"]);
    needs.columns("Manager", &["target", "inactivity_probe"]);
    Ok(())
}

pub(crate) fn ssl_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Open_vSwitch", &["ssl"]);
    needs.columns("SSL", &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"]);
    Ok(())
}

/// Prints the targets of rows, sorted.
fn print_targets(txn: &Transaction<'_>, table: &str, rows: Vec<Uuid>, output: &mut Output) {
    let mut targets: Vec<&str> = rows.into_iter().map(|row| txn.string(table, row, "target")).collect();
    targets.sort_unstable();
    for target in targets {
        output.line(target);
    }
}

/// Inserts a row for each target.
fn insert_targets(txn: &mut Transaction<'_>, table: &str, targets: &[String], probe: Option<i64>) -> Datum {
    let insert = |target: &String| {
        if !is_connection_method(target) {
            tracing::warn!(target: "vsctl", "target type \"{target}\" is possibly erroneous");
        }
        let row = txn.insert(table);
        txn.set(table, row, "target", target.as_str());
        if let Some(probe) = probe {
            txn.set(table, row, "inactivity_probe", probe);
        }
        row
    };
    Datum::set(targets.iter().map(insert))
}

/// Whether `target` begins as a connection method, active or passive.
fn is_connection_method(target: &str) -> bool {
    ["tcp:", "ssl:", "unix:", "ptcp:", "pssl:", "punix:"].iter().any(|method| target.starts_with(method))
}

/// The value of `--inactivity-probe`, in milliseconds.
fn inactivity_probe(command: &Command) -> Result<Option<i64>, Failure> {
    let Some(value) = command.value("--inactivity-probe") else { return Ok(None) };
    let parsed = value.parse::<i64>();
    parsed.map(Some).map_err(|_| Failure::fatal(format!("--inactivity-probe={value}: not a number of milliseconds")))
}

pub(crate) fn get_controller(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.bridge(command.arg(0))?.row;
    txn.verify("Bridge", row, "controller");
    let rows = txn.uuids("Bridge", row, "controller");
    print_targets(txn, "Controller", rows, output);
    Ok(())
}

pub(crate) fn del_controller(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    replace(txn, ("Bridge", row, "controller"), "Controller", Datum::empty());
    Ok(())
}

pub(crate) fn set_controller(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    let probe = inactivity_probe(command)?;
    let rows = insert_targets(txn, "Controller", command.args_from(1), probe);
    replace(txn, ("Bridge", row, "controller"), "Controller", rows);
    Ok(())
}

/// Writes references, and drops rows of this very transaction that are no longer referred to.
fn replace(txn: &mut Transaction<'_>, (table, row, column): (&str, Uuid, &str), target: &str, rows: Datum) {
    txn.verify(table, row, column);
    for old in txn.uuids(table, row, column) {
        delete_if_new(txn, target, old);
    }
    txn.set(table, row, column, rows);
}

pub(crate) fn get_fail_mode(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.bridge(command.arg(0))?.row;
    txn.verify("Bridge", row, "fail_mode");
    let mode = txn.string("Bridge", row, "fail_mode");
    if !mode.is_empty() {
        output.line(mode);
    }
    Ok(())
}

pub(crate) fn del_fail_mode(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    txn.set("Bridge", row, "fail_mode", Datum::empty());
    Ok(())
}

pub(crate) fn set_fail_mode(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    let mode = command.arg(1);
    if mode != "standalone" && mode != "secure" {
        return Err(Failure::fatal("fail-mode must be \"standalone\" or \"secure\""));
    }
    txn.set("Bridge", row, "fail_mode", mode);
    Ok(())
}

pub(crate) fn get_manager(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    let root = context.root();
    context.txn.verify("Open_vSwitch", root, "manager_options");
    let rows = context.txn.uuids("Open_vSwitch", root, "manager_options");
    print_targets(&context.txn, "Manager", rows, output);
    Ok(())
}

pub(crate) fn del_manager(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    let root = context.root();
    replace(&mut context.txn, ("Open_vSwitch", root, "manager_options"), "Manager", Datum::empty());
    Ok(())
}

pub(crate) fn set_manager(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let root = context.root();
    let probe = inactivity_probe(command)?;
    let rows = insert_targets(&mut context.txn, "Manager", command.args_from(0), probe);
    replace(&mut context.txn, ("Open_vSwitch", root, "manager_options"), "Manager", rows);
    Ok(())
}

pub(crate) fn get_ssl(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    let root = context.root();
    let txn = &mut context.txn;
    txn.verify("Open_vSwitch", root, "ssl");
    let Some(ssl) = txn.uuids("Open_vSwitch", root, "ssl").first().copied() else { return Ok(()) };
    for column in ["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"] {
        txn.verify("SSL", ssl, column);
    }
    output.line(format!("Private key: {}", txn.string("SSL", ssl, "private_key")));
    output.line(format!("Certificate: {}", txn.string("SSL", ssl, "certificate")));
    output.line(format!("CA Certificate: {}", txn.string("SSL", ssl, "ca_cert")));
    output.line(format!("Bootstrap: {}", txn.boolean("SSL", ssl, "bootstrap_ca_cert")));
    Ok(())
}

pub(crate) fn del_ssl(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    let root = context.root();
    replace(&mut context.txn, ("Open_vSwitch", root, "ssl"), "SSL", Datum::empty());
    Ok(())
}

pub(crate) fn set_ssl(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let root = context.root();
    let txn = &mut context.txn;
    let ssl = txn.insert("SSL");
    txn.set("SSL", ssl, "private_key", command.arg(0));
    txn.set("SSL", ssl, "certificate", command.arg(1));
    txn.set("SSL", ssl, "ca_cert", command.arg(2));
    txn.set("SSL", ssl, "bootstrap_ca_cert", command.has("--bootstrap"));
    replace(txn, ("Open_vSwitch", root, "ssl"), "SSL", Datum::scalar(ssl));
    Ok(())
}
