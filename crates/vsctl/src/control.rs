//! Connections to controllers and managers, their failure modes, and the files for TLS.

use ovsdb_client::schemas::vswitch::{self as db, bridge, controller, manager, open_vswitch, ssl};
use ovsdb_client::typed::{Column, Enumeration as _, Ref, Set, Table};
use ovsdb_client::{Transaction, columns};

use crate::bridge::delete_if_new;
use crate::command::Command;
use crate::context::{Context, Failure, Output};
use crate::needs::Needs;

type Done = Result<(), Failure>;

pub(crate) fn controller_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    crate::bridge::needs(needs, command)?;
    needs.columns(&columns! { controller { TARGET, INACTIVITY_PROBE } });
    Ok(())
}

pub(crate) fn manager_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns(&columns! { open_vswitch { MANAGER_OPTIONS } manager { TARGET, INACTIVITY_PROBE } });
    Ok(())
}

pub(crate) fn ssl_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns(&columns! {
        open_vswitch { SSL }
        ssl { PRIVATE_KEY, CERTIFICATE, CA_CERT, BOOTSTRAP_CA_CERT }
    });
    Ok(())
}

/// A table of connections: the columns of their targets and of their probes.
type Connections<T> = (T, Column<T, String>, Column<T, Option<i64>>);

const CONTROLLERS: Connections<db::Controller> = (db::Controller, controller::TARGET, controller::INACTIVITY_PROBE);
const MANAGERS: Connections<db::Manager> = (db::Manager, manager::TARGET, manager::INACTIVITY_PROBE);

/// Prints the targets of rows to which a column refers, sorted.
fn print_targets<T: Table, U: Table>(
    txn: &mut Transaction<'_>,
    row: Ref<T>,
    column: Column<T, Set<Ref<U>>>,
    (_, target, _): Connections<U>,
    output: &mut Output,
) {
    txn.verify(row, column);
    let mut targets: Vec<&str> = txn.get(row, column).into_iter().map(|row| txn.get(row, target)).collect();
    targets.sort_unstable();
    for target in targets {
        output.line(target);
    }
}

/// Inserts a row for each target.
fn insert_targets<T: Table>(
    txn: &mut Transaction<'_>,
    (table, target_column, probe_column): Connections<T>,
    targets: &[String],
    probe: Option<i64>,
) -> Vec<Ref<T>> {
    let insert = |target: &String| {
        if !is_connection_method(target) {
            tracing::warn!(target: "vsctl", "target type \"{target}\" is possibly erroneous");
        }
        txn.insert(table).set(target_column, target).set(probe_column, probe).reference()
    };
    targets.iter().map(insert).collect()
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
    print_targets(txn, row, bridge::CONTROLLER, CONTROLLERS, output);
    Ok(())
}

pub(crate) fn del_controller(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    replace(txn, row, bridge::CONTROLLER, Vec::new());
    Ok(())
}

pub(crate) fn set_controller(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    let probe = inactivity_probe(command)?;
    let rows = insert_targets(txn, CONTROLLERS, command.args_from(1), probe);
    replace(txn, row, bridge::CONTROLLER, rows);
    Ok(())
}

/// Writes references, and drops rows of this very transaction that are no longer referred to.
fn replace<T: Table, U: Table>(
    txn: &mut Transaction<'_>,
    row: Ref<T>,
    column: Column<T, Set<Ref<U>>>,
    rows: Vec<Ref<U>>,
) {
    for old in txn.read(row, column).iter().collect::<Vec<_>>() {
        delete_if_new(txn, old);
    }
    txn.set(row, column, rows);
}

/// [`replace`] for the row of table SSL.
fn replace_ssl(txn: &mut Transaction<'_>, root: Ref<db::OpenVSwitch>, row: Option<Ref<db::Ssl>>) {
    if let Some(old) = txn.read(root, open_vswitch::SSL) {
        delete_if_new(txn, old);
    }
    txn.set(root, open_vswitch::SSL, row);
}

pub(crate) fn get_fail_mode(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.bridge(command.arg(0))?.row;
    if let Some(mode) = txn.read(row, bridge::FAIL_MODE) {
        output.line(bridge::FailMode::name_of(mode));
    }
    Ok(())
}

pub(crate) fn del_fail_mode(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    txn.clear(row, bridge::FAIL_MODE);
    Ok(())
}

pub(crate) fn set_fail_mode(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.real_bridge(command.arg(0))?.row;
    let mode = bridge::FailMode::from_name(command.arg(1));
    let mode = mode.map_err(|_| Failure::fatal("fail-mode must be \"standalone\" or \"secure\""))?;
    txn.set(row, bridge::FAIL_MODE, Some(mode));
    Ok(())
}

pub(crate) fn get_manager(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    let root = context.root();
    print_targets(&mut context.txn, root, open_vswitch::MANAGER_OPTIONS, MANAGERS, output);
    Ok(())
}

pub(crate) fn del_manager(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    let root = context.root();
    replace(&mut context.txn, root, open_vswitch::MANAGER_OPTIONS, Vec::new());
    Ok(())
}

pub(crate) fn set_manager(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let root = context.root();
    let probe = inactivity_probe(command)?;
    let rows = insert_targets(&mut context.txn, MANAGERS, command.args_from(0), probe);
    replace(&mut context.txn, root, open_vswitch::MANAGER_OPTIONS, rows);
    Ok(())
}

pub(crate) fn get_ssl(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    let root = context.root();
    let txn = &mut context.txn;
    let Some(row) = txn.read(root, open_vswitch::SSL) else { return Ok(()) };
    output.line(format!("Private key: {}", txn.read(row, ssl::PRIVATE_KEY)));
    output.line(format!("Certificate: {}", txn.read(row, ssl::CERTIFICATE)));
    output.line(format!("CA Certificate: {}", txn.read(row, ssl::CA_CERT)));
    output.line(format!("Bootstrap: {}", txn.read(row, ssl::BOOTSTRAP_CA_CERT)));
    Ok(())
}

pub(crate) fn del_ssl(context: &mut Context<'_>, _: &Command, _: &mut Output) -> Done {
    let root = context.root();
    replace_ssl(&mut context.txn, root, None);
    Ok(())
}

pub(crate) fn set_ssl(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let root = context.root();
    let txn = &mut context.txn;
    let files = txn.insert(db::Ssl).set(ssl::PRIVATE_KEY, command.arg(0)).set(ssl::CERTIFICATE, command.arg(1));
    let files = files.set(ssl::CA_CERT, command.arg(2)).set(ssl::BOOTSTRAP_CA_CERT, command.has("--bootstrap"));
    let row = files.reference();
    replace_ssl(txn, root, Some(row));
    Ok(())
}
