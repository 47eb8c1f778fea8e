//! Sessions that require a leader, and sessions with conditions, message by message.

use ovsdb::condition::Function;
use ovsdb::jsonrpc::Message;
use serde_json::{Value, json};

use super::{A, B, R, TestSession, schema, wanted};
use crate::{Clause, Condition, Session};

fn database(connected: bool, leader: bool) -> Value {
    json!({ "name": "T", "connected": connected, "leader": leader })
}

impl TestSession {
    fn leader_only() -> (Self, Value) {
        let mut session = Session::new("T", &wanted(), None);
        session.set_leader_only(true);
        session.set_lock(Some("l"));
        session.connected();
        let mut talk = Self(session);
        let id = talk.expect_server();
        (talk, id)
    }

    /// Answers the first requests to a server; returns the id of the request about itself.
    fn expect_server(&mut self) -> Value {
        let [aware, monitor] = self.0.take_outgoing().try_into().unwrap();
        assert_eq!(aware.method(), Some("set_db_change_aware"));
        let Message::Request { id, method, params } = monitor else { panic!("{monitor:?}") };
        assert_eq!((method.as_str(), &params[0]), ("monitor_cond", &json!("_Server")));
        assert_eq!(params[2], json!({ "Database": [{ "columns": ["connected", "leader", "name"] }] }));
        id
    }

    fn methods(&mut self) -> Vec<String> {
        self.0.take_outgoing().iter().filter_map(|message| message.method().map(str::to_owned)).collect()
    }
}

#[test]
fn nothing_is_asked_of_a_server_that_does_not_lead() {
    for (contents, reason) in [
        (json!({}), "does not have the database"),
        (json!({ "Database": { A: { "initial": database(false, true) } } }), "cut off"),
        (json!({ "Database": { A: { "initial": database(true, false) } } }), "does not lead"),
    ] {
        let (mut talk, id) = TestSession::leader_only();
        talk.reply(id, contents);
        assert!(talk.0.unfit().unwrap().contains(reason));
        assert!(talk.0.take_outgoing().is_empty());
        // The next one may be fit.
        talk.0.disconnected();
        assert_eq!(talk.0.unfit(), None);
        talk.0.connected();
        let id = talk.expect_server();
        talk.reply(id, json!({ "Database": { B: { "initial": database(true, true) } } }));
        assert_eq!(talk.0.unfit(), None);
        assert_eq!(talk.methods(), ["get_schema", "lock"]);
    }
}

#[test]
fn a_leader_that_leads_no_longer_is_left() {
    let (mut talk, id) = TestSession::leader_only();
    talk.0.set_lock(None);
    talk.reply(id, json!({ "Database": { A: { "initial": database(true, true) } } }));
    talk.send_schema();
    let (_, id) = talk.expect("monitor_cond_since");
    talk.reply(id, json!([false, R, {}]));
    assert!(talk.0.is_live());
    // A repetition changes nothing.
    talk.notify("update2", json!([["monid", "_Server"], { "Database": { B: { "insert": { "name": "U" } } } }]))
        .unwrap();
    assert!(talk.0.is_live());
    let demoted = json!({ "Database": { A: { "modify": { "leader": false } } } });
    let before = talk.0.sequence();
    talk.notify("update2", json!([["monid", "_Server"], demoted])).unwrap();
    assert!(!talk.0.is_live() && talk.0.unfit().is_some() && talk.0.sequence() > before);
    // Messages still in transit are ignored without an error.
    talk.notify("update3", json!([["monid", "T"], B, { "Kid": { A: { "insert": { "name": "a" } } } }])).unwrap();
    assert_eq!(talk.0.replica().rows("Kid").count(), 0);
}

#[test]
fn a_server_without_status_leads() {
    let (mut talk, id) = TestSession::leader_only();
    talk.0.receive(Message::error(id, json!({ "error": "unknown database" }))).unwrap();
    assert_eq!(talk.methods(), ["get_schema", "lock"]);
}

#[test]
fn nonsense_about_itself_ends_the_connection() {
    let (mut talk, id) = TestSession::leader_only();
    assert!(talk.0.receive(Message::reply(id, json!({ "Database": 3 }))).is_err());
}

fn named(name: &str) -> Condition {
    Condition::AnyOf(vec![Clause::new("name", Function::Equal, name)])
}

