//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli::{Arg, Fatal, HELP_AND_VERSION, Opt, Parser};

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Options {
    /// The command line as given.
    pub(crate) command_line: Vec<OsString>,
    pub(crate) daemon: daemon::DaemonOptions,
    pub(crate) tls: tls::Config,
    /// The physical switch.
    pub(crate) name: String,
    /// The directory with the sockets of the switch and, by default, of its database server.
    pub(crate) rundir: PathBuf,
    /// The server of the database Open_vSwitch.
    pub(crate) switch_db: String,
    /// The server of the database hardware_vtep.
    pub(crate) vtep_db: String,
}

const OPTIONS: &[Opt] = &[
    Opt::new("root-prefix", Arg::Required),
    Opt::new("db", Arg::Required),
    Opt::new("vtep-db", Arg::Required),
    Opt::new("private-key", Arg::Required).short('p'),
    Opt::new("certificate", Arg::Required).short('c'),
    Opt::new("ca-cert", Arg::Required).short('C'),
    Opt::new("ssl-protocols", Arg::Required),
    Opt::new("ssl-ciphers", Arg::Required),
    Opt::new("ssl-ciphersuites", Arg::Required),
    Opt::new("ssl-server-name", Arg::Required),
];

/// The options, for shell completion.
pub(crate) fn vocabulary() -> cli::completion::Vocabulary {
    cli::completion::Vocabulary::new(&[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION], [])
}

/// Parses the command line; `None` if the program is to exit successfully.
pub(crate) fn parse(args: Vec<OsString>, program: &str, log: &Arc<vlog::Log>) -> Result<Option<Options>, Fatal> {
    let command_line = args.clone();
    let mut daemon = daemon::DaemonOptions::default();
    let mut tls = tls::Config::default();
    let (mut root, mut switch_db, mut vtep_db) = (None, None, None);
    let mut parser = Parser::new(args, &[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION]);
    for found in parser.by_ref() {
        let found = found?;
        let (id, given) = (found.id, found.value);
        match id {
            "help" => {
                cli::print_or_end(&usage(program, log));
                return Ok(None);
            }
            "version" => {
                cli::print_or_end(&cli::version_text(program));
                return Ok(None);
            }
            "root-prefix" => root = given,
            "db" => switch_db = given,
            "vtep-db" => vtep_db = given,
            _ if tls.accept(id, given.as_deref().unwrap_or_default()) => {}
            _ if daemon.accept(id, given.as_deref())? => {}
            _ => {
                log.accept(id, given.as_deref())?;
            }
        }
    }
    let name = match parser.into_positionals().as_slice() {
        [name] if name.contains('/') => return Err(format!("{name}: not the name of a bridge").into()),
        [name] => name.clone(),
        [] => return Err("the name of the physical switch is required; use --help for usage".into()),
        _ => return Err("only one physical switch is accepted; use --help for usage".into()),
    };
    let rundir = below(root.as_deref(), &daemon::dirs::rundir());
    let default_db = format!("unix:{}", rundir.join("db.sock").display());
    let switch_db = switch_db.unwrap_or_else(|| default_db.clone());
    let vtep_db = vtep_db.unwrap_or(default_db);
    Ok(Some(Options { command_line, daemon, tls, name, rundir, switch_db, vtep_db }))
}

/// A directory in the tree with this root.
fn below(root: Option<&str>, directory: &Path) -> PathBuf {
    let Some(root) = root else { return directory.to_owned() };
    let joined = Path::new(root).join(directory.strip_prefix("/").unwrap_or(directory));
    // A daemon changes its directory.
    std::path::absolute(&joined).unwrap_or(joined)
}

fn usage(program: &str, log: &vlog::Log) -> String {
    let socket = daemon::dirs::rundir().join("db.sock");
    format!(
        "{program}: VTEP emulator\n\
         usage: {program} [OPTIONS] PS-NAME\n\
         where PS-NAME is a physical switch of the database hardware_vtep, and its bridge.\n\
         \n\
         Databases (default: unix:{}):\n\
         \x20 --db=SERVER             server of the database Open_vSwitch\n\
         \x20 --vtep-db=SERVER        server of the database hardware_vtep\n\
         \x20 --root-prefix=DIR       sockets of servers and bridges are below DIR, by default\n\
         {}{}{}\n\
         Other options:\n\
         \x20 --unixctl=SOCKET        override default control socket name\n\
         \x20 -h, --help              display this help message\n\
         \x20 -V, --version           display version information\n",
        socket.display(),
        tls::Config::usage(),
        daemon::options::usage(program),
        log.usage(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_below_the_root() {
        assert_eq!(below(None, Path::new("/var/run")), Path::new("/var/run"));
        assert_eq!(below(Some("/tmp/tree"), Path::new("/var/run")), Path::new("/tmp/tree/var/run"));
        assert!(below(Some("root"), Path::new("run")).is_absolute());
    }
}
