//! The operations of a `transact` request (RFC 7047 section 5.2), one after another, over a [`Transaction`].

use std::collections::{BTreeSet, HashSet};

use ovsdb::condition::Condition;
use ovsdb::json::{JsonType, ObjectParser, as_integer};
use ovsdb::mutation::Mutation;
use ovsdb::{Datum, Error, Result, Symbols, TableSchema, Uuid, UuidSource};
use serde_json::{Map, Value, json};

use crate::commit::{Prepared, prepare};
use crate::database::Database;
use crate::rbac::{Role, Verb};
use crate::row::Row;
use crate::transaction::Transaction;

/// The client of a transaction, and its circumstances.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The locks that the session owns.
    pub locks: &'a BTreeSet<String>,
    /// Whether this caller may not change the database.
    pub read_only: bool,
    /// The role that limits its changes.
    pub role: Option<Role<'a>>,
    /// The age of the request in milliseconds.
    pub elapsed_ms: u64,
}

/// The result of a transaction.
#[derive(Debug)]
pub enum Outcome {
    /// It is finished, and has changed nothing if `prepared` is `None`.
    Done {
        /// The results of the operations: the reply to the client.
        results: Vec<Value>,
        /// The changes to write and apply.
        prepared: Option<Prepared>,
    },
    /// A `wait` operation does not hold yet: try again when the database has changed.
    Wait {
        /// The timeout of the operation, in milliseconds after the arrival of the request.
        timeout_ms: Option<u64>,
    },
}

/// The reason why an operation has no result.
enum Stop {
    Error(Error),
    Wait(Option<u64>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

type Step = std::result::Result<Value, Stop>;

/// Runs `operations` on `database`, which is not changed: the outcome contains the changes.
pub fn execute(database: &Database, operations: &[Value], caller: Caller<'_>, uuids: &mut UuidSource) -> Outcome {
    let symbols = Symbols::new(UuidSource::seeded_from(uuids));
    let mut execution = Execution { transaction: Transaction::new(database), symbols, caller, uuids };
    let mut results = Vec::with_capacity(operations.len());
    for (at, operation) in operations.iter().enumerate() {
        let what = format!("ovsdb operation {} of {}", at + 1, operations.len());
        match execution.operation(operation, what) {
            Ok(result) => results.push(result),
            Err(Stop::Wait(timeout_ms)) => return Outcome::Wait { timeout_ms },
            Err(Stop::Error(error)) => {
                results.push(error.to_json());
                results.resize(operations.len(), Value::Null);
                return Outcome::Done { results, prepared: None };
            }
        }
    }
    let Execution { transaction, uuids, .. } = execution;
    match prepare(transaction, uuids) {
        Ok(prepared) => Outcome::Done { results, prepared: Some(prepared) },
        Err(error) => {
            results.push(error.to_json());
            Outcome::Done { results, prepared: None }
        }
    }
}

struct Execution<'a> {
    transaction: Transaction<'a>,
    symbols: Symbols,
    caller: Caller<'a>,
    uuids: &'a mut UuidSource,
}

/// The current operation: its members, and its table.
struct Operation<'a> {
    json: &'a Value,
    parser: ObjectParser<'a>,
}

impl<'a> Execution<'a> {
    fn operation(&mut self, json: &Value, what: String) -> Step {
        let mut operation = Operation { json, parser: ObjectParser::new(json, what) };
        let name = operation.parser.required("op", JsonType::Id).and_then(Value::as_str);
        match name {
            None => Err(operation.error().into()),
            Some("insert") => Ok(self.insert(operation)?),
            Some("select") => Ok(self.select(operation)?),
            Some("update") => Ok(self.update(operation)?),
            Some("mutate") => Ok(self.mutate(operation)?),
            Some("delete") => Ok(self.delete(operation)?),
            Some("wait") => self.wait(operation),
            Some("commit") => Ok(self.commit(operation)?),
            Some("abort") => {
                operation.parser.finish()?;
                Err(Error::new("aborted", "aborted by request").into())
            }
            Some("comment") => Ok(self.comment(operation)?),
            Some("assert") => Ok(self.assert(operation)?),
            Some(other) => {
                operation.parser.fail(&format!("No operation \"{other}\""));
                Err(operation.error().into())
            }
        }
    }

