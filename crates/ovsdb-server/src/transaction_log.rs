//! Which tables' changes are written to the program's log (`ovsdb-server/tlog-set`), and how.

use std::collections::BTreeSet;

use ovsdb::text;
use tracing::info;

use crate::core::{Core, Now};
use crate::database::Database;
use crate::row::RowChange;

/// At most this many changes are logged...
const LINES_MAX: u32 = 60;
/// ... in this number of milliseconds; the number of suppressed ones is logged afterwards.
const WINDOW_MS: u64 = 60_000;

/// The logged tables, and how much was logged lately.
#[derive(Debug, Default)]
pub(crate) struct TransactionLog {
    tables: BTreeSet<(String, String)>,
    window_began_ms: u64,
    lines: u32,
    dropped: u32,
}

impl TransactionLog {
    /// Logs the changes of the selected tables.
    pub(crate) fn note(&mut self, database: &Database, changes: &[RowChange], now: Now) {
        if self.tables.is_empty() {
            return;
        }
        let name = &database.schema().name;
        for change in changes {
            let Some(table) = database.table_schema(change.table) else { continue };
            if !self.tables.contains(&(name.clone(), table.name.clone())) || !self.has_room(now) {
                continue;
            }
            let (op, row) = match (&change.old, &change.new) {
                (None, Some(new)) => ("inserted", new),
                (Some(_), Some(new)) => ("updated", new),
                (Some(old), None) => ("deleted", old),
                (None, None) => continue,
            };
            let value = |(at, column): (usize, &ovsdb::schema::ColumnSchema)| {
                Some(format!(",{}:{}", column.name, text::format_datum(row.column(at)?, &column.kind)))
            };
            let columns: String = table.columns().iter().enumerate().filter_map(value).collect();
            info!(target: "transaction", "table:{},op:{op}{columns}", table.name);
        }
    }

    fn has_room(&mut self, now: Now) -> bool {
        if now.monotonic_ms.saturating_sub(self.window_began_ms) >= WINDOW_MS {
            if self.dropped > 0 {
                info!(target: "transaction", "Dropped {} log messages due to excessive rate", self.dropped);
            }
            (self.window_began_ms, self.lines, self.dropped) = (now.monotonic_ms, 0, 0);
        }
        if self.lines == LINES_MAX {
            self.dropped += 1;
            return false;
        }
        self.lines += 1;
        true
    }
}

impl Core {
    /// Whether changes of a table, written `DB:TABLE`, are logged from now on; `setting` is `on` or `off`.
    pub fn set_transaction_log(&mut self, table: &str, setting: &str) -> Result<(), String> {
        let (database, table) = table.split_once(':').ok_or("invalid DB:TABLE argument")?;
        let schema = self.database(database).ok_or("no such database")?.schema();
        schema.table(table).ok_or("no such table")?;
        let key = (database.to_owned(), table.to_owned());
        match setting {
            "on" => _ = self.transaction_log.tables.insert(key),
            "off" => _ = self.transaction_log.tables.remove(&key),
            _ => return Err("invalid command argument".to_owned()),
        }
        Ok(())
    }

    /// All tables, and whether their changes are logged.
    pub fn transaction_log_report(&self) -> String {
        let mut report =
            format!("{:16}{:28}{}\n{:16}{:28}{}\n", "database", "table", "logging", "--------", "-----", "-------");
        for name in self.database_names() {
            report.push_str(&format!("{name:16} \n"));
            let tables = self.database(name).into_iter().flat_map(|database| database.schema().tables());
            let mut tables: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
            tables.sort_unstable();
            for table in tables {
                let is_on = self.transaction_log.tables.contains(&(name.to_owned(), table.to_owned()));
                report.push_str(&format!("{:16}{table:28}{}\n", "", if is_on { "ON" } else { "OFF" }));
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transaction_log_is_rate_limited() {
        let mut log = TransactionLog::default();
        let at = |monotonic_ms| Now { monotonic_ms, unix_ms: 0 };
        let count = (0..100).filter(|_| log.has_room(at(WINDOW_MS))).count();
        assert_eq!((count, log.dropped), (60, 40));
        assert!(!log.has_room(at(2 * WINDOW_MS - 1)));
        assert!(log.has_room(at(2 * WINDOW_MS)));
        assert_eq!(log.dropped, 0);
    }
}
