//! Packets with offload flags, and batches.

use super::super::bareudp::Payload;
use super::super::erspan::{Erspan, timestamp};
use super::super::gre::Gre;
use super::super::pop::Pop;
use super::super::push::{Encapsulation, OuterIp, Push, Udp};
use super::super::template::{Context, Dropped, PortRange, Refused, Template};
use super::super::vxlan::Vxlan;
use super::super::{Cache, Malformed, geneve, srv6};
use super::{packet, push};
use base::{MacAddr, Millis};
use packet::checksum::{Verdict, finish, verify};
use packet::wire::{Ipv4Repr, TcpRepr};
use packet::{Checksum, Gso, GsoKind, Packet};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The protocol of an inner packet, and the offset of its checksum.
const PROTOCOLS: [(u8, u16); 3] = [(6, 16), (17, 6), (132, 8)];

/// An Ethernet frame of TCP, UDP or SCTP over IPv4, with a partial checksum as a host leaves it.
fn partial(proto: usize, payload: &[u8]) -> Packet {
    let (proto, offset) = PROTOCOLS[proto];
    let ip = Ipv4Repr { src: 0x0a00_0001, dst: 0x0a00_0002, proto, ttl: 64, ..Ipv4Repr::default() };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let mut l4 = vec![0; 20];
    match proto {
        6 => {
            l4.clear();
            TcpRepr { src: 1, dst: 2, seq: 3, ..TcpRepr::default() }.emit(&mut l4);
        }
        17 => {
            l4.truncate(8);
            l4[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        }
        _ => {}
    }
    let len = l4.len() + payload.len();
    let pseudo = packet::checksum::pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], proto, len as u16).partial();
    let at = usize::from(offset);
    l4[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
    ip.emit(len, &mut frame);
    frame.extend(l4);
    frame.extend(payload);
    let mut packet = packet(&frame, None);
    packet.offload.checksum = Checksum::Partial { start: 34, offset };
    packet
}

pub(super) fn headers(v6: bool, tunnel: Encapsulation) -> Push {
    let (src, dst) = ([0xfc; 16].into(), [0xfd; 16].into());
    let ip = if v6 {
        OuterIp::V6 { src, dst, class: 0, hop_limit: 64, label: 0, dont_fragment: true }
    } else {
        OuterIp::V4 { src: [1, 1, 2, 88].into(), dst: [1, 1, 2, 92].into(), tos: 0, ttl: 64, dont_fragment: true }
    };
    Push { eth_src: MacAddr([2; 6]), eth_dst: MacAddr([4; 6]), vlan: None, ip, tunnel }
}

pub(super) fn vxlan(checksum: bool) -> Encapsulation {
    Encapsulation::Vxlan(Udp { src: 0, dst: 4789, checksum }, Vxlan::new(5))
}

tally::proptest! {
    #[test]
    fn outer_checksums_cover_the_completed_packet(
        proto in 0..3usize, payload: Vec<u8>, v6: bool, is_gre: bool, strips: bool,
    ) {
        let gre = Encapsulation::Gre(Gre { protocol: 0x6558, checksum: true, key: Some(7), sequence: false });
        let headers = headers(v6, if is_gre { gre } else { vxlan(true) });
        let mut with_partial = partial(proto, &payload);
        if strips {
            // An L3 packet.
            with_partial.remove(0, 14);
            with_partial.l3_type = Some(0x800);
        }
        let mut finished = with_partial.clone();
        finish(&mut finished);
        push(&headers, &mut finished).expect("a packet that fits");
        push(&headers, &mut with_partial).expect("a packet that fits");
        let is_sctp = proto == 2;
        prop_assert_eq!(matches!(with_partial.offload.checksum, Checksum::Partial { .. }), !is_sctp);
        finish(&mut with_partial);
        prop_assert_eq!(with_partial.data(), finished.data());
        prop_assert!(verify(with_partial.data()) != Verdict::Bad);
    }

    #[test]
    fn a_partial_checksum_survives_push_and_pop(proto in 0..3usize, payload: Vec<u8>, v6: bool, checksum: bool) {
        let mut p = partial(proto, &payload);
        let before = p.clone();
        push(&headers(v6, vxlan(checksum)), &mut p).expect("a packet that fits");
        Pop::Vxlan { group_policy: false }.pop(&mut p, &mut Cache::new()).expect("valid headers");
        if checksum && proto == 2 {
            let mut finished = before;
            finish(&mut finished);
            prop_assert_eq!(p.data(), finished.data());
        } else {
            prop_assert_eq!(&p, &before);
        }
    }
}

