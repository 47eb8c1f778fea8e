//! A node that tests a prefix of a field: its children are disjoint prefixes, in a trie with a stride of four bits.
//!
//! An inner node of the trie is one cache line of sixteen references. As in a PATRICIA trie, levels in which all
//! children agree are left out, and a child is stored at the first level that separates it from the others; the leaf
//! compares the skipped bits. So a lookup costs one load for each level at which children differ, at most a quarter of
//! the field's bits, and children are added and removed without moving others.
//!
//! A slot stores a child's shortcut. It may skip nodes below the child; the node at its end refers back to the child
//! ([`Prefix::chain_head`]), so that an insertion touches the same cache lines as the lookup before it.
//!
//! Values are left aligned: the field's most significant bit is bit 63.

use flow::{Code, Words};

use super::super::{BATCH, places};
use super::slab::{Ref, has_room, push};

/// A prefix node. Invariants: `root` is the child itself if there is one child, otherwise an inner node of this prefix
/// node; a child whose prefix ends within an inner node's four bits occupies all slots that it covers, any other child
/// one slot; an inner node has at least two different children.
#[derive(Debug)]
pub(super) struct Prefix {
    /// Children.
    pub(super) n: u32,
    pub(super) root: Ref,
    pub(super) field: PrefixField,
    /// The prefix length of the child at the root.
    len: u8,
    /// Its own number.
    pub(super) index: u32,
    /// If a shortcut ends here: the child at its start, the first of the nodes that it skips.
    pub(super) chain_head: Ref,
    /// If this node is a child of a prefix node: the bits on the path to it.
    pub(super) path_bits: u64,
}

/// A field that is tested from its most significant bit down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PrefixField {
    pub(super) word: u8,
    pub(super) shift: u8,
    pub(super) width: u8,
}

impl PrefixField {
    /// The field's value in a word, left aligned.
    #[inline]
    pub(super) fn value(self, word: u64) -> u64 {
        // `shift + width` is 1 to 64, so the shift amount is below 64.
        word << ((64 - u32::from(self.shift) - u32::from(self.width)) & 63)
    }

    /// The mask of the field's first `len` bits.
    pub(super) fn bits(self, len: u32) -> u64 {
        if len == 0 { 0 } else { u64::MAX << (64 - len) >> (64 - u32::from(self.shift) - u32::from(self.width)) }
    }

    /// Number of the field's leading bits that are in `mask`.
    pub(super) fn len_in(self, mask: u64) -> u32 {
        self.value(mask).leading_ones().min(self.width.into())
    }
}

/// The inner nodes of all prefix nodes.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// Read by lookups, like `digits`.
    slots: Vec<Slots>,
    digits: Vec<Digits>,
    infos: Vec<Info>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slots([Ref; 16]);

/// Where an inner node finds the four bits that it tests: at the lower end of a word of the key, rotated. If the field ends
/// within the four, the bits behind it do not matter, as children then occupy all slots that their prefixes cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digits {
    word: Code,
    turn: u8,
}

impl Digits {
    fn of(field: PrefixField, nibble: u32) -> Self {
        let above = 64 - u32::from(field.shift) - u32::from(field.width);
        Self { word: Code::of(field.word.into()), turn: (60u32.wrapping_sub(above + 4 * nibble) % 64) as u8 }
    }

    #[inline(always)]
    fn slot(self, key: &impl Words) -> usize {
        key.coded(self.word).rotate_right(self.turn.into()) as usize & 15
    }
}

/// The fields of an inner node that lookups do not need.
#[derive(Clone, Copy, Debug)]
struct Info {
    /// The common bits of all children, before the bits that it tests.
    value: u64,
    /// The prefix node.
    owner: u32,
    /// Prefix lengths of the children in its slots.
    lens: [u8; 16],
}

/// The content of a slot: an inner node, or a child's shortcut, with the child's prefix length.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Ref,
    len: u8,
}

const FREE: Entry = Entry { at: Ref::NONE, len: 0 };

/// The length of an inner node, which occupies one slot.
const INNER: u8 = 64;

/// The relation of a value to the children of a prefix node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Probe {
    /// A child's prefix of this length covers the value; this is its shortcut.
    Covered(Ref, u32),
    /// No child covers it; this is the number of leading bits that it shares with the nearest child.
    Apart(u32),
}

