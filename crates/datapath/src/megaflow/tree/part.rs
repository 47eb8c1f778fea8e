//! Separates a new flow from the flow of the leaf that it reached.

use flow::{Sparse, Step};

use super::super::Megaflow;
use super::bits::Test;
use super::insertion::{Insertion, len_at};
use super::prefix::PrefixField;

/// A test for a node on the path to both flows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Bits(Test),
    /// A prefix, with the prefix length of the existing flow.
    Prefix(PrefixField, u32),
}

/// The field of a prefix step.
fn field_of(word: u8, shift: u8, width: u8) -> PrefixField {
    PrefixField { word, shift, width }
}

/// The tests from the current position of `insertion` to where it diverges from `there`, in the order of the new flow's
/// reads, over bits in both masks. If the flows do not differ in these, `insertion` is narrowed by the first step of
/// `there` in which they differ; there is one, as `there` does not cover its key. `mask` is the mask of `there` in this
/// copy of the tree, which may be older than the flow's own.
pub(super) fn separate((there, mask): (&Megaflow, &Sparse), insertion: &mut Insertion) -> Vec<Piece> {
    let mut tested = insertion.tested.clone();
    let mut pieces = Vec::new();
    for step in insertion.steps.iter() {
        let word = step.word();
        let differ = insertion.key.0[word] ^ there.key.word(word);
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
    // The difference is in bits that both match, but not within a common step.
    for (word, bits) in mask.iter() {
        let common = bits & insertion.mask.0[word];
        if (insertion.key.0[word] ^ there.key.word(word)) & common != 0 {
            pieces.push(Piece::Bits((word as u8, common & !tested.0[word])));
            return pieces;
        }
    }
    pieces.push(narrow((there, mask), insertion));
    pieces
}

/// Narrows `insertion` by bits that separate it from `there`. It does not match them itself, as the flows agree in all
/// bits that both match.
fn narrow((there, mask): (&Megaflow, &Sparse), insertion: &mut Insertion) -> Piece {
    for step in there.reads.iter() {
        let word = step.word();
        let differ = (insertion.key.0[word] ^ there.key.word(word)) & step.bits();
        if differ == 0 {
            continue;
        }
        return match *step {
            Step::Bits { word: w, bits } => {
                let new = bits & !insertion.mask.0[word];
                insertion.narrow(word, new);
                Piece::Bits((w, new))
            }
            Step::Prefix { word: w, shift, width, len } => {
                let field = field_of(w, shift, width);
                insertion.narrow(word, field.bits(field.value(differ).leading_zeros() + 1));
                Piece::Prefix(field, len.into())
            }
        };
    }
    // They only differ in bits by which the other flow was narrowed.
    let differs = |(w, bits): &(usize, u64)| (insertion.key.0[*w] ^ there.key.word(*w)) & bits != 0;
    let (word, bits) = mask.iter().find(differs).unwrap_or_default();
    let new = bits & !insertion.mask.0[word];
    insertion.narrow(word, new);
    Piece::Bits((word as u8, new))
}
