//! The cache against the index alone, and its policy and probability.

use super::*;
use crate::megaflow::{Megaflow, MegaflowIndex, Tree, TupleSpace};
use base::PortNo;
use dpif::{DpAction, DpFlow, FlowId};
use flow::{Field, FlowKey, Reads};
use proptest::prelude::*;

fn key(n: u64) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo((n % 3) as u32));
    key.set(Field::EthDst, n.into());
    key.set(Field::TcpDst, (n >> 3).into());
    key
}

fn megaflow(id: u64, generation: u64) -> Arc<Megaflow> {
    let flow = DpFlow::by_hand(&key(id), &FlowKey::ZERO, Arc::new([]), generation);
    Arc::new(Megaflow::new(FlowId(id), flow))
}

fn id(cache: &MicroflowCache, n: u64, generation: u64) -> Option<u64> {
    cache.get(&key(n), cache.hash(&key(n)), generation).map(|flow| flow.id.0)
}

fn put(cache: &mut MicroflowCache, n: u64, flow: &Arc<Megaflow>) {
    let hash = cache.hash(&key(n));
    cache.insert(hash, flow, &mut Chance::new());
}

#[test]
fn removed_and_outdated_flows_are_not_returned() {
    let mut cache = MicroflowCache::new();
    let (a, b) = (megaflow(1, 5), megaflow(2, 5));
    put(&mut cache, 1, &a);
    put(&mut cache, 2, &b);
    assert_eq!((id(&cache, 1, 5), id(&cache, 2, 5), id(&cache, 3, 5)), (Some(1), Some(2), None));
    a.set_gone();
    assert_eq!((id(&cache, 1, 5), id(&cache, 2, 5), id(&cache, 2, 6)), (None, Some(2), None));
    let c = megaflow(3, 5);
    put(&mut cache, 1, &c);
    assert_eq!((id(&cache, 1, 5), Arc::strong_count(&a)), (Some(3), 1));
    b.set_gone();
    (0..cache.n_sets).for_each(|_| cache.sweep());
    assert_eq!((Arc::strong_count(&b), Arc::strong_count(&c)), (1, 2));
}

#[test]
fn a_hash_match_alone_is_not_a_hit() {
    let mut cache = MicroflowCache::new();
    let mut mask = FlowKey::ZERO;
    mask.add_mask(Field::EthDst, 1);
    let flow = DpFlow::by_hand(&key(1), &mask, Arc::new([]), 0);
    let flow = Arc::new(Megaflow::new(FlowId(1), flow));
    cache.insert(7, &flow, &mut Chance::new());
    assert!(cache.get(&key(1), 7, 0).is_some() && cache.get(&key(2), 7, 0).is_none());
}

#[test]
fn every_word_of_a_packet_counts_in_the_hash() {
    let cache = MicroflowCache::new();
    for ipv4 in [false, true] {
        let mut key = FlowKey::ZERO;
        key.set(Field::EthType, if ipv4 { 0x0800 } else { 0x86dd });
        let hash = cache.hash(&key);
        for word in (layout::ETH_DST..layout::WORDS).chain([layout::PORTS]) {
            let kind = word - layout::ETH_DST.min(word);
            let v4_has = [
                layout::ETH_DST,
                layout::ETH_SRC,
                layout::VLAN,
                layout::IPV4,
                layout::IP_MISC,
                layout::TP,
                layout::L4_MISC,
                layout::PORTS,
            ];
            if ipv4 && !v4_has.contains(&word) {
                continue;
            }
            let mut other = key.clone();
            other.0[word] ^= 1 << 32;
            assert_ne!(cache.hash(&other), hash, "word {word} ({kind})");
        }
    }
}

#[test]
fn an_entry_is_small() {
    assert_eq!(MicroflowCache::entry_bytes(), 16);
}

#[test]
fn the_insertion_probability_is_as_configured() {
    for one_in in [1, 10, 100] {
        let mut chance = Chance::new();
        chance.set_inverse_probability(one_in);
        let (mut n, mut chosen) = (0, 0u32);
        while n < 1_000_000 {
            let mut at = 0;
            while chance.next_of(32, &mut at, true).is_some() {
                chosen += 1;
            }
            n += 32;
        }
        let expected = 1_000_000 / one_in;
        assert!(chosen.abs_diff(expected) <= expected / 20, "{chosen} of a million, one in {one_in}");
    }
    let mut chance = Chance::new();
    assert!(chance.set_inverse_probability(0) && chance.is_never());
    assert_eq!(chance.next_of(32, &mut 0, true), None);
}

/// How often a policy consults the cache in a million packets, by the cost of a batch without and with the cache.
fn consulted(policy: &mut CachePolicy, cost: impl Fn(usize, bool) -> u64) -> usize {
    let mut n = 0;
    for batch in 0..1_000_000 / 32 {
        let consults = policy.consults();
        n += usize::from(consults) * 32;
        policy.count(32, cost(batch, consults));
    }
    n
}

