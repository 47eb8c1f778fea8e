//! The TPACKET_V2 receive ring (Linux Documentation/networking/packet_mmap.rst): memory shared with the kernel, divided
//! into slots of one frame each.
//!
//! Invariants: the mapping has `slots * SLOT_LEN` bytes. `head` is the slot that the kernel fills next. A slot belongs
//! to this process while `TP_STATUS_USER` is set in its status word; the kernel writes to it only after this process
//! has stored `TP_STATUS_KERNEL`. The status is read with acquire and written with release ordering, so that neither
//! side sees the status before the bytes that it covers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{sys, vnet};

/// Length of a slot: a frame with 1,500 bytes of payload and all headers. Larger frames are read from the socket.
pub(crate) const SLOT_LEN: usize = 2048;
/// Memory that the kernel allocates contiguously.
const BLOCK_LEN: usize = 64 * 1024;

/// A receive ring, mapped.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    slots: usize,
    head: usize,
}

// SAFETY: only the ring (and the kernel) uses the mapping, so it may move to another thread with the ring.
unsafe impl Send for Ring {}

/// A received frame, which occupies its slot until [`Ring::release`].
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    /// Length of the frame on the wire.
    pub len: usize,
    /// The VLAN tag that the kernel stripped: protocol and TCI.
    pub vlan: Option<(u16, u16)>,
    /// The location of the frame's bytes.
    pub place: FrameBytes<'a>,
}

/// The location of a received frame's bytes.
#[derive(Debug)]
pub(crate) enum FrameBytes<'a> {
    /// In the ring: the virtio-net header and the frame.
    Ring([u8; vnet::LEN], &'a [u8]),
    /// Too large for a slot: to be read from the socket, virtio-net header first.
    Socket,
    /// Too large for a slot, and dropped because the socket's buffer was full.
    Lost,
}

impl Ring {
    /// Creates and maps a receive ring of `slots` slots (rounded up to whole blocks) on a packet socket.
    pub(crate) fn new(socket: BorrowedFd<'_>, slots: usize) -> io::Result<Self> {
        let blocks = slots.div_ceil(BLOCK_LEN / SLOT_LEN).max(1);
        let slots = blocks * (BLOCK_LEN / SLOT_LEN);
        let packet = libc::SOL_PACKET;
        sys::set_option(socket, packet, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_LEN as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: SLOT_LEN as u32,
            tp_frame_nr: slots as u32,
        };
        sys::set_option(socket, packet, libc::PACKET_RX_RING, request)?;
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                slots * SLOT_LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                socket,
                0,
            )
        }?;
        // SAFETY: the mapping was created for this ring, with this number of slots.
        unsafe { Self::over(base.cast(), slots) }
    }

    /// A ring of `slots` slots that lie at `base`.
    ///
    /// # Safety
    /// The address is a mapping of `slots * SLOT_LEN` bytes, which only the ring and the kernel use, and which the ring
    /// unmaps.
    unsafe fn over(base: *mut u8, slots: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, slots, head: 0 })
    }

    fn slot_at(&self, at: usize) -> NonNull<u8> {
        debug_assert!(at < self.slots);
        // SAFETY: `at < slots` (for `head` by the invariant), so the offset is inside of the mapping.
        unsafe { self.base.add(at * SLOT_LEN) }
    }

    fn slot(&self) -> NonNull<u8> {
        self.slot_at(self.head)
    }

    fn status_at(&self, at: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with its status word, aligned to the slot's 2,048 bytes; both sides access it
        // atomically.
        unsafe { AtomicU32::from_ptr(self.slot_at(at).cast().as_ptr()) }
    }

    fn status(&self) -> &AtomicU32 {
        self.status_at(self.head)
    }

    /// Number of waiting frames, up to `max`.
    pub(crate) fn ready(&self, max: usize) -> usize {
        let waits = |n: &usize| {
            let at = (self.head + n) % self.slots;
            self.status_at(at).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
        };
        (0..max.min(self.slots)).take_while(waits).count()
    }

    /// The next received frame, if there is one.
    pub(crate) fn next(&self) -> Option<Slot<'_>> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot belongs to this process until it is released, which needs `&mut self` and so ends this
        // borrow.
        let bytes = unsafe { std::slice::from_raw_parts(self.slot().as_ptr(), SLOT_LEN) };
        // The header follows `struct tpacket2_hdr`.
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (len, captured) = (word(4) as usize, word(8) as usize);
        let frame_at = usize::from(half(12));
        let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            (if known { half(26) } else { 0x8100 }, half(24))
        });
        let place = if captured < len {
            if status & libc::TP_STATUS_COPY != 0 { FrameBytes::Socket } else { FrameBytes::Lost }
        } else {
            let header = frame_at.checked_sub(vnet::LEN).and_then(|at| bytes.get(at..)?.first_chunk());
            match (header, bytes.get(frame_at..).and_then(|b| b.get(..captured))) {
                (Some(header), Some(frame)) => FrameBytes::Ring(*header, frame),
                _ => FrameBytes::Lost,
            }
        };
        Some(Slot { len, vlan, place })
    }

    /// Returns the slot of [`Ring::next`] to the kernel and moves on.
    pub(crate) fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.head += 1;
        if self.head == self.slots {
            self.head = 0;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and no slot is borrowed any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.slots * SLOT_LEN) };
    }
}

