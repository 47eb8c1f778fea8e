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
    inner: Vec<Places>,
    /// Lengths of the children that stand in the same places of `inner`.
    lens: Vec<[u8; 16]>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Places([Ref; 16]);

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
    /// The child that a word is led to.
    #[inline]
    pub(super) fn find(&self, node: &Prefix, word: u64) -> Ref {
        let value = node.field.value(word);
        let mut at = node.root;
        while at.is_inner() {
            let Some(inner) = self.inner.get(at.inner_index()) else { return Ref::NONE };
            at = inner.0[place(value, at.nibble())];
        }
        at
    }

    /// How `value` stands to the children. `value_of` tells a child's value.
    pub(super) fn probe(&self, node: &Prefix, value: u64, value_of: impl Fn(Ref) -> u64) -> Probe {
        let (mut at, mut len, mut last) = (node.root, node.len, node.root);
        while at.is_inner() {
            last = at;
            let place = place(value, at.nibble());
            len = self.lens[at.inner_index()][place];
            at = self.inner[at.inner_index()].0[place];
        }
        if !at.is_none() {
            let same = common(value, value_of(at));
            return if same >= len.into() { Probe::Covered(at, len.into()) } else { Probe::Apart(same) };
        }
        let same = common(value, value_of(self.any(last)));
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
    /// as near to it as that; or the inner node that it is to stand in.
    pub(super) fn nearest(&self, node: &Prefix, value: u64, apart: u32) -> Ref {
        self.way(node, value, apart).0
    }

    /// [`Tries::nearest`], the length of that child, and the place that refers to it if it is not the root.
    fn way(&self, node: &Prefix, value: u64, apart: u32) -> (Ref, u8, Option<(usize, usize)>) {
        let (mut at, mut len, mut parent) = (node.root, node.len, None);
        while at.is_inner() && at.nibble() < apart / 4 {
            let (inner, place) = (at.inner_index(), place(value, at.nibble()));
            parent = Some((inner, place));
            (at, len) = (self.inner[inner].0[place], self.lens[inner][place]);
        }
        (at, len, parent)
    }

    /// Adds a child with a prefix of `len` bits, which [`Tries::probe`] found to be `apart` from all others; `other` is
    /// a value below [`Tries::nearest`].
    pub(super) fn add(&mut self, node: &mut Prefix, value: u64, len: u32, child: Ref, apart: u32, other: u64) {
        let nibble = apart / 4;
        let (at, at_len, parent) = self.way(node, value, apart);
        let target = if at.is_inner() && at.nibble() == nibble {
            at.inner_index()
        } else {
            let target = self.alloc();
            // All below an inner node agree in the bits before its own.
            let other_len = if at.is_inner() { 64 } else { at_len.into() };
            self.fill(target, places(other, other_len, nibble), at, at_len);
            let new = Ref::inner(target, nibble);
            match parent {
                Some((inner, place)) => self.inner[inner].0[place] = new,
                None => node.root = new,
            }
            target
        };
        self.fill(target, places(value, len, nibble), child, len as u8);
        node.n += 1;
    }

    /// Puts `new` in the place of the child `old`, which has this value.
    pub(super) fn replace(&mut self, node: &mut Prefix, value: u64, old: Ref, new: Ref) {
        if node.root == old {
            node.root = new;
        } else if let Some((inner, _)) = self.holder(node, value, old) {
            for place in self.inner[inner].0.iter_mut().filter(|r| **r == old) {
                *place = new;
            }
        }
    }

    /// Removes a child, of two or more, that has this value.
    pub(super) fn remove(&mut self, node: &mut Prefix, value: u64, child: Ref) {
        let Some((inner, parent)) = self.holder(node, value, child) else { return };
        let mut left = (Ref::NONE, 0);
        let mut several = false;
        for (place, len) in self.inner[inner].0.iter_mut().zip(&self.lens[inner]) {
            if *place == child {
                *place = Ref::NONE;
            } else if !place.is_none() {
                several |= !left.0.is_none() && left.0 != *place;
                left = (*place, *len);
            }
        }
        node.n -= 1;
        if several {
            return;
        }
        match parent {
            Some((inner, place)) => (self.inner[inner].0[place], self.lens[inner][place]) = left,
            None => (node.root, node.len) = left,
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
    pub(super) fn children(&self, node: &Prefix) -> Vec<(Ref, u32)> {
        let (mut children, mut todo) = (Vec::new(), vec![(node.root, node.len)]);
        while let Some((at, len)) = todo.pop() {
            if at.is_inner() {
                let inner = at.inner_index();
                todo.extend(self.inner[inner].0.iter().copied().zip(self.lens[inner]).filter(|(r, _)| !r.is_none()));
            } else if !children.contains(&(at, len.into())) {
                children.push((at, len.into()));
            }
        }
        children
    }

    fn fill(&mut self, inner: usize, places: std::ops::Range<usize>, child: Ref, len: u8) {
        for place in places {
            debug_assert!(self.inner[inner].0[place].is_none(), "prefixes are disjoint");
            (self.inner[inner].0[place], self.lens[inner][place]) = (child, len);
        }
    }

    fn alloc(&mut self) -> usize {
        let empty = Places([Ref::NONE; 16]);
        if let Some(index) = self.free.pop() {
            self.inner[index as usize] = empty;
            return index as usize;
        }
        self.inner.push(empty);
        self.lens.push([0; 16]);
        self.inner.len() - 1
    }

    /// Inner nodes.
    pub(super) fn len(&self) -> usize {
        self.inner.len() - self.free.len()
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.inner.capacity() * (size_of::<Places>() + 16) + self.free.capacity() * size_of::<u32>()
    }
}
