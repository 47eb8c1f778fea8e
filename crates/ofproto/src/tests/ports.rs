//! Port modifications, and the port status messages that they cause.

use super::*;
use openflow::port::{PortMod, PortReason, config, state};

/// Sends a port modification and returns the answers.
fn port_mod(client: &Client, port_no: u32, hw_addr: MacAddr, config: u32, mask: u32) -> Vec<Message> {
    let change = PortMod { port_no: PortNo(port_no), hw_addr, config, mask, advertise: 0 };
    client.send(&Message::PortMod(change))
}

/// The configuration bits in each of the messages, all of them port status messages about a modified port.
fn configs(messages: &[Message]) -> Vec<u32> {
    let of = |message: &Message| match message {
        Message::PortStatus(status) if status.reason == PortReason::Modify => status.desc.config,
        other => panic!("{other:?}"),
    };
    messages.iter().map(of).collect()
}

/// An 802.1D frame: 802.2 without SNAP, to the bridge group address.
fn stp_frame(dst: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, dst]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..17].copy_from_slice(&[0, 38, 0x42, 0x42, 3]);
    frame
}

#[test]
fn port_modifications() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V15);
    br.flow_mod(&add(Match::ANY, 1, vec![output(2)])).expect("adds");
    let mac = br.port(PortNo(1)).expect("there").spec.mac;
    assert_eq!(error_of(&port_mod(&c, 7, mac, 0, 1)), Some(OfpError::PmfcBadPort));
    assert_eq!(error_of(&port_mod(&c, 1, MAC_A, 0, 1)), Some(OfpError::PmfcBadHwAddr));
    assert_eq!(configs(&port_mod(&c, 1, mac, config::NO_RECV, config::NO_RECV)), [config::NO_RECV]);
    lab.send("br-1", &[frame(1, 2)]);
    assert!(lab.received("br-2").is_empty());
    assert!(port_mod(&c, 1, mac, config::NO_RECV, config::NO_RECV).is_empty(), "no change, no port status");
    assert_eq!(configs(&port_mod(&c, 1, mac, 0, config::NO_RECV)), [0]);
    // A device that was set down outside of the switch can be set up.
    lab.wire("br-1").near.set_up(false).expect("can");
    port_mod(&c, 1, mac, 0, config::PORT_DOWN);
    assert!(lab.wire("br-1").near.status().admin_up);
}

#[test]
fn a_port_modification_is_reported_to_the_connections_that_can_see_it() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let mac = br.port(PortNo(1)).expect("there").spec.mac;
    let [v10, v13, v14, v15] = [Version::V10, Version::V13, Version::V14, Version::V15]
        .map(|version| Client::new(&br, PeerKind::Controller, version));
    let others = |clients: &[&Client]| clients.iter().map(|c| configs(&c.waiting())).collect::<Vec<_>>();
    // From OpenFlow 1.5 on the requester is notified of its own request.
    assert!(port_mod(&v13, 1, mac, config::NO_FWD, config::NO_FWD).is_empty());
    assert_eq!(others(&[&v10, &v14, &v15]), [[config::NO_FWD]; 3]);
    assert!(port_mod(&v14, 1, mac, 0, config::NO_FWD).is_empty());
    assert_eq!(others(&[&v10, &v13, &v15]), [[0]; 3]);
    assert_eq!(configs(&port_mod(&v15, 1, mac, config::NO_FWD, config::NO_FWD)), [config::NO_FWD]);
    assert_eq!(others(&[&v10, &v13, &v14]), [[config::NO_FWD]; 3]);
    assert!(port_mod(&v10, 1, mac, 0, config::NO_FWD).is_empty());
    assert_eq!(others(&[&v13, &v14, &v15]), [[0]; 3]);
    // OpenFlow 1.1 and later do not have these bits.
    let other = Client::new(&br, PeerKind::Controller, Version::V10);
    for bit in [config::NO_STP, config::NO_RECV_STP, config::NO_FLOOD] {
        assert!(port_mod(&v10, 1, mac, bit, bit).is_empty());
        assert_eq!(others(&[&other]), [[bit]]);
        assert!(others(&[&v13, &v14, &v15]).iter().all(Vec::is_empty));
        assert!(port_mod(&v13, 1, mac, 0, bit).is_empty());
        assert!(others(&[&other]).iter().all(Vec::is_empty), "OpenFlow 1.3 cannot change the bit");
        port_mod(&v10, 1, mac, 0, bit);
        assert_eq!(others(&[&other]), [[0]]);
    }
}

