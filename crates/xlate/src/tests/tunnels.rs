//! Tunnels: two bridges, the first with a tunnel port, the second with the network.

use super::*;
use crate::underlay::{Endpoint, Route, Underlay};
use ::tunnel::TunnelType;
use ::tunnel::options::Config;
use ::tunnel::ports;
use base::DropReason;
use flow::NoNames;
use routes::Learning;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The datapath's ports: a host's, that of tunnels, the network's, and the second bridge's own.
const HOST: DpPort = DpPort(1);
const TUNNEL: DpPort = DpPort(7);
const NETWORK: DpPort = DpPort(11);
const OWN: DpPort = DpPort(19);

/// 192.0.2.0/24 is at the second bridge, 198.51.100.0/24 behind a gateway there. The neighbours 192.0.2.3
/// and 192.0.2.4 are not known; the latter was asked.
#[derive(Debug)]
struct Near;

const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x19]);
const HOP: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Underlay for Near {
    fn route(&self, dst: IpAddr, src: Option<IpAddr>, mark: u32) -> Option<Route> {
        let IpAddr::V4(v4) = dst else { return None };
        let gateway = match v4.octets() {
            [192, 0, 2, _] => None,
            [198, 51, 100, _] => Some(ip("192.0.2.254")),
            _ => return None,
        };
        let src = src.unwrap_or(ip("192.0.2.1"));
        (mark != 13).then(|| Route { bridge: "br1".into(), src, gateway })
    }

    fn neighbour(&self, bridge: &str, of: IpAddr) -> Option<MacAddr> {
        (bridge == "br1" && of != ip("192.0.2.3") && of != ip("192.0.2.4")).then_some(HOP)
    }

    fn is_asked(&self, _bridge: &str, of: IpAddr) -> bool {
        of == ip("192.0.2.4")
    }

    fn resolve(&self, _neighbour: &Resolve) {}

    fn used(&self, _bridge: &str, _of: IpAddr) {}

    fn learn(&self, _bridge: &str, _of: IpAddr, _mac: MacAddr, _learning: Learning, _at: base::Millis) {}

    fn is_local(&self, bridge: &str, of: IpAddr) -> bool {
        bridge == "br1" && (of == ip("192.0.2.1") || of == ip("fd00::1"))
    }
}

/// The bridges with flows of each, and tunnel ports with these options as ports 2, 3 and so on of the first bridge.
fn tunnels(first: &[(&str, &str)], second: &[(&str, &str)], options: &[&str]) -> Network {
    tunnels_of(TunnelType::Vxlan, first, second, options)
}

