//! `ofproto/list` and `bridge/`.

use super::{act, all_bridges, find_bridge, show, show_blocking};
use crate::devices::Devices;
use flow::text::{NoNames, PortNames};
use ofproto::show as texts;
use serde_json::Value;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("ofproto/list", "", 0..=0), |d, _, format| {
        let bridges = all_bridges(d);
        Ok(match format {
            OutputFormat::Text => bridges.iter().map(|b| format!("{}\n", b.name())).collect::<String>().into(),
            OutputFormat::Json => bridges.iter().map(|b| Value::from(b.name())).collect::<Value>().into(),
        })
    });
    show_blocking(commands, devices, ("bridge/dump-flows", "[--offload-stats | --names] bridge", 1..=2), dump_flows);
}

/// Registers `bridge/reconnect`.
pub(crate) fn register_reconnect(commands: &Commands, devices: &Arc<Devices>) {
    act(commands, devices, ("bridge/reconnect", "[bridge]", 0..=1), |d, args| {
        match args.first() {
            Some(name) => find_bridge(d, name).ok_or("Unknown bridge")?.connections().reconnect(),
            None => all_bridges(d).iter().for_each(|bridge| bridge.connections().reconnect()),
        }
        Ok(String::new())
    });
}

fn dump_flows(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let (name, options) = args.split_last().ok_or("Unknown bridge")?;
    let with_names = options.iter().any(|option| option == "--names");
    // Without offloaded flows there is nothing to tell apart; with them, rules do not. Other words in the place of an option
    // are ignored, as by Open vSwitch.
    if options.iter().any(|option| option == "--offload-stats")
        && devices.datapaths().iter().any(|(_, dp)| dp.dpif.offload().is_some())
    {
        return Err("--offload-stats: packets of rules are not counted apart".to_owned());
    }
    let bridge = find_bridge(devices, name).ok_or("Unknown bridge")?;
    if let Some(switch) = bridge.switch() {
        // Dumps that are requested together share one pass over the statistics.
        tokio::runtime::Handle::current().block_on(switch.counted());
    }
    let ports: &dyn PortNames = if with_names { &*bridge } else { &NoNames };
    Ok(match format {
        OutputFormat::Text => texts::dump_flows(&bridge, ports).into(),
        OutputFormat::Json => texts::dump_flows_json(&bridge, ports).into(),
    })
}
