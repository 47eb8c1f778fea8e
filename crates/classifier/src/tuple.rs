//! One tuple: the rules that share a mask, in a hash table keyed by the masked words.
//!
//! The table holds the rules themselves, one word each; rules of the same match (other priorities, other versions) stand
//! in it side by side. Beside it are the indexes by which a look-up can tell early that there is nothing for its key.

use crate::hash::Seed;
use crate::partition::Partition;
use crate::ports::PortsTrie;
use crate::prefixes::{Prefixes, Walks};
use crate::priorities::Priorities;
use crate::stages::{self, Part};
use crate::{MiniMask, MiniMatch, Options, Rule};
use flow::{FlowKey, Reads, Stage, layout};
use hashbrown::HashTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Debug)]
pub(crate) struct Tuple<R> {
    mask: Arc<MiniMask>,
    /// The words of the mask.
    words: Box<[(u8, u64)]>,
    rules: HashTable<Arc<R>>,
    priorities: Priorities,
    seed: Seed,
    parts: Vec<Part>,
    /// With the place of `metadata` among the mask's words.
    partition: Option<(usize, Partition)>,
    /// With the place of the ports among the mask's words.
    ports: Option<(usize, PortsTrie)>,
    hits: Hits,
}

/// How often look-ups of late found something, roughly: at least some nine in ten when it is high.
#[derive(Debug, Default)]
struct Hits(AtomicU8);

impl Hits {
    const MAX: u8 = 15;

    fn are_usual(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::MAX / 2
    }

    /// Notes one. Not each is counted, so that threads do not write to the same place all the time.
    fn hit(&self, hash: u64) {
        let n = self.0.load(Ordering::Relaxed);
        if n < Self::MAX && hash & 0x300 == 0 {
            self.0.store(n + 1, Ordering::Relaxed);
        }
    }

    fn miss(&self) {
        let n = self.0.load(Ordering::Relaxed);
        if n > 0 {
            self.0.store(n - 1, Ordering::Relaxed);
        }
    }
}

/// What a look-up carries from tuple to tuple.
pub(crate) struct Search<'a> {
    pub(crate) key: &'a FlowKey,
    pub(crate) options: Options,
    pub(crate) prefixes: &'a Prefixes,
    pub(crate) walks: Walks,
    pub(crate) reads: &'a mut Reads,
}

impl<R: Rule> Tuple<R> {
    pub(crate) fn new(mask: Arc<MiniMask>, prefixes: &mut Prefixes, seed: Seed) -> Self {
        let whole = mask.expand();
        let tp = mask.words().position(|(word, _)| word == layout::TP);
        let mut parts = stages::parts(mask.words().map(|(word, _)| word), seed);
        parts.iter_mut().for_each(|part| part.prefixes = prefixes.lens(&whole, part.stage));
        Self {
            words: mask.words().map(|(word, bits)| (word as u8, bits)).collect(),
            rules: HashTable::new(),
            priorities: Priorities::new(seed),
            seed,
            parts,
            partition: Partition::new(mask.words(), seed),
            ports: tp.zip(PortsTrie::new(&whole)),
            mask,
            hits: Hits::default(),
        }
    }

