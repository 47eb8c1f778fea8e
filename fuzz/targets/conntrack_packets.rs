//! Sequences of packets, with `ct` actions: nothing panics, numbers stay bounded, each packet has a state afterwards, and
//! correct checksums stay correct.
#![no_main]

use base::Millis;
use conntrack::fragments::Family;
use conntrack::key::ipproto;
use conntrack::{Action, Commit, Helper, Nat, NatKind, Tracker, state};
use fuzz::Input;
use packet::checksum::{Verdict, finish, verify};
use packet::wire::{self, Ipv4Repr, Ipv6Repr};
use packet::{Batch, Checksum, Packet};
use std::collections::HashSet;

/// Few connections, so that they are evicted.
const CONNECTIONS_MAX: u64 = 6;
const STEPS_MAX: u64 = 60;
/// Offsets of checksums in transport headers.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

fn action(input: &mut Input<'_>) -> Action {
    let mut action = Action { zone: [0, 1, 65535][input.below(3)], ..Action::default() };
    let flags = input.below(256);
    action.commit = [None, Some(Commit::Plain), Some(Commit::Plain), Some(Commit::Force)][flags & 3];
    if flags & 4 != 0 {
        action.mark = Some((input.number(1) as u32 & 0xf, 0xff));
    }
    if flags & 8 != 0 {
        action.label = Some((input.number(1) << 90, 0xff << 90));
    }
    action.helper = [None, None, Some(Helper::Ftp), Some(Helper::Tftp)][flags >> 4 & 3];
    if flags & 64 != 0 {
        let kind = [None, Some(NatKind::Src), Some(NatKind::Dst)][input.below(3)];
        let (low, is_v6) = (input.number(1) as u64 | 1, flags & 128 != 0);
        let net = if is_v6 { [0xfc00 << 48, 0] } else { [0, 10 << 24] };
        let addresses = (low != 255).then_some(([net[0], net[1] | low], [net[0], net[1] | low | 3], is_v6));
        let port = input.number(1) as u16;
        let ports = (port != 0).then_some((port, port | 3));
        action.nat =
            Some(Nat { kind, addresses, ports, persistent: port & 1 != 0, hash: false, random: port & 2 != 0 });
    }
    action
}

/// A transport header and payload between few ports.
fn transport(input: &mut Input<'_>, proto: u8) -> Vec<u8> {
    let port = |input: &mut Input<'_>| [21u16, 69, 1000, 5000][input.below(4)].to_be_bytes();
    let mut l4 = Vec::new();
    match proto {
        ipproto::TCP => {
            l4.extend([port(input), port(input)].concat());
            l4.extend([0, 0, 0, input.number(1) as u8, 0, 0, 0, input.number(1) as u8, 0x50, input.number(1) as u8]);
            l4.extend([0x20, 0, 0, 0, 0, 0]);
        }
        ipproto::UDP => l4.extend([&port(input)[..], &port(input), &[0; 4]].concat()),
        ipproto::SCTP => l4.extend([&port(input)[..], &port(input), &[0; 8]].concat()),
        ipproto::ICMP | ipproto::ICMPV6 => l4.extend([input.number(1) as u8, 0, 0, 0, 0, 7, 0, 1]),
        _ => {}
    }
    let len = input.below(120);
    l4.extend(input.take(len));
    if proto == ipproto::UDP {
        let len = l4.len() as u16;
        l4[4..6].copy_from_slice(&len.to_be_bytes());
    }
    l4
}

