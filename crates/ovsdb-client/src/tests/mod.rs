//! Tests without I/O: the replica, the changes, the session.

mod leader;
mod twin;
mod typed;

use std::sync::Arc;

use ovsdb::jsonrpc::Message;
use ovsdb::{Atom, DatabaseSchema, Datum, Uuid};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::session::TransactReply;
use crate::{ChangeKind, Changes, LockState, Outcome, Replica, Session, Wanted};

fn schema() -> DatabaseSchema {
    let json = json!({
        "name": "T", "version": "1.0.0",
        "tables": {
            "Root": { "isRoot": true, "columns": {
                "next": { "type": "integer" },
                "kids": { "type": { "key": { "type": "uuid", "refTable": "Kid" }, "min": 0, "max": "unlimited" } } } },
            "Kid": { "columns": {
                "name": { "type": "string" },
                "tag": { "type": { "key": "integer", "min": 0 } },
                "trunks": { "type": { "key": "integer", "min": 0, "max": 10 } },
                "config": { "type": { "key": "string", "value": "string", "min": 0, "max": "unlimited" } } } }
        }
    });
    DatabaseSchema::from_json(&json).unwrap()
}

const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";
const R: &str = "cccccccc-0000-4000-8000-000000000003";

fn uuid(text: &str) -> Uuid {
    Uuid::parse(text).unwrap()
}

fn wanted() -> Wanted {
    Wanted::everything(&schema())
}

fn replica() -> Replica {
    let mut replica = Replica::new(&wanted());
    assert_eq!(replica.bind(&schema()), []);
    replica
}

fn filled() -> Replica {
    let mut replica = replica();
    let contents = json!({
        "Root": { R: { "initial": { "next": 4, "kids": ["uuid", A] } } },
        "Kid": { A: { "initial": { "name": "a", "trunks": ["set", [1, 2]], "config": ["map", [["k", "v"]]] } } }
    });
    replica.apply_updates2(&contents).unwrap();
    replica
}

#[test]
fn rows_are_inserted_changed_and_deleted() {
    let mut replica = filled();
    let row = replica.row("Kid", uuid(A)).unwrap();
    assert_eq!((row.string("name"), row.integer_opt("tag")), ("a", None));
    assert_eq!((row.integers("trunks"), row.map_get("config", "k")), (vec![1, 2], Some("v")));
    assert_eq!(replica.rows("Root").next().unwrap().uuids("kids"), [uuid(A)]);
    let kinds: Vec<_> = replica.take_changes().into_iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Inserted, ChangeKind::Inserted]);

    let modified = json!({ "Kid": { A: { "modify": {
        "tag": 5, "trunks": ["set", [2, 3]], "config": ["map", [["k", "w"], ["l", "x"]]] } } } });
    replica.apply_updates2(&modified).unwrap();
    let row = replica.row("Kid", uuid(A)).unwrap();
    assert_eq!((row.integer("tag"), row.integers("trunks")), (5, vec![1, 3]));
    assert_eq!(row.map("config").into_iter().collect::<Vec<_>>(), [("k", "w"), ("l", "x")]);
    let [change] = replica.take_changes().try_into().unwrap();
    let ChangeKind::Modified(old) = change.kind else { panic!("{change:?}") };
    assert_eq!(old.get("trunks"), Some(&Datum::set([1, 2])));
    assert_eq!((old.get("tag"), old.get("name")), (Some(&Datum::empty()), None));

    replica.apply_updates2(&json!({ "Kid": { A: { "delete": null } } })).unwrap();
    let [change] = replica.take_changes().try_into().unwrap();
    let ChangeKind::Deleted(old) = change.kind else { panic!("{change:?}") };
    assert_eq!(old.get("name").and_then(Datum::as_str), Some("a"));
    assert!(replica.row("Kid", uuid(A)).is_none());
}

#[test]
fn several_changes_of_a_row_are_one() {
    let mut replica = filled();
    replica.take_changes();
    for update in [
        json!({ "Kid": { A: { "modify": { "tag": 1 } }, B: { "insert": { "name": "b" } } } }),
        json!({ "Kid": { A: { "modify": { "tag": ["set", []] } }, B: { "delete": null } } }),
    ] {
        replica.apply_updates2(&update).unwrap();
    }
    assert_eq!(replica.take_changes(), []);
}

