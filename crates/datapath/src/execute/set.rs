//! Writing header fields: the position of each field, by the type of header.
//!
//! Checksums are updated incrementally (RFC 1624) and never recomputed, so that a wrong checksum stays wrong by the
//! same difference, and the receiver detects it.

use base::DropReason;
use flow::Field;
use flow::extract::ethertype;
use packet::Packet;
use packet::checksum::{Sum, update16};

use super::headers::Headers;
use super::{set_ip, set_transport, vlan};

/// Sets the bits `mask` of `field` to those of `value`. Does nothing if the packet has no such header. Returns an
/// error if the header is truncated.
pub(crate) fn set(
    packet: &mut Packet,
    headers: &Headers,
    field: Field,
    value: u128,
    mask: u128,
) -> Result<(), DropReason> {
    let bits = Bits { value, mask: mask & field.info().full_mask() };
    match field {
        Field::EthDst | Field::EthSrc if packet.l3_type.is_some() => Ok(()),
        Field::EthDst => plain(packet, 0, 6, bits),
        Field::EthSrc => plain(packet, 6, 6, bits),
        Field::VlanTci | Field::DlVlan | Field::VlanVid => tci(packet, headers, bits),
        Field::DlVlanPcp | Field::VlanPcp => tci(packet, headers, bits.shl(13)),
        Field::MplsLabel => mpls(packet, headers, bits.shl(12)),
        Field::MplsTc => mpls(packet, headers, bits.shl(9)),
        Field::MplsBos => mpls(packet, headers, bits.shl(8)),
        Field::MplsTtl => mpls(packet, headers, bits),
        Field::PbbIsid => pbb(packet, headers, bits),
        Field::PbbUca => pbb(packet, headers, bits.shl(27)),
        // Keys only have the low byte of the operation. Setting all of it sets both bytes, as larger operations are
        // not in use.
        Field::ArpOp if bits.mask == 0xff => arp(packet, headers, 6, 2, Bits { value: value & 0xff, mask: 0xffff }),
        Field::ArpOp => arp(packet, headers, 6, 2, bits),
        Field::ArpSha => arp(packet, headers, 8, 6, bits),
        Field::ArpSpa => arp(packet, headers, 14, 4, bits),
        Field::ArpTha => arp(packet, headers, 18, 6, bits),
        Field::ArpTpa => arp(packet, headers, 24, 4, bits),
        Field::NshFlags => nsh(packet, headers, 0, bits.shl(12).and(0x3000)),
        Field::NshTtl => nsh(packet, headers, 0, bits.shl(6).and(0x0fc0)),
        Field::NshSpi => nsh(packet, headers, 4, bits.shl(8)),
        Field::NshSi => nsh(packet, headers, 4, bits),
        Field::NshC1 => nsh(packet, headers, 8, bits),
        Field::NshC2 => nsh(packet, headers, 12, bits),
        Field::NshC3 => nsh(packet, headers, 16, bits),
        Field::NshC4 => nsh(packet, headers, 20, bits),
        Field::Ipv4Src | Field::Ipv4Dst | Field::Ipv6Src | Field::Ipv6Dst | Field::Ipv6Label => {
            set_ip::set(packet, headers, field, bits)
        }
        Field::IpDscpShifted | Field::IpDscp | Field::IpEcn | Field::IpTtl => set_ip::set(packet, headers, field, bits),
        // All other fields are in a transport header.
        _ => set_transport::set(packet, headers, field, bits),
    }
}

/// Sets a metadata field of the packet. Returns `false` for other fields.
pub(super) fn set_metadata(packet: &mut Packet, field: Field, value: u128, mask: u128) -> bool {
    if !matches!(field, Field::PktMark | Field::SkbPriority) {
        return false;
    }
    let known = packet.metadata().map_or((0, 0), |known| (known.pkt_mark, known.skb_priority));
    let old = if field == Field::PktMark { known.0 } else { known.1 };
    let new = old & !(mask as u32) | (value & mask) as u32;
    // A packet without metadata gets none unless the value changes.
    if new != old {
        let metadata = packet.metadata_mut();
        *if field == Field::PktMark { &mut metadata.pkt_mark } else { &mut metadata.skb_priority } = new;
    }
    true
}

/// New bits, right-aligned: `value` where `mask` is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    pub(super) value: u128,
    pub(super) mask: u128,
}

impl Bits {
    pub(super) fn shl(self, n: u32) -> Self {
        Self { value: self.value << n, mask: self.mask << n }
    }

    pub(super) fn and(self, mask: u128) -> Self {
        Self { mask: self.mask & mask, ..self }
    }
}

