//! Tables of roles, and transactions of clients with a role: a naive twin decides which changes are allowed, and
//! about the contents afterwards. A transaction with an operation that the twin refuses changes nothing; any other is
//! executed.
#![no_main]

use fuzz::Input;
use ovsdb::{DatabaseSchema, Datum, UuidSource};
use ovsdb_server::{Caller, Database, Outcome, Role, execute};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

static SCHEMA: LazyLock<Arc<DatabaseSchema>> = LazyLock::new(|| {
    let any = |kind: Value| json!({"type": {"key": kind, "min": 0, "max": "unlimited"}});
    let map = |value: Value| json!({"type": {"key": "string", "value": value, "min": 0, "max": "unlimited"}});
    let permission = json!({"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"});
    let columns = json!({"owner": {"type": "string"}, "s": any(json!("string")), "ids": map(json!("string"))});
    let schema = json!({"name": "T", "tables": {
        "RBAC_Role": {"isRoot": true, "columns": {"name": {"type": "string"}, "permissions": map(permission)}},
        "RBAC_Permission": {"isRoot": true, "columns": {"authorization": any(json!("string")),
            "insert_delete": {"type": "boolean"}, "update": any(json!("string"))}},
        "A": {"isRoot": true, "columns": columns}, "B": {"isRoot": true, "columns": columns}}});
    Arc::new(DatabaseSchema::from_json(&schema).expect("our own schema"))
});

/// The tables that roles may have permissions for, and their columns.
const TABLES: [(&str, [&str; 3]); 3] = [
    ("A", ["owner", "s", "ids"]),
    ("B", ["owner", "s", "ids"]),
    ("RBAC_Permission", ["authorization", "insert_delete", "update"]),
];
const PERMISSION: usize = 2;
/// Transactions for an input.
const TRANSACTIONS_MAX: usize = 24;
/// Names of clients, and other strings.
const NAMES: [&str; 4] = ["alice", "bob", "owner", ""];

/// The clients that an entry of `authorization` allows to change a row of A or B.
#[derive(Clone, Copy)]
enum Grantee {
    Everybody,
    Owner,
    Key(&'static str),
    Nobody,
}

const AUTHORIZATIONS: [(&str, Grantee); 12] = [
    ("owner", Grantee::Owner),
    ("ids:host", Grantee::Key("host")),
    ("", Grantee::Everybody),
    ("ids:x", Grantee::Key("x")),
    ("ids:host:x", Grantee::Key("host")),
    ("ids::x", Grantee::Key("x")),
    ("owner:", Grantee::Nobody),
    (":owner", Grantee::Nobody),
    (":", Grantee::Nobody),
    ("ids", Grantee::Nobody),
    ("s", Grantee::Nobody),
    ("none", Grantee::Nobody),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    Text(String),
    Flag(bool),
    Set(BTreeSet<String>),
    Pairs(BTreeMap<String, String>),
}

type Row = BTreeMap<&'static str, Cell>;

/// The twin: rows by table and id, and the permissions of roles, which do not change.
#[derive(Clone)]
struct Twin {
    rows: [BTreeMap<String, Row>; 3],
    /// By role and table, the row with the permissions.
    roles: BTreeMap<(&'static str, usize), String>,
}

impl Cell {
    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Flag(flag) => json!(flag),
            Cell::Set(set) => json!(["set", set]),
            Cell::Pairs(pairs) => json!(["map", pairs.iter().map(|(k, v)| json!([k, v])).collect::<Vec<_>>()]),
        }
    }

    fn of(datum: &Datum, like: &Cell) -> Self {
        let text = |atom: &ovsdb::Atom| atom.as_str().expect("a string").to_owned();
        match like {
            Cell::Text(_) => Cell::Text(datum.as_str().expect("a string").to_owned()),
            Cell::Flag(_) => Cell::Flag(datum.as_bool().expect("a boolean")),
            Cell::Set(_) => Cell::Set(datum.keys().iter().map(text).collect()),
            Cell::Pairs(_) => Cell::Pairs(datum.keys().iter().map(text).zip(datum.values().iter().map(text)).collect()),
        }
    }

    fn default_of(column: &str) -> Self {
        match column {
            "owner" => Cell::Text(String::new()),
            "insert_delete" => Cell::Flag(false),
            "ids" => Cell::Pairs(BTreeMap::new()),
            _ => Cell::Set(BTreeSet::new()),
        }
    }

