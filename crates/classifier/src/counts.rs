//! A multiset of values, for indexes that a lookup asks whether a value is present.
//!
//! It is one array with linear probing from the value's hash: an operation typically touches one cache line, while a
//! table with separate tags takes two.
//!
//! Invariants: a slot with a count of 0 is free; at most four in five slots are used; no slot between a value's hash
//! slot and the value is free.

use crate::hash::Seed;

/// A value that can be counted.
pub(crate) trait Value: Copy + Eq + Default {
    /// A hash whose lower bits distinguish values.
    fn spread(self, seed: Seed) -> u64;
}

impl Value for u32 {
    fn spread(self, seed: Seed) -> u64 {
        seed.one(self.into())
    }
}

/// The multiset; see the module documentation.
#[derive(Debug)]
pub(crate) struct Counts<K> {
    /// The length is 0 or a power of two.
    slots: Vec<(K, u32)>,
    used: usize,
    seed: Seed,
}

/// Minimum number of slots of a non-empty table.
const MIN_SLOTS: usize = 4;

impl<K: Value> Counts<K> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { slots: Vec::new(), used: 0, seed }
    }

    /// Number of distinct values.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// All values, each once.
    pub(crate) fn values(&self) -> impl Iterator<Item = K> {
        self.slots.iter().filter(|(_, n)| *n > 0).map(|(value, _)| *value)
    }

    pub(crate) fn contains(&self, value: K) -> bool {
        if self.used == 0 {
            return false;
        }
        let last = self.slots.len() - 1;
        let mut at = self.hash_slot(value);
        loop {
            match self.slots[at] {
                (_, 0) => return false,
                (there, _) if there == value => return true,
                _ => at = (at + 1) & last,
            }
        }
    }

    /// Adds a value once, and returns its new count.
    pub(crate) fn insert(&mut self, value: K) -> u32 {
        if 5 * (self.used + 1) > 4 * self.slots.len() {
            self.grow();
        }
        let at = self.find(value);
        let (there, n) = &mut self.slots[at];
        *there = value;
        *n += 1;
        let n = *n;
        self.used += usize::from(n == 1);
        n
    }

    /// Removes a value once, and returns its remaining count; `None` if it was not present.
    pub(crate) fn remove(&mut self, value: K) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        let at = self.find(value);
        let n = self.slots[at].1.checked_sub(1)?;
        self.slots[at].1 = n;
        if n == 0 {
            self.used -= 1;
            self.fill_gap(at);
        }
        Some(n)
    }

    /// The slot of a value, or the slot where it would go. (The table has at least one free slot.)
    fn find(&self, value: K) -> usize {
        let last = self.slots.len() - 1;
        let mut at = self.hash_slot(value);
        loop {
            match self.slots[at] {
                (there, n) if n > 0 && there != value => at = (at + 1) & last,
                _ => return at,
            }
        }
    }

    fn hash_slot(&self, value: K) -> usize {
        value.spread(self.seed) as usize & (self.slots.len() - 1)
    }

    /// Backward-shift deletion: moves values behind slot `gap` forward if they are not in their hash slot.
    fn fill_gap(&mut self, mut gap: usize) {
        let last = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & last;
            let (value, n) = self.slots[at];
            if n == 0 {
                return;
            }
            let from_home = at.wrapping_sub(self.hash_slot(value)) & last;
            if from_home >= at.wrapping_sub(gap) & last {
                self.slots[gap] = (value, n);
                self.slots[at].1 = 0;
                gap = at;
            }
        }
    }

    fn grow(&mut self) {
        let n = (2 * self.slots.len()).max(MIN_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![(K::default(), 0); n]);
        for (value, n) in old.into_iter().filter(|(_, n)| *n > 0) {
            let at = self.find(value);
            self.slots[at] = (value, n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    tally::proptest! {
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec((any::<bool>(), 0..40u32), 0..300)) {
            let mut counts = Counts::new(Seed::new(1));
            let mut map: BTreeMap<u32, u32> = BTreeMap::new();
            for (add, value) in ops {
                if add {
                    let n = map.entry(value).or_default();
                    *n += 1;
                    prop_assert_eq!(counts.insert(value), *n);
                } else {
                    let left = map.get(&value).map(|n| n - 1);
                    prop_assert_eq!(counts.remove(value), left);
                    match left {
                        Some(0) => drop(map.remove(&value)),
                        Some(n) => drop(map.insert(value, n)),
                        None => {}
                    }
                }
                prop_assert_eq!(counts.len(), map.len());
                (0..40).for_each(|v| assert_eq!(counts.contains(v), map.contains_key(&v)));
            }
            let mut values: Vec<_> = counts.values().collect();
            values.sort_unstable();
            prop_assert_eq!(values, map.into_keys().collect::<Vec<_>>());
        }
    }
}
