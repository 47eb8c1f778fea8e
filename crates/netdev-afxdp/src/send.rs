//! The sending side of a socket: puts frames into the transmit ring, and takes their memory out of the completion
//! ring.
//!
//! A packet in a frame of the umem is sent from there; others are copied into free frames.
//!
//! A queue of a device has one socket, and several threads may send through it: a lock around this side is held for a
//! batch. (More sockets on the same umem, `XDP_SHARED_UMEM`, would have transmit rings of their own, but share one
//! completion ring, and so a lock.) With as many queues as packet threads, each thread has one to itself.
//!
//! In copy mode the kernel sends during our system call and reports for each frame it takes, in order, whether the
//! device dropped it (`EBUSY`); so frames count as sent when they leave the ring. A driver with zero-copy takes them
//! at any time; there they count when they are put in.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use base::DropReason;
use netdev::{SendReport, pool, software};
use packet::{Batch, Packet};
use rustix::net::{SendFlags, send};

use crate::arena::{Arena, Cache};
use crate::frames::Lending;
use crate::memory::{ConsumerRing, Descriptor, FRAME_LEN, Putting, address_of, frame_of};

/// Maximum number of pieces of a frame: the smallest number of fragments that a packet of the kernel holds (17).
const PIECES_MAX: usize = 17;
/// An Ethernet header; the kernel refuses less.
const FRAME_LEN_MIN: usize = 14;
/// Calls in a row that moved nothing after which the frames stay in the ring for the next time.
const FUTILE_MAX: u32 = 3;

/// Transmit ring, completion ring and the frames lent to the kernel through them.
#[derive(Debug)]
pub(crate) struct Sender {
    arena: &'static Arena,
    ring: Putting<Descriptor>,
    completion: ConsumerRing<u64>,
    pub(crate) lending: Lending,
    zero_copy: bool,
    /// Whether frames may have several pieces.
    pieces: bool,
    need_wakeup: bool,
    /// Frames in the ring that the kernel has not taken yet: the number of descriptors and bytes of each. (Copy
    /// mode.)
    waiting: VecDeque<(u32, usize)>,
    /// Counts of frames since the last report.
    report: SendReport,
    /// Invalid completions.
    pub(crate) bad: u64,
    /// Frames that were sent from where they were received.
    pub(crate) moved: u64,
}

/// How a socket was set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) zero_copy: bool,
    pub(crate) pieces: bool,
    pub(crate) need_wakeup: bool,
}

/// Why a frame is not in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refused {
    /// The ring is full.
    Full,
    /// It can never be.
    For(DropReason),
}

impl Sender {
    pub(crate) fn new(
        arena: &'static Arena,
        ring: Putting<Descriptor>,
        completion: ConsumerRing<u64>,
        setup: Setup,
    ) -> Self {
        let Setup { zero_copy, pieces, need_wakeup } = setup;
        let lending = Lending::new(arena.umem.number(), arena.umem.frames());
        let (waiting, report) = (VecDeque::new(), SendReport::default());
        Self { arena, ring, completion, lending, zero_copy, pieces, need_wakeup, waiting, report, bad: 0, moved: 0 }
    }

    /// Properties known when the socket is bound.
    pub(crate) fn set_pieces(&mut self, pieces: bool) {
        self.pieces = pieces;
    }

