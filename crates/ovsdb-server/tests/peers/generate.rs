//! Random transactions and monitors for a schema: mostly sound, each with at most one thing wrong, since of several it
//! is an accident which one a server complains about.

use std::collections::BTreeMap;

use base::rng::Rng;
use ovsdb::types::{AtomType, BaseType, Constraint};
use ovsdb::{ColumnType, DatabaseSchema, TableSchema};
use serde_json::{Map, Value, json};

/// Makes requests, and knows which rows there may be.
pub(crate) struct Generator {
    pub(crate) rng: Rng,
    schema: DatabaseSchema,
    /// Inserted rows, by table; some were deleted.
    rows: BTreeMap<String, Vec<String>>,
    /// Names that inserts of this transaction have, with their tables.
    names: Vec<(String, String)>,
    /// Whether another error may be generated.
    may_err: bool,
}

const FUNCTIONS: [&str; 8] = ["<", "<=", "==", "!=", ">=", ">", "includes", "excludes"];
const MUTATORS: [&str; 7] = ["+=", "-=", "*=", "/=", "%=", "insert", "delete"];

/// A large integer that is no product of two others: Open vSwitch rejects a product that is the largest one.
const LARGEST: i64 = i64::MAX - 7;

impl Generator {
    pub(crate) fn new(schema: &str, seed: u64) -> Self {
        let schema = DatabaseSchema::parse(schema).unwrap();
        Self { rng: Rng::seeded(seed), schema, rows: BTreeMap::new(), names: Vec::new(), may_err: false }
    }

