//! The tunnel of a datapath flow's key: `tunnel(tun_id=0x7,src=1.1.1.1,dst=1.1.1.2,ttl=64,geneve({class=0x1,type=0x2,len=4,
//! 0x5}),flags(df|key))`. Parts that a packet's tunnel does not have are not written. Ports of the outer headers are no
//! part of keys.

use super::key::{Writer, hex, nested};
use super::parse::{Reader, closing, number};
use flow::{Field, FlowKey, FlowMask, PlacedOption, ReceivedOptions};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use tunnel::flags;

/// Names of the flags, lowest first.
const FLAGS: &[&str] = &["oam", "df", "csum", "key"];
/// The flags that have names.
const NAMED: u16 = flags::OAM | flags::DONT_FRAGMENT | flags::CHECKSUM | flags::KEY;

/// Formats the tunnel of a key. `None` if the packet came from no tunnel.
pub(super) fn format(w: &Writer<'_>, options: &ReceivedOptions) -> Option<String> {
    let is_set = |field: Field| w.key.get(field) != 0;
    let ends = [Field::TunSrc, Field::TunDst, Field::TunIpv6Src, Field::TunIpv6Dst];
    if !ends.into_iter().any(is_set) {
        return None;
    }
    let given = |field: Field, part: Option<String>| part.filter(|_| is_set(field));
    let v4 = |name, field| given(field, w.part(name, field, v4_text, v4_text));
    let v6 = |name, field| given(field, w.part(name, field, v6_text, v6_text));
    let has_key = w.key.get(Field::TunFlags) as u16 & flags::KEY != 0;
    let parts = [
        w.part("tun_id", Field::TunId, |id| format!("{id:#x}"), hex).filter(|_| has_key || is_set(Field::TunId)),
        v4("src", Field::TunSrc),
        v4("dst", Field::TunDst),
        v6("ipv6_src", Field::TunIpv6Src),
        v6("ipv6_dst", Field::TunIpv6Dst),
        given(Field::TunTos, w.part("tos", Field::TunTos, hex, hex)),
        w.decimal("ttl", Field::TunTtl),
        group_policy(w),
        geneve(w, options),
        erspan(w),
        gtpu(w),
        flags_text(w),
    ];
    Some(nested("tunnel", &parts).unwrap_or_else(|| "tunnel()".to_owned()))
}

fn v4_text(bits: u128) -> String {
    Ipv4Addr::from_bits(bits as u32).to_string()
}

fn v6_text(bits: u128) -> String {
    Ipv6Addr::from_bits(bits).to_string()
}

fn group_policy(w: &Writer<'_>) -> Option<String> {
    let (id, flags) = (Field::TunGbpId, Field::TunGbpFlags);
    if w.key.get(id) == 0 && w.key.get(flags) == 0 {
        return None;
    }
    let parts = [w.decimal("id", id), w.part("flags", flags, hex, hex)];
    nested("vxlan", &[nested("gbp", &parts)])
}

fn erspan(w: &Writer<'_>) -> Option<String> {
    let version = w.decimal("ver", Field::TunErspanVer);
    let idx = || w.part("idx", Field::TunErspanIdx, hex, hex);
    let dir = || w.decimal("dir", Field::TunErspanDir);
    match w.key.get(Field::TunErspanVer) {
        1 => nested("erspan", &[version, idx()]),
        2 => nested("erspan", &[version, dir(), w.part("hwid", Field::TunErspanHwid, hex, hex)]),
        _ => None,
    }
}

fn gtpu(w: &Writer<'_>) -> Option<String> {
    let (flags, message) = (Field::TunGtpuFlags, Field::TunGtpuMsgtype);
    if w.key.get(flags) == 0 && w.key.get(message) == 0 {
        return None;
    }
    nested("gtpu", &[w.part("flags", flags, hex, hex), w.decimal("msgtype", message)])
}

/// Formats the options that the packet has and the mask matches.
fn geneve(w: &Writer<'_>, options: &ReceivedOptions) -> Option<String> {
    let mut out = String::new();
    for option in options.iter() {
        let (word, bit) = option.presence();
        if w.key.0[word] & bit == 0 || (w.mask.0[word] & bit == 0 && !w.all) {
            continue;
        }
        let (class, kind) = option.id();
        let (value, mask) = (option.bytes(w.key), option.bytes(w.mask));
        let len = value.len();
        // Writing to a string does not fail.
        let _ = write!(out, "{{class={},type={},len={len}", hex(class.into()), hex(kind.into()));
        if mask.iter().any(|byte| *byte != 0) || (w.all && len != 0) {
            out.push(',');
            out.push_str(&long_hex(&value));
            if mask.iter().any(|byte| *byte != 0xff) {
                out.push('/');
                out.push_str(&if mask.iter().all(|byte| *byte == 0) { "0".to_owned() } else { long_hex(&mask) });
            }
        }
        out.push('}');
    }
    (!out.is_empty()).then(|| format!("geneve({out})"))
}

