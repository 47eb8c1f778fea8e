//! Parameters of the `ct` action, and the state that packets have after it (ovs-actions(7), ovs-fields(7)).

use std::sync::Arc;

use crate::key::Direction;

/// Bits of `ct_state`.
pub mod state {
    /// A new connection, not yet committed.
    pub const NEW: u32 = 0x01;
    /// An established connection.
    pub const EST: u32 = 0x02;
    /// Related to another connection.
    pub const REL: u32 = 0x04;
    /// A packet of the reply direction.
    pub const RPL: u32 = 0x08;
    /// The tracker could not assign the packet to a connection.
    pub const INV: u32 = 0x10;
    /// The packet went through the tracker.
    pub const TRK: u32 = 0x20;
    /// The source address was translated.
    pub const SNAT: u32 = 0x40;
    /// The destination address was translated.
    pub const DNAT: u32 = 0x80;
}

/// Parameters of one `ct` action.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Action {
    /// The zone.
    pub zone: u16,
    /// Whether and how to commit the connection.
    pub commit: Option<Commit>,
    /// Bits to set in the mark, as value and mask. The value is 0 outside of the mask.
    pub mark: Option<(u32, u32)>,
    /// Bits to set in the label, as value and mask.
    pub label: Option<(u128, u128)>,
    /// The helper of the connection.
    pub helper: Option<Helper>,
    /// The name of the timeout policy of a committed connection.
    pub timeout: Option<Arc<str>>,
    /// Address translation.
    pub nat: Option<Nat>,
}

/// How to commit a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Commit {
    /// Unless it is already known.
    Plain,
    /// In the direction of this packet: a connection of the opposite direction is removed first.
    Force,
}

/// An application layer gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Helper {
    /// File transfer protocol (RFC 959, RFC 2428).
    Ftp,
    /// Trivial file transfer protocol (RFC 1350).
    Tftp,
}

impl Helper {
    /// The name, as in `alg=ftp`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
        }
    }

    /// The helper of a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Ftp, Self::Tftp].into_iter().find(|helper| helper.name() == name)
    }
}

/// The address that is translated in the packets of the original direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatKind {
    /// Source address and port.
    Src,
    /// Destination address and port.
    Dst,
}

/// Address translation of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// The translation of a new connection; `None` only applies that of known connections.
    pub kind: Option<NatKind>,
    /// The first and the last address of the range, as numbers of [`Key::src`] with their family (`true` for IPv6);
    /// `None` for the packet's own address.
    pub addresses: Option<([u64; 2], [u64; 2], bool)>,
    /// The first and the last port; `None` without a range of ports.
    pub ports: Option<(u16, u16)>,
    /// Map an address to the same address after a restart.
    pub persistent: bool,
    /// Select the port by a hash.
    pub hash: bool,
    /// Select the port at random.
    pub random: bool,
}

/// Which address of a connection is translated. Both are for a connection whose clashing source port was replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Translated(u8);

impl Translated {
    const SRC: u8 = 1;
    const DST: u8 = 2;
    /// The keys of both directions have the same ends, in different order.
    const MIRRORED: u8 = 4;

    /// Whether the source and the destination of the original direction are translated.
    pub fn new(src: bool, dst: bool) -> Self {
        Self((u8::from(src) * Self::SRC) | (u8::from(dst) * Self::DST))
    }

    /// No translation: the keys of both directions have the same ends.
    pub(crate) fn mirrored() -> Self {
        Self(Self::MIRRORED)
    }

    /// Whether the source of the original direction is translated.
    #[inline]
    pub fn src(self) -> bool {
        self.0 & Self::SRC != 0
    }

    /// Whether the destination of the original direction is translated.
    #[inline]
    pub fn dst(self) -> bool {
        self.0 & Self::DST != 0
    }

    /// Which addresses of packets of a direction are translated.
    #[inline]
    pub fn of(self, direction: Direction) -> Self {
        match direction {
            Direction::Original => self,
            Direction::Reply => Self::new(self.dst(), self.src()),
        }
    }

    /// Returns true if packets of the connection are rewritten.
    #[inline]
    pub fn any(self) -> bool {
        self.0 & (Self::SRC | Self::DST) != 0
    }

    /// Returns true if the keys of both directions are known to have the same ends, in different order.
    #[inline]
    pub(crate) fn is_mirrored(self) -> bool {
        self.0 & Self::MIRRORED != 0
    }

    pub(crate) fn set_mirrored(&mut self, on: bool) {
        self.0 = self.0 & !Self::MIRRORED | (u8::from(on) * Self::MIRRORED);
    }
}
