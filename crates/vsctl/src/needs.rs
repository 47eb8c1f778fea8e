//! Which tables and columns a command line needs, so that only those are replicated.

use ovsdb::{ColumnSchema, DatabaseSchema, TableSchema};
use ovsdb_client::Wanted;
use ovsdb_client::typed::{AnyColumn, Table};

use crate::context::Failure;
use crate::names;

/// Collects needs against the server's schema. What that schema lacks is left out: the database may be older than the
/// program.
pub(crate) struct Needs<'a> {
    pub(crate) schema: &'a DatabaseSchema,
    pub(crate) wanted: Wanted,
}

impl<'a> Needs<'a> {
    pub(crate) fn new(schema: &'a DatabaseSchema) -> Self {
        Self { schema, wanted: Wanted::new() }
    }

    /// Needs columns.
    pub(crate) fn columns(&mut self, columns: &[AnyColumn]) {
        for column in columns {
            let Some(table) = self.schema.table(column.table) else { continue };
            self.wanted.table(column.table);
            if table.column(column.column).is_some() {
                self.wanted.add(*column);
            }
        }
    }

    /// Needs the rows of a table.
    pub(crate) fn rows<T: Table>(&mut self, table: T) {
        if self.schema.table(T::NAME).is_some() {
            self.wanted.rows(table);
        }
    }

    /// The table that `name` stands for, and what it takes to find its rows by name.
    pub(crate) fn table(&mut self, name: &str) -> Result<&'a TableSchema, Failure> {
        let table = names::table(self.schema, name)?;
        self.wanted.table(&table.name);
        for way in names::ways(&table.name) {
            match way {
                names::Way::Singleton => {}
                names::Way::Column(column) => self.columns(&[*column]),
                names::Way::Referenced { by, through } => self.columns(&[*by, *through]),
            }
        }
        Ok(table)
    }

    /// The column that `name` stands for; `_uuid` needs nothing.
    pub(crate) fn column(&mut self, table: &'a TableSchema, name: &str) -> Result<&'a ColumnSchema, Failure> {
        let column = names::column(table, name)?;
        self.wanted.column(&table.name, &column.name);
        Ok(column)
    }
}
