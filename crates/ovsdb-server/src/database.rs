//! The contents of a database in memory, with the indexes and reference counts that make commits cheap.
//!
//! A database changes only through [`Database::apply`], which takes changes that have passed all checks (see
//! [`crate::commit`]) or that come from a trusted log. Invariants between calls: `strong` counts, for each row, the
//! strong references to it; `weak` lists the rows with weak references to it (whether or not it exists); each unique
//! index maps its key to the one row that has it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;
use ovsdb::types::{BaseType, ColumnType};
use ovsdb::{Atom, DatabaseSchema, Datum, TableSchema, Uuid, UuidSource};

use crate::row::{Row, RowChange};
use crate::shared_map::SharedMap;

/// Maximum number of missed transactions after which a reconnecting client receives the differences only.
const HISTORY_LENGTH_MAX: usize = 100;

/// A row in a database: index of its table, and its UUID.
pub type RowId = (usize, Uuid);

/// The values of the columns of a unique index in one row.
pub(crate) type IndexKey = Vec<Datum>;

#[derive(Debug, Default, Clone, PartialEq)]
struct Table {
    rows: SharedMap<Arc<Row>>,
    strong: HashMap<Uuid, usize, RandomState>,
    weak: HashMap<Uuid, BTreeSet<RowId>, RandomState>,
    unique: Vec<HashMap<IndexKey, Uuid, RandomState>>,
}

/// A committed transaction, as the history remembers it.
#[derive(Debug, Clone)]
pub struct HistoryEntry {
    /// The transaction's id.
    pub id: Uuid,
    /// Its changes.
    pub changes: Arc<Vec<RowChange>>,
}

/// The contents of a database.
#[derive(Debug, Clone)]
pub struct Database {
    schema: Arc<DatabaseSchema>,
    tables: Vec<Table>,
    history: VecDeque<HistoryEntry>,
    last_transaction: Uuid,
}

impl Database {
    /// An empty database.
    pub fn new(schema: Arc<DatabaseSchema>) -> Self {
        let tables = schema
            .tables()
            .iter()
            .map(|table| Table { unique: vec![HashMap::default(); table.indexes.len()], ..Table::default() });
        let tables = tables.collect();
        Self { schema, tables, history: VecDeque::new(), last_transaction: Uuid::ZERO }
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<DatabaseSchema> {
        &self.schema
    }

    /// The schema of the table with this index.
    pub(crate) fn table_schema(&self, table: usize) -> Option<&TableSchema> {
        self.schema.tables().get(table)
    }

    /// The row with this UUID.
    pub fn row(&self, table: usize, uuid: Uuid) -> Option<&Arc<Row>> {
        self.tables.get(table)?.rows.get(uuid)
    }

    /// All rows of a table, ordered by UUID.
    pub fn rows(&self, table: usize) -> impl Iterator<Item = &Arc<Row>> {
        self.tables.get(table).into_iter().flat_map(|table| table.rows.values())
    }

    /// Returns the current rows of all tables, as a snapshot that a compaction writes while transactions continue.
    pub(crate) fn shared_rows(&self) -> Vec<SharedMap<Arc<Row>>> {
        self.tables.iter().map(|table| table.rows.clone()).collect()
    }

    /// Number of rows in a table.
    pub fn row_count(&self, table: usize) -> usize {
        self.tables.get(table).map_or(0, |table| table.rows.len())
    }

    /// Number of atoms in the database, for memory statistics.
    pub fn atoms(&self) -> usize {
        self.tables.iter().flat_map(|table| table.rows.values()).map(|row| row.atoms()).sum()
    }

    /// Number of columns times rows, for memory statistics.
    pub fn cells(&self) -> usize {
        let tables = self.tables.iter().zip(self.schema.tables());
        tables.map(|(table, schema)| table.rows.len() * schema.columns().len()).sum()
    }

    /// The id of the last transaction; all-zeros if there was none since the database was opened.
    pub fn last_transaction(&self) -> Uuid {
        self.last_transaction
    }

    /// The transactions after the one called `id`, oldest first, if the history reaches back that far.
    pub fn history_since(&self, id: Uuid) -> Option<impl Iterator<Item = &HistoryEntry>> {
        let at = self.history.iter().position(|entry| entry.id == id)?;
        Some(self.history.iter().skip(at + 1))
    }

    /// The number of strong references to a row.
    pub(crate) fn strong_references(&self, (table, uuid): RowId) -> usize {
        self.tables.get(table).and_then(|table| table.strong.get(&uuid)).copied().unwrap_or(0)
    }

    /// The rows with weak references to a row.
    pub(crate) fn weak_sources(&self, (table, uuid): RowId) -> impl Iterator<Item = RowId> + '_ {
        self.tables.get(table).and_then(|table| table.weak.get(&uuid)).into_iter().flatten().copied()
    }

    /// Number of weak references, for memory statistics.
    pub fn weak_reference_count(&self) -> usize {
        self.tables.iter().flat_map(|table| table.weak.values()).map(BTreeSet::len).sum()
    }

    /// The row that has this key in the table's unique index number `index`.
    pub(crate) fn unique_owner(&self, table: usize, index: usize, key: &IndexKey) -> Option<Uuid> {
        self.tables.get(table)?.unique.get(index)?.get(key).copied()
    }

