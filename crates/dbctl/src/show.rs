//! The command show: the configuration as an indented outline, or the part of it that a filter leaves.

use std::collections::BTreeMap;

use ovsdb::{DatabaseSchema, Datum, Uuid, text};

use crate::command::Command;
use crate::context::{Context, Output};
use crate::needs::Needs;
use crate::{Done, Failure, Program, names};

/// A table in the outline: the name of its rows, and the columns shown below them.
#[derive(Debug)]
pub struct Shown {
    /// The table.
    pub table: &'static str,
    /// The column with the name of a row; without one, its UUID is shown.
    pub name: Option<&'static str>,
    /// The columns. Referenced rows are shown if their table is in the outline; for a map to such rows, each key with
    /// the name of its row.
    pub columns: &'static [&'static str],
}

fn find<P: Program>(table: &str) -> Option<&'static Shown> {
    P::SHOWN.iter().find(|shown| shown.table == table)
}

pub(crate) fn needs<P: Program>(needs: &mut Needs<'_>, _: &Command<P>) -> Done {
    for shown in P::SHOWN {
        needs.columns(shown.table, shown.columns);
        needs.columns(shown.table, shown.name.as_slice());
    }
    Ok(())
}

pub(crate) fn show<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, output: &mut Output) -> Done {
    let Some(top) = P::SHOWN.first() else { return Ok(()) };
    let filter = Filter::parse(&context.schema, top.table, command.value("--filter").unwrap_or_default())?;
    for row in context.txn.rows(top.table) {
        show_row(context, &filter, (top, row), 0, output);
    }
    Ok(())
}

/// Which rows are shown: by table, the words of which a row's text must contain one, in lower case. The text includes
/// that of the rows shown below it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter(BTreeMap<String, Vec<String>>);

impl Filter {
    /// Parses `TABLE(WORD|WORD...),...`; words without a table are for the table `top`.
    pub(crate) fn parse(schema: &DatabaseSchema, top: &str, text: &str) -> Result<Self, Failure> {
        let mut filter = Self::default();
        for rule in text.split(',').filter(|rule| !rule.is_empty()) {
            let (table, words) = match rule.split_once('(') {
                None => (top, rule),
                Some((table, words)) => {
                    let words = words.strip_suffix(')');
                    let words = words.ok_or_else(|| Failure::fatal("Malformed filter: missing closing ')'"))?;
                    (names::table(schema, table)?.name.as_str(), words)
                }
            };
            let words = words.split('|').filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
            filter.0.entry(table.to_owned()).or_default().extend(words);
        }
        Ok(filter)
    }

    /// Whether a row of the table is shown, given its text.
    pub(crate) fn shows(&self, table: &str, text: &str) -> bool {
        self.0.get(table).is_none_or(|words| {
            let text = text.to_ascii_lowercase();
            words.iter().any(|word| text.contains(word.as_str()))
        })
    }
}

/// A column of a row as text.
fn format<P: Program>(context: &Context<'_, P>, table: &str, row: Uuid, column: &str) -> Option<String> {
    let kind = &context.schema.table(table)?.column(column)?.kind;
    Some(text::format_datum(context.txn.datum(table, row, column)?, kind))
}

fn indent(level: usize) -> String {
    " ".repeat(4 * level)
}

fn show_row<P: Program>(
    context: &Context<'_, P>,
    filter: &Filter,
    (shown, row): (&Shown, Uuid),
    level: usize,
    output: &mut Output,
) {
    let Some(table) = context.schema.table(shown.table) else { return };
    if !context.txn.contains_row(shown.table, row) {
        return;
    }
    let start = output.text.len();
    match shown.name.and_then(|name| format(context, shown.table, row, name)) {
        Some(name) => output.line(format!("{}{} {name}", indent(level), shown.table)),
        None => output.line(format!("{}{row}", indent(level))),
    }
    for name in shown.columns {
        let Some(column) = table.column(name) else { continue };
        let Some(datum) = context.txn.datum(shown.table, row, name) else { continue };
        let kind = &column.kind;
        let named = kind.value.as_ref().and_then(|base| find::<P>(base.ref_table()?));
        if let Some(inner) = kind.key.ref_table().and_then(find::<P>) {
            for reference in context.txn.uuids(shown.table, row, name) {
                show_row(context, filter, (inner, reference), level + 1, output);
            }
        } else if let Some(inner) = named {
            output.line(format!("{}{name}:", indent(level + 1)));
            show_names(context, inner, datum, level + 2, output);
        } else if !datum.is_default(kind) {
            output.line(format!("{}{name}: {}", indent(level + 1), text::format_datum(datum, kind)));
        }
    }
    if !filter.shows(shown.table, output.text.get(start..).unwrap_or_default()) {
        output.text.truncate(start);
    }
}

/// The pairs of a map to rows of `shown`: each key with the name of its row.
fn show_names<P: Program>(context: &Context<'_, P>, shown: &Shown, map: &Datum, level: usize, output: &mut Output) {
    for (key, value) in map.pairs() {
        let Some(row) = value.as_uuid() else { continue };
        let name = shown.name.and_then(|name| format(context, shown.table, row, name));
        let name = name.unwrap_or_else(|| row.to_string());
        output.line(format!("{}{}={name}", indent(level), text::format_atom(key)));
    }
}
