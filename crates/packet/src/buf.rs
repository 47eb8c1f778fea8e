//! A frame in memory: its bytes, room in front of them for headers to be pushed, and its offload marks.
//!
//! The memory is the packet's own, or a device lent it ([`Packet::lend`]): then the frame lies where the device put it,
//! and another port of the device's kind may send it from there. What does not fit there any more is copied to memory of
//! the packet's own.
//!
//! Invariants: `start <= memory.len()`; the frame is `memory[start..]`. Offsets in [`Checksum::Partial`] are relative to
//! the first byte of the frame, and pushing or popping bytes in front moves them along.

use std::ops::{Deref, DerefMut};

use crate::lent::{Lent, Memory};

/// Bytes kept free in front of a new frame, enough for two VLAN tags, three MPLS labels and an outer tunnel header.
pub const HEADROOM: usize = 128;

/// Frames moved together through the datapath at most.
pub const BATCH_MAX: usize = 32;

/// Frames that move together.
pub type Batch = Vec<Packet>;

/// What is known of, or still to be done to, the checksum of the innermost TCP, UDP or SCTP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Nothing is known: the bytes are what the wire said.
    #[default]
    Unknown,
    /// Verified: the checksum in the bytes is right.
    Good,
    /// Unfinished: the checksum field holds the pseudo-header sum only, and whoever sends the frame to a wire must
    /// store the ones' complement sum of everything from `start` to the end at `start + offset`
    /// (`VIRTIO_NET_HDR_F_NEEDS_CSUM`, virtio 1.2 section 5.1.6).
    Partial {
        /// Where summing starts, in bytes from the start of the frame.
        start: u16,
        /// Where the result goes, in bytes from `start`.
        offset: u16,
    },
}

/// How a large frame is to be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of one flow (`UDP_SEGMENT`).
    UdpL4,
}

/// The frame stands for several: its payload is to be cut into segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gso {
    /// What kind of segments.
    pub kind: GsoKind,
    /// Payload bytes a segment, never 0.
    pub size: u16,
    /// The TCP sender set the congestion-window-reduced mark: only the first segment carries it.
    pub ecn: bool,
}

/// Work left to whoever sends the frame out of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Set if the frame is larger than the wire's MTU and to be segmented.
    pub gso: Option<Gso>,
}

/// One Ethernet frame, without its frame check sequence, or a packet that has no Ethernet header for a while.
///
/// It is a pointer to what it consists of ([`Parts`], which it derefs to), so that batches move at little cost.
#[derive(Clone, Debug, Default)]
pub struct Packet(Box<Parts>);

/// What a [`Packet`] consists of, in a line of memory.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub struct Parts {
    memory: Memory,
    start: usize,
    /// Of a packet without an Ethernet header, the Ethernet type of what it begins with; `None` of a frame.
    pub bare: Option<u16>,
    /// Work left to the sender.
    pub offload: Offload,
    /// What goes on with a packet that comes back into a datapath's flows; 0 of one that came in.
    pub recirc_id: u32,
    /// The hash that a datapath computed of it; 0 if none was.
    pub dp_hash: u32,
    /// How often it came back.
    pub passes: u8,
    /// VLAN tags pushed less those popped, since a key was made of it.
    pub tags: i8,
}

const _: () = assert!(size_of::<Parts>() == 64);

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.data() == other.data() && self.bare == other.bare && self.offload == other.offload
    }
}

impl Deref for Packet {
    type Target = Parts;

    #[inline]
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Packet {
    #[inline]
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

/// Copies `from` to `to`, which is as long. Frames of the least length, which are many, are copied without a call.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    const HALF: usize = 32;
    if from.len() <= 2 * HALF
        && let (Some(first), Some(last)) = (from.first_chunk::<HALF>(), from.last_chunk::<HALF>())
        && to.len() == from.len()
    {
        if let Some(to) = to.first_chunk_mut() {
            *to = *first;
        }
        if let Some(to) = to.last_chunk_mut() {
            *to = *last;
        }
    } else {
        to.copy_from_slice(from);
    }
}

impl Packet {
    /// A copy of `frame` with [`HEADROOM`] in front.
    #[inline]
    pub fn from_slice(frame: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEADROOM + frame.len());
        bytes.resize(HEADROOM, 0);
        bytes.extend_from_slice(frame);
        Self(Box::new(Parts { memory: Memory::Own(bytes), start: HEADROOM, ..Parts::default() }))
    }

