//! Compaction of a database in service: its start, interruptions, and failures.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Bench, schema};
use crate::file::FileStorage;
use crate::file::snapshot_writer::Step;
use crate::journal::{self, Style};
use crate::log::{self, Record};
use crate::storage::{Memory, SnapshotWriter, Storage};
use crate::{Compaction, Database, Now, Output, SessionId, Snapshot};

const MINUTE_MS: u64 = 60_000;

fn insert(bench: &mut Bench, session: SessionId, name: &str) -> Value {
    bench.transact(
        session,
        &[
            json!({"op": "insert", "table": "kid", "uuid-name": "k", "row": {"name": name}}),
            json!({"op": "insert", "table": "root", "row": {"name": name, "kids": ["named-uuid", "k"]}}),
            json!({"op": "delete", "table": "root", "where": [["name", "!=", name]]}),
        ],
    )
}

fn begun(bench: &mut Bench) -> Option<Compaction> {
    let mut begun = bench.core.begun_compactions();
    assert!(begun.len() <= 1);
    begun.pop()
}

/// The comments of a log's transactions, and its contents.
fn comments_and_contents(bytes: &[u8]) -> (Vec<Option<String>>, Value) {
    let parsed = log::parse(bytes);
    assert_eq!(parsed.error, None);
    let comments = parsed.records[1..].iter().map(|record| Some(record.get("_comment")?.as_str()?.to_owned()));
    (comments.collect(), super::contents(&crate::load(&parsed.records).unwrap()))
}

/// A file in a folder of its own, and a server of it.
struct Served {
    path: PathBuf,
    bench: Bench,
    session: SessionId,
    _directory: tempfile::TempDir,
}

fn serve() -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let storage = FileStorage::create(&path, &[Record::from(&schema().to_json())]).unwrap();
    let mut bench = Bench::with_storage(Box::new(storage));
    let session = bench.connect();
    insert(&mut bench, session, "a");
    Served { path, bench, session, _directory: directory }
}

