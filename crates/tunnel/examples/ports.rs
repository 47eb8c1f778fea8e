//! Time of a lookup among few and many tunnel ports: `cargo run --release -p tunnel --example ports`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use base::DpPort;
use base::rng::Rng;
use packet::metadata::Tunnel;
use tunnel::TunnelType;
use tunnel::framing::PacketType;
use tunnel::options::Config;
use tunnel::ports::{Port, Ports};

const VXLAN: DpPort = DpPort(4789);

fn remote(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + number)
}

fn port(id: u32, remote: &str, key: &str) -> Port<u32> {
    let options = BTreeMap::from([("remote_ip", remote), ("key", key)]);
    let options = options.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let config = Config::parse("t", TunnelType::Vxlan, &options).expect("valid options").config;
    Port { id, name: "t".into(), datapath_port: VXLAN, config: Arc::new(config) }
}

/// Nanoseconds for each lookup of packets from `remotes` addresses.
fn measure(ports: &Ports<u32>, remotes: u32) -> f64 {
    let mut rng = Rng::seeded(1);
    let packets: Vec<Tunnel> = (0..1 << 16)
        .map(|_| {
            let src = remote(rng.below(remotes.into()) as u32).into();
            Tunnel { key: 7, ttl: 64, dst_port: 4789, ..Tunnel::between(src, IpAddr::V4(Ipv4Addr::LOCALHOST)) }
        })
        .collect();
    let start = Instant::now();
    for packet in &packets {
        let (port, _) = black_box(ports.find(VXLAN, black_box(packet), PacketType::Ethernet));
        assert!(port.is_some());
    }
    start.elapsed().as_nanos() as f64 / packets.len() as f64
}

fn main() {
    for count in [10, 1_000, 10_000] {
        let mut fixed = Ports::default();
        for id in 0..count {
            fixed.set(port(id, &remote(id).to_string(), "7")).expect("different remotes");
        }
        let mut flow = Ports::default();
        flow.set(port(0, "flow", "flow")).expect("the first port");
        println!(
            "{count} ports: {:.0} ns; one flow-based port with as many remotes: {:.0} ns",
            measure(&fixed, count),
            measure(&flow, count)
        );
    }
}
