//! Checksums and segmentation in software ([`packet::checksum`], [`packet::segment`]), for devices and paths that do
//! not support a packet's offload flags.

use packet::{Batch, Checksum, Packet, checksum, segment};

use crate::pool;

/// Whether a frame can go on the wire as it is.
pub fn is_finished(packet: &Packet) -> bool {
    packet.offload.gso.is_none() && !matches!(packet.offload.checksum, Checksum::Partial { .. })
}

/// Does the work of `packet`'s offload flags and appends the resulting frames, one or many, to `out`. If the flags do
/// not fit the frame, returns the packet as an error and leaves `out` unchanged.
pub fn finish(mut packet: Packet, out: &mut Batch) -> Result<(), Packet> {
    if packet.offload.gso.is_some() {
        return match segment::segment(&packet) {
            Ok(mut segments) => {
                out.append(&mut segments);
                pool::recycle(packet);
                Ok(())
            }
            Err(_) => Err(packet),
        };
    }
    let asked = packet.offload.checksum;
    checksum::finish(&mut packet);
    if matches!(asked, Checksum::Partial { .. }) && packet.offload.checksum != Checksum::Good {
        return Err(packet);
    }
    out.push(packet);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Gso, GsoKind};
    use proptest::prelude::*;

    tally::proptest! {
        #[test]
        fn no_bytes_and_flags_panic(
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
    fn flags_beyond_the_frame_are_refused() {
        for (start, offset) in [(50, 9), (61, 0)] {
            let mut packet = Packet::from_slice(&[0; 60]);
            packet.offload.checksum = Checksum::Partial { start, offset };
            assert!(!is_finished(&packet));
            assert!(finish(packet, &mut Batch::new()).is_err());
        }
        let mut out = Batch::new();
        assert!(finish(Packet::from_slice(&[0; 60]), &mut out).is_ok());
        assert_eq!(out, [Packet::from_slice(&[0; 60])]);
    }
}
