//! Frames out of a packet socket's own queue, many by one system call (`recvmmsg`).
//!
//! Memory is taken only while frames wait: by the kernel for the frames, and here by the thread that receives, which has
//! room for one batch whatever the number of its sockets. The kernel writes each frame into the buffer of its packet, the
//! virtio-net header into the headroom before it. Nobody knows how long the next frame is: usual ones have a buffer of
//! [`USUAL_LEN`] bytes, behind which stands room for the rest of a large one, which is then put together by a copy. Where
//! large frames came lately, all get large buffers, and it is the small ones that are copied.
//!
//! Invariants of a [`Room`]: what its messages point to lives in its vectors and in the memory of its packets, none of
//! which is moved or replaced without the message being set anew.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;

use netdev::pool;
use packet::buf::{BATCH_MAX, HEADROOM};
use packet::{Batch, Packet};

use crate::{sys, vnet};

/// Bytes of a frame that has room in a buffer of 2 KiB: 1,500 bytes payload with all that goes before it.
pub(crate) const USUAL_LEN: usize = 2048 - HEADROOM;
/// Bytes of a frame at most: 64 KiB of IP packet with its Ethernet header, and some room.
const LEN_MAX: usize = 65536 + 256;
/// Batches without a large frame after which large ones are not expected any more.
const EXPECTED: u8 = 32;
/// How often in a row a socket may say that its device was down.
const NEWS_MAX: u32 = 8;
/// Bytes for ancillary data: a header and what packet(7) calls auxiliary data.
const CONTROL_LEN: usize = 64;

/// What came out of a socket's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Received {
    /// Messages that were taken out, those that gave no frame among them.
    pub taken: usize,
    /// Frames of usual length.
    pub usual: usize,
    /// Frames that could not be had: longer than any should be, or with marks that make no sense.
    pub errors: u64,
}

/// What is kept of a socket between calls.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Batches for which large frames are still expected.
    large: u8,
}

thread_local! {
    static ROOMS: RefCell<[Option<Room>; 2]> = const { RefCell::new([None, None]) };
}

/// Appends up to `max` frames that wait at a packet socket, which must have `PACKET_VNET_HDR` and `PACKET_AUXDATA`, to
/// `out`. An error means that nothing more will come.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    expected: &mut Expected,
    max: usize,
    out: &mut Batch,
) -> io::Result<Received> {
    let (at, frame_len) = if expected.large > 0 { (1, LEN_MAX) } else { (0, USUAL_LEN) };
    let received = ROOMS.with_borrow_mut(|rooms| {
        rooms[at].get_or_insert_with(|| Room::new(frame_len)).receive(socket, max.min(BATCH_MAX), out)
    })?;
    expected.large = match received {
        Received { taken, usual, errors } if usual + (errors as usize) < taken => EXPECTED,
        _ => expected.large.saturating_sub(1),
    };
    Ok(received)
}

/// Room for a batch.
struct Room {
    /// Bytes of a frame that its buffer has room for.
    frame_len: usize,
    packets: Vec<Packet>,
    /// For what is behind them, [`LEN_MAX`] less `frame_len` bytes for each.
    rest: Vec<u8>,
    control: Vec<Control>,
    buffers: Vec<[libc::iovec; 2]>,
    messages: Vec<libc::mmsghdr>,
}

/// Ancillary data, aligned as its header has to be.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

impl Room {
    fn new(frame_len: usize) -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut room = Self {
            frame_len,
            packets: (0..BATCH_MAX).map(|_| Packet::default()).collect(),
            // Memory that is never written to is never there.
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

    /// Sets message `i` to receive into packet `i`.
    fn set(&mut self, i: usize) {
        let rest_len = LEN_MAX - self.frame_len;
        let bytes = self.packets[i].emptied();
        bytes.reserve(self.frame_len);
        // The header ends where the frame begins. (Of the whole memory, as what is written reaches past the vector's end.)
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
            // SAFETY: by the invariant each message points to memory of ours: the end of a packet's headroom and the room
            // reserved behind it, its part of `rest`, and its ancillary data.
            let error = match unsafe { sys::receive_messages(socket, &mut self.messages[..max]) } {
                Ok(n) => break n,
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => break 0,
                Some(libc::EINTR) => {}
                // "Network is down" is told once, before the frames that wait, and is no failure.
                Some(libc::ENETDOWN) if news < NEWS_MAX => news += 1,
                // What the kernel says when it has no virtio-net header for a frame, which is gone then.
                Some(libc::EINVAL) => return Ok(Received { taken: 1, usual: 0, errors: 1 }),
                _ => return Err(error),
            }
        };
        let mut received = Received { taken, ..Received::default() };
        for i in 0..taken {
            match self.take(i) {
                Some(packet) => {
                    received.usual += usize::from(packet.len() <= USUAL_LEN);
                    out.push(packet);
                }
                None => received.errors += 1,
            }
            self.set(i);
        }
        Ok(received)
    }

    /// The frame of message `i`, which was received; `None` if it was cut off or has marks that make no sense.
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
        // SAFETY: room for `frame_len` bytes is reserved behind the headroom, and the kernel has written as many as the
        // message is long, less its header.
        unsafe { bytes.set_len(HEADROOM + here) };
        let mut packet = if len > here {
            let mut whole = pool::empty(len);
            let rest_len = LEN_MAX - self.frame_len;
            whole.append(self.packets[i].data());
            whole.append(&self.rest[i * rest_len..][..len - here]);
            whole
        } else if len <= USUAL_LEN && self.frame_len > USUAL_LEN {
            pool::filled(self.packets[i].data())
        } else {
            std::mem::replace(&mut self.packets[i], pool::empty(self.frame_len))
        };
        packet.offload = offload;
        if let Some((protocol, control)) = vlan {
            vnet::put_tag_back(&mut packet, protocol, control);
        }
        Some(packet)
    }
}

/// The VLAN tag that the kernel took out of the frame, protocol and control information, if it tells of one
/// (`struct tpacket_auxdata`).
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
