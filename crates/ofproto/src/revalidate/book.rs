//! The installed flows, each with what it rests on, and found by it.
//!
//! Invariants:
//! - each flow is named by its plan, at the flow's `place` there, and, under each of its addresses, in `by_mac`, and
//!   nowhere else;
//! - each plan in `plans` has a flow, and stands under each of its places in `by_place`;
//! - a flow is entered only if its translation began after all changes whose pass has begun (`begun`): so a pass that
//!   asks the book which flows its changes can affect misses none.

use super::plan::{Changes, Effects, Place, Plan, Uses};
use base::{MacAddr, Millis};
use dpif::{DpActions, DpFlowStats, FlowId};
use flow::{FlowKey, Sparse};
use foldhash::fast::RandomState;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use xlate::BridgeId;

/// What is known of an installed flow.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) plan: Arc<Plan>,
    pub(crate) effects: Effects,
    pub(crate) uses: Uses,
    key: Sparse,
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
    pub(crate) plan: Plan,
    pub(crate) effects: Effects,
    pub(crate) uses: Uses,
    pub(crate) actions: DpActions,
    pub(crate) seq: u64,
    pub(crate) generation: u64,
}

impl Known {
    /// What `stats` have beyond what was brought to the rules, which they are from now on.
    pub(crate) fn take(&mut self, stats: DpFlowStats) -> (u64, u64) {
        let new = (stats.packets.saturating_sub(self.pushed.0), stats.bytes.saturating_sub(self.pushed.1));
        self.pushed = (self.pushed.0 + new.0, self.pushed.1 + new.1);
        new
    }

    /// The key of the packet that it was made for.
    pub(crate) fn key(&self) -> FlowKey {
        self.key.expand()
    }
}

#[derive(Debug)]
struct PlanEntry {
    plan: Arc<Plan>,
    flows: Vec<FlowId>,
    /// The effects of some of them, to be shared by others, with their hashes: lists that differ are not looked into.
    effects: Vec<(u64, Effects)>,
}

/// Lists of effects that are remembered with a plan.
const EFFECTS_MAX: usize = 8;

impl PlanEntry {
    fn new(plan: Arc<Plan>, first: FlowId, hasher: &RandomState, effects: &Effects) -> Self {
        Self { plan, flows: vec![first], effects: vec![(hasher.hash_one(effects), Arc::clone(effects))] }
    }