/// The same with tunnels of a type.
fn tunnels_of(kind: TunnelType, first: &[(&str, &str)], second: &[(&str, &str)], options: &[&str]) -> Network {
    let rules = |flows: &[(&str, &str)]| -> Vec<(u8, Match, u16, Vec<Action>)> {
        let rule = |(matching, actions): &(&str, &str)| {
            let matching = flow::text::parse_match(matching, &NoNames).expect("a match");
            (0, matching, 1, openflow::parse_actions(actions, &NoNames).expect("actions"))
        };
        flows.iter().map(rule).collect()
    };
    let mut net = network(&rules(first));
    let (of_first, of_second) = (net.bridges[&0].clone(), network(&rules(second)).bridges[&0].clone());
    let port = |no: u32, out, tunnel| {
        let no = PortNo(no);
        let name = format!("t{no}").into();
        Port {
            no,
            name,
            out,
            config: PortConfig::default(),
            live: true,
            mac: OWN_MAC,
            ifindex: 0,
            tunnel,
            bundle: None,
        }
    };
    let with_ports = |bridge: &Bridge, id: BridgeId, name: &str, ports: Vec<Port>| {
        let mut new = Bridge {
            id,
            name: name.into(),
            ports: ports.into_iter().map(|port| (port.no, port)).collect(),
            bundles: Default::default(),
            tables: Arc::clone(&bridge.tables),
            macs: Arc::clone(&bridge.macs),
            misses: Default::default(),
            options: bridge.options.clone(),
            snooping: bridge.snooping.clone(),
            ipfix: bridge.ipfix.clone(),
            local: bridge.local.clone(),
            queue_marks: Arc::clone(&bridge.queue_marks),
            mirrors: None,
            flood_vlans: None,
            ..*bridge
        };
        new.set_bundles(bridge.bundles.values().map(|bundle| (**bundle).clone()));
        new
    };
    let mut ports = vec![port(1, PortOut::Device(HOST), None)];
    for (no, options) in (2..).zip(options) {
        let options: BTreeMap<_, _> = options
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let config = Arc::new(Config::parse("t", kind, &options).expect("valid options").config);
        ports.push(port(no, PortOut::Tunnel(TUNNEL), Some(Arc::clone(&config))));
        let port = ports::Port { id: (0, PortNo(no)), name: "t".into(), datapath_port: TUNNEL, config };
        net.tunnels.ports.write().set(port).expect("no conflict");
    }
    let own = port(PortNo::LOCAL.0, PortOut::Device(OWN), None);
    let second = vec![port(1, PortOut::Device(NETWORK), None), own];
    net.bridges.insert(0, Arc::new(with_ports(&of_first, 0, "br0", ports)));
    net.bridges.insert(1, Arc::new(with_ports(&of_second, 1, "br1", second)));
    net.ports = [(HOST, (0, PortNo(1))), (NETWORK, (1, PortNo(1))), (OWN, (1, PortNo::LOCAL))].into_iter().collect();
    net.tunnels.set_endpoints(vec![Endpoint { proto: 17, tunnel_type: kind, udp_port: Some(4789), dp_port: TUNNEL }]);
    net.tunnels.set_underlay(Arc::new(Near));
    net
}

/// A packet of a flow, from a port of the datapath.
fn packet(port: DpPort, text: &str) -> FlowKey {
    let mut key = flow::text::parse_exact(text, &NoNames).expect("a flow");
    key.set_in_port(PortNo(port.0));
    key
}

fn text(verdict: &Verdict) -> String {
    dpif::text::format_actions(&verdict.actions, 0x0800, &|_| None)
}

/// Fields of the mask, without those that all verdicts read.
fn read(verdict: &Verdict) -> Vec<&'static str> {
    let mask = verdict.mask();
    let common = [Field::EthType, Field::InPortOxm, Field::RecircId, Field::IpFrag, Field::PacketType];
    let is_read = |field: &Field| mask.get(*field) != 0 && !common.contains(field);
    let fields = [
        Field::TunId,
        Field::TunSrc,
        Field::TunDst,
        Field::TunFlags,
        Field::TunTos,
        Field::PktMark,
        Field::EthDst,
        Field::EthSrc,
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::IpProto,
        Field::IpDscp,
        Field::IpEcn,
        Field::IpTtl,
        Field::UdpSrc,
        Field::UdpDst,
    ];
    fields.into_iter().filter(is_read).map(|field| field.info().name).collect()
}

const INNER: &str = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=9,nw_tos=32,udp_src=1,udp_dst=2";
const HEADER: &str = "tnl_push(tnl_port(7),header(size=50,type=4,eth(dst=02:00:00:00:00:99,src=02:00:00:00:00:19,dl_type=0x0800),\
                      ipv4(src=192.0.2.1,dst=192.0.2.2,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),\
                      vxlan(flags=0x8000000,vni=0x7b)),out_port(19))";

#[test]
fn a_packet_leaves_through_a_tunnel_in_one_translation() {
    let flows = [("udp,nw_dst=192.0.2.2,tp_dst=4789,in_port=LOCAL", "output:1")];
    let net = tunnels(&[("", "output:2")], &flows, &["remote_ip=192.0.2.2 key=123"]);
    let verdict = translate(&net, &packet(HOST, INNER), false);
    assert_eq!(text(&verdict), format!("{HEADER},11"));
    // Fields of the outer headers are known.
    assert_eq!(read(&verdict), ["nw_ecn"]);
    let effect = Effect::Tunnel { bridge: 0, port: PortNo(2), sent: true };
    assert!(verdict.effects.contains(&effect));
    // The second bridge counts longer packets.
    let (mut lengths, mut headers) = (Vec::new(), 0);
    for effect in &verdict.effects {
        match effect {
            Effect::Headers(more) => headers += more,
            Effect::Lookup { bridge, .. } => lengths.push((*bridge, headers)),
            _ => {}
        }
    }
    assert_eq!((lengths, headers), (vec![(0, 0), (1, 50)], 0));
    let route = Dependency::Route { dst: ip("192.0.2.2"), src: None, mark: 0 };
    let neighbour = Dependency::Neighbour { bridge: "br1".into(), ip: ip("192.0.2.2") };
    assert!(verdict.dependencies.contains(&route) && verdict.dependencies.contains(&neighbour));
}

