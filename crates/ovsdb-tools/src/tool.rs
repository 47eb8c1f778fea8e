//! The program ovsdb-tool (ovsdb-tool(1)): creates, inspects, converts and compacts database files.

mod commands;
mod show_log;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use cli::{Arg, Opt, Parser};
use ovsdb::DatabaseSchema;

use crate::schema_file;

const OPTIONS: &[Opt] = &[
    Opt::new("more", Arg::None).short('m'),
    Opt::new("rbac-role", Arg::Required),
    Opt::new("cid", Arg::Required),
    Opt::new("election-timer", Arg::Required),
];

/// The election timers that a cluster accepts.
const ELECTION_TIMER_MS: std::ops::RangeInclusive<i64> = 100..=600_000;

/// The end of a command without an error message.
type Outcome = Result<ExitCode, String>;

/// The values of options.
#[derive(Debug, Default)]
struct Context {
    /// Number of `-m`.
    more: u32,
    /// The role of transactions.
    role: Option<String>,
}

/// One command.
struct Command {
    name: &'static str,
    /// Its arguments, as `list-commands` shows them.
    arguments: &'static str,
    min: usize,
    max: usize,
    run: fn(&Context, &[String]) -> Outcome,
}

const fn command(
    name: &'static str,
    arguments: &'static str,
    min: usize,
    max: usize,
    run: fn(&Context, &[String]) -> Outcome,
) -> Command {
    Command { name, arguments, min, max, run }
}

const COMMANDS: &[Command] = &[
    command("create", "[db [schema]]", 0, 2, commands::create),
    command("create-cluster", "db contents local", 3, 3, commands::clustered),
    command("join-cluster", "db name local remote...", 4, usize::MAX, commands::clustered),
    command("compact", "[db [dst]]", 0, 2, commands::compact),
    command("convert", "[db [schema [dst]]]", 0, 3, commands::convert),
    command("needs-conversion", "", 0, 2, commands::needs_conversion),
    command("db-name", "[db]", 0, 1, commands::db_name),
    command("db-version", "[db]", 0, 1, commands::db_version),
    command("db-cksum", "[db]", 0, 1, commands::db_cksum),
    command("db-cid", "db", 1, 1, commands::not_clustered),
    command("db-sid", "db", 1, 1, commands::not_clustered),
    command("db-local-address", "db", 1, 1, commands::not_clustered),
    command("db-is-clustered", "db", 1, 1, commands::db_is_clustered),
    command("db-is-standalone", "db", 1, 1, commands::db_is_standalone),
    command("schema-name", "[schema]", 0, 1, commands::schema_name),
    command("schema-version", "[schema]", 0, 1, commands::schema_version),
    command("schema-cksum", "[schema]", 0, 1, commands::schema_cksum),
    command("query", "[db] trns", 1, 2, commands::query),
    command("transact", "[db] trns", 1, 2, commands::transact),
    command("show-log", "[db]", 0, 1, show_log::show_log),
    command("check-cluster", "db...", 1, usize::MAX, commands::check_cluster),
    command("compare-versions", "a op b", 3, 3, commands::compare_versions),
    command("help", "", 0, usize::MAX, help),
    command("list-commands", "", 0, usize::MAX, list_commands),
    command("cluster-to-standalone", "db clusterdb", 2, 2, commands::cluster_to_standalone),
];

/// The options and commands, for completion in a shell.
pub fn vocabulary() -> cli::completion::Vocabulary {
    let fragments = [OPTIONS, vlog::OPTIONS, cli::options::HELP_AND_VERSION];
    cli::completion::Vocabulary::new(&fragments, COMMANDS.iter().map(|command| command.name))
}

/// Runs the program with `args`, the first of which is its name, and returns its exit status.
pub fn tool_main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    // Only warnings and errors go to the terminal, unless -v says otherwise.
    log.set_level(None, Some(vlog::Destination::Console), vlog::Level::Warn);
    let mut context = Context::default();
    let mut parser = Parser::new(args, &[OPTIONS, vlog::OPTIONS, cli::options::HELP_AND_VERSION]);
    for found in parser.by_ref() {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        match (found.id, found.value.as_deref()) {
            ("more", _) => context.more += 1,
            ("rbac-role", role) => context.role = role.map(str::to_owned),
            // Options of the commands about clusters, which themselves report that clusters are not supported.
            ("cid", Some(id)) => {
                if ovsdb::Uuid::parse(id).is_none() {
                    return cli::fail(&program, format!("{id}: not a valid UUID"));
                }
            }
            ("election-timer", Some(timer)) => {
                if !ELECTION_TIMER_MS.contains(&cli::leading_integer(timer, 10)) {
                    return cli::fail(&program, "ovsdb error: election timer must be between 100 and 600000, in msec.");
                }
            }
            ("help", _) => {
                cli::print_or_end(&usage(&program));
                return ExitCode::SUCCESS;
            }
            ("version", _) => {
                cli::print_or_end(&cli::version_text(&program));
                return ExitCode::SUCCESS;
            }
            (id, value) => {
                if let Err(error) = log.accept(id, value) {
                    return error.report(&program);
                }
            }
        }
    }
    match dispatch(&context, &parser.into_positionals()) {
        Ok(code) => code,
        Err(message) => cli::fail(&program, message),
    }
}

