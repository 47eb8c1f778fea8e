//! The options that every daemon has.

use std::path::PathBuf;

use cli::{Arg, Fatal, Opt};

use crate::dirs;
use crate::stage::Stage;
use crate::user::{self, UserError};

/// `--pidfile`, `--overwrite-pidfile`, `--detach`, `--monitor`, `--no-chdir`, `--no-self-confinement`, `--user`,
/// `--unixctl`. Logging options are in [`vlog::OPTIONS`], `--help` and `--version` in
/// [`cli::options::HELP_AND_VERSION`].
pub const OPTIONS: &[Opt] = &[
    Opt::new("detach", Arg::None),
    Opt::new("no-chdir", Arg::None),
    Opt::new("pidfile", Arg::Optional),
    Opt::new("overwrite-pidfile", Arg::None),
    Opt::new("monitor", Arg::None),
    Opt::new("no-self-confinement", Arg::None),
    Opt::new("user", Arg::Required),
    Opt::new("unixctl", Arg::Required),
];

/// The requested pid file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PidFileName {
    /// PROGRAM.pid.
    Default,
    /// By this name.
    Named(PathBuf),
}

/// The parsed options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonOptions {
    /// `--pidfile`.
    pub pidfile: Option<PidFileName>,
    /// `--overwrite-pidfile`: start even if the pid file belongs to a running process.
    pub overwrite_pidfile: bool,
    /// `--detach`: run in the background.
    pub detach: bool,
    /// `--monitor`: restart after crashes.
    pub monitor: bool,
    /// `--no-chdir`: stay in the directory after detaching.
    pub no_chdir: bool,
    /// `--no-self-confinement`: the database may name sockets everywhere.
    pub no_self_confinement: bool,
    /// `--user`: the user and group to run as.
    pub user: Option<String>,
    /// A property of the program, not an option: under `--user` it keeps the capabilities that network devices need.
    pub datapath_access: bool,
    /// Under `--user` the daemon keeps the capability for raw I/O, too.
    pub raw_io: bool,
    /// Also a property: the program's output goes to standard error, which stays open when it is
    /// detached. Log messages do not use it then.
    pub keep_stderr: bool,
    /// `--unixctl`.
    pub unixctl: Option<String>,
}

impl DaemonOptions {
    /// Handles an option of [`OPTIONS`]; returns `false` if `id` is none of them.
    ///
    /// # Errors
    ///
    /// The user or group does not exist, or the process may not change to it.
    pub fn accept(&mut self, id: &str, value: Option<&str>) -> Result<bool, Fatal> {
        match id {
            "pidfile" => {
                let name = value.map_or(PidFileName::Default, |path| PidFileName::Named(path.into()));
                self.pidfile = Some(name);
            }
            "overwrite-pidfile" => self.overwrite_pidfile = true,
            "detach" => self.detach = true,
            "monitor" => self.monitor = true,
            "no-chdir" => self.no_chdir = true,
            "no-self-confinement" => self.no_self_confinement = true,
            "user" => {
                if Stage::current() == Stage::First {
                    self.check_user(value.unwrap_or_default())?;
                }
                self.user = value.map(str::to_owned);
            }
            "unixctl" => self.unixctl = value.map(str::to_owned),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The error begins with the pid file, if one was requested before.
    fn check_user(&self, spec: &str) -> Result<(), Fatal> {
        user::check(spec).map_err(|error| {
            match (&error, self.pidfile_path(&cli::program_name_of(&std::env::args_os().collect::<Vec<_>>()))) {
                (UserError::NoUser(_) | UserError::NoGroup(_), Some(path)) => {
                    format!("{}: {error}", path.display()).into()
                }
                _ => error.to_string().into(),
            }
        })
    }

    /// The path of the pid file, if one is requested.
    pub fn pidfile_path(&self, program: &str) -> Option<PathBuf> {
        Some(match self.pidfile.as_ref()? {
            PidFileName::Default => default_pidfile(program),
            PidFileName::Named(path) => dirs::within(&dirs::rundir(), path),
        })
    }

    /// The path of the control socket, unless it is turned off.
    pub fn control_path(&self, program: &str) -> Option<PathBuf> {
        match self.unixctl.as_deref() {
            Some("none") => None,
            Some(path) => Some(dirs::within(&dirs::rundir(), path)),
            None => Some(default_control_path(program, std::process::id())),
        }
    }
}

fn default_pidfile(program: &str) -> PathBuf {
    dirs::within(&dirs::rundir(), format!("{program}.pid"))
}

/// The default path of the control socket of the process `pid`.
pub fn default_control_path(program: &str, pid: u32) -> PathBuf {
    dirs::within(&dirs::rundir(), format!("{program}.{pid}.ctl"))
}

/// The part of a daemon's `--help` about these options, without `--unixctl`, which belongs to the other options.
pub fn usage(program: &str) -> String {
    format!(
        "\nDaemon options:\n\
         \x20 --detach                run in background as daemon\n\
         \x20 --no-self-confinement   let the database name sockets everywhere\n\
         \x20 --monitor               creates a process to monitor this daemon\n\
         \x20 --user=username[:group] changes the effective daemon user:group\n\
         \x20 --no-chdir              do not chdir to '/'\n\
         \x20 --pidfile[=FILE]        create pidfile (default: {})\n\
         \x20 --overwrite-pidfile     with --pidfile, start even if already running\n",
        default_pidfile(program).display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_names_stay() {
        let mut options = DaemonOptions::default();
        assert_eq!((options.pidfile_path("p"), options.detach), (None, false));
        assert_eq!(options.accept("pidfile", Some("/a/b.pid")), Ok(true));
        assert_eq!(options.accept("unixctl", Some("/a/b.ctl")), Ok(true));
        assert_eq!(options.accept("remote", Some("x")), Ok(false));
        assert_eq!(options.pidfile_path("p"), Some("/a/b.pid".into()));
        assert_eq!(options.control_path("p"), Some("/a/b.ctl".into()));
        assert_eq!(options.accept("unixctl", Some("none")), Ok(true));
        assert_eq!(options.control_path("p"), None);
    }
}
