//! The table of megaflows (Open vSwitch calls their entries ukeys): the flows installed in the datapath, each with what
//! its translation depends on, and indexed by that.
//!
//! The table is sharded by flow id, so that handlers and revalidators hold up each other little. Megaflows whose
//! translations depend on the same things share one [`SharedTranslation`], across shards.
//!
//! Invariants of a shard:
//! - each flow is listed by its translation, at the flow's `index` there, and, under each of its addresses, in `by_mac`, and
//!   nowhere else;
//! - each translation in `translations` has a flow, and is indexed under each of its dependency keys in `by_dependency`;
//! - a flow is entered only if its translation began after all changes whose pass has begun (`begun`): a pass that asks
//!   the shard which flows its changes can affect misses none.

use super::lists::{ActionLists, hash_of};
use super::translation::{Basis, Changes, DependencyKey, Effects, SharedTranslation, Uses};
use base::{MacAddr, Millis};
use dpif::{DpAction, DpActions, DpFlowStats, FlowId};
use flow::{Sparse, Steps};
use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table};
use parking_lot::{Mutex, MutexGuard};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xlate::{BridgeId, Effect};

/// An installed flow.
#[derive(Debug)]
pub(crate) struct Ukey {
    pub(crate) translation: Arc<SharedTranslation>,
    pub(crate) effects: Effects,
    pub(crate) uses: Uses,
    /// The key of the packet that it was made for.
    pub(crate) key: Sparse,
    pub(crate) actions: DpActions,
    /// Packets and bytes that were pushed to the rules already. They only rise: of two dumps processed at
    /// the same time, the older one adds nothing.
    pushed: (u64, u64),
    pub(crate) installed: Millis,
    /// Packets since the previous pass.
    pub(crate) recent: u64,
    /// The last change before the translation began.
    pub(crate) seq: u64,
    pub(crate) generation: u64,
    /// The last pass that saw it in the datapath.
    pub(crate) seen: u64,
    /// Its index among the flows of its translation.
    index: usize,
}

/// A new flow to enter.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) basis: Basis,
    pub(crate) effects: Vec<Effect>,
    pub(crate) uses: Uses,
    pub(crate) actions: Vec<DpAction>,
    pub(crate) seq: u64,
    pub(crate) generation: u64,
}

/// The parts that an entered flow shares with others.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) reads: Arc<Steps>,
    pub(crate) actions: DpActions,
}

impl Ukey {
    /// Returns the part of `stats` that was not pushed to the rules yet, and marks it as pushed.
    pub(crate) fn take(&mut self, stats: DpFlowStats) -> (u64, u64) {
        let new = (stats.packets.saturating_sub(self.pushed.0), stats.bytes.saturating_sub(self.pushed.1));
        self.pushed = (self.pushed.0 + new.0, self.pushed.1 + new.1);
        new
    }
}

#[derive(Debug)]
struct Sharing {
    translation: Arc<SharedTranslation>,
    flows: Vec<FlowId>,
    /// The effects of some of them, to be shared by others, with their hashes: lists with another hash are not compared.
    effects: Recent<(u64, Effects)>,
    /// The actions of some of them, which are found here first.
    actions: Recent<DpActions>,
}

/// A few recent values out of many.
#[derive(Debug)]
struct Recent<T> {
    values: Vec<T>,
    /// The index of the value pushed last.
    last: usize,
    /// The number of consecutive searches that found nothing.
    misses: u32,
}

impl<T: Clone> Recent<T> {
    const MAX: usize = 8;
    /// While searches find nothing, only one in this many pushes its value.
    const SELDOM: u32 = 8;

    fn new() -> Self {
        Self { values: Vec::new(), last: 0, misses: 0 }
    }

