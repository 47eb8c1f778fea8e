//! A backup's side of the protocol with its active server: identity, schema, contents, and then each change.

use std::collections::BTreeSet;
use std::result::Result;

use ovsdb::jsonrpc::Message;
use ovsdb::{DatabaseSchema, Error, Uuid};
use serde_json::{Map, Value, json};
use tracing::info;

use super::{Contents, Received, Step, Trouble, Wire, trouble};
use crate::updates::Format;

/// The state of the protocol; the numbers are those of the requests that await replies.
#[derive(Debug)]
enum Stage {
    Disconnected,
    ServerId(u64),
    Schema(u64),
    Contents(u64, BTreeSet<usize>),
    Live,
}

/// The state of one database's backup.
#[derive(Debug)]
pub(crate) struct Backup {
    database: String,
    exclude: BTreeSet<String>,
    stage: Stage,
}

impl Backup {
    /// A backup of `database` but for the tables in `exclude`.
    pub(super) fn new(database: &str, exclude: BTreeSet<String>) -> Self {
        Self { database: database.to_owned(), exclude, stage: Stage::Disconnected }
    }

    /// Returns true if the contents have arrived, and changes follow as they happen.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live)
    }

    /// The tables that are not copied.
    pub(super) fn excluded(&self) -> &BTreeSet<String> {
        &self.exclude
    }

    pub(super) fn connected(&mut self, wire: &mut Wire) {
        self.stage = Stage::ServerId(wire.request("get_server_id", Vec::new()));
    }

    pub(super) fn disconnected(&mut self) {
        self.stage = Stage::Disconnected;
    }

    pub(super) fn received(
        &mut self,
        message: Message,
        schema: &DatabaseSchema,
        own_id: Uuid,
        wire: &mut Wire,
    ) -> Received {
        match message {
            Message::Reply { id, result } => self.replied(id.as_u64(), Ok(result), schema, own_id, wire),
            Message::Error { id, error } => self.replied(id.as_u64(), Err(error), schema, own_id, wire),
            Message::Notification { method, mut params } if method == "update" && self.is_live() => {
                match (params.len(), params.pop()) {
                    (2, Some(updates)) => Ok(Step::Update { updates, format: Format::Whole, transaction: None }),
                    _ => trouble("the active server sent a malformed update"),
                }
            }
            // Newer servers may send other notifications.
            Message::Notification { .. } => Ok(Step::Nothing),
            Message::Request { method, .. } => trouble(format!("the active server sent a request, \"{method}\"")),
        }
    }

    fn replied(
        &mut self,
        id: Option<u64>,
        result: Result<Value, Value>,
        schema: &DatabaseSchema,
        own_id: Uuid,
        wire: &mut Wire,
    ) -> Received {
        match &mut self.stage {
            Stage::ServerId(awaited) if id == Some(*awaited) => {
                // A server too old to have an id is another one.
                if result.is_ok_and(|result| result.as_str() == Some(&own_id.to_string())) {
                    return trouble("Self replicating is not allowed");
                }
                self.stage = Stage::Schema(wire.request("get_schema", vec![self.database.as_str().into()]));
            }
            Stage::Schema(awaited) if id == Some(*awaited) => {
                let json = result.map_err(|error| Trouble(Error::from_json(&error).to_string()))?;
                let active = DatabaseSchema::from_json(&json)?;
                if !is_replicable(&self.database, schema, &active) {
                    return Ok(Step::Unfit);
                }
                let (requests, tables) = self.requests(schema, &active)?;
                let params = vec![self.database.as_str().into(), self.database.as_str().into(), requests];
                self.stage = Stage::Contents(wire.request("monitor", params), tables);
            }
            Stage::Contents(awaited, tables) if id == Some(*awaited) => {
                let updates = result.map_err(|error| Trouble(Error::from_json(&error).to_string()))?;
                let tables = std::mem::take(tables);
                info!(target: "replication", "{}: Monitor reply received. Resetting the database.", self.database);
                self.stage = Stage::Live;
                let contents = Contents { schema: None, updates, format: Format::Whole, tables, transaction: None };
                return Ok(Step::Contents(contents));
            }
            _ => {}
        }
        Ok(Step::Nothing)
    }

    /// Returns the `<monitor-requests>` for the tables to be copied, and the tables.
    fn requests(&self, local: &DatabaseSchema, active: &DatabaseSchema) -> Result<(Value, BTreeSet<usize>), Trouble> {
        let (mut requests, mut tables) = (Map::new(), BTreeSet::new());
        for table in active.tables().iter().filter(|table| !self.exclude.contains(&table.name)) {
            let columns: Vec<Value> =
                table.own_columns().map(|(_, column)| Value::from(column.name.as_str())).collect();
            requests.insert(table.name.clone(), json!([{ "columns": columns }]));
            tables.extend(local.table_index(&table.name));
        }
        if tables.is_empty() {
            return trouble("there is nothing to copy");
        }
        Ok((Value::Object(requests), tables))
    }
}

/// Returns true if all tables and columns of the active server's database are in this one, and logs what is not. This one
/// may have more: a backup is upgraded before its active server.
fn is_replicable(database: &str, local: &DatabaseSchema, active: &DatabaseSchema) -> bool {
    if local.to_json() == active.to_json() {
        return true;
    }
    info!(
        target: "replication",
        "{database}: Schema version mismatch, checking if {database} can still be replicated or not."
    );
    match first_mismatch(local, active) {
        Some(mismatch) => {
            info!(target: "replication", "{mismatch}");
            info!(target: "replication", "{database} cannot be replicated.");
            false
        }
        None => {
            info!(target: "replication", "{database} can be replicated.");
            true
        }
    }
}

fn first_mismatch(local: &DatabaseSchema, active: &DatabaseSchema) -> Option<String> {
    active.tables().iter().find_map(|table| {
        let Some(own) = local.table(&table.name) else {
            return Some(format!("Table {} not present in the local db schema", table.name));
        };
        table.own_columns().find_map(|(_, column)| match own.column(&column.name) {
            Some(own) if own.kind == column.kind => None,
            Some(_) => Some(format!("Column {} mismatch in local db schema table {}.", column.name, table.name)),
            None => Some(format!("Column {} not present in the local db schema table {}.", column.name, table.name)),
        })
    })
}
