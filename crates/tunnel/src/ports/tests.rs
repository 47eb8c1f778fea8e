//! The table of ports against Open vSwitch's answers, and against a search through all ports.

use std::net::IpAddr;

use base::rng::Rng;

use super::*;
use crate::options::Parsed;
use crate::options::tests::{parse_words, words};

/// Sets of ports given to Open vSwitch 4.0.0, in order: each port with a message if it was refused; then what
/// `ofproto/list-tunnels` shows, and packets with the port that `ofproto/trace` says they belong to. The packets had a
/// host's mark or not, and a flag for their key or not, without effect.
const OBSERVED: &str = include_str!("observed.txt");

fn config(text: &[String]) -> Arc<Config> {
    let Parsed { config, .. } = parse_words("t", text).expect("valid options");
    Arc::new(config)
}

fn tunnel(src: IpAddr, dst: IpAddr, key: u64) -> Tunnel {
    Tunnel { key, ttl: 64, ..Tunnel::between(src, dst) }
}

/// Numbers of the datapath's ports in the observed sets.
fn number(config: &Config, gre: u32) -> DpPort {
    DpPort(config.datapath_port().preferred.map_or(gre, u32::from))
}

#[test]
fn ports_are_found_and_refused_as_in_open_vswitch() {
    let (mut found, mut missed, mut refused) = (0, 0, 0);
    for set in OBSERVED.split("set\n").filter(|set| !set.is_empty()) {
        let gre = set
            .lines()
            .find_map(|line| line.strip_prefix("list port ")?.split_once(": ")?.1.contains("(gre: ").then_some(line));
        let gre = gre
            .map_or(9, |line| line["list port ".len()..].split(':').next().expect("number").parse().expect("number"));
        let mut ports = Ports::default();
        let mut conflicts = Vec::new();
        for line in set.lines() {
            let words = words(line);
            match words[0].as_str() {
                "port" => {
                    let id: u32 = words[1].parse().expect("number");
                    let config = config(&words[2..]);
                    let name = format!("t{id}").into();
                    let datapath_port = number(&config, gre);
                    if let Err(conflict) = ports.set(Port { id, name, datapath_port, config }) {
                        conflicts.push(format!("refused {conflict}"));
                    }
                }
                "packet" => {
                    let [_, datapath_port, _, layer, key, src, dst, expected] = &words[..] else { panic!("{line}") };
                    let datapath_port = DpPort(datapath_port.parse().expect("number"));
                    let tunnel = tunnel(src.parse().expect("ip"), dst.parse().expect("ip"), key.parse().expect("key"));
                    let packet = if layer == "l3" { PacketType::Layer3 } else { PacketType::Ethernet };
                    let port = ports.find(datapath_port, &tunnel, packet).0;
                    assert_eq!(port.map(|port| port.id), expected.parse().ok(), "{line} of\n{set}");
                    if port.is_some() { found += 1 } else { missed += 1 }
                }
                _ => (),
            }
        }
        let mut rows: Vec<_> = ports.rows().iter().map(|row| format!("list {row}")).collect();
        let mut listed: Vec<_> = set.lines().filter(|line| line.starts_with("list ")).map(String::from).collect();
        let classes = |rows: &[String]| -> Vec<usize> {
            let class = |row: &String| {
                let name = row.split(": ").nth(1).and_then(|rest| rest.split(' ').next()).expect("name");
                criteria(&ports.iter().find(|port| *port.name == *name).expect("port").config).0
            };
            rows.iter().map(class).collect()
        };
        assert_eq!(classes(&rows), classes(&listed), "order in\n{set}");
        rows.sort_unstable();
        listed.sort_unstable();
        assert_eq!(rows, listed);
        let expected: Vec<_> = set.lines().filter(|line| line.starts_with("refused ")).collect();
        assert_eq!(conflicts, expected, "{set}");
        refused += expected.len();
    }
    tally::report!("{found} packets with a port, {missed} without, {refused} ports refused");
    assert!(found > 500 && refused > 5);
}

