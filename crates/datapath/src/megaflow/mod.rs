//! The megaflow index: finds the flow that covers a key.
//!
//! [`MegaflowIndex`] is the interface. It is implemented by the decision tree ([`tree`]), and by tuple space search
//! ([`tuple_space`]) for comparison in tests and benchmarks. A datapath keeps an index in two copies, so that packet
//! threads read one while the other changes ([`replica`]).

pub mod flow;
mod kind;
mod replica;
mod share;
pub mod tree;
pub mod tuple_space;

use std::fmt::Debug;
use std::sync::Arc;

use ::flow::Words;
use smallvec::SmallVec;

pub use kind::IndexKind;
pub(crate) use replica::{Change, Index, Outcome, Replica, new_index};

pub(crate) use self::flow::Counter;
pub use self::flow::Megaflow;
pub use tree::Tree;
pub use tuple_space::TupleSpace;

/// Maximum number of keys looked up together: those of a packet batch.
pub const BATCH: usize = packet::buf::BATCH_MAX;

/// The positions of the bits of a set, lowest first.
#[inline(always)]
pub(crate) fn places(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        // The compiler need not know that a bit of a nonzero set has a position below `BATCH`.
        let place = set.trailing_zeros() as usize % BATCH;
        let found = set != 0;
        set &= set.wrapping_sub(1);
        found.then_some(place)
    })
}

const _: () = assert!(BATCH == u32::BITS as usize);

/// The result of a lookup.
pub type Found<'a> = Option<&'a Arc<Megaflow>>;

/// Flows that are out.
pub(crate) type Gone = SmallVec<[Arc<Megaflow>; 1]>;

/// The result of an insertion.
#[derive(Debug)]
pub struct Inserted {
    /// The flow as installed.
    pub flow: Arc<Megaflow>,
    /// The flows that it replaced.
    pub replaced: SmallVec<[Arc<Megaflow>; 1]>,
}

/// A set of flows in which keys are looked up.
pub trait MegaflowIndex: Default + Debug + Send + Sync {
    /// The flow of `generation` that covers `key`; flows of other generations are ignored. Adds the number of nodes or
    /// tables visited to `probes`.
    fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_>;

    /// Looks up the keys at the positions of the bits of `asked`, which is faster than one by one. Writes each result
    /// to the same position of `found`, and leaves other positions unchanged.
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

    /// Adds a flow with its mask, or narrowed; removes the flows that it replaces.
    fn insert(&mut self, flow: Megaflow) -> Inserted;

    /// Removes a flow. Returns whether it was present.
    fn remove(&mut self, flow: &Megaflow) -> bool;

    /// All flows, in no particular order.
    fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>>;

    /// Flows.
    fn len(&self) -> usize;

    /// Whether there are no flows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct masks.
    fn n_masks(&self) -> usize;

    /// Bytes of memory, including the flows' ([`Megaflow::bytes`]).
    fn bytes(&self) -> usize;

    /// Does maintenance; to be called periodically. Removes and returns flows that other flows make redundant.
    fn tune(&mut self) -> Vec<Arc<Megaflow>>;
}
