//! What tells a new flow from one whose leaf it was led to.

use flow::Step;

use super::super::Megaflow;
use super::bits::Test;
use super::prefix::PrefixField;
use super::wanted::{Wanted, len_at};

/// What a node on the way to both flows is to test.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Bits(Test),
    /// A prefix; the flow that is there already stands in it with the first so many bits.
    Prefix(PrefixField, u32),
}

/// The field of a prefix step.
fn field_of(word: u8, shift: u8, width: u8) -> PrefixField {
    PrefixField { word, shift, width }
}

/// The tests that lead from where `wanted` is to where it parts from `there`, in the order in which `wanted` reads,
/// over bits that both match. If they do not part in those, `wanted` is narrowed by the first step in which `there`
/// tells them apart: it does, as it does not cover `wanted`'s key.
pub(super) fn part(there: &Megaflow, wanted: &mut Wanted) -> Vec<Piece> {
    let mask = there.mask();
    let mut tested = wanted.tested.clone();
    let mut pieces = Vec::new();
    for step in wanted.steps.iter() {
        let word = step.word();
        let differ = wanted.key.0[word] ^ there.key.word(word);
        match *step {
            Step::Bits { word: w, bits } => {
                let common = bits & mask.word(word) & !tested.0[word];
                if common == 0 {
                    continue;
                }
                pieces.push(Piece::Bits((w, common)));
                tested.0[word] |= common;
                if differ & common != 0 {
                    return pieces;
                }
            }
            Step::Prefix { word: w, shift, width, len } => {
                let field = field_of(w, shift, width);
                let len_there = len_at(&there.reads, mask.word(word), &tested, field);
                let len = u32::from(len).min(len_there);
                if field.value(differ).leading_zeros() < len {
                    pieces.push(Piece::Prefix(field, len_there));
                    return pieces;
                }
                if field.bits(len) & !tested.0[word] != 0 {
                    pieces.push(Piece::Prefix(field, len));
                    tested.0[word] |= field.bits(len);
                }
            }
        }
    }
    // In another order than this one's.
    for (word, bits) in mask.iter() {
        let common = bits & wanted.mask.0[word];
        if (wanted.key.0[word] ^ there.key.word(word)) & common != 0 {
            pieces.push(Piece::Bits((word as u8, common & !tested.0[word])));
            return pieces;
        }
    }
    pieces.push(narrow(there, wanted));
    pieces
}

/// Narrows `wanted` by what tells it from `there`: bits that it does not match itself, as those that both match agree.
fn narrow(there: &Megaflow, wanted: &mut Wanted) -> Piece {
    for step in there.reads.iter() {
        let word = step.word();
        let differ = (wanted.key.0[word] ^ there.key.word(word)) & step.bits();
        if differ == 0 {
            continue;
        }
        return match *step {
            Step::Bits { word: w, bits } => {
                let new = bits & !wanted.mask.0[word];
                wanted.narrow(word, new);
                Piece::Bits((w, new))
            }
            Step::Prefix { word: w, shift, width, len } => {
                let field = field_of(w, shift, width);
                wanted.narrow(word, field.bits(field.value(differ).leading_zeros() + 1));
                Piece::Prefix(field, len.into())
            }
        };
    }
    // Only in what the other was narrowed to.
    let tells = |(w, bits): &(usize, u64)| (wanted.key.0[*w] ^ there.key.word(*w)) & bits != 0;
    let (word, bits) = there.mask().iter().find(tells).unwrap_or_default();
    let new = bits & !wanted.mask.0[word];
    wanted.narrow(word, new);
    Piece::Bits((word as u8, new))
}
