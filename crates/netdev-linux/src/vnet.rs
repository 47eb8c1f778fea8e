//! The virtio-net header (virtio 1.2, section 5.1.6): ten bytes in front of a frame that carry offload flags to and
//! from the kernel. Packet sockets and taps use native byte order.

use packet::{Checksum, Gso, GsoKind, Offload, Packet};

/// Bytes of the header.
pub(crate) const LEN: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The length of the linear part of a large frame that the kernel allocates: more than any headers in use.
const HEADERS_LEN: usize = 128;

/// The offload flags of a header; `None` if they contain an unknown value.
pub(crate) fn parse(header: [u8; LEN]) -> Option<Offload> {
    let [flags, gso_type, _, _, g0, g1, s0, s1, o0, o1] = header;
    let checksum = if flags & FLAG_NEEDS_CSUM != 0 {
        Checksum::Partial { start: u16::from_ne_bytes([s0, s1]), offset: u16::from_ne_bytes([o0, o1]) }
    } else if flags & FLAG_DATA_VALID != 0 {
        Checksum::Good
    } else {
        Checksum::Unknown
    };
    let size = u16::from_ne_bytes([g0, g1]);
    let ecn = gso_type & GSO_ECN != 0;
    let kind = match gso_type & !GSO_ECN {
        GSO_NONE => return Some(Offload { checksum, gso: None }),
        GSO_TCPV4 => GsoKind::TcpV4,
        GSO_TCPV6 => GsoKind::TcpV6,
        GSO_UDP_L4 => GsoKind::UdpL4,
        _ => return None,
    };
    (size > 0).then_some(Offload { checksum, gso: Some(Gso { kind, size, ecn }) })
}

/// The header of a packet.
pub(crate) fn emit(packet: &Packet) -> [u8; LEN] {
    let mut flags = 0;
    let (mut start, mut offset) = ([0; 2], [0; 2]);
    if let Checksum::Partial { start: s, offset: o } = packet.offload.checksum {
        flags = FLAG_NEEDS_CSUM;
        (start, offset) = (s.to_ne_bytes(), o.to_ne_bytes());
    }
    let mut gso_type = GSO_NONE;
    let mut size = [0; 2];
    if let Some(gso) = packet.offload.gso {
        gso_type = match gso.kind {
            GsoKind::TcpV4 => GSO_TCPV4,
            GsoKind::TcpV6 => GSO_TCPV6,
            GsoKind::UdpL4 => GSO_UDP_L4,
        } | if gso.ecn { GSO_ECN } else { 0 };
        size = gso.size.to_ne_bytes();
    }
    // Without it, the kernel would allocate contiguous memory for the whole frame.
    let headers = packet.len().min(HEADERS_LEN) as u16;
    let [h0, h1] = headers.to_ne_bytes();
    [flags, gso_type, h0, h1, size[0], size[1], start[0], start[1], offset[0], offset[1]]
}

const VLAN_TAG_LEN: usize = 4;
const MACS_LEN: usize = 12;

/// Reinserts the VLAN tag that the kernel stripped.
pub(crate) fn reinsert_tag(packet: &mut Packet, protocol: u16, control: u16) {
    if packet.len() >= MACS_LEN {
        let [p0, p1] = protocol.to_be_bytes();
        let [c0, c1] = control.to_be_bytes();
        packet.insert(MACS_LEN, VLAN_TAG_LEN).copy_from_slice(&[p0, p1, c0, c1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    tally::proptest! {
        #[test]
        fn offload_flags_round_trip(partial in any::<Option<(u16, u16)>>(), gso in any::<Option<(u8, u16, bool)>>()) {
            let mut packet = Packet::from_slice(&[0; 60]);
            if let Some((start, offset)) = partial {
                packet.offload.checksum = Checksum::Partial { start, offset };
            }
            packet.offload.gso = gso.map(|(kind, size, ecn)| {
                let kind = [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpL4][usize::from(kind) % 3];
                Gso { kind, size: size.max(1), ecn }
            });
            prop_assert_eq!(parse(emit(&packet)), Some(packet.offload));
        }

        #[test]
        fn no_header_panics(header in any::<[u8; LEN]>()) {
            let _ = parse(header);
        }
    }

    #[test]
    fn unknown_kinds_are_refused() {
        assert_eq!(parse([0, 3, 0, 0, 1, 1, 0, 0, 0, 0]), None);
        assert_eq!(parse([0, GSO_TCPV4, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(parse([FLAG_DATA_VALID, 0, 0, 0, 0, 0, 0, 0, 0, 0]).map(|o| o.checksum), Some(Checksum::Good));
    }

    #[test]
    fn a_reinserted_tag_moves_partial_checksums() {
        let mut packet = Packet::from_slice(&[7; 60]);
        packet.offload.checksum = Checksum::Partial { start: 34, offset: 16 };
        reinsert_tag(&mut packet, 0x88a8, 0x2064);
        assert_eq!(packet.data()[11..17], [7, 0x88, 0xa8, 0x20, 0x64, 7]);
        assert_eq!(packet.offload.checksum, Checksum::Partial { start: 38, offset: 16 });
    }
}
