//! `dpctl/add-dp` and its relatives: datapaths and their ports made and changed by hand (ovs-dpctl(8)), and
//! `dpif-dummy/change-port-number`.
//!
//! Bridges have datapaths of their own, in which Open vSwitch keeps the ports of the database alone: a port that is added
//! there is removed again, and one that is removed comes back when the configuration changes.

use super::dpctl::{self, split_options};
use super::show_blocking;
use crate::devices::{Devices, Dp};
use crate::placement::Options;
use crate::standalone::{AddError, renumber};
use crate::types::{DatapathClass, DummyLevel};
use base::DpPort;
use std::fmt::Write;
use std::sync::Arc;
use unixctl::Commands;
use vlog::{RateLimit, warn_rl};

/// Limit on warnings about requests that failed.
static REFUSED: RateLimit = RateLimit::new(10, 10);

const NO_KEY: &str = "Invalid option format";

/// What a command prints, and whether a part of it failed.
#[derive(Debug, Default)]
struct Report {
    text: String,
    is_failed: bool,
}

impl Report {
    fn note(&mut self, message: &str) {
        let _ = writeln!(self.text, "ovs-vswitchd: {message}");
    }

    fn fail(&mut self, message: &str) {
        self.note(message);
        self.is_failed = true;
    }

    fn into_reply(self) -> Result<super::Shown, String> {
        if self.is_failed { Err(self.text.trim_end_matches('\n').to_owned()) } else { Ok(self.text.into()) }
    }
}

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let any = usize::MAX;
    show_blocking(commands, devices, ("dpctl/add-dp", "dp [iface...]", 1..=any), |d, args, _| {
        let (name, ports) = words(args)?;
        let dp = dpctl::make(d, name).map_err(|error| format!("ovs-vswitchd: add_dp ({error})"))?;
        add_ports(d, (name, &dp), ports).into_reply()
    });
    show_blocking(commands, devices, ("dpctl/del-dp", "dp", 1..=1), |d, args, _| {
        d.delete_datapath(&open(d, words(args)?.0)?);
        Ok(String::new().into())
    });
    show_blocking(commands, devices, ("dpctl/add-if", "dp iface...", 2..=any), |d, args, _| {
        let (name, ports) = words(args)?;
        add_ports(d, (name, &open(d, name)?), ports).into_reply()
    });
    show_blocking(commands, devices, ("dpctl/set-if", "dp iface...", 2..=any), |d, args, _| {
        let (name, ports) = words(args)?;
        set_ports((name, &open(d, name)?), ports).into_reply()
    });
    show_blocking(commands, devices, ("dpctl/del-if", "dp iface...", 2..=any), |d, args, _| {
        let (name, ports) = words(args)?;
        delete_ports(d, (name, &open(d, name)?), ports).into_reply()
    });
    if devices.types.dummy != DummyLevel::Off {
        let usage = "dp port new-number";
        show_blocking(commands, devices, ("dpif-dummy/change-port-number", usage, 3..=3), |d, args, _| match args {
            [dp, port, number] => change_number(d, dp, port, number).map(Into::into),
            _ => Err("a datapath, a port and a number are to be given".to_owned()),
        });
    }
}

/// The datapath and the other words, after options, which mean nothing to these commands.
fn words(args: &[String]) -> Result<(&str, &[String]), String> {
    let (options, words) = split_options(args);
    for option in options {
        let is_known = match option.strip_prefix("--") {
            Some(long) => matches!(long, "clear" | "may-create" | "more" | "statistics" | "names" | "no-names"),
            None => option.bytes().skip(1).all(|letter| matches!(letter, b'm' | b's')),
        };
        if !is_known {
            return Err(format!("Unrecognized option {option}"));
        }
    }
    let (name, rest) = words.split_first().ok_or("ovs-vswitchd: opening datapath (Invalid argument)")?;
    Ok((name, rest))
}

fn open(devices: &Devices, text: &str) -> Result<Dp, String> {
    dpctl::find(devices, text).map_err(|error| format!("ovs-vswitchd: opening datapath ({error})"))
}

/// Name and settings of `name[,key=value]...`; `None` without a name, and for a setting without a key.
fn parse_port(text: &str) -> Option<(&str, impl Iterator<Item = Option<(&str, &str)>>)> {
    let mut parts = text.split(',').filter(|part| !part.is_empty());
    let name = parts.next()?;
    let settings = parts.map(|part| {
        // As in Open vSwitch, `=` before the key counts for nothing.
        let part = part.trim_start_matches('=');
        (!part.is_empty()).then(|| part.split_once('=').unwrap_or((part, "")))
    });
    Some((name, settings))
}

/// A port's number; `None` for any, which -1 stands for.
fn parse_number(text: &str) -> Option<DpPort> {
    // As in Open vSwitch, digits at the start count, and their low bits.
    let number = cli::leading_integer(text, 10) as u32;
    (number != u32::MAX).then_some(DpPort(number))
}

