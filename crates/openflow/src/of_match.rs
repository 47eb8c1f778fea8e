//! Matches of fixed size: the 40 bytes of OpenFlow 1.0 (section 5.2.3) and the 88 bytes of OpenFlow 1.1 (section A.2.3).
//!
//! OpenFlow 1.0 says that a field whose prerequisites the match lacks has no meaning. As in Open vSwitch, such fields are read
//! and written nevertheless, and only a change of flows drops them ([`Match::keep_meaningful`]).

use super::error::OfpError;
use super::nxm::exact_mask;
use super::prereq;
use crate::wire::{Reader, Writer};
use base::PortNo;
use flow::{Field, Match};

/// Bytes of an OpenFlow 1.0 match.
pub const OF10_LEN: usize = 40;
/// Bytes of an OpenFlow 1.1 match.
pub const OF11_LEN: usize = 88;

/// Wildcard bits of OpenFlow 1.0 (`OFPFW_*`).
pub(crate) mod of10 {
    pub(crate) const IN_PORT: u32 = 1;
    pub(crate) const DL_VLAN: u32 = 1 << 1;
    pub(crate) const DL_SRC: u32 = 1 << 2;
    pub(crate) const DL_DST: u32 = 1 << 3;
    pub(crate) const DL_TYPE: u32 = 1 << 4;
    pub(crate) const NW_PROTO: u32 = 1 << 5;
    pub(crate) const TP_SRC: u32 = 1 << 6;
    pub(crate) const TP_DST: u32 = 1 << 7;
    pub(crate) const NW_SRC_SHIFT: u32 = 8;
    pub(crate) const NW_DST_SHIFT: u32 = 14;
    pub(crate) const DL_VLAN_PCP: u32 = 1 << 20;
    pub(crate) const NW_TOS: u32 = 1 << 21;
    pub(crate) const ALL: u32 = (1 << 22) - 1;
}

/// VLAN id of a match for packets without a tag.
const VLAN_NONE: u16 = 0xffff;
/// VLAN id of an OpenFlow 1.1 match for packets with any tag.
const VLAN_ANY: u16 = 0xfffe;
const VID: u16 = 0x0fff;
const CFI: u16 = 0x1000;
const PCP: u16 = 0xe000;

/// Reads an OpenFlow 1.0 match. Error: `OFPBRC_BAD_LEN` if `r` is too short.
pub fn decode_of10(r: &mut Reader<'_>) -> Result<Match, OfpError> {
    read_of10(&mut Reader::new(r.bytes(OF10_LEN).map_err(|_| OfpError::BrcBadLen)?))
}

/// Returns true if the 40 bytes wildcard nothing; such a flow has the highest priority, whatever its message says (section 3.4).
pub fn of10_is_exact(bytes: &[u8]) -> bool {
    Reader::new(bytes).u32().is_ok_and(|w| w & of10::ALL == 0)
}

fn read_of10(r: &mut Reader<'_>) -> Result<Match, OfpError> {
    let wildcards = r.u32()?;
    let exact = |bit: u32| wildcards & bit == 0;
    let mut m = Match::ANY;
    let in_port = r.u16()?;
    if exact(of10::IN_PORT) {
        m.set(Field::InPortOxm, PortNo::from_of10(in_port).0.into());
    }
    let (src, dst) = (r.mac()?, r.mac()?);
    if exact(of10::DL_SRC) {
        m.set(Field::EthSrc, src.to_u64().into());
    }
    if exact(of10::DL_DST) {
        m.set(Field::EthDst, dst.to_u64().into());
    }
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    let (tci, mask) = vlan_of10(vlan, pcp, exact(of10::DL_VLAN), exact(of10::DL_VLAN_PCP));
    m.set_masked(Field::VlanTci, tci.into(), mask.into());
    r.skip(1)?;
    let eth_type = r.u16()?;
    if exact(of10::DL_TYPE) {
        m.set(Field::EthType, eth_type.into());
    }
    let (tos, proto) = (r.u8()?, r.u8()?);
    r.skip(2)?;
    if exact(of10::NW_TOS) {
        m.set(Field::IpDscp, u128::from(tos >> 2));
    }
    if exact(of10::NW_PROTO) {
        m.set(Field::IpProto, proto.into());
    }
    for (field, shift) in [(Field::Ipv4Src, of10::NW_SRC_SHIFT), (Field::Ipv4Dst, of10::NW_DST_SHIFT)] {
        let mask = u64::from(u32::MAX) << (wildcards >> shift & 0x3f).min(32);
        m.set_masked(field, r.u32()?.into(), (mask as u32).into());
    }
    for (field, bit) in [(Field::TcpSrc, of10::TP_SRC), (Field::TcpDst, of10::TP_DST)] {
        // A type or code of ICMP beyond eight bits matches no packet.
        let value = r.u16()?;
        if exact(bit) {
            m.set(field, value.into());
        }
    }
    Ok(m)
}

