//! Bridges: added, removed, with another datapath type, and the status in their rows.

use crate::lab::{Lab, flows, insert_port, running};
use ovsdb::Datum;
use xlate::VlanMode;

#[test]
fn a_bridge_is_added_and_removed() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    assert_eq!(lab.ofport("br0"), 65534);
    assert_eq!(lab.bridge("br0").ports().len(), 1);
    assert!(lab.dir.path().join("br0.mgmt").exists());
    assert!(lab.dir.path().join("br0.snoop").exists());
    lab.del_bridge("br0");
    let devices = &lab.switch.as_ref().unwrap().with;
    assert!(running(devices, "br0").is_none());
    assert!(devices.dummies.find("br0").is_none());
    assert!(!lab.dir.path().join("br0.mgmt").exists());
}

#[test]
fn identity_follows_the_row() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let uuid = lab.uuid("Bridge", "br0").to_string();
    // The first bytes of the row's UUID, as a locally administered address.
    let first = u8::from_str_radix(&uuid[6..8], 16).unwrap() & !1 | 2;
    let made =
        format!("{first:02x}:{}:{}:{}:{}:{}", &uuid[4..6], &uuid[2..4], &uuid[0..2], &uuid[16..18], &uuid[14..16]);
    assert_eq!(lab.row("Interface", "br0").string("mac_in_use"), made);
    let id = |lab: &Lab| lab.row("Bridge", "br0").string("datapath_id").to_owned();
    assert_eq!(id(&lab), format!("0000{}", made.replace(':', "")));
    // Addresses of dummy devices do not count.
    lab.add_port("br0", "p1", "dummy", &[]);
    assert_eq!(lab.row("Interface", "br0").string("mac_in_use"), made);

    lab.set("Bridge", "br0", &[("other_config", Datum::map([("hwaddr", "00:00:00:00:00:07"), ("datapath-id", "12")]))]);
    assert_eq!(lab.row("Interface", "br0").string("mac_in_use"), "00:00:00:00:00:07");
    assert_eq!(id(&lab), "0000000000000007");
    lab.set(
        "Bridge",
        "br0",
        &[(
            "other_config",
            Datum::map([
                ("datapath-id", "0x12"),
                ("dp-desc", "a rack"),
                ("dp-sn", "77"),
                ("forward-bpdu", "true"),
                ("mac-aging-time", "20"),
                ("mac-table-size", "12"),
            ]),
        )],
    );
    assert_eq!(id(&lab), "0000000000000012");
    assert_eq!(lab.row("Interface", "br0").string("mac_in_use"), made);
    let identity = lab.bridge("br0").identity();
    assert_eq!((identity.dp_desc.as_str(), identity.serial_desc.as_str()), ("a rack", "77"));
    let stats = ofproto::show::fdb_stats_show(&lab.bridge("br0"));
    assert!(stats.contains("12"), "{stats}");
}

#[test]
fn the_type_of_the_datapath_changes() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p1", "dummy", &[]);
    lab.set("Bridge", "br0", &[("datapath_type", Datum::scalar("nosuch"))]);
    assert_eq!((lab.ofport("br0"), lab.ofport("p1")), (-1, -1));
    assert!(lab.error("br0").contains("nosuch"), "{}", lab.error("br0"));
    assert!(running(&lab.switch.as_ref().unwrap().with, "br0").is_none());
    lab.set("Bridge", "br0", &[("datapath_type", Datum::scalar("dummy"))]);
    assert_eq!((lab.ofport("br0"), lab.ofport("p1")), (65534, 1));
    assert_eq!((lab.error("br0").as_str(), lab.error("p1").as_str()), ("", ""));
}

#[test]
fn several_bridges_do_not_mix() {
    let mut lab = Lab::new();
    for bridge in ["br0", "br1", "br2"] {
        lab.add_bridge(bridge);
        lab.add_port(bridge, &format!("{bridge}-p"), "dummy", &[]);
    }
    for bridge in ["br0", "br1", "br2"] {
        assert_eq!(lab.ofport(&format!("{bridge}-p")), 1);
        assert_eq!(lab.bridge(bridge).ports().len(), 2);
    }
    lab.del_bridge("br1");
    assert_eq!(lab.bridge("br0").ports().len(), 2);
    assert_eq!(lab.bridge("br2").ports().len(), 2);
}

