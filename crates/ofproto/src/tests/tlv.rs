//! Tunnel options: the mapping and its changes, and flows that match on options.

use super::*;
use flow::text::{match_to_string, parse_match};
use openflow::packet::PacketOut;
use openflow::parse_actions;
use openflow::tlv::{TlvCommand, TlvTableMod, parse_tlv_maps};

fn tlvs(command: TlvCommand, maps: &str) -> Message {
    Message::TlvTableMod(TlvTableMod { command, maps: parse_tlv_maps(maps).expect("mappings") })
}

fn matching(text: &str) -> Match {
    parse_match(text, &flow::NoNames).expect("a match")
}

fn acting(text: &str) -> Vec<Action> {
    parse_actions(text, &flow::NoNames).expect("actions")
}

/// The matches of flows, by priority.
fn matches(c: &Client) -> Vec<(u16, String, u64)> {
    let StatsReply::Flow(flows) = c.ask(StatsRequest::Flow(Default::default())) else { panic!("flows") };
    let text = |m: &Match| match_to_string(m, &flow::NoNames);
    let mut all: Vec<_> = flows.iter().map(|f| (f.priority, text(&f.matching), f.packet_count)).collect();
    all.sort_unstable();
    all
}

const FIRST: &str = "{class=0xffff,type=0,len=4}->tun_metadata0";
const SECOND: &str = "{class=0xffff,type=1,len=16}->tun_metadata1";

#[test]
fn flows_match_mapped_options() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let flow = |priority, m: &str, actions: Vec<Action>| error_of(&c.flow_mod(add(matching(m), priority, actions)));
    let change = |command, maps| error_of(&c.send(&tlvs(command, maps)));
    assert_eq!(flow(9, "tun_metadata0=5", vec![output(2)]), Some(OfpError::NxfmfcInvalidTlvField));
    assert_eq!(change(TlvCommand::Add, FIRST), None);
    assert_eq!(change(TlvCommand::Add, FIRST), Some(OfpError::NxttmfcAlreadyMapped));
    assert_eq!(change(TlvCommand::Add, SECOND), None);
    for (priority, m) in
        [(9, "tun_metadata0=0x5"), (8, "tun_metadata1"), (7, "tun_metadata0=0/0xf,tun_metadata1=0"), (1, "")]
    {
        assert_eq!(flow(priority, m, vec![output(2)]), None, "{m}");
    }
    assert_eq!(flow(6, "tun_metadata0=0x123456789a", vec![output(2)]), Some(OfpError::BmcBadLen));
    // An absent option differs from one of zeros.
    lab.send("br-1", &[frame(1, 2), frame(1, 2)]);
    assert_eq!(lab.received("br-2").len(), 2);
    let expected = [
        (1, String::new(), 2),
        (7, "tun_metadata0=0/0xf,tun_metadata1=0".to_owned(), 0),
        (8, "tun_metadata1".to_owned(), 0),
        (9, "tun_metadata0=0x5".to_owned(), 0),
    ];
    assert_eq!(matches(&c), expected);
    // An option that a flow uses stays mapped.
    assert_eq!(change(TlvCommand::Delete, FIRST), Some(OfpError::NxttmfcInvalidTlvDel));
    assert_eq!(change(TlvCommand::Clear, ""), Some(OfpError::NxttmfcInvalidTlvDel));
    // Flows are selected by their options.
    assert_eq!(error_of(&c.flow_mod(command(FlowModCommand::Delete, matching("tun_metadata0=0x1/0x1")))), None);
    assert_eq!(matches(&c).len(), 3);
    assert_eq!(error_of(&c.flow_mod(command(FlowModCommand::Delete, Match::ANY))), None);
    assert_eq!(change(TlvCommand::Clear, ""), None);
    let Message::TlvTableReply(reply) = &c.send(&Message::TlvTableRequest)[0] else { panic!("a reply") };
    assert!(reply.maps.is_empty());
}

/// Options of packets for a controller, and packets after actions on options.
#[test]
fn actions_write_options() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V15);
    assert_eq!(error_of(&c.send(&tlvs(TlvCommand::Add, &format!("{FIRST},{SECOND}")))), None);
    let flow = |m: &str, priority, actions: &str| error_of(&c.flow_mod(add(matching(m), priority, acting(actions))));
    // A packet's option may be present and zero.
    let first =
        "set_field:5->tun_metadata0,set_field:0->tun_metadata1,resubmit(,1),delete_field:tun_metadata0,resubmit(,1)";
    assert_eq!(flow("", 5, first), None);
    let table = |m: &str, actions: &str| FlowMod { table_id: Some(1), ..add(matching(m), 5, acting(actions)) };
    let learn = "learn(table=2,tun_metadata0[0..7]=tun_metadata0[0..7],load:tun_metadata0[0..7]->tun_metadata1[0..7])";
    for fm in [
        table(
            "tun_metadata0=5,tun_metadata1=0",
            &format!("load:7->tun_metadata1[100..103],{learn},output:2,controller"),
        ),
        table("tun_metadata1=0", "output:2,output:2"),
    ] {
        assert_eq!(error_of(&c.flow_mod(fm)), None);
    }
    let shown = crate::show::dump_flows(&br, &flow::NoNames);
    assert!(shown.contains(",tun_metadata1=0,actions=output:2,output:2\n"), "{shown}");
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(lab.received("br-2").len(), 1, "the second look-up finds what the first has written");
    let messages = c.waiting();
    let Some(Message::PacketIn(_, packet)) = messages.first() else { panic!("a packet-in, not {messages:?}") };
    let metadata = match_to_string(&packet.metadata, &flow::NoNames);
    assert_eq!(metadata, format!("tun_metadata0=0x5,tun_metadata1=0x7{},in_port=1", "0".repeat(25)));
    // A learned flow is like one that a controller adds.
    let StatsReply::Flow(flows) = c.ask(StatsRequest::Flow(Default::default())) else { panic!("flows") };
    let learned = flows.iter().find(|f| f.table_id == 2).expect("it was learned");
    assert_eq!(match_to_string(&learned.matching, &flow::NoNames), "tun_metadata0=0x5");
    assert_eq!(learned.actions, acting("set_field:0x5/0xff->tun_metadata1"));
}

