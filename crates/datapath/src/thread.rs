//! What one packet thread owns, and one round of its work: a batch from each of its queues in turn, looked up,
//! executed and sent.
//!
//! A worker is the same with and without a thread around it: [`crate::poll`] drives it as a thread,
//! [`crate::Datapath::run_once`] steps it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use base::DropReason;
use netdev::Rx;
use packet::Batch;
use packet::buf::BATCH_MAX;
use smallvec::SmallVec;

use crate::forward::Forwarder;
use crate::last_flow::LastFlow;
use crate::port::{Port, PortTable, Receiver, RxQueue};
use crate::shared::{Shared, bump_own};

/// A receive queue of ours.
pub(crate) struct Queue {
    pub(crate) port: Arc<Port>,
    pub(crate) receiver: Arc<Receiver>,
    /// The handle, which is taken out of the receiver for as long as the queue is ours.
    rx: Option<Box<dyn Rx>>,
    /// Its index at the port.
    index: usize,
    /// Rounds for which it is passed over from now on, and for how many it was last.
    rest: u32,
    rested: u32,
    /// It had something since the thread slept last.
    lively: bool,
    /// The flow that its packets took.
    last_flow: LastFlow,
}

/// Which queues a round asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// All of them; while others have packets, not those that had nothing lately.
    All,
    /// Those that had something since the thread slept last: nothing came in a round before, in which the others were
    /// asked, and the sleep ends if they have something.
    Lively,
}

/// Rounds for which a queue without packets is passed over at most, while others have some.
const REST_MAX: u32 = 8;

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(rx) = self.rx.take() {
            *self.receiver.handle.lock() = Some(rx);
        }
    }
}

impl Queue {
    /// The handle, which nobody else has while the queue is ours.
    pub(crate) fn rx(&self) -> Option<&dyn Rx> {
        self.rx.as_deref()
    }

    /// Whether it is passed over in this round: it had nothing lately, while others had (`busy`). To ask a device costs
    /// a system call. Before the thread sleeps, all are asked.
    fn is_resting(&mut self, busy: bool) -> bool {
        if !busy {
            (self.rest, self.rested) = (0, 0);
        }
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        rests
    }

    /// Takes note of whether something was there.
    fn asked(&mut self, found: bool, busy: bool) {
        self.lively |= found;
        self.rested = if found || !busy { 0 } else { (self.rested * 2 + 1).min(REST_MAX) };
        self.rest = self.rested;
    }
}

/// What a round moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    /// Packets that came in.
    pub(crate) packets: usize,
    /// Nanoseconds in which others were let run.
    pub(crate) waited_ns: u64,
}

/// Which queues had packets in a round, and when their packets had been processed.
type Served = SmallVec<[(usize, Option<Instant>); 8]>;

