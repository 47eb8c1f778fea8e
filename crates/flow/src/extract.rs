//! Extracts the flow key from the bytes of a frame, in one pass and without allocating.
//!
//! The rules are those of ovs-fields(7), and Open vSwitch's for malformed frames:
//!
//! - a header that is truncated, or whose length fields contradict the frame, ends the pass; the fields parsed before
//!   it stay in the key and all others are zero;
//! - an IPv4 or IPv6 header is accepted only if its length fields fit the frame; bytes after the stated length are
//!   padding and ignored;
//! - a later fragment has no transport header.
//!
//! The pass reads each byte once, in order, from a slice that shrinks from the front ([`take`]); each step is a length
//! check and a few loads. Metadata words except the ingress port stay zero.

use crate::Field;
use crate::exthdr;
use crate::key::FlowKey;
use crate::layout;
use crate::plain::plain;
use base::PortNo;
use packet::metadata::{Connection, Metadata, Tunnel, Tuple};
use std::net::IpAddr;

/// Maximum number of VLAN tags in a key.
pub const VLANS: usize = 2;

/// Ethernet type of an IEEE 802.2 frame without SNAP, a value that no frame can carry.
pub const DL_TYPE_NONE: u16 = 0x05ff;

/// Length of a service instance tag's control information.
const ITAG_LEN: usize = 4;
/// Addresses and type.
const ETHERNET_LEN: usize = 14;

/// Ethernet types that the parser knows.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// Reverse ARP.
    pub const RARP: u16 = 0x8035;
    /// VLAN tag of a customer (802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// VLAN tag of a provider (802.1ad).
    pub const QINQ: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// MPLS unicast.
    pub const MPLS: u16 = 0x8847;
    /// MPLS multicast.
    pub const MPLS_MCAST: u16 = 0x8848;
    /// Service instance tag of a provider backbone bridge (IEEE 802.1ah).
    pub const PBB: u16 = 0x88e7;
    /// Network service header (RFC 8300).
    pub const NSH: u16 = 0x894f;
}

/// IP protocols that the parser knows.
pub mod ipproto {
    /// IPv6 hop-by-hop options.
    pub const HOPOPTS: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating security payload.
    pub const ESP: u8 = 50;
    /// Authentication header.
    pub const AH: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header.
    pub const NO_NEXT: u8 = 59;
    /// IPv6 destination options.
    pub const DSTOPTS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// Bit of `ip_frag`: a fragment.
pub const FRAG_ANY: u8 = 1;
/// Bit of `ip_frag`: not the first fragment.
pub const FRAG_LATER: u8 = 2;

/// Offsets of the headers in a frame, in bytes; `None` for a header that is absent or was not parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layers {
    /// The first MPLS label.
    pub l2_5: Option<u16>,
    /// The network header, after Ethernet and VLAN headers (and after the MPLS labels, if the stack's bottom is in the
    /// frame).
    pub l3: Option<u16>,
    /// The transport header of an IP packet, whole or truncated; `None` in later fragments.
    pub l4: Option<u16>,
    /// End of the network layer's payload; Ethernet padding follows.
    pub end: usize,
}

/// Extracts the key of `frame`, with at most two VLAN tags.
pub fn extract(frame: &[u8], in_port: PortNo) -> (FlowKey, Layers) {
    extract_vlans(frame, in_port, VLANS)
}

/// Like [`extract`], with at most `vlans_max` VLAN tags (`vlan-limit` of ovs-vswitchd.conf.db(5)); the tag protocol of
/// a further tag is then the Ethernet type.
pub fn extract_vlans(frame: &[u8], in_port: PortNo, vlans_max: usize) -> (FlowKey, Layers) {
    let mut key = FlowKey::ZERO;
    let layers = extract_into(&mut key, frame, in_port, vlans_max);
    (key, layers)
}

/// Like [`extract_vlans`], into a key that is reused: its metadata must be zero except for the ingress port. All other
/// words are overwritten.
#[inline]
pub fn extract_into(key: &mut FlowKey, frame: &[u8], in_port: PortNo, vlans_max: usize) -> Layers {
    if let Some((plain, layers)) = plain(frame, in_port) {
        key.0[layout::ETH_DST..].fill(0);
        plain.put_into(key);
        return layers;
    }
    extract_other_into(key, frame, in_port, vlans_max)
}

