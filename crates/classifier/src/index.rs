//! The content of each of a classifier's two copies: the sorted tuples and the prefix tries.

use crate::conjunction::{Clauses, Satisfied};
use crate::hash::Seed;
use crate::options::Enabled;
use crate::prefixes::Prefixes;
use crate::tuple::{Search, Tuple};
use crate::{DEFAULT_PREFIXES, MiniMask, Rule};
use epoch::Replicated;
use flow::{Field, FlowKey, Reads};
use foldhash::fast::FixedState;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The index; see the module documentation.
///
/// Invariants: no tuple is empty; `order` lists each tuple once, by descending highest priority. Among tuples of equal highest
/// priority, one whose priority was raised to it follows, and one whose priority was lowered to it precedes the others, as in
/// a list that is kept sorted.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Index<R> {
    // Fields that lookups read come first.
    order: Vec<SortedTuple<R>>,
    prefixes: Prefixes,
    by_mask: HashMap<Arc<MiniMask>, u32, FixedState>,
    /// The rank of each tuple, by tuple number.
    ranks: Vec<Rank>,
    /// The next place behind all places of tuples, and the last one before all of them.
    places: (u32, u32),
    /// Numbers of removed tuples, for reuse.
    free: Vec<u32>,
    n_rules: usize,
    seed: Seed,
}

/// The rank of a tuple in the sorted list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rank {
    /// Its highest priority.
    highest: u32,
    /// Its place among tuples of this priority; no two tuples have the same.
    place: u32,
}

impl Rank {
    /// Returns true if a tuple of this rank precedes one of rank `other`.
    fn precedes(self, other: Self) -> bool {
        self.highest > other.highest || self.highest == other.highest && self.place < other.place
    }
}

/// The place of the first tuple.
const FIRST_PLACE: u32 = 1 << 31;

/// A tuple in the sorted list.
#[derive(Debug)]
struct SortedTuple<R> {
    rank: Rank,
    tuple: Box<Tuple<R>>,
}

/// An operation on an index, applied to both copies.
#[derive(Debug)]
pub(crate) enum Change<R> {
    /// A rule more.
    Insert(Arc<R>),
    /// Rules more.
    InsertAll(Vec<Arc<R>>),
    /// This very rule less.
    Remove(Arc<R>),
    /// Removes these rules. The first copy notes whether they are all rules of the index.
    RemoveAll(Vec<Arc<R>>, OnceCell<bool>),
    /// Other prefix fields.
    SetPrefixes(Vec<Field>),
}

impl<R: Rule> Replicated for Index<R> {
    type Op = Change<R>;
    /// Whether the operation changed anything.
    type Output = bool;
    type Ledger = ();

    fn apply(&mut self, change: &mut Change<R>, (): &mut ()) -> bool {
        self.change(change)
    }

    fn replay(&mut self, change: Change<R>) {
        self.change(&change);
    }
}

impl<R: Rule> Index<R> {
    fn change(&mut self, change: &Change<R>) -> bool {
        match change {
            Change::Insert(rule) => {
                self.insert(rule);
                true
            }
            Change::InsertAll(rules) => {
                rules.iter().for_each(|rule| self.insert(rule));
                true
            }
            Change::Remove(rule) => self.remove(rule),
            Change::RemoveAll(rules, all) => self.remove_all(rules, all),
            Change::SetPrefixes(fields) => {
                self.set_prefixes(fields);
                true
            }
        }
    }
}

