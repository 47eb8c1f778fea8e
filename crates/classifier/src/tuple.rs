//! One tuple: the rules that share a mask, in a hash table keyed by the masked words.

use crate::{MiniMask, MiniMatch, Rule};
use flow::FlowKey;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Rules of one match, by descending priority. Nearly always one.
type Bucket<R> = Vec<Arc<R>>;

#[derive(Debug)]
enum Slot<R> {
    One([Arc<R>; 1]),
    Many(Bucket<R>),
}

impl<R> Slot<R> {
    fn rules(&self) -> &[Arc<R>] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Tuple<R> {
    mask: Arc<MiniMask>,
    slots: HashTable<Slot<R>>,
    /// How many rules have each priority.
    priorities: BTreeMap<u32, usize>,
    n_rules: usize,
    hasher: FixedState,
}

impl<R: Rule> Tuple<R> {
    pub(crate) fn new(mask: Arc<MiniMask>, seed: u64) -> Self {
        Self {
            mask,
            slots: HashTable::new(),
            priorities: BTreeMap::new(),
            n_rules: 0,
            hasher: FixedState::with_seed(seed),
        }
    }

    pub(crate) fn mask(&self) -> &Arc<MiniMask> {
        &self.mask
    }

    pub(crate) fn len(&self) -> usize {
        self.n_rules
    }

    /// Highest priority of a rule here; 0 if there is none.
    pub(crate) fn max_priority(&self) -> u32 {
        self.priorities.last_key_value().map_or(0, |(p, _)| *p)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.slots.iter().flat_map(Slot::rules)
    }

    /// The rules whose values are those of `key`, best first.
    pub(crate) fn bucket(&self, key: &FlowKey) -> &[Arc<R>] {
        let mut h = self.hasher.build_hasher();
        for (i, bits) in self.mask.words() {
            h.write_u64(key.0[i] & bits);
        }
        let slot = self.slots.find(h.finish(), |slot| {
            let values = slot.rules()[0].minimatch().values();
            self.mask.words().zip(values).all(|((i, bits), v)| key.0[i] & bits == *v)
        });
        slot.map_or(&[], Slot::rules)
    }

    pub(crate) fn insert(&mut self, rule: Arc<R>) {
        let priority = rule.priority();
        let hash = Self::hash(&self.hasher, rule.minimatch().values());
        let hasher = &self.hasher;
        let found = self.slots.find_mut(hash, |s| s.rules()[0].minimatch().values() == rule.minimatch().values());
        match found {
            None => {
                let rehash = |s: &Slot<R>| Self::hash(hasher, s.rules()[0].minimatch().values());
                self.slots.insert_unique(hash, Slot::One([rule]), rehash);
            }
            Some(slot) => {
                let mut many = slot.rules().to_vec();
                many.insert(many.partition_point(|r| r.priority() > priority), rule);
                *slot = Slot::Many(many);
            }
        }
        self.n_rules += 1;
        *self.priorities.entry(priority).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, rule: &Arc<R>) -> bool {
        let values = rule.minimatch().values();
        let hash = Self::hash(&self.hasher, values);
        let Ok(mut entry) = self.slots.find_entry(hash, |s| s.rules()[0].minimatch().values() == values) else {
            return false;
        };
        let rules = entry.get().rules();
        let Some(i) = rules.iter().position(|r| Arc::ptr_eq(r, rule)) else {
            return false;
        };
        if rules.len() == 1 {
            entry.remove();
        } else {
            let mut many = rules.to_vec();
            many.remove(i);
            *entry.get_mut() = match <[Arc<R>; 1]>::try_from(many) {
                Ok(one) => Slot::One(one),
                Err(many) => Slot::Many(many),
            };
        }
        self.n_rules -= 1;
        let priority = rule.priority();
        if let Some(n) = self.priorities.get_mut(&priority) {
            *n -= 1;
            if *n == 0 {
                self.priorities.remove(&priority);
            }
        }
        true
    }

    fn hash(hasher: &FixedState, values: &[u64]) -> u64 {
        let mut h = hasher.build_hasher();
        for v in values {
            h.write_u64(*v);
        }
        h.finish()
    }
}
