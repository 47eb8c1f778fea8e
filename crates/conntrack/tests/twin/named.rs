//! Named cases, and packets that no host should send.

use base::Millis;
use base::rng::Rng;
use conntrack::tracker::Step;
use conntrack::{Action, Commit, Nat, NatKind, Tracker, state};
use packet::checksum::{self, Verdict};
use packet::metadata::Connection;
use packet::{Batch, Checksum, Gso, GsoKind, Packet};

use super::frames;
use super::packets::{Flow, ICMP, ICMPV6, SCTP, TCP, UDP, network, seal};
use super::scenario;
use super::tcp::{ACK, SYN};

const NEW: u32 = state::TRK | state::NEW;
const INV: u32 = state::TRK | state::INV;
const NOW: Millis = Millis(1000);

pub(crate) fn flow4(proto: u8, src: u128, dst: u128, a: u16, b: u16) -> Flow {
    let net = 0x0a00_0000;
    Flow { zone: 0, proto, v6: false, src: net | src, dst: net | dst, a, b }
}

fn flow6(proto: u8, a: u16, b: u16) -> Flow {
    let net = 0xfc00 << 112;
    Flow { zone: 0, proto, v6: true, src: net | 1, dst: net | 2, a, b }
}

pub(crate) fn syn(flow: &Flow) -> Packet {
    Packet::from_slice(&frames::frame(flow, &frames::tcp(flow, 1, 0, SYN, 8000, &[], b""), 1, false, false))
}

pub(crate) fn udp(flow: &Flow) -> Packet {
    Packet::from_slice(&frames::frame(flow, &frames::udp(flow, b"text", true), 1, false, false))
}

pub(crate) fn commit(zone: u16) -> Action {
    Action { zone, commit: Some(Commit::Plain), ..Action::default() }
}

fn track(tracker: &Tracker, packet: Packet, action: &Action) -> (Packet, Connection) {
    let mut batch: Batch = vec![packet];
    tracker.track_all(&mut batch, action, 1, NOW);
    let packet = batch.pop().expect("the packet is no fragment");
    let connection = packet.metadata().map(|metadata| metadata.connection.clone()).unwrap_or_default();
    (packet, connection)
}

/// Where the transport header of a frame is.
fn transport(frame: &[u8]) -> usize {
    let l3 = network(frame);
    l3 + if frame[l3] >> 4 == 6 { 40 } else { 20 }
}

/// A frame of each kind that is tracked.
fn samples() -> Vec<Vec<u8>> {
    let (tcp, udp) = (flow4(TCP, 1, 2, 1000, 80), flow4(UDP, 1, 2, 1000, 53));
    let (tcp6, echo) = (flow6(TCP, 1000, 80), flow4(ICMP, 1, 2, 7, 0x0800));
    let (echo6, sctp) = (flow6(ICMPV6, 7, 0x8000), flow4(SCTP, 1, 2, 1000, 80));
    let init = [0, 0, 0, 1, 0, 0, 0, 9, 0, 1, 0, 1, 0, 0, 0, 4];
    let error = Flow { b: 0x0301, ..flow4(ICMP, 2, 1, 0, 0) };
    let inner = frames::frame(&tcp, &frames::tcp(&tcp, 1, 0, SYN, 8000, &[], b""), 1, false, false).split_off(14);
    vec![
        frames::frame(&tcp, &frames::tcp(&tcp, 1, 0, SYN, 8000, &[3, 3, 7, 0], b""), 1, false, false),
        frames::frame(&tcp, &frames::tcp(&tcp, 1, 0, SYN, 8000, &[], b""), 1, true, false),
        frames::frame(&tcp6, &frames::tcp(&tcp6, 1, 0, SYN, 8000, &[], b""), 1, false, false),
        frames::frame(&udp, &frames::udp(&udp, b"text", true), 1, false, false),
        frames::frame(&echo, &frames::icmp(&echo, b"text"), 1, false, false),
        frames::frame(&echo6, &frames::icmp(&echo6, b"text"), 1, false, false),
        frames::frame(&sctp, &frames::sctp(&sctp, 0, 1, &init), 1, false, false),
        frames::frame(&error, &frames::icmp(&error, &inner), 1, false, false),
    ]
}

