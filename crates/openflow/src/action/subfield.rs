//! The text of subfields: `reg0[0..3]`, `reg0[5]`, `reg0[]` or `reg0`, by any name of the field.

use super::Subfield;
use super::parse::ActionError;
use flow::Field;
use flow::text::parse_bit_range;
use std::fmt;

impl Subfield {
    /// Parses a subfield off the front of `text`; returns it and the rest. The messages are those of `ovs-ofctl`.
    pub(super) fn parse_front(text: &str) -> Result<(Self, &str), ActionError> {
        let (name, rest) = text.split_at(text.find(['[', '-']).unwrap_or(text.len()));
        let field = Field::from_name(name).ok_or_else(|| ActionError(format!("{text}: unknown field `{name}'")))?;
        let Some(inner) = rest.strip_prefix('[') else { return Ok((Self::whole(field), rest)) };
        let syntax = || ActionError(format!("{text}: syntax error expecting [] or [<bit>] or [<start>..<end>]"));
        let (range, rest) = inner.split_once(']').ok_or_else(syntax)?;
        let (first, n_bits) =
            parse_bit_range(range, Self::width(field).into()).map_err(|e| ActionError(format!("{text}: {e}")))?;
        Ok((Self { field, offset: first as u16, n_bits: n_bits as u16 }, rest))
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
            let end = i32::from(self.offset) + i32::from(self.n_bits) - 1;
            write!(f, "[{}..{end}]", self.offset)
        }
    }
}
