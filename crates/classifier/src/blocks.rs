//! A buddy allocator for blocks of 2 to 64 slots in one array, so that adjacent free blocks merge into larger ones.
//!
//! Invariants: a block of order `k` has `2^k` slots and is aligned to its size; the first slot of a free block stores
//! its order and its links in the free list of that order, and the first slot of an allocated block cannot be mistaken
//! for a free one.

/// A slot that can store the header of a free block.
pub(crate) trait Free: Copy {
    /// The content of an unused slot.
    const EMPTY: Self;
    /// The header of a free block, with the next and the previous block in its free list.
    fn free(order: u8, next: u32, before: u32) -> Self;
    /// The header, if the slot holds one.
    fn as_free(&self) -> Option<(u8, u32, u32)>;
}

/// Blocks have orders 1 to this.
const MAX_ORDER: u8 = 6;
/// No block.
const NONE: u32 = u32::MAX;

/// The allocator; see the module documentation.
#[derive(Debug)]
pub(crate) struct Blocks<S> {
    pub(crate) slots: Vec<S>,
    /// The first free block of each order, from 1 on.
    free: [u32; MAX_ORDER as usize],
}

impl<S: Free> Blocks<S> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: [NONE; MAX_ORDER as usize] }
    }

    /// Allocates a block of order 1 to 6.
    pub(crate) fn take(&mut self, order: u8) -> usize {
        loop {
            if let Some(found) = (order..=MAX_ORDER).find(|o| self.free[usize::from(*o) - 1] != NONE) {
                let block = self.free[usize::from(found) - 1] as usize;
                self.unlink(block);
                // Return the upper halves of a larger block.
                (order..found).rev().for_each(|o| self.link(block + (1 << o), o));
                return block;
            }
            let end = self.slots.len();
            if end.is_multiple_of(1 << order) {
                self.extend(order);
                return end;
            }
            let gap = end.trailing_zeros() as u8;
            self.extend(gap);
            self.give(end, gap);
        }
    }

    /// Frees a block of this order.
    pub(crate) fn give(&mut self, mut block: usize, mut order: u8) {
        while order < MAX_ORDER {
            let buddy = block ^ 1 << order;
            match self.slots.get(buddy).and_then(Free::as_free) {
                Some((o, ..)) if o == order => self.unlink(buddy),
                _ => break,
            }
            block &= !(1 << order);
            order += 1;
        }
        self.link(block, order);
    }

    fn extend(&mut self, order: u8) {
        self.slots.resize(self.slots.len() + (1 << order), S::EMPTY);
        assert!(self.slots.len() <= 1 << 28, "places are numbered by 28 bits");
    }

    fn link(&mut self, block: usize, order: u8) {
        let first = &mut self.free[usize::from(order) - 1];
        let next = std::mem::replace(first, block as u32);
        self.slots[block] = S::free(order, next, NONE);
        if let Some((order, after, _)) = self.free_at(next) {
            self.slots[next as usize] = S::free(order, after, block as u32);
        }
    }

    fn unlink(&mut self, block: usize) {
        let Some((order, next, before)) = self.slots[block].as_free() else { return };
        self.slots[block] = S::EMPTY;
        match self.free_at(before) {
            Some((_, _, first)) => self.slots[before as usize] = S::free(order, next, first),
            None => self.free[usize::from(order) - 1] = next,
        }
        if let Some((_, after, _)) = self.free_at(next) {
            self.slots[next as usize] = S::free(order, after, before);
        }
    }

    fn free_at(&self, block: u32) -> Option<(u8, u32, u32)> {
        self.slots.get(block as usize).and_then(Free::as_free)
    }

    /// Checks the free lists; returns the number of free slots.
    #[cfg(test)]
    pub(crate) fn check(&self) -> usize {
        let mut n = 0;
        for (order, first) in (1..).zip(self.free) {
            let (mut before, mut block) = (NONE, first);
            while block != NONE {
                let (o, next, b) = self.slots[block as usize].as_free().unwrap();
                assert_eq!((o, b, block % (1 << order)), (order, before, 0));
                let buddy = self.slots.get(block as usize ^ 1 << order).and_then(Free::as_free);
                assert!(order == MAX_ORDER || buddy.is_none_or(|(o, ..)| o != order));
                n += 1 << order;
                (before, block) = (block, next);
            }
        }
        n
    }
}
