//! Tests of the grammar of commands. The programs' tests run the commands against a database.

use dbctl::command;

use crate::{Command, Failure, Vsctl};

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
    let commands = command::parse::<Vsctl>(&words("list-br -- list-br"), leading).unwrap();
    assert!(commands[0].has("--real") && !commands[1].has("--real"));
    let leading = vec![("--id".to_owned(), Some("@x".to_owned()))];
    let wrong = command::parse::<Vsctl>(&words("list-br"), leading).map_err(text).err();
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
fn every_command_occurs_once() {
    let mut names: Vec<&str> = command::all::<Vsctl>().map(|spec| spec.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(command::all::<Vsctl>().all(|spec| spec.args_min <= spec.args_max));
}

tally::proptest! {
    /// No input makes the parser panic.
    #[test]
    fn the_parser_survives_anything(line in "[ -~é]{0,40}") {
        let _ = parse(&line);
    }
}
