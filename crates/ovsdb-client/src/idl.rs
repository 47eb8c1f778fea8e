//! The I/O around a [`Session`]: connecting, reconnecting with back-off, probing, and transactions.
//!
//! Everything that waits goes through [`Idl::step`], which is cancel safe: whatever is half done stays in the [`Idl`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ovsdb::jsonrpc::{Limits, Message, Receiver};
use ovsdb::{DatabaseSchema, Datum, Uuid};
use tls::Tls;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant;

use crate::changes::{Changes, Outcome};
use crate::client::{self, Client, Parts, Stream};
use crate::error::Error;
use crate::replica::{Change, Replica, Row, Wanted};
use crate::servers::{Order, Servers};
use crate::session::{LockState, Session, TransactReply};

/// The first wait before connecting again; each further one is twice as long, up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest wait before connecting again.
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// How long a TCP connection may be silent before the server is asked for a sign of life, and again how long until it
/// must have given one.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// What a connection that the server has closed ends with.
const END_OF_FILE: &str = "End of file";

type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

/// A connection with its unsent output.
struct Live {
    receiver: Receiver<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
    output: Vec<u8>,
    sent: usize,
    /// Whether the stream may hold back some of what was sent.
    unflushed: bool,
    heard: Instant,
    probed: bool,
}

enum Link {
    /// Waiting to connect again.
    Waiting(Instant),
    Connecting(Connecting),
    Live(Box<Live>),
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Link::Waiting(_) => "Waiting",
            Link::Connecting(_) => "Connecting",
            Link::Live(_) => "Live",
        })
    }
}

/// Whether a lost connection is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconnect {
    /// Again and again, as daemons do.
    Always,
    /// Never: [`Idl::changed`] fails instead, as command line programs want.
    Never,
}

/// A live replica of a remote database.
#[derive(Debug)]
pub struct Idl {
    servers: Servers,
    tls: Arc<Tls>,
    reconnect: Reconnect,
    session: Session,
    link: Link,
    backoff: Duration,
    seen: u64,
}

impl Idl {
    /// A replica of `wanted` of `database` at `remote`, or at any of several between commas, reached by `tls` if it is `ssl` or
    /// `pssl`. It connects as
    /// [`Idl::changed`] is awaited, and again whenever the connection is lost, so that a daemon may start before its server.
    ///
    /// # Errors
    ///
    /// [`Error::Remote`] if `remote` cannot be connected to by any means.
    pub fn new(remote: &str, tls: &Arc<Tls>, database: &str, wanted: impl Into<Wanted>) -> Result<Self, Error> {
        let session = Session::new(database, &wanted.into(), None);
        Ok(Self::unconnected(Servers::parse(remote, Order::Random)?, Arc::clone(tls), session))
    }

    /// [`Idl::new`], connected and with its first contents.
    ///
    /// # Errors
    ///
    /// [`Error::Remote`], or [`Error::Connection`] if the first attempt to connect fails, or [`Error::Request`] if the
    /// server does not have the database. Connections lost later are made again.
    pub async fn connect(
        remote: &str,
        tls: &Arc<Tls>,
        database: &str,
        wanted: impl Into<Wanted>,
    ) -> Result<Self, Error> {
        let mut client = Client::connect(remote, tls).await?;
        let schema = client.schema(database).await?;
        let mut idl = Self::from_client(client, schema, wanted);
        idl.first_contents().await?;
        Ok(idl)
    }

    /// A replica over a connection that is there already; `schema` is the one that was asked for over it.
    pub fn from_client(client: Client, schema: Arc<DatabaseSchema>, wanted: impl Into<Wanted>) -> Self {
        let database = schema.name.clone();
        let Parts { servers, tls, receiver, writer } = client.into_parts();
        let session = Session::new(&database, &wanted.into(), Some(schema));
        let mut idl = Self::unconnected(servers, tls, session);
        idl.go_live(receiver, writer);
        idl
    }

