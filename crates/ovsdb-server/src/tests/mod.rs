//! Tests of the core: against a naive twin, under power cuts, through crashes, during compactions, and of each
//! method's replies.

mod compaction;
mod crashes;
mod follow;
mod methods;
mod monitors;
mod power;
mod replica;
mod roles;
mod straight;
mod twin;

use std::sync::Arc;

use ovsdb::jsonrpc::Message;
use ovsdb::{DatabaseSchema, UuidSource};
use serde_json::{Value, json};

use crate::storage::{Nowhere, Storage};
use crate::{Access, Core, Now, Output, SessionId};

/// Two tables with every kind of reference, an index and a row limit.
pub(crate) const SCHEMA: &str = r#"{"name": "T", "version": "1.0.0", "tables": {
    "root": {"isRoot": true, "maxRows": 4, "columns": {
        "name":   {"type": "string"},
        "number": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 100}}},
        "kids":   {"type": {"key": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}},
        "friend": {"type": {"key": {"type": "uuid", "refTable": "kid", "refType": "weak"}, "min": 0, "max": 2}},
        "map":    {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
        "fixed":  {"type": "string", "mutable": false},
        "gone":   {"type": "string", "ephemeral": true}}},
    "kid": {"indexes": [["name"]], "columns": {
        "name":   {"type": "string"},
        "sub":    {"type": {"key": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}},
        "owner":  {"type": {"key": "string", "value": {"type": "uuid", "refTable": "root", "refType": "weak"},
                            "min": 0, "max": "unlimited"}}}},
    "needy": {"isRoot": true, "columns": {
        "of":     {"type": {"key": {"type": "uuid", "refTable": "root", "refType": "weak"}, "min": 1, "max": 2}}}}}}"#;

pub(crate) fn schema() -> Arc<DatabaseSchema> {
    Arc::new(DatabaseSchema::parse(SCHEMA).unwrap())
}

/// A core that serves the database T, and answers at once.
pub(crate) struct Bench {
    pub(crate) core: Core,
    pub(crate) now: Now,
    next_id: i64,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_storage(Box::new(Nowhere))
    }

    pub(crate) fn with_storage(storage: Box<dyn Storage>) -> Self {
        Self::with_schema(&schema().to_json(), storage)
    }

    pub(crate) fn with_schema(schema: &Value, storage: Box<dyn Storage>) -> Self {
        Self::with_database(crate::load(std::slice::from_ref(schema)).unwrap(), storage)
    }

    /// A core that serves the contents of `storage`.
    pub(crate) fn with_database(database: crate::Database, storage: Box<dyn Storage>) -> Self {
        let mut core = Core::new(UuidSource::seeded(1));
        core.host(database, storage, None, Now::default()).unwrap();
        core.flush(Now::default());
        Self { core, now: Now { monotonic_ms: 1000, unix_ms: 1_000_000 }, next_id: 0 }
    }

    pub(crate) fn connect(&mut self) -> SessionId {
        self.core.connect(Access::default())
    }

    /// Sends a request whose results are not yet flushed; returns its id.
    pub(crate) fn send(&mut self, session: SessionId, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        let Value::Array(params) = params else { panic!("parameters are an array") };
        self.core.message(session, Message::request(self.next_id, method, params), self.now);
        self.next_id
    }

    /// Sends a request; returns all messages that it causes.
    pub(crate) fn outputs(&mut self, session: SessionId, method: &str, params: Value) -> Vec<Output> {
        self.send(session, method, params);
        self.flush()
    }

    /// All pending messages.
    pub(crate) fn flush(&mut self) -> Vec<Output> {
        self.core.flush(self.now).into_iter().map(read).collect()
    }

    /// Sends a request and returns the reply or the error.
    pub(crate) fn call(&mut self, session: SessionId, method: &str, params: Value) -> Value {
        let outputs = self.outputs(session, method, params);
        let answer = outputs.into_iter().find_map(|output| match output {
            Output::Send(to, Message::Reply { result, .. }) if to == session => Some(result),
            Output::Send(to, Message::Error { error, .. }) if to == session => Some(error),
            _ => None,
        });
        answer.unwrap_or_else(|| panic!("{method} was not answered"))
    }

    pub(crate) fn transact(&mut self, session: SessionId, operations: &[Value]) -> Value {
        let params: Vec<Value> = std::iter::once(json!("T")).chain(operations.iter().cloned()).collect();
        self.call(session, "transact", Value::from(params))
    }

    /// The persistent contents of the database.
    pub(crate) fn contents(&self) -> Value {
        contents(self.core.database("T").unwrap())
    }
}

/// Parses a serialised message.
pub(crate) fn read(output: Output) -> Output {
    match output {
        Output::Write(to, text) => {
            let json = serde_json::from_slice(&text.parts().concat()).expect("JSON");
            Output::Send(to, Message::from_json(json).expect("a message"))
        }
        output => output,
    }
}

pub(crate) fn contents(database: &crate::Database) -> Value {
    crate::journal::snapshot(database, "", 0, crate::journal::Style::Whole)
        .map_or(Value::Null, |record| record.to_json())
}
