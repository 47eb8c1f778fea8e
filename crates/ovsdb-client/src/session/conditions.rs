//! Conditions of tables, and their state at the server.
//!
//! There are three states: conditions that the user *wants*, those *requested* of the server and not acknowledged,
//! and those *held*: by which the server chose the rows in the replica. A connection that resumes uses the held ones,
//! since the server only sends changes of rows that it considers known; the wanted ones are requested then. If a
//! broken connection left a request without a reply, the server may or may not have applied it, and some of its rows
//! may have arrived: the contents cannot be resumed then.

use std::collections::BTreeMap;

use ovsdb::DatabaseSchema;
use serde_json::{Value, json};

use crate::condition::Condition;

/// By table; a table without an entry has all its rows replicated.
type ByTable = BTreeMap<String, Condition>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    wanted: ByTable,
    requested: Option<(u64, ByTable)>,
    held: ByTable,
}

impl Conditions {
    /// Sets the wanted condition of a table; returns whether it is new.
    pub(crate) fn set(&mut self, table: &str, condition: Condition) -> bool {
        let old = match condition {
            Condition::All => self.wanted.remove(table).unwrap_or_default(),
            ref condition => self.wanted.insert(table.to_owned(), condition.clone()).unwrap_or_default(),
        };
        old != condition
    }

    /// Returns true if the replica has the wanted rows, according to the server's replies.
    pub(crate) fn are_held(&self) -> bool {
        self.requested.is_none() && self.wanted == self.held
    }

    /// Handles a lost connection; returns whether its contents can be resumed.
    pub(crate) fn disconnected(&mut self) -> bool {
        self.requested.take().is_none()
    }

    /// Handles a request for the full contents: by the wanted conditions.
    pub(crate) fn restart(&mut self) {
        self.requested = None;
        self.held.clone_from(&self.wanted);
    }

    /// The `where` of a table in a monitor request, by the held condition.
    pub(crate) fn clauses(&self, schema: &DatabaseSchema, table: &str) -> Option<Value> {
        self.held.get(table).map(|condition| to_json(schema, table, condition))
    }

    /// The wanted but missing conditions of `tables`, as `<monitor-cond-update-requests>`; `None` if there are none,
    /// or a request is pending.
    pub(crate) fn next_request(&self, schema: &DatabaseSchema, tables: &[&str]) -> Option<Value> {
        if self.requested.is_some() {
            return None;
        }
        let of = |conditions: &ByTable, table: &str| conditions.get(table).cloned().unwrap_or_default();
        let mut requests = serde_json::Map::new();
        for table in tables {
            let wanted = of(&self.wanted, table);
            if wanted != of(&self.held, table) {
                let clauses = to_json(schema, table, &wanted);
                requests.insert((*table).to_owned(), json!([{ "where": clauses }]));
            }
        }
        (!requests.is_empty()).then_some(Value::Object(requests))
    }

    /// Nothing is left to be requested.
    pub(crate) fn settle(&mut self) {
        if self.requested.is_none() {
            self.held.clone_from(&self.wanted);
        }
    }

    /// Records that the result of [`Conditions::next_request`] was sent as request `id`.
    pub(crate) fn sent(&mut self, id: u64) {
        self.requested = Some((id, self.wanted.clone()));
    }

    /// Returns true if request `id` is the pending one.
    pub(crate) fn is_request(&self, id: u64) -> bool {
        self.requested.as_ref().is_some_and(|(requested, _)| *requested == id)
    }

    /// The server has carried out the request.
    pub(crate) fn acknowledged(&mut self) {
        if let Some((_, conditions)) = self.requested.take() {
            self.held = conditions;
        }
    }
}

/// A condition that does not fit the server's schema is left out: rows too many are better than rows that are missing.
fn to_json(schema: &DatabaseSchema, table: &str, condition: &Condition) -> Value {
    let Some(found) = schema.table(table) else { return json!([true]) };
    condition.to_json(found).unwrap_or_else(|problem| {
        tracing::warn!(target: "ovsdb_idl", "{table}: condition is left out: {problem}");
        json!([true])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::condition::Function;

    use crate::condition::Clause;

    fn schema() -> DatabaseSchema {
        let json = json!({ "name": "T", "tables": { "Kid": { "columns": {
            "name": { "type": "string" }, "tag": { "type": { "key": "integer", "min": 0 } } } } } });
        DatabaseSchema::from_json(&json).unwrap()
    }

    fn named(name: &str) -> Condition {
        Condition::AnyOf(vec![Clause::new("name", Function::Equal, name)])
    }

    #[test]
    fn one_request_at_a_time_and_the_last_conditions_apply() {
        let mut conditions = Conditions::default();
        assert!(conditions.are_held() && conditions.next_request(&schema(), &["Kid"]).is_none());
        assert!(conditions.set("Kid", named("a")) && !conditions.set("Kid", named("a")));
        let request = conditions.next_request(&schema(), &["Kid"]);
        assert_eq!(request, Some(json!({ "Kid": [{ "where": [["name", "==", "a"]] }] })));
        conditions.sent(7);
        conditions.set("Kid", named("b"));
        assert!(conditions.next_request(&schema(), &["Kid"]).is_none() && !conditions.is_request(6));
        assert!(conditions.is_request(7));
        conditions.acknowledged();
        assert_eq!(conditions.clauses(&schema(), "Kid"), Some(json!([["name", "==", "a"]])));
        let request = conditions.next_request(&schema(), &["Kid"]);
        assert_eq!(request, Some(json!({ "Kid": [{ "where": [["name", "==", "b"]] }] })));
        conditions.set("Kid", named("a"));
        assert!(conditions.are_held());
        conditions.set("Kid", Condition::none());
        assert_eq!(conditions.next_request(&schema(), &["Kid"]), Some(json!({ "Kid": [{ "where": [false] }] })));
        conditions.set("Kid", Condition::All);
        assert_eq!(conditions.next_request(&schema(), &["Kid"]), Some(json!({ "Kid": [{ "where": [true] }] })));
    }

    #[test]
    fn an_unanswered_request_cannot_be_resumed() {
        let mut conditions = Conditions::default();
        conditions.set("Kid", named("a"));
        assert!(conditions.disconnected(), "nothing was requested");
        assert_eq!(conditions.clauses(&schema(), "Kid"), None);
        conditions.sent(1);
        assert!(!conditions.disconnected());
        conditions.restart();
        assert!(conditions.are_held());
        assert_eq!(conditions.clauses(&schema(), "Kid"), Some(json!([["name", "==", "a"]])));
    }

    #[test]
    fn columns_missing_in_the_schema_are_skipped() {
        for clause in [Clause::new("nope", Function::Equal, 1), Clause::new("name", Function::Less, "a")] {
            assert_eq!(to_json(&schema(), "Kid", &Condition::AnyOf(vec![clause])), json!([true]));
        }
        let includes = Condition::AnyOf(vec![Clause::new("tag", Function::Includes, 3)]);
        assert_eq!(to_json(&schema(), "Kid", &includes), json!([["tag", "includes", 3]]));
    }
}
