//! A database server and switches on threads, and a client that changes rows and waits.
//!
//! Waiting ends when the condition holds; the deadline only ends a test that would hang.

use base::Clock;
use ofproto::Ofproto;
use ovsdb::{Datum, Uuid};
use ovsdb_client::{Idl, Outcome, Replica, Row, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use vswitchd::confinement::Confinement;
use vswitchd::devices::Devices;
use vswitchd::run::{Daemon, Options};
use vswitchd::types::{DummyLevel, Types};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A component that runs on a thread until it is dropped.
pub(crate) struct Running<T> {
    pub(crate) with: T,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|e| e.is_ok()), "a thread of the lab panicked");
    }
}

/// All components of one test.
pub(crate) struct Lab {
    // Dropped in this order.
    pub(crate) switch: Option<Running<Arc<Devices>>>,
    pub(crate) idl: Idl,
    pub(crate) database: Option<Running<()>>,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) dir: tempfile::TempDir,
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn start_database(dir: &Path) -> Running<()> {
    let schema = ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
    let mut server = ovsdb_server::Server::builder()
        .database_file_or_new(dir.join("conf.db"), schema)
        .remote(format!("punix:{}", dir.join("db.sock").display()))
        .open()
        .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (listening, heard) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().block_on(async move {
            listening.send(server.listen().await).unwrap();
            server.run(async { drop(stopped.await) }).await;
        });
    });
    assert_eq!(heard.recv().unwrap(), Vec::<String>::new());
    Running { with: (), stop: Some(stop), thread: Some(thread) }
}

/// A switch on the database in `dir`, with its sockets in `rundir`.
pub(crate) fn start_switch(dir: &Path, rundir: &Path) -> Running<Arc<Devices>> {
    let types = Types { dummy: DummyLevel::Beside, ..Types::default() };
    let remote = format!("unix:{}", dir.join("db.sock").display());
    let confinement = Confinement { rundir: rundir.to_owned(), is_on: true };
    let options = Options { remote, confinement, types, host_versions: true, tls: tls::Config::default() };
    let (stop, stopped) = oneshot::channel::<()>();
    let (started, heard) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().block_on(async move {
            let mut daemon = Daemon::new(options, Clock::real()).unwrap();
            started.send(Arc::clone(&daemon.devices)).unwrap();
            tokio::select! {
                () = daemon.run(|| {}) => {}
                _ = stopped => {}
            }
        });
    });
    Running { with: heard.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
}

impl Lab {
    /// A database and a switch on it.
    pub(crate) fn new() -> Self {
        let mut lab = Self::without_switch();
        lab.start_switch();
        lab
    }

