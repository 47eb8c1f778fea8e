//! The state of one packet thread, and one round of its work: a batch from each of its queues in turn is looked up,
//! executed and sent.
//!
//! A worker is the same with and without a thread around it: [`crate::poll`] runs it as a thread,
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
use crate::shared::{SharedState, bump_own};

/// A receive queue that this thread owns.
pub(crate) struct Queue {
    pub(crate) port: Arc<Port>,
    pub(crate) receiver: Arc<Receiver>,
    /// The handle, taken out of the receiver while the thread owns the queue.
    rx: Option<Box<dyn Rx>>,
    /// The index of the queue at its port.
    index: usize,
    rest: Rest,
    /// The queue had packets since the thread last slept.
    active: bool,
    /// The last-flow cache of the queue.
    last_flow: LastFlow,
}

/// The queues that a round polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollScope {
    /// All queues; while other queues have packets, queues that had none recently are skipped.
    All,
    /// The queues that had packets since the thread last slept: an earlier round polled the others without success,
    /// and packets for them end the sleep.
    Active,
}

/// Maximum number of rounds for which a queue with few packets is skipped.
const REST_MAX: u32 = 8;
/// As many packets are few for a batch.
const FEW: usize = 4;
/// With more packets than that, a queue rests less.
const MANY: usize = 16;

/// When a queue is polled. Polling a device costs a system call, and a batch of few packets costs each of them more. So a
/// queue that had no packets while others had, or few while another one filled its batch, is skipped for some rounds. Before
/// the thread sleeps, it polls all queues.
#[derive(Debug, Default)]
struct Rest {
    /// The number of rounds for which the queue is skipped from now on, and the last such number.
    left: u32,
    rested: u32,
}

impl Rest {
    /// Returns true if the queue is skipped in this round. `largest` is the size of the largest batch of the last round.
    fn is_resting(&mut self, largest: usize) -> bool {
        if largest == 0 {
            *self = Self::default();
        }
        let rests = self.left > 0;
        self.left = self.left.saturating_sub(1);
        rests
    }

    /// Records the number of packets that a poll of the queue has found.
    fn polled(&mut self, found: usize, largest: usize) {
        let is_crowded = largest >= BATCH_MAX;
        self.rested = match found {
            0 if largest > 0 => self.longer(),
            1..=FEW if is_crowded => self.longer(),
            1..=MANY if is_crowded => self.rested,
            0..=MANY => 0,
            _ => self.rested / 2,
        };
        self.left = self.rested;
    }

    fn longer(&self) -> u32 {
        (self.rested * 2 + 1).min(REST_MAX)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(rx) = self.rx.take() {
            *self.receiver.handle.lock() = Some(rx);
        }
    }
}

impl Queue {
    /// Returns the handle. No other thread has it while this thread owns the queue.
    pub(crate) fn rx(&self) -> Option<&dyn Rx> {
        self.rx.as_deref()
    }
}

/// The result of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    /// Packets received.
    pub(crate) packets: usize,
    /// Nanoseconds in which the thread yielded the processor.
    pub(crate) waited_ns: u64,
}

/// The queues that had packets in a round, and the time at which their packets had been processed.
type Served = SmallVec<[(usize, Option<Instant>); 8]>;

/// The state of one packet thread.
pub(crate) struct Worker {
    pub(crate) shared: Arc<SharedState>,
    /// The thread's lane.
    pub(crate) lane: usize,
    /// The port table in use, and the queues in it that this thread owns.
    ports: Arc<PortTable>,
    pub(crate) queues: Vec<Queue>,
    /// The size of the largest batch of the last round.
    largest: usize,
    served: Served,
    forwarder: Forwarder,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("lane", &self.lane).finish_non_exhaustive()
    }
}

impl Worker {
    pub(crate) fn new(shared: Arc<SharedState>, lane: usize) -> Self {
        Self {
            shared,
            lane,
            ports: Arc::default(),
            queues: Vec::new(),
            largest: 0,
            served: Served::new(),
            forwarder: Forwarder::new(lane),
        }
    }

