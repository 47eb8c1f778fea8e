//! Prefix tracking (NSDI'15, section 5.4): the tries of a table's prefix fields, and how a look-up uses them.
//!
//! There is a trie for each field and each length: it holds, for every rule that matches this length of the field, these
//! leading bits. When a tuple's mask has the first `len` bits of the field, a look-up asks the trie of that length how many
//! bits the key has in common with any of its prefixes: if not all, the tuple holds no rule for the key, and to know that,
//! these bits and one more are read. What has been read for other tuples may show that without reading more.
//!
//! A tuple's fields are asked in an order that depends on nothing but what has been read: first those that answer by what
//! was read of the field already, then those whose bits have been read anyway, then those that have few prefixes of the
//! length, as they are the most likely to exclude the tuple, and by few bits.

use crate::options::MAX_PREFIXES;
use crate::trie::{Bits, Trie};
use flow::{Field, FlowKey, FlowMask, Loc, Reads, Stage};
use std::ops::Range;

/// What a tuple's mask has of the table's prefix fields.
pub(crate) type Lens = Vec<Prefix>;

/// Leading bits of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    /// Number of the field.
    field: u8,
    /// Number of the trie.
    trie: u8,
    /// How many bits, at least 1.
    len: u8,
}

/// The tries of a table.
#[derive(Debug)]
pub(crate) struct Prefixes(Vec<PrefixField>);

/// What one look-up knows of each field.
#[derive(Debug, Default)]
pub(crate) struct Walks([Walk; MAX_PREFIXES]);

#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    /// Which tries were found to hold a prefix of the key, by what was read: bit by number, of the first 64 tries.
    met: u64,
    /// Which were found to hold none.
    absent: u64,
    /// The trie that was asked last, and how many bits the key has in common with what it holds. (Not all of them need
    /// have been read.)
    last: Option<(u8, u8)>,
}

impl Walk {
    /// Whether the trie of `prefix` holds a prefix of the key, if that was told before.
    fn told(&self, prefix: Prefix) -> Option<bool> {
        let bit = bit(prefix);
        ((self.met | self.absent) & bit != 0).then_some(self.met & bit != 0)
    }

    /// How many of the prefix' bits the key has in common with what its trie holds. Nothing: it is empty.
    fn common(&mut self, prefix: Prefix, field: &PrefixField, key: &FlowKey) -> Option<u8> {
        match self.last {
            Some((trie, common)) if trie == prefix.trie => Some(common),
            _ => {
                let common = field.tries[usize::from(prefix.trie)].1.common(field.place.value(key), prefix.len);
                self.last = common.map(|common| (prefix.trie, common));
                common
            }
        }
    }

    /// Whether the trie holds a prefix of the key, if what was read is enough to tell.
    fn known(&mut self, prefix: Prefix, field: &PrefixField, key: &FlowKey, reads: &Reads) -> Option<bool> {
        let told = self.told(prefix);
        if told.is_some() {
            return told;
        }
        let read = field.place.n_read(reads);
        if read == 0 {
            // A trie that a tuple is asked for is not empty: something has to be read of the field.
            return None;
        }
        let common = self.common(prefix, field, key);
        (needed(prefix, common) <= read).then(|| self.tell(prefix, common == Some(prefix.len)))
    }

    /// Whether the trie holds a prefix of the key, and how many bits it takes to tell, if that was not told before.
    fn ask(&mut self, prefix: Prefix, field: &PrefixField, key: &FlowKey) -> (bool, u8) {
        if let Some(there) = self.told(prefix) {
            return (there, 0);
        }
        let common = self.common(prefix, field, key);
        (self.tell(prefix, common == Some(prefix.len)), needed(prefix, common))
    }

    fn tell(&mut self, prefix: Prefix, there: bool) -> bool {
        *(if there { &mut self.met } else { &mut self.absent }) |= bit(prefix);
        there
    }
}

/// The bit of a prefix' trie. (None, if there are very many lengths: then the trie is asked again.)
fn bit(prefix: Prefix) -> u64 {
    1u64.checked_shl(prefix.trie.into()).unwrap_or(0)
}

/// How many bits tell whether the key has the prefix, of which it has `common` in common with what there is.
fn needed(prefix: Prefix, common: Option<u8>) -> u8 {
    common.map_or(0, |c| prefix.len.min(c + 1))
}

#[derive(Debug)]
struct PrefixField {
    field: Field,
    place: Place,
    /// By number, with the length of the prefixes in each.
    tries: Vec<(u8, FieldTrie)>,
}

