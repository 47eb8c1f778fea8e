//! Sends over a packet socket with `sendmmsg`; each message is a virtio-net header and a frame.
//!
//! Frames pass the device's queueing discipline (no `PACKET_QDISC_BYPASS`): rates set with tc apply, captures see the
//! frames, and a busy device queues them instead of dropping. While the switch has set up queues there (`qos`), the socket's
//! priority (`SO_PRIORITY`) follows the queue of the frames: the kernel gives it to each frame, and `htb` and `hfsc` take it
//! as the handle of a class.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use base::DropReason;
use netdev::{SendReport, Tx, pool, software};
use packet::segment::make_udp_partial;
use packet::{Batch, Packet};

use crate::link::Link;
use crate::{ring, sys, tc, vnet};

/// Maximum number of bytes in the device's queue: some 60 frames of 64 KiB.
const SEND_BUFFER_LEN: i32 = 4 << 20;
/// Frames per system call.
const MESSAGES: usize = 64;

/// A packet socket for sending.
pub(crate) struct PacketTx {
    socket: OwnedFd,
    headers: Vec<[u8; vnet::LEN]>,
    link: Arc<Link>,
    /// The socket's priority.
    priority: u32,
}

impl PacketTx {
    /// Opens a socket bound to the device.
    pub(crate) fn new(link: &Arc<Link>) -> io::Result<Self> {
        let socket = ring::vnet_socket()?;
        // Needs CAP_NET_ADMIN. If it is refused, the default size works, too.
        let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER_LEN);
        sys::packet_bind(socket.as_fd(), link.ifindex(), 0)?;
        Ok(Self { socket, headers: Vec::with_capacity(MESSAGES), link: Arc::clone(link), priority: 0 })
    }

    /// Sends frames with the priorities of their queues, those of a queue that follow each other together.
    #[cold]
    fn send_by_queue(&mut self, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        let mut rest = std::mem::take(batch);
        let is_on = self.link.has_queues();
        let priority_of = |packet: &Packet| match packet.metadata() {
            Some(metadata) if is_on => tc::priority(metadata.skb_priority),
            _ => 0,
        };
        while let Some(priority) = rest.first().map(priority_of) {
            let n = rest.iter().take_while(|packet| priority_of(packet) == priority).count();
            let behind = rest.split_off(n);
            if priority != self.priority {
                match sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, priority as i32) {
                    Ok(()) => self.priority = priority,
                    Err(error) => {
                        tracing::debug!(device = self.link.name(), priority, %error, "cannot set the priority")
                    }
                }
            }
            report.merge(&self.send_all(&mut rest));
            rest = behind;
        }
        report
    }

    /// Sends a frame that the kernel refused, after doing its offload work in software.
    fn send_finished(&mut self, refused: &Packet, report: &mut SendReport) {
        let mut finished = Batch::new();
        if software::is_finished(refused) || software::finish(refused.clone(), &mut finished).is_err() {
            report.count_dropped(DropReason::OutputError, 1);
            return;
        }
        // These frames have no offload flags, so this does not recurse again.
        report.merge(&self.send_all(&mut finished));
    }

    /// Passes frames to the kernel; returns how many it accepted, or the error for the first frame.
    fn send(&mut self, packets: &[Packet]) -> io::Result<usize> {
        let packets = &packets[..packets.len().min(MESSAGES)];
        self.headers.clear();
        self.headers.extend(packets.iter().map(vnet::emit));
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut buffers = [[none; 2]; MESSAGES];
        // SAFETY: the structure consists of integers and pointers, for which zero is valid.
        let mut messages: [libc::mmsghdr; MESSAGES] = unsafe { std::mem::zeroed() };
        for (i, packet) in packets.iter().enumerate() {
            let frame = packet.data();
            // The kernel only reads through these pointers, despite their type.
            buffers[i] = [
                libc::iovec { iov_base: self.headers[i].as_ptr().cast_mut().cast(), iov_len: vnet::LEN },
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() },
            ];
            messages[i].msg_hdr.msg_iov = buffers[i].as_mut_ptr();
            messages[i].msg_hdr.msg_iovlen = 2;
        }
        // SAFETY: headers, frames and `buffers` live through the call and do not move.
        unsafe { sys::send_messages(self.socket.as_raw_fd(), &mut messages[..packets.len()]) }
    }
}

impl Tx for PacketTx {
    fn send_batch(&mut self, batch: &mut Batch) -> SendReport {
        if self.link.has_queues() || self.priority != 0 { self.send_by_queue(batch) } else { self.send_all(batch) }
    }
}

impl PacketTx {
    /// Sends frames with the socket's priority.
    fn send_all(&mut self, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        let (mut at, mut asked_again) = (0, false);
        batch.iter_mut().filter(|packet| packet.offload.gso.is_some()).for_each(make_udp_partial);
        while let Some(rest) = batch.get(at..).filter(|rest| !rest.is_empty()) {
            let error = match self.send(rest) {
                Ok(n) => {
                    rest[..n].iter().for_each(|packet| report.count_sent(packet.len()));
                    at += n;
                    continue;
                }
                Err(e) => e,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The socket reports once that the device was down at some time: retry to learn its current state.
                Some(libc::ENETDOWN) if !asked_again => asked_again = true,
                Some(libc::ENETDOWN) => {
                    report.count_dropped(DropReason::PortDown, rest.len() as u64);
                    break;
                }
                Some(libc::ENXIO | libc::ENODEV) => {
                    report.count_dropped(DropReason::NoPort, rest.len() as u64);
                    break;
                }
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    report.count_dropped(DropReason::OutputQueueFull, 1);
                    at += 1;
                }
                Some(libc::EMSGSIZE) => {
                    report.count_dropped(DropReason::TooBig, 1);
                    at += 1;
                }
                _ => {
                    self.send_finished(&rest[0], &mut report);
                    at += 1;
                }
            }
        }
        pool::recycle_all(batch);
        report
    }
}
