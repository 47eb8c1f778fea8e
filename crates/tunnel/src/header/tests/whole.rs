//! GSO packets through a tunnel: what is pushed and popped as a whole equals what is segmented first.

use super::super::Cache;
use super::super::push::{Encapsulation, OuterIp, Push};
use super::super::template::{Context, PortRange, Template};
use super::{arbitrary, packet, pop_of};
use packet::segment::segment;
use packet::wire::{Ipv4Repr, Ipv6Repr, TcpRepr};
use packet::{Batch, Checksum, Gso, GsoKind, Metadata, Packet};
use proptest::prelude::*;
use std::sync::atomic::AtomicU32;

/// A large inner packet, but for its type.
#[derive(Clone, Debug)]
struct Large {
    v6: bool,
    udp: bool,
    tags: usize,
    flags: u16,
    options: usize,
    id: u16,
    len: usize,
    seed: u64,
    size: u16,
}

fn large() -> impl Strategy<Value = Large> {
    let flags = prop_oneof![2 => Just(0x10u16), 2 => Just(0x18), 1 => Just(0x99), 1 => 0u16..0x1000];
    let payload = prop_oneof![4 => (0..4000usize, 1..700u16), 1 => (0..64_000usize, 300..1500u16)];
    let kind = (any::<bool>(), prop::bool::weighted(0.1), 0..2usize);
    (kind, flags, 0..4usize, any::<u16>(), payload, any::<u64>()).prop_map(
        |((v6, udp, tags), flags, options, id, (len, size), seed)| Large {
            v6,
            udp,
            tags,
            flags,
            options,
            id,
            len,
            seed,
            size,
        },
    )
}

impl Large {
    fn payload(&self) -> Vec<u8> {
        let mut rng = base::rng::Rng::seeded(self.seed);
        (0..self.len).map(|_| rng.next_u64() as u8).collect()
    }
}

/// The packet of a type; `None` if it cannot be of that type.
fn inner(large: &Large, l3_type: Option<u16>) -> Option<Packet> {
    let (v6, mut frame) = match l3_type {
        None => {
            let tags = [0x81, 0, 0, 5].repeat(large.tags);
            (large.v6, [&[2; 12][..], &tags, if large.v6 { &[0x86, 0xdd] } else { &[8, 0] }].concat())
        }
        Some(0x800) => (false, vec![]),
        Some(0x86dd) => (true, vec![]),
        Some(_) => return None,
    };
    let options = large.options * 4;
    let header = if large.udp { 8 } else { 20 + options };
    let (proto, len) = (if large.udp { 17 } else { 6 }, header + large.len);
    if v6 {
        Ipv6Repr { src: 1, dst: 2, next_header: proto, hop_limit: 9, ..Ipv6Repr::default() }.emit(len, &mut frame);
    } else {
        Ipv4Repr { src: 1, dst: 2, proto, ttl: 9, id: large.id, ..Ipv4Repr::default() }.emit(len, &mut frame);
    }
    let at = frame.len();
    if large.udp {
        frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    } else {
        TcpRepr { src: 1, dst: 2, seq: u32::MAX - 9, ack: 7, flags: large.flags, window: 9 }.emit(&mut frame);
        frame.extend(vec![1; options]);
        frame[at + 12] += (options as u8) << 2;
    }
    frame.extend(large.payload());
    let mut packet = packet(&frame, l3_type);
    let kind = match (large.udp, v6) {
        (true, _) => GsoKind::UdpL4,
        (false, false) => GsoKind::TcpV4,
        (false, true) => GsoKind::TcpV6,
    };
    packet.offload.gso = Some(Gso { kind, size: large.size, ecn: large.flags & 0x80 != 0 });
    packet.offload.checksum = Checksum::Partial { start: at as u16, offset: if large.udp { 6 } else { 16 } };
    packet.metadata_mut().pkt_mark = 5;
    Some(packet)
}

/// Pushes onto a batch; with the number of dropped packets.
fn push_all(push: &Push, mut batch: Batch) -> (Batch, u32) {
    let template = Template::new(push.clone()).expect("valid headers");
    let (sequence, identification) = (AtomicU32::new(0xfffe), AtomicU32::new(0xfffd));
    let context = Context {
        ports: PortRange::default(),
        sequence: &sequence,
        identification: &identification,
        erspan_timestamp: 0,
    };
    let dropped = template.push_all(&mut batch, &context, |_| 7 << 28);
    (batch, dropped.too_long + dropped.unsegmented + dropped.not_ip)
}

/// Pops a batch; with the number of dropped packets.
fn pop_all(push: &Push, mut batch: Batch) -> (Batch, u32) {
    let mut dropped = 0;
    pop_of(push).pop_all(&mut batch, &mut Cache::new(), |_| dropped += 1);
    (batch, dropped)
}

/// The frames on the wire, with their metadata.
fn frames(batch: &Batch) -> Vec<(Vec<u8>, Option<u16>, Option<Metadata>)> {
    let frame = |packet: &Packet| {
        let mut packet = packet.clone();
        packet::checksum::finish(&mut packet);
        (packet.data().to_vec(), packet.l3_type, packet.metadata().cloned())
    };
    let each = |packet: &Packet| match packet.offload.gso {
        Some(_) => segment(packet).expect("it fits its flags"),
        None => vec![packet.clone()],
    };
    batch.iter().flat_map(each).map(|packet| frame(&packet)).collect()
}

