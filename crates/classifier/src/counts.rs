//! Values with the number of times each is there, for indexes that a look-up asks "is there any?".
//!
//! One array, searched from the place of a value's hash on: what an operation touches is one cache line, mostly, where a
//! table with its tags apart takes two.
//!
//! Invariants: a place with a count of 0 is free; at most four in five are taken; between the place of a value's hash and
//! the value itself none is free.

use crate::hash::Seed;

/// What can be counted.
pub(crate) trait Value: Copy + Eq + Default {
    /// A number whose lower bits tell values apart.
    fn spread(self, seed: Seed) -> u64;
}

impl Value for u32 {
    fn spread(self, seed: Seed) -> u64 {
        seed.one(self.into())
    }
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Counts<K> {
    /// None, or a power of two.
    slots: Vec<(K, u32)>,
    used: usize,
    seed: Seed,
}

/// Places of a table that has any, at least.
const MIN_SLOTS: usize = 4;

impl<K: Value> Counts<K> {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { slots: Vec::new(), used: 0, seed }
    }

    /// How many different values there are.
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
        let mut at = self.home(value);
        loop {
            match self.slots[at] {
                (_, 0) => return false,
                (there, _) if there == value => return true,
                _ => at = (at + 1) & last,
            }
        }
    }

    /// Adds a value once, and returns how often it is there now.
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

    /// Takes a value away once, and returns how often it is there still, if it was there.
    pub(crate) fn remove(&mut self, value: K) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        let at = self.find(value);
        let n = self.slots[at].1.checked_sub(1)?;
        self.slots[at].1 = n;
        if n == 0 {
            self.used -= 1;
            self.close(at);
        }
        Some(n)
    }

    /// Where a value is, or where it would go. (There are places, and one of them is free.)
    fn find(&self, value: K) -> usize {
        let last = self.slots.len() - 1;
        let mut at = self.home(value);
        loop {
            match self.slots[at] {
                (there, n) if n > 0 && there != value => at = (at + 1) & last,
                _ => return at,
            }
        }
    }

    fn home(&self, value: K) -> usize {
        value.spread(self.seed) as usize & (self.slots.len() - 1)
    }

    /// Place `gap` became free: those behind it that are not at home move up.
    fn close(&mut self, mut gap: usize) {
        let last = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & last;
            let (value, n) = self.slots[at];
            if n == 0 {
                return;
            }
            let from_home = at.wrapping_sub(self.home(value)) & last;
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
