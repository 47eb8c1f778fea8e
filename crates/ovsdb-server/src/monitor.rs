//! Monitors: which rows and columns a client monitors, and the format of a change in each of the three
//! versions of the protocol (RFC 7047 section 4.1.5 and 4.1.6; ovsdb-server(7), "Monitor_cond" and what follows).
//!
//! A monitor shows a [`View`] of a database. Monitors with equal conditions share one, and its contents are
//! serialised once for all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use ovsdb::condition::Condition;
use ovsdb::json::{JsonType, NoSymbols, ObjectParser};
use ovsdb::schema::UUID_COLUMN;
use ovsdb::write::{self, Object};
use ovsdb::{ColumnSchema, DatabaseSchema, Datum, Error, Result, TableSchema, Uuid};
use serde_json::Value;

use crate::database::{Database, RowId};
use crate::journal::Tables;
use crate::row::{Row, RowChange};
use crate::session::Text;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MonitoredTable {
    /// Columns by index, and which kinds of changes of them are wanted.
    columns: Vec<(usize, Select)>,
    /// The kinds of row changes that are reported: those that any request selects, even without columns.
    select: Select,
    condition: Condition,
    /// The columns that this condition or an earlier one looks at: a client hears that a row changed in one of these, too.
    looked_at: BTreeSet<usize>,
}

/// How a row's update is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    /// `<row-update>`
    Whole,
    /// `<row-update2>`
    Difference,
}

/// The selected tables and columns of a database, and the conditions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    form: Form,
    tables: BTreeMap<usize, MonitoredTable>,
}

/// One monitor of one session.
#[derive(Debug, Clone)]
pub struct Monitor {
    /// The `<json-value>` that the client named it by.
    pub id: Value,
    /// The format of its updates.
    pub version: Version,
    /// Its view.
    pub view: Arc<View>,
}

impl View {
    /// The contents of the monitored tables, as JSON: the initial reply of a monitor.
    pub fn initial(&self, database: &Database) -> Vec<u8> {
        let mut updates = Tables::default();
        for (&index, table) in &self.tables {
            let Some(schema) = database.table_schema(index) else { continue };
            for row in database.rows(index).filter(|row| table.matches(schema, row)) {
                updates.row(index, row.uuid(), |out| {
                    table.update(out, schema, self.form, Change::Initial, None, Some(row))
                });
            }
        }
        finish(updates, database)
    }

    /// `changes` as JSON; `None` if there is nothing to report.
    pub fn updates(&self, database: &Database, changes: &[RowChange]) -> Option<Vec<u8>> {
        let mut updates = Tables::default();
        for change in changes {
            let Some(table) = self.tables.get(&change.table) else { continue };
            let Some(schema) = database.table_schema(change.table) else { continue };
            let old = change.old.as_deref().filter(|row| table.matches(schema, row));
            let new = change.new.as_deref().filter(|row| table.matches(schema, row));
            updates.row(change.table, change.uuid, |out| table.change(out, schema, self.form, old, new));
        }
        (!updates.is_empty()).then(|| finish(updates, database))
    }

    /// The differences since the transaction `since`, if the history reaches back that far: the update for a
    /// reconnecting client.
    pub fn updates_since(&self, database: &Database, since: Uuid) -> Option<Vec<u8>> {
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
        Some(self.updates(database, &changes).unwrap_or_else(|| b"{}".to_vec()))
    }

    /// Returns the rows that appear and disappear when this view replaces one of the same tables; `None` if there are
    /// none.
    fn updates_from(&self, before: &View, database: &Database, tables: &[usize]) -> Option<Vec<u8>> {
        let mut updates = Tables::default();
        for &index in tables {
            let Some(schema) = database.table_schema(index) else { continue };
            let (Some(before), Some(table)) = (before.tables.get(&index), self.tables.get(&index)) else { continue };
            for row in database.rows(index) {
                let old = Some(&**row).filter(|row| before.matches(schema, row));
                let new = Some(&**row).filter(|row| table.matches(schema, row));
                updates.row(index, row.uuid(), |out| table.change(out, schema, self.form, old, new));
            }
        }
        (!updates.is_empty()).then(|| finish(updates, database))
    }
}

