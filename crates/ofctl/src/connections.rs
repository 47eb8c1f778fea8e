//! Commands that flush tracked connections.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{Target, open, transact_noreply};
use openflow::Message;
use openflow::ct_flush::{CtFlush, Direction};
use openflow::message::Options;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Flushes the connections of a zone.
pub fn ct_flush_zone(c: &Context, a: &[String]) -> Result {
    let zone = number(&a[1], u16::MAX.into()).ok_or_else(|| fatal(format!("invalid zone_id \"{}\"", a[1])))?;
    flush(c, &a[0], &Message::CtFlushZone(zone as u16))
}

/// Flushes all connections, or those that match the given tuples.
pub fn ct_flush(c: &Context, a: &[String]) -> Result {
    let wanted = parse(&a[1..]).map_err(fatal)?;
    flush(c, &a[0], &Message::CtFlush(Box::new(wanted)))
}

fn flush(c: &Context, switch: &str, message: &Message) -> Result {
    let mut conn = open(c, switch, Target::Mgmt)?;
    transact_noreply(c, &mut conn, message, Options::default())
}

/// Parses `[zone=N] [mark=N[/MASK]] [labels=N[/MASK]] [ORIGINAL [REPLY]]`.
fn parse(words: &[String]) -> std::result::Result<CtFlush, String> {
    parse_words(words).map_err(|e| format!("Failed to parse CT match: {e}"))
}

fn parse_words(words: &[String]) -> std::result::Result<CtFlush, String> {
    let mut flush = CtFlush::default();
    let mut words = words.iter().map(String::as_str).peekable();
    if let Some(zone) = words.peek().and_then(|word| word.strip_prefix("zone=")) {
        flush.zone = Some(scanned(zone).ok_or("failed to parse zone")?);
        words.next();
    }
    if let Some(mark) = words.peek().and_then(|word| word.strip_prefix("mark=")) {
        let wanted = masked(mark, u32::MAX.into()).ok_or("failed to parse mark")?;
        flush.mark = (wanted.0 as u32, wanted.1 as u32);
        words.next();
    }
    if let Some(labels) = words.peek().and_then(|word| word.strip_prefix("labels=")) {
        flush.labels = masked(labels, u128::MAX).ok_or("failed to parse labels")?;
        words.next();
    }
    for reply in [false, true] {
        if let Some(word) = words.next() {
            tuple(word, reply, &mut flush)?;
        }
    }
    if words.next().is_some() { Err("invalid arguments".into()) } else { Ok(flush) }
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
fn tuple(text: &str, reply: bool, flush: &mut CtFlush) -> std::result::Result<(), String> {
    let mut d = Direction::default();
    let mut rest = text;
    while let Some((key, value)) = flow::text::next_key_value(&mut rest) {
        let Some(value) = value.filter(|v| !v.is_empty()) else { return Err(format!("field {key} missing value")) };
        let failed = || format!("failed to parse field {key}");
        let port = |max: u16| number(value, max.into()).map(|n| n as u16).ok_or_else(failed);
        let [code, kind] = d.dst_port.to_be_bytes();
        match key {
            "ct_nw_src" | "ct_ipv6_src" | "ct_nw_dst" | "ct_ipv6_dst" => {
                let is_ipv4 = key.starts_with("ct_nw");
                if *flush.is_ipv4.get_or_insert(is_ipv4) != is_ipv4 {
                    return Err(format!("the L3 protocol does not match {value}"));
                }
                let place = if key.ends_with("src") { &mut d.src } else { &mut d.dst };
                if !place.is_unspecified() {
                    return Err(format!("{key} is set multiple times"));
                }
                *place = address(value, is_ipv4).ok_or_else(failed)?;
            }
            "ct_nw_proto" => flush.ip_proto = port(u8::MAX.into())? as u8,
            "ct_tp_src" => d.src_port = port(u16::MAX)?,
            "ct_tp_dst" => d.dst_port = port(u16::MAX)?,
            "icmp_type" | "icmp_code" | "icmp_id" if !flush.is_icmp() => return Err("invalid L4 fields".into()),
            "icmp_id" => d.src_port = port(u16::MAX)?,
            "icmp_type" => d.dst_port = u16::from_be_bytes([code, port(u8::MAX.into())? as u8]),
            "icmp_code" => d.dst_port = u16::from_be_bytes([port(u8::MAX.into())? as u8, kind]),
            _ => return Err(format!("invalid conntrack tuple field: {key}")),
        }
    }
    if flush.ip_proto == 0 && (d.src_port, d.dst_port) != (0, 0) {
        return Err("port is set without protocol".into());
    }
    *if reply { &mut flush.reply } else { &mut flush.original } = d;
    Ok(())
}

fn address(text: &str, is_ipv4: bool) -> Option<Ipv6Addr> {
    if is_ipv4 { text.parse().ok().map(|a: Ipv4Addr| a.to_ipv6_mapped()) } else { text.parse().ok() }
}

/// Parses a number of at most `max`, like strtol(3) with base 0.
fn number(text: &str, max: u64) -> Option<u64> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))?;
    (number <= max).then_some(number)
}

