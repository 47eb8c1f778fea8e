//! Sets of numbered items, as groups and meters: each version of the tables has its own.
//!
//! A set is a hash array mapped trie (Bagwell, 2001) over the bits of the number, lowest first: numbers that follow each
//! other spread evenly. A clone shares all nodes, and a change copies those on the way to one leaf, each of
//! [`WIDTH`] children at most: the cost is the same for a hundred items and for a hundred thousand.

use std::sync::Arc;

/// Bits of the number that choose a child.
const BITS: u32 = 4;
/// Children of a node.
const WIDTH: usize = 1 << BITS;

/// Items by number.
#[derive(Debug)]
pub struct Numbered<T> {
    root: Node<T>,
    len: usize,
}

/// Children by the next bits of the number; absent children take no memory.
#[derive(Debug)]
struct Node<T> {
    /// A bit for each present child.
    present: u16,
    children: Vec<Child<T>>,
}

#[derive(Debug)]
enum Child<T> {
    /// The only item with these bits.
    Leaf(u32, Arc<T>),
    /// A node for several items with these bits.
    Node(Arc<Node<T>>),
}

impl<T> Clone for Child<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(id, one) => Self::Leaf(*id, Arc::clone(one)),
            Self::Node(node) => Self::Node(Arc::clone(node)),
        }
    }
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        Self { present: self.present, children: self.children.clone() }
    }
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { present: 0, children: Vec::new() }
    }
}

impl<T> Node<T> {
    /// Returns the index of the child for these bits, and true if it is present.
    fn slot(&self, bits: u32) -> (usize, bool) {
        let bit = 1u16 << (bits as usize % WIDTH);
        ((self.present & (bit - 1)).count_ones() as usize, self.present & bit != 0)
    }

    fn get(&self, id: u32) -> Option<&Arc<T>> {
        let (mut node, mut bits) = (self, id);
        loop {
            let (at, true) = node.slot(bits) else { return None };
            match node.children.get(at)? {
                Child::Leaf(leaf, one) => return (*leaf == id).then_some(one),
                Child::Node(next) => node = next,
            }
            bits >>= BITS;
        }
    }

    /// Adds an item below this node, whose children are selected by the bits of the number from `shift` on. Returns the item that
    /// it replaces.
    fn insert(&mut self, shift: u32, id: u32, one: Arc<T>) -> Option<Arc<T>> {
        let bits = id >> shift;
        let (at, is_there) = self.slot(bits);
        if !is_there {
            self.present |= 1 << (bits as usize % WIDTH);
            self.children.insert(at, Child::Leaf(id, one));
            return None;
        }
        match &mut self.children[at] {
            Child::Node(node) => Arc::make_mut(node).insert(shift + BITS, id, one),
            Child::Leaf(other, old) if *other == id => Some(std::mem::replace(old, one)),
            child => {
                // Two different numbers differ in some bit, so that this ends.
                let Child::Leaf(other, old) = child.clone() else { return None };
                let mut node = Self::default();
                node.insert(shift + BITS, other, old);
                node.insert(shift + BITS, id, one);
                *child = Child::Node(Arc::new(node));
                None
            }
        }
    }

    /// Removes the item with this number, which must exist.
    fn remove(&mut self, shift: u32, id: u32) -> Option<Arc<T>> {
        let bits = id >> shift;
        let (at, true) = self.slot(bits) else { return None };
        let removed = match &mut self.children[at] {
            Child::Leaf(leaf, one) if *leaf == id => Arc::clone(one),
            Child::Leaf(..) => return None,
            Child::Node(node) => {
                let node = Arc::make_mut(node);
                let removed = node.remove(shift + BITS, id);
                if let [leaf @ Child::Leaf(..)] = &node.children[..] {
                    let leaf = leaf.clone();
                    self.children[at] = leaf;
                }
                return removed;
            }
        };
        self.present &= !(1 << (bits as usize % WIDTH));
        self.children.remove(at);
        Some(removed)
    }

    fn collect(&self, all: &mut Vec<(u32, Arc<T>)>) {
        for child in &self.children {
            match child {
                Child::Leaf(id, one) => all.push((*id, Arc::clone(one))),
                Child::Node(node) => node.collect(all),
            }
        }
    }
}

impl<T> Clone for Numbered<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { root: Node::default(), len: 0 }
    }
}

impl<T> Numbered<T> {
    /// Returns the item with this number.
    pub fn get(&self, id: u32) -> Option<&Arc<T>> {
        self.root.get(id)
    }

    /// Adds an item, replacing the one with the same number.
    pub fn insert(&mut self, id: u32, one: Arc<T>) {
        if self.root.insert(0, id, one).is_none() {
            self.len += 1;
        }
    }

    /// Removes the item with this number.
    pub fn remove(&mut self, id: u32) -> Option<Arc<T>> {
        // Removing a missing item copies nothing.
        self.get(id)?;
        self.len -= 1;
        self.root.remove(0, id)
    }

    /// Returns all items, by number.
    pub fn all(&self) -> Vec<Arc<T>> {
        let mut all = Vec::with_capacity(self.len);
        self.root.collect(&mut all);
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, one)| one).collect()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    tally::proptest! {
        /// Compares with ordered maps, keeping each version.
        #[test]
        fn each_version_stays_as_it_was(
            steps in prop::collection::vec(
                (any::<bool>(), prop_oneof![0u32..20, (0u32..4).prop_map(|n| n << 28 | 5), any::<u32>()], any::<u8>()),
                1..60,
            )
        ) {
            let (mut set, mut twin) = (Numbered::default(), BTreeMap::new());
            let mut versions = Vec::new();
            for (adds, id, value) in steps {
                if adds {
                    set.insert(id, Arc::new(value));
                    twin.insert(id, value);
                } else {
                    prop_assert_eq!(set.remove(id).map(|one| *one), twin.remove(&id));
                }
                versions.push((set.clone(), twin.clone()));
            }
            for (set, twin) in versions {
                prop_assert_eq!((set.len(), set.is_empty()), (twin.len(), twin.is_empty()));
                prop_assert_eq!(set.all().iter().map(|one| **one).collect::<Vec<_>>(), twin.values().copied().collect::<Vec<_>>());
                for (id, value) in &twin {
                    prop_assert_eq!(set.get(*id).map(|one| **one), Some(*value));
                    prop_assert_eq!(set.get(*id ^ 1 << 31).map(|one| **one), twin.get(&(*id ^ 1 << 31)).copied());
                }
            }
        }
    }

    #[test]
    fn a_change_copies_few_nodes_with_a_hundred_thousand() {
        let mut set = Numbered::default();
        (0..100_000u32).for_each(|id| set.insert(id, Arc::new(id)));
        let before = set.clone();
        set.insert(77, Arc::new(0));
        fn shared(a: &Node<u32>, b: &Node<u32>) -> (usize, usize) {
            let (mut same, mut other) = (0, 0);
            for pair in a.children.iter().zip(&b.children) {
                match pair {
                    (Child::Node(a), Child::Node(b)) if Arc::ptr_eq(a, b) => same += 1,
                    (Child::Node(a), Child::Node(b)) => {
                        let below = shared(a, b);
                        (same, other) = (same + below.0, other + 1 + below.1);
                    }
                    _ => {}
                }
            }
            (same, other)
        }
        let (same, copied) = shared(&before.root, &set.root);
        assert!(copied <= 5 && same > copied, "{same} {copied}");
    }
}
