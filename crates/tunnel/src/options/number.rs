//! Numbers as the C library's functions read them, since the option values of existing databases rely on that.
//!
//! Leading white space and one sign are allowed, the longest sequence of digits counts, and whatever follows it is
//! ignored unless a function says otherwise. Text without digits is 0.

/// A number, and the rest of the text behind it.
struct Scanned<'a> {
    is_negative: bool,
    /// `None` if the digits exceed 64 bits.
    magnitude: Option<u64>,
    rest: &'a str,
}

/// Scans a number of the base; base 0 means that a prefix (`0x`, `0b`, `0`) selects it.
fn scan(text: &str, base: u32) -> Scanned<'_> {
    let start = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (is_negative, unsigned) = match start.as_bytes().first() {
        Some(b'-') => (true, &start[1..]),
        Some(b'+') => (false, &start[1..]),
        _ => (false, start),
    };
    let prefixed = |prefix: [&str; 2], radix: u32| {
        let digits = prefix.iter().find_map(|prefix| unsigned.strip_prefix(prefix))?;
        digits.starts_with(|c: char| c.is_digit(radix)).then_some((radix, digits))
    };
    let (radix, digits) = match base {
        0 => prefixed(["0x", "0X"], 16)
            .or_else(|| prefixed(["0b", "0B"], 2))
            .unwrap_or((if unsigned.starts_with('0') { 8 } else { 10 }, unsigned)),
        16 => prefixed(["0x", "0X"], 16).unwrap_or((16, unsigned)),
        _ => (base, unsigned),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return Scanned { is_negative: false, magnitude: Some(0), rest: text };
    }
    Scanned { is_negative, magnitude: u64::from_str_radix(&digits[..end], radix).ok(), rest: &digits[end..] }
}

/// A signed number that saturates at 64 bits, and the rest of the text.
fn signed(text: &str, base: u32) -> (i64, &str) {
    let Scanned { is_negative, magnitude, rest } = scan(text, base);
    let magnitude = magnitude.unwrap_or(u64::MAX);
    let value = if is_negative {
        0i64.checked_sub_unsigned(magnitude).unwrap_or(i64::MIN)
    } else {
        i64::try_from(magnitude).unwrap_or(i64::MAX)
    };
    (value, rest)
}

/// An unsigned number of any base: too large ones become the largest, and a sign negates within 64 bits.
pub(super) fn unsigned(text: &str, base: u32) -> u64 {
    let Scanned { is_negative, magnitude, .. } = scan(text, base);
    match magnitude {
        Some(magnitude) if is_negative => magnitude.wrapping_neg(),
        Some(magnitude) => magnitude,
        None => u64::MAX,
    }
}

/// The low bits of a signed number. Its callers keep 32 bits at most.
pub(super) fn truncated(text: &str, base: u32) -> u32 {
    signed(text, base).0 as u32
}

/// The low 32 bits of a signed number of any base, if nothing follows it. Empty text is 0.
pub(super) fn whole(text: &str) -> Option<u32> {
    let (value, rest) = signed(text, 0);
    rest.is_empty().then_some(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_c_library() {
        for (text, value) in [
            ("", 0),
            ("x", 0),
            (" \t7x", 7),
            ("+7", 7),
            ("-1", u64::MAX),
            ("-0x10", 0u64.wrapping_sub(16)),
            ("010", 8),
            ("09", 0),
            ("0x", 0),
            ("0xfg", 15),
            ("0b11", 3),
            ("0b2", 0),
            ("18446744073709551616", u64::MAX),
            ("-18446744073709551616", u64::MAX),
            ("--1", 0),
        ] {
            assert_eq!(unsigned(text, 0), value, "{text}");
        }
        assert_eq!([unsigned("0x10", 10), unsigned("0x10", 16), unsigned("10", 16)], [0, 16, 16]);
        assert_eq!(truncated("99999999999999999999", 10), u32::MAX);
        assert_eq!(truncated("-99999999999999999999", 10), 0);
        assert_eq!(truncated("4294967301", 10), 5);
        assert_eq!(
            [whole(""), whole(" "), whole("32x"), whole("-4")],
            [Some(0), None, None, Some(0u32.wrapping_sub(4))]
        );
    }
}
