//! The outer headers in front of a tunnel header, read from a received packet: Ethernet, VLAN tags, IP and UDP.

use super::{ETH_IPV4, ETH_IPV6, Malformed, PROTO_UDP, tun_flags};
use packet::checksum::{Sum, pseudo_v4, pseudo_v6};
use packet::wire;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The outer IP header. Invariant: `l4 <= end <=` the frame's length.
pub(super) struct Outer {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    /// [`tun_flags::DONT_FRAGMENT`] or 0.
    pub flags: u16,
    /// Protocol of the payload, after extension headers.
    pub proto: u8,
    /// Offset of the payload.
    pub l4: usize,
    /// End of the IP packet; Ethernet padding follows.
    pub end: usize,
}

/// An outer UDP datagram. Invariant: `start <= end <=` the frame's length.
pub(super) struct Datagram {
    pub src_port: u16,
    pub dst_port: u16,
    /// [`tun_flags::CHECKSUM`] or 0.
    pub flags: u16,
    pub start: usize,
    pub end: usize,
}

/// Offset of the network header and its Ethernet type.
#[inline]
fn network(frame: &[u8], l3_type: Option<u16>) -> Result<(usize, u16), Malformed> {
    if let Some(ethertype) = l3_type {
        return Ok((0, ethertype));
    }
    let ethertype = frame.first_chunk::<14>().map(|eth| u16::from_be_bytes([eth[12], eth[13]]));
    match ethertype {
        Some(ETH_IPV4 | ETH_IPV6) => Ok((14, ethertype.unwrap_or_default())),
        _ => wire::network(frame).ok_or(Malformed::NotIp),
    }
}

/// Reads the outer IP header. A walk through IPv6 extension headers ends at the upper-layer protocol or, if it is
/// `until`, at that header.
#[inline]
pub(super) fn ip(frame: &[u8], l3_type: Option<u16>, until: u8) -> Result<Outer, Malformed> {
    let (l3, ethertype) = network(frame, l3_type)?;
    let packet = frame.get(l3..).ok_or(Malformed::NotIp)?;
    match ethertype {
        ETH_IPV4 => ipv4(packet, l3),
        ETH_IPV6 => ipv6(packet, l3, until),
        _ => Err(Malformed::NotIp),
    }
}

#[inline]
fn ipv4(packet: &[u8], l3: usize) -> Result<Outer, Malformed> {
    let header = packet.first_chunk::<20>().ok_or(Malformed::IpLength)?;
    if header[0] != 0x45 {
        let has_options = header[0] >> 4 == 4 && header[0] & 0xf > 5;
        return Err(if has_options { Malformed::IpOptions } else { Malformed::IpLength });
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if !(20..=packet.len()).contains(&total) {
        return Err(Malformed::IpLength);
    }
    if !Sum::new().ipv4_header(header).is_valid() {
        return Err(Malformed::IpChecksum);
    }
    let flags_offset = u16::from_be_bytes([header[6], header[7]]);
    if flags_offset & 0x3fff != 0 {
        return Err(Malformed::Fragment);
    }
    let address = |at: usize| IpAddr::V4(Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| header[at + i])));
    Ok(Outer {
        src: address(12),
        dst: address(16),
        tos: header[1],
        ttl: header[8],
        flags: if flags_offset & 0x4000 != 0 { tun_flags::DONT_FRAGMENT } else { 0 },
        proto: header[9],
        l4: l3 + 20,
        end: l3 + total,
    })
}

#[inline]
fn ipv6(packet: &[u8], l3: usize, until: u8) -> Result<Outer, Malformed> {
    let (header, rest) = packet.split_first_chunk::<40>().ok_or(Malformed::IpLength)?;
    if header[0] >> 4 != 6 {
        return Err(Malformed::IpLength);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = rest.get(..payload_len).ok_or(Malformed::IpLength)?;
    let (proto, skipped) = if header[6] == until { (until, 0) } else { skip_extensions(header[6], payload, until)? };
    let address = |at: usize| IpAddr::V6(Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| header[at + i])));
    Ok(Outer {
        src: address(8),
        dst: address(24),
        tos: header[0] << 4 | header[1] >> 4,
        ttl: header[7],
        flags: 0,
        proto,
        l4: l3 + 40 + skipped,
        end: l3 + 40 + payload_len,
    })
}

/// The protocol behind the extension headers that precede `until`, and their length in bytes.
#[cold]
fn skip_extensions(first: u8, payload: &[u8], until: u8) -> Result<(u8, usize), Malformed> {
    let (mut proto, mut at) = (first, 0);
    while proto != until {
        let rest = payload.get(at..).ok_or(Malformed::IpLength)?;
        let unit = |n: usize, size: usize| rest.get(1).map(|len| (usize::from(*len) + n) * size);
        let bytes = match proto {
            0 | 43 | 60 => unit(1, 8),
            51 => unit(2, 4),
            44 => Some(8),
            _ => break,
        };
        let header = bytes.and_then(|bytes| rest.get(..bytes)).ok_or(Malformed::IpLength)?;
        if proto == 44 && u16::from_be_bytes([header[2], header[3]]) & 0xfff9 != 0 {
            return Err(Malformed::Fragment);
        }
        if proto == 43 && header[3] != 0 {
            return Err(Malformed::SegmentsLeft);
        }
        at += header.len();
        proto = header[0];
    }
    Ok((proto, at))
}

/// Reads the UDP header behind `outer`. Verifies a checksum that is present (RFC 768; RFC 6935 allows its absence in
/// IPv6, too), unless `trusted`.
#[inline]
pub(super) fn udp(frame: &[u8], outer: &Outer, trusted: bool) -> Result<Datagram, Malformed> {
    if outer.proto != PROTO_UDP {
        return Err(Malformed::Protocol);
    }
    let payload = frame.get(outer.l4..outer.end).ok_or(Malformed::UdpLength)?;
    let header = payload.first_chunk::<8>().ok_or(Malformed::UdpLength)?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let len = usize::from(field(4));
    if !(8..=payload.len()).contains(&len) {
        return Err(Malformed::UdpLength);
    }
    let has_checksum = field(6) != 0;
    if has_checksum && !trusted && !is_udp_checksum_valid(outer, payload.get(..len).unwrap_or_default()) {
        return Err(Malformed::UdpChecksum);
    }
    Ok(Datagram {
        src_port: field(0),
        dst_port: field(2),
        flags: if has_checksum { tun_flags::CHECKSUM } else { 0 },
        start: outer.l4 + 8,
        end: outer.l4 + len,
    })
}

fn is_udp_checksum_valid(outer: &Outer, datagram: &[u8]) -> bool {
    let len = datagram.len() as u16;
    let pseudo = match (outer.src, outer.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_v4(src.octets(), dst.octets(), PROTO_UDP, len),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(&src.octets(), &dst.octets(), PROTO_UDP, len.into()),
        _ => return false,
    };
    (pseudo + Sum::new().bytes(datagram)).is_valid()
}
