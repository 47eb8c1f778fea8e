//! The replica: the wanted columns of the wanted tables of one database, as the server last reported them.
//!
//! It is a pure state machine: its input is the `<table-updates>` of RFC 7047 or the `<table-updates2>` of Open
//! vSwitch, and it records for [`Replica::take_changes`] each row's state when changes were last taken. That record
//! has each changed row once, however often it changes, so it is bounded by the size of the database.
//!
//! Invariant: every row has exactly one datum for each wanted column of its table, in the order of
//! [`Table::columns`]. A column that the server's schema lacks is kept, reads as empty, and is never written.

use std::collections::BTreeMap;
use std::sync::Arc;

use ovsdb::{ColumnType, DatabaseSchema, Datum, NoSymbols, Uuid};
use serde_json::Value;

use crate::error::ProtocolError;
use crate::row::Row;
use crate::typed::Shape;
use crate::wanted::{Misfit, Wanted};

/// A wanted column.
#[derive(Debug, Clone)]
pub struct Column {
    name: String,
    shape: Option<Shape>,
    kind: Option<ColumnType>,
    /// The type without constraints: the server's values are accepted as they are.
    loose: Option<ColumnType>,
    default: Datum,
}

impl Column {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type; `None` if the server's schema does not have the column.
    pub fn kind(&self) -> Option<&ColumnType> {
        self.kind.as_ref()
    }
}

/// One row's data, in the order of the table's columns.
pub(crate) type Data = Vec<Datum>;

/// A replicated table.
#[derive(Debug, Clone)]
pub struct Table {
    name: Arc<str>,
    in_schema: bool,
    columns: Vec<Column>,
    rows: BTreeMap<Uuid, Data>,
}

impl Table {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its rows.
    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    /// The wanted columns, sorted by name.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn column_index(&self, column: &str) -> Option<usize> {
        self.columns.binary_search_by(|known| known.name.as_str().cmp(column)).ok()
    }

    /// The default of a column, for rows that do not set it.
    pub(crate) fn default_of(&self, column: usize) -> Option<&Datum> {
        self.columns.get(column).map(|column| &column.default)
    }

    fn defaults(&self) -> Data {
        self.columns.iter().map(|column| column.default.clone()).collect()
    }
}

/// A row's previous values, for [`Change`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OldValues {
    columns: BTreeMap<String, Datum>,
}

impl OldValues {
    /// The value before, if `column` changed (or the row was deleted).
    pub fn get(&self, column: &str) -> Option<&Datum> {
        self.columns.get(column)
    }

    /// The columns that changed, with their values before.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.columns.iter().map(|(name, datum)| (name.as_str(), datum))
    }
}

/// The change of one row since changes were last taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The row's table.
    pub table: Arc<str>,
    /// The row.
    pub uuid: Uuid,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// The kinds of [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// The row is new.
    Inserted,
    /// Columns have other values; the old ones are here, the new ones in the replica.
    Modified(OldValues),
    /// The row was deleted; all its replicated columns are here.
    Deleted(OldValues),
}

/// The replica of one database.
#[derive(Debug, Clone, Default)]
pub struct Replica {
    tables: Vec<Table>,
    /// Rows touched since changes were last taken, as they were then; `None` if they did not exist.
    before: BTreeMap<(usize, Uuid), Option<Data>>,
    generation: u64,
}

impl Replica {
    /// An empty replica of the wanted columns. Until [`Replica::bind`] sets a schema, all columns read as empty.
    pub fn new(wanted: &Wanted) -> Self {
        let tables = wanted.tables().map(|(name, columns)| {
            let column = |(name, shape): (&str, Option<Shape>)| {
                let (name, default) = (name.to_owned(), Datum::empty());
                Column { name, shape, kind: None, loose: None, default }
            };
            let columns = columns.map(column).collect();
            Table { name: name.into(), in_schema: false, columns, rows: BTreeMap::new() }
        });
        Self { tables: tables.collect(), before: BTreeMap::new(), generation: 0 }
    }