#[test]
fn the_last_zone_is_one_of_its_own() {
    let tracker = Tracker::new(1);
    let flow = flow4(TCP, 1, 2, 1000, 80);
    for zone in [0, 65534, 65535] {
        let (_, connection) = track(&tracker, syn(&flow), &commit(zone));
        assert_eq!((connection.state, connection.zone), (NEW, zone));
    }
    assert_eq!(tracker.connections(), 3);
    assert_eq!(tracker.flush(&mut |conn| conn.original.zone == 65535), 1);
    let (_, connection) = track(&tracker, syn(&flow.back()), &Action { zone: 65535, ..Action::default() });
    assert_eq!((connection.state, connection.handle), (NEW, 0));
    let (_, connection) = track(&tracker, syn(&flow), &Action { zone: 65534, ..Action::default() });
    assert_eq!(connection.state, NEW);
    assert_ne!(connection.handle, 0);
}

#[test]
fn a_limit_of_zero_is_none_and_a_limit_refuses_what_is_above() {
    let tracker = Tracker::new(1);
    tracker.limits().set_default(3);
    tracker.limits().set(5, 0);
    for port in 1..=20 {
        let flow = flow4(UDP, 1, 2, port, 53);
        let (_, unlimited) = track(&tracker, udp(&flow), &commit(5));
        assert_eq!(unlimited.state, NEW);
        assert_ne!(unlimited.handle, 0);
        let marked = Action { mark: Some((7, u32::MAX)), ..commit(6) };
        let (_, limited) = track(&tracker, udp(&flow), &marked);
        let is_admitted = port <= 3;
        assert_eq!((limited.state, limited.handle != 0), (NEW, is_admitted));
        assert_eq!(limited.mark, if is_admitted { 7 } else { 0 });
    }
    assert_eq!((tracker.limits().zone(5).count, tracker.limits().zone(6).count), (20, 3));
    tracker.flush(&mut |_| true);
    assert_eq!((tracker.limits().zone(5).count, tracker.limits().zone(6).count), (0, 0));
}

#[test]
fn a_flood_of_syns_displaces_syns_only() {
    const MAX: u64 = 500;
    let tracker = Tracker::new(1);
    tracker.set_connections_max(MAX);
    let established = flow4(TCP, 1, 2, 1000, 80);
    track(&tracker, syn(&established), &commit(0));
    let back = established.back();
    let answer = frames::tcp(&back, 1, 2, SYN | ACK, 8000, &[], b"");
    let answer = Packet::from_slice(&frames::frame(&back, &answer, 1, false, false));
    assert_eq!(track(&tracker, answer, &commit(0)).1.state, state::TRK | state::EST | state::RPL);
    let last = frames::tcp(&established, 2, 2, ACK, 8000, &[], b"");
    let last = Packet::from_slice(&frames::frame(&established, &last, 1, false, false));
    assert_eq!(track(&tracker, last.clone(), &commit(0)).1.state, state::TRK | state::EST);
    let (mut rng, count, mut committed) = (Rng::seeded(5), 20_000, 0);
    for _ in 0..count {
        let flow = flow4(TCP, 0x10000 | u128::from(rng.below(0xffff)), 2, 1 + rng.below(65535) as u16, 80);
        let (_, connection) = track(&tracker, syn(&flow), &commit(0));
        assert_eq!(connection.state, NEW);
        committed += u64::from(connection.handle != 0);
        // Some have the addresses of hosts, which are answered, and answer nothing.
        if rng.below(2) == 0 {
            let answer = frames::tcp(&flow.back(), 1, 2, SYN | ACK, 8000, &[], b"");
            let answer = Packet::from_slice(&frames::frame(&flow.back(), &answer, 1, false, false));
            track(&tracker, answer, &commit(0));
        }
        assert!(tracker.connections() <= MAX);
    }
    assert_eq!(tracker.connections(), MAX);
    assert!(committed > count * 99 / 100, "{committed} of {count}");
    let mut slots = 0;
    let mut from = Some(0);
    while let Some(at) = from {
        (from, slots) = (tracker.visit(at, NOW, &mut |_| {}), slots + 1);
    }
    assert!(slots <= 1 + (2 * MAX).div_ceil(256), "the table has {slots} parts");
    assert_eq!(track(&tracker, last, &commit(0)).1.state, state::TRK | state::EST);
    tally::report!("{count} SYNs at {MAX} connections, {committed} committed");
}