impl Served {
    fn names(&self) -> Vec<String> {
        let directory = std::fs::read_dir(self.path.parent().unwrap()).unwrap();
        let mut names: Vec<String> = directory.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn assert_sound(&self) {
        assert_eq!(self.names(), [".t.db.~lock~", "t.db"]);
        assert_eq!(comments_and_contents(&std::fs::read(&self.path).unwrap()).1, self.bench.contents());
    }
}

#[test]
fn the_next_compaction_waits_and_is_shared() {
    let mut memory = Memory::new();
    memory.append(&Record::from(&schema().to_json())).unwrap();
    let mut bench = Bench::with_storage(Box::new(memory.clone()));
    let session = bench.connect();
    insert(&mut bench, session, "a");
    let now = bench.now;
    assert_eq!(bench.core.compact("T", now), Ok(1));
    let first = begun(&mut bench).unwrap();
    insert(&mut bench, session, "b");
    assert_eq!(bench.core.compact("T", now), Ok(2));
    assert_eq!(bench.core.compact("T", now), Ok(2));
    assert!(begun(&mut bench).is_none());
    let first = first.run();
    assert_eq!(bench.core.ended_compactions(), []);
    bench.core.compacted(first, now);
    assert_eq!(bench.core.ended_compactions(), [(1, Ok(()))]);
    let compacted = Some("compacting database online".to_owned());
    // Concurrent transactions are kept, and are still history.
    assert_eq!(comments_and_contents(&memory.bytes()), (vec![compacted.clone(), None], bench.contents()));
    let second = begun(&mut bench).unwrap();
    bench.core.compacted(second.run(), now);
    assert_eq!(bench.core.ended_compactions(), [(2, Ok(()))]);
    assert_eq!(comments_and_contents(&memory.bytes()), (vec![compacted], bench.contents()));
    assert_eq!(bench.core.compact("none", now), Err("no database by that name".to_owned()));
}

#[test]
fn databases_in_memory_need_no_compaction() {
    let mut bench = Bench::new();
    let now = bench.now;
    assert_eq!(bench.core.compact("T", now), Ok(1));
    assert!(begun(&mut bench).is_none());
    assert_eq!(bench.core.ended_compactions(), [(1, Ok(()))]);
}

#[test]
fn removing_a_database_cancels_its_compaction() {
    for has_run in [false, true] {
        let mut served = serve();
        let bench = &mut served.bench;
        let now = bench.now;
        bench.core.compact("T", now).unwrap();
        bench.core.compact("T", now).unwrap();
        let compaction = begun(bench).unwrap();
        let failure = compaction.failure("not run");
        let mut rest = Some(compaction);
        let compacted = if has_run { rest.take().unwrap().run() } else { failure };
        assert_eq!(served.names().len(), if has_run { 3 } else { 2 });
        let bench = &mut served.bench;
        assert!(bench.core.remove_database("T", now));
        let gone = || Err("the database was removed".to_owned());
        assert_eq!(bench.core.ended_compactions(), [(1, gone()), (2, gone())]);
        // At once, since others may have a snapshot of their own from now on.
        assert_eq!(served.names(), [".t.db.~lock~", "t.db"]);
        // The database returns before the compaction has ended, and has one of its own.
        let opened = FileStorage::open(&served.path, 0).unwrap();
        let bench = &mut served.bench;
        bench.core.host(opened.database.unwrap(), Box::new(opened.storage), None, now).unwrap();
        bench.core.compact("T", now).unwrap();
        let other = begun(bench).unwrap().run();
        if let Some(compaction) = rest {
            assert_eq!(served.names().len(), 3);
            served.bench.core.compacted(compaction.run(), now);
        }
        served.bench.core.compacted(compacted, now);
        assert_eq!(served.bench.core.ended_compactions(), []);
        assert_eq!(served.names().len(), 3, "nobody removes the draft of another");
        served.bench.core.compacted(other, now);
        assert_eq!(served.bench.core.ended_compactions(), [(3, Ok(()))]);
        served.assert_sound();
    }
}

#[test]
fn a_conversion_ends_a_compaction() {
    for has_run in [false, true] {
        let mut served = serve();
        let (now, session) = (served.bench.now, served.session);
        served.bench.core.compact("T", now).unwrap();
        served.bench.core.compact("T", now).unwrap();
        let compaction = begun(&mut served.bench).unwrap();
        let (before, after) = if has_run { (Some(compaction.run()), None) } else { (None, Some(compaction)) };
        let mut schema = schema().to_json();
        schema["tables"]["root"]["columns"].as_object_mut().unwrap().remove("fixed");
        assert_eq!(served.bench.call(session, "convert", json!(["T", schema])), json!({}));
        assert_eq!(served.bench.core.ended_compactions(), [(1, Ok(())), (2, Ok(()))]);
        served.assert_sound();
        let compacted = before.unwrap_or_else(|| after.unwrap().run());
        served.bench.core.compacted(compacted, now);
        served.assert_sound();
        assert_eq!(served.bench.core.ended_compactions(), []);
        let opened = std::fs::read(&served.path).unwrap();
        assert_eq!(log::parse(&opened).records[0], schema);
        // And the next one is as any.
        let session = served.bench.connect();
        insert(&mut served.bench, session, "c");
        assert_eq!(served.bench.core.compact("T", now), Ok(3));
        let compaction = begun(&mut served.bench).unwrap();
        served.bench.core.compacted(compaction.run(), now);
        served.assert_sound();
    }
}

/// Compacts with an expected failure for this reason, and then again without one.
fn fails(served: &mut Served, reason: &str, mend: impl FnOnce(&Path)) {
    let (now, session) = (served.bench.now, served.session);
    let id = served.bench.core.compact("T", now).unwrap();
    let compaction = begun(&mut served.bench).unwrap();
    insert(&mut served.bench, session, "b");
    served.bench.core.compacted(compaction.run(), now);
    let ended = served.bench.core.ended_compactions();
    assert!(matches!(&ended[..], [(ended, Err(error))] if *ended == id && error.contains(reason)), "{ended:?}");
    assert_eq!(served.bench.core.storage_failure("T"), Some(None), "the old file is as good as ever");
    insert(&mut served.bench, session, "c");
    mend(&served.path);
    served.assert_sound();
    let id = served.bench.core.compact("T", now).unwrap();
    let compaction = begun(&mut served.bench).unwrap();
    served.bench.core.compacted(compaction.run(), now);
    assert_eq!(served.bench.core.ended_compactions(), [(id, Ok(()))]);
    insert(&mut served.bench, session, "d");
    served.assert_sound();
}

#[test]
fn an_obstructing_directory_fails_the_compaction_only() {
    let mut served = serve();
    let temporary = served.path.with_extension("db.tmp");
    std::fs::create_dir(&temporary).unwrap();
    fails(&mut served, "directory", |_| std::fs::remove_dir(&temporary).unwrap());
    // The rest of an earlier one does not.
    std::fs::write(&temporary, "OVSDB").unwrap();
    let now = served.bench.now;
    served.bench.core.compact("T", now).unwrap();
    let compaction = begun(&mut served.bench).unwrap();
    served.bench.core.compacted(compaction.run(), now);
    assert!(served.bench.core.ended_compactions()[0].1.is_ok());
    served.assert_sound();
}

#[test]
fn a_failed_rename_fails_the_compaction_only() {
    let mut served = serve();
    let kept = served.path.with_extension("kept");
    let now = served.bench.now;
    served.bench.core.compact("T", now).unwrap();
    let compacted = begun(&mut served.bench).unwrap().run();
    // The log is still open, but a directory has its name.
    std::fs::rename(&served.path, &kept).unwrap();
    std::fs::create_dir(&served.path).unwrap();
    served.bench.core.compacted(compacted, now);
    assert!(matches!(&served.bench.core.ended_compactions()[..], [(1, Err(_))]));
    std::fs::remove_dir(&served.path).unwrap();
    std::fs::rename(&kept, &served.path).unwrap();
    let session = served.session;
    insert(&mut served.bench, session, "b");
    served.assert_sound();
}

#[test]
fn a_compaction_that_was_not_run_fails() {
    let mut served = serve();
    let now = served.bench.now;
    served.bench.core.compact("T", now).unwrap();
    served.bench.core.compact("T", now).unwrap();
    let compaction = begun(&mut served.bench).unwrap();
    let failure = compaction.failure("no thread");
    drop(compaction);
    served.bench.core.compacted(failure, now);
    assert_eq!(served.bench.core.ended_compactions(), [(1, Err("no thread".to_owned()))]);
    let compaction = begun(&mut served.bench).expect("the next one begins all the same");
    served.bench.core.compacted(compaction.run(), now);
    assert_eq!(served.bench.core.ended_compactions(), [(2, Ok(()))]);
    served.assert_sound();
}

#[test]
fn after_a_failed_directory_sync_nothing_is_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let mut storage = FileStorage::create(&path, &[Record::from(&schema().to_json())]).unwrap();
    let snapshot = Snapshot::of(&Database::new(schema()), "", 0, Style::Difference);
    storage.snapshot_writer().write(&snapshot).unwrap();
    let mut installation = storage.installation().unwrap();
    while installation.next() != Step::SyncDirectory {
        storage.step(&mut installation).unwrap();
    }
    installation.lose_directory();
    assert_eq!(storage.step(&mut installation).unwrap(), None);
    storage.append(&Record::from(&json!({}))).unwrap();
    assert!(storage.sync().is_err());
    // The written contents are in the file that has the name.
    assert_eq!(log::parse(&std::fs::read(&path).unwrap()).records.len(), 2);
}

