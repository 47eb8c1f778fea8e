//! Random decision procedures ("programs") act as translations: they read bits and prefixes of a key, and earlier
//! values determine the next read. The naive models are a linear search over the installed flows, and tuple space
//! search.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use base::rng::Rng;
use dpif::{DpFlow, DpFlowEntry, FlowId};
use flow::{FlowKey, PlainKey, Reads, Step};

use super::core::Node;
use super::prefix::{Prefix, PrefixField, Probe, Tries};
use super::slab::{Ref, RefKind};
use super::*;
use crate::megaflow::TupleSpace;

const WORDS: [usize; 9] = [61, 72, 77, 88, 49, 73, 82, 89, 91];
const WIDTH: u8 = 6;

/// Hashes numbers.
fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x243f_6a88_85a3_08d3, |h, p| {
        let product = u128::from(h ^ p ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        product as u64 ^ (product >> 64) as u64
    })
}

/// A decision procedure. Programs with different `late` behave the same until they mix `late` into their state, in
/// about half of all cases.
#[derive(Clone, Copy, Debug)]
struct Program {
    seed: u64,
    late: u64,
}

impl Program {
    /// The reads and the result for a key.
    fn run(self, key: &FlowKey) -> (Reads, u64) {
        // Some read few words, others more than fit into a node or a leaf.
        let (words, depth_max) = if self.seed.is_multiple_of(3) { (&WORDS[..], 14) } else { (&WORDS[..4], 7) };
        let mut reads = Reads::new();
        let mut state = mix(&[self.seed]);
        let mut last = usize::MAX;
        for depth in 0..depth_max {
            if state.is_multiple_of(2) && depth > 0 {
                state = mix(&[state, self.late]);
            }
            let choice = mix(&[state, 1]);
            // Adjacent reads of one word merge into one unordered step, so programs avoid them.
            let at = choice as usize % words.len();
            let word = words[if words[at] == last { (at + 1) % words.len() } else { at }];
            last = word;
            let value = key.0[word] >> 8;
            match choice >> 8 & 7 {
                0 if depth > depth_max / 3 => break,
                0..=3 => {
                    let bits = (choice >> 16 & 0x3f).max(1);
                    reads.note(word, bits << 8);
                    state = mix(&[state, value & bits]);
                }
                _ => {
                    let rules = (0..=choice % 4).map(|i| mix(&[state, 2, i]));
                    let len = rules.map(|rule| {
                        let (len, value_of_rule) = (1 + rule as u32 % u32::from(WIDTH), rule >> 8 & 0x3f);
                        let same = ((value ^ value_of_rule) << (64 - WIDTH)).leading_zeros();
                        if same >= len { len } else { same + 1 }
                    });
                    let len = len.max().unwrap_or(1);
                    reads.note_prefix(word, 8, WIDTH, len as u8);
                    state = mix(&[state, 3, len.into(), (value & 0x3f) >> (u32::from(WIDTH) - len)]);
                }
            }
        }
        (reads, mix(&[state, 4]))
    }

    fn flow(self, key: &FlowKey, generation: u64) -> DpFlow {
        let (reads, _) = self.run(key);
        DpFlow::new(key, reads.order(), Arc::new([]), generation)
    }
}

/// A key whose relevant bits are random, mostly with few values, and whose other bits are random, too.
fn random_key(rng: &mut Rng) -> FlowKey {
    let mut key = FlowKey::ZERO;
    let few = rng.below(2) == 0;
    for word in WORDS {
        let value = if few { [0, 1, 32, 33, 63][rng.below(5) as usize] } else { rng.below(64) };
        key.0[word] = value << 8 | rng.below(4) << 40;
    }
    if rng.below(3) == 0 {
        // Like the key of a plain packet.
        [49, 89, 91].into_iter().for_each(|word: usize| key.0[word] = 0);
    }
    key
}

/// The installed flows that cover a key, by linear search.
fn covering(tree: &Tree, key: &FlowKey, generation: u64) -> Vec<FlowId> {
    let entries = tree.iter().filter(|f| f.generation == generation).map(|f| f.entry());
    entries.filter(|e| e.key.eq_masked(key, &e.mask)).map(|e| e.id).collect()
}

