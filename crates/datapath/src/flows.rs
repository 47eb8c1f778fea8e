//! The installed flows: the index, ids, the current generation and the flow limit.
//!
//! Packet threads read the index without a lock (see [`crate::megaflow`]), and count packets while they read. Changes
//! happen concurrently. A thread that removes or replaces a flow waits until no thread reads the state that contains
//! the flow, and then takes its final statistics. Only threads that may wait do so: packet threads install flows by
//! [`Flows::put_quickly`], which takes bounded time, and leave everything else to handlers.
//!
//! Ids are stored in shards, so that a dump delays a change at most for the time that copying a shard takes.
//!
//! Flows that are removed or replaced are taken back from the accelerator ([`Offload`]), with its counts, before they
//! are reported: after the wait for readers, as these may have offered them, and without the index's lock.
//!
//! Invariants: locks are taken in the order shard, index, accelerator, and never two shards at once. No thread waits
//! for readers while it reads or holds the index's lock, except for readers of the state before the last one. The index
//! determines which flows are installed; a shard may briefly contain a flow that was just replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Clock;
use dpif::{DpFlow, DpFlowEntry, DpFlowStats, DpifError, FlowId};
use epoch::{Grace, ReadGuard};
use flow::Words;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::Mutex;

use crate::megaflow::{BATCH, Change, Found, Index, IndexKind, Megaflow, Outcome, Replica, new_index};
use crate::offload::Offload;
use smallvec::SmallVec;

/// Upper limit on the number of flows, whatever the configuration: the range of the index's numbers.
const FLOWS_MAX: u64 = 1 << 24;

/// With 200,000 flows, each shard has some 3,000.
const SHARDS: usize = 64;

/// Tables of ids up to this size are reallocated quickly.
const SHARD_SMALL: usize = 512;

type Shard = Mutex<HashMap<FlowId, Arc<Megaflow>>>;

/// All flows of a datapath.
#[derive(Debug)]
pub(crate) struct Flows {
    index: Index,
    by_id: [Shard; SHARDS],
    generation: AtomicU64,
    limit: AtomicU64,
    /// The flows that an accelerator forwards.
    pub(crate) offload: Offload,
}

/// The result of installing a flow.
#[derive(Debug)]
pub(crate) enum Installed {
    /// Installed; these flows were removed. A replaced flow with the same id continues in the new one.
    Yes(SmallVec<[Arc<Megaflow>; 1]>),
    /// The flow limit is reached.
    Full,
}

/// A flow that could not be installed quickly.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Another thread held a lock, or readers of an earlier state are still active.
    Busy(Arc<Megaflow>),
    /// Only [`Flows::put_flow`] can install it, which may wait.
    MustWait(Arc<Megaflow>),
}

/// A guard that keeps flows valid while a batch is looked up, counted and executed. Its holder must not wait for a
/// change.
pub(crate) struct Reader<'a> {
    index: ReadGuard<'a, Replica>,
    generation: u64,
}

