//! Queues of ports: the DSCP of packets that leave through them.

use super::*;
use std::collections::BTreeMap;

/// The same network, whose port 1 marks queues 0 and 2, and port 2 queue 1.
fn marking(mut net: Network) -> Network {
    let marks = [(PortNo(1), BTreeMap::from([(0, 5), (2, 7)])), (PortNo(2), BTreeMap::from([(1, 9)]))];
    let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("not shared");
    bridge.queue_marks = Arc::new(marks.into_iter().collect());
    net
}

/// The outputs for a packet with DSCP 4: port, DSCP and priority.
fn outputs(actions: Vec<Action>, eth_type: u16) -> Vec<(u32, u128, u128)> {
    let net = marking(network(&[(0, Match::ANY, 0, actions)]));
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(4));
    key.set(Field::EthType, eth_type.into());
    key.set(Field::IpProto, 17);
    key.set(Field::IpDscp, 4);
    let (mut dscp, mut priority, mut out) = (4, 0, Vec::new());
    for action in &*translate(&net, &key, false).actions {
        match action {
            DpAction::Set { field: Field::IpDscp, value, .. } => dscp = *value,
            DpAction::Set { field: Field::SkbPriority, value, .. } => priority = *value,
            DpAction::Output(port) => out.push((port.0, dscp, priority)),
            other => panic!("{other:?}"),
        }
    }
    out
}

#[test]
fn packets_are_marked_at_the_outputs_of_their_queue_only() {
    use Action::{Enqueue, PopQueue, SetQueue};
    let to = |no| output(PortNo(no));
    let ip = 0x0800;
    // Queue 0 also is that of packets without one.
    assert_eq!(outputs(vec![to(1), to(2)], ip), [(1, 5, 0), (2, 4, 0)]);
    assert_eq!(outputs(vec![SetQueue(1), to(1), to(2), to(1)], ip), [(1, 4, 1), (2, 9, 1), (1, 4, 1)]);
    assert_eq!(outputs(vec![SetQueue(2), to(1), PopQueue, to(2)], ip), [(1, 7, 2), (2, 4, 0)]);
    assert_eq!(outputs(vec![Enqueue { port: PortNo(1), queue: 2 }, to(2)], ip), [(1, 7, 2), (2, 4, 0)]);
    assert_eq!(outputs(vec![SetQueue(2), Action::SetIpDscp(32), to(1), to(2)], ip), [(1, 7, 2), (2, 8, 2)]);
    assert_eq!(outputs(vec![SetQueue(2), to(1)], 0x86dd), [(1, 7, 2)]);
    assert_eq!(outputs(vec![SetQueue(2), to(1)], 0x0806), [(1, 4, 2)]);
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// A packet that agrees in the bits read has the same verdict where ports mark.
    #[test]
    fn unread_bits_do_not_matter_to_marks(
        rules in arb_rules(), queues in prop::collection::vec((0..8usize, 0..3u32), 1..4), key in arb_key(), other in arb_key(),
    ) {
        let mut rules = rules;
        for (at, queue) in queues {
            let Some((.., actions)) = rules.get_mut(at) else { continue };
            actions.insert(0, Action::SetQueue(queue));
        }
        let net = marking(network(&rules));
        let verdict = translate(&net, &key, false);
        let mut mixed = other;
        for ((bits, own), read) in mixed.0.iter_mut().zip(key.0).zip(verdict.mask().0) {
            *bits = own & read | *bits & !read;
        }
        mixed.set_in_port(key.in_port());
        let again = translate(&net, &mixed, false);
        prop_assert_eq!(&verdict.actions, &again.actions);
        prop_assert_eq!(verdict.reads, again.reads);
    }
}
