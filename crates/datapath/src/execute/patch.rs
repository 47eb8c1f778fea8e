//! Adjacent `Set` actions of the fields that a router changes (Ethernet addresses, type of service, time to live), as one change
//! of a frame's bytes.
//!
//! Ethernet addresses are at the same offsets in all frames. The type of service and the time to live have fixed offsets in untagged
//! frames whose IP header is valid: IPv4 without options, or IPv6. All other packets take the actions one by one
//! ([`super::set_all`]), with the same result.

use base::DropReason;
use dpif::DpAction;
use flow::Field;
use flow::extract::ethertype;
use packet::Packet;
use packet::checksum::update16;

const ETH_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
/// The first byte of an IPv4 header without options.
const IPV4_FIRST: u8 = 0x45;

/// New bits of a number: `value` where `mask` is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Bits<T> {
    value: T,
    mask: T,
}

impl Bits<u8> {
    fn add(&mut self, value: u128, mask: u128) {
        let mask = mask as u8;
        *self = Self { value: self.value & !mask | value as u8 & mask, mask: self.mask | mask };
    }

    #[inline(always)]
    fn of(self, old: u8) -> u8 {
        old & !self.mask | self.value
    }
}

impl Bits<u128> {
    fn add(&mut self, value: u128, mask: u128) {
        *self = Self { value: self.value & !mask | value & mask, mask: self.mask | mask };
    }
}

/// The bits that a list of `Set` actions writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Patch {
    /// The destination address and the source address behind it: 12 bytes, right-aligned.
    addresses: Bits<u128>,
    tos: Bits<u8>,
    ttl: Bits<u8>,
}

impl Patch {
    /// The bits that these actions write. `None` if some of them write other fields or nothing.
    pub(super) fn of(sets: &[DpAction]) -> Option<Self> {
        let mut patch = Self::default();
        for action in sets {
            let DpAction::Set { field, value, mask } = action else { return None };
            let (value, mask) = (*value, mask & field.info().full_mask());
            match field {
                // An action that writes nothing still refuses truncated headers, which a patch would not look for.
                _ if mask == 0 => return None,
                Field::EthDst => patch.addresses.add(value << 48, mask << 48),
                Field::EthSrc => patch.addresses.add(value, mask),
                Field::IpTtl => patch.ttl.add(value, mask),
                Field::IpDscpShifted => patch.tos.add(value, mask & 0xfc),
                Field::IpDscp => patch.tos.add(value << 2, mask << 2),
                Field::IpEcn => patch.tos.add(value, mask),
                _ => return None,
            }
        }
        Some(patch)
    }

    /// Writes the bits into a packet. Returns false, and changes nothing, if the packet has to take the actions one by one.
    #[inline(always)]
    pub(super) fn apply(&self, packet: &mut Packet) -> bool {
        if packet.l3_type.is_some() {
            return false;
        }
        let frame = packet.data_mut();
        if (self.tos.mask, self.ttl.mask) != (0, 0) && !self.apply_ip(frame) {
            return false;
        }
        if self.addresses.mask != 0 {
            let Some(addresses) = frame.first_chunk_mut::<12>() else { return false };
            self.apply_addresses(addresses);
        }
        true
    }

    #[inline(always)]
    fn apply_addresses(&self, addresses: &mut [u8; 12]) {
        let Bits { value, mask } = self.addresses;
        let [first @ .., a, b, c, d] = addresses;
        let old = u64::from_be_bytes(*first);
        *first = (old & !((mask >> 32) as u64) | (value >> 32) as u64).to_be_bytes();
        let old = u32::from_be_bytes([*a, *b, *c, *d]);
        [*a, *b, *c, *d] = (old & !(mask as u32) | value as u32).to_be_bytes();
    }

    #[inline(always)]
    fn apply_ip(&self, frame: &mut [u8]) -> bool {
        let ip_len = frame.len().wrapping_sub(ETH_LEN);
        let Some(head) = frame.first_chunk_mut::<{ ETH_LEN + IPV4_LEN }>() else { return false };
        match u16::from_be_bytes([head[12], head[13]]) {
            ethertype::IPV4 => {
                let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
                if head[14] != IPV4_FIRST || total < IPV4_LEN || total > ip_len {
                    return false;
                }
                let mut checksum = u16::from_be_bytes([head[24], head[25]]);
                // The type of service is the low byte of its 16-bit word, the time to live the high byte.
                for (word, is_low, bits) in [(14, true, self.tos), (22, false, self.ttl)] {
                    let old = [head[word], head[word + 1]];
                    let new = if is_low { [old[0], bits.of(old[1])] } else { [bits.of(old[0]), old[1]] };
                    if new != old {
                        checksum = update16(checksum, u16::from_be_bytes(old), u16::from_be_bytes(new));
                        [head[word], head[word + 1]] = new;
                    }
                }
                [head[24], head[25]] = checksum.to_be_bytes();
                true
            }
            ethertype::IPV6 => {
                let payload = usize::from(u16::from_be_bytes([head[18], head[19]]));
                // The type of service is not at the bounds of bytes.
                if self.tos.mask != 0 || ip_len < IPV6_LEN + payload {
                    return false;
                }
                head[21] = self.ttl.of(head[21]);
                true
            }
            _ => false,
        }
    }
}

/// Applies `Set` actions to each packet that it is called with, as [`super::set_all`] does.
pub(super) fn setter(sets: &[DpAction]) -> impl FnMut(&mut Packet) -> Result<(), DropReason> + '_ {
    let patch = Patch::of(sets);
    move |packet| match &patch {
        Some(patch) if patch.apply(packet) => Ok(()),
        _ => super::set_all(packet, sets),
    }
}