/// Some configuration out of few addresses and keys.
fn random_config(rng: &mut Rng) -> Arc<Config> {
    let mut pick = |choices: &[&str]| choices[rng.below(choices.len() as u64) as usize].to_string();
    let mut options = vec![pick(&["vxlan", "geneve", "gre"])];
    let remote = pick(&["remote_ip=flow", "remote_ip=1.1.1.1", "remote_ip=1.1.1.2", "remote_ip=2001:db8::1"]);
    let local = match remote.as_str() {
        "remote_ip=flow" => pick(&["", "local_ip=flow", "local_ip=1.1.1.1", "local_ip=2001:db8::1"]),
        "remote_ip=2001:db8::1" => pick(&["", "local_ip=2001:db8::1"]),
        _ => pick(&["", "local_ip=1.1.1.1", "local_ip=1.1.1.2"]),
    };
    options.extend([remote, local, pick(&["", "key=1", "in_key=2", "key=flow", "out_key=5"])]);
    if options[0] == "gre" {
        options.push(pick(&["", "packet_type=legacy_l3", "packet_type=ptap"]));
    }
    options.retain(|option| !option.is_empty());
    config(&options)
}

/// Returns true if a packet may belong to the port.
fn accepts(port: &Port<u32>, datapath_port: DpPort, tunnel: &Tunnel, packet: PacketType) -> bool {
    let config = &port.config;
    let endpoint = |endpoint, address| !matches!(endpoint, Endpoint::Fixed(fixed) if fixed != address);
    port.datapath_port == datapath_port
        && endpoint(config.remote, tunnel.src)
        && endpoint(config.local, tunnel.dst)
        && match config.in_key {
            Key::Absent => tunnel.key == 0,
            Key::Fixed(key) => tunnel.key == key,
            Key::Flow => true,
        }
        && match config.packets {
            PacketMode::LegacyL2 => packet == PacketType::Ethernet,
            PacketMode::LegacyL3 => packet == PacketType::Layer3,
            PacketMode::PacketTypeAware => true,
        }
}

/// The documented precedence, as a number that is smallest for the first.
fn precedence(port: &Port<u32>) -> [u8; 4] {
    let config = &port.config;
    [
        (config.in_key == Key::Flow).into(),
        (config.remote == Endpoint::Flow).into(),
        match config.local {
            Endpoint::Fixed(_) => 0,
            Endpoint::Any => 1,
            Endpoint::Flow => 2,
        },
        (config.packets == PacketMode::PacketTypeAware).into(),
    ]
}

#[test]
fn tables_agree_with_a_search_through_all_ports() {
    let mut rng = Rng::seeded(20);
    let (mut lookups, mut found, mut refused) = (0, 0, 0);
    for _ in 0..200 {
        let mut ports = Ports::default();
        let mut naive: Vec<Port<u32>> = Vec::new();
        for step in 0..60 {
            if rng.below(4) == 0 {
                let id = rng.below(20) as u32;
                assert_eq!(ports.remove(id).is_some(), naive.iter().any(|port| port.id == id));
                naive.retain(|port| port.id != id);
            } else {
                let id = rng.below(20) as u32;
                let config = random_config(&mut rng);
                let port = Port { id, name: format!("t{id}").into(), datapath_port: number(&config, 1), config };
                naive.retain(|port| port.id != id);
                let same = |other: &&Port<u32>| {
                    other.datapath_port == port.datapath_port && criteria(&other.config) == criteria(&port.config)
                };
                let conflict = naive.iter().find(same).map(|other| other.name.clone());
                let answer = ports.set(port.clone()).map_err(|conflict| conflict.other);
                assert_eq!(answer, conflict.map_or(Ok(()), Err));
                if answer.is_ok() { naive.push(port) } else { refused += 1 }
            }
            assert_eq!((ports.len(), ports.is_empty()), (naive.len(), naive.is_empty()), "{step}");
            for _ in 0..10 {
                let mut address =
                    || ["1.1.1.1", "1.1.1.2", "1.1.1.3", "2001:db8::1"][rng.below(4) as usize].parse().expect("ip");
                let (src, dst) = (address(), address());
                let tunnel = tunnel(src, dst, rng.below(4));
                let datapath_port = DpPort([4789, 6081, 1][rng.below(3) as usize]);
                let packet = if rng.below(2) == 0 { PacketType::Ethernet } else { PacketType::Layer3 };
                let candidates = naive.iter().filter(|port| accepts(port, datapath_port, &tunnel, packet));
                let expected = candidates.min_by_key(|port| precedence(port)).map(|port| port.id);
                let (port, consulted) = ports.find(datapath_port, &tunnel, packet);
                assert_eq!(port.map(|port| port.id), expected);
                check_consulted(&ports, datapath_port, &tunnel, packet, consulted);
                lookups += 1;
                found += u32::from(expected.is_some());
            }
        }
    }
    tally::report!("{lookups} lookups, {found} of them with a port, {refused} ports refused");
}

