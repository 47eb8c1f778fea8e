//! A batch on its way: its flows looked up, its packets counted, those of the same flow executed together, and those
//! that no flow covers handed on to go up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use base::{DropReason, Millis};
use dpif::DpActions;
use flow::FlowKey;
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use smallvec::SmallVec;

use crate::exact::{Chance, Exact, Judge};
use crate::execute::Executor;
use crate::execute::recirculate::Misses;
use crate::group::{Adds, Groups, Todo};
use crate::input::{self, Key, Keys};
use crate::megaflow::{Found, Megaflow};
use crate::output::Outputs;
use crate::port::{Port, PortTable};
use crate::shared::{LaneCounters, Shared, bump, bump_own};
use crate::upcall::here;
use crate::usual::Usual;

/// The index is tuned after this many batches.
const TUNE_EVERY_BATCHES: u64 = 4096;

/// A flow that all packets of so large a batch take is the usual one from then on.
const USUAL_MIN: usize = 8;

/// What a packet thread needs to move batches.
#[derive(Debug)]
pub(crate) struct Forwarder {
    /// Which lane.
    lane: usize,
    outputs: Outputs,
    /// When the round began.
    now: Millis,
    batches: u64,
    exact: Exact,
    chance: Chance,
    judge: Judge,
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
    one: Batch,
    pace: here::Pace,
}

