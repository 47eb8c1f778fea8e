//! Power cuts: whatever byte the file ends at, every transaction with a whole record is there.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::twin::{Op, transactions};
use super::{Bench, contents};
use crate::file::{FileError, FileStorage, Lock};
use crate::journal::Style;
use crate::log::{self, Record, encode};
use crate::storage::{Memory, SnapshotWriter, Storage};
use crate::{Output, core};

fn run(bench: &mut Bench, transactions: &[Vec<Op>], mut after: impl FnMut(&Bench)) {
    let session = bench.connect();
    for ops in transactions {
        let operations: Vec<Value> = ops.iter().map(Op::to_json).collect();
        bench.transact(session, &operations);
        after(bench);
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_transactions_survive_a_cut_at_any_byte(transactions in transactions(), whole in any::<bool>()) {
        let mut memory = Memory::new();
        memory.append(&Record::from(&super::schema().to_json())).unwrap();
        let mut bench = Bench::with_storage(Box::new(memory.clone()));
        bench.core.set_style(if whole { Style::Whole } else { Style::Difference });
        // After each acknowledgement: the length of the log, and the contents of the database.
        let mut states = vec![(memory.bytes().len(), bench.contents())];
        run(&mut bench, &transactions, |bench| {
            assert_eq!(memory.synced_length().max(states[0].0), memory.bytes().len(), "acknowledged but not durable");
            states.push((memory.bytes().len(), bench.contents()));
        });
        let bytes = memory.bytes();
        for cut in states[0].0..=bytes.len() {
            let parsed = log::parse(&bytes[..cut]);
            prop_assert_eq!(parsed.error.is_some(), parsed.sound_length < cut);
            // Cuts between two record ends yield the same records, which need to be applied only once.
            let (length, expected) = states.iter().rev().find(|(length, _)| *length <= cut).unwrap();
            prop_assert_eq!(parsed.sound_length, *length);
            if cut == *length {
                prop_assert_eq!(&contents(&core::load(&parsed.records).unwrap()), expected);
            }
        }
    }

    #[test]
    fn compaction_keeps_the_contents(transactions in transactions()) {
        let mut memory = Memory::new();
        memory.append(&Record::from(&super::schema().to_json())).unwrap();
        let mut bench = Bench::with_storage(Box::new(memory.clone()));
        run(&mut bench, &transactions, |_| {});
        let now = bench.now;
        bench.core.compact("T", now).unwrap();
        let compaction = bench.core.begun_compactions().pop().unwrap();
        // Transactions continue before, between and after.
        run(&mut bench, &transactions[..1], |_| {});
        let compacted = compaction.run();
        run(&mut bench, &transactions[..1], |_| {});
        bench.core.compacted(compacted, now);
        prop_assert_eq!(bench.core.ended_compactions(), [(1, Ok(()))]);
        run(&mut bench, &transactions[..1], |_| {});
        let parsed = log::parse(&memory.bytes());
        prop_assert_eq!(parsed.error, None);
        prop_assert_eq!(contents(&core::load(&parsed.records).unwrap()), bench.contents());
    }
}

#[test]
fn a_full_disk_fails_the_transaction_and_changes_nothing() {
    let mut memory = Memory::new();
    memory.append(&Record::from(&super::schema().to_json())).unwrap();
    let mut bench = Bench::with_storage(Box::new(memory.clone()));
    let session = bench.connect();
    memory.fail_after(memory.bytes().len() + 10);
    let insert = json!({"op": "insert", "table": "root", "row": {"name": "x"}});
    let result = bench.transact(session, &[insert]);
    assert_eq!(result[1]["error"], "I/O error");
    assert_eq!(bench.contents(), Value::Null);
}

/// Storage that writes but cannot sync.
struct Unsyncable(Memory);

impl Storage for Unsyncable {
    fn append(&mut self, record: &Record) -> std::io::Result<()> {
        self.0.append(record)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        Err(std::io::Error::other("sync"))
    }

    fn snapshot_writer(&mut self) -> Box<dyn SnapshotWriter> {
        self.0.snapshot_writer()
    }

    fn install(&mut self) -> std::io::Result<()> {
        self.0.install()
    }

    fn discard(&mut self) {
        self.0.discard();
    }

    fn length(&self) -> u64 {
        self.0.length()
    }
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    let mut bench = Bench::with_storage(Box::new(Unsyncable(Memory::new())));
    let session = bench.connect();
    let params = json!(["T", {"op": "insert", "table": "root", "row": {"name": "x"}}]);
    let outputs = bench.outputs(session, "transact", params);
    assert!(matches!(outputs.as_slice(), [Output::Close(..)]), "{outputs:?}");
    assert!(bench.core.storage_failure("T").unwrap().is_some());
}

#[test]
fn a_damaged_file_is_copied_and_cut_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let schema = super::schema().to_json();
    drop(FileStorage::create(&path, &[Record::from(&schema)]).unwrap());
    let sound = std::fs::read(&path).unwrap();
    let record = encode(&Record::from(&json!({"_date": 5})));
    let damaged = [sound.as_slice(), &record[..record.len() - 3]].concat();
    std::fs::write(&path, &damaged).unwrap();
    let opened = FileStorage::open(&path, 7).unwrap();
    assert_eq!(opened.database.unwrap().schema().to_json(), schema);
    assert!(opened.recovered.unwrap().contains("t.db.damaged-7"));
    assert_eq!(std::fs::read(&path).unwrap(), sound);
    assert_eq!(std::fs::read(directory.path().join("t.db.damaged-7")).unwrap(), damaged);
    drop(opened.storage);
    assert_eq!(FileStorage::open(&path, 8).unwrap().recovered, None);
}

