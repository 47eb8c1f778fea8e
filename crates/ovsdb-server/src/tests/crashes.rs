//! A server that crashes: random transactions, batched as the shell batches them, over a file, during compactions
//! that run in threads of their own. The process is dropped at any point, also between any two steps of the end of a
//! compaction; the file is truncated anywhere after its synced part, with garbage behind it, and opened again.
//! Acknowledged transactions survive, the others up to some point in their order, and every monitor's replica equals
//! the naive twin.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ovsdb::Datum;
use ovsdb::jsonrpc::Message;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::replica::{Replica, Rows};
use super::twin::{Op, Row, TABLES, Twin, transactions};
use super::{Bench, schema};
use crate::file::FileStorage;
use crate::file::snapshot_writer::{Installation, Step};
use crate::log::Record;
use crate::storage::{SnapshotWriter, Storage};
use crate::{Compacted, Output, SessionId};

/// The event at a transaction's position in the run.
#[derive(Debug, Clone)]
enum Fate {
    /// Sent and flushed.
    Flush,
    /// Sent, and flushed together with a later one.
    Wait,
    /// Before it, the log is compacted.
    Compact,
    /// Before it, a thread begins a compaction.
    Begin,
    /// Before it, the thread's new log replaces the old one, or fails to.
    End(End),
    /// The disk is full at it.
    NoRoom,
    /// The monitors' conditions change before it.
    Conditions(i64),
    /// The process crashes after it, and this share of the unsynced part stays, followed by these bytes.
    Crash(u16, Vec<u8>),
}

/// How a new log replaces the old one.
#[derive(Debug, Clone)]
enum End {
    Whole,
    /// This step fails.
    Fails(Step),
    /// The process crashes before this step. This one of the possible logs is found; this share of its unsynced part
    /// stays, followed by these bytes.
    Crashes(Step, prop::sample::Index, u16, Vec<u8>),
}

fn end() -> impl Strategy<Value = End> {
    let step = || prop_oneof![Just(Step::Copy), Just(Step::Sync), Just(Step::Rename)];
    let any_step = prop_oneof![step(), Just(Step::SyncDirectory)];
    prop_oneof![
        2 => Just(End::Whole),
        1 => step().prop_map(End::Fails),
        2 => (any_step, any::<prop::sample::Index>(), any::<u16>(), proptest::collection::vec(any::<u8>(), 0..10))
            .prop_map(|(step, which, share, tail)| End::Crashes(step, which, share, tail)),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    let garbage = proptest::collection::vec(any::<u8>(), 0..40);
    let header = Just(b"OVSDB JSON 20 0123456789012345678901234567890123456789\n{}".to_vec());
    prop_oneof![
        4 => Just(Fate::Flush),
        4 => Just(Fate::Wait),
        1 => Just(Fate::Compact),
        3 => Just(Fate::Begin),
        2 => end().prop_map(Fate::End),
        1 => Just(Fate::NoRoom),
        1 => (0i64..100).prop_map(Fate::Conditions),
        3 => (any::<u16>(), prop_oneof![2 => Just(Vec::new()), 1 => garbage, 1 => header])
            .prop_map(|(share, tail)| Fate::Crash(share, tail)),
    ]
}

/// The tests' record of a file, hidden from the server.
#[derive(Debug, Default)]
struct Seen {
    synced: u64,
    refuse: bool,
    /// The step before which the replacement stops.
    stop: Option<Step>,
    /// The logs that may be found after a crash there, and how much of each is durable.
    found: Vec<(Vec<u8>, usize)>,
}

/// A file that records its synced length and can be full.
struct Watched(FileStorage, Arc<Mutex<Seen>>);

impl Watched {
    /// Takes the steps as the storage itself does, and records the file on disk between them.
    fn install_by_steps(&mut self, seen: &mut Seen) -> std::io::Result<()> {
        let path = self.0.path().to_owned();
        let mut installation: Installation = self.0.installation()?;
        let mut synced = 0;
        seen.found = vec![(std::fs::read(&path).unwrap(), seen.synced as usize)];
        loop {
            let step = installation.next();
            if seen.stop == Some(step) {
                return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
            }
            let next = self.0.step(&mut installation)?;
            match step {
                Step::Copy => {}
                Step::Sync => synced = installation.file().unwrap().metadata().unwrap().len() as usize,
                Step::Rename => seen.found.push((std::fs::read(&path).unwrap(), synced)),
                Step::SyncDirectory => _ = seen.found.remove(0),
            }
            if next.is_none() {
                assert_eq!(synced as u64, self.0.length());
                seen.synced = self.0.length();
                return Ok(());
            }
        }
    }
}

impl Storage for Watched {
    fn append(&mut self, record: &Record) -> std::io::Result<()> {
        if std::mem::take(&mut self.1.lock().unwrap().refuse) {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        self.0.append(record)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.0.sync()?;
        self.1.lock().unwrap().synced = self.0.length();
        Ok(())
    }

    fn snapshot_writer(&mut self) -> Box<dyn SnapshotWriter> {
        self.0.snapshot_writer()
    }

    fn install(&mut self) -> std::io::Result<()> {
        let seen = Arc::clone(&self.1);
        self.install_by_steps(&mut seen.lock().unwrap())
    }

    fn discard(&mut self) {
        self.0.discard();
    }

    fn length(&self) -> u64 {
        self.0.length()
    }
}

/// A monitor's condition on a row.
type Wants = fn(table: usize, row: &Row, least: i64) -> bool;

/// A monitor and the replica that it feeds.
struct Watch {
    method: &'static str,
    columns: &'static [(&'static str, &'static [&'static str])],
    wants: Wants,
    replica: Replica,
}

