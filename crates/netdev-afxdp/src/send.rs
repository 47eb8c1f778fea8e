//! The sending side of a socket: frames into the transmit ring, and their memory back out of the completion ring.
//!
//! A queue of a device has one socket, and several threads may send by it: there is one lock around this side, held for
//! a batch. (More sockets on the same umem, `XDP_SHARED_UMEM`, would have transmit rings of their own, and one completion
//! ring for all of them, so that the lock would be back.) With as many queues as packet threads each has one to itself.
//!
//! In copy mode the kernel sends during our system call and says of each frame it takes, in order, whether the device
//! dropped it (`EBUSY`); so frames count as sent when they leave the ring. A driver with zero-copy takes them when it
//! likes; there they count when they are put in.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use base::DropReason;
use netdev::{SendReport, pool, software};
use packet::{Batch, Packet};
use rustix::net::{SendFlags, send};

use crate::frames::Frames;
use crate::memory::{Descriptor, FRAME_LEN, Putting, Taking, Umem, address_of, frame_of};

/// Pieces of a frame at most: what a packet of the kernel holds with its smallest number of fragments (17).
const PIECES_MAX: usize = 17;
/// An Ethernet header; the kernel refuses less.
const FRAME_LEN_MIN: usize = 14;
/// Calls in a row that moved nothing after which the frames stay in the ring for the next time.
const FUTILE_MAX: u32 = 3;

/// Transmit ring, completion ring and the frames that go round in them.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: Putting<Descriptor>,
    completion: Taking<u64>,
    frames: Frames,
    zero_copy: bool,
    /// Whether frames may have several pieces.
    pieces: bool,
    need_wakeup: bool,
    /// Frames in the ring that the kernel did not take yet: descriptors of each, and its bytes. (Copy mode.)
    waiting: VecDeque<(u32, usize)>,
    /// What became of frames since the last report.
    report: SendReport,
    /// Completions that made no sense.
    pub(crate) bad: u64,
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
    /// No room now.
    Full,
    /// It can never be.
    For(DropReason),
}

impl Sender {
    pub(crate) fn new(
        ring: Putting<Descriptor>,
        completion: Taking<u64>,
        frames: Frames,
        Setup { zero_copy, pieces, need_wakeup }: Setup,
    ) -> Self {
        let (waiting, report) = (VecDeque::new(), SendReport::default());
        Self { ring, completion, frames, zero_copy, pieces, need_wakeup, waiting, report, bad: 0 }
    }

    /// Sends the frames of `batch`, which is empty afterwards.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, umem: &Umem, batch: &mut Batch) -> SendReport {
        self.reap();
        let mut pieces = Batch::new();
        for packet in batch.iter() {
            if software::is_finished(packet) {
                self.put_or_drop(socket, umem, packet);
                continue;
            }
            match software::finish(pool::copy(packet), &mut pieces) {
                Ok(()) => pieces.iter().for_each(|piece| self.put_or_drop(socket, umem, piece)),
                Err(_) => self.report.count_dropped(DropReason::OutputError, 1),
            }
            pool::recycle_all(&mut pieces);
        }
        pool::recycle_all(batch);
        self.kick(socket);
        std::mem::take(&mut self.report)
    }

    /// Drops the frames of `batch` for `reason`.
    pub(crate) fn refuse(&mut self, batch: &mut Batch, reason: DropReason) -> SendReport {
        self.report.count_dropped(reason, batch.len() as u64);
        pool::recycle_all(batch);
        std::mem::take(&mut self.report)
    }

    /// Whether frames are in the ring that the kernel did not take.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.zero_copy && self.ring.waiting() > 0
    }

    fn put_or_drop(&mut self, socket: BorrowedFd<'_>, umem: &Umem, packet: &Packet) {
        let mut result = self.put(umem, packet);
        if result == Err(Refused::Full) {
            self.kick(socket);
            self.reap();
            result = self.put(umem, packet);
        }
        match result {
            Ok(()) => {}
            Err(Refused::Full) => self.report.count_dropped(DropReason::OutputQueueFull, 1),
            Err(Refused::For(reason)) => self.report.count_dropped(reason, 1),
        }
    }

    /// Puts a frame into the ring, whole or not at all.
    fn put(&mut self, umem: &Umem, packet: &Packet) -> Result<(), Refused> {
        let data = packet.data();
        let n = data.len().div_ceil(FRAME_LEN);
        if data.len() < FRAME_LEN_MIN {
            return Err(Refused::For(DropReason::Malformed));
        }
        if n > if self.pieces { PIECES_MAX } else { 1 } {
            return Err(Refused::For(DropReason::TooBig));
        }
        if self.frames.free() < n || (self.ring.room() as usize) < n {
            return Err(Refused::Full);
        }
        for (i, piece) in data.chunks(FRAME_LEN).enumerate() {
            let Some(frame) = self.frames.lend() else { return Err(Refused::Full) };
            // SAFETY: the frame was free, so no descriptor has it, and the receiver has other frames. It is lent by now, but
            // the kernel hears of it by the descriptor that is put in below.
            unsafe { umem.fill(frame, piece) };
            let options = if i + 1 < n { Descriptor::CONTINUED } else { 0 };
            self.ring.put(Descriptor { address: address_of(frame), len: piece.len() as u32, options });
        }
        if self.zero_copy {
            self.report.count_sent(data.len());
        } else {
            self.waiting.push_back((n as u32, data.len()));
        }
        Ok(())
    }

    /// Shows the kernel what was put in, and has it send.
    pub(crate) fn kick(&mut self, socket: BorrowedFd<'_>) {
        self.ring.publish();
        let mut futile = 0;
        while self.ring.waiting() > 0 && (!self.need_wakeup || self.ring.needs_wakeup()) {
            let result = send(socket, &[], SendFlags::DONTWAIT);
            let dropped = result == Err(rustix::io::Errno::BUSY) && !self.zero_copy;
            let moved = self.settle(dropped);
            match result {
                // In copy mode the kernel has seen all there is; a driver sees it by itself.
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                // A full completion ring, no memory for more packets, a busy device, or more frames than a call sends.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY | rustix::io::Errno::NOBUFS) => {
                    self.reap();
                    futile = if moved > 0 { 0 } else { futile + 1 };
                    if futile >= FUTILE_MAX {
                        break;
                    }
                }
                // The device went down just now. The frames stay in the ring, and leave when it is up.
                Err(rustix::io::Errno::NETDOWN) => break,
                // The socket has lost its device, for good.
                Err(rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => {
                    self.report.count_dropped(DropReason::NoPort, self.waiting.drain(..).count() as u64);
                    break;
                }
                Err(_) => break,
            }
        }
    }

    /// Counts the frames that the kernel took since; of these the last was `dropped` by the device. Returns how many
    /// descriptors they had.
    pub(crate) fn settle(&mut self, dropped: bool) -> u32 {
        let moved = self.ring.look();
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
        // The kernel takes whole frames; if it were otherwise, the rest of one is owed.
        if let Some((n, _)) = self.waiting.front_mut() {
            *n -= left;
        }
        moved
    }

    /// Takes memory back that the kernel is done with.
    fn reap(&mut self) {
        if !self.waiting.is_empty() || self.zero_copy {
            self.settle(false);
        }
        self.completion.look();
        while let Some(address) = self.completion.peek(0) {
            self.completion.advance(1);
            if !self.frames.take_back(frame_of(address)) {
                self.bad += 1;
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