/// Like [`extract_into`], for a frame without a compact key ([`crate::compact::extract_compact`]), which need not be tried
/// again.
pub fn extract_other_into(key: &mut FlowKey, frame: &[u8], in_port: PortNo, vlans_max: usize) -> Layers {
    key.0[layout::ETH_DST..].fill(0);
    key.0[layout::PORTS] = u64::from(in_port.0) << 32;
    pass(key, frame, vlans_max)
}

/// Context of a packet that is not in its bytes: a recirculated packet's, or that of an L3 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketContext<'a> {
    /// Where it came in.
    pub in_port: PortNo,
    /// The recirculation id.
    pub recirc_id: u32,
    /// The hash computed by the datapath; 0 if none.
    pub dp_hash: u32,
    /// For an L3 packet, the Ethernet type of its first header.
    pub l3_type: Option<u16>,
    /// The packet's metadata, if it has any.
    pub metadata: Option<&'a Metadata>,
}

/// Extracts the key of a packet with context, with at most `vlans_max` VLAN tags.
pub fn extract_with(packet: &[u8], context: &PacketContext<'_>, vlans_max: usize) -> FlowKey {
    let mut key = FlowKey::ZERO;
    extract_with_into(&mut key, packet, context, vlans_max);
    key
}

/// Like [`extract_with`], into a key that is reused; all words are overwritten.
pub fn extract_with_into(key: &mut FlowKey, packet: &[u8], context: &PacketContext<'_>, vlans_max: usize) -> Layers {
    key.0.fill(0);
    let layers = match context.l3_type {
        None => pass(key, packet, vlans_max),
        Some(kind) => {
            // The packet type of namespace 1, Ethernet types (OpenFlow 1.5 section 7.2.3.11).
            key.set(Field::PacketType, 1 << 16 | u128::from(kind));
            key.set(Field::EthType, kind.into());
            let mut layers = Layers { end: packet.len(), ..Layers::default() };
            network(key, &mut layers, packet, packet, kind);
            layers
        }
    };
    key.0[layout::PORTS] = u64::from(context.in_port.0) << 32 | u64::from(context.recirc_id);
    key.set(Field::DpHash, context.dp_hash.into());
    if let Some(metadata) = context.metadata {
        put_metadata(key, metadata);
    }
    layers
}

/// Copies a packet's metadata into its key. Tunnel options are left out, as the layers above place them.
fn put_metadata(key: &mut FlowKey, metadata: &Metadata) {
    let Metadata { pkt_mark, skb_priority, connection, tunnel, tunnel_src_port: _ } = metadata;
    key.set(Field::PktMark, (*pkt_mark).into());
    key.set(Field::SkbPriority, (*skb_priority).into());
    put_connection(key, connection);
    if let Some(tunnel) = tunnel {
        put_tunnel(key, tunnel);
    }
}

fn put_connection(key: &mut FlowKey, connection: &Connection) {
    let Connection { state, zone, mark, label, original, .. } = connection;
    key.set(Field::CtState, (*state).into());
    key.set(Field::CtZone, (*zone).into());
    key.set(Field::CtMark, (*mark).into());
    key.set(Field::CtLabel, *label);
    let Some(Tuple { src, dst, proto, is_v6, src_port, dst_port }) = original else { return };
    key.set(Field::CtNwProto, (*proto).into());
    key.set(Field::CtTpSrc, (*src_port).into());
    key.set(Field::CtTpDst, (*dst_port).into());
    if *is_v6 {
        key.0[layout::CT_IPV6_SRC..layout::CT_IPV6_DST].copy_from_slice(src);
        key.0[layout::CT_IPV6_DST..layout::ETH_DST].copy_from_slice(dst);
    } else {
        key.0[layout::CT_NW] = src[1] << 32 | dst[1] & 0xffff_ffff;
    }
}

fn put_tunnel(key: &mut FlowKey, tunnel: &Tunnel) {
    // Options are placed by the layers above; outer ports are not part of a key.
    let Tunnel { src, dst, key: id, flags, tos, ttl, src_port: _, dst_port: _, group_policy, erspan, gtpu, options: _ } =
        tunnel;
    key.set(Field::TunId, (*id).into());
    key.set(Field::TunFlags, (*flags).into());
    key.set(Field::TunTos, (*tos).into());
    key.set(Field::TunTtl, (*ttl).into());
    key.set(Field::TunGbpId, (group_policy & 0xffff).into());
    key.set(Field::TunGbpFlags, (group_policy >> 16).into());
    key.0[layout::TUN_ERSPAN] = *erspan;
    key.0[layout::TUN_GTPU] = *gtpu;
    put_addresses(key, (*src, *dst), [Field::TunSrc, Field::TunDst], [Field::TunIpv6Src, Field::TunIpv6Dst]);
}

