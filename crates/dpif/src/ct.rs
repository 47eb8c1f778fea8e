//! The conntrack action of the datapath.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Parameters of [`DpAction::Ct`](crate::DpAction::Ct).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ct {
    /// Whether and how to commit the connection to the tracker.
    pub commit: Option<Commit>,
    /// The zone of the connection. Equal addresses in different zones are different connections.
    pub zone: u16,
    /// Bits to set in the connection's mark, as value and mask. The value is 0 outside of the mask.
    pub mark: Option<(u32, u32)>,
    /// Bits to set in the connection's label, as value and mask.
    pub label: Option<(u128, u128)>,
    /// The name of an application layer gateway for the connection, as `ftp`.
    pub helper: Option<String>,
    /// The name of the timeout policy.
    pub timeout: Option<String>,
    /// Address translation.
    pub nat: Option<Nat>,
}

/// How to commit a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Commit {
    /// Commits the connection, unless it is already known.
    Plain,
    /// Commits it in the direction of this packet; a connection that was committed in the opposite direction is removed
    /// first.
    Force,
}

/// The address of a packet that is translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatKind {
    /// Source address and port.
    Src,
    /// Destination address and port.
    Dst,
}

/// A range of addresses: the first, and the last if there is more than one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatRange {
    /// IPv4.
    Ipv4(Ipv4Addr, Option<Ipv4Addr>),
    /// IPv6.
    Ipv6(Ipv6Addr, Option<Ipv6Addr>),
}

/// Address and port translation of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// The translation of a new connection; `None` only applies the translation of existing connections.
    pub kind: Option<NatKind>,
    /// The range of addresses; `None` for the packet's own address.
    pub addresses: Option<NatRange>,
    /// The range of ports: the first, not 0, and the last if there is more than one. Only valid with addresses.
    pub ports: Option<(u16, Option<u16>)>,
    /// Map to the same address after a restart.
    pub persistent: bool,
    /// Select the port by a hash of the addresses and the other port.
    pub hash: bool,
    /// Select the port at random.
    pub random: bool,
}
