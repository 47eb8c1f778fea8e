//! A path-compressed binary trie of prefixes, and a walk through it that goes no further than it is asked.
//!
//! A node stands for a prefix; its children for longer ones that begin with it and go on with a 0 or a 1. A prefix may be
//! there several times. Nodes live in one vector, so that a trie costs no allocation a node.
//!
//! Invariants: a node other than one with a count has two children; `max_len` is the length of the longest prefix at or
//! below a node.

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
        }
    };
}

bits!(u32);
bits!(u128);

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node<W> {
    value: W,
    children: [u32; 2],
    /// How often this very prefix is there.
    count: u32,
    len: u8,
    max_len: u8,
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Trie<W> {
    nodes: Vec<Node<W>>,
    root: u32,
    /// Nodes out of use, linked by their first child.
    free: u32,
}

/// How far a key has been followed through a trie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The node that the key leads to if it agrees with it; [`NONE`] when the key has left the trie.
    node: u32,
    /// Bits of the key that are known to agree with `node`.
    agreed: u8,
    /// Bits of the key that were read.
    pub(crate) read: u8,
    /// Which lengths of prefixes were met: bit `len - 1`.
    lens: u128,
}

impl<W: Bits> Trie<W> {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), root: NONE, free: NONE }
    }

    /// Where a walk begins.
    pub(crate) fn start(&self) -> Cursor {
        Cursor { node: self.root, agreed: 0, read: 0, lens: 0 }
    }

    /// Whether a prefix of `len` bits begins the key that `at` has followed, if that can be told without another bit.
    pub(crate) fn known(&self, at: &Cursor, len: u8) -> Option<bool> {
        if len == 0 || at.lens >> (len - 1) & 1 != 0 {
            return Some(true);
        }
        let Some(node) = self.nodes.get(at.node as usize) else {
            return Some(false);
        };
        let passed = if at.agreed < node.len { len < node.len } else { len <= node.len };
        (passed || node.max_len < len).then_some(false)
    }

    /// Whether a prefix of `len` bits begins `key`, the key that `at` has followed, reading on until that can be told.
    pub(crate) fn advance(&self, at: &mut Cursor, key: W, len: u8) -> bool {
        loop {
            if let Some(known) = self.known(at, len) {
                return known;
            }
            let node = self.nodes[at.node as usize];
            if at.agreed < node.len {
                let common = key.common(node.value);
                if common < node.len {
                    at.node = NONE;
                    at.read = common + 1;
                } else {
                    self.agree(at, node.len);
                }
            } else {
                at.node = node.children[key.bit(node.len)];
                self.agree(at, node.len + 1);
            }
        }
    }

    /// The key that `at` follows agrees with its node in `bits` bits.
    fn agree(&self, at: &mut Cursor, bits: u8) {
        at.agreed = bits;
        at.read = bits;
        if self.nodes.get(at.node as usize).is_some_and(|n| n.len == bits && n.count > 0) {
            at.lens |= 1 << (bits - 1);
        }
    }

    /// Adds the prefix of `len` bits, at least 1, of `value`.
    pub(crate) fn insert(&mut self, value: W, len: u8) {
        let value = value.truncated(len);
        let mut link = None;
        loop {
            let i = self.follow(link);
            if i == NONE {
                let leaf = self.allocate(Node { value, children: [NONE; 2], count: 1, len, max_len: len });
                return self.set(link, leaf);
            }
            let node = self.nodes[i as usize];
            let common = value.common(node.value).min(len).min(node.len);
            if common < node.len {
                let mut children = [NONE; 2];
                children[node.value.bit(common)] = i;
                let count = u32::from(common == len);
                if count == 0 {
                    let leaf = Node { value, children: [NONE; 2], count: 1, len, max_len: len };
                    children[value.bit(common)] = self.allocate(leaf);
                }
                let max_len = node.max_len.max(len);
                let fork = Node { value: value.truncated(common), children, count, len: common, max_len };
                let fork = self.allocate(fork);
                return self.set(link, fork);
            }
            let node = &mut self.nodes[i as usize];
            node.max_len = node.max_len.max(len);
            if len == node.len {
                node.count += 1;
                return;
            }
            link = Some((i, value.bit(node.len)));
        }
    }

    /// Removes the prefix of `len` bits of `value`, once.
    pub(crate) fn remove(&mut self, value: W, len: u8) {
        let value = value.truncated(len);
        let mut path = Vec::new();
        let mut link = None;
        loop {
            let i = self.follow(link);
            let Some(node) = self.nodes.get(i as usize).filter(|n| n.len <= len && value.common(n.value) >= n.len)
            else {
                return;
            };
            path.push((link, i));
            if node.len == len {
                break;
            }
            link = Some((i, value.bit(node.len)));
        }
        if let Some((_, i)) = path.last() {
            let node = &mut self.nodes[*i as usize];
            node.count = node.count.saturating_sub(1);
        }
        // Upwards: a node without a count that does not fork goes; the others have a longest prefix below them anew.
        while let Some((link, i)) = path.pop() {
            let node = self.nodes[i as usize];
            match (node.count, node.children) {
                (0, [child, NONE] | [NONE, child]) => {
                    self.set(link, child);
                    self.nodes[i as usize].children[0] = self.free;
                    self.free = i;
                }
                (count, children) => {
                    let own = if count > 0 { node.len } else { 0 };
                    let below = children.map(|c| self.nodes.get(c as usize).map_or(0, |n| n.max_len));
                    self.nodes[i as usize].max_len = own.max(below[0]).max(below[1]);
                }
            }
        }
    }

    /// The node behind a link: a child of a node, or the root.
    fn follow(&self, link: Option<(u32, usize)>) -> u32 {
        link.map_or(self.root, |(i, side)| self.nodes[i as usize].children[side])
    }

    fn set(&mut self, link: Option<(u32, usize)>, to: u32) {
        match link {
            Some((i, side)) => self.nodes[i as usize].children[side] = to,
            None => self.root = to,
        }
    }

    fn allocate(&mut self, node: Node<W>) -> u32 {
        match self.nodes.get_mut(self.free as usize) {
            Some(slot) => {
                let i = self.free;
                self.free = slot.children[0];
                *slot = node;
                i
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl<W: Bits> Trie<W> {
        fn check(&self) -> usize {
            let mut n = 0;
            let mut todo: Vec<u32> = Some(self.root).into_iter().filter(|r| *r != NONE).collect();
            while let Some(i) = todo.pop() {
                let node = &self.nodes[i as usize];
                n += 1;
                let children: Vec<_> = node.children.iter().filter(|c| **c != NONE).collect();
                assert!(node.count > 0 || children.len() == 2);
                let own = if node.count > 0 { node.len } else { 0 };
                let below = children.iter().map(|c| self.nodes[**c as usize].max_len).max().unwrap_or(0);
                assert_eq!(node.max_len, own.max(below));
                for (side, c) in node.children.iter().enumerate().filter(|(_, c)| **c != NONE) {
                    let child = &self.nodes[*c as usize];
                    assert!(child.len > node.len && child.value.truncated(node.len) == node.value);
                    assert_eq!(child.value.bit(node.len), side);
                    todo.push(*c);
                }
            }
            n
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(ops in prop::collection::vec((any::<bool>(), 0..64u32, 1..=32u8), 1..60), keys in prop::collection::vec((0..64u32, prop::collection::vec(1..=32u8, 1..6)), 8)) {
            let mut trie = Trie::<u32>::new();
            let mut list: Vec<(u32, u8)> = Vec::new();
            let spread = |v: u32| v << 26 | (v & 3) << 16 | v & 1;
            for (add, v, len) in ops {
                let prefix = (spread(v).truncated(len), len);
                if add {
                    trie.insert(spread(v), len);
                    list.push(prefix);
                } else if let Some(i) = list.iter().position(|p| *p == prefix) {
                    trie.remove(spread(v), len);
                    list.swap_remove(i);
                } else {
                    trie.remove(spread(v), len);
                }
                let n = trie.check();
                prop_assert!(n <= 2 * list.len(), "nodes are given back");
            }
            for (v, lens) in keys {
                let key = spread(v);
                let mut at = trie.start();
                let mut read = 0;
                for len in lens {
                    let there = |key: u32| list.contains(&(key.truncated(len), len));
                    prop_assert_eq!(trie.advance(&mut at, key, len), there(key));
                    prop_assert_eq!(trie.known(&at, len), Some(there(key)));
                    prop_assert!(at.read >= read);
                    // A longer walk than was asked for was begun before.
                    prop_assert!(at.read <= read.max(len));
                    read = at.read;
                    // The bits that were not read do not matter.
                    let other = key ^ !u32::MAX.truncated(read);
                    prop_assert_eq!(there(other), there(key));
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
}
