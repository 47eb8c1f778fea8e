//! A packet of a tunnel port. The first byte chooses the port's type and the packet's offload flags. Accepted headers
//! survive encoding and decoding. Inner packets that are too long are answered, and divided into fragments.
#![no_main]

use packet::checksum::{Verdict, checksum, verify};
use packet::fragment::fragment;
use packet::{Checksum, Gso, GsoKind, Packet};
use std::sync::atomic::AtomicU32;
use tunnel::flags;
use tunnel::header::erspan::Erspan;
use tunnel::header::geneve::Geneve;
use tunnel::header::gre::Gre;
use tunnel::header::gtpu::Gtpu;
use tunnel::header::srv6::{FlowLabel, Srv6};
use tunnel::header::vxlan::Vxlan;
use tunnel::header::{
    Addresses, Cache, Context, Encapsulation, Inner, OuterIp, Parsed, Pop, PortRange, Push, Template, Udp, parse,
};
use tunnel::path_mtu;

/// Makes the outer IPv4 header's checksum right: no input would pass otherwise.
fn fix_checksum(frame: &mut [u8]) {
    if frame.get(12..14) == Some(&[8, 0])
        && let Some(header) = frame.get_mut(14..34)
    {
        header[10..12].fill(0);
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Headers that are read as `parsed`.
fn headers(pop: Pop, parsed: &Parsed<'_>) -> Push {
    let has = |flag: u16| parsed.flags & flag != 0;
    let (tos, ttl) = (parsed.tos, parsed.ttl);
    let ip = match parsed.addresses {
        Addresses::V4(src, dst) => {
            let dont_fragment = has(flags::DONT_FRAGMENT);
            OuterIp::V4 { src: src.into(), dst: dst.into(), tos, ttl, dont_fragment }
        }
        Addresses::V6(src, dst) => {
            let (src, dst) = (src.into(), dst.into());
            OuterIp::V6 { src, dst, class: tos, hop_limit: ttl, label: 0, dont_fragment: true }
        }
    };
    let udp = Udp { src: parsed.src_port, dst: parsed.dst_port, checksum: has(flags::CHECKSUM) };
    let key = parsed.key as u32;
    let l3_type = if let Inner::L3(ethertype) = parsed.inner { Some(ethertype) } else { None };
    let tunnel = match pop {
        Pop::Vxlan { .. } if l3_type.is_some() => {
            let vxlan = Vxlan::new(key).with_next_protocol(l3_type).expect("a type that was read");
            Encapsulation::Vxlan(udp, vxlan)
        }
        Pop::Vxlan { group_policy: true } => {
            Encapsulation::Vxlan(udp, Vxlan::new(key).with_group_policy(parsed.group_policy))
        }
        Pop::Vxlan { .. } => Encapsulation::Vxlan(udp, Vxlan::new(key)),
        Pop::Geneve => {
            let (oam, options) = (has(flags::OAM), parsed.options.into());
            Encapsulation::Geneve(udp, Geneve { vni: key, oam, options })
        }
        Pop::Gre => Encapsulation::Gre(Gre {
            protocol: l3_type.unwrap_or(0x6558),
            checksum: has(flags::CHECKSUM),
            key: has(flags::KEY).then_some(key),
            sequence: true,
        }),
        Pop::Erspan => {
            let (session, word) = (key as u16, parsed.erspan);
            Encapsulation::Erspan(if word >> 24 & 0xff == 1 {
                Erspan::V1 { session, index: (word >> 32) as u32 }
            } else {
                Erspan::V2 { session, is_egress: word >> 16 & 1 != 0, hardware_id: (word >> 8) as u8 }
            })
        }
        Pop::Gtpu => {
            // The number of an extension header is not kept.
            let (flags, message_type) = ((parsed.gtpu >> 56) as u8, (parsed.gtpu >> 48) as u8);
            Encapsulation::Gtpu(udp, Gtpu { flags, message_type, teid: key })
        }
        Pop::Srv6 => {
            let Addresses::V6(_, dst) = parsed.addresses else { panic!("segment routing over IPv4") };
            Encapsulation::Srv6(Srv6 { segments: [dst.into()].into(), flow_label: FlowLabel::Copy })
        }
        Pop::Bareudp(_) => Encapsulation::Bareudp(udp),
    };
    Push { eth_src: Default::default(), eth_dst: Default::default(), vlan: None, ip, tunnel }
}

/// The same tunnel is read from headers that are pushed for it.
fn round_trip(pop: Pop, parsed: &Parsed<'_>, inner: &[u8]) {
    let template = Template::new(headers(pop, parsed)).expect("headers that were read");
    let mut packet = Packet::from_slice(inner);
    packet.l3_type = if let Inner::L3(ethertype) = parsed.inner { Some(ethertype) } else { None };
    let one = AtomicU32::new(1);
    let context = Context { ports: PortRange::default(), sequence: &one, identification: &one, erspan_timestamp: 2 };
    if template.push(&mut packet, 3, &context).is_err() {
        assert!(inner.len() > 65_000, "shorter than the packet that was read");
        return;
    }
    let again = parse(pop, packet.data(), None, false).expect("headers of our own");
    let mut expected = parsed.tunnel();
    if parsed.src_port == 0 {
        expected.src_port = again.src_port;
    }
    assert_eq!((again.tunnel(), again.inner), (expected, parsed.inner));
    assert_eq!(&packet.data()[again.start..again.end], inner);
}

fuzz::target!(|bytes: &[u8]| {
    let Some((first, frame)) = bytes.split_first() else { return };
    let pop = Pop::ALL[usize::from(first & 15) % Pop::ALL.len()];
    let mut frame = frame.to_vec();
    fix_checksum(&mut frame);
    let l3_type = (first & 16 != 0).then_some(if first & 32 != 0 { 0x86dd } else { 0x800 });
    for trusted in [false, true] {
        if let Ok(parsed) = parse(pop, &frame, l3_type, trusted) {
            let inner = &frame[parsed.start..parsed.end];
            assert!(inner.len() >= 14);
            if parsed.inner != Inner::Control {
                round_trip(pop, &parsed, inner);
            }
        }
    }
    let mut packet = Packet::from_slice(&frame);
    packet.l3_type = l3_type;
    let half = |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    if first & 64 != 0 {
        packet.offload.checksum = Checksum::Partial { start: half(1) % 128, offset: half(3) % 32 };
    }
    if first & 128 != 0 {
        let kind = [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpL4][usize::from(half(5) % 3)];
        packet.offload.gso = Some(Gso { kind, size: 8 + half(3) % 1500, ecn: false });
    }
    let mut batch = vec![packet.clone(), packet];
    let mut dropped = 0;
    pop.pop_all(&mut batch, &mut Cache::new(), |_| dropped += 1);
    assert!(batch.len() + dropped >= 2);
    assert!(batch.iter().all(|packet| packet.metadata().is_some_and(|metadata| metadata.tunnel.is_some())));
    for packet in &mut batch {
        if let Some(answer) = path_mtu::answer(packet, half(1).into())
            && answer.packet.l3_type.is_none()
        {
            assert_eq!(verify(answer.packet.data()), Verdict::Good);
        }
        for fragment in fragment(packet, half(3).into(), 1).unwrap_or_default() {
            assert!(fragment.len() <= half(3).into());
        }
    }
});
