//! Packets that no flow covers go up: through a queue for each port, bounded, which handler threads serve in turn.
//!
//! A packet thread puts packets into the queue of the port where they came in; when that is full it drops them and
//! counts the drop there. (While nothing waits, it answers single ones itself: [`here`].) Handler threads go round the
//! ports that have packets waiting and take a batch from one of them at a time, so that a port with many misses delays another's by no more than its own batch; and while a port offers far
//! more than it gets, others have seven turns for its one. A port is served by one
//! handler at a time: its packets keep their order among themselves. (A packet that finds the flow that an earlier one
//! has brought may overtake it; Open vSwitch's kernel datapath lets it, too.)
//!
//! A handler looks each packet up first: the answer to an earlier miss may cover it. What is left is translated, the
//! flow is remembered, and the packet takes its actions. No lock is held while the switch above thinks.
//!
//! Invariants: `ring` and `flooded` together name just the ports that have packets waiting and that nobody serves, each
//! once; `waiting` counts
//! the packets of all queues. A queue belongs to one life of a port: packets of a port that is gone are dropped, and
//! never taken for those of another that has its number.

pub(crate) mod here;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use base::{DpPort, DropReason, PortNo};
use dpif::{DpFlowStats, FlowId, Upcall, UpcallReply};
use flow::FlowKey;
use flow::extract::extract_into;
use netdev::pool;
use packet::{Batch, Packet};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::execute::Executor;
use crate::execute::recirculate::{Misses, key_of};
use crate::forward::hit;
use crate::output::Outputs;
use crate::port::PortId;
use crate::shared::{Gone, Shared, bump};

/// Packets that wait at a port at most.
pub(crate) const PORT_PACKETS_MAX: usize = 1024;
/// Packets that wait at all ports together at most, but for [`PORT_PACKETS_MIN`].
pub(crate) const PACKETS_MAX: usize = 16 * PORT_PACKETS_MAX;
/// Packets that may wait at a port, however many wait at others: a turn's, so that no number of ports with floods of
/// misses shuts out another one.
const PORT_PACKETS_MIN: usize = TURN;
/// Packets of a port that are served before it is another port's turn.
const TURN: usize = 32;
/// A port floods if its full queue has dropped more than this since its last turn: it offers four times what it gets.
const FLOOD: usize = 3 * TURN;
/// Turns of other ports for one of a port that floods, while both have packets waiting.
const CALM_TURNS: u32 = 7;

/// The queues of all ports.
#[derive(Debug, Default)]
pub(crate) struct Upcalls {
    state: Mutex<State>,
    /// There is something to be served, or to end for.
    work: Condvar,
    /// Nothing waits and nobody serves.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ports: BTreeMap<PortId, Queue>,
    ring: VecDeque<PortId>,
    /// The same, of ports that flood.
    flooded: VecDeque<PortId>,
    /// Turns of `ring` since the last one of `flooded`.
    calm_turns: u32,
    waiting: usize,
    /// Batches in work.
    serving: usize,
    /// Handlers asleep.
    asleep: usize,
    /// Handlers of this index and above end.
    n_handlers: usize,
    handlers: Vec<HandlerStats>,
    /// What packet threads answered.
    here: HandlerStats,
    /// Flows that left on packet threads, to be told of: that may wait for others.
    gone: Vec<(FlowId, DpFlowStats)>,
    /// A handler tells of such. Others go on with what waits.
    telling: bool,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Packet>,
    in_work: bool,
    /// Packets dropped, as it alone was full, since it was last put into a ring.
    overflow: usize,
    /// The port is gone.
    removed: bool,
    stats: PortUpcalls,
}

/// What went up from a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortUpcalls {
    /// Packets that wait now.
    pub waiting: u64,
    /// Most packets that ever waited.
    pub waiting_max: u64,
    /// Packets taken into the queue.
    pub queued: u64,
    /// Packets taken out of it to be served.
    pub served: u64,
    /// Packets dropped as the queue was full.
    pub dropped: u64,
}

/// What a handler thread has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandlerStats {
    /// Packets served.
    pub packets: u64,
    /// Batches that they came in.
    pub batches: u64,
    /// Nanoseconds that it took to serve them.
    pub busy_ns: u64,
    /// Panics of the switch above, each of which lost the rest of a batch.
    pub panics: u64,
}

