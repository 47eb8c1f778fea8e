//! Formats matches, keys and megaflows in the order and syntax of `ovs-ofctl` and `ofproto/trace`.

use super::PortNames;
use super::flags::{self, Flags};
use super::parse::next_key_value;
use super::value::{format_ipv4, format_ipv6, format_mac};
use crate::extract::{FRAG_LATER, ethertype, ipproto};
use crate::field::{FIELDS, Field};
use crate::key::{FlowKey, FlowMask};
use crate::layout;
use crate::matches::Match;
use crate::options::TunOption;
use base::PortNo;
use std::borrow::Cow;
use std::fmt::Write;

/// Writes a match like `ovs-ofctl dump-flows`: protocol first, then the fields, separated by commas. A match on all
/// packets writes nothing.
pub fn format_match(m: &Match, ports: &dyn PortNames, out: &mut String) {
    format_match_of(Subject::Flow, m, ports, out);
}

/// The subject of a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    /// A flow, or a packet.
    Flow,
    /// A cached flow, which matches bits that were read.
    Megaflow,
}

fn format_match_of(subject: Subject, m: &Match, ports: &dyn PortNames, out: &mut String) {
    let start = out.len();
    Writer { subject, key: m.key(), mask: m.mask(), options: m.options(), ports, out }.all();
    if out.len() > start && out.ends_with(',') {
        out.pop();
    }
}

/// [`format_match`] into a new string.
pub fn match_to_string(m: &Match, ports: &dyn PortNames) -> String {
    let mut out = String::new();
    format_match(m, ports, &mut out);
    out
}

/// The matched fields as pairs of name and value, in the order and syntax of [`format_match`], for JSON output. A
/// protocol's short name has an empty value.
pub fn match_fields(m: &Match, ports: &dyn PortNames) -> Vec<(String, String)> {
    let text = match_to_string(m, ports);
    let mut rest = text.as_str();
    std::iter::from_fn(|| next_key_value(&mut rest))
        .map(|(name, value)| (name.to_string(), value.unwrap_or("").to_string()))
        .collect()
}

/// Writes a packet's key like the "Flow:" line of `ofproto/trace`: all fields of its protocols, and nonzero metadata.
pub fn format_flow_key(key: &FlowKey, ports: &dyn PortNames, out: &mut String) {
    format_match(&Match::new(key, applicable(key)), ports, out);
}

/// [`format_flow_key`] into a new string.
pub fn flow_key_to_string(key: &FlowKey, ports: &dyn PortNames) -> String {
    let mut out = String::new();
    format_flow_key(key, ports, &mut out);
    out
}

/// Like [`flow_key_to_string`], with tunnel options, whose location in a key depends on the switch.
pub fn flow_key_to_string_with(key: &FlowKey, options: Vec<TunOption>, ports: &dyn PortNames) -> String {
    let mut m = Match::new(key, applicable(key));
    options.into_iter().for_each(|option| _ = m.set_option(option));
    match_to_string(&m, ports)
}

/// Writes a megaflow like the "Megaflow:" line of `ofproto/trace`: it always begins with `recirc_id` and includes the
/// packet type.
pub fn format_megaflow(m: &Match, ports: &dyn PortNames, out: &mut String) {
    let mut mask = m.mask().clone();
    mask.add_mask(Field::RecircId, 0xffff_ffff);
    mask.add_mask(Field::PacketType, 0xffff_ffff);
    let mut whole = Match::new(m.key(), mask);
    m.options().iter().for_each(|option| _ = whole.set_option(option.clone()));
    format_match_of(Subject::Megaflow, &whole, ports, out);
}

/// [`format_megaflow`] into a new string.
pub fn megaflow_to_string(m: &Match, ports: &dyn PortNames) -> String {
    let mut out = String::new();
    format_megaflow(m, ports, &mut out);
    out
}

/// Writes a port: its name (quoted if ambiguous), its reserved name, or its number.
pub fn format_port(port: PortNo, ports: &dyn PortNames, out: &mut String) {
    if let Some(name) = port.reserved_name() {
        out.push_str(name);
        return;
    }
    match ports.name(port) {
        Some(name) => out.push_str(&quoted_if_needed(&name)),
        // Reserved numbers without a name are written in OpenFlow 1.0's numbering.
        None => drop(write!(out, "{}", if port.0 >= 0xffff_ff00 { port.0 & 0xffff } else { port.0 })),
    }
}

