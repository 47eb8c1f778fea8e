//! What a translation read of the packet, in the order in which it read it: the megaflow in the making.

use super::field::{Field, Loc};
use super::key::{FlowKey, FlowMask};
use std::ops::Range;

/// One step of a computation that reads a key: what it looked at next, given all that it had seen before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// These bits of a word, all at once.
    Bits {
        /// Which word.
        word: u8,
        /// Which of its bits.
        bits: u64,
    },
    /// The first `len` bits of the `width` bits that stand in a word from bit `shift` (counted from the least
    /// significant) on: looked at one after the other, from the most significant down, so that how many were looked at
    /// is decided by their own values.
    Prefix {
        /// Which word.
        word: u8,
        /// Place of the least significant bit.
        shift: u8,
        /// Bits in all, 1 to 64.
        width: u8,
        /// Bits looked at, 1 to `width`.
        len: u8,
    },
}

impl Step {
    /// The word that it looks into.
    pub const fn word(self) -> usize {
        match self {
            Self::Bits { word, .. } | Self::Prefix { word, .. } => word as usize,
        }
    }

    /// The bits of that word that it looks at.
    pub const fn bits(self) -> u64 {
        match self {
            Self::Bits { bits, .. } => bits,
            Self::Prefix { shift, width, len, .. } => prefix_bits(shift, width, len),
        }
    }
}

/// The first `len` bits of the `width` bits from bit `shift` on.
const fn prefix_bits(shift: u8, width: u8, len: u8) -> u64 {
    if len == 0 { 0 } else { (u64::MAX >> (64 - len)) << (width - len) << shift }
}

/// Steps of a translation, mostly.
const STEPS_LIKELY: usize = 16;

/// Bits of the packet's key that a computation looked at, each recorded once, when it was first read. Bits that the
/// computation itself wrote before are not the packet's any more: reading those records nothing.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    mask: FlowMask,
    written: FlowMask,
    /// Words in which bits may be overwritten, a bit each.
    written_words: u128,
    order: Vec<Step>,
}

