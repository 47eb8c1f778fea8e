//! Bits of fields as actions read and write them: of fields with a fixed place in the key, and of tunnel options, whose place
//! depends on the bridge's table.

use crate::text::TraceNames;
use crate::trace::{NodeKind, PortText};
use crate::translate::Xlate;
use flow::{Field, FlowKey, FlowMask, Loc, PlacedOption, TunOption};
use openflow::{Action, LearnDst, LearnSrc, Subfield};
use smallvec::SmallVec;

/// A number of any width: words of 64 bits, the least significant first, without zeros at the end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Value(SmallVec<[u64; 2]>);

impl From<u128> for Value {
    fn from(value: u128) -> Self {
        Self::of_words([value as u64, (value >> 64) as u64])
    }
}

impl Value {
    fn of_words(words: impl IntoIterator<Item = u64>) -> Self {
        let mut words: SmallVec<[u64; 2]> = words.into_iter().collect();
        let len = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        words.truncate(len);
        Self(words)
    }

    fn word(&self, n: u16) -> u64 {
        self.0.get(usize::from(n)).copied().unwrap_or(0)
    }

    /// The low 128 bits.
    pub(crate) fn low(&self) -> u128 {
        u128::from(self.word(1)) << 64 | u128::from(self.word(0))
    }

    /// The low `n_bits` bits, the most significant byte first.
    fn bytes(&self, n_bits: u16) -> Vec<u8> {
        let words = (0..n_bits.div_ceil(64)).rev().map(|n| self.word(n));
        words.flat_map(u64::to_be_bytes).collect()
    }

    /// Formats the value for traces.
    fn hex(&self) -> String {
        let mut words = self.0.iter().rev();
        let Some(first) = words.next() else { return "0".into() };
        words.fold(format!("{first:#x}"), |text, word| text + &format!("{word:016x}"))
    }
}

/// Splits a subfield into pieces of 64 bits at most: offset, width and index of each.
fn pieces(sf: Subfield) -> impl Iterator<Item = (u16, u16, u16)> {
    (0..sf.n_bits.div_ceil(64)).map(move |n| (sf.offset + 64 * n, (sf.n_bits - 64 * n).min(64), n))
}

/// Adds bits of an option to a match.
pub(crate) fn match_option(matching: &mut flow::Match, placed: &PlacedOption, dst: Subfield, value: &Value) {
    pieces(dst).for_each(|(offset, n_bits, n)| matching.set_option_bits(placed, offset, n_bits, value.word(n)));
}

/// Returns the action that sets bits of an option.
pub(crate) fn set_option(dst: Subfield, value: &Value) -> Option<Action> {
    let option = TunOption::of_bits(dst.field, dst.offset, dst.n_bits, &value.bytes(dst.n_bits))?;
    Some(Action::SetTunOption(Box::new(option)))
}

pub(crate) fn is_option(field: Field) -> bool {
    matches!(field.info().loc, Loc::TunMetadata(_))
}