    fn unconnected(servers: Servers, tls: Arc<Tls>, session: Session) -> Self {
        Self {
            servers,
            tls,
            reconnect: Reconnect::Always,
            session,
            link: Link::Waiting(Instant::now()),
            backoff: Duration::ZERO,
            seen: 0,
        }
    }

    /// Waits for the first contents over the connection that is there.
    ///
    /// # Errors
    ///
    /// When the connection is lost or the server refuses.
    pub async fn first_contents(&mut self) -> Result<(), Error> {
        let reconnect = std::mem::replace(&mut self.reconnect, Reconnect::Never);
        let result = loop {
            if self.session.is_live() {
                break Ok(());
            }
            if self.session.is_refused() {
                let error = serde_json::Value::from("the server does not give the database");
                break Err(Error::Request { method: "monitor".into(), error });
            }
            if let Err(error) = self.step().await {
                break Err(error);
            }
        };
        self.reconnect = reconnect;
        result
    }

    /// Whether to connect again after a connection is lost; [`Reconnect::Always`] unless set.
    pub fn set_reconnect(&mut self, reconnect: Reconnect) {
        self.reconnect = reconnect;
    }

    /// Waits until the contents, the connection or the lock changed since this was last awaited. Cancel safe.
    ///
    /// # Errors
    ///
    /// Only with [`Reconnect::Never`], when the connection is lost.
    pub async fn changed(&mut self) -> Result<(), Error> {
        while self.seen == self.session.sequence() {
            self.step().await?;
        }
        self.seen = self.session.sequence();
        Ok(())
    }

    /// Whether the replica follows the server at present. Before the first time the replica is empty.
    pub fn is_live(&self) -> bool {
        self.session.is_live()
    }

    /// The schema, once the server has told it.
    pub fn schema(&self) -> Option<&Arc<DatabaseSchema>> {
        self.session.schema()
    }

    /// The replica.
    pub fn replica(&self) -> &Replica {
        self.session.replica()
    }

