//! Staged lookup (NSDI'15, section 5.3): a tuple's words are hashed stage by stage, and after each stage except the
//! last the lookup checks whether any rule of the tuple agrees so far. Stages without a word in the mask are left out,
//! and the tuple's rule table serves as the index of the last stage.

use crate::counts::{Counts, Value};
use crate::hash::Seed;
use crate::prefixes::Lens;
use flow::Stage;
use smallvec::SmallVec;

/// The words of one stage in a mask.
#[derive(Debug)]
pub(crate) struct Part {
    /// Number of the mask's words in this stage.
    pub(crate) len: usize,
    /// The stage.
    pub(crate) stage: Stage,
    /// Index of the hashes up to this stage; `None` for the last part.
    pub(crate) index: Option<StageIndex>,
    /// Prefixes of prefix fields in this stage.
    pub(crate) prefixes: Lens,
}

impl Part {
    fn last(len: usize, stage: Stage) -> Self {
        Self { len, stage, index: None, prefixes: Lens::new() }
    }
}

/// The parts of a mask, in order.
pub(crate) type Parts = SmallVec<[Part; Stage::ALL.len()]>;

/// Splits the words of a mask, which are in key order, by stages. A mask without words has one empty part.
pub(crate) fn parts(words: impl Iterator<Item = usize>, seed: Seed) -> Parts {
    let mut parts = Parts::new();
    for word in words {
        let stage = *Stage::ALL.iter().find(|s| s.words().contains(&word)).unwrap_or(&Stage::L4);
        match parts.last_mut() {
            Some(part) if part.stage == stage => part.len += 1,
            Some(part) => {
                part.index = Some(StageIndex::new(seed));
                parts.push(Part::last(1, stage));
            }
            None => parts.push(Part::last(1, stage)),
        }
    }
    if parts.is_empty() {
        parts.push(Part::last(0, Stage::Metadata));
    }
    parts
}

/// The hashes of the rules' words up to a stage, with the number of rules of each. A collision makes a lookup go on to
/// the next stage and has no other effect.
#[derive(Debug)]
pub(crate) struct StageIndex(Counts<Hash>);

/// Half of a hash, already well distributed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Hash(u32);

impl Value for Hash {
    fn spread(self, _: Seed) -> u64 {
        self.0.into()
    }
}

impl StageIndex {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(Counts::new(seed))
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.0.contains(Hash(hash as u32))
    }

    pub(crate) fn insert(&mut self, hash: u64) {
        self.0.insert(Hash(hash as u32));
    }

    pub(crate) fn remove(&mut self, hash: u64) {
        self.0.remove(Hash(hash as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::layout;

    #[test]
    fn parts_are_the_stages_with_words() {
        let lens = |words: &[usize]| -> Vec<_> {
            parts(words.iter().copied(), Seed::new(1)).iter().map(|p| (p.len, p.stage, p.index.is_some())).collect()
        };
        assert_eq!(lens(&[]), [(0, Stage::Metadata, false)]);
        assert_eq!(lens(&[layout::IPV4]), [(1, Stage::L3, false)]);
        assert_eq!(
            lens(&[layout::PORTS, layout::ETH_DST, layout::ETH_SRC, layout::TP]),
            [(1, Stage::Metadata, true), (2, Stage::L2, true), (1, Stage::L4, false)]
        );
    }

    #[test]
    fn an_index_counts() {
        let mut index = StageIndex::new(Seed::new(1));
        index.insert(5);
        index.insert(5);
        index.remove(6);
        index.remove(5);
        assert!(index.contains(5) && !index.contains(6));
        index.remove(5);
        assert!(!index.contains(5));
    }
}
