//! Chores of the tree: `cargo run -p xtask -- tidy` checks that it keeps its own rules.
//!
//! The same checks run as a test, so that `cargo test` fails where `tidy` would complain.

mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["tidy"] {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::from(2);
    }
    match tidy::check(&tidy::root()) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: nothing found");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            findings.iter().for_each(|finding| println!("{finding}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}
