//! Schemas of databases, tables and columns (RFC 7047 section 3.2): reading, checking, writing.
//!
//! Every table has the two implicit columns `_uuid` (index [`UUID_COLUMN`]) and `_version` ([`VERSION_COLUMN`]) ahead
//! of its own, so that a row is an array of data indexed like [`TableSchema::columns`].

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::json::{JsonType, ObjectParser, as_integer, is_id};
use crate::types::{AtomType, BaseType, ColumnType, UNLIMITED};

/// Index of the column `_uuid` in every table.
pub const UUID_COLUMN: usize = 0;
/// Index of the column `_version` in every table.
pub const VERSION_COLUMN: usize = 1;
/// Number of implicit columns.
pub const IMPLICIT_COLUMNS: usize = 2;

/// A `<column-schema>`.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSchema {
    /// Name.
    pub name: String,
    /// The column's type.
    pub kind: ColumnType,
    /// Whether values are lost when the server stops.
    pub ephemeral: bool,
    /// Whether values may be changed after the row was inserted.
    pub mutable: bool,
}

impl ColumnSchema {
    fn from_json(json: &Value, name: &str) -> Result<Self> {
        let mut parser = ObjectParser::new(json, format!("schema for column {name}"));
        let mutable = parser.optional("mutable", JsonType::Boolean).and_then(Value::as_bool).unwrap_or(true);
        let ephemeral = parser.optional("ephemeral", JsonType::Boolean).and_then(Value::as_bool).unwrap_or(false);
        let kind = parser.required("type", JsonType::StringOrObject);
        parser.finish()?;
        let Some(kind) = kind else {
            return Err(Error::syntax(json, "ovsdb type expected"));
        };
        let kind = ColumnType::from_json(kind)?;
        // Columns with weak references must be able to change when the rows that they name are deleted.
        let weak = kind.key.is_weak_ref() || kind.value.as_ref().is_some_and(BaseType::is_weak_ref);
        Ok(Self { name: name.to_owned(), kind, ephemeral, mutable: mutable || weak })
    }

    /// The `<column-schema>` as JSON.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("type".into(), self.kind.to_json());
        if !self.mutable {
            object.insert("mutable".into(), Value::from(false));
        }
        if self.ephemeral {
            object.insert("ephemeral".into(), Value::from(true));
        }
        Value::Object(object)
    }
}

/// A `<table-schema>`.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSchema {
    /// Name.
    pub name: String,
    /// Whether rows stay without a strong reference to them.
    pub is_root: bool,
    /// Greatest number of rows; [`UNLIMITED`] if there is no limit.
    pub max_rows: u32,
    /// Sets of columns (by index) whose values together are unique.
    pub indexes: Vec<Vec<usize>>,
    columns: Vec<ColumnSchema>,
    by_name: HashMap<String, usize, RandomState>,
}

impl TableSchema {
    fn new(name: &str) -> Self {
        let implicit = |name: &str| ColumnSchema {
            name: name.to_owned(),
            kind: ColumnType::scalar(BaseType::new(AtomType::Uuid)),
            ephemeral: name == "_version",
            mutable: false,
        };
        let mut table = Self {
            name: name.to_owned(),
            is_root: true,
            max_rows: UNLIMITED,
            indexes: Vec::new(),
            columns: Vec::new(),
            by_name: HashMap::default(),
        };
        table.push(implicit("_uuid"));
        table.push(implicit("_version"));
        table
    }

    fn push(&mut self, column: ColumnSchema) {
        self.by_name.insert(column.name.clone(), self.columns.len());
        self.columns.push(column);
    }

    /// All columns, the implicit ones first.
    pub fn columns(&self) -> &[ColumnSchema] {
        &self.columns
    }

    /// The columns that the schema names, with their indexes.
    pub fn own_columns(&self) -> impl Iterator<Item = (usize, &ColumnSchema)> {
        self.columns.iter().enumerate().skip(IMPLICIT_COLUMNS)
    }

