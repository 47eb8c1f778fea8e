//! The database commands: get, list, find, set, add, remove, clear, create, destroy, wait-until, comment.

use cli::table::{Cell, CellValue, Table};
use ovsdb::text::{format_atom, format_datum, format_datum_bare, parse_atom, parse_datum};
use ovsdb::types::UNLIMITED;
use ovsdb::{ColumnSchema, ColumnType, Datum, TableSchema, Uuid};
use serde_json::Value;

use crate::column::{self, column_key, column_key_value};
use crate::command::Command;
use crate::context::{Committed, Context, Output};
use crate::names;
use crate::needs::Needs;
use crate::{Done, Failure, Program};

pub(crate) fn no_needs<P: Program>(_: &mut Needs<'_>, _: &Command<P>) -> Done {
    Ok(())
}

pub(crate) fn comment<P: Program>(_: &mut Context<'_, P>, _: &Command<P>, _: &mut Output) -> Done {
    Ok(())
}

/// The table named by the first argument.
fn table_of<'a, P: Program>(
    schema: &'a ovsdb::DatabaseSchema,
    command: &Command<P>,
) -> Result<&'a TableSchema, Failure> {
    names::table(schema, command.arg(0))
}

/// Needs the column of a setting `COLUMN[:KEY]=VALUE`.
pub fn setting_needs<'a>(needs: &mut Needs<'a>, table: &'a TableSchema, setting: &str) -> Done {
    let (found, _) = column_key_value(table, setting)?;
    let name = found.column.name.clone();
    needs.column(table, &name).map(|_| ())
}

pub(crate) fn get_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    let table = needs.table(command.arg(0))?;
    for arg in command.args_from(2) {
        if arg == "_uuid" {
            continue;
        }
        let name = column_key(table, arg)?.column.name.clone();
        needs.column(table, &name)?;
    }
    Ok(())
}

pub(crate) fn get<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, output: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let if_exists = command.has("--if-exists");
    let record = command.arg(1);
    if if_exists && command.has("--id") {
        return Err(Failure::fatal("--if-exists and --id may not be specified together"));
    }
    let Some(row) = find_row(context, table, record, command)? else { return Ok(()) };
    if let Some(name) = command.value("--id") {
        let symbol = new_symbol(context, name)?;
        let symbol = context.symbols.entry(&symbol);
        symbol.uuid = row;
        // It exists already, so no reference to it is required.
        symbol.strong_reference = true;
    }
    for arg in command.args_from(2) {
        if arg == "_uuid" {
            output.line(row.to_string());
            continue;
        }
        let found = column_key(table, arg)?;
        let column = found.column;
        context.txn.verify_column(&table.name, row, &column.name);
        let datum = context.txn.datum(&table.name, row, &column.name).cloned().unwrap_or_default();
        let Some(key) = found.key else {
            output.line(format_datum(&datum, &column.kind));
            continue;
        };
        if !column.kind.is_map() {
            return Err(Failure::fatal(format!("cannot specify key to get for non-map column {}", column.name)));
        }
        let key_atom = parse_atom(key, &column.kind.key, &mut context.symbols)?;
        match datum.get(&key_atom) {
            Some(value) => output.line(format_atom(value)),
            None if if_exists => output.line(""),
            None => {
                return Err(Failure::fatal(format!(
                    "no key \"{key}\" in {} record \"{record}\" column {}",
                    table.name, column.name
                )));
            }
        }
    }
    Ok(())
}

/// The record named by a command; `None` if it does not exist and `--if-exists` was given.
fn find_row<P: Program>(
    context: &Context<'_, P>,
    table: &TableSchema,
    record: &str,
    command: &Command<P>,
) -> Result<Option<Uuid>, Failure> {
    if command.has("--if-exists") {
        return names::row(context, table, record);
    }
    names::row_must_exist(context, table, record).map(Some)
}

/// Checks the name given with `--id`, which must be unique.
fn new_symbol<P: Program>(context: &mut Context<'_, P>, name: &str) -> Result<String, Failure> {
    if !name.starts_with('@') {
        return Err(Failure::fatal(format!("row id \"{name}\" does not begin with \"@\"")));
    }
    let symbol = context.symbols.entry(name);
    if symbol.created {
        return Err(Failure::fatal(format!("row id \"{name}\" may only be specified on one --id option")));
    }
    symbol.created = true;
    Ok(name.to_owned())
}

