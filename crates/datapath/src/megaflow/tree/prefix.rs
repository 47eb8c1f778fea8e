//! A node that tests a prefix of one field: its children are disjoint prefixes, in a trie that tests four bits a level.
//!
//! An inner node of the trie is a line of memory: sixteen references. Levels in which all children agree are left out,
//! as in a PATRICIA trie, and a child stands at the first level that tells it from the others; what was passed over
//! is compared in the leaf. So a look-up costs a load for each level at which children differ, at most a quarter of
//! the field's bits, and children are added and removed without moving others.
//!
//! Values are aligned to the left: the field's most significant bit is bit 63.

use super::slab::{Kind, Ref};

/// A prefix node. Invariants: `root` is the child itself if there is one child, else an inner node; a child whose length ends within
/// an inner node's four bits stands in all places there that it covers, any other in one place; an inner node has two
/// different children at least.
#[derive(Debug)]
pub(super) struct Prefix {
    /// Children.
    pub(super) n: u32,
    pub(super) root: Ref,
    pub(super) field: PrefixField,
    /// The length of the child at the root.
    len: u8,
}

/// A field that is tested from its most significant bit down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PrefixField {
    pub(super) word: u8,
    pub(super) shift: u8,
    pub(super) width: u8,
}

impl PrefixField {
    /// The field's value of a word, aligned to the left.
    #[inline]
    pub(super) fn value(self, word: u64) -> u64 {
        // As `shift + width` is 1 to 64, the distance is below 64.
        word << ((64 - u32::from(self.shift) - u32::from(self.width)) & 63)
    }

    /// The bits of the field's first `len` bits.
    pub(super) fn bits(self, len: u32) -> u64 {
        if len == 0 { 0 } else { u64::MAX << (64 - len) >> (64 - u32::from(self.shift) - u32::from(self.width)) }
    }

    /// How many of the field's bits from the first on are all in `mask`.
    pub(super) fn len_in(self, mask: u64) -> u32 {
        self.value(mask).leading_ones().min(self.width.into())
    }
}

/// Inner nodes of all prefix nodes.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// Where look-ups go on: all that these read, with `fields`.
    fast: Vec<Places>,
    fields: Vec<PrefixField>,
    inner: Vec<Places>,
    /// Lengths of the children that stand in the same places of `inner`.
    lens: Vec<[u8; 16]>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Places([Ref; 16]);

/// What stands in a place: inner node or child, where look-ups go on from it, and the length of a child.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Ref,
    fast: Ref,
    len: u8,
}

/// How a value stands to the children of a prefix node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Probe {
    /// This child's prefix, of this length, covers it.
    Covered(Ref, u32),
    /// None does; the first so many bits are all that it has in common with the nearest.
    Apart(u32),
}

fn place(value: u64, nibble: u32) -> usize {
    (value >> (60 - 4 * nibble) & 15) as usize
}

/// The places that a prefix covers in an inner node: one, unless it ends within the four bits.
fn places(value: u64, len: u32, nibble: u32) -> std::ops::Range<usize> {
    let n = 1 << (4 * nibble + 4).saturating_sub(len).min(4);
    let first = place(value, nibble) & !(n - 1);
    first..first + n
}

fn common(a: u64, b: u64) -> u32 {
    (a ^ b).leading_zeros()
}

impl Prefix {
    /// A node with one child.
    pub(super) fn new(field: PrefixField, len: u32, only: Ref) -> Self {
        Self { n: 1, root: only, field, len: len as u8 }
    }
}

impl Tries {
    /// Where a look-up that came to an inner node goes on after this one and inner nodes below it. Counts levels.
    #[inline]
    pub(super) fn descend(&self, mut at: Ref, word: impl Fn(usize) -> u64, levels: &mut u64) -> Ref {
        let Some(mut field) = self.fields.get(at.inner_index()).copied() else { return Ref::NONE };
        let mut value = field.value(word(field.word.into()));
        while at.is_inner() {
            let index = at.inner_index();
            let (Some(next), Some(places)) = (self.fields.get(index), self.fast.get(index)) else { return Ref::NONE };
            // Rarely, so that the way down does not wait for it.
            if *next != field {
                field = *next;
                value = field.value(word(field.word.into()));
            }
            at = places.0[place(value, at.nibble())];
            *levels += 1;
        }
        at
    }

