//! Prefix tracking (NSDI'15, section 5.4): the tries of a table's prefix fields, and their use in lookups.
//!
//! Each field has one trie for each prefix length, which holds the prefixes of that length of all rules. If a tuple's
//! mask has the first `len` bits of the field, a lookup asks the trie of that length how many leading bits the key
//! shares with any of its prefixes. If it shares fewer than `len`, the tuple holds no matching rule, and only the
//! shared bits and one more have to be read. If these were read for other tuples, nothing more is read.
//!
//! The order in which a tuple's fields are asked depends only on bits already read: first the fields that can answer
//! from the bits already read, then those with the fewest prefixes of the length, as they are the most likely to
//! exclude the tuple, and with few bits.

use crate::options::MAX_PREFIXES;
use crate::trie::{Bits, Trie};
use flow::{Field, FlowKey, FlowMask, Loc, Reads, Stage};
use smallvec::SmallVec;
use std::ops::Range;

/// The prefixes of the table's prefix fields in a tuple's mask.
pub(crate) type Lens = SmallVec<[Prefix; MAX_PREFIXES]>;

/// A prefix of a field in a tuple's mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    /// Number of the field.
    field: u8,
    /// Number of the trie.
    trie: u8,
    /// Length in bits, at least 1.
    len: u8,
}

/// The tries of a table.
#[derive(Debug)]
pub(crate) struct Prefixes(Vec<PrefixField>);

/// The state of one lookup for each prefix field.
#[derive(Debug, Default)]
pub(crate) struct Walks([Walk; MAX_PREFIXES]);

#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    /// Bitmap of the tries, by number, that are known to hold a prefix of the key; of the first 64 tries.
    met: u64,
    /// Bitmap of the tries that are known to hold none.
    absent: u64,
    /// The trie asked last, and the number of leading bits that the key shares with its prefixes. (Not all of them need
    /// to have been read.)
    last: Option<(u8, u8)>,
}

impl Walk {
    /// Whether the trie of `prefix` holds a prefix of the key, if a result was recorded.
    fn recorded(&self, prefix: Prefix) -> Option<bool> {
        let bit = bit(prefix);
        ((self.met | self.absent) & bit != 0).then_some(self.met & bit != 0)
    }

    /// Number of leading bits, up to the prefix' length, that the key shares with the trie's prefixes; `None` if the
    /// trie is empty.
    fn common(&mut self, prefix: Prefix, field: &PrefixField, key: &FlowKey) -> Option<u8> {
        match self.last {
            Some((trie, common)) if trie == prefix.trie => Some(common),
            _ => {
                let common = field.tries[usize::from(prefix.trie)].1.common(field.place, key, prefix.len);
                self.last = common.map(|common| (prefix.trie, common));
                common
            }
        }
    }

    /// Whether the trie holds a prefix of the key, if the bits already read are enough to decide.
    fn known(&mut self, prefix: Prefix, field: &PrefixField, key: &FlowKey, reads: &Reads) -> Option<bool> {
        let recorded = self.recorded(prefix);
        if recorded.is_some() {
            return recorded;
        }
        let read = field.place.n_read(reads);
        if read == 0 {
            // The trie of a tuple is not empty, so a decision needs at least one bit.
            return None;
        }
        let common = self.common(prefix, field, key);
        (needed(prefix, common) <= read).then(|| self.record(prefix, common == Some(prefix.len)))
    }

    /// Whether the trie holds a prefix of the key, and the number of bits needed to decide; 0 if a result was recorded.
    fn ask(&mut self, prefix: Prefix, field: &PrefixField, key: &FlowKey) -> (bool, u8) {
        if let Some(there) = self.recorded(prefix) {
            return (there, 0);
        }
        let common = self.common(prefix, field, key);
        (self.record(prefix, common == Some(prefix.len)), needed(prefix, common))
    }

    fn record(&mut self, prefix: Prefix, there: bool) -> bool {
        *(if there { &mut self.met } else { &mut self.absent }) |= bit(prefix);
        there
    }
}

/// The bit of a prefix' trie in [`Walk`]; 0 if there are more than 64 lengths, so that the trie is asked each time.
fn bit(prefix: Prefix) -> u64 {
    1u64.checked_shl(prefix.trie.into()).unwrap_or(0)
}

/// Number of bits needed to decide whether the key has the prefix, if it shares `common` bits with the trie.
fn needed(prefix: Prefix, common: Option<u8>) -> u8 {
    common.map_or(0, |c| prefix.len.min(c + 1))
}

