//! A path-compressed binary trie of prefixes, and a walk through it that goes no further than it is asked.
//!
//! A node stands for a prefix; below it are longer ones that begin with it, by their next bit. Where few are left, they
//! stand side by side in a bucket: that is what most of the memory and most of the cache misses go to otherwise. A prefix
//! may be there several times.
//!
//! Invariants: a node has two children, or is itself one of the prefixes (`count`); `max_len` is the length of the longest
//! prefix at or below a node; no bucket is empty.

/// Bits of a field, left aligned.
pub(crate) trait Bits: Copy + Eq + std::fmt::Debug {
    /// Takes the upper bits of `value`.
    fn from_top(value: u128) -> Self;
    /// Leading bits in common.
    fn common(self, other: Self) -> u8;
    /// Bit `i`, from the most significant on.
    fn bit(self, i: u8) -> usize;
    /// With all but the first `len` bits cleared.
    fn truncated(self, len: u8) -> Self;
    /// With these bits set.
    #[cfg(test)]
    fn with(self, bits: Self) -> Self;
}

macro_rules! bits {
    ($t:ty) => {
        impl Bits for $t {
            fn from_top(value: u128) -> Self {
                (value >> (128 - Self::BITS)) as Self
            }
            fn common(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }
            fn bit(self, i: u8) -> usize {
                usize::from(self << i >> (Self::BITS - 1) != 0)
            }
            fn truncated(self, len: u8) -> Self {
                if len == 0 { 0 } else { self & Self::MAX << (Self::BITS - u32::from(len)) }
            }
            #[cfg(test)]
            fn with(self, bits: Self) -> Self {
                self | bits
            }
        }
    };
}

bits!(u32);
bits!(u128);

/// Prefixes in a bucket at most. (Few in tests, so that small tables have nodes.)
const SPLIT: usize = if cfg!(test) { 4 } else { 16 };
/// Nodes with no more prefixes below them than this become a bucket again. Well below [`SPLIT`], so that a prefix that
/// comes and goes does not split and merge each time.
const MERGE: usize = SPLIT / 2;

/// What is below: a node, a bucket or nothing. (One word: most of a trie's memory are links.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link(u32);

const NONE: Link = Link(u32::MAX);
const BUCKET: u32 = 1 << 31;

enum Target {
    Nothing,
    Node(usize),
    Bucket(usize),
}

impl Link {
    fn target(self) -> Target {
        match self {
            NONE => Target::Nothing,
            Self(i) if i & BUCKET != 0 => Target::Bucket((i & !BUCKET) as usize),
            Self(i) => Target::Node(i as usize),
        }
    }
}

/// Where a link stands: in a node, on one side; or it is the root.
type Place = Option<(usize, usize)>;

#[derive(Clone, Copy, Debug)]
struct Node<W> {
    value: W,
    children: [Link; 2],
    /// How often this very prefix is there.
    count: u32,
    len: u8,
    max_len: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry<W> {
    value: W,
    count: u32,
    len: u8,
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Trie<W> {
    nodes: Vec<Node<W>>,
    buckets: Vec<Vec<Entry<W>>>,
    root: Link,
    free_nodes: Vec<u32>,
    free_buckets: Vec<u32>,
    /// How many different prefixes there are of each length.
    n_by_len: Vec<u32>,
}

/// How far a key has been followed through a trie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// What the key leads to as far as it was read; nothing when it has left the trie.
    link: Link,
    /// Bits of the key that were read.
    pub(crate) read: u8,
    /// Which lengths of prefixes were met: bit `len - 1`.
    met: u128,
    /// Which were asked for and are not there.
    absent: u128,
}

impl<W: Bits> Trie<W> {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            buckets: Vec::new(),
            root: NONE,
            free_nodes: Vec::new(),
            free_buckets: Vec::new(),
            n_by_len: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.root == NONE && self.n_by_len.iter().all(|n| *n == 0)
    }