#[test]
fn a_port_moves_to_another_bridge() {
    let mut lab = Lab::new();
    // The bridge that receives it precedes the one that loses it, by name and by row.
    lab.add_bridge("a");
    lab.add_bridge("b");
    lab.add_port("b", "p", "dummy", &[]);
    let (a, b, p) = (lab.uuid("Bridge", "a"), lab.uuid("Bridge", "b"), lab.uuid("Port", "p"));
    lab.change(|txn| {
        txn.remove_elements("Bridge", b, "ports", &Datum::scalar(p));
        txn.add_elements("Bridge", a, "ports", &Datum::scalar(p));
    });
    assert_eq!((lab.error("p").as_str(), lab.ofport("p")), ("", 1));
    assert!(lab.bridge("a").port_named("p").is_some());
    assert!(lab.bridge("b").port_named("p").is_none());
}

#[test]
fn a_bridge_without_a_local_port_gets_one() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p", "dummy", &[]);
    lab.del_port("br0", "br0");
    assert_eq!(lab.bridge("br0").ports().len(), 2);
    assert_eq!(lab.ofport("p"), 1);
}

/// A port's name and columns, and the expected mode, tag and trunks.
type VlanCase<'a> = (&'a str, &'a [(&'a str, Datum)], VlanMode, u16, &'a [u16]);

#[test]
fn vlans_become_bundles() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let cases: &[VlanCase<'_>] = &[
        ("plain", &[], VlanMode::Trunk, 0, &[]),
        ("access", &[("tag", Datum::scalar(9))], VlanMode::Access, 9, &[]),
        ("trunk", &[("trunks", Datum::set([10_i64, 20]))], VlanMode::Trunk, 0, &[10, 20]),
        (
            "tagged",
            &[("tag", Datum::scalar(9)), ("trunks", Datum::scalar(10)), ("vlan_mode", Datum::scalar("native-tagged"))],
            VlanMode::NativeTagged,
            9,
            &[10],
        ),
        (
            "untagged",
            &[("tag", Datum::scalar(9)), ("vlan_mode", Datum::scalar("native-untagged"))],
            VlanMode::NativeUntagged,
            9,
            &[],
        ),
        (
            "tunnel",
            &[("tag", Datum::scalar(9)), ("vlan_mode", Datum::scalar("dot1q-tunnel"))],
            VlanMode::Dot1qTunnel { tpid: 0x88a8 },
            9,
            &[],
        ),
    ];
    let bridge = lab.uuid("Bridge", "br0");
    lab.change(|txn| {
        for (name, columns, ..) in cases {
            let port = insert_port(txn, name, "dummy", &[]);
            for (column, value) in *columns {
                txn.set_datum("Port", port, column, value.clone());
            }
            txn.add_elements("Bridge", bridge, "ports", &Datum::scalar(port));
        }
    });
    let bundles = lab.bridge("br0").bundles();
    for (name, _, mode, tag, trunks) in cases {
        let bundle = bundles.iter().find(|b| b.name == *name).unwrap();
        assert_eq!((bundle.mode, bundle.tag, bundle.trunks.as_slice()), (*mode, *tag, *trunks), "{name}");
    }
    // And when it changes later.
    lab.set("Port", "access", &[("tag", Datum::scalar(11)), ("protected", Datum::scalar(true))]);
    let bundles = lab.bridge("br0").bundles();
    let bundle = bundles.iter().find(|b| b.name == "access").unwrap();
    assert_eq!((bundle.tag, bundle.protected), (11, true));
}