#[test]
fn full_contents_replace_the_replica() {
    let mut replica = filled();
    replica.take_changes();
    let contents = json!({
        "Root": { R: { "initial": { "next": 4, "kids": ["uuid", B] } } },
        "Kid": { B: { "initial": { "name": "b" } } }
    });
    replica.replace(&contents, Replica::apply_updates2).unwrap();
    let changes: Vec<_> = replica.take_changes().into_iter().map(|change| (change.uuid, change.kind)).collect();
    assert!(matches!(changes[0], (a, ChangeKind::Deleted(_)) if a == uuid(A)));
    assert_eq!(changes[1], (uuid(B), ChangeKind::Inserted));
    assert!(matches!(&changes[2], (r, ChangeKind::Modified(old)) if *r == uuid(R) && old.iter().count() == 1));
}

#[test]
fn plain_updates_are_whole_rows() {
    let mut replica = replica();
    replica.apply_updates(&json!({ "Kid": { A: { "new": { "name": "a", "tag": 3, "trunks": 7 } } } })).unwrap();
    replica.apply_updates(&json!({ "Kid": { A: { "old": { "tag": 3 }, "new": { "name": "a" } } } })).unwrap();
    let row = replica.row("Kid", uuid(A)).unwrap();
    assert_eq!((row.string("name"), row.integer_opt("tag"), row.integers("trunks").len()), ("a", None, 0));
    replica.apply_updates(&json!({ "Kid": { A: { "old": { "name": "a" } } } })).unwrap();
    assert_eq!(replica.rows("Kid").count(), 0);
}

#[test]
fn updates_that_do_not_fit_are_refused() {
    for bad in [
        json!([]),
        json!({ "Nope": {} }),
        json!({ "Kid": [] }),
        json!({ "Kid": { "x": { "delete": null } } }),
        json!({ "Kid": { A: {} } }),
        json!({ "Kid": { A: { "insert": 3 } } }),
        json!({ "Kid": { A: { "insert": { "tag": "x" } } } }),
        json!({ "Kid": { B: { "modify": { "tag": 1 } } } }),
    ] {
        assert!(filled().apply_updates2(&bad).is_err(), "{bad}");
    }
}

#[test]
fn columns_that_the_server_lacks_read_as_empty_and_are_not_written() {
    let mut replica = Replica::new(&Wanted::from(&[("Kid", &["name", "newer"][..]), ("Newer", &["x"][..])]));
    let missing = |what: &str| format!("{what} is missing in the server's schema (database needs upgrade?)");
    let misfits: Vec<String> = replica.bind(&schema()).iter().map(ToString::to_string).collect();
    assert_eq!(misfits, [missing("Kid.newer"), missing("Newer")]);
    assert_eq!(replica.monitor_requests(), json!({ "Kid": [{ "columns": ["name"] }] }));
    replica.apply_updates2(&json!({ "Kid": { A: { "insert": { "name": "a" } } } })).unwrap();
    assert_eq!(replica.row("Kid", uuid(A)).unwrap().string("newer"), "");
    let mut changes = Changes::new();
    changes.set(&replica, "Kid", uuid(A), "newer", 1);
    assert!(changes.is_unchanged(&replica));
}

fn operations(changes: &Changes, replica: &Replica) -> Vec<Value> {
    changes.operations(replica, None).unwrap_or_default()
}

