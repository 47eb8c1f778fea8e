//! The parser against the GNU `getopt_long` that getopt(1) of util-linux puts on the command line.

use std::process::Command;

use cli::{Arg, Found, Opt, Parser};
use proptest::prelude::*;

const TABLE: &[Opt] = &[
    Opt::new("target", Arg::Required).short('t'),
    Opt::new("timeout", Arg::Required).short('T'),
    Opt::new("help", Arg::None).short('h'),
    Opt::new("version", Arg::None).short('V'),
    Opt::new("verbose", Arg::Optional).short('v'),
    Opt::new("log-file", Arg::Optional),
    Opt::letter("m", 'm', Arg::None),
];

const SHORT: &str = "t:T:hVv::m";
const LONG: &str = "target:,timeout:,help,version,verbose::,log-file::";

/// Words that meet every rule of the parser; none needs quotes.
const WORDS: &[&str] = &[
    "a",
    "b",
    "-",
    "--",
    "-h",
    "-t",
    "-tx",
    "-ht",
    "-hmt",
    "-v",
    "-vx",
    "-mv",
    "-V",
    "-x",
    "-hx",
    "--help",
    "--hel",
    "--h",
    "--help=x",
    "--target",
    "--target=x",
    "--target=",
    "--tar=y",
    "--t",
    "--ti",
    "--v",
    "--verb",
    "--verbose=z",
    "--log-file",
    "--log=f",
    "--foo",
    "--foo=x",
    "-T",
    "--version",
    "---",
    "-=",
    "--=x",
];

/// The output of getopt(1) for the words: each option and its argument, `--`, the other words; or its error. `None`
/// if this machine has no getopt(1).
fn theirs(words: &[&str], mode: &str) -> Option<Result<Vec<String>, String>> {
    let output = Command::new("getopt")
        .env("LC_ALL", "C")
        .args(["-u", "-n", "./prog", "-o", &format!("{mode}{SHORT}"), "-l", LONG, "--"])
        .args(words)
        .output()
        .ok()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if let Some(first) = errors.lines().next() {
        return Some(Err(first.to_owned()));
    }
    Some(Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()))
}

/// The same for our parser. An option given by its long name is printed so, which the identity does not show: so
/// letters are converted to long names on both sides.
fn ours(mut parser: Parser) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    for found in parser.by_ref() {
        let Found { id, value } = found.map_err(|error| error.to_string())?;
        out.push(if id == "m" { "-m".to_owned() } else { format!("--{id}") });
        out.extend(value.filter(|value| !value.is_empty()));
    }
    out.push("--".to_owned());
    out.extend(parser.into_positionals());
    Ok(out)
}

/// Converts letters to long names up to the `--` that ends the options.
fn with_long_names(words: Vec<String>) -> Vec<String> {
    let mut values = false;
    let mut ended = false;
    words
        .into_iter()
        .map(|word| {
            if ended || std::mem::take(&mut values) {
                return word;
            }
            let long = match word.as_str() {
                "-t" => "--target",
                "-T" => "--timeout",
                "-h" => "--help",
                "-V" => "--version",
                "-v" => "--verbose",
                other => other,
            };
            values = matches!(long, "--target" | "--timeout");
            ended = long == "--";
            long.to_owned()
        })
        .collect()
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_getopt(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..6), first in any::<bool>()) {
        // getopt(1) prints an empty argument as nothing, which hides where the next word belongs.
        prop_assume!(!words.contains(&"--target="));
        let Some(theirs) = theirs(&words, if first { "+" } else { "" }) else {
            println!("skipped: there is no getopt(1) here to compare with");
            return Ok(());
        };
        let args = std::iter::once("./prog").chain(words.iter().copied()).map(Into::into).collect();
        let parser = Parser::new(args, &[TABLE]);
        let parser = if first { parser.options_first() } else { parser };
        prop_assert_eq!(ours(parser), theirs.map(with_long_names), "{:?}", words);
    }
}
