//! The command line.

use crate::flows;
use crate::learning::{Mode, Policy};
use cli::{Arg, Fatal, HELP_AND_VERSION, Opt, Parser};
use openflow::{ParsedFlow, Version, Versions};
use std::ffi::OsString;
use std::sync::Arc;

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Options {
    /// The command line as given.
    pub(crate) command_line: Vec<OsString>,
    pub(crate) daemon: daemon::DaemonOptions,
    pub(crate) tls: tls::Config,
    /// Versions to offer.
    pub(crate) versions: Versions,
    /// The policy for all switches.
    pub(crate) policy: Policy,
    /// Flows that every switch receives.
    pub(crate) flows: Vec<ParsedFlow>,
    /// Connection methods.
    pub(crate) methods: Vec<String>,
}

const OPTIONS: &[Opt] = &[
    Opt::new("hub", Arg::None).short('H'),
    Opt::new("noflow", Arg::None).short('n'),
    Opt::new("normal", Arg::None).short('N'),
    Opt::new("wildcards", Arg::Optional).short('w'),
    Opt::new("max-idle", Arg::Required),
    Opt::new("mute", Arg::None),
    Opt::new("queue", Arg::Required).short('q'),
    Opt::new("port-queue", Arg::Required).short('Q'),
    Opt::new("with-flows", Arg::Required),
    Opt::new("protocols", Arg::Required).short('O'),
    Opt::new("private-key", Arg::Required).short('p'),
    Opt::new("certificate", Arg::Required).short('c'),
    Opt::new("ca-cert", Arg::Required).short('C'),
    Opt::new("peer-ca-cert", Arg::Required),
    Opt::new("ssl-protocols", Arg::Required),
    Opt::new("ssl-ciphers", Arg::Required),
    Opt::new("ssl-ciphersuites", Arg::Required),
    Opt::new("ssl-server-name", Arg::Required),
];

/// The options, for shell completion.
pub(crate) fn vocabulary() -> cli::completion::Vocabulary {
    cli::completion::Vocabulary::new(&[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION], [])
}

/// Fields that flows do not match with `--wildcards` alone: all above Ethernet, and the priority in the VLAN tag. (The
/// number in the manual page lacks the latter.)
const WILDCARDS: u32 = 0x0038_20f0;

/// Parses the command line; `None` if the program is to exit successfully.
pub(crate) fn parse(args: Vec<OsString>, program: &str, log: &Arc<vlog::Log>) -> Result<Option<Options>, Fatal> {
    let mut options = Options {
        command_line: args.clone(),
        daemon: daemon::DaemonOptions::default(),
        tls: tls::Config::default(),
        versions: Versions::of(&Version::ALL),
        policy: Policy::default(),
        flows: Vec::new(),
        methods: Vec::new(),
    };
    let mut parser = Parser::new(args, &[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION]);
    let mut has_queue = false;
    for found in parser.by_ref() {
        let found = found?;
        let (id, given) = (found.id, found.value);
        let value = given.as_deref().unwrap_or_default();
        let policy = &mut options.policy;
        match id {
            "help" => {
                cli::print_or_end(&usage(program, log));
                return Ok(None);
            }
            "version" => {
                cli::print_or_end(&format!("{}OpenFlow versions 0x1:0x6\n", cli::version_text(program)));
                return Ok(None);
            }
            "hub" => policy.mode = Mode::Hub,
            "normal" => policy.mode = Mode::Normal,
            "noflow" => policy.set_up_flows = false,
            "mute" => policy.mute = true,
            "wildcards" => policy.wildcards = given.as_deref().map_or(WILDCARDS, wildcards),
            "max-idle" => policy.idle_timeout = max_idle(value)?,
            "queue" => {
                policy.queue = Some(queue(value));
                has_queue = true;
            }
            "port-queue" => {
                let (port, id) = value
                    .rsplit_once(':')
                    .ok_or("argument to -Q or --port-queue should take the form \"<port-name>:<queue-id>\"")?;
                if policy.port_queues.insert(port.to_owned(), queue(id)).is_some() {
                    return Err("<port-name> arguments for -Q or --port-queue must be unique".into());
                }
                has_queue = true;
            }
            "with-flows" => options.flows.extend(flows::read(value)?),
            "protocols" => options.versions = versions(value)?,
            _ if options.tls.accept(id, value) => {}
            _ if options.daemon.accept(id, given.as_deref())? => {}
            _ => {
                log.accept(id, given.as_deref())?;
            }
        }
    }
    if has_queue {
        // Queues need an output port, which neither hub nor NORMAL mode has.
        options.policy.mode = Mode::Learn;
    }
    options.methods = parser.into_positionals();
    if options.methods.is_empty() {
        return Err("at least one vconn argument required; use --help for usage".into());
    }
    Ok(Some(options))
}