#[derive(Debug)]
struct PrefixField {
    field: Field,
    place: FieldLocation,
    /// The tries and their prefix lengths, by trie number.
    tries: Vec<(u8, FieldTrie)>,
}

/// The location of a field.
#[derive(Clone, Copy, Debug)]
enum FieldLocation {
    /// `width` bits of a word from bit `shift` on.
    Narrow { word: usize, shift: u8, width: u8 },
    /// Two words.
    Wide { word: usize },
}

#[derive(Debug)]
enum FieldTrie {
    Short(Trie<u32>),
    Long(Trie<u128>),
}

impl Prefixes {
    /// Empty tries for these fields. (Fields that are not part of a word of the key have none.)
    pub(crate) fn new(fields: &[Field]) -> Self {
        Self(fields.iter().take(MAX_PREFIXES).filter_map(|f| PrefixField::new(*f)).collect())
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = Field> {
        self.0.iter().map(|f| f.field)
    }

    #[cfg(test)]
    pub(crate) fn are_empty(&self) -> bool {
        self.0.iter().flat_map(|field| &field.tries).all(|(_, trie)| trie.n() == 0)
    }

    /// The prefixes of the fields in `stage` of a mask.
    pub(crate) fn lens(&mut self, mask: &FlowMask, stage: Stage) -> Lens {
        let words = stage.words();
        let here = (0..).zip(&mut self.0).filter(|(_, field)| field.place.is_in(&words));
        let lens = here.map(|(i, field)| {
            let len = field.place.value(mask).leading_ones() as u8;
            (len > 0).then(|| Prefix { field: i, trie: field.trie_of(len), len })
        });
        lens.flatten().collect()
    }

    /// Adds the prefixes of a rule.
    pub(crate) fn insert(&mut self, lens: &[Prefix], value: impl Fn(usize) -> u64) {
        for prefix in lens {
            let field = &mut self.0[usize::from(prefix.field)];
            let bits = field.place.value_by(&value);
            match &mut field.tries[usize::from(prefix.trie)].1 {
                FieldTrie::Short(trie) => trie.insert(u32::from_top(bits).truncated(prefix.len)),
                FieldTrie::Long(trie) => trie.insert(bits.truncated(prefix.len)),
            }
        }
    }

    /// Removes the prefixes of a rule.
    pub(crate) fn remove(&mut self, lens: &[Prefix], value: impl Fn(usize) -> u64) {
        for prefix in lens {
            let field = &mut self.0[usize::from(prefix.field)];
            let bits = field.place.value_by(&value);
            match &mut field.tries[usize::from(prefix.trie)].1 {
                FieldTrie::Short(trie) => trie.remove(u32::from_top(bits).truncated(prefix.len)),
                FieldTrie::Long(trie) => trie.remove(bits.truncated(prefix.len)),
            }
        }
    }

    /// Whether a recorded result excludes the tuple with these prefixes.
    pub(crate) fn excluded(lens: &[Prefix], walks: &Walks) -> bool {
        lens.iter().any(|prefix| walks.0[usize::from(prefix.field)].recorded(*prefix) == Some(false))
    }

    /// Whether a trie shows that the tuple with these prefixes holds no rule for `key`. Records the bits read to find
    /// out.
    pub(crate) fn exclude(&self, lens: &[Prefix], key: &FlowKey, walks: &mut Walks, reads: &mut Reads) -> bool {
        if let [only] = lens {
            return !self.ask(*only, key, walks, reads);
        }
        let mut left = 0u8;
        for (i, prefix) in lens.iter().enumerate() {
            let field = usize::from(prefix.field);
            match walks.0[field].known(*prefix, &self.0[field], key, reads) {
                Some(false) => return true,
                Some(true) => {}
                None => left |= 1 << i,
            }
        }
        while let Some(prefix) = self.next_to_ask(lens, &mut left) {
            if !self.ask(prefix, key, walks, reads) {
                return true;
            }
        }
        false
    }

    /// Records the bits that the tries read for a key that matches a rule of the tuple.
    pub(crate) fn note(&self, lens: &[Prefix], reads: &mut Reads) {
        if let [only] = lens {
            return self.0[usize::from(only.field)].place.note(only.len, reads);
        }
        let mut left = 0u8;
        for (i, prefix) in lens.iter().enumerate() {
            let is_read = self.0[usize::from(prefix.field)].place.n_read(reads) >= prefix.len;
            left |= u8::from(!is_read) << i;
        }
        while let Some(prefix) = self.next_to_ask(lens, &mut left) {
            self.0[usize::from(prefix.field)].place.note(prefix.len, reads);
        }
    }

    /// Whether the trie holds a prefix of the key. Records the bits read to find out.
    fn ask(&self, prefix: Prefix, key: &FlowKey, walks: &mut Walks, reads: &mut Reads) -> bool {
        let i = usize::from(prefix.field);
        let (there, read) = walks.0[i].ask(prefix, &self.0[i], key);
        self.0[i].place.note(read, reads);
        there
    }

    /// The field to ask next. `left` is a bitmap of the fields that are still to be asked.
    fn next_to_ask(&self, lens: &[Prefix], left: &mut u8) -> Option<Prefix> {
        let next = if left.count_ones() > 1 {
            let prefixes = (0..).zip(lens).filter(|(i, _)| *left >> i & 1 != 0);
            prefixes.min_by_key(|(_, p)| self.0[usize::from(p.field)].tries[usize::from(p.trie)].1.n())?.0
        } else {
            left.trailing_zeros()
        };
        *left &= !1u8.checked_shl(next)?;
        lens.get(next as usize).copied()
    }
}

impl PrefixField {
    fn new(field: Field) -> Option<Self> {
        let place = match field.info().loc {
            Loc::Bits { word, shift, width } => FieldLocation::Narrow { word: word.into(), shift, width },
            Loc::Wide(word) => FieldLocation::Wide { word },
            _ => return None,
        };
        Some(Self { field, place, tries: Vec::new() })
    }

