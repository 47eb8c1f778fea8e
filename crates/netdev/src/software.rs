//! Doing in software what a frame's offload marks leave to the device: finishing the checksum, cutting segments.
//!
//! For devices, and paths of devices, that cannot take the marks. A frame whose headers do not allow what its marks
//! ask for is given back. Sources: RFC 1071 (the sum), RFC 9293 (TCP), RFC 768 (UDP; a sum of 0 is sent as ffff).

use packet::{Batch, Checksum, Gso, GsoKind, Packet};

use crate::pool;

/// Frames that one frame may become at most.
const SEGMENTS_MAX: usize = 4096;
const IPV6_HEADER_LEN: usize = 40;
const UDP_HEADER_LEN: usize = 8;
const UDP_CHECKSUM_AT: usize = 6;
const TCP_CHECKSUM_AT: usize = 16;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Whether a frame can go to a wire as it is.
pub fn is_finished(packet: &Packet) -> bool {
    packet.offload.gso.is_none() && !matches!(packet.offload.checksum, Checksum::Partial { .. })
}

/// Does what the marks of `packet` ask for and appends the frames without marks, one or many, to `out`. A frame whose
/// marks make no sense for its bytes is given back, and `out` is as it was.
pub fn finish(mut packet: Packet, out: &mut Batch) -> Result<(), Packet> {
    let Some(gso) = packet.offload.gso else {
        if !finish_checksum(&mut packet) {
            return Err(packet);
        }
        out.push(packet);
        return Ok(());
    };
    let before = out.len();
    if segment(&packet, gso, out).is_none() {
        out.truncate(before);
        return Err(packet);
    }
    pool::recycle(packet);
    Ok(())
}

/// Stores the checksum that [`Checksum::Partial`] asks for and takes the mark away. Returns whether the mark made
/// sense; there is nothing to do without one.
pub fn finish_checksum(packet: &mut Packet) -> bool {
    let Checksum::Partial { start, offset } = packet.offload.checksum else {
        packet.offload.checksum = Checksum::Unknown;
        return true;
    };
    let (start, offset) = (usize::from(start), usize::from(offset));
    if store_checksum(packet.data_mut(), start, offset).is_none() {
        return false;
    }
    packet.offload.checksum = Checksum::Unknown;
    true
}

/// Stores at `start + offset` the checksum of everything from `start`, where the field holds the pseudo-header's sum.
fn store_checksum(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let field = start.checked_add(offset)?;
    let sum = !fold(sum(frame.get(start..)?));
    // Only UDP has its field at 6, and only there 0 means that there is none.
    let sum = if sum == 0 && offset == UDP_CHECKSUM_AT { 0xffff } else { sum };
    put(frame, field, sum)
}

