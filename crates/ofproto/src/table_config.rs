//! What is configured of flow tables: by the database (Flow_Table of ovs-vswitchd.conf.db(5)) and by controllers (table
//! mods, and names among table features).
//!
//! Flows are counted and limited by [`crate::transaction`]; which flow makes room for another, [`crate::evict`] says.

use crate::bridge::Ofproto;
use crate::conn::N_TABLES_SHOWN;
use openflow::action::Subfield;
use openflow::table::{TableDesc, TableMod, TableProperties, TableReason, TableStatus, Vacancy, table_config as bits};
use openflow::{Message, OfpError, Version};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use xlate::TableMiss;

/// Flows that a table holds where nobody set a limit, as told; it holds more.
pub(crate) const MAX_ENTRIES: u32 = 1_000_000;
/// All that there is to choose flows to evict by (`ofp_table_mod_prop_eviction_flag`): other things (the groups of the
/// database), importance and lifetime.
const EVICTION_FLAGS: u32 = 7;
/// Bytes of a table's name in messages, at most.
const NAME_LEN_MAX: usize = 31;
/// All tables.
const ALL_TABLES: u8 = 0xff;

/// What the database says of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSettings {
    /// What controllers are told that it is called.
    pub name: Option<String>,
    /// Flows that it holds, at most.
    pub max_flows: Option<u32>,
    /// Whether a flow makes room for another when it is full.
    pub evict: bool,
    /// The flow that makes room is one of the largest group of those that have the same values here.
    pub groups: Vec<Subfield>,
}

/// All that is configured of a table.
#[derive(Clone, Debug, Default)]
struct TableConfig {
    by_database: TableSettings,
    /// A name that a controller gave it, which it can as long as the database has none.
    name: Option<String>,
    /// Whether controllers want flows to make room.
    evicts: bool,
    /// Percentages of room.
    vacancy: Vacancy,
    /// What controllers are to be told of next, if they are to be told of vacancies.
    awaited: Option<TableReason>,
    miss: Option<TableMiss>,
}

impl TableConfig {
    fn name(&self) -> Option<&str> {
        self.by_database.name.as_deref().or(self.name.as_deref())
    }

    fn max_flows(&self) -> u32 {
        self.by_database.max_flows.unwrap_or(u32::MAX)
    }

    /// Percent of the table that are free of `n` flows.
    fn vacancy(&self, n: u64) -> u8 {
        let max = u64::from(self.max_flows());
        (max.saturating_sub(n) * 100).checked_div(max).unwrap_or(0) as u8
    }

    fn apply(&mut self, change: &TableMod, version: Version, n_flows: u64) {
        if version < Version::V13 {
            self.miss = Some(miss_of(change.config));
        }
        if version < Version::V14 {
            return;
        }
        self.evicts = change.config & bits::EVICTION != 0;
        let Vacancy { down, up, .. } = change.properties.vacancy.unwrap_or_default();
        self.vacancy = Vacancy { down, up, current: 0 };
        let below = if self.vacancy(n_flows) < up { TableReason::VacancyUp } else { TableReason::VacancyDown };
        self.awaited = (change.config & bits::VACANCY_EVENTS != 0).then(|| self.awaited.unwrap_or(below));
    }

    fn desc(&self, table_id: u8, n_flows: u64) -> TableDesc {
        let mut config = if self.evicts { bits::EVICTION } else { 0 };
        let mut properties = TableProperties { eviction_flags: Some(EVICTION_FLAGS), vacancy: None };
        if self.awaited.is_some() {
            config |= bits::VACANCY_EVENTS;
            properties.vacancy = Some(Vacancy { current: self.vacancy(n_flows), ..self.vacancy });
        }
        TableDesc { table_id, config, properties }
    }
}

/// What OpenFlow 1.1 and 1.2 have a miss do (`ofp_table_config`).
fn miss_of(config: u32) -> TableMiss {
    match config & 3 {
        1 => TableMiss::Continue,
        2 => TableMiss::Drop,
        _ => TableMiss::Controller,
    }
}

/// The configurations of a bridge's tables. Locked for moments only, also under the lock of the tables' changes.
#[derive(Debug, Default)]
pub(crate) struct TableConfigs(RwLock<BTreeMap<u8, TableConfig>>);

/// What becomes of flows that are too many.
#[derive(Clone, Debug)]
pub(crate) struct Overflow {
    /// Flows that the table holds.
    pub max_flows: u64,
    /// See [`TableSettings::groups`]; `None` if none makes room.
    pub evict_by: Option<Vec<Subfield>>,
}

impl TableConfigs {
    fn get<T>(&self, table: u8, of: impl FnOnce(&TableConfig) -> T) -> T {
        match self.0.read().get(&table) {
            Some(config) => of(config),
            None => of(&TableConfig::default()),
        }
    }

    /// The limit of a table, if there is one that `n` flows reach.
    pub(crate) fn overflow(&self, table: u8, n: u64) -> Option<Overflow> {
        let configs = self.0.read();
        let config = configs.get(&table).filter(|config| n >= config.max_flows().into())?;
        let by = &config.by_database;
        Some(Overflow {
            max_flows: config.max_flows().into(),
            evict_by: (by.evict || config.evicts).then(|| by.groups.clone()),
        })
    }

    /// The name of a table.
    pub(crate) fn name(&self, table: u8) -> Option<String> {
        self.get(table, |config| config.name().map(str::to_owned))
    }

