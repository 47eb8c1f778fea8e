//! The index of cached verdicts: which flow covers a key.
//!
//! [`MegaflowIndex`] is the seam: another structure may take this one's place without a change elsewhere.
//! [`TupleSpace`] is tuple space search without priorities: a hash table for each mask, asked in turn, the one that
//! hits most often first. Only the words that a mask reaches are hashed and compared, so that a probe costs what the
//! mask costs and not what a key is long.
//!
//! Invariants of [`TupleSpace`]: `order` names each occupied place of `tuples` once; `by_mask` says where each of
//! their masks stands; no tuple is empty; `n_flows` counts the flows of all; within a tuple no two flows have the same masked key.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpif::{DpFlow, DpFlowEntry, DpFlowStats, FlowId};
use flow::{FlowKey, FlowMask};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use smallvec::SmallVec;

use base::Millis;

/// An installed flow with its counters, which packet threads write while others read.
#[derive(Debug)]
pub struct Megaflow {
    /// Its id.
    pub id: FlowId,
    /// What it matches and does.
    pub flow: Arc<DpFlow>,
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Milliseconds, 0 for never.
    used: AtomicU64,
    tcp_flags: AtomicU64,
}

impl Megaflow {
    /// A flow that has done nothing yet.
    pub fn new(id: FlowId, flow: Arc<DpFlow>) -> Self {
        let [packets, bytes, used, tcp_flags] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { id, flow, packets, bytes, used, tcp_flags }
    }

    /// A flow that goes on with the counters of `old`.
    pub fn continuing(old: &Self, flow: Arc<DpFlow>) -> Self {
        let copy = |c: &AtomicU64| AtomicU64::new(c.load(Ordering::Relaxed));
        Self {
            id: old.id,
            flow,
            packets: copy(&old.packets),
            bytes: copy(&old.bytes),
            used: copy(&old.used),
            tcp_flags: copy(&old.tcp_flags),
        }
    }

    /// Counts a packet of `len` bytes with these TCP flags.
    pub fn count(&self, len: usize, tcp_flags: u16, now: Millis) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        if self.used.load(Ordering::Relaxed) != now.0 {
            self.used.store(now.0, Ordering::Relaxed);
        }
        let flags = u64::from(tcp_flags);
        if self.tcp_flags.load(Ordering::Relaxed) & flags != flags {
            self.tcp_flags.fetch_or(flags, Ordering::Relaxed);
        }
    }

    /// The counters as they are now.
    pub fn stats(&self) -> DpFlowStats {
        let used = self.used.load(Ordering::Relaxed);
        DpFlowStats {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            used: (used != 0).then_some(Millis(used)),
            tcp_flags: self.tcp_flags.load(Ordering::Relaxed) as u16,
        }
    }

    /// The flow with its counters as they are now.
    pub fn entry(&self) -> DpFlowEntry {
        DpFlowEntry { id: self.id, flow: self.flow.clone(), stats: self.stats() }
    }
}

/// A set of flows that can be asked which of them covers a key.
pub trait MegaflowIndex: Default + Debug + Send + Sync {
    /// A flow of `generation` that covers `key`. Flows of other generations are passed over. Adds to `probes` how
    /// many tables were asked.
    fn lookup(&self, key: &FlowKey, generation: u64, probes: &mut u64) -> Option<&Arc<Megaflow>>;

    /// Adds a flow and returns the one of the same mask and masked key that it replaces.
    fn insert(&mut self, flow: Arc<Megaflow>) -> Option<Arc<Megaflow>>;

    /// Removes the flow that has this flow's mask, masked key and id. Returns whether it was there.
    fn remove(&mut self, flow: &Megaflow) -> bool;

    /// All flows, in no order.
    fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>>;

    /// Flows.
    fn len(&self) -> usize;

    /// Whether there is no flow.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct masks.
    fn n_masks(&self) -> usize;

    /// Puts what was asked for most in front. To be called now and then.
    fn tune(&mut self);
}

/// Tuple space search; see the module's text.
#[derive(Debug, Default)]
pub struct TupleSpace {
    tuples: Vec<Option<Tuple>>,
    /// Places in `tuples`, in the order in which they are asked.
    order: Vec<usize>,
    by_mask: HashMap<FlowMask, usize, RandomState>,
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
    fn new(mask: &FlowMask) -> Self {
        let words = mask.0.iter().enumerate().filter(|(_, bits)| **bits != 0).map(|(i, bits)| (i as u8, *bits));
        Self { words: words.collect(), flows: HashTable::new(), hits: AtomicU64::new(0) }
    }

    fn hash(&self, hasher: &RandomState, key: &FlowKey) -> u64 {
        let mut h = hasher.build_hasher();
        for (w, bits) in &self.words {
            h.write_u64(key.0[usize::from(*w)] & bits);
        }
        h.finish()
    }

    fn find(&self, hasher: &RandomState, key: &FlowKey) -> Option<&Arc<Megaflow>> {
        let hash = self.hash(hasher, key);
        let found = self.flows.find(hash, |(h, f)| *h == hash && same(&self.words, &f.flow.key, key));
        found.map(|(_, flow)| flow)
    }
}

