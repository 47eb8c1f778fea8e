//! The server without I/O: databases, sessions, and the effect of each message on them.
//!
//! Time is passed in as [`Now`], messages through [`Core::message`], and [`Core::flush`] returns the messages to be
//! sent. It first makes the batch durable if a transaction in it requested that: that client receives nothing that a
//! crash could undo. Transactions that arrive together thus share one sync.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ovsdb::json::NoSymbols;
use ovsdb::jsonrpc::Message;
use ovsdb::{DatabaseSchema, Datum, Error, Result, TableSchema, Uuid, UuidSource};
use serde_json::Value;
use tracing::{info, warn};

use crate::commit::{Prepared, prepare};
use crate::compaction::Compactions;
use crate::database::Database;
use crate::execute::{Caller, Outcome, execute};
use crate::follow::{Link, LinkId, PROBE_MS, Sync};
use crate::hosted::{Hosted, Role, Running};
use crate::journal::{self, Style};
use crate::monitor::View;
use crate::row::{Row, RowChange};
use crate::server_database::{self, Description};
use crate::session::{Access, Locks, Output, Session, SessionId};
use crate::storage::{Nowhere, Storage};
use crate::transaction::Transaction;
use crate::transaction_log::TransactionLog;
use crate::triggers::{Trigger, Triggers};

/// The current time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds of a monotonic clock.
    pub monotonic_ms: u64,
    /// Milliseconds of Unix time.
    pub unix_ms: i64,
}

/// The server without I/O.
#[derive(Debug)]
pub struct Core {
    pub(crate) databases: BTreeMap<String, Hosted>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) locks: Locks,
    pub(crate) triggers: Triggers,
    pub(crate) outputs: Vec<Output>,
    pub(crate) uuids: UuidSource,
    pub(crate) server_id: Uuid,
    pub(crate) next_session: SessionId,
    style: Style,
    /// The databases that follow those of other servers.
    pub(crate) links: Vec<Link>,
    pub(crate) next_link: LinkId,
    /// The server from which all other databases are copied, if any.
    pub(crate) sync: Sync,
    /// After how much silence the sources of relays are probed, in milliseconds.
    pub(crate) relay_probe_ms: u64,
    pub(crate) transaction_log: TransactionLog,
    /// Whether the rows of `_Server` must be updated.
    pub(crate) description_is_stale: bool,
    pub(crate) compactions: Compactions,
    /// Whether new monitors must be without conditions, as in servers before `monitor_cond`.
    pub(crate) refuses_conditions: bool,
}

impl Core {
    /// Refuses monitors with conditions from now on, and disconnects all clients, which fall back to `monitor`.
    pub fn refuse_conditions(&mut self) {
        self.refuses_conditions = true;
        self.disconnect_all("user ran ovsdb-server/disable-monitor-cond");
    }

    /// A server with the `_Server` database alone. New UUIDs come from `uuids`.
    pub fn new(mut uuids: UuidSource) -> Self {
        let server_id = uuids.next_uuid();
        let mut core = Self {
            databases: BTreeMap::new(),
            sessions: BTreeMap::new(),
            locks: Locks::default(),
            triggers: Triggers::default(),
            outputs: Vec::new(),
            uuids,
            server_id,
            next_session: 0,
            refuses_conditions: false,
            style: Style::Difference,
            links: Vec::new(),
            next_link: 0,
            sync: Sync::default(),
            relay_probe_ms: PROBE_MS,
            transaction_log: TransactionLog::default(),
            description_is_stale: false,
            compactions: Compactions::default(),
        };
        let schema = server_database::schema();
        core.databases.insert(schema.name.clone(), Hosted::new(Database::new(schema), Box::new(Nowhere), None));
        core.describe_databases(Now::default());
        core
    }

    /// How values are written to database files from now on.
    pub fn set_style(&mut self, style: Style) {
        self.style = style;
    }

