//! Lookups.
//!
//! Nodes with one child are skipped: the leaf compares everything. A batch descends one level at a time, so that the
//! loads of its keys overlap.

use flow::Words;

use super::super::{BATCH, Found, places};
use super::core::{Core, Node};
use super::slab::{Ref, RefKind};

/// With more children or leaves than this, a batch first loads all entries that its keys need, and then uses them, so
/// that cache misses overlap instead of waiting for branches that depend on earlier loads.
const LARGE: usize = 2048;

impl Core {
    /// The next reference for a key from a node, or from an inner node and the inner nodes below it. Counts levels.
    #[inline]
    fn step(&self, at: Ref, key: &impl Words, probes: &mut u64) -> Ref {
        let RefKind::Node(node) = at.kind() else { return self.tries.descend(at, key, probes) };
        *probes += 1;
        match self.nodes.items.get(node) {
            Some(Node::Bits(bits)) => bits.find_shortcut(bits.shortcut_hash(key)),
            _ => Ref::NONE,
        }
    }

    /// The leaf for a key, or none. Counts levels.
    #[inline]
    pub(super) fn descend(&self, key: &impl Words, probes: &mut u64) -> Ref {
        let mut at = self.root_shortcut;
        while !at.is_end() {
            at = self.step(at, key, probes);
        }
        at
    }

    #[inline]
    fn answer(&self, at: Ref, key: &impl Words, generation: u32) -> Found<'_> {
        match at.kind() {
            RefKind::Leaf(leaf) => self.leaves.answer(leaf, key, generation),
            _ => None,
        }
    }

    pub(super) fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        *probes += 1;
        self.answer(self.descend(key, probes), key, self.leaves.number_of(generation))
    }

    /// Looks up the keys at positions `asked`, all below [`BATCH`]. Returns the positions without a result.
    #[inline]
    pub(super) fn lookup_batch<'a, K: Words>(
        &'a self,
        keys: &[K],
        asked: u32,
        generation: u64,
        found: &mut [Found<'a>; BATCH],
        probes: &mut u64,
    ) -> u32 {
        // A batch may be shorter; the keys behind its end are not asked for.
        let Some(keys) = keys.first_chunk::<BATCH>() else {
            return places(asked).fold(0, |missed, i| {
                found[i] = keys.get(i).and_then(|key| self.lookup(key, generation, probes));
                missed | u32::from(found[i].is_none()) << i
            });
        };
        *probes += u64::from(asked.count_ones());
        let generation = self.leaves.number_of(generation);
        let start = self.enter_together(keys, asked, probes);
        let mut at = [start; BATCH];
        let (mut walking, mut together) = (if start.is_end() { 0 } else { asked }, true);
        while walking != 0 {
            let here = places(walking).next().map_or(Ref::NONE, |i| at[i]);
            // Usually all keys are still at the same node, which is then read once.
            if let RefKind::Node(node) = here.kind()
                && let Some(Node::Bits(bits)) = self.nodes.items.get(node)
                && (together || places(walking).all(|i| at[i] == here))
            {
                *probes += u64::from(walking.count_ones());
                let (hasher, mut ended) = (bits.hasher(), 0);
                if bits.n as usize > LARGE {
                    let (mut hashes, mut touched) = ([0; BATCH], 0);
                    for i in places(walking) {
                        hashes[i] = hasher.hash(&keys[i]);
                        touched ^= bits.touch(hashes[i]);
                    }
                    std::hint::black_box(touched);
                    for i in places(walking) {
                        at[i] = bits.find_shortcut(hashes[i]);
                        ended |= u32::from(at[i].is_end()) << i;
                    }
                } else {
                    for i in places(walking) {
                        at[i] = bits.find_shortcut(hasher.hash(&keys[i]));
                        ended |= u32::from(at[i].is_end()) << i;
                    }
                }
                walking &= !ended;
            } else if here.is_inner() || places(walking).any(|i| at[i].is_inner()) {
                walking = self.tries.descend_batch(keys, (walking, together), &mut at, probes);
            } else {
                walking = self.apart(keys, walking, &mut at, probes);
            }
            together = false;
        }
        if self.leaves.are_more_than(LARGE) {
            std::hint::black_box(places(asked).fold(0, |touched, i| touched ^ self.leaves.touch(at[i].end_index())));
        }
        let mut missed = 0;
        for i in places(asked) {
            found[i] = self.leaves.answer(at[i].end_index(), &keys[i], generation);
            missed |= u32::from(found[i].is_none()) << i;
        }
        missed
    }

    /// Descends while all keys take the same child, as at nodes that test the ingress port or the recirculation id. Returns
    /// the reference at which they part. Counts levels.
    #[inline]
    fn enter_together<K: Words>(&self, keys: &[K; BATCH], asked: u32, probes: &mut u64) -> Ref {
        let mut at = self.root_shortcut;
        let Some(first) = places(asked).next().map(|first| &keys[first]) else { return at };
        while let RefKind::Node(node) = at.kind()
            && let Some(Node::Bits(bits)) = self.nodes.items.get(node)
        {
            let hasher = bits.hasher();
            if !places(asked).skip(1).all(|i| hasher.agree(&keys[i], first)) {
                break;
            }
            *probes += u64::from(asked.count_ones());
            at = bits.find_shortcut(hasher.hash(first));
        }
        at
    }

    /// Descends one step for each key that has not reached a leaf; the keys are at different nodes of bits. Returns the
    /// positions of the keys that have still not reached one.
    fn apart<K: Words>(&self, keys: &[K; BATCH], walking: u32, at: &mut [Ref; BATCH], probes: &mut u64) -> u32 {
        let (mut hashes, mut pending, mut touched) = ([0; BATCH], 0u32, 0);
        for i in places(walking) {
            let key = &keys[i];
            if let RefKind::Node(node) = at[i].kind()
                && let Some(Node::Bits(bits)) = self.nodes.items.get(node)
                && bits.n as usize > LARGE
            {
                hashes[i] = bits.shortcut_hash(key);
                touched ^= bits.touch(hashes[i]);
                pending |= 1 << i;
                *probes += 1;
            } else {
                at[i] = self.step(at[i], key, probes);
            }
        }
        std::hint::black_box(touched);
        for i in places(pending) {
            if let RefKind::Node(node) = at[i].kind()
                && let Some(Node::Bits(bits)) = self.nodes.items.get(node)
            {
                at[i] = bits.find_shortcut(hashes[i]);
            }
        }
        places(walking).filter(|i| !at[*i].is_end()).fold(0, |walking, i| walking | 1 << i)
    }
}
