//! Random fragments beside a naive twin, which collects single bytes.

use std::collections::BTreeMap;

use base::Millis;
use base::rng::Rng;
use packet::Packet;
use packet::checksum::checksum;

use super::frames::{Headers, V4, V6, locate};
use crate::fragments::*;

/// What the twin knows of a datagram.
#[derive(Default)]
struct Collected {
    created: u64,
    /// Bytes of the payload that have arrived.
    bytes: Vec<Option<u8>>,
    /// Their number.
    arrived: usize,
    /// Fragments by their offset.
    packets: BTreeMap<usize, Packet>,
    end: Option<usize>,
    /// Bytes of headers in the IP length, of the first fragment.
    headers: usize,
}

/// The zone, and the values of the headers.
type Id = (u16, bool, u32, u8);

#[derive(Default)]
struct Twin {
    /// Oldest first.
    lists: Vec<(Id, Collected)>,
    max: usize,
    min: usize,
    counters: [Counters; 2],
}

/// What the twin expects.
#[derive(Debug, PartialEq)]
enum Expected {
    Held,
    Pass(PassReason),
    /// The payload and the fragments.
    Complete(Vec<u8>, Vec<Packet>),
}

impl Twin {
    fn take(&mut self, id: Id, packet: &Packet, now: u64) -> Expected {
        let at = locate(packet.data()).unwrap();
        let counters = &mut self.counters[usize::from(at.is_v6)];
        if at.more && at.end - at.l3 < self.min {
            counters.too_small += 1;
            return Expected::Pass(PassReason::TooSmall);
        }
        if self.lists.iter().map(|(_, list)| list.packets.len()).sum::<usize>() >= self.max {
            return Expected::Pass(PassReason::Full);
        }
        let payload = &packet.data()[at.payload..at.end];
        if at.more && (payload.is_empty() || !payload.len().is_multiple_of(8)) {
            return Expected::Pass(PassReason::Malformed);
        }
        let (base, least) = if at.is_v6 { (at.l3 + 48, 0) } else { (at.l3, 20) };
        let fresh = Collected { created: now, headers: least, ..Collected::default() };
        let i = self.lists.iter().position(|(other, _)| *other == id);
        let list = i.map_or(&fresh, |i| &self.lists[i].1);
        let headers = if at.offset == 0 { at.payload - base } else { list.headers };
        let stop = at.offset + payload.len();
        let furthest = list.bytes.len();
        if headers + stop.max(furthest) > 65_535 {
            return Expected::Pass(PassReason::Malformed);
        }
        let overlaps =
            list.packets.contains_key(&at.offset) || (at.offset..stop.min(furthest)).any(|at| list.bytes[at].is_some());
        let is_behind_end = list.end.is_some_and(|end| stop > end || !at.more);
        let ends_too_early = !at.more && list.packets.last_key_value().is_some_and(|(start, _)| *start > at.offset);
        // An empty last fragment inside of another one.
        let is_inside = !at.more && furthest > at.offset;
        if overlaps || is_behind_end || ends_too_early || is_inside {
            counters.overlapped += 1;
            return Expected::Pass(PassReason::Overlap);
        }
        counters.accepted += 1;
        let i = i.unwrap_or_else(|| {
            self.lists.push((id, fresh));
            self.lists.len() - 1
        });
        let list = &mut self.lists[i].1;
        list.headers = headers;
        list.bytes.resize(furthest.max(stop), None);
        (at.offset..stop).zip(payload).for_each(|(at, byte)| list.bytes[at] = Some(*byte));
        list.arrived += payload.len();
        list.packets.insert(at.offset, packet.clone());
        if !at.more {
            list.end = Some(stop);
        }
        if list.end != Some(list.arrived) {
            return Expected::Held;
        }
        let list = self.lists.remove(i).1;
        counters.completed += list.packets.len() as u64;
        Expected::Complete(list.bytes.into_iter().flatten().collect(), list.packets.into_values().collect())
    }

    fn drop_older(&mut self, now: u64, age: u64, counter: fn(&mut Counters) -> &mut u64) -> Option<Vec<Packet>> {
        if self.lists.first()?.1.created + age >= now {
            return None;
        }
        let (id, list) = self.lists.remove(0);
        *counter(&mut self.counters[usize::from(id.1)]) += list.packets.len() as u64;
        Some(list.packets.into_values().collect())
    }
}

