//! A path-compressed trie of values of one length with a stride of six bits, which reports how many bits of a key show
//! that it is none of the values.
//!
//! Prefixes take one trie for each length. A level is then one word that marks which of its 64 branches exist, and the
//! number of leading bits that the key shares with any value follows from that word: only the key's own branch is ever
//! followed. The children of a node are contiguous, sorted by their digits, each with its value and its own branch
//! word, so that a level costs one memory access.
//!
//! Invariants: a node has at least two children; its depth is a multiple of six bits, the first at which its values
//! differ; its block has the smallest sufficient size.
//! values agree; its block has the smallest size that is enough.

use crate::blocks::{Blocks, Free};

/// A field's value, left aligned.
pub(crate) trait Bits: Copy + Eq + std::fmt::Debug {
    /// No bit set.
    const ZERO: Self;
    /// The upper bits of `value`.
    fn from_top(value: u128) -> Self;
    /// Leading bits in common.
    fn common(self, other: Self) -> u8;
    /// The [`STRIDE`] bits from bit `depth` on, counted from the most significant.
    fn digit(self, depth: u8) -> u8;
    /// The value with all but the first `len` bits cleared.
    fn truncated(self, len: u8) -> Self;
}

macro_rules! bits {
    ($t:ty) => {
        impl Bits for $t {
            const ZERO: Self = 0;
            fn from_top(value: u128) -> Self {
                (value >> (128 - Self::BITS)) as Self
            }
            fn common(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }
            fn digit(self, depth: u8) -> u8 {
                (self << depth >> (Self::BITS - u32::from(STRIDE))) as u8
            }
            fn truncated(self, len: u8) -> Self {
                if len == 0 { 0 } else { self & Self::MAX << (Self::BITS - u32::from(len)) }
            }
        }
    };
}

bits!(u32);
bits!(u128);

/// Bits tested by a level.
const STRIDE: u8 = 6;
/// The depth of a leaf: more than any number of shared bits.
const LEAF: u8 = u8::MAX;

/// A leaf, which is a value, or a node.
#[derive(Clone, Copy, Debug)]
struct Slot<W> {
    /// The value of a leaf; of a node, a value below it, of which the bits up to the node's depth are valid.
    value: W,
    /// The depth in strides, in five bits, and the node's block.
    at: u32,
    /// Bitmap of a node's branches; the count of a leaf's value.
    branches: u64,
}

/// Marks a leaf, in place of the depth in strides.
const LEAF_MARK: u32 = 31;

/// The index of a slot, or `None` for the root.
type SlotIndex = Option<usize>;

/// The trie; see the module documentation.
#[derive(Debug)]
pub(crate) struct Trie<W> {
    root: Option<Slot<W>>,
    blocks: Blocks<Slot<W>>,
    n: u32,
}

impl<W: Bits> Slot<W> {
    fn leaf(value: W) -> Self {
        Self { value, at: LEAF_MARK, branches: 1 }
    }

    fn node(value: W, depth: u8, branches: u64, block: usize) -> Self {
        let mut slot = Self { value, at: u32::from(depth / STRIDE), branches };
        slot.move_to(block);
        slot
    }

    /// The bit at which the node branches, or [`LEAF`].
    fn depth(&self) -> u8 {
        match self.at & LEAF_MARK {
            LEAF_MARK => LEAF,
            strides => strides as u8 * STRIDE,
        }
    }

    /// Index of the node's block. (Blocks begin at even indexes.)
    fn block(&self) -> usize {
        (self.at >> 5 << 1) as usize
    }

    fn move_to(&mut self, block: usize) {
        self.at = self.at & LEAF_MARK | (block as u32 >> 1) << 5;
    }

    /// The index of a digit's child within the node, and whether it exists.
    fn child(&self, digit: u8) -> (usize, bool) {
        let lower = self.branches & ((1 << digit) - 1);
        (lower.count_ones() as usize, self.branches >> digit & 1 != 0)
    }

    fn n_children(&self) -> usize {
        self.branches.count_ones() as usize
    }
}

impl<W: Bits> Free for Slot<W> {
    const EMPTY: Self = Self { value: W::ZERO, at: LEAF_MARK, branches: 0 };

    fn free(order: u8, next: u32, before: u32) -> Self {
        Self {
            value: W::ZERO,
            at: FREE_MARK | u32::from(order) << 5,
            branches: u64::from(next) << 32 | u64::from(before),
        }
    }

    fn as_free(&self) -> Option<(u8, u32, u32)> {
        let free = self.at & LEAF_MARK == FREE_MARK;
        free.then_some(((self.at >> 5) as u8, (self.branches >> 32) as u32, self.branches as u32))
    }
}

