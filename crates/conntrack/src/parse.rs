//! From the bytes of a packet to its key.
//!
//! The headers are found as key extraction finds them: behind up to two VLAN tags, with IPv4 options and IPv6 extension
//! headers, in packets whose length fields fit the frame. A packet is tracked if, as Open vSwitch demands,
//!
//! - its IPv4 header has a valid checksum, and it is no fragment;
//! - its TCP, UDP, SCTP or ICMP header is complete, has lengths that fit, ports other than 0, and a valid checksum, which
//!   is not verified if the offload flags vouch for it;
//! - an ICMP message is a request or reply that has an identifier, with code 0, or an error about a packet that its
//!   receiver sent.
//!
//! Packets of all other protocols have a key without ports.

mod transport;

#[cfg(test)]
pub(crate) mod frames;
#[cfg(test)]
mod tests;

use packet::checksum::{Sum, pseudo_v4};
use packet::wire::Head;
use packet::{Checksum, Packet, wire};

use crate::key::{Key, ipproto};

/// Ethernet types that lead to an IP header.
mod ethertype {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const VLAN: u16 = 0x8100;
    pub(super) const QINQ: u16 = 0x88a8;
    pub(super) const IPV6: u16 = 0x86dd;
    /// Smaller values of the field are a length (IEEE 802.3).
    pub(super) const MIN: u16 = 0x600;
}

/// Maximum number of VLAN tags of a received frame.
const VLANS_MAX: usize = 2;
pub(crate) const IPV4_HEADER_MIN: usize = 20;
const IPV6_HEADER: usize = 40;
/// The fragment bits of IPv4: more fragments, and the offset in units of 8 bytes (RFC 791 section 3.1).
const IPV4_MORE: u16 = 0x2000;
const IPV4_OFFSET: u16 = 0x1fff;
/// The fragment bits of IPv6 (RFC 8200 section 4.5).
const IPV6_MORE: u16 = 1;
const IPV6_OFFSET: u16 = 0xfff8;

/// A packet that can be tracked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// Its key. For an ICMP error: the key, in the same zone, that a packet of the direction of the error would have, that
    /// is, the key of the embedded packet reversed.
    pub key: Key,
    /// Offset of the IP header.
    pub l3: usize,
    /// Offset of the transport header.
    pub l4: usize,
    /// End of the IP packet.
    pub end: usize,
    /// For an ICMP error: the embedded packet.
    pub embedded: Option<Embedded>,
}

/// The packet inside of an ICMP error. Offsets are bytes from the start of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// Offset of its IP header.
    pub l3: usize,
    /// Offset of its transport header, of which at least 8 bytes are there if the tracker knows the protocol.
    pub l4: usize,
    /// Its protocol.
    pub proto: u8,
}

/// Why a packet has no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Not IP, cut off, with fields that contradict each other, or of a kind that is not tracked.
    Malformed,
    /// The IPv4 header has a wrong checksum.
    L3Checksum,
    /// So has that of a fragment.
    FragmentChecksum,
    /// The transport checksum is wrong.
    L4Checksum,
    /// A fragment.
    Fragment(Fragment),
}

/// A fragment of an IP packet. Offsets are bytes from the start of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Offset of the IP header.
    pub l3: usize,
    /// Offset of the IPv6 fragment header; that of the IP header for IPv4.
    pub header: usize,
    /// Where the fragment's payload begins.
    pub payload: usize,
    /// End of the IP packet.
    pub end: usize,
    /// Whether it is IPv6.
    pub is_v6: bool,
    /// Offset of the payload in the whole packet, in bytes.
    pub offset: usize,
    /// Whether more fragments follow.
    pub more: bool,
    /// Identification.
    pub id: u32,
    /// Protocol of the payload. In IPv6 it may be that of an extension header.
    pub proto: u8,
}

/// Offsets of an IP packet in its frame.
#[derive(Clone, Copy, Debug)]
struct Span {
    l3: usize,
    l4: usize,
    end: usize,
}

/// Finds the key of a packet.
///
/// # Errors
/// If the packet cannot be tracked, or only after reassembly.
#[inline]
pub fn parse(packet: &Packet, zone: u16) -> Result<Parsed, Refusal> {
    if packet.l3_type.is_none()
        && let Some(l3) = plain(packet.data())
    {
        return parse_known(packet, zone, &Head::at(packet.data(), l3).ok_or(Refusal::Malformed)?);
    }
    parse_any(packet, zone)
}

