//! The program ovs-ofctl.
//!
//! - [`options`](mod@options): the command line; `commands`: the table of commands.
//! - [`vconn`]: a connection to a switch; [`switch`]: opening a connection by name, requests, names of ports and
//!   tables.
//! - [`protocol`]: flow formats, and the formats that a flow can use.
//! - `query`, `flow_dump`, `flow_change`, `flow_set`, `packet_out`, `ports`, `connections`, `monitor`: commands that
//!   communicate with a switch; `offline`, `codec`, `nx_match`, `packets`: commands without a switch. [`colour`]:
//!   colours of flows; [`json`]: replies as JSON.
//!
//! A command runs sequentially on one thread with blocking sockets; only `monitor` and `snoop` have a second thread,
//! for their control socket.

// `println!` panics if the reader of a pipe has gone: `cli::outln!` does not.
#![warn(clippy::print_stdout)]

pub mod bundles;
pub mod codec;
pub mod colour;
pub mod connections;
pub mod error;
pub mod flow_change;
pub mod flow_dump;
pub mod flow_set;
pub mod flow_text;
pub mod groups;
pub mod json;
pub mod meters;
pub mod monitor;
pub mod names;
pub mod nx_match;
pub mod offline;
pub mod options;
pub mod packet_out;
pub mod packets;
pub mod ports;
pub mod protocol;
pub mod query;
pub mod switch;
pub mod tables;
pub mod tlv;
pub mod vconn;

mod commands;

use error::Exit;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// The options and commands, for shell completion.
pub fn vocabulary() -> cli::completion::Vocabulary {
    commands::vocabulary()
}

/// Runs the program; the first argument is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    let exit = match options::parse(args, &program, &log) {
        Ok(options::Parsed::Run(context)) => commands::run(*context),
        Ok(options::Parsed::Done) => Ok(()),
        Err(exit) => Err(exit),
    };
    // Flush the output before printing an error.
    let _ = std::io::stdout().flush();
    match exit {
        Ok(()) => ExitCode::SUCCESS,
        Err(Exit::Fatal(message)) => cli::fail(&program, message),
        Err(Exit::Option(error)) => error.report(&program),
        Err(Exit::Code(code)) => ExitCode::from(code),
    }
}
