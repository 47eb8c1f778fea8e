//! Records read straight from their text against records read as a tree of JSON: the same rows, or the same error.

use ovsdb::direct::Strings;
use ovsdb::{DatabaseSchema, Uuid};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};

use super::contents;
use crate::database::Database;
use crate::journal;
use crate::log::{self, Record, encode};
use crate::replay;
use crate::{core, direct};

/// Columns of every kind of type, with constraints.
const SCHEMA: &str = r#"{"name": "T", "version": "1.0.0", "tables": {
    "a": {"isRoot": true, "columns": {
        "i": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 9}}},
        "r": {"type": "real"},
        "b": {"type": "boolean"},
        "s": {"type": {"key": {"type": "string", "maxLength": 3}}},
        "e": {"type": {"key": {"type": "string", "enum": ["set", ["x", "y"]]}, "min": 0, "max": 2}},
        "u": {"type": {"key": {"type": "uuid", "refTable": "b", "refType": "weak"}, "min": 0}},
        "us": {"type": {"key": {"type": "uuid", "refTable": "b"}, "min": 0, "max": "unlimited"}},
        "is": {"type": {"key": "integer", "min": 1, "max": 3}},
        "m": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
        "mu": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "b"}, "min": 0, "max": 2}}}},
    "b": {"isRoot": true, "indexes": [["s"]], "columns": {"s": {"type": "string"}, "gone": {"type": "string", "ephemeral": true}}}}}"#;

const COLUMNS: [&str; 14] =
    ["i", "r", "b", "s", "e", "u", "us", "is", "m", "mu", "gone", "_uuid", "_version", "nothing"];

fn uuid(n: u8) -> String {
    Uuid::v4([n; 16]).to_string()
}

