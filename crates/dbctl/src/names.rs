//! Names of tables, columns and records on the command line: abbreviations, and the other names of rows.

use ovsdb::{Atom, ColumnSchema, DatabaseSchema, Datum, TableSchema, Uuid};

use crate::{Context, Failure, Program};

/// The shortest beginning of a UUID that stands for it.
const ABBREVIATED_LEN_MIN: usize = 4;

/// A way to name a row of a table, other than its UUID.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// `.` is the only row.
    Singleton,
    /// By the value of a column.
    Column(&'static str),
    /// By a referring row: the one in table `from` whose column `by` has the name, through a column.
    Referenced {
        /// That table.
        from: &'static str,
        /// Its column with names.
        by: &'static str,
        /// Its column with references.
        through: &'static str,
    },
}

/// Returns true if `query` abbreviates `name`: case-insensitively, with `-` equal to `_`. Nothing abbreviates none.
fn abbreviates(name: &str, query: &str) -> bool {
    let fold = |c: u8| if c == b'-' { b'_' } else { c.to_ascii_lowercase() };
    !query.is_empty() && query.len() <= name.len() && name.bytes().zip(query.bytes()).all(|(a, b)| fold(a) == fold(b))
}

/// The name that `query` stands for: an exact match, the only one of its length that it abbreviates, or the only one
/// at all.
fn choose<'a, T>(candidates: impl Iterator<Item = (&'a str, T)>, query: &str) -> Result<T, Vec<&'a str>> {
    let mut found: Vec<(&str, T)> = candidates.filter(|(name, _)| abbreviates(name, query)).collect();
    if let Some(at) = found.iter().position(|(name, _)| *name == query) {
        return Ok(found.swap_remove(at).1);
    }
    if let Some(at) = found.iter().position(|(name, _)| name.len() == query.len()) {
        return Ok(found.swap_remove(at).1);
    }
    if found.len() == 1
        && let Some((_, only)) = found.pop()
    {
        return Ok(only);
    }
    let mut names: Vec<&str> = found.into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    Err(names)
}

/// The table that `query` names or abbreviates.
pub fn table<'a>(schema: &'a DatabaseSchema, query: &str) -> Result<&'a TableSchema, Failure> {
    choose(schema.tables().iter().map(|table| (table.name.as_str(), table)), query).map_err(|names| {
        Failure::fatal(if names.is_empty() {
            format!("unknown table \"{query}\"")
        } else {
            format!("\"{query}\" matches multiple table names: {}", names.join(", "))
        })
    })
}

/// The column that `query` names or abbreviates.
pub fn column<'a>(table: &'a TableSchema, query: &str) -> Result<&'a ColumnSchema, Failure> {
    choose(table.own_columns().map(|(_, column)| (column.name.as_str(), column)), query).map_err(|names| {
        let name = &table.name;
        Failure::fatal(if names.is_empty() {
            format!("{name} does not contain a column whose name matches \"{query}\"")
        } else {
            format!("{name} contains more than one column whose name matches \"{query}\": {}", names.join(", "))
        })
    })
}

/// The row of `table` that `record` names, if it exists.
pub fn row<P: Program>(context: &Context<'_, P>, table: &TableSchema, record: &str) -> Result<Option<Uuid>, Failure> {
    let txn = &context.txn;
    let several = |table: &TableSchema| Failure::fatal(format!("multiple rows in {} match \"{record}\"", table.name));
    if let Some(uuid) = Uuid::parse(record).filter(|uuid| txn.contains_row(&table.name, *uuid)) {
        return Ok(Some(uuid));
    }
    for way in P::ways(&table.name) {
        let found = match way {
            Way::Singleton if record == "." => txn.rows(&table.name).first().copied(),
            Way::Singleton => None,
            Way::Column(column) => match by_column(context, table, column, record).as_slice() {
                [] => None,
                [only] => Some(*only),
                _ => return Err(several(table)),
            },
            Way::Referenced { from, by, through } => {
                let Some(from) = context.schema.table(from) else { continue };
                match by_column(context, from, by, record).as_slice() {
                    [only] => match txn.datum(&from.name, *only, through).map(Datum::keys) {
                        Some([target]) => target.as_uuid(),
                        _ => None,
                    },
                    [] => None,
                    _ => return Err(several(from)),
                }
            }
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    let is_beginning =
        record.len() >= ABBREVIATED_LEN_MIN && record.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-');
    if !is_beginning {
        return Ok(None);
    }
    let mut matching = txn.rows(&table.name).into_iter().filter(|uuid| uuid.to_string().starts_with(record));
    match (matching.next(), matching.next()) {
        (Some(_), Some(_)) => Err(several(table)),
        (found, _) => Ok(found),
    }
}

fn by_column<P: Program>(context: &Context<'_, P>, table: &TableSchema, column: &str, record: &str) -> Vec<Uuid> {
    let is_it = |uuid: &Uuid| {
        let name = context.txn.datum(&table.name, *uuid, column).and_then(Datum::first);
        name.is_some_and(|name| is_named(name, record))
    };
    context.txn.rows(&table.name).into_iter().filter(is_it).collect()
}

/// Whether a row with this name is meant by `record`. A name of the form of a UUID can be abbreviated like a UUID.
pub(crate) fn is_named(name: &Atom, record: &str) -> bool {
    if let Some(number) = name.as_integer() {
        // `parse` takes a plus sign.
        return !record.starts_with('+') && record.parse() == Ok(number);
    }
    name.as_str().is_some_and(|name| {
        let is_abbreviated = record.len() >= ABBREVIATED_LEN_MIN && name.starts_with(record);
        name == record || is_abbreviated && Uuid::parse(name).is_some()
    })
}

/// [`row`], which must exist.
pub fn row_must_exist<P: Program>(
    context: &Context<'_, P>,
    table: &TableSchema,
    record: &str,
) -> Result<Uuid, Failure> {
    row(context, table, record)?.ok_or_else(|| Failure::fatal(format!("no row \"{record}\" in table {}", table.name)))
}
