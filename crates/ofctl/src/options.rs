//! The command line.

use crate::colour::Colours;
use crate::error::{Result, fatal};
use crate::protocol::{self, version_list};
use cli::{Arg, Opt, Parser};
use flow::Field;
use openflow::packet::PacketInFormat;
use openflow::{Protocols, Version, Versions};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;

/// A sort key of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortKey {
    /// A field; `None` for the priority.
    pub field: Option<Field>,
    /// Largest first.
    pub descending: bool,
}

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Text.
    Text,
    /// JSON on one line.
    Json,
    /// JSON with line breaks.
    PrettyJson,
}

/// The options of a command.
#[derive(Clone, Debug)]
pub struct Context {
    /// The program's name.
    pub program: String,
    /// The command and its arguments.
    pub args: Vec<String>,
    /// Versions to offer.
    pub versions: Versions,
    /// Flow formats to use.
    pub protocols: Protocols,
    /// How much to print.
    pub verbosity: u8,
    /// `--strict`.
    pub strict: bool,
    /// `--may-create`.
    pub may_create: bool,
    /// `--readd`.
    pub readd: bool,
    /// `--read-only`.
    pub read_only: bool,
    /// `--bundle`.
    pub bundle: bool,
    /// `--bare`.
    pub digits_only: bool,
    /// `--timestamp`.
    pub timestamp: bool,
    /// `--no-stats` turns it off.
    pub stats: bool,
    /// `--names`, `--no-names`.
    pub names: Option<bool>,
    /// `--sort`, `--rsort`.
    pub sort: Vec<SortKey>,
    /// `--packet-in-format`.
    pub packet_in_format: Option<PacketInFormat>,
    /// `--format`, `--pretty`.
    pub format: Format,
    /// `--color`: the colours of flows.
    pub colours: Option<Colours>,
    /// Keys and certificates.
    pub tls: Arc<tls::Tls>,
    /// `--detach` and the like.
    pub daemon: daemon::DaemonOptions,
    /// The original command line.
    pub command_line: Vec<OsString>,
    /// The logging.
    pub log: Arc<vlog::Log>,
}

impl Context {
    /// Adds colours to the flows in a text, if requested.
    pub fn paint(&self, text: String) -> String {
        self.colours.as_ref().map_or_else(|| text.clone(), |colours| colours.paint(&text))
    }

    /// Whether to accept names of ports and tables.
    pub fn accept_names(&self) -> bool {
        self.names != Some(false)
    }

    /// Whether to print names of ports and tables: on a terminal, unless an option overrides it.
    pub fn show_names(&self) -> bool {
        self.names.unwrap_or_else(|| std::io::stdout().is_terminal())
    }
}

/// The result of parsing the command line.
#[derive(Debug)]
pub enum Parsed {
    /// Run a command.
    Run(Box<Context>),
    /// Exit successfully, after `--help` or the like.
    Done,
}

pub(crate) const OPTIONS: &[Opt] = &[
    Opt::new("timeout", Arg::Required).short('t'),
    Opt::new("strict", Arg::None),
    Opt::new("readd", Arg::None),
    Opt::new("flow-format", Arg::Required).short('F'),
    Opt::new("packet-in-format", Arg::Required).short('P'),
    Opt::new("more", Arg::None).short('m'),
    Opt::new("timestamp", Arg::None),
    Opt::new("sort", Arg::Optional),
    Opt::new("rsort", Arg::Optional),
    Opt::new("names", Arg::None),
    Opt::new("no-names", Arg::None),
    Opt::new("stats", Arg::None),
    Opt::new("no-stats", Arg::None),
    Opt::new("bundle", Arg::None),
    Opt::new("bare", Arg::None),
    Opt::new("color", Arg::Optional),
    Opt::new("format", Arg::Required),
    Opt::new("pretty", Arg::None),
    Opt::new("may-create", Arg::None),
    Opt::new("read-only", Arg::None),
    Opt::new("protocols", Arg::Required).short('O'),
    Opt::new("help", Arg::None).short('h'),
    Opt::new("option", Arg::None).short('o'),
    Opt::new("version", Arg::None).short('V'),
    Opt::new("private-key", Arg::Required).short('p'),
    Opt::new("certificate", Arg::Required).short('c'),
    Opt::new("ca-cert", Arg::Required).short('C'),
    Opt::new("ssl-protocols", Arg::Required),
    Opt::new("ssl-ciphers", Arg::Required),
    Opt::new("ssl-ciphersuites", Arg::Required),
    Opt::new("ssl-server-name", Arg::Required),
];

