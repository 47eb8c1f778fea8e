//! An index in two copies: packet threads read one while the other changes.
//!
//! The alternative, replacing nodes one by one (RCU), would add pointers and atomics to lookups. With two copies, a
//! lookup only loads plain memory from a few large tables, and a change may take as long as it needs: tables grow,
//! nodes with a million children are split, and the tree is rebuilt, concurrently with readers. The price: each change
//! is made twice (a flow setup takes some 24,000 instructions, of which an insertion is less than a tenth), and nodes
//! and leaves take twice the memory; flows, their keys and shared lists do not.
//!
//! A change is applied to the first copy with its effects on flows ([`Megaflow::narrow`], `gone`) and on [`Lists`], and
//! then repeated on the second copy without them. Copies of a tree stay equal, as changes depend only on the copy
//! itself. (Copies of a tuple space differ in the order in which tuples are visited.)

use std::sync::Arc;

use epoch::{LeftRight, Replicated};
use flow::Words;

use super::share::Lists;
use super::tree::Cores;
use super::tuple_space::Tuples;
use super::{BATCH, Found, Gone, IndexKind, Megaflow};

/// An index for many readers and one writer at a time.
pub(crate) type Index = LeftRight<Replica, { epoch::BATCHES }>;

/// An empty index.
pub(crate) fn new_index(kind: IndexKind) -> Index {
    let copies = match kind {
        IndexKind::TupleSpace => [Replica::TupleSpace(Tuples::default()), Replica::TupleSpace(Tuples::default())],
        IndexKind::Tree => {
            let first = Box::new(Cores::default());
            let second = Box::new(first.twin());
            [Replica::Tree(first), Replica::Tree(second)]
        }
    };
    LeftRight::new(copies, Lists::default())
}

/// One copy.
#[derive(Debug)]
pub(crate) enum Replica {
    TupleSpace(Tuples),
    Tree(Box<Cores>),
}

/// A change. A flow to be put has no other references yet, so that its lists can be replaced by shared ones.
#[derive(Debug)]
pub(crate) enum Change {
    /// Adds a flow, replacing `old` and flows that it covers, if it replaces any or there are fewer than `limit` flows.
    Put { flow: Arc<Megaflow>, old: Option<Arc<Megaflow>>, limit: usize },
    /// Adds a flow if it replaces none and takes few steps.
    PutQuickly { flow: Arc<Megaflow>, limit: usize },
    /// A flow less.
    Remove(Arc<Megaflow>),
    /// See [`super::MegaflowIndex::tune`].
    Tune,
}

impl Change {
    /// The flow to be put.
    pub(crate) fn flow(&self) -> Option<&Arc<Megaflow>> {
        match self {
            Self::Put { flow, .. } | Self::PutQuickly { flow, .. } => Some(flow),
            Self::Remove(_) | Self::Tune => None,
        }
    }
}

/// The result of a change.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is done.
    Yes {
        /// Whether the flow to be removed or replaced was present.
        was_there: bool,
        /// Removed flows with other ids.
        gone: Gone,
        /// Whether [`Change::Tune`] has more to do.
        more: bool,
    },
    /// The flow limit is reached.
    Full,
    /// The change would take many steps, or would remove a flow.
    Refused,
}

