//! The row operations of one transaction, on top of a replica: the resulting contents, and the operations for the
//! server.
//!
//! Pure: [`Changes::operations`] writes the `transact` request's operations and [`Changes::outcome`] parses the
//! reply.
//!
//! Reading through [`Changes`] returns the replica with the changes applied. A new row has a temporary UUID until the
//! server has assigned one; references to it are sent as `named-uuid`. Whole columns are written by `update`; single
//! elements added to or removed from sets and maps are sent as mutations, so that two clients that each add an
//! element do not overwrite each other's change.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Atom, ColumnType, Datum, Uuid};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::replica::Replica;

/// The result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It changes nothing, so it was not sent.
    Unchanged,
    /// It is committed.
    Committed(Committed),
    /// A value it relied on ([`Changes::verify`]) has changed, or the connection broke: build it again from the
    /// replica once that has changed. After a broken connection the transaction may have been committed nevertheless.
    TryAgain,
    /// It needs a lock that this client does not hold.
    NotLocked,
}

/// The server's result of a committed transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    uuids: BTreeMap<Uuid, Uuid>,
    incremented: Option<i64>,
}

impl Committed {
    /// The UUID that the server gave to a row that was inserted as `uuid`; other UUIDs stay as they are.
    pub fn uuid(&self, uuid: Uuid) -> Uuid {
        self.uuids.get(&uuid).copied().unwrap_or(uuid)
    }

    /// The value after [`Changes::increment`].
    pub fn incremented(&self) -> Option<i64> {
        self.incremented
    }
}

/// A written column.
#[derive(Debug, Clone)]
enum Write {
    /// The whole new value.
    Whole(Datum),
    /// Elements removed and then elements added, and the value that results.
    Elements { removed: Datum, added: Datum, now: Datum },
}

impl Write {
    fn now(&self) -> &Datum {
        match self {
            Write::Whole(now) | Write::Elements { now, .. } => now,
        }
    }
}

/// The change of one row.
#[derive(Debug, Clone)]
enum RowChange {
    Insert {
        with_uuid: bool,
        columns: BTreeMap<usize, Datum>,
    },
    Update(BTreeMap<usize, Write>),
    Delete,
    /// Taken out of its table without an operation.
    Forget,
}

/// A row of a replica: the index of its table, and its UUID.
type Key = (usize, Uuid);

/// The row operations of one transaction.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    rows: BTreeMap<Key, RowChange>,
    /// Keys of `rows`, in the order in which they were first touched.
    order: Vec<Key>,
    verified: BTreeMap<Key, BTreeSet<usize>>,
    comments: Vec<String>,
    increment: Option<(Key, usize)>,
    /// Inserted rows whose UUIDs the server chooses.
    named: BTreeSet<Uuid>,
}

impl Changes {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The rows of a table, sorted by UUID: those of the replica without the deleted and the forgotten ones, and the
    /// inserted ones.
    pub fn rows(&self, replica: &Replica, table: &str) -> Vec<Uuid> {
        let Some(table) = replica.table_index(table) else { return Vec::new() };
        let is_gone =
            |uuid: &Uuid| matches!(self.rows.get(&(table, *uuid)), Some(RowChange::Delete | RowChange::Forget));
        let mut uuids: Vec<Uuid> = replica.uuids(table).filter(|uuid| !is_gone(uuid)).collect();
        let span = (table, Uuid::ZERO)..=(table, Uuid::from_bytes([0xff; 16]));
        let inserted = self.rows.range(span).filter(|(_, change)| matches!(change, RowChange::Insert { .. }));
        uuids.extend(inserted.map(|((_, uuid), _)| *uuid));
        uuids.sort_unstable();
        uuids
    }

    /// Whether the row exists.
    pub fn contains(&self, replica: &Replica, table: &str, uuid: Uuid) -> bool {
        let Some(table) = replica.table_index(table) else { return false };
        match self.rows.get(&(table, uuid)) {
            Some(RowChange::Delete | RowChange::Forget) => false,
            Some(RowChange::Insert { .. }) => true,
            Some(RowChange::Update(_)) | None => replica.data(table, uuid).is_some(),
        }
    }

