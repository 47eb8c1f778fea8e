//! The state of an insertion: a flow on the path to its position.

use std::sync::Arc;

use flow::{FlowKey, FlowMask, Sparse, Step, Steps};

use super::super::Megaflow;
use super::prefix::PrefixField;

/// A flow on the path to its position.
#[derive(Debug)]
pub(super) struct Insertion {
    pub(super) key: FlowKey,
    /// Its mask: its own reads, and bits by which it was narrowed on the path.
    pub(super) mask: FlowMask,
    /// The bits that nodes on the path test.
    pub(super) tested: FlowMask,
    pub(super) steps: Arc<Steps>,
    /// Whether the mask is narrower than its own reads.
    pub(super) narrowed: bool,
    /// Number of leading steps that have nothing left to test.
    steps_done: usize,
    /// Whether it reached a leaf, so that further nodes lead to that leaf alone.
    pub(super) grown: bool,
    /// Whether nodes on the path were changed, so that their shortcuts must be recomputed.
    pub(super) changed: bool,
    /// Whether to insert it only if that takes few steps.
    pub(super) quickly: bool,
    /// Whether it would have taken too many.
    pub(super) is_refused: bool,
}

impl Insertion {
    pub(super) fn new(flow: &Megaflow) -> Self {
        let mut insertion = Self {
            key: FlowKey::ZERO,
            mask: FlowMask::ZERO,
            tested: FlowMask::ZERO,
            steps: flow.reads.clone(),
            narrowed: false,
            steps_done: 0,
            grown: false,
            changed: false,
            quickly: false,
            is_refused: false,
        };
        flow.key.put_into(&mut insertion.key);
        flow.reads.mask().put_into(&mut insertion.mask);
        insertion
    }

    /// Its mask, if narrower than its own reads.
    pub(super) fn narrowed_mask(&self) -> Option<Sparse> {
        self.narrowed.then(|| Sparse::new(&self.mask))
    }

    /// Adds bits to its mask.
    pub(super) fn narrow(&mut self, word: usize, bits: u64) {
        self.narrowed |= bits & !self.mask.0[word] != 0;
        self.mask.0[word] |= bits;
    }

    pub(super) fn len_of(&self, field: PrefixField) -> u32 {
        len_at(&self.steps, self.mask.0[usize::from(field.word)], &self.tested, field)
    }

    /// The bits of a word that it reads next.
    pub(super) fn next_bits(&mut self, word: u8) -> u64 {
        while let Some(step) = self.steps.get(self.steps_done) {
            if step.bits() & !self.tested.0[step.word()] != 0 {
                return match *step {
                    Step::Bits { word: w, bits } if w == word => bits,
                    _ => 0,
                };
            }
            self.steps_done += 1;
        }
        0
    }

    /// Narrows it by these bits, and marks them as tested.
    pub(super) fn test(&mut self, word: usize, bits: u64) {
        self.narrow(word, bits);
        self.tested.0[word] |= bits;
    }
}

/// The prefix length with which a flow with these reads and this mask word reads `field`, after the bits of `tested`:
/// that of its next step that reads the field, or otherwise of its mask.
pub(super) fn len_at(steps: &[Step], mask: u64, tested: &FlowMask, field: PrefixField) -> u32 {
    let here = |step: &Step| match *step {
        Step::Prefix { word, shift, width, len } => {
            let same = PrefixField { word, shift, width } == field;
            (same && step.bits() & !tested.0[step.word()] != 0).then_some(len.into())
        }
        Step::Bits { .. } => None,
    };
    steps.iter().find_map(here).unwrap_or_else(|| field.len_in(mask))
}
