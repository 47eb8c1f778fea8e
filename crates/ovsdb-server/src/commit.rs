//! The checks that RFC 7047 defers to the end of a transaction (section 4.1.3), in the order in which Open vSwitch makes
//! them: no-ops dropped, strong references counted, unreferenced rows collected, row limits, weak references cleaned,
//! unique indexes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::quality::RandomState;
use ovsdb::schema::TableSchema;
use ovsdb::types::BaseType;
use ovsdb::{Atom, AtomType, ColumnType, Datum, Error, Result, Uuid, UuidSource, text};

use crate::database::{Binding, RowId, column_references, index_key, references};
use crate::row::{Row, RowChange};
use crate::transaction::{Overlay, Transaction};

/// A transaction that has passed all checks and may be applied.
#[derive(Debug)]
pub struct Prepared {
    /// Its changes; empty if it changes nothing.
    pub changes: Vec<RowChange>,
    /// Its comments.
    pub comment: String,
    /// Whether it requests durability before the reply.
    pub durable: bool,
}

/// Checks a transaction as a whole and completes it: deletes rows without references, removes dangling weak
/// references, and assigns new versions.
pub fn prepare(mut transaction: Transaction<'_>, uuids: &mut UuidSource) -> Result<Prepared> {
    drop_no_ops(&mut transaction);
    let mut counts = count_references(&transaction)?;
    check_deletions(&transaction, &counts)?;
    collect_garbage(&mut transaction, &mut counts)?;
    check_row_limits(&transaction)?;
    clean_weak_references(&mut transaction)?;
    check_unique_indexes(&transaction)?;
    // A row that lost all that was changed of it, since it was a dangling reference, is a new version all the same. One
    // that was inserted keeps the version that its transaction saw.
    for overlay in transaction.changes.values_mut() {
        if let Some(new) = overlay.new.as_mut().filter(|new| overlay.old.is_some() || new.version().is_zero()) {
            Arc::make_mut(new).set_version(uuids.next_uuid());
        }
    }
    let (comment, durable) = (transaction.comment().to_owned(), transaction.is_durable());
    Ok(Prepared { changes: transaction.into_changes(), comment, durable })
}

fn drop_no_ops(transaction: &mut Transaction<'_>) {
    transaction.changes.retain(|_, overlay| match (&overlay.old, &overlay.new) {
        (None, None) => false,
        (Some(old), Some(new)) => !old.same_content(new),
        _ => true,
    });
}

/// By how much the transaction changes the number of strong references to each row.
type Counts = HashMap<RowId, i64, RandomState>;

fn count_references(transaction: &Transaction<'_>) -> Result<Counts> {
    let mut counts = Counts::default();
    for (&id, overlay) in &transaction.changes {
        let Some(schema) = transaction.database.table_schema(id.0) else { continue };
        if let Some(old) = &overlay.old {
            add_references(transaction, schema, old, -1, &mut counts);
        }
        if let Some(new) = &overlay.new {
            check_targets(transaction, schema, new, overlay)?;
            add_references(transaction, schema, new, 1, &mut counts);
        }
    }
    Ok(counts)
}

fn add_references(transaction: &Transaction<'_>, table: &TableSchema, row: &Row, by: i64, counts: &mut Counts) {
    for (target, binding) in references(table, transaction.database.schema(), row) {
        if binding == Binding::Strong {
            *counts.entry(target).or_insert(0) += by;
        }
    }
}

/// Every strong reference must name an existing row, or one whose deletion is then refused.
fn check_targets(transaction: &Transaction<'_>, table: &TableSchema, row: &Row, overlay: &Overlay) -> Result<()> {
    let schema = transaction.database.schema();
    for (index, column) in table.own_columns() {
        let Some(datum) = row.column(index) else { continue };
        if overlay.old.as_ref().is_some_and(|old| old.same(row, index)) {
            continue;
        }
        let mut found = Vec::new();
        column_references(&column.kind, schema, datum, &mut found);
        let missing = found.iter().find(|(id, binding)| *binding == Binding::Strong && !transaction.knows(*id));
        if let Some(((target, uuid), _)) = missing {
            let target = schema.tables().get(*target).map_or("?", |table| table.name.as_str());
            return Err(Error::referential(format!(
                "Table {} column {} row {} references nonexistent row {uuid} in table {target}.",
                table.name,
                column.name,
                row.uuid()
            )));
        }
    }
    Ok(())
}

fn strong_count(transaction: &Transaction<'_>, counts: &Counts, id: RowId) -> i64 {
    let before = transaction.database.strong_references(id) as i64;
    before.saturating_add(counts.get(&id).copied().unwrap_or(0))
}

