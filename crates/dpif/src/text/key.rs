//! Formats key and mask of a datapath flow in Open vSwitch's syntax:
//! `recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth(dst=...),eth_type(0x0800),ipv4(src=...,frag=no)`.
//!
//! Headers and parts of headers without any matched bit are left out; with [`Detail::All`] they are written with an
//! empty mask behind a `/`. Headers that the key's Ethernet type or IP protocol does not have are never written. Values
//! are the key's, bits outside of the mask included.

use super::parse::NSH_PARTS;
use base::{DpPort, MacAddr};
use flow::extract::{FRAG_LATER, ethertype, ipproto};
use flow::{Field, FlowKey, FlowMask, ReceivedOptions, layout};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The level of detail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Matched fields only.
    Matched,
    /// Also fields that are not matched, with their empty mask.
    All,
    /// The key of a packet, to which a full mask belongs: flags are listed by their names, as `syn|ack`.
    Packet,
}

/// Formats key and mask of a datapath flow, whose ingress port is a datapath port. `name` returns the name to print for
/// the port, or `None` for its number. Geneve options are written if they are among `options`.
pub fn format_key(
    (key, mask): (&FlowKey, &FlowMask),
    detail: Detail,
    options: &ReceivedOptions,
    name: &dyn Fn(DpPort) -> Option<String>,
    out: &mut String,
) {
    let mut w = Writer { key, mask, all: detail == Detail::All, is_packet: detail == Detail::Packet, out };
    w.context(options, name);
    w.ethernet();
    w.payload();
    let closing = w.key.vlan(0).1 & 0x1000 != 0 && w.mask.vlan(0).1 != 0;
    let second = closing && w.key.vlan(1).1 & 0x1000 != 0 && w.mask.vlan(1).1 != 0;
    for _ in 0..usize::from(closing) + usize::from(second) {
        out.push(')');
    }
}

/// The mask of all fields that the text of a packet's key has.
fn full_mask(key: &FlowKey) -> FlowMask {
    let mut mask = FlowKey([u64::MAX; layout::WORDS]);
    // Extension headers are only written if there are any.
    if key.get(Field::Ipv6Exthdr) == 0 {
        mask.set(Field::Ipv6Exthdr, 0);
    }
    mask
}

/// Formats a packet's key with all fields that its protocols have and all metadata, for the log.
pub fn packet_key_to_string(key: &FlowKey, options: &ReceivedOptions) -> String {
    let mut out = String::new();
    format_key((key, &full_mask(key)), Detail::Packet, options, &|_| None, &mut out);
    out
}

/// Formats a packet's key with all fields that its protocols have, and the metadata that is not zero.
pub fn key_to_string(key: &FlowKey, name: &dyn Fn(DpPort) -> Option<String>) -> String {
    let mut out = String::new();
    format_key((key, &nonzero_mask(key)), Detail::Matched, &ReceivedOptions::default(), name, &mut out);
    out
}

/// Formats a packet's key in the same way, without the time to live of its tunnel, which was not given.
pub(super) fn key_without_tunnel_ttl(key: &FlowKey, options: &ReceivedOptions) -> String {
    let mut out = String::new();
    let mut mask = nonzero_mask(key);
    mask.set(Field::TunTtl, 0);
    format_key((key, &mask), Detail::Matched, options, &|_| None, &mut out);
    out
}

/// The mask of the fields that the protocols of a packet have, and of metadata that is not zero.
fn nonzero_mask(key: &FlowKey) -> FlowMask {
    let mut mask = full_mask(key);
    for field in METADATA.into_iter().filter(|field| key.get(*field) == 0) {
        mask.set(field, 0);
    }
    mask
}

const METADATA: [Field; 7] =
    [Field::DpHash, Field::SkbPriority, Field::PktMark, Field::CtState, Field::CtZone, Field::CtMark, Field::CtLabel];

/// The header of a field, in the grouping of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Header {
    Ethernet,
    Vlan,
    Mpls,
    Pbb,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
    Nd,
    NdExt,
    Arp,
    Nsh,
    SkbPriority,
    SkbMark,
    /// A field without a text syntax.
    Other(Field),
}

