//! Segment routing over IPv6: an inner IP packet behind a segment routing header (RFC 8754, RFC 8986).

use super::pop::{Inner, Parsed};
use super::{Addresses, ETH_IPV4, ETH_IPV6, Malformed, PROTO_IPIP, PROTO_IPV6};
use std::net::Ipv6Addr;

/// Most segments of a header to be pushed.
pub const SEGMENTS_MAX: usize = 16;

/// Bytes of the header without segments.
pub(super) const LEN: usize = 8;

/// Routing type of segment routing.
const ROUTING_TYPE: u8 = 4;

/// Where the outer flow label of a packet comes from (`options:srv6_flowlabel`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowLabel {
    /// The label of an inner IPv6 packet; 0 for IPv4.
    #[default]
    Copy,
    /// 0.
    Zero,
    /// The hash of the packet's flow.
    Compute,
}

impl FlowLabel {
    /// The number that a datapath action's text has in the outer header's label.
    pub(super) fn number(self) -> u32 {
        self as u32
    }

    /// By [`Self::number`].
    pub(super) fn numbered(number: u32) -> Option<Self> {
        [Self::Copy, Self::Zero, Self::Compute].into_iter().find(|label| label.number() == number)
    }
}

/// A segment routing header to be pushed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Srv6 {
    /// The segments in the order of the path, 1 to [`SEGMENTS_MAX`]; the first is the outer destination.
    pub segments: Box<[Ipv6Addr]>,
    /// The source of the outer flow label, which replaces that of [`OuterIp`](super::OuterIp)'s.
    pub flow_label: FlowLabel,
}

impl Srv6 {
    /// Appends the header with a next header of 0.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let n = self.segments.len();
        let last = n.saturating_sub(1) as u8;
        out.extend([0, (2 * n) as u8, ROUTING_TYPE, last, last, 0, 0, 0]);
        out.extend(self.segments.iter().rev().flat_map(Ipv6Addr::octets));
    }
}

/// The next header for packets of an Ethernet type.
#[inline]
pub(super) fn next_header(l3_type: Option<u16>) -> Option<u8> {
    match l3_type {
        Some(ETH_IPV4) => Some(PROTO_IPIP),
        Some(ETH_IPV6) => Some(PROTO_IPV6),
        _ => None,
    }
}

/// Reads a header, which has to be the packet's last stop. Flags, tag and TLVs are ignored.
#[inline]
pub(super) fn decode(payload: &[u8], parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let header = payload.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    if matches!(parsed.addresses, Addresses::V4(..)) {
        return Err(Malformed::Protocol);
    }
    if header[2] != ROUTING_TYPE {
        return Err(Malformed::RoutingType);
    }
    if header[3] != 0 {
        return Err(Malformed::SegmentsLeft);
    }
    let len = LEN + usize::from(header[1]) * 8;
    if payload.len() < len {
        return Err(Malformed::Length);
    }
    parsed.inner = match header[0] {
        PROTO_IPIP => Inner::L3(ETH_IPV4),
        PROTO_IPV6 => Inner::L3(ETH_IPV6),
        _ => return Err(Malformed::InnerProtocol),
    };
    parsed.start += len;
    Ok(())
}
