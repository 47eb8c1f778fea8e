//! A row of a replica, by the names of its columns.

use std::collections::BTreeMap;

use ovsdb::{Atom, Datum, Uuid};

use crate::replica::{Data, Table};

/// A row of a replica, for programs whose users name tables and columns: misspelt names are not detected here. A
/// program with tables known at compile time uses [`crate::typed::Row`] instead.
///
/// Each accessor returns the empty value of its type if the column is not replicated, missing in the server's schema,
/// empty, or of another type, so that a daemon keeps running with a database of an older or newer schema.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub(crate) table: &'a Table,
    pub(crate) uuid: Uuid,
    pub(crate) data: &'a Data,
}

impl<'a> Row<'a> {
    /// Whether a column is replicated, if the server has it.
    pub(crate) fn is_wanted(&self, column: &str) -> bool {
        self.table.column_index(column).is_some()
    }

    /// The row's UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The name of its table.
    pub fn table(&self) -> &'a str {
        self.table.name()
    }

    /// The value of a column.
    pub fn datum(&self, column: &str) -> Option<&'a Datum> {
        self.data.get(self.table.column_index(column)?)
    }

    /// Whether the column has no elements.
    pub fn is_empty(&self, column: &str) -> bool {
        self.datum(column).is_none_or(Datum::is_empty)
    }

    /// A string, or the empty one.
    pub fn string(&self, column: &str) -> &'a str {
        self.string_opt(column).unwrap_or_default()
    }

    /// An optional string.
    pub fn string_opt(&self, column: &str) -> Option<&'a str> {
        self.datum(column)?.as_str()
    }

    /// An integer, or 0.
    pub fn integer(&self, column: &str) -> i64 {
        self.integer_opt(column).unwrap_or_default()
    }

    /// An optional integer.
    pub fn integer_opt(&self, column: &str) -> Option<i64> {
        self.datum(column)?.as_integer()
    }

    /// A truth value, or false.
    pub fn boolean(&self, column: &str) -> bool {
        self.boolean_opt(column).unwrap_or_default()
    }

    /// An optional truth value.
    pub fn boolean_opt(&self, column: &str) -> Option<bool> {
        self.datum(column)?.as_bool()
    }

    /// A set of references; for a map, its values if those are references, otherwise its keys.
    pub fn uuids(&self, column: &str) -> Vec<Uuid> {
        uuids_of(self.datum(column))
    }

    /// A set of strings.
    pub fn strings(&self, column: &str) -> Vec<&'a str> {
        self.datum(column).into_iter().flat_map(|datum| datum.keys()).filter_map(Atom::as_str).collect()
    }

    /// A set of integers.
    pub fn integers(&self, column: &str) -> Vec<i64> {
        self.datum(column).into_iter().flat_map(|datum| datum.keys()).filter_map(Atom::as_integer).collect()
    }

    /// A map from strings to strings.
    pub fn map(&self, column: &str) -> BTreeMap<&'a str, &'a str> {
        let pairs = self.datum(column).into_iter().flat_map(|datum| datum.pairs());
        pairs.filter_map(|(key, value)| Some((key.as_str()?, value.as_str()?))).collect()
    }

    /// One value of a map from strings to strings.
    pub fn map_get(&self, column: &str, key: &str) -> Option<&'a str> {
        self.datum(column)?.get_str(key)
    }
}

/// The references in a datum: its elements, or its values if those are references.
pub(crate) fn uuids_of(datum: Option<&Datum>) -> Vec<Uuid> {
    let Some(datum) = datum else { return Vec::new() };
    let values: Vec<Uuid> = datum.values().iter().filter_map(Atom::as_uuid).collect();
    if values.is_empty() { datum.keys().iter().filter_map(Atom::as_uuid).collect() } else { values }
}