    /// A database with its one root row.
    pub(crate) fn without_switch() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = start_database(dir.path());
        let schema = ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
        let runtime = runtime();
        let remote = format!("unix:{}", dir.path().join("db.sock").display());
        let wanted = ovsdb_client::Wanted::everything(&schema);
        let idl = runtime.block_on(Idl::connect(&remote, &Arc::default(), "Open_vSwitch", wanted)).unwrap();
        let mut lab = Self { switch: None, idl, database: Some(database), runtime, dir };
        lab.change_only(|txn| {
            txn.insert_row("Open_vSwitch");
        });
        lab
    }

    pub(crate) fn start_switch(&mut self) {
        assert!(self.switch.is_none());
        self.switch = Some(start_switch(self.dir.path(), self.dir.path()));
    }

    /// Waits until a condition holds of the rows.
    pub(crate) fn wait(&mut self, what: &str, holds: impl Fn(&Replica) -> bool) {
        let idl = &mut self.idl;
        let waited = self.runtime.block_on(async {
            tokio::time::timeout(DEADLINE, async {
                while !(idl.is_live() && holds(idl.replica())) {
                    idl.changed().await.unwrap();
                }
            })
            .await
        });
        let interfaces: Vec<String> = self.idl.rows("Interface").map(|r| describe(&r)).collect();
        assert!(waited.is_ok(), "waited in vain: {what}; {}", interfaces.join("; "));
    }

    /// Waits until a condition holds of the running switch.
    pub(crate) fn wait_for(&mut self, what: &str, holds: impl Fn(&Devices) -> bool) {
        let devices = Arc::clone(&self.switch.as_ref().unwrap().with);
        let waited = self.runtime.block_on(async {
            tokio::time::timeout(DEADLINE, async {
                while !holds(&devices) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
            .await
        });
        assert!(waited.is_ok(), "waited in vain: {what}");
    }

    /// Changes rows without waiting for the switch.
    pub(crate) fn change_only<R>(&mut self, mut make: impl FnMut(&mut Transaction<'_>) -> R) -> R {
        let idl = &mut self.idl;
        self.runtime.block_on(async {
            tokio::time::timeout(DEADLINE, async {
                loop {
                    let mut txn = idl.transaction();
                    let made = make(&mut txn);
                    match txn.commit().await.unwrap() {
                        Outcome::TryAgain => idl.changed().await.unwrap(),
                        Outcome::NotLocked => unreachable!("no lock is asked for"),
                        Outcome::Committed(_) | Outcome::Unchanged => return made,
                    }
                }
            })
            .await
            .expect("the database answers")
        })
    }

    /// Changes rows and waits until the switch has applied them.
    pub(crate) fn change<R>(&mut self, mut make: impl FnMut(&mut Transaction<'_>) -> R) -> R {
        let root = self.root();
        let next = self.idl.row("Open_vSwitch", root).unwrap().integer("next_cfg") + 1;
        let made = self.change_only(|txn| {
            txn.set_datum("Open_vSwitch", root, "next_cfg", Datum::scalar(next));
            make(txn)
        });
        self.wait("cur_cfg", |db| db.rows("Open_vSwitch").all(|r| r.integer("cur_cfg") >= next));
        made
    }

    pub(crate) fn root(&self) -> Uuid {
        self.idl.rows("Open_vSwitch").next().unwrap().uuid()
    }

    pub(crate) fn row(&self, table: &str, name: &str) -> Row<'_> {
        named(self.idl.replica(), table, name).unwrap_or_else(|| panic!("{table} {name} is not there"))
    }

    pub(crate) fn uuid(&self, table: &str, name: &str) -> Uuid {
        self.row(table, name).uuid()
    }

    /// Sets columns of a row by its name, and waits.
    pub(crate) fn set(&mut self, table: &str, name: &str, columns: &[(&str, Datum)]) {
        let uuid = self.uuid(table, name);
        self.change(|txn| {
            for (column, value) in columns {
                txn.set_datum(table, uuid, column, value.clone());
            }
        });
    }

    /// Adds a bridge of type dummy with its local port, and waits.
    pub(crate) fn add_bridge(&mut self, name: &str) {
        let root = self.root();
        self.change(|txn| {
            let port = insert_port(txn, name, "internal", &[]);
            let bridge = txn.insert_row("Bridge");
            txn.set_datum("Bridge", bridge, "name", Datum::scalar(name));
            txn.set_datum("Bridge", bridge, "datapath_type", Datum::scalar("dummy"));
            txn.set_datum("Bridge", bridge, "ports", Datum::scalar(port));
            txn.add_elements("Open_vSwitch", root, "bridges", &Datum::scalar(bridge));
        });
    }

    pub(crate) fn del_bridge(&mut self, name: &str) {
        let (root, uuid) = (self.root(), self.uuid("Bridge", name));
        self.change(|txn| txn.remove_elements("Open_vSwitch", root, "bridges", &Datum::scalar(uuid)));
    }

    /// Adds a port with an interface of the same name, and waits.
    pub(crate) fn add_port(&mut self, bridge: &str, name: &str, kind: &str, columns: &[(&str, Datum)]) {
        let bridge = self.uuid("Bridge", bridge);
        self.change(|txn| {
            let port = insert_port(txn, name, kind, columns);
            txn.add_elements("Bridge", bridge, "ports", &Datum::scalar(port));
        });
    }

    pub(crate) fn del_port(&mut self, bridge: &str, name: &str) {
        let (bridge, port) = (self.uuid("Bridge", bridge), self.uuid("Port", name));
        self.change(|txn| txn.remove_elements("Bridge", bridge, "ports", &Datum::scalar(port)));
    }

    pub(crate) fn ofport(&self, interface: &str) -> i64 {
        self.row("Interface", interface).integer("ofport")
    }

    pub(crate) fn error(&self, interface: &str) -> String {
        self.row("Interface", interface).string("error").to_owned()
    }

    /// The running bridge.
    pub(crate) fn bridge(&self, name: &str) -> Arc<Ofproto> {
        running(&self.switch.as_ref().unwrap().with, name).unwrap_or_else(|| panic!("{name} does not run"))
    }

    /// The number of the last change that could affect cached flows of the dummy datapath.
    pub(crate) fn last_change(&self) -> u64 {
        self.switch.as_ref().unwrap().with.datapath("dummy").unwrap().switch.last_change()
    }
}

/// A running bridge by its name.
pub(crate) fn running(devices: &Devices, name: &str) -> Option<Arc<Ofproto>> {
    devices.datapaths().into_iter().find_map(|(_, dp)| dp.switch.bridge_named(name))
}

pub(crate) fn named<'a>(db: &'a Replica, table: &str, name: &str) -> Option<Row<'a>> {
    db.rows(table).find(|row| row.string("name") == name)
}

/// Inserts a port with one interface, which gets `columns`.
pub(crate) fn insert_port(txn: &mut Transaction<'_>, name: &str, kind: &str, columns: &[(&str, Datum)]) -> Uuid {
    let interface = txn.insert_row("Interface");
    txn.set_datum("Interface", interface, "name", Datum::scalar(name));
    txn.set_datum("Interface", interface, "type", Datum::scalar(kind));
    for (column, value) in columns {
        txn.set_datum("Interface", interface, column, value.clone());
    }
    let port = txn.insert_row("Port");
    txn.set_datum("Port", port, "name", Datum::scalar(name));
    txn.set_datum("Port", port, "interfaces", Datum::scalar(interface));
    port
}

/// The flows of a bridge, as in `bridge/dump-flows` without times and counters.
pub(crate) fn flows(bridge: &Ofproto) -> Vec<String> {
    let text = ofproto::show::dump_flows(bridge, &flow::text::NoNames);
    // Flows of in-band control belong to the switch itself.
    let lines = text.lines().filter(|line| !line.contains("priority=18000"));
    lines.map(|line| line.split(", ").filter(|part| !part.starts_with("duration")).collect()).collect()
}

fn describe(row: &Row<'_>) -> String {
    format!(
        "{} ofport={:?} error={:?} mtu={:?} mac={:?}",
        row.string("name"),
        row.integer_opt("ofport"),
        row.string_opt("error"),
        row.integer_opt("mtu"),
        row.string_opt("mac_in_use")
    )
}
