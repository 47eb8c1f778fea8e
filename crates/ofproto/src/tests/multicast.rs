//! Multicast snooping on a datapath: reports teach, data follows, and changes affect the flows that depend on them.

use super::*;
use crate::{Extent, PassReport, SnoopingSettings};
use packet::checksum::checksum;

const QUERY: u8 = 0x11;
const JOIN: u8 = 0x16;
const LEAVE: u8 = 0x17;

/// An IPv4 frame from a station to a group.
fn frame_to(src: u8, group: u8, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![1, 0, 0x5e, 1, 1, group, 2, 0, 0, 0, 0, src, 8, 0];
    let total = 20 + payload.len() as u8;
    frame.extend([0x45, 0, 0, total, 0, 0, 0, 0, 1, proto, 0, 0, 10, 0, 0, src, 225, 1, 1, group]);
    let sum = checksum(&frame[14..]).to_be_bytes();
    frame[24..26].copy_from_slice(&sum);
    frame.extend(payload);
    frame.resize(60, 0);
    frame
}

/// An IGMP message.
fn igmp(src: u8, kind: u8, group: u8) -> Vec<u8> {
    let mut message = [kind, 0, 0, 0, 225, 1, 1, group];
    let sum = checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    frame_to(src, group, 2, &message)
}

/// A datagram.
fn data(src: u8, group: u8) -> Vec<u8> {
    frame_to(src, group, 17, &[0, 7, 0, 7, 0, 8, 0, 0])
}

/// A bridge of four ports with snooping, which drops frames to groups without members.
fn snooping(lab: &mut Lab) -> Arc<Ofproto> {
    let br = lab.bridge("br", 4);
    br.flow_mod(&add(Match::ANY, 0, vec![normal()])).expect("adds");
    br.set_snooping(Some(SnoopingSettings { drop_unregistered: true, ..SnoopingSettings::default() }));
    br
}

fn counts(lab: &Lab) -> [usize; 4] {
    ["br-1", "br-2", "br-3", "br-4"].map(|port| lab.received(port).len())
}

fn changes(lab: &Lab) -> PassReport {
    lab.switch.pass(Extent::Changes)
}

#[test]
fn a_change_of_a_group_affects_its_flows_alone() {
    let mut lab = Lab::new();
    let br = snooping(&mut lab);
    for group in 1..4 {
        lab.send("br-1", &[data(1, group)]);
    }
    assert_eq!(counts(&lab), [0; 4]);
    changes(&lab);
    let settled = lab.switch.translations();
    lab.send("br-1", &[data(1, 1), data(1, 2)]);
    assert_eq!(lab.switch.translations(), settled, "data is forwarded by cached flows");
    // Both packets of the flow of messages teach.
    lab.send("br-2", &[igmp(2, JOIN, 1)]);
    assert_eq!((counts(&lab), br.mdb_json().unwrap()["members"][0]["port"].as_u64()), ([0; 4], Some(2)));
    let report = changes(&lab);
    assert_eq!((report.translated, report.changed), (1, 1));
    lab.send("br-1", &[data(1, 1), data(1, 2)]);
    assert_eq!(counts(&lab), [0, 1, 0, 0]);
    lab.send("br-3", &[igmp(3, JOIN, 1)]);
    assert_eq!(changes(&lab).translated, 1);
    lab.send("br-1", &[data(1, 1)]);
    assert_eq!(counts(&lab), [0, 1, 1, 0]);
    // A port with a router gets reports, and data of all groups.
    lab.send("br-4", &[igmp(4, QUERY, 9)]);
    assert_eq!(counts(&lab), [1, 1, 1, 0]);
    changes(&lab);
    lab.send("br-1", &[data(1, 1), data(1, 2)]);
    assert_eq!(counts(&lab), [0, 1, 1, 2]);
    lab.send("br-2", &[igmp(2, LEAVE, 1)]);
    assert_eq!(counts(&lab), [0, 0, 0, 1]);
    assert_eq!(changes(&lab).translated, 1);
    lab.send("br-1", &[data(1, 1)]);
    assert_eq!(counts(&lab), [0, 0, 1, 1]);
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
}

#[test]
fn members_age_and_settings_take_effect() {
    let mut lab = Lab::new();
    let br = snooping(&mut lab);
    lab.send("br-2", &[igmp(2, JOIN, 1)]);
    lab.send("br-1", &[data(1, 1)]);
    assert_eq!(counts(&lab), [0, 1, 0, 0]);
    let now = br.now();
    br.expire(now.after(299_000));
    lab.send("br-1", &[data(1, 1)]);
    assert_eq!(counts(&lab), [0, 1, 0, 0]);
    br.expire(now.after(300_000));
    lab.send("br-1", &[data(1, 1)]);
    assert_eq!((counts(&lab), br.mdb_json().unwrap()["expired"].as_u64()), ([0; 4], Some(1)));
    br.set_snooping(Some(SnoopingSettings::default()));
    lab.send("br-1", &[data(1, 1)]);
    assert_eq!(counts(&lab), [0, 1, 1, 1]);
    lab.send("br-2", &[igmp(2, JOIN, 1)]);
    assert!(br.flush_multicast() && br.mdb_show().is_some_and(|text| text.lines().count() == 1));
    br.set_snooping(None);
    assert!(!br.flush_multicast() && br.mdb_show().is_none());
    lab.send("br-2", &[igmp(2, JOIN, 1)]);
    assert_eq!(counts(&lab), [1, 0, 1, 1]);
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
}

#[test]
fn a_bundle_that_changes_its_vlans_or_goes_is_forgotten() {
    let mut lab = Lab::new();
    let br = snooping(&mut lab);
    let members = |br: &Ofproto| br.mdb_json().unwrap()["members"].as_array().unwrap().len();
    for (port, src) in [("br-2", 2), ("br-3", 3)] {
        lab.send(port, &[igmp(src, JOIN, 1)]);
    }
    let specs: Vec<PortSpec> = br.ports().into_iter().map(|port| port.spec).collect();
    let with = |edit: &dyn Fn(&mut BundleSpec)| {
        let mut bundles: Vec<BundleSpec> = specs.iter().map(bundle).collect();
        bundles.iter_mut().filter(|b| b.name == "br-2").for_each(edit);
        br.set_ports(specs.clone(), bundles);
        members(&br)
    };
    assert_eq!(with(&|b| b.multicast.reports = true), 2);
    assert_eq!(with(&|b| b.protected = true), 1);
    lab.send("br-2", &[igmp(2, JOIN, 1)]);
    assert_eq!(with(&|_| {}), 1);
    let fewer: Vec<PortSpec> = specs.iter().filter(|spec| spec.name != "br-3").cloned().collect();
    set_ports(&br, fewer);
    assert_eq!(members(&br), 0);
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
}
