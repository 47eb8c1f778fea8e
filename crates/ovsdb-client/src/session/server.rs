//! A server's own status: the database `_Server` (ovsdb-server(5)), which says whether it leads the cluster of a
//! database, and whether it is connected to the cluster, or to the source that it relays.

use std::sync::LazyLock;

use ovsdb::DatabaseSchema;
use serde_json::{Value, json};

use crate::error::ProtocolError;
use crate::replica::Replica;
use crate::schemas::server::{self, Database, database};
use crate::wanted::Wanted;

static SCHEMA: LazyLock<DatabaseSchema> = LazyLock::new(|| {
    DatabaseSchema::parse(ovsdb::schemas::SERVER).expect("the schema that is shipped is one, which a test checks")
});

/// A replica of the database about databases.
#[derive(Debug)]
pub(super) struct ServerDatabase {
    replica: Replica,
}

impl ServerDatabase {
    /// The database's name.
    pub(super) const NAME: &'static str = server::DATABASE;

    /// Nothing is known.
    pub(super) fn new() -> Self {
        let columns = crate::columns! { database { NAME, CONNECTED, LEADER } };
        let mut replica = Replica::new(&Wanted::from(&columns));
        replica.bind(&SCHEMA);
        Self { replica }
    }

    pub(super) fn monitor_id() -> Value {
        json!(["monid", Self::NAME])
    }

    /// The parameters of the `monitor_cond` request for it.
    pub(super) fn monitor_params(&self) -> Vec<Value> {
        vec![Self::NAME.into(), Self::monitor_id(), self.replica.monitor_requests()]
    }

    /// The answer to that.
    pub(super) fn contents(&mut self, updates: &Value) -> Result<(), ProtocolError> {
        self.replica.replace(updates, Replica::apply_updates2)
    }

    /// Applies an update.
    pub(super) fn update(&mut self, updates: &Value) -> Result<(), ProtocolError> {
        self.replica.apply_updates2(updates)
    }

    /// The reason why the server is unsuitable for `name`; `None` if it is suitable.
    pub(super) fn why_not(&self, name: &str) -> Option<&'static str> {
        let found = self.replica.all(Database).find(|row| row.get(database::NAME) == name);
        match found {
            None => Some("the server does not have the database"),
            Some(row) if !row.get(database::CONNECTED) => {
                Some("the server is cut off from the database's other servers")
            }
            Some(row) if !row.get(database::LEADER) => Some("the server does not lead the database's cluster"),
            Some(_) => None,
        }
    }
}
