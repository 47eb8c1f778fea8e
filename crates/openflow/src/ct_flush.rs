//! Flushing connection tracking entries (NXT_CT_FLUSH, NXT_CT_FLUSH_ZONE): all of a zone, or those that match addresses and
//! ports of either direction, mark and labels.

mod parse;

pub use parse::{CtFlushError, leading_u16, leading_u32, whole_number};

use crate::error::OfpError;
use crate::nxm::Unknown;
use crate::print::ipv6_to_string;
use crate::property;
use crate::wire::{Reader, Result, Writer};
use std::net::{Ipv4Addr, Ipv6Addr};

// Properties of the message.
const ORIGINAL: u16 = 0;
const REPLY: u16 = 1;
const ZONE: u16 = 2;
const MARK: u16 = 3;
const MARK_MASK: u16 = 4;
const LABELS: u16 = 5;
const LABELS_MASK: u16 = 6;
// Properties of a direction.
const SRC: u16 = 0;
const DST: u16 = 1;
const SRC_PORT: u16 = 2;
const DST_PORT: u16 = 3;
const ICMP_ID: u16 = 4;
const ICMP_TYPE: u16 = 5;
const ICMP_CODE: u16 = 6;
/// Padding before properties within a property.
const PAD: usize = 4;

/// Addresses and ports of packets of one direction of a connection; zero matches any value. For ICMP the identifier takes
/// the place of the source port, type and code that of the destination port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Direction {
    /// Source address; IPv4 addresses are mapped to IPv6: `::ffff:10.0.0.1`.
    pub src: Ipv6Addr,
    /// Destination address, likewise.
    pub dst: Ipv6Addr,
    /// Source port, or ICMP's identifier.
    pub src_port: u16,
    /// Destination port, or ICMP's code in the upper and type in the lower eight bits.
    pub dst_port: u16,
}

impl Default for Direction {
    fn default() -> Self {
        Self { src: Ipv6Addr::UNSPECIFIED, dst: Ipv6Addr::UNSPECIFIED, src_port: 0, dst_port: 0 }
    }
}

/// The connections to flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtFlush {
    /// The IP protocol of the connections; 0 for any.
    pub ip_proto: u8,
    /// The zone of the connections; any if the message does not name one.
    pub zone: Option<u16>,
    /// Value and mask of the connections' mark; a mask of 0 matches any.
    pub mark: (u32, u32),
    /// Value and mask of the connections' labels, likewise.
    pub labels: (u128, u128),
    /// The original direction.
    pub original: Direction,
    /// The reply direction.
    pub reply: Direction,
    /// True if the addresses are IPv4; `None` if there are none.
    pub is_ipv4: Option<bool>,
}

impl CtFlush {
    /// Returns true if the protocol is ICMP or ICMPv6.
    pub fn is_icmp(&self) -> bool {
        matches!(self.ip_proto, 1 | 58)
    }

    /// Errors: `NXBRC_MUST_BE_ZERO`, `OFPBPC_BAD_LEN`, and `OFPBPC_BAD_VALUE` for addresses of both families.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut flush = Self { ip_proto: r.u8()?, ..Self::default() };
        if r.bytes(7)?.iter().any(|b| *b != 0) {
            return Err(OfpError::NxbrcMustBeZero);
        }
        let (mut mark_mask, mut labels_mask) = (None, None);
        property::each(r, |p| {
            match p.ty {
                ORIGINAL => p.read(|r| direction(r, &mut flush.original, &mut flush.is_ipv4))?,
                REPLY => p.read(|r| direction(r, &mut flush.reply, &mut flush.is_ipv4))?,
                ZONE => flush.zone = Some(p.u16()?),
                // A value without a mask is exact.
                MARK => flush.mark = (p.u32()?, u32::MAX),
                MARK_MASK => mark_mask = Some(p.u32()?),
                LABELS => flush.labels = (p.u128()?, u128::MAX),
                LABELS_MASK => labels_mask = Some(p.u128()?),
                _ => p.unknown(Unknown::Refuse)?,
            }
            Ok(())
        })?;
        flush.mark.1 = mark_mask.unwrap_or(flush.mark.1);
        flush.labels.1 = labels_mask.unwrap_or(flush.labels.1);
        Ok(flush)
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u8(self.ip_proto);
        out.zeros(7);
        for (ty, tuple) in [(ORIGINAL, &self.original), (REPLY, &self.reply)] {
            // For ICMP, type and code are always included.
            if self.is_icmp() || *tuple != Direction::default() {
                let mut nested = Writer::new();
                nested.zeros(PAD);
                self.put_direction(tuple, &mut nested);
                property::put(out, ty, |out| out.append(&nested));
            }
        }
        if let Some(zone) = self.zone {
            put_u16(out, ZONE, zone);
        }
        let (mark, mask) = self.mark;
        if mask != 0 {
            property::put_u32(out, MARK, mark);
        }
        if !matches!(mask, 0 | u32::MAX) {
            property::put_u32(out, MARK_MASK, mask);
        }
        let (labels, mask) = self.labels;
        if mask != 0 {
            property::put(out, LABELS, |out| out.put(&labels.to_be_bytes()));
        }
        if !matches!(mask, 0 | u128::MAX) {
            property::put(out, LABELS_MASK, |out| out.put(&mask.to_be_bytes()));
        }
    }

    fn put_direction(&self, d: &Direction, nested: &mut Writer) {
        // Nested properties are aligned relative to their own start.
        let mut out = Writer::new();
        for (ty, address) in [(SRC, d.src), (DST, d.dst)] {
            if !address.is_unspecified() {
                property::put(&mut out, ty, |out| out.put(&address.octets()));
            }
        }
        let [code, kind] = d.dst_port.to_be_bytes();
        if self.is_icmp() {
            put_u16(&mut out, ICMP_ID, d.src_port);
            property::put(&mut out, ICMP_TYPE, |out| out.put_u8(kind));
            property::put(&mut out, ICMP_CODE, |out| out.put_u8(code));
        } else {
            for (ty, port) in [(SRC_PORT, d.src_port), (DST_PORT, d.dst_port)] {
                if port != 0 {
                    put_u16(&mut out, ty, port);
                }
            }
        }
        nested.append(&out);
    }
}

