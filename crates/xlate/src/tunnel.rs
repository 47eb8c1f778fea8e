//! Packets that come from tunnels, leave through tunnels, or arrive at the end of one.
//!
//! An output to a tunnel port translates the packet with its outer headers at once, in the bridge that the route leads to, as if that
//! bridge's own port had received it. In the other direction, an output to a bridge's own port of a packet that belongs to a
//! tunnel removes the outer headers: the datapath looks up the inner packet as one of the tunnel's port.

use crate::freeze::Unseen;
use crate::model::{Bridge, BridgeId, Network, Port, PortOut};
use crate::scope::Scope;
use crate::trace::{NodeKind, Tracing};
use crate::translate::{Start, Xlate, translate_key};
use crate::underlay::{Endpoint, Route, Underlay};
use crate::verdict::{Dependency, Effect, Resolve, TranslationError, Verdict};
use base::{DpPort, DropReason, MacAddr, PortNo};
use dpif::{Defragment, DpAction, TunnelPop, TunnelPush};
use flow::extract::{FRAG_ANY, ethertype};
use flow::{Field, FlowKey, FlowMask, OTHER_LENGTH, Prereq, UNKNOWN_OPTION, WORDS, layout};
use packet::metadata::Tunnel;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tunnel::TunnelType;
use tunnel::ecn::{self, Decapsulated};
use tunnel::egress::{self, FlowTunnel, InnerIp};
use tunnel::framing::{Framing, PacketType};
use tunnel::header::Template;
use tunnel::options::{Config, Key};
use tunnel::ports::Consulted;

/// Length of an Ethernet header in bytes.
const ETHERNET: i32 = 14;
const UDP: u8 = 17;
/// The bit of `vlan_tci` that is set if there is a tag.
const TAG_PRESENT: u128 = 0x1000;
const ICMPV6: u8 = 58;
/// The protocol of a later fragment of IPv6.
const FRAGMENT: u8 = 44;

/// Translates a packet of the datapath's port of tunnels.
pub(crate) fn receive(net: &Network, dp_port: DpPort, key: &FlowKey, trace: Tracing) -> Verdict {
    let (found, consulted) = net.tunnels.find(dp_port, key);
    let owner = found.and_then(|(id, config)| Some((id, config, net.bridges.get(&id.0)?)));
    let Some((id, config, bridge)) = owner else {
        let mut verdict = crate::translate::drop_verdict(key, TranslationError::Port, trace);
        let mut reads = flow::Reads::new();
        verdict.reads.iter().for_each(|step| reads.note(step.word(), step.bits()));
        consulted_mask(consulted).iter().for_each(|(word, bits)| reads.note(*word, *bits));
        reads.note_field(Field::PacketType);
        verdict.reads = reads.take_order();
        verdict.dependencies.push(Dependency::Tunnels);
        (verdict.error, verdict.drop) = (None, Some(DropReason::NoTunnel));
        verdict.effects.push(Effect::NoTunnel(Arc::new(key.clone())));
        return verdict;
    };
    translate_key(net, bridge, (key, id.1), Start::Tables, trace, |x| x.leave_tunnel(id, &config, consulted))
}

/// Translates a packet that a port of the bridge received from a tunnel. `None` if it is from none.
pub(crate) fn receive_at(net: &Network, bridge: &Bridge, key: &FlowKey, trace: Tracing) -> Option<Verdict> {
    let no = key.in_port();
    let port = bridge.ports.get(&no)?;
    let (config, PortOut::Tunnel(dp_port)) = (port.tunnel.clone()?, &port.out) else { return None };
    received_at(key)?;
    let consulted = net.tunnels.find(*dp_port, key).1;
    let begin = |x: &mut Xlate<'_>| x.leave_tunnel((bridge.id, no), &config, consulted);
    Some(translate_key(net, bridge, (key, no), Start::Tables, trace, begin))
}

/// The fields of a received packet's tunnel that decide which port it belongs to.
pub(crate) fn received(key: &FlowKey) -> Tunnel {
    let none = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Tunnel {
        key: key.0[layout::TUN_ID],
        flags: key.get(Field::TunFlags) as u16,
        tos: key.get(Field::TunTos) as u8,
        ttl: key.get(Field::TunTtl) as u8,
        ..Tunnel::between(
            address(key, Field::TunSrc, Field::TunIpv6Src).unwrap_or(none),
            received_at(key).unwrap_or(none),
        )
    }
}