    /// Returns the value that is the `same` as `key`, or else a new one made from it, which may replace the oldest. `make` also gets
    /// whether searches have found values lately.
    fn find_or<W>(&mut self, key: W, same: impl Fn(&T, &W) -> bool, make: impl FnOnce(W, bool) -> T) -> T {
        if let Some(found) = self.values.iter().find(|value| same(value, &key)) {
            self.misses = 0;
            return found.clone();
        }
        self.misses = self.misses.wrapping_add(1);
        let finds = self.misses < Self::SELDOM || self.misses.is_multiple_of(Self::SELDOM);
        let value = make(key, finds);
        if self.values.len() < Self::MAX {
            self.values.push(value.clone());
        } else if finds {
            self.last = (self.last + 1) % Self::MAX;
            self.values[self.last] = value.clone();
        }
        value
    }
}

impl Sharing {
    fn new(translation: Arc<SharedTranslation>) -> Self {
        Self { translation, flows: Vec::new(), effects: Recent::new(), actions: Recent::new() }
    }

    /// Adds a flow, and returns its effects and actions, shared with other flows, and its index among the flows.
    fn add(
        &mut self,
        id: FlowId,
        effects: Vec<Effect>,
        actions: Vec<DpAction>,
        lists: &ActionLists,
    ) -> (Effects, DpActions, usize) {
        let index = self.flows.len();
        self.flows.push(id);
        let hash = hash_of(&effects);
        let same = |(h, known): &(u64, Effects), effects: &Vec<Effect>| *h == hash && known[..] == *effects;
        let (_, effects) = self.effects.find_or(effects, same, |effects, _| (hash, effects.into()));
        // Flows of other shards and translations may have the same.
        let share = |actions, finds| if finds { lists.share(actions) } else { DpActions::from(actions) };
        let actions = self.actions.find_or(actions, |known, actions| known[..] == *actions, share);
        (effects, actions, index)
    }
}

/// The number of shards of the table, each with a lock of its own. A flow's id determines its shard.
pub(super) const SHARDS: usize = 16;

/// The table of megaflows.
#[derive(Debug)]
pub(crate) struct Ukeys {
    shards: [Mutex<Shard>; SHARDS],
    common: Arc<Common>,
}

/// The state that all shards share. Its lock is taken while a shard's lock is held, never the other way round.
#[derive(Debug, Default)]
struct Common {
    /// Megaflows in all shards.
    len: AtomicUsize,
    /// The translations that megaflows share, each with the number of shards that use it.
    translations: Mutex<HashTable<(Arc<SharedTranslation>, usize)>>,
    lists: ActionLists,
}

/// One part of the table.
#[derive(Debug)]
pub(crate) struct Shard {
    common: Arc<Common>,
    flows: HashMap<FlowId, Box<Ukey>, RandomState>,
    /// Translations with their flows, by their dependencies.
    translations: HashTable<Sharing>,
    by_dependency: HashMap<DependencyKey, HashSet<ByAddress, RandomState>, RandomState>,
    by_mac: HashMap<(BridgeId, u16, MacAddr), HashSet<FlowId>>,
    /// The last change whose pass has begun.
    begun: u64,
    /// Flows that the datapath did not have yet when a pass wanted to change them.
    pub(crate) late: HashSet<FlowId>,
}

impl Default for Ukeys {
    fn default() -> Self {
        let common = Arc::<Common>::default();
        let shard = || Shard {
            common: Arc::clone(&common),
            flows: HashMap::default(),
            translations: HashTable::new(),
            by_dependency: HashMap::default(),
            by_mac: HashMap::new(),
            begun: 0,
            late: HashSet::new(),
        };
        Self { shards: std::array::from_fn(|_| Mutex::new(shard())), common }
    }
}

impl Ukeys {
    /// The number of the shard that a flow belongs to.
    pub(crate) fn shard_of(id: FlowId) -> usize {
        id.0 as usize % SHARDS
    }

