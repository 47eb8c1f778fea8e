//! GRE (RFC 2784) with key and sequence number (RFC 2890).

use super::pop::{Inner, Parsed};
use super::{ETH_TRANSPARENT, Malformed};
use crate::flags;
use packet::checksum::Sum;

/// A checksum and a reserved word are present.
pub(super) const FLAG_CHECKSUM: u16 = 0x8000;
/// A key is present.
pub(super) const FLAG_KEY: u16 = 0x2000;
/// A sequence number is present.
pub(super) const FLAG_SEQUENCE: u16 = 0x1000;

/// A GRE header to be pushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gre {
    /// Ethernet type of the payload: 0x6558 for Ethernet frames.
    pub protocol: u16,
    /// Computes a checksum over the header and the payload.
    pub checksum: bool,
    /// Key.
    pub key: Option<u32>,
    /// Numbers the packets of the port.
    pub sequence: bool,
}

impl Gre {
    /// Flags and version.
    pub(super) fn flags(&self) -> u16 {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        flag(self.checksum, FLAG_CHECKSUM) | flag(self.key.is_some(), FLAG_KEY) | flag(self.sequence, FLAG_SEQUENCE)
    }

    /// Offset of the sequence number, if there is one.
    pub(super) fn sequence_at(&self) -> u8 {
        4 + if self.checksum { 4 } else { 0 } + if self.key.is_some() { 4 } else { 0 }
    }

    /// Appends the header with a checksum and a sequence number of 0.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.flags().to_be_bytes());
        out.extend(self.protocol.to_be_bytes());
        if self.checksum {
            out.extend([0; 4]);
        }
        out.extend(self.key.into_iter().flat_map(u32::to_be_bytes));
        if self.sequence {
            out.extend([0; 4]);
        }
    }
}

/// Reads a header, and verifies its checksum unless `trusted`. Any payload is accepted.
#[inline]
pub(super) fn decode(payload: &[u8], trusted: bool, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let base = payload.first_chunk::<4>().ok_or(Malformed::Truncated)?;
    let flags = u16::from_be_bytes([base[0], base[1]]);
    if flags & 7 != 0 {
        return Err(Malformed::Version);
    }
    if flags & !(FLAG_CHECKSUM | FLAG_KEY | FLAG_SEQUENCE) != 0 {
        return Err(Malformed::Flags);
    }
    let mut at = 4;
    if flags & FLAG_CHECKSUM != 0 {
        at += 4;
        parsed.flags |= flags::CHECKSUM;
    }
    if flags & FLAG_KEY != 0 {
        let key = payload.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(Malformed::Truncated)?;
        parsed.set_key(u32::from_be_bytes(*key).into());
        at += 4;
    }
    if flags & FLAG_SEQUENCE != 0 {
        at += 4;
    }
    if payload.len() < at {
        return Err(Malformed::Truncated);
    }
    if flags & FLAG_CHECKSUM != 0 && !trusted && !Sum::new().bytes(payload).is_valid() {
        return Err(Malformed::GreChecksum);
    }
    let protocol = u16::from_be_bytes([base[2], base[3]]);
    parsed.inner = if protocol == ETH_TRANSPARENT { Inner::Ethernet } else { Inner::L3(protocol) };
    parsed.start += at;
    Ok(())
}
