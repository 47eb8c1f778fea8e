//! Answers to packets that are too long for the path of their tunnel, for the sender's path MTU discovery (RFC 1191, RFC 8201).
//!
//! A tunnel port of a bridge has no IP address: as with Linux's bridged tunnels, the answer seems to come from the packet's
//! destination.

use packet::Packet;
use packet::checksum::{checksum, pseudo_v6};
use packet::wire::{self, IcmpRepr, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::header::{ETH_IPV4, ETH_IPV6};

/// Bytes of an answer over IPv4, of its headers included (RFC 1812 section 4.3.2.3), and the lowest MTU that is reported.
const V4_MAX: usize = 576;
/// The same over IPv6 (RFC 4443 section 2.4 and RFC 8200 section 5).
const V6_MIN_MTU: usize = 1280;
const DONT_FRAGMENT: u16 = 0x4000;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;
/// Types of errors.
const ICMP_ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
/// Destination unreachable because fragmentation is needed (RFC 792).
const FRAGMENTATION_NEEDED: (u8, u8) = (3, 4);
/// Types of ICMPv6 below this are errors.
const ICMPV6_INFORMATIONAL: u8 = 128;
const ICMPV6_REDIRECT: u8 = 137;
const PACKET_TOO_BIG: u8 = 2;
const ICMP_LEN: usize = 8;
/// Offset of the checksum.
const ICMP_CHECKSUM: usize = 2;

/// The flow of a packet that is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    src: u128,
    dst: u128,
    proto: u8,
    /// The transport ports, or what another protocol has there.
    ports: [u8; 4],
}

/// An answer, and what it replies to.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The packet, with Ethernet header and tags if the packet that it answers has them. It has no metadata.
    pub packet: Packet,
    /// The flow of the packet that it answers.
    pub flow: Flow,
}

/// The answer to the sender of a packet with `excess` bytes more than fit the tunnel's path. `None` if it gets none:
///
/// - a packet of IPv4 which may be fragmented, or is a fragment: a bridge does not fragment it;
/// - a fragment of IPv6 other than the first;
/// - ICMP errors, packets from or to a group, other packets than those of IP (RFC 1122 section 3.2.2, RFC 4443 section 2.4);
/// - if the MTU would be less than 576 bytes of IPv4, and packets that each path has to carry, of up to 1280 bytes of IPv6.
pub fn answer(packet: &Packet, excess: usize) -> Option<Answer> {
    let frame = packet.data();
    let (at, ethertype) = match packet.l3_type {
        Some(ethertype) => (0, ethertype),
        None => wire::network(frame).filter(|_| frame[0] & 1 == 0)?,
    };
    let (head, l3) = frame.split_at_checked(at)?;
    let mtu = l3.len().checked_sub(excess)?;
    let mut bytes = Vec::with_capacity(at + V6_MIN_MTU);
    bytes.extend(head);
    if let Some((dst, rest)) = bytes.split_first_chunk_mut::<6>()
        && let Some((src, _)) = rest.split_first_chunk_mut::<6>()
    {
        std::mem::swap(dst, src);
    }
    let flow = match ethertype {
        ETH_IPV4 => answer_v4(l3, mtu, &mut bytes)?,
        ETH_IPV6 => answer_v6(l3, mtu, &mut bytes)?,
        _ => return None,
    };
    let mut answer = Packet::from_slice(&bytes);
    answer.l3_type = packet.l3_type;
    Some(Answer { packet: answer, flow })
}

/// The first bytes of a transport header, zeros for absent ones.
fn ports(l4: Option<&[u8]>) -> [u8; 4] {
    l4.and_then(<[u8]>::first_chunk).copied().unwrap_or_default()
}