/// Sets the address fields of the addresses' family.
fn put_addresses(key: &mut FlowKey, (src, dst): (IpAddr, IpAddr), v4: [Field; 2], v6: [Field; 2]) {
    for (address, v4, v6) in [(src, v4[0], v6[0]), (dst, v4[1], v6[1])] {
        match address {
            IpAddr::V4(address) => key.set(v4, u32::from(address).into()),
            IpAddr::V6(address) => key.set(v6, address.into()),
        }
    }
}

/// The key by the general parser alone, to compare compact keys with.
#[cfg(test)]
pub(crate) fn without_compact_keys(frame: &[u8], in_port: PortNo, vlans_max: usize) -> FlowKey {
    let mut key = FlowKey::ZERO;
    pass(&mut key, frame, vlans_max);
    key.set_in_port(in_port);
    key
}

/// The general parser, which accepts any frame.
fn pass(key: &mut FlowKey, frame: &[u8], vlans_max: usize) -> Layers {
    let mut layers = Layers { end: frame.len(), ..Layers::default() };
    let mut rest = frame;
    let Some(eth) = take::<12>(&mut rest) else { return layers };
    if rest.len() < 2 {
        return layers;
    }
    let tags = vlan_tags(&mut rest, vlans_max.min(VLANS));
    let dl_type = ether_type(&mut rest);
    let w = &mut key.0;
    w[layout::ETH_DST] = be48(eth) << 16 | u64::from(dl_type);
    w[layout::ETH_SRC] = be48_at::<6, 12>(eth) << 16 | u64::from(tags.0[0].1);
    w[layout::VLAN] = u64::from(tags.0[0].0) << 48 | u64::from(tags.0[1].0) << 32 | u64::from(tags.0[1].1) << 16;

    network(key, &mut layers, frame, rest, dl_type);
    layers
}

/// Parses the headers after the Ethernet header.
fn network(key: &mut FlowKey, layers: &mut Layers, frame: &[u8], rest: &[u8], dl_type: u16) {
    let at = frame.len() - rest.len();
    layers.l3 = u16::try_from(at).ok();
    match dl_type {
        ethertype::IPV4 => ipv4(key, layers, frame.len(), rest),
        ethertype::IPV6 => ipv6(key, layers, frame.len(), rest),
        ethertype::ARP | ethertype::RARP => arp(key, rest),
        ethertype::MPLS | ethertype::MPLS_MCAST => {
            layers.l2_5 = layers.l3;
            let labels = mpls(key, rest);
            layers.l3 = labels.and_then(|n| u16::try_from(at + n * 4).ok());
        }
        ethertype::NSH => nsh(key, rest),
        ethertype::PBB => itag(key, rest),
        _ => {}
    }
}

/// Takes `N` bytes from the front of `rest`, if it has that many.
#[inline(always)]
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(head)
}

#[inline(always)]
pub(crate) fn be16(b: [u8; 2]) -> u16 {
    u16::from_be_bytes(b)
}

/// The first 48 bits.
#[inline(always)]
fn be48(b: &[u8]) -> u64 {
    match *b {
        [a, b, c, d, e, f, ..] => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        _ => 0,
    }
}

/// 48 bits at byte `AT` of `N` bytes.
#[inline(always)]
fn be48_at<const AT: usize, const N: usize>(b: &[u8; N]) -> u64 {
    be48(&b[AT..])
}

#[inline(always)]
fn be128(b: [u8; 16]) -> (u64, u64) {
    let n = u128::from_be_bytes(b);
    ((n >> 64) as u64, n as u64)
}

struct Tags([(u16, u16); VLANS]);

/// Takes VLAN tags as long as an Ethernet type follows them.
#[inline(always)]
fn vlan_tags(rest: &mut &[u8], max: usize) -> Tags {
    let mut tags = Tags([(0, 0); VLANS]);
    for tag in &mut tags.0[..max] {
        let [a, b, c, d, _, _, ..] = **rest else { break };
        let tpid = be16([a, b]);
        if tpid != ethertype::VLAN && tpid != ethertype::QINQ {
            break;
        }
        *tag = (tpid, be16([c, d]) | 0x1000);
        *rest = &rest[4..];
    }
    tags
}