impl<'a> Xlate<'a> {
    /// Returns the place of an option in the bridge's keys; `None` for other fields.
    pub(crate) fn option(&self, field: Field) -> Option<&'a PlacedOption> {
        self.pos.bridge.options.get(field)
    }

    /// Reads the bits, zero where the packet lacks the field.
    pub(crate) fn read_bits_of(&mut self, sf: Subfield) -> Value {
        if is_option(sf.field) {
            return self.option(sf.field).map_or_else(Value::default, |placed| {
                self.out.reads.note_mask(&placed.mask(sf.offset, sf.n_bits));
                let key = &self.packet.key;
                Value::of_words(pieces(sf).map(|(offset, n_bits, _)| placed.get(key, offset, n_bits)))
            });
        }
        if !self.has(sf.field.info().prereq) {
            return Value::default();
        }
        let mut mask = FlowKey::ZERO;
        mask.add_mask(sf.field, sf.mask());
        self.out.reads.note_mask(&mask);
        (self.packet.key.get(sf.field) & sf.mask()).checked_shr(sf.offset.into()).unwrap_or(0).into()
    }

    /// Writes the bits if the packet has the field. (After a write, the packet has every option.)
    pub(crate) fn write_bits_of(&mut self, sf: Subfield, value: &Value) {
        if !is_option(sf.field) {
            let value = value.low().checked_shl(sf.offset.into()).unwrap_or(0);
            return self.set_if_present(sf.field, value & sf.mask(), sf.mask());
        }
        let Some(placed) = self.option(sf.field) else { return };
        pieces(sf).for_each(|(offset, n_bits, n)| placed.set(&mut self.packet.key, offset, n_bits, value.word(n)));
        self.option_is_written(placed, placed.mask(sf.offset, sf.n_bits));
    }

    pub(crate) fn read_subfield(&mut self, sf: Subfield) -> u128 {
        self.read_bits_of(sf).low()
    }

    pub(crate) fn write_subfield(&mut self, sf: Subfield, value: u128) {
        self.write_bits_of(sf, &value.into());
    }

    /// Adds the current value of bits to the trace.
    pub(crate) fn note_bits(&mut self, dst: Subfield) {
        let traced = self.traced(dst);
        let value = if self.tracer.is_on() { self.value_now(dst) } else { return };
        let whole = u32::from(traced.n_bits) == u32::from(traced.field.info().n_bits) && !is_option(traced.field);
        self.tracer.note(NodeKind::Detail, || {
            let value = if whole { crate::text::value(traced.field, value.low()) } else { value.hex() };
            format!("{} is now {value}", crate::text::subfield(traced))
        });
    }

    /// The bits in the key, which this does not record as read.
    fn value_now(&self, sf: Subfield) -> Value {
        match self.option(sf.field) {
            Some(placed) => {
                Value::of_words(pieces(sf).map(|(offset, n_bits, _)| placed.get(&self.packet.key, offset, n_bits)))
            }
            None => (self.packet.key.get(sf.field) & sf.mask()).checked_shr(sf.offset.into()).unwrap_or(0).into(),
        }
    }

    /// Executes `set_field` of an option: sets the bits of its mask, or all.
    pub(crate) fn set_option(&mut self, option: &TunOption) {
        let Some(placed) = self.option(option.field()) else { return };
        let mut set = flow::Match::ANY;
        // Flows with values that do not fit are refused when they are added.
        set.place_option(option, placed);
        for (word, mask) in set.mask().0.iter().enumerate().take(flow::layout::REGS) {
            self.packet.key.0[word] = self.packet.key.0[word] & !mask | set.key().0[word];
        }
        self.option_is_written(placed, set.mask().clone());
    }

    /// Executes `delete_field`: removes the option from the packet.
    pub(crate) fn delete_field(&mut self, field: Field) {
        let Some(placed) = self.option(field) else { return };
        let whole = placed.whole();
        for (word, mask) in whole.0.iter().enumerate().take(flow::layout::REGS) {
            self.packet.key.0[word] &= !mask;
        }
        self.option_is_written(placed, whole);
        self.tracer.note(NodeKind::Detail, || format!("delete {field}"));
    }

    fn option_is_written(&mut self, placed: &PlacedOption, mut mask: FlowMask) {
        let (word, bit) = placed.presence();
        mask.0[word] |= bit;
        self.out.reads.write_mask(&mask);
        self.packet.written = None;
    }

    /// Clears all options. They belong to a bridge and do not cross to its neighbour, whose table may differ.
    pub(crate) fn clear_options(&mut self) {
        for placed in self.pos.bridge.options.iter() {
            let whole = placed.whole();
            for (word, mask) in whole.0.iter().enumerate().take(flow::layout::REGS) {
                self.packet.key.0[word] &= !mask;
            }
            self.option_is_written(placed, whole);
        }
    }

    /// The form of a subfield in traces: the whole of an option has as many bits as the option.
    fn traced(&self, part: Subfield) -> Subfield {
        match self.option(part.field) {
            Some(placed) if part.offset == 0 && part.n_bits == placed.n_bits() => Subfield::whole(part.field),
            _ => part,
        }
    }

    /// The form of an action in traces.
    pub(crate) fn traced_action(&self, action: &Action) -> String {
        let names = self.trace_names();
        let action = match action {
            Action::StackPush(part) => Action::StackPush(self.traced(*part)),
            Action::StackPop(part) => Action::StackPop(self.traced(*part)),
            Action::RegMove { src, dst } | Action::CopyField { src, dst } => {
                Action::RegMove { src: self.traced(*src), dst: self.traced(*dst) }
            }
            Action::Learn(learn) => {
                let mut learn = learn.as_ref().clone();
                for spec in &mut learn.specs {
                    if let LearnSrc::Field(part) = &mut spec.src {
                        *part = self.traced(*part);
                    }
                    if let LearnDst::Match(part) | LearnDst::Load(part) = &mut spec.dst {
                        *part = self.traced(*part);
                    }
                }
                Action::Learn(learn.into())
            }
            _ => return crate::text::action(action, &names),
        };
        crate::text::action(&action, &names)
    }

    /// The names of the current bridge's ports, if the trace shows them.
    pub(crate) fn trace_names(&self) -> TraceNames<'a> {
        TraceNames((self.tracer.port_text() == PortText::Names).then_some(self.pos.bridge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_width() {
        let wide = Value::of_words([5, 0, 7, 0]);
        assert_eq!((wide.low(), wide.hex()), (5, format!("0x7{:016x}{:016x}", 0, 5)));
        assert_eq!((Value::from(0).hex().as_str(), Value::from(1 << 64).low()), ("0", 1 << 64));
        assert_eq!(wide.bytes(129), [&7u64.to_be_bytes()[..], &[0; 8], &5u64.to_be_bytes()].concat());
        assert_eq!(Value::of_words([9, 0]), Value::from(9));
    }
}