impl Reads {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self {
            mask: FlowMask::ZERO,
            written: FlowMask::ZERO,
            written_words: 0,
            order: Vec::with_capacity(STEPS_LIKELY),
        }
    }

    /// Records that `bits` of word `word` were read.
    pub fn note(&mut self, word: usize, bits: u64) {
        let new = bits & !self.written.0[word] & !self.mask.0[word];
        if new != 0 {
            self.mask.0[word] |= new;
            match self.order.last_mut() {
                Some(Step::Bits { word: w, bits }) if usize::from(*w) == word => *bits |= new,
                _ => self.order.push(Step::Bits { word: word as u8, bits: new }),
            }
        }
    }

    /// Records that the first `len` bits of the `width` bits from bit `shift` of word `word` on were read one by one, the
    /// most significant first. Where some of them were overwritten before, the rest is read at once.
    #[inline]
    pub fn note_prefix(&mut self, word: usize, shift: u8, width: u8, len: u8) {
        let new = prefix_bits(shift, width, len) & !(self.mask.0[word] | self.written.0[word]);
        if new != 0 {
            self.add_prefix(new, word, shift, width, len);
        }
    }

    /// Records a prefix, of which these bits are new.
    fn add_prefix(&mut self, new: u64, word: usize, shift: u8, width: u8, len: u8) {
        let written = self.written.0[word];
        if written != 0 && prefix_bits(shift, width, width) & written != 0 {
            return self.note(word, new);
        }
        self.mask.0[word] |= new;
        self.order.push(Step::Prefix { word: word as u8, shift, width, len });
    }

    /// Records that all bits of `mask` were read.
    pub fn note_mask(&mut self, mask: &FlowMask) {
        for (word, bits) in mask.0.iter().enumerate() {
            if *bits != 0 {
                self.note(word, *bits);
            }
        }
    }

    /// Records that the whole of `field` was read.
    pub fn note_field(&mut self, field: Field) {
        match field.info().loc {
            Loc::Bits { word, shift, width } => self.note(word.into(), u64::MAX >> (64 - width) << shift),
            _ => self.note_mask(&FlowKey::mask_of(field)),
        }
    }

    /// Records that the bits of `mask` were overwritten.
    pub fn write_mask(&mut self, mask: &FlowMask) {
        for (i, (w, bits)) in self.written.0.iter_mut().zip(&mask.0).enumerate() {
            *w |= bits;
            self.written_words |= u128::from(*bits != 0) << i;
        }
    }

    /// Goes back to an earlier state of what was overwritten, as the computation went back to the key of that time.
    pub fn restore_written(&mut self, written: FlowMask) {
        self.written = FlowMask::ZERO;
        self.written_words = 0;
        self.write_mask(&written);
    }

    /// Records that the whole of `field` was overwritten.
    pub fn write_field(&mut self, field: Field) {
        self.write_bits(field, field.info().full_mask());
    }

    /// Records that the bits `mask` of `field` were overwritten.
    pub fn write_bits(&mut self, field: Field, mask: u128) {
        match field.info().loc {
            Loc::Bits { word, shift, width } => {
                self.written.0[usize::from(word)] |= (mask as u64 & u64::MAX >> (64 - width)) << shift;
                self.written_words |= 1 << word;
            }
            _ => {
                let mut bits = FlowMask::ZERO;
                bits.add_mask(field, mask);
                self.write_mask(&bits);
            }
        }
    }

    /// Records that all bits of these words were overwritten.
    pub fn write_words(&mut self, words: Range<usize>) {
        self.written_words |= words.clone().fold(0, |map, word| map | 1 << word);
        self.written.0[words].fill(u64::MAX);
    }

    /// The words with bits that are overwritten, a bit each.
    pub fn written_map(&self) -> u128 {
        self.written_words
    }

    /// The words with bits that are overwritten, in ascending order, each with these bits.
    pub fn written_words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut left = self.written_words;
        std::iter::from_fn(move || {
            let word = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Some((word, *self.written.0.get(word)?))
        })
    }

    /// All bits read: what a cached answer must match.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// All bits overwritten so far.
    pub fn written(&self) -> &FlowMask {
        &self.written
    }

    /// What was read, in order. Each step looks at a bit, at least, that none before it looked at; a prefix may begin
    /// with bits that are known already.
    pub fn order(&self) -> &[Step] {
        &self.order
    }

    /// Takes that away: the computation is over.
    pub fn take_order(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_recorded_once_and_not_after_a_write() {
        let mut r = Reads::new();
        r.note(3, 0xf0);
        r.note(3, 0xff);
        r.note(4, 1);
        r.note(3, 0x1ff);
        let bits = |word, bits| Step::Bits { word, bits };
        assert_eq!(r.order(), [bits(3, 0xff), bits(4, 1), bits(3, 0x100)]);
        r.write_field(Field::EthSrc);
        r.note_field(Field::EthSrc);
        assert_eq!(r.order().len(), 3);
        assert_eq!(r.mask().0[3], 0x1ff);
    }

    #[test]
    fn prefixes() {
        let step = Step::Prefix { word: 5, shift: 16, width: 32, len: 8 };
        assert_eq!((step.word(), step.bits()), (5, 0xff00_0000 << 16));
        assert_eq!(Step::Prefix { word: 5, shift: 0, width: 64, len: 64 }.bits(), u64::MAX);
        let mut r = Reads::new();
        r.note_prefix(5, 16, 32, 8);
        r.note_prefix(5, 16, 32, 4);
        r.note_prefix(5, 16, 32, 12);
        r.note_prefix(5, 16, 32, 0);
        assert_eq!(r.order(), [step, Step::Prefix { word: 5, shift: 16, width: 32, len: 12 }]);
        let mut written = FlowMask::ZERO;
        written.0[6] = 0x80;
        r.write_mask(&written);
        r.note_prefix(6, 0, 8, 3);
        assert_eq!(r.order()[2..], [Step::Bits { word: 6, bits: 0x60 }]);
        written.0[7] = 1;
        r.write_mask(&written);
        r.note_prefix(7, 0, 16, 2);
        assert_eq!(r.order()[3..], [Step::Bits { word: 7, bits: 0xc000 }]);
    }
}
