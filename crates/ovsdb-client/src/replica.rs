//! The replica: the wanted columns of the wanted tables of one database, as the server last reported them.
//!
//! It is a pure state machine: it is fed the `<table-updates>` of RFC 7047 or the `<table-updates2>` of Open vSwitch,
//! and remembers for whoever asks ([`Replica::take_changes`]) how each row looked when changes were last taken. That
//! memory holds each touched row once, however often it changes, so it is bounded by the size of the database.
//!
//! Invariant: every row has exactly one datum for each wanted column of its table, in the order of
//! [`Table::columns`]. A column that the server's schema lacks is kept, reads as empty, and is never written.

use std::collections::BTreeMap;
use std::sync::Arc;

use ovsdb::{Atom, ColumnType, DatabaseSchema, Datum, NoSymbols, Uuid};
use serde_json::Value;

use crate::error::ProtocolError;

/// Which tables and columns to replicate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    tables: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a table; its rows are replicated even if no column is wanted.
    pub fn table(&mut self, table: &str) {
        self.tables.entry(table.to_owned()).or_default();
    }

    /// Adds a column of a table.
    pub fn column(&mut self, table: &str, column: &str) {
        let columns = self.tables.entry(table.to_owned()).or_default();
        if let Err(at) = columns.binary_search_by(|known| known.as_str().cmp(column)) {
            columns.insert(at, column.to_owned());
        }
    }

    /// Every column of every table that `schema` has.
    pub fn everything(schema: &DatabaseSchema) -> Self {
        let mut wanted = Self::new();
        for table in schema.tables() {
            wanted.table(&table.name);
            for (_, column) in table.own_columns() {
                wanted.column(&table.name, &column.name);
            }
        }
        wanted
    }
}

impl From<&[(&str, &[&str])]> for Wanted {
    fn from(tables: &[(&str, &[&str])]) -> Self {
        let mut wanted = Self::new();
        for (table, columns) in tables {
            wanted.table(table);
            for column in *columns {
                wanted.column(table, column);
            }
        }
        wanted
    }
}

impl<const N: usize> From<&[(&str, &[&str]); N]> for Wanted {
    fn from(tables: &[(&str, &[&str]); N]) -> Self {
        Self::from(tables.as_slice())
    }
}

/// A wanted column.
#[derive(Debug, Clone)]
pub struct Column {
    name: String,
    kind: Option<ColumnType>,
    /// The type without constraints: what the server has is taken as it is.
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

    /// The wanted columns, sorted by name.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn column_index(&self, column: &str) -> Option<usize> {
        self.columns.binary_search_by(|known| known.name.as_str().cmp(column)).ok()
    }

    /// The default of a column, which is what a row that does not set it has.
    pub(crate) fn default_of(&self, column: usize) -> Option<&Datum> {
        self.columns.get(column).map(|column| &column.default)
    }

    fn defaults(&self) -> Data {
        self.columns.iter().map(|column| column.default.clone()).collect()
    }
}

/// How a row looked before, for [`Change`].
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

/// What happened to one row since changes were last taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The row's table.
    pub table: Arc<str>,
    /// The row.
    pub uuid: Uuid,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// The kinds of [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// The row is new.
    Inserted,
    /// Columns have other values; the old ones are here, the new ones in the replica.
    Modified(OldValues),
    /// The row is gone; all its wanted columns are here.
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
    /// An empty replica of what is wanted. Until [`Replica::bind`] gives it a schema, all columns read as empty.
    pub fn new(wanted: &Wanted) -> Self {
        let column = |name: &String| Column { name: name.clone(), kind: None, loose: None, default: Datum::empty() };
        let table = |(name, columns): (&String, &Vec<String>)| Table {
            name: name.as_str().into(),
            in_schema: false,
            columns: columns.iter().map(column).collect(),
            rows: BTreeMap::new(),
        };
        Self { tables: wanted.tables.iter().map(table).collect(), before: BTreeMap::new(), generation: 0 }
    }

    /// Takes the types of the columns from `schema`, and gives the names of what is wanted and missing there, as
    /// `TABLE` or `TABLE.COLUMN`. Rows stay as they are: the next full contents replace them.
    pub fn bind(&mut self, schema: &DatabaseSchema) -> Vec<String> {
        let mut missing = Vec::new();
        for table in &mut self.tables {
            let found = schema.table(&table.name);
            table.in_schema = found.is_some();
            if found.is_none() {
                missing.push(table.name.to_string());
            }
            for column in &mut table.columns {
                let kind = found.and_then(|found| found.column(&column.name)).map(|column| &column.kind);
                if kind.is_none() && found.is_some() {
                    missing.push(format!("{}.{}", table.name, column.name));
                }
                column.default = kind.map(Datum::default_of).unwrap_or_default();
                column.loose = kind.map(ColumnType::unconstrained);
                column.kind = kind.cloned();
            }
        }
        missing
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

    /// What happened to which rows since this was last called, sorted by table and row. Several changes of one row
    /// are one change here, and a row that came and went in between is not mentioned.
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
        // `_uuid` and `_version` come uninvited from servers that monitor all columns.
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

/// A row of a replica, with typed access to its columns.
///
/// Each accessor gives the empty value of its type if the column is not wanted, not in the server's schema, empty, or
/// of another type, so that a daemon keeps running with a database of an older or newer schema.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    table: &'a Table,
    uuid: Uuid,
    data: &'a Data,
}

