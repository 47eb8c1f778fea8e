//! Matches as lists of NXM or OXM entries (OpenFlow 1.3 section 7.2.3, and Nicira's extended match for OpenFlow 1.0).
//!
//! Both are lists of header, value and mask. They differ in the header used for a field with several, in the encoding of
//! VLAN tags and ports, and in the padding. The field table lists the headers.

mod text;

pub use text::entries_to_string;

use super::error::OfpError;
use super::version::Version;
use super::{of_match, prereq};
use crate::wire::{Reader, Writer};
use flow::field::FIELDS;
use flow::options::OPTION_LEN_MAX;
use flow::{Field, Loc, Maskable, Match, Prereq, TunOption};
use std::sync::LazyLock;

/// A cookie and its mask, which Nicira's requests carry among the match's entries.
pub type Cookie = (u64, u64);

/// The treatment of unknown entries and properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// Refuse the message, as a switch does with a request.
    Refuse,
    /// Skip the entry, as a reader of replies does.
    Skip,
    /// Skip the entry, and keep entries whose prerequisites the match lacks, as a tool does that shows what it was given.
    Lenient,
    /// Skip the entry, and require no prerequisites: for the metadata of packets.
    Metadata,
    /// As [`Self::Metadata`], but accept pipeline fields only, not header fields or fields that the switch computes: for the
    /// metadata of packet-outs (OpenFlow 1.5 section 7.3.6).
    Pipeline,
}

impl Unknown {
    fn is_of_metadata(self) -> bool {
        matches!(self, Self::Metadata | Self::Pipeline)
    }
}

/// The set of headers to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// Nicira's, in OpenFlow 1.0 and 1.1.
    Nxm,
    /// OXM of this version.
    Oxm(Version),
}

impl Dialect {
    /// The dialect in which messages of `version` name fields.
    pub fn of(version: Version) -> Self {
        if version <= Version::V11 { Self::Nxm } else { Self::Oxm(version) }
    }
}

/// An entry's header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// OXM class.
    pub class: u16,
    /// Field number within the class, 7 bits.
    pub number: u8,
    /// True if a mask follows the value.
    pub has_mask: bool,
    /// Bytes of value and mask together, without the experimenter id.
    pub payload: usize,
    /// Experimenter id, 0 unless the class is 0xffff.
    pub experimenter: u32,
}

/// `NXM_NX_COOKIE` and `NXM_NX_COOKIE_W`: number 30 is also the MPLS TTL, which has another length.
const COOKIE: Header = Header { class: 1, number: 30, has_mask: false, payload: 8, experimenter: 0 };
const COOKIE_MASKED: Header = Header { has_mask: true, payload: 16, ..COOKIE };

/// Options with fewer bytes than this are accepted, though without those beyond [`OPTION_LEN_MAX`].
const CUT_OPTION_END: usize = 128;

impl Header {
    /// Returns the header of `field` in `dialect`; `None` if the field has no number.
    pub fn of(field: Field, has_mask: bool, dialect: Dialect) -> Option<Self> {
        let version = match dialect {
            Dialect::Nxm => 0,
            Dialect::Oxm(version) => version.wire(),
        };
        let info = field.info();
        let (first, rest) = info.nxm.split_first()?;
        let nxm = rest.iter().rfind(|n| version >= n.since && n.since != 0).unwrap_or(first);
        Some(Self {
            class: nxm.class,
            number: nxm.number,
            has_mask,
            payload: info.wire_bytes() << u8::from(has_mask),
            experimenter: nxm.experimenter,
        })
    }