/// The columns named by `--columns`, or all, with `None` for `_uuid`.
fn columns<'a, P: Program>(
    table: &'a TableSchema,
    command: &Command<P>,
) -> Result<Vec<Option<&'a ColumnSchema>>, Failure> {
    let Some(list) = command.value("--columns") else {
        let mut all: Vec<_> = table.own_columns().map(|(_, column)| column).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        return Ok(std::iter::once(None).chain(all.into_iter().map(Some)).collect());
    };
    let mut chosen = Vec::new();
    for name in column::column_list(list) {
        chosen.push(if name == "_uuid" { None } else { Some(names::column(table, name)?) });
    }
    if chosen.is_empty() {
        return Err(Failure::fatal("must specify at least one column name"));
    }
    Ok(chosen)
}

pub(crate) fn list_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    let table = needs.table(command.arg(0))?;
    for column in columns(table, command)?.into_iter().flatten() {
        needs.column(table, &column.name)?;
    }
    Ok(())
}

pub(crate) fn list<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, output: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let mut rows = Vec::new();
    if command.args.len() > 1 {
        for record in command.args_from(1) {
            rows.extend(find_row(context, table, record, command)?);
        }
    } else {
        rows = context.txn.rows(&table.name);
    }
    print_rows(context, table, command, rows, output)
}

pub(crate) fn find_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    list_needs(needs, command)?;
    condition_needs(needs, command, 1)
}

fn condition_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>, from: usize) -> Done {
    let table = needs.table(command.arg(0))?;
    for arg in command.args_from(from) {
        let name = column::condition_column(table, arg)?.name.clone();
        needs.column(table, &name)?;
    }
    Ok(())
}

pub(crate) fn find<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, output: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let mut rows = Vec::new();
    for row in context.txn.rows(&table.name) {
        if satisfies(context, table, row, command.args_from(1))? {
            rows.push(row);
        }
    }
    print_rows(context, table, command, rows, output)
}

fn satisfies<P: Program>(
    context: &mut Context<'_, P>,
    table: &TableSchema,
    row: Uuid,
    conditions: &[String],
) -> Result<bool, Failure> {
    for arg in conditions {
        let condition = column::condition(table, arg, &mut context.symbols)?;
        let have = context.txn.datum(&table.name, row, &condition.column.name).cloned().unwrap_or_default();
        if !condition.holds(&have) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A datum in a table.
struct DatumCell {
    datum: Datum,
    kind: ColumnType,
}

impl CellValue for DatumCell {
    fn to_text(&self) -> String {
        format_datum(&self.datum, &self.kind)
    }

    fn to_bare(&self) -> String {
        format_datum_bare(&self.datum)
    }

    fn to_json(&self) -> Value {
        self.datum.to_json(&self.kind)
    }
}

fn print_rows<P: Program>(
    context: &Context<'_, P>,
    table: &TableSchema,
    command: &Command<P>,
    rows: Vec<Uuid>,
    output: &mut Output,
) -> Done {
    let columns = columns(table, command)?;
    let mut printed = Table::new(columns.iter().map(|column| column.map_or("_uuid", |column| &column.name)));
    for row in rows {
        let cell = |column: Option<&ColumnSchema>| match column {
            None => {
                let kind = ColumnType::scalar(ovsdb::BaseType::new(ovsdb::AtomType::Uuid));
                Cell::value(DatumCell { datum: Datum::scalar(row), kind })
            }
            Some(column) => {
                let datum = context.txn.datum(&table.name, row, &column.name).cloned().unwrap_or_default();
                Cell::value(DatumCell { datum, kind: column.kind.clone() })
            }
        };
        printed.push(columns.iter().copied().map(cell).collect());
    }
    output.table = Some(printed);
    Ok(())
}

pub(crate) fn set_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    let table = needs.table(command.arg(0))?;
    command.args_from(2).iter().try_for_each(|setting| setting_needs(needs, table, setting))
}

pub(crate) fn set<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let Some(row) = find_row(context, table, command.arg(1), command)? else { return Ok(()) };
    for setting in command.args_from(2) {
        let column = column_key_value(table, setting)?.0.column;
        check_mutable(context, table, row, column)?;
        apply_setting(context, table, row, setting)?;
        context.touched(&table.name, &column.name);
    }
    Ok(())
}

