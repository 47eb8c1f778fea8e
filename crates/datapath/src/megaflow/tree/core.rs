//! The tree itself: nodes, leaves, and the way to a flow's place, which changes nodes on the way.
//!
//! Invariants:
//!
//! 1. What the nodes on the way to a leaf test are bits of its flow's mask, and the flow's key has the values that lead
//!    there. So a key that a flow covers is led to its leaf.
//! 2. Any two leaves part at a node, where their flows have different values in bits of both masks. So flows are
//!    disjoint.
//! 3. A leaf is compared in all bits of its flow's mask. So no look-up answers with a flow that does not cover its key,
//!    even where 1 or 2 were broken.
//! 4. Beside a reference to a child stands where look-ups go on from it ([`Core::fast`]): past nodes of one child and
//!    prefix nodes, at the next node of bits that tells flows apart, inner node of a trie, or leaf.
//! 5. The only child of a node is no leaf: what tells flows apart is needed for two at least. (Nodes with one child
//!    keep the order of reads for flows to come. A look-up passes them without a test.)
//! 6. A prefix node of two or more children holds of each only where look-ups go on from it (4): a leaf, which is the child
//!    itself, or a node or trie whose node knows the child as its `top`. A node that is such a child knows the bits that
//!    lead to it (`above`). So an insertion goes down by the same lines of memory as the look-up that missed, and needs
//!    no flow below to tell where the new one parts from the others.

use std::hash::BuildHasher;
use std::sync::Arc;

use flow::FlowKey;
use flow::layout::WORDS;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::super::Megaflow;
use super::bits::{Bits, TESTS_MAX, Test};
use super::leaf::Leaves;
use super::part::{Piece, part};
use super::prefix::{Prefix, Probe, Tries};
use super::slab::{Kind, Ref, Slab};
use super::wanted::Wanted;