const ROOT: &[&str] = &["name", "number", "kids", "friend", "map", "gone"];

fn watches() -> [Watch; 4] {
    let watch = |method, columns, wants| Watch { method, columns, wants, replica: Replica::new(columns) };
    let big: Wants = |table, row, least| table != 0 || row["number"].as_integer().unwrap() >= least;
    let named: Wants = |table, row, _| table != 1 || matches!(row["name"].as_str(), Some("a" | "b"));
    [
        watch("monitor", &[("root", ROOT), ("kid", &["name", "sub", "owner"]), ("needy", &["of"])], |_, _, _| true),
        watch("monitor_cond", &[("root", &["number", "kids", "gone"]), ("needy", &["of"])], big),
        watch("monitor_cond", &[("kid", &["sub"])], named),
        watch("monitor_cond_since", &[("root", ROOT), ("kid", &["owner"])], big),
    ]
}

impl Watch {
    fn requests(&self, least: i64) -> Value {
        let mut requests = json!({});
        for (table, columns) in self.columns {
            let mut request = json!({ "columns": columns });
            match (self.method, *table) {
                ("monitor", _) => {}
                (_, "root") => request["where"] = json!([["number", ">=", least]]),
                ("monitor_cond", "kid") => request["where"] = json!([["name", "==", "a"], ["name", "==", "b"]]),
                _ => {}
            }
            requests[*table] = json!([request]);
        }
        requests
    }

    /// The expected contents of the replica.
    fn expected(&self, twin: &Twin, least: i64) -> Rows {
        let mut rows = Rows::new();
        for ((table, uuid), row) in &twin.rows {
            let Some((name, columns)) = self.columns.iter().find(|(name, _)| *name == TABLES[*table]) else { continue };
            if (self.wants)(*table, row, least) {
                let values = columns.iter().map(|column| ((*column).to_owned(), row[column].clone())).collect();
                rows.insert(((*name).to_owned(), uuid.to_string()), values);
            }
        }
        rows
    }
}

/// A running server, and its expected state.
struct World {
    path: PathBuf,
    seen: Arc<Mutex<Seen>>,
    bench: Bench,
    /// The compaction thread.
    compaction: Option<JoinHandle<Compacted>>,
    /// The file left by a compaction before the crash.
    left: Option<Vec<u8>>,
    sessions: [SessionId; 3],
    watches: [Watch; 4],
    least: i64,
    /// The last state that must be there after a crash, and the states after each transaction since.
    states: Vec<Twin>,
    /// Transactions that were sent: their ids, and whether they must succeed.
    sent: Vec<(i64, bool)>,
}

