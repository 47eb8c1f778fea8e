//! Servers that copy from each other, joined by wires in memory that are cut at random: what a copy shows is always a
//! state that the source had, in the order in which it had them, and once all is quiet it is the last one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ovsdb::UuidSource;
use ovsdb::jsonrpc::Message;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::twin::{Op, transactions};
use super::{contents, read, schema};
use crate::storage::Nowhere;
use crate::{Access, Core, Excluded, LinkId, Now, Output, SessionId, Source};

/// One server, and the ends of its wires.
struct Node {
    core: Core,
    /// For each of its links: the connection's id here, the server at the other end, and the session's id there.
    up: BTreeMap<LinkId, (SessionId, usize, SessionId)>,
    /// What clients were sent.
    clients: BTreeMap<SessionId, Vec<Message>>,
    /// The states that could be seen, oldest first.
    states: Vec<Value>,
}

/// Servers and the messages between them. Sources are called `tcp:N:1`, by their numbers.
struct Net {
    nodes: Vec<Node>,
    /// Messages under way, by where they go: server and session. Each wire keeps its order.
    wires: BTreeMap<(usize, SessionId), VecDeque<Message>>,
    now: Now,
    ids: u64,
}

fn source(numbers: &[usize]) -> Source {
    let remotes: Vec<String> = numbers.iter().map(|number| format!("tcp:{number}:1")).collect();
    Source::parse(&remotes.join(",")).unwrap()
}

fn server(seed: u64) -> Core {
    Core::new(UuidSource::seeded(seed))
}

fn with_database(seed: u64) -> Core {
    let mut core = server(seed);
    core.add_database(&[schema().to_json()], Box::new(Nowhere), None, Now::default()).unwrap();
    core
}

impl Net {
    fn new(cores: Vec<Core>) -> Self {
        let node = |core| Node { core, up: BTreeMap::new(), clients: BTreeMap::new(), states: vec![] };
        let now = Now { monotonic_ms: 1000, unix_ms: 1_000_000 };
        let mut net = Net { nodes: cores.into_iter().map(node).collect(), wires: BTreeMap::new(), now, ids: 0 };
        (0..net.nodes.len()).for_each(|at| net.flush(at));
        net
    }

    fn active_and_backup() -> Self {
        let mut backup = with_database(2);
        backup.set_active_server(source(&[0]));
        backup.connect_active().unwrap();
        Self::new(vec![with_database(1), backup])
    }

    /// A source, and a chain of relays behind it.
    fn relays(count: usize) -> Self {
        let mut cores = vec![with_database(1)];
        for number in 0..count {
            let mut relay = server(2 + number as u64);
            relay.add_relay("T", source(&[number]), Now::default()).unwrap();
            cores.push(relay);
        }
        Self::new(cores)
    }

    fn flush(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let outputs = node.core.flush(self.now);
        let state = node.core.database("T").map_or(Value::Null, contents);
        if node.states.last() != Some(&state) {
            node.states.push(state);
        }
        for output in outputs {
            match read(output) {
                Output::Send(id, message) => self.send(at, id, message),
                Output::Write(..) => unreachable!("it was read"),
                Output::Close(id, _) => self.hang_up(at, id),
            }
        }
    }

    /// The other end of a connection, if it is one between servers.
    fn other_end(&self, at: usize, id: SessionId) -> Option<(usize, SessionId)> {
        let up = self.nodes[at].up.values().find(|(own, ..)| *own == id).map(|&(_, peer, session)| (peer, session));
        let down = || {
            let nodes = self.nodes.iter().enumerate();
            let mut ends = nodes.flat_map(|(number, node)| node.up.values().map(move |end| (number, *end)));
            ends.find(|(_, (_, peer, session))| *peer == at && *session == id).map(|(number, (own, ..))| (number, own))
        };
        up.or_else(down)
    }

    fn send(&mut self, at: usize, id: SessionId, message: Message) {
        match self.other_end(at, id) {
            Some(end) => self.wires.entry(end).or_default().push_back(message),
            None => self.nodes[at].clients.entry(id).or_default().push(message),
        }
    }