    /// Takes over a buffer whose frame begins at `start`; an error gives the buffer back if `start` is past its end.
    pub fn from_vec(bytes: Vec<u8>, start: usize) -> Result<Self, Vec<u8>> {
        if start > bytes.len() {
            return Err(bytes);
        }
        Ok(Self(Box::new(Parts { memory: Memory::Own(bytes), start, ..Parts::default() })))
    }

    /// The memory of the packet, headroom included, to be used for another; a copy of what was lent.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.memory.into_vec()
    }

    /// Empties the packet for reuse, and has it lie in `memory` from now on, the frame from `start` to the end of it.
    ///
    /// # Panics
    /// If `start` is past the end.
    #[inline]
    pub fn lend(&mut self, memory: Lent, start: usize) {
        assert!(start <= memory.bytes().len(), "a frame begins in its memory");
        self.0.memory = Memory::Lent(memory);
        self.forget(start);
    }

    /// The memory that the packet lies in, if it was lent: from where the lender's began to the end of the frame.
    #[inline]
    pub fn lent(&self) -> Option<&[u8]> {
        if let Memory::Lent(lent) = &self.0.memory { Some(lent.bytes()) } else { None }
    }

    /// Takes the memory that was lent, if it was, out of the packet, which is empty then.
    #[inline]
    pub fn take_lent(&mut self) -> Option<Lent> {
        if !matches!(self.0.memory, Memory::Lent(_)) {
            return None;
        }
        self.0.start = 0;
        match std::mem::take(&mut self.0.memory) {
            Memory::Lent(lent) => Some(lent),
            Memory::Own(_) => None,
        }
    }

    /// Bytes of the packet's own memory in use, headroom included; `None` if it has none of its own.
    #[inline]
    pub fn own_len(&self) -> Option<usize> {
        match &self.0.memory {
            Memory::Own(bytes) if bytes.capacity() > 0 => Some(bytes.len()),
            _ => None,
        }
    }

    /// Empties the packet for reuse, keeping its memory, and fills it with a copy of `frame`.
    #[inline]
    pub fn refill(&mut self, frame: &[u8]) {
        let bytes = self.0.memory.emptied();
        // Whatever stands in the headroom is overwritten before it is part of a frame.
        if let Some(room) = bytes.get_mut(HEADROOM..HEADROOM + frame.len()) {
            copy(room, frame);
            bytes.truncate(HEADROOM + frame.len());
        } else {
            bytes.resize(HEADROOM, 0);
            bytes.extend_from_slice(frame);
        }
        self.forget(HEADROOM);
    }

    /// Forgets all that was known of a frame that was there before; the new one begins at `start`.
    #[inline]
    fn forget(&mut self, start: usize) {
        let parts = &mut *self.0;
        parts.start = start;
        parts.bare = None;
        parts.offload = Offload::default();
        (parts.recirc_id, parts.dp_hash, parts.passes, parts.tags) = (0, 0, 0, 0);
    }

    /// Empties the packet for reuse and returns its memory, which is [`HEADROOM`] bytes long (what stands in them is nobody's)
    /// and is to stay at least as long: what comes behind them is the frame.
    pub fn emptied(&mut self) -> &mut Vec<u8> {
        self.forget(HEADROOM);
        let bytes = self.0.memory.emptied();
        bytes.resize(HEADROOM, 0);
        bytes
    }

    /// Takes over what is known of `other` beside its bytes.
    #[inline]
    pub fn take_marks_of(&mut self, other: &Self) {
        let (parts, other) = (&mut *self.0, &*other.0);
        (parts.bare, parts.offload) = (other.bare, other.offload);
        (parts.recirc_id, parts.dp_hash) = (other.recirc_id, other.dp_hash);
        (parts.passes, parts.tags) = (other.passes, other.tags);
    }

    /// The frame.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.memory.bytes()[self.start..]
    }

    /// The frame, of a packet that comes in: what a datapath noted at it is forgotten, as a device may hand over what another
    /// one sent.
    #[inline]
    pub fn fresh(&mut self) -> &[u8] {
        let parts = &mut *self.0;
        (parts.recirc_id, parts.tags) = (0, 0);
        &parts.memory.bytes()[parts.start..]
    }

    /// The frame, to be written.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let parts = &mut *self.0;
        &mut parts.memory.bytes_mut()[parts.start..]
    }

    /// Bytes of the frame.
    #[inline]
    pub fn len(&self) -> usize {
        self.memory.bytes().len() - self.start
    }

    /// Whether the frame has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes free in front of the frame.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Inserts `n` zero bytes `at` bytes into the frame by moving what is before them to the front, and returns them
    /// to be filled. `at` beyond the end counts as the end.
    pub fn insert(&mut self, at: usize, n: usize) -> &mut [u8] {
        let at = at.min(self.len());
        let parts = &mut *self.0;
        if n > parts.start {
            let more = n - parts.start + HEADROOM;
            parts.memory.own().splice(0..0, std::iter::repeat_n(0, more));
            parts.start += more;
        }
        let old = parts.start;
        parts.start -= n;
        parts.shift_offload(at, n as isize);
        let bytes = parts.memory.bytes_mut();
        bytes.copy_within(old..old + at, parts.start);
        let hole = &mut bytes[parts.start + at..parts.start + at + n];
        hole.fill(0);
        hole
    }

    /// Removes `n` bytes `at` bytes into the frame by moving what is before them back. Returns whether the frame was
    /// long enough; if not, nothing changes.
    pub fn remove(&mut self, at: usize, n: usize) -> bool {
        if at.checked_add(n).is_none_or(|end| end > self.len()) {
            return false;
        }
        let parts = &mut *self.0;
        parts.memory.bytes_mut().copy_within(parts.start..parts.start + at, parts.start + n);
        parts.start += n;
        parts.shift_offload(at, -(n as isize));
        true
    }

    /// Cuts the frame to at most `len` bytes. What is left of a cut frame has no offload marks.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            let end = self.start + len;
            self.memory.truncate(end);
            self.offload = Offload::default();
        }
    }

    /// Appends bytes at the end of the frame.
    pub fn append(&mut self, tail: &[u8]) {
        self.memory.own().extend_from_slice(tail);
    }
}