    /// How values are written to database files.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Takes a database into service: `records` are the contents of `storage`, the schema first; `file` is its name for
    /// people. Returns the database's name.
    pub fn add_database(
        &mut self,
        records: &[Value],
        storage: Box<dyn Storage>,
        file: Option<String>,
        now: Now,
    ) -> Result<String> {
        self.host(load(records)?, storage, file, now)
    }

    /// Like [`Core::add_database`], with a database that has been read from `storage` already.
    pub fn host(
        &mut self,
        database: Database,
        storage: Box<dyn Storage>,
        file: Option<String>,
        now: Now,
    ) -> Result<String> {
        let name = database.schema().name.clone();
        self.check_new_name(&name, file.as_deref().unwrap_or("database"))?;
        let mut hosted = Hosted::new(database, storage, file);
        hosted.note_compaction(now);
        self.databases.insert(name.clone(), hosted);
        self.sync_database(&name);
        self.disconnect_unaware(&format!("adding {name} database"));
        self.describe_databases(now);
        Ok(name)
    }

    /// Checks the name of a new database; `origin` is its source for the error.
    pub(crate) fn check_new_name(&self, name: &str, origin: &str) -> Result<()> {
        if name.starts_with('_') {
            return Err(Error::ovsdb(format!("{origin}: names beginning with \"_\" are reserved")));
        }
        if self.databases.contains_key(name) {
            return Err(Error::ovsdb(format!("{name}: duplicate database name")));
        }
        Ok(())
    }

    /// Takes a database out of service.
    pub fn remove_database(&mut self, name: &str, now: Now) -> bool {
        if name.starts_with('_') {
            return false;
        }
        let Some(removed) = self.databases.remove(name) else { return false };
        self.forget_compactions(removed.compaction.iter().flat_map(Running::ids));
        self.remove_link(name);
        self.forget_copy(name);
        self.cancel_monitors(name);
        // Only clients that stay connected are answered.
        self.disconnect_unaware(&format!("removing {name} database"));
        self.cancel_triggers(name);
        self.describe_databases(now);
        true
    }

    /// Ends the service of all databases: cancels their monitors and waiting transactions. Clients that are not aware of
    /// changes of databases are disconnected.
    pub fn end_service(&mut self) {
        self.disconnect_unaware("shutting down");
        let mut names: Vec<String> = self.databases.keys().cloned().collect();
        names.sort_by_key(|name| name.starts_with('_'));
        for name in names {
            self.cancel_monitors(&name);
            self.cancel_triggers(&name);
        }
    }

    /// The names of all databases, `_Server` included.
    pub fn database_names(&self) -> impl Iterator<Item = &str> {
        self.databases.keys().map(String::as_str)
    }

    /// The contents of a database.
    pub fn database(&self, name: &str) -> Option<&Database> {
        self.databases.get(name).map(|hosted| &hosted.database)
    }

    /// The file of a database.
    pub fn database_file(&self, name: &str) -> Option<&str> {
        self.databases.get(name)?.file.as_deref()
    }

    /// Why a database can no longer be written, if that is so; `None` if there is no such database.
    pub fn storage_failure(&self, name: &str) -> Option<Option<&str>> {
        Some(self.databases.get(name)?.failure())
    }

    /// Starts a session.
    pub fn connect(&mut self, access: Access) -> SessionId {
        self.next_session += 1;
        self.sessions.insert(self.next_session, Session { access, ..Session::default() });
        self.next_session
    }

    /// Ends a session: passes its locks to others, and drops its waiting transactions. Also for the connection to a
    /// source.
    pub fn disconnect(&mut self, id: SessionId) {
        if self.is_link(id) {
            self.link_down(id);
            return;
        }
        self.cancel_forwarded(id, None);
        let Some(session) = self.sessions.remove(&id) else { return };
        self.triggers.cancel_session(id);
        for lock in session.locks_requested {
            self.release_lock(&lock, id);
        }
    }

