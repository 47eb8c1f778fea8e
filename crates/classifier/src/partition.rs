//! Partitions by metadata. A pipeline that keeps its state in `metadata` gives nearly every rule an exact match on it.
//! For a tuple with an exact match on `metadata`, the partition stores the values of its rules, and a packet with
//! another value skips the tuple.
//!
//! The answer is nearly always negative, so the table stores its tags separately and a lookup touches little else.

use crate::hash::Seed;
use flow::{FlowKey, Reads, layout};
use hashbrown::HashTable;

/// The values of `metadata` in the rules of a tuple, with the number of rules of each.
#[derive(Debug)]
pub(crate) struct Partition {
    values: HashTable<(u64, u32)>,
    seed: Seed,
}

impl Partition {
    /// The partition of a tuple with the mask `words`, and the index of `metadata` among them; `None` unless the mask
    /// has all of `metadata`.
    pub(crate) fn new(words: impl Iterator<Item = (usize, u64)>, seed: Seed) -> Option<(usize, Self)> {
        let at = words.enumerate().find(|(_, word)| *word == (layout::METADATA, u64::MAX))?.0;
        Some((at, Self { values: HashTable::new(), seed }))
    }

    /// Whether no rule of the tuple has the metadata of `key`. Records that it was read.
    pub(crate) fn excludes(&self, key: &FlowKey, reads: &mut Reads) -> bool {
        reads.note(layout::METADATA, u64::MAX);
        let metadata = key.0[layout::METADATA];
        self.values.find(self.seed.one(metadata), |(value, _)| *value == metadata).is_none()
    }

    pub(crate) fn insert(&mut self, metadata: u64) {
        let seed = self.seed;
        let hash = seed.one(metadata);
        match self.values.find_mut(hash, |(value, _)| *value == metadata) {
            Some((_, n)) => *n += 1,
            None => {
                self.values.insert_unique(hash, (metadata, 1), |(value, _)| seed.one(*value));
            }
        }
    }

    pub(crate) fn remove(&mut self, metadata: u64) {
        if let Ok(mut entry) = self.values.find_entry(self.seed.one(metadata), |(value, _)| *value == metadata) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}
