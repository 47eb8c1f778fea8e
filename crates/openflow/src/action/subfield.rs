//! The text of subfields: `reg0[0..3]`, `reg0[5]`, `reg0[]` or `reg0`, by any name of the field.

use super::Subfield;
use super::parse::ActionError;
use flow::Field;
use std::fmt;

impl Subfield {
    /// Parses a subfield off the front of `text`; returns it and the rest. The messages are those of `ovs-ofctl`.
    pub(super) fn parse_front(text: &str) -> Result<(Self, &str), ActionError> {
        let (name, rest) = text.split_at(text.find(['[', '-']).unwrap_or(text.len()));
        let field = Field::from_name(name).ok_or_else(|| ActionError(format!("{text}: unknown field `{name}'")))?;
        let Some(inner) = rest.strip_prefix('[') else { return Ok((Self::whole(field), rest)) };
        let syntax = || ActionError(format!("{text}: syntax error expecting [] or [<bit>] or [<start>..<end>]"));
        let (range, rest) = inner.split_once(']').ok_or_else(syntax)?;
        if range.is_empty() {
            return Ok((Self::whole(field), rest));
        }
        let (start, end) = range.split_once("..").unwrap_or((range, range));
        let (start, end) = match (start.parse::<u16>(), end.parse::<u16>()) {
            (Ok(start), Ok(end)) => (start, end),
            _ => return Err(syntax()),
        };
        let width = Self::width(field);
        if start > end {
            return Err(ActionError(format!("{text}: starting bit {start} is after ending bit {end}")));
        }
        for (which, bit) in [("starting", start), ("ending", end)] {
            if bit >= width {
                let why = format!("is not valid because field is only {width} bits wide");
                return Err(ActionError(format!("{text}: {which} bit {bit} {why}")));
            }
        }
        Ok((Self { field, offset: start, n_bits: end - start + 1 }, rest))
    }

    /// Parses a subfield that takes all of `text`.
    pub fn parse(text: &str) -> Result<Self, ActionError> {
        match Self::parse_front(text)? {
            (part, "") => Ok(part),
            _ => Err(ActionError("unexpected input following field syntax".into())),
        }
    }
}

impl fmt::Display for Subfield {
    /// Formats the field by the first of its OXM or NXM names, as `NXM_NX_REG0[0..3]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.field.info();
        f.write_str(info.nxm.first().map_or(info.name, |n| n.name))?;
        if self.offset == 0 && self.n_bits == Self::width(self.field) {
            f.write_str("[]")
        } else if self.n_bits == 1 {
            write!(f, "[{}]", self.offset)
        } else {
            write!(f, "[{}..{}]", self.offset, self.offset + self.n_bits.saturating_sub(1))
        }
    }
}