    /// Returns true if the session exists.
    pub fn has_session(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// Number of sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Closes all sessions.
    pub fn disconnect_all(&mut self, reason: &str) {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            self.close(id, reason);
        }
    }

    pub(crate) fn close(&mut self, id: SessionId, reason: &str) {
        self.outputs.push(Output::Close(id, reason.to_owned()));
        self.disconnect(id);
    }

    pub(crate) fn disconnect_unaware(&mut self, reason: &str) {
        let unaware = self.sessions.iter().filter(|(_, session)| !session.change_aware);
        let unaware: Vec<SessionId> = unaware.map(|(&id, _)| id).collect();
        for id in unaware {
            self.close(id, reason);
        }
    }

    pub(crate) fn send(&mut self, session: SessionId, message: Message) {
        self.outputs.push(Output::Send(session, message));
    }

    /// Handles expired timers: of waiting transactions.
    pub fn tick(&mut self, now: Now) {
        self.retry_triggers(now);
    }

    /// When [`Core::tick`] should be called next, in monotonic milliseconds.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.triggers.next_deadline_ms()
    }

    /// Syncs the transactions since the last call that request it, and returns the messages to be sent. If that
    /// fails, the database accepts no more changes and all sessions must be closed.
    pub fn flush(&mut self, now: Now) -> Vec<Output> {
        if std::mem::take(&mut self.description_is_stale) {
            self.describe_databases(now);
        }
        let mut failed = None;
        for (name, hosted) in &mut self.databases {
            if let Err(error) = hosted.sync() {
                failed = Some(format!("{name}: cannot make transactions durable: {error}"));
            }
        }
        if let Some(reason) = failed {
            warn!(target: "ovsdb_file", "{reason}");
            // No reply in the batch may be sent: it may promise durability. Sessions to be closed are closed
            // nevertheless.
            self.outputs.retain(|output| matches!(output, Output::Close(..)));
            self.disconnect_all(&reason);
            self.disconnect_links(&reason);
        }
        self.compact_what_has_grown(now);
        std::mem::take(&mut self.outputs)
    }

    /// Runs operations on behalf of a session; `None` if a `wait` operation does not hold yet.
    pub(crate) fn attempt(&mut self, trigger: &mut Trigger, now: Now) -> Option<Value> {
        let hosted = self.databases.get(&trigger.database)?;
        let no_locks = BTreeSet::new();
        let session = self.sessions.get(&trigger.session);
        let caller = Caller {
            locks: session.map_or(&no_locks, |session| &session.locks_owned),
            read_only: trigger.database.starts_with('_')
                || hosted.role != Role::Own
                || session.is_some_and(|session| session.access.read_only),
            role: session.and_then(|session| session.access.role()),
            elapsed_ms: now.monotonic_ms.saturating_sub(trigger.created_ms),
        };
        match execute(&hosted.database, &trigger.operations, caller, &mut self.uuids) {
            Outcome::Wait { timeout_ms } => {
                trigger.timeout_ms = timeout_ms;
                None
            }
            Outcome::Done { results, prepared: None } => Some(Value::from(results)),
            Outcome::Done { mut results, prepared: Some(prepared) } => {
                if let Err(error) = self.commit(&trigger.database.clone(), prepared, now) {
                    results.push(error.to_json());
                }
                Some(Value::from(results))
            }
        }
    }

    /// Writes and applies a transaction that passed its checks, and tells the monitors.
    pub(crate) fn commit(&mut self, name: &str, prepared: Prepared, now: Now) -> Result<()> {
        if prepared.changes.is_empty() {
            return Ok(());
        }
        let id = self.uuids.next_uuid();
        self.commit_as(name, id, prepared, now)
    }

    /// As [`Core::commit`], with a given transaction id.
    pub(crate) fn commit_as(&mut self, name: &str, id: Uuid, prepared: Prepared, now: Now) -> Result<()> {
        let Some(hosted) = self.databases.get_mut(name) else { return Ok(()) };
        let changes = hosted.commit(id, prepared, now, self.style)?;
        self.transaction_log.note(&hosted.database, &changes, now);
        self.triggers.changed(name, &changes);
        self.notify(name, &changes);
        Ok(())
    }

    fn notify(&mut self, name: &str, changes: &[RowChange]) {
        let Some(hosted) = self.databases.get(name) else { return };
        let last = hosted.database.last_transaction();
        // Monitors with equal conditions share one update.
        let mut encoded: HashMap<*const View, Option<Arc<[u8]>>> = HashMap::new();
        for (&id, session) in &self.sessions {
            for (_, monitor) in session.monitors.iter().filter(|(database, _)| database == name) {
                let updates = encoded.entry(Arc::as_ptr(&monitor.view));
                let updates = updates.or_insert_with(|| monitor.view.updates(&hosted.database, changes).map(Arc::from));
                if let Some(updates) = updates {
                    self.outputs.push(Output::Write(id, monitor.notification(last, updates.clone())));
                }
            }
        }
    }

    /// Retries the waiting transactions whose tables have changed or whose time has expired.
    pub(crate) fn retry_triggers(&mut self, now: Now) {
        while let Some((serial, mut trigger)) = self.triggers.take_ready(now.monotonic_ms) {
            match self.attempt(&mut trigger, now) {
                Some(result) => self.send(trigger.session, Message::reply(trigger.id, result)),
                // It keeps its place: transactions that succeed together are answered in order of arrival.
                None => self.triggers.put_back(serial, trigger),
            }
        }
    }

    /// Changes a database on the server's own behalf: `change` fills the transaction. A copy of another server's
    /// database stays as it is, or it would not be one.
    pub fn update(
        &mut self,
        name: &str,
        now: Now,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(hosted) = self.databases.get(name).filter(|hosted| hosted.role == Role::Own) else { return Ok(()) };
        let mut transaction = Transaction::new(&hosted.database);
        change(&mut transaction)?;
        let prepared = prepare(transaction, &mut self.uuids)?;
        self.commit(name, prepared, now)?;
        self.retry_triggers(now);
        Ok(())
    }

    /// Brings the rows of `_Server` up to date.
    pub(crate) fn describe_databases(&mut self, now: Now) {
        let databases: Vec<Description> =
            self.databases.iter().map(|(name, hosted)| hosted.describe_to_clients(name)).collect();
        let mut uuids = UuidSource::seeded_from(&mut self.uuids);
        let described = self.update(server_database::NAME, now, |transaction| {
            server_database::describe(transaction, &databases, &mut uuids)
        });
        if let Err(error) = described {
            warn!(target: "ovsdb_server", "cannot describe the databases in _Server: {error}");
        }
    }

    pub(crate) fn cancel_monitors(&mut self, name: &str) {
        let mut canceled = Vec::new();
        for (&id, session) in &mut self.sessions {
            let (gone, kept): (Vec<_>, Vec<_>) =
                std::mem::take(&mut session.monitors).into_iter().partition(|(database, _)| database == name);
            session.monitors = kept;
            if session.change_aware {
                canceled.extend(gone.into_iter().map(|(_, monitor)| (id, monitor.id)));
            }
        }
        for (id, monitor) in canceled {
            self.send(id, Message::notification("monitor_canceled", vec![monitor]));
        }
    }

    pub(crate) fn cancel_triggers(&mut self, name: &str) {
        for trigger in self.triggers.cancel_database(name) {
            self.send(trigger.session, Message::error(trigger.id, "canceled"));
        }
    }

    /// Converts a database to another schema while it is in service (ovsdb-server(7), "Schema Conversion").
    pub(crate) fn convert(&mut self, name: &str, schema: DatabaseSchema, now: Now) -> Result<()> {
        let hosted = self.databases.get(name).ok_or_else(|| Error::bare("unknown database"))?;
        let converted = convert(&hosted.database, Arc::new(schema), &mut self.uuids)?;
        self.replace_contents(name, converted, "converted by ovsdb-server", now)?;
        info!(target: "ovsdb_server", "committed {name} database schema conversion");
        self.cancel_monitors(name);
        // Only clients that stay connected are answered.
        self.disconnect_unaware(&format!("committed {name} database schema conversion"));
        self.cancel_triggers(name);
        self.describe_databases(now);
        Ok(())
    }

    /// Counts for `memory/show`, sorted by name.
    pub fn memory_report(&self) -> BTreeMap<&'static str, u64> {
        let databases = || self.databases.values().map(|hosted| &hosted.database);
        let monitors: usize = self.sessions.values().map(|session| session.monitors.len()).sum();
        let mut report = BTreeMap::new();
        report.insert("atoms", databases().map(|database| database.atoms() as u64).sum());
        report.insert("cells", databases().map(|database| database.cells() as u64).sum());
        report.insert("monitors", monitors as u64);
        report.insert("n-weak-refs", databases().map(|database| database.weak_reference_count() as u64).sum());
        if !self.sessions.is_empty() {
            report.insert("sessions", self.sessions.len() as u64);
        }
        let (forwards, forwarded_bytes) = self.forwarded();
        let counts = [
            ("triggers", self.triggers.len()),
            ("forwards", forwards),
            ("waiting-bytes", self.triggers.bytes() + forwarded_bytes),
        ];
        report.extend(counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count as u64)));
        report
    }
}