/// Marks the header of a free block, in place of the depth in strides.
const FREE_MARK: u32 = 30;

impl<W: Bits> Trie<W> {
    pub(crate) fn new() -> Self {
        Self { root: None, blocks: Blocks::new(), n: 0 }
    }

    /// Number of distinct values.
    pub(crate) fn len(&self) -> u32 {
        self.n
    }

    /// The maximum number of leading bits that `key` shares with a value; `None` if there are no values.
    #[inline]
    pub(crate) fn common(&self, key: W) -> Option<u8> {
        let mut at = self.root.as_ref()?;
        loop {
            let (common, depth) = (key.common(at.value), at.depth());
            if common < depth {
                return Some(common);
            }
            let digit = key.digit(depth);
            let (i, there) = at.child(digit);
            if !there {
                return Some(depth + nearest(at.branches, digit));
            }
            at = &self.blocks.slots[at.block() + i];
        }
    }

    /// Adds a value once.
    pub(crate) fn insert(&mut self, value: W) {
        let Some(root) = self.root else {
            self.root = Some(Slot::leaf(value));
            self.n = 1;
            return;
        };
        let (mut place, mut at) = (None, root);
        loop {
            let (common, depth) = (at.value.common(value), at.depth());
            if depth == LEAF && at.value == value {
                at.branches += 1;
                return self.set(place, at);
            }
            if common < depth {
                self.n += 1;
                return self.fork(place, at, value, common);
            }
            let (i, there) = at.child(value.digit(depth));
            if !there {
                self.n += 1;
                return self.add_child(place, at, value);
            }
            let child = at.block() + i;
            (place, at) = (Some(child), self.blocks.slots[child]);
        }
    }

    /// Inserts a node above `at`, whose values share `common` bits with the new value.
    fn fork(&mut self, place: SlotIndex, at: Slot<W>, value: W, common: u8) {
        let depth = common - common % STRIDE;
        let (old, new) = (at.value.digit(depth), value.digit(depth));
        let block = self.blocks.take(order_for(2));
        let i = usize::from(old < new);
        self.blocks.slots[block + i] = Slot::leaf(value);
        self.blocks.slots[block + 1 - i] = at;
        self.set(place, Slot::node(value, depth, 1 << old | 1 << new, block));
    }

    fn add_child(&mut self, place: SlotIndex, mut node: Slot<W>, value: W) {
        let digit = value.digit(node.depth());
        let n = node.n_children();
        let i = node.child(digit).0;
        self.resize(&mut node, n, n + 1);
        let at = node.block() + i;
        self.blocks.slots.copy_within(at..node.block() + n, at + 1);
        self.blocks.slots[at] = Slot::leaf(value);
        node.branches |= 1 << digit;
        self.set(place, node);
    }

    /// Removes a value once, if present.
    pub(crate) fn remove(&mut self, value: W) {
        let Some(root) = self.root else { return };
        let mut parent = None;
        let (mut place, mut at) = (None, root);
        while at.depth() != LEAF {
            let (i, there) = at.child(value.digit(at.depth()));
            if !there {
                return;
            }
            parent = Some((place, at));
            let child = at.block() + i;
            (place, at) = (Some(child), self.blocks.slots[child]);
        }
        if at.value != value {
            return;
        }
        at.branches -= 1;
        if at.branches > 0 {
            return self.set(place, at);
        }
        self.n -= 1;
        match parent {
            Some((place, node)) => self.remove_child(place, node, value),
            None => *self = Self::new(),
        }
    }

    fn remove_child(&mut self, place: SlotIndex, mut node: Slot<W>, value: W) {
        let digit = value.digit(node.depth());
        let n = node.n_children();
        let (begin, i) = (node.block(), node.child(digit).0);
        if n == 2 {
            let other = self.blocks.slots[begin + 1 - i];
            self.blocks.give(begin, order_for(2));
            return self.set(place, other);
        }
        self.blocks.slots.copy_within(begin + i + 1..begin + n, begin + i);
        node.branches &= !(1 << digit);
        self.resize(&mut node, n, n - 1);
        self.set(place, node);
    }

    fn set(&mut self, place: SlotIndex, slot: Slot<W>) {
        match place {
            Some(i) => self.blocks.slots[i] = slot,
            None => self.root = Some(slot),
        }
    }

    /// Resizes a node's block for another number of children.
    fn resize(&mut self, node: &mut Slot<W>, from: usize, to: usize) {
        let (had, needed) = (order_for(from), order_for(to));
        if had != needed {
            let (old, new) = (node.block(), self.blocks.take(needed));
            self.blocks.slots.copy_within(old..old + from.min(to), new);
            self.blocks.give(old, had);
            node.move_to(new);
        }
    }
}