    /// The value of a column; `None` if there is no such row or column. A forgotten row has its values still, for readers
    /// that come to it by a reference.
    pub fn datum<'a>(&'a self, replica: &'a Replica, table: &str, uuid: Uuid, column: &str) -> Option<&'a Datum> {
        let at = replica.table_index(table)?;
        let table = replica.table(table)?;
        let column = table.column_index(column)?;
        match self.rows.get(&(at, uuid)) {
            Some(RowChange::Delete) => None,
            Some(RowChange::Insert { columns, .. }) => columns.get(&column).or_else(|| table.default_of(column)),
            Some(RowChange::Update(columns)) if columns.contains_key(&column) => columns.get(&column).map(Write::now),
            Some(RowChange::Update(_) | RowChange::Forget) | None => replica.data(at, uuid)?.get(column),
        }
    }

    /// Inserts a row and returns its UUID within this transaction.
    pub fn insert(&mut self, replica: &Replica, table: &str) -> Uuid {
        let uuid = Uuid::random();
        self.insert_as(replica, table, uuid);
        uuid
    }

    /// Inserts a row that this transaction shall know as `uuid`.
    pub fn insert_as(&mut self, replica: &Replica, table: &str, uuid: Uuid) {
        self.insert_row(replica, table, uuid, false);
    }

    /// Inserts a row with the final UUID `uuid`.
    pub fn insert_with_uuid(&mut self, replica: &Replica, table: &str, uuid: Uuid) {
        self.insert_row(replica, table, uuid, true);
    }

    fn insert_row(&mut self, replica: &Replica, table: &str, uuid: Uuid, with_uuid: bool) {
        if let Some(table) = replica.table_index(table) {
            self.put((table, uuid), RowChange::Insert { with_uuid, columns: BTreeMap::new() });
            if !with_uuid {
                self.named.insert(uuid);
            }
        }
    }

    fn put(&mut self, key: Key, change: RowChange) {
        if self.rows.insert(key, change).is_none() {
            self.order.push(key);
        }
    }

    /// Takes a row out of its table for the rest of this transaction, and leaves it to the server to delete it: for rows
    /// whose references the transaction removes, as the server deletes rows without a strong reference. A row that the
    /// transaction has inserted is not inserted.
    pub fn forget(&mut self, replica: &Replica, table: &str, uuid: Uuid) {
        self.take_out(replica, table, uuid, RowChange::Forget);
    }

    /// Deletes a row.
    pub fn delete(&mut self, replica: &Replica, table: &str, uuid: Uuid) {
        self.take_out(replica, table, uuid, RowChange::Delete);
    }

    fn take_out(&mut self, replica: &Replica, table: &str, uuid: Uuid, change: RowChange) {
        let Some(table) = replica.table_index(table) else { return };
        let key = (table, uuid);
        if matches!(self.rows.get(&key), Some(RowChange::Insert { .. })) {
            self.rows.remove(&key);
            self.order.retain(|known| *known != key);
            self.named.remove(&uuid);
        } else if replica.data(table, uuid).is_some() {
            self.put(key, change);
        }
    }

    /// The key of an existing row and the index of a column that the server's schema has.
    fn target(&self, replica: &Replica, table: &str, uuid: Uuid, column: &str) -> Option<(Key, usize)> {
        let at = replica.table_index(table)?;
        let found = replica.table(table)?;
        let column = found.column_index(column)?;
        found.columns().get(column)?.kind()?;
        self.contains(replica, table, uuid).then_some(((at, uuid), column))
    }

    /// Writes a whole column. Nothing happens if there is no such row, or if the server's schema lacks the column.
    pub fn set(&mut self, replica: &Replica, table: &str, uuid: Uuid, column: &str, value: impl Into<Datum>) {
        let Some((key, column)) = self.target(replica, table, uuid, column) else { return };
        let value = value.into();
        match self.rows.get_mut(&key) {
            Some(RowChange::Insert { columns, .. }) => {
                columns.insert(column, value);
            }
            Some(RowChange::Update(columns)) => {
                columns.insert(column, Write::Whole(value));
            }
            Some(RowChange::Delete | RowChange::Forget) => {}
            None => self.put(key, RowChange::Update(BTreeMap::from([(column, Write::Whole(value))]))),
        }
    }

