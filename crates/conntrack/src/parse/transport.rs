//! Checks of transport headers, and the packets embedded in ICMP errors.

use packet::checksum::{Sum, crc32c_sctp, pseudo_v4, pseudo_v6};
use packet::{Checksum, Packet, wire};

use super::{Embedded, IPV4_HEADER_MIN, IPV4_OFFSET, IPV6_HEADER, Parsed, Refusal, Span};
use super::{be16, first_word, ipv4_key, ipv6_key};
use crate::key::{Key, ipproto};

const TCP_HEADER_MIN: usize = 20;
const UDP_HEADER: usize = 8;
const SCTP_HEADER: usize = 12;
const SCTP_CHUNK_HEADER: usize = 4;
const ICMP_HEADER: usize = 8;
/// Bytes of an embedded transport header that a router includes at least (RFC 792).
const EMBEDDED_MIN: usize = 8;

/// Completes the key of a packet with transport header and payload `l4`, whose first four bytes are `ports` if the
/// protocol has ports.
#[inline]
pub(super) fn parse(packet: &Packet, span: Span, key: Key, l4: &[u8], ports: u32) -> Result<Parsed, Refusal> {
    match key.proto {
        ipproto::TCP => check_tcp(packet.offload.checksum, l4, || pseudo(&key, l4.len()))?,
        ipproto::UDP => check_udp(packet.offload.checksum, l4, key.is_v6, || pseudo(&key, l4.len()))?,
        _ => return other(packet, span, key, l4, ports),
    }
    with_ports(span, key, ports)
}

/// Checks lengths and checksum of a TCP header and its payload.
#[inline(always)]
pub(super) fn check_tcp(checksum: Checksum, l4: &[u8], pseudo: impl FnOnce() -> Sum) -> Result<(), Refusal> {
    let header = l4.first_chunk::<TCP_HEADER_MIN>().ok_or(Refusal::Malformed)?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < TCP_HEADER_MIN || header_len > l4.len() {
        return Err(Refusal::Malformed);
    }
    verify(checksum, l4, pseudo)
}

/// Checks lengths and checksum of a UDP header and its payload.
#[inline(always)]
pub(super) fn check_udp(
    checksum: Checksum,
    l4: &[u8],
    is_v6: bool,
    pseudo: impl FnOnce() -> Sum,
) -> Result<(), Refusal> {
    let header = l4.first_chunk::<UDP_HEADER>().ok_or(Refusal::Malformed)?;
    let len = usize::from(be16(header, 4));
    if len < UDP_HEADER || len > l4.len() {
        return Err(Refusal::Malformed);
    }
    if header[6..] == [0, 0] && checksum == Checksum::Unknown {
        // RFC 768: no checksum; RFC 8200 section 8.1: not in IPv6.
        return if is_v6 { Err(Refusal::L4Checksum) } else { Ok(()) };
    }
    verify(checksum, l4, pseudo)
}

/// Verifies a transport checksum, unless the offload flags vouch for it.
#[inline(always)]
fn verify(checksum: Checksum, l4: &[u8], pseudo: impl FnOnce() -> Sum) -> Result<(), Refusal> {
    if checksum == Checksum::Unknown && !pseudo().bytes_here(l4).is_valid() {
        return Err(Refusal::L4Checksum);
    }
    Ok(())
}

/// Completes a key with ports, neither of which may be 0.
#[inline]
pub(super) fn with_ports(Span { l3, l4, end }: Span, key: Key, ports: u32) -> Result<Parsed, Refusal> {
    let key = with_key_ports(key, ports)?;
    Ok(Parsed { key, l3, l4, end, embedded: None })
}

#[inline]
fn with_key_ports(key: Key, ports: u32) -> Result<Key, Refusal> {
    let (src_port, dst_port) = ((ports >> 16) as u16, ports as u16);
    if src_port == 0 || dst_port == 0 { Err(Refusal::Malformed) } else { Ok(Key { src_port, dst_port, ..key }) }
}

/// The sum of the pseudo-header of a transport header with payload of `len` bytes. Open vSwitch always verifies the
/// destination in the IP header, also if a routing header names another one.
#[inline]
fn pseudo(key: &Key, len: usize) -> Sum {
    if key.is_v6 {
        let bytes = |address: [u64; 2]| (u128::from(address[0]) << 64 | u128::from(address[1])).to_be_bytes();
        pseudo_v6(&bytes(key.src), &bytes(key.dst), key.proto, len as u32)
    } else {
        let bytes = |address: [u64; 2]| (address[1] as u32).to_be_bytes();
        pseudo_v4(bytes(key.src), bytes(key.dst), key.proto, len as u16)
    }
}

/// Parses a packet of a protocol other than TCP and UDP.
#[inline(never)]
fn other(packet: &Packet, span: Span, key: Key, l4: &[u8], ports: u32) -> Result<Parsed, Refusal> {
    let Span { l3, l4: at, end } = span;
    match key.proto {
        ipproto::SCTP => sctp(packet, span, key, l4, ports),
        _ if key.is_icmp() => icmp(packet, span, key, l4),
        _ => Ok(Parsed { key, l3, l4: at, end, embedded: None }),
    }
}