    /// The table that an operation names.
    fn table(&self, operation: &mut Operation<'_>) -> Option<(usize, &'a TableSchema)> {
        let name = operation.parser.required("table", JsonType::Id)?.as_str()?;
        let schema = self.transaction.database().schema();
        let found = schema.table_index(name).and_then(|at| Some((at, schema.tables().get(at)?)));
        if found.is_none() {
            operation.parser.fail(&format!("No table named {name}."));
        }
        found
    }

    /// The rows that the operation's `where` selects.
    fn matching(&mut self, (table, schema): (usize, &TableSchema), condition: &Condition) -> Vec<Row> {
        let holds = |row: &Row| condition.matches_all(schema, |column| row.column(column));
        match condition.required_uuid() {
            Some(uuid) => {
                let row = self.transaction.row(table, uuid).filter(|row| holds(row));
                row.map(|row| (**row).clone()).into_iter().collect()
            }
            None => self.transaction.rows(table).filter(|row| holds(row)).map(|row| (**row).clone()).collect(),
        }
    }

    fn check_writable(&self, name: &str) -> Result<()> {
        if self.caller.read_only {
            let details = format!("{name} operation not allowed when database server is in read only mode");
            return Err(Error::new("not allowed", details));
        }
        Ok(())
    }

    /// Checks that the caller's role may do this to these rows; in these columns, if it does something in columns.
    fn check_role(
        &self,
        verb: Verb,
        table: &TableSchema,
        rows: &[Row],
        columns: impl Iterator<Item = usize>,
    ) -> Result<()> {
        match &self.caller.role {
            None => Ok(()),
            Some(role) => role.check(self.transaction.database(), table, verb, rows, columns),
        }
    }

    fn insert(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let table = self.table(&mut operation);
        let uuid_name = operation.parser.optional("uuid-name", JsonType::Id);
        let uuid_json = operation.parser.optional("uuid", JsonType::String);
        let row_json = operation.parser.required("row", JsonType::Object);
        operation.finish()?;
        let (Some((table, schema)), Some(row_json)) = (table, row_json) else {
            return Err(Error::bare("internal error"));
        };
        let mut uuid = None;
        if let Some(json) = uuid_json {
            let text = json.as_str().unwrap_or_default();
            let given = Uuid::parse(text).ok_or_else(|| Error::syntax(json, "bad uuid"))?;
            if self.transaction.knows((table, given)) {
                let details = format!(
                    "This UUID would duplicate a UUID already present within the \"{}\" table or deleted from this \
                     table within the same transaction.",
                    schema.name
                );
                return Err(Error::syntax_tagged(json, "duplicate uuid", details));
            }
            uuid = Some(given);
        }
        if let Some(json) = uuid_name {
            let symbol = self.symbols.entry(json.as_str().unwrap_or_default());
            if symbol.created {
                let details = "This \"uuid-name\" appeared on an earlier \"insert\" operation.";
                return Err(Error::syntax_tagged(json, "duplicate uuid-name", details));
            }
            symbol.created = true;
            match uuid {
                Some(given) => symbol.uuid = given,
                None => uuid = Some(symbol.uuid),
            }
        }
        let uuid = uuid.unwrap_or_else(|| self.new_uuid(table));
        let columns = parse_row(row_json, schema, &mut self.symbols)?;
        let mut row = Row::new(schema, uuid);
        // The transaction itself sees it already.
        row.set_version(self.uuids.next_uuid());
        for (index, datum) in columns {
            if index >= ovsdb::schema::IMPLICIT_COLUMNS {
                row.set(index, datum);
            }
        }
        for (index, column) in schema.own_columns() {
            // One element may be an unchecked default; no elements need no check, and several were given and checked.
            if let Some(datum) = row.column(index).filter(|datum| datum.len() == 1) {
                datum.check(&column.kind)?;
            }
        }
        self.check_role(Verb::Insert, schema, std::slice::from_ref(&row), std::iter::empty())?;
        self.check_writable("insert")?;
        self.transaction.insert(table, row);
        Ok(json!({"uuid": ["uuid", uuid.to_string()]}))
    }

    /// A UUID for a new row of a table: none that a client has given to another row.
    fn new_uuid(&mut self, table: usize) -> Uuid {
        loop {
            let uuid = self.uuids.next_uuid();
            if !self.transaction.knows((table, uuid)) {
                return uuid;
            }
        }
    }

