//! The receiving side of a socket: takes frames out of the receive ring, and puts others into the fill ring.
//!
//! A packet stays in the frame in which it arrived, and another socket of the umem may send it from there. It is
//! copied into a buffer of the thread's pool instead, and the frame lent again with the rest of the batch, if it is
//! short, if it arrived in several pieces, or while few frames are free: so kept packets never let the ring run dry.

use netdev::pool;
use packet::buf::HEADROOM;
use packet::{Batch, Packet};

use crate::arena::{Arena, Cache};
use crate::frames::{Frame, Lending};
use crate::memory::{ConsumerRing, Descriptor, FRAME_LEN, Putting, address_of, frame_of, place_in_frame};

/// Pieces of a frame at most: one more than the kernel's largest packets have (`MAX_SKB_FRAGS`, 45 at most).
const PIECES_MAX: u32 = 64;
/// Packets stay in frames only while at least one in this number of frames is free.
const FREE_OF: usize = 16;
/// Minimum length in bytes of a packet that stays in its frame. docs/performance.md has the measured cost of copying
/// in and out: next to nothing for frames of 64 bytes, a sixth more for those of 128.
pub(crate) const MOVED_LEN_MIN: usize = 128;

/// Receive ring, fill ring and the frames lent to the kernel through them.
#[derive(Debug)]
pub(crate) struct Receiver {
    arena: &'static Arena,
    ring: ConsumerRing<Descriptor>,
    fill: Putting<u64>,
    pub(crate) lending: Lending,
    /// [`MOVED_LEN_MIN`], but where that is measured.
    pub(crate) moved_len_min: usize,
    /// Frames lost because their descriptors were invalid.
    pub(crate) bad: u64,
}

/// The state of the head of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Head {
    /// Nothing, or not all pieces of a frame.
    Nothing,
    /// A frame of this number of pieces and bytes.
    Frame(u32, usize),
    /// More pieces than a frame can have.
    Endless(u32),
}

impl Receiver {
    /// Lends the kernel as many frames as the fill ring has slots.
    pub(crate) fn new(arena: &'static Arena, ring: ConsumerRing<Descriptor>, fill: Putting<u64>) -> Self {
        let lending = Lending::new(arena.umem.number(), arena.umem.frames());
        let mut receiver = Self { arena, ring, fill, lending, moved_len_min: MOVED_LEN_MIN, bad: 0 };
        arena.with_cache(|cache| receiver.refill(cache));
        receiver
    }

    /// Appends up to `max` frames to `out`; returns how many.
    pub(crate) fn receive(&mut self, out: &mut Batch, max: usize) -> usize {
        self.ring.refresh();
        if self.ring.peek(0).is_none() {
            return 0;
        }
        let before = out.len();
        self.arena.with_cache(|cache| {
            let moves = cache.in_reach() >= self.arena.umem.frames() as usize / FREE_OF;
            while out.len() - before < max {
                let pieces = match head(|ahead| self.ring.peek(ahead)) {
                    Head::Nothing => break,
                    Head::Frame(1, len) => {
                        if let Some((frame, start)) = self.piece(cache, 0) {
                            out.push(self.packet(cache, frame, start, len, moves && len >= self.moved_len_min));
                        }
                        1
                    }
                    Head::Frame(pieces, len) => {
                        out.extend(self.join(cache, pieces, len));
                        pieces
                    }
                    Head::Endless(pieces) => {
                        let bad = self.bad;
                        for nth in 0..pieces {
                            if let Some((frame, _)) = self.piece(cache, nth) {
                                cache.give(frame);
                            }
                        }
                        self.bad = bad + 1;
                        pieces
                    }
                };
                self.ring.advance(pieces);
            }
            self.ring.release();
            self.refill(cache);
        });
        out.len() - before
    }

