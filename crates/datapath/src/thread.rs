//! What one packet thread owns, and one round of its work: a batch from each of its queues in turn, looked up,
//! executed and sent.
//!
//! A worker is the same with and without a thread around it: [`crate::poll`] drives it as a thread,
//! [`crate::Datapath::run_once`] steps it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::DropReason;
use dpif::DpActions;
use flow::{Field, FlowKey};
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use smallvec::SmallVec;

use crate::exact::{Chance, Exact};
use crate::execute::Executor;
use crate::input;
use crate::megaflow::{Found, Megaflow};
use crate::output::Outputs;
use crate::port::{Port, PortTable};
use crate::shared::{Shared, bump};

/// The index is tuned after this many batches.
const TUNE_EVERY_BATCHES: u64 = 4096;
const PROTO_TCP: u8 = 6;

/// A receive queue of ours.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) port: Arc<Port>,
    /// Its index at the port.
    pub(crate) index: usize,
    /// Rounds for which it is passed over, and for how many it was last.
    rest: u32,
    rested: u32,
}

/// Rounds for which a queue without packets is passed over at most.
const REST_MAX: u32 = 8;

impl Queue {
    /// Takes note that `n` packets were there, and whether the last round had any.
    fn found(&mut self, n: usize, busy: bool) {
        self.rested = if n > 0 || !busy { 0 } else { (self.rested * 2 + 1).min(REST_MAX) };
        self.rest = self.rested;
    }
}

