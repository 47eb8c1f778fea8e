//! `dpctl/offload-show`: what is forwarded below the datapath (`other_config:hw-offload`).

use super::dpctl::selected;
use super::{dp_name, port_name, show};
use crate::devices::{Devices, Dp};
use dpif::OffloadInfo;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("dpctl/offload-show", "[dp]", 0..=1), |devices, args, format| {
        let datapaths = selected(devices, args.first().map(String::as_str))?;
        Ok(match format {
            OutputFormat::Text => {
                datapaths.iter().map(|(kind, dp)| text(&dp_name(kind), dp)).collect::<String>().into()
            }
            OutputFormat::Json => {
                let all: Map<_, _> = datapaths.iter().map(|(kind, dp)| (dp_name(kind), object(dp))).collect();
                Value::from(all).into()
            }
        })
    });
}

/// The ports that were offered, by number, with their names, and why those are not the accelerator's that are not.
fn ports<'a>(dp: &'a Dp, info: &'a OffloadInfo) -> impl Iterator<Item = (u32, String, Option<&'a str>)> {
    info.ports.iter().map(|(number, added)| {
        (number.0, port_name(dp, *number).unwrap_or_default(), added.as_ref().err().map(String::as_str))
    })
}

fn text(name: &str, dp: &Dp) -> String {
    let mut out = format!("{name}:\n");
    let info = match (dp.dpif.offload(), dp.offload_error()) {
        (Some(info), _) => info,
        (None, Some(error)) => return out + &format!("  not available: {error}\n"),
        (None, None) => return out + "  off\n",
    };
    let capacity = info.capacity;
    let _ = writeln!(out, "  by: {}", info.kind);
    let _ = writeln!(out, "  flows: {} of {}, taken so far: {}", capacity.flows, capacity.flows_max, info.taken);
    let _ = writeln!(out, "  masks: {}, at most {} a port", capacity.masks, capacity.masks_max);
    let _ = writeln!(out, "  forwarded: packets:{}, bytes:{}", info.forwarded.0, info.forwarded.1);
    for (why, n) in &info.refused {
        let _ = writeln!(out, "  left to userspace: {n} ({why})");
    }
    for (number, name, refused) in ports(dp, &info) {
        let _ = match refused {
            None => writeln!(out, "  port {number}: {name}"),
            Some(why) => writeln!(out, "  port {number}: {name}, not taken: {why}"),
        };
    }
    out
}

fn object(dp: &Dp) -> Value {
    let Some(info) = dp.dpif.offload() else {
        return json!({"enabled": false, "error": dp.offload_error()});
    };
    let ports =
        ports(dp, &info).map(|(number, name, refused)| json!({"port_no": number, "name": name, "error": refused}));
    json!({
        "enabled": true,
        "kind": info.kind,
        "flows": info.capacity.flows,
        "flows_max": info.capacity.flows_max,
        "flows_taken": info.taken,
        "masks": info.capacity.masks,
        "masks_max_of_port": info.capacity.masks_max,
        "packets": info.forwarded.0,
        "bytes": info.forwarded.1,
        "refused": info.refused.iter().map(|(why, n)| (why.to_string(), Value::from(*n))).collect::<Map<_, _>>(),
        "ports": ports.collect::<Value>(),
    })
}