impl<'a> Row<'a> {
    /// The row's UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The name of its table.
    pub fn table(&self) -> &'a str {
        &self.table.name
    }

    /// The value of a column.
    pub fn datum(&self, column: &str) -> Option<&'a Datum> {
        self.data.get(self.table.column_index(column)?)
    }

    /// Whether the column has no elements.
    pub fn is_empty(&self, column: &str) -> bool {
        self.datum(column).is_none_or(Datum::is_empty)
    }

    /// A string, or the empty one.
    pub fn string(&self, column: &str) -> &'a str {
        self.string_opt(column).unwrap_or_default()
    }

    /// An optional string.
    pub fn string_opt(&self, column: &str) -> Option<&'a str> {
        self.datum(column)?.as_str()
    }

    /// An integer, or 0.
    pub fn integer(&self, column: &str) -> i64 {
        self.integer_opt(column).unwrap_or_default()
    }

    /// An optional integer.
    pub fn integer_opt(&self, column: &str) -> Option<i64> {
        self.datum(column)?.as_integer()
    }

    /// A truth value, or false.
    pub fn boolean(&self, column: &str) -> bool {
        self.boolean_opt(column).unwrap_or_default()
    }

    /// An optional truth value.
    pub fn boolean_opt(&self, column: &str) -> Option<bool> {
        self.datum(column)?.as_bool()
    }

    /// A reference.
    pub fn uuid_opt(&self, column: &str) -> Option<Uuid> {
        self.datum(column)?.as_uuid()
    }

    /// A set of references; of a map, its values if those are references, else its keys.
    pub fn uuids(&self, column: &str) -> Vec<Uuid> {
        uuids_of(self.datum(column))
    }

    /// A set of strings.
    pub fn strings(&self, column: &str) -> Vec<&'a str> {
        self.datum(column).into_iter().flat_map(|datum| datum.keys()).filter_map(Atom::as_str).collect()
    }

    /// A set of integers.
    pub fn integers(&self, column: &str) -> Vec<i64> {
        self.datum(column).into_iter().flat_map(|datum| datum.keys()).filter_map(Atom::as_integer).collect()
    }

    /// A map from strings to strings.
    pub fn map(&self, column: &str) -> BTreeMap<&'a str, &'a str> {
        let pairs = self.datum(column).into_iter().flat_map(|datum| datum.pairs());
        pairs.filter_map(|(key, value)| Some((key.as_str()?, value.as_str()?))).collect()
    }

    /// One value of a map from strings to strings.
    pub fn map_get(&self, column: &str, key: &str) -> Option<&'a str> {
        self.datum(column)?.get_str(key)
    }

    /// A map from integers to references (`flow_tables`, `queues`, `ct_zones`).
    pub fn map_integer_uuid(&self, column: &str) -> BTreeMap<i64, Uuid> {
        let pairs = self.datum(column).into_iter().flat_map(|datum| datum.pairs());
        pairs.filter_map(|(key, value)| Some((key.as_integer()?, value.as_uuid()?))).collect()
    }

    /// A map from strings to references (`datapaths`).
    pub fn map_string_uuid(&self, column: &str) -> BTreeMap<&'a str, Uuid> {
        let pairs = self.datum(column).into_iter().flat_map(|datum| datum.pairs());
        pairs.filter_map(|(key, value)| Some((key.as_str()?, value.as_uuid()?))).collect()
    }
}

/// The references in a datum: its elements, or its values if those are references.
pub(crate) fn uuids_of(datum: Option<&Datum>) -> Vec<Uuid> {
    let Some(datum) = datum else { return Vec::new() };
    let values: Vec<Uuid> = datum.values().iter().filter_map(Atom::as_uuid).collect();
    if values.is_empty() { datum.keys().iter().filter_map(Atom::as_uuid).collect() } else { values }
}
