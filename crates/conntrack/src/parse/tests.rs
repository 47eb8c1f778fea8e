//! Packets that are tracked or refused as by Open vSwitch 4.0, and properties of random ones.

use super::frames::{Pair, frame, icmp, ip, ipv4, ipv6, random, sctp, tcp, udp, with_checksum};
use super::*;
use base::rng::Rng;
use packet::Checksum;
use packet::checksum::{Verdict, verify};
use packet::wire::{Icmp, Ipv4, Ipv6, Transport, Udp};
use proptest::prelude::*;

const V4: Pair = Pair::V4(0x0a00_0001, 0x0a00_0002);
const V6: Pair = Pair::V6(0xfd00 << 112 | 1, 0xfd00 << 112 | 2);

fn parsed(frame: &[u8]) -> Result<Parsed, Refusal> {
    parse(&Packet::from_slice(frame), 7)
}

/// Parses an IP packet behind an Ethernet header.
fn parsed_ip(ip: &[u8]) -> Result<Parsed, Refusal> {
    parsed(&frame(&[], ip))
}

/// Protocol, ports and zone of an IP packet that can be tracked.
fn key_of(ip: &[u8]) -> Option<(u8, u16, u16)> {
    parsed_ip(ip).ok().map(|parsed| (parsed.key.proto, parsed.key.src_port, parsed.key.dst_port))
}

/// The key by the views of the packet crate, for valid packets that are no ICMP errors.
fn naive(frame: &[u8]) -> Option<Key> {
    let found = wire::ip(frame)?;
    let number = |n: u128| [(n >> 64) as u64, n as u64];
    let header = &frame[found.at..];
    let (src, dst) = match found.version {
        4 => (
            number(Ipv4::new_checked(header).expect("whole").src().into()),
            number(Ipv4::new_checked(header).expect("whole").dst().into()),
        ),
        _ => (
            number(Ipv6::new_checked(header).expect("whole").src()),
            number(Ipv6::new_checked(header).expect("whole").dst()),
        ),
    };
    let l4 = &frame[found.l4..found.end];
    let (src_port, dst_port) = match Transport::of(found.proto) {
        Some(Transport::Tcp | Transport::Udp | Transport::Sctp) => {
            (Udp::new_checked(l4).expect("whole").src(), Udp::new_checked(l4).expect("whole").dst())
        }
        Some(Transport::Icmp | Transport::Icmpv6) => {
            let kind = Icmp::new_checked(l4).expect("whole").kind();
            if !matches!(kind, 0 | 8 | 128 | 129) {
                return None;
            }
            (u16::from_be_bytes([l4[4], l4[5]]), u16::from(kind) << 8)
        }
        None => (0, 0),
    };
    Some(Key { src, dst, src_port, dst_port, zone: 7, proto: found.proto, is_v6: found.version == 6 })
}

/// The headers of a packet that [`parse_known`] takes.
fn known(frame: &[u8]) -> Option<Head<'_>> {
    let found = wire::ip(frame).filter(|ip| ip.version == 4 && ip.header == 20 && !ip.fragment)?;
    let is_known = matches!(Transport::of(found.proto), Some(Transport::Tcp | Transport::Udp));
    Head::at(frame, found.at).filter(|_| is_known)
}

