//! The command show: the configuration as an indented outline.

use ovsdb::{Datum, Uuid, text};
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{self as db, bridge, controller, interface, manager, open_vswitch, port};
use ovsdb_client::typed::{AnyColumn, Table as _};

use crate::command::Command;
use crate::context::{Context, Failure, Output};
use crate::needs::Needs;

/// A table in the outline: what names its rows, and the columns shown below them.
struct Shown {
    table: &'static str,
    name: Option<AnyColumn>,
    columns: &'static [AnyColumn],
}

const SHOWN: &[Shown] = &[
    Shown {
        table: db::OpenVSwitch::NAME,
        name: None,
        columns: &columns! { open_vswitch { MANAGER_OPTIONS, BRIDGES, OVS_VERSION } },
    },
    Shown {
        table: db::Bridge::NAME,
        name: Some(bridge::NAME.any()),
        columns: &columns! { bridge { CONTROLLER, FAIL_MODE, DATAPATH_TYPE, PORTS } },
    },
    Shown {
        table: db::Port::NAME,
        name: Some(port::NAME.any()),
        columns: &columns! { port { TAG, TRUNKS, INTERFACES } },
    },
    Shown {
        table: db::Interface::NAME,
        name: Some(interface::NAME.any()),
        columns: &columns! { interface { TYPE, OPTIONS, ERROR } },
    },
    Shown {
        table: db::Controller::NAME,
        name: Some(controller::TARGET.any()),
        columns: &columns! { controller { IS_CONNECTED } },
    },
    Shown {
        table: db::Manager::NAME,
        name: Some(manager::TARGET.any()),
        columns: &columns! { manager { IS_CONNECTED } },
    },
];

pub(crate) fn needs(needs: &mut Needs<'_>, _: &Command) -> Result<(), Failure> {
    for shown in SHOWN {
        needs.columns(shown.columns);
        needs.columns(shown.name.as_slice());
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
    let format = |column: AnyColumn| -> Option<(Datum, String)> {
        let datum = context.txn.datum(shown.table, row, column.column)?;
        Some((datum.clone(), text::format_datum(datum, &table.column(column.column)?.kind)))
    };
    let indent = |level: usize| " ".repeat(4 * level);
    match shown.name.and_then(format) {
        Some((_, name)) => output.line(format!("{}{} {name}", indent(level), shown.table)),
        None => output.line(format!("{}{row}", indent(level))),
    }
    for shown_column in shown.columns {
        let name = shown_column.column;
        let Some(column) = table.column(name) else { continue };
        let Some((datum, value)) = format(*shown_column) else { continue };
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
