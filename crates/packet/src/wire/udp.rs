//! UDP (RFC 768).

use super::Truncated;

view! {
    /// A UDP header.
    Udp, 8;
    /// Source port.
    src / set_src: u16 = 0;
    /// Destination port.
    dst / set_dst: u16 = 2;
    /// Bytes of header and payload.
    len_field / set_len_field: u16 = 4;
    /// Checksum; 0 for none.
    checksum / set_checksum: u16 = 6;
}

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpRepr {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
}

impl UdpRepr {
    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Udp::new_checked(bytes)?;
        Ok(Self { src: h.src(), dst: h.dst() })
    }

    /// Appends the header for `payload` bytes, with a checksum of zero.
    pub fn emit(&self, payload: usize, out: &mut Vec<u8>) {
        let mut h = Udp([0; 8]);
        h.set_src(self.src);
        h.set_dst(self.dst);
        h.set_len_field((8 + payload).min(0xffff) as u16);
        out.extend(h.0);
    }
}
