//! The global options.

use std::ffi::OsString;

use cli::Fatal;
use cli::options::{Arg, HELP_AND_VERSION, Opt, Parser};
use cli::table::{Format, STYLE_OPTIONS, Style};

use ovsdb_client::Order;

use crate::{Program, command};

/// The options before the commands.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) db: String,
    /// Whether to wait until the daemon has applied the changes.
    pub(crate) wait: bool,
    pub(crate) dry_run: bool,
    pub(crate) oneline: bool,
    pub(crate) retry: bool,
    /// Whether to require the leader among several servers of a cluster.
    pub(crate) leader_only: bool,
    /// The order in which several servers are tried.
    pub(crate) order: Order,
    /// The time in seconds after which SIGALRM ends the program; 0 for never.
    pub(crate) timeout_s: u32,
    pub(crate) style: Style,
    /// Keys and certificates.
    pub(crate) tls: tls::Config,
    /// Options of the first command that stood among the global ones.
    pub(crate) leading: Vec<(String, Option<String>)>,
    /// The commands, not yet parsed.
    pub(crate) words: Vec<String>,
}

/// The requested action.
#[derive(Debug)]
pub(crate) enum Request {
    /// Run the commands.
    Run(Box<Options>),
    /// Prints this and exits successfully.
    Print(String),
}

/// Options for TLS.
const TLS_OPTIONS: &[Opt] = &[
    Opt::new("private-key", Arg::Required).short('p'),
    Opt::new("certificate", Arg::Required).short('c'),
    Opt::new("ca-cert", Arg::Required).short('C'),
    Opt::new("ssl-protocols", Arg::Required),
    Opt::new("ssl-ciphers", Arg::Required),
    Opt::new("ssl-ciphersuites", Arg::Required),
    Opt::new("ssl-server-name", Arg::Required),
];

/// The option of programs that can take a CA certificate from the first server.
pub const BOOTSTRAP_OPTIONS: &[Opt] = &[Opt::new("bootstrap-ca-cert", Arg::Required)];

const PEER_OPTIONS: &[Opt] = &[Opt::new("peer-ca-cert", Arg::Required)];

/// The program's options before its commands, in the order in which `--options` prints them.
pub(crate) fn global_options<P: Program>() -> [&'static [Opt]; 7] {
    [P::OPTIONS, HELP_AND_VERSION, vlog::OPTIONS, STYLE_OPTIONS, TLS_OPTIONS, P::BOOTSTRAP_OPTIONS, PEER_OPTIONS]
}

/// The commands' options for the parser: their identity has dashes, so that it differs from global ones.
fn local_options<P: Program>() -> Vec<Opt> {
    let opt = |option: &'static str| {
        let (name, arg) = match option.strip_suffix('=') {
            Some(name) => (name, Arg::Required),
            None => (option, Arg::None),
        };
        Opt::new(name.trim_start_matches('-'), arg).id(name)
    };
    command::all_options::<P>().into_iter().map(opt).collect()
}

/// Parses the command line.
pub(crate) fn parse<P: Program>(
    program: &str,
    log: &vlog::Log,
    args: Vec<OsString>,
    default_db: String,
) -> Result<Request, Fatal> {
    let mut options = Options {
        db: default_db,
        wait: P::CONFIGURATION.is_some(),
        dry_run: false,
        oneline: false,
        retry: false,
        leader_only: true,
        order: Order::Shuffled,
        timeout_s: cli::program::default_timeout_s(),
        style: Style { format: Format::List, ..Style::default() },
        tls: tls::Config::default(),
        leading: Vec::new(),
        words: Vec::new(),
    };
    let local = local_options::<P>();
    let global = global_options::<P>();
    let fragments: Vec<&[Opt]> = global.iter().copied().chain([local.as_slice()]).collect();
    let mut parser = Parser::new(args, &fragments).options_first();
    for found in parser.by_ref() {
        let found = found?;
        let value = found.value.as_deref();
        match found.id {
            "db" => value.unwrap_or_default().clone_into(&mut options.db),
            "no-syslog" => log.set_level(Some(P::MODULE), Some(vlog::Destination::Syslog), vlog::Level::Warn),
            "no-wait" => options.wait = false,
            "dry-run" => options.dry_run = true,
            "oneline" => options.oneline = true,
            "retry" => options.retry = true,
            "timeout" => options.timeout_s = timeout(value.unwrap_or_default())?,
            "leader-only" => options.leader_only = true,
            "no-leader-only" => options.leader_only = false,
            "shuffle-remotes" => options.order = Order::Shuffled,
            "no-shuffle-remotes" => options.order = Order::AsNamed,
            "help" => return Ok(Request::Print(crate::help::usage::<P>(program, log, &options.db))),
            "version" => return Ok(Request::Print(crate::help::version::<P>(program))),
            "commands" => return Ok(Request::Print(crate::help::commands::<P>())),
            "options" => return Ok(Request::Print(crate::help::options(&global))),
            id if id.starts_with('-') => {
                let option = (id.to_owned(), found.value);
                options.leading.retain(|(known, _)| *known != option.0);
                options.leading.push(option);
            }
            id => {
                let given = value.unwrap_or_default();
                let taken = options.tls.accept(id, given)
                    || options.style.accept(id, value).map_err(|error| error.to_string())?;
                if !taken {
                    log.accept(id, value)?;
                }
            }
        }
    }
    options.words = parser.into_positionals();
    Ok(Request::Run(Box::new(options)))
}

/// The value of `--timeout`.
fn timeout(value: &str) -> Result<u32, String> {
    let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| format!("value {value} on -t or --timeout is invalid"))
}
