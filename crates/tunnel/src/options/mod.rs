//! Options of a tunnel interface (ovs-vswitchd.conf.db(5), Interface table, "Tunnel Options").
//!
//! [`Config::parse`] reads the database's map of strings as Open vSwitch 4.0.0 does: unknown and malformed options give
//! its warnings and errors, and numbers are read like the C library's functions do. [`Config::text`] gives the canonical
//! form that its commands show, and [`Config::datapath_port`] the port of the datapath behind the interface.

mod format;
mod number;
mod parse;
#[cfg(test)]
pub(crate) mod tests;

use std::net::{IpAddr, Ipv6Addr};

pub use format::address_text;
pub use parse::{OptionError, Parsed};

use crate::TunnelType;

/// The largest number of segments of an SRv6 interface.
pub const SEGMENTS_MAX: usize = 6;

/// An endpoint's address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    /// Any address: the option is absent. Only a local endpoint, or a port of the datapath, is that.
    Any,
    /// One address; never an IPv4-mapped IPv6 address.
    Fixed(IpAddr),
    /// The tunnel fields of each packet's flow contain it.
    Flow,
}

/// A key of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Key {
    /// The option is absent. Packets are received with key 0, and sent without a key as far as the protocol allows.
    Absent,
    /// One key, not limited to the protocol's width.
    Fixed(u64),
    /// `tun_id` of each packet's flow contains it.
    Flow,
}

/// Type of service of the outer header, without ECN, which always follows the inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tos {
    /// This one: a DSCP in the upper 6 bits.
    Fixed(u8),
    /// That of the inner packet, and 0 if it is not IP.
    Inherit,
}

/// Time to live of the outer header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ttl {
    /// This one.
    Fixed(u8),
    /// That of the inner packet, and [`Ttl::DEFAULT`] if it is not IP.
    Inherit,
}

impl Ttl {
    /// The time to live without the option.
    pub const DEFAULT: u8 = 64;
}