    /// Adds elements to a set or a map, replacing the values of keys that the map has.
    pub fn add(&mut self, replica: &Replica, table: &str, uuid: Uuid, column: &str, elements: &Datum) {
        self.edit(replica, table, uuid, column, &Datum::empty(), elements);
    }

    /// Removes elements from a set, or keys from a map if `elements` is a set.
    pub fn remove(&mut self, replica: &Replica, table: &str, uuid: Uuid, column: &str, elements: &Datum) {
        self.edit(replica, table, uuid, column, elements, &Datum::empty());
    }

    fn edit(&mut self, replica: &Replica, table: &str, uuid: Uuid, column: &str, remove: &Datum, add: &Datum) {
        let Some((key, at)) = self.target(replica, table, uuid, column) else { return };
        let old = self.datum(replica, table, uuid, column).cloned().unwrap_or_default();
        let mut now = old.clone();
        now.subtract(remove);
        now.subtract(&Datum::set(add.keys().iter().cloned()));
        now.union(add);
        let change = self.rows.get_mut(&key);
        let columns = match change {
            Some(RowChange::Insert { columns, .. }) => {
                columns.insert(at, now);
                return;
            }
            Some(RowChange::Delete | RowChange::Forget) => return,
            Some(RowChange::Update(columns)) => columns,
            None => {
                self.put(key, RowChange::Update(BTreeMap::new()));
                let Some(RowChange::Update(columns)) = self.rows.get_mut(&key) else { return };
                columns
            }
        };
        let write = match columns.remove(&at) {
            Some(Write::Whole(_)) => Write::Whole(now),
            Some(Write::Elements { removed, added, .. }) => edited(removed, added, remove, add, now),
            None => edited(Datum::empty(), Datum::empty(), remove, add, now),
        };
        columns.insert(at, write);
    }

    /// Makes the transaction fail with [`Outcome::TryAgain`] if the column no longer has the value that the replica
    /// has now.
    pub fn verify(&mut self, replica: &Replica, table: &str, uuid: Uuid, column: &str) {
        let Some((key, column)) = self.target(replica, table, uuid, column) else { return };
        if replica.data(key.0, uuid).is_some() {
            self.verified.entry(key).or_default().insert(column);
        }
    }

    /// Adds one to an integer column after all else, and tells the new value in [`Committed::incremented`]. A
    /// transaction of nothing else is still [`Outcome::Unchanged`].
    pub fn increment(&mut self, replica: &Replica, table: &str, uuid: Uuid, column: &str) {
        self.increment = self.target(replica, table, uuid, column);
    }

    /// Adds a line to the comment that the server writes into its log with the transaction.
    pub fn comment(&mut self, comment: impl Into<String>) {
        self.comments.push(comment.into());
    }

    /// Whether nothing would be changed.
    pub fn is_unchanged(&self, replica: &Replica) -> bool {
        self.order.iter().all(|key| self.row_operations(replica, *key).is_empty())
    }

    /// The operations for the server; `None` if nothing would be changed. `lock` is the lock that must be held.
    pub fn operations(&self, replica: &Replica, lock: Option<&str>) -> Option<Vec<Value>> {
        let changes: Vec<Value> = self.order.iter().flat_map(|key| self.row_operations(replica, *key)).collect();
        if changes.is_empty() {
            return None;
        }
        let mut operations = Vec::new();
        operations.extend(lock.map(|lock| json!({ "op": "assert", "lock": lock })));
        operations.extend(self.verified.iter().filter_map(|(key, columns)| Self::wait(replica, *key, columns)));
        operations.extend(changes);
        if let Some((key, column)) = self.increment {
            operations.extend(self.increment_operations(replica, key, column));
        }
        if !self.comments.is_empty() {
            operations.push(json!({ "op": "comment", "comment": self.comments.join("\n") }));
        }
        Some(operations)
    }