/// Immutable columns may only be written while their row is new.
fn check_mutable<P: Program>(context: &Context<'_, P>, table: &TableSchema, row: Uuid, column: &ColumnSchema) -> Done {
    if column.mutable || context.txn.replica().row(&table.name, row).is_none() {
        return Ok(());
    }
    Err(Failure::fatal(format!("cannot modify read-only column {} in table {}", column.name, table.name)))
}

/// Applies `COLUMN[:KEY]=VALUE` to a row.
pub fn apply_setting<P: Program>(context: &mut Context<'_, P>, table: &TableSchema, row: Uuid, setting: &str) -> Done {
    let (found, value) = column_key_value(table, setting)?;
    let column = found.column;
    let Some(key) = found.key else {
        let datum = parse_datum(value, &column.kind, &mut context.symbols)?;
        context.txn.set_datum(&table.name, row, &column.name, datum);
        return Ok(());
    };
    let Some(base) = &column.kind.value else {
        return Err(Failure::fatal(format!("cannot specify key to set for non-map column {}", column.name)));
    };
    let key = parse_atom(key, &column.kind.key, &mut context.symbols)?;
    let value = parse_atom(value, base, &mut context.symbols)?;
    context.txn.add_elements(&table.name, row, &column.name, &Datum::map([(key, value)]));
    Ok(())
}

pub(crate) fn add_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    let table = needs.table(command.arg(0))?;
    needs.column(table, command.arg(2)).map(|_| ())
}

pub(crate) fn add<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let Some(row) = find_row(context, table, command.arg(1), command)? else { return Ok(()) };
    let column = names::column(table, command.arg(2))?;
    check_mutable(context, table, row, column)?;
    let kind = ColumnType { min: 1, max: UNLIMITED, ..column.kind.clone() };
    let mut elements = column::elements(&kind, command.args_from(3), &mut context.symbols)?;
    // Keys that the column has keep their values.
    let old = context.txn.datum(&table.name, row, &column.name).cloned().unwrap_or_default();
    elements.subtract(&Datum::set(old.keys().iter().cloned()));
    let count = old.len() + elements.len();
    if u32::try_from(count).is_ok_and(|count| count > column.kind.max) {
        return Err(wrong_count("add", count, table, column, ("maximum", column.kind.max)));
    }
    if !elements.is_empty() {
        context.txn.verify_column(&table.name, row, &column.name);
        context.txn.add_elements(&table.name, row, &column.name, &elements);
    }
    context.touched(&table.name, &column.name);
    Ok(())
}

/// The error for an operation that would leave too many or too few elements; `limit` is the limit with its name.
fn wrong_count(
    operation: &str,
    count: usize,
    table: &TableSchema,
    column: &ColumnSchema,
    limit: (&str, u32),
) -> Failure {
    Failure::fatal(format!(
        "\"{operation}\" operation would put {count} {} in column {} of table {} but the {} number is {}",
        if column.kind.is_map() { "pairs" } else { "values" },
        column.name,
        table.name,
        limit.0,
        limit.1
    ))
}

pub(crate) fn remove<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let Some(row) = find_row(context, table, command.arg(1), command)? else { return Ok(()) };
    let column = names::column(table, command.arg(2))?;
    check_mutable(context, table, row, column)?;
    let pairs = ColumnType { min: 1, max: UNLIMITED, ..column.kind.clone() };
    let keys = ColumnType { value: None, ..pairs.clone() };
    let old = context.txn.datum(&table.name, row, &column.name).cloned().unwrap_or_default();
    let mut left = old.clone();
    for arg in command.args_from(3) {
        let parsed = parse_datum(arg, &pairs, &mut context.symbols);
        let parsed = match parsed {
            Err(_) if pairs.is_map() => parse_datum(arg, &keys, &mut context.symbols),
            parsed => parsed,
        };
        left.subtract(&parsed?);
    }
    if left.len() < column.kind.min as usize {
        return Err(wrong_count("remove", left.len(), table, column, ("minimum", column.kind.min)));
    }
    let mut gone = Datum::set(old.keys().iter().cloned());
    gone.subtract(&Datum::set(left.keys().iter().cloned()));
    context.txn.verify_column(&table.name, row, &column.name);
    context.txn.remove_elements(&table.name, row, &column.name, &gone);
    context.touched(&table.name, &column.name);
    Ok(())
}