#[test]
fn collectors_get_samples_of_tunnels() {
    let sampled = |sets: &[u32], flow: &str, key: &FlowKey| {
        let second = [("udp,tp_dst=4789,in_port=LOCAL", "output:1")];
        let net = tunnels(&[("", flow)], &second, &["remote_ip=192.0.2.2 key=123", "remote_ip=192.0.2.9 key=5"]);
        let always = Some(u32::MAX);
        let tunnel_sets = Arc::new(sets.iter().copied().collect());
        text(&translate(
            &observed(net, Ipfix { ingress: always, egress: always, tunnel_sets, ..Ipfix::default() }),
            key,
            false,
        ))
    };
    let received = packet(TUNNEL, "tun_id=5,tun_src=192.0.2.9,tun_dst=192.0.2.1,udp");
    let of_bridge = |port: &str| format!("userspace(pid=0,ipfix(output_port={port}))");
    let (at_ingress, at_network) = (of_bridge("4294967295"), of_bridge("11"));
    let of_flow = |port: &str, tunnel: &str| {
        format!(
            "userspace(pid=0,flow_sample(probability=65535,collector_set_id=3,obs_domain_id=0,obs_point_id=0,\
             output_port={port}){tunnel})"
        )
    };
    // The first bridge does not sample what leaves through the tunnel, and the second one samples the outer packet.
    assert_eq!(sampled(&[], "output:2", &packet(HOST, INNER)), format!("{at_ingress},{HEADER},{at_network},11"));
    assert_eq!(sampled(&[], "output:1", &received), format!("{at_ingress},{},1", of_bridge("1")));
    let sample = |port: &str| format!("sample(probability=65535,collector_set_id=3,sampling_port={port})");
    let tunnel = |sets: &[u32]| sampled(sets, &sample("2"), &packet(HOST, INNER));
    assert_eq!(tunnel(&[3]), format!("{at_ingress},{}", of_flow("7", ",tunnel_out_port=7")));
    assert_eq!(tunnel(&[4]), format!("{at_ingress},{}", of_flow("7", "")));
    // The port that the packet came from is no output port, but another tunnel behind the same port of the datapath is.
    assert_eq!(sampled(&[3], &sample("3"), &received), format!("{at_ingress},{}", of_flow("4294967295", "")));
    assert_eq!(sampled(&[3], &sample("2"), &received), format!("{at_ingress},{}", of_flow("7", ",tunnel_out_port=7")));
}

#[test]
fn later_actions_see_the_inner_packet() {
    let net = tunnels(
        &[("", "output:2,mod_nw_ttl:3,output:1,in_port")],
        &[("", "output:1")],
        &["remote_ip=192.0.2.2 key=123"],
    );
    let verdict = translate(&net, &packet(HOST, INNER), false);
    assert_eq!(text(&verdict), format!("clone({HEADER},11),set(ipv4(ttl=3)),1"));
}

