//! The columns of the field table, and fields by name or by OXM header.

use base::PortNo;
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

pub use super::table::{FIELDS, Field};

/// Experimenter id of the Open Networking Foundation.
pub const ONF: u32 = 0x4f4e_4600;
/// Experimenter id of Nicira.
pub const NICIRA: u32 = 0x0000_2320;
/// Experimenter id of the NSH fields.
pub const NSH: u32 = 0x005a_d650;
/// OXM class of Ericsson's fields in Open vSwitch (a class without experimenter id).
pub const ERICSSON: u16 = 0x1000;

/// The first OpenFlow version whose OXM has the field: 0x03 is OpenFlow 1.2. 0 for NXM, which any version may carry.
pub(crate) const V12: u8 = 3;
pub(crate) const V13: u8 = 4;
pub(crate) const V14: u8 = 5;
pub(crate) const V15: u8 = 6;

/// Which masks a field takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maskable {
    /// Exact match or none.
    None,
    /// Any bitwise mask.
    Full,
}

/// The text format of a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Decimal number.
    Decimal,
    /// Hexadecimal number.
    Hex,
    /// Connection state flags, as `+trk-new`.
    CtState,
    /// Ethernet address.
    Mac,
    /// Dotted quad, with a prefix length or a mask.
    Ipv4,
    /// IPv6 address, with a prefix length or a mask.
    Ipv6,
    /// OpenFlow 1.0 port number or name.
    OfPort,
    /// OpenFlow 1.1+ port number or name.
    OfPort32,
    /// `no`, `yes`, `first`, `later` or `not_later`.
    Frag,
    /// Tunnel flags, as `+oam`.
    TunFlags,
    /// TCP flags, as `+syn-ack`.
    TcpFlags,
    /// `(namespace,type)`.
    PacketType,
}

/// The prerequisite of a field: what else a match must contain for the field to be valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prereq {
    /// Nothing.
    None,
    /// An Ethernet packet.
    Ethernet,
    /// ARP or RARP.
    Arp,
    /// A VLAN tag.
    VlanVid,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// MPLS.
    Mpls,
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// UDP over IPv4 or IPv6.
    Udp,
    /// SCTP over IPv4 or IPv6.
    Sctp,
    /// ICMP over IPv4.
    Icmpv4,
    /// ICMPv6 over IPv6.
    Icmpv6,
    /// Neighbour solicitation or advertisement.
    Nd,
    /// Neighbour solicitation.
    NdSolicit,
    /// Neighbour advertisement.
    NdAdvert,
    /// Network service header.
    Nsh,
    /// Service instance tag of a provider backbone bridge.
    Pbb,
    /// A tracked connection (`ct_state=+trk`) of the matching address family.
    Ct,
}

/// The location of a field in a flow key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loc {
    /// `width` bits of one word, the lowest at `shift`.
    Bits {
        /// Index of the word.
        word: u8,
        /// Lowest bit.
        shift: u8,
        /// Bits, 1 to 64.
        width: u8,
    },
    /// 128 bits: this word and the next, most significant half first.
    Wide(usize),
    /// A 16-bit view of the ingress port, in OpenFlow 1.0 numbering.
    InPort16,
    /// The DSCP bits of the type of service byte, unshifted, with zero ECN bits.
    NwTos,
    /// The ARP operation: 16 bits on the wire. The key holds the low 8 bits, in `nw_proto`.
    ArpOp,
    /// A tunnel option of this index; the switch's TLV table maps it to a location.
    TunMetadata(u8),
}

/// An OXM or NXM header's class and number (OpenFlow 1.3 section 7.2.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nxm {
    /// OXM class: 0 and 1 are Nicira's, 0x8000 OpenFlow's own, 0x8001 packet registers, 0xffff experimenters'.
    pub class: u16,
    /// Experimenter id, 0 unless `class` is 0xffff.
    pub experimenter: u32,
    /// Field number within the class, 7 bits.
    pub number: u8,
    /// First OpenFlow version (wire number, 3 for 1.2) that defines it; 0 for NXM.
    pub since: u8,
    /// Its name in the specifications.
    pub name: &'static str,
}

/// A row of the field table.
#[derive(Debug)]
pub struct FieldInfo {
    /// The field.
    pub id: Field,
    /// The name used in output.
    pub name: &'static str,
    /// An alternative name accepted in input, or "".
    pub alias: &'static str,
    /// Bits that may be nonzero.
    pub n_bits: u16,
    /// Bits on the wire (OXM payload), a multiple of 8.
    pub wire_bits: u16,
    /// Which masks it takes.
    pub maskable: Maskable,
    /// How it is written.
    pub format: Format,
    /// The prerequisite.
    pub prereq: Prereq,
    /// Whether actions may write it.
    pub writable: bool,
    /// Location in a key.
    pub loc: Loc,
    /// Its OXM and NXM headers. Encoding uses the last one that the OpenFlow version has; Nicira's formats use NXM
    /// first.
    pub nxm: &'static [Nxm],
}

impl FieldInfo {
    /// Bytes on the wire (OXM payload without mask).
    pub fn wire_bytes(&self) -> usize {
        usize::from(self.wire_bits / 8)
    }

    /// The mask of all bits on the wire, right aligned. (All ones for fields wider than 128 bits.)
    pub fn wire_mask(&self) -> u128 {
        if self.wire_bits >= 128 { u128::MAX } else { (1 << self.wire_bits) - 1 }
    }

