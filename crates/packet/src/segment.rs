//! Segments GSO packets in software: what a network card does with a frame that is flagged for segmentation.
//!
//! The headers may include those of a tunnel in front of a large inner packet, as from tunnels of the kernel.
//!
//! Each segment gets the headers of the large frame, with VLAN tags and options, and its own lengths, IPv4
//! identification, TCP sequence number and flags, and valid checksums. It also gets the metadata of the large frame.

use crate::buf::{Batch, Checksum, Gso, GsoKind, HEADROOM, Offload, Packet};
use crate::checksum::{Sum, checksum};
use crate::wire::{self, Ip, Ipv4, Ipv6, Tcp, Udp};
use std::fmt;

/// Why a packet cannot be segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// The packet has no GSO flag, or a segment size of 0.
    NoMark,
    /// The GSO kind does not fit the frame: the protocol differs, it is a fragment, or its lengths are inconsistent.
    Mismatch,
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMark => "the frame has no segmentation mark",
            Self::Mismatch => "the frame's headers are not those of its segmentation mark",
        })
    }
}

impl std::error::Error for SegmentError {}

pub(crate) const FIN_PSH: u16 = 0x009;
pub(crate) const CWR: u16 = 0x080;
/// Offset of the checksum in the UDP header.
const UDP_CHECKSUM: u16 = 6;
/// IP protocols.
const IP_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// Flags of a GRE header.
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_SEQUENCE: u16 = 0x1000;

/// Segments `packet` by its GSO flag. The length fields of the headers only serve to find the headers, because a packet
/// above 64 kB cannot state its length.
pub fn segment(packet: &Packet) -> Result<Batch, SegmentError> {
    let segments = Segments::of(packet)?;
    Ok((0..segments.count()).map(|index| segments.packet(index)).collect())
}

/// A GSO packet as a sequence of segments.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'p> {
    packet: &'p Packet,
    head: Head<'p>,
    payload: &'p [u8],
}

impl<'p> Segments<'p> {
    /// Finds the headers of a packet with a GSO flag.
    pub fn of(packet: &'p Packet) -> Result<Self, SegmentError> {
        let gso = packet.offload.gso.filter(|g| g.size != 0).ok_or(SegmentError::NoMark)?;
        let mut head = head_of(packet, gso).ok_or(SegmentError::Mismatch)?;
        if head.bytes.len() + usize::from(gso.size) - head.ip.at > 0xffff {
            return Err(SegmentError::Mismatch);
        }
        if let Checksum::Partial { start, .. } = packet.offload.checksum {
            if usize::from(start) != head.ip.l4 {
                return Err(SegmentError::Mismatch);
            }
            head.has_checksum = true;
        }
        Ok(Self { packet, head, payload: &packet.data()[head.bytes.len()..] })
    }

    /// Number of segments, at least one.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.head.gso.size.into()).max(1)
    }

    /// Bytes of the headers that each segment has.
    pub fn header_len(&self) -> usize {
        self.head.bytes.len()
    }

    /// Bytes of the longest segment.
    pub fn len_max(&self) -> usize {
        self.header_len() + self.payload.len().min(self.head.gso.size.into())
    }

    /// Appends segment `index` to a buffer.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn append(&self, index: usize, out: &mut Vec<u8>) {
        let size = usize::from(self.head.gso.size);
        let from = index * size;
        let payload = &self.payload[from..self.payload.len().min(from + size)];
        let at = out.len();
        out.extend_from_slice(self.head.bytes);
        self.head.fix(&mut out[at..], payload, index, index + 1 == self.count());
        out.extend_from_slice(payload);
    }

    /// Segment `index` as a packet, with the metadata of the GSO packet.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn packet(&self, index: usize) -> Packet {
        let mut bytes = Vec::with_capacity(HEADROOM + self.len_max());
        bytes.resize(HEADROOM, 0);
        self.append(index, &mut bytes);
        let mut segment = Packet::from_vec(bytes, HEADROOM).unwrap_or_default();
        segment.copy_metadata(self.packet);
        segment.offload = Offload { checksum: Checksum::Good, gso: None };
        segment
    }
}

