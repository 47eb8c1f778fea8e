//! An AF_XDP socket on one queue of a device, with its four rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::arena::{self, Arena};
use crate::config::Mode;
use crate::explain::{Failure, Step};
use crate::frames::Frame;
use crate::memory::{ConsumerRing, FRAME_LEN, Putting, RingKind};
use crate::receive::Receiver;
use crate::send::{Sender, Setup};
use crate::sys;

/// Slots of each ring.
const SLOTS: u32 = 2048;
/// Number of frames that a socket adds to its umem, for receiving and sending: 8 MiB.
pub(crate) const FRAMES: u32 = 2 * SLOTS;
/// Maximum number of bytes of packets that the kernel has copied and not sent yet (copy mode).
const SEND_BUFFER_LEN: usize = 8 << 20;
/// Frames that a call sends at most (copy mode): a batch of the datapath, several pieces each.
const SEND_BUDGET: u32 = 512;
/// The kernel frees a queue some milliseconds after its socket was closed. So long is waited for that, always; and so long
/// if it was a socket of ours.
const BUSY: Duration = Duration::from_millis(60);
const BUSY_OURS: Duration = Duration::from_millis(1000);

/// When this process closed a socket last, in milliseconds since its first one, plus one; 0 for never.
static CLOSED_MS: AtomicU64 = AtomicU64::new(0);
static STARTED: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

fn now_ms() -> u64 {
    STARTED.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

/// A bound socket. Fields are dropped in their order: mappings before the socket, and the frames lent to the kernel
/// last, when the kernel no longer uses them.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) receiver: Mutex<Receiver>,
    pub(crate) sender: Mutex<Sender>,
    /// Frames wait in the transmit ring for another try.
    pub(crate) leftover: AtomicBool,
    fd: Closing,
    lent: Lent,
    /// The device's number of the queue.
    pub(crate) queue: u32,
}

/// A descriptor whose closing is recorded.
#[derive(Debug)]
struct Closing {
    fd: Option<Arc<OwnedFd>>,
    arena: &'static Arena,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(fd) = &self.fd {
            // From here on this is the only one.
            self.arena.unbind(fd);
        }
        self.fd = None;
        CLOSED_MS.store(now_ms(), Ordering::Relaxed);
    }
}

/// The frames that a socket had lent to the kernel when it ended, for receiving and for sending.
#[derive(Debug)]
struct Lent {
    arena: &'static Arena,
    zero_copy: bool,
    ifindex: u32,
    queue: u32,
    bound: bool,
    frames: [Vec<Frame>; 2],
}

impl Drop for Lent {
    /// Where the kernel copies, it writes to no frame any more when the socket is closed, which waits for concurrent
    /// receivers (`synchronize_net` in `xsk_unbind_dev`). Some drivers send directly from frames, and may not have
    /// finished the last of them; these frames are reused after all others. With zero-copy the driver uses the frames
    /// until the kernel's work queue stops it.
    fn drop(&mut self) {
        let [received, sent] = std::mem::take(&mut self.frames);
        if self.zero_copy && self.bound {
            self.arena.set_aside(self.ifindex, self.queue, received.into_iter().chain(sent).collect());
        } else {
            self.arena.give_last(received);
            self.arena.give_last(sent);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.lent.frames = [self.receiver.get_mut().lending.take_all(), self.sender.get_mut().lending.take_all()];
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.fd.as_ref().expect("open until it is dropped").as_fd()
    }
}

/// The device and queue of a socket, and its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketAddress<'a> {
    pub(crate) device: &'a str,
    pub(crate) ifindex: u32,
    /// The device's number of the queue.
    pub(crate) queue: u32,
    /// Says whether the driver or the kernel moves frames.
    pub(crate) mode: Mode,
    pub(crate) need_wakeup: bool,
}

