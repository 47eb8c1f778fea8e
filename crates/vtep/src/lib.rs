//! The program ovs-vtep: emulates a VTEP, a physical switch of the schema hardware_vtep (vtep(5)), by bridges of
//! ovs-vswitchd.
//!
//! The core has no I/O:
//!
//! - `model`: the contents of both databases as values, by name; `flow`: flows as values;
//! - `plan`: from the configuration and the present state to the wanted bridges, flows and report;
//! - `changes`: from the present state to the wanted one.
//!
//! Around it:
//!
//! - `open_vswitch`, `hardware_vtep`: the databases, read as values of the core, and changed;
//! - `connection`, `flow_table`: the flows of a bridge over OpenFlow;
//! - `emulator`: the loop that keeps everything in step; `options`: the command line.
//!
//! Invariant: the program has no state of its own that it needs. It compares the present state with the wanted one
//! after each change, and after a start, so it continues where another run or Open vSwitch's emulator ended.

// `println!` panics if the reader of a pipe has gone: `cli::outln!` does not.
#![warn(clippy::print_stdout)]

mod changes;
mod connection;
mod emulator;
mod flow;
mod flow_table;
mod hardware_vtep;
mod model;
mod open_vswitch;
mod options;
mod plan;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use cli::Fatal;

/// The options, for shell completion.
pub fn vocabulary() -> cli::completion::Vocabulary {
    options::vocabulary()
}

/// Runs the program with these arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    let done = options::parse(args, &program, &log).and_then(|parsed| match parsed {
        Some(options) => emulator::serve(options, &log).map_err(Fatal::from),
        None => Ok(()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(&program),
    }
}
