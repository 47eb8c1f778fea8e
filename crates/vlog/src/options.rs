//! The logging options that every program has.

use std::path::PathBuf;

use cli::{Arg, Fatal, Opt};

use crate::level::Level;
use crate::log::Log;

/// `-v`, `--log-file`, `--syslog-method`, `--syslog-target`.
pub const OPTIONS: &[Opt] = &[
    Opt::new("verbose", Arg::Optional).short('v'),
    Opt::new("log-file", Arg::Optional),
    Opt::new("syslog-method", Arg::Required),
    Opt::new("syslog-target", Arg::Required),
];

impl Log {
    /// Applies an option of [`OPTIONS`]; returns `false` if `id` is none of them. The program prints the error after
    /// its name.
    pub fn accept(&self, id: &str, value: Option<&str>) -> Result<bool, Fatal> {
        match (id, value) {
            ("verbose", None) => self.set_level(None, None, Level::Dbg),
            ("verbose", Some(spec)) => self.set(spec).map_err(|error| format!("processing \"{spec}\": {error}"))?,
            ("log-file", path) => self.set_file(path.map_or_else(|| self.default_file(), PathBuf::from))?,
            ("syslog-method", Some(method)) => self.set_syslog_method(method)?,
            ("syslog-target", Some(target)) => self.set_syslog_target(target),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `$OVS_LOGDIR/PROGRAM.log`, or the same in /var/log/openvswitch.
    pub fn default_file(&self) -> PathBuf {
        let directory = std::env::var_os("OVS_LOGDIR").filter(|directory| !directory.is_empty());
        let directory = directory.map_or_else(|| PathBuf::from("/var/log/openvswitch"), PathBuf::from);
        directory.join(format!("{}.log", self.program()))
    }

    /// The part of a program's `--help` about these options.
    pub fn usage(&self) -> String {
        format!(
            "\nLogging options:\n\
             \x20 -vSPEC, --verbose=SPEC   set logging levels\n\
             \x20 -v, --verbose            set maximum verbosity level\n\
             \x20 --log-file[=FILE]        enable logging to specified FILE\n\
             \x20                          (default: {})\n\
             \x20 --syslog-method=(libc|unix:file|udp:ip:port)\n\
             \x20                          specify how to send messages to syslog daemon\n\
             \x20 --syslog-target=HOST:PORT  also send syslog msgs to HOST:PORT via UDP\n",
            self.default_file().display()
        )
    }
}
