//! The replies of each method to valid and invalid requests. The texts are those of Open vSwitch, which clients
//! match; the differential test in `tests/peers.rs` compares many more.

use ovsdb::jsonrpc::Message;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Bench;
use crate::Output;

#[test]
fn bad_requests_get_the_errors_that_clients_know() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let cases = [
        ("nonsense", json!([]), json!("unknown method")),
        (
            "transact",
            json!([]),
            json!({"error": "syntax error", "syntax": "[]",
            "details": "transact request params must begin with <db-name>"}),
        ),
        (
            "get_schema",
            json!(["X"]),
            json!({"error": "unknown database", "syntax": "[\"X\"]",
            "details": "get_schema request specifies unknown database X"}),
        ),
        (
            "monitor",
            json!(["T"]),
            json!({"error": "syntax error", "syntax": "[\"T\"]", "details": "invalid parameters"}),
        ),
        ("monitor", json!(["T", 1, {"none": {}}]), json!({"error": "syntax error", "details": "no table named none"})),
        ("monitor_cancel", json!(["none"]), json!("unknown monitor")),
        (
            "unlock",
            json!(["none"]),
            json!({"error": "syntax error", "syntax": "[\"none\"]",
            "details": "unlock: \"unlock\" without \"lock\" or \"steal\""}),
        ),
        (
            "lock",
            json!([5]),
            json!({"error": "syntax error", "syntax": "[5]", "details": "lock request params must be <id>"}),
        ),
        (
            "convert",
            json!(["T", {"name": "U", "tables": {}}]),
            json!({"error": "invalid parameters",
            "details": "new schema name (U) does not match database name (T)"}),
        ),
    ];
    for (method, params, expected) in cases {
        assert_eq!(bench.call(session, method, params), expected, "{method}");
    }
}

#[test]
fn a_failed_operation_aborts_the_transaction() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let insert = json!({"op": "insert", "table": "root", "row": {"name": "x"}});
    let result = bench.transact(session, &[insert.clone(), json!({"op": "abort"}), insert]);
    assert!(result[0].get("uuid").is_some());
    assert_eq!(result[1], json!({"error": "aborted", "details": "aborted by request"}));
    assert_eq!(result[2], Value::Null);
    assert_eq!(bench.contents(), Value::Null);
}

#[test]
fn waits_end_when_the_database_changes_or_time_is_up() {
    let mut bench = Bench::new();
    let (waiter, other) = (bench.connect(), bench.connect());
    let wait = |name: &str| {
        json!(["T", {"op": "wait", "table": "root", "where": [["name", "==", name]], "columns": ["name"], "until": "==",
                     "rows": [{"name": name}], "timeout": 500}])
    };
    assert_eq!(bench.outputs(waiter, "transact", wait("a")), []);
    assert_eq!(bench.outputs(waiter, "transact", wait("b")), []);
    assert_eq!(bench.core.next_deadline_ms(), Some(1500));
    let outputs =
        bench.outputs(other, "transact", json!(["T", {"op": "insert", "table": "root", "row": {"name": "a"}}]));
    let to_waiter: Vec<&Output> =
        outputs.iter().filter(|o| matches!(o, Output::Send(id, _) if *id == waiter)).collect();
    assert_eq!(to_waiter, [&Output::Send(waiter, Message::reply(json!(1), json!([{}])))]);
    bench.now.monotonic_ms = 1499;
    bench.core.tick(bench.now);
    assert_eq!(bench.flush(), []);
    bench.now.monotonic_ms = 1500;
    bench.core.tick(bench.now);
    let timed_out = json!([{"error": "timed out", "details": "\"wait\" timed out after 500 ms"}]);
    assert_eq!(bench.flush(), [Output::Send(waiter, Message::reply(json!(2), timed_out))]);
}

#[test]
fn a_waiting_transaction_can_be_canceled() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let wait = json!(["T", {"op": "wait", "table": "root", "where": [], "columns": [], "until": "!=", "rows": []}]);
    assert_eq!(bench.outputs(session, "transact", wait), []);
    bench.core.message(session, Message::notification("cancel", vec![json!(1)]), bench.now);
    assert_eq!(bench.flush(), [Output::Send(session, Message::error(json!(1), "canceled"))]);
}