impl<R: Rule> Index<R> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            order: Vec::new(),
            prefixes: Prefixes::new(&DEFAULT_PREFIXES),
            by_mask: HashMap::with_hasher(FixedState::with_seed(seed)),
            ranks: Vec::new(),
            places: (FIRST_PLACE, FIRST_PLACE),
            free: Vec::new(),
            n_rules: 0,
            seed: Seed::new(seed),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.n_rules
    }

    pub(crate) fn n_masks(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn prefixes(&self) -> Vec<Field> {
        self.prefixes.fields().collect()
    }

    /// Whether removed rules left nothing behind.
    #[cfg(test)]
    pub(crate) fn is_clean(&self) -> bool {
        self.order.is_empty()
            && self.by_mask.is_empty()
            && self.free.len() == self.ranks.len()
            && self.prefixes.are_empty()
    }

    /// Makes all tuples predict a hit, or a miss.
    #[cfg(test)]
    pub(crate) fn expect(&self, found: bool) {
        self.tuples().for_each(|tuple| tuple.expect(found));
    }

    /// The shared mask, if a rule has it.
    pub(crate) fn mask(&self, mask: &MiniMask) -> Option<&Arc<MiniMask>> {
        self.by_mask.get_key_value(mask).map(|(mask, _)| mask)
    }

    /// Tuples by descending highest priority.
    pub(crate) fn tuples(&self) -> impl Iterator<Item = &Tuple<R>> {
        self.order.iter().map(|place| &*place.tuple)
    }

    /// The tuple of a mask.
    pub(crate) fn tuple_of(&self, mask: &MiniMask) -> Option<&Tuple<R>> {
        self.position_of(mask).map(|i| &*self.order[i].tuple)
    }

    /// The rule of highest priority that is visible in `version` and matches `key`.
    pub(crate) fn lookup(&self, key: &FlowKey, version: u64, options: Enabled, reads: &mut Reads) -> Option<&Arc<R>> {
        let mut clauses = Clauses::default();
        let best = self.search(key, version, options, reads, Some(&mut clauses));
        if clauses.is_empty() {
            return best;
        }
        for id in clauses.satisfied(best.map(|r| r.priority())) {
            if let Some(found) = self.search_with_id(key, id, version, options, reads) {
                return Some(found);
            }
        }
        best
    }

    /// The rules of the conjunctive match that [`Self::lookup`] tries: the first one that leads to a rule, or else the first one.
    pub(crate) fn conjunctive(&self, key: &FlowKey, version: u64, options: Enabled) -> Vec<Arc<R>> {
        let mut reads = Reads::new();
        let (mut clauses, mut rules, mut best) = (Clauses::default(), Vec::new(), None);
        let mut search = Search { key, options, prefixes: &self.prefixes, walks: None, reads: &mut reads };
        for tuple in self.tuples() {
            tuple.visit(&mut search, |rule| {
                if !rule.versions().visible_in(version) {
                    return;
                }
                if rule.conjunctions().is_empty() {
                    best = best.max(Some(rule.priority()));
                } else {
                    clauses.add(rule.priority(), rule.conjunctions());
                    rules.push(Arc::clone(rule));
                }
            });
        }
        let tried: Vec<_> = clauses.conjunctions(best).collect();
        let leads = |of: &&Satisfied| self.search_with_id(key, of.id, version, options, &mut Reads::new()).is_some();
        let used = tried.iter().find(leads).or(tried.first());
        rules.retain(|rule| used.is_some_and(|used| used.has(&**rule)));
        rules
    }

    /// Searches again for a conjunctive match. The bits of `conj_id` then count as overwritten.
    fn search_with_id(
        &self,
        key: &FlowKey,
        id: u32,
        version: u64,
        options: Enabled,
        reads: &mut Reads,
    ) -> Option<&Arc<R>> {
        let mut key = key.clone();
        key.set(Field::ConjId, id.into());
        let written = reads.written().clone();
        reads.write_field(Field::ConjId);
        let found = self.search(&key, version, options, reads, None);
        reads.restore_written(written);
        found
    }

    /// The ordinary rule of highest priority. Adds the clauses found at higher priorities (and some at lower ones) to
    /// `clauses`.
    fn search<'a>(
        &'a self,
        key: &FlowKey,
        version: u64,
        options: Enabled,
        reads: &mut Reads,
        mut clauses: Option<&mut Clauses>,
    ) -> Option<&'a Arc<R>> {
        let mut best: Option<&'a Arc<R>> = None;
        let mut search = Search { key, options, prefixes: &self.prefixes, walks: None, reads };
        for SortedTuple { rank, tuple } in &self.order {
            if best.is_some_and(|b| b.priority() >= rank.highest) && options.priority_sorting() {
                break;
            }
            let mut found: Option<&'a Arc<R>> = None;
            tuple.visit(&mut search, |rule| {
                if !rule.versions().visible_in(version) {
                    return;
                }
                if rule.conjunctions().is_empty() {
                    found = Some(found.map_or(rule, |f| if rule_rank(f) < rule_rank(rule) { rule } else { f }));
                } else if let Some(clauses) = &mut clauses {
                    clauses.add(rule.priority(), rule.conjunctions());
                }
            });
            // At equal priorities the first tuple's rule wins, so later tuples of that priority can be skipped.
            if let Some(rule) = found
                && best.is_none_or(|b| b.priority() < rule.priority())
            {
                best = Some(rule);
            }
        }
        best
    }

    fn insert(&mut self, rule: &Arc<R>) {
        let mask = rule.minimatch().mask();
        self.n_rules += 1;
        if let Some(i) = self.position_of(mask) {
            self.order[i].tuple.insert(Arc::clone(rule), &mut self.prefixes);
            return self.resort(i);
        }
        let mut tuple = Box::new(Tuple::new(Arc::clone(mask), &mut self.prefixes, self.seed));
        tuple.insert(Arc::clone(rule), &mut self.prefixes);
        let rank = Rank { highest: rule.priority(), place: self.last_place() };
        let number = self.free.pop().unwrap_or(self.ranks.len() as u32);
        if number as usize == self.ranks.len() {
            self.ranks.push(rank);
        }
        self.by_mask.insert(Arc::clone(mask), number);
        self.put(number, SortedTuple { rank, tuple });
    }

    fn remove(&mut self, rule: &Arc<R>) -> bool {
        let Some(i) = self.position_of(rule.minimatch().mask()) else {
            return false;
        };
        if !self.order[i].tuple.remove(rule, &mut self.prefixes) {
            return false;
        }
        self.n_rules -= 1;
        if self.order[i].tuple.is_empty() {
            let gone = self.order.remove(i);
            self.free.extend(self.by_mask.remove(rule.minimatch().mask()));
            self.close_gap(i, gone.rank);
        } else {
            self.resort(i);
        }
        true
    }

    /// Returns whether all of the rules were present.
    fn remove_all(&mut self, rules: &[Arc<R>], all: &OnceCell<bool>) -> bool {
        // Both copies hold the same rules when the operation is applied to them.
        if *all.get_or_init(|| rules.len() == self.n_rules && self.is_made_of(rules)) {
            // All rules are removed: drop everything at once instead of updating the indexes for each rule.
            let prefixes = self.prefixes();
            (self.order, self.ranks, self.free) = Default::default();
            self.places = (FIRST_PLACE, FIRST_PLACE);
            self.by_mask.clear();
            self.n_rules = 0;
            self.prefixes = Prefixes::new(&prefixes);
            return true;
        }
        rules.iter().filter(|rule| !self.remove(rule)).count() == 0
    }

    /// Whether `rules`, without duplicates, are all rules of the index.
    fn is_made_of(&self, rules: &[Arc<R>]) -> bool {
        let mut named = HashSet::with_capacity_and_hasher(rules.len(), FixedState::default());
        rules.iter().all(|rule| named.insert(Arc::as_ptr(rule).addr()))
            && self.tuples().flat_map(Tuple::iter).all(|rule| named.contains(&Arc::as_ptr(rule).addr()))
    }

    fn set_prefixes(&mut self, fields: &[Field]) {
        self.prefixes = Prefixes::new(fields);
        for place in &mut self.order {
            place.tuple.set_prefixes(&mut self.prefixes);
        }
    }

    /// The position of a mask's tuple in the sorted list.
    fn position_of(&self, mask: &MiniMask) -> Option<usize> {
        let rank = self.ranks[*self.by_mask.get(mask)? as usize];
        let i = self.position_for(rank);
        self.order.get(i).is_some_and(|sorted| sorted.rank == rank).then_some(i)
    }

    /// The position in the sorted list for a tuple of this rank.
    fn position_for(&self, rank: Rank) -> usize {
        self.order.partition_point(|sorted| sorted.rank.precedes(rank))
    }

    fn put(&mut self, number: u32, sorted: SortedTuple<R>) {
        self.ranks[number as usize] = sorted.rank;
        self.order.insert(self.position_for(sorted.rank), sorted);
    }

    /// Takes a place behind those of all tuples.
    fn last_place(&mut self) -> u32 {
        if self.places.0 == u32::MAX {
            self.renumber();
        }
        let place = self.places.0;
        self.places.0 += 1;
        place
    }

    /// Takes a place before those of all tuples.
    fn first_place(&mut self) -> u32 {
        if self.places.1 == 0 {
            self.renumber();
        }
        self.places.1 -= 1;
        self.places.1
    }

    /// Gives the tuples consecutive places, in their order.
    fn renumber(&mut self) {
        for (sorted, place) in self.order.iter_mut().zip(FIRST_PLACE..) {
            sorted.rank.place = place;
            if let Some(number) = self.by_mask.get(sorted.tuple.mask()) {
                self.ranks[*number as usize] = sorted.rank;
            }
        }
        self.places = (FIRST_PLACE + self.order.len() as u32, FIRST_PLACE);
    }

    /// Moves the tuple at `i`, which is not empty, to the position of its highest priority.
    fn resort(&mut self, i: usize) {
        let SortedTuple { rank, tuple } = &self.order[i];
        if let Some(highest) = tuple.max_priority().filter(|priority| *priority != rank.highest) {
            let is_raised = highest > rank.highest;
            let place = if is_raised { self.last_place() } else { self.first_place() };
            self.move_to(i, Rank { highest, place });
        }
    }

    /// The tuple of rank `gone` was removed from position `i`: the last tuple of the list takes its place, as in a list from which
    /// an element is removed by moving the last one there, and that is sorted then. The order in which flows are dumped thereby
    /// is that of Open vSwitch.
    fn close_gap(&mut self, i: usize, gone: Rank) {
        let Some(last) = self.order.len().checked_sub(1).filter(|last| *last > i) else { return };
        let rank = self.order[last].rank;
        let place = if rank.highest == gone.highest { gone.place } else { self.first_place() };
        self.move_to(last, Rank { place, ..rank });
    }

    /// Gives the tuple at `i` another rank.
    fn move_to(&mut self, i: usize, rank: Rank) {
        let sorted = self.order.remove(i);
        if let Some(number) = self.by_mask.get(sorted.tuple.mask()).copied() {
            self.put(number, SortedTuple { rank, ..sorted });
        }
    }
}

/// Sort key of rules: among rules of equal priority, those added later win.
fn rule_rank<R: Rule>(rule: &Arc<R>) -> (u32, u64) {
    (rule.priority(), rule.versions().added())
}
