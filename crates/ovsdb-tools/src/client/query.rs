//! The commands that ask a server and print the answer.

use std::cmp::Ordering;
use std::sync::Arc;

use cli::table::{Cell, CellValue, Printer, Table};
use ovsdb::schema::{UUID_COLUMN, VERSION_COLUMN};
use ovsdb::text::{format_datum, format_datum_bare};
use ovsdb::{ColumnSchema, ColumnType, DatabaseSchema, Datum, NoSymbols, TableSchema};
use ovsdb_client::Client;
use serde_json::{Map, Value, json};

use super::background::Background;
use super::{Call, Done, print_line, print_text, text};

/// A datum in a table.
pub(super) struct DatumCell {
    pub(super) datum: Datum,
    pub(super) kind: ColumnType,
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

/// JSON in a table.
struct JsonCell(Value);

impl CellValue for JsonCell {
    fn to_text(&self) -> String {
        cli::json::compact(&self.0)
    }

    fn to_bare(&self) -> String {
        self.to_text()
    }

    fn to_json(&self) -> Value {
        self.0.clone()
    }
}

/// The names of the server's databases, sorted.
pub(super) async fn databases(client: &mut Client) -> Result<Vec<String>, String> {
    let json = client.request("list_dbs", Vec::new()).await.map_err(text)?;
    let names = json.as_array().ok_or("list_dbs response is not array")?;
    let mut names: Vec<String> = names
        .iter()
        .map(|name| name.as_str().map(str::to_owned).ok_or("list_dbs response contains a name that is not a string"))
        .collect::<Result<_, _>>()?;
    names.sort_unstable();
    Ok(names)
}

pub(super) async fn list_dbs(mut call: Call) -> Done {
    databases(&mut call.client).await?.iter().for_each(|name| print_line(name));
    Ok(())
}

pub(super) async fn schema(call: &mut Call) -> Result<Arc<DatabaseSchema>, String> {
    call.client.schema(&call.database).await.map_err(text)
}

pub(super) async fn get_schema(mut call: Call) -> Done {
    let schema = schema(&mut call).await?;
    call.print_json(&schema.to_json());
    Ok(())
}

pub(super) async fn get_schema_version(mut call: Call) -> Done {
    print_line(&schema(&mut call).await?.version);
    Ok(())
}

pub(super) async fn get_schema_cksum(mut call: Call) -> Done {
    print_line(&schema(&mut call).await?.cksum);
    Ok(())
}

pub(super) async fn list_tables(mut call: Call) -> Done {
    let schema = schema(&mut call).await?;
    let mut names: Vec<&str> = schema.tables().iter().map(|table| table.name.as_str()).collect();
    names.sort_unstable();
    let mut table = Table::new(["Table"]);
    for name in names {
        table.push(vec![Cell::text(name)]);
    }
    print_text(&table.render(&call.options.style));
    Ok(())
}

pub(super) async fn list_columns(mut call: Call) -> Done {
    let schema = schema(&mut call).await?;
    let wanted = call.args.first();
    let headings: &[&str] = if wanted.is_some() { &["Column", "Type"] } else { &["Table", "Column", "Type"] };
    let mut printed = Table::new(headings.iter().copied());
    let mut tables: Vec<&TableSchema> = schema.tables().iter().collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    for table in tables.into_iter().filter(|table| wanted.is_none_or(|wanted| table.name == *wanted)) {
        for column in sorted_columns(table) {
            let mut row: Vec<Cell> = Vec::with_capacity(3);
            if wanted.is_none() {
                row.push(Cell::text(table.name.as_str()));
            }
            row.push(Cell::text(column.name.as_str()));
            row.push(Cell::value(JsonCell(column.kind.to_json())));
            printed.push(row);
        }
    }
    print_text(&printed.render(&call.options.style));
    Ok(())
}

/// All columns, sorted by name.
pub(super) fn sorted_columns(table: &TableSchema) -> Vec<&ColumnSchema> {
    let mut columns: Vec<&ColumnSchema> = table.columns().iter().collect();
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    columns
}

/// Parses an argument as JSON.
pub(super) fn parse_json(argument: &str) -> Result<Value, String> {
    ovsdb::json_text::parse(argument.as_bytes()).map_err(|error| format!("\"{argument}\": {error}"))
}

/// Parses the argument of `transact` and `query`.
fn parse_transaction(argument: &str) -> Result<Vec<Value>, String> {
    match parse_json(argument)? {
        Value::Array(params) if params.first().is_some_and(Value::is_string) => Ok(params),
        _ => Err("not a valid OVSDB query".into()),
    }
}

async fn transact_params(client: &mut Client, params: Vec<Value>) -> Result<Value, String> {
    let answer = client.call("transact", params).await.map_err(text)?;
    answer.map_err(|error| format!("transaction returned error: {}", cli::json::compact(&error)))
}

pub(super) async fn transact(mut call: Call) -> Done {
    let params = parse_transaction(call.arg(0))?;
    if call.options.change_aware == Some(true) {
        call.set_change_aware().await?;
    }
    let daemon = call.options.daemon.take();
    let results = {
        let mut answer = std::pin::pin!(transact_params(&mut call.client, params));
        // The request is sent before the process that the user started ends.
        let early = tokio::select! {
            biased;
            results = &mut answer => Some(results?),
            () = std::future::ready(()) => None,
        };
        let background = Background::begin(daemon, |_| ())?;
        match early {
            Some(results) => results,
            None => tokio::select! {
                results = answer => results?,
                () = background.ended() => return Ok(()),
            },
        }
    };
    call.print_json(&results);
    Ok(())
}

pub(super) async fn query(mut call: Call) -> Done {
    let mut params = parse_transaction(call.arg(0))?;
    params.push(json!({ "op": "abort" }));
    let mut results = transact_params(&mut call.client, params).await?;
    if let Some(results) = results.as_array_mut() {
        let aborted = |result: &Value| result.get("error").and_then(Value::as_str) == Some("aborted");
        if results.last().is_some_and(aborted) {
            results.pop();
        }
    }
    call.print_json(&results);
    Ok(())
}

pub(super) async fn dump(mut call: Call) -> Done {
    let schema = schema(&mut call).await?;
    let mut tables: Vec<&TableSchema> = schema.tables().iter().collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(name) = call.args.first() {
        tables.retain(|table| table.name == *name);
        if tables.is_empty() {
            return Err(format!("No table \"{name}\" found."));
        }
    }
    let mut plan = Vec::new();
    for table in tables {
        plan.push((table, dumped_columns(table, call.args.get(1..).unwrap_or_default())?));
    }
    let mut params = vec![Value::from(schema.name.as_str())];
    for (table, columns) in &plan {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        params.push(json!({ "op": "select", "table": table.name, "where": [], "columns": names }));
    }
    let results = transact_params(&mut call.client, params).await?;
    let mut printer = Printer::default();
    for (at, (table, columns)) in plan.iter().enumerate() {
        let result = results.get(at).unwrap_or(&Value::Null);
        let rows = result.get("rows").filter(|rows| rows.is_array()).ok_or_else(|| {
            let mut result = result.clone();
            // Open vSwitch prints an error in this order.
            if let Some(error) = result.as_object_mut() {
                let mut ordered: Map<_, _> =
                    ["syntax", "details", "error"].iter().filter_map(|key| error.remove_entry(*key)).collect();
                ordered.append(error);
                *error = ordered;
            }
            format!("{} table reply is not an object with a \"rows\" member array: {result}", table.name)
        })?;
        let rows = read_rows(rows, columns)?;
        let mut printed = Table::new(columns.iter().map(|column| column.name.as_str()));
        printed = printed.caption(format!("{} table", table.name));
        for row in rows {
            let cells = row
                .into_iter()
                .zip(columns)
                .map(|(datum, column)| Cell::value(DatumCell { datum, kind: column.kind.clone() }));
            printed.push(cells.collect());
        }
        print_text(&printer.render(&printed, &call.options.style));
    }
    Ok(())
}

/// The columns of a dump of `table`: the named ones, or all except `_version`.
fn dumped_columns<'a>(table: &'a TableSchema, names: &[String]) -> Result<Vec<&'a ColumnSchema>, String> {
    let mut columns = sorted_columns(table);
    for name in names {
        if table.column(name).is_none() {
            return Err(format!("Table \"{}\" has no column {name}.", table.name));
        }
    }
    if names.is_empty() {
        columns.retain(|column| table.column_index(&column.name) != Some(VERSION_COLUMN));
        return Ok(columns);
    }
    // A column that is named twice is asked for twice, which the server refuses.
    let times = |column: &ColumnSchema| names.iter().filter(|name| **name == column.name).count();
    Ok(columns.into_iter().flat_map(|column| std::iter::repeat_n(column, times(column))).collect())
}

