//! Leaves: flows with everything that a lookup compares.
//!
//! A leaf is one cache line, as cache misses dominate lookups among many flows. Values that many leaves share are
//! stored once and referenced by number: masks and generations. Words that do not fit into a leaf are read from its
//! flow's key.

use std::hash::Hash;
use std::sync::Arc;

use flow::{Code, PLAIN_WORDS, Sparse, WIDE_WORDS, Words};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::super::Megaflow;
use super::slab::{SMALL, Slab};

/// Words of the masked key stored in the leaf.
const INLINE: usize = PLAIN_WORDS;
/// Words stored beside the leaf ([`Overflow`]): matches on both IPv6 addresses need up to four.
const BESIDE: usize = WIDE_WORDS - INLINE;
/// Leaves in one chunk of [`Overflow`].
const CHUNK: usize = 256;
/// Flag in the number of a leaf's mask: the mask is narrower than the flow's reads.
const NARROWED: u32 = 1 << 31;
/// An invalid generation number.
const NO_GENERATION: u32 = u32::MAX;

/// A leaf. `flow` is `None` in a free entry.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Leaf {
    values: [u64; INLINE],
    flow: Option<Arc<Megaflow>>,
    mask: u32,
    generation: u32,
}

const _: () = assert!(size_of::<Leaf>() == 64);

/// A mask in the form that lookups compare with.
#[derive(Debug, Default)]
#[repr(align(64))]
struct MaskLayout {
    /// Bits are zero in unused entries.
    bits: [u64; INLINE],
    words: [Code; INLINE],
    /// Number of entries in use, all others follow.
    n: u8,
    /// Whether all words of the mask are words of plain packets' keys; they are then stored in that order.
    ordered: bool,
    /// Whether all words of the mask are words of IPv6 packets ([`Words::wide`]); they are then stored in that order.
    wide: bool,
    /// Whether words are stored beside the leaf.
    more: bool,
    /// Whether the mask has more words than the leaf and the overflow store.
    rest: bool,
    words_beside: [Code; BESIDE],
    bits_beside: [u64; BESIDE],
}

impl MaskLayout {
    fn new(mask: &Sparse) -> Self {
        let mut layout = Self::default();
        layout.ordered = mask.iter().all(|(word, _)| Code::of(word).place().is_some());
        layout.wide = !layout.ordered && mask.iter().all(|(word, _)| Code::of(word).wide_place().is_some());
        for (i, (word, bits)) in mask.iter().enumerate() {
            match layout.position(i, word) {
                WordPosition::Leaf(at) => {
                    (layout.words[at], layout.bits[at]) = (Code::of(word), bits);
                    layout.n = layout.n.max(at as u8 + 1);
                }
                WordPosition::Beside(at) => {
                    layout.more = true;
                    (layout.words_beside[at], layout.bits_beside[at]) = (Code::of(word), bits);
                }
                WordPosition::Key => (layout.more, layout.rest) = (true, true),
            }
        }
        layout
    }

    /// The position of the `i`-th word of the mask.
    fn position(&self, i: usize, word: usize) -> WordPosition {
        let code = Code::of(word);
        let at = match (self.ordered, self.wide) {
            (true, _) => code.place(),
            (_, true) => code.wide_place(),
            _ => None,
        };
        match at.unwrap_or(i) {
            at if at < INLINE => WordPosition::Leaf(at),
            at if at < INLINE + BESIDE => WordPosition::Beside(at - INLINE),
            _ => WordPosition::Key,
        }
    }
}

/// Where the value of a mask's word is stored.
enum WordPosition {
    Leaf(usize),
    Beside(usize),
    /// Only in the flow's key.
    Key,
}

/// Words of masked keys that do not fit in their leaves, by leaf index. Storage grows by one chunk at a time, and only for
/// chunks with such leaves.
#[derive(Debug, Default)]
struct Overflow(Vec<Option<Box<[[u64; BESIDE]; CHUNK]>>>);

impl Overflow {
    #[inline]
    fn get(&self, index: usize) -> Option<&[u64; BESIDE]> {
        self.0.get(index / CHUNK)?.as_ref()?.get(index % CHUNK)
    }

