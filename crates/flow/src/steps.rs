//! Recorded reads in compressed form, shared by all flows with the same reads.

use crate::layout::WORDS;
use crate::{FlowKey, FlowMask, Sparse, Step};
use base::mix::chain;
use base::rng::Rng;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::OnceLock;

/// Steps in order, with the mask of all bits that they read. Dereferences to the steps.
#[derive(Debug)]
pub struct Steps {
    hash: u64,
    mask: Sparse,
    list: Box<[Step]>,
}

impl Steps {
    /// Keeps these.
    pub fn new(list: &[Step]) -> Self {
        Self { hash: Self::hash_of(list), mask: Sparse::new(&Self::mask_of(list)), list: list.into() }
    }

    /// The steps of `list`, followed by all other bits of `mask`, word by word.
    pub fn completed(list: &[Step], mask: &FlowMask) -> Self {
        let read = Self::mask_of(list);
        let left = (0..WORDS).map(|w| Step::Bits { word: w as u8, bits: mask.0[w] & !read.0[w] });
        let all: Vec<Step> = list.iter().copied().chain(left.filter(|step| step.bits() != 0)).collect();
        Self::new(&all)
    }

    /// The bits of `mask`, whose order is unknown.
    pub fn of_mask(mask: &FlowMask) -> Self {
        Self::completed(&[], mask)
    }

    /// All bits that the steps read.
    pub fn mask_of(list: &[Step]) -> FlowMask {
        let mut mask = FlowKey::ZERO;
        for step in list {
            mask.0[step.word()] |= step.bits();
        }
        mask
    }

    /// A hash of the steps, stable within the process. It is seeded at random, so outsiders cannot predict it.
    pub fn hash_of(list: &[Step]) -> u64 {
        static SEEDS: OnceLock<[u64; 2]> = OnceLock::new();
        let [a, b] = *SEEDS.get_or_init(|| {
            let mut rng = Rng::from_entropy();
            std::array::from_fn(|_| rng.next_u64())
        });
        list.iter().fold(a, |hash, step| {
            let (what, bits) = match *step {
                Step::Bits { word, bits } => (u64::from(word), bits),
                Step::Prefix { word, shift, width, len } => {
                    (u64::from_le_bytes([word, shift, width, len, 1, 0, 0, 0]), 0)
                }
            };
            chain(hash, bits, b ^ what)
        })
    }

    /// All bits that the steps read.
    pub fn mask(&self) -> &Sparse {
        &self.mask
    }

    /// See [`Steps::hash_of`].
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.mask.heap_bytes() + size_of_val(&*self.list)
    }
}

impl Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.list
    }
}

impl PartialEq for Steps {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.list == other.list
    }
}

impl Eq for Steps {}

impl Hash for Steps {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: Step = Step::Prefix { word: 68, shift: 32, width: 32, len: 9 };

    #[test]
    fn the_rest_of_a_mask_comes_last() {
        let mut mask = FlowKey::ZERO;
        (mask.0[3], mask.0[64], mask.0[68]) = (0xff, 7, 0xff80_0000_0000_0001);
        let steps = Steps::completed(&[Step::Bits { word: 64, bits: 3 }, PREFIX], &mask);
        let last = [(3, 0xff), (64, 4), (68, 1)].map(|(word, bits)| Step::Bits { word, bits });
        assert_eq!(steps[2..], last);
        assert_eq!(steps.mask().expand(), mask);
        assert_eq!(Steps::of_mask(&mask).mask().expand(), mask);
    }

    #[test]
    fn different_steps_have_different_hashes() {
        let lists: [&[Step]; 6] = [
            &[],
            &[PREFIX],
            &[Step::Bits { word: 68, bits: PREFIX.bits() }],
            &[Step::Bits { word: 1, bits: 1 }, Step::Bits { word: 2, bits: 1 }],
            &[Step::Bits { word: 2, bits: 1 }, Step::Bits { word: 1, bits: 1 }],
            &[Step::Bits { word: 2, bits: 1 }],
        ];
        for (i, a) in lists.iter().enumerate() {
            for (j, b) in lists.iter().enumerate() {
                assert_eq!(Steps::hash_of(a) == Steps::hash_of(b), i == j, "{a:?} {b:?}");
                assert_eq!(Steps::new(a) == Steps::new(b), i == j);
            }
        }
    }
}
