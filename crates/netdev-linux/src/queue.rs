//! Reads frames from a packet socket's own queue, many per system call (`recvmmsg`).
//!
//! Memory is only used while frames wait: by the kernel for the frames, and by the receiving thread, which has buffers
//! for one batch whatever the number of its sockets. The kernel writes each frame into its packet's buffer, with the
//! virtio-net header in the headroom before it. The length of the next frame is unknown: by default a packet has
//! [`REGULAR_LEN`] bytes, followed by overflow space for the rest of a large frame, which is then assembled by a copy.
//! After large frames were seen, all packets get large buffers, and small frames are copied instead.
//!
//! Invariants of [`Buffers`]: its messages point into its vectors and into the memory of its packets. Neither is moved
//! or replaced without setting the message again.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;

use netdev::pool;
use packet::buf::{BATCH_MAX, HEADROOM};
use packet::{Batch, Packet};

use crate::{sys, vnet};

/// Maximum length of a frame in a buffer of 2 KiB: 1,500 bytes of payload with all headers.
pub(crate) const REGULAR_LEN: usize = 2048 - HEADROOM;
/// Maximum length of a frame: 64 KiB of IP packet with its Ethernet header, and a margin.
const LEN_MAX: usize = 65536 + 256;
/// Batches without a large frame after which small buffers are used again.
const EXPECTED: u8 = 32;
/// Maximum number of consecutive reports that the device was down.
const NEWS_MAX: u32 = 8;
/// Bytes for ancillary data: a header and the auxiliary data of packet(7).
const CONTROL_LEN: usize = 64;

/// The result of reading a socket's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Received {
    /// Messages read, including those without a valid frame.
    pub taken: usize,
    /// Frames of regular length.
    pub regular: usize,
    /// Invalid frames: too long, or with invalid offload flags.
    pub errors: u64,
}

/// State of a socket between calls.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Number of batches for which large buffers are still used.
    large: u8,
}

thread_local! {
    static ROOMS: RefCell<[Option<Buffers>; 2]> = const { RefCell::new([None, None]) };
}

/// Appends up to `max` frames that wait at a packet socket to `out`. The socket must have `PACKET_VNET_HDR` and
/// `PACKET_AUXDATA` set. After an error, no more frames will come.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    expected: &mut Expected,
    max: usize,
    out: &mut Batch,
) -> io::Result<Received> {
    let (at, frame_len) = if expected.large > 0 { (1, LEN_MAX) } else { (0, REGULAR_LEN) };
    let received = ROOMS.with_borrow_mut(|rooms| {
        rooms[at].get_or_insert_with(|| Buffers::new(frame_len)).receive(socket, max.min(BATCH_MAX), out)
    })?;
    expected.large = match received {
        Received { taken, regular, errors } if regular + (errors as usize) < taken => EXPECTED,
        _ => expected.large.saturating_sub(1),
    };
    Ok(received)
}

/// Buffers for a batch.
struct Buffers {
    /// Bytes of a frame that fit its buffer.
    frame_len: usize,
    packets: Vec<Packet>,
    /// Overflow space of each frame, [`LEN_MAX`] minus `frame_len` bytes.
    rest: Vec<u8>,
    control: Vec<Control>,
    buffers: Vec<[libc::iovec; 2]>,
    messages: Vec<libc::mmsghdr>,
}

/// Ancillary data, with the alignment of its header.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

