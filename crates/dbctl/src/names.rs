//! Names of tables, columns and records on the command line: abbreviations, and the other names of rows.

use ovsdb::{Atom, AtomType, ColumnSchema, DatabaseSchema, Datum, TableSchema, Uuid};

use crate::{Context, Failure, Program};

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

/// Returns true if `query` abbreviates `name`: case-insensitively, with `-` equal to `_`.
fn abbreviates(name: &str, query: &str) -> bool {
    let fold = |c: u8| if c == b'-' { b'_' } else { c.to_ascii_lowercase() };
    query.len() <= name.len() && name.bytes().zip(query.bytes()).all(|(a, b)| fold(a) == fold(b))
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
    let several = || Failure::fatal(format!("multiple rows in {} match \"{record}\"", table.name));
    if let Some(uuid) = Uuid::parse(record) {
        return Ok(txn.contains_row(&table.name, uuid).then_some(uuid));
    }
    for way in P::ways(&table.name) {
        let found = match way {
            Way::Singleton if record == "." => txn.rows(&table.name).first().copied(),
            Way::Singleton => None,
            Way::Column(column) => match by_column(context, table, column, record).as_slice() {
                [] => None,
                [only] => Some(*only),
                _ => return Err(several()),
            },
            Way::Referenced { from, by, through } => {
                let Some(from) = context.schema.table(from) else { continue };
                match by_column(context, from, by, record).as_slice() {
                    [only] => match txn.datum(&from.name, *only, through).map(Datum::keys) {
                        Some([target]) => target.as_uuid(),
                        _ => None,
                    },
                    [] => None,
                    _ => return Err(several()),
                }
            }
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    let hex = record.len() >= 4 && record.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-');
    if !hex {
        return Ok(None);
    }
    let prefix = record.to_ascii_lowercase();
    let mut matching = txn.rows(&table.name).into_iter().filter(|uuid| uuid.to_string().starts_with(&prefix));
    match (matching.next(), matching.next()) {
        (Some(_), Some(_)) => Err(several()),
        (found, _) => Ok(found),
    }
}

fn by_column<P: Program>(context: &Context<'_, P>, table: &TableSchema, column: &str, record: &str) -> Vec<Uuid> {
    let Some(kind) = table.column(column).map(|column| column.kind.key.kind) else { return Vec::new() };
    let wanted = match kind {
        AtomType::Integer => match record.parse::<i64>() {
            Ok(number) => Atom::Integer(number),
            Err(_) => return Vec::new(),
        },
        _ => Atom::from(record),
    };
    let is_it = |uuid: &Uuid| context.txn.datum(&table.name, *uuid, column).and_then(Datum::first) == Some(&wanted);
    context.txn.rows(&table.name).into_iter().filter(is_it).collect()
}

/// [`row`], which must exist.
pub fn row_must_exist<P: Program>(
    context: &Context<'_, P>,
    table: &TableSchema,
    record: &str,
) -> Result<Uuid, Failure> {
    row(context, table, record)?.ok_or_else(|| Failure::fatal(format!("no row \"{record}\" in table {}", table.name)))
}
