//! The single binary: every `ovs-*` program under its own name (`argv[0]`) or as `flowstone SUBCOMMAND`.
//!
//! [`PROGRAMS`] is the dispatch table: each entry has the program's name, its subcommand and its entry point, whose
//! first argument is the program's name.

// `println!` panics if the reader of a pipe has gone: `cli::outln!` does not.
#![warn(clippy::print_stdout)]

mod appctl;
mod completion;
mod control;
mod dpctl;
mod links;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

use cli::completion::Line;

/// A program in this binary.
struct Program {
    /// The name of the corresponding Open vSwitch program.
    name: &'static str,
    /// The subcommand of `flowstone`.
    subcommand: &'static str,
    /// Its line in `flowstone --help`.
    summary: &'static str,
    main: fn(Vec<OsString>) -> ExitCode,
    /// Completes the last word of its command line in a shell.
    complete: fn(&Line) -> Vec<String>,
}

/// The programs, in the order of `flowstone --help`.
const PROGRAMS: &[Program] = &[
    Program {
        name: "ovs-vswitchd",
        subcommand: "vswitchd",
        summary: "the switch daemon",
        main: vswitchd::main,
        complete: |line| completion::options(vswitchd::vocabulary(), line),
    },
    Program {
        name: "ovsdb-server",
        subcommand: "ovsdb-server",
        summary: "the database server",
        main: ovsdb_tools::server_main,
        complete: |line| completion::options(ovsdb_tools::server::vocabulary(), line),
    },
    Program {
        name: "ovs-vsctl",
        subcommand: "vsctl",
        summary: "configure the switch",
        main: vsctl::main,
        complete: vsctl::complete,
    },
    Program {
        name: "ovs-ofctl",
        subcommand: "ofctl",
        summary: "look into and change flow tables",
        main: ofctl::main,
        complete: completion::ofctl,
    },
    Program {
        name: "ovs-appctl",
        subcommand: "appctl",
        summary: "control a running daemon",
        main: appctl::main,
        complete: completion::appctl,
    },
    Program {
        name: "ovsdb-client",
        subcommand: "ovsdb-client",
        summary: "ask a database server",
        main: ovsdb_tools::client_main,
        complete: completion::ovsdb_client,
    },
    Program {
        name: "ovsdb-tool",
        subcommand: "ovsdb-tool",
        summary: "make and look into database files",
        main: ovsdb_tools::tool_main,
        complete: |line| completion::options(ovsdb_tools::tool::vocabulary(), line),
    },
    Program {
        name: "ovs-testcontroller",
        subcommand: "testcontroller",
        summary: "a simple OpenFlow controller",
        main: testcontroller::main,
        complete: |line| completion::options(testcontroller::vocabulary(), line),
    },
    Program {
        name: "vtep-ctl",
        subcommand: "vtep-ctl",
        summary: "configure a VTEP database",
        main: vtepctl::main,
        complete: vtepctl::complete,
    },
    Program {
        name: "ovs-vtep",
        subcommand: "vtep",
        summary: "emulate a VTEP by the switch",
        main: vtep::main,
        complete: completion::vtep,
    },
    Program {
        name: "ovs-dpctl",
        subcommand: "dpctl",
        summary: "look into the datapath",
        main: dpctl::main,
        complete: |line| completion::options(dpctl::vocabulary(), line),
    },
];

fn main() -> ExitCode {
    daemon::finish(dispatch(std::env::args_os().collect()))
}

/// Runs the program or subcommand that the command line names.
fn dispatch(mut args: Vec<OsString>) -> ExitCode {
    let name = cli::program::program_name_of(&args);
    if let Some(program) = PROGRAMS.iter().find(|program| program.name == name) {
        return (program.main)(args);
    }
    let Some(word) = args.get(1).and_then(|word| word.to_str()).map(str::to_owned) else {
        return cli::fail(&name, "missing subcommand; use --help for help");
    };
    if let Some(program) = PROGRAMS.iter().find(|program| program.subcommand == word || program.name == word) {
        args.remove(0);
        // From here on, the program sees the command line as under its own name.
        if let Some(argv0) = args.first_mut() {
            *argv0 = program.name.into();
        }
        return (program.main)(args);
    }
    match word.as_str() {
        "links" => links::main(&name, args.get(2..).unwrap_or_default(), PROGRAMS.iter().map(|program| program.name)),
        "completion" => completion::script(&name, args.get(2..).unwrap_or_default()),
        "complete" => completion::main(&name, args.get(2..).unwrap_or_default()),
        "schema" => schema(&name, args.get(2..).unwrap_or_default()),
        "run" => {
            args.remove(1);
            run::main(args)
        }
        "--help" | "-h" | "help" => cli::print(&usage(&name)),
        "--version" | "-V" => cli::print(&cli::version_text(&name)),
        _ => cli::fail(&name, format!("unknown subcommand '{word}'; use --help for help")),
    }
}

fn schema_names() -> String {
    ovsdb::schemas::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ")
}

/// `flowstone schema NAME`: prints a schema for `ovsdb-tool create` other than the switch's.
fn schema(name: &str, args: &[OsString]) -> ExitCode {
    let [wanted] = args else {
        return cli::fail(name, format!("schema: exactly one argument is required, {}", schema_names()));
    };
    match ovsdb::schemas::ALL.iter().find(|(known, _)| wanted == known) {
        Some((_, text)) => cli::print(text),
        None => cli::fail(name, format!("schema: there is no '{}', only {}", wanted.display(), schema_names())),
    }
}

fn usage(name: &str) -> String {
    let mut out = format!(
        "{name}: a virtual switch with the interfaces of Open vSwitch\n\
         usage: {name} SUBCOMMAND [ARG...]\n\
         Each program also runs under its own name, for instance through the links that\n\
         \"{name} links DIR\" makes.\n\n\
         Subcommands:\n"
    );
    for program in PROGRAMS {
        out.push_str(&format!("  {:<14} {} ({})\n", program.subcommand, program.summary, program.name));
    }
    out.push_str("  run            database and switch in one process\n");
    out.push_str("  completion bash  print what has bash complete the command lines of all programs\n");
    out.push_str("  schema NAME    print the schema of a database: ");
    out.push_str(&schema_names());
    out.push_str("\n  links DIR      link every program's name to this file in DIR\n");
    out.push_str(
        "\nOther options:\n  -h, --help     display this help message\n  -V, --version  display version information\n",
    );
    out
}