    /// Reads a header.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, OfpError> {
        let word = r.u32().map_err(bad_len)?;
        let (class, length) = ((word >> 16) as u16, usize::from(word as u8));
        let (experimenter, payload) = if class == 0xffff {
            let payload = length.checked_sub(4).ok_or(OfpError::BmcBadLen)?;
            (r.u32().map_err(bad_len)?, payload)
        } else {
            (0, length)
        };
        Ok(Self { class, number: (word >> 9 & 0x7f) as u8, has_mask: word & 0x100 != 0, payload, experimenter })
    }

    /// Writes the header.
    pub fn encode(self, out: &mut Writer) {
        out.put_u16(self.class);
        out.put_u8(self.number << 1 | u8::from(self.has_mask));
        if self.class == 0xffff {
            out.put_len8(self.payload + 4);
            out.put_u32(self.experimenter);
        } else {
            out.put_len8(self.payload);
        }
    }

    /// Returns the field that this header names, whatever its length.
    pub fn named_field(self) -> Option<Field> {
        lookup(self.class, self.experimenter, self.number)
    }

    /// Returns the field that this header names, if its length agrees.
    pub fn field(self) -> Option<Field> {
        let field = self.named_field()?;
        let variable = matches!(field.info().loc, Loc::TunMetadata(_));
        let n = field.info().wire_bytes();
        // A value and its mask may be followed by one more byte, as an odd length is halved.
        let given = self.payload >> u8::from(self.has_mask);
        // A tunnel option may be shorter than its field, and loses the last bytes if it is a little longer.
        (n == given || variable && given < CUT_OPTION_END).then_some(field)
    }
}

/// Looks up a field. The common classes are arrays, as every entry of every flow needs a look-up.
fn lookup(class: u16, experimenter: u32, number: u8) -> Option<Field> {
    static CLASSES: LazyLock<[[Option<Field>; 128]; 3]> = LazyLock::new(|| {
        let mut classes = [[None; 128]; 3];
        for info in FIELDS {
            for n in info.nxm {
                if let Some(i) = class_index(n.class) {
                    classes[i][usize::from(n.number & 0x7f)] = Some(info.id);
                }
            }
        }
        classes
    });
    match class_index(class) {
        Some(i) => CLASSES[i][usize::from(number & 0x7f)],
        None => Field::from_nxm(class, experimenter, number),
    }
}

fn class_index(class: u16) -> Option<usize> {
    [0, 1, 0x8000].iter().position(|c| *c == class)
}

/// One entry of a match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A field's value and mask (all of the field's bits if the entry has no mask).
    Field {
        /// The field.
        field: Field,
        /// Its value, right aligned.
        value: u128,
        /// The mask, right aligned; wider than the field if the sender wrote it so.
        mask: u128,
        /// True if the entry has a mask.
        has_mask: bool,
    },
    /// A tunnel option.
    Option(TunOption),
    /// The flow's cookie.
    Cookie(Cookie),
    /// An unknown header.
    Unknown(Header),
}

/// The error for a match that is too short, whatever message contains it.
fn bad_len(_: OfpError) -> OfpError {
    OfpError::BmcBadLen
}

/// Reads an entry, and checks only the lengths of its value and mask.
///
/// Errors: `OFPBMC_BAD_LEN` where bytes are missing, `OFPBMC_BAD_WILDCARDS` for value bits outside of the mask.
pub fn decode_entry(r: &mut Reader<'_>) -> Result<Entry, OfpError> {
    let header = Header::decode(r)?;
    let mut payload = Reader::reporting(r.bytes(header.payload).map_err(bad_len)?, OfpError::BmcBadLen);
    if header == COOKIE || header == COOKIE_MASKED {
        let value = payload.u64()?;
        let mask = payload.u64().unwrap_or(u64::MAX);
        return if value & !mask == 0 { Ok(Entry::Cookie((value, mask))) } else { Err(OfpError::BmcBadWildcards) };
    }
    let Some(field) = header.field() else {
        // Even for an unknown field, the value must not have bits outside of the mask.
        let (value, mask) = payload.peek().split_at(header.payload / 2);
        let beyond = header.has_mask && value.iter().zip(mask).any(|(v, m)| v & !m != 0);
        return if beyond { Err(OfpError::BmcBadWildcards) } else { Ok(Entry::Unknown(header)) };
    };
    if let Loc::TunMetadata(_) = field.info().loc {
        return option(field, header.has_mask, payload.peek()).map(Entry::Option);
    }
    let n = field.info().wire_bytes();
    let value = payload.uint(n)?;
    let mask = if header.has_mask { payload.uint(n)? } else { ones(n) };
    if value & !mask != 0 {
        return Err(OfpError::BmcBadWildcards);
    }
    Ok(Entry::Field { field, value, mask, has_mask: header.has_mask })
}