    fn wait(replica: &Replica, (table, uuid): Key, columns: &BTreeSet<usize>) -> Option<Value> {
        let data = replica.data(table, uuid)?;
        let table = replica.tables().get(table)?;
        let mut row = Map::new();
        for &at in columns {
            let column = table.columns().get(at)?;
            row.insert(column.name().to_owned(), data.get(at)?.to_json(column.kind()?));
        }
        let names: Vec<&String> = row.keys().collect();
        Some(json!({
            "op": "wait", "table": table.name(), "where": where_uuid(uuid), "timeout": 0, "until": "==",
            "columns": names, "rows": [&row],
        }))
    }

    fn row_operations(&self, replica: &Replica, key: Key) -> Vec<Value> {
        let (Some(change), Some(table)) = (self.rows.get(&key), replica.tables().get(key.0)) else {
            return Vec::new();
        };
        let uuid = key.1;
        let name = table.name();
        match change {
            RowChange::Forget => Vec::new(),
            RowChange::Delete => vec![json!({ "op": "delete", "table": name, "where": where_uuid(uuid) })],
            RowChange::Insert { with_uuid, columns } => {
                let mut row = Map::new();
                for (at, datum) in columns {
                    let Some(column) = table.columns().get(*at) else { continue };
                    let Some(kind) = column.kind().filter(|kind| !datum.is_default(kind)) else { continue };
                    row.insert(column.name().to_owned(), self.datum_to_json(datum, kind));
                }
                let mut operation = json!({ "op": "insert", "table": name, "row": row });
                if *with_uuid {
                    operation["uuid"] = uuid.to_string().into();
                } else {
                    operation["uuid-name"] = row_name(uuid).into();
                }
                vec![operation]
            }
            RowChange::Update(columns) => {
                let data = replica.data(key.0, uuid);
                let mut row = Map::new();
                let mut mutations = Vec::new();
                for (at, write) in columns {
                    let Some(column) = table.columns().get(*at) else { continue };
                    let Some(kind) = column.kind() else { continue };
                    if data.and_then(|data| data.get(*at)) == Some(write.now()) {
                        continue;
                    }
                    match write {
                        Write::Whole(datum) => {
                            row.insert(column.name().to_owned(), self.datum_to_json(datum, kind));
                        }
                        Write::Elements { removed, added, .. } => {
                            self.mutations(column.name(), kind, removed, added, &mut mutations);
                        }
                    }
                }
                let mut operations = Vec::new();
                if !row.is_empty() {
                    let operation = json!({ "op": "update", "table": name, "where": where_uuid(uuid), "row": row });
                    operations.push(operation);
                }
                if !mutations.is_empty() {
                    let operation =
                        json!({ "op": "mutate", "table": name, "where": where_uuid(uuid), "mutations": mutations });
                    operations.push(operation);
                }
                operations
            }
        }
    }

    fn mutations(&self, column: &str, kind: &ColumnType, removed: &Datum, added: &Datum, mutations: &mut Vec<Value>) {
        if !removed.is_empty() {
            // A set of one element must be encoded as a set here, or it would be taken for a scalar.
            let keys: Vec<Value> = removed.keys().iter().map(|key| self.atom_to_json(key)).collect();
            mutations.push(json!([column, "delete", ["set", keys]]));
        }
        if !added.is_empty() {
            let value = if kind.is_map() {
                self.datum_to_json(added, kind)
            } else {
                let keys: Vec<Value> = added.keys().iter().map(|key| self.atom_to_json(key)).collect();
                json!(["set", keys])
            };
            mutations.push(json!([column, "insert", value]));
        }
    }