impl Socket {
    /// Opens a socket with a reservation in `arena`, whose umem it registers with the kernel if it is the first
    /// there.
    pub(crate) fn open(place: SocketAddress<'_>, arena: &'static Arena) -> Result<Self, Failure> {
        let step = |step| move |error: Errno| Failure { step, error: error.into() };
        let io_step = |step| move |error: io::Error| Failure { step, error };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map_err(step(Step::Socket))?;
        let fd = Arc::new(fd);
        if !arena.is_registered() {
            let (addr, len) = arena.umem.place();
            let registration = XdpUmemReg {
                addr,
                len,
                chunk_size: FRAME_LEN as u32,
                headroom: 0,
                flags: XdpUmemRegFlags::empty(),
                tx_metadata_len: 0,
            };
            sockopt::set_xdp_umem_reg(&*fd, registration).map_err(step(Step::Umem(len)))?;
        }
        let made = step(Step::Socket);
        sockopt::set_xdp_umem_fill_ring_size(&*fd, SLOTS).map_err(made)?;
        sockopt::set_xdp_umem_completion_ring_size(&*fd, SLOTS).map_err(made)?;
        sockopt::set_xdp_rx_ring_size(&*fd, SLOTS).map_err(made)?;
        sockopt::set_xdp_tx_ring_size(&*fd, SLOTS).map_err(made)?;
        let offsets = sockopt::xdp_mmap_offsets(&*fd).map_err(made)?;
        // Where these are refused, the usual sizes serve too.
        let _ = sockopt::set_socket_send_buffer_size_force(&*fd, SEND_BUFFER_LEN);
        let _ = sys::set_send_budget(fd.as_fd(), SEND_BUDGET);
        let rings = || -> io::Result<_> {
            let rx = ConsumerRing::new(fd.as_fd(), RingKind::Rx, offsets.rx, SLOTS)?;
            let tx = Putting::new(fd.as_fd(), RingKind::Tx, offsets.tx, SLOTS)?;
            let fill = Putting::new(fd.as_fd(), RingKind::Fill, offsets.fr, SLOTS)?;
            let completion = ConsumerRing::new(fd.as_fd(), RingKind::Completion, offsets.cr, SLOTS)?;
            Ok((rx, tx, fill, completion))
        };
        let (rx, tx, fill, completion) = rings().map_err(io_step(Step::Socket))?;
        let SocketAddress { ifindex, queue, mode, need_wakeup, .. } = place;
        let zero_copy = mode == Mode::NativeWithZerocopy;
        let setup = Setup { zero_copy, pieces: false, need_wakeup };
        let mut socket = Self {
            receiver: Mutex::new(Receiver::new(arena, rx, fill)),
            sender: Mutex::new(Sender::new(arena, tx, completion, setup)),
            leftover: AtomicBool::new(false),
            fd: Closing { fd: Some(Arc::clone(&fd)), arena },
            lent: Lent { arena, zero_copy, ifindex, queue, bound: false, frames: Default::default() },
            queue,
        };
        let pieces = bind_to(&place, &fd, arena).map_err(step(Step::Bind(queue, mode)))?;
        socket.lent.bound = true;
        socket.sender.get_mut().set_pieces(pieces);
        arena::queue_is_ours(ifindex, queue);
        Ok(socket)
    }

    /// The kernel's counters of the socket.
    pub(crate) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(self)?)
    }
}

/// Binds a socket. Returns whether frames may have several pieces.
fn bind_to(place: &SocketAddress<'_>, fd: &Arc<OwnedFd>, arena: &'static Arena) -> Result<bool, Errno> {
    let SocketAddress { device, ifindex, queue, mode, need_wakeup } = *place;
    let own =
        if mode == Mode::NativeWithZerocopy { SocketAddrXdpFlags::XDP_ZEROCOPY } else { SocketAddrXdpFlags::XDP_COPY };
    let address = |flags| SocketAddrXdp::new(flags, ifindex, queue);
    let attempt = |before: Option<(&OwnedFd, bool)>| {
        if let Some((other, pieces)) = before {
            // All other settings are those of the first socket.
            let addr = address(SocketAddrXdpFlags::XDP_SHARED_UMEM);
            return bind(fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: other.as_fd() }).map(|()| pieces);
        }
        let mut flags = own;
        flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, need_wakeup);
        match bind(fd, &address(flags | SocketAddrXdpFlags::XDP_USE_SG)) {
            Ok(()) => Ok(true),
            // Linux before 6.6 does not know of pieces, and not all drivers do.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => bind(fd, &address(flags)).map(|()| false),
            Err(e) => Err(e),
        }
    };
    retry_while_busy(|| arena.bind(device, fd, attempt))
}

/// Retries while a queue is busy, as that may only last until the kernel has released the previous socket.
fn retry_while_busy<R>(attempt: impl Fn() -> Result<R, Errno>) -> Result<R, Errno> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(Errno::BUSY) => {
                let closed = CLOSED_MS.load(Ordering::Relaxed);
                let ours = closed > 0 && now_ms().saturating_sub(closed) < BUSY_OURS.as_millis() as u64;
                if started.elapsed() > if ours { BUSY_OURS } else { BUSY } {
                    return Err(Errno::BUSY);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}
