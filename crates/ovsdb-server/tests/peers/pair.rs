//! This server and Open vSwitch's, with the same sessions on both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use ovsdb::DatabaseSchema;
use ovsdb::jsonrpc::{Connection, Limits, Message};
use ovsdb_server::Server;
use serde_json::{Value, json};

use crate::names::Names;
use crate::sort_databases;

/// Runs the peer's ovsdb-tool.
pub(crate) fn tool(bin: &Path, args: &[&str]) -> Output {
    Command::new(bin.join("ovsdb-tool")).args(args).output().expect("the peer's ovsdb-tool runs")
}

/// The peer's server, ended when dropped.
pub(crate) struct Peer(Child);

impl Peer {
    /// Returns true if the process ended by itself within a moment.
    fn is_gone(&mut self) -> bool {
        (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            matches!(self.0.try_wait(), Ok(Some(_)))
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the peer's server on `peer` in `directory`, with an empty database of this schema.
pub(crate) fn start_peer(bin: &Path, directory: &Path, schema: &str) -> Peer {
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(directory.join("schema"), schema).unwrap();
    assert!(tool(bin, &["create", &path("peer.db"), &path("schema")]).status.success());
    let child = Command::new(bin.join("ovsdb-server"))
        .env("OVS_RUNDIR", directory)
        .env("OVS_LOGDIR", directory)
        .arg(path("peer.db"))
        .args([format!("--remote=punix:{}", path("peer")), "--unixctl=".to_owned() + &path("ctl")])
        .stderr(Stdio::null())
        .spawn()
        .expect("the peer's ovsdb-server runs");
    Peer(child)
}

/// A connection to either server.
pub(crate) type Client = Connection<tokio::net::UnixStream>;

/// Connects to a server, which may need a moment to listen.
pub(crate) async fn connect(path: PathBuf) -> Client {
    loop {
        match tokio::net::UnixStream::connect(&path).await {
            Ok(stream) => return Connection::new(stream, Limits::default()),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

/// All messages of a server from a request on until its reply to a following `echo`; ends with `["closed"]` if it
/// closed the connection.
pub(crate) async fn exchange(connection: &mut Client, messages: &[Message]) -> Vec<Value> {
    let mut answer = Vec::new();
    for message in messages.iter().chain([&Message::request("barrier", "echo", Vec::new())]) {
        if connection.send(message).await.is_err() {
            break;
        }
    }
    loop {
        match connection.receive().await {
            Ok(Some(Message::Reply { id, .. })) if id == "barrier" => return answer,
            Ok(Some(message)) => answer.push(message.to_json()),
            Ok(None) | Err(_) => {
                answer.push(json!(["closed"]));
                return answer;
            }
        }
    }
}

/// One difference, to be shown.
pub(crate) type Difference = String;

/// Both servers, and the sessions to them.
pub(crate) struct Pair {
    directory: tempfile::TempDir,
    peer: Peer,
    ours: Vec<Client>,
    theirs: Vec<Client>,
    names: Names,
    serial: u64,
    /// The sessions that own locks. Open vSwitch sends `locked` to an owner again when a waiting session gives up.
    pub(crate) owners: BTreeSet<(usize, String)>,
    /// A fault of Open vSwitch that was met, after which nothing is compared, as the databases may differ.
    pub(crate) fault_of_peer: Option<&'static str>,
    /// The difference between both answers.
    pub(crate) differences: Vec<Difference>,
    /// Whether the last of these is of two errors.
    pub(crate) differ_in_errors: bool,
    /// How many answers and notifications were compared.
    pub(crate) compared: u64,
}

impl Pair {
    /// Starts both servers with an empty database.
    pub(crate) async fn start(bin: &Path, schema: &str, sessions: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let peer = start_peer(bin, directory.path(), schema);
        let server = Server::builder()
            .database_in_memory(DatabaseSchema::parse(schema).unwrap())
            .remote(format!("punix:{}", directory.path().join("ours").display()))
            .open()
            .unwrap();
        tokio::spawn(server.run(std::future::pending()));
        let mut pair = Self {
            directory,
            peer,
            ours: Vec::new(),
            theirs: Vec::new(),
            names: Names::default(),
            serial: 0,
            owners: BTreeSet::new(),
            fault_of_peer: None,
            differences: Vec::new(),
            differ_in_errors: false,
            compared: 0,
        };
        for _ in 0..sessions {
            pair.connect().await;
        }
        pair
    }

    /// Opens another session to both.
    pub(crate) async fn connect(&mut self) -> usize {
        self.ours.push(connect(self.directory.path().join("ours")).await);
        self.theirs.push(connect(self.directory.path().join("peer")).await);
        self.ours.len() - 1
    }

    /// Closes a session and opens it again.
    pub(crate) async fn reconnect(&mut self, session: usize) {
        self.ours[session] = connect(self.directory.path().join("ours")).await;
        self.theirs[session] = connect(self.directory.path().join("peer")).await;
    }

    /// Sends a request to both and compares all messages; returns ours.
    pub(crate) async fn ask(&mut self, session: usize, method: &str, params: &Value) -> Vec<Value> {
        self.serial += 1;
        let request = |params: &Value| {
            Message::request(self.serial, method, params.as_array().expect("parameters are an array").clone())
        };
        let (to_ours, to_theirs) = (request(params), request(&self.names.translate(params)));
        self.send(session, &[to_ours], &[to_theirs]).await
    }

    /// The id of the last request.
    pub(crate) fn last_id(&self) -> u64 {
        self.serial
    }

    /// Sends a notification to both and compares the messages.
    pub(crate) async fn notify(&mut self, session: usize, method: &str, params: Vec<Value>) -> Vec<Value> {
        let message = [Message::notification(method, params)];
        self.send(session, &message, &message).await
    }

    /// Compares the messages to a session since the last call.
    pub(crate) async fn look(&mut self, session: usize) -> Vec<Value> {
        self.send(session, &[], &[]).await
    }

    async fn send(&mut self, session: usize, to_ours: &[Message], to_theirs: &[Message]) -> Vec<Value> {
        let mut theirs = exchange(&mut self.theirs[session], to_theirs).await;
        let mut ours = exchange(&mut self.ours[session], to_ours).await;
        if let [Message::Request { method, .. }] = to_ours {
            sort_databases(method, &mut theirs);
            sort_databases(method, &mut ours);
        }
        theirs.retain(|message| {
            let name = message["params"][0].as_str().unwrap_or_default();
            message["method"] != "locked" || !self.owners.contains(&(session, name.to_owned()))
        });
        if std::env::var_os("PAIR_TRACE").is_some() {
            println!("{session} {to_ours:?}\n   theirs {theirs:?}\n   ours {ours:?}");
        }
        let closed = |messages: &[Value]| messages.contains(&json!(["closed"]));
        if closed(&theirs) && !closed(&ours) && self.peer.is_gone() {
            self.fault_of_peer = Some("died");
        }
        if self.fault_of_peer.is_none() {
            self.compare(to_ours, &as_theirs(&ours), &theirs);
        }
        ours
    }

    fn compare(&mut self, request: &[Message], ours: &[Value], theirs: &[Value]) {
        let (ours, theirs) = (parted(ours), parted(theirs));
        let mut differing = None;
        for (ours, theirs) in ours.iter().zip(&theirs) {
            self.compared += ours.as_array().map_or(0, Vec::len) as u64;
            let found = self.names.compare(ours, theirs);
            differing = differing.or(found);
        }
        if let Some((ours, theirs)) = differing.map(|both| *both) {
            // It considers products of large integers larger than they are.
            if theirs.to_string().contains("Result of \\\"*=\\\" operation is out of range") {
                self.fault_of_peer = Some("refused a product");
                return;
            }
            let is_error = |answers: &Value| answers[0].get("error").is_some_and(|error| !error.is_null());
            self.differ_in_errors = is_error(&ours) && is_error(&theirs);
            let request: Vec<String> = request.iter().map(|message| message.to_json().to_string()).collect();
            self.differences.push(format!("{}\n  Open vSwitch: {theirs}\n  Flowstone:    {ours}", request.join("\n")));
        }
    }

    /// From here on it does not matter which of several rows that do not fit an error names.
    pub(crate) fn any_row_may_be_named(&mut self) {
        self.names.any_row = true;
    }

    /// How often an error named another one of several things that were wrong.
    pub(crate) fn accidents(&self) -> u64 {
        self.names.accidents
    }

    /// Fails if there were differences, and shows the first ones.
    pub(crate) fn assert_same(&self, what: &str) {
        let shown = self.differences.iter().take(12).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(self.differences.is_empty(), "{what}: {} differences\n{shown}", self.differences.len());
    }
}

/// Our messages adapted to Open vSwitch 3.1: it has no transaction history of standalone databases, so the last one
/// in `monitor_cond_since` and `update3` is always zero; and it does not answer a cancelled transaction, as RFC 7047
/// section 4.1.4 demands.
fn as_theirs(messages: &[Value]) -> Vec<Value> {
    let zero = json!(ovsdb::Uuid::ZERO.to_string());
    let mut messages: Vec<Value> = messages.iter().filter(|message| message["error"] != "canceled").cloned().collect();
    for message in &mut messages {
        if message["method"] == "update3" {
            message["params"][1] = zero.clone();
        } else if let Some([Value::Bool(_), last @ Value::String(_), Value::Object(_)]) =
            message.get_mut("result").and_then(Value::as_array_mut).map(Vec::as_mut_slice)
        {
            *last = zero.clone();
        }
    }
    messages
}

/// Replies first, since they introduce rows, then the messages before and after them, each in the order of monitors:
/// the order of several monitors depends on a hash table.
fn parted(messages: &[Value]) -> [Value; 3] {
    let is_answer = |message: &Value| message.get("method").is_none();
    let last = messages.iter().rposition(is_answer);
    let (before, after) = messages.split_at(last.map_or(0, |at| at + 1));
    let notifications = |part: &[Value]| {
        let mut part: Vec<Value> = part.iter().filter(|message| !is_answer(message)).cloned().collect();
        part.sort_by_key(|message| format!("{}{}", message["method"], ovsdb::json::canonical(&message["params"][0])));
        Value::from(part)
    };
    let answers = before.iter().filter(|message| is_answer(message)).cloned().collect();
    [answers, notifications(before), notifications(after)]
}
