//! The installed flows: the index behind its lock, ids, the current generation and the limit.
//!
//! Packet threads hold the index's lock shared for the look-ups of one batch, in which they also count, so that the
//! statistics that a removal returns are the last ones. Writers hold it for one change. Ids stand in shards of their
//! own, so that a dump never holds up a packet thread for longer than a shard takes to copy.
//!
//! Flows that are removed or replaced are taken back from the accelerator ([`Offload`]) before anybody hears of it, with
//! what it has counted.
//!
//! Invariants: locks are taken in the order shard, index, accelerator, and no two shards at once. The index decides what is
//! installed; a shard may, for a moment, name a flow that has just been replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Clock;
use dpif::{DpFlow, DpFlowEntry, DpFlowStats, DpifError, FlowId};
use flow::Words;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::megaflow::{AnyIndex, BATCH, Found, IndexKind, Inserted, Megaflow};
use crate::offload::Offload;
use smallvec::SmallVec;

/// Flows at most, whatever is configured: what an index has numbers for.
const FLOWS_MAX: u64 = 1 << 24;

/// With 200,000 flows, some 3,000 stand in each.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<FlowId, Arc<Megaflow>>>;

/// All flows of a datapath.
#[derive(Debug)]
pub(crate) struct Flows {
    index: RwLock<AnyIndex>,
    by_id: [Shard; SHARDS],
    generation: AtomicU64,
    limit: AtomicU64,
    /// Those of them that are forwarded below.
    pub(crate) offload: Offload,
}

/// What became of a flow to be installed.
#[derive(Debug)]
pub(crate) enum Installed {
    /// It is there, in place of these, which are out. One of the same id goes on in it.
    Yes(SmallVec<[Arc<Megaflow>; 1]>),
    /// There is no room.
    Full,
}

/// The flows, held still for one batch.
pub(crate) struct Reader<'a> {
    index: RwLockReadGuard<'a, AnyIndex>,
    generation: u64,
}

impl Reader<'_> {
    /// The current flow that covers `key`.
    pub(crate) fn lookup(&self, key: &impl Words, probes: &mut u64) -> Found<'_> {
        self.index.lookup(key, self.generation, probes)
    }
}

impl Reader<'_> {
    /// The generation that is current.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The current flows that cover the keys at the places `asked`, each written to its key's place in `found`.
    pub(crate) fn lookup_batch<'s: 'f, 'f, K: Words>(
        &'s self,
        keys: &[K],
        asked: u32,
        found: &mut [Found<'f>; BATCH],
        probes: &mut u64,
    ) {
        self.index.lookup_batch(keys, asked, self.generation, found, probes);
    }
}

impl Flows {
    pub(crate) fn new(kind: IndexKind, limit: u64, clock: Clock) -> Self {
        Self {
            index: RwLock::new(AnyIndex::new(kind)),
            by_id: std::array::from_fn(|_| Shard::default()),
            generation: AtomicU64::new(0),
            limit: AtomicU64::new(limit.min(FLOWS_MAX)),
            offload: Offload::new(clock),
        }
    }

    fn shard(&self, id: FlowId) -> &Shard {
        &self.by_id[id.0 as usize % SHARDS]
    }