fn answer_v4(l3: &[u8], mtu: usize, out: &mut Vec<u8>) -> Option<Flow> {
    let ip = Ipv4::new_checked(l3).ok().filter(|ip| ip.header_len() >= 20)?;
    if mtu < V4_MAX || ip.flags_offset() != DONT_FRAGMENT {
        return None;
    }
    let (src, dst) = (Ipv4Addr::from(ip.src()), Ipv4Addr::from(ip.dst()));
    let is_group = |of: Ipv4Addr| of.is_multicast() || of.is_broadcast();
    if is_group(dst) || is_group(src) || src.octets()[0] == 0 || src.is_loopback() {
        return None;
    }
    if ip.proto() == ICMP && l3.get(ip.header_len()).is_some_and(|kind| ICMP_ERRORS.contains(kind)) {
        return None;
    }
    let quoted = &l3[..l3.len().min(V4_MAX - 20 - ICMP_LEN)];
    let header = Ipv4Repr {
        src: ip.dst(),
        dst: ip.src(),
        proto: ICMP,
        tos: 0,
        ttl: ip.ttl(),
        id: 0,
        flags_offset: DONT_FRAGMENT,
    };
    header.emit(ICMP_LEN + quoted.len(), out);
    let start = out.len();
    let (kind, code) = FRAGMENTATION_NEEDED;
    IcmpRepr { kind, code, rest: mtu.min(u16::MAX.into()) as u32 }.emit(out);
    out.extend(quoted);
    let sum = checksum(&out[start..]);
    out[start + ICMP_CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    let ports = ports(l3.get(ip.header_len()..));
    Some(Flow { src: ip.src().into(), dst: ip.dst().into(), proto: ip.proto(), ports })
}

fn answer_v6(l3: &[u8], mtu: usize, out: &mut Vec<u8>) -> Option<Flow> {
    let ip = Ipv6::new_checked(l3).ok()?;
    if l3.len() <= V6_MIN_MTU {
        return None;
    }
    let (src, dst) = (Ipv6Addr::from(ip.src()), Ipv6Addr::from(ip.dst()));
    if src.is_unspecified() || src.is_loopback() || src.is_multicast() || dst.is_multicast() {
        return None;
    }
    let extensions = wire::extensions(ip.next_header(), &l3[40..])?;
    let is_error = |kind: &u8| *kind < ICMPV6_INFORMATIONAL || *kind == ICMPV6_REDIRECT;
    if extensions.proto == FRAGMENT || extensions.proto == ICMPV6 && l3.get(40 + extensions.len).is_none_or(is_error) {
        return None;
    }
    let quoted = &l3[..V6_MIN_MTU - 40 - ICMP_LEN];
    let header =
        Ipv6Repr { src: ip.dst(), dst: ip.src(), next_header: ICMPV6, class: 0, label: 0, hop_limit: ip.hop_limit() };
    let len = ICMP_LEN + quoted.len();
    header.emit(len, out);
    let start = out.len();
    IcmpRepr { kind: PACKET_TOO_BIG, code: 0, rest: mtu.max(V6_MIN_MTU) as u32 }.emit(out);
    out.extend(quoted);
    let sum = pseudo_v6(&dst.octets(), &src.octets(), ICMPV6, len as u32).bytes(&out[start..]).finish();
    out[start + ICMP_CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    let ports = ports(l3.get(40 + extensions.len..));
    Some(Flow { src: ip.src(), dst: ip.dst(), proto: extensions.proto, ports })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use packet::checksum::{Verdict, verify};
    use packet::wire::{EthernetRepr, UdpRepr, VlanRepr};

    /// A UDP datagram of IPv4 with these flags in its header, behind VLAN tags.
    fn v4(tags: usize, flags_offset: u16, (src, dst): (u32, u32), len: usize) -> Vec<u8> {
        let mut f = Vec::new();
        EthernetRepr { dst: base::MacAddr([2; 6]), src: base::MacAddr([4; 6]), ethertype: 0x0800 }.emit(&mut f);
        f.truncate(12);
        (0..tags).for_each(|_| VlanRepr { tpid: 0x8100, tci: 5 }.emit(&mut f));
        f.extend([8, 0]);
        Ipv4Repr { src, dst, proto: 17, tos: 3, ttl: 33, id: 9, flags_offset }.emit(len - 20, &mut f);
        UdpRepr { src: 7, dst: 8 }.emit(len - 28, &mut f);
        f.extend((28..len).map(|n| n as u8));
        f
    }

    fn v6(next_header: u8, (src, dst): (u128, u128), first: &[u8], len: usize) -> Vec<u8> {
        let mut f = Vec::new();
        EthernetRepr { dst: base::MacAddr([2; 6]), src: base::MacAddr([4; 6]), ethertype: 0x86dd }.emit(&mut f);
        Ipv6Repr { src, dst, next_header, class: 0xff, label: 7, hop_limit: 33 }.emit(len - 40, &mut f);
        f.extend(first);
        f.resize(14 + len, 0);
        f
    }

    fn answer_to(frame: &[u8], excess: usize) -> Option<Vec<u8>> {
        answer(&Packet::from_slice(frame), excess).map(|answer| answer.packet.data().to_vec())
    }

    const A: u32 = 0x0a00_0001;
    const B: u32 = 0x0a00_0002;
    const A6: u128 = 0xfd00 << 112 | 1;
    const B6: u128 = 0xfd00 << 112 | 2;

    /// As Linux's vxlan device answers, byte by byte but for the tags.
    #[test]
    fn answers_quote_the_packet() {
        for tags in 0..3 {
            let at = 14 + 4 * tags;
            let frame = v4(tags, DONT_FRAGMENT, (A, B), 1500);
            let sent = answer_to(&frame, 50 + 4 * tags).expect("answered");
            assert_eq!((&sent[..6], &sent[6..12], &sent[12..at]), (&[4; 6][..], &[2; 6][..], &frame[12..at]));
            assert_eq!((sent.len(), verify(&sent)), (at + 576, Verdict::Good));
            let ip = [0x45, 0, 2, 64, 0, 0, 0x40, 0, 33, 1];
            assert_eq!(sent[at..at + 10], ip);
            assert_eq!((&sent[at + 12..at + 16], &sent[at + 16..at + 20]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
            let mtu = (1450 - 4 * tags as u16).to_be_bytes();
            assert_eq!(
                (sent[at + 20..at + 22].to_vec(), &sent[at + 24..at + 28]),
                (vec![3, 4], &[0, 0, mtu[0], mtu[1]][..])
            );
            assert_eq!(sent[at + 28..], frame[at..at + 548]);
        }
        let frame = v6(17, (A6, B6), &[], 1500);
        for (excess, mtu) in [(70, 1430u16), (400, 1280)] {
            let sent = answer_to(&frame, excess).expect("answered");
            assert_eq!((sent.len(), verify(&sent)), (14 + 1280, Verdict::Good));
            assert_eq!(sent[14..22], [0x60, 0, 0, 0, 4, 216, 58, 33]);
            assert_eq!((&sent[22..38], &sent[38..54]), (&B6.to_be_bytes()[..], &A6.to_be_bytes()[..]));
            assert_eq!((&sent[54..56], &sent[58..62]), (&[2, 0][..], &u32::from(mtu).to_be_bytes()[..]));
            assert_eq!(sent[62..], frame[14..14 + 1232]);
        }
        // Without an Ethernet header.
        let mut l3 = Packet::from_slice(&frame[14..]);
        l3.l3_type = Some(0x86dd);
        let sent = answer(&l3, 70).expect("answered");
        let flow = Flow { src: A6, dst: B6, proto: 17, ports: [0; 4] };
        assert_eq!((sent.packet.l3_type, sent.flow), (Some(0x86dd), flow));
        assert_eq!(sent.packet.data(), &answer_to(&frame, 70).expect("answered")[14..]);
    }

    #[test]
    fn errors_groups_and_fragments_get_no_answer() {
        for flags in [0, 0x2000, 0x6000, 0x4001, 1] {
            assert_eq!(answer_to(&v4(0, flags, (A, B), 1500), 50), None);
        }
        for addresses in [(0, B), (A, u32::MAX), (A, 0xe000_0001), (0x7f00_0001, B), (u32::MAX, B), (0xe000_0001, B)] {
            assert_eq!(answer_to(&v4(0, DONT_FRAGMENT, addresses, 1500), 50), None);
        }
        let whole = v4(0, DONT_FRAGMENT, (A, B), 1500);
        for (excess, is_answered) in [(924, true), (925, false), (1501, false)] {
            assert_eq!(answer_to(&whole, excess).is_some(), is_answered);
        }
        let mut group = whole.clone();
        group[0] = 1;
        assert_eq!(answer_to(&group, 50), None);
        for kind in 0..=255 {
            let mut icmp = whole.clone();
            (icmp[23], icmp[34]) = (1, kind);
            assert_eq!(answer_to(&icmp, 50).is_none(), ICMP_ERRORS.contains(&kind));
            let icmp = v6(58, (A6, B6), &[kind], 1500);
            assert_eq!(answer_to(&icmp, 50).is_none(), kind < 128 || kind == 137);
        }
        let group = 0xff02 << 112 | 1;
        for addresses in [(0, B6), (1, B6), (group, B6), (A6, group)] {
            assert_eq!(answer_to(&v6(17, addresses, &[], 1500), 50), None);
        }
        // The first fragment and a later one; a packet that each path carries; another protocol.
        assert!(answer_to(&v6(44, (A6, B6), &[17, 0, 0, 1, 0, 0, 0, 1], 1500), 50).is_some());
        assert_eq!(answer_to(&v6(44, (A6, B6), &[17, 0, 5, 1, 0, 0, 0, 1], 1500), 50), None);
        assert_eq!(answer_to(&v6(17, (A6, B6), &[], 1280), 50), None);
        let mut arp = whole.clone();
        arp[13] = 6;
        assert_eq!(answer_to(&arp, 50), None);
    }

    #[test]
    fn any_bytes_are_refused_or_answered_with_valid_checksums() {
        let mut rng = Rng::seeded(6);
        let mut answers = 0;
        for _ in 0..20_000 {
            let mut frame = if rng.below(2) == 0 {
                v4(rng.below(3) as usize, DONT_FRAGMENT, (A, B), 700)
            } else {
                v6(17, (A6, B6), &[], 1400)
            };
            for _ in 0..rng.below(4) {
                let at = rng.below(60) as usize;
                frame[at] = rng.below(256) as u8;
            }
            frame.truncate(if rng.below(2) == 0 { frame.len() } else { rng.below(frame.len() as u64) as usize });
            if let Some(sent) = answer_to(&frame, rng.below(200) as usize) {
                assert_eq!(verify(&sent), Verdict::Good);
                answers += 1;
            }
        }
        tally::report!("20000 frames, {answers} answers");
        assert!(answers > 1000);
    }
}
