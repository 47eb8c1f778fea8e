//! `nat`, which only `ct` may hold: translates addresses and ports of a connection (ovs-actions(7); NXAST_NAT).

use super::Action;
use super::encode::nicira;
use super::parse::{ActionError, error};
use crate::error::OfpError;
use crate::print::ipv6_to_string;
use crate::wire::{Reader, Writer};
use flow::text::{next_key_value, scan_int, scan_ipv4};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

const ARGUMENT: OfpError = OfpError::BacBadArgument;

/// `NX_NAT_F_*`.
mod flag {
    pub(super) const SRC: u16 = 1;
    pub(super) const DST: u16 = 2;
    pub(super) const PERSISTENT: u16 = 4;
    pub(super) const HASH: u16 = 8;
    pub(super) const RANDOM: u16 = 16;
}

/// `NX_NAT_RANGE_*`: the bounds that are present.
mod range {
    pub(super) const IPV4_MIN: u16 = 1;
    pub(super) const IPV4_MAX: u16 = 2;
    pub(super) const IPV6_MIN: u16 = 4;
    pub(super) const IPV6_MAX: u16 = 8;
    pub(super) const PROTO_MIN: u16 = 16;
    pub(super) const PROTO_MAX: u16 = 32;
}

/// The address to translate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatKind {
    /// Source address and port.
    Src,
    /// Destination address and port.
    Dst,
}

impl NatKind {
    fn name(self) -> &'static str {
        match self {
            Self::Src => "src",
            Self::Dst => "dst",
        }
    }
}

/// The address range to choose from: the first address, and the last one if they differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatAddresses {
    /// The packet's own.
    None,
    /// IPv4.
    Ipv4(Ipv4Addr, Option<Ipv4Addr>),
    /// IPv6.
    Ipv6(Ipv6Addr, Option<Ipv6Addr>),
}

/// Parameters of `nat`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nat {
    /// The address of new connections to translate; `None` to apply the translation of an existing connection.
    pub kind: Option<NatKind>,
    /// Choose the same address after a restart.
    pub persistent: bool,
    /// Choose the port by a hash of addresses and the other port.
    pub hash: bool,
    /// Choose the port at random.
    pub random: bool,
    /// Addresses to choose from.
    pub addresses: NatAddresses,
    /// Port range to choose from: the first port, not 0, and the last one if they differ. Needs an address range.
    pub ports: Option<(u16, Option<u16>)>,
}

impl Default for Nat {
    /// The parameters of a bare `nat`.
    fn default() -> Self {
        Self { kind: None, persistent: false, hash: false, random: false, addresses: NatAddresses::None, ports: None }
    }
}

impl Nat {
    /// Returns true if no flag is set.
    pub(super) fn has_no_flags(&self) -> bool {
        self.flags() == 0
    }

    fn flags(&self) -> u16 {
        let kind = match self.kind {
            Some(NatKind::Src) => flag::SRC,
            Some(NatKind::Dst) => flag::DST,
            None => 0,
        };
        let bits = [(self.persistent, flag::PERSISTENT), (self.hash, flag::HASH), (self.random, flag::RANDOM)];
        bits.into_iter().filter(|(on, _)| *on).fold(kind, |flags, (_, bit)| flags | bit)
    }
}

/// Reads the body of NXAST_NAT.
pub(super) fn decode(mut r: Reader<'_>) -> Result<Action, OfpError> {
    r.skip(2)?;
    let (flags, present) = (r.u16()?, r.u16()?);
    let has = |bits| flags & bits == bits;
    if flags > 0x1f || has(flag::SRC | flag::DST) || has(flag::HASH | flag::RANDOM) {
        return Err(ARGUMENT);
    }
    let kind = match () {
        () if has(flag::SRC) => Some(NatKind::Src),
        () if has(flag::DST) => Some(NatKind::Dst),
        () => None,
    };
    let addresses = decode_addresses(&mut r, present)?;
    let ports = match (present & range::PROTO_MIN != 0, present & range::PROTO_MAX != 0) {
        (false, false) => None,
        (true, _) if addresses == NatAddresses::None => return Err(ARGUMENT),
        (true, to) => {
            let min = r.u16().ok().filter(|min| *min != 0).ok_or(ARGUMENT)?;
            let max = if to { Some(r.u16().ok().filter(|max| *max >= min).ok_or(ARGUMENT)?) } else { None };
            Some((min, max))
        }
        (false, true) => return Err(ARGUMENT),
    };
    let (persistent, hash, random) = (has(flag::PERSISTENT), has(flag::HASH), has(flag::RANDOM));
    Ok(Action::Nat(Box::new(Nat { kind, persistent, hash, random, addresses, ports })))
}

