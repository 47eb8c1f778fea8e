//! Leaves: a flow each, beside all that a look-up compares.
//!
//! A leaf is one line of memory, as a look-up among many flows waits for memory more than for anything else. So what many
//! leaves have in common stands apart, once, under a number: masks, and generations. What does not fit into a leaf is
//! read from its flow's key.

use std::hash::Hash;
use std::sync::Arc;

use flow::{Code, PLAIN_WORDS, Sparse, Words};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::super::Megaflow;
use super::slab::Slab;

/// Words of a mask that stand in the leaf itself.
const INLINE: usize = PLAIN_WORDS;
/// In the number of a leaf's mask: the mask is more than the flow's own reads.
const NARROWED: u32 = 1 << 31;
/// No generation has this number.
const NO_GENERATION: u32 = u32::MAX;

/// A leaf. `flow` is `None` in a free place.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Leaf {
    values: [u64; INLINE],
    flow: Option<Arc<Megaflow>>,
    mask: u32,
    generation: u32,
}

const _: () = assert!(size_of::<Leaf>() == 64);

/// A mask, as look-ups want it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shape {
    /// Where no word is, bits are zero.
    bits: [u64; INLINE],
    words: [Code; INLINE],
    /// All words of the mask are among those of plain packets' keys, and stand here in their order.
    ordered: bool,
    /// There are more words than have room.
    more: bool,
}

impl Shape {
    fn new(mask: &Sparse) -> Self {
        let mut shape = Self { more: false, ..Self::default() };
        shape.ordered = mask.iter().all(|(word, _)| Code::of(word).place().is_some());
        for (i, (word, bits)) in mask.iter().enumerate() {
            match shape.place(i, word) {
                Some(at) => (shape.words[at], shape.bits[at]) = (Code::of(word), bits),
                None => shape.more = true,
            }
        }
        shape
    }

    /// Where the `i`-th word of the mask stands, if there is room.
    fn place(&self, i: usize, word: usize) -> Option<usize> {
        if self.ordered { Code::of(word).place() } else { Some(i).filter(|i| *i < INLINE) }
    }
}

