//! Outer headers as text: `header(...)` of the datapath action `tnl_push`, in the format of Open vSwitch.
//!
//! The text has no outer VLAN tag: in Open vSwitch, an action `push_vlan` follows. The checksum of UDP is 0xffff if it is
//! computed. For bareudp, which Open vSwitch's own datapath lacks, the text ends with `udp(...)`.

use super::erspan::Erspan;
use super::geneve::{self, Geneve, GeneveOption};
use super::gre::{self, Gre};
use super::gtpu::Gtpu;
use super::push::{ETH_LEN, Encapsulation, OuterIp, Push, Udp};
use super::srv6::{FlowLabel, SEGMENTS_MAX, Srv6};
use super::vxlan::{self, Vxlan};
use base::MacAddr;
use std::fmt::{self, Write};
use std::str::FromStr;

/// Numbers of tunnel types in `type=`.
mod number {
    pub(super) const GRE: u32 = 3;
    pub(super) const VXLAN: u32 = 4;
    pub(super) const GENEVE: u32 = 5;
    pub(super) const ERSPAN: u32 = 107;
    pub(super) const IP6ERSPAN: u32 = 108;
    pub(super) const IP6GRE: u32 = 109;
    pub(super) const GTPU: u32 = 110;
    pub(super) const BAREUDP: u32 = 111;
    pub(super) const SRV6: u32 = 112;
}

impl Push {
    /// The number of the tunnel type.
    fn number(&self) -> u32 {
        match (&self.tunnel, self.ip.is_v6()) {
            (Encapsulation::Gre(_), false) => number::GRE,
            (Encapsulation::Gre(_), true) => number::IP6GRE,
            (Encapsulation::Erspan(_), false) => number::ERSPAN,
            (Encapsulation::Erspan(_), true) => number::IP6ERSPAN,
            (Encapsulation::Vxlan(..), _) => number::VXLAN,
            (Encapsulation::Geneve(..), _) => number::GENEVE,
            (Encapsulation::Gtpu(..), _) => number::GTPU,
            (Encapsulation::Bareudp(_), _) => number::BAREUDP,
            (Encapsulation::Srv6(_), _) => number::SRV6,
        }
    }

    /// Bytes of the headers without a tag.
    fn size(&self) -> usize {
        let tunnel = match &self.tunnel {
            Encapsulation::Vxlan(..) => vxlan::LEN,
            Encapsulation::Geneve(_, header) => geneve::LEN + header.options.len(),
            Encapsulation::Gre(header) => usize::from(header.sequence_at()) + if header.sequence { 4 } else { 0 },
            Encapsulation::Erspan(Erspan::V1 { .. }) => 16,
            Encapsulation::Erspan(Erspan::V2 { .. }) => 20,
            Encapsulation::Gtpu(_, header) => 8 + if header.has_optional() { 4 } else { 0 },
            Encapsulation::Srv6(header) => 8 + 16 * header.segments.len(),
            Encapsulation::Bareudp(_) => 0,
        };
        ETH_LEN + self.ip.len() + if self.tunnel.udp().is_some() { 8 } else { 0 } + tunnel
    }

    /// Appends `header(...)`.
    pub fn format_header(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = self.write(out);
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let (number, size, ethertype) = (self.number(), self.size(), self.ip.ethertype());
        write!(out, "header(size={size},type={number},")?;
        write!(out, "eth(dst={},src={},dl_type=0x{ethertype:04x}),", self.eth_dst, self.eth_src)?;
        let proto = self.tunnel.proto();
        match &self.ip {
            OuterIp::V4 { src, dst, tos, ttl, dont_fragment } => {
                let (tos, frag) = (Hex((*tos).into()), if *dont_fragment { 0x4000 } else { 0 });
                write!(out, "ipv4(src={src},dst={dst},proto={proto},tos={tos},ttl={ttl},frag=0x{frag:x}),")?;
            }
            OuterIp::V6 { src, dst, class, hop_limit, label, dont_fragment: _ } => {
                let label = match &self.tunnel {
                    Encapsulation::Srv6(header) => header.flow_label.number(),
                    _ => *label,
                };
                write!(out, "ipv6(src={src},dst={dst},label={label},proto={proto},")?;
                write!(out, "tclass=0x{class:x},hlimit={hop_limit}),")?;
            }
        }
        if let Some(Udp { src, dst, checksum }) = self.tunnel.udp() {
            write!(out, "udp(src={src},dst={dst},csum=0x{:x})", if *checksum { 0xffff } else { 0 })?;
        }
        self.write_tunnel(out)?;
        out.write_char(')')
    }

