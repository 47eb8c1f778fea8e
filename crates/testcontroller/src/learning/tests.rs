//! The controller's replies, as text.

use super::*;
use openflow::packet::PacketInFormat;
use openflow::print::{Style, print};
use openflow::stream::Framer;

const A: [u8; 6] = [2, 0, 0, 0, 10, 1];
const B: [u8; 6] = [2, 0, 0, 0, 10, 2];

fn frame(dst: [u8; 6], src: [u8; 6], rest: &[u8]) -> Vec<u8> {
    [&dst, &src, rest, &[0; 46][..]].concat()
}

fn packet_in(controller: &mut Controller<'_>, port: u32, data: Vec<u8>, buffer_id: Option<u32>) {
    let mut metadata = Match::ANY;
    metadata.set(Field::InPortOxm, port.into());
    let packet = PacketIn {
        reason: PacketInReason::NoMatch,
        buffer_id,
        total_len: data.len() as u32,
        table_id: 0,
        cookie: u64::MAX,
        metadata,
        data,
        userdata: Vec::new(),
        continuation: Vec::new(),
    };
    let message = Message::PacketIn(PacketInFormat::Standard, Box::new(packet));
    let bytes = encode(controller.version, 9, &message);
    controller.receive(&bytes, Millis(0)).expect("a message");
}

/// The messages sent, one per line, without ids and lengths.
fn sent(controller: &mut Controller<'_>) -> Vec<String> {
    let mut framer = Framer::default();
    framer.push(&controller.take_output());
    let mut lines = Vec::new();
    while let Some(message) = framer.next_message().expect("whole messages") {
        let text = print(message, Style::plain(0));
        let line = text.lines().next().unwrap_or_default();
        let (name, rest) = line.split_once(" (").unwrap_or((line, ""));
        let rest = rest.rsplit_once("): ").map_or("", |(_, rest)| rest);
        let rest = rest.split(" data_len=").next().unwrap_or_default();
        lines.push(format!("{name} {rest}").trim_end().to_owned());
    }
    lines
}

fn with(version: Version, policy: &Policy, test: impl FnOnce(&mut Controller<'_>)) {
    let mut controller = Controller::new(policy, version, 1);
    controller.begin(&[]).expect("nothing to begin with that could fail");
    sent(&mut controller);
    test(&mut controller);
}

const OTHER: &[u8] = &[0x12, 0x34];

#[test]
fn addresses_are_learned() {
    with(Version::V10, &Policy::default(), |c| {
        packet_in(c, 1, frame(B, A, OTHER), None);
        assert_eq!(sent(c), ["OFPT_PACKET_OUT in_port=1 actions=FLOOD"]);
        packet_in(c, 2, frame(A, B, OTHER), None);
        let flow = "OFPT_FLOW_MOD ADD priority=1,in_port=2,vlan_tci=0x0000,dl_src=02:00:00:00:0a:02,\
                    dl_dst=02:00:00:00:0a:01,dl_type=0x1234 idle:60";
        assert_eq!(sent(c), [format!("{flow} actions=output:1"), "OFPT_PACKET_OUT in_port=2 actions=output:1".into()]);
        packet_in(c, 2, frame(A, B, OTHER), Some(7));
        assert_eq!(sent(c), [format!("{flow} buf:0x7 actions=output:1")]);
        // Packets are not sent back to their ingress port.
        packet_in(c, 1, frame(A, B, OTHER), None);
        assert_eq!(sent(c), [format!("{flow} actions=drop").replace("in_port=2", "in_port=1")]);
        packet_in(c, 1, frame([0xff; 6], A, OTHER), Some(8));
        assert_eq!(sent(c), ["OFPT_PACKET_OUT in_port=1 actions=FLOOD buffer=0x00000008"]);
        packet_in(c, 1, frame([1, 0x80, 0xc2, 0, 0, 0xe], A, OTHER), None);
        assert!(sent(c)[0].ends_with("actions=drop"));
    });
}

#[test]
fn other_modes() {
    let hub = Policy { mode: Mode::Hub, set_up_flows: false, ..Policy::default() };
    with(Version::V13, &hub, |c| {
        packet_in(c, 1, frame(B, A, OTHER), None);
        packet_in(c, 2, frame(A, B, OTHER), None);
        assert_eq!(sent(c), ["OFPT_PACKET_OUT in_port=1 actions=FLOOD", "OFPT_PACKET_OUT in_port=2 actions=FLOOD"]);
    });
    let quiet = Policy { set_up_flows: false, queue: Some(3), ..Policy::default() };
    with(Version::V10, &quiet, |c| {
        packet_in(c, 1, frame(B, A, OTHER), None);
        packet_in(c, 2, frame(A, B, OTHER), None);
        packet_in(c, 1, frame(A, B, OTHER), Some(5));
        let out = [
            "OFPT_PACKET_OUT in_port=1 actions=FLOOD",
            "OFPT_PACKET_OUT in_port=2 actions=enqueue:1:3",
            "OFPT_PACKET_OUT in_port=1 actions=drop buffer=0x00000005",
        ];
        assert_eq!(sent(c), out);
    });
    let normal = Policy { mode: Mode::Normal, wildcards: 0x0028_20f0, idle_timeout: 0, ..Policy::default() };
    with(Version::V10, &normal, |c| {
        packet_in(c, 1, frame(B, A, OTHER), None);
        packet_in(c, 2, frame(A, B, &[0x81, 0, 0x20, 5, 8, 0]), None);
        let flow = "OFPT_FLOW_MOD ADD priority=1,in_port=2,dl_vlan=5,dl_vlan_pcp=1,dl_src=02:00:00:00:0a:02,\
                    dl_dst=02:00:00:00:0a:01 actions=NORMAL";
        assert_eq!(sent(c)[1..], [flow, "OFPT_PACKET_OUT in_port=2 actions=NORMAL"]);
    });
    with(Version::V13, &Policy { mute: true, ..Policy::default() }, |c| {
        packet_in(c, 1, frame(B, A, OTHER), None);
        c.receive(&encode(Version::V13, 3, &Message::EchoRequest(vec![])), Millis(0)).expect("a message");
        assert_eq!(sent(c), [""; 0]);
    });
}

#[test]
fn queues_are_selected_by_port_name() {
    let policy = Policy { port_queues: [("p1".to_owned(), 7)].into(), queue: Some(3), ..Policy::default() };
    let mut controller = Controller::new(&policy, Version::V13, 1);
    controller.begin(&[]).expect("no flows");
    let asked = sent(&mut controller);
    assert!(asked[2].starts_with("OFPST_PORT_DESC request"), "{asked:?}");
    let port = |port_no, name: &str| PortDesc { port_no: PortNo(port_no), name: name.into(), ..PortDesc::default() };
    let reply = StatsReply::PortDesc(vec![port(1, "p1"), port(2, "p2")]);
    let reply = Message::StatsReply { more: false, body: reply };
    controller.receive(&encode(Version::V13, 4, &reply), Millis(0)).expect("a message");
    packet_in(&mut controller, 2, frame(A, B, OTHER), None);
    packet_in(&mut controller, 1, frame(B, A, OTHER), None);
    packet_in(&mut controller, 2, frame(A, B, OTHER), None);
    let out: Vec<_> = sent(&mut controller).into_iter().filter(|line| line.contains("PACKET_OUT")).collect();
    assert!(out[1].contains("set_queue:7,output:2"), "{out:?}");
    assert!(out[2].contains("set_queue:3,output:1"), "{out:?}");
}
