//! Flow keys and masks: arrays of 64-bit words in stage order, with fields read and written through the field table.

use super::field::{Field, Loc};
use super::layout::{self, WORDS};
use base::PortNo;
use std::fmt;

/// The header fields and metadata of one packet: [`WORDS`] words, laid out as in [`layout`]. Fields that the packet
/// does not have are zero.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FlowKey(pub [u64; WORDS]);

/// The bits of a key that a match compares: one bit for each bit of a [`FlowKey`].
pub type FlowMask = FlowKey;

impl Default for FlowKey {
    fn default() -> Self {
        Self::ZERO
    }
}

impl FlowKey {
    /// All bits zero.
    pub const ZERO: Self = Self([0; WORDS]);

    /// A field's value, right aligned. (0 for `tun_metadata` fields, which have no location without a TLV table.)
    pub fn get(&self, field: Field) -> u128 {
        match field.info().loc {
            Loc::Bits { word, shift, width } => {
                let v = self.0[usize::from(word)] >> shift;
                u128::from(if width == 64 { v } else { v & ((1 << width) - 1) })
            }
            Loc::Wide(word) => u128::from(self.0[word]) << 64 | u128::from(self.0[word + 1]),
            Loc::InPort16 => PortNo((self.0[layout::PORTS] >> 32) as u32).to_of10().into(),
            Loc::NwTos => (self.0[layout::IP_MISC] >> 16 & 0xfc).into(),
            Loc::ArpOp => (self.0[layout::IP_MISC] & 0xff).into(),
            Loc::TunMetadata(_) => 0,
        }
    }

    /// Sets a field. Bits of `value` beyond the field's width are ignored.
    pub fn set(&mut self, field: Field, value: u128) {
        match field.info().loc {
            Loc::Bits { word, shift, width } => {
                let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
                let w = &mut self.0[usize::from(word)];
                *w = *w & !(mask << shift) | (value as u64 & mask) << shift;
            }
            Loc::Wide(word) => {
                self.0[word] = (value >> 64) as u64;
                self.0[word + 1] = value as u64;
            }
            Loc::InPort16 => self.set(Field::InPortOxm, PortNo::from_of10(value as u16).0.into()),
            Loc::NwTos => self.set(Field::IpDscp, value >> 2),
            // The high byte is lost, as in Open vSwitch: a received operation above 255 reads as 0.
            Loc::ArpOp => self.set(Field::IpProto, value & 0xff),
            Loc::TunMetadata(_) => {}
        }
    }

    /// Adds the mask bits for `bits` of `field`, like [`FlowKey::set`], but without clearing any. The 16-bit view of a port
    /// adds the mask of the whole port, as port numbers cannot be masked.
    pub fn add_mask(&mut self, field: Field, bits: u128) {
        match field.info().loc {
            Loc::InPort16 if bits != 0 => self.add_mask(Field::InPortOxm, u128::from(u32::MAX)),
            Loc::InPort16 => {}
            Loc::ArpOp => self.add_mask(Field::IpProto, bits & 0xff),
            _ => self.set(field, self.get(field) | bits),
        }
    }

    /// The mask of all bits of `field`.
    pub fn mask_of(field: Field) -> FlowMask {
        let mut mask = Self::ZERO;
        mask.add_mask(field, field.info().full_mask());
        mask
    }

    /// Whether all bits are zero.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// Whether `self` and `other` are equal under `mask`.
    pub fn eq_masked(&self, other: &Self, mask: &FlowMask) -> bool {
        self.0.iter().zip(&other.0).zip(&mask.0).all(|((a, b), m)| (a ^ b) & m == 0)
    }