/// Checks the invariants of the tree.
fn check(tree: &Tree) {
    for core in tree.cores.both() {
        let (mut leaves, mut nodes) = (0, 0);
        assert_eq!(core.root_shortcut, core.shortcut(core.root));
        let mut todo = vec![(core.root, FlowKey::ZERO, false)];
        while let Some((at, tested, alone)) = todo.pop() {
            match at.kind() {
                RefKind::None => assert_eq!(core.leaves.len(), 0),
                RefKind::Inner(_) => panic!("an inner node outside of a prefix node"),
                RefKind::Leaf(leaf) => {
                    assert!(!alone, "a node for one leaf");
                    leaves += 1;
                    let flow = core.leaves.flow(leaf).expect("a leaf has a flow");
                    let mask = flow.mask().expand();
                    assert!(tested.0.iter().zip(mask.0).all(|(t, m)| t & !m == 0), "tests what it does not match");
                    assert!(flow.reads.iter().all(|s| s.bits() & !mask.0[s.word()] == 0), "wider than its reads");
                    assert_eq!(core.descend(&flow.key.expand(), &mut 0), at);
                }
                RefKind::Node(node) => {
                    nodes += 1;
                    let mut tested = tested.clone();
                    match &core.nodes.items[node] {
                        Node::Free => panic!("a free node"),
                        Node::Bits(bits) => {
                            bits.tests().for_each(|(w, b)| tested.0[usize::from(w)] |= b);
                            assert_eq!(bits.children().count(), bits.n as usize);
                            assert!(bits.shortcut().all(|(child, shortcut)| core.shortcut(child) == shortcut));
                            todo.extend(bits.children().map(|c| (c, tested.clone(), bits.n == 1)));
                        }
                        Node::Prefix(prefix) => {
                            let children = core.tries.children(prefix);
                            assert_eq!(children.len(), prefix.n as usize);
                            assert_eq!(prefix.index as usize, node);
                            for (end, len) in children {
                                let child = if prefix.n == 1 { end } else { core.chain_head(end) };
                                assert!(prefix.n == 1 || core.shortcut(child) == end);
                                assert!(path_bits_match(core, prefix.field, child, len));
                                let mut tested = tested.clone();
                                tested.0[usize::from(prefix.field.word)] |= prefix.field.bits(len);
                                todo.push((child, tested, prefix.n == 1));
                            }
                        }
                    }
                }
            }
        }
        assert_eq!((leaves, nodes), (core.leaves.len(), core.nodes.len()));
        core.leaves.check();
    }
    let masks: std::collections::HashSet<flow::Sparse> = tree.iter().map(|f| f.mask()).collect();
    assert_eq!(tree.n_masks(), masks.len());
    assert_eq!(tree.iter().count(), tree.len());
}

/// Whether the bits stored for a child of a prefix node are those of the flows below it.
fn path_bits_match(core: &Core, field: PrefixField, child: Ref, len: u32) -> bool {
    let leaf = core.any(child).expect("a node has leaves");
    let value = field.value(core.leaves.value(leaf, field.word.into()));
    (value ^ core.path_bits(field, child)).leading_zeros() >= len
}

/// Checks that no key matches two flows.
fn check_disjoint(tree: &Tree) {
    for core in tree.cores.both() {
        let flows: Vec<DpFlowEntry> = core.iter().map(|f| f.entry()).collect();
        for (i, a) in flows.iter().enumerate() {
            for b in &flows[..i] {
                let differ = (0..a.key.0.len()).any(|w| (a.key.0[w] ^ b.key.0[w]) & a.mask.0[w] & b.mask.0[w] != 0);
                assert!(differ, "flows overlap");
            }
        }
    }
}

