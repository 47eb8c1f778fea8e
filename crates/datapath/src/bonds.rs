//! Bonds: the tables by which `lb_output` chooses a port, and the bytes that each bucket has sent.
//!
//! The tables of all bonds are one immutable value ([`BondMap`]), which is replaced as a whole. Each thread keeps a reference
//! to it and takes over a newer one at the beginning of a batch, which costs a load of the version ([`BondCache`]): it writes
//! no cache line that other threads use. Loads are counted by lane, as drops are, and outlive the tables.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use base::DpPort;
use dpif::{BondId, BondTable, LB_BUCKETS};
use parking_lot::Mutex;

use crate::port::PORTS_MAX;
use crate::shared::LANES_MAX;

/// Stands for a bucket without a member.
pub(crate) const NO_PORT: u16 = u16::MAX;

const _: () = assert!(PORTS_MAX <= NO_PORT as u32);

/// The bonds of a datapath.
#[derive(Debug, Default)]
pub(crate) struct Bonds {
    map: ArcSwap<BondMap>,
    /// The version of `map`, stored after the map itself.
    version: AtomicU64,
    /// The loads that were reported, by bond. Held while bonds change.
    reported: Mutex<BTreeMap<BondId, [u64; LB_BUCKETS]>>,
}

/// All bonds at one moment.
#[derive(Debug, Default)]
pub(crate) struct BondMap {
    /// Higher than any earlier map's.
    version: u64,
    /// In the order of their ids.
    bonds: Vec<Arc<Bond>>,
}

/// A bond.
#[derive(Debug)]
pub(crate) struct Bond {
    id: BondId,
    hash_basis: u32,
    /// The port of each bucket, or [`NO_PORT`].
    ports: [u16; LB_BUCKETS],
    loads: Arc<Loads>,
}

/// The bytes that buckets have sent, by lane.
#[derive(Debug)]
struct Loads(Box<[OnceLock<Box<LaneLoads>>]>);

/// The bytes that a lane has sent, by bucket. Other lanes write none of its cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LaneLoads([AtomicU64; LB_BUCKETS]);

impl Default for LaneLoads {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl LaneLoads {
    /// Adds bytes to a bucket of [`CALLER_LANE`](crate::shared::CALLER_LANE), which several threads have.
    #[inline]
    pub(crate) fn add(&self, bucket: u8, bytes: usize) {
        self.0[usize::from(bucket)].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds bytes to a bucket of the calling packet thread's lane.
    #[inline]
    pub(crate) fn add_own(&self, bucket: u8, bytes: usize) {
        let load = &self.0[usize::from(bucket)];
        load.store(load.load(Ordering::Relaxed).wrapping_add(bytes as u64), Ordering::Relaxed);
    }
}

impl Default for Loads {
    fn default() -> Self {
        Self((0..LANES_MAX).map(|_| OnceLock::new()).collect())
    }
}

impl Loads {
    /// The bytes of all lanes so far.
    fn sum(&self) -> [u64; LB_BUCKETS] {
        let mut sum = [0u64; LB_BUCKETS];
        for lane in self.0.iter().filter_map(OnceLock::get) {
            for (sum, bytes) in sum.iter_mut().zip(&lane.0) {
                *sum = sum.wrapping_add(bytes.load(Ordering::Relaxed));
            }
        }
        sum
    }
}

impl Bond {
    fn new(id: BondId, table: &BondTable, loads: Arc<Loads>) -> Self {
        let port = |port: Option<DpPort>| port.and_then(|port| u16::try_from(port.0).ok()).unwrap_or(NO_PORT);
        Self { id, hash_basis: table.hash_basis, ports: table.buckets.map(port), loads }
    }

    /// The basis of the hash that selects a bucket.
    #[inline]
    pub(crate) fn hash_basis(&self) -> u32 {
        self.hash_basis
    }

    /// The number of the port of a bucket, or [`NO_PORT`].
    #[inline]
    pub(crate) fn port(&self, bucket: u8) -> u16 {
        self.ports[usize::from(bucket)]
    }

    /// The loads of a lane, which the calling thread has.
    #[inline]
    pub(crate) fn loads(&self, lane: usize) -> &LaneLoads {
        self.loads.0[lane].get_or_init(Box::default)
    }

    fn table(&self) -> BondTable {
        let port = |port| (port != NO_PORT).then_some(DpPort(u32::from(port)));
        BondTable { hash_basis: self.hash_basis, buckets: Box::new(self.ports.map(port)) }
    }
}

impl BondMap {
    #[inline]
    pub(crate) fn bond(&self, id: BondId) -> Option<&Bond> {
        self.place(id).ok().map(|at| &*self.bonds[at])
    }

    /// The index of a bond, or where it would be.
    #[inline]
    fn place(&self, id: BondId) -> Result<usize, usize> {
        self.bonds.binary_search_by_key(&id, |bond| bond.id)
    }

