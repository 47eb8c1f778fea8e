//! Sends the same requests to this server and to Open vSwitch's ovsdb-server, whose replies must agree word by word;
//! and each reads the files of the other. Needs `FLOWSTONE_PEERS`, a folder with Open vSwitch's programs in `bin/`.

mod generate;
mod names;
mod pair;
mod random;
mod sessions;

use std::collections::HashMap;

use ovsdb::DatabaseSchema;
use ovsdb::jsonrpc::Message;
use ovsdb_server::Server;
use serde_json::{Value, json};

use pair::{Client, connect, start_peer, tool};

const SCHEMA: &str = include_str!("../data/test.ovsschema");
/// One `[method, params]` a line; later ones depend on earlier ones.
const REQUESTS: &str = include_str!("../data/requests.jsonl");

/// The answer to a request; notifications before it are part of it.
async fn ask(connection: &mut Client, method: &str, params: &Value) -> Vec<Value> {
    let params = params.as_array().unwrap().clone();
    connection.send(&Message::request(7, method, params)).await.unwrap();
    let mut answer = Vec::new();
    loop {
        let message = connection.receive().await.unwrap().expect("the server stays");
        let done = !matches!(message, Message::Notification { .. });
        answer.push(message.to_json());
        if done {
            return answer;
        }
    }
}

/// Sorts the answer to `list_dbs`, whose order in Open vSwitch is that of a hash table.
pub(crate) fn sort_databases(method: &str, answer: &mut [Value]) {
    for message in answer.iter_mut().filter(|_| method == "list_dbs") {
        if let Some(Value::Array(names)) = message.get_mut("result") {
            names.sort_by_key(Value::to_string);
        }
    }
}

/// An answer with random UUIDs numbered, members and rows sorted, and the two rows of a duplicate in fixed order.
fn normal(method: &str, answer: &[Value]) -> String {
    let mut answer = answer.to_vec();
    sort_databases(method, &mut answer);
    let mut answer = Value::from(answer);
    sort_rows(&mut answer);
    let text = ovsdb::json::canonical(&answer);
    let mut names: HashMap<String, usize> = HashMap::new();
    let mut out = String::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        match rest.get(..36).and_then(ovsdb::Uuid::parse) {
            Some(uuid) => {
                let uuid = uuid.to_string();
                let count = names.len();
                if uuid.starts_with("00000000-0000") {
                    out.push_str(&uuid);
                } else {
                    let number = *names.entry(uuid).or_insert(count);
                    out.push_str(&format!("<{number}>"));
                }
                rest = &rest[36..];
            }
            None => {
                let c = rest.chars().next().unwrap();
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

fn sort_rows(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(sort_rows),
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                sort_rows(value);
                match (name.as_str(), value) {
                    ("rows", Value::Array(rows)) => rows.sort_by_key(|row| {
                        let mut row = row.clone();
                        for hidden in ["_uuid", "_version"] {
                            row.as_object_mut().unwrap().remove(hidden);
                        }
                        ovsdb::json::canonical(&row)
                    }),
                    ("details", Value::String(details)) => *details = sort_duplicates(details),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// The order of two rows with the same key depends on the peer's hash table.
fn sort_duplicates(details: &str) -> String {
    let Some((head, rest)) = details.split_once("First row, with UUID ") else { return details.to_owned() };
    let Some((first, second)) = rest.split_once("  Second row, with UUID ") else { return details.to_owned() };
    let mut rows = [&first[36..], &second[36..]];
    rows.sort_unstable();
    format!("{head}{rows:?}")
}

#[tokio::test]
async fn replies_equal_those_of_open_vswitch() {
    let Some(bin) = oracle::folder().map(|folder| folder.join("bin")) else { return };
    let directory = tempfile::tempdir().unwrap();
    let _peer = start_peer(&bin, directory.path(), SCHEMA);
    let server = Server::builder()
        .database_in_memory(DatabaseSchema::parse(SCHEMA).unwrap())
        .remote(format!("punix:{}", directory.path().join("ours").display()))
        .open()
        .unwrap();
    tokio::spawn(server.run(std::future::pending()));
    let mut theirs = connect(directory.path().join("peer")).await;
    let mut ours = connect(directory.path().join("ours")).await;
    let mut differences = Vec::new();
    for line in REQUESTS.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let (method, params) = (request[0].as_str().unwrap(), &request[1]);
        let expected = normal(method, &ask(&mut theirs, method, params).await);
        let found = normal(method, &ask(&mut ours, method, params).await);
        if expected != found {
            differences.push(format!("{line}\n  Open vSwitch: {expected}\n  Flowstone:    {found}"));
        }
    }
    tally::report!("{} requests", REQUESTS.lines().count());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test]
async fn files_go_both_ways() {
    let Some(bin) = oracle::folder().map(|folder| folder.join("bin")) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let name = path.display().to_string();
    let sock = directory.path().join("sock");
    let uuid = "00000000-0000-4000-8000-000000000001";
    let serve = || {
        Server::builder()
            .database_file_or_new(&path, DatabaseSchema::parse(SCHEMA).unwrap())
            .remote(format!("punix:{}", sock.display()))
            .open()
            .unwrap()
    };
    let select = json!({"op": "select", "table": "root", "where": [], "columns": ["name", "is", "m", "oi"]});
    let change = |numbers: Value, map: Value| {
        json!({"op": "mutate", "table": "root", "where": [["_uuid", "==", ["uuid", uuid]]],
               "mutations": [["is", "insert", ["set", numbers]], ["is", "delete", 1], ["m", "insert", ["map", map]]]})
    };

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(serve().run(async move { _ = stopped.await }));
    let mut client = connect(sock.clone()).await;
    let row = json!({"name": "a \"b\"\nc", "is": ["set", [1, 2]], "m": ["map", [["x", 1]]], "oi": 5});
    let insert = json!(["T", {"op": "insert", "table": "root", "uuid": uuid, "row": row}]);
    ask(&mut client, "transact", &insert).await;
    ask(&mut client, "transact", &json!(["T", change(json!([3]), json!([["y", 2]]))])).await;
    let ours = ask(&mut client, "transact", &json!(["T", select])).await[0]["result"].clone();
    let locked = tool(&bin, &["transact", &name, "[\"T\"]"]);
    assert!(!locked.status.success(), "the peer does not write to a file that is in use");
    drop(stop);
    task.await.unwrap();

    let query = |transaction: Value| -> Value {
        let output = tool(&bin, &["transact", &name, &transaction.to_string()]);
        serde_json::from_slice(&output.stdout).expect("the peer reads the file")
    };
    assert_eq!(query(json!(["T", select])), ours);
    query(json!(["T", change(json!([4, 5]), json!([["z", 3]]))]));
    let theirs = query(json!(["T", select]));
    assert_ne!(theirs, ours);

    tokio::spawn(serve().run(std::future::pending()));
    let mut client = connect(sock).await;
    assert_eq!(ask(&mut client, "transact", &json!(["T", select])).await[0]["result"], theirs);
}