/// Reads a tunnel option of any length.
fn option(field: Field, has_mask: bool, payload: &[u8]) -> Result<TunOption, OfpError> {
    let payload = if has_mask { &payload[..payload.len() & !1] } else { payload };
    let (value, mask) = if has_mask { payload.split_at(payload.len() / 2) } else { (payload, &[][..]) };
    if value.iter().zip(mask).any(|(v, m)| v & !m != 0) {
        return Err(OfpError::BmcBadWildcards);
    }
    let [value, mask] = [value, mask].map(|bytes| &bytes[..bytes.len().min(OPTION_LEN_MAX)]);
    let option = TunOption::new(field, value, has_mask.then_some(mask)).ok_or(OfpError::BmcBadLen)?;
    Ok(option.with_len(value.len()))
}

/// All bits of `n` bytes.
fn ones(n: usize) -> u128 {
    if n >= 16 { u128::MAX } else { (1 << (8 * n)) - 1 }
}

/// Returns true if the value is valid for the field, in a match or a `set_field`.
pub fn value_is_valid(field: Field, value: u128) -> bool {
    match field {
        Field::InPortOxm | Field::ActsetOutput => base::PortNo::from_of11(value as u32).is_some(),
        Field::ArpOp => value <= 0xff,
        Field::TcpFlags => value <= 0xfff,
        Field::NshMdtype => value == 1 || value == 2,
        // The header has six bits for it.
        Field::NshTtl => value <= 63,
        _ => value & !field.info().full_mask() == 0,
    }
}

/// Returns true if the field accepts this mask: all bits or none, unless it accepts any mask.
pub fn mask_is_valid(field: Field, mask: u128) -> bool {
    let info = field.info();
    info.maskable == Maskable::Full || mask == 0 || mask == ones(info.wire_bytes())
}

/// Reads entries to the end of `bytes`, which has no padding.
///
/// Errors: besides [`decode_entry`]'s, `OFPBMC_BAD_FIELD`, `OFPBMC_BAD_MASK`, `OFPBMC_BAD_VALUE`, `OFPBMC_BAD_PREREQ`
/// and `OFPBMC_DUP_FIELD`.
pub fn decode(bytes: &[u8], unknown: Unknown) -> Result<(Match, Option<Cookie>), OfpError> {
    let mut matching = Match::ANY;
    let cookie = decode_into(bytes, unknown, &mut matching)?;
    Ok((matching, cookie))
}

/// Does the same into `matching`, which must be [`Match::ANY`]: matches are large, and every flow needs this.
fn decode_into(bytes: &[u8], unknown: Unknown, matching: &mut Match) -> Result<Option<Cookie>, OfpError> {
    let mut cookie = None;
    let mut ethernet = false;
    let mut r = Reader::reporting(bytes, OfpError::BmcBadLen);
    while !r.is_empty() {
        match decode_entry(&mut r)? {
            Entry::Field { field, value, mask, .. } => {
                ethernet |= field.info().prereq != Prereq::None;
                add(matching, field, value, mask, unknown)?;
            }
            Entry::Option(option) => {
                if !matching.set_option(option) {
                    return Err(OfpError::BmcDupField);
                }
            }
            Entry::Cookie(_) if cookie.is_some() => return Err(OfpError::BmcDupField),
            Entry::Cookie(c) => cookie = Some(c),
            Entry::Unknown(_) if unknown != Unknown::Refuse => {}
            Entry::Unknown(_) => return Err(OfpError::BmcBadField),
        }
    }
    if !unknown.is_of_metadata() {
        let matched = ETHERNET.iter().any(|f| matching.mask().get(*f) != 0);
        // A packet type other than Ethernet may follow Ethernet fields, and invalidates them.
        if matched && unknown != Unknown::Lenient && !prereq::satisfied(Field::EthType, matching) {
            return Err(OfpError::BmcBadPrereq);
        }
        // An Ethernet field says that the packet has an Ethernet header, even if the entry matches none of its bits.
        if ethernet && !matched && matching.mask().get(Field::PacketType) == 0 {
            matching.set(Field::PacketType, 0);
        }
    }
    // A cookie with an empty mask counts as none; a second cookie is still a duplicate.
    Ok(cookie.filter(|(_, mask)| *mask != 0))
}

