//! What there is of a classifier in each of its two copies: the tuples in their order, and the tries.

use crate::conjunction::Clauses;
use crate::hash::Seed;
use crate::left_right::Apply;
use crate::options::Enabled;
use crate::prefixes::Prefixes;
use crate::tuple::{Search, Tuple};
use crate::{DEFAULT_PREFIXES, MiniMask, Rule};
use flow::{Field, FlowKey, Match, Reads};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::sync::Arc;

/// See the top of this file.
///
/// Invariants: no tuple is empty; `order` has each of them once, by descending highest priority.
#[derive(Debug)]
pub(crate) struct Index<R> {
    /// By number. Numbers of tuples that are gone are used again.
    tuples: Vec<Option<Box<Tuple<R>>>>,
    free: Vec<u32>,
    by_mask: HashMap<Arc<MiniMask>, u32, FixedState>,
    /// Highest priority and number.
    order: Vec<(u32, u32)>,
    prefixes: Prefixes,
    n_rules: usize,
    seed: Seed,
}

/// A change of an index.
#[derive(Debug)]
pub(crate) enum Change<R> {
    /// A rule more.
    Insert(Arc<R>),
    /// This very rule less.
    Remove(Arc<R>),
    /// Other prefix fields.
    SetPrefixes(Vec<Field>),
}

impl<R: Rule> Apply<Change<R>> for Index<R> {
    /// Whether there was anything to change.
    type Output = bool;

    fn apply(&mut self, change: &Change<R>) -> bool {
        match change {
            Change::Insert(rule) => {
                self.insert(rule);
                true
            }
            Change::Remove(rule) => self.remove(rule),
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
            tuples: Vec::new(),
            free: Vec::new(),
            by_mask: HashMap::with_hasher(FixedState::with_seed(seed)),
            order: Vec::new(),
            prefixes: Prefixes::new(&DEFAULT_PREFIXES),
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

    /// Whether nothing is left of rules that were removed.
    #[cfg(test)]
    pub(crate) fn is_clean(&self) -> bool {
        self.order.is_empty()
            && self.by_mask.is_empty()
            && self.free.len() == self.tuples.len()
            && self.prefixes.are_empty()
    }

    /// Makes all tuples expect that something will be found in them, or nothing.
    #[cfg(test)]
    pub(crate) fn expect(&self, found: bool) {
        self.tuples().for_each(|tuple| tuple.expect(found));
    }

    /// The shared mask, if there is a rule with it.
    pub(crate) fn mask(&self, mask: &MiniMask) -> Option<&Arc<MiniMask>> {
        self.by_mask.get_key_value(mask).map(|(mask, _)| mask)
    }

    /// Tuples by descending highest priority.
    pub(crate) fn tuples(&self) -> impl Iterator<Item = &Tuple<R>> {
        self.order.iter().filter_map(|(_, id)| self.tuples[*id as usize].as_deref())
    }

    /// Rules of this match.
    pub(crate) fn same_match<'a>(&'a self, m: &Match, values: &'a [u64]) -> impl Iterator<Item = &'a Arc<R>> {
        let id = self.by_mask.get(&MiniMask::new(m.mask()));
        let tuple = id.and_then(|id| self.tuples[*id as usize].as_deref());
        tuple.into_iter().flat_map(|t| t.same_match(values))
    }

    /// The rule of the highest priority that is there in `version` and matches `key`.
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

    /// Searches again, for a conjunctive match. What is in `conj_id` is not the packet's any more.
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

    /// The ordinary rule of the highest priority. Clauses at higher priorities (and some at lower) go to `clauses`.
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
        for (max_priority, id) in &self.order {
            if best.is_some_and(|b| b.priority() >= *max_priority) && options.priority_sorting() {
                break;
            }
            let Some(tuple) = &self.tuples[*id as usize] else { continue };
            let mut found: Option<&'a Arc<R>> = None;
            tuple.visit(&mut search, |rule| {
                if !rule.versions().visible_in(version) {
                    return;
                }
                if rule.conjunctions().is_empty() {
                    found = Some(found.map_or(rule, |f| if rank(f) < rank(rule) { rule } else { f }));
                } else if let Some(clauses) = &mut clauses {
                    clauses.add(rule.priority(), rule.conjunctions());
                }
            });
            // Of two tuples with a rule of the same priority, the first one's is found, so that the second may be left out.
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
        let id = match self.by_mask.get(mask) {
            Some(id) => *id,
            None => self.new_tuple(mask),
        };
        if let Some(tuple) = &mut self.tuples[id as usize] {
            let before = tuple.max_priority();
            tuple.insert(Arc::clone(rule), &mut self.prefixes);
            let after = tuple.max_priority();
            self.n_rules += 1;
            self.resort(id, before, after);
        }
    }

    fn remove(&mut self, rule: &Arc<R>) -> bool {
        let Some(id) = self.by_mask.get(rule.minimatch().mask()).copied() else {
            return false;
        };
        let Some(tuple) = &mut self.tuples[id as usize] else {
            return false;
        };
        let before = tuple.max_priority();
        if !tuple.remove(rule, &mut self.prefixes) {
            return false;
        }
        let after = tuple.max_priority();
        self.n_rules -= 1;
        if tuple.is_empty() {
            self.tuples[id as usize] = None;
            self.free.push(id);
            self.by_mask.remove(rule.minimatch().mask());
        }
        self.resort(id, before, after);
        true
    }

    fn set_prefixes(&mut self, fields: &[Field]) {
        self.prefixes = Prefixes::new(fields);
        for tuple in self.tuples.iter_mut().flatten() {
            tuple.set_prefixes(&mut self.prefixes);
        }
    }

    /// An empty tuple, which is not in the order yet.
    fn new_tuple(&mut self, mask: &Arc<MiniMask>) -> u32 {
        let tuple = Some(Box::new(Tuple::new(Arc::clone(mask), &mut self.prefixes, self.seed)));
        let id = match self.free.pop() {
            Some(id) => {
                self.tuples[id as usize] = tuple;
                id
            }
            None => {
                self.tuples.push(tuple);
                self.tuples.len() as u32 - 1
            }
        };
        self.by_mask.insert(Arc::clone(mask), id);
        id
    }

    /// Moves a tuple to where its highest priority belongs; tuples of the same are in the order of their numbers.
    fn resort(&mut self, id: u32, before: Option<u32>, after: Option<u32>) {
        if before == after {
            return;
        }
        let place = |order: &[(u32, u32)], p: u32| order.partition_point(|(q, i)| *q > p || (*q == p && *i < id));
        if let Some(before) = before {
            self.order.remove(place(&self.order, before));
        }
        if let Some(after) = after {
            self.order.insert(place(&self.order, after), (after, id));
        }
    }
}

/// Of rules of one priority, those added by later changes go first.
fn rank<R: Rule>(rule: &Arc<R>) -> (u32, u64) {
    (rule.priority(), rule.versions().added())
}