#[test]
fn a_connection_without_translation_takes_no_replies_of_another() {
    let tracker = Tracker::new(1);
    let inside = flow4(UDP, 1, 9, 1000, 53);
    let outside = flow4(UDP, 8, 9, 1000, 53);
    let address = [0, 0x0a00_0008];
    let nat = Nat { kind: Some(NatKind::Src), addresses: Some((address, address, false)), ..Nat::default() };
    let (_, translated) = track(&tracker, udp(&inside), &Action { nat: Some(nat.clone()), ..commit(0) });
    assert_eq!(translated.state, NEW | state::SNAT);
    // Neither without translation, nor with a commit by force.
    for commit in [commit(0), Action { commit: Some(Commit::Force), ..commit(0) }] {
        let (_, refused) = track(&tracker, udp(&outside), &commit);
        assert_eq!((refused.state, refused.handle), (NEW, 0));
    }
    let restore = Action { nat: Some(Nat::default()), ..Action::default() };
    let (packet, reply) = track(&tracker, udp(&outside.back()), &restore);
    assert_eq!((reply.state, reply.handle), (state::TRK | state::EST | state::RPL | state::DNAT, translated.handle));
    assert_eq!(super::packets::read(packet.data(), false, 0).map(|read| read.flow), Some(inside.back()));
    // Its own address as that of the translation gives it another port.
    let own = Nat { addresses: Some(([0; 2], [0; 2], false)), ..nat };
    let (packet, moved) = track(&tracker, udp(&outside), &Action { nat: Some(own), ..commit(0) });
    assert_eq!(moved.state, NEW | state::SNAT);
    let seen = super::packets::read(packet.data(), false, 0).map(|read| read.flow);
    assert_eq!(seen, Some(Flow { a: 1001, ..outside }));
}

#[test]
fn a_connection_by_force_leaves_the_address_that_it_does_not_translate() {
    let tracker = Tracker::new(1);
    let to = |kind, address: u64, ports| {
        let address = [0, 0x0a00_0000 | address];
        Some(Nat { kind: Some(kind), addresses: Some((address, address, false)), ports, ..Nat::default() })
    };
    let flow = flow4(UDP, 1, 9, 1000, 53);
    track(&tracker, udp(&flow), &Action { nat: to(NatKind::Src, 8, Some((5000, 5000))), ..commit(0) });
    let reply = flow4(UDP, 9, 8, 53, 5000);
    let restore = Action { nat: Some(Nat::default()), ..Action::default() };
    let replace = Action { commit: Some(Commit::Force), nat: to(NatKind::Src, 7, None), ..Action::default() };
    let sent = |dst| Flow { src: 0x0a00_0007, dst, ..reply };
    // The connection begins with the packet as it arrived; later packets go where that one was sent to.
    for (state, dst) in [(NEW | state::SNAT, flow.src), (NEW | state::SNAT, reply.dst)] {
        let mut batch: Batch = vec![udp(&reply)];
        tracker.track_all(&mut batch, &restore, 1, NOW);
        tracker.track_all(&mut batch, &replace, 1, NOW);
        assert_eq!(batch[0].metadata().map(|metadata| metadata.connection.state), Some(state));
        let seen = super::packets::read(batch[0].data(), false, 0).map(|read| read.flow);
        assert_eq!(seen, Some(sent(dst)));
    }
    assert_eq!(tracker.connections(), 1);
}

