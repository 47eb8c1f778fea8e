//! `dpctl/offload-show`, `dpctl/offload-stats-show` and `dpif/offload/show`: what is forwarded below the datapath (`other_config:hw-offload`).

use super::dpctl::{selected, split_options};
use super::{act, port_name, show};
use crate::devices::{Devices, Dp};
use dpif::OffloadInfo;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("dpctl/offload-show", "[dp]", 0..=1), |devices, args, format| {
        let datapaths = match args.first() {
            Some(name) => vec![selected(devices, Some(name))?],
            None => devices.all_datapaths(),
        };
        Ok(match format {
            OutputFormat::Text => datapaths.iter().map(text).collect::<String>().into(),
            OutputFormat::Json => {
                let all: Map<_, _> = datapaths.iter().map(|dp| (dp.full_name(), object(dp))).collect();
                Value::from(all).into()
            }
        })
    });
    act(commands, devices, ("dpctl/offload-stats-show", "[dp]", 0..=1), |devices, args| {
        if let Some(option) = split_options(args).0.first() {
            return Err(format!("Unrecognized option {option}"));
        }
        let dp = selected(devices, args.first().map(String::as_str))?;
        let mut out = "HW Offload stats:\n".to_owned();
        if let Some(info) = dp.dpif.offload() {
            let _ = writeln!(out, "   Total            Inserted offloads: {:12}", info.capacity.flows);
        }
        Ok(out)
    });
    show(commands, devices, ("dpif/offload/show", "", 0..=0), |devices, _, format| {
        Ok(match format {
            OutputFormat::Text => providers_text(devices).into(),
            OutputFormat::Json => providers_json(devices).into(),
        })
    });
}

/// The ports that were offered, by number, with their names, and why those are not the accelerator's that are not.
fn ports<'a>(dp: &'a Dp, info: &'a OffloadInfo) -> impl Iterator<Item = (u32, String, Option<&'a str>)> {
    info.ports.iter().map(|(number, added)| {
        (number.0, port_name(dp, *number).unwrap_or_default(), added.as_ref().err().map(String::as_str))
    })
}

/// The providers of offload of bridges' datapaths, with the ports that they took.
fn providers_text(devices: &Devices) -> String {
    let mut out = format!("Globally enabled: {}\nDatapaths:\n", devices.hw_offload.load(Ordering::Relaxed));
    for (_, dp) in devices.datapaths() {
        let _ = writeln!(out, "{}:", dp.full_name());
        let Some(info) = dp.dpif.offload() else { continue };
        let _ = writeln!(out, "  {}", info.kind);
        for (number, name, _) in ports(&dp, &info).filter(|(_, _, refused)| refused.is_none()) {
            let _ = writeln!(out, "  - {name}: port_no: {number}");
        }
    }
    out
}

fn providers_json(devices: &Devices) -> Value {
    let provider = |dp: &Dp, info: &OffloadInfo| {
        let taken = ports(dp, info).filter(|(_, _, refused)| refused.is_none());
        let taken: Map<_, _> = taken.map(|(number, name, _)| (name, json!({"port_no": number}))).collect();
        (info.kind.to_owned(), json!({"ports": taken}))
    };
    let mut all = Map::new();
    for (_, dp) in devices.datapaths() {
        let info = dp.dpif.offload();
        let priority: Vec<&str> = info.iter().map(|info| info.kind).collect();
        let providers: Map<_, _> = info.iter().map(|info| provider(&dp, info)).collect();
        all.insert(dp.full_name(), json!({"priority": priority, "providers": providers}));
    }
    all.insert("enabled".to_owned(), devices.hw_offload.load(Ordering::Relaxed).into());
    all.into()
}

fn text(dp: &Dp) -> String {
    let mut out = format!("{}:\n", dp.full_name());
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
