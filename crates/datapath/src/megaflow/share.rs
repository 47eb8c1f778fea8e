//! Reference-counted sharing of equal reads, masks and lists of actions.
//!
//! The switch above keeps flows in shards, and each shard brings its own copy of equal lists of actions. The index keeps
//! one copy, so that a comparison of pointers finds packets with equal actions ([`crate::group`]).

use std::sync::Arc;

use dpif::DpActions;
use flow::{Sparse, Steps};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Masks with the number of their users.
#[derive(Debug, Default)]
struct SharedMasks(HashMap<Sparse, usize, RandomState>);

impl SharedMasks {
    /// The shared copy of `mask`, with one more user.
    fn share(&mut self, mask: Sparse) -> Sparse {
        let entry = self.0.entry(mask);
        let shared = entry.key().clone();
        *entry.or_insert(0) += 1;
        shared
    }

    /// Removes a user of `mask`.
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

/// The users of equal reads.
#[derive(Clone, Copy, Debug, Default)]
struct Sharers {
    flows: usize,
    /// Flows whose mask is exactly that of the reads.
    wide: usize,
}

/// The reads, masks and actions that the flows of an index share.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    reads: HashMap<Arc<Steps>, Sharers, RandomState>,
    /// Lists of actions with the number of their flows.
    actions: HashMap<DpActions, usize, RandomState>,
    /// Masks of flows. The mask of reads counts once, however many flows have exactly that mask.
    masks: SharedMasks,
}

impl Lists {
    /// The shared copy of `reads`, with one more flow, whose mask is that of the reads.
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

    /// The shared copy of `actions`, with one more flow.
    pub(crate) fn share_actions(&mut self, actions: &DpActions) -> DpActions {
        if let Some((shared, flows)) = self.actions.get_key_value_mut(actions) {
            *flows += 1;
            return Arc::clone(shared);
        }
        self.actions.insert(Arc::clone(actions), 1);
        Arc::clone(actions)
    }

    /// Removes a flow with these actions and reads, narrowed or not.
    pub(crate) fn release(&mut self, reads: &Steps, narrowed: Option<&Sparse>, actions: &DpActions) {
        if let Some(flows) = self.actions.get_mut(actions) {
            *flows -= 1;
            if *flows == 0 {
                self.actions.remove(actions);
            }
        }
        self.no_longer(reads, narrowed);
        if let Some(sharers) = self.reads.get_mut(reads) {
            sharers.flows -= 1;
            if sharers.flows == 0 {
                self.reads.remove(reads);
            }
        }
    }

    /// Changes the mask of a flow with these reads from `before` to `mask`; `None` stands for the mask of the reads.
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

    /// Distinct lists of actions.
    #[cfg(test)]
    pub(crate) fn n_actions(&self) -> usize {
        self.actions.len()
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        // Each list has two reference counts in front.
        let lists = self.reads.keys().map(|list| list.bytes() + 2 * size_of::<usize>());
        self.reads.allocation_size() + lists.sum::<usize>() + self.masks.bytes() + self.actions.allocation_size()
    }
}
