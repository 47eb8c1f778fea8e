//! Composes a frame from a key, for packets that are given as the text of a flow.

use crate::exthdr;
use crate::extract::{DL_TYPE_NONE, FRAG_ANY, FRAG_LATER, VLANS, ethertype, ipproto};
use crate::field::Field;
use crate::key::FlowKey;
use crate::layout;
use base::MacAddr;
use packet::checksum::{Sum, checksum, crc32c, pseudo_v4, pseudo_v6};
use packet::wire::{
    ArpRepr, IcmpRepr, IgmpRepr, Ipv4Repr, Ipv6Repr, MplsRepr, NshRepr, SctpRepr, TcpRepr, UdpRepr, VlanRepr,
};

/// Maximum payload, so that an IP packet with any headers can state its length.
const PAYLOAD_MAX: usize = 65_000;

/// The payload of a packet without one of its own, of the kinds that carry any ([`carries_payload`]): bytes 0, 1, 2 and so on.
pub const PAYLOAD: [u8; 64] = {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = i as u8;
        i += 1;
    }
    bytes
};

/// Returns true if a packet with this key carries application data: UDP, TCP unless it opens or closes a connection, or an echo
/// message, and no later fragment.
pub fn carries_payload(key: &FlowKey) -> bool {
    const FIN_SYN_RST: u8 = 7;
    let (is_ipv4, is_ipv6) = (key.eth_type() == ethertype::IPV4, key.eth_type() == ethertype::IPV6);
    let has_transport = (is_ipv4 || is_ipv6) && key.get(Field::IpFrag) as u8 & FRAG_LATER == 0;
    has_transport
        && match key.ip_proto() {
            ipproto::UDP => true,
            ipproto::TCP => key.get(Field::TcpFlags) as u8 & FIN_SYN_RST == 0,
            ipproto::ICMP => is_ipv4 && matches!(key.get(Field::Icmpv4Type), 0 | 8) && key.get(Field::Icmpv4Code) == 0,
            ipproto::ICMPV6 => {
                is_ipv6 && matches!(key.get(Field::Icmpv6Type), 128 | 129) && key.get(Field::Icmpv6Code) == 0
            }
            _ => false,
        }
}

/// A frame whose key (except for metadata) is `key`, with `payload` behind the last header and valid checksums.
///
/// A key without an Ethernet type gives type 0, which reads back as [`DL_TYPE_NONE`]; a tag without a tag protocol gets
/// 0x8100. Of keys that no frame can have (ports without a transport protocol, say), fields that do not fit the
/// protocols are lost. `payload` is truncated to 65,000 bytes.
pub fn compose(key: &FlowKey, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(PAYLOAD_MAX)];
    let mut out = Vec::with_capacity(128 + payload.len());
    out.extend(mac(key, Field::EthDst).0);
    out.extend(mac(key, Field::EthSrc).0);
    for n in 0..VLANS {
        let (tpid, tci) = key.vlan(n);
        if tci & 0x1000 == 0 {
            break;
        }
        VlanRepr { tpid: if tpid == 0 { ethertype::VLAN } else { tpid }, tci: wire_tci(tci) }.emit(&mut out);
    }
    let kind = key.eth_type();
    if kind == DL_TYPE_NONE {
        out.extend(((payload.len() + 3).min(0x5ff) as u16).to_be_bytes());
        // A logical link control header for a protocol other than SNAP.
        out.extend([0x42, 0x42, 3]);
        out.extend(payload);
        return out;
    }
    out.extend(kind.to_be_bytes());
    match kind {
        ethertype::IPV4 => ipv4(key, payload, &mut out),
        ethertype::IPV6 => ipv6(key, payload, &mut out),
        ethertype::ARP | ethertype::RARP => arp(key, &mut out),
        ethertype::MPLS | ethertype::MPLS_MCAST => {
            for n in 0..3 {
                let entry = MplsRepr::from_lse(key.mpls_lse(n));
                entry.emit(&mut out);
                if entry.bottom {
                    break;
                }
            }
            out.extend(payload);
        }
        ethertype::PBB => {
            let tag = key.0[layout::MPLS2] & layout::ITAG;
            out.extend((tag as u32).to_be_bytes());
            // The key does not hold the inner Ethernet header.
            out.extend([0; 12]);
            out.extend(DL_TYPE_NONE.to_be_bytes());
            out.extend(payload);
        }
        ethertype::NSH => {
            nsh(key, &mut out);
            out.extend(payload);
        }
        // A truncated tag: any byte behind it would complete it.
        ethertype::VLAN | ethertype::QINQ => {}
        _ => out.extend(payload),
    }
    out
}

