//! A node that tests groups of bits: a table of children by a hash of their values.
//!
//! Only 64-bit hashes are stored and compared, as leaves compare all bits of their flows anyway. The hashes of a node's
//! children are distinct: if two collide in a split, the node gets another seed. A key with values of no child may
//! still lead to a leaf by a collision, and then fails the comparison. A flow inserted by such a collision, with a
//! probability of 2^-64, is separated from the others further down, or replaces one of them, which then causes a miss.
//!
//! Lookups skip tests in which all children have the same values ([`Bits::shortcut_hash`]). A key with other values
//! there leads to one of the children and does not match its leaves.

use base::mix::fold;
use flow::{Code, Words};

use super::slab::{Ref, SMALL};

/// Maximum number of tests; further tests go to a node below.
pub(super) const TESTS_MAX: usize = 6;

const SLOTS_MIN: usize = 4;

/// Tests are hashed in pairs.
const PAIRS: usize = TESTS_MAX / 2;
const ALL_PAIRS: u8 = (1 << PAIRS) - 1;
/// Makes the positions of tests distinct in the hash.
const MIX: [u64; TESTS_MAX] = [
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
];

/// Bits of a word.
pub(super) type Test = (u8, u64);

/// A node that tests bits; see the module documentation. Invariants: two or more children are in `table`, a single
/// child is in `only`; slots in `table` from a child's hash slot to its own are occupied, and at most half of all slots
/// are.
#[derive(Debug)]
pub(super) struct Bits {
    /// Children.
    pub(super) n: u32,
    /// The only child, if there is exactly one.
    pub(super) only: Ref,
    /// The hash of the only child. With two or more children, the contribution of the pairs of tests in which all of
    /// them have the same values.
    pub(super) only_hash: u64,
    n_tests: u8,
    /// Bitmap of the tests in which all children have the same values.
    same: u8,
    /// With two or more children: bitmap of the pairs of tests in which their values differ.
    differing: u8,
    words: [Code; TESTS_MAX],
    bits: [u64; TESTS_MAX],
    seed: u64,
    table: Box<[Slot]>,
    /// With two or more children: the values of the tests in which all have the same.
    values: Option<Box<[u64; TESTS_MAX]>>,
    /// See [`super::prefix::Prefix`].
    pub(super) chain_head: Ref,
    /// See [`super::prefix::Prefix`].
    pub(super) path_bits: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    /// `Ref::NONE` in a free slot.
    child: Ref,
    /// Where lookups go on.
    shortcut: Ref,
}

/// What a lookup hashes of a key: only tests in which children differ.
pub(super) struct Hasher {
    pairs: [HashedPair; PAIRS],
    n: usize,
    /// The seed, and the contribution of the other pairs.
    rest: u64,
}

/// Two tests; children differ in the first one.
#[derive(Clone, Copy, Default)]
struct HashedPair {
    a: HashedTest,
    b: HashedTest,
}

#[derive(Clone, Copy, Default)]
struct HashedTest {
    word: Code,
    /// Zero if all children have the same value, which `mix` contains then.
    bits: u64,
    mix: u64,
}

impl HashedTest {
    #[inline(always)]
    fn of(&self, key: &impl Words) -> u64 {
        key.coded(self.word) & self.bits ^ self.mix
    }
}

impl Hasher {
    /// Whether two keys have the same values in all tests in which children differ.
    #[inline(always)]
    pub(super) fn agree(&self, key: &impl Words, other: &impl Words) -> bool {
        let differ = |test: &HashedTest| (key.coded(test.word) ^ other.coded(test.word)) & test.bits;
        let pairs = self.pairs.iter().take(self.n);
        pairs.fold(0, |differ_so_far, pair| {
            let b = if pair.b.bits == 0 { 0 } else { differ(&pair.b) };
            differ_so_far | differ(&pair.a) | b
        }) == 0
    }

    /// See [`Bits::shortcut_hash`].
    #[inline(always)]
    pub(super) fn hash(&self, key: &impl Words) -> u64 {
        let pair = |pair: &HashedPair| {
            let b = if pair.b.bits == 0 { pair.b.mix } else { pair.b.of(key) };
            fold(pair.a.of(key), b)
        };
        let first = &self.pairs[0];
        let mut hash = self.rest ^ if self.n == 0 { 0 } else { pair(first) };
        for other in self.pairs.get(1..self.n).unwrap_or_default() {
            hash ^= pair(other);
        }
        fold(hash, MIX[0])
    }
}

const FREE: Slot = Slot { hash: 0, child: Ref::NONE, shortcut: Ref::NONE };