/// The lower bits of the decimal number at the front of a text, like scanf(3).
fn scanned(text: &str) -> Option<u16> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    let (n, any) = digits.fold((0u16, false), |(n, _), d| (n.wrapping_mul(10).wrapping_add((d - b'0').into()), true));
    any.then_some(if negative { n.wrapping_neg() } else { n })
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::{Version, message};

    fn parsed(words: &[&str]) -> std::result::Result<CtFlush, String> {
        parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    /// The bytes after the header of the message, in hexadecimal.
    fn hex(words: &[&str]) -> String {
        let message = Message::CtFlush(Box::new(parsed(words).expect("words that are right")));
        let bytes = message::encode(Version::V10, 1, &message);
        bytes[16..].iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn messages_equal_open_vswitchs() {
        // As Open vSwitch's ovs-ofctl sends it.
        for (words, bytes) in [
            (&[][..], "0000000000000000"),
            (&["", ""], "0000000000000000"),
            (&["zone=0x5"], "00000000000000000002000800000000"),
            (&["zone=-1"], "000000000000000000020008ffff0000"),
            (&["zone= 7x"], "00000000000000000002000800070000"),
            (&["zone=70000000000"], "0000000000000000000200083c000000"),
            (&["ct_nw_proto=6,,ct_tp_src=1"], "060000000000000000000010000000000002000800010000"),
            (&["ct_tp_src=0x10 ct_nw_proto=0x11"], "110000000000000000000010000000000002000800100000"),
            (&["ct_nw_proto=6", "ct_tp_src=3"], "060000000000000000010010000000000002000800030000"),
            (
                &["zone=5", "", "ct_nw_src=10.1.1.5"],
                "000000000000000000010020000000000000001400000000000000000000ffff0a010105000000000002000800050000",
            ),
            (
                &["zone=5", "mark=25/0xff", "labels=7"],
                "0000000000000000000200080005000000030008000000190004000800 0000ff\
                 000500140000000000000000000000000000000700000000",
            ),
            (&["mark=010"], "00000000000000000003000800000008"),
            (&["mark=0"], "00000000000000000003000800000000"),
            (&["mark=5/0"], "0000000000000000"),
            (&["mark=1,labels=2"], "00000000000000000003000800000001"),
            (&["mark=1/x"], "00000000000000000003000800000001"),
            (
                &["labels=5/2x"],
                "0000000000000000 00050014 00000000000000000000000000000005 00000000\
                 00060014 00000000000000000000000000000002 00000000",
            ),
            (
                &["mark=3", "ct_nw_src=10.1.1.5,ct_nw_proto=6,ct_tp_dst=9"],
                "06000000000000000000002800000000 0000001400000000000000000000ffff0a01010500000000 0003000800090000\
                 0003000800000003",
            ),
            (
                &["ct_ipv6_dst=::1", ""],
                "00000000000000000000002000000000000100140000000000000000000000000000000100000000",
            ),
            (
                &["ct_nw_proto=1,icmp_id=10,icmp_type=8,icmp_code=3"],
                "0100000000000000000000200000000000040008000a0000000500050800000000060005030000000001002000000000000400080000\
                 000000050005000000000006000500000000",
            ),
        ] {
            assert_eq!(hex(words), bytes.replace(' ', ""), "{words:?}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for (words, problem) in [
            (&["zone=x"][..], "failed to parse zone"),
            (&["zone="], "failed to parse zone"),
            (&["mark=0x1ffffffff"], "failed to parse mark"),
            (&["mark=-1"], "failed to parse mark"),
            (&["mark="], "failed to parse mark"),
            (&["labels=x"], "failed to parse labels"),
            (&["labels=0x1112233445566778899aabbccddeeff00ff"], "failed to parse labels"),
            // The words have an order.
            (&["labels=1", "mark=2"], "invalid conntrack tuple field: mark"),
            (&["mark=1", "zone=5"], "invalid conntrack tuple field: zone"),
            (&["ct_ipv6_dst=::1", "", "nothing"], "invalid arguments"),
            (&["zone=5", "zone=6"], "invalid conntrack tuple field: zone"),
            (&["ct_nw_src=1.1.1.1", "ct_ipv6_src=fe80::1"], "the L3 protocol does not match fe80::1"),
            (&["ct_nw_src=1.1.1.1,ct_ipv6_src=::1"], "the L3 protocol does not match ::1"),
            (&["ct_nw_src=1.1.1.1,ct_nw_src=1.1.1.2"], "ct_nw_src is set multiple times"),
            (&["ct_nw_src=1.2.3.4/24"], "failed to parse field ct_nw_src"),
            (&["icmp_id=10,ct_nw_proto=1"], "invalid L4 fields"),
            (&["ct_nw_proto=1,icmp_type=256"], "failed to parse field icmp_type"),
            (&["ct_nw_proto=tcp"], "failed to parse field ct_nw_proto"),
            (&["ct_tp_dst=-1"], "failed to parse field ct_tp_dst"),
            (&["ct_tp_dst="], "field ct_tp_dst missing value"),
            (&["foo"], "field foo missing value"),
            (&["=6"], "invalid conntrack tuple field: "),
            (&["ct_tp_src=5"], "port is set without protocol"),
        ] {
            assert_eq!(parsed(words), Err(format!("Failed to parse CT match: {problem}")), "{words:?}");
        }
    }
}
