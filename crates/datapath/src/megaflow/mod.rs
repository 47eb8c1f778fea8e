//! The index of cached verdicts: which flow covers a key.
//!
//! [`MegaflowIndex`] is the seam. Behind it stand the decision tree ([`tree`]), and tuple space search ([`tuple_space`])
//! as its twin in tests and benchmarks.

mod any;
pub mod flow;
mod share;
pub mod tree;
pub mod tuple_space;

use std::fmt::Debug;
use std::sync::Arc;

use ::flow::Words;
use smallvec::SmallVec;

pub(crate) use any::AnyIndex;
pub use any::IndexKind;

pub(crate) use self::flow::Counter;
pub use self::flow::Megaflow;
pub use tree::Tree;
pub use tuple_space::TupleSpace;

/// Keys that are looked up together at most: those of a batch of packets.
pub const BATCH: usize = packet::buf::BATCH_MAX;

/// The places of a set of bits, lowest first.
#[inline]
pub(crate) fn places(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (place < BATCH).then_some(place)
    })
}

const _: () = assert!(BATCH == u32::BITS as usize);

/// What an index answers about a key.
pub type Found<'a> = Option<&'a Arc<Megaflow>>;

/// What came of an insertion.
#[derive(Debug)]
pub struct Inserted {
    /// The flow, as it is installed.
    pub flow: Arc<Megaflow>,
    /// What it took the place of.
    pub replaced: SmallVec<[Arc<Megaflow>; 1]>,
}

/// A set of flows that can be asked which of them covers a key.
pub trait MegaflowIndex: Default + Debug + Send + Sync {
    /// A flow of `generation` that covers `key`. Flows of other generations are passed over. Adds to `probes` how
    /// many tables were asked.
    fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_>;

    /// Looks up many keys, those at the places that `asked` has bits for: faster than one after the other. Writes an answer
    /// for each to its place in `found`, and leaves the other places as they are.
    fn lookup_batch<'a, K: Words>(
        &'a self,
        keys: &[K],
        asked: u32,
        generation: u64,
        found: &mut [Found<'a>; BATCH],
        probes: &mut u64,
    ) {
        for i in places(asked) {
            found[i] = keys.get(i).and_then(|key| self.lookup(key, generation, probes));
        }
    }

    /// Adds a flow, as wide as its mask or narrower; what it replaces is out.
    fn insert(&mut self, flow: Megaflow) -> Inserted;

    /// Removes a flow. Returns whether it was there.
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

    /// Bytes of memory, with the flows' ([`Megaflow::bytes`]).
    fn bytes(&self) -> usize;

    /// Puts itself in order. To be called now and then. Returns flows that are not needed beside others, and out.
    fn tune(&mut self) -> Vec<Arc<Megaflow>>;
}