/// Checks the common header and the lengths of the chunks of an SCTP packet (RFC 9260 section 3).
fn sctp(packet: &Packet, span: Span, key: Key, l4: &[u8], ports: u32) -> Result<Parsed, Refusal> {
    let mut chunks = l4.get(SCTP_HEADER..).ok_or(Refusal::Malformed)?;
    while !chunks.is_empty() {
        let header = chunks.first_chunk::<SCTP_CHUNK_HEADER>().ok_or(Refusal::Malformed)?;
        let len = usize::from(be16(header, 2));
        if len < SCTP_CHUNK_HEADER {
            return Err(Refusal::Malformed);
        }
        // Padding is not part of the length.
        chunks = chunks.get(len.next_multiple_of(4)..).ok_or(Refusal::Malformed)?;
    }
    let field = &l4[8..SCTP_HEADER];
    if packet.offload.checksum == Checksum::Unknown && crc32c_sctp(l4).is_none_or(|crc| crc.to_le_bytes() != field) {
        return Err(Refusal::L4Checksum);
    }
    with_ports(span, key, ports)
}

/// Parses an ICMP or ICMPv6 message.
fn icmp(packet: &Packet, span: Span, key: Key, l4: &[u8]) -> Result<Parsed, Refusal> {
    let sum = if key.is_v6 { pseudo(&key, l4.len()) } else { Sum::new() };
    if packet.offload.checksum == Checksum::Unknown && !sum.bytes(l4).is_valid() {
        return Err(Refusal::L4Checksum);
    }
    let header = l4.first_chunk::<ICMP_HEADER>().ok_or(Refusal::Malformed)?;
    let (key, embedded) = if is_error(header[0], key.is_v6) {
        let (inner, embedded) = embedded(packet.data(), span, &key)?;
        (inner.reversed(), Some(embedded))
    } else {
        (with_identifier(key, header)?, None)
    };
    Ok(Parsed { key, l3: span.l3, l4: span.l4, end: span.end, embedded })
}

/// Returns true for an ICMP type that carries the packet which caused it (RFC 792, RFC 4443 section 2.1).
fn is_error(kind: u8, is_v6: bool) -> bool {
    // Unreachable, source quench, redirect, time exceeded, parameter problem; in ICMPv6 packet too big is the second.
    if is_v6 { matches!(kind, 1..=4) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) }
}

/// Completes the key of a request or reply with an identifier: echo, timestamp and information, the latter two only in
/// ICMP.
fn with_identifier(key: Key, header: &[u8; ICMP_HEADER]) -> Result<Key, Refusal> {
    let tracked = if key.is_v6 { matches!(header[0], 128 | 129) } else { matches!(header[0], 0 | 8 | 13..=16) };
    if !tracked || header[1] != 0 {
        return Err(Refusal::Malformed);
    }
    Ok(Key { src_port: be16(header, 4), dst_port: be16(header, 0), ..key })
}

/// Finds the packet embedded in an ICMP error, which must be one that the receiver of the error sent, and its key. The
/// embedded packet may be cut off, so neither its lengths nor its checksums are verified.
fn embedded(frame: &[u8], outer: Span, error: &Key) -> Result<(Key, Embedded), Refusal> {
    let l3 = outer.l4 + ICMP_HEADER;
    let rest = frame.get(l3..outer.end).ok_or(Refusal::Malformed)?;
    let (key, header_len) = if error.is_v6 {
        let header = rest.first_chunk::<IPV6_HEADER>().ok_or(Refusal::Malformed)?;
        let extensions = wire::extensions(header[6], &rest[IPV6_HEADER..]).ok_or(Refusal::Malformed)?;
        if extensions.fragment {
            return Err(Refusal::Malformed);
        }
        (ipv6_key(header, extensions.proto, error.zone), IPV6_HEADER + extensions.len)
    } else {
        let header = rest.first_chunk::<IPV4_HEADER_MIN>().ok_or(Refusal::Malformed)?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        // The first fragment has a transport header.
        if header_len < IPV4_HEADER_MIN || be16(header, 6) & IPV4_OFFSET != 0 {
            return Err(Refusal::Malformed);
        }
        (ipv4_key(header, error.zone), header_len)
    };
    if key.src != error.dst {
        return Err(Refusal::Malformed);
    }
    let l4 = rest.get(header_len..).ok_or(Refusal::Malformed)?;
    let header = l4.first_chunk::<EMBEDDED_MIN>().ok_or(Refusal::Malformed);
    let key = match key.proto {
        ipproto::TCP | ipproto::UDP | ipproto::SCTP => with_key_ports(key, first_word(header?))?,
        _ if key.is_icmp() => with_identifier(key, header?)?,
        _ => key,
    };
    Ok((key, Embedded { l3, l4: l3 + header_len, proto: key.proto }))
}