    /// One end closes a connection; what it sent before still arrives, and the other end is told at once after it.
    fn hang_up(&mut self, at: usize, id: SessionId) {
        let Some((peer, session)) = self.other_end(at, id) else { return };
        while self.deliver(peer, session) {}
        self.forget(at, id, peer, session);
        self.nodes[peer].core.disconnect(session);
        self.flush(peer);
    }

    fn forget(&mut self, at: usize, id: SessionId, peer: usize, session: SessionId) {
        self.wires.remove(&(at, id));
        self.wires.remove(&(peer, session));
        self.nodes[at].up.retain(|_, (own, ..)| *own != id);
        self.nodes[peer].up.retain(|_, (own, ..)| *own != session);
    }

    /// Cuts a server's connections to its sources: what was under way is lost.
    fn cut(&mut self, at: usize) {
        for (id, peer, session) in self.nodes[at].up.values().copied().collect::<Vec<_>>() {
            self.forget(at, id, peer, session);
            self.nodes[at].core.disconnect(id);
            self.nodes[peer].core.disconnect(session);
            self.flush(at);
            self.flush(peer);
        }
    }

    /// Connects a server to its sources, to the one that `choice` picks where there are several.
    fn connect(&mut self, at: usize, choice: usize) {
        let wanted: Vec<(LinkId, Source)> =
            self.nodes[at].core.sources().map(|(link, source)| (link, source.clone())).collect();
        for (link, source) in wanted {
            let remote = &source.remotes[choice % source.remotes.len()];
            let peer: usize = remote.split(':').nth(1).unwrap().parse().unwrap();
            if self.nodes[at].up.contains_key(&link) || peer >= self.nodes.len() {
                continue;
            }
            let Some(id) = self.nodes[at].core.source_connected(link) else { continue };
            let session = self.nodes[peer].core.connect(Access::default());
            self.nodes[at].up.insert(link, (id, peer, session));
            self.flush(at);
        }
    }

    /// Brings the next message of a wire to its end.
    fn deliver(&mut self, at: usize, id: SessionId) -> bool {
        let Some(message) = self.wires.get_mut(&(at, id)).and_then(VecDeque::pop_front) else { return false };
        self.nodes[at].core.message(id, message, self.now);
        self.flush(at);
        true
    }

    /// Brings a few messages to their ends.
    fn run(&mut self, count: usize) {
        for _ in 0..count {
            let next = self.wires.iter().find(|(_, wire)| !wire.is_empty()).map(|(&end, _)| end);
            let Some((at, id)) = next else { return };
            self.deliver(at, id);
        }
    }

    /// Lets all connections be made and all messages arrive.
    fn settle(&mut self) {
        for choice in 0..8 {
            (0..self.nodes.len()).for_each(|at| self.connect(at, choice));
            self.run(10_000);
        }
    }

    fn client(&mut self, at: usize) -> SessionId {
        self.nodes[at].core.connect(Access::default())
    }

    fn ask(&mut self, at: usize, client: SessionId, method: &str, params: Value) -> u64 {
        self.ids += 1;
        let Value::Array(params) = params else { panic!("parameters are an array") };
        self.nodes[at].core.message(client, Message::request(self.ids, method, params), self.now);
        self.flush(at);
        self.ids
    }

    fn transact(&mut self, at: usize, client: SessionId, operations: &[Value]) -> u64 {
        let params: Vec<Value> = std::iter::once(json!("T")).chain(operations.iter().cloned()).collect();
        self.ask(at, client, "transact", Value::from(params))
    }

    /// The answer to a request: its result, or its error.
    fn answer(&self, at: usize, client: SessionId, asked: u64) -> Option<Value> {
        self.nodes[at].clients.get(&client)?.iter().find_map(|message| match message {
            Message::Reply { id, result } if *id == asked => Some(result.clone()),
            Message::Error { id, error } if *id == asked => Some(error.clone()),
            _ => None,
        })
    }

    fn state(&self, at: usize) -> Value {
        self.nodes[at].core.database("T").map_or(Value::Null, contents)
    }

