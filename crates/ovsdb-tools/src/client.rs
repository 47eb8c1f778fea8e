//! The program ovsdb-client: one request to a database server, or a monitor of its changes.
//!
//! This module has the command line; [`query`] has the commands that request and print, [`monitor`] those that run
//! continuously and [`background`] their daemon mode, [`snapshot`] those that copy a database or change its schema,
//! [`wait`] the one that waits for a database.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cli::Fatal;
use cli::options::{Arg, HELP_AND_VERSION, Opt, Parser};
use cli::table::{STYLE_OPTIONS, Style};
use ovsdb_client::{Client, Error, Order};
use serde_json::Value;
use tls::Tls;

mod background;
mod help;
mod monitor;
mod query;
mod snapshot;
mod wait;

/// The database that is meant if none is named and the server has it.
const DEFAULT_DATABASE: &str = "Open_vSwitch";

/// The error if none is named and the server has several others, or none.
const NO_DEFAULT: &str = "could not find a default database, please specify a database name";

/// The error if none of several servers is suitable.
const NO_SERVER: &str = "no servers were available";

/// A command's result; the error is a line for the user.
type Done = Result<(), String>;

/// The options of the whole program.
struct Options {
    style: Style,
    timestamp: bool,
    /// Restore although the schemas differ.
    force: bool,
    /// Of several servers of a cluster, whether only the leader will do.
    leader_only: bool,
    /// Whether the client is notified of schema changes instead of being disconnected; if it is not said, only monitors
    /// are.
    change_aware: Option<bool>,
    /// The daemon state, if this process is or becomes a daemon.
    daemon: Option<daemon::Started>,
}

/// A command's surroundings: the connection, the database if the command is about one, and its arguments.
struct Call {
    client: Client,
    database: String,
    args: Vec<String>,
    options: Options,
}

impl Call {
    /// Requests that the server notify this client of schema changes. Servers that do not support it close the connection
    /// when the schema changes, which ends this program too.
    async fn set_change_aware(&mut self) -> Done {
        let _ = self.client.call("set_db_change_aware", vec![true.into()]).await.map_err(text)?;
        Ok(())
    }

    /// Argument `at`; empty if there are fewer.
    fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }

    /// Prints JSON on a line.
    fn print_json(&self, json: &Value) {
        let text = if self.options.style.pretty { cli::json::pretty(json) } else { cli::json::compact(json) };
        print_line(&text);
    }
}

/// Prints a line at once.
fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Standard output of the process that the user started, in its daemon: a monitor continues to print there.
static KEPT_OUTPUT: OnceLock<File> = OnceLock::new();

/// Opens the output for [`print_text`] in a daemon, whose own standard output reports readiness to its parent. The
/// parent waits for that, so its output can still be opened.
fn keep_output() -> Done {
    let path = format!("/proc/{}/fd/1", std::os::unix::process::parent_id());
    let output = File::options().append(true).open(&path);
    let output = output.map_err(|error| format!("cannot print from the background ({path}: {error})"))?;
    let _ = KEPT_OUTPUT.set(output);
    Ok(())
}

/// The size of the buffer in front of a pipe in the C library. Programs of Open vSwitch notice a closed reader when they
/// write such a buffer, but not when their end writes its rest.
const PIPE_BUFFER: usize = 4096;

/// The number of bytes that could not be written.
static LOST_BYTES: AtomicUsize = AtomicUsize::new(0);

fn print_text(text: &str) {
    print_bytes(text.as_bytes());
}

/// Prints at once. Bytes that cannot be written are counted in [`LOST_BYTES`].
fn print_bytes(bytes: &[u8]) {
    let printed = match KEPT_OUTPUT.get() {
        Some(mut output) => output.write_all(bytes),
        None => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
    };
    if printed.is_err() {
        LOST_BYTES.fetch_add(bytes.len(), Ordering::Relaxed);
    }
}

/// Reports output that a command lost.
fn check_output() -> Done {
    if LOST_BYTES.load(Ordering::Relaxed) > PIPE_BUFFER {
        return Err("write to stdout failed".into());
    }
    Ok(())
}