/// `<table-updates>` or `<table-updates2>`
fn finish(updates: Tables, database: &Database) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    updates.write(database.schema(), &mut object);
    object.end();
    out
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
        let form = if version == Version::V1 { Form::Whole } else { Form::Difference };
        Ok(Self { id, version, view: Arc::new(View { form, tables }) })
    }

    /// Applies new conditions (`monitor_cond_change`) and returns the rows that appear and disappear because of them.
    pub fn change_conditions(&mut self, database: &Database, requests: &Value) -> Result<Option<Vec<u8>>> {
        let Some(requests) = requests.as_object() else {
            return Err(Error::new("syntax error", "monitor-cond-change-requests must be object"));
        };
        let mut view = View::clone(&self.view);
        let mut changed = Vec::new();
        for (name, requests) in requests {
            let index = database.schema().table_index(name);
            let monitored = index.and_then(|index| Some((index, view.tables.get_mut(&index)?)));
            let found = monitored.and_then(|(index, table)| Some((index, table, database.table_schema(index)?)));
            let Some((index, table, schema)) = found else {
                let details = match index {
                    None => format!("no table named {name}"),
                    Some(_) => format!("no table named {name} in monitor session"),
                };
                return Err(Error::new("syntax error", details));
            };
            if let Some(condition) = parse_condition_changes(schema, self.version, requests)? {
                table.set_condition(condition);
                changed.push(index);
            }
        }
        let updates = view.updates_from(&self.view, database, &changed);
        self.view = Arc::new(view);
        Ok(updates)
    }

    /// The notification that carries `updates`.
    pub fn notification(&self, last_transaction: Uuid, updates: Arc<[u8]>) -> Text {
        let method = match self.version {
            Version::V1 => "update",
            Version::V2 => "update2",
            Version::V3 => "update3",
        };
        let mut head = Vec::with_capacity(128);
        head.extend_from_slice(b"{\"id\":null,\"method\":\"");
        head.extend_from_slice(method.as_bytes());
        head.extend_from_slice(b"\",\"params\":[");
        write::value(&mut head, &self.id);
        head.push(b',');
        if self.version == Version::V3 {
            head.push(b'"');
            write::uuid(&mut head, last_transaction);
            head.extend_from_slice(b"\",");
        }
        Text { head, body: updates, tail: b"]}", unasked: true }
    }
}

/// The views in use, each once, with their present contents while these are being sent to clients.
#[derive(Debug, Default)]
pub(crate) struct Views {
    views: HashMap<Arc<View>, Weak<[u8]>>,
    /// Number of views at which unused ones are dropped.
    sweep_at: usize,
}

impl Views {
    /// The one that is like `view`.
    pub(crate) fn share(&mut self, view: Arc<View>) -> Arc<View> {
        if let Some((known, _)) = self.views.get_key_value(&view) {
            return known.clone();
        }
        if self.views.len() >= self.sweep_at {
            self.views.retain(|view, _| Arc::strong_count(view) > 1);
            self.sweep_at = 2 * self.views.len() + 16;
        }
        self.views.insert(view.clone(), Weak::<[u8; 0]>::new());
        view
    }

    /// Returns the present contents of a view.
    pub(crate) fn initial(&mut self, view: &Arc<View>, database: &Database) -> Arc<[u8]> {
        if let Some(shown) = self.views.get(view).and_then(Weak::upgrade) {
            return shown;
        }
        let shown: Arc<[u8]> = view.initial(database).into();
        if let Some(known) = self.views.get_mut(view) {
            *known = Arc::downgrade(&shown);
        }
        shown
    }

    /// The database has changed.
    pub(crate) fn forget_contents(&mut self) {
        for shown in self.views.values_mut() {
            *shown = Weak::<[u8; 0]>::new();
        }
    }
}