/// The name of a port or table, as a JSON string unless it is a letter followed by letters and digits.
pub fn quoted_if_needed(name: &str) -> Cow<'_, str> {
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return name.into();
    }
    let mut out = String::from('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..' ' => drop(write!(out, "\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
    out.into()
}

/// The mask of the fields that a packet with this key has.
fn applicable(key: &FlowKey) -> FlowMask {
    let mut mask = FlowKey::ZERO;
    let tunnel = key.get(Field::TunDst) != 0 || key.get(Field::TunIpv6Dst) != 0;
    for f in FIELDS.iter().take_while(|f| f.id < Field::EthSrc) {
        let shown = match f.id {
            // Lookup state, not a field of the packet.
            Field::InPort | Field::ConjId | Field::ActsetOutput => false,
            // Registers are written one by one, not as parts of wider ones.
            id if (Field::Xreg0..=Field::Xxreg7).contains(&id) => false,
            Field::TunErspanIdx | Field::TunErspanDir | Field::TunErspanHwid => tunnel && key.get(f.id) != 0,
            // Without the flag, the packet had no key.
            Field::TunId if tunnel => key.get(Field::TunFlags) & flags::TUNNEL_KEY != 0,
            id if (Field::TunSrc..=Field::TunGtpuMsgtype).contains(&id) => tunnel,
            id => key.get(id) != 0,
        };
        if shown {
            mask.add_mask(f.id, f.full_mask());
        }
    }
    if tunnel {
        // All flag bits, so that 0 is written if no flag is set.
        mask.0[layout::TUN_ATTR] |= 0xffff << 48;
    }
    mask.add_mask(Field::InPortOxm, u32::MAX.into());
    // An L3 packet has no Ethernet fields and shows its packet type instead.
    if key.get(Field::PacketType) == 0 {
        for f in [Field::EthSrc, Field::EthDst, Field::EthType, Field::VlanTci] {
            mask.add_mask(f, f.info().full_mask());
        }
    }
    if key.vlan_tci() != 0 {
        mask.0[layout::VLAN] |= 0xffff << 16;
    }
    match key.eth_type() {
        ethertype::IPV4 => {
            mask.0[layout::IPV4] = u64::MAX;
            ip_mask(key, &mut mask);
        }
        ethertype::IPV6 => {
            mask.0[layout::IPV6_SRC..layout::IPV6_SRC + 4].fill(u64::MAX);
            mask.add_mask(Field::Ipv6Label, 0xf_ffff);
            mask.add_mask(Field::Ipv6Exthdr, if key.get(Field::Ipv6Exthdr) == 0 { 0 } else { 0x1ff });
            ip_mask(key, &mut mask);
        }
        ethertype::ARP | ethertype::RARP => {
            mask.0[layout::IPV4] = u64::MAX;
            mask.0[layout::IP_MISC] = 0xff;
            mask.0[layout::ARP_SHA] = u64::MAX << 16;
            mask.0[layout::ARP_THA] = u64::MAX << 16;
        }
        ethertype::MPLS | ethertype::MPLS_MCAST => {
            for n in 0..3 {
                mask.set_mpls_lse(n, u32::MAX);
                if key.mpls_lse(n) & 0x100 != 0 {
                    break;
                }
            }
        }
        ethertype::PBB => mask.0[layout::MPLS2] = layout::ITAG,
        ethertype::NSH => {
            mask.0[layout::NSH] = u64::MAX;
            if key.get(Field::NshMdtype) == 1 {
                mask.0[layout::NSH_C12] = u64::MAX;
                mask.0[layout::NSH_C34] = u64::MAX;
            }
            // Open vSwitch's format lists the fields of the IP header here too, as zeros.
            ip_mask(key, &mut mask);
        }
        _ => {}
    }
    mask
}