/// Fragments of a few datagrams in random order, of which some are lost, doubled, or overlap others.
fn some_fragments(rng: &mut Rng) -> Vec<(Id, Packet)> {
    let mut all = Vec::new();
    for _ in 0..=rng.below(3) {
        let id = rng.below(10) as u32;
        let zone = 5 + rng.below(2) as u16;
        let family = if rng.below(2) == 0 { V4 } else { V6 };
        let headers = Headers {
            id,
            proto: [17, 6][rng.below(2) as usize],
            options: rng.below(3) as usize,
            tags: rng.below(2) as usize,
            padding: rng.below(3) as usize,
            ..family
        };
        let is_v6 = headers.family == Family::V6;
        let key = (zone, is_v6, id, if is_v6 { 0 } else { headers.proto });
        let len = if rng.below(60) == 0 { 60_000 + rng.below(6000) } else { 400 + rng.below(3000) } as usize;
        let datagram: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        let mut start = 0;
        while start < len {
            // Not often too small.
            let part = 8 * (42 + rng.below(130)) as usize;
            let stop = (start + part).min(len);
            let (from, more) = match rng.below(40) {
                0 => (start.saturating_sub(8), stop < len),
                1 => (start, stop == len),
                _ => (start, stop < len),
            };
            let odd = usize::from(rng.below(60) == 0 && stop < len);
            let packet = headers.fragment(&datagram[from..stop + odd], from, more);
            for _ in 0..[0, 2, 1][rng.below(30).min(2) as usize] {
                all.push((key, packet.clone()));
            }
            start = stop;
        }
        if rng.below(20) == 0 {
            all.push((key, headers.fragment(&[], 8 * rng.below(400) as usize, false)));
        }
    }
    all.retain(|(_, packet)| locate(packet.data()).is_some());
    for i in (1..all.len()).rev() {
        all.swap(i, rng.below(i as u64 + 1) as usize);
    }
    all
}

/// Checks the reassembled packet, translates addresses and the first bytes of the payload, and checks the fragments.
fn check_datagram(mut datagram: Datagram, payload: &[u8], packets: &[Packet], rng: &mut Rng) {
    let frame = datagram.whole.data();
    let (l3, _) = packet::wire::network(frame).unwrap();
    assert!(locate(frame).is_none() && frame.ends_with(payload));
    let ip = packet::wire::ip(frame).unwrap();
    assert_eq!(ip.end, frame.len());
    let headers = frame.len() - payload.len();
    assert!(ip.version == 6 || checksum(&frame[l3..headers]) == 0);
    let addresses = if ip.version == 6 { 8..40 } else { 12..20 };
    let changes = rng.below(2) == 0;
    let whole = datagram.whole.data_mut();
    if changes {
        whole[l3..][addresses.clone()].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
        let n = payload.len().min(8);
        whole[headers..headers + n].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
    }
    let (whole, mut out) = (whole.to_vec(), Vec::new());
    datagram.divide(&mut out);
    assert_eq!(out.len(), packets.len());
    for (packet, before) in out.iter().zip(packets) {
        let at = locate(packet.data()).unwrap();
        assert_eq!(packet.data()[at.l3..][addresses.clone()], whole[l3..][addresses.clone()]);
        assert_eq!(packet.data()[at.payload..at.end], whole[headers + at.offset..][..at.end - at.payload]);
        assert!(at.is_v6 || checksum(&packet.data()[at.l3..at.payload]) == 0);
        let mut expected = before.clone();
        let frame = expected.data_mut();
        frame[at.l3..][addresses.clone()].copy_from_slice(&whole[l3..][addresses.clone()]);
        frame[at.payload..at.end].copy_from_slice(&packet.data()[at.payload..at.end]);
        if !at.is_v6 {
            frame[at.l3 + 10..at.l3 + 12].copy_from_slice(&packet.data()[at.l3 + 10..at.l3 + 12]);
        }
        assert_eq!(*packet, expected);
        assert!(changes || packet == before);
    }
}

fn check_sums(fragments: &Fragments) {
    assert_eq!(fragments.held, fragments.lists.values().map(list::List::len).sum::<usize>());
    assert_eq!(fragments.bytes, fragments.lists.values().map(list::List::memory).sum::<usize>());
    assert_eq!(fragments.by_age.len(), fragments.lists.len());
    assert!(fragments.lists.values().all(|list| list.len() > 0 && !list.is_complete()));
}

