//! The hash of a key's words: one multiplication for each word, with a secret start value and factor.

use base::mix::fold;

/// The secret seed of a classifier's hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    /// The hash of no words.
    pub(crate) start: u64,
    factor: u64,
}

/// Alternate bits of each factor are taken from this constant, so that no factor is weak.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const RANDOM: u64 = 0x5555_5555_5555_5554;

impl Seed {
    pub(crate) fn new(seed: u64) -> Self {
        let start = fold(seed ^ 0xd1b5_4a32_d192_ed03, FACTOR);
        let random = fold(start ^ 0xabc9_8388_fb8f_ac03, FACTOR);
        Self { start, factor: FACTOR ^ random & RANDOM }
    }

    /// Extends `hash` by one word.
    pub(crate) fn add(self, hash: u64, word: u64) -> u64 {
        fold(hash ^ word, self.factor)
    }

    /// The hash of one word.
    pub(crate) fn one(self, word: u64) -> u64 {
        self.add(self.start, word)
    }

    /// Extends `hash` by all `words`.
    pub(crate) fn all(self, hash: u64, words: &[u64]) -> u64 {
        words.iter().fold(hash, |hash, word| self.add(hash, *word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_bit_changes_both_ends_of_the_hash() {
        for n in 0..20 {
            let seed = Seed::new(n);
            let words: Vec<u64> = (0..64).flat_map(|shift| (1..16).map(move |v: u64| v.rotate_left(shift))).collect();
            let different: HashSet<u64> = words.into_iter().collect();
            let ends = [0, 57].map(|shift| {
                let mut found = [0; 128];
                different.iter().for_each(|w| found[(seed.one(*w) >> shift) as usize & 127] += 1);
                found.into_iter().max()
            });
            assert!(ends.iter().all(|most| *most < Some(40)), "{ends:?} of {}", different.len());
            assert_ne!(seed.all(seed.start, &[1, 2]), seed.all(seed.start, &[2, 1]));
        }
    }
}
