//! Parses records directly from their text into rows, by the schema: a compacted log is one record, and a tree of its
//! JSON would be many times as large as the rows.
//!
//! Input that a server would not write this way yields `None`, and is parsed by [`crate::journal::changes`].
//! Invariant: if [`changes`] returns changes, both return the same.

use std::fmt;
use std::sync::Arc;

use ovsdb::direct::{DatumSeed, Strings, UuidSeed};
use ovsdb::{DatabaseSchema, Datum, TableSchema, Uuid};
use serde_core::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use crate::database::Database;
use crate::row::{Row, RowChange};

/// Returns the changes in the text of a record; `None` if it is not formatted as a server writes it.
pub(crate) fn changes(database: &Database, text: &[u8], strings: &mut Strings) -> Option<Vec<RowChange>> {
    let mut from = serde_json::Deserializer::from_slice(text);
    let seen = vec![false; database.schema().tables().len()];
    let record = Record { database, strings, seen, changes: Vec::new(), pending: Vec::new(), is_diff: false };
    let Record { mut changes, pending, is_diff, .. } = record.deserialize(&mut from).ok()?;
    from.end().ok()?;
    for Pending { change, column, datum } in pending {
        let change = changes.get_mut(change)?;
        let kind = &database.table_schema(change.table)?.columns().get(column)?.kind;
        let datum = if is_diff {
            change.old.as_ref()?.column(column)?.apply_diff(&datum, kind).ok()?
        } else {
            Some(datum).filter(|datum| datum.fits(kind))?
        };
        // No one else has the new row yet, so it is not copied.
        Arc::make_mut(change.new.as_mut()?).set(column, datum);
    }
    Some(changes)
}

/// A value with several elements for an existing row: a difference if `_is_diff` says so, which may come last.
struct Pending {
    /// Index among the changes.
    change: usize,
    column: usize,
    datum: Datum,
}

fn refused<E: Error>() -> E {
    E::custom("not as expected")
}

/// Reads a record.
struct Record<'a> {
    database: &'a Database,
    strings: &'a mut Strings,
    /// The tables that were there; a tree has only the last of two members with the same name.
    seen: Vec<bool>,
    changes: Vec<RowChange>,
    pending: Vec<Pending>,
    is_diff: bool,
}

impl<'de> DeserializeSeed<'de> for Record<'_> {
    type Value = Self;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Record<'_> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self, A::Error> {
        let database = self.database;
        while let Some(member) = members.next_key_seed(MemberSeed(database.schema()))? {
            match member {
                Member::IsDiff => self.is_diff = members.next_value::<Value>()?.as_bool().unwrap_or(false),
                // Parsed as a value, so that invalid JSON is found.
                Member::Other => _ = members.next_value::<Value>()?,
                Member::Table(index) => {
                    let table = database.table_schema(index).ok_or_else(refused)?;
                    match self.seen.get_mut(index) {
                        Some(seen) if !*seen => *seen = true,
                        _ => return Err(refused()),
                    }
                    members.next_value_seed(Rows { record: &mut self, index, table })?;
                }
            }
        }
        Ok(self)
    }
}

/// The meaning of a record's member by its name.
enum Member {
    Table(usize),
    IsDiff,
    Other,
}

struct MemberSeed<'a>(&'a DatabaseSchema);

impl<'de> DeserializeSeed<'de> for MemberSeed<'_> {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Member, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for MemberSeed<'_> {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Member, E> {
        match self.0.table_index(name) {
            Some(index) if !name.starts_with('_') => Ok(Member::Table(index)),
            None if name == "_is_diff" => Ok(Member::IsDiff),
            None if name.starts_with('_') => Ok(Member::Other),
            _ => Err(refused()),
        }
    }
}

/// Reads the rows of a table.
struct Rows<'r, 'a> {
    record: &'r mut Record<'a>,
    index: usize,
    table: &'a TableSchema,
}

impl<'de> DeserializeSeed<'de> for Rows<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { record, index, table } = self;
        let first = record.changes.len();
        while let Some(uuid) = members.next_key_seed(UuidSeed)? {
            let old = record.database.row(index, uuid).cloned();
            let new = members.next_value_seed(Columns { record, table, uuid, old: old.as_ref() })?;
            record.changes.push(RowChange { table: index, uuid, old, new: new.map(Arc::new) });
        }
        let uuids = record.changes.get(first..).unwrap_or_default().iter().map(|change| change.uuid);
        if is_unique(uuids) { Ok(()) } else { Err(A::Error::custom("a row came twice")) }
    }
}

/// Returns true if no UUID is repeated. Servers write rows in order, which is the fast case.
fn is_unique(uuids: impl Iterator<Item = Uuid> + Clone) -> bool {
    let rises = |a: &Uuid, b: &Uuid| a < b;
    if uuids.clone().is_sorted_by(rises) {
        return true;
    }
    let mut sorted: Vec<Uuid> = uuids.collect();
    sorted.sort_unstable();
    sorted.is_sorted_by(rises)
}

/// Reads a row as it is after the transaction; `None` if it was deleted.
struct Columns<'r, 'a> {
    record: &'r mut Record<'a>,
    table: &'a TableSchema,
    uuid: Uuid,
    old: Option<&'r Arc<Row>>,
}

impl<'de> DeserializeSeed<'de> for Columns<'_, '_> {
    type Value = Option<Row>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Row>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Columns<'_, '_> {
    type Value = Option<Row>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Row>, E> {
        if self.old.is_some() { Ok(None) } else { Err(refused()) }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<Row>, A::Error> {
        let Self { record, table, uuid, old } = self;
        let mut row = old.map_or_else(|| Row::new(table, uuid), |old| (**old).clone());
        while let Some(column) = members.next_key_seed(ColumnSeed(table))? {
            let kind = &table.columns().get(column).ok_or_else(refused)?.kind;
            let datum = members.next_value_seed(DatumSeed { kind, strings: record.strings })?;
            if old.is_some() && kind.is_composite() {
                record.pending.push(Pending { change: record.changes.len(), column, datum });
            } else if datum.fits(kind) {
                row.set(column, datum);
            } else {
                return Err(refused());
            }
        }
        Ok(Some(row))
    }
}

/// Reads the name of a column as its index.
struct ColumnSeed<'a>(&'a TableSchema);

impl<'de> DeserializeSeed<'de> for ColumnSeed<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for ColumnSeed<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        self.0.column_index(name).ok_or_else(refused)
    }
}
