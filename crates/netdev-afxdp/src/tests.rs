//! Both sides of a socket against a kernel that is played: the rings lie in a file in memory, which is mapped once for us
//! and once, with the roles exchanged, for the kernel.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use base::DropReason;
use netdev::{SendReport, pool};
use packet::{Batch, Packet};
use proptest::prelude::*;
use rustix::net::xdp::XdpRingOffset;

use crate::arena::Arena;
use crate::memory::{ConsumerRing, Descriptor, FRAME_LEN, Putting, RingKind, address_of, frame_of};
use crate::receive::Receiver;
use crate::send::{Sender, Setup};

pub(crate) const SLOTS: u32 = 16;

/// Where the words of the played rings are.
pub(crate) const OFFSETS: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };

/// Number of tries of a test: fewer under Miri, which takes a thousand times as long.
pub(crate) const fn some(n: usize) -> usize {
    if cfg!(miri) { n / 32 + 2 } else { n }
}

/// A file that replaces the socket.
pub(crate) fn file() -> OwnedFd {
    // Miri has no files in memory; a number is enough for it.
    #[cfg(miri)]
    return std::fs::File::open("/dev/null").expect("a file").into();
    #[cfg(not(miri))]
    file_in_memory()
}

#[cfg(not(miri))]
fn file_in_memory() -> OwnedFd {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let file = memfd_create("rings", MemfdFlags::CLOEXEC).expect("a file in memory");
    ftruncate(&file, RingKind::Completion as u64 + (64 << 10)).expect("a file full of holes");
    file
}

/// A umem with this number of frames.
fn arena(frames: u32) -> &'static Arena {
    Arena::new(1, frames).expect("memory")
}

