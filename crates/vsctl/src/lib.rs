//! The program ovs-vsctl: shows and changes the configuration of ovs-vswitchd in its database.
//!
//! [`dbctl`] has the parts shared with other database programs; this crate has its own commands ([`command`]), in
//! modules named after their objects. They see bridges and ports by name ([`model`]).

use std::ffi::OsString;
use std::fmt::Arguments;
use std::process::ExitCode;

use cli::options::{Arg, Opt};
use dbctl::completion::{Source, TARGETS};
use dbctl::names::Way;
use dbctl::show::Shown;
use dbctl::{Done, Failure, Needs, Output, Program};
use ovsdb::Uuid;
use ovsdb_client::{Idl, Transaction};

mod autoattach;
mod bridge;
mod command;
mod control;
mod help;
mod model;
mod port;
mod switch;
#[cfg(test)]
mod tests;
mod zone;

/// The program.
pub(crate) struct Vsctl;

/// One run of its commands.
pub(crate) type Context<'a> = dbctl::Context<'a, Vsctl>;
/// One of its commands as typed.
pub(crate) type Command = dbctl::Command<Vsctl>;
/// One kind of command.
pub(crate) type Spec = dbctl::Spec<Vsctl>;

/// The exit status if ovs-vswitchd could not set up the added objects (EX_DATAERR of sysexits.h).
const EXIT_NOT_SET_UP: u8 = 65;

/// The completions of the last word of a command line in a shell.
pub fn complete(line: &cli::completion::Line) -> Vec<String> {
    dbctl::completion::complete::<Vsctl>(line)
}

/// Runs the program; `args` begins with its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    dbctl::main::<Vsctl>(args)
}

const fn of_bridge(through: &'static str) -> Way {
    Way::Referenced { from: "Bridge", by: "name", through }
}

impl Program for Vsctl {
    type Model = model::Model;

    const DATABASE: &'static str = "Open_vSwitch";
    const SCHEMA_VERSION: &'static str = "8.8.0";
    const MODULE: &'static str = "vsctl";
    const ROOT: &'static str = "Open_vSwitch";
    const MANAGERS: &'static str = "manager_options";
    const CONFIGURATION: Option<[&'static str; 2]> = Some(["next_cfg", "cur_cfg"]);
    const OPTIONS: &'static [Opt] = &[
        Opt::new("db", Arg::Required),
        Opt::new("no-syslog", Arg::None),
        Opt::new("no-wait", Arg::None),
        Opt::new("dry-run", Arg::None),
        Opt::new("oneline", Arg::None),
        Opt::new("timeout", Arg::Required).short('t'),
        Opt::new("retry", Arg::None),
        Opt::new("commands", Arg::None),
        Opt::new("options", Arg::None),
        Opt::new("leader-only", Arg::None),
        Opt::new("no-leader-only", Arg::None),
        Opt::new("shuffle-remotes", Arg::None),
        Opt::new("no-shuffle-remotes", Arg::None),
    ];
    const BOOTSTRAP_OPTIONS: &'static [Opt] = dbctl::BOOTSTRAP_OPTIONS;
    const COMMANDS: &'static [Spec] = command::COMMANDS;
    const SHOWN: &'static [Shown] = &[
        Shown { table: "Open_vSwitch", name: None, columns: &["manager_options", "bridges", "ovs_version"] },
        Shown { table: "Bridge", name: Some("name"), columns: &["controller", "fail_mode", "datapath_type", "ports"] },
        Shown { table: "Port", name: Some("name"), columns: &["tag", "trunks", "interfaces"] },
        Shown { table: "Interface", name: Some("name"), columns: &["type", "options", "error"] },
        Shown { table: "Controller", name: Some("target"), columns: &["is_connected"] },
        Shown { table: "Manager", name: Some("target"), columns: &["is_connected"] },
    ];
    const SETTINGS: &'static str = "Port";
    const TITLE: &'static str = "configures ovs-vswitchd through its database";
    const HELP: &'static [dbctl::help::Group] = help::GROUPS;
    const RECORDS: &'static str = help::RECORDS;

    fn ways(table: &str) -> &'static [Way] {
        match table {
            "Bridge" | "Flow_Table" | "Interface" | "Mirror" | "Port" => &[Way::Column("name")],
            "Controller" => const { &[of_bridge("controller")] },
            "Flow_Sample_Collector_Set" => &[Way::Column("id")],
            "Manager" => &[Way::Column("target")],
            "NetFlow" => const { &[of_bridge("netflow")] },
            "sFlow" => const { &[of_bridge("sflow")] },
            "IPFIX" => const { &[of_bridge("ipfix")] },
            "AutoAttach" => const { &[of_bridge("auto_attach")] },
            "QoS" => &[Way::Referenced { from: "Port", by: "name", through: "qos" }],
            "Open_vSwitch" | "SSL" => &[Way::Singleton],
            _ => &[],
        }
    }

    fn model(txn: &Transaction<'_>, root: Uuid) -> Self::Model {
        model::Model::new(txn, root)
    }

    fn source(command: &str, kind: &str) -> Source {
        match kind {
            "BRIDGE" | "PARENT" => Source::Column("Bridge", "name"),
            "PORT" | "BOND" => Source::Column("Port", "name"),
            "IFACE" if command == "add-bond" => Source::Device,
            "IFACE" => Source::Column("Interface", "name"),
            "NEW-PORT" => Source::Device,
            "MODE" => Source::Words(&["standalone", "secure"]),
            "TARGET" => Source::Words(TARGETS),
            _ => Source::Unknown,
        }
    }

    fn is_read(table: &str, column: &str) -> bool {
        match table {
            "Open_vSwitch" => column == "bridges",
            "Bridge" => matches!(column, "name" | "ports"),
            "Port" => matches!(column, "name" | "interfaces" | "tag" | "fake_bridge"),
            "Interface" => column == "name",
            _ => false,
        }
    }

    fn report(program: &str, idl: &Idl, added: &[String]) -> ExitCode {
        let mut failed = false;
        for name in added {
            let found = idl.rows("Interface").find(|iface| iface.string("name") == name);
            let Some(iface) = found.filter(|iface| iface.integer_opt("ofport").is_none_or(|port| port == -1)) else {
                continue;
            };
            let why = iface.string_opt("error").map(|error| format!(": {error}")).unwrap_or_default();
            eprintln!("{program}: Error detected while setting up '{name}'{why}.  See ovs-vswitchd log for details.");
            failed = true;
        }
        if !failed {
            return ExitCode::SUCCESS;
        }
        eprintln!("{program}: The default log directory is \"{}\".", daemon::dirs::logdir().display());
        ExitCode::from(EXIT_NOT_SET_UP)
    }

    fn log(level: tracing::Level, message: Arguments<'_>) {
        dbctl::log_as!("vsctl", level, message);
    }
}
