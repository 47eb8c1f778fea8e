//! A node that tests a prefix of one field: its children are disjoint prefixes, in a trie that tests four bits a level.
//!
//! An inner node of the trie is a line of memory: sixteen references. Levels in which all children agree are left out,
//! as in a PATRICIA trie, and a child stands at the first level that tells it from the others; what was passed over
//! is compared in the leaf. So a look-up costs a load for each level at which children differ, at most a quarter of
//! the field's bits, and children are added and removed without moving others.
//!
//! What stands in a place is where look-ups go on. That may lie below the child itself, which the end of the way there
//! knows ([`Prefix::top`]); so an insertion goes down over the same lines of memory as the look-up before it.
//!
//! Values are aligned to the left: the field's most significant bit is bit 63.

use super::slab::Ref;

/// A prefix node. Invariants: `root` is the child itself if there is one child, else an inner node of its own; a child whose
/// length ends within an inner node's four bits stands in all places there that it covers, any other in one place; an
/// inner node has two different children at least.
#[derive(Debug)]
pub(super) struct Prefix {
    /// Children.
    pub(super) n: u32,
    pub(super) root: Ref,
    pub(super) field: PrefixField,
    /// The length of the child at the root.
    len: u8,
    /// Its own number.
    pub(super) index: u32,
    /// If look-ups stop here: the node that they came to, where the ones from there to here are passed over.
    pub(super) top: Ref,
    /// As child of a prefix node: the bits that lead here.
    pub(super) above: u64,
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
    /// All that look-ups read, with `fields`.
    places: Vec<Places>,
    fields: Vec<PrefixField>,
    infos: Vec<Info>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Places([Ref; 16]);

/// What else there is of an inner node.
#[derive(Clone, Copy, Debug)]
struct Info {
    /// The bits that all below have in common, before those that it tests.
    value: u64,
    /// The prefix node.
    owner: u32,
    /// Lengths of the children in its places.
    lens: [u8; 16],
}

/// What stands in a place: an inner node, or where look-ups of a child go on, and the child's length.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Ref,
    len: u8,
}

const FREE: Entry = Entry { at: Ref::NONE, len: 0 };

/// The length of an inner node: it stands in one place.
const INNER: u8 = 64;

