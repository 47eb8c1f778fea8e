//! Upcall queues: packets that missed all flows wait here until a handler thread serves them.
//!
//! A port has a queue for each packet thread that receives from it. One handler at a time serves a queue, so that its
//! packets keep their order; several handlers may serve several queues of a port. (A packet that matches the flow
//! installed for an earlier packet may overtake that packet, as in Open vSwitch's kernel datapath. If a queue is full, its
//! packet thread may handle newer packets itself; these overtake the waiting ones, too.)
//!
//! Handlers visit the ports with waiting packets in turn and take a batch from one queue at a time, so that a port with
//! many misses delays another port's misses by one batch only. While a port offers far more packets than handlers
//! serve, other ports get seven turns for each turn of that port.
//!
//! Invariants: `ring` and `flooded` together contain exactly the ports that have a queue with packets which no handler
//! is serving, each once; `waiting` counts the packets of all queues. Queues belong to one incarnation of a port: when
//! a port is removed, its packets are dropped, and never assigned to another port with the same number.

use dpif::{HandlerStats, PortUpcalls, UpcallStats};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dpif::{DpFlowStats, FlowId};
use netdev::pool;
use packet::{Batch, Packet};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::flows::Refused;
use crate::megaflow::Megaflow;
use crate::port::PortId;

/// Maximum number of packets that wait in a queue.
pub(crate) const QUEUE_PACKETS_MAX: usize = 1024;
/// Maximum number of packets that wait at a port. Its queues with waiting packets have equal shares of it, so that a
/// packet thread that rarely runs, as it shares its processor with a handler, finds room.
pub(crate) const PORT_PACKETS_MAX: usize = 4 * QUEUE_PACKETS_MAX;
/// Maximum number of packets that wait at all ports together, except for [`PORT_PACKETS_MIN`]: those of 16 full queues.
pub(crate) const PACKETS_MAX: usize = 16 * QUEUE_PACKETS_MAX;
/// Packets that may wait at a port regardless of other ports: those of one turn, so that ports flooded with misses
/// cannot starve another port.
pub(super) const PORT_PACKETS_MIN: usize = TURN;
/// Maximum number of packets of a queue that are served in a turn.
pub(super) const TURN: usize = 32;
/// A port floods if its full queues have dropped more packets than this since its last turn: it offers four times what
/// handlers serve.
const FLOOD: usize = 3 * TURN;
/// While so much work is deferred, packet threads leave misses to handlers.
const DEFERRED_MAX: usize = 32 * TURN;
/// Maximum number of flows that [`Upcalls::retry_installs`] tries.
const RETRIES_MAX: usize = TURN;
/// Turns of other ports for each turn of a flooding port, while both have waiting packets.
const CALM_TURNS: u32 = 7;

/// The queues of all ports.
#[derive(Debug, Default)]
pub(crate) struct Upcalls {
    pub(super) state: Mutex<State>,
    /// Signalled when a queue can be served, or a handler is to end.
    pub(super) work: Condvar,
    /// Signalled when no packet waits or is being served.
    pub(super) idle: Condvar,
}

/// A queue of a port, filled by one packet thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QueueId {
    pub(crate) port: PortId,
    pub(crate) lane: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    ports: BTreeMap<PortId, PortQueues>,
    /// Ports waiting for a turn.
    ring: VecDeque<PortId>,
    /// Flooding ports waiting for a turn.
    flooded: VecDeque<PortId>,
    /// Turns of `ring` since the last turn of `flooded`.
    calm_turns: u32,
    pub(super) waiting: usize,
    /// Number of batches that handlers are serving.
    serving: usize,
    /// Number of batches that packet threads are serving.
    serving_here: usize,
    /// Handlers asleep.
    pub(super) asleep: usize,
    /// Handlers with this index or above end.
    pub(super) n_handlers: usize,
    pub(super) handlers: Vec<HandlerStats>,
    /// Counters of misses that packet threads answered.
    here: HandlerStats,
    /// Work that packet threads left to handlers because it may block.
    pub(super) deferred: Vec<Deferred>,
    /// Flows that packet threads could not install because another thread held a lock, oldest first.
    postponed: VecDeque<Arc<Megaflow>>,
    /// Number of packet threads that are installing postponed flows.
    retrying: usize,
    /// True while a handler does deferred work. Other handlers continue to serve misses.
    is_deferred_in_work: bool,
}

