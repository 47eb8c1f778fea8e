//! Groups as translations see them (OpenFlow 1.3 section 5.6).

use crate::numbered::Numbered;
use base::Millis;
use openflow::group::{Bucket, GroupProperties};
use openflow::{Action, GroupKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A group. It is immutable: a modification replaces it by another one that shares its statistics.
#[derive(Debug)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// Its type.
    pub kind: GroupKind,
    /// Its buckets.
    pub buckets: Vec<GroupBucket>,
    /// Its selection method.
    pub properties: GroupProperties,
    /// When it was added.
    pub created: Millis,
    /// Its statistics.
    pub counters: Arc<Counters>,
    /// The assignment of hashes to buckets; see [`Group::spread`].
    pub spread: Spread,
}

/// The buckets of hashes, computed on first use.
#[derive(Debug, Default)]
pub struct Spread(OnceLock<Option<Box<[u16]>>>);

/// The smallest and largest number of hashes that a group's buckets share.
const HASHES: std::ops::RangeInclusive<u64> = 16..=256;

impl Group {
    /// Returns the bucket of each hash value; their number is a power of two. Each bucket has a share of the hashes in proportion
    /// to its weight. `None` if the weights differ too much for the number of hashes.
    pub fn spread(&self) -> Option<&[u16]> {
        let weights = || self.buckets.iter().map(|b| b.bucket.weight).collect::<Vec<_>>();
        self.spread.0.get_or_init(|| spread(&weights())).as_deref()
    }
}

/// Divides hashes among buckets of these weights by Webster's method: the next hash goes to the bucket that is
/// furthest behind its share.
fn spread(weights: &[u16]) -> Option<Box<[u16]>> {
    let least = u64::from(*weights.iter().filter(|w| **w > 0).min()?);
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    let n = total.div_ceil(least).next_power_of_two().max(*HASHES.start());
    if n > *HASHES.end() {
        return None;
    }
    let mut taken = vec![0u64; weights.len()];
    let next = |_| {
        // The larger of two fractions weight / (2 taken + 1), the first of equals.
        let behind = |a: usize, b: usize| {
            let of = |i: usize, j: usize| u64::from(weights[i]) * (2 * taken[j] + 1);
            if of(b, a) > of(a, b) { b } else { a }
        };
        let bucket = (0..weights.len()).reduce(behind).unwrap_or(0);
        taken[bucket] += 1;
        bucket as u16
    };
    Some((0..n).map(next).collect())
}

/// A bucket and its statistics.
#[derive(Clone, Debug)]
pub struct GroupBucket {
    /// The bucket as the controller configured it.
    pub bucket: Bucket,
    /// Packets and bytes that it processed.
    pub counters: Arc<Counters>,
    /// Its actions in the order in which an action set executes them.
    pub(crate) in_order: Arc<[Action]>,
}

impl GroupBucket {
    /// Creates a bucket without statistics.
    pub fn new(bucket: Bucket) -> Self {
        let in_order = crate::action::set_in_order(&bucket.actions).into();
        Self { bucket, counters: Arc::default(), in_order }
    }
}

/// Packets and bytes, counted by any thread.
#[derive(Debug, Default)]
pub struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    /// Adds to the counts.
    pub fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The number of packets.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The groups of a bridge.
pub type Groups = Numbered<Group>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_shared_by_weight() {
        for weights in [&[1][..], &[1, 1], &[1, 3], &[1, 2, 3], &[100, 200, 0, 700], &[1; 16], &[5; 17], &[1, 255]] {
            let hashes = spread(weights).expect("there are enough");
            assert!(hashes.len().is_power_of_two() && HASHES.contains(&(hashes.len() as u64)));
            let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
            for (i, weight) in weights.iter().enumerate() {
                let share = hashes.iter().filter(|b| usize::from(**b) == i).count() as f64;
                let due = f64::from(*weight) / total * hashes.len() as f64;
                // Webster's method is off by at most one for so few buckets.
                assert!((share - due).abs() < 1.0, "{weights:?}: {i} has {share} of {due}");
            }
        }
        assert_eq!(spread(&[1, 256]), None);
        assert_eq!(spread(&[0, 0]), None);
        assert_eq!(spread(&[]), None);
    }
}