impl Parts {
    fn shift_offload(&mut self, at: usize, by: isize) {
        if let Checksum::Partial { start, offset } = self.offload.checksum
            && usize::from(start) >= at
        {
            let start = start as isize + by;
            self.offload.checksum = match u16::try_from(start) {
                Ok(start) => Checksum::Partial { start, offset },
                Err(_) => Checksum::Unknown,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insert_and_remove_move_the_front() {
        let mut p = Packet::from_slice(&[1, 2, 3, 4, 5, 6]);
        p.offload.checksum = Checksum::Partial { start: 4, offset: 1 };
        p.insert(2, 3).copy_from_slice(&[7, 8, 9]);
        assert_eq!(p.data(), [1, 2, 7, 8, 9, 3, 4, 5, 6]);
        assert_eq!(p.offload.checksum, Checksum::Partial { start: 7, offset: 1 });
        assert!(p.remove(2, 3));
        assert_eq!(p.data(), [1, 2, 3, 4, 5, 6]);
        assert!(!p.remove(5, 2));
        assert!(!p.remove(usize::MAX, 2));
    }

    #[test]
    fn insert_beyond_the_headroom_grows() {
        let mut p = Packet::from_slice(&[1, 2]);
        p.insert(0, HEADROOM);
        p.insert(0, 5).copy_from_slice(&[9; 5]);
        assert_eq!(p.len(), HEADROOM + 7);
        assert_eq!(p.data()[..6], [9, 9, 9, 9, 9, 0]);
        assert_eq!(p.data()[HEADROOM + 5..], [1, 2]);
    }

    #[test]
    fn an_emptied_packet_is_as_new() {
        let mut p = Packet::from_slice(&[7; 60]);
        p.offload.checksum = Checksum::Good;
        (p.bare, p.recirc_id, p.dp_hash, p.passes, p.tags) = (Some(1), 2, 3, 4, 5);
        p.insert(0, 4);
        p.emptied().extend_from_slice(&[1, 2, 3]);
        assert_eq!(p, Packet::from_slice(&[1, 2, 3]));
        assert_eq!((p.headroom(), p.recirc_id, p.dp_hash, p.passes, p.tags), (HEADROOM, 0, 0, 0, 0));
        let mut short = Packet::default();
        assert_eq!(short.emptied().len(), HEADROOM);
    }

    #[test]
    fn truncating_forgets_the_marks() {
        let mut p = Packet::from_slice(&[0; 100]);
        p.offload.checksum = Checksum::Good;
        p.truncate(200);
        assert_eq!(p.offload.checksum, Checksum::Good);
        p.truncate(10);
        assert_eq!((p.len(), p.offload.checksum), (10, Checksum::Unknown));
    }
}