/// Fields of Ethernet packets only.
const ETHERNET: [Field; 4] = [Field::EthSrc, Field::EthDst, Field::EthType, Field::VlanTci];

fn add(matching: &mut Match, field: Field, value: u128, mask: u128, unknown: Unknown) -> Result<(), OfpError> {
    if !mask_is_valid(field, mask) {
        return Err(OfpError::BmcBadMask);
    }
    // The values of ERSPAN fields are not checked.
    let is_checked =
        !matches!(field, Field::TunErspanIdx | Field::TunErspanVer | Field::TunErspanDir | Field::TunErspanHwid);
    if is_checked && !value_is_valid(field, value) {
        return Err(OfpError::BmcBadValue);
    }
    if unknown == Unknown::Pipeline && !is_of_pipeline(field) {
        return Err(OfpError::BrcPipelineFieldsOnly);
    }
    if !unknown.is_of_metadata() && unknown != Unknown::Lenient && !prereq::satisfied(field, matching) {
        return Err(OfpError::BmcBadPrereq);
    }
    if matching.mask().get(field) != 0 {
        return Err(OfpError::BmcDupField);
    }
    matching.set_masked(field, value, mask & field.info().full_mask());
    Ok(())
}

/// Returns true for fields of the pipeline rather than of the packet: ports, registers, metadata, tunnels and the packet
/// type.
fn is_of_pipeline(field: Field) -> bool {
    use Field as F;
    let ranges = [(F::TunId, F::TunGtpuMsgtype), (F::Metadata, F::InPortOxm), (F::Reg0, F::Xxreg7)];
    field == F::PacketType || ranges.iter().any(|(first, last)| (*first..=*last).contains(&field))
}

/// Reads an `nx_match` of `length` bytes and the padding to a multiple of 8 off the front of `r`.
pub fn decode_nx_match(
    r: &mut Reader<'_>,
    length: usize,
    unknown: Unknown,
) -> Result<(Match, Option<Cookie>), OfpError> {
    let mut matching = Match::ANY;
    let cookie = decode_nx_match_into(r, length, unknown, &mut matching)?;
    Ok((matching, cookie))
}

/// Does the same into `matching`, which must be [`Match::ANY`].
pub(crate) fn decode_nx_match_into(
    r: &mut Reader<'_>,
    length: usize,
    unknown: Unknown,
    matching: &mut Match,
) -> Result<Option<Cookie>, OfpError> {
    let bytes = r.bytes(length.next_multiple_of(8)).map_err(bad_len)?;
    decode_into(&bytes[..length], unknown, matching)
}

/// Reads an `ofp_match`, of type OXM or of OpenFlow 1.1's, with header and padding, off the front of `r` (OpenFlow 1.2 and
/// later).
pub fn decode_oxm_match(r: &mut Reader<'_>, unknown: Unknown) -> Result<Match, OfpError> {
    let mut matching = Match::ANY;
    decode_oxm_match_into(r, unknown, &mut matching)?;
    Ok(matching)
}

/// Does the same into `matching`, which must be [`Match::ANY`].
pub(crate) fn decode_oxm_match_into(
    r: &mut Reader<'_>,
    unknown: Unknown,
    matching: &mut Match,
) -> Result<(), OfpError> {
    let mut header = r.clone();
    let (ty, length) = (header.u16().map_err(bad_len)?, header.u16().map_err(bad_len)?);
    // Metadata has a single form.
    if unknown.is_of_metadata() && length < 4 {
        return Err(OfpError::BmcBadLen);
    }
    if ty > 1 || unknown.is_of_metadata() && ty != 1 {
        return Err(OfpError::BmcBadType);
    }
    if ty == 0 {
        // OFPMT_STANDARD, which is still accepted.
        *matching = of_match::decode_of11(r)?;
        return Ok(());
    }
    let length = usize::from(length);
    let bytes = r.bytes(length.next_multiple_of(8)).map_err(bad_len)?;
    let entries = bytes.get(4..length).ok_or(OfpError::BmcBadLen)?;
    if decode_into(entries, unknown, matching)?.is_some() { Err(OfpError::BmcBadField) } else { Ok(()) }
}

