//! Measures pushing and popping of outer headers: nanoseconds for each packet, in batches of 32, for 1 and 1,000 flows.

use base::MacAddr;
use packet::{Batch, Packet};
use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use tunnel::header::geneve::Geneve;
use tunnel::header::gre::Gre;
use tunnel::header::gtpu::{FLAGS_DEFAULT, G_PDU, Gtpu};
use tunnel::header::vxlan::Vxlan;
use tunnel::header::{Cache, Context, Encapsulation, OuterIp, Pop, PortRange, Push, Template, Udp};

const BATCH: usize = 32;
const ROUNDS: usize = 20_000;

fn headers(tunnel: &Encapsulation, v6: bool, n: u32) -> Push {
    let ip = if v6 {
        let src = (u128::from(n) | 0xfc << 120).into();
        OuterIp::V6 { src, dst: [0xfd; 16].into(), class: 0, hop_limit: 64, label: 0, dont_fragment: true }
    } else {
        let src = (0x0a00_0000 + n).into();
        OuterIp::V4 { src, dst: [10, 255, 2, 92].into(), tos: 0, ttl: 64, dont_fragment: true }
    };
    Push { eth_src: MacAddr([2; 6]), eth_dst: MacAddr([4; 6]), vlan: None, ip, tunnel: tunnel.clone() }
}

/// Prints the best round for `flows` flows.
fn measure(what: &str, tunnel: &Encapsulation, v6: bool, pop: Pop, flows: usize) {
    let l3_type = matches!(tunnel, Encapsulation::Gtpu(..)).then_some(0x800);
    let templates: Vec<Template> =
        (0..flows.min(1000)).map(|n| Template::new(headers(tunnel, v6, n as u32)).expect("valid headers")).collect();
    let mut inner = vec![0x45; 64];
    inner[12..14].copy_from_slice(&[8, 0]);
    let mut batches: Vec<Batch> = (0..flows.div_ceil(BATCH))
        .map(|_| {
            (0..BATCH)
                .map(|_| {
                    let mut packet = Packet::from_slice(&inner);
                    packet.l3_type = l3_type;
                    packet
                })
                .collect()
        })
        .collect();
    let (sequence, mut cache) = (AtomicU32::new(0), Cache::new());
    let context =
        Context { ports: PortRange::default(), sequence: &sequence, identification: &sequence, erspan_timestamp: 0 };
    let (mut pushing, mut popping) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS / batches.len().min(20) {
        let start = Instant::now();
        let mut template = 0;
        for batch in &mut batches {
            if flows == 1 {
                templates[0].push_all(black_box(batch), &context, |packet| packet.dp_hash);
            } else {
                for packet in black_box(batch) {
                    let _ = templates[template % templates.len()].push(packet, packet.dp_hash, &context);
                    template += 1;
                }
            }
        }
        let pushed = start.elapsed();
        let start = Instant::now();
        for batch in &mut batches {
            pop.pop_all(black_box(batch), &mut cache, |reason| panic!("{reason}"));
        }
        popping = popping.min(start.elapsed());
        pushing = pushing.min(pushed);
    }
    let packets = (batches.len() * BATCH) as f64;
    let each = |time: Duration| time.as_nanos() as f64 / packets;
    println!("{what:32} {flows:5} flows: push {:6.2} ns, pop {:6.2} ns", each(pushing), each(popping));
}

fn main() {
    let udp = |dst, checksum| Udp { src: 0, dst, checksum };
    let options: Box<[u8]> = [1, 2, 3, 1, 5, 6, 7, 8].into();
    let vxlan = Encapsulation::Vxlan(udp(4789, false), Vxlan::new(7));
    let geneve = Encapsulation::Geneve(udp(6081, false), Geneve { vni: 7, oam: false, options });
    let checked = Encapsulation::Vxlan(udp(4789, true), Vxlan::new(7));
    let gre = |checksum| Encapsulation::Gre(Gre { protocol: 0x6558, checksum, key: Some(7), sequence: false });
    let gtpu = Gtpu { flags: FLAGS_DEFAULT, message_type: G_PDU, teid: 7 };
    let gtpu = Encapsulation::Gtpu(udp(2152, false), gtpu);
    let plain = Pop::Vxlan { group_policy: false };
    for flows in [1, 1000] {
        measure("VXLAN over IPv4", &vxlan, false, plain, flows);
        measure("VXLAN over IPv6", &vxlan, true, plain, flows);
        measure("VXLAN over IPv6 with checksum", &checked, true, plain, flows);
        measure("Geneve with 8 bytes, IPv4", &geneve, false, Pop::Geneve, flows);
        measure("GRE over IPv4", &gre(false), false, Pop::Gre, flows);
        measure("GRE over IPv4 with checksum", &gre(true), false, Pop::Gre, flows);
        measure("GTP-U over IPv4", &gtpu, false, Pop::Gtpu, flows);
    }
}
