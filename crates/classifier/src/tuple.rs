//! One tuple: the rules that share a mask, in a hash table keyed by the masked words.
//!
//! The table holds the rules, one word each; rules of the same match (with other priorities or versions) are separate
//! entries. Beside it are the indexes with which a lookup finds out early that the tuple has no matching rule.

use crate::common::Common;
use crate::guess::Guess;
use crate::hash::Seed;
use crate::options::Enabled;
use crate::partition::Partition;
use crate::ports::PortsTrie;
use crate::prefixes::{Prefixes, Walks};
use crate::priorities::Priorities;
use crate::stages::{self, Part, Parts};
use crate::{MiniMask, MiniMatch, Rule};
use flow::{FlowKey, Reads, Stage, layout};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;
use std::sync::Arc;

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Tuple<R> {
    // Fields that every lookup reads come first, adjacent.
    rules: HashTable<Arc<R>>,
    seed: Seed,
    /// Number of rules that share the match of another rule.
    n_same: u32,
    /// Number of operations that may have moved rules to other buckets.
    moves: u32,
    guess: Guess,
    /// The words of the mask.
    words: SmallVec<[Word; WORDS_LIKELY]>,
    common: Common,
    parts: Parts,
    mask: Arc<MiniMask>,
    priorities: Priorities,
    /// With the index of `metadata` among the mask's words.
    partition: Option<(usize, Partition)>,
    /// With the index of the ports among the mask's words.
    ports: Option<(usize, PortsTrie)>,
}

/// Words of a typical mask: a match on both addresses and ports has four, and an ingress port or metadata add one.
const WORDS_LIKELY: usize = 6;

/// A word of a mask.
#[derive(Clone, Copy, Debug)]
struct Word {
    at: u8,
    /// If the word begins a part that has tries: the part's number, from 1 on.
    tried: u8,
    bits: u64,
}

impl Word {
    /// The masked word of `key`.
    fn of(self, key: &FlowKey) -> u64 {
        key.0[usize::from(self.at)] & self.bits
    }

    /// Its mask bits that were neither read nor overwritten.
    fn unread(self, reads: &Reads) -> u64 {
        let at = usize::from(self.at);
        self.bits & !(reads.mask().0[at] | reads.written().0[at])
    }

    /// Records that its mask bits were read.
    fn note(self, reads: &mut Reads) {
        if self.unread(reads) != 0 {
            reads.note(self.at.into(), self.bits);
        }
    }
}

/// The state of a lookup across tuples.
pub(crate) struct Search<'a> {
    pub(crate) key: &'a FlowKey,
    pub(crate) options: Enabled,
    pub(crate) prefixes: &'a Prefixes,
    /// `None` until a trie is asked.
    pub(crate) walks: Option<Walks>,
    pub(crate) reads: &'a mut Reads,
}

impl<R: Rule> Tuple<R> {
    pub(crate) fn new(mask: Arc<MiniMask>, prefixes: &mut Prefixes, seed: Seed) -> Self {
        let whole = mask.expand();
        let tp = mask.words().position(|(word, _)| word == layout::TP);
        let parts = stages::parts(mask.words().map(|(word, _)| word), seed);
        let mut tuple = Self {
            words: mask.words().map(|(word, bits)| Word { at: word as u8, tried: 0, bits }).collect(),
            common: Common::default(),
            rules: HashTable::new(),
            n_same: 0,
            moves: 0,
            priorities: Priorities::new(seed),
            seed,
            parts,
            partition: Partition::new(mask.words(), seed),
            ports: tp.zip(PortsTrie::new(&whole)),
            guess: Guess::new(),
            mask,
        };
        tuple.set_prefixes(prefixes);
        tuple
    }

