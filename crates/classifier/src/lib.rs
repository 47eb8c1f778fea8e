//! A tuple space search classifier with priorities: it returns a rule, and the bits that were read to find it.
//!
//! Rules whose matches have the same mask share a [`tuple`]: a hash table keyed by the masked words of the key. A
//! lookup visits the tuples by descending highest priority, stops when no remaining tuple can hold a better rule
//! (NSDI'15, section 5.2), and skips tuples whose [`index`] shows that they hold no matching rule. It records the bits
//! of the key that it reads, in order. They become the mask of a megaflow, so reading fewer bits gives wider megaflows.
//! Each optimisation has a file of its own, and can be disabled ([`Options`]):
//!
//! - [`stages`]: the words of a tuple are hashed in four stages, and the lookup ends at the first stage without a
//!   match;
//! - [`prefixes`]: tries on address fields show which prefix lengths can match; [`trie`] is the data structure, in
//!   [`blocks`];
//! - [`ports`]: the same for transport ports, per tuple;
//! - [`partition`]: tuples whose rules all match `metadata` exactly are skipped by its value; and [`common`]: tuples
//!   are skipped if bits that the lookup already knows contradict all of their rules.
//!
//! These indexes only help where a tuple holds no matching rule. Where it does, all of them pass, and the bits that
//! they would read are known in advance. So if a hit is predicted ([`guess`]), the table is searched first.
//!
//! Data that changes with every rule is laid out for few cache misses per change: [`counts`], [`priorities`] and the
//! tries. Other modules: [`hash`]; [`conjunction`] for conjunctive matches; [`steps`] collects rules; [`versions`] for
//! atomic changes; and [`epoch::LeftRight`], with which lookups never wait for changes and write no shared cache line.
//!
//! Invariants:
//! - the result of a lookup depends only on the bits that it recorded, the version and the rules; so does each bit that
//!   it reads next on the bits recorded before, so that lookups in unchanged rules walk one decision tree;
//! - options change what is read, never what is found;
//! - a change takes expected time independent of the number of rules.

mod blocks;
mod common;
mod conjunction;
mod counts;
mod guess;
mod hash;
mod index;
mod mini;
mod options;
mod partition;
mod ports;
mod prefixes;
mod priorities;
mod stages;
mod steps;
mod trie;
mod tuple;
mod versions;

pub use conjunction::Conjunction;
pub use mini::{MiniMask, MiniMatch};
pub use options::{DEFAULT_PREFIXES, MAX_PREFIXES, Options, PREFIX_FIELDS, PrefixError};
pub use versions::{LATEST, Versions};

use epoch::LeftRight;
use flow::{Field, FlowKey, Match, Reads};
use index::{Change, Index};
use options::AtomicOptions;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tuple::Tuple;

/// The properties of a rule that the classifier uses.
pub trait Rule {
    /// The rule's match, from [`Classifier::compress`] of the same classifier.
    fn minimatch(&self) -> &MiniMatch;
    /// Higher wins.
    fn priority(&self) -> u32;
    /// The versions of the table in which the rule is visible.
    fn versions(&self) -> &Versions;
    /// The clauses that the rule satisfies. A lookup does not return a rule that has any.
    fn conjunctions(&self) -> &[Conjunction] {
        &[]
    }
}

/// Bits of word [`flow::layout::TP`] that hold transport ports, or types and codes of ICMP.
const PORTS: u64 = 0xffff_ffff << 32;

fn looks_at_ports<R: Rule>(rule: &R) -> bool {
    rule.minimatch().mask().words().any(|(word, bits)| word == flow::layout::TP && bits & PORTS != 0)
}

/// A set of rules. See the crate documentation.
#[derive(Debug)]
pub struct Classifier<R: Rule> {
    index: LeftRight<Index<R>>,
    options: AtomicOptions,
    /// Number of rules that match on transport ports.
    n_with_ports: AtomicUsize,
}

impl<R: Rule> Default for Classifier<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Rule> Classifier<R> {
    /// An empty classifier. Its hashes are seeded at random, so that senders cannot construct collisions.
    pub fn new() -> Self {
        let seed = base::rng::Rng::from_entropy().next_u64();
        Self {
            index: LeftRight::new([Index::new(seed), Index::new(seed)], ()),
            options: AtomicOptions::default(),
            n_with_ports: AtomicUsize::new(0),
        }
    }

    /// Number of rules, of all versions.
    pub fn len(&self) -> usize {
        self.index.read().len()
    }

    /// Whether it holds no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct masks.
    pub fn n_masks(&self) -> usize {
        self.index.read().n_masks()
    }

    /// The distinct masks by descending highest priority of their rules, and in the order in which they reached it.
    pub fn masks(&self) -> Vec<Arc<MiniMask>> {
        self.index.read().tuples().map(|tuple| Arc::clone(tuple.mask())).collect()
    }

    /// The optimisations in use.
    pub fn options(&self) -> Options {
        self.options.load()
    }

    /// Enables and disables optimisations from the next lookup on.
    pub fn set_options(&self, options: Options) {
        self.options.store(options);
    }

    /// The fields that have prefix tries.
    pub fn prefixes(&self) -> Vec<Field> {
        self.index.read().prefixes()
    }

    /// Selects the fields that have prefix tries, at most [`MAX_PREFIXES`]. Takes time proportional to the number of
    /// rules.
    pub fn set_prefixes(&self, fields: &[Field]) -> Result<(), PrefixError> {
        options::check_prefixes(fields)?;
        self.index.write(Change::SetPrefixes(fields.to_vec()));
        Ok(())
    }

