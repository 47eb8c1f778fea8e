//! Frames for tests: headers with valid lengths and checksums, and random packets of all kinds.

use base::rng::Rng;
use packet::checksum::{Sum, checksum, crc32c_sctp, pseudo_v4, pseudo_v6};
use packet::{Checksum, Packet};

use crate::key::ipproto;

/// A pair of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pair {
    V4(u32, u32),
    V6(u128, u128),
}

impl Pair {
    pub(crate) fn reversed(self) -> Self {
        match self {
            Self::V4(src, dst) => Self::V4(dst, src),
            Self::V6(src, dst) => Self::V6(dst, src),
        }
    }

    fn pseudo(self, proto: u8, len: usize) -> Sum {
        match self {
            Self::V4(src, dst) => pseudo_v4(src.to_be_bytes(), dst.to_be_bytes(), proto, len as u16),
            Self::V6(src, dst) => pseudo_v6(&src.to_be_bytes(), &dst.to_be_bytes(), proto, len as u32),
        }
    }
}

/// An IPv4 packet with options, a multiple of four bytes, and the field of fragment bits.
pub(crate) fn ipv4(src: u32, dst: u32, proto: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut bytes = vec![0x40 | (header_len / 4) as u8, 0];
    bytes.extend(((header_len + payload.len()) as u16).to_be_bytes());
    bytes.extend([0x12, 0x34]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, proto, 0, 0]);
    bytes.extend(src.to_be_bytes());
    bytes.extend(dst.to_be_bytes());
    bytes.extend(options);
    let sum = checksum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// An IPv6 packet whose payload begins with the header `next`.
pub(crate) fn ipv6(src: u128, dst: u128, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next, 64]);
    bytes.extend(src.to_be_bytes());
    bytes.extend(dst.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// An IP packet of any version without options.
pub(crate) fn ip(pair: Pair, proto: u8, payload: &[u8]) -> Vec<u8> {
    match pair {
        Pair::V4(src, dst) => ipv4(src, dst, proto, &[], 0, payload),
        Pair::V6(src, dst) => ipv6(src, dst, proto, payload),
    }
}

/// An Ethernet frame with these tags between its addresses and its type.
pub(crate) fn frame(tags: &[u8], ip: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if ip[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&[2; 12][..], tags, &kind, ip].concat()
}

/// Stores the checksum of a transport header with payload, at the position of its protocol.
pub(crate) fn with_checksum(pair: Pair, proto: u8, mut l4: Vec<u8>) -> Vec<u8> {
    let (at, sum) = match (proto, pair) {
        (ipproto::SCTP, _) => {
            let crc = crc32c_sctp(&l4).expect("a header");
            l4[8..12].copy_from_slice(&crc.to_le_bytes());
            return l4;
        }
        (ipproto::TCP, _) => (16, pair.pseudo(proto, l4.len())),
        (ipproto::UDP, _) => (6, pair.pseudo(proto, l4.len())),
        (ipproto::ICMP, Pair::V4(..)) => (2, Sum::new()),
        (ipproto::ICMPV6, Pair::V6(..)) => (2, pair.pseudo(proto, l4.len())),
        _ => return l4,
    };
    l4[at..at + 2].fill(0);
    let sum = match sum.bytes(&l4).finish() {
        0 if proto == ipproto::UDP => 0xffff,
        sum => sum,
    };
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    l4
}

/// A TCP segment with a header of 20 bytes.
pub(crate) fn tcp(pair: Pair, src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let mut l4 = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    l4.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    l4.extend(payload);
    with_checksum(pair, ipproto::TCP, l4)
}

/// A UDP datagram.
pub(crate) fn udp(pair: Pair, src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let mut l4 = [src.to_be_bytes(), dst.to_be_bytes(), (8 + payload.len() as u16).to_be_bytes(), [0; 2]].concat();
    l4.extend(payload);
    with_checksum(pair, ipproto::UDP, l4)
}

/// An SCTP packet with these chunks.
pub(crate) fn sctp(src: u16, dst: u16, chunks: &[u8]) -> Vec<u8> {
    let l4 = [&src.to_be_bytes()[..], &dst.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0], chunks].concat();
    with_checksum(Pair::V4(0, 0), ipproto::SCTP, l4)
}

/// An ICMP or ICMPv6 message.
pub(crate) fn icmp(pair: Pair, kind: u8, code: u8, word: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let l4 = [&[kind, code, 0, 0][..], &word, payload].concat();
    with_checksum(pair, icmp_of(pair), l4)
}