#[test]
fn a_file_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let storage = FileStorage::create(&path, &[Record::from(&super::schema().to_json())]).unwrap();
    assert!(matches!(Lock::take(&path), Err(FileError::Locked { .. })));
    assert!(matches!(FileStorage::open(&path, 0), Err(FileError::Locked { .. })));
    drop(storage);
    FileStorage::open(&path, 0).unwrap();
    assert!(matches!(FileStorage::create(&path, &[]), Err(FileError::Io { .. })));
}

#[test]
fn files_that_are_no_databases_differ_from_damaged_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    for (bytes, message) in [
        (b"".as_slice(), "cannot identify file type"),
        (b"hello\n", "unexpected file format"),
        (b"OVSDB JSON 10 0000000000000000000000000000000000000000\n{}", "error reading 10 bytes starting at offset"),
        (b"OVSDB CLUSTER 3 0000000000000000000000000000000000000000\n{}\n", "clustered"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = FileStorage::open(&path, 0).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "a file that is not a database is left alone");
    }
}

#[test]
fn old_records_are_read() {
    let schema = super::schema().to_json();
    let id = "00000000-0000-4000-8000-000000000001";
    let records = [
        schema,
        json!({"_date": 1_300_000_000, "_comment": "old", "root": {id: {"name": "a", "map": ["map", [["x", 1]]]}}}),
        // Without _is_diff, values are whole.
        json!({"root": {id: {"map": ["map", [["y", 2]]]}}}),
        json!({"_is_diff": true, "root": {id: {"map": ["map", [["y", 3], ["z", 4]]], "number": 7}}}),
    ];
    let database = core::load(&records).unwrap();
    assert_eq!(
        contents(&database)["root"][id],
        json!({"name": "a", "number": 7, "map": ["map", [["y", 3], ["z", 4]]]})
    );
    assert!(core::load(&[records[0].clone(), json!({"none": {}})]).is_err());
    assert!(core::load(&[records[0].clone(), json!({"root": {id: null}})]).is_err());
    assert!(core::load(&[]).is_err());
}
