//! Fields whose bits have names: `+trk-new` for single bits, `trk|new` for the whole field.

use super::error::MatchError;
use std::fmt::Write;

/// The bits of a field and their names.
pub(crate) struct Flags {
    /// The name of the flags in error messages.
    pub(crate) what: &'static str,
    /// Bits that are allowed in input.
    pub(crate) allowed: u32,
    /// The mask of a value without one.
    pub(crate) exact: u32,
    /// Mask bits that count as an exact match in output.
    pub(crate) whole: u32,
    /// Name by bit.
    pub(crate) names: &'static [(u32, &'static str)],
}

/// `ct_state`.
pub(crate) static CT_STATE: Flags = Flags {
    what: "ct_state",
    allowed: 0xff,
    exact: 0xff,
    whole: 0xff,
    names: &[
        (0x01, "new"),
        (0x02, "est"),
        (0x04, "rel"),
        (0x08, "rpl"),
        (0x10, "inv"),
        (0x20, "trk"),
        (0x40, "snat"),
        (0x80, "dnat"),
    ],
};

/// `tcp_flags`.
pub(crate) static TCP: Flags = Flags {
    what: "TCP",
    allowed: 0xfff,
    exact: 0xffff,
    whole: 0xfff,
    names: &[
        (0x001, "fin"),
        (0x002, "syn"),
        (0x004, "rst"),
        (0x008, "psh"),
        (0x010, "ack"),
        (0x020, "urg"),
        (0x040, "ece"),
        (0x080, "cwr"),
        (0x100, "ns"),
        (0x200, "[200]"),
        (0x400, "[400]"),
        (0x800, "[800]"),
    ],
};

/// `tun_flags`.
pub(crate) static TUNNEL: Flags = Flags { what: "tunnel", allowed: 1, exact: 1, whole: 0xffff, names: &[(0x1, "oam")] };

impl Flags {
    fn bit(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
    }

    fn unknown(&self, text: &str) -> MatchError {
        MatchError::Flag { text: text.into(), what: self.what }
    }

    /// Value and mask of `+a-b`, `a|b`, a number, or `number/number`.
    pub(crate) fn parse(&self, text: &str) -> Result<(u32, u32), MatchError> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return self.parse_number(text);
        }
        if text.starts_with(['+', '-']) { self.parse_signed(text) } else { self.parse_list(text) }
    }

    fn parse_number(&self, text: &str) -> Result<(u32, u32), MatchError> {
        // Bits beyond 32 are without effect.
        let number = |s| super::value::parse_u128(s).map(|n| n as u32);
        let parsed = match text.split_once('/') {
            Some((value, mask)) => {
                let mask = super::value::leading_u64(mask).map(|n| n as u32);
                number(value).zip(mask.filter(|mask| mask & !self.allowed == 0))
            }
            None => number(text).map(|v| (v, self.exact)),
        };
        match parsed {
            Some((value, mask)) if value & !self.allowed == 0 => Ok((value & mask, mask)),
            _ => Err(self.unknown(text)),
        }
    }

    fn parse_signed(&self, text: &str) -> Result<(u32, u32), MatchError> {
        let (mut value, mut mask) = (0, 0);
        let mut rest = text;
        while let Some(sign @ (b'+' | b'-')) = rest.bytes().next() {
            rest = &rest[1..];
            let end = rest.find(['+', '-']).unwrap_or(rest.len());
            let (name, tail) = rest.split_at(end);
            let bit = self.bit(name).ok_or_else(|| self.unknown(rest))?;
            if mask & bit != 0 {
                return Err(MatchError::FlagTwice { text: name.into(), what: self.what });
            }
            mask |= bit;
            if sign == b'+' {
                value |= bit;
            }
            rest = tail;
        }
        Ok((value, mask))
    }

    fn parse_list(&self, text: &str) -> Result<(u32, u32), MatchError> {
        let mut value = 0;
        for name in text.strip_suffix('|').unwrap_or(text).split('|') {
            value |= self.bit(name).ok_or_else(|| self.unknown(text))?;
        }
        Ok((value, self.exact))
    }

    /// Writes `+a-b` if some bits are masked, `a|b` (or `0`) for an exact match.
    pub(crate) fn format(&self, value: u32, mask: u32, out: &mut String) {
        if mask & self.whole == self.whole {
            self.format_list(value, out);
            return;
        }
        let mut left = mask;
        for (bit, name) in self.names {
            if mask & bit != 0 {
                out.push(if value & bit != 0 { '+' } else { '-' });
                out.push_str(name);
                left &= !bit;
            }
        }
        if left != 0 {
            let _ = write!(out, "[{left:x}]");
        }
    }

    fn format_list(&self, value: u32, out: &mut String) {
        if value == 0 {
            out.push('0');
            return;
        }
        let mut left = value;
        let mut bar = "";
        for (bit, name) in self.names {
            if value & bit != 0 {
                out.push_str(bar);
                out.push_str(name);
                bar = "|";
                left &= !bit;
            }
        }
        if left != 0 {
            let _ = write!(out, "{bar}{left:#x}");
        }
    }
}
