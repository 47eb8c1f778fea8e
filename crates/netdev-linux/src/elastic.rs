//! A receive queue that takes memory by what there is to do: frames come out of a socket's own queue, which costs nothing
//! while it is empty, and while they are many out of a ring, which costs less time for each.
//!
//! The socket and the socket of the ring, if there is one, are a group that shares the frames of the device
//! (`PACKET_FANOUT`), in which a program of one instruction says who gets them: all go to one or all to the other, and no
//! frame is lost or doubled when that changes. To make a ring, to redirect the frames and to close a ring takes the kernel
//! milliseconds, so another thread ([`Workshop`]) does it, and the two hand over to each other step by step ([`Step`]).
//!
//! Frames keep their order. While they may come from both sides, those of the new side are read only after the old side was
//! found empty, and only those that waited at the new side before: whatever the kernel had put in on the old side before
//! one of these has been read by then.

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
use crate::pace::{Pace, Tempo};
use crate::queue::{self, Expected};
use crate::receive::{self, Receivers, RingRx};
use crate::sys::{self, Sharing};
use crate::workshop::Workshop;

/// The places of the sockets in their group.
const SOCKET: u32 = 0;
const RING: u32 = 1;

/// Where none of the frames that came could be had there may be more, but who knows.
const TRIES: u32 = 64;

/// What both threads know. The receiver makes a step from those that the workshop made, and the workshop from those that
/// the receiver made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Step {
    /// There is no ring. By the workshop, as are the next three.
    None,
    /// There is one that gets no frames yet.
    Made,
    /// It gets all frames: none comes to the socket any more.
    Filling,
    /// None comes to the ring any more.
    Left,
    /// A ring is wanted. By the receiver, as are the next three.
    Wanted,
    /// The receiver reads both.
    Taken,
    /// The ring is not wanted any more; both are read.
    Unwanted,
    /// It was given back, empty.
    Returned,
}

const STEPS: [Step; 8] =
    [Step::None, Step::Made, Step::Filling, Step::Left, Step::Wanted, Step::Taken, Step::Unwanted, Step::Returned];

/// What the receiver and the workshop share.
#[derive(Debug)]
struct Exchange {
    socket: Arc<OwnedFd>,
    link: Arc<Link>,
    receivers: Arc<Receivers>,
    step: AtomicU8,
    /// The ring, on its way from one to the other.
    ring: Mutex<Option<RingRx>>,
    /// The group, once there is one.
    group: Mutex<Option<u16>>,
}

impl Exchange {
    fn step(&self) -> Step {
        STEPS[usize::from(self.step.load(Ordering::Acquire))]
    }

    fn go(&self, step: Step) {
        self.step.store(step as u8, Ordering::Release);
    }

    /// What the workshop does for the step that the receiver made.
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
                        "{}: no memory to receive faster by, frames come one by one: {error}", self.link.name()
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

    /// A ring in the group, to which nothing comes yet.
    fn make(&self) -> io::Result<RingRx> {
        let group = self.join()?;
        // Once there is a program, the kernel waits when it is replaced until nobody uses the old one.
        sys::fanout_to(self.socket.as_fd(), SOCKET)?;
        let ring = RingRx::silent(self.link.clone())?;
        sys::packet_fanout(ring.socket().as_fd(), Some(group), Sharing::ByProgram)?;
        self.receivers.add(ring.socket())?;
        Ok(ring)
    }

    /// The group of the socket, which is founded if need be: kernels before 6.10 have none for a device that is down.
    fn join(&self) -> io::Result<u16> {
        let mut group = self.group.lock();
        match *group {
            Some(group) => Ok(group),
            None => Ok(*group.insert(sys::packet_fanout(self.socket.as_fd(), None, Sharing::ByProgram)?)),
        }
    }
}