impl Buffers {
    fn new(frame_len: usize) -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut room = Self {
            frame_len,
            packets: (0..BATCH_MAX).map(|_| Packet::default()).collect(),
            // Zeroed pages that are never written to take no physical memory.
            rest: vec![0; BATCH_MAX * (LEN_MAX - frame_len)],
            control: vec![Control([0; CONTROL_LEN]); BATCH_MAX],
            buffers: vec![[none; 2]; BATCH_MAX],
            // SAFETY: the structure consists of integers and pointers, for which zero is valid.
            messages: vec![unsafe { std::mem::zeroed() }; BATCH_MAX],
        };
        for i in 0..BATCH_MAX {
            room.packets[i] = pool::empty(frame_len);
            room.set(i);
        }
        room
    }

    /// Prepares message `i` to receive into packet `i`.
    fn set(&mut self, i: usize) {
        let rest_len = LEN_MAX - self.frame_len;
        let bytes = self.packets[i].emptied();
        bytes.reserve(self.frame_len);
        // The header ends where the frame begins. (The pointer covers the whole allocation, as writes go past the
        // vector's length.)
        let header = bytes.as_mut_ptr().wrapping_add(HEADROOM - vnet::LEN);
        let rest = &mut self.rest[i * rest_len..][..rest_len];
        self.buffers[i] = [
            libc::iovec { iov_base: header.cast(), iov_len: vnet::LEN + self.frame_len },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest_len },
        ];
        let header = &mut self.messages[i].msg_hdr;
        header.msg_iov = self.buffers[i].as_mut_ptr();
        header.msg_iovlen = if rest_len > 0 { 2 } else { 1 };
        header.msg_control = self.control[i].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_LEN as _;
        header.msg_flags = 0;
    }

    fn receive(&mut self, socket: BorrowedFd<'_>, max: usize, out: &mut Batch) -> io::Result<Received> {
        let mut news = 0;
        let taken = loop {
            // SAFETY: by the invariant each message points to memory of this thread: the end of a packet's headroom and
            // the capacity reserved behind it, its part of `rest`, and its ancillary data.
            let error = match unsafe { sys::receive_messages(socket, &mut self.messages[..max]) } {
                Ok(n) => break n,
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => break 0,
                Some(libc::EINTR) => {}
                // ENETDOWN is reported once, before the frames that wait, and is no failure.
                Some(libc::ENETDOWN) if news < NEWS_MAX => news += 1,
                // The kernel could not build a virtio-net header for a frame, and has dropped the frame.
                Some(libc::EINVAL) => return Ok(Received { taken: 1, regular: 0, errors: 1 }),
                _ => return Err(error),
            }
        };
        let mut received = Received { taken, ..Received::default() };
        for i in 0..taken {
            match self.take(i) {
                Some(packet) => {
                    received.regular += usize::from(packet.len() <= REGULAR_LEN);
                    out.push(packet);
                }
                None => received.errors += 1,
            }
            self.set(i);
        }
        Ok(received)
    }

    /// The frame of received message `i`; `None` if it was truncated or has invalid offload flags.
    fn take(&mut self, i: usize) -> Option<Packet> {
        let message = &self.messages[i];
        let len = (message.msg_len as usize).checked_sub(vnet::LEN)?;
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 || len > LEN_MAX {
            return None;
        }
        let control_len = message.msg_hdr.msg_controllen.min(CONTROL_LEN);
        let vlan = tag(&self.control[i].0[..control_len]);
        let bytes = self.packets[i].emptied();
        let offload = vnet::parse(*bytes[HEADROOM - vnet::LEN..].first_chunk()?)?;
        let here = len.min(self.frame_len);
        // SAFETY: `frame_len` bytes are reserved behind the headroom, and the kernel has written the message's length
        // minus its header.
        unsafe { bytes.set_len(HEADROOM + here) };
        let mut packet = if len > here {
            let mut whole = pool::empty(len);
            let rest_len = LEN_MAX - self.frame_len;
            whole.append(self.packets[i].data());
            whole.append(&self.rest[i * rest_len..][..len - here]);
            whole
        } else if len <= REGULAR_LEN && self.frame_len > REGULAR_LEN {
            pool::filled(self.packets[i].data())
        } else {
            std::mem::replace(&mut self.packets[i], pool::empty(self.frame_len))
        };
        packet.offload = offload;
        if let Some((protocol, control)) = vlan {
            vnet::reinsert_tag(&mut packet, protocol, control);
        }
        Some(packet)
    }
}

/// The VLAN tag that the kernel stripped from the frame, as protocol and TCI, if it reports one (`struct
/// tpacket_auxdata`).
fn tag(control: &[u8]) -> Option<(u16, u16)> {
    let header_len = size_of::<libc::cmsghdr>();
    let word = |at: usize| Some(u32::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    // The header ends with level and type.
    if [word(header_len - 8)?, word(header_len - 4)?] != [libc::SOL_PACKET as u32, libc::PACKET_AUXDATA as u32] {
        return None;
    }
    let status = word(header_len)?;
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    Some((if known { half(header_len + 18)? } else { 0x8100 }, half(header_len + 16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(level: i32, kind: i32, status: u32, tci: u16, protocol: u16) -> Vec<u8> {
        let mut bytes = (size_of::<libc::cmsghdr>() + 20).to_ne_bytes().to_vec();
        for word in [level as u32, kind as u32, status, 60, 60] {
            bytes.extend(word.to_ne_bytes());
        }
        for half in [0, 14, tci, protocol] {
            bytes.extend(half.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn tags_are_read() {
        let (level, kind) = (libc::SOL_PACKET, libc::PACKET_AUXDATA);
        let (valid, known) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
        assert_eq!(tag(&control(level, kind, valid | known, 0x2064, 0x88a8)), Some((0x88a8, 0x2064)));
        assert_eq!(tag(&control(level, kind, valid, 0x2064, 0x88a8)), Some((0x8100, 0x2064)));
        assert_eq!(tag(&control(level, kind, known, 0x2064, 0x88a8)), None);
        assert_eq!(tag(&control(level, kind + 1, valid, 0x2064, 0x88a8)), None);
        assert_eq!(tag(&control(level + 1, kind, valid, 0x2064, 0x88a8)), None);
        let whole = control(level, kind, valid | known, 0x2064, 0x88a8);
        assert!((0..whole.len()).all(|len| tag(&whole[..len]).is_none()));
    }
}
