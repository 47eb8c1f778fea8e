//! A relay's side of the protocol with its source, and the forwarded requests of clients.
//!
//! The relay first monitors the source's `_Server` database, which says whether the source has the database and is
//! itself connected to it; otherwise the relay tries the next source. Then it requests the schema and the contents,
//! either from the last known transaction on (`monitor_cond_since`), or by the older kinds of monitors.
//!
//! A request that changes the database is forwarded to the source unchanged, under an id of its own. The source
//! reports changes before it replies, so that a client receives its own changes first, as it does without a relay.
//! When the connection is lost, requests in flight are answered by `canceled`, since their result is unknown; unsent
//! requests wait for the next connection.
//!
//! The source limits the requests of one connection that wait for a condition (`wait`). All clients share this
//! connection, so such requests are sent a few at a time, for each client and in total; other requests do not wait
//! for them.

use std::collections::HashMap;
use std::result::Result;
use std::sync::Arc;

use ovsdb::jsonrpc::Message;
use ovsdb::{DatabaseSchema, Datum, Error, Uuid, UuidSource};
use serde_json::{Map, Value, json};

use super::{Contents, Received, Step, Trouble, Wire, trouble};
use crate::admission::Permit;
use crate::commit::prepare;
use crate::database::Database;
use crate::monitor::Version;
use crate::server_database;
use crate::session::SessionId;
use crate::transaction::Transaction;
use crate::updates::{self, Format};

/// The columns of `_Server` that matter to a relay.
const SERVER_COLUMNS: [&str; 4] = ["name", "model", "connected", "schema"];

/// The state of the protocol; the numbers are those of the requests that await replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Disconnected,
    Server(u64),
    Schema(u64),
    Contents(u64, Version),
    Live,
}

/// Maximum number of requests at the source that may wait there, for one client and in total; and in total including
/// requests that are the only one of their client. To the source all requests of the relay are one client's, and
/// count towards its limit: requests that wait must leave capacity there for those that do not.
const CLIENT_WAITS_MAX: usize = 16;
const WAITS_MAX: usize = 128;
const ONLY_WAITS_MAX: usize = 192;
/// Maximum memory of these requests in bytes: half of a client's limit.
pub(super) const WAITS_BYTES_MAX: usize = 8 << 20;

/// A client's request to be executed by the source.
#[derive(Debug)]
struct Forward {
    session: SessionId,
    /// The client's id for it.
    id: Value,
    method: &'static str,
    params: Vec<Value>,
    /// Its id at the source, if it was sent.
    sent: Option<u64>,
    /// Whether a cancellation was sent to the source.
    canceled: bool,
    /// Whether it may wait there.
    waits: bool,
    /// Its permit.
    permit: Permit,
}

/// The state of one relayed database.
#[derive(Debug)]
pub(crate) struct Relay {
    database: String,
    stage: Stage,
    /// The source's `_Server` database; `None` if it has none.
    server: Option<Database>,
    /// The source's schema, until the contents arrive.
    schema: Option<Arc<DatabaseSchema>>,
    /// The source's name for the last transaction in the copy; `None` if the copy must not be built on.
    last_transaction: Option<Uuid>,
    forwards: Vec<Forward>,
}