#[test]
fn fail_mode_decides_on_flows() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let normal = |lab: &Lab| flows(&lab.bridge("br0")).iter().any(|f| f.contains("NORMAL"));
    assert!(normal(&lab), "{:?}", flows(&lab.bridge("br0")));
    // Without controllers, a change of the mode resets the flows.
    lab.set("Bridge", "br0", &[("fail_mode", Datum::scalar("secure"))]);
    assert!(!normal(&lab));
    lab.set("Bridge", "br0", &[("fail_mode", Datum::scalar("standalone"))]);
    assert!(normal(&lab));
    // No mode is the same as standalone: flows stay.
    let change = lab.last_change();
    lab.set("Bridge", "br0", &[("fail_mode", Datum::empty())]);
    assert_eq!(lab.last_change(), change);
    assert!(normal(&lab));
}

#[test]
fn protocols_open_the_management_socket_anew() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.set("Bridge", "br0", &[("protocols", Datum::set(["OpenFlow13", "OpenFlow15"]))]);
    assert!(lab.dir.path().join("br0.mgmt").exists());
    lab.set("Bridge", "br0", &[("protocols", Datum::empty())]);
    assert!(lab.dir.path().join("br0.mgmt").exists());
}

#[test]
fn five_hundred_ports_at_once() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let bridge = lab.uuid("Bridge", "br0");
    lab.change(|txn| {
        for i in 0..500 {
            let port = insert_port(txn, &format!("p{i:03}"), "dummy", &[]);
            txn.add_elements("Bridge", bridge, "ports", &Datum::scalar(port));
        }
    });
    assert_eq!(lab.bridge("br0").ports().len(), 501);
    let mut numbers: Vec<i64> = (0..500).map(|i| lab.ofport(&format!("p{i:03}"))).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=500).collect::<Vec<i64>>());
    lab.del_bridge("br0");
    assert!(lab.switch.as_ref().unwrap().with.dummies.devices().is_empty());
}

#[test]
fn a_bridge_is_replaced_by_another_of_the_same_name() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p", "dummy", &[]);
    let (root, old) = (lab.root(), lab.uuid("Bridge", "br0"));
    lab.change(|txn| {
        txn.remove_elements("Open_vSwitch", root, "bridges", &Datum::scalar(old));
        let bridge = txn.insert_row("Bridge");
        txn.set_datum("Bridge", bridge, "name", Datum::scalar("br0"));
        txn.set_datum("Bridge", bridge, "datapath_type", Datum::scalar("dummy"));
        let ports = [insert_port(txn, "br0", "internal", &[]), insert_port(txn, "p", "dummy", &[])];
        txn.set_datum("Bridge", bridge, "ports", Datum::set(ports));
        txn.add_elements("Open_vSwitch", root, "bridges", &Datum::scalar(bridge));
    });
    assert_ne!(lab.uuid("Bridge", "br0"), old);
    assert_eq!((lab.error("br0").as_str(), lab.error("p").as_str()), ("", ""));
    assert_eq!((lab.ofport("br0"), lab.ofport("p")), (65534, 1));
    // From one type to another without a pause.
    lab.set("Bridge", "br0", &[("datapath_type", Datum::scalar("netdev"))]);
    assert!(lab.ofport("p") > 0, "{}", lab.error("p"));
    lab.set("Bridge", "br0", &[("datapath_type", Datum::scalar("dummy"))]);
    assert_eq!((lab.error("br0").as_str(), lab.error("p").as_str()), ("", ""));
}

#[test]
fn keys_contain_tags_up_to_vlan_limit() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let frame = [&[2u8; 12][..], &[0x81, 0, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat();
    let eth_type = |lab: &Lab| {
        let switch = lab.bridge("br0").switch().expect("a running bridge is part of a switch");
        switch.key_of(&frame, base::PortNo(1)).eth_type()
    };
    assert_eq!(eth_type(&lab), 0x8100);
    let root = lab.root();
    for (limit, want) in [("2", 0x800), ("1", 0x8100), ("0", 0x800), ("many", 0x8100)] {
        lab.change(|txn| txn.set_datum("Open_vSwitch", root, "other_config", Datum::map([("vlan-limit", limit)])));
        assert_eq!(eth_type(&lab), want, "vlan-limit={limit}");
    }
}
