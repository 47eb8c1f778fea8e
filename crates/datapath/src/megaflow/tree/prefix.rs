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
    /// Read by lookups, like `fields`.
    slots: Vec<Slots>,
    fields: Vec<PrefixField>,
    infos: Vec<Info>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slots([Ref; 16]);

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
    pub(super) fn descend(&self, mut at: Ref, word: impl Fn(usize) -> u64, levels: &mut u64) -> Ref {
        let Some(mut field) = self.fields.get(at.inner_index()).copied() else { return Ref::NONE };
        let mut value = field.value(word(field.word.into()));
        while at.is_inner() {
            let index = at.inner_index();
            let (Some(next), Some(slots)) = (self.fields.get(index), self.slots.get(index)) else { return Ref::NONE };
            // A rare branch, so that the descent does not wait for this load.
            if *next != field {
                field = *next;
                value = field.value(word(field.word.into()));
            }
            at = slots.0[slot(value, at.nibble())];
            *levels += 1;
        }
        at
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
            let target = Ref::inner(self.alloc(node, value), nibble);
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

    fn alloc(&mut self, node: &Prefix, value: u64) -> usize {
        let index = self.free.pop().map_or(self.slots.len(), |index| index as usize);
        let slots = Slots([Ref::NONE; 16]);
        let info = Info { value, owner: node.index, lens: [0; 16] };
        if index == self.slots.len() {
            push(&mut self.slots, slots);
            push(&mut self.infos, info);
            push(&mut self.fields, node.field);
        }
        (self.slots[index], self.infos[index], self.fields[index]) = (slots, info, node.field);
        index
    }

    /// Whether an inner node can be added without reallocating large tables.
    pub(super) fn have_room(&self) -> bool {
        let free = self.free.len();
        has_room(&self.slots, free, 1) && has_room(&self.infos, free, 1) && has_room(&self.fields, free, 1)
    }

    /// Inner nodes.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * (size_of::<Slots>() + size_of::<PrefixField>() + size_of::<Info>())
            + self.free.capacity() * size_of::<u32>()
    }
}