/// What goes up, by port, and who serves it.
#[derive(Clone, Debug, Default)]
pub struct UpcallStats {
    /// Ports from which packets ever went up.
    pub ports: Vec<(DpPort, PortUpcalls)>,
    /// Handler threads; without threads, the caller of `run_once`.
    pub handlers: Vec<HandlerStats>,
    /// What packet threads answered themselves.
    pub here: HandlerStats,
}

/// Who answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asker {
    /// The handler of this number.
    Handler(usize),
    PacketThread,
}

impl State {
    /// Lets a port whose queue has packets have a turn.
    fn enter(&mut self, port: PortId) {
        let Some(queue) = self.ports.get_mut(&port) else { return };
        let floods = std::mem::take(&mut queue.overflow) > FLOOD;
        let ring = if floods { &mut self.flooded } else { &mut self.ring };
        ring.push_back(port);
    }

    /// Whether nothing waits to be done, and nobody does anything.
    fn is_quiet(&self) -> bool {
        self.serving == 0 && self.waiting == 0 && !self.telling && self.gone.is_empty()
    }

    /// Whether it is no port's turn.
    fn is_idle(&self) -> bool {
        self.ring.is_empty() && self.flooded.is_empty()
    }

    /// Whose turn it is.
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
}

impl Upcalls {
    /// Puts packets of `port` into its queue, as many as there is room for, and takes them out of `packets`. Returns
    /// how many were left, which counts as dropped unless it `may_retry` with them.
    pub(crate) fn queue(&self, port: PortId, packets: &mut Batch, may_retry: bool) -> usize {
        packets.iter_mut().for_each(pool::keep);
        let mut state = self.state.lock();
        let waiting = state.waiting;
        let queue = state.ports.entry(port).or_default();
        let own = queue.packets.len();
        let at_all = PACKETS_MAX.saturating_sub(waiting);
        let room = (PORT_PACKETS_MAX - own).min(at_all.max(PORT_PACKETS_MIN.saturating_sub(own)));
        let n = packets.len().min(room);
        let enters = n > 0 && own == 0 && !queue.in_work;
        let overflow = (own + packets.len()).saturating_sub(PORT_PACKETS_MAX);
        queue.packets.extend(packets.drain(..n));
        let left = packets.len();
        let stats = &mut queue.stats;
        stats.queued += n as u64;
        if !may_retry {
            queue.overflow += overflow;
            stats.dropped += left as u64;
        }
        stats.waiting_max = stats.waiting_max.max(queue.packets.len() as u64);
        state.waiting += n;
        if enters {
            state.enter(port);
        }
        let wake = state.asleep > 0 && !state.is_idle();
        drop(state);
        if wake {
            self.work.notify_one();
        }
        left
    }

    /// Takes the next batch that is to be served, if there is one.
    fn take(state: &mut State, batch: &mut Batch) -> Option<PortId> {
        let port = state.turn()?;
        let queue = state.ports.get_mut(&port)?;
        let n = queue.packets.len().min(TURN);
        batch.extend(queue.packets.drain(..n));
        queue.in_work = true;
        queue.stats.served += n as u64;
        state.waiting -= n;
        state.serving += 1;
        Some(port)
    }