/// Whether two keys agree in the words and bits that a mask reaches.
fn same(words: &[(u8, u64)], a: &FlowKey, b: &FlowKey) -> bool {
    words.iter().all(|(w, bits)| (a.0[usize::from(*w)] ^ b.0[usize::from(*w)]) & bits == 0)
}

impl TupleSpace {
    /// Where the tuple of `mask` stands; a new one if there is none.
    fn place_of(&mut self, mask: &FlowMask) -> usize {
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
    fn lookup(&self, key: &FlowKey, generation: u64, probes: &mut u64) -> Option<&Arc<Megaflow>> {
        for place in &self.order {
            let Some(tuple) = &self.tuples[*place] else { continue };
            *probes += 1;
            if let Some(flow) = tuple.find(&self.hasher, key)
                && flow.flow.generation == generation
            {
                tuple.hits.fetch_add(1, Ordering::Relaxed);
                return Some(flow);
            }
        }
        None
    }

    fn insert(&mut self, flow: Arc<Megaflow>) -> Option<Arc<Megaflow>> {
        let place = self.place_of(&flow.flow.mask);
        let tuple = self.tuples[place].as_mut().expect("place_of returns an occupied place");
        let hash = tuple.hash(&self.hasher, &flow.flow.key);
        let Tuple { words, flows, .. } = tuple;
        if let Some((_, old)) = flows.find_mut(hash, |(h, f)| *h == hash && same(words, &f.flow.key, &flow.flow.key)) {
            return Some(std::mem::replace(old, flow));
        }
        flows.insert_unique(hash, (hash, flow), |(h, _)| *h);
        self.n_flows += 1;
        None
    }

    fn remove(&mut self, flow: &Megaflow) -> bool {
        let Some(place) = self.by_mask.get(&flow.flow.mask).copied() else { return false };
        let Some(tuple) = self.tuples[place].as_mut() else { return false };
        let hash = tuple.hash(&self.hasher, &flow.flow.key);
        let Ok(found) = tuple.flows.find_entry(hash, |(_, f)| f.id == flow.id) else { return false };
        found.remove();
        self.n_flows -= 1;
        if tuple.flows.is_empty() {
            self.tuples[place] = None;
            self.by_mask.remove(&flow.flow.mask);
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
        self.order.len()
    }

    fn tune(&mut self) {
        let hits = |place: &usize| self.tuples[*place].as_ref().map_or(0, |t| t.hits.load(Ordering::Relaxed));
        let mut order: Vec<(u64, usize)> = self.order.iter().map(|p| (hits(p), *p)).collect();
        order.sort_by_key(|(hits, _)| std::cmp::Reverse(*hits));
        self.order = order.into_iter().map(|(_, place)| place).collect();
        for tuple in self.tuples.iter().flatten() {
            // Halved, not cleared, so that a short silence does not send a tuple to the end.
            tuple.hits.store(tuple.hits.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The twin: a list, searched from one end to the other.
    #[derive(Debug, Default)]
    struct List(Vec<Arc<Megaflow>>);

    impl List {
        fn covering(&self, key: &FlowKey, generation: u64) -> Vec<FlowId> {
            let current = self.0.iter().filter(|f| f.flow.generation == generation);
            current.filter(|f| f.flow.key.eq_masked(key, &f.flow.mask)).map(|f| f.id).collect()
        }

        fn insert(&mut self, flow: Arc<Megaflow>) -> Option<FlowId> {
            let same = |f: &Arc<Megaflow>| {
                f.flow.mask == flow.flow.mask && f.flow.key.eq_masked(&flow.flow.key, &flow.flow.mask)
            };
            let old = self.0.iter().position(same).map(|i| self.0.remove(i).id);
            self.0.push(flow);
            old
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

    /// Eight bits spread over four words.
    fn spread(bits: u8) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for i in 0..8 {
            key.0[10 * (i % 4)] |= u64::from(bits >> i & 1) << (i * 8);
        }
        key
    }

    proptest! {
        #[test]
        fn tuple_space_agrees_with_a_list(ops in prop::collection::vec(op(), 1..200)) {
            let (mut index, mut list) = (TupleSpace::default(), List::default());
            for (n, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Insert { mask, value, generation } => {
                        let (mask, value) = (spread(mask), spread(value));
                        let flow = DpFlow { key: value.masked(&mask), mask, reads: Arc::new([]), actions: Arc::new([]), generation };
                        let flow = Arc::new(Megaflow::new(FlowId(n as u64), Arc::new(flow)));
                        let old = index.insert(flow.clone()).map(|f| f.id);
                        prop_assert_eq!(old, list.insert(flow));
                    }
                    Op::Remove(i) if !list.0.is_empty() => {
                        let i = i % list.0.len();
                        let flow = list.0.remove(i);
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
                    Op::Tune => index.tune(),
                }
                let masks: std::collections::HashSet<_> = list.0.iter().map(|f| f.flow.mask.clone()).collect();
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
            let flow = DpFlow { key: mask.clone(), mask, reads: Arc::new([]), actions: Arc::new([]), generation: 0 };
            index.insert(Arc::new(Megaflow::new(FlowId(id), Arc::new(flow))));
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