#[test]
fn changes_become_operations() {
    let replica = filled();
    let mut changes = Changes::new();
    changes.verify(&replica, "Root", uuid(R), "kids");
    changes.insert_as(&replica, "Kid", uuid(B));
    changes.set(&replica, "Kid", uuid(B), "name", "b");
    changes.set(&replica, "Kid", uuid(B), "tag", Datum::empty());
    changes.add(&replica, "Root", uuid(R), "kids", &Datum::scalar(uuid(B)));
    changes.set(&replica, "Kid", uuid(A), "tag", 9);
    changes.set(&replica, "Kid", uuid(A), "name", "a");
    changes.increment(&replica, "Root", uuid(R), "next");
    changes.comment("why");
    let name = "rowbbbbbbbb_0000_4000_8000_000000000002";
    let at = |text: &str| json!([["_uuid", "==", ["uuid", text]]]);
    assert_eq!(
        operations(&changes, &replica),
        [
            json!({ "op": "wait", "table": "Root", "where": at(R), "timeout": 0, "until": "==", "columns": ["kids"],
                    "rows": [{ "kids": ["uuid", A] }] }),
            json!({ "op": "insert", "table": "Kid", "row": { "name": "b" }, "uuid-name": name }),
            json!({ "op": "mutate", "table": "Root", "where": at(R),
                    "mutations": [["kids", "insert", ["set", [["named-uuid", name]]]]] }),
            json!({ "op": "update", "table": "Kid", "where": at(A), "row": { "tag": 9 } }),
            json!({ "op": "mutate", "table": "Root", "where": at(R), "mutations": [["next", "+=", 1]] }),
            json!({ "op": "select", "table": "Root", "where": at(R), "columns": ["next"] }),
            json!({ "op": "comment", "comment": "why" }),
        ]
    );
    let locked = changes.operations(&replica, Some("l")).unwrap();
    assert_eq!(locked[0], json!({ "op": "assert", "lock": "l" }));
    // The changed row is visible through the changes.
    assert_eq!(changes.rows(&replica, "Kid"), [uuid(A), uuid(B)]);
    assert_eq!(changes.datum(&replica, "Root", uuid(R), "kids"), Some(&Datum::set([uuid(A), uuid(B)])));
    assert_eq!(changes.datum(&replica, "Kid", uuid(A), "tag"), Some(&Datum::scalar(9)));
    assert_eq!(changes.datum(&replica, "Kid", uuid(B), "trunks"), Some(&Datum::empty()));
}

#[test]
fn elements_are_sent_one_by_one() {
    let replica = filled();
    let mut changes = Changes::new();
    changes.add(&replica, "Kid", uuid(A), "config", &Datum::map([("k", "w"), ("l", "x")]));
    changes.remove(&replica, "Kid", uuid(A), "trunks", &Datum::scalar(2));
    changes.add(&replica, "Kid", uuid(A), "trunks", &Datum::set([3]));
    changes.remove(&replica, "Kid", uuid(A), "trunks", &Datum::set([3]));
    let [operation] = operations(&changes, &replica).try_into().unwrap();
    assert_eq!(
        operation["mutations"],
        json!([
            ["config", "delete", ["set", ["k", "l"]]],
            ["config", "insert", ["map", [["k", "w"], ["l", "x"]]]],
            ["trunks", "delete", ["set", [2, 3]]],
        ])
    );
    assert_eq!(changes.datum(&replica, "Kid", uuid(A), "trunks"), Some(&Datum::set([1])));
}

#[test]
fn empty_transactions_are_not_sent() {
    let replica = filled();
    let mut changes = Changes::new();
    changes.set(&replica, "Kid", uuid(A), "name", "a");
    changes.add(&replica, "Kid", uuid(A), "trunks", &Datum::set([1]));
    changes.remove(&replica, "Kid", uuid(A), "config", &Datum::scalar("nope"));
    changes.set(&replica, "Kid", uuid(B), "name", "no such row");
    let made = changes.insert(&replica, "Kid");
    changes.delete(&replica, "Kid", made);
    changes.increment(&replica, "Root", uuid(R), "next");
    changes.verify(&replica, "Kid", uuid(A), "name");
    changes.comment("why");
    assert_eq!(changes.operations(&replica, None), None);
}

#[test]
fn deleted_rows_disappear_at_once() {
    let replica = filled();
    let mut changes = Changes::new();
    changes.delete(&replica, "Kid", uuid(A));
    assert!(!changes.contains(&replica, "Kid", uuid(A)) && changes.rows(&replica, "Kid").is_empty());
    changes.set(&replica, "Kid", uuid(A), "name", "x");
    assert_eq!(operations(&changes, &replica)[0]["op"], "delete");
}

#[test]
fn forgotten_rows_leave_their_table_without_an_operation() {
    let replica = filled();
    let mut changes = Changes::new();
    changes.set(&replica, "Kid", uuid(A), "name", "renamed");
    let name = replica.row("Kid", uuid(A)).unwrap().string("name").to_owned();
    changes.forget(&replica, "Kid", uuid(A));
    assert!(!changes.contains(&replica, "Kid", uuid(A)) && !changes.rows(&replica, "Kid").contains(&uuid(A)));
    // Readers that come by a reference find the row as it is in the database.
    assert_eq!(changes.datum(&replica, "Kid", uuid(A), "name").and_then(Datum::as_str), Some(name.as_str()));
    changes.set(&replica, "Kid", uuid(A), "name", "late");
    assert_eq!(changes.operations(&replica, None), None);
    let made = changes.insert(&replica, "Kid");
    changes.forget(&replica, "Kid", made);
    assert!(!changes.contains(&replica, "Kid", made) && changes.is_unchanged(&replica));
}