/// The database that a log's records describe, the schema first.
pub fn load(records: &[Value]) -> Result<Database> {
    let Some((schema, transactions)) = records.split_first() else {
        return Err(Error::ovsdb("unexpected end of file reading schema"));
    };
    let schema = DatabaseSchema::from_json(schema)?;
    let mut database = Database::new(Arc::new(schema));
    let mut uuids = UuidSource::os();
    for record in transactions {
        let changes = journal::changes(&database, record)?;
        database.replay(changes, &mut uuids);
    }
    Ok(database)
}

/// Returns the contents of `database` under another schema: tables and columns that it lacks are left out, new
/// columns get default values, and all its constraints apply.
pub fn convert(database: &Database, schema: Arc<DatabaseSchema>, uuids: &mut UuidSource) -> Result<Database> {
    let mut converted = Database::new(schema);
    let mut transaction = Transaction::new(&converted);
    for (index, table) in converted.schema().tables().iter().enumerate() {
        let Some(old_index) = database.schema().table_index(&table.name) else { continue };
        let Some(old_table) = database.table_schema(old_index) else { continue };
        for row in database.rows(old_index) {
            transaction.insert(index, convert_row(row, old_table, table)?);
        }
    }
    let prepared = prepare(transaction, uuids)?;
    converted.apply_changes(&prepared.changes);
    Ok(converted)
}

/// Converts a row to another schema. Every value must fit its column's new type; default values of the new schema
/// need not.
fn convert_row(row: &Row, old_table: &TableSchema, table: &TableSchema) -> Result<Row> {
    let mut converted = Row::new(table, row.uuid());
    for (index, column) in table.own_columns() {
        let Some(old_index) = old_table.column_index(&column.name) else { continue };
        let (Some(old_column), Some(datum)) = (old_table.columns().get(old_index), row.column(old_index)) else {
            continue;
        };
        if column.kind == old_column.kind {
            // A default value of a new column may be one that transactions must not write.
            datum.check(&column.kind)?;
            converted.set(index, datum.clone());
        } else {
            let json = datum.to_json(&old_column.kind);
            converted.set(index, Datum::from_json(&json, &column.kind, &mut NoSymbols)?);
        }
    }
    Ok(converted)
}
