//! Forwarding of a batch: looks up its flows, counts its packets, executes packets of the same flow together, and
//! hands misses to upcalls.
//!
//! All packets take this path, in each of their passes: packets that a port received ([`Forwarder::process`]),
//! packets that waited for an upcall ([`Forwarder::answer`]), packets that a caller sends with actions of its own
//! ([`Forwarder::execute`]), and packets that any of them recirculated ([`Worklist`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use base::{DpPort, DropReason, Millis};
use dpif::{DpActions, Upcall};
use flow::FlowKey;
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use smallvec::SmallVec;
use tunnel::header::Hit;

use crate::execute::{Context, Executor, recirculate};
use crate::group::{Adds, Groups, Held, Todo};
use crate::input::{self, Key, Keys};
use crate::last_flow::LastFlow;
use crate::megaflow::{Found, Megaflow};
use crate::microflow::{CachePolicy, Chance, MicroflowCache};
use crate::output::Outputs;
use crate::port::{Port, PortTable};
use crate::shared::{CALLER_LANE, LaneCounters, SharedState, bump, bump_own, counter_of};
use crate::shortcut::{Follower, Hints, Passage};
use crate::tunnel_hints::TunnelHints;
use crate::upcall::{here, settle};
use crate::worklist::Worklist;

mod known;

/// The last-flow cache records the flow of a batch of at least this number of packets.
const LAST_FLOW_MIN: usize = 8;

/// The handling of packets that no flow covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Misses {
    /// This thread handles them if that does not block; otherwise they are queued at their port.
    Queue,
    /// This thread handles them at once, however long that takes.
    Inline,
}

/// The state of a thread that forwards batches.
#[derive(Debug)]
pub(crate) struct Forwarder {
    /// The thread's lane.
    lane: usize,
    outputs: Outputs,
    work: Worklist,
    /// The start of the round.
    now: Millis,
    microflows: MicroflowCache,
    chance: Chance,
    policy: CachePolicy,
    hints: Hints,
    passage: Passage,
    /// Packets since the last self-check.
    unchecked: u64,
    /// Nanoseconds in which this thread yielded the processor, as it could not continue.
    waited_ns: u64,
    /// Packets of the current batch whose actions have not run yet.
    unsettled: usize,
    // Empty buffers, kept for their memory.
    batch: Batch,
    keys: Box<Keys>,
    /// If not zero: the number of packets of the worklist's next batch, whose keys are in `keys` except for hash
    /// and recirculation id.
    keys_kept: usize,
    /// Packets by list of actions.
    lists: Vec<Batch>,
    held: Held,
    misses: Batch,
    /// Bitmap of the positions of these packets in the batch.
    missed: u32,
    one: Batch,
    tunnel_hints: TunnelHints,
    /// Packets that left tunnels and that no hint covers, and their outer headers.
    rest: Batch,
    rest_hits: Vec<Hit>,
    pace: here::Pace,
}