    /// Holds the flows for look-ups, in the generation that is current at this moment.
    pub(crate) fn reader(&self) -> Reader<'_> {
        let index = self.index.read();
        Reader { index, generation: self.generation.load(Ordering::SeqCst) }
    }

    /// Of two threads that move on at the same time the later generation wins, in whichever order they get here.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::SeqCst);
        self.offload.set_generation(generation);
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit.min(FLOWS_MAX), Ordering::Relaxed);
    }

    pub(crate) fn put(&self, id: FlowId, flow: DpFlow) -> Installed {
        let mut shard = self.shard(id).lock();
        let place = shard.entry(id);
        let old = if let Entry::Occupied(old) = &place { Some(Arc::clone(old.get())) } else { None };
        let limit = self.limit.load(Ordering::Relaxed);
        let mut index = self.index.write();
        let old = old.filter(|old| index.remove(old));
        let flow = match &old {
            Some(old) => {
                self.offload.take_back(std::slice::from_ref(old));
                Megaflow::continuing(old, flow)
            }
            None => Megaflow::new(id, flow),
        };
        let Inserted { flow, replaced } = index.insert(flow);
        old.iter().chain(&replaced).for_each(|f| f.set_gone());
        if old.is_none() && replaced.is_empty() && index.len() as u64 > limit {
            index.remove(&flow);
            flow.set_gone();
            drop(index);
            if let Entry::Occupied(old) = place {
                old.remove();
            }
            return Installed::Full;
        }
        drop(index);
        place.insert(flow);
        drop(shard);
        self.offload.take_back(&replaced);
        replaced.iter().for_each(|gone| self.forget(gone));
        Installed::Yes(replaced)
    }

    /// Takes the id of a flow that the index has let go of.
    fn forget(&self, gone: &Arc<Megaflow>) {
        let mut shard = self.shard(gone.id).lock();
        if shard.get(&gone.id).is_some_and(|f| Arc::ptr_eq(f, gone)) {
            shard.remove(&gone.id);
        }
    }

    pub(crate) fn del(&self, id: FlowId) -> Result<DpFlowStats, DpifError> {
        let mut shard = self.shard(id).lock();
        let flow = shard.remove(&id).ok_or(DpifError::NoFlow)?;
        let mut index = self.index.write();
        // If another took its place this moment, whoever put that one reports it.
        if !index.remove(&flow) {
            return Err(DpifError::NoFlow);
        }
        flow.set_gone();
        drop(index);
        self.offload.take_back(std::slice::from_ref(&flow));
        Ok(flow.stats())
    }

    pub(crate) fn entry(&self, id: FlowId) -> Option<DpFlowEntry> {
        let flow = self.shard(id).lock().get(&id).cloned();
        flow.map(|f| {
            self.offload.bring_counts(&f);
            f.entry()
        })
    }

    /// See [`dpif::Dpif::flow_stats`].
    pub(crate) fn stats(&self, each: &mut dyn FnMut(FlowId, DpFlowStats)) {
        self.offload.refresh();
        let mut flows = Vec::new();
        for shard in &self.by_id {
            flows.extend(shard.lock().values().map(|f| (f.id, f.stats())));
            flows.drain(..).for_each(|(id, stats)| each(id, stats));
        }
    }

    pub(crate) fn dump(&self) -> Vec<DpFlowEntry> {
        self.offload.refresh();
        let mut flows: Vec<Arc<Megaflow>> = Vec::new();
        for shard in &self.by_id {
            flows.extend(shard.lock().values().cloned());
        }
        flows.iter().map(|f| f.entry()).collect()
    }

    /// Flows, and distinct masks among them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let index = self.index.read();
        (index.len() as u64, index.n_masks() as u64)
    }

    /// Tunes the index, if nobody holds it. Returns flows that are out, to be reported, and whether there is more to
    /// do.
    pub(crate) fn tune(&self) -> (Vec<Arc<Megaflow>>, bool) {
        let Some(mut index) = self.index.try_write() else { return (Vec::new(), false) };
        let gone = index.tune();
        let more = index.is_untidy();
        gone.iter().for_each(|f| f.set_gone());
        drop(index);
        self.offload.take_back(&gone);
        gone.iter().for_each(|f| self.forget(f));
        (gone, more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, FlowKey};

    fn flow(port: u16, generation: u64) -> DpFlow {
        let mask = FlowKey::mask_of(Field::TcpDst);
        let mut key = FlowKey::ZERO;
        key.set(Field::TcpDst, port.into());
        DpFlow::by_hand(&key, &mask, Arc::new([]), generation)
    }

    const KINDS: [IndexKind; 2] = [IndexKind::TupleSpace, IndexKind::Tree];

    #[test]
    fn put_replaces_and_the_limit_holds() {
        for kind in KINDS {
            replacing(kind);
        }
    }

    fn replacing(kind: IndexKind) {
        let flows = Flows::new(kind, 2, Clock::stopped());
        assert!(matches!(flows.put(FlowId(1), flow(80, 0)), Installed::Yes(gone) if gone.is_empty()));
        assert!(matches!(flows.put(FlowId(2), flow(80, 0)), Installed::Yes(gone) if gone[0].id == FlowId(1)));
        assert!(matches!(flows.put(FlowId(2), flow(81, 0)), Installed::Yes(gone) if gone.is_empty()));
        assert_eq!(flows.counts(), (1, 1));
        assert!(matches!(flows.put(FlowId(3), flow(82, 0)), Installed::Yes(_)));
        assert!(matches!(flows.put(FlowId(4), flow(83, 0)), Installed::Full));
        assert!(matches!(flows.put(FlowId(5), flow(82, 0)), Installed::Yes(gone) if gone[0].id == FlowId(3)));
        assert!(flows.del(FlowId(4)).is_err());
        assert!(flows.del(FlowId(2)).is_ok());
        assert_eq!(flows.dump().len(), 1);
        assert!(flows.reader().lookup(&flow(82, 0).key.expand(), &mut 0).is_some());
        flows.set_generation(1);
        assert!(flows.reader().lookup(&flow(82, 0).key.expand(), &mut 0).is_none());
    }

    #[test]
    fn a_full_table_still_takes_a_flow_in_place_of_itself() {
        for kind in KINDS {
            full(kind);
        }
    }

    fn full(kind: IndexKind) {
        let flows = Flows::new(kind, 2, Clock::stopped());
        for id in [1, 2] {
            flows.put(FlowId(id), flow(id as u16, 0));
        }
        flows.set_limit(1);
        assert!(matches!(flows.put(FlowId(1), flow(7, 0)), Installed::Yes(gone) if gone.is_empty()));
        assert_eq!(flows.counts(), (2, 1));
    }

    #[test]
    fn threads_that_change_flows_leave_ids_and_index_in_agreement() {
        for kind in KINDS {
            changing(kind);
        }
    }

    fn changing(kind: IndexKind) {
        let flows = Flows::new(kind, u64::MAX, Clock::stopped());
        let reported = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (flows, reported) = (&flows, &reported);
                scope.spawn(move || {
                    let mut rng = base::rng::Rng::seeded(thread);
                    for n in 0..5000 {
                        let id = FlowId(n * 4 + thread);
                        if let Installed::Yes(gone) = flows.put(id, flow(rng.below(64) as u16, 0)) {
                            reported.fetch_add(gone.len() as u64, Ordering::Relaxed);
                        }
                        if rng.below(4) == 0 && flows.del(FlowId(rng.below(n + 1) * 4 + rng.below(4))).is_ok() {
                            reported.fetch_add(1, Ordering::Relaxed);
                        }
                        if n % 500 == 0 {
                            flows.dump();
                            flows.tune();
                        }
                    }
                });
            }
        });
        let dump = flows.dump();
        assert_eq!(dump.len() as u64, flows.counts().0);
        // Each flow is either there or has been reported to have left, once.
        assert_eq!(reported.into_inner() + dump.len() as u64, 20_000);
        assert!(dump.iter().all(|e| flows.del(e.id).is_ok()));
        assert_eq!(flows.counts(), (0, 0));
    }
}
