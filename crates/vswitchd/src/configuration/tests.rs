//! The configuration after changes beside one that is read at once, and what single changes apply.

use super::*;
use crate::feature::Count;
use crate::types::{DummyLevel, Types};
use base::{Clock, PortNo};
use openflow::flow_mod::{FlowMod, FlowModCommand};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::OnceLock;
use xlate::PortOut;

fn id(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn reference(n: u32) -> Value {
    json!(["uuid", id(n)])
}

/// A database that is changed row by row.
#[derive(Clone, Debug)]
struct Database {
    replica: Replica,
    rows: BTreeMap<(&'static str, u32), Value>,
}

impl Database {
    fn new() -> Self {
        let mut replica = Replica::new(&crate::columns::wanted());
        let schema = ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
        assert_eq!(replica.bind(&schema), []);
        Self { replica, rows: BTreeMap::new() }
    }

    /// A database with the bridges br0 (rows 10 to 19) and br1 (20 to 29), each with its local port, the dummy ports a
    /// and b, and an access port c on br0 only.
    fn with_two_bridges() -> Self {
        let mut db = Self::new();
        db.put("Open_vSwitch", 1, json!({"bridges": ["set", [reference(10), reference(20)]], "next_cfg": 1}));
        for (bridge, first) in [("br0", 10), ("br1", 20)] {
            let ports: Vec<Value> = (1..4).map(|n| reference(first + 2 * n)).collect();
            db.put("Bridge", first, json!({"name": bridge, "datapath_type": "dummy", "ports": ["set", ports]}));
            for (n, port) in [bridge.to_owned(), format!("a{bridge}"), format!("b{bridge}")].into_iter().enumerate() {
                let row = first + 2 + 2 * n as u32;
                let kind = if port == bridge { "internal" } else { "dummy" };
                db.put("Port", row, json!({"name": port, "interfaces": reference(row + 1)}));
                db.put("Interface", row + 1, json!({"name": port, "type": kind}));
            }
        }
        db
    }

    fn put(&mut self, table: &'static str, row: u32, columns: Value) {
        self.rows.insert((table, row), columns);
        self.store(table, row);
    }

    fn store(&mut self, table: &str, row: u32) {
        let known = self.rows.iter().find(|((t, n), _)| *t == table && *n == row).map(|(_, columns)| columns.clone());
        let update = json!({ table: { id(row): { "new": known.unwrap_or(Value::Null) } } });
        self.replica.apply_updates(&update).unwrap();
    }

    /// Sets a column; `Null` takes it away.
    fn set(&mut self, table: &'static str, row: u32, column: &str, value: Value) {
        let Some(columns) = self.rows.get_mut(&(table, row)) else { return };
        let columns = columns.as_object_mut().unwrap();
        if value.is_null() {
            columns.remove(column);
        } else {
            columns.insert(column.to_owned(), value);
        }
        self.store(table, row);
    }

    fn remove(&mut self, table: &'static str, row: u32) {
        self.rows.remove(&(table, row));
        self.store(table, row);
    }
}

fn devices() -> Arc<Devices> {
    let types = Types { dummy: DummyLevel::Override, ..Types::default() };
    Arc::new(Devices::new(types, Clock::real(), Arc::default()))
}

fn configuration_with(devices: &Arc<Devices>) -> (Configuration, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let own_tls = OwnTls::new(Arc::default(), tls::Config::default(), false);
    let confinement = Confinement { rundir: dir.path().to_owned(), is_on: true };
    (Configuration::new(Arc::clone(devices), confinement, own_tls, tls::Config::default()), dir)
}

fn configuration() -> (Configuration, tempfile::TempDir) {
    configuration_with(&devices())
}

/// A configuration that has applied a database with two bridges.
async fn configured() -> (Configuration, Database, tempfile::TempDir) {
    let (mut configuration, dir) = configuration();
    let mut db = Database::with_two_bridges();
    db.replica.take_changes();
    configuration.configure(Some(&db.replica)).await;
    (configuration, db, dir)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The changes of counts, by feature, of features with any.
fn difference(before: &Counts, after: &Counts) -> BTreeMap<&'static str, (u64, u64)> {
    let of = |name: &&'static str| {
        let (old, new) = (before.all().get(name).copied().unwrap_or_default(), after.all()[name]);
        let Count { read, applied } = new;
        (*name, (read - old.read, applied - old.applied))
    };
    after.all().keys().map(of).filter(|(_, counts)| *counts != (0, 0)).collect()
}

#[test]
fn a_change_applies_only_its_feature_of_its_object() {
    run(async {
        let (mut configuration, _dir) = configuration();
        let mut db = Database::with_two_bridges();
        db.put("AutoAttach", 50, json!({"system_name": "s", "mappings": ["map", [[1, 2]]]}));
        db.put("Flow_Table", 51, json!({"name": "t"}));
        db.put("Controller", 52, json!({"target": "punix:nowhere/sock"}));
        db.put("IPFIX", 53, json!({"sampling": 7}));
        db.set("Bridge", 10, "flow_tables", json!(["map", [[0, reference(51)]]]));
        db.set("Bridge", 10, "auto_attach", reference(50));
        db.set("Interface", 15, "lldp", json!(["map", [["enable", "true"]]]));
        db.replica.take_changes();
        configuration.configure(Some(&db.replica)).await;
        let config = |key: &str, value: &str| json!(["map", [[key, value]]]);
        // What changes, and which features are applied by it, once each.
        let cases: &[(&'static str, u32, &str, Value, &[&str])] = &[
            ("Open_vSwitch", 1, "next_cfg", json!(2), &[]),
            ("Open_vSwitch", 1, "other_config", config("max-idle", "500"), &["tuning"]),
            (
                "Open_vSwitch",
                1,
                "other_config",
                config("stats-update-interval", "9000"),
                &["tuning", "statistics-interval"],
            ),
            ("Bridge", 10, "other_config", config("mac-aging-time", "20"), &["mac-table"]),
            ("Bridge", 10, "other_config", config("forward-bpdu", "true"), &["forward-bpdu", "mac-table"]),
            ("Bridge", 10, "other_config", config("dp-desc", "x"), &["forward-bpdu", "identity"]),
            ("Bridge", 10, "other_config", config("disable-in-band", "true"), &["identity", "in-band"]),
            ("Bridge", 10, "fail_mode", json!("secure"), &["controllers"]),
            ("Bridge", 10, "protocols", json!("OpenFlow13"), &["controllers"]),
            ("Bridge", 10, "ipfix", reference(53), &["ipfix"]),
            ("IPFIX", 53, "sampling", json!(9), &["ipfix"]),
            ("Flow_Table", 51, "flow_limit", json!(5), &["flow-tables"]),
            ("Bridge", 10, "stp_enable", json!(true), &["spanning-tree"]),
            ("Port", 14, "tag", json!(5), &["vlan"]),
            ("Port", 14, "protected", json!(true), &["vlan"]),
            ("Port", 14, "mac", json!("00:00:00:00:00:01"), &["port-address", "identity", "in-band"]),
            ("Interface", 15, "mtu_request", json!(1400), &["mtu"]),
            ("Interface", 15, "other_config", config("pmd-rxq-affinity", "0:0"), &["queues"]),
            ("Interface", 17, "lldp", json!(["map", [["enable", "true"]]]), &["lldp"]),
            ("AutoAttach", 50, "system_name", json!("t"), &["lldp", "lldp"]),
            ("Bridge", 10, "controller", reference(52), &["controllers"]),
        ];
        for (table, row, column, value, expected) in cases {
            // A device that was given another MTU reports that change once.
            configuration.look_for_changed_devices();
            configuration.configure(None).await;
            let before = configuration.counts.lock().clone();
            db.set(table, *row, column, value.clone());
            let mut is_noted = false;
            for change in db.replica.take_changes() {
                is_noted |= configuration.note(&change);
            }
            assert!(is_noted, "{table} {column}");
            configuration.configure(Some(&db.replica)).await;
            let after = configuration.counts.lock().clone();
            let mut applied: Vec<&str> = Vec::new();
            for (name, (_, times)) in difference(&before, &after) {
                applied.extend(std::iter::repeat_n(name, times as usize));
            }
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(applied, expected, "{table} {column} {value}");
        }
        configuration.clear().await;
        assert_eq!(configuration.references.len(), (0, 0, 0));
    });
}

#[test]
fn a_report_is_no_change_of_the_configuration() {
    run(async {
        let (mut configuration, mut db, _dir) = configured().await;
        let counts = configuration.counts.lock().clone();
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>() == ["mac-table", "2", "2"];
        assert!(counts.text().lines().any(line), "{}", counts.text());
        assert_eq!(counts.json()["mac-table"], json!({"read": 2, "applied": 2}));
        db.set("Interface", 15, "ofport", json!(7));
        db.set("Bridge", 10, "datapath_id", json!("0000000000000001"));
        db.set("Open_vSwitch", 1, "cur_cfg", json!(7));
        assert_eq!(db.replica.take_changes().iter().filter(|change| configuration.note(change)).count(), 0);
    });
}

#[test]
fn ports_datapath_ids_and_controllers_are_logged_as_by_open_vswitch() {
    let log = vlog::Captured::new(&["bridge", "connmgr"], vlog::Level::Info);
    log.during(|| {
        run(async {
            let (mut configuration, dir) = configuration();
            let mut db = Database::new();
            db.put("Open_vSwitch", 1, json!({"bridges": reference(10)}));
            let config = json!(["map", [["datapath-id", "00000000000000ff"]]]);
            let ports = json!(["set", [reference(12), reference(14)]]);
            db.put(
                "Bridge",
                10,
                json!({"name": "br0", "datapath_type": "dummy", "ports": ports, "other_config": config}),
            );
            for (row, name, kind) in [(12, "br0", "internal"), (14, "p1", "dummy")] {
                db.put("Port", row, json!({"name": name, "interfaces": reference(row + 1)}));
                db.put("Interface", row + 1, json!({"name": name, "type": kind}));
            }
            let mut follow = async |db: &mut Database| {
                for change in db.replica.take_changes() {
                    configuration.note(&change);
                }
                configuration.configure(Some(&db.replica)).await;
                log.take()
            };
            let rundir = dir.path().display();
            let expected = [
                "bridge br0: added interface br0 on port 65534",
                "bridge br0: added interface p1 on port 1",
                "bridge br0: using datapath ID 00000000000000ff",
                &format!("br0: added service controller \"punix:{rundir}/br0.mgmt\""),
            ];
            assert_eq!(follow(&mut db).await, expected);
            db.set("Interface", 15, "ofport_request", json!(7));
            let expected = ["bridge br0: deleted interface p1 on port 1", "bridge br0: added interface p1 on port 7"];
            assert_eq!(follow(&mut db).await, expected);
            db.put("Controller", 16, json!({"target": "tcp:127.0.0.1:1"}));
            db.put("Controller", 17, json!({"target": format!("punix:{rundir}/br0.x")}));
            db.set("Bridge", 10, "controller", json!(["set", [reference(16), reference(17)]]));
            let expected = [
                format!("br0: added service controller \"punix:{rundir}/br0.x\""),
                "br0: added primary controller \"tcp:127.0.0.1:1\"".to_owned(),
            ];
            assert_eq!(follow(&mut db).await, expected);
            // A row that takes the place of another one changes nothing.
            db.put("Controller", 18, json!({"target": "tcp:127.0.0.1:1"}));
            db.set("Bridge", 10, "controller", reference(18));
            assert_eq!(follow(&mut db).await, [format!("br0: removed service controller \"punix:{rundir}/br0.x\"")]);
            db.set("Bridge", 10, "other_config", json!(["map", [["datapath-id", "00000000000000fe"]]]));
            assert_eq!(follow(&mut db).await, ["bridge br0: using datapath ID 00000000000000fe"]);
            db.set("Bridge", 10, "ports", reference(12));
            assert_eq!(follow(&mut db).await, ["bridge br0: deleted interface p1 on port 7"]);
            db.set("Open_vSwitch", 1, "bridges", Value::Null);
            assert_eq!(follow(&mut db).await, ["bridge br0: deleted interface br0 on port 65534"]);
        });
    });
}

#[test]
fn a_fake_interface_is_a_port_without_a_bundle() {
    run(async {
        let (mut configuration, _dir) = configuration();
        let mut db = Database::with_two_bridges();
        db.put("Interface", 40, json!({"name": "first", "type": "dummy"}));
        db.put("Interface", 41, json!({"name": "second", "type": "dummy"}));
        let both = json!(["set", [reference(40), reference(41)]]);
        let name = "abr0";
        for (column, value, expected) in [
            ("interfaces", both.clone(), false),
            ("bond_fake_iface", json!(true), true),
            ("interfaces", reference(40), false),
            ("interfaces", both, true),
            ("bond_fake_iface", json!(false), false),
        ] {
            db.set("Port", 14, column, value);
            for change in db.replica.take_changes() {
                configuration.note(&change);
            }
            configuration.configure(Some(&db.replica)).await;
            let ofproto = &configuration.bridges()["br0"].running.ofproto;
            let ports = ofproto.ports();
            let fake = ports.iter().find(|port| port.spec.name == name);
            assert_eq!(fake.is_some(), expected, "{column}");
            let number = fake.map(|port| port.spec.no);
            let is_taken = |no| ofproto.bundles().iter().any(|bundle| bundle.ports.contains(&no));
            assert!(!number.is_some_and(is_taken), "{column}");
            // Members have their numbers first.
            assert!(
                ports
                    .iter()
                    .all(|port| port.spec.no <= number.unwrap_or(port.spec.no) || port.spec.no == PortNo::LOCAL)
            );
        }
        configuration.clear().await;
        assert_eq!(configuration.references.len(), (0, 0, 0));
    });
}

#[test]
fn ports_that_stay_are_not_read_when_one_is_added() {
    run(async {
        let (mut configuration, _dir) = configuration();
        let mut db = Database::with_two_bridges();
        let mut ports: Vec<Value> = (1..4).map(|n| reference(10 + 2 * n)).collect();
        for n in 0..200 {
            db.put("Port", 1000 + 2 * n, json!({"name": format!("p{n}"), "interfaces": reference(1001 + 2 * n)}));
            db.put("Interface", 1001 + 2 * n, json!({"name": format!("p{n}"), "type": "dummy"}));
            ports.push(reference(1000 + 2 * n));
        }
        let last = ports.pop().unwrap();
        db.set("Bridge", 10, "ports", json!(["set", ports]));
        db.replica.take_changes();
        configuration.configure(Some(&db.replica)).await;
        let before = configuration.counts.lock().clone();
        ports.push(last);
        db.set("Bridge", 10, "ports", json!(["set", ports]));
        for change in db.replica.take_changes() {
            configuration.note(&change);
        }
        configuration.configure(Some(&db.replica)).await;
        let after = configuration.counts.lock().clone();
        let changed = difference(&before, &after);
        let of_list = BridgeLevel::features()
            .iter()
            .filter(|feature| {
                feature.columns().iter().any(|column| (column.table, column.column) == ("Bridge", "ports"))
            })
            .count();
        let read = InterfaceLevel::features().len() + PortLevel::features().len() + of_list;
        assert_eq!(changed.values().map(|(read, _)| *read).sum::<u64>(), read as u64, "{changed:?}");
        assert_eq!(configuration.bridges()["br0"].running.ofproto.ports().len(), 203);
        assert_eq!(configuration.bridges()["br0"].running.ofproto.bundles().len(), 203);
    });
}

#[test]
fn many_flows_are_gone_when_the_mode_without_controllers_has_changed() {
    run(async {
        let (mut configuration, _dir) = configuration();
        let mut db = Database::with_two_bridges();
        db.replica.take_changes();
        configuration.configure(Some(&db.replica)).await;
        let ofproto = Arc::clone(&configuration.bridges()["br0"].running.ofproto);
        for (mode, n_flows) in [(json!("secure"), 0), (json!("standalone"), 1)] {
            for priority in 0..2500 {
                let mut flow = FlowMod::new(FlowModCommand::Add);
                flow.priority = priority;
                ofproto.flow_mod(&flow).expect("adds");
            }
            db.set("Bridge", 10, "fail_mode", mode);
            for change in db.replica.take_changes() {
                configuration.note(&change);
            }
            configuration.configure(Some(&db.replica)).await;
            assert_eq!(ofproto.n_flows(), n_flows);
        }
    });
}

/// One step of a random change of the database.
#[derive(Clone, Debug)]
enum Step {
    Set(&'static str, u32, &'static str, Value),
    AddPort(u32, u32),
    RemovePort(u32, u32),
    SwapRow(u32),
    Bridges(Vec<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let config = |key: &'static str, values: &'static [&'static str]| {
        proptest::sample::select(values).prop_map(move |value| json!(["map", [[key, value]]]))
    };
    let set = |table: &'static str, rows: &'static [u32], column: &'static str, values: BoxedStrategy<Value>| {
        (proptest::sample::select(rows), values)
            .prop_map(move |(row, value)| Step::Set(table, row, column, value))
            .boxed()
    };
    let one_of = |values: Vec<Value>| proptest::sample::select(values).boxed();
    let bridges: &[u32] = &[10, 20];
    let ports: &[u32] = &[12, 14, 16, 22, 24, 26, 30, 32];
    let interfaces: &[u32] = &[13, 15, 17, 23, 25, 27, 31, 33];
    prop_oneof![
        set("Open_vSwitch", &[1], "other_config", config("max-idle", &["7", "x"]).boxed()),
        set("Open_vSwitch", &[1], "manager_options", one_of(vec![json!(["set", []]), reference(54)])),
        set("Open_vSwitch", &[1], "ssl", one_of(vec![json!(["set", []]), reference(55)])),
        set("SSL", &[55], "private_key", one_of(vec![json!("/k"), json!("/l")])),
        set("Manager", &[54], "target", one_of(vec![json!("tcp:10.0.0.1"), json!("tcp:nobody"), json!("ptcp:1")])),
        set("Bridge", bridges, "other_config", config("hwaddr", &["00:00:00:00:00:07", "x"]).boxed()),
        set("Bridge", bridges, "other_config", config("mac-aging-time", &["20", "0"]).boxed()),
        set("Bridge", bridges, "fail_mode", one_of(vec![json!("secure"), json!("standalone"), Value::Null])),
        set("Bridge", bridges, "stp_enable", one_of(vec![json!(true), json!(false)])),
        set("Bridge", bridges, "auto_attach", one_of(vec![json!(["set", []]), reference(50)])),
        set("Bridge", bridges, "controller", one_of(vec![json!(["set", []]), reference(52)])),
        set("Bridge", bridges, "ipfix", one_of(vec![json!(["set", []]), reference(53)])),
        set("Bridge", bridges, "datapath_type", one_of(vec![json!("dummy"), json!("netdev"), json!("bogus")])),
        set("Bridge", bridges, "flow_tables", one_of(vec![json!(["map", []]), json!(["map", [[3, reference(51)]]])])),
        set("AutoAttach", &[50], "mappings", one_of(vec![json!(["map", [[1, 2]]]), json!(["map", [[3, 4]]])])),
        set("Flow_Table", &[51], "prefixes", one_of(vec![json!("ip_dst"), json!("nonsense")])),
        set("Controller", &[52], "max_backoff", one_of(vec![json!(2000), json!(3000)])),
        set("IPFIX", &[53], "sampling", one_of(vec![json!(2), json!(3)])),
        set("Flow_Sample_Collector_Set", &[56], "bridge", one_of(vec![reference(10), reference(20)])),
        set("Port", ports, "tag", one_of(vec![json!(5), Value::Null])),
        set("Port", ports, "vlan_mode", one_of(vec![json!("trunk"), json!("dot1q-tunnel"), Value::Null])),
        set("Port", ports, "mac", one_of(vec![json!("00:00:00:00:00:09"), Value::Null])),
        set("Port", ports, "bond_fake_iface", one_of(vec![json!(true), json!(false)])),
        set("Port", &[14], "interfaces", one_of(vec![json!(["set", [reference(40), reference(41)]]), reference(15)])),
        set("Interface", &[41], "type", one_of(vec![json!("dummy"), json!("bogus")])),
        set("Port", ports, "qos", one_of(vec![reference(99), Value::Null])),
        set("Interface", interfaces, "type", one_of(vec![json!("dummy"), json!("patch"), json!("internal")])),
        set("Interface", interfaces, "options", config("peer", &["abr0", "abr1"]).boxed()),
        set("Interface", interfaces, "mtu_request", one_of(vec![json!(1400), Value::Null])),
        set("Interface", interfaces, "mac", one_of(vec![json!("00:00:00:00:00:0a"), Value::Null])),
        set("Interface", interfaces, "ofport_request", one_of(vec![json!(1), json!(2), Value::Null])),
        set("Interface", interfaces, "lldp", config("enable", &["true", "false", "x"]).boxed()),
        (proptest::sample::select(bridges), proptest::sample::select(&[30u32, 32][..]))
            .prop_map(|(bridge, port)| Step::AddPort(bridge, port)),
        (proptest::sample::select(bridges), proptest::sample::select(ports))
            .prop_map(|(bridge, port)| Step::RemovePort(bridge, port)),
        proptest::sample::select(&[14u32, 16, 24, 12][..]).prop_map(Step::SwapRow),
        proptest::sample::subsequence(vec![10u32, 20], 0..=2).prop_map(Step::Bridges),
    ]
}

fn ports_of(db: &Database, bridge: u32) -> Vec<Value> {
    let ports = db.rows.get(&("Bridge", bridge)).map(|columns| columns["ports"][1].clone());
    ports.and_then(|ports| ports.as_array().cloned()).unwrap_or_default()
}

fn take(db: &mut Database, step: &Step) {
    match step {
        Step::Set(table, row, column, value) => db.set(table, *row, column, value.clone()),
        Step::AddPort(bridge, port) => {
            let both = [10, 20].map(|bridge| ports_of(db, bridge)).concat();
            if !both.contains(&reference(*port)) {
                let name = format!("new{port}");
                if !db.rows.contains_key(&("Port", *port)) {
                    db.put("Port", *port, json!({"name": name, "interfaces": reference(port + 1)}));
                    db.put("Interface", port + 1, json!({"name": name, "type": "dummy"}));
                }
                let mut ports = ports_of(db, *bridge);
                ports.push(reference(*port));
                db.set("Bridge", *bridge, "ports", json!(["set", ports]));
            }
        }
        Step::RemovePort(bridge, port) => {
            let mut ports = ports_of(db, *bridge);
            let n = ports.len();
            ports.retain(|other| *other != reference(*port));
            if ports.len() < n {
                db.set("Bridge", *bridge, "ports", json!(["set", ports]));
                db.remove("Port", *port);
                db.remove("Interface", port + 1);
            }
        }
        // The same port by another row.
        Step::SwapRow(port) => {
            let (old, new) =
                if db.rows.contains_key(&("Port", *port)) { (*port, port + 100) } else { (port + 100, *port) };
            for bridge in [10, 20] {
                let mut ports = ports_of(db, bridge);
                if let Some(at) = ports.iter().position(|other| *other == reference(old)) {
                    let mut columns = db.rows[&("Port", old)].clone();
                    let interface = db.rows[&("Interface", old + 1)].clone();
                    columns["interfaces"] = reference(new + 1);
                    ports[at] = reference(new);
                    db.remove("Port", old);
                    db.remove("Interface", old + 1);
                    db.put("Port", new, columns);
                    db.put("Interface", new + 1, interface);
                    db.set("Bridge", bridge, "ports", json!(["set", ports]));
                }
            }
        }
        Step::Bridges(bridges) => {
            let bridges: Vec<Value> = bridges.iter().map(|bridge| reference(*bridge)).collect();
            db.set("Open_vSwitch", 1, "bridges", json!(["set", bridges]));
        }
    }
}

/// What runs: bridges with their ports, and why interfaces are not there. Numbers, addresses
/// and MTUs depend on earlier settings, since a device keeps what it was given.
fn running(configuration: &Configuration) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, bridge) in configuration.bridges() {
        let mut ports: Vec<String> = bridge
            .running
            .ofproto
            .ports()
            .into_iter()
            .map(|port| {
                let kind = match port.spec.out {
                    PortOut::Device(_) => "device",
                    PortOut::Tunnel(_) => "tunnel",
                    PortOut::Patch(..) => "patch",
                    PortOut::Nowhere => "nowhere",
                };
                format!("{name} {} {kind}", port.spec.name)
            })
            .collect();
        ports.sort();
        lines.extend(ports);
        lines.extend(bridge.running.ofproto.bundles().into_iter().map(|bundle| {
            let n = bundle.ports.len();
            format!("{name} {:?} of {n}", ofproto::BundleSpec { ports: Vec::new(), ..bundle })
        }));
        for (interface, of) in &bridge.running.interfaces {
            lines.push(format!("{name} {interface} {:?}", of.error()));
            assert_eq!(of.published, of.ofport, "{name} {interface}");
        }
        let lldp: Vec<&str> = bridge.lldp().map(|(name, _)| name).collect();
        lines.push(format!("{name} LLDP {lldp:?} in band {}", bridge.running.control.controllers.len()));
    }
    lines
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 8 + 1, ..ProptestConfig::default() })]

    #[test]
    fn changes_lead_where_reading_everything_leads(
        changes in proptest::collection::vec(proptest::collection::vec(step(), 1..4), 1..10),
    ) {
        run(async {
            // Datapaths and their threads last as long as the process.
            static DEVICES: OnceLock<[Arc<Devices>; 2]> = OnceLock::new();
            let [devices, naive_devices] = DEVICES.get_or_init(|| [devices(), devices()]);
            let (mut configuration, _dir) = configuration_with(devices);
            let mut db = Database::with_two_bridges();
            db.put("Interface", 40, json!({"name": "first", "type": "dummy"}));
            db.put("Interface", 41, json!({"name": "second", "type": "dummy"}));
            db.put("AutoAttach", 50, json!({"system_name": "s"}));
            db.put("Flow_Table", 51, json!({"name": "t"}));
            db.put("Controller", 52, json!({"target": "punix:nowhere/sock"}));
            db.put("IPFIX", 53, json!({"sampling": 7}));
            db.put("Manager", 54, json!({"target": "ptcp:2"}));
            db.put("SSL", 55, json!({"private_key": "/k", "certificate": "/c", "ca_cert": "/a"}));
            db.put("Flow_Sample_Collector_Set", 56, json!({"id": 1, "bridge": reference(10), "ipfix": reference(53)}));
            db.replica.take_changes();
            configuration.configure(Some(&db.replica)).await;
            for steps in changes {
                steps.iter().for_each(|step| take(&mut db, step));
                for change in db.replica.take_changes() {
                    configuration.note(&change);
                }
                configuration.configure(Some(&db.replica)).await;
                // What links announce.
                configuration.look_for_changed_devices();
                configuration.configure(None).await;
                let (mut naive, _dir) = configuration_with(naive_devices);
                naive.configure(Some(&db.replica)).await;
                naive.look_for_changed_devices();
                naive.configure(None).await;
                prop_assert_eq!(configuration.describe(), naive.describe(), "{:?}", steps);
                prop_assert_eq!(running(&configuration), running(&naive), "{:?}", steps);
                naive.clear().await;
            }
            configuration.clear().await;
            prop_assert_eq!(configuration.references.len(), (0, 0, 0));
            Ok(())
        })?;
    }
}

#[test]
fn interfaces_are_listed_in_parts() {
    run(async {
        let (configuration, _db, _dir) = configured().await;
        let all = configuration.interfaces_after(None, usize::MAX);
        assert_eq!(all.len(), 6);
        for n in 1..8 {
            let mut parts = configuration.interfaces_after(None, n);
            loop {
                let part = configuration.interfaces_after(parts.last(), n);
                if part.is_empty() {
                    break;
                }
                parts.extend(part);
            }
            assert_eq!(parts, all);
        }
    });
}