impl World {
    /// Opens the file and starts all monitors.
    fn open(path: PathBuf, least: i64, time_s: u64) -> (Self, bool) {
        let opened = FileStorage::open(&path, time_s).unwrap();
        let synced = opened.storage.length();
        let seen = Arc::new(Mutex::new(Seen { synced, ..Seen::default() }));
        let storage = Box::new(Watched(opened.storage, Arc::clone(&seen)));
        let mut bench = Bench::with_database(opened.database.unwrap(), storage);
        let sessions = [bench.connect(), bench.connect(), bench.connect()];
        let mut watches = watches();
        for (at, watch) in watches.iter_mut().enumerate() {
            let mut params = json!(["T", at, watch.requests(least)]);
            if watch.method == "monitor_cond_since" {
                params.as_array_mut().unwrap().push(json!(ovsdb::Uuid::ZERO.to_string()));
            }
            let reply = bench.call(sessions[2], watch.method, params);
            match watch.method {
                "monitor" => watch.replica.update_v1(&reply),
                "monitor_cond" => watch.replica.update_v2(&reply),
                _ => watch.replica.update_v2(&reply[2]),
            }
        }
        let (states, sent) = (Vec::new(), Vec::new());
        let world = Self { path, seen, bench, compaction: None, left: None, sessions, watches, least, states, sent };
        (world, opened.recovered.is_some())
    }

    fn send(&mut self, at: usize, ops: &[Op]) {
        let operations: Vec<Value> = ops.iter().map(Op::to_json).collect();
        let params: Vec<Value> = std::iter::once(json!("T")).chain(operations).collect();
        let refused = self.seen.lock().unwrap().refuse;
        let id = self.bench.send(self.sessions[at % 2], "transact", Value::from(params));
        let no_room = refused && !self.seen.lock().unwrap().refuse;
        self.seen.lock().unwrap().refuse = false;
        let next = self.states.last().unwrap().run(ops).filter(|_| !no_room);
        self.sent.push((id, next.is_some()));
        self.states.extend(next);
    }

