//! The replica over a real socket, against a scripted server.

use std::sync::Arc;

use ovsdb::jsonrpc::{Connection, Limits, Message};
use ovsdb_client::{Client, Error, Idl, Order, Outcome, Reconnect};
use serde_json::{Value, json};
use stream::{DSCP, Listener};

fn schema() -> Value {
    json!({ "name": "T", "version": "1.0.0", "tables": { "Kid": { "isRoot": true, "columns": {
        "name": { "type": "string" } } } } })
}

const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const WANTED: &[(&str, &[&str])] = &[("Kid", &["name"])];

/// The server's side of one connection.
struct Part(Connection<Box<dyn stream::Stream>>);

impl Part {
    async fn accept(listener: &Listener) -> Self {
        let stream = listener.accept().await.unwrap().into_stream().await.unwrap();
        Self(Connection::new(stream, Limits::default()))
    }

    /// Waits for a request, which must be `method`, and answers it.
    async fn answer(&mut self, method: &str, result: Value) -> Vec<Value> {
        let Some(Message::Request { id, method: asked, params }) = self.0.receive().await.unwrap() else {
            panic!("expected {method}");
        };
        assert_eq!(asked, method);
        self.0.send(&Message::reply(id, result)).await.unwrap();
        params
    }

    async fn contents(&mut self, name: &str) {
        let contents = json!([false, A, { "Kid": { A: { "initial": { "name": name } } } }]);
        self.answer("monitor_cond_since", contents).await;
    }

    async fn update(&mut self, name: &str) {
        let update = json!({ "Kid": { A: { "modify": { "name": name } } } });
        let params = vec![json!(["monid", "T"]), json!(A), update];
        self.0.send(&Message::notification("update3", params)).await.unwrap();
    }
}

async fn listen() -> (tempfile::TempDir, Listener, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db.sock");
    let listener = stream::listen(&format!("punix:{}", path.display()), DSCP, &Arc::default()).unwrap();
    (dir, listener, format!("unix:{}", path.display()))
}

fn name(idl: &Idl) -> String {
    idl.rows("Kid").next().map(|row| row.string("name").to_owned()).unwrap_or_default()
}

/// Runs both sides until the client's is done.
async fn play<T>(client: impl Future<Output = T>, server: impl Future<Output = ()>) -> T {
    tokio::pin!(server);
    tokio::select! {
        biased;
        result = client => result,
        // A server that has finished keeps its connection open while nothing awaits it.
        () = async { (&mut server).await; std::future::pending().await } => unreachable!(),
    }
}

#[tokio::test]
async fn changes_arrive_and_commits_are_answered() {
    let (_dir, listener, remote) = listen().await;
    let server = async {
        let mut part = Part::accept(&listener).await;
        part.answer("get_schema", schema()).await;
        part.contents("one").await;
        part.update("two").await;
        let params = part.answer("transact", json!([{ "count": 1 }])).await;
        assert_eq!(params[1]["row"], json!({ "name": "three" }));
        part.answer("transact", json!([{ "error": "timed out" }, null])).await;
        part.update("four").await;
        part.answer("transact", json!([{}, { "count": 1 }])).await;
        std::future::pending::<()>().await;
    };
    let client = async {
        let mut idl = Idl::connect(&remote, &Arc::default(), "T", WANTED).await.unwrap();
        assert_eq!(name(&idl), "one");
        idl.changed().await.unwrap();
        while name(&idl) != "two" {
            idl.changed().await.unwrap();
        }
        let row = idl.rows("Kid").next().unwrap().uuid();
        let mut txn = idl.transaction();
        txn.set_datum("Kid", row, "name", "three");
        assert!(matches!(txn.commit().await.unwrap(), Outcome::Committed(_)));
        // The second reply reports a conflict; then the transaction is built again.
        let mut tries = Vec::new();
        let outcome = idl.transact(|txn| {
            tries.push(txn.string("Kid", row, "name").to_owned());
            txn.verify_column("Kid", row, "name");
            txn.set_datum("Kid", row, "name", "five");
        });
        assert!(matches!(outcome.await.unwrap(), Outcome::Committed(_)));
        assert_eq!(tries, ["two", "four"]);
    };
    play(client, server).await;
}

#[tokio::test]
async fn lost_connections_are_reestablished() {
    let (_dir, listener, remote) = listen().await;
    let server = async {
        for contents in ["one", "two"] {
            let mut part = Part::accept(&listener).await;
            part.answer("get_schema", schema()).await;
            part.contents(contents).await;
            if contents == "two" {
                std::future::pending::<()>().await;
            }
        }
    };
    let client = async {
        let mut idl = Idl::new(&remote, &Arc::default(), "T", WANTED).unwrap();
        assert!(!idl.is_live());
        while name(&idl) != "two" {
            idl.changed().await.unwrap();
        }
        assert!(idl.is_live());
    };
    play(client, server).await;
}

