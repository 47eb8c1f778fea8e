//! Rows and changes to rows.

use std::cmp::Ordering;
use std::sync::Arc;

use ovsdb::schema::{UUID_COLUMN, VERSION_COLUMN};
use ovsdb::{Datum, TableSchema, Uuid};

/// One row: the value of every column of its table, `_uuid` and `_version` first.
///
/// Versions of a row share values, as data are reference-counted, so that a changed row costs only its changed
/// values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    columns: Box<[Datum]>,
}

impl Row {
    /// A row with this UUID and the default value in every other column.
    pub fn new(schema: &TableSchema, uuid: Uuid) -> Self {
        let mut columns: Box<[Datum]> = schema.columns().iter().map(|column| Datum::default_of(&column.kind)).collect();
        if let Some(column) = columns.get_mut(UUID_COLUMN) {
            *column = Datum::scalar(uuid);
        }
        Self { columns }
    }

    /// The value of the column at `index`.
    pub fn column(&self, index: usize) -> Option<&Datum> {
        self.columns.get(index)
    }

    /// Changes the value of the column at `index`.
    pub fn set(&mut self, index: usize, datum: Datum) {
        if let Some(column) = self.columns.get_mut(index) {
            *column = datum;
        }
    }

    /// The row's UUID.
    pub fn uuid(&self) -> Uuid {
        self.column(UUID_COLUMN).and_then(Datum::as_uuid).unwrap_or(Uuid::ZERO)
    }

    /// The row's version; all-zeros before it has one.
    pub fn version(&self) -> Uuid {
        self.column(VERSION_COLUMN).and_then(Datum::as_uuid).unwrap_or(Uuid::ZERO)
    }

    /// Gives the row a new version.
    pub fn set_version(&mut self, version: Uuid) {
        self.set(VERSION_COLUMN, Datum::scalar(version));
    }

    /// Whether the column at `index` has the same value in both rows.
    pub fn same(&self, other: &Row, index: usize) -> bool {
        match (self.columns.get(index), other.columns.get(index)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
    }

    /// Whether all columns but `_version` have the same values in both rows.
    pub fn same_content(&self, other: &Row) -> bool {
        (0..self.columns.len()).all(|index| index == VERSION_COLUMN || self.same(other, index))
    }

    /// Compares the rows by these columns, the first of which counts most. Values with fewer elements come first.
    pub fn compare(&self, other: &Row, columns: &[usize]) -> Ordering {
        let compare = |&column: &usize| match (self.column(column), other.column(column)) {
            (Some(a), Some(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
            _ => Ordering::Equal,
        };
        columns.iter().map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Number of atoms in the row, for memory statistics.
    pub fn atoms(&self) -> usize {
        self.columns.iter().map(|datum| datum.keys().len() + datum.values().len()).sum()
    }
}

/// The change of one row by a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// Index of the table in the schema.
    pub table: usize,
    /// The row's UUID.
    pub uuid: Uuid,
    /// The row before; `None` if it was inserted.
    pub old: Option<Arc<Row>>,
    /// The row after; `None` if it was deleted.
    pub new: Option<Arc<Row>>,
}
