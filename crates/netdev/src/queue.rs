//! A bounded queue of frames between threads, with a descriptor that is readable while frames wait.
//!
//! Invariant: the counter of the event descriptor is nonzero if and only if the queue is not empty. Both change under
//! the lock.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use packet::{Batch, Packet};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::pool;

/// A queue of frames.
#[derive(Debug)]
pub struct FrameQueue {
    frames: Mutex<VecDeque<Packet>>,
    event: OwnedFd,
    len_max: usize,
}

impl FrameQueue {
    /// A queue of at most `len_max` frames. Fails if the process has no descriptor left.
    pub fn new(len_max: usize) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { frames: Mutex::default(), event, len_max })
    }

    /// Appends a frame; returns it as an error if the queue is full.
    pub fn push(&self, packet: Packet) -> Result<(), Packet> {
        let mut refused = Batch::new();
        self.push_all(std::iter::once(packet), &mut refused);
        refused.pop().map_or(Ok(()), Err)
    }

    /// Appends frames at once, so that a receiver does not see some of them without the others. Frames for which there is no room go
    /// to the end of `refused`.
    pub fn push_all(&self, packets: impl IntoIterator<Item = Packet>, refused: &mut Batch) {
        let mut frames = self.frames.lock();
        let was_empty = frames.is_empty();
        for mut packet in packets {
            if frames.len() < self.len_max {
                pool::keep(&mut packet);
                frames.push_back(packet);
            } else {
                refused.push(packet);
            }
        }
        if was_empty && !frames.is_empty() {
            // The counter is 0, so adding 1 cannot fail or block.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Moves up to `max` frames to the end of `out` and returns how many.
    pub fn pop(&self, out: &mut Batch, max: usize) -> usize {
        let mut frames = self.frames.lock();
        let n = frames.len().min(max);
        out.extend(frames.drain(..n));
        if n > 0 && frames.is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        }
        n
    }

    /// Discards all frames and returns how many.
    pub fn clear(&self) -> usize {
        let mut gone = Batch::new();
        self.pop(&mut gone, usize::MAX)
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.frames.lock().len()
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Readable while frames wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(queue: &FrameQueue) -> bool {
        let fd = queue.fd();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).expect("poll") == 1
    }

    #[test]
    fn readable_while_frames_wait() {
        let queue = FrameQueue::new(2).expect("eventfd");
        assert!(!readable(&queue));
        assert!(queue.push(Packet::from_slice(&[1])).is_ok());
        assert!(queue.push(Packet::from_slice(&[2])).is_ok());
        assert!(queue.push(Packet::from_slice(&[3])).is_err());
        let mut out = Batch::new();
        assert_eq!(queue.pop(&mut out, 1), 1);
        assert!(readable(&queue));
        assert_eq!(queue.pop(&mut out, 9), 1);
        assert!(!readable(&queue));
        assert_eq!(out.iter().map(|p| p.data()[0]).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(queue.clear(), 0);
        // Several at once.
        let mut refused = Batch::new();
        queue.push_all([3, 4, 5].map(|n| Packet::from_slice(&[n])), &mut refused);
        assert!(readable(&queue));
        assert_eq!((queue.pop(&mut out, 9), refused.len(), refused[0].data()), (2, 1, &[5][..]));
        assert!(!readable(&queue));
    }
}
