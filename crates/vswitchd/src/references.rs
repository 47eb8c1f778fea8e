//! Which settings depend on which rows.

use crate::reader::Read;
use ovsdb::Uuid;
use std::collections::{BTreeSet, HashMap};

/// An object with settings.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Location {
    /// The switch.
    Switch,
    /// The bridge of this name.
    Bridge(String),
    /// A port, by its bridge's name and its row.
    Port(String, Uuid),
    /// An interface, by its bridge's name and its own.
    Interface(String, String),
}

/// Rows and tables with the features that read them by reference, and rows with the objects that they configure.
#[derive(Debug, Default)]
pub struct References {
    rows: HashMap<Uuid, BTreeSet<(Location, &'static str)>>,
    tables: HashMap<&'static str, BTreeSet<(Location, &'static str)>>,
    own: HashMap<Uuid, BTreeSet<Location>>,
    /// Warnings that hold, with the number of features that have them.
    warnings: HashMap<String, usize>,
}

impl References {
    /// Notes that a feature of the object at `at` now reads `read`, and no longer what it read before.
    pub fn replace(&mut self, before: &Read, read: &Read, at: &Location, feature: &'static str) {
        let entry = (at.clone(), feature);
        for row in before.rows.difference(&read.rows) {
            remove(&mut self.rows, row, &entry);
        }
        for table in before.tables.difference(&read.tables) {
            remove(&mut self.tables, table, &entry);
        }
        for row in read.rows.difference(&before.rows) {
            self.rows.entry(*row).or_default().insert(entry.clone());
        }
        for table in read.tables.difference(&before.tables) {
            self.tables.entry(table).or_default().insert(entry.clone());
        }
    }

    /// The features that read a row of a table, by reference or with the whole table.
    pub fn readers(&self, table: &str, row: Uuid) -> Vec<(Location, &'static str)> {
        let of_row = self.rows.get(&row).into_iter().flatten();
        of_row.chain(self.tables.get(table).into_iter().flatten()).cloned().collect()
    }

    /// Notes that the warnings of a feature are other ones, and logs those that no feature had.
    pub fn warn(&mut self, before: &BTreeSet<String>, after: &BTreeSet<String>) {
        for warning in after.difference(before) {
            let count = self.warnings.entry(warning.clone()).or_default();
            if *count == 0 {
                tracing::warn!(target: "bridge", "{warning}");
            }
            *count += 1;
        }
        for warning in before.difference(after) {
            if let Some(count) = self.warnings.get_mut(warning) {
                *count -= 1;
                if *count == 0 {
                    self.warnings.remove(warning);
                }
            }
        }
    }

    /// The warnings that hold.
    pub fn warnings(&self) -> BTreeSet<&str> {
        self.warnings.keys().map(String::as_str).collect()
    }

    /// Notes that the row configures the object.
    pub fn own(&mut self, row: Uuid, at: Location) {
        self.own.entry(row).or_default().insert(at);
    }

    /// Notes that the row no longer configures the object.
    pub fn disown(&mut self, row: Uuid, at: &Location) {
        remove(&mut self.own, &row, at);
    }

    /// The objects that the row configures.
    pub fn owners(&self, row: Uuid) -> Vec<Location> {
        self.own.get(&row).into_iter().flatten().cloned().collect()
    }

    /// Numbers of entries, for tests: rows read by reference, tables read whole, rows of objects.
    pub fn len(&self) -> (usize, usize, usize) {
        (self.rows.len(), self.tables.len(), self.own.len())
    }
}

fn remove<K: std::hash::Hash + Eq, V: Ord>(map: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