/// Takes the Ethernet type, or the 802.2 and SNAP headers if the field is a length.
#[inline(always)]
fn ether_type(rest: &mut &[u8]) -> u16 {
    let Some(&t) = take::<2>(rest) else { return DL_TYPE_NONE };
    let t = be16(t);
    if t >= 0x600 {
        return t;
    }
    if let [0xaa, 0xaa, 3, 0, 0, 0, a, b, ..] = **rest
        && be16([a, b]) >= 0x600
    {
        *rest = &rest[8..];
        return be16([a, b]);
    }
    DL_TYPE_NONE
}

/// Reads up to three labels into the key. Returns the number of labels in the stack if its bottom is in the frame.
fn mpls(key: &mut FlowKey, mut rest: &[u8]) -> Option<usize> {
    let mut n = 0;
    while let Some(&lse) = take::<4>(&mut rest) {
        let lse = u32::from_be_bytes(lse);
        if n < 3 {
            key.set_mpls_lse(n, lse);
        }
        n += 1;
        if lse & 0x100 != 0 {
            return Some(n);
        }
    }
    None
}

/// Reads the service instance tag (IEEE 802.1ah), if a whole inner Ethernet header follows. That header is not parsed.
#[cold]
#[inline(never)]
fn itag(key: &mut FlowKey, rest: &[u8]) {
    if let [a, b, c, d, ..] = *rest
        && rest.len() >= ITAG_LEN + ETHERNET_LEN
    {
        key.0[layout::MPLS2] = u64::from(u32::from_be_bytes([a, b, c, d])) & layout::ITAG;
    }
}

/// Reads ARP for Ethernet and IPv4 only (RFC 826). An operation above 255 reads as 0.
fn arp(key: &mut FlowKey, rest: &[u8]) {
    let Some(h) = rest.first_chunk::<28>() else { return };
    if h[..6] != [0, 1, 8, 0, 6, 4] {
        return;
    }
    let w = &mut key.0;
    w[layout::IPV4] = u64::from_be_bytes([h[14], h[15], h[16], h[17], h[24], h[25], h[26], h[27]]);
    w[layout::IP_MISC] = if h[6] == 0 { h[7].into() } else { 0 };
    w[layout::ARP_SHA] = be48_at::<8, 28>(h) << 16;
    w[layout::ARP_THA] = be48_at::<18, 28>(h) << 16;
}

fn ipv4(key: &mut FlowKey, layers: &mut Layers, frame_len: usize, rest: &[u8]) {
    let Some(h) = rest.first_chunk::<20>() else { return };
    let header = usize::from(h[0] & 0xf) * 4;
    let total = usize::from(be16([h[2], h[3]]));
    if header < 20 || total < header || total > rest.len() {
        return;
    }
    layers.end = frame_len - (rest.len() - total);
    let w = &mut key.0;
    w[layout::IPV4] = u64::from_be_bytes([h[12], h[13], h[14], h[15], h[16], h[17], h[18], h[19]]);
    let fragment = be16([h[6], h[7]]);
    let mut frag = 0;
    if fragment & 0x3fff != 0 {
        frag = if fragment & 0x1fff != 0 { FRAG_ANY | FRAG_LATER } else { FRAG_ANY };
    }
    w[layout::IP_MISC] = ip_misc(frag, h[1], h[8], h[9]);
    if frag & FRAG_LATER == 0 {
        let l4 = &rest[header..total];
        layers.l4 = u16::try_from(layers.end - l4.len()).ok();
        transport(key, h[9], l4);
    }
}

#[inline(always)]
pub(crate) fn ip_misc(frag: u8, tos: u8, ttl: u8, proto: u8) -> u64 {
    u64::from(u32::from_be_bytes([frag, tos, ttl, proto]))
}