#[test]
fn fields_of_the_flow_decide_about_the_outer_headers() {
    let options = "remote_ip=flow local_ip=flow key=flow tos=inherit ttl=inherit egress_pkt_mark=5";
    let flow = "set_field:192.0.2.2->tun_dst,set_field:192.0.2.1->tun_src,set_tunnel:123,output:2";
    let net = tunnels(&[("", flow)], &[("pkt_mark=5", "output:1")], &[options]);
    let verdict = translate(&net, &packet(HOST, INNER), false);
    let header = HEADER.replace("tos=0,ttl=64", "tos=0x20,ttl=9");
    assert_eq!(text(&verdict), format!("set(skb_mark(0x5)),{header},11"));
    assert_eq!(read(&verdict), ["pkt_mark", "ip_dscp", "nw_ecn", "nw_ttl"]);
    let net = tunnels(&[("", "output:2")], &[("", "output:1")], &[options]);
    let verdict = translate(&net, &packet(HOST, INNER), false);
    assert_eq!((text(&verdict).as_str(), verdict.drop), ("drop", Some(DropReason::NoRoute)));
}

#[test]
fn a_packet_without_a_way_is_dropped_for_a_reason() {
    let dropped = |options: &str, second: &str| {
        let net = tunnels(&[("", "output:2")], &[("", second)], &[options]);
        let verdict = translate(&net, &packet(HOST, INNER), false);
        assert_eq!(verdict.actions, []);
        (verdict.drop.expect("a reason"), verdict.effects.iter().any(|effect| matches!(effect, Effect::Resolve(_))))
    };
    assert_eq!(dropped("remote_ip=203.0.113.1", "output:1"), (DropReason::NoRoute, false));
    assert_eq!(dropped("remote_ip=192.0.2.2 egress_pkt_mark=13", "output:1"), (DropReason::NoRoute, false));
    assert_eq!(dropped("remote_ip=192.0.2.3", "output:1"), (DropReason::NoNeighbour, true));
    assert_eq!(dropped("remote_ip=192.0.2.2", "drop").0, DropReason::Action);
}

#[test]
fn a_tagged_packet_is_not_sent_without_its_ethernet_header() {
    let sent = |options: &str| {
        let net = tunnels_of(TunnelType::Gre, &[("", "mod_vlan_vid:7,output:2")], &[("", "output:1")], &[options]);
        let verdict = translate(&net, &packet(HOST, INNER), false);
        (text(&verdict), verdict.drop)
    };
    let layer_3 = sent("remote_ip=192.0.2.2 packet_type=legacy_l3");
    assert_eq!(layer_3, ("drop".to_owned(), Some(DropReason::TunnelBuild)));
    let (actions, drop) = sent("remote_ip=192.0.2.2");
    assert!(actions.starts_with("push_vlan(vid=7,pcp=0),tnl_push("), "{actions}");
    assert_eq!(drop, None);
}

#[test]
fn a_gateway_is_the_next_hop() {
    let net = tunnels(&[("", "output:2")], &[("", "output:1")], &["remote_ip=198.51.100.7 key=123"]);
    let verdict = translate(&net, &packet(HOST, INNER), false);
    assert_eq!(text(&verdict), format!("{},11", HEADER.replace("dst=192.0.2.2", "dst=198.51.100.7")));
    let hop = Dependency::Neighbour { bridge: "br1".into(), ip: ip("192.0.2.254") };
    assert!(verdict.dependencies.contains(&hop));
}