    fn draw(column: &str, input: &mut Input<'_>) -> Self {
        let name = |input: &mut Input<'_>| NAMES[input.below(NAMES.len())].to_owned();
        let some = input.below(3);
        match column {
            "owner" => Cell::Text(name(input)),
            "insert_delete" => Cell::Flag(some > 0),
            "ids" => Cell::Pairs((0..some).map(|n| (["host", "x"][n].to_owned(), name(input))).collect()),
            "authorization" => {
                Cell::Set((0..=some).map(|_| AUTHORIZATIONS[input.below(AUTHORIZATIONS.len())].0.to_owned()).collect())
            }
            "update" => Cell::Set((0..=some).map(|_| all_columns(input.below(7)).to_owned()).collect()),
            _ => Cell::Set((0..some).map(|_| name(input)).collect()),
        }
    }
}

fn all_columns(n: usize) -> &'static str {
    ["owner", "s", "ids", "authorization", "insert_delete", "update", "_uuid"][n]
}

fn draw_row(table: usize, input: &mut Input<'_>) -> Row {
    let given = input.below(8);
    let columns = TABLES[table].1.iter().enumerate().filter(|(n, _)| given >> n & 1 == 0);
    columns.map(|(_, column)| (*column, Cell::draw(column, input))).collect()
}

fn json_of(row: &Row) -> Value {
    row.iter().map(|(column, cell)| ((*column).to_owned(), cell.json())).collect::<Map<_, _>>().into()
}

/// The effect of an operation on a table: `row` is inserted, or written into rows whose `owner` is `of`, or all.
struct Operation {
    table: usize,
    verb: usize,
    of: Option<&'static str>,
    row: Row,
    uuid: String,
}

const INSERT: usize = 0;
const UPDATE: usize = 1;
const MUTATE: usize = 2;

impl Operation {
    fn draw(serial: u64, input: &mut Input<'_>) -> Self {
        let (table, verb) = (input.below(TABLES.len()), input.below(4));
        let mut row = draw_row(table, input);
        if verb == MUTATE {
            // Only sets are added to.
            row.retain(|_, cell| matches!(cell, Cell::Set(_)));
        }
        let of = (table != PERMISSION).then(|| NAMES.get(input.below(6)).copied()).flatten();
        Self { table, verb, of, row, uuid: format!("00000000-0000-4000-8000-{serial:012x}") }
    }

    fn json(&self) -> Value {
        let table = TABLES[self.table].0;
        let condition = self.of.map_or(json!([]), |owner| json!([["owner", "==", owner]]));
        let mutations: Vec<Value> = self.row.iter().map(|(name, cell)| json!([name, "insert", cell.json()])).collect();
        match self.verb {
            INSERT => json!({"op": "insert", "table": table, "uuid": self.uuid, "row": json_of(&self.row)}),
            UPDATE => json!({"op": "update", "table": table, "where": condition, "row": json_of(&self.row)}),
            MUTATE => json!({"op": "mutate", "table": table, "where": condition, "mutations": mutations}),
            _ => json!({"op": "delete", "table": table, "where": condition}),
        }
    }
}

impl Twin {
    /// Executes an operation; `false` if the caller may not, by the permissions in `before`.
    fn apply(&mut self, operation: &Operation, before: &Twin, role: Option<Role<'_>>) -> bool {
        let Operation { table, verb, of, row, uuid } = operation;
        let is_meant = |row: &Row| of.is_none_or(|owner| row.get("owner") == Some(&Cell::Text(owner.to_owned())));
        let mut full: Row = TABLES[*table].1.iter().map(|column| (*column, Cell::default_of(column))).collect();
        full.extend(row.clone());
        let rows = &self.rows[*table];
        let touched: Vec<&Row> =
            if *verb == INSERT { vec![&full] } else { rows.values().filter(|row| is_meant(row)).collect() };
        // A mutate operation without mutations only counts rows, which every role may do.
        let only_counts = *verb == MUTATE && row.is_empty();
        if let Some(role) = role.filter(|_| !only_counts) {
            let permissions = before.roles.get(&(role.name, *table)).and_then(|uuid| before.rows[PERMISSION].get(uuid));
            let (Some(client), Some(permissions)) = (role.client, permissions) else { return false };
            let has = |column: &str, text: &str| matches!(&permissions[column], Cell::Set(set) if set.contains(text));
            let verb_allowed = match *verb {
                UPDATE | MUTATE => row.keys().all(|column| has("update", column)),
                _ => permissions["insert_delete"] == Cell::Flag(true),
            };
            let is_own = |row: &&Row| {
                AUTHORIZATIONS.iter().filter(|(name, _)| has("authorization", name)).any(|(_, whom)| match whom {
                    Grantee::Everybody => true,
                    Grantee::Owner => row.get("owner") == Some(&Cell::Text(client.to_owned())),
                    Grantee::Key(key) => match row.get("ids") {
                        Some(Cell::Pairs(pairs)) => pairs.get(*key).is_some_and(|name| name == client),
                        _ => false,
                    },
                    Grantee::Nobody => false,
                })
            };
            if !(touched.is_empty() || verb_allowed && touched.iter().all(is_own)) {
                return false;
            }
        }
        let rows = &mut self.rows[*table];
        match *verb {
            INSERT => _ = rows.insert(uuid.clone(), full),
            UPDATE => rows.values_mut().filter(|row| is_meant(row)).for_each(|found| found.extend(row.clone())),
            MUTATE => rows.values_mut().filter(|row| is_meant(row)).for_each(|found| {
                for (column, more) in row {
                    if let (Some(Cell::Set(set)), Cell::Set(more)) = (found.get_mut(column), more) {
                        set.extend(more.iter().cloned());
                    }
                }
            }),
            _ => rows.retain(|_, row| !is_meant(row)),
        }
        true
    }

