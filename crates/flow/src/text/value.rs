//! Parses and formats the value and mask of one field.

use super::PortNames;
use super::error::{MatchError, Part};
use super::flags;
use crate::field::{Field, FieldInfo, Format, Loc, Maskable};
use base::{MacAddr, PortNo};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Parses `value` or `value/mask` of `field`, right aligned. With a mask, bits of the value outside of it are cleared;
/// without one, the value may exceed the field's width within its bytes, see [`FieldInfo::is_valid`]. `*` is a mask of
/// zeros.
pub fn parse_value(field: Field, text: &str, ports: &dyn PortNames) -> Result<(u128, u128), MatchError> {
    let info = field.info();
    if text == "*" {
        return Ok((0, 0));
    }
    if let Loc::TunMetadata(_) = info.loc {
        return Err(MatchError::NoTlvTable { field: info.name });
    }
    let (value, mask) = match info.format {
        Format::Decimal | Format::Hex => parse_integer(info, text)?,
        Format::Mac => parse_mac(text)?,
        Format::Ipv4 => parse_ipv4(text)?,
        Format::Ipv6 => parse_ipv6(text)?,
        Format::OfPort => (u128::from(named_port(info, text, ports)?.to_of10()), 0xffff),
        Format::OfPort32 => (u128::from(named_port(info, text, ports)?.0), 0xffff_ffff),
        Format::Frag => parse_frag(text)?,
        Format::CtState => widen(flags::CT_STATE.parse(text)?),
        Format::TunFlags => widen(flags::TUNNEL.parse(text)?),
        Format::TcpFlags => widen(flags::TCP.parse(text)?),
        Format::PacketType => (parse_packet_type(text)?, 0xffff_ffff),
    };
    let whole = wire_mask(info);
    if info.maskable == Maskable::None && mask != 0 && mask & whole != whole {
        return Err(MatchError::Mask { text: text.into(), field: info.name });
    }
    Ok((value & mask, mask & info.full_mask()))
}

fn widen((value, mask): (u32, u32)) -> (u128, u128) {
    (value.into(), mask.into())
}

/// All bits of the field on the wire.
fn wire_mask(info: &FieldInfo) -> u128 {
    if info.wire_bits >= 128 { u128::MAX } else { (1 << info.wire_bits) - 1 }
}

enum NumberError {
    Syntax,
    Large,
}

/// Parses a number of at most `limit`: hexadecimal of any width, or decimal or octal up to 64 bits. A number that is
/// too large is reported before trailing text.
fn number(text: &str, limit: u128) -> Result<u128, NumberError> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    let (digits, radix, widest) = match hex {
        Some(hex) => (hex, 16, limit),
        None if unsigned.starts_with('0') => (unsigned, 8, limit.min(u64::MAX.into())),
        None => (unsigned, 10, limit.min(u64::MAX.into())),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, tail) = digits.split_at(end);
    let mut n = 0u128;
    for digit in digits.chars().filter_map(|c| c.to_digit(radix)) {
        n = n.checked_mul(radix.into()).and_then(|n| n.checked_add(digit.into())).ok_or(NumberError::Large)?;
    }
    if negative {
        // Like strtoull(3): a negative number wraps around at 64 bits.
        let Ok(positive) = u64::try_from(n) else { return Err(NumberError::Large) };
        n = positive.wrapping_neg().into();
    }
    match () {
        () if n > widest => Err(NumberError::Large),
        () if !tail.is_empty() || digits.is_empty() && hex.is_none() => Err(NumberError::Syntax),
        () => Ok(n),
    }
}

/// Parses a number of 64 bits; the error says whether it is too large.
pub(crate) fn number_64(text: &str) -> Result<u64, bool> {
    match number(text, u64::MAX.into()) {
        Ok(n) => Ok(n as u64),
        Err(NumberError::Large) => Err(true),
        Err(NumberError::Syntax) => Err(false),
    }
}

/// Parses any number that fits 128 bits.
pub(crate) fn parse_u128(text: &str) -> Option<u128> {
    if text.is_empty() { None } else { number(text, u128::MAX).ok() }
}

fn parse_integer(info: &FieldInfo, text: &str) -> Result<(u128, u128), MatchError> {
    let limit = wire_mask(info);
    let one = |s: &str, part| {
        number(s, limit).map_err(|e| match e {
            NumberError::Large => {
                MatchError::TooLarge { text: text.into(), part, bytes: info.wire_bytes(), field: info.name }
            }
            NumberError::Syntax => MatchError::Syntax { text: text.into(), part, field: info.name },
        })
    };
    match text.split_once('/') {
        Some((value, mask)) => Ok((one(value, Part::Value)?, one(mask, Part::Mask)?)),
        None => Ok((one(text, Part::Value)?, limit)),
    }
}