#[test]
fn packets_to_an_end_of_a_tunnel_lose_their_outer_headers() {
    let net = tunnels(&[("", "output:1")], &[("", "output:LOCAL")], &["remote_ip=192.0.2.2 key=123"]);
    let to_own = |rest: &str| packet(NETWORK, &format!("dl_dst={OWN_MAC},{rest}"));
    let verdict = translate(&net, &to_own("udp,nw_src=192.0.2.2,nw_dst=192.0.2.1,udp_dst=4789"), false);
    assert_eq!(text(&verdict), "tnl_pop(7)");
    assert_eq!(read(&verdict), ["eth_dst", "ip_dst", "nw_proto", "udp_dst"]);
    assert!(verdict.dependencies.contains(&Dependency::Tunnels));
    // Anybody can send such a packet: it teaches nothing about neighbours.
    assert!(!verdict.effects.iter().any(|effect| matches!(effect, Effect::Snoop { .. })));
    // A port of no tunnel is read as far as it differs.
    let other_port = translate(&net, &to_own("udp,nw_dst=192.0.2.1,udp_dst=4788"), false);
    assert_eq!((text(&other_port).as_str(), other_port.mask().get(Field::UdpDst)), ("19", 0xffff));
    let other_port = translate(&net, &to_own("udp,nw_dst=192.0.2.1,udp_dst=53"), false);
    assert_eq!(other_port.mask().get(Field::UdpDst), 0xf000);
    // Whether the address is the bridge's own may change.
    let address = |ip_of: &str| Dependency::Route { dst: ip(ip_of), src: None, mark: 0 };
    assert!(verdict.dependencies.contains(&address("192.0.2.1")));
    let other = translate(&net, &to_own("udp,nw_dst=192.0.2.9,udp_dst=4789"), false);
    assert!(other.dependencies.contains(&address("192.0.2.9")));
    for other in [
        to_own("udp,nw_dst=192.0.2.9,udp_dst=4789"),
        to_own("udp,nw_dst=192.0.2.1,udp_dst=53"),
        to_own("tcp,nw_dst=192.0.2.1,tcp_dst=4789"),
        packet(NETWORK, "udp,nw_dst=192.0.2.1,udp_dst=4789"),
    ] {
        let verdict = translate(&net, &other, false);
        assert_eq!(text(&verdict), "19", "{other:?}");
        assert!(verdict.dependencies.contains(&Dependency::Tunnels));
    }
}

#[test]
fn fragments_to_an_end_of_a_tunnel_wait_for_their_datagram() {
    let net = tunnels(&[("", "output:1")], &[("", "output:LOCAL")], &["remote_ip=192.0.2.2 key=123"]);
    for (frag, ports) in [("first", ",udp_dst=4789"), ("first", ",udp_dst=53"), ("later", "")] {
        let of = |dst: &str| packet(NETWORK, &format!("dl_dst={OWN_MAC},udp,nw_frag={frag},nw_dst={dst}{ports}"));
        let verdict = translate(&net, &of("192.0.2.1"), false);
        assert_eq!(text(&verdict), "tnl_defrag(udp(4789,tnl_pop(7)),out_port(19))");
        assert_eq!(read(&verdict), ["eth_dst", "ip_dst", "nw_proto"]);
        assert_eq!(text(&translate(&net, &of("192.0.2.9"), false)), "19");
    }
    let tcp = packet(NETWORK, &format!("dl_dst={OWN_MAC},tcp,nw_frag=later,nw_dst=192.0.2.1"));
    assert_eq!(text(&translate(&net, &tcp, false)), "19");
}

#[test]
fn packets_of_gre_go_to_the_tunnel_of_their_family() {
    let net = tunnels(&[], &[("", "output:LOCAL")], &["remote_ip=192.0.2.2"]);
    let ends = |types: &[(TunnelType, u32)]| {
        let end = |(kind, port): &(TunnelType, u32)| Endpoint {
            proto: 47,
            tunnel_type: *kind,
            udp_port: None,
            dp_port: DpPort(*port),
        };
        net.tunnels.set_endpoints(types.iter().map(end).collect());
        let to =
            |ip: &str| text(&translate(&net, &packet(NETWORK, &format!("dl_dst={OWN_MAC},{ip},nw_proto=47")), false));
        [to("ip,nw_dst=192.0.2.1"), to("ipv6,ipv6_dst=fd00::1")]
    };
    use TunnelType::{Erspan, Gre, Ip6Erspan, Ip6Gre};
    assert_eq!(ends(&[(Erspan, 1), (Gre, 2)]), ["tnl_pop(2,erspan(1))", "tnl_pop(2,erspan(1))"]);
    assert_eq!(ends(&[(Ip6Gre, 1), (Gre, 2)]), ["tnl_pop(2)", "tnl_pop(1)"]);
    let all = [(Erspan, 1), (Gre, 2), (Ip6Erspan, 3), (Ip6Gre, 4)];
    assert_eq!(ends(&all), ["tnl_pop(2,erspan(1))", "tnl_pop(4,erspan(3))"]);
    assert_eq!(ends(&[(Ip6Erspan, 3)]), ["tnl_pop(3)", "tnl_pop(3)"]);
    assert_eq!(ends(&[]), ["19", "19"]);
}