/// Parses the array of `<monitor-cond-update-request>` for one table, of which the last one applies; `None` keeps the
/// condition. A monitor without conditions ignores those in the request.
fn parse_condition_changes(schema: &TableSchema, version: Version, requests: &Value) -> Result<Option<Condition>> {
    let Some(requests) = requests.as_array() else {
        let details = format!("table {} no monitor-cond-change JSON array", schema.name);
        return Err(Error::new("syntax error", details));
    };
    let mut last = None;
    for request in requests {
        let mut parser = ObjectParser::new(request, format!("table {}", schema.name));
        let columns = parser.optional("columns", JsonType::Array);
        let condition = parser.optional("where", JsonType::Array);
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
            Version::V2 | Version::V3 => parser.optional("where", JsonType::Array),
        };
        let columns = parser.optional("columns", JsonType::Array);
        let select = parser.optional("select", JsonType::Object);
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

    fn change(
        &self,
        out: &mut Vec<u8>,
        schema: &TableSchema,
        form: Form,
        old: Option<&Row>,
        new: Option<&Row>,
    ) -> bool {
        let kind = match (old, new) {
            (None, None) => return false,
            (None, Some(_)) => Change::Insert,
            (Some(_), None) => Change::Delete,
            (Some(_), Some(_)) => Change::Modify,
        };
        self.update(out, schema, form, kind, old, new)
    }

    /// Writes the `<row-update>` or `<row-update2>` for one row; returns false if it is empty.
    fn update(
        &self,
        out: &mut Vec<u8>,
        schema: &TableSchema,
        form: Form,
        kind: Change,
        old: Option<&Row>,
        new: Option<&Row>,
    ) -> bool {
        if !self.select.wants(kind) {
            return false;
        }
        if let (Change::Modify, Some(old), Some(new)) = (kind, old, new)
            && self.columns.iter().map(|(column, _)| column).chain(&self.looked_at).all(|&column| old.same(new, column))
        {
            return false;
        }
        match form {
            Form::Whole => self.write_row(out, schema, kind, old, new),
            Form::Difference => self.difference(out, schema, kind, old, new),
        }
        true
    }

    /// The columns that are wanted of such a change.
    fn wanted<'a>(&'a self, schema: &'a TableSchema, kind: Change) -> impl Iterator<Item = (usize, &'a ColumnSchema)> {
        let wanted = self.columns.iter().filter(move |(_, select)| select.wants(kind));
        wanted.filter_map(|&(index, _)| Some((index, schema.columns().get(index)?)))
    }

    fn write_row(&self, out: &mut Vec<u8>, schema: &TableSchema, kind: Change, old: Option<&Row>, new: Option<&Row>) {
        let mut update = Object::begin(out);
        if let (Change::Delete | Change::Modify, Some(old)) = (kind, old) {
            let mut before = Object::begin(update.member("old"));
            for (index, column) in self.wanted(schema, kind) {
                if new.is_none_or(|new| !old.same(new, index))
                    && let Some(datum) = old.column(index)
                {
                    write::datum(before.member(&column.name), datum, &column.kind);
                }
            }
            before.end();
        }
        if let Some(new) = new {
            let mut after = Object::begin(update.member("new"));
            for (index, column) in self.wanted(schema, kind) {
                if let Some(datum) = new.column(index) {
                    write::datum(after.member(&column.name), datum, &column.kind);
                }
            }
            after.end();
        }
        update.end();
    }

    fn difference(&self, out: &mut Vec<u8>, schema: &TableSchema, kind: Change, old: Option<&Row>, new: Option<&Row>) {
        let Some(new) = new else {
            out.extend_from_slice(b"{\"delete\":null}");
            return;
        };
        let mut update = Object::begin(out);
        let mut columns = Object::begin(update.member(kind.name()));
        for (index, column) in self.wanted(schema, kind) {
            let Some(datum) = new.column(index) else { continue };
            match old {
                Some(old) if old.same(new, index) => {}
                Some(old) => {
                    let empty = Datum::empty();
                    let difference = old.column(index).unwrap_or(&empty).diff(datum, &column.kind);
                    write::datum(columns.member(&column.name), &difference, &column.kind);
                }
                None if datum.is_default(&column.kind) => {}
                None => write::datum(columns.member(&column.name), datum, &column.kind),
            }
        }
        columns.end();
        update.end();
    }
}

impl Select {
    fn from_json(json: &Value, table: &str) -> Result<Self> {
        let mut parser = ObjectParser::new(json, format!("table {table} select"));
        let mut flag = |name: &str| parser.optional(name, JsonType::Boolean).and_then(Value::as_bool).unwrap_or(true);
        let select =
            Select { initial: flag("initial"), insert: flag("insert"), delete: flag("delete"), modify: flag("modify") };
        parser.finish()?;
        Ok(select)
    }
}
