//! Any text as a database schema: one that is understood reads the same when it was written.
#![no_main]

use ovsdb::DatabaseSchema;

fuzz::target!(|bytes: &[u8]| {
    let Some(text) = fuzz::text(bytes) else { return };
    let Ok(schema) = DatabaseSchema::parse(text) else { return };
    let json = schema.to_json();
    match DatabaseSchema::from_json(&json) {
        Ok(again) => assert!(again.equivalent(&schema), "{text} was written as {json}"),
        Err(e) => panic!("{text} was written as {json}: {e}"),
    }
});
