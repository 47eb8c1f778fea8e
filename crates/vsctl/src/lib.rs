//! The program ovs-vsctl: looks at and changes the configuration of ovs-vswitchd in its database.
//!
//! A command line is any number of commands, which are one transaction ([`command`] parses them). The tables and
//! columns that they need ([`needs`]) are replicated, then the commands run on a transaction over that replica
//! ([`run`]); they run again from the start when a condition is not met yet, or when the database has changed under
//! them. The switch commands (modules named after what they are about) see bridges and ports by name ([`model`]);
//! the database commands ([`database`]) see tables ([`names`], [`column`]).

use std::ffi::OsString;
use std::process::ExitCode;

mod autoattach;
mod bridge;
mod column;
mod command;
mod context;
mod control;
mod database;
mod help;
mod model;
mod names;
mod needs;
mod options;
mod port;
mod run;
mod show;
mod switch;
#[cfg(test)]
mod tests;
mod zone;

use context::Failure;
use options::Request;

/// Runs the program; `args` begins with the name it was called by.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let log = vlog::init(&program);
    log.declare(&["vsctl", "db_ctl_base", "ovsdb_idl", "jsonrpc", "reconnect", "fatal_signal"]);
    log.set_level(None, Some(vlog::Destination::Console), vlog::Level::Warn);
    log.set_level(Some("reconnect"), None, vlog::Level::Warn);
    let default_db = format!("unix:{}/db.sock", daemon::dirs::rundir().display());
    let options = match options::parse(&program, &log, args, default_db) {
        Ok(Request::Run(options)) => options,
        Ok(Request::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(line) => {
            eprintln!("{line}");
            return ExitCode::FAILURE;
        }
    };
    match run::run(&program, &words, *options) {
        Ok(code) => code,
        Err(Failure::Fatal(message)) => cli::fail(&program, message),
        Err(Failure::Exit(code)) => ExitCode::from(code),
        // `run` handles it; there is nothing better to do with it here than to fail.
        Err(Failure::NotYet) => ExitCode::FAILURE,
    }
}
