//! Any bytes as a database file: the sound part is read, and is the same after it was written again. Parsing directly
//! into rows agrees with parsing records as JSON.
#![no_main]

use ovsdb_server::journal::{Style, snapshot};
use ovsdb_server::{Database, load, load_log, log};
use serde_json::Value;

fuzz::target!(|bytes: &[u8]| {
    let parsed = log::parse(bytes);
    assert!(parsed.sound_length <= bytes.len());
    assert_eq!(parsed.error.is_none(), parsed.sound_length == bytes.len());
    let written: Vec<u8> = parsed.records.iter().flat_map(encode).collect();
    assert_eq!(log::parse(&written).records, parsed.records);
    contents(&parsed.records);
    // The same text as records without their checksums, which a fuzzer does not guess.
    let records: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    let records = records.unwrap_or_default();
    contents(&records);
    if records.iter().all(Value::is_object) {
        let loaded = load_log(&records.iter().flat_map(encode).collect::<Vec<u8>>());
        assert_eq!(loaded.record_count, records.len());
        let whole = load(&records);
        match loaded.invalid.first() {
            None => assert_eq!(loaded.database.map(|database| rows(&database)), whole.map(|database| rows(&database))),
            // A log is read without invalid records.
            Some(error) => assert_eq!(whole.err().as_ref(), Some(error)),
        }
    }
});

fn encode(record: &Value) -> Vec<u8> {
    log::encode(&record.into())
}

fn rows(database: &Database) -> Option<log::Record> {
    snapshot(database, "", 0, Style::Whole)
}

fn contents(records: &[Value]) {
    if let Ok(database) = load(records) {
        rows(&database);
    }
}
