//! The outer headers of a packet that is sent through a tunnel port, from the port's configuration and the packet's tunnel fields.

use base::MacAddr;
use packet::metadata::Tunnel;
use std::net::IpAddr;

use crate::header::erspan::Erspan;
use crate::header::geneve::Geneve;
use crate::header::gre::Gre;
use crate::header::gtpu::{self, Gtpu};
use crate::header::srv6::{FlowLabel, Srv6};
use crate::header::vxlan::Vxlan;
use crate::header::{ETH_IPV4, ETH_IPV6, Encapsulation, Invalid, OuterIp, Push, Template, Udp};
use crate::options::{self, Config};
use crate::{TunnelType, flags};

/// The Ethernet type of Ethernet frames as payload.
const ETH_TRANSPARENT: u16 = 0x6558;
/// GTP-U's flag of a sequence number.
const GTPU_SEQUENCE: u8 = 2;

/// Why a packet has no outer headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoHeaders {
    /// One outer address is IPv4 and the other one IPv6, or the tunnel type cannot be carried by their IP version.
    #[error("the outer addresses do not suit the tunnel")]
    Addresses,
    /// The option `erspan_ver` is absent, or the flow's version is unknown.
    #[error("the ERSPAN version is unknown")]
    ErspanVersion,
    /// The key does not fit into the session of ERSPAN, which has 10 bits.
    #[error("the ERSPAN session is above 1023")]
    ErspanSession,
    /// The first segment is not the remote address.
    #[error("the first segment is not the remote address")]
    FirstSegment,
    /// The protocol has no number for the packet's type.
    #[error("the tunnel has no number for packets of this type")]
    PacketType,
    /// Options or segments do not fit.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// The headers for packets with these tunnel fields, whose source is set. `l3_type` is the Ethernet type of a packet without an
/// Ethernet header.
///
/// # Errors
///
/// If the port has no headers for the packet.
pub fn headers(
    config: &Config,
    tunnel: &Tunnel,
    (eth_src, eth_dst): (MacAddr, MacAddr),
    l3_type: Option<u16>,
) -> Result<Template, NoHeaders> {
    let &Tunnel { src, dst, key, tos, ttl, .. } = tunnel;
    let dont_fragment = tunnel.flags & flags::DONT_FRAGMENT != 0;
    let ip = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => OuterIp::V4 { src, dst, tos, ttl, dont_fragment },
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            OuterIp::V6 { src, dst, class: tos, hop_limit: ttl, label: 0, dont_fragment }
        }
        _ => return Err(NoHeaders::Addresses),
    };
    let has_checksum = tunnel.flags & flags::CHECKSUM != 0;
    let udp = Udp { src: tunnel.src_port, dst: tunnel.dst_port, checksum: has_checksum };
    let encapsulation = match config.tunnel_type {
        TunnelType::Vxlan => {
            let mut header = Vxlan::new(key as u32);
            if config.group_policy {
                header = header.with_group_policy(tunnel.group_policy);
            }
            if config.generic_protocol {
                header = header.with_next_protocol(l3_type).ok_or(NoHeaders::PacketType)?;
            }
            Encapsulation::Vxlan(udp, header)
        }
        TunnelType::Geneve => {
            let (vni, oam) = (key as u32 & 0xff_ffff, tunnel.flags & flags::OAM != 0);
            Encapsulation::Geneve(udp, Geneve { vni, oam, options: tunnel.options.clone() })
        }
        TunnelType::Gre | TunnelType::Ip6Gre => Encapsulation::Gre(Gre {
            protocol: l3_type.unwrap_or(ETH_TRANSPARENT),
            checksum: has_checksum,
            key: (tunnel.flags & flags::KEY != 0).then_some(key as u32),
            sequence: config.sequence,
        }),
        TunnelType::Erspan | TunnelType::Ip6Erspan => Encapsulation::Erspan(erspan(key, tunnel.erspan)?),
        TunnelType::Gtpu => {
            let flags = gtpu::FLAGS_DEFAULT | if config.sequence { GTPU_SEQUENCE } else { 0 };
            Encapsulation::Gtpu(udp, Gtpu { flags, message_type: gtpu::G_PDU, teid: key as u32 })
        }
        TunnelType::Srv6 if !matches!(l3_type, Some(ETH_IPV4 | ETH_IPV6)) => return Err(NoHeaders::PacketType),
        TunnelType::Srv6 => Encapsulation::Srv6(srv6(config, dst)?),
        TunnelType::Bareudp => Encapsulation::Bareudp(udp),
    };
    Ok(Template::new(Push { eth_src, eth_dst, vlan: None, ip, tunnel: encapsulation })?)
}

