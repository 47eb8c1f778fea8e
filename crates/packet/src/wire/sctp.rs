//! SCTP's common header (RFC 9260).

use super::Truncated;

view! {
    /// An SCTP common header.
    Sctp, 12;
    /// Source port.
    src / set_src: u16 = 0;
    /// Destination port.
    dst / set_dst: u16 = 2;
    /// Verification tag.
    tag / set_tag: u32 = 4;
    /// CRC32c, stored in little endian: swap its bytes.
    checksum / set_checksum: u32 = 8;
}

/// An SCTP common header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SctpRepr {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Verification tag.
    pub tag: u32,
}

impl SctpRepr {
    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Sctp::new_checked(bytes)?;
        Ok(Self { src: h.src(), dst: h.dst(), tag: h.tag() })
    }

    /// Appends the header, with a checksum of zero.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut h = Sctp([0; 12]);
        h.set_src(self.src);
        h.set_dst(self.dst);
        h.set_tag(self.tag);
        out.extend(h.0);
    }
}
