//! Sessions against the core of our server: for any order of events, the replica equals the database under its
//! conditions once all messages have arrived.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ovsdb::condition::Function;
use ovsdb::jsonrpc::Message;
use ovsdb::{DatabaseSchema, Datum, Uuid, UuidSource};
use ovsdb_server::storage::Nowhere;
use ovsdb_server::{Access, Core, Now, Output, SessionId};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::session::TransactReply;
use crate::{Changes, Clause, Condition, Outcome, Session, Wanted};

fn schema() -> Value {
    json!({ "name": "T", "version": "1.0.0", "tables": {
        "Data": { "isRoot": true, "columns": {
            "name": { "type": "string" },
            "number": { "type": "integer" },
            "tags": { "type": { "key": "integer", "min": 0, "max": "unlimited" } },
            "map": { "type": { "key": "string", "value": "integer", "min": 0, "max": "unlimited" } },
            "friend": { "type": { "key": { "type": "uuid", "refTable": "Data", "refType": "weak" }, "min": 0 } } } },
        "Other": { "isRoot": true, "columns": { "name": { "type": "string" } } } } })
}

/// Number of transactions that a server remembers for reconnecting clients.
const HISTORY: usize = 100;

/// The version of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerVersion {
    New,
    WithoutSince,
    WithoutConditions,
}

/// A client, its connection if it has one, and its messages in transit.
struct Client {
    session: Session,
    connection: Option<SessionId>,
    to_server: VecDeque<Message>,
    to_client: VecDeque<Message>,
}

/// A server with clients.
struct World {
    core: Core,
    age: ServerVersion,
    clients: Vec<Client>,
    /// A client that sends single transactions.
    hand: SessionId,
    ids: u64,
    now: Now,
}

impl World {
    fn new(age: ServerVersion, clients: usize) -> Self {
        let mut core = Core::new(UuidSource::seeded(1));
        let now = Now { monotonic_ms: 1000, unix_ms: 1_000_000 };
        core.host(ovsdb_server::load(&[schema()]).unwrap(), Box::new(Nowhere), None, now).unwrap();
        let hand = core.connect(Access::default());
        let wanted = Wanted::everything(&DatabaseSchema::from_json(&schema()).unwrap());
        let clients = (0..clients).map(|_| Client {
            session: Session::new("T", &wanted, None),
            connection: None,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        });
        Self { core, age, clients: clients.collect(), hand, ids: 0, now }
    }

    /// Delivers the server's messages to the queues of their receivers.
    fn flush(&mut self) {
        for output in self.core.flush(self.now) {
            let (to, message) = match output {
                Output::Send(to, message) => (to, message),
                Output::Write(to, text) => {
                    let bytes = [&text.head, &*text.body, text.tail].concat();
                    (to, Message::from_json(serde_json::from_slice(&bytes).unwrap()).unwrap())
                }
                other => panic!("{other:?}"),
            };
            if let Some(client) = self.clients.iter_mut().find(|client| client.connection == Some(to)) {
                client.to_client.push_back(message);
            }
        }
    }

    fn connect(&mut self, at: usize) {
        if self.clients[at].connection.is_none() {
            self.clients[at].connection = Some(self.core.connect(Access::default()));
            self.clients[at].session.connected();
        }
    }

    fn cut(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if let Some(connection) = client.connection.take() {
            self.core.disconnect(connection);
            client.session.disconnected();
            client.to_server.clear();
            client.to_client.clear();
        }
    }