fn ip_mask(key: &FlowKey, mask: &mut FlowMask) {
    mask.0[layout::IP_MISC] |= 0x03ff_ffff;
    if key.eth_type() == ethertype::NSH || key.get(Field::IpFrag) as u8 & FRAG_LATER != 0 {
        return;
    }
    let v6 = key.eth_type() == ethertype::IPV6;
    match key.ip_proto() {
        ipproto::TCP => mask.0[layout::TP] |= 0xffff_ffff_0fff_0000,
        ipproto::UDP | ipproto::SCTP | ipproto::ICMP | ipproto::IGMP => mask.0[layout::TP] |= 0xffff_ffff_0000_0000,
        ipproto::ICMPV6 => {
            mask.0[layout::TP] |= 0xffff_ffff_0000_0000;
            if v6 && matches!(key.get(Field::Icmpv6Type), 135 | 136) && key.get(Field::Icmpv6Code) == 0 {
                mask.0[layout::ND_TARGET] = u64::MAX;
                mask.0[layout::ND_TARGET + 1] = u64::MAX;
                mask.0[layout::ARP_SHA] |= u64::MAX << 16;
                mask.0[layout::ARP_THA] = u64::MAX << 16;
            }
        }
        _ => {}
    }
}

/// Writes each matched field followed by a comma.
struct Writer<'a> {
    subject: Subject,
    key: &'a FlowKey,
    mask: &'a FlowMask,
    options: &'a [TunOption],
    ports: &'a dyn PortNames,
    out: &'a mut String,
}

