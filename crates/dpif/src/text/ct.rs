//! `ct(...)` in the syntax of Open vSwitch's datapath actions.

use super::key::hex;
use super::parse::closing;
use conntrack::key::{ip_of, number_of};
use conntrack::{Action as Ct, Commit, Helper, Nat, NatKind};
use std::fmt::{Display, Write};
use std::net::IpAddr;

/// Maximum length of the name of a helper or of a timeout policy.
const NAME_MAX: usize = 31;

pub(super) fn write_ct(ct: &Ct, out: &mut String) -> std::fmt::Result {
    let mut parts = Vec::new();
    match ct.commit {
        Some(Commit::Plain) => parts.push("commit".to_owned()),
        Some(Commit::Force) => parts.push("force_commit".to_owned()),
        None => {}
    }
    if ct.zone != 0 {
        parts.push(format!("zone={}", ct.zone));
    }
    if let Some((value, mask)) = ct.mark {
        // The mask is always written.
        parts.push(format!("mark={}/{}", hex(value.into()), hex(mask.into())));
    }
    match ct.label {
        Some((value, u128::MAX)) => parts.push(format!("label={}", hex(value))),
        Some((value, mask)) => parts.push(format!("label={}/{}", hex(value), hex(mask))),
        None => {}
    }
    parts.extend(ct.helper.iter().map(|helper| format!("helper={}", helper.name())));
    parts.extend(ct.timeout.iter().map(|name| format!("timeout={name}")));
    parts.extend(ct.nat.iter().map(nat_text));
    if parts.is_empty() { out.write_str("ct") } else { write!(out, "ct({})", parts.join(",")) }
}

fn nat_text(nat: &Nat) -> String {
    let mut text = match nat.kind {
        None => return "nat".to_owned(),
        Some(NatKind::Src) => "nat(src".to_owned(),
        Some(NatKind::Dst) => "nat(dst".to_owned(),
    };
    // Without addresses, there are no other parameters.
    if let Some((min, max, is_v6)) = nat.addresses {
        text.push('=');
        let [min, max] = [min, max].map(|number| match ip_of(number, is_v6) {
            // Brackets separate the address from the port.
            IpAddr::V6(ip) if nat.ports.is_some() => format!("[{ip}]"),
            ip => ip.to_string(),
        });
        text += &range(min, max);
        if let Some((min, max)) = nat.ports {
            text.push(':');
            text += &range(min, max);
        }
        for (on, name) in [(nat.persistent, ",persistent"), (nat.hash, ",hash"), (nat.random, ",random")] {
            if on {
                text.push_str(name);
            }
        }
    }
    text.push(')');
    text
}

fn range<T: Display + PartialEq>(min: T, max: T) -> String {
    if min == max { min.to_string() } else { format!("{min}-{max}") }
}

/// Parses the content of the parentheses of `ct`.
pub(super) fn parse_ct(body: &str) -> Option<Ct> {
    let mut ct = Ct::default();
    each(body, |name, value, inside| {
        match (name, value, inside) {
            ("commit", None, None) if ct.commit.is_none() => ct.commit = Some(Commit::Plain),
            ("force_commit", None, None) if ct.commit.is_none() => ct.commit = Some(Commit::Force),
            ("zone", Some(value), None) => ct.zone = decimal(value)?,
            ("mark", Some(value), None) => {
                let (value, mask) = masked(value, u32::MAX.into())?;
                let (value, mask) = (u32::try_from(value).ok()?, u32::try_from(mask).ok()?);
                ct.mark = (mask != 0).then_some((value, mask));
            }
            ("label", Some(value), None) => {
                ct.label = Some(masked(value, u128::MAX)?).filter(|(_, mask)| *mask != 0);
            }
            ("helper", Some(value), None) => ct.helper = Some(Helper::named(value)?),
            ("timeout", Some(value), None) => ct.timeout = Some(name_of(value)?.into()),
            ("nat", None, inside) => ct.nat = Some(parse_nat(inside.unwrap_or(""))?),
            _ => return None,
        }
        Some(())
    })?;
    Some(ct)
}

fn parse_nat(body: &str) -> Option<Nat> {
    let mut nat = Nat::default();
    each(body, |name, value, inside| {
        match (name, inside) {
            ("src" | "dst", None) if nat.kind.is_none() => {
                nat.kind = Some(if name == "src" { NatKind::Src } else { NatKind::Dst });
                if let Some(value) = value {
                    (nat.addresses, nat.ports) = parse_range(value)?;
                }
            }
            ("persistent", None) if value.is_none() => nat.persistent = true,
            ("hash", None) if value.is_none() => nat.hash = true,
            ("random", None) if value.is_none() => nat.random = true,
            _ => return None,
        }
        Some(())
    })?;
    (!(nat.hash && nat.random)).then_some(nat)
}

type Range = (Option<([u64; 2], [u64; 2], bool)>, Option<(u16, u16)>);

