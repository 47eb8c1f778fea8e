//! Monitors: which rows and columns a client wants to hear about, and how a change is told in each of the three
//! versions of the protocol (RFC 7047 section 4.1.5 and 4.1.6; ovsdb-server(7), "Monitor_cond" and what follows).

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::condition::Condition;
use ovsdb::json::{Kind, NoSymbols, ObjectParser};
use ovsdb::schema::UUID_COLUMN;
use ovsdb::{DatabaseSchema, Error, Result, TableSchema, Uuid};
use serde_json::{Map, Value, json};

use crate::database::{Database, RowId};
use crate::row::{Row, RowChange};

/// The version of the monitor protocol, by the method that started the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `monitor`, with `update` notifications.
    V1,
    /// `monitor_cond`, with `update2`.
    V2,
    /// `monitor_cond_since`, with `update3`.
    V3,
}

/// Which kinds of changes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Select {
    initial: bool,
    insert: bool,
    delete: bool,
    modify: bool,
}

impl Select {
    const ALL: Select = Select { initial: true, insert: true, delete: true, modify: true };
    const NONE: Select = Select { initial: false, insert: false, delete: false, modify: false };

    fn or(self, other: Self) -> Self {
        Self {
            initial: self.initial || other.initial,
            insert: self.insert || other.insert,
            delete: self.delete || other.delete,
            modify: self.modify || other.modify,
        }
    }

    fn wants(self, kind: Change) -> bool {
        match kind {
            Change::Initial => self.initial,
            Change::Insert => self.insert,
            Change::Delete => self.delete,
            Change::Modify => self.modify,
        }
    }
}

/// The kind of a row's update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Initial,
    Insert,
    Delete,
    Modify,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::Initial => "initial",
            Change::Insert => "insert",
            Change::Delete => "delete",
            Change::Modify => "modify",
        }
    }
}

/// One table in a monitor.
#[derive(Debug, Clone)]
struct MonitoredTable {
    /// Columns by index, and which kinds of changes of them are wanted.
    columns: Vec<(usize, Select)>,
    /// Which kinds of changes of rows are told: all that some request wants, though it name no column.
    select: Select,
    condition: Condition,
    /// The columns that this condition or an earlier one looks at: a client hears that a row changed in one of these, too.
    looked_at: BTreeSet<usize>,
}

/// One monitor of one session.
#[derive(Debug, Clone)]
pub struct Monitor {
    /// The `<json-value>` that the client named it by.
    pub id: Value,
    /// How it is told of changes.
    pub version: Version,
    tables: BTreeMap<usize, MonitoredTable>,
}

impl Monitor {
    /// Reads the `<monitor-requests>` of a request.
    pub fn from_json(schema: &DatabaseSchema, id: Value, version: Version, requests: &Value) -> Result<Self> {
        let Some(requests) = requests.as_object() else {
            return Err(Error::syntax(requests, "monitor-requests must be object"));
        };
        let mut tables = BTreeMap::new();
        for (name, requests) in requests {
            let found = schema.table_index(name).and_then(|at| Some((at, schema.tables().get(at)?)));
            let (index, table) = found.ok_or_else(|| Error::new("syntax error", format!("no table named {name}")))?;
            tables.insert(index, MonitoredTable::from_json(table, version, requests)?);
        }
        Ok(Self { id, version, tables })
    }

    /// The contents of the monitored tables: the reply to the request that started the monitor.
    pub fn initial(&self, database: &Database) -> Value {
        let mut updates = Updates::default();
        for (&index, table) in &self.tables {
            let Some(schema) = database.table_schema(index) else { continue };
            for row in database.rows(index).filter(|row| table.matches(schema, row)) {
                updates.add(schema, row.uuid(), table.update(schema, self.version, Change::Initial, None, Some(row)));
            }
        }
        updates.into_json()
    }

    /// What `changes` look like to this monitor; `None` if it need not be told.
    pub fn updates(&self, database: &Database, changes: &[RowChange]) -> Option<Value> {
        let mut updates = Updates::default();
        for change in changes {
            let Some(table) = self.tables.get(&change.table) else { continue };
            let Some(schema) = database.table_schema(change.table) else { continue };
            let old = change.old.as_deref().filter(|row| table.matches(schema, row));
            let new = change.new.as_deref().filter(|row| table.matches(schema, row));
            updates.add(schema, change.uuid, table.change(schema, self.version, old, new));
        }
        updates.into_json_if_any()
    }

    /// The differences since the transaction called `since`, if the history reaches back that far: the reply to
    /// `monitor_cond_since` by a client that was here before.
    pub fn updates_since(&self, database: &Database, since: Uuid) -> Option<Value> {
        let mut merged: BTreeMap<RowId, RowChange> = BTreeMap::new();
        if since != database.last_transaction() || since.is_zero() {
            for entry in database.history_since(since)? {
                for change in entry.changes.iter() {
                    let known = merged.entry((change.table, change.uuid)).or_insert_with(|| change.clone());
                    known.new.clone_from(&change.new);
                }
            }
        }
        let changes: Vec<RowChange> = merged.into_values().collect();
        Some(self.updates(database, &changes).unwrap_or_else(|| json!({})))
    }

