//! The program ovs-testcontroller: a simple controller that makes switches learn addresses, or flood like hubs.
//!
//! - `options`: the command line; `flows`: files of flows that each switch receives;
//! - `learning`: the replies to a switch's messages: a core without sockets, with time as an argument; `macs`: the
//!   table of learned addresses;
//! - `connections`: listeners and connections, one task for each on one thread.

// `println!` panics if the reader of a pipe has gone: `cli::outln!` does not.
#![warn(clippy::print_stdout)]

mod connections;
mod flows;
mod learning;
mod macs;
mod options;

use cli::Fatal;
use std::ffi::OsString;
use std::process::ExitCode;

/// The options, for shell completion.
pub fn vocabulary() -> cli::completion::Vocabulary {
    options::vocabulary()
}

/// Runs the program with these arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    let done = options::parse(args, &program, &log).and_then(|parsed| match parsed {
        Some(options) => connections::serve(options, &log).map_err(Fatal::from),
        None => Ok(()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(&program),
    }
}