/// Adds ports to a datapath. Messages name the datapath as the user did.
fn add_ports(devices: &Devices, (given, dp): (&str, &Dp), ports: &[String]) -> Report {
    let mut report = Report::default();
    let dp_name = dp.full_name();
    let mut unclaimed = Vec::new();
    for text in ports {
        let Some((name, settings)) = parse_port(text) else {
            report.fail(&format!("{text} is not a valid network device name"));
            continue;
        };
        let (mut kind, mut number, mut options) = ("system", None, Options::new());
        let Some(settings) = settings.collect::<Option<Vec<_>>>() else {
            report.fail(NO_KEY);
            continue;
        };
        for (key, value) in settings {
            match key {
                "type" => kind = value,
                "port_no" => number = parse_number(value),
                key if options.contains_key(key) => report.note(&format!("duplicate \"{key}\" option")),
                key => _ = options.insert(key.to_owned(), value.to_owned()),
            }
        }
        match devices.add_port(dp, name, if kind.is_empty() { "system" } else { kind }, &options, number) {
            Ok(attached) => unclaimed.extend(attached),
            Err(AddError::Open(error)) => report.fail(&format!("{name}: failed to open network device ({error})")),
            Err(AddError::Add(error)) => {
                warn_rl!(&REFUSED, target: "dpif", "{dp_name}: failed to add {name} as port: {error}");
                report.fail(&format!("adding {name} to {given} failed ({error})"));
            }
        }
    }
    if !unclaimed.is_empty() {
        drop(unclaimed);
        dp.dpif.synchronize();
    }
    report
}

fn set_ports((given, dp): (&str, &Dp), ports: &[String]) -> Report {
    let mut report = Report::default();
    for text in ports {
        let Some((name, settings)) = parse_port(text) else {
            // As in Open vSwitch, no error for scripts.
            report.note(&format!("{text} is not a valid network device name"));
            continue;
        };
        let there = dp.placements.find(name).and_then(|placement| Some((placement.port()?, placement)));
        let Some((port, placement)) = there else {
            report.fail(&format!("{name}: failed to query port in {given} (No such device)"));
            continue;
        };
        let kind = placement.device.kind();
        let mut options = placement.options();
        let mut refusal = None;
        let Some(settings) = settings.collect::<Option<Vec<_>>>() else {
            report.fail(NO_KEY);
            continue;
        };
        for (key, value) in settings {
            match key {
                "type" if value != kind => refusal = Some(format!("can't change type from {kind} to {value}")),
                "port_no" if cli::leading_integer(value, 10) as u32 != port.0 => {
                    let wanted = cli::leading_integer(value, 10) as i32;
                    refusal = Some(format!("can't change port number from {port} to {wanted}"));
                }
                "type" | "port_no" => {}
                key if value.is_empty() => _ = options.remove(key),
                key => _ = options.insert(key.to_owned(), value.to_owned()),
            }
            if refusal.is_some() {
                break;
            }
        }
        let refusal = refusal.or_else(|| Some(placement.set_options(&options).err()?.to_string()));
        if let Some(refusal) = refusal {
            report.fail(&format!("{name}: {refusal}"));
        }
    }
    report
}

fn delete_ports(devices: &Devices, (given, dp): (&str, &Dp), ports: &[String]) -> Report {
    let mut report = Report::default();
    let dp_name = dp.full_name();
    for text in ports {
        let number = if text.bytes().all(|digit| digit.is_ascii_digit()) {
            Some(DpPort(cli::leading_integer(text, 10) as u32))
        } else if *text == dp.name {
            // The datapath's own device, which bridges' datapaths have in name only.
            Some(DpPort(0))
        } else {
            dp.placements.find(text).and_then(|placement| placement.port())
        };
        let Some(number) = number else {
            report.fail(&format!("no port named {text}"));
            continue;
        };
        if let Err(error) = devices.delete_port(dp, number) {
            warn_rl!(&REFUSED, target: "dpif", "{dp_name}: port_del failed ({error})");
            report.fail(&format!("deleting port {text} from {given} failed ({error})"));
        }
    }
    devices.notify_ports();
    report
}

fn change_number(devices: &Devices, dp: &str, port: &str, number: &str) -> Result<String, String> {
    let found = devices.all_datapaths().into_iter().find(|found| found.name == dp);
    let found = found.filter(|found| found.class == DatapathClass::Dummy);
    let dp = found.ok_or("unknown datapath or not a dummy")?;
    renumber(&dp, port, &|| parse_number(number))?;
    devices.notify_ports();
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_with_settings() {
        let parsed = |text| parse_port(text).map(|(name, settings)| (name, settings.collect::<Option<Vec<_>>>()));
        assert_eq!(parsed("p1"), Some(("p1", Some(vec![]))));
        let settings = vec![("type", "dummy"), ("a", "b=c"), ("d", "")];
        assert_eq!(parsed("p1,,type=dummy,a=b=c,d"), Some(("p1", Some(settings))));
        assert_eq!(parsed("p1,=7,=k=v"), Some(("p1", Some(vec![("7", ""), ("k", "v")]))));
        assert_eq!(parsed("p1,a=b,=="), Some(("p1", None)));
        assert_eq!((parsed(""), parsed(",,")), (None, None));
        assert_eq!(
            (parse_number("7x"), parse_number("-1"), parse_number("x")),
            (Some(DpPort(7)), None, Some(DpPort(0)))
        );
    }

    #[test]
    fn unknown_options_are_refused() {
        let args = |list: &[&str]| list.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        assert!(words(&args(&["-ms", "--names", "dummy@d", "p1"])).is_ok());
        assert_eq!(words(&args(&["-x", "d"])).unwrap_err(), "Unrecognized option -x");
        assert!(words(&args(&["-s"])).is_err());
    }
}
