//! The tree itself: nodes, leaves, and the path to a flow's position, along which an insertion changes nodes.
//!
//! Invariants:
//!
//! 1. The tests on the path to a leaf are bits of its flow's mask, and the flow's key has the values on that path. So a
//!    key that a flow covers leads to its leaf.
//! 2. Any two leaves diverge at a node, where their flows have different values in bits of both masks. So flows are
//!    disjoint.
//! 3. A leaf compares all bits of its flow's mask. So no lookup returns a flow that does not cover its key, even if 1 or
//!    2 were violated.
//! 4. A reference to a child is stored with its *shortcut* ([`Core::shortcut`]), at which lookups continue: it skips nodes
//!    with a single child and the heads of prefix nodes, and points to the next node of bits with several children, inner
//!    node of a trie, or leaf.
//! 5. The only child of a node is no leaf, as a test only separates two or more flows. (Nodes with one child preserve the
//!    order of reads for later flows. Lookups skip them.)
//! 6. A prefix node with two or more children stores of each child only its shortcut (4). If that is a leaf, it is the
//!    child itself; otherwise the node at the end of the shortcut stores the child as its `chain_head`. A node that is such
//!    a child stores the bits that lead to it (`path_bits`). So an insertion touches the same cache lines as the lookup
//!    that missed, and needs no flow further down to find where the new flow diverges from the others.

use std::hash::BuildHasher;
use std::sync::Arc;

use flow::FlowKey;
use flow::layout::WORDS;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::super::Megaflow;
use super::bits::{Bits, TESTS_MAX, Test};
use super::insertion::Insertion;
use super::leaf::{Leaves, New};
use super::part::{Piece, separate};
use super::prefix::{Prefix, Probe, Tries};
use super::slab::{Ref, RefKind, SMALL, Slab};

/// Maximum number of nodes that a typical insertion adds: more than reads have steps.
const NODES_MAX: usize = 32;

/// A node. It takes two cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) enum Node {
    /// A free place.
    #[default]
    Free,
    Bits(Bits),
    Prefix(Prefix),
}

impl Node {
    /// The only child, if there is exactly one.
    fn only(&self) -> Option<Ref> {
        match self {
            Self::Bits(b) if b.n == 1 => Some(b.only),
            Self::Prefix(p) if p.n == 1 => Some(p.root),
            _ => None,
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) root: Ref,
    /// Where lookups begin.
    pub(super) root_shortcut: Ref,
    pub(super) nodes: Slab<Node>,
    pub(super) leaves: Leaves,
    pub(super) tries: Tries,
    /// The source of seeds, different in each process.
    seeds: RandomState,
    n_seeds: u64,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            root: Ref::NONE,
            root_shortcut: Ref::NONE,
            nodes: Slab::default(),
            leaves: Leaves::default(),
            tries: Tries::default(),
            seeds: RandomState::default(),
            n_seeds: 0,
        }
    }
}

/// Where a flow belongs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    /// The tree is empty.
    Root,
    /// A child of this node of bits.
    Bits(usize),
    /// A child of this prefix node with a prefix of `len` bits.
    Prefix { node: usize, len: u32, apart: u32 },
    /// Here is a leaf that covers its key.
    Covered(usize),
}

impl Core {
    /// An empty tree that continues with the same seeds: two trees made from equal ones stay equal.
    pub(super) fn emptied(&self) -> Self {
        Self { seeds: self.seeds.clone(), n_seeds: self.n_seeds, ..Self::default() }
    }

    /// Whether a flow can be added without reallocating large tables.
    pub(super) fn has_room(&self) -> bool {
        self.nodes.has_room(NODES_MAX) && self.tries.have_room() && self.leaves.have_room()
    }

    /// Whether inserting at this position takes many steps, or replaces another flow.
    pub(super) fn takes_long(&self, position: Position) -> bool {
        match position {
            Position::Covered(_) => true,
            Position::Bits(node) => matches!(&self.nodes.items[node], Node::Bits(bits) if bits.is_full()),
            Position::Root | Position::Prefix { .. } => false,
        }
    }