#[derive(Clone, Debug)]
enum Step {
    /// The kernel receives a frame of this length, in pieces of at most the second length.
    Arrive(usize, usize),
    /// The kernel returns an invalid descriptor.
    Nonsense(Descriptor),
    /// The process takes this number of frames.
    Take(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let nonsense = (any::<u64>(), any::<u32>(), 0u64..40, 0u32..5000, any::<bool>()).prop_map(|(a, l, f, s, wild)| {
        let (address, len) = if wild { (a, l) } else { (f * 1000, s) };
        Step::Nonsense(Descriptor { address, len, options: 0 })
    });
    let step = prop_oneof![
        6 => (0usize..6000, 500usize..FRAME_LEN).prop_map(|(len, piece)| Step::Arrive(len, piece)),
        1 => nonsense,
        4 => (0usize..10).prop_map(Step::Take),
    ];
    prop::collection::vec(step, 1..some(80))
}

/// Bytes that identify frames.
pub(crate) fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

tally::proptest! {
    /// Received frames come out complete and in order; invalid descriptors are counted, and lose no memory.
    #[test]
    fn received_frames_equal_those_that_arrived(steps in steps()) {
        let file = file();
        let ours = (
            ConsumerRing::new(file.as_fd(), RingKind::Rx, OFFSETS, SLOTS).expect("ring"),
            Putting::new(file.as_fd(), RingKind::Fill, OFFSETS, SLOTS).expect("ring"),
        );
        let mut rx = Putting::new(file.as_fd(), RingKind::Rx, OFFSETS, SLOTS).expect("ring");
        let mut fill = ConsumerRing::<u64>::new(file.as_fd(), RingKind::Fill, OFFSETS, SLOTS).expect("ring");
        let arena = arena(2 * SLOTS);
        let mut receiver = Receiver::new(arena, ours.0, ours.1);
        let (mut waiting, mut number, mut nonsense) = (VecDeque::new(), 0, 0);
        let mut batch = Batch::new();
        for step in steps.into_iter().chain([Step::Take(usize::MAX)]) {
            match step {
                Step::Arrive(len, piece) => {
                    number += 1;
                    let bytes = frame(number, len);
                    let pieces: Vec<_> = bytes.chunks(piece).collect();
                    fill.refresh();
                    rx.refresh();
                    let n = pieces.len().max(1) as u32;
                    // As the kernel does: a frame that does not fit whole is lost.
                    if fill.peek(n - 1).is_none() || rx.free_slots() < n {
                        continue;
                    }
                    for i in 0..n as usize {
                        let address = fill.peek(0).expect("looked at");
                        fill.advance(1);
                        let piece = pieces.get(i).copied().unwrap_or_default();
                        let address = address + (FRAME_LEN - piece.len()).min(256) as u64;
                        // SAFETY: the frame was in the fill ring, so the kernel that is played has it alone.
                        unsafe { arena.umem.write(address, piece) };
                        let options = u32::from(i + 1 < n as usize);
                        rx.put(Descriptor { address, len: piece.len() as u32, options });
                    }
                    rx.publish();
                    fill.release();
                    waiting.push_back(Some(bytes));
                }
                Step::Nonsense(descriptor) => {
                    // A descriptor that names a frame of the kernel with a length that fits would be valid.
                    let in_frame = (descriptor.address % FRAME_LEN as u64) as usize + descriptor.len as usize;
                    rx.refresh();
                    if (descriptor.address < address_of(2 * SLOTS) && in_frame <= FRAME_LEN) || rx.free_slots() == 0 {
                        continue;
                    }
                    // A frame that is named so does not belong to the kernel any more: it takes none then.
                    if frame_of(descriptor.address) < 2 * SLOTS {
                        continue;
                    }
                    rx.put(descriptor);
                    rx.publish();
                    waiting.push_back(None);
                }
                Step::Take(max) => {
                    let n = receiver.receive(&mut batch, max);
                    prop_assert!(n == batch.len() && n <= max);
                    for packet in batch.drain(..) {
                        while waiting.front() == Some(&None) {
                            waiting.pop_front();
                            nonsense += 1;
                        }
                        let expected = waiting.pop_front().flatten().expect("no more than arrived");
                        prop_assert_eq!(packet.data(), &expected[..]);
                        pool::recycle(packet);
                    }
                    if n < max {
                        prop_assert!(waiting.iter().all(Option::is_none));
                        nonsense += waiting.drain(..).count() as u64;
                        prop_assert_eq!(receiver.bad, nonsense);
                    }
                }
            }
        }
        // All memory is with the kernel again.
        fill.refresh();
        prop_assert!(fill.peek(SLOTS - 1).is_some());
    }

    /// The kernel receives sent frames whole and in order, or they count as dropped; completions return their memory.
    #[test]
    fn sent_frames_are_seen_once(
        steps in prop::collection::vec((prop::collection::vec(0usize..8000, 0..6), 0u32..12, 0usize..20), 1..some(40)),
    ) {
        let file = file();
        let ring = Putting::new(file.as_fd(), RingKind::Tx, OFFSETS, SLOTS).expect("ring");
        let completion = ConsumerRing::new(file.as_fd(), RingKind::Completion, OFFSETS, SLOTS).expect("ring");
        let mut tx = ConsumerRing::<Descriptor>::new(file.as_fd(), RingKind::Tx, OFFSETS, SLOTS).expect("ring");
        let mut done = Putting::new(file.as_fd(), RingKind::Completion, OFFSETS, SLOTS).expect("ring");
        let arena = arena(SLOTS);
        let setup = Setup { zero_copy: false, pieces: true, need_wakeup: true };
        let mut sender = Sender::new(arena, ring, completion, setup);
        // The simulated kernel takes frames, not the system call, which fails without a socket.
        let (mut number, mut given, mut dropped, mut reported) = (0, VecDeque::<Vec<u8>>::new(), 0, 0);
        let (mut taken, mut to_complete) = (0, VecDeque::new());
        for (lens, takes, completes) in steps {
            let mut batch: Batch = lens.iter().enumerate().map(|(i, len)| Packet::from_slice(&frame(number + i, *len))).collect();
            number += lens.len();
            given.extend(batch.iter().map(|p| p.data().to_vec()));
            let report = sender.send(file.as_fd(), &mut batch);
            prop_assert!(batch.is_empty());
            dropped += report.n_dropped();
            reported += report.sent;
            tx.refresh();
            for _ in 0..takes {
                let (mut pieces, mut seen) = (0, Vec::new());
                while let Some(descriptor) = tx.peek(pieces) {
                    pieces += 1;
                    // SAFETY: the descriptor is in the transmit ring, so the frame is not written.
                    seen.extend_from_slice(unsafe { arena.umem.read(descriptor.address, descriptor.len) }.expect("in a frame"));
                    to_complete.push_back(descriptor.address);
                    if !descriptor.is_continued() {
                        break;
                    }
                }
                if pieces == 0 {
                    break;
                }
                tx.advance(pieces);
                taken += 1;
                // In order; frames in between were dropped.
                let at = given.iter().position(|bytes| *bytes == seen);
                prop_assert!(at.is_some(), "{} bytes that were not given", seen.len());
                given.drain(..=at.unwrap_or(0));
            }
            tx.release();
            done.refresh();
            for address in to_complete.drain(..completes.min(to_complete.len())) {
                prop_assert!(done.put(address));
            }
            done.publish();
        }
        // At the end, every frame is sent, dropped, or still in the ring.
        let report = sender.send(file.as_fd(), &mut Batch::new());
        reported += report.sent;
        dropped += report.n_dropped();
        prop_assert_eq!(reported, taken);
        let mut left = 0;
        tx.refresh();
        let mut ahead = 0;
        while let Some(descriptor) = tx.peek(ahead) {
            ahead += 1;
            left += u64::from(!descriptor.is_continued());
        }
        prop_assert_eq!(reported + dropped + left, number as u64);
        prop_assert_eq!(sender.bad, 0);
    }
}

#[test]
fn completions_of_frames_that_were_not_lent_are_refused() {
    let file = file();
    let ring = Putting::new(file.as_fd(), RingKind::Tx, OFFSETS, SLOTS).expect("ring");
    let completion = ConsumerRing::new(file.as_fd(), RingKind::Completion, OFFSETS, SLOTS).expect("ring");
    let mut done = Putting::new(file.as_fd(), RingKind::Completion, OFFSETS, SLOTS).expect("ring");
    let setup = Setup { zero_copy: false, pieces: true, need_wakeup: true };
    let mut sender = Sender::new(arena(SLOTS), ring, completion, setup);
    for address in [0, address_of(SLOTS - 1), address_of(SLOTS), u64::MAX] {
        done.put(address);
    }
    done.publish();
    sender.send(file.as_fd(), &mut Batch::new());
    assert_eq!(sender.bad, 4);
}

#[test]
fn a_frame_that_the_device_dropped_is_not_counted_as_sent() {
    let file = file();
    let ring = Putting::new(file.as_fd(), RingKind::Tx, OFFSETS, SLOTS).expect("ring");
    let completion = ConsumerRing::new(file.as_fd(), RingKind::Completion, OFFSETS, SLOTS).expect("ring");
    let mut tx = ConsumerRing::<Descriptor>::new(file.as_fd(), RingKind::Tx, OFFSETS, SLOTS).expect("ring");
    let setup = Setup { zero_copy: false, pieces: true, need_wakeup: true };
    let mut sender = Sender::new(arena(SLOTS), ring, completion, setup);
    let mut batch: Batch = [60, 5000, 70].map(|len| Packet::from_slice(&frame(1, len))).into();
    let report = sender.send(file.as_fd(), &mut batch);
    // A frame is neither sent nor dropped before the kernel takes it.
    assert_eq!((report, sender.is_waiting()), (SendReport::default(), true));
    // The kernel takes the first two frames, of one and of three pieces, and reports that the device dropped the last
    // of them.
    tx.refresh();
    tx.advance(4);
    tx.release();
    sender.settle(true);
    let report = sender.send(file.as_fd(), &mut Batch::new());
    let dropped = vec![(DropReason::OutputQueueFull, 1)];
    assert_eq!(report, SendReport { sent: 1, sent_bytes: 60, dropped });
    assert!(sender.is_waiting());
}

#[test]
fn frames_too_large_or_too_small_are_refused() {
    let file = file();
    for (pieces, len, reason) in [
        (true, 13, Some(DropReason::Malformed)),
        (true, 14, None),
        (true, 8 * FRAME_LEN, None),
        (true, 17 * FRAME_LEN + 1, Some(DropReason::TooBig)),
        (false, FRAME_LEN, None),
        (false, FRAME_LEN + 1, Some(DropReason::TooBig)),
        // Longer than the ring's capacity, though within the limit of pieces.
        (true, 17 * FRAME_LEN, Some(DropReason::OutputQueueFull)),
    ] {
        let ring = Putting::new(file.as_fd(), RingKind::Tx, OFFSETS, SLOTS).expect("ring");
        let completion = ConsumerRing::new(file.as_fd(), RingKind::Completion, OFFSETS, SLOTS).expect("ring");
        let setup = Setup { zero_copy: true, pieces, need_wakeup: true };
        let mut sender = Sender::new(arena(SLOTS), ring, completion, setup);
        let report = sender.send(file.as_fd(), &mut vec![Packet::from_slice(&frame(1, len))]);
        assert_eq!(report.dropped, Vec::from_iter(reason.map(|reason| (reason, 1))), "{len} bytes");
        assert_eq!(report.sent, u64::from(reason.is_none()));
    }
}

#[test]
fn rings_at_impossible_offsets_are_refused() {
    let file = file();
    for offsets in [
        XdpRingOffset { producer: 190, ..OFFSETS },
        XdpRingOffset { consumer: 192, ..OFFSETS },
        XdpRingOffset { flags: Some(u64::MAX - 3), ..OFFSETS },
        XdpRingOffset { desc: 188, ..OFFSETS },
        XdpRingOffset { desc: u64::MAX - 7, ..OFFSETS },
    ] {
        assert!(ConsumerRing::<u64>::new(file.as_fd(), RingKind::Rx, offsets, SLOTS).is_err(), "{offsets:?}");
    }
}
