//! Rows and changes that know their table: the typed half of [`Replica`] and [`Transaction`].

use std::marker::PhantomData;

use ovsdb::Uuid;

use super::value::{Collection, Emptiable, Set, Value};
use super::{AnyColumn, Column, IntoColumn, Ref, Table};
use crate::changes::Committed;
use crate::idl::Idl;
use crate::replica::{Change, ChangeKind, OldValues, Replica};
use crate::row;
use crate::transaction::Transaction;

/// A row of table `T`.
#[derive(Debug)]
pub struct Row<'a, T> {
    row: row::Row<'a>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Row<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Row<'_, T> {}

impl<'a, T: Table> Row<'a, T> {
    fn new(row: row::Row<'a>) -> Self {
        Self { row, of: PhantomData }
    }

    /// The row's reference.
    pub fn reference(&self) -> Ref<T> {
        Ref::new(self.row.uuid())
    }

    /// The row's UUID.
    pub fn uuid(&self) -> Uuid {
        self.row.uuid()
    }

    /// The value of a column; the empty one if the server does not have the column. The column must be a wanted one:
    /// debug builds panic otherwise.
    pub fn get<V: Value, M>(&self, column: Column<T, V, M>) -> V::Read<'a> {
        debug_assert!(self.row.is_wanted(column.name()), "{column:?} is read and not replicated");
        V::read(self.row.datum(column.name()))
    }

    /// The row without its type.
    pub fn untyped(&self) -> row::Row<'a> {
        self.row
    }
}

impl Replica {
    /// The rows of a table, sorted by UUID.
    pub fn all<T: Table>(&self, _: T) -> impl Iterator<Item = Row<'_, T>> {
        self.rows(T::NAME).map(Row::new)
    }

    /// The referenced row, if it exists.
    pub fn find<T: Table>(&self, row: Ref<T>) -> Option<Row<'_, T>> {
        self.row(T::NAME, row.uuid()).map(Row::new)
    }
}

impl Idl {
    /// The rows of a table, sorted by UUID.
    pub fn all<T: Table>(&self, table: T) -> impl Iterator<Item = Row<'_, T>> {
        self.replica().all(table)
    }

    /// The referenced row, if it exists.
    pub fn find<T: Table>(&self, row: Ref<T>) -> Option<Row<'_, T>> {
        self.replica().find(row)
    }
}

impl Change {
    /// The row, if it is one of table `T`.
    pub fn row<T: Table>(&self) -> Option<Ref<T>> {
        (*self.table == *T::NAME).then(|| Ref::new(self.uuid))
    }

    /// Returns true if a row of the column's table was added or removed, or has another value in this column.
    pub fn touches(&self, column: AnyColumn) -> bool {
        *self.table == *column.table
            && match &self.kind {
                ChangeKind::Inserted | ChangeKind::Deleted(_) => true,
                ChangeKind::Modified(old) => old.get(column.column).is_some(),
            }
    }
}

impl OldValues {
    /// The value before, if the column changed or the row was deleted. The row must be of the column's table.
    pub fn value<T: Table, V: Value, M>(&self, column: Column<T, V, M>) -> Option<V::Read<'_>> {
        self.get(column.name()).map(|datum| V::read(Some(datum)))
    }
}

impl Committed {
    /// The row in the database that the transaction knew as `row`.
    pub fn reference<T: Table>(&self, row: Ref<T>) -> Ref<T> {
        Ref::new(self.uuid(row.uuid()))
    }
}

/// A newly inserted row, whose columns can be set, including immutable ones.
#[derive(Debug)]
pub struct Inserted<'a, 'idl, T: Table> {
    txn: &'a mut Transaction<'idl>,
    row: Ref<T>,
}

impl<T: Table> Inserted<'_, '_, T> {
    /// Gives a column its value. Nothing happens if the server's schema lacks the column.
    pub fn set<V: Value, M>(self, column: Column<T, V, M>, value: impl IntoColumn<V>) -> Self {
        self.txn.set_datum(T::NAME, self.row.uuid(), column.name(), value.into_datum());
        self
    }

    /// The row within the transaction; [`Committed::reference`] returns its final reference.
    pub fn reference(&self) -> Ref<T> {
        self.row
    }
}

/// Rows after the transaction, and changes of them. A missing row reads as empty, and changing it has no effect, as
/// has changing a column that the server's schema lacks.
impl<'idl> Transaction<'idl> {
    /// The rows of a table, sorted by UUID.
    pub fn all<T: Table>(&self, _: T) -> Vec<Ref<T>> {
        self.rows(T::NAME).into_iter().map(Ref::new).collect()
    }

    /// Returns true if the row exists.
    pub fn contains<T: Table>(&self, row: Ref<T>) -> bool {
        self.contains_row(T::NAME, row.uuid())
    }

    /// The value of a column.
    pub fn get<T: Table, V: Value, M>(&self, row: Ref<T>, column: Column<T, V, M>) -> V::Read<'_> {
        V::read(self.datum(T::NAME, row.uuid(), column.name()))
    }

    /// The value of a column, on which the transaction rests from now on: it fails with
    /// [`TryAgain`](crate::Outcome::TryAgain) if the database has another by then.
    pub fn read<T: Table, V: Value, M>(&mut self, row: Ref<T>, column: Column<T, V, M>) -> V::Read<'_> {
        self.verify(row, column);
        self.get(row, column)
    }

    /// Makes the commit depend on a column's value in the replica, as [`Transaction::read`] does.
    pub fn verify<T: Table, V: Value, M>(&mut self, row: Ref<T>, column: Column<T, V, M>) {
        self.verify_column(T::NAME, row.uuid(), column.name());
    }

    /// Inserts a row.
    pub fn insert<T: Table>(&mut self, _: T) -> Inserted<'_, 'idl, T> {
        let row = Ref::new(self.insert_row(T::NAME));
        Inserted { txn: self, row }
    }

    /// Deletes a row.
    pub fn delete<T: Table>(&mut self, row: Ref<T>) {
        self.delete_row(T::NAME, row.uuid());
    }

    /// Writes a whole column.
    pub fn set<T: Table, V: Value>(&mut self, row: Ref<T>, column: Column<T, V>, value: impl IntoColumn<V>) {
        self.set_datum(T::NAME, row.uuid(), column.name(), value.into_datum());
    }

    /// Empties a column.
    pub fn clear<T: Table, V: Emptiable>(&mut self, row: Ref<T>, column: Column<T, V>) {
        self.set_datum(T::NAME, row.uuid(), column.name(), ovsdb::Datum::empty());
    }

    /// Adds elements to a set or a map, replacing the values of existing keys of a map. Concurrent additions by
    /// others stay.
    pub fn add<T: Table, V: Collection>(&mut self, row: Ref<T>, column: Column<T, V>, elements: impl IntoColumn<V>) {
        self.add_elements(T::NAME, row.uuid(), column.name(), &elements.into_datum());
    }

    /// Removes elements from a set, or keys from a map.
    pub fn remove<T: Table, V: Collection>(
        &mut self,
        row: Ref<T>,
        column: Column<T, V>,
        keys: impl IntoColumn<Set<V::Key>>,
    ) {
        self.remove_elements(T::NAME, row.uuid(), column.name(), &keys.into_datum());
    }

    /// Adds one to a column after all else; see [`Changes::increment`](crate::Changes::increment).
    pub fn increment<T: Table>(&mut self, row: Ref<T>, column: Column<T, i64>) {
        self.increment_column(T::NAME, row.uuid(), column.name());
    }
}