/// A library error as the program words it.
fn text(error: Error) -> String {
    match error {
        Error::Request { method, error } => {
            format!("{method} request failed: {}", cli::json::compact(&error))
        }
        Error::Connection { problem, .. } => format!("transaction failed ({problem})"),
        other => other.to_string(),
    }
}

/// Whether a command is about one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Server,
    Database,
}

/// One command.
struct Command {
    name: &'static str,
    about: About,
    args_min: usize,
    args_max: usize,
}

const fn command(name: &'static str, about: About, args_min: usize, args_max: usize) -> Command {
    Command { name, about, args_min, args_max }
}

/// The commands; the numbers of arguments are without server and database.
const COMMANDS: &[Command] = &[
    command("list-dbs", About::Server, 0, 0),
    command("get-schema", About::Database, 0, 0),
    command("get-schema-version", About::Database, 0, 0),
    command("get-schema-cksum", About::Database, 0, 0),
    command("list-tables", About::Database, 0, 0),
    command("list-columns", About::Database, 0, 1),
    command("transact", About::Server, 1, 1),
    command("query", About::Server, 1, 1),
    command("dump", About::Database, 0, usize::MAX),
    command("monitor", About::Database, 1, usize::MAX),
    command("monitor-cond", About::Database, 2, 3),
    command("monitor-cond-since", About::Database, 2, 4),
    command("convert", About::Server, 1, 1),
    command("needs-conversion", About::Server, 1, 1),
    command("backup", About::Database, 0, 0),
    command("restore", About::Database, 0, 0),
    command("wait", About::Server, 2, 2),
    command("lock", About::Server, 1, 1),
    command("steal", About::Server, 1, 1),
    command("unlock", About::Server, 1, 1),
];

impl Command {
    /// Returns true if the command may run in the background: it runs until it is ended, or may wait long for its reply.
    fn goes_on(&self) -> bool {
        self.name.starts_with("monitor") || matches!(self.name, "lock" | "steal" | "unlock" | "transact")
    }

    /// Returns true if the last word is the argument of the command even after a first one that names no server.
    fn ignores_first_word(&self) -> bool {
        matches!(self.name, "transact" | "query" | "convert" | "needs-conversion")
    }

    /// Returns the database in the arguments after the server, if they name one.
    fn database_of(&self, args: &[String]) -> Option<String> {
        match (self.about, self.name) {
            (About::Server, "transact" | "query") => {
                let transaction: Value = serde_json::from_str(args.first()?).ok()?;
                Some(transaction.get(0)?.as_str()?.to_owned())
            }
            (About::Server, _) => None,
            // Only consulted with several servers, where the first word names a database.
            (About::Database, _) => args.first().cloned(),
        }
    }
}

async fn run_command(name: &str, call: Call) -> Done {
    match name {
        "list-dbs" => query::list_dbs(call).await,
        "get-schema" => query::get_schema(call).await,
        "get-schema-version" => query::get_schema_version(call).await,
        "get-schema-cksum" => query::get_schema_cksum(call).await,
        "list-tables" => query::list_tables(call).await,
        "list-columns" => query::list_columns(call).await,
        "transact" => query::transact(call).await,
        "query" => query::query(call).await,
        "dump" => query::dump(call).await,
        "monitor" => monitor::monitor(call, monitor::Method::Plain).await,
        "monitor-cond" => monitor::monitor(call, monitor::Method::Cond).await,
        "monitor-cond-since" => monitor::monitor(call, monitor::Method::CondSince).await,
        "convert" => snapshot::convert(call).await,
        "needs-conversion" => snapshot::needs_conversion(call).await,
        "backup" => snapshot::backup(call).await,
        "restore" => snapshot::restore(call).await,
        // The remaining commands of the table.
        lock => monitor::lock(call, lock).await,
    }
}

const OPTIONS: &[Opt] = &[
    Opt::new("timestamp", Arg::None),
    Opt::new("force", Arg::None),
    Opt::new("timeout", Arg::Required).short('t'),
    Opt::new("leader-only", Arg::None),
    Opt::new("no-leader-only", Arg::None),
    Opt::new("db-change-aware", Arg::None),
    Opt::new("no-db-change-aware", Arg::None),
    Opt::new("private-key", Arg::Required).short('p'),
    Opt::new("certificate", Arg::Required).short('c'),
    Opt::new("ca-cert", Arg::Required).short('C'),
    Opt::new("bootstrap-ca-cert", Arg::Required),
    Opt::new("ssl-protocols", Arg::Required),
    Opt::new("ssl-ciphers", Arg::Required),
    Opt::new("ssl-ciphersuites", Arg::Required),
    Opt::new("ssl-server-name", Arg::Required),
];

