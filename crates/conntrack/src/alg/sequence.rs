//! Changes of the text of a TCP connection by a helper, and the shifts of sequence numbers that follow from them.
//!
//! Each direction remembers its last changes by the sequence numbers of their sender, so that a retransmission changes in the
//! same way and has the shift of its own position, whichever segments it comes in. When there are too many changes, the
//! oldest is forgotten: the bytes in front of it then count as shifted as much as those behind it.
//!
//! Sequence numbers are compared modulo 2^32; changes that lie further back than [`REACH`] are forgotten.

use std::ops::Range;

use smallvec::SmallVec;

use crate::key::Direction;

/// How many changes a direction remembers.
pub const CHANGES_MAX: usize = 4;
/// How far back a change can lie: half of the distance at which the order of two sequence numbers turns around.
const REACH: i32 = 1 << 30;

/// A change of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Change {
    /// The first byte behind the old text, as its sender counts.
    end: u32,
    /// Bytes of the old text.
    old_len: u16,
    /// The shift from `end` on: the sum of all changes so far.
    shift: i32,
    /// The new text.
    text: Box<str>,
}

/// Returns true if sequence number `a` is before `b`.
#[inline]
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// A segment has one part of a changed text, but not the other, so that it cannot change as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split;

/// A change within a segment: the bytes of its payload, and the text for them.
pub type Edit<'a> = (Range<usize>, &'a str);

/// The changes in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shift {
    /// The shift in front of the first change.
    base: i32,
    /// In the order of their positions.
    changes: SmallVec<[Change; 1]>,
}

impl Shift {
    /// The number, as the receiver counts, of the byte that its sender numbers `seq`.
    #[inline]
    pub fn forward(&mut self, seq: u32) -> u32 {
        while let Some(first) = self.changes.first()
            && seq.wrapping_sub(first.end) as i32 > REACH
        {
            self.forget_first();
        }
        let last = self.changes.iter().rev().find(|change| !is_before(seq, change.end));
        seq.wrapping_add_signed(last.map_or(self.base, |change| change.shift))
    }

    /// The reverse of [`Self::forward`]: the number, as the sender counts, of a byte that the receiver acknowledges as
    /// `ack`. An `ack` inside of a changed text never acknowledges all of the old text.
    #[inline]
    pub fn backward(&self, ack: u32) -> u32 {
        let mut shift = self.base;
        for change in &self.changes {
            if is_before(ack, change.end.wrapping_add_signed(change.shift)) {
                let (seq, last) = (ack.wrapping_sub(shift as u32), change.end.wrapping_sub(1));
                return if is_before(last, seq) { last } else { seq };
            }
            shift = change.shift;
        }
        ack.wrapping_sub(shift as u32)
    }

    /// Asks to replace the `old_len` bytes in front of `end` by `text`, which is not empty. Returns false if they are not
    /// behind all other changes: what follows them has then been sent with another shift. Bytes that were replaced before keep
    /// their text.
    #[must_use]
    pub fn admit(&mut self, end: u32, old_len: usize, text: &str) -> bool {
        if self.changes.iter().any(|change| change.end == end) {
            return true;
        }
        if text.is_empty() {
            return false;
        }
        let (Ok(old_len), start) = (u16::try_from(old_len), end.wrapping_sub(old_len as u32)) else { return false };
        let before = self.changes.last().map_or(self.base, |last| last.shift);
        if self.changes.last().is_some_and(|last| is_before(start, last.end)) {
            return false;
        }
        if self.changes.len() == CHANGES_MAX {
            self.forget_first();
        }
        let shift = before.wrapping_add(text.len() as i32 - i32::from(old_len));
        self.changes.push(Change { end, old_len, shift, text: text.into() });
        true
    }

    /// The changes in a segment of `len` bytes from `seq`, the last one first.
    #[inline]
    pub fn edits(&self, seq: u32, len: usize) -> Result<SmallVec<[Edit<'_>; 1]>, Split> {
        let mut edits = SmallVec::new();
        if len == 0 {
            return Ok(edits);
        }
        for change in self.changes.iter().rev() {
            let end = i64::from(change.end.wrapping_sub(seq) as i32);
            let start = end - i64::from(change.old_len);
            if end <= 0 {
                break;
            }
            if start >= len as i64 {
                continue;
            }
            if start < 0 || end > len as i64 {
                return Err(Split);
            }
            edits.push((start as usize..end as usize, &*change.text));
        }
        Ok(edits)
    }

    #[cold]
    fn forget_first(&mut self) {
        self.base = self.changes.remove(0).shift;
    }
}

/// The changes of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shifts([Shift; 2]);

impl Shifts {
    /// The changes of the text that is sent in a direction.
    #[inline]
    pub fn of(&self, direction: Direction) -> &Shift {
        &self.0[direction.index()]
    }

    /// Like [`Self::of`], mutable.
    #[inline]
    pub fn of_mut(&mut self, direction: Direction) -> &mut Shift {
        &mut self.0[direction.index()]
    }
}
