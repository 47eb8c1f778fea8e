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

use crate::execute::Executor;
use crate::input;
use crate::megaflow::Megaflow;
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
}

/// What one packet thread owns.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Which thread, and which lane.
    pub(crate) index: usize,
    /// The port table in use, and the queues in it that are ours.
    ports: Arc<PortTable>,
    pub(crate) queues: Vec<Queue>,
    outputs: Outputs,
    batches: u64,
    /// Packets of the batch in work that have not run through their actions yet.
    unsettled: usize,
    // Kept for their memory.
    batch: Batch,
    keys: Vec<FlowKey>,
    groups: Vec<Group>,
    misses: Batch,
}

/// Packets of a batch that the same flow covers.
#[derive(Debug)]
struct Group {
    flow: Arc<Megaflow>,
    packets: Batch,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            shared,
            index,
            ports: Arc::default(),
            queues: Vec::new(),
            outputs: Outputs::new(index),
            batches: 0,
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
            let n = self.receive(at);
            if n > 0 {
                received += n;
                let port = self.queues[at].port.clone();
                self.process(&ports, &port);
            }
        }
        self.outputs.flush(&self.shared, &ports);
        let counters = &self.shared.lanes[self.index];
        bump(&counters.packets, received as u64);
        bump(&counters.rounds, 1);
        received
    }

    /// Takes over the published port table, if it is another than ours.
    pub(crate) fn sync(&mut self) {
        let published = self.shared.ports.load();
        if published.version == self.ports.version {
            return;
        }
        self.ports = Arc::clone(&published);
        drop(published);
        self.queues.clear();
        for port in self.ports.iter() {
            let ours = port.rx.iter().enumerate().filter(|(_, q)| q.thread == self.index);
            self.queues.extend(ours.map(|(index, _)| Queue { port: port.clone(), index }));
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
        let Queue { port, index } = &self.queues[at];
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
        self.unsettled = self.batch.len();
        self.classify();
        let mut exec = Executor {
            shared: &shared,
            ports,
            in_port: port.number,
            from: Some(port),
            outputs: &mut self.outputs,
            failed: None,
        };
        for mut group in self.groups.drain(..) {
            let n = group.packets.len();
            exec.run(&mut group.packets, &group.flow.actions);
            self.unsettled -= n;
        }
        self.unsettled -= self.misses.len();
        if !self.misses.is_empty() {
            let left = shared.upcalls.queue(port.number, &mut self.misses);
            bump(&shared.lanes[self.index].lost, left as u64);
            shared.count_drop(Some(port), DropReason::UpcallQueueFull, left as u64);
            pool::recycle_all(&mut self.misses);
        }
        bump(&shared.lanes[self.index].batches, 1);
        self.batches += 1;
        if self.batches.is_multiple_of(TUNE_EVERY_BATCHES) {
            shared.tune();
        }
    }

    /// Sorts the packets of `self.batch` by the flow that covers them, keeping their order within a flow. All are
    /// looked up and counted in the same state of the flows: whatever a control thread removes has its last
    /// statistics.
    fn classify(&mut self) {
        let counters = &self.shared.lanes[self.index];
        let now = self.shared.clock.now();
        let (mut probes, mut hits) = (0, 0);
        let reader = self.shared.flows.reader();
        for (packet, key) in self.batch.drain(..).zip(&self.keys) {
            let Some(flow) = reader.lookup(key, &mut probes) else {
                self.misses.push(packet);
                continue;
            };
            hits += 1;
            flow.count(packet.len(), tcp_flags(key), now);
            match self.groups.iter_mut().rev().find(|g| Arc::ptr_eq(&g.flow, flow)) {
                Some(group) => group.packets.push(packet),
                None => self.groups.push(Group { flow: flow.clone(), packets: vec![packet] }),
            }
        }
        drop(reader);
        bump(&counters.hit, hits);
        bump(&counters.probes, probes);
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
    flow.count(packet.len(), tcp_flags(key), shared.clock.now());
    bump(&counters.hit, 1);
    Some(flow.actions.clone())
}

/// The TCP flags of a packet by its key; none if it is no TCP.
fn tcp_flags(key: &FlowKey) -> u16 {
    let ip = matches!(key.eth_type(), 0x0800 | 0x86dd);
    if ip && key.ip_proto() == PROTO_TCP { key.get(Field::TcpFlags) as u16 } else { 0 }
}
