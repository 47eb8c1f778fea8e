//! The program vtep-ctl: shows and changes the database of a VTEP, the tunnel endpoint of a hardware switch (schema
//! hardware_vtep, vtep(5)).
//!
//! [`dbctl`] has the parts shared with other database programs; this crate has its own commands ([`command`]), in
//! modules named after their objects. They see switches, ports and routers by name ([`model`]).

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

mod command;
mod help;
mod logical;
mod macs;
mod model;
mod physical;

/// The program.
pub(crate) struct VtepCtl;

/// One run of its commands.
pub(crate) type Context<'a> = dbctl::Context<'a, VtepCtl>;
/// One of its commands as typed.
pub(crate) type Command = dbctl::Command<VtepCtl>;
/// One kind of command.
pub(crate) type Spec = dbctl::Spec<VtepCtl>;

/// The completions of the last word of a command line in a shell.
pub fn complete(line: &cli::completion::Line) -> Vec<String> {
    dbctl::completion::complete::<VtepCtl>(line)
}

/// Runs the program; `args` begins with its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    dbctl::main::<VtepCtl>(args)
}

impl Program for VtepCtl {
    type Model = model::Model;

    const DATABASE: &'static str = "hardware_vtep";
    const SCHEMA_VERSION: &'static str = "1.7.0";
    const MODULE: &'static str = "vtep_ctl";
    const ROOT: &'static str = "Global";
    const MANAGERS: &'static str = "managers";
    // Nothing in this schema reports the configuration that a switch has applied, so there is nothing to wait for.
    const CONFIGURATION: Option<[&'static str; 2]> = None;
    const OPTIONS: &'static [Opt] = &[
        Opt::new("db", Arg::Required),
        Opt::new("no-syslog", Arg::None),
        Opt::new("dry-run", Arg::None),
        Opt::new("oneline", Arg::None),
        Opt::new("timeout", Arg::Required).short('t'),
    ];
    const BOOTSTRAP_OPTIONS: &'static [Opt] = &[];
    const COMMANDS: &'static [Spec] = command::COMMANDS;
    const SHOWN: &'static [Shown] = &[
        Shown { table: "Global", name: None, columns: &["managers", "switches"] },
        Shown { table: "Manager", name: Some("target"), columns: &["is_connected"] },
        Shown { table: "Physical_Switch", name: Some("name"), columns: &["management_ips", "tunnel_ips", "ports"] },
        Shown { table: "Physical_Port", name: Some("name"), columns: &["vlan_bindings"] },
        Shown { table: "Logical_Switch", name: Some("name"), columns: &[] },
    ];
    const SETTINGS: &'static str = "Physical_Port";
    const TITLE: &'static str = "configures a VTEP through its database";
    const HELP: &'static [dbctl::help::Group] = help::GROUPS;
    const RECORDS: &'static str = help::RECORDS;

    fn ways(table: &str) -> &'static [Way] {
        match table {
            "Physical_Switch" | "Physical_Port" | "Logical_Switch" | "Logical_Router" => &[Way::Column("name")],
            "Manager" => &[Way::Column("target")],
            "Global" => &[Way::Singleton],
            _ => &[],
        }
    }

    fn model(txn: &Transaction<'_>, root: Uuid) -> Self::Model {
        model::Model::new(txn, root)
    }

    fn source(_: &str, kind: &str) -> Source {
        match kind {
            "PSWITCH" => Source::Column("Physical_Switch", "name"),
            "PORT" => Source::Column("Physical_Port", "name"),
            "LSWITCH" => Source::Column("Logical_Switch", "name"),
            "LROUTER" => Source::Column("Logical_Router", "name"),
            "NEW-PORT" => Source::Device,
            "MODE" => Source::Words(logical::MODES),
            "ENCAP" => Source::Words(&[macs::DEFAULT_ENCAPSULATION]),
            "TARGET" => Source::Words(TARGETS),
            _ => Source::Unknown,
        }
    }

    fn is_read(table: &str, column: &str) -> bool {
        match table {
            "Global" => column == "switches",
            "Physical_Switch" => matches!(column, "name" | "ports"),
            "Physical_Port" | "Logical_Switch" | "Logical_Router" => column == "name",
            _ => false,
        }
    }

    fn report(_: &str, _: &Idl, _: &[String]) -> ExitCode {
        ExitCode::SUCCESS
    }

    fn log(level: tracing::Level, message: Arguments<'_>) {
        dbctl::log_as!("vtep_ctl", level, message);
    }
}
