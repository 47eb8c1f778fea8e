//! Tuple space search with priorities: a rule, and the bits that finding it read.
//!
//! Rules whose matches have the same mask share a [`tuple`]: a hash table keyed by the masked words of the key. A
//! look-up probes the tuples in the order of their highest priority and stops as soon as no tuple that is left can hold
//! a better rule (NSDI'15, section 5.2), so that only the masks of tuples that were probed are recorded as read.
//!
//! Invariants:
//! - `tuples` is sorted by descending highest priority, and no tuple is empty;
//! - within a bucket, rules have the same match and descending priorities, of equal ones the newest first.

mod mini;
mod tuple;
mod versions;

pub use mini::{MiniMask, MiniMatch};
pub use versions::{LATEST, Versions};

use flow::{Field, FlowKey, Match, Reads};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use tuple::Tuple;

/// One clause of a conjunctive match: the action `conjunction(id, clause/n_clauses)` of ovs-actions(7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conjunction {
    /// The value that `conj_id` takes when all clauses are satisfied.
    pub id: u32,
    /// Which clause, from 0 on.
    pub clause: u8,
    /// How many there are, 2 to 64.
    pub n_clauses: u8,
}

/// What the classifier needs to know of a rule.
pub trait Rule {
    /// What it matches, as made by [`Classifier::compress`] of the same classifier.
    fn minimatch(&self) -> &MiniMatch;
    /// Higher wins.
    fn priority(&self) -> u32;
    /// In which versions of the table it is there.
    fn versions(&self) -> &Versions;
    /// The clauses that it satisfies. A rule that has some is not found itself.
    fn conjunctions(&self) -> &[Conjunction] {
        &[]
    }
}

/// Which optimisations a look-up uses. What it finds is the same with each of them on or off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Tuples in the order of their highest priority, until none left can hold a better rule.
    pub priority_sorting: bool,
    /// Tuples in stages: a tuple that holds nothing for the first words of a key is left after these.
    pub stages: bool,
    /// Tuples are passed over if the tries of the prefix fields hold nothing for them.
    pub prefix_tries: bool,
    /// The same for transport ports.
    pub ports_trie: bool,
    /// Tuples are passed over if none of their rules has the key's metadata.
    pub partitions: bool,
}

impl Options {
    /// All of them.
    pub const ALL: Self =
        Self { priority_sorting: true, stages: true, prefix_tries: true, ports_trie: true, partitions: true };
    /// None of them.
    pub const NONE: Self =
        Self { priority_sorting: false, stages: false, prefix_tries: false, ports_trie: false, partitions: false };
}

impl Default for Options {
    fn default() -> Self {
        Self::ALL
    }
}

/// Why prefix fields cannot be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrefixError {
    /// More than [`MAX_PREFIXES`].
    #[error("at most {} prefix fields are supported", MAX_PREFIXES)]
    TooMany,
    /// A field that is not matched by prefix.
    #[error("{0}: no prefix field")]
    Unsupported(Field),
    /// The same bits twice.
    #[error("{0}: prefix field given twice")]
    Duplicate(Field),
}

/// Prefix fields of a table at most.
pub const MAX_PREFIXES: usize = 4;

/// A set of rules. Of rules with the same match and priority, one at most is there in each version.
#[derive(Debug)]
pub struct Classifier<R> {
    index: RwLock<Index<R>>,
    options: Mutex<Options>,
    prefixes: Mutex<Vec<Field>>,
}