/// A file whose directory cannot be synced.
struct Nameless(FileStorage);

impl Storage for Nameless {
    fn append(&mut self, record: &Record) -> std::io::Result<()> {
        self.0.append(record)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.0.sync()
    }

    fn snapshot_writer(&mut self) -> Box<dyn SnapshotWriter> {
        self.0.snapshot_writer()
    }

    fn install(&mut self) -> std::io::Result<()> {
        let mut installation = self.0.installation()?;
        loop {
            if installation.next() == Step::SyncDirectory {
                installation.lose_directory();
            }
            if self.0.step(&mut installation)?.is_none() {
                return Ok(());
            }
        }
    }

    fn discard(&mut self) {
        self.0.discard();
    }

    fn length(&self) -> u64 {
        self.0.length()
    }
}

#[test]
fn contents_of_a_file_without_a_durable_name_are_not_announced() {
    for converts in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let storage = FileStorage::create(&path, &[Record::from(&schema().to_json())]).unwrap();
        let mut bench = Bench::with_storage(Box::new(Nameless(storage)));
        let session = bench.connect();
        insert(&mut bench, session, "a");
        let now = bench.now;
        bench.core.compact("T", now).unwrap();
        let compacted = begun(&mut bench).unwrap().run();
        let insert = json!({"op": "insert", "table": "root", "row": {"name": "b"}});
        bench.send(session, "transact", json!(["T", insert, {"op": "commit", "durable": true}]));
        if converts {
            bench.send(session, "convert", json!(["T", schema().to_json()]));
        } else {
            bench.core.compacted(compacted, now);
        }
        assert!(matches!(&bench.core.ended_compactions()[..], [(1, Ok(()))]));
        let outputs = bench.flush();
        assert!(matches!(outputs.as_slice(), [Output::Close(to, _)] if *to == session), "{outputs:?}");
        assert!(bench.core.storage_failure("T").unwrap().is_some());
    }
}

