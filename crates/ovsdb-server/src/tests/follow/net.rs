//! Servers that are joined by wires in memory, which can be cut.

use std::collections::{BTreeMap, VecDeque};

use ovsdb::UuidSource;
use ovsdb::jsonrpc::Message;
use serde_json::{Value, json};

use super::super::{contents, read, schema};
use crate::storage::Nowhere;
use crate::{Access, Core, LinkId, Now, Output, SessionId, Source};

/// One server, and the ends of its links.
pub(super) struct Node {
    pub(super) core: Core,
    /// For each of its links: the connection's id here, the server at the other end, and the session's id there.
    pub(super) up: BTreeMap<LinkId, (SessionId, usize, SessionId)>,
    /// Messages sent to clients.
    pub(super) clients: BTreeMap<SessionId, Vec<Message>>,
    /// The states that could be seen, oldest first.
    pub(super) states: Vec<Value>,
}

/// Servers and the messages between them. Sources are called `tcp:N:1`, by their numbers.
pub(super) struct Net {
    pub(super) nodes: Vec<Node>,
    /// Messages in transit, by destination: server and session. Each link keeps its order.
    pub(super) wires: BTreeMap<(usize, SessionId), VecDeque<Message>>,
    pub(super) now: Now,
    pub(super) ids: u64,
}

pub(super) fn source(numbers: &[usize]) -> Source {
    let remotes: Vec<String> = numbers.iter().map(|number| format!("tcp:{number}:1")).collect();
    Source::parse(&remotes.join(",")).unwrap()
}

pub(super) fn server(seed: u64) -> Core {
    Core::new(UuidSource::seeded(seed))
}

pub(super) fn with_database(seed: u64) -> Core {
    let mut core = server(seed);
    core.add_database(&[schema().to_json()], Box::new(Nowhere), None, Now::default()).unwrap();
    core
}

impl Net {
    pub(super) fn new(cores: Vec<Core>) -> Self {
        let node = |core| Node { core, up: BTreeMap::new(), clients: BTreeMap::new(), states: vec![] };
        let now = Now { monotonic_ms: 1000, unix_ms: 1_000_000 };
        let mut net = Net { nodes: cores.into_iter().map(node).collect(), wires: BTreeMap::new(), now, ids: 0 };
        (0..net.nodes.len()).for_each(|at| net.flush(at));
        net
    }

    pub(super) fn active_and_backup() -> Self {
        let mut backup = with_database(2);
        backup.set_active_server(source(&[0]));
        backup.connect_active().unwrap();
        Self::new(vec![with_database(1), backup])
    }

    /// A source, and a chain of relays behind it.
    pub(super) fn relays(count: usize) -> Self {
        let mut cores = vec![with_database(1)];
        for number in 0..count {
            let mut relay = server(2 + number as u64);
            relay.add_relay("T", source(&[number]), Now::default()).unwrap();
            cores.push(relay);
        }
        Self::new(cores)
    }

