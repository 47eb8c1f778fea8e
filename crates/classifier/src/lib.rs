//! Tuple space search with priorities: a rule, and the bits that finding it read.
//!
//! Rules whose matches have the same mask share a [`tuple`]: a hash table keyed by the masked words of the key. A look-up
//! goes through the tuples in the order of their highest priority, stops as soon as none that is left can hold a better
//! rule (NSDI'15, section 5.2), and passes over those that an [`index`] of theirs tells to hold nothing for its key. What
//! it reads of the key on the way it records, in order: these bits become the mask of a cached flow, so that the art is to
//! read little. Each way to read less has a file of its own, and can be switched off ([`Options`]):
//!
//! - [`stages`]: the words of a tuple are hashed in four stages, and the first that has no rule ends it;
//! - [`prefixes`]: tries on address fields tell which prefix lengths can match; [`trie`] is the structure, in [`blocks`];
//! - [`ports`]: the same for transport ports, by tuple;
//! - [`partition`]: tuples whose rules all match on `metadata` are passed over by its value, and by what all of their rules
//!   have in [`common`], as far as the look-up knows it already.
//!
//! All of that is for tuples that hold nothing for a key. Where a rule is found, the indexes would not have told anything,
//! and what they would have read is known: where rules are likely ([`guess`]), the table is asked before them.
//!
//! What changes with every rule is laid out so that a change meets few cache misses: [`counts`], [`priorities`] and the
//! tries. Beside that: [`hash`], [`conjunction`] for conjunctive matches, [`versions`] for changes that are seen whole or
//! not at all, and [`left_right`], by which look-ups never wait for a change.
//!
//! Invariants:
//! - what a look-up finds depends on the bits that it recorded, the version and the rules, and on nothing else; so does
//!   what it reads next on the bits recorded until then, so that look-ups in fixed rules are walks in one decision tree;
//! - options change what is read, never what is found;
//! - a change takes (expected) time that does not grow with the number of rules.

mod blocks;
mod common;
mod conjunction;
mod counts;
mod guess;
mod hash;
mod index;
mod left_right;
mod mini;
mod options;
mod partition;
mod ports;
mod prefixes;
mod priorities;
mod stages;
mod trie;
mod tuple;
mod versions;

pub use conjunction::Conjunction;
pub use mini::{MiniMask, MiniMatch};
pub use options::{DEFAULT_PREFIXES, MAX_PREFIXES, Options, PREFIX_FIELDS, PrefixError};
pub use versions::{LATEST, Versions};

use flow::{Field, FlowKey, Match, Reads};
use index::{Change, Index};
use left_right::LeftRight;
use options::AtomicOptions;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tuple::Tuple;

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

/// Bits of word [`flow::layout::TP`] where ports stand, and types and codes of ICMP.
const PORTS: u64 = 0xffff_ffff << 32;

fn looks_at_ports<R: Rule>(rule: &R) -> bool {
    rule.minimatch().mask().words().any(|(word, bits)| word == flow::layout::TP && bits & PORTS != 0)
}

/// A set of rules. See the top of this file.
#[derive(Debug)]
pub struct Classifier<R> {
    index: LeftRight<Index<R>, Change<R>>,
    options: AtomicOptions,
    /// Rules that look at transport ports.
    n_with_ports: AtomicUsize,
}

impl<R: Rule> Default for Classifier<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Rule> Classifier<R> {
    /// An empty classifier. Its hashes are seeded at random, so that no sender can aim at one bucket.
    pub fn new() -> Self {
        let seed = base::rng::Rng::from_entropy().next_u64();
        Self {
            index: LeftRight::new([Index::new(seed), Index::new(seed)]),
            options: AtomicOptions::default(),
            n_with_ports: AtomicUsize::new(0),
        }
    }

    /// Rules in it, of whatever version.
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

    /// The optimisations in use.
    pub fn options(&self) -> Options {
        self.options.load()
    }

    /// Switches optimisations on and off, as of the next look-up.
    pub fn set_options(&self, options: Options) {
        self.options.store(options);
    }

    /// The fields that have prefix tries.
    pub fn prefixes(&self) -> Vec<Field> {
        self.index.read().prefixes()
    }

    /// Chooses the fields that have prefix tries, [`MAX_PREFIXES`] at most. Costs time in proportion to the rules.
    pub fn set_prefixes(&self, fields: &[Field]) -> Result<(), PrefixError> {
        options::check_prefixes(fields)?;
        self.index.write(Change::SetPrefixes(fields.to_vec()));
        Ok(())
    }

