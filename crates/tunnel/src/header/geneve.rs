//! Geneve (RFC 8926).

use super::pop::{Inner, Parsed};
use super::{ETH_TRANSPARENT, Malformed};
use crate::flags;

/// The UDP port of Geneve.
pub const PORT: u16 = 6081;

/// Most bytes of options that a header holds.
pub const OPTIONS_MAX: usize = 252;

/// Bytes of the header without options.
pub(super) const LEN: usize = 8;

/// Flag of a control packet.
const FLAG_OAM: u8 = 0x80;
/// Flag of a header with critical options.
const FLAG_CRITICAL: u8 = 0x40;
/// Bit of a critical option's type.
const TYPE_CRITICAL: u8 = 0x80;

/// A Geneve header to be pushed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Geneve {
    /// Virtual network identifier, 24 bits.
    pub vni: u32,
    /// Marks a control packet.
    pub oam: bool,
    /// Options as on the wire, in their order, at most [`OPTIONS_MAX`] bytes.
    pub options: Box<[u8]>,
}

impl Geneve {
    /// Whether an option is critical: a receiver that does not know it has to drop the packet.
    pub fn has_critical_options(&self) -> bool {
        options(&self.options).flatten().any(|option| option.kind & TYPE_CRITICAL != 0)
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let critical = if self.has_critical_options() { FLAG_CRITICAL } else { 0 };
        out.push((self.options.len() / 4) as u8 & 0x3f);
        out.push(critical | if self.oam { FLAG_OAM } else { 0 });
        out.extend(ETH_TRANSPARENT.to_be_bytes());
        out.extend((self.vni << 8).to_be_bytes());
        out.extend(&self.options);
    }
}

/// One option (RFC 8926 section 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeneveOption<'a> {
    /// Class: the namespace of the type.
    pub class: u16,
    /// Type, with the bit 0x80 of critical options.
    pub kind: u8,
    /// Value, a multiple of 4 bytes, at most 124.
    pub value: &'a [u8],
}

impl GeneveOption<'_> {
    /// Appends the option.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.class.to_be_bytes());
        out.extend([self.kind, (self.value.len() / 4) as u8 & 0x1f]);
        out.extend(self.value);
    }
}

/// The options in `bytes`. A length that exceeds the bytes is an error, behind which the iterator ends.
pub fn options(bytes: &[u8]) -> impl Iterator<Item = Result<GeneveOption<'_>, Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = split_option(rest);
        rest = next.map_or(&[], |(_, after)| after);
        Some(next.map(|(option, _)| option).ok_or(Malformed::Options))
    })
}

#[inline]
fn split_option(bytes: &[u8]) -> Option<(GeneveOption<'_>, &[u8])> {
    let ([high, low, kind, len], rest) = bytes.split_first_chunk::<4>()?;
    let (value, after) = rest.split_at_checked(usize::from(len & 0x1f) * 4)?;
    Some((GeneveOption { class: u16::from_be_bytes([*high, *low]), kind: *kind, value }, after))
}

/// Reads a header. Only Ethernet frames are accepted, and reserved bits ignored.
#[inline]
pub(super) fn decode<'a>(payload: &'a [u8], parsed: &mut Parsed<'a>) -> Result<(), Malformed> {
    let (header, rest) = payload.split_first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    if header[0] >> 6 != 0 {
        return Err(Malformed::Version);
    }
    if u16::from_be_bytes([header[2], header[3]]) != ETH_TRANSPARENT {
        return Err(Malformed::InnerProtocol);
    }
    let options_len = usize::from(header[0] & 0x3f) * 4;
    if options_len > 0 {
        parsed.options = rest.get(..options_len).ok_or(Malformed::Length)?;
        let mut unread = parsed.options;
        while !unread.is_empty() {
            unread = split_option(unread).ok_or(Malformed::Options)?.1;
        }
    }
    if header[1] & FLAG_OAM != 0 {
        parsed.flags |= flags::OAM;
    }
    parsed.set_key(u32::from_be_bytes([0, header[4], header[5], header[6]]).into());
    parsed.inner = Inner::Ethernet;
    parsed.start += LEN + options_len;
    Ok(())
}
