//! The server on real sockets: clients connect and disconnect, and a client that does not read is disconnected and
//! delays no other.

use std::path::Path;

use ovsdb::DatabaseSchema;
use ovsdb::jsonrpc::{Connection, Limits, Message};
use ovsdb_server::{Handle, Server};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const SCHEMA: &str = r#"{"name": "T", "tables": {
    "data": {"isRoot": true, "columns": {"name": {"type": "string"}}},
    "remote": {"isRoot": true, "columns": {"target": {"type": "string"}, "is_connected": {"type": "boolean"},
        "status": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}, "ephemeral": true}}},
    "top": {"isRoot": true, "columns": {
        "remotes": {"type": {"key": {"type": "uuid", "refTable": "remote"}, "min": 0, "max": "unlimited"}}}}}}"#;

struct Running {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

/// Starts a server in a thread of its own, as a program that embeds one does.
fn start(directory: &Path) -> Running {
    let server = Server::builder()
        .database_file_or_new(directory.join("t.db"), DatabaseSchema::parse(SCHEMA).unwrap())
        .remote(format!("punix:{}", directory.join("sock").display()))
        .remote("db:T,top,remotes")
        .open()
        .unwrap();
    let handle = server.handle();
    let (stop, stopped) = oneshot::channel();
    let (listening, ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let mut server = server;
            assert_eq!(server.listen().await, Vec::<String>::new());
            listening.send(()).unwrap();
            server.run(async move { _ = stopped.await }).await;
        });
    });
    ready.recv().unwrap();
    Running { handle, stop, thread }
}

impl Running {
    fn stop(self) {
        drop(self.stop);
        self.thread.join().unwrap();
    }
}

type Client = Connection<Box<dyn stream::Stream>>;

async fn connect(directory: &Path) -> Client {
    connect_to(&format!("unix:{}", directory.join("sock").display())).await
}

async fn connect_to(remote: &str) -> Client {
    let stream = stream::connect(remote, stream::DSCP, &tls::Tls::default(), |_| ()).await.unwrap();
    Connection::new(stream, Limits::default())
}

async fn call(connection: &mut Client, method: &str, params: Value) -> Value {
    let Value::Array(params) = params else { panic!("parameters are an array") };
    connection.send(&Message::request(1, method, params)).await.unwrap();
    loop {
        match connection.receive().await.unwrap().expect("the server answers") {
            Message::Reply { result, .. } => return result,
            Message::Error { error, .. } => panic!("{method}: {error}"),
            _ => {}
        }
    }
}

fn insert(name: &str) -> Value {
    json!(["T", {"op": "insert", "table": "data", "row": {"name": name}}])
}

/// Adds a row whose address listens at a port that the system chooses. Waits for the port, and returns it.
async fn add_listener(client: &mut Client) -> u16 {
    let add = json!(["T",
        {"op": "insert", "table": "remote", "uuid-name": "r", "row": {"target": "ptcp:0:127.0.0.1"}},
        {"op": "insert", "table": "top", "row": {"remotes": ["named-uuid", "r"]}}]);
    call(client, "transact", add).await;
    let bound = json!(["T",
        {"op": "wait", "table": "remote", "where": [], "columns": ["status"], "until": "!=", "rows": [{"status": ["map", []]}]},
        {"op": "select", "table": "remote", "where": [], "columns": ["status"]}]);
    let result = call(client, "transact", bound).await;
    let status = &result[1]["rows"][0]["status"][1][0];
    assert_eq!(status[0], "bound_port");
    status[1].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn acknowledged_transactions_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut client = connect(directory.path()).await;
    call(&mut client, "transact", insert("kept")).await;
    server.stop();
    assert!(!directory.path().join("sock").exists(), "the socket's file goes with the server");
    let server = start(directory.path());
    let mut client = connect(directory.path()).await;
    let select = json!(["T", {"op": "select", "table": "data", "where": [], "columns": ["name"]}]);
    assert_eq!(call(&mut client, "transact", select).await, json!([{"rows": [{"name": "kept"}]}]));
    server.stop();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_and_delays_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut lazy = connect(directory.path()).await;
    call(&mut lazy, "monitor", json!(["T", null, {"data": {}}])).await;
    let mut busy = connect(directory.path()).await;
    let name = "x".repeat(1 << 20);
    let mut cut_off = false;
    // The bound is 64 MiB; twice that is enough by far.
    for _ in 0..130 {
        call(&mut busy, "transact", insert(&name)).await;
        if server.handle.memory_report().await.unwrap().contains("monitors:0") {
            cut_off = true;
            break;
        }
    }
    assert!(cut_off);
    server.stop();
}

