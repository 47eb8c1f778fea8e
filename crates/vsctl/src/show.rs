//! The command show: the configuration as an indented outline.

use ovsdb::{Datum, Uuid, text};

use crate::command::Command;
use crate::context::{Context, Failure, Output};
use crate::needs::Needs;

/// A table in the outline: what names its rows, and the columns shown below them.
struct Shown {
    table: &'static str,
    name: Option<&'static str>,
    columns: &'static [&'static str],
}

const SHOWN: &[Shown] = &[
    Shown { table: "Open_vSwitch", name: None, columns: &["manager_options", "bridges", "ovs_version"] },
    Shown { table: "Bridge", name: Some("name"), columns: &["controller", "fail_mode", "datapath_type", "ports"] },
    Shown { table: "Port", name: Some("name"), columns: &["tag", "trunks", "interfaces"] },
    Shown { table: "Interface", name: Some("name"), columns: &["type", "options", "error"] },
    Shown { table: "Controller", name: Some("target"), columns: &["is_connected"] },
    Shown { table: "Manager", name: Some("target"), columns: &["is_connected"] },
];

pub(crate) fn needs(needs: &mut Needs<'_>, _: &Command) -> Result<(), Failure> {
    for shown in SHOWN {
        needs.columns(shown.table, shown.columns);
        needs.columns(shown.table, shown.name.as_slice());
    }
    Ok(())
}

pub(crate) fn show(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Result<(), Failure> {
    let Some(top) = SHOWN.first() else { return Ok(()) };
    for row in context.txn.rows(top.table) {
        show_row(context, top, row, 0, output);
    }
    Ok(())
}

fn show_row(context: &Context<'_>, shown: &Shown, row: Uuid, level: usize, output: &mut Output) {
    let Some(table) = context.schema.table(shown.table) else { return };
    let format = |column: &str| -> Option<(Datum, String)> {
        let datum = context.txn.datum(shown.table, row, column)?;
        Some((datum.clone(), text::format_datum(datum, &table.column(column)?.kind)))
    };
    let indent = |level: usize| " ".repeat(4 * level);
    match shown.name.and_then(format) {
        Some((_, name)) => output.line(format!("{}{} {name}", indent(level), shown.table)),
        None => output.line(format!("{}{row}", indent(level))),
    }
    for name in shown.columns {
        let Some(column) = table.column(name) else { continue };
        let Some((datum, value)) = format(name) else { continue };
        let inner = column.kind.key.ref_table().and_then(|table| SHOWN.iter().find(|shown| shown.table == table));
        if let Some(inner) = inner {
            for reference in context.txn.uuids(shown.table, row, name) {
                show_row(context, inner, reference, level + 1, output);
            }
        } else if !datum.is_default(&column.kind) {
            output.line(format!("{}{name}: {value}", indent(level + 1)));
        }
    }
}