    fn write_tunnel(&self, out: &mut String) -> fmt::Result {
        match &self.tunnel {
            Encapsulation::Bareudp(_) => Ok(()),
            Encapsulation::Vxlan(_, Vxlan { flags, vni }) => write!(out, ",vxlan(flags=0x{flags:x},vni=0x{vni:x})"),
            Encapsulation::Geneve(_, header) => write_geneve(header, out),
            Encapsulation::Gre(header) => {
                let protocol = header.protocol;
                write!(out, "gre((flags=0x{:x},proto=0x{protocol:x})", header.flags())?;
                if header.checksum {
                    out.write_str(",csum=0x0")?;
                }
                if let Some(key) = header.key {
                    write!(out, ",key=0x{key:x}")?;
                }
                out.write_str(if header.sequence { ",seq=0x0)" } else { ")" })
            }
            Encapsulation::Erspan(Erspan::V1 { session, index }) => {
                write!(out, "erspan(ver=1,sid=0x{session:x},idx=0x{index:x})")
            }
            Encapsulation::Erspan(Erspan::V2 { session, is_egress, hardware_id }) => {
                let direction = u8::from(*is_egress);
                write!(out, "erspan(ver=2,sid=0x{session:x},dir={direction},hwid=0x{hardware_id:x})")
            }
            Encapsulation::Gtpu(_, Gtpu { flags, message_type, teid }) => {
                write!(out, ",gtpu(flags=0x{flags:x},msgtype={message_type},teid=0x{teid:x})")
            }
            Encapsulation::Srv6(Srv6 { segments, .. }) => {
                write!(out, "srv6(segments_left={},segs(", segments.len().saturating_sub(1))?;
                for (i, segment) in segments.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(out, "{comma}{segment}")?;
                }
                out.write_str("))")
            }
        }
    }
}

fn write_geneve(header: &Geneve, out: &mut String) -> fmt::Result {
    out.write_str(",geneve(")?;
    out.write_str(if header.oam { "oam," } else { "" })?;
    out.write_str(if header.has_critical_options() { "crit," } else { "" })?;
    write!(out, "vni=0x{:x}", header.vni)?;
    if !header.options.is_empty() {
        out.write_str(",options(")?;
        for GeneveOption { class, kind, value } in geneve::options(&header.options).flatten() {
            let (class, kind, len) = (Hex(class.into()), Hex(kind.into()), value.len());
            write!(out, "{{class={class},type={kind},len={len}")?;
            if len > 0 {
                out.write_char(',')?;
                write_number(value, out)?;
            }
            out.write_char('}')?;
        }
        out.write_char(')')?;
    }
    out.write_char(')')
}

/// A number of any length, without leading zeros.
fn write_number(bytes: &[u8], out: &mut String) -> fmt::Result {
    let mut significant = bytes.iter().skip_while(|byte| **byte == 0);
    let Some(first) = significant.next() else { return out.write_char('0') };
    write!(out, "0x{first:x}")?;
    significant.try_for_each(|byte| write!(out, "{byte:02x}"))
}

/// A number in hexadecimal; 0 without a prefix.
struct Hex(u32);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_char('0') } else { write!(f, "{:#x}", self.0) }
    }
}

/// Why a text is not that of outer headers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    /// Another text stands where this one was expected.
    #[error("expected '{expected}' at '{found}'")]
    Expected {
        /// The expected text.
        expected: &'static str,
        /// The beginning of the text there.
        found: String,
    },
    /// No valid value of a field.
    #[error("'{found}' is not a valid {field}")]
    Value {
        /// The name of the field.
        field: &'static str,
        /// The value.
        found: String,
    },
    /// The stated size or type differs from that of the headers.
    #[error("size and type are not those of the headers")]
    Inconsistent,
}

/// The rest of a text.
struct Scanner<'t>(&'t str);

impl<'t> Scanner<'t> {
    fn accept(&mut self, token: &str) -> bool {
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, expected: &'static str) -> Result<(), TextError> {
        if self.accept(expected) {
            return Ok(());
        }
        Err(TextError::Expected { expected, found: self.0.chars().take(20).collect() })
    }

