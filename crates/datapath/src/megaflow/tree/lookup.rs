//! The way down for packets.
//!
//! Nodes with one child are passed without a test: the leaf compares everything. A batch goes down a level at a time, so
//! that the loads of one key's walk overlap with those of others.

use std::borrow::Borrow;

use flow::FlowKey;

use super::super::Found;
use super::core::{Core, Node};
use super::slab::{Kind, Ref};

/// Keys that go down together.
const BATCH: usize = 32;

/// With more children or leaves than this, a batch first loads what all of its keys need there, and then looks at it:
/// so that the loads, which miss the caches, wait together and not one after the other for a branch on the one before.
const LARGE: usize = 2048;

impl Core {
    /// What a key is led to by a node, or by an inner node and those below it. Counts levels.
    #[inline]
    fn step(&self, at: Ref, key: &FlowKey, probes: &mut u64) -> Ref {
        let word = |w: usize| key.0.get(w).copied().unwrap_or(0);
        let Kind::Node(node) = at.kind() else { return self.tries.descend(at, word, probes) };
        *probes += 1;
        match self.nodes.items.get(node) {
            Some(Node::Bits(bits)) => bits.find_fast(bits.hash(word)),
            _ => Ref::NONE,
        }
    }

    /// The leaf that a key is led to, or none. Counts levels.
    #[inline]
    pub(super) fn descend(&self, key: &FlowKey, probes: &mut u64) -> Ref {
        let mut at = self.entrance;
        while !at.is_leaf() && !at.is_none() {
            at = self.step(at, key, probes);
        }
        at
    }

    #[inline]
    fn answer(&self, at: Ref, key: &FlowKey, generation: u64) -> Found<'_> {
        match at.kind() {
            Kind::Leaf(leaf) => self.leaves.items.get(leaf)?.answer(key, generation),
            _ => None,
        }
    }

    pub(super) fn lookup(&self, key: &FlowKey, generation: u64, probes: &mut u64) -> Found<'_> {
        *probes += 1;
        self.answer(self.descend(key, probes), key, generation)
    }

    /// Looks up keys that have no answer yet.
    pub(super) fn lookup_batch<'a, K: Borrow<FlowKey>>(
        &'a self,
        keys: &[K],
        generation: u64,
        found: &mut [Found<'a>],
        probes: &mut u64,
    ) {
        for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            self.lookup_chunk(keys, generation, found, probes);
        }
    }

    fn lookup_chunk<'a, K: Borrow<FlowKey>>(
        &'a self,
        keys: &[K],
        generation: u64,
        found: &mut [Found<'a>],
        probes: &mut u64,
    ) {
        let mut at = [self.entrance; BATCH];
        // Which keys are still on their way.
        let mut walking = [0u8; BATCH];
        let mut n = 0;
        for (i, found) in found.iter().enumerate().take(keys.len()) {
            walking[n & (BATCH - 1)] = i as u8;
            n += usize::from(found.is_none());
        }
        *probes += n as u64;
        let mut hashes = [0; BATCH];
        while n > 0 {
            let (mut left, mut pending, mut touched) = (0, 0u32, 0);
            for w in 0..n {
                let i = usize::from(walking[w]) & (BATCH - 1);
                let Some(key) = keys.get(i).map(K::borrow) else { continue };
                if at[i].is_leaf() || at[i].is_none() {
                    continue;
                }
                walking[left] = i as u8;
                left += 1;
                if let Kind::Node(node) = at[i].kind()
                    && let Some(Node::Bits(bits)) = self.nodes.items.get(node)
                    && bits.n as usize > LARGE
                {
                    hashes[i] = bits.hash(|w| key.0.get(w).copied().unwrap_or(0));
                    touched ^= bits.touch(hashes[i]);
                    pending |= 1 << i;
                    *probes += 1;
                } else {
                    at[i] = self.step(at[i], key, probes);
                }
            }
            std::hint::black_box(touched);
            while pending != 0 {
                let i = pending.trailing_zeros() as usize;
                pending &= pending - 1;
                if let Kind::Node(node) = at[i].kind()
                    && let Some(Node::Bits(bits)) = self.nodes.items.get(node)
                {
                    at[i] = bits.find_fast(hashes[i]);
                }
            }
            n = left;
        }
        if self.leaves.items.len() > LARGE {
            let leaf = |at: &Ref| if let Kind::Leaf(leaf) = at.kind() { self.leaves.items.get(leaf) } else { None };
            std::hint::black_box(at.iter().filter_map(leaf).fold(0, |touched, leaf| touched ^ leaf.touch()));
        }
        for ((at, key), found) in at.into_iter().zip(keys).zip(found) {
            if found.is_none() {
                *found = self.answer(at, key.borrow(), generation);
            }
        }
    }
}
