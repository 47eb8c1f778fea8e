//! Pushing and popping the outermost header: Ethernet, the network service header (RFC 8300), MPLS labels.
//!
//! Without an Ethernet header, a packet stores the Ethernet type of its outermost header in [`Packet::l3_type`] until
//! another one is pushed. Only frames leave through ports.

use base::{DropReason, MacAddr};
use dpif::action::PushNsh;
use flow::extract::ethertype;
use packet::Packet;
use packet::wire::{Nsh, NshRepr};

use super::headers::Headers;

/// Ethernet header: addresses and type.
const ETHERNET_LEN: usize = 14;
/// Transparent Ethernet bridging: the Ethernet type of a whole frame.
pub(super) const TEB: u16 = 0x6558;

/// The next protocol numbers of a network service header (RFC 8300 section 2.2), and their Ethernet types.
const NSH_NEXT: [(u8, u16); 5] =
    [(1, ethertype::IPV4), (2, ethertype::IPV6), (3, TEB), (4, ethertype::NSH), (5, ethertype::MPLS)];

/// Gives an L3 packet an Ethernet header. A frame stays unchanged.
pub(super) fn push_eth(packet: &mut Packet, dst: MacAddr, src: MacAddr) {
    if let Some(kind) = packet.l3_type.take() {
        let header = packet.insert(0, ETHERNET_LEN);
        header[..6].copy_from_slice(&dst.0);
        header[6..12].copy_from_slice(&src.0);
        header[12..].copy_from_slice(&kind.to_be_bytes());
    }
}

/// Removes the Ethernet header of a frame, which must have no VLAN tags.
pub(super) fn pop_eth(packet: &mut Packet) -> Result<(), DropReason> {
    if packet.l3_type.is_some() {
        return Ok(());
    }
    let headers = Headers::of(packet);
    if headers.vlan_tci.is_some() || headers.snap || !packet.remove(0, ETHERNET_LEN) {
        return Err(DropReason::Malformed);
    }
    packet.l3_type = Some(headers.ethertype);
    Ok(())
}

/// Pushes a label stack entry in front of all headers, including an Ethernet header.
pub(super) fn add_mpls(packet: &mut Packet, ethertype: u16, lse: u32) {
    let entry = lse.to_be_bytes();
    packet.insert(0, entry.len()).copy_from_slice(&entry);
    packet.l3_type = Some(ethertype);
}

/// Pushes a network service header in front of all headers. Its next protocol is that of the payload if it has a
/// number, otherwise the one in `what`.
pub(super) fn push_nsh(packet: &mut Packet, what: &PushNsh) {
    let inner = packet.l3_type.unwrap_or(TEB);
    let next = NSH_NEXT.iter().find(|(_, kind)| *kind == inner).map(|(np, _)| *np);
    let header = NshRepr { np: next.unwrap_or(what.header.np), ..what.header };
    let mut bytes = Vec::new();
    header.emit_with(&what.tlvs, &mut bytes);
    packet.insert(0, bytes.len()).copy_from_slice(&bytes);
    packet.l3_type = Some(ethertype::NSH);
}

/// Removes the network service header of a packet that begins with one. Other packets stay unchanged.
pub(super) fn pop_nsh(packet: &mut Packet) -> Result<(), DropReason> {
    if packet.l3_type != Some(ethertype::NSH) {
        return Ok(());
    }
    let header = Nsh::new_checked(packet.data()).map_err(|_| DropReason::Truncated)?;
    let (np, len) = (header.np(), header.header_len());
    let inner = NSH_NEXT.iter().find(|(next, _)| *next == np).map(|(_, kind)| *kind).ok_or(DropReason::Malformed)?;
    if len < NSH_MIN || !packet.remove(0, len) {
        return Err(DropReason::Truncated);
    }
    packet.l3_type = (inner != TEB).then_some(inner);
    Ok(())
}

