//! Outer headers against what Open vSwitch pushes.

use std::collections::HashMap;

use super::*;
use crate::options::tests::{parse_words, words};

/// Packets that Open vSwitch 4.0.0 sent through tunnel ports, in four columns: the port; how the packet was received
/// (`source>destination,key`, or `-`), the tunnel fields that actions set, and the inner packet's type of service and time
/// to live; the headers that `ofproto/trace` says it pushed, or the reason not to; and what its megaflow matches.
const OBSERVED: &str = include_str!("observed.txt");

/// The other host's address.
const REMOTE: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

/// `name=value` of the words, and words alone.
fn map<'a>(words: &[&'a str]) -> HashMap<&'a str, &'a str> {
    words.iter().map(|word| word.split_once('=').unwrap_or((word, ""))).collect()
}

fn number<T: std::str::FromStr>(map: &HashMap<&str, &str>, name: &str) -> Option<T> {
    map.get(name)?.parse().ok()
}

/// The flow's fields and where the packet was received.
fn flow(received: &str, set: &HashMap<&str, &str>) -> (FlowTunnel<'static>, Option<IpAddr>) {
    let mut flow = FlowTunnel::NONE;
    let mut received_at = None;
    let mut set_address = |src: Option<&str>, dst: Option<&str>| {
        for (text, v4, v6) in
            [(src, &mut flow.ipv4_src, &mut flow.ipv6_src), (dst, &mut flow.ipv4_dst, &mut flow.ipv6_dst)]
        {
            match text.map(|text| text.parse().expect("address")) {
                None => (),
                Some(IpAddr::V4(address)) => *v4 = address,
                Some(IpAddr::V6(address)) => *v6 = address,
            }
        }
    };
    let key = received.split_once(',').map(|(addresses, key)| {
        let (src, dst) = addresses.split_once('>').expect("addresses");
        set_address(Some(src), Some(dst));
        received_at = Some(dst.parse().expect("address"));
        key.parse().expect("key")
    });
    set_address(set.get("src").copied(), set.get("dst").copied());
    flow.key = number(set, "key").or(key).unwrap_or(0);
    flow.flags = if set.contains_key("oam") { flags::OAM } else { 0 };
    let erspan = |name| number::<u64>(set, name).unwrap_or(0);
    flow.erspan = erspan("idx") << 32 | erspan("ver") << 24 | erspan("dir") << 16 | erspan("hwid") << 8;
    (flow, received_at)
}

#[test]
fn headers_are_those_of_open_vswitch() {
    let mut counts = [0; 3];
    for line in OBSERVED.lines() {
        let columns: Vec<_> = line.split(" | ").collect();
        let [port, packet, pushed, matched] = columns[..] else { panic!("{line}") };
        let config = parse_words("x", &words(port)).expect(line).config;
        let (received, set) = packet.split_once(' ').expect("columns");
        let set = map(&set.split(' ').collect::<Vec<_>>());
        let (flow, received_at) = flow(received, &set);
        let inner = set["inner"]
            .split_once(',')
            .map(|(tos, ttl)| InnerIp { tos: tos.parse().expect("tos"), ttl: ttl.parse().expect("ttl") });
        let Egress { tunnel, mark, reads } = egress(&config, &flow, inner, received_at);

        let tos = |name, bits| if matched.split(' ').any(|word| word == name) { bits } else { 0 };
        assert_eq!(reads.tos, tos("dscp", 0xfc) | tos("ecn", 3), "{line}");
        assert_eq!(reads.ttl, matched.contains("ttl"), "{line}");
        assert_eq!(reads.mark || set.contains_key("mark"), matched.contains("mark"), "{line}");

        let has_mark = mark.or(number(&set, "mark")).is_some_and(|mark: u32| mark != 0);
        match pushed {
            "own-address" => assert_eq!(tunnel, Err(Refusal::OwnAddress), "{line}"),
            // The host of the observation had no route for some marks, nor for a source that is not its own.
            "no-route" => match &tunnel {
                Err(refusal) => assert_eq!(*refusal, Refusal::Unroutable, "{line}"),
                Ok(tunnel) => {
                    assert!(has_mark || tunnel.src == IpAddr::from([1, 1, 1, 2]) || tunnel.src == REMOTE, "{line}");
                }
            },
            // Addresses of both families: Open vSwitch writes a header of one with a wrong destination.
            _ if tunnel == Err(Refusal::Unroutable) => {
                let sources = [flow.src(), if let Endpoint::Fixed(local) = config.local { Some(local) } else { None }];
                let is_v6 = flow.dst().expect(line).is_ipv6();
                assert!(sources.iter().flatten().any(|src| src.is_ipv6() != is_v6), "{line}");
            }
            pushed if pushed.starts_with("none: native tunnel header build failed") => {
                assert_eq!(tunnel.expect(line).erspan >> 24 & 0xff, 0, "{line}");
            }
            pushed => {
                check(&config, &tunnel.expect(line), mark, (pushed, &set), line);
                counts[0] += 1;
                continue;
            }
        }
        counts[if pushed == "own-address" { 1 } else { 2 }] += 1;
    }
    tally::report!(
        "{} headers, {} packets to the own address, {} without route or header",
        counts[0],
        counts[1],
        counts[2]
    );
    assert!(counts[0] > 300);
}