    /// Locks the shard that a flow belongs to.
    pub(crate) fn lock(&self, id: FlowId) -> MutexGuard<'_, Shard> {
        self.shards[Self::shard_of(id)].lock()
    }

    /// Locks the shard that a flow belongs to, unless another thread holds the lock.
    pub(crate) fn try_lock(&self, id: FlowId) -> Option<MutexGuard<'_, Shard>> {
        self.shards[Self::shard_of(id)].try_lock()
    }

    /// Locks one shard after the other.
    pub(crate) fn each_shard(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(Mutex::lock)
    }

    /// Megaflows in the table.
    pub(crate) fn len(&self) -> usize {
        self.common.len.load(Ordering::Relaxed)
    }

    /// Returns true if there are late flows.
    pub(crate) fn has_late(&self) -> bool {
        self.each_shard().any(|shard| !shard.late.is_empty())
    }

    /// The number of translations that megaflows share.
    pub(crate) fn n_translations(&self) -> usize {
        self.common.translations.lock().len()
    }

    /// The approximate memory of megaflows and their translations in bytes: without the spare capacity of the hash tables, and
    /// without keys,
    /// which are shared with the datapath's flows.
    pub(crate) fn bytes(&self) -> usize {
        let flows: usize = self.each_shard().map(|shard| shard.bytes()).sum();
        flows + self.common.translations.lock().iter().map(|(translation, _)| translation.bytes()).sum::<usize>()
    }
}

impl Common {
    /// Returns the translation with this basis, counting one more shard.
    fn share(&self, basis: Basis) -> Arc<SharedTranslation> {
        let mut translations = self.translations.lock();
        if let Some((translation, shards)) =
            translations.find_mut(basis.hash(), |(translation, _)| translation.is(&basis))
        {
            *shards += 1;
            return Arc::clone(translation);
        }
        let translation = Arc::new(SharedTranslation::new(basis));
        translations
            .insert_unique(translation.hash(), (Arc::clone(&translation), 1), |(translation, _)| translation.hash());
        translation
    }

    /// Ends a shard's use of a translation.
    fn release(&self, translation: &Arc<SharedTranslation>) {
        let mut translations = self.translations.lock();
        let Ok(mut found) = translations.find_entry(translation.hash(), |(known, _)| Arc::ptr_eq(known, translation))
        else {
            return;
        };
        let (_, shards) = found.get_mut();
        *shards -= 1;
        if *shards == 0 {
            found.remove();
        }
    }
}

/// The parts that a flow shares with others, and its index among its translation's flows.
struct SharedParts {
    translation: Arc<SharedTranslation>,
    effects: Effects,
    actions: DpActions,
    index: usize,
}

impl SharedParts {
    fn entered(&self) -> Entered {
        Entered { reads: Arc::clone(&self.translation.reads), actions: Arc::clone(&self.actions) }
    }
}

/// A translation, compared by its address: the table holds no two equal ones.
#[derive(Clone, Debug)]
struct ByAddress(Arc<SharedTranslation>);

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