    /// Runs one round: at most one batch from each polled queue.
    ///
    /// `now` is the start of the round.
    pub(crate) fn round(&mut self, scope: PollScope, now: Instant) -> Round {
        self.sync();
        let _lane = crate::lane::enter(self.lane);
        let Self { shared, ports, queues, largest, served, forwarder, .. } = self;
        forwarder.begin(shared, now);
        served.clear();
        let (mut received, mut largest_now) = (0, 0);
        for (at, queue) in queues.iter_mut().enumerate() {
            if scope == PollScope::Active && !queue.active || queue.rest.is_resting(*largest) {
                continue;
            }
            let batch = forwarder.batch();
            receive(queue, batch);
            if queue.port.qos.is_policing() {
                queue.port.police(shared, batch);
            }
            queue.rest.polled(batch.len(), *largest);
            if !batch.is_empty() {
                queue.active = true;
                largest_now = largest_now.max(batch.len());
                received += batch.len();
                // The clock is read only if several queues share the round.
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
        *largest = largest_now;
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.packets, received as u64);
        bump_own(&counters.rounds, 1);
        Round { packets: received, waited_ns: forwarder.take_waited_ns() }
    }

    /// Charges the last round, which began at `since` and took `spent_ns` nanoseconds, to the queues that had packets
    /// in it. Each pays the processing time of its own packets, and a proportional share of the rest, which is mostly
    /// sending.
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

    /// Takes over the published port table, if it has changed.
    pub(crate) fn sync(&mut self) {
        if self.shared.is_current(&self.ports) {
            return;
        }
        let new = self.shared.ports.load_full();
        self.take_over(&new);
        self.ports = new;
        // The queues that the last round would be charged to are gone.
        self.served.clear();
        self.shared.acknowledge(self.lane, self.ports.version);
    }

    /// Releases queues that the thread no longer owns and takes those that it now owns, at changed ports only. Queues
    /// of other ports stay as they are.
    fn take_over(&mut self, new: &PortTable) {
        let old = Arc::clone(&self.ports);
        // The changed ports of which it owns queues, by their old values.
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
                    rest: Rest::default(),
                    active: false,
                    last_flow: LastFlow::default(),
                });
            }
        }
    }

    /// Records that the thread has slept.
    pub(crate) fn slept(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.active = false);
    }

    /// After a panic in the middle of a batch: counts the lost packets. (Some packets of the list of actions that
    /// panicked may have been sent.) Returns their number.
    pub(crate) fn count_lost(&mut self) -> usize {
        let n = self.forwarder.give_up();
        self.shared.count_drop(None, DropReason::TranslationError, n);
        n as usize
    }

    /// Polls queues again that rest after an error. Returns whether there are any.
    pub(crate) fn retry_broken(&self) -> bool {
        let broken = self.queues.iter().filter(|q| q.receiver.broken.swap(false, Ordering::Relaxed));
        broken.count() > 0
    }
}

/// Returns true if the thread of `lane` owns the queue.
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

    /// Maximum number of queues of a port.
    const QUEUES: u64 = 3;

    /// The rounds of 100 in which a queue is polled, if `found` packets arrive in each, beside a queue with batches of `largest`.
    fn polls(found: usize, largest: usize) -> usize {
        let (mut rest, mut waiting) = (Rest::default(), 0);
        let is_polled = |_: &usize| {
            waiting += found;
            let is_polled = !rest.is_resting(largest);
            if is_polled {
                rest.polled(std::mem::take(&mut waiting).min(BATCH_MAX), largest);
            }
            is_polled
        };
        (0..100).filter(is_polled).count()
    }

    #[test]
    fn a_queue_with_few_packets_waits_for_more_beside_a_full_one() {
        // Nothing else is there to do.
        assert_eq!([polls(0, 0), polls(1, 0)], [100, 100]);
        assert_eq!([polls(1, 1), polls(1, BATCH_MAX - 1), polls(BATCH_MAX, BATCH_MAX)], [100; 3]);
        // No packets, or few.
        assert!([polls(0, 1), polls(0, BATCH_MAX)].iter().all(|n| (11..15).contains(n)));
        assert_eq!([1, 2, 4, 5].map(|found| polls(found, BATCH_MAX)), [14, 26, 50, 100]);
    }

    #[test]
    fn a_thread_owns_its_assigned_queues_and_keeps_unchanged_ones() {
        let (mut rng, rounds) = (Rng::seeded(11), 2000);
        let shared = Arc::new(SharedState::new(Config::default(), Clock::stopped()));
        shared.lanes.make(1);
        let mut worker = Worker::new(Arc::clone(&shared), 1);
        let registry = Registry::new();
        for round in 0..rounds {
            // The table may change several times between two updates of the thread.
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
                        let mut port =
                            Port::open(PortId { number, since: table.version + 1 }, device, None).expect("opens");
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
            // Queues that stay keep their order and handles, and refer to the new value of their port.
            let stay: Vec<_> = before.iter().filter(|(port, index, _)| had.contains(&(*port, *index))).collect();
            assert!(after.iter().take(stay.len()).eq(stay));
            assert!(worker.queues.iter().all(|q| table.port(q.port.number).is_some_and(|p| Arc::ptr_eq(p, &q.port))));
        }
        tally::report!("{rounds} rounds");
    }
}
