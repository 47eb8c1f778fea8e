//! Translates the headers of packets.
//!
//! Checksums are updated incrementally (RFC 1624), so that a wrong one stays wrong and the receiver detects it; only the
//! CRC32c of SCTP is computed anew. A partial checksum (offload flags) covers the pseudo-header alone: only addresses
//! change it.

use packet::checksum::{Sum, crc32c_sctp};
use packet::{Checksum, Packet, wire};

use crate::action::Translated;
use crate::key::{Key, ipproto};
use crate::parse::{Embedded, Parsed};

/// Offset of the checksum in the IPv4 header.
const IPV4_CHECKSUM: usize = 10;
/// Offset of the addresses in the IPv4 header.
const IPV4_ADDRESSES: usize = 12;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Offset of the addresses in the IPv6 header.
const IPV6_ADDRESSES: usize = 8;
/// Offsets of checksums in transport headers.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
const ICMP_CHECKSUM: usize = 2;
const SCTP_CHECKSUM: usize = 8;
/// Offset of the identifier in ICMP messages.
const ICMP_IDENTIFIER: usize = 4;

/// A transport header to translate. Offsets are bytes from the start of the frame.
#[derive(Clone, Copy)]
struct Transport {
    /// Where it begins.
    at: usize,
    /// End of its IP packet, or of the part of it that is there.
    end: usize,
    /// Its protocol.
    proto: u8,
    /// What its checksum field holds.
    checksum: Field,
}

/// Content of the checksum field of a transport header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    /// A checksum.
    Complete,
    /// The sum of the pseudo-header alone.
    Partial,
    /// The checksum of an embedded packet that is cut off.
    Cut,
}

/// Gives a packet the addresses that are `translated`, and ports (or the ICMP identifier), of `to` in place of those of
/// `parsed.key`.
#[inline]
pub fn translate(packet: &mut Packet, parsed: &Parsed, to: &Key, translated: Translated) {
    let checksum = if is_partial(packet, parsed.l4) { Field::Partial } else { Field::Complete };
    let transport = Transport { at: parsed.l4, end: parsed.end, proto: parsed.key.proto, checksum };
    let vouched = packet.offload.checksum != Checksum::Unknown;
    let frame = packet.data_mut();
    let mut pseudo = set_addresses(frame, parsed.l3, to, translated).unwrap_or_default();
    if vouched && to.is_v6 && parsed.l4 != parsed.l3 + IPV6_HEADER && is_routed(frame, parsed) {
        // A checksum that the tracker verified covers the destination in the header, others the final one.
        pseudo = pseudo + undone_destination(&parsed.key, to);
    }
    set_transport(frame, transport, to, pseudo);
}

/// As [`translate`], for a packet of TCP or UDP over IPv4 without options. `l3` is the offset of its IPv4 header.
#[inline]
pub(crate) fn translate_plain(packet: &mut Packet, l3: usize, proto: u8, to: &Key) {
    let partial = is_partial(packet, l3 + IPV4_HEADER);
    let Some(rest) = packet.data_mut().get_mut(l3..) else { return };
    if proto == ipproto::TCP {
        if let Some(headers) = rest.first_chunk_mut::<{ IPV4_HEADER + 20 }>() {
            translate_headers::<_, { IPV4_HEADER + TCP_CHECKSUM }>(headers, to, partial, false);
        }
    } else if let Some(headers) = rest.first_chunk_mut::<{ IPV4_HEADER + 8 }>() {
        translate_headers::<_, { IPV4_HEADER + UDP_CHECKSUM }>(headers, to, partial, true);
    }
}

/// Translates headers whose transport checksum is at `CHECKSUM`. An `optional` one is absent if it is 0.
#[inline(always)]
fn translate_headers<const LEN: usize, const CHECKSUM: usize>(
    headers: &mut [u8; LEN],
    to: &Key,
    partial: bool,
    optional: bool,
) {
    let mut change = |at: usize, new: u32| {
        let field: &mut [u8; 4] = headers[at..].first_chunk_mut().expect("the header has this field");
        let old = u32::from_be_bytes(std::mem::replace(field, new.to_be_bytes()));
        if old == new { Sum::new() } else { Sum::new().u32(!old).u32(new) }
    };
    let addresses = change(IPV4_ADDRESSES, to.src[1] as u32) + change(IPV4_ADDRESSES + 4, to.dst[1] as u32);
    let all = addresses + change(IPV4_HEADER, ports(to));
    let mut adjust = |at: usize, of: &dyn Fn(u16) -> u16| {
        let field: &mut [u8; 2] = headers[at..].first_chunk_mut().expect("the header has this field");
        *field = of(u16::from_be_bytes(*field)).to_be_bytes();
    };
    if addresses != Sum::new() {
        adjust(IPV4_CHECKSUM, &|field| adjusted(field, addresses));
    }
    match (partial, all) {
        (true, _) if addresses == Sum::new() => {}
        (true, _) => adjust(CHECKSUM, &|field| grown(field, addresses)),
        (false, none) if none == Sum::new() => {}
        (false, _) => adjust(CHECKSUM, &|field| match adjusted(field, all) {
            _ if optional && field == 0 => 0,
            0 if optional => 0xffff,
            new => new,
        }),
    }
}