#[tokio::test]
async fn malformed_input_ends_that_connection_only() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut good = connect(directory.path()).await;
    for garbage in
        ["hello", "{]", "[1]", r#"{"method": 5, "params": [], "id": 1}"#, r#"{"id": 1, "result": 5, "error": null}"#]
    {
        let mut bad = tokio::net::UnixStream::connect(directory.path().join("sock")).await.unwrap();
        bad.write_all(garbage.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        bad.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"", "after {garbage}");
    }
    assert_eq!(call(&mut good, "echo", json!(["still here"])).await, json!(["still here"]));
    server.stop();
}

#[tokio::test]
async fn addresses_in_columns_are_used_while_present() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut client = connect(directory.path()).await;
    let port = add_listener(&mut client).await;
    let mut other = connect_to(&format!("tcp:127.0.0.1:{port}")).await;
    assert_eq!(call(&mut other, "list_dbs", json!([])).await, json!(["T", "_Server"]));
    call(&mut client, "transact", json!(["T", {"op": "delete", "table": "top", "where": []}])).await;
    assert_eq!(other.receive().await.unwrap(), None, "the connection goes with the address");
    server.stop();
}

#[tokio::test]
async fn an_address_gets_the_port_of_one_that_it_replaces() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let mut client = connect(directory.path()).await;
    let port = add_listener(&mut client).await;
    let fixed = format!("ptcp:{port}:127.0.0.1");
    let change = json!(["T", {"op": "update", "table": "remote", "where": [], "row": {"target": fixed}}]);
    call(&mut client, "transact", change).await;
    // Asking for the list of addresses comes after the change of addresses.
    assert!(server.handle.list_remotes().await.is_ok());
    let mut other = connect_to(&format!("tcp:127.0.0.1:{port}")).await;
    assert_eq!(call(&mut other, "list_dbs", json!([])).await, json!(["T", "_Server"]));
    server.stop();
}

#[tokio::test]
async fn an_address_that_becomes_free_is_listened_at() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = format!("ptcp:{}:127.0.0.1", other.local_addr().unwrap().port());
    assert_eq!(server.handle.add_remote(remote.clone()).await.unwrap(), "");
    let address = other.local_addr().unwrap();
    drop(other);
    while tokio::net::TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    server.stop();
}

#[tokio::test]
async fn commands_act_on_the_running_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let handle = server.handle.clone();
    assert_eq!(handle.list_databases().await.unwrap(), "T\n_Server\n");
    assert_eq!(handle.remove_remote("none".into()).await.unwrap_err(), "no such remote");
    // An address that cannot be used is listed nevertheless.
    assert_eq!(handle.add_remote("pssl:x".into()).await.unwrap(), "");
    assert!(handle.list_remotes().await.unwrap().lines().any(|remote| remote == "pssl:x"));
    handle.remove_remote("pssl:x".into()).await.unwrap();
    assert_eq!(handle.add_remote("db:T".into()).await.unwrap_err(), "\"db:T\": invalid syntax");
    let second = format!("punix:{}", directory.path().join("second").display());
    handle.add_remote(second.clone()).await.unwrap();
    assert!(directory.path().join("second").exists());
    handle.remove_remote(second).await.unwrap();
    handle.compact(None).await.unwrap();
    assert_eq!(handle.compact(Some("_Server".into())).await.unwrap_err(), "cannot compact built-in databases");
    handle.remove_database("T".into()).await.unwrap();
    handle.add_database(directory.path().join("t.db").display().to_string()).await.unwrap();
    server.stop();
    assert!(handle.list_databases().await.is_err());
}

#[tokio::test]
async fn a_file_with_an_older_schema_is_upgraded_with_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("u.db");
    let schema = |version: &str, more: &str| {
        let text = format!(
            r#"{{"name": "U", "version": "{version}", "cksum": "7 8", "tables": {{"data": {{"isRoot": true,
            "columns": {{"name": {{"type": "string"}}{more}}}}}}}}}"#
        );
        DatabaseSchema::parse(&text).unwrap()
    };
    let newer = || schema("1.10.0", r#", "extra": {"type": "integer"}"#);
    let open = |schema| Server::builder().database_file_upgraded(&path, schema).open().unwrap();
    let version = |server: &Server| server.core().database("U").unwrap().schema().version.clone();
    assert_eq!(version(&open(schema("1.9.0", ""))), "1.9.0");
    assert_eq!(version(&open(newer())), "1.10.0");
    assert!(directory.path().join("u.db.backup1.9.0-7").exists());
    // An older program does not remove columns.
    assert_eq!(version(&open(schema("1.9.0", ""))), "1.10.0");
}