/// An address of a key: the IPv4 one if it is set, else the IPv6 one if that is.
fn address(key: &FlowKey, v4: Field, v6: Field) -> Option<IpAddr> {
    let (v4, v6) = (Ipv4Addr::from(key.get(v4) as u32), Ipv6Addr::from(key.get(v6)));
    if !v4.is_unspecified() { Some(v4.into()) } else { (!v6.is_unspecified()).then_some(v6.into()) }
}

/// The outer destination of a packet that came from a tunnel.
#[inline]
pub(crate) fn received_at(key: &FlowKey) -> Option<IpAddr> {
    address(key, Field::TunDst, Field::TunIpv6Dst)
}

pub(crate) fn packet_type_of(key: &FlowKey) -> PacketType {
    if key.0[layout::PKTTYPE_CTTP] >> 32 == 0 { PacketType::Ethernet } else { PacketType::Layer3 }
}

/// The words and bits of tunnel fields.
fn consulted_mask(consulted: Consulted) -> Vec<(usize, u64)> {
    let mut mask = FlowMask::ZERO;
    let mut add = |is_read: bool, fields: &[Field]| {
        if is_read {
            fields.iter().for_each(|field| mask.add_mask(*field, field.info().full_mask()));
        }
    };
    add(consulted.key, &[Field::TunId]);
    add(consulted.src, &[Field::TunSrc, Field::TunIpv6Src]);
    add(consulted.dst, &[Field::TunDst, Field::TunIpv6Dst]);
    mask.0.iter().copied().enumerate().filter(|(_, bits)| *bits != 0).collect()
}

/// The tunnels of packets to these endpoints, which have one protocol: of a UDP port, if it is given. GRE over IPv4 and over IPv6
/// has ports of its own, and so has ERSPAN, whose headers are those of GRE; a port of the other family serves if there is no
/// other.
fn pops(endpoints: &[&Endpoint], udp_port: Option<u16>, is_v6: bool) -> Vec<(Option<u16>, TunnelPop)> {
    let of_type = |wanted: TunnelType| endpoints.iter().find(|of| of.tunnel_type == wanted).map(|of| of.dp_port);
    let of_family = |v4: TunnelType, v6: TunnelType| {
        let (first, second) = if is_v6 { (v6, v4) } else { (v4, v6) };
        of_type(first).or_else(|| of_type(second))
    };
    let gre = of_family(TunnelType::Gre, TunnelType::Ip6Gre);
    match (gre, of_family(TunnelType::Erspan, TunnelType::Ip6Erspan)) {
        (Some(port), erspan) => vec![(None, TunnelPop { port, erspan })],
        (None, Some(erspan)) => vec![(None, TunnelPop::of(erspan))],
        (None, None) => {
            let is_meant = |of: &&&Endpoint| udp_port.is_none() || of.udp_port == udp_port;
            endpoints.iter().filter(is_meant).map(|of| (of.udp_port, TunnelPop::of(of.dp_port))).collect()
        }
    }
}

/// The leading bits of a UDP port by which it differs from each port of the endpoints; all for one of them.
fn prefix_of_port(port: u16, endpoints: &[&Endpoint]) -> u16 {
    let common = endpoints.iter().filter_map(|of| Some((of.udp_port? ^ port).leading_zeros())).max().unwrap_or(0);
    !(u16::MAX.checked_shr(common + 1).unwrap_or(0))
}

/// Where an outer packet goes.
struct Way<'a> {
    route: Route,
    /// The address of the next hop, and its Ethernet address.
    hop: IpAddr,
    next_hop: MacAddr,
    /// The bridge that sends it, with the datapath's port and the Ethernet address of its own port.
    underlay: &'a Bridge,
    local: DpPort,
    own_mac: MacAddr,
}

