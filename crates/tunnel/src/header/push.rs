//! Outer headers as values: what a tunnel pushes onto the packets of a flow.

use super::erspan::Erspan;
use super::geneve::{self, Geneve};
use super::gre::Gre;
use super::gtpu::Gtpu;
use super::srv6::{self, Srv6};
use super::vxlan::Vxlan;
use super::{ETH_IPV4, ETH_IPV6, PROTO_GRE, PROTO_ROUTING, PROTO_UDP};
use base::MacAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of an Ethernet header without tags.
pub(super) const ETH_LEN: usize = 14;

/// The outer IP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OuterIp {
    /// IPv4, without options; the identification is 0.
    V4 {
        /// Source.
        src: Ipv4Addr,
        /// Destination.
        dst: Ipv4Addr,
        /// Type of service.
        tos: u8,
        /// Time to live.
        ttl: u8,
        /// Forbids fragmentation.
        dont_fragment: bool,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: Ipv6Addr,
        /// Destination.
        dst: Ipv6Addr,
        /// Traffic class.
        class: u8,
        /// Hop limit.
        hop_limit: u8,
        /// Flow label, 20 bits.
        label: u32,
        /// Forbids fragmentation; the header does not state it.
        dont_fragment: bool,
    },
}

impl OuterIp {
    /// Source.
    pub fn src(&self) -> IpAddr {
        match *self {
            Self::V4 { src, .. } => src.into(),
            Self::V6 { src, .. } => src.into(),
        }
    }

    /// Destination.
    pub fn dst(&self) -> IpAddr {
        match *self {
            Self::V4 { dst, .. } => dst.into(),
            Self::V6 { dst, .. } => dst.into(),
        }
    }

    /// Ethernet type.
    pub(super) fn ethertype(&self) -> u16 {
        if self.is_v6() { ETH_IPV6 } else { ETH_IPV4 }
    }

    /// Whether a packet may be divided into fragments.
    pub(super) fn may_fragment(&self) -> bool {
        let (Self::V4 { dont_fragment, .. } | Self::V6 { dont_fragment, .. }) = self;
        !dont_fragment
    }

    pub(super) fn is_v6(&self) -> bool {
        matches!(self, Self::V6 { .. })
    }

    /// Bytes of the header.
    pub(super) fn len(&self) -> usize {
        if self.is_v6() { 40 } else { 20 }
    }

    /// Appends the header with lengths and checksum of 0.
    fn emit(&self, tunnel: &Encapsulation, out: &mut Vec<u8>) {
        let proto = tunnel.proto();
        match *self {
            Self::V4 { src, dst, tos, ttl, dont_fragment } => {
                let flags = if dont_fragment { 0x40 } else { 0 };
                out.extend([0x45, tos, 0, 0, 0, 0, flags, 0, ttl, proto, 0, 0]);
                out.extend(src.octets());
                out.extend(dst.octets());
            }
            Self::V6 { src, dst, class, hop_limit, label, dont_fragment: _ } => {
                // Segment routing sets the label of each packet.
                let label = if let Encapsulation::Srv6(_) = tunnel { 0 } else { label };
                out.extend((6 << 28 | u32::from(class) << 20 | label & 0xf_ffff).to_be_bytes());
                out.extend([0, 0, proto, hop_limit]);
                out.extend(src.octets());
                out.extend(dst.octets());
            }
        }
    }
}

/// The outer UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Udp {
    /// Source port; 0 derives it from the hash of each packet's flow.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Computes the checksum.
    pub checksum: bool,
}

impl Udp {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.src.to_be_bytes());
        out.extend(self.dst.to_be_bytes());
        out.extend([0; 4]);
    }
}