#[test]
fn interfaces_of_gre_are_behind_the_port_of_either_family() {
    let net = tunnels_of(TunnelType::Gre, &[("", "output:1")], &[], &["remote_ip=fd00::2 key=5"]);
    let of_six = DpPort(8);
    let received = || {
        let key = packet(of_six, "tun_id=5,tun_ipv6_src=fd00::2,tun_ipv6_dst=fd00::1,udp,nw_src=10.0.0.1");
        translate(&net, &key, false)
    };
    let end = |tunnel_type, dp_port| Endpoint { proto: 47, tunnel_type, udp_port: None, dp_port };
    net.tunnels.set_endpoints(vec![end(TunnelType::Gre, TUNNEL), end(TunnelType::Ip6Gre, of_six)]);
    assert_eq!(text(&received()), "1");
    net.tunnels.set_endpoints(vec![end(TunnelType::Gre, TUNNEL), end(TunnelType::Ip6Erspan, of_six)]);
    assert_eq!(received().drop, Some(DropReason::NoTunnel));
}

#[test]
fn addresses_of_packets_without_ethernet_headers_are_not_learned() {
    let learned = |options: &str| {
        let net = tunnels_of(TunnelType::Gre, &[("", "normal")], &[], &[options]);
        let key = packet(TUNNEL, "tun_id=5,tun_src=192.0.2.2,tun_dst=192.0.2.1,udp,nw_src=10.0.0.1");
        let verdict = translate(&net, &key, false);
        verdict.effects.iter().any(|effect| matches!(effect, Effect::LearnMac { .. }))
    };
    assert!(learned("remote_ip=192.0.2.2 key=flow"));
    assert!(!learned("remote_ip=192.0.2.2 key=flow packet_type=legacy_l3"));
}

#[test]
fn a_trace_at_a_tunnel_port_begins_with_the_end_of_the_tunnel() {
    let net = tunnels(&[("", "output:1")], &[], &["remote_ip=192.0.2.2 key=123"]);
    let text = "tun_id=123,tun_src=192.0.2.2,tun_dst=192.0.2.1,udp,nw_src=10.0.0.1";
    let received = translate(&net, &packet(TUNNEL, text), false);
    let mut key = packet(TUNNEL, text);
    key.set_in_port(PortNo(2));
    let traced = translate_from(&net, &net.bridges[&0], &key, Start::Tables, false);
    assert_eq!((traced.mask(), traced.actions, traced.effects), (received.mask(), received.actions, received.effects));
}