impl Bits {
    /// A node with one child, whose values are those of `word`. `tests` has at most [`TESTS_MAX`] entries, in the order
    /// of possible splits.
    pub(super) fn new(tests: &[Test], only: Ref, seed: u64, word: impl Fn(usize) -> u64) -> Self {
        let mut node = Self {
            n: 1,
            only,
            only_hash: 0,
            n_tests: tests.len() as u8,
            same: u8::MAX,
            differing: ALL_PAIRS,
            words: [Code::NONE; TESTS_MAX],
            bits: [0; TESTS_MAX],
            seed,
            table: Box::default(),
            values: None,
            chain_head: Ref::NONE,
            path_bits: 0,
        };
        for (i, (word, bits)) in tests.iter().enumerate() {
            (node.words[i], node.bits[i]) = (Code::of((*word).into()), *bits);
        }
        node.only_hash = node.hash(word);
        node
    }

    /// Takes over the position of a node that had these fields.
    pub(super) fn in_place_of(self, chain_head: Ref, path_bits: u64) -> Self {
        Self { chain_head, path_bits, ..self }
    }

    pub(super) fn tests(&self) -> impl Iterator<Item = Test> + '_ {
        (0..usize::from(self.n_tests)).map(|i| (self.word(i) as u8, self.bits[i]))
    }

    /// The word of a test.
    fn word(&self, test: usize) -> usize {
        self.words[test].word().unwrap_or(0)
    }

    /// Records in which tests the values of a new child, by its key's words `new`, differ from the others'; `first`
    /// gives the words of the existing child if it is the only one.
    pub(super) fn note_values(&mut self, first: impl Fn(usize) -> u64, new: impl Fn(usize) -> u64) {
        if self.same & (u8::MAX >> (8 - self.n_tests)) == 0 {
            self.values = None;
            return;
        }
        let words: [usize; TESTS_MAX] = std::array::from_fn(|i| self.word(i));
        let values = self.values.get_or_insert_with(|| Box::new(words.map(first)));
        for i in 0..usize::from(self.n_tests) {
            if (values[i] ^ new(words[i])) & self.bits[i] != 0 {
                self.same &= !(1 << i);
            }
        }
    }

    /// Computes the tests that lookups skip; for two or more children.
    fn settle(&mut self) {
        (self.only_hash, self.differing) = (0, 0);
        for pair in 0..PAIRS {
            // Bits past the last test are zero for all keys.
            match self.values.as_deref().filter(|_| self.same >> (2 * pair) & 3 == 3) {
                Some(values) => self.only_hash ^= self.pair(pair, |i| values[i] & self.bits[i]),
                None => self.differing |= 1 << pair,
            }
        }
    }

    /// Whether all children have the same values in the first `n` tests.
    pub(super) fn all_same(&self, n: usize) -> bool {
        self.same.trailing_ones() as usize >= n
    }

    /// The hash of a key's values. Pairs of words are mixed independently, each by a product with two secret factors.
    #[inline]
    pub(super) fn hash(&self, word: impl Fn(usize) -> u64) -> u64 {
        let masked = |i: usize| if self.bits[i] == 0 { 0 } else { word(self.word(i)) & self.bits[i] };
        let hash = (0..PAIRS).fold(0, |hash, pair| hash ^ self.pair(pair, masked));
        fold(hash ^ self.seed, MIX[0])
    }

    /// The hash of `key`'s child, if it exists; for two or more children.
    #[inline]
    pub(super) fn shortcut_hash(&self, key: &impl Words) -> u64 {
        self.hasher().hash(key)
    }

    /// Prepares [`Bits::shortcut_hash`] for many keys; for two or more children.
    #[inline]
    pub(super) fn hasher(&self) -> Hasher {
        let mut hasher = Hasher { pairs: [HashedPair::default(); PAIRS], n: 0, rest: self.only_hash ^ self.seed };
        for pair in (0..PAIRS).filter(|pair| self.differing >> pair & 1 != 0) {
            let (i, j) = (2 * pair, 2 * pair + 1);
            let (mut a, mut b) = (self.hashed(i, 0), self.hashed(j, 32));
            // One value is the same for all children: the key's other one comes first.
            if self.same >> i & 1 != 0 {
                (a, b) = (b, self.constant(a, i));
            } else if self.same >> j & 1 != 0 {
                b = self.constant(b, j);
            }
            hasher.pairs[hasher.n] = HashedPair { a, b };
            hasher.n += 1;
        }
        hasher
    }

    #[inline]
    fn hashed(&self, test: usize, rotation: u32) -> HashedTest {
        HashedTest { word: self.words[test], bits: self.bits[test], mix: self.seed.rotate_left(rotation) ^ MIX[test] }
    }

    /// A test in which all children have the same value.
    #[inline]
    fn constant(&self, test: HashedTest, i: usize) -> HashedTest {
        // Bits past the last test are zero for all keys.
        let value = self.values.as_deref().map_or(0, |values| values[i] & self.bits[i]);
        HashedTest { word: Code::NONE, bits: 0, mix: test.mix ^ value }
    }

    /// The contribution of two tests to a hash, from a key's masked values. It is zero past the last test.
    #[inline]
    fn pair(&self, pair: usize, masked: impl Fn(usize) -> u64) -> u64 {
        let i = 2 * pair;
        fold(masked(i) ^ self.seed ^ MIX[i], masked(i + 1) ^ self.seed.rotate_left(32) ^ MIX[i + 1])
    }

    /// The child for a hash; for two or more children.
    pub(super) fn find(&self, hash: u64) -> Ref {
        self.slot(hash).map_or(Ref::NONE, |slot| slot.child)
    }

    /// The shortcut of the child for a hash; for two or more children.
    #[inline]
    pub(super) fn find_shortcut(&self, hash: u64) -> Ref {
        self.slot(hash).map_or(Ref::NONE, |slot| slot.shortcut)
    }

    /// The slot of a hash, or a free one.
    #[inline]
    fn slot(&self, hash: u64) -> Option<&Slot> {
        let mask = self.table.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(slot) = self.table.get(at) {
            if slot.hash == hash || slot.child.is_none() {
                return Some(slot);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Sets the shortcut of a child.
    pub(super) fn set_shortcut(&mut self, hash: u64, shortcut: Ref) {
        if let Some(at) = self.position(hash) {
            self.table[at].shortcut = shortcut;
        }
    }

    /// Loads where [`Bits::find`] begins.
    #[inline]
    pub(super) fn touch(&self, hash: u64) -> u64 {
        self.table.get(hash as usize & self.table.len().wrapping_sub(1)).map_or(0, |slot| slot.hash)
    }

    /// The child for a hash, for any number of children.
    pub(super) fn child(&self, hash: u64) -> Ref {
        match self.n {
            1 if self.only_hash == hash => self.only,
            1 => Ref::NONE,
            _ => self.find(hash),
        }
    }

    /// Adds a child with its shortcut. `first` is the shortcut of the existing child if it is the only one.
    pub(super) fn add(&mut self, hash: u64, child: (Ref, Ref), first: Ref) {
        if self.n == 1 {
            self.table = vec![FREE; SLOTS_MIN].into();
            self.put(Slot { hash: self.only_hash, child: self.only, shortcut: first });
        } else if (self.n as usize + 1) * 2 > self.table.len() {
            self.resize(self.table.len() * 2);
        }
        self.put(Slot { hash, child: child.0, shortcut: child.1 });
        self.n += 1;
        self.settle();
    }

    /// Whether adding a child would resize a large table.
    pub(super) fn is_full(&self) -> bool {
        self.n as usize > SMALL && (self.n as usize + 1) * 2 > self.table.len()
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.table, vec![FREE; slots].into());
        for slot in old.into_iter().filter(|s| !s.child.is_none()) {
            self.put(slot);
        }
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.table.len() - 1;
        let mut at = slot.hash as usize & mask;
        while !self.table[at].child.is_none() {
            at = (at + 1) & mask;
        }
        self.table[at] = slot;
    }

    fn position(&self, hash: u64) -> Option<usize> {
        let mask = self.table.len().checked_sub(1)?;
        let mut at = hash as usize & mask;
        while !self.table[at].child.is_none() {
            if self.table[at].hash == hash {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Replaces a child by `new`. (The caller must set its shortcut again.)
    pub(super) fn replace(&mut self, hash: u64, new: Ref) {
        if self.n == 1 {
            self.only = new;
        } else if let Some(at) = self.position(hash) {
            (self.table[at].child, self.table[at].shortcut) = (new, new);
        }
    }

    /// Removes one of at least two children.
    pub(super) fn remove(&mut self, hash: u64) {
        let Some(mut hole) = self.position(hash) else { return };
        let mask = self.table.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Slot { hash, child, .. } = self.table[at];
            if child.is_none() {
                break;
            }
            // An entry may move into the hole unless its hash slot lies between the hole and the entry.
            if (at.wrapping_sub(hash as usize) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.table[hole] = self.table[at];
                hole = at;
            }
        }
        self.table[hole] = FREE;
        self.n -= 1;
        if self.n == 1 {
            let left = self.table.iter().find(|slot| !slot.child.is_none());
            (self.only, self.only_hash) = left.map_or((Ref::NONE, 0), |slot| (slot.child, slot.hash));
            (self.table, self.values) = (Box::default(), None);
        } else if self.table.len() > SLOTS_MIN && (self.n as usize) * 8 < self.table.len() {
            self.resize(self.table.len() / 2);
        }
    }

    pub(super) fn children(&self) -> impl Iterator<Item = Ref> + '_ {
        let only = self.table.is_empty().then_some(self.only);
        only.into_iter().chain(self.table.iter().map(|s| s.child).filter(|c| !c.is_none()))
    }

    /// The children and their shortcuts; for two or more children.
    #[cfg(test)]
    pub(super) fn shortcut(&self) -> impl Iterator<Item = (Ref, Ref)> + '_ {
        self.table.iter().filter(|s| !s.child.is_none()).map(|s| (s.child, s.shortcut))
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.table) + self.values.as_deref().map_or(0, size_of_val)
    }
}