fn check_deletions(transaction: &Transaction<'_>, counts: &Counts) -> Result<()> {
    for (&id, overlay) in &transaction.changes {
        let count = strong_count(transaction, counts, id);
        if overlay.new.is_none() && count > 0 {
            let table = transaction.database.table_schema(id.0).map_or("?", |schema| schema.name.as_str());
            return Err(Error::referential(format!(
                "cannot delete {table} row {} because of {count} remaining reference(s)",
                id.1
            )));
        }
    }
    Ok(())
}

/// Deletes rows outside the root set without references, and then those that only they referred to.
fn collect_garbage(transaction: &mut Transaction<'_>, counts: &mut Counts) -> Result<()> {
    let mut candidates: Vec<RowId> = transaction.changes.keys().chain(counts.keys()).copied().collect();
    while let Some(id) = candidates.pop() {
        let Some(schema) = transaction.database.table_schema(id.0) else { continue };
        if schema.is_root || strong_count(transaction, counts, id) > 0 {
            continue;
        }
        let Some(row) = transaction.row(id.0, id.1).cloned() else { continue };
        add_references(transaction, schema, &row, -1, counts);
        candidates.extend(references(schema, transaction.database.schema(), &row).into_iter().map(|(id, _)| id));
        transaction.delete(id.0, id.1)?;
    }
    Ok(())
}

fn check_row_limits(transaction: &Transaction<'_>) -> Result<()> {
    let mut added: HashMap<usize, i64> = HashMap::new();
    for (id, overlay) in &transaction.changes {
        let by = i64::from(overlay.new.is_some()) - i64::from(overlay.old.is_some());
        *added.entry(id.0).or_insert(0) += by;
    }
    for (table, by) in added {
        let Some(schema) = transaction.database.table_schema(table) else { continue };
        let rows = (transaction.database.row_count(table) as i64).saturating_add(by);
        if by > 0 && rows > i64::from(schema.max_rows) {
            return Err(Error::constraint(format!(
                "transaction causes \"{}\" table to contain {rows} rows, greater than the schema-defined limit of {} row(s)",
                schema.name, schema.max_rows
            )));
        }
    }
    Ok(())
}

/// Removes weak references to rows that do not exist, from rows that were changed and from rows that refer to deleted
/// ones.
fn clean_weak_references(transaction: &mut Transaction<'_>) -> Result<()> {
    let mut affected: BTreeSet<RowId> = BTreeSet::new();
    for (&id, overlay) in &transaction.changes {
        match &overlay.new {
            Some(_) => _ = affected.insert(id),
            None => affected.extend(transaction.database.weak_sources(id)),
        }
    }
    for id in affected {
        clean_row(transaction, id)?;
    }
    Ok(())
}

fn clean_row(transaction: &mut Transaction<'_>, (table, uuid): RowId) -> Result<()> {
    let Some(row) = transaction.row(table, uuid).cloned() else { return Ok(()) };
    let Some(schema) = transaction.database.table_schema(table) else { return Ok(()) };
    let is_new = transaction.database.row(table, uuid).is_none();
    let mut cleaned: Option<Row> = None;
    for (index, column) in schema.own_columns() {
        let kind = &column.kind;
        if !kind.key.is_weak_ref() && !kind.value.as_ref().is_some_and(BaseType::is_weak_ref) {
            continue;
        }
        let Some(datum) = row.column(index) else { continue };
        let dangling = |base: &BaseType, atom: &Atom| is_dangling(transaction, base, atom);
        let keep = |key: &Atom, value: Option<&Atom>| {
            !dangling(&kind.key, key)
                && !kind.value.as_ref().zip(value).is_some_and(|(base, atom)| dangling(base, atom))
        };
        if datum.iter().all(|(key, value)| keep(key, value)) {
            continue;
        }
        let mut rest = datum.clone();
        rest.retain(keep);
        if rest.len() < kind.min as usize {
            return Err(emptied(schema, &column.name, uuid, datum, rest.len(), is_new));
        }
        cleaned.get_or_insert_with(|| (*row).clone()).set(index, rest);
    }
    cleaned.map_or(Ok(()), |row| transaction.replace(table, row))
}

fn is_dangling(transaction: &Transaction<'_>, base: &BaseType, atom: &Atom) -> bool {
    if !base.is_weak_ref() {
        return false;
    }
    let target = base.ref_table().and_then(|name| transaction.database.schema().table_index(name));
    match (target, atom) {
        (Some(table), Atom::Uuid(uuid)) => transaction.row(table, *uuid).is_none(),
        _ => false,
    }
}

