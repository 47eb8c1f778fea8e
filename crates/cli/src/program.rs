//! The name under which a program was called, its version text, and the way it reports a fatal error.
//!
//! Scripts read both: `PROG (Open vSwitch) X.Y.Z` on the first line of `--version`, and `PROG: MESSAGE` on
//! standard error. `getopt` alone prefixes its errors with the whole of `argv[0]`; everything else uses its base name.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use crate::options::UsageError;

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

/// The number at the beginning of `text`, as C's `strtol` reads it: after spaces and a sign, as far as there are digits, the
/// nearest that fits if it is too large, 0 without digits. Base 16 also accepts `0x`. In base 0, `0x` begins a
/// hexadecimal number, and another 0 an octal one.
pub fn leading_integer(text: &str, radix: u32) -> i64 {
    let text = text.trim_start_matches(|ch: char| ch.is_ascii_whitespace());
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match (radix, hexadecimal) {
        (0 | 16, Some(rest)) => (16, rest),
        (0, None) => (if digits.starts_with('0') { 8 } else { 10 }, digits),
        _ => (radix, digits),
    };
    digits.chars().map_while(|ch| ch.to_digit(radix)).fold(0_i64, |number, digit| {
        let (radix, digit) = (i64::from(radix), i64::from(digit));
        number.saturating_mul(radix).saturating_add(if is_negative { -digit } else { digit })
    })
}

/// The time limit in seconds that the environment sets for client programs (`OVS_CTL_TIMEOUT`); 0 is none.
pub fn default_timeout_s() -> u32 {
    std::env::var("OVS_CTL_TIMEOUT").ok().and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The reason for which a program ends with exit code 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// An error of the command line in the words of `getopt`, which name the program.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// A message to print after the name of the program.
    #[error("{0}")]
    Message(String),
    /// An error that the log reports, which is the only report.
    #[error("the log has the reason")]
    Logged,
}

impl Fatal {
    /// Prints the error of `program` on standard error, unless the log has it, and returns the exit code.
    pub fn report(&self, program: &str) -> ExitCode {
        match self {
            Self::Usage(error) => eprintln!("{error}"),
            Self::Message(message) => eprintln!("{program}: {message}"),
            Self::Logged => {}
        }
        ExitCode::FAILURE
    }
}

impl From<String> for Fatal {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<&str> for Fatal {
    fn from(message: &str) -> Self {
        Self::Message(message.to_owned())
    }
}

/// Prints `PROG: MESSAGE` on standard error and returns the exit code 1, which the programs use for every fatal error.
pub fn fail(program: &str, message: impl Display) -> ExitCode {
    eprintln!("{program}: {message}");
    ExitCode::FAILURE
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
    fn numbers_are_read_as_far_as_they_go() {
        let cases = [("", 0), ("x", 0), (" 5x", 5), ("-1", -1), ("+7", 7), ("1234567890123456789012", i64::MAX)];
        for (text, number) in cases {
            assert_eq!(leading_integer(text, 10), number, "{text}");
        }
        assert_eq!(leading_integer("-99999999999999999999", 10), i64::MIN);
        assert_eq!(["0100", "0x10", "10", "08"].map(|text| leading_integer(text, 0)), [64, 16, 10, 0]);
        assert_eq!((leading_integer("0x1Fg", 16), leading_integer("ff", 16), leading_integer("0x1", 10)), (31, 255, 0));
    }

    #[test]
    fn version_begins_as_scripts_expect() {
        assert!(version_text("ovs-vsctl").starts_with("ovs-vsctl (Open vSwitch) 4.0."));
    }
}
