//! Named cases. Each holds for Open vSwitch, unless its comment names a difference.

use base::Millis;
use packet::checksum::{Verdict, verify};
use packet::{Checksum, Packet};

use super::frames::{Headers, V4, V6, complete, locate, passes, take, udp};
use crate::fragments::*;

fn counters(fragments: &Fragments, headers: &Headers) -> Counters {
    let status = fragments.status();
    if headers.family == Family::V6 { status.v6.counters } else { status.v4.counters }
}

#[test]
fn both_families_are_reassembled_and_divided() {
    for headers in [V4, V6, Headers { options: 2, tags: 1, padding: 9, ..V4 }, Headers { options: 3, ..V6 }] {
        let datagram = udp(&headers, 3008);
        let split = headers.split(&datagram, 1400);
        for order in [[0, 1, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0]] {
            let mut fragments = Fragments::new();
            let done = complete(&mut fragments, order.iter().map(|i| split[*i].clone()).collect());
            let frame = done.whole.data();
            assert_eq!(verify(frame), Verdict::Good);
            let ip = packet::wire::ip(frame).unwrap();
            assert!(!ip.fragment && ip.proto == 17 && ip.end == frame.len());
            assert_eq!(frame[ip.l4..], datagram);
            let mut out = Vec::new();
            done.divide(&mut out);
            assert_eq!(out, split);
            let expected = Counters { accepted: 3, completed: 3, ..Counters::default() };
            assert_eq!(counters(&fragments, &headers), expected);
            assert_eq!(fragments.status().fragments, 0);
        }
    }
}

#[test]
fn fragments_have_the_state_and_the_translation_of_the_whole() {
    for headers in [V4, V6] {
        let split = headers.split(&udp(&headers, 3008), 1400);
        let mut fragments = Fragments::new();
        let mut done = complete(&mut fragments, split.clone());
        let translated = Headers { src: 9, dst: 8, ..headers.clone() };
        let mut datagram = udp(&translated, 3008);
        datagram[2] ^= 0x55;
        let unfragmented = translated.split(&datagram, 1400);
        let (l3, _) = packet::wire::network(done.whole.data()).unwrap();
        let addresses = if headers.family == Family::V6 { l3 + 8..l3 + 40 } else { l3 + 10..l3 + 20 };
        done.whole.data_mut()[addresses.clone()].copy_from_slice(&unfragmented[0].data()[addresses]);
        let at = done.whole.len() - datagram.len();
        done.whole.data_mut()[at..].copy_from_slice(&datagram);
        let connection = &mut done.whole.metadata_mut().connection;
        (connection.state, connection.zone, connection.mark) = (0x21, 5, 77);
        let mut out = Vec::new();
        done.divide(&mut out);
        assert_eq!(out, unfragmented);
        for packet in &out {
            let connection = &packet.metadata().unwrap().connection;
            assert_eq!((connection.state, connection.zone, connection.mark), (0x21, 5, 77));
        }
    }
}

#[test]
fn headers_before_the_fragment_header_stay() {
    // Hop-by-hop options, a fragment header of a whole packet, and authentication of 12 bytes.
    let chain =
        [&[44, 0, 1, 4, 0, 0, 0, 0][..], &[51, 9, 0, 0, 1, 2, 3, 4], &[44, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]].concat();
    let datagram = udp(&V6, 3008);
    let mut fragments = Fragments::new();
    let mut packets = Vec::new();
    for packet in V6.split(&datagram, 1400) {
        let at = locate(packet.data()).unwrap();
        let mut frame = packet.data().to_vec();
        frame.splice(at.header..at.header, chain.iter().copied());
        let len = (frame.len() - at.l3 - 40) as u16;
        frame[at.l3 + 4..at.l3 + 7].copy_from_slice(&[(len >> 8) as u8, len as u8, 0]);
        let n = chain.len();
        let at = Fragment { header: at.header + n, payload: at.payload + n, end: at.end + n, ..at };
        packets.push((Packet::from_slice(&frame), at));
    }
    let before: Vec<Packet> = packets.iter().map(|(packet, _)| packet.clone()).collect();
    let taken = packets.into_iter().map(|(packet, at)| fragments.take(packet, &at, 5, 1, Millis(0))).last();
    let Some(Taken::Complete(done)) = taken else { panic!("{taken:?}") };
    let frame = done.whole.data();
    let ip = packet::wire::ip(frame).unwrap();
    assert_eq!((ip.proto, ip.l4 - ip.at, ip.end), (17, 40 + chain.len(), frame.len()));
    assert_eq!(frame[ip.l4..], datagram);
    let mut out = Vec::new();
    done.divide(&mut out);
    assert_eq!(out, before);
}

