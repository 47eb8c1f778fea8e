//! Compressed matches: only the words in which the mask is not zero, with the mask shared by all rules of a tuple.

use flow::{FlowKey, FlowMask, Match};
use smallvec::SmallVec;
use std::sync::Arc;

/// A mask, as the list of its nonzero words, in key order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct MiniMask(Box<[(u8, u64)]>);

impl MiniMask {
    /// Compresses `mask`.
    pub fn new(mask: &FlowMask) -> Self {
        Self(mask.0.iter().enumerate().filter(|(_, w)| **w != 0).map(|(i, w)| (i as u8, *w)).collect())
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

/// A match, compressed.
#[derive(Clone, Debug)]
pub struct MiniMatch {
    mask: Arc<MiniMask>,
    // In the rule itself, mostly: a look-up that comes to it compares them.
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

    /// The values of the mask's nonzero words, in their order.
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

    /// Whether everything that matches `self` matches `m`, given that `self`'s mask covers `m`'s.
    pub(crate) fn is_within(&self, m: &Match) -> bool {
        self.mask.words().zip(&self.values).all(|((i, _), value)| (value ^ m.key().0[i]) & m.mask().0[i] == 0)
    }

    /// Whether some key matches both `self` and `m`.
    pub(crate) fn overlaps(&self, m: &Match) -> bool {
        self.mask.words().zip(&self.values).all(|((i, bits), value)| (value ^ m.key().0[i]) & bits & m.mask().0[i] == 0)
    }
}