/// Reads the command line.
pub fn parse(args: Vec<OsString>, program: &str, log: &Arc<vlog::Log>) -> Result<Parsed> {
    let default = Versions::of(&[Version::V10]);
    let mut c = Context {
        program: program.to_owned(),
        args: Vec::new(),
        versions: default,
        protocols: Protocols::ANY,
        verbosity: 0,
        strict: false,
        may_create: false,
        readd: false,
        read_only: false,
        bundle: false,
        digits_only: false,
        timestamp: false,
        stats: true,
        names: None,
        sort: Vec::new(),
        packet_in_format: None,
        format: Format::Text,
        colours: None,
        tls: Arc::default(),
        daemon: daemon::DaemonOptions::default(),
        command_line: args.clone(),
        log: Arc::clone(log),
    };
    let mut tls = tls::Config::default();
    let mut pretty = false;
    let mut parser = Parser::new(args, &[OPTIONS, vlog::OPTIONS, daemon::OPTIONS]);
    for found in parser.by_ref() {
        let found = found?;
        let given = found.value;
        let value = given.as_deref().unwrap_or_default();
        match found.id {
            "help" => {
                cli::print_or_end(&usage(program));
                return Ok(Parsed::Done);
            }
            "version" => {
                cli::print_or_end(&format!("{}OpenFlow versions 0x1:0x6\n", cli::version_text(program)));
                return Ok(Parsed::Done);
            }
            "option" => {
                let options = OPTIONS.iter().chain(vlog::OPTIONS).chain(daemon::OPTIONS);
                let names =
                    options.filter(|option| !option.long.is_empty()).map(|option| format!("--{}\n", option.long));
                cli::print_or_end(&names.collect::<String>());
                return Ok(Parsed::Done);
            }
            "timeout" => {
                let seconds: u32 = value
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| fatal(format!("value {value} on -t or --timeout is invalid")))?;
                daemon::alarm::set(seconds);
            }
            "strict" => c.strict = true,
            "readd" => c.readd = true,
            "flow-format" => c.protocols = flow_formats(value)?,
            "packet-in-format" => c.packet_in_format = Some(packet_in_format(value)?),
            "more" => c.verbosity = c.verbosity.saturating_add(1),
            "timestamp" => c.timestamp = true,
            "sort" | "rsort" => c.sort.push(sort_key(given.as_deref(), found.id == "rsort")?),
            "names" => c.names = Some(true),
            "no-names" => c.names = Some(false),
            "stats" => c.stats = true,
            "no-stats" => c.stats = false,
            "bundle" => c.bundle = true,
            "bare" => c.digits_only = true,
            "read-only" => c.read_only = true,
            "protocols" => c.versions = versions(value)?,
            "color" => {
                let list = std::env::var("OVS_COLORS").unwrap_or_default();
                c.colours = Colours::choose(given.as_deref().unwrap_or("auto"), &list).map_err(fatal)?;
            }
            "format" => match value {
                "text" => c.format = Format::Text,
                "json" => c.format = Format::Json,
                _ => return Err(fatal(format!("value {value} on --format is invalid"))),
            },
            "pretty" => pretty = true,
            "may-create" => c.may_create = true,
            id if tls.accept(id, value) => {}
            id if c.daemon.accept(id, given.as_deref())? => {}
            id => {
                log.accept(id, given.as_deref())?;
            }
        }
    }
    c.tls = tls::Tls::new(tls);
    match (c.format, pretty) {
        (Format::Text, true) => return Err(fatal("--pretty is supported with --format json only")),
        (Format::Json, true) => c.format = Format::PrettyJson,
        _ => {}
    }
    c.args = parser.into_positionals();
    // Flows with equal keys are sorted by priority.
    if !c.sort.is_empty() {
        c.sort.push(SortKey { field: None, descending: true });
    }
    if c.bundle {
        c.add_bundles();
    }
    c.narrow()?;
    Ok(Parsed::Run(Box::new(c)))
}

