//! The command line of ovsdb-server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use cli::{Arg, Fatal, Opt, Parser};
use daemon::DaemonOptions;
use ovsdb_server::{Excluded, Pki, RunningConfig, Source};

const OPTIONS: &[Opt] = &[
    Opt::new("remote", Arg::Required),
    Opt::new("run", Arg::Required),
    Opt::new("disable-file-column-diff", Arg::None),
    Opt::new("disable-file-no-data-conversion", Arg::None),
    Opt::new("sync-from", Arg::Required),
    Opt::new("sync-exclude-tables", Arg::Required),
    Opt::new("active", Arg::None),
    Opt::new("no-dbs", Arg::None),
    Opt::new("record", Arg::Optional),
    Opt::new("replay", Arg::Optional),
    Opt::new("config-file", Arg::Required),
    Opt::new("private-key", Arg::Required).short('p'),
    Opt::new("certificate", Arg::Required).short('c'),
    Opt::new("ca-cert", Arg::Required).short('C'),
    Opt::new("bootstrap-ca-cert", Arg::Required),
    Opt::new("peer-ca-cert", Arg::Required),
    Opt::new("ssl-protocols", Arg::Required),
    Opt::new("ssl-ciphers", Arg::Required),
    Opt::new("ssl-ciphersuites", Arg::Required),
    Opt::new("ssl-server-name", Arg::Required),
];

/// The requested action.
pub(super) enum Invocation {
    /// Runs the server.
    Serve(Box<Options>),
    /// Print a text and end.
    Print(String),
}

/// The source of a database.
#[derive(Debug)]
pub(super) enum Origin {
    /// From a file.
    File(PathBuf),
    /// From another server, by this name.
    Relay(String, Source),
}

impl Origin {
    /// Reads a database as the command line names it.
    fn parse(text: &str) -> Result<Self, String> {
        match Source::parse_relay(text) {
            Some(relay) => relay.map(|(name, source)| Self::Relay(name, source)).map_err(|error| error.to_string()),
            None => Ok(Self::File(PathBuf::from(text))),
        }
    }
}

/// How to serve.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) daemon: DaemonOptions,
    pub(super) databases: Vec<Origin>,
    pub(super) remotes: Vec<String>,
    /// `--sync-from`.
    pub(super) sync_from: Option<Source>,
    /// `--sync-exclude-tables`.
    pub(super) excluded: Excluded,
    /// `--active`.
    pub(super) begins_active: bool,
    /// `--no-dbs`: without the default database.
    no_default: bool,
    /// `--config-file`.
    pub(super) config_file: Option<PathBuf>,
    /// `--run`.
    pub(super) run: Option<String>,
    /// `--disable-file-column-diff`.
    pub(super) no_column_diff: bool,
    /// Keys and certificates.
    pub(super) pki: Pki,
}

/// Reads the command line.
pub(super) fn parse(args: Vec<OsString>, program: &str, log: &Arc<vlog::Log>) -> Result<Invocation, Fatal> {
    let mut options = Options::default();
    let mut parser = Parser::new(args, &[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, cli::options::HELP_AND_VERSION]);
    for found in parser.by_ref() {
        let found = found?;
        match (found.id, found.value.as_deref()) {
            ("help", _) => return Ok(Invocation::Print(usage(program, log))),
            ("version", _) => return Ok(Invocation::Print(cli::version_text(program))),
            (id, value) => {
                let own = options.accept(id, value)?;
                if !own && !options.daemon.accept(id, value)? {
                    log.accept(id, value)?;
                }
            }
        }
    }
    for database in parser.positionals() {
        options.databases.push(Origin::parse(database)?);
    }
    if options.config_file.is_some() {
        options.check_config_file_alone()?;
    } else if options.databases.is_empty() && !options.no_default {
        options.databases.push(Origin::File(daemon::dirs::dbdir().join("conf.db")));
    }
    Ok(Invocation::Serve(Box::new(options)))
}

impl Options {
    /// Overrides the settings of the command line with the configuration of a process that crashed.
    pub(super) fn restore(&mut self, config: &RunningConfig) -> Result<(), String> {
        self.databases = config.databases.iter().map(|text| Origin::parse(text)).collect::<Result<_, _>>()?;
        self.remotes.clone_from(&config.remotes);
        self.sync_from = config.active_server.as_deref().map(Source::parse).transpose()?;
        self.excluded = Excluded::from(config.excluded.as_str());
        self.begins_active = !config.is_backup;
        Ok(())
    }