    /// How many different prefixes of this length there are.
    pub(crate) fn n_of_len(&self, len: u8) -> u32 {
        self.n_by_len.get(usize::from(len)).copied().unwrap_or(0)
    }

    /// Where a walk begins.
    pub(crate) fn start(&self) -> Cursor {
        Cursor { link: self.root, read: 0, met: 0, absent: 0 }
    }

    /// Whether a prefix of `len` bits, at least 1, begins `key`, the key that `at` has followed, if that can be told
    /// without another bit of it.
    pub(crate) fn known(&self, at: &mut Cursor, key: W, len: u8) -> Option<bool> {
        let bit = 1 << (len - 1);
        if (at.met | at.absent) & bit != 0 {
            return Some(at.met & bit != 0);
        }
        let possible = match at.link.target() {
            Target::Nothing => false,
            Target::Node(i) => {
                let node = &self.nodes[i];
                let passed = if at.read < node.len { len < node.len } else { len <= node.len };
                !passed && node.max_len >= len
            }
            Target::Bucket(b) => {
                let bits = at.read.min(len);
                let there = self.buckets[b].iter().any(|e| e.len == len && key.common(e.value) >= bits);
                if there && len <= at.read {
                    at.met |= bit;
                    return Some(true);
                }
                there
            }
        };
        if possible {
            return None;
        }
        at.absent |= bit;
        Some(false)
    }

    /// Whether a prefix of `len` bits, at least 1, begins `key`, the key that `at` has followed, reading on until that
    /// can be told.
    pub(crate) fn advance(&self, at: &mut Cursor, key: W, len: u8) -> bool {
        let bit = 1 << (len - 1);
        while (at.met | at.absent) & bit == 0 {
            match at.link.target() {
                Target::Nothing => at.absent |= bit,
                Target::Node(i) => {
                    let node = &self.nodes[i];
                    let to_come = if at.read < node.len { len >= node.len } else { len > node.len };
                    if !to_come || node.max_len < len {
                        at.absent |= bit;
                    } else if at.read == node.len {
                        at.link = node.children[key.bit(node.len)];
                        self.agree(at, node.len + 1);
                    } else {
                        let common = key.common(node.value);
                        if common < node.len {
                            at.link = NONE;
                            at.read = common + 1;
                        } else {
                            self.agree(at, node.len);
                        }
                    }
                }
                Target::Bucket(b) => {
                    let entries = self.buckets[b].iter().filter(|e| e.len == len);
                    let common = entries.map(|e| key.common(e.value).min(len)).max();
                    at.read = at.read.max(common.map_or(0, |c| len.min(c + 1)));
                    if common == Some(len) {
                        at.met |= bit;
                    } else {
                        at.absent |= bit;
                    }
                }
            }
        }
        at.met & bit != 0
    }

    /// The key that `at` follows agrees in `bits` bits with what it has come to.
    fn agree(&self, at: &mut Cursor, bits: u8) {
        at.read = bits;
        if let Target::Node(i) = at.link.target()
            && self.nodes[i].len == bits
            && self.nodes[i].count > 0
        {
            at.met |= 1 << (bits - 1);
        }
    }

    /// Adds the prefix of `len` bits, at least 1, of `value`.
    pub(crate) fn insert(&mut self, value: W, len: u8) {
        if self.add(value.truncated(len), len) == 1 {
            let at = usize::from(len);
            self.n_by_len.resize(self.n_by_len.len().max(at + 1), 0);
            self.n_by_len[at] += 1;
        }
    }