    /// The rows of a table, sorted by UUID.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = Row<'_>> {
        self.session.replica().rows(table)
    }

    /// One row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<Row<'_>> {
        self.session.replica().row(table, uuid)
    }

    /// What happened to which rows since this was last called; see [`Replica::take_changes`].
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.session.replica_mut().take_changes()
    }

    /// Asks for a lock, now and after each reconnection; transactions then fail unless it is held. `None` gives it up.
    pub fn set_lock(&mut self, name: Option<&str>) {
        self.session.set_lock(name);
    }

    /// Whether the lock is held, if one was asked for.
    pub fn lock_state(&self) -> Option<LockState> {
        self.session.lock_state()
    }

    /// Whether the lock is held.
    pub fn has_lock(&self) -> bool {
        self.session.lock_state() == Some(LockState::Held)
    }

    /// A transaction. It holds the replica still until it is committed or dropped.
    pub fn transaction(&mut self) -> Transaction<'_> {
        Transaction { idl: self, changes: Changes::new() }
    }

    /// Commits the changes that `make` makes, making them anew from the new contents as often as the server says that
    /// they rest on old ones.
    ///
    /// # Errors
    ///
    /// As [`Transaction::commit`].
    pub async fn transact(&mut self, mut make: impl FnMut(&mut Transaction<'_>)) -> Result<Outcome, Error> {
        loop {
            let sequence = self.session.sequence();
            let mut transaction = self.transaction();
            make(&mut transaction);
            let outcome = transaction.commit().await?;
            match &outcome {
                Outcome::Unchanged => base::coverage!(txn_unchanged),
                Outcome::Committed(_) => base::coverage!(txn_success),
                Outcome::TryAgain => base::coverage!(txn_try_again),
                Outcome::NotLocked => base::coverage!(txn_not_locked),
            }
            match outcome {
                Outcome::TryAgain => {
                    while self.session.sequence() == sequence || !self.session.is_live() {
                        self.step().await?;
                    }
                }
                outcome => return Ok(outcome),
            }
        }
    }

    /// Commits changes that were made on this replica.
    ///
    /// # Errors
    ///
    /// As [`Transaction::commit`].
    pub async fn commit(&mut self, changes: &Changes) -> Result<Outcome, Error> {
        let Some(operations) = changes.operations(self.session.replica(), self.session.lock_name()) else {
            return Ok(Outcome::Unchanged);
        };
        if !self.session.is_live() {
            return Ok(Outcome::TryAgain);
        }
        if self.session.lock_state().is_some_and(|state| state != LockState::Held) {
            return Ok(Outcome::NotLocked);
        }
        self.session.transact(&operations);
        loop {
            if let Some(reply) = self.session.take_transact_reply() {
                return match reply {
                    TransactReply::Results(results) => {
                        let outcome = changes.outcome(&operations, &results);
                        if let Err(Error::Transaction(error)) = &outcome {
                            tracing::warn!(target: "ovsdb_idl", "transaction error: {}", sorted(error));
                        }
                        outcome
                    }
                    TransactReply::Refused(error) => match error.as_str() {
                        Some("canceled" | "disconnected") => Ok(Outcome::TryAgain),
                        _ => Err(Error::Request { method: "transact".into(), error }),
                    },
                };
            }
            self.step().await?;
        }
    }

    /// Does what comes next: connects, sends, or takes one message. Cancel safe.
    async fn step(&mut self) -> Result<(), Error> {
        match &mut self.link {
            Link::Waiting(until) => {
                tokio::time::sleep_until(*until).await;
                tracing::info!(target: "reconnect", "{}: connecting...", self.servers.current());
                let (remote, tls) = (self.servers.current().clone(), Arc::clone(&self.tls));
                self.link = Link::Connecting(Box::pin(async move { client::open(&remote, &tls).await }));
                Ok(())
            }
            Link::Connecting(connecting) => match connecting.await {
                Ok(stream) => {
                    tracing::info!(target: "reconnect", "{}: connected", self.servers.current());
                    let (read, write) = tokio::io::split(stream);
                    self.go_live(Receiver::new(read, Limits::default()), write);
                    Ok(())
                }
                Err(error) => {
                    let problem = client::io_text(&error);
                    tracing::warn!(target: "reconnect", "{}: connection attempt failed ({problem})", self.servers.current());
                    self.lost(problem)
                }
            },
            Link::Live(live) => {
                for message in self.session.take_outgoing() {
                    client::log_message(self.servers.name(), "send", &message);
                    live.output.extend(message.to_bytes());
                }
                match live.exchange(!self.servers.current().is_local()).await {
                    Ok(Event::Sent) => Ok(()),
                    Ok(Event::Idle) => {
                        self.session.probe();
                        Ok(())
                    }
                    Ok(Event::Received(message)) => {
                        client::log_message(self.servers.name(), "received", &message);
                        let received = self.session.receive(message);
                        if self.session.is_live() {
                            self.backoff = Duration::ZERO;
                        }
                        match received {
                            Ok(()) => Ok(()),
                            Err(error) => {
                                tracing::warn!(target: "ovsdb_idl", "{}: {error}", self.servers.current());
                                self.disconnect(error.to_string())
                            }
                        }
                    }
                    Err(problem) if problem == END_OF_FILE => {
                        tracing::info!(target: "reconnect", "{}: connection closed by peer", self.servers.current());
                        self.disconnect(problem)
                    }
                    Err(problem) => {
                        tracing::warn!(target: "reconnect", "{}: connection dropped ({problem})", self.servers.current());
                        self.disconnect(problem)
                    }
                }
            }
        }
    }

    fn go_live(&mut self, receiver: Receiver<ReadHalf<Stream>>, writer: WriteHalf<Stream>) {
        let heard = Instant::now();
        let (output, sent, unflushed, probed) = (Vec::new(), 0, false, false);
        self.link = Link::Live(Box::new(Live { receiver, writer, output, sent, unflushed, heard, probed }));
        self.session.connected();
    }

    fn disconnect(&mut self, problem: String) -> Result<(), Error> {
        self.session.disconnected();
        self.lost(problem)
    }

    /// Plans the next attempt to connect.
    fn lost(&mut self, problem: String) -> Result<(), Error> {
        if !self.servers.advance() {
            // One that was not tried in this round may well be there.
            self.link = Link::Waiting(Instant::now());
        } else {
            self.wait_before_reconnect();
        }
        match self.reconnect {
            Reconnect::Always => Ok(()),
            Reconnect::Never => Err(Error::Connection { remote: self.servers.name().to_owned(), problem }),
        }
    }

    fn wait_before_reconnect(&mut self) {
        self.link = Link::Waiting(Instant::now() + self.backoff);
        if self.backoff.is_zero() {
            self.backoff = BACKOFF_MIN;
        } else {
            let seconds = self.backoff.as_secs();
            tracing::info!(target: "reconnect", "{}: waiting {seconds} seconds before reconnect", self.servers.name());
            self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        }
    }
}

