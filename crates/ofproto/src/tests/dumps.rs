//! The order of flows in dumps.

use super::*;
use crate::dump_order::{DumpOrder, Placed};
use crate::flow_table::Criteria;
use flow::text::NoNames;

fn change(bridge: &Ofproto, what: FlowModCommand, text: &str) {
    let parsed = openflow::parse_flow(text, what, &NoNames).unwrap_or_else(|e| panic!("{text}: {e}"));
    bridge.flow_mod(&parsed.flow_mod).expect("is allowed");
}

/// The flows in the order of a dump.
fn dump(bridge: &Ofproto) -> Vec<String> {
    let mut order = DumpOrder::default();
    order.begin(bridge, &Criteria::any());
    let text = |(_, rule): Placed| {
        let matching = flow::text::match_to_string(&rule.minimatch.expand(), &NoNames);
        format!("{} {matching}", rule.openflow_priority())
    };
    order.sort(bridge.collect(&Criteria::any()), None).map(text).collect()
}

#[test]
fn flows_are_dumped_by_set_of_fields_and_age() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let adds = |texts: &[&str]| {
        texts.iter().for_each(|text| change(&br, FlowModCommand::Add, &format!("{text},actions=drop")));
    };
    adds(&["arp", "ip", "ipv6", "in_port=1", "in_port=2,ip", "priority=5,ip", "in_port=3", "in_port=1,ip"]);
    let eth_type = ["32768 arp", "32768 ip", "32768 ipv6", "5 ip"];
    let both = ["32768 ip,in_port=2", "32768 ip,in_port=1"];
    assert_eq!(dump(&br), [&eth_type[..], &["32768 in_port=1", "32768 in_port=3"], &both].concat());
    // A flow that is replaced or modified goes to the end of its set.
    adds(&["ip"]);
    change(&br, FlowModCommand::Modify, "arp,actions=output:1");
    let eth_type = ["32768 ipv6", "5 ip", "32768 ip", "32768 arp"];
    assert_eq!(dump(&br), [&eth_type[..], &["32768 in_port=1", "32768 in_port=3"], &both].concat());
    // A set that comes anew follows the others.
    change(&br, FlowModCommand::DeleteStrict, "priority=32768,in_port=1");
    change(&br, FlowModCommand::DeleteStrict, "priority=32768,in_port=3");
    assert_eq!(dump(&br), [&eth_type[..], &both].concat());
    adds(&["in_port=3"]);
    assert_eq!(dump(&br), [&eth_type[..], &both, &["32768 in_port=3"]].concat());
    // So do flows of one transaction.
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    let result = br
        .transaction(|t| (0..100).try_for_each(|n| t.flow_mod(&add(in_port(1 + n % 50), 1 + (n / 50) as u16, vec![]))));
    assert!(result.is_ok());
    let all: Vec<_> = (0..100).map(|n| format!("{} in_port={}", 1 + n / 50, 1 + n % 50)).collect();
    assert_eq!(dump(&br), all);
}

#[test]
fn sets_of_higher_priority_are_dumped_first() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let shown = || dump(&br).join("; ");
    let adds = |text: &str| change(&br, FlowModCommand::Add, &format!("priority={text},actions=drop"));
    for text in ["1,arp", "9,in_port=1", "5,dl_vlan=1", "5,ip,in_port=1", "5,tcp,tp_dst=1", "7,dl_vlan_pcp=1"] {
        adds(text);
    }
    let (vlan, ip, tcp, pcp) = ("5 dl_vlan=1", "5 ip,in_port=1", "5 tcp,tp_dst=1", "7 dl_vlan_pcp=1");
    assert_eq!(shown(), ["9 in_port=1", pcp, vlan, ip, tcp, "1 arp"].join("; "));
    adds("8,ip");
    assert_eq!(shown(), ["9 in_port=1", "1 arp; 8 ip", pcp, vlan, ip, tcp].join("; "));
    // A set that reaches the priority of others follows them.
    adds("7,tcp,tp_dst=9");
    let (eth, tcps) = ("1 arp; 8 ip", "5 tcp,tp_dst=1; 7 tcp,tp_dst=9");
    assert_eq!(shown(), ["9 in_port=1", eth, pcp, tcps, vlan, ip].join("; "));
    // The place of one that goes is filled by the last one, as far as priorities allow.
    change(&br, FlowModCommand::DeleteStrict, "priority=9,in_port=1");
    assert_eq!(shown(), [eth, pcp, tcps, ip, vlan].join("; "));
    adds("20,in_port=1");
    assert_eq!(shown(), ["20 in_port=1", eth, pcp, tcps, ip, vlan].join("; "));
    // One that falls to the priority of others precedes them.
    change(&br, FlowModCommand::DeleteStrict, "priority=7,tcp,tp_dst=9");
    assert_eq!(shown(), ["20 in_port=1", eth, pcp, tcp, ip, vlan].join("; "));
}
