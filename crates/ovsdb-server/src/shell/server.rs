//! The server: opens databases, listens, and runs the loop that feeds the core.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ovsdb::jsonrpc::{Limits, Message};
use ovsdb::{DatabaseSchema, Error, UuidSource};
use tls::Tls;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, error, info, warn};

use super::config::{DatabaseConfig, GivenOptions};
use super::connection::Peer;
use super::control::AskedCompactions;
use super::handle::{Command, Handle};
use super::listeners::{Endpoint, Incoming, LISTEN_RETRY};
use super::origin::Origin;
use super::pki::Pki;
use super::remotes::{self, RemoteOptions, Report};
use super::running::{self, RunningConfig, Saver};
use super::sources::{Reached, Sources};
use super::upgrade::upgrade;
use crate::admission::{Permit, Pool, Quota};
use crate::compaction::Compacted;
use crate::core::{Core, Now, load};
use crate::database::Database;
use crate::file::{FileError, FileStorage, Opened};
use crate::follow::{Excluded, Source};
use crate::journal::Style;
use crate::log::Record;
use crate::session::{Access, Output, SessionId, Text};
use crate::storage::{Nowhere, Storage};

/// Capacity of the event queue of the core.
const EVENTS_MAX: usize = 256;
/// Number of events that are handled together before their results are synced and sent.
const BATCH_MAX: usize = 128;
/// How often the server looks after itself (compaction) when nothing happens.
const HOUSEKEEPING_MS: u64 = 60_000;

/// Something that happened outside the core.
#[derive(Debug)]
pub(super) enum Event {
    Connected(Incoming),
    Reached(Reached),
    Message(SessionId, Message, Permit),
    Probe(SessionId, Message),
    Closed(SessionId, String),
    Compacted(Compacted),
}

/// How the service ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Connections are closed.
    Abrupt,
    /// Clients that are aware of changes of databases are notified of the end of theirs first.
    Orderly,
}

/// Why a server could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A database file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A database file's contents are not a database, or not one that fits.
    #[error("{0}")]
    Database(#[from] Error),
    /// An address cannot be used.
    #[error("{0}")]
    Remote(String),
    /// A part of the configuration cannot be used; the log says which, and why.
    #[error("server configuration failed")]
    Config,
}

/// Collects the databases and addresses of a server.
pub struct Builder {
    origins: Vec<Origin>,
    remotes: Vec<String>,
    pki: Pki,
    uuids: UuidSource,
    style: Style,
    active_server: Option<Source>,
    excluded: Excluded,
    is_backup: bool,
    config_file: Option<PathBuf>,
    saver: Option<Saver>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("remotes", &self.remotes).finish_non_exhaustive()
    }
}