    /// Sets the types of the columns from `schema`, and returns the wanted columns that it lacks, or has with an
    /// incompatible type: such columns read as empty, and are not written. Rows stay as they are: the next full
    /// contents replace them.
    pub fn bind(&mut self, schema: &DatabaseSchema) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        for table in &mut self.tables {
            let found = schema.table(&table.name);
            table.in_schema = found.is_some();
            if found.is_none() {
                misfits.push(Misfit::Table(table.name.to_string()));
            }
            for column in &mut table.columns {
                let mut kind = found.and_then(|found| found.column(&column.name)).map(|column| &column.kind);
                let name = || (table.name.to_string(), column.name.clone());
                match (kind, column.shape) {
                    (None, _) if found.is_some() => misfits.push(Misfit::Column(name())),
                    (Some(found), Some(shape)) if !shape.fits(found) => {
                        misfits.push(Misfit::Type { column: name(), expected: shape, found: found.to_string() });
                        kind = None;
                    }
                    _ => {}
                }
                column.default = kind.map(Datum::default_of).unwrap_or_default();
                column.loose = kind.map(ColumnType::unconstrained);
                column.kind = kind.cloned();
            }
        }
        misfits
    }

    /// The names of the wanted tables that the server has.
    pub(crate) fn tables_in_schema(&self) -> Vec<&str> {
        self.tables.iter().filter(|table| table.in_schema).map(Table::name).collect()
    }

    /// A number that grows with each change of the contents.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The replicated tables, sorted by name.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    pub(crate) fn table_index(&self, table: &str) -> Option<usize> {
        self.tables.binary_search_by(|known| known.name.as_ref().cmp(table)).ok()
    }

    /// The table called `table`, if it is replicated.
    pub fn table(&self, table: &str) -> Option<&Table> {
        self.tables.get(self.table_index(table)?)
    }

    /// The rows of a table, sorted by UUID.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = Row<'_>> {
        self.table(table)
            .into_iter()
            .flat_map(|table| table.rows.iter().map(move |(uuid, data)| Row { table, uuid: *uuid, data }))
    }

    /// One row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<Row<'_>> {
        let table = self.table(table)?;
        Some(Row { table, uuid, data: table.rows.get(&uuid)? })
    }

    pub(crate) fn data(&self, table: usize, uuid: Uuid) -> Option<&Data> {
        self.tables.get(table)?.rows.get(&uuid)
    }

    pub(crate) fn uuids(&self, table: usize) -> impl Iterator<Item = Uuid> {
        self.tables.get(table).into_iter().flat_map(|table| table.rows.keys().copied())
    }

    /// The `<monitor-requests>` that ask a server for all that is wanted and that it has.
    pub fn monitor_requests(&self) -> Value {
        let mut requests = serde_json::Map::new();
        for table in self.tables.iter().filter(|table| table.in_schema) {
            let columns: Vec<&str> =
                table.columns.iter().filter(|column| column.kind.is_some()).map(Column::name).collect();
            requests.insert(table.name.to_string(), serde_json::json!([{ "columns": columns }]));
        }
        Value::Object(requests)
    }

    /// Returns the changes of rows since the last call, sorted by table and row. Several changes of one row are one
    /// change here, and a row that was added and removed in between is left out.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let before = std::mem::take(&mut self.before);
        let changes = before.into_iter().filter_map(|((at, uuid), before)| {
            let table = self.tables.get(at)?;
            let now = table.rows.get(&uuid);
            let old = |keep: &dyn Fn(usize, &Datum) -> bool| OldValues {
                columns: before
                    .iter()
                    .flatten()
                    .enumerate()
                    .filter(|(column, datum)| keep(*column, datum))
                    .filter_map(|(column, datum)| Some((table.columns.get(column)?.name.clone(), datum.clone())))
                    .collect(),
            };
            let kind = match (&before, now) {
                (None, None) => return None,
                (None, Some(_)) => ChangeKind::Inserted,
                (Some(_), None) => ChangeKind::Deleted(old(&|_, _| true)),
                (Some(_), Some(now)) => {
                    let old = old(&|column, datum| now.get(column) != Some(datum));
                    if old.columns.is_empty() {
                        return None;
                    }
                    ChangeKind::Modified(old)
                }
            };
            Some(Change { table: table.name.clone(), uuid, kind })
        });
        changes.collect()
    }

    /// Writes a row, or deletes it if `data` is `None`.
    fn store(&mut self, at: usize, uuid: Uuid, data: Option<Data>) {
        let Some(table) = self.tables.get_mut(at) else { return };
        let old = match data {
            Some(data) => table.rows.insert(uuid, data),
            None => table.rows.remove(&uuid),
        };
        self.generation += 1;
        self.before.entry((at, uuid)).or_insert(old);
    }

    /// Applies `<table-updates2>`: the reply to `monitor_cond`, or an `update2` or `update3`.
    ///
    /// # Errors
    ///
    /// When the updates are malformed or do not fit the replica. It may have been changed in part then, and the
    /// caller must ask for the full contents again.
    pub fn apply_updates2(&mut self, updates: &Value) -> Result<(), ProtocolError> {
        self.for_each_update(updates, |replica, table, uuid, update| {
            let one = |name: &str| update.get(name);
            if let Some(row) = one("initial").or_else(|| one("insert")) {
                return replica.put_row(table, uuid, row);
            }
            if let Some(row) = one("modify") {
                return replica.modify_row(table, uuid, row);
            }
            if one("delete").is_some() {
                replica.store(table, uuid, None);
                return Ok(());
            }
            Err(ProtocolError::new("row update has none of initial, insert, modify and delete", update))
        })
    }

    /// Applies `<table-updates>` (RFC 7047 section 4.1.6): the reply to `monitor`, or an `update`.
    ///
    /// # Errors
    ///
    /// As [`Replica::apply_updates2`].
    pub fn apply_updates(&mut self, updates: &Value) -> Result<(), ProtocolError> {
        self.for_each_update(updates, |replica, table, uuid, update| match update.get("new") {
            Some(Value::Null) | None => {
                replica.store(table, uuid, None);
                Ok(())
            }
            Some(row) => replica.put_row(table, uuid, row),
        })
    }

    /// Takes `updates` as the full contents: rows that are not in it are deleted. `apply` is one of
    /// [`Replica::apply_updates2`] and [`Replica::apply_updates`].
    ///
    /// # Errors
    ///
    /// As [`Replica::apply_updates2`].
    pub(crate) fn replace(
        &mut self,
        updates: &Value,
        apply: fn(&mut Self, &Value) -> Result<(), ProtocolError>,
    ) -> Result<(), ProtocolError> {
        for at in 0..self.tables.len() {
            let Some(table) = self.tables.get(at) else { continue };
            let kept = updates.get(table.name.as_ref()).and_then(Value::as_object);
            let gone: Vec<Uuid> = table
                .rows
                .keys()
                .filter(|uuid| !kept.is_some_and(|kept| kept.contains_key(&uuid.to_string())))
                .copied()
                .collect();
            for uuid in gone {
                self.store(at, uuid, None);
            }
        }
        apply(self, updates)
    }

    fn for_each_update(
        &mut self,
        updates: &Value,
        mut apply: impl FnMut(&mut Self, usize, Uuid, &Value) -> Result<(), ProtocolError>,
    ) -> Result<(), ProtocolError> {
        let tables = updates.as_object().ok_or_else(|| ProtocolError::new("updates are not an object", updates))?;
        for (name, rows) in tables {
            let at = self
                .table_index(name)
                .ok_or_else(|| ProtocolError::new("update of a table that was not asked for", &Value::from(&**name)))?;
            let rows = rows.as_object().ok_or_else(|| ProtocolError::new("table update is not an object", rows))?;
            for (uuid, update) in rows {
                let uuid = Uuid::parse(uuid)
                    .ok_or_else(|| ProtocolError::new("row update of a bad UUID", &Value::from(&**uuid)))?;
                apply(self, at, uuid, update)?;
            }
        }
        Ok(())
    }

    /// Stores a whole row; columns that it does not mention have their defaults.
    fn put_row(&mut self, at: usize, uuid: Uuid, row: &Value) -> Result<(), ProtocolError> {
        let Some(table) = self.tables.get(at) else { return Ok(()) };
        let mut data = table.defaults();
        for_each_column(table, row, |column, _, loose, json| {
            if let Some(slot) = data.get_mut(column) {
                *slot = parse(json, loose)?;
            }
            Ok(())
        })?;
        if table.rows.get(&uuid) != Some(&data) {
            self.store(at, uuid, Some(data));
        }
        Ok(())
    }

    /// Applies differences to a row.
    fn modify_row(&mut self, at: usize, uuid: Uuid, row: &Value) -> Result<(), ProtocolError> {
        let Some(table) = self.tables.get(at) else { return Ok(()) };
        let Some(mut data) = table.rows.get(&uuid).cloned() else {
            return Err(ProtocolError::new("modification of an unknown row", &Value::from(uuid.to_string())));
        };
        for_each_column(table, row, |column, kind, loose, json| {
            if let Some(slot) = data.get_mut(column) {
                let difference = parse(json, loose)?;
                *slot = slot.apply_diff(&difference, kind).map_err(|e| ProtocolError::new(&e.to_string(), json))?;
            }
            Ok(())
        })?;
        self.store(at, uuid, Some(data));
        Ok(())
    }
}

fn for_each_column(
    table: &Table,
    row: &Value,
    mut apply: impl FnMut(usize, &ColumnType, &ColumnType, &Value) -> Result<(), ProtocolError>,
) -> Result<(), ProtocolError> {
    let row = row.as_object().ok_or_else(|| ProtocolError::new("row is not an object", row))?;
    for (name, json) in row {
        // Servers that monitor all columns send `_uuid` and `_version` without a request.
        let Some(at) = table.column_index(name) else { continue };
        let column = table.columns.get(at);
        if let Some(Column { kind: Some(kind), loose: Some(loose), .. }) = column {
            apply(at, kind, loose, json)?;
        }
    }
    Ok(())
}

fn parse(json: &Value, kind: &ColumnType) -> Result<Datum, ProtocolError> {
    Datum::from_json(json, kind, &mut NoSymbols).map_err(|error| ProtocolError::new(&error.to_string(), json))
}