#[test]
fn random_fragments_agree_with_a_naive_twin() {
    let (mut taken, mut completed, mut dropped) = (0, 0, 0);
    for seed in 0..300 {
        let mut rng = Rng::seeded(seed);
        let mut fragments = Fragments::new();
        let mut twin = Twin { max: [1000, 20, 6][seed as usize % 3], min: 400, ..Twin::default() };
        fragments.set_max_fragments(twin.max as u32).unwrap();
        fragments.set_min_size(Family::V4, 400).unwrap();
        fragments.set_min_size(Family::V6, 400).unwrap();
        let mut now = 1000;
        for _ in 0..8 {
            for (id, packet) in some_fragments(&mut rng) {
                taken += 1;
                let at = locate(packet.data()).unwrap();
                let expected = twin.take(id, &packet, now);
                match fragments.take(packet.clone(), &at, id.0, 1, Millis(now)) {
                    Taken::Held => assert_eq!(expected, Expected::Held),
                    Taken::Pass(same, reason) => {
                        assert_eq!(expected, Expected::Pass(reason), "{seed}");
                        assert_eq!(same, packet);
                    }
                    Taken::Complete(datagram) => {
                        let Expected::Complete(payload, packets) = expected else { panic!("{expected:?}") };
                        completed += packets.len();
                        check_datagram(datagram, &payload, &packets, &mut rng);
                    }
                }
                now += rng.below(200);
                let mut out = Vec::new();
                if rng.below(4) == 0 {
                    fragments.expire(Millis(now), &mut out);
                    assert_eq!(out, twin.drop_older(now, 15_000, |c| &mut c.expired).unwrap_or_default());
                }
                if rng.below(40) == 0 {
                    out.clear();
                    fragments.sweep(Millis(now), &mut out);
                    while let Some(packets) = twin.drop_older(now, 25_000, |c| &mut c.purged) {
                        assert_eq!(out.drain(..packets.len()).collect::<Vec<_>>(), packets);
                    }
                    assert_eq!(out.len(), 0);
                }
            }
            check_sums(&fragments);
            now += [0, 0, 16_000, 27_000][rng.below(4) as usize];
        }
        let status = fragments.status();
        assert_eq!([status.v4.counters, status.v6.counters], twin.counters);
        dropped += twin.counters.iter().map(|c| c.expired + c.purged).sum::<u64>();
        assert_eq!(
            fragments.lists().map(|list| (list.zone, list.id, list.fragments)).collect::<Vec<_>>(),
            twin.lists.iter().map(|(id, list)| (id.0, id.2, list.packets.len())).collect::<Vec<_>>()
        );
    }
    assert!(completed > 1000 && dropped > 1000);
    tally::report!("{taken} fragments, {completed} of complete datagrams, {dropped} dropped");
}

#[test]
fn memory_is_bounded() {
    let mut fragments = Fragments::new();
    fragments.set_max_fragments(FRAGMENTS_LIMIT).unwrap();
    let large = vec![0; 60_000];
    let mut full = 0;
    for id in 0..6000 {
        let packet = Headers { id, ..V6 }.fragment(&large, 0, true);
        let at = locate(packet.data()).unwrap();
        full += usize::from(matches!(fragments.take(packet, &at, 0, 1, Millis(0)), Taken::Pass(_, PassReason::Full)));
        assert!(fragments.bytes <= BYTES_MAX && fragments.held <= FRAGMENTS_LIMIT as usize);
    }
    check_sums(&fragments);
    assert_eq!(full, 6000 - fragments.held);
    // Many small fragments: their number is the limit.
    let mut fragments = Fragments::new();
    for id in 0..6000 {
        let packet = Headers { id, ..V4 }.fragment(b"end", 8000, false);
        let at = locate(packet.data()).unwrap();
        let taken = fragments.take(packet, &at, 0, 1, Millis(0));
        assert_eq!(matches!(taken, Taken::Held), id < 1000);
    }
    // One datagram of many fragments.
    let headers = Headers { options: 60, ..V6 };
    let mut fragments = Fragments::new();
    fragments.set_min_size(Family::V6, 400).unwrap();
    for n in 0..400 {
        let packet = headers.fragment(&[0; 8], 8 * n, true);
        let at = locate(packet.data()).unwrap();
        let taken = fragments.take(packet, &at, 0, 1, Millis(0));
        assert_eq!(matches!(taken, Taken::Held), n < PIECES_MAX);
    }
    let mut dropped = Vec::new();
    fragments.clear(&mut dropped);
    assert_eq!(dropped.len(), PIECES_MAX);
    check_sums(&fragments);
}