    /// Makes changes that are known to be sound, and remembers them under the transaction id `id`.
    pub fn apply(&mut self, id: Uuid, changes: Vec<RowChange>) -> Arc<Vec<RowChange>> {
        self.apply_changes(&changes);
        let changes = Arc::new(changes);
        self.history.push_back(HistoryEntry { id, changes: Arc::clone(&changes) });
        if self.history.len() > HISTORY_LENGTH_MAX {
            self.history.pop_front();
        }
        self.last_transaction = id;
        changes
    }

    /// Makes the changes that a record of a log describes. Rows get versions, which records do not have.
    pub(crate) fn replay(&mut self, mut changes: Vec<RowChange>, uuids: &mut UuidSource) {
        for change in &mut changes {
            if let Some(new) = change.new.as_mut().filter(|new| new.version().is_zero()) {
                // No one else has the new row yet, so it is not copied.
                Arc::make_mut(new).set_version(uuids.next_uuid());
            }
        }
        self.apply_changes(&changes);
    }

    /// Applies changes without adding them to the history.
    pub(crate) fn apply_changes(&mut self, changes: &[RowChange]) {
        // Keys are removed first, so that two rows may swap theirs.
        for change in changes {
            self.forget(change);
        }
        for change in changes {
            self.enter(change);
        }
    }

    /// Returns true if rows without their versions, counts and indexes are equal in both databases.
    #[cfg(test)]
    pub(crate) fn has_equal_indexes(&self, other: &Database) -> bool {
        let without_versions = |table: &Table| {
            let mut table = table.clone();
            // A record may give a row another UUID in a column than the one by which the table has it.
            for (uuid, row) in table.rows.clone().iter() {
                let mut row = (**row).clone();
                row.set_version(Uuid::ZERO);
                table.rows.insert(*uuid, Arc::new(row));
            }
            table
        };
        self.tables.iter().map(without_versions).eq(other.tables.iter().map(without_versions))
    }

    fn forget(&mut self, change: &RowChange) {
        let Some(old) = &change.old else { return };
        let schema = Arc::clone(&self.schema);
        let Some(table_schema) = schema.tables().get(change.table) else { return };
        for (target, kind) in references(table_schema, &schema, old) {
            let Some(table) = self.tables.get_mut(target.0) else { continue };
            match kind {
                Binding::Strong => decrement(&mut table.strong, target.1),
                Binding::Weak => {
                    if let Some(sources) = table.weak.get_mut(&target.1) {
                        sources.remove(&(change.table, change.uuid));
                        if sources.is_empty() {
                            table.weak.remove(&target.1);
                        }
                    }
                }
            }
        }
        let Some(table) = self.tables.get_mut(change.table) else { return };
        for (unique, columns) in table.unique.iter_mut().zip(&table_schema.indexes) {
            unique.remove(&index_key(old, columns));
        }
        if change.new.is_none() {
            table.rows.remove(change.uuid);
        }
    }

    fn enter(&mut self, change: &RowChange) {
        let Some(new) = &change.new else { return };
        let schema = Arc::clone(&self.schema);
        let Some(table_schema) = schema.tables().get(change.table) else { return };
        for (target, kind) in references(table_schema, &schema, new) {
            let Some(table) = self.tables.get_mut(target.0) else { continue };
            match kind {
                Binding::Strong => *table.strong.entry(target.1).or_insert(0) += 1,
                Binding::Weak => {
                    table.weak.entry(target.1).or_default().insert((change.table, change.uuid));
                }
            }
        }
        let Some(table) = self.tables.get_mut(change.table) else { return };
        for (unique, columns) in table.unique.iter_mut().zip(&table_schema.indexes) {
            unique.insert(index_key(new, columns), change.uuid);
        }
        table.rows.insert(change.uuid, Arc::clone(new));
    }
}

fn decrement(counts: &mut HashMap<Uuid, usize, RandomState>, uuid: Uuid) {
    if let Some(count) = counts.get_mut(&uuid) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&uuid);
        }
    }
}

/// The values of the columns of an index.
pub(crate) fn index_key(row: &Row, columns: &[usize]) -> IndexKey {
    columns.iter().filter_map(|&column| row.column(column).cloned()).collect()
}

/// How a reference binds its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Strong,
    Weak,
}

/// All references in a row. A strong reference to the row itself does not count, as it would keep the row for ever.
pub(crate) fn references(table: &TableSchema, schema: &DatabaseSchema, row: &Row) -> Vec<(RowId, Binding)> {
    let mut found = Vec::new();
    for (index, column) in table.own_columns() {
        if let Some(datum) = row.column(index) {
            column_references(&column.kind, schema, datum, &mut found);
        }
    }
    if let Some(own) = schema.table_index(&table.name) {
        found.retain(|&(target, binding)| binding == Binding::Weak || target != (own, row.uuid()));
    }
    found
}

/// The references in one column's value.
pub(crate) fn column_references(
    kind: &ColumnType,
    schema: &DatabaseSchema,
    datum: &Datum,
    found: &mut Vec<(RowId, Binding)>,
) {
    let mut collect = |base: &BaseType, atoms: &[Atom]| {
        let Some(target) = base.ref_table().and_then(|name| schema.table_index(name)) else { return };
        let binding = if base.is_weak_ref() { Binding::Weak } else { Binding::Strong };
        found.extend(atoms.iter().filter_map(Atom::as_uuid).map(|uuid| ((target, uuid), binding)));
    };
    collect(&kind.key, datum.keys());
    if let Some(value) = &kind.value {
        collect(value, datum.values());
    }
}
