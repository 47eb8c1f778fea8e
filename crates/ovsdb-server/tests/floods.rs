//! Clients that ask for more than can be answered: they are slowed down, the server does not grow, and others are served.

mod common;

use common::{Client, connect, count, insert, start, transact, until};
use ovsdb::jsonrpc::{Limits, Message};
use serde_json::json;
use tokio::io::AsyncWriteExt;

/// More than a client may have under way, by far, and than a socket holds.
const REQUESTS: u64 = 20_000;

/// A transaction that waits until a row is called like this.
fn wait(id: u64, name: &str) -> Vec<u8> {
    let wait = json!({"op": "wait", "table": "data", "where": [["name", "==", name]], "columns": ["name"],
                      "until": "==", "rows": [{"name": name}]});
    Message::request(id, "transact", vec![json!("T"), wait]).to_bytes()
}

#[tokio::test]
async fn who_floods_waits_is_slowed_down_and_answered() {
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
    // What it waits for comes; then it has all its answers, in order.
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

/// The server reads nothing after that, and yet detects that the client has gone.
#[tokio::test]
async fn who_goes_while_it_is_held_up_is_forgotten() {
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

/// Requests are bounded by what they take, too, and the pool of all by what there is.
#[tokio::test]
async fn long_requests_fill_the_room_sooner() {
    let directory = tempfile::tempdir().unwrap();
    let handle = start(directory.path());
    let name = "x".repeat(1 << 20);
    let mut floods = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..24 {
        // Each has something under way before the room is taken, or it would be refused and not held up.
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
    // Others do not need the pool, and whoever has nothing under way need not wait for it.
    let mut other = Client::new(connect(directory.path()).await, Limits::default());
    transact(&mut other, insert(&"y".repeat(1 << 20))).await;
    // But what would have to wait has no room.
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