#[test]
fn locks_are_passed_on() {
    let mut bench = Bench::new();
    let (a, b, c) = (bench.connect(), bench.connect(), bench.connect());
    let asserted = |bench: &mut Bench, session| bench.transact(session, &[json!({"op": "assert", "lock": "l"})]);
    assert_eq!(bench.call(a, "lock", json!(["l"])), json!({"locked": true}));
    assert_eq!(bench.call(b, "lock", json!(["l"])), json!({"locked": false}));
    assert_eq!(asserted(&mut bench, a), json!([{}]));
    assert_eq!(asserted(&mut bench, b)[0]["error"], "not owner");
    let outputs = bench.outputs(c, "steal", json!(["l"]));
    assert!(outputs.contains(&Output::Send(a, Message::notification("stolen", vec![json!("l")]))));
    assert_eq!(asserted(&mut bench, a)[0]["error"], "not owner");
    // The robbed session is next in line, then the one that waited.
    let outputs = bench.outputs(c, "unlock", json!(["l"]));
    assert!(outputs.contains(&Output::Send(a, Message::notification("locked", vec![json!("l")]))));
    bench.core.disconnect(a);
    assert_eq!(bench.flush(), [Output::Send(b, Message::notification("locked", vec![json!("l")]))]);
}

#[test]
fn the_server_describes_its_databases() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let select = json!(["_Server", {"op": "select", "table": "Database", "where": [["name", "==", "T"]],
                                    "columns": ["name", "model", "connected", "leader"]}]);
    let row = json!({"name": "T", "model": "standalone", "connected": true, "leader": true});
    assert_eq!(bench.call(session, "transact", select), json!([{ "rows": [row] }]));
    let delete = json!(["_Server", {"op": "delete", "table": "Database", "where": []}]);
    assert_eq!(bench.call(session, "transact", delete)[0]["error"], "not allowed");
    assert_eq!(bench.call(session, "list_dbs", json!([])), json!(["T", "_Server"]));
}

#[test]
fn monitors_with_conditions_can_be_disabled() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let monitor = |id: &str| json!(["T", id, {"root": {}}]);
    assert!(bench.call(session, "monitor_cond", monitor("a")).is_object());
    bench.core.refuse_conditions();
    assert!(bench.flush().iter().any(|output| matches!(output, Output::Close(id, _) if *id == session)));
    let other = bench.connect();
    for method in ["monitor_cond", "monitor_cond_since"] {
        assert_eq!(bench.call(other, method, monitor(method)), "unknown method");
    }
    assert!(bench.call(other, "monitor", monitor("b")).is_object());
}

#[test]
fn removed_databases_disconnect_clients_that_are_not_aware() {
    let mut bench = Bench::new();
    let (aware, unaware) = (bench.connect(), bench.connect());
    bench.call(aware, "set_db_change_aware", json!([true]));
    bench.call(aware, "monitor", json!(["T", "m", {"root": {}}]));
    assert!(bench.core.remove_database("T", bench.now));
    let outputs = bench.flush();
    assert!(outputs.contains(&Output::Send(aware, Message::notification("monitor_canceled", vec![json!("m")]))));
    assert!(outputs.iter().any(|output| matches!(output, Output::Close(id, _) if *id == unaware)));
    assert!(!bench.core.remove_database("_Server", bench.now));
}

#[test]
fn a_database_is_converted_in_service() {
    let mut bench = Bench::new();
    let session = bench.connect();
    bench.call(session, "set_db_change_aware", json!([true]));
    bench.transact(session, &[json!({"op": "insert", "table": "root", "row": {"name": "x", "number": 5}})]);
    let smaller = json!({"name": "T", "version": "2.0.0", "tables": {
        "root": {"isRoot": true, "columns": {"name": {"type": "string"}, "more": {"type": "integer"}}}}});
    assert_eq!(bench.call(session, "convert", json!(["T", smaller])), json!({}));
    let select = json!({"op": "select", "table": "root", "where": [], "columns": ["name", "more"]});
    assert_eq!(bench.transact(session, &[select]), json!([{"rows": [{"name": "x", "more": 0}]}]));
}

#[test]
fn a_conversion_is_answered_before_the_disconnect() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let same = crate::tests::schema().to_json();
    let outputs = bench.outputs(session, "convert", json!(["T", same]));
    let answer = Output::Send(session, Message::reply(json!(1), json!({})));
    let closed = |output: &Output| matches!(output, Output::Close(id, _) if *id == session);
    assert!(outputs[0] == answer && outputs.iter().skip(1).any(closed), "{outputs:?}");
}

