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

#[test]
fn filters_are_read_by_table() {
    let schema = schema();
    let parse = |text: &str| crate::show::Filter::parse(&schema, "Open_vSwitch", text).map_err(self::text);
    for (filter, table, shown, expected) in [
        ("", "Port", "Port p1", true),
        ("port(P1)", "Port", "    Port p1\n", true),
        ("port(p2|p1)", "Port", "Port p1", true),
        ("port(p2),br(p1)", "Port", "Port p1", false),
        ("port(p2),port(p1)", "Port", "Port p1", true),
        ("port(p2),br(p1)", "Interface", "Interface p3", true),
        ("port()", "Port", "Port p1", false),
        ("port(|)", "Port", "Port p1", false),
        ("port((p1))", "Port", "Port p1", false),
        ("p2|x", "Open_vSwitch", "Port p1", false),
        ("p1,x", "Open_vSwitch", "Port p1", true),
        ("|", "Open_vSwitch", "Port p1", false),
    ] {
        assert_eq!(parse(filter).unwrap().shows(table, shown), expected, "{filter}: {shown}");
    }
    for filter in ["port(", "port(p1", "port(p1)x", "port(p1),br("] {
        assert_eq!(parse(filter).unwrap_err(), "Malformed filter: missing closing ')'", "{filter}");
    }
    for (filter, table) in [("interface1(x)", "interface1"), ("port(a), port(b)", " port"), ("(x)", "")] {
        assert_eq!(parse(filter).unwrap_err(), format!("unknown table \"{table}\""), "{filter}");
    }
}

#[test]
fn names_in_the_form_of_uuids_may_be_abbreviated() {
    let uuid = "0fcd11a1-2ba8-4b38-a358-4bccf2bf3057";
    for (name, record, expected) in [
        (uuid, uuid, true),
        (uuid, "0fcd", true),
        (uuid, "0fcd11a1-2ba8", true),
        (uuid, "0fc", false),
        (uuid, "0FCD", false),
        ("0fcd99", "0fcd", false),
        ("br0", "br0", true),
        ("br01", "br0", false),
    ] {
        assert_eq!(names::is_named(&ovsdb::Atom::from(name), record), expected, "{name} {record}");
    }
    for (record, expected) in
        [("4711", true), ("04711", true), ("+4711", false), ("4711x", false), (" 4711", false), ("", false)]
    {
        assert_eq!(names::is_named(&ovsdb::Atom::Integer(4711), record), expected, "{record}");
    }
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
