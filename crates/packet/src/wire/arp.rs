//! ARP and RARP for Ethernet and IPv4 (RFC 826, RFC 903).

use base::MacAddr;

view! {
    /// An ARP packet with addresses of Ethernet and IPv4.
    Arp, 28;
    /// Hardware type: 1 for Ethernet.
    hardware / set_hardware: u16 = 0;
    /// Protocol type: 0x0800 for IPv4.
    protocol / set_protocol: u16 = 2;
    /// Lengths of a hardware and of a protocol address: 6 and 4.
    lengths / set_lengths: u16 = 4;
    /// Operation: 1 request, 2 reply; RARP: 3 request, 4 reply.
    op / set_op: u16 = 6;
    /// Sender's IPv4 address.
    spa / set_spa: u32 = 14;
    /// Target's IPv4 address.
    tpa / set_tpa: u32 = 24;
}

impl<T: AsRef<[u8]>> Arp<T> {
    /// Sender's Ethernet address.
    pub fn sha(&self) -> MacAddr {
        MacAddr(std::array::from_fn(|i| self.0.as_ref()[8 + i]))
    }

    /// Target's Ethernet address.
    pub fn tha(&self) -> MacAddr {
        MacAddr(std::array::from_fn(|i| self.0.as_ref()[18 + i]))
    }

    /// Whether the hardware type is Ethernet and the protocol IPv4, with their address lengths.
    pub fn is_ethernet_ipv4(&self) -> bool {
        self.hardware() == 1 && self.protocol() == 0x0800 && self.lengths() == 0x0604
    }
}

impl<T: AsMut<[u8]>> Arp<T> {
    /// Sets the sender's Ethernet address.
    pub fn set_sha(&mut self, mac: MacAddr) {
        self.0.as_mut()[8..14].copy_from_slice(&mac.0);
    }

    /// Sets the target's Ethernet address.
    pub fn set_tha(&mut self, mac: MacAddr) {
        self.0.as_mut()[18..24].copy_from_slice(&mac.0);
    }
}

/// An ARP packet for Ethernet and IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArpRepr {
    /// Operation.
    pub op: u16,
    /// Sender's Ethernet address.
    pub sha: MacAddr,
    /// Sender's IPv4 address.
    pub spa: u32,
    /// Target's Ethernet address.
    pub tha: MacAddr,
    /// Target's IPv4 address.
    pub tpa: u32,
}

impl ArpRepr {
    /// Reads the packet; `None` if it is truncated or has other address types.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let h = Arp::new_checked(bytes).ok().filter(Arp::is_ethernet_ipv4)?;
        Some(Self { op: h.op(), sha: h.sha(), spa: h.spa(), tha: h.tha(), tpa: h.tpa() })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend([0, 1, 8, 0, 6, 4]);
        out.extend(self.op.to_be_bytes());
        out.extend(self.sha.0);
        out.extend(self.spa.to_be_bytes());
        out.extend(self.tha.0);
        out.extend(self.tpa.to_be_bytes());
    }
}
