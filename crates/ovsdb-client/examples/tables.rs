//! Prints the Rust module of a schema: `cargo run -p ovsdb-client --example tables -- SCHEMA > MODULE`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: cargo run -p ovsdb-client --example tables -- SCHEMA");
        return ExitCode::from(2);
    };
    match module(&file) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{file}: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn module(file: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let schema = ovsdb::DatabaseSchema::parse(&text).map_err(|error| error.to_string())?;
    ovsdb_client::generate::module(&schema).map_err(|error| error.to_string())
}
