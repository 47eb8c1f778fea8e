//! The common part of ovs-vsctl and vtep-ctl: a command line is any number of commands, which form one transaction.
//!
//! A program is a [`Program`]: its database, its commands, and the ways to name rows of its tables. [`main`] does the
//! rest. [`command`] parses the commands. The tables and columns that they need ([`needs`]) are replicated, then the
//! commands run on a transaction over that replica ([`run`]); they run again from the start when a condition is not
//! met yet, or when the database has changed meanwhile. The database commands ([`database`]) use tables by name
//! ([`names`], [`column`]), and are the same in every program, as are those for managers ([`manager`]) and [`show`].

// `println!` panics if the reader of a pipe has gone: `cli::outln!` does not.
#![warn(clippy::print_stdout)]

use std::ffi::OsString;
use std::fmt::Arguments;
use std::process::ExitCode;

use cli::options::Opt;
use ovsdb::Uuid;
use ovsdb_client::{Idl, Transaction};

mod column;
pub mod command;
pub mod completion;
pub mod context;
pub mod database;
pub mod help;
pub mod manager;
pub mod names;
pub mod needs;
mod options;
mod run;
pub mod show;
#[cfg(test)]
mod tests;

pub use command::{Access, Command, Spec};
pub use context::{Committed, Context, Failure, Output};
pub use needs::Needs;
pub use options::BOOTSTRAP_OPTIONS;

use options::Request;

/// The result of a command.
pub type Done = Result<(), Failure>;

/// A program of this family.
pub trait Program: Sized + 'static {
    /// The objects by name that the program's own commands use; built on first use.
    type Model;

    /// The program's database.
    const DATABASE: &'static str;
    /// The schema version that the program was written for.
    const SCHEMA_VERSION: &'static str;
    /// The program's name among log modules.
    const MODULE: &'static str;
    /// The root table, which has one row.
    const ROOT: &'static str;
    /// The column of that row with managers.
    const MANAGERS: &'static str;
    /// The columns of that row with the numbers of the requested and of the running configuration, if there is a
    /// daemon to wait for.
    const CONFIGURATION: Option<[&'static str; 2]>;
    /// The options beside those for logs, tables and TLS, which all programs have.
    const OPTIONS: &'static [Opt];
    /// [`BOOTSTRAP_OPTIONS`] if the program has that option, or nothing.
    const BOOTSTRAP_OPTIONS: &'static [Opt];
    /// The commands beside the database commands.
    const COMMANDS: &'static [Spec<Self>];
    /// The outline that the command show prints, the outermost table first.
    const SHOWN: &'static [show::Shown];
    /// The table of settings in commands that name no table.
    const SETTINGS: &'static str;
    /// The help's first line, without the program's name.
    const TITLE: &'static str;
    /// The commands in the help.
    const HELP: &'static [help::Group];
    /// The description of record names in the help.
    const RECORDS: &'static str;

    /// The ways to name rows of a table other than by UUID.
    fn ways(table: &str) -> &'static [names::Way];

    /// The state after the transaction, below the row `root`.
    fn model(txn: &Transaction<'_>, root: Uuid) -> Self::Model;

    /// The values of a command's argument, for completion; `kind` is its name in [`Spec::arguments`].
    fn source(command: &str, kind: &str) -> completion::Source;

    /// Returns true if the model is read from this column.
    fn is_read(table: &str, column: &str) -> bool;

    /// Called when the running configuration has reached the requested one: reports the added objects
    /// ([`Context::added`]) that could not be set up, and returns the exit status.
    fn report(program: &str, idl: &Idl, added: &[String]) -> ExitCode;

    /// Logs a message as [`Program::MODULE`]; see [`log_as!`].
    fn log(level: tracing::Level, message: Arguments<'_>);
}

/// The body of [`Program::log`]: the target of an event is fixed at its call site.
#[macro_export]
macro_rules! log_as {
    ($module:literal, $level:expr, $message:expr) => {
        match $level {
            tracing::Level::ERROR => tracing::error!(target: $module, "{}", $message),
            tracing::Level::WARN => tracing::warn!(target: $module, "{}", $message),
            tracing::Level::INFO => tracing::info!(target: $module, "{}", $message),
            _ => tracing::debug!(target: $module, "{}", $message),
        }
    };
}

/// Runs the program; `args` begins with its name.
pub fn main<P: Program>(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let log = vlog::init(&program);
    log.declare(&[P::MODULE, "db_ctl_base", "ovsdb_idl", "jsonrpc", "reconnect", "fatal_signal"]);
    log.set_level(None, Some(vlog::Destination::Console), vlog::Level::Warn);
    log.set_level(Some("reconnect"), None, vlog::Level::Warn);
    let default_db = format!("unix:{}/db.sock", daemon::dirs::rundir().display());
    let options = match options::parse::<P>(&program, &log, args, default_db) {
        Ok(Request::Run(options)) => options,
        Ok(Request::Print(text)) => return cli::print(&text),
        Err(error) => return error.report(&program),
    };
    match run::run::<P>(&program, &words, *options) {
        Ok(code) => code,
        Err(Failure::Fatal(message)) => cli::fail(&program, message),
        Err(Failure::Exit(code)) => ExitCode::from(code),
        // `run` handles it; here it can only fail.
        Err(Failure::NotYet) => ExitCode::FAILURE,
    }
}
