//! Chores of the tree: `cargo run -p xtask -- tidy` checks that it keeps its own rules, and `licences` the licences and
//! sources of the packages that it is built from.
//!
//! The checks of `tidy` run as a test, too, so that `cargo test` fails where `tidy` would complain.

mod licences;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, found) = match arguments[..] {
        ["tidy"] => {
            let lines = |findings: Vec<_>| findings.iter().map(tidy::Finding::to_string).collect();
            ("tidy", tidy::check(&tidy::root()).map(lines))
        }
        ["tidy", "--write-baseline"] => ("tidy", tidy::write_baseline(&tidy::root()).map(|()| Vec::new())),
        ["licences"] => ("licences", licences::check(&tidy::root())),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy [--write-baseline] | licences");
            return ExitCode::from(2);
        }
    };
    match found {
        Ok(lines) if lines.is_empty() => {
            println!("{name}: nothing found");
            ExitCode::SUCCESS
        }
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
