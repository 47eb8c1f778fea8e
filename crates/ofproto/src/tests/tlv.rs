//! Tunnel options: what may be mapped and when, and flows that match on them.

use super::*;
use flow::text::{match_to_string, parse_match};
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

/// What flows match, by priority.
fn matches(c: &Client) -> Vec<(u16, String, u64)> {
    let StatsReply::Flow(flows) = c.ask(StatsRequest::Flow(Default::default())) else { panic!("flows") };
    let told = |m: &Match| match_to_string(m, &flow::NoNames);
    let mut all: Vec<_> = flows.iter().map(|f| (f.priority, told(&f.matching), f.packet_count)).collect();
    all.sort_unstable();
    all
}

const FIRST: &str = "{class=0xffff,type=0,len=4}->tun_metadata0";
const SECOND: &str = "{class=0xffff,type=1,len=16}->tun_metadata1";

#[test]
fn flows_use_what_is_mapped() {
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
    // An option that a packet does not have is all zeros, and not there.
    lab.send("br-1", &[frame(1, 2), frame(1, 2)]);
    assert_eq!(lab.received("br-2").len(), 2);
    let expected = [
        (1, String::new(), 0),
        (7, "tun_metadata0=0/0xf,tun_metadata1=0".to_owned(), 2),
        (8, "tun_metadata1".to_owned(), 0),
        (9, "tun_metadata0=0x5".to_owned(), 0),
    ];
    assert_eq!(matches(&c), expected);
    // What a flow uses stays mapped.
    assert_eq!(change(TlvCommand::Delete, FIRST), Some(OfpError::NxttmfcInvalidTlvDel));
    assert_eq!(change(TlvCommand::Clear, ""), Some(OfpError::NxttmfcInvalidTlvDel));
    // Flows are chosen by their options.
    assert_eq!(error_of(&c.flow_mod(command(FlowModCommand::Delete, matching("tun_metadata0=0x1/0x1")))), None);
    assert_eq!(matches(&c).len(), 3);
    assert_eq!(error_of(&c.flow_mod(command(FlowModCommand::Delete, Match::ANY))), None);
    assert_eq!(change(TlvCommand::Clear, ""), None);
    let Message::TlvTableReply(reply) = &c.send(&Message::TlvTableRequest)[0] else { panic!("a reply") };
    assert!(reply.maps.is_empty());
}

#[test]
fn actions_on_options_are_refused() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V15);
    assert_eq!(error_of(&c.send(&tlvs(TlvCommand::Add, FIRST))), None);
    for actions in ["set_field:5->", "load:5->", "move:reg0[]->", "push:", "delete_field:", "clone(set_field:5->"] {
        let of = |n: u8| {
            let part = if actions.starts_with("move") { "[0..31]" } else { "" };
            let close = if actions.starts_with("clone") { ")" } else { "" };
            error_of(&c.flow_mod(add(Match::ANY, 5, acting(&format!("{actions}tun_metadata{n}{part}{close}")))))
        };
        // Nothing carries them out; where nothing is mapped, that is what is wrong.
        assert_eq!(of(0), Some(OfpError::BacBadType), "{actions}");
        assert_eq!(of(1), Some(OfpError::NxfmfcInvalidTlvField), "{actions}");
    }
    assert!(matches(&c).is_empty());
}
