//! Memory that is shared with the kernel: the rings of a socket, and the umem with the frames.
//!
//! A ring is a mapping of the socket with two indices, a word of flags and the slots, at offsets from the kernel.
//! The indices are read with acquire and written with release ordering, so that neither side sees the other's index
//! before the entries that it covers. [`crate::index`] decides which side may access which slot, and
//! [`crate::frames`] which frame; this module only ensures that slots and frames are inside of their mappings.
//!
//! Mappings of rings end before their socket is closed: a mapping keeps the socket, and with it the queue, occupied.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use packet::Lent;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::net::xdp::XdpRingOffset;

use crate::frames::Frame;
use crate::index::{Consumer, Producer};
use crate::mapping::Mapping;

/// Length of a frame of the umem in bytes: one with 1,500 bytes of payload in one piece, behind the 256 bytes that
/// the kernel keeps free in front of received ones. Larger ones take several frames.
pub(crate) const FRAME_LEN: usize = 2048;

/// The content of a slot.
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

/// One of a socket's rings: the offset of its mapping (`XDP_PGOFF_`, `XDP_UMEM_PGOFF_`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum RingKind {
    Rx = rustix::net::xdp::XDP_PGOFF_RX_RING,
    Tx = rustix::net::xdp::XDP_PGOFF_TX_RING,
    Fill = rustix::net::xdp::XDP_UMEM_PGOFF_FILL_RING,
    Completion = rustix::net::xdp::XDP_UMEM_PGOFF_COMPLETION_RING,
}

/// A mapped ring. Invariant: the offsets are aligned for their types, and inside of the mapping.
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
        Ok(Self { mapping: Mapping::new(socket, kind as u64, len)?, offsets, size, entries: PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is aligned and inside of the mapping, which lives as long as the borrow and begins at a page;
        // both sides access the word atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.base().add(offset).cast().as_ptr()) }
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
        unsafe { self.mapping.base().add(self.offsets.slots).cast::<T>().add(slot).as_ptr() }
    }

    /// `XDP_RING_NEED_WAKEUP`: whether the kernel waits for a system call. True for kernels without this flag.
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

    /// Reads the kernel's index. Returns the number of entries that it took since.
    pub(crate) fn refresh(&mut self) -> u32 {
        self.index.update(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Number of free slots.
    pub(crate) fn free_slots(&self) -> u32 {
        self.index.free_slots()
    }

    /// Entries that the kernel has not taken yet.
    pub(crate) fn waiting(&self) -> u32 {
        self.index.waiting()
    }

    /// Puts an entry in; returns false if the ring is full.
    pub(crate) fn put(&mut self, entry: T) -> bool {
        let Some(slot) = self.index.put() else { return false };
        // SAFETY: the slot is inside of the mapping and aligned, and ours to write until it is published.
        unsafe { self.ring.slot(slot).write_volatile(entry) };
        true
    }

    /// Publishes the entries put in to the kernel.
    pub(crate) fn publish(&mut self) {
        if let Some(index) = self.index.publish() {
            self.ring.producer().store(index, Ordering::Release);
        }
    }

    /// Returns true if the kernel waits for a system call to read the ring.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the process takes entries out of: receive, and completion.
#[derive(Debug)]
pub(crate) struct ConsumerRing<T> {
    ring: Ring<T>,
    index: Consumer,
}

impl<T: Entry> ConsumerRing<T> {
    /// Maps a ring of `size` slots, a power of two.
    pub(crate) fn new(socket: BorrowedFd<'_>, kind: RingKind, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(socket, kind, at, size)?;
        let index = Consumer::new(size, ring.consumer().load(Ordering::Relaxed));
        Ok(Self { ring, index })
    }

    /// Looks at how far the kernel is.
    pub(crate) fn refresh(&mut self) {
        self.index.update(self.ring.producer().load(Ordering::Acquire));
    }

    /// Returns the entry `ahead` of the next one, if it exists.
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

    /// Returns the slots of taken entries to the kernel.
    pub(crate) fn release(&mut self) {
        if let Some(index) = self.index.release() {
            self.ring.consumer().store(index, Ordering::Release);
        }
    }
}

/// Memory of frames, which the kernel reads and writes too. It exists until the process ends, as packets may use it
/// after the last socket is gone; [`crate::arena`] reuses it.
#[derive(Debug)]
pub(crate) struct Umem {
    number: u32,
    frames: u32,
    base: NonNull<u8>,
}

// SAFETY: the address is only used on behalf of the owner of a frame, on any thread.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// Memory for `n` frames, at a page's boundary, and the rights to them.
    ///
    /// # Safety
    /// No other umem has `number`, which identifies frames.
    pub(crate) unsafe fn new(number: u32, n: u32) -> io::Result<(Self, Vec<Frame>)> {
        let len = n as usize * FRAME_LEN;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: the memory is new, so no other value owns it.
        let frames = (0..n).rev().map(|frame| unsafe { Frame::new(number, frame) }).collect();
        Ok((Self { number, frames: n, base }, frames))
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Frames in it.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// Its address and length in bytes, for the kernel.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.base.as_ptr() as u64, u64::from(self.frames) * FRAME_LEN as u64)
    }

    /// The memory of a frame, for as long as the right to it is borrowed.
    ///
    /// # Panics
    /// If it is a frame of another umem.
    pub(crate) fn bytes<'a>(&self, frame: &'a mut Frame) -> &'a mut [u8] {
        let base = self.base_of(frame);
        // SAFETY: the bytes are inside of the mapping, which is never unmapped and is initialized (the kernel filled
        // it with zeros). Only one value owns the frame, and it is borrowed for this slice, so the process has no
        // other reference; and the kernel does not access the frame, because while a descriptor lends it to the
        // kernel, `Lending` owns it.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), FRAME_LEN) }
    }

    /// The memory of a frame up to `end` bytes, at most all, for a packet to lie in.
    ///
    /// # Panics
    /// If it is a frame of another umem.
    pub(crate) fn lend(&self, frame: Frame, end: usize) -> Lent {
        let base = self.base_of(&frame);
        // SAFETY: as in `bytes`, except that the ownership of the frame is given up for the slice. It is only created
        // again from the slice itself (`close`), and a `Lent` only gives out borrows of it.
        Lent::new(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), end.min(FRAME_LEN)) })
    }

    /// Returns the ownership of a packet's frame; returns memory outside of this umem as an error.
    pub(crate) fn close(&self, lent: Lent) -> Result<Frame, Lent> {
        let Some(at) = self.offset(lent.bytes()) else { return Err(lent) };
        lent.forget();
        // SAFETY: `lend` made all slices of this umem in a `Lent`, from a frame's beginning, in exchange for the
        // ownership of that frame; there was one such slice, and it is consumed here.
        Ok(unsafe { Frame::new(self.number, (at / FRAME_LEN) as u32) })
    }

    /// Returns true if `bytes` begin in this umem.
    pub(crate) fn has(&self, bytes: &[u8]) -> bool {
        self.offset(bytes).is_some()
    }

    /// Returns the offset of `bytes`, if they begin in this umem.
    fn offset(&self, bytes: &[u8]) -> Option<usize> {
        let at = (bytes.as_ptr() as usize).checked_sub(self.base.as_ptr() as usize)?;
        (at < self.frames as usize * FRAME_LEN).then_some(at)
    }

    fn base_of(&self, frame: &Frame) -> NonNull<u8> {
        assert!(frame.umem() == self.number && frame.number() < self.frames, "a frame of this umem");
        // SAFETY: this is inside of the mapping.
        unsafe { self.base.add(frame.number() as usize * FRAME_LEN) }
    }

    /// Bytes that the kernel would read, for tests that simulate it; `None` beyond a frame's end or the umem's.
    ///
    /// # Safety
    /// The frame must not be written while the slice lives.
    #[cfg(test)]
    pub(crate) unsafe fn read(&self, address: u64, len: u32) -> Option<&[u8]> {
        let (address, len) = (usize::try_from(address).ok()?, len as usize);
        if address >= self.frames as usize * FRAME_LEN || address % FRAME_LEN + len > FRAME_LEN {
            return None;
        }
        // SAFETY: the bytes are inside of one frame of the mapping, which is initialized and never unmapped; the
        // caller guarantees that the frame is not written.
        Some(unsafe { std::slice::from_raw_parts(self.base.add(address).as_ptr(), len) })
    }

    /// Writes like the kernel, for tests that simulate it.
    ///
    /// # Safety
    /// There must be no other access to the frame.
    #[cfg(test)]
    pub(crate) unsafe fn write(&self, address: u64, bytes: &[u8]) {
        let at = address as usize;
        assert!(
            at % FRAME_LEN + bytes.len() <= FRAME_LEN && at < self.frames as usize * FRAME_LEN,
            "inside of a frame"
        );
        // SAFETY: the bytes are inside of one frame of the mapping, and the caller guarantees that there is no other
        // access.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at).as_ptr(), bytes.len()) };
    }
}

