//! Pushing and popping MPLS label stack entries (RFC 3032), between the Ethernet and VLAN headers and their payload.

use base::DropReason;
use flow::extract::ethertype;
use packet::Packet;

use super::encap::TEB;
use super::headers::Headers;

const ENTRY_LEN: usize = 4;
/// 802.2 and SNAP headers, up to the Ethernet type in them.
const SNAP_LEN: usize = 8;
/// The largest 802.3 length; larger numbers in its place are Ethernet types.
const LENGTH_MAX: u16 = 0x5ff;

/// Returns true if label stack entries follow this Ethernet type.
pub(crate) fn is_mpls(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::MPLS | ethertype::MPLS_MCAST)
}

/// Pushes an entry behind the VLAN tags, at most `vlans_max`: those that the packet's key contains.
pub(crate) fn push(packet: &mut Packet, ethertype: u16, lse: u32, vlans_max: usize) -> Result<(), DropReason> {
    let headers = Headers::behind_tags(packet, vlans_max);
    if packet.len() < headers.l3 {
        return Err(DropReason::Truncated);
    }
    packet.insert(headers.l3, ENTRY_LEN).copy_from_slice(&lse.to_be_bytes());
    retype(packet, &headers, ethertype, |length| length.saturating_add(ENTRY_LEN as u16).min(LENGTH_MAX));
    Ok(())
}

/// Removes the outermost entry behind `vlans_max` tags at most. A packet without one stays unchanged.
pub(crate) fn pop(packet: &mut Packet, ethertype: u16, vlans_max: usize) -> Result<(), DropReason> {
    /// The Ethernet type of a frame without tags, and what it announces.
    const TYPE: usize = 12;
    if packet.l3_type.is_none()
        && let Some(bytes) = packet.data().get(TYPE..).and_then(|rest| rest.first_chunk())
        && is_mpls(u16::from_be_bytes(*bytes))
    {
        if !packet.remove(TYPE + 2, ENTRY_LEN) {
            return Err(DropReason::Truncated);
        }
        super::set::change16(packet.data_mut(), TYPE, |_| ethertype);
        return Ok(());
    }
    let headers = Headers::behind_tags(packet, vlans_max);
    if !is_mpls(headers.ethertype) {
        return Ok(());
    }
    if !packet.remove(headers.l3, ENTRY_LEN) {
        return Err(DropReason::Truncated);
    }
    retype(packet, &headers, ethertype, |length| length.saturating_sub(ENTRY_LEN as u16));
    Ok(())
}

/// Copies the TTL between the outermost entry, behind `vlans_max` tags at most, and the header below it.
pub(crate) fn copy_ttl(packet: &mut Packet, outwards: bool, vlans_max: usize) {
    const BOTTOM: u8 = 1;
    const ENTRY_TTL: usize = 3;
    let headers = Headers::behind_tags(packet, vlans_max);
    if !is_mpls(headers.ethertype) {
        return;
    }
    let data = packet.data_mut();
    let under = headers.l3 + ENTRY_LEN;
    let &[_, _, flags, ..] = data.get(headers.l3..).unwrap_or_default() else { return };
    // The first bits of the payload below the last entry tell its IP version.
    let (place, v4) = match data.get(under).map(|b| b >> 4) {
        Some(_) if flags & BOTTOM == 0 => (under + ENTRY_TTL, false),
        Some(4) => (under + 8, true),
        Some(6) => (under + 7, false),
        _ => return,
    };
    let (Some(outer), Some(inner)) = (data.get(headers.l3 + ENTRY_TTL).copied(), data.get(place).copied()) else {
        return;
    };
    if outwards {
        data[headers.l3 + ENTRY_TTL] = inner;
    } else if v4 {
        // The header checksum covers the TTL as the upper half of a word.
        super::set::change16(data, place, |word| word & 0xff | u16::from(outer) << 8);
        let by = (u16::from(inner) << 8, u16::from(outer) << 8);
        super::set::change16(data, under + 10, |sum| packet::checksum::update16(sum, by.0, by.1));
    } else {
        data[place] = outer;
    }
}