#[test]
fn outcomes_are_parsed_from_results() {
    let replica = filled();
    let mut changes = Changes::new();
    changes.verify(&replica, "Root", uuid(R), "kids");
    changes.insert_as(&replica, "Kid", uuid(B));
    changes.increment(&replica, "Root", uuid(R), "next");
    let sent = operations(&changes, &replica);
    let read = |results: Value| changes.outcome(&sent, results.as_array().unwrap());
    let committed = read(json!([{}, { "uuid": ["uuid", A] }, { "count": 1 }, { "rows": [{ "next": 5 }] }])).unwrap();
    let Outcome::Committed(committed) = committed else { panic!("{committed:?}") };
    assert_eq!((committed.uuid(uuid(B)), committed.uuid(uuid(R))), (uuid(A), uuid(R)));
    assert_eq!(committed.incremented(), Some(5));
    assert_eq!(read(json!([{ "error": "timed out" }, null])).unwrap(), Outcome::TryAgain);
    assert_eq!(read(json!([{ "error": "not owner" }, null])).unwrap(), Outcome::NotLocked);
    assert!(read(json!([{}, { "error": "constraint violation" }])).is_err());
    assert!(read(json!([{}])).is_err());
}

/// A session and its sent messages.
struct TestSession(Session);

impl TestSession {
    fn new() -> Self {
        let mut session = Session::new("T", &wanted(), None);
        session.connected();
        Self(session)
    }

    /// The only request that was sent, as (method, params, id).
    fn request(&mut self) -> (String, Vec<Value>, Value) {
        let [message] = self.0.take_outgoing().try_into().unwrap();
        let Message::Request { id, method, params } = message else { panic!("{message:?}") };
        (method, params, id)
    }

    fn expect(&mut self, wanted: &str) -> (Vec<Value>, Value) {
        let (method, params, id) = self.request();
        assert_eq!(method, wanted);
        (params, id)
    }

    fn reply(&mut self, id: Value, result: Value) {
        self.0.receive(Message::reply(id, result)).unwrap();
    }

    fn send_schema(&mut self) {
        let (params, id) = self.expect("get_schema");
        assert_eq!(params, [json!("T")]);
        self.reply(id, schema().to_json());
    }

    fn live() -> Self {
        let mut talk = Self::new();
        talk.send_schema();
        let (_, id) = talk.expect("monitor_cond_since");
        talk.reply(id, json!([false, R, { "Kid": { A: { "initial": { "name": "a" } } } }]));
        assert!(talk.0.is_live());
        talk
    }

    fn notify(&mut self, method: &str, params: Value) -> Result<(), crate::ProtocolError> {
        self.0.receive(Message::notification(method, params.as_array().unwrap().clone()))
    }
}

#[test]
fn a_session_asks_for_the_schema_and_then_for_contents() {
    let mut talk = TestSession::live();
    let before = talk.0.sequence();
    talk.notify("update3", json!([["monid", "T"], B, { "Kid": { A: { "modify": { "tag": 1 } } } }])).unwrap();
    assert!(talk.0.sequence() > before);
    assert_eq!(talk.0.replica().row("Kid", uuid(A)).unwrap().integer("tag"), 1);
}

#[test]
fn a_reconnection_requests_only_the_differences() {
    let mut talk = TestSession::live();
    talk.0.replica_mut().take_changes();
    talk.0.disconnected();
    assert!(!talk.0.is_live());
    assert_eq!(talk.0.replica().rows("Kid").count(), 1);
    talk.0.connected();
    talk.send_schema();
    let (params, id) = talk.expect("monitor_cond_since");
    assert_eq!(params[3], json!(R));
    talk.reply(id, json!([true, B, { "Kid": { A: { "modify": { "name": "z" } } } }]));
    assert_eq!(talk.0.replica().row("Kid", uuid(A)).unwrap().string("name"), "z");
    assert_eq!(talk.0.replica_mut().take_changes().len(), 1);
}

