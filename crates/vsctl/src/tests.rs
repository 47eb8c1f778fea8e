//! Tests of the grammar: commands, names, conditions. What commands do is tested against a database.

use ovsdb::{DatabaseSchema, Datum, NoSymbols};

use crate::column;
use crate::command::{self, Command};
use crate::context::Failure;
use crate::names;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn parse(line: &str) -> Result<Vec<Command>, String> {
    command::parse(&words(line), Vec::new()).map_err(text)
}

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
fn commands_stand_between_dashes() {
    let commands = parse("--may-exist add-br b -- -- list-br -- --columns=name list port p").unwrap();
    let names: Vec<&str> = commands.iter().map(|command| command.spec.name).collect();
    assert_eq!(names, ["add-br", "list-br", "list"]);
    assert!(commands[0].has("--may-exist") && !commands[1].has("--may-exist"));
    assert_eq!(commands[2].value("--columns"), Some("name"));
    assert_eq!((commands[2].arg(0), commands[2].arg_opt(1), commands[2].arg_opt(2)), ("port", Some("p"), None));
}

#[test]
fn options_before_the_dashes_belong_to_the_first_command() {
    let leading = vec![("--real".to_owned(), None)];
    let commands = command::parse(&words("list-br -- list-br"), leading).unwrap();
    assert!(commands[0].has("--real") && !commands[1].has("--real"));
    let leading = vec![("--id".to_owned(), Some("@x".to_owned()))];
    let wrong = command::parse(&words("list-br"), leading).map_err(text).err();
    assert_eq!(wrong.as_deref(), Some("'list-br' command has no '--id' option"));
}

#[test]
fn wrong_commands_are_named() {
    for (line, message) in [
        ("", "unknown command ''; use --help for help"),
        ("--", "missing command name (use --help for help)"),
        ("--may-exist", "missing command name (use --help for help)"),
        ("dance", "unknown command 'dance'; use --help for help"),
        ("add-br", "'add-br' command requires at least 1 arguments"),
        ("list-br x", "'list-br' command takes at most 0 arguments"),
        (
            "list-br --real",
            "'list-br' command takes at most 0 arguments (note that options must precede command names and follow a \
             \"--\" argument)",
        ),
        ("--real=1 list-br", "'--real' option on 'list-br' does not accept an argument"),
        ("--columns list port", "missing argument to '--columns' option on 'list' command"),
        ("--real --real list-br", "'--real' option specified multiple times"),
    ] {
        assert_eq!(parse(line).err().as_deref(), Some(message), "{line}");
    }
}

#[test]
fn every_command_is_there_once() {
    let mut names: Vec<&str> = command::COMMANDS.iter().map(|spec| spec.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(command::COMMANDS.iter().all(|spec| spec.args_min <= spec.args_max));
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
    /// Nothing that is typed makes the parsers panic.
    #[test]
    fn parsers_survive_anything(line in "[ -~é]{0,40}") {
        let _ = parse(&line);
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