#[test]
fn a_disabled_family_passes() {
    let mut fragments = Fragments::new();
    let split = V4.split(&udp(&V4, 3008), 1400);
    assert!(matches!(take(&mut fragments, split[0].clone(), Millis(0)), Taken::Held));
    fragments.set_enabled(Family::V4, false);
    assert_eq!(passes(&mut fragments, split[2].clone()), PassReason::Disabled);
    let small = V4.fragment(&[0; 80], 0, true);
    assert_eq!(passes(&mut fragments, small), PassReason::TooSmall);
    assert_eq!(counters(&fragments, &V4), Counters { accepted: 1, too_small: 1, ..Counters::default() });
    fragments.set_enabled(Family::V6, false);
    assert_eq!(passes(&mut fragments, V4.fragment(&[0; 80], 0, true)), PassReason::Disabled);
    assert_eq!(counters(&fragments, &V4), Counters { accepted: 1, too_small: 1, ..Counters::default() });
    fragments.set_enabled(Family::V6, true);
    assert!(matches!(take(&mut fragments, V6.split(&udp(&V6, 3008), 1400).remove(0), Millis(0)), Taken::Held));
    fragments.set_enabled(Family::V4, true);
    complete(&mut fragments, split[1..].to_vec());
}

#[test]
fn small_fragments_pass_unless_they_are_the_last() {
    for (headers, min) in [(V4, 1200), (V6, 1280), (Headers { options: 1, ..V6 }, 1280)] {
        let mut fragments = Fragments::new();
        let overhead = if headers.family == Family::V6 { 48 + 8 * headers.options } else { 20 };
        let mut small = min - overhead - 1;
        small -= small % 8;
        let large = (min - overhead).next_multiple_of(8);
        let bytes = vec![0; large];
        assert_eq!(passes(&mut fragments, headers.fragment(&bytes[..small], 0, true)), PassReason::TooSmall);
        assert!(matches!(take(&mut fragments, headers.fragment(&bytes, 0, true), Millis(0)), Taken::Held));
        assert_eq!(counters(&fragments, &headers), Counters { accepted: 1, too_small: 1, ..Counters::default() });
    }
    let mut fragments = Fragments::new();
    assert!(matches!(take(&mut fragments, V4.fragment(b"last", 1400, false), Millis(0)), Taken::Held));
}

#[test]
fn duplicates_and_overlaps_pass_and_the_datagram_completes() {
    for headers in [V4, V6] {
        let datagram = udp(&headers, 3008);
        let split = headers.split(&datagram, 1400);
        let mut fragments = Fragments::new();
        assert!(matches!(take(&mut fragments, split[0].clone(), Millis(0)), Taken::Held));
        assert_eq!(passes(&mut fragments, split[0].clone()), PassReason::Overlap);
        assert_eq!(passes(&mut fragments, headers.fragment(&datagram[8..1408], 8, true)), PassReason::Overlap);
        assert!(matches!(take(&mut fragments, split[2].clone(), Millis(0)), Taken::Held));
        assert_eq!(passes(&mut fragments, split[2].clone()), PassReason::Overlap);
        assert_eq!(passes(&mut fragments, headers.fragment(&datagram[1400..2808], 1400, true)), PassReason::Overlap);
        complete(&mut fragments, vec![split[1].clone()]);
        let expected = Counters { accepted: 3, completed: 3, overlapped: 4, ..Counters::default() };
        assert_eq!(counters(&fragments, &headers), expected);
    }
}