/// The error for a column that may not be empty but lost its last weak reference.
fn emptied(table: &TableSchema, column: &str, row: Uuid, before: &Datum, left: usize, is_new: bool) -> Error {
    let zeros = before.keys().iter().chain(before.values()).any(|atom| atom.as_uuid() == Some(Uuid::ZERO));
    let table = &table.name;
    Error::constraint(if is_new && zeros {
        format!(
            "Weak reference column \"{column}\" in \"{table}\" row {row} (inserted within this transaction) contained \
             all-zeros UUID (probably as the default value for this column) but deleting this value caused a \
             constraint volation because this column is not allowed to be empty."
        )
    } else {
        let inserted = if is_new { "(inserted within this transaction) " } else { "" };
        format!(
            "Deletion of {} weak reference(s) to deleted (or never-existing) rows from column \"{column}\" in \
             \"{table}\" row {row} {inserted}caused this column to become empty, but constraints on this column \
             disallow an empty column.",
            before.len() - left
        )
    })
}

fn check_unique_indexes(transaction: &Transaction<'_>) -> Result<()> {
    for (table, schema) in transaction.database.schema().tables().iter().enumerate() {
        for (number, columns) in schema.indexes.iter().enumerate() {
            check_unique_index(transaction, table, schema, number, columns)?;
        }
    }
    Ok(())
}

fn check_unique_index(
    transaction: &Transaction<'_>,
    table: usize,
    schema: &TableSchema,
    number: usize,
    columns: &[usize],
) -> Result<()> {
    let mut taken = HashMap::new();
    for (uuid, overlay) in transaction.table_changes(table) {
        let Some(row) = &overlay.new else { continue };
        let key = index_key(row, columns);
        // A row changed by the transaction releases its old key; if it keeps the key, `taken` has it.
        let before = transaction.database.unique_owner(table, number, &key);
        let before = before.filter(|&owner| owner != uuid && !transaction.changes.contains_key(&(table, owner)));
        if let Some(other) = before.or_else(|| taken.get(&key).copied()) {
            let pair = in_order(transaction, (table, schema), row, other);
            return Err(duplicate(transaction, (table, schema), columns, row, pair));
        }
        taken.insert(key, uuid);
    }
    Ok(())
}

/// The order in which an error names a row that the transaction changed and another one: the greater one first, by
/// all columns without UUIDs in the order of their names; of equal ones the other.
fn in_order(
    transaction: &Transaction<'_>,
    (table, schema): (usize, &TableSchema),
    row: &Row,
    other: Uuid,
) -> (Uuid, Uuid) {
    let has_uuids = |kind: &ColumnType| {
        kind.key.kind == AtomType::Uuid || kind.value.as_ref().is_some_and(|value| value.kind == AtomType::Uuid)
    };
    let mut columns: Vec<(&str, usize)> = schema
        .own_columns()
        .filter(|(_, column)| !has_uuids(&column.kind))
        .map(|(index, column)| (column.name.as_str(), index))
        .collect();
    columns.sort_unstable();
    let columns: Vec<usize> = columns.into_iter().map(|(_, index)| index).collect();
    let is_greater = transaction.row(table, other).is_some_and(|other| row.compare(other, &columns).is_gt());
    if is_greater { (row.uuid(), other) } else { (other, row.uuid()) }
}

fn duplicate(
    transaction: &Transaction<'_>,
    (table, schema): (usize, &TableSchema),
    columns: &[usize],
    row: &Row,
    (first, second): (Uuid, Uuid),
) -> Error {
    let describe = |uuid: Uuid| match transaction.changes.get(&(table, uuid)) {
        None => "existed in the database before this transaction and was not modified by the transaction.".to_owned(),
        Some(Overlay { old: None, .. }) => "was inserted by this transaction.".to_owned(),
        Some(Overlay { old: Some(old), new }) => {
            if new.as_ref().is_some_and(|new| columns.iter().all(|&column| old.same(new, column))) {
                "existed in the database before this transaction, which modified some of the row's columns but not any \
                 columns in this index."
                    .to_owned()
            } else {
                let values = values_text(schema, columns, old);
                format!("had the following index values before the transaction: {values}.")
            }
        }
    };
    let names = columns.iter().filter_map(|&column| schema.columns().get(column));
    let names: Vec<String> = names.map(|column| format!("\"{}\"", column.name)).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    Error::constraint(format!(
        "Transaction causes multiple rows in \"{}\" table to have identical values ({}) for index on column{plural} {}.  \
         First row, with UUID {first}, {}  Second row, with UUID {second}, {}",
        schema.name,
        values_text(schema, columns, row),
        english_list(&names),
        describe(first),
        describe(second)
    ))
}

fn values_text(schema: &TableSchema, columns: &[usize], row: &Row) -> String {
    let value = |&column: &usize| {
        let kind: &ColumnType = &schema.columns().get(column)?.kind;
        Some(text::format_datum(row.column(column)?, kind))
    };
    english_list(&columns.iter().filter_map(value).collect::<Vec<_>>())
}

/// `a`, `a and b`, `a, b, and c`.
fn english_list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first, second] => format!("{first} and {second}"),
        [most @ .., last] => format!("{}, and {last}", most.join(", ")),
    }
}