fn put(frame: &mut [u8], at: usize, value: u16) -> Option<()> {
    *frame.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// The sum of the 16-bit words of at most 2^32 bytes.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let whole: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    whole + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Where the headers of a frame to be cut are.
struct Layout {
    ip: usize,
    ipv4: bool,
    transport: usize,
    payload: usize,
    checksum_at: usize,
}

impl Layout {
    fn find(packet: &Packet, kind: GsoKind) -> Option<Self> {
        let frame = packet.data();
        let (ip, ipv4) = find_ip(frame)?;
        let transport = match packet.offload.checksum {
            Checksum::Partial { start, .. } => usize::from(start),
            _ if ipv4 => ip + usize::from(frame.get(ip)? & 0x0f) * 4,
            _ => skip_extensions(frame, ip)?,
        };
        if transport < ip + if ipv4 { 20 } else { IPV6_HEADER_LEN } {
            return None;
        }
        let tcp = match kind {
            GsoKind::TcpV4 | GsoKind::TcpV6 if ipv4 != (kind == GsoKind::TcpV4) => return None,
            GsoKind::TcpV4 | GsoKind::TcpV6 => true,
            GsoKind::UdpL4 => false,
        };
        let (header_len, checksum_at) = if tcp {
            (usize::from(frame.get(transport + 12)? >> 4) * 4, TCP_CHECKSUM_AT)
        } else {
            (UDP_HEADER_LEN, UDP_CHECKSUM_AT)
        };
        let payload = transport + header_len;
        let valid = payload < frame.len() && (!tcp || header_len >= 20);
        valid.then_some(Self { ip, ipv4, transport, payload, checksum_at })
    }
}

/// Where the IP header starts, and whether it is IPv4's; VLAN tags are skipped.
fn find_ip(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = 12;
    loop {
        match half(frame, at)? {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0x0800 => return Some((at + 2, true)),
            0x86dd => return Some((at + 2, false)),
            _ => return None,
        }
    }
}

/// Where the transport header of an IPv6 packet that is no fragment starts.
fn skip_extensions(frame: &[u8], ip: usize) -> Option<usize> {
    let mut next = *frame.get(ip + 6)?;
    let mut at = ip + IPV6_HEADER_LEN;
    // Hop-by-hop options, routing, destination options.
    while matches!(next, 0 | 43 | 60) {
        next = *frame.get(at)?;
        at += (usize::from(*frame.get(at + 1)?) + 1) * 8;
    }
    (next != 44).then_some(at)
}

fn segment(packet: &Packet, gso: Gso, out: &mut Batch) -> Option<()> {
    let layout = Layout::find(packet, gso.kind)?;
    let frame = packet.data();
    let (headers, payload) = frame.split_at_checked(layout.payload)?;
    let size = usize::from(gso.size.max(1));
    let count = payload.len().div_ceil(size);
    if count > SEGMENTS_MAX {
        return None;
    }
    let pseudo = pseudo_sum(packet, &layout)?;
    for (i, part) in payload.chunks(size).enumerate() {
        let mut segment = pool::filled(headers);
        segment.append(part);
        fix_headers(segment.data_mut(), &layout, gso, i, count, pseudo)?;
        out.push(segment);
    }
    Some(())
}

/// The pseudo-header's sum without the length, which differs from segment to segment.
fn pseudo_sum(packet: &Packet, layout: &Layout) -> Option<u64> {
    let frame = packet.data();
    if let Checksum::Partial { .. } = packet.offload.checksum {
        // The sender's sum, with the length of the whole taken out again: it is right even if a routing header makes
        // the destination another than that in the IP header.
        let field = half(frame, layout.transport + layout.checksum_at)?;
        let len = (frame.len() - layout.transport) as u64;
        return Some(u64::from(field) + u64::from(!fold(len)));
    }
    let (addresses, protocol) = if layout.ipv4 {
        (frame.get(layout.ip + 12..layout.ip + 20)?, *frame.get(layout.ip + 9)?)
    } else {
        let protocol = if layout.checksum_at == UDP_CHECKSUM_AT { 17 } else { 6 };
        (frame.get(layout.ip + 8..layout.ip + 40)?, protocol)
    };
    Some(sum(addresses) + u64::from(protocol))
}

/// Makes the copied headers right for segment `i` of `count`.
fn fix_headers(frame: &mut [u8], layout: &Layout, gso: Gso, i: usize, count: usize, pseudo: u64) -> Option<()> {
    let Layout { ip, ipv4, transport, checksum_at, .. } = *layout;
    let ip_len = u16::try_from(frame.len() - ip).ok()?;
    let transport_len = (frame.len() - transport) as u16;
    if ipv4 {
        put(frame, ip + 2, ip_len)?;
        let id = half(frame, ip + 4)?.wrapping_add(i as u16);
        put(frame, ip + 4, id)?;
        put(frame, ip + 10, 0)?;
        let header_len = usize::from(frame.get(ip)? & 0x0f) * 4;
        let checksum = !fold(sum(frame.get(ip..ip + header_len)?));
        put(frame, ip + 10, checksum)?;
    } else {
        put(frame, ip + 4, ip_len - IPV6_HEADER_LEN as u16)?;
    }
    if gso.kind == GsoKind::UdpL4 {
        put(frame, transport + 4, transport_len)?;
    } else {
        let number: &mut [u8; 4] = frame.get_mut(transport + 4..)?.first_chunk_mut()?;
        let offset = i as u32 * u32::from(gso.size);
        *number = u32::from_be_bytes(*number).wrapping_add(offset).to_be_bytes();
        let flags = frame.get_mut(transport + 13)?;
        if i + 1 < count {
            *flags &= !(TCP_FIN | TCP_PSH);
        }
        if i > 0 {
            *flags &= !TCP_CWR;
        }
    }
    put(frame, transport + checksum_at, fold(pseudo + u64::from(transport_len)))?;
    store_checksum(frame, transport, checksum_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TCP or UDP packet of `payload` bytes, tagged or not, with the marks that a kernel would give it.
    fn large(kind: GsoKind, ipv6: bool, tags: usize, payload: usize, size: u16, partial: bool) -> Packet {
        let tcp = kind != GsoKind::UdpL4;
        let transport_len = if tcp { 32 } else { 8 } + payload;
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
        let addresses = if ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((transport_len as u16).to_be_bytes());
            frame.extend([if tcp { 6 } else { 17 }, 64]);
            vec![0x20; 32]
        } else {
            frame.extend([0x08, 0, 0x45, 0]);
            frame.extend((20 + transport_len as u16).to_be_bytes());
            frame.extend([0xff, 0xfe, 0x40, 0, 64, if tcp { 6 } else { 17 }, 0, 0]);
            vec![10, 0, 0, 1, 10, 0, 0, 2]
        };
        frame.extend(&addresses);
        let start = frame.len();
        let pseudo = sum(&addresses) + if tcp { 6 } else { 17 } + transport_len as u64;
        if tcp {
            frame.extend([0, 1, 0, 2, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0x80, 0x99, 0xff, 0xff, 0, 0, 0, 0]);
            frame.extend([1; 12]);
        } else {
            frame.extend([0, 1, 0, 2]);
            frame.extend((transport_len as u16).to_be_bytes());
            frame.extend([0, 0]);
        }
        let offset = if tcp { 16 } else { 6 };
        frame[start + offset..start + offset + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
        frame.extend((0..payload).map(|n| (n * 7) as u8));
        let mut packet = Packet::from_slice(&frame);
        if partial {
            packet.offload.checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        }
        packet.offload.gso = Some(Gso { kind, size, ecn: false });
        packet
    }

    /// Checks the lengths and sums of a finished frame as a receiver does; returns its payload and where its
    /// transport header is.
    fn verify(packet: &Packet, tcp: bool) -> (Vec<u8>, usize) {
        assert!(is_finished(packet));
        let frame = packet.data();
        let (ip, ipv4) = find_ip(frame).expect("IP");
        let (addresses, transport) = if ipv4 {
            assert_eq!(usize::from(half(frame, ip + 2).expect("length")), frame.len() - ip);
            assert_eq!(fold(sum(&frame[ip..ip + 20])), 0xffff);
            (&frame[ip + 12..ip + 20], ip + 20)
        } else {
            assert_eq!(usize::from(half(frame, ip + 4).expect("length")), frame.len() - ip - 40);
            (&frame[ip + 8..ip + 40], ip + 40)
        };
        let len = frame.len() - transport;
        let pseudo = sum(addresses) + if tcp { 6 } else { 17 } + len as u64;
        assert_eq!(fold(pseudo + sum(&frame[transport..])), 0xffff);
        if !tcp {
            assert_eq!(usize::from(half(frame, transport + 4).expect("length")), len);
        }
        (frame[transport + if tcp { 32 } else { 8 }..].to_vec(), transport)
    }

    proptest! {
        #[test]
        fn segments_join_to_the_whole(
            kind in 0usize..4, tags in 0usize..3, payload in 1usize..9000, size in 60u16..1500, partial in any::<bool>(),
        ) {
            let (kind, ipv6) = [
                (GsoKind::TcpV4, false), (GsoKind::TcpV6, true), (GsoKind::UdpL4, false), (GsoKind::UdpL4, true),
            ][kind];
            let tcp = kind != GsoKind::UdpL4;
            let packet = large(kind, ipv6, tags, payload, size, partial);
            let whole = packet.data()[packet.len() - payload..].to_vec();
            let mut out = Batch::new();
            prop_assert!(finish(packet, &mut out).is_ok());
            prop_assert_eq!(out.len(), payload.div_ceil(usize::from(size)));
            let mut joined = Vec::new();
            for (i, segment) in out.iter().enumerate() {
                let (part, transport) = verify(segment, tcp);
                if tcp {
                    let number = u32::from_be_bytes(*segment.data()[transport + 4..].first_chunk().unwrap());
                    prop_assert_eq!(number, 0xffff_ff00u32.wrapping_add(joined.len() as u32));
                    let flags = segment.data()[transport + 13];
                    prop_assert_eq!(flags & TCP_CWR != 0, i == 0);
                    prop_assert_eq!(flags & (TCP_FIN | TCP_PSH) != 0, i + 1 == out.len());
                }
                joined.extend(part);
            }
            prop_assert_eq!(joined, whole);
        }

        #[test]
        fn any_bytes_and_marks_end(
            bytes in prop::collection::vec(any::<u8>(), 0..200), start in 0u16..220, offset in any::<u16>(),
            size in 1u16..99, kind in 0usize..3, gso in any::<bool>(), ip in any::<bool>(),
        ) {
            let head: &[u8] = if ip { &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0x45] } else { &[] };
            let mut packet = Packet::from_slice(&[head, &bytes].concat());
            packet.offload.checksum = Checksum::Partial { start, offset };
            let kind = [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpL4][kind];
            packet.offload.gso = gso.then_some(Gso { kind, size, ecn: false });
            let mut out = Batch::new();
            match finish(packet, &mut out) {
                Ok(()) => prop_assert!(out.iter().all(is_finished)),
                Err(_) => prop_assert!(out.is_empty()),
            }
        }
    }

    #[test]
    fn one_datagram_is_only_summed() {
        let mut packet = large(GsoKind::UdpL4, true, 0, 100, 100, true);
        packet.offload.gso = None;
        let mut out = Batch::new();
        assert!(finish(packet, &mut out).is_ok());
        assert_eq!(verify(&out[0], false).0.len(), 100);
    }

    #[test]
    fn marks_beyond_the_frame_are_refused() {
        let mut packet = Packet::from_slice(&[0; 60]);
        packet.offload.checksum = Checksum::Partial { start: 50, offset: 9 };
        assert!(!finish_checksum(&mut packet));
        packet.offload.checksum = Checksum::Partial { start: 61, offset: 0 };
        assert!(!finish_checksum(&mut packet));
    }
}
