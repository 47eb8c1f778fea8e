//! `coverage/` and `memory/show`: events that were counted, and how much of everything there is.
//!
//! Datapaths count drops for themselves, a counter a thread; they are brought to the counters of events when those are
//! asked for.

use super::show;
use crate::devices::Devices;
use base::DropReason;
use base::coverage;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("coverage/show", "", 0..=0), |d, _, format| {
        count_drops(d);
        Ok(match format {
            OutputFormat::Text => coverage::show().into(),
            OutputFormat::Json => {
                let events = coverage::rates().into_iter().map(|rate| {
                    let members = json!({
                        "total": rate.total,
                        "per-second-5s": rate.last_seconds,
                        "per-second-minute": rate.last_minute,
                        "per-second-hour": rate.last_hour,
                    });
                    (rate.name.to_owned(), members)
                });
                Value::from(events.collect::<Map<_, _>>()).into()
            }
        })
    });
    show(commands, devices, ("coverage/read-counter", "COUNTER", 1..=1), |d, args, format| {
        count_drops(d);
        let total = args.first().and_then(|name| coverage::read(name)).ok_or("No such counter")?;
        Ok(match format {
            OutputFormat::Text => total.to_string().into(),
            OutputFormat::Json => Value::from(total).into(),
        })
    });
    show(commands, devices, ("memory/show", "", 0..=0), |d, _, format| {
        let usage = usage(d);
        Ok(match format {
            OutputFormat::Text => {
                usage.iter().map(|(name, n)| format!("{name}:{n}")).collect::<Vec<_>>().join(" ").into()
            }
            OutputFormat::Json => {
                let all: Map<_, _> = usage.into_iter().map(|(name, n)| (name, Value::from(n))).collect();
                Value::from(all).into()
            }
        })
    });
}

/// Drops under the names of Open vSwitch where it counts the same, and `datapath_drop_` with our reason otherwise.
fn count_drops(devices: &Devices) {
    let drops: Vec<_> = devices.datapaths().iter().flat_map(|(_, dp)| dp.datapath.drops()).collect();
    for reason in DropReason::ALL {
        let total: u64 = drops.iter().filter(|(r, _)| r == reason).map(|(_, n)| n).sum();
        if total > 0 {
            coverage::set(drop_name(*reason), total);
        }
    }
}

fn drop_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Action => "drop_action_of_pipeline",
        DropReason::Malformed => "datapath_drop_rx_invalid_packet",
        DropReason::Truncated => "datapath_drop_truncated",
        DropReason::TooBig => "datapath_drop_too_big",
        DropReason::NoPort => "datapath_drop_invalid_port",
        DropReason::PortDown => "datapath_drop_port_down",
        DropReason::OutputQueueFull => "datapath_drop_output_queue_full",
        DropReason::OutputError => "datapath_drop_output_error",
        DropReason::UpcallQueueFull => "datapath_drop_upcall_error",
        DropReason::TranslationError => "datapath_drop_translation_error",
        DropReason::RecursionTooDeep => "drop_action_recursion_too_deep",
        DropReason::TooManyResubmits => "drop_action_too_many_resubmit",
        DropReason::StackTooDeep => "drop_action_stack_too_deep",
        DropReason::TooManyActions => "datapath_drop_too_many_actions",
        DropReason::NoGroup => "datapath_drop_no_group",
        DropReason::VlanMismatch => "datapath_drop_vlan_mismatch",
        DropReason::ReservedAddress => "datapath_drop_reserved_address",
        DropReason::SamePort => "datapath_drop_same_port",
        DropReason::TtlExpired => "datapath_drop_ttl_expired",
        DropReason::Recirculation => "datapath_drop_recirc_error",
        DropReason::Meter => "datapath_drop_meter",
        DropReason::Fragment => "datapath_drop_fragment",
        DropReason::NoHeadroom => "datapath_drop_no_headroom",
    }
}

/// What `memory/show` reports, by name.
pub fn usage(devices: &Devices) -> Vec<(String, u64)> {
    let (mut ports, mut rules, mut flows, mut handlers, mut connections, mut macs) = (0, 0, 0, 0, 0, 0);
    for (_, dp) in devices.datapaths() {
        flows += dpif::Dpif::stats(&*dp.datapath).flows;
        handlers += dp.datapath.thread_stats().len() as u64;
        for bridge in dp.switch.bridges() {
            ports += bridge.ports().len() as u64;
            rules += bridge.n_flows() as u64;
            connections += bridge.connections().all().len() as u64;
            macs += bridge.macs().read().len() as u64;
        }
    }
    let all = [
        ("handlers", handlers),
        ("macs", macs),
        ("ofconns", connections),
        ("ports", ports),
        ("rules", rules),
        ("udpif keys", flows),
    ];
    // What there is none of is left out, but for what every switch has.
    let always = ["ports", "rules"];
    all.into_iter().filter(|(name, n)| *n > 0 || always.contains(name)).map(|(name, n)| (name.to_owned(), n)).collect()
}