/// Sets the type of the packet's payload, and its length if the frame has one.
fn retype(packet: &mut Packet, headers: &Headers, ethertype: u16, length: impl FnOnce(u16) -> u16) {
    if packet.l3_type.is_some() {
        packet.l3_type = (ethertype != TEB).then_some(ethertype);
        return;
    }
    super::set::change16(packet.data_mut(), headers.l3 - 2, |_| ethertype);
    if headers.snap {
        super::set::change16(packet.data_mut(), headers.l3 - SNAP_LEN - 2, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Checksum;
    use packet::wire::MplsRepr;
    use proptest::prelude::*;

    const IPV4: u16 = ethertype::IPV4;
    const MPLS: u16 = ethertype::MPLS;

    fn push(packet: &mut Packet, ethertype: u16, lse: u32) -> Result<(), DropReason> {
        super::push(packet, ethertype, lse, 2)
    }

    fn pop(packet: &mut Packet, ethertype: u16) -> Result<(), DropReason> {
        super::pop(packet, ethertype, 2)
    }

    fn lse(label: u32, bottom: bool) -> u32 {
        MplsRepr { label, tc: 5, bottom, ttl: 64 }.lse()
    }

    fn frame(tags: &[u8], kind: u16, payload: &[u8]) -> Vec<u8> {
        [&[1; 6], &[2; 6], tags, &kind.to_be_bytes(), payload].concat()
    }

    #[test]
    fn labels_are_pushed_behind_vlan_tags() {
        for tags in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]] {
            let mut p = Packet::from_slice(&frame(tags, IPV4, &[7; 20]));
            let l4 = 14 + tags.len() + 20;
            p.offload.checksum = Checksum::Partial { start: l4 as u16, offset: 16 };
            push(&mut p, MPLS, lse(5, true)).expect("whole");
            push(&mut p, ethertype::MPLS_MCAST, lse(0xf_ffff, false)).expect("whole");
            let entries = [0xff, 0xff, 0xfa, 64, 0, 0, 0x5b, 64];
            assert_eq!(p.data(), frame(tags, ethertype::MPLS_MCAST, &[&entries[..], &[7; 20]].concat()));
            assert_eq!(p.offload.checksum, Checksum::Partial { start: l4 as u16 + 8, offset: 16 });
            pop(&mut p, MPLS).expect("labelled");
            assert_eq!(p.data(), frame(tags, MPLS, &[&entries[4..], &[7; 20]].concat()));
            pop(&mut p, IPV4).expect("labelled");
            assert_eq!(p.data(), frame(tags, IPV4, &[7; 20]));
            assert_eq!(p.offload.checksum, Checksum::Partial { start: l4 as u16, offset: 16 });
            pop(&mut p, IPV4).expect("nothing to be done");
            assert_eq!(p.data(), frame(tags, IPV4, &[7; 20]));
        }
    }

    #[test]
    fn tags_beyond_the_limit_are_carried() {
        let inner = [&[0, 5][..], &[0x81, 0, 0, 6, 8, 0], &[7; 20]].concat();
        let tagged = frame(&[], ethertype::QINQ, &inner);
        let mut p = Packet::from_slice(&tagged);
        super::push(&mut p, MPLS, lse(5, true), 1).expect("whole");
        assert_eq!(p.data()[12..24], [0x88, 0xa8, 0, 5, 0x88, 0x47, 0, 0, 0x5b, 64, 0, 6]);
        super::pop(&mut p, ethertype::VLAN, 1).expect("labelled");
        assert_eq!(p.data(), tagged);
    }

    #[test]
    fn pushes_and_pops_update_the_802_3_length() {
        let llc = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 1, 2, 3];
        let mut p = Packet::from_slice(&frame(&[], llc.len() as u16, &llc));
        push(&mut p, MPLS, lse(1, true)).expect("whole");
        let labelled = [0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0x47, 0, 0, 0x1b, 64, 1, 2, 3];
        assert_eq!(p.data(), frame(&[], labelled.len() as u16, &labelled));
        pop(&mut p, IPV4).expect("labelled");
        assert_eq!(p.data(), frame(&[], llc.len() as u16, &llc));
    }

    #[test]
    fn truncated_frames_are_errors() {
        assert_eq!(push(&mut Packet::from_slice(&[0; 13]), MPLS, 1), Err(DropReason::Truncated));
        let mut p = Packet::from_slice(&frame(&[], MPLS, &[0; 3]));
        assert_eq!(pop(&mut p, IPV4), Err(DropReason::Truncated));
        assert_eq!(p.data(), frame(&[], MPLS, &[0; 3]));
    }

    tally::proptest! {
        /// Compares a label stack with a list after each step.
        #[test]
        fn a_label_stack_agrees_with_a_list(
            tags in 0..3usize,
            payload in prop::collection::vec(any::<u8>(), 0..40),
            steps in prop::collection::vec(prop_oneof![any::<u32>().prop_map(Some), Just(None)], 0..20),
        ) {
            let tags = [0x81, 0, 0, 9].repeat(tags);
            let mut packet = Packet::from_slice(&frame(&tags, 0x88b5, &payload));
            let mut stack: Vec<u32> = Vec::new();
            for step in steps {
                match step {
                    Some(lse) => {
                        push(&mut packet, MPLS, lse).expect("whole");
                        stack.insert(0, lse);
                    }
                    None => {
                        pop(&mut packet, if stack.len() > 1 { MPLS } else { 0x88b5 }).expect("whole");
                        stack.drain(..stack.len().min(1));
                    }
                }
                let entries: Vec<u8> = stack.iter().flat_map(|lse| lse.to_be_bytes()).collect();
                let kind = if stack.is_empty() { 0x88b5 } else { MPLS };
                prop_assert_eq!(packet.data(), frame(&tags, kind, &[&entries[..], &payload].concat()));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), kind in 0..4usize, pops: bool) {
            let mut bytes = bytes;
            let head: &[u8] = [&[][..], &[0x88, 0x47], &[0x81, 0], &[0, 9, 0xaa, 0xaa, 3, 0, 0, 0]][kind];
            for (at, b) in bytes.iter_mut().skip(12).zip(head) {
                *at = *b;
            }
            let mut packet = Packet::from_slice(&bytes);
            let result = if pops { pop(&mut packet, IPV4) } else { push(&mut packet, MPLS, 1) };
            prop_assert!(result.is_ok() || packet.data() == bytes);
        }
    }
}