/// Work that a packet thread leaves to a handler.
#[derive(Debug)]
pub(super) enum Deferred {
    /// Reports a flow that was removed.
    Gone(FlowId, DpFlowStats),
    /// Installs a flow.
    Install(Arc<Megaflow>),
}

/// The queues of a port.
#[derive(Debug, Default)]
struct PortQueues {
    /// One for each lane that has ever queued or handled misses of this port.
    lanes: Vec<LaneQueue>,
    /// The index at which the search for the next queue to serve begins.
    next: usize,
    /// Packets in all of them.
    waiting: usize,
    /// Whether the port is waiting for a turn.
    in_ring: bool,
    /// Packets dropped because the port's own queues were full, since it was last added to a ring.
    overflow: usize,
    /// The port was removed.
    removed: bool,
    stats: PortUpcalls,
}

#[derive(Debug, Default)]
struct LaneQueue {
    lane: usize,
    packets: VecDeque<Packet>,
    in_work: bool,
}

impl LaneQueue {
    fn is_ready(&self) -> bool {
        !self.in_work && !self.packets.is_empty()
    }
}

impl PortQueues {
    /// The queue of a lane, created if needed.
    fn lane(&mut self, lane: usize) -> &mut LaneQueue {
        let at = self.lanes.iter().position(|queue| queue.lane == lane).unwrap_or_else(|| {
            self.lanes.push(LaneQueue { lane, ..LaneQueue::default() });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }

    /// Returns how many packets more the port's own limits allow in the queue of `lane`.
    fn room(&mut self, lane: usize) -> usize {
        let own = self.lane(lane).packets.len();
        let others = self.lanes.iter().filter(|queue| queue.lane != lane && !queue.packets.is_empty()).count();
        let share = QUEUE_PACKETS_MAX.min(PORT_PACKETS_MAX / (others + 1));
        share.saturating_sub(own).min(PORT_PACKETS_MAX - self.waiting)
    }

    fn is_ready(&self) -> bool {
        self.lanes.iter().any(LaneQueue::is_ready)
    }

    fn is_in_work(&self) -> bool {
        self.lanes.iter().any(|queue| queue.in_work)
    }
}

/// The thread that served a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// The handler of this index.
    ByHandler(usize),
    /// A packet thread, while no packet waited.
    InlineWhenQuiet,
    /// A packet thread whose queue was full; a handler may serve the queue at the same time.
    InlineWhenFull,
}

impl State {
    /// Adds a port with waiting packets to a ring, unless it already waits for a turn.
    fn enter(&mut self, port: PortId) {
        let Some(queues) = self.ports.get_mut(&port) else { return };
        if std::mem::replace(&mut queues.in_ring, true) {
            return;
        }
        let floods = std::mem::take(&mut queues.overflow) > FLOOD;
        let ring = if floods { &mut self.flooded } else { &mut self.ring };
        ring.push_back(port);
    }

    /// Returns true if no packet waits or is being served, and no work is deferred.
    pub(super) fn is_quiet(&self) -> bool {
        let in_work = self.serving + self.serving_here + self.retrying;
        in_work + self.waiting + self.n_deferred() == 0 && !self.is_deferred_in_work
    }

    fn n_deferred(&self) -> usize {
        self.deferred.len() + self.postponed.len()
    }

    /// Returns true if there is deferred work for a handler. Packet threads that serve misses install postponed flows.
    pub(super) fn has_deferred(&self) -> bool {
        let n = if self.serving_here == 0 { self.n_deferred() } else { self.deferred.len() };
        !self.is_deferred_in_work && n > 0
    }

    /// Returns how many packets more fit into the queue of `lane` at `port`.
    fn room(&mut self, port: PortId, lane: usize) -> usize {
        let at_all = PACKETS_MAX.saturating_sub(self.waiting);
        let queues = self.ports.entry(port).or_default();
        queues.room(lane).min(at_all.max(PORT_PACKETS_MIN.saturating_sub(queues.waiting)))
    }

    /// Returns true if no port waits for a turn.
    pub(super) fn is_idle(&self) -> bool {
        self.ring.is_empty() && self.flooded.is_empty()
    }

