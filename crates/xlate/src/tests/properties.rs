//! Properties of verdicts and megaflows, over random tables.

use super::naive::{Naive, for_naive};
use super::wire::{Wire, execute};
use super::*;

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// A packet that agrees in the bits read has the same verdict, so that a cached flow may apply to it.
    #[test]
    fn bits_not_read_do_not_matter(rules in arb_rules(), key in arb_key(), noise: [u64; flow::WORDS]) {
        let net = network(&rules);
        let verdict = translate(&net, &key, false);
        let mut other = key.clone();
        let unread = other.0.iter_mut().zip(noise).zip(verdict.mask().0);
        for ((bits, noise), read) in unread.skip(layout::ETH_DST) {
            *bits ^= noise & !read;
        }
        let again = translate(&net, &other, false);
        prop_assert_eq!(&verdict.actions, &again.actions);
        prop_assert_eq!(verdict.reads, again.reads);
        prop_assert_eq!(verdict.effects.len(), again.effects.len());
        prop_assert_eq!(verdict.error, again.error);
    }

    /// The same with bits of packets, which meet values in the tables.
    #[test]
    fn unread_bits_of_another_packet_do_not_matter(rules in arb_rules(), key in arb_key(), other in arb_key()) {
        let net = network(&rules);
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

    /// At each output the datapath's packet equals the one made by executing the actions one by one,
    /// over tables, clones, action sets and a patch port.
    #[test]
    fn late_commits_equal_immediate_ones(rules in arb_rules(), key in arb_key(), noise in arb_key()) {
        let rules = for_naive(rules);
        let net = network_and_peer(&rules, &[Action::SetEthSrc(PEER_SRC), output(PortNo(1))]);
        let verdict = translate(&net, &key, false);
        prop_assert_eq!(verdict.error, None);
        // Bits that were not read may have any value.
        let mut other = noise;
        for ((bits, own), read) in other.0.iter_mut().zip(key.0).zip(verdict.mask().0) {
            *bits = own & read | *bits & !read;
        }
        other.set_in_port(key.in_port());
        if other.vlan_tci() & 0x1000 == 0 {
            // An inner tag implies an outer one.
            other.set_vlan(1, 0, 0);
        }
        for key in [key, other] {
            let mut got = Vec::new();
            execute(Some(&net), &verdict.actions, &mut Wire::new(&key), &mut got);
            let bridge = net.bridges.get(&0).map(Arc::as_ref);
            let mut naive = Naive { rules: &rules, bridge, at: Wire::new(&key), ..Naive::new() };
            naive.table(0);
            naive.action_set();
            if !(naive.by_learned && recirculates(&verdict.actions)) {
                prop_assert_eq!(got, naive.out);
            }
        }
    }

    /// Sampling for collectors makes no difference to a packet.
    #[test]
    fn sampling_for_collectors_changes_nothing_else(
        rules in arb_rules(), key in arb_key(), at: usize, egress: bool, port in 1..4u32,
    ) {
        let rules = for_naive(rules);
        let plain = network(&rules);
        let mut sampled = rules;
        for (.., actions) in &mut sampled {
            actions.insert(at % (actions.len() + 1), Action::Sample(Box::new(sample(PortNo(port)))));
        }
        let ipfix = Ipfix { ingress: Some(u32::MAX), egress: egress.then_some(5), explicit_drops: egress, ..Ipfix::default() };
        let net = observed(network(&sampled), ipfix);
        let (verdict, without) = (translate(&net, &key, false), translate(&plain, &key, false));
        prop_assert_eq!(verdict.error, without.error);
        // After `pop_pbb`, `sample` recirculates the packet like most actions, so that the rest is in another verdict.
        if !pops_pbb(&verdict.actions) {
            prop_assert_eq!(verdict.mask(), without.mask());
            prop_assert_eq!(verdict.effects.len(), without.effects.len());
        }
        let packets = |net, verdict: &Verdict| {
            let mut out = Vec::new();
            execute(Some(net), &verdict.actions, &mut Wire::new(&key), &mut out);
            out
        };
        prop_assert_eq!(packets(&net, &verdict), packets(&plain, &without));
    }
}

/// Returns true if the actions recirculate a packet.
pub(super) fn recirculates(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| matches!(action, DpAction::Recirc(_)) || action.nested().any(|list| recirculates(list)))
}

/// Returns true if the actions pop a service instance tag.
fn pops_pbb(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| matches!(action, DpAction::PopPbb) || action.nested().any(|list| pops_pbb(list)))
}