#[test]
fn neighbours_are_learned_from_what_the_bridge_receives() {
    use Learning::{Any, Existing, Unknown};
    let net = tunnels(&[], &[("", "output:LOCAL")], &["remote_ip=192.0.2.2"]);
    let learned = |text: &str, reads: &[(Field, u128)]| {
        let verdict = translate(&net, &packet(NETWORK, text), false);
        assert_eq!(verdict.actions.len(), 1, "{text}");
        reads.iter().for_each(|(field, bits)| assert_eq!(verdict.mask().get(*field), *bits, "{text}: {field:?}"));
        let snoop = |effect: &Effect| match effect {
            Effect::Snoop { bridge, ip, mac, learning } => {
                assert_eq!((&**bridge, *mac), ("br1", HOP));
                Some((ip.to_string(), *learning))
            }
            _ => None,
        };
        verdict.effects.iter().find_map(snoop)
    };
    let of = |ip: &str, learning| Some((ip.to_owned(), learning));
    let arp = |op: u8, from: &str, to: &str| {
        let all = u128::from(u32::MAX);
        let reads = [(Field::ArpSpa, all), (Field::ArpTpa, all), (Field::ArpSha, 0xffff_ffff_ffff)];
        learned(&format!("arp,arp_op={op},arp_spa={from},arp_tpa={to},arp_sha={HOP}"), &reads)
    };
    for op in [1, 2] {
        assert_eq!(arp(op, "192.0.2.7", "192.0.2.1"), of("192.0.2.7", Any));
        assert_eq!(arp(op, "192.0.2.7", "192.0.2.9"), of("192.0.2.7", Existing));
        // An announcement, and a probe.
        assert_eq!(arp(op, "192.0.2.7", "192.0.2.7"), of("192.0.2.7", Any));
        assert_eq!(arp(op, "0.0.0.0", "192.0.2.1"), None);
    }
    assert_eq!(learned("arp,arp_op=3,arp_spa=192.0.2.7,arp_tpa=192.0.2.1", &[]), None);
    let advertised = |code: u8, ttl: u8, to: &str, flags: u32, mac: MacAddr| {
        let text =
            format!("icmp6,ipv6_dst={to},nw_ttl={ttl},icmpv6_type=136,icmpv6_code=0,nd_target=fd00::7,nd_tll={mac}");
        let mut key = packet(NETWORK, &text);
        key.set(Field::Icmpv6Code, code.into());
        key.set(Field::NdReserved, flags.into());
        learned_from(&net, &key)
    };
    assert_eq!(advertised(0, 255, "fd00::1", 0x6000_0000, HOP), of("fd00::7", Any));
    assert_eq!(advertised(0, 255, "fd00::1", 0x4000_0000, HOP), of("fd00::7", Unknown));
    assert_eq!(advertised(0, 255, "ff02::1", 0x2000_0000, HOP), of("fd00::7", Existing));
    assert_eq!(advertised(0, 255, "ff02::1", 0, HOP), None);
    assert_eq!(advertised(0, 255, "fd00::2", 0x6000_0000, HOP), None);
    assert_eq!(advertised(0, 255, "fd00::1", 0x6000_0000, MacAddr::ZERO), None);
    assert_eq!(advertised(0, 255, "fd00::1", 0x6000_0000, MacAddr([1, 0, 0, 0, 0, 1])), None);
    assert_eq!(advertised(1, 255, "fd00::1", 0x6000_0000, HOP), None);
    // A router has forwarded it.
    assert_eq!(advertised(0, 254, "fd00::1", 0x6000_0000, HOP), None);
    let solicited = |from: &str, target: &str, mac: MacAddr| {
        let text = "icmp6,ipv6_dst=ff02::1:ff00:1,nw_ttl=255,icmpv6_type=135,icmpv6_code=0";
        learned(&format!("{text},ipv6_src={from},nd_target={target},nd_sll={mac}"), &[(Field::NdSll, 0xffff_ffff_ffff)])
    };
    assert_eq!(solicited("fd00::7", "fd00::1", HOP), of("fd00::7", Any));
    assert_eq!(solicited("fd00::7", "fd00::2", HOP), None);
    assert_eq!(solicited("::", "fd00::1", HOP), None);
    assert_eq!(solicited("fd00::7", "fd00::1", MacAddr::ZERO), None);
    assert_eq!(learned("icmp6,ipv6_dst=fd00::1,icmpv6_type=128,icmpv6_code=0", &[]), None);
}

/// The neighbour that a packet teaches.
fn learned_from(net: &Network, key: &FlowKey) -> Option<(String, Learning)> {
    let verdict = translate(net, key, false);
    verdict.effects.iter().find_map(|effect| match effect {
        Effect::Snoop { ip, learning, .. } => Some((ip.to_string(), *learning)),
        _ => None,
    })
}