/// Open vSwitch holds these fragments, and completes datagrams with two ends.
#[test]
fn fragments_that_contradict_the_end_pass() {
    let datagram = udp(&V4, 4208);
    let mut fragments = Fragments::new();
    assert!(matches!(take(&mut fragments, V4.fragment(&datagram[2800..3008], 2800, false), Millis(0)), Taken::Held));
    for (part, start, more) in
        [(&datagram[..1400], 4000, true), (&datagram[..1400], 4000, false), (&datagram[..1400], 1400, false)]
    {
        assert_eq!(passes(&mut fragments, V4.fragment(part, start, more)), PassReason::Overlap);
    }
    complete(
        &mut fragments,
        vec![V4.fragment(&datagram[..1400], 0, true), V4.fragment(&datagram[1400..2800], 1400, true)],
    );
}

/// Open vSwitch holds them until their time is over.
#[test]
fn impossible_lengths_pass() {
    for headers in [V4, V6] {
        let mut fragments = Fragments::new();
        let bytes = vec![0; 1401];
        assert_eq!(passes(&mut fragments, headers.fragment(&bytes, 0, true)), PassReason::Malformed);
        assert_eq!(passes(&mut fragments, headers.fragment(&bytes, 65528, false)), PassReason::Malformed);
        assert_eq!(fragments.lists().count(), 0);
    }
}

/// Open vSwitch fails to reassemble more than 65,515 bytes.
#[test]
fn the_longest_datagrams_are_reassembled() {
    for (headers, len) in
        [(V4, 65_515), (Headers { options: 10, ..V4 }, 65_475), (V6, 65_535), (Headers { options: 1, ..V6 }, 65_527)]
    {
        let bytes = vec![1; len + 1];
        let mut fragments = Fragments::new();
        let whole = complete(&mut fragments, headers.split(&bytes[..len], 1400)).whole;
        assert_eq!(packet::wire::ip(whole.data()).unwrap().end, whole.len());
        let mut split = headers.split(&bytes, 1400);
        let last = split.pop().unwrap();
        split.into_iter().for_each(|packet| assert!(matches!(take(&mut fragments, packet, Millis(0)), Taken::Held)));
        assert_eq!(passes(&mut fragments, last.clone()), PassReason::Malformed);
        // The first fragment, which determines the length of the headers, comes last.
        if headers.options > 0 {
            let mut fragments = Fragments::new();
            assert!(matches!(
                take(
                    &mut fragments,
                    Headers { options: 0, ..headers.clone() }.fragment(&bytes[..8], len & !7, false),
                    Millis(0)
                ),
                Taken::Held
            ));
            assert_eq!(passes(&mut fragments, headers.fragment(&bytes[..1400], 0, true)), PassReason::Malformed);
        }
    }
}

#[test]
fn an_empty_last_fragment_completes() {
    let datagram = udp(&V4, 2800);
    let mut split = V4.split(&datagram, 1400);
    split[1] = V4.fragment(&datagram[1400..], 1400, true);
    split.insert(0, V4.fragment(&[], 2800, false));
    let mut fragments = Fragments::new();
    let done = complete(&mut fragments, split.clone());
    let mut out = Vec::new();
    done.divide(&mut out);
    split.rotate_left(1);
    assert_eq!(out, split);
}

#[test]
fn the_limit_of_fragments_holds_for_the_completing_one_too() {
    let mut fragments = Fragments::new();
    fragments.set_max_fragments(3).unwrap();
    let (a, b) = (V4.split(&udp(&V4, 3008), 1400), Headers { id: 8, ..V4 }.split(&udp(&V4, 3008), 1400));
    for packet in [&a[0], &a[1], &b[0]] {
        assert!(matches!(take(&mut fragments, packet.clone(), Millis(0)), Taken::Held));
    }
    assert_eq!(passes(&mut fragments, b[1].clone()), PassReason::Full);
    assert_eq!(passes(&mut fragments, a[2].clone()), PassReason::Full);
    assert_eq!(counters(&fragments, &V4), Counters { accepted: 3, ..Counters::default() });
    assert_eq!(fragments.status().fragments, 3);
}

#[test]
fn settings_have_limits() {
    let mut fragments = Fragments::new();
    assert_eq!(fragments.set_min_size(Family::V4, 399), Err(SettingError::MinSize(399)));
    assert_eq!(fragments.set_min_size(Family::V4, 400), Ok(()));
    assert_eq!(fragments.set_min_size(Family::V6, u32::MAX), Ok(()));
    assert_eq!(fragments.set_max_fragments(5001), Err(SettingError::MaxFragments(5001)));
    assert_eq!(fragments.set_max_fragments(5000), Ok(()));
    let status = fragments.status();
    assert_eq!((status.v4.min_size, status.v6.min_size, status.max_fragments), (400, u32::MAX, 5000));
}

