//! The tunnel fields of a packet that is sent through a tunnel port.
//!
//! [`egress`] combines the port's configuration, the tunnel fields of the flow at that point of the translation, and the
//! inner packet. It reports what it read, so that the translation matches these bits in the megaflow. Open vSwitch matches
//! the inner bits alike, but of the flow's tunnel fields only key, addresses, type of service and the key flag: its megaflows
//! send the Geneve options, ERSPAN fields and the OAM flag of the first packet with all others.

mod headers;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use headers::{NoHeaders, headers};

use packet::metadata::Tunnel;

use crate::options::{Checksum, Config, Endpoint, Erspan, ErspanValue, Key, Tos, Ttl};
use crate::{TunnelType, ecn, flags};

/// The tunnel fields of a flow: of a received packet, changed by actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowTunnel<'a> {
    /// `tun_src`, or 0.0.0.0.
    pub ipv4_src: Ipv4Addr,
    /// `tun_dst`, or 0.0.0.0.
    pub ipv4_dst: Ipv4Addr,
    /// `tun_ipv6_src`, or `::`.
    pub ipv6_src: Ipv6Addr,
    /// `tun_ipv6_dst`, or `::`.
    pub ipv6_dst: Ipv6Addr,
    /// `tun_id`.
    pub key: u64,
    /// `tun_flags`.
    pub flags: u16,
    /// As [`Tunnel::group_policy`].
    pub group_policy: u32,
    /// As [`Tunnel::erspan`].
    pub erspan: u64,
    /// As [`Tunnel::gtpu`].
    pub gtpu: u64,
    /// As [`Tunnel::options`].
    pub options: &'a [u8],
}

impl<'a> FlowTunnel<'a> {
    /// The fields of a packet that was not received from a tunnel.
    pub const NONE: Self = Self {
        ipv4_src: Ipv4Addr::UNSPECIFIED,
        ipv4_dst: Ipv4Addr::UNSPECIFIED,
        ipv6_src: Ipv6Addr::UNSPECIFIED,
        ipv6_dst: Ipv6Addr::UNSPECIFIED,
        key: 0,
        flags: 0,
        group_policy: 0,
        erspan: 0,
        gtpu: 0,
        options: &[],
    };

    /// The fields of a received packet.
    pub fn received(tunnel: &'a Tunnel) -> Self {
        let Tunnel { src, dst, key, flags, group_policy, erspan, gtpu, options, .. } = tunnel;
        let mut fields = Self {
            key: *key,
            flags: *flags,
            group_policy: *group_policy,
            erspan: *erspan,
            gtpu: *gtpu,
            options,
            ..Self::NONE
        };
        for (address, v4, v6) in
            [(src, &mut fields.ipv4_src, &mut fields.ipv6_src), (dst, &mut fields.ipv4_dst, &mut fields.ipv6_dst)]
        {
            match address {
                IpAddr::V4(address) => *v4 = *address,
                IpAddr::V6(address) => *v6 = *address,
            }
        }
        fields
    }

    /// The source address: the IPv4 address if it is set, else the IPv6 address if that is set.
    pub fn src(&self) -> Option<IpAddr> {
        first(self.ipv4_src, self.ipv6_src)
    }

    /// The destination address, likewise.
    pub fn dst(&self) -> Option<IpAddr> {
        first(self.ipv4_dst, self.ipv6_dst)
    }
}

fn first(v4: Ipv4Addr, v6: Ipv6Addr) -> Option<IpAddr> {
    if !v4.is_unspecified() {
        Some(v4.into())
    } else if !v6.is_unspecified() {
        Some(IpAddr::from(v6).to_canonical())
    } else {
        None
    }
}

/// Fields of an inner IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InnerIp {
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
}

/// What [`egress`] read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// Bits of the inner type of service.
    pub tos: u8,
    /// The inner time to live.
    pub ttl: bool,
    /// `pkt_mark`: all of it, since the output overwrites it, and must restore it.
    pub mark: bool,
    /// The flow's tunnel source.
    pub tunnel_src: bool,
    /// The flow's tunnel destination.
    pub tunnel_dst: bool,
    /// The flow's tunnel key.
    pub key: bool,
    /// Bits of the flow's tunnel flags.
    pub flags: u16,
    /// The flow's VXLAN group policy.
    pub group_policy: bool,
    /// Bits of the flow's word of ERSPAN fields.
    pub erspan: u64,
    /// The flow's word of GTP-U fields.
    pub gtpu: bool,
    /// The flow's Geneve options.
    pub options: bool,
}

/// Why a packet is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The destination is the address at which the packet was received; or neither exists. The text is that of
    /// `ofproto/trace`.
    #[error("Not tunneling to our own address")]
    OwnAddress,
    /// There is no destination, or the source is of the other family. Open vSwitch fails to find a route.
    #[error("native tunnel routing failed")]
    Unroutable,
}

/// The result of [`egress`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Egress {
    /// The fields of the outer headers. An unspecified source is chosen by the route, and the source port by each
    /// packet's hash.
    pub tunnel: Result<Tunnel, Refusal>,
    /// The new `pkt_mark`, which applies to the outer packet only; `None` leaves it.
    pub mark: Option<u32>,
    /// What the result depends on.
    pub reads: Reads,
}

