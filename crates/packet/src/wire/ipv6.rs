//! IPv6 and its extension headers (RFC 8200, RFC 4302).

use super::Truncated;

view! {
    /// An IPv6 header.
    Ipv6, 40;
    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    version_class_label / set_version_class_label: u32 = 0;
    /// Bytes after this header.
    payload_len / set_payload_len: u16 = 4;
    /// Protocol of the header that follows.
    next_header / set_next_header: u8 = 6;
    /// Hop limit.
    hop_limit / set_hop_limit: u8 = 7;
    /// Source.
    src / set_src: u128 = 8;
    /// Destination.
    dst / set_dst: u128 = 24;
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Traffic class: DSCP and ECN.
    pub fn class(&self) -> u8 {
        (self.version_class_label() >> 20) as u8
    }

    /// Flow label.
    pub fn label(&self) -> u32 {
        self.version_class_label() & 0xf_ffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Sets the traffic class.
    pub fn set_class(&mut self, class: u8) {
        self.set_version_class_label(self.version_class_label() & !0x0ff0_0000 | u32::from(class) << 20);
    }

    /// Sets the low 20 bits as flow label.
    pub fn set_label(&mut self, label: u32) {
        self.set_version_class_label(self.version_class_label() & !0xf_ffff | label & 0xf_ffff);
    }
}

/// Summary of a packet's extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions {
    /// Protocol of the payload (44 for a fragment that is not the first).
    pub proto: u8,
    /// Whether the packet is a fragment, first or later.
    pub fragment: bool,
    /// Whether a routing header has segments left. Checksums then cover the final destination, not the one in the IPv6
    /// header.
    pub routed: bool,
    /// Total length in bytes.
    pub len: usize,
}

/// Walks the extension headers of a payload that begins with protocol `next`; `None` if one is truncated.
pub fn extensions(next: u8, payload: &[u8]) -> Option<Extensions> {
    let mut ext = Extensions { proto: next, fragment: false, routed: false, len: 0 };
    loop {
        let rest = payload.get(ext.len..)?;
        let bytes = match ext.proto {
            0 | 43 | 60 => (usize::from(*rest.get(1)?) + 1) * 8,
            51 => (usize::from(*rest.get(1)?) + 2) * 4,
            44 => 8,
            _ => return Some(ext),
        };
        let header = rest.get(..bytes)?;
        if ext.proto == 43 {
            ext.routed = header[3] != 0;
        }
        if ext.proto == 44 {
            let offset = u16::from_be_bytes([header[2], header[3]]);
            ext.fragment |= offset & 0xfff9 != 0;
            if offset & 0xfff8 != 0 {
                ext.len += bytes;
                return Some(ext);
            }
        }
        ext.len += bytes;
        ext.proto = header[0];
    }
}

/// An IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ipv6Repr {
    /// Source.
    pub src: u128,
    /// Destination.
    pub dst: u128,
    /// Protocol of the header that follows.
    pub next_header: u8,
    /// Traffic class.
    pub class: u8,
    /// Flow label, 20 bits.
    pub label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Ipv6Repr {
    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Ipv6::new_checked(bytes)?;
        Ok(Self {
            src: h.src(),
            dst: h.dst(),
            next_header: h.next_header(),
            class: h.class(),
            label: h.label(),
            hop_limit: h.hop_limit(),
        })
    }

    /// Appends the header for `payload` bytes.
    pub fn emit(&self, payload: usize, out: &mut Vec<u8>) {
        let mut h = Ipv6([0; 40]);
        h.set_version_class_label(6 << 28);
        h.set_class(self.class);
        h.set_label(self.label);
        h.set_payload_len(payload.min(0xffff) as u16);
        h.set_next_header(self.next_header);
        h.set_hop_limit(self.hop_limit);
        h.set_src(self.src);
        h.set_dst(self.dst);
        out.extend(h.0);
    }
}
