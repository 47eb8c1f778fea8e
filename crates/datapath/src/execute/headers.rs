//! Finds the headers of a packet for actions that write them. It follows the rules of key extraction, but reads only
//! the fields that locate headers.

use flow::extract::ethertype;
use packet::{Packet, wire};

use super::vlan::has_tag;

/// IP protocols that key extraction does not parse.
pub(crate) mod proto {
    /// Datagram Congestion Control Protocol (RFC 4340).
    pub(crate) const DCCP: u8 = 33;
    /// The protocol of an IPv6 fragment without a transport header.
    pub(crate) const FRAGMENT: u8 = 44;
    /// No next header (RFC 8200 section 4.7).
    pub(crate) const NONE: u8 = 59;
    /// UDP-Lite (RFC 3828).
    pub(crate) const UDPLITE: u8 = 136;
}

/// Maximum number of VLAN tags that are parsed.
const VLANS_MAX: usize = 2;
/// Smaller values of the field are a length (IEEE 802.3).
const ETHERTYPE_MIN: u16 = 0x600;
const IPV6_HEADER: usize = 40;
const IPV4_HEADER_MIN: usize = 20;

/// The headers of a frame. Offsets are bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Headers {
    /// The control information of the outer tag, if the tag is complete.
    pub(crate) vlan_tci: Option<usize>,
    /// The Ethernet type behind the tags; 0 if there is none.
    pub(crate) ethertype: u16,
    /// The payload of the Ethernet and VLAN headers.
    pub(crate) l3: usize,
    /// The type follows 802.2 and SNAP headers, and a length is in its usual position.
    pub(crate) snap: bool,
    /// The IP header, if it is valid.
    pub(crate) ip: Option<Ip>,
}

/// An IP header and the header that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ip {
    /// Protocol of the transport header.
    pub(crate) proto: u8,
    /// The transport header; past the end of the frame if it is truncated.
    pub(crate) l4: usize,
    /// The end of the IP packet; padding follows.
    pub(crate) end: usize,
    /// A fragment of a larger packet.
    pub(crate) fragment: bool,
    /// A later fragment, which has no transport header.
    pub(crate) later: bool,
    /// A routing header has segments left, so that the destination is not yet the one in the pseudo-header
    /// (RFC 8200 section 8.1).
    pub(crate) routed: bool,
}

impl Headers {
    /// Finds the headers of a packet.
    pub(crate) fn of(packet: &Packet) -> Self {
        match packet.l3_type {
            None => Self::of_frame(packet.data(), VLANS_MAX),
            Some(_) => Self::behind_tags(packet, VLANS_MAX),
        }
    }

    /// Finds the headers of a packet behind `vlans_max` VLAN tags at most, not counting tags pushed since.
    pub(crate) fn behind_tags(packet: &Packet, vlans_max: usize) -> Self {
        let data = packet.data();
        let vlans_max = vlans_max.saturating_add_signed(packet.tags.into());
        match packet.l3_type {
            None => Self::of_frame(data, vlans_max),
            Some(ethertype) => Self { vlan_tci: None, ethertype, l3: 0, snap: false, ip: find_ip(data, ethertype, 0) },
        }
    }

    /// Finds the headers of a frame.
    fn of_frame(frame: &[u8], vlans_max: usize) -> Self {
        let mut at = 12;
        for _ in 0..vlans_max {
            // A tag counts only if an Ethernet type follows it.
            if !has_tag(frame, at) || frame.len() < at + 6 {
                break;
            }
            at += 4;
        }
        let (ethertype, l3) = ether_type(frame, at);
        let snap = l3 > at + 2;
        let ip = find_ip(frame, ethertype, l3);
        Self { vlan_tci: (at > 12).then_some(14), ethertype, l3, snap, ip }
    }

    /// Returns true if the frame's network header has this type.
    pub(crate) fn is(&self, ethertype: u16) -> bool {
        self.ethertype == ethertype
    }
}

fn find_ip(frame: &[u8], ethertype: u16, l3: usize) -> Option<Ip> {
    match ethertype {
        ethertype::IPV4 => ipv4(frame, l3),
        ethertype::IPV6 => ipv6(frame, l3),
        _ => None,
    }
}

