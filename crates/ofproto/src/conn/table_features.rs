//! What each flow table can do (OpenFlow 1.3 section 7.3.5.5): the same for all of them, but for which come next.

use super::handle::N_TABLES_SHOWN;
use flow::field::FIELDS;
use flow::{Loc, Maskable};
use openflow::table::{ActionFeatures, FieldSet, FlowFeatures, TableDesc, TableFeatures, TableProperties};

/// Flows a table, at most.
pub(super) const MAX_ENTRIES: u32 = 1_000_000;

/// goto_table, write_metadata, write_actions, apply_actions, clear_actions, meter, by `ofp_instruction_type`.
const INSTRUCTIONS: u32 = 0b111_1110;
/// By `ofp_action_type`: output, push_vlan, pop_vlan, set_queue, group, set_nw_ttl, dec_nw_ttl, set_field.
pub(super) const ACTIONS: u32 = 1 | 1 << 17 | 1 << 18 | 1 << 21 | 1 << 22 | 1 << 23 | 1 << 24 | 1 << 25;

/// The features of all tables that are announced.
pub(super) fn all() -> Vec<TableFeatures> {
    (0..N_TABLES_SHOWN).map(of_table).collect()
}

/// What is configured of them: flows are not evicted, and nobody is told of vacancies.
pub(super) fn descs() -> Vec<TableDesc> {
    let desc = |table_id| TableDesc { table_id, config: 0, properties: TableProperties::default() };
    (0..N_TABLES_SHOWN).map(desc).collect()
}

fn of_table(table_id: u8) -> TableFeatures {
    let mut matching = FieldSet::default();
    let mut set_fields = FieldSet::default();
    let mut wildcard = FieldSet::default();
    for field in FIELDS {
        // Tunnel options have no place in keys until a TLV table gives them one.
        if field.nxm.is_empty() || matches!(field.loc, Loc::TunMetadata(_)) {
            continue;
        }
        matching.insert(field.id);
        if field.writable {
            set_fields.insert(field.id);
        }
        if field.maskable == Maskable::Full {
            wildcard.insert(field.id);
        }
    }
    let actions = ActionFeatures { actions: ACTIONS, set_fields };
    let mut next_tables = [0u64; 4];
    for next in table_id + 1..N_TABLES_SHOWN {
        next_tables[usize::from(next / 64)] |= 1 << (next % 64);
    }
    let features = FlowFeatures { instructions: INSTRUCTIONS, next_tables, write: actions, apply: actions };
    TableFeatures {
        command: 0,
        flags: 0,
        table_id,
        name: String::new(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries: MAX_ENTRIES,
        nonmiss: features.clone(),
        miss: features,
        matching,
        wildcard,
    }
}