/// Reasons, configurations and states in port status messages.
fn statuses(messages: Vec<Message>) -> Vec<(PortReason, u32, u32)> {
    let of = |message| match message {
        Message::PortStatus(status) => (status.reason, status.desc.config, status.desc.state),
        other => panic!("{other:?}"),
    };
    messages.into_iter().map(of).collect()
}

#[test]
fn the_status_of_a_port_comes_in_steps() {
    const DOWN: u32 = config::PORT_DOWN;
    const LINK_DOWN: u32 = state::LINK_DOWN;
    const LIVE: u32 = state::LIVE;
    let (add, modify, delete) = (PortReason::Add, PortReason::Modify, PortReason::Delete);
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    // The requester of OpenFlow 1.3 receives the steps after its own one.
    let [v10, v13, asking] =
        [Version::V10, Version::V13, Version::V13].map(|version| Client::new(&br, PeerKind::Controller, version));
    let heard = || [&v10, &v13, &asking].map(|client| statuses(client.waiting()));
    let port = lab.port("br-7", PortNo(7));
    let edits = crate::PortEdits { ports: vec![port.clone()], bundles: vec![bundle(&port)], ..Default::default() };
    br.send_port_changes(&br.edit_ports(edits));
    let added = vec![(add, 0, 0), (modify, 0, LIVE)];
    assert_eq!(heard(), [vec![(add, 0, 0)], added.clone(), added]);
    // A port modification changes the configuration, then the link.
    let set = |config| {
        let own = statuses(port_mod(&asking, 7, port.mac, config, DOWN));
        [&v10, &v13].map(|client| statuses(client.waiting())).into_iter().chain([own]).collect::<Vec<_>>()
    };
    let down = vec![(modify, DOWN, 0), (modify, DOWN, LINK_DOWN)];
    assert_eq!(set(DOWN), [down.clone(), down.clone(), down[1..].to_vec()]);
    // The poll of links has nothing to add.
    let poll = || br.send_port_changes(&[crate::bridge::PortChange::Modified(br.port(PortNo(7)).expect("there"))]);
    poll();
    assert!(heard().iter().all(Vec::is_empty));
    let up = |state| vec![(modify, 0, LINK_DOWN), (modify, 0, state)];
    assert_eq!(set(0), [up(0), up(LIVE), up(LIVE)[1..].to_vec()]);
    // A link that goes down by itself is not live first.
    let device = lab.wire("br-7").near.clone();
    device.set_up(false).expect("can");
    poll();
    let down = vec![(modify, 0, 0), (modify, DOWN, LINK_DOWN)];
    assert_eq!(heard(), [vec![(modify, DOWN, LINK_DOWN)], down.clone(), down]);
    device.set_up(true).expect("can");
    poll();
    assert_eq!(heard(), [vec![(modify, 0, 0)], vec![(modify, 0, LIVE)], vec![(modify, 0, LIVE)]]);
    br.send_port_changes(&br.edit_ports(crate::PortEdits { removed: vec![PortNo(7)], ..Default::default() }));
    assert_eq!(heard(), [vec![(delete, 0, 0)], vec![(delete, 0, LIVE)], vec![(delete, 0, LIVE)]]);
}

#[test]
fn stp_frames_have_a_port_configuration_of_their_own() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V10);
    br.flow_mod(&add(Match::ANY, 1, vec![output(2)])).expect("adds");
    let mac = br.port(PortNo(1)).expect("there").spec.mac;
    let both = config::NO_RECV | config::NO_RECV_STP;
    let frames = [stp_frame(0), stp_frame(1), frame(1, 2)];
    let forwarded = |bits| {
        port_mod(&c, 1, mac, bits, both);
        // For the first packet, and for a cached flow.
        let once = || {
            frames.clone().map(|frame| {
                lab.send("br-1", &[frame]);
                lab.received("br-2").len()
            })
        };
        let first = once();
        assert_eq!(once(), first);
        first
    };
    assert_eq!(forwarded(0), [1, 1, 1]);
    assert_eq!(forwarded(config::NO_RECV_STP), [0, 1, 1]);
    assert_eq!(forwarded(config::NO_RECV), [1, 0, 0]);
    assert_eq!(forwarded(both), [0, 0, 0]);
    // Without a spanning tree protocol the bit has no effect.
    port_mod(&c, 1, mac, config::NO_STP, config::NO_STP);
    assert_eq!(forwarded(0), [1, 1, 1]);
    let StatsReply::PortDesc(ports) = c.ask(StatsRequest::PortDesc(PortNo::ANY)) else { panic!("ports") };
    assert_eq!(ports[0].config, config::NO_STP);
}
