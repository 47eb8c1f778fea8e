//! Finding frames whose transport checksum the sender left to a device.
//!
//! A local sender on a veth leaves the checksum to the device, the veth does not compute it, and AF_XDP has no flag
//! for that. But such a frame is recognisable: its checksum field holds exactly the sum of the pseudo-header, not
//! complemented. A frame with that number in the field whose checksum is right is complete (that
//! happens once in 65,536 frames). The rest may include damaged frames, but only by chance: a
//! damaged one has that number with a probability of one in 65,536, the share that the Internet checksum misses anyway. A
//! veth has no wire that could damage it either; frames of other devices are not treated so.

use packet::checksum::{self, Verdict};
use packet::wire::{self, Transport};
use packet::{Checksum, Packet};

const TCP_AT: usize = 16;
const UDP_AT: usize = 6;

/// The offload flags of a frame that looks as if its TCP or UDP checksum was left to the device.
pub fn mark(frame: &[u8]) -> Option<Checksum> {
    let ip = wire::ip(frame)?;
    if ip.fragment || ip.routed {
        return None;
    }
    let offset = match Transport::of(ip.proto)? {
        Transport::Tcp => TCP_AT,
        Transport::Udp => UDP_AT,
        _ => return None,
    };
    // Completing the checksum sums up to the end of the frame.
    if frame[ip.end..].iter().any(|byte| *byte != 0) {
        return None;
    }
    let field = frame.get(ip.l4..ip.end)?.get(offset..)?.first_chunk()?;
    if u16::from_be_bytes(*field) != wire::pseudo(frame, &ip).partial() || checksum::verify(frame) == Verdict::Good {
        return None;
    }
    Some(Checksum::Partial { start: u16::try_from(ip.l4).ok()?, offset: offset as u16 })
}

/// Flags a frame if it has a partial checksum.
pub(crate) fn flag(packet: &mut Packet) {
    if let Some(mark) = mark(packet.data()) {
        packet.offload.checksum = mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An Ethernet frame with an IPv4 or IPv6 packet of `proto` and a right checksum, padded.
    fn frame(v6: bool, tags: usize, proto: u8, payload: &[u8], padding: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0x00, 0, 5].repeat(tags));
        let offset = if proto == 6 { TCP_AT } else { UDP_AT };
        let mut l4 = vec![1, 2, 3, 4, 0, 0, 0, 0];
        l4.resize(if proto == 6 { 20 } else { 8 }, 0);
        l4.extend(payload);
        let sum = if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, (l4.len() >> 8) as u8, l4.len() as u8, proto, 64]);
            frame.extend([7; 32]);
            checksum::pseudo_v6(&[7; 16], &[7; 16], proto, l4.len() as u32)
        } else {
            let len = l4.len() + 20;
            let mut header = vec![0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, proto, 0, 0];
            header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = checksum::checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            frame.extend([8, 0]);
            frame.extend(header);
            checksum::pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], proto, l4.len() as u16)
        };
        let field = sum.bytes(&l4).finish().to_be_bytes();
        l4[offset..offset + 2].copy_from_slice(&field);
        frame.extend(l4);
        frame.resize(frame.len() + padding, 0);
        frame
    }

    /// Leaves the checksum to the device, as a sender does.
    fn unfinish(frame: &mut [u8]) -> Checksum {
        let ip = wire::ip(frame).expect("an IP packet");
        let offset = if ip.proto == 6 { TCP_AT } else { UDP_AT };
        let sum = wire::pseudo(frame, &ip).partial().to_be_bytes();
        frame[ip.l4 + offset..][..2].copy_from_slice(&sum);
        Checksum::Partial { start: ip.l4 as u16, offset: offset as u16 }
    }

    tally::proptest! {
        #[test]
        fn partial_checksums_are_completed_and_others_stay(
            v6: bool, tags in 0usize..3, tcp: bool, payload in prop::collection::vec(any::<u8>(), 0..100),
            padding in 0usize..20, broken in any::<prop::sample::Index>(),
        ) {
            let whole = frame(v6, tags, if tcp { 6 } else { 17 }, &payload, padding);
            prop_assert_eq!(mark(&whole), None);
            let mut left = whole.clone();
            let expected = unfinish(&mut left);
            if left != whole && checksum::verify(&left) != Verdict::Good {
                prop_assert_eq!(mark(&left), Some(expected));
                let mut packet = Packet::from_slice(&left);
                flag(&mut packet);
                checksum::finish(&mut packet);
                prop_assert_eq!(checksum::verify(packet.data()), Verdict::Good);
                left.push(1);
                prop_assert_eq!(mark(&left), None);
            }
            // A damaged frame is not repaired, unless it happens to look like one with a partial checksum.
            let mut spoilt = whole.clone();
            let at = broken.index(spoilt.len());
            spoilt[at] ^= 0x55;
            if let Some(found) = mark(&spoilt) {
                prop_assert_eq!(unfinish(&mut spoilt.clone()), found);
            }
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            mark(&bytes);
        }
    }

    #[test]
    fn other_protocols_fragments_and_empty_checksums_are_left_alone() {
        let mut udp = frame(false, 0, 17, b"data", 0);
        udp[40..42].fill(0);
        assert_eq!(mark(&udp), None);
        let mut fragment = frame(false, 0, 17, b"data", 0);
        fragment[20] = 0x20;
        unfinish(&mut fragment);
        assert_eq!(mark(&fragment), None);
        let mut sctp = frame(false, 0, 17, b"data", 0);
        sctp[23] = 132;
        assert_eq!((mark(&sctp), mark(&[]), mark(&[0; 14])), (None, None, None));
    }
}