/// A TCP packet of 3000 bytes in segments of 1000.
fn large() -> Packet {
    let mut p = partial(0, &[7; 3000]);
    p.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 1000, ecn: false });
    p
}

fn context(sequence: &AtomicU32) -> Context<'_> {
    Context { ports: PortRange::default(), sequence, identification: sequence, erspan_timestamp: 0 }
}

#[test]
fn a_gso_packet_is_refused_alone_and_stays_whole_in_a_batch() {
    let mut p = large();
    let before = p.clone();
    assert_eq!(push(&headers(false, vxlan(false)), &mut p), Err(Refused::NeedsSegmentation));
    assert_eq!(p, before);

    let template = Template::new(headers(false, vxlan(true))).expect("valid headers");
    let mut l3 = large();
    l3.remove(0, 14);
    l3.l3_type = Some(0x800);
    let mut broken = partial(1, &[0; 3000]);
    broken.offload.gso = large().offload.gso;
    let small = partial(1, &[9; 10]);
    let mut batch = vec![small.clone(), large(), l3, broken, packet(&[3; 65_600], None), small];
    let dropped = template.push_all(&mut batch, &context(&AtomicU32::new(0)), |_| 0);
    assert_eq!(dropped, Dropped { too_long: 1, unsegmented: 1, not_ip: 0 });
    assert_eq!(
        batch.iter().map(|p| p.offload.gso.map(|gso| gso.size)).collect::<Vec<_>>(),
        [None, Some(1062), Some(1048), None]
    );
    let mut batch: Vec<_> = batch.into_iter().flat_map(|p| packet::segment::segment(&p).unwrap_or(vec![p])).collect();
    let lens: Vec<usize> = batch.iter().map(|p| p.len() - 50).collect();
    assert_eq!(lens, [52, 1054, 1054, 1054, 1040, 1040, 1040, 52]);
    for p in &mut batch {
        finish(p);
        assert_eq!((verify(p.data()), p.l3_type), (Verdict::Good, None));
    }
    assert_eq!(verify(&batch[4].data()[36..]), Verdict::None, "an L3 packet has no Ethernet header");
}

#[test]
fn a_packet_longer_than_the_outer_length_is_refused() {
    for (v6, most) in [(false, 65_535 - 36), (true, 65_535 - 16)] {
        let mut p = packet(&vec![0; most], None);
        push(&headers(v6, vxlan(true)), &mut p).expect("the longest packet");
        assert_eq!(verify(p.data()), Verdict::Good);
        let mut p = packet(&vec![0; most + 1], None);
        assert_eq!(push(&headers(v6, vxlan(true)), &mut p), Err(Refused::TooLong));
        assert_eq!(p.len(), most + 1);
    }
}

#[test]
fn segment_routing_carries_ip_only() {
    let srv6 = srv6::Srv6 { segments: [[1; 16].into()].into(), flow_label: srv6::FlowLabel::Zero };
    let headers = headers(true, Encapsulation::Srv6(srv6));
    for l3_type in [None, Some(0x8847)] {
        let mut p = packet(&[0x45; 40], l3_type);
        assert_eq!(push(&headers, &mut p), Err(Refused::NotIp));
        assert_eq!((p.data(), p.l3_type), (&[0x45; 40][..], l3_type));
        let mut batch = vec![p];
        let template = Template::new(headers.clone()).expect("valid headers");
        let dropped = template.push_all(&mut batch, &context(&AtomicU32::new(0)), |_| 0);
        assert_eq!((dropped.not_ip, batch.len()), (1, 0));
    }
}

#[test]
fn headers_that_do_not_exist_are_invalid() {
    let udp = Udp { src: 0, dst: 6081, checksum: false };
    let geneve = |options: Box<[u8]>| Encapsulation::Geneve(udp, geneve::Geneve { vni: 0, oam: false, options });
    let srv6 = |n| {
        Encapsulation::Srv6(srv6::Srv6 { segments: vec![[1; 16].into(); n].into(), flow_label: srv6::FlowLabel::Zero })
    };
    let cases = [
        (true, geneve([0; 256].into()), "Geneve options of 256 bytes do not fit a header"),
        (true, geneve([0, 0, 0, 1].into()), "Geneve options of 4 bytes do not fit a header"),
        (true, geneve([0, 0, 0].into()), "Geneve options of 3 bytes do not fit a header"),
        (true, srv6(0), "a segment routing header has 1 to 16 segments, not 0"),
        (true, srv6(17), "a segment routing header has 1 to 16 segments, not 17"),
        (false, srv6(1), "segment routing needs IPv6"),
    ];
    for (v6, tunnel, expected) in cases {
        let found = Template::new(headers(v6, tunnel)).expect_err(expected);
        assert_eq!(found.to_string(), expected);
    }
    assert!(Template::new(headers(true, geneve([0; 252].into()))).is_ok());
}

