//! Tests of what the tracker does with its connections.

use super::*;
use crate::action::{Commit, Nat, NatKind, state};
use crate::key::ipproto;
use crate::parse::frames::{Pair, frame, ip, ipv4, udp, with_checksum};
use packet::metadata::Connection;

/// A TCP segment without options and payload, of the client's port to port 80, or back.
fn segment(client: u16, is_reply: bool, flags: u8, seq: u32, ack: u32) -> Packet {
    let (pair, ports) = (Pair::V4(0x0a00_0001, 0x0a00_0002), [client, 80]);
    let (pair, [src, dst]) = if is_reply { (pair.reversed(), [80, client]) } else { (pair, ports) };
    let mut l4 = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    l4.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    l4.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    Packet::from_slice(&frame(&[], &ip(pair, ipproto::TCP, &with_checksum(pair, ipproto::TCP, l4))))
}

/// The state of a packet that commits its connection.
fn track(tracker: &Tracker, mut packet: Packet, now: u64) -> u32 {
    let action = Action { commit: Some(Commit::Plain), ..Action::default() };
    let mut connection = Connection::default();
    tracker.track(&mut packet, &mut connection, &action, Millis(now));
    connection.state
}

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A sweep that passes the end of the table continues at its beginning.
#[test]
fn a_sweep_of_one_interval_visits_every_connection() {
    for first in [1, 3_000, 7_000, 13_000, 19_999] {
        let tracker = Tracker::new(first);
        for client in 1..=7 {
            assert_eq!(track(&tracker, segment(client, false, SYN, 1, 0), 0), state::TRK | state::NEW);
        }
        // The cursor comes to stand anywhere in the table.
        tracker.sweep(Millis(first));
        assert_eq!(tracker.connections(), 7);
        tracker.sweep(Millis(first + SWEEP_INTERVAL_MS + 30_000));
        assert_eq!(tracker.connections(), 0, "after {first} ms");
    }
}

/// After a reset, segments near the window belong to the connection, but it ends when it would have ended without them.
#[test]
fn segments_near_the_window_renew_no_timeout() {
    let tracker = Tracker::new(3);
    let expires = || {
        let mut expires = 0;
        tracker.visit(0, Millis(0), &mut |conn| expires = conn.life().expires().0);
        expires
    };
    assert_eq!(track(&tracker, segment(9, false, SYN, 1000, 0), 0), state::TRK | state::NEW);
    let established = state::TRK | state::EST | state::RPL;
    assert_eq!(track(&tracker, segment(9, true, SYN | ACK, 5000, 1001), 1000), established);
    assert_eq!(track(&tracker, segment(9, false, ACK, 1001, 5001), 2000), state::TRK | state::EST);
    assert_eq!(track(&tracker, segment(9, false, RST, 1001, 0), 3000), state::TRK | state::EST);
    assert_eq!(expires(), 33_000);
    // Far from what the other host has sent.
    assert_eq!(track(&tracker, segment(9, true, ACK, 5001, 900_000), 4000), established);
    assert_eq!(expires(), 33_000);
    assert_eq!(track(&tracker, segment(9, true, ACK, 5001, 1001), 5000), established);
    assert_eq!(expires(), 35_000);
}

/// A host may answer to an address that the sender of the SYN only pretends to have.
#[test]
fn the_end_of_the_handshake_assures_a_connection() {
    let answered = |segments: &[(bool, u8, u32, u32)]| {
        let tracker = Tracker::new(7);
        let mut assured = Vec::new();
        for &(is_reply, flags, seq, ack) in segments {
            track(&tracker, segment(9, is_reply, flags, seq, ack), 0);
            tracker.visit(0, Millis(0), &mut |conn| assured.push(conn.life().is_assured()));
        }
        assured
    };
    let (syn, syn_ack) = ((false, SYN, 1000, 0), (true, SYN | ACK, 5000, 1001));
    assert_eq!(answered(&[syn, syn_ack, syn_ack, (false, ACK, 1001, 5001)]), [false, false, false, true]);
    // It stays assured when it is closed, or reset.
    let (ack, reset) = ((false, ACK, 1001, 5001), (false, RST, 1001, 0));
    assert_eq!(answered(&[syn, syn_ack, ack, reset]), [false, false, true, true]);
    assert_eq!(answered(&[syn, syn_ack, reset]), [false; 3]);
    assert_eq!(answered(&[syn, (true, RST | ACK, 0, 1001)]), [false; 2]);
    // One that is older than the switch.
    assert_eq!(answered(&[ack, (true, ACK, 5001, 1001), (false, ACK, 1001, 5001)]), [false, false, true]);
}