    fn increment_operations(&self, replica: &Replica, (table, uuid): Key, column: usize) -> Vec<Value> {
        let Some(table) = replica.tables().get(table) else { return Vec::new() };
        let Some(column) = table.columns().get(column) else { return Vec::new() };
        let condition = json!([["_uuid", "==", self.atom_to_json(&Atom::Uuid(uuid))]]);
        let name = column.name();
        vec![
            json!({ "op": "mutate", "table": table.name(), "where": condition, "mutations": [[name, "+=", 1]] }),
            json!({ "op": "select", "table": table.name(), "where": condition, "columns": [name] }),
        ]
    }

    /// A datum as JSON, with references to inserted rows by name.
    fn datum_to_json(&self, datum: &Datum, kind: &ColumnType) -> Value {
        if kind.is_map() {
            let pairs: Vec<Value> =
                datum.pairs().map(|(key, value)| json!([self.atom_to_json(key), self.atom_to_json(value)])).collect();
            return json!(["map", pairs]);
        }
        match datum.keys() {
            [only] => self.atom_to_json(only),
            keys => json!(["set", keys.iter().map(|key| self.atom_to_json(key)).collect::<Vec<_>>()]),
        }
    }

    fn atom_to_json(&self, atom: &Atom) -> Value {
        match atom.as_uuid() {
            Some(uuid) if self.named.contains(&uuid) => json!(["named-uuid", row_name(uuid)]),
            _ => atom.to_json(),
        }
    }

    /// Reads the results of [`Changes::operations`], which must be `operations`.
    ///
    /// # Errors
    ///
    /// [`Error::Transaction`] when an operation failed for a reason that trying again will not remove.
    pub fn outcome(&self, operations: &[Value], results: &[Value]) -> Result<Outcome, Error> {
        let mut retry = false;
        for result in results {
            match result.get("error").and_then(Value::as_str) {
                None => {}
                Some("timed out") => retry = true,
                Some("not owner") => return Ok(Outcome::NotLocked),
                Some(_) => return Err(Error::Transaction(result.clone())),
            }
        }
        if retry {
            return Ok(Outcome::TryAgain);
        }
        if results.len() < operations.len() {
            let details = format!("{} operations but {} results", operations.len(), results.len());
            return Err(Error::Transaction(json!({ "error": "protocol error", "details": details })));
        }
        let mut committed = Committed::default();
        for (operation, result) in operations.iter().zip(results) {
            match operation.get("op").and_then(Value::as_str) {
                Some("insert") => {
                    let name = operation.get("uuid-name").and_then(Value::as_str);
                    let made = result.get("uuid").and_then(|uuid| Atom::uuid_from_json(uuid).ok());
                    if let (Some(ours), Some(made)) = (name.and_then(uuid_of_name), made) {
                        committed.uuids.insert(ours, made);
                    }
                }
                Some("select") => {
                    let row = result.get("rows").and_then(|rows| rows.get(0)).and_then(Value::as_object);
                    committed.incremented = row.and_then(|row| row.values().next()).and_then(Value::as_i64);
                }
                _ => {}
            }
        }
        Ok(Outcome::Committed(committed))
    }
}

/// Adds an edit (`remove`, then `add`) to the accumulated removals and additions.
fn edited(mut removed: Datum, mut added: Datum, remove: &Datum, add: &Datum, now: Datum) -> Write {
    added.subtract(&Datum::set(remove.keys().iter().cloned()));
    removed.union(&Datum::set(remove.keys().iter().cloned()));
    if !add.values().is_empty() {
        // Inserting into a map keeps the values of existing keys, so those are removed first.
        removed.union(&Datum::set(add.keys().iter().cloned()));
    }
    added.subtract(&Datum::set(add.keys().iter().cloned()));
    added.union(add);
    Write::Elements { removed, added, now }
}

fn where_uuid(uuid: Uuid) -> Value {
    json!([["_uuid", "==", ["uuid", uuid.to_string()]]])
}

/// The `uuid-name` of an inserted row.
fn row_name(uuid: Uuid) -> String {
    format!("row{}", uuid.to_string().replace('-', "_"))
}

fn uuid_of_name(name: &str) -> Option<Uuid> {
    Uuid::parse(&name.strip_prefix("row")?.replace('_', "-"))
}