impl Builder {
    /// Serves a database file, which must exist.
    #[must_use]
    pub fn database_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.origins.push(Origin::File(path.into()));
        self
    }

    /// Serves a database file, which is created with `schema` if it does not exist.
    #[must_use]
    pub fn database_file_or_new(mut self, path: impl Into<PathBuf>, schema: DatabaseSchema) -> Self {
        self.origins.push(Origin::FileOrNew(path.into(), Box::new(schema)));
        self
    }

    /// Serves a database file, which is created with `schema` if it does not exist, and converted to it if its own
    /// schema has a lower version; the old file is kept as `FILE.backup<version>-<checksum>`.
    #[must_use]
    pub fn database_file_upgraded(mut self, path: impl Into<PathBuf>, schema: DatabaseSchema) -> Self {
        self.origins.push(Origin::FileUpgraded(path.into(), Box::new(schema)));
        self
    }

    /// Serves an empty database in memory.
    #[must_use]
    pub fn database_in_memory(mut self, schema: DatabaseSchema) -> Self {
        self.origins.push(Origin::Memory(Box::new(schema)));
        self
    }

    /// Serves a database that is copied from `source` into memory, and forwards its clients' changes there (ovsdb(7),
    /// "Relay Service Model").
    #[must_use]
    pub fn database_relay(mut self, name: impl Into<String>, source: Source) -> Self {
        self.origins.push(Origin::Relay(name.into(), source));
        self
    }

    /// Sets the server from which [`Builder::backup`] and [`Handle::connect_active`] copy all databases except those
    /// in memory.
    #[must_use]
    pub fn active_server(mut self, source: Source) -> Self {
        self.active_server = Some(source);
        self
    }

    /// Names tables that are not copied.
    #[must_use]
    pub fn excluded(mut self, excluded: Excluded) -> Self {
        self.excluded = excluded;
        self
    }

    /// Begins as the backup of the active server (ovsdb(7), "Active-Backup Database Service Model").
    #[must_use]
    pub fn backup(mut self) -> Self {
        self.is_backup = true;
        self
    }

    /// Serves the contents of a configuration file (`--config-file`), which can be reloaded.
    #[must_use]
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config_file = Some(path.into());
        self
    }

    /// Listens on, or connects to, an address: `punix:FILE`, `ptcp:PORT[:HOST]`, `pssl:PORT[:HOST]`, `unix:FILE`,
    /// `tcp:HOST:PORT`, `ssl:HOST:PORT`, or `db:DATABASE,TABLE,COLUMN` for the addresses in a column.
    #[must_use]
    pub fn remote(mut self, remote: impl Into<String>) -> Self {
        self.remotes.push(remote.into());
        self
    }

    /// Uses these keys and certificates for `pssl` and `ssl`.
    #[must_use]
    pub fn pki(mut self, pki: Pki) -> Self {
        self.pki = pki;
        self
    }

    /// Takes new UUIDs from `uuids` instead of the operating system's random source.
    #[must_use]
    pub fn uuids(mut self, uuids: UuidSource) -> Self {
        self.uuids = uuids;
        self
    }

    /// Writes database files in this style; differences, if this is not called.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// Calls `save` with the configuration after each control command that changes it.
    #[must_use]
    pub fn on_change(mut self, save: impl FnMut(&RunningConfig) + Send + 'static) -> Self {
        self.saver = Some(Saver::new(save));
        self
    }

    /// Opens the databases. Nothing listens before [`Server::run`] or [`Server::listen`].
    pub fn open(self) -> Result<Server, OpenError> {
        let mut core = Core::new(self.uuids);
        core.set_style(self.style);
        let (events, event_queue) = mpsc::channel(EVENTS_MAX);
        let (commands, command_queue) = mpsc::channel(EVENTS_MAX);
        let mut server = Server {
            core,
            configured: BTreeSet::new(),
            origins: BTreeMap::new(),
            saver: self.saver,
            pki: self.pki,
            tls: Arc::default(),
            endpoints: BTreeMap::new(),
            peers: BTreeMap::new(),
            pool: Arc::default(),
            sources: Sources::default(),
            active: BTreeMap::new(),
            unflushed: Vec::new(),
            reports: BTreeMap::new(),
            complaints: BTreeSet::new(),
            config_file: None,
            given_options: BTreeMap::new(),
            given_databases: BTreeMap::new(),
            recoveries: Vec::new(),
            asked_compactions: Vec::new(),
            events,
            event_queue,
            commands,
            command_queue,
            started: Instant::now(),
            serial: 0,
            seen: None,
        };
        server.open_all(self.origins)?;
        if let Some(path) = self.config_file {
            let directory = std::env::current_dir()
                .map_err(|error| OpenError::Remote(format!("the current folder is not known ({error})")))?;
            server.configure(&path, &directory).map_err(|_| OpenError::Config)?;
            server.config_file = Some((path, directory));
        }
        server.core.set_excluded(self.excluded);
        if let Some(source) = self.active_server {
            server.core.set_active_server(source);
            server.core.note_copies();
        }
        if self.is_backup {
            server.core.connect_active().map_err(OpenError::Remote)?;
        }
        for remote in self.remotes {
            remotes::check(&server.core, &remote).map_err(|error| unusable("remotes", &error))?;
            server.configured.insert(remote);
        }
        server.pki.check(&server.core).map_err(|error| unusable("SSL/TLS", &error))?;
        Ok(server)
    }
}

/// Logs why a part of the configuration cannot be used; the error names no part.
fn unusable(part: &str, reason: &str) -> OpenError {
    warn!(target: "ovsdb_server", "failed to configure {part}: {reason}");
    OpenError::Config
}

