//! Databases that follow a database of another server: backups (ovsdb(7), "Active-Backup Database Service Model") and
//! relays (ovsdb(7), "Relay Service Model").
//!
//! Each such database has a [`Link`]: a source, at most one connection to it, and a state machine ([`Backup`] or
//! [`Relay`]) that decides about requests to the source and translates its messages into a [`Step`]. This module
//! executes the steps: the copy changes by the same checked transactions as any database. The shell makes the
//! connections ([`Core::sources`]) and delivers their messages like those of clients.
//!
//! Invariants: clients see a state that the source had, as contents and updates are each one transaction; an update
//! that does not fit leaves the copy unchanged, and the connection is closed and made again.

mod backup;
mod relay;
mod settings;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ovsdb::json::is_id;
use ovsdb::jsonrpc::{Message, Remote};
use ovsdb::{DatabaseSchema, Error, Result, Uuid};
use serde_json::{Value, json};
use tracing::{info, warn};

pub(crate) use backup::Backup;
pub(crate) use relay::{Relay, must_be_forwarded};
pub use settings::Excluded;
pub(crate) use settings::Sync;

use crate::admission::Permit;
use crate::commit::prepare;
use crate::core::{Core, Now};
use crate::database::Database;
use crate::hosted::{Hosted, Role};
use crate::methods::{check_fits, check_may_wait};
use crate::session::{Output, SessionId};
use crate::storage::Nowhere;
use crate::transaction::Transaction;
use crate::updates::{self, Format};

/// Default time of silence after which a source is probed, in milliseconds.
pub(crate) const PROBE_MS: u64 = 60_000;
/// Default maximum pause between attempts to connect to a source, in milliseconds.
const MAX_BACKOFF_MS: u64 = 8000;
/// Maximum number of bytes of other forwarded requests beside which a request without a permit to wait is forwarded:
/// the limit of all clients together.
const FORWARDED_BYTES_MAX: usize = 256 << 20;

/// Names a link for as long as the server runs.
pub type LinkId = u64;

/// The servers from one of which a database is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Their addresses, tried in turn.
    pub remotes: Vec<String>,
    /// After how much silence the server is probed, in milliseconds; 0 for never.
    pub probe_ms: u64,
    /// Longest pause between attempts to connect, in milliseconds.
    pub max_backoff_ms: u64,
    /// The class of packets to it (RFC 2474), 0 to 63.
    pub dscp: u8,
}

impl Source {
    /// Servers by their addresses, with commas between them. The error names the offending part.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut remotes = Vec::new();
        for remote in text.split(',').map(str::trim).filter(|remote| !remote.is_empty()) {
            // An address that cannot be used is no error before it is tried.
            if Remote::parse(remote).is_ok_and(|remote| remote.is_passive()) {
                return Err(format!("{remote}: a server to copy from needs an active connection method"));
            }
            remotes.push(remote.to_owned());
        }
        if remotes.is_empty() {
            // Such a text, even an empty one, is an address that no server has.
            remotes.push(text.to_owned());
        }
        Ok(Self { remotes, probe_ms: PROBE_MS, max_backoff_ms: MAX_BACKOFF_MS, dscp: stream::DSCP })
    }

    /// Reads `relay:DATABASE:REMOTE[,REMOTE]...` (ovsdb-server(1)) into the database's name and its source; `None` if it
    /// is something else, which is the name of a file.
    pub fn parse_relay(text: &str) -> Option<Result<(String, Self)>> {
        let rest = text.strip_prefix("relay:")?;
        Some(match rest.split_once(':') {
            Some((name, remotes)) if is_id(name) && !remotes.is_empty() => {
                Self::parse(remotes).map(|source| (name.to_owned(), source)).map_err(Error::ovsdb)
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.remotes.join(","))
    }
}

/// A database's link to its source.
#[derive(Debug)]
pub(crate) struct Link {
    id: LinkId,
    database: String,
    source: Source,
    wire: Wire,
    follower: Follower,
    /// Why the last attempt to follow failed; `None` once the database follows.
    trouble: Option<String>,
}

#[derive(Debug)]
enum Follower {
    Backup(Backup),
    Relay(Relay),
}

/// The link's connection, and the messages to be sent over it.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    connection: Option<SessionId>,
    /// The last request. Numbers are never reused, so that no late reply is taken for another.
    ids: u64,
    outgoing: Vec<Message>,
}

