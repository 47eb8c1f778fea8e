//! A node that tests a group of bits: its children by a hash of their values.
//!
//! Only hashes of 64 bits are stored and compared, as leaves compare all bits of their flows anyway. The hashes of a node's
//! children are distinct: should two collide when it is split, it gets another seed. A key whose values no child has may be
//! led to a leaf by accident, and does not match it; a flow that is put there by such an accident, whose chance is one in
//! 2^64, is told from the others by what is tested below, or takes the place of one of them, which then has to come again.
//!
//! A look-up leaves out what it need not hash: tests in which all children have the same values ([`Bits::hash_fast`]). A
//! key that has others there is led to one of the children and does not match its leaves.

use base::mix::fold;
use flow::{Code, Words};

use super::slab::Ref;

/// Tests at most; more follow in a node below.
pub(super) const TESTS_MAX: usize = 6;

const SLOTS_MIN: usize = 4;

/// Tests are hashed in pairs.
const PAIRS: usize = TESTS_MAX / 2;
const ALL_PAIRS: u8 = (1 << PAIRS) - 1;
/// What tells the tests of a hash apart.
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

/// See the module's text. Invariants: children are in `table` if there are two or more, and in `only` if there is one;
/// places in `table` up to a child's own are occupied, and at most half of all are.
#[derive(Debug)]
pub(super) struct Bits {
    /// Children.
    pub(super) n: u32,
    /// The child, if there is one.
    pub(super) only: Ref,
    /// The hash of its values. Of two or more children: what the pairs of tests in which all have the same values are for
    /// their hashes.
    pub(super) only_hash: u64,
    n_tests: u8,
    /// A bit for each test in which all children have the same values.
    same: u8,
    /// Of two or more children: a bit for each pair of tests in which they have different values.
    differing: u8,
    words: [Code; TESTS_MAX],
    bits: [u64; TESTS_MAX],
    seed: u64,
    table: Box<[Slot]>,
    /// Of two or more children: the values in tests in which all have the same.
    values: Option<Box<[u64; TESTS_MAX]>>,
    /// See [`super::prefix::Prefix`].
    pub(super) top: Ref,
    /// See [`super::prefix::Prefix`].
    pub(super) above: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    /// None: the place is free.
    child: Ref,
    /// Where look-ups go on.
    fast: Ref,
}

const FREE: Slot = Slot { hash: 0, child: Ref::NONE, fast: Ref::NONE };

impl Bits {
    /// A node with one child, whose values `word` tells. `tests` are at most [`TESTS_MAX`], in the order in which they may
    /// be split.
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
            top: Ref::NONE,
            above: 0,
        };
        for (i, (word, bits)) in tests.iter().enumerate() {
            (node.words[i], node.bits[i]) = (Code::of((*word).into()), *bits);
        }
        node.only_hash = node.hash(word);
        node
    }

    /// Where another node was that had these.
    pub(super) fn in_place_of(self, top: Ref, above: u64) -> Self {
        Self { top, above, ..self }
    }

    pub(super) fn tests(&self) -> impl Iterator<Item = Test> + '_ {
        (0..usize::from(self.n_tests)).map(|i| (self.word(i) as u8, self.bits[i]))
    }

    /// The word of a test.
    fn word(&self, test: usize) -> usize {
        self.words[test].word().unwrap_or(0)
    }

    /// Notes where the values of a new child, whose key's words `new` tells, differ from those of the others; `first` tells
    /// the words of the one that is there, if it is the only one.
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

    /// Sets what look-ups may leave out; of two or more children.
    fn settle(&mut self) {
        (self.only_hash, self.differing) = (0, 0);
        for pair in 0..PAIRS {
            // Past the last test, bits are zero for all.
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

    /// The hash of a key's values. Pairs of words are mixed side by side, each by a product of two factors that nobody
    /// outside knows.
    #[inline]
    pub(super) fn hash(&self, word: impl Fn(usize) -> u64) -> u64 {
        let masked = |i: usize| if self.bits[i] == 0 { 0 } else { word(self.word(i)) & self.bits[i] };
        let hash = (0..PAIRS).fold(0, |hash, pair| hash ^ self.pair(pair, masked));
        fold(hash ^ self.seed, MIX[0])
    }

    /// The hash that the child of `key` has, if there is one; of two or more children.
    #[inline]
    pub(super) fn hash_fast(&self, key: &impl Words) -> u64 {
        let mut hash = self.only_hash;
        for pair in 0..PAIRS {
            if self.differing >> pair & 1 != 0 {
                hash ^= self.pair(pair, |i| key.coded(self.words[i]) & self.bits[i]);
            }
        }
        fold(hash ^ self.seed, MIX[0])
    }

    /// What two tests are for a hash, by what a key has in their bits. Past the last test, that is zero.
    #[inline]
    fn pair(&self, pair: usize, masked: impl Fn(usize) -> u64) -> u64 {
        let i = 2 * pair;
        fold(masked(i) ^ self.seed ^ MIX[i], masked(i + 1) ^ self.seed.rotate_left(32) ^ MIX[i + 1])
    }

    /// The child of a key; of two or more children.
    pub(super) fn find(&self, hash: u64) -> Ref {
        self.slot(hash).map_or(Ref::NONE, |slot| slot.child)
    }

    /// Where a look-up goes on; of two or more children.
    #[inline]
    pub(super) fn find_fast(&self, hash: u64) -> Ref {
        self.slot(hash).map_or(Ref::NONE, |slot| slot.fast)
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

    /// Says where look-ups of a child go on.
    pub(super) fn set_fast(&mut self, hash: u64, fast: Ref) {
        if let Some(at) = self.position(hash) {
            self.table[at].fast = fast;
        }
    }

    /// Loads where [`Bits::find`] begins.
    #[inline]
    pub(super) fn touch(&self, hash: u64) -> u64 {
        self.table.get(hash as usize & self.table.len().wrapping_sub(1)).map_or(0, |slot| slot.hash)
    }

    /// The child that has the values of this hash, of any number.
    pub(super) fn child(&self, hash: u64) -> Ref {
        match self.n {
            1 if self.only_hash == hash => self.only,
            1 => Ref::NONE,
            _ => self.find(hash),
        }
    }

    /// Adds a child, with where look-ups go on from it. `first` is where they go on from the child that is there already,
    /// if it is the only one.
    pub(super) fn add(&mut self, hash: u64, child: (Ref, Ref), first: Ref) {
        if self.n == 1 {
            self.table = vec![FREE; SLOTS_MIN].into();
            self.put(Slot { hash: self.only_hash, child: self.only, fast: first });
        } else if (self.n as usize + 1) * 2 > self.table.len() {
            self.resize(self.table.len() * 2);
        }
        self.put(Slot { hash, child: child.0, fast: child.1 });
        self.n += 1;
        self.settle();
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

    /// Puts `new` in the place of a child. (Where look-ups go on from it is to be said again.)
    pub(super) fn replace(&mut self, hash: u64, new: Ref) {
        if self.n == 1 {
            self.only = new;
        } else if let Some(at) = self.position(hash) {
            (self.table[at].child, self.table[at].fast) = (new, new);
        }
    }

    /// Removes a child of two or more.
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
            // It may move back to the hole unless its own place lies between the two.
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

    /// Children of two or more, with where look-ups go on from them.
    #[cfg(test)]
    pub(super) fn fast(&self) -> impl Iterator<Item = (Ref, Ref)> + '_ {
        self.table.iter().filter(|s| !s.child.is_none()).map(|s| (s.child, s.fast))
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.table) + self.values.as_deref().map_or(0, size_of_val)
    }
}