/// A tunnel header, with the UDP header in front of it if it has one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Encapsulation {
    /// VXLAN.
    Vxlan(Udp, Vxlan),
    /// Geneve.
    Geneve(Udp, Geneve),
    /// GRE.
    Gre(Gre),
    /// ERSPAN.
    Erspan(Erspan),
    /// GTP-U.
    Gtpu(Udp, Gtpu),
    /// Segment routing over IPv6.
    Srv6(Srv6),
    /// Nothing but UDP.
    Bareudp(Udp),
}

impl Encapsulation {
    /// The UDP header.
    pub fn udp(&self) -> Option<&Udp> {
        match self {
            Self::Vxlan(udp, _) | Self::Geneve(udp, _) | Self::Gtpu(udp, _) | Self::Bareudp(udp) => Some(udp),
            Self::Gre(_) | Self::Erspan(_) | Self::Srv6(_) => None,
        }
    }

    /// IP protocol.
    pub fn proto(&self) -> u8 {
        match self {
            Self::Gre(_) | Self::Erspan(_) => PROTO_GRE,
            Self::Srv6(_) => PROTO_ROUTING,
            Self::Vxlan(..) | Self::Geneve(..) | Self::Gtpu(..) | Self::Bareudp(_) => PROTO_UDP,
        }
    }
}

/// The outer headers that a tunnel pushes onto the packets of a flow.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Push {
    /// Source of the outer frame.
    pub eth_src: MacAddr,
    /// Destination of the outer frame.
    pub eth_dst: MacAddr,
    /// Tag control information of an outer 802.1Q tag.
    pub vlan: Option<u16>,
    /// The outer IP header.
    pub ip: OuterIp,
    /// The headers behind it.
    pub tunnel: Encapsulation,
}

/// Why headers cannot be pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// More options than a Geneve header holds, or lengths that do not add up.
    #[error("Geneve options of {0} bytes do not fit a header")]
    Options(usize),
    /// No segments, or too many.
    #[error("a segment routing header has 1 to {max} segments, not {0}", max = srv6::SEGMENTS_MAX)]
    Segments(usize),
    /// Segment routing over IPv4.
    #[error("segment routing needs IPv6")]
    SegmentsOverIpv4,
}

impl Push {
    /// Bytes of Ethernet header and tag.
    pub(super) fn l3(&self) -> usize {
        ETH_LEN + if self.vlan.is_some() { 4 } else { 0 }
    }

    /// The headers' bytes, with zeros in the fields that each packet sets.
    pub(super) fn emit(&self) -> Result<Vec<u8>, Invalid> {
        let mut out = Vec::with_capacity(128);
        out.extend(self.eth_dst.0);
        out.extend(self.eth_src.0);
        if let Some(tci) = self.vlan {
            out.extend(0x8100_u16.to_be_bytes());
            out.extend(tci.to_be_bytes());
        }
        out.extend(self.ip.ethertype().to_be_bytes());
        self.ip.emit(&self.tunnel, &mut out);
        if let Some(udp) = self.tunnel.udp() {
            udp.emit(&mut out);
        }
        match &self.tunnel {
            Encapsulation::Vxlan(_, vxlan) => vxlan.emit(&mut out),
            Encapsulation::Geneve(_, header) => {
                let len = header.options.len();
                if len > geneve::OPTIONS_MAX || geneve::options(&header.options).any(|option| option.is_err()) {
                    return Err(Invalid::Options(len));
                }
                header.emit(&mut out);
            }
            Encapsulation::Gre(gre) => gre.emit(&mut out),
            Encapsulation::Erspan(erspan) => erspan.emit(&mut out),
            Encapsulation::Gtpu(_, gtpu) => gtpu.emit(&mut out),
            Encapsulation::Srv6(header) => {
                let n = header.segments.len();
                if !(1..=srv6::SEGMENTS_MAX).contains(&n) {
                    return Err(Invalid::Segments(n));
                }
                if !self.ip.is_v6() {
                    return Err(Invalid::SegmentsOverIpv4);
                }
                header.emit(&mut out);
            }
            Encapsulation::Bareudp(_) => {}
        }
        Ok(out)
    }
}