impl Wire {
    fn request(&mut self, method: &str, params: Vec<Value>) -> u64 {
        self.ids += 1;
        self.outgoing.push(Message::request(self.ids, method, params));
        self.ids
    }
}

/// The effect of a source's message on the database.
enum Step {
    Nothing,
    /// The active server's database has tables or columns that this one lacks.
    Unfit,
    /// These are the contents of the tables.
    Contents(Contents),
    /// These are the changes since the last transaction in the copy.
    CaughtUp {
        updates: Value,
        transaction: Option<Uuid>,
    },
    /// This is one transaction in the source.
    Update {
        updates: Value,
        format: Format,
        transaction: Option<Uuid>,
    },
    /// The source's reply to a client's request.
    Answer(SessionId, Message),
}

struct Contents {
    /// The source's schema, if the database is to be replaced.
    schema: Option<Arc<DatabaseSchema>>,
    updates: Value,
    format: Format,
    /// The tables, by their indexes in the schema.
    tables: BTreeSet<usize>,
    transaction: Option<Uuid>,
}

/// Why a database cannot be followed over this connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Trouble(String);

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble(error.to_string())
    }
}

fn trouble<T>(reason: impl Into<String>) -> std::result::Result<T, Trouble> {
    Err(Trouble(reason.into()))
}

type Received = std::result::Result<Step, Trouble>;

impl Core {
    /// The servers to which connections are wanted.
    pub fn sources(&self) -> impl Iterator<Item = (LinkId, &Source)> {
        self.links.iter().map(|link| (link.id, &link.source))
    }

    /// Adds a database that is copied from another server and kept in memory only. The database is unavailable until
    /// the source has sent its schema.
    pub fn add_relay(&mut self, name: &str, source: Source, now: Now) -> Result<()> {
        self.check_new_name(name, name)?;
        let schema = DatabaseSchema::from_json(&json!({"name": name, "tables": {}}))?;
        let mut hosted = Hosted::new(Database::new(Arc::new(schema)), Box::new(Nowhere), None);
        hosted.role = Role::Relay { connected: false, available: false };
        self.databases.insert(name.to_owned(), hosted);
        info!(target: "relay", "{name}: relay source set to '{source}'");
        self.add_link(name, source, Follower::Relay(Relay::new(name)));
        self.disconnect_unaware(&format!("adding {name} database"));
        self.describe_databases(now);
        Ok(())
    }

    /// Returns true if the database exists but its schema is not known yet.
    pub fn is_awaited(&self, name: &str) -> bool {
        self.databases.get(name).is_some_and(|hosted| !hosted.is_available())
    }

    /// Makes a database a copy of the one by the same name in another server, but for some tables. It may then only be
    /// read by clients.
    pub fn back_up(&mut self, name: &str, source: Source, exclude: BTreeSet<String>) {
        let Some(hosted) = self.databases.get_mut(name) else { return };
        hosted.role = Role::Backup;
        self.note_copy(name);
        self.add_link(name, source, Follower::Backup(Backup::new(name, exclude)));
    }

    /// Makes a backup a database of its own again.
    pub fn end_backup(&mut self, name: &str) {
        let Some(hosted) = self.databases.get_mut(name).filter(|hosted| hosted.role == Role::Backup) else { return };
        hosted.role = Role::Own;
        self.remove_link(name);
    }