    /// Returns true if there is something to do for a handler.
    fn has_work(&self) -> bool {
        !self.is_idle() || self.has_deferred()
    }

    /// The next port in turn.
    fn turn(&mut self) -> Option<PortId> {
        if self.flooded.is_empty() {
            return self.ring.pop_front();
        }
        if self.calm_turns < CALM_TURNS
            && let Some(port) = self.ring.pop_front()
        {
            self.calm_turns += 1;
            return Some(port);
        }
        self.calm_turns = 0;
        self.flooded.pop_front()
    }

    /// Moves the next batch to serve into `batch`, and returns its queue; `None` if no queue can be served.
    pub(super) fn take(&mut self, batch: &mut Batch) -> Option<QueueId> {
        let port = self.turn()?;
        let queues = self.ports.get_mut(&port)?;
        queues.in_ring = false;
        let n_lanes = queues.lanes.len();
        let at = (0..n_lanes).map(|i| (queues.next + i) % n_lanes).find(|at| queues.lanes[*at].is_ready())?;
        queues.next = at + 1;
        let queue = &mut queues.lanes[at];
        let n = queue.packets.len().min(TURN);
        batch.extend(queue.packets.drain(..n));
        queue.in_work = true;
        let lane = queue.lane;
        queues.stats.served += n as u64;
        queues.waiting -= n;
        if queues.is_ready() {
            self.enter(port);
        }
        self.waiting -= n;
        self.serving += 1;
        Some(QueueId { port, lane })
    }
}

impl Upcalls {
    /// Queues packets that `lane` received on `port`, up to the limits, and removes them from `packets`. Returns the
    /// number of packets left; they count as dropped unless the caller `may_retry`.
    pub(crate) fn queue(&self, port: PortId, lane: usize, packets: &mut Batch, may_retry: bool) -> usize {
        packets.iter_mut().for_each(pool::keep);
        let mut state = self.state.lock();
        let n = packets.len().min(state.room(port, lane));
        let queues = state.ports.entry(port).or_default();
        let overflow = if n < packets.len() { packets.len().saturating_sub(queues.room(lane)) } else { 0 };
        queues.waiting += n;
        let queue = queues.lane(lane);
        queue.packets.extend(packets.drain(..n));
        let is_ready = queue.is_ready();
        let left = packets.len();
        queues.stats.queued += n as u64;
        if !may_retry {
            queues.overflow += overflow;
            queues.stats.dropped += left as u64;
        }
        queues.stats.waiting_max = queues.stats.waiting_max.max(queues.waiting as u64);
        state.waiting += n;
        if is_ready {
            state.enter(port);
        }
        let wake = state.asleep > 0 && !state.is_idle();
        drop(state);
        if wake {
            self.work.notify_one();
        }
        left
    }

    /// Returns true if a packet thread may serve the misses of its queue itself: if there are handlers for other
    /// misses, no packet waits, and no handler is active, so that waking a handler would cost more than the reply. The
    /// caller must then call [`Upcalls::done`].
    pub(super) fn begin_if_quiet(&self, QueueId { port, lane }: QueueId) -> bool {
        let mut state = self.state.lock();
        if state.n_handlers == 0 || state.waiting > 0 || state.serving > 0 {
            return false;
        }
        state.ports.entry(port).or_default().lane(lane).in_work = true;
        state.serving_here += 1;
        true
    }

    /// Returns true if a packet thread may serve `n` misses itself: if they do not fit into its queue, and there are
    /// handlers, which are not behind with deferred work. The caller must then call [`Upcalls::done`].
    pub(super) fn begin_if_full(&self, QueueId { port, lane }: QueueId, n: usize) -> bool {
        let mut state = self.state.lock();
        if state.n_handlers == 0 || state.n_deferred() >= DEFERRED_MAX || state.room(port, lane) >= n {
            return false;
        }
        state.serving_here += 1;
        true
    }