impl Forwarder {
    /// A forwarder for the packet thread of a lane.
    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            outputs: Outputs::new(lane),
            work: Worklist::default(),
            now: Millis::default(),
            microflows: MicroflowCache::new(),
            chance: Chance::new(),
            policy: CachePolicy::default(),
            hints: Hints::default(),
            passage: Passage::default(),
            unchecked: 0,
            waited_ns: 0,
            unsettled: 0,
            batch: Batch::new(),
            keys: Box::new(Keys::new()),
            keys_kept: 0,
            lists: Vec::new(),
            held: Held::default(),
            misses: Batch::new(),
            missed: 0,
            one: Batch::new(),
            tunnel_hints: TunnelHints::default(),
            rest: Batch::new(),
            rest_hits: Vec::new(),
            pace: here::Pace::default(),
        }
    }

    /// A forwarder for a thread that is no packet thread. It has no microflow cache.
    pub(crate) fn for_caller() -> Self {
        let mut forwarder = Self::new(CALLER_LANE);
        forwarder.chance.set_inverse_probability(0);
        forwarder
    }

    /// Begins a round: reads the configuration and the time.
    pub(crate) fn begin(&mut self, shared: &SharedState, now: Instant) {
        self.now = shared.clock.at(now);
        if self.chance.set_inverse_probability(shared.inverse_probability.load(Ordering::Relaxed)) {
            self.microflows.clear();
            self.policy = CachePolicy::default();
        }
    }

    /// Returns the empty batch that the caller fills for [`Forwarder::process`].
    pub(crate) fn batch(&mut self) -> &mut Batch {
        pool::recycle_all(&mut self.batch);
        &mut self.batch
    }

    /// Returns the nanoseconds in which this thread yielded the processor since the last call.
    pub(crate) fn take_waited_ns(&mut self) -> u64 {
        std::mem::take(&mut self.waited_ns)
    }

    /// Drops the current batch and what it recirculated. Returns the number of packets whose actions had not run.
    pub(crate) fn give_up(&mut self) -> u64 {
        [&mut self.batch, &mut self.misses, &mut self.one, &mut self.rest]
            .into_iter()
            .chain(&mut self.lists)
            .for_each(pool::recycle_all);
        self.passage.give_up();
        self.keys_kept = 0;
        self.rest_hits.clear();
        (std::mem::take(&mut self.unsettled) + self.work.clear()) as u64
    }

    /// Releases the transmit queue of a removed port, before another port table is taken over.
    pub(crate) fn release(&mut self, port: DpPort) {
        self.outputs.release(port);
    }

    /// Sends the packets that processing has gathered.
    pub(crate) fn flush(&mut self, shared: &SharedState, ports: &PortTable) {
        self.outputs.flush(shared, ports);
    }

    /// Forwards the packets of the batch, which `port` received. `last_flow` belongs to the receive queue.
    pub(crate) fn process(&mut self, shared: &SharedState, ports: &PortTable, port: &Port, last_flow: &mut LastFlow) {
        let context = Context { shared, ports, in_port: port.number, from: Some(port), now: self.now };
        let n = match self.forward_by_bytes(context, port, last_flow) {
            Some(n) => n,
            None => self.forward_each(context, port, last_flow),
        };
        if n == 0 {
            return;
        }
        if !self.work.is_empty() {
            self.run_recirculated(context, Misses::Queue);
        }
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.batches, 1);
        bump_own(&counters.batch_sizes[n - 1], 1);
    }

    /// Forwards packets that `port` received and that waited for an upcall, at most [`BATCH_MAX`], and leaves
    /// `packets` empty. The next [`Forwarder::flush`] sends them.
    pub(crate) fn answer(&mut self, shared: &SharedState, ports: &PortTable, port: &Port, packets: &mut Batch) {
        self.now = shared.clock.now();
        let context = Context { shared, ports, in_port: port.number, from: Some(port), now: self.now };
        std::mem::swap(&mut self.batch, packets);
        self.work.begin(self.batch.len());
        self.pass_again(context, Misses::Inline);
        self.run_recirculated(context, Misses::Inline);
    }

    /// Runs a packet through `actions`, and recirculated packets through the actions of their flows. The next
    /// [`Forwarder::flush`] sends it. Returns the last reason for which it or a copy was dropped, unless an action
    /// demanded the drop.
    pub(crate) fn execute(&mut self, context: Context<'_>, packet: Packet, actions: &DpActions) -> Option<DropReason> {
        self.now = context.now;
        self.work.begin(1);
        let mut exec = Executor::new(context, &mut self.outputs, &mut self.work);
        exec.any_l3 = packet.l3_type.is_some();
        self.one.push(packet);
        exec.run(&mut self.one, actions);
        self.run_recirculated(context, Misses::Inline);
        self.work.failed.take()
    }

    /// Forwards recirculated packets until none is left.
    fn run_recirculated(&mut self, context: Context<'_>, misses: Misses) {
        self.work.settle();
        while let Some(in_port) = self.work.pop(&mut self.batch) {
            self.count(&context.shared.lanes[self.lane].recirculated, self.batch.len());
            self.pass_again(context.on(in_port), misses);
            self.work.settle();
        }
    }

    /// Runs one pass of a recirculated batch.
    fn pass_again(&mut self, context: Context<'_>, misses: Misses) {
        if let Some(hits) = self.work.take_hits() {
            self.pass_known(context, &hits);
            if self.batch.is_empty() {
                return self.work.release_hits();
            }
        }
        self.unsettled = self.batch.len();
        let are_kept = std::mem::take(&mut self.keys_kept) == self.batch.len();
        let kept = if are_kept { input::recirculate_keys(&self.batch, &mut self.keys) } else { None };
        let any_l3 =
            kept.unwrap_or_else(|| input::parse_again(context.shared, context.in_port, &self.batch, &mut self.keys));
        self.pass(context, None, any_l3);
        self.work.release_hits();
        if self.misses.is_empty() {
            return;
        }
        match (misses, context.from) {
            (Misses::Queue, Some(port)) => self.queue_misses(context, port, false),
            _ => self.upcall_misses(context),
        }
    }

    /// Adds to a counter of this thread's lane.
    #[inline]
    fn count(&self, counter: &AtomicU64, n: usize) {
        if self.lane == CALLER_LANE { bump(counter, n as u64) } else { bump_own(counter, n as u64) }
    }

    /// Counts the batch and runs it through the actions of the last flow, if all of its bytes match that flow.
    /// Returns the number of packets.
    #[inline]
    fn forward_by_bytes(&mut self, context: Context<'_>, port: &Port, last_flow: &mut LastFlow) -> Option<usize> {
        let shared = context.shared;
        let Adds { len: bytes, tcp_flags } = last_flow.covers_all(&mut self.batch)?;
        let n = self.batch.len();
        if shared.check_every.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let reader = shared.flows.reader();
        let flow = last_flow.flow(reader.generation())?;
        flow.count(counter_of(self.lane), n as u64, bytes.into(), tcp_flags, self.now);
        if shared.flows.offload.is_on() {
            shared.flows.offload.offer(&[Some(flow)]);
        }
        // The cache holds the flow itself.
        let todo = Todo::of(flow);
        self.unsettled = n;
        port.count_received(self.lane, n as u64, bytes.into());
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.hit, n as u64);
        bump_own(&counters.probes, n as u64);
        self.work.begin(n);
        let mut exec = Executor::new(context, &mut self.outputs, &mut self.work);
        if let Todo::Track(_) = todo {
            let follower = Follower::new(context, &reader, &self.hints, self.lane);
            self.passage.begin();
            follower.run(&mut exec, &mut self.passage, &mut self.batch, &todo, &[]);
        } else {
            drop(reader);
            exec.run_todo(&mut self.batch, &todo);
        }
        self.unsettled = 0;
        Some(n)
    }

    /// Forwards a batch with a key for each packet. Returns the number of frames.
    fn forward_each(&mut self, context: Context<'_>, port: &Port, last_flow: &mut LastFlow) -> usize {
        let shared = context.shared;
        input::parse(shared, self.lane, port, &mut self.batch, &mut self.keys);
        let n = self.batch.len();
        if n == 0 {
            return 0;
        }
        self.unsettled = n;
        self.work.begin(n);
        self.check_some(shared, &shared.lanes[self.lane], port);
        self.pass(context, Some(last_flow), false);
        if !self.misses.is_empty() {
            // In a batch of misses only, no other packet waits.
            let may_wait = self.misses.len() == n;
            self.queue_misses(context, port, may_wait);
        }
        n
    }

    /// Handles misses of the batch on this thread if [`here`] allows it, and queues the rest at their port.
    #[cold]
    fn queue_misses(&mut self, context: Context<'_>, port: &Port, may_wait: bool) {
        let shared = context.shared;
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.misses, self.misses.len() as u64);
        self.handle_misses_here(context, port);
        if self.misses.is_empty() {
            return;
        }
        self.unsettled -= self.misses.len();
        let mut left = shared.upcalls.queue(port.id, self.lane, &mut self.misses, may_wait);
        if left > 0 && may_wait {
            // Nothing can continue until handlers have replied, and they may share this processor.
            let mut timer = Instant::now();
            std::thread::yield_now();
            self.waited_ns += lap(&mut timer);
            left = shared.upcalls.queue(port.id, self.lane, &mut self.misses, false);
        }
        self.pace.record_loss(port.id, left > 0);
        if left > 0 {
            bump_own(&counters.lost, left as u64);
            shared.count_drop(Some(port), DropReason::UpcallQueueFull, left as u64);
            pool::recycle_all(&mut self.misses);
        }
    }

    /// Looks up the packets of the batch, counts them and runs covered packets through their actions; packets with
    /// the same actions run together, in order. The others become misses. Packets are looked up and counted in the
    /// same state of the flows, so that the final statistics of a removed flow are complete. Actions run while the
    /// reader is held, as their lists are borrowed from the flows, unless they contain upcalls. With `any_l3`, some
    /// packets may have no Ethernet header. `last_flow` is given for a received batch only.
    fn pass(&mut self, context: Context<'_>, last_flow: Option<&mut LastFlow>, any_l3: bool) {
        let shared = context.shared;
        let n = self.batch.len().min(BATCH_MAX);
        let keys = &*self.keys;
        // Packets of this batch that hints cover may have recirculated before.
        let is_first = self.work.next_len() == 0;
        let reader = shared.flows.reader();
        let mut found: [Found<'_>; BATCH_MAX] = [None; BATCH_MAX];
        let mut hashes = [0; BATCH_MAX];
        let (mut microflow_hits, mut probes, mut asked) = (0, 0, input::first(n));
        let cached = !self.chance.is_never();
        let consulted = cached && self.policy.consults();
        let mut timer = (cached && self.policy.is_measuring()).then(Instant::now);
        if consulted {
            for (i, hash) in hashes.iter_mut().enumerate().take(n) {
                *hash = self.microflows.hash_of(keys.at(i));
            }
            for (i, (hash, found)) in hashes.into_iter().zip(&mut found).enumerate().take(n) {
                *found = match keys.at(i) {
                    Key::Plain(key) => self.microflows.get(key, hash, reader.generation()),
                    Key::Wide(key) => self.microflows.get(key, hash, reader.generation()),
                    Key::Tracked(key) => self.microflows.get(key, hash, reader.generation()),
                    Key::Tunneled(key) => self.microflows.get(key, hash, reader.generation()),
                    Key::Any(key) => self.microflows.get(key, hash, reader.generation()),
                };
                microflow_hits += usize::from(found.is_some());
                asked &= !(u32::from(found.is_some()) << i);
            }
        }
        let mut learned: SmallVec<[(u64, Arc<Megaflow>); 4]> = SmallVec::new();
        if asked != 0 {
            let others = asked & keys.others(n);
            reader.lookup_batch(&keys.plain, asked & keys.are_plain, &mut found, &mut probes);
            if keys.are_wide != 0 {
                reader.lookup_batch(&keys.wide, asked & keys.are_wide, &mut found, &mut probes);
            }
            if keys.are_tracked != 0 {
                reader.lookup_batch(&keys.tracked, asked & keys.are_tracked, &mut found, &mut probes);
            }
            if keys.are_tunneled != 0 {
                reader.lookup_batch(&keys.tunneled, asked & keys.are_tunneled, &mut found, &mut probes);
            }
            if others != 0 {
                reader.lookup_batch(&keys.any, others, &mut found, &mut probes);
            }
            let mut at = if cached && self.policy.fills() { 0 } else { n };
            while at < n
                && let Some(i) = self.chance.next_of(n, &mut at, consulted)
            {
                if let (1, Some(flow)) = (asked >> i & 1, found[i]) {
                    let hash = if consulted { hashes[i] } else { self.microflows.hash_of(keys.at(i)) };
                    // Cloning writes the reference count, which all threads that use the flow share.
                    if !self.microflows.knows(hash, flow) {
                        learned.push((hash, Arc::clone(flow)));
                    }
                }
            }
        }
        let looked_up_ns = timer.as_mut().map_or(0, lap);
        let groups = Groups::count(&found[..n], &keys.adds, counter_of(self.lane), self.now);
        if shared.flows.offload.is_on() {
            shared.flows.offload.offer(&found[..n]);
        }
        for ((hit, packet), flow) in self.rest_hits.drain(..).zip(&self.batch).zip(&found) {
            if let Some(flow) = flow {
                self.tunnel_hints.learn(&self.work.tunnels, hit, (context.in_port, packet.data()), flow);
            }
        }
        // Keys of packets with a connection and a tunnel have no form of their own. Received packets have no connection.
        if last_flow.is_none() && keys.are_tracked | keys.others(n) != 0 {
            self.hints.learn(shared, self.lane, &mut self.batch, &found);
        }
        let encapsulated = match groups.encapsulations(n) {
            Some((pushes, to)) => {
                Executor::new(context, &mut self.outputs, &mut self.work).encapsulate(&mut self.batch, &pushes, to);
                self.unsettled -= n;
                true
            }
            None => false,
        };
        groups.sort(&mut self.batch, &mut self.lists, &mut self.misses);
        if let (Some(last_flow), Some(flow)) = (last_flow, groups.only())
            && n >= LAST_FLOW_MIN
            && keys.are_compact() == input::first(n)
        {
            last_flow.learn(flow, context.in_port);
        }
        if !self.misses.is_empty() {
            self.missed = found[..n].iter().rev().fold(0, |bits, flow| bits << 1 | u32::from(flow.is_none()));
        }
        let mut exec = Executor::new(context, &mut self.outputs, &mut self.work);
        let (lists, unsettled, passage) = (&mut self.lists, &mut self.unsettled, &mut self.passage);
        exec.keys = groups.is_one_list().then_some(keys);
        let mut keeps_keys = false;
        passage.begin();
        let mut run = |todo: &[Todo<'_>], follower: Option<&Follower<'_>>| {
            for (todo, packets) in todo.iter().zip(&mut *lists) {
                let n = packets.len();
                exec.any_l3 = any_l3;
                match follower {
                    Some(follower) => follower.run(&mut exec, passage, packets, todo, &[]),
                    None => exec.run_todo(packets, todo),
                }
                *unsettled -= n;
            }
        };
        if groups.calls_above() {
            let mut held = std::mem::take(&mut self.held);
            let todo = groups.todo_held(&mut held);
            drop(reader);
            run(&todo, None);
            drop(todo);
            self.held = held;
        } else {
            {
                let todo = if encapsulated { SmallVec::new() } else { groups.todo() };
                run(&todo, Some(&Follower::new(context, &reader, &self.hints, self.lane)));
                keeps_keys = matches!(todo[..], [Todo::Run(list)] if recirculate::keeps_keys(list));
            }
            drop(reader);
        }
        // Misses, and packets that the worklist did not admit, are missing from the batch.
        self.keys_kept = if is_first && keeps_keys && self.work.next_len() == n { n } else { 0 };
        let counters = &shared.lanes[self.lane];
        self.count(&counters.hit, n - self.misses.len());
        self.count(&counters.microflow_hit, microflow_hits);
        self.count(&counters.probes, probes as usize);
        timer.as_mut().map(lap);
        for (hash, flow) in learned {
            self.microflows.insert(hash, &flow, &mut self.chance);
        }
        if cached && self.policy.count(n, looked_up_ns + timer.as_mut().map_or(0, lap)) {
            self.microflows.sweep();
            self.hints.sweep();
            self.tunnel_hints.sweep();
        }
    }

    /// Handles misses on this thread if [`here`] allows it.
    fn handle_misses_here(&mut self, context: Context<'_>, port: &Port) {
        let Self { lane, outputs, work, pace, keys, misses, missed, one, unsettled, .. } = self;
        let exec = Executor::new(context, outputs, work);
        here::answer((context, port), *lane, exec, pace, (keys, *missed), (misses, one), || *unsettled -= 1);
    }

    /// Makes an upcall for each miss of the batch, installs the flows of the replies, and runs the packets through
    /// their actions.
    #[cold]
    fn upcall_misses(&mut self, context: Context<'_>) {
        let Self { lane, outputs, work, keys, misses, missed, one, unsettled, .. } = self;
        let (shared, counters) = (context.shared, &context.shared.lanes[*lane]);
        let mut exec = Executor::new(context, outputs, work);
        let Some(handler) = shared.handler() else {
            bump(&counters.lost, misses.len() as u64);
            shared.count_drop(context.from, DropReason::UpcallQueueFull, misses.len() as u64);
            *unsettled -= misses.len();
            return pool::recycle_all(misses);
        };
        let mut buffer = FlowKey::ZERO;
        let mut first = true;
        misses.reverse();
        while let Some(packet) = misses.pop() {
            let key = keys.whole(missed.trailing_zeros() as usize, &mut buffer);
            *missed &= missed.wrapping_sub(1);
            exec.any_l3 = packet.l3_type.is_some();
            // The flow of an earlier miss may cover this packet.
            let known = if first { None } else { hit(shared, *lane, key, &packet) };
            first = false;
            if let Some(actions) = known {
                one.push(packet);
                exec.run(one, &actions);
            } else {
                bump(&counters.missed, 1);
                if let Some(log) = shared.event_log() {
                    log.missed(&Upcall { port: context.in_port, key, packet: &packet });
                }
                let reply = handler.miss(Upcall { port: context.in_port, key, packet: &packet });
                settle(&mut exec, shared, reply, packet, one, &|id, stats| handler.flow_gone(id, stats));
            }
            *unsettled -= 1;
        }
    }

    /// Runs the self-check on one in `check_every` packets of the batch, if configured, and removes wrong flows
    /// before any packet takes them.
    fn check_some(&mut self, shared: &SharedState, counters: &LaneCounters, port: &Port) {
        let every = shared.check_every.load(Ordering::Relaxed);
        if every == 0 {
            return;
        }
        let n = self.batch.len() as u64;
        let mut at = (every - 1).saturating_sub(self.unchecked);
        while at < n {
            self.check(shared, counters, port, at as usize);
            at = at.saturating_add(every);
        }
        self.unchecked = every - 1 - (at - n);
    }

    fn check(&self, shared: &SharedState, counters: &LaneCounters, port: &Port, at: usize) {
        let hash = self.microflows.hash_of(self.keys.at(at));
        let mut buffer = FlowKey::ZERO;
        let key = self.keys.whole(at, &mut buffer);
        let reader = shared.flows.reader();
        let known = if self.policy.consults() { self.microflows.get(key, hash, reader.generation()) } else { None };
        let Some(flow) = known.or_else(|| reader.lookup(key, &mut 0)).cloned() else { return };
        drop(reader);
        let Some(handler) = shared.handler() else { return };
        bump_own(&counters.checks, 1);
        if handler.check(port.number, key, flow.id, &flow.actions) {
            return;
        }
        bump_own(&counters.checks_failed, 1);
        if let Ok(stats) = shared.flows.del(flow.id) {
            shared.defer_gone(flow.id, stats);
        }
    }
}

/// Returns the nanoseconds since `timer`, and restarts it.
fn lap(timer: &mut Instant) -> u64 {
    let now = Instant::now();
    let spent = now - std::mem::replace(timer, now);
    spent.as_nanos() as u64
}

/// Looks up a single packet and counts it.
pub(crate) fn hit(shared: &SharedState, lane: usize, key: &FlowKey, packet: &Packet) -> Option<DpActions> {
    let counters = &shared.lanes[lane];
    let mut probes = 0;
    let reader = shared.flows.reader();
    let flow = reader.lookup(key, &mut probes);
    bump(&counters.probes, probes);
    let flow = flow?;
    let Adds { len, tcp_flags } = Adds::of(packet.len(), key);
    flow.count(counter_of(lane), 1, len.into(), tcp_flags, shared.clock.now());
    bump(&counters.hit, 1);
    Some(flow.actions.clone())
}
