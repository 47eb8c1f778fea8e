//! Translations of random packets, and of ICMP errors from several senders.

use super::*;
use crate::parse::frames::{Pair, bytes, frame, icmp, ip, ipv6, pair, partial, random, sctp, tcp, udp};
use crate::parse::parse;
use base::rng::Rng;
use packet::checksum::{Verdict, finish, verify};
use proptest::prelude::*;

/// A random tuple that a packet with key `from` may be translated to.
fn target(rng: &mut Rng, from: &Key) -> Key {
    let mut to = *from;
    let address = |rng: &mut Rng| {
        [if from.is_v6 { rng.next_u64() } else { 0 }, rng.next_u64() >> if from.is_v6 { 0 } else { 32 }]
    };
    let port = |rng: &mut Rng| 1 + rng.below(65535) as u16;
    let which = 1 + rng.below(15);
    if which & 1 != 0 {
        to.src = address(rng);
    }
    if which & 2 != 0 {
        to.dst = address(rng);
    }
    if which & 4 != 0 && from.src_port != 0 {
        to.src_port = port(rng);
    }
    if which & 8 != 0 && from.src_port != 0 && !from.is_icmp() {
        to.dst_port = port(rng);
    }
    to
}

fn both() -> Translated {
    Translated::new(true, true)
}

fn rewrite(packet: &mut Packet, to: &Key) {
    let parsed = parse(packet, to.zone).expect("a packet that can be tracked");
    match parsed.embedded {
        Some(_) => translate_error(packet, &parsed, to),
        None => translate(packet, &parsed, to, both()),
    }
}