fn decode_addresses(r: &mut Reader<'_>, present: u16) -> Result<NatAddresses, OfpError> {
    let v4 = (present & range::IPV4_MIN != 0, present & range::IPV4_MAX != 0);
    let v6 = (present & range::IPV6_MIN != 0, present & range::IPV6_MAX != 0);
    match (v4, v6) {
        ((false, false), (false, false)) => Ok(NatAddresses::None),
        ((true, to), (false, false)) => {
            let min = r.u32().ok().filter(|min| *min != 0).ok_or(ARGUMENT)?;
            let max = if to { Some(r.u32().ok().filter(|max| *max >= min).ok_or(ARGUMENT)?) } else { None };
            Ok(NatAddresses::Ipv4(min.into(), max.map(Into::into)))
        }
        ((false, false), (true, to)) => {
            let min = r.uint(16).ok().filter(|min| *min != 0).ok_or(ARGUMENT)?;
            let max = if to { Some(r.uint(16).ok().filter(|max| *max >= min).ok_or(ARGUMENT)?) } else { None };
            Ok(NatAddresses::Ipv6(min.into(), max.map(Into::into)))
        }
        _ => Err(ARGUMENT),
    }
}

pub(super) fn encode(out: &mut Writer, nat: &Nat) {
    let both = |min, max, to: bool| min | if to { max } else { 0 };
    let addresses = match nat.addresses {
        NatAddresses::None => 0,
        NatAddresses::Ipv4(_, max) => both(range::IPV4_MIN, range::IPV4_MAX, max.is_some()),
        NatAddresses::Ipv6(_, max) => both(range::IPV6_MIN, range::IPV6_MAX, max.is_some()),
    };
    let ports = nat.ports.map_or(0, |(_, max)| both(range::PROTO_MIN, range::PROTO_MAX, max.is_some()));
    nicira(out, 36, |b| {
        b.zeros(2);
        b.put_u16(nat.flags());
        b.put_u16(addresses | ports);
        match nat.addresses {
            NatAddresses::None => {}
            NatAddresses::Ipv4(min, max) => [Some(min), max].into_iter().flatten().for_each(|ip| b.put_u32(ip.into())),
            NatAddresses::Ipv6(min, max) => {
                [Some(min), max].into_iter().flatten().for_each(|ip| b.put_uint(ip.into(), 16));
            }
        }
        if let Some((min, max)) = nat.ports {
            [Some(min), max].into_iter().flatten().for_each(|port| b.put_u16(port));
        }
    });
}

/// Parses `nat` or `nat(src=ADDRESSES:PORTS,FLAG...)`.
pub(super) fn parse(text: &str) -> Result<Action, ActionError> {
    let (mut nat, mut rest) = (Nat::default(), text);
    while let Some((key, value)) = next_key_value(&mut rest) {
        let value = value.unwrap_or("");
        let kind = match key {
            "src" => NatKind::Src,
            "dst" => NatKind::Dst,
            "persistent" => {
                nat.persistent = true;
                continue;
            }
            "hash" => {
                nat.hash = true;
                continue;
            }
            "random" => {
                nat.random = true;
                continue;
            }
            _ => return error(format!("invalid key \"{key}\" in \"nat\" argument")),
        };
        if nat.kind.is_some_and(|other| other != kind) {
            return error("May only specify one of \"src\" or \"dst\".");
        }
        nat.kind = Some(kind);
        if !value.is_empty() {
            (nat.addresses, nat.ports) = parse_range(value)?;
        }
    }
    if nat.kind.is_none() && !nat.has_no_flags() {
        return error("Flags allowed only with \"src\" or \"dst\".");
    }
    if nat.hash && nat.random {
        return error("Both \"hash\" and \"random\" are not allowed.");
    }
    Ok(Action::Nat(Box::new(nat)))
}

type Range = (NatAddresses, Option<(u16, Option<u16>)>);