/// Looks up `key`, alone and in a batch, and installs the result of `program` on a miss.
fn ask(tree: &mut Tree, program: Program, key: &FlowKey, generation: u64, next: &mut u64) -> FlowId {
    let mut found = [None; BATCH];
    tree.lookup_batch(&[&FlowKey::ZERO, key, key], 0b111, generation, &mut found, &mut 0);
    let alone = tree.lookup(key, generation, &mut 0).map(|f| f.id);
    assert_eq!([found[1], found[2]].map(|f| f.map(|f| f.id)), [alone, alone]);
    // Other positions stay unchanged.
    let before = found[1].map(|f| f.id);
    tree.lookup_batch(
        &[&FlowKey([u64::MAX; flow::layout::WORDS]), &FlowKey::ZERO],
        0b1,
        generation,
        &mut found,
        &mut 0,
    );
    assert_eq!(found[1].map(|f| f.id), before);
    if let Some(plain) = PlainKey::of(key) {
        let mut found = [None; BATCH];
        tree.lookup_batch(&[PlainKey::default(), plain], 0b11, generation, &mut found, &mut 0);
        assert_eq!([found[1], tree.lookup(&plain, generation, &mut 0)].map(|f| f.map(|f| f.id)), [alone, alone]);
    }
    alone.unwrap_or_else(|| {
        *next += 1;
        tree.insert(Megaflow::new(FlowId(*next), program.flow(key, generation)));
        FlowId(*next)
    })
}

