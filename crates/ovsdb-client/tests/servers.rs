//! The replica over real sockets, against several real servers, one of which dies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use ovsdb::{DatabaseSchema, UuidSource};
use ovsdb_client::typed::{Condition, Ref};
use ovsdb_client::{Client, Idl, Order, Outcome, Wanted, columns};
use ovsdb_server::{Builder, Server, Source};
use tokio::sync::oneshot;

const SCHEMA: &str = r#"{"name": "T", "version": "1.0.0", "tables": {
    "Kid": {"isRoot": true, "columns": {"name": {"type": "string"}, "number": {"type": "integer"}}}}}"#;

ovsdb_client::tables! {
    database "T", version "1.0.0";

    table kid::Kid = "Kid" [] {
        NAME: String = "name";
        NUMBER: i64 = "number";
    }
}

/// A server on a thread of its own, ended on drop.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the server panicked");
    }
}

fn start(builder: Builder, socket: &Path) -> Running {
    let mut server = builder.remote(format!("punix:{}", socket.display())).open().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (listening, heard) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listening.send(server.listen().await).unwrap();
            server.run(async { drop(stopped.await) }).await;
        });
    });
    assert_eq!(heard.recv().unwrap(), Vec::<String>::new());
    Running { stop: Some(stop), thread: Some(thread) }
}

/// The addresses of a server with the database and of one that relays it.
struct Pair {
    dir: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn remote(&self, name: &str) -> String {
        format!("unix:{}", self.socket(name).display())
    }

    fn keeper(&self) -> Running {
        let schema = DatabaseSchema::parse(SCHEMA).unwrap();
        let builder = Server::builder().database_file_or_new(self.dir.path().join("t.db"), schema);
        start(builder.uuids(UuidSource::os()), &self.socket("keeper"))
    }

    /// A relay that has the database already.
    async fn relay(&self) -> Running {
        let source = Source::parse(&self.remote("keeper")).unwrap();
        let running = start(Server::builder().database_relay("T", source), &self.socket("relay"));
        let wanted = Wanted::new();
        while Idl::connect(&self.remote("relay"), &Arc::default(), DATABASE, wanted.clone()).await.is_err() {}
        running
    }

    /// A client of both, the relay first.
    fn client(&self) -> Idl {
        let remotes = format!("{},{}", self.remote("relay"), self.remote("keeper"));
        let wanted = Wanted::from(&columns! { kid { NAME, NUMBER } });
        let mut idl = Idl::new(&remotes, &Arc::default(), DATABASE, wanted).unwrap();
        idl.set_order(Order::AsNamed);
        idl
    }
}

async fn until(idl: &mut Idl, holds: impl Fn(&Idl) -> bool) {
    while !holds(idl) {
        idl.changed().await.unwrap();
    }
}

async fn insert(idl: &mut Idl, name: &str, number: i64) -> Ref<Kid> {
    let mut made = Ref::none();
    let outcome = idl.transact(|txn| made = txn.insert(Kid).set(kid::NAME, name).set(kid::NUMBER, number).reference());
    let Outcome::Committed(committed) = outcome.await.unwrap() else { panic!("it is committed") };
    committed.reference(made)
}

