//! The connection tracker as a datapath action: what a packet's connection is to become.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Parameters of [`DpAction::Ct`](crate::DpAction::Ct).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ct {
    /// Whether the connection is to be remembered beyond the packet.
    pub commit: Option<Commit>,
    /// The zone that the connection is looked up in: the same addresses are other connections in another zone.
    pub zone: u16,
    /// New bits of the connection's mark: their values, and which. Values are 0 in other bits.
    pub mark: Option<(u32, u32)>,
    /// The same of the connection's label.
    pub label: Option<(u128, u128)>,
    /// The name of the helper that is to follow the connection, as `ftp`.
    pub helper: Option<String>,
    /// The name of the policy that its timeouts come from.
    pub timeout: Option<String>,
    /// What is to be translated.
    pub nat: Option<Nat>,
}

/// How a connection is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Commit {
    /// As it is, if it is known.
    Plain,
    /// In the direction of this packet: one that was committed in the other direction is forgotten before.
    Force,
}

/// Which of a packet's addresses are translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatKind {
    /// Source address and port.
    Src,
    /// Destination address and port.
    Dst,
}

/// Addresses to choose from: the first, and the last if there is more than one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatRange {
    /// IPv4.
    Ipv4(Ipv4Addr, Option<Ipv4Addr>),
    /// IPv6.
    Ipv6(Ipv6Addr, Option<Ipv6Addr>),
}

/// How addresses and ports of a connection are translated.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// What a new connection is given; `None` to do to a packet what its connection was given.
    pub kind: Option<NatKind>,
    /// Addresses to choose from; `None` for the packet's own.
    pub addresses: Option<NatRange>,
    /// Ports to choose from: the first, not 0, and the last if there is more than one. Only where there are addresses.
    pub ports: Option<(u16, Option<u16>)>,
    /// Choose the same address after a restart.
    pub persistent: bool,
    /// Choose the port by a hash of addresses and the other port.
    pub hash: bool,
    /// Choose the port at random.
    pub random: bool,
}
