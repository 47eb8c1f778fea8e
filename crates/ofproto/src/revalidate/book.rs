//! The installed flows, each with what it rests on, and found by it.
//!
//! Invariants:
//! - each flow is named by its plan, at the flow's `place` there, and, under each of its addresses, in `by_mac`, and
//!   nowhere else;
//! - each plan in `plans` has a flow, and stands under each of its places in `by_place`;
//! - a flow is entered only if its translation began after all changes whose pass has begun (`begun`): so a pass that
//!   asks the book which flows its changes can affect misses none.

use super::plan::{Basis, Changes, Effects, Place, Plan, Uses};
use base::mix::chain;
use base::{MacAddr, Millis};
use dpif::{DpAction, DpActions, DpFlowStats, FlowId};
use flow::{Sparse, Steps};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xlate::{BridgeId, Effect};

/// What is known of an installed flow.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) plan: Arc<Plan>,
    pub(crate) effects: Effects,
    pub(crate) uses: Uses,
    /// Of the packet that it was made for.
    pub(crate) key: Sparse,
    pub(crate) actions: DpActions,
    /// Packets and bytes that were brought to the rules already. They only rise: of two dumps that are worked through at
    /// the same time, the older one brings nothing.
    pushed: (u64, u64),
    pub(crate) installed: Millis,
    /// Packets since the pass before.
    pub(crate) recent: u64,
    /// The last change before the translation began.
    pub(crate) seq: u64,
    pub(crate) generation: u64,
    /// The last pass that saw it in the datapath.
    pub(crate) seen: u64,
    /// Where it stands among the flows of its plan.
    place: usize,
}

/// A flow as its translation made it, to be entered.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) basis: Basis,
    pub(crate) effects: Vec<Effect>,
    pub(crate) uses: Uses,
    pub(crate) actions: Vec<DpAction>,
    pub(crate) seq: u64,
    pub(crate) generation: u64,
}

/// What a flow in the book has in common with others.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) reads: Arc<Steps>,
    pub(crate) actions: DpActions,
}

impl Known {
    /// What `stats` have beyond what was brought to the rules, which they are from now on.
    pub(crate) fn take(&mut self, stats: DpFlowStats) -> (u64, u64) {
        let new = (stats.packets.saturating_sub(self.pushed.0), stats.bytes.saturating_sub(self.pushed.1));
        self.pushed = (self.pushed.0 + new.0, self.pushed.1 + new.1);
        new
    }
}

#[derive(Debug)]
struct PlanEntry {
    plan: Arc<Plan>,
    flows: Vec<FlowId>,
    /// The effects of some of them, to be shared by others, with their hashes: lists that differ are not looked into.
    effects: Recent<(u64, Effects)>,
    /// The actions of some of them.
    actions: Recent<DpActions>,
}

/// A few of many values, mostly the last ones.
#[derive(Debug)]
struct Recent<T> {
    values: Vec<T>,
    /// Which was pushed last.
    last: usize,
    /// How often in turn none was found.
    misses: u32,
}

impl<T: Clone> Recent<T> {
    const MAX: usize = 8;
    /// As long as none is found, only one in so many is pushed.
    const SELDOM: u32 = 8;

    fn new() -> Self {
        Self { values: Vec::new(), last: 0, misses: 0 }
    }

    /// The one that is the `same` as `wanted`; else one that is made of it, which may take the place of the oldest.
    fn find_or<W>(&mut self, wanted: W, same: impl Fn(&T, &W) -> bool, make: impl FnOnce(W) -> T) -> T {
        if let Some(found) = self.values.iter().find(|value| same(value, &wanted)) {
            self.misses = 0;
            return found.clone();
        }
        self.misses = self.misses.wrapping_add(1);
        let value = make(wanted);
        if self.values.len() < Self::MAX {
            self.values.push(value.clone());
        } else if self.misses < Self::SELDOM || self.misses.is_multiple_of(Self::SELDOM) {
            self.last = (self.last + 1) % Self::MAX;
            self.values[self.last] = value.clone();
        }
        value
    }
}

/// A number for effects.
fn effects_hash(effects: &[Effect]) -> u64 {
    struct Folded(u64);
    impl Hasher for Folded {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
        }
        fn write_u64(&mut self, word: u64) {
            self.0 = chain(self.0, word, 0x9e37_79b9_7f4a_7c15);
        }
        fn write_usize(&mut self, word: usize) {
            self.write_u64(word as u64);
        }
    }
    let mut hasher = Folded(effects.len() as u64);
    effects.iter().for_each(|effect| effect.hash(&mut hasher));
    hasher.finish()
}

