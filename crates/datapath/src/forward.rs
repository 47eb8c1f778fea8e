//! A batch on its way: its flows looked up, its packets counted, those of the same flow executed together, and those
//! that no flow covers handed on to go up.
//!
//! All packets go this way, in each of their passes: those that a port received ([`Forwarder::process`]), those that
//! waited for an answer ([`Forwarder::answer`]), those that somebody sends with actions of his own
//! ([`Forwarder::execute`]), and what comes back of any of them ([`Worklist`]).

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

use crate::execute::{Context, Executor};
use crate::group::{Adds, Groups, Todo};
use crate::input::{self, Key, Keys};
use crate::last_flow::LastFlow;
use crate::megaflow::{Found, Megaflow};
use crate::microflow::{CachePolicy, Chance, MicroflowCache};
use crate::output::Outputs;
use crate::port::{Port, PortTable};
use crate::shared::{CALLER_LANE, LaneCounters, Shared, bump, bump_own};
use crate::upcall::{here, settle};
use crate::worklist::Worklist;

/// A flow that all packets of so large a batch take is the last_flow one from then on.
const LAST_FLOW_MIN: usize = 8;

/// What becomes of packets that no flow covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Misses {
    /// They are answered here if that needs no waiting, and else put into the queue of their port.
    Queue,
    /// They are asked about at once, however long that takes.
    Ask,
}

/// What a thread needs to move batches.
#[derive(Debug)]
pub(crate) struct Forwarder {
    /// Which lane.
    lane: usize,
    outputs: Outputs,
    work: Worklist,
    /// When the round began.
    now: Millis,
    microflows: MicroflowCache,
    chance: Chance,
    policy: CachePolicy,
    /// Packets since the last one that was checked.
    unchecked: u64,
    /// Nanoseconds that it let others run, as nothing could be done until they had.
    waited_ns: u64,
    /// Packets of the batch in work that have not run through their actions yet.
    unsettled: usize,
    // Kept for their memory.
    batch: Batch,
    keys: Box<Keys>,
    /// Packets by what is to be done with them.
    lists: Vec<Batch>,
    misses: Batch,
    /// Which packets of the batch these are, a bit each.
    missed: u32,
    one: Batch,
    pace: here::Pace,
}

