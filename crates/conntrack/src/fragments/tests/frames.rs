//! Frames of fragments, and where their headers are.

use packet::Packet;
use packet::checksum::{checksum, pseudo_v4, pseudo_v6};
use packet::wire::{Ipv4, Ipv6};

use crate::fragments::{Family, Fragments, PassReason, Taken};
use crate::parse::Fragment;
use base::Millis;

/// The headers of the fragments of a datagram.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    pub(super) family: Family,
    pub(super) id: u32,
    pub(super) src: u8,
    pub(super) dst: u8,
    pub(super) proto: u8,
    /// Options of the IPv4 header, or IPv6 extension headers before the fragment header, each of 8 bytes.
    pub(super) options: usize,
    /// VLAN tags.
    pub(super) tags: usize,
    /// Bytes behind the IP packet.
    pub(super) padding: usize,
}

pub(super) const V4: Headers =
    Headers { family: Family::V4, id: 7, src: 1, dst: 2, proto: 17, options: 0, tags: 0, padding: 0 };
pub(super) const V6: Headers = Headers { family: Family::V6, ..V4 };

/// A UDP datagram of `len` bytes with a checksum.
pub(super) fn udp(headers: &Headers, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
    bytes[..8].copy_from_slice(&[3, 232, 7, 208, (len >> 8) as u8, len as u8, 0, 0]);
    let sum = match headers.family {
        Family::V4 => pseudo_v4([10, 0, 0, headers.src], [10, 0, 0, headers.dst], 17, len as u16),
        Family::V6 => pseudo_v6(&v6(headers.src), &v6(headers.dst), 17, len as u32),
    };
    let sum = sum.bytes(&bytes).finish();
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn v6(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, last);
    address
}

impl Headers {
    /// A fragment with a payload, that begins at `start` in the datagram.
    pub(super) fn fragment(&self, payload: &[u8], start: usize, more: bool) -> Packet {
        let mut frame = vec![2; 12];
        (0..self.tags).for_each(|n| frame.extend([0x81, 0, 0, n as u8]));
        match self.family {
            Family::V4 => self.emit_v4(payload, start, more, &mut frame),
            Family::V6 => self.emit_v6(payload, start, more, &mut frame),
        }
        frame.extend_from_slice(payload);
        frame.resize(frame.len() + self.padding, 0xee);
        Packet::from_slice(&frame)
    }

    fn emit_v4(&self, payload: &[u8], start: usize, more: bool, frame: &mut Vec<u8>) {
        frame.extend([8, 0]);
        let at = frame.len();
        let len = 20 + 4 * self.options;
        frame.resize(at + len, 1);
        let mut ip = Ipv4::new_checked(&mut frame[at..]).unwrap();
        ip.set_version_ihl(0x40 | (len / 4) as u8);
        ip.set_total_len((len + payload.len()) as u16);
        ip.set_id(self.id as u16);
        ip.set_flags_offset((start / 8) as u16 | u16::from(more) << 13);
        ip.set_ttl(64);
        ip.set_proto(self.proto);
        ip.set_src(u32::from_be_bytes([10, 0, 0, self.src]));
        ip.set_dst(u32::from_be_bytes([10, 0, 0, self.dst]));
        ip.set_checksum(0);
        let sum = checksum(&frame[at..]);
        frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    }

    fn emit_v6(&self, payload: &[u8], start: usize, more: bool, frame: &mut Vec<u8>) {
        frame.extend([0x86, 0xdd]);
        let at = frame.len();
        frame.resize(at + 40, 0);
        let mut ip = Ipv6::new_checked(&mut frame[at..]).unwrap();
        ip.set_version_class_label(6 << 28);
        ip.set_payload_len((8 * self.options + 8 + payload.len()) as u16);
        ip.set_next_header(if self.options > 0 { 60 } else { 44 });
        ip.set_hop_limit(64);
        ip.set_src(u128::from_be_bytes(v6(self.src)));
        ip.set_dst(u128::from_be_bytes(v6(self.dst)));
        for n in 1..=self.options {
            frame.extend([if n < self.options { 60 } else { 44 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame.extend([self.proto, 0]);
        frame.extend((start as u16 | u16::from(more)).to_be_bytes());
        frame.extend(self.id.to_be_bytes());
    }

    /// Fragments with at most `size` bytes of payload.
    pub(super) fn split(&self, datagram: &[u8], size: usize) -> Vec<Packet> {
        let last = datagram.len().div_ceil(size) - 1;
        let piece = |(i, part)| self.fragment(part, i * size, i < last);
        datagram.chunks(size).enumerate().map(piece).collect()
    }
}

/// Describes a fragment; `None` for another packet.
pub(super) fn locate(frame: &[u8]) -> Option<Fragment> {
    let (l3, kind) = packet::wire::network(frame)?;
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if kind == 0x0800 {
        let bits = half(l3 + 6);
        let found = Fragment {
            l3,
            header: l3,
            payload: l3 + usize::from(frame[l3] & 0xf) * 4,
            end: l3 + usize::from(half(l3 + 2)),
            is_v6: false,
            offset: usize::from(bits & 0x1fff) * 8,
            more: bits & 0x2000 != 0,
            id: half(l3 + 4).into(),
            proto: frame[l3 + 9],
        };
        return (bits & 0x3fff != 0).then_some(found);
    }
    let (mut next, mut header) = (frame[l3 + 6], l3 + 40);
    while next == 60 {
        (next, header) = (frame[header], header + 8 * (1 + usize::from(frame[header + 1])));
    }
    (next == 44).then(|| Fragment {
        l3,
        header,
        payload: header + 8,
        end: l3 + 40 + usize::from(half(l3 + 4)),
        is_v6: true,
        offset: usize::from(half(header + 2) & !7),
        more: half(header + 2) & 1 != 0,
        id: u32::from(half(header + 4)) << 16 | u32::from(half(header + 6)),
        proto: frame[header],
    })
}

/// Takes a fragment in zone 5 at port 1.
pub(super) fn take(fragments: &mut Fragments, packet: Packet, now: Millis) -> Taken {
    let at = locate(packet.data()).unwrap();
    fragments.take(packet, &at, 5, 1, now)
}

/// Takes a fragment, and asserts that it passes with a reason.
#[track_caller]
pub(super) fn passes(fragments: &mut Fragments, packet: Packet) -> PassReason {
    let before = packet.clone();
    match take(fragments, packet, Millis(0)) {
        Taken::Pass(packet, reason) => {
            assert_eq!(packet, before);
            reason
        }
        other => panic!("{other:?}"),
    }
}

/// Takes fragments; the last one completes the datagram.
#[track_caller]
pub(super) fn complete(fragments: &mut Fragments, packets: Vec<Packet>) -> super::super::Datagram {
    let n = packets.len();
    for (i, packet) in packets.into_iter().enumerate() {
        match take(fragments, packet, Millis(0)) {
            Taken::Held => assert!(i + 1 < n, "not complete"),
            Taken::Complete(datagram) if i + 1 == n => return datagram,
            other => panic!("fragment {i}: {other:?}"),
        }
    }
    panic!("no fragments")
}