    fn add_link(&mut self, name: &str, source: Source, follower: Follower) {
        self.remove_link(name);
        self.next_link += 1;
        let id = self.next_link;
        let database = name.to_owned();
        self.links.push(Link { id, database, source, wire: Wire::default(), follower, trouble: None });
    }

    /// Removes a link and closes its connection; requests in flight are answered.
    pub(crate) fn remove_link(&mut self, name: &str) {
        let Some(at) = self.links.iter().position(|link| link.database == name) else { return };
        if let Some(connection) = self.links.get(at).and_then(|link| link.wire.connection) {
            self.close(connection, "no longer wanted");
        }
        if let Follower::Relay(relay) = &mut self.links.remove(at).follower {
            let forgotten = relay.forget();
            self.cancel_forwards(forgotten);
        }
    }

    /// Registers a connection to a link's source. Its messages are exchanged under the returned id; `None` if the
    /// link was removed.
    pub fn source_connected(&mut self, id: LinkId) -> Option<SessionId> {
        let link = self.links.iter_mut().find(|link| link.id == id && link.wire.connection.is_none())?;
        self.next_session += 1;
        link.wire.connection = Some(self.next_session);
        match &mut link.follower {
            Follower::Backup(backup) => backup.connected(&mut link.wire),
            Follower::Relay(relay) => relay.connected(&mut link.wire),
        }
        let connection = self.next_session;
        self.send_out(connection);
        Some(connection)
    }

    /// Whether this is a connection to a source.
    pub(crate) fn is_link(&self, connection: SessionId) -> bool {
        self.links.iter().any(|link| link.wire.connection == Some(connection))
    }