    /// Whether controllers may give a table this name: not another than the database does.
    pub(crate) fn may_be_named(&self, table: u8, name: &str) -> bool {
        // Of a longer name, controllers know as much as messages have room for.
        let told = |own: &str| own.as_bytes().get(..NAME_LEN_MAX).unwrap_or(own.as_bytes()) == name.as_bytes();
        self.get(table, |config| config.by_database.name.as_deref().is_none_or(told))
    }

    /// Gives tables names, or takes them away by an empty one.
    pub(crate) fn set_names<'a>(&self, names: impl Iterator<Item = (u8, &'a str)>) {
        let mut configs = self.0.write();
        for (table, name) in names {
            let name = (!name.is_empty()).then(|| name.to_owned());
            if name.is_some() || configs.contains_key(&table) {
                let config = configs.entry(table).or_default();
                config.name = name.filter(|_| config.by_database.name.is_none());
            }
        }
    }

    /// Flows that a table holds, as told.
    pub(crate) fn max_entries(&self, table: u8) -> u32 {
        self.get(table, |config| config.max_flows().min(MAX_ENTRIES))
    }

    /// What a miss does, as OpenFlow 1.1 and 1.2 tell it.
    pub(crate) fn miss(&self, table: u8) -> Option<TableMiss> {
        self.get(table, |config| config.miss)
    }

    /// What misses do, where that was said.
    pub(crate) fn misses(&self) -> BTreeMap<u8, TableMiss> {
        self.0.read().iter().filter_map(|(table, config)| Some((*table, config.miss?))).collect()
    }
}

impl Ofproto {
    /// Has tables be as the database says; those that it does not name are as they are by default. Flows that are too many
    /// by now make room.
    pub fn configure_tables(&self, settings: &BTreeMap<u8, TableSettings>) {
        let changed: Vec<u8> = {
            let mut configs = self.table_configs.0.write();
            let tables = settings.keys().chain(configs.keys()).copied().collect::<std::collections::BTreeSet<u8>>();
            let mut changed = Vec::new();
            for table in tables {
                let new = settings.get(&table).cloned().unwrap_or_default();
                let config = configs.entry(table).or_default();
                if config.by_database != new {
                    if new.name.is_some() {
                        config.name = None;
                    }
                    config.by_database = new;
                    changed.push(table);
                }
            }
            changed
        };
        self.make_tables_fit(&changed);
    }

    /// Removes flows from tables that hold more than they may, and tells of it.
    fn make_tables_fit(&self, tables: &[u8]) {
        if tables.is_empty() {
            return;
        }
        let removed = self.transaction(|t| {
            tables.iter().for_each(|table| t.make_fit(*table));
            Ok(())
        });
        if let Ok(((), removed)) = removed {
            self.finish_removal(removed);
        }
    }

    /// Carries out a table modification.
    ///
    /// Errors: `OFPTMFC_BAD_TABLE`, `OFPTMFC_EPERM` for the table that the switch keeps for itself, `OFPTMFC_BAD_CONFIG` for
    /// another choice of flows to evict.
    pub(crate) fn table_mod(&self, change: &TableMod, version: Version) -> Result<(), OfpError> {
        let tables = match change.table_id {
            ALL_TABLES => 0..N_TABLES_SHOWN,
            table if usize::from(table) >= self.tables().len() => return Err(OfpError::TmfcBadTable),
            table => table..table + 1,
        };
        if change.properties.eviction_flags.is_some_and(|flags| flags != EVICTION_FLAGS) {
            return Err(OfpError::TmfcBadConfig);
        }
        if tables.contains(&crate::flow_table::INTERNAL_TABLE) {
            return Err(OfpError::TmfcEperm);
        }
        let misses = self.table_configs.misses();
        {
            let mut configs = self.table_configs.0.write();
            for table in tables {
                configs.entry(table).or_default().apply(change, version, self.n_flows_of(table));
            }
        }
        if self.table_configs.misses() != misses {
            self.rebuild();
        }
        Ok(())
    }

    fn n_flows_of(&self, table: u8) -> u64 {
        self.tables().get(usize::from(table)).map_or(0, xlate::Table::n_active)
    }

    /// What is configured of the tables that are shown.
    pub(crate) fn table_descs(&self) -> Vec<TableDesc> {
        let desc = |table| self.table_configs.get(table, |config| config.desc(table, self.n_flows_of(table)));
        (0..N_TABLES_SHOWN).map(desc).collect()
    }

    /// Tells controllers of tables whose room came to be little, or enough again, since they were last told.
    pub(crate) fn tell_vacancies(&self, tables: impl Iterator<Item = u8>) {
        for table in tables {
            let Some(status) = self.vacancy_change(table) else { continue };
            let message = Message::TableStatus(status);
            self.connections().for_each(|peer| {
                if peer.wants(|a| a.table_status, status.reason as u32) {
                    peer.notify(&message);
                }
            });
        }
    }

    fn vacancy_change(&self, table: u8) -> Option<TableStatus> {
        // Mostly nobody wants to know.
        self.table_configs.get(table, |config| config.awaited)?;
        let n = self.n_flows_of(table);
        let mut configs = self.table_configs.0.write();
        let config = configs.get_mut(&table)?;
        let vacancy = config.vacancy(n);
        let (reason, next) = match config.awaited? {
            TableReason::VacancyDown if vacancy < config.vacancy.down => {
                (TableReason::VacancyDown, TableReason::VacancyUp)
            }
            TableReason::VacancyUp if vacancy > config.vacancy.up => (TableReason::VacancyUp, TableReason::VacancyDown),
            _ => return None,
        };
        let status = TableStatus { reason, desc: config.desc(table, n) };
        config.awaited = Some(next);
        Some(status)
    }
}
