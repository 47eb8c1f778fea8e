//! Sets of things that have numbers, as groups and meters: each version of the tables has its own.

use std::array;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts that a set is shared by.
const SHARDS: usize = 64;

/// Things by number. A clone shares what neither of the two changes, so that a change costs little with many.
#[derive(Debug)]
pub struct Numbered<T>([Arc<BTreeMap<u32, Arc<T>>>; SHARDS]);

impl<T> Clone for Numbered<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(array::from_fn(|_| Arc::default()))
    }
}

fn shard(id: u32) -> usize {
    id as usize % SHARDS
}

impl<T> Numbered<T> {
    /// The one of this number.
    pub fn get(&self, id: u32) -> Option<&Arc<T>> {
        self.0[shard(id)].get(&id)
    }

    /// Adds one, in the place of one of its number.
    pub fn insert(&mut self, id: u32, one: Arc<T>) {
        Arc::make_mut(&mut self.0[shard(id)]).insert(id, one);
    }

    /// Removes the one of this number.
    pub fn remove(&mut self, id: u32) -> Option<Arc<T>> {
        if !self.0[shard(id)].contains_key(&id) {
            return None;
        }
        Arc::make_mut(&mut self.0[shard(id)]).remove(&id)
    }

    /// All of them, by number.
    pub fn all(&self) -> Vec<Arc<T>> {
        let mut all: Vec<_> = self.0.iter().flat_map(|shard| shard.iter()).collect();
        all.sort_unstable_by_key(|(id, _)| **id);
        all.into_iter().map(|(_, one)| Arc::clone(one)).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|shard| shard.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