fn ipv6(key: &mut FlowKey, layers: &mut Layers, frame_len: usize, mut rest: &[u8]) {
    let Some(h) = take::<40>(&mut rest) else { return };
    let length = usize::from(be16([h[4], h[5]]));
    let Some(payload) = rest.get(..length) else { return };
    layers.end = frame_len - (rest.len() - length);
    let w = &mut key.0;
    (w[layout::IPV6_SRC], w[layout::IPV6_SRC + 1]) = be128(std::array::from_fn(|i| h[8 + i]));
    (w[layout::IPV6_DST], w[layout::IPV6_DST + 1]) = be128(std::array::from_fn(|i| h[24 + i]));
    let first = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
    let Some(end) = extension_headers(h[6], payload) else { return };
    w[layout::IP_MISC] = u64::from(first & 0xf_ffff) << 32 | ip_misc(end.frag, (first >> 20) as u8, h[7], end.proto);
    if end.seen != 0 {
        w[layout::ARP_SHA] = end.seen.into();
    }
    if end.frag & FRAG_LATER == 0 {
        layers.l4 = u16::try_from(layers.end - end.rest.len()).ok();
        transport(key, end.proto, end.rest);
    }
}

struct Ipv6End<'a> {
    proto: u8,
    frag: u8,
    /// Bits of `ipv6_exthdr`.
    seen: u16,
    rest: &'a [u8],
}

/// Skips extension headers, which few packets have. `None` if one is truncated.
#[inline(always)]
fn extension_headers(proto: u8, rest: &[u8]) -> Option<Ipv6End<'_>> {
    match proto {
        ipproto::TCP | ipproto::UDP | ipproto::ICMPV6 => Some(Ipv6End { proto, frag: 0, seen: 0, rest }),
        _ => walk_extension_headers(proto, rest),
    }
}

/// Walks the extension headers (RFC 8200 section 4).
#[inline(never)]
fn walk_extension_headers(mut proto: u8, mut rest: &[u8]) -> Option<Ipv6End<'_>> {
    let mut frag = 0;
    let mut headers = exthdr::Seen::default();
    loop {
        match proto {
            ipproto::HOPOPTS | ipproto::ROUTING | ipproto::DSTOPTS | ipproto::AH => {
                let [next, len, _, _, _, _, _, _, ..] = *rest else { return None };
                headers.add(proto);
                let bytes = if proto == ipproto::AH { (usize::from(len) + 2) * 4 } else { (usize::from(len) + 1) * 8 };
                rest = rest.get(bytes..)?;
                proto = next;
            }
            ipproto::FRAGMENT => {
                let [next, _, hi, lo, ..] = *take::<8>(&mut rest)?;
                headers.add(proto);
                let fragment = be16([hi, lo]);
                if fragment & 0xfff8 != 0 {
                    return Some(Ipv6End { proto, frag: FRAG_ANY | FRAG_LATER, seen: headers.bits(), rest });
                }
                if fragment != 0 {
                    frag = FRAG_ANY;
                }
                proto = next;
            }
            ipproto::ESP | ipproto::NO_NEXT => {
                headers.add(proto);
                return Some(Ipv6End { proto, frag, seen: headers.bits(), rest });
            }
            _ => return Some(Ipv6End { proto, frag, seen: headers.bits(), rest }),
        }
    }
}

/// Parses the transport header. Protocols are accepted over both IP versions, also those defined for one only.
#[inline(always)]
fn transport(key: &mut FlowKey, proto: u8, l4: &[u8]) {
    match proto {
        ipproto::TCP => tcp(key, l4),
        ipproto::UDP => ports(key, l4, 8),
        ipproto::SCTP => ports(key, l4, 12),
        ipproto::ICMP => icmp(key, l4),
        ipproto::IGMP => igmp(key, l4),
        ipproto::ICMPV6 => icmpv6(key, l4),
        _ => {}
    }
}

/// Reads ports and flags, if the stated header length (RFC 9293 section 3.1) fits.
#[inline(always)]
fn tcp(key: &mut FlowKey, l4: &[u8]) {
    let Some(h) = l4.first_chunk::<20>() else { return };
    let header = usize::from(h[12] >> 4) * 4;
    if header < 20 || header > l4.len() {
        return;
    }
    let flags = be16([h[12], h[13]]) & 0xfff;
    key.0[layout::TP] = u64::from(u32::from_be_bytes([h[0], h[1], h[2], h[3]])) << 32 | u64::from(flags) << 16;
}

/// Reads the ports of a header with a minimum length of `whole` bytes.
#[inline(always)]
fn ports(key: &mut FlowKey, l4: &[u8], whole: usize) {
    if let [a, b, c, d, ..] = *l4
        && l4.len() >= whole
    {
        key.0[layout::TP] = u64::from(u32::from_be_bytes([a, b, c, d])) << 32;
    }
}