/// Length of the base and service path headers.
const NSH_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Checksum;
    use proptest::prelude::*;

    fn frame(kind: u16, payload: &[u8]) -> Packet {
        Packet::from_slice(&[&[1; 6], &[2; 6], &kind.to_be_bytes()[..], payload].concat())
    }

    fn header(mdtype: u8, tlvs: &[u8]) -> PushNsh {
        let header = NshRepr { ttl: 63, np: 3, path: 0x0001_23ff, mdtype, context: [1, 2, 3, 4], flags: 0 };
        PushNsh { header, tlvs: tlvs.to_vec() }
    }

    #[test]
    fn nsh_carries_a_frame_within_a_frame() {
        let mut p = frame(ethertype::IPV4, &[7; 30]);
        p.offload.checksum = Checksum::Partial { start: 34, offset: 6 };
        let before = p.clone();
        push_nsh(&mut p, &header(1, &[]));
        assert_eq!(p.data()[..12], [0x0f, 0xc6, 1, 3, 0, 1, 0x23, 0xff, 0, 0, 0, 1]);
        assert_eq!((p.l3_type, p.len()), (Some(ethertype::NSH), 24 + 44));
        push_eth(&mut p, MacAddr([9; 6]), MacAddr([8; 6]));
        assert_eq!(p.data()[..14], [9, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8, 8, 0x89, 0x4f]);
        assert_eq!(p.offload.checksum, Checksum::Partial { start: 34 + 24 + 14, offset: 6 });
        push_eth(&mut p, MacAddr([7; 6]), MacAddr([7; 6]));
        pop_eth(&mut p).expect("a frame");
        pop_nsh(&mut p).expect("whole");
        pop_nsh(&mut p).expect("nothing to be done");
        assert_eq!(p, before);
    }

    #[test]
    fn nsh_names_the_payload() {
        let mut p = frame(ethertype::IPV6, &[7; 40]);
        pop_eth(&mut p).expect("a frame");
        pop_eth(&mut p).expect("nothing to be done");
        assert_eq!((p.l3_type, p.data()), (Some(ethertype::IPV6), &[7; 40][..]));
        push_nsh(&mut p, &header(2, &[0x10, 0, 1, 3, 2, 1, 0, 0]));
        assert_eq!(p.data()[..4], [0x0f, 0xc4, 2, 2]);
        add_mpls(&mut p, ethertype::MPLS, 0x5140);
        assert_eq!((p.l3_type, &p.data()[..4]), (Some(ethertype::MPLS), &[0, 0, 0x51, 0x40][..]));
        super::super::mpls::pop(&mut p, ethertype::NSH, 2).expect("labelled");
        pop_nsh(&mut p).expect("whole");
        assert_eq!((p.l3_type, p.data()), (Some(ethertype::IPV6), &[7; 40][..]));
        let mut inner = frame(ethertype::IPV4, &[7; 20]);
        add_mpls(&mut inner, ethertype::MPLS, 0x5140);
        super::super::mpls::pop(&mut inner, TEB, 2).expect("labelled");
        assert_eq!(inner, frame(ethertype::IPV4, &[7; 20]));
    }

    #[test]
    fn missing_and_truncated_headers_are_not_popped() {
        let mut tagged = frame(ethertype::VLAN, &[0, 5, 8, 0, 1]);
        assert_eq!(pop_eth(&mut tagged), Err(DropReason::Malformed));
        assert_eq!(pop_eth(&mut Packet::from_slice(&[0; 13])), Err(DropReason::Malformed));
        let l3 = |bytes: &[u8]| {
            let mut p = Packet::from_slice(bytes);
            p.l3_type = Some(ethertype::NSH);
            pop_nsh(&mut p)
        };
        assert_eq!(l3(&[0, 2, 2, 3, 0, 0, 0]), Err(DropReason::Truncated));
        assert_eq!(l3(&[0, 1, 2, 3, 0, 0, 0, 0]), Err(DropReason::Truncated));
        assert_eq!(l3(&[0, 3, 2, 3, 0, 0, 0, 0]), Err(DropReason::Truncated));
        assert_eq!(l3(&[0, 2, 2, 9, 0, 0, 0, 0]), Err(DropReason::Malformed));
        assert_eq!(l3(&[0, 2, 2, 3, 0, 0, 0, 0]), Ok(()));
    }

    tally::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, l3: Option<u16>, steps in prop::collection::vec(0..6usize, 0..9)) {
            let mut p = Packet::from_slice(&bytes);
            p.l3_type = l3;
            for step in steps {
                match step {
                    0 => push_eth(&mut p, MacAddr::ZERO, MacAddr::ZERO),
                    1 => drop(pop_eth(&mut p)),
                    2 => push_nsh(&mut p, &header(2, &[0; 4])),
                    3 => drop(pop_nsh(&mut p)),
                    4 => add_mpls(&mut p, ethertype::MPLS, 0x5140),
                    _ => drop(super::super::mpls::pop(&mut p, TEB, 2)),
                }
            }
        }
    }
}