impl PlanEntry {
    /// Enters a flow, its effects and actions, which come back as others have them too, with its place among the flows.
    fn add(&mut self, id: FlowId, effects: Vec<Effect>, actions: Vec<DpAction>) -> (Effects, DpActions, usize) {
        let place = self.flows.len();
        self.flows.push(id);
        let hash = effects_hash(&effects);
        let same = |(h, known): &(u64, Effects), effects: &Vec<Effect>| *h == hash && known[..] == *effects;
        let (_, effects) = self.effects.find_or(effects, same, |effects| (hash, effects.into()));
        let actions = self.actions.find_or(actions, |known, actions| known[..] == *actions, DpActions::from);
        (effects, actions, place)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Book {
    flows: HashMap<FlowId, Box<Known>, RandomState>,
    /// By what verdicts rest on.
    plans: HashTable<PlanEntry>,
    by_place: HashMap<Place, HashSet<ByAddress, RandomState>, RandomState>,
    by_mac: HashMap<(BridgeId, u16, MacAddr), HashSet<FlowId>>,
    /// The last change whose pass has begun.
    begun: u64,
    /// Flows that the datapath did not have yet when a pass was to change them.
    pub(crate) late: HashSet<FlowId>,
}

/// What a flow has in common with others, and its place among them.
struct Adopted {
    plan: Arc<Plan>,
    effects: Effects,
    actions: DpActions,
    place: usize,
}

impl Adopted {
    fn entered(&self) -> Entered {
        Entered { reads: Arc::clone(&self.plan.reads), actions: Arc::clone(&self.actions) }
    }
}

/// A plan, compared by where it is kept: no two equal ones are in the book.
#[derive(Clone, Debug)]
struct ByAddress(Arc<Plan>);

impl PartialEq for ByAddress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ByAddress {}

impl std::hash::Hash for ByAddress {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).addr().hash(state);
    }
}

impl Book {
    /// Enters a flow made for a packet with `key`. It may not be installed if a pass has begun over a change that its
    /// translation may not have seen: then its actions come back.
    pub(crate) fn enter(
        &mut self,
        id: FlowId,
        key: Sparse,
        fresh: Fresh,
        now: Millis,
    ) -> Result<Entered, Vec<DpAction>> {
        let Fresh { basis, effects, uses, actions, seq, generation } = fresh;
        if seq < self.begun {
            return Err(actions);
        }
        let adopted = self.adopt(id, basis, effects, actions, &uses);
        let entered = adopted.entered();
        let Adopted { plan, effects, actions, place } = adopted;
        let (pushed, installed, recent, seen) = ((0, 0), now, 0, 0);
        let known =
            Known { plan, effects, uses, key, actions, pushed, installed, recent, seq, generation, seen, place };
        self.flows.insert(id, Box::new(known));
        Ok(entered)
    }

    /// Enters a flow anew that was translated again. What it has in common with others now, if it is (still) in the book.
    pub(crate) fn update(&mut self, id: FlowId, fresh: Fresh) -> Option<Entered> {
        let Fresh { basis, effects, uses, actions, seq, generation } = fresh;
        let known = self.flows.get_mut(&id)?;
        if known.plan.is(&basis) && known.uses == uses && known.effects[..] == effects {
            if known.actions[..] != actions {
                known.actions = actions.into();
            }
            (known.seq, known.generation) = (seq, generation);
            return Some(Entered { reads: Arc::clone(&known.plan.reads), actions: Arc::clone(&known.actions) });
        }
        let (plan, old_uses, place) = (Arc::clone(&known.plan), Arc::clone(&known.uses), known.place);
        self.release(id, &plan, place, &old_uses);
        let adopted = self.adopt(id, basis, effects, actions, &uses);
        let entered = adopted.entered();
        let known = self.flows.get_mut(&id)?;
        (known.seq, known.generation, known.uses) = (seq, generation, uses);
        let Adopted { plan, effects, actions, place } = adopted;
        (known.plan, known.effects, known.actions, known.place) = (plan, effects, actions, place);
        Some(entered)
    }