/// Where a receiver stands. What it reads follows from that.
#[derive(Debug)]
enum Phase {
    /// The socket alone.
    Socket,
    /// The socket alone, while a ring is being made.
    Waiting,
    /// Both, from the socket to the ring.
    Growing(RingRx),
    /// The ring.
    Ring(RingRx),
    /// Both, from the ring to the socket.
    Shrinking(RingRx),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ElasticRx {
    exchange: Arc<Exchange>,
    workshop: Arc<Workshop>,
    phase: Phase,
    expected: Expected,
    pace: Pace,
}

impl ElasticRx {
    pub(crate) fn new(link: Arc<Link>, receivers: Arc<Receivers>, workshop: Arc<Workshop>) -> io::Result<Self> {
        let socket = Arc::new(receive::socket(receive::QUEUE_LEN)?);
        // Tags that the kernel took out of frames are told beside them.
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        receivers.add(&socket)?;
        sys::packet_bind(socket.as_fd(), link.ifindex(), libc::ETH_P_ALL as u16)?;
        let (step, ring, group) = (AtomicU8::new(Step::None as u8), Mutex::default(), Mutex::default());
        let exchange = Arc::new(Exchange { socket, link, receivers, step, ring, group });
        // Before there is anything to lose; else when a ring is wanted.
        let _ = exchange.join();
        Ok(Self { exchange, workshop, phase: Phase::Socket, expected: Expected::default(), pace: Pace::default() })
    }

    /// Makes a step, for which the workshop has something to do.
    fn go(&self, step: Step) {
        self.exchange.go(step);
        let exchange = Arc::downgrade(&self.exchange);
        let added = self.workshop.add(move || {
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

    /// Reads the socket's own queue; returns how many messages that had.
    fn read_socket(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let received = read(&self.exchange, &mut self.expected, out, max)?;
        // For large frames a ring is of no use.
        if received.usual > 0 && matches!(self.phase, Phase::Socket) {
            let many = self.pace.batch(received.taken == max, Instant::now);
            if self.pace.add(received.usual, Instant::now) == Some(Tempo::Quick) || many {
                self.want();
            }
        }
        Ok(received.taken)
    }

    /// Has a ring made, unless the last one is still being closed.
    fn want(&mut self) {
        if self.exchange.step() == Step::None {
            self.phase = Phase::Waiting;
            self.go(Step::Wanted);
        }
    }

    /// Looks at what the workshop has done.
    fn follow(&mut self) {
        let step = self.exchange.step();
        self.phase = match (std::mem::replace(&mut self.phase, Phase::Socket), step) {
            (Phase::Waiting, Step::Made) => match self.exchange.ring.lock().take() {
                Some(ring) => Phase::Growing(ring),
                None => Phase::Waiting,
            },
            (Phase::Waiting, Step::None) => {
                self.pace.rest();
                Phase::Socket
            }
            // It could not be redirected to the ring.
            (Phase::Growing(ring), Step::Left) => Phase::Shrinking(ring),
            // Or not from it.
            (Phase::Shrinking(ring), Step::Filling) => Phase::Growing(ring),
            (phase, _) => phase,
        };
        if matches!(self.phase, Phase::Growing(_)) && step == Step::Made {
            self.go(Step::Taken);
        }
    }

    /// From the socket to the ring.
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
            self.pace = Pace::default();
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
            // While the device goes down and up, its sockets join the group one after the other.
            n = read(&self.exchange, &mut self.expected, out, max)?.taken;
            look = true;
        }
        if look && self.pace.add(n, Instant::now) == Some(Tempo::Slow) {
            if let Phase::Ring(ring) = std::mem::replace(&mut self.phase, Phase::Socket) {
                self.phase = Phase::Shrinking(ring);
            }
            self.go(Step::Unwanted);
        }
        Ok(n)
    }

    /// From the ring to the socket.
    fn shrink(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let last = self.exchange.step() == Step::Left;
        let Phase::Shrinking(ring) = &mut self.phase else { return Ok(0) };
        // How many wait at the socket is not known: one at least, or none.
        let waits = is_readable(self.exchange.socket.as_fd());
        let from_ring = ring.take(out, max);
        if from_ring == max {
            return Ok(max);
        }
        if last && let Phase::Shrinking(ring) = std::mem::replace(&mut self.phase, Phase::Socket) {
            *self.exchange.ring.lock() = Some(ring);
            self.pace = Pace::default();
            self.go(Step::Returned);
        }
        let taken = if waits { read(&self.exchange, &mut self.expected, out, 1)?.taken } else { 0 };
        Ok(from_ring + taken)
    }
}

/// Reads the socket's own queue.
fn read(exchange: &Exchange, expected: &mut Expected, out: &mut Batch, max: usize) -> io::Result<queue::Received> {
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
            // The descriptor is that of one of both.
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
