//! Bonds on a datapath: failover, the flows that it affects, learning frames, balancing, and addresses of members.

use super::*;
use crate::{Extent, PortEdits};
use ::bond::{LacpStatus, Link, MemberSettings, Mode, Settings as BondSettings};
use base::{BridgePort, DpPort};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the bond of ports 1 and 2.
const NAME: &str = "bond";

/// A bridge that forwards by NORMAL, with a bond of ports 1 and 2 beside ports 3 and 4.
fn bonded(mode: Mode) -> (Lab, Arc<Ofproto>) {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 4);
    br.flow_mod(&add(Match::ANY, 1, vec![normal()])).expect("adds");
    let mut bundles = br.bundles();
    bundles.retain(|bundle| bundle.ports != [PortNo(2)]);
    let bond = bundles.iter_mut().find(|bundle| bundle.ports == [PortNo(1)]).expect("port 1");
    (bond.name, bond.ports) = (NAME.to_owned(), vec![PortNo(1), PortNo(2)]);
    br.set_ports(br.ports().into_iter().map(|port| port.spec).collect(), bundles);
    configure(&lab, &br, mode, [Link::UP; 2]);
    (lab, br)
}

fn configure(lab: &Lab, br: &Ofproto, mode: Mode, links: [Link; 2]) {
    configure_as(lab, br, BondSettings { mode, ..BondSettings::default() }, links);
}

fn configure_as(lab: &Lab, br: &Ofproto, settings: BondSettings, links: [Link; 2]) {
    let member = |(n, link): (u32, Link)| {
        let at = BridgePort { bridge: br.id(), port: PortNo(n) };
        (at, MemberSettings { name: format!("p{n}").into(), mac: MacAddr::ZERO, link })
    };
    let members = (1..).zip(links).map(member).collect();
    lab.switch.configure_bonds([(NAME.into(), BondSettings { members, ..settings })].into());
}

fn counts(lab: &Lab) -> [usize; 4] {
    [1, 2, 3, 4].map(|no| lab.received(&format!("br-{no}")).len())
}

#[test]
fn a_failover_affects_the_flows_of_the_bond_alone() {
    let (lab, br) = bonded(Mode::ActiveBackup);
    // The bridge learns its addresses on ports 3 and 4.
    lab.send("br-4", &[frame(4, 9)]);
    lab.send("br-3", &[frame(3, 9), frame(3, 4)]);
    assert_eq!(counts(&lab), [2, 0, 1, 2]);
    lab.switch.pass(Extent::Changes);
    let snapshot = Arc::clone(&lab.switch.network().bridges[&br.id()]);
    configure(&lab, &br, Mode::ActiveBackup, [Link::DOWN, Link::UP]);
    let report = lab.switch.pass(Extent::Changes);
    assert_eq!((report.translated, report.changed), (2, 2), "the two floods");
    assert!(Arc::ptr_eq(&snapshot, &lab.switch.network().bridges[&br.id()]), "nothing was rebuilt");
    // A learning frame for each of the addresses.
    let learned: BTreeSet<u8> = lab.received("br-2").iter().map(|packet| packet.data()[11]).collect();
    assert_eq!(learned, [3, 4].into());
    lab.send("br-3", &[frame(3, 9), frame(3, 4)]);
    assert_eq!(counts(&lab), [0, 1, 0, 2]);
    // The member that is not active delivers nothing.
    lab.send("br-1", &[frame(7, 3)]);
    lab.send("br-2", &[frame(8, 3)]);
    assert_eq!(counts(&lab), [0, 0, 1, 0]);
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
    // Without bonds, the bundle has no member to send to.
    lab.switch.configure_bonds(BTreeMap::new());
    lab.send("br-3", &[frame(3, 9)]);
    assert_eq!(counts(&lab), [0, 0, 0, 1]);
}

