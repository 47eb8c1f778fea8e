//! Compaction: rewrites a database's log with its present contents only, while the database is in service.
//!
//! Long work runs outside of the core: the core returns a [`Compaction`], which writes a snapshot of the database
//! into the new log in the thread that runs it, and takes its result ([`Core::compacted`]), when the new log replaces
//! the old one. In between, transactions are committed as usual.
//!
//! Each database has one compaction at a time. A request during one starts the next when that has ended: it asks for
//! removing the history up to its own time. Contents that are replaced completely, as by a conversion, leave no
//! history either, and cancel the compaction.

use crate::core::{Core, Now};
use crate::database::Database;
use crate::snapshot::Snapshot;
use crate::storage::SnapshotWriter;

/// The comment of the transaction that a compacted log consists of.
const COMMENT: &str = "compacting database online";

/// Work to be run outside of the core, in a thread that may take its time. Each must be returned to
/// [`Core::compacted`], completed or failed.
pub struct Compaction {
    pub(crate) id: u64,
    pub(crate) database: String,
    pub(crate) snapshot: Snapshot,
    pub(crate) snapshot_writer: Box<dyn SnapshotWriter>,
}

impl std::fmt::Debug for Compaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compaction").field("id", &self.id).field("database", &self.database).finish_non_exhaustive()
    }
}

impl Compaction {
    /// Writes the new log, and drops the rows that only it still knows.
    pub fn run(self) -> Compacted {
        let Self { id, database, snapshot, snapshot_writer } = self;
        let result = snapshot_writer.write(&snapshot).map_err(|error| error.to_string());
        Compacted { id, database, result }
    }

    /// Clean-up if it cannot be run, or not to its end.
    pub fn failure(&self, reason: impl Into<String>) -> Compacted {
        Compacted { id: self.id, database: self.database.clone(), result: Err(reason.into()) }
    }
}

/// The result of a [`Compaction`].
#[derive(Debug)]
pub struct Compacted {
    id: u64,
    database: String,
    result: Result<(), String>,
}

/// The state of the compactions of all databases.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    last_id: u64,
    begun: Vec<Compaction>,
    ended: Vec<(u64, Result<(), String>)>,
}

impl Compactions {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn end(&mut self, ids: impl IntoIterator<Item = u64>, result: &Result<(), String>) {
        self.ended.extend(ids.into_iter().map(|id| (id, result.clone())));
    }
}

impl Core {
    /// Requests a compaction of a database. Returns the number under which [`Core::ended_compactions`] reports its
    /// end.
    pub fn compact(&mut self, name: &str, now: Now) -> Result<u64, String> {
        let hosted = self.databases.get_mut(name).ok_or("no database by that name")?;
        if let Some(running) = &mut hosted.compaction {
            return Ok(*running.next.get_or_insert_with(|| self.compactions.next_id()));
        }
        let id = self.compactions.next_id();
        self.begin_compaction(name, id, now);
        Ok(id)
    }

    fn begin_compaction(&mut self, name: &str, id: u64, now: Now) {
        let style = self.style();
        let Some(hosted) = self.databases.get_mut(name) else { return };
        let snapshot = Snapshot::of(&hosted.database, COMMENT, now.unix_ms, style);
        match hosted.begin_compaction(id) {
            Ok(Some(snapshot_writer)) => {
                self.compactions.begun.push(Compaction { id, database: name.to_owned(), snapshot, snapshot_writer });
            }
            Ok(None) => self.compactions.end([id], &Ok(())),
            Err(reason) => self.compactions.end([id], &Err(reason)),
        }
    }

    /// Begins the compactions that are due.
    pub(crate) fn compact_what_has_grown(&mut self, now: Now) {
        let due = self.databases.iter().filter(|(_, hosted)| hosted.wants_compaction(now));
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            let id = self.compactions.next_id();
            self.begin_compaction(&name, id, now);
        }
    }

    /// The compactions that were begun since the last call, to be run.
    pub fn begun_compactions(&mut self) -> Vec<Compaction> {
        std::mem::take(&mut self.compactions.begun)
    }

    /// Takes back a compaction that was begun.
    pub fn compacted(&mut self, compacted: Compacted, now: Now) {
        let Compacted { id, database: name, result } = compacted;
        // The database may have been removed, replaced by one of the same name, or got other contents.
        let Some(hosted) = self.databases.get_mut(&name) else { return };
        let Some(running) = hosted.compaction.take_if(|running| running.id == id) else { return };
        let result = hosted.end_compaction(&running, result, now);
        self.compactions.end([id], &result);
        if let Some(next) = running.next {
            self.begin_compaction(&name, next, now);
        }
    }

    /// The compactions that have ended since the last call, by their numbers.
    pub fn ended_compactions(&mut self) -> Vec<(u64, Result<(), String>)> {
        std::mem::take(&mut self.compactions.ended)
    }

    /// Ends the compaction of a database that is not served any more.
    pub(crate) fn forget_compactions(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.compactions.end(ids, &Err("the database was removed".to_owned()));
    }

    /// Puts other contents, perhaps under another schema, in the place of a database's present ones.
    pub(crate) fn replace_contents(
        &mut self,
        name: &str,
        database: Database,
        comment: &str,
        now: Now,
    ) -> ovsdb::Result<()> {
        let style = self.style();
        let Some(hosted) = self.databases.get_mut(name) else { return Ok(()) };
        let cancelled_error = hosted.compaction.take();
        let replaced = hosted.replace(database, comment, now, style);
        let result =
            replaced.as_ref().map_err(|_| "given up for other contents, which could not be written".to_owned());
        self.compactions.end(cancelled_error.iter().flat_map(|running| running.ids()), &result.copied());
        replaced
    }
}