    /// Takes new conditions (`monitor_cond_change`) and says what rows come and go because of them.
    pub fn change_conditions(&mut self, database: &Database, requests: &Value) -> Result<Option<Value>> {
        let Some(requests) = requests.as_object() else {
            return Err(Error::new("syntax error", "monitor-cond-change-requests must be object"));
        };
        let mut conditions = Vec::new();
        for (name, requests) in requests {
            let index = database.schema().table_index(name);
            let monitored = index.filter(|index| self.tables.contains_key(index));
            let schema = monitored.and_then(|index| database.table_schema(index));
            let (Some(index), Some(schema)) = (monitored, schema) else {
                let details = match index {
                    None => format!("no table named {name}"),
                    Some(_) => format!("no table named {name} in monitor session"),
                };
                return Err(Error::new("syntax error", details));
            };
            conditions.extend(parse_condition_changes(schema, self.version, requests)?.map(|new| (index, new)));
        }
        let mut updates = Updates::default();
        for (index, condition) in conditions {
            let Some(schema) = database.table_schema(index) else { continue };
            let Some(table) = self.tables.get_mut(&index) else { continue };
            let before = table.clone();
            table.set_condition(condition);
            for row in database.rows(index) {
                let old = Some(&**row).filter(|row| before.matches(schema, row));
                let new = Some(&**row).filter(|row| table.matches(schema, row));
                updates.add(schema, row.uuid(), table.change(schema, self.version, old, new));
            }
        }
        Ok(updates.into_json_if_any())
    }

    /// The notification that carries `updates`.
    pub fn notification(&self, database: &Database, updates: Value) -> (&'static str, Vec<Value>) {
        match self.version {
            Version::V1 => ("update", vec![self.id.clone(), updates]),
            Version::V2 => ("update2", vec![self.id.clone(), updates]),
            Version::V3 => {
                let last = Value::from(database.last_transaction().to_string());
                ("update3", vec![self.id.clone(), last, updates])
            }
        }
    }
}

/// Reads the array of `<monitor-cond-update-request>` for one table, of which the last one holds; `None` to keep the
/// condition. A monitor that was begun without conditions has none, and those in the request are not looked at.
fn parse_condition_changes(schema: &TableSchema, version: Version, requests: &Value) -> Result<Option<Condition>> {
    let Some(requests) = requests.as_array() else {
        let details = format!("table {} no monitor-cond-change JSON array", schema.name);
        return Err(Error::new("syntax error", details));
    };
    let mut last = None;
    for request in requests {
        let mut parser = ObjectParser::new(request, format!("table {}", schema.name));
        let columns = parser.optional("columns", Kind::Array);
        let condition = parser.optional("where", Kind::Array);
        parser.finish()?;
        if columns.is_some() {
            return Err(Error::syntax(request, "changing columns is unsupported"));
        }
        if version != Version::V1 {
            let read = condition.map(|json| Condition::from_json(json, schema, &mut NoSymbols)).transpose()?;
            last = Some(read.unwrap_or_default());
        }
    }
    Ok(last)
}

impl MonitoredTable {
    fn from_json(schema: &TableSchema, version: Version, requests: &Value) -> Result<Self> {
        let mut table = Self {
            columns: Vec::new(),
            select: Select::NONE,
            condition: Condition::always(),
            looked_at: BTreeSet::new(),
        };
        let mut clauses = Vec::new();
        let mut unconditional = false;
        let requests = match requests {
            Value::Array(requests) => requests.as_slice(),
            single => std::slice::from_ref(single),
        };
        for request in requests {
            match table.add_request(schema, version, request)? {
                Some(condition) if !condition.clauses().is_empty() => clauses.extend_from_slice(condition.clauses()),
                _ => unconditional = true,
            }
        }
        if !unconditional {
            table.set_condition(Condition::from_clauses(clauses));
        }
        Ok(table)
    }

    /// Adds a column that `json` names, or that is meant for want of names.
    fn add_column(&mut self, schema: &TableSchema, column: usize, select: Select, json: Option<&Value>) -> Result<()> {
        if self.columns.iter().any(|(known, _)| *known == column) {
            let name = schema.columns().get(column).map_or("?", |column| column.name.as_str());
            let details = format!("column {name} mentioned more than once");
            return Err(match json {
                Some(json) => Error::syntax(json, details),
                None => Error::new("syntax error", details),
            });
        }
        self.columns.push((column, select));
        Ok(())
    }