/// A connection that another one replaces counts until it is removed.
#[test]
fn a_replaced_connection_counts_for_its_zone_until_the_sweep() {
    for is_forced in [true, false] {
        let tracker = Tracker::new(8);
        tracker.limits().set(0, 1);
        track(&tracker, segment(9, false, SYN, 1, 0), 0);
        let end = segment(9, true, RST | ACK, 0, 2);
        assert_eq!(track(&tracker, end, 0), state::TRK | state::EST | state::RPL);
        let successor = segment(9, is_forced, SYN, 9000, 0);
        let commit = if is_forced { Commit::Force } else { Commit::Plain };
        let action = Action { commit: Some(commit), ..Action::default() };
        let begin = |now| {
            let mut connection = Connection::default();
            tracker.track(&mut successor.clone(), &mut connection, &action, Millis(now));
            assert_eq!(connection.state, state::TRK | state::NEW);
            let mut seen = 0;
            tracker.visit(0, Millis(now), &mut |_| seen += 1);
            (connection.handle != 0, seen, tracker.limits().zone(0).count)
        };
        assert_eq!(begin(1000), (false, 0, 1));
        assert_eq!(begin(2000), (false, 0, 1));
        tracker.sweep(Millis(3000 + SWEEP_INTERVAL_MS));
        assert_eq!(tracker.limits().zone(0).count, 0);
        assert_eq!(begin(4000 + SWEEP_INTERVAL_MS), (true, 1, 1));
    }
}

/// Of a connection and its successor, only one takes room in a full table.
#[test]
fn a_replaced_connection_makes_room_for_its_successor() {
    let tracker = Tracker::new(9);
    let count = 200;
    tracker.set_connections_max(count);
    let open = |client: u16, isn: u32| {
        let (mut packet, mut connection) = (segment(client, false, SYN, isn, 0), Connection::default());
        let commit = Action { commit: Some(Commit::Plain), ..Action::default() };
        tracker.track(&mut packet, &mut connection, &commit, Millis(2));
        assert_eq!((connection.state, connection.handle != 0), (state::TRK | state::NEW, true), "client {client}");
        track(&tracker, segment(client, true, SYN | ACK, 5000, isn + 1), 2);
        assert_eq!(track(&tracker, segment(client, false, ACK, isn + 1, 5001), 2), state::TRK | state::EST);
    };
    (1..=count as u16).for_each(|client| open(client, 1000));
    // All others that the cursor may find are assured.
    for client in 1..=count as u16 {
        assert_eq!(track(&tracker, segment(client, false, RST, 1001, 0), 2), state::TRK | state::EST);
        open(client, 80_000);
        assert_eq!(tracker.connections(), count);
    }
}

/// The commit of a packet that an earlier action has found no connection for searches none; but another packet may have begun
/// it meanwhile.
#[test]
fn packets_of_one_batch_begin_one_connection() {
    let tracker = Tracker::new(4);
    let (look, commit) = (Action::default(), Action { commit: Some(Commit::Plain), ..Action::default() });
    let mut batch: Batch = [false, false, true].map(|is_reply| segment(8, is_reply, SYN, 1, 0)).into_iter().collect();
    tracker.track_all(&mut batch, &look, 1, Millis(0));
    let states = |batch: &Batch| -> Vec<(u32, bool)> {
        let connections = batch.iter().map(|packet| &packet.metadata().unwrap().connection);
        connections.map(|connection| (connection.state, connection.handle != 0)).collect()
    };
    assert_eq!(states(&batch), [(state::TRK | state::NEW, false); 3]);
    tracker.track_all(&mut batch, &commit, 1, Millis(0));
    assert_eq!(tracker.connections(), 1);
    // The opposite SYN belongs to it, too.
    assert_eq!(states(&batch), [(state::TRK | state::NEW, true); 3]);
}

/// The limit of a zone refuses new connections, and no packets of the ones that it has admitted.
#[test]
fn packets_of_one_batch_share_the_last_place_of_a_zone() {
    for limits_zone in [true, false] {
        let tracker = Tracker::new(6);
        if limits_zone {
            tracker.limits().set(0, 1);
        } else {
            tracker.set_connections_max(1);
        }
        let commit = Action { commit: Some(Commit::Plain), ..Action::default() };
        let mut batch: Batch = [8, 8, 9, 9].map(|port| segment(port, false, SYN, 1, 0)).into_iter().collect();
        tracker.track_all(&mut batch, &Action::default(), 1, Millis(0));
        tracker.track_all(&mut batch[..1].to_vec(), &commit, 1, Millis(0));
        assert_eq!(track(&tracker, segment(8, true, SYN | ACK, 5, 2), 0), state::TRK | state::EST | state::RPL);
        assert_eq!(track(&tracker, segment(8, false, ACK, 2, 6), 0), state::TRK | state::EST);
        tracker.track_all(&mut batch, &commit, 1, Millis(0));
        let handles: Vec<bool> = batch.iter().map(|p| p.metadata().unwrap().connection.handle != 0).collect();
        assert_eq!((tracker.connections(), &handles[..]), (1, &[true, true, false, false][..]));
    }
}