    /// Ends the service of a batch of `queue`, and adds `did` to the counters.
    pub(super) fn done(&self, QueueId { port, lane }: QueueId, by: Served, did: HandlerStats) {
        let mut state = self.state.lock();
        match by {
            Served::ByHandler(_) => state.serving -= 1,
            Served::InlineWhenQuiet | Served::InlineWhenFull => state.serving_here -= 1,
        }
        if let Some(queues) = state.ports.get_mut(&port) {
            if !matches!(by, Served::ByHandler(_)) {
                queues.stats.queued += did.packets;
                queues.stats.served += did.packets;
            }
            let queue = queues.lane(lane);
            if by != Served::InlineWhenFull {
                queue.in_work = false;
            }
            if queue.is_ready() {
                state.enter(port);
            } else if queues.removed && queues.waiting == 0 && !queues.is_in_work() {
                state.ports.remove(&port);
            }
        }
        let n_handlers = state.n_handlers.max(1);
        let stats = match by {
            Served::InlineWhenQuiet | Served::InlineWhenFull => Some(&mut state.here),
            // A handler that is about to end has no counters any more.
            Served::ByHandler(handler) if handler >= n_handlers => None,
            Served::ByHandler(handler) => {
                if state.handlers.len() <= handler {
                    state.handlers.resize_with(handler + 1, HandlerStats::default);
                }
                state.handlers.get_mut(handler)
            }
        };
        if let Some(stats) = stats {
            stats.batches += did.batches;
            stats.packets += did.packets;
            stats.busy_ns += did.busy_ns;
            stats.panics += did.panics;
        }
        if state.is_quiet() {
            self.idle.notify_all();
        }
        // A handler continues with the next turn by itself.
        if !matches!(by, Served::ByHandler(_)) && state.asleep > 0 && state.has_work() {
            drop(state);
            self.work.notify_one();
        }
    }

    /// Sets the number of handler threads; handlers of a higher index end.
    pub(crate) fn set_handlers(&self, n: usize) {
        let mut state = self.state.lock();
        state.n_handlers = n;
        state.handlers.resize_with(n.max(1), HandlerStats::default);
        drop(state);
        self.work.notify_all();
    }

    /// Defers reporting a removed flow to a handler thread. Returns false if there is no handler.
    pub(crate) fn defer_gone(&self, id: FlowId, stats: DpFlowStats) -> bool {
        self.defer(Deferred::Gone(id, stats)).is_ok()
    }

    /// Defers the installation of a flow: [`Upcalls::retry_installs`] tries it again if another thread held a lock, and a
    /// handler installs any other one. Returns the flow as an error if there is no handler. The caller is between
    /// [`Upcalls::begin_if_quiet`] or [`Upcalls::begin_if_full`] and [`Upcalls::done`], which wakes a handler.
    pub(crate) fn defer_install(&self, refused: Refused) -> Result<(), Arc<Megaflow>> {
        let mut state = self.state.lock();
        debug_assert!(state.serving_here > 0, "nothing would wake a handler");
        match refused {
            Refused::Busy(flow) | Refused::MustWait(flow) if state.n_handlers == 0 => return Err(flow),
            Refused::Busy(flow) => state.postponed.push_back(flow),
            Refused::MustWait(flow) => state.deferred.push(Deferred::Install(flow)),
        }
        Ok(())
    }

    /// Passes some of the postponed flows to `install`, up to the first for which another thread holds a lock again. (Waking
    /// a handler for them would take processor time from packet threads.)
    pub(super) fn retry_installs(&self, install: impl Fn(Arc<Megaflow>) -> Result<(), Refused>) {
        /// Ends the work, even by a panic.
        struct Retrying<'a, 's>(&'a mut MutexGuard<'s, State>);
        impl Drop for Retrying<'_, '_> {
            fn drop(&mut self) {
                self.0.retrying -= 1;
            }
        }
        let mut state = self.state.lock();
        if state.postponed.is_empty() {
            return;
        }
        let n = state.postponed.len().min(RETRIES_MAX);
        let mut flows: VecDeque<_> = state.postponed.drain(..n).collect();
        let mut must_wait = Vec::new();
        state.retrying += 1;
        let Retrying(state) = &mut Retrying(&mut state);
        MutexGuard::unlocked(state, || {
            while let Some(flow) = flows.pop_front() {
                match install(flow) {
                    Ok(()) => {}
                    Err(Refused::MustWait(flow)) => must_wait.push(Deferred::Install(flow)),
                    Err(Refused::Busy(flow)) => return flows.push_front(flow),
                }
            }
        });
        state.deferred.append(&mut must_wait);
        flows.into_iter().rev().for_each(|flow| state.postponed.push_front(flow));
    }

