//! The core with real databases: what is written reads back, and a second run changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use ovsdb::{DatabaseSchema, Datum, Uuid};
use ovsdb_client::{Idl, Outcome, Transaction, Wanted};
use proptest::test_runner::Config;
use tokio::sync::oneshot;

use super::snapshots::{PHYSICAL, any_learned, any_vtep};
use crate::changes::{of_report, of_switch};
use crate::model::{Learned, LogicalSwitch, Role, UNKNOWN_DST, Vtep};
use crate::plan::plan;
use crate::{hardware_vtep, open_vswitch};

/// A database server on a thread of its own, ended on drop.
struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the server panicked");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn start(directory: &Path, socket: &Path) -> Server {
    let mut builder = ovsdb_server::Server::builder().remote(format!("punix:{}", socket.display()));
    for schema in [ovsdb::schemas::OPEN_VSWITCH, ovsdb::schemas::HARDWARE_VTEP] {
        let schema = DatabaseSchema::parse(schema).expect("a schema");
        builder = builder.database_file_or_new(directory.join(format!("{}.db", schema.name)), schema);
    }
    let mut server = builder.open().expect("a server");
    let (stop, stopped) = oneshot::channel::<()>();
    let (listening, heard) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().block_on(async move {
            listening.send(server.listen().await).expect("a receiver");
            server.run(async { drop(stopped.await) }).await;
        });
    });
    assert_eq!(heard.recv().expect("a result"), Vec::<String>::new());
    Server { stop: Some(stop), thread: Some(thread) }
}

/// Replicas of both databases.
struct Databases {
    switch: Idl,
    vtep: Idl,
}

/// A replica of everything, as the tests also write what the program never reads.
async fn connect(remote: &str, schema: &str) -> Idl {
    let schema = DatabaseSchema::parse(schema).expect("a schema");
    let wanted = Wanted::everything(&schema);
    Idl::connect(remote, &Arc::default(), &schema.name, wanted).await.expect("a replica")
}