/// Unlike for 8 bits, the length of a 16-bit property includes the padding.
fn put_u16(out: &mut Writer, ty: u16, value: u16) {
    property::put(out, ty, |out| {
        out.put_u16(value);
        out.zeros(2);
    });
}

/// Reads one direction into `d`, which may have values already; its addresses must have the same family as earlier ones.
fn direction(r: &mut Reader<'_>, d: &mut Direction, is_ipv4: &mut Option<bool>) -> Result<()> {
    r.skip(PAD)?;
    let mut address = |p: property::Property<'_>| -> Result<Ipv6Addr> {
        let address = p.read(|r| r.array::<16>().map(Ipv6Addr::from))?;
        let family = address.to_ipv4_mapped().is_some();
        if *is_ipv4.get_or_insert(family) == family { Ok(address) } else { Err(OfpError::BpcBadValue) }
    };
    property::each(r, |p| {
        let [code, kind] = d.dst_port.to_be_bytes();
        match p.ty {
            SRC => d.src = address(p)?,
            DST => d.dst = address(p)?,
            SRC_PORT | ICMP_ID => d.src_port = p.u16()?,
            DST_PORT => d.dst_port = p.u16()?,
            ICMP_TYPE => d.dst_port = u16::from_be_bytes([code, p.u8()?]),
            ICMP_CODE => d.dst_port = u16::from_be_bytes([p.u8()?, kind]),
            _ => p.unknown(Unknown::Refuse)?,
        }
        Ok(())
    })
}

/// Formats an address; an IPv4 address in its own notation.
pub fn address_to_string(address: Ipv6Addr) -> String {
    address.to_ipv4_mapped().as_ref().map_or_else(|| ipv6_to_string(address), Ipv4Addr::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_round_trips() {
        let v4 = |n: u8| Ipv4Addr::new(10, 0, 0, n).to_ipv6_mapped();
        let ports = Direction { src: v4(1), dst: v4(2), src_port: 5, dst_port: 6 };
        let echo = Direction { src: "fe80::1".parse().expect("an address"), dst_port: 0x0308, ..Direction::default() };
        for flush in [
            CtFlush::default(),
            CtFlush { ip_proto: 6, zone: Some(7), original: ports, is_ipv4: Some(true), ..CtFlush::default() },
            CtFlush { mark: (25, 0xff), labels: (7, u128::MAX), ..CtFlush::default() },
            CtFlush { mark: (0, u32::MAX), labels: (5, 2), zone: Some(1), ..CtFlush::default() },
            CtFlush { ip_proto: 58, reply: echo, is_ipv4: Some(false), ..CtFlush::default() },
        ] {
            let mut out = Writer::new();
            flush.encode(&mut out);
            assert_eq!(CtFlush::decode(&mut Reader::new(&out)), Ok(flush));
        }
    }

    #[test]
    fn addresses_are_of_one_family() {
        let mixed = Direction { src: "::1".parse().expect("an address"), ..Direction::default() };
        let v4 = Direction { dst: Ipv4Addr::LOCALHOST.to_ipv6_mapped(), ..Direction::default() };
        let mut out = Writer::new();
        CtFlush { original: mixed, reply: v4, ..CtFlush::default() }.encode(&mut out);
        assert_eq!(CtFlush::decode(&mut Reader::new(&out)), Err(OfpError::BpcBadValue));
        out[3] = 1;
        assert_eq!(CtFlush::decode(&mut Reader::new(&out)), Err(OfpError::NxbrcMustBeZero));
    }
}
