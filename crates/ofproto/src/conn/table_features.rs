//! The features of flow tables (OpenFlow 1.3 section 7.3.5.5), which are the same for all of them except for the next tables;
//! and table counters, which include them in OpenFlow 1.1 and 1.2.

use super::handle::N_TABLES_SHOWN;
use crate::bridge::Ofproto;
use flow::field::FIELDS;
use flow::{Field, FieldInfo, Maskable};
use openflow::table::{
    ActionFeatures, FieldSet, FlowFeatures, TableAbilities, TableFeatures, TableStats, table_config as bits,
};
use openflow::{OfpError, Version};
use std::sync::atomic::Ordering;
use xlate::TableMiss;

/// The commands of requests (`ofp_table_features_command`).
const REPLACE: u8 = 0;
const MODIFY: u8 = 1;
const ENABLE: u8 = 2;
const DISABLE: u8 = 3;

/// Wildcards of OpenFlow 1.0: all of them.
const WILDCARDS10: u32 = (1 << 22) - 1;

/// goto_table, write_metadata, write_actions, apply_actions, clear_actions, meter, by `ofp_instruction_type`.
const INSTRUCTIONS: u32 = 0b111_1110;
const GOTO_TABLE: u32 = 1 << 1;
const METER: u32 = 1 << 6;
/// By `ofp_action_type`: output, set_mpls_ttl, dec_mpls_ttl, push_vlan, pop_vlan, push_mpls, pop_mpls, set_queue, group,
/// set_nw_ttl, dec_nw_ttl, set_field.
const ACTIONS: u32 = 1 | 0x3ff_8000;
/// The actions that OpenFlow 1.3 added: push_pbb, pop_pbb.
const ACTIONS_PBB: u32 = 3 << 26;
/// The actions of OpenFlow 1.1: all except the two that copy TTLs.
const ACTIONS11: u32 = 0x1ff_e7ff;
/// The actions of OpenFlow 1.0: all twelve.
pub(super) const ACTIONS10: u32 = 0xfff;

/// Returns the actions in the numbering of a version.
pub(super) fn actions(version: Version) -> u32 {
    match version {
        Version::V10 => ACTIONS10,
        Version::V11 => ACTIONS11,
        Version::V12 => ACTIONS,
        _ => ACTIONS | ACTIONS_PBB,
    }
}

impl Ofproto {
    /// Returns the features of all tables that OpenFlow shows.
    pub(super) fn table_features(&self, version: Version) -> Vec<TableFeatures> {
        (0..N_TABLES_SHOWN).map(|table| self.features_of_table(table, version)).collect()
    }

    fn features_of_table(&self, table: u8, version: Version) -> TableFeatures {
        let mut features = TableFeatures {
            name: self.table_configs.name(table).unwrap_or_default(),
            max_entries: self.table_configs.max_entries(table),
            ..of_table(table, version)
        };
        for flow in [&mut features.nonmiss, &mut features.miss] {
            flow.write.actions = actions(version);
            flow.apply.actions = actions(version);
        }
        if version >= Version::V15 {
            // In this version it is an action.
            features.nonmiss.instructions &= !METER;
            features.miss.instructions &= !METER;
        }
        features
    }

