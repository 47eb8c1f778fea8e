//! Headers: one file for each protocol, with a checked view of bytes and a value ("repr").
//!
//! A view (`Header<T>`) wraps bytes that `new_checked` found long enough for the fixed part of the header, and reads
//! and writes its fields in place. Its accessors rely on that check and cannot panic. A repr is the header as a value:
//! `parse` reads it, `emit` writes it. Lengths and checksums that depend on the payload are arguments.

#[macro_use]
mod view;

mod arp;
mod ethernet;
mod head;
mod icmp;
mod igmp;
mod ipv4;
mod ipv6;
mod mpls;
mod nd;
mod nsh;
mod sctp;
mod tcp;
mod udp;

pub use arp::{Arp, ArpRepr};
pub use ethernet::{Ethernet, EthernetRepr, Vlan, VlanRepr};
pub use head::Head;
pub use icmp::{Icmp, IcmpRepr};
pub use igmp::{Igmp, IgmpRepr};
pub use ipv4::{Ipv4, Ipv4Repr};
pub use ipv6::{Extensions, Ipv6, Ipv6Repr, extensions};
pub use mpls::{Mpls, MplsRepr};
pub use nd::{Nd, NdOption, NdRepr, nd_options};
pub use nsh::{Nsh, NshRepr};
pub use sctp::{Sctp, SctpRepr};
pub use tcp::{Tcp, TcpRepr};
pub use udp::{Udp, UdpRepr};
pub use view::Truncated;

use crate::checksum::{Sum, pseudo_v4, pseudo_v6};

/// Transport protocols whose checksum this crate computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP (6).
    Tcp,
    /// UDP (17).
    Udp,
    /// ICMP (1).
    Icmp,
    /// ICMPv6 (58).
    Icmpv6,
    /// SCTP (132).
    Sctp,
}

impl Transport {
    /// By IP protocol number.
    pub fn of(proto: u8) -> Option<Self> {
        Some(match proto {
            6 => Self::Tcp,
            17 => Self::Udp,
            1 => Self::Icmp,
            58 => Self::Icmpv6,
            132 => Self::Sctp,
            _ => return None,
        })
    }
}

/// An IP packet found in a frame. Invariant: `at + header <= l4 <= end <=` the frame's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ip {
    /// 4 or 6.
    pub version: u8,
    /// Offset of the IP header in the frame.
    pub at: usize,
    /// Length of the IP header, without IPv6 extension headers.
    pub header: usize,
    /// Protocol after extension headers.
    pub proto: u8,
    /// Whether it is a fragment, first or later.
    pub fragment: bool,
    /// Whether an IPv6 routing header has segments left. Transport checksums then cover the final destination, not the
    /// destination in the header.
    pub routed: bool,
    /// Offset of the transport header.
    pub l4: usize,
    /// End of the IP packet; Ethernet padding follows.
    pub end: usize,
}

/// Offset and Ethernet type of the network header, after any number of VLAN tags.
pub fn network(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    loop {
        let kind = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
        match kind {
            0x8100 | 0x88a8 => at += 4,
            _ => return Some((at + 2, kind)),
        }
    }
}

/// The IP packet in an Ethernet frame, if its length fields fit the frame.
pub fn ip(frame: &[u8]) -> Option<Ip> {
    let (at, kind) = network(frame)?;
    let rest = frame.get(at..)?;
    match kind {
        0x0800 => {
            let h = Ipv4::new_checked(rest).ok()?;
            let (header, total) = (h.header_len(), usize::from(h.total_len()));
            let fits = header >= 20 && header <= total && total <= rest.len();
            fits.then(|| Ip {
                version: 4,
                at,
                header,
                proto: h.proto(),
                fragment: h.flags_offset() & 0x3fff != 0,
                routed: false,
                l4: at + header,
                end: at + total,
            })
        }
        0x86dd => {
            let h = Ipv6::new_checked(rest).ok()?;
            let payload = rest.get(40..40 + usize::from(h.payload_len()))?;
            let ext = extensions(h.next_header(), payload)?;
            Some(Ip {
                version: 6,
                at,
                header: 40,
                proto: ext.proto,
                fragment: ext.fragment,
                routed: ext.routed,
                l4: at + 40 + ext.len,
                end: at + 40 + payload.len(),
            })
        }
        _ => None,
    }
}

/// The sum of the pseudo-header of IP packet `ip`, for a transport header and payload up to its end. (If `ip.routed` is
/// set, the transport checksum covers another destination.)
pub fn pseudo(frame: &[u8], ip: &Ip) -> Sum {
    let len = ip.end - ip.l4;
    if ip.version == 4 {
        let h = Ipv4(&frame[ip.at..]);
        pseudo_v4(h.src().to_be_bytes(), h.dst().to_be_bytes(), ip.proto, len as u16)
    } else {
        let h = Ipv6(&frame[ip.at..]);
        pseudo_v6(&h.src().to_be_bytes(), &h.dst().to_be_bytes(), ip.proto, len as u32)
    }
}

#[cfg(test)]
mod tests;
