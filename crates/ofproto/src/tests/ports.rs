//! Port modifications, and the port status messages that they cause.

use super::*;
use openflow::port::{PortMod, PortReason, config};

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
