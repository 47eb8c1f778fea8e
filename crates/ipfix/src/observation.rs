//! A sampled packet: the properties that records contain.

use crate::Micros;
use crate::template::{L2, L3, L4, Shape};
use flow::extract::{FRAG_LATER, ethertype, ipproto};
use flow::{Field, FlowKey};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Bytes of an Ethernet header.
const ETHERNET: u8 = 14;
/// Bytes of a VLAN tag.
const VLAN_TAG: u8 = 4;
/// Maximum length of a text in a record, which is encoded in one byte (RFC 7011 section 7).
pub(crate) const TEXT_MAX: usize = 254;

/// The direction in which a packet was observed (IANA: flowDirection).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// On its way in.
    Ingress,
    /// On its way out.
    Egress,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interface {
    /// The system's interface index (ifIndex); 0 if it has none.
    pub index: u32,
    /// Its name.
    pub name: Arc<str>,
}

/// The tunnel protocol (tunnelType).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TunnelKind {
    /// VXLAN.
    Vxlan = 1,
    /// GRE.
    Gre = 2,
    /// LISP.
    Lisp = 3,
    /// Geneve.
    Geneve = 7,
}

/// The outer headers of a packet on a tunnel port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tunnel {
    /// Source of the outer header.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Its kind.
    pub kind: TunnelKind,
    /// The tunnel's key: 32 bits for GRE, 24 for others.
    pub key: u64,
    /// Source port; 0 if the protocol has no ports.
    pub src_port: u16,
    /// Destination port; 0 if the protocol has no ports.
    pub dst_port: u16,
}

/// The observation point of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservationPoint {
    /// The observation domain id in the message.
    pub domain: u32,
    /// Observation point id.
    pub point: u32,
    /// Direction of the sample.
    pub direction: Direction,
    /// The ingress port.
    pub ingress: Interface,
    /// The egress port, if the record is to contain it.
    pub egress: Option<Interface>,
    /// The tunnel's headers, if the record is to contain them.
    pub tunnel: Option<Tunnel>,
    /// Whether the packet is dropped.
    pub dropped: bool,
}

/// A sampled packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// When it was sampled.
    pub at: Micros,
    /// Observation domain.
    pub(crate) domain: u32,
    /// Template of its record.
    pub(crate) shape: Shape,
    /// The flow key as encoded in the record, without the virtual observation id.
    pub(crate) key: Vec<u8>,
    pub(crate) direction: Direction,
    pub(crate) cast: Cast,
    pub(crate) dropped: bool,
    /// Bytes of the frame.
    pub(crate) frame_bytes: u64,
    /// Bytes after the Ethernet header, with padding as Open vSwitch counts them; 0 if it is no IP packet.
    pub(crate) ip_bytes: u64,
    /// Flags of a TCP packet.
    pub(crate) tcp_flags: u8,
}

/// The kind of an Ethernet destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cast {
    One,
    Group,
    All,
}

impl Observation {
    /// An observation of a frame with this key and length.
    pub fn new(at: Micros, point: &ObservationPoint, key: &FlowKey, frame_bytes: usize) -> Self {
        let shape = shape(key, point);
        let frame_bytes = frame_bytes as u64;
        let ip_bytes = match shape.l3 {
            L3::Other => 0,
            _ => frame_bytes.saturating_sub(ethernet_bytes(shape).into()),
        };
        let dst = key.get(Field::EthDst) as u64;
        let cast = match dst {
            0xffff_ffff_ffff => Cast::All,
            dst if dst >> 40 & 1 != 0 => Cast::Group,
            _ => Cast::One,
        };
        let tcp_flags = if shape.l4 == L4::Tcp { key.get(Field::TcpFlags) as u8 } else { 0 };
        Self {
            at,
            domain: point.domain,
            shape,
            key: record_key(shape, point, key),
            direction: point.direction,
            cast,
            dropped: point.dropped,
            frame_bytes,
            ip_bytes,
            tcp_flags,
        }
    }
}

fn shape(key: &FlowKey, point: &ObservationPoint) -> Shape {
    let l3 = match key.eth_type() {
        ethertype::IPV4 => L3::Ipv4,
        ethertype::IPV6 => L3::Ipv6,
        _ => L3::Other,
    };
    let l4 = match (l3, key.ip_proto()) {
        (L3::Other, _) => L4::Other,
        (_, ipproto::TCP) => L4::Tcp,
        (_, ipproto::UDP) => L4::Udp,
        (_, ipproto::SCTP) => L4::Sctp,
        (L3::Ipv4, ipproto::ICMP) | (L3::Ipv6, ipproto::ICMPV6) => L4::Icmp,
        _ => L4::Other,
    };
    Shape {
        l2: if key.vlan_tci() & 0x1000 == 0 { L2::Plain } else { L2::Vlan },
        l3,
        l4,
        tunnel: point.tunnel.is_some(),
        egress: point.egress.is_some(),
    }
}

