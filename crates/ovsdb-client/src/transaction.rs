//! Transactions: changes on top of a replica that is held still until they are committed.

use std::sync::Arc;

use ovsdb::{DatabaseSchema, Datum, Uuid};

use crate::changes::{Changes, Outcome};
use crate::error::Error;
use crate::idl::Idl;
use crate::replica::Replica;

/// Changes to a database, on top of the replica; see [`Changes`]. Dropped without [`Transaction::commit`], it does
/// nothing.
#[derive(Debug)]
pub struct Transaction<'a> {
    idl: &'a mut Idl,
    changes: Changes,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(idl: &'a mut Idl) -> Self {
        Self { idl, changes: Changes::new() }
    }
}

/// Access by names, which are not checked: a missing column reads as empty and is never written. This is for programs
/// whose users name tables and columns, such as `ovs-vsctl`; programs with tables known at compile time use the
/// other, typed methods.
impl Transaction<'_> {
    /// The replica, without the changes.
    pub fn replica(&self) -> &Replica {
        self.idl.replica()
    }

    /// The changes so far.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The schema.
    pub fn schema(&self) -> Option<&Arc<DatabaseSchema>> {
        self.idl.schema()
    }

    /// The rows of a table as the transaction leaves it, sorted by UUID.
    pub fn rows(&self, table: &str) -> Vec<Uuid> {
        self.changes.rows(self.idl.replica(), table)
    }

    /// Whether the row exists as the transaction leaves it.
    pub fn contains_row(&self, table: &str, uuid: Uuid) -> bool {
        self.changes.contains(self.idl.replica(), table, uuid)
    }

    /// The value of a column as the transaction leaves it.
    pub fn datum(&self, table: &str, uuid: Uuid, column: &str) -> Option<&Datum> {
        self.changes.datum(self.idl.replica(), table, uuid, column)
    }

    /// A string as the transaction leaves it, or the empty one.
    pub fn string(&self, table: &str, uuid: Uuid, column: &str) -> &str {
        self.datum(table, uuid, column).and_then(Datum::as_str).unwrap_or_default()
    }

    /// An optional integer as the transaction leaves it.
    pub fn integer(&self, table: &str, uuid: Uuid, column: &str) -> Option<i64> {
        self.datum(table, uuid, column).and_then(Datum::as_integer)
    }

    /// A truth value as the transaction leaves it, or false.
    pub fn boolean(&self, table: &str, uuid: Uuid, column: &str) -> bool {
        self.datum(table, uuid, column).and_then(Datum::as_bool).unwrap_or_default()
    }

    /// A set of references (or the references that a map has as values) as the transaction leaves it.
    pub fn uuids(&self, table: &str, uuid: Uuid, column: &str) -> Vec<Uuid> {
        crate::row::uuids_of(self.datum(table, uuid, column))
    }

    /// Writes a whole column.
    pub fn set_datum(&mut self, table: &str, uuid: Uuid, column: &str, value: impl Into<Datum>) {
        self.changes.set(self.idl.session.replica(), table, uuid, column, value);
    }

    /// Adds elements to a set or a map; see [`Changes::add`].
    pub fn add_elements(&mut self, table: &str, uuid: Uuid, column: &str, elements: &Datum) {
        self.changes.add(self.idl.session.replica(), table, uuid, column, elements);
    }

    /// Removes elements from a set, or keys from a map; see [`Changes::remove`].
    pub fn remove_elements(&mut self, table: &str, uuid: Uuid, column: &str, elements: &Datum) {
        self.changes.remove(self.idl.session.replica(), table, uuid, column, elements);
    }

    /// Inserts a row; see [`Changes::insert`].
    pub fn insert_row(&mut self, table: &str) -> Uuid {
        self.changes.insert(self.idl.session.replica(), table)
    }

    /// Inserts a row known to this transaction as `uuid`; see [`Changes::insert_as`].
    pub fn insert_row_as(&mut self, table: &str, uuid: Uuid) {
        self.changes.insert_as(self.idl.session.replica(), table, uuid);
    }

    /// Inserts a row with a given UUID; see [`Changes::insert_with_uuid`].
    pub fn insert_row_with_uuid(&mut self, table: &str, uuid: Uuid) {
        self.changes.insert_with_uuid(self.idl.session.replica(), table, uuid);
    }

    /// Takes a row whose references are removed out of its table; see [`Changes::forget`].
    pub fn forget_row(&mut self, table: &str, uuid: Uuid) {
        self.changes.forget(self.idl.session.replica(), table, uuid);
    }

    /// Deletes a row.
    pub fn delete_row(&mut self, table: &str, uuid: Uuid) {
        self.changes.delete(self.idl.session.replica(), table, uuid);
    }

    /// Makes the commit depend on a column's value; see [`Changes::verify`].
    pub fn verify_column(&mut self, table: &str, uuid: Uuid, column: &str) {
        self.changes.verify(self.idl.session.replica(), table, uuid, column);
    }

    /// Increments an integer column; see [`Changes::increment`].
    pub fn increment_column(&mut self, table: &str, uuid: Uuid, column: &str) {
        self.changes.increment(self.idl.session.replica(), table, uuid, column);
    }

    /// Adds a comment for the server's log.
    pub fn comment(&mut self, comment: impl Into<String>) {
        self.changes.comment(comment);
    }

    /// The changes, to commit later with [`Idl::commit`], before the replica has changed.
    pub fn into_changes(self) -> Changes {
        self.changes
    }

    /// Sends the changes and waits for the reply. The replica has them when this returns [`Outcome::Committed`].
    ///
    /// If the future is dropped, they may or may not be committed.
    ///
    /// # Errors
    ///
    /// [`Error::Transaction`] or [`Error::Request`] when the server rejects the changes permanently.
    pub async fn commit(self) -> Result<Outcome, Error> {
        self.idl.commit(&self.changes).await
    }
}
