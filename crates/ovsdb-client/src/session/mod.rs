//! One client's session with its server, without I/O: messages are passed in, messages to send are returned, and the
//! [`Replica`] follows the database.
//!
//! After each connection the session requests the schema, then the contents. It tries the best kind of monitor first
//! (`monitor_cond_since`, which after a reconnection returns changes only), and then `monitor_cond` and `monitor` if
//! the server does not support that. If a server cancels the monitor because the database changed its schema, the
//! session starts again.
//!
//! If only a leader is acceptable, the session first requests the server's status ([`server`]), and nothing else from
//! one that does not lead; the caller checks [`Session::unfit`] and connects to another. [`conditions`] select rows,
//! and [`lock`] is a lock that commits may require.

mod conditions;
mod lock;
mod server;

use std::sync::Arc;

use ovsdb::DatabaseSchema;
use ovsdb::jsonrpc::Message;
use serde_json::{Value, json};

use crate::condition::Condition;
use crate::error::ProtocolError;
use crate::replica::Replica;
use crate::wanted::Wanted;
use conditions::Conditions;
use lock::Lock;
pub use lock::LockState;
use server::ServerDatabase;

/// The kinds of monitors, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Monitor {
    CondSince,
    Cond,
    Plain,
}

impl Monitor {
    fn method(self) -> &'static str {
        match self {
            Monitor::CondSince => "monitor_cond_since",
            Monitor::Cond => "monitor_cond",
            Monitor::Plain => "monitor",
        }
    }

    fn next_best(self) -> Option<Self> {
        match self {
            Monitor::CondSince => Some(Monitor::Cond),
            Monitor::Cond => Some(Monitor::Plain),
            Monitor::Plain => None,
        }
    }
}

/// How far the conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Disconnected,
    /// The request for the server's status with this id is pending.
    Server(u64),
    /// The server is unsuitable: it does not lead.
    Unfit(&'static str),
    /// The request for the schema with this id is pending.
    Schema(u64),
    /// The request for the contents with this id is pending.
    Contents(u64, Monitor),
    Live(Monitor),
    /// The server does not have the database, or refuses access to it.
    Refused,
}

/// The answer to a `transact` request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TransactReply {
    Results(Vec<Value>),
    Refused(Value),
}

/// A client's side of the conversation about one database.
#[derive(Debug)]
pub struct Session {
    database: String,
    replica: Replica,
    schema: Option<Arc<DatabaseSchema>>,
    state: State,
    /// The last request id. No two requests share one, even on different connections, so that state of an earlier
    /// connection never takes a reply of a later one.
    ids: u64,
    /// The server's name for the last transaction that is in the replica; `None` if the replica must not be built on.
    last_transaction: Option<Value>,
    conditions: Conditions,
    /// The server's status, if a leader is required.
    server: Option<ServerDatabase>,
    lock: Option<Lock>,
    transaction: Option<(u64, Option<TransactReply>)>,
    outgoing: Vec<Message>,
    /// Counts changes of all that a user can ask, but the replica.
    changes: u64,
}

impl Session {
    /// A session for `database`, not connected. With a known `schema` (from an earlier request), the first connection
    /// does not request it.
    pub fn new(database: &str, wanted: &Wanted, schema: Option<Arc<DatabaseSchema>>) -> Self {
        let mut replica = Replica::new(wanted);
        if let Some(schema) = &schema {
            bind(&mut replica, schema);
        }
        Self {
            database: database.to_owned(),
            replica,
            schema,
            state: State::Disconnected,
            ids: 0,
            last_transaction: None,
            conditions: Conditions::default(),
            server: None,
            lock: None,
            transaction: None,
            outgoing: Vec::new(),
            changes: 0,
        }
    }

    /// The replica.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub(crate) fn replica_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }

    /// The schema, once the server has sent it.
    pub fn schema(&self) -> Option<&Arc<DatabaseSchema>> {
        self.schema.as_ref()
    }

    /// Returns true if the replica follows the server: it is connected and its contents have arrived.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }

    /// The reason why the connected server is unsuitable, if it is: the caller should connect to another.
    pub fn unfit(&self) -> Option<&'static str> {
        if let State::Unfit(reason) = self.state { Some(reason) } else { None }
    }

    /// Asks only servers that lead the database's cluster, from the next connection on. A server that knows no clusters
    /// leads all of its databases; a relay leads none.
    pub fn set_leader_only(&mut self, leader_only: bool) {
        self.server = (leader_only && self.database != ServerDatabase::NAME).then(ServerDatabase::new);
    }

    /// Replicates only the rows of `table` that meet `condition`, as soon as the server has applied it: other rows
    /// disappear, matching ones appear. A server that only supports `monitor` sends all rows whatever the condition.
    /// Has no effect if the table is not replicated.
    pub fn set_condition(&mut self, table: &str, condition: Condition) {
        if self.replica.table(table).is_some() && self.conditions.set(table, condition) {
            self.changes += 1;
            self.request_conditions();
        }
    }

    /// Returns true if the replica has the rows of the conditions that were set last, or had when the connection was
    /// lost.
    pub fn conditions_are_held(&self) -> bool {
        self.conditions.are_held()
    }

    /// Returns true if the server refused access to the database.
    pub fn is_refused(&self) -> bool {
        self.state == State::Refused
    }

    /// A number that changes whenever the replica, the connection or the lock did.
    pub fn sequence(&self) -> u64 {
        self.changes.wrapping_add(self.replica.generation())
    }

    /// Messages to send, in order.
    pub fn take_outgoing(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.outgoing)
    }

    /// Handles a new connection.
    pub fn connected(&mut self) {
        self.outgoing.clear();
        self.changes += 1;
        match &self.server {
            None => self.begin(),
            Some(server) => {
                let params = server.monitor_params();
                self.request("set_db_change_aware", vec![true.into()]);
                let id = self.request("monitor_cond", params);
                self.state = State::Server(id);
            }
        }
    }

    /// Asks the server, which is the right one, for all that is wanted of it.
    fn begin(&mut self) {
        // A schema that arrived over this very connection is still valid; one of an earlier connection may not be.
        if self.schema.is_some() && self.last_transaction.is_none() && self.changes == 1 {
            self.request_contents(Monitor::CondSince);
        } else {
            self.request_schema();
        }
        self.request_lock();
    }

    /// The connection was lost. The replica stays, as the last that is known.
    pub fn disconnected(&mut self) {
        self.state = State::Disconnected;
        self.outgoing.clear();
        if let Some(lock) = &mut self.lock {
            lock.disconnected();
        }
        if !self.conditions.disconnected() {
            self.last_transaction = None;
        }
        if let Some((_, reply @ None)) = &mut self.transaction {
            *reply = Some(TransactReply::Refused(json!("disconnected")));
        }
        self.changes += 1;
    }

    fn request(&mut self, method: &str, params: Vec<Value>) -> u64 {
        self.ids += 1;
        self.outgoing.push(Message::request(self.ids, method, params));
        self.ids
    }

    fn request_schema(&mut self) {
        let id = self.request("get_schema", vec![self.database.as_str().into()]);
        self.state = State::Schema(id);
    }

    fn monitor_id(&self) -> Value {
        json!(["monid", self.database])
    }

    fn request_contents(&mut self, monitor: Monitor) {
        if self.last_transaction.is_none() {
            self.conditions.restart();
        }
        let mut requests = self.replica.monitor_requests();
        if monitor != Monitor::Plain
            && let (Some(schema), Some(requests)) = (&self.schema, requests.as_object_mut())
        {
            for (table, request) in requests {
                if let Some(clauses) = self.conditions.clauses(schema, table) {
                    request[0]["where"] = clauses;
                }
            }
        }
        let mut params = vec![self.database.as_str().into(), self.monitor_id(), requests];
        if monitor == Monitor::CondSince {
            let last = self.last_transaction.clone();
            params.push(last.unwrap_or_else(|| ovsdb::Uuid::ZERO.to_string().into()));
        }
        let id = self.request(monitor.method(), params);
        self.state = State::Contents(id, monitor);
    }

    /// Requests the wanted conditions, if possible now.
    fn request_conditions(&mut self) {
        let State::Live(monitor) = self.state else { return };
        let request = match &self.schema {
            // This protocol cannot express it.
            _ if monitor == Monitor::Plain => None,
            Some(schema) => self.conditions.next_request(schema, &self.replica.tables_in_schema()),
            None => None,
        };
        match request {
            Some(request) => {
                let id = self.request("monitor_cond_change", vec![self.monitor_id(), self.monitor_id(), request]);
                self.conditions.sent(id);
            }
            None => self.conditions.settle(),
        }
    }

    /// Requests a lock, or releases it. Every commit then fails with [`crate::Outcome::NotLocked`] unless it is held.
    pub fn set_lock(&mut self, name: Option<&str>) {
        if self.lock.as_ref().map(|lock| lock.name.as_str()) == name {
            return;
        }
        if let Some(lock) = self.lock.take()
            && lock.request.is_some()
        {
            self.request("unlock", vec![lock.name.into()]);
        }
        self.lock = name.map(Lock::new);
        self.changes += 1;
        if !matches!(self.state, State::Disconnected | State::Server(_) | State::Unfit(_)) {
            self.request_lock();
        }
    }

    fn request_lock(&mut self) {
        let Some(name) = self.lock.as_ref().map(|lock| lock.name.clone()) else { return };
        let id = self.request("lock", vec![name.into()]);
        if let Some(lock) = &mut self.lock {
            lock.request = Some(id);
        }
    }

    /// The lock that commits need.
    pub fn lock_name(&self) -> Option<&str> {
        self.lock.as_ref().map(|lock| lock.name.as_str())
    }

    /// Returns the state of the lock; `None` if none was requested.
    pub fn lock_state(&self) -> Option<LockState> {
        self.lock.as_ref().map(|lock| lock.state)
    }

    fn set_lock_state(&mut self, state: LockState) {
        if let Some(lock) = &mut self.lock
            && lock.state != state
        {
            lock.state = state;
            self.changes += 1;
        }
    }

    /// Sends a transaction; its reply will be in [`Session::take_transact_reply`]. An earlier one is forgotten.
    pub(crate) fn transact(&mut self, operations: &[Value]) {
        let mut params = Vec::with_capacity(operations.len() + 1);
        params.push(self.database.as_str().into());
        params.extend(operations.iter().cloned());
        let id = self.request("transact", params);
        self.transaction = Some((id, None));
    }

    pub(crate) fn take_transact_reply(&mut self) -> Option<TransactReply> {
        let reply = self.transaction.as_mut()?.1.take();
        if reply.is_some() {
            self.transaction = None;
        }
        reply
    }

    /// Asks the server for a sign of life.
    pub(crate) fn probe(&mut self) {
        self.outgoing.push(Message::request("echo", "echo", Vec::new()));
    }

    /// Takes a message from the server.
    ///
    /// # Errors
    ///
    /// When the message breaks the protocol. The connection must be closed then, and the next one will bring the full
    /// contents.
    pub fn receive(&mut self, message: Message) -> Result<(), ProtocolError> {
        let result = match message {
            Message::Request { id, method, params } if method == "echo" => {
                self.outgoing.push(Message::reply(id, params));
                Ok(())
            }
            Message::Request { id, method, .. } => {
                let error = json!({ "error": "unknown method", "details": method });
                self.outgoing.push(Message::error(id, error));
                Ok(())
            }
            Message::Notification { method, params } => self.notified(&method, &params),
            Message::Reply { id, result } => self.replied(&id, Ok(result)),
            Message::Error { id, error } => self.replied(&id, Err(error)),
        };
        if result.is_err() {
            self.last_transaction = None;
        }
        result
    }

    fn notified(&mut self, method: &str, params: &[Value]) -> Result<(), ProtocolError> {
        if let Some(server) = &mut self.server
            && params.first() == Some(&ServerDatabase::monitor_id())
        {
            if let ("update2", [_, updates]) = (method, params) {
                server.update(updates)?;
                self.check_server();
            }
            return Ok(());
        }
        let ours = params.first() == Some(&self.monitor_id());
        match (method, params) {
            ("update", [_, updates]) if ours && self.is_live() => self.replica.apply_updates(updates),
            ("update2", [_, updates]) if ours && self.is_live() => self.replica.apply_updates2(updates),
            ("update3", [_, last, updates]) if ours && self.is_live() => {
                self.replica.apply_updates2(updates)?;
                self.last_transaction = Some(last.clone());
                Ok(())
            }
            // Further messages of an unsuitable server are ignored.
            _ if self.unfit().is_some() => Ok(()),
            ("update" | "update2" | "update3", _) => {
                Err(ProtocolError::new("update for a monitor that is not active", &Value::from(params.to_vec())))
            }
            ("monitor_canceled", _) if ours => {
                self.last_transaction = None;
                // The reply to a request about the previous monitor does not concern the next one.
                self.conditions.disconnected();
                self.request_schema();
                self.changes += 1;
                Ok(())
            }
            ("locked" | "stolen", [name]) => {
                if name.as_str() == self.lock_name() {
                    let held = method == "locked";
                    self.set_lock_state(if held { LockState::Held } else { LockState::Contended });
                }
                Ok(())
            }
            // Newer servers may send other notifications.
            _ => Ok(()),
        }
    }

    fn replied(&mut self, id: &Value, result: Result<Value, Value>) -> Result<(), ProtocolError> {
        let Some(id) = id.as_u64() else { return Ok(()) };
        if matches!(self.transaction, Some((awaited, None)) if awaited == id) {
            let reply = match result {
                Ok(Value::Array(results)) => TransactReply::Results(results),
                Ok(other) => return Err(ProtocolError::new("transaction results are not an array", &other)),
                Err(error) => TransactReply::Refused(error),
            };
            self.transaction = Some((id, Some(reply)));
            return Ok(());
        }
        if self.lock.as_ref().is_some_and(|lock| lock.request == Some(id)) {
            let held = result.is_ok_and(|result| result.get("locked") == Some(&Value::Bool(true)));
            self.set_lock_state(if held { LockState::Held } else { LockState::Contended });
            return Ok(());
        }
        if self.conditions.is_request(id) {
            result.map_err(|error| ProtocolError::new("conditions are refused", &error))?;
            self.conditions.acknowledged();
            self.changes += 1;
            self.request_conditions();
            return Ok(());
        }
        match self.state {
            State::Server(awaited) if awaited == id => self.server_replied(result),
            State::Schema(awaited) if awaited == id => self.schema_replied(result),
            State::Contents(awaited, monitor) if awaited == id => self.contents_replied(monitor, result),
            _ => Ok(()),
        }
    }

    fn server_replied(&mut self, result: Result<Value, Value>) -> Result<(), ProtocolError> {
        let (Ok(contents), Some(server)) = (result, &mut self.server) else {
            // A server without this table has no clusters.
            self.begin();
            return Ok(());
        };
        server.contents(&contents)?;
        self.check_server();
        if self.unfit().is_none() {
            self.begin();
        }
        Ok(())
    }

    /// Checks whether the server is still suitable.
    fn check_server(&mut self) {
        let Some(reason) = self.server.as_ref().and_then(|server| server.why_not(&self.database)) else { return };
        if self.unfit().is_none() {
            self.state = State::Unfit(reason);
            self.changes += 1;
        }
    }

    fn schema_replied(&mut self, result: Result<Value, Value>) -> Result<(), ProtocolError> {
        let json = match result {
            Ok(json) => json,
            Err(error) => {
                tracing::warn!(target: "ovsdb_idl", "{}: the server does not give the schema: {error}", self.database);
                self.state = State::Refused;
                self.changes += 1;
                return Ok(());
            }
        };
        let schema = DatabaseSchema::from_json(&json).map_err(|error| ProtocolError::new(&error.to_string(), &json))?;
        let known = self.schema.as_ref().is_some_and(|known| known.equivalent(&schema));
        if !known {
            self.last_transaction = None;
            bind(&mut self.replica, &schema);
            self.schema = Some(Arc::new(schema));
        }
        self.request_contents(Monitor::CondSince);
        Ok(())
    }

    fn contents_replied(&mut self, monitor: Monitor, result: Result<Value, Value>) -> Result<(), ProtocolError> {
        let json = match (result, monitor.next_best()) {
            (Ok(json), _) => json,
            (Err(_), Some(next)) => {
                self.last_transaction = None;
                self.request_contents(next);
                return Ok(());
            }
            (Err(error), None) => {
                tracing::warn!(target: "ovsdb_idl", "{}: the server does not allow monitoring: {error}", self.database);
                self.state = State::Refused;
                self.changes += 1;
                return Ok(());
            }
        };
        match monitor {
            Monitor::Plain => self.replica.replace(&json, Replica::apply_updates)?,
            Monitor::Cond => self.replica.replace(&json, Replica::apply_updates2)?,
            Monitor::CondSince => {
                let Some([Value::Bool(found), last, updates]) = json.as_array().map(Vec::as_slice) else {
                    return Err(ProtocolError::new("bad reply to monitor_cond_since", &json));
                };
                if *found && self.last_transaction.is_some() {
                    self.replica.apply_updates2(updates)?;
                } else {
                    self.replica.replace(updates, Replica::apply_updates2)?;
                }
                // A server without a history sends zeros, which it would not find again.
                self.last_transaction = Some(last.clone());
            }
        }
        self.state = State::Live(monitor);
        self.changes += 1;
        self.request_conditions();
        Ok(())
    }
}

/// Applies a schema, and warns about mismatches.
fn bind(replica: &mut Replica, schema: &DatabaseSchema) {
    for misfit in replica.bind(schema) {
        tracing::warn!(target: "ovsdb_idl", "{misfit}");
    }
}