    fn set(&mut self, index: usize, values: [u64; BESIDE]) {
        if self.0.len() <= index / CHUNK {
            self.0.resize_with(index / CHUNK + 1, || None);
        }
        self.0[index / CHUNK].get_or_insert_with(|| Box::new([[0; BESIDE]; CHUNK]))[index % CHUNK] = values;
    }

    fn bytes(&self) -> usize {
        let chunks = self.0.iter().flatten().count() * CHUNK * size_of::<[u64; BESIDE]>();
        chunks + self.0.capacity() * size_of::<Option<Box<[[u64; BESIDE]; CHUNK]>>>()
    }
}

/// Values that leaves share, by number, with reference counts.
#[derive(Debug)]
struct Numbered<T> {
    numbers: HashMap<T, u32, RandomState>,
    /// By number, with the number of users.
    values: Vec<(T, usize)>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { numbers: HashMap::default(), values: Vec::new(), free: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    /// The number of a value, with one more user, and whether the value is new.
    fn share(&mut self, value: &T) -> (u32, bool) {
        match self.numbers.entry(value.clone()) {
            Entry::Occupied(known) => {
                let number = *known.get();
                self.values[number as usize].1 += 1;
                (number, false)
            }
            Entry::Vacant(place) => {
                let number = self.free.pop().unwrap_or(self.values.len() as u32);
                let value = (value.clone(), 1);
                match self.values.get_mut(number as usize) {
                    Some(free) => *free = value,
                    None => self.values.push(value),
                }
                place.insert(number);
                (number, true)
            }
        }
    }

    /// Removes a user of a number.
    fn release(&mut self, number: u32) {
        let (value, sharers) = &mut self.values[number as usize];
        *sharers -= 1;
        if *sharers == 0 {
            self.numbers.remove(value);
            self.free.push(number);
        }
    }

    fn bytes(&self) -> usize {
        self.numbers.allocation_size()
            + self.values.capacity() * size_of::<(T, usize)>()
            + self.free.capacity() * size_of::<u32>()
    }
}

/// A flow for a leaf, with its mask if it is narrower than its reads.
pub(super) type New = (Arc<Megaflow>, Option<Sparse>);

/// All leaves of a tree, by index.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    slab: Slab<Leaf>,
    overflow: Overflow,
    masks: Numbered<Sparse>,
    /// By the numbers of masks.
    layouts: Vec<MaskLayout>,
    generations: Numbered<u64>,
    /// Number of leaves whose flows are narrowed.
    pub(super) n_narrowed: usize,
}

impl Leaves {
    /// A leaf for `flow` with its narrowed mask, or the mask of its reads. Also returns the words to be stored beside it, if
    /// there are any.
    fn leaf(&mut self, (flow, narrowed): New) -> (Leaf, Option<[u64; BESIDE]>) {
        let mask = narrowed.as_ref().unwrap_or(flow.reads.mask());
        let (number, is_new) = self.masks.share(mask);
        if is_new {
            if self.layouts.len() <= number as usize {
                self.layouts.resize_with(number as usize + 1, MaskLayout::default);
            }
            self.layouts[number as usize] = MaskLayout::new(mask);
        }
        let layout = &self.layouts[number as usize];
        let (mut values, mut beside) = ([0; INLINE], [0; BESIDE]);
        for (i, (word, _, value)) in flow.key.in_mask(mask).enumerate() {
            match layout.position(i, word) {
                WordPosition::Leaf(at) => values[at] = value,
                WordPosition::Beside(at) => beside[at] = value,
                WordPosition::Key => {}
            }
        }
        let beside = layout.more.then_some(beside);
        let (generation, _) = self.generations.share(&flow.generation);
        self.n_narrowed += usize::from(narrowed.is_some());
        let mask = number | if narrowed.is_some() { NARROWED } else { 0 };
        (Leaf { values, mask, generation, flow: Some(flow) }, beside)
    }

    /// Releases a leaf's shared values. Returns its flow.
    fn take_apart(&mut self, leaf: Leaf) -> Option<Arc<Megaflow>> {
        let flow = leaf.flow?;
        self.masks.release(leaf.mask & !NARROWED);
        self.generations.release(leaf.generation);
        self.n_narrowed -= usize::from(leaf.mask & NARROWED != 0);
        Some(flow)
    }