impl Replica {
    pub(crate) fn lookup(&self, key: &impl Words, generation: u64, probes: &mut u64) -> Found<'_> {
        match self {
            Self::TupleSpace(tuples) => tuples.lookup(key, generation, probes),
            Self::Tree(tree) => tree.lookup(key, generation, probes),
        }
    }

    pub(crate) fn lookup_batch<'a, K: Words>(
        &'a self,
        keys: &[K],
        asked: u32,
        generation: u64,
        found: &mut [Found<'a>; BATCH],
        probes: &mut u64,
    ) {
        match self {
            Self::TupleSpace(tuples) => {
                for i in super::places(asked) {
                    found[i] = keys.get(i).and_then(|key| tuples.lookup(key, generation, probes));
                }
            }
            Self::Tree(tree) => tree.lookup_batch(keys, asked, generation, found, probes),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::TupleSpace(tuples) => tuples.len(),
            Self::Tree(tree) => tree.len(),
        }
    }

    fn insert(&mut self, flow: &Arc<Megaflow>, lists: Option<&mut Lists>) -> Gone {
        match self {
            Self::TupleSpace(tuples) => tuples.insert(flow, lists),
            Self::Tree(tree) => tree.insert(flow, lists),
        }
    }

    fn insert_quickly(&mut self, flow: &Arc<Megaflow>, lists: Option<&mut Lists>) -> bool {
        match self {
            // Tuple space search is for comparison only, and has no quick insertion.
            Self::TupleSpace(_) => false,
            Self::Tree(tree) => tree.insert_quickly(flow, lists),
        }
    }

    fn remove(&mut self, flow: &Megaflow, lists: Option<&mut Lists>) -> bool {
        match self {
            Self::TupleSpace(tuples) => tuples.remove(flow, lists),
            Self::Tree(tree) => tree.remove(flow, lists),
        }
    }

    fn is_rebuilding(&self) -> bool {
        matches!(self, Self::Tree(tree) if tree.is_rebuilding())
    }

    /// Applies a change, with its effects on flows and `lists` if this is the first copy.
    fn change(&mut self, change: &mut Change, mut lists: Option<&mut Lists>) -> Outcome {
        match change {
            Change::Put { flow, old, limit } => {
                share(flow, lists.as_deref_mut());
                let was_there = old.as_ref().is_some_and(|old| self.remove(old, lists.as_deref_mut()));
                let gone = self.insert(flow, lists.as_deref_mut());
                if !was_there && gone.is_empty() && self.len() > *limit {
                    self.remove(flow, lists);
                    return Outcome::Full;
                }
                Outcome::Yes { was_there, gone, more: false }
            }
            Change::PutQuickly { flow, limit } => {
                if self.len() >= *limit {
                    return Outcome::Refused;
                }
                share(flow, lists.as_deref_mut());
                if !self.insert_quickly(flow, lists.as_deref_mut()) {
                    if let Some(lists) = lists {
                        flow.unshare(lists);
                    }
                    return Outcome::Refused;
                }
                Outcome::Yes { was_there: false, gone: Gone::new(), more: false }
            }
            Change::Remove(flow) => {
                Outcome::Yes { was_there: self.remove(flow, lists), gone: Gone::new(), more: false }
            }
            Change::Tune => {
                let gone = match self {
                    Self::TupleSpace(tuples) => {
                        tuples.tune();
                        Gone::new()
                    }
                    Self::Tree(tree) => tree.tune(lists),
                };
                Outcome::Yes { was_there: false, gone, more: self.is_rebuilding() }
            }
        }
    }
}

/// Makes a flow to be put share its lists, if this is the first copy. A flow that was refused and is still part of a
/// pending change keeps lists of its own, and is counted with equal ones.
fn share(flow: &mut Arc<Megaflow>, lists: Option<&mut Lists>) {
    let Some(lists) = lists else { return };
    match Arc::get_mut(flow) {
        Some(flow) => flow.share(lists),
        None => {
            let _ = lists.share(flow.reads.clone());
            let _ = lists.share_actions(&flow.actions);
        }
    }
}

impl Replicated for Replica {
    type Op = Change;
    /// Includes the flow that was to be put.
    type Output = (Outcome, Option<Arc<Megaflow>>);
    type Ledger = Lists;

    fn apply(&mut self, change: &mut Change, lists: &mut Lists) -> (Outcome, Option<Arc<Megaflow>>) {
        let done = self.change(change, Some(lists));
        // Set before the change is published, so that a thread which reads the new state and cached a flow from the old
        // one sees that it is gone.
        if let Outcome::Yes { was_there, gone, .. } = &done {
            gone.iter().for_each(|flow| flow.set_gone());
            match change {
                Change::Put { old: Some(flow), .. } | Change::Remove(flow) if *was_there => flow.set_gone(),
                _ => {}
            }
        }
        (done, change.flow().cloned())
    }

    fn replay(&mut self, mut change: Change) {
        self.change(&mut change, None);
    }

    fn is_small(change: &Change) -> bool {
        matches!(change, Change::PutQuickly { .. })
    }
}