/// The state of [`Tries::descend_batch`]. Noting a reference takes no branch.
struct Arrivals {
    /// The first `n` are the positions of the keys that are at inner nodes.
    inside: [u8; BATCH],
    n: usize,
    /// See [`Ref::not_node`].
    not_nodes: u32,
}

impl Arrivals {
    #[inline(always)]
    fn note(&mut self, i: usize, at: Ref) {
        self.inside[self.n % BATCH] = i as u8;
        self.n += usize::from(at.is_inner());
        self.not_nodes &= at.not_node();
    }
}

fn slot(value: u64, nibble: u32) -> usize {
    (value >> (60 - 4 * nibble) & 15) as usize
}

/// The slots that a prefix covers in an inner node: one, unless it ends within the four bits.
fn slots(value: u64, len: u32, nibble: u32) -> std::ops::Range<usize> {
    let n = 1 << (4 * nibble + 4).saturating_sub(len).min(4);
    let first = slot(value, nibble) & !(n - 1);
    first..first + n
}

fn common(a: u64, b: u64) -> u32 {
    (a ^ b).leading_zeros()
}

impl Prefix {
    /// A node with one child.
    pub(super) fn new(field: PrefixField, len: u32, only: Ref) -> Self {
        Self { n: 1, root: only, field, len: len as u8, index: 0, chain_head: Ref::NONE, path_bits: 0 }
    }
}

impl Tries {
    /// The reference that a lookup reaches from an inner node through it and inner nodes below it. Counts levels.
    #[inline]
    pub(super) fn descend(&self, mut at: Ref, key: &impl Words, levels: &mut u64) -> Ref {
        while at.is_inner() {
            at = self.step(at, key);
            *levels += 1;
        }
        at
    }

    /// The fields of an inner node that lookups read.
    #[inline(always)]
    fn inner(&self, at: Ref) -> Option<(Digits, &Slots)> {
        let index = at.inner_index();
        Some((*self.digits.get(index)?, self.slots.get(index)?))
    }

    /// The content of a key's slot in an inner node.
    #[inline(always)]
    fn step(&self, at: Ref, key: &impl Words) -> Ref {
        self.inner(at).map_or(Ref::NONE, |(digits, slots)| slots.0[digits.slot(key)])
    }

    /// Like [`Tries::descend`], for the keys at positions `walking`, starting at their references in `at`; with `together`,
    /// these are equal. Keys that are not at inner nodes keep their references. Counts levels. Returns the positions of the
    /// keys that are then at nodes.
    ///
    /// All keys go down one level at a time, so that no branch depends on the number of levels of a single key: it would
    /// be mispredicted for most packets, which costs more than a level.
    #[inline(always)]
    pub(super) fn descend_batch<K: Words>(
        &self,
        keys: &[K; BATCH],
        (walking, together): (u32, bool),
        at: &mut [Ref; BATCH],
        levels: &mut u64,
    ) -> u32 {
        let mut arrivals = Arrivals { inside: [0; BATCH], n: 0, not_nodes: u32::MAX };
        if together
            && let Some(first) = places(walking).next()
            && let Some((digits, slots)) = self.inner(at[first])
        {
            *levels += u64::from(walking.count_ones());
            for i in places(walking) {
                at[i] = slots.0[digits.slot(&keys[i])];
                arrivals.note(i, at[i]);
            }
        } else {
            places(walking).for_each(|i| arrivals.note(i, at[i]));
        }
        while arrivals.n > 0 {
            let n = std::mem::take(&mut arrivals.n).min(BATCH);
            *levels += n as u64;
            for j in 0..n {
                let i = usize::from(arrivals.inside[j]) % BATCH;
                at[i] = self.step(at[i], &keys[i]);
                arrivals.note(i, at[i]);
            }
        }
        if arrivals.not_nodes >> 31 == 1 {
            return 0;
        }
        places(walking).filter(|i| !at[*i].is_end()).fold(0, |set, i| set | 1 << i)
    }

    /// The prefix node of an inner node.
    pub(super) fn owner(&self, inner: usize) -> usize {
        self.infos[inner].owner as usize
    }

    fn is_own(&self, node: &Prefix, at: Ref) -> bool {
        at.is_inner() && self.infos[at.inner_index()].owner == node.index
    }

