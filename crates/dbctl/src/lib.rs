//! What ovs-vsctl and vtep-ctl have in common: a command line is any number of commands, which are one transaction.
//!
//! A program is a [`Program`]: its database, its commands, and how rows of its tables are named. [`main`] does the rest.
//! [`command`] parses the commands. The tables and columns that they need ([`needs`]) are replicated, then the commands
//! run on a transaction over that replica ([`run`]); they run again from the start when a condition is not met yet, or
//! when the database has changed under them. The database commands ([`database`]) see tables ([`names`], [`column`]), and
//! are the same in every program, as are those about managers ([`manager`]) and [`show`].

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

use options::Request;

/// How a command ends.
pub type Done = Result<(), Failure>;

/// A program of this family.
pub trait Program: Sized + 'static {
    /// What the program's own commands see in the database by name; made when a command asks for it.
    type Model;

    /// The database that the program is about.
    const DATABASE: &'static str;
    /// The version of its schema that the program knows best.
    const SCHEMA_VERSION: &'static str;
    /// The name of the program among modules that log.
    const MODULE: &'static str;
    /// The table with one row that all others hang from.
    const ROOT: &'static str;
    /// The column of that row with managers.
    const MANAGERS: &'static str;
    /// The columns of that row with the number of the configuration that is wanted and of the one that is running, if
    /// there is a daemon to wait for.
    const CONFIGURATION: Option<[&'static str; 2]>;
    /// The options beside those about logs, tables and TLS, which all programs have.
    const OPTIONS: &'static [Opt];
    /// The commands beside those about the database.
    const COMMANDS: &'static [Spec<Self>];
    /// The outline that the command show prints, the outermost table first.
    const SHOWN: &'static [show::Shown];
    /// The table whose columns settings are of in commands that name no table.
    const SETTINGS: &'static str;
    /// The help's first line, without the program's name.
    const TITLE: &'static str;
    /// The commands in the help.
    const HELP: &'static [help::Group];
    /// How records are named, for the help.
    const RECORDS: &'static str;

    /// The ways to name rows of a table other than by UUID.
    fn ways(table: &str) -> &'static [names::Way];

    /// What the transaction leaves below the row `root`.
    fn model(txn: &Transaction<'_>, root: Uuid) -> Self::Model;

    /// What an argument of a command may be, for completion; `kind` as [`Spec::arguments`] has it.
    fn source(command: &str, kind: &str) -> completion::Source;

    /// Whether the model is read from this column.
    fn is_read(table: &str, column: &str) -> bool;

    /// After the running configuration has reached the wanted one: says what of the names that commands added
    /// ([`Context::added`]) could not be set up, and gives the exit status.
    fn report(program: &str, idl: &Idl, added: &[String]) -> ExitCode;

    /// Logs a message as [`Program::MODULE`]; see [`log_as!`].
    fn log(level: tracing::Level, message: Arguments<'_>);
}

/// The body of [`Program::log`]: events have their target where they are written.
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

/// Runs the program; `args` begins with the name it was called by.
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
        Ok(Request::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(line) => {
            eprintln!("{line}");
            return ExitCode::FAILURE;
        }
    };
    match run::run::<P>(&program, &words, *options) {
        Ok(code) => code,
        Err(Failure::Fatal(message)) => cli::fail(&program, message),
        Err(Failure::Exit(code)) => ExitCode::from(code),
        // `run` handles it; there is nothing better to do with it here than to fail.
        Err(Failure::NotYet) => ExitCode::FAILURE,
    }
}
