//! `fdb/`, `ofproto/list` and `bridge/`.

use super::{act, all_bridges, find_bridge, show, show_blocking};
use crate::devices::Devices;
use flow::text::{NoNames, PortNames};
use ofproto::{Ofproto, show as texts};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

fn named(devices: &Devices, name: &str) -> Result<Arc<Ofproto>, String> {
    find_bridge(devices, name).ok_or_else(|| "no such bridge".to_owned())
}

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("fdb/show", "bridge...", 1..=usize::MAX), fdb_show);
    act(commands, devices, ("fdb/flush", "[bridge]", 0..=1), |d, args| {
        match args.first() {
            Some(name) => named(d, name)?.flush_macs(),
            None => all_bridges(d).iter().for_each(|b| b.flush_macs()),
        }
        Ok("table successfully flushed".to_owned())
    });
    show(commands, devices, ("fdb/stats-show", "bridge", 1..=1), |d, args, format| {
        let bridge = named(d, args.first().map_or("", |a| a))?;
        Ok(match format {
            OutputFormat::Text => texts::fdb_stats_show(&bridge).into(),
            OutputFormat::Json => texts::fdb_stats_json(&bridge).into(),
        })
    });
    act(commands, devices, ("fdb/stats-clear", "[bridge]", 0..=1), |d, args| {
        let clear = |b: &Ofproto| b.macs().write().clear_counters();
        match args.first() {
            Some(name) => clear(&*named(d, name)?),
            None => all_bridges(d).iter().for_each(|b| clear(b)),
        }
        Ok("statistics successfully cleared".to_owned())
    });
    show(commands, devices, ("ofproto/list", "", 0..=0), |d, _, format| {
        let bridges = all_bridges(d);
        Ok(match format {
            OutputFormat::Text => bridges.iter().map(|b| format!("{}\n", b.name())).collect::<String>().into(),
            OutputFormat::Json => bridges.iter().map(|b| Value::from(b.name())).collect::<Value>().into(),
        })
    });
    act(commands, devices, ("bridge/reconnect", "[bridge]", 0..=1), |d, args| {
        match args.first() {
            Some(name) => find_bridge(d, name).ok_or("Unknown bridge")?.connections().reconnect(),
            None => all_bridges(d).iter().for_each(|bridge| bridge.connections().reconnect()),
        }
        Ok(String::new())
    });
    show_blocking(commands, devices, ("bridge/dump-flows", "[--offload-stats] [--names] bridge", 1..=3), dump_flows);
}

/// One bridge's table, or the tables of several, each under its bridge's name.
fn fdb_show(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let bridges: Vec<_> = args.iter().map(|name| named(devices, name)).collect::<Result<_, _>>()?;
    Ok(match (bridges.as_slice(), format) {
        ([bridge], OutputFormat::Text) => texts::fdb_show(bridge).into(),
        ([bridge], OutputFormat::Json) => texts::fdb_json(bridge).into(),
        (bridges, OutputFormat::Text) => {
            let mut out = String::new();
            for bridge in bridges {
                let _ = write!(out, "{}:\n{}", bridge.name(), texts::fdb_show(bridge));
            }
            out.into()
        }
        (bridges, OutputFormat::Json) => {
            let tables: Map<_, _> = bridges.iter().map(|b| (b.name().to_owned(), texts::fdb_json(b))).collect();
            Value::from(tables).into()
        }
    })
}

fn dump_flows(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let (options, names): (Vec<&String>, Vec<&String>) = args.iter().partition(|a| a.starts_with('-'));
    let mut with_names = false;
    for option in options {
        match option.as_str() {
            "--names" => with_names = true,
            // Without offloaded flows there is nothing to tell apart; with them, rules do not.
            "--offload-stats" if devices.datapaths().iter().all(|(_, dp)| dp.dpif.offload().is_none()) => {}
            "--offload-stats" => return Err("--offload-stats: packets of rules are not counted apart".to_owned()),
            other => return Err(format!("{other}: unknown option")),
        }
    }
    let [name] = names.as_slice() else { return Err("Unknown bridge".to_owned()) };
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
