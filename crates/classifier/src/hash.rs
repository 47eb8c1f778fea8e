//! The hash of a key's words: one multiplication a word, from a start and by a factor that nobody outside knows.

use base::mix::fold;

/// How to hash. Each classifier has one of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    /// The hash of no words.
    pub(crate) start: u64,
    factor: u64,
}

/// Every other bit of a factor is from here, so that none is weak.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const RANDOM: u64 = 0x5555_5555_5555_5554;

impl Seed {
    pub(crate) fn new(seed: u64) -> Self {
        let start = fold(seed ^ 0xd1b5_4a32_d192_ed03, FACTOR);
        let random = fold(start ^ 0xabc9_8388_fb8f_ac03, FACTOR);
        Self { start, factor: FACTOR ^ random & RANDOM }
    }

    /// The hash of the words of `hash` and one more.
    pub(crate) fn add(self, hash: u64, word: u64) -> u64 {
        fold(hash ^ word, self.factor)
    }

    /// The hash of one word.
    pub(crate) fn one(self, word: u64) -> u64 {
        self.add(self.start, word)
    }

    /// The hash of all words, of which `hash` is that of those before.
    pub(crate) fn all(self, hash: u64, words: &[u64]) -> u64 {
        words.iter().fold(hash, |hash, word| self.add(hash, *word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn bits_anywhere_spread_to_both_ends() {
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