/// Makes the checksum of a UDP GSO packet partial, with which alone the kernel segments UDP; a packet without checksum gets
/// one, which is right as well. Other packets stay as they are.
pub fn make_udp_partial(packet: &mut Packet) {
    let Some(gso) = packet.offload.gso.filter(|gso| gso.kind == GsoKind::UdpL4) else { return };
    if matches!(packet.offload.checksum, Checksum::Partial { .. }) {
        return;
    }
    let Some(Head { ip, .. }) = head_of(packet, gso) else { return };
    let Ok(start) = u16::try_from(ip.l4) else { return };
    let sum = wire::pseudo(packet.data(), &ip).partial();
    Udp(&mut packet.data_mut()[ip.l4..]).set_checksum(sum);
    packet.offload.checksum = Checksum::Partial { start, offset: UDP_CHECKSUM };
}

/// Length in bytes of the longest frame that goes on the wire for `packet`: of its segments, if it is a GSO packet.
pub fn longest_frame(packet: &Packet) -> usize {
    let marked = packet.offload.gso.filter(|g| g.size != 0);
    let segment = marked.and_then(|g| Some(head_of(packet, g)?.bytes.len() + usize::from(g.size)));
    segment.map_or(packet.len(), |longest| longest.min(packet.len()))
}

/// Length in bytes of the shortest frame that goes on the wire for `packet`: of its last segment, if it is a GSO
/// packet.
pub fn shortest_frame(packet: &Packet) -> usize {
    let marked = packet.offload.gso.filter(|g| g.size != 0);
    let segment = marked.and_then(|g| {
        let headers = head_of(packet, g)?.bytes.len();
        let (payload, size) = (packet.len() - headers, usize::from(g.size));
        let last = payload % size;
        Some(headers + if last == 0 { payload.min(size) } else { last })
    });
    segment.unwrap_or(packet.len())
}

/// The headers of a GSO packet. The segments are those of the packet whose checksum is partial, which may have outer headers.
fn head_of(packet: &Packet, gso: Gso) -> Option<Head<'_>> {
    let (frame, l3_type) = (packet.data(), packet.l3_type);
    match packet.offload.checksum {
        Checksum::Partial { start, .. } if gso.kind != GsoKind::UdpL4 => {
            let outer = find_ip(frame, l3_type)?;
            match usize::from(start) {
                start if start > outer.l4 => Head::encapsulated(frame, outer, start, gso),
                _ => Head::of(frame, l3_type, gso),
            }
        }
        _ => Head::of(frame, l3_type, gso),
    }
}

/// The headers that all segments of a GSO packet repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'p> {
    pub(crate) bytes: &'p [u8],
    pub(crate) ip: Ip,
    pub(crate) gso: Gso,
    /// Segments have a transport checksum: always TCP's, and UDP's if the packet has one.
    pub(crate) has_checksum: bool,
    /// The outer headers of a tunnel.
    pub(crate) outer: Option<Ip>,
}

impl<'p> Head<'p> {
    /// Finds the headers of a frame, or of an L3 packet, of this GSO kind.
    pub(crate) fn of(frame: &'p [u8], l3_type: Option<u16>, gso: Gso) -> Option<Self> {
        let ip = find_ip(frame, l3_type)?;
        let l4 = &frame[ip.l4..];
        let (least, header, has_checksum) = match (gso.kind, ip.version, ip.proto) {
            (GsoKind::TcpV4, 4, 6) | (GsoKind::TcpV6, 6, 6) => (20, Tcp::new_checked(l4).ok()?.header_len(), true),
            (GsoKind::UdpL4, _, 17) => (8, 8, Udp::new_checked(l4).ok()?.checksum() != 0),
            _ => return None,
        };
        let fits = (least..=l4.len()).contains(&header);
        fits.then(|| Self { bytes: &frame[..ip.l4 + header], ip, gso, has_checksum, outer: None })
    }