    /// Flushes, and checks the replies and every replica.
    fn flush(&mut self) {
        let outputs = self.bench.flush();
        let mut replies = Vec::new();
        for output in &outputs {
            match output {
                Output::Send(_, Message::Reply { id, result }) => {
                    let results = result.as_array().unwrap();
                    let failed = results.iter().any(|result| result.is_null() || result.get("error").is_some());
                    replies.push((id.as_i64().unwrap(), !failed));
                }
                Output::Send(_, Message::Notification { method, params }) => {
                    let watch = &mut self.watches[params[0].as_u64().unwrap() as usize];
                    match method.as_str() {
                        "update" => watch.replica.update_v1(&params[1]),
                        "update2" => watch.replica.update_v2(&params[1]),
                        _ => watch.replica.update_v2(&params[2]),
                    }
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
        assert_eq!(replies, self.sent, "each is answered, and as the twin says");
        self.sent.clear();
        self.settle();
        self.check();
    }

    /// All records so far are durable.
    fn settle(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    fn check(&self) {
        let twin = self.states.last().unwrap();
        twin.assert_same(self.bench.core.database("T").unwrap());
        for (at, watch) in self.watches.iter().enumerate() {
            assert_eq!(watch.replica.rows, watch.expected(twin, self.least), "monitor {at}");
        }
    }

    fn change_conditions(&mut self, least: i64) {
        // Pending updates follow the old conditions.
        self.flush();
        self.least = least;
        for at in [1, 3] {
            let mut change = self.watches[at].requests(least);
            change = json!({"root": [{"where": change["root"][0]["where"]}]});
            self.bench.send(self.sessions[2], "monitor_cond_change", json!([at, at, change]));
        }
        let outputs = self.bench.flush();
        for output in &outputs {
            if let Output::Send(_, Message::Notification { method, params }) = output {
                let updates = if method == "update3" { &params[2] } else { &params[1] };
                self.watches[params[0].as_u64().unwrap() as usize].replica.update_v2(updates);
            }
        }
        self.check();
    }

    /// Begins a compaction in a thread, or after the running one.
    fn begin_compaction(&mut self) {
        self.bench.core.compact("T", self.bench.now).unwrap();
        self.run_begun();
    }

    fn run_begun(&mut self) {
        for compaction in self.bench.core.begun_compactions() {
            assert!(self.compaction.is_none(), "one at a time");
            self.compaction = Some(std::thread::spawn(|| compaction.run()));
        }
    }

    /// Replaces the old log by the new one, or stops before a step; returns whether it was replaced.
    fn end_compaction(&mut self, stop: Option<Step>) -> bool {
        let Some(thread) = self.compaction.take() else { return false };
        let compacted = thread.join().unwrap();
        self.seen.lock().unwrap().stop = stop;
        self.bench.core.compacted(compacted, self.bench.now);
        let ended = self.bench.core.ended_compactions();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].1.is_ok(), stop.is_none(), "{ended:?}");
        self.seen.lock().unwrap().stop = None;
        if stop.is_none() {
            self.settle();
        }
        assert!(!self.temporary().exists());
        true
    }

    fn temporary(&self) -> PathBuf {
        self.path.with_extension("db.tmp")
    }

    /// Drops the process and damages the file; opens it again.
    fn crash(self, share: u16, tail: &[u8], time_s: u64) -> World {
        let found = (std::fs::read(&self.path).unwrap(), self.seen.lock().unwrap().synced as usize);
        self.crash_with(found, share, tail, time_s)
    }

    /// The same with a file that may be found after it, so much of which is durable.
    fn crash_with(self, (bytes, synced): (Vec<u8>, usize), share: u16, tail: &[u8], time_s: u64) -> World {
        let temporary = self.temporary();
        let World { path, bench, compaction, left, least, states, .. } = self;
        drop(bench);
        if let Some(thread) = compaction {
            _ = thread.join().unwrap();
        }
        let found = std::fs::read(&temporary).ok();
        assert!(found.is_none() || found == left, "a compaction that is not wanted any more leaves nothing");
        let cut = synced + (bytes.len() - synced) * usize::from(share) / usize::from(u16::MAX);
        std::fs::write(&path, [&bytes[..cut], tail].concat()).unwrap();
        // The file of an incomplete compaction.
        std::fs::write(temporary, tail).unwrap();
        let (mut world, recovered) = World::open(path, least, time_s);
        world.left = Some(tail.to_vec());
        assert!(recovered || tail.is_empty() || cut < bytes.len(), "garbage is noticed");
        let states: Vec<Twin> = states.into_iter().map(kept).collect();
        let database = world.bench.core.database("T").unwrap();
        let contents = super::contents(database);
        let found = states.iter().rposition(|twin| super::contents(&as_database(twin)) == contents);
        let at = found.expect("the file holds what was acknowledged and a beginning of the rest");
        if cut == bytes.len() {
            assert_eq!(at, states.len() - 1, "all records were whole");
        }
        world.states = vec![states[at].clone()];
        world.check();
        world
    }
}

/// The persistent part of a state.
fn kept(mut twin: Twin) -> Twin {
    for row in twin.rows.values_mut() {
        if let Some(gone) = row.get_mut("gone") {
            *gone = Datum::scalar("");
        }
    }
    twin
}

fn as_database(twin: &Twin) -> crate::Database {
    let kinds = schema();
    let changes: Vec<crate::RowChange> = twin
        .rows
        .iter()
        .map(|((table, uuid), values)| {
            let table = kinds.table_index(TABLES[*table]).unwrap();
            let mut row = crate::Row::new(&kinds.tables()[table], *uuid);
            for (name, datum) in values {
                row.set(kinds.tables()[table].column_index(name).unwrap(), datum.clone());
            }
            crate::RowChange { table, uuid: *uuid, old: None, new: Some(Arc::new(row)) }
        })
        .collect();
    let mut database = crate::Database::new(kinds);
    database.apply_changes(&changes);
    database
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_transactions_survive_and_none_is_partial(
        transactions in transactions(),
        more in transactions(),
        fates in proptest::collection::vec(fate(), 24),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        drop(FileStorage::create(&path, &[Record::from(&schema().to_json())]).unwrap());
        let (mut world, _) = World::open(path, 50, 0);
        world.states.push(Twin::default());
        for (at, (ops, fate)) in transactions.iter().chain(&more).zip(&fates).enumerate() {
            match fate {
                Fate::Compact => {
                    world.begin_compaction();
                    world.end_compaction(None);
                    world.run_begun();
                }
                Fate::Begin => world.begin_compaction(),
                Fate::End(end) => {
                    let stop = match end {
                        End::Whole => None,
                        End::Fails(step) | End::Crashes(step, ..) => Some(*step),
                    };
                    match (world.end_compaction(stop), end) {
                        (true, End::Crashes(_, which, share, tail)) => {
                            let found = std::mem::take(&mut world.seen.lock().unwrap().found);
                            let found = which.get(&found).clone();
                            world = world.crash_with(found, *share, tail, 200 + at as u64);
                        }
                        _ => world.run_begun(),
                    }
                }
                Fate::NoRoom => world.seen.lock().unwrap().refuse = true,
                Fate::Conditions(least) => world.change_conditions(*least),
                _ => {}
            }
            world.send(at, ops);
            match fate {
                Fate::Flush => world.flush(),
                Fate::Crash(share, tail) => world = world.crash(*share, tail, at as u64),
                _ => {}
            }
        }
        world.flush();
        world = world.crash(u16::MAX, &[], 100);
        world.flush();
    }
}
