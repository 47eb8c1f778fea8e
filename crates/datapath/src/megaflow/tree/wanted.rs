//! A flow on its way to its place, and what it looks at next.

use std::sync::Arc;

use flow::{FlowKey, FlowMask, Sparse, Step, Steps};

use super::super::Megaflow;
use super::prefix::PrefixField;

/// A flow on its way to its place.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) key: FlowKey,
    /// What it matches: its own reads, and what it was narrowed to on the way.
    pub(super) mask: FlowMask,
    /// What the nodes on the way test.
    pub(super) tested: FlowMask,
    pub(super) steps: Arc<Steps>,
    /// Whether that is more than its own reads.
    pub(super) narrowed: bool,
    /// Steps that have nothing left to test, from the first on.
    steps_done: usize,
    /// Whether it came to a leaf, so that the nodes that follow lead to that leaf and to it alone.
    pub(super) grown: bool,
    /// Whether nodes on the way were changed, so that it has to be said anew where look-ups go on.
    pub(super) changed: bool,
}

impl Wanted {
    pub(super) fn new(flow: &Megaflow) -> Self {
        let mut wanted = Self {
            key: FlowKey::ZERO,
            mask: FlowMask::ZERO,
            tested: FlowMask::ZERO,
            steps: flow.reads.clone(),
            narrowed: false,
            steps_done: 0,
            grown: false,
            changed: false,
        };
        flow.key.put_into(&mut wanted.key);
        flow.reads.mask().put_into(&mut wanted.mask);
        wanted
    }

    /// What it matches, if that is more than its own reads.
    pub(super) fn narrowed_mask(&self) -> Option<Sparse> {
        self.narrowed.then(|| Sparse::new(&self.mask))
    }

    /// It is to match these bits, too.
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

    /// Narrows it to these bits, and notes that they are tested.
    pub(super) fn test(&mut self, word: usize, bits: u64) {
        self.narrow(word, bits);
        self.tested.0[word] |= bits;
    }
}

/// How much of `field` a flow with these reads and this word of its mask looks at, after what was `tested`: as much as
/// its next step that looks into the field says, or, if none does, what its mask has.
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