    fn select(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let table = self.table(&mut operation);
        let condition = operation.parser.required("where", JsonType::Array);
        let columns = operation.parser.optional("columns", JsonType::Array);
        let sort = operation.parser.optional("sort", JsonType::Array);
        operation.finish()?;
        let Some((table, schema)) = table else { return Err(Error::bare("internal error")) };
        let condition = parse_condition(condition, schema, &mut self.symbols)?;
        let columns = schema.column_set_from_json(columns)?;
        // Without the member, the columns are all, but the order is that of the table.
        let sort = sort.map(|json| schema.column_set_from_json(Some(json))).transpose()?.unwrap_or_default();
        let mut matching = self.matching((table, schema), &condition);
        matching.sort_by(|a, b| a.compare(b, &sort));
        let mut seen = HashSet::new();
        let mut rows = Vec::new();
        for row in matching {
            let key: Vec<_> = columns.iter().filter_map(|&column| row.column(column).cloned()).collect();
            if seen.insert(key) {
                rows.push(row_to_json(&row, schema, &columns));
            }
        }
        Ok(json!({ "rows": rows }))
    }

    fn update(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let table = self.table(&mut operation);
        let condition = operation.parser.required("where", JsonType::Array);
        let row_json = operation.parser.required("row", JsonType::Object);
        let json = operation.json;
        operation.finish()?;
        let (Some((table, schema)), Some(row_json)) = (table, row_json) else {
            return Err(Error::bare("internal error"));
        };
        let columns = parse_row(row_json, schema, &mut self.symbols)?;
        let immutable = columns.iter().filter_map(|(index, _)| schema.columns().get(*index)).find(|c| !c.mutable);
        if let Some(column) = immutable {
            let details = format!("Cannot update immutable column {} in table {}.", column.name, schema.name);
            return Err(Error::syntax_tagged(json, "constraint violation", details));
        }
        let condition = parse_condition(condition, schema, &mut self.symbols)?;
        let rows = self.matching((table, schema), &condition);
        self.check_role(Verb::Update, schema, &rows, columns.iter().map(|(index, _)| *index))?;
        self.check_writable("update")?;
        let count = rows.len();
        for mut row in rows {
            let differs = columns.iter().any(|(index, datum)| row.column(*index) != Some(datum));
            if differs {
                for (index, datum) in &columns {
                    row.set(*index, datum.clone());
                }
                self.transaction.replace(table, row)?;
            }
        }
        Ok(json!({ "count": count }))
    }

    fn mutate(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let table = self.table(&mut operation);
        let condition = operation.parser.required("where", JsonType::Array);
        let mutations = operation.parser.required("mutations", JsonType::Array);
        operation.finish()?;
        let Some((table, schema)) = table else { return Err(Error::bare("internal error")) };
        let mutations = mutations.unwrap_or(&Value::Null);
        let mutations = Mutation::list_from_json(mutations, schema, &mut self.symbols)?;
        let condition = parse_condition(condition, schema, &mut self.symbols)?;
        let rows = self.matching((table, schema), &condition);
        // Without mutations it only counts rows, which every role may do.
        if !mutations.is_empty() {
            self.check_role(Verb::Mutate, schema, &rows, mutations.iter().map(|mutation| mutation.column))?;
        }
        self.check_writable("mutate")?;
        let count = rows.len();
        for mut row in rows {
            for mutation in &mutations {
                let (Some(old), Some(column)) = (row.column(mutation.column), schema.columns().get(mutation.column))
                else {
                    continue;
                };
                let new = mutation.apply(old, column)?;
                row.set(mutation.column, new);
            }
            self.transaction.replace(table, row)?;
        }
        Ok(json!({ "count": count }))
    }

    fn delete(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let table = self.table(&mut operation);
        let condition = operation.parser.required("where", JsonType::Array);
        operation.finish()?;
        let Some((table, schema)) = table else { return Err(Error::bare("internal error")) };
        let condition = parse_condition(condition, schema, &mut self.symbols)?;
        let rows = self.matching((table, schema), &condition);
        self.check_role(Verb::Delete, schema, &rows, std::iter::empty())?;
        self.check_writable("delete")?;
        for row in &rows {
            self.transaction.delete(table, row.uuid())?;
        }
        Ok(json!({"count": rows.len()}))
    }