#[tokio::test]
async fn when_a_server_is_lost_the_next_one_is_asked() {
    let (_first_dir, first, first_remote) = listen().await;
    let (_second_dir, second, second_remote) = listen().await;
    let serve = async |listener: Listener, contents: &str| {
        let mut part = Part::accept(&listener).await;
        // No other client is served.
        drop(listener);
        part.answer("get_schema", schema()).await;
        part.contents(contents).await;
    };
    // The order is random: the first server serves once and ends, and then the other one is used.
    let server = async {
        tokio::join!(serve(first, "one"), serve(second, "two"));
    };
    let client = async {
        let remotes = format!("unix:/nonexistent,{first_remote},{second_remote}");
        let mut idl = Idl::new(&remotes, &Arc::default(), "T", WANTED).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 2 {
            idl.changed().await.unwrap();
            seen.extend(Some(name(&idl)).filter(|name| !name.is_empty()));
        }
        seen
    };
    assert_eq!(play(client, server).await.into_iter().collect::<Vec<_>>(), ["one", "two"]);
}

#[tokio::test]
async fn a_server_that_follows_another_is_passed_over() {
    let (_first_dir, first, first_remote) = listen().await;
    let (_second_dir, second, second_remote) = listen().await;
    let say = async |listener: &Listener, leader: bool| {
        let mut part = Part::accept(listener).await;
        let params = part.answer("transact", json!([{ "rows": [{ "leader": leader, "connected": true }] }])).await;
        assert_eq!(params[1]["where"], json!([["name", "==", "T"]]));
        part
    };
    let remotes = format!("{first_remote},{second_remote}");
    let client = async {
        let leads =
            async |client: &mut Client| client.standing("T").await.is_ok_and(|standing| standing.suits_a_replica(true));
        Client::connect_to(&remotes, &Arc::default(), Order::AsNamed, leads).await
    };
    let server = async {
        let _follower = say(&first, false).await;
        let mut leader = say(&second, true).await;
        leader.answer("list_dbs", json!(["T"])).await;
    };
    let ask = async {
        let mut client = client.await.unwrap();
        client.request("list_dbs", Vec::new()).await.unwrap()
    };
    assert_eq!(Box::pin(play(ask, server)).await, json!(["T"]));
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_passed_over() {
    // The kernel accepts connections, and no process reads them.
    let (_first_dir, _mute, first_remote) = listen().await;
    let (_second_dir, second, second_remote) = listen().await;
    let remotes = format!("{first_remote},{second_remote}");
    let client = async {
        let suits =
            async |client: &mut Client| client.standing("T").await.is_ok_and(|standing| standing.suits_requests(true));
        Client::connect_to(&remotes, &Arc::default(), Order::AsNamed, suits).await.unwrap()
    };
    let server = async {
        let mut part = Part::accept(&second).await;
        part.answer("transact", json!([{ "rows": [{ "model": "standalone" }] }])).await;
    };
    assert_eq!(Box::pin(play(client, server)).await.name(), second_remote);
}

#[tokio::test]
async fn without_reconnecting_a_lost_connection_is_an_error() {
    let (_dir, listener, remote) = listen().await;
    let server = async {
        let mut part = Part::accept(&listener).await;
        part.answer("get_schema", schema()).await;
        part.contents("one").await;
    };
    let client = async {
        let mut idl = Idl::connect(&remote, &Arc::default(), "T", WANTED).await.unwrap();
        idl.set_reconnect(Reconnect::Never);
        loop {
            if let Err(error) = idl.changed().await {
                return error;
            }
        }
    };
    assert!(matches!(play(client, server).await, Error::Connection { .. }));
}

#[tokio::test]
async fn bad_remotes_are_named() {
    for remote in ["ssl:", "nonsense", "tcp:"] {
        let error = Idl::new(remote, &Arc::default(), "T", WANTED).unwrap_err();
        assert!(error.to_string().starts_with(remote), "{error}");
    }
    let error = Idl::connect("ssl:127.0.0.1:5", &Arc::default(), "T", WANTED).await.unwrap_err();
    assert_eq!(error.to_string(), "ssl:127.0.0.1:5: database connection failed (Protocol not available)");
    let error = Idl::connect("unix:/nonexistent/socket", &Arc::default(), "T", WANTED).await.unwrap_err();
    let expected = "unix:/nonexistent/socket: database connection failed (No such file or directory)";
    assert_eq!(error.to_string(), expected);
}
