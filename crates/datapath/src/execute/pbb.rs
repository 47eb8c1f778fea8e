//! Pushing and popping the service instance tags of provider backbone bridges (IEEE 802.1ah).
//!
//! Such a tag precedes a whole frame, and follows an Ethernet header of its own, which may have VLAN tags: addresses,
//! tags, type 0x88e7, four bytes, then addresses, tags and type of the customer's frame.

use base::DropReason;
use flow::extract::ethertype;
use packet::Packet;

use super::headers::Headers;

/// Both addresses.
const ADDRESSES_LEN: usize = 12;
const TYPE_LEN: usize = 2;
/// The tag's control information.
const TCI_LEN: usize = 4;
/// A length, and 802.2 and SNAP headers without their type.
const SNAP_LEN: usize = 8;

/// Pushes a header with the frame's addresses and a tag.
pub(super) fn push(packet: &mut Packet, tci: u32) -> Result<(), DropReason> {
    let Some(&addresses) = packet.data().first_chunk::<ADDRESSES_LEN>().filter(|_| packet.l3_type.is_none()) else {
        return Err(DropReason::Truncated);
    };
    let header = packet.insert(0, ADDRESSES_LEN + TYPE_LEN + TCI_LEN);
    header[..ADDRESSES_LEN].copy_from_slice(&addresses);
    header[ADDRESSES_LEN..ADDRESSES_LEN + TYPE_LEN].copy_from_slice(&ethertype::PBB.to_be_bytes());
    header[ADDRESSES_LEN + TYPE_LEN..].copy_from_slice(&tci.to_be_bytes());
    packet.tags = 0;
    Ok(())
}

/// Removes the tag behind `vlans_max` VLAN tags at most, with the addresses in front of it. A frame without one stays
/// unchanged.
pub(super) fn pop(packet: &mut Packet, vlans_max: usize) -> Result<(), DropReason> {
    let headers = Headers::behind_tags(packet, vlans_max);
    if packet.l3_type.is_some() || !headers.is(ethertype::PBB) {
        return Ok(());
    }
    let inner = headers.l3 + TCI_LEN;
    let addresses = packet.data().get(inner..).and_then(|frame| frame.first_chunk::<ADDRESSES_LEN>()).copied();
    let Some(addresses) = addresses.filter(|_| packet.len() >= inner + ADDRESSES_LEN + TYPE_LEN) else {
        return Err(DropReason::Truncated);
    };
    // The start of the removed bytes: behind the VLAN tags.
    let begin = headers.l3 - TYPE_LEN - if headers.snap { SNAP_LEN } else { 0 };
    if !packet.remove(begin, inner + ADDRESSES_LEN - begin) {
        return Err(DropReason::Truncated);
    }
    packet.data_mut()[..ADDRESSES_LEN].copy_from_slice(&addresses);
    packet.tags = 0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Checksum;
    use proptest::prelude::*;

    fn frame(address: u8, tags: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[address; ADDRESSES_LEN][..], tags, rest].concat()
    }

    #[test]
    fn push_then_pop() {
        let inner = frame(2, &[0x81, 0, 0x60, 5], &[8, 0, 1, 2, 3]);
        let mut p = Packet::from_slice(&inner);
        p.offload.checksum = Checksum::Partial { start: 38, offset: 16 };
        push(&mut p, 0x6812_3456).expect("a frame");
        let tag = [0x88, 0xe7, 0x68, 0x12, 0x34, 0x56];
        assert_eq!(p.data(), frame(2, &[], &[&tag[..], &inner].concat()));
        assert_eq!(p.offload.checksum, Checksum::Partial { start: 56, offset: 16 });
        pop(&mut p, 2).expect("tagged");
        assert_eq!((p.data(), p.offload.checksum), (&inner[..], Checksum::Partial { start: 38, offset: 16 }));
        pop(&mut p, 2).expect("nothing to be done");
        assert_eq!(p.data(), inner);
    }

    #[test]
    fn pop_restores_inner_addresses_and_keeps_outer_tags() {
        let inner = frame(2, &[0x81, 0, 0, 5], &[8, 0, 1, 2, 3]);
        let tag = [0x88, 0xe7, 0, 0, 0, 1];
        for outer in [&[][..], &[0x88, 0xa8, 0, 7], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 6]] {
            let mut p = Packet::from_slice(&frame(1, outer, &[&tag[..], &inner].concat()));
            pop(&mut p, 2).expect("tagged");
            assert_eq!(p.data(), frame(2, &[outer, &inner[12..16]].concat(), &inner[16..]));
        }
        let snap = [0, 30, 0xaa, 0xaa, 3, 0, 0, 0];
        let mut p = Packet::from_slice(&frame(1, &snap, &[&tag[..], &inner].concat()));
        pop(&mut p, 2).expect("tagged");
        assert_eq!(p.data(), inner);
    }

    #[test]
    fn truncated_frames_are_errors() {
        assert_eq!(push(&mut Packet::from_slice(&[0; 11]), 1), Err(DropReason::Truncated));
        let short = frame(1, &[0x88, 0xe7], &[0; 17]);
        let mut p = Packet::from_slice(&short);
        assert_eq!(pop(&mut p, 2), Err(DropReason::Truncated));
        assert_eq!(p.data(), short);
        let mut p = Packet::from_slice(&[&short[..], &[0]].concat());
        pop(&mut p, 2).expect("an Ethernet header");
        assert_eq!(p.data(), [0; 14]);
    }

    tally::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), kind in 0..4usize) {
            let mut bytes = bytes;
            let head: &[u8] = [&[][..], &[0x88, 0xe7], &[0x81, 0, 0, 5, 0x88, 0xe7], &[0, 9, 0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xe7]][kind];
            for (at, b) in bytes.iter_mut().skip(12).zip(head) {
                *at = *b;
            }
            let mut packet = Packet::from_slice(&bytes);
            let popped = pop(&mut packet, 2);
            prop_assert!(popped.is_ok() || packet.data() == bytes);
            let mut packet = Packet::from_slice(&bytes);
            if push(&mut packet, 5).is_ok() && bytes.len() >= 14 {
                prop_assert_eq!(pop(&mut packet, 2), Ok(()));
                prop_assert_eq!(packet.data(), bytes);
            }
        }
    }
}