fn max_idle(text: &str) -> Result<u16, String> {
    match (text, text.parse()) {
        ("permanent", _) => Ok(0),
        (_, Ok(seconds @ 1..)) => Ok(seconds),
        _ => Err("--max-idle argument must be between 1 and 65535 or the word 'permanent'".into()),
    }
}

/// The queue that `text` begins with, 0 without digits.
fn queue(text: &str) -> u32 {
    cli::leading_integer(text, 10) as u32
}

/// The hexadecimal number that `text` begins with, 0 without digits.
fn wildcards(text: &str) -> u32 {
    cli::leading_integer(text, 16) as u32
}

fn versions(list: &str) -> Result<Versions, String> {
    let names = list.split([',', ' ', '\t']).filter(|name| !name.is_empty());
    let versions = names
        .map(|name| Version::from_name(name).ok_or_else(|| format!("Unknown OpenFlow version: \"{name}\"")))
        .collect::<Result<Vec<_>, _>>()?;
    // A list without names leaves the choice to the program.
    Ok(Versions::of(if versions.is_empty() { &Version::ALL } else { &versions }))
}

fn usage(program: &str, log: &vlog::Log) -> String {
    format!(
        "{program}: OpenFlow controller\n\
         usage: {program} [OPTIONS] METHOD...\n\
         where each METHOD is an OpenFlow connection method.\n\
         \n\
         Active OpenFlow connection methods:\n\
         \x20 tcp:HOST[:PORT]         PORT (default: 6653) at remote HOST\n\
         \x20 ssl:HOST[:PORT]         SSL PORT (default: 6653) at remote HOST\n\
         \x20 unix:FILE               Unix domain socket named FILE\n\
         Passive OpenFlow connection methods:\n\
         \x20 ptcp:[PORT][:IP]        listen to TCP PORT (default: 6653) on IP\n\
         \x20 pssl:[PORT][:IP]        listen for SSL on PORT (default: 6653) on IP\n\
         \x20 punix:FILE              listen on Unix domain socket FILE\n\
         {}\x20 --bootstrap-ca-cert=FILE  the same, taken from the first server if not there\n\
         \x20 --peer-ca-cert=FILE     file with CA certificate to show to peers\n\
         {}\n\
         OpenFlow version options:\n\
         \x20 -O, --protocols=VERSIONS  OpenFlow versions to offer (default: all)\n\
         {}\n\
         Other options:\n\
         \x20 -H, --hub               act as hub instead of learning switch\n\
         \x20 -n, --noflow            pass traffic, but don't add flows\n\
         \x20 --max-idle=SECS         max idle time for new flows\n\
         \x20 -N, --normal            use OFPP_NORMAL action\n\
         \x20 -w, --wildcards[=MASK]  wildcard (specified) bits in flows\n\
         \x20 -q, --queue=QUEUE-ID    OpenFlow queue ID to use for output\n\
         \x20 -Q PORT-NAME:QUEUE-ID   use QUEUE-ID for frames from PORT-NAME\n\
         \x20 --with-flows FILE       use the flows from FILE\n\
         \x20 --mute                  connect, and answer nothing\n\
         \x20 --unixctl=SOCKET        override default control socket name\n\
         \x20 -h, --help              display this help message\n\
         \x20 -V, --version           display version information\n",
        tls::Config::usage(),
        daemon::options::usage(program),
        log.usage(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!((max_idle("permanent"), max_idle("1"), max_idle("65535")), (Ok(0), Ok(1), Ok(65535)));
        for bad in ["0", "65536", "-1", "x", ""] {
            assert!(max_idle(bad).is_err(), "{bad}");
        }
        assert_eq!((wildcards("0x2000EC"), wildcards("2820F0")), (0x2000ec, 0x28_20f0));
        assert_eq!((wildcards("0xzz"), queue("5x"), queue("x")), (0, 5, 0));
        assert_eq!(versions("OpenFlow10, OpenFlow1.3"), Ok(Versions::of(&[Version::V10, Version::V13])));
    }
}