/// A number of any length without leading zeros.
fn long_hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}

fn flags_text(w: &Writer<'_>) -> Option<String> {
    let (value, mask) = (w.key.get(Field::TunFlags) as u16 & NAMED, w.mask.get(Field::TunFlags) as u16 & NAMED);
    let named = |bits: u16| FLAGS.iter().enumerate().filter(move |(n, _)| bits >> n & 1 != 0);
    let text = match mask {
        0 if !w.all => return None,
        0 => "0/0".to_owned(),
        NAMED if value == 0 => "0".to_owned(),
        NAMED => named(value).map(|(_, name)| *name).collect::<Vec<_>>().join("|"),
        _ => named(mask).map(|(n, name)| format!("{}{name}", if value >> n & 1 != 0 { '+' } else { '-' })).collect(),
    };
    Some(format!("flags({text})"))
}

/// A Geneve option with its mask, in the order of their bytes in a header.
#[derive(Debug)]
struct OptionText {
    id: (u16, u8),
    value: Vec<u8>,
    /// `None` for the presence of the option only.
    mask: Option<Vec<u8>>,
}

/// The parts of a tunnel's text that are not put into the key at once.
#[derive(Debug, Default)]
pub(super) struct TunnelText {
    pub(super) has_ttl: bool,
    options: Vec<OptionText>,
}

impl TunnelText {
    /// Parses what is between the parentheses into the key of `reader`. `None` is a syntax error.
    pub(super) fn parse(body: &str, reader: &mut Reader<'_>) -> Option<Self> {
        let mut text = Self::default();
        let mut seen = Vec::new();
        for part in split(body)? {
            let end = part.find(['=', '('])?;
            let name = &part[..end];
            if seen.contains(&name) {
                return None;
            }
            seen.push(name);
            if let Some(value) = part[end..].strip_prefix('=') {
                reader.part(field_of(name)?, value)?;
                text.has_ttl |= name == "ttl";
            } else {
                let inner = part[end + 1..].strip_suffix(')')?;
                text.nested(name, inner, reader)?;
            }
        }
        Some(text)
    }

    fn nested(&mut self, name: &str, body: &str, reader: &mut Reader<'_>) -> Option<()> {
        match name {
            "flags" => reader.flags_within(Field::TunFlags, FLAGS, NAMED.into(), body),
            "vxlan" => {
                let policy = body.strip_prefix("gbp(")?.strip_suffix(')')?;
                reader.parts(policy, &[("id", Field::TunGbpId), ("flags", Field::TunGbpFlags)])
            }
            "gtpu" => reader.parts(body, &[("flags", Field::TunGtpuFlags), ("msgtype", Field::TunGtpuMsgtype)]),
            "erspan" => {
                let known = [
                    ("ver", Field::TunErspanVer),
                    ("idx", Field::TunErspanIdx),
                    ("dir", Field::TunErspanDir),
                    ("hwid", Field::TunErspanHwid),
                ];
                reader.parts(body, &known)?;
                let given = |name: &str| super::parse::pairs(body, |part, _| (part != name).then_some(())).is_none();
                match reader.key.get(Field::TunErspanVer) {
                    1 => !given("dir") && !given("hwid"),
                    2 => !given("idx"),
                    _ => false,
                }
                .then_some(())
            }
            "geneve" => self.geneve(body),
            _ => None,
        }
    }

    fn geneve(&mut self, mut body: &str) -> Option<()> {
        while !body.is_empty() {
            let (option, rest) = body.strip_prefix('{')?.split_once('}')?;
            body = rest;
            // The form of dumps for an option whose parts are not matched.
            if !option.is_empty() {
                self.options.push(OptionText::parse(option)?);
            }
        }
        Some(())
    }

    /// The options as in a header.
    pub(super) fn option_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for option in &self.options {
            bytes.extend(option.id.0.to_be_bytes());
            bytes.extend([option.id.1, (option.value.len() / 4) as u8]);
            bytes.extend(&option.value);
        }
        bytes
    }

    /// Puts the options into a key and a mask. `None` if one of them is not among `known`.
    pub(super) fn match_options(&self, known: &ReceivedOptions, key: &mut FlowKey, mask: &mut FlowMask) -> Option<()> {
        for option in &self.options {
            let is_it = |placed: &&PlacedOption| {
                placed.id() == option.id && usize::from(placed.n_bits()) == 8 * option.value.len()
            };
            let placed = known.iter().find(is_it)?;
            placed.put_bytes(key, &option.value);
            let no_bits = vec![0; option.value.len()];
            placed.put_bytes(mask, option.mask.as_ref().unwrap_or(&no_bits));
        }
        Some(())
    }
}

