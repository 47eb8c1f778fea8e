//! A whole database at one moment, and its log: the schema, and all rows in one transaction if there are any.
//!
//! It shares the rows with the database, so that it is created at once, and another thread can write it while the
//! database changes. Its text is generated row by row while it is written.

use std::io::{self, Seek, Write};
use std::sync::Arc;

use ovsdb::{DatabaseSchema, write};
use serde_json::Value;

use crate::database::Database;
use crate::journal::{Style, new_row};
use crate::log::{LongRecord, Record};
use crate::row::Row;
use crate::shared_map::SharedMap;

/// A database at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    schema: Arc<DatabaseSchema>,
    tables: Vec<SharedMap<Arc<Row>>>,
    comment: String,
    date_ms: i64,
    style: Style,
}

impl Snapshot {
    /// A snapshot of the present database. The transaction with its rows gets this comment and date, in milliseconds
    /// of Unix time.
    pub fn of(database: &Database, comment: impl Into<String>, date_ms: i64, style: Style) -> Self {
        let (schema, tables) = (Arc::clone(database.schema()), database.shared_rows());
        Self { schema, tables, comment: comment.into(), date_ms, style }
    }

    /// Appends the log to a file or another writer; returns the number of bytes. Fails if the rows exceed the maximum
    /// length of a record.
    pub fn write_to<W: Write + Seek>(&self, out: &mut W) -> io::Result<u64> {
        let schema = Record::from(&self.schema.to_json()).write_to(out)?;
        if self.tables.iter().all(SharedMap::is_empty) {
            return Ok(schema);
        }
        Ok(schema + self.write_rows(LongRecord::begin(out))?)
    }

    fn write_rows<W: Write + Seek>(&self, mut record: LongRecord<'_, W>) -> io::Result<u64> {
        let tables = self.schema.tables().iter().zip(&self.tables);
        for (at, (table, rows)) in tables.filter(|(_, rows)| !rows.is_empty()).enumerate() {
            record.text().push(if at == 0 { b'{' } else { b',' });
            write::string(record.text(), &table.name);
            for (at, (uuid, row)) in rows.iter().enumerate() {
                let out = record.text();
                out.extend_from_slice(if at == 0 { b":{\"" } else { b",\"" });
                write::uuid(out, *uuid);
                out.extend_from_slice(b"\":");
                new_row(out, table, row);
                record.pass()?;
            }
            record.text().push(b'}');
        }
        let out = record.text();
        out.extend_from_slice(b",\"_date\":");
        write::value(out, &Value::from(self.date_ms));
        if self.style == Style::Difference {
            out.extend_from_slice(b",\"_is_diff\":true");
        }
        if !self.comment.is_empty() {
            out.extend_from_slice(b",\"_comment\":");
            write::string(out, &self.comment);
        }
        out.push(b'}');
        record.finish()
    }
}
