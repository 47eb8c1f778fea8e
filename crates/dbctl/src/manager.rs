//! The commands for managers: other peers of the database server.

use ovsdb::{Datum, Uuid};
use ovsdb_client::Transaction;

use crate::command::Command;
use crate::context::{Context, Output};
use crate::needs::Needs;
use crate::{Done, Failure, Program};

pub(crate) fn needs<P: Program>(needs: &mut Needs<'_>, _: &Command<P>) -> Done {
    needs.columns(P::ROOT, &[P::MANAGERS]);
    needs.columns("Manager", &["target", "inactivity_probe"]);
    Ok(())
}

pub(crate) fn get<P: Program>(context: &mut Context<'_, P>, _: &Command<P>, output: &mut Output) -> Done {
    let root = context.root();
    context.txn.verify_column(P::ROOT, root, P::MANAGERS);
    let rows = context.txn.uuids(P::ROOT, root, P::MANAGERS);
    print_targets(&context.txn, "Manager", rows, output);
    Ok(())
}

pub(crate) fn del<P: Program>(context: &mut Context<'_, P>, _: &Command<P>, _: &mut Output) -> Done {
    let root = context.root();
    replace(&mut context.txn, (P::ROOT, root, P::MANAGERS), "Manager", Datum::empty());
    Ok(())
}

pub(crate) fn set<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, _: &mut Output) -> Done {
    let root = context.root();
    let probe = inactivity_probe(command)?;
    let rows = insert_targets::<P>(&mut context.txn, "Manager", command.args_from(0), probe);
    replace(&mut context.txn, (P::ROOT, root, P::MANAGERS), "Manager", rows);
    Ok(())
}

/// Prints the targets of rows, sorted.
pub fn print_targets(txn: &Transaction<'_>, table: &str, rows: Vec<Uuid>, output: &mut Output) {
    let mut targets: Vec<&str> = rows.into_iter().map(|row| txn.string(table, row, "target")).collect();
    targets.sort_unstable();
    for target in targets {
        output.line(target);
    }
}

/// Inserts a row for each target, with the inactivity probe in milliseconds.
pub fn insert_targets<P: Program>(
    txn: &mut Transaction<'_>,
    table: &str,
    targets: &[String],
    probe: Option<i64>,
) -> Datum {
    let insert = |target: &String| {
        if !is_connection_method(target) {
            P::log(tracing::Level::WARN, format_args!("target type \"{target}\" is possibly erroneous"));
        }
        let row = txn.insert_row(table);
        txn.set_datum(table, row, "target", target.as_str());
        if let Some(probe) = probe {
            txn.set_datum(table, row, "inactivity_probe", probe);
        }
        row
    };
    Datum::set(targets.iter().map(insert))
}

/// Returns true if `target` begins with a connection method, active or passive.
fn is_connection_method(target: &str) -> bool {
    ["tcp:", "ssl:", "unix:", "ptcp:", "pssl:", "punix:"].iter().any(|method| target.starts_with(method))
}

/// The value of `--inactivity-probe`, in milliseconds.
pub fn inactivity_probe<P: Program>(command: &Command<P>) -> Result<Option<i64>, Failure> {
    let Some(value) = command.value("--inactivity-probe") else { return Ok(None) };
    let parsed = value.parse::<i64>();
    parsed.map(Some).map_err(|_| Failure::fatal(format!("--inactivity-probe={value}: not a number of milliseconds")))
}

/// Writes references, and forgets the rows that were referred to before.
pub fn replace(txn: &mut Transaction<'_>, (table, row, column): (&str, Uuid, &str), target: &str, rows: Datum) {
    txn.verify_column(table, row, column);
    for old in txn.uuids(table, row, column) {
        txn.forget_row(target, old);
    }
    txn.set_datum(table, row, column, rows);
}