#[test]
fn a_conversion_cancels_the_transactions_of_aware_clients_and_closes_others() {
    let mut bench = Bench::new();
    let (converter, aware, unaware) = (bench.connect(), bench.connect(), bench.connect());
    for session in [converter, aware] {
        bench.call(session, "set_db_change_aware", json!([true]));
    }
    let wait = json!(["T", {"op": "wait", "table": "root", "where": [], "columns": [], "until": "!=", "rows": []}]);
    let id = bench.send(aware, "transact", wait.clone());
    bench.send(unaware, "transact", wait);
    let outputs = bench.outputs(converter, "convert", json!(["T", crate::tests::schema().to_json()]));
    assert!(outputs.contains(&Output::Send(aware, Message::error(json!(id), "canceled"))), "{outputs:?}");
    let to_unaware: Vec<&Output> =
        outputs.iter().filter(|o| matches!(o, Output::Send(id, _) | Output::Close(id, _) if *id == unaware)).collect();
    assert!(matches!(to_unaware.as_slice(), [Output::Close(..)]), "{to_unaware:?}");
}

#[test]
fn rows_that_only_name_each_other_stay_as_in_open_vswitch() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let insert = |name: &str, other: &str| json!({"op": "insert", "table": "kid", "uuid-name": name, "row": {"name": name, "sub": ["named-uuid", other]}});
    bench.transact(session, &[insert("a", "b"), insert("b", "a"), insert("c", "c")]);
    let select = json!({"op": "select", "table": "kid", "where": [], "columns": ["name"]});
    let mut rows = bench.transact(session, &[select])[0]["rows"].as_array().unwrap().clone();
    rows.sort_by_key(|row| row["name"].as_str().map(str::to_owned));
    assert_eq!(rows, [json!({"name": "a"}), json!({"name": "b"})]);
}

/// JSON of words that have a meaning in requests.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(vec![
            "T",
            "root",
            "kid",
            "_uuid",
            "name",
            "number",
            "kids",
            "map",
            "set",
            "uuid",
            "named-uuid",
            "==",
            "includes",
            "insert",
            "+=",
            "select",
            "op",
            "00000000-0000-4000-8000-000000000001",
            "",
            "a",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let name = proptest::sample::select(vec![
            "op",
            "table",
            "where",
            "row",
            "rows",
            "columns",
            "mutations",
            "until",
            "timeout",
            "uuid",
            "uuid-name",
            "name",
            "number",
            "kids",
            "map",
            "root",
            "kid",
            "select",
            "initial",
            "comment",
            "lock",
            "durable",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..5)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

tally::proptest! {
    #[test]
    fn any_request_is_answered_without_panic(
        method in proptest::sample::select(vec![
            "transact", "monitor", "monitor_cond", "monitor_cond_since", "monitor_cond_change", "monitor_cancel",
            "lock", "steal", "unlock", "convert", "get_schema", "set_db_change_aware", "echo",
        ]),
        op in proptest::sample::select(vec!["insert", "select", "update", "mutate", "delete", "wait", "comment", "assert"]),
        params in proptest::collection::vec(any_json(), 0..4),
    ) {
        let mut bench = Bench::new();
        let session = bench.connect();
        bench.transact(session, &[json!({"op": "insert", "table": "root", "row": {}})]);
        let mut params = params;
        for param in &mut params {
            if let (Value::Object(members), "transact") = (param, method) {
                members.insert("op".into(), json!(op));
                members.insert("table".into(), json!("root"));
                members.entry("where").or_insert(json!([]));
            }
        }
        params.insert(0, json!("T"));
        bench.outputs(session, method, Value::from(params.clone()));
        params.remove(0);
        bench.outputs(session, method, Value::from(params));
        bench.core.disconnect(session);
    }
}

#[test]
fn select_sorts_rows() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let insert = |name: &str, number: i64, map: Value| json!({"op": "insert", "table": "root", "row": {"name": name, "number": number, "map": ["map", map]}});
    bench.transact(
        session,
        &[insert("c", 1, json!([])), insert("b", 3, json!([["z", 1]])), insert("b", 2, json!([["a", 1], ["b", 1]]))],
    );
    let mut select = |sort: Value, columns: Value| {
        let operation = json!({"op": "select", "table": "root", "where": [], "columns": columns, "sort": sort});
        bench.transact(session, &[operation])[0].clone()
    };
    let numbers = |answer: Value| -> Vec<i64> {
        answer["rows"].as_array().unwrap().iter().map(|row| row["number"].as_i64().unwrap()).collect()
    };
    assert_eq!(numbers(select(json!(["number"]), json!(["number"]))), [1, 2, 3]);
    assert_eq!(numbers(select(json!(["name", "number"]), json!(["number"]))), [2, 3, 1]);
    // A column need not be shown to be sorted by; fewer elements come first.
    assert_eq!(numbers(select(json!(["map"]), json!(["number"]))), [1, 3, 2]);
    assert_eq!(select(json!(["number"]), json!(["name"])), json!({"rows": [{"name": "c"}, {"name": "b"}]}));
    let error =
        |sort: Value, details: &str| json!({"error": "syntax error", "syntax": sort.to_string(), "details": details});
    let distinct = "array of distinct column names expected";
    for (sort, details) in [
        (json!(["nosuch"]), "nosuch is not a valid column name"),
        (json!([1]), distinct),
        (json!(["number", "number"]), distinct),
    ] {
        assert_eq!(select(sort.clone(), json!(["number"])), error(sort, details));
    }
    let mistyped = select(json!("number"), json!([]))["details"].clone();
    assert_eq!(mistyped, "Parsing ovsdb operation 1 of 1 failed: Type mismatch for member 'sort'.");
}