    fn is_in(&self, database: &Database) -> bool {
        TABLES.iter().zip(&self.rows).all(|((name, columns), rows)| {
            let at = database.schema().table_index(name).expect("a table");
            let table = &database.schema().tables()[at];
            let found = database.rows(at).map(|row| {
                let cell = |column: &&'static str| {
                    let datum = row.column(table.column_index(column).expect("a column")).expect("a value");
                    (*column, Cell::of(datum, &Cell::default_of(column)))
                };
                (row.uuid().to_string(), columns.iter().map(cell).collect::<Row>())
            });
            found.collect::<BTreeMap<_, _>>() == *rows
        })
    }
}

/// Runs operations; returns the errors.
fn run(database: &mut Database, operations: &[Value], role: Option<Role<'_>>, uuids: &mut UuidSource) -> Vec<Value> {
    let locks = BTreeSet::new();
    let caller = Caller { locks: &locks, read_only: false, role, elapsed_ms: 0 };
    let Outcome::Done { results, prepared } = execute(database, operations, caller, uuids) else {
        panic!("nothing waits");
    };
    if let Some(prepared) = prepared {
        database.apply(uuids.next_uuid(), prepared.changes);
    }
    results.into_iter().filter_map(|result| result.get("error").cloned()).collect()
}

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut uuids = UuidSource::seeded(1);
    let mut database = Database::new(Arc::clone(&SCHEMA));
    let mut twin = Twin { rows: Default::default(), roles: BTreeMap::new() };
    let mut serial = 0;
    // A client without a role inserts rows and roles.
    let mut operations = Vec::new();
    for n in 0..6 + input.below(8) {
        serial += 1;
        let mut operation = Operation::draw(serial, &mut input);
        (operation.verb, operation.table) = (INSERT, if n < 3 { PERMISSION } else { n % 2 });
        operation.row = draw_row(operation.table, &mut input);
        let before = twin.clone();
        assert!(twin.apply(&operation, &before, None));
        operations.push(operation.json());
    }
    for name in ["worker", "other"] {
        let mut pairs = Vec::new();
        for (table, (table_name, _)) in TABLES.iter().enumerate() {
            let permissions: Vec<&String> = twin.rows[PERMISSION].keys().collect();
            if let Some(uuid) = permissions.get(input.below(permissions.len() + 1)) {
                pairs.push(json!([table_name, ["uuid", uuid]]));
                twin.roles.insert((name, table), (*uuid).clone());
            }
        }
        operations
            .push(json!({"op": "insert", "table": "RBAC_Role", "row": {"name": name, "permissions": ["map", pairs]}}));
    }
    assert_eq!(run(&mut database, &operations, None, &mut uuids), Vec::<Value>::new());
    assert!(twin.is_in(&database));
    for _ in 0..TRANSACTIONS_MAX {
        if input.is_empty() {
            return;
        }
        let name = ["worker", "worker", "other", "none"][input.below(4)];
        let role = Role { name, client: [Some("alice"), Some("alice"), Some("bob"), None][input.below(4)] };
        let before = twin.clone();
        let mut operations = Vec::new();
        let mut is_allowed = true;
        for _ in 0..=input.below(4) {
            serial += 1;
            let operation = Operation::draw(serial, &mut input);
            operations.push(operation.json());
            is_allowed &= is_allowed && twin.apply(&operation, &before, Some(role));
        }
        let errors = run(&mut database, &operations, Some(role), &mut uuids);
        if is_allowed {
            assert_eq!(errors, Vec::<Value>::new(), "{operations:?}");
        } else {
            assert_eq!(errors, ["permission error"], "{operations:?}");
            twin = before;
        }
        assert!(twin.is_in(&database), "{operations:?}");
    }
});