/// Stores type and code in the port fields, 16 bits each.
#[inline(always)]
fn type_and_code(key: &mut FlowKey, kind: u8, code: u8) {
    key.0[layout::TP] = u64::from(kind) << 48 | u64::from(code) << 32;
}

fn icmp(key: &mut FlowKey, l4: &[u8]) {
    if let [kind, code, _, _, _, _, _, _, ..] = *l4 {
        type_and_code(key, kind, code);
    }
}

fn igmp(key: &mut FlowKey, l4: &[u8]) {
    if let [kind, code, _, _, a, b, c, d, ..] = *l4 {
        type_and_code(key, kind, code);
        key.0[layout::L4_MISC] = u64::from(u32::from_be_bytes([a, b, c, d])) << 32;
    }
}

/// Reads ICMPv6, with the target and link-layer address options of neighbour solicitations and advertisements (RFC 4861
/// section 4). A malformed option ends the pass. If an option is repeated, target and addresses read as zero. The
/// options' type is the type of the first link-layer address option.
fn icmpv6(key: &mut FlowKey, mut l4: &[u8]) {
    let Some(h) = take::<8>(&mut l4) else { return };
    type_and_code(key, h[0], h[1]);
    if !matches!(h[0], 135 | 136) || h[1] != 0 {
        return;
    }
    key.0[layout::L4_MISC] = u32::from_be_bytes([h[4], h[5], h[6], h[7]]).into();
    let Some(&target) = take::<16>(&mut l4) else { return };
    let (mut sll, mut tll, mut option) = (0, 0, 0);
    while let [kind, len, ..] = *l4
        && l4.len() >= 8
    {
        let len = usize::from(len) * 8;
        if len == 0 || len > l4.len() {
            break;
        }
        let place = match kind {
            1 => &mut sll,
            2 => &mut tll,
            _ => {
                l4 = &l4[len..];
                continue;
            }
        };
        if len == 8 {
            if option == 0 {
                option = kind;
                key.0[layout::TP] |= u64::from(option) << 16;
            }
            if *place != 0 {
                return;
            }
            *place = be48(&l4[2..8]);
        }
        l4 = &l4[len..];
    }
    let w = &mut key.0;
    (w[layout::ND_TARGET], w[layout::ND_TARGET + 1]) = be128(target);
    w[layout::ARP_SHA] |= sll << 16;
    w[layout::ARP_THA] = tll << 16;
}