/// Options that this program does not support.
const UNSUPPORTED: &[Opt] = &[Opt::new("record", Arg::Optional), Opt::new("replay", Arg::Optional)];

/// The options of a command in the background. Its control socket has the default name.
fn background_options() -> Vec<Opt> {
    daemon::OPTIONS.iter().copied().filter(|opt| opt.id != "unixctl").collect()
}

/// The options and commands, for completion in a shell.
pub fn vocabulary() -> cli::completion::Vocabulary {
    let background = background_options();
    let fragments = [OPTIONS, STYLE_OPTIONS, HELP_AND_VERSION, vlog::OPTIONS, &background];
    cli::completion::Vocabulary::new(&fragments, COMMANDS.iter().map(|command| command.name).chain(["help"]))
}

/// Runs the program; `args` begins with its name.
pub fn client_main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    daemon::finish(match start(&program, &log, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(&program),
    })
}

/// Parses the command line and runs its command.
fn start(program: &str, log: &Arc<vlog::Log>, args: Vec<OsString>) -> Result<(), Fatal> {
    let all_args = args.clone();
    let mut options = Options {
        style: Style::default(),
        timestamp: false,
        force: false,
        leader_only: true,
        change_aware: None,
        daemon: None,
    };
    let mut daemon_options = daemon::DaemonOptions::default();
    let mut tls = tls::Config::default();
    let mut timeout_s = cli::program::default_timeout_s();
    let background = background_options();
    let fragments = [OPTIONS, STYLE_OPTIONS, HELP_AND_VERSION, vlog::OPTIONS, &background, UNSUPPORTED];
    let mut parser = Parser::new(args, &fragments);
    for found in parser.by_ref() {
        let found = found?;
        let value = found.value.as_deref();
        match found.id {
            "timestamp" => options.timestamp = true,
            "force" => options.force = true,
            "leader-only" => options.leader_only = true,
            "no-leader-only" => options.leader_only = false,
            "db-change-aware" => options.change_aware = Some(true),
            "no-db-change-aware" => options.change_aware = Some(false),
            "timeout" => timeout_s = timeout(value.unwrap_or_default())?,
            "help" => {
                cli::print_or_end(&help::usage(program, log));
                return Ok(());
            }
            "version" => {
                cli::print_or_end(&cli::version_text(program));
                return Ok(());
            }
            id if UNSUPPORTED.iter().any(|opt| opt.id == id) => {
                return Err(format!("--{id} is not supported").into());
            }
            id => {
                let taken = tls.accept(id, value.unwrap_or_default())
                    || options.style.accept(id, value).map_err(|error| error.to_string())?
                    || log.accept(id, value)?
                    || daemon_options.accept(id, value)?;
                debug_assert!(taken, "an option without an owner: {id}");
            }
        }
    }
    daemon::alarm::set(timeout_s);
    let mut words = parser.into_positionals().into_iter();
    let Some(name) = words.next() else {
        return Err("missing command name; use --help for help".into());
    };
    if name == "help" {
        print_text(&help::usage(program, log));
        return Ok(());
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(format!("unknown command '{name}'; use --help for help").into());
    };
    // A continuous command detaches only after it has begun, in a process started for it.
    let wants_daemon = daemon_options.detach || daemon_options.monitor || daemon_options.pidfile.is_some();
    if wants_daemon && command.goes_on() {
        let detach = daemon_options.detach;
        // Errors are reported where the user started the program, also in the background.
        daemon_options.keep_stderr = true;
        let started = daemon::start(&all_args, daemon_options, log);
        options.daemon = Some(started.map_err(|error| error.to_string())?);
        if detach {
            keep_output()?;
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let is_daemon = options.daemon.is_some();
    let tls = Tls::new(tls);
    let run = connect_and_run(command, words.collect(), &tls, options);
    Ok(runtime.block_on(async {
        tokio::select! {
            biased;
            done = run => done.and_then(|()| check_output()),
            // A daemon ends by itself.
            caught = daemon::ended_by_signal(), if !is_daemon => caught.map_err(|error| format!("cannot wait for signals: {error}")),
        }
    })?)
}

/// The value of `--timeout`.
fn timeout(value: &str) -> Result<u32, String> {
    let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| format!("value {value} on -t or --timeout is invalid"))
}

/// Whether `word` is a connection method, and not a database, a table or JSON.
fn is_remote(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic()) && word.contains(':')
}

