//! A receive queue that takes memory only under load. Frames come from a socket's own queue, which needs no memory
//! while it is empty; at high rates they come through a ring, which costs less CPU time per frame.
//!
//! The socket and the ring's socket, if there is one, form a group that shares the device's frames (`PACKET_FANOUT`). A
//! program of one instruction sends all frames to one of them, so no frame is lost or duplicated when it is replaced.
//! Creating a ring, redirecting frames and closing a ring take the kernel milliseconds, so another thread ([`Worker`])
//! does it, and the two threads hand over to each other step by step ([`Step`]).
//!
//! Frames keep their order. While frames may arrive on both sides, the receiver reads frames of the new side only after
//! it found the old side empty, and only frames that were waiting on the new side before that check. Any frame that the
//! kernel queued on the old side before one of these has been read by then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use netdev::{Rx, pool};
use packet::Batch;
use packet::buf::BATCH_MAX;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::link::Link;
use crate::queue::{self, Expected};
use crate::rate::{Level, RateMeter};
use crate::receive::{self, Receivers, RingRx};
use crate::sys::{self, Sharing};
use crate::worker::Worker;

/// The indexes of the sockets in their group.
const SOCKET: u32 = 0;
const RING: u32 = 1;

/// Number of attempts when no frame of a batch was valid, as more frames may wait.
const TRIES: u32 = 64;

/// The state shared by both threads. The receiver moves on from the steps of the worker, and the worker from the steps
/// of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Step {
    /// There is no ring. Set by the worker, like the next three.
    None,
    /// The ring exists, and no frames are sent to it yet.
    Made,
    /// The ring gets all frames, and the socket none.
    Filling,
    /// The ring gets no frames any more.
    Left,
    /// A ring is requested. Set by the receiver, like the next three.
    Wanted,
    /// The receiver reads both.
    Taken,
    /// The ring is no longer needed; the receiver reads both.
    Unwanted,
    /// The receiver has returned the ring, empty.
    Returned,
}

const STEPS: [Step; 8] =
    [Step::None, Step::Made, Step::Filling, Step::Left, Step::Wanted, Step::Taken, Step::Unwanted, Step::Returned];

/// State shared by the receiver and the worker.
#[derive(Debug)]
struct Handover {
    socket: Arc<OwnedFd>,
    link: Arc<Link>,
    receivers: Arc<Receivers>,
    step: AtomicU8,
    /// The ring while it is handed over.
    ring: Mutex<Option<RingRx>>,
    /// The fanout group, once it exists.
    group: Mutex<Option<u16>>,
}

impl Handover {
    fn step(&self) -> Step {
        STEPS[usize::from(self.step.load(Ordering::Acquire))]
    }

    fn go(&self, step: Step) {
        self.step.store(step as u8, Ordering::Release);
    }

    /// Does the worker's part of the step that the receiver requested.
    fn work(&self) {
        match self.step() {
            Step::Wanted => match self.make() {
                Ok(ring) => {
                    *self.ring.lock() = Some(ring);
                    self.go(Step::Made);
                }
                Err(error) => {
                    tracing::warn!(
                        target: "netdev_linux",
                        "{}: cannot create a receive ring, frames are read from the socket: {error}", self.link.name()
                    );
                    self.go(Step::None);
                }
            },
            Step::Taken => self.go(match sys::fanout_to(self.socket.as_fd(), RING) {
                Ok(()) => Step::Filling,
                Err(_) => Step::Left,
            }),
            Step::Unwanted => self.go(match sys::fanout_to(self.socket.as_fd(), SOCKET) {
                Ok(()) => Step::Left,
                Err(_) => Step::Filling,
            }),
            Step::Returned => {
                if let Some(ring) = self.ring.lock().take() {
                    self.receivers.remove(ring.socket());
                }
                self.go(Step::None);
            }
            Step::None | Step::Made | Step::Filling | Step::Left => {}
        }
    }

    /// Creates a ring in the group that gets no frames yet.
    fn make(&self) -> io::Result<RingRx> {
        let group = self.join()?;
        // Setting a program first makes the kernel wait, when it is replaced, until no CPU uses the old one.
        sys::fanout_to(self.socket.as_fd(), SOCKET)?;
        let ring = RingRx::silent(self.link.clone())?;
        sys::packet_fanout(ring.socket().as_fd(), Some(group), Sharing::ByProgram)?;
        self.receivers.add(ring.socket())?;
        Ok(ring)
    }

