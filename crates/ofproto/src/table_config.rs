//! The configuration of flow tables: by the database (Flow_Table of ovs-vswitchd.conf.db(5)) and by controllers (table
//! mods, and names in table features).
//!
//! [`crate::transaction`] counts and limits flows; [`crate::evict`] selects the flows to evict.

use crate::bridge::Ofproto;
use crate::conn::N_TABLES_SHOWN;
use openflow::action::Subfield;
use openflow::table::{TableDesc, TableMod, TableProperties, TableReason, TableStatus, Vacancy, table_config as bits};
use openflow::{Message, OfpError, Version};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use xlate::TableMiss;

/// The reported capacity of a table without a configured limit; it holds more.
pub(crate) const MAX_ENTRIES: u32 = 1_000_000;
/// The supported criteria for eviction (`ofp_table_mod_prop_eviction_flag`): other (the groups of the
/// database), importance and lifetime.
const EVICTION_FLAGS: u32 = 7;
/// The largest table name in messages, in bytes.
const NAME_LEN_MAX: usize = 31;
/// All tables.
const ALL_TABLES: u8 = 0xff;

/// The database's configuration of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSettings {
    /// The name that controllers see.
    pub name: Option<String>,
    /// The largest number of flows.
    pub max_flows: Option<u32>,
    /// True if a full table evicts a flow for a new one.
    pub evict: bool,
    /// The fields whose values define groups of flows: eviction takes a flow of the largest group.
    pub groups: Vec<Subfield>,
}

/// The configuration of a table.
#[derive(Clone, Debug, Default)]
struct TableConfig {
    by_database: TableSettings,
    /// The name set by a controller, which is possible while the database has none.
    name: Option<String>,
    /// True if controllers enabled eviction.
    evicts: bool,
    /// The thresholds of vacancy events.
    vacancy: Vacancy,
    /// The next vacancy event, if vacancy events are enabled.
    next_event: Option<TableReason>,
    miss: Option<TableMiss>,
}

impl TableConfig {
    fn name(&self) -> Option<&str> {
        self.by_database.name.as_deref().or(self.name.as_deref())
    }

    fn max_flows(&self) -> u32 {
        self.by_database.max_flows.unwrap_or(u32::MAX)
    }

    /// The percentage of the table's capacity that is free with `n` flows.
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
        self.next_event = (change.config & bits::VACANCY_EVENTS != 0).then(|| self.next_event.unwrap_or(below));
    }

    fn desc(&self, table_id: u8, n_flows: u64) -> TableDesc {
        let mut config = if self.evicts { bits::EVICTION } else { 0 };
        let mut properties = TableProperties { eviction_flags: Some(EVICTION_FLAGS), vacancy: None };
        if self.next_event.is_some() {
            config |= bits::VACANCY_EVENTS;
            properties.vacancy = Some(Vacancy { current: self.vacancy(n_flows), ..self.vacancy });
        }
        TableDesc { table_id, config, properties }
    }
}

/// Converts the action on a table miss of OpenFlow 1.1 and 1.2 (`ofp_table_config`).
fn miss_of(config: u32) -> TableMiss {
    match config & 3 {
        1 => TableMiss::Continue,
        2 => TableMiss::Drop,
        _ => TableMiss::Controller,
    }
}

/// The configurations of a bridge's tables. Locked for short times only, also under the lock of the tables' changes.
#[derive(Debug, Default)]
pub(crate) struct TableConfigs(RwLock<BTreeMap<u8, TableConfig>>);

/// The treatment of excess flows.
#[derive(Clone, Debug)]
pub(crate) struct Overflow {
    /// The largest number of flows.
    pub max_flows: u64,
    /// See [`TableSettings::groups`]; `None` if the table does not evict.
    pub evict_by: Option<Vec<Subfield>>,
}

impl TableConfigs {
    fn get<T>(&self, table: u8, of: impl FnOnce(&TableConfig) -> T) -> T {
        match self.0.read().get(&table) {
            Some(config) => of(config),
            None => of(&TableConfig::default()),
        }
    }

    /// Returns the limit of a table that `n` flows reach, if there is one.
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

    /// Returns true if controllers may give a table this name: one that the database's name does not contradict.
    pub(crate) fn may_be_named(&self, table: u8, name: &str) -> bool {
        // Controllers see as much of a longer name as messages can hold.
        let is_equal = |own: &str| own.as_bytes().get(..NAME_LEN_MAX).unwrap_or(own.as_bytes()) == name.as_bytes();
        self.get(table, |config| config.by_database.name.as_deref().is_none_or(is_equal))
    }

    /// Sets the names of tables; an empty name removes the previous one.
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

    /// The capacity of a table that messages report.
    pub(crate) fn max_entries(&self, table: u8) -> u32 {
        self.get(table, |config| config.max_flows().min(MAX_ENTRIES))
    }

    /// The action on a table miss, in the form of OpenFlow 1.1 and 1.2.
    pub(crate) fn miss(&self, table: u8) -> Option<TableMiss> {
        self.get(table, |config| config.miss)
    }

    /// The configured actions on a table miss.
    pub(crate) fn misses(&self) -> BTreeMap<u8, TableMiss> {
        self.0.read().iter().filter_map(|(table, config)| Some((*table, config.miss?))).collect()
    }
}

impl Ofproto {
    /// Configures tables by the database; other tables get the default. Evicts flows beyond the
    /// limits.
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
        self.enforce_limits(&changed);
    }

    /// Evicts flows from tables beyond their limit, and reports these.
    fn enforce_limits(&self, tables: &[u8]) {
        if tables.is_empty() {
            return;
        }
        let removed = self.transaction(|t| {
            tables.iter().for_each(|table| t.enforce_limit(*table));
            Ok(())
        });
        if let Ok(((), removed)) = removed {
            self.finish_removal(removed);
        }
    }

    /// Applies a table mod.
    ///
    /// Errors: `OFPTMFC_BAD_TABLE`, `OFPTMFC_EPERM` for the reserved table, `OFPTMFC_BAD_CONFIG` for
    /// unsupported criteria for eviction.
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

    /// The configurations of the tables that OpenFlow shows.
    pub(crate) fn table_descs(&self) -> Vec<TableDesc> {
        let desc = |table| self.table_configs.get(table, |config| config.desc(table, self.n_flows_of(table)));
        (0..N_TABLES_SHOWN).map(desc).collect()
    }

    /// Sends vacancy events for tables whose vacancy crossed a threshold since the last event.
    pub(crate) fn send_vacancy_events(&self, tables: impl Iterator<Item = u8>) {
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
        // Vacancy events are mostly disabled.
        self.table_configs.get(table, |config| config.next_event)?;
        let n = self.n_flows_of(table);
        let mut configs = self.table_configs.0.write();
        let config = configs.get_mut(&table)?;
        let vacancy = config.vacancy(n);
        let (reason, next) = match config.next_event? {
            TableReason::VacancyDown if vacancy < config.vacancy.down => {
                (TableReason::VacancyDown, TableReason::VacancyUp)
            }
            TableReason::VacancyUp if vacancy > config.vacancy.up => (TableReason::VacancyUp, TableReason::VacancyDown),
            _ => return None,
        };
        let status = TableStatus { reason, desc: config.desc(table, n) };
        config.next_event = Some(next);
        Some(status)
    }
}
