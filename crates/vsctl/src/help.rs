//! What `--help`, `--version`, `--commands` and `--options` print.

use std::fmt::Write as _;

use cli::options::{Arg, Opt};

use crate::command::COMMANDS;

/// The version of the schema that the program knows best.
const SCHEMA_VERSION: &str = "8.8.0";

/// The answer to `--version`.
pub(crate) fn version(program: &str) -> String {
    format!("{}DB Schema {SCHEMA_VERSION}\n", cli::version_text(program))
}

/// The answer to `--commands`: a line for each command, for shell completion.
pub(crate) fn commands() -> String {
    let mut text = String::new();
    for spec in COMMANDS {
        for option in spec.options {
            let _ = write!(text, "[{option}] ");
        }
        let _ = writeln!(text, ",{},{}", spec.name, spec.arguments);
    }
    text
}

/// The answer to `--options`: a line for each global option, for shell completion.
pub(crate) fn options(fragments: &[&[Opt]]) -> String {
    let mut text = String::new();
    for opt in fragments.iter().copied().flatten() {
        let suffix = if opt.arg == Arg::None { "" } else { "=ARG" };
        if !opt.long.is_empty() {
            let _ = writeln!(text, "--{}{suffix}", opt.long);
        }
        if let Some(letter) = opt.short {
            let _ = writeln!(text, "-{letter}{}", if opt.arg == Arg::None { "" } else { " ARG" });
        }
    }
    text
}

/// A group of commands in the help: its title, and for each form of a command what it does.
type Group = (&'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const GROUPS: &[Group] = &[
    ("Open vSwitch commands", &[
        ("init", "make the database's top row if it is missing"),
        ("show", "outline the configuration"),
        ("emer-reset", "drop controllers, managers, mirrors and the like"),
    ]),
    ("Bridge commands", &[
        ("[--may-exist] add-br BRIDGE", "add a bridge"),
        ("[--may-exist] add-br BRIDGE PARENT VLAN", "add a fake bridge for a VLAN of PARENT"),
        ("[--if-exists] del-br BRIDGE", "delete a bridge with its ports"),
        ("[--real|--fake] list-br", "list bridges"),
        ("br-exists BRIDGE", "exit with status 2 if there is no such bridge"),
        ("br-to-vlan BRIDGE", "print the VLAN of a fake bridge, or 0"),
        ("br-to-parent BRIDGE", "print the parent of a fake bridge, or BRIDGE"),
        ("br-set-external-id BRIDGE KEY [VALUE]", "set or unset an external id"),
        ("br-get-external-id BRIDGE [KEY]", "print one external id, or all"),
    ]),
    ("Port commands (a bond is one port)", &[
        ("list-ports BRIDGE", "list the ports of a bridge"),
        ("[--may-exist] add-port BRIDGE PORT [COLUMN[:KEY]=VALUE]...", "add a port"),
        ("[--may-exist] [--fake-iface] add-bond BRIDGE PORT IFACE... [COLUMN[:KEY]=VALUE]...", "add a bond"),
        ("[--may-exist] add-bond-iface BOND IFACE", "add an interface to a bond"),
        ("[--if-exists] del-bond-iface [BOND] IFACE", "remove an interface from its bond"),
        ("[--if-exists] [--with-iface] del-port [BRIDGE] PORT", "delete a port"),
        ("port-to-br PORT", "print the bridge of a port"),
    ]),
    ("Interface commands (a bond has several)", &[
        ("list-ifaces BRIDGE", "list the interfaces of a bridge"),
        ("iface-to-br IFACE", "print the bridge of an interface"),
    ]),
    ("Conntrack zone and datapath commands", &[
        ("[--may-exist] add-zone-tp DATAPATH zone=ID POLICY=SECONDS...", "set a zone's timeout policy"),
        ("[--if-exists] del-zone-tp DATAPATH zone=ID", "delete a zone's timeout policy"),
        ("list-zone-tp DATAPATH", "list timeout policies"),
        ("set-zone-limit DATAPATH zone=ID|default LIMIT", "limit the connections of a zone"),
        ("[--if-exists] del-zone-limit DATAPATH zone=ID|default", "delete a limit"),
        ("list-zone-limits DATAPATH", "list limits"),
        ("list-dp-cap DATAPATH", "print what a datapath can do"),
    ]),
    ("Controller commands", &[
        ("get-controller BRIDGE", "print the controllers of a bridge"),
        ("del-controller BRIDGE", "delete them"),
        ("[--inactivity-probe=MSECS] set-controller BRIDGE TARGET...", "replace them"),
        ("get-fail-mode BRIDGE", "print what happens without a controller"),
        ("del-fail-mode BRIDGE", "use the default"),
        ("set-fail-mode BRIDGE standalone|secure", "choose it"),
    ]),
    ("Manager commands", &[
        ("get-manager", "print the managers"),
        ("del-manager", "delete them"),
        ("[--inactivity-probe=MSECS] set-manager TARGET...", "replace them"),
    ]),
    ("SSL commands", &[
        ("get-ssl", "print the files for TLS"),
        ("del-ssl", "delete them"),
        ("[--bootstrap] set-ssl PRIV-KEY CERT CA-CERT", "replace them"),
    ]),
    ("Auto-Attach commands", &[
        ("add-aa-mapping BRIDGE I-SID VLAN", "map an I-SID to a VLAN"),
        ("del-aa-mapping BRIDGE I-SID VLAN", "delete a mapping"),
        ("get-aa-mapping BRIDGE", "list mappings"),
    ]),
    ("Database commands", &[
        ("[--if-exists] [--columns=COL,...] list TBL [REC]...", "print records"),
        ("[--columns=COL,...] find TBL [COL[:KEY]=VALUE]...", "print the records that satisfy conditions"),
        ("[--if-exists] [--id=@NAME] get TBL REC [COL[:KEY]]...", "print values"),
        ("[--if-exists] set TBL REC COL[:KEY]=VALUE...", "set values"),
        ("[--if-exists] add TBL REC COL [KEY=]VALUE...", "add elements to a column"),
        ("[--if-exists] remove TBL REC COL KEY|VALUE|KEY=VALUE...", "remove elements from a column"),
        ("[--if-exists] clear TBL REC COL...", "empty columns"),
        ("[--id=@NAME|UUID] create TBL COL[:KEY]=VALUE...", "add a record and print its UUID"),
        ("[--if-exists] destroy TBL REC...", "delete records"),
        ("--all destroy TBL", "delete all records of a table"),
        ("wait-until TBL REC [COL[:KEY]=VALUE]...", "wait for a record that satisfies conditions"),
        ("comment [ARG]...", "do nothing, but for the database's log"),
    ]),
];

