//! Memory that is shared with the kernel: the rings of a socket, and the umem with the frames.
//!
//! A ring is a mapping of the socket with two indices, a word of flags and the slots, at offsets that the kernel tells.
//! The indices are read with acquire and written with release ordering, so that neither side sees the other's index
//! before the entries that it stands for. Who may touch which slot is [`crate::index`]'s to say, and which frame,
//! [`crate::frames`]'; here is only what no arithmetic can go beyond: slots and frames are inside of their mappings.
//!
//! Mappings end before their socket is closed: a mapping keeps the socket, and with it the queue, occupied.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::XdpRingOffset;

use crate::index::{Consumer, Producer};

/// Bytes of a frame of the umem: one of 1,500 bytes payload in one piece, with the 256 bytes that the kernel keeps free in
/// front of received ones. Larger ones take several frames.
pub(crate) const FRAME_LEN: usize = 2048;

/// Memory of our address space, unmapped at the end.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is memory and belongs to this value alone (beside the kernel), so it may move to another thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives no access to the memory; those who have one say by themselves what is safe.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(base: *mut std::ffi::c_void, len: usize) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is a mapping that `mmap` gave, and whoever had access to it has it by a borrow of its owner.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// What stands in slots.
pub(crate) trait Entry: Copy + sealed::Plain {}

mod sealed {
    /// # Safety
    /// Any bytes are a valid value, and there is no padding.
    pub(crate) unsafe trait Plain {}
    // SAFETY: an integer.
    unsafe impl Plain for u64 {}
    // SAFETY: an integer of 64 bits and two of 32: 16 bytes without a gap.
    unsafe impl Plain for super::Descriptor {}
}

impl Entry for u64 {}
impl Entry for Descriptor {}

/// `struct xdp_desc`: a piece of a frame in the umem.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Bytes from the start of the umem.
    pub address: u64,
    /// Bytes of the piece.
    pub len: u32,
    /// [`Descriptor::CONTINUED`], or 0.
    pub options: u32,
}

impl Descriptor {
    /// `XDP_PKT_CONTD`: the next descriptor is of the same frame.
    pub(crate) const CONTINUED: u32 = 1;

    /// Whether another piece follows.
    pub(crate) fn is_continued(self) -> bool {
        self.options & Self::CONTINUED != 0
    }
}

/// Which of a socket's rings: where its mapping begins (`XDP_PGOFF_`, `XDP_UMEM_PGOFF_`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum RingKind {
    Rx = rustix::net::xdp::XDP_PGOFF_RX_RING,
    Tx = rustix::net::xdp::XDP_PGOFF_TX_RING,
    Fill = rustix::net::xdp::XDP_UMEM_PGOFF_FILL_RING,
    Completion = rustix::net::xdp::XDP_UMEM_PGOFF_COMPLETION_RING,
}

/// A ring, mapped. Invariant: the offsets are aligned for what stands there, and that is inside of the mapping.
#[derive(Debug)]
struct Ring<T> {
    mapping: Mapping,
    offsets: Offsets,
    size: u32,
    entries: PhantomData<T>,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    slots: usize,
}

impl<T: Entry> Ring<T> {
    /// Maps a ring of `size` slots.
    fn new(socket: BorrowedFd<'_>, kind: RingKind, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        let nonsense = || io::Error::other("the kernel tells offsets of rings that cannot be");
        let slots_len = size as usize * size_of::<T>();
        let slots = usize::try_from(at.desc).ok().filter(|n| n.is_multiple_of(align_of::<T>())).ok_or_else(nonsense)?;
        let len = slots.checked_add(slots_len).ok_or_else(nonsense)?;
        let word = |offset: u64| {
            let offset = usize::try_from(offset).ok().filter(|n| n.is_multiple_of(align_of::<AtomicU32>()));
            offset
                .filter(|n| n.checked_add(size_of::<AtomicU32>()).is_some_and(|end| end <= slots))
                .ok_or_else(nonsense)
        };
        let offsets = Offsets {
            producer: word(at.producer)?,
            consumer: word(at.consumer)?,
            flags: at.flags.map(word).transpose()?,
            slots,
        };
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, socket, kind as u64) }?;
        Ok(Self { mapping: Mapping::new(base, len)?, offsets, size, entries: PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is aligned and inside of the mapping, which lives as long as the borrow and begins at a page;
        // both sides access the word atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.base.add(offset).cast().as_ptr()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn slot(&self, slot: u32) -> *mut T {
        let slot = (slot & (self.size - 1)) as usize;
        // SAFETY: the slot is below `size`, a power of two, and the mapping reaches to the end of the last one.
        unsafe { self.mapping.base.add(self.offsets.slots).cast::<T>().add(slot).as_ptr() }
    }

    /// `XDP_RING_NEED_WAKEUP`: whether the kernel waits for a system call. A kernel that cannot say so does.
    fn needs_wakeup(&self) -> bool {
        self.offsets.flags.is_none_or(|at| self.word(at).load(Ordering::Relaxed) & 1 != 0)
    }
}

/// A ring that we put entries in: fill, and transmit.
#[derive(Debug)]
pub(crate) struct Putting<T> {
    ring: Ring<T>,
    index: Producer,
}

impl<T: Entry> Putting<T> {
    /// Maps a ring of `size` slots, a power of two.
    pub(crate) fn new(socket: BorrowedFd<'_>, kind: RingKind, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(socket, kind, at, size)?;
        let index = Producer::new(size, ring.producer().load(Ordering::Relaxed));
        Ok(Self { ring, index })
    }