impl Shard {
    /// Enters a flow for a packet with `key`. Returns its actions if it must not be installed, because a pass has begun over
    /// a change that its translation may not have seen.
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
        let shared = self.enter_shared(id, basis, effects, actions, &uses);
        let entered = shared.entered();
        let SharedParts { translation, effects, actions, index } = shared;
        let (pushed, installed, recent, seen) = ((0, 0), now, 0, 0);
        let known =
            Ukey { translation, effects, uses, key, actions, pushed, installed, recent, seq, generation, seen, index };
        if self.flows.insert(id, Box::new(known)).is_none() {
            self.common.len.fetch_add(1, Ordering::Relaxed);
        }
        Ok(entered)
    }

    /// Updates a flow that was translated again, if it is (still) in the table. Returns its shared parts.
    pub(crate) fn update(&mut self, id: FlowId, fresh: Fresh) -> Option<Entered> {
        let Fresh { basis, effects, uses, actions, seq, generation } = fresh;
        let known = self.flows.get_mut(&id)?;
        if known.translation.is(&basis) && known.uses == uses && known.effects[..] == effects {
            if known.actions[..] != actions {
                known.actions = self.common.lists.share(actions);
            }
            (known.seq, known.generation) = (seq, generation);
            return Some(Entered { reads: Arc::clone(&known.translation.reads), actions: Arc::clone(&known.actions) });
        }
        let (translation, old_uses, index) = (Arc::clone(&known.translation), Arc::clone(&known.uses), known.index);
        self.release(id, &translation, index, &old_uses);
        let shared = self.enter_shared(id, basis, effects, actions, &uses);
        let entered = shared.entered();
        let known = self.flows.get_mut(&id)?;
        (known.seq, known.generation, known.uses) = (seq, generation, uses);
        let SharedParts { translation, effects, actions, index } = shared;
        (known.translation, known.effects, known.actions, known.index) = (translation, effects, actions, index);
        Some(entered)
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Ukey> {
        let known = self.flows.remove(&id)?;
        self.common.len.fetch_sub(1, Ordering::Relaxed);
        self.late.remove(&id);
        self.release(id, &known.translation, known.index, &known.uses);
        Some(*known)
    }

    /// Enters a flow with its translation and its addresses.
    fn enter_shared(
        &mut self,
        id: FlowId,
        basis: Basis,
        effects: Vec<Effect>,
        actions: Vec<DpAction>,
        uses: &Uses,
    ) -> SharedParts {
        for mac in uses.iter() {
            self.by_mac.entry(mac.mac).or_default().insert(id);
        }
        let Self { common, translations, by_dependency, .. } = self;
        let hash = basis.hash();
        let entry =
            match translations.entry(hash, |entry| entry.translation.is(&basis), |entry| entry.translation.hash()) {
                hash_table::Entry::Occupied(entry) => entry.into_mut(),
                hash_table::Entry::Vacant(place) => {
                    let translation = common.share(basis);
                    for key in translation.dependency_keys() {
                        by_dependency.entry(key).or_default().insert(ByAddress(Arc::clone(&translation)));
                    }
                    place.insert(Sharing::new(translation)).into_mut()
                }
            };
        let (effects, actions, index) = entry.add(id, effects, actions, &common.lists);
        SharedParts { translation: Arc::clone(&entry.translation), effects, actions, index }
    }

    fn release(&mut self, id: FlowId, translation: &Arc<SharedTranslation>, index: usize, uses: &Uses) {
        for mac in uses.iter() {
            if let Entry::Occupied(mut flows) = self.by_mac.entry(mac.mac) {
                flows.get_mut().remove(&id);
                if flows.get().is_empty() {
                    flows.remove();
                }
            }
        }
        let this = |entry: &Sharing| Arc::ptr_eq(&entry.translation, translation);
        let Ok(mut found) = self.translations.find_entry(translation.hash(), this) else { return };
        let entry = found.get_mut();
        entry.flows.swap_remove(index);
        if let Some(moved) = entry.flows.get(index)
            && let Some(known) = self.flows.get_mut(moved)
        {
            known.index = index;
        }
        if !entry.flows.is_empty() {
            return;
        }
        found.remove();
        self.common.release(translation);
        for key in translation.dependency_keys() {
            if let Entry::Occupied(mut translations) = self.by_dependency.entry(key) {
                translations.get_mut().remove(&ByAddress(Arc::clone(translation)));
                if translations.get().is_empty() {
                    translations.remove();
                }
            }
        }
    }

    /// Records that a pass begins over all changes up to `seq`.
    pub(crate) fn begin(&mut self, seq: u64) {
        self.begun = self.begun.max(seq);
    }

    /// Returns a flow.
    pub(crate) fn get(&self, id: FlowId) -> Option<&Ukey> {
        self.flows.get(&id).map(Box::as_ref)
    }

    /// Returns a flow, to take its statistics.
    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut Ukey> {
        self.flows.get_mut(&id).map(Box::as_mut)
    }

    /// The number of megaflows in this shard.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The ids of all flows.
    pub(crate) fn ids(&self) -> Vec<FlowId> {
        self.flows.keys().copied().collect()
    }

    /// Returns the flows that `changes` may affect; a flow marked `true` has to be translated again in any case,
    /// for the others [`Shard::affects`] decides. Also returns the number of flows with a dependency of the kind that changed.
    pub(crate) fn candidates(&self, changes: &Changes) -> (Vec<(FlowId, bool)>, usize) {
        if changes.everything {
            return (self.flows.keys().map(|id| (*id, true)).collect(), self.flows.len());
        }
        let of_key = |key: &DependencyKey| {
            let translations = self.by_dependency.get(key).into_iter().flatten();
            translations.filter_map(|ByAddress(translation)| {
                self.translations.find(translation.hash(), |entry| Arc::ptr_eq(&entry.translation, translation))
            })
        };
        let (mut ids, mut passed_over) = (HashMap::new(), 0);
        for (table, rules) in &changes.rules {
            for entry in of_key(&DependencyKey::Table(table.0, table.1)) {
                if rules.iter().any(|(rule, what)| entry.translation.rule_may_matter(*table, (rule, *what))) {
                    ids.extend(entry.flows.iter().map(|id| (*id, false)));
                } else {
                    passed_over += entry.flows.len();
                }
            }
        }
        let certain = changes.keys.iter().flat_map(of_key).flat_map(|entry| &entry.flows);
        let by_mac = changes.macs.iter().filter_map(|mac| self.by_mac.get(mac)).flatten();
        ids.extend(certain.chain(by_mac).chain(&self.late).map(|id| (*id, true)));
        let n = ids.len() + passed_over;
        (ids.into_iter().collect(), n)
    }

    /// Returns false if these changes affect no flow, and true if they may, or if finding out takes more than `budget`
    /// comparisons of a change with a translation or a flow; reduces `budget` by the number made.
    pub(crate) fn may_be_affected(&self, changes: &Changes, budget: &mut usize) -> bool {
        if self.flows.is_empty() {
            return false;
        }
        let certain = changes.keys.iter().any(|key| self.by_dependency.contains_key(key));
        if certain || changes.macs.iter().any(|mac| self.by_mac.contains_key(mac)) || !self.late.is_empty() {
            return true;
        }
        for (table, rules) in &changes.rules {
            let key = DependencyKey::Table(table.0, table.1);
            for ByAddress(translation) in self.by_dependency.get(&key).into_iter().flatten() {
                let this = |entry: &Sharing| Arc::ptr_eq(&entry.translation, translation);
                let flows = self.translations.find(translation.hash(), this).map_or(0, |entry| entry.flows.len());
                let Some(left) = budget.checked_sub(rules.len() * (1 + flows)) else { return true };
                *budget = left;
                if !rules.iter().any(|(rule, what)| translation.rule_may_matter(*table, (rule, *what))) {
                    continue;
                }
                let entry = self.translations.find(translation.hash(), this);
                if entry.into_iter().flat_map(|entry| &entry.flows).any(|id| self.affects(*id, changes)) {
                    return true;
                }
            }
        }
        false
    }

    /// Returns true if these changes of rules may affect a flow.
    pub(crate) fn affects(&self, id: FlowId, changes: &Changes) -> bool {
        let Some(known) = self.flows.get(&id) else { return false };
        let key = |word| known.key.word(word);
        changes.rules.iter().any(|(table, rules)| {
            rules.iter().any(|(rule, what)| known.translation.rule_matters(*table, (rule, *what), &key))
        })
    }

    /// Removes flows that pass `pass` did not find in the datapath, and that were entered before `before`.
    pub(crate) fn remove_unseen(&mut self, pass: u64, before: Millis) {
        let unseen = self.flows.iter().filter(|(_, k)| k.seen != pass && k.installed < before);
        let unseen: Vec<FlowId> = unseen.map(|(id, _)| *id).collect();
        for id in unseen {
            self.remove(id);
        }
    }

    /// The memory of the megaflows in bytes, without the translations that they share.
    fn bytes(&self) -> usize {
        let of = |k: &Ukey| {
            size_of::<(FlowId, Ukey)>()
                + size_of::<FlowId>() * (1 + k.uses.len())
                + size_of_val(&*k.uses)
                + size_of_val(&*k.effects) / Arc::strong_count(&k.effects).saturating_sub(1).max(1)
        };
        self.flows.values().map(|k| of(k)).sum()
    }
}