    fn defer(&self, work: Deferred) -> Result<(), Deferred> {
        let mut state = self.state.lock();
        if state.n_handlers == 0 {
            return Err(work);
        }
        state.deferred.push(work);
        let wake = state.asleep > 0 && !state.is_deferred_in_work;
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Waits until no packet waits or is being served, and no work is deferred.
    pub(crate) fn wait_idle(&self) {
        let mut state = self.state.lock();
        while state.n_handlers > 0 && !state.is_quiet() {
            self.idle.wait(&mut state);
        }
    }

    /// Drops all waiting packets.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        for queues in state.ports.values_mut() {
            queues.lanes.iter_mut().for_each(|queue| queue.packets.drain(..).for_each(pool::recycle));
            (queues.waiting, queues.in_ring) = (0, false);
        }
        state.ring.clear();
        state.flooded.clear();
        state.waiting = 0;
        self.idle.notify_all();
    }

    pub(crate) fn stats(&self) -> UpcallStats {
        let state = self.state.lock();
        let port = |(port, queues): (&PortId, &PortQueues)| {
            (port.number, PortUpcalls { waiting: queues.waiting as u64, ..queues.stats })
        };
        UpcallStats {
            ports: state.ports.iter().map(port).collect(),
            handlers: state.handlers.clone(),
            here: state.here,
        }
    }

    /// Drops the packets of a removed port. Returns how many there were.
    pub(crate) fn forget(&self, port: PortId) -> usize {
        let mut state = self.state.lock();
        let Some(queues) = state.ports.get_mut(&port) else { return 0 };
        let n = std::mem::take(&mut queues.waiting);
        queues.lanes.iter_mut().for_each(|queue| queue.packets.drain(..).for_each(pool::recycle));
        (queues.removed, queues.in_ring) = (true, false);
        if !queues.is_in_work() {
            state.ports.remove(&port);
        }
        state.ring.retain(|p| *p != port);
        state.flooded.retain(|p| *p != port);
        state.waiting -= n;
        if state.is_quiet() {
            self.idle.notify_all();
        }
        n
    }

    /// Marks a port as removed while a handler serves its packets, which a packet thread queued before it saw the new
    /// port table.
    pub(super) fn is_gone(&self, port: PortId) {
        if let Some(queues) = self.state.lock().ports.get_mut(&port) {
            queues.removed = true;
        }
    }