/// Fields that were not consulted do not change the answer.
fn check_consulted(
    ports: &Ports<u32>,
    datapath_port: DpPort,
    tunnel: &Tunnel,
    packet: PacketType,
    consulted: Consulted,
) {
    let id = |tunnel: &Tunnel| ports.find(datapath_port, tunnel, packet).0.map(|port| port.id);
    let expected = id(tunnel);
    for address in ["1.1.1.1", "1.1.1.2", "2001:db8::1"] {
        let address = address.parse().expect("ip");
        if !consulted.src {
            assert_eq!(id(&Tunnel { src: address, ..tunnel.clone() }), expected);
        }
        if !consulted.dst {
            assert_eq!(id(&Tunnel { dst: address, ..tunnel.clone() }), expected);
        }
    }
    if !consulted.key {
        for key in 0..4 {
            assert_eq!(id(&Tunnel { key, ..tunnel.clone() }), expected);
        }
    }
}

#[test]
fn only_classes_with_ports_are_consulted() {
    let mut ports = Ports::default();
    let mut add = |id: u32, options: &str| {
        let config = config(&words(options));
        let port = Port { id, name: format!("t{id}").into(), datapath_port: number(&config, 1), config };
        ports.set(port).expect("no conflict");
    };
    add(1, "vxlan remote_ip=flow key=flow");
    add(2, "geneve remote_ip=flow key=5");
    add(3, "gre remote_ip=1.1.1.1 local_ip=1.1.1.2 key=flow packet_type=legacy_l3");
    let packet = tunnel([1, 1, 1, 1].into(), [1, 1, 1, 2].into(), 5);
    let consulted = |port, packet_type| ports.find(DpPort(port), &packet, packet_type).1;
    assert_eq!(consulted(4789, PacketType::Ethernet), Consulted::default());
    assert_eq!(consulted(6081, PacketType::Ethernet), Consulted { key: true, ..Consulted::default() });
    assert_eq!(consulted(1, PacketType::Layer3), Consulted { src: true, dst: true, ..Consulted::default() });
    assert_eq!(consulted(1, PacketType::Ethernet), Consulted::default());
    assert_eq!(consulted(77, PacketType::Ethernet), Consulted::default());
}