    /// The text up to a delimiter.
    fn word(&mut self) -> &'t str {
        let end = self.0.find([',', ')', '}']).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    fn value<T: FromStr>(&mut self, field: &'static str) -> Result<T, TextError> {
        let word = self.word();
        word.parse().map_err(|_| TextError::Value { field, found: word.to_owned() })
    }

    /// A number, decimal or hexadecimal behind `0x`, of at most `max`.
    fn number(&mut self, field: &'static str, max: u32) -> Result<u32, TextError> {
        let word = self.word();
        let number = match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let number = number.ok().filter(|number| *number <= max);
        number.ok_or_else(|| TextError::Value { field, found: word.to_owned() })
    }

    /// `field=` and a number.
    fn field(&mut self, prefix: &'static str, max: u32) -> Result<u32, TextError> {
        self.expect(prefix)?;
        self.number(prefix.trim_matches([',', '=']), max)
    }
}

impl Push {
    /// Parses `header(...)` at the beginning of a text, and returns the headers with the rest of the text.
    pub fn parse_header(text: &str) -> Result<(Self, &str), TextError> {
        let mut s = Scanner(text);
        let size = s.field("header(size=", u32::MAX)?;
        let number = s.field(",type=", u32::MAX)?;
        s.expect(",eth(dst=")?;
        let eth_dst: MacAddr = s.value("dst")?;
        s.expect(",src=")?;
        let eth_src: MacAddr = s.value("src")?;
        s.field(",dl_type=", 0xffff)?;
        s.expect("),")?;
        let mut ip = parse_ip(&mut s)?;
        s.expect("),")?;
        let tunnel = parse_tunnel(&mut s, number, &ip)?;
        if let (Encapsulation::Srv6(_), OuterIp::V6 { label, .. }) = (&tunnel, &mut ip) {
            *label = 0;
        }
        s.expect(")")?;
        let push = Self { eth_src, eth_dst, vlan: None, ip, tunnel };
        let consistent = push.size() == size as usize && push.number() == number;
        if consistent { Ok((push, s.0)) } else { Err(TextError::Inconsistent) }
    }
}

fn parse_ip(s: &mut Scanner<'_>) -> Result<OuterIp, TextError> {
    if s.accept("ipv4(src=") {
        let src = s.value("src")?;
        s.expect(",dst=")?;
        let dst = s.value("dst")?;
        s.field(",proto=", 0xff)?;
        let tos = s.field(",tos=", 0xff)? as u8;
        let ttl = s.field(",ttl=", 0xff)? as u8;
        let dont_fragment = s.field(",frag=", 0xffff)? & 0x4000 != 0;
        return Ok(OuterIp::V4 { src, dst, tos, ttl, dont_fragment });
    }
    s.expect("ipv6(src=")?;
    let src = s.value("src")?;
    s.expect(",dst=")?;
    let dst = s.value("dst")?;
    let label = s.field(",label=", 0xf_ffff)?;
    s.field(",proto=", 0xff)?;
    let class = s.field(",tclass=", 0xff)? as u8;
    let hop_limit = s.field(",hlimit=", 0xff)? as u8;
    Ok(OuterIp::V6 { src, dst, class, hop_limit, label, dont_fragment: true })
}

fn parse_udp(s: &mut Scanner<'_>) -> Result<Udp, TextError> {
    let src = s.field("udp(src=", 0xffff)? as u16;
    let dst = s.field(",dst=", 0xffff)? as u16;
    let checksum = s.field(",csum=", 0xffff)? != 0;
    s.expect(")")?;
    Ok(Udp { src, dst, checksum })
}

fn parse_tunnel(s: &mut Scanner<'_>, number: u32, ip: &OuterIp) -> Result<Encapsulation, TextError> {
    if s.accept("gre((flags=") {
        return parse_gre(s);
    }
    if s.accept("erspan(ver=") {
        return parse_erspan(s);
    }
    if s.accept("srv6(segments_left=") {
        return parse_srv6(s, ip);
    }
    let udp = parse_udp(s)?;
    if number == number::BAREUDP {
        return Ok(Encapsulation::Bareudp(udp));
    }
    s.expect(",")?;
    if s.accept("vxlan(") {
        let flags = s.field("flags=", u32::MAX)?;
        let vni = s.field(",vni=", 0xff_ffff)?;
        s.expect(")")?;
        return Ok(Encapsulation::Vxlan(udp, Vxlan { flags, vni }));
    }
    if s.accept("gtpu(") {
        let flags = s.field("flags=", 0xff)? as u8;
        let message_type = s.field(",msgtype=", 0xff)? as u8;
        let teid = s.field(",teid=", u32::MAX)?;
        s.expect(")")?;
        return Ok(Encapsulation::Gtpu(udp, Gtpu { flags, message_type, teid }));
    }
    s.expect("geneve(")?;
    let oam = s.accept("oam,");
    // The bit follows from the options.
    s.accept("crit,");
    let vni = s.field("vni=", 0xff_ffff)?;
    let mut options = Vec::new();
    if s.accept(",options(") {
        while !s.accept(")") {
            parse_option(s, &mut options)?;
        }
    }
    s.expect(")")?;
    Ok(Encapsulation::Geneve(udp, Geneve { vni, oam, options: options.into() }))
}