/// The answer to `--help`.
pub(crate) fn usage(program: &str, log: &vlog::Log, default_db: &str) -> String {
    let mut text = format!(
        "{program}: configures ovs-vswitchd through its database\nusage: {program} [OPTIONS] [--] [COMMAND-OPTIONS] \
         COMMAND [ARG...] [-- [COMMAND-OPTIONS] COMMAND [ARG...]]...\n"
    );
    for (title, forms) in GROUPS {
        let _ = writeln!(text, "\n{title}:");
        for (form, does) in *forms {
            let _ = writeln!(text, "  {form}\n      {does}");
        }
    }
    let _ = write!(
        text,
        "
A record is named by its UUID (or at least 4 digits of it), by its name, or by the name of the bridge or port that it
belongs to; the only record of Open_vSwitch and of SSL is \".\".

Options:
  --db=DATABASE           database server, by default {default_db}
  --no-wait               do not wait until ovs-vswitchd has taken the changes
  --retry                 try to connect again and again
  -t, --timeout=SECS      give up after SECS seconds
  --dry-run               change nothing
  --oneline               one line of output for each command
  --no-syslog             same as -vvsctl:syslog:warn

Output formatting options:
  -f, --format=FORMAT     table, list (the default), html, csv or json
  -d, --data=FORMAT       string (the default), bare or json
  --no-headings           leave out the headings
  --pretty                indent JSON
  --bare                  same as --format=list --data=bare --no-headings
  --max-column-width=N    cut wider columns of tables
{}  --bootstrap-ca-cert=FILE  the same, taken from the first server if not there
  --peer-ca-cert=FILE     file with CA certificate to show to peers
  --ssl-protocols=PROTOS  list of TLS versions to use
  --ssl-ciphers=CIPHERS   list of ciphers of TLS 1.2 to use
  --ssl-ciphersuites=SUITES  list of ciphers of TLS 1.3 to use
  --ssl-server-name=NAME  name of the server to tell it (SNI)
{}
Other options:
  -h, --help              this text
  -V, --version           versions
",
        tls::Config::usage(),
        log.usage()
    );
    text
}