#[test]
fn datagrams_expire_one_a_call_15_seconds_after_their_first_fragment() {
    let mut fragments = Fragments::new();
    let mut dropped = Vec::new();
    let a = V4.split(&udp(&V4, 3008), 1400);
    let b = Headers { id: 8, ..V4 }.split(&udp(&V4, 3008), 1400);
    take(&mut fragments, a[0].clone(), Millis(1000));
    take(&mut fragments, b[0].clone(), Millis(1000));
    take(&mut fragments, a[1].clone(), Millis(9000));
    assert_eq!(fragments.deadline(), Some(Millis(16_000)));
    fragments.expire(Millis(16_000), &mut dropped);
    assert_eq!(dropped.len(), 0);
    fragments.expire(Millis(16_001), &mut dropped);
    assert_eq!(dropped, a[..2]);
    // The other one completes late.
    assert!(matches!(take(&mut fragments, b[1].clone(), Millis(20_000)), Taken::Held));
    assert!(matches!(take(&mut fragments, b[2].clone(), Millis(20_000)), Taken::Complete(_)));
    assert_eq!(counters(&fragments, &V4), Counters { accepted: 5, completed: 3, expired: 2, ..Counters::default() });
    assert_eq!(fragments.deadline(), None);
}

#[test]
fn a_sweep_drops_datagrams_10_seconds_after_their_deadline() {
    let mut fragments = Fragments::new();
    let mut dropped = Vec::new();
    for id in 0..60 {
        take(&mut fragments, Headers { id, ..V6 }.split(&udp(&V6, 3008), 1400).remove(0), Millis(0));
    }
    fragments.sweep(Millis(24_999), &mut dropped);
    assert_eq!(dropped.len(), 0);
    fragments.sweep(Millis(25_000), &mut dropped);
    assert_eq!(dropped.len(), 60);
    assert_eq!(counters(&fragments, &V6), Counters { accepted: 60, purged: 60, ..Counters::default() });
    take(&mut fragments, V4.split(&udp(&V4, 3008), 1400).remove(0), Millis(0));
    fragments.clear(&mut dropped);
    assert_eq!((dropped.len(), fragments.status().fragments, fragments.bytes), (61, 0, 0));
}

#[test]
fn datagrams_differ_by_zone_recirculation_addresses_id_and_protocol() {
    let mut fragments = Fragments::new();
    let first = |headers: &Headers| headers.split(&udp(headers, 3008), 1400).remove(0);
    let mut states = vec![first(&V4), first(&Headers { src: 3, ..V4 }), first(&Headers { dst: 3, ..V4 })];
    states.extend([first(&Headers { id: 9, ..V4 }), first(&Headers { proto: 6, ..V4 }), first(&V6)]);
    let mut recirculated = first(&V4);
    recirculated.recirc_id = 1;
    states.push(recirculated);
    for packet in states {
        assert!(matches!(take(&mut fragments, packet, Millis(0)), Taken::Held));
    }
    let packet = first(&V4);
    let at = locate(packet.data()).unwrap();
    assert!(matches!(fragments.take(packet, &at, 6, 1, Millis(0)), Taken::Held));
    // In IPv6, the first fragment states the protocol, and the others do not matter.
    let later = Headers { proto: 6, ..V6 }.fragment(b"later", 1400, false);
    let Taken::Complete(datagram) = take(&mut fragments, later, Millis(0)) else { panic!("not complete") };
    assert_eq!(packet::wire::ip(datagram.whole.data()).unwrap().proto, 17);
    let lists: Vec<_> = fragments.lists().collect();
    assert_eq!(lists.len(), 7);
    let expected = ListStatus {
        src: "10.0.0.1".parse().unwrap(),
        dst: "10.0.0.2".parse().unwrap(),
        recirc_id: 0,
        id: 7,
        family: Family::V4,
        zone: 5,
        proto: 17,
        fragments: 1,
        state: ListState::First,
    };
    assert_eq!(lists[0], expected);
    assert_eq!(lists[6], ListStatus { zone: 6, ..expected });
}

