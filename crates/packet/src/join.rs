//! Joins segments of a TCP stream: the inverse of segmentation ([`segment`](mod@crate::segment)).
//!
//! Invariant: segmenting the packet that [`join`] describes yields the bytes of the segments again. So their checksums are valid, and
//! their headers lose nothing.

use crate::buf::{Checksum, Gso, GsoKind, Offload};
use crate::checksum::checksum;
use crate::segment::{CWR, FIN_PSH, Head};
use crate::wire::{self, Ip, Ipv4, Ipv6, Tcp};

/// TCP flags that segments other than the last one may have: ACK, ECE and CWR.
const FLAGS: u16 = 0x0d0;
const ACK: u16 = 0x010;
/// Offset of the checksum in the TCP header.
const TCP_CHECKSUM: u16 = 16;

/// The headers of a GSO packet, and its offload flags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The headers, with a partial checksum.
    pub head: Vec<u8>,
    /// The flags: of GSO, and of the checksum.
    pub offload: Offload,
}

/// Returns the headers of a GSO packet that stands for all of `segments`; behind them come the payloads of all segments. The segments
/// are Ethernet frames, or L3 packets whose first header has Ethernet type `l3_type`.
///
/// `None` unless they are two or more segments of a TCP stream, each of which begins where the one before it ends, with equal headers
/// and valid checksums. Also `None` if an IP header cannot state the length of the whole.
pub fn join<'s>(segments: impl ExactSizeIterator<Item = &'s [u8]> + Clone, l3_type: Option<u16>) -> Option<Joined> {
    let count = segments.len();
    let (first, last) = (segments.clone().next()?, segments.clone().last().filter(|_| count > 1)?);
    // Which version it is shows below.
    let of = |kind| Head::of(first, l3_type, Gso { kind, size: 1, ecn: false });
    let Head { bytes, ip, gso: Gso { kind, .. }, .. } = of(GsoKind::TcpV4).or_else(|| of(GsoKind::TcpV6))?;
    let size = first.len() - bytes.len();
    let gso = Gso { kind, size: u16::try_from(size).ok().filter(|size| *size > 0)?, ecn: false };

    let mut head = bytes.to_vec();
    let (flags, last_flags) = (flags_of(first, &ip)?, flags_of(last, &ip)?);
    if flags & !FLAGS != 0 || flags & ACK == 0 {
        return None;
    }
    Tcp(&mut head[ip.l4..]).set_flags(flags | last_flags & FIN_PSH);
    let gso = Gso { ecn: flags & CWR != 0, ..gso };
    let mut expected = head.clone();
    let mut len = head.len();
    for (index, segment) in segments.enumerate() {
        let (found, payload) = segment.split_at_checked(head.len()).filter(|(_, payload)| !payload.is_empty())?;
        let is_last = index + 1 == count;
        if payload.len() != size && !(is_last && payload.len() < size) {
            return None;
        }
        expected.copy_from_slice(&head);
        Head { bytes: &head, ip, gso, has_checksum: true, outer: None }.fix(&mut expected, payload, index, is_last);
        if found != expected {
            return None;
        }
        len += payload.len();
    }
    finish(&mut head, &Ip { end: len, ..ip })?;
    let checksum = Checksum::Partial { start: u16::try_from(ip.l4).ok()?, offset: TCP_CHECKSUM };
    Some(Joined { head, offload: Offload { checksum, gso: Some(gso) } })
}

/// The flags of a segment whose TCP header is where that of the first one is.
fn flags_of(segment: &[u8], ip: &Ip) -> Option<u16> {
    Some(Tcp::new_checked(segment.get(ip.l4..)?).ok()?.flags())
}

