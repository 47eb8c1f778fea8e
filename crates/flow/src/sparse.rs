//! Compressed keys and masks.

use crate::FlowKey;
use crate::layout::WORDS;
use std::sync::Arc;

/// A key or mask by its nonzero words. Clones share the words.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sparse {
    /// Bitmap of the nonzero words.
    map: [u64; 2],
    words: Arc<[u64]>,
}

const _: () = assert!(WORDS > 64 && WORDS <= 128);

/// Words tested together.
const GROUP: usize = 4;

impl Sparse {
    /// The words of `key` that are not zero.
    pub fn new(key: &FlowKey) -> Self {
        let mut map = [0; 2];
        let mut mark = |group: usize, words: &[u64]| {
            // Most are zero.
            if words.iter().fold(0, |any, word| any | word) != 0 {
                let bits = words.iter().rev().fold(0, |bits, word| bits << 1 | u64::from(*word != 0));
                map[group * GROUP / 64] |= bits << (group * GROUP % 64);
            }
        };
        let (groups, last) = key.0.as_chunks::<GROUP>();
        for (group, words) in groups.iter().enumerate() {
            mark(group, words);
        }
        mark(groups.len(), last);
        let mut left = map;
        // The iterator's exact length lets the words be collected into the `Arc` without a copy.
        let n = (map[0].count_ones() + map[1].count_ones()) as usize;
        let words = (0..n).map(|_| {
            let half = usize::from(left[0] == 0);
            let at = left[half].trailing_zeros() as usize + 64 * half;
            left[half] &= left[half].wrapping_sub(1);
            key.0.get(at).copied().unwrap_or(0)
        });
        let words = words.collect();
        Self { map, words }
    }

    /// A word.
    pub fn word(&self, i: usize) -> u64 {
        let (half, bit) = (i / 64, 1u64 << (i % 64));
        if self.map[half] & bit == 0 {
            return 0;
        }
        let before = (self.map[half] & (bit - 1)).count_ones() + if half == 1 { self.map[0].count_ones() } else { 0 };
        self.words[before as usize]
    }

    /// The nonzero words in ascending order, with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        let mut map = self.map;
        self.words.iter().map(move |word| {
            let half = usize::from(map[0] == 0);
            let at = map[half].trailing_zeros() as usize + 64 * half;
            map[half] &= map[half].wrapping_sub(1);
            (at, *word)
        })
    }

    /// The bits under a mask: for each nonzero word of the mask its index, its bits, and the value under them.
    pub fn in_mask(&self, mask: &Self) -> impl Iterator<Item = (usize, u64, u64)> {
        let mut own = self.iter();
        let mut next = own.next();
        mask.iter().map(move |(at, bits)| {
            while next.is_some_and(|(i, _)| i < at) {
                next = own.next();
            }
            (at, bits, next.filter(|(i, _)| *i == at).map_or(0, |(_, word)| word & bits))
        })
    }

    /// Number of nonzero words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether all words are zero.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// All words.
    pub fn expand(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        self.put_into(&mut key);
        key
    }

    /// Writes the nonzero words into `key`.
    pub fn put_into(&self, key: &mut FlowKey) {
        for (i, word) in self.iter() {
            key.0[i] = word;
        }
    }

    /// Bytes on the heap, which clones share.
    pub fn heap_bytes(&self) -> usize {
        (2 + self.words.len()) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    #[test]
    fn a_key_comes_back_word_by_word() {
        let mut rng = Rng::seeded(7);
        for n in 0..200 {
            let mut key = FlowKey::ZERO;
            for _ in 0..n {
                key.0[rng.below(WORDS as u64) as usize] = rng.next_u64();
            }
            let sparse = Sparse::new(&key);
            assert_eq!(sparse.expand(), key);
            assert!((0..WORDS).all(|i| sparse.word(i) == key.0[i]));
            let words: Vec<_> = key.0.iter().copied().enumerate().filter(|(_, w)| *w != 0).collect();
            assert_eq!(sparse.iter().collect::<Vec<_>>(), words);
            assert_eq!((sparse.len(), sparse.is_empty()), (words.len(), words.is_empty()));
            let mut mask = FlowKey::ZERO;
            for _ in 0..rng.below(100) {
                mask.0[rng.below(WORDS as u64) as usize] = rng.next_u64();
            }
            let bits = mask.0.iter().zip(&key.0).enumerate().filter(|(_, (m, _))| **m != 0);
            let there: Vec<_> = bits.map(|(i, (m, w))| (i, *m, m & w)).collect();
            assert_eq!(sparse.in_mask(&Sparse::new(&mask)).collect::<Vec<_>>(), there);
        }
    }
}
