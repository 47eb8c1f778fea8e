//! The commands that copy a whole database or change its schema: backup, restore, convert, needs-conversion.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use ovsdb::{DatabaseSchema, Uuid};
use ovsdb_server::log;
use serde_json::{Map, Value, json};

use super::{Call, Done, print_line, query, text};
use crate::schema_file;

pub(super) async fn convert(mut call: Call) -> Done {
    let schema = schema_file::read(Path::new(call.arg(0)))?;
    let params = vec![schema.name.as_str().into(), schema.to_json()];
    let answer = call.client.call("convert", params).await.map_err(text)?;
    match answer {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("conversion failed: {}", cli::json::compact(&error))),
    }
}

pub(super) async fn needs_conversion(mut call: Call) -> Done {
    let wanted = schema_file::read(Path::new(call.arg(0)))?;
    let present = call.client.schema(&wanted.name).await.map_err(text)?;
    print_line(if present.equivalent(&wanted) { "no" } else { "yes" });
    Ok(())
}

/// The results of a transaction, none of which is an error.
async fn transact(call: &mut Call, params: Vec<Value>) -> Result<Vec<Value>, String> {
    let results = call.client.request("transact", params).await.map_err(text)?;
    let results = results.as_array().cloned().ok_or("transaction results are not an array")?;
    match results.iter().find(|result| result.get("error").is_some()) {
        Some(error) => Err(format!("transaction returned error: {}", cli::json::compact(error))),
        None => Ok(results),
    }
}

pub(super) async fn backup(mut call: Call) -> Done {
    if std::io::stdout().is_terminal() {
        return Err("not writing backup to a terminal; please redirect stdout to a file".into());
    }
    let schema = query::schema(&mut call).await?;
    let mut params = vec![Value::from(schema.name.as_str())];
    for table in schema.tables() {
        let columns: Vec<&str> = table
            .columns()
            .iter()
            .filter(|column| column.name == "_uuid" || (!query::is_implicit(table, &column.name) && !column.ephemeral))
            .map(|column| column.name.as_str())
            .collect();
        params.push(json!({ "op": "select", "table": table.name, "where": [], "columns": columns }));
    }
    let results = transact(&mut call, params).await?;
    let mut record = Map::new();
    for (table, result) in schema.tables().iter().zip(&results) {
        let rows = result.get("rows").and_then(Value::as_array).ok_or("the server's answer to select has no rows")?;
        let mut copied = Map::new();
        for row in rows {
            let mut row = row.as_object().cloned().ok_or("a row is not an object")?;
            let uuid = row.shift_remove("_uuid");
            let uuid = uuid.as_ref().and_then(|uuid| uuid.get(1)).and_then(Value::as_str).ok_or("a row lacks _uuid")?;
            copied.insert(uuid.to_owned(), Value::Object(row));
        }
        if !copied.is_empty() {
            record.insert(table.name.clone(), Value::Object(copied));
        }
    }
    let mut bytes = log::encode(&(&schema.to_json()).into());
    bytes.extend(log::encode(&(&Value::Object(record)).into()));
    super::print_bytes(&bytes);
    Ok(())
}

pub(super) async fn restore(mut call: Call) -> Done {
    if std::io::stdin().is_terminal() {
        return Err("cannot read backup from a terminal; please redirect stdin from a file".into());
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| format!("cannot read backup ({error})"))?;
    let mut reader = log::Reader::new(&bytes);
    let mut next = || reader.next_record().map_err(|error| format!("backup: {error}"));
    let first = next().ok().flatten().ok_or("ovsdb error: /dev/stdin: cannot identify file type")?;
    let saved = DatabaseSchema::from_json(&first).map_err(|error| format!("backup: {error}"))?;
    let mut rows = Map::new();
    while let Some(record) = next()? {
        merge_record(&mut rows, &record)?;
    }
    if call.database != saved.name {
        saved.name.clone_into(&mut call.database);
    }
    let present = query::schema(&mut call).await?;
    if !present.equivalent(&saved) && !call.options.force {
        return Err(
            "backup schema and database schema differ (use --force to override differences, or \"ovsdb-client convert\" \
             to convert the database first)"
                .into(),
        );
    }
    let mut params = vec![Value::from(present.name.as_str())];
    for table in present.tables() {
        params.push(json!({ "op": "delete", "table": table.name, "where": [] }));
    }
    params.extend(inserts(&rows, &saved));
    params.push(json!({ "op": "comment", "comment": "ovsdb-client: restored from a backup" }));
    transact(&mut call, params).await.map(|_| ())
}

/// Adds a file record's rows to those of earlier records. Only files without differences are supported, such as
/// backups.
fn merge_record(rows: &mut Map<String, Value>, record: &Value) -> Done {
    let record = record.as_object().ok_or("backup: a record is not an object")?;
    let is_difference = record.get("_is_diff") == Some(&Value::Bool(true));
    for (table, changed) in record.iter().filter(|(table, _)| !table.starts_with('_')) {
        let changed = changed.as_object().ok_or_else(|| format!("backup: table {table} is not an object"))?;
        let table = rows.entry(table.clone()).or_insert_with(|| Value::Object(Map::new()));
        let Some(table) = table.as_object_mut() else { continue };
        for (uuid, row) in changed {
            match (row, table.get_mut(uuid)) {
                (Value::Null, _) => {
                    table.shift_remove(uuid);
                }
                (_, Some(_)) if is_difference => {
                    return Err("backup: it is a database file with changes; compact it first \
                                (ovsdb-tool compact)"
                        .into());
                }
                (Value::Object(columns), Some(Value::Object(known))) => {
                    known.extend(columns.iter().map(|(name, value)| (name.clone(), value.clone())));
                }
                (row, _) => {
                    table.insert(uuid.clone(), row.clone());
                }
            }
        }
    }
    Ok(())
}

/// Insert operations for rows, with references among them converted to names.
fn inserts(rows: &Map<String, Value>, schema: &DatabaseSchema) -> Vec<Value> {
    let tables = || rows.iter().filter_map(|(table, rows)| Some((table, rows.as_object()?)));
    let names: HashMap<Uuid, String> = tables()
        .flat_map(|(_, rows)| rows.keys())
        .filter_map(|uuid| Some((Uuid::parse(uuid)?, format!("row{}", uuid.replace('-', "_")))))
        .collect();
    let mut operations = Vec::new();
    for (table, rows) in tables() {
        let Some(known) = schema.table(table) else { continue };
        for (uuid, row) in rows {
            let columns = row.as_object().into_iter().flatten().filter(|(column, _)| known.column(column).is_some());
            let row: Map<String, Value> =
                columns.map(|(column, value)| (column.clone(), by_name(value, &names))).collect();
            let name = format!("row{}", uuid.replace('-', "_"));
            operations.push(json!({ "op": "insert", "table": table, "uuid-name": name, "row": row }));
        }
    }
    operations
}

/// The value with the UUIDs of restored rows replaced by their names.
fn by_name(value: &Value, names: &HashMap<Uuid, String>) -> Value {
    let Value::Array(elements) = value else { return value.clone() };
    if let [Value::String(tag), Value::String(uuid)] = elements.as_slice()
        && tag == "uuid"
        && let Some(name) = Uuid::parse(uuid).and_then(|uuid| names.get(&uuid))
    {
        return json!(["named-uuid", name]);
    }
    elements.iter().map(|element| by_name(element, names)).collect()
}