pub(crate) fn clear_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    let table = needs.table(command.arg(0))?;
    command.args_from(2).iter().try_for_each(|name| needs.column(table, name).map(|_| ()))
}

pub(crate) fn clear<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let Some(row) = find_row(context, table, command.arg(1), command)? else { return Ok(()) };
    for name in command.args_from(2) {
        let column = names::column(table, name)?;
        check_mutable(context, table, row, column)?;
        if column.kind.min > 0 {
            return Err(Failure::fatal(format!(
                "\"clear\" operation cannot be applied to column {} of table {}, which is not allowed to be empty",
                column.name, table.name
            )));
        }
        context.txn.set_datum(&table.name, row, &column.name, Datum::empty());
        context.touched(&table.name, &column.name);
    }
    Ok(())
}

pub(crate) fn create_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    let table = needs.table(command.arg(0))?;
    if !command.has("--id") && !table.is_root {
        tracing::warn!(
            target: "db_ctl_base",
            "applying \"create\" command to table {} without --id option will have no effect", table.name
        );
    }
    command.args_from(1).iter().try_for_each(|setting| setting_needs(needs, table, setting))
}

pub(crate) fn create<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, output: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let row = match command.value("--id") {
        None => context.txn.insert_row(&table.name),
        Some(id) => match Uuid::parse(id) {
            Some(uuid) => {
                context.txn.insert_row_with_uuid(&table.name, uuid);
                uuid
            }
            None => {
                let name = new_symbol(context, id)?;
                let symbol = context.symbols.entry(&name);
                // Rows of a root table stay without a reference.
                symbol.strong_reference |= table.is_root;
                let uuid = symbol.uuid;
                context.txn.insert_row_as(&table.name, uuid);
                uuid
            }
        },
    };
    for setting in command.args_from(1) {
        apply_setting(context, table, row, setting)?;
    }
    output.created = Some(row);
    // Earlier commands may have referred to it already.
    context.touched(&table.name, "name");
    Ok(())
}

pub(crate) fn create_finish(committed: &Committed, output: &mut Output) {
    if let Some(row) = output.created {
        output.line(committed.uuid(row).to_string());
    }
}

pub(crate) fn destroy_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    needs.table(command.arg(0)).map(|_| ())
}

pub(crate) fn destroy<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let (all, records) = (command.has("--all"), command.args_from(1));
    if all && !records.is_empty() {
        return Err(Failure::fatal("--all and records argument should not be specified together"));
    }
    if all && command.has("--if-exists") {
        return Err(Failure::fatal("--all and --if-exists should not be specified together"));
    }
    if !all && records.is_empty() {
        tracing::warn!(target: "db_ctl_base", "either --all or records argument should be specified");
    }
    let destroy = |context: &mut Context<'_, P>, row: Uuid| {
        if table.is_root {
            context.txn.delete_row(&table.name, row);
        } else {
            // The server deletes rows of other tables when they are no longer referenced, and not before.
            context.txn.forget_row(&table.name, row);
        }
    };
    if all {
        context.txn.rows(&table.name).into_iter().for_each(|row| destroy(context, row));
    }
    for record in records {
        if let Some(row) = find_row(context, table, record, command)? {
            destroy(context, row);
        }
    }
    context.drop_model();
    Ok(())
}

pub(crate) fn wait_until_needs<P: Program>(needs: &mut Needs<'_>, command: &Command<P>) -> Done {
    condition_needs(needs, command, 2)
}

pub(crate) fn wait_until<P: Program>(context: &mut Context<'_, P>, command: &Command<P>, _: &mut Output) -> Done {
    let schema = context.schema.clone();
    let table = table_of(&schema, command)?;
    let Some(row) = names::row(context, table, command.arg(1))? else { return Err(Failure::NotYet) };
    if satisfies(context, table, row, command.args_from(2))? { Ok(()) } else { Err(Failure::NotYet) }
}