fn check(config: &Config, tunnel: &Tunnel, mark: Option<u32>, (pushed, set): (&str, &HashMap<&str, &str>), line: &str) {
    let pushed = map(&pushed.split(' ').collect::<Vec<_>>());
    assert_eq!(tunnel.dst, pushed["dst"].parse::<IpAddr>().expect("address"), "{line}");
    assert_eq!(Some(tunnel.tos), number(&pushed, "tos"), "{line}");
    assert_eq!(Some(tunnel.ttl), number(&pushed, "ttl"), "{line}");
    if let Some(dont_fragment) = pushed.get("df") {
        assert_eq!(tunnel.flags & flags::DONT_FRAGMENT != 0, *dont_fragment == "1", "{line}");
    }
    assert_eq!(tunnel.flags & flags::CHECKSUM != 0, pushed["csum"] == "1", "{line}");
    let has_key_flag = tunnel.flags & flags::KEY != 0;
    match number::<u64>(&pushed, "key") {
        Some(key) => assert_eq!(tunnel.key, key, "{line}"),
        None => assert!(!has_key_flag, "{line}"),
    }
    if matches!(config.tunnel_type, TunnelType::Gre | TunnelType::Ip6Gre) {
        assert_eq!(has_key_flag, pushed["key"] != "-", "{line}");
    }
    if config.tunnel_type == TunnelType::Geneve {
        assert_eq!(tunnel.flags & flags::OAM != 0, pushed.contains_key("oam"), "{line}");
    }
    if let Some(erspan) = pushed.get("erspan") {
        let fields = [(24, 0xff), (32, 0xffff_ffff), (16, 0xff), (8, 0xff)]
            .map(|(shift, mask)| (tunnel.erspan >> shift & mask).to_string());
        // With `erspan_ver=flow`, whether another fixed option has an effect is up to the order of a hash table.
        let is_fixed = config.erspan == Erspan::Flow && line.contains("erspan_idx=3") && *erspan == "1,3,0,0";
        assert!(fields.join(",") == *erspan || is_fixed, "{line}");
    }
    if let Some(expected) = number::<u32>(&pushed, "mark") {
        assert_eq!(mark.or(number(set, "mark")), Some(expected), "{line}");
    }
}

/// Changes the fields of the flow that were not read.
fn disturb<'a>(flow: &FlowTunnel<'a>, reads: &Reads, noise: &FlowTunnel<'a>) -> FlowTunnel<'a> {
    let pick = |read: bool, old: u64, new: u64| if read { old } else { new };
    let mut out = *flow;
    if !reads.tunnel_src {
        (out.ipv4_src, out.ipv6_src) = (noise.ipv4_src, noise.ipv6_src);
    }
    if !reads.tunnel_dst {
        (out.ipv4_dst, out.ipv6_dst) = (noise.ipv4_dst, noise.ipv6_dst);
    }
    out.key = pick(reads.key, flow.key, noise.key);
    out.flags = flow.flags & reads.flags | noise.flags & !reads.flags;
    out.group_policy = pick(reads.group_policy, flow.group_policy.into(), noise.group_policy.into()) as u32;
    out.erspan = flow.erspan & reads.erspan | noise.erspan & !reads.erspan;
    out.gtpu = pick(reads.gtpu, flow.gtpu, noise.gtpu);
    if !reads.options {
        out.options = noise.options;
    }
    out
}