#[test]
fn ports_are_spread_over_their_range() {
    let range = PortRange::default();
    assert_eq!(range.bounds(), (32768, 61000));
    assert_eq!([0, 1 << 31, u32::MAX].map(|hash| range.port(hash)), [32768, 46884, 60999]);
    assert_eq!(PortRange::new(100, 100).map(|range| range.port(u32::MAX)), Some(100));
    assert_eq!(PortRange::new(0, 65535).map(|range| range.port(u32::MAX)), Some(65534));
    assert_eq!(PortRange::new(101, 100), None);
}

#[test]
fn sequence_numbers_continue_over_batches() {
    let headers = headers(false, Encapsulation::Erspan(Erspan::V2 { session: 1, is_egress: true, hardware_id: 63 }));
    let template = Template::new(headers).expect("valid headers");
    let sequence = AtomicU32::new(u32::MAX);
    let context = Context { erspan_timestamp: timestamp(Millis(1 << 40 | 5)), ..context(&sequence) };
    let mut batch = vec![packet(&[1; 60], None); 3];
    template.push_all(&mut batch, &context, |_| 0);
    let word = |p: &Packet, at: usize| u32::from_be_bytes(std::array::from_fn(|i| p.data()[at + i]));
    assert_eq!(batch.iter().map(|p| word(p, 38)).collect::<Vec<_>>(), [u32::MAX, 0, 1]);
    assert!(batch.iter().all(|p| word(p, 46) == 50 && word(p, 50) == 0x3f8));
    assert_eq!(sequence.load(Ordering::Relaxed), 2);
}

#[test]
fn outer_datagrams_of_a_gso_packet_are_segmented_before_they_are_popped() {
    let inner = [0x45; 100];
    let udp = Udp { src: 9, dst: 8000, checksum: false };
    let mut whole = packet(&[inner; 3].concat(), Some(0x800));
    push(&headers(false, Encapsulation::Bareudp(udp)), &mut whole).expect("a packet that fits");
    whole.offload.gso = Some(Gso { kind: GsoKind::UdpL4, size: 100, ecn: false });
    let pop = Pop::Bareudp(Payload::Ip);
    let mut alone = whole.clone();
    assert_eq!(pop.pop(&mut alone, &mut Cache::new()), Err(Malformed::Unsegmented));
    assert_eq!(alone, whole);
    let mut batch = vec![whole];
    pop.pop_all(&mut batch, &mut Cache::new(), |reason| panic!("{reason}"));
    assert_eq!(batch.len(), 3);
    assert!(batch.iter().all(|p| p.data() == inner && p.l3_type == Some(0x800) && p.offload.gso.is_none()));
}

#[test]
fn inner_segments_stay_marked() {
    let mut p = large();
    let before = p.clone();
    p.offload.gso = None;
    push(&headers(false, vxlan(false)), &mut p).expect("a packet that fits");
    p.offload.gso = before.offload.gso;
    Pop::Vxlan { group_policy: false }.pop(&mut p, &mut Cache::new()).expect("valid headers");
    assert_eq!(p, before);
}