    /// Adds a prefix and returns how often it is there now.
    fn add(&mut self, value: W, len: u8) -> u32 {
        let entry = Entry { value, count: 1, len };
        let mut place = None;
        loop {
            match self.follow(place).target() {
                Target::Nothing => {
                    let bucket = self.new_bucket(vec![entry]);
                    self.set(place, bucket);
                    return 1;
                }
                Target::Bucket(b) => {
                    let bucket = &mut self.buckets[b];
                    if let Some(same) = bucket.iter_mut().find(|e| e.value == value && e.len == len) {
                        same.count += 1;
                        return same.count;
                    }
                    bucket.push(entry);
                    if bucket.len() > SPLIT {
                        self.split(place, b);
                    }
                    return 1;
                }
                Target::Node(i) => {
                    let common = value.common(self.nodes[i].value).min(len);
                    if common < self.nodes[i].len {
                        self.fork(place, i, common, entry);
                        return 1;
                    }
                    let node = &mut self.nodes[i];
                    node.max_len = node.max_len.max(len);
                    if len == node.len {
                        node.count += 1;
                        return node.count;
                    }
                    place = Some((i, value.bit(node.len)));
                }
            }
        }
    }

    /// Puts a node above node `i`, which agrees with a new prefix in `common` bits only.
    fn fork(&mut self, place: Place, i: usize, common: u8, entry: Entry<W>) {
        let node = self.nodes[i];
        let mut children = [NONE; 2];
        children[node.value.bit(common)] = Link(i as u32);
        let count = u32::from(common == entry.len);
        if count == 0 {
            children[entry.value.bit(common)] = self.new_bucket(vec![entry]);
        }
        let max_len = node.max_len.max(entry.len);
        let fork = self.new_node(Node { value: entry.value.truncated(common), children, count, len: common, max_len });
        self.set(place, fork);
    }

    /// Makes a node of a bucket that is too full, with a bucket on each side. (Neither is too full: the prefixes differ in
    /// the bit after the node's, or one of them is the node's own.)
    fn split(&mut self, place: Place, b: usize) {
        let entries = std::mem::take(&mut self.buckets[b]);
        self.free_buckets.push(b as u32);
        let Some(first) = entries.first().copied() else { return };
        let len = entries.iter().fold(first.len, |len, e| len.min(e.len).min(first.value.common(e.value)));
        let max_len = entries.iter().map(|e| e.len).max().unwrap_or(0);
        let mut node = Node { value: first.value.truncated(len), children: [NONE; 2], count: 0, len, max_len };
        let mut sides = [Vec::new(), Vec::new()];
        for entry in entries {
            if entry.len == len {
                node.count = entry.count;
            } else {
                sides[entry.value.bit(len)].push(entry);
            }
        }
        node.children = sides.map(|side| if side.is_empty() { NONE } else { self.new_bucket(side) });
        let node = self.new_node(node);
        self.set(place, node);
    }

    /// Removes the prefix of `len` bits of `value`, once.
    pub(crate) fn remove(&mut self, value: W, len: u8) {
        if self.take(value.truncated(len), len) == Some(0) {
            self.n_by_len[usize::from(len)] -= 1;
        }
    }

    /// Removes a prefix once and returns how often it is there still, if it was there.
    fn take(&mut self, value: W, len: u8) -> Option<u32> {
        let left;
        let mut path = Vec::new();
        let mut place = None;
        loop {
            match self.follow(place).target() {
                Target::Nothing => return None,
                Target::Bucket(b) => {
                    let bucket = &mut self.buckets[b];
                    let at = bucket.iter().position(|e| e.value == value && e.len == len)?;
                    bucket[at].count -= 1;
                    left = bucket[at].count;
                    if bucket[at].count == 0 {
                        bucket.swap_remove(at);
                    }
                    if bucket.is_empty() {
                        self.set(place, NONE);
                        self.free_bucket(b);
                    }
                    break;
                }
                Target::Node(i) => {
                    let node = &mut self.nodes[i];
                    if node.len > len || value.common(node.value) < node.len || (node.len == len && node.count == 0) {
                        return None;
                    }
                    path.push((place, i));
                    if node.len == len {
                        node.count -= 1;
                        left = node.count;
                        break;
                    }
                    place = Some((i, value.bit(node.len)));
                }
            }
        }
        while let Some((place, i)) = path.pop() {
            self.tidy(place, i);
        }
        Some(left)
    }