#[test]
fn old_servers_are_asked_in_older_ways() {
    let mut talk = TestSession::new();
    talk.send_schema();
    for method in ["monitor_cond_since", "monitor_cond"] {
        let (_, id) = talk.expect(method);
        talk.0.receive(Message::error(id, json!({ "error": "unknown method" }))).unwrap();
    }
    let (params, id) = talk.expect("monitor");
    assert_eq!(params.len(), 3);
    talk.reply(id, json!({ "Kid": { A: { "new": { "name": "a" } } } }));
    talk.notify("update", json!([["monid", "T"], { "Kid": { A: { "new": { "name": "b" }, "old": {} } } }])).unwrap();
    assert_eq!(talk.0.replica().row("Kid", uuid(A)).unwrap().string("name"), "b");
}

#[test]
fn nonsense_from_the_server_makes_the_next_contents_full() {
    let mut talk = TestSession::live();
    assert!(talk.notify("update3", json!([["monid", "T"], B, { "Kid": { B: { "modify": {} } } }])).is_err());
    talk.0.disconnected();
    talk.0.connected();
    talk.send_schema();
    let (params, _) = talk.expect("monitor_cond_since");
    assert_eq!(params[3], json!(Uuid::ZERO.to_string()));
}

#[test]
fn a_canceled_monitor_begins_anew() {
    let mut talk = TestSession::live();
    talk.notify("monitor_canceled", json!([["monid", "T"]])).unwrap();
    assert!(!talk.0.is_live());
    talk.send_schema();
    talk.expect("monitor_cond_since");
}

#[test]
fn locks_are_asked_for_on_every_connection() {
    let mut talk = TestSession::live();
    talk.0.set_lock(Some("l"));
    assert_eq!(talk.0.lock_state(), Some(LockState::Unknown));
    let (params, id) = talk.expect("lock");
    assert_eq!(params, [json!("l")]);
    talk.reply(id, json!({ "locked": false }));
    assert_eq!(talk.0.lock_state(), Some(LockState::Contended));
    talk.notify("locked", json!(["l"])).unwrap();
    assert_eq!(talk.0.lock_state(), Some(LockState::Held));
    talk.notify("stolen", json!(["l"])).unwrap();
    assert_eq!(talk.0.lock_state(), Some(LockState::Contended));
    talk.0.disconnected();
    talk.0.connected();
    let methods: Vec<_> =
        talk.0.take_outgoing().iter().map(|message| message.method().unwrap_or_default().to_owned()).collect();
    assert_eq!(methods, ["get_schema", "lock"]);
    talk.0.set_lock(None);
    assert_eq!(talk.expect("unlock").0, [json!("l")]);
}

#[test]
fn transactions_are_answered_once_even_by_a_lost_connection() {
    let mut talk = TestSession::live();
    talk.0.transact(&[json!({ "op": "comment", "comment": "x" })]);
    let (params, id) = talk.expect("transact");
    assert_eq!(params[0], json!("T"));
    assert_eq!(talk.0.take_transact_reply(), None);
    talk.reply(id, json!([{}]));
    assert_eq!(talk.0.take_transact_reply(), Some(TransactReply::Results(vec![json!({})])));
    assert_eq!(talk.0.take_transact_reply(), None);
    talk.0.transact(&[]);
    talk.0.disconnected();
    assert_eq!(talk.0.take_transact_reply(), Some(TransactReply::Refused(json!("disconnected"))));
}

#[test]
fn a_late_reply_is_not_taken_for_another() {
    let mut talk = TestSession::live();
    // The sender has been dropped, and so has the connection.
    talk.0.transact(&[]);
    let (_, dropped) = talk.expect("transact");
    talk.0.disconnected();
    talk.0.connected();
    let mut ids = vec![dropped];
    talk.send_schema();
    let (_, id) = talk.expect("monitor_cond_since");
    talk.reply(id.clone(), json!([true, B, {}]));
    ids.push(id);
    for _ in 0..8 {
        talk.0.transact(&[]);
        let (_, id) = talk.expect("transact");
        talk.reply(id.clone(), json!([{}]));
        assert_eq!(talk.0.take_transact_reply(), Some(TransactReply::Results(vec![json!({})])));
        assert!(!ids.contains(&id));
        ids.push(id);
    }
    assert!(talk.0.is_live());
}