    /// Delivers one message in one direction; returns whether there was one.
    fn deliver(&mut self, at: usize, to_server: bool) -> bool {
        let client = &mut self.clients[at];
        client.to_server.extend(client.session.take_outgoing());
        let Some(connection) = client.connection else { return false };
        if !to_server {
            let Some(message) = client.to_client.pop_front() else { return false };
            client.session.receive(message).unwrap();
            return true;
        }
        let Some(message) = client.to_server.pop_front() else { return false };
        let unknown = match (self.age, message.method()) {
            (ServerVersion::New, _) => false,
            (_, Some("monitor_cond_since")) => true,
            (ServerVersion::WithoutConditions, Some("monitor_cond" | "monitor_cond_change")) => true,
            _ => false,
        };
        if let (true, Message::Request { id, .. }) = (unknown, &message) {
            client.to_client.push_back(Message::error(id.clone(), json!({ "error": "unknown method" })));
        } else {
            self.core.message(connection, message, self.now);
            self.flush();
        }
        true
    }

    /// Until nothing is on its way.
    fn settle(&mut self) {
        for at in 0..self.clients.len() {
            self.connect(at);
        }
        while (0..self.clients.len()).any(|at| self.deliver(at, true) || self.deliver(at, false)) {}
    }

    fn transact(&mut self, operations: &[Value]) {
        self.ids += 1;
        let params = [json!("T")].into_iter().chain(operations.iter().cloned()).collect();
        self.core.message(self.hand, Message::request(self.ids, "transact", params), self.now);
        self.flush();
    }

    /// The columns of the rows of a table for which `holds`.
    fn contents(&self, table: &str, holds: impl Fn(&Columns) -> bool) -> BTreeMap<Uuid, Columns> {
        let database = self.core.database("T").unwrap();
        let index = database.schema().table_index(table).unwrap();
        let columns: Vec<_> = database.schema().table(table).unwrap().own_columns().collect();
        let rows = database.rows(index).map(|row| {
            let value =
                |(at, column): &(usize, &ovsdb::ColumnSchema)| (column.name.clone(), row.column(*at).unwrap().clone());
            (row.uuid(), columns.iter().map(value).collect::<Columns>())
        });
        rows.filter(|(_, columns)| holds(columns)).collect()
    }

    /// The same, of a client's replica.
    fn replica(&self, at: usize, table: &str) -> BTreeMap<Uuid, Columns> {
        let table = self.clients[at].session.replica().table(table).unwrap();
        let rows = self.clients[at].session.replica().rows(table.name()).map(|row| {
            let value = |column: &crate::Column| (column.name().to_owned(), row.datum(column.name()).unwrap().clone());
            (row.uuid(), table.columns().iter().map(value).collect())
        });
        rows.collect()
    }
}

type Columns = BTreeMap<String, Datum>;

/// A condition, for the server and for evaluation here.
#[derive(Debug, Clone)]
enum Chosen {
    All,
    None,
    Named(Vec<String>),
    Above(i64),
    Tagged(i64),
}

impl Chosen {
    fn condition(&self) -> Condition {
        let one = |clause| Condition::AnyOf(vec![clause]);
        match self {
            Chosen::All => Condition::All,
            Chosen::None => Condition::none(),
            Chosen::Named(names) => {
                let clause = |name: &String| Clause::new("name", Function::Equal, name.as_str());
                Condition::AnyOf(names.iter().map(clause).collect())
            }
            Chosen::Above(number) => one(Clause::new("number", Function::Greater, *number)),
            Chosen::Tagged(tag) => one(Clause::new("tags", Function::Includes, *tag)),
        }
    }

