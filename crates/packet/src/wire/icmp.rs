//! ICMP and ICMPv6 headers (RFC 792, RFC 4443), which have the same layout.

use super::Truncated;

view! {
    /// An ICMP or ICMPv6 header.
    Icmp, 8;
    /// Type.
    kind / set_kind: u8 = 0;
    /// Code.
    code / set_code: u8 = 1;
    /// Checksum; ICMPv6's covers a pseudo-header, ICMP's does not.
    checksum / set_checksum: u16 = 2;
    /// Rest of the header; its meaning depends on the type.
    rest / set_rest: u32 = 4;
}

/// An ICMP or ICMPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IcmpRepr {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Rest of the header; its meaning depends on the type.
    pub rest: u32,
}

impl IcmpRepr {
    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Icmp::new_checked(bytes)?;
        Ok(Self { kind: h.kind(), code: h.code(), rest: h.rest() })
    }

    /// Appends the header, with a checksum of zero.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut h = Icmp([0; 8]);
        h.set_kind(self.kind);
        h.set_code(self.code);
        h.set_rest(self.rest);
        out.extend(h.0);
    }
}