/// Whether the connection method would have this program listen.
fn is_passive_method(remote: &str) -> bool {
    ["punix:", "ptcp:", "pssl:"].iter().any(|method| remote.starts_with(method))
}

/// The database that is meant if none is named: Open_vSwitch, or the only one that is not the server's own.
fn default_database(known: &[String]) -> Option<&str> {
    let mut others = known.iter().map(String::as_str).filter(|name| !name.starts_with('_'));
    if known.iter().any(|name| name == DEFAULT_DATABASE) {
        return Some(DEFAULT_DATABASE);
    }
    others.next().filter(|_| others.next().is_none())
}

async fn connect_and_run(command: &Command, mut args: Vec<String>, tls: &Arc<Tls>, options: Options) -> Done {
    let misused = || format!("invalid syntax for '{}' (use --help for help)", command.name);
    let remote = match args.first() {
        Some(first) if args.len() > command.args_min && (is_remote(first) || command.name == "wait") => args.remove(0),
        _ => {
            // A first word that names no server is ignored.
            if command.ignores_first_word() && args.len() == 2 {
                args.remove(0);
            }
            format!("unix:{}/db.sock", daemon::dirs::rundir().display())
        }
    };
    let several = remote.contains(',');
    if several && command.about == About::Database && args.len() <= command.args_min {
        return Err("database name is required with multiple remotes".to_owned());
    }
    if let ("wait", [name, state]) = (command.name, args.as_slice()) {
        wait::check_state(state)?;
        return wait::wait(&remote, tls, name, state).await;
    }
    let (database, leader_only) = (command.database_of(&args), options.leader_only);
    let wanted = async |client: &mut Client| match &database {
        Some(database) => client.standing(database).await.is_ok_and(|standing| standing.suits_requests(leader_only)),
        None => true,
    };
    let client = Client::connect_to(&remote, tls, Order::Shuffled, wanted).await;
    let mut client = client.map_err(|error| match error {
        Error::Connection { .. } if several => NO_SERVER.to_owned(),
        Error::Connection { remote, problem } => format!("failed to connect to \"{remote}\" ({problem})"),
        Error::Remote { .. } if !is_passive_method(&remote) => {
            format!("failed to connect or listen to \"{remote}\" (Address family not supported by protocol)")
        }
        other => other.to_string(),
    })?;
    let mut database = String::new();
    if command.about == About::Database {
        let known = query::databases(&mut client).await?;
        // A table of the default database may have the name of a database.
        if args.len() > command.args_min && args.first().is_some_and(|first| known.contains(first)) {
            database = args.remove(0);
        } else if several {
            return Err(NO_SERVER.to_owned());
        } else {
            default_database(&known).ok_or(NO_DEFAULT)?.clone_into(&mut database);
        }
    }
    if args.len() < command.args_min || args.len() > command.args_max {
        return Err(misused());
    }
    run_command(command.name, Call { client, database, args, options }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_database_of_users_is_the_default() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            default_database(&names).map(str::to_owned)
        };
        assert_eq!(of(&["_Server", "ordinals"]).as_deref(), Some("ordinals"));
        assert_eq!(of(&["Open_vSwitch", "_Server", "ordinals"]).as_deref(), Some("Open_vSwitch"));
        assert_eq!(of(&["_Server", "a", "b"]), None);
        assert_eq!(of(&["_Server"]), None);
    }

    #[test]
    fn servers_databases_and_json_are_distinguished() {
        for remote in ["unix:db.sock", "tcp:127.0.0.1:6640", "foo:bar"] {
            assert!(is_remote(remote), "{remote}");
        }
        for other in ["ordinals", r#"["ordinals",{"op":"abort"}]"#, "{\"a\":1}"] {
            assert!(!is_remote(other), "{other}");
        }
    }
}
