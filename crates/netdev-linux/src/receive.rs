//! Receiving through a ring, and state shared by all receive sockets of a device: the filter that an accelerator may
//! attach, and the drop counter.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use netdev::{Rx, pool};
use packet::{Batch, Packet, buf::HEADROOM};
use parking_lot::Mutex;

use crate::link::Link;
use crate::ring::{self, FrameBytes, Ring};
use crate::sys::Sharing;
use crate::{sys, vnet};

/// Maximum number of frames that wait in a ring; 4 MiB of kernel memory.
const RING_SLOTS: usize = 2048;
/// Receive buffer for frames too large for the ring, in bytes. The kernel doubles this, and counts its overhead.
const BESIDE_RING_LEN: i32 = 16 << 20;
/// Receive buffer for all frames without a ring: about ten thousand small frames, or more than a hundred of 64 KiB.
pub(crate) const QUEUE_LEN: i32 = 4 << 20;
/// A queue found empty this many times in a row checks the socket's error, which would keep its descriptor readable.
/// Busy polling threads pay for the check only this often.
const IDLE_CHECK: u32 = 64;

const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Takes no frame.
const NOTHING: [libc::sock_filter; 1] = [instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0)];
/// Accepts whole frames, except outgoing ones.
const INCOMING: [libc::sock_filter; 4] = [
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32, 0, 0),
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::PACKET_OUTGOING as u32, 0, 1),
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    instruction(libc::BPF_RET | libc::BPF_K, u32::MAX, 0, 0),
];

/// The receive sockets of a device, for reading their drop counters. Reading resets the kernel's counter.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    sockets: Mutex<Vec<Weak<OwnedFd>>>,
    dropped: AtomicU64,
    /// The program that filters their frames, if any. Locked before `sockets`.
    filter: Mutex<Option<OwnedFd>>,
}

impl Receivers {
    /// Frames dropped because a socket's buffer was full, including sockets that were closed.
    pub(crate) fn drops(&self) -> u64 {
        let mut sockets = self.sockets.lock();
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.iter().filter_map(Weak::upgrade).for_each(|socket| self.count(&socket));
        self.dropped.load(Ordering::Relaxed)
    }

    fn count(&self, socket: &OwnedFd) {
        self.dropped.fetch_add(sys::packet_drops(socket.as_fd()).unwrap_or(0), Ordering::Relaxed);
    }

    /// Makes a new or silent socket receive the same frames as the others.
    pub(crate) fn add(&self, socket: &Arc<OwnedFd>) -> io::Result<()> {
        let filter = self.filter.lock();
        take(socket.as_fd(), filter.as_ref().map(AsFd::as_fd))?;
        self.sockets.lock().push(Arc::downgrade(socket));
        Ok(())
    }

    /// Removes a socket that is about to be closed.
    pub(crate) fn remove(&self, socket: &Arc<OwnedFd>) {
        let mut sockets = self.sockets.lock();
        sockets.retain(|one| !std::ptr::eq(one.as_ptr(), Arc::as_ptr(socket)));
        self.count(socket);
    }

    pub(crate) fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut filter = self.filter.lock();
        let kept = program.map(|program| program.try_clone_to_owned()).transpose()?;
        let sockets: Vec<_> = self.sockets.lock().iter().filter_map(Weak::upgrade).collect();
        let done = sockets.iter().try_for_each(|socket| take(socket.as_fd(), program));
        if done.is_err() {
            // Some sockets have it: remove it from all.
            sockets.iter().for_each(|socket| drop(take(socket.as_fd(), None)));
        }
        *filter = if done.is_ok() { kept } else { None };
        done
    }
}

/// Sets the program that filters a socket's frames, or the default filter for incoming frames.
fn take(socket: BorrowedFd<'_>, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
    match program {
        Some(program) => sys::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd()),
        None if *GROUPS_GET_OUTGOING => sys::attach_filter(socket, &INCOMING),
        None => match sys::set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        },
    }
}

/// Kernels before 5.17 also deliver outgoing frames to fanout groups, whatever the sockets requested.
static GROUPS_GET_OUTGOING: LazyLock<bool> =
    LazyLock::new(|| is_before(&rustix::system::uname().release().to_string_lossy(), (5, 17)));

/// Whether a kernel release is older than a version. True for a release that cannot be parsed.
fn is_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < version
}

/// A socket for receiving on a device in a group, with a receive buffer of `queue_len` bytes; the caller binds it.
pub(crate) fn socket(queue_len: i32) -> io::Result<OwnedFd> {
    let socket = ring::vnet_socket()?;
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, queue_len);
    Ok(socket)
}

/// Receives through a ring.
#[derive(Debug)]
pub(crate) struct RingRx {
    ring: Ring,
    socket: Arc<OwnedFd>,
    link: Arc<Link>,
    /// Number of consecutive calls that found no frame.
    idle: u32,
}