    /// Returns true if the kernel waits for a system call to read the fill ring.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Takes the frame of the `nth` waiting descriptor back, with the offset of its data; `None`, counted, if the
    /// descriptor is invalid.
    fn piece(&mut self, cache: &mut Cache, nth: u32) -> Option<(Frame, usize)> {
        let Descriptor { address, len, .. } = self.ring.peek(nth)?;
        let start = place_in_frame(address);
        match self.lending.take_back(frame_of(address)) {
            Some(frame) if start + len as usize <= FRAME_LEN => return Some((frame, start)),
            Some(frame) => cache.give(frame),
            None => {}
        }
        self.bad += 1;
        None
    }

    /// A packet of `len` bytes, from `start` on, in its frame if it `stays` there.
    fn packet(&self, cache: &mut Cache, mut frame: Frame, start: usize, len: usize, stays: bool) -> Packet {
        if stays {
            return pool::lent(self.arena.umem.lend(frame, start + len), start);
        }
        let packet = pool::filled(&self.arena.umem.bytes(&mut frame)[start..start + len]);
        cache.give(frame);
        packet
    }

    /// A frame of several pieces, in one buffer.
    fn join(&mut self, cache: &mut Cache, pieces: u32, len: usize) -> Option<Packet> {
        let mut bytes = pool::buffer(HEADROOM + len);
        bytes.resize(HEADROOM, 0);
        let mut whole = true;
        let bad = self.bad;
        for nth in 0..pieces {
            // All pieces are taken back, also behind an invalid one, which is counted once.
            let Some((mut frame, start)) = self.piece(cache, nth) else {
                whole = false;
                continue;
            };
            let len = self.ring.peek(nth).map_or(0, |descriptor| descriptor.len as usize);
            bytes.extend_from_slice(&self.arena.umem.bytes(&mut frame)[start..start + len]);
            cache.give(frame);
        }
        if !whole {
            self.bad = bad + 1;
            return None;
        }
        Packet::from_vec(bytes, HEADROOM).ok()
    }

    /// Lends free frames to the kernel, as many as the fill ring takes.
    fn refill(&mut self, cache: &mut Cache) {
        self.fill.refresh();
        while self.fill.free_slots() > 0
            && let Some(frame) = cache.take()
        {
            match self.lending.lend(frame) {
                Ok(number) => drop(self.fill.put(address_of(number))),
                Err(frame) => return cache.give(frame),
            }
        }
        self.fill.publish();
    }
}

/// Looks for a whole frame at the head of a ring.
fn head(peek: impl Fn(u32) -> Option<Descriptor>) -> Head {
    let mut len = 0;
    for ahead in 0..PIECES_MAX {
        let Some(descriptor) = peek(ahead) else { return Head::Nothing };
        len += descriptor.len as usize;
        if !descriptor.is_continued() {
            return Head::Frame(ahead + 1, len.min(PIECES_MAX as usize * crate::memory::FRAME_LEN));
        }
    }
    Head::Endless(PIECES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::some;
    use proptest::prelude::*;

    fn descriptor(len: u32, continued: bool) -> Descriptor {
        Descriptor { address: 0, len, options: u32::from(continued) }
    }

    tally::proptest! {
        /// The naive twin cuts the list behind each last piece.
        #[test]
        fn frames_are_received_whole(list in prop::collection::vec((0u32..3000, prop::bool::weighted(0.6)), 0..some(90))) {
            let list: Vec<_> = list.into_iter().map(|(len, continued)| descriptor(len, continued)).collect();
            let found = head(|n| list.get(n as usize).copied());
            let expected = match list.iter().position(|d| !d.is_continued()) {
                Some(last) if last < PIECES_MAX as usize => {
                    Head::Frame(last as u32 + 1, list[..=last].iter().map(|d| d.len as usize).sum())
                }
                _ if list.len() >= PIECES_MAX as usize => Head::Endless(PIECES_MAX),
                _ => Head::Nothing,
            };
            prop_assert!(found == expected || matches!((found, expected), (Head::Frame(a, _), Head::Frame(b, _)) if a == b));
        }
    }
}