/// A database server.
#[derive(Debug)]
pub struct Server {
    pub(super) core: Core,
    /// The configured addresses.
    pub(super) configured: BTreeSet<String>,
    /// How each database that is not in memory is opened again, by name.
    pub(super) origins: BTreeMap<String, String>,
    pub(super) saver: Option<Saver>,
    pki: Pki,
    tls: Arc<Tls>,
    /// Addresses in use.
    endpoints: BTreeMap<String, Endpoint>,
    peers: BTreeMap<SessionId, Peer>,
    /// The limits of all clients together.
    pub(super) pool: Arc<Pool>,
    /// The tasks that connect to other servers, for databases that are copied from there.
    sources: Sources,
    /// Notifies the tasks that made connections of their end.
    active: BTreeMap<SessionId, oneshot::Sender<()>>,
    /// Clients with queued output.
    unflushed: Vec<SessionId>,
    /// The last contents written to the rows of addresses.
    pub(super) reports: BTreeMap<String, Report>,
    /// Complaints about addresses that were logged already.
    complaints: BTreeSet<String>,
    /// The file that configures addresses and databases, if any, and the directory to which names in it are relative.
    pub(super) config_file: Option<(PathBuf, PathBuf)>,
    /// Its options of addresses.
    pub(super) given_options: BTreeMap<String, GivenOptions>,
    /// Its databases, by the names in the file, with their own names.
    pub(super) given_databases: BTreeMap<String, (String, DatabaseConfig)>,
    recoveries: Vec<String>,
    pub(super) asked_compactions: Vec<AskedCompactions>,
    pub(super) events: mpsc::Sender<Event>,
    event_queue: mpsc::Receiver<Event>,
    commands: mpsc::Sender<Command>,
    command_queue: mpsc::Receiver<Command>,
    started: Instant,
    serial: u64,
    /// The databases' last transactions when their addresses were last read.
    seen: Option<Vec<ovsdb::Uuid>>,
}

impl Server {
    /// Begins to describe a server.
    pub fn builder() -> Builder {
        Builder {
            origins: Vec::new(),
            remotes: Vec::new(),
            pki: Pki::default(),
            uuids: UuidSource::os(),
            style: Style::Difference,
            active_server: None,
            excluded: Excluded::default(),
            is_backup: false,
            config_file: None,
            saver: None,
        }
    }

    /// Something by which to talk to the server while it runs.
    pub fn handle(&self) -> Handle {
        Handle { commands: self.commands.clone() }
    }

    /// Descriptions of the recovery of damaged files.
    pub fn recoveries(&self) -> &[String] {
        &self.recoveries
    }

    /// The databases and sessions, for inspection before the server runs.
    pub fn core(&self) -> &Core {
        &self.core
    }

