//! `fdb/`: learned and static addresses.

use super::{act, all_bridges, find_bridge, show};
use crate::devices::Devices;
use base::MacAddr;
use ofproto::{Ofproto, show as texts};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

fn named(devices: &Devices, name: &str) -> Result<Arc<Ofproto>, String> {
    find_bridge(devices, name).ok_or_else(|| "no such bridge".to_owned())
}

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("fdb/show", "[bridge...]", 0..=usize::MAX), fdb_show);
    act(commands, devices, ("fdb/add", "bridge port vlan mac", 4..=4), fdb_add);
    act(commands, devices, ("fdb/del", "bridge vlan mac", 3..=3), fdb_del);
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

/// The addresses of one bridge, of several, or of all.
fn fdb_show(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let named = |name: &String| find_bridge(devices, name).ok_or_else(|| format!("no such bridge {name}"));
    let bridges = match args {
        [] => all_bridges(devices),
        names => names.iter().map(named).collect::<Result<_, _>>()?,
    };
    Ok(match (bridges.as_slice(), format) {
        ([bridge], OutputFormat::Text) => texts::fdb_show(bridge).into(),
        (bridges, OutputFormat::Text) => texts::fdb_show_all(bridges).into(),
        (bridges, OutputFormat::Json) => texts::fdb_json(bridges).into(),
    })
}

/// A VLAN and an address among the arguments of a command.
fn address(vlan: &str, mac: &str) -> Result<(u16, MacAddr), String> {
    // As `atoi` reads it, and as many bits as the table has.
    Ok((cli::leading_integer(vlan, 10) as u16, mac.parse().map_err(|_| "bad MAC address")?))
}

/// Adds a static address.
fn fdb_add(devices: &Devices, args: &[String]) -> Result<String, String> {
    let [bridge, port, vlan, mac] = args else { return Err("four arguments are expected".into()) };
    let bridge = named(devices, bridge)?;
    let port = bridge.port_named(port).ok_or("software error, odp port is present but no ofp port")?.spec.no;
    let (vlan, mac) = address(vlan, mac)?;
    let replaced = bridge.add_static_mac(vlan, mac, port).map_err(|e| e.to_string())?;
    Ok(replaced.map_or_else(String::new, |entry| {
        let kind = if entry.is_static { "static" } else { "dynamic" };
        format!("Overriding already existing {kind} entry on {}", entry.port.to_of10())
    }))
}

/// Removes a static address.
fn fdb_del(devices: &Devices, args: &[String]) -> Result<String, String> {
    let [bridge, vlan, mac] = args else { return Err("three arguments are expected".into()) };
    let bridge = named(devices, bridge)?;
    let (vlan, mac) = address(vlan, mac)?;
    if bridge.remove_static_mac(vlan, mac) { Ok(String::new()) } else { Err("could not find static mac entry".into()) }
}