#[test]
fn an_index_error_names_the_greater_row_first() {
    let mut bench = Bench::with_schema(&ordinals(), Box::new(crate::storage::Nowhere));
    let session = bench.connect();
    let insert =
        |number: i64, name: &str| json!({"op": "insert", "table": "ordinals", "row": {"number": number, "name": name}});
    let update = |from: i64, to: i64| json!({"op": "update", "table": "ordinals", "where": [["number", "==", from]], "row": {"number": to}});
    bench.transact(session, &[insert(1, "b"), insert(2, "b"), insert(3, "c")]);
    let (old, new) = (
        "existed in the database before this transaction and was not modified by the transaction.",
        "was inserted by this transaction.",
    );
    for (operation, first, second) in [
        (insert(1, "a"), old, new),
        (insert(1, "c"), new, old),
        (update(3, 1), "had the following index values before the transaction: 3.", old),
        // Equal but for their UUIDs.
        (update(2, 1), old, "had the following index values before the transaction: 2."),
    ] {
        let answer = bench.transact(session, std::slice::from_ref(&operation));
        let details = answer[1]["details"].as_str().unwrap();
        let (_, rest) = details.split_once("First row, with UUID ").unwrap();
        let (one, other) = rest.split_once("  Second row, with UUID ").unwrap();
        assert!(one.ends_with(first) && other.ends_with(second), "{operation}: {details}");
    }
}

#[test]
fn a_duplicate_uuid_is_refused_by_the_name_of_its_table() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let uuid = "11111111-2222-4333-8444-555555555555";
    let insert = json!({"op": "insert", "table": "root", "uuid": uuid, "row": {"name": "x"}});
    let delete = json!({"op": "delete", "table": "root", "where": []});
    assert_eq!(bench.transact(session, std::slice::from_ref(&insert))[0], json!({"uuid": ["uuid", uuid]}));
    let expected = json!({"error": "duplicate uuid", "syntax": format!("\"{uuid}\""),
        "details": "This UUID would duplicate a UUID already present within the \"root\" table or deleted from this \
                    table within the same transaction."});
    assert_eq!(bench.transact(session, std::slice::from_ref(&insert))[0], expected);
    assert_eq!(bench.transact(session, &[delete, insert])[1], expected);
}

#[test]
fn a_new_row_never_overwrites_one_with_a_chosen_uuid() {
    // The next UUID of the same seed is known, and a client takes it for a row of its own.
    let insert = |uuid: &str| {
        let mut bench = Bench::new();
        let session = bench.connect();
        let chosen = json!({"op": "insert", "table": "root", "uuid": uuid, "row": {"name": "chosen"}});
        let answer = bench.transact(session, &[chosen, json!({"op": "insert", "table": "root", "row": {"name": "x"}})]);
        assert_eq!(bench.contents()["root"].as_object().unwrap().len(), 2);
        assert_eq!(answer[0]["uuid"][1], uuid);
        answer[1]["uuid"][1].as_str().unwrap().to_owned()
    };
    let next = insert("11111111-2222-4333-8444-555555555555");
    assert_eq!(insert("11111111-2222-4333-8444-555555555556"), next);
    assert_ne!(insert(&next), next);
}

fn ordinals() -> Value {
    json!({"name": "T", "version": "5.1.3", "tables": {"ordinals": {"isRoot": true,
        "columns": {"number": {"type": "integer"}, "name": {"type": "string"}}, "indexes": [["number"]]}}})
}