    /// The socket's group, which is created if needed: kernels before 6.10 cannot create one while the device is down.
    fn join(&self) -> io::Result<u16> {
        let mut group = self.group.lock();
        match *group {
            Some(group) => Ok(group),
            None => Ok(*group.insert(sys::packet_fanout(self.socket.as_fd(), None, Sharing::ByProgram)?)),
        }
    }
}

/// The state of a receiver, which determines what it reads.
#[derive(Debug)]
enum Phase {
    /// The socket alone.
    Socket,
    /// The socket, while a ring is being created.
    Waiting,
    /// Both, moving from the socket to the ring.
    Growing(RingRx),
    /// The ring.
    Ring(RingRx),
    /// Both, moving from the ring to the socket.
    Shrinking(RingRx),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ElasticRx {
    exchange: Arc<Handover>,
    worker: Arc<Worker>,
    phase: Phase,
    expected: Expected,
    rate_meter: RateMeter,
}

impl ElasticRx {
    pub(crate) fn new(link: Arc<Link>, receivers: Arc<Receivers>, worker: Arc<Worker>) -> io::Result<Self> {
        let socket = Arc::new(receive::socket(receive::QUEUE_LEN)?);
        // The kernel reports the VLAN tags that it removed from frames as auxiliary data.
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        receivers.add(&socket)?;
        sys::packet_bind(socket.as_fd(), link.ifindex(), libc::ETH_P_ALL as u16)?;
        let (step, ring, group) = (AtomicU8::new(Step::None as u8), Mutex::default(), Mutex::default());
        let exchange = Arc::new(Handover { socket, link, receivers, step, ring, group });
        // Join the group before frames can be lost; if that fails, try again when a ring is needed.
        let _ = exchange.join();
        Ok(Self {
            exchange,
            worker,
            phase: Phase::Socket,
            expected: Expected::default(),
            rate_meter: RateMeter::default(),
        })
    }

    /// Sets a step that the worker acts on.
    fn go(&self, step: Step) {
        self.exchange.go(step);
        let exchange = Arc::downgrade(&self.exchange);
        let added = self.worker.add(move || {
            if let Some(exchange) = exchange.upgrade() {
                exchange.work();
            }
        });
        if !added {
            self.exchange.go(match step {
                Step::Taken => Step::Left,
                Step::Unwanted => Step::Filling,
                _ => Step::None,
            });
        }
    }

    /// Reads the socket's own queue; returns the number of messages read.
    fn read_socket(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let received = read(&self.exchange, &mut self.expected, out, max)?;
        // A ring does not help with large frames.
        if received.regular > 0 && matches!(self.phase, Phase::Socket) {
            let queue_is_long = self.rate_meter.batch(received.taken == max, Instant::now);
            if self.rate_meter.add(received.regular, Instant::now) == Some(Level::High) || queue_is_long {
                self.want();
            }
        }
        Ok(received.taken)
    }

    /// Requests a ring, unless the last one is still being closed.
    fn want(&mut self) {
        if self.exchange.step() == Step::None {
            self.phase = Phase::Waiting;
            self.go(Step::Wanted);
        }
    }

    /// Acts on the worker's step.
    fn follow(&mut self) {
        let step = self.exchange.step();
        self.phase = match (std::mem::replace(&mut self.phase, Phase::Socket), step) {
            (Phase::Waiting, Step::Made) => match self.exchange.ring.lock().take() {
                Some(ring) => Phase::Growing(ring),
                None => Phase::Waiting,
            },
            (Phase::Waiting, Step::None) => {
                self.rate_meter.rest();
                Phase::Socket
            }
            // Redirecting frames to the ring failed.
            (Phase::Growing(ring), Step::Left) => Phase::Shrinking(ring),
            // Redirecting frames back to the socket failed.
            (Phase::Shrinking(ring), Step::Filling) => Phase::Growing(ring),
            (phase, _) => phase,
        };
        if matches!(self.phase, Phase::Growing(_)) && step == Step::Made {
            self.go(Step::Taken);
        }
    }

