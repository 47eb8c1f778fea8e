//! Whether NORMAL forwards frames to reserved addresses.

use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::bridge;
use ovsdb_client::typed::AnyColumn;

/// `other_config:forward-bpdu` of a bridge.
#[derive(Debug, Default)]
pub struct ForwardBpdu;

impl Feature for ForwardBpdu {
    type Level = BridgeLevel;
    type Spec = bool;
    const NAME: &'static str = "forward-bpdu";
    const COLUMNS: &'static [AnyColumn] = &columns! { bridge { NAME, OTHER_CONFIG } };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> bool {
        reader.flag(&rows.what(), rows.bridge.get(bridge::OTHER_CONFIG), "forward-bpdu").unwrap_or(false)
    }

    fn apply(&mut self, on: &bool, target: &mut BridgeTarget<'_>) {
        target.running.ofproto.set_forward_bpdu(*on);
    }
}
