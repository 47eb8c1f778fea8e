//! Who has which frame of a umem: we, or the kernel.
//!
//! Every frame is in one place: among the free ones, or lent to the kernel by a descriptor in a ring. The kernel gives a
//! frame back by a descriptor too, and one that names a frame which was not lent is refused. So no two descriptors of
//! ours ever name the same frame, whatever the kernel says, and the memory of a frame that is not lent is ours alone.

/// The frames `first .. first + n` of a umem.
#[derive(Debug)]
pub(crate) struct Frames {
    first: u32,
    n: u32,
    /// The frame given back last is used first: its memory is most likely still in the cache.
    free: Vec<u32>,
    /// A bit a frame: lent.
    lent: Vec<u64>,
}

impl Frames {
    /// All free.
    pub(crate) fn new(first: u32, n: u32) -> Self {
        Self { first, n, free: (first..first + n).rev().collect(), lent: vec![0; n.div_ceil(64) as usize] }
    }

    /// Frames that are free.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Lends a frame to the kernel; `None` if none is free.
    pub(crate) fn lend(&mut self) -> Option<u32> {
        let frame = self.free.pop()?;
        let at = frame - self.first;
        self.lent[(at / 64) as usize] |= 1 << (at % 64);
        Some(frame)
    }

    /// Takes a frame back. Returns whether it was lent.
    pub(crate) fn take_back(&mut self, frame: u32) -> bool {
        let Some((word, bit)) = self.bit(frame) else { return false };
        let lent = self.lent[word] & bit != 0;
        if lent {
            self.lent[word] &= !bit;
            self.free.push(frame);
        }
        lent
    }

    fn bit(&self, frame: u32) -> Option<(usize, u64)> {
        let at = frame.checked_sub(self.first).filter(|at| *at < self.n)?;
        Some(((at / 64) as usize, 1 << (at % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    tally::proptest! {
        /// The naive twin is two sets.
        #[test]
        fn a_frame_is_in_one_place(first in 0u32..200, n in 0u32..150, said in prop::collection::vec((any::<bool>(), 0u32..400), 0..300)) {
            let mut frames = Frames::new(first, n);
            let (mut free, mut lent) = ((first..first + n).collect::<BTreeSet<_>>(), BTreeSet::new());
            for (lend, frame) in said {
                if lend {
                    match frames.lend() {
                        Some(frame) => prop_assert!(free.remove(&frame) && lent.insert(frame)),
                        None => prop_assert!(free.is_empty()),
                    }
                } else {
                    prop_assert_eq!(frames.take_back(frame), lent.remove(&frame) && free.insert(frame));
                }
                prop_assert_eq!(frames.free(), free.len());
            }
        }
    }
}