/// Fields in the order in which Open vSwitch writes them, which makes the bytes equal.
#[rustfmt::skip]
const ORDER: &[Field] = {
    use Field::{
        ActsetOutput, ArpOp, ArpSha, ArpSpa, ArpTha, ArpTpa, ConjId, CtIpv6Dst, CtIpv6Src, CtLabel, CtMark, CtNwDst,
        CtNwProto, CtNwSrc, CtState, CtTpDst, CtTpSrc, CtZone, DpHash, EthDst, EthSrc, EthType, Icmpv4Code, Icmpv4Type,
        Icmpv6Code, Icmpv6Type, InPortOxm, IpDscp, IpEcn, IpFrag, IpProto, IpTtl, Ipv4Dst, Ipv4Src, Ipv6Dst, Ipv6Exthdr,
        Ipv6Label,        Ipv6Src, Metadata, MplsBos, MplsLabel, MplsTc, MplsTtl, NdOptionsType, NdReserved, NdSll, NdTarget, NdTll,
        NshC1, NshC2, NshC3, NshC4, NshFlags, NshMdtype, NshNp, NshSi, NshSpi, NshTtl, PbbIsid, PbbUca, PktMark, RecircId, Reg0, Reg1,
        Reg2, Reg3, Reg4, Reg5, Reg6, Reg7, Reg8, Reg9, Reg10, Reg11, Reg12, Reg13, Reg14, Reg15,
        Reg16, Reg17, Reg18, Reg19, Reg20, Reg21, Reg22, Reg23, Reg24, Reg25, Reg26, Reg27, Reg28, Reg29, Reg30, Reg31, SctpDst, SctpSrc,
        TcpDst, TcpFlags, TcpSrc, TunDst, TunErspanDir, TunErspanHwid, TunErspanIdx, TunErspanVer, TunFlags, TunGbpFlags,
        TunGbpId, TunGtpuFlags, TunGtpuMsgtype, TunId, TunIpv6Dst, TunIpv6Src, TunSrc, UdpDst, UdpSrc, VlanTci, Xreg0,
        Xreg1, Xreg2, Xreg3, Xreg4, Xreg5, Xreg6, Xreg7, Xreg8, Xreg9, Xreg10, Xreg11, Xreg12, Xreg13, Xreg14, Xreg15,
    };
    &[
        DpHash, RecircId, ConjId, InPortOxm, ActsetOutput,
        EthSrc, EthDst, EthType, VlanTci, MplsTc, MplsBos, MplsTtl, MplsLabel, PbbIsid, PbbUca,
        Ipv4Src, Ipv4Dst, Ipv6Src, Ipv6Dst, IpFrag, IpDscp, IpEcn, IpTtl, Ipv6Label, Ipv6Exthdr, IpProto,
        TcpSrc, TcpDst, TcpFlags, UdpSrc, UdpDst, SctpSrc, SctpDst, Icmpv4Type, Icmpv4Code, Icmpv6Type, Icmpv6Code,
        NdReserved, NdTarget, NdOptionsType, NdSll, NdTll,
        ArpOp, ArpSpa, ArpTpa, ArpSha, ArpTha,
        TunId, TunFlags, TunSrc, TunDst, TunIpv6Src, TunIpv6Dst, TunGbpId, TunGbpFlags,
        TunErspanIdx, TunErspanVer, TunErspanDir, TunErspanHwid, TunGtpuFlags, TunGtpuMsgtype,
        NshFlags, NshTtl, NshMdtype, NshNp, NshSpi, NshSi, NshC1, NshC2, NshC3, NshC4,
        Reg0, Reg1, Reg2, Reg3, Reg4, Reg5, Reg6, Reg7, Reg8, Reg9, Reg10, Reg11, Reg12, Reg13, Reg14, Reg15,
        Reg16, Reg17, Reg18, Reg19, Reg20, Reg21, Reg22, Reg23, Reg24, Reg25, Reg26, Reg27, Reg28, Reg29, Reg30, Reg31,
        Xreg0, Xreg1, Xreg2, Xreg3, Xreg4, Xreg5, Xreg6, Xreg7,
        Xreg8, Xreg9, Xreg10, Xreg11, Xreg12, Xreg13, Xreg14, Xreg15,
        PktMark, CtState, CtZone, CtMark, CtLabel,
        CtNwSrc, CtNwDst, CtIpv6Src, CtIpv6Dst, CtNwProto, CtTpSrc, CtTpDst,
        Metadata,
    ]
};

