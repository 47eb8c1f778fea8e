//! TCP (RFC 9293).

use super::Truncated;

view! {
    /// A TCP header.
    Tcp, 20;
    /// Source port.
    src / set_src: u16 = 0;
    /// Destination port.
    dst / set_dst: u16 = 2;
    /// Sequence number.
    seq / set_seq: u32 = 4;
    /// Acknowledgement number.
    ack / set_ack: u32 = 8;
    /// Header length in 32-bit words (4 bits) and flags (12 bits).
    offset_flags / set_offset_flags: u16 = 12;
    /// Window.
    window / set_window: u16 = 14;
    /// Checksum.
    checksum / set_checksum: u16 = 16;
    /// Urgent pointer.
    urgent / set_urgent: u16 = 18;
}

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Bytes of the header with options, as stated in it: may be less than 20 or more than the packet has.
    pub fn header_len(&self) -> usize {
        usize::from(self.offset_flags() >> 12) * 4
    }

    /// The 12 flag bits.
    pub fn flags(&self) -> u16 {
        self.offset_flags() & 0xfff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Sets the 12 flag bits.
    pub fn set_flags(&mut self, flags: u16) {
        self.set_offset_flags(self.offset_flags() & 0xf000 | flags & 0xfff);
    }
}

/// A TCP header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpRepr {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// 12 flag bits.
    pub flags: u16,
    /// Window.
    pub window: u16,
}

impl TcpRepr {
    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Tcp::new_checked(bytes)?;
        Ok(Self { src: h.src(), dst: h.dst(), seq: h.seq(), ack: h.ack(), flags: h.flags(), window: h.window() })
    }

    /// Appends the header, with a checksum of zero.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut h = Tcp([0; 20]);
        h.set_src(self.src);
        h.set_dst(self.dst);
        h.set_seq(self.seq);
        h.set_ack(self.ack);
        h.set_offset_flags(0x5000 | self.flags & 0xfff);
        h.set_window(self.window);
        out.extend(h.0);
    }
}
