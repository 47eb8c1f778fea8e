//! A server in the process of its test, and clients that speak to it over a socket.

use std::path::Path;
use std::time::Duration;

use ovsdb::DatabaseSchema;
use ovsdb::jsonrpc::{Connection, Message};
use ovsdb_server::{Handle, Server};
use serde_json::{Value, json};
use tokio::net::UnixStream;

const SCHEMA: &str = r#"{"name": "T", "tables": {"data": {"isRoot": true, "columns": {"name": {"type": "string"}}}}}"#;

pub(crate) type Client = Connection<UnixStream>;

pub(crate) fn start(directory: &Path) -> Handle {
    let server = Server::builder()
        .database_in_memory(DatabaseSchema::parse(SCHEMA).unwrap())
        .remote(format!("punix:{}", directory.join("sock").display()))
        .open()
        .unwrap();
    let handle = server.handle();
    tokio::spawn(server.run(std::future::pending()));
    handle
}

pub(crate) async fn connect(directory: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(directory.join("sock")).await {
            Ok(stream) => return stream,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

pub(crate) async fn transact(client: &mut Client, operation: Value) -> Value {
    client.send(&Message::request("t", "transact", vec![json!("T"), operation])).await.unwrap();
    match client.receive().await.unwrap() {
        Some(Message::Reply { result, .. }) => result,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "data", "row": {"name": name}})
}

/// The number of this name in `memory/show`; 0 if it is missing.
pub(crate) async fn count(handle: &Handle, name: &str) -> u64 {
    let report = handle.memory_report().await.unwrap();
    let found = report.split(' ').find_map(|part| part.strip_prefix(&format!("{name}:")));
    found.map_or(0, |number| number.parse().unwrap())
}

pub(crate) async fn until(handle: &Handle, name: &str, expected: u64) {
    while count(handle, name).await != expected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