/// Parses six hexadecimal numbers separated by colons; only the low 8 bits of each count.
fn mac(text: &str) -> Option<u64> {
    match scan_mac(text)? {
        (address, "") => Some(address.to_u64()),
        _ => None,
    }
}

/// Takes a MAC address off the front of `text`: six hexadecimal numbers, of which only the low 8 bits count.
pub fn scan_mac(text: &str) -> Option<(MacAddr, &str)> {
    bytes_between(text, 6, ':', 16).map(|(address, rest)| (MacAddr::from_u64(address), rest))
}

/// Takes `n` numbers with `separator` between them off the front of `text`; only the low 8 bits of each count.
fn bytes_between(text: &str, n: usize, separator: char, radix: u32) -> Option<(u64, &str)> {
    let (mut all, mut rest) = scan_int(text, radix).map(|(first, rest)| (first & 0xff, rest))?;
    for _ in 1..n {
        let (byte, after) = scan_int(rest.strip_prefix(separator)?, radix)?;
        (all, rest) = (all << 8 | byte & 0xff, after);
    }
    Some((all, rest))
}

/// Takes a number off the front of `text` as C's `scanf` does: with a sign, and `0x` if it is hexadecimal. With the radix
/// 0, `0x` and `0` at its front choose the radix. A number too large for 64 bits wraps around, and so do negative ones.
pub fn scan_int(text: &str, radix: u32) -> Option<(u64, &str)> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).filter(|_| matches!(radix, 0 | 16));
    let radix = match radix {
        0 if hex.is_some() => 16,
        0 if digits.starts_with('0') => 8,
        0 => 10,
        _ => radix,
    };
    let digits = hex.unwrap_or(digits);
    let (number, rest) = digits.split_at(leading(digits, |c| c.is_digit(radix)).len());
    if number.is_empty() {
        return None;
    }
    let add = |n: u64, digit: u32| n.wrapping_mul(radix.into()).wrapping_add(digit.into());
    let n = number.chars().filter_map(|c| c.to_digit(radix)).fold(0, add);
    Some((if text.starts_with('-') { n.wrapping_neg() } else { n }, rest))
}

fn parse_mac(text: &str) -> Result<(u128, u128), MatchError> {
    let one = |s: &str| mac(s).map(u128::from).ok_or_else(|| MatchError::Mac(text.into()));
    match text.split_once('/') {
        Some((value, mask)) => Ok((one(value)?, one(mask)?)),
        None => Ok((one(text)?, (1 << 48) - 1)),
    }
}

/// Parses four decimal numbers separated by dots; only the low 8 bits of each count.
fn ipv4(text: &str) -> Option<u32> {
    match scan_ipv4(text)? {
        (address, "") => Some(address.into()),
        _ => None,
    }
}

/// Takes an IPv4 address off the front of `text`: four decimal numbers, of which only the low 8 bits count.
pub fn scan_ipv4(text: &str) -> Option<(Ipv4Addr, &str)> {
    bytes_between(text, 4, '.', 10).map(|(address, rest)| (Ipv4Addr::from(address as u32), rest))
}