    /// Below node `i` something was removed: the node goes if it does not fork, or becomes a bucket, or has a longest
    /// prefix below it anew.
    fn tidy(&mut self, place: Place, i: usize) {
        let node = self.nodes[i];
        if let (0, [child, NONE] | [NONE, child]) = (node.count, node.children) {
            self.set(place, child);
            self.free_nodes.push(i as u32);
            return;
        }
        let own = (node.count > 0).then_some(Entry { value: node.value, count: node.count, len: node.len });
        let mut below = 0;
        let mut max_len = own.map_or(0, |e| e.len);
        for child in node.children {
            match child.target() {
                Target::Nothing => {}
                Target::Node(c) => {
                    below = usize::MAX;
                    max_len = max_len.max(self.nodes[c].max_len);
                }
                Target::Bucket(b) => {
                    below = self.buckets[b].len().saturating_add(below);
                    max_len = self.buckets[b].iter().fold(max_len, |m, e| m.max(e.len));
                }
            }
        }
        if below > MERGE - 1 {
            self.nodes[i].max_len = max_len;
            return;
        }
        let mut entries: Vec<_> = own.into_iter().collect();
        for child in node.children {
            if let Target::Bucket(b) = child.target() {
                entries.append(&mut self.buckets[b]);
                self.free_bucket(b);
            }
        }
        self.free_nodes.push(i as u32);
        let bucket = self.new_bucket(entries);
        self.set(place, bucket);
    }

    fn follow(&self, place: Place) -> Link {
        place.map_or(self.root, |(i, side)| self.nodes[i].children[side])
    }

    fn set(&mut self, place: Place, to: Link) {
        match place {
            Some((i, side)) => self.nodes[i].children[side] = to,
            None => self.root = to,
        }
    }

    fn new_node(&mut self, node: Node<W>) -> Link {
        let i = self.free_nodes.pop().unwrap_or(self.nodes.len() as u32);
        match self.nodes.get_mut(i as usize) {
            Some(slot) => *slot = node,
            None => self.nodes.push(node),
        }
        Link(i)
    }

    fn new_bucket(&mut self, entries: Vec<Entry<W>>) -> Link {
        let b = self.free_buckets.pop().unwrap_or(self.buckets.len() as u32);
        match self.buckets.get_mut(b as usize) {
            Some(slot) => *slot = entries,
            None => self.buckets.push(entries),
        }
        Link(b | BUCKET)
    }

