//! Tuple space search without priorities: a hash table for each mask, asked in turn, the one that hits most often
//! first. Only the words that a mask reaches are hashed and compared, so that a probe costs what the mask costs and not
//! what a key is long. What it costs beside [`super::Tree`] is in the benchmarks, and tests compare the two.
//!
//! Invariants: `order` names each occupied place of `tuples` once; `by_mask` says where each of their masks stands; no
//! tuple is empty; `n_flows` counts the flows of all; within a tuple no two flows have the same masked key.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flow::{Sparse, Words};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use smallvec::{SmallVec, smallvec};

use super::share::Lists;
use super::{Found, Inserted, Megaflow, MegaflowIndex};

/// Tuple space search; see the module's text.
#[derive(Debug, Default)]
pub struct TupleSpace {
    tuples: Vec<Option<Tuple>>,
    /// Places in `tuples`, in the order in which they are asked.
    order: Vec<usize>,
    by_mask: HashMap<Sparse, usize, RandomState>,
    lists: Lists,
    n_flows: usize,
    /// Seeded anew in each process, so that nobody outside can aim at one bucket.
    hasher: RandomState,
}

/// The flows of one mask.
#[derive(Debug)]
struct Tuple {
    /// The words that the mask reaches, and their bits.
    words: SmallVec<[(u8, u64); 12]>,
    /// Each with the hash of its masked key, so that growing the table touches no flow.
    flows: HashTable<(u64, Arc<Megaflow>)>,
    /// Hits since the last [`MegaflowIndex::tune`].
    hits: AtomicU64,
}

impl Tuple {
    fn new(mask: &Sparse) -> Self {
        let words = mask.iter().map(|(i, bits)| (i as u8, bits)).collect();
        Self { words, flows: HashTable::new(), hits: AtomicU64::new(0) }
    }

    /// The hash of a key whose words `word` tells.
    fn hash(&self, hasher: &RandomState, word: impl Fn(usize) -> u64) -> u64 {
        let mut h = hasher.build_hasher();
        for (w, bits) in &self.words {
            h.write_u64(word(usize::from(*w)) & bits);
        }
        h.finish()
    }

    fn find(&self, hasher: &RandomState, key: &impl Words) -> Found<'_> {
        let hash = self.hash(hasher, |w| key.word(w));
        let found = self.flows.find(hash, |(h, f)| *h == hash && same(&self.words, |w| f.key.word(w) ^ key.word(w)));
        found.map(|(_, flow)| flow)
    }
}

/// Whether two keys, whose difference `differ` tells, agree in the words and bits that a mask reaches.
fn same(words: &[(u8, u64)], differ: impl Fn(usize) -> u64) -> bool {
    words.iter().all(|(w, bits)| differ(usize::from(*w)) & bits == 0)
}

impl TupleSpace {
    /// Where the tuple of `mask` stands; a new one if there is none.
    fn place_of(&mut self, mask: &Sparse) -> usize {
        if let Some(place) = self.by_mask.get(mask) {
            return *place;
        }
        let place = self.tuples.iter().position(Option::is_none).unwrap_or(self.tuples.len());
        if place == self.tuples.len() {
            self.tuples.push(None);
        }
        self.tuples[place] = Some(Tuple::new(mask));
        self.by_mask.insert(mask.clone(), place);
        self.order.push(place);
        place
    }
}