impl OptionText {
    /// Parses `class=0x1,type=0x2,len=4,0x5/0xff`.
    fn parse(text: &str) -> Option<Self> {
        let (mut class, mut kind, mut len, mut data) = (None, None, None, None);
        for part in text.split(',') {
            let (name, value) = part.split_once('=').unwrap_or(("", part));
            match name {
                "class" => class = Some(u16::try_from(number(value)?).ok()?),
                "type" => kind = Some(u8::try_from(number(value)?).ok()?),
                "len" => len = Some(u8::try_from(number(value)?).ok()?),
                "" => data = Some(value),
                _ => return None,
            }
        }
        let len = usize::from(len?);
        if len % 4 != 0 || len > LEN_MAX {
            return None;
        }
        let (value, mask) = match data {
            Some(data) => match data.split_once('/') {
                Some((value, mask)) => (bytes(value, len)?, Some(bytes(mask, len)?)),
                None => (bytes(data, len)?, Some(vec![0xff; len])),
            },
            None => (vec![0; len], None),
        };
        Some(Self { id: (class?, kind?), value, mask })
    }
}

/// Length of the longest option's value in bytes (RFC 8926 section 3.5).
const LEN_MAX: usize = 124;

/// The `len` bytes of a number.
fn bytes(text: &str, len: usize) -> Option<Vec<u8>> {
    let digits = match text.trim().strip_prefix("0x") {
        Some(digits) => digits,
        None => return (number(text)? == 0).then(|| vec![0; len]),
    };
    let digits = digits.trim_start_matches('0');
    if digits.len() > 2 * len || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = format!("{digits:0>width$}", width = 2 * len);
    (0..len).map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).ok()).collect()
}

fn field_of(name: &str) -> Option<Field> {
    Some(match name {
        "tun_id" => Field::TunId,
        "src" => Field::TunSrc,
        "dst" => Field::TunDst,
        "ipv6_src" => Field::TunIpv6Src,
        "ipv6_dst" => Field::TunIpv6Dst,
        "tos" => Field::TunTos,
        "ttl" => Field::TunTtl,
        _ => return None,
    })
}