    fn seed(&mut self) -> u64 {
        self.n_seeds += 1;
        self.seeds.hash_one(self.n_seeds)
    }

    /// Any leaf below a reference.
    pub(super) fn any(&self, mut at: Ref) -> Option<usize> {
        loop {
            at = match at.kind() {
                RefKind::Leaf(leaf) => return Some(leaf),
                RefKind::Node(node) => match &self.nodes.items[node] {
                    Node::Bits(b) => b.children().next()?,
                    Node::Prefix(p) => self.tries.any(p.root),
                    Node::Free => return None,
                },
                RefKind::Inner(_) => self.tries.any(at),
                RefKind::None => return None,
            };
        }
    }

    /// A word of the key of any flow below a reference, limited to bits that nodes on the path to it test.
    fn word(&self, at: Ref, word: usize) -> u64 {
        self.word_of(self.any(at), word)
    }

    /// A word of the key of a leaf's flow, limited to bits that nodes on the path to it test: all of them are in its
    /// mask.
    fn word_of(&self, leaf: Option<usize>, word: usize) -> u64 {
        leaf.map_or(0, |leaf| self.leaves.value(leaf, word))
    }

    /// The leaf that covers a key.
    pub(super) fn covering(&self, key: &FlowKey) -> Option<usize> {
        match self.descend(key, &mut 0).kind() {
            RefKind::Leaf(leaf) if self.leaves.covers(leaf, key) => Some(leaf),
            _ => None,
        }
    }

    /// Finds the position of a flow. Narrows the flow where needed, and splits nodes where its order of reads differs
    /// from that of the flows below. [`Core::fill`] must follow, unless the flow is covered.
    pub(super) fn locate(&mut self, insertion: &mut Insertion) -> Position {
        let mut parent = None;
        let mut at = self.root;
        loop {
            match at.kind() {
                RefKind::Leaf(leaf) => {
                    // The nodes added by `grow` separate the two. If they did not, the new flow would replace the
                    // other, which is harmless.
                    debug_assert!(!insertion.grown, "nothing separates it from {:?}", self.leaves.flow(leaf));
                    if insertion.grown || self.leaves.covers(leaf, &insertion.key) {
                        return Position::Covered(leaf);
                    }
                    (insertion.grown, insertion.changed) = (true, true);
                    let new = self.grow(leaf, insertion);
                    self.replace(parent, |w| insertion.key.0[w], new);
                    at = new;
                }
                RefKind::Node(node) => match self.enter(node, insertion) {
                    Ok(child) => {
                        parent = Some(node);
                        at = child;
                    }
                    Err(position) => return position,
                },
                RefKind::Inner(_) | RefKind::None => return Position::Root,
            }
        }
    }

    /// Descends one step from a node, or returns the flow's position in it.
    fn enter(&mut self, node: usize, insertion: &mut Insertion) -> Result<Ref, Position> {
        match &self.nodes.items[node] {
            Node::Bits(_) => {
                self.agree(node, insertion);
                let Node::Bits(bits) = &self.nodes.items[node] else { return Err(Position::Root) };
                if insertion.is_refused {
                    return Err(Position::Bits(node));
                }
                let child = bits.child(bits.hash(|w| insertion.key.0[w]));
                if child.is_none() { Err(Position::Bits(node)) } else { Ok(child) }
            }
            Node::Prefix(prefix) => {
                let field = prefix.field;
                let word = usize::from(field.word);
                let value = field.value(insertion.key.0[word]);
                match self.tries.probe(prefix, value, |child| self.path_bits_of(prefix, child)) {
                    Probe::Covered(child, len) => {
                        insertion.test(word, field.bits(len));
                        Ok(if prefix.n == 1 { child } else { self.chain_head(child) })
                    }
                    Probe::Apart(apart) => {
                        let len = insertion.len_of(field).max(apart + 1);
                        insertion.test(word, field.bits(len));
                        Err(Position::Prefix { node, len, apart })
                    }
                }
            }
            Node::Free => Err(Position::Root),
        }
    }