/// What one packet thread owns.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Which lane.
    pub(crate) lane: usize,
    /// The port table in use, and the queues in it that are ours.
    ports: Arc<PortTable>,
    pub(crate) queues: Vec<Queue>,
    /// The last round moved packets.
    busy: bool,
    served: Served,
    forwarder: Forwarder,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("lane", &self.lane).finish_non_exhaustive()
    }
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, lane: usize) -> Self {
        Self {
            shared,
            lane,
            ports: Arc::default(),
            queues: Vec::new(),
            busy: false,
            served: Served::new(),
            forwarder: Forwarder::new(lane),
        }
    }

    /// One round: at most one batch from each queue that is asked.
    ///
    /// `now` is when it begins.
    pub(crate) fn round(&mut self, ask: Ask, now: Instant) -> Round {
        self.sync();
        let _lane = crate::lane::enter(self.lane);
        let Self { shared, ports, queues, busy, served, forwarder, .. } = self;
        forwarder.begin(shared, now);
        served.clear();
        let mut received = 0;
        for (at, queue) in queues.iter_mut().enumerate() {
            if ask == Ask::Lively && !queue.lively || queue.is_resting(*busy) {
                continue;
            }
            let batch = forwarder.batch();
            receive(queue, batch);
            queue.asked(!batch.is_empty(), *busy);
            if !batch.is_empty() {
                received += batch.len();
                // The clock is read only where several queues share the round.
                if let Some((_, until)) = served.last_mut() {
                    *until = Some(Instant::now());
                }
                served.push((at, None));
                forwarder.process(shared, ports, &queue.port, &mut queue.last_flow);
            }
        }
        if served.len() > 1
            && let Some((_, until)) = served.last_mut()
        {
            *until = Some(Instant::now());
        }
        forwarder.flush(shared, ports);
        *busy = received > 0;
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.packets, received as u64);
        bump_own(&counters.rounds, 1);
        Round { packets: received, waited_ns: forwarder.take_waited_ns() }
    }

    /// Charges the last round, which began at `since` and took `spent_ns` nanoseconds, to the queues that had packets in
    /// it. To process them takes as long as it takes, and each pays in proportion for the rest, sending above all.
    pub(crate) fn charge(&mut self, since: Instant, spent_ns: u64) {
        if let [(only, _)] = self.served[..] {
            return bump_own(&self.queues[only].receiver.busy_ns, spent_ns);
        }
        let mut from = since;
        let mut processed: SmallVec<[(usize, u64); 8]> = SmallVec::new();
        for (at, until) in &self.served {
            let until = until.unwrap_or(from);
            processed.push((*at, until.saturating_duration_since(from).as_nanos() as u64));
            from = until;
        }
        let all_ns = processed.iter().map(|(_, ns)| ns).sum::<u64>().max(1);
        for (at, ns) in processed {
            let share = u128::from(spent_ns) * u128::from(ns) / u128::from(all_ns);
            bump_own(&self.queues[at].receiver.busy_ns, share as u64);
        }
    }

    /// Takes over the published port table, if it is another than ours.
    pub(crate) fn sync(&mut self) {
        if self.shared.is_current(&self.ports) {
            return;
        }
        let new = self.shared.ports.load_full();
        self.take_over(&new);
        self.ports = new;
        // What the last round charged to is gone.
        self.served.clear();
        self.shared.saw(self.lane, self.ports.version);
    }

    /// Gives up the queues that are not its own any more and takes those that now are, at the ports that changed. What it
    /// has of other ports stays as it is.
    fn take_over(&mut self, new: &PortTable) {
        let old = Arc::clone(&self.ports);
        // The ports that changed and of which it has queues, by their old values.
        let mut changed: HashMap<*const Port, Option<&Arc<Port>>> = HashMap::new();
        for (was, is) in new.changes_since(&old) {
            let Some(was) = was else { continue };
            let is = is.filter(|is| is.id == was.id);
            if was.rx.iter().any(|queue| is_of(self.lane, queue)) {
                changed.insert(Arc::as_ptr(was), is);
            }
            if is.is_none() {
                self.forwarder.release(was.number);
            }
        }
        let lane = self.lane;
        if !changed.is_empty() {
            self.queues.retain_mut(|queue| {
                let Some(is) = changed.get(&Arc::as_ptr(&queue.port)) else { return true };
                let is_ours = |rx: &RxQueue| is_of(lane, rx) && Arc::ptr_eq(&rx.receiver, &queue.receiver);
                let Some(is) = is.filter(|is| is.rx.get(queue.index).is_some_and(is_ours)) else { return false };
                queue.port = Arc::clone(is);
                true
            });
        }
        for (was, is) in new.changes_since(&old) {
            let Some(is) = is else { continue };
            let was = was.filter(|was| was.id == is.id);
            for (index, rx) in is.rx.iter().enumerate().filter(|(_, rx)| is_of(lane, rx)) {
                let had = |was: &RxQueue| is_of(lane, was) && Arc::ptr_eq(&was.receiver, &rx.receiver);
                if was.is_some_and(|was| was.rx.get(index).is_some_and(had)) {
                    continue;
                }
                self.queues.push(Queue {
                    port: Arc::clone(is),
                    receiver: Arc::clone(&rx.receiver),
                    rx: rx.receiver.handle.lock().take(),
                    index,
                    rest: 0,
                    rested: 0,
                    lively: false,
                    last_flow: LastFlow::default(),
                });
            }
        }
    }

    /// The thread has slept.
    pub(crate) fn slept(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.lively = false);
    }

    /// After a panic in the middle of a batch: counts the packets that it took along. (Of the list of actions in which
    /// it happened some may have been sent.) Returns how many they are.
    pub(crate) fn count_lost(&mut self) -> usize {
        let n = self.forwarder.give_up();
        self.shared.count_drop(None, DropReason::TranslationError, n);
        n as usize
    }

    /// Asks queues that rest after an error again. Returns whether there are any.
    pub(crate) fn retry_broken(&self) -> bool {
        let broken = self.queues.iter().filter(|q| q.receiver.broken.swap(false, Ordering::Relaxed));
        broken.count() > 0
    }
}