#[test]
fn packet_outs_have_options() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V15);
    assert_eq!(error_of(&c.send(&tlvs(TlvCommand::Add, FIRST))), None);
    assert_eq!(error_of(&c.flow_mod(add(matching("tun_metadata0=5"), 5, vec![output(2)]))), None);
    let out = |m: &str| {
        let mut metadata = matching(m);
        metadata.set(Field::InPortOxm, PortNo::CONTROLLER.0.into());
        let actions = acting("output:table");
        let (in_port, data) = (PortNo::CONTROLLER, frame(1, 2));
        error_of(&c.send(&Message::PacketOut(PacketOut { buffer_id: None, in_port, metadata, actions, data })))
    };
    assert_eq!((out("tun_metadata0=5"), out("tun_metadata0=4"), out("")), (None, None, None));
    assert_eq!(lab.received("br-2").len(), 1);
    assert_eq!(out("tun_metadata1=4"), Some(OfpError::NxfmfcInvalidTlvField));
}

#[test]
fn actions_on_unmapped_options_are_refused() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V15);
    assert_eq!(error_of(&c.send(&tlvs(TlvCommand::Add, FIRST))), None);
    for actions in ["set_field:5->", "load:5->", "move:reg0[]->", "delete_field:", "clone(set_field:5->"] {
        let of = |n: u8| {
            let part = match &actions[..4] {
                "move" => "[0..31]",
                "load" => "[0..3]",
                _ => "",
            };
            let close = if actions.starts_with("clone") { ")" } else { "" };
            error_of(&c.flow_mod(add(Match::ANY, 5, acting(&format!("{actions}tun_metadata{n}{part}{close}")))))
        };
        assert_eq!(of(0), None, "{actions}");
        assert_eq!(of(1), Some(OfpError::NxfmfcInvalidTlvField), "{actions}");
    }
    for actions in ["push:tun_metadata0[0..32]", "set_field:0x123456789->tun_metadata0"] {
        assert_eq!(
            error_of(&c.flow_mod(add(Match::ANY, 5, acting(actions)))),
            Some(OfpError::BacBadSetLen),
            "{actions}"
        );
    }
    let learn = |n| add(Match::ANY, 5, acting(&format!("learn(table=1,tun_metadata{n}[0..3]=reg0[0..3])")));
    assert_eq!(error_of(&c.flow_mod(learn(1))), Some(OfpError::NxfmfcInvalidTlvField));
    assert_eq!(error_of(&c.flow_mod(learn(0))), None);
    // Actions use the options that they name.
    assert_eq!(error_of(&c.send(&tlvs(TlvCommand::Clear, ""))), Some(OfpError::NxttmfcInvalidTlvDel));
}

#[test]
fn monitors_filter_and_report_options() {
    use openflow::monitor::{FlowMonitorRequest, FlowUpdate, MonitorCommand, flag};
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let watch = |m| {
        c.send(&Message::StatsRequest {
            more: false,
            body: StatsRequest::FlowMonitor(vec![FlowMonitorRequest {
                id: 1,
                command: MonitorCommand::Add,
                flags: flag::ADD | flag::OWN,
                out_port: PortNo::ANY,
                out_group: openflow::flow_mod::GROUP_ANY,
                table_id: None,
                matching: matching(m),
            }]),
        })
    };
    assert_eq!(error_of(&watch("tun_metadata0=5")), Some(OfpError::NxfmfcInvalidTlvField));
    c.send(&tlvs(TlvCommand::Add, FIRST));
    assert!(matches!(watch("tun_metadata0=5")[..], [Message::StatsReply { .. }]));
    assert_eq!(c.flow_mod(add(matching("tun_metadata0=4"), 4, vec![])), []);
    assert_eq!(c.flow_mod(add(matching(""), 3, vec![])), []);
    let messages = c.flow_mod(add(matching("tun_metadata0=5"), 5, vec![]));
    let [Message::StatsReply { body: StatsReply::FlowMonitor(messages), .. }] = &messages[..] else {
        panic!("{messages:?}")
    };
    let [FlowUpdate::Flow(flow)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(match_to_string(&flow.matching, &flow::NoNames), "tun_metadata0=0x5");
}
