//! `dpctl/`: connections. The datapath tracks none: lists are empty, there is nothing to forget, and what would have to be
//! set is not there.

use super::dpctl::split_options;
use super::{is_dp, show};
use crate::devices::Devices;
use serde_json::json;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0..=4), |d, args, format| {
        let (options, words) = split_options(args);
        if let Some(option) = options.iter().find(|option| !matches!(option.as_str(), "-m" | "-s")) {
            return Err(format!("Unrecognized option {option}"));
        }
        let (zone, names) = match words.split_last() {
            Some((zone, names)) if zone.starts_with("zone=") => (Some(zone), names),
            _ => (None, words),
        };
        // As in Open vSwitch, several words that are no datapath mean nothing.
        if let [_] = names {
            check(d, names, 0)?;
        }
        check(d, zone.map_or(&[], std::slice::from_ref), 0)?;
        Ok(answer(format, "", json!([])))
    });
    let usage = "[dp] [zone=N] [mark=X[/M]] [labels=Y[/N]] [ct-orig-tuple [ct-reply-tuple]]";
    show(commands, devices, ("dpctl/flush-conntrack", usage, 0..=6), |d, args, format| {
        let (options, words) = split_options(args);
        if let Some(option) = options.first() {
            return Err(format!("Unrecognized option {option}"));
        }
        check(d, words, 4)?;
        Ok(answer(format, "", json!(null)))
    });
    show(commands, devices, ("dpctl/ct-get-nconns", "[dp]", 0..=1), |d, args, format| {
        check(d, args, 0)?;
        Ok(answer(format, "0\n", json!(0)))
    });
    show(commands, devices, ("dpctl/ct-stats-show", "[dp] [zone=N]", 0..=2), |d, args, format| {
        check(d, args, 0)?;
        Ok(answer(format, "Connections Stats:\n    Total: 0\n", json!({"total": 0})))
    });
    show(commands, devices, ("dpctl/ct-get-maxconns", "[dp]", 0..=1), |d, args, _| {
        check(d, args, 0)?;
        Err("ovs-vswitchd: maxconns could not be retrieved (Operation not supported)\n".to_owned())
    });
}

fn answer(format: OutputFormat, text: &str, json: serde_json::Value) -> super::Shown {
    match format {
        OutputFormat::Text => text.to_owned().into(),
        OutputFormat::Json => json.into(),
    }
}

/// Checks the name of a datapath, if one is given, a zone, and that no more than `tuples` words follow.
fn check(devices: &Devices, args: &[String], tuples: usize) -> Result<(), String> {
    let mut args = args;
    if let [name, rest @ ..] = args
        && name.contains('@')
    {
        if !devices.datapaths().iter().any(|(kind, _)| is_dp(name, kind)) {
            return Err(format!("ovs-vswitchd: opening datapath {name} failed (No such device)\n"));
        }
        args = rest;
    }
    if let [zone, rest @ ..] = args
        && let Some(number) = zone.strip_prefix("zone=")
    {
        number.parse::<u16>().map_err(|_| "ovs-vswitchd: failed to parse zone (Invalid argument)\n".to_owned())?;
        args = rest;
    }
    if tuples > 0 {
        // Each stands once, in front of the tuples.
        for once in ["mark=", "labels="] {
            if let [first, rest @ ..] = args
                && first.starts_with(once)
            {
                args = rest;
            }
        }
    }
    let given = args[..tuples.min(args.len())].iter().filter(|words| !words.is_empty());
    for word in given.flat_map(|words| words.split(',')) {
        let Some((field, value)) = word.split_once('=') else {
            return Err(format!("ovs-vswitchd: field {word} missing value (Invalid argument)"));
        };
        let fits = match field {
            "ct_nw_src" | "ct_nw_dst" => value.parse::<Ipv4Addr>().is_ok(),
            "ct_ipv6_src" | "ct_ipv6_dst" => value.parse::<Ipv6Addr>().is_ok(),
            "ct_tp_src" | "ct_tp_dst" | "icmp_id" => value.parse::<u16>().is_ok(),
            "ct_nw_proto" | "icmp_type" | "icmp_code" => value.parse::<u8>().is_ok(),
            _ => return Err(format!("ovs-vswitchd: invalid conntrack tuple field: {field} (Invalid argument)")),
        };
        if !fits {
            return Err(format!("ovs-vswitchd: failed to parse field {field} (Invalid argument)"));
        }
    }
    match args.get(tuples) {
        Some(_) => Err("ovs-vswitchd: datapath not found (Invalid argument)".to_owned()),
        None => Ok(()),
    }
}