/// The rows of a `select`, sorted by all columns, `_uuid` last.
fn read_rows(rows: &Value, columns: &[&ColumnSchema]) -> Result<Vec<Vec<Datum>>, String> {
    let rows = rows.as_array().ok_or("the server's answer to select has no rows")?;
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        let datum = |column: &&ColumnSchema| -> Result<Datum, String> {
            let json = row.get(&column.name).ok_or_else(|| format!("a row lacks column {}", column.name))?;
            Datum::from_json(json, &column.kind.unconstrained(), &mut NoSymbols).map_err(|error| error.to_string())
        };
        read.push(columns.iter().map(datum).collect::<Result<Vec<_>, _>>()?);
    }
    let uuid = columns.iter().position(|column| column.name == "_uuid");
    read.sort_by(|a: &Vec<Datum>, b: &Vec<Datum>| {
        let compare = |at: usize| match (a.get(at), b.get(at)) {
            (Some(a), Some(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
            _ => Ordering::Equal,
        };
        let others = (0..columns.len()).filter(|at| Some(*at) != uuid);
        let by_others = others.map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        by_others.then_with(|| uuid.map_or(Ordering::Equal, compare))
    });
    Ok(read)
}

/// Returns true if every table has the column.
pub(super) fn is_implicit(table: &TableSchema, column: &str) -> bool {
    matches!(table.column_index(column), Some(UUID_COLUMN | VERSION_COLUMN))
}
