//! The decision tree: the cached verdicts as the decisions that made them.
//!
//! A translation reads bits in an order, and which bits it reads next depends on what it has read so far alone. So for
//! given tables the set of translations *is* a decision tree, and this is that tree: a node tests a group of bits
//! ([`bits`]: children by the hash of their values) or a prefix of one field ([`prefix`]: children are disjoint
//! prefixes), and a leaf is a flow ([`leaf`]). A look-up ([`lookup`]) costs the depth of the path, whatever the number
//! of masks, where tuple space search asks a table for each mask.
//!
//! **Insertion** ([`core`], [`wanted`]) follows the nodes that test what the new flow matches. A node is split where the flow reads
//! on in another way than those below, as in a radix tree; at a leaf, nodes are added along the flow's reads up to the
//! first in which the two differ ([`part`]), so that a path with one flow below ends in a leaf.
//!
//! **Narrowing.** Reads of different tables, or a flow put by hand, may disagree with a node: it tests bits that the flow does
//! not match. Then these bits are added to the flow, with the values of the packet that it was made for. Narrowing is
//! always sound, widening never is, but for bits that it was narrowed by before.
//!
//! **Ageing.** As tables change, nodes that old flows needed may narrow new ones for as long as the old stay. The tree
//! counts flows that are narrower than their own reads; past a quarter of all, it is built anew from each flow's own
//! reads: a new tree beside the old one takes over the flows, some with each insertion and more with each
//! [`MegaflowIndex::tune`], so that nobody waits for all of it at once. Meanwhile a look-up asks the new one and then the old
//! one. Flows that cover each other in the new tree are one flow there: the one of the later generation, or the wider,
//! or the one that came first.
//!
//! Flows are disjoint by construction; the invariants stand in [`core`].

mod bits;
mod core;
mod edges;
mod leaf;
mod lookup;
mod part;
mod prefix;
mod slab;
mod wanted;

use std::sync::Arc;

use flow::Words;
use smallvec::SmallVec;

use self::core::{Core, Spot};
use self::wanted::Wanted;
use super::share::Lists;
use super::{BATCH, Found, Inserted, Megaflow, MegaflowIndex};

/// Narrowed flows that are never too many.
const NARROWED_MIN: usize = 8;
/// Flows that move to the new tree with an insertion, and with [`MegaflowIndex::tune`].
const MOVES_INSERT: usize = 8;
const MOVES_TUNE: usize = 256;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Tree {
    core: Core,
    /// The tree of before, while flows move out of it.
    old: Option<Core>,
    /// Insertions since the tree was begun.
    insertions: usize,
    lists: Lists,
}

/// How a tree is built, for benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Nodes.
    pub nodes: usize,
    /// Inner nodes of prefix nodes' tries.
    pub inner: usize,
    /// Flows that are narrower than their own reads.
    pub narrowed: usize,
}

impl Tree {
    /// How it is built.
    pub fn shape(&self) -> Shape {
        let mut shape = Shape { nodes: 0, inner: 0, narrowed: 0 };
        for core in self.cores() {
            shape.nodes += core.nodes.len();
            shape.inner += core.tries.len();
            shape.narrowed += core.leaves.n_narrowed;
        }
        shape
    }

    fn cores(&self) -> impl Iterator<Item = &Core> {
        [Some(&self.core), self.old.as_ref()].into_iter().flatten()
    }

    /// Whether flows are on their way to a new tree.
    pub fn is_rebuilding(&self) -> bool {
        self.old.is_some()
    }

    /// Begins to build the tree anew. [`MegaflowIndex::tune`] does so by itself when it should.
    pub fn rebuild(&mut self) {
        if self.old.is_none() {
            self.insertions = 0;
            self.old = Some(std::mem::take(&mut self.core));
        }
    }

    /// Whether too many flows are narrowed, and enough were put since the last time that it may help.
    fn is_aged(&self) -> bool {
        let many = (self.core.leaves.len() / 4).max(NARROWED_MIN);
        self.core.leaves.n_narrowed > many && self.insertions > many
    }

