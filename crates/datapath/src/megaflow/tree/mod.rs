//! The decision tree of megaflows.
//!
//! A translation reads bits in an order, and the next bits to read depend only on the values read so far. So for given
//! tables the translations form a decision tree, and this index is that tree. A node tests a group of bits ([`bits`]:
//! children by the hash of their values) or a prefix of a field ([`prefix`]: children are disjoint prefixes), and a
//! leaf is a flow ([`leaf`]). A lookup ([`lookup`]) costs the depth of the path, whatever the number of masks, while
//! tuple space search visits a table for each mask.
//!
//! **Insertion** ([`core`], [`insertion`]) follows the nodes whose tests the new flow matches. As in a radix tree, a
//! node is split where the order of the flow's reads differs from the order below. At a leaf, nodes are added along the
//! flow's reads up to the first difference between the two flows ([`part`]), so that each path ends in a leaf as soon
//! as it has a single flow.
//!
//! **Narrowing.** Reads of different tables, or manually installed flows, may conflict with a node: it tests bits that
//! the flow does not match. These bits are then added to the flow's mask, with the values of the packet that it was
//! made for. Narrowing is always sound; widening is not, except for bits by which the flow was narrowed before.
//!
//! **Ageing.** When tables change, nodes that old flows needed may narrow new flows for as long as the old ones stay.
//! The tree counts narrowed flows; when they exceed a quarter, it is rebuilt from each flow's own reads. A new tree
//! beside the old one takes over the flows, some with each insertion and more with each [`MegaflowIndex::tune`], so
//! that no caller waits for the whole rebuild. Meanwhile, lookups search the new tree and then the old one. Flows that
//! cover each other in the new tree are merged into one: the flow of the later generation, or the wider one, or the
//! first.
//!
//! Flows are disjoint by construction; [`core`] lists the invariants.

mod bits;
mod core;
mod edges;
mod insertion;
mod leaf;
mod lookup;
mod part;
mod prefix;
mod slab;

use std::sync::Arc;

use self::core::{Core, Position};
use self::insertion::Insertion;
use super::share::Lists;
use super::{BATCH, Found, Gone, Inserted, Megaflow, MegaflowIndex};
use flow::Words;

/// This number of narrowed flows is always acceptable.
const NARROWED_MIN: usize = 8;
/// Flows that move to the new tree with an insertion, and with [`MegaflowIndex::tune`].
const MOVES_INSERT: usize = 8;
const MOVES_TUNE: usize = 256;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Tree {
    cores: Cores,
    lists: Lists,
}

/// The part of the tree that lookups read. Copies made by [`Cores::twin`] that receive the same changes in the same
/// order stay equal, down to the numbers of nodes. Effects on the flows themselves and on [`Lists`] are applied with
/// the first copy only.
#[derive(Debug, Default)]
pub(crate) struct Cores {
    core: Core,
    /// The old tree, while flows move to the new one.
    old: Option<Core>,
    /// Insertions since the tree was started.
    insertions: usize,
}

/// The structure of a tree, for benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Nodes.
    pub nodes: usize,
    /// Inner nodes of prefix nodes' tries.
    pub inner: usize,
    /// Narrowed flows.
    pub narrowed: usize,
}

impl Tree {
    /// How it is built.
    pub fn shape(&self) -> Shape {
        let mut shape = Shape { nodes: 0, inner: 0, narrowed: 0 };
        for core in self.cores.both() {
            shape.nodes += core.nodes.len();
            shape.inner += core.tries.len();
            shape.narrowed += core.leaves.n_narrowed;
        }
        shape
    }

    /// Whether flows are moving to a new tree.
    pub fn is_rebuilding(&self) -> bool {
        self.cores.is_rebuilding()
    }

    /// Starts to rebuild the tree. [`MegaflowIndex::tune`] does so when needed.
    pub fn rebuild(&mut self) {
        self.cores.rebuild();
    }
}

impl Cores {
    /// An empty copy of an empty tree.
    pub(crate) fn twin(&self) -> Self {
        Self { core: self.core.emptied(), ..Self::default() }
    }

    fn both(&self) -> impl Iterator<Item = &Core> {
        [Some(&self.core), self.old.as_ref()].into_iter().flatten()
    }

