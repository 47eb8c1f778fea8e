//! The index of a datapath, of the kind that its configuration names.

use std::sync::Arc;

use flow::Words;

use super::{BATCH, Found, Inserted, Megaflow, MegaflowIndex, Tree, TupleSpace};

/// Which structure finds flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexKind {
    /// [`TupleSpace`].
    TupleSpace,
    /// [`Tree`]: by measurement the faster one wherever there are more masks than one (`examples/index.rs`).
    #[default]
    Tree,
}

/// An index of either kind.
#[derive(Debug)]
pub(crate) enum AnyIndex {
    TupleSpace(TupleSpace),
    Tree(Box<Tree>),
}

macro_rules! either {
    ($self:expr, $index:ident => $what:expr) => {
        match $self {
            AnyIndex::TupleSpace($index) => $what,
            AnyIndex::Tree($index) => $what,
        }
    };
}

impl AnyIndex {
    pub(crate) fn new(kind: IndexKind) -> Self {
        match kind {
            IndexKind::TupleSpace => Self::TupleSpace(TupleSpace::default()),
            IndexKind::Tree => Self::Tree(Box::default()),
        }
    }

    pub(crate) fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        either!(self, index => index.lookup(key, generation, probes))
    }

    pub(crate) fn lookup_batch<'a, K: Words>(
        &'a self,
        keys: &[K],
        asked: u32,
        generation: u64,
        found: &mut [Found<'a>; BATCH],
        probes: &mut u64,
    ) {
        either!(self, index => index.lookup_batch(keys, asked, generation, found, probes));
    }

    pub(crate) fn insert(&mut self, flow: Megaflow) -> Inserted {
        either!(self, index => index.insert(flow))
    }

    pub(crate) fn remove(&mut self, flow: &Megaflow) -> bool {
        either!(self, index => index.remove(flow))
    }

    pub(crate) fn len(&self) -> usize {
        either!(self, index => index.len())
    }

    pub(crate) fn n_masks(&self) -> usize {
        either!(self, index => index.n_masks())
    }

    pub(crate) fn tune(&mut self) -> Vec<Arc<Megaflow>> {
        either!(self, index => index.tune())
    }

    /// Whether [`AnyIndex::tune`] has more to do.
    pub(crate) fn is_untidy(&self) -> bool {
        matches!(self, Self::Tree(tree) if tree.is_rebuilding())
    }
}
