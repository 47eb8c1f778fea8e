//! MPLS label stack entries (RFC 3032, RFC 5462).

use super::Truncated;

view! {
    /// A label stack entry.
    Mpls, 4;
    /// Label (20 bits), traffic class (3 bits), bottom of stack (1 bit), time to live (8 bits).
    lse / set_lse: u32 = 0;
}

/// A label stack entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MplsRepr {
    /// Label, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits.
    pub tc: u8,
    /// Whether the bottom of stack bit is set.
    pub bottom: bool,
    /// Time to live.
    pub ttl: u8,
}

impl MplsRepr {
    /// Reads the entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        Ok(Self::from_lse(Mpls::new_checked(bytes)?.lse()))
    }

    /// From the 32 bits on the wire.
    pub fn from_lse(lse: u32) -> Self {
        Self { label: lse >> 12, tc: (lse >> 9 & 7) as u8, bottom: lse & 0x100 != 0, ttl: lse as u8 }
    }

    /// The 32 bits on the wire.
    pub fn lse(&self) -> u32 {
        self.label << 12 | u32::from(self.tc & 7) << 9 | u32::from(self.bottom) << 8 | u32::from(self.ttl)
    }

    /// Appends the entry.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.lse().to_be_bytes());
    }
}