impl RingRx {
    /// One of several queues that share the device's frames; `group` is set if another queue has created it.
    pub(crate) fn sharing(link: Arc<Link>, receivers: &Receivers, group: &mut Option<u16>) -> io::Result<Self> {
        let rx = Self::silent(link)?;
        *group = Some(sys::packet_fanout(rx.socket.as_fd(), *group, Sharing::ByHash)?);
        receivers.add(&rx.socket)?;
        Ok(rx)
    }

    /// A queue that receives no frames until it is [added](Receivers::add): before it joins the group, it would receive
    /// duplicates.
    pub(crate) fn silent(link: Arc<Link>) -> io::Result<Self> {
        let socket = socket(BESIDE_RING_LEN)?;
        let fd = socket.as_fd();
        // Any nonzero threshold queues frames that are too large for a slot at the socket.
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
        let ring = Ring::new(fd, RING_SLOTS)?;
        sys::attach_filter(fd, &NOTHING)?;
        sys::packet_bind(fd, link.ifindex(), libc::ETH_P_ALL as u16)?;
        Ok(Self { ring, socket: Arc::new(socket), link, idle: 0 })
    }

    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Number of waiting frames, up to `max`.
    pub(crate) fn ready(&self, max: usize) -> usize {
        self.ring.ready(max)
    }

    /// The next frame: `None` if none waits, an inner `None` for an invalid frame, which is counted.
    fn next(&mut self) -> Option<Option<Packet>> {
        let slot = self.ring.next()?;
        let (len, vlan) = (slot.len, slot.vlan);
        let packet = match slot.place {
            FrameBytes::Ring(header, frame) => vnet::parse(header).map(|offload| {
                let mut packet = pool::filled(frame);
                packet.offload = offload;
                packet
            }),
            FrameBytes::Socket => read_large(self.socket.as_fd(), len),
            FrameBytes::Lost => {
                self.ring.release();
                self.link.rx_dropped.fetch_add(1, Ordering::Relaxed);
                return Some(None);
            }
        };
        self.ring.release();
        if packet.is_none() {
            self.link.rx_errors.fetch_add(1, Ordering::Relaxed);
        }
        Some(packet.map(|mut packet| {
            if let Some((protocol, control)) = vlan {
                vnet::reinsert_tag(&mut packet, protocol, control);
            }
            packet
        }))
    }

    /// Appends up to `max` waiting frames to `out`; returns the number of ring slots consumed, including invalid
    /// frames. Never more than `max`.
    pub(crate) fn take(&mut self, out: &mut Batch, max: usize) -> usize {
        let mut n = 0;
        while n < max {
            match self.next() {
                Some(packet) => out.extend(packet),
                None => break,
            }
            n += 1;
        }
        n
    }

    /// Called when no frame waits: checks for an error that keeps the descriptor readable, and whether the device still
    /// exists. Returns whether this call did the check.
    pub(crate) fn check(&mut self) -> io::Result<bool> {
        self.idle += 1;
        let closer = self.idle == 2 || self.idle > IDLE_CHECK;
        if closer {
            self.idle = 2;
            // ENETDOWN while the administrator has disabled the device is no failure.
            sys::take_error(self.socket.as_fd())?;
        }
        if self.link.is_gone() { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(closer) }
    }

    /// Something was there.
    pub(crate) fn found(&mut self) {
        self.idle = 0;
    }
}

impl Rx for RingRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let before = out.len();
        while out.len() - before < max {
            if self.take(out, max - (out.len() - before)) == 0 {
                break;
            }
        }
        let n = out.len() - before;
        if n == 0 {
            self.check()?;
        } else {
            self.found();
        }
        Ok(n)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn drain(&mut self) -> io::Result<()> {
        while let Some(packet) = self.next() {
            packet.into_iter().for_each(pool::recycle);
        }
        Ok(())
    }
}

/// Reads a frame of `len` bytes from the socket's queue.
fn read_large(socket: BorrowedFd<'_>, len: usize) -> Option<Packet> {
    // The virtio-net header goes to the end of the headroom, followed by the frame: one system call and no copy.
    let before = HEADROOM - vnet::LEN;
    let mut bytes = pool::buffer(HEADROOM + len);
    bytes.resize(before, 0);
    // A pending error is reported first, and the frame stays.
    for _ in 0..3 {
        if rustix::io::read(socket, rustix::buffer::spare_capacity(&mut bytes)).is_ok() {
            break;
        }
    }
    if bytes.len() != HEADROOM + len {
        return None;
    }
    let header = *bytes.get(before..)?.first_chunk()?;
    let mut packet = Packet::from_vec(bytes, HEADROOM).ok()?;
    packet.offload = vnet::parse(header)?;
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared() {
        for (release, before) in [("5.16.9", true), ("5.17.0-rc1", false), ("6.1.0-18-amd64", false), ("4.19", true)] {
            assert_eq!(is_before(release, (5, 17)), before, "{release}");
        }
        assert!(is_before("", (5, 17)) && is_before("6", (6, 1)));
    }
}
