//! The switch restarts, two switches share a database, and the database disappears and returns.

use crate::lab::{Lab, flows, running, start_database, start_switch};
use openflow::flow_mod::{FlowMod, FlowModCommand};
use ovsdb::Datum;

#[test]
fn port_numbers_survive_a_restart() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    for name in ["p1", "p2", "p3"] {
        lab.add_port("br0", name, "dummy", &[]);
    }
    lab.del_port("br0", "p1");
    let id = lab.row("Bridge", "br0").string("datapath_id").to_owned();
    lab.switch = None;
    lab.start_switch();
    lab.add_port("br0", "a", "dummy", &[]);
    assert_eq!((lab.ofport("p2"), lab.ofport("p3"), lab.ofport("a")), (2, 3, 1));
    assert_eq!(lab.row("Bridge", "br0").string("datapath_id"), id);
}

#[test]
fn changes_without_a_running_switch_are_applied_later() {
    let mut lab = Lab::without_switch();
    let root = lab.root();
    lab.change_only(|txn| {
        let port = crate::lab::insert_port(txn, "br0", "internal", &[]);
        let bridge = txn.insert_row("Bridge");
        txn.set_datum("Bridge", bridge, "name", Datum::scalar("br0"));
        txn.set_datum("Bridge", bridge, "datapath_type", Datum::scalar("dummy"));
        txn.set_datum("Bridge", bridge, "ports", Datum::scalar(port));
        txn.add_elements("Open_vSwitch", root, "bridges", &Datum::scalar(bridge));
        txn.set_datum("Open_vSwitch", root, "next_cfg", Datum::scalar(5));
    });
    lab.start_switch();
    lab.wait("cur_cfg", |db| db.rows("Open_vSwitch").all(|r| r.integer("cur_cfg") == 5));
    assert_eq!(lab.ofport("br0"), 65534);
    let row = lab.idl.rows("Open_vSwitch").next().unwrap();
    assert!(row.strings("datapath_types").contains(&"dummy"));
    assert!(row.strings("iface_types").contains(&"patch"));
    assert_eq!(row.string("db_version"), vswitchd::DB_VERSION);
    assert!(!row.is_empty("ovs_version"));
}

#[test]
fn the_second_switch_waits_for_the_lock() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let rundir = tempfile::tempdir().unwrap();
    let second = start_switch(lab.dir.path(), rundir.path());
    // The first one still works.
    lab.add_port("br0", "p1", "dummy", &[]);
    assert!(running(&second.with, "br0").is_none());
    lab.switch = Some(second);
    lab.add_port("br0", "p2", "dummy", &[]);
    assert_eq!((lab.ofport("p1"), lab.ofport("p2")), (1, 2));
    assert_eq!(lab.bridge("br0").ports().len(), 3);
}

#[test]
fn a_switch_whose_lock_is_stolen_stops_and_starts_again() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let remote = format!("unix:{}", lab.dir.path().join("db.sock").display());
    let thief = lab.runtime.block_on(async {
        let mut thief = ovsdb_client::Client::connect(&remote, &std::sync::Arc::default()).await.unwrap();
        thief.request("steal", vec!["ovs_vswitchd".into()]).await.unwrap();
        thief
    });
    lab.wait_for("the bridge to go", |devices| running(devices, "br0").is_none());
    drop(thief);
    lab.wait_for("the bridge to come back", |devices| running(devices, "br0").is_some());
    lab.add_port("br0", "p", "dummy", &[]);
    assert_eq!(lab.ofport("p"), 1);
}

#[test]
fn bridges_and_flows_survive_loss_of_the_database() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p1", "dummy", &[]);
    let mut fm = FlowMod::new(FlowModCommand::Add);
    fm.priority = 7;
    let bridge = lab.bridge("br0");
    bridge.flow_mod(&fm).unwrap();
    let before = flows(&bridge).len();
    lab.database = None;
    // Links still change meanwhile.
    let device = lab.switch.as_ref().unwrap().with.dummies.find("p1").unwrap();
    netdev::Netdev::set_up(&*device, false).unwrap();
    drop(device);
    lab.database = Some(start_database(lab.dir.path()));
    lab.wait("the link to be told", |db| {
        crate::lab::named(db, "Interface", "p1").is_some_and(|r| r.string("admin_state") == "down")
    });
    assert!(std::sync::Arc::ptr_eq(&bridge, &lab.bridge("br0")));
    assert_eq!(flows(&bridge).len(), before);
    lab.add_port("br0", "p2", "dummy", &[]);
    assert_eq!((lab.ofport("p1"), lab.ofport("p2")), (1, 2));
}
