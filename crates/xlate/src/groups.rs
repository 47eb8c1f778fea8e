//! Groups as translations see them (OpenFlow 1.3 section 5.6).

use base::Millis;
use openflow::GroupKind;
use openflow::group::{Bucket, GroupProperties};
use std::array;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A group. It does not change: a modification replaces it by another that shares its statistics.
#[derive(Debug)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// What it does with its buckets.
    pub kind: GroupKind,
    /// Its buckets.
    pub buckets: Vec<GroupBucket>,
    /// How it selects.
    pub properties: GroupProperties,
    /// When it was added.
    pub created: Millis,
    /// What it has done.
    pub counters: Arc<Counters>,
}

/// A bucket and what it has done.
#[derive(Clone, Debug)]
pub struct GroupBucket {
    /// What it is.
    pub bucket: Bucket,
    /// What it has done.
    pub counters: Arc<Counters>,
}

/// Packets and bytes, counted by any thread.
#[derive(Debug, Default)]
pub struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    /// Adds to them.
    pub fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Parts that a set of groups is shared by.
const SHARDS: usize = 64;

/// The groups of a bridge. A clone shares what neither of the two changes, so that a change costs little with many.
#[derive(Clone, Debug)]
pub struct Groups([Arc<BTreeMap<u32, Arc<Group>>>; SHARDS]);

impl Default for Groups {
    fn default() -> Self {
        Self(array::from_fn(|_| Arc::default()))
    }
}

fn shard(id: u32) -> usize {
    id as usize % SHARDS
}

impl Groups {
    /// The group of this number.
    pub fn get(&self, id: u32) -> Option<&Arc<Group>> {
        self.0[shard(id)].get(&id)
    }

    /// Adds a group, in the place of one of its number.
    pub fn insert(&mut self, group: Arc<Group>) {
        Arc::make_mut(&mut self.0[shard(group.id)]).insert(group.id, group);
    }

    /// Removes a group.
    pub fn remove(&mut self, id: u32) -> Option<Arc<Group>> {
        if !self.0[shard(id)].contains_key(&id) {
            return None;
        }
        Arc::make_mut(&mut self.0[shard(id)]).remove(&id)
    }

    /// All groups, by number.
    pub fn all(&self) -> Vec<Arc<Group>> {
        let mut all: Vec<_> = self.0.iter().flat_map(|shard| shard.values().cloned()).collect();
        all.sort_unstable_by_key(|group| group.id);
        all
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
