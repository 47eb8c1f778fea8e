//! Protocols on a datapath: punted frames, frames that they send, and flows affected by the state of a port.

use super::*;
use crate::{Change, Extent};
use ::protocols::{Accepts, Effect, Frame, Machine, PortState, Protocol};
use base::{BridgePort, DpPort, DropReason, Millis};
use dpif::Dpif;
use lldp::{Pdu, PortSettings};

const DECIDING: Protocol = Protocol::new(15).unwrap();

/// Takes its decisions from the test.
#[derive(Debug, Default)]
struct Decider(Vec<Effect>);

impl Machine for Decider {
    fn input(&mut self, _frame: &Frame, _now: Millis) {}

    fn poll(&mut self, _now: Millis, effects: &mut Vec<Effect>) {
        effects.append(&mut self.0);
    }

    fn next_deadline(&self) -> Option<Millis> {
        None
    }
}

fn at(bridge: &Ofproto, no: u32) -> BridgePort {
    BridgePort { bridge: bridge.id(), port: PortNo(no) }
}

fn lldp_on(bridge: &Ofproto, ports: &[u32]) -> lldp::Settings {
    let port = |no: &u32| {
        let mac = MacAddr([2, 0, 0, 0, 9, *no as u8]);
        (at(bridge, *no), PortSettings { name: format!("br-{no}"), mac, ..PortSettings::default() })
    };
    lldp::Settings { ports: ports.iter().map(port).collect() }
}

fn lldp_frame() -> Vec<u8> {
    let pdu = Pdu { chassis_id: b"\x07a".into(), port_id: b"\x05b".into(), ttl_s: 120, ..Pdu::default() };
    pdu.write(MacAddr([2, 0, 0, 0, 0, 1])).0
}

/// The datapath's number of a port of the bridge.
fn device(lab: &Lab, bridge: &Ofproto, no: u32) -> DpPort {
    let net = lab.switch.network();
    match net.bridges[&bridge.id()].ports[&PortNo(no)].out {
        PortOut::Device(port) => port,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lldp_receives_frames_from_its_ports_and_sends_to_them() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    br.flow_mod(&add(Match::ANY, 1, vec![output(3)])).expect("adds");
    assert_eq!([1, 2, 3].map(|no| device(&lab, &br, no)), [1, 2, 3].map(DpPort));
    // LLDP is enabled after the flow of the first frame was installed.
    lab.send("br-1", &[lldp_frame()]);
    assert_eq!(lab.received("br-3").len(), 1);
    lab.switch.configure_lldp(lldp_on(&br, &[1, 2]));
    lab.send("br-1", &[lldp_frame(), frame(1, 2), lldp_frame()]);
    lab.send("br-1", &[lldp_frame()]);
    assert_eq!(lab.received("br-3").len(), 1, "the other frame alone");
    assert_eq!(lab.switch.protocol_inbox(Protocol::LLDP).accepted, 3);
    assert_eq!(lab.dp.drops(), []);
    let engine = Arc::clone(&lab.switch.protocols.engine);
    engine.turn(lab.clock.now());
    let counts = |lab: &Lab| lab.switch.lldp_status().iter().map(|port| port.statistics.rx).collect::<Vec<_>>();
    assert_eq!(counts(&lab), [3, 0]);
    let flows = lab.dp.flow_dump();
    let actions = flows.iter().map(|flow| dpif::text::format_actions(&flow.actions, 0x88cc, &|_| None));
    assert!(
        actions.clone().any(|text| text == "userspace(pid=0,slow_path(lldp))"),
        "{:?}",
        actions.collect::<Vec<_>>()
    );
    // Its frames leave by the port, whatever the tables say.
    lab.clock.warp(5000);
    engine.turn(lab.clock.now());
    let sent = lab.received("br-2");
    assert_eq!((sent.len(), lab.received("br-1").len(), lab.received("br-3").len()), (1, 1, 0));
    assert_eq!(Pdu::parse(sent[0].data()).expect("an LLDPDU").0.port_id, b"\x05br-2");
    // A flood fills the inbox, and further frames are counted as dropped.
    (0..10).for_each(|_| lab.send("br-1", &vec![lldp_frame(); 30]));
    let inbox = lab.switch.protocol_inbox(Protocol::LLDP);
    assert_eq!((inbox.accepted, inbox.full), (3 + 256, 44));
    assert_eq!(lab.dp.drops(), [(DropReason::ProtocolQueueFull, 44)]);
    engine.turn(lab.clock.now());
    // With LLDP disabled, its frames are forwarded like all others.
    lab.switch.configure_lldp(lldp::Settings::default());
    lab.send("br-1", &[lldp_frame()]);
    assert_eq!((lab.received("br-3").len(), lab.switch.lldp_status().len()), (1, 0));
    assert_eq!(lab.switch.pass(Extent::Full).fixed_up, 0);
}

#[test]
fn lldp_ends_with_a_shutdown_frame() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let shutdowns = |lab: &Lab, port: &str| {
        let pdus = lab.received(port).into_iter().map(|frame| Pdu::parse(frame.data()).expect("an LLDPDU").0);
        pdus.map(|pdu| (pdu.ttl_s, pdu.port_id)).collect::<Vec<_>>()
    };
    lab.switch.configure_lldp(lldp_on(&br, &[1, 2, 3]));
    // It is disabled on a port: the frame leaves before the call returns.
    lab.switch.configure_lldp(lldp_on(&br, &[1, 2]));
    assert_eq!(shutdowns(&lab, "br-3"), [(0, b"\x05br-3".to_vec())]);
    // A port is about to be removed. This happens once, and the configuration that follows changes nothing.
    let (one, other) = (device(&lab, &br, 1), device(&lab, &br, 3));
    [one, one, other].into_iter().for_each(|port| lab.switch.end_protocols(port));
    lab.switch.configure_lldp(lldp_on(&br, &[2]));
    assert_eq!(shutdowns(&lab, "br-1"), [(0, b"\x05br-1".to_vec())]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len(), lab.switch.lldp_status().len()), (0, 0, 1));
    assert_eq!(lab.dp.drops(), []);
}

