//! The I/O around a [`Session`]: connecting, reconnecting with back-off, probing, and transactions.
//!
//! All waiting goes through [`Idl::step`], which is cancel safe: partial work stays in the [`Idl`].
//! [`crate::remotes`] chooses the next server and time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use base::rng::Rng;
use ovsdb::jsonrpc::{Limits, Message, Receiver};
use ovsdb::{DatabaseSchema, Uuid};
use tls::Tls;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::time::Instant;

use crate::changes::{Changes, Outcome};
use crate::client::{self, Client, Parts, Stream};
use crate::condition::Condition;
use crate::error::Error;
use crate::link::{END_OF_FILE, Event, Live};
use crate::remotes::{Order, Remotes};
use crate::replica::{Change, Replica, Table};
use crate::row::Row;
use crate::session::{LockState, Session, TransactReply};
use crate::transaction::Transaction;
use crate::wanted::Wanted;

type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

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
    remotes: Remotes,
    tls: Arc<Tls>,
    reconnect: Reconnect,
    pub(crate) session: Session,
    link: Link,
    seen: u64,
}

impl Idl {
    /// A replica of `wanted` of `database` at one of `remotes`, connection methods with commas between them; by `tls` if
    /// it is `ssl` or `pssl`. It connects as [`Idl::changed`] is awaited, and again, to the next of them, whenever the
    /// connection is lost, so that a daemon may start before its server.
    ///
    /// # Errors
    ///
    /// [`Error::Remote`] if one of `remotes` cannot be connected to by any means.
    pub fn new(remotes: &str, tls: &Arc<Tls>, database: &str, wanted: impl Into<Wanted>) -> Result<Self, Error> {
        let session = Session::new(database, &wanted.into(), None);
        Ok(Self::unconnected(Remotes::parse(remotes)?, Arc::clone(tls), session))
    }

    /// As [`Idl::new`], connected and with its first contents.
    ///
    /// # Errors
    ///
    /// [`Error::Remote`], or [`Error::Connection`] if none of the remotes can be connected to, or [`Error::Request`] if
    /// the server does not have the database. Connections lost later are made again.
    pub async fn connect(
        remotes: &str,
        tls: &Arc<Tls>,
        database: &str,
        wanted: impl Into<Wanted>,
    ) -> Result<Self, Error> {
        let mut client = Client::connect(remotes, tls).await?;
        let schema = client.schema(database).await?;
        let mut idl = Self::from_client(client, schema, wanted);
        idl.first_contents().await?;
        Ok(idl)
    }

    /// A replica over an existing connection; `schema` was requested over it.
    pub fn from_client(client: Client, schema: Arc<DatabaseSchema>, wanted: impl Into<Wanted>) -> Self {
        let database = schema.name.clone();
        let Parts { remotes, tls, receiver, writer } = client.into_parts();
        let session = Session::new(&database, &wanted.into(), Some(schema));
        let mut idl = Self::unconnected(remotes, tls, session);
        idl.go_live(receiver, writer);
        idl
    }

    fn unconnected(remotes: Remotes, tls: Arc<Tls>, session: Session) -> Self {
        Self { remotes, tls, reconnect: Reconnect::Always, session, link: Link::Waiting(Instant::now()), seen: 0 }
    }

    /// Waits for the first contents over the existing connection.
    ///
    /// # Errors
    ///
    /// If the connection is lost or the server refuses.
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

    /// In which order several servers are tried from now on; [`Order::Shuffled`] unless set.
    pub fn set_order(&mut self, order: Order) {
        let mut rng = Rng::from_entropy();
        match self.link {
            Link::Waiting(_) => self.remotes.arrange(order, &mut rng),
            Link::Connecting(_) | Link::Live(_) => self.remotes.rearrange(order, &mut rng),
        }
    }

    /// Whether only the server that leads the database's cluster will do; not so unless set. It counts from the next
    /// connection on. One that is found not to lead, or does so no longer, is left for the next one.
    pub fn set_leader_only(&mut self, leader_only: bool) {
        self.session.set_leader_only(leader_only);
    }

    /// How many servers were named.
    pub fn server_count(&self) -> usize {
        self.remotes.count()
    }

    /// The server that is connected to, or tried.
    pub fn remote(&self) -> &str {
        self.remotes.name()
    }

    /// Replicates other rows of a table from now on; see [`Session::set_condition`]. [`Idl::changed`] tells when the
    /// server has it ([`Idl::conditions_are_held`]).
    pub fn set_table_condition(&mut self, table: &str, condition: Condition) {
        self.session.set_condition(table, condition);
    }

    /// Returns true if the replica has the rows of the conditions that were set last, or had when the connection was
    /// lost.
    pub fn conditions_are_held(&self) -> bool {
        self.session.conditions_are_held()
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

    /// The number of values in the replicated rows, including the columns that are not replicated, as Open vSwitch counts
    /// them.
    pub fn n_cells(&self) -> u64 {
        let columns = |table: &str| Some(self.schema()?.table(table)?.columns().len());
        let cells = |table: &Table| table.n_rows() * columns(table.name()).unwrap_or_default();
        self.replica().tables().iter().map(cells).sum::<usize>() as u64
    }

    /// The schema, once the server has sent it.
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

    /// Returns the changes of rows since the last call; see [`Replica::take_changes`].
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.session.replica_mut().take_changes()
    }