    /// Checks that the command line has no settings that a configuration file sets.
    fn check_config_file_alone(&self) -> Result<(), String> {
        let others = [
            (!self.remotes.is_empty(), "--config-file is mutually exclusive with --remote"),
            (
                self.sync_from.is_some() || self.excluded != Excluded::default() || self.begins_active,
                "--config-file is mutually exclusive with --sync-from, --sync-exclude and --active",
            ),
            (!self.databases.is_empty(), "Databases should be specified in a config file"),
        ];
        match others.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, reason)) => Err(reason.to_owned()),
            None => Ok(()),
        }
    }

    fn accept(&mut self, id: &str, value: Option<&str>) -> Result<bool, String> {
        match (id, value) {
            ("remote", Some(remote)) => self.remotes.push(remote.to_owned()),
            ("run", Some(command)) => self.run = Some(command.to_owned()),
            ("disable-file-column-diff", _) => self.no_column_diff = true,
            // Conversions without data are those of clustered databases; the files of others always have the data.
            ("disable-file-no-data-conversion", _) => {}
            ("sync-from", Some(server)) => {
                self.sync_from = Some(Source::parse(server).map_err(|error| format!("--{id}: {error}"))?);
            }
            ("sync-exclude-tables", Some(tables)) => {
                self.excluded = Excluded::from(tables);
            }
            ("active", _) => self.begins_active = true,
            ("no-dbs", _) => self.no_default = true,
            ("record" | "replay", _) => return Err(format!("--{id}: recording and replaying are not supported")),
            // A daemon may change its folder before it reads the file again.
            ("config-file", Some(file)) => {
                self.config_file = Some(std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file)));
            }
            (id, value) => return Ok(self.pki.accept(id, value.unwrap_or_default())),
        }
        Ok(true)
    }
}

fn usage(program: &str, log: &Arc<vlog::Log>) -> String {
    format!(
        "{program}: Open vSwitch database server\n\
         usage: {program} [OPTIONS] [DATABASE...]\n\
         where each DATABASE is a database file in ovsdb format, or\n\
         relay:DB_NAME:REMOTE[,REMOTE]... to relay a database of another server.\n\
         The default DATABASE, if none is given, is\n\
         {}.\n\
         \n\
         JSON-RPC options (may be specified any number of times):\n\
         \x20 --remote=REMOTE         connect or listen to REMOTE\n\
         Passive OVSDB connection methods:\n\
         \x20 ptcp:[PORT][:IP]        listen to TCP PORT (default: 6640) on IP\n\
         \x20 pssl:[PORT][:IP]        the same, for SSL\n\
         \x20 punix:FILE              listen on Unix domain socket FILE\n\
         Active OVSDB connection methods:\n\
         \x20 tcp:HOST:PORT           PORT at remote HOST\n\
         \x20 ssl:HOST:PORT           the same, for SSL\n\
         \x20 unix:FILE               Unix domain socket named FILE\n\
         Addresses held by a database:\n\
         \x20 db:DB,TABLE,COLUMN      each address in COLUMN of TABLE in DB\n\
         {}\
         \x20 --bootstrap-ca-cert=FILE  the same, taken from the first server if not there\n\
         \x20 --peer-ca-cert=FILE     file with CA certificate to show to peers\n\
         \x20                         each may be db:DB,TABLE,COLUMN, for what COLUMN of TABLE in DB has\n\
         SSL options:\n\
         \x20 --ssl-protocols=PROTOS  list of TLS versions to use\n\
         \x20 --ssl-ciphers=CIPHERS   list of ciphers of TLS 1.2 to use\n\
         \x20 --ssl-ciphersuites=SUITES  list of ciphers of TLS 1.3 to use\n\
         \x20 --ssl-server-name=NAME  server name to send in TLS handshakes (SNI)\n\
         {}{}\n\
         Syncing options:\n\
         \x20 --sync-from=SERVER      copy databases from the active SERVER, as its backup\n\
         \x20 --sync-exclude-tables=DB:TABLE[,DB:TABLE]...\n\
         \x20                         do not copy TABLE of DB\n\
         \x20 --active                with --sync-from, begin as an active server\n\
         \n\
         Other options:\n\
         \x20 --config-file=FILE      take remotes and databases from FILE\n\
         \x20 --no-dbs                do not serve the default database\n\
         \x20 --run COMMAND           run COMMAND as subprocess then exit\n\
         \x20 --unixctl=SOCKET        override default control socket name\n\
         \x20 --disable-file-column-diff\n\
         \x20                         don't use column diff in database file\n\
         \x20 -h, --help              display this help message\n\
         \x20 -V, --version           display version information\n",
        daemon::dirs::dbdir().join("conf.db").display(),
        tls::Config::usage(),
        daemon::options::usage(program),
        super::logging_usage(log),
    )
}

/// The options, for completion in a shell.
pub(super) fn vocabulary() -> cli::completion::Vocabulary {
    let fragments = [OPTIONS, daemon::OPTIONS, vlog::OPTIONS, cli::options::HELP_AND_VERSION];
    cli::completion::Vocabulary::new(&fragments, [])
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn recording_and_replaying_are_refused_by_name() {
        for option in ["record", "replay"] {
            let refused = Options::default().accept(option, None);
            assert_eq!(refused, Err(format!("--{option}: recording and replaying are not supported")));
        }
    }

    #[test]
    fn tls_options_are_accepted() {
        let mut options = Options::default();
        assert_eq!(options.accept("private-key", Some("db:Open_vSwitch,SSL,private_key")), Ok(true));
        assert_eq!(options.accept("ca-cert", Some("/etc/ca.pem")), Ok(true));
        assert_ne!(options.pki, ovsdb_server::Pki::default());
        assert_eq!(options.accept("ssl-protocols", Some("SSLv3")), Ok(true));
        assert_eq!(options.accept("detach", None), Ok(false));
    }
}
