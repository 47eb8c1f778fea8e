//! The text of [`Psample`]: `psample(group=7,cookie=0xa00000014)`.

use super::parse::{number, pairs};
use crate::psample::{Cookie, Psample};
use std::fmt::Write;

/// A number in hexadecimal digits, without leading zeros, as Open vSwitch writes it: zero is `0`.
fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        significant => format!("0x{significant}"),
    }
}

pub(super) fn write_psample(what: &Psample, out: &mut String) -> std::fmt::Result {
    write!(out, "psample(group={}", what.group)?;
    if !what.cookie.bytes().is_empty() {
        write!(out, ",cookie={}", hex(what.cookie.bytes()))?;
    }
    out.write_char(')')
}

/// Parses the text between the parentheses. A cookie has a byte for each two digits, which leading zeros include.
pub(super) fn parse_psample(body: &str) -> Option<Psample> {
    let (mut group, mut cookie) = (None, Cookie::default());
    pairs(body, |name, value| {
        match name {
            "group" if group.is_none() => group = Some(u32::try_from(number(value)?).ok()?),
            "cookie" if cookie == Cookie::default() => cookie = parse_cookie(value.strip_prefix("0x")?)?,
            _ => return None,
        }
        Some(())
    })?;
    Some(Psample { group: group?, cookie })
}

fn parse_cookie(digits: &str) -> Option<Cookie> {
    let digits = if digits.len().is_multiple_of(2) { digits.to_owned() } else { format!("0{digits}") };
    let nibble = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8]| Some((nibble(pair.first()?)? << 4 | nibble(pair.get(1)?)?) as u8);
    let bytes: Vec<u8> = digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>()?;
    Cookie::new(&bytes).filter(|cookie| *cookie != Cookie::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{format_actions, parse_actions};

    fn text(group: u32, cookie: &[u8]) -> String {
        let mut out = String::new();
        write_psample(&Psample { group, cookie: Cookie::new(cookie).unwrap() }, &mut out).unwrap();
        out
    }

    #[test]
    fn texts_of_samples() {
        assert_eq!(text(7, &[]), "psample(group=7)");
        assert_eq!(text(u32::MAX, &[0, 0, 0, 10, 0, 0, 0, 20]), "psample(group=4294967295,cookie=0xa00000014)");
        assert_eq!(text(0, &[0, 0]), "psample(group=0,cookie=0)");
    }

    #[test]
    fn texts_are_parsed() {
        let parsed = |text| parse_psample(text).map(|what| (what.group, what.cookie.bytes().to_vec()));
        assert_eq!(parsed("group=7"), Some((7, vec![])));
        assert_eq!(parsed("group=0x10,cookie=0xa00000014"), Some((16, vec![10, 0, 0, 0, 20])));
        assert_eq!(parsed("cookie=0x0001,group=1"), Some((1, vec![0, 1])));
        let numbers = ["group=", "group=4294967296", "group=1,cookie=", "group=1,cookie=01", "group=1,cookie=0xg"];
        for wrong in ["", "cookie=0x1", "group=1,x=2", "group=1,group=2"].into_iter().chain(numbers) {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(parsed(&format!("group=1,cookie=0x{}", "11".repeat(17))), None);
        let both =
            "psample(group=7,cookie=0x102030405060708090a0b0c0d0e0f10),sample(sample=50.0%,actions(psample(group=8)))";
        let actions = parse_actions(both, &|_| None).unwrap();
        assert_eq!(format_actions(&actions, 0, &|_| None), both);
    }
}