impl<'a> Xlate<'a> {
    /// Begins the translation of a packet that came from a tunnel port. Returns false if it is dropped.
    fn leave_tunnel(&mut self, id: (BridgeId, PortNo), config: &Config, consulted: Consulted) -> bool {
        self.out.dependencies.push(Dependency::Tunnels);
        consulted_mask(consulted).into_iter().for_each(|(word, bits)| self.out.reads.note(word, bits));
        self.out.reads.note_field(Field::PacketType);
        self.out.effects.push(Effect::Tunnel { bridge: id.0, port: id.1, sent: false });
        if config.tunnel_type == TunnelType::Geneve && self.has_unknown_option() {
            self.tracer.note(NodeKind::Warning, || "Invalid Geneve tunnel metadata".to_owned());
            self.note_drop(DropReason::TunnelOption);
            return false;
        }
        if config.packets.received(packet_type_of(&self.packet.key)) == Framing::Push {
            self.frame_with_zeros();
        }
        let inner = self.inner_tos();
        let outer = self.read_bits(Field::TunTos, ecn::MASK.into()) as u8;
        if ecn::decapsulate(outer, inner).1 {
            self.read_bits(Field::IpEcn, ecn::MASK.into());
        }
        match ecn::decapsulate(outer, inner).0 {
            Decapsulated::Unchanged => {}
            Decapsulated::Mark => self.write(Field::IpEcn, ecn::CE.into(), ecn::MASK.into()),
            Decapsulated::Drop => {
                self.tracer.note(NodeKind::Warning, || ecn::DROPPED.to_owned());
                self.count_hit();
                self.note_drop(DropReason::Congestion);
                return false;
            }
        }
        true
    }

    /// Returns true for a packet with a critical option that the bridge does not map (RFC 8926 section 3.5).
    fn has_unknown_option(&mut self) -> bool {
        let (word, bits) = self.net.tunnels.received_options().unknown_to(&self.pos.bridge.options);
        self.out.reads.note(word, bits);
        // An option of another length may be one that the bridge maps, if it maps any.
        let maps_any = self.pos.bridge.options.iter().next().is_some();
        let flags = UNKNOWN_OPTION | if maps_any { OTHER_LENGTH } else { 0 };
        let mut mask = FlowMask::ZERO;
        mask.add_mask(Field::TunFlags, flags.into());
        self.out.reads.note_mask(&mask);
        let key = &self.packet.key;
        key.0[word] & bits != 0 || key.get(Field::TunFlags) as u16 & flags != 0
    }

    /// The type of service of an IP packet. The caller notes what it reads of it.
    fn inner_tos(&self) -> Option<u8> {
        let is_ip = matches!(self.packet.key.eth_type(), ethertype::IPV4 | ethertype::IPV6);
        let get = |field| self.packet.key.get(field) as u8;
        is_ip.then(|| get(Field::IpDscp) << 2 | get(Field::IpEcn))
    }

    /// Sends the packet through a tunnel port.
    pub(crate) fn through_tunnel(&mut self, port: &Port, dp_port: DpPort) {
        let Some(config) = port.tunnel.clone() else { return self.note_drop(DropReason::NoTunnel) };
        self.out.reads.note_field(Field::PacketType);
        let Ok(framing) = config.packets.sent(packet_type_of(&self.packet.key)) else {
            self.tracer.note(NodeKind::Warning, || {
                "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.".into()
            });
            return self.note_drop(DropReason::NoEthernet);
        };
        if framing == Framing::Pop && self.read_bits(Field::VlanTci, TAG_PRESENT) != 0 {
            self.tracer.note(NodeKind::Warning, || "a packet with a VLAN tag cannot leave through an L3 tunnel".into());
            return self.note_drop(DropReason::TunnelBuild);
        }
        let fields = self.outer_fields(&config);
        if !matches!(fields, Err(egress::Refusal::OwnAddress)) {
            self.tracer.note(NodeKind::Detail, || "output to native tunnel".into());
        }
        let (mut outer, mark) = match fields {
            Ok(fields) => fields,
            Err(refusal) => {
                self.tracer.note(NodeKind::Warning, || refusal.to_string());
                return self.note_drop(DropReason::NoRoute);
            }
        };
        let Some(Way { route, hop, next_hop, underlay, local, own_mac }) = self.way(&outer, mark) else { return };
        outer.src = route.src;
        self.tracer.note(NodeKind::Detail, || format!("tunneling from {own_mac} {} to {next_hop} {hop}", route.src));
        let l3_type = match (framing, packet_type_of(&self.packet.key)) {
            (Framing::Pop, _) | (Framing::Unchanged, PacketType::Layer3) => Some(self.packet.key.eth_type()),
            _ => None,
        };
        let template = match egress::headers(&config, &outer, (own_mac, next_hop), l3_type) {
            Ok(template) => template,
            Err(why) => {
                self.tracer.note(NodeKind::Warning, || format!("native tunnel header build failed: {why}"));
                return self.note_drop(DropReason::TunnelBuild);
            }
        };
        if !self.count_resubmit() {
            return;
        }
        let sender = (self.pos.bridge.id, port.no);
        self.out.effects.push(Effect::Tunnel { bridge: sender.0, port: sender.1, sent: true });
        self.out.effects.push(Effect::Neighbour { bridge: route.bridge, ip: hop });
        let in_key = match (config.in_key, config.out_key) {
            (Key::Fixed(key), out_key) if out_key != Key::Fixed(key) => Some(key),
            _ => None,
        };
        let headers = template.header_len() as i32 - if framing == Framing::Pop { ETHERNET } else { 0 };
        let push = Arc::new(TunnelPush { port: dp_port, out_port: local, template, in_key });
        let counted = self.note_tunnel_output(port, &config, &outer);
        self.on_a_copy(Scope::Patch, |x| {
            if x.packet.key.get(Field::PktMark) != mark.into() {
                x.write(Field::PktMark, mark.into(), u32::MAX.into());
                x.commit();
            }
            if framing == Framing::Pop {
                x.emit(DpAction::PopEth);
            }
            if let Some(max_len) = x.mirroring.snaplen {
                x.emit(DpAction::Trunc(max_len.into()));
            }
            x.emit(DpAction::TunnelPush(Arc::clone(&push)));
            let hashed = std::mem::take(&mut x.packet.hashed);
            x.become_outer(&push.template, &outer, mark);
            x.out.effects.push(Effect::Headers(headers));
            let left = x.cross_mirrors(underlay.id);
            x.process_in_bridge(underlay, Start::Tables);
            x.return_to_mirrors(left);
            x.out.effects.push(Effect::Headers(-headers));
            x.packet.hashed = hashed;
        });
        self.out.outputs = counted;
    }