/// Writes the matched fields of a header, independently of the key's protocols.
pub(super) fn format_header(header: Header, key: &FlowKey, mask: &FlowMask, out: &mut String) {
    let mut w = Writer { key, mask, all: false, is_packet: false, out };
    match header {
        Header::Ethernet => w.addresses(),
        Header::Vlan => w.tag(),
        Header::Mpls => w.labels(1),
        Header::Pbb => w.pbb(),
        Header::Ipv4 => w.ipv4(),
        Header::Ipv6 => w.ipv6(),
        Header::Tcp => w.ports("tcp", Field::TcpSrc, Field::TcpDst),
        Header::Udp => w.ports("udp", Field::UdpSrc, Field::UdpDst),
        Header::Sctp => w.ports("sctp", Field::SctpSrc, Field::SctpDst),
        Header::Icmp => w.icmp("icmp", Field::Icmpv4Type, Field::Icmpv4Code),
        Header::Icmpv6 => w.icmp("icmpv6", Field::Icmpv6Type, Field::Icmpv6Code),
        Header::Nd => w.neighbour(),
        Header::NdExt => {
            let parts = [
                w.part("nd_reserved", Field::NdReserved, c_hex, c_hex),
                w.decimal("nd_options_type", Field::NdOptionsType),
            ];
            w.header("nd_ext", &parts);
        }
        Header::Arp => w.arp(),
        Header::Nsh => w.nsh(),
        Header::SkbPriority => w.number("skb_priority", Field::SkbPriority),
        Header::SkbMark => w.number("skb_mark", Field::PktMark),
        Header::Other(field) => w.number(field.name(), field),
    }
}

/// Formats a number like C's `%#x`: zero has no prefix.
pub(super) fn hex(v: u128) -> String {
    if v == 0 { "0".to_owned() } else { format!("{v:#x}") }
}

/// Formats a label stack entry (RFC 3032), each part with its mask if there is one.
pub(super) fn mpls_entry(lse: u32, mask: Option<u32>) -> String {
    let parts = |lse: u32| (lse >> 12, lse >> 9 & 7, lse & 0xff, lse >> 8 & 1);
    let (label, tc, ttl, bos) = parts(lse);
    match mask.map(parts) {
        None => format!("label={label},tc={tc},ttl={ttl},bos={bos}"),
        Some((labels, tcs, ttls, boss)) => {
            format!("label={label}/0x{labels:x},tc={tc}/{tcs:x},ttl={ttl}/0x{ttls:x},bos={bos}/{boss:x}")
        }
    }
}

/// `name(part,part...)`; `None` without any part.
pub(super) fn nested(name: &str, parts: &[Option<String>]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
    (!parts.is_empty()).then(|| format!("{name}({})", parts.join(",")))
}

/// Formats a number with its prefix, even if it is zero.
fn c_hex(v: u128) -> String {
    format!("{v:#x}")
}

/// Number of labels in a key.
const LABELS_MAX: usize = 3;

pub(super) struct Writer<'a> {
    pub(super) key: &'a FlowKey,
    pub(super) mask: &'a FlowMask,
    pub(super) all: bool,
    is_packet: bool,
    out: &'a mut String,
}