/// Parses `ADDRESS[-ADDRESS][:PORT[-PORT]]`; an IPv6 address is in brackets if a port follows.
fn parse_range(text: &str) -> Option<Range> {
    let (addresses, ports) = match text.rfind(']') {
        Some(end) => {
            let (inside, rest) = text.split_at(end + 1);
            (inside.to_owned(), if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None if text.matches(':').count() > 1 => (text.to_owned(), None),
        None => match text.split_once(':') {
            Some((addresses, ports)) => (addresses.to_owned(), Some(ports)),
            None => (text.to_owned(), None),
        },
    };
    let address_of = |address: &str| match address.strip_prefix('[') {
        Some(inside) => inside.strip_suffix(']').map(str::to_owned),
        None => Some(address.to_owned()),
    };
    let (min, max) = match addresses.split_once('-') {
        Some((min, max)) => (address_of(min)?, Some(address_of(max)?)),
        None => (address_of(&addresses)?, None),
    };
    let min = min.parse::<IpAddr>().ok()?;
    let max = max.map_or(Some(min), |max| max.parse().ok().filter(|max: &IpAddr| max.is_ipv6() == min.is_ipv6()))?;
    let addresses = (min <= max).then(|| (number_of(min), number_of(max), min.is_ipv6()))?;
    let ports = match ports {
        Some(ports) => {
            let (min, max) = ports.split_once('-').unwrap_or((ports, ports));
            let (min, max) = (decimal(min)?, decimal(max)?);
            if min > max {
                return None;
            }
            Some((min, max)).filter(|_| min != 0)
        }
        None => None,
    };
    Some((Some(addresses), ports))
}

fn decimal(text: &str) -> Option<u16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses `VALUE[/MASK]`, both hexadecimal with optional `0x`. Bits of the value outside of the mask are cleared.
fn masked(text: &str, full: u128) -> Option<(u128, u128)> {
    let number = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u128::from_str_radix(digits, 16).ok())?
    };
    match text.split_once('/') {
        Some((value, mask)) => number(mask).and_then(|mask| Some((number(value)? & mask, mask))),
        None => Some((number(text)?, full)),
    }
}

fn name_of(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= NAME_MAX).then(|| text.to_owned())
}

/// Calls `f` with each part of a list, split into `name`, `name=value` or `name(inside)`.
fn each<'a>(list: &'a str, mut f: impl FnMut(&'a str, Option<&'a str>, Option<&'a str>) -> Option<()>) -> Option<()> {
    let mut rest = list;
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if rest.is_empty() {
            return Some(());
        }
        let end = rest.find([',', ' ', '=', '(']).unwrap_or(rest.len());
        let (name, tail) = rest.split_at(end);
        if let Some(inside) = tail.strip_prefix('(') {
            let end = closing(inside)?;
            f(name, None, Some(&inside[..end]))?;
            rest = &inside[end + 1..];
        } else if let Some(value) = tail.strip_prefix('=') {
            let end = value.find([',', ' ']).unwrap_or(value.len());
            f(name, Some(&value[..end]), None)?;
            rest = &value[end..];
        } else {
            f(name, None, None)?;
            rest = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> Option<String> {
        let mut out = String::new();
        write_ct(&parse_ct(text)?, &mut out).expect("a string takes all");
        Some(out)
    }

    #[test]
    fn ct_actions_round_trip() {
        for text in [
            "commit",
            "force_commit,zone=5",
            "mark=0x5/0xffffffff",
            "mark=0x10/0xff,label=0x1",
            "label=0x10000000000000000/0xffffffffffffffff0000000000000000",
            "commit,helper=ftp,timeout=abc,nat",
            "nat(src)",
            "nat(src=1.2.3.4)",
            "nat(src=1.2.3.4-1.2.3.5:1-5,random)",
            "nat(dst=1.2.3.4:80,hash)",
            "nat(src=fe80::1)",
            "nat(dst=[fe80::1]:5,hash)",
            "nat(dst=[fe80::1]-[fe80::2]:5-9)",
            "nat(dst=fe80::1-fe80::2)",
            "force_commit,zone=9,mark=0x1/0xffffffff,label=0x2,helper=ftp,nat(src=10.1.1.1,persistent,hash)",
        ] {
            assert_eq!(again(text).as_deref(), Some(format!("ct({text})").as_str()));
        }
    }

    #[test]
    fn equivalent_texts_parse_to_equal_actions() {
        for (text, want) in [
            ("", "ct"),
            ("zone=0", "ct"),
            ("mark=0/0,label=0/0", "ct"),
            ("mark=5", "ct(mark=0x5/0xffffffff)"),
            ("mark=5/15", "ct(mark=0x5/0x15)"),
            ("nat()", "ct(nat)"),
            ("nat(persistent)", "ct(nat)"),
            ("nat(src,random)", "ct(nat(src))"),
            ("nat(src=1.2.3.4-1.2.3.4:5-5)", "ct(nat(src=1.2.3.4:5))"),
            ("nat(src=1.2.3.4:0-5)", "ct(nat(src=1.2.3.4))"),
            ("nat(dst=1.1.1.1) mark=1/1,,zone=4 commit", "ct(commit,zone=4,mark=0x1/0x1,nat(dst=1.1.1.1))"),
        ] {
            assert_eq!(again(text).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn invalid_texts_are_rejected() {
        for text in [
            "bogus",
            "commit,force_commit",
            "commit=1",
            "zone",
            "zone=65536",
            "zone=0x5",
            "mark=",
            "mark=0x1ffffffff",
            "mark=+1",
            "label=0x100000000000000000000000000000000",
            "helper=",
            "helper=a-name-that-is-longer-than-any-can-be",
            "eventmask=0x5",
            "nat(src,dst)",
            "nat(src=)",
            "nat(src=:5-6)",
            "nat(src=1.2.3.5-1.2.3.4)",
            "nat(src=1.2.3.4-fe80::1)",
            "nat(src=1.2.3.4:70000)",
            "nat(src=1.2.3.4:9-5)",
            "nat(dst=[fe80::1-fe80::2]:5)",
            "nat(dst=[fe80::1]5)",
            "nat(hash,random,src=1.2.3.4)",
            "nat(src=1.2.3.4",
        ] {
            assert_eq!(again(text), None, "{text}");
        }
    }
}
