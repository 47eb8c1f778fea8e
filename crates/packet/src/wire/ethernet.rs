//! Ethernet II and VLAN tags (IEEE 802.3, 802.1Q).

use super::Truncated;
use base::MacAddr;

view! {
    /// An Ethernet header without tags.
    Ethernet, 14;
    /// Ethernet type, or length of an 802.2 frame if below 0x600.
    ethertype / set_ethertype: u16 = 12;
}

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Destination.
    pub fn dst(&self) -> MacAddr {
        MacAddr(std::array::from_fn(|i| self.0.as_ref()[i]))
    }

    /// Source.
    pub fn src(&self) -> MacAddr {
        MacAddr(std::array::from_fn(|i| self.0.as_ref()[6 + i]))
    }
}

impl<T: AsMut<[u8]>> Ethernet<T> {
    /// Sets the destination.
    pub fn set_dst(&mut self, mac: MacAddr) {
        self.0.as_mut()[..6].copy_from_slice(&mac.0);
    }

    /// Sets the source.
    pub fn set_src(&mut self, mac: MacAddr) {
        self.0.as_mut()[6..12].copy_from_slice(&mac.0);
    }
}

view! {
    /// A VLAN tag: the 4 bytes after the addresses.
    Vlan, 4;
    /// Tag protocol: 0x8100 or 0x88a8.
    tpid / set_tpid: u16 = 0;
    /// Priority (3 bits), drop eligible (1 bit), VLAN id (12 bits).
    tci / set_tci: u16 = 2;
}

/// An Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthernetRepr {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// Ethernet type.
    pub ethertype: u16,
}

impl EthernetRepr {
    /// Reads the header.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Ethernet::new_checked(bytes)?;
        Ok(Self { dst: h.dst(), src: h.src(), ethertype: h.ethertype() })
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.dst.0);
        out.extend(self.src.0);
        out.extend(self.ethertype.to_be_bytes());
    }
}

/// A VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanRepr {
    /// Tag protocol.
    pub tpid: u16,
    /// Control information as on the wire.
    pub tci: u16,
}

impl VlanRepr {
    /// Reads the tag.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let h = Vlan::new_checked(bytes)?;
        Ok(Self { tpid: h.tpid(), tci: h.tci() })
    }

    /// Appends the tag.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.tpid.to_be_bytes());
        out.extend(self.tci.to_be_bytes());
    }
}
