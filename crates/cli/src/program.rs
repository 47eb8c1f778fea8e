//! The name under which a program was called, its version text, and the way it reports a fatal error.
//!
//! Scripts read both: `PROG (Open vSwitch) X.Y.Z` on the first line of `--version`, and `PROG: MESSAGE` on
//! standard error. `getopt` alone prefixes its errors with the whole of `argv[0]`; everything else uses its base name.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The Open vSwitch release whose command lines, schema and protocols the programs implement.
pub const COMPATIBLE_VERSION: &str = "4.0.0";

/// The version of Flowstone itself.
pub const FLOWSTONE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Follows the program's name in the `argv[0]` of a process that watches a daemon, so that listings distinguish the two
/// apart.
pub const MONITOR_TITLE: &str = ": monitoring";

/// The base name of `argv[0]`, as error messages, pid files and log files use it, without [`MONITOR_TITLE`];
/// `flowstone` if it is empty.
pub fn program_name(argv0: &OsStr) -> String {
    Path::new(argv0)
        .file_name()
        .map(|name| name.to_string_lossy().trim_end_matches(MONITOR_TITLE).to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "flowstone".to_owned())
}

/// [`program_name`] of a whole argument vector.
pub fn program_name_of(args: &[OsString]) -> String {
    program_name(args.first().map_or(OsStr::new(""), OsString::as_os_str))
}

/// The output of `--version` and of the control command `version`, with its newlines.
pub fn version_text(program: &str) -> String {
    format!("{program} (Open vSwitch) {COMPATIBLE_VERSION}\nFlowstone {FLOWSTONE_VERSION}\n")
}

/// The time limit in seconds that the environment sets for client programs (`OVS_CTL_TIMEOUT`); 0 is none.
pub fn default_timeout_s() -> u32 {
    std::env::var("OVS_CTL_TIMEOUT").ok().and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Prints `PROG: MESSAGE` on standard error and returns the exit code 1, which the programs use for every fatal error.
pub fn fail(program: &str, message: impl Display) -> ExitCode {
    eprintln!("{program}: {message}");
    ExitCode::FAILURE
}

/// Writes `text` to standard output. A closed reader is no failure: `PROG ... | head` succeeds.
pub fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_base_names() {
        assert_eq!(program_name(OsStr::new("/usr/bin/ovs-vsctl")), "ovs-vsctl");
        assert_eq!(program_name(OsStr::new("./ovs-vsctl")), "ovs-vsctl");
        assert_eq!(program_name(OsStr::new("/sbin/ovs-vswitchd: monitoring")), "ovs-vswitchd");
        assert_eq!(program_name(OsStr::new("")), "flowstone");
    }

    #[test]
    fn version_begins_as_scripts_expect() {
        assert!(version_text("ovs-vsctl").starts_with("ovs-vsctl (Open vSwitch) 4.0."));
    }
}