/// Returns tag control information and mask for the VLAN fields of OpenFlow 1.0.
fn vlan_of10(vlan: u16, pcp: u8, match_vlan: bool, match_pcp: bool) -> (u16, u16) {
    let pcp = u16::from(pcp) << 13 & PCP;
    match (match_vlan, match_pcp) {
        (false, false) => (0, 0),
        (true, _) if vlan == VLAN_NONE => (0, 0xffff),
        (false, true) => (pcp | CFI, PCP | CFI),
        (true, false) => (vlan & VID | CFI, VID | CFI),
        (true, true) => (vlan & VID | CFI | pcp, 0xffff),
    }
}

struct L3 {
    tos: Option<u8>,
    proto: Option<u8>,
    src: (u32, u32),
    dst: (u32, u32),
}

impl L3 {
    /// Adds the fields whose prerequisite the Ethernet type meets.
    fn add(&self, m: &mut Match) {
        let mut put = |field: Field, value: u128, mask: u128| {
            if mask != 0 && prereq::satisfied(field, m) {
                m.set_masked(field, value, mask);
            }
        };
        if let Some(tos) = self.tos {
            put(Field::IpDscp, u128::from(tos >> 2), 0x3f);
        }
        if let Some(proto) = self.proto {
            put(Field::IpProto, proto.into(), 0xff);
            put(Field::ArpOp, proto.into(), 0xffff);
        }
        for (fields, (value, mask)) in
            [([Field::Ipv4Src, Field::ArpSpa], self.src), ([Field::Ipv4Dst, Field::ArpTpa], self.dst)]
        {
            for field in fields {
                put(field, value.into(), mask.into());
            }
        }
    }
}

/// The fields for ports, and for ICMP type and code, which are 16 bits wide on the wire.
const TP: [(Field, Field); 5] = [
    (Field::TcpSrc, Field::TcpDst),
    (Field::UdpSrc, Field::UdpDst),
    (Field::SctpSrc, Field::SctpDst),
    (Field::Icmpv4Type, Field::Icmpv4Code),
    (Field::Icmpv6Type, Field::Icmpv6Code),
];

/// Appends the part of `matching` that OpenFlow 1.0 can express.
pub fn encode_of10(out: &mut Writer, matching: &Match) {
    let mut wildcards = 0;
    let exact = |field: Field| {
        let (value, mask) = matching.get(field);
        if mask == exact_mask(field) { Some(value) } else { None }
    };
    let mut or = |value: Option<u128>, bit: u32| {
        wildcards |= if value.is_none() { bit } else { 0 };
        value.unwrap_or(0)
    };
    let in_port = or(exact(Field::InPortOxm), of10::IN_PORT);
    let src = or(exact(Field::EthSrc), of10::DL_SRC);
    let dst = or(exact(Field::EthDst), of10::DL_DST);
    let (tci, mask) = matching.get(Field::VlanTci);
    let (tci, mask) = (tci as u16, mask as u16);
    let untagged = mask & CFI != 0 && tci & CFI == 0;
    let vlan = if untagged { Some(VLAN_NONE) } else { (mask & VID != 0).then_some(tci & VID) };
    let pcp = if untagged { Some(0) } else { (mask & PCP != 0).then_some(tci >> 13) };
    let vlan = or(vlan.map(Into::into), of10::DL_VLAN);
    let pcp = or(pcp.map(Into::into), of10::DL_VLAN_PCP);
    let eth_type = or(exact(Field::EthType), of10::DL_TYPE);
    let tos = or(exact(Field::IpDscp), of10::NW_TOS);
    let proto = or(exact(Field::IpProto), of10::NW_PROTO);
    let tp_src = or(exact(Field::TcpSrc), of10::TP_SRC);
    let tp_dst = or(exact(Field::TcpDst), of10::TP_DST);
    let (nw_src, src_mask) = matching.get(Field::Ipv4Src);
    let (nw_dst, dst_mask) = matching.get(Field::Ipv4Dst);
    wildcards |= ((src_mask as u32).trailing_zeros()) << of10::NW_SRC_SHIFT;
    wildcards |= ((dst_mask as u32).trailing_zeros()) << of10::NW_DST_SHIFT;

    out.put_u32(wildcards);
    out.put_u16(PortNo(in_port as u32).to_of10() & if wildcards & of10::IN_PORT == 0 { u16::MAX } else { 0 });
    out.put_uint(src, 6);
    out.put_uint(dst, 6);
    out.put_u16(vlan as u16);
    out.put_u8(pcp as u8);
    out.zeros(1);
    out.put_u16(eth_type as u16);
    out.put_u8((tos << 2) as u8);
    out.put_u8(proto as u8);
    out.zeros(2);
    out.put_u32(nw_src as u32);
    out.put_u32(nw_dst as u32);
    out.put_u16(tp_src as u16);
    out.put_u16(tp_dst as u16);
}

