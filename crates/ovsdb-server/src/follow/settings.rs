//! The active-backup pair: the server from which all databases are copied, whether copying is on, and its status
//! (ovsdb-server(1), "Active-Backup Commands").

use std::collections::BTreeSet;
use std::fmt;

use super::{Follower, PROBE_MS, Source};
use crate::core::Core;
use crate::hosted::Role;

/// The tables that are not copied: `DB:TABLE[,DB:TABLE]...`. Any text will do: parts that name no table of a copied
/// database exclude nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excluded(String);

impl From<&str> for Excluded {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Excluded {
    /// The excluded tables of one database.
    fn of(&self, database: &str) -> BTreeSet<String> {
        let parts = self.0.split(',').filter_map(|part| part.trim().split_once(':'));
        parts.filter(|(name, _)| *name == database).map(|(_, table)| table.to_owned()).collect()
    }
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    /// The databases that are or were copies, or are set up to be.
    copied: BTreeSet<String>,
}

impl Default for Sync {
    fn default() -> Self {
        let (excluded, copied) = (Excluded::default(), BTreeSet::new());
        Self { active: None, excluded, probe_ms: PROBE_MS, is_backup: false, copied }
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

    /// Returns true if this server is the backup of the active server.
    pub fn is_backup(&self) -> bool {
        self.sync.is_backup
    }

    /// Notes that the databases are set up to be copies, though they need not be now.
    pub fn note_copies(&mut self) {
        let names: Vec<String> = self.databases.keys().filter(|name| !name.starts_with('_')).cloned().collect();
        self.sync.copied.extend(names);
    }

    /// Notes that a database becomes a copy.
    pub(crate) fn note_copy(&mut self, name: &str) {
        self.sync.copied.insert(name.to_owned());
    }

    /// Forgets that a database, which is removed, was a copy.
    pub(crate) fn forget_copy(&mut self, name: &str) {
        self.sync.copied.remove(name);
    }

    /// Returns the output of `ovsdb-server/sync-status`: for each database that is or was a copy, whether it is active or
    /// a backup, and the state of the copy.
    pub fn sync_status(&self) -> String {
        if self.sync.copied.is_empty() {
            return "state: active\n".to_owned();
        }
        let of_database = |name: &String| {
            let link = self.links.iter().find(|link| link.database == *name);
            let Some((link, Follower::Backup(backup))) = link.map(|link| (link, &link.follower)) else {
                return format!("database: {name}\nstate: active\n\n");
            };
            let state = match &link.trouble {
                _ if backup.is_live() => format!("replicating: {}", link.source),
                Some(reason) => format!("Replication to ({}) failed: {reason}", link.source),
                None => format!("connecting: {}", link.source),
            };
            let mut text = format!("database: {name}\nstate: backup\n{state}\n");
            let excluded: Vec<String> = backup.excluded().iter().map(|table| format!("{name}:{table}")).collect();
            if backup.is_live() {
                // The line that lists excluded tables is empty if there are none.
                let listed =
                    if excluded.is_empty() { String::new() } else { format!("exclude: {}", excluded.join(",")) };
                text.push_str(&format!("{listed}\n"));
            }
            text
        };
        self.sync.copied.iter().map(of_database).collect()
    }
}