/// What one packet thread owns.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The last round moved packets.
    busy: bool,
    pub(crate) shared: Arc<Shared>,
    /// Which thread, and which lane.
    pub(crate) index: usize,
    /// The port table in use, and the queues in it that are ours.
    ports: Arc<PortTable>,
    pub(crate) queues: Vec<Queue>,
    outputs: Outputs,
    batches: u64,
    exact: Exact,
    chance: Chance,
    until_check: UntilCheck,
    /// Packets of the batch in work that have not run through their actions yet.
    unsettled: usize,
    // Kept for their memory.
    batch: Batch,
    keys: Vec<FlowKey>,
    groups: Vec<Batch>,
    misses: Batch,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            busy: false,
            shared,
            index,
            ports: Arc::default(),
            queues: Vec::new(),
            outputs: Outputs::new(index),
            batches: 0,
            exact: Exact::new(),
            chance: Chance::new(),
            until_check: UntilCheck::default(),
            unsettled: 0,
            batch: Batch::new(),
            keys: Vec::new(),
            groups: Vec::new(),
            misses: Batch::new(),
        }
    }

    /// One round: at most one batch from each queue. Returns how many packets came in.
    pub(crate) fn round(&mut self) -> usize {
        self.sync();
        let ports = self.ports.clone();
        let mut received = 0;
        for at in 0..self.queues.len() {
            if self.is_resting(at) {
                continue;
            }
            let n = self.receive(at);
            self.queues[at].found(n, self.busy);
            if n > 0 {
                received += n;
                let port = self.queues[at].port.clone();
                self.process(&ports, &port);
            }
        }
        self.outputs.flush(&self.shared, &ports);
        self.busy = received > 0;
        let counters = &self.shared.lanes[self.index];
        bump(&counters.packets, received as u64);
        bump(&counters.rounds, 1);
        received
    }

    /// Whether a queue is passed over in this round: one that had nothing lately, while others have much. (To ask a
    /// device costs a system call.) Before the thread sleeps, all are asked.
    fn is_resting(&mut self, at: usize) -> bool {
        let queue = &mut self.queues[at];
        if !self.busy {
            (queue.rest, queue.rested) = (0, 0);
        }
        let rests = queue.rest > 0;
        queue.rest = queue.rest.saturating_sub(1);
        rests
    }

    /// Takes over the published port table, if it is another than ours.
    pub(crate) fn sync(&mut self) {
        self.exact.set_inverse_probability(self.shared.inverse_probability.load(Ordering::Relaxed));
        let published = self.shared.ports.load();
        if published.version == self.ports.version {
            return;
        }
        self.ports = Arc::clone(&published);
        drop(published);
        self.queues.clear();
        for port in self.ports.iter() {
            let ours = port.rx.iter().enumerate().filter(|(_, q)| q.thread == self.index);
            self.queues.extend(ours.map(|(index, _)| Queue { port: port.clone(), index, rest: 0, rested: 0 }));
        }
        self.shared.saw(self.index, self.ports.version);
    }

    /// After a panic in the middle of a batch: counts the packets that it took along. (Of the list of actions in which
    /// it happened some may have been sent.)
    pub(crate) fn count_lost(&mut self) {
        let n = std::mem::take(&mut self.unsettled) as u64;
        self.shared.count_drop(None, DropReason::TranslationError, n);
    }

    /// Fills `self.batch` from a queue. A queue with an error rests.
    fn receive(&mut self, at: usize) -> usize {
        let Queue { port, index, .. } = &self.queues[at];
        let queue = &port.rx[*index];
        self.batch.clear();
        if queue.broken.load(Ordering::Relaxed) {
            return 0;
        }
        match queue.handle.lock().recv_batch(&mut self.batch, BATCH_MAX) {
            Ok(_) => self.batch.len(),
            Err(error) => {
                queue.broken.store(true, Ordering::Relaxed);
                tracing::warn!(port = port.device.name(), queue = index, %error, "cannot receive");
                self.batch.len()
            }
        }
    }

    /// Asks queues that rest after an error again. Returns whether there are any.
    pub(crate) fn retry_broken(&self) -> bool {
        let broken = self.queues.iter().filter(|q| q.port.rx[q.index].broken.swap(false, Ordering::Relaxed));
        broken.count() > 0
    }

    /// Moves the packets of `self.batch` to where they are to go.
    fn process(&mut self, ports: &PortTable, port: &Port) {
        let shared = self.shared.clone();
        input::parse(&shared, port, &mut self.batch, &mut self.keys);
        let n = self.batch.len();
        if n == 0 {
            return;
        }
        self.unsettled = n;
        let check = self.forward(&shared, ports, port);
        self.unsettled -= self.misses.len();
        bump(&shared.lanes[self.index].misses, self.misses.len() as u64);
        if !self.misses.is_empty() {
            let left = shared.upcalls.queue(port.number, &mut self.misses);
            bump(&shared.lanes[self.index].lost, left as u64);
            shared.count_drop(Some(port), DropReason::UpcallQueueFull, left as u64);
            pool::recycle_all(&mut self.misses);
        }
        if let Some((at, flow)) = check {
            self.check(at, &flow, port);
        }
        let counters = &shared.lanes[self.index];
        bump(&counters.batches, 1);
        bump(&counters.batch_sizes[n - 1], 1);
        self.batches += 1;
        if self.batches.is_multiple_of(TUNE_EVERY_BATCHES) {
            shared.tune();
        }
    }

    /// Looks up the packets of `self.batch`, counts them and runs those that a flow covers through its actions, those of
    /// the same flow together and in their order; the others become misses. All this happens in the same state of the
    /// flows: whatever a control thread removes has its last statistics. Returns the packet to be checked, if it is one's
    /// turn, and its flow.
    fn forward(&mut self, shared: &Shared, ports: &PortTable, port: &Port) -> Option<(usize, Arc<Megaflow>)> {
        let n = self.batch.len().min(BATCH_MAX);
        let keys = &self.keys[..n];
        let reader = shared.flows.reader();
        let mut found: [Found<'_>; BATCH_MAX] = [None; BATCH_MAX];
        let mut hashes = [0; BATCH_MAX];
        let (mut exact_hits, mut probes) = (0, 0);
        let exact_pays = self.exact.pays(n as u32);
        if exact_pays {
            for ((key, hash), found) in keys.iter().zip(&mut hashes).zip(&mut found) {
                *hash = self.exact.hash(key);
                *found = self.exact.get(key, *hash, reader.generation());
                exact_hits += usize::from(found.is_some());
            }
        }
        let mut learned: SmallVec<[(usize, Arc<Megaflow>); 4]> = SmallVec::new();
        if exact_hits < n {
            let known = found.map(|found| found.is_some());
            reader.lookup_batch(keys, &mut found[..n], &mut probes);
            if exact_pays {
                let one_in = self.exact.inverse_probability();
                for (i, flow) in found[..n].iter().enumerate().filter(|(i, _)| !known[*i]) {
                    if let Some(flow) = flow
                        && self.chance.one_in(one_in)
                    {
                        learned.push((i, Arc::clone(flow)));
                    }
                }
            }
        }
        let groups = Groups::of(&found[..n]);
        if self.groups.len() < groups.len() {
            self.groups.resize_with(groups.len(), Batch::new);
        }
        let mut totals = [Total::default(); BATCH_MAX];
        for (i, packet) in self.batch.drain(..).enumerate() {
            match groups.of_packet(i) {
                Some(group) => {
                    totals[group].add(packet.len(), tcp_flags(&keys[i]));
                    self.groups[group].push(packet);
                }
                None => self.misses.push(packet),
            }
        }
        let now = shared.clock.now();
        let mut exec = Executor {
            shared,
            ports,
            in_port: port.number,
            from: Some(port),
            outputs: &mut self.outputs,
            failed: None,
        };
        for (group, flow) in groups.flows().enumerate() {
            let total = &totals[group];
            flow.count(total.packets, total.bytes, total.tcp_flags, now);
            exec.run(&mut self.groups[group], &flow.actions);
            self.unsettled -= total.packets as usize;
        }
        let counters = &shared.lanes[self.index];
        let hits = n - self.misses.len();
        bump(&counters.hit, hits as u64);
        bump(&counters.exact_hit, exact_hits as u64);
        bump(&counters.probes, probes);
        let check = self.until_check.is_due(hits, shared.check_every.load(Ordering::Relaxed)).then(|| {
            let last = found[..n].iter().enumerate().rev();
            last.into_iter().find_map(|(i, flow)| Some((i, Arc::clone((*flow)?))))
        });
        drop(reader);
        self.exact.count_hits(exact_hits as u32);
        for (i, flow) in learned {
            self.exact.insert(&self.keys[i], hashes[i], &flow, &mut self.chance);
        }
        check.flatten()
    }

    /// Has the switch above decide about a packet afresh, and removes its flow if that was wrong.
    fn check(&self, at: usize, flow: &Megaflow, port: &Port) {
        let counters = &self.shared.lanes[self.index];
        let Some(handler) = self.shared.handler() else { return };
        bump(&counters.checks, 1);
        if handler.check(port.number, &self.keys[at], flow.id, &flow.actions) {
            return;
        }
        bump(&counters.checks_failed, 1);
        if let Ok(stats) = self.shared.flows.del(flow.id) {
            handler.flow_gone(flow.id, stats);
        }
    }
}

