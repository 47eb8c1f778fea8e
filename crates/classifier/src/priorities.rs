//! The priorities of a tuple's rules, and their maximum.
//!
//! A heap maintains the order lazily: a priority is pushed with its first rule and stays after its last rule was
//! removed, unless it is on top. So a change typically appends to an array, where a search tree would follow a path of
//! nodes.
//!
//! Invariants: the heap contains all current priorities; the priority on its top is current.

use crate::counts::Counts;
use crate::hash::Seed;
use std::collections::BinaryHeap;

/// The priorities; see the module documentation.
#[derive(Debug)]
pub(crate) struct Priorities {
    /// Number of rules of each priority.
    counts: Counts<u32>,
    heap: BinaryHeap<u32>,
}

/// Number of stale priorities that the heap may hold in addition to as many as there are current ones.
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

    /// Adds a rule of this priority.
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

    /// Removes a rule of this priority.
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
    fn repeated_insertion_and_removal_does_not_grow() {
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