/// Actions for the fragments of a known connection may differ: at each action that tracks them, they meet again.
#[test]
fn fragments_are_tracked_as_a_whole_by_every_action() {
    let pair = Pair::V4(0x0a00_0001, 0x0a00_0002);
    let datagram = udp(pair, 4000, 53, &[7; 1600]);
    let piece =
        |bits, payload| Packet::from_slice(&frame(&[], &ipv4(0x0a00_0001, 0x0a00_0002, 17, &[], bits, payload)));
    let pieces = [piece(0x2000, &datagram[..1280]), piece(160, &datagram[1280..])];
    let tracker = Tracker::new(4);
    let plain = Action::default();
    let source = Nat {
        kind: Some(NatKind::Src),
        addresses: Some(([0, 0x0a00_0063], [0, 0x0a00_0063], false)),
        ..Nat::default()
    };
    let translating = Action { commit: Some(Commit::Plain), nat: Some(source), ..Action::default() };
    let step = |packets: &[Packet], action: &Action| {
        let mut batch: Batch = packets.to_vec();
        tracker.track_all(&mut batch, action, 1, Millis(1));
        batch
    };
    for is_known in [false, true] {
        assert!(step(&pieces[..1], &plain).is_empty());
        let tracked = step(&pieces[1..], &plain);
        assert_eq!(tracked.len(), 2);
        for (packet, (offset, len)) in tracked.iter().zip([(0, 1280), (1280, 328)]) {
            let connection = &packet.metadata().unwrap().connection;
            assert_eq!(connection.state, state::TRK | if is_known { state::EST } else { state::NEW });
            assert_eq!((connection.is_current, packet.data()[34..].len()), (false, len), "at {offset}");
        }
        assert!(step(&tracked[..1], &plain).is_empty());
        let sent = step(&tracked[1..], &translating);
        assert_eq!(sent.len(), 2);
        for packet in &sent {
            assert_eq!(packet.data()[26..30], [10, 0, 0, 99]);
            let known = if is_known { state::EST } else { state::NEW };
            assert_eq!(packet.metadata().unwrap().connection.state, state::TRK | state::SNAT | known);
        }
        // Only a reply establishes the connection.
        let pair = Pair::V4(0x0a00_0002, 0x0a00_0063);
        step(&[Packet::from_slice(&frame(&[], &ip(pair, ipproto::UDP, &udp(pair, 53, 4000, b""))))], &plain);
    }
    assert_eq!(tracker.with_fragments(|fragments| fragments.status().v4.counters.completed), 8);
}

/// A fragment with a wrong header checksum is refused, and holds up no others.
#[test]
fn fragments_with_a_wrong_checksum_are_invalid() {
    let mut bytes = frame(&[], &ipv4(0x0a00_0001, 0x0a00_0002, 17, &[], 0x2000, &[1; 1280]));
    bytes[24] ^= 1;
    let tracker = Tracker::new(5);
    let mut batch: Batch = vec![Packet::from_slice(&bytes)];
    tracker.track_all(&mut batch, &Action { zone: 3, ..Action::default() }, 1, Millis(0));
    let connection = &batch[0].metadata().unwrap().connection;
    assert_eq!((connection.state, connection.zone), (state::TRK | state::INV, 3));
    assert_eq!(tracker.with_fragments(|fragments| fragments.status().fragments), 0);
}

/// Of packets that begin one connection at the same time on two threads, all are translated as the connection is.
#[test]
fn packets_of_two_threads_that_begin_one_connection_are_all_translated() {
    let tracker = &Tracker::new(5);
    let source = Nat {
        kind: Some(NatKind::Src),
        addresses: Some(([0, 0x0a00_0063], [0, 0x0a00_0063], false)),
        ..Nat::default()
    };
    let action = &Action { commit: Some(Commit::Plain), nat: Some(source), ..Action::default() };
    let pair = Pair::V4(0x0a00_0001, 0x0a00_0002);
    let states = |port: u16| {
        let turn = &std::sync::atomic::AtomicUsize::new(0);
        let begin = move || {
            let mut packet = Packet::from_slice(&frame(&[], &ip(pair, ipproto::UDP, &udp(pair, port, 53, b""))));
            let mut connection = Connection::default();
            turn.fetch_add(1, Ordering::Relaxed);
            while turn.load(Ordering::Relaxed) < 2 {
                std::hint::spin_loop();
            }
            tracker.track(&mut packet, &mut connection, action, Millis(0));
            connection.state
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(begin);
            [begin(), other.join().expect("a state")]
        })
    };
    for port in 1..=400 {
        assert_eq!(states(port), [state::TRK | state::NEW | state::SNAT; 2], "{port}");
    }
}
