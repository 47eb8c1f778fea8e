//! The headers of the most frequent packets, as their readers pass them on.

/// The headers of a packet of TCP or UDP over IPv4 without options that is no fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// Offset of the IPv4 header.
    pub l3: usize,
    /// The IPv4 header.
    pub ip: &'a [u8; 20],
    /// The transport header and its payload, as long as the IPv4 header says.
    pub l4: &'a [u8],
}

impl<'a> Head<'a> {
    /// The headers of a frame whose IPv4 header is at `l3`. `None` if the frame is shorter than its headers say.
    #[inline(always)]
    pub fn at(frame: &'a [u8], l3: usize) -> Option<Self> {
        let rest = frame.get(l3..)?;
        let ip: &[u8; 20] = rest.first_chunk()?;
        let l4 = rest.get(20..usize::from(u16::from_be_bytes([ip[2], ip[3]])))?;
        Some(Self { l3, ip, l4 })
    }

    /// Source address in the upper half, and destination address.
    #[inline(always)]
    pub fn addresses(&self) -> u64 {
        self.ip.last_chunk().map_or(0, |addresses| u64::from_be_bytes(*addresses))
    }

    /// Source address.
    #[inline(always)]
    pub fn src(&self) -> u32 {
        (self.addresses() >> 32) as u32
    }

    /// Destination address.
    #[inline(always)]
    pub fn dst(&self) -> u32 {
        self.addresses() as u32
    }

    /// Protocol.
    #[inline(always)]
    pub fn proto(&self) -> u8 {
        self.ip[9]
    }

    /// Source port in the upper half, and destination port; 0 if there are none.
    #[inline(always)]
    pub fn ports(&self) -> u32 {
        self.l4.first_chunk().map_or(0, |ports| u32::from_be_bytes(*ports))
    }
}