/// Wildcard bits of OpenFlow 1.1 (`OFPFW11_*`).
mod of11 {
    pub(super) const IN_PORT: u32 = 1;
    pub(super) const DL_VLAN: u32 = 1 << 1;
    pub(super) const DL_VLAN_PCP: u32 = 1 << 2;
    pub(super) const DL_TYPE: u32 = 1 << 3;
    pub(super) const NW_TOS: u32 = 1 << 4;
    pub(super) const NW_PROTO: u32 = 1 << 5;
    pub(super) const TP_SRC: u32 = 1 << 6;
    pub(super) const TP_DST: u32 = 1 << 7;
    pub(super) const MPLS_LABEL: u32 = 1 << 8;
    pub(super) const MPLS_TC: u32 = 1 << 9;
}

/// Reads an OpenFlow 1.1 match, with its header.
///
/// Errors: `OFPBMC_BAD_TYPE`, `OFPBMC_BAD_LEN`, `OFPBMC_BAD_VALUE`, `OFPBMC_BAD_FIELD`.
pub fn decode_of11(r: &mut Reader<'_>) -> Result<Match, OfpError> {
    let short = |_| OfpError::BmcBadLen;
    let mut header = r.clone();
    let (ty, length) = (header.u16().map_err(short)?, header.u16().map_err(short)?);
    if ty != 0 {
        return Err(OfpError::BmcBadType);
    }
    if usize::from(length) != OF11_LEN {
        return Err(OfpError::BmcBadLen);
    }
    let mut body = Reader::reporting(r.bytes(OF11_LEN).map_err(short)?, OfpError::BmcBadLen);
    body.skip(4)?;
    read_of11(&mut body)
}