fn names(idl: &Idl) -> Vec<String> {
    let mut names: Vec<String> = idl.all(Kid).map(|row| row.get(kid::NAME).to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_next_server_takes_over_from_a_dead_one() {
    let pair = Pair::new();
    let _keeper = pair.keeper();
    let relay = pair.relay().await;
    let mut idl = pair.client();
    until(&mut idl, |idl| idl.is_live()).await;
    assert_eq!(idl.remote(), pair.remote("relay"));
    let one = insert(&mut idl, "one", 1).await;
    until(&mut idl, |idl| names(idl) == ["one"]).await;
    drop(relay);
    // The last state read over one connection is verified over the next.
    let outcome = idl.transact(|txn| {
        let number = txn.read(one, kid::NUMBER);
        txn.set(one, kid::NUMBER, number + 1);
    });
    assert!(matches!(outcome.await.unwrap(), Outcome::Committed(_)));
    assert_eq!((idl.remote(), idl.is_live()), (pair.remote("keeper").as_str(), true));
    until(&mut idl, |idl| idl.find(one).is_some_and(|row| row.get(kid::NUMBER) == 2)).await;
    insert(&mut idl, "two", 2).await;
    until(&mut idl, |idl| names(idl) == ["one", "two"]).await;
}

#[tokio::test]
async fn leader_only_skips_relays_and_waits_for_the_leader() {
    let pair = Pair::new();
    let keeper = pair.keeper();
    let _relay = pair.relay().await;
    let mut idl = pair.client();
    idl.set_leader_only(true);
    until(&mut idl, |idl| idl.is_live()).await;
    assert_eq!(idl.remote(), pair.remote("keeper"));
    insert(&mut idl, "one", 1).await;
    until(&mut idl, |idl| names(idl) == ["one"]).await;
    drop(keeper);
    until(&mut idl, |idl| !idl.is_live()).await;
    // The replica stays as the last that is known.
    assert_eq!(names(&idl), ["one"]);
    let _keeper = pair.keeper();
    until(&mut idl, |idl| idl.is_live()).await;
    assert_eq!((idl.remote(), names(&idl)), (pair.remote("keeper").as_str(), vec!["one".to_owned()]));
}

#[tokio::test]
async fn conditions_choose_rows_over_any_server() {
    let pair = Pair::new();
    let _keeper = pair.keeper();
    let relay = pair.relay().await;
    let mut idl = pair.client();
    for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
        insert(&mut idl, name, number).await;
    }
    idl.set_condition(Condition::any_of([kid::NUMBER.above(2), kid::NAME.equals("a")]));
    assert!(!idl.conditions_are_held());
    until(&mut idl, Idl::conditions_are_held).await;
    assert_eq!(names(&idl), ["a", "c"]);
    drop(relay);
    until(&mut idl, |idl| idl.is_live() && idl.remote() == pair.remote("keeper")).await;
    assert_eq!(names(&idl), ["a", "c"]);
    let a = idl.all(Kid).find(|row| row.get(kid::NAME) == "a").unwrap().reference();
    // A row that no longer meets the condition disappears from the replica, though it still exists.
    idl.transact(|txn| txn.set(a, kid::NAME, "z")).await.unwrap();
    until(&mut idl, |idl| names(idl) == ["c"]).await;
    idl.set_condition(Condition::any_of([a.is_it()]));
    until(&mut idl, Idl::conditions_are_held).await;
    assert_eq!(names(&idl), ["z"]);
    idl.set_condition(Condition::none(Kid));
    until(&mut idl, Idl::conditions_are_held).await;
    assert_eq!(names(&idl), Vec::<String>::new());
    idl.set_condition(Condition::all(Kid));
    until(&mut idl, Idl::conditions_are_held).await;
    assert_eq!(names(&idl), ["b", "c", "z"]);
}

#[tokio::test]
async fn a_server_of_another_database_is_passed_over() {
    let pair = Pair::new();
    let schema = DatabaseSchema::parse(&SCHEMA.replace("\"T\"", "\"U\"")).unwrap();
    let other = Server::builder().database_file_or_new(pair.dir.path().join("u.db"), schema);
    let _other = start(other.uuids(UuidSource::os()), &pair.socket("other"));
    let _keeper = pair.keeper();
    let remotes = format!("{},{}", pair.remote("other"), pair.remote("keeper"));
    for leader_only in [true, false] {
        for (database, place) in [("T", "keeper"), ("U", "other")] {
            let suits = async |client: &mut Client| {
                client.standing(database).await.is_ok_and(|standing| standing.suits_requests(leader_only))
            };
            let client = Client::connect_to(&remotes, &Arc::default(), Order::AsNamed, suits).await.unwrap();
            assert_eq!(client.name(), pair.remote(place));
        }
    }
    let suits = async |client: &mut Client| client.standing("V").await.unwrap().suits_a_replica(false);
    assert!(Client::connect_to(&remotes, &Arc::default(), Order::AsNamed, suits).await.is_err());
}
