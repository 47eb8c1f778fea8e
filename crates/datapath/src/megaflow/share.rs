//! What many flows have in common, kept once, and counted.

use std::sync::Arc;

use flow::{Sparse, Steps};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Masks, each with how many share it.
#[derive(Debug, Default)]
struct Shared(HashMap<Sparse, usize, RandomState>);

impl Shared {
    /// The one copy of `mask`, which has one sharer more.
    fn share(&mut self, mask: Sparse) -> Sparse {
        let entry = self.0.entry(mask);
        let shared = entry.key().clone();
        *entry.or_insert(0) += 1;
        shared
    }

    /// A sharer of `mask` is gone.
    fn release(&mut self, mask: &Sparse) {
        if let Some(sharers) = self.0.get_mut(mask) {
            *sharers -= 1;
            if *sharers == 0 {
                self.0.remove(mask);
            }
        }
    }

    /// Bytes.
    fn bytes(&self) -> usize {
        self.0.allocation_size() + self.0.keys().map(Sparse::heap_bytes).sum::<usize>()
    }
}

/// Flows with the same reads.
#[derive(Clone, Copy, Debug, Default)]
struct Sharers {
    flows: usize,
    /// Those of them that match no more than they read.
    wide: usize,
}

/// What the flows of an index have in common.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    reads: HashMap<Arc<Steps>, Sharers, RandomState>,
    /// What flows match: the mask of reads counts once, however many flows match just that.
    masks: Shared,
}

impl Lists {
    /// The one copy of these reads, for one flow more, which matches what it reads.
    pub(crate) fn share(&mut self, reads: Arc<Steps>) -> Arc<Steps> {
        let entry = self.reads.entry(reads);
        let shared = entry.key().clone();
        let sharers = entry.or_default();
        sharers.flows += 1;
        sharers.wide += 1;
        if sharers.wide == 1 {
            self.masks.share(shared.mask().clone());
        }
        shared
    }

    /// A flow with these reads, narrowed or not, is gone.
    pub(crate) fn release(&mut self, reads: &Steps, narrowed: Option<&Sparse>) {
        self.no_longer(reads, narrowed);
        if let Some(sharers) = self.reads.get_mut(reads) {
            sharers.flows -= 1;
            if sharers.flows == 0 {
                self.reads.remove(reads);
            }
        }
    }

    /// A flow with these reads that was narrowed to `before`, or not narrowed, is to match `mask`, or just what it reads.
    pub(crate) fn narrow(&mut self, reads: &Steps, before: Option<&Sparse>, mask: Option<Sparse>) -> Option<Sparse> {
        self.no_longer(reads, before);
        if mask.is_none()
            && let Some(sharers) = self.reads.get_mut(reads)
        {
            sharers.wide += 1;
            if sharers.wide == 1 {
                self.masks.share(reads.mask().clone());
            }
        }
        mask.map(|mask| self.masks.share(mask))
    }

    fn no_longer(&mut self, reads: &Steps, narrowed: Option<&Sparse>) {
        if let Some(mask) = narrowed {
            self.masks.release(mask);
        } else if let Some(sharers) = self.reads.get_mut(reads) {
            sharers.wide -= 1;
            if sharers.wide == 0 {
                self.masks.release(reads.mask());
            }
        }
    }

    /// Distinct masks.
    pub(crate) fn n_masks(&self) -> usize {
        self.masks.0.len()
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        // Each list stands behind two counts.
        let lists = self.reads.keys().map(|list| list.bytes() + 2 * size_of::<usize>());
        self.reads.allocation_size() + lists.sum::<usize>() + self.masks.bytes()
    }
}
