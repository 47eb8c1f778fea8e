//! Any bytes as a frame: it has a key, from which a frame with the same key can be composed; and checksums and
//! segmentation cope with it.
#![no_main]

use base::PortNo;
use flow::text::{NoNames, flow_key_to_string};
use flow::{Field, compose, extract};
use packet::checksum::{finish, verify};
use packet::segment::segment;
use packet::{Checksum, Gso, GsoKind, Packet};

fuzz::target!(|bytes: &[u8]| {
    let (key, layers) = extract(bytes, PortNo(7));
    let at = |offset: Option<u16>| offset.map_or(0, usize::from);
    assert!(layers.end <= bytes.len() && at(layers.l3).max(at(layers.l2_5)) <= bytes.len());
    assert!(at(layers.l4) <= layers.end);
    if key.eth_type() != 0 {
        let frame = compose(&key, b"payload");
        let (again, _) = extract(&frame, PortNo(7));
        let text = |key| flow_key_to_string(key, &NoNames);
        assert_eq!(text(&again), text(&key), "composed: {frame:02x?}");
        let later_fragment = key.get(Field::IpFrag) & 2 != 0;
        assert!(later_fragment || verify(&frame) != packet::checksum::Verdict::Bad, "{frame:02x?}");
    }
    let _ = verify(bytes);
    marks(bytes);
    partial_checksum(bytes);
});

/// Completing a checksum that was recognised as partial makes it correct.
fn partial_checksum(bytes: &[u8]) {
    let Some(mark) = netdev_afxdp::partial_checksum::mark(bytes) else { return };
    let mut packet = Packet::from_slice(bytes);
    packet.offload.checksum = mark;
    finish(&mut packet);
    assert_eq!(packet.offload.checksum, Checksum::Good);
    let frame = packet.data();
    let ip = packet::wire::ip(frame).expect("a packet with a checksum");
    assert_eq!(packet::wire::pseudo(frame, &ip).bytes(&frame[ip.l4..ip.end]).finish(), 0, "{frame:02x?}");
}

/// Offload flags that a driver may set for a frame, taken from the frame's own bytes.
fn marks(bytes: &[u8]) {
    let mut packet = Packet::from_slice(bytes);
    let half = |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    packet.offload.checksum = Checksum::Partial { start: half(0) % 64, offset: half(2) % 64 };
    finish(&mut packet.clone());
    for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpL4] {
        // Small segments of many bytes only cost time.
        packet.offload.gso = Some(Gso { kind, size: 8 + half(4) % 1500, ecn: true });
        for part in segment(&packet).unwrap_or_default() {
            assert!(verify(part.data()) != packet::checksum::Verdict::Bad, "{:02x?}", part.data());
        }
    }
}
