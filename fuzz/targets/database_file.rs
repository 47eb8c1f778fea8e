//! Any bytes as a database file: the sound part is read, and written again it is the same.
#![no_main]

use ovsdb_server::journal::{Style, snapshot};
use ovsdb_server::{load, log};
use serde_json::Value;

fuzz::target!(|bytes: &[u8]| {
    let parsed = log::parse(bytes);
    assert!(parsed.sound_length <= bytes.len());
    assert_eq!(parsed.error.is_none(), parsed.sound_length == bytes.len());
    let written: Vec<u8> = parsed.records.iter().flat_map(log::encode).collect();
    assert_eq!(log::parse(&written).records, parsed.records);
    contents(&parsed.records);
    // The same text as records without their checksums, which a fuzzer does not guess.
    let records: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    contents(&records.unwrap_or_default());
});

fn contents(records: &[Value]) {
    if let Ok(database) = load(records) {
        snapshot(&database, "", 0, Style::Whole);
    }
}