#[test]
fn a_packet_that_is_cut_anywhere_is_invalid() {
    let tracker = Tracker::new(1);
    let mut count = 0;
    for sample in samples() {
        for len in 0..sample.len() {
            let (packet, connection) = track(&tracker, Packet::from_slice(&sample[..len]), &commit(3));
            assert_eq!(packet.data(), &sample[..len]);
            assert_eq!(
                connection,
                Connection { state: INV, zone: 3, ..Connection::default() },
                "{len} of {sample:02x?}"
            );
            count += 1;
        }
    }
    assert_eq!(tracker.connections(), 0);
    // Also with the length of the rest in the IP header, as far as the transport header is not complete.
    for sample in samples() {
        let (l3, l4) = (network(&sample), transport(&sample));
        let v6 = sample[l3] >> 4 == 6;
        let tcp = if v6 { sample[l3 + 6] } else { sample[l3 + 9] } == TCP;
        for len in l4..l4 + if tcp { 20 } else { 8 } {
            let mut frame = sample[..len].to_vec();
            let total = (len - if v6 { l4 } else { l3 }) as u16;
            let at = l3 + if v6 { 4 } else { 2 };
            frame[at..at + 2].copy_from_slice(&total.to_be_bytes());
            if !v6 {
                frame[l3 + 10..l3 + 12].fill(0);
                let sum = checksum::checksum(&frame[l3..l3 + 20]);
                frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
            }
            let mut packet = Packet::from_slice(&frame);
            packet.offload.checksum = Checksum::Good;
            assert_eq!(track(&tracker, packet, &commit(3)).1.state, INV, "{frame:02x?}");
            count += 1;
        }
    }
    tally::report!("{count} packets");
}

