//! A packet in memory: its frame, headroom, offload flags and metadata.
//!
//! A packet owns its memory, or a device has lent it ([`Packet::lend`]). A lent frame stays where the device put it,
//! and another port of the same kind can send it from there. If the frame outgrows the lent memory, it moves to owned
//! memory.
//!
//! [`Packet::copy_metadata`] is the only function that copies fields other than the bytes. It names each field, so that
//! a new field needs a decision there about copies, segments and reused packets.
//!
//! Invariants: `start <= memory.len()`; the frame is `memory[start..]`. Offsets in [`Checksum::Partial`] are relative
//! to the first byte of the frame, and pushing or popping bytes in front adjusts them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::DpPort;

use crate::lent::{Lent, Memory};
use crate::metadata::{Connection, Metadata, Tunnel};

/// Bytes of headroom in a new packet, enough for the outer headers of a tunnel: Ethernet with two VLAN tags, IPv6, UDP,
/// and Geneve with 252 bytes of options, 330 bytes in all.
pub const HEADROOM: usize = 384;

/// Maximum number of packets in a batch of the datapath.
pub const BATCH_MAX: usize = 32;

/// A batch of packets.
pub type Batch = Vec<Packet>;

/// State of the checksum of the innermost TCP, UDP or SCTP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Not verified: the checksum field is as received.
    #[default]
    Unknown,
    /// Valid: verified, or computed here.
    Good,
    /// Partial: the checksum field holds only the pseudo-header sum. To complete it, store the complement of the ones'
    /// complement sum over `start..` at `start + offset` (`VIRTIO_NET_HDR_F_NEEDS_CSUM`, virtio 1.2 section 5.1.6).
    Partial {
        /// Where summing starts, in bytes from the start of the frame.
        start: u16,
        /// Where the result goes, in bytes from `start`.
        offset: u16,
    },
}

/// The protocol by which a GSO packet is segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of one flow (`UDP_SEGMENT`).
    UdpL4,
}

/// Generic segmentation offload: the packet's payload is to be split into segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gso {
    /// The kind of its segments.
    pub kind: GsoKind,
    /// Payload bytes of each segment, never 0.
    pub size: u16,
    /// The TCP sender set the CWR flag: only the first segment carries it.
    pub ecn: bool,
}

/// Offload flags: work left to the port that sends the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Set if the packet is larger than the MTU of the wire and needs segmentation.
    pub gso: Option<Gso>,
}

/// The outer headers that the datapath has pushed in front of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// The datapath's port of their tunnel.
    pub port: DpPort,
    /// The packet may be fragmented.
    pub may_fragment: bool,
}

/// State of [`Outer`] in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
enum OuterState {
    #[default]
    None = 0,
    Whole,
    MayFragment,
}

/// An Ethernet frame without its frame check sequence, or an L3 packet whose Ethernet header was popped.
///
/// A packet is a pointer to its [`Parts`], to which it dereferences, so that moving batches is cheap.
#[derive(Debug, Default)]
pub struct Packet(Box<Parts>);

/// The fields of a [`Packet`]: one cache line that all packets use, followed by metadata that few packets have.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Parts {
    memory: Memory,
    start: usize,
    /// The recirculation id; 0 for a received packet.
    pub recirc_id: u32,
    /// The hash computed by the datapath; 0 if none.
    pub dp_hash: u32,
    /// For an L3 packet, the Ethernet type of its first header; `None` for an Ethernet frame.
    pub l3_type: Option<u16>,
    /// Offload flags.
    pub offload: Offload,
    /// Number of recirculations.
    pub passes: u8,
    /// VLAN tags pushed minus VLAN tags popped since the key was extracted.
    pub tags: i8,
    /// Whether `metadata` is valid. If not, it may hold metadata of an earlier packet in this buffer.
    has_metadata: bool,
    /// Whether `outer_port` is valid, and whether the outer packet may be fragmented. One store resets these four.
    outer: OuterState,
    /// See [`Outer::port`].
    outer_port: DpPort,
    metadata: Metadata,
}