    /// The child that a word is led to.
    pub(super) fn find(&self, node: &Prefix, word: u64) -> Ref {
        let value = node.field.value(word);
        let mut at = node.root;
        while at.is_inner() {
            at = self.inner[at.inner_index()].0[place(value, at.nibble())];
        }
        at
    }

    /// Says where look-ups go on from a child of two or more that has this value.
    pub(super) fn set_fast(&mut self, node: &Prefix, value: u64, child: Ref, fast: Ref) {
        if let Some((inner, _)) = self.holder(node, value, child) {
            let places = self.fast[inner].0.iter_mut().zip(self.inner[inner].0);
            places.filter(|(_, at)| *at == child).for_each(|(place, _)| *place = fast);
        }
    }

    /// The child that a value is led to, or any of those where the way ends.
    pub(super) fn toward(&self, node: &Prefix, value: u64) -> Ref {
        let mut at = node.root;
        while at.is_inner() {
            let next = self.inner[at.inner_index()].0[place(value, at.nibble())];
            if next.is_none() {
                return self.any(at);
            }
            at = next;
        }
        at
    }

    /// How `value` stands to the children. `guide` is a value below the one that [`Tries::toward`] finds.
    pub(super) fn probe(&self, node: &Prefix, value: u64, guide: u64) -> Probe {
        let (mut at, mut len, mut last) = (node.root, node.len, node.root);
        while at.is_inner() {
            last = at;
            let place = place(value, at.nibble());
            len = self.lens[at.inner_index()][place];
            at = self.inner[at.inner_index()].0[place];
        }
        if !at.is_none() {
            let same = common(value, guide);
            return if same >= len.into() { Probe::Covered(at, len.into()) } else { Probe::Apart(same) };
        }
        let same = common(value, guide);
        let nibble = last.nibble();
        if same < 4 * nibble {
            return Probe::Apart(same);
        }
        let own = place(value, nibble);
        let taken = self.inner[last.inner_index()].0.iter().enumerate().filter(|(_, r)| !r.is_none());
        let nearest = taken.map(|(other, _)| ((own ^ other) as u8).leading_zeros() - 4).max();
        Probe::Apart(4 * nibble + nearest.unwrap_or(0))
    }

    /// Any child below a reference of a trie.
    pub(super) fn any(&self, mut at: Ref) -> Ref {
        while at.is_inner() {
            let places = &self.inner[at.inner_index()].0;
            at = places.iter().copied().find(|r| !r.is_none()).unwrap_or(Ref::NONE);
        }
        at
    }

    /// What a value that is `apart` from all children is to stand beside: the child or inner node, below which all are
    /// as near to it as that; or the inner node that it is to stand in. And the place that refers to it if it is not the
    /// root.
    fn way(&self, node: &Prefix, value: u64, apart: u32) -> (Entry, Option<(usize, usize)>) {
        let (mut entry, mut parent) = (Entry { at: node.root, fast: node.root, len: node.len }, None);
        while entry.at.is_inner() && entry.at.nibble() < apart / 4 {
            let (inner, place) = (entry.at.inner_index(), place(value, entry.at.nibble()));
            parent = Some((inner, place));
            entry = self.entry(inner, place);
        }
        (entry, parent)
    }

    fn entry(&self, inner: usize, place: usize) -> Entry {
        Entry { at: self.inner[inner].0[place], fast: self.fast[inner].0[place], len: self.lens[inner][place] }
    }

    fn set(&mut self, inner: usize, place: usize, entry: Entry) {
        self.inner[inner].0[place] = entry.at;
        self.fast[inner].0[place] = entry.fast;
        self.lens[inner][place] = entry.len;
    }