    pub(super) fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { monotonic_ms: self.started.elapsed().as_millis() as u64, unix_ms: unix.as_millis() as i64 }
    }

    /// Opens databases, each once; the log has the reasons of all failures.
    fn open_all(&mut self, origins: Vec<Origin>) -> Result<(), OpenError> {
        let mut names = BTreeSet::new();
        let mut is_whole = true;
        for origin in origins {
            let name = origin.to_string();
            if !names.insert(name.clone()) {
                warn!(target: "ovsdb_server", "Duplicate database configuration: {name}");
                continue;
            }
            if let Err(error) = self.open(origin) {
                warn!(target: "ovsdb_server", "failed to open database '{name}': {error}");
                is_whole = false;
            }
        }
        if is_whole {
            return Ok(());
        }
        warn!(target: "ovsdb_server", "failed to configure databases");
        Err(OpenError::Config)
    }

    pub(super) fn open(&mut self, origin: Origin) -> Result<String, OpenError> {
        let now = self.now();
        let time_s = (now.unix_ms / 1000) as u64;
        let (database, storage, file): (_, Box<dyn Storage>, _) = match origin {
            Origin::Relay(name, source) => {
                let text = running::relay_text(&name, &source);
                self.core.add_relay(&name, source, now)?;
                self.origins.insert(name.clone(), text);
                return Ok(name);
            }
            Origin::Memory(schema) => (load(&[schema.to_json()])?, Box::new(Nowhere), None),
            Origin::FileOrNew(path, schema) | Origin::FileUpgraded(path, schema) if !path.exists() => {
                let database = load(&[schema.to_json()])?;
                let storage = FileStorage::create(&path, &[Record::from(&schema.to_json())])?;
                (database, Box::new(storage), Some(path))
            }
            Origin::File(path) | Origin::FileOrNew(path, _) => {
                let opened = self.open_file(&path, time_s)?;
                (opened.database?, Box::new(opened.storage), Some(path))
            }
            Origin::FileUpgraded(path, schema) => {
                let mut opened = self.open_file(&path, time_s)?;
                let database = upgrade(&mut opened.storage, opened.database?, *schema, &path, now, self.core.style())?;
                (database, Box::new(opened.storage), Some(path))
            }
        };
        let text = file.as_deref().map(running::file_text);
        let file = file.map(|path| path.display().to_string());
        let name = self.core.host(database, storage, file, now)?;
        self.origins.extend(text.map(|text| (name.clone(), text)));
        Ok(name)
    }

    fn open_file(&mut self, path: &Path, time_s: u64) -> Result<Opened, OpenError> {
        if self.is_open(path) {
            return Err(OpenError::Database(Error::ovsdb(format!("{}: already open", path.display()))));
        }
        let opened = FileStorage::open(path, time_s)?;
        for error in &opened.invalid {
            error!(target: "ovsdb_server", "{error}");
        }
        self.recoveries.extend(opened.recovered.clone());
        Ok(opened)
    }

    fn is_open(&self, path: &Path) -> bool {
        let resolve = |path: &Path| std::fs::canonicalize(path).ok();
        let wanted = resolve(path);
        let files = self.core.database_names().filter_map(|name| self.core.database_file(name));
        wanted.is_some() && files.map(|file| resolve(Path::new(file))).any(|file| file == wanted)
    }

    /// Starts to use all addresses, and returns the errors. [`Server::run`] does this itself; a caller that needs the
    /// errors before it reports readiness calls this first, in the same runtime.
    pub async fn listen(&mut self) -> Vec<String> {
        self.update_endpoints().await
    }

    /// Serves until `shutdown` is done. Needs a tokio runtime with I/O and time; one thread is enough.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let shutdown = async {
            shutdown.await;
            Ending::Abrupt
        };
        self.run_until(shutdown).await;
    }

    /// The same; `shutdown` says how the service ends.
    pub async fn run_until(mut self, shutdown: impl Future<Output = Ending>) {
        tokio::pin!(shutdown);
        self.listen().await;
        self.sources.update(&self.core, &self.tls, &self.events);
        self.deliver();
        let ending = loop {
            let now = self.now();
            let deadline_ms = self.core.next_deadline_ms().unwrap_or(u64::MAX);
            let all_listen = self.endpoints.values().all(Endpoint::is_running);
            let housekeeping_ms = if all_listen { HOUSEKEEPING_MS } else { LISTEN_RETRY.as_millis() as u64 };
            let pause = deadline_ms.saturating_sub(now.monotonic_ms).min(housekeeping_ms);
            tokio::select! {
                biased;
                ending = &mut shutdown => break ending,
                Some(command) = self.command_queue.recv() => self.command(command).await,
                Some(event) = self.event_queue.recv() => self.event(event),
                () = tokio::time::sleep(Duration::from_millis(pause)) => {}
            }
            for _ in 0..BATCH_MAX {
                let Ok(event) = self.event_queue.try_recv() else { break };
                self.event(event);
            }
            let now = self.now();
            self.core.tick(now);
            self.deliver();
            if self.addresses_may_have_changed() {
                self.update_endpoints().await;
            }
            self.sources.update(&self.core, &self.tls, &self.events);
            self.report_endpoints();
            self.deliver();
        };
        if ending == Ending::Orderly {
            self.core.end_service();
            self.deliver();
        }
        self.core.disconnect_all("shutting down");
        self.deliver();
    }

    fn event(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Connected(incoming) => self.connected(incoming),
            Event::Reached(reached) => self.reached(reached),
            Event::Message(id, message, permit) => {
                self.log_message(id, "received", || Some(message.clone()));
                self.core.admitted(id, message, permit, now);
            }
            Event::Probe(id, message) => {
                if let Some(peer) = self.peers.get(&id) {
                    // If the queue is full, the client is cut off for want of a reply.
                    let _ = peer.send(Text::of(&message));
                    peer.flush();
                }
            }
            Event::Compacted(compacted) => self.core.compacted(compacted, now),
            Event::Closed(id, reason) => {
                self.core.disconnect(id);
                if let Some(peer) = self.peers.remove(&id) {
                    debug!(target: "ovsdb_jsonrpc_server", "{}: closed {reason}", peer.name);
                    peer.close(false);
                }
                self.active.remove(&id);
            }
        }
    }

    fn connected(&mut self, incoming: Incoming) {
        let Incoming { stream, remote, peer, ended } = incoming;
        // The address may have been removed while the event was queued.
        let Some(endpoint) = self.endpoints.get(&remote) else { return };
        let RemoteOptions { read_only, role, .. } = endpoint.options.clone();
        let id = self.core.connect(Access { read_only, role, client: stream.peer_name().map(str::to_owned) });
        let name = if peer == "unix" { format!("unix#{}", self.serial) } else { peer };
        self.serial += 1;
        let probe_ms = endpoint.options.inactivity_probe_ms;
        debug!(target: "ovsdb_jsonrpc_server", "{name}: connected");
        let quota = Quota::new(&self.pool);
        self.peers.insert(id, Peer::start(stream, (id, name, remote), probe_ms, quota, self.events.clone()));
        if let Some(ended) = ended {
            self.active.insert(id, ended);
        }
    }

    fn reached(&mut self, reached: Reached) {
        let Reached { link, stream, remote, ended } = reached;
        // The source may have been removed while the event was queued.
        let Some(probe_ms) = self.sources.probe_ms(link) else { return };
        let Some(id) = self.core.source_connected(link) else { return };
        self.peers.insert(id, Peer::start_source(stream, id, remote, probe_ms, self.events.clone()));
        self.active.insert(id, ended);
    }

    /// Syncs the changes of the core and sends its messages.
    pub(super) fn deliver(&mut self) {
        let now = self.now();
        let outputs = self.core.flush(now);
        self.run_compactions();
        for output in outputs {
            match output {
                Output::Send(id, message) => {
                    self.log_message(id, "send", || Some(message.clone()));
                    self.send(id, Text::of(&message));
                }
                Output::Write(id, text) => {
                    self.log_message(id, "send", || {
                        ovsdb::jsonrpc::decode(&text.parts().concat(), Limits::default()).0.pop()
                    });
                    self.send(id, text);
                }
                Output::Close(id, reason) => self.close(id, &reason, true),
            }
        }
        for id in std::mem::take(&mut self.unflushed) {
            if let Some(peer) = self.peers.get(&id) {
                peer.flush();
            }
        }
    }

    /// Logs a message for debugging.
    fn log_message(&self, id: SessionId, what: &str, message: impl FnOnce() -> Option<Message>) {
        if !tracing::enabled!(target: "jsonrpc", tracing::Level::DEBUG) {
            return;
        }
        if let (Some(peer), Some(message)) = (self.peers.get(&id), message()) {
            debug!(target: "jsonrpc", "{}: {what} {}", peer.name, message.description());
        }
    }

    fn send(&mut self, id: SessionId, text: Text) {
        let Some(peer) = self.peers.get(&id) else { return };
        if let Err(reason) = peer.send(text) {
            warn!(target: "jsonrpc", "{reason}");
            self.core.disconnect(id);
            self.close(id, "backlog", false);
        } else if self.unflushed.last() != Some(&id) {
            self.unflushed.push(id);
        }
    }

    fn close(&mut self, id: SessionId, reason: &str, linger: bool) {
        if let Some(peer) = self.peers.remove(&id) {
            info!(target: "ovsdb_jsonrpc_server", "{}: disconnecting ({reason})", peer.name);
            peer.close(linger);
        }
        self.active.remove(&id);
    }

    fn addresses_may_have_changed(&self) -> bool {
        if self.endpoints.values().any(|endpoint| !endpoint.is_settled()) {
            return true;
        }
        let from_columns = self.configured.iter().any(|remote| remote.starts_with("db:"));
        (from_columns || self.pki.has_columns()) && self.seen.as_ref() != Some(&self.versions())
    }

    fn versions(&self) -> Vec<ovsdb::Uuid> {
        let databases = self.core.database_names().filter_map(|name| self.core.database(name));
        databases.map(Database::last_transaction).collect()
    }

    /// Loads keys and certificates again; returns errors.
    fn update_tls(&mut self) -> Vec<String> {
        let resolved = self.pki.resolve(&self.core);
        // With other certificates, addresses that failed may work.
        if resolved.config.is_some_and(|config| self.tls.configure(config)) {
            self.endpoints.retain(|_, endpoint| endpoint.is_running());
        }
        resolved.complaints
    }

    /// Applies the configured addresses; returns errors.
    pub(super) async fn update_endpoints(&mut self) -> Vec<String> {
        self.seen = Some(self.versions());
        let (wanted, mut complaints) = remotes::resolve(&self.core, &self.configured);
        complaints.extend(self.update_tls());
        for complaint in &complaints {
            if self.complaints.contains(complaint) {
                continue;
            }
            if let Some(target) = complaint.strip_suffix(remotes::NO_METHOD) {
                info!(target: "reconnect", "{target}connecting...");
                info!(target: "reconnect", "{complaint}");
            } else {
                warn!(target: "ovsdb_server", "{complaint}");
            }
        }
        let mut failures = complaints.clone();
        self.complaints = complaints.into_iter().collect();
        let gone: Vec<String> = self.endpoints.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(endpoint) = self.endpoints.remove(&name) {
                endpoint.stop().await;
            }
            self.reports.remove(&name);
            info!(target: "ovsdb_jsonrpc_server", "{name}: remote deconfigured");
            self.close_all_of(&name, "remote deconfigured");
        }
        for (name, mut options) in wanted {
            if let Some(given) = self.given_options.get(&name) {
                given.apply(&mut options);
            }
            if let Some(endpoint) = self.endpoints.get_mut(&name).filter(|endpoint| endpoint.is_settled()) {
                let is_same = endpoint.options.allows_as(&options);
                if endpoint.options.dscp != options.dscp {
                    self.peers.values().filter(|peer| peer.remote == name).for_each(|peer| peer.set_dscp(options.dscp));
                }
                endpoint.set_options(options);
                if !is_same {
                    self.close_all_of(&name, "permissions changed");
                }
                continue;
            }
            let endpoint = Endpoint::start(&name, options, &self.tls, &self.events);
            if let Some(error) = &endpoint.failure {
                let is_known = self.endpoints.get(&name).is_some_and(|before| before.failure == endpoint.failure);
                if let Some(path) = name.strip_prefix("punix:").filter(|_| !is_known) {
                    error!(target: "stream_unix", "{}: binding failed: {error}", running::file_text(Path::new(path)));
                }
                if !is_known {
                    error!(target: "ovsdb_jsonrpc_server", "{name}: listen failed: {error}");
                }
                failures.push(format!("{name}: listen failed: {error}"));
            }
            self.endpoints.insert(name, endpoint);
        }
        failures
    }

    /// Closes the connections of an address.
    fn close_all_of(&mut self, name: &str, reason: &str) {
        let peers = self.peers.iter().filter(|(_, peer)| peer.remote == name);
        let ids: Vec<SessionId> = peers.map(|(&id, _)| id).collect();
        for id in ids {
            self.core.disconnect(id);
            self.close(id, reason, true);
        }
    }

    /// Writes the state of addresses that came from rows into those rows, if it has changed.
    fn report_endpoints(&mut self) {
        let now = self.now();
        for (name, endpoint) in &self.endpoints {
            let Some(row) = &endpoint.options.row else { continue };
            let connections = self.peers.values().filter(|peer| peer.remote == *name).count();
            let report = Report { connections, bound_port: endpoint.bound_port, is_passive: endpoint.is_passive };
            if self.reports.get(name) != Some(&report) {
                remotes::report(&mut self.core, row, &report, now);
                self.reports.insert(name.clone(), report);
            }
        }
    }
}
