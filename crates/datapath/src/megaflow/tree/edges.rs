//! Shortcuts past nodes that do not branch, and the way back to the skipped nodes: invariants 4 and 6 of
//! [`super::core`].

use super::core::{Core, Node};
use super::insertion::Insertion;
use super::prefix::{Prefix, PrefixField};
use super::slab::{Ref, RefKind};

impl Core {
    /// The shortcut of a child.
    pub(super) fn shortcut(&self, mut at: Ref) -> Ref {
        while let RefKind::Node(node) = at.kind() {
            at = match &self.nodes.items[node] {
                Node::Bits(b) if b.n == 1 => b.only,
                Node::Prefix(p) if p.n == 1 => p.root,
                Node::Prefix(p) => return p.root,
                _ => return at,
            };
        }
        at
    }

    /// The node at the end of a shortcut; `None` for a leaf.
    fn end(&self, shortcut: Ref) -> Option<usize> {
        match shortcut.kind() {
            RefKind::Node(node) => Some(node),
            RefKind::Inner(inner) => Some(self.tries.owner(inner)),
            RefKind::Leaf(_) | RefKind::None => None,
        }
    }

    /// The child with this shortcut, for a prefix node of two or more children.
    pub(super) fn chain_head(&self, shortcut: Ref) -> Ref {
        let Some(end) = self.end(shortcut) else { return shortcut };
        match &self.nodes.items[end] {
            Node::Bits(bits) => bits.chain_head,
            Node::Prefix(prefix) => prefix.chain_head,
            Node::Free => Ref::NONE,
        }
    }

    /// Stores the child of a prefix node whose shortcut this is.
    pub(super) fn set_chain_head(&mut self, shortcut: Ref, chain_head: Ref) {
        let Some(end) = self.end(shortcut) else { return };
        match &mut self.nodes.items[end] {
            Node::Bits(bits) => bits.chain_head = chain_head,
            Node::Prefix(prefix) => prefix.chain_head = chain_head,
            Node::Free => {}
        }
    }

    /// The bits of `field` on the path to a child of a prefix node.
    pub(super) fn path_bits(&self, field: PrefixField, child: Ref) -> u64 {
        match child.kind() {
            RefKind::Leaf(leaf) => field.value(self.leaves.value(leaf, field.word.into())),
            RefKind::Node(node) => match &self.nodes.items[node] {
                Node::Bits(bits) => bits.path_bits,
                Node::Prefix(prefix) => prefix.path_bits,
                Node::Free => 0,
            },
            RefKind::Inner(_) | RefKind::None => 0,
        }
    }

    /// The bits on the path to a child, given by its shortcut, or directly if it is the only child.
    pub(super) fn path_bits_of(&self, prefix: &Prefix, child: Ref) -> u64 {
        self.path_bits(prefix.field, if prefix.n == 1 { child } else { self.chain_head(child) })
    }

    /// Stores the bits on the path to a node.
    pub(super) fn set_path_bits(&mut self, child: Ref, value: u64) {
        if let RefKind::Node(node) = child.kind() {
            match &mut self.nodes.items[node] {
                Node::Bits(bits) => bits.path_bits = value,
                Node::Prefix(prefix) => prefix.path_bits = value,
                Node::Free => {}
            }
        }
    }

    pub(super) fn add_node(&mut self, node: Node) -> Ref {
        let index = self.nodes.add(node);
        let new = Ref::node(index);
        match &mut self.nodes.items[index] {
            Node::Bits(bits) => bits.chain_head = new,
            Node::Prefix(prefix) => (prefix.chain_head, prefix.index) = (new, index as u32),
            Node::Free => {}
        }
        new
    }

    /// Recomputes the shortcuts along the path of a key's words.
    pub(super) fn refresh(&mut self, word: impl Fn(usize) -> u64 + Copy) {
        let mut at = self.root;
        self.root_shortcut = self.shortcut(at);
        let mut chain_head = at;
        while let RefKind::Node(node) = at.kind() {
            // Not through `self.child`, which relies on the shortcuts.
            at = match &mut self.nodes.items[node] {
                Node::Bits(bits) if bits.n == 1 => bits.only,
                Node::Prefix(prefix) if prefix.n == 1 => prefix.root,
                Node::Bits(bits) => {
                    bits.chain_head = chain_head;
                    let hash = bits.hash(word);
                    let child = bits.find(hash);
                    let shortcut = self.shortcut(child);
                    if let Node::Bits(bits) = &mut self.nodes.items[node] {
                        bits.set_shortcut(hash, shortcut);
                    }
                    chain_head = child;
                    child
                }
                Node::Prefix(prefix) => {
                    prefix.chain_head = chain_head;
                    let value = prefix.field.value(word(prefix.field.word.into()));
                    let end = self.tries.find(prefix, word(prefix.field.word.into()));
                    let child = self.chain_head(end);
                    let shortcut = self.shortcut(child);
                    if let Node::Prefix(prefix) = &self.nodes.items[node]
                        && !child.is_none()
                    {
                        self.tries.set_shortcut(prefix, value, shortcut);
                    }
                    chain_head = child;
                    child
                }
                Node::Free => Ref::NONE,
            };
        }
    }

    /// Recomputes the shortcuts if an insertion changed nodes.
    pub(super) fn refresh_if_changed(&mut self, insertion: &Insertion) {
        if insertion.changed {
            self.refresh(|w| insertion.key.0[w]);
        }
    }
}
