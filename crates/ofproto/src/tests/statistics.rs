//! Counters equal the packets sent, whatever happens to the flows meanwhile.

use super::*;
use dpif::Dpif;
use openflow::flow_msg::FlowStatsRequest;
use openflow::request_forward::{ForwardedRequest, RequestForward};
use openflow::{Bucket, GroupCommand, GroupMod};

#[test]
fn counts_survive_changes_and_purges() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    c.flow_mod(add(in_port(1), 1, vec![output(2)]));
    c.flow_mod(add(in_port(3), 3, vec![output(2)]));
    lab.send("br-1", &vec![frame(1, 2); 100]);
    assert_eq!(c.counts(), [(1, 100, 6000), (3, 0, 0)]);
    // The flow is changed, purged, changed again, with packets in between that no statistics pass has counted.
    lab.send("br-1", &vec![frame(1, 2); 100]);
    let modify = FlowMod { actions: vec![output(3)], ..command(FlowModCommand::Modify, in_port(1)) };
    c.flow_mod(FlowMod { table_id: Some(0), ..modify });
    lab.send("br-1", &vec![frame(1, 2); 100]);
    lab.switch.purge();
    assert_eq!(lab.dp.stats().flows, 0);
    lab.send("br-1", &vec![frame(1, 2); 100]);
    c.flow_mod(add(in_port(1), 1, vec![output(2)]));
    lab.send("br-1", &vec![frame(1, 2); 100]);
    assert_eq!(c.counts(), [(1, 500, 30_000), (3, 0, 0)]);
    // OpenFlow 1.0 resets the counters, including packets that the datapath has not reported yet.
    lab.send("br-1", &vec![frame(1, 2); 100]);
    let old = Client::new(&br, PeerKind::Service, Version::V10);
    old.flow_mod(FlowMod { table_id: None, ..add(in_port(1), 1, vec![output(2)]) });
    assert_eq!(c.counts(), [(1, 0, 0), (3, 0, 0)]);
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(c.counts()[0], (1, 1, 60));
    let StatsReply::Table(tables) = c.ask(StatsRequest::Table) else { panic!("tables") };
    assert_eq!((tables[0].lookup_count, tables[0].matched_count, tables[0].active_count), (601, 601, 2));
}

#[test]
fn concurrent_dumps_count_nothing_twice() {
    // Two callers dump a flow at different times, and the older dump is pushed last.
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    br.flow_mod(&add(Match::ANY, 1, vec![output(2)])).expect("adds");
    lab.send("br-1", &vec![frame(1, 2); 10]);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..200).for_each(|_| _ = lab.switch.revalidate()));
        }
        for _ in 0..100 {
            lab.send("br-1", &vec![frame(1, 2); 10]);
        }
    });
    lab.switch.revalidate();
    let rules = br.collect(&crate::flow_table::Criteria::any());
    assert_eq!(rules[0].stats().packets.load(std::sync::atomic::Ordering::Relaxed), 1010);
}

#[test]
fn stations_are_learned_move_and_age() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    br.flow_mod(&add(Match::ANY, 0, vec![normal()])).expect("adds");
    let at = |vlan| br.macs().read().lookup(vlan, MAC_A);
    lab.send("br-1", &vec![frame(1, 2); 3]);
    assert_eq!(at(0), Some(PortNo(1)));
    // The second station is unknown, so that the packet is flooded; its reply is not.
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (3, 3));
    lab.send("br-2", &[frame(2, 1)]);
    assert_eq!((lab.received("br-1").len(), lab.received("br-3").len()), (1, 0));
    lab.send("br-1", &vec![frame(1, 2); 3]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (3, 0));
    // The station moves. Packets at its old port that the datapath reports later do not move it back.
    lab.clock.warp(10);
    lab.send("br-3", &[frame(1, 2)]);
    assert_eq!(at(0), Some(PortNo(3)));
    let generation = lab.switch.generation();
    lab.switch.revalidate();
    assert_eq!((at(0), lab.switch.generation()), (Some(PortNo(3)), generation));
    // A flush is a change, too.
    lab.send("br-3", &vec![frame(1, 2); 5]);
    br.flush_macs();
    lab.switch.revalidate();
    assert!(br.macs().read().is_empty());
    // Traffic through the cache keeps an entry; without it the entry expires.
    for _ in 0..100 {
        lab.send("br-3", &[frame(1, 2)]);
        lab.clock.warp(5000);
        lab.switch.housekeeping();
    }
    assert_eq!(at(0), Some(PortNo(3)));
    lab.clock.warp(295_000);
    lab.switch.housekeeping();
    assert_eq!(at(0), None);
}

