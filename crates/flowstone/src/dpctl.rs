//! `ovs-dpctl`: commands on the datapath (ovs-dpctl(8)).
//!
//! The datapath is part of ovs-vswitchd, so each command calls the `dpctl/*` command of that name on its control
//! socket. Commands that the switch does not support are rejected with an error message. `normalize-actions` and
//! `parse-actions` work on text, without a switch.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use cli::{Arg, Fatal, Found, Opt, Parser};
use serde_json::Value;

use crate::control::{Connection, Failure, terminated};

const OPTIONS: &[Opt] = &[
    Opt::new("statistics", Arg::None).short('s'),
    Opt::new("clear", Arg::None),
    Opt::new("may-create", Arg::None),
    Opt::new("read-only", Arg::None),
    Opt::new("more", Arg::None).short('m'),
    Opt::new("names", Arg::None),
    Opt::new("no-names", Arg::None),
    Opt::new("timeout", Arg::Required).short('t'),
    Opt::new("help", Arg::None).short('h'),
    Opt::new("version", Arg::None).short('V'),
];

/// The daemon with the datapath.
const TARGET: &str = "ovs-vswitchd";

/// A command: its name, its arguments as `list-commands` prints them, and their minimum and maximum number.
struct Command {
    name: &'static str,
    usage: &'static str,
    args_min: usize,
    args_max: usize,
    /// Refused with `--read-only`.
    writes: bool,
}

const fn reads(name: &'static str, usage: &'static str, args_min: usize, args_max: usize) -> Command {
    Command { name, usage, args_min, args_max, writes: false }
}

const fn writes(name: &'static str, usage: &'static str, args_min: usize, args_max: usize) -> Command {
    Command { name, usage, args_min, args_max, writes: true }
}

const COMMANDS: &[Command] = &[
    writes("add-dp", "dp [iface...]", 1, usize::MAX),
    writes("del-dp", "dp", 1, 1),
    writes("add-if", "dp iface...", 2, usize::MAX),
    writes("del-if", "dp iface...", 2, usize::MAX),
    writes("set-if", "dp iface...", 2, usize::MAX),
    reads("dump-dps", "", 0, 0),
    reads("show", "[-s] [dp...]", 0, usize::MAX),
    reads("dump-flows", "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]", 0, 6),
    writes("add-flow", "[dp] flow actions", 2, 3),
    writes("mod-flow", "[dp] flow actions", 2, 3),
    reads("get-flow", "[dp] ufid", 1, 2),
    writes("del-flow", "[dp] flow", 1, 2),
    writes("add-flows", "[dp] file", 1, 2),
    writes("mod-flows", "[dp] file", 1, 2),
    writes("del-flows", "[dp] [file]", 0, 2),
    reads("offload-stats-show", "[dp]", 0, 1),
    reads("dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0, 4),
    reads("dump-conntrack-exp", "[dp] [zone=N]", 0, 2),
    writes("flush-conntrack", "[dp] [zone=N] [mark=X[/M]] [labels=Y[/N]] [ct-orig-tuple [ct-reply-tuple]]", 0, 6),
    reads("cache-get-size", "[dp]", 0, 1),
    writes("cache-set-size", "dp cache <size>", 3, 3),
    reads("ct-stats-show", "[dp] [zone=N]", 0, 3),
    reads("ct-bkts", "[dp] [gt=N]", 0, 2),
    writes("ct-set-maxconns", "[dp] maxconns", 1, 2),
    reads("ct-get-maxconns", "[dp]", 0, 1),
    reads("ct-get-nconns", "[dp]", 0, 1),
    writes("ct-enable-tcp-seq-chk", "[dp]", 0, 1),
    writes("ct-disable-tcp-seq-chk", "[dp]", 0, 1),
    reads("ct-get-tcp-seq-chk", "[dp]", 0, 1),
    writes("ct-set-limits", "[dp] [default=L] [zone=N,limit=L]...", 1, usize::MAX),
    writes("ct-del-limits", "[dp] [default] [zone=N1[,N2]...]", 1, 3),
    reads("ct-get-limits", "[dp] [zone=N1[,N2]...]", 0, 2),
    reads("ct-get-sweep-interval", "[dp]", 0, 1),
    writes("ct-set-sweep-interval", "[dp] ms", 1, 2),
    writes("ipf-set-enabled", "[dp] v4|v6", 1, 2),
    writes("ipf-set-disabled", "[dp] v4|v6", 1, 2),
    writes("ipf-set-min-frag", "[dp] v4|v6 minfragment", 2, 3),
    writes("ipf-set-max-nfrags", "[dp] maxfrags", 1, 2),
    reads("ipf-get-status", "[dp]", 0, 1),
    reads("help", "", 0, usize::MAX),
    reads("list-commands", "", 0, usize::MAX),
    reads("parse-actions", "actions", 1, usize::MAX),
    reads("normalize-actions", "actions", 2, usize::MAX),
];

/// The options and commands, for shell completion.
pub(crate) fn vocabulary() -> cli::completion::Vocabulary {
    cli::completion::Vocabulary::new(&[OPTIONS, vlog::OPTIONS], COMMANDS.iter().map(|command| command.name))
}

/// The program.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    log.set_level(None, Some(vlog::Destination::Console), vlog::Level::Warn);
    let (options, words) = match parse(args, &program, &log) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let Some((name, words)) = words.split_first() else {
        return cli::fail(&program, "missing command name; use --help for help");
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return cli::fail(&program, format!("unknown command '{name}'; use --help for help"));
    };
    if words.len() < command.args_min {
        return cli::fail(&program, format!("'{name}' command requires at least {} arguments", command.args_min));
    }
    if words.len() > command.args_max {
        return cli::fail(&program, format!("'{name}' command takes at most {} arguments", command.args_max));
    }
    match name.as_str() {
        "help" => return cli::print(&usage(&program, &log)),
        "list-commands" => return cli::print(&list()),
        "normalize-actions" | "parse-actions" => return offline(&program, name, words),
        _ if command.writes && options.read_only => {
            return cli::fail(&program, format!("'{name}' command does not work in read only mode"));
        }
        _ => {}
    }
    match call(name, &options.flags, words) {
        Ok(text) => cli::print(&text),
        Err(Failure::Refused(text)) => {
            eprintln!("{program}: {}", text.trim_end());
            ExitCode::FAILURE
        }
        Err(failure) => cli::fail(&program, failure),
    }
}