/// Clears the bit that marks a tag as present in the key. It is the drop eligible bit on the wire.
fn wire_tci(tci: u16) -> u16 {
    tci & !0x1000
}

fn mac(key: &FlowKey, field: Field) -> MacAddr {
    MacAddr::from_u64(key.get(field) as u64)
}

fn arp(key: &FlowKey, out: &mut Vec<u8>) {
    ArpRepr {
        op: key.ip_proto().into(),
        sha: mac(key, Field::ArpSha),
        spa: key.get(Field::ArpSpa) as u32,
        tha: mac(key, Field::ArpTha),
        tpa: key.get(Field::ArpTpa) as u32,
    }
    .emit(out);
}

fn nsh(key: &FlowKey, out: &mut Vec<u8>) {
    NshRepr {
        flags: key.get(Field::NshFlags) as u8,
        ttl: key.get(Field::NshTtl) as u8,
        np: key.get(Field::NshNp) as u8,
        path: (key.get(Field::NshSpi) as u32) << 8 | key.get(Field::NshSi) as u32,
        mdtype: key.get(Field::NshMdtype) as u8,
        context: [Field::NshC1, Field::NshC2, Field::NshC3, Field::NshC4].map(|f| key.get(f) as u32),
    }
    .emit(out);
}

fn tos(key: &FlowKey) -> u8 {
    (key.get(Field::IpDscp) << 2 | key.get(Field::IpEcn)) as u8
}

fn ipv4(key: &FlowKey, payload: &[u8], out: &mut Vec<u8>) {
    let frag = key.get(Field::IpFrag) as u8;
    let ip = Ipv4Repr {
        src: key.get(Field::Ipv4Src) as u32,
        dst: key.get(Field::Ipv4Dst) as u32,
        proto: key.ip_proto(),
        tos: tos(key),
        ttl: key.get(Field::IpTtl) as u8,
        id: 0,
        flags_offset: match frag {
            0 => 0,
            FRAG_ANY => 0x2000,
            _ => 0x2000 + 100,
        },
    };
    let body =
        body(key, frag, payload, |len| pseudo_v4(ip.src.to_be_bytes(), ip.dst.to_be_bytes(), ip.proto, len as u16));
    ip.emit(body.len(), out);
    out.extend(body);
}

fn ipv6(key: &FlowKey, payload: &[u8], out: &mut Vec<u8>) {
    let frag = key.get(Field::IpFrag) as u8;
    let (src, dst) = (key.get(Field::Ipv6Src), key.get(Field::Ipv6Dst));
    let proto = key.ip_proto();
    let body = body(key, frag, payload, |len| pseudo_v6(&src.to_be_bytes(), &dst.to_be_bytes(), proto, len as u32));
    let later = frag & FRAG_LATER != 0;
    let chain = exthdr::chain(key.get(Field::Ipv6Exthdr) as u16, proto, frag != 0, later);
    // The key of a later fragment does not hold the transport protocol.
    let end = if later { ipproto::NO_NEXT } else { proto };
    let headers = extension_headers(&chain, end, frag);
    let ip = Ipv6Repr {
        src,
        dst,
        next_header: chain.first().copied().unwrap_or(end),
        class: tos(key),
        label: key.get(Field::Ipv6Label) as u32,
        hop_limit: key.get(Field::IpTtl) as u8,
    };
    ip.emit(headers.len() + body.len(), out);
    out.extend(headers);
    out.extend(body);
}

