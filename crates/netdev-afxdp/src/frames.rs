//! Ownership of the frames of a umem: by the process or the kernel.
//!
//! A [`Frame`] represents the ownership of a frame's memory. There is one for each, created with the memory, and it
//! cannot be copied: only its holder can access the memory ([`crate::memory::Umem::bytes`]; `lend` converts it into
//! memory of a packet, and `close` converts that back). To lend the frame to the kernel, by a descriptor in a ring,
//! it is passed to the [`Lending`] of that ring's side, which sets a bit and returns it once, when the kernel names
//! the frame in a descriptor of its own. A frame that was not lent is refused. So no two of our descriptors ever name
//! the same frame, and the memory of a frame that is not lent belongs to the process alone, whatever the kernel
//! returns.

/// The right to the memory of a frame.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Frame {
    /// Which umem it is of.
    umem: u32,
    number: u32,
}

impl Frame {
    /// # Safety
    /// No other value owns this frame: none was created, or memory made from it is given up for it.
    pub(crate) unsafe fn new(umem: u32, number: u32) -> Self {
        Self { umem, number }
    }

    /// The number of the umem that it is of.
    pub(crate) fn umem(&self) -> u32 {
        self.umem
    }

    /// Its number within the umem.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Frames that a side of a socket has lent to the kernel.
#[derive(Debug)]
pub(crate) struct Lending {
    umem: u32,
    /// A bit a frame.
    lent: Vec<u64>,
}

impl Lending {
    /// Nothing of the `n` frames of umem number `umem`.
    pub(crate) fn new(umem: u32, n: u32) -> Self {
        Self { umem, lent: vec![0; n.div_ceil(64) as usize] }
    }

    /// Lends a frame; returns its number, for the descriptor. A frame of another umem is returned as an error.
    pub(crate) fn lend(&mut self, frame: Frame) -> Result<u32, Frame> {
        let Some(word) = self.lent.get_mut((frame.number / 64) as usize).filter(|_| frame.umem == self.umem) else {
            return Err(frame);
        };
        *word |= 1 << (frame.number % 64);
        Ok(frame.number)
    }

    /// Takes a frame back that the kernel names; `None` if it was not lent.
    pub(crate) fn take_back(&mut self, number: u32) -> Option<Frame> {
        let word = self.lent.get_mut((number / 64) as usize)?;
        let bit = 1 << (number % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        // SAFETY: the bit represented the ownership of this frame, which `lend` took, and is cleared by now.
        Some(unsafe { Frame::new(self.umem, number) })
    }

    /// Takes all frames back, when the kernel no longer uses them.
    pub(crate) fn take_all(&mut self) -> Vec<Frame> {
        (0..self.lent.len() as u32 * 64).filter_map(|number| self.take_back(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::some;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Lend(usize, u32),
        TakeBack(usize, u32),
        TakeAll(usize),
    }

    tally::proptest! {
        /// Two sides over one umem. The naive twin records the owner of each frame.
        #[test]
        fn a_frame_is_in_one_place(n in 0u32..some(150) as u32, steps in prop::collection::vec(prop_oneof![
            8 => (0usize..2, 0u32..160).prop_map(|(side, frame)| Step::Lend(side, frame)),
            8 => (0usize..2, prop_oneof![0u32..400, Just(u32::MAX)]).prop_map(|(side, frame)| Step::TakeBack(side, frame)),
            1 => (0usize..2).prop_map(Step::TakeAll),
        ], 0..some(300))) {
            let mut sides = [Lending::new(7, n), Lending::new(7, n)];
            // SAFETY: there is no memory.
            let new = |number| unsafe { Frame::new(7, number) };
            let mut ours: BTreeMap<u32, Frame> = (0..n).map(|number| (number, new(number))).collect();
            let mut lent = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Lend(side, number) => if let Some(frame) = ours.remove(&number) {
                        prop_assert_eq!(sides[side].lend(frame), Ok(number));
                        lent.insert(number, side);
                    },
                    Step::TakeBack(side, number) => {
                        let frame = sides[side].take_back(number);
                        prop_assert_eq!(frame.is_some(), lent.get(&number) == Some(&side));
                        if let Some(frame) = frame {
                            lent.remove(&number);
                            prop_assert!(frame.number() == number && ours.insert(number, frame).is_none());
                        }
                    }
                    Step::TakeAll(side) => {
                        let frames = sides[side].take_all();
                        let expected: Vec<_> = lent.iter().filter(|(_, s)| **s == side).map(|(n, _)| *n).collect();
                        prop_assert_eq!(frames.iter().map(Frame::number).collect::<Vec<_>>(), expected);
                        lent.retain(|_, s| *s != side);
                        ours.extend(frames.into_iter().map(|frame| (frame.number(), frame)));
                    }
                }
                prop_assert_eq!(ours.len() + lent.len(), n as usize);
            }
        }
    }

    #[test]
    fn frames_of_another_umem_are_refused() {
        let mut lending = Lending::new(1, 64);
        for (umem, number) in [(2, 0), (1, 64)] {
            // SAFETY: there is no memory.
            let frame = unsafe { Frame::new(umem, number) };
            assert!(lending.lend(frame).is_err());
        }
        assert!(lending.take_all().is_empty());
    }
}
