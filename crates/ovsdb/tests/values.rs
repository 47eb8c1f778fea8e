//! Values: set and map arithmetic against naive twins, round trips of notations, and error texts.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::condition::Condition;
use ovsdb::mutation::Mutation;
use ovsdb::types::UNLIMITED;
use ovsdb::{
    Atom, AtomType, BaseType, ColumnType, DatabaseSchema, Datum, NoSymbols, Symbols, TableSchema, UuidSource, text,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn kind(json: Value) -> ColumnType {
    ColumnType::from_json(&json).unwrap()
}

fn map_kind() -> ColumnType {
    kind(json!({"key": "string", "value": "integer", "min": 0, "max": "unlimited"}))
}

fn set_kind() -> ColumnType {
    kind(json!({"key": "integer", "min": 0, "max": "unlimited"}))
}

fn map_of(map: &BTreeMap<String, i64>) -> Datum {
    Datum::map(map.iter().map(|(key, value)| (key.as_str(), *value)))
}

fn small_map() -> impl Strategy<Value = BTreeMap<String, i64>> {
    proptest::collection::btree_map("[a-e]", 0i64..3, 0..5)
}

fn any_atom(kind: AtomType) -> BoxedStrategy<Atom> {
    match kind {
        AtomType::Integer => any::<i64>().prop_map(Atom::from).boxed(),
        // The text form has 15 digits.
        AtomType::Real => (-1_000_000i64..1_000_000).prop_map(|n| Atom::from(n as f64 / 64.0)).boxed(),
        AtomType::Boolean => any::<bool>().prop_map(Atom::from).boxed(),
        AtomType::String => "[^\\x00]{0,8}".prop_map(Atom::from).boxed(),
        AtomType::Uuid => any::<[u8; 16]>().prop_map(|bytes| Atom::from(ovsdb::Uuid::from_bytes(bytes))).boxed(),
    }
}

fn any_kind() -> impl Strategy<Value = AtomType> {
    prop_oneof![
        Just(AtomType::Integer),
        Just(AtomType::Real),
        Just(AtomType::Boolean),
        Just(AtomType::String),
        Just(AtomType::Uuid)
    ]
}

/// A type and a value of it.
fn typed() -> impl Strategy<Value = (ColumnType, Datum)> {
    (any_kind(), any_kind(), any::<bool>()).prop_flat_map(|(key, value, is_map)| {
        let mut column = ColumnType::set(BaseType::new(key), 0, UNLIMITED);
        if is_map {
            column.value = Some(BaseType::new(value));
        }
        proptest::collection::vec((any_atom(key), any_atom(value)), 0..5).prop_map(move |pairs| {
            let datum = if is_map { Datum::map(pairs) } else { Datum::set(pairs.into_iter().map(|(key, _)| key)) };
            (column.clone(), datum)
        })
    })
}

tally::proptest! {
    #[test]
    fn maps_behave_as_maps(a in small_map(), b in small_map()) {
        let (x, y) = (map_of(&a), map_of(&b));
        let mut union = x.clone();
        union.union(&y);
        let mut expected = b.clone();
        expected.extend(a.clone());
        prop_assert_eq!(union, map_of(&expected));
        let mut rest = x.clone();
        rest.subtract(&y);
        let mut expected = a.clone();
        expected.retain(|key, value| b.get(key) != Some(value));
        prop_assert_eq!(rest, map_of(&expected));
        let mut rest = x.clone();
        rest.subtract(&Datum::set(b.keys().map(String::as_str)));
        let mut expected = a.clone();
        expected.retain(|key, _| !b.contains_key(key));
        prop_assert_eq!(rest, map_of(&expected));
        prop_assert_eq!(x.includes_all(&y), b.iter().all(|(key, value)| a.get(key) == Some(value)));
        prop_assert_eq!(x.excludes_all(&y), !b.iter().any(|(key, value)| a.get(key) == Some(value)));
        let diff = x.diff(&y, &map_kind());
        prop_assert_eq!(x.apply_diff(&diff, &map_kind()).unwrap(), y);
    }

    #[test]
    fn sets_behave_as_sets(a in proptest::collection::btree_set(0i64..9, 0..8),
                           b in proptest::collection::btree_set(0i64..9, 0..8)) {
        let set = |set: &BTreeSet<i64>| Datum::set(set.iter().copied());
        let (x, y) = (set(&a), set(&b));
        let mut union = x.clone();
        union.union(&y);
        prop_assert_eq!(union, set(&a.union(&b).copied().collect()));
        let mut rest = x.clone();
        rest.subtract(&y);
        prop_assert_eq!(rest, set(&a.difference(&b).copied().collect()));
        let diff = x.diff(&y, &set_kind());
        prop_assert_eq!(&diff, &set(&a.symmetric_difference(&b).copied().collect()));
        prop_assert_eq!(x.apply_diff(&diff, &set_kind()).unwrap(), y);
    }

    #[test]
    fn elements_are_added_and_removed_as_in_a_map(steps in proptest::collection::vec((0u8..5, "[a-h]", 0i64..3), 0..24), is_map in any::<bool>()) {
        let (mut twin, mut datum) = (BTreeMap::<String, i64>::new(), Datum::empty());
        let same = |twin: &BTreeMap<String, i64>| {
            if is_map { map_of(twin) } else { Datum::set(twin.keys().map(String::as_str)) }
        };
        for (step, key, value) in steps {
            let (atom, before) = (Atom::from(key.as_str()), datum.clone());
            match step {
                0..=2 => {
                    let is_new = !twin.contains_key(&key);
                    twin.entry(key.clone()).or_insert(value);
                    prop_assert_eq!(datum.insert(atom.clone(), is_map.then(|| Atom::from(value))), is_new);
                }
                3 => prop_assert_eq!(datum.remove(&atom), twin.remove(&key).is_some()),
                _ => {
                    twin.retain(|other, number| *other < key && (*number != value || !is_map));
                    let wanted = Atom::from(value);
                    datum.retain(|other, number| *other < atom && number != Some(&wanted));
                }
            }
            prop_assert_eq!(&datum, &same(&twin));
            prop_assert_eq!((datum.len(), datum.is_empty()), (twin.len(), twin.is_empty()));
            prop_assert_eq!(datum.values().len(), if is_map { twin.len() } else { 0 });
            prop_assert_eq!(datum.contains_key(&Atom::from(key.as_str())), twin.contains_key(&key));
            prop_assert_eq!(datum.get_str(&key), None);
            let value = datum.get(&Atom::from(key.as_str())).and_then(Atom::as_integer);
            prop_assert_eq!(value, twin.get(&key).copied().filter(|_| is_map));
            prop_assert_eq!(datum.first().and_then(Atom::as_str), twin.keys().next().map(String::as_str));
            let pairs: Vec<_> = datum.iter().map(|(key, value)| (key.clone(), value.cloned())).collect();
            let expected = twin.iter().map(|(key, value)| (Atom::from(key.as_str()), is_map.then(|| Atom::from(*value))));
            prop_assert_eq!(pairs, expected.collect::<Vec<_>>());
            // A clone that shares the elements keeps them.
            prop_assert_eq!(before.iter().count(), before.len());
        }
    }

    #[test]
    fn data_are_ordered_and_hashed_as_lists(a in small_map(), b in small_map()) {
        let parts = |map: &BTreeMap<String, i64>| (map.keys().cloned().collect::<Vec<_>>(), map.values().copied().collect::<Vec<_>>());
        let (x, y) = (map_of(&a), map_of(&b));
        prop_assert_eq!(x.cmp(&y), parts(&a).cmp(&parts(&b)));
        prop_assert_eq!(x == y, a == b);
        let hasher = std::hash::RandomState::new();
        let hash = |datum: &Datum| std::hash::BuildHasher::hash_one(&hasher, datum);
        prop_assert_eq!(hash(&x), hash(&map_of(&a)));
        let upper = |atom: &Atom| Ok(Atom::from(atom.as_str().unwrap_or_default().to_uppercase()));
        let expected = a.iter().map(|(key, value)| (key.to_uppercase(), *value)).collect();
        prop_assert_eq!(x.try_map_keys(upper).unwrap(), Some(map_of(&expected)));
        let merged = x.try_map_keys(|_| Ok(Atom::from("z"))).unwrap();
        prop_assert_eq!(merged.is_some(), a.len() < 2);
    }

    #[test]
    fn json_and_text_round_trip((kind, datum) in typed()) {
        let json = datum.to_json(&kind);
        prop_assert_eq!(&Datum::from_json(&json, &kind, &mut NoSymbols).unwrap(), &datum);
        let text = text::format_datum(&datum, &kind);
        prop_assert_eq!(text::parse_datum(&text, &kind, &mut NoSymbols).unwrap(), datum, "{}", text);
    }

    #[test]
    fn arbitrary_text_and_json_never_panic(input in ".*", (kind, _) in typed()) {
        let _ = text::parse_datum(&input, &kind, &mut NoSymbols);
        let _ = text::take_token(&input);
        let json = json!([input, [input, {"a": input}]]);
        let _ = Datum::from_json(&json, &kind, &mut NoSymbols);
        let _ = ColumnType::from_json(&json);
        let _ = DatabaseSchema::from_json(&json);
    }
}

#[test]
fn a_datum_is_as_small_as_an_atom() {
    assert_eq!(size_of::<Datum>(), size_of::<Atom>());
}

#[test]
fn text_errors_are_worded_as_users_know_them() {
    let limited = kind(json!({"key": {"type": "integer", "minInteger": 0, "maxInteger": 9}, "min": 0, "max": 3}));
    let word = kind(json!({"key": "string"}));
    let cases = [
        (&limited, "x", "\"x\" is not a valid integer or range"),
        (&limited, "10", "constraint violation: 10 is not in the valid range 0 to 9 (inclusive)"),
        (&limited, "1,2,3,4", "1,2,3,4: 4 value(s) specified but the maximum number is 3"),
        (&limited, "[1", "[1: missing \"]\" at end of data"),
        (&limited, "[1] 2", "[1] 2: trailing garbage after \"]\""),
        (&limited, "1,1", "1,1: set contains duplicate value"),
        (&limited, "5-3", "\"5-3\" is not a valid range. Range end cannot be before start."),
        (&set_kind(), "1-9999", "Range \"1-9999\" is too big. Maximum allowed size is 4096."),
        (&limited, "1-9999", "constraint violation: 9999 is not in the valid range 0 to 9 (inclusive)"),
        (&limited, "", "use \"[]\" to specify the empty set"),
        (&limited, "=", "=: unexpected \"=\" parsing set of up to 3 integers"),
        (&word, "\"a", "\"a: quoted string extends past end of argument"),
        (&word, "a\\", "a\\: backslash at end of argument"),
        (&word, "[]", "[]: 0 value(s) specified but the minimum number is 1"),
    ];
    for (kind, text, message) in cases {
        assert_eq!(text::parse_datum(text, kind, &mut NoSymbols).unwrap_err().to_string(), message);
    }
    let map = map_kind();
    for (text, message) in [
        ("a", "a: syntax error at \"\" expecting \"=\""),
        ("a,b", "a,b: syntax error at \",\" expecting \"=\""),
        ("a=1 a=2", "a=1 a=2: map contains duplicate key"),
        ("", "use \"{}\" to specify the empty map"),
    ] {
        assert_eq!(text::parse_datum(text, &map, &mut NoSymbols).unwrap_err().to_string(), message);
    }
    assert_eq!(text::parse_datum("1-3", &limited, &mut NoSymbols).unwrap(), Datum::set([1i64, 2, 3]));
}

#[test]
fn reals_print_as_c_does() {
    for (number, text) in [
        (0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (1e15, "1e+15"),
        (123_456_789_012_345.0, "123456789012345"),
        (1e-5, "1e-05"),
        (0.0001, "0.0001"),
        (1.0 / 3.0, "0.333333333333333"),
        (1e300, "1e+300"),
    ] {
        assert_eq!(text::format_real(number), text);
    }
}

#[test]
fn types_are_described_and_refused() {
    for (json, english) in [
        (json!("integer"), "integer"),
        (json!({"key": "string", "min": 0}), "set of up to 1 strings"),
        (json!({"key": "string", "min": 0, "max": "unlimited"}), "set of strings"),
        (json!({"key": "string", "max": "unlimited"}), "set of 1 or more strings"),
        (json!({"key": "string", "max": 4}), "set of 1 to 4 strings"),
        (json!({"key": "string", "value": "real", "min": 0, "max": 2}), "map of up to 2 (string, real) pairs"),
    ] {
        let column = kind(json.clone());
        assert_eq!(column.to_string(), english);
        assert_eq!(column.to_json(), json);
    }
    // Bounds that exclude no value are not written.
    for (json, written) in [
        (json!({"key": {"type": "string", "minLength": 0}}), json!("string")),
        (json!({"key": {"type": "string", "maxLength": u32::MAX}, "min": 0}), json!({"key": "string", "min": 0})),
        (json!({"key": {"type": "integer", "minInteger": i64::MIN}}), json!("integer")),
        (json!({"key": {"type": "real", "minReal": f64::MIN, "maxReal": f64::MAX}}), json!("real")),
    ] {
        assert_eq!(kind(json.clone()).to_json(), written, "{json}");
    }
    for bad in [
        json!(5),
        json!("int"),
        json!({"key": "string", "min": 2, "max": 3}),
        json!({"key": "string", "min": 0, "max": 0}),
        json!({"key": {"type": "integer", "minInteger": 5, "maxInteger": 4}}),
        json!({"key": {"type": "integer", "refTable": "x"}}),
        json!({"key": "string", "other": 1}),
    ] {
        assert!(ColumnType::from_json(&bad).is_err(), "{bad}");
    }
}

fn table() -> DatabaseSchema {
    DatabaseSchema::from_json(&json!({"name": "D", "tables": {"t": {"columns": {
        "i": {"type": "integer"}, "oi": {"type": {"key": "integer", "min": 0}},
        "s": {"type": {"key": "string", "min": 0, "max": 2}}, "m": {"type": map_kind().to_json()}}}}}))
    .unwrap()
}

fn holds(table: &TableSchema, clause: Value, column: &str, datum: &Datum) -> bool {
    let condition = Condition::from_json(&json!([clause]), table, &mut NoSymbols).unwrap();
    let at = table.column_index(column).unwrap();
    condition.matches_all(table, |index| (index == at).then_some(datum))
}

#[test]
fn conditions_compare_as_in_the_rfc() {
    let schema = table();
    let table = schema.table("t").unwrap();
    let five = Datum::scalar(5i64);
    for (function, expected) in [("<", false), ("<=", true), ("==", true), ("!=", false), (">=", true), (">", false)] {
        assert_eq!(holds(table, json!(["i", function, 5]), "i", &five), expected, "{function}");
        let empty = holds(table, json!(["oi", function, 5]), "oi", &Datum::empty());
        assert_eq!(empty, function == "!=", "{function} with an empty column");
    }
    let words = Datum::set(["a", "b"]);
    assert!(holds(table, json!(["s", "includes", "a"]), "s", &words));
    assert!(holds(table, json!(["s", "excludes", ["set", ["c", "d", "e"]]]), "s", &words));
    assert!(!holds(table, json!(["s", "excludes", "b"]), "s", &words));
    assert!(Condition::from_json(&json!([["s", "<", "a"]]), table, &mut NoSymbols).is_err());
    assert!(Condition::from_json(&json!([false]), table, &mut NoSymbols).is_ok());
}

#[test]
fn mutations_calculate_and_refuse() {
    let schema = table();
    let table = schema.table("t").unwrap();
    let run = |mutation: Value, old: &Datum| {
        let list = Mutation::list_from_json(&json!([mutation]), table, &mut NoSymbols)?;
        list[0].apply(old, &table.columns()[list[0].column])
    };
    let number = Datum::scalar(7i64);
    for (mutator, operand, expected) in [("+=", 2, 9), ("-=", 9, -2), ("*=", -3, -21), ("/=", 2, 3), ("%=", 4, 3)] {
        assert_eq!(run(json!(["i", mutator, operand]), &number).unwrap(), Datum::scalar(expected as i64));
    }
    assert_eq!(run(json!(["i", "/=", 0]), &number).unwrap_err().tag(), "domain error");
    assert_eq!(run(json!(["i", "*=", i64::MAX]), &number).unwrap_err().tag(), "range error");
    assert_eq!(run(json!(["i", "/=", -1]), &Datum::scalar(i64::MIN)).unwrap_err().tag(), "range error");
    let words = Datum::set(["a", "b"]);
    assert_eq!(run(json!(["s", "insert", "c"]), &words).unwrap_err().tag(), "constraint violation");
    assert_eq!(run(json!(["s", "delete", ["set", ["a", "x"]]]), &words).unwrap(), Datum::set(["b"]));
    let map = Datum::map([("a", 1i64), ("b", 2)]);
    assert_eq!(run(json!(["m", "delete", ["set", ["a"]]]), &map).unwrap(), Datum::map([("b", 2i64)]));
    assert_eq!(run(json!(["m", "insert", ["map", [["a", 9]]]]), &map).unwrap(), map);
}

#[test]
fn names_stand_for_one_uuid_each() {
    let mut symbols = Symbols::new(UuidSource::seeded(1));
    let references = kind(json!({"key": {"type": "uuid", "refTable": "x"}, "min": 0, "max": "unlimited"}));
    let read = |symbols: &mut Symbols, name: &str| {
        Datum::from_json(&json!(["named-uuid", name]), &references, symbols).unwrap()
    };
    let (a, b) = (read(&mut symbols, "a"), read(&mut symbols, "b"));
    assert_ne!(a, b);
    assert_eq!(read(&mut symbols, "a"), a);
    assert!(symbols.get("a").unwrap().strong_reference && !symbols.get("a").unwrap().created);
    let refused = Datum::from_json(&json!(["named-uuid", "a"]), &references, &mut NoSymbols).unwrap_err();
    assert_eq!(refused.details(), Some("expected [\"uuid\", <string>]"));
}

#[test]
fn schemas_that_do_not_hold_together_are_refused() {
    let refused = |tables: Value, details: &str| {
        let error = DatabaseSchema::from_json(&json!({"name": "D", "tables": tables})).unwrap_err();
        assert!(error.details().unwrap().contains(details), "{error}");
    };
    refused(json!({"t": {"columns": {}}}), "table must have at least one column");
    refused(json!({"_t": {"columns": {"c": {"type": "integer"}}}}), "names beginning with \"_\" are reserved");
    refused(
        json!({"t": {"columns": {"c": {"type": {"key": {"type": "uuid", "refTable": "u"}}}}}}),
        "column c key refers to undefined table u",
    );
    refused(
        json!({"t": {"columns": {"c": {"type": "integer", "ephemeral": true}}, "indexes": [["c"]]}}),
        "ephemeral columns (such as c) may not be indexed",
    );
    refused(json!({"t": {"columns": {"c": {"type": "integer"}}, "maxRows": 0}}), "maxRows must be at least 1");
}

#[test]
fn reals_round_trip() {
    for text in ["-9.223372033427389e+19", "1.7976931348623157e+308", "0.1", "123456789.12345679"] {
        let value: serde_json::Value = serde_json::from_str(text).expect("a number");
        assert_eq!(value.as_f64(), text.parse().ok());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&value.to_string()).expect("our own"), value);
    }
}

/// As Open vSwitch's ovsdb-tool writes this schema into a file.
#[test]
fn columns_that_keep_rows_alive_are_not_ephemeral() {
    let reference = |table: &str, kind: &str| {
        let base = json!({"type": "uuid", "refTable": table, "refType": kind});
        json!({"type": {"key": base, "min": 0}, "ephemeral": true})
    };
    let schema = json!({"name": "T", "version": "1.0.0", "tables": {
        "Root": {"isRoot": true, "columns": {"name": {"type": "string"}}},
        "Leaf": {"columns": {"name": {"type": "string"}}},
        "Holder": {"isRoot": true, "columns": {
            "root": reference("Root", "strong"),
            "leaf": reference("Leaf", "strong"),
            "weak": reference("Leaf", "weak"),
            "map": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "Leaf"}, "min": 0}, "ephemeral": true},
        }},
    }});
    let schema = DatabaseSchema::from_json(&schema).unwrap();
    let holder = schema.table("Holder").unwrap();
    let ephemeral = ["root", "leaf", "weak", "map"].map(|name| holder.column(name).unwrap().ephemeral);
    assert_eq!(ephemeral, [true, false, true, false]);
}
