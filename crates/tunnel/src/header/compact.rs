//! Templates in one piece, for packets that each take another one: the bytes and what belongs to them are on adjacent cache lines.

use packet::Packet;

use super::template::{Context, Refused, pushable_len, set_length, set_udp};

/// A short [`Template`](super::Template) of UDP without a checksum, for packets that may not be fragmented.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Compact {
    /// The headers are at its end.
    pub(super) block: [u8; 64],
    /// For IPv4, the sum of its header with a length of 0.
    pub(super) ip_sum: Option<u32>,
    /// Longest packet that the headers can be pushed onto.
    pub(super) inner_max: u32,
    /// Bytes of all headers.
    pub(super) len: u16,
    /// Offset of the IP header.
    pub(super) l3: u16,
    /// UDP's source port, or 0.
    pub(super) src: u16,
}

impl Compact {
    /// Loads the headers from memory, ahead of [`Self::push`].
    #[inline]
    pub fn touch(&self) -> u8 {
        self.block[63] ^ self.len as u8
    }

    /// As [`Template::push`](super::Template::push).
    #[inline]
    pub fn push(&self, packet: &mut Packet, hash: u32, context: &Context<'_>) -> Result<(), Refused> {
        let inner = pushable_len(packet, self.inner_max)?;
        packet.l3_type = None;
        let frame = packet.prepend(&self.block, self.len.into());
        let (own, behind) = set_length(frame, (self.len, self.l3), self.ip_sum, inner);
        set_udp(behind, self.src, hash, context, own + inner);
        Ok(())
    }
}