    /// Reads both sides while moving from the socket to the ring.
    fn grow(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let last = self.exchange.step() == Step::Filling;
        let Phase::Growing(ring) = &mut self.phase else { return Ok(0) };
        let ready = ring.ready(max);
        let taken = read(&self.exchange, &mut self.expected, out, max)?.taken;
        if taken == max {
            return Ok(taken);
        }
        let from_ring = ring.take(out, ready.min(max - taken));
        if last && let Phase::Growing(ring) = std::mem::replace(&mut self.phase, Phase::Socket) {
            self.phase = Phase::Ring(ring);
            self.rate_meter = RateMeter::default();
        }
        Ok(taken + from_ring)
    }

    fn read_ring(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let Phase::Ring(ring) = &mut self.phase else { return Ok(0) };
        let mut n = ring.take(out, max);
        let mut look = n > 0;
        if n > 0 {
            ring.found();
        } else if ring.check()? {
            // While the device goes down and up, its sockets rejoin the group one after the other.
            n = read(&self.exchange, &mut self.expected, out, max)?.taken;
            look = true;
        }
        if look && self.rate_meter.add(n, Instant::now) == Some(Level::Low) {
            if let Phase::Ring(ring) = std::mem::replace(&mut self.phase, Phase::Socket) {
                self.phase = Phase::Shrinking(ring);
            }
            self.go(Step::Unwanted);
        }
        Ok(n)
    }

    /// Reads both sides while moving from the ring to the socket.
    fn shrink(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let last = self.exchange.step() == Step::Left;
        let Phase::Shrinking(ring) = &mut self.phase else { return Ok(0) };
        // The number of frames at the socket is unknown: at least one, or none.
        let waits = is_readable(self.exchange.socket.as_fd());
        let from_ring = ring.take(out, max);
        if from_ring == max {
            return Ok(max);
        }
        if last && let Phase::Shrinking(ring) = std::mem::replace(&mut self.phase, Phase::Socket) {
            *self.exchange.ring.lock() = Some(ring);
            self.rate_meter = RateMeter::default();
            self.go(Step::Returned);
        }
        let taken = if waits { read(&self.exchange, &mut self.expected, out, 1)?.taken } else { 0 };
        Ok(from_ring + taken)
    }
}

/// Reads the socket's own queue.
fn read(exchange: &Handover, expected: &mut Expected, out: &mut Batch, max: usize) -> io::Result<queue::Received> {
    let received = queue::receive(exchange.socket.as_fd(), expected, max, out)?;
    if received.errors > 0 {
        exchange.link.rx_errors.fetch_add(received.errors, Ordering::Relaxed);
    }
    if received.taken == 0 && exchange.link.is_gone() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    Ok(received)
}

fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok_and(|n| n > 0)
}

impl Rx for ElasticRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let (before, max) = (out.len(), max.min(BATCH_MAX));
        for _ in 0..TRIES {
            if !matches!(self.phase, Phase::Socket | Phase::Ring(_)) {
                self.follow();
            }
            let taken = match self.phase {
                Phase::Socket | Phase::Waiting => self.read_socket(out, max)?,
                Phase::Growing(_) => self.grow(out, max)?,
                Phase::Ring(_) => self.read_ring(out, max)?,
                Phase::Shrinking(_) => self.shrink(out, max)?,
            };
            if taken == 0 || out.len() > before {
                break;
            }
        }
        Ok(out.len() - before)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(match &self.phase {
            Phase::Ring(ring) | Phase::Shrinking(ring) => ring.socket().as_fd(),
            Phase::Socket | Phase::Waiting | Phase::Growing(_) => self.exchange.socket.as_fd(),
        })
    }

    fn ask_within(&self) -> Option<Duration> {
        Some(match &self.phase {
            Phase::Socket => return None,
            Phase::Waiting => Duration::from_millis(100),
            // The descriptor covers only one of the two sockets.
            Phase::Growing(_) | Phase::Shrinking(_) => Duration::from_millis(1),
            Phase::Ring(_) => Duration::from_secs(1),
        })
    }

    fn drain(&mut self) -> io::Result<()> {
        let mut batch = Batch::new();
        while self.recv_batch(&mut batch, BATCH_MAX)? > 0 {
            pool::recycle_all(&mut batch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