    /// Says that a batch of `port` is done, and what was done for it by whom: it is another's turn.
    fn done(&self, port: PortId, by: Asker, did: HandlerStats) {
        let mut state = self.state.lock();
        state.serving -= 1;
        if let Some(queue) = state.ports.get_mut(&port) {
            queue.in_work = false;
            if by == Asker::PacketThread {
                queue.stats.queued += did.packets;
                queue.stats.served += did.packets;
            }
            if !queue.packets.is_empty() {
                state.enter(port);
            } else if queue.removed {
                state.ports.remove(&port);
            }
        }
        let n_handlers = state.n_handlers.max(1);
        let stats = match by {
            Asker::PacketThread => Some(&mut state.here),
            // One that was told to end while it served is not shown any more.
            Asker::Handler(handler) if handler >= n_handlers => None,
            Asker::Handler(handler) => {
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
        // A handler goes on with what waits by itself.
        if by == Asker::PacketThread && state.asleep > 0 && !state.is_idle() {
            drop(state);
            self.work.notify_one();
        }
    }

    /// Sets how many handler threads go on; those of a higher index end.
    pub(crate) fn set_handlers(&self, n: usize) {
        let mut state = self.state.lock();
        state.n_handlers = n;
        state.handlers.resize_with(n.max(1), HandlerStats::default);
        drop(state);
        self.work.notify_all();
    }

    /// Leaves it to a handler thread to tell that a flow is gone. `false` if there is none.
    pub(crate) fn leave_gone(&self, id: FlowId, stats: DpFlowStats) -> bool {
        let mut state = self.state.lock();
        if state.n_handlers == 0 {
            return false;
        }
        state.gone.push((id, stats));
        let wake = state.asleep > 0 && !state.telling;
        drop(state);
        if wake {
            self.work.notify_one();
        }
        true
    }

    /// Waits until nothing waits and nobody serves.
    pub(crate) fn wait_idle(&self) {
        let mut state = self.state.lock();
        while state.n_handlers > 0 && !state.is_quiet() {
            self.idle.wait(&mut state);
        }
    }

    /// Throws away what waits.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        for queue in state.ports.values_mut() {
            queue.packets.drain(..).for_each(pool::recycle);
        }
        state.ring.clear();
        state.flooded.clear();
        state.waiting = 0;
        self.idle.notify_all();
    }

    pub(crate) fn stats(&self) -> UpcallStats {
        let state = self.state.lock();
        let port = |(port, queue): (&PortId, &Queue)| {
            (port.number, PortUpcalls { waiting: queue.packets.len() as u64, ..queue.stats })
        };
        UpcallStats {
            ports: state.ports.iter().map(port).collect(),
            handlers: state.handlers.clone(),
            here: state.here,
        }
    }

    /// Forgets a port that is gone. Returns how many packets waited there.
    pub(crate) fn forget(&self, port: PortId) -> usize {
        let mut state = self.state.lock();
        let Some(queue) = state.ports.get_mut(&port) else { return 0 };
        let n = queue.packets.len();
        queue.packets.drain(..).for_each(pool::recycle);
        queue.removed = true;
        if !queue.in_work {
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

    /// Says that the port of packets that were taken to be served is gone, of which a packet thread had not heard yet.
    fn is_gone(&self, port: PortId) {
        if let Some(queue) = self.state.lock().ports.get_mut(&port) {
            queue.removed = true;
        }
    }
}

/// Who serves queues: a handler thread, or the caller of `run_once`.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    index: usize,
    outputs: Outputs,
    // Kept for their memory.
    batch: Batch,
    one: Batch,
    key: FlowKey,
}

impl Server {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        let outputs = Outputs::new(shared.caller_lane());
        Self { shared, index, outputs, batch: Batch::new(), one: Batch::new(), key: FlowKey::ZERO }
    }