    /// Takes the deferred work for a handler and passes it to `work`, which must not panic, without holding the lock of
    /// `state`.
    pub(super) fn do_deferred<R>(&self, state: &mut MutexGuard<'_, State>, work: impl FnOnce(Vec<Deferred>) -> R) -> R {
        let mut all = std::mem::take(&mut state.deferred);
        if state.serving_here == 0 {
            all.extend(state.postponed.drain(..).map(Deferred::Install));
        }
        state.is_deferred_in_work = true;
        let result = MutexGuard::unlocked(state, || work(all));
        state.is_deferred_in_work = false;
        if state.is_quiet() {
            self.idle.notify_all();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DpPort;
    use base::rng::Rng;

    const LANE: usize = 1;

    fn id(n: u32) -> PortId {
        PortId { number: DpPort(n), since: 1 }
    }

    fn packets(n: usize) -> Batch {
        vec![Packet::from_slice(&[0; 14]); n]
    }

    fn take(upcalls: &Upcalls) -> Option<(QueueId, usize)> {
        let mut batch = Batch::new();
        let queue = upcalls.state.lock().take(&mut batch);
        queue.map(|queue| (queue, batch.len()))
    }

    fn done(upcalls: &Upcalls, queue: QueueId) {
        upcalls.done(queue, Served::ByHandler(0), HandlerStats::default());
    }

    #[test]
    fn full_queues_do_not_starve_another() {
        let upcalls = Upcalls::default();
        let mut left = 0;
        for n in 0..40 {
            left += upcalls.queue(id(n), LANE, &mut packets(2000), false);
        }
        assert_eq!(40 * 2000 - left, PACKETS_MAX + 24 * PORT_PACKETS_MIN);
        assert_eq!(upcalls.queue(id(99), LANE, &mut packets(20), false), 0);
        assert_eq!(upcalls.queue(id(99), LANE, &mut packets(20), false), 8);
        assert_eq!(upcalls.queue(id(0), LANE, &mut packets(1), false), 1);
    }

    #[test]
    fn a_full_queue_leaves_room_for_other_queues_of_its_port() {
        let upcalls = Upcalls::default();
        assert_eq!(upcalls.queue(id(0), 1, &mut packets(2000), false), 2000 - QUEUE_PACKETS_MAX);
        assert_eq!(upcalls.queue(id(0), 2, &mut packets(2000), false), 2000 - QUEUE_PACKETS_MAX);
        for lane in 3..=16 {
            upcalls.queue(id(0), lane, &mut packets(2000), false);
        }
        assert_eq!(upcalls.stats().ports[0].1.waiting as usize, PORT_PACKETS_MAX);
        // After some turns of the first queues, another one finds room, and their shares are smaller.
        (0..16).for_each(|_| take(&upcalls).iter().for_each(|(queue, _)| done(&upcalls, *queue)));
        assert_eq!(upcalls.queue(id(0), 16, &mut packets(2 * TURN), false), 0);
        assert_eq!(upcalls.queue(id(0), 1, &mut packets(1), false), 1);
        // A queue that was used in the past takes no share.
        upcalls.clear();
        assert_eq!(upcalls.queue(id(0), 5, &mut packets(2000), false), 2000 - QUEUE_PACKETS_MAX);
    }

    /// The ids of deferred flows, and of flows to try again.
    fn deferred(upcalls: &Upcalls) -> (Vec<u64>, Vec<u64>) {
        let state = upcalls.state.lock();
        let id = |work: &Deferred| match work {
            Deferred::Install(flow) => flow.id.0,
            Deferred::Gone(id, _) => id.0,
        };
        (state.deferred.iter().map(id).collect(), state.postponed.iter().map(|flow| flow.id.0).collect())
    }

    #[test]
    fn postponed_flows_are_tried_again_in_order() {
        let upcalls = Upcalls::default();
        let empty = dpif::DpFlow::new(&flow::FlowKey::ZERO, &[], Arc::new([]), 0);
        let flow = |id| Arc::new(Megaflow::new(FlowId(id), empty.clone()));
        upcalls.set_handlers(1);
        assert!(upcalls.begin_if_quiet(QueueId { port: id(0), lane: LANE }));
        (1..=4).for_each(|id| assert!(upcalls.defer_install(Refused::Busy(flow(id))).is_ok()));
        assert!(upcalls.defer_install(Refused::MustWait(flow(5))).is_ok());
        assert!(upcalls.defer_gone(FlowId(6), DpFlowStats::default()));
        upcalls.retry_installs(|flow| {
            let mut state = upcalls.state.lock();
            let postponed = std::mem::take(&mut state.postponed);
            let deferred = std::mem::take(&mut state.deferred);
            let serving_here = std::mem::take(&mut state.serving_here);
            assert!(!state.is_quiet() && !state.has_work(), "while a flow is tried");
            (state.postponed, state.deferred, state.serving_here) = (postponed, deferred, serving_here);
            drop(state);
            match flow.id.0 {
                1 => Ok(()),
                2 => Err(Refused::MustWait(flow)),
                _ => Err(Refused::Busy(flow)),
            }
        });
        assert_eq!(deferred(&upcalls), (vec![5, 6, 2], vec![3, 4]));
        assert!(upcalls.state.lock().has_work(), "a handler does the rest");
        let panics = std::panic::AssertUnwindSafe(|| upcalls.retry_installs(|_| panic!("as a test")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(
            deferred(&upcalls),
            (vec![5, 6, 2], vec![]),
            "postponed flows are lost by a panic, other work is not"
        );
        assert!(upcalls.defer_install(Refused::Busy(flow(7))).is_ok());
        upcalls.do_deferred(&mut upcalls.state.lock(), |all| assert_eq!(all.len(), 3, "without postponed flows"));
        assert!(!upcalls.state.lock().has_work(), "the packet thread installs the postponed flow");
        upcalls.set_handlers(0);
        assert!(upcalls.defer_install(Refused::Busy(flow(8))).is_err(), "there are no handlers");
        upcalls.done(QueueId { port: id(0), lane: LANE }, Served::InlineWhenQuiet, HandlerStats::default());
        assert!(upcalls.state.lock().has_work(), "no packet thread serves any more");
        upcalls.do_deferred(&mut upcalls.state.lock(), |all| assert_eq!(all.len(), 1));
        assert!(upcalls.state.lock().is_quiet());
    }

    #[test]
    fn a_removed_port_is_forgotten_after_its_packet_thread_served_misses() {
        let upcalls = Upcalls::default();
        upcalls.set_handlers(1);
        let queue = QueueId { port: id(0), lane: LANE };
        upcalls.queue(id(0), LANE, &mut packets(QUEUE_PACKETS_MAX), false);
        assert!(upcalls.begin_if_full(queue, 1));
        assert_eq!(upcalls.forget(id(0)), QUEUE_PACKETS_MAX);
        upcalls.done(queue, Served::InlineWhenFull, HandlerStats { packets: 1, ..HandlerStats::default() });
        assert!(upcalls.state.lock().is_quiet() && upcalls.stats().ports.is_empty());
    }

    #[test]
    fn an_ending_handler_has_no_counters() {
        let upcalls = Upcalls::default();
        upcalls.set_handlers(4);
        upcalls.queue(id(0), LANE, &mut packets(1), false);
        let (queue, _) = take(&upcalls).expect("there is one");
        upcalls.set_handlers(1);
        upcalls.done(queue, Served::ByHandler(3), HandlerStats::default());
        assert_eq!(upcalls.stats().handlers.len(), 1);
        upcalls.wait_idle();
    }

    #[test]
    fn other_ports_get_most_turns_during_a_flood() {
        let upcalls = Upcalls::default();
        let mut served = [0u32; 3];
        for _ in 0..1000 {
            upcalls.queue(id(0), LANE, &mut packets(QUEUE_PACKETS_MAX + 1), false);
            upcalls.queue(id(1), LANE, &mut packets(10), false);
            upcalls.queue(id(2), LANE, &mut packets(TURN), false);
            let (queue, _) = take(&upcalls).expect("there is some");
            served[queue.port.number.0 as usize] += 1;
            done(&upcalls, queue);
        }
        assert!(served[0] >= 1000 / 8 && served[0] <= 1000 / 8 + 2, "{served:?}");
        assert!(served[1].abs_diff(served[2]) <= 2, "{served:?}");
        // Without other ports, it gets all turns.
        assert!((0..100).all(|_| {
            upcalls.forget(id(1));
            upcalls.forget(id(2));
            upcalls.queue(id(0), LANE, &mut packets(QUEUE_PACKETS_MAX + 1), false);
            let taken = take(&upcalls);
            taken.inspect(|(queue, _)| done(&upcalls, *queue)).is_some_and(|(queue, _)| queue.port == id(0))
        }));
    }

    #[test]
    fn lanes_of_a_port_share_its_turns_among_handlers() {
        let upcalls = Upcalls::default();
        for lane in 1..=4 {
            upcalls.queue(id(0), lane, &mut packets(2 * TURN), false);
        }
        upcalls.queue(id(1), 1, &mut packets(4 * TURN), false);
        let taken: Vec<_> = (0..5).filter_map(|_| take(&upcalls)).map(|(queue, _)| queue).collect();
        let lanes = |port| taken.iter().filter(|q| q.port == id(port)).map(|q| q.lane).collect::<Vec<_>>();
        assert_eq!((lanes(0), lanes(1)), (vec![1, 2, 3, 4], vec![1]));
        assert_eq!(take(&upcalls), None, "each queue is served by one handler at a time");
        taken.iter().for_each(|queue| done(&upcalls, *queue));
        let next: Vec<_> = (0..2).filter_map(|_| take(&upcalls)).map(|(queue, _)| queue.port).collect();
        assert_eq!(next.iter().map(|port| port.number.0).collect::<std::collections::BTreeSet<_>>(), [0, 1].into());
    }

    #[test]
    fn queues_agree_with_a_list() {
        let (upcalls, mut rng) = (Upcalls::default(), Rng::seeded(1));
        let (mut queued, mut served, mut dropped, mut forgotten) = (0, 0, 0, 0);
        upcalls.set_handlers(1);
        let mut in_work: Vec<(QueueId, Served)> = Vec::new();
        let mut inline = [0; 2];
        for _ in 0..40_000 {
            let (port, lane) = (id(rng.below(5) as u32), rng.below(6) as usize);
            match rng.below(9) {
                0..3 => {
                    let n = rng.below(400) as usize;
                    let may_retry = rng.below(2) == 0;
                    let left = upcalls.queue(port, lane, &mut packets(n), may_retry);
                    (queued, dropped) = (queued + n - left, dropped + if may_retry { 0 } else { left });
                }
                3..5 => {
                    if let Some((queue, n)) = take(&upcalls) {
                        let is_locked =
                            |(other, by): &(QueueId, Served)| *other == queue && *by != Served::InlineWhenFull;
                        assert!((1..=TURN).contains(&n) && !in_work.iter().any(is_locked));
                        served += n;
                        in_work.push((queue, Served::ByHandler(0)));
                    }
                }
                5..7 if !in_work.is_empty() => {
                    let (queue, by) = in_work.swap_remove(rng.below(in_work.len() as u64) as usize);
                    upcalls.done(queue, by, HandlerStats { packets: 1, ..HandlerStats::default() });
                }
                // A packet thread serves one batch at a time.
                7 if in_work.iter().all(|(queue, by)| queue.lane != lane || *by == Served::ByHandler(0)) => {
                    let queue = QueueId { port, lane };
                    let (is_quiet, n) = (upcalls.state.lock().waiting == 0, 1 + rng.below(32) as usize);
                    if upcalls.begin_if_quiet(queue) {
                        assert!(is_quiet && in_work.iter().all(|(_, by)| *by != Served::ByHandler(0)));
                        inline[0] += 1;
                        in_work.push((queue, Served::InlineWhenQuiet));
                    } else if upcalls.begin_if_full(queue, n) {
                        inline[1] += 1;
                        in_work.push((queue, Served::InlineWhenFull));
                        let left = upcalls.queue(port, lane, &mut packets(n), true);
                        assert!(left > 0, "they did not fit");
                        queued += n - left;
                    }
                }
                _ if rng.below(50) == 0 => forgotten += upcalls.forget(port),
                _ if rng.below(50) == 0 => {
                    forgotten += upcalls.state.lock().waiting;
                    upcalls.clear();
                    in_work.drain(..).for_each(|(queue, by)| upcalls.done(queue, by, HandlerStats::default()));
                    if upcalls.begin_if_quiet(QueueId { port, lane }) {
                        inline[0] += 1;
                        in_work.push((QueueId { port, lane }, Served::InlineWhenQuiet));
                    }
                }
                _ => {}
            }
            let state = upcalls.state.lock();
            let in_queues = |q: &PortQueues| q.lanes.iter().map(|lane| lane.packets.len()).sum::<usize>();
            assert!(state.ports.values().all(|q| q.waiting == in_queues(q)));
            assert_eq!(state.waiting, state.ports.values().map(in_queues).sum::<usize>());
            assert_eq!(state.waiting, queued - served - forgotten);
            let by_handlers = in_work.iter().filter(|(_, by)| *by == Served::ByHandler(0)).count();
            assert_eq!((state.serving, state.serving_here), (by_handlers, in_work.len() - by_handlers));
            let in_queue = |queue: &LaneQueue| queue.packets.len() <= QUEUE_PACKETS_MAX;
            assert!(state.ports.values().all(|q| q.waiting <= PORT_PACKETS_MAX && q.lanes.iter().all(in_queue)));
            let mut ring: Vec<PortId> = state.ring.iter().chain(&state.flooded).copied().collect();
            ring.sort();
            let ready = state.ports.iter().filter(|(_, queues)| queues.is_ready()).map(|(port, _)| *port);
            assert_eq!(ring, ready.collect::<Vec<_>>());
            assert!(state.ports.iter().all(|(port, queues)| queues.in_ring == ring.contains(port)));
        }
        assert!(dropped > 0 && forgotten > 0 && inline.iter().all(|n| *n > 20), "{inline:?}");
        let counted: u64 = upcalls.stats().ports.iter().map(|(_, stats)| stats.dropped).sum();
        assert!(counted > 0 && counted <= dropped as u64, "{counted} of {dropped}");
    }
}