    fn add_request(&mut self, schema: &TableSchema, version: Version, json: &Value) -> Result<Option<Condition>> {
        let mut parser = ObjectParser::new(json, format!("table {}", schema.name));
        let condition = match version {
            Version::V1 => None,
            Version::V2 | Version::V3 => parser.optional("where", Kind::Array),
        };
        let columns = parser.optional("columns", Kind::Array);
        let select = parser.optional("select", Kind::Object);
        parser.finish()?;
        let select = match select {
            Some(select) => Select::from_json(select, &schema.name)?,
            None => Select::ALL,
        };
        self.select = self.select.or(select);
        match columns {
            None => {
                for column in (0..schema.columns().len()).filter(|&column| column != UUID_COLUMN) {
                    self.add_column(schema, column, select, None)?;
                }
            }
            Some(columns) => {
                for name in columns.as_array().into_iter().flatten() {
                    let Some(name) = name.as_str() else {
                        return Err(Error::syntax(columns, "array of column names expected"));
                    };
                    let Some(column) = schema.column_index(name) else {
                        return Err(Error::syntax(columns, format!("{name} is not a valid column name")));
                    };
                    self.add_column(schema, column, select, Some(columns))?;
                }
            }
        }
        condition.map(|condition| Condition::from_json(condition, schema, &mut NoSymbols)).transpose()
    }

    fn set_condition(&mut self, condition: Condition) {
        self.looked_at.extend(condition.columns());
        self.condition = condition;
    }

    fn matches(&self, schema: &TableSchema, row: &Row) -> bool {
        self.condition.matches_any(schema, |column| row.column(column))
    }

    fn change(&self, schema: &TableSchema, version: Version, old: Option<&Row>, new: Option<&Row>) -> Option<Value> {
        let kind = match (old, new) {
            (None, None) => return None,
            (None, Some(_)) => Change::Insert,
            (Some(_), None) => Change::Delete,
            (Some(_), Some(_)) => Change::Modify,
        };
        self.update(schema, version, kind, old, new)
    }

    /// The `<row-update>` or `<row-update2>` for one row; `None` if it says nothing.
    fn update(
        &self,
        schema: &TableSchema,
        version: Version,
        kind: Change,
        old: Option<&Row>,
        new: Option<&Row>,
    ) -> Option<Value> {
        if !self.select.wants(kind) {
            return None;
        }
        if let (Change::Modify, Some(old), Some(new)) = (kind, old, new)
            && self.columns.iter().map(|(column, _)| column).chain(&self.looked_at).all(|&column| old.same(new, column))
        {
            return None;
        }
        match version {
            Version::V1 => Some(self.update_v1(schema, kind, old, new)),
            Version::V2 | Version::V3 => Some(self.update_v2(schema, kind, old, new)),
        }
    }

    fn update_v1(&self, schema: &TableSchema, kind: Change, old: Option<&Row>, new: Option<&Row>) -> Value {
        let (mut before, mut after) = (Map::new(), Map::new());
        for &(index, select) in &self.columns {
            let Some(column) = schema.columns().get(index) else { continue };
            if !select.wants(kind) {
                continue;
            }
            let value = |row: Option<&Row>| Some(row?.column(index)?.to_json(&column.kind));
            let changed = match (old, new) {
                (Some(old), Some(new)) => !old.same(new, index),
                _ => kind == Change::Delete,
            };
            if changed && let Some(value) = value(old) {
                before.insert(column.name.clone(), value);
            }
            if let Some(value) = value(new) {
                after.insert(column.name.clone(), value);
            }
        }
        let mut update = Map::new();
        if matches!(kind, Change::Delete | Change::Modify) {
            update.insert("old".into(), Value::Object(before));
        }
        if kind != Change::Delete {
            update.insert("new".into(), Value::Object(after));
        }
        Value::Object(update)
    }

    fn update_v2(&self, schema: &TableSchema, kind: Change, old: Option<&Row>, new: Option<&Row>) -> Value {
        let Some(new) = new else {
            return json!({"delete": null});
        };
        let mut columns = Map::new();
        for &(index, select) in &self.columns {
            let (Some(column), Some(datum)) = (schema.columns().get(index), new.column(index)) else { continue };
            if !select.wants(kind) {
                continue;
            }
            let json = match old.and_then(|old| old.column(index)) {
                Some(before) if before == datum => continue,
                Some(before) => before.diff(datum, &column.kind).to_json(&column.kind),
                None if datum.is_default(&column.kind) => continue,
                None => datum.to_json(&column.kind),
            };
            columns.insert(column.name.clone(), json);
        }
        json!({ kind.name(): columns })
    }
}

impl Select {
    fn from_json(json: &Value, table: &str) -> Result<Self> {
        let mut parser = ObjectParser::new(json, format!("table {table} select"));
        let mut flag = |name: &str| parser.optional(name, Kind::Boolean).and_then(Value::as_bool).unwrap_or(true);
        let select =
            Select { initial: flag("initial"), insert: flag("insert"), delete: flag("delete"), modify: flag("modify") };
        parser.finish()?;
        Ok(select)
    }
}

/// `<table-updates>` under construction.
#[derive(Default)]
struct Updates(Map<String, Value>);

impl Updates {
    fn add(&mut self, schema: &TableSchema, uuid: Uuid, update: Option<Value>) {
        let Some(update) = update else { return };
        let table = self.0.entry(schema.name.clone()).or_insert_with(|| json!({}));
        if let Value::Object(rows) = table {
            rows.insert(uuid.to_string(), update);
        }
    }

    fn into_json(self) -> Value {
        Value::Object(self.0)
    }

    fn into_json_if_any(self) -> Option<Value> {
        (!self.0.is_empty()).then(|| self.into_json())
    }
}
