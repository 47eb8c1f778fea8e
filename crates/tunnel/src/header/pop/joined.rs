//! Decapsulation of a GSO packet of outer datagrams as a whole: the inverse of what [`template`](crate::header::template) makes of a large
//! packet.
//!
//! The inner packets become one GSO packet if they are segments of one TCP stream in sequence ([`packet::join`]), all behind the same
//! tunnel header. So the datapath looks up one packet. Inner checksums are verified here, even if the outer checksum is partial, which
//! shows that the datagrams come from this host's memory: their sender may have received the inner segments from elsewhere, and a
//! joined packet gets new checksums behind which a wrong one would disappear.

use super::super::{Cache, gtpu};
use super::{Inner, Pop, parse};
use packet::join::join;
use packet::segment::Segments;
use packet::{GsoKind, Packet};

/// The length of a GTP-U header, which differs between datagrams.
const GTPU_LENGTH: std::ops::Range<usize> = 2..4;

/// Where the inner packets are in a packet of outer datagrams.
struct Layout {
    /// Offset of the first datagram's payload.
    at: usize,
    /// Bytes of a datagram's payload, except for the last one's.
    size: usize,
    /// Bytes of the tunnel header.
    header: usize,
    /// The type of the inner packets.
    l3_type: Option<u16>,
}

/// Removes the outer headers of a GSO packet of outer datagrams, which becomes a GSO packet of inner segments. `None`, and the packet
/// stays as it is, if the datagrams have to be popped one by one.
pub(super) fn pop_joined(pop: Pop, whole: &mut Packet, cache: &mut Cache) -> Option<()> {
    let (layout, mut first) = layout(pop, whole)?;
    let Layout { at, size, header, l3_type } = layout;
    let payload = &whole.data()[at..];
    let tunnel_header = &payload[..header];
    if !payload.chunks(size).all(|datagram| has_header(pop, datagram, tunnel_header)) {
        return None;
    }
    let joined = join(payload.chunks(size).map(|datagram| &datagram[header..]), l3_type)?;
    pop.pop(&mut first, cache).ok()?;

    // Moves the payloads together, behind the first segment.
    let (start, len) = (at + header, joined.head.len());
    let end = whole.len();
    let frame = whole.data_mut();
    frame[start..start + len].copy_from_slice(&joined.head);
    let mut to = at + size;
    for datagram in (at + size..end).step_by(size) {
        let from = datagram + header + len..end.min(datagram + size);
        let moved = from.len();
        frame.copy_within(from, to);
        to += moved;
    }
    whole.truncate(to);
    whole.remove(0, start);
    whole.copy_metadata(&first);
    whole.offload = joined.offload;
    Some(())
}

/// The layout of a packet with two datagrams or more, and the first one of them.
fn layout(pop: Pop, whole: &Packet) -> Option<(Layout, Packet)> {
    let gso = whole.offload.gso.filter(|gso| gso.kind == GsoKind::UdpL4)?;
    let segments = Segments::of(whole).ok().filter(|segments| segments.count() > 1)?;
    let first = segments.packet(0);
    let parsed = parse(pop, first.data(), first.l3_type, true).ok()?;
    let l3_type = match parsed.inner {
        Inner::Ethernet => None,
        Inner::L3(ethertype) => Some(ethertype),
        Inner::Control => return None,
    };
    let at = segments.header_len();
    let header = parsed.start.checked_sub(at).filter(|_| parsed.end == first.len())?;
    Some((Layout { at, size: gso.size.into(), header, l3_type }, first))
}

/// Whether a datagram has a tunnel header that means the same as that of the first one.
fn has_header(pop: Pop, datagram: &[u8], first: &[u8]) -> bool {
    let Some(header) = datagram.get(..first.len()) else { return false };
    if pop != Pop::Gtpu {
        return header == first;
    }
    let stated = header.get(GTPU_LENGTH).and_then(|bytes| bytes.first_chunk::<2>());
    stated.is_some_and(|len| usize::from(u16::from_be_bytes(*len)) + 8 == datagram.len())
        && (0..first.len()).all(|at| header[at] == first[at] || GTPU_LENGTH.contains(&at) || is_sequence(first, at))
}

/// Whether a byte of a GTP-U header belongs to a sequence number that its flags announce (3GPP TS 29.281 section 5.1).
fn is_sequence(header: &[u8], at: usize) -> bool {
    header.first().is_some_and(|flags| flags & gtpu::FLAG_SEQUENCE != 0) && (8..10).contains(&at)
}