    /// The index of the column called `name`.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.columns.get(self.column_index(name)?)
    }

    fn from_json(json: &Value, name: &str) -> Result<Self> {
        let mut parser = ObjectParser::new(json, format!("table schema for table {name}"));
        let columns = parser.required("columns", JsonType::Object);
        let max_rows = parser.optional("maxRows", JsonType::Integer);
        let is_root = parser.optional("isRoot", JsonType::Boolean).and_then(Value::as_bool);
        let indexes = parser.optional("indexes", JsonType::Array);
        parser.finish()?;
        let mut table = Self::new(name);
        if let Some(given) = max_rows {
            let rows = as_integer(given).filter(|&rows| rows > 0);
            let rows = rows.ok_or_else(|| Error::syntax(json, "maxRows must be at least 1"))?;
            table.max_rows = u32::try_from(rows).unwrap_or(UNLIMITED);
        }
        let columns = columns.and_then(Value::as_object);
        if columns.is_none_or(Map::is_empty) {
            return Err(Error::syntax(json, "table must have at least one column"));
        }
        for (name, column) in columns.into_iter().flatten() {
            check_name(json, name)?;
            table.push(ColumnSchema::from_json(column, name)?);
        }
        table.is_root = is_root.unwrap_or(false);
        for index in indexes.and_then(Value::as_array).into_iter().flatten() {
            let columns = table.column_set_from_json(Some(index))?;
            if columns.is_empty() {
                return Err(Error::syntax(json, "index must have at least one column"));
            }
            if let Some(bad) = columns.iter().filter_map(|&at| table.columns.get(at)).find(|column| column.ephemeral) {
                let details = format!("ephemeral columns (such as {}) may not be indexed", bad.name);
                return Err(Error::syntax(json, details));
            }
            table.indexes.push(columns);
        }
        Ok(table)
    }

    /// Reads an array of distinct column names into indexes; without an array, all columns.
    pub fn column_set_from_json(&self, json: Option<&Value>) -> Result<Vec<usize>> {
        let Some(json) = json else {
            return Ok((0..self.columns.len()).collect());
        };
        let expected = || Error::syntax(json, "array of distinct column names expected");
        let mut columns = Vec::new();
        let mut taken = vec![false; self.columns.len()];
        for name in json.as_array().ok_or_else(expected)? {
            let name = name.as_str().ok_or_else(expected)?;
            let Some(at) = self.column_index(name) else {
                return Err(Error::syntax(json, format!("{name} is not a valid column name")));
            };
            match taken.get_mut(at) {
                Some(taken) if !*taken => *taken = true,
                _ => return Err(expected()),
            }
            columns.push(at);
        }
        Ok(columns)
    }

    /// The `<table-schema>` as JSON. `default_is_root` is the value of a missing `isRoot`.
    pub fn to_json(&self, default_is_root: bool) -> Value {
        let mut object = Map::new();
        if self.is_root && !default_is_root {
            object.insert("isRoot".into(), Value::from(true));
        }
        if self.max_rows != UNLIMITED {
            object.insert("maxRows".into(), Value::from(self.max_rows));
        }
        let columns = self.own_columns().map(|(_, column)| (column.name.clone(), column.to_json())).collect();
        object.insert("columns".into(), Value::Object(columns));
        if !self.indexes.is_empty() {
            let name = |&at: &usize| self.columns.get(at).map(|column| Value::from(column.name.as_str()));
            let indexes: Vec<Value> =
                self.indexes.iter().map(|index| index.iter().filter_map(name).collect::<Vec<_>>().into()).collect();
            object.insert("indexes".into(), Value::from(indexes));
        }
        Value::Object(object)
    }
}

/// A `<database-schema>`.
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseSchema {
    /// Name.
    pub name: String,
    /// Version `x.y.z`; empty in old schemas that have none.
    pub version: String,
    /// Checksum that the schema's author put into it; empty if there is none.
    pub cksum: String,
    tables: Vec<TableSchema>,
    by_name: HashMap<String, usize, RandomState>,
}

impl DatabaseSchema {
    /// All tables, in the order of the schema.
    pub fn tables(&self) -> &[TableSchema] {
        &self.tables
    }

    /// The index of the table called `name`.
    pub fn table_index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The table called `name`.
    pub fn table(&self, name: &str) -> Option<&TableSchema> {
        self.tables.get(self.table_index(name)?)
    }

    /// Parses the text of a schema.
    pub fn parse(text: &str) -> Result<Self> {
        let json: Value = crate::json_text::parse(text.as_bytes())
            .map_err(|e| Error::new("syntax error", format!("schema is not JSON: {e}")))?;
        Self::from_json(&json)
    }

