//! `dpif-netdev/subtable-lookup-*`: by what cached flows are found. Open vSwitch has several ways to look into a subtable
//! and lets their priorities be set; here flows are found by one decision tree, which has no subtables.

use super::{act, show};
use crate::devices::Devices;
use serde_json::json;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    for name in ["dpif-netdev/subtable-lookup-prio-get", "dpif-netdev/subtable-lookup-info-get"] {
        show(commands, devices, (name, "", 0..=0), |d, _, format| {
            // Each thread looks flows up in the tree of its datapath.
            let threads: usize = d.datapaths().iter().map(|(_, dp)| dp.dpif.threads().len()).sum();
            Ok(match format {
                OutputFormat::Text => format!(
                    "Available dpcls implementations:\n  decision tree (Use count: {threads}, Priority: 1)\n\
                     There are no subtables whose look-up could have another priority.\n"
                )
                .into(),
                OutputFormat::Json => json!([
                    {"name": "decision tree", "use_count": threads, "priority": 1, "subtables": false}
                ])
                .into(),
            })
        });
    }
    let usage = "[lookup_func] [prio]";
    act(commands, devices, ("dpif-netdev/subtable-lookup-prio-set", usage, 2..=2), |_, _| {
        Err("flows are found by a decision tree: there are no subtables whose look-up could have another priority"
            .to_owned())
    });
}