    fn holds(&self, row: &Columns) -> bool {
        match self {
            Chosen::All => true,
            Chosen::None => false,
            Chosen::Named(names) => names.iter().any(|name| row["name"].as_str() == Some(name)),
            Chosen::Above(number) => row["number"].as_integer().unwrap() > *number,
            Chosen::Tagged(tag) => row["tags"].keys().iter().any(|key| key.as_integer() == Some(*tag)),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Transact(Vec<Value>),
    Choose(Chosen),
    /// Delivers some messages in each direction.
    Deliver(Vec<bool>),
    Connect,
    Cut,
    /// Runs more transactions than the server's history holds.
    Busy,
    Settle,
}

fn operation() -> impl Strategy<Value = Value> {
    let name = || "[a-c]";
    prop_oneof![
        3 => (name(), 0..4i64, proptest::collection::btree_set(0..4i64, 0..3)).prop_map(|(name, number, tags)| {
            let row = json!({ "name": name, "number": number, "tags": ["set", tags] });
            json!({ "op": "insert", "table": "Data", "row": row, "uuid-name": "made" })
        }),
        1 => name().prop_map(|name| json!({ "op": "insert", "table": "Other", "row": { "name": name } })),
        1 => name().prop_map(|name| json!({ "op": "delete", "table": "Data", "where": [["name", "==", name]] })),
        2 => (0..4i64, name(), 0..4i64).prop_map(|(at, name, number)| json!({
            "op": "update", "table": "Data", "where": [["number", "==", at]], "row": { "name": name, "number": number } })),
        2 => (name(), any::<bool>(), 0..4i64).prop_map(|(name, add, tag)| json!({
            "op": "mutate", "table": "Data", "where": [["name", "==", name]],
            "mutations": [["tags", if add { "insert" } else { "delete" }, ["set", [tag]]]] })),
        1 => (name(), name(), 0..4i64).prop_map(|(name, key, value)| json!({
            "op": "mutate", "table": "Data", "where": [["name", "==", name]],
            "mutations": [["map", "delete", ["set", [key.clone()]]], ["map", "insert", ["map", [[key, value]]]]] })),
        1 => name().prop_map(|name| json!({
            "op": "update", "table": "Data", "where": [["name", "==", name]], "row": { "friend": ["named-uuid", "made"] } })),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let chosen = prop_oneof![
        Just(Chosen::All),
        Just(Chosen::None),
        proptest::collection::vec("[a-c]", 1..3).prop_map(Chosen::Named),
        (0..3i64).prop_map(Chosen::Above),
        (0..4i64).prop_map(Chosen::Tagged),
    ];
    // An insertion first, so that `made` is a row.
    let transaction = (operation(), proptest::collection::vec(operation(), 0..3)).prop_map(|(first, mut rest)| {
        rest.retain(|other| first["op"] == "insert" && first["table"] == "Data" && other["op"] != "insert");
        Step::Transact([vec![first], rest].concat())
    });
    prop_oneof![
        4 => transaction,
        2 => chosen.prop_map(Step::Choose),
        3 => proptest::collection::vec(any::<bool>(), 1..6).prop_map(Step::Deliver),
        1 => Just(Step::Connect),
        1 => Just(Step::Cut),
        1 => Just(Step::Busy),
        1 => Just(Step::Settle),
    ]
}

fn age() -> impl Strategy<Value = ServerVersion> {
    prop_oneof![4 => Just(ServerVersion::New), 1 => Just(ServerVersion::WithoutSince), 1 => Just(ServerVersion::WithoutConditions)]
}

#[test]
fn of_two_conflicting_transactions_one_is_retried() {
    let mut world = World::new(ServerVersion::New, 2);
    world.transact(&[json!({ "op": "insert", "table": "Data", "row": { "name": "count" } })]);
    world.settle();
    let sent: Vec<(Changes, Vec<Value>)> = (0..2)
        .map(|at| {
            let session = &mut world.clients[at].session;
            let replica = session.replica();
            let uuid = replica.rows("Data").next().unwrap().uuid();
            let mut changes = Changes::new();
            changes.verify(replica, "Data", uuid, "number");
            changes.set(replica, "Data", uuid, "number", 1);
            let operations = changes.operations(replica, None).unwrap();
            session.transact(&operations);
            (changes, operations)
        })
        .collect();
    world.settle();
    let mut outcomes = Vec::new();
    for (at, (changes, operations)) in sent.iter().enumerate() {
        let Some(TransactReply::Results(results)) = world.clients[at].session.take_transact_reply() else {
            panic!("no reply")
        };
        outcomes.push(changes.outcome(operations, &results).unwrap());
    }
    assert!(matches!(outcomes.as_slice(), [Outcome::Committed(_), Outcome::TryAgain]), "{outcomes:?}");
}

tally::proptest! {
    #[test]
    fn the_replica_is_the_database(age in age(), steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = World::new(age, 1);
        let mut chosen = Chosen::All;
        for step in steps.into_iter().chain([Step::Settle]) {
            match step {
                Step::Transact(operations) => world.transact(&operations),
                Step::Choose(new) => {
                    chosen = new;
                    world.clients[0].session.set_condition("Data", chosen.condition());
                }
                Step::Deliver(directions) => {
                    for to_server in directions {
                        world.deliver(0, to_server);
                    }
                }
                Step::Connect => world.connect(0),
                Step::Cut => world.cut(0),
                Step::Busy => {
                    for _ in 0..=(HISTORY / 2) {
                        world.transact(&[json!({ "op": "insert", "table": "Other", "row": { "name": "busy" } })]);
                        let busy = json!([["name", "==", "busy"]]);
                        world.transact(&[json!({ "op": "delete", "table": "Other", "where": busy })]);
                    }
                }
                Step::Settle => {
                    world.settle();
                    let session = &world.clients[0].session;
                    prop_assert!(session.is_live() && session.conditions_are_held());
                    let seen = |row: &Columns| age == ServerVersion::WithoutConditions || chosen.holds(row);
                    prop_assert_eq!(world.replica(0, "Data"), world.contents("Data", seen));
                    prop_assert_eq!(world.replica(0, "Other"), world.contents("Other", |_| true));
                }
            }
        }
    }

    /// Clients increment a value that they have read, and retry on a conflict: no increment is lost, and none is
    /// applied twice.
    #[test]
    fn verified_changes_wait_for_the_values_read(turns in proptest::collection::vec((0..3usize, 0..3u8), 1..120)) {
        let mut world = World::new(ServerVersion::New, 3);
        world.transact(&[json!({ "op": "insert", "table": "Data", "row": { "name": "count" } })]);
        world.settle();
        let mut waiting: BTreeMap<usize, (Changes, Vec<Value>)> = BTreeMap::new();
        let (mut committed, mut refused, mut sent) = (0, 0, 0);
        let mut take_reply = |world: &mut World, waiting: &mut BTreeMap<usize, (Changes, Vec<Value>)>, at: usize| {
            if let Some(TransactReply::Results(results)) = world.clients[at].session.take_transact_reply() {
                let (changes, operations) = waiting.remove(&at).expect("replies are to what was sent");
                match changes.outcome(&operations, &results).unwrap() {
                    Outcome::Committed(_) => committed += 1,
                    Outcome::TryAgain => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
        };
        for (at, what) in turns {
            match what {
                0 if !waiting.contains_key(&at) => {
                    let session = &mut world.clients[at].session;
                    let replica = session.replica();
                    let row = replica.rows("Data").next().unwrap();
                    let (uuid, number) = (row.uuid(), row.integer("number"));
                    let mut changes = Changes::new();
                    changes.verify(replica, "Data", uuid, "number");
                    changes.set(replica, "Data", uuid, "number", number + 1);
                    let operations = changes.operations(replica, None).unwrap();
                    session.transact(&operations);
                    sent += 1;
                    waiting.insert(at, (changes, operations));
                }
                other => {
                    world.deliver(at, other != 2);
                    take_reply(&mut world, &mut waiting, at);
                }
            }
        }
        world.settle();
        for at in 0..3 {
            take_reply(&mut world, &mut waiting, at);
        }
        prop_assert!(waiting.is_empty());
        let counts: BTreeSet<i64> = (0..3).map(|at| world.clients[at].session.replica().rows("Data").next().unwrap().integer("number")).collect();
        prop_assert_eq!(counts, BTreeSet::from([committed]));
        prop_assert_eq!(committed + refused, sent);
    }
}