    /// The life of a handler thread.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut state = shared.upcalls.state.lock();
            let port = loop {
                if self.index >= state.n_handlers {
                    // What it was woken for is another's now.
                    shared.upcalls.work.notify_one();
                    return;
                }
                if !state.telling && !state.gone.is_empty() {
                    self.tell_gone(&mut state);
                    continue;
                }
                if let Some(port) = Upcalls::take(&mut state, &mut self.batch) {
                    break port;
                }
                state.asleep += 1;
                shared.upcalls.work.wait(&mut state);
                state.asleep -= 1;
            };
            // One who puts packets there wakes a single handler.
            if state.asleep > 0 && !state.is_idle() {
                shared.upcalls.work.notify_one();
            }
            drop(state);
            self.serve(port);
        }
    }

    /// Tells of flows that left on packet threads.
    fn tell_gone(&self, state: &mut MutexGuard<'_, State>) {
        state.telling = true;
        let gone = std::mem::take(&mut state.gone);
        let tell = || gone.iter().for_each(|(id, stats)| self.shared.tell_gone(*id, *stats));
        let told = MutexGuard::unlocked(state, || catch_unwind(AssertUnwindSafe(tell)));
        state.telling = false;
        if told.is_err() {
            tracing::error!(handler = self.index, "the end of a flow panicked; that of others is not told");
            if let Some(stats) = state.handlers.get_mut(self.index) {
                stats.panics += 1;
            }
        }
        if state.is_quiet() {
            self.shared.upcalls.idle.notify_all();
        }
    }

    /// Serves all that waits, on the caller's thread.
    pub(crate) fn drain(&mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let taken = Upcalls::take(&mut shared.upcalls.state.lock(), &mut self.batch);
            let Some(port) = taken else { return };
            self.serve(port);
        }
    }

    /// Serves a batch of `port`.
    fn serve(&mut self, port: PortId) {
        let (packets, start) = (self.batch.len() as u64, Instant::now());
        let served = catch_unwind(AssertUnwindSafe(|| self.answer(port)));
        if served.is_err() {
            let lost = self.batch.len() as u64 + 1;
            self.shared.count_drop(None, DropReason::TranslationError, lost);
            bump(&self.shared.lanes[self.shared.caller_lane()].panics, 1);
            tracing::error!(handler = self.index, "a miss panicked; the rest of its batch is lost");
            pool::recycle_all(&mut self.batch);
            pool::recycle_all(&mut self.one);
        }
        let busy_ns = start.elapsed().as_nanos() as u64;
        let did = HandlerStats { packets, batches: 1, busy_ns, panics: u64::from(served.is_err()) };
        self.shared.upcalls.done(port, Asker::Handler(self.index), did);
    }

    fn answer(&mut self, id: PortId) {
        let shared = Arc::clone(&self.shared);
        let ports = shared.ports.load_full();
        let Some(port) = ports.port(id.number).filter(|p| p.id == id) else {
            shared.count_drop(None, DropReason::NoPort, self.batch.len() as u64);
            shared.upcalls.is_gone(id);
            return pool::recycle_all(&mut self.batch);
        };
        let lane = shared.caller_lane();
        let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
        let mut exec = Executor::new(&shared, &ports, id.number, Some(port), &mut self.outputs);
        self.batch.reverse();
        while let Some(packet) = self.batch.pop() {
            let again;
            let key = if packet.recirc_id == 0 {
                extract_into(&mut self.key, packet.data(), PortNo(id.number.0), vlans_max);
                &self.key
            } else {
                again = key_of(&packet, id.number, vlans_max);
                &again
            };
            exec.bare = packet.bare.is_some();
            match hit(&shared, lane, key, &packet) {
                Some(actions) => {
                    self.one.push(packet);
                    exec.run(&mut self.one, &actions);
                }
                None => miss(&mut exec, lane, key, packet, &mut self.one),
            }
            if !exec.again.is_empty() {
                exec.recirculate(lane, Misses::Ask);
            }
        }
        self.outputs.flush(&shared, &ports);
    }
}

/// Asks the handler about `packet`, remembers the flow that it answers with, and executes its actions.
/// `one` is an empty batch to work in.
pub(crate) fn miss(exec: &mut Executor<'_>, lane: usize, key: &FlowKey, packet: Packet, one: &mut Batch) {
    let (shared, counters) = (exec.shared, &exec.shared.lanes[lane]);
    let Some(handler) = shared.handler() else {
        bump(&counters.lost, 1);
        shared.count_drop(exec.from, DropReason::UpcallQueueFull, 1);
        pool::recycle(packet);
        return;
    };
    bump(&counters.missed, 1);
    let reply = handler.miss(Upcall { port: exec.in_port, key, packet: &packet });
    settle(exec, reply, packet, one, &|id, stats| handler.flow_gone(id, stats));
}

