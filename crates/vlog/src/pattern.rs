//! The patterns of log lines (`vlog/set PATTERN:...`), as ovs-appctl(8) describes them.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

use crate::level::Level;

/// The pattern of dates without a format of their own.
const DATE_FORMAT: &str = "%Y-%m-%d %H:%M:%S.###";

/// The constant parts of messages.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The program (`%A`).
    pub program: String,
    /// The host (`%E`).
    pub host: String,
    /// The process (`%P`).
    pub pid: u32,
    /// When the program started, for `%r`.
    pub started: Timestamp,
}

/// A message to format.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The module (`%c`).
    pub module: &'a str,
    /// The level (`%p`).
    pub level: Level,
    /// The text (`%m`).
    pub message: &'a str,
    /// The serial number within this run (`%N`), from 1.
    pub serial: u64,
    /// When it was logged.
    pub time: Timestamp,
    /// The thread or subprocess (`%t`), empty for the main one.
    pub subprogram: &'a str,
    /// The number of the syslog facility, part of `%B`.
    pub facility: u8,
}

/// Appends `record` in `pattern`, without a newline.
pub fn format(pattern: &str, record: &Record<'_>, identity: &Identity, out: &mut String) {
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (escape, after) = Escape::parse(&rest[at + 1..]);
        escape.expand(record, identity, out);
        rest = after;
    }
    out.push_str(rest);
}

/// One escape: `%`, flags, width, a letter, and for dates a format in braces.
struct Escape<'a> {
    left: bool,
    zero: bool,
    width: usize,
    letter: Option<char>,
    date_format: Option<&'a str>,
}

/// The widest field: a pattern is not a way to fill the memory.
const WIDTH_MAX: usize = 1000;

impl<'a> Escape<'a> {
    /// Parses the text behind the `%`; also returns the text after the escape.
    fn parse(text: &'a str) -> (Self, &'a str) {
        let (left, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (zero, text) = text.strip_prefix('0').map_or((false, text), |text| (true, text));
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let width = text[..digits].parse::<usize>().unwrap_or(0).min(WIDTH_MAX);
        let mut chars = text[digits..].chars();
        let letter = chars.next();
        let mut rest = chars.as_str();
        let mut date_format = None;
        if matches!(letter, Some('d' | 'D'))
            && let Some((format, after)) = rest.strip_prefix('{').and_then(|body| body.split_once('}'))
        {
            date_format = Some(format);
            rest = after;
        }
        (Self { left, zero, width, letter, date_format }, rest)
    }

    fn expand(&self, record: &Record<'_>, identity: &Identity, out: &mut String) {
        let start = out.len();
        // Writing to a string does not fail.
        let _ = match self.letter {
            Some('A') => write!(out, "{}", identity.program),
            Some('B') => write!(out, "{}", u32::from(record.facility) * 8 + u32::from(record.level.severity())),
            Some('c') => write!(out, "{}", record.module),
            Some(letter @ ('d' | 'D')) => {
                out.push_str(&date(record.time, self.date_format.unwrap_or(DATE_FORMAT), letter == 'D'));
                Ok(())
            }
            Some('E') => write!(out, "{}", identity.host),
            Some('m') => write!(out, "{}", record.message),
            Some('N') => write!(out, "{}", record.serial),
            Some('n') => writeln!(out),
            Some('p') => write!(out, "{}", record.level.name()),
            Some('P') => write!(out, "{}", identity.pid),
            Some('r') => {
                let elapsed = record.time.as_millisecond().saturating_sub(identity.started.as_millisecond());
                write!(out, "{}", elapsed.max(0))
            }
            Some('t') => write!(out, "{}", if record.subprogram.is_empty() { "main" } else { record.subprogram }),
            Some('T') if !record.subprogram.is_empty() => write!(out, "({})", record.subprogram),
            Some('T') => Ok(()),
            Some(other) => write!(out, "{other}"),
            None => write!(out, "%"),
        };
        let length = out[start..].chars().count();
        if length < self.width {
            let padding = (if self.zero { "0" } else { " " }).repeat(self.width - length);
            if self.left {
                out.push_str(&padding);
            } else {
                out.insert_str(start, &padding);
            }
        }
    }
}

/// Formats `time` in a strftime(3) format in which `#` stand for digits of the fraction of a second.
pub fn date(time: Timestamp, format: &str, utc: bool) -> String {
    let zone = if utc { TimeZone::UTC } else { TimeZone::system() };
    let zoned = time.to_zoned(zone);
    let config = strtime::Config::new().lenient(true);
    let mut text = String::new();
    // Lenient formatting copies unknown escapes.
    let _ = strtime::BrokenDownTime::from(&zoned).format_with_config(
        &config,
        format,
        &mut jiff::fmt::StdFmtWrite(&mut text),
    );
    if !text.contains('#') {
        return text;
    }
    let fraction = format!("{:03}", time.as_millisecond().rem_euclid(1000));
    let mut digits = fraction.chars().chain(std::iter::repeat('0'));
    text.chars().map(|c| if c == '#' { digits.next().unwrap_or('0') } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(pattern: &str) -> String {
        let time = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        let identity = Identity {
            program: "prog".into(),
            host: "host".into(),
            pid: 42,
            started: Timestamp::from_millisecond(1_700_000_000_000).unwrap(),
        };
        let record = Record {
            module: "bridge",
            level: Level::Warn,
            message: "hello",
            serial: 7,
            time,
            subprogram: "monitor",
            facility: 3,
        };
        let mut out = String::new();
        format(pattern, &record, &identity, &mut out);
        out
    }

    #[test]
    fn the_default_of_files() {
        assert_eq!(
            formatted("%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m"),
            "2023-11-14T22:13:20.123Z|00007|bridge(monitor)|WARN|hello"
        );
    }

    #[test]
    fn every_escape() {
        assert_eq!(formatted("%A %E %P %r %t %B %%|%n|"), "prog host 42 123 monitor 28 %|\n|");
        assert_eq!(formatted("[%-10c][%10p][%3m][%012N]"), "[bridge    ][      WARN][hello][000000000007]");
        assert_eq!(formatted("%D"), "2023-11-14 22:13:20.123");
        assert_eq!(formatted("%D{%h %e %T.#####}"), "Nov 14 22:13:20.12300");
    }

    #[test]
    fn invalid_patterns_do_not_panic() {
        assert_eq!(formatted("%"), "%");
        assert_eq!(formatted("%5"), "    %");
        assert_eq!(formatted("%é%D{%Y"), "é2023-11-14 22:13:20.123{%Y".replace("%Y", "Y"));
    }
}
