//! Datapath:capabilities: the features of datapaths, for controllers of the database.

use crate::feature::{Feature, Report};
use crate::levels::{SwitchLevel, SwitchReport, SwitchTarget};
use crate::reader::Reader;
use ovsdb_client::schemas::vswitch::{Datapath, OpenVSwitch, datapath, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Ref, Row};
use ovsdb_client::{Transaction, columns};
use serde_json::Value;
use std::collections::BTreeMap;

/// The rows of datapaths, whose capabilities are reported.
#[derive(Debug, Default)]
pub struct DatapathCapabilities {
    rows: BTreeMap<String, Ref<Datapath>>,
}

impl Feature for DatapathCapabilities {
    type Level = SwitchLevel;
    /// Rows by type of the datapath.
    type Spec = BTreeMap<String, Ref<Datapath>>;
    const NAME: &'static str = "datapath-capabilities";
    const COLUMNS: &'static [AnyColumn] = &columns! { open_vswitch { DATAPATHS } };
    const REPORTS: &'static [AnyColumn] = &columns! { datapath { CAPABILITIES } };

    fn read(_: &Reader<'_>, root: Row<'_, OpenVSwitch>) -> Self::Spec {
        root.get(open_vswitch::DATAPATHS).into_iter().map(|(kind, row)| (kind.to_owned(), row)).collect()
    }

    fn apply(&mut self, spec: &Self::Spec, _: &mut SwitchTarget<'_>) {
        self.rows.clone_from(spec);
    }

    fn report(&self, of: SwitchReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        for (kind, dp) in of.devices.datapaths() {
            let Some(row) = self.rows.get(&kind) else { continue };
            let (_, features) = dp.switch.show_features();
            txn.set(*row, datapath::CAPABILITIES, capabilities(&features, dp.dpif.capabilities().conntrack));
        }
    }
}

/// The values of the column for features by name.
fn capabilities(features: &Value, conntrack: bool) -> BTreeMap<String, String> {
    let text = |name: &str, value: &Value| match value.as_u64() {
        // Here, nesting is possible or not.
        Some(depth) if name == "sample_nesting" => (depth > 0).to_string(),
        _ => value.to_string(),
    };
    let named = features.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(name, value)));
    named.chain([("ct_flush".to_owned(), conntrack.to_string())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_flags_are_texts() {
        let features = json!({"sample_nesting": 10, "max_mpls_depth": 3, "ct_state": true, "psample": false});
        let expected = [
            ("ct_flush", "true"),
            ("ct_state", "true"),
            ("max_mpls_depth", "3"),
            ("psample", "false"),
            ("sample_nesting", "true"),
        ];
        let shown = capabilities(&features, true);
        assert_eq!(shown.iter().map(|(k, v)| (&**k, &**v)).collect::<Vec<_>>(), expected);
    }
}