    fn wait(&mut self, mut operation: Operation<'_>) -> Step {
        let timeout_json = operation.parser.optional("timeout", JsonType::Number);
        let table = self.table(&mut operation);
        let condition = operation.parser.required("where", JsonType::Array);
        let columns = operation.parser.optional("columns", JsonType::Array);
        let until_json = operation.parser.required("until", JsonType::String);
        let rows_json = operation.parser.required("rows", JsonType::Array);
        operation.finish()?;
        let (Some((table, schema)), Some(until_json)) = (table, until_json) else {
            return Err(Error::bare("internal error").into());
        };
        let timeout_ms = match timeout_json.map(|json| (json, as_integer(json))) {
            None => None,
            Some((_, Some(timeout))) if timeout >= 0 => Some(timeout as u64),
            Some((json, _)) => return Err(Error::syntax(json, "timeout must be nonnegative").into()),
        };
        let condition = parse_condition(condition, schema, &mut self.symbols)?;
        let columns = schema.column_set_from_json(columns)?;
        let until_equal = match until_json.as_str() {
            Some("==") => true,
            Some("!=") => false,
            _ => return Err(Error::syntax(until_json, "\"until\" must be \"==\" or \"!=\"").into()),
        };
        let mut expected = HashSet::new();
        for json in rows_json.and_then(Value::as_array).into_iter().flatten() {
            let mut row = Row::new(schema, Uuid::ZERO);
            for (index, datum) in parse_row(json, schema, &mut self.symbols)? {
                row.set(index, datum);
            }
            expected.insert(columns.iter().filter_map(|&column| row.column(column).cloned()).collect::<Vec<_>>());
        }
        let found: HashSet<_> = self
            .matching((table, schema), &condition)
            .iter()
            .map(|row| columns.iter().filter_map(|&column| row.column(column).cloned()).collect::<Vec<_>>())
            .collect();
        if (found == expected) == until_equal {
            return Ok(json!({}));
        }
        match timeout_ms {
            Some(timeout) if self.caller.elapsed_ms >= timeout => {
                let details = match self.caller.elapsed_ms {
                    0 => "\"where\" clause test failed".to_owned(),
                    elapsed => format!("\"wait\" timed out after {elapsed} ms"),
                };
                Err(Error::new("timed out", details).into())
            }
            timeout => Err(Stop::Wait(timeout)),
        }
    }

    fn commit(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let durable = operation.parser.required("durable", JsonType::Boolean).and_then(Value::as_bool);
        operation.finish()?;
        self.check_writable("commit")?;
        if durable == Some(true) {
            self.transaction.set_durable();
        }
        Ok(json!({}))
    }

    fn comment(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let comment = operation.parser.required("comment", JsonType::String).and_then(Value::as_str);
        operation.finish()?;
        self.transaction.add_comment(comment.unwrap_or_default());
        Ok(json!({}))
    }

    fn assert(&mut self, mut operation: Operation<'_>) -> Result<Value> {
        let lock = operation.parser.required("lock", JsonType::Id).and_then(Value::as_str);
        operation.finish()?;
        let lock = lock.unwrap_or_default();
        if !self.caller.locks.contains(lock) {
            return Err(Error::new("not owner", format!("Asserted lock {lock} not held.")));
        }
        Ok(json!({}))
    }
}

impl Operation<'_> {
    /// The error recorded while members were read.
    fn error(mut self) -> Error {
        self.parser.take_error().unwrap_or_else(|| Error::bare("internal error"))
    }

    fn finish(self) -> Result<()> {
        self.parser.finish()
    }
}

fn parse_condition(json: Option<&Value>, schema: &TableSchema, symbols: &mut Symbols) -> Result<Condition> {
    Condition::from_json(json.unwrap_or(&Value::Null), schema, symbols)
}

/// Reads a `<row>` into indexes of columns and their values.
fn parse_row(json: &Value, schema: &TableSchema, symbols: &mut Symbols) -> Result<Vec<(usize, Datum)>> {
    let Some(members) = json.as_object() else {
        return Err(Error::syntax(json, "row must be JSON object"));
    };
    let mut columns = Vec::with_capacity(members.len());
    for (name, value) in members {
        let Some((index, column)) = schema.column_index(name).and_then(|at| Some((at, schema.columns().get(at)?)))
        else {
            let details = format!("No column {name} in table {}.", schema.name);
            return Err(Error::syntax_tagged(json, "unknown column", details));
        };
        columns.push((index, Datum::from_json(value, &column.kind, symbols)?));
    }
    Ok(columns)
}

/// A `<row>` with these columns.
pub(crate) fn row_to_json(row: &Row, schema: &TableSchema, columns: &[usize]) -> Value {
    let member = |&index: &usize| {
        let column = schema.columns().get(index)?;
        Some((column.name.clone(), row.column(index)?.to_json(&column.kind)))
    };
    Value::Object(columns.iter().filter_map(member).collect::<Map<_, _>>())
}
