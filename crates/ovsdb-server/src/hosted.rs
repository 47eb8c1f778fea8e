//! A database in service: its contents, its log, and when the log was last compacted.

use std::io;
use std::sync::Arc;

use ovsdb::json::canonical;
use ovsdb::{Error, Uuid};
use tracing::{info, warn};

use crate::commit::Prepared;
use crate::core::Now;
use crate::database::Database;
use crate::journal::{self, Style};
use crate::monitor::Views;
use crate::row::RowChange;
use crate::server_database::Description;
use crate::snapshot::Snapshot;
use crate::storage::{SnapshotWriter, Storage};

/// Minimum length in bytes of a log that is compacted automatically...
const COMPACT_LENGTH_MIN: u64 = 10 * 1024 * 1024;
/// ... and this many transactions were added ...
const COMPACT_COMMITS_MIN: u64 = 100;
/// ... and this long after the last time, in milliseconds.
const COMPACT_INTERVAL_MIN_MS: u64 = 10 * 60 * 1000;
/// After this time, a log is compacted whatever its length.
const COMPACT_INTERVAL_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// After a failure, automatic compaction pauses for this time, in milliseconds...
const COMPACT_RETRY_MIN_MS: u64 = 60 * 1000;
/// ... and twice as long after each further failure, up to this: a full disk or a record that is too long rarely
/// changes between attempts, and each attempt writes the whole log in vain.
const COMPACT_RETRY_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// The source of a database's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// From its own clients.
    Own,
    /// Another server, whose contents are stored; clients may only read.
    Backup,
    /// Another server, which also executes clients' changes.
    Relay {
        /// Whether the copy follows the source now.
        connected: bool,
        /// Whether it ever did; before, there is no schema.
        available: bool,
    },
}

/// A running compaction.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: u64,
    /// The compaction requested meanwhile.
    pub(crate) next: Option<u64>,
    /// Commits when it began.
    commits: u64,
    /// Length of the log then.
    length: u64,
}

impl Running {
    /// It, and the one that was to follow.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.id).chain(self.next)
    }
}

/// A database in service.
pub(crate) struct Hosted {
    pub(crate) database: Database,
    pub(crate) views: Views,
    pub(crate) role: Role,
    pub(crate) file: Option<String>,
    storage: Box<dyn Storage>,
    unsynced: bool,
    /// Whether a transaction since the last sync requested durability before its reply.
    durable: bool,
    failed: Option<String>,
    commits: u64,
    compacted_ms: u64,
    compacted_length: u64,
    pub(crate) compaction: Option<Running>,
    /// No automatic compaction starts before this time.
    retry_ms: u64,
    /// How long nothing is after the next failure, in milliseconds.
    retry_pause_ms: u64,
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosted").field("file", &self.file).field("commits", &self.commits).finish_non_exhaustive()
    }
}

impl Hosted {
    pub(crate) fn new(database: Database, storage: Box<dyn Storage>, file: Option<String>) -> Self {
        let compacted_length = storage.length();
        let (views, role) = (Views::default(), Role::Own);
        Self {
            database,
            views,
            role,
            file,
            storage,
            unsynced: false,
            durable: false,
            failed: None,
            commits: 0,
            compacted_ms: 0,
            compacted_length,
            compaction: None,
            retry_ms: 0,
            retry_pause_ms: COMPACT_RETRY_MIN_MS,
        }
    }

    /// Whether clients may ask for it.
    pub(crate) fn is_available(&self) -> bool {
        !matches!(self.role, Role::Relay { available: false, .. })
    }

    /// The contents of its row in `_Server`.
    pub(crate) fn describe_to_clients(&self, name: &str) -> Description {
        let (model, connected, leader) = match self.role {
            Role::Own | Role::Backup => ("standalone", true, true),
            Role::Relay { connected, .. } => ("relay", connected, false),
        };
        let schema = self.is_available().then(|| canonical(&self.database.schema().to_json()));
        Description { name: name.to_owned(), model, connected, leader, schema }
    }

    /// Remembers that the log is as good as compacted now.
    pub(crate) fn note_compaction(&mut self, now: Now) {
        self.commits = 0;
        self.compacted_ms = now.monotonic_ms;
        self.compacted_length = self.storage.length();
    }