    /// Adds a child with a prefix of `len` bits, which [`Tries::probe`] found to be `apart` from all others; `other` is
    /// the value that guided it. Where look-ups go on from the first child of two, and from this one, is to be said
    /// after.
    pub(super) fn add(&mut self, node: &mut Prefix, value: u64, len: u32, child: Ref, apart: u32, other: u64) {
        let nibble = apart / 4;
        let (entry, parent) = self.way(node, value, apart);
        let target = if entry.at.is_inner() && entry.at.nibble() == nibble {
            entry.at.inner_index()
        } else {
            let target = self.alloc(node.field);
            // All below an inner node agree in the bits before its own.
            let other_len = if entry.at.is_inner() { 64 } else { entry.len.into() };
            self.fill(target, places(other, other_len, nibble), entry);
            let new = Ref::inner(target, nibble);
            match parent {
                Some((inner, place)) => self.set(inner, place, Entry { at: new, fast: new, len: 0 }),
                None => node.root = new,
            }
            target
        };
        self.fill(target, places(value, len, nibble), Entry { at: child, fast: child, len: len as u8 });
        node.n += 1;
    }

    /// Puts `new` in the place of the child `old`, which has this value. (Where look-ups go on is to be said again.)
    pub(super) fn replace(&mut self, node: &mut Prefix, value: u64, old: Ref, new: Ref) {
        if node.root == old {
            node.root = new;
        } else if let Some((inner, _)) = self.holder(node, value, old) {
            for place in 0..16 {
                let entry = self.entry(inner, place);
                if entry.at == old {
                    self.set(inner, place, Entry { at: new, fast: new, len: entry.len });
                }
            }
        }
    }

    /// Removes a child, of two or more, that has this value.
    pub(super) fn remove(&mut self, node: &mut Prefix, value: u64, child: Ref) {
        let Some((inner, parent)) = self.holder(node, value, child) else { return };
        let free = Entry { at: Ref::NONE, fast: Ref::NONE, len: 0 };
        let mut left = free;
        let mut several = false;
        for place in 0..16 {
            let entry = self.entry(inner, place);
            if entry.at == child {
                self.set(inner, place, free);
            } else if !entry.at.is_none() {
                several |= !left.at.is_none() && left.at != entry.at;
                left = entry;
            }
        }
        node.n -= 1;
        if several {
            return;
        }
        match parent {
            Some((inner, place)) => self.set(inner, place, left),
            None => (node.root, node.len) = (left.at, left.len),
        }
        self.free.push(inner as u32);
    }

    /// The inner node in which `child` stands, and the place that refers to that node, if it is not the root.
    fn holder(&self, node: &Prefix, value: u64, child: Ref) -> Option<(usize, Option<(usize, usize)>)> {
        let (mut at, mut parent) = (node.root, None);
        while let Kind::Inner(inner) = at.kind() {
            let place = place(value, at.nibble());
            at = self.inner[inner].0[place];
            if at == child {
                return Some((inner, parent));
            }
            parent = Some((inner, place));
        }
        None
    }

    /// All children, with the lengths of their prefixes.
    #[cfg(test)]
    pub(super) fn children(&self, node: &Prefix) -> Vec<(Ref, u32, Ref)> {
        let mut todo = vec![Entry { at: node.root, fast: node.root, len: node.len }];
        let mut children = Vec::new();
        while let Some(Entry { at, fast, len }) = todo.pop() {
            if at.is_inner() {
                assert_eq!(at, fast);
                let entries = (0..16).map(|place| self.entry(at.inner_index(), place));
                todo.extend(entries.filter(|e| !e.at.is_none()));
            } else if !children.contains(&(at, len.into(), fast)) {
                children.push((at, len.into(), fast));
            }
        }
        children
    }

    fn fill(&mut self, inner: usize, places: std::ops::Range<usize>, entry: Entry) {
        for place in places {
            debug_assert!(self.inner[inner].0[place].is_none(), "prefixes are disjoint");
            self.set(inner, place, entry);
        }
    }

    fn alloc(&mut self, field: PrefixField) -> usize {
        let empty = Places([Ref::NONE; 16]);
        let index = self.free.pop().map_or(self.inner.len(), |index| index as usize);
        if index == self.inner.len() {
            self.inner.push(empty);
            self.fast.push(empty);
            self.lens.push([0; 16]);
            self.fields.push(field);
        }
        (self.inner[index], self.fast[index], self.lens[index], self.fields[index]) = (empty, empty, [0; 16], field);
        index
    }

    /// Inner nodes.
    pub(super) fn len(&self) -> usize {
        self.inner.len() - self.free.len()
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.inner.capacity() * (2 * size_of::<Places>() + size_of::<PrefixField>() + 16)
            + self.free.capacity() * size_of::<u32>()
    }
}