    /// Reads and checks a `<database-schema>`.
    pub fn from_json(json: &Value) -> Result<Self> {
        let mut parser = ObjectParser::new(json, "database schema");
        let name = parser.required("name", JsonType::Id).and_then(Value::as_str);
        let version = parser.optional("version", JsonType::String).and_then(Value::as_str);
        let cksum = parser.optional("cksum", JsonType::String).and_then(Value::as_str);
        let tables = parser.required("tables", JsonType::Object).and_then(Value::as_object);
        parser.optional("$schema", JsonType::String);
        parser.finish()?;
        if let Some(version) = version.filter(|version| !is_valid_version(version)) {
            return Err(Error::syntax(json, format!("schema version \"{version}\" not in format x.y.z")));
        }
        let text = |member: Option<&str>| member.unwrap_or_default().to_owned();
        let mut schema = Self {
            name: text(name),
            version: text(version),
            cksum: text(cksum),
            tables: Vec::new(),
            by_name: HashMap::default(),
        };
        for (name, table) in tables.into_iter().flatten() {
            check_name(json, name)?;
            schema.by_name.insert(name.clone(), schema.tables.len());
            schema.tables.push(TableSchema::from_json(table, name)?);
        }
        schema.check_references()?;
        // Schemas from before "isRoot" existed have it nowhere; then every table is in the root set.
        if schema.tables.iter().all(|table| !table.is_root) {
            schema.tables.iter_mut().for_each(|table| table.is_root = true);
        }
        schema.keep_references();
        Ok(schema)
    }

    /// Makes columns that keep rows of other tables alive persistent, whatever the schema says: otherwise those rows
    /// would disappear after a restart, without references to them.
    fn keep_references(&mut self) {
        let roots: Vec<bool> = self.tables.iter().map(|table| table.is_root).collect();
        let by_name = &self.by_name;
        let keeps = |base: &BaseType| {
            let target = base.ref_table().filter(|_| base.is_strong_ref()).and_then(|target| by_name.get(target));
            target.and_then(|at| roots.get(*at)) == Some(&false)
        };
        for column in self.tables.iter_mut().flat_map(|table| &mut table.columns) {
            column.ephemeral &= !(keeps(&column.kind.key) || column.kind.value.as_ref().is_some_and(keeps));
        }
    }

    fn check_references(&self) -> Result<()> {
        for table in &self.tables {
            for column in &table.columns {
                for (role, base) in [("key", Some(&column.kind.key)), ("value", column.kind.value.as_ref())] {
                    if let Some(target) = base.and_then(BaseType::ref_table)
                        && !self.by_name.contains_key(target)
                    {
                        let details = format!("column {} {role} refers to undefined table {target}", column.name);
                        return Err(Error::new("syntax error", details));
                    }
                }
            }
        }
        Ok(())
    }

    /// The `<database-schema>` as JSON.
    pub fn to_json(&self) -> Value {
        let default_is_root = self.tables.iter().all(|table| table.is_root);
        let mut object = Map::new();
        object.insert("name".into(), Value::from(self.name.as_str()));
        if !self.version.is_empty() {
            object.insert("version".into(), Value::from(self.version.as_str()));
        }
        if !self.cksum.is_empty() {
            object.insert("cksum".into(), Value::from(self.cksum.as_str()));
        }
        let tables = self.tables.iter().map(|table| (table.name.clone(), table.to_json(default_is_root))).collect();
        object.insert("tables".into(), Value::Object(tables));
        Value::Object(object)
    }

    /// Whether two schemas are the same but for the order of their tables and columns.
    pub fn equivalent(&self, other: &DatabaseSchema) -> bool {
        // JSON objects compare without regard to the order of their members.
        self.to_json() == other.to_json()
    }
}

fn check_name(json: &Value, name: &str) -> Result<()> {
    if name.starts_with('_') {
        return Err(Error::syntax(json, "names beginning with \"_\" are reserved"));
    }
    if !is_id(name) {
        return Err(Error::syntax(json, "name must be a valid id"));
    }
    Ok(())
}

/// Whether `version` has the form `x.y.z`, each a decimal number.
pub fn is_valid_version(version: &str) -> bool {
    let parts: Vec<&str> = version.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()))
}