    /// The tunnel fields of the packet at a port, and the mark of the outer packet.
    fn outer_fields(&mut self, config: &Config) -> Result<(Tunnel, u32), egress::Refusal> {
        let key = &self.packet.key;
        let addresses = |v4, v6| (Ipv4Addr::from(key.get(v4) as u32), Ipv6Addr::from(key.get(v6)));
        let (ipv4_src, ipv6_src) = addresses(Field::TunSrc, Field::TunIpv6Src);
        let (ipv4_dst, ipv6_dst) = addresses(Field::TunDst, Field::TunIpv6Dst);
        let group_policy = key.get(Field::TunGbpFlags) << 16 | key.get(Field::TunGbpId);
        let options = self.pos.bridge.options.encode(key);
        let fields = FlowTunnel {
            ipv4_src,
            ipv4_dst,
            ipv6_src,
            ipv6_dst,
            key: key.0[layout::TUN_ID],
            flags: key.get(Field::TunFlags) as u16,
            group_policy: group_policy as u32,
            erspan: key.0[layout::TUN_ERSPAN],
            gtpu: key.0[layout::TUN_GTPU],
            options: &options,
        };
        let inner = self.inner_tos().map(|tos| InnerIp { tos, ttl: key.get(Field::IpTtl) as u8 });
        let received_at = self.received_at;
        let before = key.get(Field::PktMark) as u32;
        let egress::Egress { tunnel, mark, reads } = egress::egress(config, &fields, inner, received_at);
        self.note_egress(&reads);
        Ok((tunnel?, mark.unwrap_or(before)))
    }