impl Writer<'_> {
    fn all(&mut self) {
        self.context();
        let (typed, proto) = self.protocol();
        for n in 0..32 {
            if let Some(reg) = Field::reg(n) {
                self.hex(reg);
            }
        }
        self.tunnel();
        self.hex(Field::Metadata);
        self.port(Field::InPortOxm, "in_port");
        self.vlan(self.key.vlan_tci(), self.mask.vlan_tci(), "");
        self.vlan(self.key.vlan(1).1, self.mask.vlan(1).1, "1");
        self.mac(Field::EthSrc, "dl_src");
        self.mac(Field::EthDst, "dl_dst");
        if !typed && self.mask.eth_type() != 0 {
            let _ = write!(self.out, "dl_type=0x{:04x},", self.key.eth_type());
        }
        self.network(proto);
        self.transport();
    }

    /// Datapath and connection state.
    fn context(&mut self) {
        self.hex(Field::PktMark);
        self.hex(Field::RecircId);
        self.hex(Field::DpHash);
        self.decimal(Field::ConjId, "conj_id");
        self.hex(Field::SkbPriority);
        self.port(Field::ActsetOutput, "actset_output");
        self.flags(Field::CtState, &flags::CT_STATE);
        self.decimal(Field::CtZone, "ct_zone");
        self.hex(Field::CtMark);
        self.hex(Field::CtLabel);
        self.ipv4(Field::CtNwSrc, "ct_nw_src");
        self.ipv4(Field::CtNwDst, "ct_nw_dst");
        self.ipv6(Field::CtIpv6Src);
        self.ipv6(Field::CtIpv6Dst);
        self.decimal(Field::CtNwProto, "ct_nw_proto");
        self.decimal(Field::CtTpSrc, "ct_tp_src");
        self.decimal(Field::CtTpDst, "ct_tp_dst");
    }

    /// Writes packet type and short protocol name. Returns whether the name implies the Ethernet type, and whether it
    /// implies the IP protocol.
    fn protocol(&mut self) -> (bool, bool) {
        let packet_type = self.key.get(Field::PacketType);
        let matched = self.mask.get(Field::PacketType) != 0;
        if matched && packet_type != 0 {
            self.out.push_str("packet_type=(");
            for (number, end) in [(packet_type >> 16, ","), (packet_type & 0xffff, "),")] {
                // A single digit is the same in both bases.
                let _ =
                    if number > 9 { write!(self.out, "{number:#x}{end}") } else { write!(self.out, "{number}{end}") };
            }
        } else if self.mask.get(Field::RecircId) != 0 {
            // Only datapath flows state that they match Ethernet packets.
            let ethernet = matched || self.mask.0[layout::ETH_DST..].iter().any(|w| *w != 0);
            if ethernet {
                self.out.push_str("eth,");
            }
        }
        if self.mask.eth_type() != 0xffff {
            return (false, false);
        }
        let by_proto = self.mask.ip_proto() == 0xff;
        let (name, proto) = match (self.key.eth_type(), by_proto.then(|| self.key.ip_proto())) {
            (ethertype::IPV4, Some(ipproto::ICMP)) => ("icmp", true),
            (ethertype::IPV4, Some(ipproto::TCP)) => ("tcp", true),
            (ethertype::IPV4, Some(ipproto::UDP)) => ("udp", true),
            (ethertype::IPV4, Some(ipproto::SCTP)) => ("sctp", true),
            (ethertype::IPV4, _) => ("ip", false),
            (ethertype::IPV6, Some(ipproto::ICMPV6)) => ("icmp6", true),
            (ethertype::IPV6, Some(ipproto::TCP)) => ("tcp6", true),
            (ethertype::IPV6, Some(ipproto::UDP)) => ("udp6", true),
            (ethertype::IPV6, Some(ipproto::SCTP)) => ("sctp6", true),
            (ethertype::IPV6, _) => ("ipv6", false),
            (ethertype::ARP, _) => ("arp", false),
            (ethertype::RARP, _) => ("rarp", false),
            (ethertype::MPLS, _) => ("mpls", false),
            (ethertype::MPLS_MCAST, _) => ("mplsm", false),
            _ => return (false, false),
        };
        self.out.push_str(name);
        self.out.push(',');
        (true, proto)
    }

    fn tunnel(&mut self) {
        self.hex(Field::TunId);
        self.ipv4(Field::TunSrc, "tun_src");
        self.ipv4(Field::TunDst, "tun_dst");
        self.ipv6(Field::TunIpv6Src);
        self.ipv6(Field::TunIpv6Dst);
        self.decimal(Field::TunGbpId, "tun_gbp_id");
        self.exact_hex(Field::TunGbpFlags, "tun_gbp_flags");
        if self.mask.get(Field::TunTos) != 0 {
            let _ = write!(self.out, "tun_tos={:x},", self.key.get(Field::TunTos));
        }
        self.exact(Field::TunTtl, "tun_ttl");
        self.exact(Field::TunErspanVer, "tun_erspan_ver");
        self.exact_hex(Field::TunErspanIdx, "tun_erspan_idx");
        self.exact(Field::TunErspanDir, "tun_erspan_dir");
        self.exact_hex(Field::TunErspanHwid, "tun_erspan_hwid");
        self.exact_hex(Field::TunGtpuFlags, "gtpu_flags");
        self.exact(Field::TunGtpuMsgtype, "gtpu_msgtype");
        self.flags(Field::TunFlags, &flags::TUNNEL);
        for option in self.options {
            option.format_match(self.out);
            self.out.push(',');
        }
    }

    fn vlan(&mut self, tci: u16, mask: u16, suffix: &str) {
        if self.subject == Subject::Megaflow && tci & mask == 0 {
            // A megaflow's text leaves out that there is no tag, as in Open vSwitch.
            return;
        }
        let (vid, pcp) = (mask & 0xfff, mask & 0xe000);
        let whole = matches!(vid, 0 | 0xfff) && matches!(pcp, 0 | 0xe000) && vid | pcp != 0;
        if mask & tci & 0x1000 != 0 && whole {
            if vid != 0 {
                let _ = write!(self.out, "dl_vlan{suffix}={},", tci & 0xfff);
            }
            if pcp != 0 {
                let _ = write!(self.out, "dl_vlan_pcp{suffix}={},", tci >> 13);
            }
        } else if mask == 0xffff {
            let _ = write!(self.out, "vlan_tci{suffix}=0x{tci:04x},");
        } else if mask != 0 {
            let _ = write!(self.out, "vlan_tci{suffix}=0x{tci:04x}/0x{mask:04x},");
        }
    }

    /// The Ethernet type of the match, from its Ethernet type or packet type.
    fn eth_type(&self) -> u16 {
        crate::normalize::effective_eth_type(self.key, self.mask)
    }

    fn network(&mut self, proto_said: bool) {
        let eth_type = self.eth_type();
        let is_arp = matches!(eth_type, ethertype::ARP | ethertype::RARP);
        match eth_type {
            ethertype::IPV6 => {
                self.ipv6(Field::Ipv6Src);
                self.ipv6(Field::Ipv6Dst);
                self.ipv6_label();
                self.hex(Field::Ipv6Exthdr);
            }
            ethertype::ARP | ethertype::RARP => {
                self.ipv4(Field::ArpSpa, "arp_spa");
                self.ipv4(Field::ArpTpa, "arp_tpa");
            }
            ethertype::NSH => self.nsh(),
            _ => {
                self.ipv4(Field::Ipv4Src, "nw_src");
                self.ipv4(Field::Ipv4Dst, "nw_dst");
            }
        }
        if !proto_said {
            self.exact(Field::IpProto, if is_arp { "arp_op" } else { "nw_proto" });
        }
        if is_arp {
            self.mac(Field::ArpSha, "arp_sha");
            self.mac(Field::ArpTha, "arp_tha");
        }
        self.exact(Field::IpDscpShifted, "nw_tos");
        self.exact(Field::IpEcn, "nw_ecn");
        self.exact(Field::IpTtl, "nw_ttl");
        self.exact(Field::MplsLabel, "mpls_label");
        self.exact(Field::MplsTc, "mpls_tc");
        self.exact(Field::MplsTtl, "mpls_ttl");
        self.exact(Field::MplsBos, "mpls_bos");
        self.hex(Field::PbbIsid);
        self.exact(Field::PbbUca, "pbb_uca");
        for n in 1..3 {
            if self.mask.mpls_lse(n) != 0 {
                let _ = write!(self.out, "mpls_lse{n}={},", self.key.mpls_lse(n));
            }
        }
        self.fragment();
    }

    /// Writes the fragment match by its masked bits: bit 0 is any fragment, bit 1 not the first. A later fragment
    /// without bit 0 has no name.
    fn fragment(&mut self) {
        let value = self.key.get(Field::IpFrag);
        let name = match (self.mask.get(Field::IpFrag), value & 1 != 0, value & 2 != 0) {
            (0, ..) => return,
            (1, true, _) => "yes",
            (1 | 3, false, false) => "no",
            (2, _, false) => "not_later",
            (3, true, false) => "first",
            (2, ..) | (3, true, true) => "later",
            _ => "<error>",
        };
        let _ = write!(self.out, "nw_frag={name},");
    }

    fn nsh(&mut self) {
        match self.mask.get(Field::NshFlags) {
            0 => {}
            0xff => self.exact(Field::NshFlags, "nsh_flags"),
            mask => {
                let _ = write!(self.out, "nsh_flags=0x{:02x}/0x{mask:02x},", self.key.get(Field::NshFlags));
            }
        }
        self.exact(Field::NshTtl, "nsh_ttl");
        self.exact(Field::NshMdtype, "nsh_mdtype");
        self.exact(Field::NshNp, "nsh_np");
        if self.mask.get(Field::NshSpi) != 0 {
            let _ = write!(self.out, "nsh_spi=0x{:x},", self.key.get(Field::NshSpi));
        }
        self.exact(Field::NshSi, "nsh_si");
        for f in [Field::NshC1, Field::NshC2, Field::NshC3, Field::NshC4] {
            match (self.key.get(f), self.mask.get(f)) {
                (_, 0) => {}
                (value, 0xffff_ffff) => drop(write!(self.out, "{f}={value:#x},")),
                (value, mask) => drop(write!(self.out, "{f}={value:#x}/{mask:#x},")),
            }
        }
    }

    fn transport(&mut self) {
        let eth_type = self.eth_type();
        let proto = (self.mask.ip_proto() == 0xff).then(|| self.key.ip_proto());
        match (eth_type, proto) {
            (ethertype::IPV4, Some(ipproto::ICMP)) => {
                self.icmp(Field::TcpSrc, "icmp_type");
                self.icmp(Field::TcpDst, "icmp_code");
            }
            (ethertype::IPV6, Some(ipproto::ICMPV6)) => {
                self.icmp(Field::TcpSrc, "icmp_type");
                self.icmp(Field::TcpDst, "icmp_code");
                self.ipv6(Field::NdTarget);
                self.mac(Field::NdSll, "nd_sll");
                self.mac(Field::NdTll, "nd_tll");
                self.exact(Field::NdReserved, "nd_reserved");
                self.exact(Field::NdOptionsType, "nd_options_type");
            }
            _ => {
                self.decimal(Field::TcpSrc, "tp_src");
                self.decimal(Field::TcpDst, "tp_dst");
            }
        }
        let ip = matches!(eth_type, ethertype::IPV4 | ethertype::IPV6);
        if ip && proto == Some(ipproto::TCP) {
            self.flags(Field::TcpFlags, &flags::TCP);
        }
    }

    /// Writes hexadecimal with `0x`, but plain `0`.
    fn hex(&mut self, field: Field) {
        let mask = self.mask.get(field);
        if mask == 0 {
            return;
        }
        let value = self.key.get(field);
        let zero = if value == 0 { "0" } else { "" };
        let whole = mask == field.info().full_mask();
        let _ = match (value, whole) {
            (0, true) => write!(self.out, "{field}={zero},"),
            (0, false) => write!(self.out, "{field}={zero}/{mask:#x},"),
            (_, true) => write!(self.out, "{field}={value:#x},"),
            (_, false) => write!(self.out, "{field}={value:#x}/{mask:#x},"),
        };
    }

    /// Writes decimal, or hexadecimal with a mask.
    fn decimal(&mut self, field: Field, name: &str) {
        let mask = self.mask.get(field);
        let value = self.key.get(field);
        if mask == field.info().full_mask() {
            let _ = write!(self.out, "{name}={value},");
        } else if mask != 0 {
            let _ = write!(self.out, "{name}={value:#x}/{mask:#x},");
        }
    }

    /// Writes an ICMP type or code in the place of a port. Its upper byte is zero, so it makes no difference whether it
    /// is masked. That of a megaflow has 8 bits, whether all of them are masked or not.
    fn icmp(&mut self, place: Field, name: &str) {
        if self.subject == Subject::Megaflow {
            let (value, mask) = (self.key.get(place), self.mask.get(place) & 0xff);
            if mask != 0 {
                let _ = write!(self.out, "{name}={:#x}/{mask:#x},", value & mask);
            }
        } else if self.mask.get(place) & 0xff == 0xff {
            self.exact(place, name);
        } else {
            self.decimal(place, name);
        }
    }

    /// Decimal, whatever the mask.
    fn exact(&mut self, field: Field, name: &str) {
        if self.mask.get(field) != 0 {
            let _ = write!(self.out, "{name}={},", self.key.get(field));
        }
    }

    /// Hexadecimal, whatever the mask.
    fn exact_hex(&mut self, field: Field, name: &str) {
        if self.mask.get(field) != 0 {
            let _ = match self.key.get(field) {
                0 => write!(self.out, "{name}=0,"),
                value => write!(self.out, "{name}={value:#x},"),
            };
        }
    }

    fn port(&mut self, field: Field, name: &str) {
        if self.mask.get(field) != 0 {
            let _ = write!(self.out, "{name}=");
            format_port(PortNo(self.key.get(field) as u32), self.ports, self.out);
            self.out.push(',');
        }
    }

    fn flags(&mut self, field: Field, flags: &Flags) {
        let mask = self.mask.get(field) as u32 & flags.visible;
        if mask != 0 {
            let _ = write!(self.out, "{field}=");
            flags.format(self.key.get(field) as u32 & flags.visible, mask, self.out);
            self.out.push(',');
        }
    }

    fn mac(&mut self, field: Field, name: &str) {
        let mask = self.mask.get(field) as u64;
        if mask != 0 {
            let _ = write!(self.out, "{name}=");
            format_mac(self.key.get(field) as u64, mask, self.out);
            self.out.push(',');
        }
    }

    fn ipv4(&mut self, field: Field, name: &str) {
        let mask = self.mask.get(field) as u32;
        if mask != 0 {
            let _ = write!(self.out, "{name}=");
            format_ipv4(self.key.get(field) as u32, mask, self.out);
            self.out.push(',');
        }
    }

    fn ipv6(&mut self, field: Field) {
        let mask = self.mask.get(field);
        if mask != 0 {
            let _ = write!(self.out, "{field}=");
            format_ipv6(self.key.get(field), mask, self.out);
            self.out.push(',');
        }
    }

    fn ipv6_label(&mut self) {
        let mask = self.mask.get(Field::Ipv6Label) & 0xf_ffff;
        let value = self.key.get(Field::Ipv6Label);
        if mask == 0xf_ffff {
            let _ = write!(self.out, "ipv6_label=0x{value:05x},");
        } else if mask != 0 {
            let _ = write!(self.out, "ipv6_label=0x{value:05x}/0x{mask:05x},");
        }
    }
}
