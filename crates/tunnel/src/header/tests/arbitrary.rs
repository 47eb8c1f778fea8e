//! Random headers and inner packets.

use super::super::erspan::Erspan;
use super::super::geneve::{Geneve, GeneveOption};
use super::super::gre::Gre;
use super::super::gtpu::{FLAGS_DEFAULT, G_PDU, Gtpu};
use super::super::push::{Encapsulation, OuterIp, Push, Udp};
use super::super::srv6::{FlowLabel, Srv6};
use super::super::vxlan::Vxlan;
use base::MacAddr;
use proptest::collection::vec;
use proptest::prelude::*;

/// An inner packet: its bytes and its type.
pub(super) type InnerPacket = (Vec<u8>, Option<u16>);

fn udp() -> impl Strategy<Value = Udp> {
    (prop_oneof![Just(0), any::<u16>()], any::<u16>(), any::<bool>()).prop_map(|(src, dst, checksum)| Udp {
        src,
        dst,
        checksum,
    })
}

fn v4() -> impl Strategy<Value = OuterIp> {
    (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u8>(), any::<u8>(), any::<bool>()).prop_map(
        |(src, dst, tos, ttl, dont_fragment)| OuterIp::V4 { src: src.into(), dst: dst.into(), tos, ttl, dont_fragment },
    )
}

fn v6() -> impl Strategy<Value = OuterIp> {
    (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u8>(), any::<u8>(), 0..1u32 << 20).prop_map(
        |(src, dst, class, hop_limit, label)| {
            let (src, dst) = (src.into(), dst.into());
            OuterIp::V6 { src, dst, class, hop_limit, label, dont_fragment: true }
        },
    )
}

fn options() -> impl Strategy<Value = Box<[u8]>> {
    let option = (any::<u16>(), any::<u8>(), prop_oneof![0..4usize, 0..32usize], any::<u8>());
    vec(option, 0..8).prop_map(|options| {
        let mut out = Vec::new();
        for (class, kind, words, fill) in options {
            let before = out.len();
            let value: Vec<u8> = (0..words * 4).map(|i| if i < 3 { 0 } else { fill.wrapping_mul(i as u8) }).collect();
            GeneveOption { class, kind, value: &value }.emit(&mut out);
            if out.len() > 252 {
                out.truncate(before);
            }
        }
        out.into()
    })
}

/// Tunnel headers, with inner packets that they can carry.
fn tunnel() -> impl Strategy<Value = (Encapsulation, InnerPacket)> {
    let ethernet = || inner(&[None]);
    let ip = || inner(&[Some(0x800), Some(0x86dd)]);
    let vxlan = (udp(), 0..1u32 << 24, 0..3u8, any::<u32>(), inner(&[None, Some(0x800), Some(0x86dd), Some(0x894f)]));
    let vxlan = vxlan.prop_map(|(udp, vni, extension, policy, (bytes, l3_type))| {
        let plain = Vxlan::new(vni);
        let vxlan = match (l3_type, extension) {
            (None, 0) => plain,
            (None, 1) => plain.with_group_policy(policy),
            _ => plain.with_next_protocol(l3_type).expect("a known protocol"),
        };
        (Encapsulation::Vxlan(udp, vxlan), (bytes, l3_type))
    });
    let geneve = (udp(), 0..1u32 << 24, any::<bool>(), options(), ethernet());
    let geneve = geneve
        .prop_map(|(udp, vni, oam, options, inner)| (Encapsulation::Geneve(udp, Geneve { vni, oam, options }), inner));
    let any_type = || inner(&[None, Some(0x800), Some(0x86dd), Some(0x8847), Some(0x894f), Some(0x1234)]);
    let gre = (any::<bool>(), any::<Option<u32>>(), any::<bool>(), any_type()).prop_map(
        |(checksum, key, sequence, inner)| {
            let protocol = inner.1.unwrap_or(0x6558);
            (Encapsulation::Gre(Gre { protocol, checksum, key, sequence }), inner)
        },
    );
    let erspan = prop_oneof![
        (0..1u16 << 10, 0..1u32 << 20).prop_map(|(session, index)| Erspan::V1 { session, index }),
        (0..1u16 << 10, any::<bool>(), 0..64u8).prop_map(|(session, is_egress, hardware_id)| Erspan::V2 {
            session,
            is_egress,
            hardware_id
        }),
    ];
    let erspan = (erspan, ethernet()).prop_map(|(erspan, inner)| (Encapsulation::Erspan(erspan), inner));
    let gtpu = (udp(), any::<u32>(), 0..16u8, prop_oneof![Just(G_PDU), any::<u8>()], ip());
    let gtpu = gtpu.prop_map(|(udp, teid, flags, message_type, inner)| {
        (Encapsulation::Gtpu(udp, Gtpu { flags: FLAGS_DEFAULT | flags, message_type, teid }), inner)
    });
    let label = prop_oneof![Just(FlowLabel::Copy), Just(FlowLabel::Zero), Just(FlowLabel::Compute)];
    let srv6 = (vec(any::<[u8; 16]>(), 1..17), label, ip()).prop_map(|(segments, flow_label, inner)| {
        let segments = segments.into_iter().map(Into::into).collect();
        (Encapsulation::Srv6(Srv6 { segments, flow_label }), inner)
    });
    let bareudp = (udp(), ip()).prop_map(|(udp, inner)| (Encapsulation::Bareudp(udp), inner));
    prop_oneof![vxlan, geneve, gre, erspan, gtpu, srv6, bareudp]
}

/// Inner packets of some types; those of IP begin with their version.
fn inner(types: &'static [Option<u16>]) -> impl Strategy<Value = InnerPacket> {
    let bytes = prop_oneof![4 => vec(any::<u8>(), 14..120), 1 => vec(any::<u8>(), 120..1600)];
    (bytes, 0..types.len()).prop_map(|(mut bytes, i)| {
        match types[i] {
            Some(0x800) => bytes[0] = bytes[0] & 0xf | 0x40,
            Some(0x86dd) => bytes[0] = bytes[0] & 0xf | 0x60,
            _ => {}
        }
        (bytes, types[i])
    })
}

/// Headers with an inner packet that they can carry.
pub(super) fn pushes() -> impl Strategy<Value = (Push, InnerPacket)> {
    let vlan = prop_oneof![3 => Just(None), 1 => any::<u16>().prop_map(Some)];
    (any::<[u8; 6]>(), any::<[u8; 6]>(), vlan, any::<bool>(), v4(), v6(), tunnel()).prop_map(
        |(src, dst, vlan, prefers_v6, v4, v6, (tunnel, inner))| {
            let mut ip = if prefers_v6 || matches!(tunnel, Encapsulation::Srv6(_)) { v6 } else { v4 };
            if let (Encapsulation::Srv6(_), OuterIp::V6 { label, .. }) = (&tunnel, &mut ip) {
                *label = 0;
            }
            (Push { eth_src: MacAddr(src), eth_dst: MacAddr(dst), vlan, ip, tunnel }, inner)
        },
    )
}
