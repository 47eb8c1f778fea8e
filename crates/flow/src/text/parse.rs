//! Parses `key=value` pairs into a match.

use super::PortNames;
use super::error::MatchError;
use super::value::{parse_u128, parse_value, scan_int};
use crate::extract::{ethertype, ipproto};
use crate::field::{Field, Loc};
use crate::matches::Match;
use crate::options::TunOption;

/// The kind of key that [`parse_field_into`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// A field, whole or in part.
    Field(Field),
    /// The short name of a protocol.
    Protocol,
    /// Neither; the match is unchanged. A caller that does not know the key either reports [`MatchError::MissingValue`]
    /// if its value is absent or empty, and [`MatchError::UnknownKeyword`] otherwise.
    Unknown,
}

/// Parses the text of a match: fields and protocol names, separated by commas or blanks.
pub fn parse_match(text: &str, ports: &dyn PortNames) -> Result<Match, MatchError> {
    let mut m = Match::ANY;
    let mut rest = text;
    while let Some((key, value)) = next_key_value(&mut rest) {
        if parse_field_into(&mut m, key, value, ports)? == Parsed::Unknown {
            return Err(match value {
                None | Some("") => MatchError::MissingValue(key.into()),
                Some(_) => MatchError::UnknownKeyword(key.into()),
            });
        }
    }
    Ok(m)
}

const BLANK: [char; 5] = [',', ' ', '\t', '\r', '\n'];

/// Takes the next `key`, `key=value`, `key:value` or `key(value)` from the front of `rest`. Commas and blanks inside
/// parentheses belong to the value.
pub fn next_key_value<'a>(rest: &mut &'a str) -> Option<(&'a str, Option<&'a str>)> {
    let text = rest.trim_start_matches(BLANK);
    if text.is_empty() {
        *rest = text;
        return None;
    }
    let key_end = text.find(|c| BLANK.contains(&c) || matches!(c, '=' | ':' | '(')).unwrap_or(text.len());
    let (key, tail) = text.split_at(key_end);
    let (start, bracketed) = match tail.as_bytes().first() {
        Some(b'=' | b':') => (1, false),
        Some(b'(') => (1, true),
        _ => {
            *rest = tail;
            return Some((key, None));
        }
    };
    let body = &tail[start..];
    let end = value_end(body, bracketed);
    let value = &body[..end];
    *rest = if bracketed { body[end..].strip_prefix(')').unwrap_or(&body[end..]) } else { &body[end..] };
    Some((key, Some(value)))
}

/// Returns the end of a value: a delimiter or, if it is `bracketed`, the closing parenthesis, outside of inner parentheses and quotes.
pub fn value_end(body: &str, bracketed: bool) -> usize {
    let mut depth = 0usize;
    let mut quoted = false;
    for (i, c) in body.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' => depth += 1,
            ')' if depth == 0 && bracketed => return i,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && !bracketed && BLANK.contains(&c) => return i,
            _ => {}
        }
    }
    body.len()
}

/// The Ethernet type and IP protocol of a protocol's short name.
pub fn parse_protocol(name: &str) -> Option<(Option<u16>, Option<u8>)> {
    use ethertype::*;
    use ipproto::{ICMP, ICMPV6, SCTP, TCP, UDP};
    Some(match name {
        "eth" => (None, None),
        "ip" => (Some(IPV4), None),
        "ipv6" | "ip6" => (Some(IPV6), None),
        "icmp" => (Some(IPV4), Some(ICMP)),
        "icmp6" => (Some(IPV6), Some(ICMPV6)),
        "tcp" => (Some(IPV4), Some(TCP)),
        "tcp6" => (Some(IPV6), Some(TCP)),
        "udp" => (Some(IPV4), Some(UDP)),
        "udp6" => (Some(IPV6), Some(UDP)),
        "sctp" => (Some(IPV4), Some(SCTP)),
        "sctp6" => (Some(IPV6), Some(SCTP)),
        "arp" => (Some(ARP), None),
        "rarp" => (Some(RARP), None),
        "mpls" => (Some(MPLS), None),
        "mplsm" => (Some(MPLS_MCAST), None),
        _ => return None,
    })
}

