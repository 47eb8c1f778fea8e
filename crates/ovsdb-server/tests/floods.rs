//! Clients that ask for more than can be answered: they are slowed down, the server does not grow, and others are served.

mod common;

use common::{Client, connect, count, insert, start, transact, until};
use ovsdb::jsonrpc::{Limits, Message};
use serde_json::json;
use tokio::io::AsyncWriteExt;

/// Far more than a client's limit of pending requests, and than a socket buffers.
const REQUESTS: u64 = 20_000;

/// A transaction that waits until a row is called like this.
fn wait(id: u64, name: &str) -> Vec<u8> {
    let wait = json!({"op": "wait", "table": "data", "where": [["name", "==", name]], "columns": ["name"],
                      "until": "==", "rows": [{"name": name}]});
    Message::request(id, "transact", vec![json!("T"), wait]).to_bytes()
}

#[tokio::test]
async fn a_flood_of_waits_is_slowed_down_and_answered() {
    let directory = tempfile::tempdir().unwrap();
    let handle = start(directory.path());
    let (reading, mut writing) = connect(directory.path()).await.into_split();
    let flood = tokio::spawn(async move {
        for id in 1..=REQUESTS {
            writing.write_all(&wait(id, "go")).await.unwrap();
        }
        writing
    });
    until(&handle, "sessions-held", 1).await;
    assert!(base::coverage::read("ovsdb_request_held").is_some_and(|held| held > 0));
    assert_eq!(count(&handle, "triggers").await, 256);
    assert!(count(&handle, "waiting-bytes").await < 1 << 20);
    let mut other = Client::new(connect(directory.path()).await, Limits::default());
    for _ in 0..200 {
        transact(&mut other, insert("other")).await;
    }
    assert_eq!(count(&handle, "triggers").await, 256, "the flood goes nowhere meanwhile");
    // Its condition becomes true; then it has all its replies, in order.
    transact(&mut other, insert("go")).await;
    let mut receiver = ovsdb::jsonrpc::Receiver::new(reading, Limits::default());
    for expected in 1..=REQUESTS {
        match receiver.receive().await.unwrap() {
            Some(Message::Reply { id, result }) => assert_eq!((id, result), (json!(expected), json!([{}]))),
            other => panic!("{other:?}"),
        }
    }
    drop(flood.await.unwrap());
    until(&handle, "sessions", 1).await;
    assert_eq!((count(&handle, "triggers").await, count(&handle, "sessions-held").await), (0, 0));
}

/// The server then reads nothing, but detects that the client has disconnected.
#[tokio::test]
async fn a_held_client_that_disconnects_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let handle = start(directory.path());
    for _ in 0..3 {
        let mut stream = connect(directory.path()).await;
        let requests: Vec<u8> = (0..REQUESTS).flat_map(|id| wait(id, "never")).collect();
        let flood = tokio::spawn(async move {
            // Until it is dropped.
            _ = stream.write_all(&requests).await;
        });
        until(&handle, "sessions-held", 1).await;
        flood.abort();
        until(&handle, "sessions", 0).await;
        assert_eq!((count(&handle, "triggers").await, count(&handle, "sessions-held").await), (0, 0));
    }
}

/// Memory limits requests, too, and the shared pool limits all clients.
#[tokio::test]
async fn long_requests_exhaust_the_pool_sooner() {
    let directory = tempfile::tempdir().unwrap();
    let handle = start(directory.path());
    let name = "x".repeat(1 << 20);
    let mut floods = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..24 {
        // Each client has a pending request before the pool is full; otherwise it would be refused instead of held
        // up.
        let mut stream = connect(directory.path()).await;
        stream.write_all(&wait(1, &name)).await.unwrap();
        streams.push(stream);
    }
    until(&handle, "triggers", 24).await;
    for mut stream in streams {
        let request = wait(1, &name);
        floods.push(tokio::spawn(async move {
            for id in 2..102u64 {
                let head = format!("{{\"id\":{id},");
                let rest = &request[request.iter().position(|&byte| byte == b'{').unwrap() + 1..];
                let rest = String::from_utf8_lossy(rest).replacen("\"id\":1,", "", 1).into_bytes();
                if stream.write_all(&[head.into_bytes(), rest].concat()).await.is_err() {
                    return;
                }
            }
        }));
    }
    until(&handle, "sessions-held", 24).await;
    assert!(count(&handle, "waiting-bytes").await <= 256 << 20);
    // Other clients do not need the pool, and a client without pending requests need not wait for it.
    let mut other = Client::new(connect(directory.path()).await, Limits::default());
    transact(&mut other, insert(&"y".repeat(1 << 20))).await;
    // But a request that would have to wait is refused.
    let refused = json!({"op": "wait", "table": "data", "where": [["name", "==", name]], "columns": ["name"],
                         "until": "==", "rows": [{"name": "z".repeat(1 << 20)}]});
    other.send(&Message::request(1, "transact", vec![json!("T"), refused])).await.unwrap();
    match other.receive().await.unwrap() {
        Some(Message::Error { error, .. }) => assert_eq!(error["error"], "resources exhausted"),
        other => panic!("{other:?}"),
    }
    floods.iter().for_each(tokio::task::JoinHandle::abort);
    until(&handle, "sessions", 1).await;
    assert_eq!(count(&handle, "waiting-bytes").await, 0);
}