    pub(crate) fn mask(&self) -> &Arc<MiniMask> {
        &self.mask
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Highest priority of a rule here.
    pub(crate) fn max_priority(&self) -> Option<u32> {
        self.priorities.max()
    }

    pub(crate) fn has_priority(&self, priority: u32) -> bool {
        self.priorities.contains(priority)
    }

    #[cfg(test)]
    pub(crate) fn expect_hits(&self, hits: bool) {
        self.hits.0.store(if hits { Hits::MAX } else { 0 }, Ordering::Relaxed);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.rules.iter()
    }

    /// The rules whose match is that of `values`, the masked words.
    pub(crate) fn same_match<'a>(&'a self, values: &'a [u64]) -> impl Iterator<Item = &'a Arc<R>> {
        self.rules.iter_hash(self.seed.all(self.seed.start, values)).filter(move |r| r.minimatch().values() == values)
    }

    /// The rules that match `key`, whose masked words have this hash.
    pub(crate) fn matching(&self, hash: u64, key: &FlowKey) -> impl Iterator<Item = &Arc<R>> {
        self.rules.iter_hash(hash).filter(move |r| {
            let values = r.minimatch().values().iter();
            self.words.iter().zip(values).all(|((word, bits), value)| key.0[usize::from(*word)] & bits == *value)
        })
    }

    /// The hash of the key's masked words, unless the tuple has no rule for it. Records what was read of the key.
    ///
    /// Where most look-ups find something, the rules are asked first, and what is recorded is what the indexes would have
    /// read on the way there. Else they are asked first, and tell early that there is nothing.
    pub(crate) fn hash_of(&self, search: &mut Search<'_>) -> Option<u64> {
        let unread = |(word, bits): &(u8, u64)| is_unread(usize::from(*word), *bits, search.reads);
        // What is all read already cannot be read less of: it takes no index to tell.
        let Some(last) = self.words.iter().rposition(unread) else {
            let walks = &search.walks;
            let excluded =
                search.options.prefix_tries && self.parts.iter().any(|p| Prefixes::excluded(&p.prefixes, walks));
            return (!excluded).then(|| self.hash_part(&self.words, self.seed.start, search.key));
        };
        if self.hits.are_usual() {
            let hash = self.hash_part(&self.words, self.seed.start, search.key);
            if self.matching(hash, search.key).next().is_some() {
                self.note_hit(search);
                return Some(hash);
            }
        }
        let hash = self.hash_in_parts(search, last);
        match hash {
            Some(hash) if self.matching(hash, search.key).next().is_some() => self.hits.hit(hash),
            _ => self.hits.miss(),
        }
        hash
    }

    /// Records what the indexes read of a key that there are rules for.
    fn note_hit(&self, search: &mut Search<'_>) {
        let Search { options, prefixes, reads, .. } = search;
        if options.partitions && self.partition.is_some() {
            reads.note(layout::METADATA, u64::MAX);
        }
        let mut begin = 0;
        for part in &self.parts {
            let words = &self.words[begin..part.end];
            begin = part.end;
            if !words.iter().any(|(word, bits)| is_unread(usize::from(*word), *bits, reads)) {
                continue;
            }
            if options.prefix_tries {
                prefixes.note_there(&part.prefixes, reads);
            }
            if options.ports_trie
                && part.stage == Stage::L4
                && let Some((_, ports)) = &self.ports
            {
                ports.note_there(reads);
            }
            words.iter().for_each(|(word, bits)| reads.note(usize::from(*word), *bits));
        }
    }

    /// The hash, part by part, each after its indexes. `last` is the last of the words that is not read yet.
    fn hash_in_parts(&self, search: &mut Search<'_>, last: usize) -> Option<u64> {
        let Search { key, options, prefixes, walks, reads } = search;
        if options.partitions
            && let Some((_, partition)) = &self.partition
            && partition.excludes(key, reads)
        {
            return None;
        }
        let mut hash = self.seed.start;
        let mut begin = 0;
        for part in &self.parts {
            let words = &self.words[begin..part.end];
            begin = part.end;
            if words.iter().any(|(word, bits)| is_unread(usize::from(*word), *bits, reads)) {
                if options.prefix_tries && prefixes.exclude(&part.prefixes, key, walks, reads) {
                    return None;
                }
                if options.ports_trie
                    && part.stage == Stage::L4
                    && let Some((_, ports)) = &self.ports
                    && ports.excludes(key, reads)
                {
                    return None;
                }
                words.iter().for_each(|(word, bits)| reads.note(usize::from(*word), *bits));
            }
            hash = self.hash_part(words, hash, key);
            if options.stages
                && last >= begin
                && let Some(index) = &part.index
                && !index.contains(hash)
            {
                return None;
            }
        }
        Some(hash)
    }

    /// The hash of some of the key's masked words, behind others.
    fn hash_part(&self, words: &[(u8, u64)], hash: u64, key: &FlowKey) -> u64 {
        words.iter().fold(hash, |hash, (word, bits)| self.seed.add(hash, key.0[usize::from(*word)] & bits))
    }

    pub(crate) fn insert(&mut self, rule: Arc<R>, prefixes: &mut Prefixes) {
        let values = rule.minimatch().values();
        let mut hash = self.seed.start;
        let mut begin = 0;
        for part in &mut self.parts {
            hash = self.seed.all(hash, &values[begin..part.end]);
            begin = part.end;
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
        let seed = self.seed;
        self.rules.insert_unique(hash, rule, |r| seed.all(seed.start, r.minimatch().values()));
    }

    /// Removes this very rule. Whether it was there.
    pub(crate) fn remove(&mut self, rule: &Arc<R>, prefixes: &mut Prefixes) -> bool {
        let values = rule.minimatch().values();
        match self.rules.find_entry(self.seed.all(self.seed.start, values), |r| Arc::ptr_eq(r, rule)) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => return false,
        }
        let mut hash = self.seed.start;
        let mut begin = 0;
        for part in &mut self.parts {
            hash = self.seed.all(hash, &values[begin..part.end]);
            begin = part.end;
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

    /// Takes over new prefix fields, into whose tries all rules go.
    pub(crate) fn set_prefixes(&mut self, prefixes: &mut Prefixes) {
        let whole = self.mask.expand();
        for part in &mut self.parts {
            part.prefixes = prefixes.lens(&whole, part.stage);
            for rule in &self.rules {
                prefixes.insert(&part.prefixes, |word| word_of(rule.minimatch(), word));
            }
        }
    }
}

/// Whether some of these bits were neither read nor written.
fn is_unread(word: usize, bits: u64, reads: &Reads) -> bool {
    bits & !reads.mask().0[word] & !reads.written().0[word] != 0
}

/// A word of a match's key.
fn word_of(m: &MiniMatch, word: usize) -> u64 {
    let mut words = m.mask().words().zip(m.values());
    words.find(|((w, _), _)| *w == word).map_or(0, |(_, value)| *value)
}
