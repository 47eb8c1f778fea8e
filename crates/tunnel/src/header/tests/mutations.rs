//! Broken packets: cut at every length, with lengths that lie, and random bytes.

use super::super::pop::{Pop, parse};
use super::super::push::Push;
use super::super::{Cache, Inner, Malformed};
use super::{hex, packet, pop_of};
use packet::{Checksum, Gso, GsoKind, Packet};
use proptest::prelude::*;

/// Frames of Open vSwitch with their headers.
fn pushed() -> impl Iterator<Item = (Push, Vec<u8>)> {
    include_str!("pushed.txt").lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (Push::parse_header(words[2]).expect("a text").0, hex(words[3]))
    })
}

#[test]
fn a_cut_frame_is_malformed() {
    let mut n = 0;
    for (headers, frame) in pushed() {
        for len in 0..frame.len() {
            let cut = &frame[..len];
            for pop in Pop::ALL {
                assert!(parse(pop, cut, None, false).is_err(), "{pop:?} {cut:02x?}");
            }
            // The same, if the outer IP length agrees with the frame: only the tunnel's header is cut.
            let mut short = cut.to_vec();
            let Some(ip) = short.get_mut(14..).filter(|ip| ip.len() >= 40) else { continue };
            let stated = ip.len() as u16;
            if headers.ip.is_v6() {
                ip[4..6].copy_from_slice(&(stated - 40).to_be_bytes());
            } else {
                ip[2..4].copy_from_slice(&stated.to_be_bytes());
                ip[10..12].fill(0);
                let checksum = packet::checksum::checksum(&ip[..20]);
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            if let Ok(parsed) = parse(pop_of(&headers), &short, None, true) {
                assert!(parsed.end - parsed.start >= 14 && parsed.end == len, "{short:02x?}");
                assert!(headers.tunnel.udp().is_none(), "UDP states its length: {short:02x?}");
            }
            n += 1;
        }
    }
    tally::report!("{n} cut frames");
}

/// A frame of Open vSwitch by the beginning of its tunnel header's text, with bytes behind the outer IP header set.
fn changed(text: &str, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut written = String::new();
    let found = pushed().find(|(headers, _)| {
        written.clear();
        headers.format_header(&mut written);
        written.contains(text)
    });
    let (headers, mut frame) = found.expect("a frame");
    let l4 = if headers.ip.is_v6() { 54 } else { 34 };
    changes.iter().for_each(|(at, byte)| frame[l4 + at] = *byte);
    frame
}

/// A port, a frame by its text, its changes, and the reason why it is malformed.
type Case<'a> = (Pop, &'a str, &'a [(usize, u8)], Malformed);

#[test]
fn a_lying_length_is_named() {
    let vxlan = Pop::Vxlan { group_policy: false };
    let geneve = "geneve(crit,vni=0x0";
    let csum = "proto=17,tos=0x10,ttl=10";
    // The tunnel header is behind 8 bytes of UDP.
    let cases: [Case<'_>; 19] = [
        (vxlan, "vni=0x7b", &[(5, 72)], Malformed::UdpLength),
        (vxlan, "vni=0x7b", &[(5, 7)], Malformed::UdpLength),
        (vxlan, "vni=0x7b", &[(5, 15)], Malformed::Truncated),
        (vxlan, "vni=0x7b", &[(5, 16)], Malformed::InnerTruncated),
        (vxlan, "vni=0x7b", &[(8, 0)], Malformed::Flags),
        (vxlan, csum, &[(20, 99)], Malformed::UdpChecksum),
        (Pop::Geneve, "geneve(vni=0x7b)", &[(8, 0x3f)], Malformed::Length),
        (Pop::Geneve, "geneve(vni=0x7b)", &[(8, 0x40)], Malformed::Version),
        (Pop::Geneve, "geneve(vni=0x7b)", &[(8, 1), (19, 1)], Malformed::Options),
        (Pop::Geneve, geneve, &[(19, 3), (6, 0), (7, 0)], Malformed::Options),
        (Pop::Geneve, "geneve(vni=0x7b)", &[(10, 8), (11, 0)], Malformed::InnerProtocol),
        (Pop::Gre, "gre((flags=0x0,proto=0x6558))", &[(0, 0x40)], Malformed::Flags),
        (Pop::Gre, "gre((flags=0x0,proto=0x6558))", &[(1, 1)], Malformed::Version),
        (Pop::Gre, "gre((flags=0xb000", &[(20, 1)], Malformed::GreChecksum),
        (Pop::Erspan, "erspan(ver=1", &[(8, 0)], Malformed::Version),
        (Pop::Gtpu, "gtpu(", &[(11, 0x2a)], Malformed::Length),
        (Pop::Gtpu, "gtpu(", &[(8, 0x34), (16, 0), (19, 1), (20, 0)], Malformed::Length),
        (Pop::Srv6, "srv6(segments_left=0", &[(1, 40)], Malformed::Length),
        (Pop::Srv6, "srv6(segments_left=0", &[(2, 0)], Malformed::RoutingType),
    ];
    for (pop, text, changes, expected) in &cases {
        let frame = changed(text, changes);
        assert_eq!(parse(*pop, &frame, None, false).err(), Some(*expected), "{pop:?} {changes:?}");
    }
}

#[test]
fn a_packet_in_error_stays_as_it_is() {
    for (_, frame) in pushed() {
        let mut bad = packet(&frame, None);
        // IPv4's length and identification, IPv6's length.
        bad.data_mut()[16] ^= 0x80;
        bad.data_mut()[18] ^= 0x80;
        bad.offload.checksum = Checksum::Good;
        bad.metadata_mut().pkt_mark = 7;
        let before = bad.clone();
        for pop in Pop::ALL {
            assert!(pop.pop(&mut bad, &mut Cache::new()).is_err());
            assert_eq!((&bad, bad.metadata()), (&before, before.metadata()));
        }
    }
}

#[test]
fn names_of_reasons_differ() {
    let names: std::collections::BTreeSet<_> = Malformed::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), Malformed::ALL.len());
    assert!(Malformed::ALL.iter().enumerate().all(|(n, reason)| *reason as usize == n));
}