    /// The number of the trie for prefixes of `len` bits, creating it if needed.
    fn trie_of(&mut self, len: u8) -> u8 {
        let there = self.tries.iter().position(|(l, _)| *l == len);
        let number = there.unwrap_or_else(|| {
            let trie = match self.place {
                FieldLocation::Narrow { width: ..=32, .. } => FieldTrie::Short(Trie::new()),
                _ => FieldTrie::Long(Trie::new()),
            };
            self.tries.push((len, trie));
            self.tries.len() - 1
        });
        number as u8
    }
}

impl FieldTrie {
    /// Number of leading bits, `len` at most, that a key's field shares with a prefix; `None` if there are no prefixes.
    fn common(&self, place: FieldLocation, key: &FlowKey, len: u8) -> Option<u8> {
        let common = match (self, place) {
            (Self::Short(trie), FieldLocation::Narrow { word, shift, width }) => {
                trie.common(((key.0[word] << (64 - shift - width) >> 32) as u32).truncated(len))
            }
            (Self::Short(trie), _) => trie.common(u32::from_top(place.value(key)).truncated(len)),
            (Self::Long(trie), _) => trie.common(place.value(key).truncated(len)),
        };
        common.map(|c| c.min(len))
    }

    /// Number of distinct prefixes.
    fn n(&self) -> u32 {
        match self {
            Self::Short(trie) => trie.len(),
            Self::Long(trie) => trie.len(),
        }
    }
}

impl FieldLocation {
    fn is_in(self, words: &Range<usize>) -> bool {
        let (Self::Narrow { word, .. } | Self::Wide { word }) = self;
        words.contains(&word)
    }

    /// The field's bits, left aligned.
    fn value(self, key: &FlowKey) -> u128 {
        self.value_by(|word| key.0[word])
    }

    fn value_by(self, at: impl Fn(usize) -> u64) -> u128 {
        match self {
            Self::Narrow { word, shift, width } => {
                let top = at(word) << (64 - shift - width);
                u128::from(top & u64::MAX << (64 - width)) << 64
            }
            Self::Wide { word } => u128::from(at(word)) << 64 | u128::from(at(word + 1)),
        }
    }

    /// Number of leading bits that were already read or overwritten.
    fn n_read(self, reads: &Reads) -> u8 {
        let known = |word: usize| reads.mask().0[word] | reads.written().0[word];
        match self {
            Self::Narrow { word, shift, width } => {
                width.min((known(word) << (64 - shift - width)).leading_ones() as u8)
            }
            Self::Wide { word } => match known(word).leading_ones() as u8 {
                64 => 64 + known(word + 1).leading_ones() as u8,
                n => n,
            },
        }
    }

    #[inline]
    fn note(&self, read: u8, reads: &mut Reads) {
        match *self {
            Self::Narrow { word, shift, width } => reads.note_prefix(word, shift, width, read),
            Self::Wide { word } => {
                reads.note_prefix(word, 0, 64, read.min(64));
                reads.note_prefix(word + 1, 0, 64, read.saturating_sub(64));
            }
        }
    }
}
