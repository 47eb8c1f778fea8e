//! The receiving side of a socket: frames out of the receive ring, and their memory back into the fill ring.
//!
//! Each frame is copied into a buffer of the thread's pool, and its memory goes back to the kernel with the rest of the
//! batch. So no packet holds memory of the umem, and a port can be closed at any time. (To move descriptors between
//! ports instead, see the crate's text.)

use netdev::pool;
use packet::buf::HEADROOM;
use packet::{Batch, Packet};

use crate::frames::Frames;
use crate::memory::{Descriptor, Putting, Taking, Umem, address_of, frame_of};

/// Pieces of a frame at most: one more than the kernel's largest packets have (`MAX_SKB_FRAGS`, 45 at most).
const PIECES_MAX: u32 = 64;

/// Receive ring, fill ring and the frames that go round in them.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Taking<Descriptor>,
    fill: Putting<u64>,
    frames: Frames,
    /// Frames lost because their descriptors made no sense.
    pub(crate) bad: u64,
}

/// What stands at the head of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Head {
    /// Nothing, or not all pieces of a frame.
    Nothing,
    /// A frame of so many pieces and bytes.
    Frame(u32, usize),
    /// More pieces than a frame can have.
    Endless(u32),
}

impl Receiver {
    /// With all its frames lent to the kernel.
    pub(crate) fn new(ring: Taking<Descriptor>, fill: Putting<u64>, frames: Frames) -> Self {
        let mut receiver = Self { ring, fill, frames, bad: 0 };
        receiver.refill();
        receiver
    }

    /// Appends up to `max` frames to `out`; returns how many.
    pub(crate) fn receive(&mut self, umem: &Umem, out: &mut Batch, max: usize) -> usize {
        self.ring.look();
        let (before, mut took) = (out.len(), false);
        while out.len() - before < max {
            let pieces = match head(|ahead| self.ring.peek(ahead)) {
                Head::Nothing => break,
                Head::Frame(1, _) => {
                    out.extend(self.piece(umem, 0, pool::filled));
                    1
                }
                Head::Frame(pieces, len) => {
                    out.extend(self.join(umem, pieces, len));
                    pieces
                }
                Head::Endless(pieces) => {
                    for nth in 0..pieces {
                        let _ = self.piece(umem, nth, |_| ());
                    }
                    self.bad += 1;
                    pieces
                }
            };
            self.ring.advance(pieces);
            took = true;
        }
        if took {
            self.ring.release();
            self.refill();
        }
        out.len() - before
    }

    /// Whether the kernel waits for a system call to look at the fill ring.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Takes the memory of the `nth` waiting descriptor back and shows its bytes; `None`, counted, if there is no sense
    /// in the descriptor.
    fn piece<R>(&mut self, umem: &Umem, nth: u32, show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let Descriptor { address, len, .. } = self.ring.peek(nth)?;
        let bytes = if self.frames.take_back(frame_of(address)) {
            // SAFETY: the frame was lent to the kernel and is ours from now on. It is lent again in `refill` at the earliest,
            // which needs `&mut self`, and is none that the transmitter has.
            unsafe { umem.bytes(address, len) }
        } else {
            None
        };
        if bytes.is_none() {
            self.bad += 1;
        }
        bytes.map(show)
    }

    /// A frame of several pieces, in one buffer.
    fn join(&mut self, umem: &Umem, pieces: u32, len: usize) -> Option<Packet> {
        let mut bytes = pool::buffer(HEADROOM + len);
        bytes.resize(HEADROOM, 0);
        let mut whole = true;
        for nth in 0..pieces {
            // All are taken back, also behind one that is bad; that is counted once.
            let bad = self.bad;
            whole &= self.piece(umem, nth, |piece| bytes.extend_from_slice(piece)).is_some();
            self.bad = bad;
        }
        if !whole {
            self.bad += 1;
            return None;
        }
        Packet::from_vec(bytes, HEADROOM).ok()
    }

    /// Lends the kernel all frames that are free.
    fn refill(&mut self) {
        self.fill.look();
        while self.fill.room() > 0
            && let Some(frame) = self.frames.lend()
        {
            self.fill.put(address_of(frame));
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
    use proptest::prelude::*;

    fn descriptor(len: u32, continued: bool) -> Descriptor {
        Descriptor { address: 0, len, options: u32::from(continued) }
    }

    tally::proptest! {
        /// The naive twin cuts the list behind each last piece.
        #[test]
        fn frames_are_found_whole(list in prop::collection::vec((0u32..3000, prop::bool::weighted(0.6)), 0..90)) {
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