/// Returns the Ethernet type at `at` and the offset of its payload, also behind 802.2 and SNAP headers.
fn ether_type(frame: &[u8], at: usize) -> (u16, usize) {
    let first = be16(frame, at).unwrap_or(0);
    if first < ETHERTYPE_MIN
        && frame.get(at + 2..at + 8) == Some(&[0xaa, 0xaa, 3, 0, 0, 0])
        && let Some(inner) = be16(frame, at + 8).filter(|t| *t >= ETHERTYPE_MIN)
    {
        return (inner, at + 10);
    }
    (first, at + 2)
}

fn byte(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

fn ipv4(frame: &[u8], l3: usize) -> Option<Ip> {
    let header = frame.get(l3..)?;
    let header_len = usize::from(byte(header, 0)? & 0xf) * 4;
    let total = usize::from(be16(header, 2)?);
    if header_len < IPV4_HEADER_MIN || header_len > total || total > header.len() {
        return None;
    }
    let frag = be16(header, 6)?;
    Some(Ip {
        proto: byte(header, 9)?,
        l4: l3 + header_len,
        end: l3 + total,
        fragment: frag & 0x3fff != 0,
        later: frag & 0x1fff != 0,
        routed: false,
    })
}

fn ipv6(frame: &[u8], l3: usize) -> Option<Ip> {
    let header = frame.get(l3..)?.first_chunk::<IPV6_HEADER>()?;
    let at = l3 + IPV6_HEADER;
    let end = at + usize::from(be16(header, 4)?);
    let payload = frame.get(at..end)?;
    let Some(ext) = wire::extensions(header[6], payload) else {
        // The header chain is truncated: there is no transport header to write to.
        return Some(Ip { proto: proto::NONE, l4: end, end, fragment: false, later: false, routed: false });
    };
    let later = ext.proto == proto::FRAGMENT;
    Some(Ip { proto: ext.proto, l4: at + ext.len, end, fragment: ext.fragment, later, routed: ext.routed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::extract::ipproto;
    use proptest::prelude::*;

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn tagged_ipv4_with_options_and_padding() {
        let mut ip = [0u8; 24];
        ip[0] = 0x46;
        ip[3] = 32;
        ip[9] = ipproto::UDP;
        let f = frame(&[&[0; 12], &[0x81, 0, 0, 5, 8, 0], &ip, &[0; 8], &[0; 9]]);
        let h = Headers::of_frame(&f, VLANS_MAX);
        let ip = h.ip.expect("whole");
        assert_eq!((h.vlan_tci, h.l3, ip.l4, ip.end, ip.proto), (Some(14), 18, 42, 50, ipproto::UDP));
    }

    #[test]
    fn ipv6_chain_with_routing_and_fragment() {
        let mut ip = [0u8; 40];
        ip[0] = 0x60;
        ip[5] = 8 + 8 + 20;
        ip[6] = ipproto::ROUTING;
        let routing = [ipproto::FRAGMENT, 0, 4, 1, 0, 0, 0, 0];
        let first = [ipproto::TCP, 0, 0, 1, 0, 0, 0, 7];
        let f = frame(&[&[0; 12], &[0x86, 0xdd], &ip, &routing, &first, &[0; 20]]);
        let ip = Headers::of_frame(&f, VLANS_MAX).ip.expect("whole");
        assert!(ip.routed && ip.fragment && !ip.later);
        assert_eq!((ip.proto, ip.l4, ip.end), (ipproto::TCP, 70, 90));
    }

    tally::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0..4usize) {
            let mut f = bytes;
            let head: &[u8] = [&[][..], &[8, 0, 0x45], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 0], &[0x81, 0]][kind];
            for (i, b) in head.iter().enumerate() {
                if let Some(at) = f.get_mut(12 + i) {
                    *at = *b;
                }
            }
            let h = Headers::of_frame(&f, VLANS_MAX);
            if let Some(ip) = h.ip {
                prop_assert!(ip.end <= f.len() && h.l3 < ip.end && ip.l4 <= ip.end);
            }
        }
    }
}