impl Writer<'_> {
    fn comma(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(['(', ' ', ',']) {
            self.out.push(',');
        }
    }

    /// Formats one part of a header; `None` if it is left out.
    pub(super) fn part(
        &self,
        name: &str,
        field: Field,
        text: fn(u128) -> String,
        mask_text: fn(u128) -> String,
    ) -> Option<String> {
        let (value, mask) = (self.key.get(field), self.mask.get(field));
        if mask == 0 && !self.all {
            return None;
        }
        let assign = if name.is_empty() { String::new() } else { format!("{name}=") };
        let full = field.info().full_mask();
        let full = mask & full == full;
        Some(if full {
            format!("{assign}{}", text(value))
        } else {
            format!("{assign}{}/{}", text(value), mask_text(mask))
        })
    }

    fn header(&mut self, name: &str, parts: &[Option<String>]) {
        if let Some(text) = nested(name, parts) {
            self.comma();
            self.out.push_str(&text);
        }
    }

    /// Writes the metadata.
    fn context(&mut self, options: &ReceivedOptions, name: &dyn Fn(DpPort) -> Option<String>) {
        self.comma();
        let _ = write!(self.out, "recirc_id({})", hex(self.key.get(Field::RecircId)));
        for (title, field) in [("dp_hash", Field::DpHash), ("skb_priority", Field::SkbPriority)] {
            let part = self.part("", field, hex, hex);
            self.header(title, &[part]);
        }
        self.tunnel(options);
        let port = DpPort(self.key.in_port().0);
        let _ = match name(port) {
            Some(name) => write!(self.out, ",in_port({name})"),
            None => write!(self.out, ",in_port({port})"),
        };
        let mark = self.part("", Field::PktMark, hex, hex);
        self.header("skb_mark", &[mark]);
        let state = self.connection_state();
        self.header("ct_state", &[state]);
        for (title, field) in [("ct_zone", Field::CtZone), ("ct_mark", Field::CtMark), ("ct_label", Field::CtLabel)] {
            let part = self.part("", field, hex, hex);
            self.header(title, &[part]);
        }
        let packet_type = self.key.get(Field::PacketType);
        let _ = write!(self.out, ",packet_type(ns={},id={})", packet_type >> 16, hex(packet_type & 0xffff));
    }

    /// Formats the matched bits of the connection state by their names, and all of them as numbers.
    fn connection_state(&self) -> Option<String> {
        // The key only holds the bits that have names.
        let mask = self.mask.get(Field::CtState) & 0xff;
        if self.all {
            return Some(format!("{}/{}", hex(self.key.get(Field::CtState)), hex(mask)));
        }
        (mask != 0).then(|| self.flags(Field::CtState))
    }

    fn ethernet(&mut self) {
        self.addresses();
        for n in 0..2 {
            let ((tpid, tci), (_, mask)) = (self.key.vlan(n), self.mask.vlan(n));
            if mask == 0 {
                break;
            }
            if tci & 0x1000 == 0 {
                // A match on the Ethernet type implies that there is no tag.
                if self.mask.eth_type() == 0 && n == 0 {
                    self.comma();
                    let _ = write!(self.out, "vlan(tci=0x{tci:04x}/0x{mask:04x})");
                }
                break;
            }
            self.comma();
            let tpid = if tpid == 0 { 0x8100 } else { tpid };
            let _ = write!(self.out, "eth_type(0x{tpid:04x}),vlan(");
            self.vlan(tci, mask);
            self.out.push_str("),encap(");
        }
        let mask = self.mask.eth_type();
        if mask != 0 || self.all {
            self.comma();
            let _ = write!(self.out, "eth_type(0x{:04x}", self.key.eth_type());
            self.out.push_str(&if mask == 0xffff { ")".to_owned() } else { format!("/0x{mask:04x})") });
        }
    }

    fn addresses(&mut self) {
        let mac = |v: u128| MacAddr::from_u64(v as u64).to_string();
        let parts = [self.part("src", Field::EthSrc, mac, mac), self.part("dst", Field::EthDst, mac, mac)];
        self.header("eth", &parts);
    }

    fn number(&mut self, name: &str, field: Field) {
        let part = self.part("", field, hex, hex);
        self.header(name, &[part]);
    }

    /// Writes the matched parts of the outer tag if the match does not cover the presence of a tag.
    fn tag(&mut self) {
        let (tci, mask) = (self.key.vlan_tci(), self.mask.vlan_tci());
        let (vid, pcp) = (format!("vid={}", tci & 0xfff), format!("pcp={}", tci >> 13));
        let parts = match mask & 0xefff {
            0xefff => [Some(vid), Some(pcp)],
            0x0fff => [Some(vid), None],
            0xe000 => [None, Some(pcp)],
            _ => [Some(format!("tci={}/{}", hex(tci.into()), hex(mask.into()))), None],
        };
        self.header("vlan", &parts);
    }

    fn vlan(&mut self, tci: u16, mask: u16) {
        let (vid, vid_mask, pcp, pcp_mask) = (tci & 0xfff, mask & 0xfff, tci >> 13, mask >> 13);
        let _ = write!(self.out, "vid={vid}");
        if vid_mask != 0xfff {
            let _ = write!(self.out, "/0x{vid_mask:x}");
        }
        let _ = write!(self.out, ",pcp={pcp}");
        if pcp_mask != 7 {
            let _ = write!(self.out, "/0x{pcp_mask:x}");
        }
    }

    fn payload(&mut self) {
        if self.mask.eth_type() != 0xffff && !self.all {
            return;
        }
        match self.key.eth_type() {
            ethertype::IPV4 => {
                self.ipv4();
                self.transport();
            }
            ethertype::IPV6 => {
                self.ipv6();
                self.transport();
            }
            ethertype::ARP | ethertype::RARP => self.arp(),
            ethertype::MPLS | ethertype::MPLS_MCAST => {
                let bottom = (0..LABELS_MAX).find(|n| self.key.mpls_lse(*n) & 0x100 != 0);
                self.labels(bottom.map_or(LABELS_MAX, |n| n + 1));
            }
            ethertype::NSH => self.nsh(),
            ethertype::PBB => self.pbb(),
            _ => {}
        }
    }

    fn tos(&self, name: &str) -> Option<String> {
        let join = |k: &FlowKey| k.get(Field::IpDscp) << 2 | k.get(Field::IpEcn);
        let (value, mask) = (join(self.key), join(self.mask));
        match mask {
            0 if !self.all => None,
            0xff => Some(format!("{name}={}", hex(value))),
            _ => Some(format!("{name}={}/{}", hex(value), hex(mask))),
        }
    }

    fn frag(&self) -> Option<String> {
        let mask = self.mask.get(Field::IpFrag) as u8;
        let frag = self.key.get(Field::IpFrag) as u8;
        let name = match frag {
            0 => "no",
            f if f & FRAG_LATER != 0 => "later",
            _ => "first",
        };
        // A match on the lower bit alone matches all fragments or none.
        let part = if mask & 3 == 3 || frag == 0 { String::new() } else { format!("/{}", hex(mask.into())) };
        (mask != 0 || self.all).then(|| format!("frag={name}{part}"))
    }

    fn ipv4(&mut self) {
        let ip = |v: u128| Ipv4Addr::from_bits(v as u32).to_string();
        let parts = [
            self.part("src", Field::Ipv4Src, ip, ip),
            self.part("dst", Field::Ipv4Dst, ip, ip),
            self.decimal("proto", Field::IpProto),
            self.tos("tos"),
            self.decimal("ttl", Field::IpTtl),
            self.frag(),
        ];
        self.header("ipv4", &parts);
    }

    fn ipv6(&mut self) {
        let ip = |v: u128| Ipv6Addr::from_bits(v).to_string();
        let parts = [
            self.part("src", Field::Ipv6Src, ip, ip),
            self.part("dst", Field::Ipv6Dst, ip, ip),
            self.part("label", Field::Ipv6Label, hex, hex),
            self.decimal("proto", Field::IpProto),
            self.tos("tclass"),
            self.decimal("hlimit", Field::IpTtl),
            self.frag(),
            // Open vSwitch's syntax has no such part, so it is only written if it is matched.
            self.part("exthdr", Field::Ipv6Exthdr, hex, hex).filter(|_| self.mask.get(Field::Ipv6Exthdr) != 0),
        ];
        self.header("ipv6", &parts);
    }

    pub(super) fn decimal(&self, name: &str, field: Field) -> Option<String> {
        self.part(name, field, |v| v.to_string(), hex)
    }

    fn transport(&mut self) {
        let known = self.mask.ip_proto() == 0xff || self.all;
        if !known || self.key.get(Field::IpFrag) as u8 & FRAG_LATER != 0 {
            return;
        }
        let v6 = self.key.eth_type() == ethertype::IPV6;
        match self.key.ip_proto() {
            ipproto::TCP => {
                self.ports("tcp", Field::TcpSrc, Field::TcpDst);
                let flags = (self.mask.get(Field::TcpFlags) != 0 || self.all).then(|| self.flags(Field::TcpFlags));
                self.header("tcp_flags", &[flags]);
            }
            ipproto::UDP => self.ports("udp", Field::UdpSrc, Field::UdpDst),
            ipproto::SCTP => self.ports("sctp", Field::SctpSrc, Field::SctpDst),
            ipproto::ICMP if !v6 => self.icmp("icmp", Field::Icmpv4Type, Field::Icmpv4Code),
            ipproto::ICMPV6 if v6 => self.icmpv6(),
            _ => {}
        }
    }

    fn ports(&mut self, name: &str, src: Field, dst: Field) {
        let parts = [self.decimal("src", src), self.decimal("dst", dst)];
        self.header(name, &parts);
    }

    fn icmp(&mut self, name: &str, kind: Field, code: Field) {
        let parts = [self.decimal("type", kind), self.decimal("code", code)];
        self.header(name, &parts);
    }

    fn icmpv6(&mut self) {
        self.icmp("icmpv6", Field::Icmpv6Type, Field::Icmpv6Code);
        let (kind, code) = (self.key.get(Field::Icmpv6Type), self.key.get(Field::Icmpv6Code));
        if matches!(kind, 135 | 136) && code == 0 {
            self.neighbour();
        }
    }

    fn neighbour(&mut self) {
        let mac = |v: u128| MacAddr::from_u64(v as u64).to_string();
        let ip = |v: u128| Ipv6Addr::from_bits(v).to_string();
        let parts = [
            self.part("target", Field::NdTarget, ip, ip),
            self.part("sll", Field::NdSll, mac, mac),
            self.part("tll", Field::NdTll, mac, mac),
        ];
        self.header("nd", &parts);
    }

    fn pbb(&mut self) {
        let parts = [self.part("isid", Field::PbbIsid, hex, hex), self.decimal("uca", Field::PbbUca)];
        self.header("pbb", &parts);
    }

    fn nsh(&mut self) {
        let contexts = self.key.get(Field::NshMdtype) == 1 || self.mask.get(Field::NshMdtype) == 0;
        let parts: Vec<Option<String>> = NSH_PARTS
            .iter()
            .map(|(name, field)| match field {
                Field::NshC1 | Field::NshC2 | Field::NshC3 | Field::NshC4 if !contexts => None,
                // Open vSwitch shows these parts only where they are matched, whatever the detail.
                _ if self.mask.get(*field) == 0 => None,
                Field::NshSpi | Field::NshC1 | Field::NshC2 | Field::NshC3 | Field::NshC4 => {
                    self.part(name, *field, c_hex, |mask| format!("0x{mask:08x}"))
                }
                _ if self.mask.get(*field) & field.info().full_mask() != field.info().full_mask() => {
                    self.part(name, *field, |v| format!("0x{v:02x}"), |mask| format!("0x{mask:02x}"))
                }
                _ => self.part(name, *field, |v| v.to_string(), |v| v.to_string()),
            })
            .collect();
        let parts: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
        self.comma();
        let _ = write!(self.out, "nsh({})", parts.join(","));
    }

    fn arp(&mut self) {
        let mac = |v: u128| MacAddr::from_u64(v as u64).to_string();
        let ip = |v: u128| Ipv4Addr::from_bits(v as u32).to_string();
        // The key only holds the low byte of the operation.
        let op_mask = self.mask.ip_proto();
        let op = self.key.ip_proto();
        let op = match op_mask {
            0 if !self.all => None,
            0xff => Some(format!("op={op}")),
            _ => Some(format!("op={op}/{}", hex(op_mask.into()))),
        };
        let parts = [
            self.part("sip", Field::ArpSpa, ip, ip),
            self.part("tip", Field::ArpTpa, ip, ip),
            op,
            self.part("sha", Field::ArpSha, mac, mac),
            self.part("tha", Field::ArpTha, mac, mac),
        ];
        self.header("arp", &parts);
    }

    /// Writes the `n` outer labels if one of them is matched.
    fn labels(&mut self, n: usize) {
        let labels: Vec<_> = (0..n).map(|n| (self.key.mpls_lse(n), self.mask.mpls_lse(n))).collect();
        let exact = labels.iter().all(|(_, mask)| *mask == u32::MAX);
        if self.all || labels.iter().any(|(_, mask)| *mask != 0) {
            let entries = labels.iter().map(|(lse, mask)| mpls_entry(*lse, (!exact).then_some(*mask)));
            let entries = entries.collect::<Vec<_>>().join(",");
            self.comma();
            let _ = write!(self.out, "mpls({entries})");
        }
    }

    /// Writes the tunnel that the packet came from, if it came from one.
    fn tunnel(&mut self, options: &ReceivedOptions) {
        if let Some(text) = super::tunnel::format(self, options) {
            self.comma();
            self.out.push_str(&text);
        }
    }

    /// Formats matched flags with their signs; `0/0` if none is matched.
    fn flags(&self, field: Field) -> String {
        let (value, mask) = (self.key.get(field), self.mask.get(field));
        if mask == 0 {
            return "0/0".to_owned();
        }
        let names = if field == Field::CtState { CT_STATE } else { TCP_FLAGS };
        if self.is_packet {
            let set = names.iter().enumerate().filter(|(bit, _)| value >> bit & 1 != 0).map(|(_, name)| *name);
            let set: Vec<&str> = set.collect();
            return if set.is_empty() { "0".to_owned() } else { set.join("|") };
        }
        let mut out = String::new();
        for (bit, name) in names.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 != 0) {
            out.push(if value >> bit & 1 != 0 { '+' } else { '-' });
            out.push_str(name);
        }
        out
    }
}

/// Names of the bits of `ct_state`, lowest first.
pub(super) const CT_STATE: &[&str] = &["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
/// Names of the TCP flags, lowest first.
pub(super) const TCP_FLAGS: &[&str] =
    &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];
