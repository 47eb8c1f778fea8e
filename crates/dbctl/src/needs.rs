//! The tables and columns that a command line needs, so that only those are replicated.

use ovsdb::{ColumnSchema, DatabaseSchema, TableSchema};
use ovsdb_client::Wanted;

use crate::Failure;
use crate::names::{self, Way};

/// Collects needs against the server's schema. Tables and columns that the schema lacks are left out: the database
/// may be older than the program.
pub struct Needs<'a> {
    /// The server's schema.
    pub schema: &'a DatabaseSchema,
    pub(crate) wanted: Wanted,
    /// The program's ways to name rows.
    ways: fn(&str) -> &'static [Way],
}

impl<'a> Needs<'a> {
    pub(crate) fn new(schema: &'a DatabaseSchema, ways: fn(&str) -> &'static [Way]) -> Self {
        Self { schema, wanted: Wanted::new(), ways }
    }

    /// Adds columns of a table.
    pub fn columns(&mut self, table: &str, columns: &[&str]) {
        let Some(found) = self.schema.table(table) else { return };
        self.wanted.table(table);
        for column in columns {
            if found.column(column).is_some() {
                self.wanted.column(table, column);
            }
        }
    }

    /// Returns the table that `name` stands for, and adds the columns for finding its rows by name.
    pub fn table(&mut self, name: &str) -> Result<&'a TableSchema, Failure> {
        let table = names::table(self.schema, name)?;
        self.wanted.table(&table.name);
        for way in (self.ways)(&table.name) {
            match way {
                Way::Singleton => {}
                Way::Column(column) => self.columns(&table.name, &[column]),
                Way::Referenced { from, by, through } => self.columns(from, &[by, through]),
            }
        }
        Ok(table)
    }

    /// Returns the column that `name` stands for, and adds it; `_uuid` needs nothing.
    pub fn column(&mut self, table: &'a TableSchema, name: &str) -> Result<&'a ColumnSchema, Failure> {
        let column = names::column(table, name)?;
        self.wanted.column(&table.name, &column.name);
        Ok(column)
    }
}