/// Whether the outer transport header has a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// Only if the protocol demands one by default: VXLAN and Geneve over IPv6.
    Default,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Types of packets that a port receives and sends (`packet_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketMode {
    /// Ethernet frames.
    LegacyL2,
    /// Packets without an Ethernet header. In the bridge they have one, of zeros.
    LegacyL3,
    /// Both, as they are: the bridge sees the packet type.
    PacketTypeAware,
}

/// A value of an ERSPAN field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErspanValue {
    /// This one.
    Fixed(u32),
    /// The field of each packet's flow contains it.
    Flow,
}

/// ERSPAN version, and the fields that belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Erspan {
    /// The option `erspan_ver` is absent. Such a port receives, but has no header to send.
    Unset,
    /// Version 1 (type II).
    V1 {
        /// Index of 20 bits.
        index: ErspanValue,
    },
    /// Version 2 (type III).
    V2 {
        /// 0 for ingress, 1 for egress.
        direction: ErspanValue,
        /// Hardware id of 6 bits.
        hardware_id: ErspanValue,
    },
    /// The fields of each packet's flow contain the version and all else.
    Flow,
}

/// Flow label of the outer IPv6 header of SRv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowLabel {
    /// That of the inner IPv6 header, else 0.
    Copy,
    /// 0.
    Zero,
    /// A hash of the inner packet.
    Compute,
}

/// The configuration of a tunnel port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The interface's type.
    pub tunnel_type: TunnelType,
    /// `remote_ip`: where packets are sent to, and come from.
    pub remote: Endpoint,
    /// `local_ip`: the source of packets sent, and the destination of packets received. The route selects a source for
    /// [`Endpoint::Any`].
    pub local: Endpoint,
    /// `in_key` or `key`.
    pub in_key: Key,
    /// `out_key` or `key`.
    pub out_key: Key,
    /// `dst_port`: UDP port of the other side and of this one; 0 if there is none.
    pub dst_port: u16,
    /// `tos`.
    pub tos: Tos,
    /// `ttl`.
    pub ttl: Ttl,
    /// `df_default`: whether outer IPv4 packets must not be fragmented.
    pub dont_fragment: bool,
    /// `csum`.
    pub checksum: Checksum,
    /// `seq`: whether GRE headers are numbered.
    pub sequence: bool,
    /// `egress_pkt_mark`: the mark of packets sent; it takes part in the choice of the route.
    pub egress_mark: Option<u32>,
    /// `packet_type`.
    pub packets: PacketMode,
    /// `exts` contains `gbp`: VXLAN group policy.
    pub group_policy: bool,
    /// `exts` contains `gpe`: VXLAN generic protocol extension.
    pub generic_protocol: bool,
    /// `erspan_*`.
    pub erspan: Erspan,
    /// `payload_type` of bareudp: an Ethernet type; 0 without the option.
    pub payload_type: u16,
    /// `srv6_segs`, at most [`SEGMENTS_MAX`]; empty stands for the destination alone.
    pub segments: Box<[Ipv6Addr]>,
    /// `srv6_flowlabel`.
    pub flow_label: FlowLabel,
}

/// Layers of packets that a tunnel carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layers {
    L2,
    L3,
    Both,
}

/// Differences between types of tunnels in what options they have.
impl TunnelType {
    /// The UDP port without the option `dst_port`; `None` for protocols that are not over UDP. Bareudp has no default,
    /// which is 0.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Self::Vxlan => Some(4789),
            Self::Geneve => Some(6081),
            Self::Gtpu => Some(2152),
            Self::Bareudp => Some(0),
            Self::Gre | Self::Ip6Gre | Self::Erspan | Self::Ip6Erspan | Self::Srv6 => None,
        }
    }

    /// Whether the option `csum` exists.
    fn has_checksum(self) -> bool {
        matches!(self, Self::Vxlan | Self::Geneve | Self::Gre | Self::Ip6Gre)
    }

    /// Whether the option `seq` exists.
    fn has_sequence(self) -> bool {
        matches!(self, Self::Gre | Self::Ip6Gre)
    }

    /// Whether the fields of [`Erspan`] matter.
    pub fn is_erspan(self) -> bool {
        matches!(self, Self::Erspan | Self::Ip6Erspan)
    }
}

impl Config {
    /// The configuration without options.
    fn of_type(tunnel_type: TunnelType) -> Self {
        Self {
            tunnel_type,
            remote: Endpoint::Any,
            local: Endpoint::Any,
            in_key: Key::Absent,
            out_key: Key::Absent,
            dst_port: tunnel_type.default_port().unwrap_or(0),
            tos: Tos::Fixed(0),
            ttl: Ttl::Fixed(Ttl::DEFAULT),
            dont_fragment: true,
            checksum: Checksum::Default,
            sequence: false,
            egress_mark: None,
            packets: PacketMode::LegacyL2,
            group_policy: false,
            generic_protocol: false,
            erspan: Erspan::Unset,
            payload_type: 0,
            segments: Box::default(),
            flow_label: FlowLabel::Copy,
        }
    }

    /// The configuration of the datapath's port behind interfaces of this one's kind: it receives from and sends to
    /// all endpoints, and leaves the packet type to the bridge.
    pub fn datapath_port(&self) -> DatapathPort {
        let config = Self {
            dst_port: self.dst_port,
            packets: PacketMode::PacketTypeAware,
            group_policy: self.group_policy,
            generic_protocol: self.generic_protocol,
            ..Self::of_type(self.tunnel_type)
        };
        let port = self.dst_port;
        let name = match self.tunnel_type {
            TunnelType::Vxlan => format!("vxlan_sys_{port}"),
            TunnelType::Geneve => format!("genev_sys_{port}"),
            TunnelType::Gtpu => format!("gtpu_sys_{port}"),
            TunnelType::Bareudp => format!("udp_sys_{port}"),
            other => format!("{}_sys", other.name()),
        };
        DatapathPort { name, config, preferred: (port != 0).then_some(port) }
    }

    /// The destination address and the mark whose route tells the interface's `status:tunnel_egress_iface` and
    /// `status:tunnel_egress_iface_carrier`; without a route it has neither. `::` stands for destinations of the flows.
    pub fn status_route(&self) -> (IpAddr, u32) {
        let destination = match self.remote {
            Endpoint::Fixed(address) => address,
            Endpoint::Any | Endpoint::Flow => Ipv6Addr::UNSPECIFIED.into(),
        };
        (destination, self.egress_mark.unwrap_or(0))
    }

    fn layers(&self) -> Layers {
        match self.tunnel_type {
            TunnelType::Gre => Layers::Both,
            TunnelType::Vxlan if self.generic_protocol => Layers::Both,
            TunnelType::Gtpu | TunnelType::Srv6 | TunnelType::Bareudp => Layers::L3,
            _ => Layers::L2,
        }
    }

    fn default_packets(&self) -> PacketMode {
        if self.layers() == Layers::L3 { PacketMode::LegacyL3 } else { PacketMode::LegacyL2 }
    }
}

/// The datapath's port behind all interfaces with the same type and UDP port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatapathPort {
    /// Its name, as `vxlan_sys_4789`: interfaces whose ports have equal names share one.
    pub name: String,
    /// Its configuration.
    pub config: Config,
    /// The number that the datapath gives it unless another port has it: its UDP port.
    pub preferred: Option<u16>,
}
