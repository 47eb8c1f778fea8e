//! Longest-prefix match in a path-compressed binary trie.
//!
//! A lookup reports how many leading bits of the address it has consulted: all addresses with the same leading bits get
//! the same result, so the mask of a cached flow needs no more of them. The nodes are in one array, and a path visits
//! each prefix that contains the address, shortest first.
//!
//! Invariants: a node's bits behind its length are zero; a child is longer than its parent and agrees with it; apart
//! from the two roots, a node has a value or two children.

use std::net::IpAddr;

use crate::prefix::{Prefix, bits, mask, width};

/// No child.
const NONE: u32 = u32::MAX;
/// The roots: the empty prefix of each family.
const ROOTS: usize = 2;

#[derive(Clone, Debug)]
struct Node<V> {
    bits: u128,
    len: u8,
    children: [u32; 2],
    value: Option<V>,
}

impl<V> Node<V> {
    fn new(bits: u128, len: u8, value: Option<V>) -> Self {
        Self { bits: bits & mask(len), len, children: [NONE; 2], value }
    }

    /// Which child has addresses with these bits.
    fn side(&self, bits: u128) -> usize {
        bit(bits, self.len)
    }

    /// The leading bits that agree with these, at most the node's own.
    fn common(&self, bits: u128) -> u8 {
        ((self.bits ^ bits).leading_zeros() as u8).min(self.len)
    }
}

/// The bit at a position from the left.
fn bit(bits: u128, at: u8) -> usize {
    (bits << at.min(127) >> 127) as usize
}

/// A map from prefixes of both families to values.
#[derive(Clone, Debug)]
pub struct Trie<V> {
    nodes: Vec<Node<V>>,
    free: Vec<u32>,
    len: usize,
}

impl<V> Default for Trie<V> {
    fn default() -> Self {
        Self { nodes: (0..ROOTS).map(|_| Node::new(0, 0, None)).collect(), free: Vec::new(), len: 0 }
    }
}

/// The root of an address's family.
fn root(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

impl<V> Trie<V> {
    /// The number of prefixes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Calls `visit` for each prefix that contains the address, shortest first. Returns how many leading bits of the
    /// address were consulted.
    pub fn walk<'a>(&'a self, address: IpAddr, mut visit: impl FnMut(u8, &'a V)) -> u8 {
        let key = bits(address);
        let mut node = &self.nodes[root(address)];
        loop {
            if let Some(value) = &node.value {
                visit(node.len, value);
            }
            if node.children == [NONE; 2] {
                return node.len;
            }
            // The bit behind the node selects a child.
            let child = node.children[node.side(key)];
            if child == NONE {
                return node.len + 1;
            }
            let child = &self.nodes[child as usize];
            let common = child.common(key);
            if common < child.len {
                return common + 1;
            }
            node = child;
        }
    }

    /// The longest prefix that contains the address, with its value, and how many leading bits of the address were
    /// consulted.
    pub fn lookup(&self, address: IpAddr) -> (Option<(Prefix, &V)>, u8) {
        let mut best = None;
        let consulted = self.walk(address, |len, value| best = Some((len, value)));
        let best = best.map(|(len, value)| (Prefix::from_bits(address.is_ipv4(), bits(address), len), value));
        (best, consulted)
    }

    /// The value of exactly this prefix.
    pub fn get(&self, prefix: Prefix) -> Option<&V> {
        self.nodes[self.path(prefix)?.0].value.as_ref()
    }

    /// The value of exactly this prefix, to be changed.
    pub fn get_mut(&mut self, prefix: Prefix) -> Option<&mut V> {
        let at = self.path(prefix)?.0;
        self.nodes[at].value.as_mut()
    }

    /// Sets the value of a prefix. Returns the earlier one.
    pub fn insert(&mut self, prefix: Prefix, value: V) -> Option<V> {
        let at = self.make(prefix);
        let earlier = self.nodes[at].value.replace(value);
        self.len += usize::from(earlier.is_none());
        earlier
    }

    /// Removes a prefix. Returns its value.
    pub fn remove(&mut self, prefix: Prefix) -> Option<V> {
        let (at, parents) = self.path(prefix)?;
        let value = self.nodes[at].value.take()?;
        self.len -= 1;
        self.contract(at, parents[0]);
        if let [Some(parent), grandparent] = parents {
            self.contract(parent, grandparent);
        }
        Some(value)
    }

    /// All prefixes with their values, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &V)> {
        let mut stack = vec![(true, 0u32), (false, 1)];
        std::iter::from_fn(move || {
            while let Some((ipv4, at)) = stack.pop() {
                let node = &self.nodes[at as usize];
                stack.extend(node.children.iter().filter(|child| **child != NONE).map(|child| (ipv4, *child)));
                if let Some(value) = &node.value {
                    return Some((Prefix::from_bits(ipv4, node.bits, node.len), value));
                }
            }
            None
        })
    }

    /// The node of exactly this prefix, with its parent and grandparent.
    fn path(&self, prefix: Prefix) -> Option<(usize, [Option<usize>; 2])> {
        let (key, mut at, mut parents) = (bits(prefix.address()), root(prefix.address()), [None; 2]);
        loop {
            let node = &self.nodes[at];
            if node.len > prefix.len() || node.common(key) < node.len {
                return None;
            }
            if node.len == prefix.len() {
                return Some((at, parents));
            }
            let child = node.children[node.side(key)];
            if child == NONE {
                return None;
            }
            parents = [Some(at), parents[0]];
            at = child as usize;
        }
    }

    /// The node of this prefix, which is made if there is none.
    fn make(&mut self, prefix: Prefix) -> usize {
        debug_assert!(prefix.len() <= width(prefix.address()));
        let (key, len) = (bits(prefix.address()), prefix.len());
        let mut at = root(prefix.address());
        loop {
            if self.nodes[at].len == len {
                return at;
            }
            let side = self.nodes[at].side(key);
            let child = self.nodes[at].children[side];
            if child == NONE {
                let new = self.add(Node::new(key, len, None));
                self.nodes[at].children[side] = new;
                return new as usize;
            }
            let node = &self.nodes[child as usize];
            let common = node.common(key).min(len);
            if common == node.len {
                at = child as usize;
                continue;
            }
            // The paths part within the child's bits: a node goes between.
            let below = bit(node.bits, common);
            let new = self.add(Node::new(key, common, None));
            self.nodes[new as usize].children[below] = child;
            self.nodes[at].children[side] = new;
            at = new as usize;
        }
    }

    fn add(&mut self, node: Node<V>) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer nodes than fit into memory")
            }
        }
    }

    /// Removes a node that has no value and fewer than two children.
    fn contract(&mut self, at: usize, parent: Option<usize>) {
        let (Some(parent), node) = (parent, &self.nodes[at]) else { return };
        let child = match node.children {
            _ if node.value.is_some() => return,
            [child, NONE] | [NONE, child] => child,
            _ => return,
        };
        let side = self.nodes[parent].side(node.bits);
        self.nodes[parent].children[side] = child;
        self.free.push(at as u32);
    }
}

#[cfg(test)]
#[path = "trie_tests.rs"]
mod tests;