    fn link_mut(&mut self, connection: SessionId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.wire.connection == Some(connection))
    }

    fn send_out(&mut self, connection: SessionId) {
        let Some(link) = self.link_mut(connection) else { return };
        let outgoing = std::mem::take(&mut link.wire.outgoing);
        self.outputs.extend(outgoing.into_iter().map(|message| Output::Send(connection, message)));
    }

    /// A connection to a source was lost.
    pub(crate) fn link_down(&mut self, connection: SessionId) {
        let Some(link) = self.link_mut(connection) else { return };
        link.wire.connection = None;
        link.wire.outgoing.clear();
        let lost = match &mut link.follower {
            Follower::Backup(backup) => {
                backup.disconnected();
                Vec::new()
            }
            Follower::Relay(relay) => relay.disconnected(),
        };
        let name = link.database.clone();
        if let Some(Hosted { role: Role::Relay { connected, .. }, .. }) = self.databases.get_mut(&name) {
            self.description_is_stale |= std::mem::replace(connected, false);
        }
        self.cancel_forwards(lost);
    }

    /// Makes all links request the contents in full next time.
    #[cfg(test)]
    pub(crate) fn invalidate_sources(&mut self) {
        for link in &mut self.links {
            if let Follower::Relay(relay) = &mut link.follower {
                relay.invalidate();
            }
        }
    }

    /// Closes all connections to sources.
    pub(crate) fn disconnect_links(&mut self, reason: &str) {
        let connections: Vec<SessionId> = self.links.iter().filter_map(|link| link.wire.connection).collect();
        connections.into_iter().for_each(|connection| self.close(connection, reason));
    }

    /// Answers requests whose outcome is unknown with `canceled`.
    fn cancel_forwards(&mut self, lost: Vec<(SessionId, Value)>) {
        for (session, id) in lost {
            self.send(session, Message::error(id, "canceled"));
        }
    }

    /// Takes a message from a source.
    pub(crate) fn link_message(&mut self, connection: SessionId, message: Message, now: Now) {
        let own_id = self.server_id;
        let Some(link) = self.links.iter_mut().find(|link| link.wire.connection == Some(connection)) else { return };
        let Some(hosted) = self.databases.get(&link.database) else { return };
        let schema = Arc::clone(hosted.database.schema());
        let received = match message {
            Message::Request { id, method, params } if method == "echo" => {
                link.wire.outgoing.push(Message::reply(id, params));
                Ok(Step::Nothing)
            }
            // The answer to a probe.
            Message::Reply { ref id, .. } if *id == "echo" => Ok(Step::Nothing),
            message => match &mut link.follower {
                Follower::Backup(backup) => backup.received(message, &schema, own_id, &mut link.wire),
                Follower::Relay(relay) => relay.received(message, &schema, &mut link.wire),
            },
        };
        let name = link.database.clone();
        let taken = received.and_then(|step| self.take(&name, step, now));
        match taken {
            Ok(()) => self.send_out(connection),
            Err(Trouble(reason)) => self.give_up(connection, &reason),
        }
        self.retry_triggers(now);
    }

    /// Closes a connection over which the database cannot be followed, and logs the reason, but not repeatedly.
    fn give_up(&mut self, connection: SessionId, reason: &str) {
        let Some(link) = self.link_mut(connection) else { return };
        if link.trouble.as_deref() != Some(reason) {
            let message = format!("{}: cannot be copied from {}: {reason}", link.database, link.source);
            match link.follower {
                Follower::Backup(_) => warn!(target: "replication", "{message}"),
                // It tries its other sources.
                Follower::Relay(_) => info!(target: "relay", "{message}"),
            }
            link.trouble = Some(reason.to_owned());
        }
        if let Follower::Relay(relay) = &mut link.follower {
            relay.invalidate();
        }
        self.close(connection, reason);
    }

    fn take(&mut self, name: &str, step: Step, now: Now) -> std::result::Result<(), Trouble> {
        match step {
            Step::Nothing => {}
            // It goes on as a database of its own, which clients may write.
            Step::Unfit => self.end_backup(name),
            Step::Answer(session, message) => self.send(session, message),
            Step::Update { updates, format, transaction } => {
                self.change(name, transaction, now, |open| updates::apply(open, &updates, format))?;
            }
            Step::CaughtUp { updates, transaction } => {
                self.change(name, transaction, now, |open| updates::apply(open, &updates, Format::Difference))?;
                self.follows(name, now);
            }
            Step::Contents(Contents { schema, updates, format, tables, transaction }) => {
                match schema {
                    Some(schema) => self.replace_copy(name, schema, transaction, now, |open| {
                        updates::replace(open, &updates, format, &tables)
                    })?,
                    None => {
                        self.change(name, transaction, now, |open| updates::replace(open, &updates, format, &tables))?;
                    }
                }
                self.follows(name, now);
            }
        }
        Ok(())
    }

    /// Applies one transaction of the source, whose id may be known, to the copy.
    fn change(
        &mut self,
        name: &str,
        id: Option<Uuid>,
        now: Now,
        fill: impl FnOnce(&mut Transaction<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(hosted) = self.databases.get(name) else { return Ok(()) };
        let mut transaction = Transaction::new(&hosted.database);
        fill(&mut transaction)?;
        let prepared = prepare(transaction, &mut self.uuids)?;
        let is_known = id.is_none_or(|id| id == hosted.database.last_transaction());
        if prepared.changes.is_empty() && is_known {
            return Ok(());
        }
        let id = id.unwrap_or_else(|| self.uuids.next_uuid());
        self.commit_as(name, id, prepared, now)
    }

    /// The copy under another schema.
    fn replace_copy(
        &mut self,
        name: &str,
        schema: Arc<DatabaseSchema>,
        id: Option<Uuid>,
        now: Now,
        fill: impl FnOnce(&mut Transaction<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut copy = Database::new(schema);
        let mut transaction = Transaction::new(&copy);
        fill(&mut transaction)?;
        let prepared = prepare(transaction, &mut self.uuids)?;
        copy.apply(id.unwrap_or_else(|| self.uuids.next_uuid()), prepared.changes);
        self.replace_contents(name, copy, "", now)?;
        self.cancel_monitors(name);
        self.disconnect_unaware(&format!("committed {name} database schema conversion"));
        self.cancel_triggers(name);
        self.description_is_stale = true;
        Ok(())
    }

    /// Marks the copy as equal to the source from now on.
    fn follows(&mut self, name: &str, now: Now) {
        if let Some(Hosted { role: Role::Relay { connected, available }, .. }) = self.databases.get_mut(name) {
            self.description_is_stale |= !*connected;
            (*connected, *available) = (true, true);
        }
        if let Some(link) = self.links.iter_mut().find(|link| link.database == name) {
            link.trouble = None;
        }
        if std::mem::take(&mut self.description_is_stale) {
            self.describe_databases(now);
        }
    }

    /// Returns true if the source of a relay must execute a session's change of a database. The source does not know
    /// our clients' roles: a client with a role may only read here.
    pub(crate) fn must_forward(&self, session: SessionId, name: &str) -> bool {
        let access = self.sessions.get(&session).map(|session| &session.access);
        let may = access.is_some_and(|access| !access.read_only && access.role().is_none());
        may && self.links.iter().any(|link| link.database == name && matches!(link.follower, Follower::Relay(_)))
    }

    /// Sends a client's request to the source of a relay.
    ///
    /// # Errors
    ///
    /// The request may have to wait, for a condition or for the source, and exceeds the limit for such requests.
    pub(crate) fn forward(
        &mut self,
        (session, permit): (SessionId, Permit),
        id: &Value,
        method: &'static str,
        params: Vec<Value>,
    ) -> Result<()> {
        let name = params.first().and_then(Value::as_str).unwrap_or_default();
        let Some(link) = self.links.iter_mut().find(|link| link.database == name) else { return Ok(()) };
        let Follower::Relay(relay) = &mut link.follower else { return Ok(()) };
        if relay::may_wait(&params) {
            check_may_wait(&permit)?;
            check_fits(permit.bytes() <= relay::WAITS_BYTES_MAX)?;
        } else if !relay.is_live() {
            check_may_wait(&permit)?;
        }
        // A request longer than the limit goes to the source alone.
        check_fits(!permit.may_not_wait() || relay.forwarded().1 <= FORWARDED_BYTES_MAX)?;
        relay.forward((session, permit), id.clone(), method, params, &mut link.wire);
        if let Some(connection) = link.wire.connection {
            self.send_out(connection);
        }
        Ok(())
    }

    /// Returns the number of client requests that wait for sources, and the bytes of their permits.
    pub(crate) fn forwarded(&self) -> (usize, usize) {
        let relays = self.links.iter().filter_map(|link| match &link.follower {
            Follower::Relay(relay) => Some(relay.forwarded()),
            Follower::Backup(_) => None,
        });
        relays.fold((0, 0), |(count, bytes), (more, more_bytes)| (count + more, bytes + more_bytes))
    }

    /// Returns true if a session's request is in flight to a source.
    pub(crate) fn is_forwarded(&self, session: SessionId, id: &Value) -> bool {
        self.links.iter().any(|link| match &link.follower {
            Follower::Relay(relay) => relay.has_forward(session, id),
            Follower::Backup(_) => false,
        })
    }

    /// Asks the sources to cancel a session's request, or all of them.
    pub(crate) fn cancel_forwarded(&mut self, session: SessionId, id: Option<&Value>) {
        let mut unsent = Vec::new();
        let mut connections = Vec::new();
        for link in &mut self.links {
            if let Follower::Relay(relay) = &mut link.follower {
                unsent.extend(relay.cancel(session, id, &mut link.wire));
                connections.extend(link.wire.connection);
            }
        }
        connections.into_iter().for_each(|connection| self.send_out(connection));
        self.cancel_forwards(unsent);
    }
}