    /// Notes what decided about the outer headers.
    fn note_egress(&mut self, reads: &egress::Reads) {
        let mut mask = FlowMask::ZERO;
        let mut add = |field: Field, bits: u128| mask.add_mask(field, bits);
        let all = |is_read: bool| if is_read { u128::MAX } else { 0 };
        add(Field::IpEcn, (reads.tos & ecn::MASK).into());
        add(Field::IpDscp, (reads.tos >> 2).into());
        add(Field::TunFlags, reads.flags.into());
        let fields = [
            (Field::IpTtl, reads.ttl),
            (Field::PktMark, reads.mark),
            (Field::TunSrc, reads.tunnel_src),
            (Field::TunIpv6Src, reads.tunnel_src),
            (Field::TunDst, reads.tunnel_dst),
            (Field::TunIpv6Dst, reads.tunnel_dst),
            (Field::TunId, reads.key),
            (Field::TunGbpId, reads.group_policy),
            (Field::TunGbpFlags, reads.group_policy),
        ];
        for (field, is_read) in fields {
            add(field, all(is_read) & field.info().full_mask());
        }
        mask.0[layout::TUN_ERSPAN] |= reads.erspan;
        mask.0[layout::TUN_GTPU] |= all(reads.gtpu) as u64;
        if self.received_at.is_none() {
            // The ingress port implies that these fields are zero.
            mask.0[layout::TUN_ID..layout::SKB_PKT].fill(0);
            self.out.reads.note_mask(&mask);
            return;
        }
        self.out.reads.note_mask(&mask);
        if reads.options {
            self.pos.bridge.options.iter().for_each(|placed| self.out.reads.note_mask(&placed.whole()));
        }
        self.out.reads.note_initial(layout::TUN_IPV4, u32::MAX.into());
        for word in [layout::TUN_IPV6_DST, layout::TUN_IPV6_DST + 1] {
            self.out.reads.note_initial(word, u64::MAX);
        }
    }