tally::proptest! {
    #[test]
    fn valid_packets_have_the_naive_key(seed: u64) {
        let (bytes, l4) = random(&mut Rng::seeded(seed));
        prop_assert!(verify(&bytes) != Verdict::Bad, "{bytes:02x?}");
        let parsed = parsed(&bytes).map_err(|refusal| TestCaseError::fail(format!("{refusal:?} {bytes:02x?}")))?;
        prop_assert_eq!(parsed.l4, l4);
        let ip = wire::ip(&bytes).expect("IP");
        prop_assert_eq!((parsed.l3, parsed.end), (ip.at, ip.end));
        match naive(&bytes) {
            Some(key) => prop_assert_eq!(parsed.key, key),
            None => {
                // The embedded packet, whole and by itself, has the key reversed.
                let embedded = parsed.embedded.expect("an error");
                let outer = parsed.key.reversed();
                prop_assert_eq!(outer.proto, embedded.proto);
                let inner = frame(&[], &bytes[embedded.l3..parsed.end]);
                if let Some(key) = naive(&inner) {
                    prop_assert_eq!(key, outer);
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_under_a_checksum_is_detected(seed: u64, at: u16, bit in 0..8u8) {
        let (mut bytes, l4) = random(&mut Rng::seeded(seed));
        let before = parsed(&bytes).expect("valid");
        if Transport::of(wire::ip(&bytes).expect("IP").proto).is_some() {
            let at = l4 + usize::from(at) % (before.end - l4);
            bytes[at] ^= 1 << bit;
            // A UDP checksum of zero is none.
            let is_udp = before.key.proto == ipproto::UDP && before.embedded.is_none();
            let unchecked = is_udp && bytes[l4 + 6..l4 + 8] == [0, 0];
            prop_assert!(parsed(&bytes).is_err() || unchecked, "{bytes:02x?}");
        }
    }

    #[test]
    fn known_headers_give_the_same_result(seed: u64, spoiled in 0..3u8, at: u16, value: u8, checksum in 0..3u8) {
        let (mut bytes, _) = random(&mut Rng::seeded(seed));
        if spoiled == 0 {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        if let Some(head) = known(&bytes) {
            let mut packet = Packet::from_slice(&bytes);
            packet.offload.checksum =
                [Checksum::Unknown, Checksum::Good, Checksum::Partial { start: 34, offset: 6 }][usize::from(checksum)];
            prop_assert_eq!(parse_known(&packet, 7, &head), parse(&packet, 7));
            prop_assert_eq!(parse(&packet, 7), parse_any(&packet, 7));
        }
    }

    #[test]
    fn no_bytes_panic(seed: u64, changes: Vec<(u16, u8)>, len: u16, l3: bool) {
        let (mut bytes, _) = random(&mut Rng::seeded(seed));
        for (at, value) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(usize::from(len) % 300);
        let mut packet = Packet::from_slice(&bytes);
        packet.offload.checksum = Checksum::Good;
        if l3 {
            packet.l3_type = Some(0x86dd);
        }
        match parse(&packet, 7) {
            Ok(Parsed { l3, l4, end, embedded, .. }) => {
                prop_assert!(l3 < l4 && l4 <= end && end <= bytes.len());
                if let Some(Embedded { l3, l4: inner, .. }) = embedded {
                    prop_assert!(l4 < l3 && l3 < inner && inner <= end);
                }
            }
            Err(Refusal::Fragment(Fragment { l3, header, payload, end, .. })) => {
                prop_assert!(l3 <= header && header < payload && payload <= end && end <= bytes.len());
            }
            Err(_) => {}
        }
    }
}

#[test]
fn lengths_of_transport_headers_are_checked() {
    let segment = |offset: u8, payload: &[u8]| {
        let mut l4 = tcp(V4, 1, 2, payload);
        l4[12] = offset << 4;
        ip(V4, 6, &with_checksum(V4, 6, l4))
    };
    let accepted: Vec<u8> = (0..16).filter(|n| key_of(&segment(*n, &[0; 12])).is_some()).collect();
    assert_eq!(accepted, [5, 6, 7, 8]);
    assert_eq!(parsed_ip(&ip(V4, 6, &tcp(V4, 1, 2, &[])[..19])), Err(Refusal::Malformed));
    let datagram = |len: u8| {
        let mut l4 = udp(V4, 1, 2, b"abc");
        l4[5] = len;
        ip(V4, 17, &with_checksum(V4, 17, l4))
    };
    let accepted: Vec<u8> = (0..20).filter(|n| key_of(&datagram(*n)).is_some()).collect();
    assert_eq!(accepted, [8, 9, 10, 11]);
    assert_eq!(parsed_ip(&ip(V4, 17, &udp(V4, 1, 2, &[])[..7])), Err(Refusal::Malformed));
}

#[test]
fn ports_of_zero_are_malformed() {
    for (src, dst) in [(0, 1), (1, 0), (0, 0)] {
        assert_eq!(parsed_ip(&ip(V4, 6, &tcp(V4, src, dst, &[]))), Err(Refusal::Malformed));
        assert_eq!(parsed_ip(&ip(V6, 17, &udp(V6, src, dst, &[]))), Err(Refusal::Malformed));
        assert_eq!(parsed_ip(&ip(V4, 132, &sctp(src, dst, &[]))), Err(Refusal::Malformed));
    }
}

#[test]
fn a_udp_checksum_of_zero_is_valid_in_ipv4_only() {
    for (pair, valid) in [(V4, true), (V6, false)] {
        let mut l4 = udp(pair, 1, 2, b"abc");
        l4[6..8].fill(0);
        assert_eq!(parsed_ip(&ip(pair, 17, &l4)).is_ok(), valid);
        l4[6..8].fill(0xff);
        assert_eq!(parsed_ip(&ip(pair, 17, &l4)), Err(Refusal::L4Checksum));
    }
}

#[test]
fn chunks_of_sctp_fill_the_packet() {
    let valid: [&[u8]; 5] =
        [b"", b"\0\0\0\x04", b"\x03\0\0\x04\0\0\0\x04", b"\x0a\0\0\x05abcd", b"\x0a\0\0\x05a\0\0\0"];
    for chunks in valid {
        assert_eq!(key_of(&ip(V4, 132, &sctp(1, 2, chunks))), Some((132, 1, 2)), "{chunks:?}");
    }
    let malformed: [&[u8]; 7] = [
        b"\x0a\0\0\x05a",
        b"\x0a\0\0\x08abcd\0\0\0\x03",
        b"\x0a\0\0\x08abcd\0\0",
        b"\x01\0\0\x07abc",
        b"\x01\0\0",
        b"\x01\0\0\0",
        b"\x01\0\0\x28abcd",
    ];
    for chunks in malformed {
        assert_eq!(parsed_ip(&ip(V4, 132, &sctp(1, 2, chunks))), Err(Refusal::Malformed), "{chunks:?}");
    }
    let mut l4 = sctp(1, 2, &[]);
    l4[8..12].fill(0);
    assert_eq!(parsed_ip(&ip(V4, 132, &l4)), Err(Refusal::L4Checksum));
    assert_eq!(parsed_ip(&ip(V4, 132, &l4[..11])), Err(Refusal::Malformed));
}

#[test]
fn icmp_requests_and_replies_have_identifiers() {
    let tracked = |pair, code| -> Vec<u8> {
        let proto = super::frames::icmp_of(pair);
        let parses = |kind| key_of(&ip(pair, proto, &icmp(pair, kind, code, [0, 5, 0, 1], b""))).is_some();
        (0..=255).filter(|kind| parses(*kind)).collect()
    };
    assert_eq!(tracked(V4, 0), [0, 8, 13, 14, 15, 16]);
    assert_eq!(tracked(V6, 0), [128, 129]);
    assert!(tracked(V4, 1).is_empty() && tracked(V6, 1).is_empty());
    assert_eq!(key_of(&ip(V4, 1, &icmp(V4, 8, 0, [0, 5, 0, 1], b""))), Some((1, 5, 0x0800)));
    // A message that is cut off is verified first.
    assert_eq!(parsed_ip(&ip(V4, 1, &icmp(V4, 8, 0, [0, 5, 0, 1], b"")[..7])), Err(Refusal::L4Checksum));
    assert_eq!(parsed_ip(&ip(V4, 1, &[8, 0, 0xf7, 0xff])), Err(Refusal::Malformed));
    // Over the other IP version they are protocols without ports.
    assert_eq!(key_of(&ip(V4, 58, &icmp(V4, 128, 0, [0, 5, 0, 1], b""))), Some((58, 0, 0)));
    assert_eq!(key_of(&ip(V6, 1, &icmp(V6, 8, 0, [0, 5, 0, 1], b""))), Some((1, 0, 0)));
}

#[test]
fn protocols_without_ports_are_tracked() {
    for proto in [2, 33, 47, 50, 136] {
        assert_eq!(key_of(&ip(V4, proto, b"")), Some((proto, 0, 0)));
    }
    assert_eq!(key_of(&ip(V6, 59, b"")), Some((59, 0, 0)));
    assert_eq!(key_of(&ip(V6, 50, b"12345678")), Some((50, 0, 0)));
}

/// An ICMP error from a router, with this type, to the source of `inner`.
fn error(kind: u8, inner: &[u8]) -> Vec<u8> {
    let pair = Pair::V4(0x0a00_0009, 0x0a00_0001);
    ip(pair, 1, &icmp(pair, kind, 9, [0; 4], inner))
}

/// An ICMPv6 error from a router, with this type, to the source of `inner`.
fn error6(kind: u8, inner: &[u8]) -> Vec<u8> {
    let pair = Pair::V6(0xfd00 << 112 | 9, 0xfd00 << 112 | 1);
    ip(pair, 58, &icmp(pair, kind, 9, [0; 4], inner))
}

#[test]
fn errors_have_the_key_of_the_opposite_direction() {
    let inner = ip(V4, 17, &udp(V4, 1, 2, b"abcdefgh"));
    let accepted: Vec<u8> = (0..=255).filter(|kind| key_of(&error(*kind, &inner)) == Some((17, 2, 1))).collect();
    assert_eq!(accepted, [3, 4, 5, 11, 12]);
    let inner = ip(V6, 17, &udp(V6, 1, 2, b"abcdefgh"));
    let accepted: Vec<u8> = (0..=255).filter(|kind| key_of(&error6(*kind, &inner)) == Some((17, 2, 1))).collect();
    assert_eq!(accepted, [1, 2, 3, 4]);
    let inner = ip(V4, 1, &icmp(V4, 8, 0, [0, 5, 0, 1], b""));
    assert_eq!(key_of(&error(3, &inner)), Some((1, 5, 0)), "the reply's type");
}

#[test]
fn embedded_packets_need_eight_bytes_of_their_transport_header() {
    for (pair, proto, header_len) in [(V4, 6, 20), (V4, 17, 20), (V4, 132, 20), (V4, 1, 20), (V6, 6, 40), (V6, 58, 40)]
    {
        let l4 = match proto {
            6 => tcp(pair, 1, 2, b"abcd"),
            17 => udp(pair, 1, 2, b"abcd"),
            132 => sctp(1, 2, b"\0\x03\0\x04"),
            1 => icmp(pair, 8, 0, [0, 5, 0, 1], b"abcd"),
            _ => icmp(pair, 128, 0, [0, 5, 0, 1], b"abcd"),
        };
        let inner = ip(pair, proto, &l4);
        let outer = |inner: &[u8]| if header_len == 20 { error(3, inner) } else { error6(1, inner) };
        for len in 0..=inner.len() {
            assert_eq!(key_of(&outer(&inner[..len])).is_some(), len >= header_len + 8, "{proto} {len}");
        }
    }
    assert_eq!(key_of(&error(3, &ip(V4, 47, b""))), Some((47, 0, 0)));
}

#[test]
fn embedded_packets_that_do_not_fit_are_malformed() {
    let datagram = udp(V4, 1, 2, b"abcdefgh");
    let [src, dst] = [0x0a00_0001, 0x0a00_0002];
    let inner = ipv4(src, dst, 17, &[], 0, &datagram);
    let changed = |at: usize, value: u8| {
        let mut inner = inner.clone();
        inner[at] = value;
        error(3, &inner)
    };
    // Lengths and checksums of the embedded packet are not verified, and the first fragment has ports.
    for (at, value) in [(0, 0x55), (2, 9), (3, 10), (3, 0), (6, 0x20), (6, 0x40), (10, 9), (24, 9), (26, 9)] {
        assert_eq!(key_of(&changed(at, value)), Some((17, 2, 1)), "{at}");
    }
    // Header length, later fragment, other source, port 0.
    for (at, value) in [(0, 0x44), (0, 0x4f), (7, 1), (12, 11), (21, 0)] {
        assert_eq!(parsed_ip(&changed(at, value)), Err(Refusal::Malformed), "{at}");
    }
    assert_eq!(parsed_ip(&error(3, &error(3, &inner))), Err(Refusal::Malformed), "an error about an error");
    assert_eq!(parsed_ip(&error(3, &ip(V6, 17, &udp(V6, 1, 2, b"")))), Err(Refusal::Malformed), "another version");
    let echo = ip(V4, 1, &icmp(V4, 8, 1, [0, 5, 0, 1], b""));
    assert_eq!(parsed_ip(&error(3, &echo)), Err(Refusal::Malformed), "a code");
    assert_eq!(key_of(&error(3, &ipv4(src, dst, 17, &[1; 4], 0, &datagram))), Some((17, 2, 1)));
}

#[test]
fn embedded_extension_headers_are_skipped_but_for_fragments() {
    let datagram = udp(V6, 1, 2, b"");
    let behind = |next: u8, header: &[u8]| error6(1, &ip(V6, next, &[header, &datagram].concat()));
    let tracked = Some((17, 2, 1));
    assert_eq!(key_of(&behind(0, &[17, 0, 1, 4, 0, 0, 0, 0])), tracked);
    assert_eq!(key_of(&behind(44, &[17, 0, 0, 0, 0, 0, 0, 0])), tracked);
    assert_eq!(key_of(&behind(44, &[17, 0, 0, 1, 0, 0, 0, 0])), None);
    assert_eq!(key_of(&behind(44, &[17, 0, 0, 8, 0, 0, 0, 0])), None);
}

#[test]
fn fragments_have_the_fields_of_their_headers() {
    let fragment = |ip: &[u8]| match parsed(&frame(&[0x81, 0, 0, 1], ip)) {
        Err(Refusal::Fragment(fragment)) => fragment,
        other => panic!("{other:?}"),
    };
    let expected = Fragment {
        l3: 18,
        header: 18,
        payload: 42,
        end: 50,
        is_v6: false,
        offset: 24,
        more: true,
        id: 0x1234,
        proto: 17,
    };
    let mut bytes = ipv4(1, 2, 17, &[1; 4], 0x2003, b"12345678");
    assert_eq!(fragment(&bytes), expected);
    assert_eq!(fragment(&ipv4(1, 2, 17, &[1; 4], 1, b"12345678")), Fragment { offset: 8, more: false, ..expected });
    bytes[10] ^= 1;
    assert_eq!(parsed_ip(&bytes), Err(Refusal::FragmentChecksum));
    let headers = [[ipproto::FRAGMENT, 0, 1, 4, 0, 0, 0, 0], [17, 0, 0, 25, 1, 2, 3, 4]].concat();
    let bytes = ipv6(1, 2, 0, &[&headers, &b"12345678"[..]].concat());
    let expected = Fragment { header: 66, payload: 74, end: 82, is_v6: true, id: 0x0102_0304, ..expected };
    assert_eq!(fragment(&bytes), expected);
}

#[test]
fn tags_and_snap_are_skipped() {
    let bytes = ip(V4, 6, &tcp(V4, 1, 2, &[]));
    let tag = [0x81, 0, 0, 5];
    for tags in 0..4usize {
        let tagged = frame(&tag.repeat(tags), &bytes);
        assert_eq!(parsed(&tagged).is_ok(), tags <= 2, "{tags}");
        let mut packet = Packet::from_slice(&tagged);
        packet.tags = 1;
        assert!(parse(&packet, 0).is_ok(), "one was pushed");
    }
    let snap = [&[2; 12][..], &[0, 48, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &bytes].concat();
    assert!(parsed(&snap).is_ok());
    let mut l3_packet = Packet::from_slice(&bytes);
    l3_packet.l3_type = Some(0x0800);
    assert_eq!(parse(&l3_packet, 0).map(|parsed| (parsed.l3, parsed.l4)), Ok((0, 20)));
    l3_packet.l3_type = Some(0x0806);
    assert_eq!(parse(&l3_packet, 0), Err(Refusal::Malformed));
}

#[test]
fn lengths_of_ip_headers_are_checked() {
    let good = ip(V4, 6, &tcp(V4, 1, 2, &[]));
    for (at, value) in [(0, 0x44), (2, 1), (3, 41), (3, 19)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(parsed_ip(&bytes), Err(Refusal::Malformed), "{at}");
    }
    let good = ip(V6, 6, &tcp(V6, 1, 2, &[]));
    for (at, value) in [(4, 1), (5, 21), (5, 19), (5, 0)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(parsed_ip(&bytes), Err(Refusal::Malformed), "{at}");
    }
    assert_eq!(parsed_ip(&ip(V6, 0, &[6, 9, 0, 0, 0, 0, 0, 0])), Err(Refusal::Malformed), "truncated options");
}

#[test]
fn the_checksum_covers_the_destination_in_the_ipv6_header() {
    let routing = [&[6, 2, 0, 1, 0, 0, 0, 0][..], &[9; 16]].concat();
    let Pair::V6(src, dst) = V6 else { unreachable!() };
    let behind = |pair| ipv6(src, dst, ipproto::ROUTING, &[&routing[..], &tcp(pair, 1, 2, &[])].concat());
    assert!(parsed_ip(&behind(V6)).is_ok());
    let last = Pair::V6(src, u128::from_be_bytes([9; 16]));
    assert_eq!(parsed_ip(&behind(last)), Err(Refusal::L4Checksum));
}

#[test]
fn offload_flags_vouch_for_the_transport_checksum() {
    let mut l4 = tcp(V4, 1, 2, b"abc");
    l4[16] ^= 1;
    let mut packet = Packet::from_slice(&frame(&[], &ip(V4, 6, &l4)));
    assert_eq!(parse(&packet, 0), Err(Refusal::L4Checksum));
    for checksum in [Checksum::Good, Checksum::Partial { start: 34, offset: 16 }] {
        packet.offload.checksum = checksum;
        assert!(parse(&packet, 0).is_ok());
    }
    packet.data_mut()[24] ^= 1;
    assert_eq!(parse(&packet, 0), Err(Refusal::L3Checksum), "they do not cover the IPv4 header");
}