#[test]
fn a_new_configuration_that_conflicts_takes_the_port_away() {
    let port = |id: u32, options: &str| {
        let config = config(&words(options));
        Port { id, name: ["a", "x"][id as usize].into(), datapath_port: number(&config, 1), config }
    };
    let mut ports = Ports::default();
    assert_eq!(ports.set(port(0, "vxlan remote_ip=1.1.1.2 key=1")), Ok(()));
    assert_eq!(ports.set(port(0, "vxlan remote_ip=1.1.1.2 key=1 ttl=3")), Ok(()), "its own criteria are no conflict");
    assert_eq!(ports.set(port(1, "vxlan remote_ip=1.1.1.2 key=2")), Ok(()));
    let conflict = ports.set(port(1, "vxlan remote_ip=1.1.1.2 key=1 tos=inherit")).expect_err("conflict");
    assert_eq!(
        conflict.to_string(),
        "x: attempting to add tunnel port with same config as port 'a' (::->1.1.1.2, key=0x1, legacy_l2, dp port=4789)"
    );
    assert!(ports.get(1).is_none() && ports.get(0).is_some());
    assert_eq!(ports.set(port(1, "vxlan remote_ip=1.1.1.2 key=3")), Ok(()));
}

#[test]
fn commands_print_what_open_vswitch_does() {
    let mut ports = Ports::default();
    for (id, options) in
        ["vxlan remote_ip=1.1.1.2 key=1", "vxlan remote_ip=1.1.1.2 key=2", "gre remote_ip=1.1.1.2"].iter().enumerate()
    {
        let config = config(&words(options));
        let port = Port { id, name: ["a", "b", "g"][id].into(), datapath_port: number(&config, 5), config };
        ports.set(port).expect("no conflict");
    }
    assert_eq!(
        rows_text(&ports.rows()),
        "port 5: g (gre: ::->1.1.1.2, key=0, legacy_l2, dp port=5, ttl=64)\n\
         port 4789: a (vxlan: ::->1.1.1.2, key=0x1, legacy_l2, dp port=4789, ttl=64)\n\
         port 4789: b (vxlan: ::->1.1.1.2, key=0x2, legacy_l2, dp port=4789, ttl=64)\n"
    );
    let listeners = ports.listeners();
    assert_eq!(
        listeners_text(&listeners),
        "Listening ports:\ngre_sys (5) ref_cnt=1\nvxlan_sys_4789 (4789) ref_cnt=2\n"
    );
    let mac = "aa:55:aa:55:00:00".parse().expect("mac");
    let addresses = ["2001:db8::1", "1.1.1.1"].map(|ip| LocalAddress { mac, ip: ip.parse().expect("ip") });
    assert_eq!(
        listeners_verbose_text(&listeners, &addresses),
        "Listening ports:\n\
         gre_sys (5) : eth(dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(dst=1.1.1.1,proto=47,frag=no)\n\
         gre_sys (5) : eth(dst=aa:55:aa:55:00:00),eth_type(0x86dd),ipv6(dst=2001:db8::1,proto=47,frag=no)\n\
         vxlan_sys_4789 (4789) : eth(dst=aa:55:aa:55:00:00),eth_type(0x0800),ipv4(dst=1.1.1.1,proto=17,frag=no),udp(dst=4789)\n\
         vxlan_sys_4789 (4789) : eth(dst=aa:55:aa:55:00:00),eth_type(0x86dd),ipv6(dst=2001:db8::1,proto=17,frag=no),udp(dst=4789)\n"
    );
}

#[test]
fn zero_udp_ports_and_srv6_listen() {
    let listeners = |options: &str| {
        let config = config(&words(options));
        let mut ports = Ports::default();
        ports.set(Port { id: 0, name: "t".into(), datapath_port: DpPort(9), config }).expect("no conflict");
        let fields = |listener: &Listener| (listener.name.clone(), listener.protocol, listener.udp_port);
        ports.listeners().iter().map(fields).collect::<Vec<_>>()
    };
    assert_eq!(listeners("vxlan remote_ip=1.1.1.2 dst_port=0"), [("vxlan_sys_0".into(), 17, None)]);
    assert_eq!(listeners("srv6 remote_ip=::2"), [("srv6_sys".into(), 4, None), ("srv6_sys".into(), 41, None)]);
    assert_eq!(listeners("bareudp remote_ip=::2 dst_port=6635"), [("udp_sys_6635".into(), 17, Some(6635))]);
}
