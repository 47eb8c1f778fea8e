//! `ovs-appctl`: sends one command to a daemon's control socket and prints the reply (ovs-appctl(8)).
//!
//! Exit codes: 0 if the daemon executed the command, 1 if the daemon is not reachable or the command line is invalid, 2
//! if the daemon replied with an error.

use std::ffi::OsString;
use std::process::ExitCode;

use cli::{Arg, Fatal, Found, Opt, Parser};
use serde_json::Value;

use crate::control::{Connection, Failure, terminated};

const OPTIONS: &[Opt] = &[
    Opt::new("target", Arg::Required).short('t'),
    Opt::new("format", Arg::Required).short('f'),
    Opt::new("pretty", Arg::None),
    Opt::new("timeout", Arg::Required).short('T'),
    // Once the option that names a command, in old scripts; the command follows without it, too.
    Opt::new("execute", Arg::None).short('e'),
    Opt::new("help", Arg::None).short('h'),
    Opt::new("version", Arg::None).short('V'),
];

/// The default target.
const DEFAULT_TARGET: &str = "ovs-vswitchd";

/// The command line.
struct Request {
    target: String,
    format: String,
    pretty: bool,
    command: String,
    args: Vec<String>,
}

/// The options and commands, for shell completion.
pub(crate) fn vocabulary() -> cli::completion::Vocabulary {
    cli::completion::Vocabulary::new(&[OPTIONS, vlog::OPTIONS], [])
}

/// The program.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    log.set_level(None, None, vlog::Level::Warn);
    let request = match parse(args, &program, &log) {
        Ok(request) => request,
        Err(code) => return code,
    };
    match run(&request) {
        Ok(text) => cli::print_or_end(&text),
        Err(Failure::Refused(text)) => {
            eprint!("{}", terminated(text));
            eprintln!("{program}: {}: server returned an error", request.target);
            ExitCode::from(2)
        }
        Err(failure) => cli::fail(&program, failure),
    }
}

/// Parses the command line. The error is the exit code if it is invalid, or if an option like `--help` was handled.
fn parse(args: Vec<OsString>, program: &str, log: &vlog::Log) -> Result<Request, ExitCode> {
    let mut parser = Parser::new(args, &[OPTIONS, vlog::OPTIONS]).options_first();
    let mut target = None;
    let mut has_execute = false;
    let mut format = "text".to_owned();
    let mut pretty = false;
    for found in parser.by_ref() {
        let Found { id, value } = found.map_err(|error| Fatal::from(error).report(program))?;
        match (id, value) {
            ("target", Some(value)) => {
                if target.replace(value).is_some() {
                    return Err(cli::fail(program, "-t or --target may be specified only once"));
                }
            }
            ("format", Some(value)) if value == "text" || value == "json" => format = value,
            ("format", Some(value)) => {
                return Err(cli::fail(program, format!("value {value} on -f or --format is invalid")));
            }
            ("pretty", _) => pretty = true,
            ("execute", _) => {
                if std::mem::replace(&mut has_execute, true) {
                    // Spelt as Open vSwitch does.
                    return Err(cli::fail(program, "-e or --execute may be speciifed only once"));
                }
            }
            ("timeout", Some(value)) => match value.parse() {
                Ok(seconds) if seconds > 0 => daemon::alarm::set(seconds),
                _ => return Err(cli::fail(program, format!("value {value} on -T or --timeout is invalid"))),
            },
            ("help", _) => {
                return Err(cli::print_or_end(&usage(program)));
            }
            ("version", _) => {
                return Err(cli::print_or_end(&cli::version_text(program)));
            }
            (id, value) => {
                log.accept(id, value.as_deref()).map_err(|error| error.report(program))?;
            }
        }
    }
    if pretty && format != "json" {
        return Err(cli::fail(program, "--pretty is supported with --format json only"));
    }
    let mut words = parser.into_positionals().into_iter();
    let Some(command) = words.next() else {
        return Err(cli::fail(program, "at least one non-option argument is required (use --help for help)"));
    };
    let target = target.unwrap_or_else(|| DEFAULT_TARGET.to_owned());
    Ok(Request { target, format, pretty, command, args: words.collect() })
}

fn run(request: &Request) -> Result<String, Failure> {
    let mut connection = Connection::open(&request.target)?;
    if request.format != "text" {
        connection.call("set-options", &["--format".to_owned(), request.format.clone()])?;
    }
    Ok(match connection.call(&request.command, &request.args)? {
        Value::String(text) if request.format == "text" => terminated(text),
        value if request.pretty => cli::json::pretty(&value) + "\n",
        value => cli::json::compact(&value) + "\n",
    })
}

fn usage(program: &str) -> String {
    format!(
        "{program}, for querying and controlling Open vSwitch daemon\n\
         usage: {program} [TARGET] COMMAND [ARG...]\n\
         Targets:\n\
         \x20 -t, --target=TARGET  pidfile or socket to contact\n\
         Common commands:\n\
         \x20 list-commands      List commands supported by the target\n\
         \x20 version            Print version of the target\n\
         \x20 vlog/list          List current logging levels\n\
         \x20 vlog/list-pattern  List logging patterns for each destination\n\
         \x20 vlog/set [SPEC]\n\
         \x20     Set log levels as detailed in SPEC, which may include:\n\
         \x20     A valid module name (all modules, by default)\n\
         \x20     'syslog', 'console', 'file' (all destinations, by default)\n\
         \x20     'off', 'emer', 'err', 'warn', 'info', or 'dbg' ('dbg', by default)\n\
         \x20 vlog/reopen        Make the program reopen its log file\n\
         Other options:\n\
         \x20 --timeout=SECS     wait at most SECS seconds for a response\n\
         \x20 -f, --format=FMT   Output format. One of: 'json', or 'text'\n\
         \x20                    ('text', by default)\n\
         \x20 --pretty           Format the output in a more readable fashion.\n\
         \x20                    Requires: --format json.\n\
         \x20 -h, --help         Print this helpful information\n\
         \x20 -V, --version      Display {program} version information\n"
    )
}