// Fields that all packets use lie in the first cache line.
const _: () = assert!(std::mem::offset_of!(Parts, outer_port) <= 60 && size_of::<Parts>() <= 192);

impl Clone for Packet {
    fn clone(&self) -> Self {
        let mut clone = Self(Box::new(Parts { memory: self.memory.clone(), start: self.start, ..Parts::default() }));
        clone.copy_metadata(self);
        clone
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.data() == other.data() && self.l3_type == other.l3_type && self.offload == other.offload
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

/// Copies `from` to `to`, which has the same length. Frames of minimum length are common and are copied inline.
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
    /// Copies `frame` behind [`HEADROOM`] bytes.
    #[inline]
    pub fn from_slice(frame: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEADROOM + frame.len());
        bytes.resize(HEADROOM, 0);
        bytes.extend_from_slice(frame);
        Self(Box::new(Parts { memory: Memory::Own(bytes), start: HEADROOM, ..Parts::default() }))
    }

    /// Takes ownership of a buffer whose frame begins at `start`; returns the buffer as an error if `start` is past its
    /// end.
    pub fn from_vec(bytes: Vec<u8>, start: usize) -> Result<Self, Vec<u8>> {
        if start > bytes.len() {
            return Err(bytes);
        }
        Ok(Self(Box::new(Parts { memory: Memory::Own(bytes), start, ..Parts::default() })))
    }