#[test]
fn lengths_that_contradict_the_packet_are_invalid() {
    let tracker = Tracker::new(1);
    let flow = flow4(UDP, 1, 2, 1000, 53);
    let tcp = flow4(TCP, 1, 2, 1000, 80);
    let datagram = frames::frame(&flow, &frames::udp(&flow, b"text", true), 1, false, false);
    let segment = frames::frame(&tcp, &frames::tcp(&tcp, 1, 0, SYN, 8000, &[], b"text"), 1, false, false);
    let flow6 = flow6(UDP, 1000, 53);
    let datagram6 = frames::frame(&flow6, &frames::udp(&flow6, b"text", true), 1, false, false);
    // A byte, its value, and whether the packet is valid with it.
    let cases: [(&[u8], usize, u8, bool); 14] = [
        (&datagram, 14, 0x44, false),
        (&datagram, 14, 0x4f, false),
        (&datagram, 14 + 3, 19, false),
        (&datagram, 14 + 3, 27, false),
        (&datagram, 14 + 3, 33, false),
        (&datagram, 34 + 5, 7, false),
        (&datagram, 34 + 5, 13, false),
        // The datagram ends before the packet.
        (&datagram, 34 + 5, 9, true),
        (&segment, 34 + 12, 0x40, false),
        (&segment, 34 + 12, 0x70, false),
        (&segment, 34 + 12, 0x60, true),
        (&datagram6, 14 + 5, 13, false),
        (&datagram6, 14 + 5, 7, false),
        (&datagram6, 54 + 5, 13, false),
    ];
    for (frame, at, value, is_valid) in cases {
        let mut frame = frame.to_vec();
        frame[at] = value;
        if frame[14] == 0x45 {
            frame[24..26].fill(0);
            let sum = checksum::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let mut packet = Packet::from_slice(&frame);
        packet.offload.checksum = Checksum::Good;
        let expected = if is_valid { NEW } else { INV };
        assert_eq!(track(&tracker, packet, &Action::default()).1.state, expected, "{value:#x} at {at}");
    }
    // Padding is not part of the packet.
    let padded = [&datagram[..], &[0xee; 18]].concat();
    assert_eq!(track(&tracker, Packet::from_slice(&padded), &Action::default()).1.state, NEW);
}

#[test]
fn random_bytes_never_panic() {
    let tracker = Tracker::new(1);
    tracker.set_connections_max(50);
    let (mut rng, samples) = (Rng::seeded(6), samples());
    let (rounds, mut held, mut kinds) = (60_000, 0, [0u32; 2]);
    for round in 0..rounds {
        let mut frame = samples[rng.below(samples.len() as u64) as usize].clone();
        match rng.below(4) {
            0 => frame = (0..rng.below(120)).map(|_| rng.next_u64() as u8).collect(),
            1 => frame.truncate(rng.below(frame.len() as u64) as usize),
            _ => {}
        }
        for _ in 0..rng.below(4) {
            let at = 12 + rng.below(60) as usize;
            if let Some(byte) = frame.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        if rng.below(2) == 0 && frame.len() >= 34 && frame[14] == 0x45 {
            frame[24..26].fill(0);
            let sum = checksum::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let mut packet = Packet::from_slice(&frame);
        packet.offload.checksum = match rng.below(4) {
            0 => Checksum::Unknown,
            1 => Checksum::Partial { start: rng.below(80) as u16, offset: rng.below(20) as u16 },
            _ => Checksum::Good,
        };
        if rng.below(8) == 0 {
            packet.l3_type = scenario::one(&mut rng, &[Some(0x0800), Some(0x86dd), Some(0x0806)]);
        }
        packet.tags = rng.below(4) as i8 - 1;
        if rng.below(4) == 0 {
            packet.metadata_mut().connection = Connection {
                state: rng.next_u64() as u32,
                zone: rng.below(3) as u16,
                handle: rng.below(1 << 33),
                is_current: rng.below(2) == 0,
                is_reply: rng.below(2) == 0,
                is_error: rng.below(2) == 0,
                ..Connection::default()
            };
        }
        let zone = rng.below(3) as u16;
        let action = scenario::action(&mut rng, zone);
        let mut batch: Batch = vec![packet];
        tracker.track_all(&mut batch, &action, 1, Millis(round * 7));
        held += usize::from(batch.is_empty());
        if let Some(metadata) = batch.first().and_then(|packet| packet.metadata()) {
            assert_eq!(metadata.connection.zone, zone);
            kinds[usize::from(metadata.connection.state & state::INV != 0)] += 1;
        }
        assert!(tracker.connections() <= 50);
    }
    assert!(tracker.with_fragments(|fragments| fragments.status().fragments) <= 1000);
    tally::report!("{rounds} packets: {} valid, {} invalid, {held} fragments held", kinds[0], kinds[1]);
}

#[test]
fn a_packet_to_be_segmented_is_translated_with_its_partial_checksum() {
    let tracker = Tracker::new(1);
    for (flow, kind, v6) in [
        (flow4(TCP, 1, 2, 1000, 80), GsoKind::TcpV4, false),
        (flow6(TCP, 1000, 80), GsoKind::TcpV6, true),
        (flow4(UDP, 1, 2, 1000, 53), GsoKind::UdpL4, false),
    ] {
        let text = vec![0x55; 20_000];
        let l4 = if flow.proto == TCP {
            frames::tcp(&flow, 1, 1, ACK, 8000, &[], &text)
        } else {
            frames::udp(&flow, &text, true)
        };
        let frame = frames::frame(&flow, &l4, 1, false, true);
        let mut packet = Packet::from_slice(&frame);
        let (start, offset) = (transport(&frame) as u16, if flow.proto == TCP { 16 } else { 6 });
        packet.offload.checksum = Checksum::Partial { start, offset };
        packet.offload.gso = Some(Gso { kind, size: 1400, ecn: false });
        let offload = packet.offload;
        let address = if v6 { [0xfc00 << 48, 0x99] } else { [0, 0x0a00_0099] };
        let addresses = Some((address, address, v6));
        let nat = Nat { kind: Some(NatKind::Src), addresses, ports: Some((4000, 4000)), ..Nat::default() };
        let (mut packet, connection) = track(&tracker, packet, &Action { nat: Some(nat), ..commit(0) });
        assert_eq!(connection.state, NEW | state::SNAT);
        assert_eq!(packet.offload, offload);
        let src = u128::from(address[0]) << 64 | u128::from(address[1]);
        let seen = Flow { src, a: 4000, ..flow };
        let mut expected = frame.clone();
        let read = super::packets::read(&frame, true, 0).expect("a packet");
        super::packets::rewrite(&mut expected, &read, &seen, true);
        assert_eq!(packet.data(), expected);
        checksum::finish(&mut packet);
        assert_eq!(checksum::verify(packet.data()), Verdict::Good);
        let mut whole = expected.clone();
        seal(&mut whole, network(&expected), false);
        assert_eq!(packet.data(), whole);
    }
}

#[test]
fn a_memo_belongs_to_one_direction_of_one_connection() {
    let tracker = Tracker::new(1);
    let flow = flow4(UDP, 1, 2, 1000, 53);
    let tracked = |flow: &Flow, action: &Action| -> Option<(u32, Connection)> {
        let mut connection = Connection::default();
        match tracker.track(&mut udp(flow), &mut connection, action, NOW) {
            Step::Tracked(memo) => Some((memo, connection)),
            _ => None,
        }
    };
    assert_eq!(tracked(&flow, &Action::default()), None);
    let (first, there) = tracked(&flow, &commit(0)).expect("committed");
    assert_eq!((there.is_reply, first), (false, 0));
    tracker.set_memo((there.handle, there.is_reply), 11);
    let (second, back) = tracked(&flow.back(), &commit(0)).expect("known");
    assert_eq!((back.handle, back.is_reply, second), (there.handle, true, 0));
    tracker.set_memo((back.handle, back.is_reply), 22);
    assert_eq!(tracked(&flow, &commit(0)).map(|(memo, _)| memo), Some(11));
    assert_eq!(tracked(&flow.back(), &commit(0)).map(|(memo, _)| memo), Some(22));
    // A packet of another connection, in another zone, or without one.
    assert_eq!(tracked(&flow, &commit(1)).map(|(memo, _)| memo), Some(0));
    assert_eq!(tracked(&flow4(UDP, 1, 2, 1001, 53), &commit(0)).map(|(memo, _)| memo), Some(0));
    // The connection begins anew in the other direction.
    let force = Action { commit: Some(Commit::Force), ..Action::default() };
    let (third, anew) = tracked(&flow.back(), &force).expect("committed");
    assert_ne!(anew.handle, there.handle);
    assert_eq!((anew.is_reply, third), (false, 0));
    // What names the old one has no effect.
    tracker.set_memo((there.handle, there.is_reply), 33);
    assert_eq!(tracked(&flow, &commit(0)).map(|(memo, _)| memo), Some(0));
    assert_eq!(tracked(&flow.back(), &commit(0)).map(|(memo, _)| memo), Some(0));
    tracker.set_memo((0, false), 44);
}

#[test]
fn a_translated_reply_that_is_forced_begins_a_connection_as_it_arrived() {
    let tracker = Tracker::new(1);
    let (flow, address) = (flow4(UDP, 1, 2, 1000, 53), [0, 0x0a00_0063]);
    let nat = Nat { kind: Some(NatKind::Src), addresses: Some((address, address, false)), ..Nat::default() };
    track(&tracker, udp(&flow), &Action { nat: Some(nat), ..commit(0) });
    let arrives = flow4(UDP, 2, 0x63, 53, 1000);
    let (packet, connection) =
        track(&tracker, udp(&arrives), &Action { nat: Some(Nat::default()), ..Action::default() });
    assert_eq!(connection.state, state::TRK | state::EST | state::RPL | state::DNAT);
    let force = Action { commit: Some(Commit::Force), ..Action::default() };
    let (packet, connection) = track(&tracker, packet, &force);
    assert_eq!((connection.state, connection.original), (NEW, Some(arrives.shown())));
    assert_eq!(packet.data()[30..34], [10, 0, 0, 1]);
    let mut flows = Vec::new();
    tracker.flush(&mut |conn| {
        flows.push(conn.keys().each_ref().map(Flow::of));
        false
    });
    assert_eq!(flows, [[arrives, arrives.back()]]);
}

#[test]
fn fragments_of_a_known_connection_are_translated_by_a_later_action() {
    let tracker = Tracker::new(1);
    let flow = flow4(UDP, 1, 2, 1000, 53);
    let address = [0, 0x0a00_0099];
    let nat = Nat { kind: Some(NatKind::Src), addresses: Some((address, address, false)), ..Nat::default() };
    track(&tracker, udp(&flow), &Action { nat: Some(nat), ..commit(0) });
    let frame = frames::frame(&flow, &frames::udp(&flow, &[7; 3000], true), 5, false, false);
    let pieces = frames::fragments(&frame, &[160], 5);
    let mut batch: Batch = pieces.iter().map(|piece| Packet::from_slice(piece)).collect();
    assert_eq!(tracker.track_all(&mut batch, &Action::default(), 1, NOW), 0);
    assert_eq!(batch.len(), 2);
    tracker.track_all(&mut batch, &Action { nat: Some(Nat::default()), ..Action::default() }, 1, NOW);
    assert_eq!(batch.len(), 2);
    for packet in &batch {
        assert_eq!(packet.data()[26..30], [10, 0, 0, 0x99]);
        let connection = packet.metadata().map(|metadata| metadata.connection.clone()).expect("tracked");
        assert_eq!(connection.state, NEW | state::SNAT);
    }
}

#[test]
fn fragments_that_were_tracked_before_wait_again() {
    let tracker = Tracker::new(1);
    let (flow, other) = (flow4(UDP, 1, 2, 1000, 53), flow4(UDP, 1, 2, 1001, 53));
    let pieces = |flow: &Flow, id: u16| {
        let frame = frames::frame(flow, &frames::udp(flow, &[7; 3000], true), id, false, false);
        frames::fragments(&frame, &[160], id).iter().map(|piece| Packet::from_slice(piece)).collect::<Batch>()
    };
    track(&tracker, udp(&flow), &commit(0));
    let mut batch = pieces(&flow, 1);
    tracker.track_all(&mut batch, &Action::default(), 1, NOW);
    assert_eq!(batch.len(), 2);
    // One of them leaves the batch, and a fragment of another datagram joins it.
    batch.pop();
    batch.push(pieces(&other, 2).remove(0));
    tracker.track_all(&mut batch, &Action::default(), 1, NOW);
    assert_eq!(batch.len(), 0);
    assert_eq!(tracker.with_fragments(|fragments| fragments.status().fragments), 2);
}

#[test]
fn an_expected_connection_has_the_mark_of_the_action_that_announces_it() {
    let tracker = Tracker::new(1);
    let flow = flow4(TCP, 1, 2, 1000, 21);
    let helper = Some(conntrack::Helper::Ftp);
    track(&tracker, syn(&flow), &Action { helper, ..commit(0) });
    let back = flow.back();
    let answer = frames::tcp(&back, 1, 2, SYN | ACK, 8000, &[], b"");
    track(&tracker, Packet::from_slice(&frames::frame(&back, &answer, 1, false, false)), &Action::default());
    let line = frames::tcp(&flow, 2, 2, ACK, 8000, &[], b"PORT 10,0,0,1,19,136\r\n");
    let marking = Action { mark: Some((5, u32::MAX)), label: Some((6, u128::MAX)), ..commit(0) };
    track(&tracker, Packet::from_slice(&frames::frame(&flow, &line, 1, false, false)), &marking);
    let (_, data) = track(&tracker, syn(&flow4(TCP, 2, 1, 20, 5000)), &Action::default());
    assert_eq!((data.state, data.mark, data.label), (NEW | state::REL, 5, 6));
}

#[test]
fn a_sweep_after_the_whole_interval_visits_the_whole_table() {
    let tracker = Tracker::new(1);
    for round in 0..40u64 {
        for port in 1..=300 {
            let mut batch: Batch = vec![udp(&flow4(UDP, u128::from(round) + 1, 2, port, 53))];
            tracker.track_all(&mut batch, &commit(0), 1, Millis(round * 100_000));
        }
        // Leaves the cursor in the middle of the table.
        tracker.sweep(Millis(round * 100_000 + 1 + round * 97 % 9000));
        tracker.sweep(Millis(round * 100_000 + 90_000));
        assert_eq!(tracker.connections(), 0, "round {round}");
    }
}
