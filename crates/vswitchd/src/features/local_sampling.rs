//! Collector sets with collectors on this host (Flow_Sample_Collector_Set:local_group_id).

use super::collectors::explicit_drops;
use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ofproto::LocalSets;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{FlowSampleCollectorSet, flow_sample_collector_set as set, open_vswitch};
use ovsdb_client::typed::AnyColumn;
use std::sync::Arc;

/// The collector sets of a bridge.
#[derive(Debug, Default)]
pub struct LocalSampling;

impl Feature for LocalSampling {
    type Level = BridgeLevel;
    /// `None` without collector sets.
    type Spec = Option<LocalSets>;
    const NAME: &'static str = "local-sampling";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        set { ID, BRIDGE, LOCAL_GROUP_ID }
        open_vswitch { OTHER_CONFIG }
    };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> Option<LocalSets> {
        let of_bridge =
            reader.all(FlowSampleCollectorSet).filter(|row| row.get(set::BRIDGE) == rows.bridge.reference());
        let number = |value: i64| u32::try_from(value).ok();
        let groups =
            of_bridge.filter_map(|row| Some((number(row.get(set::ID))?, number(row.get(set::LOCAL_GROUP_ID)?)?)));
        let sets = LocalSets { groups: Arc::new(groups.collect()), explicit_drops: explicit_drops(rows.root) };
        (!sets.groups.is_empty()).then_some(sets)
    }

    fn apply(&mut self, spec: &Option<LocalSets>, target: &mut BridgeTarget<'_>) {
        let running = &target.running;
        if spec.is_some() {
            // The kernel's module may have been loaded since.
            running.dp.find_local_collectors();
            if !running.dp.switch.has_local_collectors() {
                tracing::warn!(
                    target: "bridge",
                    "bridge {}: ignoring local sampling configuration: not supported by this datapath",
                    running.ofproto.name()
                );
            }
        }
        running.ofproto.set_local_sets(spec.clone());
    }
}
