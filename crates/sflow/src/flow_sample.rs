//! Flow samples: a sampled packet, with what the switch knows of its way (section 5.3 of the specification, and "sFlow
//! Tunnel Structures").

use crate::xdr::Writer;
use std::net::{IpAddr, Ipv4Addr};

/// The formats of flow records (enterprise 0).
mod format {
    pub(super) const HEADER: u32 = 1;
    pub(super) const SWITCH: u32 = 1001;
    pub(super) const MPLS: u32 = 1006;
    pub(super) const IPV4_TUNNEL_EGRESS: u32 = 1023;
    pub(super) const IPV4_TUNNEL_INGRESS: u32 = 1024;
    pub(super) const IPV6_TUNNEL_EGRESS: u32 = 1025;
    pub(super) const IPV6_TUNNEL_INGRESS: u32 = 1026;
    pub(super) const VNI_EGRESS: u32 = 1029;
    pub(super) const VNI_INGRESS: u32 = 1030;
}

/// Maximum number of labels in a record.
const LABELS_MAX: usize = 16;
/// Bytes of a frame check sequence, which the length on the wire contains.
const FCS: u32 = 4;

/// The first protocol of a sampled header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderProtocol {
    /// Ethernet.
    Ethernet = 1,
    /// IPv4 without a link layer.
    Ipv4 = 11,
    /// IPv6 without a link layer.
    Ipv6 = 12,
    /// MPLS without a link layer.
    Mpls = 13,
}

/// The output interfaces of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// One interface, by its index.
    Interface(u32),
    /// So many interfaces, or one without an index.
    Several(u32),
    /// None: the packet was dropped.
    Dropped,
}

impl Output {
    /// A drop for an unknown reason, as a code of ICMP (256: unknown).
    const UNKNOWN_REASON: u32 = 256;

    /// The value in samples: the upper two bits say which form it has.
    pub fn number(self) -> u32 {
        match self {
            Self::Interface(index) => index & 0x3fff_ffff,
            Self::Dropped => 1 << 30 | Self::UNKNOWN_REASON,
            Self::Several(n) => 2 << 30 | n & 0x3fff_ffff,
        }
    }
}

/// The outer headers of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tunnel {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source port, 0 if there is none or if it depends on the packet.
    pub src_port: u16,
    /// Destination port, 0 if there is none.
    pub dst_port: u16,
    /// Type of service.
    pub tos: u8,
    /// Key of the tunnel, such as a VNI.
    pub key: Option<u64>,
}

/// Whether a packet came through a tunnel, or leaves through it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Egress,
    Ingress,
}

/// A sampled packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowSample {
    /// Index of the input interface, 0 if it has none.
    pub input: u32,
    /// Where it goes.
    pub output: Output,
    /// The protocol that the header begins with.
    pub protocol: HeaderProtocol,
    /// The first bytes of the packet.
    pub header: Vec<u8>,
    /// Bytes of the packet, without frame check sequence.
    pub frame_bytes: u32,
    /// VLAN tag (TCI) that it arrived with, 0 without one.
    pub vlan_in: u16,
    /// VLAN tag that it leaves with.
    pub vlan_out: u16,
    /// MPLS label stack entries that are pushed, the outermost first.
    pub labels_out: Vec<u32>,
    /// The tunnel that it leaves through.
    pub egress: Option<Tunnel>,
    /// The tunnel that it came through.
    pub ingress: Option<Tunnel>,
}

impl FlowSample {
    /// Appends the number of records, and the records with at most `header_max` bytes of the packet.
    pub(crate) fn write_records(&self, header_max: usize, out: &mut Writer) {
        let tunnels = [(Side::Egress, &self.egress), (Side::Ingress, &self.ingress)];
        let tunnels = tunnels.into_iter().filter_map(|(side, tunnel)| Some((side, tunnel.as_ref()?)));
        let n_tunnels: u32 = tunnels.clone().map(|(_, tunnel)| 1 + u32::from(tunnel.key.is_some())).sum();
        out.word(2 + u32::from(!self.labels_out.is_empty()) + n_tunnels);
        out.record(format::SWITCH, |out| {
            for tci in [self.vlan_in, self.vlan_out] {
                out.word((tci & 0xfff).into());
                out.word((tci >> 13).into());
            }
        });
        out.record(format::HEADER, |out| {
            let stripped = if self.protocol == HeaderProtocol::Ethernet { FCS } else { 0 };
            out.word(self.protocol as u32);
            out.word(self.frame_bytes.saturating_add(stripped));
            out.word(stripped);
            out.opaque(&self.header[..self.header.len().min(header_max)]);
        });
        if !self.labels_out.is_empty() {
            out.record(format::MPLS, |out| {
                // The next hop is unknown.
                out.address(Ipv4Addr::UNSPECIFIED.into());
                out.words(&[]);
                out.words(&self.labels_out[..self.labels_out.len().min(LABELS_MAX)]);
            });
        }
        tunnels.for_each(|(side, tunnel)| tunnel.write(side, out));
    }
}

impl Tunnel {
    fn write(&self, side: Side, out: &mut Writer) {
        if let Some(key) = self.key {
            let vni = if side == Side::Egress { format::VNI_EGRESS } else { format::VNI_INGRESS };
            // Keys of GRE have 32 bits, those of other tunnels 24.
            out.record(vni, |out| out.word(key as u32));
        }
        let kind = match (side, self.src) {
            (Side::Egress, IpAddr::V4(_)) => format::IPV4_TUNNEL_EGRESS,
            (Side::Egress, IpAddr::V6(_)) => format::IPV6_TUNNEL_EGRESS,
            (Side::Ingress, IpAddr::V4(_)) => format::IPV4_TUNNEL_INGRESS,
            (Side::Ingress, IpAddr::V6(_)) => format::IPV6_TUNNEL_INGRESS,
        };
        out.record(kind, |out| {
            // The length of the outer packet is unknown.
            out.word(0);
            out.word(self.protocol.into());
            match (self.src, self.dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => [src, dst].iter().for_each(|ip| out.fixed(&ip.octets())),
                (src, dst) => [src, dst].iter().for_each(|ip| out.fixed(&as_v6(*ip))),
            }
            out.word(self.src_port.into());
            out.word(self.dst_port.into());
            // TCP flags.
            out.word(0);
            out.word(self.tos.into());
        });
    }
}

fn as_v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
