//! Inboxes: bounded queues of frames for the engine, one for each protocol.
//!
//! Invariants: a queue has at most [`CAPACITY`] frames of at most [`FRAME_MAX`] bytes; every rejected frame is
//! counted.

use crate::number::Protocol;
use base::DpPort;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// Capacity of a queue in frames.
pub const CAPACITY: usize = 256;
/// Bytes of a frame at most.
pub const FRAME_MAX: usize = 9216;

/// A frame that was punted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The port that received it.
    pub port: DpPort,
    /// Its bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// The reason why a frame was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No machine runs for this protocol.
    NoProtocol,
    /// The queue is full.
    Full,
    /// The frame is longer than [`FRAME_MAX`].
    TooBig,
}

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxStats {
    /// Frames accepted.
    pub accepted: u64,
    /// Frames dropped because the queue was full.
    pub full: u64,
    /// Frames dropped because they were too long.
    pub too_big: u64,
    /// Frames that wait now.
    pub waiting: usize,
}

#[derive(Debug, Default)]
struct Queue {
    open: bool,
    frames: VecDeque<Frame>,
    stats: InboxStats,
}

/// The queues of all protocols.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    queues: [Mutex<Queue>; Protocol::COUNT],
    /// Whether the engine has been woken and not yet run.
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Inboxes {
    /// Takes in frames for `protocol` from now on.
    pub(crate) fn open(&self, protocol: Protocol) {
        self.queues[protocol.index()].lock().open = true;
    }

    /// Queues a frame.
    pub(crate) fn push(&self, protocol: Protocol, port: DpPort, bytes: &[u8]) -> Result<(), Refused> {
        let mut queue = self.queues[protocol.index()].lock();
        if !queue.open {
            return Err(Refused::NoProtocol);
        }
        if bytes.len() > FRAME_MAX {
            queue.stats.too_big += 1;
            return Err(Refused::TooBig);
        }
        if queue.frames.len() >= CAPACITY {
            queue.stats.full += 1;
            return Err(Refused::Full);
        }
        queue.frames.push_back(Frame { port, bytes: bytes.to_vec() });
        queue.stats.accepted += 1;
        drop(queue);
        self.wake();
        Ok(())
    }

    /// Takes up to `n` frames, oldest first; also returns whether others are left.
    pub(crate) fn take(&self, protocol: Protocol, n: usize) -> (Vec<Frame>, bool) {
        let mut queue = self.queues[protocol.index()].lock();
        let n = n.min(queue.frames.len());
        (queue.frames.drain(..n).collect(), !queue.frames.is_empty())
    }

    pub(crate) fn stats(&self, protocol: Protocol) -> InboxStats {
        let queue = self.queues[protocol.index()].lock();
        InboxStats { waiting: queue.frames.len(), ..queue.stats }
    }

    /// Ends a wait of the engine, or the next one if it does not wait.
    pub(crate) fn wake(&self) {
        let mut woken = self.woken.lock();
        if !std::mem::replace(&mut *woken, true) {
            self.wake.notify_one();
        }
    }

    /// Waits for [`Inboxes::wake`], for `timeout` at most.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.wake.wait_for(&mut woken, timeout);
        }
        *woken = false;
    }
}
