//! Network service header (RFC 8300).

use super::Truncated;

view! {
    /// The base and service path headers.
    Nsh, 8;
    /// Version (2 bits), flags (2 bits), time to live (6 bits), length in 32-bit words (6 bits).
    base / set_base: u16 = 0;
    /// Metadata type.
    mdtype / set_mdtype: u8 = 2;
    /// Next protocol.
    np / set_np: u8 = 3;
    /// Service path id (24 bits) and service index (8 bits).
    path / set_path: u32 = 4;
}

impl<T: AsRef<[u8]>> Nsh<T> {
    /// Bytes of the header with its metadata, as stated in it: may be less than 8 or more than the packet has.
    pub fn header_len(&self) -> usize {
        usize::from(self.base() & 0x3f) * 4
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        (self.base() >> 6 & 0x3f) as u8
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Nsh<T> {
    /// Sets the low 6 bits as time to live.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.set_base(self.base() & !0x0fc0 | u16::from(ttl & 0x3f) << 6);
    }
}

/// A network service header with metadata of type 1 (four words of context), or none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NshRepr {
    /// Two flag bits.
    pub flags: u8,
    /// Time to live, 6 bits.
    pub ttl: u8,
    /// Next protocol.
    pub np: u8,
    /// Service path id and index.
    pub path: u32,
    /// Metadata type; `context` is valid for type 1 only.
    pub mdtype: u8,
    /// Context words.
    pub context: [u32; 4],
}

impl NshRepr {
    /// Maximum bytes of metadata, limited by the header's length field.
    pub const METADATA_MAX: usize = (0x3f - 2) * 4;

    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Nsh::new_checked(bytes)?;
        let mut context = [0; 4];
        if h.mdtype() == 1 {
            let short = Truncated { needed: 24, present: bytes.len() };
            let words = bytes.get(8..24).ok_or(short)?;
            for (word, b) in context.iter_mut().zip(words.chunks_exact(4)) {
                *word = u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        let flags = (h.base() >> 12 & 3) as u8;
        Ok(Self { flags, ttl: h.ttl(), np: h.np(), path: h.path(), mdtype: h.mdtype(), context })
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_with(&[], out);
    }

    /// Appends the header. If its metadata type is not 1, `metadata` follows: a multiple of 4 bytes, at most
    /// [`NshRepr::METADATA_MAX`].
    pub fn emit_with(&self, metadata: &[u8], out: &mut Vec<u8>) {
        let words = if self.mdtype == 1 { 6 } else { (2 + (metadata.len() / 4) as u16) & 0x3f };
        let mut h = Nsh([0; 8]);
        h.set_base(u16::from(self.flags & 3) << 12 | words);
        h.set_ttl(self.ttl);
        h.set_mdtype(self.mdtype);
        h.set_np(self.np);
        h.set_path(self.path);
        out.extend(h.0);
        if self.mdtype == 1 {
            for word in self.context {
                out.extend(word.to_be_bytes());
            }
        } else {
            out.extend(metadata);
        }
    }
}
