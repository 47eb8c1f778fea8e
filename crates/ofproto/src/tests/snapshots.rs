//! A change of one bridge builds a new snapshot of that bridge, and of no other.

use super::*;
use base::DpPort;
use xlate::model::PriorityTags;

const BRIDGES: u32 = 1000;

fn spec(no: u32, name: &str, out: PortOut) -> PortSpec {
    PortSpec {
        no: PortNo(no),
        name: name.to_owned(),
        out,
        device: None,
        tunnel: None,
        mac: MacAddr([2, 0, 0, 0, 0, no as u8]),
    }
}

fn bundle(no: u32, name: &str, trunks: Vec<u16>) -> BundleSpec {
    BundleSpec {
        name: name.to_owned(),
        ports: vec![PortNo(no)],
        mode: xlate::VlanMode::Trunk,
        tag: 0,
        trunks,
        cvlans: Vec::new(),
        priority_tags: PriorityTags::Never,
        protected: false,
        multicast: Default::default(),
    }
}

#[test]
fn a_change_of_one_bridge_of_a_thousand_rebuilds_one_snapshot() {
    let switch = Switch::new(Clock::stopped());
    let bridges: Vec<_> = (0..BRIDGES).map(|n| switch.add_bridge(&format!("br{n}"))).collect();
    for (n, bridge) in bridges.iter().enumerate() {
        bridge.set_ports(vec![spec(1, "p1", PortOut::Device(DpPort(n as u32 + 1)))], vec![bundle(1, "p1", vec![7])]);
    }
    let (made, before) = (switch.snapshots(), switch.network().bridges.clone());

    let changed = &bridges[500];
    let ports = vec![spec(1, "p1", PortOut::Device(DpPort(501))), spec(2, "p2", PortOut::Device(DpPort(9999)))];
    changed.set_ports(ports, vec![bundle(1, "p1", vec![7]), bundle(2, "p2", vec![7])]);

    assert_eq!(switch.snapshots() - made, 1);
    let after = switch.network().bridges.clone();
    for (id, bridge) in &before {
        assert_eq!(Arc::ptr_eq(bridge, &after[id]), *id != changed.id(), "bridge {id}");
    }
    // The parts that did not change are shared.
    let (old, new) = (&before[&changed.id()], &after[&changed.id()]);
    assert!(Arc::ptr_eq(&old.name, &new.name));
    assert!(Arc::ptr_eq(&old.ports[&PortNo(1)].name, &new.ports[&PortNo(1)].name));
    let trunks = |bridge: &xlate::Bridge| bridge.bundles["p1"].trunks.clone().expect("restricted");
    assert!(Arc::ptr_eq(&trunks(old), &trunks(new)));
    assert_eq!(switch.port_of(DpPort(9999)), Some((changed.id(), PortNo(2))));
    assert_eq!(switch.port_of(DpPort(1000)), Some((bridges[999].id(), PortNo(1))));
}

#[test]
fn a_datapath_port_that_another_bridge_takes_over_stays_with_that() {
    let switch = Switch::new(Clock::stopped());
    let [first, second] = ["br0", "br1"].map(|name| switch.add_bridge(name));
    let port = || vec![spec(1, "p1", PortOut::Device(DpPort(3)))];
    first.set_ports(port(), Vec::new());
    second.set_ports(port(), Vec::new());
    assert_eq!(switch.port_of(DpPort(3)), Some((second.id(), PortNo(1))));
    first.set_ports(Vec::new(), Vec::new());
    assert_eq!(switch.port_of(DpPort(3)), Some((second.id(), PortNo(1))));
    switch.del_bridge(second.id());
    assert_eq!(switch.port_of(DpPort(3)), None);
    assert!(!switch.network().bridges.contains_key(&second.id()));
}

#[test]
fn timeout_policies_of_zones_are_published_while_the_feature_is_enabled() {
    let lab = Lab::new();
    let policies: crate::TimeoutPolicies = Arc::new([(5, "1".into())].into());
    let published = || Arc::clone(&lab.switch.network().timeout_policies);
    for n in 0..2 {
        let before = lab.switch.last_change();
        lab.switch.set_timeout_policies(Arc::new((*policies).clone()));
        // Equal policies are no change.
        assert_eq!((lab.switch.last_change() == before, published()), (n == 1, Arc::clone(&policies)));
    }
    lab.switch.set_feature("ct_timeout", "false", false);
    assert!(published().is_empty());
    lab.switch.set_feature("ct_timeout", "true", false);
    assert_eq!(published(), policies);
}
