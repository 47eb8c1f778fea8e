//! The priorities of a tuple's rules, and the highest of them.
//!
//! A heap keeps the order lazily: a priority goes into it when its first rule comes, and stays when its last rule goes,
//! unless it is on top. So a change appends to an array, where a search tree would lead it through all of its levels.
//!
//! Invariants: all priorities that are there are in the heap; the one on its top is there.

use crate::counts::Counts;
use crate::hash::Seed;
use std::collections::BinaryHeap;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Priorities {
    /// How many rules have each.
    counts: Counts<u32>,
    heap: BinaryHeap<u32>,
}

/// What the heap may hold of priorities that are gone, beside as many as there are.
const STALE: usize = 32;

impl Priorities {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { counts: Counts::new(seed), heap: BinaryHeap::new() }
    }

    /// The highest.
    pub(crate) fn max(&self) -> Option<u32> {
        self.heap.peek().copied()
    }

    pub(crate) fn contains(&self, priority: u32) -> bool {
        self.counts.contains(priority)
    }

    /// One rule more has this priority.
    pub(crate) fn insert(&mut self, priority: u32) {
        if self.counts.insert(priority) > 1 {
            return;
        }
        if self.heap.len() >= 2 * self.counts.len() + STALE {
            self.heap = self.counts.values().collect();
        } else {
            self.heap.push(priority);
        }
    }

    /// One rule less has it.
    pub(crate) fn remove(&mut self, priority: u32) {
        if self.counts.remove(priority) == Some(0) {
            while let Some(top) = self.heap.peek()
                && !self.counts.contains(*top)
            {
                self.heap.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    tally::proptest! {
        #[test]
        fn agrees_with_a_list(ops in prop::collection::vec((any::<bool>(), 0..20u32), 0..400)) {
            let mut priorities = Priorities::new(Seed::new(1));
            let mut list: Vec<u32> = Vec::new();
            for (add, priority) in ops {
                if add {
                    priorities.insert(priority);
                    list.push(priority);
                } else if let Some(at) = list.iter().position(|p| *p == priority) {
                    list.swap_remove(at);
                    priorities.remove(priority);
                }
                prop_assert_eq!(priorities.max(), list.iter().max().copied());
                (0..20).for_each(|p| assert_eq!(priorities.contains(p), list.contains(&p)));
                prop_assert!(priorities.heap.len() <= 2 * priorities.counts.len() + STALE + 40);
            }
        }
    }

    #[test]
    fn one_that_comes_and_goes_takes_no_memory() {
        let mut priorities = Priorities::new(Seed::new(1));
        priorities.insert(9);
        for n in 0..1000 {
            priorities.insert(n % 7);
            priorities.remove(n % 7);
        }
        assert!(priorities.heap.len() <= 2 * 2 + STALE);
        priorities.remove(9);
        assert_eq!((priorities.max(), priorities.heap.len()), (None, 0));
    }
}