impl MegaflowIndex for TupleSpace {
    fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        for place in &self.order {
            let Some(tuple) = &self.tuples[*place] else { continue };
            *probes += 1;
            if let Some(flow) = tuple.find(&self.hasher, key)
                && flow.generation == generation
            {
                tuple.hits.fetch_add(1, Ordering::Relaxed);
                return Some(flow);
            }
        }
        None
    }

    fn insert(&mut self, mut flow: Megaflow) -> Inserted {
        flow.share(&mut self.lists);
        let flow = Arc::new(flow);
        let place = self.place_of(&flow.mask());
        let tuple = self.tuples[place].as_mut().expect("place_of returns an occupied place");
        let hash = tuple.hash(&self.hasher, |w| flow.key.word(w));
        let Tuple { words, flows, .. } = tuple;
        let agrees = |(h, f): &(u64, Arc<Megaflow>)| *h == hash && same(words, |w| f.key.word(w) ^ flow.key.word(w));
        if let Some((_, old)) = flows.find_mut(hash, agrees) {
            let old = std::mem::replace(old, flow.clone());
            old.unshare(&mut self.lists);
            return Inserted { flow, replaced: smallvec![old] };
        }
        flows.insert_unique(hash, (hash, flow.clone()), |(h, _)| *h);
        self.n_flows += 1;
        Inserted { flow, replaced: smallvec![] }
    }

    fn remove(&mut self, flow: &Megaflow) -> bool {
        let mask = flow.mask();
        let Some(place) = self.by_mask.get(&mask).copied() else { return false };
        let Some(tuple) = self.tuples[place].as_mut() else { return false };
        let hash = tuple.hash(&self.hasher, |w| flow.key.word(w));
        let Ok(found) = tuple.flows.find_entry(hash, |(_, f)| f.id == flow.id) else { return false };
        let ((_, removed), _) = found.remove();
        removed.unshare(&mut self.lists);
        self.n_flows -= 1;
        if tuple.flows.is_empty() {
            self.tuples[place] = None;
            self.by_mask.remove(&mask);
            self.order.retain(|p| *p != place);
        }
        true
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.tuples.iter().flatten().flat_map(|t| t.flows.iter().map(|(_, flow)| flow))
    }

    fn len(&self) -> usize {
        self.n_flows
    }

    fn n_masks(&self) -> usize {
        self.lists.n_masks()
    }

    fn bytes(&self) -> usize {
        let tuples = self.tuples.iter().flatten().map(|t| t.flows.allocation_size() + size_of_val(&*t.words));
        let flows = self.iter().map(|f| f.bytes());
        let own = self.tuples.capacity() * size_of::<Option<Tuple>>() + self.order.capacity() * size_of::<usize>();
        let shared = self.lists.bytes();
        own + self.by_mask.allocation_size() + shared + tuples.chain(flows).sum::<usize>()
    }

    fn tune(&mut self) -> Vec<Arc<Megaflow>> {
        let hits = |place: &usize| self.tuples[*place].as_ref().map_or(0, |t| t.hits.load(Ordering::Relaxed));
        let mut order: Vec<(u64, usize)> = self.order.iter().map(|p| (hits(p), *p)).collect();
        order.sort_by_key(|(hits, _)| std::cmp::Reverse(*hits));
        self.order = order.into_iter().map(|(_, place)| place).collect();
        for tuple in self.tuples.iter().flatten() {
            // Halved, not cleared, so that a short silence does not send a tuple to the end.
            tuple.hits.store(tuple.hits.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::{DpFlow, FlowId};
    use flow::{FlowKey, FlowMask};
    use proptest::prelude::*;

    /// The twin: a list, searched from one end to the other.
    #[derive(Debug, Default)]
    struct List(Vec<(FlowId, DpFlow, Arc<Megaflow>)>);

    impl List {
        fn covering(&self, key: &FlowKey, generation: u64) -> Vec<FlowId> {
            let current = self.0.iter().filter(|f| f.1.generation == generation);
            current.filter(|f| f.1.key.expand().eq_masked(key, &f.1.reads.mask().expand())).map(|f| f.0).collect()
        }

        fn insert(&mut self, id: FlowId, flow: DpFlow, installed: Arc<Megaflow>) -> Vec<FlowId> {
            let same = |(_, f, _): &(FlowId, DpFlow, _)| {
                let mask = flow.reads.mask();
                f.reads.mask() == mask && f.key.expand().eq_masked(&flow.key.expand(), &mask.expand())
            };
            let old = self.0.iter().position(same).map(|i| self.0.remove(i).0);
            self.0.push((id, flow, installed));
            old.into_iter().collect()
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert { mask: u8, value: u8, generation: u64 },
        Remove(usize),
        Lookup { value: u8, generation: u64 },
        Tune,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (any::<u8>(), any::<u8>(), 0..2u64)
                .prop_map(|(mask, value, generation)| Op::Insert { mask, value, generation }),
            1 => any::<usize>().prop_map(Op::Remove),
            4 => (any::<u8>(), 0..2u64).prop_map(|(value, generation)| Op::Lookup { value, generation }),
            1 => Just(Op::Tune),
        ]
    }

    fn flow(key: &FlowKey, mask: &FlowMask, generation: u64) -> DpFlow {
        DpFlow::by_hand(key, mask, Arc::new([]), generation)
    }

    /// Eight bits spread over four words.
    fn spread(bits: u8) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for i in 0..8 {
            key.0[10 * (i % 4)] |= u64::from(bits >> i & 1) << (i * 8);
        }
        key
    }

    tally::proptest! {
        #[test]
        fn tuple_space_agrees_with_a_list(ops in prop::collection::vec(op(), 1..200)) {
            let (mut index, mut list) = (TupleSpace::default(), List::default());
            for (n, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Insert { mask, value, generation } => {
                        let flow = flow(&spread(value), &spread(mask), generation);
                        let id = FlowId(n as u64);
                        let inserted = index.insert(Megaflow::new(id, flow.clone()));
                        let old: Vec<FlowId> = inserted.replaced.iter().map(|f| f.id).collect();
                        prop_assert_eq!(old, list.insert(id, flow, inserted.flow));
                    }
                    Op::Remove(i) if !list.0.is_empty() => {
                        let i = i % list.0.len();
                        let (_, _, flow) = list.0.remove(i);
                        prop_assert!(index.remove(&flow));
                        prop_assert!(!index.remove(&flow));
                    }
                    Op::Remove(_) => {}
                    Op::Lookup { value, generation } => {
                        let key = spread(value);
                        let found = index.lookup(&key, generation, &mut 0).map(|f| f.id);
                        let right = list.covering(&key, generation);
                        prop_assert!(found.map_or(right.is_empty(), |id| right.contains(&id)));
                    }
                    Op::Tune => prop_assert!(index.tune().is_empty()),
                }
                let masks: std::collections::HashSet<_> = list.0.iter().map(|f| f.1.reads.mask().clone()).collect();
                prop_assert_eq!(index.n_masks(), masks.len());
                prop_assert_eq!((index.iter().count(), index.len()), (list.0.len(), list.0.len()));
            }
        }
    }

    #[test]
    fn the_tuple_that_hits_is_asked_first() {
        let mut index = TupleSpace::default();
        for (id, mask) in [(1, 0x0f), (2, 0xf0)] {
            let mask = spread(mask);
            index.insert(Megaflow::new(FlowId(id), flow(&mask, &mask, 0)));
        }
        let mut probes = 0;
        assert!(index.lookup(&spread(0xf0), 0, &mut probes).is_some());
        assert_eq!(probes, 2);
        index.tune();
        probes = 0;
        assert!(index.lookup(&spread(0xf0), 0, &mut probes).is_some());
        assert_eq!(probes, 1);
    }
}
