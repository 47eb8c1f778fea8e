//! An inner packet directly behind UDP: IP, or MPLS (RFC 7510).

use super::pop::{Inner, Parsed};
use super::{ETH_MPLS, ETH_MPLS_MULTICAST, Malformed, ip_type};

/// The inner packets of a port (`options:payload_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Payload {
    /// IPv4 and IPv6.
    Ip,
    /// MPLS. Packets to a multicast group have upstream-assigned labels (RFC 7510 section 3).
    Mpls,
}

/// Finds the type of the inner packet.
#[inline]
pub(super) fn decode(payload: &[u8], kind: Payload, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let ethertype = match kind {
        Payload::Ip => ip_type(payload).ok_or(Malformed::InnerProtocol)?,
        Payload::Mpls if parsed.addresses.dst().is_multicast() => ETH_MPLS_MULTICAST,
        Payload::Mpls => ETH_MPLS,
    };
    parsed.inner = Inner::L3(ethertype);
    Ok(())
}
