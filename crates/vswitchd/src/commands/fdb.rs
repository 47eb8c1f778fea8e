//! `fdb/`: learned addresses.

use super::{act, all_bridges, find_bridge, show};
use crate::devices::Devices;
use ofproto::{Ofproto, show as texts};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

fn named(devices: &Devices, name: &str) -> Result<Arc<Ofproto>, String> {
    find_bridge(devices, name).ok_or_else(|| "no such bridge".to_owned())
}

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
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