/// A packet between few hosts, at times a fragment, with a correct checksum unless its offload flags vouch for it.
fn packet(input: &mut Input<'_>) -> Packet {
    let flags = input.below(64);
    if flags == 63 {
        return Packet::from_slice(input.frame());
    }
    let is_v6 = flags & 1 != 0;
    let icmp = if is_v6 { ipproto::ICMPV6 } else { ipproto::ICMP };
    let proto = [ipproto::TCP, ipproto::TCP, ipproto::UDP, ipproto::SCTP, icmp, 47][input.below(6)];
    let l4 = transport(input, proto);
    let mut frame = vec![2; 12];
    let host = |input: &mut Input<'_>| 1 + input.below(3) as u128;
    let (src, dst) = (host(input), host(input));
    if is_v6 {
        let net = 0xfc00 << 112;
        frame.extend([0x86, 0xdd]);
        let header =
            Ipv6Repr { src: net | src, dst: net | dst, next_header: proto, hop_limit: 64, ..Ipv6Repr::default() };
        header.emit(l4.len(), &mut frame);
    } else {
        let net = 10 << 24;
        frame.extend([8, 0]);
        let (src, dst) = (net | src as u32, net | dst as u32);
        Ipv4Repr { src, dst, proto, ttl: 64, ..Ipv4Repr::default() }.emit(l4.len(), &mut frame);
    }
    frame.extend(l4);
    let mut packet = Packet::from_slice(&frame);
    let ip = wire::ip(&frame).expect("a packet");
    let at = match proto {
        ipproto::TCP => TCP_CHECKSUM,
        ipproto::UDP => UDP_CHECKSUM,
        _ => {
            packet.offload.checksum = Checksum::Good;
            return packet;
        }
    };
    let sum = wire::pseudo(&frame, &ip).partial();
    packet.data_mut()[ip.l4 + at..ip.l4 + at + 2].copy_from_slice(&sum.to_be_bytes());
    packet.offload.checksum = Checksum::Partial { start: ip.l4 as u16, offset: at as u16 };
    if flags & 2 != 0 {
        finish(&mut packet);
        packet.offload.checksum = Checksum::Unknown;
    }
    if flags & 60 == 60 && !is_v6 {
        fragment(&mut packet, input);
    }
    packet
}

/// Makes an IPv4 packet a fragment.
fn fragment(packet: &mut Packet, input: &mut Input<'_>) {
    let field = (input.below(2) << 13 | input.below(32)) as u16;
    let header = &mut packet.data_mut()[14..34];
    header[6..8].copy_from_slice(&field.to_be_bytes());
    header[10..12].fill(0);
    let sum = packet::checksum::checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let tracker = Tracker::new(7);
    tracker.set_connections_max(CONNECTIONS_MAX);
    tracker.with_fragments(|fragments| fragments.set_min_size(Family::V4, 400).expect("above the minimum"));
    let (mut now, mut batch) = (1, Batch::new());
    for step in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.below(16) {
            0 => now += input.number(2) as u64 * 16,
            1 => {
                tracker.sweep(Millis(now));
            }
            2 => {
                let mark = input.number(1) as u32;
                tracker.flush(&mut |conn| conn.mark == mark);
            }
            3 => {
                tracker.limits().set(input.below(2) as u16, input.below(4) as u32);
            }
            4 => tracker.set_checks_sequence(step & 1 == 0),
            // The packets of the step before, as after recirculation.
            5..8 => {}
            _ => batch = (0..1 + input.below(3)).map(|_| packet(&mut input)).collect(),
        }
        let action = action(&mut input);
        let bad = batch.iter().filter(|packet| verify(packet.data()) == Verdict::Bad).count();
        let partial = batch.iter().filter(|packet| packet.offload.checksum != Checksum::Unknown).count();
        let count = batch.len();
        tracker.track_all(&mut batch, &action, 1, Millis(now));
        for packet in &batch {
            let connection = &packet.metadata().expect("a packet has a state").connection;
            assert!(connection.state & state::TRK != 0 && connection.zone == action.zone);
        }
        // Fragments of complete datagrams join the batch.
        if batch.len() == count {
            let after = batch.iter().filter(|packet| verify(packet.data()) == Verdict::Bad).count();
            assert!(after <= bad + partial, "{action:?}");
        }
        assert!(tracker.connections() <= CONNECTIONS_MAX);
    }
    let (mut keys, mut count) = (HashSet::new(), 0);
    tracker.flush(&mut |conn| {
        count += 1;
        assert!(keys.insert(conn.original));
        assert!(conn.original == conn.reply || keys.insert(conn.reply));
        false
    });
    assert_eq!(tracker.connections(), count);
    tracker.flush(&mut |_| true);
    assert!(tracker.connections() == 0 && tracker.expectations().is_empty());
    assert_eq!([0, 1].map(|zone| tracker.limits().zone(zone).count), [0, 0]);
});