impl Relay {
    /// A relay of `database`.
    pub(super) fn new(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            stage: Stage::Disconnected,
            server: None,
            schema: None,
            last_transaction: None,
            forwards: Vec::new(),
        }
    }

    pub(super) fn connected(&mut self, wire: &mut Wire) {
        self.server = Some(Database::new(server_database::schema()));
        wire.request("set_db_change_aware", vec![true.into()]);
        let requests = json!({"Database": [{ "columns": SERVER_COLUMNS }]});
        let params = vec![server_database::NAME.into(), monitor_id(server_database::NAME), requests];
        self.stage = Stage::Server(wire.request("monitor_cond", params));
    }

    /// Handles a lost connection; returns the requests that were in flight.
    pub(super) fn disconnected(&mut self) -> Vec<(SessionId, Value)> {
        self.stage = Stage::Disconnected;
        self.server = None;
        self.schema = None;
        let (lost, kept) = std::mem::take(&mut self.forwards).into_iter().partition(|forward| forward.sent.is_some());
        self.forwards = kept;
        let lost: Vec<Forward> = lost;
        lost.into_iter().map(|forward| (forward.session, forward.id)).collect()
    }

    /// Gives all requests that are not answered.
    pub(super) fn forget(&mut self) -> Vec<(SessionId, Value)> {
        std::mem::take(&mut self.forwards).into_iter().map(|forward| (forward.session, forward.id)).collect()
    }

    /// Makes the relay request the contents in full next time.
    pub(super) fn invalidate(&mut self) {
        self.last_transaction = None;
    }

    pub(super) fn received(&mut self, message: Message, schema: &DatabaseSchema, wire: &mut Wire) -> Received {
        match message {
            Message::Reply { id, result } => self.replied(id.as_u64(), Ok(result), schema, wire),
            Message::Error { id, error } => self.replied(id.as_u64(), Err(error), schema, wire),
            Message::Notification { method, params } => self.notified(&method, params, wire),
            Message::Request { method, .. } => trouble(format!("the source sent a request, \"{method}\"")),
        }
    }

    fn notified(&mut self, method: &str, mut params: Vec<Value>, wire: &mut Wire) -> Received {
        let of = |name: &str, params: &[Value]| params.first() == Some(&monitor_id(name));
        if of(server_database::NAME, &params) && method == "update2" {
            self.server_changed(params.get(1).unwrap_or(&Value::Null))?;
            self.check_server()?;
            return Ok(Step::Nothing);
        }
        if !of(&self.database, &params) {
            // Newer servers may send other notifications.
            return Ok(Step::Nothing);
        }
        let updates = params.pop().unwrap_or_default();
        match (method, self.stage, params.get(1)) {
            ("update", Stage::Live, None) => Ok(Step::Update { updates, format: Format::Whole, transaction: None }),
            ("update2", Stage::Live, None) => {
                Ok(Step::Update { updates, format: Format::Difference, transaction: None })
            }
            ("update3", Stage::Live, Some(id)) => {
                let transaction = known_transaction(id);
                self.last_transaction = transaction;
                Ok(Step::Update { updates, format: Format::Difference, transaction })
            }
            // The database has another schema, or is about to be removed, which `_Server` then reports.
            ("monitor_canceled", _, None) => {
                self.last_transaction = None;
                self.request_schema(wire);
                Ok(Step::Nothing)
            }
            _ => trouble(format!("the source sent an unexpected \"{method}\"")),
        }
    }

    fn replied(
        &mut self,
        id: Option<u64>,
        result: Result<Value, Value>,
        schema: &DatabaseSchema,
        wire: &mut Wire,
    ) -> Received {
        let Some(id) = id else { return Ok(Step::Nothing) };
        if let Some(at) = self.forwards.iter().position(|forward| forward.sent == Some(id)) {
            let Forward { session, id, .. } = self.forwards.remove(at);
            self.send_next(wire);
            let message = match result {
                Ok(result) => Message::reply(id, result),
                Err(error) => Message::error(id, error),
            };
            return Ok(Step::Answer(session, message));
        }
        match self.stage {
            Stage::Server(awaited) if awaited == id => {
                match result {
                    Ok(updates) => self.server_changed(&updates)?,
                    Err(_) => self.server = None,
                }
                self.check_server()?;
                self.request_schema(wire);
            }
            Stage::Schema(awaited) if awaited == id => {
                let json = result.map_err(|error| Trouble(Error::from_json(&error).to_string()))?;
                let found = DatabaseSchema::from_json(&json)?;
                if found.name != self.database {
                    return trouble(format!("the source's database is called {}", found.name));
                }
                if !found.equivalent(schema) {
                    self.last_transaction = None;
                    self.schema = Some(Arc::new(found));
                } else {
                    self.schema = None;
                }
                self.request_contents(Version::V3, schema, wire);
            }
            Stage::Contents(awaited, version) if awaited == id => return self.contents(version, result, schema, wire),
            _ => {}
        }
        Ok(Step::Nothing)
    }

    fn server_changed(&mut self, updates: &Value) -> Result<(), Trouble> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let mut transaction = Transaction::new(server);
        updates::apply(&mut transaction, updates, Format::Difference)?;
        // The updates have the row ids; versions are not needed here.
        let prepared = prepare(transaction, &mut UuidSource::seeded(0))?;
        server.apply_changes(&prepared.changes);
        Ok(())
    }

    /// Whether the source can be followed, as far as it tells.
    fn check_server(&self) -> Result<(), Trouble> {
        let Some(server) = &self.server else { return Ok(()) };
        let name = &self.database;
        let schema = server.schema();
        let table = schema.table_index("Database").and_then(|at| Some((at, schema.tables().get(at)?)));
        let Some((at, table)) = table else { return trouble("internal error") };
        let column = |name: &str| table.column_index(name).unwrap_or_default();
        let text = |row: &crate::Row, name: &str| row.column(column(name)).and_then(Datum::as_str).map(str::to_owned);
        let Some(row) = server.rows(at).find(|row| text(row, "name").as_deref() == Some(name)) else {
            return trouble(format!("the source has no database {name}"));
        };
        if text(row, "schema").is_none() {
            return trouble("the source has not yet got the database itself");
        }
        if row.column(column("connected")).and_then(Datum::as_bool) == Some(false) {
            return trouble("the source has lost its own connection to the database");
        }
        Ok(())
    }

    fn request_schema(&mut self, wire: &mut Wire) {
        self.stage = Stage::Schema(wire.request("get_schema", vec![self.database.as_str().into()]));
    }

    fn request_contents(&mut self, version: Version, schema: &DatabaseSchema, wire: &mut Wire) {
        let schema = self.schema.as_deref().unwrap_or(schema);
        let mut requests = Map::new();
        for table in schema.tables() {
            let columns: Vec<&str> = table.own_columns().map(|(_, column)| column.name.as_str()).collect();
            requests.insert(table.name.clone(), json!([{ "columns": columns }]));
        }
        let mut params = vec![self.database.as_str().into(), monitor_id(&self.database), Value::Object(requests)];
        let method = match version {
            Version::V1 => "monitor",
            Version::V2 => "monitor_cond",
            Version::V3 => {
                params.push(self.last_transaction.unwrap_or(Uuid::ZERO).to_string().into());
                "monitor_cond_since"
            }
        };
        self.stage = Stage::Contents(wire.request(method, params), version);
    }

    fn contents(
        &mut self,
        version: Version,
        result: Result<Value, Value>,
        schema: &DatabaseSchema,
        wire: &mut Wire,
    ) -> Received {
        let json = match (result, version) {
            (Ok(json), _) => json,
            (Err(_), Version::V3) => {
                self.request_contents(Version::V2, schema, wire);
                return Ok(Step::Nothing);
            }
            (Err(_), Version::V2) => {
                self.request_contents(Version::V1, schema, wire);
                return Ok(Step::Nothing);
            }
            (Err(error), Version::V1) => return trouble(Error::from_json(&error).to_string()),
        };
        let known = self.schema.take();
        let tables = (0..known.as_deref().unwrap_or(schema).tables().len()).collect();
        let (updates, transaction) = match (version, json) {
            (Version::V3, Value::Array(mut parts)) => match (parts.len(), parts.pop(), parts.pop(), parts.pop()) {
                (3, Some(updates), Some(last), Some(Value::Bool(found))) => {
                    let transaction = known_transaction(&last);
                    let built_on = std::mem::replace(&mut self.last_transaction, transaction).is_some();
                    if found && built_on && known.is_none() {
                        self.go_live(wire);
                        // The updates alone delete rows.
                        return Ok(Step::CaughtUp { updates, transaction });
                    }
                    (updates, transaction)
                }
                _ => return trouble("bad reply to monitor_cond_since"),
            },
            (Version::V3, _) => return trouble("bad reply to monitor_cond_since"),
            (_, updates) => {
                self.last_transaction = None;
                (updates, None)
            }
        };
        let format = if version == Version::V1 { Format::Whole } else { Format::Difference };
        self.go_live(wire);
        Ok(Step::Contents(Contents { schema: known, updates, format, tables, transaction }))
    }

    /// The contents are complete: sends the requests that waited for that.
    fn go_live(&mut self, wire: &mut Wire) {
        self.stage = Stage::Live;
        self.send_next(wire);
    }

    /// Sends the requests that may be sent now, in order of arrival.
    fn send_next(&mut self, wire: &mut Wire) {
        if self.stage != Stage::Live {
            return;
        }
        let mut waits: HashMap<SessionId, usize> = HashMap::new();
        for forward in self.forwards.iter().filter(|forward| forward.waits && forward.sent.is_some()) {
            *waits.entry(forward.session).or_default() += 1;
        }
        let mut all: usize = waits.values().sum();
        let waiting = self.forwards.iter().filter(|forward| forward.waits && forward.sent.is_some());
        let mut bytes: usize = waiting.map(|forward| forward.permit.bytes()).sum();
        for forward in self.forwards.iter_mut().filter(|forward| forward.sent.is_none()) {
            if forward.waits {
                let of_client = waits.entry(forward.session).or_default();
                let most = if *of_client == 0 { ONLY_WAITS_MAX } else { WAITS_MAX };
                let more = forward.permit.bytes();
                if *of_client >= CLIENT_WAITS_MAX || all >= most || bytes.saturating_add(more) > WAITS_BYTES_MAX {
                    continue;
                }
                *of_client += 1;
                all += 1;
                bytes += more;
            }
            // A request in flight is never sent again, so its parameters are not kept.
            forward.sent = Some(wire.request(forward.method, std::mem::take(&mut forward.params)));
        }
    }

    /// Accepts a client's request; it is sent when the source is connected.
    pub(super) fn forward(
        &mut self,
        (session, permit): (SessionId, Permit),
        id: Value,
        method: &'static str,
        params: Vec<Value>,
        wire: &mut Wire,
    ) {
        let waits = may_wait(&params);
        self.forwards.push(Forward { session, id, method, params, sent: None, canceled: false, waits, permit });
        self.send_next(wire);
    }

    /// Returns true if requests are sent as they arrive.
    pub(super) fn is_live(&self) -> bool {
        self.stage == Stage::Live
    }

    /// Returns the number of unanswered requests, and the bytes of their permits.
    pub(super) fn forwarded(&self) -> (usize, usize) {
        (self.forwards.len(), self.forwards.iter().map(|forward| forward.permit.bytes()).sum())
    }

    pub(super) fn has_forward(&self, session: SessionId, id: &Value) -> bool {
        self.forwards.iter().any(|forward| forward.session == session && forward.id == *id)
    }

    /// Cancels a session's request, or all of them, at the source; returns those that were never sent.
    pub(super) fn cancel(
        &mut self,
        session: SessionId,
        id: Option<&Value>,
        wire: &mut Wire,
    ) -> Vec<(SessionId, Value)> {
        let meant = |forward: &Forward| forward.session == session && id.is_none_or(|id| forward.id == *id);
        for forward in self.forwards.iter_mut().filter(|forward| meant(forward) && !forward.canceled) {
            if let Some(sent) = forward.sent {
                wire.outgoing.push(Message::notification("cancel", vec![sent.into()]));
                forward.canceled = true;
            }
        }
        let (unsent, kept): (Vec<Forward>, Vec<Forward>) = std::mem::take(&mut self.forwards)
            .into_iter()
            .partition(|forward| meant(forward) && forward.sent.is_none());
        self.forwards = kept;
        unsent.into_iter().map(|forward| (forward.session, forward.id)).collect()
    }
}

fn monitor_id(database: &str) -> Value {
    json!(["monid", database])
}

/// Returns a transaction's id; `None` for the zeros of a server without a history, which it could not find again.
fn known_transaction(json: &Value) -> Option<Uuid> {
    json.as_str().and_then(Uuid::parse).filter(|id| !id.is_zero())
}

/// Whether operations may have to wait for something to hold.
pub(super) fn may_wait(operations: &[Value]) -> bool {
    let is_wait = |operation: &Value| operation.get("op").is_some_and(|op| op == "wait");
    operations.iter().any(|operation| is_wait(operation) && operation.get("timeout").is_none_or(|ms| *ms != 0))
}

/// Returns true if the source must execute a transaction: it changes something, or requests durability.
pub(crate) fn must_be_forwarded(operations: &[Value]) -> bool {
    let name = |operation: &Value| operation.get("op").and_then(Value::as_str).map(str::to_owned);
    operations
        .iter()
        .filter_map(name)
        .any(|op| ["insert", "update", "mutate", "delete", "commit"].contains(&op.as_str()))
}
