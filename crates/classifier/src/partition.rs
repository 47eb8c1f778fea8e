//! Partitions by metadata: a pipeline that keeps its state in `metadata` gives nearly every rule an exact match on it. Of
//! a tuple whose rules all have one, the values are kept, and a packet with none of these passes the tuple over.

use crate::counts::Counts;
use flow::{FlowKey, Reads, layout};
use foldhash::fast::FixedState;

/// The values of `metadata` in the rules of a tuple, each with the number of rules that have it.
#[derive(Debug)]
pub(crate) struct Partition(Counts<u64>);

impl Partition {
    /// For a tuple whose mask is `words`, if it matches `metadata` exactly; also where that stands among the words.
    pub(crate) fn new(words: impl Iterator<Item = (usize, u64)>, hasher: &FixedState) -> Option<(usize, Self)> {
        let at = words.enumerate().find(|(_, word)| *word == (layout::METADATA, u64::MAX))?.0;
        Some((at, Self(Counts::new(hasher))))
    }

    /// Whether no rule of the tuple is for the metadata of `key`, of which that is read.
    pub(crate) fn excludes(&self, key: &FlowKey, reads: &mut Reads) -> bool {
        reads.note(layout::METADATA, u64::MAX);
        !self.0.contains(key.0[layout::METADATA])
    }

    pub(crate) fn insert(&mut self, metadata: u64) {
        self.0.insert(metadata);
    }

    pub(crate) fn remove(&mut self, metadata: u64) {
        self.0.remove(metadata);
    }
}
