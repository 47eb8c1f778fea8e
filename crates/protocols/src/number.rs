//! Protocol numbers, to which a datapath action punts frames.

use std::fmt;

/// A protocol that runs in the switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(u8);

impl Protocol {
    /// How many numbers there are.
    pub const COUNT: usize = 16;
    /// LLDP (IEEE 802.1AB).
    pub const LLDP: Self = Self(0);
    /// Continuity checks of CFM (IEEE 802.1Q, 802.1ag).
    pub const CFM: Self = Self(1);
    /// BFD (RFC 5880).
    pub const BFD: Self = Self(2);
    /// LACP (IEEE 802.1AX).
    pub const LACP: Self = Self(3);
    /// STP and RSTP (IEEE 802.1D).
    pub const STP: Self = Self(4);
    /// Bonds, which receive no frames of their own.
    pub const BOND: Self = Self(5);

    /// The protocol of this number, which must be less than [`Protocol::COUNT`].
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Returns true if the protocol sets port states ([`crate::PortState`]). Otherwise it does not affect
    /// translations.
    pub const fn decides(self) -> bool {
        !matches!(self, Self::LLDP | Self::BOND)
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// As datapath flows show it, in `slow_path(...)`.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::LLDP => Some("lldp"),
            Self::CFM => Some("cfm"),
            Self::BFD => Some("bfd"),
            Self::LACP => Some("lacp"),
            Self::STP => Some("stp"),
            Self::BOND => Some("bond"),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol({self})")
    }
}

/// A set of protocols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ProtocolSet(u16);

const _: () = assert!(Protocol::COUNT <= u16::BITS as usize);

impl ProtocolSet {
    /// The set without members.
    pub const EMPTY: Self = Self(0);

    /// Returns the set with `protocol` added.
    #[must_use]
    pub fn with(self, protocol: Protocol) -> Self {
        Self(self.0 | 1 << protocol.0)
    }

    /// The same without `protocol`.
    #[must_use]
    pub fn without(self, protocol: Protocol) -> Self {
        Self(self.0 & !(1 << protocol.0))
    }

    /// Returns true if `protocol` is a member.
    pub fn contains(self, protocol: Protocol) -> bool {
        self.0 & 1 << protocol.0 != 0
    }

    /// Returns true if a member sets port states.
    pub fn decides(self) -> bool {
        (0..Protocol::COUNT as u8).map(Protocol).any(|protocol| self.contains(protocol) && protocol.decides())
    }

    /// The members of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members, by number.
    pub fn iter(self) -> impl Iterator<Item = Protocol> {
        (0..Protocol::COUNT as u8).map(Protocol).filter(move |protocol| self.contains(*protocol))
    }

    /// Returns true if there is no member.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