/// Appends an option's bytes.
fn parse_option(s: &mut Scanner<'_>, out: &mut Vec<u8>) -> Result<(), TextError> {
    let class = s.field("{class=", 0xffff)? as u16;
    let kind = s.field(",type=", 0xff)? as u8;
    let len = s.field(",len=", 124)? as usize;
    let mut value = vec![0; len];
    if len > 0 {
        s.expect(",")?;
        let word = s.word();
        let invalid = || TextError::Value { field: "option", found: word.to_owned() };
        let digits = if word == "0" { "" } else { word.strip_prefix("0x").ok_or_else(invalid)? };
        if !len.is_multiple_of(4) || digits.len() > 2 * len {
            return Err(invalid());
        }
        for (i, digit) in digits.chars().rev().enumerate() {
            let digit = digit.to_digit(16).ok_or_else(invalid)? as u8;
            value[len - 1 - i / 2] |= digit << (4 * (i % 2));
        }
    }
    s.expect("}")?;
    GeneveOption { class, kind, value: &value }.emit(out);
    if out.len() > geneve::OPTIONS_MAX {
        return Err(TextError::Value { field: "options", found: format!("{} bytes", out.len()) });
    }
    Ok(())
}

fn parse_gre(s: &mut Scanner<'_>) -> Result<Encapsulation, TextError> {
    let flags = s.number("flags", 0xffff)? as u16;
    let protocol = s.field(",proto=", 0xffff)? as u16;
    s.expect(")")?;
    let has = |flag: u16| flags & flag != 0;
    if has(gre::FLAG_CHECKSUM) {
        s.field(",csum=", 0xffff)?;
    }
    let key = if has(gre::FLAG_KEY) { Some(s.field(",key=", u32::MAX)?) } else { None };
    if has(gre::FLAG_SEQUENCE) {
        s.field(",seq=", u32::MAX)?;
    }
    s.expect(")")?;
    let gre = Gre { protocol, checksum: has(gre::FLAG_CHECKSUM), key, sequence: has(gre::FLAG_SEQUENCE) };
    if gre.flags() != flags {
        return Err(TextError::Value { field: "flags", found: format!("{flags:#x}") });
    }
    Ok(Encapsulation::Gre(gre))
}

fn parse_erspan(s: &mut Scanner<'_>) -> Result<Encapsulation, TextError> {
    let version = s.number("ver", 2)?;
    let session = s.field(",sid=", 0x3ff)? as u16;
    let erspan = if version == 1 {
        Erspan::V1 { session, index: s.field(",idx=", 0xf_ffff)? }
    } else {
        let is_egress = s.field(",dir=", 1)? != 0;
        Erspan::V2 { session, is_egress, hardware_id: s.field(",hwid=", 0x3f)? as u8 }
    };
    s.expect(")")?;
    Ok(Encapsulation::Erspan(erspan))
}

fn parse_srv6(s: &mut Scanner<'_>, ip: &OuterIp) -> Result<Encapsulation, TextError> {
    let left = s.number("segments_left", SEGMENTS_MAX as u32 - 1)?;
    s.expect(",segs(")?;
    let mut segments = Vec::new();
    for i in 0..=left {
        if i > 0 {
            s.expect(",")?;
        }
        segments.push(s.value("segment")?);
    }
    s.expect("))")?;
    let label = match ip {
        OuterIp::V4 { .. } => return Err(TextError::Inconsistent),
        OuterIp::V6 { label, .. } => *label,
    };
    let invalid = || TextError::Value { field: "label", found: label.to_string() };
    let flow_label = FlowLabel::numbered(label).ok_or_else(invalid)?;
    Ok(Encapsulation::Srv6(Srv6 { segments: segments.into(), flow_label }))
}
