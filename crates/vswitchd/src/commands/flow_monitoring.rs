//! `sflow/show` and `netflow/show`: counters of agents and exporters. (Open vSwitch has no such commands.)

use super::{Shown, all_bridges, find_bridge, show};
use crate::devices::Devices;
use ofproto::Ofproto;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// Counters of a bridge by name, in order; `None` if it has no agent or exporter.
type Counters = fn(&Ofproto) -> Option<Vec<(&'static str, u64)>>;

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let all: [(&str, Counters); 2] = [("sflow/show", sflow), ("netflow/show", netflow)];
    for (name, counters) in all {
        show(commands, devices, (name, "[bridge]", 0..=1), move |devices, args, format| {
            shown(devices, args.first().map(String::as_str), format, counters)
        });
    }
}

fn shown(devices: &Devices, bridge: Option<&str>, format: OutputFormat, counters: Counters) -> Result<Shown, String> {
    let mut bridges = match bridge {
        Some(name) => vec![find_bridge(devices, name).ok_or("no such bridge")?],
        None => all_bridges(devices),
    };
    bridges.sort_by(|a, b| a.name().cmp(b.name()));
    let all = bridges.iter().filter_map(|bridge| Some((bridge.name().to_owned(), counters(bridge)?)));
    Ok(match format {
        OutputFormat::Text => all.map(|(name, counters)| text(&name, &counters)).collect::<String>().into(),
        OutputFormat::Json => {
            let object = |counters: Vec<_>| counters.into_iter().map(|(name, n): (&str, u64)| (name.into(), json!(n)));
            let all = all.map(|(name, counters)| (name, Value::Object(object(counters).collect())));
            Value::Object(all.collect::<Map<_, _>>()).into()
        }
    })
}

fn text(bridge: &str, counters: &[(&str, u64)]) -> String {
    let lines = counters.iter().map(|(name, n)| format!("  {name}: {n}\n"));
    format!("{bridge}:\n{}", lines.collect::<String>())
}

fn sflow(bridge: &Ofproto) -> Option<Vec<(&'static str, u64)>> {
    let (counters, [flow_samples, counter_samples]) = bridge.sflow_stats()?;
    Some(vec![
        ("flow samples", flow_samples),
        ("counter samples", counter_samples),
        ("lost samples", counters.lost),
        ("datagrams sent", counters.sent),
        ("send errors", counters.send_errors),
    ])
}

fn netflow(bridge: &Ofproto) -> Option<Vec<(&'static str, u64)>> {
    let (counters, stats) = bridge.netflow_stats()?;
    Some(vec![
        ("flows", stats.flows),
        ("evicted flows", stats.evicted),
        ("records", stats.records),
        ("lost datagrams", counters.lost),
        ("datagrams sent", counters.sent),
        ("send errors", counters.send_errors),
    ])
}