    /// The same effects as others have, if they are known.
    fn share(&mut self, hasher: &RandomState, effects: Effects) -> Effects {
        let hash = hasher.hash_one(&effects);
        if let Some((_, known)) = self.effects.iter().find(|(h, known)| *h == hash && *known == effects) {
            return Arc::clone(known);
        }
        if self.effects.len() >= EFFECTS_MAX {
            self.effects.remove(0);
        }
        self.effects.push((hash, Arc::clone(&effects)));
        effects
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Book {
    flows: HashMap<FlowId, Box<Known>, RandomState>,
    plans: HashMap<Arc<Plan>, PlanEntry, RandomState>,
    by_place: HashMap<Place, HashSet<ByAddress, RandomState>, RandomState>,
    by_mac: HashMap<(BridgeId, u16, MacAddr), HashSet<FlowId>>,
    hasher: RandomState,
    /// The last change whose pass has begun.
    begun: u64,
    /// Flows that the datapath did not have yet when a pass was to change them.
    pub(crate) late: HashSet<FlowId>,
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
    /// Enters a flow made for a packet with `key`. Whether it may be installed: not if a pass has begun over a change
    /// that its translation may not have seen.
    pub(crate) fn enter(&mut self, id: FlowId, key: &FlowKey, fresh: Fresh, now: Millis) -> bool {
        if fresh.seq < self.begun {
            return false;
        }
        let (plan, effects, place) = self.adopt(id, fresh.plan, fresh.effects, &fresh.uses);
        let known = Known {
            plan,
            place,
            effects,
            uses: fresh.uses,
            key: Sparse::new(key),
            actions: fresh.actions,
            pushed: (0, 0),
            installed: now,
            recent: 0,
            seq: fresh.seq,
            generation: fresh.generation,
            seen: 0,
        };
        self.flows.insert(id, Box::new(known));
        true
    }

    /// Enters a flow anew that was translated again. Whether it is (still) in the book.
    pub(crate) fn update(&mut self, id: FlowId, fresh: Fresh) -> bool {
        let Some(known) = self.flows.get_mut(&id) else { return false };
        (known.actions, known.seq, known.generation) = (fresh.actions, fresh.seq, fresh.generation);
        if *known.plan == fresh.plan && known.uses == fresh.uses && known.effects == fresh.effects {
            return true;
        }
        let (plan, uses, place) = (Arc::clone(&known.plan), Arc::clone(&known.uses), known.place);
        self.release(id, &plan, place, &uses);
        let (plan, effects, place) = self.adopt(id, fresh.plan, fresh.effects, &fresh.uses);
        if let Some(known) = self.flows.get_mut(&id) {
            (known.plan, known.effects, known.uses, known.place) = (plan, effects, fresh.uses, place);
        }
        true
    }

    /// Takes a flow out.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Known> {
        let known = self.flows.remove(&id)?;
        self.late.remove(&id);
        self.release(id, &known.plan, known.place, &known.uses);
        Some(*known)
    }

    /// Enters a flow with its plan and its addresses. Returns the plan and effects, as others have them too, and the place
    /// of the flow with its plan.
    fn adopt(&mut self, id: FlowId, mut plan: Plan, effects: Effects, uses: &Uses) -> (Arc<Plan>, Effects, usize) {
        for mac in uses.iter() {
            self.by_mac.entry(mac.mac).or_default().insert(id);
        }
        if let Some(entry) = self.plans.get_mut(&plan) {
            let place = entry.flows.len();
            entry.flows.push(id);
            return (Arc::clone(&entry.plan), entry.share(&self.hasher, effects), place);
        }
        plan.shrink();
        let plan = Arc::new(plan);
        for place in plan.places() {
            self.by_place.entry(place).or_default().insert(ByAddress(Arc::clone(&plan)));
        }
        let entry = PlanEntry::new(Arc::clone(&plan), id, &self.hasher, &effects);
        self.plans.insert(Arc::clone(&plan), entry);
        (plan, effects, 0)
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
        let Some(entry) = self.plans.get_mut(plan) else { return };
        entry.flows.swap_remove(place);
        if let Some(moved) = entry.flows.get(place)
            && let Some(known) = self.flows.get_mut(moved)
        {
            known.place = place;
        }
        if !entry.flows.is_empty() {
            return;
        }
        self.plans.remove(plan);
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
            plans.filter_map(|plan| Some((&plan.0, self.plans.get(&plan.0)?)))
        };
        let (mut ids, mut passed_over) = (HashMap::new(), 0);
        for (table, rules) in &changes.rules {
            for (plan, entry) in of_place(&Place::Table(table.0, table.1)) {
                if rules.iter().any(|(rule, what)| plan.rule_may_matter(*table, (rule, *what))) {
                    ids.extend(entry.flows.iter().map(|id| (*id, false)));
                } else {
                    passed_over += entry.flows.len();
                }
            }
        }
        let certain = changes.places.iter().flat_map(of_place).flat_map(|(_, entry)| &entry.flows);
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

    /// Bytes that flows and plans take, roughly: without the slack of the tables that find them.
    pub(crate) fn bytes(&self) -> usize {
        let flows = self.flows.values().map(|k| {
            size_of::<(FlowId, Known)>()
                + size_of::<FlowId>() * (1 + k.uses.len())
                + k.key.heap_bytes()
                + size_of_val(&*k.uses)
                + size_of_val(&*k.effects) / Arc::strong_count(&k.effects).saturating_sub(1).max(1)
        });
        flows.sum::<usize>() + self.plans.keys().map(|p| p.bytes()).sum::<usize>()
    }
}