    /// Requests a lock, now and after each reconnection; transactions then fail unless it is held. `None` releases
    /// it.
    pub fn set_lock(&mut self, name: Option<&str>) {
        self.session.set_lock(name);
    }

    /// Returns the state of the lock, if one was requested.
    pub fn lock_state(&self) -> Option<LockState> {
        self.session.lock_state()
    }

    /// Whether the lock is held.
    pub fn has_lock(&self) -> bool {
        self.session.lock_state() == Some(LockState::Held)
    }

    /// A transaction. It holds the replica still until it is committed or dropped.
    pub fn transaction(&mut self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// Commits the changes that `make` makes, calling it again with the new contents after each conflict.
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

    /// Commits changes made on this replica.
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
                            tracing::warn!(target: "ovsdb_idl", "transaction error: {}", client::sorted(error));
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

    /// Does the next step: connects, sends, or receives one message. Cancel safe.
    async fn step(&mut self) -> Result<(), Error> {
        match &mut self.link {
            Link::Waiting(until) => {
                tokio::time::sleep_until(*until).await;
                tracing::info!(target: "reconnect", "{}: connecting...", self.remotes.name());
                self.link = Link::Connecting(self.connect_to_current());
                Ok(())
            }
            Link::Connecting(connecting) => match connecting.await {
                Ok(stream) => {
                    tracing::info!(target: "reconnect", "{}: connected", self.remotes.name());
                    let (read, write) = tokio::io::split(stream);
                    self.go_live(Receiver::new(read, Limits::default()), write);
                    Ok(())
                }
                Err(error) => {
                    let problem = client::io_text(&error);
                    let name = self.remotes.name();
                    tracing::warn!(target: "reconnect", "{name}: connection attempt failed ({problem})");
                    self.lost(problem)
                }
            },
            Link::Live(live) => {
                for message in self.session.take_outgoing() {
                    client::log_message(self.remotes.name(), "send", &message);
                    live.send(&message);
                }
                match live.exchange(!self.remotes.remote().is_local()).await {
                    Ok(Event::Sent) => Ok(()),
                    Ok(Event::Idle) => {
                        self.session.probe();
                        Ok(())
                    }
                    Ok(Event::Received(message)) => self.received(message),
                    Err(problem) if problem == END_OF_FILE => {
                        tracing::info!(target: "reconnect", "{}: connection closed by peer", self.remotes.name());
                        self.disconnect(problem)
                    }
                    Err(problem) => {
                        let name = self.remotes.name();
                        tracing::warn!(target: "reconnect", "{name}: connection dropped ({problem})");
                        self.disconnect(problem)
                    }
                }
            }
        }
    }

    fn connect_to_current(&self) -> Connecting {
        let (remote, tls) = (self.remotes.remote().clone(), Arc::clone(&self.tls));
        let limited = self.remotes.count() > 1 && !remote.is_passive();
        Box::pin(async move { client::limit(limited, client::open(&remote, &tls)).await.and_then(|opened| opened) })
    }

    fn received(&mut self, message: Message) -> Result<(), Error> {
        client::log_message(self.remotes.name(), "received", &message);
        if let Err(error) = self.session.receive(message) {
            tracing::warn!(target: "ovsdb_idl", "{}: {error}", self.remotes.name());
            return self.disconnect(error.to_string());
        }
        let refused = self.session.is_refused() && self.remotes.count() > 1;
        let refused = refused.then_some("the server does not give the database");
        if let Some(reason) = self.session.unfit().or(refused) {
            tracing::info!(target: "ovsdb_idl", "{}: {reason}; trying another server", self.remotes.name());
            return self.disconnect(reason.to_owned());
        }
        if self.session.is_live() {
            self.remotes.succeeded(Instant::now());
        }
        Ok(())
    }

    fn go_live(&mut self, receiver: Receiver<ReadHalf<Stream>>, writer: WriteHalf<Stream>) {
        self.link = Link::Live(Box::new(Live::new(receiver, writer)));
        self.session.connected();
    }

    fn disconnect(&mut self, problem: String) -> Result<(), Error> {
        self.session.disconnected();
        self.lost(problem)
    }

    /// Plans the next attempt to connect.
    fn lost(&mut self, problem: String) -> Result<(), Error> {
        let remote = self.remotes.name().to_owned();
        let now = Instant::now();
        let wait = self.remotes.failed(now);
        self.link = Link::Waiting(now + wait);
        if !wait.is_zero() {
            let (name, seconds) = (self.remotes.name(), wait.as_secs());
            tracing::info!(target: "reconnect", "{name}: waiting {seconds} seconds before reconnect");
        }
        match self.reconnect {
            Reconnect::Always => Ok(()),
            Reconnect::Never => Err(Error::Connection { remote, problem }),
        }
    }
}
