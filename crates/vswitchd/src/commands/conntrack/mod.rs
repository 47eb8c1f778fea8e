//! `dpctl/`: connection tracking of a datapath (ovs-dpctl(8)).
//!
//! - [`list`]: connections, expectations and their numbers; [`flush`]: removal of connections;
//! - [`settings`]: maximum, sequence checks and sweeps; [`limits`]: limits of zones; [`fragments`]: reassembly.

mod flush;
mod fragments;
mod limits;
mod list;
mod settings;

use super::dpctl::{self, split_options};
use crate::devices::{Devices, Dp};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    list::register(commands, devices);
    flush::register(commands, devices);
    settings::register(commands, devices);
    limits::register(commands, devices);
    fragments::register(commands, devices);
}

/// The options in front of a command's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Options {
    /// `-m`.
    more: bool,
    /// `-s`.
    statistics: bool,
}

/// The options, of which all commands take the same ones, and the words.
fn options(args: &[String]) -> Result<(Options, &[String]), String> {
    let mut found = Options::default();
    let (options, words) = split_options(args);
    for option in options {
        match option.strip_prefix("--") {
            Some("more") => found.more = true,
            Some("statistics") => found.statistics = true,
            Some("names" | "no-names" | "clear" | "may-create") => {}
            None if option.bytes().skip(1).all(|letter| matches!(letter, b'm' | b's')) => {
                found.more |= option.contains('m');
                found.statistics |= option.contains('s');
            }
            _ => return Err(format!("Unrecognized option {option}")),
        }
    }
    Ok((found, words))
}

/// The datapath that the first word names, or else the only one, and the other words. `words_max` words without the name of
/// a datapath are an error; as in Open vSwitch, more are none.
fn open<'a>(devices: &Devices, words: &'a [String], words_max: usize) -> Result<(Dp, &'a [String]), String> {
    match words.split_first() {
        Some((name, rest)) if dpctl::exists(devices, name) => Ok((dpctl::selected(devices, Some(name))?, rest)),
        _ if words.len() == words_max => Err(invalid("datapath not found")),
        _ => Ok((dpctl::selected(devices, None)?, words)),
    }
}

fn invalid(problem: impl std::fmt::Display) -> String {
    format!("ovs-vswitchd: {problem} (Invalid argument)")
}

fn not_permitted(problem: &str) -> String {
    format!("ovs-vswitchd: {problem} (Operation not permitted)")
}

/// An answer in the form that was asked for.
fn answer(
    format: OutputFormat,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> serde_json::Value,
) -> super::Shown {
    match format {
        OutputFormat::Text => text().into(),
        OutputFormat::Json => json().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_in_front() {
        let parsed = |words: &[&str]| {
            let args: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            options(&args).map(|(options, words)| (options.more, options.statistics, words.len()))
        };
        assert_eq!(parsed(&["-m", "zone=1", "-s"]), Ok((true, false, 2)));
        assert_eq!(parsed(&["-ms", "--names"]), Ok((true, true, 0)));
        assert_eq!(parsed(&["--more", "--statistics", "x"]), Ok((true, true, 1)));
        assert_eq!(parsed(&["-x"]), Err("Unrecognized option -x".to_owned()));
        assert_eq!(parsed(&["--read-only"]), Err("Unrecognized option --read-only".to_owned()));
    }
}