tally::proptest! {
    #[test]
    fn there_and_back_restores_every_byte(seed: u64) {
        let mut rng = Rng::seeded(seed);
        let (bytes, _) = random(&mut rng);
        let mut packet = Packet::from_slice(&bytes);
        let parsed = parse(&packet, 3).expect("valid");
        let to = target(&mut rng, &parsed.key);
        rewrite(&mut packet, &to);
        prop_assert!(verify(packet.data()) != Verdict::Bad, "{bytes:02x?} {to:?} {:02x?}", packet.data());
        let translated = parse(&packet, 3).map(|parsed| parsed.key);
        prop_assert_eq!(translated, Ok(to), "{:02x?}", bytes);
        rewrite(&mut packet, &parsed.key);
        prop_assert_eq!(packet.data(), &bytes[..]);
    }

    #[test]
    fn plain_packets_are_translated_like_all_others(seed: u64, spoiled: bool, checksum in 0..3u8) {
        let mut rng = Rng::seeded(seed);
        let (bytes, _) = random(&mut rng);
        let mut packet = Packet::from_slice(&bytes);
        let parsed = parse(&packet, 3).expect("valid");
        let is_plain = !parsed.key.is_v6
            && parsed.l4 == parsed.l3 + IPV4_HEADER
            && matches!(parsed.key.proto, ipproto::TCP | ipproto::UDP);
        if is_plain {
            let start = parsed.l4 as u16;
            packet.offload.checksum =
                [Checksum::Unknown, Checksum::Good, Checksum::Partial { start, offset: 16 }][usize::from(checksum)];
            if spoiled {
                // Fields at the ends of their ranges are special.
                let at = if parsed.key.proto == ipproto::TCP { TCP_CHECKSUM } else { UDP_CHECKSUM };
                packet.data_mut()[parsed.l4 + at..][..2].fill([0, 0xff][usize::from(checksum % 2)]);
            }
            let to = target(&mut rng, &parsed.key);
            let mut plain = packet.clone();
            translate(&mut packet, &parsed, &to, both());
            translate_plain(&mut plain, parsed.l3, parsed.key.proto, &to);
            prop_assert_eq!(plain.data(), packet.data());
        }
    }

    #[test]
    fn a_packet_is_the_one_built_from_the_new_tuple(seed: u64) {
        let mut rng = Rng::seeded(seed);
        let old = pair(&mut rng);
        let payload = bytes(&mut rng, 33);
        let kind = rng.below(3);
        let build = |pair, src, dst| match kind {
            0 => (6, tcp(pair, src, dst, &payload)),
            1 => (17, udp(pair, src, dst, &payload)),
            _ => (132, sctp(src, dst, &[&[0, 3, 0, 37][..], &payload, &[0; 3]].concat())),
        };
        let (proto, l4) = build(old, 1, 2);
        let mut packet = Packet::from_slice(&frame(&[], &ip(old, proto, &l4)));
        let parsed = parse(&packet, 0).expect("valid");
        let to = target(&mut rng, &parsed.key);
        let translated = Translated::new(rng.below(4) > 0, rng.below(4) > 0);
        // An address that is not translated stays, and ports do not.
        let src = if translated.src() { to.src } else { parsed.key.src };
        let dst = if translated.dst() { to.dst } else { parsed.key.dst };
        let number = |half: [u64; 2]| u128::from(half[0]) << 64 | u128::from(half[1]);
        let new = match old {
            Pair::V4(..) => Pair::V4(src[1] as u32, dst[1] as u32),
            Pair::V6(..) => Pair::V6(number(src), number(dst)),
        };
        let expected = frame(&[], &ip(new, proto, &build(new, to.src_port, to.dst_port).1));
        let pending = partial(packet.data(), parsed.l4, parsed.end, old, proto);
        translate(&mut packet, &parsed, &to, translated);
        prop_assert_eq!(packet.data(), &expected[..]);
        // A partial checksum becomes that of the new tuple, too.
        let mut packet = pending.expect("a protocol with partial checksums");
        let parsed = parse(&packet, 0).expect("not verified");
        translate(&mut packet, &parsed, &to, translated);
        finish(&mut packet);
        prop_assert_eq!(packet.data(), &expected[..]);
    }

    #[test]
    fn wrong_checksums_stay_wrong(seed: u64) {
        let mut rng = Rng::seeded(seed);
        let (mut bytes, l4) = random(&mut rng);
        let end = parse(&Packet::from_slice(&bytes), 0).expect("valid").end;
        if end > l4 {
            bytes[end - 1] ^= 0x10;
        }
        let mut packet = Packet::from_slice(&bytes);
        packet.offload.checksum = Checksum::Good;
        let Ok(parsed) = parse(&packet, 0) else { return Ok(()) };
        let before = verify(&bytes);
        let to = target(&mut rng, &parsed.key);
        rewrite(&mut packet, &to);
        prop_assert_eq!(verify(packet.data()), before);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, l3 in 0..99usize, l4 in 0..99usize, end in 0..99usize, proto: u8, is_v6: bool, inner: bool) {
        let key = Key { proto: [proto, 6, 17, 1, 58, 132][usize::from(proto) % 6], is_v6, ..Key::default() };
        let embedded = inner.then_some(Embedded { l3: l4, l4: end, proto: key.proto });
        let mut packet = Packet::from_slice(&bytes);
        packet.offload.checksum = Checksum::Good;
        let parsed = Parsed { key, l3, l4, end, embedded };
        translate(&mut packet, &parsed, &Key { src: [1, 2], dst: [3, 4], src_port: 5, dst_port: 6, ..key }, both());
        translate_error(&mut packet, &parsed, &key);
    }
}

const CLIENT: u32 = 0x0a00_0001;
const SERVER: u32 = 0x0a00_0002;
const ROUTER: u32 = 0x0a00_0009;
const VIRTUAL: u32 = 0x0a02_0002;