    /// Sends the frames of `batch`, which is empty afterwards.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, batch: &mut Batch) -> SendReport {
        if !batch.iter().all(software::is_finished) {
            self.finish(batch);
        }
        self.arena.with_cache(|cache| {
            self.reap(cache);
            batch.iter_mut().for_each(|packet| self.put_or_drop(cache, socket, packet));
        });
        // Memory of other umems is returned to its pool here.
        pool::recycle_all(batch);
        self.kick(socket);
        std::mem::take(&mut self.report)
    }

    /// Completes checksums and segments as the packets' offload flags demand, in place unless they are segmented.
    fn finish(&mut self, batch: &mut Batch) {
        let mut finished = Batch::with_capacity(batch.len());
        for packet in batch.drain(..) {
            if let Err(packet) = software::finish(packet, &mut finished) {
                self.report.count_dropped(DropReason::OutputError, 1);
                pool::recycle(packet);
            }
        }
        *batch = finished;
    }

    /// Drops the frames of `batch` for `reason`.
    pub(crate) fn refuse(&mut self, batch: &mut Batch, reason: DropReason) -> SendReport {
        self.report.count_dropped(reason, batch.len() as u64);
        pool::recycle_all(batch);
        std::mem::take(&mut self.report)
    }

    /// Returns true if the ring has frames that the kernel has not taken.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.zero_copy && self.ring.waiting() > 0
    }

    fn put_or_drop(&mut self, cache: &mut Cache, socket: BorrowedFd<'_>, packet: &mut Packet) {
        let mut result = self.put(cache, packet);
        if result == Err(Refused::Full) {
            self.push(cache, socket);
            self.reap(cache);
            result = self.put(cache, packet);
        }
        match result {
            Ok(()) => {}
            Err(Refused::Full) => self.report.count_dropped(DropReason::OutputQueueFull, 1),
            Err(Refused::For(reason)) => self.report.count_dropped(reason, 1),
        }
    }

    /// Puts a frame into the ring, whole or not at all. A frame in the umem is taken out of its packet.
    fn put(&mut self, cache: &mut Cache, packet: &mut Packet) -> Result<(), Refused> {
        let len = packet.len();
        if len < FRAME_LEN_MIN {
            return Err(Refused::For(DropReason::Malformed));
        }
        let n = len.div_ceil(FRAME_LEN);
        if n > if self.pieces { PIECES_MAX } else { 1 } {
            return Err(Refused::For(DropReason::TooBig));
        }
        if (self.ring.free_slots() as usize) < n {
            return Err(Refused::Full);
        }
        if packet.lent().is_some_and(|memory| self.arena.umem.has(memory)) {
            self.put_in_place(cache, packet);
        } else if cache.has(n) {
            self.put_copy(cache, packet.data(), n);
        } else {
            return Err(Refused::Full);
        }
        if self.zero_copy {
            self.report.count_sent(len);
        } else {
            self.waiting.push_back((n as u32, len));
        }
        Ok(())
    }

    /// Puts a frame in the umem into the ring, which has space for it.
    fn put_in_place(&mut self, cache: &mut Cache, packet: &mut Packet) {
        let (start, len) = (packet.headroom(), packet.len());
        let frame = packet.take_lent().and_then(|lent| self.arena.umem.close(lent).ok());
        match frame.map(|frame| self.lending.lend(frame)) {
            Some(Ok(number)) => {
                self.ring.put(Descriptor { address: address_of(number) + start as u64, len: len as u32, options: 0 });
                self.moved += 1;
            }
            Some(Err(frame)) => cache.give(frame),
            None => {}
        }
    }

    /// Puts a copy in `n` pieces into the ring, which has space for it, into frames that are available.
    fn put_copy(&mut self, cache: &mut Cache, data: &[u8], n: usize) {
        for (i, piece) in data.chunks(FRAME_LEN).enumerate() {
            let Some(mut frame) = cache.take() else { return };
            self.arena.umem.bytes(&mut frame)[..piece.len()].copy_from_slice(piece);
            let options = if i + 1 < n { Descriptor::CONTINUED } else { 0 };
            match self.lending.lend(frame) {
                Ok(number) => {
                    self.ring.put(Descriptor { address: address_of(number), len: piece.len() as u32, options });
                }
                Err(frame) => cache.give(frame),
            }
        }
    }

    /// Publishes the entries put in, and makes the kernel send.
    pub(crate) fn kick(&mut self, socket: BorrowedFd<'_>) {
        self.arena.with_cache(|cache| self.push(cache, socket));
    }

    fn push(&mut self, cache: &mut Cache, socket: BorrowedFd<'_>) {
        self.ring.publish();
        let mut futile = 0;
        while self.ring.waiting() > 0 && (!self.need_wakeup || self.ring.needs_wakeup()) {
            let result = send(socket, &[], SendFlags::DONTWAIT);
            let dropped = result == Err(rustix::io::Errno::BUSY) && !self.zero_copy;
            let moved = self.settle(dropped);
            match result {
                // In copy mode the kernel has processed all entries; a driver processes them by itself.
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                // A full completion ring, no memory for more packets, a busy device, or more frames than a call sends.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY | rustix::io::Errno::NOBUFS) => {
                    self.reap(cache);
                    futile = if moved > 0 { 0 } else { futile + 1 };
                    if futile >= FUTILE_MAX {
                        break;
                    }
                }
                // The device has just gone down. The frames stay in the ring, and leave when it is up again.
                Err(rustix::io::Errno::NETDOWN) => break,
                // The socket has permanently lost its device.
                Err(rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => {
                    self.report.count_dropped(DropReason::NoPort, self.waiting.drain(..).count() as u64);
                    break;
                }
                Err(_) => break,
            }
        }
    }

    /// Counts the frames that the kernel took since; the device `dropped` the last of them or not. Returns the number
    /// of their descriptors.
    pub(crate) fn settle(&mut self, dropped: bool) -> u32 {
        let moved = self.ring.refresh();
        let mut left = moved;
        while let Some((n, len)) = self.waiting.front().copied().filter(|(n, _)| *n <= left) {
            self.waiting.pop_front();
            left -= n;
            if dropped && left == 0 {
                self.report.count_dropped(DropReason::OutputQueueFull, 1);
            } else {
                self.report.count_sent(len);
            }
        }
        // The kernel takes whole frames; otherwise, the rest of one is accounted for later.
        if let Some((n, _)) = self.waiting.front_mut() {
            *n -= left;
        }
        moved
    }

    /// Takes memory back that the kernel is done with.
    fn reap(&mut self, cache: &mut Cache) {
        if !self.waiting.is_empty() || self.zero_copy {
            self.settle(false);
        }
        self.completion.refresh();
        while let Some(address) = self.completion.peek(0) {
            self.completion.advance(1);
            match self.lending.take_back(frame_of(address)) {
                Some(frame) => cache.give(frame),
                None => self.bad += 1,
            }
        }
        self.completion.release();
    }
}

/// Wakes the kernel so that it looks at the fill ring.
pub(crate) fn wake_receiver(socket: BorrowedFd<'_>) {
    let _: Result<_, io::Error> =
        rustix::net::recv(socket, &mut [0u8; 0][..], rustix::net::RecvFlags::DONTWAIT).map_err(Into::into);
}