    /// Compresses a match. The result shares its mask with the rules that have the same mask.
    pub fn compress(&self, m: &Match) -> MiniMatch {
        let mask = MiniMask::new(m.mask());
        let shared = self.index.read().mask(&mask).cloned();
        MiniMatch::with_mask(shared.unwrap_or_else(|| Arc::new(mask)), m.key())
    }

    /// Compresses a match for a new rule and returns the result of [`Classifier::find`] for it, too.
    pub fn compress_and_find(&self, m: &Match, priority: u32, version: u64) -> (MiniMatch, Option<Arc<R>>) {
        let mask = MiniMask::new(m.mask());
        let index = self.index.read();
        let Some(tuple) = index.tuple_of(&mask) else {
            return (MiniMatch::with_mask(Arc::new(mask), m.key()), None);
        };
        let compressed = MiniMatch::with_mask(Arc::clone(tuple.mask()), m.key());
        let found = newest(tuple.same_match(compressed.values()), priority, version);
        (compressed, found)
    }

    /// Adds a rule; other rules may have the same match and priority.
    pub fn insert(&self, rule: Arc<R>) {
        // Incrementing first makes concurrent lookups read more bits than needed, not fewer.
        self.n_with_ports.fetch_add(usize::from(looks_at_ports(&*rule)), Ordering::SeqCst);
        self.index.write(Change::Insert(rule));
    }

    /// Adds rules; cheaper than calling [`Classifier::insert`] for each.
    pub fn insert_all(&self, rules: &[Arc<R>]) {
        let with_ports = rules.iter().filter(|rule| looks_at_ports(&***rule)).count();
        self.n_with_ports.fetch_add(with_ports, Ordering::SeqCst);
        match rules {
            [] => {}
            [rule] => _ = self.index.write(Change::Insert(Arc::clone(rule))),
            _ => _ = self.index.write(Change::InsertAll(rules.to_vec())),
        }
    }

    /// Removes this rule, for lookups of all versions. Returns whether it was present.
    pub fn remove(&self, rule: &Arc<R>) -> bool {
        let (was_there, _) = self.index.write(Change::Remove(Arc::clone(rule)));
        self.n_with_ports.fetch_sub(usize::from(was_there && looks_at_ports(&**rule)), Ordering::SeqCst);
        was_there
    }

    /// Whether a lookup may read transport ports, or ICMP types and codes.
    pub fn looks_at_ports(&self) -> bool {
        self.n_with_ports.load(Ordering::SeqCst) > 0
    }

    /// Removes these rules. Returns whether all of them were present. (After `false`, [`Classifier::looks_at_ports`]
    /// may stay true for ever, which costs reads but is never wrong.)
    pub fn remove_all(&self, rules: Vec<Arc<R>>) -> bool {
        let with_ports = rules.iter().filter(|rule| looks_at_ports(&***rule)).count();
        let (were_there, _) = self.index.write(Change::RemoveAll(rules, OnceCell::new()));
        if were_there {
            self.n_with_ports.fetch_sub(with_ports, Ordering::SeqCst);
        }
        were_there
    }

    /// The rule of this match and priority that is visible in `version`.
    pub fn find(&self, m: &Match, priority: u32, version: u64) -> Option<Arc<R>> {
        self.compress_and_find(m, priority, version).1
    }

    /// The rule of highest priority that matches `key` and is visible in `version`; records the bits read. Among
    /// several rules of that priority, the choice is stable as long as the rules do not change.
    pub fn lookup(&self, key: &FlowKey, version: u64, reads: &mut Reads) -> Option<Arc<R>> {
        self.index.read().lookup(key, version, self.options.enabled(), reads).cloned()
    }

    /// The rules with the clauses of the conjunctive match by which `key` is looked up, if there is one: those that the key
    /// matches, for traces.
    pub fn conjunctive(&self, key: &FlowKey, version: u64) -> Vec<Arc<R>> {
        self.index.read().conjunctive(key, version, self.options.enabled())
    }

    /// All rules that are visible in `version`, tuple by tuple. Changes proceed meanwhile; see [`Classifier::within`].
    pub fn rules(&self, version: u64) -> Vec<Arc<R>> {
        self.collect(|_| true, |r| r.versions().visible_in(version))
    }

    /// All rules that are visible in `version` and whose matches are subsets of `m` (OpenFlow's non-strict matching, 1.3
    /// section 6.4). Changes proceed meanwhile: rules that another thread inserts or removes may be missing.
    pub fn within(&self, m: &Match, version: u64) -> Vec<Arc<R>> {
        self.collect(|mask| mask.covers(m.mask()), |r| r.versions().visible_in(version) && r.minimatch().is_within(m))
    }

    /// The number of rules that [`Classifier::within`] examines, which is the most that it can return.
    pub fn within_at_most(&self, m: &Match) -> usize {
        self.index.read().tuples().filter(|t| t.mask().covers(m.mask())).map(Tuple::len).sum()
    }

    /// Whether a rule of `priority` with a different match overlaps with `m`: some packet could match both
    /// (OFPFF_CHECK_OVERLAP).
    pub fn overlaps(&self, m: &Match, priority: u32, version: u64) -> bool {
        let index = self.index.read();
        let mut rules = index.tuples().filter(|t| t.has_priority(priority)).flat_map(Tuple::iter);
        rules.any(|r| {
            r.priority() == priority
                && r.versions().visible_in(version)
                && r.minimatch().overlaps(m)
                && r.minimatch().expand() != *m
        })
    }
}

/// Among rules of one match, the one of this priority that is visible in `version`.
fn newest<'a, R: Rule + 'a>(rules: impl Iterator<Item = &'a Arc<R>>, priority: u32, version: u64) -> Option<Arc<R>> {
    let there = rules.filter(|r| r.priority() == priority && r.versions().visible_in(version));
    there.max_by_key(|r| r.versions().added()).cloned()
}

#[cfg(test)]
mod tests;
