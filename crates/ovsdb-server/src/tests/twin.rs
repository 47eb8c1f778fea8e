//! Random transactions against a naive twin, which keeps no counts and no indexes and looks at every row each time.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Atom, Datum, Uuid};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Bench, schema};
use crate::database::Database;
use crate::journal;

pub(super) const TABLES: [&str; 3] = ["root", "kid", "needy"];

/// One of a few UUIDs, so that operations meet.
pub(super) fn uuid(number: u8) -> Uuid {
    Uuid::parse(&format!("00000000-0000-4000-8000-0000000000{number:02x}")).unwrap()
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    Insert(usize, u8, Vec<(&'static str, Datum)>),
    Delete(usize, u8),
    Set(usize, u8, &'static str, Datum),
    Add(usize, u8, &'static str, Datum),
    Remove(usize, u8, &'static str, Datum),
}

impl Op {
    pub(super) fn to_json(&self) -> Value {
        let kinds = schema();
        let value = |table: usize, column: &str, datum: &Datum| {
            datum.to_json(&kinds.table(TABLES[table]).unwrap().column(column).unwrap().kind)
        };
        let at = |id: u8| json!([["_uuid", "==", ["uuid", uuid(id).to_string()]]]);
        match self {
            Op::Insert(table, id, columns) => {
                let row: serde_json::Map<String, Value> =
                    columns.iter().map(|(name, datum)| ((*name).to_owned(), value(*table, name, datum))).collect();
                json!({"op": "insert", "table": TABLES[*table], "uuid": uuid(*id).to_string(), "row": row})
            }
            Op::Delete(table, id) => json!({"op": "delete", "table": TABLES[*table], "where": at(*id)}),
            Op::Set(table, id, column, datum) => {
                let row = json!({ *column: value(*table, column, datum) });
                json!({"op": "update", "table": TABLES[*table], "where": at(*id), "row": row})
            }
            Op::Add(table, id, column, datum) => {
                let change = json!([[column, "insert", value(*table, column, datum)]]);
                json!({"op": "mutate", "table": TABLES[*table], "where": at(*id), "mutations": change})
            }
            Op::Remove(table, id, column, datum) => {
                let change = json!([[column, "delete", value(*table, column, datum)]]);
                json!({"op": "mutate", "table": TABLES[*table], "where": at(*id), "mutations": change})
            }
        }
    }
}

fn ids() -> impl Strategy<Value = u8> {
    0u8..6
}

fn references() -> impl Strategy<Value = Datum> {
    proptest::collection::btree_set(ids(), 0..3).prop_map(|ids| Datum::set(ids.into_iter().map(uuid)))
}

fn column(table: usize) -> BoxedStrategy<(&'static str, Datum)> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c d")].prop_map(|name| ("name", Datum::scalar(name)));
    match table {
        0 => prop_oneof![
            name(),
            (0i64..100).prop_map(|number| ("number", Datum::scalar(number))),
            references().prop_map(|set| ("kids", set)),
            references().prop_map(|set| ("friend", set)),
            proptest::collection::btree_map("[a-c]", 0i64..3, 0..3).prop_map(|map| ("map", Datum::map(map))),
            "[ab]".prop_map(|text| ("gone", Datum::scalar(text))),
        ]
        .boxed(),
        1 => prop_oneof![
            name(),
            references().prop_map(|set| ("sub", set)),
            proptest::collection::btree_map("[ab]", ids().prop_map(uuid), 0..2)
                .prop_map(|map| ("owner", Datum::map(map))),
        ]
        .boxed(),
        _ => proptest::collection::btree_set(ids(), 1..3)
            .prop_map(|ids| ("of", Datum::set(ids.into_iter().map(uuid))))
            .boxed(),
    }
}

fn op() -> impl Strategy<Value = Op> {
    (0usize..3, ids()).prop_flat_map(|(table, id)| {
        let many = move || {
            column(table).prop_filter("a column of several", |(name, _)| !matches!(*name, "name" | "number" | "gone"))
        };
        prop_oneof![
            4 => proptest::collection::vec(column(table), 0..4).prop_map(move |columns| {
                let columns: BTreeMap<&'static str, Datum> = columns.into_iter().collect();
                Op::Insert(table, id, columns.into_iter().collect())
            }),
            1 => Just(Op::Delete(table, id)),
            3 => column(table).prop_map(move |(name, datum)| Op::Set(table, id, name, datum)),
            2 => many().prop_map(move |(name, datum)| Op::Add(table, id, name, datum)),
            2 => many().prop_map(move |(name, datum)| Op::Remove(table, id, name, datum)),
        ]
    })
}

pub(super) fn transactions() -> impl Strategy<Value = Vec<Vec<Op>>> {
    let random = proptest::collection::vec(proptest::collection::vec(op(), 1..4), 1..12);
    (any::<bool>(), random).prop_map(|(furnished, mut transactions)| {
        if furnished {
            // Rows outside the root set rarely live long with random references: begin with some that do.
            let kid = |id, name| Op::Insert(1, id, vec![("name", Datum::scalar(name))]);
            let kids = Datum::set((0..3).map(uuid));
            let root =
                Op::Insert(0, 0, vec![("name", Datum::scalar("a")), ("kids", kids.clone()), ("number", 50.into())]);
            let holder = Op::Insert(0, 5, vec![("kids", kids)]);
            transactions.insert(0, vec![root, holder, kid(0, "a"), kid(1, "b"), kid(2, "c d")]);
        }
        transactions
    })
}

pub(super) type Row = BTreeMap<&'static str, Datum>;

/// The contents of a database, by table and UUID.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Twin {
    pub(super) rows: BTreeMap<(usize, Uuid), Row>,
}

impl Twin {
    /// The state after a transaction; `None` if it must fail.
    pub(super) fn run(&self, ops: &[Op]) -> Option<Twin> {
        let mut next = self.clone();
        for op in ops {
            next.apply(op, self)?;
        }
        next.check_strong()?;
        while next.sweep() {}
        if next.rows.keys().filter(|(table, _)| *table == 0).count() > 4 {
            return None;
        }
        next.clean_weak()?;
        let names: Vec<&Datum> = next.rows.iter().filter(|(id, _)| id.0 == 1).map(|(_, row)| &row["name"]).collect();
        let distinct: BTreeSet<&Datum> = names.iter().copied().collect();
        (distinct.len() == names.len()).then_some(next)
    }

    fn apply(&mut self, op: &Op, before: &Twin) -> Option<()> {
        let kinds = schema();
        match op {
            Op::Insert(table, id, columns) => {
                let id = (*table, uuid(*id));
                if self.rows.contains_key(&id) || before.rows.contains_key(&id) {
                    return None;
                }
                let table = kinds.table(TABLES[*table]).unwrap();
                let mut row = Row::new();
                for (_, column) in table.own_columns() {
                    let name = ["name", "number", "kids", "friend", "map", "fixed", "gone", "sub", "owner", "of"]
                        .into_iter()
                        .find(|name| *name == column.name)
                        .unwrap();
                    row.insert(name, Datum::default_of(&column.kind));
                }
                for (name, datum) in columns {
                    row.insert(name, datum.clone());
                }
                self.rows.insert(id, row);
            }
            Op::Delete(table, id) => _ = self.rows.remove(&(*table, uuid(*id))),
            Op::Set(table, id, column, datum) => {
                if let Some(row) = self.rows.get_mut(&(*table, uuid(*id))) {
                    row.insert(column, datum.clone());
                }
            }
            Op::Add(table, id, column, datum) | Op::Remove(table, id, column, datum) => {
                let Some(row) = self.rows.get_mut(&(*table, uuid(*id))) else { return Some(()) };
                let kind = &kinds.table(TABLES[*table]).unwrap().column(column).unwrap().kind;
                let mut pairs: BTreeMap<Atom, Option<Atom>> =
                    row[column].iter().map(|(key, value)| (key.clone(), value.cloned())).collect();
                for (key, value) in datum.iter() {
                    if matches!(op, Op::Add(..)) {
                        pairs.entry(key.clone()).or_insert(value.cloned());
                    } else if pairs.get(key) == Some(&value.cloned()) {
                        pairs.remove(key);
                    }
                }
                if pairs.len() < kind.min as usize || pairs.len() > kind.max as usize {
                    return None;
                }
                let new = if kind.is_map() {
                    Datum::map(pairs.into_iter().map(|(key, value)| (key, value.unwrap())))
                } else {
                    Datum::set(pairs.into_keys())
                };
                row.insert(column, new);
            }
        }
        Some(())
    }

    fn strong(&self) -> Vec<((usize, Uuid), Uuid)> {
        let mut found = Vec::new();
        for (id, row) in &self.rows {
            for column in ["kids", "sub"] {
                let targets = row.get(column).into_iter().flat_map(|datum| datum.keys()).filter_map(Atom::as_uuid);
                found.extend(targets.map(|target| (*id, target)));
            }
        }
        found
    }

    fn check_strong(&self) -> Option<()> {
        self.strong().iter().all(|(_, target)| self.rows.contains_key(&(1, *target))).then_some(())
    }

    fn sweep(&mut self) -> bool {
        let held: BTreeSet<Uuid> =
            self.strong().into_iter().filter(|(from, to)| *from != (1, *to)).map(|(_, to)| to).collect();
        let before = self.rows.len();
        self.rows.retain(|(table, uuid), _| *table != 1 || held.contains(uuid));
        self.rows.len() < before
    }

    fn clean_weak(&mut self) -> Option<()> {
        let present: BTreeSet<(usize, Uuid)> = self.rows.keys().copied().collect();
        let here = |table: usize, atom: &Atom| atom.as_uuid().is_some_and(|uuid| present.contains(&(table, uuid)));
        for row in self.rows.values_mut() {
            if let Some(friend) = row.get_mut("friend") {
                friend.retain(|key, _| here(1, key));
            }
            if let Some(owner) = row.get_mut("owner") {
                owner.retain(|_, value| value.is_some_and(|value| here(0, value)));
            }
            if let Some(of) = row.get_mut("of") {
                of.retain(|key, _| here(0, key));
                if of.is_empty() {
                    return None;
                }
            }
        }
        Some(())
    }

    pub(super) fn assert_same(&self, database: &Database) {
        let kinds = schema();
        let count: usize = (0..TABLES.len()).map(|table| database.row_count(table)).sum();
        assert_eq!(count, self.rows.len());
        for ((table, uuid), expected) in &self.rows {
            let row = database.row(kinds.table_index(TABLES[*table]).unwrap(), *uuid).expect("the row is there");
            for (column, datum) in expected {
                let index = kinds.table(TABLES[*table]).unwrap().column_index(column).unwrap();
                assert_eq!(row.column(index), Some(datum), "{column} of {uuid}");
            }
        }
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn transactions_agree_with_the_naive_twin(transactions in transactions()) {
        let mut bench = Bench::new();
        let session = bench.connect();
        let mut twin = Twin::default();
        for ops in &transactions {
            let operations: Vec<Value> = ops.iter().map(Op::to_json).collect();
            let before = bench.contents();
            let result = bench.transact(session, &operations);
            let failed = result.as_array().unwrap().iter().any(|result| result.get("error").is_some() || result.is_null());
            match twin.run(ops) {
                Some(next) => {
                    prop_assert!(!failed, "{result} for {operations:?}");
                    twin = next;
                }
                None => {
                    prop_assert!(failed, "{operations:?} did not fail");
                    prop_assert_eq!(bench.contents(), before);
                }
            }
            let database = bench.core.database("T").unwrap();
            twin.assert_same(database);
            // The incrementally maintained state equals the state computed from the start.
            let mut fresh = Database::new(schema());
            fresh.apply_changes(&journal::all_rows(database));
            prop_assert!(database.has_equal_indexes(&fresh));
        }
    }
}
