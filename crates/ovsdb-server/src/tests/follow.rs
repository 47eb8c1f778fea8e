//! Servers that copy from each other, joined by in-memory links that are cut at random: a copy always shows a state
//! of the source, in the source's order, and the last one once all messages have arrived.

mod net;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ovsdb::jsonrpc::Message;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::schema;
use super::twin::{Op, transactions};
use crate::admission::{AdmissionLimits, Amount, Pool, Quota};
use crate::storage::Nowhere;
use crate::{Access, Excluded, Now};
use net::{Net, server, source, with_database};

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "root", "row": {"name": name}})
}

fn names(state: &Value) -> BTreeSet<String> {
    let rows = state["root"].as_object().into_iter().flat_map(|rows| rows.values());
    rows.map(|row| row["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Whether a copy showed only states that the source had, in the order in which it had them.
fn saw_only_states_of(net: &Net, copy: usize, source: usize) -> Result<(), TestCaseError> {
    let mut had = net.nodes[source].states.iter();
    for state in &net.nodes[copy].states {
        prop_assert!(had.any(|one| one == state), "{state} was not in the source, or not then");
    }
    Ok(())
}

/// Events between transactions: how many messages arrive, and whether connections are cut and made.
#[derive(Debug, Clone)]
struct Weather {
    messages: usize,
    cut: Option<usize>,
    connect: bool,
}

fn weather() -> impl Strategy<Value = Weather> {
    (0usize..12, proptest::option::weighted(0.3, 1usize..4), proptest::bool::weighted(0.7))
        .prop_map(|(messages, cut, connect)| Weather { messages, cut, connect })
}

fn play(net: &mut Net, transactions: &[Vec<Op>], weather: &[Weather], writer: usize) {
    let client = net.client(writer);
    for (at, ops) in transactions.iter().enumerate() {
        let operations: Vec<Value> = ops.iter().map(Op::to_json).collect();
        net.transact(writer, client, &operations);
        let Weather { messages, cut, connect } = weather[at % weather.len()].clone();
        net.run(messages / 2);
        if let Some(cut) = cut {
            net.cut(cut % net.nodes.len());
        }
        if connect {
            (0..net.nodes.len()).for_each(|node| net.connect(node, at));
        }
        net.run(messages);
    }
    net.settle();
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_backup_ends_as_its_active_server_is(
        transactions in transactions(),
        weather in proptest::collection::vec(weather(), 1..12),
    ) {
        let mut net = Net::active_and_backup();
        play(&mut net, &transactions, &weather, 0);
        prop_assert_eq!(net.state(1), net.state(0));
        prop_assert!(net.nodes[1].core.sync_status().contains("replicating: tcp:0:1"));
        saw_only_states_of(&net, 1, 0)?;
    }

    #[test]
    fn relays_end_as_their_source_is(
        transactions in transactions(),
        weather in proptest::collection::vec(weather(), 1..12),
        writer in 0usize..3,
    ) {
        let mut net = Net::relays(2);
        if writer > 0 {
            net.settle();
        }
        play(&mut net, &transactions, &weather, writer);
        for relay in [1, 2] {
            prop_assert_eq!(net.state(relay), net.state(0));
            prop_assert_eq!(net.described(relay), json!(["relay", true, false, true]));
            saw_only_states_of(&net, relay, 0)?;
        }
    }
}

/// Values that may occur anywhere in a message.
fn nonsense() -> impl Strategy<Value = Value> {
    let uuid = "00000000-0000-4000-8000-000000000001";
    prop_oneof![
        Just(Value::Null),
        Just(json!(7)),
        Just(json!("T")),
        Just(json!([])),
        Just(json!({})),
        Just(json!(["uuid", uuid])),
        Just(json!(["set", [["uuid", uuid]]])),
        Just(json!({"root": {uuid: {"delete": null}}})),
        Just(json!({"root": {uuid: {"insert": {"number": 3, "kids": ["uuid", uuid]}}}})),
        Just(json!({"kid": {uuid: {"modify": {"name": "x"}}}})),
        Just(json!({"Database": {uuid: {"modify": {"connected": false, "schema": ["set", []]}}}})),
    ]
}

/// Puts `other` in the place of one of the values within a message.
fn spoil(json: &mut Value, at: &mut usize, other: &Value) {
    if *at == 0 {
        *json = other.clone();
    }
    *at = at.wrapping_sub(1);
    match json {
        Value::Array(items) => items.iter_mut().for_each(|item| spoil(item, at, other)),
        Value::Object(members) => members.values_mut().for_each(|item| spoil(item, at, other)),
        _ => {}
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_source_may_say_anything(
        transactions in transactions(),
        backup in any::<bool>(),
        spoiled in proptest::collection::vec((0usize..30, 0usize..40, nonsense()), 1..6),
    ) {
        let mut net = if backup { Net::active_and_backup() } else { Net::relays(1) };
        let client = net.client(0);
        let mut rest = transactions.iter();
        for (after, at, other) in spoiled {
            if let Some(ops) = rest.next() {
                net.transact(0, client, &ops.iter().map(Op::to_json).collect::<Vec<_>>());
            }
            net.connect(1, 0);
            for _ in 0..after {
                let next = net.wires.iter().find(|((node, _), wire)| *node == 0 && !wire.is_empty());
                let Some((node, id)) = next.map(|(&end, _)| end) else { break };
                net.deliver(node, id);
                net.run(1);
            }
            let Some(&(id, ..)) = net.nodes[1].up.values().next() else { continue };
            let Some(message) = net.wires.get_mut(&(1, id)).and_then(VecDeque::pop_front) else { continue };
            let mut json = message.to_json();
            spoil(&mut json, &mut { at }, &other);
            let Ok(message) = Message::from_json(json) else { continue };
            net.nodes[1].core.message(id, message, net.now);
            net.flush(1);
        }
        // A consistent message is believed; only a new conversation need bring the truth.
        net.cut(1);
        net.nodes[1].core.invalidate_sources();
        net.settle();
        prop_assert_eq!(net.state(1), net.state(0));
    }
}

#[test]
fn a_relay_answers_as_its_source_does() {
    let mut net = Net::relays(1);
    let client = net.client(1);
    let early = net.ask(1, client, "get_schema", json!(["T"]));
    assert_eq!(net.answer(1, client, early).unwrap()["error"], "database not available");
    assert_eq!(net.described(1), json!(["relay", false, false, false]));
    net.settle();
    // The client was disconnected, as it does not understand that a schema exists now.
    let client = net.client(1);
    net.ask(1, client, "monitor", json!(["T", "m", {"root": [{"columns": ["name"]}]}]));
    let asked = net.transact(1, client, &[insert("a"), json!({"op": "comment", "comment": "why"})]);
    assert_eq!(net.answer(1, client, asked), None);
    net.run(100);
    assert!(net.answer(1, client, asked).unwrap()[0]["uuid"].is_array());
    assert_eq!(names(&net.state(0)), names(&net.state(1)));
    // The update arrives before the reply.
    let heard = &net.nodes[1].clients[&client];
    assert!(matches!(&heard[heard.len() - 2], Message::Notification { method, .. } if method == "update"));
    // Reading needs no source, and a transaction that fails there fails here.
    let read = net.transact(1, client, &[json!({"op": "select", "table": "root", "where": [], "columns": ["name"]})]);
    assert_eq!(net.answer(1, client, read), Some(json!([{"rows": [{"name": "a"}]}])));
    let bad = net.transact(1, client, &[insert("b"), json!({"op": "abort"})]);
    net.run(100);
    assert_eq!(net.answer(1, client, bad).unwrap()[1]["error"], "aborted");
}

#[test]
fn clients_with_roles_may_only_read_at_a_relay() {
    let mut net = Net::relays(1);
    net.settle();
    let access = Access { role: "worker".to_owned(), client: Some("alice".to_owned()), ..Access::default() };
    let client = net.nodes[1].core.connect(access);
    let before = net.state(0);
    let insert = net.transact(1, client, &[json!({"op": "insert", "table": "root", "row": {"name": "x"}})]);
    let select = net.transact(1, client, &[json!({"op": "select", "table": "root", "where": []})]);
    net.settle();
    assert_eq!(net.answer(1, client, insert).unwrap()[0]["error"], "not allowed");
    assert!(net.answer(1, client, select).unwrap()[0]["rows"].is_array());
    assert_eq!([net.state(0), net.state(1)], [before.clone(), before]);
}

#[test]
fn a_relay_forwards_waits() {
    let mut net = Net::relays(1);
    net.settle();
    let (client, other) = (net.client(1), net.client(0));
    let wait = json!({"op": "wait", "table": "root", "where": [], "columns": ["name"], "until": "==",
        "rows": [{"name": "x"}]});
    let asked = net.transact(1, client, &[wait.clone(), json!({"op": "delete", "table": "root", "where": []})]);
    net.run(100);
    assert_eq!(net.answer(1, client, asked), None);
    net.transact(0, other, &[insert("x")]);
    net.run(100);
    assert_eq!(net.answer(1, client, asked), Some(json!([{}, {"count": 1}])));
    // It can be canceled, and when the connection is lost its result is unknown.
    let canceled = net.transact(1, client, &[wait.clone(), insert("y")]);
    net.nodes[1].core.message(client, Message::notification("cancel", vec![canceled.into()]), net.now);
    net.flush(1);
    net.run(100);
    assert_eq!(net.answer(1, client, canceled), Some(json!("canceled")));
    let lost = net.transact(1, client, &[wait, insert("y")]);
    net.run(100);
    net.cut(1);
    assert_eq!(net.answer(1, client, lost), Some(json!("canceled")));
    assert_eq!(net.described(1), json!(["relay", false, false, true]));
    // A request without a connected source waits for one, and is executed once.
    let early = net.transact(1, client, &[insert("z")]);
    assert_eq!(net.answer(1, client, early), None);
    net.settle();
    assert!(net.answer(1, client, early).unwrap()[0]["uuid"].is_array());
    assert_eq!(names(&net.state(1)), ["z".to_owned()].into());
    assert_eq!(net.state(1), net.state(0));
}

#[test]
fn a_reconnecting_relay_gets_only_the_difference() {
    let mut net = Net::relays(1);
    net.settle();
    let client = net.client(0);
    net.transact(0, client, &[insert("a")]);
    net.run(100);
    net.cut(1);
    net.transact(0, client, &[insert("b")]);
    net.connect(1, 0);
    let mut seen = Vec::new();
    while let Some(end) = net.wires.iter().find(|(_, wire)| !wire.is_empty()).map(|(&end, _)| end) {
        seen.extend(net.wires[&end].front().cloned());
        net.deliver(end.0, end.1);
    }
    let found = seen.iter().find_map(|message| match message {
        Message::Reply { result: Value::Array(parts), .. } if parts.len() == 3 => Some(parts.clone()),
        _ => None,
    });
    let found = found.expect("the contents were asked for");
    assert_eq!(found[0], json!(true));
    assert_eq!(found[2]["root"].as_object().unwrap().len(), 1);
    assert_eq!(net.state(1), net.state(0));
    // Its own clients move between it and its source as well.
    let last = |net: &Net, at: usize| net.nodes[at].core.database("T").unwrap().last_transaction();
    assert_eq!(last(&net, 0), last(&net, 1));
}

#[test]
fn a_relay_leaves_a_source_that_has_lost_its_own() {
    // 0 and 1 have the database; 2 relays from 0, and 3 from 2 or 1.
    let mut relay = server(3);
    relay.add_relay("T", source(&[0]), Now::default()).unwrap();
    let mut last = server(4);
    last.add_relay("T", source(&[2, 1]), Now::default()).unwrap();
    let mut net = Net::new(vec![with_database(1), with_database(2), relay, last]);
    let (first, second) = (net.client(0), net.client(1));
    net.transact(0, first, &[insert("first")]);
    net.transact(1, second, &[insert("second")]);
    // The one in the middle has not yet got anything itself.
    net.connect(3, 0);
    net.run(100);
    assert_eq!(net.described(3), json!(["relay", false, false, false]));
    net.connect(2, 0);
    net.run(100);
    net.connect(3, 0);
    net.run(100);
    assert_eq!(names(&net.state(3)), ["first".to_owned()].into());
    net.cut(2);
    net.run(100);
    assert_eq!(net.described(3), json!(["relay", false, false, true]));
    net.connect(3, 1);
    net.run(100);
    assert_eq!(names(&net.state(3)), ["second".to_owned()].into());
    assert_eq!(net.described(3), json!(["relay", true, false, true]));
}

/// Waiting requests of one client at the source do not delay requests of others.
#[test]
fn waiting_requests_are_forwarded_a_few_at_a_time() {
    let mut net = Net::relays(1);
    net.settle();
    let (flooding, modest, other) = (net.client(1), net.client(1), net.client(1));
    let wait = json!({"op": "wait", "table": "root", "where": [], "columns": ["name"], "until": "==",
                      "rows": [{"name": "go"}]});
    let commit = json!({"op": "commit", "durable": false});
    let asked: Vec<u64> = (0..100).map(|_| net.transact(1, flooding, &[wait.clone(), commit.clone()])).collect();
    net.run(10_000);
    assert_eq!(net.nodes[0].core.memory_report().get("triggers"), Some(&16));
    assert_eq!(net.nodes[1].core.memory_report().get("forwards"), Some(&100));
    // The wait of another client arrives, and requests that need not wait are executed.
    net.transact(1, modest, &[wait, commit]);
    net.transact(1, other, &[insert("go"), json!({"op": "delete", "table": "root", "where": []})]);
    net.run(10_000);
    assert_eq!(net.nodes[0].core.memory_report().get("triggers"), Some(&17));
    // One that was not sent is canceled here, one that was by the source.
    for at in [99, 0] {
        net.nodes[1].core.message(flooding, Message::notification("cancel", vec![json!(asked[at])]), net.now);
        net.flush(1);
        net.run(10_000);
        assert_eq!(net.answer(1, flooding, asked[at]), Some(json!("canceled")));
    }
    net.transact(1, other, &[insert("go")]);
    net.run(10_000);
    assert!(asked.iter().all(|&id| net.answer(1, flooding, id).is_some()));
    assert_eq!(net.nodes[1].core.memory_report().get("forwards"), None);
    // A client that disconnects takes its requests with it.
    let never = json!({"op": "wait", "table": "root", "where": [], "columns": ["name"], "until": "==", "rows": []});
    net.transact(1, flooding, &[never, insert("never")]);
    net.run(10_000);
    assert_eq!(net.nodes[0].core.memory_report().get("triggers"), Some(&1));
    net.nodes[1].core.disconnect(flooding);
    net.flush(1);
    net.run(10_000);
    assert_eq!(net.nodes[0].core.memory_report().get("triggers"), None);
}

/// The source treats all requests of a relay as one client's: waiting ones leave capacity for others.
#[test]
fn long_waiting_requests_leave_capacity_at_the_source() {
    let mut net = Net::relays(1);
    net.settle();
    let (flooding, other) = (net.client(1), net.client(1));
    let quota = Quota::new(&Arc::default());
    let wait = |mib: usize| {
        json!({"op": "wait", "table": "root", "where": [], "columns": ["name"], "until": "==",
               "rows": [{"name": "x".repeat(mib << 20)}]})
    };
    let ask = |net: &mut Net, id: u64, mib: usize| {
        let message = Message::request(id, "transact", vec![json!("T"), wait(mib), insert("never")]);
        let permit = quota.try_admit(&message).expect("there is room here");
        net.nodes[1].core.admitted(flooding, message, permit, net.now);
        net.flush(1);
        net.run(10_000);
    };
    for id in 1001..1004 {
        ask(&mut net, id, 3);
    }
    assert_eq!(net.nodes[0].core.memory_report().get("triggers"), Some(&2));
    assert_eq!(net.nodes[1].core.memory_report().get("forwards"), Some(&3));
    // A request that exceeds the limit is refused.
    net.nodes[1].core.message(flooding, Message::notification("cancel", vec![json!(1003)]), net.now);
    ask(&mut net, 1004, 9);
    let refused = net.answer(1, flooding, 1004).expect("it is refused");
    assert_eq!(refused["error"], "resources exhausted");
    let done = net.transact(1, other, &[insert("go")]);
    net.run(10_000);
    assert!(net.answer(1, other, done).is_some_and(|answer| answer.is_array()));
    // When one leaves, the next one arrives.
    ask(&mut net, 1005, 3);
    net.nodes[1].core.message(flooding, Message::notification("cancel", vec![json!(1001)]), net.now);
    net.flush(1);
    net.run(10_000);
    assert_eq!(net.nodes[0].core.memory_report().get("triggers"), Some(&2));
    assert_eq!(net.nodes[1].core.memory_report().get("forwards"), Some(&2));
}

/// Requests that wait for a disconnected source stay within the limit.
#[test]
fn requests_beyond_the_limit_do_not_wait_for_the_source() {
    let mut net = Net::relays(1);
    net.settle();
    let client = net.client(1);
    let pool = Arc::new(Pool::new(AdmissionLimits {
        client: Amount { requests: 1, bytes: 100 },
        own: Amount { requests: 0, bytes: 0 },
        pool: Amount { requests: 1, bytes: 100 },
    }));
    let (first, quota) = (Quota::new(&pool), Quota::new(&pool));
    let ask = |net: &mut Net, quota: &Arc<Quota>, id: u64| {
        let message = Message::request(id, "transact", vec![json!("T"), insert("row")]);
        let permit = quota.try_admit(&message).expect("it is the only one");
        net.nodes[1].core.admitted(client, message, permit, net.now);
        net.flush(1);
    };
    net.cut(1);
    ask(&mut net, &first, 1001);
    ask(&mut net, &quota, 1002);
    assert_eq!(net.answer(1, client, 1001), None);
    assert_eq!(net.answer(1, client, 1002).expect("it is refused")["error"], "resources exhausted");
    // Once it is back, such a long request is sent beside others.
    net.settle();
    assert!(net.answer(1, client, 1001).is_some_and(|answer| answer.is_array()));
    ask(&mut net, &quota, 1003);
    net.run(10_000);
    assert!(net.answer(1, client, 1003).is_some_and(|answer| answer.is_array()));
}

#[test]
fn a_relay_takes_over_another_schema() {
    let mut net = Net::relays(2);
    net.settle();
    let client = net.client(0);
    net.transact(0, client, &[insert("a")]);
    net.run(100);
    let mut changed = schema().to_json();
    changed["version"] = json!("2.0.0");
    changed["tables"]["root"]["columns"].as_object_mut().unwrap().remove("map");
    // Even when a client of the last relay requests it.
    let last = net.client(2);
    net.ask(2, last, "convert", json!(["T", changed]));
    net.settle();
    for at in 0..3 {
        assert_eq!(net.nodes[at].core.database("T").unwrap().schema().version, "2.0.0");
        assert_eq!(names(&net.state(at)), ["a".to_owned()].into());
    }
}

#[test]
fn a_backup_is_read_only() {
    let mut net = Net::active_and_backup();
    net.settle();
    let client = net.client(1);
    let refused = net.transact(1, client, &[insert("a")]);
    let details = "insert operation not allowed when database server is in read only mode";
    assert_eq!(net.answer(1, client, refused), Some(json!([{"error": "not allowed", "details": details}])));
    let locked = net.ask(1, client, "lock", json!(["l"]));
    let expected = json!("lock and unlock methods not allowed, DB server is read only.");
    assert_eq!(net.answer(1, client, locked), Some(expected));
    let converted = net.ask(1, client, "convert", json!(["T", schema().to_json()]));
    assert_eq!(net.answer(1, client, converted).unwrap()["error"], "not allowed");
    // After the switch-over its clients must reconnect, and may change it; the copy stays.
    let active = net.client(0);
    net.transact(0, active, &[insert("kept")]);
    net.run(100);
    net.nodes[1].core.disconnect_active();
    net.flush(1);
    assert!(!net.nodes[1].core.has_session(client));
    assert_eq!(net.nodes[1].core.sync_status(), "database: T\nstate: active\n\n");
    let client = net.client(1);
    net.transact(1, client, &[insert("own")]);
    assert_eq!(names(&net.state(1)), ["kept".to_owned(), "own".to_owned()].into());
    // As a backup again it loses the contents that the active server lacks.
    net.nodes[1].core.connect_active().unwrap();
    net.flush(1);
    net.settle();
    assert_eq!(net.state(1), net.state(0));
}

#[test]
fn excluded_tables_are_kept() {
    let mut net = Net::active_and_backup();
    net.nodes[1].core.disconnect_active();
    let (active, backup) = (net.client(0), net.client(1));
    let root = |name: &str| json!({"op": "insert", "table": "root", "uuid-name": "r", "row": {"name": name}});
    let needy = json!({"op": "insert", "table": "needy", "row": {"of": ["named-uuid", "r"]}});
    net.transact(0, active, &[root("theirs"), needy]);
    net.transact(1, backup, &[root("ours")]);
    net.nodes[1].core.set_excluded(Excluded::from("foo,T:root,T:needy,U:x,T:none"));
    net.nodes[1].core.connect_active().unwrap();
    net.flush(1);
    net.settle();
    assert_eq!(names(&net.state(1)), ["ours".to_owned()].into());
    let expected = "database: T\nstate: backup\nreplicating: tcp:0:1\nexclude: T:needy,T:none,T:root\n";
    assert_eq!(net.nodes[1].core.sync_status(), expected);
    // A copied table must not refer to an excluded one; the status says so.
    net.nodes[1].core.set_excluded(Excluded::from("T:root"));
    net.flush(1);
    net.settle();
    assert!(net.nodes[1].core.sync_status().contains("Replication to (tcp:0:1) failed: constraint violation"));
}

#[test]
fn a_server_does_not_copy_from_itself_nor_from_another_schema() {
    let mut own = with_database(1);
    own.set_active_server(source(&[0]));
    own.connect_active().unwrap();
    let mut other = server(2);
    let mut changed = schema().to_json();
    changed["tables"]["root"]["columns"].as_object_mut().unwrap().remove("map");
    other.add_database(&[changed], Box::new(Nowhere), None, Now::default()).unwrap();
    other.set_active_server(source(&[0]));
    other.connect_active().unwrap();
    let mut missing = server(3);
    let mut renamed = schema().to_json();
    renamed["name"] = json!("U");
    missing.add_database(&[renamed], Box::new(Nowhere), None, Now::default()).unwrap();
    missing.set_active_server(source(&[0]));
    missing.connect_active().unwrap();
    let mut net = Net::new(vec![own, other, missing]);
    net.settle();
    let status = |at: usize| net.nodes[at].core.sync_status();
    assert!(status(0).contains("Self replicating is not allowed"), "{}", status(0));
    // It goes on as a database of its own.
    assert_eq!(status(1), "database: T\nstate: active\n\n");
    assert!(status(2).contains("unknown database"), "{}", status(2));
}

#[test]
fn sources_that_break_the_protocol_are_left() {
    let messages = [
        json!({"id": null, "method": "update3", "params": [["monid", "T"], "x", {"root": 3}]}),
        json!({"id": null, "method": "update3", "params": [["monid", "T"], "x",
            {"root": {"00000000-0000-4000-8000-000000000001": {"modify": {"name": "x"}}}}]}),
        json!({"id": null, "method": "update3", "params": [["monid", "T"], "x",
            {"root": {"00000000-0000-4000-8000-000000000001": {"insert": {"number": 1000}}}}]}),
        json!({"id": null, "method": "update3", "params": [["monid", "T"], "x", {"none": {}}]}),
        json!({"id": null, "method": "update2", "params": [["monid", "_Server"], 7]}),
        json!({"id": 3, "method": "transact", "params": []}),
    ];
    for message in messages {
        let mut net = Net::relays(1);
        net.settle();
        let client = net.client(0);
        net.transact(0, client, &[insert("a")]);
        net.run(100);
        let before = net.state(1);
        let (id, ..) = *net.nodes[1].up.values().next().unwrap();
        net.nodes[1].core.message(id, Message::from_json(message.clone()).unwrap(), net.now);
        net.flush(1);
        assert!(net.nodes[1].up.is_empty(), "{message}");
        assert_eq!(net.state(1), before);
        net.settle();
        assert_eq!(net.state(1), net.state(0));
    }
}

#[test]
fn a_relay_that_missed_too_much_gets_everything() {
    let mut net = Net::relays(1);
    net.settle();
    let client = net.client(0);
    net.transact(0, client, &[insert("gone")]);
    net.run(100);
    net.cut(1);
    net.transact(0, client, &[json!({"op": "delete", "table": "root", "where": []})]);
    // More than the source remembers.
    net.transact(0, client, &[insert("kept")]);
    for number in 0..150 {
        let row = json!({"number": number % 100});
        net.transact(0, client, &[json!({"op": "update", "table": "root", "where": [], "row": row})]);
    }
    net.settle();
    assert_eq!(names(&net.state(1)), ["kept".to_owned()].into());
    assert_eq!(net.state(1), net.state(0));
}

#[test]
fn an_update_that_failed_is_requested_again() {
    let mut net = Net::relays(1);
    net.settle();
    let client = net.client(0);
    net.transact(0, client, &[insert("a")]);
    net.run(100);
    net.transact(0, client, &[insert("b")]);
    // The transaction arrives spoiled, but under its id, which the source would find again.
    let (id, ..) = *net.nodes[1].up.values().next().unwrap();
    let last = net.nodes[0].core.database("T").unwrap().last_transaction().to_string();
    let spoiled = Message::notification("update3", vec![json!(["monid", "T"]), json!(last), json!({"none": {}})]);
    *net.wires.get_mut(&(1, id)).unwrap().front_mut().unwrap() = spoiled;
    net.settle();
    assert_eq!(names(&net.state(1)), ["a".to_owned(), "b".to_owned()].into());
}
