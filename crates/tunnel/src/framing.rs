//! Whether packets have an Ethernet header in a tunnel, and in the bridge.

use crate::options::PacketMode;

/// A packet's type as far as tunnels distinguish it (`packet_type` of ovs-fields(7)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketType {
    /// The packet starts with an Ethernet header.
    Ethernet,
    /// The packet starts with the header of an Ethernet type, as IPv4.
    Layer3,
}

/// A change of the Ethernet header between a bridge and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// None.
    Unchanged,
    /// Removes the Ethernet header.
    Pop,
    /// Adds an Ethernet header whose addresses are zeros.
    Push,
}

/// A packet without Ethernet header cannot leave through a port for Ethernet frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.")]
pub struct NotEthernet;

impl PacketMode {
    /// The change of a packet of the type that a port of this mode has received, in front of the flow tables.
    pub fn received(self, packet: PacketType) -> Framing {
        match (self, packet) {
            (Self::LegacyL3, PacketType::Layer3) => Framing::Push,
            _ => Framing::Unchanged,
        }
    }

    /// The change of a packet that is of the type in the bridge, before a port of this mode sends it.
    ///
    /// # Errors
    ///
    /// [`NotEthernet`]; a bridge's packet has that type only if a port of mode [`Self::PacketTypeAware`] received it, or
    /// an action removed its header. Ports that are no tunnels are like [`Self::LegacyL2`].
    pub fn sent(self, packet: PacketType) -> Result<Framing, NotEthernet> {
        match (self, packet) {
            (Self::LegacyL2, PacketType::Layer3) => Err(NotEthernet),
            (Self::LegacyL3, PacketType::Ethernet) => Ok(Framing::Pop),
            _ => Ok(Framing::Unchanged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As observed between ports of each mode, except that a push and a pop cancel each other.
    #[test]
    fn headers_follow_the_modes() {
        use Framing::{Pop, Push, Unchanged};
        use PacketMode::{LegacyL2, LegacyL3, PacketTypeAware};
        use PacketType::{Ethernet, Layer3};
        assert_eq!([LegacyL2, LegacyL3, PacketTypeAware].map(|m| m.received(Layer3)), [Unchanged, Push, Unchanged]);
        assert_eq!([LegacyL2, LegacyL3, PacketTypeAware].map(|m| m.received(Ethernet)), [Unchanged; 3]);
        let sent = |packet| [LegacyL2, LegacyL3, PacketTypeAware].map(|mode| mode.sent(packet));
        assert_eq!(sent(Ethernet), [Ok(Unchanged), Ok(Pop), Ok(Unchanged)]);
        assert_eq!(sent(Layer3), [Err(NotEthernet), Ok(Unchanged), Ok(Unchanged)]);
    }
}