    /// Adds a leaf.
    pub(super) fn add(&mut self, flow: New) -> usize {
        let (leaf, beside) = self.leaf(flow);
        let index = self.slab.add(leaf);
        if let Some(values) = beside {
            self.overflow.set(index, values);
        }
        index
    }

    /// Replaces the flow of a leaf, and returns the old one.
    pub(super) fn replace(&mut self, index: usize, flow: New) -> Option<Arc<Megaflow>> {
        let (new, beside) = self.leaf(flow);
        if let Some(values) = beside {
            self.overflow.set(index, values);
        }
        let old = std::mem::replace(&mut self.slab.items[index], new);
        self.take_apart(old)
    }

    /// Takes a leaf out.
    pub(super) fn take(&mut self, index: usize) -> Option<Arc<Megaflow>> {
        let leaf = self.slab.take(index);
        self.take_apart(leaf)
    }

    /// The flow of the last leaf. Discards free entries behind it, so nothing may be added any more.
    pub(super) fn last(&mut self) -> Option<&Arc<Megaflow>> {
        while self.slab.items.last()?.flow.is_none() {
            self.slab.pop_free();
        }
        self.slab.items.last()?.flow.as_ref()
    }

    /// The flow of a leaf.
    pub(super) fn flow(&self, index: usize) -> Option<&Arc<Megaflow>> {
        self.slab.items.get(index)?.flow.as_ref()
    }

    /// The flow of a leaf and its mask in this copy.
    pub(super) fn flow_and_mask(&self, index: usize) -> Option<(&Arc<Megaflow>, &Sparse)> {
        let leaf = self.slab.items.get(index)?;
        let (mask, _) = self.masks.values.get((leaf.mask & !NARROWED) as usize)?;
        Some((leaf.flow.as_ref()?, mask))
    }

    /// Whether a leaf, possibly with a new mask, can be added without reallocating large tables.
    pub(super) fn have_room(&self) -> bool {
        let masks = self.masks.values.len();
        let room = masks < self.masks.values.capacity().min(self.layouts.capacity()) || masks < SMALL;
        room && self.slab.has_room(1) && self.masks.numbers.len() < SMALL.max(self.masks.numbers.capacity())
    }

    fn layout(&self, leaf: &Leaf) -> Option<&MaskLayout> {
        self.layouts.get((leaf.mask & !NARROWED) as usize)
    }

    /// Whether the flow of a leaf covers `key`, in any generation.
    #[inline]
    pub(super) fn covers(&self, index: usize, key: &impl Words) -> bool {
        self.slab.items.get(index).is_some_and(|leaf| self.leaf_covers(index, leaf, key))
    }

    #[inline]
    fn leaf_covers(&self, index: usize, leaf: &Leaf, key: &impl Words) -> bool {
        let Some(layout) = self.layout(leaf) else { return false };
        let mut differ = 0;
        if let Some(plain) = key.plain()
            && layout.ordered
        {
            for ((word, value), bits) in plain.iter().zip(&leaf.values).zip(&layout.bits) {
                differ |= (word ^ value) & bits;
            }
            return differ == 0;
        }
        if layout.wide
            && let Some(wide) = key.wide()
        {
            for ((word, value), bits) in wide.iter().zip(&leaf.values).zip(&layout.bits) {
                differ |= (word ^ value) & bits;
            }
            if layout.more {
                let Some(beside) = self.overflow.get(index) else { return false };
                for ((word, value), bits) in wide[INLINE..].iter().zip(beside).zip(&layout.bits_beside) {
                    differ |= (word ^ value) & bits;
                }
            }
            return differ == 0;
        }
        for ((word, value), bits) in layout.words.iter().zip(&leaf.values).zip(&layout.bits).take(layout.n.into()) {
            differ |= (key.coded(*word) ^ value) & bits;
        }
        differ == 0 && (!layout.more || self.covers_beside(index, leaf, layout, key))
    }

    /// Whether the words stored beside the leaf, and any further ones, are equal in `key`.
    #[inline(never)]
    fn covers_beside(&self, index: usize, leaf: &Leaf, layout: &MaskLayout, key: &impl Words) -> bool {
        let Some(values) = self.overflow.get(index) else { return false };
        let mut differ = 0;
        for ((word, bits), value) in layout.words_beside.iter().zip(&layout.bits_beside).zip(values) {
            differ |= (key.coded(*word) ^ value) & bits;
        }
        differ == 0 && (!layout.rest || self.rest_covers(leaf, key))
    }