/// Parses `ADDRESS[-ADDRESS][:PORT[-PORT]]`; an IPv6 address before a port needs brackets. A zero address means none, and
/// so does port 0; so does, like in Open vSwitch, text of the characters of an address that is none.
fn parse_range(text: &str) -> Result<Range, ActionError> {
    let invalid = || ActionError(format!("invalid nat range \"{text}\""));
    let garbage = |rest: &str| {
        let at = text.len() - rest.len();
        error(format!("garbage ({rest}) after nat range \"{text}\" (pos: {at})"))
    };
    let (addresses, rest) = if let Some((min, rest)) = scan_ipv4(text) {
        let (max, rest) = bound(rest, min, scan_ipv4).ok_or_else(invalid)?;
        (if min.is_unspecified() { NatAddresses::None } else { NatAddresses::Ipv4(min, max) }, rest)
    } else if let Some((min, rest)) = scan_ipv6(text) {
        let (max, rest) = bound(rest, min, scan_ipv6).ok_or_else(invalid)?;
        (if min.is_unspecified() { NatAddresses::None } else { NatAddresses::Ipv6(min, max) }, rest)
    } else {
        return match ipv6_characters(text).1 {
            "" => Ok((NatAddresses::None, None)),
            rest => garbage(rest),
        };
    };
    let Some(ports) = rest.strip_prefix(':') else {
        return if rest.is_empty() { Ok((addresses, None)) } else { garbage(rest) };
    };
    let (min, rest) = scan_port(ports).ok_or_else(invalid)?;
    let (max, rest) = bound(rest, min, scan_port).ok_or_else(invalid)?;
    if !rest.is_empty() {
        return garbage(rest);
    }
    if min == 0 && max.is_some() {
        return Err(invalid());
    }
    let ports = (min != 0 && addresses != NatAddresses::None).then_some((min, max));
    Ok((addresses, ports))
}

/// Takes the end of a range that begins at `min` off the front of `text`: no end if there is none, or if both are equal.
/// `None` if it is invalid or less than `min`.
fn bound<'a, T: PartialOrd>(
    text: &'a str,
    min: T,
    scan: impl Fn(&'a str) -> Option<(T, &'a str)>,
) -> Option<(Option<T>, &'a str)> {
    let Some(end) = text.strip_prefix('-') else { return Some((None, text)) };
    let (max, rest) = scan(end).filter(|(max, _)| *max >= min)?;
    Some((Some(max).filter(|max| *max > min), rest))
}

/// Takes a port off the front of `text`; a larger number wraps around.
fn scan_port(text: &str) -> Option<(u16, &str)> {
    scan_int(text, 10).map(|(port, rest)| (port as u16, rest))
}

/// Takes an IPv6 address off the front of `text`, with or without brackets.
fn scan_ipv6(text: &str) -> Option<(Ipv6Addr, &str)> {
    let (address, rest) = ipv6_characters(text);
    address.parse().ok().map(|address| (address, rest))
}

/// Splits `text` behind the characters of an IPv6 address, with or without brackets.
fn ipv6_characters(text: &str) -> (&str, &str) {
    const MAX: usize = 46;
    let end_of = |text: &str| {
        let end = text.find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, ':' | '.'))).unwrap_or(text.len());
        end.min(MAX)
    };
    if let Some(inner) = text.strip_prefix('[') {
        let (address, rest) = inner.split_at(end_of(inner));
        if let (Some(rest), false) = (rest.strip_prefix(']'), address.is_empty()) {
            return (address, rest);
        }
    }
    text.split_at(end_of(text))
}

pub(super) fn format(out: &mut String, nat: &Nat) {
    let Some(kind) = nat.kind else { return out.push_str("nat") };
    let _ = write!(out, "nat({}", kind.name());
    let to = |max: Option<String>| max.map_or(String::new(), |max| format!("-{max}"));
    match nat.addresses {
        NatAddresses::None => {
            out.push(')');
            return;
        }
        NatAddresses::Ipv4(min, max) => {
            let _ = write!(out, "={min}{}", to(max.filter(|max| *max != min).map(|max| max.to_string())));
        }
        NatAddresses::Ipv6(min, max) => {
            let max = max.filter(|max| *max != min);
            // Brackets separate the address from the port.
            let (open, close) = if nat.ports.is_some() { ("[", "]") } else { ("", "") };
            let [min, max] = [Some(min), max].map(|address| address.map(ipv6_to_string));
            let (min, max) = (min.unwrap_or_default(), max.map(|max| format!("{open}{max}{close}")));
            let _ = write!(out, "={open}{min}{close}{}", to(max));
        }
    }
    if let Some((min, max)) = nat.ports {
        let _ = write!(out, ":{min}{}", to(max.filter(|max| *max != min).map(|max| max.to_string())));
    }
    for (on, name) in [(nat.persistent, ",persistent"), (nat.hash, ",hash"), (nat.random, ",random")] {
        if on {
            out.push_str(name);
        }
    }
    out.push(')');
}