#[derive(Debug)]
struct Index<R> {
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
        let index = Index { tuples: Vec::new(), n_rules: 0, seed: base::rng::Rng::from_entropy().next_u64() };
        Self {
            index: RwLock::new(index),
            options: Mutex::default(),
            prefixes: Mutex::new(vec![Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst]),
        }
    }

    /// Rules in it, of whatever version.
    pub fn len(&self) -> usize {
        self.index.read().n_rules
    }

    /// Whether it holds no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct masks.
    pub fn n_masks(&self) -> usize {
        self.index.read().tuples.len()
    }

    /// The optimisations in use.
    pub fn options(&self) -> Options {
        *self.options.lock()
    }

    /// Switches optimisations on and off, as of the next look-up.
    pub fn set_options(&self, options: Options) {
        *self.options.lock() = options;
    }

    /// The fields that have prefix tries.
    pub fn prefixes(&self) -> Vec<Field> {
        self.prefixes.lock().clone()
    }

    /// Chooses the fields that have prefix tries.
    pub fn set_prefixes(&self, fields: &[Field]) -> Result<(), PrefixError> {
        *self.prefixes.lock() = fields.to_vec();
        Ok(())
    }

    /// The compressed form of a match, which shares its mask with the rules that have the same.
    pub fn compress(&self, m: &Match) -> MiniMatch {
        match self.index.read().tuple_of(m) {
            Some(tuple) => MiniMatch::with_mask(Arc::clone(tuple.mask()), m.key()),
            None => MiniMatch::new(m),
        }
    }

    /// Adds a rule, beside rules of the same match and priority. (Of several that are there in the same version, the one
    /// added last is found.)
    pub fn insert(&self, rule: Arc<R>) {
        self.index.write().insert(rule);
    }

    /// Removes this very rule. Whether it was there.
    pub fn remove(&self, rule: &Arc<R>) -> bool {
        self.index.write().remove(rule)
    }

    /// The rule of this match and priority.
    pub fn find(&self, m: &Match, priority: u32, version: u64) -> Option<Arc<R>> {
        let index = self.index.read();
        let mut bucket = index.tuple_of(m)?.bucket(m.key()).iter();
        bucket.find(|r| r.priority() == priority && r.versions().visible_in(version)).cloned()
    }

    /// The rule of the highest priority that matches `key` (any one of them, if several overlap with that priority),
    /// recording what was read of the key.
    pub fn lookup(&self, key: &FlowKey, version: u64, reads: &mut Reads) -> Option<Arc<R>> {
        let index = self.index.read();
        let mut best: Option<&Arc<R>> = None;
        for tuple in &index.tuples {
            if best.is_some_and(|b| b.priority() >= tuple.max_priority()) {
                break;
            }
            for (word, bits) in tuple.mask().words() {
                reads.note(word, bits);
            }
            if let Some(rule) = tuple.bucket(key).iter().find(|r| r.versions().visible_in(version))
                && best.is_none_or(|b| rule.priority() > b.priority())
            {
                best = Some(rule);
            }
        }
        best.cloned()
    }

    /// All rules, tuple by tuple.
    pub fn rules(&self, version: u64) -> Vec<Arc<R>> {
        let index = self.index.read();
        index.tuples.iter().flat_map(Tuple::iter).filter(|r| r.versions().visible_in(version)).cloned().collect()
    }

    /// All rules that match a subset of what `m` matches (OpenFlow's non-strict matching, 1.3 section 6.4).
    pub fn within(&self, m: &Match, version: u64) -> Vec<Arc<R>> {
        let index = self.index.read();
        let tuples = index.tuples.iter().filter(|t| t.mask().covers(m.mask()));
        let rules = tuples.flat_map(Tuple::iter);
        rules.filter(|r| r.versions().visible_in(version) && r.minimatch().is_within(m)).cloned().collect()
    }

    /// Whether a rule of `priority` exists that some packet could match together with `m`, other than one of the very
    /// same match (OFPFF_CHECK_OVERLAP).
    pub fn overlaps(&self, m: &Match, priority: u32, version: u64) -> bool {
        let index = self.index.read();
        let mut rules = index.tuples.iter().flat_map(Tuple::iter);
        rules.any(|r| {
            r.priority() == priority && r.versions().visible_in(version) && {
                let other = r.minimatch().expand();
                other != *m && other.overlaps(m)
            }
        })
    }
}

impl<R: Rule> Index<R> {
    fn insert(&mut self, rule: Arc<R>) {
        let at = self.tuples.iter().position(|t| t.mask().same_bits(rule.minimatch().mask()));
        let at = at.unwrap_or_else(|| {
            self.tuples.push(Tuple::new(Arc::clone(rule.minimatch().mask()), self.seed));
            self.tuples.len() - 1
        });
        let before = self.tuples[at].max_priority();
        self.tuples[at].insert(rule);
        self.n_rules += 1;
        if self.tuples[at].max_priority() != before || self.tuples[at].len() == 1 {
            self.resort(at);
        }
    }

    fn remove(&mut self, rule: &Arc<R>) -> bool {
        let Some(at) = self.tuples.iter().position(|t| t.mask().same_bits(rule.minimatch().mask())) else {
            return false;
        };
        let before = self.tuples[at].max_priority();
        if !self.tuples[at].remove(rule) {
            return false;
        }
        self.n_rules -= 1;
        if self.tuples[at].len() == 0 {
            self.tuples.remove(at);
        } else if self.tuples[at].max_priority() != before {
            self.resort(at);
        }
        true
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
