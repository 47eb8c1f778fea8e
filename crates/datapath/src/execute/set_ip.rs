//! Writing fields of IPv4 and IPv6 headers, with the header checksum and the transport checksums that cover the
//! addresses through a pseudo-header.

use base::DropReason;
use flow::Field;
use flow::extract::{ethertype, ipproto};
use packet::{Checksum, Packet};

use super::headers::{Headers, Ip, proto};
use super::set::{Bits, adjusted, change16, write};

/// Sets a field of the IP header. Does nothing if the packet has the other IP version or is not IP.
pub(super) fn set(packet: &mut Packet, headers: &Headers, field: Field, bits: Bits) -> Result<(), DropReason> {
    let v4 = headers.is(ethertype::IPV4);
    if !v4 && !headers.is(ethertype::IPV6) {
        return Ok(());
    }
    let ip = headers.ip.ok_or(DropReason::Truncated)?;
    let l3 = headers.l3;
    match field {
        Field::Ipv4Src if v4 => ipv4_address(packet, l3, 12, &ip, bits),
        Field::Ipv4Dst if v4 => ipv4_address(packet, l3, 16, &ip, bits),
        Field::IpDscpShifted if v4 => ipv4(packet, l3, 0, 2, bits.and(0xfc)).map(|_| ()),
        Field::IpDscp if v4 => ipv4(packet, l3, 0, 2, bits.shl(2)).map(|_| ()),
        Field::IpEcn if v4 => ipv4(packet, l3, 0, 2, bits).map(|_| ()),
        Field::IpTtl if v4 => ipv4(packet, l3, 8, 2, bits.shl(8)).map(|_| ()),
        Field::Ipv6Src if !v4 => ipv6_address(packet, l3 + 8, &ip, true, bits),
        Field::Ipv6Dst if !v4 => ipv6_address(packet, l3 + 24, &ip, !ip.routed, bits),
        Field::Ipv6Label if !v4 => write(packet.data_mut(), l3, 4, bits.and(0xf_ffff)).map(|_| ()),
        // The traffic class is 4 bits further left than in IPv4.
        Field::IpDscpShifted if !v4 => write(packet.data_mut(), l3, 2, bits.and(0xfc).shl(4)).map(|_| ()),
        Field::IpDscp if !v4 => write(packet.data_mut(), l3, 2, bits.shl(6)).map(|_| ()),
        Field::IpEcn if !v4 => write(packet.data_mut(), l3, 2, bits.shl(4)).map(|_| ()),
        Field::IpTtl if !v4 => write(packet.data_mut(), l3 + 6, 2, bits).map(|_| ()),
        _ => Ok(()),
    }
}

/// Writes into the IPv4 header and updates its checksum. Returns the change of the sum.
#[inline]
fn ipv4(packet: &mut Packet, l3: usize, at: usize, n: usize, bits: Bits) -> Result<Option<u16>, DropReason> {
    let delta = write(packet.data_mut(), l3 + at, n, bits)?;
    if let Some(delta) = delta {
        change16(packet.data_mut(), l3 + 10, |c| adjusted(c, delta));
    }
    Ok(delta)
}

fn ipv4_address(packet: &mut Packet, l3: usize, at: usize, ip: &Ip, bits: Bits) -> Result<(), DropReason> {
    if let Some(delta) = ipv4(packet, l3, at, 4, bits)? {
        pseudo_header(packet, ip, ethertype::IPV4, delta);
    }
    Ok(())
}

fn ipv6_address(packet: &mut Packet, at: usize, ip: &Ip, covered: bool, bits: Bits) -> Result<(), DropReason> {
    if let Some(delta) = write(packet.data_mut(), at, 16, bits)?
        && covered
    {
        pseudo_header(packet, ip, ethertype::IPV6, delta);
    }
    Ok(())
}

/// Updates the transport checksum after the sum of the pseudo-header grew by `delta`. A header that is truncated
/// before its checksum stays unchanged.
fn pseudo_header(packet: &mut Packet, ip: &Ip, version: u16, delta: u16) {
    if ip.later {
        return;
    }
    let (at, header_len) = match ip.proto {
        ipproto::TCP => (16, 20),
        ipproto::UDP | proto::UDPLITE => (6, 8),
        proto::DCCP => (6, 12),
        ipproto::ICMPV6 if version == ethertype::IPV6 => (2, 4),
        _ => return,
    };
    if ip.l4 + header_len > ip.end {
        return;
    }
    let partial = is_partial(packet, ip.l4);
    let optional = ip.proto == ipproto::UDP;
    change16(packet.data_mut(), ip.l4 + at, |checksum| adjust_transport(checksum, delta, partial, optional));
}

/// Returns true if the transport header at `l4` has a partial checksum, whose field only holds the sum of the
/// pseudo-header.
pub(super) fn is_partial(packet: &Packet, l4: usize) -> bool {
    matches!(packet.offload.checksum, Checksum::Partial { start, .. } if usize::from(start) == l4)
}

/// Returns a transport checksum after its sum grew by `delta`. The field of a partial checksum is the sum itself; an
/// `optional` one (UDP) is absent if 0, and a computed 0 is sent as all ones (RFC 768).
pub(super) fn adjust_transport(checksum: u16, delta: u16, partial: bool, optional: bool) -> u16 {
    if partial {
        return !adjusted(!checksum, delta);
    }
    if optional && checksum == 0 {
        return 0;
    }
    match adjusted(checksum, delta) {
        0 if optional => 0xffff,
        new => new,
    }
}
