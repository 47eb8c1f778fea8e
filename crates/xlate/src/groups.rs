//! Groups as translations see them (OpenFlow 1.3 section 5.6).

use crate::numbered::Numbered;
use base::Millis;
use openflow::GroupKind;
use openflow::group::{Bucket, GroupProperties};
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

/// The groups of a bridge.
pub type Groups = Numbered<Group>;
