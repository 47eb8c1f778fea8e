//! NetFlow: Bridge:netflow and the table NetFlow, to the settings of the bridge's exporter.

use super::collectors::targets;
use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ::netflow::exporter::ACTIVE_TIMEOUT_SECS;
use ofproto::NetflowSettings;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{bridge, netflow};
use ovsdb_client::typed::AnyColumn;

/// Numbers of engines that fit into the numbers of interfaces.
const ENGINES_IN_INTERFACES: i64 = 128;
/// Numbers of ports that fit beside them, without those that stand for several ports or none.
const PORTS_IN_INTERFACES: usize = 508;

/// The NetFlow exporter of a bridge.
#[derive(Debug, Default)]
pub struct Netflow;

impl Feature for Netflow {
    type Level = BridgeLevel;
    /// `None` without an exporter.
    type Spec = Option<NetflowSettings>;
    const NAME: &'static str = "netflow";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME, NETFLOW, PORTS }
        netflow { TARGETS, ENGINE_ID, ENGINE_TYPE, ACTIVE_TIMEOUT, ADD_ID_TO_INTERFACE }
    };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> Option<NetflowSettings> {
        let (what, row) = (rows.what(), rows.bridge.get(bridge::NETFLOW).and_then(|row| reader.find(row))?);
        let byte = |value: Option<i64>| value.and_then(|n| u8::try_from(n).ok());
        let (id, add_id_to_interface) = (row.get(netflow::ENGINE_ID), row.get(netflow::ADD_ID_TO_INTERFACE));
        if add_id_to_interface && id.is_some_and(|id| id >= ENGINES_IN_INTERFACES) {
            reader.warn(format!(
                "{what}: NetFlow port mangling may conflict with another vswitch, choose an engine id less than 128"
            ));
        }
        if add_id_to_interface && rows.bridge.get(bridge::PORTS).into_iter().count() > PORTS_IN_INTERFACES {
            reader.warn(format!(
                "{what}: NetFlow port mangling will conflict with another port when more than 508 ports are used"
            ));
        }
        let targets = targets(reader, &format!("{what}: NetFlow"), row.get(netflow::TARGETS), None);
        if targets.is_empty() {
            reader.warn(format!("{what}: NetFlow: there is no collector, NetFlow is disabled"));
            return None;
        }
        Some(NetflowSettings {
            targets,
            engine_type: byte(row.get(netflow::ENGINE_TYPE)),
            engine_id: byte(id),
            active_timeout_secs: match row.get(netflow::ACTIVE_TIMEOUT) {
                0 => Some(ACTIVE_TIMEOUT_SECS),
                // A negative one disables it.
                secs => u32::try_from(secs).ok(),
            },
            add_id_to_interface,
        })
    }

    fn apply(&mut self, spec: &Option<NetflowSettings>, target: &mut BridgeTarget<'_>) {
        target.running.ofproto.set_netflow(spec.clone());
    }
}