    /// The last of a node's inner nodes on the path of a value, with the slot that refers to it unless it is the root.
    /// `None` if there is one child.
    fn last(&self, node: &Prefix, value: u64) -> Option<(Ref, Option<(usize, usize)>)> {
        let (mut at, mut last, mut parent) = (node.root, None, None);
        while self.is_own(node, at) {
            last = Some((at, parent));
            let here = (at.inner_index(), slot(value, at.nibble()));
            parent = Some(here);
            at = self.slots[here.0].0[here.1];
        }
        last
    }

    /// The shortcut for a word; the child itself if there is one child.
    pub(super) fn find(&self, node: &Prefix, word: u64) -> Ref {
        let value = node.field.value(word);
        self.last(node, value).map_or(node.root, |(at, _)| self.entry(at, value).at)
    }

    /// Sets the shortcut of the child with this value; for two or more children.
    pub(super) fn set_shortcut(&mut self, node: &Prefix, value: u64, shortcut: Ref) {
        if let Some((at, _)) = self.last(node, value) {
            let len = self.entry(at, value).len;
            self.fill(at, value, Entry { at: shortcut, len });
        }
    }

    /// The relation of `value` to the children. `below` returns the bits on the path to a child, given by its shortcut.
    pub(super) fn probe(&self, node: &Prefix, value: u64, below: impl Fn(Ref) -> u64) -> Probe {
        let last = self.last(node, value);
        let Entry { at, len } = last.map_or(Entry { at: node.root, len: node.len }, |(at, _)| self.entry(at, value));
        if !at.is_none() {
            let same = common(value, below(at));
            return if same >= len.into() { Probe::Covered(at, len.into()) } else { Probe::Apart(same) };
        }
        let Some((last, _)) = last else { return Probe::Apart(0) };
        let (nibble, index) = (last.nibble(), last.inner_index());
        let same = common(value, self.infos[index].value);
        if same < 4 * nibble {
            return Probe::Apart(same);
        }
        let own = slot(value, nibble);
        let taken = self.slots[index].0.iter().enumerate().filter(|(_, r)| !r.is_none());
        let nearest = taken.map(|(other, _)| ((own ^ other) as u8).leading_zeros() - 4).max();
        Probe::Apart(4 * nibble + nearest.unwrap_or(0))
    }

    /// Any leaf or node below an inner node.
    pub(super) fn any(&self, mut at: Ref) -> Ref {
        while at.is_inner() {
            let slots = &self.slots[at.inner_index()].0;
            at = slots.iter().copied().find(|r| !r.is_none()).unwrap_or(Ref::NONE);
        }
        at
    }

    /// The content of a value's slot in an inner node.
    fn entry(&self, inner: Ref, value: u64) -> Entry {
        let (index, slot) = (inner.inner_index(), slot(value, inner.nibble()));
        Entry { at: self.slots[index].0[slot], len: self.infos[index].lens[slot] }
    }

    fn set(&mut self, inner: usize, slot: usize, entry: Entry) {
        self.slots[inner].0[slot] = entry.at;
        self.infos[inner].lens[slot] = entry.len;
    }

    /// Stores a child in all slots of an inner node that its prefix covers.
    fn fill(&mut self, inner: Ref, value: u64, entry: Entry) {
        for slot in slots(value, entry.len.into(), inner.nibble()) {
            self.set(inner.inner_index(), slot, entry);
        }
    }

    /// The future sibling of a value that shares `apart` bits with the nearest child: the child or inner node whose
    /// children all share that many, or the inner node that will hold the value. Also returns the slot that refers to
    /// it, unless it is the root.
    fn way(&self, node: &Prefix, value: u64, apart: u32) -> (Entry, Option<(usize, usize)>) {
        let (mut entry, mut parent) = (Entry { at: node.root, len: node.len }, None);
        while self.is_own(node, entry.at) && entry.at.nibble() < apart / 4 {
            parent = Some((entry.at.inner_index(), slot(value, entry.at.nibble())));
            entry = self.entry(entry.at, value);
        }
        (entry, parent)
    }

    /// The shortcut of the future sibling of a value, if that is a child. [`Tries::add`] needs its bits.
    pub(super) fn beside(&self, node: &Prefix, value: u64, apart: u32) -> Option<Ref> {
        let at = self.way(node, value, apart).0.at;
        (!self.is_own(node, at)).then_some(at)
    }