/// The key that an untagged packet of TCP or UDP over IPv4 has if it is well formed; `None` for others. A hint for the look-up
/// to come: nothing is checked.
#[inline]
pub(crate) fn peek(packet: &Packet, zone: u16) -> Option<Key> {
    let frame = packet.data().first_chunk::<38>()?;
    let &[ethertype @ .., version] = frame[12..].first_chunk::<3>()?;
    let proto = frame[23];
    if (ethertype, version) != ([8, 0], 0x45) || !matches!(proto, ipproto::TCP | ipproto::UDP) {
        return None;
    }
    let address = |at: usize| frame[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let port = |at: usize| frame[at..].first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
    Some(Key {
        src: [0, address(26).into()],
        dst: [0, address(30).into()],
        src_port: port(34),
        dst_port: port(36),
        zone,
        proto,
        is_v6: false,
    })
}

/// Like [`parse`], for a packet with known headers.
///
/// # Errors
/// If the packet cannot be tracked.
#[inline]
fn parse_known(packet: &Packet, zone: u16, head: &Head<'_>) -> Result<Parsed, Refusal> {
    check_known(head, packet.offload.checksum)?;
    let at = head.l3 + IPV4_HEADER_MIN;
    let (src, dst) = ([0, head.src().into()], [0, head.dst().into()]);
    let key = Key { src, dst, zone, proto: head.proto(), ..Key::default() };
    transport::with_ports(Span { l3: head.l3, l4: at, end: at + head.l4.len() }, key, head.ports())
}

/// Checks all of a packet but its ports.
///
/// # Errors
/// If the packet cannot be tracked.
#[inline(always)]
pub(crate) fn check_known(head: &Head<'_>, checksum: Checksum) -> Result<(), Refusal> {
    if !Sum::new().ipv4_header(head.ip).is_valid() {
        return Err(Refusal::L3Checksum);
    }
    let l4 = head.l4;
    let pseudo = || pseudo_v4(head.src().to_be_bytes(), head.dst().to_be_bytes(), head.proto(), l4.len() as u16);
    match head.proto() {
        ipproto::TCP => transport::check_tcp(checksum, l4, pseudo),
        _ => transport::check_udp(checksum, l4, false, pseudo),
    }
}

/// The offset of the IPv4 header of the most frequent frames: without options or fragments, with TCP or UDP, behind at most one
/// VLAN tag.
#[inline]
fn plain(frame: &[u8]) -> Option<usize> {
    let start = frame.first_chunk::<18>()?;
    let l3 = match be16(start, 12) {
        ethertype::IPV4 => 14,
        ethertype::VLAN | ethertype::QINQ if be16(start, 16) == ethertype::IPV4 => 18,
        _ => return None,
    };
    let header: &[u8; IPV4_HEADER_MIN + 8] = frame.get(l3..)?.first_chunk()?;
    let known = header[0] & 0xf == 5 && be16(header, 6) & (IPV4_MORE | IPV4_OFFSET) == 0;
    (known && matches!(header[9], ipproto::TCP | ipproto::UDP)).then_some(l3)
}

/// Parses a packet of any kind.
#[inline(never)]
fn parse_any(packet: &Packet, zone: u16) -> Result<Parsed, Refusal> {
    let (kind, l3) = match packet.l3_type {
        Some(kind) => (kind, 0),
        None => network(packet.data(), VLANS_MAX.saturating_add_signed(packet.tags.max(0).into())),
    };
    match kind {
        ethertype::IPV4 => ipv4(packet, zone, l3),
        ethertype::IPV6 => ipv6(packet, zone, l3),
        _ => Err(Refusal::Malformed),
    }
}

/// The Ethernet type of a frame behind at most `vlans_max` VLAN tags, and the offset of the network header, which may
/// follow 802.2 and SNAP headers.
fn network(frame: &[u8], vlans_max: usize) -> (u16, usize) {
    let kind_at = |at| get16(frame, at).unwrap_or(0);
    let mut at = 12;
    for _ in 0..vlans_max {
        // A tag counts only if an Ethernet type follows it.
        if !matches!(kind_at(at), ethertype::VLAN | ethertype::QINQ) || frame.len() < at + 6 {
            break;
        }
        at += 4;
    }
    let kind = kind_at(at);
    if kind < ethertype::MIN && frame.get(at + 2..at + 8) == Some(&[0xaa, 0xaa, 3, 0, 0, 0]) {
        return (kind_at(at + 8), at + 10);
    }
    (kind, at + 2)
}

fn ipv4(packet: &Packet, zone: u16, l3: usize) -> Result<Parsed, Refusal> {
    let frame = packet.data();
    let rest = frame.get(l3..).ok_or(Refusal::Malformed)?;
    let header = rest.first_chunk::<IPV4_HEADER_MIN>().ok_or(Refusal::Malformed)?;
    let (header_len, total) = (usize::from(header[0] & 0xf) * 4, usize::from(be16(header, 2)));
    if header_len < IPV4_HEADER_MIN || header_len > total || total > rest.len() {
        return Err(Refusal::Malformed);
    }
    let fragment = be16(header, 6);
    let is_fragment = fragment & (IPV4_MORE | IPV4_OFFSET) != 0;
    if !Sum::new().bytes(&rest[..header_len]).is_valid() {
        return Err(if is_fragment { Refusal::FragmentChecksum } else { Refusal::L3Checksum });
    }
    let span = Span { l3, l4: l3 + header_len, end: l3 + total };
    if is_fragment {
        return Err(Refusal::Fragment(Fragment {
            l3,
            header: l3,
            payload: span.l4,
            end: span.end,
            is_v6: false,
            offset: usize::from(fragment & IPV4_OFFSET) * 8,
            more: fragment & IPV4_MORE != 0,
            id: be16(header, 4).into(),
            proto: header[9],
        }));
    }
    let key = ipv4_key(header, zone);
    let l4 = &rest[header_len..total];
    transport::parse(packet, span, key, l4, first_word(l4))
}

fn ipv6(packet: &Packet, zone: u16, l3: usize) -> Result<Parsed, Refusal> {
    let frame = packet.data();
    let header = frame.get(l3..).and_then(|rest| rest.first_chunk::<IPV6_HEADER>()).ok_or(Refusal::Malformed)?;
    let start = l3 + IPV6_HEADER;
    let end = start + usize::from(be16(header, 4));
    let payload = frame.get(start..end).ok_or(Refusal::Malformed)?;
    let extensions = wire::extensions(header[6], payload).ok_or(Refusal::Malformed)?;
    if extensions.fragment {
        let found = ipv6_fragment(header[6], payload).ok_or(Refusal::Malformed)?;
        let (header, payload) = (start + found.header, start + found.payload);
        return Err(Refusal::Fragment(Fragment { l3, header, payload, end, ..found }));
    }
    let l4 = &payload[extensions.len..];
    let key = ipv6_key(header, extensions.proto, zone);
    transport::parse(packet, Span { l3, l4: start + extensions.len, end }, key, l4, first_word(l4))
}

/// The first fragment header of a payload that begins with protocol `next`, unless the header is that of a whole packet.
/// Offsets count from the start of the payload.
#[cold]
fn ipv6_fragment(mut next: u8, payload: &[u8]) -> Option<Fragment> {
    let mut at = 0;
    loop {
        let rest = payload.get(at..)?;
        let len = match next {
            ipproto::FRAGMENT => 8,
            ipproto::HOPOPTS | ipproto::ROUTING | ipproto::DSTOPTS => (usize::from(*rest.get(1)?) + 1) * 8,
            ipproto::AH => (usize::from(*rest.get(1)?) + 2) * 4,
            _ => return None,
        };
        let header = rest.get(..len)?;
        let fragment = be16(header, 2);
        if next == ipproto::FRAGMENT && fragment & (IPV6_OFFSET | IPV6_MORE) != 0 {
            return Some(Fragment {
                l3: 0,
                header: at,
                payload: at + len,
                end: payload.len(),
                is_v6: true,
                offset: usize::from(fragment & IPV6_OFFSET),
                more: fragment & IPV6_MORE != 0,
                id: be32(header, 4),
                proto: header[0],
            });
        }
        next = header[0];
        at += len;
    }
}

/// The key of an IPv4 header, without ports.
fn ipv4_key(header: &[u8; IPV4_HEADER_MIN], zone: u16) -> Key {
    let address = |at| [0, u64::from(be32(header, at))];
    Key { src: address(12), dst: address(16), zone, proto: header[9], ..Key::default() }
}

/// The key of an IPv6 header, without ports.
fn ipv6_key(header: &[u8; IPV6_HEADER], proto: u8, zone: u16) -> Key {
    let half = |at| u64::from(be32(header, at)) << 32 | u64::from(be32(header, at + 4));
    Key { src: [half(8), half(16)], dst: [half(24), half(32)], zone, proto, is_v6: true, ..Key::default() }
}

/// The first four bytes, 0 if there are fewer.
fn first_word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

fn get16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// 16 bits of a header that is long enough.
#[inline(always)]
fn be16(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// 32 bits of a header that is long enough.
#[inline(always)]
fn be32(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}
