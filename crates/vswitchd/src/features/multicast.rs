//! Multicast snooping of a bridge.

use crate::commands;
use crate::devices::Devices;
use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ofproto::SnoopingSettings;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::bridge;
use ovsdb_client::typed::AnyColumn;
use std::sync::Arc;
use unixctl::Commands;

/// `mcast_snooping_enable` and `other_config:mcast-snooping-*` of a bridge.
#[derive(Debug, Default)]
pub struct Multicast;

impl Feature for Multicast {
    type Level = BridgeLevel;
    /// The settings; `None` if snooping is disabled.
    type Spec = Option<SnoopingSettings>;
    const NAME: &'static str = "multicast-snooping";
    const COLUMNS: &'static [AnyColumn] = &columns! { bridge { NAME, MCAST_SNOOPING_ENABLE, OTHER_CONFIG } };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> Option<SnoopingSettings> {
        if !rows.bridge.get(bridge::MCAST_SNOOPING_ENABLE) {
            return None;
        }
        let (what, config) = (rows.what(), rows.bridge.get(bridge::OTHER_CONFIG));
        let mut settings = SnoopingSettings::default();
        if let Some(secs) = reader.number(&what, config, "mcast-snooping-aging-time") {
            settings.table.aging_secs = secs;
        }
        if let Some(size) = reader.number(&what, config, "mcast-snooping-table-size") {
            settings.table.table_size = size as usize;
        }
        let drop_unregistered = reader.flag(&what, config, "mcast-snooping-disable-flood-unregistered");
        settings.drop_unregistered = drop_unregistered.unwrap_or(false);
        Some(settings)
    }

    fn apply(&mut self, settings: &Option<SnoopingSettings>, target: &mut BridgeTarget<'_>) {
        target.running.ofproto.set_snooping(*settings);
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::mdb::register(commands, devices);
    }
}
