//! `dpif/show-drops`: how many packets each datapath dropped, by reason, in all and port by port, and beside that what
//! devices of the kernel say that they dropped themselves: before the datapath had it, or after the device took it.

use super::{dp_name, show};
use crate::devices::{Devices, Dp};
use base::DropReason;
use netdev::Netdev;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("dpif/show-drops", "", 0..=0), |d, _, format| {
        let datapaths = d.datapaths();
        Ok(match format {
            OutputFormat::Text => {
                datapaths.iter().map(|(kind, dp)| text(&dp_name(kind), dp)).collect::<String>().into()
            }
            OutputFormat::Json => {
                let all: Map<_, _> = datapaths.iter().map(|(kind, dp)| (dp_name(kind), json(dp))).collect();
                Value::from(all).into()
            }
        })
    });
}

/// Reasons that dropped something are listed; a port that dropped nothing is not.
fn text(name: &str, dp: &Dp) -> String {
    let mut out = format!("{name}:\n");
    list(&mut out, "  ", &dp.dpif.drops());
    for port in dp.dpif.ports() {
        let title = format!("  port {} ({}) ", port.number, port.device.name());
        let (by_device_rx, by_device_tx) = by_device(&*port.device).unwrap_or_default();
        for (way, drops, by_device) in
            [("rx ", &port.stats.rx_drops, by_device_rx), ("tx ", &port.stats.tx_drops, by_device_tx)]
        {
            let title = format!("{title}{way}");
            list(&mut out, &title, drops);
            if by_device > 0 {
                let _ = writeln!(out, "{title}device: {by_device}");
            }
        }
    }
    out
}

fn list(out: &mut String, title: &str, drops: &[(DropReason, u64)]) {
    for (reason, n) in drops.iter().filter(|(_, n)| *n > 0) {
        let _ = writeln!(out, "{title}{}: {n}", reason.name());
    }
}

/// What a device of the kernel says that it dropped, coming in and going out.
fn by_device(device: &dyn Netdev) -> Option<(u64, u64)> {
    device.status().ifindex?;
    let stats = device.stats();
    Some((stats.rx_dropped.unwrap_or(0), stats.tx_dropped.unwrap_or(0)))
}

fn json(dp: &Dp) -> Value {
    let object = |drops: &[(DropReason, u64)]| -> Value {
        drops.iter().map(|(reason, n)| (reason.name().to_owned(), Value::from(*n))).collect::<Map<_, _>>().into()
    };
    let ports: Map<_, _> = dp
        .dpif
        .ports()
        .into_iter()
        .map(|port| {
            let mut drops = json!({
                "port_no": port.number.0,
                "rx": object(&port.stats.rx_drops),
                "tx": object(&port.stats.tx_drops),
            });
            if let Some((rx, tx)) = by_device(&*port.device) {
                drops["device"] = json!({"rx": rx, "tx": tx});
            }
            (port.device.name().to_owned(), drops)
        })
        .collect();
    json!({"total": object(&dp.dpif.drops()), "ports": ports})
}