/// What [`Live::exchange`] did.
enum Event {
    Sent,
    Received(Message),
    /// Nothing was heard for a while.
    Idle,
}

impl Live {
    /// Sends some output or takes one message, whichever can be done first. Cancel safe.
    async fn exchange(&mut self, probes: bool) -> Result<Event, String> {
        let deadline = self.heard + if self.probed { PROBE_INTERVAL * 2 } else { PROBE_INTERVAL };
        let unsent = self.output.get(self.sent..).unwrap_or_default();
        tokio::select! {
            received = self.receiver.receive() => match received {
                Ok(Some(message)) => {
                    self.heard = Instant::now();
                    self.probed = false;
                    Ok(Event::Received(message))
                }
                Ok(None) => Err(END_OF_FILE.into()),
                Err(error) => Err(error.to_string()),
            },
            written = write_or_flush(&mut self.writer, unsent), if self.unflushed || !unsent.is_empty() => {
                self.unflushed = !unsent.is_empty();
                self.sent += written.map_err(|error| client::io_text(&error))?;
                if self.sent >= self.output.len() {
                    self.output.clear();
                    self.sent = 0;
                }
                Ok(Event::Sent)
            }
            () = tokio::time::sleep_until(deadline), if probes => {
                if std::mem::replace(&mut self.probed, true) {
                    return Err("no response to inactivity probe".into());
                }
                Ok(Event::Idle)
            }
        }
    }
}

/// Writes some of `unsent`, or sees to it that nothing is held back if there is none. Cancel safe.
async fn write_or_flush(writer: &mut WriteHalf<Stream>, unsent: &[u8]) -> io::Result<usize> {
    if unsent.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(unsent).await }
}

/// An `<error>` with its members sorted, as Open vSwitch prints it.
fn sorted(error: &serde_json::Value) -> serde_json::Value {
    client::sorted(error)
}

/// Changes to a database, on top of the replica; see [`Changes`]. Dropped without [`Transaction::commit`], it does
/// nothing.
#[derive(Debug)]
pub struct Transaction<'a> {
    idl: &'a mut Idl,
    changes: Changes,
}

