//! Parses the text of a datapath flow's key into a key, as in `ofproto/trace` and `netdev-dummy/receive`, or into key
//! and mask, as in `dpctl/add-flow`.

use super::key::{CT_STATE, TCP_FLAGS};
use super::tunnel::TunnelText;
use base::{DpPort, MacAddr, PortNo};
use flow::extract::{DL_TYPE_NONE, FRAG_ANY, FRAG_LATER, ethertype};
use flow::{Field, FlowKey, FlowMask, ReceivedOptions};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Errors of keys. The messages are Open vSwitch's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// The text from the invalid header to the end.
    #[error("syntax error at {0}")]
    Syntax(String),
    /// A tunnel without its time to live, and the key.
    #[error("tunnel options missing TTL; the flow key in error is: {0}")]
    NoTtl(String),
    /// A number that is a length of an 802.3 frame, and the key.
    #[error("invalid Ethertype {0} in flow key; the flow key in error is: {1}")]
    EtherType(u16, String),
}

/// Parses a key without masks: headers separated by commas or blanks, each once. Fields that are not given are zero,
/// except that the ingress port defaults to [`DpPort::NONE`], and that a packet without an Ethernet type is an 802.2
/// frame. `port` looks up a port by name.
pub fn parse_key(text: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Result<FlowKey, KeyError> {
    let mut reader = Reader::new(port, Masks::None);
    reader.headers(text, 0, &mut Vec::new())?;
    reader.typed_key(text)
}

/// Parses the text of a flow as [`parse_key`] does: masks are allowed and have no effect, and a `ufid:UUID` in front is
/// skipped.
pub fn parse_key_of_flow(text: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Result<FlowKey, KeyError> {
    parse_key_and_names(text, &ReceivedOptions::default(), port).map(|(key, _)| key)
}

/// Parses the text of a flow as [`parse_key_of_flow`] does. Without `eth` and `packet_type`, an Ethernet type is that of
/// an L3 packet. Geneve options that are not among `options` are treated like the ones of received packets.
pub fn parse_key_of_packet(
    text: &str,
    options: &ReceivedOptions,
    port: &dyn Fn(&str) -> Option<DpPort>,
) -> Result<FlowKey, KeyError> {
    let (mut key, names) = parse_key_and_names(text, options, port)?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has("eth_type") && !has("eth") && !has("packet_type") {
        let eth_type = match key.vlan(0).0 {
            0 => key.eth_type(),
            tpid => tpid,
        };
        // An L3 packet has no tags.
        key.set_vlan(0, 0, 0);
        key.set_vlan(1, 0, 0);
        key.set(Field::EthType, eth_type.into());
        key.set(Field::PacketType, L3 | u128::from(eth_type));
    }
    Ok(key)
}

/// The key of a flow's text, and the names of its headers.
fn parse_key_and_names(
    text: &str,
    options: &ReceivedOptions,
    port: &dyn Fn(&str) -> Option<DpPort>,
) -> Result<(FlowKey, Vec<String>), KeyError> {
    let (_, text) = split_ufid(text).unwrap_or((0, text));
    let mut reader = Reader::new(port, Masks::Some);
    let mut names = Vec::new();
    reader.headers(text, 0, &mut names)?;
    let tunnel = std::mem::take(&mut reader.tunnel);
    let mut key = reader.typed_key(text)?;
    if let Some(tunnel) = tunnel {
        options.put(&mut key, &tunnel.option_bytes());
        if !tunnel.has_ttl {
            let whole = super::key::key_without_tunnel_ttl(&key, options);
            return Err(KeyError::NoTtl(super::normalise::given_headers(text, &whole)));
        }
    }
    Ok((key, names))
}

/// The name space of Ethernet types in the packet type of an L3 packet (OpenFlow 1.5 section 7.2.3.11).
const L3: u128 = 1 << 16;

/// Splits `ufid:UUID` off the front of a flow's text. `None` if there is none.
pub fn split_ufid(text: &str) -> Option<(u128, &str)> {
    let rest = text.trim_start().strip_prefix("ufid:")?;
    let (uuid, rest) = rest.split_at_checked(UUID_LEN)?;
    Some((parse_uuid(uuid)?, rest.trim_start_matches([',', ' '])))
}

const UUID_LEN: usize = 36;

/// Parses a UUID with its dashes (RFC 9562).
pub fn parse_uuid(text: &str) -> Option<u128> {
    let dashes = [8, 13, 18, 23];
    let well_formed = text.len() == UUID_LEN
        && text.bytes().enumerate().all(|(i, b)| if dashes.contains(&i) { b == b'-' } else { b.is_ascii_hexdigit() });
    well_formed.then(|| u128::from_str_radix(&text.replace('-', ""), 16).ok())?
}

/// Parses a flow: a key whose values may have masks behind a `/`. A value without a mask is matched exactly, and fields
/// that are not given are not matched, except for the ingress port. The key has the values as they are given, also bits
/// outside of their masks. Geneve options have to be among `options`.
pub fn parse_flow(
    text: &str,
    options: &ReceivedOptions,
    port: &dyn Fn(&str) -> Option<DpPort>,
) -> Result<(FlowKey, FlowMask), KeyError> {
    let mut reader = Reader::new(port, Masks::Some);
    reader.headers(text, 0, &mut Vec::new())?;
    if let Some(tunnel) = std::mem::take(&mut reader.tunnel) {
        if !tunnel.has_ttl {
            return Err(KeyError::NoTtl(text.to_owned()));
        }
        let has_known = tunnel.match_options(options, &mut reader.key, &mut reader.mask);
        has_known.ok_or_else(|| KeyError::Syntax(text.to_owned()))?;
    }
    reader.mask.add_mask(Field::InPortOxm, u32::MAX.into());
    reader.mask.add_mask(Field::RecircId, u32::MAX.into());
    if let Some(kind) = reader.eth_type {
        reader.key.set(Field::EthType, kind.into());
        reader.mask.add_mask(Field::EthType, 0xffff);
    }
    Ok((reader.key, reader.mask))
}

/// Whether values may have masks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Masks {
    None,
    Some,
}

pub(super) struct Reader<'a> {
    pub(super) key: FlowKey,
    pub(super) mask: FlowMask,
    masks: Masks,
    /// VLAN tags so far.
    tags: usize,
    eth_type: Option<u16>,
    labels: usize,
    tunnel: Option<TunnelText>,
    port: &'a dyn Fn(&str) -> Option<DpPort>,
}

