//! Compressed matches: the words with a nonzero mask only. All rules of a tuple share the mask.

use flow::{FlowKey, FlowMask, Match};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A mask as the list of its nonzero words, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MiniMask(SmallVec<[(u8, u64); WORDS_LIKELY]>);

/// Words of a typical mask, stored inline so that a search for a mask does not allocate.
const WORDS_LIKELY: usize = 6;

impl Hash for MiniMask {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut places = 0u128;
        for (i, bits) in &self.0 {
            places |= 1 << i;
            state.write_u64(*bits);
        }
        state.write_u64(places as u64);
        state.write_u64((places >> 64) as u64);
    }
}

const _: () = assert!(flow::WORDS <= 128);

impl MiniMask {
    /// Compresses `mask`.
    pub fn new(mask: &FlowMask) -> Self {
        let mut words = SmallVec::new();
        // Most groups of four words are zero.
        for (i, four) in (0u8..).step_by(4).zip(mask.0.chunks(4)) {
            if four.iter().fold(0, |all, w| all | w) != 0 {
                words.extend((i..).zip(four.iter().copied()).filter(|(_, w)| *w != 0));
            }
        }
        Self(words)
    }

    /// The nonzero words: index and bits.
    pub fn words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter().map(|(i, bits)| (usize::from(*i), *bits))
    }

    /// The whole mask.
    pub fn expand(&self) -> FlowMask {
        let mut mask = FlowKey::ZERO;
        for (i, bits) in self.words() {
            mask.0[i] = bits;
        }
        mask
    }

    /// Whether all bits of `mask` are in this one.
    pub fn covers(&self, mask: &FlowMask) -> bool {
        let own = self.expand();
        mask.0.iter().zip(&own.0).all(|(m, o)| m & !o == 0)
    }
}

/// A compressed match. Equal values match the same packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MiniMatch {
    mask: Arc<MiniMask>,
    // Typically stored inline in the rule: a lookup that finds the rule compares them.
    values: SmallVec<[u64; 4]>,
}

impl MiniMatch {
    /// Compresses `m` with a mask of its own.
    pub fn new(m: &Match) -> Self {
        Self::with_mask(Arc::new(MiniMask::new(m.mask())), m.key())
    }

    pub(crate) fn with_mask(mask: Arc<MiniMask>, key: &FlowKey) -> Self {
        let mut values = SmallVec::with_capacity(mask.0.len());
        values.extend(mask.words().map(|(i, bits)| key.0[i] & bits));
        Self { mask, values }
    }

    /// The mask.
    pub fn mask(&self) -> &Arc<MiniMask> {
        &self.mask
    }

    /// The values of the mask's nonzero words, in key order.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The whole match.
    pub fn expand(&self) -> Match {
        let mut key = FlowKey::ZERO;
        for ((i, _), value) in self.mask.words().zip(&self.values) {
            key.0[i] = *value;
        }
        Match::new(&key, self.mask.expand())
    }

    /// Whether all keys that match `self` match `m`, provided that `self`'s mask covers `m`'s.
    pub fn is_within(&self, m: &Match) -> bool {
        self.mask.words().zip(&self.values).all(|((i, _), value)| (value ^ m.key().0[i]) & m.mask().0[i] == 0)
    }

    /// Whether some key matches both `self` and `m`.
    pub(crate) fn overlaps(&self, m: &Match) -> bool {
        self.mask.words().zip(&self.values).all(|((i, bits), value)| (value ^ m.key().0[i]) & bits & m.mask().0[i] == 0)
    }
}
