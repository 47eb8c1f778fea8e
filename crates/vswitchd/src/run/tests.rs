//! The daemon's steps called one by one, so that changes of the database come in between as on a busy machine.

use super::*;
use ovsdb::Datum;
use ovsdb_client::{Replica, Row, Wanted};
use std::path::Path;

const DEADLINE: Duration = Duration::from_secs(60);

fn schema() -> ovsdb::DatabaseSchema {
    ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).expect("a valid schema")
}

/// A database server that runs on this test's thread.
async fn serve(dir: &Path) -> Background {
    let mut server = ovsdb_server::Server::builder()
        .database_file_or_new(dir.join("conf.db"), schema())
        .remote(format!("punix:{}", dir.join("db.sock").display()))
        .open()
        .expect("a new database");
    assert_eq!(server.listen().await, Vec::<String>::new());
    Background::start(async move { server.run(std::future::pending()).await })
}

fn daemon(dir: &Path) -> Daemon {
    let options = Options {
        remote: format!("unix:{}", dir.join("db.sock").display()),
        confinement: Confinement { rundir: dir.to_owned(), is_on: true },
        types: Types { dummy: DummyLevel::Beside, ..Types::default() },
        host_versions: false,
        tls: tls::Config::default(),
    };
    Daemon::new(options, Clock::real()).expect("a valid remote")
}

async fn client(dir: &Path) -> Idl {
    let remote = format!("unix:{}", dir.join("db.sock").display());
    Idl::connect(&remote, &Arc::default(), vswitch::DATABASE, Wanted::everything(&schema())).await.expect("it answers")
}

/// Adds a dummy port, to the bridge br0 or with it, and asks for the configuration `next`.
async fn add_port(client: &mut Idl, name: &str, kind: &str, next: i64) {
    let done = client.transact(|txn| {
        let interface = txn.insert_row("Interface");
        txn.set_datum("Interface", interface, "name", Datum::scalar(name));
        txn.set_datum("Interface", interface, "type", Datum::scalar(kind));
        let port = txn.insert_row("Port");
        txn.set_datum("Port", port, "name", Datum::scalar(name));
        txn.set_datum("Port", port, "interfaces", Datum::scalar(interface));
        let root = txn.replica().rows("Open_vSwitch").next().map(|row| row.uuid());
        let bridge = txn.replica().rows("Bridge").next().map(|row| row.uuid());
        let root = root.unwrap_or_else(|| txn.insert_row("Open_vSwitch"));
        txn.set_datum("Open_vSwitch", root, "next_cfg", Datum::scalar(next));
        if let Some(bridge) = bridge {
            txn.add_elements("Bridge", bridge, "ports", &Datum::scalar(port));
            return;
        }
        let bridge = txn.insert_row("Bridge");
        txn.set_datum("Bridge", bridge, "name", Datum::scalar("br0"));
        txn.set_datum("Bridge", bridge, "datapath_type", Datum::scalar("dummy"));
        txn.set_datum("Bridge", bridge, "ports", Datum::scalar(port));
        txn.add_elements("Open_vSwitch", root, "bridges", &Datum::scalar(bridge));
    });
    assert!(matches!(done.await, Ok(Outcome::Committed(_))));
}

fn interface<'a>(db: &'a Replica, name: &str) -> Option<Row<'a>> {
    db.rows("Interface").find(|row| row.string("name") == name)
}

fn cur_cfg(db: &Replica) -> i64 {
    db.rows("Open_vSwitch").next().map_or(0, |row| row.integer("cur_cfg"))
}

/// Waits until a client sees that the configuration `next` runs, and returns the number that the interface has then.
async fn number_at(client: &mut Idl, next: i64, name: &str) -> Option<i64> {
    while cur_cfg(client.replica()) < next {
        client.changed().await.expect("a connection");
    }
    interface(client.replica(), name).and_then(|row| row.integer_opt("ofport"))
}

/// The interleavings in which the replica gets a change that is not noted yet: the daemon waits for an answer of the
/// database, after which something else than the database has everything configured.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// Status of protocols was written.
    Protocols,
    /// All states were written.
    States,
    /// Statistics were written.
    Statistics,
}

async fn a_port_that_comes_while_the_daemon_writes(before: Before) {
    let dir = tempfile::tempdir().expect("a directory");
    let _server = serve(dir.path()).await;
    let mut client = client(dir.path()).await;
    add_port(&mut client, "br0", "internal", 1).await;
    let mut daemon = daemon(dir.path());
    while !daemon.is_configured {
        daemon.idl.changed().await.expect("a connection");
        daemon.database_changed().await;
    }
    assert_eq!(number_at(&mut client, 1, "br0").await, Some(65534));

    add_port(&mut client, "p1", "dummy", 2).await;
    // The server sends updates in order: the new port comes before the answer to the daemon.
    match before {
        Before::Protocols => daemon.write_protocols().await,
        Before::States => daemon.write(Report::Status, true).await,
        Before::Statistics => daemon.write(Report::Statistics, true).await,
    }
    while interface(daemon.idl.replica(), "p1").is_none() {
        daemon.idl.changed().await.expect("a connection");
    }
    let seen = cur_cfg(daemon.idl.replica());
    assert_eq!(seen, 1, "{before:?}: it was written before the port was configured");

    // As `run` does when a link has changed.
    daemon.configuration.look_for_changed_devices();
    daemon.configure().await;
    assert_eq!(number_at(&mut client, 2, "p1").await, Some(1), "{before:?}");
    // Nothing is left for later, and nothing is done twice.
    assert!(!daemon.note_changes() && !daemon.is_due && !daemon.is_unwritten, "{before:?}");
    daemon.configuration.clear().await;
}

#[test]
fn cur_cfg_is_written_when_all_that_the_database_had_is_configured() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for before in [Before::Protocols, Before::States, Before::Statistics] {
        let run = a_port_that_comes_while_the_daemon_writes(before);
        let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, run).await });
        assert!(ended.is_ok(), "{before:?}: no end");
    }
}
