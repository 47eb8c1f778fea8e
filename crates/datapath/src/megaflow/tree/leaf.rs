//! A leaf: a flow, beside all that a look-up compares.

use std::sync::Arc;

use flow::{Code, PLAIN_WORDS, Words};

use super::super::Megaflow;

/// Words of a mask that stand in the leaf itself.
const INLINE: usize = PLAIN_WORDS;

/// See the module's text. Two lines of memory. `flow` is `None` in a free place.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Leaf {
    words: [Code; INLINE],
    /// Whether the flow's mask is more than its own reads.
    pub(super) narrowed: bool,
    /// All words of the mask are among those of plain packets' keys, and stand here in their order.
    ordered: bool,
    bits: [u64; INLINE],
    values: [u64; INLINE],
    /// What does not fit: word, bits, value. Rarely there, so that one word has to do for it.
    #[expect(clippy::box_collection)]
    rest: Option<Box<Vec<(u8, u64, u64)>>>,
    generation: u64,
    flow: Option<Arc<Megaflow>>,
}

impl Leaf {
    /// A leaf for `flow` as it is to be installed, its mask narrowed if it is to be.
    pub(super) fn new(flow: Arc<Megaflow>, narrowed: bool) -> Self {
        let own;
        let mask = if narrowed {
            own = flow.mask();
            &own
        } else {
            flow.reads.mask()
        };
        let mut leaf = Self { narrowed, generation: flow.generation, ..Self::default() };
        leaf.ordered = mask.iter().all(|(word, _)| Code::of(word).place().is_some());
        for (i, (word, bits, value)) in flow.key.in_mask(mask).enumerate() {
            let i = Code::of(word).place().filter(|_| leaf.ordered).unwrap_or(i);
            if i < INLINE {
                (leaf.words[i], leaf.bits[i], leaf.values[i]) = (Code::of(word), bits, value);
            } else {
                let rest = leaf.rest.get_or_insert_with(|| Box::new(Vec::with_capacity(mask.len() - INLINE)));
                rest.push((word as u8, bits, value));
            }
        }
        leaf.flow = Some(flow);
        leaf
    }

    /// Whether its flow covers `key`, whatever its generation.
    #[inline]
    pub(super) fn covers(&self, key: &impl Words) -> bool {
        let mut differ = 0;
        if let Some(plain) = key.plain()
            && self.ordered
        {
            for ((word, value), bits) in plain.iter().zip(&self.values).zip(&self.bits) {
                differ |= (word ^ value) & bits;
            }
            return differ == 0;
        }
        for i in 0..INLINE {
            // Where there is no word, bits are zero.
            differ |= (key.coded(self.words[i]) ^ self.values[i]) & self.bits[i];
        }
        differ == 0
            && self.rest.as_ref().is_none_or(|rest| rest.iter().all(|(w, b, v)| key.word(usize::from(*w)) & b == *v))
    }

    /// What its flow's key has of a word, in the bits of its mask.
    #[inline]
    pub(super) fn value(&self, word: usize) -> u64 {
        let code = Code::of(word);
        let here = |i: &usize| self.words[*i] == code && self.bits[*i] != 0;
        match (0..INLINE).find(here) {
            Some(i) => self.values[i],
            None => self
                .rest
                .as_ref()
                .map_or(0, |rest| rest.iter().find(|(w, ..)| usize::from(*w) == word).map_or(0, |(.., value)| *value)),
        }
    }

    /// Loads what [`Leaf::answer`] looks at.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.bits[0] ^ self.generation
    }

    /// Its flow, if it is of `generation` and covers `key`.
    #[inline]
    pub(super) fn answer(&self, key: &impl Words, generation: u64) -> Option<&Arc<Megaflow>> {
        if self.generation == generation && self.covers(key) { self.flow.as_ref() } else { None }
    }

    pub(super) fn flow(&self) -> Option<&Arc<Megaflow>> {
        self.flow.as_ref()
    }

    pub(super) fn into_flow(self) -> Option<Arc<Megaflow>> {
        self.flow
    }

    /// Bytes on the heap, without the flow.
    pub(super) fn heap_bytes(&self) -> usize {
        self.rest.as_ref().map_or(0, |r| size_of_val(&**r) + r.capacity() * size_of::<(u8, u64, u64)>())
    }
}
