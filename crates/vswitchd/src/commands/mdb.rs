//! `mdb/`: multicast groups and routers.

use super::{act, all_bridges, find_bridge, show};
use crate::devices::Devices;
use ofproto::Ofproto;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// The error about a bridge without multicast snooping.
const DISABLED: &str = "multicast snooping is disabled";

fn named(devices: &Devices, args: &[String]) -> Result<Arc<Ofproto>, String> {
    args.first().and_then(|name| find_bridge(devices, name)).ok_or_else(|| "no such bridge".to_owned())
}

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("mdb/show", "bridge", 1..=1), |d, args, format| {
        let bridge = named(d, args)?;
        match format {
            OutputFormat::Text => bridge.mdb_show().map(super::Shown::from),
            OutputFormat::Json => bridge.mdb_json().map(super::Shown::from),
        }
        .ok_or_else(|| DISABLED.to_owned())
    });
    act(commands, devices, ("mdb/flush", "[bridge]", 0..=1), |d, args| {
        if args.is_empty() {
            all_bridges(d).iter().for_each(|bridge| _ = bridge.flush_multicast());
        } else if !named(d, args)?.flush_multicast() {
            return Err(DISABLED.to_owned());
        }
        Ok("table successfully flushed".to_owned())
    });
}