    /// The way of a packet with these outer fields. `None` if the packet is dropped.
    fn way(&mut self, outer: &Tunnel, mark: u32) -> Option<Way<'a>> {
        let src = Some(outer.src).filter(|src| !src.is_unspecified());
        let underlay = self.net.tunnels.underlay();
        self.out.dependencies.push(Dependency::Route { dst: outer.dst, src, mark });
        let route = underlay.and_then(|underlay| underlay.route(outer.dst, src, mark));
        let Some((route, (underlay_bridge, local, own_mac))) =
            route.and_then(|route| Some((route.clone(), self.bridge_named(&route.bridge)?)))
        else {
            self.tracer.note(NodeKind::Warning, || "native tunnel routing failed".into());
            self.note_drop(DropReason::NoRoute);
            return None;
        };
        self.out.dependencies.push(Dependency::Bridge(underlay_bridge.id));
        let Route { bridge, src, gateway } = &route;
        let hop = gateway.unwrap_or(outer.dst);
        self.tracer.note(NodeKind::Detail, || format!("tunneling to {hop} via {bridge}"));
        self.out.dependencies.push(Dependency::Neighbour { bridge: Arc::clone(bridge), ip: hop });
        let Some(mac) = underlay.and_then(|underlay| underlay.neighbour(bridge, hop)) else {
            self.tracer.note(NodeKind::Detail, || {
                let kind = if hop.is_ipv4() { "ARP" } else { "ND" };
                let is_asked = underlay.is_some_and(|underlay| underlay.is_asked(bridge, hop));
                let doing = if is_asked { "waiting on" } else { "sending" };
                format!("neighbor cache miss for {hop} on bridge {bridge}, {doing} {kind} request")
            });
            let resolve = Resolve { bridge: Arc::clone(bridge), ip: hop, src: *src, mac: own_mac };
            self.out.effects.push(Effect::Resolve(Arc::new(resolve)));
            self.note_drop(DropReason::NoNeighbour);
            return None;
        };
        Some(Way { route, hop, next_hop: mac, underlay: underlay_bridge, local, own_mac })
    }

    /// A bridge by its name, with the datapath's port and the Ethernet address of its own port.
    fn bridge_named(&self, name: &str) -> Option<(&'a Bridge, DpPort, MacAddr)> {
        let bridge = self.net.bridges.values().find(|bridge| *bridge.name == *name)?;
        let own = bridge.ports.get(&PortNo::LOCAL)?;
        match own.out {
            PortOut::Device(local) => Some((bridge, local, own.mac)),
            _ => None,
        }
    }

    /// Becomes the outer packet at the bridge's own port. Its fields are known, so that reading them reads nothing.
    fn become_outer(&mut self, template: &Template, outer: &Tunnel, mark: u32) {
        let push = template.headers();
        let mut key = FlowKey::ZERO;
        let mac = |mac: MacAddr| u128::from(mac.to_u64());
        key.set(Field::EthSrc, mac(push.eth_src));
        key.set(Field::EthDst, mac(push.eth_dst));
        let fields = match (outer.src, outer.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => [
                (Field::EthType, ethertype::IPV4.into()),
                (Field::Ipv4Src, u32::from(src).into()),
                (Field::Ipv4Dst, u32::from(dst).into()),
            ],
            (src, dst) => {
                let number = |ip: IpAddr| if let IpAddr::V6(ip) = ip { u128::from(ip) } else { 0 };
                [(Field::EthType, ethertype::IPV6.into()), (Field::Ipv6Src, number(src)), (Field::Ipv6Dst, number(dst))]
            }
        };
        fields.into_iter().for_each(|(field, value)| key.set(field, value));
        key.set(Field::IpDscp, (outer.tos >> 2).into());
        key.set(Field::IpEcn, (outer.tos & ecn::MASK).into());
        key.set(Field::IpTtl, outer.ttl.into());
        key.set(Field::IpProto, push.tunnel.proto().into());
        if let Some(udp) = push.tunnel.udp() {
            key.set(Field::UdpSrc, udp.src.into());
            key.set(Field::UdpDst, udp.dst.into());
        }
        key.set(Field::PktMark, mark.into());
        key.set_in_port(PortNo::LOCAL);
        self.packet.key = key;
        self.packet.base.clone_from(&self.packet.key);
        (self.packet.written, self.packet.unseen) = (None, Unseen::Nothing);
        (self.packet.tracked, self.packet.translated) = (Some(false), false);
        self.out.reads.write_words(0..WORDS);
        self.set_actset_output(PortNo::UNSET);
    }

    /// The end of a tunnel, if a packet to the bridge's own port `local` belongs to one or may do so.
    pub(crate) fn terminates(&mut self, local: DpPort) -> Option<DpAction> {
        self.out.dependencies.push(Dependency::Tunnels);
        let of_all = self.net.tunnels.endpoints();
        let underlay = self.net.tunnels.underlay().filter(|_| !of_all.is_empty() && !self.is_l3())?;
        let dst = match self.packet.key.eth_type() {
            ethertype::IPV4 => Field::Ipv4Dst,
            ethertype::IPV6 => Field::Ipv6Dst,
            ethertype::ARP => {
                self.snoop_arp(&**underlay);
                return None;
            }
            _ => return None,
        };
        if dst == Field::Ipv6Dst && self.read_bits(Field::IpProto, 0xff) as u8 == ICMPV6 {
            self.snoop_discovery(&**underlay);
            return None;
        }
        let own = self.pos.bridge.ports.get(&PortNo::LOCAL)?.mac;
        if self.read_bits(Field::EthDst, u128::MAX) != own.to_u64().into() {
            return None;
        }
        let proto = self.read_bits(Field::IpProto, 0xff) as u8;
        let is_fragment = self.read_bits(Field::IpFrag, FRAG_ANY.into()) != 0;
        let is_whole_udp = proto == UDP && !is_fragment;
        if is_whole_udp && !self.has(Prereq::Udp) {
            return None;
        }
        let of_proto = |proto: u8| of_all.iter().filter(|of| of.proto == proto).collect::<Vec<&Endpoint>>();
        // A later fragment of IPv6 does not show the protocol.
        let protocols: BTreeSet<u8> = match proto {
            FRAGMENT => of_all.iter().map(|of| of.proto).collect(),
            _ => [proto].into(),
        };
        if protocols.iter().all(|proto| of_proto(*proto).is_empty()) {
            return None;
        }
        let udp_port = is_whole_udp.then(|| {
            let port = self.packet.key.get(Field::UdpDst) as u16;
            self.read_bits(Field::UdpDst, prefix_of_port(port, &of_proto(UDP)).into());
            port
        });
        let is_v6 = dst == Field::Ipv6Dst;
        let tunnels: Vec<_> = protocols.iter().flat_map(|proto| pops(&of_proto(*proto), udp_port, is_v6)).collect();
        let action = match tunnels.first()? {
            (_, pop) if !is_fragment => DpAction::TunnelPop(*pop),
            _ => DpAction::Defragment(Arc::new(Defragment { tunnels, otherwise: local })),
        };
        let ip = self.read_bits(dst, u128::MAX);
        let ip = if dst == Field::Ipv4Dst { Ipv4Addr::from(ip as u32).into() } else { Ipv6Addr::from(ip).into() };
        self.is_own_address(&**underlay, ip).then_some(action)
    }

    /// Whether this is an address of the bridge's own port.
    pub(crate) fn is_own_address(&mut self, underlay: &dyn Underlay, ip: IpAddr) -> bool {
        self.out.dependencies.push(Dependency::Route { dst: ip, src: None, mark: 0 });
        underlay.is_local(&self.pos.bridge.name, ip)
    }
}
