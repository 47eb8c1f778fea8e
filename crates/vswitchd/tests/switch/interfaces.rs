//! Interfaces: numbers, types, patch ports, errors, settings and status.

use crate::lab::{Lab, insert_port};
use base::PortNo;
use ovsdb::Datum;
use xlate::PortOut;

fn peer(name: &str) -> Datum {
    Datum::map([("peer", name)])
}

#[test]
fn port_numbers_are_assigned_requested_and_kept() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p1", "dummy", &[]);
    lab.add_port("br0", "p2", "dummy", &[]);
    assert_eq!((lab.ofport("p1"), lab.ofport("p2")), (1, 2));
    // A freed number is not assigned again at once.
    lab.del_port("br0", "p2");
    lab.add_port("br0", "p3", "dummy", &[("ofport_request", Datum::scalar(30000))]);
    lab.add_port("br0", "p4", "dummy", &[]);
    assert_eq!((lab.ofport("p3"), lab.ofport("p4")), (30000, 3));
    // The number of an interface without a request is given to one that requests it.
    lab.set("Interface", "p4", &[("ofport_request", Datum::scalar(1))]);
    assert_eq!((lab.ofport("p1"), lab.ofport("p4")), (4, 1));
    lab.set("Interface", "p1", &[("ofport_request", Datum::scalar(1))]);
    assert_eq!((lab.ofport("p1"), lab.ofport("p4")), (4, 1));
    // The request is removed.
    lab.set("Interface", "p4", &[("ofport_request", Datum::empty())]);
    assert_eq!((lab.ofport("p1"), lab.ofport("p4")), (1, 5));
    let ports = lab.bridge("br0").ports();
    let mut running: Vec<(u32, &str)> = ports.iter().map(|p| (p.spec.no.0, p.spec.name.as_str())).collect();
    running.pop();
    assert_eq!(running, [(1, "p1"), (5, "p4"), (30000, "p3")]);
}

#[test]
fn patch_ports_find_their_peers() {
    let mut lab = Lab::new();
    lab.add_bridge("a");
    lab.add_bridge("b");
    lab.add_port("a", "pa", "patch", &[("options", peer("pb"))]);
    assert_eq!(lab.error("pa"), "No usable peer 'pb' exists in 'dummy' datapath.");
    assert_eq!(lab.ofport("pa"), 1);
    lab.add_port("b", "pb", "patch", &[("options", peer("pa"))]);
    assert_eq!((lab.error("pa").as_str(), lab.error("pb").as_str()), ("", ""));
    let out = |lab: &Lab, bridge: &str, port: &str| lab.bridge(bridge).port_named(port).unwrap().spec.out;
    assert_eq!(out(&lab, "a", "pa"), PortOut::Patch(lab.bridge("b").id(), base::PortNo(1)));
    assert_eq!(out(&lab, "b", "pb"), PortOut::Patch(lab.bridge("a").id(), base::PortNo(1)));
    let row = lab.row("Interface", "pa");
    assert_eq!((row.string("admin_state"), row.string("link_state"), row.integer_opt("mtu")), ("up", "up", None));
    // The peer names another port: both ends are disconnected.
    lab.set("Interface", "pb", &[("options", peer("other"))]);
    assert_eq!(lab.error("pa"), "No usable peer 'pb' exists in 'dummy' datapath.");
    assert_eq!(lab.error("pb"), "No usable peer 'other' exists in 'dummy' datapath.");
    assert_eq!(out(&lab, "a", "pa"), PortOut::Nowhere);
    // On the same bridge.
    lab.add_port("a", "other", "patch", &[("options", peer("pa"))]);
    lab.set("Interface", "pa", &[("options", peer("other"))]);
    assert_eq!(lab.error("pa"), "");
    // Itself, and none.
    lab.set("Interface", "pa", &[("options", peer("pa"))]);
    assert_eq!((lab.ofport("pa"), lab.error("pa").as_str()), (-1, "pa: patch peer must not be self"));
    lab.set("Interface", "pa", &[("options", Datum::empty())]);
    assert_eq!(lab.error("pa"), "pa: patch type requires valid 'peer' argument");
    lab.set("Interface", "pa", &[("options", peer("other"))]);
    assert_eq!(lab.error("pa"), "");
    lab.del_port("a", "other");
    assert_eq!(lab.error("pa"), "No usable peer 'other' exists in 'dummy' datapath.");
}

#[test]
fn errors_are_reported_and_other_interfaces_work() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "bad", "nosuch", &[]);
    lab.add_port("br0", "good", "dummy", &[]);
    let text = "could not open network device bad (Address family not supported by protocol)";
    assert_eq!((lab.ofport("bad"), lab.error("bad").as_str()), (-1, text));
    for column in ["mac_in_use", "mtu", "ifindex", "admin_state", "link_state", "link_resets", "statistics", "status"] {
        assert!(lab.row("Interface", "bad").is_empty(column), "{column}");
    }
    assert_eq!((lab.ofport("good"), lab.error("good").as_str()), (1, ""));
    lab.set("Interface", "bad", &[("type", Datum::scalar("dummy"))]);
    assert_eq!((lab.ofport("bad"), lab.error("bad").as_str()), (2, ""));
    lab.set("Interface", "bad", &[("type", Datum::scalar("nosuch"))]);
    assert_eq!((lab.ofport("bad"), lab.error("bad").as_str()), (-1, text));
}

