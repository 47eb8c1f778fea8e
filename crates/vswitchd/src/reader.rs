//! Rows as features read them: references are followed and noted, and values that cannot be used are warned of.

use ovsdb::Uuid;
use ovsdb_client::Replica;
use ovsdb_client::typed::{Column, Pairs, Ref, Row, Table, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The other_config of a row.
pub type Config<'a> = Pairs<'a, String, String>;

/// What a feature read beside the rows of its object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Read {
    /// Rows that references led to, present or not.
    pub rows: BTreeSet<Uuid>,
    /// Tables of which all rows were read.
    pub tables: BTreeSet<&'static str>,
}

/// The database for one feature of one object.
#[derive(Debug)]
pub struct Reader<'a> {
    db: &'a Replica,
    warnings: RefCell<BTreeSet<String>>,
    read: RefCell<Read>,
}

impl<'a> Reader<'a> {
    /// A reader that has read nothing.
    pub fn new(db: &'a Replica) -> Self {
        Self { db, warnings: RefCell::default(), read: RefCell::default() }
    }

    /// The warnings, each a whole line, and what was read.
    pub fn finish(self) -> (BTreeSet<String>, Read) {
        (self.warnings.into_inner(), self.read.into_inner())
    }

    /// The row that is referred to, if it is there.
    pub fn find<T: Table>(&self, row: Ref<T>) -> Option<Row<'a, T>> {
        self.read.borrow_mut().rows.insert(row.uuid());
        self.db.find(row)
    }

    /// All rows of a table.
    pub fn all<T: Table>(&self, table: T) -> impl Iterator<Item = Row<'a, T>> {
        self.read.borrow_mut().tables.insert(T::NAME);
        self.db.all(table)
    }

    /// Adds a warning, which is logged when it comes up and not each time that the rows are read.
    pub fn warn(&self, warning: String) {
        self.warnings.borrow_mut().insert(warning);
    }

    /// A value of other_config, unless it is wrong.
    pub fn checked<T>(
        &self,
        what: &str,
        config: Config<'_>,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = config.get(key)?;
        let value = parse(text);
        if value.is_none() {
            self.warn(format!("{what}: other_config:{key} is \"{text}\", which is not {expected}"));
        }
        value
    }

    /// A positive number of other_config.
    pub fn number(&self, what: &str, config: Config<'_>, key: &str) -> Option<u32> {
        self.checked(what, config, key, "a number from 1", |v| v.parse().ok().filter(|n| *n > 0))
    }

    /// A boolean of other_config.
    pub fn flag(&self, what: &str, config: Config<'_>, key: &str) -> Option<bool> {
        self.checked(what, config, key, "true or false", |v| v.parse().ok())
    }

    /// Warns if a column has a value and its feature is not supported.
    pub fn unsupported<T: Table, V: Value>(&self, what: &str, row: Row<'_, T>, column: Column<T, V>, feature: &str) {
        if !row.untyped().is_empty(column.name()) {
            self.warn(format!("{what}: {feature} is configured, which is not supported"));
        }
    }
}

/// A copy of a map's pairs.
pub fn owned(pairs: Config<'_>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// An address that a device can have.
pub fn unicast(text: &str) -> Option<base::MacAddr> {
    text.parse().ok().filter(|mac: &base::MacAddr| !mac.is_multicast() && !mac.is_zero())
}
