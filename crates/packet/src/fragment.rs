//! Divides IP packets into fragments (RFC 791 section 3.2, RFC 8200 section 4.5).

use crate::buf::{Batch, Offload, Packet};
use crate::checksum::{self, checksum};
use crate::wire::{self, Ipv4, Ipv6};

/// The reserved bit, and the flag of more fragments, of an IPv4 header.
const RESERVED: u16 = 0x8000;
const MORE: u16 = 0x2000;
/// IPv6 extension headers.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Bytes of an IPv6 fragment header.
const HEADER_V6: usize = 8;
/// Offsets count units of this many bytes.
const UNIT: usize = 8;

/// The headers that each fragment repeats, and the payload that fragments share.
struct Layout<'a> {
    head: &'a [u8],
    payload: &'a [u8],
    /// Offset of the IP header.
    ip: usize,
    /// Offset of the next header field before the fragment header; `None` for IPv4.
    next_header: Option<usize>,
}

/// Divides the IP packet in a frame into fragments, whose frames have at most `len_max` bytes. They have the packet's metadata. A
/// partial checksum is completed first. `identification` is that of IPv6; an IPv4 packet has its own one.
///
/// `None` if the frame has no IP packet that may be fragmented, if it is a fragment already, or if `len_max` leaves no room.
pub fn fragment(packet: &mut Packet, len_max: usize, identification: u32) -> Option<Batch> {
    checksum::finish(packet);
    let Layout { head, payload, ip, next_header } = parts(packet.data())?;
    let header = if next_header.is_some() { HEADER_V6 } else { 0 };
    let room = len_max.checked_sub(head.len() + header)? / UNIT * UNIT;
    if room == 0 || payload.is_empty() {
        return None;
    }
    let count = payload.len().div_ceil(room);
    let mut out = Batch::with_capacity(count);
    for (n, chunk) in payload.chunks(room).enumerate() {
        let mut fragment = Packet::from_slice(head);
        let (offset, more) = ((n * room) as u16, n + 1 < count);
        match next_header {
            None => {
                let bytes = &mut fragment.data_mut()[ip..];
                let len = bytes.len() + chunk.len();
                let mut h = Ipv4(&mut *bytes);
                h.set_total_len(len as u16);
                h.set_flags_offset(if more { MORE } else { 0 } | (offset / UNIT as u16));
                h.set_checksum(0);
                let sum = checksum(bytes);
                Ipv4(bytes).set_checksum(sum);
            }
            Some(at) => {
                let data = fragment.data_mut();
                let protocol = std::mem::replace(&mut data[at], FRAGMENT);
                let len = data.len() - ip - 40 + HEADER_V6 + chunk.len();
                Ipv6(&mut data[ip..]).set_payload_len(len as u16);
                let [high, low] = (offset | u16::from(more)).to_be_bytes();
                fragment.append(&[protocol, 0, high, low]);
                fragment.append(&identification.to_be_bytes());
            }
        }
        fragment.append(chunk);
        fragment.copy_metadata(packet);
        fragment.offload = Offload::default();
        out.push(fragment);
    }
    Some(out)
}

fn parts(frame: &[u8]) -> Option<Layout<'_>> {
    let (ip, ethertype) = wire::network(frame)?;
    let bytes = frame.get(ip..)?;
    match ethertype {
        0x0800 => {
            let h = Ipv4::new_checked(bytes).ok()?;
            let header = h.header_len();
            if header < 20 || h.flags_offset() & !RESERVED != 0 {
                return None;
            }
            let payload = bytes.get(..h.total_len().into())?.get(header..)?;
            Some(Layout { head: &frame[..ip + header], payload, ip, next_header: None })
        }
        0x86dd => {
            let h = Ipv6::new_checked(bytes).ok()?;
            let bytes = bytes.get(..40 + usize::from(h.payload_len()))?;
            let (len, next_header) = repeated(bytes)?;
            Some(Layout { head: &frame[..ip + len], payload: &bytes[len..], ip, next_header: Some(ip + next_header) })
        }
        _ => None,
    }
}