#[test]
fn a_port_of_several_interfaces_is_a_bond() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p1", "dummy", &[]);
    let port = lab.uuid("Port", "p1");
    lab.change(|txn| {
        let interface = txn.insert_row("Interface");
        txn.set_datum("Interface", interface, "name", Datum::scalar("p2"));
        txn.set_datum("Interface", interface, "type", Datum::scalar("dummy"));
        txn.add_elements("Port", port, "interfaces", &Datum::scalar(interface));
    });
    assert_eq!((lab.ofport("p1"), lab.ofport("p2"), lab.error("p1").as_str()), (1, 2, ""));
    let members = |lab: &Lab| -> Vec<PortNo> {
        let bundles = lab.bridge("br0").bundles();
        bundles.into_iter().find(|bundle| bundle.name == "p1").map_or_else(Vec::new, |bundle| bundle.ports)
    };
    assert_eq!(members(&lab), [PortNo(1), PortNo(2)]);
    let p2 = lab.uuid("Interface", "p2");
    lab.change(|txn| txn.remove_elements("Port", port, "interfaces", &Datum::scalar(p2)));
    assert_eq!((members(&lab), lab.ofport("p1")), (vec![PortNo(1)], 1));
}

#[test]
fn type_and_options_change() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p", "dummy", &[("options", Datum::map([("ifindex", "77")]))]);
    assert_eq!(lab.row("Interface", "p").integer("ifindex"), 77);
    let device = |lab: &Lab| lab.switch.as_ref().unwrap().with.dummies.find("p").unwrap();
    let before = device(&lab);
    lab.set("Interface", "p", &[("options", Datum::map([("ifindex", "78")]))]);
    assert_eq!(lab.row("Interface", "p").integer("ifindex"), 78);
    assert!(std::sync::Arc::ptr_eq(&before, &device(&lab)), "new options must not open the device anew");
    drop(before);
    lab.set("Interface", "p", &[("type", Datum::scalar("dummy-internal"))]);
    assert_eq!(netdev::Netdev::kind(&*device(&lab)), "dummy-internal");
    assert_eq!((lab.ofport("p"), lab.error("p").as_str()), (1, ""));
}

#[test]
fn status_of_a_device() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p", "dummy", &[]);
    let row = lab.row("Interface", "p");
    let device = lab.switch.as_ref().unwrap().with.dummies.find("p").unwrap();
    assert_eq!(row.string("mac_in_use"), netdev::Netdev::mac(&*device).to_string());
    assert_eq!((row.string("admin_state"), row.string("link_state")), ("up", "up"));
    assert_eq!((row.integer_opt("mtu"), row.integer_opt("ifindex")), (Some(1500), Some(0)));
    assert_eq!((row.integer_opt("link_resets"), row.integer_opt("link_speed")), (Some(0), None));
    assert!(row.is_empty("duplex") && row.is_empty("lacp_current"));
    drop(device);
    // The switch reports a link that goes down without a request.
    let device = lab.switch.as_ref().unwrap().with.dummies.find("p").unwrap();
    netdev::Netdev::set_up(&*device, false).unwrap();
    lab.wait("admin_state", |db| {
        crate::lab::named(db, "Interface", "p").is_some_and(|r| r.string("admin_state") == "down")
    });
    // Statistics are updated periodically.
    crate::commands::receive_first_frame(&mut lab, "p");
}

#[test]
fn mtu_and_address() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let mtu = |lab: &Lab, name: &str| lab.row("Interface", name).integer("mtu");
    assert_eq!(mtu(&lab, "br0"), 1500);
    lab.add_port("br0", "p1", "dummy", &[("mtu_request", Datum::scalar(1490))]);
    assert_eq!((mtu(&lab, "p1"), mtu(&lab, "br0")), (1490, 1490));
    lab.add_port("br0", "p2", "dummy", &[("mtu_request", Datum::scalar(1470))]);
    lab.add_port("br0", "int", "internal", &[]);
    assert_eq!((mtu(&lab, "br0"), mtu(&lab, "int")), (1470, 1470));
    lab.set("Interface", "int", &[("mtu_request", Datum::scalar(1000))]);
    assert_eq!((mtu(&lab, "br0"), mtu(&lab, "int")), (1470, 1000));
    lab.set("Interface", "int", &[("mtu_request", Datum::empty())]);
    assert_eq!(mtu(&lab, "int"), 1470);
    lab.del_port("br0", "p2");
    assert_eq!((mtu(&lab, "br0"), mtu(&lab, "int")), (1490, 1490));

    let mac = |lab: &Lab, name: &str| lab.row("Interface", name).string("mac_in_use").to_owned();
    let wanted = ("mac", Datum::scalar("00:11:22:33:44:55"));
    // Address and MTU together.
    lab.set("Interface", "int", &[wanted.clone(), ("mtu_request", Datum::scalar(900))]);
    assert_eq!((mac(&lab, "int").as_str(), mtu(&lab, "int")), ("00:11:22:33:44:55", 900));
    // Only internal interfaces, except the bridge's own, accept it.
    lab.set("Interface", "p1", std::slice::from_ref(&wanted));
    assert_ne!(mac(&lab, "p1"), "00:11:22:33:44:55");
    lab.set("Interface", "br0", &[wanted]);
    assert_ne!(mac(&lab, "br0"), "00:11:22:33:44:55");
}