    /// Splits a node of bits so that it tests only bits that the flow matches, in the order in which the flow reads
    /// them. If already the first test differs from the flow's next read, that test stays first, and the flow is
    /// narrowed if it does not match these bits.
    ///
    /// (Accepting a flow that matches the node's bits but reads them later would needlessly narrow other flows that
    /// agree with it so far and never read them.)
    fn agree(&mut self, node: usize, insertion: &mut Insertion) {
        let Node::Bits(bits) = &self.nodes.items[node] else { return };
        let mut upper: SmallVec<[Test; TESTS_MAX]> = SmallVec::new();
        let mut lower: SmallVec<[Test; TESTS_MAX]> = SmallVec::new();
        let mut at = 0;
        for (word, bits) in bits.tests() {
            if !lower.is_empty() {
                lower.push((word, bits));
                continue;
            }
            // Tests of nodes above may be repeated.
            let bits = bits & !insertion.tested.0[usize::from(word)];
            // Nodes that grew for this flow only test bits of its mask.
            let next =
                bits & if insertion.grown { insertion.mask.0[usize::from(word)] } else { insertion.next_bits(word) };
            let there = if next == 0 && upper.is_empty() { bits } else { next };
            insertion.test(word.into(), there);
            if there != 0 {
                upper.push((word, there));
                at += 1;
            }
            if there != bits {
                lower.push((word, bits & !there));
            } else if there == 0 {
                at += 1;
            }
        }
        if !lower.is_empty() {
            if insertion.quickly && bits.n as usize > SMALL && !bits.all_same(at) {
                insertion.is_refused = true;
                return;
            }
            self.split(node, &upper, &lower, at);
            insertion.changed = true;
        }
    }

    /// Splits a node of bits into two levels, at test `at`.
    fn split(&mut self, node: usize, upper: &[Test], lower: &[Test], at: usize) {
        let Node::Bits(old) = std::mem::take(&mut self.nodes.items[node]) else { return };
        let (chain_head, path_bits) = (old.chain_head, old.path_bits);
        if old.n > 1 && old.all_same(at) {
            // The children have equal values in the upper tests, so they all stay in the lower node.
            let below = Ref::node(self.nodes.add(Node::Bits(old)));
            let seed = self.seed();
            let upper = Bits::new(upper, below, seed, |w| self.word(below, w));
            self.nodes.items[node] = Node::Bits(upper.in_place_of(chain_head, path_bits));
            return;
        }
        // Uses the tree's seeds, so that both copies iterate in the same order.
        let mut groups: HashMap<SmallVec<[u64; TESTS_MAX]>, Vec<Ref>, RandomState> =
            HashMap::with_hasher(self.seeds.clone());
        for child in old.children() {
            let values = upper.iter().map(|(word, bits)| self.word(child, usize::from(*word)) & bits);
            groups.entry(values.collect()).or_default().push(child);
        }
        let below = groups.into_values().map(|children| {
            // A single leaf compares the remaining bits itself. Above other nodes, the tests are kept for the order of
            // reads.
            if let [leaf] = children[..]
                && leaf.is_leaf()
            {
                return leaf;
            }
            let seed = self.seed();
            let node = self.bits_node(lower, &children, seed);
            self.add_node(Node::Bits(node))
        });
        let children: Vec<Ref> = below.collect();
        let seed = self.seed();
        self.nodes.items[node] = Node::Bits(self.bits_node(upper, &children, seed).in_place_of(chain_head, path_bits));
    }

