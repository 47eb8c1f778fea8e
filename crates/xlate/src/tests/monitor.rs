//! Flow monitoring: samples for sFlow say what becomes of a packet, flows of NetFlow have their output, and megaflows
//! match all that reports contain.

use super::wire::{Wire, execute};
use super::*;
use crate::model::Sflow;
use crate::verdict::CountedFlow;
use dpif::SampledWay;
use netflow::Output as To;

/// The network with sFlow of one packet in two, and NetFlow, in its first bridge.
fn monitored(mut net: Network, netflow: bool) -> Network {
    let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("nobody else has it");
    bridge.sflow = Some(Sflow { probability: 1 << 31, explicit_drops: false });
    bridge.netflow = netflow;
    net
}

fn verdict(key: &FlowKey, actions: Vec<Action>) -> Verdict {
    translate(&monitored(network(&[(0, Match::ANY, 0, actions)]), true), key, false)
}

/// The sample that a list of actions begins with.
fn way(verdict: &Verdict) -> SampledWay {
    let Some(DpAction::Sample { probability: 0x8000_0000, actions }) = verdict.actions.first() else {
        panic!("no sample: {:?}", verdict.actions)
    };
    match &actions[..] {
        [DpAction::Observe(what)] => match &what.collectors {
            Collectors::Sflow(way) => (**way).clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// The flows that effects count.
fn counted(verdict: &Verdict) -> Vec<CountedFlow> {
    let flow = |effect: &Effect| match effect {
        Effect::NetFlow(counted) => Some((**counted).clone()),
        _ => None,
    };
    verdict.effects.iter().filter_map(flow).collect()
}

fn tagged(tci: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set_vlan(0, 0x8100, 0x1000 | tci);
    key
}

fn ipv4(protocol: u8) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthType, 0x800);
    for (field, value) in [
        (Field::Ipv4Src, 0x0a00_0001),
        (Field::Ipv4Dst, 0x0a00_0002),
        (Field::IpProto, protocol.into()),
        (Field::IpDscp, 3),
    ] {
        key.set(field, value);
    }
    key.set(Field::TcpSrc, 8);
    key.set(Field::TcpDst, 9);
    key
}

#[test]
fn samples_say_where_the_packet_goes() {
    let of = |actions| way(&verdict(&tagged(0x6005), actions));
    let (two, four) = (|| output(PortNo(2)), || output(PortNo(4)));
    for (actions, number, tci) in [
        (vec![], 0x4000_0100, 0x6005),
        (vec![two()], 1002, 0x6005),
        // It has no interface index.
        (vec![four()], 0x8000_0001, 0x6005),
        (vec![two(), four()], 0x8000_0002, 0x6005),
        (vec![output(PortNo::CONTROLLER)], 0x4000_0100, 0x6005),
        (vec![Action::PopVlan, two()], 1002, 0),
        (vec![Action::PopVlan], 0x4000_0100, 0x6005),
        (vec![Action::SetVlanVid { vid: 9, push_if_needed: true }, two()], 1002, 0x6009),
        (vec![Action::Clone(vec![two()]), two()], 0x8000_0002, 0x6005),
        (vec![Action::Clone(vec![Action::SetVlanVid { vid: 9, push_if_needed: true }, two()])], 1002, 0x6009),
        (vec![two(), Action::PopVlan], 1002, 0x6005),
    ] {
        let found = of(actions.clone());
        assert_eq!((found.output, found.vlan_tci), (number, tci), "{actions:?}");
        assert!(found.labels.is_empty() && found.tunnel.is_none());
    }
    let labelled = of(vec![Action::PushMpls(0x8847), two()]);
    assert_eq!(labelled.labels.len(), 1);
    // Packets without an ingress port are not sampled, nor those of other bridges.
    let net = monitored(network(&[(0, Match::ANY, 0, vec![output(PortNo(2))])]), true);
    for (port, bridge) in [(PortNo::NONE, 0), (PortNo(1), 1)] {
        let mut key = tagged(5);
        key.set_in_port(port);
        let actions: Arc<[Action]> = [output(PortNo(2))].into();
        let verdict = translate_from(&net, &net.bridges[&bridge], &key, Start::Actions(&actions), false);
        assert!(!verdict.actions.iter().any(|a| matches!(a, DpAction::Sample { .. })), "{port}");
    }
}

#[test]
fn netflow_counts_flows_of_ipv4() {
    let of = |key: &FlowKey, actions| counted(&verdict(key, actions));
    let [tcp] = &of(&ipv4(6), vec![output(PortNo(2))])[..] else { panic!("one flow") };
    let expected = netflow::Flow {
        input: 1,
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        protocol: 6,
        tos: 12,
        src_port: 8,
        dst_port: 9,
    };
    assert_eq!(*tcp, CountedFlow { bridge: 0, flow: expected, output: To::Port(2) });
    let later = {
        let mut key = ipv4(6);
        key.set(Field::IpFrag, 3);
        of(&key, vec![])[0].flow
    };
    assert_eq!((later.src_port, later.dst_port), (0, 0));
    let icmp = {
        let mut key = ipv4(1);
        key.set(Field::Icmpv4Type, 8);
        key.set(Field::Icmpv4Code, 3);
        of(&key, vec![])[0].flow
    };
    assert_eq!((icmp.src_port, icmp.dst_port), (0, 0x803));
    assert_eq!(of(&ipv4(47), vec![])[0].flow.dst_port, 0);
    assert_eq!(of(&tagged(5), vec![output(PortNo(2))]), []);
    for (actions, to) in [
        (vec![], To::Dropped),
        (vec![output(PortNo::CONTROLLER)], To::Dropped),
        (vec![output(PortNo(2)), output(PortNo(4))], To::Several),
        (vec![output(PortNo(3))], To::Port(3)),
    ] {
        assert_eq!(of(&ipv4(17), actions.clone())[0].output, to, "{actions:?}");
    }
    let mut unknown = ipv4(17);
    unknown.set(Field::EthSrc, 0x0200_0000_0077);
    unknown.set(Field::EthDst, 0x0200_0000_0099);
    assert_eq!(of(&unknown, vec![output(PortNo::NORMAL)])[0].output, To::Flood);
    // The megaflow matches what the flow consists of.
    let mask = verdict(&ipv4(6), vec![output(PortNo(2))]).mask();
    for (field, bits) in [
        (Field::Ipv4Src, 0xffff_ffff),
        (Field::Ipv4Dst, 0xffff_ffff),
        (Field::IpProto, 0xff),
        (Field::IpDscp, 0x3f),
        (Field::IpEcn, 0),
        (Field::TcpSrc, 0xffff),
        (Field::TcpDst, 0xffff),
        (Field::EthSrc, 0),
    ] {
        assert_eq!(mask.get(field), bits, "{field:?}");
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases() / 4))]

    /// Monitoring makes no difference to a packet, and no bit that it did not read makes one to reports.
    #[test]
    fn monitoring_changes_nothing_else(
        rules in arb_rules(), key in arb_key(), noise in arb_key(), netflow: bool,
    ) {
        let (plain, net) = (network(&rules), monitored(network(&rules), netflow));
        let (verdict, without) = (translate(&net, &key, false), translate(&plain, &key, false));
        prop_assert_eq!(verdict.error, without.error);
        let packets = |net, verdict: &Verdict| {
            let mut out = Vec::new();
            execute(Some(net), &verdict.actions, &mut Wire::new(&key), &mut out);
            out
        };
        prop_assert_eq!(packets(&net, &verdict), packets(&plain, &without));
        // Another packet of the megaflow.
        let mut other = noise;
        for ((bits, own), read) in other.0.iter_mut().zip(&key.0).zip(&verdict.mask().0) {
            *bits = own & read | *bits & !read;
        }
        other.set_in_port(key.in_port());
        let again = translate(&net, &other, false);
        prop_assert_eq!(&verdict.actions, &again.actions);
        prop_assert_eq!(counted(&verdict), counted(&again));
    }
}