#[test]
fn requests_of_the_server_are_answered() {
    let mut talk = TestSession::live();
    talk.0.receive(Message::request(7, "echo", vec![json!("hi")])).unwrap();
    talk.0.receive(Message::request(8, "dance", Vec::new())).unwrap();
    let sent = talk.0.take_outgoing();
    assert_eq!(sent[0], Message::reply(json!(7), vec![json!("hi")]));
    assert_eq!(sent[1].kind(), "error");
}

#[test]
fn a_refused_database_is_reported() {
    let mut talk = TestSession::new();
    let (_, id) = talk.expect("get_schema");
    talk.0.receive(Message::error(id, json!({ "error": "unknown database" }))).unwrap();
    assert!(talk.0.is_refused() && !talk.0.is_live());
    let known = Session::new("T", &wanted(), Some(Arc::new(schema())));
    assert!(known.schema().is_some());
}

/// A row's data as a naive twin keeps it: name, tag, trunks and config.
type Plain = (String, Option<i64>, Vec<i64>, Vec<(String, String)>);

fn row_strategy() -> impl Strategy<Value = Plain> {
    (
        "[a-c]{0,2}",
        proptest::option::of(0..3i64),
        proptest::collection::vec(0..6i64, 0..6),
        proptest::collection::vec(("[a-c]", "[x-z]"), 0..4),
    )
}

fn data((name, tag, trunks, config): &Plain) -> [(&'static str, Datum); 4] {
    let config = Datum::map(config.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let tag = tag.map_or(Datum::empty(), Datum::scalar);
    [
        ("name", Datum::scalar(name.as_str())),
        ("tag", tag),
        ("trunks", Datum::set(trunks.iter().copied())),
        ("config", config),
    ]
}

tally::proptest! {
    #[test]
    fn differences_lead_to_the_new_row(old in row_strategy(), new in row_strategy()) {
        let schema = schema();
        let table = schema.table("Kid").unwrap();
        let mut replica = replica();
        let kind = |name: &str| &table.column(name).unwrap().kind;
        let insert: serde_json::Map<String, Value> =
            data(&old).iter().map(|(name, datum)| ((*name).to_owned(), datum.to_json(kind(name)))).collect();
        replica.apply_updates2(&json!({ "Kid": { A: { "insert": insert } } })).unwrap();
        let modify: serde_json::Map<String, Value> = data(&old)
            .iter()
            .zip(data(&new))
            .filter(|((_, old), (_, new))| old != new)
            .map(|((name, old), (_, new))| ((*name).to_owned(), old.diff(&new, kind(name)).to_json(&kind(name).relaxed())))
            .collect();
        replica.apply_updates2(&json!({ "Kid": { A: { "modify": modify } } })).unwrap();
        let row = replica.row("Kid", uuid(A)).unwrap();
        for (name, datum) in data(&new) {
            prop_assert_eq!(row.datum(name), Some(&datum));
        }
    }

    #[test]
    fn edits_of_elements_agree_with_a_plain_set(
        old in proptest::collection::btree_set(0..8i64, 0..6),
        edits in proptest::collection::vec((any::<bool>(), 0..8i64), 0..8),
    ) {
        let mut replica = replica();
        let trunks = Datum::set(old.iter().copied()).to_json(&schema().table("Kid").unwrap().column("trunks").unwrap().kind);
        replica.apply_updates2(&json!({ "Kid": { A: { "insert": { "trunks": trunks } } } })).unwrap();
        let mut changes = Changes::new();
        let mut twin = old.clone();
        for (add, number) in edits {
            let elements = Datum::scalar(number);
            if add {
                twin.insert(number);
                changes.add(&replica, "Kid", uuid(A), "trunks", &elements);
            } else {
                twin.remove(&number);
                changes.remove(&replica, "Kid", uuid(A), "trunks", &elements);
            }
        }
        let want = Datum::set(twin.iter().copied());
        prop_assert_eq!(changes.datum(&replica, "Kid", uuid(A), "trunks").cloned(), Some(want.clone()));
        // The sent operations do the same to the server's copy: deletions, then insertions.
        let mut server = Datum::set(old.iter().copied());
        for operation in operations(&changes, &replica) {
            for mutation in operation["mutations"].as_array().into_iter().flatten() {
                let elements = mutation[2][1].as_array().unwrap().iter().filter_map(Value::as_i64);
                for number in elements {
                    if mutation[1] == "delete" { server.remove(&Atom::Integer(number)); } else { server.insert(Atom::Integer(number), None); }
                }
            }
        }
        prop_assert_eq!(server, want);
    }
}
