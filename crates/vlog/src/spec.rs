//! The syntax of `vlog/set` and `--verbose`.

use crate::level::{Destination, Level, facility};

/// A parsed specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spec {
    /// A level, for a module or all, and for a destination or all.
    Levels { module: Option<String>, destination: Option<Destination>, level: Level },
    /// A pattern for a destination or all.
    Pattern { destination: Option<Destination>, pattern: String },
    /// A syslog facility.
    Facility(u8),
}

/// Separators of words.
const SEPARATORS: [char; 6] = [' ', ',', ':', '\t', '\r', '\n'];

/// Returns the first word of `text` and the text after the separator behind it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(SEPARATORS);
    text.split_once(SEPARATORS).unwrap_or((text, ""))
}

impl Spec {
    /// Parses `text`; `is_module` knows the modules. The errors are the replies of `vlog/set`.
    pub(crate) fn parse(text: &str, is_module: impl Fn(&str) -> bool) -> Result<Self, String> {
        let (first, rest) = word(text);
        if first.eq_ignore_ascii_case("PATTERN") {
            return Self::parse_pattern(rest);
        }
        if first.eq_ignore_ascii_case("FACILITY") {
            return facility(rest).map(Self::Facility).ok_or_else(|| "invalid facility".to_owned());
        }
        let (mut module, mut destination, mut level) = (None, None, None);
        for word in text.split(SEPARATORS).filter(|word| !word.is_empty()) {
            if word.eq_ignore_ascii_case("any") {
                continue;
            }
            if let Some(found) = Destination::parse(word) {
                set_once(&mut destination, found, "destinations")?;
            } else if let Some(found) = Level::parse(word) {
                set_once(&mut level, found, "levels")?;
            } else {
                let name = word.to_ascii_lowercase();
                if !is_module(&name) {
                    return Err(format!("no destination, level, or module \"{word}\""));
                }
                set_once(&mut module, name, "modules")?;
            }
        }
        Ok(Self::Levels { module, destination, level: level.unwrap_or(Level::Dbg) })
    }

    fn parse_pattern(text: &str) -> Result<Self, String> {
        let (name, pattern) = word(text);
        if name.is_empty() {
            return Err("missing destination".to_owned());
        }
        let destination = match Destination::parse(name) {
            Some(destination) => Some(destination),
            None if name.eq_ignore_ascii_case("any") => None,
            None => return Err(format!("unknown destination \"{name}\"")),
        };
        Ok(Self::Pattern { destination, pattern: pattern.to_owned() })
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("cannot specify multiple {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Spec, String> {
        Spec::parse(text, |name| name == "bridge" || name == "vlog")
    }

    #[test]
    fn levels() {
        let levels = |module: Option<&str>, destination, level| {
            Ok(Spec::Levels { module: module.map(str::to_owned), destination, level })
        };
        assert_eq!(parse(""), levels(None, None, Level::Dbg));
        assert_eq!(parse("ANY:ANY:info"), levels(None, None, Level::Info));
        assert_eq!(parse("console"), levels(None, Some(Destination::Console), Level::Dbg));
        assert_eq!(parse("Bridge, FILE warn"), levels(Some("bridge"), Some(Destination::File), Level::Warn));
        assert_eq!(parse("off:bridge"), levels(Some("bridge"), None, Level::Off));
    }

    #[test]
    fn errors() {
        for (text, error) in [
            ("foo:bar", "no destination, level, or module \"foo\""),
            ("=foo", "no destination, level, or module \"=foo\""),
            ("console:dbg:x:y", "no destination, level, or module \"x\""),
            ("console:dbg:info", "cannot specify multiple levels"),
            ("console:file:info", "cannot specify multiple destinations"),
            ("bridge:vlog:dbg", "cannot specify multiple modules"),
            ("PATTERN", "missing destination"),
            ("PATTERN:x", "unknown destination \"x\""),
            ("PATTERN:bogus:hello", "unknown destination \"bogus\""),
            ("FACILITY:xx", "invalid facility"),
            ("FACILITY", "invalid facility"),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn patterns_and_facilities() {
        assert_eq!(
            parse("PATTERN:file:%d{%H:%M} %m"),
            Ok(Spec::Pattern { destination: Some(Destination::File), pattern: "%d{%H:%M} %m".into() })
        );
        assert_eq!(parse("pattern:any:%m"), Ok(Spec::Pattern { destination: None, pattern: "%m".into() }));
        assert_eq!(parse("facility:local1"), Ok(Spec::Facility(17)));
    }
}