/// Runs a test with many seeds. A failure reports its seed.
fn cases(n: u64, case: impl Fn(u64) + std::panic::RefUnwindSafe) -> u64 {
    let n = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(n);
    for seed in 0..n {
        if let Err(panic) = std::panic::catch_unwind(|| case(seed)) {
            println!("with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
    n
}

/// The flow with its mask as installed.
fn as_installed(flow: &Megaflow) -> DpFlow {
    let DpFlowEntry { key, mask, actions, generation, .. } = flow.entry();
    DpFlow::by_hand(&key, &mask, actions, generation)
}

/// Random keys that a flow covers lead to it.
fn check_region(tree: &Tree, flow: &Megaflow, rng: &mut Rng) {
    let DpFlowEntry { key, mask, .. } = flow.entry();
    for _ in 0..4 {
        let mut other = random_key(rng);
        for w in 0..other.0.len() {
            other.0[w] = key.0[w] | other.0[w] & !mask.0[w];
        }
        assert_eq!(tree.lookup(&other, flow.generation, &mut 0).map(|f| f.id), Some(flow.id));
    }
}

/// With one program the tree equals the program: no flow is narrowed, and all results are right.
#[test]
fn a_tree_of_one_program() {
    tally::report!("{} trees", cases(20, one_program));
}

fn one_program(seed: u64) {
    let program = Program { seed, late: 0 };
    let mut rng = Rng::seeded(seed);
    let (mut tree, mut next) = (Tree::default(), 0);
    let mut outcome = HashMap::new();
    for _ in 0..100 {
        let key = random_key(&mut rng);
        let id = ask(&mut tree, program, &key, 0, &mut next);
        let right = program.run(&key).1;
        assert_eq!(*outcome.entry(id).or_insert(right), right);
    }
    check(&tree);
    check_disjoint(&tree);
    assert_eq!(tree.shape().narrowed, 0);
    let mut tuples = TupleSpace::default();
    for flow in tree.iter() {
        assert!(tuples.insert(Megaflow::new(flow.id, as_installed(flow))).replaced.is_empty());
    }
    assert_eq!(tuples.n_masks(), tree.n_masks());
    for _ in 0..100 {
        let key = random_key(&mut rng);
        let found = tree.lookup(&key, 0, &mut 0).map(|f| f.id);
        assert_eq!(found, tuples.lookup(&key, 0, &mut 0).map(|f| f.id));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), covering(&tree, &key, 0));
    }
    tree.iter().for_each(|flow| check_region(&tree, flow, &mut rng));
    let flows: Vec<_> = tree.iter().cloned().collect();
    for flow in flows {
        assert!(tree.remove(&flow));
        assert!(!tree.remove(&flow));
    }
    check(&tree);
    assert_eq!((tree.shape().nodes, tree.shape().inner, tree.len()), (0, 0, 0));
}

/// Programs, generations and manually installed flows change between lookups, flows are removed, and the tree is
/// rebuilt. Each flow covers its own packet, no more than its reads, and no packet of another flow.
#[test]
fn a_tree_of_changing_programs() {
    tally::report!("{} trees, {TURNS} turns each", cases(16, changing_programs));
}

/// Number of changes and lookups of a changing program.
const TURNS: u64 = 400;

fn changing_programs(seed: u64) {
    let mut rng = Rng::seeded(seed);
    let (mut tree, mut next, mut generation) = (Tree::default(), 0, 0);
    let mut program = Program { seed, late: 0 };
    // The flows that must be installed.
    let mut live: HashMap<FlowId, DpFlow> = HashMap::new();
    let gone =
        |live: &mut HashMap<FlowId, DpFlow>, out: &[Arc<Megaflow>]| out.iter().all(|f| live.remove(&f.id).is_some());
    for turn in 0..TURNS {
        match rng.below(40) {
            0 => program.late = rng.below(1 << 40),
            1 => program.seed = mix(&[program.seed, turn]),
            2 => generation += 1,
            3..=6 if !live.is_empty() => {
                let flow = tree.iter().nth(rng.below(live.len() as u64) as usize).cloned().expect("there");
                assert!(tree.remove(&flow));
                live.remove(&flow.id);
            }
            7 => tree.rebuild(),
            8 | 9 => {
                let out = tree.tune();
                assert!(gone(&mut live, &out));
            }
            10..=14 if !live.is_empty() => {
                // Put again with new reads under its old id.
                let flow = tree.iter().nth(rng.below(live.len() as u64) as usize).cloned().expect("there");
                assert!(tree.remove(&flow));
                let fresh = program.flow(&flow.key.expand(), generation);
                let inserted = tree.insert(Megaflow::continuing(&flow, fresh.clone()));
                live.insert(flow.id, fresh);
                assert!(gone(&mut live, &inserted.replaced));
            }
            kind => {
                let key = random_key(&mut rng);
                if kind > 16 && tree.lookup(&key, generation, &mut 0).is_some() {
                    continue;
                }
                let mut flow = program.flow(&key, generation);
                if kind == 15 {
                    flow.reads = Arc::new(flow::Steps::of_mask(&flow.reads.mask().expand()));
                }
                next += 1;
                let inserted = tree.insert(Megaflow::new(FlowId(next), flow.clone()));
                live.insert(FlowId(next), flow);
                assert!(gone(&mut live, &inserted.replaced));
                let found = tree.lookup(&key, generation, &mut 0).map(|f| f.id);
                assert_eq!(found, Some(FlowId(next)));
            }
        }
        if turn % 20 == 0 {
            check(&tree);
            check_disjoint(&tree);
            let key = random_key(&mut rng);
            let found = tree.lookup(&key, generation, &mut 0).map(|f| f.id);
            let right = covering(&tree, &key, generation);
            assert!(found.map_or(right.is_empty(), |id| right.contains(&id)));
        }
    }
    while tree.is_rebuilding() {
        assert!(gone(&mut live, &tree.tune()));
    }
    check(&tree);
    check_disjoint(&tree);
    // Tuple space search over the same flows, as narrowed.
    let mut tuples = TupleSpace::default();
    for flow in tree.iter() {
        assert!(tuples.insert(Megaflow::new(flow.id, as_installed(flow))).replaced.is_empty());
    }
    for generation in 0..=generation {
        let key = random_key(&mut rng);
        let [found, right] = [tree.lookup(&key, generation, &mut 0), tuples.lookup(&key, generation, &mut 0)];
        assert_eq!(found.map(|f| f.id), right.map(|f| f.id));
    }
    assert_eq!(tree.len(), live.len());
    for flow in tree.iter() {
        let (DpFlow { key, reads, generation, .. }, entry) = (&live[&flow.id], flow.entry());
        let key = key.expand();
        assert!(reads.mask().iter().all(|(word, own)| own & !entry.mask.0[word] == 0));
        assert!(key.eq_masked(&entry.key, &entry.mask));
        assert_eq!(tree.lookup(&key, *generation, &mut 0).map(|f| f.id), Some(flow.id));
        check_region(&tree, flow, &mut rng);
    }
}

/// Two copies of a tree that receive the same changes, the second one change later, are equal down to their nodes.
#[test]
fn copies_of_a_tree_stay_equal() {
    tally::report!("{} seeds", cases(12, twins));
}

fn twins(seed: u64) {
    let mut rng = Rng::seeded(seed);
    let mut program = Program { seed, late: 0 };
    let (mut first, mut lists) = (Cores::default(), Lists::default());
    let mut second = first.twin();
    /// Changes that the second copy has not seen.
    enum Late {
        Put(Arc<Megaflow>),
        Quickly(Arc<Megaflow>, bool),
        Remove(Arc<Megaflow>),
        Tune,
        Rebuild,
    }
    let replay = |second: &mut Cores, late: Option<Late>| match late {
        Some(Late::Put(flow)) => _ = second.insert(&flow, None),
        Some(Late::Quickly(flow, done)) => assert_eq!(second.insert_quickly(&flow, None), done),
        Some(Late::Remove(flow)) => assert!(second.remove(&flow, None)),
        Some(Late::Tune) => _ = second.tune(None),
        Some(Late::Rebuild) => second.rebuild(),
        None => {}
    };
    let mut late: Option<Late> = None;
    let same = |first: &Cores, second: &Cores, rng: &mut Rng| {
        for (a, b) in first.both().zip(second.both()) {
            assert!(a.iter().map(|f| f.id).eq(b.iter().map(|f| f.id)));
            assert_eq!(
                (a.nodes.len(), a.tries.len(), a.root_shortcut),
                (b.nodes.len(), b.tries.len(), b.root_shortcut)
            );
            a.leaves.check();
            b.leaves.check();
        }
        assert_eq!((first.len(), first.is_rebuilding()), (second.len(), second.is_rebuilding()));
        for _ in 0..8 {
            let key = random_key(rng);
            let found = [first, second].map(|copy| {
                let mut probes = 0;
                (copy.lookup(&key, 0, &mut probes).map(|f| f.id), probes)
            });
            assert_eq!(found[0], found[1]);
        }
    };
    for n in 0..TURNS {
        let pick =
            |cores: &Cores, rng: &mut Rng| cores.iter().nth(rng.below(cores.len().max(1) as u64) as usize).cloned();
        let next = match rng.below(24) {
            0 => {
                program.late = rng.below(1 << 40);
                continue;
            }
            1..=4 => match pick(&first, &mut rng) {
                Some(flow) => {
                    assert!(first.remove(&flow, Some(&mut lists)));
                    Late::Remove(flow)
                }
                None => continue,
            },
            5 => {
                first.rebuild();
                Late::Rebuild
            }
            6 | 7 => {
                first.tune(Some(&mut lists));
                Late::Tune
            }
            kind => {
                let mut flow = Megaflow::new(FlowId(n), program.flow(&random_key(&mut rng), 0));
                flow.share(&mut lists);
                let flow = Arc::new(flow);
                if kind > 15 {
                    first.insert(&flow, Some(&mut lists));
                    Late::Put(flow)
                } else {
                    let done = first.insert_quickly(&flow, Some(&mut lists));
                    if !done {
                        flow.unshare(&mut lists);
                    }
                    Late::Quickly(flow, done)
                }
            }
        };
        replay(&mut second, late.replace(next));
        if rng.below(8) == 0 {
            replay(&mut second, late.take());
            same(&first, &second, &mut rng);
        }
    }
    let tree = Tree { cores: first, lists };
    check(&tree);
    check_disjoint(&tree);
}

/// Tables double, so few insertions are refused because they take long; the test makes those by a full insertion.
#[test]
fn few_insertions_take_long() {
    const FLOWS: u64 = 5000;
    let (mut cores, mut lists, mut refused) = (Cores::default(), Lists::default(), 0);
    for n in 0..FLOWS {
        let mut key = FlowKey::ZERO;
        key.0[WORDS[0]] = n;
        let mut mask = FlowKey::ZERO;
        mask.0[WORDS[0]] = u64::MAX;
        let mut flow = Megaflow::new(FlowId(n), DpFlow::by_hand(&key, &mask, Arc::new([]), 0));
        flow.share(&mut lists);
        let flow = Arc::new(flow);
        if !cores.insert_quickly(&flow, Some(&mut lists)) {
            refused += 1;
            cores.insert(&flow, Some(&mut lists));
        }
        // Replacing a flow takes a wait for readers, so a quick insertion is refused.
        assert!(!cores.insert_quickly(&flow, Some(&mut lists)));
    }
    assert!((3..20).contains(&refused), "{refused} of {FLOWS}");
    check(&Tree { cores, lists });
}

/// After tables changed and each flow was translated again, the tree is about as large as for one of these tables
/// alone.
#[test]
fn an_aged_tree_shrinks_when_rebuilt() {
    tally::report!("{} trees", cases(20, ageing));
}

fn ageing(seed: u64) {
    let mut rng = Rng::seeded(seed);
    let traffic: Vec<FlowKey> = (0..250).map(|_| random_key(&mut rng)).collect();
    let mut program = Program { seed, late: 0 };
    let (mut tree, mut next) = (Tree::default(), 0);
    for change in 0..5 {
        if change % 2 == 0 {
            program.seed = mix(&[seed, change]);
        } else {
            program.late = change;
        }
        let flows: Vec<_> = tree.iter().cloned().collect();
        for flow in flows {
            if tree.remove(&flow) {
                tree.insert(Megaflow::continuing(&flow, program.flow(&flow.key.expand(), 0)));
            }
        }
        for key in &traffic {
            ask(&mut tree, program, key, 0, &mut next);
            tree.tune();
        }
    }
    check(&tree);
    let (mut fresh, mut next) = (Tree::default(), 0);
    for key in &traffic {
        ask(&mut fresh, program, key, 0, &mut next);
    }
    assert!(tree.len() <= 2 * fresh.len() + NARROWED_MIN, "{} flows, fresh {}", tree.len(), fresh.len());
}

/// Compares the children of a prefix node with a list.
#[test]
fn prefixes_agree_with_a_list() {
    let mut cases = 0;
    for seed in 0..300 {
        let mut rng = Rng::seeded(seed);
        let width = 1 + rng.below(64) as u8;
        let shift = rng.below(65 - u64::from(width)) as u8;
        let field = PrefixField { word: 7, shift, width };
        let narrow = rng.below(2) == 0;
        let random = |rng: &mut Rng| {
            let value = rng.next_u64() & rng.next_u64();
            field.value(if narrow { value & 0x0f0f_0000_0000_0f0f } else { value })
        };
        let mut tries = Tries::default();
        let mut list: Vec<(u64, u32, Ref)> = Vec::new();
        let mut node: Option<Prefix> = None;
        for n in 0..200 {
            let value = random(&mut rng);
            if rng.below(3) == 0 && list.len() > 1 {
                let (value, _, child) = list.swap_remove(rng.below(list.len() as u64) as usize);
                let node = node.as_mut().expect("there is a node");
                assert_eq!(tries.find(node, value >> (64 - u32::from(width)) << shift), child);
                tries.remove(node, value);
            } else if let Some(node) = &mut node {
                let value_of = |list: &[(u64, u32, Ref)], r| list.iter().find(|c| c.2 == r).map_or(0, |c| c.0);
                let common = |c: &(u64, u32, Ref)| (c.0 ^ value).leading_zeros();
                let below = |r| value_of(&list, r);
                match tries.probe(node, value, below) {
                    Probe::Covered(child, len) => {
                        assert!(list.iter().any(|c| c.2 == child && c.1 == len && common(c) >= len));
                    }
                    Probe::Apart(apart) => {
                        assert!(list.iter().all(|c| common(c) < c.1));
                        assert_eq!(Some(apart), list.iter().map(common).max());
                        let len = (apart + 1).max(rng.below(u64::from(width)) as u32 + 1).min(width.into());
                        let child = Ref::leaf(n);
                        let beside = tries.beside(node, value, apart).map_or(0, below);
                        tries.add(node, (value, len), child, apart, beside);
                        list.push((value, len, child));
                    }
                }
            } else {
                let len = 1 + rng.below(u64::from(width)) as u32;
                node = Some(Prefix::new(field, len, Ref::leaf(n)));
                list.push((value, len, Ref::leaf(n)));
            }
            let node = node.as_ref().expect("there is a node");
            assert_eq!((node.n as usize, tries.children(node).len()), (list.len(), list.len()));
            for (value, len, child) in &list {
                let below = if *len == 64 { 0 } else { rng.next_u64() >> len };
                let word = (value & !(u64::MAX.checked_shr(*len).unwrap_or(0)) | below) >> (64 - u32::from(width));
                assert_eq!(tries.find(node, word << shift), *child);
                cases += 1;
            }
        }
    }
    tally::report!("{cases} look-ups");
}

/// Compares a table of children with a map, with clustered hashes.
#[test]
fn a_table_agrees_with_a_map() {
    let mut rng = Rng::seeded(1);
    let mut node = bits::Bits::new(&[(1, 1)], Ref::leaf(0), 1, |_| 0);
    let mut map = HashMap::from([(node.only_hash, Ref::leaf(0))]);
    let (changes, mut lookups) = (3_000, 0);
    for n in 1..=changes {
        let hash = rng.below(300) | rng.below(4) << 60;
        let several = map.len() > 1;
        match map.entry(hash) {
            Entry::Vacant(new) => {
                node.add(hash, (Ref::leaf(n), Ref::NONE), Ref::NONE);
                new.insert(Ref::leaf(n));
            }
            Entry::Occupied(known) if several => {
                node.remove(hash);
                known.remove();
            }
            Entry::Occupied(_) => {}
        }
        assert_eq!(node.n as usize, map.len());
        assert!(map.iter().all(|(hash, child)| node.child(*hash) == *child));
        assert!(node.child(rng.next_u64()).is_none());
        lookups += map.len();
    }
    tally::report!("{changes} changes, {lookups} look-ups");
}

#[test]
fn manually_installed_flows_narrow_or_replace_others() {
    let step = |word, bits| Step::Bits { word, bits };
    let flow = |id, key: [u64; 2], steps: &[Step]| {
        let mut wide = FlowKey::ZERO;
        (wide.0[61], wide.0[77]) = (key[0], key[1]);
        Megaflow::new(FlowId(id), DpFlow::new(&wide, steps, Arc::new([]), 0))
    };
    let mut tree = Tree::default();
    let both = [step(61, 0xff), step(77, 0xff)];
    assert!(tree.insert(flow(1, [1, 1], &both)).replaced.is_empty());
    assert!(tree.insert(flow(2, [1, 2], &both)).replaced.is_empty());
    // Wider than the existing flows: narrowed until it is disjoint.
    let wide = tree.insert(flow(3, [1, 3], &both[..1]));
    assert!(wide.replaced.is_empty());
    assert_eq!(wide.flow.entry().mask.0[77], 0xff);
    assert_eq!(tree.shape().narrowed, 1);
    // A flow whose packet another flow covers replaces that flow.
    let inserted = tree.insert(flow(4, [1, 1], &both[..1]));
    assert_eq!(inserted.replaced.iter().map(|f| f.id).collect::<Vec<_>>(), [FlowId(1)]);
    check(&tree);
    // After a rebuild, one of the two flows with equal reads is left, and covers the narrower one.
    tree.rebuild();
    let mut out = tree.tune();
    out.sort_by_key(|f| f.id);
    check(&tree);
    assert_eq!(out.len(), 2);
    assert_eq!((tree.len(), tree.shape().narrowed), (1, 0));
}
