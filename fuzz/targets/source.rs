//! Any JSON-RPC messages from another server: the source of a relay if the first byte is odd, else the active server of a
//! backup.
#![no_main]

use fuzz::database::SCHEMA;
use ovsdb::UuidSource;
use ovsdb::jsonrpc::{Limits, Message, decode};
use ovsdb_server::storage::Memory;
use ovsdb_server::{Access, Core, Now, Source};
use serde_json::json;

fuzz::target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let log = Memory::new();
    let source = Source::parse("unix:x").expect("an address");
    let mut core = Core::new(UuidSource::seeded(1));
    let mut now = Now::default();
    if first % 2 == 1 {
        core.add_relay("T", source, now).expect("a new name");
    } else {
        core.add_database(std::slice::from_ref(&SCHEMA), Box::new(log.clone()), None, now).expect("our own schema");
        core.set_active_server(source);
        core.connect_active().expect("there is an active server");
    }
    let link = core.sources().next().map(|(link, _)| link).expect("one database is copied");
    let mut connection = None;
    for message in decode(bytes, Limits { bytes_max: 4000, depth_max: 120 }).0 {
        // The server disconnects a source that violates the protocol, and then reconnects.
        connection = core.source_connected(link).or(connection);
        core.message(connection.expect("it is connected"), message, now);
        now.monotonic_ms += 10;
        now.unix_ms += 10;
        let client = core.connect(Access::default());
        core.message(client, watch(), now);
        core.flush(now);
        core.disconnect(client);
    }
    let written = ovsdb_server::log::parse(&log.bytes());
    assert_eq!(written.error, None);
    let records: Vec<_> = std::iter::once(SCHEMA.clone()).chain(written.records).collect();
    ovsdb_server::load(&records).expect("what the server wrote");
});

fn watch() -> Message {
    Message::request(1, "monitor_cond", vec!["T".into(), "m".into(), json!({"root": [{}], "kid": [{}]})])
}
