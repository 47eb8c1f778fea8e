//! Where look-ups go on from a child, past nodes that tell nothing apart, and the way back: invariants 4 and 6 of
//! [`super::core`].

use super::core::{Core, Node};
use super::prefix::{Prefix, PrefixField};
use super::slab::{Kind, Ref};
use super::wanted::Wanted;

impl Core {
    /// Where look-ups go on from a child.
    pub(super) fn fast(&self, mut at: Ref) -> Ref {
        while let Kind::Node(node) = at.kind() {
            at = match &self.nodes.items[node] {
                Node::Bits(b) if b.n == 1 => b.only,
                Node::Prefix(p) if p.n == 1 => p.root,
                Node::Prefix(p) => return p.root,
                _ => return at,
            };
        }
        at
    }

    /// The node at which look-ups that go on here stop, if it is no leaf.
    fn end(&self, fast: Ref) -> Option<usize> {
        match fast.kind() {
            Kind::Node(node) => Some(node),
            Kind::Inner(inner) => Some(self.tries.owner(inner)),
            Kind::Leaf(_) | Kind::None => None,
        }
    }

    /// A child of a prefix node of two or more, by where look-ups of it go on.
    pub(super) fn top(&self, fast: Ref) -> Ref {
        let Some(end) = self.end(fast) else { return fast };
        match &self.nodes.items[end] {
            Node::Bits(bits) => bits.top,
            Node::Prefix(prefix) => prefix.top,
            Node::Free => Ref::NONE,
        }
    }

    /// Says which child of a prefix node leads to where look-ups go on.
    pub(super) fn set_top(&mut self, fast: Ref, top: Ref) {
        let Some(end) = self.end(fast) else { return };
        match &mut self.nodes.items[end] {
            Node::Bits(bits) => bits.top = top,
            Node::Prefix(prefix) => prefix.top = top,
            Node::Free => {}
        }
    }

    /// The bits of `field` that lead to a child of a prefix node.
    pub(super) fn above(&self, field: PrefixField, child: Ref) -> u64 {
        match child.kind() {
            Kind::Leaf(leaf) => field.value(self.leaves.value(leaf, field.word.into())),
            Kind::Node(node) => match &self.nodes.items[node] {
                Node::Bits(bits) => bits.above,
                Node::Prefix(prefix) => prefix.above,
                Node::Free => 0,
            },
            Kind::Inner(_) | Kind::None => 0,
        }
    }

    /// The same, by where look-ups of the child go on, unless it is the only one.
    pub(super) fn above_end(&self, prefix: &Prefix, child: Ref) -> u64 {
        self.above(prefix.field, if prefix.n == 1 { child } else { self.top(child) })
    }

    /// Says which bits lead to a node.
    pub(super) fn set_above(&mut self, child: Ref, value: u64) {
        if let Kind::Node(node) = child.kind() {
            match &mut self.nodes.items[node] {
                Node::Bits(bits) => bits.above = value,
                Node::Prefix(prefix) => prefix.above = value,
                Node::Free => {}
            }
        }
    }

    pub(super) fn add_node(&mut self, node: Node) -> Ref {
        let index = self.nodes.add(node);
        let new = Ref::node(index);
        match &mut self.nodes.items[index] {
            Node::Bits(bits) => bits.top = new,
            Node::Prefix(prefix) => (prefix.top, prefix.index) = (new, index as u32),
            Node::Free => {}
        }
        new
    }

    /// Says anew where look-ups go on, all along the way that a key's words lead.
    pub(super) fn refresh(&mut self, word: impl Fn(usize) -> u64 + Copy) {
        let mut at = self.root;
        self.entrance = self.fast(at);
        let mut top = at;
        while let Kind::Node(node) = at.kind() {
            // Not through `self.child`: what that goes by is what is to be said here.
            at = match &mut self.nodes.items[node] {
                Node::Bits(bits) if bits.n == 1 => bits.only,
                Node::Prefix(prefix) if prefix.n == 1 => prefix.root,
                Node::Bits(bits) => {
                    bits.top = top;
                    let hash = bits.hash(word);
                    let child = bits.find(hash);
                    let fast = self.fast(child);
                    if let Node::Bits(bits) = &mut self.nodes.items[node] {
                        bits.set_fast(hash, fast);
                    }
                    top = child;
                    child
                }
                Node::Prefix(prefix) => {
                    prefix.top = top;
                    let value = prefix.field.value(word(prefix.field.word.into()));
                    let end = self.tries.find(prefix, word(prefix.field.word.into()));
                    let child = self.top(end);
                    let fast = self.fast(child);
                    if let Node::Prefix(prefix) = &self.nodes.items[node]
                        && !child.is_none()
                    {
                        self.tries.set_fast(prefix, value, fast);
                    }
                    top = child;
                    child
                }
                Node::Free => Ref::NONE,
            };
        }
    }

    /// Does so for a flow that changed nodes on its way.
    pub(super) fn refresh_if_changed(&mut self, wanted: &Wanted) {
        if wanted.changed {
            self.refresh(|w| wanted.key.0[w]);
        }
    }
}
