//! Flow tables.

use super::Reader;
use flow::Field;
use ofproto::TableSettings;
use openflow::action::Subfield;
use ovsdb_client::schemas::vswitch::{Bridge, FlowTable, bridge, flow_table};
use ovsdb_client::typed::Row;
use std::collections::BTreeMap;

/// Prefix fields by table.
type Prefixes = BTreeMap<u8, Vec<Field>>;

impl Reader<'_> {
    /// The tables of a bridge that have a row, and the prefix fields of those where they are chosen.
    pub(super) fn flow_tables(&self, what: &str, row: Row<'_, Bridge>) -> (BTreeMap<u8, TableSettings>, Prefixes) {
        let (mut tables, mut prefixes) = (BTreeMap::new(), BTreeMap::new());
        for (number, table) in row.get(bridge::FLOW_TABLES) {
            let Some(row) = self.db.find(table) else { continue };
            let Ok(number) = u8::try_from(number) else { continue };
            let what = format!("{what}: table {number}");
            tables.insert(number, self.table_settings(&what, row));
            prefixes.extend(self.prefixes(&what, row).map(|fields| (number, fields)));
        }
        (tables, prefixes)
    }

    fn table_settings(&self, what: &str, row: Row<'_, FlowTable>) -> TableSettings {
        let mut groups = Vec::new();
        for text in row.get(flow_table::GROUPS) {
            match Subfield::parse(text) {
                Ok(part) => groups.push(part),
                Err(why) => self.warn(format!("{what}: groups: {why}")),
            }
        }
        TableSettings {
            name: row.get(flow_table::NAME).map(str::to_owned),
            max_flows: row.get(flow_table::FLOW_LIMIT).and_then(|n| u32::try_from(n).ok()),
            evict: row.get(flow_table::OVERFLOW_POLICY) == Some(Ok(flow_table::OverflowPolicy::Evict)),
            groups,
        }
    }

    /// The prefix fields of a table, unless they are the usual ones. `none` stands for no field.
    fn prefixes(&self, what: &str, row: Row<'_, FlowTable>) -> Option<Vec<Field>> {
        let names = row.get(flow_table::PREFIXES);
        let mut fields = Vec::new();
        for name in names.iter().filter(|name| *name != "none") {
            let known = Field::from_name(name).filter(|field| classifier::PREFIX_FIELDS.contains(field));
            match known {
                Some(field) if fields.len() < classifier::MAX_PREFIXES => fields.push(field),
                Some(_) => self.warn(format!("{what}: more than {} prefix fields", classifier::MAX_PREFIXES)),
                None => self.warn(format!("{what}: {name} is no prefix field")),
            }
        }
        (!names.is_empty()).then_some(fields)
    }
}