/// Returns true if a field of `matching` is written: if its prerequisites are met. Fields of Ethernet, of the network service
/// header and of the connection's original direction are written even if the match lacks what they need, so that the receiver
/// refuses the match instead of installing a wider one; so are ports in a match on later fragments. The ports of the original
/// direction need its protocol.
fn is_written(field: Field, matching: &Match) -> bool {
    let prereq = field.info().prereq;
    match field {
        Field::CtTpSrc | Field::CtTpDst => matching.get(Field::CtNwProto).1 != 0,
        _ if matches!(prereq, Prereq::Ct | Prereq::Ethernet | Prereq::Nsh) || matching.meets(prereq) => true,
        _ if matches!(prereq, Prereq::Tcp | Prereq::Udp | Prereq::Sctp) => {
            let mut any_fragment = matching.clone();
            any_fragment.set_masked(Field::IpFrag, 0, 0);
            any_fragment.meets(prereq)
        }
        _ => false,
    }
}

/// A set of indices into [`ORDER`], a bit each.
type Places = [u64; 4];
const _: () = assert!(ORDER.len() <= size_of::<Places>() * 8);

/// For each word of a key the fields with bits in it: most matches have bits in a few words only.
static FIELDS_OF_WORDS: LazyLock<[Places; flow::WORDS]> = LazyLock::new(|| {
    std::array::from_fn(|word| {
        let mut key = flow::FlowKey::ZERO;
        key.0[word] = u64::MAX;
        let mut places = Places::default();
        for (i, _) in ORDER.iter().enumerate().filter(|(_, field)| key.get(**field) != 0) {
            places[i / 64] |= 1 << (i % 64);
        }
        places
    })
});

/// Returns the fields that may have bits in `matching`, and the one before which options are written, in the order of
/// writing.
fn fields_in(matching: &Match) -> impl Iterator<Item = Field> + use<> {
    let mut places = Places::default();
    for (of_word, _) in FIELDS_OF_WORDS.iter().zip(&matching.mask().0).filter(|(_, mask)| **mask != 0) {
        places.iter_mut().zip(of_word).for_each(|(all, more)| *all |= more);
    }
    if !matching.options().is_empty() {
        let at = ORDER.iter().position(|field| *field == Field::TunErspanIdx);
        at.into_iter().for_each(|i| places[i / 64] |= 1 << (i % 64));
    }
    (0..).zip(places).flat_map(|(i, mut left)| {
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            ORDER.get(i * 64 + bit).copied()
        })
    })
}

/// Appends the entries of `matching`, and then those of the cookie, without padding.
pub fn encode(out: &mut Writer, matching: &Match, cookie: Option<Cookie>, dialect: Dialect) {
    let mut entries = Writer::with_capacity(64);
    let mut ethernet = false;
    let wide_registers = dialect == Dialect::Oxm(Version::V15);
    for field in fields_in(matching) {
        if field == Field::TunErspanIdx {
            matching.options().iter().for_each(|option| put_option(&mut entries, option, option.len()));
        }
        let (value, mask) = matching.get(field);
        let register = (Field::Reg0..=Field::Reg31).contains(&field);
        let wide = (Field::Xreg0..=Field::Xreg15).contains(&field);
        if mask == 0 || register && wide_registers || wide && !wide_registers || !is_written(field, matching) {
            continue;
        }
        ethernet |= field.info().prereq != Prereq::None;
        match (field, dialect) {
            (Field::VlanTci, Dialect::Oxm(_)) => put_vlan(&mut entries, value, mask, dialect),
            (Field::InPortOxm, Dialect::Nxm) => {
                let port = base::PortNo(value as u32).to_of10();
                put_entry(&mut entries, Field::InPort, port.into(), 0xffff, dialect);
            }
            (Field::IpDscp, Dialect::Nxm) => put_entry(&mut entries, Field::IpDscpShifted, value << 2, 0xfc, dialect),
            _ => put_entry(&mut entries, field, value, mask, dialect),
        }
    }
    // Every Ethernet field implies that the packet is an Ethernet packet.
    let (packet_type, mask) = matching.get(Field::PacketType);
    if mask != 0 && !(ethernet && packet_type == 0) {
        put_entry(out, Field::PacketType, packet_type, mask, dialect);
    }
    out.append(&entries);
    match cookie {
        Some((_, 0)) | None => {}
        Some((value, u64::MAX)) => {
            COOKIE.encode(out);
            out.put_u64(value);
        }
        Some((value, mask)) => {
            COOKIE_MASKED.encode(out);
            out.put_u64(value & mask);
            out.put_u64(mask);
        }
    }
}