#[test]
fn a_full_disk_fails_the_compaction_only() {
    let mut memory = Memory::new();
    memory.append(&Record::from(&schema().to_json())).unwrap();
    let mut bench = Bench::with_storage(Box::new(memory.clone()));
    let session = bench.connect();
    insert(&mut bench, session, "a");
    let (now, before) = (bench.now, memory.bytes());
    for has_run in [false, true] {
        bench.core.compact("T", now).unwrap();
        let compaction = begun(&mut bench).unwrap();
        if !has_run {
            memory.fail_after(100);
        }
        let compacted = compaction.run();
        memory.fail_after(100);
        bench.core.compacted(compacted, now);
        assert!(bench.core.ended_compactions()[0].1.is_err());
        assert_eq!(memory.bytes(), before);
        assert!(memory.install().is_err(), "there is no draft any more");
        memory.fail_after(usize::MAX);
    }
    insert(&mut bench, session, "b");
    assert_eq!(comments_and_contents(&memory.bytes()).1, bench.contents());
}

#[test]
fn a_grown_log_is_compacted_automatically() {
    let mut memory = Memory::new();
    memory.append(&Record::from(&schema().to_json())).unwrap();
    let mut bench = Bench::with_storage(Box::new(memory.clone()));
    let session = bench.connect();
    let at = |minutes: u64, bench: &mut Bench| {
        bench.now = Now { monotonic_ms: minutes * MINUTE_MS, ..bench.now };
        bench.flush();
    };
    let mut number = 0;
    let mut grow = |bench: &mut Bench, times: usize| {
        for _ in 0..times {
            number += 1;
            let result = insert(bench, session, &format!("{number} {}", "x".repeat(60_000)));
            assert!(result[1].get("error").is_none(), "{result}");
        }
    };
    grow(&mut bench, 99);
    at(20, &mut bench);
    assert!(begun(&mut bench).is_none(), "too few transactions");
    at(9, &mut bench);
    grow(&mut bench, 1);
    assert!(begun(&mut bench).is_none(), "too early");
    at(10, &mut bench);
    let compaction = begun(&mut bench).expect("now is the time");
    // Transactions during it count for the next.
    grow(&mut bench, 60);
    at(30, &mut bench);
    assert!(begun(&mut bench).is_none(), "one is under way");
    let now = bench.now;
    bench.core.compacted(compaction.run(), now);
    assert!(bench.core.ended_compactions()[0].1.is_ok());
    assert!(memory.length() < 10 << 20);
    grow(&mut bench, 39);
    at(45, &mut bench);
    assert!(begun(&mut bench).is_none(), "99 transactions since the last one began");
    grow(&mut bench, 1);
    let compaction = begun(&mut bench).expect("now is the time again");
    // One that fails is tried again, but not at once.
    let now = bench.now;
    bench.core.compacted(compaction.failure("no luck"), now);
    grow(&mut bench, 1);
    assert!(begun(&mut bench).is_none());
    at(46, &mut bench);
    let compaction = begun(&mut bench).expect("a minute later");
    let now = bench.now;
    bench.core.compacted(compaction.run(), now);
    assert_eq!(comments_and_contents(&memory.bytes()).1, bench.contents());
    // After a day, whatever the length.
    for number in 0..100 {
        insert(&mut bench, session, &format!("y{number}"));
    }
    at(46 + 24 * 60 - 1, &mut bench);
    assert!(begun(&mut bench).is_none());
    at(46 + 24 * 60, &mut bench);
    assert!(begun(&mut bench).is_some());
}