/// Text of a value, of which most are right for some column.
fn value() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        4 => (-1i64..12).prop_map(|n| n.to_string()),
        1 => prop::sample::select(vec!["1.0", "1e0", "2.5", "-0", "1e3", "1e999", "9223372036854775808", "true", "false", "null"])
            .prop_map(str::to_owned),
        4 => prop::sample::select(vec!["x", "y", "", "long text", "ä", "set", "uuid"]).prop_map(|text| format!("{text:?}")),
        1 => prop::sample::select(vec![r#""\u0000""#, r#""\u0041\n""#, r#""\ud800""#]).prop_map(str::to_owned),
        4 => (0u8..4).prop_map(|n| format!(r#"["uuid","{}"]"#, uuid(n))),
        1 => prop::sample::select(vec![r#"["uuid","x"]"#, r#"["named-uuid","x"]"#, r#"["uuid"]"#, r#"["uuid","x","y"]"#, "{}", "[]"])
            .prop_map(str::to_owned),
    ];
    let atom = atom.boxed();
    let atoms = prop::collection::vec(atom.clone(), 0..4).prop_map(|atoms| format!(r#"["set",[{}]]"#, atoms.join(",")));
    let pair = prop_oneof![
        9 => (atom.clone(), atom.clone()).prop_map(|(key, value)| format!("[{key},{value}]")),
        1 => atom.clone().prop_map(|key| format!("[{key}]")),
    ];
    let pairs = prop::collection::vec(pair, 0..4).prop_map(|pairs| format!(r#"["map",[{}]]"#, pairs.join(",")));
    prop_oneof![4 => atom, 2 => atoms, 2 => pairs]
}

/// A value that is right for the column, but may be one too many or one too few.
fn right(column: &'static str) -> BoxedStrategy<String> {
    let set = |texts: Vec<String>| format!(r#"["set",[{}]]"#, texts.join(","));
    let map = |texts: Vec<String>| format!(r#"["map",[{}]]"#, texts.join(","));
    let reference = |n: u8| format!(r#"["uuid","{}"]"#, uuid(n));
    match column {
        "i" => (0i64..9).prop_map(|n| n.to_string()).boxed(),
        "r" => (0i64..9).prop_map(|n| (n as f64 / 4.0).to_string()).boxed(),
        "b" => any::<bool>().prop_map(|value| value.to_string()).boxed(),
        "e" => prop::sample::subsequence(vec![r#""x""#.to_owned(), r#""y""#.to_owned()], 0..=2).prop_map(set).boxed(),
        "u" => (0u8..4).prop_map(reference).boxed(),
        "us" => prop::collection::btree_set(0u8..4, 0..3)
            .prop_map(move |of| set(of.into_iter().map(reference).collect()))
            .boxed(),
        "is" => prop::collection::btree_set(0i64..9, 0..4)
            .prop_map(move |of| set(of.iter().map(i64::to_string).collect()))
            .boxed(),
        "m" => prop::collection::btree_map("[a-c]", 0i64..9, 0..4)
            .prop_map(move |of| map(of.iter().map(|(key, value)| format!("[{key:?},{value}]")).collect()))
            .boxed(),
        "mu" => prop::collection::btree_map("[a-c]", 0u8..4, 0..3)
            .prop_map(move |of| map(of.into_iter().map(|(key, n)| format!("[{key:?},{}]", reference(n))).collect()))
            .boxed(),
        _ => "[a-c]{0,3}".prop_map(|text| format!("{text:?}")).boxed(),
    }
}

fn object(members: &[(String, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// Members of a row; names may be repeated.
fn row(mistakes: bool) -> BoxedStrategy<String> {
    let column = prop::sample::select(COLUMNS[..10].to_vec());
    let member = column.prop_flat_map(|column| (Just(column.to_owned()), right(column)));
    let wrong = (prop::sample::select(COLUMNS.to_vec()).prop_map(str::to_owned), value());
    let member = if mistakes { prop_oneof![20 => member, 1 => wrong].boxed() } else { member.boxed() };
    let row = prop::collection::vec(member, 0..6).prop_map(|members| object(&members));
    if mistakes { prop_oneof![20 => row, 2 => Just("null".to_owned()), 1 => value()].boxed() } else { row.boxed() }
}

/// The text of a record: tables, `_is_diff` somewhere, members that mean nothing, in any order.
fn record(mistakes: bool) -> BoxedStrategy<String> {
    let name = (0u8..4).prop_map(uuid);
    let rows = prop::collection::vec((name, row(mistakes)), 0..4).prop_map(|rows| object(&rows));
    let is_diff = prop::sample::select(vec!["true", "false", "true", "1"]).prop_map(str::to_owned);
    let sound = prop_oneof![
        6 => (Just("a".to_owned()), rows.clone()),
        2 => (Just("_is_diff".to_owned()), is_diff),
        1 => (Just("_comment".to_owned()), Just(r#""why""#.to_owned())),
    ];
    let wrong = prop_oneof![
        (Just("b".to_owned()), rows),
        (prop::sample::select(vec!["_date", "_is_diff", "nothing", "a"]).prop_map(str::to_owned), value()),
    ];
    let member = if mistakes { prop_oneof![12 => sound, 1 => wrong].boxed() } else { sound.boxed() };
    prop::collection::vec(member, 0..5).prop_map(|members| object(&members)).boxed()
}

fn empty() -> Database {
    Database::new(DatabaseSchema::parse(SCHEMA).unwrap().into())
}

fn framed(text: &str) -> Vec<u8> {
    encode(&Record::from_text(text.as_bytes().to_vec()))
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_give_the_same_changes(texts in prop::collection::vec(record(true), 1..4)) {
        let (mut database, mut strings) = (empty(), Strings::default());
        for text in texts {
            let straight = direct::changes(&database, text.as_bytes(), &mut strings);
            let tree = serde_json::from_str::<Value>(&text).ok();
            let tree = tree.map(|record| journal::changes(&database, &record));
            match (straight, tree) {
                (Some(changes), Some(Ok(expected))) => {
                    prop_assert_eq!(&changes, &expected, "{}", text);
                    database.apply_changes(&changes);
                }
                (Some(_), other) => prop_assert!(false, "{text}: {other:?}"),
                (None, Some(Ok(changes))) => database.apply_changes(&changes),
                (None, _) => {}
            }
        }
    }

    #[test]
    fn both_ways_load_the_same_log(
        texts in prop::collection::vec(record(true), 0..4),
        damage in prop::option::of((any::<Index>(), any::<u8>())),
    ) {
        let mut log = encode(&Record::from(&DatabaseSchema::parse(SCHEMA).unwrap().to_json()));
        texts.iter().for_each(|text| log.extend(framed(text)));
        if let Some((at, bits)) = damage {
            let at = at.index(log.len());
            log[at] ^= bits;
        }
        let parsed = log::parse(&log);
        let loaded = replay::load(&log);
        prop_assert_eq!(loaded.record_count, parsed.records.len());
        prop_assert_eq!((loaded.sound_length, loaded.error), (parsed.sound_length, parsed.error));
        let schema = parsed.records.get(..1).unwrap_or_default();
        match (loaded.database, core::load(schema)) {
            (Ok(mine), Ok(mut other)) => {
                let mut invalid = Vec::new();
                for record in &parsed.records[1..] {
                    match journal::changes(&other, record) {
                        Ok(changes) => other.apply_changes(&changes),
                        Err(error) => invalid.push(error),
                    }
                }
                prop_assert_eq!(contents(&mine), contents(&other));
                prop_assert!(mine.has_equal_indexes(&other));
                prop_assert_eq!(loaded.invalid, invalid);
            }
            (mine, other) => prop_assert_eq!(mine.err(), other.err()),
        }
    }

    #[test]
    fn records_of_servers_are_parsed_directly(rows in prop::collection::btree_map(0u8..9, (0i64..9, "[a-c]{0,3}", prop::option::of("[a-c]")), 0..6), comment in ".*") {
        let row = |(n, (number, text, key)): (u8, (i64, String, Option<String>))| {
            let map: Vec<Value> = key.into_iter().map(|key| json!([key, number])).collect();
            (uuid(n), json!({"i": number, "s": text, "m": ["map", map], "is": number, "us": ["set", []]}))
        };
        let rows: Map<String, Value> = rows.into_iter().map(row).collect();
        let record = json!({"a": rows, "_date": 5, "_is_diff": true, "_comment": comment});
        let changes = direct::changes(&empty(), record.to_string().as_bytes(), &mut Strings::default());
        prop_assert_eq!(changes.unwrap(), journal::changes(&empty(), &record).unwrap());
    }
}

#[test]
fn an_invalid_record_is_left_out() {
    let mut log = encode(&Record::from(&DatabaseSchema::parse(SCHEMA).unwrap().to_json()));
    let (first, second) = (uuid(1), uuid(2));
    let gone = uuid(3);
    let records = [
        json!({"a": {&first: {"i": 1}}}),
        json!({"invalid": {}}),
        json!({"a": {&gone: null}}),
        json!({"a": {&second: {"i": 2}}}),
    ];
    records.iter().for_each(|record| log.extend(encode(&Record::from(record))));
    let loaded = replay::load(&log);
    let errors: Vec<String> = loaded.invalid.iter().map(ToString::to_string).collect();
    let expected = [
        "syntax \"{\"invalid\":{}}\": unknown table: No table named invalid.".to_owned(),
        format!("syntax error: transaction deletes row {gone} that does not exist"),
    ];
    assert_eq!(errors, expected);
    let database = loaded.database.unwrap();
    assert_eq!(contents(&database)["a"].as_object().unwrap().len(), 2);
}

#[test]
fn loaded_rows_have_versions() {
    let mut log = encode(&Record::from(&DatabaseSchema::parse(SCHEMA).unwrap().to_json()));
    let rows = json!({"a": {uuid(1): {"i": 1}, uuid(2): {"i": 2}}});
    log.extend(encode(&Record::from(&rows)));
    let versions = || {
        let database = replay::load(&log).database.unwrap();
        let table = database.schema().table_index("a").unwrap();
        database.rows(table).map(|row| row.version()).collect::<std::collections::BTreeSet<_>>()
    };
    let (first, second) = (versions(), versions());
    assert_eq!((first.len(), second.len()), (2, 2));
    // They are new each time the log is read.
    assert!(first.is_disjoint(&second) && !first.contains(&ovsdb::Uuid::ZERO));
}

#[test]
fn differences_are_available_after_a_restart() {
    let (mut database, mut strings) = (empty(), Strings::default());
    let id = uuid(1);
    for (text, expected) in [
        (format!(r#"{{"a":{{"{id}":{{"m":["map",[["k",1]]],"i":3}}}},"_is_diff":true}}"#), r#"["map",[["k",1]]]"#),
        (format!(r#"{{"a":{{"{id}":{{"m":["map",[["k",1],["l",2]]]}}}},"_is_diff":true}}"#), r#"["map",[["l",2]]]"#),
        (format!(r#"{{"a":{{"{id}":{{"m":["map",[["n",1]]]}}}}}}"#), r#"["map",[["n",1]]]"#),
    ] {
        let changes = direct::changes(&database, text.as_bytes(), &mut strings).expect("it is as a server writes it");
        database.apply_changes(&changes);
        assert_eq!(contents(&database)["a"][&id]["m"].to_string(), expected, "{text}");
        assert_eq!(contents(&database)["a"][&id]["i"], 3);
    }
    let gone = format!(r#"{{"a":{{"{id}":null}}}}"#);
    assert_eq!(direct::changes(&database, gone.as_bytes(), &mut strings).unwrap()[0].new, None);
}
