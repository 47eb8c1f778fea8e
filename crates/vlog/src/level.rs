//! Log levels, destinations and syslog facilities.

/// The severity of a message, the most severe first; as the setting of a destination, the least severe level that it
/// logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// No message has this level: a destination set to it is off.
    Off,
    /// A failure that aborts the process.
    Emer,
    /// A high-level operation failed.
    Err,
    /// A low-level operation failed; others may recover.
    Warn,
    /// Information for a later analysis.
    Info,
    /// Debugging messages for developers.
    Dbg,
}

impl Level {
    const ALL: [Self; 6] = [Self::Off, Self::Emer, Self::Err, Self::Warn, Self::Info, Self::Dbg];

    /// The name in log lines and lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Emer => "EMER",
            Self::Err => "ERR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
            Self::Dbg => "DBG",
        }
    }

    /// Returns the level of that name, ignoring case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }

    /// The level of a tracing event; `None` for traces, which are never logged.
    pub fn of(level: tracing::Level) -> Option<Self> {
        match level {
            tracing::Level::ERROR => Some(Self::Err),
            tracing::Level::WARN => Some(Self::Warn),
            tracing::Level::INFO => Some(Self::Info),
            tracing::Level::DEBUG => Some(Self::Dbg),
            tracing::Level::TRACE => None,
        }
    }

    pub(crate) fn from_u8(value: u8) -> Self {
        Self::ALL.get(usize::from(value)).copied().unwrap_or(Self::Dbg)
    }

    /// The severity in syslog (RFC 5424, section 6.2.1).
    pub(crate) const fn severity(self) -> u8 {
        match self {
            Self::Off | Self::Emer => 1,
            Self::Err => 3,
            Self::Warn => 4,
            Self::Info => 5,
            Self::Dbg => 7,
        }
    }
}

/// A destination of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The system log.
    Syslog,
    /// Standard error.
    Console,
    /// The log file.
    File,
}

impl Destination {
    /// All of them, in the order of `vlog/list-pattern`.
    pub const ALL: [Self; 3] = [Self::Syslog, Self::Console, Self::File];

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Syslog => 0,
            Self::Console => 1,
            Self::File => 2,
        }
    }

    /// The name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syslog => "SYSLOG",
            Self::Console => "CONSOLE",
            Self::File => "FILE",
        }
    }

    /// Returns the destination of that name, ignoring case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|destination| destination.name().eq_ignore_ascii_case(name))
    }
}

/// The names of the facilities, by their number (RFC 5424, section 6.2.1).
const FACILITIES: [&str; 23] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "clock", "ftp", "ntp", "audit", "alert",
    "clock2", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// The facility `daemon`, the default of the local syslog.
pub(crate) const FACILITY_DAEMON: u8 = 3;
/// The facility `local0`, the default of `--syslog-target`.
pub(crate) const FACILITY_LOCAL0: u8 = 16;

/// The number of the facility of that name.
pub(crate) fn facility(name: &str) -> Option<u8> {
    let index = FACILITIES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
    // 15 is a second clock in RFC 5424; the local facilities begin at 16.
    let number = if index >= 15 { index + 1 } else { index };
    u8::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Level::parse("dBg"), Some(Level::Dbg));
        assert_eq!(Level::parse("debug"), None);
        assert_eq!(Destination::parse("Console"), Some(Destination::Console));
        assert_eq!(facility("daemon"), Some(FACILITY_DAEMON));
        assert_eq!(facility("LOCAL0"), Some(FACILITY_LOCAL0));
        assert_eq!(facility("local7"), Some(23));
        assert_eq!(facility("clock2"), Some(14));
        assert_eq!(facility(""), None);
    }
}