    /// Finds the headers of a packet with TCP at `l4`, inside of a tunnel with these outer headers: as the kernel's tunnels send it over
    /// a device that segments behind outer headers.
    fn encapsulated(frame: &'p [u8], outer: Ip, l4: usize, gso: Gso) -> Option<Self> {
        let len = Tcp::new_checked(frame.get(l4..)?).ok()?.header_len();
        let bytes = frame.get(..l4 + len).filter(|_| len >= 20)?;
        let ip = inner_ip(frame, outer.l4, l4, gso.kind)?;
        let can_fix = match outer.proto {
            IP_IN_IP | IPV6_IN_IP => ip.at == outer.l4,
            UDP => ip.at >= outer.l4 + 8,
            // Each packet has a sequence number of its own.
            GRE => ip.at >= outer.l4 + 4 && gre_flags(frame, outer.l4) & GRE_SEQUENCE == 0,
            _ => false,
        };
        // Sums go on behind an even number of bytes.
        let can_fix = can_fix && (bytes.len() - outer.l4).is_multiple_of(2);
        can_fix.then_some(Self { bytes, ip, gso, has_checksum: true, outer: Some(outer) })
    }

    /// Turns a copy of the headers into those of segment `index`, which has this payload.
    pub(crate) fn fix(&self, head: &mut [u8], payload: &[u8], index: usize, is_last: bool) {
        self.fix_inner(head, payload, index, is_last);
        if let Some(outer) = self.outer {
            fix_outer(head, outer, payload, index);
        }
    }

    fn fix_inner(&self, head: &mut [u8], payload: &[u8], index: usize, is_last: bool) {
        let ip = Ip { end: head.len() + payload.len(), ..self.ip };
        fix_ip(head, &ip, index);
        let l4 = &mut head[ip.l4..];
        if self.gso.kind == GsoKind::UdpL4 {
            let mut h = Udp(&mut *l4);
            h.set_len_field((ip.end - ip.l4) as u16);
            h.set_checksum(0);
            if !self.has_checksum {
                return;
            }
        } else {
            let mut h = Tcp(&mut *l4);
            h.set_seq(h.seq().wrapping_add(index as u32 * u32::from(self.gso.size)));
            let mut flags = h.flags();
            if !is_last {
                flags &= !FIN_PSH;
            }
            // Only the first segment keeps the congestion-window-reduced flag.
            if index > 0 && (self.gso.ecn || flags & CWR != 0) {
                flags &= !CWR;
            }
            h.set_flags(flags);
            h.set_checksum(0);
        }
        // The headers have an even length.
        let sum = wire::pseudo(head, &ip).bytes(&head[ip.l4..]).bytes(payload).finish();
        let l4 = &mut head[ip.l4..];
        if self.gso.kind == GsoKind::UdpL4 {
            Udp(l4).set_checksum(if sum == 0 { 0xffff } else { sum });
        } else {
            Tcp(l4).set_checksum(sum);
        }
    }
}

/// Sets the length, the identification and the checksum of the IP header of segment `index`.
fn fix_ip(head: &mut [u8], ip: &Ip, index: usize) {
    let l3 = &mut head[ip.at..];
    if ip.version == 4 {
        let mut h = Ipv4(&mut *l3);
        h.set_total_len((ip.end - ip.at) as u16);
        h.set_id(h.id().wrapping_add(index as u16));
        h.set_checksum(0);
        let sum = checksum(&l3[..ip.header]);
        Ipv4(l3).set_checksum(sum);
    } else {
        Ipv6(l3).set_payload_len((ip.end - ip.at - 40) as u16);
    }
}