/// Remembers the flow that a miss was answered with, says by `gone` which left for it, and executes the actions. `one` is
/// an empty batch to work in.
fn settle(exec: &mut Executor<'_>, reply: UpcallReply, packet: Packet, one: &mut Batch, gone: Gone<'_>) {
    if let Some((id, flow)) = reply.install
        && !exec.shared.install(id, flow, gone)
    {
        // Whoever answered takes it for installed: it has left before it came.
        gone(id, DpFlowStats::default());
    }
    one.push(packet);
    exec.run(one, &reply.actions);
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn id(n: u32) -> PortId {
        PortId { number: DpPort(n), since: 1 }
    }

    fn packets(n: usize) -> Batch {
        vec![Packet::from_slice(&[0; 14]); n]
    }

    #[test]
    fn full_queues_do_not_shut_out_another() {
        let upcalls = Upcalls::default();
        let mut left = 0;
        for n in 0..40 {
            left += upcalls.queue(id(n), &mut packets(2000), false);
        }
        assert_eq!(40 * 2000 - left, PACKETS_MAX + 24 * PORT_PACKETS_MIN);
        assert_eq!(upcalls.queue(id(99), &mut packets(20), false), 0);
        assert_eq!(upcalls.queue(id(99), &mut packets(20), false), 8);
        assert_eq!(upcalls.queue(id(0), &mut packets(1), false), 1);
    }

    #[test]
    fn a_handler_that_was_let_go_while_it_served_is_not_shown() {
        let upcalls = Upcalls::default();
        upcalls.set_handlers(4);
        upcalls.queue(id(0), &mut packets(1), false);
        let port = Upcalls::take(&mut upcalls.state.lock(), &mut Batch::new()).expect("there is one");
        upcalls.set_handlers(1);
        upcalls.done(port, Asker::Handler(3), HandlerStats::default());
        assert_eq!(upcalls.stats().handlers.len(), 1);
        upcalls.wait_idle();
    }

    #[test]
    fn a_flood_leaves_others_most_turns() {
        let upcalls = Upcalls::default();
        let mut served = [0u32; 3];
        for _ in 0..1000 {
            upcalls.queue(id(0), &mut packets(PORT_PACKETS_MAX + 1), false);
            upcalls.queue(id(1), &mut packets(10), false);
            upcalls.queue(id(2), &mut packets(TURN), false);
            let mut batch = Batch::new();
            let port = Upcalls::take(&mut upcalls.state.lock(), &mut batch).expect("there is some");
            served[port.number.0 as usize] += 1;
            upcalls.done(port, Asker::Handler(0), HandlerStats::default());
        }
        assert!(served[0] >= 1000 / 8 && served[0] <= 1000 / 8 + 2, "{served:?}");
        assert!(served[1].abs_diff(served[2]) <= 2, "{served:?}");
        // Alone it has all turns.
        assert!((0..100).all(|_| {
            upcalls.forget(id(1));
            upcalls.forget(id(2));
            upcalls.queue(id(0), &mut packets(PORT_PACKETS_MAX + 1), false);
            let port = Upcalls::take(&mut upcalls.state.lock(), &mut Batch::new());
            port.inspect(|port| upcalls.done(*port, Asker::Handler(0), HandlerStats::default())) == Some(id(0))
        }));
    }

    #[test]
    fn queues_hold_what_a_list_holds() {
        let (upcalls, mut rng) = (Upcalls::default(), Rng::seeded(1));
        let (mut queued, mut served, mut dropped, mut forgotten) = (0, 0, 0, 0);
        let mut in_work = Vec::new();
        for _ in 0..20_000 {
            let port = id(rng.below(5) as u32);
            match rng.below(7) {
                0..3 => {
                    let n = rng.below(400) as usize;
                    let may_retry = rng.below(2) == 0;
                    let left = upcalls.queue(port, &mut packets(n), may_retry);
                    (queued, dropped) = (queued + n - left, dropped + if may_retry { 0 } else { left });
                }
                3..5 => {
                    let mut batch = Batch::new();
                    if let Some(port) = Upcalls::take(&mut upcalls.state.lock(), &mut batch) {
                        assert!((1..=TURN).contains(&batch.len()) && !in_work.contains(&port));
                        served += batch.len();
                        in_work.push(port);
                    }
                }
                5 if !in_work.is_empty() => {
                    let port = in_work.swap_remove(rng.below(in_work.len() as u64) as usize);
                    upcalls.done(port, Asker::Handler(0), HandlerStats::default());
                }
                _ if rng.below(50) == 0 => forgotten += upcalls.forget(port),
                _ => {}
            }
            let state = upcalls.state.lock();
            assert_eq!(state.waiting, state.ports.values().map(|q| q.packets.len()).sum::<usize>());
            assert_eq!(state.waiting, queued - served - forgotten);
            assert_eq!(state.serving, in_work.len());
            let ready = |(_, q): &(&PortId, &Queue)| !q.in_work && !q.packets.is_empty();
            let mut ring: Vec<PortId> = state.ring.iter().chain(&state.flooded).copied().collect();
            ring.sort();
            assert_eq!(ring, state.ports.iter().filter(ready).map(|(port, _)| *port).collect::<Vec<_>>());
        }
        assert!(dropped > 0 && forgotten > 0);
        let told: u64 = upcalls.stats().ports.iter().map(|(_, stats)| stats.dropped).sum();
        assert!(told > 0 && told <= dropped as u64, "{told} of {dropped}");
    }
}