impl Context {
    /// Has changes made in bundles. They need a version that has them: 1.3 has them by an extension. Where none of these
    /// is among those that are named, it is the first that has them as such, as with Open vSwitch's.
    fn add_bundles(&mut self) {
        self.bundle = true;
        if !self.has_bundles() {
            self.versions = Versions::of(&[Version::V14]);
        }
    }

    fn has_bundles(&self) -> bool {
        let with_bundles = Versions::of(&[Version::V13, Version::V14, Version::V15]);
        self.versions.0 & with_bundles.0 != 0
    }

    /// The context of a command that always uses bundles, with the versions and formats that support them.
    #[must_use]
    pub fn with_bundles(&self) -> Self {
        let mut c = self.clone();
        c.add_bundles();
        if !self.has_bundles() {
            c.protocols = protocol::of_versions(c.versions);
        }
        c
    }

    /// Restricts versions and flow formats to consistent combinations.
    fn narrow(&mut self) -> Result {
        let allowed = self.protocols & protocol::of_versions(self.versions);
        if allowed.is_empty() {
            return Err(fatal(format!(
                "None of the enabled OpenFlow versions ({}) supports any of the enabled flow formats ({}).  (Use -O to \
                 enable additional OpenFlow versions or -F to enable additional flow formats.)",
                version_list(self.versions),
                self.protocols
            )));
        }
        self.versions = Versions(self.versions.0 & protocol::versions(allowed).0);
        self.protocols = allowed;
        Ok(())
    }
}

/// The text of `--help`.
pub fn usage(program: &str) -> String {
    include_str!("usage.txt").replace("@PROGRAM@", program)
}

fn versions(list: &str) -> Result<Versions> {
    let mut set = 0;
    for name in list.split([',', ' ', '\t']).filter(|n| !n.is_empty()) {
        let v = Version::from_name(name).ok_or_else(|| fatal(format!("Unknown OpenFlow version: \"{name}\"")))?;
        set |= 1 << v.wire();
    }
    // A list without names leaves the choice to the program.
    Ok(if set == 0 { Versions::of(&Version::ALL) } else { Versions(set) })
}

fn flow_formats(list: &str) -> Result<Protocols> {
    let set = Protocols::from_names(list).map_err(|name| fatal(format!("{name}: unknown flow protocol")))?;
    if set.is_empty() { Err(fatal(format!("{list}: no flow protocol specified"))) } else { Ok(set) }
}

fn packet_in_format(name: &str) -> Result<PacketInFormat> {
    match name {
        "standard" | "openflow10" => Ok(PacketInFormat::Standard),
        "nxt_packet_in" | "nxm" => Ok(PacketInFormat::Nxt),
        "nxt_packet_in2" => Ok(PacketInFormat::Nxt2),
        _ => Err(fatal(format!("unknown packet-in format `{name}'"))),
    }
}

fn sort_key(name: Option<&str>, descending: bool) -> Result<SortKey> {
    let Some(name) = name.filter(|name| !name.eq_ignore_ascii_case("priority")) else {
        return Ok(SortKey { field: None, descending });
    };
    let field = Field::from_name(name).ok_or_else(|| fatal(format!("{name}: unknown field name")))?;
    Ok(SortKey { field: Some(field), descending })
}