fn parse_ipv4(text: &str) -> Result<(u128, u128), MatchError> {
    let bad = || MatchError::Ipv4(text.into());
    let Some((address, mask)) = text.split_once('/') else {
        return Ok((ipv4(text).ok_or_else(bad)?.into(), 0xffff_ffff));
    };
    let address = ipv4(address).ok_or_else(bad)?;
    let mask = match (ipv4(mask), prefix(mask, 32)) {
        (Some(mask), _) => mask,
        (None, Prefix::Bits(n)) => u32::MAX.checked_shl(32 - n).unwrap_or(0),
        // A mask with trailing text is no prefix length.
        (None, _) if ipv4(leading(mask, |c| c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).is_some() => {
            return Err(bad());
        }
        (None, Prefix::OutOfRange) => return Err(MatchError::Ipv4Prefix(text.into())),
        (None, Prefix::Junk | Prefix::None) => return Err(bad()),
    };
    Ok((address.into(), mask.into()))
}

fn parse_ipv6(text: &str) -> Result<(u128, u128), MatchError> {
    let bad = || MatchError::Ipv6(text.into());
    let one = |s: &str| s.parse::<Ipv6Addr>().map(u128::from).ok();
    let Some((address, mask)) = text.split_once('/') else {
        return Ok((one(text).ok_or_else(bad)?, u128::MAX));
    };
    let address = one(address).ok_or_else(bad)?;
    // A mask that begins with a digit is the length of a prefix.
    let mask = match (prefix(mask, 128), one(mask)) {
        (Prefix::Bits(n), _) => u128::MAX.checked_shl(128 - n).unwrap_or(0),
        (Prefix::OutOfRange, _) => return Err(MatchError::Ipv6Prefix(text.into())),
        (Prefix::Junk, _) => return Err(bad()),
        (Prefix::None, Some(mask)) => mask,
        (Prefix::None, None) => {
            let address = leading(mask, |c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
            let no_mask = !address.is_empty() && one(address).is_none();
            return Err(if no_mask { MatchError::Ipv6Mask(text.into()) } else { bad() });
        }
    };
    Ok((address, mask))
}

/// The leading characters for which `is` holds.
fn leading(text: &str, is: impl Fn(char) -> bool) -> &str {
    text.find(|c| !is(c)).map_or(text, |end| &text[..end])
}

/// The result of parsing a prefix length.
enum Prefix {
    Bits(u32),
    OutOfRange,
    /// A prefix length with trailing text.
    Junk,
    /// No number.
    None,
}

fn prefix(text: &str, max: u32) -> Prefix {
    match scan_int(text, 10) {
        None => Prefix::None,
        // The number has 32 bits; a larger one wraps around.
        Some((n, _)) if n as u32 > max => Prefix::OutOfRange,
        Some((n, "")) => Prefix::Bits(n as u32),
        Some(_) => Prefix::Junk,
    }
}

fn named_port(info: &FieldInfo, text: &str, ports: &dyn PortNames) -> Result<PortNo, MatchError> {
    parse_port(text, ports).ok_or_else(|| match info.format {
        Format::OfPort32 => MatchError::PortRange { text: text.into(), field: info.name },
        _ => MatchError::Port { text: text.into(), field: info.name },
    })
}

/// Parses a table: a number up to 255, or a name, optionally in double quotes.
pub fn parse_table(text: &str, names: &dyn PortNames) -> Option<u8> {
    if text.starts_with('-') && text.parse::<i32>().is_ok() {
        tracing::warn!(target: "ofp_table", "Negative value {text} is not a valid table number.");
        return None;
    }
    if let Ok(number) = text.parse::<i32>() {
        if number > 255 {
            tracing::warn!(target: "ofp_table", "table {number} is outside the supported range 0 through 255");
        }
        return u8::try_from(number).ok();
    }
    match text.strip_prefix('"') {
        Some(quoted) => names.table_number(&unquote(quoted.strip_suffix('"')?)),
        None => names.table_number(text),
    }
}

/// Parses a port: a decimal number (in the numbering of OpenFlow 1.0 or later), a reserved name in any case, or its own
/// name, optionally in double quotes.
pub fn parse_port(text: &str, ports: &dyn PortNames) -> Option<PortNo> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let n: u32 = digits.parse().ok()?;
        let port = match u16::try_from(n) {
            // Reserved numbers of OpenFlow 1.0 are 0xfff8 (IN_PORT) and above.
            Ok(n) => Some(PortNo::from_of10(n)),
            Err(_) => PortNo::from_of11(n),
        };
        warn_of_number(n, port);
        return port;
    }
    if text.starts_with('-') && text.parse::<i32>().is_ok() {
        tracing::warn!(target: "ofp_port", "Negative value {text} is not a valid port number.");
        return None;
    }
    if let Some(quoted) = text.strip_prefix('"') {
        return ports.number(&unquote(quoted.strip_suffix('"')?));
    }
    PortNo::from_reserved_name(text).or_else(|| ports.number(text))
}

/// Logs a warning for a number of a port that OpenFlow 1.1 and later write otherwise, or cannot have.
fn warn_of_number(n: u32, port: Option<PortNo>) {
    match port {
        None => tracing::warn!(
            target: "ofp_port",
            "port {n} is outside the supported range 0 through ffff or 0xffffff00 through 0xffffffff"
        ),
        Some(port) if (0xfff8..=0xffff).contains(&n) => tracing::warn!(
            target: "ofp_port",
            "referring to port {port} as {n} is deprecated for compatibility with OpenFlow 1.1 and later"
        ),
        Some(_) if (0xff00..0xfff8).contains(&n) => tracing::warn!(
            target: "ofp_port",
            "port {n} is a reserved OF1.0 port number that will be translated to {} when talking to an OF1.1 or later \
             controller",
            n + 0xffff_0000
        ),
        Some(_) => {}
    }
}

fn unquote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