#[test]
fn patch_ports_count_both_ways_and_lose_nothing() {
    let mut lab = Lab::new();
    let (a, b) = (lab.bridge("a", 1), lab.bridge("b", 1));
    for (bridge, peer, name) in [(&a, &b, "a-9"), (&b, &a, "b-9")] {
        let mut specs: Vec<_> = bridge.ports().into_iter().map(|p| p.spec).collect();
        let out = PortOut::Patch(peer.id(), PortNo(9));
        specs.push(PortSpec { no: PortNo(9), name: name.into(), out, device: None, tunnel: None, mac: MAC_A });
        set_ports(bridge, specs);
        bridge.flow_mod(&add(Match::ANY, 0, vec![normal()])).expect("adds");
    }
    let (ca, cb) = (Client::new(&a, PeerKind::Service, Version::V13), Client::new(&b, PeerKind::Service, Version::V13));
    lab.send("a-1", &vec![frame(1, 2); 20]);
    lab.send("b-1", &vec![frame(2, 1); 30]);
    assert_eq!((lab.received("b-1").len(), lab.received("a-1").len()), (20, 30));
    assert_eq!((ca.counts(), cb.counts()), (vec![(0, 50, 3000)], vec![(0, 50, 3000)]));
    let StatsReply::Port(ports) = ca.ask(StatsRequest::Port(PortNo(9))) else { panic!("ports") };
    assert_eq!((ports[0].tx_packets, ports[0].rx_packets, ports[0].rx_bytes), (20, 30, 1800));
}

#[test]
fn a_failed_translation_is_cached() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let again = Action::Resubmit { in_port: None, table: Some(0) };
    br.flow_mod(&add(Match::ANY, 0, vec![output(2), again])).expect("adds");
    lab.send("br-1", &vec![frame(1, 2); 100]);
    assert_eq!((lab.switch.translations(), lab.received("br-2").len()), (1, 0));
    assert!(lab.dp.drops().contains(&(base::DropReason::RecursionTooDeep, 100)));
}

#[test]
fn twenty_thousand_flows_are_sent_in_parts() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    for n in 0..20_000u32 {
        let mut m = Match::ANY;
        m.set(Field::EthDst, u128::from(n) * 7);
        br.flow_mod(&FlowMod { new_cookie: n.into(), ..add(m, 1, vec![output(n % 9)]) }).expect("adds");
    }
    for version in [Version::V10, Version::V13] {
        let c = Client::new(&br, PeerKind::Service, version);
        let StatsReply::Flow(mut flows) = c.ask(StatsRequest::Flow(Default::default())) else { panic!("flows") };
        flows.sort_unstable_by_key(|f| f.cookie);
        assert!(flows.iter().map(|f| f.cookie).eq(0..20_000));
        assert_eq!(flows[5].actions, [output(5)]);
        let StatsReply::Aggregate(sum) = c.ask(StatsRequest::Aggregate(Default::default())) else { panic!("sums") };
        assert_eq!(sum.flow_count, 20_000);
    }
}

#[test]
fn replies_that_are_too_long_are_reported() {
    let too_long = || base::coverage::read("ofproto_too_long").unwrap_or(0);
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    // No message has room for this flow and this group, which no message added.
    br.flow_mod(&add(in_port(1), 1, vec![output(2); 10_000])).expect("adds");
    let mut group = GroupMod::new(GroupCommand::Add, 1);
    group.buckets = vec![Bucket { actions: vec![output(2); 5000].into(), ..Bucket::new(group.kind) }];
    br.transaction(|t| t.group_mod(&group)).expect("adds");
    let client = Client::new(&br, PeerKind::Service, Version::V13);
    let ask = |body| client.send(&Message::StatsRequest { more: false, body });
    let flows = || StatsRequest::Flow(Default::default());
    let before = too_long();
    for (n, body) in [flows(), StatsRequest::GroupDesc(1)].into_iter().enumerate() {
        assert_eq!(error_of(&ask(body)), Some(OfpError::BrcMultipartBufferOverflow));
        assert_eq!(too_long(), before + 1 + n as u64);
    }
    // An empty reply is one where OpenFlow has no such error, and where there is nothing.
    let old = Client::new(&br, PeerKind::Service, Version::V10);
    assert!(matches!(old.ask(flows()), StatsReply::Flow(flows) if flows.is_empty()));
    let nothing = FlowStatsRequest { table_id: Some(9), ..FlowStatsRequest::default() };
    assert_eq!(client.ask(StatsRequest::Flow(nothing)), StatsReply::Flow(Vec::new()));
    assert_eq!(too_long(), before + 3);
    // What fits is sent.
    br.flow_mod(&add(in_port(2), 2, vec![])).expect("adds");
    let StatsReply::Flow(sent) = client.ask(flows()) else { panic!("flows") };
    assert_eq!((sent.len(), too_long()), (1, before + 4));
    // A single message.
    let new = Client::new(&br, PeerKind::Service, Version::V14);
    let forwarded = RequestForward { xid: 0, request: ForwardedRequest::Group(group) };
    new.peer.notify(&Message::RequestForward(Box::new(forwarded)));
    assert!(new.waiting().is_empty());
    assert_eq!(too_long(), before + 5);
}
