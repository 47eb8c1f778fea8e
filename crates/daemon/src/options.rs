//! The options that every daemon has.

use std::path::PathBuf;

use cli::{Arg, Opt};

use crate::dirs;

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
    /// `--hw-rawio-access` of the switch: under `--user` it keeps the capability for raw I/O, too.
    pub raw_io: bool,
    /// Also a property: the program's output goes to standard error, which stays open when it is
    /// detached. Log messages do not use it then.
    pub keep_stderr: bool,
    /// `--unixctl`.
    pub unixctl: Option<String>,
}

impl DaemonOptions {
    /// Handles an option of [`OPTIONS`]; returns `false` if `id` is none of them.
    pub fn accept(&mut self, id: &str, value: Option<&str>) -> bool {
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
            "user" => self.user = value.map(str::to_owned),
            "unixctl" => self.unixctl = value.map(str::to_owned),
            _ => return false,
        }
        true
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
        assert!(options.accept("pidfile", Some("/a/b.pid")));
        assert!(options.accept("unixctl", Some("/a/b.ctl")));
        assert!(!options.accept("remote", Some("x")));
        assert_eq!(options.pidfile_path("p"), Some("/a/b.pid".into()));
        assert_eq!(options.control_path("p"), Some("/a/b.ctl".into()));
        assert!(options.accept("unixctl", Some("none")));
        assert_eq!(options.control_path("p"), None);
    }
}