/// Where a field stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// `width` bits of a word, from bit `shift` on.
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
    /// Empty tries for these fields. (Fields that stand in no word have none.)
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

    /// What a mask has of the fields in `stage`.
    pub(crate) fn lens(&mut self, mask: &FlowMask, stage: Stage) -> Lens {
        let words = stage.words();
        let here = (0..).zip(&mut self.0).filter(|(_, field)| field.place.is_in(&words));
        let lens = here.map(|(i, field)| {
            let len = field.place.value(mask).leading_ones() as u8;
            (len > 0).then(|| Prefix { field: i, trie: field.trie_of(len), len })
        });
        lens.flatten().collect()
    }

    /// Adds what a rule has of the fields.
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

    /// Removes what a rule has of the fields.
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

    /// Whether a trie was found to hold none of the prefixes that a tuple with these lengths has for the key.
    pub(crate) fn excluded(lens: &[Prefix], walks: &Walks) -> bool {
        lens.iter().any(|prefix| walks.0[usize::from(prefix.field)].told(*prefix) == Some(false))
    }

    /// Whether a trie tells that a tuple with these lengths holds no rule for `key`, recording what was read to tell.
    pub(crate) fn exclude(&self, lens: &[Prefix], key: &FlowKey, walks: &mut Walks, reads: &mut Reads) -> bool {
        if let [only] = lens {
            return !self.ask(*only, key, walks, reads);
        }
        if Self::excluded(lens, walks) {
            return true;
        }
        let known = lens.iter().any(|prefix| {
            let i = usize::from(prefix.field);
            walks.0[i].known(*prefix, &self.0[i], key, reads) == Some(false)
        });
        if known {
            return true;
        }
        let mut asked = 0u8;
        while let Some(prefix) = self.next_to_ask(lens, asked, reads) {
            asked |= 1 << prefix.field;
            if !self.ask(prefix, key, walks, reads) {
                return true;
            }
        }
        false
    }

    /// Records what [`Prefixes::exclude`] reads of a key that there is a rule for: all of the prefixes, in the order in which
    /// their fields are asked.
    pub(crate) fn note_there(&self, lens: &[Prefix], reads: &mut Reads) {
        let note = |prefix: Prefix, reads: &mut Reads| self.0[usize::from(prefix.field)].place.note(prefix.len, reads);
        if let [only] = lens {
            return note(*only, reads);
        }
        let mut asked = 0u8;
        while let Some(prefix) = self.next_to_ask(lens, asked, reads) {
            asked |= 1 << prefix.field;
            note(prefix, reads);
        }
    }

    /// Whether there is a prefix of the key, recording what was read to tell.
    fn ask(&self, prefix: Prefix, key: &FlowKey, walks: &mut Walks, reads: &mut Reads) -> bool {
        let i = usize::from(prefix.field);
        let (there, read) = walks.0[i].ask(prefix, &self.0[i], key);
        self.0[i].place.note(read, reads);
        there
    }

    /// Which field to ask next: `asked` has a bit for each that was asked.
    fn next_to_ask(&self, lens: &[Prefix], asked: u8, reads: &Reads) -> Option<Prefix> {
        let left = lens.iter().filter(|prefix| asked >> prefix.field & 1 == 0);
        let cost = |prefix: &&Prefix| {
            let field = &self.0[usize::from(prefix.field)];
            (!field.place.is_read(prefix.len, reads), field.tries[usize::from(prefix.trie)].1.n())
        };
        left.min_by_key(cost).copied()
    }
}

impl PrefixField {
    fn new(field: Field) -> Option<Self> {
        let place = match field.info().loc {
            Loc::Bits { word, shift, width } => Place::Narrow { word: word.into(), shift, width },
            Loc::Wide(word) => Place::Wide { word },
            _ => return None,
        };
        Some(Self { field, place, tries: Vec::new() })
    }

    /// Number of the trie for prefixes of `len` bits, which is there from now on.
    fn trie_of(&mut self, len: u8) -> u8 {
        let there = self.tries.iter().position(|(l, _)| *l == len);
        let number = there.unwrap_or_else(|| {
            let trie = match self.place {
                Place::Narrow { width: ..=32, .. } => FieldTrie::Short(Trie::new()),
                _ => FieldTrie::Long(Trie::new()),
            };
            self.tries.push((len, trie));
            self.tries.len() - 1
        });
        number as u8
    }
}

impl FieldTrie {
    /// How many leading bits of `value`, `len` at most, are those of a prefix here. Nothing: there are no prefixes.
    #[inline]
    fn common(&self, value: u128, len: u8) -> Option<u8> {
        let common = match self {
            Self::Short(trie) => trie.common(u32::from_top(value).truncated(len)),
            Self::Long(trie) => trie.common(value.truncated(len)),
        };
        common.map(|c| c.min(len))
    }

    /// How many different prefixes there are.
    fn n(&self) -> u32 {
        match self {
            Self::Short(trie) => trie.len(),
            Self::Long(trie) => trie.len(),
        }
    }
}

impl Place {
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

    /// How many leading bits are read already, or are not the packet's any more.
    fn n_read(self, reads: &Reads) -> u8 {
        self.value_by(|word| reads.mask().0[word] | reads.written().0[word]).leading_ones() as u8
    }

    /// Whether the first `len` bits are read already, or are not the packet's any more.
    fn is_read(self, len: u8, reads: &Reads) -> bool {
        self.n_read(reads) >= len
    }

    fn note(self, read: u8, reads: &mut Reads) {
        match self {
            Self::Narrow { word, shift, width } => reads.note_prefix(word, shift, width, read),
            Self::Wide { word } => {
                reads.note_prefix(word, 0, 64, read.min(64));
                reads.note_prefix(word + 1, 0, 64, read.saturating_sub(64));
            }
        }
    }
}
