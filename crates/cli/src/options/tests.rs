//! Option parsing: short and long options, abbreviations, and error messages.

use super::*;

const TABLE: &[Opt] = &[
    Opt::new("target", Arg::Required).short('t'),
    Opt::new("timeout", Arg::Required).short('T'),
    Opt::new("help", Arg::None).short('h'),
    Opt::new("version", Arg::None).short('V'),
    Opt::new("verbose", Arg::Optional).short('v'),
    Opt::letter("more", 'm', Arg::None),
    Opt::new("colour", Arg::Optional).id("color"),
    Opt::new("color", Arg::Optional),
];

fn parser(words: &[&str]) -> Parser {
    let args = std::iter::once("./prog").chain(words.iter().copied()).map(Into::into).collect();
    Parser::new(args, &[TABLE])
}

/// The options as `id=value`, then the positionals after `|`, or the error.
fn run(mut parser: Parser) -> String {
    let mut out = Vec::new();
    for found in parser.by_ref() {
        match found {
            Ok(Found { id, value: Some(value) }) => out.push(format!("{id}={value}")),
            Ok(Found { id, value: None }) => out.push(id.to_owned()),
            Err(error) => return error.to_string(),
        }
    }
    format!("{}|{}", out.join(" "), parser.positionals().join(" "))
}

fn permuted(words: &[&str]) -> String {
    run(parser(words))
}

#[test]
fn long_options() {
    assert_eq!(permuted(&["--target=a", "--target", "b", "--targ", "c"]), "target=a target=b target=c|");
    assert_eq!(permuted(&["--verbose", "x", "--verbose=y", "--verbose="]), "verbose verbose=y verbose=|x");
    assert_eq!(permuted(&["--target="]), "target=|");
    assert_eq!(permuted(&["--target", "--help"]), "target=--help|");
}

#[test]
fn letters() {
    assert_eq!(
        permuted(&["-hmt", "x", "-tx", "-ht--", "-v", "y", "-vz"]),
        "help more target=x target=x help target=-- verbose verbose=z|y"
    );
}

#[test]
fn order_of_words() {
    assert_eq!(permuted(&["a", "-h", "b", "-", "--", "-m", "c"]), "help|a b - -m c");
    assert_eq!(run(parser(&["-h", "a", "-m", "--", "b"]).options_first()), "help|a -m -- b");
    assert_eq!(run(parser(&["-h", "--", "a", "--", "b"]).options_first()), "help|a -- b");
}

#[test]
fn errors_in_the_words_of_getopt() {
    for (words, text) in [
        (&["--foo"][..], "./prog: unrecognized option '--foo'"),
        (&["--pid=x"], "./prog: unrecognized option '--pid=x'"),
        (&["--v"], "./prog: option '--v' is ambiguous; possibilities: '--version' '--verbose'"),
        (&["--t"], "./prog: option '--t' is ambiguous; possibilities: '--target' '--timeout'"),
        (&["-t"], "./prog: option requires an argument -- 't'"),
        (&["--targ"], "./prog: option '--target' requires an argument"),
        (&["-x"], "./prog: invalid option -- 'x'"),
        (&["-hé"], "./prog: invalid option -- 'é'"),
        (&["--help=3"], "./prog: option '--help' doesn't allow an argument"),
        (&["--hel=3"], "./prog: option '--help' doesn't allow an argument"),
    ] {
        assert_eq!(permuted(words), text);
    }
}

#[test]
fn synonyms_are_not_ambiguous() {
    assert_eq!(permuted(&["--col=1"]), "color=1|");
}

#[test]
fn an_option_is_reported_before_a_later_error() {
    let mut parser = parser(&["--help", "--bogus"]);
    assert!(parser.next().is_some_and(|found| found.is_ok()));
    assert!(parser.next().is_some_and(|found| found.is_err()));
}