#[test]
fn a_flood_on_one_port_leaves_room_for_frames_of_another() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    lab.switch.configure_lldp(lldp_on(&br, &[1, 2]));
    (0..10).for_each(|_| lab.send("br-1", &vec![lldp_frame(); 30]));
    lab.send("br-2", &[lldp_frame()]);
    // The drops are those of the port that floods.
    assert_eq!(lab.dp.drops(), [(DropReason::ProtocolQueueFull, 45)]);
    assert_eq!(lab.dp.port_stats(DpPort(1)).expect("there").rx_drops, [(DropReason::ProtocolQueueFull, 45)]);
    lab.switch.protocols.engine.turn(lab.clock.now());
    let counts: Vec<_> = lab.switch.lldp_status().iter().map(|port| port.statistics.rx).collect();
    assert_eq!(counts, [31, 1]);
}

#[test]
fn a_port_state_affects_the_flows_that_depend_on_it() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 4);
    for (from, to) in [(1, 2), (3, 4), (4, 1)] {
        br.flow_mod(&add(in_port(from), 10, vec![output(to)])).expect("adds");
    }
    let decider = Arc::new(Mutex::new(Decider::default()));
    let machine: Arc<Mutex<Decider>> = Arc::clone(&decider);
    let engine = Arc::clone(&lab.switch.protocols.engine);
    engine.register(DECIDING, machine);
    lab.switch.enable_protocol(DECIDING, &[at(&br, 2), at(&br, 3)].map(|port| (port, Accepts::ALL)).into());
    let send_all = |lab: &Lab| {
        for from in [1, 3, 4] {
            lab.send(&format!("br-{from}"), &[frame(from, 9)]);
        }
        [1, 2, 4].map(|no| lab.received(&format!("br-{no}")).len())
    };
    assert_eq!(send_all(&lab), [1, 1, 1]);
    lab.switch.pass(Extent::Changes);
    let (flows, bridge) = (lab.dp.stats().flows, Arc::clone(&lab.switch.network().bridges[&br.id()]));
    let decide = |no, state| {
        decider.lock().0.push(Effect::Port { port: at(&br, no), state });
        engine.changed(DECIDING);
        engine.turn(lab.clock.now());
        let report = lab.switch.pass(Extent::Changes);
        (report.translated, report.changed)
    };
    // The port to which one flow outputs.
    let blocked = PortState { forwarding: false, learning: false, live: true };
    assert_eq!(decide(2, blocked), (1, 1));
    // The current state again, and the state of a port where the protocol is not enabled.
    assert_eq!((decide(2, blocked), decide(4, blocked)), ((0, 0), (0, 0)));
    // The ingress port of one flow.
    assert_eq!(decide(3, blocked), (1, 1));
    assert_eq!(send_all(&lab), [1, 0, 0]);
    assert_eq!(lab.dp.drops(), [(DropReason::PortBlocked, 2)]);
    let decide = |no, state| {
        decider.lock().0.push(Effect::Port { port: at(&br, no), state });
        engine.changed(DECIDING);
        engine.turn(lab.clock.now());
        lab.switch.pass(Extent::Changes).translated
    };
    assert_eq!((decide(2, PortState::default()), decide(3, PortState::default())), (1, 1));
    assert_eq!(send_all(&lab), [1, 1, 1]);
    // No snapshot was rebuilt, and no flow was removed.
    assert!(Arc::ptr_eq(&bridge, &lab.switch.network().bridges[&br.id()]));
    assert_eq!((lab.dp.stats().flows, lab.switch.pass(Extent::Full).fixed_up), (flows, 0));
    // A rebuilt network has the same overlay.
    lab.switch.changed(Change::Everything);
    let before = Arc::clone(&lab.switch.network().overlay);
    lab.switch.add_bridge("other");
    assert!(Arc::ptr_eq(&before, &lab.switch.network().overlay) && before.load().len() == 2);
}

#[test]
fn flows_of_ports_with_lldp_share_translations() {
    let flows_with = |ports: &[u32]| {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 4);
        br.flow_mod(&add(Match::ANY, 1, vec![output(PortNo::FLOOD.0)])).expect("adds");
        lab.switch.configure_lldp(lldp_on(&br, ports));
        (1..5).for_each(|no| lab.send(&format!("br-{no}"), &[frame(no, 9)]));
        lab.switch.revalidator_status().shared_translations
    };
    assert_eq!(flows_with(&[1, 2, 3]), flows_with(&[]));
}