/// The protocol of control messages between two addresses.
pub(crate) fn icmp_of(pair: Pair) -> u8 {
    if matches!(pair, Pair::V4(..)) { ipproto::ICMP } else { ipproto::ICMPV6 }
}

/// Random bytes.
pub(crate) fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Random addresses.
pub(crate) fn pair(rng: &mut Rng) -> Pair {
    let wide = |rng: &mut Rng| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
    match rng.below(2) {
        0 => Pair::V4(rng.next_u64() as u32, rng.next_u64() as u32),
        _ => Pair::V6(wide(rng), wide(rng)),
    }
}

/// A random transport header with payload that can be tracked, and its protocol.
fn transport(rng: &mut Rng, pair: Pair) -> (u8, Vec<u8>) {
    let port = |rng: &mut Rng| 1 + rng.below(65535) as u16;
    let (src, dst, len) = (port(rng), port(rng), rng.below(70) as usize);
    let payload = bytes(rng, len);
    match rng.below(6) {
        0 | 1 => (ipproto::TCP, tcp(pair, src, dst, &payload)),
        2 => (ipproto::UDP, udp(pair, src, dst, &payload)),
        3 => (ipproto::SCTP, sctp(src, dst, &[&[0, 3, 0, 8][..], &bytes(rng, 4), &[10, 0, 0, 4]].concat())),
        4 => {
            let kind = [[8, 0], [128, 129]][usize::from(matches!(pair, Pair::V6(..)))][rng.below(2) as usize];
            let [a, b] = src.to_be_bytes();
            (icmp_of(pair), icmp(pair, kind, 0, [a, b, 0, 7], &payload))
        }
        _ => (47, payload),
    }
}

/// Puts a transport header into an IP packet, at times behind options or extension headers.
fn random_ip(rng: &mut Rng, pair: Pair, proto: u8, l4: &[u8]) -> Vec<u8> {
    match (pair, rng.below(3)) {
        (Pair::V4(src, dst), 0) => ipv4(src, dst, proto, &[1, 1, 1, 0], 0x4000, l4),
        (Pair::V6(src, dst), 0) => {
            // Destination options, and the fragment header of a whole packet.
            let extensions = [[44, 0, 1, 4, 0, 0, 0, 0], [proto, 0, 0, 0, 9, 9, 9, 9]].concat();
            ipv6(src, dst, ipproto::DSTOPTS, &[&extensions, l4].concat())
        }
        _ => ip(pair, proto, l4),
    }
}

/// A random frame whose packet can be tracked, at times an ICMP error, and the offset of its transport header.
pub(crate) fn random(rng: &mut Rng) -> (Vec<u8>, usize) {
    let pair = pair(rng);
    let (mut proto, mut l4) = transport(rng, pair);
    if rng.below(4) == 0 {
        let sent = pair.reversed();
        l4 = with_checksum(sent, proto, l4);
        let mut inner = random_ip(rng, sent, proto, &l4);
        if rng.below(2) == 0 {
            // Cut off behind the first 8 bytes of the transport header.
            inner.truncate(inner.len() - l4.len() + 8 + rng.below(20) as usize);
        }
        let unreachable = if matches!(pair, Pair::V4(..)) { 3 } else { 1 };
        (proto, l4) = (icmp_of(pair), icmp(pair, unreachable, 1, [0; 4], &inner));
    }
    let ip = random_ip(rng, pair, proto, &l4);
    let tags: &[u8] = [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]][rng.below(3) as usize];
    let mut frame = frame(tags, &ip);
    let at = frame.len() - l4.len();
    // Padding.
    frame.resize(frame.len() + rng.below(5) as usize, 0xee);
    (frame, at)
}

/// The packet with a partial checksum, if its transport header at `l4` of protocol `proto` can have one.
pub(crate) fn partial(frame: &[u8], l4: usize, end: usize, pair: Pair, proto: u8) -> Option<Packet> {
    let (offset, field) = match proto {
        ipproto::TCP => (16, pair.pseudo(proto, end - l4).partial().to_be_bytes()),
        ipproto::UDP => (6, pair.pseudo(proto, end - l4).partial().to_be_bytes()),
        ipproto::SCTP => (8, [0; 2]),
        _ => return None,
    };
    let mut packet = Packet::from_slice(frame);
    packet.data_mut()[l4 + offset..l4 + offset + 2].copy_from_slice(&field);
    packet.offload.checksum = Checksum::Partial { start: l4 as u16, offset: offset as u16 };
    Some(packet)
}