fn read_of11(r: &mut Reader<'_>) -> Result<Match, OfpError> {
    let mut m = Match::ANY;
    let (in_port, wildcards) = (r.u32()?, r.u32()?);
    let exact = |bit: u32| wildcards & bit == 0;
    if exact(of11::IN_PORT) {
        let Some(port) = PortNo::from_of11(in_port) else { return Err(OfpError::BmcBadValue) };
        m.set(Field::InPortOxm, port.0.into());
    }
    for field in [Field::EthSrc, Field::EthDst] {
        let (value, wild) = (r.uint(6)?, r.uint(6)?);
        m.set_masked(field, value, !wild & field.info().full_mask());
    }
    let (vlan, pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let Some((tci, mask)) = vlan_of11(vlan, pcp, exact(of11::DL_VLAN), exact(of11::DL_VLAN_PCP)) else {
        return Err(OfpError::BmcBadValue);
    };
    m.set_masked(Field::VlanTci, tci.into(), mask.into());
    let eth_type = r.u16()?;
    if exact(of11::DL_TYPE) {
        m.set(Field::EthType, eth_type.into());
    }
    let (tos, proto) = (r.u8()?, r.u8()?);
    let (src, src_wild, dst, dst_wild) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let ipv4 = prereq::satisfied(Field::Ipv4Src, &m);
    if exact(of11::NW_TOS) && ipv4 && tos & 3 != 0 {
        return Err(OfpError::BmcBadValue);
    }
    // These fields belong to IPv4 and ARP; the match has none for IPv6.
    if ipv4 || prereq::satisfied(Field::ArpOp, &m) {
        L3 {
            tos: exact(of11::NW_TOS).then_some(tos),
            proto: exact(of11::NW_PROTO).then_some(proto),
            src: (src, !src_wild),
            dst: (dst, !dst_wild),
        }
        .add(&mut m);
    }
    let tp = [(of11::TP_SRC, r.u16()?), (of11::TP_DST, r.u16()?)].map(|(bit, v)| exact(bit).then_some(v));
    if let Some(fields) = TP.into_iter().find(|(f, _)| prereq::satisfied(*f, &m)) {
        for (value, field) in tp.into_iter().zip([fields.0, fields.1]) {
            match value {
                None => {}
                Some(v) if u128::from(v) <= field.info().full_mask() => m.set(field, v.into()),
                Some(_) => return Err(OfpError::BmcBadField),
            }
        }
    }
    let (label, tc) = (r.u32()?, r.u8()?);
    r.skip(3)?;
    if prereq::satisfied(Field::MplsLabel, &m) {
        if exact(of11::MPLS_LABEL) {
            m.set(Field::MplsLabel, label.into());
        }
        if exact(of11::MPLS_TC) {
            m.set(Field::MplsTc, tc.into());
        }
    }
    let (metadata, wild) = (r.u64()?, r.u64()?);
    m.set_masked(Field::Metadata, metadata.into(), u128::from(!wild));
    Ok(m)
}

fn vlan_of11(vlan: u16, pcp: u8, match_vlan: bool, match_pcp: bool) -> Option<(u16, u16)> {
    let (tci, mask) = match (match_vlan, vlan) {
        (false, _) => (0, 0),
        (true, VLAN_NONE) => return Some((0, 0xffff)),
        (true, VLAN_ANY) => (CFI, CFI),
        (true, 0..=VID) => (vlan | CFI, VID | CFI),
        _ => return None,
    };
    match (match_pcp && mask != 0, pcp) {
        (false, _) => Some((tci, mask)),
        (true, 0..=7) => Some((tci | u16::from(pcp) << 13, mask | PCP)),
        _ => None,
    }
}

/// Appends the part of `matching` that OpenFlow 1.1 can express, with header.
pub fn encode_of11(out: &mut Writer, matching: &Match) {
    let get = |field: Field| if prereq::satisfied(field, matching) { matching.get(field) } else { (0, 0) };
    let mut wildcards = 0;
    let mut exact = |fields: &[Field], bit: u32| {
        let found = fields.iter().map(|f| (get(*f), f)).find(|((_, mask), f)| *mask == exact_mask(**f));
        wildcards |= if found.is_none() { bit } else { 0 };
        found.map_or(0, |((value, _), _)| value)
    };
    let in_port = exact(&[Field::InPortOxm], of11::IN_PORT);
    let eth_type = exact(&[Field::EthType], of11::DL_TYPE);
    let tos = exact(&[Field::IpDscp], of11::NW_TOS) << 2;
    let proto = exact(&[Field::IpProto, Field::ArpOp], of11::NW_PROTO);
    let tp_src = exact(&TP.map(|(f, _)| f), of11::TP_SRC);
    let tp_dst = exact(&TP.map(|(_, f)| f), of11::TP_DST);
    let label = exact(&[Field::MplsLabel], of11::MPLS_LABEL);
    let tc = exact(&[Field::MplsTc], of11::MPLS_TC);
    let (tci, mask) = matching.get(Field::VlanTci);
    let (tci, mask) = (tci as u16, mask as u16);
    let mut vlan = 0;
    if mask & CFI != 0 && tci & CFI == 0 {
        vlan = VLAN_NONE;
        wildcards |= of11::DL_VLAN_PCP;
    } else if mask & (CFI | VID) == CFI || mask & VID == 0 && mask & PCP != 0 {
        vlan = VLAN_ANY;
    } else if mask & VID != 0 {
        vlan = tci & VID;
    } else {
        wildcards |= of11::DL_VLAN;
    }
    if mask & PCP == 0 {
        wildcards |= of11::DL_VLAN_PCP;
    }

    out.put_u16(0);
    out.put_u16(OF11_LEN as u16);
    out.put_u32(in_port as u32);
    out.put_u32(wildcards);
    for field in [Field::EthSrc, Field::EthDst] {
        let (value, mask) = get(field);
        out.put_uint(value, 6);
        out.put_uint(!mask, 6);
    }
    out.put_u16(vlan);
    out.put_u8(if wildcards & of11::DL_VLAN_PCP == 0 { (tci >> 13) as u8 } else { 0 });
    out.zeros(1);
    out.put_u16(eth_type as u16);
    out.put_u8(tos as u8);
    out.put_u8(proto as u8);
    for fields in [[Field::Ipv4Src, Field::ArpSpa], [Field::Ipv4Dst, Field::ArpTpa]] {
        let (value, mask) = fields.into_iter().map(get).find(|(_, mask)| *mask != 0).unwrap_or((0, 0));
        out.put_u32(value as u32);
        out.put_u32(!(mask as u32));
    }
    out.put_u16(tp_src as u16);
    out.put_u16(tp_dst as u16);
    out.put_u32(label as u32);
    out.put_u8(tc as u8);
    out.zeros(3);
    let (value, mask) = matching.get(Field::Metadata);
    out.put_u64(value as u64);
    out.put_u64(!(mask as u64));
}
