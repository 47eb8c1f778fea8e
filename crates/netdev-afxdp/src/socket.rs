//! An AF_XDP socket on one queue of a device, with its umem and its four rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::config::Mode;
use crate::explain::{Failure, Step};
use crate::frames::Frames;
use crate::memory::{FRAME_LEN, Putting, RingKind, Taking, Umem};
use crate::receive::Receiver;
use crate::send::{Sender, Setup};
use crate::sys;

/// Slots of each ring, and frames that each side has: 8 MiB a queue for both.
const SLOTS: u32 = 2048;
/// Bytes of packets that the kernel made of frames to be sent and that are not sent yet, at most (copy mode).
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

/// A socket, bound. Fields end in their order: mappings before the socket, memory last.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) receiver: Mutex<Receiver>,
    pub(crate) sender: Mutex<Sender>,
    /// Frames wait in the transmit ring for another try.
    pub(crate) leftover: AtomicBool,
    fd: Closing,
    pub(crate) umem: Umem,
    /// The device's number of the queue.
    pub(crate) queue: u32,
}

/// A descriptor whose end is noted.
#[derive(Debug)]
struct Closing(Option<OwnedFd>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0 = None;
        CLOSED_MS.store(now_ms(), Ordering::Relaxed);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.0.as_ref().expect("open until it is dropped").as_fd()
    }
}

impl Socket {
    /// A socket on `queue` of the device; `mode` says whether the driver or the kernel moves frames.
    pub(crate) fn open(ifindex: u32, queue: u32, mode: Mode, need_wakeup: bool) -> Result<Self, Failure> {
        let step = |step| move |error: Errno| Failure { step, error: error.into() };
        let io_step = |step| move |error: io::Error| Failure { step, error };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map_err(step(Step::Socket))?;
        let umem = Umem::new(2 * SLOTS).map_err(io_step(Step::Umem(u64::from(2 * SLOTS) * FRAME_LEN as u64)))?;
        let (addr, len) = umem.place();
        let registration = XdpUmemReg {
            addr,
            len,
            chunk_size: FRAME_LEN as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&fd, registration).map_err(step(Step::Umem(len)))?;
        let made = step(Step::Socket);
        sockopt::set_xdp_umem_fill_ring_size(&fd, SLOTS).map_err(made)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, SLOTS).map_err(made)?;
        sockopt::set_xdp_rx_ring_size(&fd, SLOTS).map_err(made)?;
        sockopt::set_xdp_tx_ring_size(&fd, SLOTS).map_err(made)?;
        let offsets = sockopt::xdp_mmap_offsets(&fd).map_err(made)?;
        // Where these are refused, the usual sizes serve too.
        let _ = sockopt::set_socket_send_buffer_size_force(&fd, SEND_BUFFER_LEN);
        let _ = sys::set_send_budget(fd.as_fd(), SEND_BUDGET);
        let rings = || -> io::Result<_> {
            let rx = Taking::new(fd.as_fd(), RingKind::Rx, offsets.rx, SLOTS)?;
            let tx = Putting::new(fd.as_fd(), RingKind::Tx, offsets.tx, SLOTS)?;
            let fill = Putting::new(fd.as_fd(), RingKind::Fill, offsets.fr, SLOTS)?;
            let completion = Taking::new(fd.as_fd(), RingKind::Completion, offsets.cr, SLOTS)?;
            Ok((rx, tx, fill, completion))
        };
        let (rx, tx, fill, completion) = rings().map_err(io_step(Step::Socket))?;
        let receiver = Receiver::new(rx, fill, Frames::new(0, SLOTS));
        let zero_copy = mode == Mode::NativeWithZerocopy;
        let pieces = bind_to(&fd, ifindex, queue, zero_copy, need_wakeup).map_err(step(Step::Bind(queue, mode)))?;
        let setup = Setup { zero_copy, pieces, need_wakeup };
        let sender = Sender::new(tx, completion, Frames::new(SLOTS, SLOTS), setup);
        Ok(Self {
            receiver: Mutex::new(receiver),
            sender: Mutex::new(sender),
            leftover: AtomicBool::new(false),
            fd: Closing(Some(fd)),
            umem,
            queue,
        })
    }

    /// The kernel's counters of the socket.
    pub(crate) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(self)?)
    }
}

/// Binds a socket. Returns whether frames may have several pieces.
fn bind_to(fd: &OwnedFd, ifindex: u32, queue: u32, zero_copy: bool, need_wakeup: bool) -> Result<bool, Errno> {
    let mut flags = if zero_copy { SocketAddrXdpFlags::XDP_ZEROCOPY } else { SocketAddrXdpFlags::XDP_COPY };
    flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, need_wakeup);
    let with_pieces = flags | SocketAddrXdpFlags::XDP_USE_SG;
    match bind_patiently(fd, &SocketAddrXdp::new(with_pieces, ifindex, queue)) {
        Ok(()) => Ok(true),
        // Linux before 6.6 does not know of pieces, and not all drivers do.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            bind_patiently(fd, &SocketAddrXdp::new(flags, ifindex, queue)).map(|()| false)
        }
        Err(e) => Err(e),
    }
}

/// Binds; a queue that is busy may be so only until the kernel has put away the socket before.
fn bind_patiently(fd: &OwnedFd, address: &SocketAddrXdp) -> Result<(), Errno> {
    let started = Instant::now();
    loop {
        match bind(fd, address) {
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
