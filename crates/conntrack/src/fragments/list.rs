//! The fragments of one datagram.
//!
//! Invariants: pieces are in order and do not overlap; only the last one may have the "more fragments" flag clear; no
//! piece ends behind `limit`. So a list is complete as soon as it holds as many bytes of payload as the final piece ends
//! at.

use base::Millis;
use packet::Packet;
use packet::buf::HEADROOM;
use packet::wire::{Ipv4, Ipv6};

use super::{Family, ListState, ListStatus, PassReason};
use crate::key::ip_of;
use crate::parse::Fragment;

/// Maximum number of fragments of a datagram. IPv4 fragments of the smallest minimum size with the longest header would
/// be 193.
pub const PIECES_MAX: usize = 256;

/// Maximum of the length field in the header of either family.
const LENGTH_MAX: usize = 0xffff;
/// Length of an IPv4 header without options.
const V4_HEADER: usize = 20;
/// Length of an IPv6 header.
pub(super) const V6_HEADER: usize = 40;
/// Length of an IPv6 fragment header.
pub(super) const FRAGMENT_HEADER: usize = 8;

/// The values that the fragments of one datagram have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ListKey {
    src: [u64; 2],
    dst: [u64; 2],
    id: u32,
    recirc_id: u32,
    zone: u16,
    /// 0 for IPv6, where only the first fragment states the protocol of the datagram (RFC 8200 section 4.5).
    proto: u8,
    is_v6: bool,
}

impl ListKey {
    /// The key of a fragment; `None` if the packet is too short for an IP header at `at.l3`.
    pub(super) fn of(packet: &Packet, at: &Fragment, zone: u16) -> Option<Self> {
        let header = packet.data().get(at.l3..)?;
        let (src, dst, proto) = if at.is_v6 {
            let ip = Ipv6::new_checked(header).ok()?;
            (halves(ip.src()), halves(ip.dst()), 0)
        } else {
            let ip = Ipv4::new_checked(header).ok()?;
            ([0, ip.src().into()], [0, ip.dst().into()], at.proto)
        };
        Some(Self { src, dst, id: at.id, recirc_id: packet.recirc_id, zone, proto, is_v6: at.is_v6 })
    }

    pub(super) fn family(&self) -> Family {
        Family::of(self.is_v6)
    }
}

fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// A fragment in a list. Invariant: `l3 <= header <= payload <= end <=` the frame's length, and the IP header lies between
/// `l3` and `payload`.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) packet: Packet,
    /// Offset of the IP header in the frame.
    pub(super) l3: usize,
    /// Offset of the field of the header before the IPv6 fragment header that states its type; `l3` for IPv4.
    pub(super) next_header: usize,
    /// Where the payload begins in the frame.
    pub(super) payload: usize,
    /// Where it ends; Ethernet padding follows.
    pub(super) end: usize,
    /// Where the payload begins in the datagram.
    pub(super) start: usize,
    /// Whether more fragments follow.
    pub(super) more: bool,
}

impl Piece {
    /// A fragment, in memory of its own; returns the packet if its lengths are impossible.
    pub(super) fn new(packet: Packet, at: &Fragment) -> Result<Self, Packet> {
        let Some(next_header) = find_next_header(packet.data(), at) else { return Err(packet) };
        let len = at.end - at.payload;
        if at.more && (len == 0 || !len.is_multiple_of(8)) {
            return Err(packet);
        }
        let &Fragment { l3, payload, end, offset: start, more, .. } = at;
        Ok(Self { packet: into_own_memory(packet), l3, next_header, payload, end, start, more })
    }

    /// Length of the payload.
    pub(super) fn len(&self) -> usize {
        self.end - self.payload
    }

    /// Where the payload ends in the datagram.
    pub(super) fn stop(&self) -> usize {
        self.start.saturating_add(self.len())
    }

    /// The payload.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.packet.data()[self.payload..self.end]
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.packet.own_capacity().unwrap_or(0) + size_of::<packet::buf::Parts>() + size_of::<Self>()
    }
}