/// Names with value and mask. Bit 0: a fragment; bit 1: not the first.
pub(crate) const FRAGS: [(&str, u128, u128); 5] =
    [("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)];

fn parse_frag(text: &str) -> Result<(u128, u128), MatchError> {
    FRAGS
        .iter()
        .find(|(name, ..)| name.eq_ignore_ascii_case(text))
        .map(|(_, value, mask)| (*value, *mask))
        .ok_or_else(|| MatchError::Frag(text.into()))
}

/// Takes a number of a packet type off the front of `text`, which may have spaces before it, and in and after one that is
/// hexadecimal.
fn packet_type_number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start();
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let Some(hex) = hex else { return scan_int(text, 0) };
    let (digits, rest) = hex.split_at(leading(hex, |c| c.is_ascii_hexdigit() || c == ' ').len());
    let digits: String = digits.split(' ').collect();
    // The prefix alone is 0.
    if digits.is_empty() { Some((0, rest)) } else { u64::from_str_radix(&digits, 16).ok().map(|n| (n, rest)) }
}

fn parse_packet_type(text: &str) -> Result<u128, MatchError> {
    let bad = |text: &str, what| MatchError::PacketType { text: text.into(), what };
    let half = |s| packet_type_number(s).filter(|(n, _)| *n <= 0xffff);
    let inner = text.strip_prefix('(').ok_or_else(|| bad(text, "missing '('"))?;
    let (namespace, rest) = half(inner).ok_or_else(|| bad(inner, "ns"))?;
    let rest = rest.strip_prefix(',').ok_or_else(|| bad(inner, "missing ','"))?;
    let (kind, end) = half(rest).ok_or_else(|| bad(rest, "ns_type"))?;
    if !end.starts_with(')') {
        return Err(bad(rest, "missing ')'"));
    }
    Ok(u128::from(namespace << 16 | kind))
}

/// Writes `value`, or `value/mask` if the mask is not the whole field, in the syntax of `set_field` and `learn`. A mask
/// of zeros is `ANY`.
pub fn format_value(field: Field, value: u128, mask: u128, ports: &dyn PortNames, out: &mut String) {
    let info = field.info();
    if mask == 0 {
        out.push_str("ANY");
        return;
    }
    let whole = mask & info.full_mask() == info.full_mask();
    let flag_mask = if whole { u32::MAX } else { mask as u32 };
    match info.format {
        Format::Decimal if whole => drop(write!(out, "{value}")),
        Format::Decimal => drop(write!(out, "{value}/{mask:#x}")),
        Format::Hex if whole && value == 0 => out.push('0'),
        Format::Hex if whole => drop(write!(out, "{value:#x}")),
        Format::Hex if value == 0 => drop(write!(out, "0/{mask:#x}")),
        Format::Hex => drop(write!(out, "{value:#x}/{mask:#x}")),
        Format::Mac => format_mac(value as u64, mask as u64, out),
        Format::Ipv4 => format_ipv4(value as u32, mask as u32, out),
        Format::Ipv6 => format_ipv6(value, mask, out),
        Format::OfPort => super::format_port(PortNo::from_of10(value as u16), ports, out),
        Format::OfPort32 => super::format_port(PortNo(value as u32), ports, out),
        Format::Frag => format_frag(value, mask, out),
        Format::CtState => flags::CT_STATE.format(value as u32, flag_mask, out),
        Format::TunFlags => flags::TUNNEL.format(value as u32 & flags::TUNNEL.visible, flag_mask, out),
        Format::TcpFlags => flags::TCP.format(value as u32, flag_mask, out),
        Format::PacketType => drop(write!(out, "({},{:#x})", value >> 16 & 0xffff, value & 0xffff)),
    }
}

fn format_frag(value: u128, mask: u128, out: &mut String) {
    let name = FRAGS.iter().find(|(_, v, m)| *v == value & mask && *m == mask & 3).map_or("<error>", |f| f.0);
    out.push_str(name);
}

pub(crate) fn format_mac(value: u64, mask: u64, out: &mut String) {
    let _ = write!(out, "{}", MacAddr::from_u64(value));
    if mask & 0xffff_ffff_ffff != 0xffff_ffff_ffff {
        let _ = write!(out, "/{}", MacAddr::from_u64(mask));
    }
}

pub(crate) fn format_ipv4(value: u32, mask: u32, out: &mut String) {
    let _ = write!(out, "{}", Ipv4Addr::from(value));
    if mask == u32::MAX {
        return;
    }
    let bits = mask.leading_ones();
    if mask.count_ones() == bits {
        let _ = write!(out, "/{bits}");
    } else {
        let _ = write!(out, "/{}", Ipv4Addr::from(mask));
    }
}

pub(crate) fn format_ipv6(value: u128, mask: u128, out: &mut String) {
    ipv6_address(value, out);
    if mask == u128::MAX {
        return;
    }
    let bits = mask.leading_ones();
    if mask.count_ones() == bits {
        let _ = write!(out, "/{bits}");
    } else {
        out.push('/');
        ipv6_address(mask, out);
    }
}

/// As the C library writes it: like RFC 5952, but `::a.b.c.d` if all but the last 32 bits are zero and the upper 16 of
/// these are not.
fn ipv6_address(address: u128, out: &mut String) {
    let _ = match u32::try_from(address) {
        Ok(low) if low > 0xffff => write!(out, "::{}", Ipv4Addr::from(low)),
        _ => write!(out, "{}", Ipv6Addr::from(address)),
    };
}
