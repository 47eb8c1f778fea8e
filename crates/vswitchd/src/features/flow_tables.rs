//! Flow tables: names, limits, eviction, and the fields of which prefixes are tracked.

use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use flow::Field;
use ofproto::TableSettings;
use openflow::action::Subfield;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{FlowTable, bridge, flow_table};
use ovsdb_client::typed::{AnyColumn, Row};
use std::collections::BTreeMap;

/// The table Flow_Table.
#[derive(Debug, Default)]
pub struct FlowTables;

/// The flow tables of a bridge that have a row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowTablesSpec {
    /// Settings by table.
    pub tables: BTreeMap<u8, TableSettings>,
    /// Fields whose prefixes are tracked, by table, where they are not the default ones.
    pub prefixes: BTreeMap<u8, Vec<Field>>,
}

impl Feature for FlowTables {
    type Level = BridgeLevel;
    type Spec = FlowTablesSpec;
    const NAME: &'static str = "flow-tables";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME, FLOW_TABLES }
        flow_table { NAME, FLOW_LIMIT, OVERFLOW_POLICY, GROUPS, PREFIXES }
    };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> FlowTablesSpec {
        let mut spec = FlowTablesSpec::default();
        for (number, table) in rows.bridge.get(bridge::FLOW_TABLES) {
            let Some(row) = reader.find(table) else { continue };
            let Ok(number) = u8::try_from(number) else { continue };
            let what = format!("{}: table {number}", rows.what());
            spec.tables.insert(number, table_settings(reader, &what, row));
            spec.prefixes.extend(prefixes(reader, &rows.what(), row).map(|fields| (number, fields)));
        }
        spec
    }

    fn apply(&mut self, spec: &FlowTablesSpec, target: &mut BridgeTarget<'_>) {
        let ofproto = &target.running.ofproto;
        ofproto.configure_tables(&spec.tables);
        for table in 0..=u8::MAX {
            ofproto.set_prefixes(table, spec.prefixes.get(&table).map(Vec::as_slice));
        }
    }
}

fn table_settings(reader: &Reader<'_>, what: &str, row: Row<'_, FlowTable>) -> TableSettings {
    let mut groups = Vec::new();
    for text in row.get(flow_table::GROUPS) {
        match Subfield::parse(text) {
            Ok(part) => groups.push(part),
            Err(why) => reader.warn(format!("{what}: groups: {why}")),
        }
    }
    TableSettings {
        name: row.get(flow_table::NAME).map(str::to_owned),
        max_flows: row.get(flow_table::FLOW_LIMIT).and_then(|n| u32::try_from(n).ok()),
        evict: row.get(flow_table::OVERFLOW_POLICY) == Some(Ok(flow_table::OverflowPolicy::Evict)),
        groups,
    }
}

/// The prefix fields of a table, unless they are the default ones. `none` stands for no field.
fn prefixes(reader: &Reader<'_>, what: &str, row: Row<'_, FlowTable>) -> Option<Vec<Field>> {
    let names = row.get(flow_table::PREFIXES);
    let mut fields = Vec::new();
    for name in names.iter().filter(|name| *name != "none") {
        match Field::from_name(name) {
            None => reader.warn(format!("{what}: 'prefixes' with unknown field: {name}")),
            Some(field) if !classifier::PREFIX_FIELDS.contains(&field) => {
                reader.warn(format!("{what}: 'prefixes' with incompatible field: {name}"));
            }
            Some(field) if fields.len() < classifier::MAX_PREFIXES => fields.push(field),
            Some(_) => reader.warn(format!("{what}: more than {} prefix fields", classifier::MAX_PREFIXES)),
        }
    }
    (!names.is_empty()).then_some(fields)
}