    /// Changes tables' names, the only feature that can be changed. Other features of a request are ignored.
    ///
    /// Errors: `OFPTFFC_BAD_COMMAND`, `OFPTFFC_BAD_TABLE`, `NXTFFC_DUP_TABLE`; `OFPTFFC_EPERM` for enabling and disabling
    /// tables, for leaving some out (unless the request is a modification), for other numbers of entries, and for
    /// names of tables that contradict those of the database.
    pub(super) fn change_table_features(&self, requested: &[TableFeatures], version: Version) -> Result<(), OfpError> {
        let command = requested.first().map_or(0, |first| first.command);
        match command {
            REPLACE | MODIFY => {}
            ENABLE | DISABLE => return Err(OfpError::TffcEperm),
            _ => return Err(OfpError::TffcBadCommand),
        }
        let mut seen = [false; 256];
        for features in requested {
            let table = features.table_id;
            if table == u8::MAX {
                return Err(OfpError::TffcBadTable);
            }
            if std::mem::replace(&mut seen[usize::from(table)], true) {
                return Err(OfpError::NxtffcDupTable);
            }
            let configured = version >= Version::V14 && features.config & (bits::EVICTION | bits::VACANCY_EVENTS) != 0;
            if table >= N_TABLES_SHOWN
                || configured
                || features.max_entries != self.table_configs.max_entries(table)
                || !self.table_configs.may_be_named(table, &features.name)
            {
                return Err(OfpError::TffcEperm);
            }
        }
        if command == REPLACE && requested.len() != usize::from(N_TABLES_SHOWN) {
            return Err(OfpError::TffcEperm);
        }
        self.table_configs.set_names(requested.iter().map(|features| (features.table_id, features.name.as_str())));
        Ok(())
    }

    pub(super) fn table_stats(&self, version: Version) -> Vec<TableStats> {
        self.push_stats();
        let tables = self.tables().iter().zip(0..N_TABLES_SHOWN);
        tables
            .map(|(table, table_id)| TableStats {
                table_id,
                name: self.table_configs.name(table_id).unwrap_or_default(),
                wildcards: WILDCARDS10,
                max_entries: self.table_configs.max_entries(table_id),
                active_count: table.n_active() as u32,
                lookup_count: table.matched.load(Ordering::Relaxed) + table.missed.load(Ordering::Relaxed),
                matched_count: table.matched.load(Ordering::Relaxed),
                abilities: matches!(version, Version::V11 | Version::V12)
                    .then(|| Box::new(self.abilities(version, table_id))),
            })
            .collect()
    }

    fn abilities(&self, version: Version, table: u8) -> TableAbilities {
        let mut features = of_table(table, version);
        // OpenFlow 1.3 added it.
        features.nonmiss.instructions &= !METER;
        if version == Version::V11 {
            features.nonmiss.write.actions = actions(version);
            features.nonmiss.apply.actions = actions(version);
        }
        let config = match self.table_configs.miss(table) {
            None | Some(TableMiss::Controller) => 0,
            Some(TableMiss::Continue) => 1,
            Some(TableMiss::Drop) => 2,
        };
        TableAbilities { config, ..TableAbilities::of(version, &features) }
    }
}

/// Returns true for fields that Open vSwitch lacks, in versions before those that have them.
fn is_too_new(field: &FieldInfo, version: Version) -> bool {
    matches!(field.id, Field::PbbIsid | Field::PbbUca | Field::Ipv6Exthdr)
        && field.nxm.iter().all(|header| header.since > version.wire())
}

fn of_table(table_id: u8, version: Version) -> TableFeatures {
    let mut matching = FieldSet::default();
    let mut set_fields = FieldSet::default();
    for field in FIELDS {
        if field.nxm.is_empty() || is_too_new(field, version) {
            continue;
        }
        matching.insert(field.id);
        if field.writable {
            set_fields.insert(field.id);
        }
    }
    let actions = ActionFeatures { actions: ACTIONS, set_fields };
    let mut next_tables = [0u64; 4];
    for next in table_id + 1..N_TABLES_SHOWN {
        next_tables[usize::from(next / 64)] |= 1 << (next % 64);
    }
    let last = table_id + 1 == N_TABLES_SHOWN;
    let instructions = if last { INSTRUCTIONS & !GOTO_TABLE } else { INSTRUCTIONS };
    let features = FlowFeatures { instructions, next_tables, write: actions, apply: actions };
    TableFeatures {
        command: 0,
        flags: 0,
        table_id,
        name: String::new(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries: 0,
        any_properties: true,
        nonmiss: features.clone(),
        miss: features,
        matching,
        // Every field can be wildcarded.
        wildcard: matching,
        maskable: matching.iter().filter(|field| field.maskable == Maskable::Full).map(|field| field.id).collect(),
    }
}
