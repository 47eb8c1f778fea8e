//! The bits of the packet that a translation read, in the order in which it read them: the megaflow's mask.

use super::field::{Field, Loc};
use super::key::{FlowKey, FlowMask};
use std::ops::Range;

/// One step of a computation that reads a key: the bits that it read next, given the values of all bits read before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// These bits of a word, all at once.
    Bits {
        /// Which word.
        word: u8,
        /// Which of its bits.
        bits: u64,
    },
    /// The first `len` of the `width` bits from bit `shift` (counted from the least significant) of a word. They were
    /// read one by one from the most significant down, and their values decided how many were read.
    Prefix {
        /// Which word.
        word: u8,
        /// Position of the least significant bit.
        shift: u8,
        /// Width of the field in bits, 1 to 64.
        width: u8,
        /// Bits read, 1 to `width`.
        len: u8,
    },
}

impl Step {
    /// The word that it reads.
    pub const fn word(self) -> usize {
        match self {
            Self::Bits { word, .. } | Self::Prefix { word, .. } => word as usize,
        }
    }

    /// The bits of that word that it reads.
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

/// Steps of a typical translation.
const STEPS_LIKELY: usize = 16;

/// The bits of the packet's key that a computation read, each recorded at its first read. Bits that the computation
/// wrote before are not the packet's any more, so reading them records nothing.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    mask: FlowMask,
    written: FlowMask,
    /// Bitmap of the words that have overwritten bits.
    written_words: u128,
    order: Vec<Step>,
}

/// The bits that were overwritten at some moment of a computation, to go back to.
#[derive(Clone, Debug)]
pub struct Overwritten {
    bits: FlowMask,
    words: u128,
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

    /// Records that `bits` of word `word` were read as the packet came with them, whatever was overwritten since.
    pub fn note_initial(&mut self, word: usize, bits: u64) {
        let new = bits & !self.mask.0[word];
        if new != 0 {
            self.mask.0[word] |= new;
            self.order.push(Step::Bits { word: word as u8, bits: new });
        }
    }

    /// Records a prefix read bit by bit, the most significant first: the first `len` of the `width` bits from bit `shift`
    /// of word `word`. If some of them were overwritten before, the others count as read at once.
    #[inline]
    pub fn note_prefix(&mut self, word: usize, shift: u8, width: u8, len: u8) {
        let new = prefix_bits(shift, width, len) & !(self.mask.0[word] | self.written.0[word]);
        if new != 0 {
            self.add_prefix(new, word, shift, width, len);
        }
    }

    /// Records a prefix in which the bits `new` were not read before.
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

    /// Restores an earlier set of overwritten bits, after the computation restored the key of that time.
    pub fn restore_written(&mut self, written: FlowMask) {
        self.written = FlowMask::ZERO;
        self.written_words = 0;
        self.write_mask(&written);
    }

    /// The bits overwritten so far, for [`Reads::restore_overwritten`].
    pub fn overwritten(&self) -> Overwritten {
        Overwritten { bits: self.written.clone(), words: self.written_words }
    }

    /// The same, into a value that is there already.
    pub fn save_overwritten(&self, saved: &mut Overwritten) {
        saved.bits.clone_from(&self.written);
        saved.words = self.written_words;
    }

    /// Goes back to an earlier state of what was overwritten, like [`Reads::restore_written`] but in fewer steps.
    pub fn restore_overwritten(&mut self, saved: &Overwritten) {
        self.written.clone_from(&saved.bits);
        self.written_words = saved.words;
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

    /// Bitmap of the words that have overwritten bits.
    pub fn written_map(&self) -> u128 {
        self.written_words
    }

    /// The overwritten bits of each word that has any, in ascending order.
    pub fn written_words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut left = self.written_words;
        std::iter::from_fn(move || {
            let word = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            Some((word, *self.written.0.get(word)?))
        })
    }

    /// All bits read, which are the mask of the megaflow.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// All bits overwritten so far.
    pub fn written(&self) -> &FlowMask {
        &self.written
    }

    /// The steps in order. Each step reads at least one bit that no step before it read; a prefix may begin with bits
    /// that are already known.
    pub fn order(&self) -> &[Step] {
        &self.order
    }

    /// Takes the steps, after the computation has finished.
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
    fn initial_bits_are_recorded_after_a_write_too() {
        let mut r = Reads::new();
        r.write_words(3..4);
        r.note(3, 0xf0);
        r.note_initial(3, 0xf0);
        r.note_initial(3, 0x1f0);
        let bits = |word, bits| Step::Bits { word, bits };
        assert_eq!((r.order(), r.mask().0[3]), (&[bits(3, 0xf0), bits(3, 0x100)][..], 0x1f0));
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
        let before = r.overwritten();
        r.write_mask(&written);
        let mut after = before.clone();
        r.save_overwritten(&mut after);
        r.restore_overwritten(&before);
        assert!(r.written().is_zero() && r.written_map() == 0);
        r.restore_overwritten(&after);
        assert!(*r.written() == written && r.written_map() == 1 << 6);
        r.note_prefix(6, 0, 8, 3);
        assert_eq!(r.order()[2..], [Step::Bits { word: 6, bits: 0x60 }]);
        written.0[7] = 1;
        r.write_mask(&written);
        r.note_prefix(7, 0, 16, 2);
        assert_eq!(r.order()[3..], [Step::Bits { word: 7, bits: 0xc000 }]);
    }
}