impl Forwarder {
    /// For the packet thread of a lane.
    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            outputs: Outputs::new(lane),
            work: Worklist::default(),
            now: Millis::default(),
            microflows: MicroflowCache::new(),
            chance: Chance::new(),
            policy: CachePolicy::default(),
            unchecked: 0,
            waited_ns: 0,
            unsettled: 0,
            batch: Batch::new(),
            keys: Box::new(Keys::new()),
            lists: Vec::new(),
            misses: Batch::new(),
            missed: 0,
            one: Batch::new(),
            pace: here::Pace::default(),
        }
    }

    /// For a thread that is no packet thread: it has no microflow cache.
    pub(crate) fn for_caller() -> Self {
        let mut forwarder = Self::new(CALLER_LANE);
        forwarder.chance.set_inverse_probability(0);
        forwarder
    }

    /// Begins a round: takes over what is configured, and the time.
    pub(crate) fn begin(&mut self, shared: &Shared, now: Instant) {
        self.now = shared.clock.at(now);
        if self.chance.set_inverse_probability(shared.inverse_probability.load(Ordering::Relaxed)) {
            self.microflows.clear();
            self.policy = CachePolicy::default();
        }
    }

    /// The batch to be filled and then processed, empty.
    pub(crate) fn batch(&mut self) -> &mut Batch {
        pool::recycle_all(&mut self.batch);
        &mut self.batch
    }

    /// Nanoseconds since the last call that it let others run.
    pub(crate) fn take_waited_ns(&mut self) -> u64 {
        std::mem::take(&mut self.waited_ns)
    }

    /// Forgets the batch in work, and what came back of it. Returns how many packets had not run through their actions.
    pub(crate) fn give_up(&mut self) -> u64 {
        [&mut self.batch, &mut self.misses, &mut self.one]
            .into_iter()
            .chain(&mut self.lists)
            .for_each(pool::recycle_all);
        (std::mem::take(&mut self.unsettled) + self.work.clear()) as u64
    }

    /// Gives back what it took from a port that is gone, before another port table is taken over.
    pub(crate) fn release(&mut self, port: DpPort) {
        self.outputs.release(port);
    }

    /// Sends what processing has gathered.
    pub(crate) fn flush(&mut self, shared: &Shared, ports: &PortTable) {
        self.outputs.flush(shared, ports);
    }

    /// Moves the packets of the batch, which came in at `port`, to where they are to go. `last_flow` is of the queue that they
    /// came from.
    pub(crate) fn process(&mut self, shared: &Shared, ports: &PortTable, port: &Port, last_flow: &mut LastFlow) {
        let context = Context { shared, ports, in_port: port.number, from: Some(port) };
        let n = match self.forward_by_bytes(context, port, last_flow) {
            Some(n) => n,
            None => self.forward_each(context, port, last_flow),
        };
        if n == 0 {
            return;
        }
        if !self.work.is_empty() {
            self.come_back(context, Misses::Queue);
        }
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.batches, 1);
        bump_own(&counters.batch_sizes[n - 1], 1);
    }

    /// Moves packets that came in at `port` and waited for an answer, and leaves `packets`, at most [`BATCH_MAX`], empty.
    /// They are sent by the next [`Forwarder::flush`].
    pub(crate) fn answer(&mut self, shared: &Shared, ports: &PortTable, port: &Port, packets: &mut Batch) {
        let context = Context { shared, ports, in_port: port.number, from: Some(port) };
        self.now = shared.clock.now();
        std::mem::swap(&mut self.batch, packets);
        self.work.begin(self.batch.len());
        self.pass_again(context, Misses::Ask);
        self.come_back(context, Misses::Ask);
    }

    /// Runs a packet through `actions`, and what comes back of it through those of its flows. It is sent by the next
    /// [`Forwarder::flush`]. Returns the last reason for which it, or a copy, was dropped though the actions did not say so.
    pub(crate) fn execute(&mut self, context: Context<'_>, packet: Packet, actions: &DpActions) -> Option<DropReason> {
        self.now = context.shared.clock.now();
        self.work.begin(1);
        let mut exec = Executor::new(context, &mut self.outputs, &mut self.work);
        exec.any_l3 = packet.l3_type.is_some();
        self.one.push(packet);
        exec.run(&mut self.one, actions);
        self.come_back(context, Misses::Ask);
        self.work.failed.take()
    }

    /// Does with packets that come back what their flows say, until none is left.
    fn come_back(&mut self, context: Context<'_>, misses: Misses) {
        self.work.settle();
        while self.work.pop(&mut self.batch) {
            self.count(&context.shared.lanes[self.lane].recirculated, self.batch.len());
            self.pass_again(context, misses);
            self.work.settle();
        }
    }

    /// One pass of a batch that has been here before.
    fn pass_again(&mut self, context: Context<'_>, misses: Misses) {
        self.unsettled = self.batch.len();
        let any_l3 = input::parse_again(context.shared, context.in_port, &self.batch, &mut self.keys);
        self.pass(context, None, any_l3);
        if self.misses.is_empty() {
            return;
        }
        match (misses, context.from) {
            (Misses::Queue, Some(port)) => self.queue_misses(context, port, false),
            _ => self.ask(context),
        }
    }

    /// Adds to a counter of our lane.
    #[inline]
    fn count(&self, counter: &AtomicU64, n: usize) {
        if self.lane == CALLER_LANE { bump(counter, n as u64) } else { bump_own(counter, n as u64) }
    }

    /// If all packets of the batch take the last_flow flow, and that is seen at a glance: counts them and runs them through its
    /// actions. Returns how many they were.
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
        flow.count(shared.counter_of(self.lane), n as u64, bytes.into(), tcp_flags, self.now);
        if shared.flows.offload.is_on() {
            shared.flows.offload.offer(&[Some(flow)]);
        }
        // The queue holds the flow itself.
        let todo = Todo::of(flow);
        drop(reader);
        self.unsettled = n;
        port.count_received(self.lane, n as u64, bytes.into());
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.hit, n as u64);
        bump_own(&counters.probes, n as u64);
        self.work.begin(n);
        Executor::new(context, &mut self.outputs, &mut self.work).run_todo(&mut self.batch, &todo);
        self.unsettled = 0;
        Some(n)
    }

    /// Does so with a key for each packet. Returns how many frames there were.
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
            // In a batch of nothing but misses, no packet that a flow covers has to wait.
            let may_wait = self.misses.len() == n;
            self.queue_misses(context, port, may_wait);
        }
        n
    }

    /// Answers the misses of the batch, if they are few and nobody has to be waited for, or puts them into the queue of their
    /// port.
    #[cold]
    fn queue_misses(&mut self, context: Context<'_>, port: &Port, may_wait: bool) {
        let shared = context.shared;
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.misses, self.misses.len() as u64);
        self.answer_here(context, port);
        if self.misses.is_empty() {
            return;
        }
        self.unsettled -= self.misses.len();
        let mut left = shared.upcalls.queue(port.id, self.lane, &mut self.misses, may_wait);
        if left > 0 && may_wait {
            // Nothing can be done until others have answered, and they may share our processor.
            let mut timer = Instant::now();
            std::thread::yield_now();
            self.waited_ns += lap(&mut timer);
            left = shared.upcalls.queue(port.id, self.lane, &mut self.misses, false);
        }
        if left > 0 {
            bump_own(&counters.lost, left as u64);
            shared.count_drop(Some(port), DropReason::UpcallQueueFull, left as u64);
            pool::recycle_all(&mut self.misses);
        }
    }

    /// Looks up the packets of the batch, counts them and runs those that a flow covers through its actions, those with
    /// the same actions together and in their order; the others become misses. Packets are looked up and counted in the
    /// same state of the flows: whatever a control thread removes has its last statistics. Actions run while the flows
    /// are held, as their lists are borrowed, unless they call the switch above. Some packets may have no Ethernet header (`any_l3`). `last_flow` is for
    /// a batch that was received.
    fn pass(&mut self, context: Context<'_>, last_flow: Option<&mut LastFlow>, any_l3: bool) {
        let shared = context.shared;
        let n = self.batch.len().min(BATCH_MAX);
        let keys = &*self.keys;
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
                    Key::Any(key) => self.microflows.get(key, hash, reader.generation()),
                };
                microflow_hits += usize::from(found.is_some());
                asked &= !(u32::from(found.is_some()) << i);
            }
        }
        let mut learned: SmallVec<[(u64, Arc<Megaflow>); 4]> = SmallVec::new();
        if asked != 0 {
            let others = asked & !keys.are_compact();
            reader.lookup_batch(&keys.plain, asked & keys.are_plain, &mut found, &mut probes);
            if keys.are_wide != 0 {
                reader.lookup_batch(&keys.wide, asked & keys.are_wide, &mut found, &mut probes);
            }
            if others != 0 {
                reader.lookup_batch(&keys.any, others, &mut found, &mut probes);
            }
            let mut at = 0;
            while let Some(i) = self.chance.next_of(n, &mut at, consulted) {
                if let (1, Some(flow)) = (asked >> i & 1, found[i]) {
                    let hash = if consulted { hashes[i] } else { self.microflows.hash_of(keys.at(i)) };
                    // All threads that use the flow would write its reference count.
                    if !self.microflows.knows(hash, flow) {
                        learned.push((hash, Arc::clone(flow)));
                    }
                }
            }
        }
        let looked_up_ns = timer.as_mut().map_or(0, lap);
        let groups = Groups::count(&found[..n], &keys.adds, shared.counter_of(self.lane), self.now);
        if shared.flows.offload.is_on() {
            shared.flows.offload.offer(&found[..n]);
        }
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
        let (lists, unsettled) = (&mut self.lists, &mut self.unsettled);
        let mut run = |todo: &[Todo<'_>]| {
            for (todo, packets) in todo.iter().zip(&mut *lists) {
                let n = packets.len();
                exec.any_l3 = any_l3;
                exec.run_todo(packets, todo);
                *unsettled -= n;
            }
        };
        if groups.calls_above() {
            let todo = groups.todo_kept();
            drop(reader);
            run(&todo);
        } else {
            run(&groups.todo());
            drop(reader);
        }
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
        }
    }

    /// Has misses answered on this thread, if they are few and it need not wait.
    fn answer_here(&mut self, context: Context<'_>, port: &Port) {
        let Self { lane, outputs, work, pace, keys, misses, missed, one, unsettled, .. } = self;
        let exec = Executor::new(context, outputs, work);
        here::answer((context, port), *lane, exec, pace, (keys, *missed), (misses, one), || *unsettled -= 1);
    }

    /// Asks the switch above about each miss of the batch, remembers the flows that it answers with, and runs the packets
    /// through their actions.
    #[cold]
    fn ask(&mut self, context: Context<'_>) {
        let Self { lane, outputs, work, keys, misses, missed, one, unsettled, .. } = self;
        let (shared, counters) = (context.shared, &context.shared.lanes[*lane]);
        let mut exec = Executor::new(context, outputs, work);
        let Some(handler) = shared.handler() else {
            bump(&counters.lost, misses.len() as u64);
            shared.count_drop(context.from, DropReason::UpcallQueueFull, misses.len() as u64);
            *unsettled -= misses.len();
            return pool::recycle_all(misses);
        };
        let mut room = FlowKey::ZERO;
        let mut first = true;
        misses.reverse();
        while let Some(packet) = misses.pop() {
            let key = keys.whole(missed.trailing_zeros() as usize, &mut room);
            *missed &= missed.wrapping_sub(1);
            exec.any_l3 = packet.l3_type.is_some();
            // The answer to one before may cover it.
            let known = if first { None } else { hit(shared, *lane, key, &packet) };
            first = false;
            if let Some(actions) = known {
                one.push(packet);
                exec.run(one, &actions);
            } else {
                bump(&counters.missed, 1);
                let reply = handler.miss(Upcall { port: context.in_port, key, packet: &packet });
                settle(&mut exec, shared, reply, packet, one, &|id, stats| handler.flow_gone(id, stats));
            }
            *unsettled -= 1;
        }
    }

    /// Has the switch above decide about every so many packets of the batch afresh, if that is configured, and removes
    /// flows that are wrong: before any packet takes them.
    fn check_some(&mut self, shared: &Shared, counters: &LaneCounters, port: &Port) {
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

    fn check(&self, shared: &Shared, counters: &LaneCounters, port: &Port, at: usize) {
        let hash = self.microflows.hash_of(self.keys.at(at));
        let mut room = FlowKey::ZERO;
        let key = self.keys.whole(at, &mut room);
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
            shared.leave_gone(flow.id, stats);
        }
    }
}

/// Nanoseconds since `timer`, which begins anew.
fn lap(timer: &mut Instant) -> u64 {
    let now = Instant::now();
    let spent = now - std::mem::replace(timer, now);
    spent.as_nanos() as u64
}

/// Looks up a single packet and counts it.
pub(crate) fn hit(shared: &Shared, lane: usize, key: &FlowKey, packet: &Packet) -> Option<DpActions> {
    let counters = &shared.lanes[lane];
    let mut probes = 0;
    let reader = shared.flows.reader();
    let flow = reader.lookup(key, &mut probes);
    bump(&counters.probes, probes);
    let flow = flow?;
    let Adds { len, tcp_flags } = Adds::of(packet.len(), key);
    flow.count(shared.counter_of(lane), 1, len.into(), tcp_flags, shared.clock.now());
    bump(&counters.hit, 1);
    Some(flow.actions.clone())
}
