//! Tests of names and conditions. The programs' tests run the commands against a database.

use ovsdb::{DatabaseSchema, Datum, NoSymbols};

use crate::{Failure, column, names};

fn text(failure: Failure) -> String {
    match failure {
        Failure::Fatal(message) => message,
        other => format!("{other:?}"),
    }
}

fn schema() -> DatabaseSchema {
    DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap()
}

#[test]
fn names_may_be_abbreviated() {
    let schema = schema();
    for (query, name) in [("Bridge", "Bridge"), ("br", "Bridge"), ("open-v", "Open_vSwitch"), ("ssl", "SSL")] {
        assert_eq!(names::table(&schema, query).unwrap().name, name);
    }
    let wrong = |query: &str| names::table(&schema, query).map_err(text).err().unwrap();
    assert_eq!(wrong("x"), "unknown table \"x\"");
    assert_eq!(wrong("m"), "\"m\" matches multiple table names: Manager, Mirror");
    let bridge = schema.table("Bridge").unwrap();
    assert_eq!(names::column(bridge, "OTHER-config").unwrap().name, "other_config");
    // An exact name is no abbreviation of a longer one.
    let interface = schema.table("Interface").unwrap();
    assert_eq!(names::column(interface, "mtu").unwrap().name, "mtu");
}

fn holds(condition: &str, have: &Datum) -> bool {
    let schema = schema();
    let table = schema.table("Port").unwrap();
    column::condition(table, condition, &mut NoSymbols).unwrap().holds(have)
}

#[test]
fn conditions_compare_sets() {
    let trunks = Datum::set([1, 3]);
    for (condition, expected) in [
        ("trunks=1,3", true),
        ("trunks!=1,3", false),
        ("trunks<1,4", true),
        ("trunks>5", true),
        ("trunks{<=}1,2,3", true),
        ("trunks{<}1,3", false),
        ("trunks{>=}3", true),
        ("trunks{>}1,3", false),
        ("trunks{in}1,3,4", true),
        ("trunks{not-in}2,4", true),
        ("trunks{not-in}3", false),
    ] {
        assert_eq!(holds(condition, &trunks), expected, "{condition}");
    }
}

#[test]
fn a_missing_key_is_an_empty_set_only_for_set_operators() {
    let config = Datum::map([("a", "x")]);
    assert!(holds("other_config:a=x", &config) && !holds("other_config:a!=x", &config));
    assert!(!holds("other_config:b!=x", &config) && holds("other_config:b{!=}x", &config));
}

tally::proptest! {
    /// No input makes the parsers panic.
    #[test]
    fn parsers_survive_anything(line in "[ -~é]{0,40}") {
        let schema = schema();
        let table = schema.table("Port").unwrap();
        let _ = column::column_key(table, &line);
        let _ = column::column_key_value(table, &line);
        let _ = column::condition(table, &line, &mut NoSymbols);
        for prefix in ["trunks", "other_config:", "tag{", "name="] {
            let _ = column::condition(table, &format!("{prefix}{line}"), &mut NoSymbols);
        }
    }
}