/// The outer headers of a packet that is sent through a port. `inner` is `None` for packets that are not IP;
/// `received_at` is the outer destination that the packet was received with, if it came from a tunnel.
pub fn egress(config: &Config, flow: &FlowTunnel<'_>, inner: Option<InnerIp>, received_at: Option<IpAddr>) -> Egress {
    let mut reads = Reads { mark: config.egress_mark.is_some(), ..Reads::default() };
    let (tos, ttl) = ip_fields(config, inner, &mut reads);
    let addresses = addresses(config, flow, received_at, &mut reads);
    let key = match config.out_key {
        Key::Absent => 0,
        Key::Fixed(key) => key,
        Key::Flow => {
            reads.key = true;
            flow.key
        }
    };
    let tunnel = addresses.map(|(src, dst)| {
        reads.flags |= flags::OAM;
        Tunnel {
            src,
            dst,
            key,
            flags: flags_of(config, dst) | flow.flags & flags::OAM,
            tos,
            ttl,
            src_port: 0,
            dst_port: config.dst_port,
            group_policy: read_if(config.group_policy, flow.group_policy, &mut reads.group_policy),
            erspan: erspan(config, flow.erspan, &mut reads.erspan),
            gtpu: read_if(config.tunnel_type == TunnelType::Gtpu, flow.gtpu, &mut reads.gtpu),
            options: read_if(config.tunnel_type == TunnelType::Geneve, flow.options, &mut reads.options).into(),
        }
    });
    Egress { tunnel, mark: config.egress_mark, reads }
}

/// The value if the condition holds, which is then noted as read.
fn read_if<T: Default>(condition: bool, value: T, read: &mut bool) -> T {
    *read |= condition;
    if condition { value } else { T::default() }
}

/// Type of service and time to live.
fn ip_fields(config: &Config, inner: Option<InnerIp>, reads: &mut Reads) -> (u8, u8) {
    let dscp = match config.tos {
        Tos::Fixed(tos) => tos,
        Tos::Inherit => 0,
    };
    let ttl = match config.ttl {
        Ttl::Fixed(ttl) => ttl,
        Ttl::Inherit => Ttl::DEFAULT,
    };
    let Some(inner) = inner else { return (dscp, ttl) };
    reads.tos |= ecn::MASK;
    let mut tos = dscp | ecn::encapsulate(inner.tos);
    if config.tos == Tos::Inherit {
        reads.tos |= !ecn::MASK;
        tos |= inner.tos & !ecn::MASK;
    }
    reads.ttl = config.ttl == Ttl::Inherit;
    (tos, if reads.ttl { inner.ttl } else { ttl })
}

/// Source and destination.
fn addresses(
    config: &Config,
    flow: &FlowTunnel<'_>,
    received_at: Option<IpAddr>,
    reads: &mut Reads,
) -> Result<(IpAddr, IpAddr), Refusal> {
    let mut endpoint = |endpoint, address, read: fn(&mut Reads) -> &mut bool| match endpoint {
        Endpoint::Any => None,
        Endpoint::Fixed(address) => Some(address),
        Endpoint::Flow => {
            *read(reads) = true;
            address
        }
    };
    let dst = endpoint(config.remote, flow.dst(), |reads| &mut reads.tunnel_dst);
    if dst == received_at.map(|address| address.to_canonical()) {
        return Err(Refusal::OwnAddress);
    }
    let dst = dst.ok_or(Refusal::Unroutable)?;
    let any = if dst.is_ipv6() { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    let src = endpoint(config.local, flow.src(), |reads| &mut reads.tunnel_src).unwrap_or(any);
    if src.is_ipv6() == dst.is_ipv6() { Ok((src, dst)) } else { Err(Refusal::Unroutable) }
}

fn flags_of(config: &Config, dst: IpAddr) -> u16 {
    let has_checksum = match config.checksum {
        Checksum::On => true,
        Checksum::Off => false,
        Checksum::Default => dst.is_ipv6() && matches!(config.tunnel_type, TunnelType::Vxlan | TunnelType::Geneve),
    };
    let flag = |condition, flag| if condition { flag } else { 0 };
    flag(config.dont_fragment, flags::DONT_FRAGMENT)
        | flag(has_checksum, flags::CHECKSUM)
        | flag(config.out_key != Key::Absent, flags::KEY)
}

/// The word of ERSPAN fields: index, version, direction and hardware id from the most significant bit. The version is 0
/// if the port has no header to send.
fn erspan(config: &Config, flow: u64, reads: &mut u64) -> u64 {
    let mut field = |value, shift: u32, mask: u64| match value {
        ErspanValue::Fixed(value) => u64::from(value) << shift,
        ErspanValue::Flow => {
            *reads |= mask << shift;
            flow & mask << shift
        }
    };
    if !config.tunnel_type.is_erspan() {
        return 0;
    }
    match config.erspan {
        Erspan::Unset => 0,
        Erspan::V1 { index } => field(index, 32, 0xffff_ffff) | 1 << 24,
        Erspan::V2 { direction, hardware_id } => 2 << 24 | field(direction, 16, 0xff) | field(hardware_id, 8, 0xff),
        Erspan::Flow => field(ErspanValue::Flow, 8, 0xff_ffff_ffff_ffff),
    }
}
