//! Packets whose outer headers a cache knows leave the tunnel as those that are parsed.

use super::super::geneve::Geneve;
use super::super::push::{Encapsulation, OuterIp, Push, Udp};
use super::super::vxlan::Vxlan;
use super::super::{Cache, Pop};
use super::arbitrary::pushes;
use super::{packet, pop_of, push};
use base::MacAddr;
use base::rng::Rng;
use packet::metadata::Metadata;
use packet::{Checksum, Offload, Packet};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// All that a packet is behind a tunnel.
fn parts(packet: &Packet) -> (Vec<u8>, Option<Metadata>, Option<u16>, Offload, [u32; 2]) {
    let ids = [packet.recirc_id, packet.dp_hash];
    (packet.data().to_vec(), packet.metadata().cloned(), packet.l3_type, packet.offload, ids)
}

/// The same packet, changed in a few places.
fn changed(p: &Packet, rng: &mut Rng) -> Packet {
    let mut p = p.clone();
    for _ in 0..rng.below(3) {
        // Most changes are in the headers.
        let at = rng.below((p.len() as u64).min(70)) as usize;
        p.data_mut()[at] ^= 1 << rng.below(8);
    }
    if rng.below(2) == 0 && p.len() > 40 {
        // Fields that differ among packets of a tunnel: identification and source port.
        let id = rng.next_u64() as u16;
        let at = 14;
        let (old, [high, low]) = (u16::from_be_bytes([p.data()[at + 4], p.data()[at + 5]]), id.to_be_bytes());
        let checksum = u16::from_be_bytes([p.data()[at + 10], p.data()[at + 11]]);
        let [c, d] = packet::checksum::update16(checksum, old, id).to_be_bytes();
        let port = rng.next_u64() as u8;
        let data = p.data_mut();
        (data[at + 4], data[at + 5], data[at + 10], data[at + 11], data[at + 20]) = (high, low, c, d, port);
    }
    match rng.below(6) {
        0 => {
            let len = p.len() - rng.below(p.len() as u64) as usize;
            p.truncate(len);
        }
        1 => p.append(&[7; 9]),
        _ => {}
    }
    p.offload.checksum = [Checksum::Unknown, Checksum::Good, Checksum::Unknown][rng.below(3) as usize];
    (p.recirc_id, p.dp_hash) = (3, 4);
    p
}

/// Headers that a cache can know, for half of the cases.
fn knowable(headers: &mut Push) {
    headers.vlan = None;
    let (OuterIp::V4 { .. }, Encapsulation::Vxlan(udp, _) | Encapsulation::Geneve(udp, _)) =
        (&headers.ip, &mut headers.tunnel)
    else {
        return;
    };
    udp.checksum = false;
}

tally::proptest! {
    #[test]
    fn known_headers_are_read_as_unknown_ones(
        (mut headers, (bytes, l3_type)) in pushes(), is_knowable: bool, seed: u64,
    ) {
        let mut rng = Rng::seeded(seed);
        if is_knowable {
            knowable(&mut headers);
        }
        let mut first = packet(&bytes, l3_type);
        prop_assume!(push(&headers, &mut first).is_ok());
        let (pop, mut cache) = (pop_of(&headers), Cache::new());
        let _ = pop.pop(&mut first.clone(), &mut cache);
        for _ in 0..8 {
            let before = changed(&first, &mut rng);
            let (mut by_cache, mut parsed) = (before.clone(), before);
            let results = (pop.pop(&mut by_cache, &mut cache), pop.pop(&mut parsed, &mut Cache::new()));
            prop_assert_eq!(results.0, results.1);
            prop_assert_eq!(parts(&by_cache), parts(&parsed));
        }
    }
}

/// The cache knows headers of these forms from their second packet on, and no longer than it has their tunnel.
#[test]
fn frequent_headers_are_known() {
    let udp = |dst| Udp { src: 0, dst, checksum: false };
    let options: Box<[u8]> = [1, 2, 3, 2, 9, 9, 9, 9, 8, 8, 8, 8].into();
    let tunnels = [
        Encapsulation::Vxlan(udp(4789), Vxlan::new(5)),
        Encapsulation::Geneve(udp(6081), Geneve { vni: 6, oam: false, options: [].into() }),
        Encapsulation::Geneve(udp(6081), Geneve { vni: 7, oam: true, options }),
    ];
    let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let mut cache = Cache::new();
    let mut numbers = Vec::new();
    for tunnel in tunnels {
        let ip = OuterIp::V4 { src, dst, tos: 0, ttl: 64, dont_fragment: true };
        let headers = Push { eth_src: MacAddr([2; 6]), eth_dst: MacAddr([4; 6]), vlan: None, ip, tunnel };
        let mut first = packet(&[1; 60], None);
        push(&headers, &mut first).expect("it fits");
        let pop = pop_of(&headers);
        assert_eq!(cache.find(pop, &first), None);
        pop.pop(&mut first.clone(), &mut cache).expect("valid headers");
        let hit = cache.find(pop, &first).expect("known headers");
        assert_eq!(cache.find(Pop::Gtpu, &first), None);
        numbers.push(hit.number());
        let mut stripped = first.clone();
        cache.strip(&mut stripped, hit);
        assert_eq!((stripped.data(), stripped.metadata()), (&[1; 60][..], None));
        cache.attach(&mut stripped, hit);
        let tunnel = stripped.metadata().and_then(|metadata| metadata.tunnel.as_ref()).expect("a tunnel");
        assert!(cache.tunnel(hit).is_some_and(|known| Arc::ptr_eq(known, tunnel)));
        // A held cache learns nothing.
        cache.hold(true);
        let mut other = first.clone();
        other.data_mut()[48] ^= 1;
        let _ = pop.pop(&mut other.clone(), &mut cache);
        assert_eq!(cache.find(pop, &other), None);
        cache.hold(false);
    }
    assert_eq!(numbers, [0, 1, 2]);
}
