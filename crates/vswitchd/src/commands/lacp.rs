//! `lacp/`: the state and counters of LACP. A port limits the output to itself.

use super::show;
use crate::devices::Devices;
use lacp::{BondStatus, Info, MemberStatus, Mode, Negotiation, Timeout, show as text};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// Makes text of the state of bonds.
type Text = fn(&[BondStatus]) -> String;
/// Makes JSON of the state of a bond.
type Json = fn(&BondStatus) -> Value;

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let all: [(&str, Text, Json); 2] =
        [("lacp/show", text::show, bond), ("lacp/show-stats", text::statistics, statistics)];
    for (name, text, json) in all {
        show(commands, devices, (name, "[port]", 0..=1), move |devices, args, format| {
            let bonds = bonds(devices, args.first().map(String::as_str))?;
            Ok(match format {
                OutputFormat::Text => text(&bonds).into(),
                OutputFormat::Json => {
                    Value::from(bonds.iter().map(|bond| (bond.name.clone(), json(bond))).collect::<Map<_, _>>()).into()
                }
            })
        });
    }
}

/// The bond of this name, or all, in the order of their creation on each datapath.
fn bonds(devices: &Devices, name: Option<&str>) -> Result<Vec<BondStatus>, String> {
    let all = devices.datapaths().into_iter().flat_map(|(_, dp)| dp.switch.lacp_status());
    match name {
        None => Ok(all.collect()),
        Some(name) => {
            let found: Vec<_> = all.filter(|bond| bond.name == name).collect();
            if found.is_empty() { Err("no such lacp object".to_owned()) } else { Ok(found) }
        }
    }
}

fn bond(bond: &BondStatus) -> Value {
    let settings = &bond.settings;
    json!({
        "mode": match settings.mode {
            Mode::Active => "active",
            Mode::Passive => "passive",
        },
        "negotiated": bond.negotiation == Negotiation::Negotiated,
        "system_id": settings.system.to_string(),
        "system_priority": settings.system_priority,
        "key": bond.key,
        "time": match settings.timeout {
            Timeout::Fast => "fast",
            Timeout::Slow => "slow",
        },
        "members": by_name(bond, member),
    })
}

fn by_name(bond: &BondStatus, json: fn(&MemberStatus) -> Value) -> Value {
    bond.members.iter().map(|member| (member.name.clone(), json(member))).collect::<Map<_, _>>().into()
}

fn member(member: &MemberStatus) -> Value {
    json!({
        "status": member.currency.name(),
        "attached": member.attached,
        "may_enable": member.may_enable,
        "actor": info(&member.actor),
        "partner": info(&member.partner),
    })
}

fn info(info: &Info) -> Value {
    json!({
        "system_id": info.system.to_string(),
        "system_priority": info.system_priority,
        "port_id": info.port,
        "port_priority": info.port_priority,
        "key": info.key,
        "state": info.state.names().collect::<Vec<_>>(),
    })
}

fn statistics(bond: &BondStatus) -> Value {
    by_name(bond, |member| {
        let counters = &member.statistics;
        json!({
            "tx": counters.tx, "rx": counters.rx, "rx_bad": counters.rx_bad, "rx_marker": counters.rx_marker,
            "expired": counters.expired, "defaulted": counters.defaulted, "carrier_changed": counters.carrier_changed,
        })
    })
}