    fn free_bucket(&mut self, b: usize) {
        self.buckets[b] = Vec::new();
        self.free_buckets.push(b as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl<W: Bits> Trie<W> {
        /// Checks the invariants; returns how many nodes and buckets are in use, and how many prefixes there are.
        fn check(&self) -> (usize, usize, usize) {
            let (mut nodes, mut buckets, mut prefixes) = (0, 0, 0);
            let mut todo = vec![(self.root, W::from_top(0), 0)];
            while let Some((link, value, len)) = todo.pop() {
                match link.target() {
                    Target::Nothing => {}
                    Target::Node(i) => {
                        let node = &self.nodes[i];
                        nodes += 1;
                        prefixes += usize::from(node.count > 0);
                        assert!(node.len >= len && node.value.common(value) >= len);
                        assert!(node.count > 0 || !node.children.contains(&NONE));
                        let own = if node.count > 0 { node.len } else { 0 };
                        assert_eq!(
                            node.max_len,
                            own.max(self.max_len(node.children[0])).max(self.max_len(node.children[1]))
                        );
                        for (side, child) in node.children.iter().enumerate() {
                            let top = W::from_top((side as u128) << (127 - node.len));
                            todo.push((*child, node.value.with(top), node.len + 1));
                        }
                    }
                    Target::Bucket(b) => {
                        let bucket = &self.buckets[b];
                        buckets += 1;
                        prefixes += bucket.len();
                        assert!(!bucket.is_empty() && bucket.len() <= SPLIT);
                        assert!(bucket.iter().all(|e| e.count > 0 && e.len >= len && e.value.common(value) >= len));
                    }
                }
            }
            assert_eq!(nodes + self.free_nodes.len(), self.nodes.len());
            assert_eq!(buckets + self.free_buckets.len(), self.buckets.len());
            (nodes, buckets, prefixes)
        }

        fn max_len(&self, link: Link) -> u8 {
            match link.target() {
                Target::Nothing => 0,
                Target::Node(i) => self.nodes[i].max_len,
                Target::Bucket(b) => self.buckets[b].iter().map(|e| e.len).max().unwrap_or(0),
            }
        }
    }

    tally::proptest! {
        #[test]
        fn agrees_with_a_list(
            ops in prop::collection::vec((0..5u8, any::<u8>(), 1..=32u8), 1..300),
            keys in prop::collection::vec((any::<u8>(), 0..64u32, prop::collection::vec(1..=32u8, 1..6)), 8),
        ) {
            let mut trie = Trie::<u32>::new();
            let mut list: Vec<(u32, u8)> = Vec::new();
            // Values that share parts at the upper end and at the lower.
            let spread = |v: u8| u32::from(v) << 24 & 0xc300_0000 | u32::from(v & 0x1c) << 11 | u32::from(v & 3) << 4;
            let fill = ops.len() / 2;
            for (n, (kind, v, len)) in ops.into_iter().enumerate() {
                let prefix = (spread(v).truncated(len), len);
                // More is added in the first half, more removed in the second.
                if (kind < 4) == (n < fill) {
                    trie.insert(spread(v), len);
                    list.push(prefix);
                } else if let Some(i) = list.iter().position(|p| *p == prefix).or(list.len().checked_sub(1)) {
                    let (value, len) = list.swap_remove(i);
                    trie.remove(value, len);
                } else {
                    trie.remove(spread(v), len);
                }
                trie.check();
            }
            let mut distinct = list.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let (nodes, buckets, prefixes) = trie.check();
            prop_assert_eq!(prefixes, distinct.len());
            prop_assert!(buckets <= nodes + 1);
            for len in 1..=32 {
                prop_assert_eq!(trie.n_of_len(len) as usize, distinct.iter().filter(|(_, l)| *l == len).count());
            }
            for (v, flip, lens) in keys {
                let key = spread(v) ^ 1u32.checked_shl(flip).unwrap_or(0);
                let mut at = trie.start();
                let mut read = 0;
                for len in lens {
                    let there = |key: u32| list.contains(&(key.truncated(len), len));
                    prop_assert_eq!(trie.advance(&mut at, key, len), there(key));
                    prop_assert_eq!(trie.known(&mut at.clone(), key, len), Some(there(key)));
                    prop_assert!(at.read >= read && at.read <= read.max(len));
                    read = at.read;
                    // The bits that were not read do not matter.
                    let other = key ^ !u32::MAX.truncated(read);
                    prop_assert_eq!(there(other), there(key));
                    prop_assert_eq!(trie.known(&mut at.clone(), other, len), Some(there(key)));
                }
            }
        }
    }

    #[test]
    fn wide_prefixes() {
        let mut trie = Trie::<u128>::new();
        trie.insert(u128::MAX, 128);
        trie.insert(u128::MAX, 64);
        let mut at = trie.start();
        assert!(!trie.advance(&mut at, u128::MAX - 1, 128));
        assert_eq!(at.read, 128);
        assert!(trie.advance(&mut at, u128::MAX - 1, 64));
        trie.remove(u128::MAX, 128);
        let mut at = trie.start();
        assert!(!trie.advance(&mut at, u128::MAX, 128));
        assert_eq!(at.read, 0);
    }

    #[test]
    fn nodes_and_buckets_are_given_back() {
        let mut trie = Trie::<u128>::new();
        let value = |i: u128| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (0..1000).for_each(|i| trie.insert(value(i), 100));
        let (_, buckets, prefixes) = trie.check();
        assert!(prefixes == 1000 && buckets < 2 * 1000 / SPLIT);
        (0..1000).for_each(|i| trie.remove(value(i), 100));
        assert_eq!(trie.check(), (0, 0, 0));
        assert_eq!(trie.root, NONE);
    }
}