#[test]
fn results_depend_on_what_was_read() {
    let mut rng = base::rng::Rng::seeded(41);
    let mut cases = 0;
    let ports: Vec<_> = OBSERVED.lines().map(|line| line.split(" | ").next().expect("port")).collect();
    let mut ports: Vec<_> =
        ports.into_iter().map(|port| parse_words("x", &words(port)).expect("valid").config).collect();
    for options in ["vxlan remote_ip=flow exts=gbp", "gtpu remote_ip=1.1.1.2", "geneve remote_ip=flow local_ip=flow"] {
        ports.push(parse_words("x", &words(options)).expect("valid").config);
    }
    for config in &ports {
        for _ in 0..20 {
            let mut random = || {
                let mut word = |choices: u64| rng.below(choices);
                let v4 = |n: u64| Ipv4Addr::from(n as u32 * 0x0101_0101);
                let v6 = |n: u64| Ipv6Addr::from(u128::from(n) << 100);
                FlowTunnel {
                    ipv4_src: v4(word(3)),
                    ipv4_dst: v4(word(3)),
                    ipv6_src: v6(word(3)),
                    ipv6_dst: v6(word(3)),
                    key: word(4),
                    flags: word(16) as u16,
                    group_policy: word(9) as u32,
                    erspan: word(u64::MAX),
                    gtpu: word(u64::MAX),
                    options: &[1, 2, 3, 4, 5, 6, 7, 8][..word(3) as usize * 4],
                }
            };
            let (flow, noise) = (random(), random());
            let received_at = [None, Some([1, 1, 1, 1].into())][rng.below(2) as usize];
            let ip = InnerIp { tos: rng.below(256) as u8, ttl: rng.below(256) as u8 };
            let inner = (rng.below(4) != 0).then_some(ip);
            let expected = egress(config, &flow, inner, received_at);
            let reads = expected.reads;
            let other = disturb(&flow, &reads, &noise);
            let inner = inner.map(|ip| InnerIp {
                tos: ip.tos & reads.tos | rng.below(256) as u8 & !reads.tos,
                ttl: if reads.ttl { ip.ttl } else { rng.below(256) as u8 },
            });
            assert_eq!(egress(config, &other, inner, received_at), expected, "{config:?} {flow:?}");
            cases += 1;
        }
    }
    tally::report!("{cases} cases");
}

#[test]
fn fields_of_received_packets_pass() {
    let tunnel = Tunnel {
        src: [1, 1, 1, 2].into(),
        dst: [1, 1, 1, 1].into(),
        key: 6,
        flags: flags::KEY | flags::OAM | flags::CHECKSUM,
        tos: 2,
        ttl: 64,
        src_port: 5,
        dst_port: 6081,
        group_policy: 7,
        erspan: 8,
        gtpu: 9,
        options: [0xff, 0xff, 0, 1, 0, 0xab, 0xcd, 0xef].into(),
    };
    let flow = FlowTunnel::received(&tunnel);
    let sent = |options: &str| {
        let config = parse_words("x", &words(options)).expect("valid").config;
        egress(&config, &flow, None, Some(tunnel.dst)).tunnel.expect("sent")
    };
    let geneve = sent("geneve remote_ip=1.1.1.3 key=5 df_default=false");
    assert_eq!((geneve.options, geneve.flags, geneve.key), (tunnel.options.clone(), flags::KEY | flags::OAM, 5));
    assert_eq!((geneve.tos, geneve.ttl, geneve.src_port, geneve.dst_port), (0, 64, 0, 6081));
    let vxlan = sent("vxlan remote_ip=1.1.1.3");
    assert_eq!((vxlan.options.len(), vxlan.flags, vxlan.key), (0, flags::DONT_FRAGMENT | flags::OAM, 0));
    assert_eq!([vxlan.group_policy, sent("vxlan remote_ip=1.1.1.3 exts=gbp").group_policy], [0, 7]);
    assert_eq!([vxlan.gtpu, sent("gtpu remote_ip=1.1.1.3").gtpu], [0, 9]);
}
