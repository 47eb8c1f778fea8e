//! The index of cached verdicts: which flow covers a key.
//!
//! [`MegaflowIndex`] is the seam. Behind it stand the decision tree ([`tree`]), and tuple space search ([`tuple_space`])
//! as its twin in tests and benchmarks.

mod any;
pub mod flow;
mod share;
pub mod tree;
pub mod tuple_space;

use std::borrow::Borrow;
use std::fmt::Debug;
use std::sync::Arc;

use ::flow::FlowKey;
use smallvec::SmallVec;

pub(crate) use any::AnyIndex;
pub use any::IndexKind;

pub use self::flow::Megaflow;
pub use tree::Tree;
pub use tuple_space::TupleSpace;

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
    fn lookup(&self, key: &FlowKey, generation: u64, probes: &mut u64) -> Found<'_>;

    /// Looks up many keys: faster than one after the other. Writes an answer for each key to the same place of `found`
    /// (as many as the shorter of both has); where there is an answer already, the key is passed over.
    fn lookup_batch<'a, K: Borrow<FlowKey>>(
        &'a self,
        keys: &[K],
        generation: u64,
        found: &mut [Found<'a>],
        probes: &mut u64,
    ) {
        for (key, found) in keys.iter().zip(found).filter(|(_, found)| found.is_none()) {
            *found = self.lookup(key.borrow(), generation, probes);
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