/// Parts of a network service header, in text order.
pub(super) const NSH_PARTS: &[(&str, Field)] = &[
    ("flags", Field::NshFlags),
    ("ttl", Field::NshTtl),
    ("mdtype", Field::NshMdtype),
    ("np", Field::NshNp),
    ("spi", Field::NshSpi),
    ("si", Field::NshSi),
    ("c1", Field::NshC1),
    ("c2", Field::NshC2),
    ("c3", Field::NshC3),
    ("c4", Field::NshC4),
];

/// Parts of an MPLS label stack entry (RFC 3032), each with its lowest bit and its width.
pub(super) const MPLS_PARTS: [(&str, u32, u32); 4] = [("label", 12, 20), ("tc", 9, 3), ("bos", 8, 1), ("ttl", 0, 8)];

/// The lowest Ethernet type; smaller numbers are lengths (IEEE 802.3).
const ETHERTYPE_MIN: u16 = 0x600;

/// At most two tags can be nested.
const DEPTH_MAX: usize = 3;

impl<'a> Reader<'a> {
    pub(super) fn new(port: &'a dyn Fn(&str) -> Option<DpPort>, masks: Masks) -> Self {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo(DpPort::NONE.0));
        Self { key, mask: FlowKey::ZERO, masks, tags: 0, eth_type: None, labels: 0, tunnel: None, port }
    }

    /// The key with its Ethernet type, which may be that of a tag without anything behind it.
    fn typed_key(mut self, text: &str) -> Result<FlowKey, KeyError> {
        let eth_type = self.eth_type.unwrap_or(DL_TYPE_NONE);
        self.key.set(Field::EthType, eth_type.into());
        match self.eth_type {
            Some(length) if length < ETHERTYPE_MIN => {
                let whole = super::key_to_string(&self.key, &|_| None);
                Err(KeyError::EtherType(length, super::normalise::given_headers(text, &whole)))
            }
            _ => Ok(self.key),
        }
    }

