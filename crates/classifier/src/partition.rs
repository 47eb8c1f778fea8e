//! Partitions by metadata: a pipeline that keeps its state in `metadata` gives nearly every rule an exact match on it. Of
//! a tuple whose rules all have one, the values are kept, and a packet with none of these passes the tuple over.

use flow::{FlowKey, Reads, layout};
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// The values of `metadata` in the rules of a tuple, each with the number of rules that have it.
#[derive(Debug)]
pub(crate) struct Partition(HashMap<u64, u32, FixedState>);

impl Partition {
    /// For a tuple whose mask is `words`, if it matches `metadata` exactly; also where that stands among the words.
    pub(crate) fn new(words: impl Iterator<Item = (usize, u64)>, hasher: &FixedState) -> Option<(usize, Self)> {
        let at = words.enumerate().find(|(_, word)| *word == (layout::METADATA, u64::MAX))?.0;
        Some((at, Self(HashMap::with_hasher(hasher.clone()))))
    }

    /// Whether no rule of the tuple is for the metadata of `key`, of which that is read.
    pub(crate) fn excludes(&self, key: &FlowKey, reads: &mut Reads) -> bool {
        reads.note(layout::METADATA, u64::MAX);
        !self.0.contains_key(&key.0[layout::METADATA])
    }

    pub(crate) fn insert(&mut self, metadata: u64) {
        *self.0.entry(metadata).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, metadata: u64) {
        if let Some(n) = self.0.get_mut(&metadata) {
            *n -= 1;
            if *n == 0 {
                self.0.remove(&metadata);
            }
        }
    }
}