    /// Writes a transaction and applies it.
    pub(crate) fn commit(
        &mut self,
        id: Uuid,
        prepared: Prepared,
        now: Now,
        style: Style,
    ) -> ovsdb::Result<Arc<Vec<RowChange>>> {
        let schema = self.database.schema();
        let record = journal::record(schema, &prepared.changes, &prepared.comment, now.unix_ms, style);
        if let Some(record) = record {
            if let Some(reason) = &self.failed {
                return Err(Error::new("I/O error", reason.clone()));
            }
            self.storage.append(&record).map_err(|error| Error::io(&error, self.describe("write failed")))?;
            self.unsynced = true;
            self.commits += 1;
            self.durable |= prepared.durable;
        }
        self.views.forget_contents();
        Ok(self.database.apply(id, prepared.changes))
    }

    /// Why nothing can be written any more, if that is so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn describe(&self, action: &str) -> String {
        format!("{}: {action}", self.file.as_deref().unwrap_or(&self.database.schema().name))
    }

    /// Syncs the transactions so far, at once if one of them requested it and otherwise soon.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.unsynced) {
            return Ok(());
        }
        let durable = std::mem::take(&mut self.durable);
        let synced = if durable { self.storage.sync() } else { self.storage.sync_soon() };
        synced.inspect_err(|error| self.failed = Some(self.describe(&format!("sync failed ({error})"))))
    }

    /// Returns true if the log has grown enough to be compacted.
    pub(crate) fn wants_compaction(&self, now: Now) -> bool {
        if !self.storage.is_durable() || self.failed.is_some() || self.commits < COMPACT_COMMITS_MIN {
            return false;
        }
        if self.compaction.is_some() || now.monotonic_ms < self.retry_ms {
            return false;
        }
        let elapsed = now.monotonic_ms.saturating_sub(self.compacted_ms);
        let length = self.storage.length();
        let grown = length >= COMPACT_LENGTH_MIN && length / 2 >= self.compacted_length;
        elapsed >= COMPACT_INTERVAL_MAX_MS || grown && elapsed >= COMPACT_INTERVAL_MIN_MS
    }

    /// Begins a snapshot of a log that holds only the present contents; `None` if there is no log.
    pub(crate) fn begin_compaction(&mut self, id: u64) -> Result<Option<Box<dyn SnapshotWriter>>, String> {
        if let Some(reason) = &self.failed {
            return Err(reason.clone());
        }
        if !self.storage.is_durable() {
            return Ok(None);
        }
        self.compaction = Some(Running { id, next: None, commits: self.commits, length: self.storage.length() });
        Ok(Some(self.storage.snapshot_writer()))
    }

    /// Puts the snapshot in the place of the log if it was `written`.
    pub(crate) fn end_compaction(
        &mut self,
        running: &Running,
        written: Result<(), String>,
        now: Now,
    ) -> Result<(), String> {
        let name = &self.database.schema().name;
        let before = self.storage.length();
        let installed = written.and_then(|()| match &self.failed {
            Some(reason) => Err(reason.clone()),
            None => self.storage.install().map_err(|error| error.to_string()),
        });
        if let Err(reason) = installed {
            warn!(target: "ovsdb_file", "{name}: compaction failed: {reason}");
            self.storage.discard();
            self.retry_ms = now.monotonic_ms.saturating_add(self.retry_pause_ms);
            self.retry_pause_ms = (2 * self.retry_pause_ms).min(COMPACT_RETRY_MAX_MS);
            return Err(reason);
        }
        let after = self.storage.length();
        info!(target: "ovsdb_file", "{name}: compacted {before} bytes to {after}");
        self.note_new_log();
        // Records added meanwhile remain history.
        self.commits -= running.commits;
        self.compacted_ms = now.monotonic_ms;
        self.compacted_length = after.saturating_sub(before.saturating_sub(running.length));
        Ok(())
    }

    /// Puts other contents, perhaps under another schema, in the place of the present ones.
    pub(crate) fn replace(&mut self, database: Database, comment: &str, now: Now, style: Style) -> ovsdb::Result<()> {
        let snapshot = Snapshot::of(&database, comment, now.unix_ms, style);
        self.storage.replace(&snapshot).map_err(|error| Error::io(&error, self.describe("write failed")))?;
        self.database = database;
        self.views = Views::default();
        self.note_new_log();
        self.note_compaction(now);
        Ok(())
    }

    /// Records that a new log is in use from now on.
    fn note_new_log(&mut self) {
        // It is durable, unless its name is not: that only the next sync tells, and before it nothing is promised.
        (self.unsynced, self.durable) = (true, true);
        (self.retry_ms, self.retry_pause_ms) = (0, COMPACT_RETRY_MIN_MS);
    }
}