impl Reader<'_> {
    /// The current flow that covers `key`.
    pub(crate) fn lookup(&self, key: &impl Words, probes: &mut u64) -> Found<'_> {
        self.index.lookup(key, self.generation, probes)
    }

    /// The current generation.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks up the keys at the positions `asked`, and writes the current flow of each to the same position of `found`.
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
            index: new_index(kind),
            by_id: std::array::from_fn(|_| Shard::default()),
            generation: AtomicU64::new(0),
            limit: AtomicU64::new(limit.min(FLOWS_MAX)),
            offload: Offload::new(clock),
        }
    }

    fn shard(&self, id: FlowId) -> &Shard {
        &self.by_id[id.0 as usize % SHARDS]
    }

    /// A guard for lookups in the current generation. Takes no lock.
    #[inline]
    pub(crate) fn reader(&self) -> Reader<'_> {
        let index = self.index.read();
        Reader { index, generation: self.generation.load(Ordering::SeqCst) }
    }

    /// If two threads set the generation concurrently, the larger one wins.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::SeqCst);
        self.offload.set_generation(generation);
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit.min(FLOWS_MAX), Ordering::Relaxed);
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize
    }

    /// Installs a flow. Waits for readers if this removes another flow.
    pub(crate) fn put(&self, id: FlowId, flow: DpFlow) -> Installed {
        self.put_flow(Arc::new(Megaflow::new(id, flow)))
    }

    /// Installs a flow that [`Flows::put_quickly`] returned.
    pub(crate) fn put_flow(&self, flow: Arc<Megaflow>) -> Installed {
        let mut shard = self.shard(flow.id).lock();
        let place = shard.entry(flow.id);
        let old = if let Entry::Occupied(old) = &place { Some(Arc::clone(old.get())) } else { None };
        let ((done, flow), grace) = self.index.write(Change::Put { flow, old: old.clone(), limit: self.limit() });
        let flow = flow.expect("a change that puts a flow gives it back");
        let Outcome::Yes { was_there, gone: replaced, .. } = done else {
            flow.set_gone();
            if let Entry::Occupied(old) = place {
                old.remove();
            }
            return Installed::Full;
        };
        if let Some(old) = old.filter(|_| was_there) {
            self.take_out(std::slice::from_ref(&old), grace.clone());
            flow.continue_from(&old.stats());
        }
        place.insert(flow);
        drop(shard);
        self.take_out(&replaced, grace);
        replaced.iter().for_each(|gone| self.forget(gone));
        Installed::Yes(replaced)
    }

    /// Installs a flow with a new id in bounded time, and waits for a few microseconds at most. It fails, too, if that would
    /// remove another flow.
    pub(crate) fn put_quickly(&self, id: FlowId, flow: DpFlow) -> Result<(), Refused> {
        self.put_flow_quickly(Arc::new(Megaflow::new(id, flow)))
    }

    /// Like [`Flows::put_quickly`], for a flow that it returned.
    pub(crate) fn put_flow_quickly(&self, flow: Arc<Megaflow>) -> Result<(), Refused> {
        let id = flow.id;
        let Some(mut shard) = self.shard(id).try_lock() else { return Err(Refused::Busy(flow)) };
        if shard.contains_key(&id) || shard.len() == shard.capacity() && shard.len() > SHARD_SMALL {
            return Err(Refused::MustWait(flow));
        }
        let given_back = "a change that puts a flow gives it back";
        match self.index.try_write(Change::PutQuickly { flow, limit: self.limit() }) {
            Ok(((Outcome::Yes { .. }, flow), _)) => {
                shard.insert(id, flow.expect(given_back));
                Ok(())
            }
            Ok(((_, flow), _)) => Err(Refused::MustWait(flow.expect(given_back))),
            Err(change) => Err(Refused::Busy(change.flow().cloned().expect(given_back))),
        }
    }

    /// Waits until no thread counts packets of flows that were removed from the index, and takes them back from the
    /// accelerator, so that their statistics are final. `grace` is that of the change that removed them.
    fn take_out(&self, gone: &[Arc<Megaflow>], mut grace: Grace) {
        if gone.is_empty() {
            return;
        }
        grace.wait();
        let _ = self.index.settle();
        self.offload.take_back(gone);
    }

    /// Removes the id of a flow that is no longer in the index.
    fn forget(&self, gone: &Arc<Megaflow>) {
        let mut shard = self.shard(gone.id).lock();
        if shard.get(&gone.id).is_some_and(|f| Arc::ptr_eq(f, gone)) {
            shard.remove(&gone.id);
        }
    }

    pub(crate) fn del(&self, id: FlowId) -> Result<DpFlowStats, DpifError> {
        let mut shard = self.shard(id).lock();
        let flow = shard.remove(&id).ok_or(DpifError::NoFlow)?;
        let ((done, _), grace) = self.index.write(Change::Remove(Arc::clone(&flow)));
        // If another thread replaced it at this moment, that thread reports it.
        if !matches!(done, Outcome::Yes { was_there: true, .. }) {
            return Err(DpifError::NoFlow);
        }
        drop(shard);
        self.take_out(std::slice::from_ref(&flow), grace);
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

    /// Number of flows and of distinct masks.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let flows = self.index.read().len() as u64;
        (flows, self.index.ledger(|lists| lists.n_masks() as u64))
    }

    /// Maintains the index step by step, while packet threads continue. Returns removed flows, which are to be
    /// reported, and whether there is more to do.
    pub(crate) fn tune(&self) -> (SmallVec<[Arc<Megaflow>; 1]>, bool) {
        let ((done, _), grace) = self.index.write(Change::Tune);
        let Outcome::Yes { gone, more, .. } = done else { return (SmallVec::new(), false) };
        self.take_out(&gone, grace);
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

    /// Every packet that threads count is in the final statistics of a removed or replaced flow, whatever the
    /// interleaving.
    #[test]
    fn statistics_of_a_removal_are_the_last_ones() {
        for kind in KINDS {
            counting(kind);
        }
    }

    fn counting(kind: IndexKind) {
        let flows = Flows::new(kind, u64::MAX, Clock::stopped());
        let done = std::sync::atomic::AtomicBool::new(false);
        let (counted, reported) = std::thread::scope(|scope| {
            let counters: Vec<_> = (1..3u16)
                .map(|thread| {
                    let (flows, done) = (&flows, &done);
                    scope.spawn(move || {
                        let (key, mut counted) = (flow(80, 0).key.expand(), 0);
                        while !done.load(Ordering::Relaxed) {
                            let reader = flows.reader();
                            if let Some(flow) = reader.lookup(&key, &mut 0) {
                                flow.count(std::num::NonZeroU16::new(thread), 1, 60, 0, base::Millis(1));
                                counted += 1;
                            }
                        }
                        counted
                    })
                })
                .collect();
            let mut reported = 0;
            for n in 0..2000 {
                match n % 4 {
                    // Puts another id, the same id, or nothing.
                    0 | 1 => match flows.put(FlowId(n), flow(80, 0)) {
                        Installed::Yes(gone) => reported += gone.iter().map(|f| f.stats().packets).sum::<u64>(),
                        Installed::Full => unreachable!("there is no limit"),
                    },
                    2 => assert!(
                        matches!(flows.put(FlowId(n - 1), flow(80, 0)), Installed::Yes(gone) if gone.is_empty())
                    ),
                    _ => reported += flows.del(FlowId(n - 2)).map_or(0, |stats| stats.packets),
                }
            }
            done.store(true, Ordering::Relaxed);
            (counters.into_iter().map(|counter| counter.join().expect("counts")).sum::<u64>(), reported)
        });
        assert_eq!(counted, reported);
    }

    #[test]
    fn flows_with_equal_reads_share_a_list() {
        let flows = Flows::new(IndexKind::Tree, u64::MAX, Clock::stopped());
        for n in 0..4 {
            flows.put(FlowId(n), flow(n as u16, 0));
        }
        while flows.put_quickly(FlowId(4), flow(4, 0)).is_err() {
            flows.index.settle();
        }
        let of = |id| Arc::as_ptr(&flows.shard(FlowId(id)).lock()[&FlowId(id)].reads);
        assert!((1..5).all(|id| of(id) == of(0)));
    }

    #[test]
    fn flows_with_equal_actions_share_a_list() {
        for kind in KINDS {
            let flows = Flows::new(kind, u64::MAX, Clock::stopped());
            // Two lists, of which each flow brings a copy.
            let put = |n: u16| {
                let actions: Vec<_> =
                    (0..2 + n % 2).map(|port| dpif::DpAction::Output(base::DpPort(port.into()))).collect();
                let DpFlow { key, reads, generation, .. } = flow(n, 0);
                flows.put(FlowId(n.into()), DpFlow { key, reads, actions: actions.into(), generation })
            };
            (0..20).for_each(|n| _ = put(n));
            let of = |id| Arc::clone(&flows.shard(FlowId(id)).lock()[&FlowId(id)].actions);
            assert!((0..20).all(|id| Arc::ptr_eq(&of(id), &of(id % 2))));
            assert_eq!([of(0).len(), of(1).len()], [2, 3]);
            let n_lists = || flows.index.ledger(|lists| lists.n_actions());
            assert_eq!(n_lists(), 2);
            // Replacing a flow releases its list, too.
            (0..20).for_each(|n| _ = put(n));
            (0..10).for_each(|id| assert!(flows.del(FlowId(2 * id)).is_ok()));
            assert_eq!(n_lists(), 1);
            (0..10).for_each(|id| assert!(flows.del(FlowId(2 * id + 1)).is_ok()));
            assert_eq!(n_lists(), 0);
        }
    }

    #[test]
    fn put_quickly_does_not_wait() {
        let flows = Flows::new(IndexKind::Tree, u64::MAX, Clock::stopped());
        // The index is busy: a thread reads the state before the last change.
        let reader = flows.reader();
        flows.put(FlowId(1), flow(80, 0));
        let Err(Refused::Busy(refused)) = flows.put_quickly(FlowId(2), flow(81, 0)) else {
            panic!("the other copy has a reader");
        };
        let Err(Refused::Busy(refused)) = flows.put_flow_quickly(refused) else { panic!("it has one still") };
        assert_eq!(flows.counts().0, 1);
        drop(reader);
        while let Err(refused) = flows.put_flow_quickly(Arc::clone(&refused)) {
            // Readers of other tests delay it, too.
            assert!(matches!(refused, Refused::Busy(_)));
            flows.index.settle();
        }
        // Replacing another flow requires a wait for its statistics.
        let refused = loop {
            match flows.put_quickly(FlowId(3), flow(81, 0)) {
                Err(Refused::MustWait(refused)) => break refused,
                Err(Refused::Busy(_)) => _ = flows.index.settle(),
                Ok(()) => panic!("it covers another"),
            }
        };
        assert!(matches!(flows.put_flow(refused), Installed::Yes(gone) if gone[0].id == FlowId(2)));
        // Readers of other tests delay it, too.
        while flows.put_quickly(FlowId(4), flow(82, 0)).is_err() {
            flows.index.settle();
        }
        flows.set_limit(3);
        assert!(flows.put_quickly(FlowId(5), flow(83, 0)).is_err() && flows.counts().0 == 3);
        let shard = flows.shard(FlowId(6)).lock();
        assert!(flows.put_quickly(FlowId(6), flow(84, 0)).is_err());
        drop(shard);
        assert_eq!(flows.dump().len(), 3);
    }

    #[test]
    fn tuning_goes_on_while_others_read() {
        let flows = Flows::new(IndexKind::Tree, u64::MAX, Clock::stopped());
        // Flows that match a port narrow flows that do not.
        for n in 0..64u16 {
            flows.put(FlowId(n.into()), flow(n, 0));
        }
        let by_address = |n: u16| {
            let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::mask_of(Field::Ipv4Dst));
            mask.add_mask(Field::EthType, 0xffff);
            key.set(Field::EthType, 0x0800);
            key.set(Field::Ipv4Dst, n.into());
            key.set(Field::TcpDst, u128::from(n) + 1000);
            DpFlow::by_hand(&key, &mask, Arc::new([]), 0)
        };
        for n in 100..200 {
            flows.put(FlowId(n), by_address(n as u16));
        }
        for n in 0..64u64 {
            flows.del(FlowId(n)).expect("there");
        }
        let mask = || flows.dump()[0].mask.get(Field::TcpDst);
        assert_ne!(mask(), 0);
        let reader = flows.reader();
        flows.tune();
        assert_eq!((flows.counts(), mask()), ((100, 1), 0), "none is narrowed any more");
        drop(reader);
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
        // Each flow is either installed or was reported exactly once.
        assert_eq!(reported.into_inner() + dump.len() as u64, 20_000);
        assert!(dump.iter().all(|e| flows.del(e.id).is_ok()));
        assert_eq!(flows.counts(), (0, 0));
    }
}