/// Reads the network service header (RFC 8300 section 2), version 0. Metadata of type 1 is four context words; of other
/// types only the type is read.
fn nsh(key: &mut FlowKey, rest: &[u8]) {
    let Some(h) = rest.first_chunk::<8>() else { return };
    let first = be16([h[0], h[1]]);
    let length = usize::from(first & 0x3f) * 4;
    let mdtype = h[2];
    if first >> 14 != 0 || length > rest.len() {
        return;
    }
    let mut context = [0u8; 16];
    match (mdtype, rest.get(8..24)) {
        (1, Some(c)) if length == 24 => context.copy_from_slice(c),
        (1, _) => return,
        _ => {}
    }
    let flags = (first >> 12 & 3) as u8;
    let ttl = (first >> 6 & 0x3f) as u8;
    let w = &mut key.0;
    w[layout::NSH] = u64::from_be_bytes([flags, ttl, mdtype, h[3], h[4], h[5], h[6], h[7]]);
    (w[layout::NSH_C12], w[layout::NSH_C34]) = be128(context);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::plain::plain_frame;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).expect("hexadecimal")).collect()
    }

    /// The key of an IPv6 packet with this ICMPv6 message.
    fn icmpv6_key(message: &str) -> FlowKey {
        let addresses = "fe800000000000000000000000000001fe800000000000000000000000000002";
        let head = format!("33330000000102000000000186dd60000000{:04x}3aff{addresses}", message.len() / 2);
        extract(&hex(&(head + message)), PortNo(1)).0
    }

    #[test]
    fn metadata_is_extracted_into_the_key() {
        let v6 = |n: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
        let tunnel = Tunnel {
            src: v6(1),
            dst: v6(2),
            key: 3,
            flags: 4,
            tos: 5,
            ttl: 6,
            src_port: 7,
            dst_port: 8,
            group_policy: 0x0009_000a,
            erspan: 11,
            gtpu: 12,
            options: [].into(),
        };
        let original =
            Tuple { src: [0, 0x0a00_000d], dst: [0, 0x0a00_000e], proto: 15, is_v6: false, src_port: 16, dst_port: 17 };
        let connection = Connection {
            state: 18,
            zone: 19,
            mark: 20,
            label: 0x15 << 64 | 0x16,
            handle: 23,
            is_current: true,
            awaits_lookup: true,
            is_reply: true,
            is_error: true,
            original: Some(original),
        };
        let metadata =
            Metadata { pkt_mark: 24, skb_priority: 25, connection, tunnel: Some(tunnel.into()), tunnel_src_port: 0 };
        let context =
            PacketContext { in_port: PortNo(1), recirc_id: 26, metadata: Some(&metadata), ..PacketContext::default() };
        let mut key = FlowKey([u64::MAX; crate::WORDS]);
        extract_with_into(&mut key, &[0; 60], &context, 2);
        let expected = [
            (Field::PktMark, 24),
            (Field::SkbPriority, 25),
            (Field::CtState, 18),
            (Field::CtZone, 19),
            (Field::CtMark, 20),
            (Field::CtLabel, 0x15 << 64 | 0x16),
            (Field::CtNwSrc, 0x0a00_000d),
            (Field::CtNwDst, 0x0a00_000e),
            (Field::CtNwProto, 15),
            (Field::CtTpSrc, 16),
            (Field::CtTpDst, 17),
            (Field::TunIpv6Src, 0xfd00 << 112 | 1),
            (Field::TunIpv6Dst, 0xfd00 << 112 | 2),
            (Field::TunId, 3),
            (Field::TunFlags, 4),
            (Field::TunTos, 5),
            (Field::TunTtl, 6),
            (Field::TunGbpId, 10),
            (Field::TunGbpFlags, 9),
            (Field::RecircId, 26),
        ];
        for (field, value) in expected {
            assert_eq!(key.get(field), value, "{}", field.info().name);
            key.set(field, 0);
        }
        assert_eq!([key.0[layout::TUN_ERSPAN], key.0[layout::TUN_GTPU]], [11, 12]);
        key.0[layout::TUN_ERSPAN] = 0;
        key.0[layout::TUN_GTPU] = 0;
        key.set_in_port(PortNo(0));
        assert_eq!(key, extract(&[0; 60], PortNo(0)).0);
    }

    #[test]
    fn neighbour_discovery() {
        const TARGET: &str = "fe800000000000000000000000000003";
        const SLL: &str = "0101020000000005";
        const TLL: &str = "0201020000000006";
        // Message, options' type, target seen, source and target addresses seen.
        for (message, option, target, sll, tll) in [
            (format!("8800000060000000{TARGET}"), 0, true, false, false),
            (format!("8800000060000000{TARGET}{TLL}"), 2, true, false, true),
            (format!("8800000060000000{TARGET}{TLL}{SLL}"), 2, true, true, true),
            (format!("8800000060000000{TARGET}{SLL}{TLL}"), 1, true, true, true),
            (format!("8800000060000000{TARGET}0101000000000000"), 1, true, false, false),
            (format!("8800000060000000{TARGET}0e01000000000000{TLL}"), 2, true, false, true),
            (format!("8800000060000000{TARGET}0102000000000000aabbccddeeff1122{TLL}"), 2, true, false, true),
            (format!("8800000060000000{TARGET}{TLL}0e00000000000000{SLL}"), 2, true, false, true),
            (format!("8800000060000000{TARGET}{SLL}{SLL}"), 1, false, false, false),
            ("8800000060000000fe80".into(), 0, false, false, false),
        ] {
            let key = icmpv6_key(&message);
            assert_eq!(key.get(Field::NdReserved), 0x6000_0000, "{message}");
            assert_eq!(key.get(Field::NdOptionsType), option, "{message}");
            assert_eq!(key.get(Field::NdTarget) != 0, target, "{message}");
            assert_eq!((key.get(Field::NdSll) != 0, key.get(Field::NdTll) != 0), (sll, tll), "{message}");
        }
    }

    #[test]
    fn service_instance_tags() {
        let inner = "0200000000030200000000040800";
        for (tags, tag, instance) in [
            ("", "ffedcba9", Some((0xed_cba9, 1))),
            ("88a80005", "f7000001", Some((1, 0))),
            ("88a8000581006006", "00000064", Some((100, 0))),
        ] {
            let head = format!("020000000001020000000002{tags}88e7{tag}");
            let (key, layers) = extract(&hex(&format!("{head}{inner}4500")), PortNo(1));
            let instance_and_uca = (key.get(Field::PbbIsid), key.get(Field::PbbUca));
            assert_eq!((key.eth_type(), Some(instance_and_uca)), (0x88e7, instance));
            assert_eq!(usize::from(layers.l3.expect("whole")), 14 + tags.len() / 2);
            assert_eq!(key.get(Field::EthDst), 0x0200_0000_0001, "the outer ones");
            // Without a whole Ethernet header under it there is no tag.
            let (key, _) = extract(&hex(&(head + &inner[2..])), PortNo(1));
            assert_eq!((key.eth_type(), key.get(Field::PbbIsid), key.get(Field::PbbUca)), (0x88e7, 0, 0));
        }
    }

    #[test]
    fn ipv6_extension_headers() {
        let addresses = "fe800000000000000000000000000001fe800000000000000000000000000002";
        for (headers, first, bits, proto) in [
            (String::new(), 6, 0, 6),
            ("330000000000000006010000000000000000 0000".replace(' ', ""), 0, exthdr::HOP | exthdr::AUTH, 6),
            ("3b00000000000000".to_owned(), 60, exthdr::DEST | exthdr::NO_NEXT, 59),
            ("0600000000000000".to_owned(), 44, exthdr::FRAG, 6),
            ("0600010000000000".to_owned(), 44, exthdr::FRAG, 44),
            (String::new(), 50, exthdr::ESP, 50),
            // Cut short: nothing is known.
            ("060100".to_owned(), 0, 0, 0),
        ] {
            let head = format!("33330000000102000000000186dd60000000{:04x}{first:02x}ff{addresses}", headers.len() / 2);
            let key = extract(&hex(&(head + &headers)), PortNo(1)).0;
            assert_eq!((key.get(Field::Ipv6Exthdr), key.ip_proto()), (bits.into(), proto), "{headers}");
        }
        // Neighbour discovery has addresses in the same word.
        let mut key = icmpv6_key(&format!("8700000060000000fe800000000000000000000000000003{}", "0101020000000005"));
        assert_eq!((key.get(Field::Ipv6Exthdr), key.get(Field::NdSll)), (0, 0x0200_0000_0005));
        key.set(Field::Ipv6Exthdr, 0x1ff);
        assert_eq!(key.get(Field::NdSll), 0x0200_0000_0005);
    }

    #[test]
    fn tags_beyond_the_limit_are_the_type() {
        let frame = hex("02000000000102000000000281000005810000060800");
        let type_and_tags = |max| {
            let (key, layers) = extract_vlans(&frame, PortNo(1), max);
            (key.eth_type(), key.vlan(0).1, key.vlan(1).1, layers.l3)
        };
        assert_eq!(type_and_tags(2), (0x0800, 0x1005, 0x1006, Some(22)));
        assert_eq!(type_and_tags(1), (0x8100, 0x1005, 0, Some(18)));
        assert_eq!(type_and_tags(0), (0x8100, 0, 0, Some(14)));
    }

    #[test]
    fn offsets_of_mpls() {
        let frame = hex("0200000000010200000000028847000010400000214045");
        assert_eq!(extract(&frame, PortNo(1)).1, Layers { l2_5: Some(14), l3: Some(22), l4: None, end: frame.len() });
    }

    tally::proptest! {
        #[test]
        fn plain_frames_are_read_as_any_frame(
            tcp: bool,
            payload in 0..30usize,
            changes in proptest::collection::vec((12..60usize, 0..8u8), 0..3),
            cut in 0..70usize,
        ) {
            let mut frame = plain_frame(if tcp { ipproto::TCP } else { ipproto::UDP }, payload);
            for (at, bit) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            // Cut in one of three cases, longer by padding in another.
            match cut {
                0..23 => frame.truncate(frame.len() - cut),
                23..46 => frame.resize(frame.len() + cut, 7),
                _ => {}
            }
            let read = extract(&frame, PortNo(3));
            let mut key = FlowKey::ZERO;
            key.set_in_port(PortNo(3));
            let layers = pass(&mut key, &frame, VLANS);
            proptest::prop_assert_eq!(read, (key, layers));
        }
    }

    #[test]
    fn plain_frames_take_the_short_way() {
        for proto in [ipproto::TCP, ipproto::UDP] {
            assert!(plain(&plain_frame(proto, 3), PortNo(1)).is_some());
        }
    }
}