/// How a value stands to the children of a prefix node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Probe {
    /// The prefix of a child, of this length, covers it: look-ups go on here.
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
        Self { n: 1, root: only, field, len: len as u8, index: 0, top: Ref::NONE, above: 0 }
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
            let (Some(next), Some(places)) = (self.fields.get(index), self.places.get(index)) else { return Ref::NONE };
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

    /// The prefix node of an inner node.
    pub(super) fn owner(&self, inner: usize) -> usize {
        self.infos[inner].owner as usize
    }

    fn is_own(&self, node: &Prefix, at: Ref) -> bool {
        at.is_inner() && self.infos[at.inner_index()].owner == node.index
    }

    /// The last of a node's inner nodes on the way of a value, with the place before it that refers to it, if that is not
    /// the root. Nothing, if there is one child.
    fn last(&self, node: &Prefix, value: u64) -> Option<(Ref, Option<(usize, usize)>)> {
        let (mut at, mut last, mut parent) = (node.root, None, None);
        while self.is_own(node, at) {
            last = Some((at, parent));
            let here = (at.inner_index(), place(value, at.nibble()));
            parent = Some(here);
            at = self.places[here.0].0[here.1];
        }
        last
    }

    /// Where a look-up of a word goes on; the child itself if there is one.
    pub(super) fn find(&self, node: &Prefix, word: u64) -> Ref {
        let value = node.field.value(word);
        self.last(node, value).map_or(node.root, |(at, _)| self.entry(at, value).at)
    }

    /// Says where look-ups go on from the child that has this value, of two or more.
    pub(super) fn set_fast(&mut self, node: &Prefix, value: u64, fast: Ref) {
        if let Some((at, _)) = self.last(node, value) {
            let len = self.entry(at, value).len;
            self.fill(at, value, Entry { at: fast, len });
        }
    }

    /// How `value` stands to the children. `below` tells the bits that lead to a child, by where look-ups of it go on.
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
        let own = place(value, nibble);
        let taken = self.places[index].0.iter().enumerate().filter(|(_, r)| !r.is_none());
        let nearest = taken.map(|(other, _)| ((own ^ other) as u8).leading_zeros() - 4).max();
        Probe::Apart(4 * nibble + nearest.unwrap_or(0))
    }

    /// Any leaf or node below an inner node.
    pub(super) fn any(&self, mut at: Ref) -> Ref {
        while at.is_inner() {
            let places = &self.places[at.inner_index()].0;
            at = places.iter().copied().find(|r| !r.is_none()).unwrap_or(Ref::NONE);
        }
        at
    }

    /// What stands in the place of a value in an inner node.
    fn entry(&self, inner: Ref, value: u64) -> Entry {
        let (index, place) = (inner.inner_index(), place(value, inner.nibble()));
        Entry { at: self.places[index].0[place], len: self.infos[index].lens[place] }
    }

    fn set(&mut self, inner: usize, place: usize, entry: Entry) {
        self.places[inner].0[place] = entry.at;
        self.infos[inner].lens[place] = entry.len;
    }

    /// Puts a child in all places of an inner node that its prefix covers.
    fn fill(&mut self, inner: Ref, value: u64, entry: Entry) {
        for place in places(value, entry.len.into(), inner.nibble()) {
            self.set(inner.inner_index(), place, entry);
        }
    }

    /// What a value that is `apart` from all children is to stand beside: the child or inner node below which all are as
    /// near to it as that, or the inner node that it is to stand in. And the place that refers to it if it is not the
    /// root.
    fn way(&self, node: &Prefix, value: u64, apart: u32) -> (Entry, Option<(usize, usize)>) {
        let (mut entry, mut parent) = (Entry { at: node.root, len: node.len }, None);
        while self.is_own(node, entry.at) && entry.at.nibble() < apart / 4 {
            parent = Some((entry.at.inner_index(), place(value, entry.at.nibble())));
            entry = self.entry(entry.at, value);
        }
        (entry, parent)
    }

    /// The child that a value is to stand beside, by where look-ups of it go on, if it is a child: whose bits
    /// [`Tries::add`] has to know.
    pub(super) fn beside(&self, node: &Prefix, value: u64, apart: u32) -> Option<Ref> {
        let at = self.way(node, value, apart).0.at;
        (!self.is_own(node, at)).then_some(at)
    }

    /// Adds a child with a prefix of `len` bits, which [`Tries::probe`] found to be `apart` from all others; `other` are
    /// the bits of the child that it is to stand beside. Where look-ups go on from the first child of two, and from this
    /// one, is to be said after.
    pub(super) fn add(&mut self, node: &mut Prefix, (value, len): (u64, u32), child: Ref, apart: u32, other: u64) {
        let nibble = apart / 4;
        let (entry, parent) = self.way(node, value, apart);
        let inner = self.is_own(node, entry.at);
        let target = if inner && entry.at.nibble() == nibble {
            entry.at
        } else {
            // All below an inner node agree in the bits before its own.
            let other = if inner { self.infos[entry.at.inner_index()].value } else { other };
            let entry = if inner { Entry { len: INNER, ..entry } } else { entry };
            let target = Ref::inner(self.alloc(node, value), nibble);
            self.fill(target, other, entry);
            match parent {
                Some((inner, place)) => self.set(inner, place, Entry { at: target, len: INNER }),
                None => node.root = target,
            }
            target
        };
        self.fill(target, value, Entry { at: child, len: len as u8 });
        node.n += 1;
    }

    /// Puts `new` in the place of the child that has this value. (Where look-ups go on is to be said again.)
    pub(super) fn replace(&mut self, node: &mut Prefix, value: u64, new: Ref) {
        if node.n == 1 {
            node.root = new;
        } else {
            self.set_fast(node, value, new);
        }
    }

    /// Removes the child that has this value, of two or more. If one is left, it is told by where look-ups of it go on.
    pub(super) fn remove(&mut self, node: &mut Prefix, value: u64) {
        let Some((at, parent)) = self.last(node, value) else { return };
        let (index, removed) = (at.inner_index(), self.entry(at, value));
        for place in places(value, removed.len.into(), at.nibble()) {
            self.set(index, place, FREE);
        }
        node.n -= 1;
        let (mut left, mut several) = (FREE, false);
        for (at, len) in self.places[index].0.into_iter().zip(self.infos[index].lens) {
            if !at.is_none() {
                several |= !left.at.is_none() && left.at != at;
                left = Entry { at, len };
            }
        }
        if several {
            return;
        }
        match parent {
            Some((inner, place)) => self.set(inner, place, left),
            None => (node.root, node.len) = (left.at, left.len),
        }
        self.free.push(index as u32);
    }

    /// All children by where look-ups go on from them, with the lengths of their prefixes.
    #[cfg(test)]
    pub(super) fn children(&self, node: &Prefix) -> Vec<(Ref, u32)> {
        let mut todo = vec![Entry { at: node.root, len: node.len }];
        let mut children = Vec::new();
        while let Some(Entry { at, len }) = todo.pop() {
            if self.is_own(node, at) {
                let index = at.inner_index();
                let entries = self.places[index].0.into_iter().zip(self.infos[index].lens);
                todo.extend(entries.filter(|(at, _)| !at.is_none()).map(|(at, len)| Entry { at, len }));
            } else if !children.contains(&(at, len.into())) {
                children.push((at, len.into()));
            }
        }
        children
    }

    fn alloc(&mut self, node: &Prefix, value: u64) -> usize {
        let index = self.free.pop().map_or(self.places.len(), |index| index as usize);
        let places = Places([Ref::NONE; 16]);
        let info = Info { value, owner: node.index, lens: [0; 16] };
        if index == self.places.len() {
            self.places.push(places);
            self.infos.push(info);
            self.fields.push(node.field);
        }
        (self.places[index], self.infos[index], self.fields[index]) = (places, info, node.field);
        index
    }

    /// Inner nodes.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * (size_of::<Places>() + size_of::<PrefixField>() + size_of::<Info>())
            + self.free.capacity() * size_of::<u32>()
    }
}