    /// Moves up to `n` flows from the old tree to the new. Returns those that are out, as others cover them.
    fn migrate(&mut self, n: usize) -> Vec<Arc<Megaflow>> {
        let mut out = Vec::new();
        for _ in 0..n {
            let Some(old) = &mut self.old else { break };
            let Some(flow) = old.pop() else {
                self.old = None;
                break;
            };
            let mut wanted = Wanted::new(&flow);
            let spot = self.core.place(&mut wanted);
            if let Spot::Covered(leaf) = spot
                && let Some(there) = self.core.leaves.flow(leaf)
                && !prevails(&flow, there)
            {
                flow.unshare(&mut self.lists);
                self.core.refresh_if_changed(&wanted);
                out.push(flow);
                continue;
            }
            flow.narrow(wanted.narrowed_mask(), &mut self.lists);
            let covered = self.core.fill(spot, &wanted, flow);
            out.extend(covered.inspect(|flow| flow.unshare(&mut self.lists)));
        }
        out
    }
}

/// Whether `flow` is to take the place of one that covers its key.
fn prevails(flow: &Megaflow, there: &Megaflow) -> bool {
    let bits = |f: &Megaflow| f.reads.iter().map(|s| s.bits().count_ones()).sum::<u32>();
    (flow.generation, bits(there)) > (there.generation, bits(flow))
}

impl MegaflowIndex for Tree {
    fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        self.cores().find_map(|core| core.lookup(key, generation, probes))
    }

    fn lookup_batch<'a, K: Words>(
        &'a self,
        keys: &[K],
        asked: u32,
        generation: u64,
        found: &mut [Found<'a>; BATCH],
        probes: &mut u64,
    ) {
        let missed = self.core.lookup_batch(keys, asked, generation, found, probes);
        if let Some(old) = &self.old
            && missed != 0
        {
            old.lookup_batch(keys, missed, generation, found, probes);
        }
    }

    fn insert(&mut self, mut flow: Megaflow) -> Inserted {
        let mut replaced: SmallVec<_> = self.migrate(MOVES_INSERT).into();
        let mut wanted = Wanted::new(&flow);
        if let Some(old) = &mut self.old
            && let Some(leaf) = old.covering(&wanted.key)
            && let Some(there) = old.leaves.flow(leaf).cloned()
        {
            old.remove(&there);
            there.unshare(&mut self.lists);
            replaced.push(there);
        }
        let spot = self.core.place(&mut wanted);
        flow.share(&mut self.lists);
        if wanted.narrowed {
            flow.narrow(wanted.narrowed_mask(), &mut self.lists);
        }
        let flow = Arc::new(flow);
        let covered = self.core.fill(spot, &wanted, flow.clone());
        replaced.extend(covered.inspect(|flow| flow.unshare(&mut self.lists)));
        self.insertions += 1;
        Inserted { flow, replaced }
    }

    fn remove(&mut self, flow: &Megaflow) -> bool {
        let from_old = |old: &mut Core| old.remove(flow);
        let removed = self.core.remove(flow).or_else(|| self.old.as_mut().and_then(from_old));
        removed.inspect(|f| f.unshare(&mut self.lists)).is_some()
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.cores().flat_map(Core::iter)
    }

    fn len(&self) -> usize {
        self.cores().map(|core| core.leaves.len()).sum()
    }

    fn n_masks(&self) -> usize {
        self.lists.n_masks()
    }

    fn bytes(&self) -> usize {
        let cores: usize = self.cores().map(Core::bytes).sum();
        cores + self.lists.bytes() + self.iter().map(|f| f.bytes()).sum::<usize>()
    }

    fn tune(&mut self) -> Vec<Arc<Megaflow>> {
        if self.old.is_none() && self.is_aged() {
            self.rebuild();
        }
        self.migrate(MOVES_TUNE)
    }
}

#[cfg(test)]
mod tests;