    /// Takes a flow out.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Known> {
        let known = self.flows.remove(&id)?;
        self.late.remove(&id);
        self.release(id, &known.plan, known.place, &known.uses);
        Some(*known)
    }

    /// Enters a flow with its plan and its addresses.
    fn adopt(
        &mut self,
        id: FlowId,
        basis: Basis,
        effects: Vec<Effect>,
        actions: Vec<DpAction>,
        uses: &Uses,
    ) -> Adopted {
        for mac in uses.iter() {
            self.by_mac.entry(mac.mac).or_default().insert(id);
        }
        let entry = match self.plans.find_mut(basis.hash(), |entry| entry.plan.is(&basis)) {
            Some(entry) => entry,
            None => self.new_plan(basis),
        };
        let (effects, actions, place) = entry.add(id, effects, actions);
        Adopted { plan: Arc::clone(&entry.plan), effects, actions, place }
    }

    fn new_plan(&mut self, basis: Basis) -> &mut PlanEntry {
        let plan = Arc::new(Plan::new(basis));
        for place in plan.places() {
            self.by_place.entry(place).or_default().insert(ByAddress(Arc::clone(&plan)));
        }
        let entry = PlanEntry { plan, flows: Vec::new(), effects: Recent::new(), actions: Recent::new() };
        self.plans.insert_unique(entry.plan.hash(), entry, |entry| entry.plan.hash()).into_mut()
    }

    fn release(&mut self, id: FlowId, plan: &Arc<Plan>, place: usize, uses: &Uses) {
        for mac in uses.iter() {
            if let Entry::Occupied(mut flows) = self.by_mac.entry(mac.mac) {
                flows.get_mut().remove(&id);
                if flows.get().is_empty() {
                    flows.remove();
                }
            }
        }
        let this = |entry: &PlanEntry| Arc::ptr_eq(&entry.plan, plan);
        let Ok(mut found) = self.plans.find_entry(plan.hash(), this) else { return };
        let entry = found.get_mut();
        entry.flows.swap_remove(place);
        if let Some(moved) = entry.flows.get(place)
            && let Some(known) = self.flows.get_mut(moved)
        {
            known.place = place;
        }
        if !entry.flows.is_empty() {
            return;
        }
        found.remove();
        for place in plan.places() {
            if let Entry::Occupied(mut plans) = self.by_place.entry(place) {
                plans.get_mut().remove(&ByAddress(Arc::clone(plan)));
                if plans.get().is_empty() {
                    plans.remove();
                }
            }
        }
    }

    /// Notes that a pass begins over all changes up to `seq`.
    pub(crate) fn begin(&mut self, seq: u64) {
        self.begun = self.begun.max(seq);
    }

    /// A flow.
    pub(crate) fn get(&self, id: FlowId) -> Option<&Known> {
        self.flows.get(&id).map(Box::as_ref)
    }

    /// A flow, to take its statistics.
    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut Known> {
        self.flows.get_mut(&id).map(Box::as_mut)
    }

    /// Flows in it.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// All flows' ids.
    pub(crate) fn ids(&self) -> Vec<FlowId> {
        self.flows.keys().copied().collect()
    }

    /// Flows that `changes` may affect; those with a `true` certainly have to be translated again, of the others
    /// [`Book::affects`] knows. Beside them, how many flows rest on something of the kind that changed.
    pub(crate) fn candidates(&self, changes: &Changes) -> (Vec<(FlowId, bool)>, usize) {
        if changes.everything {
            return (self.flows.keys().map(|id| (*id, true)).collect(), self.flows.len());
        }
        let of_place = |place: &Place| {
            let plans = self.by_place.get(place).into_iter().flatten();
            plans.filter_map(|ByAddress(plan)| self.plans.find(plan.hash(), |entry| Arc::ptr_eq(&entry.plan, plan)))
        };
        let (mut ids, mut passed_over) = (HashMap::new(), 0);
        for (table, rules) in &changes.rules {
            for entry in of_place(&Place::Table(table.0, table.1)) {
                if rules.iter().any(|(rule, what)| entry.plan.rule_may_matter(*table, (rule, *what))) {
                    ids.extend(entry.flows.iter().map(|id| (*id, false)));
                } else {
                    passed_over += entry.flows.len();
                }
            }
        }
        let certain = changes.places.iter().flat_map(of_place).flat_map(|entry| &entry.flows);
        let by_mac = changes.macs.iter().filter_map(|mac| self.by_mac.get(mac)).flatten();
        ids.extend(certain.chain(by_mac).chain(&self.late).map(|id| (*id, true)));
        let n = ids.len() + passed_over;
        (ids.into_iter().collect(), n)
    }

    /// Whether a flow may be another after these changes of rules.
    pub(crate) fn affects(&self, id: FlowId, changes: &Changes) -> bool {
        let Some(known) = self.flows.get(&id) else { return false };
        let key = |word| known.key.word(word);
        changes
            .rules
            .iter()
            .any(|(table, rules)| rules.iter().any(|(rule, what)| known.plan.rule_matters(*table, (rule, *what), &key)))
    }

    /// Removes flows that are not in the datapath, as of pass `pass`, and were announced before `before`.
    pub(crate) fn remove_unseen(&mut self, pass: u64, before: Millis) {
        let unseen = self.flows.iter().filter(|(_, k)| k.seen != pass && k.installed < before);
        let unseen: Vec<FlowId> = unseen.map(|(id, _)| *id).collect();
        for id in unseen {
            self.remove(id);
        }
    }

    /// Plans that flows share.
    pub(crate) fn n_plans(&self) -> usize {
        self.plans.len()
    }

    /// Bytes that flows and plans take, roughly: without the slack of the tables that find them, and without keys, which
    /// the datapath's flows share.
    pub(crate) fn bytes(&self) -> usize {
        let flows = self.flows.values().map(|k| {
            size_of::<(FlowId, Known)>()
                + size_of::<FlowId>() * (1 + k.uses.len())
                + size_of_val(&*k.uses)
                + size_of_val(&*k.effects) / Arc::strong_count(&k.effects).saturating_sub(1).max(1)
        });
        flows.sum::<usize>() + self.plans.iter().map(|entry| entry.plan.bytes()).sum::<usize>()
    }
}