    /// The compressed form of a match, which shares its mask with the rules that have the same.
    pub fn compress(&self, m: &Match) -> MiniMatch {
        let mask = MiniMask::new(m.mask());
        let shared = self.index.read().mask(&mask).cloned();
        MiniMatch::with_mask(shared.unwrap_or_else(|| Arc::new(mask)), m.key())
    }

    /// The same, and what [`Classifier::find`] finds of that match: what it takes to add a rule.
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

    /// Adds a rule, beside rules of the same match and priority.
    pub fn insert(&self, rule: Arc<R>) {
        // Look-ups in between read more than they need, not less.
        self.n_with_ports.fetch_add(usize::from(looks_at_ports(&*rule)), Ordering::SeqCst);
        self.index.write(Change::Insert(rule));
    }

    /// Adds rules, each as [`Classifier::insert`] does: together they cost less.
    pub fn insert_all(&self, rules: &[Arc<R>]) {
        let with_ports = rules.iter().filter(|rule| looks_at_ports(&***rule)).count();
        self.n_with_ports.fetch_add(with_ports, Ordering::SeqCst);
        match rules {
            [] => {}
            [rule] => _ = self.index.write(Change::Insert(Arc::clone(rule))),
            _ => _ = self.index.write(Change::InsertAll(rules.to_vec())),
        }
    }

    /// Removes this very rule, for look-ups of all versions. Whether it was there.
    pub fn remove(&self, rule: &Arc<R>) -> bool {
        let was_there = self.index.write(Change::Remove(Arc::clone(rule)));
        self.n_with_ports.fetch_sub(usize::from(was_there && looks_at_ports(&**rule)), Ordering::SeqCst);
        was_there
    }

    /// Whether a look-up may read transport ports, or what stands in their place.
    pub fn looks_at_ports(&self) -> bool {
        self.n_with_ports.load(Ordering::SeqCst) > 0
    }

    /// Removes these very rules. Whether all of them were there. (After `false` it may be said for ever that rules look at
    /// ports, which costs reads and is never wrong.)
    pub fn remove_all(&self, rules: Vec<Arc<R>>) -> bool {
        let with_ports = rules.iter().filter(|rule| looks_at_ports(&***rule)).count();
        let were_there = self.index.write(Change::RemoveAll(rules, OnceCell::new()));
        if were_there {
            self.n_with_ports.fetch_sub(with_ports, Ordering::SeqCst);
        }
        were_there
    }

    /// The rule of this match and priority that is there in `version`.
    pub fn find(&self, m: &Match, priority: u32, version: u64) -> Option<Arc<R>> {
        self.compress_and_find(m, priority, version).1
    }

    /// The rule of the highest priority that matches `key` among those that are there in `version`, recording what was
    /// read of the key. Of several with that priority, it is always the same one while the rules are the same.
    pub fn lookup(&self, key: &FlowKey, version: u64, reads: &mut Reads) -> Option<Arc<R>> {
        self.index.read().lookup(key, version, self.options.enabled(), reads).cloned()
    }

    /// All rules that are there in `version`, tuple by tuple.
    pub fn rules(&self, version: u64) -> Vec<Arc<R>> {
        let index = self.index.read();
        index.tuples().flat_map(Tuple::iter).filter(|r| r.versions().visible_in(version)).cloned().collect()
    }

    /// All rules that match a subset of what `m` matches (OpenFlow's non-strict matching, 1.3 section 6.4).
    pub fn within(&self, m: &Match, version: u64) -> Vec<Arc<R>> {
        let index = self.index.read();
        let rules = index.tuples().filter(|t| t.mask().covers(m.mask())).flat_map(Tuple::iter);
        rules.filter(|r| r.versions().visible_in(version) && r.minimatch().is_within(m)).cloned().collect()
    }

    /// Whether a rule of `priority` exists that some packet could match together with `m`, other than one of the very
    /// same match (OFPFF_CHECK_OVERLAP).
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

/// Of rules of one match, the one of this priority that is there in `version`.
fn newest<'a, R: Rule + 'a>(rules: impl Iterator<Item = &'a Arc<R>>, priority: u32, version: u64) -> Option<Arc<R>> {
    let there = rules.filter(|r| r.priority() == priority && r.versions().visible_in(version));
    there.max_by_key(|r| r.versions().added()).cloned()
}

#[cfg(test)]
mod tests;