    /// Makes requests for another schema from now on.
    pub(crate) fn follow(&mut self, schema: &Value) {
        self.schema = DatabaseSchema::from_json(schema).expect("the schema was accepted");
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.below(of.len() as u64) as usize]
    }

    /// Whether to generate an error now; at most once in a request.
    fn errs(&mut self, percent: u64) -> bool {
        let errs = self.may_err && self.chance(percent);
        self.may_err &= !errs;
        errs
    }

    fn table(&mut self) -> TableSchema {
        let at = self.rng.below(self.schema.tables().len() as u64) as usize;
        self.schema.tables()[at].clone()
    }

    /// A row of a table, which may be deleted, or may never have existed.
    fn row(&mut self, table: &str) -> String {
        let known = self.rows.get(table).cloned().unwrap_or_default();
        if known.is_empty() || self.chance(5) {
            return uuid(self.rng.below(20));
        }
        // Late ones are more likely to be there.
        let late = known.len().saturating_sub(12);
        let from = if self.chance(80) { &known[late..] } else { &known[..] };
        self.pick(from).clone()
    }

    /// A row that was inserted into a table, if there was one.
    fn known_row(&mut self, table: &str) -> String {
        let known = self.rows.get(table).cloned().unwrap_or_default();
        if known.is_empty() { uuid(9_999) } else { self.pick(&known).clone() }
    }

    /// The operations of a transaction.
    pub(crate) fn operations(&mut self) -> Vec<Value> {
        self.names.clear();
        self.may_err = self.chance(40);
        let count = 1 + self.rng.below(5) as usize;
        let mut operations: Vec<Value> = (0..count).map(|_| self.operation()).collect();
        if self.errs(25) {
            let at = self.rng.below(count as u64) as usize;
            self.corrupt(&mut operations[at]);
        }
        operations
    }

    fn operation(&mut self) -> Value {
        let table = self.table();
        let name = table.name.as_str();
        match self.rng.below(100) {
            0..35 => self.insert(&table),
            35..50 => {
                let mut op = json!({"op": "select", "table": name, "where": self.condition(&table)});
                if self.chance(70) {
                    op["columns"] = self.columns(&table);
                }
                op
            }
            50..62 => {
                let row = self.some_columns(&table, true);
                json!({"op": "update", "table": name, "where": self.condition(&table), "row": row})
            }
            62..82 => {
                let count = 1 + self.rng.below(3);
                let mutations: Vec<Value> = (0..count).map(|_| self.mutation(&table)).collect();
                json!({"op": "mutate", "table": name, "where": self.condition(&table), "mutations": mutations})
            }
            82..88 => json!({"op": "delete", "table": name, "where": self.condition(&table)}),
            88..93 => self.wait(&table),
            93..95 => json!({"op": "comment", "comment": self.text()}),
            95 => json!({"op": "commit", "durable": self.chance(50)}),
            96 if self.errs(100) => json!({"op": "abort"}),
            97 if self.errs(100) => json!({"op": "assert", "lock": "lock"}),
            98 if self.errs(50) => json!({"op": "none"}),
            _ => json!({"op": "comment", "comment": ""}),
        }
    }

    fn insert(&mut self, table: &TableSchema) -> Value {
        let mut op = json!({"op": "insert", "table": table.name, "row": self.some_columns(table, false)});
        if self.chance(50) {
            let known = self.rows.get(&table.name).map_or(0, Vec::len) as u64;
            // No two tables share one: Open vSwitch takes a reference to a row of that name in another table for one
            // to the row itself, and does not check it.
            let place: u64 = table.name.bytes().map(u64::from).sum();
            let fresh = uuid(place * 10_000 + known * 8 + self.rng.below(8));
            op["uuid"] = Value::from(if self.errs(20) { self.known_row(&table.name) } else { fresh });
        }
        if self.chance(50) {
            let name = format!("n{}", self.names.len());
            op["uuid-name"] = Value::from(if self.errs(10) { "n0" } else { name.as_str() });
            self.names.push((name, table.name.clone()));
        }
        op
    }

    fn wait(&mut self, table: &TableSchema) -> Value {
        let until = *self.pick(&["!=", "!=", "!=", "=="]);
        let rows: Vec<Value> = (0..self.rng.below(3)).map(|_| self.some_columns(table, false)).collect();
        let mut op = json!({"op": "wait", "table": table.name, "where": self.condition(table), "until": until,
                            "rows": rows, "timeout": 0});
        if self.chance(70) {
            op["columns"] = self.columns(table);
        }
        op
    }

    /// A `<row>` with some of a table's columns.
    fn some_columns(&mut self, table: &TableSchema, mutable: bool) -> Value {
        let mut row = Map::new();
        let most = if self.chance(80) { 4 } else { 30 };
        for (_, column) in table.own_columns() {
            if row.len() >= most || !self.chance(40) || mutable && !column.mutable && !self.errs(20) {
                continue;
            }
            row.insert(column.name.clone(), self.value(&column.kind));
        }
        if self.errs(3) {
            row.insert((*self.pick(&["_uuid", "_version", "zz"])).to_owned(), json!(["uuid", uuid(1)]));
        }
        Value::Object(row)
    }

    fn columns(&mut self, table: &TableSchema) -> Value {
        let mut names: Vec<&str> = Vec::new();
        for column in table.columns() {
            if self.chance(30) {
                names.push(&column.name);
            }
        }
        if self.errs(5) {
            names.push(if self.chance(50) { "zz" } else { "_uuid" });
        }
        json!(names)
    }

    /// The array of a `where` member.
    pub(crate) fn condition(&mut self, table: &TableSchema) -> Value {
        let count = *self.pick(&[0, 1, 1, 1, 2]);
        (0..count).map(|_| self.clause(table)).collect()
    }

    fn clause(&mut self, table: &TableSchema) -> Value {
        if self.chance(7) {
            return Value::from(self.chance(70));
        }
        if self.chance(45) {
            let function = *self.pick(&["==", "==", "==", "!=", "includes", "excludes"]);
            return json!(["_uuid", function, ["uuid", self.row(&table.name)]]);
        }
        let columns = table.columns();
        let column = self.pick(columns);
        let number = matches!(column.kind.key.kind, AtomType::Integer | AtomType::Real) && !column.kind.is_map();
        let ordered = number && (column.kind.is_scalar() || column.kind.is_optional_scalar());
        let function = if ordered || self.errs(10) { *self.pick(&FUNCTIONS) } else { *self.pick(&FUNCTIONS[2..4]) };
        let function = if !ordered && self.chance(50) { *self.pick(&FUNCTIONS[6..]) } else { function };
        let argument = match function {
            "excludes" => self.value(&loose(&column.kind, self_max(&column.kind))),
            "includes" => self.value(&loose(&column.kind, column.kind.max)),
            _ => self.value(&column.kind),
        };
        let name = if self.errs(3) { "zz" } else { column.name.as_str() };
        json!([name, if self.errs(3) { "~" } else { function }, argument])
    }

    fn mutation(&mut self, table: &TableSchema) -> Value {
        let own: Vec<_> = table.own_columns().map(|(_, column)| column.clone()).collect();
        let errs = self.errs(15) || own.iter().all(|column| !column.mutable);
        let column = loop {
            let column = self.pick(&own).clone();
            if column.mutable || errs {
                break column;
            }
        };
        let kind = &column.kind;
        let arithmetic = matches!(kind.key.kind, AtomType::Integer | AtomType::Real) && !kind.is_map();
        let sets = &MUTATORS[5..];
        let mutator = match (errs, arithmetic, kind.is_scalar()) {
            (true, ..) => *self.pick(&MUTATORS),
            (_, true, true) => *self.pick(&MUTATORS[..5]),
            (_, true, false) if self.chance(40) => *self.pick(&MUTATORS[..5]),
            (_, false, true) => return json!([column.name, "insert", self.value(kind)]),
            _ => *self.pick(sets),
        };
        let mutator = if kind.key.kind == AtomType::Real && mutator == "%=" && !self.errs(30) { "-=" } else { mutator };
        let argument = match mutator {
            "insert" => self.value(&loose(kind, kind.max)),
            "delete" if kind.is_map() && self.chance(50) => {
                self.value(&ColumnType { value: None, ..loose(kind, u32::MAX) })
            }
            "delete" => self.value(&loose(kind, u32::MAX)),
            _ if kind.key.kind == AtomType::Real => {
                self.pick(&[json!(1), json!(0.5), json!(-2), json!(0), json!(1e300)]).clone()
            }
            _ => self.pick(&[json!(1), json!(2), json!(-1), json!(0), json!(3), json!(LARGEST)]).clone(),
        };
        json!([column.name, if self.errs(3) { "^=" } else { mutator }, argument])
    }

    /// A `<value>` of a type.
    fn value(&mut self, kind: &ColumnType) -> Value {
        let most = u64::from(kind.max.min(4));
        let mut count = u64::from(kind.min) + self.rng.below(most + 1 - u64::from(kind.min));
        if self.errs(4) {
            count = if self.chance(50) { 0 } else { most + 1 };
        }
        let mut elements: Vec<Value> = Vec::new();
        let mut keys: Vec<Value> = Vec::new();
        for _ in 0..count {
            let key = self.atom(&kind.key);
            // 1 and 1.0 are one key; so are two names of one row, which need not be distinguished here.
            let same = |other: &Value| *other == key || other.as_f64().is_some_and(|n| Some(n) == key.as_f64());
            if keys.iter().any(same) && !self.errs(20) {
                continue;
            }
            keys.push(key.clone());
            elements.push(match &kind.value {
                Some(base) => json!([key, self.atom(base)]),
                None => key,
            });
        }
        if elements.len() < kind.min as usize && count > 0 {
            elements.push(self.atom(&kind.key));
        }
        match (kind.is_map(), elements.as_slice()) {
            (true, _) => json!(["map", elements]),
            (false, [only]) if self.rng.below(4) > 0 => only.clone(),
            (false, _) => json!(["set", elements]),
        }
    }

    fn atom(&mut self, base: &BaseType) -> Value {
        let wrong = self.errs(3);
        if let Some(allowed) = base.allowed.as_ref().filter(|_| !wrong) {
            return self.pick(allowed.keys()).to_json();
        }
        match (base.kind, &base.constraint) {
            (AtomType::Integer, &Constraint::Integer { min, max }) if !wrong => {
                json!((min.max(-4) + self.rng.below(8) as i64).min(max))
            }
            (AtomType::Integer, _) if self.chance(4) => json!(self.pick(&[LARGEST, -LARGEST, 1 << 60])),
            (AtomType::Integer, _) if self.chance(5) => json!(2.0),
            (AtomType::Integer, _) => json!(self.rng.below(9) as i64 - 3),
            (AtomType::Real, &Constraint::Real { min, max }) if !wrong => {
                let real: f64 = *self.pick(&[-1.0, 0.0, 0.5, 1.25, 2.0, 7.5]);
                json!(real.clamp(min, max))
            }
            (AtomType::Real, _) if self.chance(8) => {
                json!(self.pick(&[1e10, 1e-7, -1e300, 1e15, 1e16, 123_456.789, 0.1]))
            }
            (AtomType::Real, _) => json!(self.pick(&[0.0, 1.0, -1.0, 0.5, 2.5, 3.0])),
            (AtomType::Boolean, _) => json!(self.chance(50)),
            (AtomType::String, &Constraint::String { min_length, max_length }) if !wrong => {
                let text = self.pick(&["", "a", "xy", "é", "éa", "abc", "äöü", "b"]);
                let length = text.chars().count() as u32;
                json!(if (min_length..=max_length).contains(&length) { *text } else { "zz" })
            }
            (AtomType::String, _) => json!(self.text()),
            (AtomType::Uuid, Constraint::Reference { table, .. }) => self.reference(&table.clone()),
            (AtomType::Uuid, _) if self.errs(3) => json!(["uuid", "0"]),
            (AtomType::Uuid, _) => json!(["uuid", uuid(self.rng.below(5))]),
        }
    }

    fn reference(&mut self, table: &str) -> Value {
        let names: Vec<String> =
            self.names.iter().filter(|(_, of)| of == table).map(|(name, _)| name.clone()).collect();
        if !names.is_empty() && self.chance(50) {
            return json!(["named-uuid", self.pick(&names)]);
        }
        if self.errs(3) {
            return json!(["named-uuid", "nowhere"]);
        }
        json!(["uuid", self.row(table)])
    }

    fn text(&mut self) -> String {
        (*self.pick(&["", "a", "b", "ab", "b c", "é", "x\"y", "line\nfeed", "\u{7f}\t", "0", "true", "longer text"]))
            .to_owned()
    }

    /// Remembers the rows that a transaction inserted.
    pub(crate) fn learn(&mut self, operations: &[Value], results: &Value) {
        let results = results.as_array().map(Vec::as_slice).unwrap_or_default();
        if results.len() != operations.len() || results.iter().any(|result| result.get("error").is_some()) {
            return;
        }
        for (operation, result) in operations.iter().zip(results) {
            if let (Some(table), Some(uuid)) = (operation["table"].as_str(), result["uuid"][1].as_str()) {
                self.rows.entry(table.to_owned()).or_default().push(uuid.to_owned());
            }
        }
    }

    /// The `<monitor-requests>` of a monitor, with conditions if `conditional`.
    pub(crate) fn monitor(&mut self, conditional: bool) -> Value {
        self.names.clear();
        self.may_err = self.chance(20);
        let mut requests = Map::new();
        for table in self.schema.tables().to_vec() {
            if self.chance(40) {
                requests.insert(table.name.clone(), self.monitor_of(&table, conditional));
            }
        }
        let mut requests = Value::Object(requests);
        if self.errs(60) {
            self.corrupt(&mut requests);
            // Conditions for one table stay alike.
            for requests in
                requests.as_object_mut().into_iter().flat_map(Map::values_mut).filter_map(Value::as_array_mut)
            {
                let Some(first) = requests.first().map(|request| request.get("where").cloned()) else { continue };
                for request in requests.iter_mut().filter_map(Value::as_object_mut) {
                    match &first {
                        Some(condition) => _ = request.insert("where".to_owned(), condition.clone()),
                        None => _ = request.shift_remove("where"),
                    }
                }
            }
        }
        requests
    }

    fn monitor_of(&mut self, table: &TableSchema, conditional: bool) -> Value {
        // Requesting a column twice is an error, so several requests share the columns.
        let parts = 1 + self.rng.below(3) as usize;
        let mut columns: Vec<Vec<&str>> = vec![Vec::new(); parts];
        for column in table.columns() {
            if self.chance(60) {
                let part = self.rng.below(parts as u64) as usize;
                columns[part].push(&column.name);
            }
        }
        let mut requests = Vec::new();
        // Of several conditions for one table, Open vSwitch applies one, chosen by its hash table.
        let condition = (conditional && self.chance(70)).then(|| self.condition(table));
        for columns in columns {
            let mut request = json!({ "columns": columns });
            if parts == 1 && self.chance(50) {
                request = json!({});
            }
            if self.chance(40) {
                let mut select = Map::new();
                for kind in ["initial", "insert", "delete", "modify"] {
                    if self.chance(50) {
                        select.insert(kind.to_owned(), json!(self.chance(60)));
                    }
                }
                request["select"] = Value::Object(select);
            }
            if let Some(condition) = &condition {
                request["where"] = condition.clone();
            }
            requests.push(request);
        }
        if requests.len() == 1 && self.chance(50) { requests.remove(0) } else { Value::from(requests) }
    }

    /// The requests of a `monitor_cond_change` for some of the tables that `monitor` names.
    pub(crate) fn condition_change(&mut self, monitor: &Value) -> Value {
        self.names.clear();
        self.may_err = self.chance(20);
        let mut requests = Map::new();
        for name in monitor.as_object().into_iter().flat_map(Map::keys) {
            let Some(table) = self.schema.table(name).cloned() else { continue };
            if self.chance(60) {
                requests.insert(name.clone(), json!([{ "where": self.condition(&table) }]));
            }
        }
        let mut requests = Value::Object(requests);
        if self.errs(60) {
            self.corrupt(&mut requests);
        }
        requests
    }

    /// Replaces, removes or adds something somewhere within `json`.
    pub(crate) fn corrupt(&mut self, json: &mut Value) {
        let deeper = self.chance(75);
        match json {
            Value::Object(members) if !members.is_empty() && deeper => {
                let names: Vec<String> = members.keys().cloned().collect();
                let name = self.pick(&names).clone();
                match self.rng.below(8) {
                    0 => _ = members.shift_remove(&name),
                    1 => _ = members.insert("extra".to_owned(), json!(1)),
                    _ => self.corrupt(&mut members[&name]),
                }
            }
            Value::Array(elements) if !elements.is_empty() && deeper => {
                let at = self.rng.below(elements.len() as u64) as usize;
                match self.rng.below(8) {
                    0 => _ = elements.remove(at),
                    1 => elements.insert(at, json!("extra")),
                    _ => self.corrupt(&mut elements[at]),
                }
            }
            other => *other = self.junk(),
        }
    }

    fn junk(&mut self) -> Value {
        let junk = [
            Value::Null,
            json!(true),
            json!(7_777_777),
            json!(-1),
            json!(1.5),
            json!(1e300),
            json!(u64::MAX),
            json!(""),
            json!("x"),
            json!("1x"),
            json!("_uuid"),
            json!([]),
            json!({}),
            json!(["set"]),
            json!(["set", []]),
            json!(["set", [1, 1]]),
            json!(["set", ["a", 2]]),
            json!(["map", [["a", 1], ["a", 2]]]),
            json!(["map", [[1]]]),
            json!(["map", []]),
            json!(["uuid", "x"]),
            json!(["uuid", "00000000-0000-4000-8000-00000000000g"]),
            json!(["named-uuid", "1 2"]),
            json!(["named-uuid", "name"]),
            json!(["uuid", uuid(3)]),
            json!([[]]),
            json!({"": 1}),
        ];
        self.pick(&junk).clone()
    }
}

/// A UUID that both servers know by the same name.
pub(crate) fn uuid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn self_max(kind: &ColumnType) -> u32 {
    if kind.is_scalar() { 1 } else { u32::MAX }
}

/// The same type with no least number of elements, unless it is a scalar.
fn loose(kind: &ColumnType, max: u32) -> ColumnType {
    if kind.is_scalar() { kind.clone() } else { ColumnType { min: 0, max, ..kind.clone() } }
}
