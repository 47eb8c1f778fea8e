//! Parses `<table-updates>` (RFC 7047 section 4.1.6) and `<table-updates2>` (ovsdb-server(7) section 4.1.14) as
//! changes of a database, to keep a copy of another server's database.
//!
//! Updates of the other server are checked like a client's transaction: they fill a [`Transaction`], which is then
//! prepared like any other, so that a server that violates the protocol cannot corrupt the copy.

use std::collections::BTreeSet;

use ovsdb::json::NoSymbols;
use ovsdb::{Datum, Error, Result, TableSchema, Uuid};
use serde_json::{Map, Value};

use crate::row::Row;
use crate::transaction::Transaction;

/// How updates are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `old` and `new`, each with whole values.
    Whole,
    /// `initial`, `insert`, `modify` with differences, and `delete`.
    Difference,
}

/// Applies the changes in `updates` to the transaction.
pub(crate) fn apply(transaction: &mut Transaction<'_>, updates: &Value, format: Format) -> Result<()> {
    for_each(transaction, updates, |transaction, table, uuid, update| {
        match (format, update.get("new"), one_of(update)) {
            (Format::Whole, None | Some(Value::Null), _) => transaction.delete(table, uuid),
            (Format::Whole, Some(new), _) => put(transaction, table, uuid, new),
            (Format::Difference, _, Some(("delete", _))) => transaction.delete(table, uuid),
            (Format::Difference, _, Some(("modify", columns))) => modify(transaction, table, uuid, columns),
            (Format::Difference, _, Some((_, columns))) => put(transaction, table, uuid, columns),
            (Format::Difference, _, None) => {
                Err(Error::syntax(&Value::Object(update.clone()), "row update says nothing"))
            }
        }
    })
}

/// Makes the tables in `tables` hold exactly the rows that `updates` list, which are the reply to the request that
/// started a monitor.
pub(crate) fn replace(
    transaction: &mut Transaction<'_>,
    updates: &Value,
    format: Format,
    tables: &BTreeSet<usize>,
) -> Result<()> {
    let mut listed = BTreeSet::new();
    for_each(transaction, updates, |transaction, table, uuid, update| {
        let columns = match format {
            Format::Whole => update.get("new"),
            Format::Difference => one_of(update).filter(|(kind, _)| *kind != "delete").map(|(_, columns)| columns),
        };
        let columns = columns.ok_or_else(|| Error::syntax(&Value::Object(update.clone()), "no initial row"))?;
        listed.insert((table, uuid));
        put(transaction, table, uuid, columns)
    })?;
    for &table in tables {
        let gone = transaction.database().rows(table).map(|row| row.uuid());
        let gone: Vec<Uuid> = gone.filter(|&uuid| !listed.contains(&(table, uuid))).collect();
        gone.into_iter().try_for_each(|uuid| transaction.delete(table, uuid))?;
    }
    Ok(())
}

type Object = Map<String, Value>;

fn for_each<'a>(
    transaction: &mut Transaction<'a>,
    updates: &Value,
    mut each: impl FnMut(&mut Transaction<'a>, usize, Uuid, &Object) -> Result<()>,
) -> Result<()> {
    let object = |json: &Value| Error::syntax(json, "object expected");
    for (name, rows) in updates.as_object().ok_or_else(|| object(updates))? {
        let Some(table) = transaction.database().schema().table_index(name) else {
            return Err(Error::syntax_tagged(rows, "unknown table", format!("No table named {name}.")));
        };
        for (uuid, update) in rows.as_object().ok_or_else(|| object(rows))? {
            let invalid = || Error::syntax(update, format!("\"{uuid}\" is not a valid UUID"));
            let uuid = Uuid::parse(uuid).ok_or_else(invalid)?;
            each(transaction, table, uuid, update.as_object().ok_or_else(|| object(update))?)?;
        }
    }
    Ok(())
}

/// The kind of a `<row-update2>`, and its columns.
fn one_of(update: &Object) -> Option<(&'static str, &Value)> {
    ["initial", "insert", "modify", "delete"].into_iter().find_map(|kind| Some((kind, update.get(kind)?)))
}

/// Writes a row whose other columns have default values.
fn put(transaction: &mut Transaction<'_>, table: usize, uuid: Uuid, columns: &Value) -> Result<()> {
    let schema = table_schema(transaction, table)?;
    let mut row = Row::new(schema, uuid);
    for_each_column(schema, columns, |index, value| {
        let Some(column) = schema.columns().get(index) else { return Ok(()) };
        row.set(index, Datum::from_json(value, &column.kind, &mut NoSymbols)?);
        Ok(())
    })?;
    if transaction.row(table, uuid).is_none() {
        transaction.insert(table, row);
        return Ok(());
    }
    transaction.replace(table, row)
}

/// Applies differences to a row.
fn modify(transaction: &mut Transaction<'_>, table: usize, uuid: Uuid, columns: &Value) -> Result<()> {
    let schema = table_schema(transaction, table)?;
    let missing = || Error::ovsdb(format!("update of row {uuid} of table {}, which is not there", schema.name));
    let mut row = (**transaction.row(table, uuid).ok_or_else(missing)?).clone();
    for_each_column(schema, columns, |index, value| {
        let Some(column) = schema.columns().get(index) else { return Ok(()) };
        let diff = Datum::from_json(value, &column.kind.relaxed(), &mut NoSymbols)?;
        let datum = row.column(index).unwrap_or(&Datum::empty()).apply_diff(&diff, &column.kind)?;
        datum.check(&column.kind)?;
        row.set(index, datum);
        Ok(())
    })?;
    transaction.replace(table, row)
}

fn table_schema<'a>(transaction: &Transaction<'a>, table: usize) -> Result<&'a TableSchema> {
    transaction.database().table_schema(table).ok_or_else(|| Error::bare("internal error"))
}

/// Goes through the columns that are not implicit: versions of rows are each server's own.
fn for_each_column(
    schema: &TableSchema,
    columns: &Value,
    mut each: impl FnMut(usize, &Value) -> Result<()>,
) -> Result<()> {
    let object = columns.as_object().ok_or_else(|| Error::syntax(columns, "object expected"))?;
    for (name, value) in object {
        let Some(index) = schema.column_index(name) else {
            let details = format!("No column {name} in table {}.", schema.name);
            return Err(Error::syntax_tagged(columns, "unknown column", details));
        };
        if index >= ovsdb::schema::IMPLICIT_COLUMNS {
            each(index, value)?;
        }
    }
    Ok(())
}