    fn next(&self) -> Self {
        Self { version: self.version + 1, bonds: self.bonds.clone() }
    }
}

impl Bonds {
    /// Adds a bond, or replaces its table.
    pub(crate) fn set(&self, id: BondId, table: &BondTable) {
        let mut reported = self.reported.lock();
        let mut next = self.map.load().next();
        match next.place(id) {
            Ok(at) => next.bonds[at] = Arc::new(Bond::new(id, table, Arc::clone(&next.bonds[at].loads))),
            Err(at) => {
                reported.insert(id, [0; LB_BUCKETS]);
                next.bonds.insert(at, Arc::new(Bond::new(id, table, Arc::default())));
            }
        }
        self.publish(next);
    }

    /// Removes a bond, if there is one.
    pub(crate) fn del(&self, id: BondId) {
        let mut reported = self.reported.lock();
        let mut next = self.map.load().next();
        if let Ok(at) = next.place(id) {
            next.bonds.remove(at);
            reported.remove(&id);
            self.publish(next);
        }
    }

    /// Publishes `map`; the caller holds the lock.
    fn publish(&self, map: BondMap) {
        let version = map.version;
        self.map.store(Arc::new(map));
        self.version.store(version, Ordering::Release);
    }

    /// All bonds, by id.
    pub(crate) fn all(&self) -> Vec<(BondId, BondTable)> {
        self.map.load().bonds.iter().map(|bond| (bond.id, bond.table())).collect()
    }

    /// The bytes that each bucket of a bond has sent since the last call.
    pub(crate) fn take_loads(&self, id: BondId) -> Option<Box<[u64; LB_BUCKETS]>> {
        let mut reported = self.reported.lock();
        let now = self.map.load().bond(id)?.loads.sum();
        let before = std::mem::replace(reported.get_mut(&id)?, now);
        Some(Box::new(std::array::from_fn(|bucket| now[bucket].wrapping_sub(before[bucket]))))
    }
}

/// A thread's reference to the current bonds.
#[derive(Debug, Default)]
pub(crate) struct BondCache(Arc<BondMap>);

impl BondCache {
    /// The bonds as they are now.
    #[inline]
    pub(crate) fn current(&mut self, bonds: &Bonds) -> &BondMap {
        if bonds.version.load(Ordering::Acquire) != self.0.version {
            self.take_over(bonds);
        }
        &self.0
    }

    #[cold]
    fn take_over(&mut self, bonds: &Bonds) {
        self.0 = bonds.map.load_full();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn table(rng: &mut Rng) -> BondTable {
        let mut table = BondTable { hash_basis: rng.below(9) as u32, ..BondTable::default() };
        table.buckets.iter_mut().for_each(|bucket| {
            *bucket = (rng.below(4) > 0).then(|| DpPort(rng.below(u64::from(PORTS_MAX)) as u32));
        });
        table
    }

    /// Random changes of bonds, and the same of a map; a thread that looks now and then sees the newest.
    #[test]
    fn threads_see_the_last_change() {
        let mut rng = Rng::seeded(11);
        let (bonds, mut cache, mut twin) = (Bonds::default(), BondCache::default(), BTreeMap::new());
        let changes = 2000u64;
        for _ in 0..changes {
            let id = BondId(rng.below(6) as u32 * 700_000_000);
            if rng.below(3) == 0 {
                bonds.del(id);
                twin.remove(&id);
            } else {
                let table = table(&mut rng);
                bonds.set(id, &table);
                twin.insert(id, table);
            }
            if rng.below(2) == 0 {
                let map = cache.current(&bonds);
                for id in (0..6).map(|n| BondId(n * 700_000_000)) {
                    assert_eq!(map.bond(id).map(Bond::table).as_ref(), twin.get(&id));
                }
            }
            assert_eq!(bonds.all(), twin.clone().into_iter().collect::<Vec<_>>());
        }
        tally::report!("{changes} changes");
    }

    #[test]
    fn loads_outlive_tables_and_are_taken_once() {
        let (bonds, mut cache) = (Bonds::default(), BondCache::default());
        assert!(bonds.take_loads(BondId(3)).is_none());
        bonds.set(BondId(3), &BondTable::default());
        for (lane, bucket, bytes) in [(0, 5, 100), (1, 5, 20), (7, 255, 3)] {
            cache.current(&bonds).bond(BondId(3)).expect("was added").loads(lane).add(bucket, bytes);
        }
        bonds.set(BondId(3), &BondTable { hash_basis: 1, ..BondTable::default() });
        let loads = || bonds.take_loads(BondId(3)).map(|loads| (loads[5], loads[255], loads.iter().sum::<u64>()));
        assert_eq!([loads(), loads()], [Some((120, 3, 123)), Some((0, 0, 0))]);
        cache.current(&bonds).bond(BondId(3)).expect("is still there").loads(0).add_own(5, 1);
        assert_eq!(loads(), Some((1, 0, 1)));
        bonds.del(BondId(3));
        bonds.set(BondId(3), &BondTable::default());
        assert_eq!(loads(), Some((0, 0, 0)));
    }
}
