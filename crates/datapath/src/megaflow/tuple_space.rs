//! Tuple space search without priorities: a hash table for each mask, visited by decreasing number of hits. Only the
//! words of a mask are hashed and compared, so a probe costs time proportional to the mask, not to the key. Benchmarks
//! and tests compare it with [`super::Tree`].
//!
//! Invariants: `order` lists each occupied entry of `tuples` once; `by_mask` maps each of their masks to its entry; no
//! tuple is empty; `n_flows` is the total number of flows; within a tuple, masked keys are distinct.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flow::{Sparse, Words};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use smallvec::{SmallVec, smallvec};

use super::share::Lists;
use super::{Found, Gone, Inserted, Megaflow, MegaflowIndex};

/// Tuple space search; see the module documentation.
#[derive(Debug, Default)]
pub struct TupleSpace {
    tuples: Tuples,
    lists: Lists,
}

/// The part that lookups read.
#[derive(Debug, Default)]
pub(crate) struct Tuples {
    tuples: Vec<Option<Tuple>>,
    /// Indexes into `tuples`, in the order of visits.
    order: Vec<usize>,
    by_mask: HashMap<Sparse, usize, RandomState>,
    n_flows: usize,
    /// Seeded randomly in each process, so that outsiders cannot construct collisions.
    hasher: RandomState,
}

/// The flows of one mask.
#[derive(Debug)]
struct Tuple {
    /// The nonzero words of the mask, by index.
    words: SmallVec<[(u8, u64); 12]>,
    /// Flows with the hash of their masked key, so that growing the table does not touch flows.
    flows: HashTable<(u64, Arc<Megaflow>)>,
    /// Hits since the last [`MegaflowIndex::tune`].
    hits: AtomicU64,
}

impl Tuple {
    fn new(mask: &Sparse) -> Self {
        let words = mask.iter().map(|(i, bits)| (i as u8, bits)).collect();
        Self { words, flows: HashTable::new(), hits: AtomicU64::new(0) }
    }

    /// The hash of a key, whose words `word` returns.
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

/// Whether two keys, whose XOR `differ` returns, are equal under a mask.
fn same(words: &[(u8, u64)], differ: impl Fn(usize) -> u64) -> bool {
    words.iter().all(|(w, bits)| differ(usize::from(*w)) & bits == 0)
}

impl Tuples {
    /// The index of the tuple of `mask`, which is created if needed.
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

    pub(crate) fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
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

    /// See [`super::tree::Cores::insert`].
    pub(crate) fn insert(&mut self, flow: &Arc<Megaflow>, lists: Option<&mut Lists>) -> Gone {
        let place = self.place_of(flow.reads.mask());
        let tuple = self.tuples[place].as_mut().expect("place_of returns an occupied place");
        let hash = tuple.hash(&self.hasher, |w| flow.key.word(w));
        let Tuple { words, flows, .. } = tuple;
        let agrees = |(h, f): &(u64, Arc<Megaflow>)| *h == hash && same(words, |w| f.key.word(w) ^ flow.key.word(w));
        if let Some((_, old)) = flows.find_mut(hash, agrees) {
            let old = std::mem::replace(old, flow.clone());
            if let Some(lists) = lists {
                old.unshare(lists);
            }
            return smallvec![old];
        }
        flows.insert_unique(hash, (hash, flow.clone()), |(h, _)| *h);
        self.n_flows += 1;
        smallvec![]
    }

    /// Removes a flow. Returns whether it was present.
    pub(crate) fn remove(&mut self, flow: &Megaflow, lists: Option<&mut Lists>) -> bool {
        let mask = flow.reads.mask();
        let Some(place) = self.by_mask.get(mask).copied() else { return false };
        let Some(tuple) = self.tuples[place].as_mut() else { return false };
        let hash = tuple.hash(&self.hasher, |w| flow.key.word(w));
        let Ok(found) = tuple.flows.find_entry(hash, |(_, f)| std::ptr::eq(Arc::as_ptr(f), flow)) else { return false };
        let ((_, removed), _) = found.remove();
        if let Some(lists) = lists {
            removed.unshare(lists);
        }
        self.n_flows -= 1;
        if tuple.flows.is_empty() {
            self.tuples[place] = None;
            self.by_mask.remove(mask);
            self.order.retain(|p| *p != place);
        }
        true
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.tuples.iter().flatten().flat_map(|t| t.flows.iter().map(|(_, flow)| flow))
    }

    pub(crate) fn len(&self) -> usize {
        self.n_flows
    }

    /// Bytes, without the flows.
    fn bytes(&self) -> usize {
        let tuples = self.tuples.iter().flatten().map(|t| t.flows.allocation_size() + size_of_val(&*t.words));
        let own = self.tuples.capacity() * size_of::<Option<Tuple>>() + self.order.capacity() * size_of::<usize>();
        own + self.by_mask.allocation_size() + tuples.sum::<usize>()
    }

    /// Sorts tuples by decreasing number of hits.
    pub(crate) fn tune(&mut self) {
        let hits = |place: &usize| self.tuples[*place].as_ref().map_or(0, |t| t.hits.load(Ordering::Relaxed));
        let mut order: Vec<(u64, usize)> = self.order.iter().map(|p| (hits(p), *p)).collect();
        order.sort_by_key(|(hits, _)| std::cmp::Reverse(*hits));
        self.order = order.into_iter().map(|(_, place)| place).collect();
        for tuple in self.tuples.iter().flatten() {
            // Halved instead of cleared, so that a short pause does not move a tuple to the end.
            tuple.hits.store(tuple.hits.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
}

impl MegaflowIndex for TupleSpace {
    fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        self.tuples.lookup(key, generation, probes)
    }

    fn insert(&mut self, mut flow: Megaflow) -> Inserted {
        flow.share(&mut self.lists);
        let flow = Arc::new(flow);
        let replaced = self.tuples.insert(&flow, Some(&mut self.lists));
        Inserted { flow, replaced }
    }

    fn remove(&mut self, flow: &Megaflow) -> bool {
        self.tuples.remove(flow, Some(&mut self.lists))
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.tuples.iter()
    }

    fn len(&self) -> usize {
        self.tuples.len()
    }

    fn n_masks(&self) -> usize {
        self.lists.n_masks()
    }

    fn bytes(&self) -> usize {
        self.tuples.bytes() + self.lists.bytes() + self.iter().map(|f| f.bytes()).sum::<usize>()
    }

    fn tune(&mut self) -> Vec<Arc<Megaflow>> {
        self.tuples.tune();
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::{DpFlow, FlowId};
    use flow::{FlowKey, FlowMask};
    use proptest::prelude::*;

    /// The naive model: a list with linear search.
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

    /// Spreads eight bits over four words.
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
    fn the_tuple_with_most_hits_is_visited_first() {
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
