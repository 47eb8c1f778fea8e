//! Tuple space search with priorities: a rule, and the bits that finding it read.
//!
//! Rules whose matches have the same mask share a [`tuple`]: a hash table keyed by the masked words of the key. A
//! look-up probes the tuples in the order of their highest priority and stops as soon as no tuple that is left can hold
//! a better rule (NSDI'15, section 5.2), so that only the masks of tuples that were probed are recorded as read.
//!
//! Invariants:
//! - `tuples` is sorted by descending highest priority, and no tuple is empty;
//! - within a bucket, rules have the same match and descending, distinct priorities.

mod mini;
mod tuple;

pub use mini::{MiniMask, MiniMatch};

use flow::{FlowKey, Match, Reads};
use std::sync::Arc;
use tuple::Tuple;

/// What the classifier needs to know of a rule.
pub trait Rule {
    /// What it matches, as made by [`Classifier::compress`] of the same classifier.
    fn minimatch(&self) -> &MiniMatch;
    /// Higher wins.
    fn priority(&self) -> u32;
}

/// A set of rules, at most one for each pair of match and priority.
#[derive(Debug)]
pub struct Classifier<R> {
    tuples: Vec<Tuple<R>>,
    n_rules: usize,
    seed: u64,
}

impl<R: Rule> Default for Classifier<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Rule> Classifier<R> {
    /// An empty classifier. Its hashes are seeded at random, so that no sender can aim at one bucket.
    pub fn new() -> Self {
        Self { tuples: Vec::new(), n_rules: 0, seed: base::rng::Rng::from_entropy().next_u64() }
    }

    /// Rules in it.
    pub fn len(&self) -> usize {
        self.n_rules
    }

    /// Whether it holds no rule.
    pub fn is_empty(&self) -> bool {
        self.n_rules == 0
    }

    /// Distinct masks.
    pub fn n_masks(&self) -> usize {
        self.tuples.len()
    }

    /// The compressed form of a match, which shares its mask with the rules that have the same.
    pub fn compress(&self, m: &Match) -> MiniMatch {
        match self.tuple_of(m) {
            Some(tuple) => MiniMatch::with_mask(Arc::clone(tuple.mask()), m.key()),
            None => MiniMatch::new(m),
        }
    }

    /// Adds a rule and returns the one of the same match and priority that it replaces.
    pub fn insert(&mut self, rule: Arc<R>) -> Option<Arc<R>> {
        let at = self.tuples.iter().position(|t| t.mask().same_bits(rule.minimatch().mask()));
        let at = at.unwrap_or_else(|| {
            self.tuples.push(Tuple::new(Arc::clone(rule.minimatch().mask()), self.seed));
            self.tuples.len() - 1
        });
        let before = self.tuples[at].max_priority();
        let old = self.tuples[at].insert(rule);
        if old.is_none() {
            self.n_rules += 1;
        }
        if self.tuples[at].max_priority() != before || self.tuples[at].len() == 1 {
            self.resort(at);
        }
        old
    }

    /// Removes the rule of this match and priority.
    pub fn remove(&mut self, m: &MiniMatch, priority: u32) -> Option<Arc<R>> {
        let at = self.tuples.iter().position(|t| t.mask().same_bits(m.mask()))?;
        let before = self.tuples[at].max_priority();
        let old = self.tuples[at].remove(m, priority)?;
        self.n_rules -= 1;
        if self.tuples[at].len() == 0 {
            self.tuples.remove(at);
        } else if self.tuples[at].max_priority() != before {
            self.resort(at);
        }
        Some(old)
    }

    /// The rule of this match and priority.
    pub fn find(&self, m: &Match, priority: u32) -> Option<&Arc<R>> {
        let tuple = self.tuple_of(m)?;
        tuple.bucket(m.key()).iter().find(|r| r.priority() == priority)
    }

    /// The rule of the highest priority that matches `key` (any one of them, if several overlap with that priority),
    /// recording what was read of the key.
    pub fn lookup(&self, key: &FlowKey, reads: &mut Reads) -> Option<&Arc<R>> {
        let mut best: Option<&Arc<R>> = None;
        for tuple in &self.tuples {
            if best.is_some_and(|b| b.priority() >= tuple.max_priority()) {
                break;
            }
            for (word, bits) in tuple.mask().words() {
                reads.note(word, bits);
            }
            if let Some(rule) = tuple.bucket(key).first()
                && best.is_none_or(|b| rule.priority() > b.priority())
            {
                best = Some(rule);
            }
        }
        best
    }

    /// All rules, tuple by tuple.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.tuples.iter().flat_map(Tuple::iter)
    }

    /// All rules that match a subset of what `m` matches (OpenFlow's non-strict matching, 1.3 section 6.4).
    pub fn iter_within<'a>(&'a self, m: &'a Match) -> impl Iterator<Item = &'a Arc<R>> {
        self.tuples
            .iter()
            .filter(|t| t.mask().covers(m.mask()))
            .flat_map(Tuple::iter)
            .filter(|r| r.minimatch().is_within(m))
    }

    /// Whether a rule of `priority` exists that some packet could match together with `m`, other than one of the very
    /// same match (OFPFF_CHECK_OVERLAP).
    pub fn overlaps(&self, m: &Match, priority: u32) -> bool {
        self.iter().filter(|r| r.priority() == priority).any(|r| {
            let other = r.minimatch().expand();
            other != *m && other.overlaps(m)
        })
    }

    fn tuple_of(&self, m: &Match) -> Option<&Tuple<R>> {
        self.tuples.iter().find(|t| t.mask().is(m.mask()))
    }

    /// Moves the tuple at `at` to where its highest priority belongs.
    fn resort(&mut self, at: usize) {
        let tuple = self.tuples.remove(at);
        let to = self.tuples.partition_point(|t| t.max_priority() >= tuple.max_priority());
        self.tuples.insert(to, tuple);
    }
}

#[cfg(test)]
mod tests;
