//! Any JSON-RPC messages from two clients of a database server.
#![no_main]

use fuzz::database::SCHEMA;
use ovsdb::UuidSource;
use ovsdb::jsonrpc::{Limits, Message, decode};
use ovsdb_server::storage::Memory;
use ovsdb_server::{Access, Core, Now};
use serde_json::{Value, json};

fuzz::target!(|bytes: &[u8]| {
    let log = Memory::new();
    let mut core = Core::new(UuidSource::seeded(1));
    core.add_database(std::slice::from_ref(&SCHEMA), Box::new(log.clone()), None, Now::default())
        .expect("our own schema");
    let (first, second) = (core.connect(Access::default()), core.connect(Access::default()));
    core.message(second, watch(), Now::default());
    let mut now = Now::default();
    for message in decode(bytes, Limits { bytes_max: 4000, depth_max: 120 }).0 {
        // A message with an odd id comes from the other client.
        let odd = message.id().and_then(Value::as_i64).is_some_and(|id| id % 2 != 0);
        core.message(if odd { second } else { first }, message, now);
        now.monotonic_ms += 10;
        now.unix_ms += 10;
        core.tick(now);
        core.flush(now);
    }
    core.disconnect(first);
    core.flush(now);
    let written = ovsdb_server::log::parse(&log.bytes());
    assert_eq!(written.error, None);
    let records: Vec<_> = std::iter::once(SCHEMA.clone()).chain(written.records).collect();
    ovsdb_server::load(&records).expect("what the server wrote");
});

fn watch() -> Message {
    Message::request(1, "monitor_cond", vec!["T".into(), "m".into(), json!({"root": [{}], "kid": [{}]})])
}