async fn change(idl: &mut Idl, make: impl FnOnce(&mut Transaction<'_>)) {
    let mut txn = idl.transaction();
    make(&mut txn);
    let outcome = txn.commit().await.expect("a transaction without errors");
    assert!(matches!(outcome, Outcome::Committed(_) | Outcome::Unchanged), "{outcome:?}");
}

impl Databases {
    /// Connects, and adds the bridge of the physical switch with its ports.
    async fn new(remote: &str) -> Self {
        let mut databases = Self {
            switch: connect(remote, ovsdb::schemas::OPEN_VSWITCH).await,
            vtep: connect(remote, ovsdb::schemas::HARDWARE_VTEP).await,
        };
        change(&mut databases.switch, |txn| {
            let root = txn.insert_row("Open_vSwitch");
            let mut ports = Vec::new();
            for name in [PHYSICAL, "a", "b", "c-d", "e-p"] {
                let interface = txn.insert_row("Interface");
                txn.set_datum("Interface", interface, "name", name);
                let port = txn.insert_row("Port");
                txn.set_datum("Port", port, "name", name);
                txn.set_datum("Port", port, "interfaces", interface);
                ports.push(port);
            }
            let bridge = txn.insert_row("Bridge");
            txn.set_datum("Bridge", bridge, "name", PHYSICAL);
            txn.set_datum("Bridge", bridge, "ports", Datum::set(ports));
            txn.set_datum("Open_vSwitch", root, "bridges", bridge);
        })
        .await;
        databases
    }

    /// Compares the present state with the wanted one and makes the changes. Returns true if there were any.
    async fn step(&mut self, learned: &Learned) -> bool {
        let contents = hardware_vtep::read(self.vtep.replica(), PHYSICAL).expect("a switch");
        let switch = open_vswitch::read(self.switch.replica(), PHYSICAL);
        let wanted = plan(&contents.vtep, &switch, learned);
        let switch_changes = of_switch(&switch.bridges, &wanted.bridges);
        let vtep_changes = of_report(&contents.report, &wanted.report);
        change(&mut self.switch, |txn| switch_changes.iter().for_each(|change| open_vswitch::write(txn, change))).await;
        let tunnel_ip = contents.vtep.tunnel_ip;
        change(&mut self.vtep, |txn| hardware_vtep::write(txn, PHYSICAL, tunnel_ip, &vtep_changes)).await;
        !switch_changes.is_empty() || !vtep_changes.is_empty()
    }

    /// Steps until there is nothing to change, and checks that the databases have what was wanted.
    async fn settle(&mut self, learned: &Learned) {
        let mut steps = 0;
        while self.step(learned).await {
            steps += 1;
            // The ports of a new bridge are known to the next step only.
            assert!(steps < 4, "the changes have no end");
        }
        let contents = hardware_vtep::read(self.vtep.replica(), PHYSICAL).expect("a switch");
        let mut switch = open_vswitch::read(self.switch.replica(), PHYSICAL);
        let wanted = plan(&contents.vtep, &switch, learned);
        switch.bridges.retain(|_, bridge| bridge.role != Role::Foreign);
        assert_eq!(switch.bridges, wanted.bridges);
        assert_eq!(contents.report, wanted.report);
        assert!(contents.problems.is_empty());
    }

    /// Numbers all ports, as the switch does, and returns addresses like `learned` at ports of logical switches.
    async fn open_ports(&mut self, learned: &Learned) -> Learned {
        change(&mut self.switch, |txn| {
            for (number, row) in (1_i64..).zip(txn.rows("Interface")) {
                txn.set_datum("Interface", row, "ofport", number);
            }
        })
        .await;
        let switch = open_vswitch::read(self.switch.replica(), PHYSICAL);
        let mut found = Learned::new();
        for ((name, bridge), macs) in switch.bridges.iter().zip(learned.values()) {
            let mut ports = bridge.ports.keys().filter_map(|name| switch.ofport(name)).cycle();
            let macs = macs.keys().filter_map(|mac| Some((*mac, ports.next()?)));
            found.insert(name.clone(), macs.collect());
        }
        found
    }

    /// Replaces the configuration, as a controller does.
    async fn configure(&mut self, vtep: &Vtep) {
        change(&mut self.vtep, |txn| {
            let stale =
                ["Ucast_Macs_Remote", "Mcast_Macs_Remote", "Ucast_Macs_Local", "Mcast_Macs_Local", "Logical_Switch"];
            for table in stale {
                txn.rows(table).into_iter().for_each(|row| txn.delete_row(table, row));
            }
            let switches = txn.rows("Physical_Switch");
            let switch = switches.first().copied().unwrap_or_else(|| {
                let (switch, root) = (txn.insert_row("Physical_Switch"), txn.insert_row("Global"));
                txn.set_datum("Global", root, "switches", switch);
                switch
            });
            txn.set_datum("Physical_Switch", switch, "name", PHYSICAL);
            txn.set_datum("Physical_Switch", switch, "tunnel_ips", vtep.tunnel_ip.to_string().as_str());
            let logical: BTreeMap<&String, Uuid> =
                vtep.logical.keys().map(|name| (name, txn.insert_row("Logical_Switch"))).collect();
            let mut locators = BTreeMap::new();
            for locator in vtep.logical.values().flat_map(LogicalSwitch::locators).copied() {
                let (text, key) = (locator.ip.to_string(), locator.key.map(i64::from));
                let found = txn.rows("Physical_Locator").into_iter();
                let found = found.into_iter().find(|row| {
                    txn.string("Physical_Locator", *row, "dst_ip") == text
                        && txn.integer("Physical_Locator", *row, "tunnel_key") == key
                });
                let row = found.unwrap_or_else(|| {
                    let row = txn.insert_row("Physical_Locator");
                    txn.set_datum("Physical_Locator", row, "dst_ip", text.as_str());
                    txn.set_datum("Physical_Locator", row, "encapsulation_type", "vxlan_over_ipv4");
                    if let Some(key) = key {
                        txn.set_datum("Physical_Locator", row, "tunnel_key", key);
                    }
                    row
                });
                locators.insert(locator, row);
            }
            for (name, of) in &vtep.logical {
                let row = logical[name];
                txn.set_datum("Logical_Switch", row, "name", name.as_str());
                if let Some(key) = of.tunnel_key {
                    txn.set_datum("Logical_Switch", row, "tunnel_key", i64::from(key));
                }
                for (mac, remote) in &of.unicast {
                    let address = txn.insert_row("Ucast_Macs_Remote");
                    txn.set_datum("Ucast_Macs_Remote", address, "MAC", mac.to_string().as_str());
                    txn.set_datum("Ucast_Macs_Remote", address, "logical_switch", row);
                    txn.set_datum("Ucast_Macs_Remote", address, "locator", locators[remote]);
                }
                let groups = of.groups.iter().map(|(mac, of)| (mac.to_string(), of));
                let unknown = std::iter::once((UNKNOWN_DST.to_owned(), &of.unknown));
                for (mac, of) in groups.chain(unknown).filter(|(_, of)| !of.is_empty()) {
                    let set = txn.insert_row("Physical_Locator_Set");
                    let members = Datum::set(of.iter().map(|remote| locators[remote]));
                    txn.set_datum("Physical_Locator_Set", set, "locators", members);
                    let address = txn.insert_row("Mcast_Macs_Remote");
                    txn.set_datum("Mcast_Macs_Remote", address, "MAC", mac.as_str());
                    txn.set_datum("Mcast_Macs_Remote", address, "logical_switch", row);
                    txn.set_datum("Mcast_Macs_Remote", address, "locator_set", set);
                }
            }
            for port in txn.rows("Physical_Port") {
                let name = txn.string("Physical_Port", port, "name").to_owned();
                let bound = vtep.bindings.iter().filter(|(binding, _)| binding.port == name);
                let bound = bound.filter_map(|(binding, of)| Some((i64::from(binding.vlan), *logical.get(of)?)));
                txn.set_datum("Physical_Port", port, "vlan_bindings", Datum::map(bound));
            }
        })
        .await;
        // The program reads the same configuration.
        let read = hardware_vtep::read(self.vtep.replica(), PHYSICAL).expect("a switch").vtep;
        let logical: BTreeMap<_, _> = vtep
            .logical
            .iter()
            .map(|(name, of)| (name, (of.tunnel_key, &of.unicast, &of.groups, &of.unknown)))
            .collect();
        let found: BTreeMap<_, _> = read
            .logical
            .iter()
            .map(|(name, of)| (name, (of.tunnel_key, &of.unicast, &of.groups, &of.unknown)))
            .collect();
        assert_eq!(found, logical);
    }
}

tally::proptest! {
    #![proptest_config(Config::with_cases(24))]
    #[test]
    fn what_is_written_reads_back(
        configurations in proptest::collection::vec((any_vtep(), any_learned()), 1..4)
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("db.sock");
        let _server = start(directory.path(), &socket);
        runtime().block_on(async {
            let mut databases = Databases::new(&format!("unix:{}", socket.display())).await;
            let empty = Vtep { bindings: BTreeMap::new(), logical: BTreeMap::new(), ..configurations[0].0.clone() };
            databases.configure(&empty).await;
            databases.settle(&Learned::new()).await;
            for (vtep, learned) in &configurations {
                databases.configure(vtep).await;
                databases.settle(&Learned::new()).await;
                let learned = databases.open_ports(learned).await;
                databases.settle(&learned).await;
            }
        });
    }
}
