//! GTP-U version 1 (3GPP TS 29.281).

use super::pop::{Inner, Parsed};
use super::{Malformed, ip_type};

/// The UDP port of GTP-U.
pub const PORT: u16 = 2152;

/// Flags of a packet without optional fields: version 1, protocol type GTP.
pub const FLAGS_DEFAULT: u8 = 0x30;

/// Message type of user data.
pub const G_PDU: u8 = 255;

/// Bytes of the header without optional fields.
pub(super) const LEN: usize = 8;

/// Version and protocol type.
const VERSION: u8 = 0xf0;
/// An extension header, a sequence number or an N-PDU number is present: if any is, the header has fields for all.
const FLAGS_OPTIONAL: u8 = 7;
/// An extension header is present.
const FLAG_EXTENSION: u8 = 4;
/// A sequence number is present.
pub(super) const FLAG_SEQUENCE: u8 = 2;

/// A GTP-U header to be pushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gtpu {
    /// Version, protocol type, and flags. With the flag of a sequence number (2), the packets of the port are numbered.
    pub flags: u8,
    /// Message type: [`G_PDU`] for user data.
    pub message_type: u8,
    /// Tunnel endpoint identifier.
    pub teid: u32,
}

impl Gtpu {
    /// Whether the header has its four optional bytes.
    pub(super) fn has_optional(&self) -> bool {
        self.flags & FLAGS_OPTIONAL != 0
    }

    /// Appends the header with a length and a sequence number of 0. An extension header is not announced.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.flags, self.message_type, 0, 0]);
        out.extend(self.teid.to_be_bytes());
        if self.has_optional() {
            out.extend([0; 4]);
        }
    }
}

/// Reads a header. A message other than user data is a control message.
#[inline]
pub(super) fn decode(payload: &[u8], parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let (header, rest) = payload.split_first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    let (flags, message_type) = (header[0], header[1]);
    if flags & VERSION != FLAGS_DEFAULT {
        return Err(Malformed::Version);
    }
    let body = rest.get(..usize::from(u16::from_be_bytes([header[2], header[3]]))).ok_or(Malformed::Length)?;
    parsed.gtpu = u64::from(flags) << 56 | u64::from(message_type) << 48;
    parsed.set_key(u32::from_be_bytes([header[4], header[5], header[6], header[7]]).into());
    if message_type != G_PDU {
        parsed.inner = Inner::Control;
        return Ok(());
    }
    let skipped = if flags & FLAGS_OPTIONAL != 0 { optional(flags, body)? } else { 0 };
    let inner = body.get(skipped..).ok_or(Malformed::Truncated)?;
    parsed.start += LEN + skipped;
    parsed.end = parsed.start + inner.len();
    parsed.inner = Inner::L3(ip_type(inner).ok_or(Malformed::InnerProtocol)?);
    Ok(())
}

/// Bytes of optional fields and extension headers (TS 29.281 section 5.2).
#[cold]
fn optional(flags: u8, body: &[u8]) -> Result<usize, Malformed> {
    let fields = body.first_chunk::<4>().ok_or(Malformed::Truncated)?;
    let mut at = 4;
    let mut next = if flags & FLAG_EXTENSION != 0 { fields[3] } else { 0 };
    while next != 0 {
        let len = body.get(at).map_or(0, |units| usize::from(*units) * 4);
        if len == 0 {
            return Err(Malformed::Length);
        }
        let header = body.get(at..at + len).ok_or(Malformed::Length)?;
        next = header.last().copied().unwrap_or(0);
        at += len;
    }
    Ok(at)
}