/// Translates an ICMP error, and the packet in it, which then has the tuple `to.reversed()`.
///
/// If the translation changes the source address of the direction, the error has the new address too, also if a router
/// sent it: the address behind the translation stays hidden.
#[cold]
pub fn translate_error(packet: &mut Packet, parsed: &Parsed, to: &Key) {
    let both = Translated::new(true, true);
    let Some(Embedded { l3, l4, proto }) = parsed.embedded else { return translate(packet, parsed, to, both) };
    let partial = is_partial(packet, parsed.l4);
    let frame = packet.data_mut();
    let message = |frame: &[u8]| Sum::new().bytes(frame.get(parsed.l4..parsed.end).unwrap_or_default()).partial();
    let before = message(frame);
    let inner = to.reversed();
    let pseudo = set_addresses(frame, l3, &inner, both).unwrap_or_default();
    let whole = embedded_end(frame, l3, to.is_v6).filter(|end| *end <= parsed.end);
    let checksum = if whole.is_some() { Field::Complete } else { Field::Cut };
    let end = whole.unwrap_or(parsed.end);
    set_transport(frame, Transport { at: l4, end, proto, checksum }, &inner, pseudo);
    let change = Sum::new().u16(!before).u16(message(frame));

    let outer = Translated::new(to.src != parsed.key.src, true);
    let addresses = set_addresses(frame, parsed.l3, to, outer).unwrap_or_default();
    let pseudo = if to.is_v6 { addresses } else { Sum::new() };
    change16(frame, parsed.l4 + ICMP_CHECKSUM, parsed.end, |field| {
        if partial { grown(field, pseudo) } else { adjusted(field, pseudo + change) }
    });
}

/// Returns true if the transport header at `l4` has a partial checksum.
#[inline]
fn is_partial(packet: &Packet, l4: usize) -> bool {
    matches!(packet.offload.checksum, Checksum::Partial { start, .. } if usize::from(start) == l4)
}

/// Returns true if an IPv6 packet with extension headers has a routing header with segments left.
#[cold]
fn is_routed(frame: &[u8], parsed: &Parsed) -> bool {
    let payload = frame.get(parsed.l3 + IPV6_HEADER..parsed.end).unwrap_or_default();
    let next = frame.get(parsed.l3 + 6).copied().unwrap_or_default();
    wire::extensions(next, payload).is_some_and(|extensions| extensions.routed)
}

/// The end of an embedded packet by the length in its header.
fn embedded_end(frame: &[u8], l3: usize, is_v6: bool) -> Option<usize> {
    let length = |at: usize| frame.get(at..)?.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
    if is_v6 {
        length(l3 + 4).map(|payload| l3 + IPV6_HEADER + payload)
    } else {
        length(l3 + 2).map(|total| l3 + total)
    }
}

/// Writes the addresses of `to` that are `translated` into the IP header at `l3`, and updates the IPv4 header checksum.
/// Returns the change of the sum of the addresses, `None` if they stay as they are.
#[inline]
fn set_addresses(frame: &mut [u8], l3: usize, to: &Key, translated: Translated) -> Option<Sum> {
    if to.is_v6 {
        return set_ipv6_addresses(frame, l3, to, translated);
    }
    let header = frame.get_mut(l3..)?.first_chunk_mut::<20>()?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (old_src, old_dst) = (word(IPV4_ADDRESSES), word(IPV4_ADDRESSES + 4));
    let src = if translated.src() { to.src[1] as u32 } else { old_src };
    let dst = if translated.dst() { to.dst[1] as u32 } else { old_dst };
    if (src, dst) == (old_src, old_dst) {
        return None;
    }
    header[IPV4_ADDRESSES..IPV4_ADDRESSES + 4].copy_from_slice(&src.to_be_bytes());
    header[IPV4_ADDRESSES + 4..].copy_from_slice(&dst.to_be_bytes());
    let change = Sum::new().u32(!old_src).u32(src).u32(!old_dst).u32(dst);
    change16(header, IPV4_CHECKSUM, IPV4_ADDRESSES, |field| adjusted(field, change));
    Some(change)
}

fn set_ipv6_addresses(frame: &mut [u8], l3: usize, to: &Key, translated: Translated) -> Option<Sum> {
    let addresses = frame.get_mut(l3 + IPV6_ADDRESSES..)?.first_chunk_mut::<32>()?;
    let old = *addresses;
    let halves = [to.src[0], to.src[1], to.dst[0], to.dst[1]];
    let skipped = if translated.src() { 0 } else { 2 };
    let taken = if translated.dst() { 4 } else { 2 };
    for (bytes, half) in addresses.chunks_exact_mut(8).zip(halves).take(taken).skip(skipped) {
        bytes.copy_from_slice(&half.to_be_bytes());
    }
    (*addresses != old).then(|| Sum::new().bytes(&old.map(|byte| !byte)).bytes(addresses))
}