#[test]
fn conditions_are_part_of_the_first_request() {
    let mut session = Session::new("T", &wanted(), None);
    session.set_condition("Kid", named("a"));
    session.set_condition("Nope", named("a"));
    session.connected();
    let mut talk = TestSession(session);
    talk.send_schema();
    let (params, id) = talk.expect("monitor_cond_since");
    assert_eq!(params[2]["Kid"][0]["where"], json!([["name", "==", "a"]]));
    assert_eq!(params[2]["Root"][0].get("where"), None);
    talk.reply(id, json!([false, R, { "Kid": { A: { "initial": { "name": "a" } } } }]));
    assert!(talk.0.conditions_are_held() && talk.0.take_outgoing().is_empty());
}

#[test]
fn conditions_change_while_the_session_is_live() {
    let mut talk = TestSession::live();
    talk.0.set_condition("Kid", named("b"));
    let (params, id) = talk.expect("monitor_cond_change");
    assert_eq!(
        params,
        [json!(["monid", "T"]), json!(["monid", "T"]), json!({ "Kid": [{ "where": [["name", "==", "b"]] }] })]
    );
    assert!(!talk.0.conditions_are_held());
    talk.notify("update3", json!([["monid", "T"], B, { "Kid": { A: { "delete": null } } }])).unwrap();
    let before = talk.0.sequence();
    talk.reply(id, json!({}));
    assert!(talk.0.conditions_are_held() && talk.0.sequence() > before);
    assert_eq!(talk.0.replica().rows("Kid").count(), 0);
    // Known rows are requested by the held conditions; only then by the wanted ones.
    talk.0.disconnected();
    talk.0.set_condition("Kid", Condition::All);
    talk.0.connected();
    talk.send_schema();
    let (params, id) = talk.expect("monitor_cond_since");
    assert_eq!((&params[2]["Kid"][0]["where"], &params[3]), (&json!([["name", "==", "b"]]), &json!(B)));
    talk.reply(id, json!([true, B, {}]));
    let (params, _) = talk.expect("monitor_cond_change");
    assert_eq!(params[2], json!({ "Kid": [{ "where": [true] }] }));
    // The result of this is unknown: everything is requested again.
    talk.0.disconnected();
    talk.0.connected();
    talk.send_schema();
    let (params, _) = talk.expect("monitor_cond_since");
    assert_eq!((params[2]["Kid"][0].get("where"), &params[3]), (None, &json!(ovsdb::Uuid::ZERO.to_string())));
}

#[test]
fn refused_conditions_end_the_connection_and_old_servers_know_none() {
    let mut talk = TestSession::live();
    talk.0.set_condition("Kid", named("b"));
    let (_, id) = talk.expect("monitor_cond_change");
    assert!(talk.0.receive(Message::error(id, json!("no"))).is_err());

    let mut session = Session::new("T", &wanted(), None);
    session.set_condition("Kid", named("b"));
    session.connected();
    let mut talk = TestSession(session);
    talk.send_schema();
    for method in ["monitor_cond_since", "monitor_cond"] {
        let (_, id) = talk.expect(method);
        talk.0.receive(Message::error(id, json!("unknown method"))).unwrap();
    }
    let (params, id) = talk.expect("monitor");
    assert_eq!(params[2]["Kid"][0].get("where"), None);
    talk.reply(id, json!({}));
    assert!(talk.0.conditions_are_held());
    talk.0.set_condition("Kid", Condition::none());
    assert!(talk.0.conditions_are_held() && talk.0.take_outgoing().is_empty());
    assert!(schema().table("Kid").is_some());
}

#[test]
fn a_canceled_monitor_takes_the_request_for_conditions_with_it() {
    for answer in [Ok(json!({})), Err(json!("no such monitor"))] {
        let mut talk = TestSession::live();
        talk.0.set_condition("Kid", named("b"));
        let (_, id) = talk.expect("monitor_cond_change");
        talk.0.set_condition("Kid", named("c"));
        talk.notify("monitor_canceled", json!([["monid", "T"]])).unwrap();
        let answer = match answer {
            Ok(result) => Message::reply(id, result),
            Err(error) => Message::error(id, error),
        };
        talk.0.receive(answer).unwrap();
        talk.send_schema();
        let (params, id) = talk.expect("monitor_cond_since");
        assert_eq!(params[2]["Kid"][0]["where"], json!([["name", "==", "c"]]));
        talk.reply(id, json!([false, R, {}]));
        assert!(talk.0.conditions_are_held() && talk.0.take_outgoing().is_empty());
    }
}