    /// Adds a child with a prefix of `len` bits. By [`Tries::probe`] it shares `apart` bits with the nearest child;
    /// `other` are the bits of its future sibling. The caller must then set the shortcuts of this child and, if it is
    /// the second, of the first.
    pub(super) fn add(&mut self, node: &mut Prefix, (value, len): (u64, u32), child: Ref, apart: u32, other: u64) {
        let nibble = apart / 4;
        let (entry, parent) = self.way(node, value, apart);
        let inner = self.is_own(node, entry.at);
        let target = if inner && entry.at.nibble() == nibble {
            entry.at
        } else {
            // All children of an inner node agree in the bits before its own.
            let other = if inner { self.infos[entry.at.inner_index()].value } else { other };
            let entry = if inner { Entry { len: INNER, ..entry } } else { entry };
            let target = Ref::inner(self.alloc(node, value, nibble), nibble);
            self.fill(target, other, entry);
            match parent {
                Some((inner, slot)) => self.set(inner, slot, Entry { at: target, len: INNER }),
                None => node.root = target,
            }
            target
        };
        self.fill(target, value, Entry { at: child, len: len as u8 });
        node.n += 1;
    }

    /// Replaces the child with this value by `new`. (The caller must set its shortcut again.)
    pub(super) fn replace(&mut self, node: &mut Prefix, value: u64, new: Ref) {
        if node.n == 1 {
            node.root = new;
        } else {
            self.set_shortcut(node, value, new);
        }
    }

    /// Removes the child with this value, one of at least two. If one is left, `root` is its shortcut.
    pub(super) fn remove(&mut self, node: &mut Prefix, value: u64) {
        let Some((at, parent)) = self.last(node, value) else { return };
        let (index, removed) = (at.inner_index(), self.entry(at, value));
        for slot in slots(value, removed.len.into(), at.nibble()) {
            self.set(index, slot, FREE);
        }
        node.n -= 1;
        let (mut left, mut several) = (FREE, false);
        for (at, len) in self.slots[index].0.into_iter().zip(self.infos[index].lens) {
            if !at.is_none() {
                several |= !left.at.is_none() && left.at != at;
                left = Entry { at, len };
            }
        }
        if several {
            return;
        }
        match parent {
            Some((inner, slot)) => self.set(inner, slot, left),
            None => (node.root, node.len) = (left.at, left.len),
        }
        self.free.push(index as u32);
    }

    /// The shortcuts of all children, with their prefix lengths.
    #[cfg(test)]
    pub(super) fn children(&self, node: &Prefix) -> Vec<(Ref, u32)> {
        let mut todo = vec![Entry { at: node.root, len: node.len }];
        let mut children = Vec::new();
        while let Some(Entry { at, len }) = todo.pop() {
            if self.is_own(node, at) {
                let index = at.inner_index();
                let entries = self.slots[index].0.into_iter().zip(self.infos[index].lens);
                todo.extend(entries.filter(|(at, _)| !at.is_none()).map(|(at, len)| Entry { at, len }));
            } else if !children.contains(&(at, len.into())) {
                children.push((at, len.into()));
            }
        }
        children
    }

    fn alloc(&mut self, node: &Prefix, value: u64, nibble: u32) -> usize {
        let index = self.free.pop().map_or(self.slots.len(), |index| index as usize);
        let slots = Slots([Ref::NONE; 16]);
        let (info, digits) = (Info { value, owner: node.index, lens: [0; 16] }, Digits::of(node.field, nibble));
        if index == self.slots.len() {
            push(&mut self.slots, slots);
            push(&mut self.infos, info);
            push(&mut self.digits, digits);
        }
        (self.slots[index], self.infos[index], self.digits[index]) = (slots, info, digits);
        index
    }

    /// Whether an inner node can be added without reallocating large tables.
    pub(super) fn have_room(&self) -> bool {
        let free = self.free.len();
        has_room(&self.slots, free, 1) && has_room(&self.infos, free, 1) && has_room(&self.digits, free, 1)
    }

    /// Inner nodes.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * (size_of::<Slots>() + size_of::<Digits>() + size_of::<Info>())
            + self.free.capacity() * size_of::<u32>()
    }
}