/// Splits parts at the commas outside of parentheses. `None` if the parentheses do not match.
fn split(body: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let end = match rest.find([',', '(']) {
            Some(at) if rest[at..].starts_with('(') => at + 2 + closing(&rest[at + 1..])?,
            Some(at) => at,
            None => rest.len(),
        };
        let (part, behind) = rest.split_at(end);
        parts.push(part);
        rest = match behind.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if behind.is_empty() => "",
            None => return None,
        };
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::super::{Detail, KeyError, format_key, parse_flow, parse_key_of_packet};
    use super::*;
    use flow::OptionPlace;

    fn options() -> ReceivedOptions {
        let option = |class, kind, slot, places: &[u8]| {
            let places: Vec<_> = places.iter().filter_map(|n| OptionPlace::new(*n)).collect();
            PlacedOption::new(Field::TunMetadata0, &places).unwrap().with_id(class, kind).with_presence(slot)
        };
        [option(0xffff, 0, 3, &[5]), option(0xffff, 0x81, 4, &[9, 7])].into_iter().collect()
    }

    fn again(text: &str, detail: Detail) -> String {
        let options = options();
        let (key, mask) = parse_flow(text, &options, &|_| None).unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut out = String::new();
        format_key((&key, &mask), detail, &options, &|_| None, &mut out);
        out.split("),in_port").next().unwrap().trim_start_matches("recirc_id(0),").to_owned() + ")"
    }

    /// The texts are the ones of Open vSwitch 4.0, except that it forgets the version of ERSPAN.
    #[test]
    fn tunnels_round_trip() {
        for text in [
            "tunnel(tun_id=0x7,src=1.1.2.92,dst=1.1.2.88,tos=0x4,ttl=64,flags(df|csum|key))",
            "tunnel(tun_id=0x7,src=1.1.2.92,dst=1.1.2.88,ttl=64,flags(+df-csum+key))",
            "tunnel(tun_id=0x7/0xff,src=1.1.2.92/255.0.0.0,dst=1.1.2.88,tos=0x4/0x4,ttl=64/0x3f,flags(oam|df|csum|key))",
            "tunnel(tun_id=0x7,ipv6_src=fd00::2,ipv6_dst=fd00::1,ttl=1,flags(0))",
            "tunnel(src=1.1.2.92,ttl=1,geneve({class=0xffff,type=0,len=4,0x11223344}{class=0xffff,type=0x81,len=8,0x5/0xff}))",
            "tunnel(src=1.1.2.92,ttl=1,geneve({class=0xffff,type=0x81,len=8}))",
            "tunnel(src=1.1.2.92,ttl=64,vxlan(gbp(id=5,flags=0x1)),flags(key))",
            "tunnel(src=1.1.2.92,ttl=64,vxlan(gbp(id=5/0xff,flags=0x1/0x1)),flags(key))",
            "tunnel(src=1.1.2.92,ttl=64,erspan(ver=1,idx=0x5),flags(key))",
            "tunnel(src=1.1.2.92,ttl=64,erspan(ver=2,dir=1,hwid=0x3),flags(key))",
            "tunnel(src=1.1.2.92,ttl=64,gtpu(flags=0x30,msgtype=255))",
        ] {
            assert_eq!(again(&format!("{text},in_port(1),eth()"), Detail::Matched), text);
        }
        assert_eq!(
            again(
                "tunnel(src=1.1.2.92,ttl=64,geneve({class=0xffff,type=0,len=4}),flags(+key)),in_port(1)",
                Detail::All
            ),
            "dp_hash(0/0),skb_priority(0/0),tunnel(tun_id=0x0/0,src=1.1.2.92,ttl=64,\
             geneve({class=0xffff,type=0,len=4,0x0/0}),flags(+key))"
        );
        // An option without parts, as in dumps, is none.
        assert_eq!(
            again("tunnel(src=1.1.2.92,ttl=64,geneve({})),in_port(1)", Detail::Matched),
            "tunnel(src=1.1.2.92,ttl=64)"
        );
    }

    #[test]
    fn wrong_tunnels_are_refused() {
        let wrong = |tunnel: &str| {
            let text = format!("tunnel({tunnel}),in_port(1)");
            (parse_flow(&text, &options(), &|_| None).unwrap_err(), text)
        };
        for tunnel in [
            "foo=1,ttl=1",
            "ttl=256",
            "ttl=1,ttl=2",
            "ttl=1,flags(bad)",
            "ttl=1,flags(df",
            "ttl=1,flags(df)x",
            "ttl=1,flags(0x10)",
            "ttl=1,tp_src=1",
            "ttl=1,src=1.1.1",
            "ttl=1,erspan(ver=3,idx=1)",
            "ttl=1,erspan(ver=2,idx=1)",
            "ttl=1,erspan(ver=1,dir=1)",
            "ttl=1,vxlan(gpe())",
            "ttl=1,geneve({class=0xffff,type=0,len=3,0x1})",
            "ttl=1,geneve({class=0xffff,type=0,0x1})",
            "ttl=1,geneve({class=0xffff,type=0,len=4,0x100000000})",
            "ttl=1,geneve({class=0xffff,type=0,len=8,0x1})",
            "ttl=1,geneve({class=1,type=0,len=4,0x1})",
            "ttl=1,geneve({class=0xffff,type=0,len=4,0x1)",
            "ttl=1,geneve({class=0xffff,type=0,len=4,-1})",
        ] {
            let (error, text) = wrong(tunnel);
            let rest = if let KeyError::Syntax(rest) = error { rest } else { panic!("{tunnel}: {error}") };
            assert!(text.ends_with(&rest), "{tunnel}: {rest}");
        }
        assert!(matches!(wrong("src=1.1.1.1,dst=1.1.1.2").0, KeyError::NoTtl(_)));
    }

    #[test]
    fn a_missing_time_to_live_is_missing_in_the_error() {
        let tunnel = "tunnel(tun_id=0x7,src=1.1.2.92,dst=1.1.2.88,geneve({class=0xffff,type=0,len=4,0x11}),flags(key))";
        let error = parse_key_of_packet(&format!("{tunnel},in_port(6081)"), &options(), &|_| None).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("tunnel options missing TTL; the flow key in error is: {tunnel},in_port(6081)")
        );
    }

    #[test]
    fn options_of_packets_may_be_unknown() {
        let options = options();
        let key = |tunnel: &str| {
            parse_key_of_packet(&format!("tunnel(src=1.1.1.1,ttl=1,{tunnel}),in_port(1),eth()"), &options, &|_| None)
                .unwrap()
        };
        let known = key("geneve({class=0xffff,type=0,len=4,0x5})");
        let placed = options.iter().next().unwrap();
        assert_eq!((placed.get(&known, 0, 32), known.0[placed.presence().0]), (5, placed.presence().1));
        assert_eq!(key("geneve({class=1,type=1,len=4,0x5})"), key("geneve()"));
        assert_eq!(key("geneve({class=1,type=0x81,len=4,0x5})").get(Field::TunFlags), flow::UNKNOWN_OPTION.into());
    }
}