    /// The mask of all bits that may be nonzero, right aligned. (All ones for `tun_metadata` fields, which are wider
    /// than 128 bits.)
    pub fn full_mask(&self) -> u128 {
        if self.loc == Loc::NwTos {
            return 0xfc;
        }
        let bits = match self.id {
            // The bit that marks a tag as present (CFI) is a thirteenth bit of vlan_vid.
            Field::VlanVid => 13,
            // The key holds the low byte only.
            Field::ArpOp => 8,
            // Matches keep bits beyond the field's width, which no packet has.
            Field::TunErspanIdx
            | Field::TunErspanVer
            | Field::TunErspanDir
            | Field::TunErspanHwid
            | Field::TcpFlags => self.wire_bits,
            _ => self.n_bits,
        };
        if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
    }
}

impl FieldInfo {
    /// Whether an action may set the field to `value`. Only fields that Open vSwitch validates are checked.
    pub fn is_valid(&self, value: u128) -> bool {
        match self.id {
            Field::InPort | Field::InPortOxm | Field::ActsetOutput => {
                self.wire_bits == 16 || u32::try_from(value).is_ok_and(|n| PortNo::from_of11(n).is_some())
            }
            Field::TunErspanIdx | Field::TunErspanVer | Field::TunErspanDir | Field::TunErspanHwid => true,
            Field::TcpFlags => value <= 0xfff,
            _ => value & !self.full_mask() == 0,
        }
    }
}

impl Field {
    /// The field's row.
    pub fn info(self) -> &'static FieldInfo {
        &FIELDS[self as usize]
    }

    /// The name used in output.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The field of this name, alias, or OXM or NXM name.
    pub fn from_name(name: &str) -> Option<Self> {
        static BY_NAME: LazyLock<HashMap<&'static str, Field>> = LazyLock::new(|| {
            let own = FIELDS.iter().flat_map(|f| [(f.name, f.id), (f.alias, f.id)]);
            let on_the_wire = FIELDS.iter().flat_map(|f| f.nxm.iter().map(|n| (n.name, f.id)));
            let mut by_name = HashMap::new();
            for (name, field) in own.chain(on_the_wire).filter(|(name, _)| !name.is_empty()) {
                by_name.entry(name).or_insert(field);
            }
            by_name
        });
        BY_NAME.get(name).copied()
    }

    /// The field of this OXM or NXM header.
    pub fn from_nxm(class: u16, experimenter: u32, number: u8) -> Option<Self> {
        static BY_NXM: LazyLock<HashMap<(u16, u32, u8), Field>> = LazyLock::new(|| {
            let of_field =
                |f: &FieldInfo| f.nxm.iter().map(|n| ((n.class, n.experimenter, n.number), f.id)).collect::<Vec<_>>();
            FIELDS.iter().flat_map(of_field).collect()
        });
        BY_NXM.get(&(class, experimenter, number)).copied()
    }

    /// The 32-bit register `n`, if it exists.
    pub fn reg(n: usize) -> Option<Self> {
        FIELDS.get(Self::Reg0 as usize + n).map(|f| f.id).filter(|f| *f < Self::Xreg0)
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) const fn bits(word: usize, shift: u8, width: u8) -> Loc {
    Loc::Bits { word: word as u8, shift, width }
}

pub(crate) const fn nxm(class: u16, number: u8, name: &'static str) -> Nxm {
    Nxm { class, experimenter: 0, number, since: 0, name }
}

pub(crate) const fn oxm(class: u16, number: u8, since: u8, name: &'static str) -> Nxm {
    Nxm { class, experimenter: 0, number, since, name }
}

pub(crate) const fn exp(experimenter: u32, number: u8, since: u8, name: &'static str) -> Nxm {
    Nxm { class: 0xffff, experimenter, number, since, name }
}

#[allow(clippy::too_many_arguments, reason = "one argument for each column of the table")]
pub(crate) const fn row(
    id: Field,
    name: &'static str,
    alias: &'static str,
    n_bits: u16,
    wire_bits: u16,
    maskable: Maskable,
    format: Format,
    prereq: Prereq,
    writable: bool,
    loc: Loc,
    nxm: &'static [Nxm],
) -> FieldInfo {
    FieldInfo { id, name, alias, n_bits, wire_bits, maskable, format, prereq, writable, loc, nxm }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_are_indexed_by_id_and_names_are_unique() {
        let mut names = HashSet::new();
        let mut headers = HashSet::new();
        for (i, f) in FIELDS.iter().enumerate() {
            assert_eq!(f.id as usize, i);
            assert!(names.insert(f.name) && (f.alias.is_empty() || names.insert(f.alias)), "{}", f.name);
            for n in f.nxm {
                assert!(headers.insert((n.class, n.experimenter, n.number)), "{}", n.name);
                assert_eq!(Field::from_nxm(n.class, n.experimenter, n.number), Some(f.id));
            }
            assert!(f.wire_bits % 8 == 0 && f.n_bits <= f.wire_bits);
        }
        assert_eq!(Field::from_name("dl_src"), Some(Field::EthSrc));
        assert_eq!(Field::from_name("NXM_NX_REG3"), Field::reg(3));
        assert_eq!(Field::reg(31).map(Field::name), Some("reg31"));
        assert_eq!(Field::reg(32), None);
    }
}
