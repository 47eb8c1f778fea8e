//! The active-backup pair: the server from which all databases are copied, whether copying is on, and its status
//! (ovsdb-server(1), "Active-Backup Commands").

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Follower, PROBE_MS, Source};
use crate::core::Core;
use crate::hosted::Role;

/// The tables that are not copied, each with its database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excluded(BTreeSet<(String, String)>);

impl Excluded {
    /// Reads `DB:TABLE[,DB:TABLE]...`; nothing is excluded by an empty text. The error names the offending part.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tables = BTreeSet::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once(':') {
                Some((database, table)) if !database.is_empty() && !table.is_empty() => {
                    tables.insert((database.to_owned(), table.to_owned()));
                }
                _ => return Err(format!("Can't parse excluded table: {part}")),
            }
        }
        Ok(Self(tables))
    }

    /// The excluded tables of one database.
    fn of(&self, database: &str) -> BTreeSet<String> {
        self.0.iter().filter(|(name, _)| name == database).map(|(_, table)| table.clone()).collect()
    }
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(database, table)| format!("{database}:{table}")).collect();
        f.write_str(&pairs.join(","))
    }
}

/// The settings of the pair.
#[derive(Debug)]
pub(crate) struct Sync {
    /// The active server's address, if one was ever named.
    active: Option<Source>,
    excluded: Excluded,
    probe_ms: u64,
    /// Whether this is the backup.
    is_backup: bool,
}

impl Default for Sync {
    fn default() -> Self {
        Self { active: None, excluded: Excluded::default(), probe_ms: PROBE_MS, is_backup: false }
    }
}

impl Core {
    /// Names the active server, from which [`Core::connect_active`] copies.
    pub fn set_active_server(&mut self, source: Source) {
        self.sync.active = Some(source);
    }

    /// The active server, if one was named.
    pub fn active_server(&self) -> Option<&Source> {
        self.sync.active.as_ref()
    }

    /// Makes this server the backup of the active server: databases are copied from it, and clients must reconnect.
    /// Fails if no active server is configured.
    pub fn connect_active(&mut self) -> Result<(), String> {
        if self.sync.active.is_none() {
            return Err("Unable to connect: active server is not specified.".to_owned());
        }
        if !std::mem::replace(&mut self.sync.is_backup, true) {
            self.disconnect_all("making server read-only");
        }
        self.sync_databases();
        Ok(())
    }

    /// Makes this server active: copying ends, and clients must reconnect.
    pub fn disconnect_active(&mut self) {
        if std::mem::replace(&mut self.sync.is_backup, false) {
            self.disconnect_all("making server read/write");
        }
        self.sync_databases();
    }

    /// Sets the tables that are not copied. A backup then copies all contents again.
    pub fn set_excluded(&mut self, excluded: Excluded) {
        self.sync.excluded = excluded;
        if self.sync.is_backup {
            self.sync_databases();
        }
    }

    /// The tables that are not copied.
    pub fn excluded(&self) -> &Excluded {
        &self.sync.excluded
    }

    /// After how much silence the active server is probed, in milliseconds; 0 for never.
    pub fn set_active_probe(&mut self, probe_ms: u64) {
        self.sync.probe_ms = probe_ms;
        self.set_probes(probe_ms, |follower| matches!(follower, Follower::Backup(_)));
    }

    /// After how much silence the sources of relays are probed, in milliseconds; 0 for never.
    pub fn set_relay_probe(&mut self, probe_ms: u64) {
        self.relay_probe_ms = probe_ms;
        self.set_probes(probe_ms, |follower| matches!(follower, Follower::Relay(_)));
    }

    fn set_probes(&mut self, probe_ms: u64, meant: impl Fn(&Follower) -> bool) {
        for link in self.links.iter_mut().filter(|link| meant(&link.follower)) {
            link.source.probe_ms = probe_ms;
        }
    }

    fn sync_databases(&mut self) {
        let names: Vec<String> = self.databases.keys().cloned().collect();
        names.iter().for_each(|name| self.sync_database(name));
    }

    /// Makes a database a backup, or no longer one, as the settings are.
    pub(crate) fn sync_database(&mut self, name: &str) {
        let role = self.databases.get(name).map(|hosted| hosted.role);
        if name.starts_with('_') || !matches!(role, Some(Role::Own | Role::Backup)) {
            return;
        }
        match self.sync.active.clone().filter(|_| self.sync.is_backup) {
            Some(source) => {
                let source = Source { probe_ms: self.sync.probe_ms, ..source };
                let excluded = self.sync.excluded.of(name);
                self.back_up(name, source, excluded);
            }
            None => self.end_backup(name),
        }
    }

    /// Returns the output of `ovsdb-server/sync-status`: whether the server is active or a backup, and the state of
    /// each copy.
    pub fn sync_status(&self) -> String {
        let mut lines = Vec::new();
        // Databases in the same state share a line.
        let mut copies: BTreeMap<String, (Vec<&str>, Vec<String>)> = BTreeMap::new();
        for link in &self.links {
            let Follower::Backup(backup) = &link.follower else { continue };
            let state = match &link.trouble {
                _ if backup.is_live() => format!("replicating: {}", link.source),
                Some(reason) => format!("Replication to ({}) failed: {reason}", link.source),
                None => format!("connecting: {}", link.source),
            };
            let (names, excluded) = copies.entry(state).or_default();
            names.push(&link.database);
            excluded.extend(backup.excluded().iter().map(|table| format!("{}:{table}", link.database)));
        }
        if copies.is_empty() && !self.sync.is_backup {
            return "state: active\n".to_owned();
        }
        lines.push("state: backup".to_owned());
        for (state, (names, excluded)) in copies {
            let is_live = state.starts_with("replicating");
            lines.push(state);
            if is_live {
                lines.push(format!("database: {}", names.join(", ")));
                if !excluded.is_empty() {
                    lines.push(format!("exclude: {}", excluded.join(",")));
                }
            }
        }
        lines.iter().flat_map(|line| [line, "\n"]).collect()
    }
}