    /// A node for at least one child with distinct values. Tries seeds until no hashes collide.
    fn bits_node(&mut self, tests: &[Test], children: &[Ref], mut seed: u64) -> Bits {
        let first = children.first().copied().unwrap_or(Ref::NONE);
        'seed: loop {
            let mut node = Bits::new(tests, first, seed, |w| self.word(first, w));
            for child in children.iter().skip(1) {
                let hash = node.hash(|w| self.word(*child, w));
                if !node.child(hash).is_none() {
                    seed = self.seed();
                    continue 'seed;
                }
                node.note_values(|w| self.word(first, w), |w| self.word(*child, w));
                node.add(hash, (*child, self.shortcut(*child)), self.shortcut(first));
            }
            return node;
        }
    }

    /// Adds nodes above a leaf that separate it from a flow that it does not cover.
    fn grow(&mut self, leaf: usize, insertion: &mut Insertion) -> Ref {
        let Some((flow, mask)) = self.leaves.flow_and_mask(leaf) else { return Ref::leaf(leaf) };
        let mut pieces = separate((flow, mask), insertion);
        let mut below = Ref::leaf(leaf);
        while let Some(piece) = pieces.pop() {
            let node = match piece {
                Piece::Prefix(field, len) => {
                    self.set_path_bits(below, field.value(self.word_of(Some(leaf), field.word.into())));
                    Node::Prefix(Prefix::new(field, len, below))
                }
                Piece::Bits(test) => {
                    let mut tests: SmallVec<[Test; TESTS_MAX]> = SmallVec::new();
                    tests.push(test);
                    while tests.len() < TESTS_MAX
                        && let Some(Piece::Bits(test)) = pieces.last()
                    {
                        tests.push(*test);
                        pieces.pop();
                    }
                    tests.reverse();
                    let seed = self.seed();
                    Node::Bits(Bits::new(&tests, below, seed, |w| self.word_of(Some(leaf), w)))
                }
            };
            below = self.add_node(node);
        }
        below
    }

    /// Puts a flow at the position that `insertion` found. Returns the flow that it replaces.
    pub(super) fn fill(&mut self, position: Position, insertion: &Insertion, flow: New) -> Option<Arc<Megaflow>> {
        let mut changed = insertion.changed;
        if let Position::Covered(old) = position {
            let old = self.leaves.replace(old, flow);
            self.refresh_if_changed(insertion);
            return old;
        }
        let index = self.leaves.add(flow);
        let new = Ref::leaf(index);
        let mut parted = None;
        match position {
            Position::Root => (self.root, changed) = (new, true),
            Position::Bits(node) => {
                let Node::Bits(mut bits) = std::mem::take(&mut self.nodes.items[node]) else { return None };
                let hash = bits.hash(|w| insertion.key.0[w]);
                let first = if bits.n == 1 { self.any(bits.only) } else { None };
                bits.note_values(|w| self.word_of(first, w), |w| insertion.key.0[w]);
                // With a second child, lookups do not skip this node any more.
                changed |= bits.n == 1;
                bits.add(hash, (new, new), self.shortcut(bits.only));
                self.nodes.items[node] = Node::Bits(bits);
            }
            Position::Prefix { node, len, apart } => {
                let Node::Prefix(mut prefix) = std::mem::take(&mut self.nodes.items[node]) else { return None };
                let field = prefix.field;
                let word = usize::from(field.word);
                let value = field.value(insertion.key.0[word]);
                let (first, alone) = (prefix.root, prefix.n == 1);
                let beside = self.tries.beside(&prefix, value, apart);
                let beside = beside.map(|child| self.path_bits_of(&prefix, child));
                self.tries.add(&mut prefix, (value, len), new, apart, beside.unwrap_or(0));
                changed |= prefix.root != first;
                if alone {
                    let end = self.shortcut(first);
                    self.tries.set_shortcut(&prefix, self.path_bits(field, first), end);
                    parted = Some((end, first));
                }
                self.nodes.items[node] = Node::Prefix(prefix);
            }
            Position::Covered(_) => {}
        }
        if changed {
            self.refresh(|w| insertion.key.0[w]);
        }
        // The chain of the former only child now begins at that child, not at a node further up.
        if let Some((end, first)) = parted {
            self.set_chain_head(end, first);
        }
        None
    }

    /// Replaces a child of `parent`, or the root, by `new`. `word` gives the values on the path.
    fn replace(&mut self, parent: Option<usize>, word: impl Fn(usize) -> u64, new: Ref) {
        let Some(parent) = parent else {
            self.root = new;
            return;
        };
        match &mut self.nodes.items[parent] {
            Node::Bits(bits) => bits.replace(bits.hash(&word), new),
            Node::Prefix(prefix) => {
                let value = prefix.field.value(word(prefix.field.word.into()));
                self.tries.replace(prefix, value, new);
                self.set_path_bits(new, value);
            }
            Node::Free => {}
        }
    }

    /// Removes a flow, and nodes that are no longer needed.
    pub(super) fn remove(&mut self, flow: &Megaflow) -> Option<Arc<Megaflow>> {
        let word = |w: usize| flow.key.word(w);
        let mut path: SmallVec<[usize; 16]> = SmallVec::new();
        let mut at = self.root;
        let leaf = loop {
            match at.kind() {
                RefKind::Leaf(leaf) => break leaf,
                RefKind::Node(node) => {
                    path.push(node);
                    at = self.child(node, word);
                }
                RefKind::Inner(_) | RefKind::None => return None,
            }
        };
        if !self.leaves.flow(leaf).is_some_and(|f| std::ptr::eq(Arc::as_ptr(f), flow)) {
            return None;
        }
        let removed = self.leaves.take(leaf);
        let Some(parent) = path.last() else {
            (self.root, self.root_shortcut) = (Ref::NONE, Ref::NONE);
            return removed;
        };
        match &mut self.nodes.items[*parent] {
            Node::Bits(bits) => bits.remove(bits.hash(word)),
            Node::Prefix(prefix) => {
                let value = prefix.field.value(word(prefix.field.word.into()));
                self.tries.remove(prefix, value);
                if prefix.n == 1 {
                    let only = prefix.root;
                    let chain_head = self.chain_head(only);
                    if let Node::Prefix(prefix) = &mut self.nodes.items[*parent] {
                        prefix.root = chain_head;
                    }
                }
            }
            Node::Free => {}
        }
        // A leaf without siblings moves up to the first node that separates it from others.
        while let Some(node) = path.pop()
            && let Some(only) = self.nodes.items[node].only()
            && only.is_leaf()
        {
            self.nodes.take(node);
            self.replace(path.last().copied(), word, only);
        }
        self.refresh(word);
        removed
    }

    /// The child of a node for these values.
    fn child(&self, node: usize, word: impl Fn(usize) -> u64) -> Ref {
        match &self.nodes.items[node] {
            Node::Bits(bits) if bits.n == 1 => bits.only,
            Node::Bits(bits) => bits.find(bits.hash(word)),
            Node::Prefix(prefix) if prefix.n == 1 => prefix.root,
            Node::Prefix(prefix) => self.chain_head(self.tries.find(prefix, word(prefix.field.word.into()))),
            Node::Free => Ref::NONE,
        }
    }

    /// Removes the flow of the last leaf, to empty the tree from the end.
    pub(super) fn pop(&mut self) -> Option<Arc<Megaflow>> {
        let flow = self.leaves.last()?.clone();
        self.remove(&flow)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.leaves.iter()
    }

    /// Bytes of nodes and leaves.
    pub(super) fn bytes(&self) -> usize {
        let tables = self.nodes.items.iter().map(|n| if let Node::Bits(b) = n { b.heap_bytes() } else { 0 });
        self.nodes.bytes() + self.leaves.bytes() + self.tries.bytes() + tables.sum::<usize>()
    }
}

const _: () = assert!(WORDS <= u8::MAX as usize && size_of::<Node>() == 128);
