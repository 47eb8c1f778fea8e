//! The limits of a bridge's table of learned addresses.

use crate::commands;
use crate::devices::Devices;
use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::bridge;
use ovsdb_client::typed::AnyColumn;
use std::ops::RangeInclusive;
use std::sync::Arc;
use unixctl::Commands;

/// `mac-aging-time` (of a bridge with RSTP, without it, `rstp-ageing-time`) and `mac-table-size`.
#[derive(Debug, Default)]
pub struct MacTable;

/// The valid ageing times of RSTP (IEEE 802.1D-2004, table 7-5).
const RSTP_AGEING_SECS: RangeInclusive<u32> = 10..=1_000_000;

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
    const COLUMNS: &'static [AnyColumn] = &columns! { bridge { NAME, OTHER_CONFIG, RSTP_ENABLE } };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> MacTableSpec {
        let (what, config) = (rows.what(), rows.bridge.get(bridge::OTHER_CONFIG));
        let default = MacTableSpec::default();
        let general = reader.number(&what, config, "mac-aging-time").map(|secs| secs.clamp(15, 3600));
        let of_rstp = || {
            let is_valid = |secs: &u32| RSTP_AGEING_SECS.contains(secs);
            let range = format!("a number from {} to {}", RSTP_AGEING_SECS.start(), RSTP_AGEING_SECS.end());
            reader.checked(&what, config, "rstp-ageing-time", &range, |text| text.parse().ok().filter(is_valid))
        };
        let of_rstp = if rows.bridge.get(bridge::RSTP_ENABLE) { of_rstp() } else { None };
        MacTableSpec {
            aging_secs: general.or(of_rstp).unwrap_or(default.aging_secs),
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