/// Whether the thread of `lane` owns a queue.
fn is_of(lane: usize, queue: &RxQueue) -> bool {
    queue.owner.is_some_and(|owner| owner.lane == lane)
}

/// Fills `batch`, which is empty, from a queue. A queue with an error rests.
fn receive(Queue { port, receiver, rx, index, .. }: &mut Queue, batch: &mut Batch) {
    if receiver.broken.load(Ordering::Relaxed) {
        return;
    }
    let Some(rx) = rx else {
        *rx = receiver.handle.lock().take();
        return;
    };
    if let Err(error) = rx.recv_batch(batch, BATCH_MAX) {
        receiver.broken.store(true, Ordering::Relaxed);
        tracing::warn!(port = port.device.name(), queue = index, %error, "cannot receive");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Config;
    use crate::port::{Owner, PortId};
    use base::rng::Rng;
    use base::{Clock, DpPort};
    use netdev::Netdev;
    use netdev::dummy::Registry;
    use std::collections::BTreeSet;

    /// Queues of a port at most.
    const QUEUES: u64 = 3;

    #[test]
    fn a_thread_has_the_queues_that_the_table_says_and_keeps_those_that_did_not_change() {
        let (mut rng, rounds) = (Rng::seeded(11), 2000);
        let shared = Arc::new(Shared::new(Config::default(), Clock::stopped()));
        shared.lanes.make(1);
        let mut worker = Worker::new(Arc::clone(&shared), 1);
        let registry = Registry::new();
        for round in 0..rounds {
            // Some changes of the table come between two looks of the thread at it.
            for _ in 0..rng.below(4) {
                let table = shared.ports.load_full();
                let number = DpPort(1 + rng.below(20) as u32);
                let owner = (rng.below(2) == 0).then_some(Owner { lane: 1, core_id: 0 });
                let next = match table.port(number).map(|port| Port::clone(port)) {
                    Some(_) if rng.below(3) == 0 => table.without(number),
                    Some(mut port) => {
                        let at = rng.below(port.rx.len() as u64) as usize;
                        port.rx[at].owner = owner;
                        table.with(Arc::new(port))
                    }
                    None => {
                        let name = format!("p{round}-{}", table.version);
                        let device = registry.open(&name, "dummy-pmd").expect("opens");
                        let n_rxq = 1 + rng.below(QUEUES);
                        device.set_options(&[("n_rxq".to_owned(), n_rxq.to_string())].into()).expect("options");
                        let mut port = Port::open(PortId { number, since: table.version + 1 }, device).expect("opens");
                        port.rx.iter_mut().for_each(|queue| queue.owner = owner);
                        table.with(Arc::new(port))
                    }
                };
                shared.publish(next);
            }
            let handle = |queue: &Queue| queue.rx.as_deref().map(|rx| std::ptr::from_ref(rx).cast::<()>() as usize);
            let id = |queue: &Queue| (queue.port.id, queue.index, handle(queue));
            let before: Vec<_> = worker.queues.iter().map(id).collect();
            worker.sync();
            let after: Vec<_> = worker.queues.iter().map(id).collect();
            let table = shared.ports.load_full();
            let ours = table.iter().flat_map(|port| {
                let ours = port.rx.iter().enumerate().filter(|(_, queue)| is_of(1, queue));
                ours.map(|(index, _)| (port.id, index)).collect::<Vec<_>>()
            });
            let had: BTreeSet<_> = after.iter().map(|(port, index, _)| (*port, *index)).collect();
            assert_eq!(ours.collect::<BTreeSet<_>>(), had);
            assert_eq!(had.len(), after.len());
            assert!(after.iter().all(|(.., handle)| handle.is_some()));
            // Queues that stay are in the same order, with the same handles, and belong to the table's value of the port.
            let stay: Vec<_> = before.iter().filter(|(port, index, _)| had.contains(&(*port, *index))).collect();
            assert!(after.iter().take(stay.len()).eq(stay));
            assert!(worker.queues.iter().all(|q| table.port(q.port.number).is_some_and(|p| Arc::ptr_eq(p, &q.port))));
        }
        tally::report!("{rounds} rounds");
    }
}