/// The frame that an address of the umem is in.
pub(crate) fn frame_of(address: u64) -> u32 {
    u32::try_from(address / FRAME_LEN as u64).unwrap_or(u32::MAX)
}

/// Where in its frame an address of the umem is.
pub(crate) fn place_in_frame(address: u64) -> usize {
    (address % FRAME_LEN as u64) as usize
}

/// The address of a frame in the umem.
pub(crate) fn address_of(frame: u32) -> u64 {
    u64::from(frame) * FRAME_LEN as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem(number: u32) -> (Umem, Vec<Frame>) {
        // SAFETY: the tests have numbers of their own.
        unsafe { Umem::new(number, 4) }.expect("memory")
    }

    #[test]
    fn a_lent_frame_is_returned_once() {
        let ((umem, mut frames), (other, _)) = (umem(1000), umem(1001));
        assert_eq!(frames.iter().map(Frame::number).collect::<Vec<_>>(), [3, 2, 1, 0]);
        let mut frame = frames.remove(1);
        umem.bytes(&mut frame)[..5].copy_from_slice(b"frame");
        assert_eq!(umem.bytes(&mut frame).len(), FRAME_LEN);
        let lent = umem.lend(frame, 3);
        assert!(lent.bytes() == b"fra" && umem.has(lent.bytes()) && !other.has(lent.bytes()) && !umem.has(b"fra"));
        let lent = other.close(lent).expect_err("of the other umem");
        let mut frame = umem.close(lent).expect("of this umem");
        assert_eq!((frame.number(), frame.umem(), &umem.bytes(&mut frame)[..5]), (2, 1000, &b"frame"[..]));
        assert_eq!((frame_of(address_of(3) + 100), frame_of(u64::MAX)), (3, u32::MAX));
        assert_eq!(place_in_frame(address_of(3) + 100), 100);
    }

    #[test]
    #[should_panic(expected = "a frame of this umem")]
    fn frames_of_another_umem_stay_closed() {
        let ((umem, _), (_, mut others)) = (umem(1002), umem(1003));
        umem.bytes(&mut others[0]);
    }
}