/// Values that leaves share, each under a number for as long as a leaf has it.
#[derive(Debug)]
struct Shared<T> {
    numbers: HashMap<T, u32, RandomState>,
    /// By number, with how many have it.
    values: Vec<(T, usize)>,
    free: Vec<u32>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { numbers: HashMap::default(), values: Vec::new(), free: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Shared<T> {
    /// The number of a value that one leaf more has, and whether it is new.
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

    /// A leaf that had a number is gone.
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

/// All leaves of a tree, by their indexes.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    slab: Slab<Leaf>,
    masks: Shared<Sparse>,
    /// By the numbers of masks.
    shapes: Vec<Shape>,
    generations: Shared<u64>,
    /// Leaves whose flows are narrower than their own reads.
    pub(super) n_narrowed: usize,
}

impl Leaves {
    /// A leaf for `flow` as it is to be installed, its mask narrowed if it is to be.
    fn leaf(&mut self, flow: Arc<Megaflow>, narrowed: bool) -> Leaf {
        let own;
        let mask = if narrowed {
            own = flow.mask();
            &own
        } else {
            flow.reads.mask()
        };
        let (number, is_new) = self.masks.share(mask);
        if is_new {
            if self.shapes.len() <= number as usize {
                self.shapes.resize_with(number as usize + 1, Shape::default);
            }
            self.shapes[number as usize] = Shape::new(mask);
        }
        let shape = &self.shapes[number as usize];
        let mut values = [0; INLINE];
        for (i, (word, _, value)) in flow.key.in_mask(mask).enumerate() {
            if let Some(at) = shape.place(i, word) {
                values[at] = value;
            }
        }
        let (generation, _) = self.generations.share(&flow.generation);
        self.n_narrowed += usize::from(narrowed);
        Leaf { values, mask: number | if narrowed { NARROWED } else { 0 }, generation, flow: Some(flow) }
    }

    /// Lets go of a leaf's parts that are shared. Returns its flow.
    fn take_apart(&mut self, leaf: Leaf) -> Option<Arc<Megaflow>> {
        let flow = leaf.flow?;
        self.masks.release(leaf.mask & !NARROWED);
        self.generations.release(leaf.generation);
        self.n_narrowed -= usize::from(leaf.mask & NARROWED != 0);
        Some(flow)
    }

    /// Adds a leaf.
    pub(super) fn add(&mut self, flow: Arc<Megaflow>, narrowed: bool) -> usize {
        let leaf = self.leaf(flow, narrowed);
        self.slab.add(leaf)
    }

    /// Puts a flow in the place of another one, which is returned.
    pub(super) fn replace(&mut self, index: usize, flow: Arc<Megaflow>, narrowed: bool) -> Option<Arc<Megaflow>> {
        let new = self.leaf(flow, narrowed);
        let old = std::mem::replace(&mut self.slab.items[index], new);
        self.take_apart(old)
    }

    /// Takes a leaf out.
    pub(super) fn take(&mut self, index: usize) -> Option<Arc<Megaflow>> {
        let leaf = self.slab.take(index);
        self.take_apart(leaf)
    }

    /// The flow of the last leaf. Free places behind it are forgotten: nothing may be added any more.
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

    fn shape(&self, leaf: &Leaf) -> Option<&Shape> {
        self.shapes.get((leaf.mask & !NARROWED) as usize)
    }

    /// Whether the flow of a leaf covers `key`, whatever its generation.
    #[inline]
    pub(super) fn covers(&self, index: usize, key: &impl Words) -> bool {
        self.slab.items.get(index).is_some_and(|leaf| self.leaf_covers(leaf, key))
    }

    #[inline]
    fn leaf_covers(&self, leaf: &Leaf, key: &impl Words) -> bool {
        let Some(shape) = self.shape(leaf) else { return false };
        let mut differ = 0;
        if let Some(plain) = key.plain()
            && shape.ordered
        {
            for ((word, value), bits) in plain.iter().zip(&leaf.values).zip(&shape.bits) {
                differ |= (word ^ value) & bits;
            }
            return differ == 0;
        }
        for i in 0..INLINE {
            differ |= (key.coded(shape.words[i]) ^ leaf.values[i]) & shape.bits[i];
        }
        differ == 0 && (!shape.more || self.rest_covers(leaf, key))
    }

    /// Whether the words that have no room in the leaf are the same in `key`.
    #[cold]
    fn rest_covers(&self, leaf: &Leaf, key: &impl Words) -> bool {
        let (Some(flow), Some((mask, _))) = (&leaf.flow, self.masks.values.get((leaf.mask & !NARROWED) as usize))
        else {
            return false;
        };
        flow.key.in_mask(mask).skip(INLINE).all(|(word, bits, value)| key.word(word) & bits == value)
    }

    /// What a leaf's flow's key has of a word, in the bits of its mask.
    #[inline]
    pub(super) fn value(&self, index: usize, word: usize) -> u64 {
        let Some((leaf, shape)) = self.slab.items.get(index).and_then(|leaf| Some((leaf, self.shape(leaf)?))) else {
            return 0;
        };
        let code = Code::of(word);
        if let Some(i) = (0..INLINE).find(|i| shape.words[*i] == code && shape.bits[*i] != 0) {
            return leaf.values[i];
        }
        match (&leaf.flow, self.masks.values.get((leaf.mask & !NARROWED) as usize)) {
            (Some(flow), Some((mask, _))) if shape.more => flow.key.word(word) & mask.word(word),
            _ => 0,
        }
    }

    /// The number of a generation, for [`Leaves::answer`].
    #[inline]
    pub(super) fn number_of(&self, generation: u64) -> u32 {
        self.generations.numbers.get(&generation).copied().unwrap_or(NO_GENERATION)
    }

    /// Loads what [`Leaves::answer`] looks at.
    #[inline]
    pub(super) fn touch(&self, index: usize) -> u64 {
        self.slab.items.get(index).map_or(0, |leaf| leaf.values[0])
    }

    /// The flow of a leaf, if it is of the generation of this number and covers `key`.
    #[inline]
    pub(super) fn answer(&self, index: usize, key: &impl Words, generation: u32) -> Option<&Arc<Megaflow>> {
        let leaf = self.slab.items.get(index)?;
        if leaf.generation == generation && self.leaf_covers(leaf, key) { leaf.flow.as_ref() } else { None }
    }

    /// Whether there are more places than `n`.
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
        self.slab.bytes() + self.shapes.capacity() * size_of::<Shape>() + shared
    }

    /// What is counted and shared, counted anew.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let there = || self.slab.items.iter().filter(|leaf| leaf.flow.is_some());
        assert_eq!(self.n_narrowed, there().filter(|leaf| leaf.mask & NARROWED != 0).count());
        let (mut masks, mut generations) = (vec![0; self.masks.values.len()], vec![0; self.generations.values.len()]);
        for leaf in there() {
            let flow = leaf.flow.as_ref().expect("it is there");
            let (mask, generation) = ((leaf.mask & !NARROWED) as usize, leaf.generation as usize);
            assert_eq!(self.masks.values[mask].0, flow.mask());
            assert_eq!(self.generations.values[generation].0, flow.generation);
            masks[mask] += 1;
            generations[generation] += 1;
        }
        assert!(masks.iter().eq(self.masks.values.iter().map(|(_, sharers)| sharers)));
        assert!(generations.iter().eq(self.generations.values.iter().map(|(_, sharers)| sharers)));
    }
}