#[test]
fn a_lost_carrier_is_followed_where_it_is_reported() {
    let (lab, br) = bonded(Mode::ActiveBackup);
    let device = |no| match br.port(PortNo(no)).expect("a port").spec.out {
        PortOut::Device(port) => port,
        other => panic!("{other:?}"),
    };
    // Without a pass of its own: the flows are translated again before the call returns.
    let sent = || {
        lab.send("br-3", &[frame(3, 9)]);
        let [first, second, ..] = counts(&lab);
        [first, second]
    };
    assert_eq!(sent(), [1, 0]);
    lab.switch.member_link_changed(device(1), false);
    // A learning frame for the one address, and the frame.
    assert_eq!(sent(), [0, 2]);
    // The control thread finds nothing new, and ports that are no members are ignored.
    configure(&lab, &br, Mode::ActiveBackup, [Link::DOWN, Link::UP]);
    lab.switch.member_link_changed(device(3), false);
    lab.switch.member_link_changed(DpPort(99), false);
    assert_eq!(sent(), [0, 1]);
    lab.switch.member_link_changed(device(1), true);
    lab.switch.member_link_changed(device(2), false);
    assert_eq!(sent(), [2, 0]);
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
}

#[test]
fn loads_are_those_of_the_packets_that_left() {
    let (lab, br) = bonded(Mode::BalanceSlb);
    for src in 10..30 {
        lab.send("br-3", &[frame(src, 9), frame(src, 9), frame(src, 9)]);
    }
    let [first, second, ..] = counts(&lab);
    assert!(first > 0 && second > 0 && first + second == 60, "{first} {second}");
    lab.switch.pass(Extent::Full);
    let sum = |lab: &Lab| {
        let mut status = lab.switch.with_bonds(|bonds| {
            _ = bonds.show(None, lab.clock.now());
            bonds.status()
        });
        let loads = |member: &::bond::machine::MemberStatus| member.loads.iter().map(|(_, bytes)| bytes).sum::<u64>();
        status.remove(0).members.iter().map(loads).collect::<Vec<_>>()
    };
    assert_eq!(sum(&lab), [60 * first as u64, 60 * second as u64]);
    _ = br;
}

/// A frame of UDP to address 9 with a source port.
fn udp(port: u8) -> Vec<u8> {
    let mut frame = frame(3, 9);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..42].copy_from_slice(&[1, port, 0, 9, 0, 26, 0, 0]);
    frame
}

#[test]
fn balance_tcp_needs_lacp_and_spreads_packets_by_their_hash() {
    let (lab, br) = bonded(Mode::BalanceTcp);
    lab.send("br-3", &[udp(1)]);
    assert_eq!(counts(&lab), [0, 0, 0, 1]);
    lab.switch.set_bonds_lacp(&[(NAME.into(), LacpStatus::Negotiated)].into(), BTreeSet::new());
    lab.switch.settle_protocols();
    lab.send("br-3", &(1..=40).map(udp).collect::<Vec<_>>());
    let [first, second, _, fourth] = counts(&lab);
    assert!(first > 5 && second > 5 && first + second == 40 && fourth == 40, "{first} {second} {fourth}");
    // A member that LACP refuses is out of it.
    let refused = [BridgePort { bridge: br.id(), port: PortNo(1) }].into();
    lab.switch.set_bonds_lacp(&[(NAME.into(), LacpStatus::Negotiated)].into(), refused);
    lab.switch.settle_protocols();
    lab.send("br-3", &(1..=40).map(udp).collect::<Vec<_>>());
    assert_eq!(counts(&lab), [0, 40, 0, 40]);
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
}

#[test]
fn addresses_follow_their_bond() {
    let (lab, br) = bonded(Mode::ActiveBackup);
    lab.send("br-1", &[frame(7, 9)]);
    let mac = MacAddr([2, 0, 0, 0, 0, 7]);
    let at = || br.macs().read().lookup(0, mac);
    assert_eq!(at(), Some(PortNo(1)));
    let mut bond = br.bundles().into_iter().find(|bundle| bundle.name == NAME).expect("the bond");
    bond.ports = vec![PortNo(2)];
    br.edit_ports(PortEdits { bundles: vec![bond.clone()], removed: vec![PortNo(1)], ..PortEdits::default() });
    assert_eq!(at(), Some(PortNo(2)));
    lab.send("br-3", &[frame(3, 7)]);
    assert_eq!(lab.received("br-2").len(), 1);
}

/// A bond that the datapath balances, and its settings.
fn balanced() -> (Lab, Arc<Ofproto>, BondSettings) {
    let (lab, br) = bonded(Mode::BalanceTcp);
    let settings = BondSettings { mode: Mode::BalanceTcp, lb_output: true, ..BondSettings::default() };
    configure_as(&lab, &br, settings.clone(), [Link::UP; 2]);
    lab.switch.set_bonds_lacp(&[(NAME.into(), LacpStatus::Negotiated)].into(), BTreeSet::new());
    lab.switch.settle_protocols();
    (lab, br, settings)
}