/// Length of the Ethernet header with at most one tag.
fn ethernet_bytes(shape: Shape) -> u8 {
    if shape.l2 == L2::Vlan { ETHERNET + VLAN_TAG } else { ETHERNET }
}

/// The elements of [`Shape::key_elements`].
fn record_key(shape: Shape, point: &ObservationPoint, key: &FlowKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mac = |field| (key.get(field) as u64).to_be_bytes();
    out.extend(point.point.to_be_bytes());
    out.push(point.direction as u8);
    out.extend(&mac(Field::EthSrc)[2..]);
    out.extend(&mac(Field::EthDst)[2..]);
    out.extend(key.eth_type().to_be_bytes());
    out.push(ethernet_bytes(shape));
    write_interface(&point.ingress, &mut out);
    if let Some(egress) = &point.egress {
        write_interface(egress, &mut out);
    }
    if shape.l2 == L2::Vlan {
        let tci = key.vlan_tci();
        let vid = (tci & 0xfff).to_be_bytes();
        out.extend(vid);
        out.extend(vid);
        out.push((tci >> 13) as u8);
    }
    write_ip(shape, key, &mut out);
    if let Some(tunnel) = &point.tunnel {
        write_tunnel(tunnel, &mut out);
    }
    out
}

fn write_ip(shape: Shape, key: &FlowKey, out: &mut Vec<u8>) {
    let byte = |field| key.get(field) as u8;
    let version = match shape.l3 {
        L3::Other => return,
        L3::Ipv4 => 4,
        L3::Ipv6 => 6,
    };
    let tos = byte(Field::IpDscp) << 2 | byte(Field::IpEcn);
    out.extend([version, byte(Field::IpTtl), key.ip_proto(), tos >> 2, tos >> 5, tos]);
    if shape.l3 == L3::Ipv4 {
        out.extend((key.get(Field::Ipv4Src) as u32).to_be_bytes());
        out.extend((key.get(Field::Ipv4Dst) as u32).to_be_bytes());
    } else {
        out.extend(key.get(Field::Ipv6Src).to_be_bytes());
        out.extend(key.get(Field::Ipv6Dst).to_be_bytes());
        out.extend((key.get(Field::Ipv6Label) as u32).to_be_bytes());
    }
    // A later fragment has no transport header; its key has zeros there.
    let later = key.get(Field::IpFrag) as u8 & FRAG_LATER != 0;
    let port = |field| if later { [0; 2] } else { (key.get(field) as u16).to_be_bytes() };
    let (src, dst) = match (shape.l3, shape.l4) {
        (_, L4::Other) => return,
        (_, L4::Tcp) => (Field::TcpSrc, Field::TcpDst),
        (_, L4::Udp) => (Field::UdpSrc, Field::UdpDst),
        (_, L4::Sctp) => (Field::SctpSrc, Field::SctpDst),
        (L3::Ipv6, L4::Icmp) => (Field::Icmpv6Type, Field::Icmpv6Code),
        (_, L4::Icmp) => (Field::Icmpv4Type, Field::Icmpv4Code),
    };
    if shape.l4 == L4::Icmp {
        out.extend([port(src)[1], port(dst)[1]]);
    } else {
        out.extend(port(src));
        out.extend(port(dst));
    }
}

fn write_interface(port: &Interface, out: &mut Vec<u8>) {
    out.extend(port.index.to_be_bytes());
    // Interface type (unknown) and, below, the description (empty).
    out.extend([0; 4]);
    write_text(port.name.as_bytes(), out);
    write_text(b"", out);
}

/// Writes a value of variable length.
pub(crate) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let text = &text[..text.len().min(TEXT_MAX)];
    out.push(text.len() as u8);
    out.extend(text);
}

fn write_tunnel(tunnel: &Tunnel, out: &mut Vec<u8>) {
    let proto = if tunnel.kind == TunnelKind::Gre { 47 } else { ipproto::UDP };
    out.extend(tunnel.src.octets());
    out.extend(tunnel.dst.octets());
    out.push(proto);
    out.extend(tunnel.src_port.to_be_bytes());
    out.extend(tunnel.dst_port.to_be_bytes());
    out.push(tunnel.kind as u8);
    let key = tunnel.key.to_be_bytes();
    write_text(if tunnel.kind == TunnelKind::Gre { &key[4..] } else { &key[5..] }, out);
}