#[test]
fn pauses_between_failures_double_up_to_a_day_and_begin_anew_after_a_success() {
    let mut memory = Memory::new();
    memory.append(&Record::from(&schema().to_json())).unwrap();
    let mut bench = Bench::with_storage(Box::new(memory));
    let mut minute = 24 * 60;
    let mut pass = |bench: &mut Bench, minutes: u64| {
        minute += minutes;
        bench.now = Now { monotonic_ms: minute * MINUTE_MS, ..bench.now };
        bench.flush();
    };
    for round in 0..3 {
        // A conversion closes it.
        let session = bench.connect();
        for number in 0..100 {
            insert(&mut bench, session, &format!("{round} {number}"));
        }
        pass(&mut bench, 24 * 60);
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440, 1440] {
            let compaction = begun(&mut bench).expect("it is due");
            let now = bench.now;
            bench.core.compacted(compaction.failure("no luck"), now);
            pass(&mut bench, pause - 1);
            assert!(begun(&mut bench).is_none(), "earlier than after {pause} minutes");
            pass(&mut bench, 1);
        }
        let compaction = begun(&mut bench).expect("it is due");
        let now = bench.now;
        if round == 0 {
            bench.core.compacted(compaction.run(), now);
        } else {
            // That writes the whole log, too.
            assert_eq!(bench.call(session, "convert", json!(["T", schema().to_json()])), json!({}));
        }
    }
}

#[test]
fn reconnecting_clients_still_get_only_the_difference() {
    let mut served = serve();
    let (now, session) = (served.bench.now, served.session);
    let monitor = |served: &mut Served, id: &str, since: &str| {
        let params = json!(["T", id, {"root": {"columns": ["name"]}}, since]);
        served.bench.call(session, "monitor_cond_since", params)
    };
    let first = monitor(&mut served, "a", &ovsdb::Uuid::ZERO.to_string());
    assert_eq!(first[0], false);
    insert(&mut served.bench, session, "b");
    served.bench.core.compact("T", now).unwrap();
    let compaction = begun(&mut served.bench).unwrap();
    insert(&mut served.bench, session, "c");
    served.bench.core.compacted(compaction.run(), now);
    insert(&mut served.bench, session, "d");
    let again = monitor(&mut served, "b", first[1].as_str().unwrap());
    assert_eq!(again[0], true);
    assert_eq!(again[2]["root"].as_object().unwrap().len(), 2, "{again}");
}

/// A database of about this many bytes.
fn large(bytes: usize) -> Database {
    let kinds = schema();
    let kid = kinds.table_index("kid").unwrap();
    let mut database = Database::new(kinds.clone());
    let changes: Vec<crate::RowChange> = (0..bytes as u64 / 100)
        .map(|number| {
            let mut uuids = ovsdb::UuidSource::seeded(number);
            let mut row = crate::Row::new(&kinds.tables()[kid], uuids.next_uuid());
            let name = kinds.tables()[kid].column_index("name").unwrap();
            row.set(name, ovsdb::Datum::scalar(format!("{number:050}").as_str()));
            crate::RowChange { table: kid, uuid: row.uuid(), old: None, new: Some(std::sync::Arc::new(row)) }
        })
        .collect();
    database.apply_changes(&changes);
    database
}

#[test]
fn snapshots_are_the_records_of_all_rows() {
    for (bytes, style) in
        [(0, Style::Whole), (1000, Style::Whole), (1000, Style::Difference), (900_000, Style::Difference)]
    {
        let database = large(bytes);
        let snapshot = Snapshot::of(&database, "a \"comment\"", 1234, style);
        let mut out = std::io::Cursor::new(Vec::new());
        let length = snapshot.write_to(&mut out).unwrap();
        let written = out.into_inner();
        assert_eq!(length, written.len() as u64);
        let twin = journal::snapshot(&database, "a \"comment\"", 1234, style);
        let twin: Vec<u8> =
            [Record::from(&database.schema().to_json())].iter().chain(&twin).flat_map(log::encode).collect();
        if bytes < 10_000 {
            assert_eq!(written, twin);
        } else {
            assert_eq!(log::parse(&written), log::Parsed { sound_length: written.len(), ..log::parse(&twin) });
        }
    }
}
