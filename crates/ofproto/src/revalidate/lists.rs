//! Lists of actions that flows share: packets whose flows have the same list run through it together, which the datapath knows by
//! the list's address.
//!
//! Invariant: of equal lists, the table holds one; a list that no flow has any more goes when the table has doubled.

use base::mix::chain;
use dpif::{DpAction, DpActions};
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Parts of the table, each with a lock of its own.
const PARTS: usize = 16;
/// A part is not searched for unused lists below this number of lists.
const SWEPT_MIN: usize = 64;

/// The lists of all flows but those that seldom equal another one's.
#[derive(Debug, Default)]
pub(super) struct ActionLists {
    parts: [Mutex<Part>; PARTS],
}

#[derive(Debug, Default)]
struct Part {
    /// Lists by their hashes.
    lists: HashTable<(u64, DpActions)>,
    /// The number of lists at which unused ones are removed.
    sweep_at: usize,
}

impl ActionLists {
    /// The shared list that equals this one.
    pub(super) fn share(&self, actions: Vec<DpAction>) -> DpActions {
        let hash = hash_of(&actions);
        self.parts[hash as usize >> 7 & (PARTS - 1)].lock().share(hash, actions)
    }
}

impl Part {
    fn share(&mut self, hash: u64, actions: Vec<DpAction>) -> DpActions {
        if let Some((_, known)) = self.lists.find(hash, |(h, known)| *h == hash && known[..] == *actions) {
            return Arc::clone(known);
        }
        if self.lists.len() >= self.sweep_at {
            self.lists.retain(|(_, list)| Arc::strong_count(list) > 1);
            self.sweep_at = (2 * self.lists.len()).max(SWEPT_MIN);
        }
        let list = DpActions::from(actions);
        self.lists.insert_unique(hash, (hash, Arc::clone(&list)), |(h, _)| *h);
        list
    }
}

/// Hashes the elements of a list.
pub(super) fn hash_of(list: &[impl Hash]) -> u64 {
    struct Folded(u64);
    impl Hasher for Folded {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
        }
        fn write_u64(&mut self, word: u64) {
            self.0 = chain(self.0, word, 0x9e37_79b9_7f4a_7c15);
        }
        fn write_u32(&mut self, word: u32) {
            self.write_u64(word.into());
        }
        fn write_usize(&mut self, word: usize) {
            self.write_u64(word as u64);
        }
    }
    let mut hasher = Folded(list.len() as u64);
    list.iter().for_each(|element| element.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DpPort;
    use base::rng::Rng;

    fn list(n: u32) -> Vec<DpAction> {
        (0..=n % 5).map(|at| DpAction::Output(DpPort(n / 5 + at))).collect()
    }

    fn len(lists: &ActionLists) -> usize {
        lists.parts.iter().map(|part| part.lock().lists.len()).sum()
    }

    #[test]
    fn equal_lists_are_one() {
        let (lists, mut rng) = (ActionLists::default(), Rng::seeded(1));
        let kept: Vec<(u32, DpActions)> =
            (0..20_000).map(|_| rng.below(4000) as u32).map(|n| (n, lists.share(list(n)))).collect();
        let mut known: std::collections::HashMap<u32, DpActions> = kept.iter().cloned().collect();
        for (n, shared) in &kept {
            assert_eq!(shared[..], list(*n));
            assert!(Arc::ptr_eq(shared, &known[n]));
        }
        assert_eq!(len(&lists), known.len());
        // Unused ones go when others come.
        known.retain(|n, _| *n < 100);
        drop(kept);
        (10_000..30_000).for_each(|n| drop(lists.share(list(n))));
        assert!(len(&lists) <= 100 + PARTS * SWEPT_MIN * 2, "{}", len(&lists));
        assert!(known.iter().all(|(n, shared)| Arc::ptr_eq(shared, &lists.share(list(*n)))));
    }
}