#[test]
fn the_policy_chooses_the_cheaper_way() {
    let cheaper = consulted(&mut CachePolicy::default(), |_, consults| if consults { 500 } else { 1000 });
    let dearer = consulted(&mut CachePolicy::default(), |_, consults| if consults { 1000 } else { 500 });
    let same = consulted(&mut CachePolicy::default(), |_, _| 700);
    // One interrupt of a millisecond in a thousand batches.
    let disturbed = |batch: usize, consults| {
        if batch % 1000 == 40 {
            1_000_000
        } else if consults {
            1000
        } else {
            500
        }
    };
    let disturbed = consulted(&mut CachePolicy::default(), disturbed);
    assert!(cheaper > 900_000, "{cheaper}");
    assert!([dearer, same, disturbed].into_iter().all(|n| n < 40_000), "{dearer} {same} {disturbed}");
    // A cache that does not pay is consulted ever less often: in 5 of a million packets' 244 windows, then in one of 512.
    let mut policy = CachePolicy::default();
    let mut dearer = || consulted(&mut policy, |_, consults| if consults { 1000 } else { 500 });
    let first = dearer();
    (0..7).for_each(|_| _ = dearer());
    let later = (0..8).map(|_| dearer()).sum::<usize>() / 8;
    assert!(first < 24_000 && later <= 4096, "{first} {later}");
    // It is found out within two million packets that it pays now, and at once that it does not.
    let mut cheaper = || consulted(&mut policy, |_, consults| if consults { 500 } else { 1000 });
    assert!((0..4).map(|_| cheaper()).sum::<usize>() > 1_800_000);
    assert!(consulted(&mut policy, |_, consults| if consults { 1000 } else { 500 }) < 200_000);
}

/// The verdict on a key at one time, and the bits that it reads.
fn translate(key: &FlowKey, generation: u64) -> DpFlow {
    let mut reads = Reads::new();
    let mut verdict = generation * 8;
    reads.note_field(Field::InPortOxm);
    let port = key.in_port().0 as u64 + generation;
    reads.note_prefix(layout::ETH_DST, 16, 48, if port.is_multiple_of(2) { 47 } else { 46 });
    if port.is_multiple_of(2) {
        verdict += (key.0[layout::ETH_DST] >> 17) % 2;
    }
    if (key.0[layout::ETH_DST] >> 18 & 1) == port % 2 {
        reads.note(layout::TP, 0b11 << 32);
        verdict += 2 + (key.0[layout::TP] >> 32 & 1) * 2;
    }
    DpFlow::new(key, reads.order(), [DpAction::Trunc(verdict as u32)].into(), generation)
}

#[derive(Clone, Debug)]
enum Op {
    Packet(u64),
    Remove(u64),
    Generation,
    Tune,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        40 => (0..96u64).prop_map(Op::Packet),
        4 => any::<u64>().prop_map(Op::Remove),
        1 => Just(Op::Generation),
        1 => Just(Op::Tune),
    ];
    prop::collection::vec(op, 1..400)
}

/// Sends packets through a cache in front of an index while flows are added and removed as a switch does.
fn run<I: MegaflowIndex>(ops: &[Op], n_sets: usize, one_in: u32) -> Result<u64, TestCaseError> {
    let (mut cache, mut index, mut chance) = (MicroflowCache::with_sets(n_sets), I::default(), Chance::new());
    chance.set_inverse_probability(one_in);
    let (mut generation, mut hits) = (0, 0);
    for (i, op) in ops.iter().enumerate() {
        match op {
            Op::Packet(n) => {
                let key = key(*n);
                let hash = cache.hash(&key);
                let right = translate(&key, generation);
                let known = cache.get(&key, hash, generation);
                hits += u64::from(known.is_some());
                let Some(flow) = known.or_else(|| index.lookup(&key, generation, &mut 0)).cloned() else {
                    let inserted = index.insert(Megaflow::new(FlowId(i as u64), right));
                    inserted.replaced.iter().for_each(|old| old.set_gone());
                    continue;
                };
                prop_assert_eq!(&flow.actions, &right.actions);
                prop_assert_eq!(flow.generation, generation);
                prop_assert!(index.iter().any(|f| Arc::ptr_eq(f, &flow)));
                if chance.next_of(1, &mut 0, true).is_some() {
                    cache.insert(hash, &flow, &mut chance);
                }
            }
            Op::Remove(n) => {
                let flow = index.iter().nth(*n as usize % index.len().max(1)).cloned();
                if let Some(flow) = flow {
                    prop_assert!(index.remove(&flow));
                    flow.set_gone();
                }
            }
            Op::Generation => generation += 1,
            Op::Tune => {
                index.tune().iter().for_each(|old| old.set_gone());
                cache.sweep();
            }
        }
    }
    Ok(hits)
}

tally::proptest! {
    #[test]
    fn verdicts_do_not_depend_on_the_cache(ops in ops(), sets in 0..5u32, one_in in 0..4u32) {
        let with_tree = run::<Tree>(&ops, 1 << sets, one_in)?;
        run::<TupleSpace>(&ops, 1 << sets, one_in)?;
        prop_assert!(one_in != 0 || with_tree == 0);
    }
}

#[test]
fn the_cache_has_hits() {
    let ops: Vec<_> = (0..10_000).map(|i| Op::Packet(i * 7 % 96)).collect();
    // Large enough that no set has more flows than ways, whatever the hashes.
    let hits = run::<Tree>(&ops, 4096, 1).expect("right verdicts");
    assert!(hits > 9000, "{hits} hits");
}