#[test]
fn packets_with_critical_options_that_the_bridge_does_not_know_are_dropped() {
    let net = tunnels_of(TunnelType::Geneve, &[("", "output:1")], &[], &["remote_ip=192.0.2.2 key=flow"]);
    let option = |kind: u8, slot: u8| {
        let places: Vec<_> = flow::OptionPlace::new(slot).into_iter().collect();
        let option = flow::PlacedOption::new(Field::TunMetadata0, &places).expect("an option");
        option.with_id(0xffff, kind).with_presence(slot)
    };
    // Two options of other bridges, one of them critical.
    let (critical, other) = (option(0x81, 3), option(1, 4));
    assert!(net.tunnels.set_received_options(Arc::new([critical.clone(), other.clone()].into_iter().collect())));
    let received = |change: &dyn Fn(&mut FlowKey)| {
        let mut key = packet(TUNNEL, "tun_id=5,tun_src=192.0.2.2,tun_dst=192.0.2.1,udp,nw_src=10.0.0.1");
        change(&mut key);
        let verdict = translate(&net, &key, false);
        let (word, bit) = critical.presence();
        let flags = flow::UNKNOWN_OPTION | flow::OTHER_LENGTH;
        assert_eq!((verdict.mask().0[word], verdict.mask().get(Field::TunFlags)), (bit, flags.into()));
        verdict.drop
    };
    assert_eq!(received(&|_| ()), None);
    assert_eq!(received(&|key| other.set(key, 0, 32, 7)), None);
    assert_eq!(received(&|key| critical.set(key, 0, 32, 7)), Some(DropReason::TunnelOption));
    let flag = |key: &mut FlowKey| key.set(Field::TunFlags, flow::UNKNOWN_OPTION.into());
    assert_eq!(received(&flag), Some(DropReason::TunnelOption));
}

#[test]
fn packets_belong_to_the_tunnel_port_of_their_fields() {
    let options = ["remote_ip=192.0.2.2 key=123", "remote_ip=flow key=flow", "remote_ip=192.0.2.2 key=flow"];
    let flows = [("in_port=2", "set_field:1->reg0,output:1"), ("in_port=3", "drop"), ("in_port=4", "in_port")];
    let net = tunnels(&flows, &[("", "output:1")], &options);
    let from = |src: &str, key: u64| {
        let text = format!("tun_id={key},tun_src={src},tun_dst=192.0.2.1,tun_flags=0,udp,nw_src=10.0.0.1");
        translate(&net, &packet(TUNNEL, &text), false)
    };
    let verdict = from("192.0.2.2", 123);
    assert_eq!((text(&verdict).as_str(), read(&verdict)), ("1", vec!["tun_id", "tun_src", "tun_tos"]));
    assert!(verdict.effects.contains(&Effect::Tunnel { bridge: 0, port: PortNo(2), sent: false }));
    assert_eq!(from("192.0.2.9", 123).drop, Some(DropReason::Action));
    // The packet would go back to where it is from.
    assert_eq!(text(&from("192.0.2.2", 124)), format!("{},11", HEADER.replace("0x7b", "0x7c")));
}

#[test]
fn a_packet_of_no_tunnel_port_is_dropped() {
    let net = tunnels(&[("", "output:1")], &[], &["remote_ip=192.0.2.2 key=123"]);
    let key = packet(TUNNEL, "tun_id=5,tun_src=192.0.2.2,tun_dst=192.0.2.1,udp");
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.drop, verdict.actions.len()), (Some(DropReason::NoTunnel), 0));
    assert_eq!(read(&verdict), ["tun_id", "tun_src"]);
    assert!(verdict.dependencies.contains(&Dependency::Tunnels));
    assert_eq!(verdict.effects, [Effect::NoTunnel(key.into())]);
}

#[test]
fn congestion_marks_leave_a_tunnel() {
    let net = tunnels(&[("", "output:1")], &[], &["remote_ip=192.0.2.2 key=123"]);
    let marked = |outer: u8, inner: u8| {
        let key = format!("tun_id=123,tun_src=192.0.2.2,tun_dst=192.0.2.1,udp,nw_src=10.0.0.1,nw_ecn={inner}");
        let mut key = packet(TUNNEL, &key);
        key.set(Field::TunTos, outer.into());
        let verdict = translate(&net, &key, false);
        // The flow counts the packet in any case.
        assert!(verdict.effects.iter().any(|effect| matches!(effect, Effect::Lookup { rule: Some(_), .. })));
        (text(&verdict), verdict.drop)
    };
    assert_eq!(marked(3, 0), ("drop".to_owned(), Some(DropReason::Congestion)));
    assert_eq!(marked(3, 1), ("set(ipv4(tos=0x3/0x3)),1".to_owned(), None));
    assert_eq!(marked(3, 3), ("1".to_owned(), None));
    assert_eq!(marked(1, 0), ("1".to_owned(), None));
}