/// Which packets of a batch the same flow covers.
struct Groups<'a> {
    flows: [Found<'a>; BATCH_MAX],
    n: usize,
    of: [u8; BATCH_MAX],
}

const NO_GROUP: u8 = u8::MAX;
/// Places in which a flow's group is looked for, more than a batch has packets.
const PLACES: usize = 2 * BATCH_MAX;

impl<'a> Groups<'a> {
    #[inline]
    fn of(found: &[Found<'a>]) -> Self {
        let mut groups = Self { flows: [None; BATCH_MAX], n: 0, of: [NO_GROUP; BATCH_MAX] };
        let mut places = [NO_GROUP; PLACES];
        for (flow, of) in found.iter().zip(&mut groups.of) {
            let Some(flow) = flow else { continue };
            // Megaflows are apart from each other by more than their smallest bits.
            let mut place = Arc::as_ptr(flow).addr() / 64 % PLACES;
            loop {
                let group = places[place];
                if group == NO_GROUP {
                    (places[place], *of) = (groups.n as u8, groups.n as u8);
                    groups.flows[groups.n] = Some(flow);
                    groups.n += 1;
                    break;
                }
                if groups.flows[usize::from(group)].is_some_and(|other| Arc::ptr_eq(other, flow)) {
                    *of = group;
                    break;
                }
                place = (place + 1) % PLACES;
            }
        }
        groups
    }

    fn len(&self) -> usize {
        self.n
    }

    fn flows(&self) -> impl Iterator<Item = &'a Arc<Megaflow>> {
        self.flows.iter().flatten().copied()
    }

    #[inline]
    fn of_packet(&self, i: usize) -> Option<usize> {
        let group = self.of[i];
        (group != NO_GROUP).then_some(usize::from(group))
    }
}

/// What a group of packets adds to its flow's statistics.
#[derive(Clone, Copy, Default)]
struct Total {
    packets: u64,
    bytes: u64,
    tcp_flags: u16,
}

impl Total {
    #[inline]
    fn add(&mut self, len: usize, tcp_flags: u16) {
        self.packets += 1;
        self.bytes += len as u64;
        self.tcp_flags |= tcp_flags;
    }
}

/// Packets until it is one's turn to be checked.
#[derive(Debug, Default)]
struct UntilCheck(u64);

impl UntilCheck {
    /// Whether one of the next `packets` packets is to be checked, if every `every`-th is; 0 for none.
    fn is_due(&mut self, packets: usize, every: u64) -> bool {
        if every == 0 || packets == 0 {
            return false;
        }
        self.0 += packets as u64;
        let due = self.0 >= every;
        if due {
            self.0 %= every;
        }
        due
    }
}

/// Looks up a single packet and counts it.
pub(crate) fn hit(shared: &Shared, lane: usize, key: &FlowKey, packet: &Packet) -> Option<DpActions> {
    let counters = &shared.lanes[lane];
    let mut probes = 0;
    let reader = shared.flows.reader();
    let flow = reader.lookup(key, &mut probes);
    bump(&counters.probes, probes);
    let flow = flow?;
    flow.count(1, packet.len() as u64, tcp_flags(key), shared.clock.now());
    bump(&counters.hit, 1);
    Some(flow.actions.clone())
}

/// The TCP flags of a packet by its key; none if it is no TCP.
fn tcp_flags(key: &FlowKey) -> u16 {
    let ip = matches!(key.eth_type(), 0x0800 | 0x86dd);
    if ip && key.ip_proto() == PROTO_TCP { key.get(Field::TcpFlags) as u16 } else { 0 }
}
