//! ERSPAN (draft-foschiano-erspan-03): mirrored frames over GRE with sequence numbers. Version 1 is the draft's type II,
//! version 2 its type III.

use super::pop::{Inner, Parsed};
use super::{Malformed, gre};
use base::Millis;

/// Bytes of the GRE header.
pub(super) const GRE_LEN: usize = 8;
/// GRE protocol of version 1.
const PROTOCOL_V1: u16 = 0x88be;
/// GRE protocol of version 2.
const PROTOCOL_V2: u16 = 0x22eb;

/// Whether packets of GRE with this protocol are ERSPAN.
pub(super) fn is_protocol(protocol: u16) -> bool {
    matches!(protocol, PROTOCOL_V1 | PROTOCOL_V2)
}
/// Session, in the first word.
const SESSION: u32 = 0x3ff;
/// Index, in the second word of version 1.
const INDEX: u32 = 0xf_ffff;
/// Bytes of the sub-header of version 2 that its flag O announces.
const SUB_HEADER: usize = 8;

/// An ERSPAN header to be pushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Erspan {
    /// Type II.
    V1 {
        /// Session, 10 bits.
        session: u16,
        /// Index of the mirrored port, 20 bits.
        index: u32,
    },
    /// Type III.
    V2 {
        /// Session, 10 bits.
        session: u16,
        /// Whether the port sent the frame; otherwise it received it.
        is_egress: bool,
        /// Id of the mirroring engine, 6 bits.
        hardware_id: u8,
    },
}

impl Erspan {
    /// Appends GRE and ERSPAN headers with a sequence number and a timestamp of 0.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let base = |protocol: u16| u32::from(gre::FLAG_SEQUENCE) << 16 | u32::from(protocol);
        let words = match *self {
            Self::V1 { session, index } => {
                vec![base(PROTOCOL_V1), 0, 1 << 28 | u32::from(session) & SESSION, index & INDEX]
            }
            Self::V2 { session, is_egress, hardware_id } => {
                let last = u32::from(hardware_id & 0x3f) << 4 | u32::from(is_egress) << 3;
                vec![base(PROTOCOL_V2), 0, 2 << 28 | u32::from(session) & SESSION, 0, last]
            }
        };
        out.extend(words.into_iter().flat_map(u32::to_be_bytes));
    }
}

/// The timestamp of version 2 at a time: units of 100 microseconds.
pub fn timestamp(now: Millis) -> u32 {
    (now.0 as u32).wrapping_mul(10)
}

/// Reads both headers. The version in the ERSPAN header decides, whatever GRE's protocol.
#[inline]
pub(super) fn decode(payload: &[u8], parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let (head, rest) = payload.split_first_chunk::<{ GRE_LEN + 8 }>().ok_or(Malformed::Truncated)?;
    let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| head[at + i]));
    let (base, first, second) = (word(0), word(8), word(12));
    if base >> 16 & 7 != 0 {
        return Err(Malformed::Version);
    }
    if base >> 16 != gre::FLAG_SEQUENCE.into() {
        return Err(Malformed::Flags);
    }
    if !matches!(base as u16, PROTOCOL_V1 | PROTOCOL_V2) {
        return Err(Malformed::InnerProtocol);
    }
    let mut len = head.len();
    match first >> 28 {
        1 => parsed.erspan = u64::from(second & INDEX) << 32 | 1 << 24,
        2 => {
            let last = u32::from_be_bytes(*rest.first_chunk::<4>().ok_or(Malformed::Truncated)?);
            let (hardware_id, is_egress) = (u64::from(last >> 4 & 0x3f), u64::from(last >> 3 & 1));
            parsed.erspan = 2 << 24 | is_egress << 16 | hardware_id << 8;
            len += 4 + if last & 1 != 0 { SUB_HEADER } else { 0 };
        }
        _ => return Err(Malformed::Version),
    }
    if payload.len() < len {
        return Err(Malformed::Truncated);
    }
    parsed.set_key((first & SESSION).into());
    parsed.inner = Inner::Ethernet;
    parsed.start += len;
    Ok(())
}
