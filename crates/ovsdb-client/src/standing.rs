//! A server's status of one of its databases in its database `_Server` (ovsdb-server(5)), by which a client chooses
//! among several servers.

use serde_json::Value;

/// A server's status of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Unknown: the server is too old to have `_Server`, or to have these columns.
    Unknown,
    /// The server does not have the database.
    Absent,
    /// The server has it.
    Known {
        /// Whether it is one of the servers of a cluster that keeps the database.
        clustered: bool,
        /// Whether it is connected to its cluster, or to the server that it relays; one without others is.
        connected: bool,
        /// Whether it leads its cluster; one without others does, a relay never.
        leader: bool,
    },
}

impl Standing {
    /// Reads the answer to a `transact` that selects the database's row of `_Server`.
    pub(crate) fn read(answer: &Result<Value, Value>) -> Self {
        let Ok(results) = answer else { return Self::Unknown };
        let Some(rows) = results.pointer("/0/rows").and_then(Value::as_array) else { return Self::Unknown };
        let Some(row) = rows.first() else { return Self::Absent };
        let truth = |column: &str| row.get(column).and_then(Value::as_bool).unwrap_or(true);
        let clustered = row.get("model").and_then(Value::as_str) == Some("clustered");
        Self::Known { clustered, connected: truth("connected"), leader: truth("leader") }
    }

    /// Returns true if the server is suitable for a replica, for which [`crate::Session::set_leader_only`] was called with this value.
    pub fn suits_a_replica(self, leader_only: bool) -> bool {
        match self {
            Self::Unknown => true,
            Self::Absent => false,
            Self::Known { connected, leader, .. } => connected && (leader || !leader_only),
        }
    }

    /// Returns true if the server is suitable for single requests, where only members of a cluster are examined more closely:
    /// a relay is suitable.
    pub fn suits_requests(self, leader_only: bool) -> bool {
        match self {
            Self::Known { clustered: false, .. } => true,
            other => other.suits_a_replica(leader_only),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_is_suitable_by_database_and_role() {
        let row = |model: &str, connected: bool, leader: bool| {
            Ok(json!([{ "rows": [{ "name": "T", "model": model, "connected": connected, "leader": leader }] }]))
        };
        // Whether it suits: a replica of a leader, a replica, requests of a leader, requests.
        for (answer, suits) in [
            (Err(json!({ "error": "unknown database" })), [true; 4]),
            (Ok(json!([{ "error": "unknown column" }])), [true; 4]),
            (Ok(json!([{ "rows": [] }])), [false; 4]),
            (row("standalone", true, true), [true; 4]),
            (row("relay", true, false), [false, true, true, true]),
            (row("relay", false, false), [false, false, true, true]),
            (row("clustered", true, true), [true; 4]),
            (row("clustered", true, false), [false, true, false, true]),
            (row("clustered", false, false), [false; 4]),
        ] {
            let standing = Standing::read(&answer);
            let found = [
                standing.suits_a_replica(true),
                standing.suits_a_replica(false),
                standing.suits_requests(true),
                standing.suits_requests(false),
            ];
            assert_eq!(found, suits, "{answer:?}");
        }
    }
}