/// The frames on the wire, without the identification of outer IPv4 headers with DF, which has no meaning (RFC 6864 section 4.1), and
/// counts the segments of a GSO packet.
fn unnumbered(push: &Push, batch: &Batch) -> Vec<(Vec<u8>, Option<u16>, Option<Metadata>)> {
    let mut frames = frames(batch);
    if matches!(push.ip, OuterIp::V4 { dont_fragment: true, .. }) {
        let l3 = if push.vlan.is_some() { 18 } else { 14 };
        for (frame, ..) in &mut frames {
            frame[l3 + 4..l3 + 6].fill(0);
            frame[l3 + 10..l3 + 12].fill(0);
        }
    }
    frames
}

/// The first frames that differ, and their number.
fn difference<T: PartialEq + Clone>(some: &[T], others: &[T]) -> Option<(usize, Option<T>, Option<T>)> {
    let at = (0..some.len().max(others.len())).find(|at| some.get(*at) != others.get(*at))?;
    Some((at, some.get(at).cloned(), others.get(at).cloned()))
}

fn is_udp(push: &Push) -> bool {
    push.tunnel.udp().is_some()
}

tally::proptest! {
    #[test]
    fn what_is_pushed_as_a_whole_is_segmented_into_the_same_frames(
        (push, (_, l3_type)) in arbitrary::pushes(), large in large(),
    ) {
        let Some(packet) = inner(&large, l3_type) else { return Ok(()) };
        let whole = push_all(&push, vec![packet.clone()]);
        let apart = push_all(&push, segment(&packet).expect("it fits its flags"));
        prop_assert_eq!(difference(&unnumbered(&push, &whole.0), &unnumbered(&push, &apart.0)), None);
        prop_assert_eq!(whole.1, apart.1);
        if is_udp(&push) && apart.0.len() > 1 {
            let bytes: usize = apart.0.iter().map(Packet::len).sum();
            prop_assert!(whole.0.len() <= 1 + bytes / 32_000 + apart.0.len() / 64);
            prop_assert!(whole.0.iter().all(|packet| packet.len() < 65_536));
        }
    }

    #[test]
    fn what_is_popped_as_a_whole_equals_popped_segments(
        (push, (_, l3_type)) in arbitrary::pushes(), large in large(), intact: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3), near: bool,
    ) {
        let Some(packet) = inner(&large, l3_type) else { return Ok(()) };
        let (mut whole, _) = push_all(&push, segment(&packet).expect("it fits its flags").into_iter().take(1).chain([packet]).collect());
        for packet in whole.iter_mut().filter(|_| !intact) {
            // Outer headers that do not belong to a GSO packet of UDP are another matter.
            let from = match segment(packet).map(|segments| segments[0].len()) {
                Ok(first) => packet.len().min(first) - usize::from(packet.offload.gso.map_or(0, |gso| gso.size)),
                Err(_) => continue,
            };
            for (at, xor) in &changes {
                // Near the start of a datagram, half of the time.
                let size = packet.offload.gso.map_or(1, |gso| usize::from(gso.size));
                let n = at.index(packet.len() - from);
                let n = if near { n / size * size + n % size.min(90) } else { n };
                let at = (from + n).min(packet.len() - 1);
                packet.data_mut()[at] ^= xor;
            }
        }
        let apart = whole.iter().flat_map(|packet| match packet.offload.gso {
            Some(_) => segment(packet).expect("it fits its flags"),
            None => vec![packet.clone()],
        });
        let apart = pop_all(&push, apart.collect());
        let (popped, dropped) = pop_all(&push, whole.clone());
        prop_assert_eq!(dropped, apart.1);
        prop_assert_eq!(difference(&frames(&popped), &frames(&apart.0)), None);
        let is_stream = !large.udp && large.flags & !0xd9 == 0 && large.flags & 0x10 != 0;
        let is_user_data = !matches!(&push.tunnel, Encapsulation::Gtpu(_, gtpu) if gtpu.message_type != 255);
        if intact && is_stream && is_user_data && is_udp(&push) {
            prop_assert_eq!(popped.len(), whole.len());
        }
        for packet in popped.iter().filter(|packet| packet.offload.gso.is_some()) {
            let is_partial = matches!(packet.offload.checksum, Checksum::Partial { .. });
            prop_assert!(is_partial);
            prop_assert_eq!((packet.recirc_id, packet.dp_hash, packet.tags, packet.outer()), (0, 0, 0, None));
        }
    }
}

#[test]
fn a_packet_of_64_kb_becomes_two() {
    let push = super::offload::headers(false, super::offload::vxlan(false));
    let large =
        Large { v6: false, udp: false, tags: 0, flags: 0x18, options: 3, id: 9, len: 45 * 1398, seed: 1, size: 1398 };
    let packet = inner(&large, None).expect("an Ethernet frame");
    let (outer, dropped) = push_all(&push, vec![packet.clone()]);
    assert_eq!((outer.len(), dropped), (2, 0));
    let gso = Some(Gso { kind: GsoKind::UdpL4, size: 8 + 14 + 20 + 32 + 1398, ecn: false });
    assert_eq!([outer[0].offload.gso, outer[1].offload.gso], [gso; 2]);
    assert_eq!([&outer[0], &outer[1]].map(|outer| (outer.len() - 42) / 1472), [23, 22]);
    let (popped, _) = pop_all(&push, outer);
    assert_eq!(popped.iter().map(|p| p.offload.gso.map(|gso| gso.size)).collect::<Vec<_>>(), [Some(1398); 2]);
}
