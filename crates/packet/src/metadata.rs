//! Packet metadata beside the frame: marks of the host, tunnel and connection.
//!
//! Metadata lies behind the first cache line of a packet and is valid only if a flag in that line is set. Most packets
//! have none and never touch it.

use std::net::IpAddr;
use std::sync::Arc;

/// Metadata of a packet. The default equals the metadata of a packet that has none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metadata {
    /// The host's mark (`pkt_mark` of ovs-fields(7)).
    pub pkt_mark: u32,
    /// The host's packet priority, which selects its queues (`skb_priority`).
    pub skb_priority: u32,
    /// Its connection, as far as conntrack has seen it.
    pub connection: Connection,
    /// The tunnel that the packet was received from, or that it is sent through. Packets of a batch share one.
    pub tunnel: Option<Arc<Tunnel>>,
    /// The outer source port that the packet was received with, or 0. It is no part of keys, and differs among packets with one
    /// `tunnel`.
    pub tunnel_src_port: u16,
}

impl Metadata {
    /// The connection, if the packet has no other metadata.
    #[inline]
    pub fn only_connection(&self) -> Option<&Connection> {
        let Self { pkt_mark, skb_priority, connection, tunnel, tunnel_src_port: _ } = self;
        (*pkt_mark == 0 && *skb_priority == 0 && tunnel.is_none()).then_some(connection)
    }

    /// The connection, if the packet has no metadata beside it but a tunnel.
    #[inline]
    pub fn connection_beside_tunnel(&self) -> Option<&Connection> {
        (self.pkt_mark == 0 && self.skb_priority == 0).then_some(&self.connection)
    }

    /// The tunnel, if the packet has one and no other metadata.
    #[inline]
    pub fn only_tunnel(&self) -> Option<&Arc<Tunnel>> {
        let Self { pkt_mark, skb_priority, connection, tunnel, tunnel_src_port: _ } = self;
        let Connection { state, zone, mark, label, original, .. } = connection;
        let is_untracked = (*state, *zone, *mark, *label) == (0, 0, 0, 0) && original.is_none();
        if *pkt_mark == 0 && *skb_priority == 0 && is_untracked { tunnel.as_ref() } else { None }
    }
}

/// Conntrack state of a packet (`ct_*` of ovs-fields(7)).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connection {
    /// Bits of `ct_state`; 0 if the packet did not go through conntrack.
    pub state: u32,
    /// Zone.
    pub zone: u16,
    /// Mark of the connection.
    pub mark: u32,
    /// Label of the connection.
    pub label: u128,
    /// The connection tracker's handle of its entry; 0 for none.
    pub handle: u64,
    /// With a handle: whether another action in the zone finds the connection by the handle.
    pub is_current: bool,
    /// With a handle: whether the packet has not been looked up since the tracker set its state.
    pub awaits_lookup: bool,
    /// With a handle: whether the packet belongs to the connection's reply direction.
    pub is_reply: bool,
    /// With a handle: whether the packet is an ICMP error about the connection.
    pub is_error: bool,
    /// The original direction's tuple: addresses and ports of the connection's first packet before NAT.
    pub original: Option<Tuple>,
}

/// The five-tuple of one direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuple {
    /// Source address as a big-endian number, most significant half first. An IPv4 address is in the lowest 32 bits.
    pub src: [u64; 2],
    /// Destination address, of the same family.
    pub dst: [u64; 2],
    /// IP protocol.
    pub proto: u8,
    /// Whether the addresses are IPv6 addresses.
    pub is_v6: bool,
    /// Source port, or ICMP type.
    pub src_port: u16,
    /// Destination port, or ICMP code.
    pub dst_port: u16,
}

/// The outer headers of a tunnel, removed from a received packet or to be pushed on output (`tun_*` of ovs-fields(7)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// Outer source address.
    pub src: IpAddr,
    /// Outer destination address, of the same family.
    pub dst: IpAddr,
    /// Key: a VNI, a GRE key, or a TEID, right aligned.
    pub key: u64,
    /// Bits of `tun_flags`.
    pub flags: u16,
    /// Type of service of the outer header.
    pub tos: u8,
    /// Time to live of the outer header.
    pub ttl: u8,
    /// Outer source port, or 0.
    pub src_port: u16,
    /// Outer destination port, or 0.
    pub dst_port: u16,
    /// VXLAN group policy: its flags in the upper 8 of 24 bits, its group in the lower 16.
    pub group_policy: u32,
    /// The key's word for an ERSPAN header (`tun_erspan_*`).
    pub erspan: u64,
    /// The key's word for a GTP-U header (`tun_gtpu_*`).
    pub gtpu: u64,
    /// Options of a Geneve header as on the wire, at most 252 bytes (RFC 8926 section 3.5).
    pub options: Box<[u8]>,
}

impl Tunnel {
    /// Headers between two addresses, in which all other fields are zero or empty.
    pub fn between(src: IpAddr, dst: IpAddr) -> Self {
        Self {
            src,
            dst,
            key: 0,
            flags: 0,
            tos: 0,
            ttl: 0,
            src_port: 0,
            dst_port: 0,
            group_policy: 0,
            erspan: 0,
            gtpu: 0,
            options: Box::default(),
        }
    }
}