    pub(crate) fn mask(&self) -> &Arc<MiniMask> {
        &self.mask
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Highest priority of a rule in the tuple.
    pub(crate) fn max_priority(&self) -> Option<u32> {
        self.priorities.max()
    }

    /// Number of operations that may have moved rules to other buckets.
    pub(crate) fn moves(&self) -> u32 {
        self.moves
    }

    pub(crate) fn n_buckets(&self) -> usize {
        self.rules.num_buckets()
    }

    /// The rules in at most `most` buckets from `bucket` on, and the bucket after them, if there are more.
    pub(crate) fn some(&self, bucket: usize, most: usize) -> (impl Iterator<Item = &Arc<R>>, Option<usize>) {
        let all = self.rules.num_buckets();
        let end = bucket.saturating_add(most).min(all);
        ((bucket..end).filter_map(|bucket| self.rules.get_bucket(bucket)), Some(end).filter(|end| *end < all))
    }

    pub(crate) fn has_priority(&self, priority: u32) -> bool {
        self.priorities.contains(priority)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.rules.iter()
    }

    /// The rules whose match has these `values`, the masked words.
    pub(crate) fn same_match<'a>(&'a self, values: &'a [u64]) -> impl Iterator<Item = &'a Arc<R>> {
        self.rules.iter_hash(self.seed.all(self.seed.start, values)).filter(move |r| r.minimatch().values() == values)
    }

    /// Makes the tuple predict a hit, or a miss.
    #[cfg(test)]
    pub(crate) fn expect(&self, found: bool) {
        (0..4).for_each(|_| self.guess.learn(found));
    }

    /// Visits the rules that match the key, and records the bits read to find them or to exclude the tuple.
    ///
    /// While some masked bits are unread, the indexes may exclude the tuple with fewer reads. If a rule matches, all
    /// indexes pass, and the bits that they would have read are known without asking them. So if a hit is predicted,
    /// the table is searched first.
    #[inline]
    pub(crate) fn visit<'a>(&'a self, search: &mut Search<'_>, mut visit: impl FnMut(&'a Arc<R>)) {
        let words = self.words.as_slice();
        let unlikely = !self.guess.is_likely();
        if unlikely && self.contradicts(search) {
            return;
        }
        let ask_first = unlikely && words.iter().any(|word| word.unread(search.reads) != 0);
        if ask_first && self.excludes(search) {
            return self.guess.learn(false);
        }
        let (mut hash, mut unread) = (self.seed.start, 0);
        let mut first = [0; WORDS_LIKELY];
        for (i, word) in words.iter().enumerate() {
            let value = word.of(search.key);
            unread |= word.unread(search.reads);
            hash = self.seed.add(hash, value);
            if let Some(place) = first.get_mut(i) {
                *place = value;
            }
        }
        // If all masked bits were read before, only results already recorded can save the table search.
        if unread == 0 && search.walks.is_some() && !ask_first && self.is_excluded(search) {
            return;
        }
        let mut found = false;
        let key = search.key;
        let there = self.rules.find(hash, |rule| {
            let values = rule.minimatch().values();
            values.iter().zip(&first).all(|(value, of_key)| value == of_key)
                && (words.len() <= WORDS_LIKELY || are_rest(words, values, key))
        });
        if let Some(rule) = there {
            found = true;
            if self.n_same == 0 {
                visit(rule);
            } else {
                self.same_match(rule.minimatch().values()).for_each(visit);
            }
        }
        if unread != 0 {
            if found {
                self.note(search);
            } else if !self.contradicts(search) {
                self.excludes(search);
            }
        }
        if unread != 0 || ask_first {
            self.guess.learn(found);
        }
    }

    /// Whether bits that are already known contradict all rules.
    fn contradicts(&self, search: &Search<'_>) -> bool {
        search.options.partitions() && self.common.contradicts(search.key, search.reads)
    }

    /// Whether a recorded result of a trie excludes the tuple.
    #[inline(never)]
    fn is_excluded(&self, search: &Search<'_>) -> bool {
        let Some(walks) = &search.walks else { return false };
        search.options.prefix_tries() && self.parts.iter().any(|part| Prefixes::excluded(&part.prefixes, walks))
    }

    /// Whether one of the indexes excludes the tuple, some of whose masked bits are unread. Records the bits read; if
    /// no index excludes the tuple, these are all masked bits.
    #[inline(never)]
    fn excludes(&self, search: &mut Search<'_>) -> bool {
        if let Some((_, partition)) = &self.partition
            && search.options.partitions()
            && partition.excludes(search.key, search.reads)
        {
            return true;
        }
        let mut hash = self.seed.start;
        let mut left = self.words.as_slice();
        for part in &self.parts {
            let (words, later) = left.split_at(part.len);
            left = later;
            if words.first().is_some_and(|word| word.tried != 0) && self.tries_exclude(part, words, search) {
                return true;
            }
            for word in words {
                word.note(search.reads);
                hash = self.seed.add(hash, word.of(search.key));
            }
            if let Some(index) = &part.index
                && later.iter().rev().any(|word| word.unread(search.reads) != 0)
                && search.options.stages()
                && !index.contains(hash)
            {
                return true;
            }
        }
        false
    }

    /// Whether one of the tries for a part, which has these words, excludes the tuple.
    #[inline(never)]
    fn tries_exclude(&self, part: &Part, words: &[Word], search: &mut Search<'_>) -> bool {
        let Search { key, options, prefixes, walks, reads } = search;
        if words.iter().all(|word| word.unread(reads) == 0) {
            return false;
        }
        if !part.prefixes.is_empty()
            && options.prefix_tries()
            && prefixes.exclude(&part.prefixes, key, walks.get_or_insert_default(), reads)
        {
            return true;
        }
        self.ports_in(part, *options).is_some_and(|ports| ports.excludes(key, reads))
    }

    /// Records the bits that the indexes read for a key that matches a rule.
    #[inline(never)]
    fn note(&self, search: &mut Search<'_>) {
        if self.partition.is_some() && search.options.partitions() {
            search.reads.note(layout::METADATA, u64::MAX);
        }
        for word in &self.words {
            if word.tried != 0 {
                self.note_tried(word.tried, search);
            }
            word.note(search.reads);
        }
    }

    /// Records the bits that the tries of part `number` read for such a key.
    #[inline(never)]
    fn note_tried(&self, number: u8, search: &mut Search<'_>) {
        let Search { options, prefixes, reads, .. } = search;
        let Some(part) = self.parts.get(usize::from(number) - 1) else { return };
        if options.prefix_tries() {
            prefixes.note(&part.prefixes, reads);
        }
        if let Some(ports) = self.ports_in(part, *options) {
            ports.note(reads);
        }
    }

    /// The ports trie, if it is to be asked at this part.
    fn ports_in(&self, part: &Part, options: Enabled) -> Option<&PortsTrie> {
        match &self.ports {
            Some((_, ports)) if part.stage == Stage::L4 && options.ports_trie() => Some(ports),
            _ => None,
        }
    }

    pub(crate) fn insert(&mut self, rule: Arc<R>, prefixes: &mut Prefixes) {
        let values = rule.minimatch().values();
        let mut hash = self.seed.start;
        let mut left = values;
        for part in &mut self.parts {
            let (words, later) = left.split_at(part.len);
            left = later;
            hash = self.seed.all(hash, words);
            if let Some(index) = &mut part.index {
                index.insert(hash);
            }
            prefixes.insert(&part.prefixes, |word| word_of(rule.minimatch(), word));
        }
        if let Some((at, partition)) = &mut self.partition {
            partition.insert(values[*at]);
        }
        if let Some((at, ports)) = &mut self.ports {
            ports.insert(values[*at]);
        }
        self.priorities.insert(rule.priority());
        self.common.insert(rule.minimatch(), self.rules.is_empty());
        // A full table moves its rules to make room.
        self.moves = self.moves.wrapping_add(u32::from(self.rules.len() == self.rules.capacity()));
        let seed = self.seed;
        let hash_of = |r: &Arc<R>| seed.all(seed.start, r.minimatch().values());
        match self.rules.entry(hash, |r| r.minimatch().values() == values, hash_of) {
            Entry::Vacant(place) => drop(place.insert(rule)),
            Entry::Occupied(same) => {
                self.n_same += 1;
                same.into_table().insert_unique(hash, rule, hash_of);
            }
        }
    }

    /// Whether the tuple has a rule of this match, given its hash.
    fn has(&self, hash: u64, values: &[u64]) -> bool {
        self.rules.find(hash, |r| r.minimatch().values() == values).is_some()
    }

    /// Removes this rule. Returns whether it was present.
    pub(crate) fn remove(&mut self, rule: &Arc<R>, prefixes: &mut Prefixes) -> bool {
        let values = rule.minimatch().values();
        let whole = self.seed.all(self.seed.start, values);
        match self.rules.find_entry(whole, |r| Arc::ptr_eq(r, rule)) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => return false,
        }
        self.n_same -= u32::from(self.n_same > 0 && self.has(whole, values));
        let mut hash = self.seed.start;
        let mut left = values;
        for part in &mut self.parts {
            let (words, later) = left.split_at(part.len);
            left = later;
            hash = self.seed.all(hash, words);
            if let Some(index) = &mut part.index {
                index.remove(hash);
            }
            prefixes.remove(&part.prefixes, |word| word_of(rule.minimatch(), word));
        }
        if let Some((at, partition)) = &mut self.partition {
            partition.remove(values[*at]);
        }
        if let Some((at, ports)) = &mut self.ports {
            ports.remove(values[*at]);
        }
        self.priorities.remove(rule.priority());
        true
    }

    /// Switches to new prefix fields and adds all rules to their tries.
    pub(crate) fn set_prefixes(&mut self, prefixes: &mut Prefixes) {
        let whole = self.mask.expand();
        for part in &mut self.parts {
            part.prefixes = prefixes.lens(&whole, part.stage);
            for rule in &self.rules {
                prefixes.insert(&part.prefixes, |word| word_of(rule.minimatch(), word));
            }
        }
        let mut begin = 0;
        for (number, part) in (1..).zip(&self.parts) {
            if let Some(first) = self.words.get_mut(begin) {
                let ports = self.ports.is_some() && part.stage == Stage::L4;
                first.tried = if part.prefixes.is_empty() && !ports { 0 } else { number };
            }
            begin += part.len;
        }
    }
}

/// Whether the masked words of `key` after the first [`WORDS_LIKELY`] equal these values.
#[cold]
fn are_rest(words: &[Word], values: &[u64], key: &FlowKey) -> bool {
    words.iter().zip(values).skip(WORDS_LIKELY).all(|(word, value)| word.of(key) == *value)
}

/// A word of a match's key.
fn word_of(m: &MiniMatch, word: usize) -> u64 {
    let mut words = m.mask().words().zip(m.values());
    words.find(|((w, _), _)| *w == word).map_or(0, |(_, value)| *value)
}
