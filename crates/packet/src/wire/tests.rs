//! Parses, emits and truncates each header.

use super::*;
use base::MacAddr;
use proptest::prelude::*;

fn emitted(f: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    f(&mut out);
    out
}

#[test]
fn emitted_headers_parse_back() {
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let eth = EthernetRepr { dst: MacAddr::BROADCAST, src: mac, ethertype: 0x0800 };
    assert_eq!(EthernetRepr::parse(&emitted(|o| eth.emit(o))), Ok(eth));
    let vlan = VlanRepr { tpid: 0x88a8, tci: 0x6005 };
    assert_eq!(VlanRepr::parse(&emitted(|o| vlan.emit(o))), Ok(vlan));
    let arp = ArpRepr { op: 2, sha: mac, spa: 1, tha: MacAddr::ZERO, tpa: 7 };
    assert_eq!(ArpRepr::parse(&emitted(|o| arp.emit(o))), Some(arp));
    let ip = Ipv4Repr { src: 1, dst: 2, proto: 6, tos: 0x12, ttl: 3, id: 4, flags_offset: 0x4000 };
    let bytes = emitted(|o| ip.emit(5, o));
    assert_eq!((Ipv4Repr::parse(&bytes), crate::checksum::checksum(&bytes)), (Ok(ip), 0));
    let ip6 = Ipv6Repr { src: 1 << 100, dst: 2, next_header: 58, class: 0x34, label: 0xabcde, hop_limit: 255 };
    assert_eq!(Ipv6Repr::parse(&emitted(|o| ip6.emit(5, o))), Ok(ip6));
    let tcp = TcpRepr { src: 1, dst: 2, seq: 3, ack: 4, flags: 0xa12, window: 5 };
    assert_eq!(TcpRepr::parse(&emitted(|o| tcp.emit(o))), Ok(tcp));
    let udp = UdpRepr { src: 1, dst: 2 };
    assert_eq!(UdpRepr::parse(&emitted(|o| udp.emit(9, o))), Ok(udp));
    let sctp = SctpRepr { src: 1, dst: 2, tag: 3 };
    assert_eq!(SctpRepr::parse(&emitted(|o| sctp.emit(o))), Ok(sctp));
    let icmp = IcmpRepr { kind: 8, code: 1, rest: 7 };
    assert_eq!(IcmpRepr::parse(&emitted(|o| icmp.emit(o))), Ok(icmp));
    let igmp = IgmpRepr { kind: 0x16, code: 0, group: 0xe000_0105 };
    assert_eq!(IgmpRepr::parse(&emitted(|o| igmp.emit(o))), Ok(igmp));
    let mpls = MplsRepr { label: 0xfffff, tc: 5, bottom: true, ttl: 64 };
    assert_eq!(MplsRepr::parse(&emitted(|o| mpls.emit(o))), Ok(mpls));
    let nd = NdRepr { kind: 136, reserved: 0x6000_0000, target: 99, option: Some((2, mac)) };
    assert_eq!(NdRepr::parse(&emitted(|o| nd.emit(o))), Ok(nd));
    let nsh = NshRepr { flags: 2, ttl: 63, np: 3, path: 0x1234_56ff, mdtype: 1, context: [1, 2, 3, 4] };
    assert_eq!(NshRepr::parse(&emitted(|o| nsh.emit(o))), Ok(nsh));
}

#[test]
fn short_bytes_are_refused() {
    assert_eq!(Ipv4::new_checked([0; 19]).err(), Some(Truncated { needed: 20, present: 19 }));
    assert!(ArpRepr::parse(&[0; 27]).is_none() && ArpRepr::parse(&[0; 28]).is_none());
    assert_eq!(extensions(0, &[6]), None);
}

#[test]
fn setters_keep_their_neighbours() {
    let mut h = Ipv6::new_checked([0xff; 40]).expect("long enough");
    h.set_class(0);
    h.set_label(1);
    assert_eq!((h.version_class_label(), h.class(), h.label()), (0xf000_0001, 0, 1));
    let mut t = Tcp::new_checked([0xff; 20]).expect("long enough");
    t.set_flags(0);
    assert_eq!(t.header_len(), 60);
}

tally::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, v6: bool) {
        let mut frame = vec![0; 12];
        frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(&bytes);
        if let Some(ip) = ip(&frame) {
            prop_assert!(ip.at + ip.header <= ip.l4 && ip.l4 <= ip.end && ip.end <= frame.len());
        }
        crate::checksum::verify(&frame);
        prop_assert!(nd_options(&bytes).count() <= bytes.len() / 8);
        let _ = NshRepr::parse(&bytes);
    }
}