/// The length of the headers of an IPv6 packet that each fragment repeats, all up to a routing or hop-by-hop header, and the offset of their
/// last next header field. `None` for a fragment.
fn repeated(packet: &[u8]) -> Option<(usize, usize)> {
    let (mut at, mut field) = (40, 6);
    let mut repeated = (at, field);
    loop {
        let header = *packet.get(field)?;
        match header {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                field = at;
                at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
                if header != DESTINATION {
                    repeated = (at, field);
                }
            }
            FRAGMENT => return None,
            _ => return (repeated.0 <= packet.len()).then_some(repeated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Checksum;
    use crate::checksum::{Verdict, verify};
    use crate::wire::{EthernetRepr, Ipv4Repr, Ipv6Repr, UdpRepr, VlanRepr};
    use base::rng::Rng;

    /// A frame with a UDP datagram, whose checksum is partial.
    fn frame(v6: bool, tags: usize, extensions: &[u8], payload: &[u8]) -> Packet {
        let mut f = Vec::new();
        EthernetRepr { ethertype: 0, ..EthernetRepr::default() }.emit(&mut f);
        f.truncate(12);
        (0..tags).for_each(|_| VlanRepr { tpid: 0x8100, tci: 5 }.emit(&mut f));
        f.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
        let udp = UdpRepr { src: 7, dst: 8 };
        let (len, start) = (8 + payload.len(), f.len() + if v6 { 40 + extensions.len() } else { 20 });
        if v6 {
            let next_header = if extensions.is_empty() { 17 } else { ROUTING };
            Ipv6Repr { src: 1, dst: 2, next_header, hop_limit: 9, ..Ipv6Repr::default() }
                .emit(extensions.len() + len, &mut f);
            f.extend(extensions);
        } else {
            Ipv4Repr { src: 1, dst: 2, proto: 17, ttl: 9, id: 77, ..Ipv4Repr::default() }.emit(len, &mut f);
        }
        udp.emit(payload.len(), &mut f);
        f.extend(payload);
        let ip = wire::Ip {
            version: if v6 { 6 } else { 4 },
            at: 14 + 4 * tags,
            header: 0,
            proto: 17,
            fragment: false,
            routed: false,
            l4: start,
            end: f.len(),
        };
        let pseudo = wire::pseudo(&f, &ip).partial();
        f[start + 6..start + 8].copy_from_slice(&pseudo.to_be_bytes());
        let mut packet = Packet::from_slice(&f);
        packet.offload.checksum = Checksum::Partial { start: start as u16, offset: 6 };
        packet
    }

    /// The payload of a fragment, its offset, and whether more follow.
    fn read(data: &[u8], at: usize, repeated: usize) -> (usize, bool, &[u8]) {
        let field = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        if data[at] >> 4 == 4 {
            assert_eq!((usize::from(field(at + 2)), verify(data)), (data.len() - at, Verdict::Good));
            return (usize::from(field(at + 6) & 0x1fff) * 8, field(at + 6) & MORE != 0, &data[at + 20..]);
        }
        assert_eq!(usize::from(field(at + 4)), data.len() - at - 40);
        let header = at + 40 + repeated;
        assert_eq!(data[header..header + 2], [17, 0]);
        assert_eq!(data[header + 4..header + 8], [1, 2, 3, 4]);
        (usize::from(field(header + 2) & !7), field(header + 2) & 1 != 0, &data[header + 8..])
    }

    #[test]
    fn fragments_fit_and_add_up() {
        let mut rng = Rng::seeded(3);
        let rounds = 2000;
        for _ in 0..rounds {
            let (v6, tags) = (rng.below(2) == 0, rng.below(3) as usize);
            let routing = [17, 2, 4, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
            let extensions = if v6 && rng.below(2) == 0 { &routing[..] } else { &[] };
            let payload: Vec<u8> = (0..rng.below(4000)).map(|n| n as u8).collect();
            let mut packet = frame(v6, tags, extensions, &payload);
            packet.metadata_mut().pkt_mark = 3;
            let len_max = 150 + rng.below(2000) as usize;
            let fragments = fragment(&mut packet, len_max, 0x0102_0304).expect("may be fragmented");
            // The checksum of the datagram is complete.
            assert_eq!(verify(packet.data()), Verdict::Good);
            let at = 14 + 4 * tags;
            let whole = &packet.data()[at + if v6 { 40 + extensions.len() } else { 20 }..];
            let mut joined: Vec<u8> = Vec::new();
            for (n, fragment) in fragments.iter().enumerate() {
                assert!(fragment.len() <= len_max && fragment.data()[..at] == packet.data()[..at]);
                assert_eq!(fragment.metadata().map(|metadata| metadata.pkt_mark), Some(3));
                let (offset, more, bytes) = read(fragment.data(), at, extensions.len());
                assert_eq!((offset, more), (joined.len(), n + 1 < fragments.len()));
                // All but the last are as long as they can be.
                assert!(!more || fragment.len() + 8 > len_max);
                joined.extend(bytes);
            }
            assert_eq!(joined, whole);
        }
        tally::report!("{rounds} packets");
    }

    #[test]
    fn packets_that_may_not_be_fragmented_are_refused() {
        let mut v4 = frame(false, 0, &[], &[0; 100]);
        assert!(fragment(&mut v4, 14 + 20 + 7, 0).is_none());
        for bits in [0x4000, MORE, 1] {
            let mut set = v4.clone();
            Ipv4(&mut set.data_mut()[14..]).set_flags_offset(bits);
            assert!(fragment(&mut set, 100, 0).is_none());
        }
        let mut v6 = frame(true, 0, &[FRAGMENT, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 0], &[0; 100]);
        assert!(fragment(&mut v6, 100, 0).is_none());
        let mut rng = Rng::seeded(4);
        for _ in 0..5000 {
            let mut any = frame(rng.below(2) == 0, 1, &[], &[0; 30]);
            let len = any.len();
            any.truncate(rng.below(len as u64 + 1) as usize);
            if !any.is_empty() {
                let at = rng.below(any.len() as u64) as usize;
                any.data_mut()[at] = rng.below(256) as u8;
            }
            fragment(&mut any, 60, 0);
        }
    }
}
