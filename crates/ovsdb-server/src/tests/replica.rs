//! A client's replica of some columns of some tables, built from the messages of a monitor alone.

use std::collections::BTreeMap;

use ovsdb::Datum;
use ovsdb::json::NoSymbols;
use serde_json::Value;

use super::schema;

/// Rows by table and UUID: the values of the monitored columns.
pub(super) type Rows = BTreeMap<(String, String), BTreeMap<String, Datum>>;

/// The rows reported by a monitor.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) rows: Rows,
    columns: BTreeMap<String, Vec<String>>,
}

impl Replica {
    /// Nothing yet of these tables and columns.
    pub(super) fn new(columns: &[(&str, &[&str])]) -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let columns = columns.iter().map(|(table, columns)| ((*table).to_owned(), names(columns))).collect();
        Self { rows: Rows::new(), columns }
    }

    fn value(table: &str, column: &str, json: &Value, is_diff: bool) -> Datum {
        let kind = schema().table(table).unwrap().column(column).unwrap().kind.clone();
        let kind = if is_diff { kind.relaxed() } else { kind };
        Datum::from_json(json, &kind, &mut NoSymbols).unwrap()
    }

    /// Each row update in `updates`, with the place of its row.
    fn each(updates: &Value) -> impl Iterator<Item = ((String, String), &Value)> {
        updates.as_object().expect("updates are an object").iter().flat_map(|(table, rows)| {
            let rows = rows.as_object().expect("rows are an object").iter();
            rows.map(move |(uuid, update)| ((table.clone(), uuid.clone()), update))
        })
    }

    /// Takes `<table-updates>`, of `update` or the reply to `monitor`.
    pub(super) fn update_v1(&mut self, updates: &Value) {
        for (id, update) in Self::each(updates) {
            match update.get("new") {
                None => assert!(self.rows.remove(&id).is_some(), "an unknown row was deleted"),
                Some(new) => {
                    let columns = new.as_object().unwrap().iter();
                    let values = columns.map(|(name, json)| (name.clone(), Self::value(&id.0, name, json, false)));
                    let values: BTreeMap<String, Datum> = values.collect();
                    let known = self.rows.insert(id, values);
                    assert_eq!(known.is_some(), update.get("old").is_some(), "old contents are those of a known row");
                }
            }
        }
    }

    /// Takes `<table-updates2>`, of `update2`, `update3` or the replies that began them.
    pub(super) fn update_v2(&mut self, updates: &Value) {
        let kinds = schema();
        for (id, update) in Self::each(updates) {
            let table = kinds.table(&id.0).unwrap();
            let (kind, columns) = update.as_object().unwrap().iter().next().unwrap();
            match kind.as_str() {
                "delete" => assert!(self.rows.remove(&id).is_some(), "an unknown row was deleted"),
                "initial" | "insert" => {
                    let default = |name: &String| (name.clone(), Datum::default_of(&table.column(name).unwrap().kind));
                    let mut row: BTreeMap<String, Datum> = self.columns[&id.0].iter().map(default).collect();
                    for (name, json) in columns.as_object().unwrap() {
                        row.insert(name.clone(), Self::value(&id.0, name, json, false));
                    }
                    assert!(self.rows.insert(id, row).is_none(), "a known row was inserted");
                }
                "modify" => {
                    let row = self.rows.get_mut(&id).expect("only known rows are modified");
                    for (name, json) in columns.as_object().unwrap() {
                        let kind = &table.column(name).unwrap().kind;
                        let diff = Self::value(&id.0, name, json, kind.is_composite());
                        let new = row[name].apply_diff(&diff, kind).unwrap();
                        row.insert(name.clone(), new);
                    }
                }
                other => panic!("unknown kind {other}"),
            }
        }
    }
}
