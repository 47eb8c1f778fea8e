//! What one packet thread owns, and one round of its work: a batch from each of its queues in turn, looked up,
//! executed and sent.
//!
//! A worker is the same with and without a thread around it: [`crate::poll`] drives it as a thread,
//! [`crate::Datapath::run_once`] steps it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use base::DropReason;
use netdev::Rx;
use packet::Batch;
use packet::buf::BATCH_MAX;
use smallvec::SmallVec;

use crate::forward::Forwarder;
use crate::port::{Port, PortTable, Receiver};
use crate::shared::{Shared, bump_own};
use crate::usual::Usual;

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
    usual: Usual,
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
                forwarder.process(shared, ports, &queue.port, &mut queue.usual);
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
        self.queues.clear();
        self.forwarder.release();
        self.ports = self.shared.ports.load_full();
        for port in self.ports.iter() {
            let is_ours = |owner: Option<crate::port::Owner>| owner.is_some_and(|owner| owner.lane == self.lane);
            let ours = port.rx.iter().enumerate().filter(|(_, q)| is_ours(q.owner));
            self.queues.extend(ours.map(|(index, queue)| Queue {
                port: port.clone(),
                receiver: queue.receiver.clone(),
                rx: queue.receiver.handle.lock().take(),
                index,
                rest: 0,
                rested: 0,
                lively: false,
                usual: Usual::default(),
            }));
        }
        // What the last round charged to is gone.
        self.served.clear();
        self.shared.saw(self.lane, self.ports.version);
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
