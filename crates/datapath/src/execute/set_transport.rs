//! Writing fields of TCP, UDP, SCTP, ICMP and neighbour discovery headers, with their checksums.

use base::DropReason;
use flow::Field;
use flow::extract::{ethertype, ipproto};
use packet::Packet;
use packet::checksum::crc32c;

use super::headers::{Headers, Ip};
use super::set::{Bits, change16, write};
use super::set_ip::{adjust_transport, is_partial};

/// Neighbour solicitation and advertisement (RFC 4861 section 4).
const ND_SOLICIT: u8 = 135;
const ND_ADVERT: u8 = 136;
/// Offset of the options, behind header and target.
const ND_OPTIONS: usize = 24;
const ND_OPTION_SLL: u8 = 1;
const ND_OPTION_TLL: u8 = 2;

/// Sets a field of the transport header. Does nothing if the packet has no such header, for example in a later
/// fragment.
pub(super) fn set(packet: &mut Packet, headers: &Headers, field: Field, bits: Bits) -> Result<(), DropReason> {
    let v6 = headers.is(ethertype::IPV6);
    if !v6 && !headers.is(ethertype::IPV4) {
        return Ok(());
    }
    let Some(ip) = headers.ip.filter(|ip| !ip.later) else { return Ok(()) };
    match field {
        Field::TcpSrc if ip.proto == ipproto::TCP => with_checksum(packet, &ip, TCP, 0, 2, bits),
        Field::TcpDst if ip.proto == ipproto::TCP => with_checksum(packet, &ip, TCP, 2, 2, bits),
        Field::UdpSrc if ip.proto == ipproto::UDP => with_checksum(packet, &ip, UDP, 0, 2, bits),
        Field::UdpDst if ip.proto == ipproto::UDP => with_checksum(packet, &ip, UDP, 2, 2, bits),
        Field::SctpSrc if ip.proto == ipproto::SCTP => sctp(packet, &ip, 0, bits),
        Field::SctpDst if ip.proto == ipproto::SCTP => sctp(packet, &ip, 2, bits),
        Field::Icmpv4Type if !v6 && ip.proto == ipproto::ICMP => with_checksum(packet, &ip, ICMP, 0, 2, bits.shl(8)),
        Field::Icmpv4Code if !v6 && ip.proto == ipproto::ICMP => with_checksum(packet, &ip, ICMP, 0, 2, bits),
        Field::Icmpv6Type if v6 && ip.proto == ipproto::ICMPV6 => with_checksum(packet, &ip, ICMP, 0, 2, bits.shl(8)),
        Field::Icmpv6Code if v6 && ip.proto == ipproto::ICMPV6 => with_checksum(packet, &ip, ICMP, 0, 2, bits),
        Field::NdTarget | Field::NdSll | Field::NdTll | Field::NdReserved | Field::NdOptionsType
            if v6 && ip.proto == ipproto::ICMPV6 =>
        {
            neighbour(packet, &ip, field, bits)
        }
        _ => Ok(()),
    }
}

/// The layout of a type of transport header.
#[derive(Clone, Copy)]
struct Layout {
    header_len: usize,
    checksum_at: usize,
    /// A checksum of 0 means that there is none.
    optional: bool,
}

const TCP: Layout = Layout { header_len: 20, checksum_at: 16, optional: false };
const UDP: Layout = Layout { header_len: 8, checksum_at: 6, optional: true };
const ICMP: Layout = Layout { header_len: 4, checksum_at: 2, optional: false };

/// Writes `n` bytes `at` bytes into a transport header and updates its checksum. A partial checksum does not cover
/// the header yet.
fn with_checksum(
    packet: &mut Packet,
    ip: &Ip,
    layout: Layout,
    at: usize,
    n: usize,
    bits: Bits,
) -> Result<(), DropReason> {
    if ip.l4 + layout.header_len.max(at + n) > ip.end {
        return Err(DropReason::Truncated);
    }
    let partial = is_partial(packet, ip.l4);
    if let Some(delta) = write(packet.data_mut(), ip.l4 + at, n, bits)?
        && !partial
    {
        let mend = |checksum| adjust_transport(checksum, delta, false, layout.optional);
        change16(packet.data_mut(), ip.l4 + layout.checksum_at, mend);
    }
    Ok(())
}

/// Writes a port of an SCTP header. A correct checksum is recomputed; a wrong one stays wrong by the same bits.
fn sctp(packet: &mut Packet, ip: &Ip, at: usize, bits: Bits) -> Result<(), DropReason> {
    const CHECKSUM: usize = 8;
    if ip.l4 + 12 > ip.end {
        return Err(DropReason::Truncated);
    }
    if is_partial(packet, ip.l4) {
        return write(packet.data_mut(), ip.l4 + at, 2, bits).map(|_| ());
    }
    if ip.fragment {
        // The checksum covers data in other fragments.
        return Err(DropReason::Fragment);
    }
    let frame = packet.data_mut().get_mut(ip.l4..ip.end).ok_or(DropReason::Truncated)?;
    let field = |frame: &mut [u8], new: [u8; 4]| {
        let place = frame[CHECKSUM..].first_chunk_mut::<4>().expect("12 bytes are there");
        std::mem::replace(place, new)
    };
    let old = u32::from_le_bytes(field(frame, [0; 4]));
    let before = crc32c(frame);
    let written = write(frame, at, 2, bits);
    field(frame, (old ^ before ^ crc32c(frame)).to_le_bytes());
    written.map(|_| ())
}

/// Writes a field of a neighbour solicitation or advertisement.
fn neighbour(packet: &mut Packet, ip: &Ip, field: Field, bits: Bits) -> Result<(), DropReason> {
    let message = packet.data().get(ip.l4..ip.end).and_then(|m| m.first_chunk::<2>());
    let [kind, code] = *message.ok_or(DropReason::Truncated)?;
    if (kind != ND_SOLICIT && kind != ND_ADVERT) || code != 0 {
        return Ok(());
    }
    if ip.l4 + ND_OPTIONS > ip.end {
        return Err(DropReason::Truncated);
    }
    match field {
        Field::NdReserved => with_checksum(packet, ip, ICMP, 4, 4, bits),
        Field::NdTarget => with_checksum(packet, ip, ICMP, 8, 16, bits),
        // The option's length is the other half of the word.
        Field::NdOptionsType if ip.l4 + ND_OPTIONS + 2 <= ip.end => {
            with_checksum(packet, ip, ICMP, ND_OPTIONS, 2, bits.shl(8))
        }
        Field::NdSll if kind == ND_SOLICIT => link_layer_option(packet, ip, ND_OPTION_SLL, bits),
        Field::NdTll if kind == ND_ADVERT => link_layer_option(packet, ip, ND_OPTION_TLL, bits),
        _ => Ok(()),
    }
}

/// Writes the address of the first link-layer address option of type `wanted`, if there is one (RFC 4861 section
/// 4.6.1).
fn link_layer_option(packet: &mut Packet, ip: &Ip, wanted: u8, bits: Bits) -> Result<(), DropReason> {
    let mut at = ND_OPTIONS;
    while let Some([kind, len]) = packet.data().get(ip.l4 + at..ip.end).and_then(|o| o.first_chunk::<2>()) {
        let size = usize::from(*len) * 8;
        if size == 0 || ip.l4 + at + size > ip.end {
            return Ok(());
        }
        if *kind == wanted && size == 8 {
            return with_checksum(packet, ip, ICMP, at + 2, 6, bits);
        }
        at += size;
    }
    Ok(())
}