/// A node. Two lines of memory.
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
    /// Its child, if it has one.
    fn only(&self) -> Option<Ref> {
        match self {
            Self::Bits(b) if b.n == 1 => Some(b.only),
            Self::Prefix(p) if p.n == 1 => Some(p.root),
            _ => None,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) root: Ref,
    /// Where look-ups begin.
    pub(super) entrance: Ref,
    pub(super) nodes: Slab<Node>,
    pub(super) leaves: Leaves,
    pub(super) tries: Tries,
    /// Seeds come from here, different in each process.
    seeds: RandomState,
    n_seeds: u64,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            root: Ref::NONE,
            entrance: Ref::NONE,
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
pub(super) enum Spot {
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
    fn seed(&mut self) -> u64 {
        self.n_seeds += 1;
        self.seeds.hash_one(self.n_seeds)
    }

    /// Any leaf below a reference.
    pub(super) fn any(&self, mut at: Ref) -> Option<usize> {
        loop {
            at = match at.kind() {
                Kind::Leaf(leaf) => return Some(leaf),
                Kind::Node(node) => match &self.nodes.items[node] {
                    Node::Bits(b) => b.children().next()?,
                    Node::Prefix(p) => self.tries.any(p.root),
                    Node::Free => return None,
                },
                Kind::Inner(_) => self.tries.any(at),
                Kind::None => return None,
            };
        }
    }

    /// A word of the key of any flow below a reference, in the bits that nodes on the way to it test.
    fn word(&self, at: Ref, word: usize) -> u64 {
        self.word_of(self.any(at), word)
    }

    /// A word of the key of a leaf's flow, in the bits that nodes on the way to it test: all are of its mask.
    fn word_of(&self, leaf: Option<usize>, word: usize) -> u64 {
        leaf.map_or(0, |leaf| self.leaves.value(leaf, word))
    }

    /// The leaf that a key is led to, and covers it.
    pub(super) fn covering(&self, key: &FlowKey) -> Option<usize> {
        match self.descend(key, &mut 0).kind() {
            Kind::Leaf(leaf) if self.leaves.covers(leaf, key) => Some(leaf),
            _ => None,
        }
    }

    /// Goes to the place of a flow, narrowing it by what it has to be narrowed by, and splitting nodes where it reads
    /// on in another way than the flows below them. Unless it is covered, [`Core::fill`] must follow.
    pub(super) fn place(&mut self, wanted: &mut Wanted) -> Spot {
        let mut parent = None;
        let mut at = self.root;
        loop {
            match at.kind() {
                Kind::Leaf(leaf) => {
                    // What has grown tells the two apart. Were it not so, the new flow would win, and no harm be done.
                    debug_assert!(!wanted.grown, "parted from {:?} by nothing", self.leaves.flow(leaf));
                    if wanted.grown || self.leaves.covers(leaf, &wanted.key) {
                        return Spot::Covered(leaf);
                    }
                    (wanted.grown, wanted.changed) = (true, true);
                    let new = self.grow(leaf, wanted);
                    self.replace(parent, |w| wanted.key.0[w], new);
                    at = new;
                }
                Kind::Node(node) => match self.enter(node, wanted) {
                    Ok(child) => {
                        parent = Some(node);
                        at = child;
                    }
                    Err(spot) => return spot,
                },
                Kind::Inner(_) | Kind::None => return Spot::Root,
            }
        }
    }

    /// One step down from a node, or where in it the flow belongs.
    fn enter(&mut self, node: usize, wanted: &mut Wanted) -> Result<Ref, Spot> {
        match &self.nodes.items[node] {
            Node::Bits(_) => {
                self.agree(node, wanted);
                let Node::Bits(bits) = &self.nodes.items[node] else { return Err(Spot::Root) };
                let child = bits.child(bits.hash(|w| wanted.key.0[w]));
                if child.is_none() { Err(Spot::Bits(node)) } else { Ok(child) }
            }
            Node::Prefix(prefix) => {
                let field = prefix.field;
                let word = usize::from(field.word);
                let value = field.value(wanted.key.0[word]);
                match self.tries.probe(prefix, value, |child| self.above_end(prefix, child)) {
                    Probe::Covered(child, len) => {
                        wanted.test(word, field.bits(len));
                        Ok(if prefix.n == 1 { child } else { self.top(child) })
                    }
                    Probe::Apart(apart) => {
                        let len = wanted.len_of(field).max(apart + 1);
                        wanted.test(word, field.bits(len));
                        Err(Spot::Prefix { node, len, apart })
                    }
                }
            }
            Node::Free => Err(Spot::Root),
        }
    }

    /// Makes a node of bits one that tests nothing that the flow does not match, nor in another order than the flow
    /// reads: splits it after what they have in common. Where they disagree at once, the node's first test goes before
    /// what the flow reads, and narrows it if it does not match these bits at all.
    ///
    /// (Were a flow let through that matches the node's bits but reads them late, flows that agree with it so far and
    /// do not get to read them would be narrowed for nothing.)
    fn agree(&mut self, node: usize, wanted: &mut Wanted) {
        let Node::Bits(bits) = &self.nodes.items[node] else { return };
        let mut upper: SmallVec<[Test; TESTS_MAX]> = SmallVec::new();
        let mut lower: SmallVec<[Test; TESTS_MAX]> = SmallVec::new();
        let mut at = 0;
        for (word, bits) in bits.tests() {
            if !lower.is_empty() {
                lower.push((word, bits));
                continue;
            }
            // What was tested above may be tested again.
            let bits = bits & !wanted.tested.0[usize::from(word)];
            // In nodes that grew for this flow, all that they test is its own.
            let next = bits & if wanted.grown { wanted.mask.0[usize::from(word)] } else { wanted.next_bits(word) };
            let there = if next == 0 && upper.is_empty() { bits } else { next };
            wanted.test(word.into(), there);
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
            self.split(node, &upper, &lower, at);
            wanted.changed = true;
        }
    }

    /// Splits a node of bits in two levels, in the `at`-th of its tests.
    fn split(&mut self, node: usize, upper: &[Test], lower: &[Test], at: usize) {
        let Node::Bits(old) = std::mem::take(&mut self.nodes.items[node]) else { return };
        let (top, above) = (old.top, old.above);
        if old.n > 1 && old.all_same(at) {
            // However many children it has, they stay in it, and are not told apart above it.
            let below = Ref::node(self.nodes.add(Node::Bits(old)));
            let seed = self.seed();
            let upper = Bits::new(upper, below, seed, |w| self.word(below, w));
            self.nodes.items[node] = Node::Bits(upper.in_place_of(top, above));
            return;
        }
        let mut groups: HashMap<SmallVec<[u64; TESTS_MAX]>, Vec<Ref>, RandomState> = HashMap::default();
        for child in old.children() {
            let values = upper.iter().map(|(word, bits)| self.word(child, usize::from(*word)) & bits);
            groups.entry(values.collect()).or_default().push(child);
        }
        let below = groups.into_values().map(|children| {
            // A leaf alone compares the rest itself; the order of reads above other nodes is kept.
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
        self.nodes.items[node] = Node::Bits(self.bits_node(upper, &children, seed).in_place_of(top, above));
    }

    /// A node with children of different values, of which there are some. Takes another seed until no hashes collide.
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
                node.add(hash, (*child, self.fast(*child)), self.fast(first));
            }
            return node;
        }
    }

    /// Nodes that tell a leaf from a flow that it does not cover, with the leaf below.
    fn grow(&mut self, leaf: usize, wanted: &mut Wanted) -> Ref {
        let Some(flow) = self.leaves.flow(leaf) else { return Ref::leaf(leaf) };
        let mut pieces = part(flow, wanted);
        let mut below = Ref::leaf(leaf);
        while let Some(piece) = pieces.pop() {
            let node = match piece {
                Piece::Prefix(field, len) => {
                    self.set_above(below, field.value(self.word_of(Some(leaf), field.word.into())));
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

    /// Puts a flow to its place, which is that of `wanted`. Returns the flow that it replaces.
    pub(super) fn fill(&mut self, spot: Spot, wanted: &Wanted, flow: Arc<Megaflow>) -> Option<Arc<Megaflow>> {
        let mut changed = wanted.changed;
        if let Spot::Covered(old) = spot {
            let old = self.leaves.replace(old, flow, wanted.narrowed);
            self.refresh_if_changed(wanted);
            return old;
        }
        let index = self.leaves.add(flow, wanted.narrowed);
        let new = Ref::leaf(index);
        let mut parted = None;
        match spot {
            Spot::Root => (self.root, changed) = (new, true),
            Spot::Bits(node) => {
                let Node::Bits(mut bits) = std::mem::take(&mut self.nodes.items[node]) else { return None };
                let hash = bits.hash(|w| wanted.key.0[w]);
                let first = if bits.n == 1 { self.any(bits.only) } else { None };
                bits.note_values(|w| self.word_of(first, w), |w| wanted.key.0[w]);
                // With a second child it is not passed over any more.
                changed |= bits.n == 1;
                bits.add(hash, (new, new), self.fast(bits.only));
                self.nodes.items[node] = Node::Bits(bits);
            }
            Spot::Prefix { node, len, apart } => {
                let Node::Prefix(mut prefix) = std::mem::take(&mut self.nodes.items[node]) else { return None };
                let field = prefix.field;
                let word = usize::from(field.word);
                let value = field.value(wanted.key.0[word]);
                let (first, alone) = (prefix.root, prefix.n == 1);
                let beside = self.tries.beside(&prefix, value, apart);
                let beside = beside.map(|child| self.above_end(&prefix, child));
                self.tries.add(&mut prefix, (value, len), new, apart, beside.unwrap_or(0));
                changed |= prefix.root != first;
                if alone {
                    let end = self.fast(first);
                    self.tries.set_fast(&prefix, self.above(field, first), end);
                    parted = Some((end, first));
                }
                self.nodes.items[node] = Node::Prefix(prefix);
            }
            Spot::Covered(_) => {}
        }
        if changed {
            self.refresh(|w| wanted.key.0[w]);
        }
        // Where look-ups go on from a child that was alone, they come from there from now on, and not from above.
        if let Some((end, first)) = parted {
            self.set_top(end, first);
        }
        None
    }

    /// Puts `new` in the place of a child of `parent`, or of the root. `word` tells the values that lead there.
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
                self.set_above(new, value);
            }
            Node::Free => {}
        }
    }

    /// Takes a flow out, and nodes that are not needed any more.
    pub(super) fn remove(&mut self, flow: &Megaflow) -> Option<Arc<Megaflow>> {
        let word = |w: usize| flow.key.word(w);
        let mut path: SmallVec<[usize; 16]> = SmallVec::new();
        let mut at = self.root;
        let leaf = loop {
            match at.kind() {
                Kind::Leaf(leaf) => break leaf,
                Kind::Node(node) => {
                    path.push(node);
                    at = self.child(node, word);
                }
                Kind::Inner(_) | Kind::None => return None,
            }
        };
        if !self.leaves.flow(leaf).is_some_and(|f| std::ptr::eq(Arc::as_ptr(f), flow)) {
            return None;
        }
        let removed = self.leaves.take(leaf);
        let Some(parent) = path.last() else {
            (self.root, self.entrance) = (Ref::NONE, Ref::NONE);
            return removed;
        };
        match &mut self.nodes.items[*parent] {
            Node::Bits(bits) => bits.remove(bits.hash(word)),
            Node::Prefix(prefix) => {
                let value = prefix.field.value(word(prefix.field.word.into()));
                self.tries.remove(prefix, value);
                if prefix.n == 1 {
                    let only = prefix.root;
                    let top = self.top(only);
                    if let Node::Prefix(prefix) = &mut self.nodes.items[*parent] {
                        prefix.root = top;
                    }
                }
            }
            Node::Free => {}
        }
        // A leaf that is left alone moves up, to the first node that tells it from others.
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

    /// The child of a node that values lead to.
    fn child(&self, node: usize, word: impl Fn(usize) -> u64) -> Ref {
        match &self.nodes.items[node] {
            Node::Bits(bits) if bits.n == 1 => bits.only,
            Node::Bits(bits) => bits.find(bits.hash(word)),
            Node::Prefix(prefix) if prefix.n == 1 => prefix.root,
            Node::Prefix(prefix) => self.top(self.tries.find(prefix, word(prefix.field.word.into()))),
            Node::Free => Ref::NONE,
        }
    }

    /// Takes out all that is left, leaf by leaf from the end on: the flow of the last leaf.
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
