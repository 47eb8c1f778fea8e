//! IPv4 (RFC 791).

use super::Truncated;
use crate::checksum::checksum;

view! {
    /// An IPv4 header.
    Ipv4, 20;
    /// Version (4 bits) and header length in 32-bit words (4 bits).
    version_ihl / set_version_ihl: u8 = 0;
    /// Type of service: DSCP (6 bits) and ECN (2 bits).
    tos / set_tos: u8 = 1;
    /// Bytes of header and payload.
    total_len / set_total_len: u16 = 2;
    /// Identification.
    id / set_id: u16 = 4;
    /// Flags (3 bits) and fragment offset in units of 8 bytes (13 bits).
    flags_offset / set_flags_offset: u16 = 6;
    /// Time to live.
    ttl / set_ttl: u8 = 8;
    /// Protocol of the payload.
    proto / set_proto: u8 = 9;
    /// Header checksum.
    checksum / set_checksum: u16 = 10;
    /// Source.
    src / set_src: u32 = 12;
    /// Destination.
    dst / set_dst: u32 = 16;
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Bytes of the header with options, as stated in it: may be less than 20 or more than the packet has.
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl() & 0xf) * 4
    }
}

/// An IPv4 header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ipv4Repr {
    /// Source.
    pub src: u32,
    /// Destination.
    pub dst: u32,
    /// Protocol of the payload.
    pub proto: u8,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset as on the wire.
    pub flags_offset: u16,
}

impl Ipv4Repr {
    /// Reads the header. The caller skips options by [`Ipv4::header_len`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Ipv4::new_checked(bytes)?;
        Ok(Self {
            src: h.src(),
            dst: h.dst(),
            proto: h.proto(),
            tos: h.tos(),
            ttl: h.ttl(),
            id: h.id(),
            flags_offset: h.flags_offset(),
        })
    }

    /// Appends the header for `payload` bytes, with its checksum.
    pub fn emit(&self, payload: usize, out: &mut Vec<u8>) {
        let mut h = Ipv4([0; 20]);
        h.set_version_ihl(0x45);
        h.set_tos(self.tos);
        h.set_total_len((20 + payload).min(0xffff) as u16);
        h.set_id(self.id);
        h.set_flags_offset(self.flags_offset);
        h.set_ttl(self.ttl);
        h.set_proto(self.proto);
        h.set_src(self.src);
        h.set_dst(self.dst);
        h.set_checksum(checksum(&h.0));
        out.extend(h.0);
    }
}
