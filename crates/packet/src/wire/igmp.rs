//! IGMP (RFC 3376): the 8 bytes that all versions share.

use super::Truncated;

view! {
    /// An IGMP message.
    Igmp, 8;
    /// Type.
    kind / set_kind: u8 = 0;
    /// Maximum response time, or code.
    code / set_code: u8 = 1;
    /// Checksum.
    checksum / set_checksum: u16 = 2;
    /// Group.
    group / set_group: u32 = 4;
}

/// An IGMP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IgmpRepr {
    /// Type.
    pub kind: u8,
    /// Maximum response time, or code.
    pub code: u8,
    /// Group.
    pub group: u32,
}

impl IgmpRepr {
    /// Reads the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Igmp::new_checked(bytes)?;
        Ok(Self { kind: h.kind(), code: h.code(), group: h.group() })
    }

    /// Appends the message, with a checksum of zero.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut h = Igmp([0; 8]);
        h.set_kind(self.kind);
        h.set_code(self.code);
        h.set_group(self.group);
        out.extend(h.0);
    }
}
