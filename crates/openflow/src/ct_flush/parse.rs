//! Flushes as text, as `ovs-ofctl ct-flush` and `dpctl/flush-conntrack` take them.

use super::{CtFlush, Direction};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Errors in the text of a flush. The messages are those of Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum CtFlushError {
    #[error("failed to parse zone")]
    Zone,
    #[error("failed to parse mark")]
    Mark,
    #[error("failed to parse labels")]
    Labels,
    #[error("invalid arguments")]
    TooManyWords,
    #[error("field {0} missing value")]
    NoValue(String),
    #[error("failed to parse field {0}")]
    Value(String),
    #[error("invalid conntrack tuple field: {0}")]
    Unknown(String),
    #[error("the L3 protocol does not match {0}")]
    Family(String),
    #[error("{0} is set multiple times")]
    Twice(String),
    #[error("invalid L4 fields")]
    NotIcmp,
    #[error("port is set without protocol")]
    NoProtocol,
}

impl CtFlush {
    /// Parses `[zone=N] [mark=N[/MASK]] [labels=N[/MASK]] [ORIGINAL [REPLY]]`.
    pub fn parse(words: &[String]) -> Result<Self, CtFlushError> {
        let mut flush = Self::default();
        let mut words = words.iter().map(String::as_str).peekable();
        if let Some(zone) = words.peek().and_then(|word| word.strip_prefix("zone=")) {
            flush.zone = Some(leading_u16(zone).ok_or(CtFlushError::Zone)?);
            words.next();
        }
        if let Some(mark) = words.peek().and_then(|word| word.strip_prefix("mark=")) {
            let wanted = masked(mark, u32::MAX.into()).ok_or(CtFlushError::Mark)?;
            flush.mark = (wanted.0 as u32, wanted.1 as u32);
            words.next();
        }
        if let Some(labels) = words.peek().and_then(|word| word.strip_prefix("labels=")) {
            flush.labels = masked(labels, u128::MAX).ok_or(CtFlushError::Labels)?;
            words.next();
        }
        for reply in [false, true] {
            if let Some(word) = words.next() {
                parse_direction(word, reply, &mut flush)?;
            }
        }
        if words.next().is_some() { Err(CtFlushError::TooManyWords) } else { Ok(flush) }
    }
}

/// Parses `VALUE` or `VALUE/MASK` with numbers of at most `max`; without a mask the value is exact.
fn masked(text: &str, max: u128) -> Option<(u128, u128)> {
    let (value, rest) = leading_number(text, max)?;
    let mask = rest.strip_prefix('/').and_then(|mask| leading_number(mask, max));
    Some((value, mask.map_or(max, |(mask, _)| mask)))
}

/// Parses the number at the front of a text, decimal, octal or hexadecimal; returns it and the rest.
fn leading_number(text: &str, max: u128) -> Option<(u128, &str)> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, if text.starts_with('0') { 8 } else { 10 }),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let add = |n: u128, c: char| n.checked_mul(radix.into())?.checked_add(c.to_digit(radix)?.into());
    let number = digits.chars().try_fold(0, add)?;
    (number <= max).then_some((number, rest))
}

/// Parses addresses and ports of one direction.
fn parse_direction(text: &str, is_reply: bool, flush: &mut CtFlush) -> Result<(), CtFlushError> {
    let mut d = Direction::default();
    let mut rest = text;
    while let Some((key, value)) = flow::text::next_key_value(&mut rest) {
        let Some(value) = value.filter(|v| !v.is_empty()) else { return Err(CtFlushError::NoValue(key.to_owned())) };
        let failed = || CtFlushError::Value(key.to_owned());
        let port = |max: u16| whole_number(value, max.into()).map(|n| n as u16).ok_or_else(failed);
        let [code, kind] = d.dst_port.to_be_bytes();
        match key {
            "ct_nw_src" | "ct_ipv6_src" | "ct_nw_dst" | "ct_ipv6_dst" => {
                let is_ipv4 = key.starts_with("ct_nw");
                if *flush.is_ipv4.get_or_insert(is_ipv4) != is_ipv4 {
                    return Err(CtFlushError::Family(value.to_owned()));
                }
                let address = if key.ends_with("src") { &mut d.src } else { &mut d.dst };
                if !address.is_unspecified() {
                    return Err(CtFlushError::Twice(key.to_owned()));
                }
                *address = parse_address(value, is_ipv4).ok_or_else(failed)?;
            }
            "ct_nw_proto" => flush.ip_proto = port(u8::MAX.into())? as u8,
            "ct_tp_src" => d.src_port = port(u16::MAX)?,
            "ct_tp_dst" => d.dst_port = port(u16::MAX)?,
            "icmp_type" | "icmp_code" | "icmp_id" if !flush.is_icmp() => return Err(CtFlushError::NotIcmp),
            "icmp_id" => d.src_port = port(u16::MAX)?,
            "icmp_type" => d.dst_port = u16::from_be_bytes([code, port(u8::MAX.into())? as u8]),
            "icmp_code" => d.dst_port = u16::from_be_bytes([port(u8::MAX.into())? as u8, kind]),
            _ => return Err(CtFlushError::Unknown(key.to_owned())),
        }
    }
    if flush.ip_proto == 0 && (d.src_port, d.dst_port) != (0, 0) {
        return Err(CtFlushError::NoProtocol);
    }
    *if is_reply { &mut flush.reply } else { &mut flush.original } = d;
    Ok(())
}

fn parse_address(text: &str, is_ipv4: bool) -> Option<Ipv6Addr> {
    if is_ipv4 { text.parse().ok().map(|a: Ipv4Addr| a.to_ipv6_mapped()) } else { text.parse().ok() }
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b')
}

/// Parses a text that is a number of at most `max`, like strtol(3) with base 0.
pub fn whole_number(text: &str, max: u64) -> Option<u64> {
    let text = trim_start(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))?;
    (number <= max).then_some(number)
}

/// The lower 32 bits of the decimal number at the front of a text, like scanf(3).
pub fn leading_u32(text: &str) -> Option<u32> {
    let text = trim_start(text);
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    let (n, any) = digits.fold((0u32, false), |(n, _), d| (n.wrapping_mul(10).wrapping_add((d - b'0').into()), true));
    any.then_some(if negative { n.wrapping_neg() } else { n })
}

/// The lower 16 bits of it.
pub fn leading_u16(text: &str) -> Option<u16> {
    leading_u32(text).map(|n| n as u16)
}