    /// Looks at how far the kernel is. Returns how many entries it took since.
    pub(crate) fn look(&mut self) -> u32 {
        self.index.saw(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Entries for which there is room.
    pub(crate) fn room(&self) -> u32 {
        self.index.room()
    }

    /// Entries that the kernel did not take yet.
    pub(crate) fn waiting(&self) -> u32 {
        self.index.waiting()
    }

    /// Puts an entry in; returns whether there was room.
    pub(crate) fn put(&mut self, entry: T) -> bool {
        let Some(slot) = self.index.put() else { return false };
        // SAFETY: the slot is inside of the mapping and aligned, and ours to write until it is published.
        unsafe { self.ring.slot(slot).write_volatile(entry) };
        true
    }

    /// Shows the kernel what was put in.
    pub(crate) fn publish(&mut self) {
        if let Some(index) = self.index.publish() {
            self.ring.producer().store(index, Ordering::Release);
        }
    }

    /// Whether the kernel waits for a system call to look at the ring.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that we take entries out of: receive, and completion.
#[derive(Debug)]
pub(crate) struct Taking<T> {
    ring: Ring<T>,
    index: Consumer,
}

impl<T: Entry> Taking<T> {
    /// Maps a ring of `size` slots, a power of two.
    pub(crate) fn new(socket: BorrowedFd<'_>, kind: RingKind, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(socket, kind, at, size)?;
        let index = Consumer::new(size, ring.consumer().load(Ordering::Relaxed));
        Ok(Self { ring, index })
    }

    /// Looks at how far the kernel is.
    pub(crate) fn look(&mut self) {
        self.index.saw(self.ring.producer().load(Ordering::Acquire));
    }

    /// The entry `ahead` of the next one, if it is there.
    pub(crate) fn peek(&self, ahead: u32) -> Option<T> {
        let slot = self.index.peek(ahead)?;
        // SAFETY: the slot is inside of the mapping and aligned, ours to read until it is released, and any bytes are a
        // valid entry.
        Some(unsafe { self.ring.slot(slot).read_volatile() })
    }

    /// Takes `n` entries out.
    pub(crate) fn advance(&mut self, n: u32) {
        self.index.advance(n);
    }

    /// Gives the kernel the slots of what was taken.
    pub(crate) fn release(&mut self) {
        if let Some(index) = self.index.release() {
            self.ring.consumer().store(index, Ordering::Release);
        }
    }
}

/// Frames in memory of our own, which the kernel reads and writes too.
#[derive(Debug)]
pub(crate) struct Umem(Mapping);

impl Umem {
    /// Memory for `frames` frames, at a page's boundary.
    pub(crate) fn new(frames: u32) -> io::Result<Self> {
        let len = frames as usize * FRAME_LEN;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        Ok(Self(Mapping::new(base, len)?))
    }

    /// Where it begins, and its bytes, for the kernel.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.0.base.as_ptr() as u64, self.0.len as u64)
    }

    /// `len` bytes at `address`. `None` if they are not inside of one frame.
    ///
    /// # Safety
    /// Nobody may write to the frame while the slice lives: neither the kernel, to which no descriptor in a ring may
    /// have lent it, nor [`Umem::fill`].
    pub(crate) unsafe fn bytes(&self, address: u64, len: u32) -> Option<&[u8]> {
        let (address, len) = (usize::try_from(address).ok()?, len as usize);
        let in_frame = address % FRAME_LEN;
        if address >= self.0.len || in_frame + len > FRAME_LEN {
            return None;
        }
        // SAFETY: the bytes are inside of one frame of the mapping, which is initialized (the kernel made it of zeros) and
        // lives as long as the borrow; the caller promises that nobody writes to it.
        Some(unsafe { std::slice::from_raw_parts(self.0.base.add(address).as_ptr(), len) })
    }

    /// Copies `bytes`, as many as fit a frame at most, to the beginning of a frame. Returns whether there is such a frame.
    ///
    /// # Safety
    /// Nobody else may access the frame: neither the kernel, to which no descriptor in a ring may have lent it, nor who
    /// has a slice of it.
    pub(crate) unsafe fn fill(&self, frame: u32, bytes: &[u8]) -> bool {
        let address = frame as usize * FRAME_LEN;
        if address >= self.0.len || bytes.len() > FRAME_LEN {
            return false;
        }
        // SAFETY: the frame is inside of the mapping, `bytes` are not, and the caller promises that the frame is ours.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.base.add(address).as_ptr(), bytes.len()) };
        true
    }
}

/// The frame that an address of the umem is in.
pub(crate) fn frame_of(address: u64) -> u32 {
    u32::try_from(address / FRAME_LEN as u64).unwrap_or(u32::MAX)
}

/// Where a frame begins in the umem.
pub(crate) fn address_of(frame: u32) -> u64 {
    u64::from(frame) * FRAME_LEN as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_inside_of_one_frame() {
        let umem = Umem::new(4).expect("memory");
        let end = address_of(4);
        // SAFETY: there is no kernel, and no slice is kept.
        unsafe {
            assert!(umem.fill(2, b"frame") && !umem.fill(4, b"") && !umem.fill(0, &[0; FRAME_LEN + 1]));
            assert_eq!(umem.bytes(address_of(2) + 1, 4), Some(&b"rame"[..]));
            assert_eq!(umem.bytes(end - 1, 1), Some(&[0][..]));
            for (address, len) in [(end, 0), (end - 1, 2), (0, FRAME_LEN as u32 + 1), (u64::MAX, 1), (2047, u32::MAX)] {
                assert_eq!(umem.bytes(address, len), None, "{len} at {address}");
            }
        }
        assert_eq!((frame_of(address_of(3) + 100), frame_of(u64::MAX)), (3, u32::MAX));
    }
}
