//! The headers of the most frequent packets, as their readers pass them on.

/// The headers of a packet of TCP or UDP over IPv4 without options that is no fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Offset of the IPv4 header.
    pub l3: usize,
    /// Source address.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
    /// Protocol.
    pub proto: u8,
    /// Source port in the upper half, and destination port.
    pub ports: u32,
}
