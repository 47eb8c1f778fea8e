//! `bfd/` and `cfm/`: sessions and maintenance points of interfaces, and their states forced by hand.

use super::{act, show};
use crate::devices::Devices;
use ::bfd::{SessionStatus, show as bfd_text};
use ::cfm::{PointStatus, show as cfm_text};
use base::{BridgePort, Millis};
use ofproto::Switch;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("bfd/show", "[interface]", 0..=1), |devices, args, format| {
        let now = devices.clock.now();
        let found = sorted(devices, Switch::bfd_status, |status| &status.name, args.first(), "no such bfd object")?;
        Ok(match (format, &found[..]) {
            (OutputFormat::Json, _) => object(&found, |status| (&status.name, session(status, now))).into(),
            // As in Open vSwitch, a session that was asked for by name has no heading.
            (OutputFormat::Text, [status]) if !args.is_empty() => bfd_text::session(status, now).into(),
            (OutputFormat::Text, all) => bfd_text::sessions(all, now).into(),
        })
    });
    show(commands, devices, ("cfm/show", "[interface]", 0..=1), |devices, args, format| {
        let now = devices.clock.now();
        let found = sorted(devices, Switch::cfm_status, |status| &status.name, args.first(), "no such CFM object")?;
        Ok(match format {
            OutputFormat::Json => object(&found, |status| (&status.name, point(status, now))).into(),
            OutputFormat::Text => cfm_text::points(&found, now).into(),
        })
    });
    act(commands, devices, ("bfd/set-forwarding", "[interface] normal|false|true", 1..=2), |devices, args| {
        force(
            devices,
            args,
            "no such BFD object",
            (Switch::bfd_status, |status| &status.name),
            |switch, ports, forced| {
                switch.force_bfd(ports, forced);
            },
        )
    });
    act(commands, devices, ("cfm/set-fault", "[interface] normal|false|true", 1..=2), |devices, args| {
        force(
            devices,
            args,
            "no such CFM object",
            (Switch::cfm_status, |status| &status.name),
            |switch, ports, forced| {
                switch.force_cfm(ports, forced);
            },
        )
    });
}

/// The states of an interface, or of all by name.
fn sorted<S>(
    devices: &Devices,
    statuses: fn(&Switch) -> Vec<(BridgePort, S)>,
    name: fn(&S) -> &String,
    only: Option<&String>,
    error: &str,
) -> Result<Vec<S>, String> {
    let all = devices.datapaths().into_iter().flat_map(|(_, dp)| statuses(&dp.switch));
    let is_wanted = |status: &S| only.is_none_or(|only| only == name(status));
    let mut found: Vec<S> = all.map(|(_, status)| status).filter(is_wanted).collect();
    if found.is_empty() && only.is_some() {
        return Err(error.to_owned());
    }
    found.sort_by(|a, b| name(a).cmp(name(b)));
    Ok(found)
}

/// Returns the state of a protocol on each port.
type Statuses<S> = fn(&Switch) -> Vec<(BridgePort, S)>;

/// Has a state forced on an interface, or on all.
fn force<S>(
    devices: &Devices,
    args: &[String],
    error: &str,
    (statuses, name): (Statuses<S>, fn(&S) -> &String),
    force: impl Fn(&Switch, Vec<BridgePort>, Option<bool>),
) -> Result<String, String> {
    let (only, word) = match args {
        [only, word, ..] => (Some(only), word),
        [word] => (None, word),
        [] => return Err("unknown fault string".to_owned()),
    };
    let forced = match word {
        _ if word.eq_ignore_ascii_case("true") => Ok(Some(true)),
        _ if word.eq_ignore_ascii_case("false") => Ok(Some(false)),
        _ if word.eq_ignore_ascii_case("normal") => Ok(None),
        _ => Err("unknown fault string".to_owned()),
    };
    let mut is_found = only.is_none();
    for (_, dp) in devices.datapaths() {
        let ports: Vec<BridgePort> = statuses(&dp.switch)
            .into_iter()
            .filter(|(_, status)| only.is_none_or(|only| only == name(status)))
            .map(|(port, _)| port)
            .collect();
        is_found |= !ports.is_empty();
        if let Ok(forced) = forced {
            force(&dp.switch, ports, forced);
        }
    }
    if !is_found {
        return Err(error.to_owned());
    }
    forced.map(|_| "OK".to_owned())
}

fn object<S>(all: &[S], entry: impl Fn(&S) -> (&String, Value)) -> Value {
    all.iter().map(entry).map(|(name, value)| (name.clone(), value)).collect::<Map<_, _>>().into()
}

/// Milliseconds from `now` to `moment`.
fn from_now(moment: Millis, now: Millis) -> i64 {
    moment.0 as i64 - now.0 as i64
}

fn session(status: &SessionStatus, now: Millis) -> Value {
    let remote = &status.remote;
    json!({
        "forwarding": status.forwarding,
        "cpath_down": status.cpath_down,
        "tx_interval_ms": status.tx_interval_ms,
        "rx_interval_ms": status.rx_interval_ms,
        "detection_ms": from_now(status.detection, now),
        "next_tx_ms": from_now(status.next_tx, now),
        "last_tx_ms": from_now(status.last_tx, now),
        "local": {
            "multiplier": status.multiplier,
            "flags": status.flags.to_string(),
            "state": status.state.to_string(),
            "diagnostic": status.diagnostic.to_string(),
            "discriminator": status.discriminator,
            "min_tx_ms": status.min_tx_ms,
            "min_rx_ms": status.min_rx_ms,
        },
        "remote": {
            "multiplier": status.remote_multiplier,
            "flags": remote.flags.to_string(),
            "state": remote.state.to_string(),
            "diagnostic": remote.diagnostic.to_string(),
            "discriminator": remote.discriminator,
            "min_tx_ms": remote.min_tx_ms,
            "min_rx_ms": remote.min_rx_ms,
        },
        "statistics": {
            "tx": status.statistics.tx,
            "rx": status.statistics.rx,
            "rx_refused": status.statistics.rx_refused,
            "flaps": status.statistics.flaps,
        },
    })
}

fn point(status: &PointStatus, now: Millis) -> Value {
    let remote = |remote: &::cfm::RemoteStatus| {
        json!({
            "mpid": remote.mpid,
            "received": remote.received,
            "opstate": cfm_text::state(remote.is_down),
        })
    };
    json!({
        "mpid": status.mpid,
        "extended": status.extended,
        "fault_override": status.is_forced,
        "faults": status.faults.names().collect::<Vec<_>>(),
        "health": status.health,
        "opstate": cfm_text::state(status.is_down),
        "remote_opstate": cfm_text::state(status.is_remote_down),
        "interval_ms": status.interval_ms,
        "next_ccm_ms": from_now(status.next_ccm, now),
        "next_check_ms": from_now(status.next_check, now),
        "remotes": status.remotes.iter().map(remote).collect::<Vec<_>>(),
        "statistics": {
            "tx": status.statistics.tx,
            "rx": status.statistics.rx,
            "rx_refused": status.statistics.rx_refused,
            "flaps": status.statistics.flaps,
        },
    })
}
