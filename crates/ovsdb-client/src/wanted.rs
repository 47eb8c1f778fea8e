//! The tables and columns that a program replicates, and those of them that a server's schema lacks.

use std::collections::BTreeMap;
use std::fmt;

use ovsdb::DatabaseSchema;

use crate::typed::{AnyColumn, Shape, Table};

/// Which tables and columns to replicate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// By table and column, with the expected shape of the column, if any.
    tables: BTreeMap<String, BTreeMap<String, Option<Shape>>>,
}

impl Wanted {
    /// No tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a table; its rows are replicated even if no column is wanted.
    pub fn table(&mut self, table: &str) {
        self.tables.entry(table.to_owned()).or_default();
    }

    /// Adds a column of a table with any type.
    pub fn column(&mut self, table: &str, column: &str) {
        self.tables.entry(table.to_owned()).or_default().entry(column.to_owned()).or_default();
    }

    /// Adds a table; its rows are replicated even if no column is wanted.
    pub fn rows<T: Table>(&mut self, _: T) {
        self.table(T::NAME);
    }

    /// Adds a column, which is expected to have its declared type.
    pub fn add(&mut self, column: AnyColumn) {
        let columns = self.tables.entry(column.table.to_owned()).or_default();
        columns.insert(column.column.to_owned(), Some(column.shape));
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

    /// The tables and their columns, both sorted by name.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = (&str, Option<Shape>)>)> {
        self.tables.iter().map(|(table, columns)| {
            let columns = columns.iter().map(|(column, shape)| (column.as_str(), *shape));
            (table.as_str(), columns)
        })
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

impl From<&[AnyColumn]> for Wanted {
    fn from(columns: &[AnyColumn]) -> Self {
        let mut wanted = Self::new();
        columns.iter().for_each(|column| wanted.add(*column));
        wanted
    }
}

impl<const N: usize> From<&[AnyColumn; N]> for Wanted {
    fn from(columns: &[AnyColumn; N]) -> Self {
        Self::from(columns.as_slice())
    }
}

/// Something wanted that a server's schema does not have as it is wanted. It reads as empty, and is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// There is no such table.
    Table(String),
    /// There is no such column, by table and column.
    Column((String, String)),
    /// The column holds something else.
    Type {
        /// Table and column.
        column: (String, String),
        /// The expected shape.
        expected: Shape,
        /// The actual type, in words.
        found: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Table(name) => write!(f, "{name} is missing in the server's schema (database needs upgrade?)"),
            Misfit::Column((table, column)) => {
                write!(f, "{table}.{column} is missing in the server's schema (database needs upgrade?)")
            }
            Misfit::Type { column: (table, column), expected, found } => {
                write!(f, "{table}.{column} is a {found} in the server's schema and not a {expected}, and is left out")
            }
        }
    }
}
