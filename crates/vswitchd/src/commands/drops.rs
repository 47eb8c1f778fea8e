//! `dpif/show-drops`: how many packets each datapath dropped, by reason, in all and port by port.

use super::{dp_name, show};
use crate::devices::{Devices, Dp};
use base::DropReason;
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
    let mut list = |indent: &str, drops: &[(DropReason, u64)], way: &str| {
        for (reason, n) in drops.iter().filter(|(_, n)| *n > 0) {
            let _ = writeln!(out, "{indent}{way}{}: {n}", reason.name());
        }
    };
    list("  ", &dp.datapath.drops(), "");
    for port in dp.datapath.ports() {
        let (rx, tx) = (&port.stats.rx_drops, &port.stats.tx_drops);
        if rx.iter().chain(tx).any(|(_, n)| *n > 0) {
            let title = format!("  port {} ({}) ", port.number, port.device.name());
            list(&title, rx, "rx ");
            list(&title, tx, "tx ");
        }
    }
    out
}

fn json(dp: &Dp) -> Value {
    let object = |drops: &[(DropReason, u64)]| -> Value {
        drops.iter().map(|(reason, n)| (reason.name().to_owned(), Value::from(*n))).collect::<Map<_, _>>().into()
    };
    let ports: Map<_, _> = dp
        .datapath
        .ports()
        .into_iter()
        .map(|port| {
            let drops = json!({
                "port_no": port.number.0,
                "rx": object(&port.stats.rx_drops),
                "tx": object(&port.stats.tx_drops),
            });
            (port.device.name().to_owned(), drops)
        })
        .collect();
    json!({"total": object(&dp.datapath.drops()), "ports": ports})
}