    /// Whether `key` also matches in the words that do not fit into the leaf.
    #[cold]
    fn rest_covers(&self, leaf: &Leaf, key: &impl Words) -> bool {
        let (Some(flow), Some((mask, _))) = (&leaf.flow, self.masks.values.get((leaf.mask & !NARROWED) as usize))
        else {
            return false;
        };
        flow.key.in_mask(mask).skip(INLINE + BESIDE).all(|(word, bits, value)| key.word(word) & bits == value)
    }

    /// A word of the key of a leaf's flow, under its mask.
    #[inline]
    pub(super) fn value(&self, index: usize, word: usize) -> u64 {
        let Some((leaf, layout)) = self.slab.items.get(index).and_then(|leaf| Some((leaf, self.layout(leaf)?))) else {
            return 0;
        };
        let code = Code::of(word);
        if let Some(i) = (0..INLINE).find(|i| layout.words[*i] == code && layout.bits[*i] != 0) {
            return leaf.values[i];
        }
        if let Some(i) = (0..BESIDE).find(|i| layout.words_beside[*i] == code && layout.bits_beside[*i] != 0) {
            return self.overflow.get(index).map_or(0, |values| values[i]);
        }
        match (&leaf.flow, self.masks.values.get((leaf.mask & !NARROWED) as usize)) {
            (Some(flow), Some((mask, _))) if layout.rest => flow.key.word(word) & mask.word(word),
            _ => 0,
        }
    }

    /// The number of a generation, for [`Leaves::answer`].
    #[inline]
    pub(super) fn number_of(&self, generation: u64) -> u32 {
        self.generations.numbers.get(&generation).copied().unwrap_or(NO_GENERATION)
    }

    /// Loads the cache line that [`Leaves::answer`] needs.
    #[inline]
    pub(super) fn touch(&self, index: usize) -> u64 {
        let beside = self.overflow.get(index).map_or(0, |values| values[0]);
        self.slab.items.get(index).map_or(0, |leaf| leaf.values[0]) ^ beside
    }

    /// The flow of a leaf, if it has this generation number and covers `key`.
    #[inline]
    pub(super) fn answer(&self, index: usize, key: &impl Words, generation: u32) -> Option<&Arc<Megaflow>> {
        let leaf = self.slab.items.get(index)?;
        if leaf.generation == generation && self.leaf_covers(index, leaf, key) { leaf.flow.as_ref() } else { None }
    }

    /// Whether there are more than `n` entries.
    #[inline]
    pub(super) fn are_more_than(&self, n: usize) -> bool {
        self.slab.items.len() > n
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.slab.items.iter().filter_map(|leaf| leaf.flow.as_ref())
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Bytes, without the flows.
    pub(super) fn bytes(&self) -> usize {
        let shared = self.masks.bytes() + self.generations.bytes();
        self.slab.bytes() + self.overflow.bytes() + self.layouts.capacity() * size_of::<MaskLayout>() + shared
    }

    /// Checks counts and shared values against a recount.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let there = || self.slab.items.iter().filter(|leaf| leaf.flow.is_some());
        assert_eq!(self.n_narrowed, there().filter(|leaf| leaf.mask & NARROWED != 0).count());
        let (mut masks, mut generations) = (vec![0; self.masks.values.len()], vec![0; self.generations.values.len()]);
        for leaf in there() {
            let flow = leaf.flow.as_ref().expect("it is there");
            let (mask, generation) = ((leaf.mask & !NARROWED) as usize, leaf.generation as usize);
            assert_eq!(self.masks.values[mask].0, flow.mask(), "the copy is as new as the flow");
            assert_eq!(self.generations.values[generation].0, flow.generation);
            masks[mask] += 1;
            generations[generation] += 1;
        }
        assert!(masks.iter().eq(self.masks.values.iter().map(|(_, sharers)| sharers)));
        assert!(generations.iter().eq(self.generations.values.iter().map(|(_, sharers)| sharers)));
    }
}
