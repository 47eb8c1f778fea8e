//! A backup's side of the protocol with its active server: identity, schema, contents, and then each change.

use std::collections::BTreeSet;
use std::result::Result;

use ovsdb::jsonrpc::Message;
use ovsdb::{DatabaseSchema, Error, Uuid};
use serde_json::{Map, Value, json};

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
                let (requests, tables) = self.requests(schema, &DatabaseSchema::from_json(&json)?)?;
                let params = vec![self.database.as_str().into(), self.database.as_str().into(), requests];
                self.stage = Stage::Contents(wire.request("monitor", params), tables);
            }
            Stage::Contents(awaited, tables) if id == Some(*awaited) => {
                let updates = result.map_err(|error| Trouble(Error::from_json(&error).to_string()))?;
                let tables = std::mem::take(tables);
                self.stage = Stage::Live;
                let contents = Contents { schema: None, updates, format: Format::Whole, tables, transaction: None };
                return Ok(Step::Contents(contents));
            }
            _ => {}
        }
        Ok(Step::Nothing)
    }

    /// Returns the `<monitor-requests>` for the tables to be copied, and the tables; an error if the active server's
    /// database has tables or columns that this one lacks. This one may have more: a backup is upgraded before its
    /// active server.
    fn requests(&self, local: &DatabaseSchema, active: &DatabaseSchema) -> Result<(Value, BTreeSet<usize>), Trouble> {
        let mismatch =
            |what: String| Trouble(format!("the schemas do not match: {what} in the active server's schema"));
        let (mut requests, mut tables) = (Map::new(), BTreeSet::new());
        for table in active.tables().iter().filter(|table| !self.exclude.contains(&table.name)) {
            let found = local.table_index(&table.name).and_then(|at| Some((at, local.tables().get(at)?)));
            let (index, own) = found.ok_or_else(|| mismatch(format!("there is another table {}", table.name)))?;
            let mut columns = Vec::new();
            for (_, column) in table.own_columns() {
                if own.column(&column.name).is_none_or(|own| own.kind != column.kind) {
                    return Err(mismatch(format!("table {} has another column {}", table.name, column.name)));
                }
                columns.push(Value::from(column.name.as_str()));
            }
            requests.insert(table.name.clone(), json!([{ "columns": columns }]));
            tables.insert(index);
        }
        if tables.is_empty() {
            return trouble("there is nothing to copy");
        }
        Ok((Value::Object(requests), tables))
    }
}
