//! Values that many flows have in common, kept once, and counted.

use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Distinct values, each with how many share it.
#[derive(Debug)]
pub(crate) struct Shared<T: ?Sized>(HashMap<Arc<T>, usize, RandomState>);

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Eq + Hash + ?Sized> Shared<T> {
    /// The one copy of `value`, which has one sharer more.
    pub(crate) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        let entry = self.0.entry(value);
        let shared = entry.key().clone();
        *entry.or_insert(0) += 1;
        shared
    }

    /// A sharer of `value` is gone.
    pub(crate) fn release(&mut self, value: &T) {
        if let Some(sharers) = self.0.get_mut(value) {
            *sharers -= 1;
            if *sharers == 0 {
                self.0.remove(value);
            }
        }
    }

    /// Distinct values.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes, of values too.
    pub(crate) fn bytes(&self, of: impl Fn(&T) -> usize) -> usize {
        // Each value stands behind two counts.
        let values = self.0.keys().map(|v| of(v) + 2 * size_of::<usize>());
        self.0.allocation_size() + values.sum::<usize>()
    }
}
