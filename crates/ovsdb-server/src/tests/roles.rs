//! The permissions of roles. The end-to-end tests compare them with Open vSwitch's server.

use std::slice::from_ref;

use serde_json::{Value, json};

use super::Bench;
use crate::storage::Nowhere;
use crate::{Access, SessionId};

fn schema(with_roles: bool) -> Value {
    let any = |kind: Value| json!({"type": {"key": kind, "min": 0, "max": "unlimited"}});
    let strings = || any(json!("string"));
    let permission = json!({"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"});
    let roles = json!({"isRoot": true, "columns": {
        "name": {"type": "string"},
        "permissions": {"type": {"key": "string", "value": permission, "min": 0, "max": "unlimited"}}}});
    let mut schema = json!({"name": "T", "tables": {
        "RBAC_Permission": {"isRoot": true, "columns": {
            "authorization": strings(), "insert_delete": {"type": "boolean"}, "update": strings()}},
        "A": {"isRoot": true, "columns": {
            "owner": {"type": "string"},
            "n": {"type": "integer"},
            "kids": any(json!({"type": "uuid", "refTable": "Kid"})),
            "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
        "Kid": {"columns": {"name": {"type": "string"}}}}});
    if with_roles {
        schema["tables"]["RBAC_Role"] = roles;
    }
    schema
}

/// A server whose role `worker` has permissions on rows of A that the client owns, and two of these clients.
fn bench() -> (Bench, SessionId, SessionId) {
    let mut bench = Bench::with_schema(&schema(true), Box::new(Nowhere));
    let admin = bench.connect();
    let permission = json!({"authorization": ["set", ["owner", "ids:host"]], "insert_delete": true, "update": "n"});
    let done = bench.transact(admin, &[
        json!({"op": "insert", "table": "RBAC_Permission", "uuid-name": "p", "row": permission}),
        json!({"op": "insert", "table": "RBAC_Role", "row": {"name": "worker", "permissions": ["map", [["A", ["named-uuid", "p"]]]]}}),
        json!({"op": "insert", "table": "A", "row": {"owner": "bob", "n": 2, "kids": ["named-uuid", "k"]}}),
        json!({"op": "insert", "table": "Kid", "uuid-name": "k", "row": {}}),
    ]);
    assert_eq!(done.as_array().map(Vec::len), Some(4), "{done}");
    let session = bench.core.connect(worker(Some("alice")));
    (bench, admin, session)
}

fn worker(client: Option<&str>) -> Access {
    Access { role: "worker".into(), client: client.map(str::to_owned), ..Access::default() }
}

fn refused(answer: &Value, at: usize) -> bool {
    answer[at]["error"] == "permission error"
}

#[test]
fn clients_change_their_own_rows_and_columns() {
    let (mut bench, _, alice) = bench();
    let insert = |row: Value| json!({"op": "insert", "table": "A", "row": row});
    let update =
        |owner: &str, row: Value| json!({"op": "update", "table": "A", "where": [["owner", "==", owner]], "row": row});
    let add = |owner: &str| json!({"op": "mutate", "table": "A", "where": [["owner", "==", owner]], "mutations": [["n", "+=", 1]]});
    let delete = |owner: &str| json!({"op": "delete", "table": "A", "where": [["owner", "==", owner]]});
    let mut may = |operation: Value| {
        let answer = bench.transact(alice, &[operation]);
        assert!(refused(&answer, 0) || answer[0].get("error").is_none(), "{answer}");
        !refused(&answer, 0)
    };
    assert!(may(insert(json!({"owner": "alice"}))));
    assert!(may(insert(json!({"owner": "carol", "ids": ["map", [["host", "alice"]]]}))));
    assert!(!may(insert(json!({"owner": "bob"}))));
    assert!(!may(insert(json!({"owner": "bob", "ids": ["map", [["other", "alice"]]]}))));
    for owner in ["alice", "bob"] {
        let own = owner == "alice";
        assert_eq!(may(update(owner, json!({"n": 1}))), own);
        assert_eq!(may(add(owner)), own);
        assert!(!may(update(owner, json!({"n": 1, "owner": owner}))));
        assert_eq!(may(delete(owner)), own);
    }
    // Where there are no rows, there is nothing to be refused, unless all of a table is.
    assert!(may(delete("nobody")));
    assert!(!may(json!({"op": "delete", "table": "Kid", "where": []})));
    assert!(!may(json!({"op": "update", "table": "RBAC_Role", "where": [], "row": {}})));
    // A mutate operation without mutations only counts rows.
    assert!(may(json!({"op": "mutate", "table": "RBAC_Role", "where": [], "mutations": []})));
}

#[test]
fn errors_name_client_role_and_operation() {
    let (mut bench, admin, alice) = bench();
    let nameless = bench.core.connect(worker(None));
    let insert = json!({"op": "insert", "table": "A", "row": {"owner": "bob"}});
    let details = |client: &str| {
        format!("RBAC rules for client \"{client}\" role \"worker\" prohibit row insertion into table \"A\".")
    };
    for (session, client) in [(alice, "alice"), (nameless, "(null)")] {
        let answer = bench.transact(session, &[insert.clone(), insert.clone()]);
        assert_eq!(answer, json!([{"error": "permission error", "details": details(client)}, null]));
    }
    let converted = bench.call(alice, "convert", json!(["T", schema(false)]));
    assert_eq!(converted["error"], "permission error");
    assert_eq!(bench.call(admin, "convert", json!(["T", schema(false)])), json!({}));
}

#[test]
fn permissions_follow_the_rbac_tables() {
    let (mut bench, admin, alice) = bench();
    let insert = json!({"op": "insert", "table": "A", "row": {"owner": "alice"}});
    let permit = |row: Value| json!({"op": "update", "table": "RBAC_Permission", "where": [], "row": row});
    assert!(!refused(&bench.transact(alice, from_ref(&insert)), 0));
    bench.transact(admin, &[permit(json!({"insert_delete": false}))]);
    assert!(refused(&bench.transact(alice, from_ref(&insert)), 0));
    bench.transact(admin, &[permit(json!({"insert_delete": true, "authorization": ["set", []]}))]);
    assert!(refused(&bench.transact(alice, from_ref(&insert)), 0));
    bench.transact(admin, &[permit(json!({"authorization": ""}))]);
    let other = json!({"op": "insert", "table": "A", "row": {"owner": "bob"}});
    assert!(!refused(&bench.transact(alice, &[other]), 0));
    // Garbage-collected rows need no permission.
    let delete = json!({"op": "delete", "table": "A", "where": []});
    assert!(!refused(&bench.transact(alice, &[delete]), 0));
    let kids = bench.transact(admin, &[json!({"op": "select", "table": "Kid", "where": []})]);
    assert_eq!(kids, json!([{"rows": []}]));
    bench.transact(admin, &[json!({"op": "delete", "table": "RBAC_Role", "where": []})]);
    assert!(refused(&bench.transact(alice, from_ref(&insert)), 0));
    // A database without roles has no use for them.
    let mut bench = Bench::with_schema(&schema(false), Box::new(Nowhere));
    let alice = bench.core.connect(worker(None));
    assert!(!refused(&bench.transact(alice, &[insert]), 0));
}
