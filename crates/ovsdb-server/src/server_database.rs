//! The `_Server` database (ovsdb-server(5)), in which clients read which databases the server has.

use std::collections::BTreeMap;
use std::sync::Arc;

use ovsdb::{DatabaseSchema, Datum, Error, Result, Uuid, UuidSource};

use crate::row::Row;
use crate::transaction::Transaction;

/// The database's name.
pub(crate) const NAME: &str = "_Server";

/// The schema.
pub(crate) fn schema() -> Arc<DatabaseSchema> {
    Arc::new(DatabaseSchema::parse(ovsdb::schemas::SERVER).expect("what is shipped is a schema, which a test checks"))
}

/// The contents of a database's row.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) model: &'static str,
    pub(crate) connected: bool,
    pub(crate) leader: bool,
    /// The schema's JSON text, if it is known.
    pub(crate) schema: Option<String>,
}

/// Makes the rows of `Database` describe `databases`.
pub(crate) fn describe(
    transaction: &mut Transaction<'_>,
    databases: &[Description],
    uuids: &mut UuidSource,
) -> Result<()> {
    let schema = Arc::clone(transaction.database().schema());
    let missing = || Error::bare("internal error");
    let table = schema.table_index("Database").ok_or_else(missing)?;
    let table_schema = schema.tables().get(table).ok_or_else(missing)?;
    let column = |name: &str| table_schema.column_index(name).ok_or_else(missing);
    let name_column = column("name")?;
    let known: BTreeMap<String, Uuid> = transaction
        .rows(table)
        .map(|row| (row.column(name_column).and_then(Datum::as_str).unwrap_or_default().to_owned(), row.uuid()))
        .collect();
    for (name, uuid) in &known {
        if !databases.iter().any(|database| database.name == *name) {
            transaction.delete(table, *uuid)?;
        }
    }
    for Description { name, model, connected, leader, schema } in databases {
        let existing = known.get(name).and_then(|&uuid| transaction.row(table, uuid)).map(|row| (**row).clone());
        let is_new = existing.is_none();
        let mut row = existing.unwrap_or_else(|| Row::new(table_schema, uuids.next_uuid()));
        row.set(name_column, Datum::scalar(name.as_str()));
        row.set(column("model")?, Datum::scalar(*model));
        row.set(column("connected")?, Datum::scalar(*connected));
        row.set(column("leader")?, Datum::scalar(*leader));
        row.set(column("schema")?, Datum::set(schema.as_deref()));
        if is_new {
            transaction.insert(table, row);
        } else {
            transaction.replace(table, row)?;
        }
    }
    Ok(())
}