/// Adds one `key=value` (or `key`) to a match. A match without a packet type already matches Ethernet packets, so `eth`
/// and `packet_type=(0,0)` only remove the packet type that the match had.
pub fn parse_field_into(
    m: &mut Match,
    name: &str,
    value: Option<&str>,
    ports: &dyn PortNames,
) -> Result<Parsed, MatchError> {
    if let Some((eth_type, proto)) = parse_protocol(name) {
        match eth_type {
            Some(eth_type) => m.set(Field::EthType, eth_type.into()),
            None => m.clear(Field::PacketType),
        }
        if let Some(proto) = proto {
            m.set(Field::IpProto, proto.into());
        }
        return Ok(Parsed::Protocol);
    }
    if let Some(field) = field_by_name(name) {
        let text = value.filter(|v| !v.is_empty()).unwrap_or("0/0");
        if let Loc::TunMetadata(_) = field.info().loc {
            return set_option(m, TunOption::parse(field, text)?);
        }
        let (value, mask) = parse_value(field, text, ports)?;
        // Open vSwitch cuts other fields to their width, but no switch takes such a label.
        if field == Field::Ipv6Label && !field.info().is_valid(value) {
            return Err(MatchError::NotValid { text: text.into(), field: field.info().name });
        }
        m.set_masked(field, value, mask);
        if field == Field::PacketType && value == 0 {
            m.clear(field);
        }
        return Ok(Parsed::Field(field));
    }
    if name.contains('[') {
        return parse_bits(m, name, value.unwrap_or(""));
    }
    Ok(Parsed::Unknown)
}

fn set_option(m: &mut Match, option: TunOption) -> Result<Parsed, MatchError> {
    let field = option.field();
    if m.set_option(option) { Ok(Parsed::Field(field)) } else { Err(MatchError::Twice { field: field.name() }) }
}

/// A field by name or alias. OXM and NXM names are only accepted with `[`.
pub(crate) fn field_by_name(name: &str) -> Option<Field> {
    Field::from_name(name).filter(|f| f.info().name == name || f.info().alias == name)
}

/// `field[start..end]=value`.
fn parse_bits(m: &mut Match, name: &str, value: &str) -> Result<Parsed, MatchError> {
    let bad = |what: String| MatchError::Subfield { text: name.into(), what };
    let whole = name.find('[').and_then(|open| name[open..].find(']').map(|n| &name[..=open + n])).unwrap_or(name);
    let (field, start, n) = parse_subfield(whole).map_err(bad)?;
    if whole.len() < name.len() {
        return Err(MatchError::AfterSubfield);
    }
    if let Loc::TunMetadata(_) = field.info().loc {
        let number = TunOption::parse(field, value).ok().filter(|option| option.mask().is_none());
        let number = number.ok_or_else(|| bad(format!("cannot parse integer value: {value}")))?;
        let needed = number.value().len() * 8 - number.value().first().map_or(0, |byte| byte.leading_zeros() as usize);
        if needed > n as usize {
            return Err(bad(format!("value {value} does not fit into {n} bits")));
        }
        let option = TunOption::of_bits(field, start as u16, n as u16, number.value());
        return option.map_or_else(|| Err(MatchError::AfterSubfield), |option| set_option(m, option));
    }
    let bits = parse_u128(value).ok_or_else(|| bad(format!("cannot parse integer value: {value}")))?;
    let mask = if n >= 128 { u128::MAX } else { (1 << n) - 1 };
    if bits > mask {
        return Err(bad(format!("value {bits:#x} does not fit into {n} bits")));
    }
    let (old, old_mask) = m.get(field);
    m.set_masked(field, old & !(mask << start) | bits << start, old_mask | mask << start);
    Ok(Parsed::Field(field))
}

/// Parses `field[]`, `field[bit]` or `field[start..end]`: returns the field, the first bit and the number of bits. The
/// error does not include the text itself.
pub fn parse_subfield(text: &str) -> Result<(Field, u32, u32), String> {
    let (name, range) = text.split_once('[').ok_or_else(|| "missing [ looking for field name".to_string())?;
    let field = Field::from_name(name).ok_or_else(|| {
        let word = name.split('-').next().unwrap_or(name);
        format!("unknown field `{word}'")
    })?;
    let range = range.strip_suffix(']').ok_or(RANGE_SYNTAX)?;
    let (first, n_bits) = parse_bit_range(range, field.info().n_bits.into())?;
    Ok((field, first, n_bits))
}

const RANGE_SYNTAX: &str = "syntax error expecting [] or [<bit>] or [<start>..<end>]";

/// Parses the text within the brackets of a subfield of a field with `width` bits: returns the first bit and the number of
/// bits.
pub fn parse_bit_range(range: &str, width: u32) -> Result<(u32, u32), String> {
    if range.is_empty() {
        return Ok((0, width));
    }
    // Numbers have 32 bits; larger ones wrap around.
    let bit = |s: &str| match scan_int(s, 10) {
        Some((bit, "")) => Ok(bit as i32),
        _ => Err(RANGE_SYNTAX),
    };
    let (start, end) = range.split_once("..").unwrap_or((range, range));
    let (start, end) = (bit(start)?, bit(end)?);
    if start > end {
        return Err(format!("starting bit {start} is after ending bit {end}"));
    }
    let within = |bit: i32| u32::try_from(bit).ok().filter(|bit| *bit < width);
    let too_far = |which, bit| format!("{which} bit {bit} is not valid because field is only {width} bits wide");
    let first = within(start).ok_or_else(|| too_far("starting", start))?;
    let last = within(end).ok_or_else(|| too_far("ending", end))?;
    Ok((first, last - first + 1))
}