/// The options of a command.
#[derive(Default)]
struct Options {
    /// The options to pass to the switch, in its syntax.
    flags: Vec<String>,
    read_only: bool,
}

fn parse(args: Vec<OsString>, program: &str, log: &vlog::Log) -> Result<(Options, Vec<String>), ExitCode> {
    let mut parser = Parser::new(args, &[OPTIONS, vlog::OPTIONS]);
    let mut options = Options::default();
    for found in parser.by_ref() {
        let Found { id, value } = found.map_err(|error| Fatal::from(error).report(program))?;
        match (id, value) {
            ("statistics" | "more" | "names" | "no-names" | "clear" | "may-create", _) => {
                options.flags.push(format!("--{id}"));
            }
            ("read-only", _) => options.read_only = true,
            ("timeout", Some(value)) => match value.parse() {
                Ok(seconds) if seconds > 0 => daemon::alarm::set(seconds),
                _ => return Err(cli::fail(program, format!("value {value} on -t or --timeout is invalid"))),
            },
            ("help", _) => {
                return Err(cli::print_or_end(&usage(program, log)));
            }
            ("version", _) => {
                return Err(cli::print_or_end(&cli::version_text(program)));
            }
            (id, value) => {
                log.accept(id, value.as_deref()).map_err(|error| error.report(program))?;
            }
        }
    }
    Ok((options, parser.into_positionals()))
}

/// Runs a command that needs no switch.
fn offline(program: &str, name: &str, words: &[String]) -> ExitCode {
    let mut out = String::new();
    let done = match (name, words) {
        ("normalize-actions", [flow, actions, ports @ ..]) => dpif::text::normalise(flow, actions, ports, &mut out),
        _ => words.iter().try_for_each(|actions| {
            out += &(dpif::text::parsed_actions(actions)? + "\n");
            Ok(())
        }),
    };
    // Open vSwitch prints as far as it comes.
    let printed = cli::print(&out);
    done.map_or_else(|error| cli::fail(program, error), |()| printed)
}

fn call(name: &str, flags: &[String], words: &[String]) -> Result<String, Failure> {
    let mut connection = Connection::open(TARGET)?;
    let method = format!("dpctl/{name}");
    let mut words = words.to_vec();
    if matches!(name, "add-flows" | "mod-flows" | "del-flows") {
        // The switch reads the file, and has another working directory.
        if let Some(file) = words.last_mut().filter(|file| Path::new(file.as_str()).exists())
            && let Ok(absolute) = std::path::absolute(&*file)
        {
            *file = absolute.to_string_lossy().into_owned();
        }
    }
    // For the switch, options count as arguments: commands on connections get those only that they use.
    let is_used = |flag: &str| match name {
        "dump-conntrack" => matches!(flag, "--more" | "--statistics"),
        "ct-stats-show" | "ipf-get-status" => flag == "--more",
        _ => !["ct-", "ipf-", "flush-conntrack", "dump-conntrack"].iter().any(|prefix| name.starts_with(prefix)),
    };
    let args: Vec<String> = flags.iter().filter(|flag| is_used(flag)).cloned().chain(words).collect();
    match connection.call(&method, &args) {
        Ok(Value::String(text)) => Ok(terminated(text)),
        Ok(value) => Ok(value.to_string()),
        Err(Failure::Refused(text)) if text.contains("is not a valid command") => {
            Err(Failure::Refused(format!("'{name}' is not supported by the running ovs-vswitchd")))
        }
        Err(failure) => Err(failure),
    }
}

fn list() -> String {
    let mut out = "The available commands are:\n".to_owned();
    for command in COMMANDS {
        out.push_str(&format!("  {:<23} {}\n", command.name, command.usage));
    }
    out
}

fn usage(program: &str, log: &vlog::Log) -> String {
    let mut out =
        format!("{program}: Open vSwitch datapath management utility\nusage: {program} [OPTIONS] COMMAND [ARG...]\n");
    for command in COMMANDS {
        out.push_str(&format!("  {:<23} {}\n", command.name, command.usage));
    }
    out.push_str("The commands are carried out by the running ovs-vswitchd, whose datapath they concern.\n");
    out.push_str(&log.usage());
    out.push_str(
        "\nOptions for show and mod-flow:\n\
         \x20 -s,  --statistics           print statistics for port or flow\n\
         \nOptions for dump-flows:\n\
         \x20 -m, --more                  increase verbosity of output\n\
         \x20 --names                     use port names in output\n\
         \nOptions for mod-flow:\n\
         \x20 --may-create                create flow if it doesn't exist\n\
         \x20 --read-only                 do not run read/write commands\n\
         \x20 --clear                     reset existing stats to zero\n\
         \nOther options:\n\
         \x20 -t, --timeout=SECS          give up after SECS seconds\n\
         \x20 -h, --help                  display this help message\n\
         \x20 -V, --version               display version information\n",
    );
    out
}