    pub(super) fn flush(&mut self, at: usize) {
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
    pub(super) fn other_end(&self, at: usize, id: SessionId) -> Option<(usize, SessionId)> {
        let up = self.nodes[at].up.values().find(|(own, ..)| *own == id).map(|&(_, peer, session)| (peer, session));
        let down = || {
            let nodes = self.nodes.iter().enumerate();
            let mut ends = nodes.flat_map(|(number, node)| node.up.values().map(move |end| (number, *end)));
            ends.find(|(_, (_, peer, session))| *peer == at && *session == id).map(|(number, (own, ..))| (number, own))
        };
        up.or_else(down)
    }

    pub(super) fn send(&mut self, at: usize, id: SessionId, message: Message) {
        match self.other_end(at, id) {
            Some(end) => self.wires.entry(end).or_default().push_back(message),
            None => self.nodes[at].clients.entry(id).or_default().push(message),
        }
    }

    /// One end closes a connection; sent messages still arrive, and the other end sees the end directly after them.
    pub(super) fn hang_up(&mut self, at: usize, id: SessionId) {
        let Some((peer, session)) = self.other_end(at, id) else { return };
        while self.deliver(peer, session) {}
        self.forget(at, id, peer, session);
        self.nodes[peer].core.disconnect(session);
        self.flush(peer);
    }

    pub(super) fn forget(&mut self, at: usize, id: SessionId, peer: usize, session: SessionId) {
        self.wires.remove(&(at, id));
        self.wires.remove(&(peer, session));
        self.nodes[at].up.retain(|_, (own, ..)| *own != id);
        self.nodes[peer].up.retain(|_, (own, ..)| *own != session);
    }

    /// Cuts a server's connections to its sources: messages in transit are lost.
    pub(super) fn cut(&mut self, at: usize) {
        for (id, peer, session) in self.nodes[at].up.values().copied().collect::<Vec<_>>() {
            self.forget(at, id, peer, session);
            self.nodes[at].core.disconnect(id);
            self.nodes[peer].core.disconnect(session);
            self.flush(at);
            self.flush(peer);
        }
    }

    /// Connects a server to its sources, to the one that `choice` picks where there are several.
    pub(super) fn connect(&mut self, at: usize, choice: usize) {
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
    pub(super) fn deliver(&mut self, at: usize, id: SessionId) -> bool {
        let Some(message) = self.wires.get_mut(&(at, id)).and_then(VecDeque::pop_front) else { return false };
        self.nodes[at].core.message(id, message, self.now);
        self.flush(at);
        true
    }

    /// Delivers a few messages.
    pub(super) fn run(&mut self, count: usize) {
        for _ in 0..count {
            let next = self.wires.iter().find(|(_, wire)| !wire.is_empty()).map(|(&end, _)| end);
            let Some((at, id)) = next else { return };
            self.deliver(at, id);
        }
    }

    /// Makes all connections and delivers all messages.
    pub(super) fn settle(&mut self) {
        for choice in 0..8 {
            (0..self.nodes.len()).for_each(|at| self.connect(at, choice));
            self.run(10_000);
        }
    }

    pub(super) fn client(&mut self, at: usize) -> SessionId {
        self.nodes[at].core.connect(Access::default())
    }

    pub(super) fn ask(&mut self, at: usize, client: SessionId, method: &str, params: Value) -> u64 {
        self.ids += 1;
        let Value::Array(params) = params else { panic!("parameters are an array") };
        self.nodes[at].core.message(client, Message::request(self.ids, method, params), self.now);
        self.flush(at);
        self.ids
    }

    pub(super) fn transact(&mut self, at: usize, client: SessionId, operations: &[Value]) -> u64 {
        let params: Vec<Value> = std::iter::once(json!("T")).chain(operations.iter().cloned()).collect();
        self.ask(at, client, "transact", Value::from(params))
    }

    /// The answer to a request: its result, or its error.
    pub(super) fn answer(&self, at: usize, client: SessionId, asked: u64) -> Option<Value> {
        self.nodes[at].clients.get(&client)?.iter().find_map(|message| match message {
            Message::Reply { id, result } if *id == asked => Some(result.clone()),
            Message::Error { id, error } if *id == asked => Some(error.clone()),
            _ => None,
        })
    }

    pub(super) fn state(&self, at: usize) -> Value {
        self.nodes[at].core.database("T").map_or(Value::Null, contents)
    }

    /// The row of `_Server` about T: model, connected, leader, and whether there is a schema.
    pub(super) fn described(&mut self, at: usize) -> Value {
        let client = self.client(at);
        let columns = ["model", "connected", "leader", "schema"];
        let select = json!({"op": "select", "table": "Database", "where": [["name", "==", "T"]], "columns": columns});
        let asked = self.ask(at, client, "transact", json!(["_Server", select]));
        let row = self.answer(at, client, asked).unwrap()[0]["rows"][0].clone();
        json!([row["model"], row["connected"], row["leader"], row["schema"].is_string()])
    }
}