impl Forwarder {
    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            outputs: Outputs::new(lane),
            now: Millis::default(),
            batches: 0,
            exact: Exact::new(),
            chance: Chance::new(),
            judge: Judge::default(),
            unchecked: 0,
            waited_ns: 0,
            unsettled: 0,
            batch: Batch::new(),
            keys: Box::new(Keys::new()),
            lists: Vec::new(),
            misses: Batch::new(),
            one: Batch::new(),
            pace: here::Pace::default(),
        }
    }

    /// Begins a round: takes over what is configured, and the time.
    pub(crate) fn begin(&mut self, shared: &Shared, now: Instant) {
        self.now = shared.clock.at(now);
        if self.chance.set_inverse_probability(shared.inverse_probability.load(Ordering::Relaxed)) {
            self.exact.clear();
            self.judge = Judge::default();
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

    /// Forgets the batch in work. Returns how many of its packets had not run through their actions.
    pub(crate) fn give_up(&mut self) -> u64 {
        [&mut self.batch, &mut self.misses, &mut self.one]
            .into_iter()
            .chain(&mut self.lists)
            .for_each(pool::recycle_all);
        std::mem::take(&mut self.unsettled) as u64
    }

    /// Gives back what it took from ports, before another port table is taken over.
    pub(crate) fn release(&mut self) {
        self.outputs.release();
    }

    /// Sends what processing has gathered.
    pub(crate) fn flush(&mut self, shared: &Shared, ports: &PortTable) {
        self.outputs.flush(shared, ports);
    }

    /// Moves the packets of the batch, which came in at `port`, to where they are to go. `usual` is of the queue that they
    /// came from.
    pub(crate) fn process(&mut self, shared: &Shared, ports: &PortTable, port: &Port, usual: &mut Usual) {
        let n = match self.forward_usual(shared, ports, port, usual) {
            Some(n) => n,
            None => self.forward_each(shared, ports, port, usual),
        };
        if n == 0 {
            return;
        }
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.batches, 1);
        bump_own(&counters.batch_sizes[n - 1], 1);
        self.batches += 1;
        if self.batches.is_multiple_of(TUNE_EVERY_BATCHES) {
            shared.tune(&|id, stats| shared.leave_gone(id, stats));
        }
    }

    /// If all packets of the batch take the usual flow, and that is seen at a glance: counts them and runs them through its
    /// actions. Returns how many they were.
    #[inline]
    fn forward_usual(&mut self, shared: &Shared, ports: &PortTable, port: &Port, usual: &mut Usual) -> Option<usize> {
        let Adds { len: bytes, tcp_flags } = usual.covers_all(&mut self.batch)?;
        let n = self.batch.len();
        if shared.check_every.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let reader = shared.flows.reader();
        let flow = usual.flow(reader.generation())?;
        flow.count(shared.counter_of(self.lane), n as u64, bytes.into(), tcp_flags, self.now);
        if shared.flows.offload.is_on() {
            shared.flows.offload.offer(&[Some(flow)]);
        }
        let todo = Todo::of(flow);
        drop(reader);
        self.unsettled = n;
        port.count_received(self.lane, n as u64, bytes.into());
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.hit, n as u64);
        bump_own(&counters.probes, n as u64);
        let mut exec = Executor::new(shared, ports, port.number, Some(port), &mut self.outputs);
        exec.run_todo(&mut self.batch, &todo);
        self.unsettled = 0;
        if !exec.again.is_empty() {
            exec.recirculate(self.lane, Misses::Wait);
        }
        Some(n)
    }

    /// Does so with a key for each packet. Returns how many frames there were.
    fn forward_each(&mut self, shared: &Shared, ports: &PortTable, port: &Port, usual: &mut Usual) -> usize {
        input::parse(shared, self.lane, port, &mut self.batch, &mut self.keys);
        let n = self.batch.len();
        if n == 0 {
            return 0;
        }
        self.unsettled = n;
        let counters = &shared.lanes[self.lane];
        self.check_some(shared, counters, port);
        self.forward(shared, ports, port, usual);
        if !self.misses.is_empty() {
            bump_own(&counters.misses, self.misses.len() as u64);
            self.answer_here(shared, ports, port);
        }
        if !self.misses.is_empty() {
            self.unsettled -= self.misses.len();
            // In a batch of nothing but misses, no packet that a flow covers has to wait.
            let may_wait = self.misses.len() == n;
            let mut left = shared.upcalls.queue(port.id, &mut self.misses, may_wait);
            if left > 0 && may_wait {
                // Nothing can be done until others have answered, and they may share our processor.
                let mut timer = Instant::now();
                std::thread::yield_now();
                self.waited_ns += lap(&mut timer);
                left = shared.upcalls.queue(port.id, &mut self.misses, false);
            }
            if left > 0 {
                bump_own(&counters.lost, left as u64);
                shared.count_drop(Some(port), DropReason::UpcallQueueFull, left as u64);
                pool::recycle_all(&mut self.misses);
            }
        }
        n
    }

    /// Looks up the packets of the batch, counts them and runs those that a flow covers through its actions, those with
    /// the same actions together and in their order; the others become misses. Packets are looked up and counted in the
    /// same state of the flows: whatever a control thread removes has its last statistics. Actions run when the flows
    /// are let go.
    fn forward(&mut self, shared: &Shared, ports: &PortTable, port: &Port, usual: &mut Usual) {
        let n = self.batch.len().min(BATCH_MAX);
        let keys = &*self.keys;
        let reader = shared.flows.reader();
        let mut found: [Found<'_>; BATCH_MAX] = [None; BATCH_MAX];
        let mut hashes = [0; BATCH_MAX];
        let (mut exact_hits, mut probes, mut asked) = (0, 0, input::first(n));
        let cached = !self.chance.is_never();
        let consulted = cached && self.judge.consults();
        let mut timer = (cached && self.judge.is_measuring()).then(Instant::now);
        if consulted {
            for (i, hash) in hashes.iter_mut().enumerate().take(n) {
                *hash = self.exact.hash_of(keys.at(i));
            }
            for (i, (hash, found)) in hashes.into_iter().zip(&mut found).enumerate().take(n) {
                *found = match keys.at(i) {
                    Key::Plain(key) => self.exact.get(key, hash, reader.generation()),
                    Key::Any(key) => self.exact.get(key, hash, reader.generation()),
                };
                exact_hits += usize::from(found.is_some());
                asked &= !(u32::from(found.is_some()) << i);
            }
        }
        let mut learned: SmallVec<[(usize, Arc<Megaflow>); 4]> = SmallVec::new();
        if asked != 0 {
            let (plain, others) = (asked & keys.are_plain, asked & !keys.are_plain);
            reader.lookup_batch(&keys.plain, plain, &mut found, &mut probes);
            if others != 0 {
                reader.lookup_batch(&keys.any, others, &mut found, &mut probes);
            }
            let mut at = 0;
            while let Some(i) = self.chance.next_of(n, &mut at, consulted) {
                if let (1, Some(flow)) = (asked >> i & 1, found[i]) {
                    learned.push((i, Arc::clone(flow)));
                }
            }
        }
        let looked_up_ns = timer.as_mut().map_or(0, lap);
        let groups = Groups::count(&found[..n], &keys.adds, shared.counter_of(self.lane), self.now);
        if shared.flows.offload.is_on() {
            shared.flows.offload.offer(&found[..n]);
        }
        groups.sort(&mut self.batch, &mut self.lists, &mut self.misses);
        let todo = groups.todo();
        if let Some(flow) = groups.only()
            && n >= USUAL_MIN
            && keys.are_plain == input::first(n)
        {
            usual.learn(flow, port.number);
        }
        drop(reader);
        let mut exec = Executor::new(shared, ports, port.number, Some(port), &mut self.outputs);
        for (todo, packets) in todo.iter().zip(&mut self.lists) {
            let n = packets.len();
            exec.run_todo(packets, todo);
            self.unsettled -= n;
        }
        if !exec.again.is_empty() {
            exec.recirculate(self.lane, Misses::Wait);
        }
        let counters = &shared.lanes[self.lane];
        bump_own(&counters.hit, (n - self.misses.len()) as u64);
        bump_own(&counters.exact_hit, exact_hits as u64);
        bump_own(&counters.probes, probes);
        timer.as_mut().map(lap);
        for (i, flow) in learned {
            let hash = if consulted { hashes[i] } else { self.exact.hash_of(self.keys.at(i)) };
            self.exact.insert(hash, &flow, &mut self.chance);
        }
        if cached && self.judge.count(n, looked_up_ns + timer.as_mut().map_or(0, lap)) {
            self.exact.sweep();
        }
    }

    /// Has misses answered on this thread, if they are few and it need not wait.
    fn answer_here(&mut self, shared: &Shared, ports: &PortTable, port: &Port) {
        let Self { lane, outputs, pace, misses, one, unsettled, .. } = self;
        here::answer((shared, ports, port), *lane, outputs, pace, (misses, one), || *unsettled -= 1);
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
        let key = &match self.keys.at(at) {
            Key::Plain(key) => key.expand(),
            Key::Any(key) => key.clone(),
        };
        let reader = shared.flows.reader();
        let known =
            if self.judge.consults() { self.exact.get(key, self.exact.hash(key), reader.generation()) } else { None };
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
