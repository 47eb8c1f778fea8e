//! Segments of a control connection through a helper: nothing panics, checksums and lengths stay correct, and what it expects
//! is announced.
#![no_main]

use base::Millis;
use conntrack::action::Helper;
use conntrack::alg::Expectations;
use conntrack::alg::assist::{Assistant, Context, unshift};
use conntrack::alg::ftp::scan;
use conntrack::conn::Related;
use conntrack::key::{Direction, Key, ipproto};
use conntrack::parse::Parsed;
use conntrack::table::Handle;
use fuzz::Input;
use packet::checksum::{Verdict, verify};
use packet::wire::{self, Ipv4Repr, Ipv6Repr, TcpRepr, UdpRepr};
use packet::{Checksum, Packet};
use std::num::NonZeroU64;

/// How many expectations there may be.
const EXPECTED_MAX: usize = 4;

/// A frame with a packet of a key, and a correct checksum unless it is to be partial.
fn frame(key: &Key, l4: &[u8], checksum_at: usize, is_partial: bool) -> Packet {
    let mut frame = vec![2; 12];
    if key.is_v6 {
        frame.extend([0x86, 0xdd]);
        let ip = |n: [u64; 2]| u128::from(n[0]) << 64 | u128::from(n[1]);
        let header = Ipv6Repr {
            src: ip(key.src),
            dst: ip(key.dst),
            next_header: key.proto,
            hop_limit: 64,
            ..Ipv6Repr::default()
        };
        header.emit(l4.len(), &mut frame);
    } else {
        frame.extend([8, 0]);
        let (src, dst) = (key.src[1] as u32, key.dst[1] as u32);
        let header = Ipv4Repr { src, dst, proto: key.proto, ttl: 64, ..Ipv4Repr::default() };
        header.emit(l4.len(), &mut frame);
    }
    frame.extend(l4);
    let ip = wire::ip(&frame).expect("a packet");
    let pseudo = wire::pseudo(&frame, &ip);
    let sum = if is_partial { pseudo.partial() } else { pseudo.bytes(&frame[ip.l4..]).finish() };
    frame[ip.l4 + checksum_at..ip.l4 + checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut packet = Packet::from_slice(&frame);
    if is_partial {
        packet.offload.checksum = Checksum::Partial { start: ip.l4 as u16, offset: checksum_at as u16 };
    }
    packet
}

/// The keys of both directions of a connection from 10.0.0.1 to 10.0.0.2, or from fc00::1 to fc00::2, with translations to
/// addresses of other lengths.
fn keys(input: &mut Input<'_>) -> [Key; 2] {
    let kinds = input.below(8);
    let is_v6 = kinds & 1 != 0;
    let net = if is_v6 { [0xfc00 << 48, 0] } else { [0, 10 << 24] };
    let host = |n: u64| [net[0], net[1] | n];
    let seen = |is_translated: bool, n: u64| if is_translated { 0x63_6363 } else { n };
    let (client, server) = (seen(kinds & 2 != 0, 1), seen(kinds & 4 != 0, 2));
    let proto = if input.below(8) == 0 { ipproto::UDP } else { ipproto::TCP };
    let original = Key { src: host(1), dst: host(server), src_port: 4000, dst_port: 21, zone: 0, proto, is_v6 };
    [original, Key { src: host(2), dst: host(client), src_port: 21, dst_port: 4000, ..original }]
}

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let keys = keys(&mut input);
    let helper = if keys[0].proto == ipproto::UDP { Helper::Tftp } else { Helper::Ftp };
    let expectations = Expectations::new(EXPECTED_MAX);
    let (mut related, handle): (Option<Box<Related>>, _) = (None, Handle(NonZeroU64::MIN));
    for now in 0..20 {
        if input.is_empty() {
            break;
        }
        let flags = input.below(32);
        let direction = if flags & 1 == 0 { Direction::Original } else { Direction::Reply };
        let (is_partial, translates) = (flags & 2 != 0, flags & 12 != 0);
        let key = keys[direction.index()];
        let (mut l4, at) = (Vec::new(), if helper == Helper::Ftp { 16 } else { 6 });
        let options = if helper == Helper::Ftp && flags & 16 != 0 { input.take(12) } else { &[] };
        let seq = input.number(1) as u32;
        let len = input.below(160);
        let payload = input.take(len);
        if helper == Helper::Ftp {
            let ack = u32::from(seq as u8 ^ 0x55);
            TcpRepr { src: key.src_port, dst: key.dst_port, seq, ack, flags: 0x18, window: 9 }.emit(&mut l4);
            l4.extend(options);
            l4.resize(20 + options.len().next_multiple_of(4), 0);
            l4[12] = (l4.len() as u8 / 4) << 4;
        } else {
            UdpRepr { src: key.src_port, dst: key.dst_port }.emit(payload.len(), &mut l4);
        }
        l4.extend(payload);
        let mut packet = frame(&key, &l4, at, is_partial);
        let ip = wire::ip(packet.data()).expect("a packet");
        let parsed = Parsed { key, l3: ip.at, l4: ip.l4, end: ip.end, embedded: None };
        if translates && let Some(shifts) = related.as_ref().and_then(|related| related.shifts.as_ref()) {
            unshift(&mut packet, &parsed, shifts, direction);
        }
        let before = packet.clone();
        let (has_dnat, mark, label) = (keys[0].dst != keys[1].src, 1, 2);
        let mut assistant = Assistant { helper, keys, has_dnat, mark, label, related: &mut related, handle };
        let context = Context { expectations: &expectations, translates, now: Millis(now) };
        let _ = assistant.assist(&mut packet, &parsed, direction, &context);
        assert!(translates || packet == before);
        packet::checksum::finish(&mut packet);
        assert_ne!(verify(packet.data()), Verdict::Bad, "{:02x?} {:02x?}", before.data(), packet.data());
        assert!(wire::ip(packet.data()).is_some_and(|ip| ip.end == packet.len()));
    }
    let expected = expectations.list();
    assert!(expected.len() <= EXPECTED_MAX && expectations.len() == expected.len());
    for expectation in expected {
        let first = Key { src_port: 5, ..expectation.key };
        assert_eq!(expectations.find(&first), Some(expectation));
    }
    // Offsets that do not fit the frame.
    let mut packet = Packet::from_slice(input.frame());
    let mut offset = || input.number(1) as usize;
    let parsed = Parsed { key: keys[0], l3: offset(), l4: offset(), end: offset(), embedded: None };
    let mut assistant = Assistant { helper, keys, has_dnat: false, mark: 0, label: 0, related: &mut related, handle };
    let context = Context { expectations: &expectations, translates: true, now: Millis(0) };
    let _ = assistant.assist(&mut packet, &parsed, Direction::Original, &context);
    let _ = scan(bytes, Direction::Reply, keys[0].is_v6);
});