    /// The key with all bits outside of `mask` cleared.
    #[must_use]
    pub fn masked(&self, mask: &FlowMask) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & mask.0[i]))
    }

    /// Ingress port (OpenFlow numbering, or the datapath's in a key that the datapath extracted).
    pub fn in_port(&self) -> PortNo {
        PortNo((self.0[layout::PORTS] >> 32) as u32)
    }

    /// Sets the ingress port.
    pub fn set_in_port(&mut self, port: PortNo) {
        self.set(Field::InPortOxm, port.0.into());
    }

    /// Ethernet type of the payload, after VLAN tags; for 802.2 frames without SNAP 0x05ff.
    pub fn eth_type(&self) -> u16 {
        self.0[layout::ETH_DST] as u16
    }

    /// IP protocol, or low byte of the ARP operation.
    pub fn ip_proto(&self) -> u8 {
        self.0[layout::IP_MISC] as u8
    }

    /// TCI of the outer VLAN tag with bit 0x1000 set, or 0 without a tag.
    pub fn vlan_tci(&self) -> u16 {
        self.0[layout::ETH_SRC] as u16
    }

    /// Sets the TCI of the outer VLAN tag (bit 0x1000: a tag is present).
    pub fn set_vlan_tci(&mut self, tci: u16) {
        self.set(Field::VlanTci, tci.into());
    }

    /// VLAN tag `n` (0: outer, 1: inner) as tag protocol id and TCI, zeros if absent. The TCI has bit 0x1000 set if the
    /// tag is present.
    pub fn vlan(&self, n: usize) -> (u16, u16) {
        let w = self.0[layout::VLAN];
        if n == 0 { ((w >> 48) as u16, self.vlan_tci()) } else { ((w >> 32) as u16, (w >> 16) as u16) }
    }

    /// Sets VLAN tag `n` (0: outer, 1: inner).
    pub fn set_vlan(&mut self, n: usize, tpid: u16, tci: u16) {
        let (shift, w) = if n == 0 { (48, layout::VLAN) } else { (32, layout::VLAN) };
        self.0[w] = self.0[w] & !(0xffff << shift) | u64::from(tpid) << shift;
        if n == 0 {
            self.set_vlan_tci(tci);
        } else {
            self.0[w] = self.0[w] & !(0xffff << 16) | u64::from(tci) << 16;
        }
    }

    /// MPLS label stack entry `n` (0 to 2, 0 outermost) as on the wire (RFC 3032), 0 if there is none.
    pub fn mpls_lse(&self, n: usize) -> u32 {
        match n {
            0 => (self.0[layout::MPLS01] >> 32) as u32,
            1 => self.0[layout::MPLS01] as u32,
            2 => (self.0[layout::MPLS2] >> 32) as u32,
            _ => 0,
        }
    }

    /// Sets MPLS label stack entry `n` (0 to 2).
    pub fn set_mpls_lse(&mut self, n: usize, lse: u32) {
        let (word, shift) = match n {
            0 => (layout::MPLS01, 32),
            1 => (layout::MPLS01, 0),
            2 => (layout::MPLS2, 32),
            _ => return,
        };
        self.0[word] = self.0[word] & !(0xffff_ffff << shift) | u64::from(lse) << shift;
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().enumerate().filter(|(_, w)| **w != 0).map(|(i, w)| (i, format!("{w:#x}"))))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FIELDS;
    use proptest::prelude::*;

    tally::proptest! {
        #[test]
        fn set_then_get(i in 0..FIELDS.len(), v: u128) {
            let info = &FIELDS[i];
            if let Loc::TunMetadata(_) = info.loc { return Ok(()); }
            let mut v = v & info.full_mask();
            if info.loc == Loc::ArpOp { v &= 0xff; }
            let mut key = FlowKey::ZERO;
            key.set(info.id, v);
            prop_assert_eq!(key.get(info.id), v, "{}", info.name);
            prop_assert!(key.eq_masked(&FlowKey::ZERO, &{
                let mut m = FlowKey([u64::MAX; WORDS]);
                for (w, f) in m.0.iter_mut().zip(FlowKey::mask_of(info.id).0) { *w &= !f; }
                m
            }), "{} writes outside of its mask", info.name);
        }
    }

    #[test]
    fn vlan_and_mpls_places() {
        let mut k = FlowKey::ZERO;
        k.set_vlan(0, 0x8100, 0x1005);
        k.set_vlan(1, 0x88a8, 0x3006);
        k.set_mpls_lse(0, 0x1234_51ff);
        assert_eq!((k.vlan(0), k.vlan(1)), ((0x8100, 0x1005), (0x88a8, 0x3006)));
        assert_eq!(k.get(Field::DlVlan), 5);
        assert_eq!(k.get(Field::MplsLabel), 0x12345);
        assert_eq!(k.get(Field::MplsBos), 1);
        assert_eq!(k.get(Field::MplsTtl), 0xff);
    }
}