/// A packet socket with virtio-net headers in both directions; the caller binds it.
pub(crate) fn vnet_socket() -> io::Result<std::os::fd::OwnedFd> {
    let socket = sys::packet_socket()?;
    sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const SLOTS: usize = 4;

    /// What the simulated kernel writes: the words of a slot, and its frame.
    #[derive(Clone, Debug)]
    struct Written {
        status: u32,
        len: u32,
        captured: u32,
        at: u16,
        tag: (u16, u16),
        bytes: Vec<u8>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(Written),
        Take(usize),
    }

    fn written() -> impl Strategy<Value = Written> {
        let regular = (40u16..100, 0usize..1500).prop_map(|(at, len)| (at, len as u32, len as u32, len));
        let nonsense = (any::<u16>(), 0u32..3000, 0u32..3000).prop_map(|(at, len, captured)| (at, len, captured, 0));
        let tags = prop_oneof![
            Just(0),
            Just(libc::TP_STATUS_VLAN_VALID),
            Just(libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID)
        ];
        (prop_oneof![3 => regular, 1 => nonsense], tags, any::<bool>(), any::<(u16, u16)>(), any::<u8>()).prop_map(
            |((at, len, captured, bytes), tags, copied, tag, first)| Written {
                status: libc::TP_STATUS_USER | tags | if copied { libc::TP_STATUS_COPY } else { 0 },
                len,
                captured,
                at,
                tag,
                bytes: (0..bytes).map(|i| first.wrapping_add(i as u8)).collect(),
            },
        )
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![written().prop_map(Step::Write), (0usize..4).prop_map(Step::Take)];
        prop::collection::vec(step, 1..if cfg!(miri) { 12 } else { 60 })
    }

    fn ring() -> Ring {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let (protection, len) = (ProtFlags::READ | ProtFlags::WRITE, SLOTS * SLOT_LEN);
        // SAFETY: a new mapping overlaps no other memory; only the ring uses it, and it has the ring's length.
        unsafe {
            let base = mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE).expect("memory");
            Ring::over(base.cast(), SLOTS).expect("memory")
        }
    }

    /// Fills slot `at` if it belongs to the kernel.
    fn write(ring: &Ring, at: usize, written: &Written) -> bool {
        if ring.status_at(at).load(Ordering::Acquire) != libc::TP_STATUS_KERNEL {
            return false;
        }
        let mut slot = vec![0u8; SLOT_LEN];
        let (tci, protocol) = written.tag;
        for (at, half) in [(12, written.at), (24, tci), (26, protocol)] {
            slot[at..at + 2].copy_from_slice(&half.to_ne_bytes());
        }
        slot[4..8].copy_from_slice(&written.len.to_ne_bytes());
        slot[8..12].copy_from_slice(&written.captured.to_ne_bytes());
        if let Some(place) = slot.get_mut(usize::from(written.at)..).and_then(|s| s.get_mut(..written.bytes.len())) {
            place.copy_from_slice(&written.bytes);
        }
        // SAFETY: the slot belongs to the simulated kernel and is inside of the mapping; its first word is not written.
        unsafe { ring.slot_at(at).add(4).copy_from_nonoverlapping(NonNull::from(&mut slot[4..]).cast(), SLOT_LEN - 4) };
        ring.status_at(at).store(written.status, Ordering::Release);
        true
    }

    tally::proptest! {
        /// Frames are read in the order in which the kernel wrote them; whatever the kernel writes, no byte beyond the
        /// slot is read.
        #[test]
        fn frames_are_read_as_written(steps in steps()) {
            let mut ring = ring();
            let (mut queue, mut at) = (VecDeque::new(), 0);
            for step in steps.into_iter().chain([Step::Take(SLOTS)]) {
                match step {
                    Step::Write(written) => {
                        prop_assert_eq!(write(&ring, at, &written), queue.len() < SLOTS);
                        if queue.len() < SLOTS {
                            queue.push_back(written);
                            at = (at + 1) % SLOTS;
                        }
                    }
                    Step::Take(n) => {
                        prop_assert_eq!(ring.ready(n), n.min(queue.len()));
                        for _ in 0..n {
                            let Some(slot) = ring.next() else { break };
                            let written: Written = queue.pop_front().expect("no more than were written");
                            prop_assert_eq!(slot.len, written.len as usize);
                            let has_tag = written.status & libc::TP_STATUS_VLAN_VALID != 0;
                            let known = written.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                            let protocol = if known { written.tag.1 } else { 0x8100 };
                            prop_assert_eq!(slot.vlan, has_tag.then_some((protocol, written.tag.0)));
                            let whole = usize::from(written.at) >= vnet::LEN
                                && usize::from(written.at) + written.captured as usize <= SLOT_LEN;
                            match slot.place {
                                FrameBytes::Ring(_, frame) => {
                                    prop_assert!(whole && written.captured >= written.len);
                                    prop_assert_eq!(frame.len(), written.captured as usize);
                                    prop_assert!(written.bytes.is_empty() || frame == written.bytes);
                                }
                                FrameBytes::Socket => prop_assert!(
                                    written.captured < written.len && written.status & libc::TP_STATUS_COPY != 0
                                ),
                                FrameBytes::Lost => prop_assert!(
                                    !whole || written.captured < written.len && written.status & libc::TP_STATUS_COPY == 0
                                ),
                            }
                            ring.release();
                        }
                    }
                }
            }
            prop_assert!(queue.is_empty() && ring.next().is_none());
        }
    }
}