/// The mask of an exact match of `field` in a [`Match`], which keeps only the low byte of the ARP operation.
pub(crate) fn exact_mask(field: Field) -> u128 {
    if field == Field::ArpOp { 0xff } else { field.info().full_mask() }
}

/// Appends one entry, with a mask unless it covers all of the field's bits.
pub fn put_entry(out: &mut Writer, field: Field, value: u128, mask: u128, dialect: Dialect) {
    // The tunnel flags and the connection state, of which only some bits are defined, always have a mask.
    let some_known = matches!(field, Field::TunFlags | Field::CtState);
    let exact = mask & exact_mask(field) == exact_mask(field) && !some_known;
    put_entry_as(out, field, value, (!exact).then_some(mask), dialect);
}

/// Appends one entry, with a mask if `mask` has one.
pub fn put_entry_as(out: &mut Writer, field: Field, value: u128, mask: Option<u128>, dialect: Dialect) {
    let Some(header) = Header::of(field, mask.is_some(), dialect) else { return };
    let n = field.info().wire_bytes();
    header.encode(out);
    out.put_uint(value, n);
    if let Some(mask) = mask {
        out.put_uint(mask, n);
    }
}

/// Appends a tunnel option of `len` bytes, or of as many as its value needs.
pub fn put_option(out: &mut Writer, option: &TunOption, len: usize) {
    let pad = len.saturating_sub(option.value().len());
    if let Some(header) = Header::of(option.field(), option.mask().is_some(), Dialect::Nxm) {
        let parts = [Some(option.value()), option.mask()];
        let payload = parts.iter().flatten().map(|bytes| pad + bytes.len()).sum();
        Header { payload, ..header }.encode(out);
        for bytes in parts.into_iter().flatten() {
            out.zeros(pad);
            out.put(bytes);
        }
    }
}

/// Appends the VLAN id (with the tag's presence) and the priority, which are two fields in OXM.
fn put_vlan(out: &mut Writer, tci: u128, mask: u128, dialect: Dialect) {
    let (vid, vid_mask) = (tci & 0x1fff, mask & 0x1fff);
    if vid_mask != 0 {
        put_entry(out, Field::VlanVid, vid, vid_mask, dialect);
    }
    if vid != 0 && mask & 0xe000 != 0 {
        put_entry_as(out, Field::VlanPcp, tci >> 13 & 7, None, dialect);
    }
}

/// Appends an `nx_match` with its padding; returns its length without padding.
pub fn encode_nx_match(out: &mut Writer, matching: &Match, cookie: Option<Cookie>) -> usize {
    let start = out.len();
    encode(out, matching, cookie, Dialect::Nxm);
    let length = out.len() - start;
    out.pad8(start);
    length
}

/// Appends an `ofp_match` of type OXM, with header and padding (OpenFlow 1.2 and later).
pub fn encode_oxm_match(out: &mut Writer, matching: &Match, version: Version) {
    let start = out.len();
    out.put_u16(1);
    out.put_u16(0);
    encode(out, matching, None, Dialect::Oxm(version));
    out.set_len16(start + 2, start);
    out.pad8(start);
}