impl Transaction<'_> {
    /// The replica, without the changes.
    pub fn replica(&self) -> &Replica {
        self.idl.replica()
    }

    /// The changes so far.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The schema.
    pub fn schema(&self) -> Option<&Arc<DatabaseSchema>> {
        self.idl.schema()
    }

    /// The rows of a table as the transaction leaves it, sorted by UUID.
    pub fn rows(&self, table: &str) -> Vec<Uuid> {
        self.changes.rows(self.idl.replica(), table)
    }

    /// Whether the row exists as the transaction leaves it.
    pub fn contains(&self, table: &str, uuid: Uuid) -> bool {
        self.changes.contains(self.idl.replica(), table, uuid)
    }

    /// The value of a column as the transaction leaves it.
    pub fn datum(&self, table: &str, uuid: Uuid, column: &str) -> Option<&Datum> {
        self.changes.datum(self.idl.replica(), table, uuid, column)
    }

    /// A string as the transaction leaves it, or the empty one.
    pub fn string(&self, table: &str, uuid: Uuid, column: &str) -> &str {
        self.datum(table, uuid, column).and_then(Datum::as_str).unwrap_or_default()
    }

    /// An optional integer as the transaction leaves it.
    pub fn integer(&self, table: &str, uuid: Uuid, column: &str) -> Option<i64> {
        self.datum(table, uuid, column).and_then(Datum::as_integer)
    }

    /// A truth value as the transaction leaves it, or false.
    pub fn boolean(&self, table: &str, uuid: Uuid, column: &str) -> bool {
        self.datum(table, uuid, column).and_then(Datum::as_bool).unwrap_or_default()
    }

    /// A set of references (or the references that a map has as values) as the transaction leaves it.
    pub fn uuids(&self, table: &str, uuid: Uuid, column: &str) -> Vec<Uuid> {
        crate::replica::uuids_of(self.datum(table, uuid, column))
    }

    /// Writes a whole column.
    pub fn set(&mut self, table: &str, uuid: Uuid, column: &str, value: impl Into<Datum>) {
        self.changes.set(self.idl.session.replica(), table, uuid, column, value);
    }

    /// Adds elements to a set or a map; see [`Changes::add`].
    pub fn add(&mut self, table: &str, uuid: Uuid, column: &str, elements: &Datum) {
        self.changes.add(self.idl.session.replica(), table, uuid, column, elements);
    }

    /// Removes elements from a set, or keys from a map; see [`Changes::remove`].
    pub fn remove(&mut self, table: &str, uuid: Uuid, column: &str, elements: &Datum) {
        self.changes.remove(self.idl.session.replica(), table, uuid, column, elements);
    }

    /// Inserts a row; see [`Changes::insert`].
    pub fn insert(&mut self, table: &str) -> Uuid {
        self.changes.insert(self.idl.session.replica(), table)
    }

    /// Inserts a row known to this transaction as `uuid`; see [`Changes::insert_as`].
    pub fn insert_as(&mut self, table: &str, uuid: Uuid) {
        self.changes.insert_as(self.idl.session.replica(), table, uuid);
    }

    /// Inserts a row whose UUID is chosen by us; see [`Changes::insert_with_uuid`].
    pub fn insert_with_uuid(&mut self, table: &str, uuid: Uuid) {
        self.changes.insert_with_uuid(self.idl.session.replica(), table, uuid);
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: &str, uuid: Uuid) {
        self.changes.delete(self.idl.session.replica(), table, uuid);
    }

    /// Makes the commit depend on a column's value; see [`Changes::verify`].
    pub fn verify(&mut self, table: &str, uuid: Uuid, column: &str) {
        self.changes.verify(self.idl.session.replica(), table, uuid, column);
    }

    /// Increments an integer column; see [`Changes::increment`].
    pub fn increment(&mut self, table: &str, uuid: Uuid, column: &str) {
        self.changes.increment(self.idl.session.replica(), table, uuid, column);
    }

    /// Adds a comment for the server's log.
    pub fn comment(&mut self, comment: impl Into<String>) {
        self.changes.comment(comment);
    }

    /// The changes, to commit later with [`Idl::commit`], before the replica has changed.
    pub fn into_changes(self) -> Changes {
        self.changes
    }

    /// Sends the changes and waits for the answer. The replica has them when this returns [`Outcome::Committed`].
    ///
    /// Dropping the future leaves it open whether they are committed.
    ///
    /// # Errors
    ///
    /// [`Error::Transaction`] or [`Error::Request`] when the server refuses the changes for good.
    pub async fn commit(self) -> Result<Outcome, Error> {
        self.idl.commit(&self.changes).await
    }
}
