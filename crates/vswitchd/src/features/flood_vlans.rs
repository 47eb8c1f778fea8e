//! The VLANs in which NORMAL learns no addresses.

use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::bridge;
use ovsdb_client::typed::AnyColumn;
use xlate::model::VlanSet;

/// `flood_vlans` of a bridge.
#[derive(Debug, Default)]
pub struct FloodVlans;

impl Feature for FloodVlans {
    type Level = BridgeLevel;
    type Spec = Vec<u16>;
    const NAME: &'static str = "flood-vlans";
    const COLUMNS: &'static [AnyColumn] = &columns! { bridge { NAME, FLOOD_VLANS } };

    fn read(_: &Reader<'_>, rows: BridgeRows<'_>) -> Vec<u16> {
        rows.bridge.get(bridge::FLOOD_VLANS).into_iter().filter_map(|vlan| u16::try_from(vlan).ok()).collect()
    }

    fn apply(&mut self, vlans: &Vec<u16>, target: &mut BridgeTarget<'_>) {
        let vlans = (!vlans.is_empty()).then(|| vlans.iter().copied().collect::<VlanSet>());
        target.running.ofproto.set_flood_vlans(vlans);
    }
}
