//! Transactions as records of a log and back (ovsdb(5), "Standalone Format").
//!
//! A record names, by table and row, the columns that a transaction changed. `_is_diff` says that the values of
//! columns with several elements are differences, as Open vSwitch 2.15 and later write them.

use std::sync::Arc;

use ovsdb::json::NoSymbols;
use ovsdb::write::{self, Object};
use ovsdb::{DatabaseSchema, Datum, Error, Result, TableSchema, Uuid};
use serde_json::Value;

use crate::database::Database;
use crate::log::Record;
use crate::row::{Row, RowChange};

/// Whether values with several elements are written as differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Differences: shorter, not readable by Open vSwitch before 2.15.
    Difference,
    /// Whole values.
    Whole,
}

/// Returns the record of a transaction; `None` if it changed no persistent data. `date_ms` is Unix time in
/// milliseconds.
pub fn record(
    schema: &DatabaseSchema,
    changes: &[RowChange],
    comment: &str,
    date_ms: i64,
    style: Style,
) -> Option<Record> {
    let mut tables = Tables::default();
    for change in changes {
        let Some(table) = schema.tables().get(change.table) else { continue };
        tables.row(change.table, change.uuid, |out| match (&change.old, &change.new) {
            (_, None) => {
                out.extend_from_slice(b"null");
                true
            }
            (None, Some(new)) => {
                new_row(out, table, new);
                true
            }
            (Some(old), Some(new)) => changed_columns(out, table, old, new, style),
        });
    }
    if tables.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    tables.write(schema, &mut object);
    write::value(object.member("_date"), &Value::from(date_ms));
    if style == Style::Difference {
        object.member("_is_diff").extend_from_slice(b"true");
    }
    if !comment.is_empty() {
        write::string(object.member("_comment"), comment);
    }
    object.end();
    Some(Record::from_text(out))
}

/// Writes a row's persistent values, except default ones.
pub(crate) fn new_row(out: &mut Vec<u8>, table: &TableSchema, row: &Row) {
    let mut columns = Object::begin(out);
    for (index, column) in table.own_columns() {
        if let Some(datum) = row.column(index).filter(|datum| !column.ephemeral && !datum.is_default(&column.kind)) {
            write::datum(columns.member(&column.name), datum, &column.kind);
        }
    }
    columns.end();
}

/// Writes the persistent part of a row's change; returns whether there is any.
fn changed_columns(out: &mut Vec<u8>, table: &TableSchema, old: &Row, new: &Row, style: Style) -> bool {
    let mut columns = Object::begin(out);
    for (index, column) in table.own_columns() {
        if column.ephemeral || old.same(new, index) {
            continue;
        }
        let (Some(before), Some(after)) = (old.column(index), new.column(index)) else { continue };
        let out = columns.member(&column.name);
        match style {
            Style::Difference => write::datum(out, &before.diff(after, &column.kind), &column.kind),
            Style::Whole => write::datum(out, after, &column.kind),
        }
    }
    let changed = !columns.is_empty();
    columns.end();
    changed
}

/// Rows by their tables, as text: the members of an object.
#[derive(Debug, Default)]
pub(crate) struct Tables(Vec<(usize, Vec<u8>)>);

impl Tables {
    /// Adds the output of `write` for a row, unless it returns false.
    pub(crate) fn row(&mut self, table: usize, row: Uuid, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        // Changes are grouped by table.
        let at = match self.0.iter().rposition(|(known, _)| *known == table) {
            Some(at) => at,
            None => {
                self.0.push((table, Vec::new()));
                self.0.len() - 1
            }
        };
        let Some((_, rows)) = self.0.get_mut(at) else { return };
        let before = rows.len();
        rows.extend_from_slice(if before == 0 { b"\"" } else { b",\"" });
        write::uuid(rows, row);
        rows.extend_from_slice(b"\":");
        if !write(rows) {
            rows.truncate(before);
            if before == 0 {
                self.0.remove(at);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a member for each table.
    pub(crate) fn write(self, schema: &DatabaseSchema, object: &mut Object<'_>) {
        for (table, mut rows) in self.0 {
            let Some(table) = schema.tables().get(table) else { continue };
            let out = object.member(&table.name);
            out.push(b'{');
            out.append(&mut rows);
            out.push(b'}');
        }
    }
}

/// Returns the record of all contents of a database, like that of a transaction. [`crate::Snapshot`] writes the same
/// without holding all of it in memory.
pub fn snapshot(database: &Database, comment: &str, date_ms: i64, style: Style) -> Option<Record> {
    record(database.schema(), &all_rows(database), comment, date_ms, style)
}

/// Every row of a database as if it had just been inserted.
pub(crate) fn all_rows(database: &Database) -> Vec<RowChange> {
    let tables = 0..database.schema().tables().len();
    let rows = tables.flat_map(|table| database.rows(table).map(move |row| (table, row)));
    rows.map(|(table, row)| RowChange { table, uuid: row.uuid(), old: None, new: Some(Arc::clone(row)) }).collect()
}

/// Reads a record as changes of `database`.
pub fn changes(database: &Database, record: &Value) -> Result<Vec<RowChange>> {
    let schema = Arc::clone(database.schema());
    let members = record.as_object().ok_or_else(|| Error::syntax(record, "object expected"))?;
    let is_diff = members.get("_is_diff").and_then(Value::as_bool).unwrap_or(false);
    let mut changes = Vec::new();
    for (name, rows) in members {
        let Some(index) = schema.table_index(name) else {
            if name.starts_with('_') {
                continue;
            }
            return Err(Error::syntax_tagged(record, "unknown table", format!("No table named {name}.")));
        };
        let rows = rows.as_object().ok_or_else(|| Error::syntax(rows, "object expected"))?;
        for (uuid, json) in rows {
            let row =
                Uuid::parse(uuid).ok_or_else(|| Error::syntax(json, format!("\"{uuid}\" is not a valid UUID")))?;
            let change = row_change(database, index, row, json, is_diff)?;
            changes.push(change);
        }
    }
    Ok(changes)
}

fn row_change(database: &Database, index: usize, uuid: Uuid, json: &Value, is_diff: bool) -> Result<RowChange> {
    let table = database.table_schema(index).ok_or_else(|| Error::bare("internal error"))?;
    let old = database.row(index, uuid).cloned();
    if json.is_null() {
        if old.is_none() {
            let details = format!("transaction deletes row {uuid} that does not exist");
            return Err(Error::new("syntax error", details));
        }
        return Ok(RowChange { table: index, uuid, old, new: None });
    }
    let columns = json.as_object().ok_or_else(|| Error::syntax(json, "object expected"))?;
    let mut new = old.as_ref().map_or_else(|| Row::new(table, uuid), |row| (**row).clone());
    for (name, value) in columns {
        let Some((at, column)) = table.column_index(name).and_then(|at| Some((at, table.columns().get(at)?))) else {
            let details = format!("No column {name} in table {}.", table.name);
            return Err(Error::syntax_tagged(json, "unknown column", details));
        };
        let datum = match (&old, is_diff && column.kind.is_composite()) {
            (Some(old), true) => {
                let diff = Datum::from_json(value, &column.kind.relaxed(), &mut NoSymbols)?;
                old.column(at).unwrap_or(&Datum::empty()).apply_diff(&diff, &column.kind)?
            }
            _ => Datum::from_json(value, &column.kind, &mut NoSymbols)?,
        };
        new.set(at, datum);
    }
    Ok(RowChange { table: index, uuid, old, new: Some(Arc::new(new)) })
}