    /// The packet's memory, headroom included, for reuse. Lent memory is copied.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.memory.into_vec()
    }

    /// Empties the packet for reuse and moves it to `memory`; the frame is `memory[start..]`.
    ///
    /// # Panics
    /// If `start` is past the end.
    #[inline]
    pub fn lend(&mut self, memory: Lent, start: usize) {
        assert!(start <= memory.bytes().len(), "a frame begins in its memory");
        self.0.memory = Memory::Lent(memory);
        self.forget(start);
    }

    /// The lent memory, from the start of the lent slice to the end of the frame; `None` if the packet owns its memory.
    #[inline]
    pub fn lent(&self) -> Option<&[u8]> {
        if let Memory::Lent(lent) = &self.0.memory { Some(lent.bytes()) } else { None }
    }

    /// Takes the lent memory out of the packet and leaves the packet empty; `None` if the packet owns its memory.
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

    /// Capacity in bytes of the packet's owned memory, headroom included; `None` if its memory is lent.
    #[inline]
    pub fn own_capacity(&self) -> Option<usize> {
        match &self.0.memory {
            Memory::Own(bytes) if bytes.capacity() > 0 => Some(bytes.capacity()),
            _ => None,
        }
    }

    /// Empties the packet for reuse, keeping its memory, and fills it with a copy of `frame`.
    #[inline]
    pub fn refill(&mut self, frame: &[u8]) {
        let bytes = self.0.memory.emptied();
        // The headroom may keep stale bytes: it is overwritten before it becomes part of a frame.
        if bytes.len() == HEADROOM + frame.len()
            && let Some(room) = bytes.get_mut(HEADROOM..)
        {
            copy(room, frame);
        } else {
            bytes.resize(HEADROOM, 0);
            bytes.extend_from_slice(frame);
        }
        self.forget(HEADROOM);
    }

    /// Resets all fields except the bytes; the new frame begins at `start`.
    #[inline]
    fn forget(&mut self, new_start: usize) {
        let Parts {
            memory: _,
            start,
            recirc_id,
            dp_hash,
            l3_type,
            offload,
            passes,
            tags,
            has_metadata,
            outer,
            outer_port: _,
            metadata: _,
        } = &mut *self.0;
        *start = new_start;
        *l3_type = None;
        *offload = Offload::default();
        (*recirc_id, *dp_hash) = (0, 0);
        (*passes, *tags, *has_metadata, *outer) = (0, 0, false, OuterState::None);
    }

    /// Empties the packet for reuse and returns its memory, [`HEADROOM`] bytes of undefined content. The caller appends
    /// the frame behind them and must not shorten them.
    pub fn emptied(&mut self) -> &mut Vec<u8> {
        self.forget(HEADROOM);
        let bytes = self.0.memory.emptied();
        bytes.resize(HEADROOM, 0);
        bytes
    }

    /// Copies all fields of `other` except the bytes. Every function that copies packets uses this.
    #[inline]
    pub fn copy_metadata(&mut self, other: &Self) {
        // Destructuring makes the compiler reject a new field that is not handled here.
        let Parts {
            memory: _,
            start: _,
            recirc_id,
            dp_hash,
            l3_type,
            offload,
            passes,
            tags,
            has_metadata,
            outer,
            outer_port,
            metadata,
        } = &*other.0;
        let parts = &mut *self.0;
        (parts.l3_type, parts.offload) = (*l3_type, *offload);
        (parts.recirc_id, parts.dp_hash) = (*recirc_id, *dp_hash);
        (parts.passes, parts.tags) = (*passes, *tags);
        (parts.outer, parts.outer_port) = (*outer, *outer_port);
        parts.has_metadata = *has_metadata;
        if *has_metadata {
            parts.metadata.clone_from(metadata);
        }
    }

    /// The frame.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.memory.bytes()[self.start..]
    }

    /// The frame of a received packet. Clears the fields that a datapath set, as a device may hand over a packet that
    /// another port sent.
    #[inline]
    pub fn received(&mut self) -> &[u8] {
        let parts = &mut *self.0;
        (parts.recirc_id, parts.dp_hash) = (0, 0);
        (parts.passes, parts.tags, parts.has_metadata, parts.outer) = (0, 0, false, OuterState::None);
        &parts.memory.bytes()[parts.start..]
    }

    /// The frame, mutable.
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

    /// Inserts `n` zero bytes at offset `at` of the frame by moving the bytes before it towards the front, and returns
    /// the inserted bytes. An `at` beyond the end counts as the end.
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

    /// Prepends the last `n` bytes of `block` (all of it if it is shorter) and returns the frame.
    ///
    /// The fast path copies the whole block by a few wide stores: the bytes of `block` before the last `n` land in the
    /// headroom, whose content is undefined.
    #[inline]
    pub fn prepend<const N: usize>(&mut self, block: &[u8; N], n: usize) -> &mut [u8] {
        let n = n.min(N);
        let parts = &mut *self.0;
        let start = parts.start;
        match parts.memory.bytes_mut().get_mut(..start).and_then(|room| room.last_chunk_mut::<N>()) {
            Some(room) => {
                *room = *block;
                parts.start = start - n;
                parts.shift_offload(0, n as isize);
            }
            None => self.insert(0, n).copy_from_slice(&block[N - n..]),
        }
        self.data_mut()
    }

    /// Removes `n` bytes at offset `at` of the frame by moving the bytes before it back. Returns false, and changes
    /// nothing, if the frame is too short.
    #[inline]
    pub fn remove(&mut self, at: usize, n: usize) -> bool {
        if at.checked_add(n).is_none_or(|end| end > self.len()) {
            return false;
        }
        let parts = &mut *self.0;
        if at > 0 {
            parts.memory.bytes_mut().copy_within(parts.start..parts.start + at, parts.start + n);
        }
        parts.start += n;
        parts.shift_offload(at, -(n as isize));
        true
    }

    /// Truncates the frame to at most `len` bytes. A truncated frame loses its offload flags.
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
    /// The packet's metadata, if it has any.
    #[inline]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.has_metadata.then_some(&self.metadata)
    }

    /// The packet's metadata, mutable; initialised to zeros if the packet had none.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        if !self.has_metadata {
            self.metadata = Metadata::default();
            self.has_metadata = true;
        }
        &mut self.metadata
    }

    /// The outer headers that the datapath has pushed last, if it has not popped them.
    #[inline]
    pub fn outer(&self) -> Option<Outer> {
        let may_fragment = match self.outer {
            OuterState::None => return None,
            OuterState::Whole => false,
            OuterState::MayFragment => true,
        };
        Some(Outer { port: self.outer_port, may_fragment })
    }

    /// Sets the same.
    #[inline]
    pub fn set_outer(&mut self, outer: Outer) {
        self.outer_port = outer.port;
        self.outer = if outer.may_fragment { OuterState::MayFragment } else { OuterState::Whole };
    }

    /// Clears the same.
    #[inline]
    pub fn clear_outer(&mut self) {
        self.outer = OuterState::None;
    }

    /// Replaces the packet's metadata by a tunnel and the outer source port alone. Costs no reference count if the packet, or the
    /// one before it in this buffer, had the same tunnel.
    #[inline]
    pub fn set_only_tunnel(&mut self, tunnel: &Arc<Tunnel>, src_port: u16) {
        let Metadata { pkt_mark, skb_priority, connection, tunnel: old, tunnel_src_port } = &mut self.metadata;
        (*pkt_mark, *skb_priority, *tunnel_src_port) = (0, 0, src_port);
        *connection = Connection::default();
        if !old.as_ref().is_some_and(|old| Arc::ptr_eq(old, tunnel)) {
            *old = Some(Arc::clone(tunnel));
        }
        self.has_metadata = true;
    }

    /// Clears the connection in the packet's metadata.
    pub fn clear_connection(&mut self) {
        if self.has_metadata {
            self.metadata.connection = Connection::default();
        }
    }

    /// Drops the packet's metadata and the references in it.
    pub fn clear_metadata(&mut self) {
        if self.has_metadata {
            self.metadata = Metadata::default();
            self.has_metadata = false;
        }
    }

    #[inline]
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
    fn only_a_tunnel_remains_of_the_metadata() {
        let tunnel = |key| {
            let address = [10, 0, 0, 1].into();
            let (flags, tos, ttl, src_port, dst_port) = (0, 0, 64, 0, 0);
            let (group_policy, erspan, gtpu, options) = (0, 0, 0, Box::default());
            let (src, dst) = (address, address);
            Arc::new(Tunnel { src, dst, key, flags, tos, ttl, src_port, dst_port, group_policy, erspan, gtpu, options })
        };
        let mut p = Packet::from_slice(&[1]);
        p.metadata_mut().connection.state = 1;
        (p.metadata_mut().pkt_mark, p.metadata_mut().skb_priority) = (2, 3);
        let (first, second) = (tunnel(1), tunnel(2));
        for (tunnel, references) in [(&first, 2), (&first, 2), (&second, 2)] {
            p.set_only_tunnel(tunnel, 5);
            let expected = |tunnel| Metadata { tunnel, tunnel_src_port: 5, ..Metadata::default() };
            assert_eq!(p.metadata(), Some(&expected(Some(Arc::clone(tunnel)))));
            assert_eq!(Arc::strong_count(tunnel), references);
            p.received();
            assert_eq!(p.metadata(), None);
        }
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn prepend_copies_the_end_of_a_block() {
        let mut p = Packet::from_slice(&[5, 6]);
        p.offload.checksum = Checksum::Partial { start: 0, offset: 1 };
        assert_eq!(p.prepend(&[1, 2, 3, 4], 3), [2, 3, 4, 5, 6]);
        assert_eq!(p.offload.checksum, Checksum::Partial { start: 3, offset: 1 });
        assert_eq!(p.headroom(), HEADROOM - 3);
        // Without room for the block, even if the bytes would fit.
        let mut p = Packet::from_vec(vec![0, 0, 0, 7], 3).expect("a frame");
        assert_eq!(p.prepend(&[1, 2, 3, 4], 2), [3, 4, 7]);
        assert_eq!(p.prepend(&[1, 2, 3, 4], 9), [1, 2, 3, 4, 3, 4, 7]);
    }

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
    fn an_emptied_packet_equals_a_new_one() {
        let mut p = Packet::from_slice(&[7; 60]);
        p.offload.checksum = Checksum::Good;
        (p.l3_type, p.recirc_id, p.dp_hash, p.passes, p.tags) = (Some(1), 2, 3, 4, 5);
        p.metadata_mut().pkt_mark = 6;
        p.insert(0, 4);
        p.emptied().extend_from_slice(&[1, 2, 3]);
        assert_eq!(p, Packet::from_slice(&[1, 2, 3]));
        assert_eq!((p.headroom(), p.recirc_id, p.dp_hash, p.passes, p.tags), (HEADROOM, 0, 0, 0, 0));
        assert_eq!(p.metadata(), None);
        let mut short = Packet::default();
        assert_eq!(short.emptied().len(), HEADROOM);
    }

    /// A packet in which every field differs from its default.
    fn with_all_fields_set() -> Packet {
        let mut p = Packet::from_slice(&[7; 60]);
        p.offload = Offload { checksum: Checksum::Good, gso: Some(Gso { kind: GsoKind::UdpL4, size: 9, ecn: true }) };
        (p.l3_type, p.recirc_id, p.dp_hash, p.passes, p.tags) = (Some(1), 2, 3, 4, 5);
        p.metadata_mut().skb_priority = 6;
        p.set_outer(Outer { port: DpPort(7), may_fragment: true });
        p
    }

    /// All fields of a packet except its bytes.
    fn fields(p: &Packet) -> String {
        let Parts {
            memory: _,
            start: _,
            recirc_id,
            dp_hash,
            l3_type,
            offload,
            passes,
            tags,
            has_metadata: _,
            outer: _,
            outer_port: _,
            metadata: _,
        } = &**p;
        format!("{:?}", (recirc_id, dp_hash, l3_type, offload, passes, tags, p.outer(), p.metadata()))
    }

    #[test]
    fn copies_have_all_metadata_and_reused_packets_have_none() {
        let (original, new) = (with_all_fields_set(), Packet::from_slice(&[8; 60]));
        let mut copy = Packet::from_slice(&[8; 60]);
        copy.copy_metadata(&original);
        assert_eq!([fields(&copy), fields(&original.clone())], [fields(&original), fields(&original)]);
        copy.copy_metadata(&new);
        assert_eq!(fields(&copy), fields(&new));
        let mut refilled = with_all_fields_set();
        refilled.refill(&[8; 60]);
        assert_eq!(fields(&refilled), fields(&new));
        // The earlier metadata stays invalid.
        assert_eq!(refilled.metadata_mut().skb_priority, 0);
        // A received packet keeps the offload flags of the device and loses the fields of the datapath.
        let mut received = with_all_fields_set();
        received.received();
        let mut expected = new;
        (expected.offload, expected.l3_type) = (original.offload, original.l3_type);
        assert_eq!(fields(&received), fields(&expected));
    }

    #[test]
    fn headroom_fits_geneve_with_options_over_ipv6() {
        let mut p = Packet::from_slice(&[7; 60]);
        let before = p.data().as_ptr() as usize;
        let outer = 14 + 2 * 4 + 40 + 8 + 8 + 252;
        p.insert(0, outer);
        assert_eq!(p.data().as_ptr() as usize, before - outer);
    }

    #[test]
    fn truncating_clears_the_offload_flags() {
        let mut p = Packet::from_slice(&[0; 100]);
        p.offload.checksum = Checksum::Good;
        p.truncate(200);
        assert_eq!(p.offload.checksum, Checksum::Good);
        p.truncate(10);
        assert_eq!((p.len(), p.offload.checksum), (10, Checksum::Unknown));
    }
}