/// Sets the lengths and the checksums of the headers in front of a finished inner segment.
fn fix_outer(head: &mut [u8], outer: Ip, payload: &[u8], index: usize) {
    let ip = Ip { end: head.len() + payload.len(), ..outer };
    fix_ip(head, &ip, index);
    let covered = |head: &[u8]| Sum::new().bytes(&head[ip.l4..]).bytes(payload);
    match ip.proto {
        UDP => {
            let mut h = Udp(&mut head[ip.l4..]);
            h.set_len_field((ip.end - ip.l4) as u16);
            if h.checksum() != 0 {
                h.set_checksum(0);
                let sum = (wire::pseudo(head, &ip) + covered(head)).finish();
                Udp(&mut head[ip.l4..]).set_checksum(if sum == 0 { 0xffff } else { sum });
            }
        }
        GRE if gre_flags(head, ip.l4) & GRE_CHECKSUM != 0 => {
            let at = ip.l4 + 4;
            head[at..at + 2].fill(0);
            let sum = covered(head).finish();
            head[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {}
    }
}

/// The IP header directly in front of a TCP header at `l4`, behind outer headers that end at `least`.
fn inner_ip(frame: &[u8], least: usize, l4: usize, kind: GsoKind) -> Option<Ip> {
    let of = |version, header| Ip {
        version,
        at: l4 - header,
        header,
        proto: TCP,
        fragment: false,
        routed: false,
        l4,
        end: frame.len(),
    };
    let fits = |header: &usize| l4.checked_sub(*header).is_some_and(|at| at >= least);
    if kind == GsoKind::TcpV6 {
        let h = Ipv6::new_checked(&frame[fits(&40).then(|| l4 - 40)?..]).ok()?;
        let is = h.version_class_label() >> 28 == 6
            && h.next_header() == TCP
            && usize::from(h.payload_len()) == frame.len() - l4;
        return is.then(|| of(6, 40));
    }
    (20..=60).step_by(4).filter(fits).map(|header| of(4, header)).find(|ip| {
        let Ok(h) = Ipv4::new_checked(&frame[ip.at..]) else { return false };
        let is = h.version_ihl() >> 4 == 4 && h.header_len() == ip.header && h.proto() == TCP;
        is && h.flags_offset() & 0x3fff == 0 && usize::from(h.total_len()) == frame.len() - ip.at
    })
}

fn gre_flags(frame: &[u8], at: usize) -> u16 {
    frame.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |flags| u16::from_be_bytes(*flags))
}

/// Like [`wire::ip`], but ignores the stated length: the packet ends with the frame. The frame has an Ethernet header unless its
/// network header's type is given.
fn find_ip(frame: &[u8], l3_type: Option<u16>) -> Option<Ip> {
    let (at, kind) = match l3_type {
        Some(ethertype) => (0, ethertype),
        None => wire::network(frame)?,
    };
    let rest = frame.get(at..)?;
    let found = match kind {
        0x0800 => {
            let h = Ipv4::new_checked(rest).ok()?;
            let header = h.header_len();
            let fragment = h.flags_offset() & 0x3fff != 0;
            Ip { version: 4, at, header, proto: h.proto(), fragment, routed: false, l4: at + header, end: frame.len() }
        }
        0x86dd => {
            let h = Ipv6::new_checked(rest).ok()?;
            let ext = wire::extensions(h.next_header(), &rest[40..])?;
            let l4 = at + 40 + ext.len;
            Ip {
                version: 6,
                at,
                header: 40,
                proto: ext.proto,
                fragment: ext.fragment,
                routed: ext.routed,
                l4,
                end: frame.len(),
            }
        }
        _ => return None,
    };
    (found.header >= 20 && !found.fragment && !found.routed && found.l4 <= frame.len()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{Verdict, verify};
    use crate::wire::{EthernetRepr, Ipv4Repr, Ipv6Repr, TcpRepr, UdpRepr, VlanRepr};
    use proptest::prelude::*;

    fn large(kind: GsoKind, v6: bool, tags: usize, payload: &[u8], size: u16) -> Packet {
        let mut f = Vec::new();
        EthernetRepr { ethertype: 0, ..EthernetRepr::default() }.emit(&mut f);
        f.truncate(12);
        for _ in 0..tags {
            VlanRepr { tpid: 0x8100, tci: 5 }.emit(&mut f);
        }
        f.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
        let udp = kind == GsoKind::UdpL4;
        let (proto, l4) = if udp { (17, 8) } else { (6, 20) };
        if v6 {
            Ipv6Repr { src: 1, dst: 2, next_header: proto, hop_limit: 9, ..Ipv6Repr::default() }
                .emit(l4 + payload.len(), &mut f);
        } else {
            Ipv4Repr { src: 1, dst: 2, proto, ttl: 9, id: 0xffff, ..Ipv4Repr::default() }
                .emit(l4 + payload.len(), &mut f);
        }
        if udp {
            UdpRepr { src: 1, dst: 2 }.emit(payload.len(), &mut f);
        } else {
            TcpRepr { src: 1, dst: 2, seq: u32::MAX - 5, flags: 0x099, ..TcpRepr::default() }.emit(&mut f);
        }
        f.extend(payload);
        let mut p = Packet::from_slice(&f);
        p.offload.gso = Some(Gso { kind, size, ecn: false });
        make_udp_partial(&mut p);
        p
    }

    tally::proptest! {
        #[test]
        fn segments_reassemble_and_have_right_checksums(
            which in 0..4usize, tags in 0..3usize, payload in proptest::collection::vec(any::<u8>(), 0..3000), size in 1..1500u16,
        ) {
            let (kind, v6) = [
                (GsoKind::TcpV4, false), (GsoKind::TcpV6, true), (GsoKind::UdpL4, false), (GsoKind::UdpL4, true),
            ][which];
            let size = size.max(30);
            let p = large(kind, v6, tags, &payload, size);
            let segments = segment(&p).expect("fits its mark");
            prop_assert_eq!(Some(longest_frame(&p)), segments.iter().map(Packet::len).max());
            prop_assert_eq!(Some(shortest_frame(&p)), segments.iter().map(Packet::len).min());
            let mut back: Vec<u8> = Vec::new();
            for (i, s) in segments.iter().enumerate() {
                let ip = wire::ip(s.data()).expect("an IP packet");
                prop_assert_eq!(ip.end, s.len());
                prop_assert_eq!(verify(s.data()), Verdict::Good);
                let l4 = &s.data()[ip.l4..];
                let last = i + 1 == segments.len();
                let header = if kind == GsoKind::UdpL4 { 8 } else { 20 };
                if kind != GsoKind::UdpL4 {
                    let t = Tcp(l4);
                    prop_assert_eq!(t.seq(), (u32::MAX - 5).wrapping_add(back.len() as u32));
                    prop_assert_eq!(t.flags() & FIN_PSH, if last { FIN_PSH } else { 0 });
                    prop_assert_eq!(t.flags() & CWR, if i == 0 { CWR } else { 0 });
                    prop_assert_eq!(t.flags() & 0x010, 0x010);
                }
                if !v6 {
                    prop_assert_eq!(Ipv4(&s.data()[ip.at..]).id(), 0xffffu16.wrapping_add(i as u16));
                }
                prop_assert!(l4.len() - header <= usize::from(size) && (last || l4.len() - header == usize::from(size)));
                back.extend(&l4[header..]);
            }
            prop_assert_eq!(back, payload);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, kind in 0..3usize, v6: bool, size: u16, start in prop::option::of(0..160u16)) {
            let mut f = vec![0; 12];
            f.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
            f.extend(bytes);
            let mut p = Packet::from_slice(&f);
            p.offload.gso =
                Some(Gso { kind: [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpL4][kind], size, ecn: true });
            if let Some(start) = start {
                p.offload.checksum = Checksum::Partial { start, offset: 16 };
            }
            let _ = segment(&p);
            prop_assert!(longest_frame(&p) <= p.len());
        }
    }

    #[test]
    fn segments_have_the_metadata_of_the_packet() {
        let mut p = large(GsoKind::TcpV4, false, 1, &[0; 100], 50);
        (p.recirc_id, p.dp_hash, p.passes, p.tags) = (1, 2, 3, 4);
        p.metadata_mut().pkt_mark = 5;
        let segments = segment(&p).expect("fits its mark");
        assert_eq!(segments.len(), 2);
        for s in segments {
            assert_eq!((s.recirc_id, s.dp_hash, s.passes, s.tags), (1, 2, 3, 4));
            assert_eq!(s.metadata(), p.metadata());
        }
    }

    /// A GSO packet behind outer headers of a tunnel is segmented into what its segments would be behind those headers.
    #[test]
    fn segments_of_encapsulated_packets_have_right_headers_throughout() {
        let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
        for (inner_v6, outer_v6, proto, has_checksum) in [
            (false, false, UDP, false),
            (true, false, UDP, true),
            (false, true, UDP, true),
            (true, true, GRE, true),
            (false, false, GRE, false),
            (false, false, IP_IN_IP, false),
            (true, false, IPV6_IN_IP, false),
            (true, true, IPV6_IN_IP, false),
        ] {
            let kind = if inner_v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 };
            let inner = large(kind, inner_v6, 0, &[9; 2500], 1000);
            let push = |frame: &[u8], n: usize| {
                let skipped = if matches!(proto, UDP | GRE) { 0 } else { 14 };
                let rest = &frame[skipped..];
                let tunnel = match proto {
                    UDP => [&[0, 5, 0x12, 0xb5, 0, 0, 0, 0][..], &vxlan].concat(),
                    GRE if has_checksum => vec![0x80, 0, 0x65, 0x58, 0, 0, 0, 0],
                    GRE => vec![0, 0, 0x65, 0x58],
                    _ => vec![],
                };
                let len = tunnel.len() + rest.len();
                let mut f = vec![3; 12];
                f.extend(if outer_v6 { [0x86, 0xdd] } else { [8, 0] });
                if outer_v6 {
                    let repr = Ipv6Repr { src: 3, dst: 4, next_header: proto, hop_limit: 8, ..Ipv6Repr::default() };
                    repr.emit(len, &mut f);
                } else {
                    Ipv4Repr { src: 3, dst: 4, proto, ttl: 8, id: n as u16, ..Ipv4Repr::default() }.emit(len, &mut f);
                }
                let l4 = f.len();
                f.extend(tunnel);
                f.extend(rest);
                if proto == UDP {
                    f[l4 + 4..l4 + 6].copy_from_slice(&(len as u16).to_be_bytes());
                }
                let ip = wire::ip(&f).expect("outer headers");
                let sum = Sum::new().bytes(&f[l4..]);
                let (at, sum) = if proto == GRE { (4, sum) } else { (6, wire::pseudo(&f, &ip) + sum) };
                if has_checksum {
                    f[l4 + at..l4 + at + 2].copy_from_slice(&sum.finish().to_be_bytes());
                }
                (Packet::from_slice(&f), l4 + len - rest.len())
            };
            let expected: Vec<_> =
                segment(&inner).expect("fits its mark").iter().enumerate().map(|(n, s)| push(s.data(), n).0).collect();
            let (mut whole, inner_at) = push(inner.data(), 0);
            let skipped = if matches!(proto, UDP | GRE) { 0 } else { 14 };
            let start = inner_at + 14 - skipped + if inner_v6 { 40 } else { 20 };
            whole.offload.gso = inner.offload.gso;
            whole.offload.checksum = Checksum::Partial { start: start as u16, offset: 16 };
            let segments = segment(&whole).expect("fits its mark");
            assert!(
                segments.iter().map(Packet::data).eq(expected.iter().map(Packet::data)),
                "{proto} {inner_v6} {outer_v6}"
            );
            assert_eq!(longest_frame(&whole), expected[0].len());
        }
    }

    #[test]
    fn marks_and_bytes_must_agree() {
        let mut p = large(GsoKind::TcpV4, false, 0, &[0; 100], 50);
        p.offload.gso = Some(Gso { kind: GsoKind::TcpV6, size: 50, ecn: false });
        assert_eq!(segment(&p), Err(SegmentError::Mismatch));
        p.offload.gso = None;
        assert_eq!(segment(&p), Err(SegmentError::NoMark));
    }
}