#[test]
fn status_updates_and_unrelated_changes_keep_cached_flows() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let bridge = lab.uuid("Bridge", "br0");
    lab.change(|txn| {
        for name in ["p1", "p2"] {
            let port = insert_port(txn, name, "dummy", &[]);
            txn.add_elements("Bridge", bridge, "ports", &Datum::scalar(port));
        }
    });
    // Settled: the devices' own changes have been processed, and the frame's address is learned.
    crate::commands::receive_first_frame(&mut lab, "p1");
    lab.wait_for("the address", |devices| crate::lab::running(devices, "br0").unwrap().macs().read().len() == 1);
    let change = lab.last_change();
    lab.set("Interface", "p1", &[("external_ids", Datum::map([("iface-id", "x")]))]);
    lab.set("Bridge", "br0", &[("external_ids", Datum::map([("bridge-id", "y")]))]);
    let held = Datum::scalar(lab.ofport("p2"));
    lab.set("Interface", "p2", &[("ofport_request", held)]);
    assert_eq!(lab.last_change(), change);
    lab.set("Port", "p2", &[("tag", Datum::scalar(5))]);
    assert_ne!(lab.last_change(), change);
}

#[test]
fn frames_of_a_file_are_replayed_into_a_port_that_swallows() {
    let mut lab = Lab::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("frames.pcap");
    netdev::pcap::Writer::append(&path).unwrap().write(&[2; 60]).unwrap();
    lab.add_bridge("br0");
    lab.add_port("br0", "out", "null", &[]);
    lab.add_port("br0", "in", "replay", &[]);
    assert_eq!(lab.error("in"), "in: option pcap: is needed: a capture file");
    let options = [("pcap", path.to_str().unwrap()), ("times", "5")];
    lab.set("Interface", "in", &[("options", Datum::map(options))]);
    assert_eq!(lab.error("in"), "");
    lab.wait_for("the frames", |devices| {
        let stats = |dp: &vswitchd::devices::Dp| dp.dpif.stats();
        devices.datapaths().iter().any(|(_, dp)| stats(dp).hit + stats(dp).missed == 5)
    });
}

#[test]
fn statistics_of_many_interfaces_are_written_in_parts() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    for n in 0..300 {
        lab.add_port("br0", &format!("p{n}"), "dummy", &[]);
    }
    crate::commands::receive_first_frame(&mut lab, "p299");
}

#[test]
fn a_new_interface_does_not_take_the_number_of_another_one() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "a", "patch", &[("options", peer("none"))]);
    lab.add_port("br0", "b", "dummy", &[("ofport_request", Datum::scalar(1))]);
    assert_eq!((lab.ofport("a"), lab.ofport("b")), (1, 2));
    // A link that changes moves no port.
    let device = lab.switch.as_ref().unwrap().with.dummies.find("b").unwrap();
    netdev::Netdev::set_up(&*device, false).unwrap();
    drop(device);
    lab.wait("the link", |db| {
        crate::lab::named(db, "Interface", "b").is_some_and(|r| r.string("admin_state") == "down")
    });
    assert_eq!((lab.ofport("a"), lab.ofport("b")), (1, 2));
    // The next change of the configuration does, as in Open vSwitch.
    lab.set("Bridge", "br0", &[("other_config", Datum::map([("mac-aging-time", "300")]))]);
    assert_eq!((lab.ofport("a"), lab.ofport("b")), (3, 1));
}

#[test]
fn reserved_names_are_refused_without_an_error_in_the_database() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "ovs-dummy", "dummy", &[]);
    lab.add_port("br0", "gre_sys", "patch", &[("options", peer("p"))]);
    lab.add_port("br0", "p", "dummy", &[]);
    assert_eq!((lab.ofport("ovs-dummy"), lab.error("ovs-dummy").as_str()), (-1, ""));
    assert_eq!((lab.ofport("gre_sys"), lab.error("gre_sys").as_str()), (-1, ""));
    assert_eq!(lab.ofport("p"), 1);
}
