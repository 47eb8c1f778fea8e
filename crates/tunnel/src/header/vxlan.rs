//! VXLAN (RFC 7348), its group policy (draft-smith-vxlan-group-policy-05) and its generic protocol extension
//! (draft-ietf-nvo3-vxlan-gpe-12).

use super::pop::{Inner, Parsed};
use super::{ETH_IPV4, ETH_IPV6, ETH_NSH, Malformed};

/// The UDP port of VXLAN.
pub const PORT: u16 = 4789;

/// Bytes of the header.
pub(super) const LEN: usize = 8;

/// The VNI is valid.
const FLAG_VNI: u32 = 0x0800_0000;
/// The next protocol is valid.
const FLAG_NEXT: u32 = 0x0400_0000;
/// The version of the protocol extension, which Open vSwitch ignores.
const VERSION: u32 = 0x3000_0000;
/// The next protocol.
const NEXT: u32 = 0xff;
/// The group is valid.
const FLAG_GROUP: u32 = 0x8000_0000;
/// Flags "don't learn" and "policy applied", and the group.
const GROUP_POLICY: u32 = 0x0048_ffff;

/// Next protocols, and the Ethernet types of those without an Ethernet header.
const NEXT_IPV4: u32 = 1;
const NEXT_IPV6: u32 = 2;
const NEXT_ETHERNET: u32 = 3;
const NEXT_NSH: u32 = 4;

/// A VXLAN header to be pushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vxlan {
    /// The first word: flags, with a group or a next protocol.
    pub flags: u32,
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
}

impl Vxlan {
    /// A header of RFC 7348.
    pub fn new(vni: u32) -> Self {
        Self { flags: FLAG_VNI, vni: vni & 0xff_ffff }
    }

    /// With a group policy: flags in the upper 8 of 24 bits (0x40 "don't learn", 0x08 "policy applied"), the group in
    /// the lower 16.
    #[must_use]
    pub fn with_group_policy(self, policy: u32) -> Self {
        Self { flags: self.flags | FLAG_GROUP | policy & GROUP_POLICY, ..self }
    }

    /// With the protocol extension, for Ethernet frames (`None`) or L3 packets of an Ethernet type; `None` if the
    /// extension has no number for it.
    #[must_use]
    pub fn with_next_protocol(self, l3_type: Option<u16>) -> Option<Self> {
        let next = match l3_type {
            None => NEXT_ETHERNET,
            Some(ETH_IPV4) => NEXT_IPV4,
            Some(ETH_IPV6) => NEXT_IPV6,
            Some(ETH_NSH) => NEXT_NSH,
            Some(_) => return None,
        };
        Some(Self { flags: self.flags | FLAG_NEXT | next, ..self })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.flags.to_be_bytes());
        out.extend((self.vni << 8).to_be_bytes());
    }
}

/// Reads a header with the flags that Open vSwitch accepts: all others must be zero.
#[inline]
pub(super) fn decode(payload: &[u8], group_policy: bool, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    let header = payload.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
    let flags = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let vni = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    if vni & 0xff != 0 {
        return Err(Malformed::Flags);
    }
    if flags != FLAG_VNI {
        extended(flags, group_policy, parsed)?;
    }
    parsed.set_key((vni >> 8).into());
    parsed.start += LEN;
    Ok(())
}

/// Reads flags with an extension.
fn extended(flags: u32, group_policy: bool, parsed: &mut Parsed<'_>) -> Result<(), Malformed> {
    if flags & !VERSION & !NEXT == FLAG_VNI | FLAG_NEXT {
        parsed.inner = match flags & NEXT {
            NEXT_IPV4 => Inner::L3(ETH_IPV4),
            NEXT_IPV6 => Inner::L3(ETH_IPV6),
            NEXT_ETHERNET => Inner::Ethernet,
            NEXT_NSH => Inner::L3(ETH_NSH),
            _ => return Err(Malformed::InnerProtocol),
        };
        return Ok(());
    }
    // RFC 7348 has receivers ignore reserved bits; those of the group policy may become flags.
    if group_policy && flags & 0xff00_0000 == FLAG_VNI | FLAG_GROUP {
        parsed.group_policy = flags & GROUP_POLICY;
        return Ok(());
    }
    Err(Malformed::Flags)
}
