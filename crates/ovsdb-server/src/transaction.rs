//! A transaction in the making: changes laid over a database, which itself stays as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use ovsdb::{Error, Result, Uuid};

use crate::database::{Database, RowId};
use crate::row::{Row, RowChange};

/// One row's state before and within the transaction.
#[derive(Debug, Clone)]
pub(crate) struct Overlay {
    pub(crate) old: Option<Arc<Row>>,
    pub(crate) new: Option<Arc<Row>>,
}

/// Changes over a database.
#[derive(Debug)]
pub struct Transaction<'a> {
    pub(crate) database: &'a Database,
    pub(crate) changes: BTreeMap<RowId, Overlay>,
    comment: String,
    durable: bool,
}

impl<'a> Transaction<'a> {
    /// A transaction that has done nothing yet.
    pub fn new(database: &'a Database) -> Self {
        Self { database, changes: BTreeMap::new(), comment: String::new(), durable: false }
    }

    /// The database as it was before.
    pub fn database(&self) -> &'a Database {
        self.database
    }

    /// A row as the transaction sees it.
    pub fn row(&self, table: usize, uuid: Uuid) -> Option<&Arc<Row>> {
        match self.changes.get(&(table, uuid)) {
            Some(overlay) => overlay.new.as_ref(),
            None => self.database.row(table, uuid),
        }
    }

    /// All rows of a table as the transaction sees them.
    pub fn rows(&self, table: usize) -> impl Iterator<Item = &Arc<Row>> {
        let inserted = self.table_changes(table).filter(|(_, overlay)| overlay.old.is_none());
        let inserted = inserted.filter_map(|(_, overlay)| overlay.new.as_ref());
        let untouched = self.changes.range((table, Uuid::ZERO)..).next().is_none_or(|(id, _)| id.0 != table);
        let kept = self
            .database
            .rows(table)
            .filter_map(move |row| if untouched { Some(row) } else { self.row(table, row.uuid()) });
        kept.chain(inserted)
    }

    /// The rows of a table that the transaction touched.
    pub(crate) fn table_changes(&self, table: usize) -> impl Iterator<Item = (Uuid, &Overlay)> {
        let of_table = self.changes.range((table, Uuid::ZERO)..).take_while(move |(id, _)| id.0 == table);
        of_table.map(|(id, overlay)| (id.1, overlay))
    }

    /// Whether a row exists, or existed before the transaction deleted it.
    pub(crate) fn knows(&self, id: RowId) -> bool {
        self.changes.contains_key(&id) || self.database.row(id.0, id.1).is_some()
    }

    /// Inserts a row.
    pub fn insert(&mut self, table: usize, row: Row) {
        let uuid = row.uuid();
        self.changes.insert((table, uuid), Overlay { old: None, new: Some(Arc::new(row)) });
    }

    /// Replaces a row by a changed one with the same UUID.
    pub fn replace(&mut self, table: usize, row: Row) -> Result<()> {
        let uuid = row.uuid();
        self.touch(table, uuid, "modify")?.new = Some(Arc::new(row));
        Ok(())
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: usize, uuid: Uuid) -> Result<()> {
        let overlay = self.touch(table, uuid, "delete")?;
        overlay.new = None;
        if overlay.old.is_none() {
            self.changes.remove(&(table, uuid));
        }
        Ok(())
    }

    fn touch(&mut self, table: usize, uuid: Uuid, verb: &str) -> Result<&mut Overlay> {
        let old = self.database.row(table, uuid).cloned();
        let name = self.database.table_schema(table).map_or("?", |schema| schema.name.as_str());
        let missing = || Error::ovsdb(format!("cannot {verb} missing row {uuid} from table {name}"));
        if !self.changes.contains_key(&(table, uuid)) && old.is_none() {
            return Err(missing());
        }
        Ok(self.changes.entry((table, uuid)).or_insert_with(|| Overlay { new: old.clone(), old }))
    }

    /// Adds a comment for the log.
    pub fn add_comment(&mut self, comment: &str) {
        if !self.comment.is_empty() {
            self.comment.push('\n');
        }
        self.comment.push_str(comment);
    }

    /// The comments so far.
    pub fn comment(&self) -> &str {
        &self.comment
    }

    /// Asks that the reply wait until the transaction is on disk.
    pub fn set_durable(&mut self) {
        self.durable = true;
    }

    /// Returns true if the transaction requests durability before the reply.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// The changes in the order of tables and UUIDs.
    pub(crate) fn into_changes(self) -> Vec<RowChange> {
        let change = |((table, uuid), Overlay { old, new })| RowChange { table, uuid, old, new };
        self.changes.into_iter().map(change).collect()
    }
}