/// The ids of the bonds that the datapath balances.
fn ids(lab: &Lab) -> Vec<u32> {
    lab.switch.dpif().expect("a datapath").bonds().iter().map(|(id, _)| id.0).collect()
}

#[test]
fn members_change_without_a_translation() {
    let (lab, br, settings) = balanced();
    lab.send("br-3", &(1..=40).map(udp).collect::<Vec<_>>());
    let [first, second, _, fourth] = counts(&lab);
    assert!(first > 5 && second > 5 && first + second == 40 && fourth == 40, "{first} {second} {fourth}");
    lab.switch.pass(Extent::Changes);
    for (links, expected) in [
        ([Link::DOWN, Link::UP], [0, 40, 0, 40]),
        ([Link::UP, Link::DOWN], [40, 0, 0, 40]),
        // Buckets with load stay where they are.
        ([Link::UP; 2], [40, 0, 0, 40]),
    ] {
        configure_as(&lab, &br, settings.clone(), links);
        lab.switch.settle_protocols();
        assert_eq!(lab.switch.pass(Extent::Changes).translated, 0);
        lab.send("br-3", &(1..=40).map(udp).collect::<Vec<_>>());
        assert_eq!(counts(&lab), expected);
    }
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
    assert_eq!(lab.switch.dpif().expect("a datapath").drops(), []);
    // Without a member, the flow is another one.
    configure_as(&lab, &br, settings, [Link::DOWN; 2]);
    lab.switch.settle_protocols();
    lab.send("br-3", &[udp(1)]);
    assert_eq!(counts(&lab), [0, 0, 0, 1]);
}

#[test]
fn the_datapath_counts_the_loads_that_rebalancing_sees() {
    let (lab, _br, _) = balanced();
    lab.send("br-3", &(1..=40).map(udp).collect::<Vec<_>>());
    let [first, second, ..] = counts(&lab);
    let loads = || {
        lab.switch.with_bonds(|bonds| {
            _ = bonds.show(None, lab.clock.now());
            let of = |member: &::bond::machine::MemberStatus| member.loads.iter().map(|(_, bytes)| bytes).sum::<u64>();
            bonds.status().remove(0).members.iter().map(of).collect::<Vec<_>>()
        })
    };
    let len = udp(1).len() as u64;
    assert_eq!(loads(), [len * first as u64, len * second as u64]);
    assert_eq!(loads(), [len * first as u64, len * second as u64], "each byte counts once");
}

#[test]
fn tables_follow_the_setting() {
    let (lab, br, settings) = balanced();
    let sends = |n: u8| {
        lab.send("br-3", &(1..=n).map(udp).collect::<Vec<_>>());
        let [first, second, ..] = counts(&lab);
        first + second
    };
    assert_eq!((ids(&lab), sends(20)), (vec![1], 20));
    let other = |lb_output, mode| BondSettings { lb_output, mode, ..settings.clone() };
    for (settings, expected) in [
        (other(false, Mode::BalanceTcp), vec![]),
        (other(true, Mode::BalanceTcp), vec![1]),
        (other(true, Mode::BalanceSlb), vec![]),
        (other(true, Mode::ActiveBackup), vec![]),
        // The bond gets a new number.
        (other(true, Mode::BalanceTcp), vec![2]),
    ] {
        configure_as(&lab, &br, settings, [Link::UP; 2]);
        lab.switch.settle_protocols();
        assert_eq!((ids(&lab), sends(20)), (expected, 20));
    }
    assert_eq!(lab.switch.dpif().expect("a datapath").drops(), []);
    // A datapath that is not to balance bonds keeps those that it has.
    assert_eq!(lab.switch.set_feature("lb_output_action", "false", false), crate::features::Set::Done);
    configure_as(&lab, &br, BondSettings { hash_basis: 7, ..settings.clone() }, [Link::UP; 2]);
    assert_eq!((ids(&lab), sends(20)), (vec![2], 20));
    configure_as(&lab, &br, other(false, Mode::BalanceTcp), [Link::UP; 2]);
    configure_as(&lab, &br, settings, [Link::UP; 2]);
    lab.switch.settle_protocols();
    assert_eq!((ids(&lab), sends(20)), (vec![], 20));
    lab.switch.configure_bonds(BTreeMap::new());
    assert!(ids(&lab).is_empty());
}