/// Finds the field that [`Piece::next_header`] describes; `None` if the offsets do not fit the frame.
fn find_next_header(frame: &[u8], at: &Fragment) -> Option<usize> {
    if at.payload > at.end || at.end > frame.len() {
        return None;
    }
    let headers = at.payload.checked_sub(at.l3)?;
    if !at.is_v6 {
        let stated = usize::from(frame.get(at.l3)? & 0xf) * 4;
        return (headers >= V4_HEADER && headers == stated).then_some(at.l3);
    }
    if headers < V6_HEADER + FRAGMENT_HEADER || at.header != at.payload - FRAGMENT_HEADER {
        return None;
    }
    let (mut field, mut next) = (at.l3 + 6, at.l3 + V6_HEADER);
    while next < at.header {
        let len = usize::from(frame[next + 1]);
        let bytes = match frame[field] {
            // A fragment header that makes no fragment.
            44 => FRAGMENT_HEADER,
            // Authentication counts in units of 4 bytes (RFC 4302 section 2.2).
            51 => (len + 2) * 4,
            _ => (len + 1) * 8,
        };
        field = next;
        next += bytes;
    }
    (next == at.header).then_some(field)
}

/// Moves a packet out of memory that a device has lent, or that is much larger than the packet.
fn into_own_memory(packet: Packet) -> Packet {
    let sufficient = 2 * (HEADROOM + packet.len());
    if packet.own_capacity().is_some_and(|capacity| capacity <= sufficient) {
        return packet;
    }
    let mut copy = Packet::from_slice(packet.data());
    copy.copy_metadata(&packet);
    copy
}

/// The fragments of a datagram that have arrived.
#[derive(Debug)]
pub(super) struct List {
    pieces: Vec<Piece>,
    /// Sum of the lengths of the payloads.
    held: usize,
    /// Sum of the memory of the pieces.
    memory: usize,
    /// Maximum length of the datagram without its headers.
    limit: usize,
    /// The number of the list in the order of creation.
    pub(super) number: u64,
    /// The port on which the first of these fragments arrived.
    pub(super) in_port: u32,
    /// The end of its time.
    pub(super) deadline: Millis,
}

impl List {
    pub(super) fn new(number: u64, in_port: u32, deadline: Millis, family: Family) -> Self {
        let limit = if family == Family::V6 { LENGTH_MAX } else { LENGTH_MAX - V4_HEADER };
        Self { pieces: Vec::new(), held: 0, memory: 0, limit, number, in_port, deadline }
    }

    /// Number of fragments.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    pub(super) fn into_pieces(self) -> Vec<Piece> {
        self.pieces
    }

    pub(super) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.pieces.into_iter().map(|piece| piece.packet)
    }

    /// Inserts a fragment, or returns it with the reason why it does not belong here.
    pub(super) fn insert(&mut self, piece: Piece, family: Family) -> Result<(), (Piece, PassReason)> {
        let limit = if piece.start == 0 { self.limit.min(limit_behind(&piece, family)) } else { self.limit };
        let last = self.pieces.last();
        if piece.stop() > limit || last.is_some_and(|last| last.stop() > limit) {
            return Err((piece, PassReason::Malformed));
        }
        if self.pieces.len() >= PIECES_MAX {
            return Err((piece, PassReason::Full));
        }
        let i = self.pieces.partition_point(|other| other.start < piece.start);
        let overlaps_earlier = i > 0 && self.pieces[i - 1].stop() > piece.start;
        let overlaps_later =
            self.pieces.get(i).is_some_and(|other| other.start < piece.stop() || other.start == piece.start);
        let is_behind_end = i == self.pieces.len() && last.is_some_and(|last| !last.more);
        let ends_too_early = i < self.pieces.len() && !piece.more;
        if overlaps_earlier || overlaps_later || is_behind_end || ends_too_early {
            return Err((piece, PassReason::Overlap));
        }
        self.limit = limit;
        self.held += piece.len();
        self.memory += piece.memory();
        self.pieces.insert(i, piece);
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.pieces.last().is_some_and(|last| !last.more && self.held == last.stop())
    }

    pub(super) fn status(&self, key: &ListKey) -> ListStatus {
        let has_first = self.pieces.first().is_some_and(|piece| piece.start == 0);
        let has_last = self.pieces.last().is_some_and(|piece| !piece.more);
        ListStatus {
            src: ip_of(key.src, key.is_v6),
            dst: ip_of(key.dst, key.is_v6),
            recirc_id: key.recirc_id,
            id: key.id,
            family: key.family(),
            zone: key.zone,
            proto: key.proto,
            fragments: self.pieces.len(),
            state: match (has_first, has_last) {
                (false, false) => ListState::Other,
                (true, false) => ListState::First,
                (false, true) => ListState::Last,
                (true, true) => ListState::FirstLast,
            },
        }
    }
}

/// Maximum length of a datagram without its headers, which are those of its first fragment.
fn limit_behind(first: &Piece, family: Family) -> usize {
    let headers = first.payload - first.l3;
    LENGTH_MAX - if family == Family::V6 { headers - V6_HEADER - FRAGMENT_HEADER } else { headers }
}