    /// Accepts headers that follow a tag.
    pub(super) fn behind_a_tag(&mut self) {
        self.eth_type = Some(ethertype::VLAN);
    }

    /// Parses a value with its mask; the mask defaults to `whole`.
    pub(super) fn masked(&self, text: &str, whole: u128, read: impl Fn(&str) -> Option<u128>) -> Option<(u128, u128)> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) if self.masks == Masks::Some => (read(value)?, read(mask)?),
            _ => (read(text)?, whole),
        };
        (value <= whole && mask <= whole).then_some((value, mask))
    }

    pub(super) fn set(&mut self, field: Field, (value, mask): (u128, u128)) {
        self.key.set(field, value);
        self.mask.add_mask(field, mask);
    }

    pub(super) fn headers(&mut self, text: &str, depth: usize, seen: &mut Vec<String>) -> Result<(), KeyError> {
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
            if rest.is_empty() {
                return Ok(());
            }
            let wrong = || KeyError::Syntax(rest.to_owned());
            let (name, tail) = rest.split_once('(').ok_or_else(wrong)?;
            let end = closing(tail).ok_or_else(wrong)?;
            let (body, after) = (&tail[..end], &tail[end + 1..]);
            if name == "encap" {
                if depth >= DEPTH_MAX || self.tags == 0 {
                    return Err(wrong());
                }
                self.eth_type = None;
                self.headers(body, depth + 1, seen)?;
            } else {
                let nested = matches!(name, "eth_type" | "vlan");
                if !nested && seen.iter().any(|s| s == name) {
                    return Err(wrong());
                }
                seen.push(name.to_owned());
                self.header(name, body).ok_or_else(wrong)?;
            }
            rest = after;
        }
    }

    fn header(&mut self, name: &str, body: &str) -> Option<()> {
        match name {
            "skb_priority" => self.number(Field::SkbPriority, body),
            "skb_mark" => self.number(Field::PktMark, body),
            "recirc_id" => self.number(Field::RecircId, body),
            "dp_hash" => self.number(Field::DpHash, body),
            "ct_zone" => self.number(Field::CtZone, body),
            "ct_mark" => self.number(Field::CtMark, body),
            "ct_label" => self.number(Field::CtLabel, body),
            "ct_state" => self.flags(Field::CtState, CT_STATE, body),
            "tcp_flags" => self.flags(Field::TcpFlags, TCP_FLAGS, body),
            "in_port" => {
                let port = number(body).and_then(|n| u32::try_from(n).ok()).map(DpPort);
                let port = port.or_else(|| (self.port)(body))?;
                self.key.set_in_port(PortNo(port.0));
                Some(())
            }
            "packet_type" => self.packet_type(body),
            "tunnel" => {
                self.tunnel = Some(TunnelText::parse(body, self)?);
                Some(())
            }
            "eth" => self.parts(body, &[("src", Field::EthSrc), ("dst", Field::EthDst)]),
            "eth_type" => {
                self.eth_type = Some(u16::try_from(number(body)?).ok()?);
                Some(())
            }
            "vlan" => self.vlan(body),
            "mpls" => self.mpls(body),
            "ipv4" => self.ip(body, ethertype::IPV4),
            "ipv6" => self.ip(body, ethertype::IPV6),
            "tcp" => self.parts(body, &[("src", Field::TcpSrc), ("dst", Field::TcpDst)]),
            "udp" => self.parts(body, &[("src", Field::UdpSrc), ("dst", Field::UdpDst)]),
            "sctp" => self.parts(body, &[("src", Field::SctpSrc), ("dst", Field::SctpDst)]),
            "icmp" => self.parts(body, &[("type", Field::Icmpv4Type), ("code", Field::Icmpv4Code)]),
            "icmpv6" => self.parts(body, &[("type", Field::Icmpv6Type), ("code", Field::Icmpv6Code)]),
            "nd" => self.parts(body, &[("target", Field::NdTarget), ("sll", Field::NdSll), ("tll", Field::NdTll)]),
            "nd_ext" => {
                self.parts(body, &[("nd_reserved", Field::NdReserved), ("nd_options_type", Field::NdOptionsType)])
            }
            "nsh" => {
                self.eth_type.get_or_insert(ethertype::NSH);
                self.parts(body, NSH_PARTS)
            }
            "pbb" => {
                self.eth_type.get_or_insert(ethertype::PBB);
                self.parts(body, &[("isid", Field::PbbIsid), ("uca", Field::PbbUca)])
            }
            "arp" => self.arp(body),
            _ => None,
        }
    }

    /// Parses `packet_type`: Ethernet, or the Ethernet type of an L3 packet.
    fn packet_type(&mut self, body: &str) -> Option<()> {
        let (mut namespace, mut id) = (0, 0);
        pairs(body, |key, value| {
            let value = number(value)?;
            match key {
                "ns" if value <= 1 => namespace = value,
                "id" if value <= 0xffff => id = value,
                _ => return None,
            }
            Some(())
        })?;
        if namespace == 0 && id != 0 {
            return None;
        }
        if namespace != 0 {
            self.set(Field::PacketType, (namespace << 16 | id, u32::MAX.into()));
        }
        Some(())
    }

    pub(super) fn number(&mut self, field: Field, text: &str) -> Option<()> {
        let both = self.masked(text, field.info().full_mask(), number)?;
        self.set(field, both);
        Some(())
    }

    pub(super) fn parts(&mut self, body: &str, known: &[(&str, Field)]) -> Option<()> {
        pairs(body, |name, value| {
            let (_, field) = known.iter().find(|(known, _)| *known == name)?;
            self.part(*field, value)
        })
    }

    pub(super) fn part(&mut self, field: Field, text: &str) -> Option<()> {
        let read = |text: &str| match field {
            Field::EthSrc | Field::EthDst | Field::ArpSha | Field::ArpTha | Field::NdSll | Field::NdTll => {
                Some(text.parse::<MacAddr>().ok()?.to_u64().into())
            }
            Field::Ipv4Src | Field::Ipv4Dst | Field::ArpSpa | Field::ArpTpa | Field::TunSrc | Field::TunDst => {
                Some(text.parse::<Ipv4Addr>().ok()?.to_bits().into())
            }
            Field::Ipv6Src | Field::Ipv6Dst | Field::NdTarget | Field::TunIpv6Src | Field::TunIpv6Dst => {
                Some(text.parse::<Ipv6Addr>().ok()?.to_bits())
            }
            _ => number(text),
        };
        let both = self.masked(text, field.info().full_mask(), read)?;
        self.set(field, both);
        Some(())
    }

    fn vlan(&mut self, body: &str) -> Option<()> {
        let tpid = self.eth_type.filter(|t| matches!(*t, ethertype::VLAN | ethertype::QINQ))?;
        if self.tags >= 2 {
            return None;
        }
        let (mut tci, mut bits) = (0x1000, 0x1000);
        let all = [("vid", 0, 0xfff), ("pcp", 13, 7), ("cfi", 12, 1), ("tci", 0, 0xffff)];
        pairs(body, |name, text| {
            let (_, shift, whole) = *all.iter().find(|(known, ..)| *known == name)?;
            let (value, mask) = self.masked(text, whole, number)?;
            // A present tag always has this bit.
            if name == "cfi" && value != 1 {
                return None;
            }
            tci |= (value as u16) << shift;
            bits |= (mask as u16) << shift;
            Some(())
        })?;
        self.key.set_vlan(self.tags, tpid, tci);
        let (old, _) = self.mask.vlan(self.tags);
        self.mask.set_vlan(self.tags, old | 0xffff, bits);
        self.tags += 1;
        Some(())
    }

    fn mpls(&mut self, body: &str) -> Option<()> {
        let (mut lse, mut bits) = (0, 0);
        let mut begun = false;
        let mut entries = Vec::new();
        pairs(body, |name, text| {
            let (_, shift, width) = MPLS_PARTS.iter().find(|(known, ..)| *known == name)?;
            let (value, mask) = self.masked(text, (1 << width) - 1, number)?;
            if name == "label" && begun {
                entries.push((std::mem::take(&mut lse), std::mem::take(&mut bits)));
            }
            begun = true;
            lse |= (value as u32) << shift;
            bits |= (mask as u32) << shift;
            Some(())
        })?;
        entries.push((lse, bits));
        if entries.len() > 3 {
            return None;
        }
        for (lse, bits) in entries {
            self.key.set_mpls_lse(self.labels, lse);
            self.mask.set_mpls_lse(self.labels, bits);
            self.labels += 1;
        }
        Some(())
    }

    fn ip(&mut self, body: &str, kind: u16) -> Option<()> {
        let v6 = kind == ethertype::IPV6;
        let (src, dst) = if v6 { (Field::Ipv6Src, Field::Ipv6Dst) } else { (Field::Ipv4Src, Field::Ipv4Dst) };
        self.eth_type.get_or_insert(kind);
        pairs(body, |name, value| match name {
            "src" => self.part(src, value),
            "dst" => self.part(dst, value),
            "label" if v6 => self.part(Field::Ipv6Label, value),
            "exthdr" if v6 => self.part(Field::Ipv6Exthdr, value),
            "proto" => self.part(Field::IpProto, value),
            "tos" | "tclass" if v6 == (name == "tclass") => {
                let (tos, mask) = self.masked(value, 0xff, number)?;
                self.set(Field::IpDscp, (tos >> 2, mask >> 2));
                self.set(Field::IpEcn, (tos & 3, mask & 3));
                Some(())
            }
            "ttl" | "hlimit" if v6 == (name == "hlimit") => self.part(Field::IpTtl, value),
            "frag" => {
                let frag = match value {
                    "no" => 0,
                    "first" => FRAG_ANY,
                    "later" => FRAG_ANY | FRAG_LATER,
                    _ => return None,
                };
                self.set(Field::IpFrag, (frag.into(), 3));
                Some(())
            }
            _ => None,
        })
    }

    fn arp(&mut self, body: &str) -> Option<()> {
        self.eth_type.get_or_insert(ethertype::ARP);
        pairs(body, |name, value| match name {
            "sip" => self.part(Field::ArpSpa, value),
            "tip" => self.part(Field::ArpTpa, value),
            "op" => {
                let op = self.masked(value, 0xff, number)?;
                self.set(Field::IpProto, op);
                Some(())
            }
            "sha" => self.part(Field::ArpSha, value),
            "tha" => self.part(Field::ArpTha, value),
            _ => None,
        })
    }

    fn flags(&mut self, field: Field, names: &[&str], text: &str) -> Option<()> {
        self.flags_within(field, names, field.info().full_mask(), text)
    }

    /// Parses flags of a field of which the text has the bits in `whole` only.
    pub(super) fn flags_within(&mut self, field: Field, names: &[&str], whole: u128, text: &str) -> Option<()> {
        let bit = |name: &str| Some(1u128 << names.iter().position(|n| *n == name)?);
        let list = |text: &str| {
            text.split(['|', '+']).filter(|s| !s.is_empty()).try_fold(0, |all, name| Some(all | bit(name)?))
        };
        let read = |text: &str| number(text).or_else(|| list(text));
        // `+syn-ack`: the first is set, the second is not, and all others are ignored.
        let both = if self.masks == Masks::Some && text.starts_with(['+', '-']) {
            signed(text, bit)?
        } else {
            self.masked(text, whole, read)?
        };
        self.set(field, both);
        Some(())
    }
}

/// Parses names with signs as value and mask.
fn signed(text: &str, bit: impl Fn(&str) -> Option<u128>) -> Option<(u128, u128)> {
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while !rest.is_empty() {
        let set = match rest.as_bytes()[0] {
            b'+' => true,
            b'-' => false,
            _ => return None,
        };
        let end = rest[1..].find(['+', '-']).map_or(rest.len(), |at| at + 1);
        let bits = bit(&rest[1..end])?;
        mask |= bits;
        value |= if set { bits } else { 0 };
        rest = &rest[end..];
    }
    Some((value, mask))
}

/// The offset of the parenthesis that closes the one before `text`.
pub(super) fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(i),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Calls `each` for the `name=value` pairs between commas; `None` if one is no pair or `each` returns `None`.
pub(super) fn pairs(body: &str, mut each: impl FnMut(&str, &str) -> Option<()>) -> Option<()> {
    for pair in body.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        each(name, value)?;
    }
    Some(())
}

pub(super) fn number(text: &str) -> Option<u128> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u128::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')),
        None => text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?,
    }
}