    /// The row of `_Server` about T: model, connected, leader, and whether there is a schema.
    fn described(&mut self, at: usize) -> Value {
        let client = self.client(at);
        let columns = ["model", "connected", "leader", "schema"];
        let select = json!({"op": "select", "table": "Database", "where": [["name", "==", "T"]], "columns": columns});
        let asked = self.ask(at, client, "transact", json!(["_Server", select]));
        let row = self.answer(at, client, asked).unwrap()[0]["rows"][0].clone();
        json!([row["model"], row["connected"], row["leader"], row["schema"].is_string()])
    }
}

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

/// What happens between transactions: how many messages arrive, and whether connections are cut and made.
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

/// Values that may stand anywhere in a message.
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
        // What was said is believed if it can be; only a new conversation need bring the truth.
        net.cut(1);
        net.nodes[1].core.distrust_sources();
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
    // The client was cut off, as it does not understand that there is a schema now.
    let client = net.client(1);
    net.ask(1, client, "monitor", json!(["T", "m", {"root": [{"columns": ["name"]}]}]));
    let asked = net.transact(1, client, &[insert("a"), json!({"op": "comment", "comment": "why"})]);
    assert_eq!(net.answer(1, client, asked), None);
    net.run(100);
    assert!(net.answer(1, client, asked).unwrap()[0]["uuid"].is_array());
    assert_eq!(names(&net.state(0)), names(&net.state(1)));
    // The change is told before the answer.
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
fn who_has_a_role_may_only_read_at_a_relay() {
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
fn a_wait_at_a_relay_is_the_sources_to_do() {
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
    // It can be canceled, and when the connection is lost nobody knows what became of it.
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
    // What comes while there is no source waits for one, and is done once.
    let early = net.transact(1, client, &[insert("z")]);
    assert_eq!(net.answer(1, client, early), None);
    net.settle();
    assert!(net.answer(1, client, early).unwrap()[0]["uuid"].is_array());
    assert_eq!(names(&net.state(1)), ["z".to_owned()].into());
    assert_eq!(net.state(1), net.state(0));
}

#[test]
fn a_relay_that_comes_back_gets_only_the_difference() {
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
    // Even when a client of the last relay asks for it.
    let last = net.client(2);
    net.ask(2, last, "convert", json!(["T", changed]));
    net.settle();
    for at in 0..3 {
        assert_eq!(net.nodes[at].core.database("T").unwrap().schema().version, "2.0.0");
        assert_eq!(names(&net.state(at)), ["a".to_owned()].into());
    }
}

#[test]
fn a_backup_may_only_be_read() {
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
    // After the switch-over its clients must connect anew, and may change it; the copy stays.
    let active = net.client(0);
    net.transact(0, active, &[insert("kept")]);
    net.run(100);
    net.nodes[1].core.disconnect_active();
    net.flush(1);
    assert!(!net.nodes[1].core.has_session(client));
    assert_eq!(net.nodes[1].core.sync_status(), "state: active\n");
    let client = net.client(1);
    net.transact(1, client, &[insert("own")]);
    assert_eq!(names(&net.state(1)), ["kept".to_owned(), "own".to_owned()].into());
    // As a backup again it loses what the active server does not have.
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
    net.nodes[1].core.set_excluded(Excluded::parse("T:root,T:needy,U:x").unwrap());
    net.nodes[1].core.connect_active().unwrap();
    net.flush(1);
    net.settle();
    assert_eq!(names(&net.state(1)), ["ours".to_owned()].into());
    let expected = "state: backup\nreplicating: tcp:0:1\ndatabase: T\nexclude: T:needy,T:root\n";
    assert_eq!(net.nodes[1].core.sync_status(), expected);
    // References into a table that is not copied cannot be; that is said.
    net.nodes[1].core.set_excluded(Excluded::parse("T:root").unwrap());
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
    assert!(status(1).contains("the schemas do not match"), "{}", status(1));
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
fn what_could_not_be_applied_is_not_counted_as_known() {
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
