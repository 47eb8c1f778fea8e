//! Prefix tracking (NSDI'15, section 5.4): the tries of a table's prefix fields, and how a look-up uses them.
//!
//! Each trie holds, for every rule that matches its field, the leading bits of the match. A look-up walks a trie down
//! along the key, as far as the tuples ask: when a tuple's mask has the first `len` bits of the field and no rule has a
//! prefix of that length on the key's way, the tuple holds no rule for the key. Only the bits on the way were read.
//!
//! A tuple's fields are asked in an order that depends on nothing but what has been read: first those that answer from
//! where the walk stands already, then those whose bits have been read anyway, then those that have few prefixes of the
//! length, as they are the most likely to exclude the tuple, and by few bits.

use crate::options::MAX_PREFIXES;
use crate::trie::{Bits, Cursor, Trie};
use flow::{Field, FlowKey, FlowMask, Loc, Reads, Stage, Step};
use std::ops::Range;

/// What a tuple's mask has of the table's prefix fields: number of the field, and leading bits, at least 1.
pub(crate) type Lens = Vec<(u8, u8)>;

/// The tries of a table.
#[derive(Debug)]
pub(crate) struct Prefixes(Vec<PrefixField>);

/// The walks of one look-up, with the bits of the key that each follows.
#[derive(Debug)]
pub(crate) struct Walks([Option<(Cursor, u128)>; MAX_PREFIXES]);

impl Walks {
    pub(crate) fn new() -> Self {
        Self([None; MAX_PREFIXES])
    }

    fn of(&mut self, i: u8, field: &PrefixField, key: &FlowKey) -> (&mut Cursor, u128) {
        let (at, value) = self.0[usize::from(i)].get_or_insert_with(|| (field.trie.start(), field.place.value(key)));
        (at, *value)
    }
}

#[derive(Debug)]
struct PrefixField {
    field: Field,
    place: Place,
    trie: FieldTrie,
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
        self.0.iter().all(|field| match &field.trie {
            FieldTrie::Short(trie) => trie.is_empty(),
            FieldTrie::Long(trie) => trie.is_empty(),
        })
    }

    /// What a mask has of the fields in `stage`.
    pub(crate) fn lens(&self, mask: &FlowMask, stage: Stage) -> Lens {
        let words = stage.words();
        let here = (0..).zip(&self.0).filter(|(_, field)| field.place.is_in(&words));
        let lens = here.map(|(i, field)| (i, field.place.value(mask).leading_ones() as u8));
        lens.filter(|(_, len)| *len > 0).collect()
    }

    /// Adds what a rule has of the fields.
    pub(crate) fn insert(&mut self, lens: &[(u8, u8)], value: impl Fn(usize) -> u64) {
        for (i, len) in lens {
            let field = &mut self.0[usize::from(*i)];
            let bits = field.place.value_by(&value);
            match &mut field.trie {
                FieldTrie::Short(trie) => trie.insert(Bits::from_top(bits), *len),
                FieldTrie::Long(trie) => trie.insert(Bits::from_top(bits), *len),
            }
        }
    }

    /// Removes what a rule has of the fields.
    pub(crate) fn remove(&mut self, lens: &[(u8, u8)], value: impl Fn(usize) -> u64) {
        for (i, len) in lens {
            let field = &mut self.0[usize::from(*i)];
            let bits = field.place.value_by(&value);
            match &mut field.trie {
                FieldTrie::Short(trie) => trie.remove(Bits::from_top(bits), *len),
                FieldTrie::Long(trie) => trie.remove(Bits::from_top(bits), *len),
            }
        }
    }

    /// Whether a trie tells that a tuple with these lengths holds no rule for `key`, recording what was read to tell.
    pub(crate) fn exclude(&self, lens: &[(u8, u8)], key: &FlowKey, walks: &mut Walks, reads: &mut Reads) -> bool {
        let known = lens.iter().any(|(i, len)| {
            let field = &self.0[usize::from(*i)];
            let (at, value) = walks.of(*i, field, key);
            field.trie.known(at, value, *len) == Some(false)
        });
        if known {
            return true;
        }
        let mut asked = 0u8;
        while let Some((i, len)) = self.next_to_ask(lens, asked, reads) {
            asked |= 1 << i;
            let field = &self.0[usize::from(i)];
            let (at, value) = walks.of(i, field, key);
            let there = field.trie.advance(at, value, len);
            field.place.note(at.read, reads);
            if !there {
                return true;
            }
        }
        false
    }

    /// Which field to ask next: `asked` has a bit for each that was asked.
    fn next_to_ask(&self, lens: &[(u8, u8)], asked: u8, reads: &Reads) -> Option<(u8, u8)> {
        let left = lens.iter().filter(|(i, _)| asked >> i & 1 == 0);
        let cost = |(i, len): &&(u8, u8)| {
            let field = &self.0[usize::from(*i)];
            (!field.place.is_read(*len, reads), field.trie.n_of_len(*len))
        };
        if lens.len() == 1 { left.copied().next() } else { left.min_by_key(cost).copied() }
    }
}

impl PrefixField {
    fn new(field: Field) -> Option<Self> {
        let place = match field.info().loc {
            Loc::Bits { word, shift, width } => Place::Narrow { word: word.into(), shift, width },
            Loc::Wide(word) => Place::Wide { word },
            _ => return None,
        };
        let trie = match place {
            Place::Narrow { width: ..=32, .. } => FieldTrie::Short(Trie::new()),
            _ => FieldTrie::Long(Trie::new()),
        };
        Some(Self { field, place, trie })
    }
}

impl FieldTrie {
    fn start(&self) -> Cursor {
        match self {
            Self::Short(trie) => trie.start(),
            Self::Long(trie) => trie.start(),
        }
    }

    fn known(&self, at: &mut Cursor, value: u128, len: u8) -> Option<bool> {
        match self {
            Self::Short(trie) => trie.known(at, Bits::from_top(value), len),
            Self::Long(trie) => trie.known(at, Bits::from_top(value), len),
        }
    }

    fn n_of_len(&self, len: u8) -> u32 {
        match self {
            Self::Short(trie) => trie.n_of_len(len),
            Self::Long(trie) => trie.n_of_len(len),
        }
    }

    fn advance(&self, at: &mut Cursor, value: u128, len: u8) -> bool {
        match self {
            Self::Short(trie) => trie.advance(at, Bits::from_top(value), len),
            Self::Long(trie) => trie.advance(at, Bits::from_top(value), len),
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

    /// Whether the first `len` bits are read already, or are not the packet's any more.
    fn is_read(self, len: u8, reads: &Reads) -> bool {
        let known = |step: Step| {
            let word = step.word();
            step.bits() & !reads.mask().0[word] & !reads.written().0[word] == 0
        };
        match self {
            Self::Narrow { word, shift, width } => known(Step::Prefix { word: word as u8, shift, width, len }),
            Self::Wide { word } => {
                let word = word as u8;
                known(Step::Prefix { word, shift: 0, width: 64, len: len.min(64) })
                    && known(Step::Prefix { word: word + 1, shift: 0, width: 64, len: len.saturating_sub(64) })
            }
        }
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