/// Emits these extension headers in front of `end`. The last fragment header gets the fragment bits of `frag`.
fn extension_headers(chain: &[u8], end: u8, frag: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let last_fragment = chain.iter().rposition(|kind| *kind == ipproto::FRAGMENT);
    for (i, kind) in chain.iter().enumerate() {
        let next = chain.get(i + 1).copied().unwrap_or(end);
        match *kind {
            ipproto::FRAGMENT => {
                let fragment: u16 = match frag {
                    _ if Some(i) != last_fragment => 0,
                    0 => 0,
                    FRAG_ANY => 1,
                    _ => 100 << 3,
                };
                out.extend([next, 0]);
                out.extend(fragment.to_be_bytes());
                out.extend([0; 4]);
            }
            // 16 bytes; the length counts 32-bit words less two (RFC 4302).
            ipproto::AH => {
                out.extend([next, 2]);
                out.extend([0; 14]);
            }
            ipproto::ROUTING => out.extend([next, 0, 0, 0, 0, 0, 0, 0]),
            // Options: padding.
            _ => out.extend([next, 0, 1, 4, 0, 0, 0, 0]),
        }
    }
    out
}

/// The transport header and payload of an IP packet. `pseudo` returns the sum of the pseudo-header for a given length.
fn body(key: &FlowKey, frag: u8, payload: &[u8], pseudo: impl Fn(usize) -> Sum) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + payload.len());
    let proto = if frag & FRAG_LATER == 0 { key.ip_proto() } else { 255 };
    let (src, dst) = (key.get(Field::TcpSrc) as u16, key.get(Field::TcpDst) as u16);
    let (kind, code) = (src as u8, dst as u8);
    match proto {
        ipproto::TCP => {
            TcpRepr { src, dst, flags: key.get(Field::TcpFlags) as u16, ..TcpRepr::default() }.emit(&mut out);
        }
        ipproto::UDP => UdpRepr { src, dst }.emit(payload.len(), &mut out),
        ipproto::SCTP => SctpRepr { src, dst, tag: 0 }.emit(&mut out),
        ipproto::ICMP => IcmpRepr { kind, code, rest: 0 }.emit(&mut out),
        ipproto::IGMP => {
            let group = (key.0[layout::L4_MISC] >> 32) as u32;
            IgmpRepr { kind, code, group }.emit(&mut out);
        }
        ipproto::ICMPV6 => {
            let rest = key.get(Field::NdReserved) as u32;
            IcmpRepr { kind, code, rest }.emit(&mut out);
            if matches!(kind, 135 | 136) && code == 0 {
                nd(key, &mut out);
            }
        }
        _ => {}
    }
    let nd = proto == ipproto::ICMPV6 && matches!(kind, 135 | 136) && code == 0;
    if !nd {
        out.extend(payload);
    }
    let at = match proto {
        ipproto::TCP => 16,
        ipproto::UDP => 6,
        ipproto::ICMP | ipproto::IGMP | ipproto::ICMPV6 => 2,
        ipproto::SCTP => {
            let crc = crc32c(&out).to_le_bytes();
            out[8..12].copy_from_slice(&crc);
            return out;
        }
        _ => return out,
    };
    let sum = match proto {
        ipproto::ICMP | ipproto::IGMP => checksum(&out),
        _ => pseudo(out.len()).bytes(&out).finish(),
    };
    let sum = if sum == 0 && proto == ipproto::UDP { 0xffff } else { sum };
    out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    out
}

/// Target and options of a neighbour discovery message. No payload follows, as it would be read as options.
fn nd(key: &FlowKey, out: &mut Vec<u8>) {
    out.extend(key.get(Field::NdTarget).to_be_bytes());
    let first = key.get(Field::NdOptionsType) as u8;
    let mut options = [(1, mac(key, Field::NdSll)), (2, mac(key, Field::NdTll))];
    if first == 2 {
        options.reverse();
    }
    for (kind, mac) in options {
        if kind == first || !mac.is_zero() {
            out.extend([kind, 1]);
            out.extend(mac.0);
        }
    }
}
