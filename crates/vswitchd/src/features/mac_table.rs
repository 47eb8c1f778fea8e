//! The limits of a bridge's table of learned addresses.

use crate::commands;
use crate::devices::Devices;
use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::bridge;
use ovsdb_client::typed::AnyColumn;
use std::sync::Arc;
use unixctl::Commands;

/// `mac-aging-time` and `mac-table-size`.
#[derive(Debug, Default)]
pub struct MacTable;

/// The limits of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacTableSpec {
    /// Seconds until a learned address is forgotten.
    pub aging_secs: u32,
    /// Most learned addresses.
    pub size: u32,
}

impl Default for MacTableSpec {
    fn default() -> Self {
        Self { aging_secs: xlate::mac::AGING_SECS, size: xlate::mac::TABLE_SIZE as u32 }
    }
}

impl Feature for MacTable {
    type Level = BridgeLevel;
    type Spec = MacTableSpec;
    const NAME: &'static str = "mac-table";
    const COLUMNS: &'static [AnyColumn] = &columns! { bridge { NAME, OTHER_CONFIG } };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> MacTableSpec {
        let (what, config) = (rows.what(), rows.bridge.get(bridge::OTHER_CONFIG));
        let default = MacTableSpec::default();
        MacTableSpec {
            aging_secs: reader.number(&what, config, "mac-aging-time").unwrap_or(default.aging_secs),
            size: reader.number(&what, config, "mac-table-size").unwrap_or(default.size),
        }
    }

    fn apply(&mut self, spec: &MacTableSpec, target: &mut BridgeTarget<'_>) {
        target.running.ofproto.configure_macs(spec.size as usize, spec.aging_secs);
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::fdb::register(commands, devices);
    }
}