fn dispatch(context: &Context, words: &[String]) -> Outcome {
    let Some((name, args)) = words.split_first() else {
        return Err("missing command name; use --help for help".into());
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(format!("unknown command '{name}'; use --help for help"));
    };
    if args.len() < command.min {
        return Err(format!("'{name}' command requires at least {} arguments", command.min));
    }
    if args.len() > command.max {
        return Err(format!("'{name}' command takes at most {} arguments", command.max));
    }
    (command.run)(context, args)
}

fn help(_context: &Context, _args: &[String]) -> Outcome {
    Ok(cli::print(&usage("ovsdb-tool")))
}

fn list_commands(_context: &Context, _args: &[String]) -> Outcome {
    cli::outln!("The available commands are:");
    for command in COMMANDS {
        cli::outln!("  {:<23} {}", command.name, command.arguments);
    }
    Ok(ExitCode::SUCCESS)
}

fn default_db() -> PathBuf {
    daemon::dirs::dbdir().join("conf.db")
}

fn default_schema() -> PathBuf {
    daemon::dirs::pkgdatadir().join("vswitch.ovsschema")
}

fn db_arg(args: &[String], at: usize) -> PathBuf {
    args.get(at).map_or_else(default_db, PathBuf::from)
}

/// The schema in the file named by an argument; the one that ships with the program if there is neither an argument
/// nor an installed file.
fn schema_arg(args: &[String], at: usize) -> Result<DatabaseSchema, String> {
    let path = args.get(at).map_or_else(default_schema, PathBuf::from);
    if args.get(at).is_none() && !path.exists() {
        return schema_file::parse(&path, ovsdb::schemas::OPEN_VSWITCH.as_bytes());
    }
    schema_file::read(&path)
}

fn usage(program: &str) -> String {
    let logging = vlog::log().map(|log| log.usage()).unwrap_or_default();
    format!(
        "{program}: Open vSwitch database management utility\n\
         usage: {program} [OPTIONS] COMMAND [ARG...]\n\
         \x20 create [DB [SCHEMA]]    create DB with the given SCHEMA\n\
         \x20 compact [DB [DST]]      compact DB in-place (or to DST)\n\
         \x20 convert [DB [SCHEMA [DST]]]   convert DB to SCHEMA (to DST)\n\
         \x20 needs-conversion [DB [SCHEMA]]  report whether DB's schema differs from SCHEMA\n\
         \x20 db-name [DB]            report name of schema used by DB\n\
         \x20 db-version [DB]         report version of schema used by DB\n\
         \x20 db-cksum [DB]           report checksum of schema used by DB\n\
         \x20 db-is-clustered DB      test whether DB is clustered\n\
         \x20 db-is-standalone DB     test whether DB is standalone\n\
         \x20 schema-name [SCHEMA]    report SCHEMA's name\n\
         \x20 schema-version [SCHEMA] report SCHEMA's schema version\n\
         \x20 schema-cksum [SCHEMA]   report SCHEMA's checksum\n\
         \x20 compare-versions A OP B  compare OVSDB schema version numbers\n\
         \x20 query [DB] TRNS         execute read-only transaction on DB\n\
         \x20 transact [DB] TRNS      execute read/write transaction on DB\n\
         \x20 [-m]... show-log [DB]   print DB's log entries\n\
         The commands about clusters are known, but clustered databases are not supported.\n\
         The default DB is {}.\n\
         The default SCHEMA is {}.\n\
         {logging}\n\
         Other options:\n\
         \x20 -m, --more                  increase show-log verbosity\n\
         \x20 --rbac-role=ROLE            RBAC role for query and transact commands\n\
         \x20 -h, --help                  display this help message\n\
         \x20 -V, --version               display version information\n",
        default_db().display(),
        default_schema().display()
    )
}