/// Sets the lengths and checksums of the headers of a whole packet that ends at `ip.end`.
fn finish(head: &mut [u8], ip: &Ip) -> Option<()> {
    let l3 = &mut head[ip.at..];
    if ip.version == 4 {
        let mut h = Ipv4(&mut *l3);
        h.set_total_len(u16::try_from(ip.end - ip.at).ok()?);
        h.set_checksum(0);
        let sum = checksum(&l3[..ip.header]);
        Ipv4(l3).set_checksum(sum);
    } else {
        Ipv6(l3).set_payload_len(u16::try_from(ip.end - ip.at - 40).ok()?);
    }
    let sum = wire::pseudo(head, ip).partial();
    Tcp(&mut head[ip.l4..]).set_checksum(sum);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Packet;
    use crate::segment::segment;
    use crate::wire::{Ipv4Repr, Ipv6Repr, TcpRepr};
    use proptest::prelude::*;

    /// A GSO packet with random header fields, options and payload.
    #[derive(Clone, Debug)]
    struct Large {
        v6: bool,
        l3: bool,
        tagged: bool,
        seq: u32,
        flags: u16,
        options: usize,
        id: u16,
        payload: Vec<u8>,
        size: u16,
    }

    fn large() -> impl Strategy<Value = Large> {
        let flags =
            prop_oneof![Just(0x10u16), Just(0x18), Just(0x19), Just(0x50), Just(0x90), Just(0x98), 0u16..0x1000];
        let payload = prop::collection::vec(any::<u8>(), 1..2000);
        (
            (any::<bool>(), any::<bool>(), any::<bool>()),
            any::<u32>(),
            flags,
            0..4usize,
            any::<u16>(),
            payload,
            1u16..700,
        )
            .prop_map(|((v6, l3, tagged), seq, flags, options, id, payload, size)| Large {
                v6,
                l3,
                tagged,
                seq,
                flags,
                options,
                id,
                payload,
                size,
            })
    }

    fn packet(large: &Large) -> Packet {
        let mut frame = vec![];
        if !large.l3 {
            frame.extend([2; 12]);
            frame.extend(if large.tagged { &[0x81, 0, 0, 5][..] } else { &[] });
            frame.extend(if large.v6 { [0x86, 0xdd] } else { [8, 0] });
        }
        let options = large.options * 4;
        let len = 20 + options + large.payload.len();
        if large.v6 {
            Ipv6Repr { src: 1, dst: 2, next_header: 6, hop_limit: 9, ..Ipv6Repr::default() }.emit(len, &mut frame);
        } else {
            Ipv4Repr { src: 1, dst: 2, proto: 6, ttl: 9, id: large.id, ..Ipv4Repr::default() }.emit(len, &mut frame);
        }
        let at = frame.len();
        TcpRepr { src: 1, dst: 2, seq: large.seq, ack: 7, flags: large.flags, window: 9 }.emit(&mut frame);
        frame.extend(vec![1; options]);
        frame[at + 12] += (options as u8) << 2;
        frame.extend(&large.payload);
        let mut packet = Packet::from_slice(&frame);
        packet.l3_type = large.l3.then_some(if large.v6 { 0x86dd } else { 0x800 });
        let kind = if large.v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 };
        packet.offload.gso = Some(Gso { kind, size: large.size, ecn: large.flags & CWR != 0 });
        packet
    }

    fn join_all(segments: &[Packet]) -> Option<Packet> {
        let joined = join(segments.iter().map(Packet::data), segments[0].l3_type)?;
        let mut whole = Packet::from_slice(&joined.head);
        segments.iter().for_each(|segment| whole.append(&segment.data()[joined.head.len()..]));
        whole.l3_type = segments[0].l3_type;
        whole.offload = joined.offload;
        Some(whole)
    }

    tally::proptest! {
        #[test]
        fn joining_is_the_inverse_of_segmentation(large in large()) {
            let segments = segment(&packet(&large)).expect("it fits its flags");
            let joins = segments.len() > 1 && large.flags & !(FLAGS | FIN_PSH) == 0 && large.flags & ACK != 0;
            let whole = join_all(&segments);
            prop_assert_eq!(whole.is_some(), joins);
            if let Some(whole) = whole {
                prop_assert_eq!(segment(&whole).expect("it fits its flags"), segments);
                let Checksum::Partial { start, offset: 16 } = whole.offload.checksum else { panic!("partial") };
                let mut finished = whole.clone();
                crate::checksum::finish(&mut finished);
                if !large.l3 {
                    prop_assert_eq!(crate::checksum::verify(finished.data()), crate::checksum::Verdict::Good);
                    prop_assert_eq!(wire::ip(whole.data()).map(|ip| (ip.l4, ip.end)), Some((start.into(), whole.len())));
                }
            }
        }

        /// A changed byte, another order, and a lost segment are never joined, unless the change is valid by itself.
        #[test]
        fn whatever_is_joined_has_exactly_these_segments(
            large in large(), at: prop::sample::Index, xor: u8, swap: (prop::sample::Index, prop::sample::Index), lost: bool, cut in 0..3usize,
        ) {
            let mut segments = segment(&packet(&large)).expect("it fits its flags");
            let (one, other) = (swap.0.index(segments.len()), swap.1.index(segments.len()));
            segments.swap(one, other);
            if lost && segments.len() > 2 {
                segments.remove(one);
            }
            let broken = &mut segments[other.min(1)];
            let byte = at.index(broken.len());
            broken.data_mut()[byte] ^= xor;
            broken.truncate(broken.len() - cut.min(broken.len()));
            if let Some(whole) = join_all(&segments) {
                let again = segment(&whole).expect("it fits its flags");
                prop_assert!(again.iter().map(Packet::data).eq(segments.iter().map(Packet::data)));
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<Vec<u8>>, l3_type: Option<bool>) {
            let l3_type = l3_type.map(|v6| if v6 { 0x86dd } else { 0x800 });
            let _ = join(bytes.iter().map(Vec::as_slice), l3_type);
        }
    }
}