#[test]
fn lists_say_which_fragments_have_arrived() {
    let split = V4.split(&udp(&V4, 4208), 1400);
    for (present, state) in [
        (&[1][..], ListState::Other),
        (&[0, 1], ListState::First),
        (&[3, 2], ListState::Last),
        (&[3, 0], ListState::FirstLast),
    ] {
        let mut fragments = Fragments::new();
        present.iter().for_each(|i| drop(take(&mut fragments, split[*i].clone(), Millis(0))));
        let list = fragments.lists().next().unwrap();
        assert_eq!((list.state, list.fragments), (state, present.len()));
    }
}

#[test]
fn the_datagram_has_the_port_of_the_fragment_that_came_first() {
    let mut fragments = Fragments::new();
    let mut taken = Taken::Held;
    for (packet, port) in V4.split(&udp(&V4, 3008), 1400).into_iter().zip([3, 4, 5]) {
        let at = locate(packet.data()).unwrap();
        taken = fragments.take(packet, &at, 5, port, Millis(0));
    }
    let Taken::Complete(datagram) = taken else { panic!("not complete") };
    assert_eq!((datagram.in_port, datagram.fragments()), (3, 3));
}

#[test]
fn a_changed_length_changes_the_last_fragments() {
    for headers in [V4, V6] {
        let datagram = udp(&headers, 3008);
        for len in [3100, 3000, 2801, 2800, 2500, 1400, 8] {
            let mut fragments = Fragments::new();
            let mut done = complete(&mut fragments, headers.split(&datagram, 1400));
            let base = done.whole.len() - datagram.len();
            done.whole.truncate(base + len);
            done.whole.append(&vec![9; len.saturating_sub(datagram.len())]);
            let payload = done.whole.data()[base..].to_vec();
            assert_eq!(payload.len(), len);
            let mut out = Vec::new();
            done.divide(&mut out);
            let mut expected = headers.split(&payload[..len.min(2800)], 1400);
            if len > 2800 {
                expected[1] = headers.fragment(&payload[1400..2800], 1400, true);
                expected.push(headers.fragment(&payload[2800..], 2800, false));
            }
            assert_eq!(out, expected, "{len} bytes");
        }
    }
}

#[test]
fn the_whole_has_no_offload_flags() {
    let mut split = V4.split(&udp(&V4, 3008), 1400);
    split[0].offload.checksum = Checksum::Good;
    let done = complete(&mut Fragments::new(), split);
    assert_eq!(done.whole.offload.checksum, Checksum::Unknown);
}

#[test]
fn held_fragments_leave_large_and_lent_memory() {
    let frame = V4.split(&udp(&V4, 3008), 1400).remove(0);
    let mut large = Vec::with_capacity(65_536);
    large.extend_from_slice(frame.data());
    let large = Packet::from_vec(large, 0).unwrap();
    let mut lent = Packet::default();
    lent.lend(packet::Lent::new(frame.data().to_vec().leak()), 0);
    for packet in [large, lent] {
        let mut fragments = Fragments::new();
        assert!(matches!(take(&mut fragments, packet, Millis(0)), Taken::Held));
        assert!(fragments.bytes < 2500, "{}", fragments.bytes);
        let mut out = Vec::new();
        fragments.clear(&mut out);
        assert!(out[0].lent().is_none() && out[0].data() == frame.data());
    }
}

#[test]
fn descriptions_that_do_not_fit_the_frame_pass() {
    for headers in [V4, V6] {
        let packet = headers.split(&udp(&headers, 3008), 1400).remove(0);
        let at = locate(packet.data()).unwrap();
        let len = packet.len();
        for changed in [
            Fragment { l3: len, ..at },
            Fragment { l3: usize::MAX, ..at },
            Fragment { l3: at.l3 + 1, ..at },
            Fragment { payload: at.payload + 8, ..at },
            Fragment { payload: at.end + 8, ..at },
            Fragment { end: len + 8, ..at },
            Fragment { end: usize::MAX, ..at },
            Fragment { offset: usize::MAX, ..at },
            Fragment { offset: 65_528, ..at },
        ] {
            let mut fragments = Fragments::new();
            let taken = fragments.take(packet.clone(), &changed, 0, 0, Millis(0));
            assert!(matches!(taken, Taken::Pass(..)), "{changed:?}: {taken:?}");
        }
    }
}