/// The change of the sum if the destination address changes back.
#[cold]
fn undone_destination(from: &Key, to: &Key) -> Sum {
    let bytes = |key: &Key| (u128::from(key.dst[0]) << 64 | u128::from(key.dst[1])).to_be_bytes();
    Sum::new().bytes(&bytes(from)).bytes(&bytes(to).map(|byte| !byte))
}

/// Writes ports or identifier of `to` into a transport header, and updates its checksum, given the change `pseudo` of the
/// pseudo-header.
#[inline]
fn set_transport(frame: &mut [u8], transport: Transport, to: &Key, pseudo: Sum) {
    let Transport { at, end, proto, .. } = transport;
    match proto {
        ipproto::TCP => {
            let ports = set_word(frame, at, end, ports(to)).unwrap_or_default();
            adjust(frame, transport, TCP_CHECKSUM, pseudo, ports, false);
        }
        ipproto::UDP => {
            let ports = set_word(frame, at, end, ports(to)).unwrap_or_default();
            adjust(frame, transport, UDP_CHECKSUM, pseudo, ports, true);
        }
        _ => set_other_transport(frame, transport, to, pseudo),
    }
}

/// Like [`set_transport`], for protocols other than TCP and UDP.
fn set_other_transport(frame: &mut [u8], transport: Transport, to: &Key, pseudo: Sum) {
    let Transport { at, end, proto, .. } = transport;
    match (proto, to.is_v6) {
        (ipproto::SCTP, _) => set_sctp(frame, transport, to),
        (ipproto::ICMP, false) => {
            let identifier = set_identifier(frame, at, end, to.src_port);
            adjust(frame, transport, ICMP_CHECKSUM, Sum::new(), identifier, false);
        }
        (ipproto::ICMPV6, true) => {
            let identifier = set_identifier(frame, at, end, to.src_port);
            adjust(frame, transport, ICMP_CHECKSUM, pseudo, identifier, false);
        }
        (ipproto::UDPLITE | ipproto::DCCP, _) => {
            adjust(frame, transport, UDP_CHECKSUM, pseudo, Sum::new(), false);
        }
        _ => {}
    }
}

/// Writes the ports of an SCTP header. The CRC32c covers no addresses, but all of the packet.
fn set_sctp(frame: &mut [u8], Transport { at, end, checksum, .. }: Transport, to: &Key) {
    let Some(packet) = frame.get_mut(at..end) else { return };
    let before = if checksum == Field::Complete { crc32c_sctp(packet) } else { None };
    set_word(packet, 0, packet.len(), ports(to));
    let after = before.and(crc32c_sctp(packet));
    if let Some((before, after)) = before.zip(after) {
        let bits = (before ^ after).to_le_bytes();
        packet[SCTP_CHECKSUM..].iter_mut().zip(bits).for_each(|(byte, bits)| *byte ^= bits);
    }
}

/// The first four bytes of a header with ports.
#[inline]
fn ports(key: &Key) -> u32 {
    u32::from(key.src_port) << 16 | u32::from(key.dst_port)
}

/// Updates the checksum at `offset` of a transport header after the sums of pseudo-header and header changed. An `optional` one is absent if 0, and a computed 0 is sent as
/// all ones (RFC 768).
#[inline]
fn adjust(frame: &mut [u8], transport: Transport, offset: usize, pseudo: Sum, header: Sum, optional: bool) {
    let partial = transport.checksum == Field::Partial;
    change16(frame, transport.at + offset, transport.end, |field| {
        if partial {
            return grown(field, pseudo);
        }
        if optional && field == 0 {
            return 0;
        }
        match adjusted(field, pseudo + header) {
            0 if optional => 0xffff,
            new => new,
        }
    });
}

/// Writes 32 bits. Returns the change of their sum, `None` if they stay as they are or lie past `end`.
#[inline]
fn set_word(frame: &mut [u8], at: usize, end: usize, new: u32) -> Option<Sum> {
    let field = frame.get_mut(at..end)?.first_chunk_mut::<4>()?;
    let old = u32::from_be_bytes(*field);
    *field = new.to_be_bytes();
    (new != old).then(|| Sum::new().u32(!old).u32(new))
}

/// Writes the identifier of an ICMP message. Returns the change of the sum.
fn set_identifier(frame: &mut [u8], at: usize, end: usize, new: u16) -> Sum {
    let mut change = Sum::new();
    change16(frame, at + ICMP_IDENTIFIER, end, |old| {
        if new != old {
            change = Sum::new().u16(!old).u16(new);
        }
        new
    });
    change
}

/// Changes the 16 bits at `at`; does nothing if they lie past `end`.
#[inline]
fn change16(frame: &mut [u8], at: usize, end: usize, change: impl FnOnce(u16) -> u16) {
    if let Some(field) = frame.get_mut(at..end).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = change(u16::from_be_bytes(*field)).to_be_bytes();
    }
}

/// A checksum after the sum under it grew (RFC 1624, equation 3).
#[inline]
fn adjusted(checksum: u16, change: Sum) -> u16 {
    change.u16(!checksum).finish()
}

/// A partial checksum after its sum grew.
#[inline]
fn grown(partial: u16, change: Sum) -> u16 {
    change.u16(partial).partial()
}

#[cfg(test)]
mod tests;
