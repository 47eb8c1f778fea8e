//! Fields whose bits have names: `+trk-new` for single bits, `trk|new` for the whole field.

use super::error::MatchError;
use super::value::scan_int;
use std::fmt::Write;

/// The bits of a field and their names.
pub(crate) struct Flags {
    /// The name of the flags in error messages.
    pub(crate) what: &'static str,
    /// Bits that are allowed in input.
    pub(crate) allowed: u32,
    /// The mask of a value without one.
    pub(crate) exact: u32,
    /// Bits that output may have.
    pub(crate) visible: u32,
    /// Mask bits that count as an exact match in output.
    pub(crate) whole: u32,
    /// Name by bit.
    pub(crate) names: &'static [(u32, &'static str)],
}

/// `ct_state`.
pub(crate) static CT_STATE: Flags = Flags {
    what: "ct_state",
    allowed: 0xff,
    visible: u32::MAX,
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
    visible: u32::MAX,
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

/// The flag of `tun_flags` for a packet with a key.
pub(crate) const TUNNEL_KEY: u128 = 0x8;

/// `tun_flags`. Only the first flag can be matched; flows of packets show the others.
pub(crate) static TUNNEL: Flags = Flags {
    what: "tunnel",
    allowed: 1,
    visible: 0xf,
    exact: 1,
    whole: 0xf,
    names: &[(0x1, "oam"), (0x2, "df"), (0x4, "csum"), (0x8, "key")],
};

/// Value and mask of `number/number`, whatever is behind it. Bits beyond 32 are without effect.
fn masked(text: &str) -> Option<(u32, u32)> {
    let (value, rest) = scan_int(text, 0)?;
    let (mask, _) = scan_int(rest.strip_prefix('/')?, 0)?;
    Some((value as u32, mask as u32))
}

impl Flags {
    fn bit(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(bit, n)| *n == name && self.allowed & bit != 0).map(|(bit, _)| *bit)
    }

    fn unknown(&self, text: &str) -> MatchError {
        MatchError::Flag { text: text.into(), what: self.what }
    }

    /// Value and mask of `+a-b`, `a|b` (where numbers may stand for flags), or `number/number`.
    pub(crate) fn parse(&self, text: &str) -> Result<(u32, u32), MatchError> {
        if text.starts_with(['+', '-']) {
            return self.parse_signed(text);
        }
        match masked(text) {
            Some((value, mask)) if (value | mask) & !self.allowed == 0 => Ok((value & mask, mask)),
            Some(_) => Err(self.unknown(text)),
            None => self.parse_list(text),
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
        let (mut value, mut rest) = (0, text);
        while !rest.is_empty() || text.is_empty() {
            if let Some((bits, after)) = scan_int(rest, 0) {
                (value, rest) = (value | bits as u32, after);
            } else {
                let (name, after) = rest.split_at(rest.find('|').unwrap_or(rest.len()));
                (value, rest) = (value | self.bit(name).ok_or_else(|| self.unknown(text))?, after);
            }
            rest = rest.strip_prefix('|').unwrap_or(rest);
        }
        if value & !self.allowed == 0 { Ok((value, self.exact)) } else { Err(self.unknown(text)) }
    }

    /// Writes `+a-b` if some bits are masked, `a|b` (or `0`) for an exact match.
    pub(crate) fn format(&self, value: u32, mask: u32, out: &mut String) {
        if mask & self.whole == self.whole {
            self.format_list(value, out);
            return;
        }
        // The mask of an exact match may have bits that no flag has.
        let mut left = mask & (self.allowed | !self.exact);
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