/// The error that `from` sends about a datagram of the client to `SERVER`, and its key.
fn unreachable(from: u32) -> (Packet, Key) {
    let sent = ip(Pair::V4(CLIENT, SERVER), 17, &udp(Pair::V4(CLIENT, SERVER), 1, 2, b"abcdefgh"));
    let pair = Pair::V4(from, CLIENT);
    let packet = Packet::from_slice(&frame(&[], &ip(pair, 1, &icmp(pair, 3, 1, [0; 4], &sent))));
    let key = parse(&packet, 0).expect("valid").key;
    (packet, key)
}

#[test]
fn the_source_of_an_error_hides_a_translated_server() {
    for from in [SERVER, ROUTER] {
        let (mut packet, key) = unreachable(from);
        rewrite(&mut packet, &Key { src: [0, VIRTUAL.into()], src_port: 80, ..key });
        let sent = ip(Pair::V4(CLIENT, VIRTUAL), 17, &udp(Pair::V4(CLIENT, VIRTUAL), 1, 80, b"abcdefgh"));
        let pair = Pair::V4(VIRTUAL, CLIENT);
        assert_eq!(packet.data(), frame(&[], &ip(pair, 1, &icmp(pair, 3, 1, [0; 4], &sent))), "from {from:x}");
    }
}

#[test]
fn the_source_of_an_error_to_a_translated_client_stays() {
    for from in [SERVER, ROUTER] {
        let (mut packet, key) = unreachable(from);
        let inside = 0xc0a8_0007;
        rewrite(&mut packet, &Key { dst: [0, u64::from(inside)], dst_port: 9, ..key });
        let sent = ip(Pair::V4(inside, SERVER), 17, &udp(Pair::V4(inside, SERVER), 9, 2, b"abcdefgh"));
        let pair = Pair::V4(from, inside);
        assert_eq!(packet.data(), frame(&[], &ip(pair, 1, &icmp(pair, 3, 1, [0; 4], &sent))), "from {from:x}");
    }
}

#[test]
fn an_absent_udp_checksum_stays_absent() {
    let mut l4 = udp(Pair::V4(CLIENT, SERVER), 1, 2, b"abc");
    l4[6..8].fill(0);
    let mut packet = Packet::from_slice(&frame(&[], &ip(Pair::V4(CLIENT, SERVER), 17, &l4)));
    let key = parse(&packet, 0).expect("valid").key;
    rewrite(&mut packet, &Key { src_port: 7, dst: [0, 9], ..key });
    assert_eq!(packet.data()[40..42], [0, 0]);
}

#[test]
fn a_computed_udp_checksum_of_zero_is_sent_as_all_ones() {
    let from = Pair::V4(CLIENT, SERVER);
    let mut seen = 0;
    for src_port in 1..=u16::MAX {
        let mut packet = Packet::from_slice(&frame(&[], &ip(from, 17, &udp(from, 1, 2, b"abc"))));
        let key = parse(&packet, 0).expect("valid").key;
        rewrite(&mut packet, &Key { src_port, ..key });
        let field = &packet.data()[40..42];
        assert_ne!(field, [0, 0]);
        seen += usize::from(field == [0xff, 0xff]);
    }
    assert_eq!(seen, 1);
}

#[test]
fn the_final_destination_stays_under_a_checksum_that_others_verified() {
    let routing = [&[6, 2, 0, 1, 0, 0, 0, 0][..], &[9; 16]].concat();
    let last = u128::from_be_bytes([9; 16]);
    let build = |src, dst, in_sum| {
        frame(&[], &ipv6(src, dst, ipproto::ROUTING, &[&routing[..], &tcp(Pair::V6(src, in_sum), 1, 2, b"")].concat()))
    };
    for (checksum, first, then) in [(Checksum::Unknown, 2, 4), (Checksum::Good, last, last)] {
        let mut packet = Packet::from_slice(&build(1, 2, first));
        packet.offload.checksum = checksum;
        let key = parse(&packet, 0).expect("valid").key;
        rewrite(&mut packet, &Key { src: [0, 3], dst: [0, 4], ..key });
        assert_eq!(packet.data(), build(3, 4, then));
    }
}