/// Writes `bits` into the `n` bytes of `frame` at `at`, big-endian; `n` is 2, 4, 6 or 16. Returns the growth of the sum of
/// these bytes under a checksum, if their distance from the start of the checksum is even; `None` if nothing changed.
#[inline(always)]
pub(super) fn write(frame: &mut [u8], at: usize, n: usize, bits: Bits) -> Result<Option<u16>, DropReason> {
    match n {
        2 => write_bytes::<2>(frame, at, bits),
        4 => write_bytes::<4>(frame, at, bits),
        6 => write_bytes::<6>(frame, at, bits),
        _ => write_bytes::<16>(frame, at, bits),
    }
}

#[inline]
fn write_bytes<const N: usize>(frame: &mut [u8], at: usize, bits: Bits) -> Result<Option<u16>, DropReason> {
    let place = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()).ok_or(DropReason::Truncated)?;
    let mut padded = [0; 16];
    padded[16 - N..].copy_from_slice(place);
    let old = u128::from_be_bytes(padded);
    let new = old & !bits.mask | bits.value & bits.mask;
    if new == old {
        return Ok(None);
    }
    place.copy_from_slice(&new.to_be_bytes()[16 - N..]);
    Ok(Some(Sum::new().bytes_here(&(!old).to_be_bytes()).bytes_here(&new.to_be_bytes()).partial()))
}

/// Returns a checksum after its sum grew by `delta` (RFC 1624, equation 3).
pub(super) fn adjusted(checksum: u16, delta: u16) -> u16 {
    // In ones' complement all ones is zero: a word changes from zero to `delta`.
    update16(checksum, u16::MAX, delta)
}

/// Changes the 16 bits at `at`; does nothing if they are past the end.
pub(super) fn change16(frame: &mut [u8], at: usize, change: impl FnOnce(u16) -> u16) {
    if let Some(place) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *place = change(u16::from_be_bytes(*place)).to_be_bytes();
    }
}

/// Writes bytes that no checksum covers.
#[inline]
fn plain(packet: &mut Packet, at: usize, n: usize, bits: Bits) -> Result<(), DropReason> {
    write(packet.data_mut(), at, n, bits).map(|_| ())
}

fn tci(packet: &mut Packet, headers: &Headers, bits: Bits) -> Result<(), DropReason> {
    match headers.vlan_tci {
        Some(at) => plain(packet, at, 2, bits.and(u128::from(!vlan::PRESENT))),
        None => Ok(()),
    }
}

/// Writes the outermost label stack entry (RFC 3032).
fn mpls(packet: &mut Packet, headers: &Headers, bits: Bits) -> Result<(), DropReason> {
    if !super::mpls::is_mpls(headers.ethertype) {
        return Ok(());
    }
    plain(packet, headers.l3, 4, bits)
}

/// Writes the service instance tag (IEEE 802.1ah).
fn pbb(packet: &mut Packet, headers: &Headers, bits: Bits) -> Result<(), DropReason> {
    if !headers.is(ethertype::PBB) {
        return Ok(());
    }
    plain(packet, headers.l3, 4, bits)
}

/// Writes a field of an ARP packet for IPv4 over Ethernet (RFC 826), `at` bytes into it.
fn arp(packet: &mut Packet, headers: &Headers, at: usize, n: usize, bits: Bits) -> Result<(), DropReason> {
    if !headers.is(ethertype::ARP) && !headers.is(ethertype::RARP) {
        return Ok(());
    }
    match packet.data().get(headers.l3..).and_then(|rest| rest.first_chunk::<28>()) {
        None => Err(DropReason::Truncated),
        // The key of an ARP packet for other networks has no ARP fields.
        Some(arp) if arp[..6] != [0, 1, 8, 0, 6, 4] => Ok(()),
        Some(_) => plain(packet, headers.l3 + at, n, bits),
    }
}

/// Writes a 32-bit word of the network service header, `at` bytes into it (the first 16 bits for `at` 0; RFC 8300
/// section 2). Only metadata of type 1 has context headers.
fn nsh(packet: &mut Packet, headers: &Headers, at: usize, bits: Bits) -> Result<(), DropReason> {
    if !headers.is(ethertype::NSH) {
        return Ok(());
    }
    let md_type = packet.data().get(headers.l3 + 2).ok_or(DropReason::Truncated)? & 0xf;
    match at {
        0 => plain(packet, headers.l3, 2, bits),
        8.. if md_type != 1 => Ok(()),
        _ => plain(packet, headers.l3 + at, 4, bits),
    }
}
