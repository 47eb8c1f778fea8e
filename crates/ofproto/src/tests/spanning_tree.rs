//! Spanning tree on a datapath: BPDUs, blocked ports, learned addresses, and what controllers see and change.

use super::*;
use ::protocols::Protocol;

use ::spanning_tree::bpdu::{Config, Flags};
use ::spanning_tree::id::{BridgeId, PortId, Times, Vector};
use ::spanning_tree::{Bpdu, BridgeSettings, Flavour, PortSettings, Role, RstpSettings, Settings, State, StpSettings};
use openflow::port::{PortMod, config, state};

/// Settings of a bridge whose ports 1 to `count` take part, and port 4, which does not.
fn settings(bridge: &Ofproto, flavour: Flavour, count: u32) -> Settings {
    let port = |no: u32| (PortNo(no), PortSettings::new(&format!("br-{no}"), MacAddr([2, 0, 0, 0, 9, no as u8]), 4));
    let ports = (1..=count).map(port).collect();
    let bridge_settings = BridgeSettings { name: "br".into(), flavour, ports, bystanders: [PortNo(4)].into() };
    Settings { bridges: [(bridge.id(), bridge_settings)].into() }
}

fn stp() -> Flavour {
    Flavour::Stp(StpSettings::new(MacAddr([2, 0, 0, 0, 0, 5])))
}

fn rstp() -> Flavour {
    Flavour::Rstp(RstpSettings::new(MacAddr([2, 0, 0, 0, 0, 5])))
}

/// A BPDU of a port of the root.
fn bpdu(port: u16) -> Vec<u8> {
    let root = BridgeId::new(0, MacAddr([2, 0, 0, 0, 0, 1]));
    let flags = Flags::default().with_role(Role::Designated);
    let vector = Vector { root, cost: 0, bridge: root, port: PortId(port) };
    Bpdu::Rapid(Config { flags, vector, times: Times::of_root(2, 20, 15) }).write(MacAddr([2, 0, 0, 0, 0, 1]))
}

fn states(lab: &Lab) -> Vec<State> {
    lab.switch.spanning_tree_status()[0].ports.iter().map(|port| port.state).collect()
}

fn pass(lab: &Lab, ms: u64) {
    for _ in 0..ms / 500 {
        lab.clock.warp(500);
        lab.switch.settle_protocols();
    }
}

#[test]
fn a_blocked_port_passes_bpdus_alone() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 4);
    br.flow_mod(&add(Match::ANY, 1, vec![output(PortNo::NORMAL.0)])).expect("adds");
    lab.switch.configure_spanning_tree(settings(&br, rstp(), 3));
    for _ in 0..4 {
        lab.send("br-1", &[bpdu(1)]);
        lab.send("br-2", &[bpdu(2)]);
        pass(&lab, 2000);
    }
    assert_eq!(states(&lab), [State::Forwarding, State::Discarding, State::Forwarding]);
    ["br-1", "br-2", "br-3", "br-4"].iter().for_each(|port| drop(lab.received(port)));
    let counts = |lab: &Lab| ["br-1", "br-2", "br-3", "br-4"].map(|port| lab.received(port).len());
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(counts(&lab), [0, 0, 1, 1]);
    lab.send("br-2", &[frame(3, 2)]);
    assert_eq!(counts(&lab), [0; 4]);
    assert!(br.macs().read().iter().all(|(.., entry)| entry.port != PortNo(2)));
    // A port that takes no part forwards, but BPDUs from it are not forwarded.
    lab.send("br-4", &[frame(4, 2), bpdu(3)]);
    assert_eq!(counts(&lab), [1, 0, 1, 0]);
    assert_eq!(lab.switch.protocol_inbox(Protocol::STP).accepted, 9);
    // When the root port's information expires, the other one takes over its addresses.
    for _ in 0..4 {
        lab.send("br-2", &[bpdu(2)]);
        pass(&lab, 2000);
    }
    assert_eq!(states(&lab)[1], State::Forwarding);
    lab.switch.configure_spanning_tree(Settings::default());
    counts(&lab);
    lab.send("br-2", &[frame(3, 9), bpdu(1)]);
    assert_eq!(counts(&lab), [1, 0, 1, 1], "NORMAL drops the BPDU for its address");
}

#[test]
fn controllers_see_states_and_exclude_ports() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 4);
    let client = Client::new(&br, PeerKind::Controller, Version::V10);
    let seen = |client: &Client| {
        let of = |message: Message| match message {
            Message::PortStatus(status) => Some((status.desc.port_no.0, status.desc.state)),
            _ => None,
        };
        client.waiting().into_iter().filter_map(of).collect::<Vec<_>>()
    };
    lab.switch.configure_spanning_tree(settings(&br, stp(), 1));
    seen(&client);
    pass(&lab, 15_000);
    assert_eq!(seen(&client), [(1, state::STP_LEARN)]);
    pass(&lab, 15_000);
    assert_eq!(seen(&client), [(1, state::STP_FORWARD)]);
    let hw_addr = br.port(PortNo(1)).expect("there").spec.mac;
    let exclude = |config| {
        let change = PortMod { port_no: PortNo(1), hw_addr, config, mask: config::NO_STP, advertise: 0 };
        client.send(&Message::PortMod(change));
    };
    exclude(config::NO_STP);
    assert_eq!((states(&lab), br.port(PortNo(1)).is_some()), (vec![], true));
    exclude(0);
    assert_eq!(states(&lab), [State::Listening]);
    assert!(lab.switch.notify_topology_change(br.id()));
    lab.switch.configure_spanning_tree(Settings::default());
    assert!(!lab.switch.notify_topology_change(br.id()));
}