/// The header of a word of ERSPAN fields ([`Tunnel::erspan`]).
fn erspan(key: u64, fields: u64) -> Result<Erspan, NoHeaders> {
    let session = u16::try_from(key).ok().filter(|session| *session <= 0x3ff).ok_or(NoHeaders::ErspanSession)?;
    match fields >> 24 & 0xff {
        1 => Ok(Erspan::V1 { session, index: (fields >> 32) as u32 }),
        2 => Ok(Erspan::V2 { session, is_egress: fields >> 16 & 1 != 0, hardware_id: (fields >> 8) as u8 & 0x3f }),
        _ => Err(NoHeaders::ErspanVersion),
    }
}

fn srv6(config: &Config, dst: IpAddr) -> Result<Srv6, NoHeaders> {
    let IpAddr::V6(dst) = dst else { return Err(NoHeaders::Addresses) };
    let segments = if config.segments.is_empty() { [dst].into() } else { config.segments.clone() };
    if segments.first() != Some(&dst) {
        return Err(NoHeaders::FirstSegment);
    }
    let flow_label = match config.flow_label {
        options::FlowLabel::Copy => FlowLabel::Copy,
        options::FlowLabel::Zero => FlowLabel::Zero,
        options::FlowLabel::Compute => FlowLabel::Compute,
    };
    Ok(Srv6 { segments, flow_label })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The text of the headers for fields that an interface's options leave to the packet.
    fn text(
        kind: TunnelType,
        options: &[(&str, &str)],
        tunnel: &Tunnel,
        l3_type: Option<u16>,
    ) -> Result<String, NoHeaders> {
        let options: BTreeMap<_, _> = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = Config::parse("t", kind, &options).expect("valid options").config;
        let macs = (MacAddr([0xaa, 0x55, 0, 0, 0, 1]), MacAddr([0xaa, 0x55, 0, 0, 0, 2]));
        let template = headers(&config, tunnel, macs, l3_type)?;
        let mut text = String::new();
        template.headers().format_header(&mut text);
        Ok(text)
    }

    fn tunnel(is_v6: bool) -> Tunnel {
        let address = |last: u8| -> IpAddr {
            if is_v6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()].into() } else { [1, 1, 2, last].into() }
        };
        let flags = flags::DONT_FRAGMENT | flags::KEY;
        Tunnel { key: 123, flags, ttl: 64, dst_port: 4789, ..Tunnel::between(address(88), address(92)) }
    }

    #[test]
    fn headers_have_the_fields_of_their_tunnel() {
        let v4 = "ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000)";
        let eth = "eth(dst=aa:55:00:00:00:02,src=aa:55:00:00:00:01,dl_type=0x0800)";
        let vxlan = text(TunnelType::Vxlan, &[("remote_ip", "1.1.2.92"), ("key", "123")], &tunnel(false), None);
        let expected =
            format!("header(size=50,type=4,{eth},{v4},udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b))");
        assert_eq!(vxlan, Ok(expected));
        let gre = text(TunnelType::Gre, &[("remote_ip", "1.1.2.92"), ("key", "123")], &tunnel(false), None);
        let v4 = v4.replace("proto=17", "proto=47");
        let expected = format!("header(size=42,type=3,{eth},{v4},gre((flags=0x2000,proto=0x6558),key=0x7b))");
        assert_eq!(gre, Ok(expected));
    }

    #[test]
    fn tunnels_without_headers_are_refused() {
        let refused =
            |kind, options: &[(&str, &str)], tunnel: &Tunnel, l3| text(kind, options, tunnel, l3).expect_err("refused");
        let remote = [("remote_ip", "2001:db8::5c")];
        let mixed = Tunnel { dst: [1, 1, 2, 92].into(), ..tunnel(true) };
        assert_eq!(refused(TunnelType::Geneve, &remote, &mixed, None), NoHeaders::Addresses);
        assert_eq!(refused(TunnelType::Erspan, &remote, &tunnel(true), None), NoHeaders::ErspanVersion);
        let session = Tunnel { key: 0x400, ..tunnel(true) };
        assert_eq!(refused(TunnelType::Erspan, &remote, &session, None), NoHeaders::ErspanSession);
        let options = [remote[0], ("srv6_segs", "2001:db8::1")];
        assert_eq!(refused(TunnelType::Srv6, &options, &tunnel(true), Some(0x0800)), NoHeaders::FirstSegment);
        assert_eq!(refused(TunnelType::Srv6, &remote, &tunnel(true), Some(0x0806)), NoHeaders::PacketType);
        let options = [remote[0], ("exts", "gpe")];
        assert_eq!(refused(TunnelType::Vxlan, &options, &tunnel(true), Some(0x8847)), NoHeaders::PacketType);
        let long = Tunnel { options: vec![0; 256].into(), ..tunnel(true) };
        assert!(matches!(refused(TunnelType::Geneve, &remote, &long, None), NoHeaders::Invalid(Invalid::Options(256))));
    }
}