tally::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, v6: bool, proto in 0..6usize, start: u16, gso in 0..4usize, l3: bool) {
        let mut frame = if l3 { vec![] } else { vec![2; 12] };
        if !l3 {
            frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
        }
        let proto = [17, 47, 43, 0, 44, 4][proto];
        let len = bytes.len();
        if v6 {
            frame.extend([0x60, 0, 0, 0, (len >> 8) as u8, len as u8, proto, 1]);
            frame.extend([0xfc; 32]);
        } else {
            let at = frame.len();
            frame.extend([0x45, 0, ((len + 20) >> 8) as u8, (len + 20) as u8, 0, 0, 0, 0, 9, proto, 0, 0]);
            frame.extend([10; 8]);
            let checksum = packet::checksum::checksum(&frame[at..]);
            frame[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        frame.extend(&bytes);
        let l3_type = l3.then_some(if v6 { 0x86dd } else { 0x800 });
        for pop in Pop::ALL {
            for trusted in [false, true] {
                if let Ok(parsed) = parse(pop, &frame, l3_type, trusted) {
                    prop_assert!(parsed.start <= parsed.end && parsed.end <= frame.len());
                    prop_assert!(parsed.inner == Inner::Control || parsed.end - parsed.start >= 14);
                }
                let _ = parse(pop, &bytes, l3_type, trusted);
            }
            let mut packets: Vec<Packet> = vec![packet(&frame, l3_type), packet(&bytes, l3_type)];
            for packet in &mut packets {
                packet.offload.checksum = Checksum::Partial { start, offset: start % 20 };
                let kind = [None, Some(GsoKind::TcpV4), Some(GsoKind::TcpV6), Some(GsoKind::UdpL4)][gso];
                packet.offload.gso = kind.map(|kind| Gso { kind, size: 8, ecn: false });
            }
            let mut n = 0;
            pop.pop_all(&mut packets, &mut Cache::new(), |_| n += 1);
            prop_assert!(packets.iter().all(|packet| packet.metadata().is_some_and(|m| m.tunnel.is_some())));
        }
    }
}