/// The order of the block for this number of children.
fn order_for(n: usize) -> u8 {
    n.next_power_of_two().trailing_zeros() as u8
}

/// The maximum number of leading bits of `digit` that a branch shares. (There are branches, and none for the digit
/// itself.)
fn nearest(branches: u64, digit: u8) -> u8 {
    let lower = branches & ((1 << digit) - 1);
    let higher = branches ^ lower;
    let mut apart = u8::MAX;
    if lower != 0 {
        apart = lower.ilog2() as u8 ^ digit;
    }
    if higher != 0 {
        apart = apart.min(higher.trailing_zeros() as u8 ^ digit);
    }
    STRIDE - 1 - apart.ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl<W: Bits> Trie<W> {
        /// Checks the invariants; returns the number of values.
        fn check(&self) -> u32 {
            let mut n = 0;
            let mut slots = 0;
            let mut todo: Vec<_> = self.root.into_iter().map(|root| (root, root.value, 0)).collect();
            while let Some((slot, value, len)) = todo.pop() {
                assert!(slot.value.common(value) >= len);
                if slot.depth() == LEAF {
                    assert!(slot.branches > 0);
                    n += 1;
                    continue;
                }
                assert!(slot.depth() >= len && slot.n_children() >= 2);
                slots += 1 << order_for(slot.n_children());
                for digit in (0..64).filter(|digit| slot.child(*digit).1) {
                    let child = self.blocks.slots[slot.block() + slot.child(digit).0];
                    assert!(child.value.digit(slot.depth()) == digit && child.value.common(slot.value) >= slot.depth());
                    todo.push((child, child.value, slot.depth() + STRIDE));
                }
            }
            assert_eq!((n, slots + self.blocks.check()), (self.n, self.blocks.slots.len()));
            n
        }
    }

    /// Values that share parts at both ends.
    fn spread(v: u16) -> u32 {
        let v = u32::from(v);
        v << 24 & 0xc300_0000 | (v & 0x1c) << 11 | (v & 3) << 4 | v >> 8 << 17
    }

    tally::proptest! {
        #[test]
        fn agrees_with_a_list(
            ops in prop::collection::vec((0..5u8, any::<u16>()), 1..300),
            keys in prop::collection::vec((any::<u16>(), 0..64u32), 20),
            len in 1..=32u8,
        ) {
            let mut trie = Trie::<u32>::new();
            let mut list: Vec<u32> = Vec::new();
            let fill = ops.len() / 2;
            for (n, (kind, v)) in ops.into_iter().enumerate() {
                let value = spread(v).truncated(len);
                // The first half mostly inserts, the second half mostly removes.
                if (kind < 4) == (n < fill) {
                    trie.insert(value);
                    list.push(value);
                } else if let Some(i) = list.iter().position(|v| *v == value).or(list.len().checked_sub(1)) {
                    trie.remove(list.swap_remove(i));
                } else {
                    trie.remove(value);
                }
                trie.check();
            }
            let mut distinct = list.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(trie.len() as usize, distinct.len());
            for (v, flip) in keys {
                let key = (spread(v) ^ 1u32.checked_shl(flip).unwrap_or(0)).truncated(len);
                prop_assert_eq!(trie.common(key), list.iter().map(|v| key.common(*v)).max());
            }
            for value in list {
                trie.remove(value);
                trie.check();
            }
            prop_assert!(trie.len() == 0 && trie.blocks.slots.is_empty() && trie.common(0).is_none());
        }
    }

    #[test]
    fn wide_values() {
        let mut trie = Trie::<u128>::new();
        trie.insert(u128::MAX);
        assert_eq!(trie.common(u128::MAX - 1), Some(127));
        trie.insert(u128::MAX << 1);
        trie.insert(1 << 127);
        assert_eq!([u128::MAX, u128::MAX - 3, 3 << 126, 0].map(|key| trie.common(key)), [128, 126, 2, 0].map(Some));
        trie.remove(u128::MAX);
        assert_eq!(trie.common(u128::MAX), Some(127));
        assert_eq!(trie.check(), 2);
    }

    #[test]
    fn blocks_are_reused() {
        let mut trie = Trie::<u32>::new();
        let value = |i: u32| i.wrapping_mul(0x9e37_79b9);
        (0..5000).for_each(|i| trie.insert(value(i)));
        assert_eq!(trie.check(), 5000);
        let slots = trie.blocks.slots.len();
        assert!(slots < 2 * 5000);
        for i in 0..20_000 {
            trie.remove(value(i));
            trie.insert(value(i + 5000));
        }
        assert_eq!(trie.check(), 5000);
        assert!(trie.blocks.slots.len() < slots * 3 / 2, "{} instead of {slots}", trie.blocks.slots.len());
    }
}
