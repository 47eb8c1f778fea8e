//! Reasons why the outer headers of a received packet are refused.

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// Why a packet cannot be decapsulated.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
        #[repr(u8)]
        pub enum Malformed { $($(#[$doc])* #[error($name)] $variant,)+ }

        impl Malformed {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The reason as a name of a counter, as `udp-checksum`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

reasons! {
    /// The outer packet is not an IP packet.
    NotIp = "not-ip",
    /// The outer IP header is cut off, or its lengths exceed the frame.
    IpLength = "ip-length",
    /// The outer IPv4 header's checksum is wrong.
    IpChecksum = "ip-checksum",
    /// The outer IPv4 header has options.
    IpOptions = "ip-options",
    /// The outer packet is a fragment.
    Fragment = "fragment",
    /// The outer packet's protocol is not that of the tunnel.
    Protocol = "protocol",
    /// The outer UDP header is cut off, or its length exceeds the packet.
    UdpLength = "udp-length",
    /// The outer UDP checksum is present and wrong.
    UdpChecksum = "udp-checksum",
    /// The GRE checksum is present and wrong.
    GreChecksum = "gre-checksum",
    /// The tunnel header is cut off.
    Truncated = "truncated",
    /// A length in the tunnel header exceeds the packet.
    Length = "length",
    /// The tunnel header's version is unknown.
    Version = "version",
    /// The tunnel header has reserved bits set, or lacks a required one.
    Flags = "flags",
    /// Lengths of Geneve options do not add up.
    Options = "options",
    /// The routing header is not an SRv6 header.
    RoutingType = "routing-type",
    /// The packet has segments left to visit, so that this host is not its last one.
    SegmentsLeft = "segments-left",
    /// The inner packet's protocol is unknown.
    InnerProtocol = "inner-protocol",
    /// The inner packet is shorter than an Ethernet header.
    InnerTruncated = "inner-truncated",
    /// The packet stands for several outer datagrams, and has to be segmented first.
    Unsegmented = "unsegmented",
}