    /// Whether flows are moving to a new tree.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.old.is_some()
    }

    fn rebuild(&mut self) {
        if self.old.is_none() {
            self.insertions = 0;
            let empty = self.core.emptied();
            self.old = Some(std::mem::replace(&mut self.core, empty));
        }
    }

    /// Whether too many flows are narrowed, and enough were inserted since the last rebuild for another one to help.
    fn is_aged(&self) -> bool {
        let many = (self.core.leaves.len() / 4).max(NARROWED_MIN);
        self.core.leaves.n_narrowed > many && self.insertions > many
    }

    /// Moves up to `n` flows from the old tree to the new one. Returns flows that were dropped because others cover
    /// them.
    fn migrate(&mut self, n: usize, mut lists: Option<&mut Lists>) -> Gone {
        let mut out = Gone::new();
        for _ in 0..n {
            let Some(old) = &mut self.old else { break };
            let Some(flow) = old.pop() else {
                self.old = None;
                break;
            };
            let mut insertion = Insertion::new(&flow);
            let position = self.core.locate(&mut insertion);
            if let Position::Covered(leaf) = position
                && let Some(there) = self.core.leaves.flow(leaf)
                && !prevails(&flow, there)
            {
                self.core.refresh_if_changed(&insertion);
                out.push(flow);
                continue;
            }
            let narrowed = insertion.narrowed_mask();
            if let Some(lists) = lists.as_deref_mut() {
                flow.narrow(narrowed.clone(), lists);
            }
            out.extend(self.core.fill(position, &insertion, (flow, narrowed)));
        }
        unshare(&out, lists);
        out
    }

    pub(crate) fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        self.both().find_map(|core| core.lookup(key, generation, probes))
    }

    pub(crate) fn lookup_batch<'a, K: Words>(
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

    /// Adds a flow and returns the flows that it replaces. With `lists`, this is the first copy.
    pub(crate) fn insert(&mut self, flow: &Arc<Megaflow>, mut lists: Option<&mut Lists>) -> Gone {
        let mut replaced = self.migrate(MOVES_INSERT, lists.as_deref_mut());
        let mut insertion = Insertion::new(flow);
        let mut covered = Gone::new();
        if let Some(old) = &mut self.old
            && let Some(leaf) = old.covering(&insertion.key)
            && let Some(there) = old.leaves.flow(leaf).cloned()
        {
            old.remove(&there);
            covered.push(there);
        }
        let position = self.core.locate(&mut insertion);
        covered.extend(self.fill(position, &insertion, flow, lists.as_deref_mut()));
        unshare(&covered, lists);
        replaced.extend(covered);
        replaced
    }

    /// Adds a flow like [`Cores::insert`], but only if this replaces nothing and takes a bounded number of steps: no
    /// large table grows, no large node is split, and no flow moves to a new tree. Returns whether it did.
    pub(crate) fn insert_quickly(&mut self, flow: &Arc<Megaflow>, lists: Option<&mut Lists>) -> bool {
        if self.old.is_some() || !self.core.has_room() {
            return false;
        }
        let mut insertion = Insertion::new(flow);
        insertion.quickly = true;
        let position = self.core.locate(&mut insertion);
        if insertion.is_refused || self.core.takes_long(position) {
            self.core.refresh_if_changed(&insertion);
            return false;
        }
        self.fill(position, &insertion, flow, lists);
        true
    }

    fn fill(
        &mut self,
        position: Position,
        insertion: &Insertion,
        flow: &Arc<Megaflow>,
        lists: Option<&mut Lists>,
    ) -> Option<Arc<Megaflow>> {
        let narrowed = insertion.narrowed_mask();
        if let Some(lists) = lists
            && narrowed.is_some()
        {
            flow.narrow(narrowed.clone(), lists);
        }
        self.insertions += 1;
        self.core.fill(position, insertion, (flow.clone(), narrowed))
    }

    /// Removes a flow. Returns whether it was present.
    pub(crate) fn remove(&mut self, flow: &Megaflow, lists: Option<&mut Lists>) -> bool {
        let from_old = |old: &mut Core| old.remove(flow);
        let removed = self.core.remove(flow).or_else(|| self.old.as_mut().and_then(from_old));
        if let (Some(removed), Some(lists)) = (&removed, lists) {
            removed.unshare(lists);
        }
        removed.is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.both().flat_map(Core::iter)
    }

    pub(crate) fn len(&self) -> usize {
        self.both().map(|core| core.leaves.len()).sum()
    }

    /// Bytes, without the flows.
    fn bytes(&self) -> usize {
        self.both().map(Core::bytes).sum()
    }

    /// See [`MegaflowIndex::tune`].
    pub(crate) fn tune(&mut self, lists: Option<&mut Lists>) -> Gone {
        if self.old.is_none() && self.is_aged() {
            self.rebuild();
        }
        self.migrate(MOVES_TUNE, lists)
    }
}

/// Releases the shared lists of flows.
fn unshare(flows: &[Arc<Megaflow>], lists: Option<&mut Lists>) {
    if let Some(lists) = lists {
        flows.iter().for_each(|flow| flow.unshare(lists));
    }
}

/// Whether `flow` replaces the flow `there`, which covers its key.
fn prevails(flow: &Megaflow, there: &Megaflow) -> bool {
    let bits = |f: &Megaflow| f.reads.iter().map(|s| s.bits().count_ones()).sum::<u32>();
    (flow.generation, bits(there)) > (there.generation, bits(flow))
}

impl MegaflowIndex for Tree {
    fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        self.cores.lookup(key, generation, probes)
    }

    fn lookup_batch<'a, K: Words>(
        &'a self,
        keys: &[K],
        asked: u32,
        generation: u64,
        found: &mut [Found<'a>; BATCH],
        probes: &mut u64,
    ) {
        self.cores.lookup_batch(keys, asked, generation, found, probes);
    }

    fn insert(&mut self, mut flow: Megaflow) -> Inserted {
        flow.share(&mut self.lists);
        let flow = Arc::new(flow);
        let replaced = self.cores.insert(&flow, Some(&mut self.lists));
        Inserted { flow, replaced }
    }

    fn remove(&mut self, flow: &Megaflow) -> bool {
        self.cores.remove(flow, Some(&mut self.lists))
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Megaflow>> {
        self.cores.iter()
    }

    fn len(&self) -> usize {
        self.cores.len()
    }

    fn n_masks(&self) -> usize {
        self.lists.n_masks()
    }

    fn bytes(&self) -> usize {
        self.cores.bytes() + self.lists.bytes() + self.iter().map(|f| f.bytes()).sum::<usize>()
    }

    fn tune(&mut self) -> Vec<Arc<Megaflow>> {
        self.cores.tune(Some(&mut self.lists)).into_vec()
    }
}

#[cfg(test)]
mod tests;