#[test]
fn packets_of_a_tunnel_share_metadata_and_lose_what_they_had() {
    let mut batch = vec![partial(0, &[1; 10]), partial(0, &[2; 20]), partial(1, &[3; 30])];
    let template = Template::new(headers(false, vxlan(true))).expect("valid headers");
    let mut hashes = [0, 0, u32::MAX].into_iter();
    template.push_all(&mut batch, &context(&AtomicU32::new(0)), |_| hashes.next().expect("three packets"));
    for p in &mut batch {
        finish(p);
        (p.recirc_id, p.dp_hash, p.passes, p.tags) = (1, 2, 3, 1);
        p.metadata_mut().pkt_mark = 4;
        p.metadata_mut().connection.state = 5;
    }
    let mut cache = Cache::new();
    Pop::Vxlan { group_policy: false }.pop_all(&mut batch, &mut cache, |reason| panic!("{reason}"));
    let tunnels: Vec<_> =
        batch.iter().map(|p| p.metadata().and_then(|m| m.tunnel.clone()).expect("a tunnel")).collect();
    // Their source ports differ.
    assert!(tunnels[1..].iter().all(|tunnel| Arc::ptr_eq(tunnel, &tunnels[0])));
    assert_eq!((tunnels[0].src_port, tunnels[0].key), (0, 5));
    let ports = batch.iter().map(|p| p.metadata().map_or(0, |m| m.tunnel_src_port));
    assert_eq!(ports.collect::<Vec<_>>(), [32768, 32768, 60999]);
    for p in &batch {
        assert_eq!((p.recirc_id, p.dp_hash, p.passes, p.tags), (0, 0, 3, 0));
        let metadata = p.metadata().expect("a tunnel");
        assert_eq!((metadata.pkt_mark, metadata.connection.state), (0, 0));
        assert_eq!(p.offload.checksum, Checksum::Unknown, "only the outer checksum was valid");
    }
}

#[test]
fn packets_that_may_be_fragmented_have_numbers() {
    let ids = |dont_fragment: bool, first: u32| {
        let mut push = headers(false, vxlan(false));
        if let OuterIp::V4 { dont_fragment: flag, .. } = &mut push.ip {
            *flag = dont_fragment;
        }
        let template = Template::new(push).expect("valid headers");
        let mut batch: Vec<_> = (0..3).map(|n| packet(&[n; 60], None)).collect();
        let (sequence, identification) = (AtomicU32::new(0), AtomicU32::new(first));
        let context = Context { identification: &identification, ..context(&sequence) };
        template.push_all(&mut batch, &context, |_| 0);
        let id = |p: &Packet| {
            let ip = &p.data()[14..34];
            assert_eq!(packet::checksum::checksum(ip), 0);
            u16::from_be_bytes([ip[4], ip[5]])
        };
        batch.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids(false, 0xfffe), [0xfffe, 0xffff, 0]);
    assert_eq!(ids(true, 7), [0, 0, 0]);
}

#[test]
fn a_wrong_outer_checksum_counts_unless_it_is_trusted() {
    let mut p = packet(&[1; 60], None);
    push(&headers(true, vxlan(true)), &mut p).expect("a packet that fits");
    let at = p.len() - 1;
    p.data_mut()[at] ^= 1;
    let pop = Pop::Vxlan { group_policy: false };
    assert_eq!(pop.pop(&mut p.clone(), &mut Cache::new()), Err(Malformed::UdpChecksum));
    p.offload.checksum = Checksum::Good;
    assert_eq!(pop.pop(&mut p, &mut Cache::new()), Ok(()));
}

/// More tunnels than the cache holds, in random order: each packet has its own tunnel's metadata, and most share it.
#[test]
fn many_tunnels_have_metadata_of_their_own() {
    let mut rng = base::rng::Rng::seeded(9);
    let mut cache = Cache::new();
    for (tunnels, packets, shared_min) in [(1000, 5000, 3900), (20_000, 20_000, 0)] {
        let mut last: Vec<Option<Arc<packet::metadata::Tunnel>>> = vec![None; tunnels];
        let mut shared = 0;
        for _ in 0..packets {
            let n = rng.below(tunnels as u64) as usize;
            let mut push = headers(false, vxlan(false));
            let Encapsulation::Vxlan(_, vxlan) = &mut push.tunnel else { panic!("VXLAN") };
            vxlan.vni = n as u32;
            if let OuterIp::V4 { src, .. } = &mut push.ip {
                *src = (0x0a00_0000 + n as u32 / 2).into();
            }
            let mut p = partial(0, &[1; 10]);
            let template = Template::new(push).expect("valid headers");
            template.push(&mut p, rng.next_u64() as u32, &context(&AtomicU32::new(0))).expect("it fits");
            Pop::Vxlan { group_policy: false }.pop(&mut p, &mut cache).expect("valid headers");
            let tunnel = p.metadata().and_then(|m| m.tunnel.clone()).expect("a tunnel");
            assert_eq!((tunnel.key, tunnel.src), (n as u64, Ipv4Addr::from(0x0a00_0000 + n as u32 / 2).into()));
            shared += u32::from(last[n].as_ref().is_some_and(|last| Arc::ptr_eq(last, &tunnel)));
            last[n] = Some(tunnel);
        }
        tally::report!("{packets} packets of {tunnels} tunnels, {shared} with shared metadata");
        assert!(shared >= shared_min);
    }
}
