//! The outer headers in front of a tunnel header, read from a received packet: Ethernet, VLAN tags, IP and UDP.

use super::pop::Parsed;
use super::{ETH_IPV4, ETH_IPV6, Malformed, PROTO_UDP};
use crate::flags;
use packet::checksum::{Sum, pseudo_v4, pseudo_v6};
use packet::wire;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination of the outer IP header, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// IPv4.
    V4(u32, u32),
    /// IPv6.
    V6(u128, u128),
}

impl Addresses {
    /// Source.
    pub fn src(self) -> IpAddr {
        match self {
            Self::V4(src, _) => Ipv4Addr::from(src).into(),
            Self::V6(src, _) => Ipv6Addr::from(src).into(),
        }
    }

    /// Destination.
    pub fn dst(self) -> IpAddr {
        match self {
            Self::V4(_, dst) => Ipv4Addr::from(dst).into(),
            Self::V6(_, dst) => Ipv6Addr::from(dst).into(),
        }
    }

    /// Whether they are these.
    #[inline]
    pub(super) fn are(self, src: IpAddr, dst: IpAddr) -> bool {
        match (self, src, dst) {
            (Self::V4(ours, theirs), IpAddr::V4(src), IpAddr::V4(dst)) => {
                ours == src.to_bits() && theirs == dst.to_bits()
            }
            (Self::V6(ours, theirs), IpAddr::V6(src), IpAddr::V6(dst)) => {
                ours == src.to_bits() && theirs == dst.to_bits()
            }
            _ => false,
        }
    }
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

/// Reads the outer IP header, whose payload has to be of a protocol; for IPv6, behind any extension headers. Sets the
/// range of the payload: `start <= end <=` the frame's length.
#[inline]
pub(super) fn ip(frame: &[u8], l3_type: Option<u16>, proto: u8, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let (l3, ethertype) = network(frame, l3_type)?;
    let packet = frame.get(l3..).ok_or(Malformed::NotIp)?;
    match ethertype {
        ETH_IPV4 => ipv4(packet, l3, proto, parsed),
        ETH_IPV6 => ipv6(packet, l3, proto, parsed),
        _ => Err(Malformed::NotIp),
    }
}

#[inline]
fn ipv4(packet: &[u8], l3: usize, proto: u8, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
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
    if header[9] != proto {
        return Err(Malformed::Protocol);
    }
    let address = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| header[at + i]));
    parsed.addresses = Addresses::V4(address(12), address(16));
    (parsed.tos, parsed.ttl) = (header[1], header[8]);
    parsed.flags = if flags_offset & 0x4000 != 0 { flags::DONT_FRAGMENT } else { 0 };
    (parsed.start, parsed.end) = (l3 + 20, l3 + total);
    Ok(())
}

#[inline]
fn ipv6(packet: &[u8], l3: usize, proto: u8, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let (header, rest) = packet.split_first_chunk::<40>().ok_or(Malformed::IpLength)?;
    if header[0] >> 4 != 6 {
        return Err(Malformed::IpLength);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = rest.get(..payload_len).ok_or(Malformed::IpLength)?;
    let skipped = if header[6] == proto { 0 } else { skip_extensions(header[6], payload, proto)? };
    let address = |at: usize| u128::from_be_bytes(std::array::from_fn(|i| header[at + i]));
    parsed.addresses = Addresses::V6(address(8), address(24));
    (parsed.tos, parsed.ttl) = (header[0] << 4 | header[1] >> 4, header[7]);
    (parsed.start, parsed.end) = (l3 + 40 + skipped, l3 + 40 + payload_len);
    Ok(())
}

/// The length in bytes of the extension headers that precede a protocol.
#[cold]
fn skip_extensions(first: u8, payload: &[u8], proto: u8) -> Result<usize, Malformed> {
    let (mut next, mut at) = (first, 0);
    while next != proto {
        let rest = payload.get(at..).ok_or(Malformed::IpLength)?;
        let unit = |n: usize, size: usize| rest.get(1).map(|len| (usize::from(*len) + n) * size);
        let bytes = match next {
            0 | 43 | 60 => unit(1, 8),
            51 => unit(2, 4),
            44 => Some(8),
            _ => return Err(Malformed::Protocol),
        };
        let header = bytes.and_then(|bytes| rest.get(..bytes)).ok_or(Malformed::IpLength)?;
        if next == 44 && u16::from_be_bytes([header[2], header[3]]) & 0xfff9 != 0 {
            return Err(Malformed::Fragment);
        }
        if next == 43 && header[3] != 0 {
            return Err(Malformed::SegmentsLeft);
        }
        at += header.len();
        next = header[0];
    }
    Ok(at)
}

/// Reads the UDP header at the start of the payload, and narrows the range to its own payload. Verifies a checksum that is
/// present (RFC 768; RFC 6935 allows its absence in IPv6, too), unless `trusted`.
#[inline]
pub(super) fn udp(frame: &[u8], trusted: bool, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let payload = frame.get(parsed.start..parsed.end).ok_or(Malformed::UdpLength)?;
    let header = payload.first_chunk::<8>().ok_or(Malformed::UdpLength)?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let len = usize::from(field(4));
    if !(8..=payload.len()).contains(&len) {
        return Err(Malformed::UdpLength);
    }
    if field(6) != 0 {
        if !trusted && !is_udp_checksum_valid(parsed.addresses, payload.get(..len).unwrap_or_default()) {
            return Err(Malformed::UdpChecksum);
        }
        parsed.flags |= flags::CHECKSUM;
    }
    (parsed.src_port, parsed.dst_port) = (field(0), field(2));
    (parsed.start, parsed.end) = (parsed.start + 8, parsed.start + len);
    Ok(())
}

fn is_udp_checksum_valid(addresses: Addresses, datagram: &[u8]) -> bool {
    let len = datagram.len() as u16;
    let pseudo = match addresses {
        Addresses::V4(src, dst) => pseudo_v4(src.to_be_bytes(), dst.to_be_bytes(), PROTO_UDP, len),
        Addresses::V6(src, dst) => pseudo_v6(&src.to_be_bytes(), &dst.to_be_bytes(), PROTO_UDP, len.into()),
    };
    (pseudo + Sum::new().bytes(datagram)).is_valid()
}
