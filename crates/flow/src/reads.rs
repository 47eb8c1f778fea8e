//! What a translation read of the packet, in the order in which it read it: the megaflow in the making.

use super::field::Field;
use super::key::{FlowKey, FlowMask};

/// Bits of the packet's key that a computation looked at, each recorded once, when it was first read. Bits that the
/// computation itself wrote before are not the packet's any more: reading those records nothing.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    mask: FlowMask,
    written: FlowMask,
    order: Vec<(u8, u64)>,
}

impl Reads {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `bits` of word `word` were read.
    pub fn note(&mut self, word: usize, bits: u64) {
        let new = bits & !self.written.0[word] & !self.mask.0[word];
        if new != 0 {
            self.mask.0[word] |= new;
            match self.order.last_mut() {
                Some((w, b)) if usize::from(*w) == word => *b |= new,
                _ => self.order.push((word as u8, new)),
            }
        }
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
        self.note_mask(&FlowKey::mask_of(field));
    }

    /// Records that the bits of `mask` were overwritten.
    pub fn write_mask(&mut self, mask: &FlowMask) {
        for (w, bits) in self.written.0.iter_mut().zip(&mask.0) {
            *w |= bits;
        }
    }

    /// Goes back to an earlier state of what was overwritten, as the computation went back to the key of that time.
    pub fn restore_written(&mut self, written: FlowMask) {
        self.written = written;
    }

    /// Records that the whole of `field` was overwritten.
    pub fn write_field(&mut self, field: Field) {
        self.write_mask(&FlowKey::mask_of(field));
    }

    /// All bits read: what a cached answer must match.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// All bits overwritten so far.
    pub fn written(&self) -> &FlowMask {
        &self.written
    }

    /// What was read, in order: word and bits. A bit stands in one entry only.
    pub fn order(&self) -> &[(u8, u64)] {
        &self.order
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
        assert_eq!(r.order(), [(3, 0xff), (4, 1), (3, 0x100)]);
        r.write_field(Field::EthSrc);
        r.note_field(Field::EthSrc);
        assert_eq!(r.order().len(), 3);
        assert_eq!(r.mask().0[3], 0x1ff);
    }
}
