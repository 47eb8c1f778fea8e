//! Looking packets up once more, after actions have changed them or computed their hash: recirculation.
//!
//! Packets that an action sends back gather until the list that they come from is done ([`Executor::again`]), and take
//! the actions of the flows that cover them then, which may send them back again, [`PASSES_MAX`] times at most.

use std::sync::atomic::Ordering;

use base::{DpPort, DropReason, PortNo};
use dpif::HashKind;
use flow::extract::extract_again;
use flow::{Again, FlowKey, hash};
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};

use super::Executor;
use crate::group::{Adds, Groups, Todo};
use crate::input::first;
use crate::megaflow::Found;
use crate::shared::{Shared, bump};
use crate::upcall;

/// How often a packet may come back (as in Open vSwitch's userspace datapath).
const PASSES_MAX: u8 = 6;

/// What becomes of packets that come back and that no flow covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misses {
    /// They wait for a handler.
    Wait,
    /// They are asked about at once.
    Ask,
}

/// The key of a packet that came in at a port, or that comes back.
pub(crate) fn key_of(packet: &Packet, in_port: DpPort, vlans_max: usize) -> FlowKey {
    let packet::buf::Parts { bare, recirc_id, dp_hash, .. } = **packet;
    extract_again(packet.data(), Again { in_port: PortNo(in_port.0), recirc_id, dp_hash, bare }, vlans_max)
}

/// Computes the hash of each packet.
pub(super) fn hash(shared: &Shared, in_port: DpPort, packets: &mut Batch, kind: HashKind, basis: u32) {
    let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
    for packet in packets {
        let key = key_of(packet, in_port, vlans_max);
        packet.dp_hash = match kind {
            HashKind::L4 => hash::l4(&key, basis),
            HashKind::SymmetricL4 => hash::symmetric_l4(&key, basis),
        };
    }
}

impl Executor<'_> {
    /// Takes packets, or copies of them, to be looked up once more with this number.
    pub(super) fn recirc(&mut self, packets: &mut Batch, id: u32, last: bool) {
        let mut batch: Batch = if last { std::mem::take(packets) } else { packets.iter().map(pool::copy).collect() };
        batch.retain_mut(|packet| {
            packet.recirc_id = id;
            packet.passes += 1;
            packet.tags = 0;
            let ok = packet.passes <= PASSES_MAX;
            if !ok {
                self.refuse(std::mem::take(packet), DropReason::Recirculation);
            }
            ok
        });
        while batch.len() > BATCH_MAX {
            let rest = batch.split_off(BATCH_MAX);
            self.again.push_back(std::mem::replace(&mut batch, rest));
        }
        self.again.push_back(batch);
    }

    /// Has packets that are to be looked up once more take the actions of the flows that cover them, until none is left.
    /// `lane` is that of the calling thread.
    #[cold]
    pub(crate) fn recirculate(&mut self, lane: usize, misses: Misses) {
        let (shared, counters) = (self.shared, &self.shared.lanes[lane]);
        let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
        let (mut lists, mut missed) = (Vec::new(), Batch::new());
        while let Some(mut batch) = self.again.pop_front() {
            let n = batch.len();
            let keys: Vec<FlowKey> = batch.iter().map(|p| key_of(p, self.in_port, vlans_max)).collect();
            let mut probes = 0;
            let reader = shared.flows.reader();
            let mut found: [Found<'_>; BATCH_MAX] = [None; BATCH_MAX];
            reader.lookup_batch(&keys, first(n), &mut found, &mut probes);
            let adds: Vec<_> = batch.iter().zip(&keys).map(|(packet, key)| Adds::of(packet.len(), key)).collect();
            let groups = Groups::count(&found[..n], &adds, shared.counter_of(lane), shared.clock.now());
            groups.sort(&mut batch, &mut lists, &mut missed);
            let todo = groups.todo();
            let unknown = found.map(|flow| flow.is_none());
            drop(reader);
            bump(&counters.recirculated, n as u64);
            bump(&counters.hit, (n - missed.len()) as u64);
            bump(&counters.probes, probes);
            for (todo, packets) in todo.iter().zip(&mut lists) {
                self.bare = packets.iter().any(|p| p.bare.is_some());
                match todo {
                    Todo::Output(port) => self.run_output(packets, *port),
                    Todo::Run(actions) => self.run(packets, actions),
                }
            }
            match misses {
                Misses::Ask => {
                    let mut one = Batch::new();
                    let keys = keys.iter().zip(unknown).filter(|(_, unknown)| *unknown).map(|(key, _)| key);
                    for (packet, key) in missed.drain(..).zip(keys) {
                        self.bare = packet.bare.is_some();
                        upcall::miss(self, lane, key, packet, &mut one);
                    }
                }
                Misses::Wait => self.wait(&mut missed, lane),
            }
        }
    }

    /// Puts packets into the queue of their port.
    fn wait(&mut self, packets: &mut Batch, lane: usize) {
        if packets.is_empty() {
            return;
        }
        let counters = &self.shared.lanes[lane];
        bump(&counters.misses, packets.len() as u64);
        let left = match self.from {
            Some(port) => self.shared.upcalls.queue(port.id, packets, false),
            None => packets.len(),
        };
        if left > 0 {
            bump(&counters.lost, left as u64);
            self.shared.count_drop(self.from, DropReason::UpcallQueueFull, left as u64);
            pool::recycle_all(packets);
        }
    }
}
