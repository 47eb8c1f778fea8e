//! Per-port transmit batches: packets gather here during a round and leave together at its end.
//!
//! Invariants: a port is in `touched` if and only if its batch holds packets. When the owner takes over another port table,
//! all batches are empty, and the transmit queues of ports that are gone are given back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::rng::Rng;
use base::{DpPort, DropReason};
use netdev::{pool, software};
use packet::fragment::fragment;
use packet::{Batch, Packet};

use crate::bonds::BondCache;
use crate::execute::chance::Sampler;
use crate::port::{Port, PortTable};
use crate::shared::{CALLER_LANE, SharedState};
use crate::tx::OwnTx;

/// A batch of this many packets is sent before the end of the round, which bounds memory when packets are flooded.
const EARLY: usize = 64;

/// Number of empty batches that a lane keeps.
const SPARE_MAX: usize = 8;

/// The batches of one lane.
#[derive(Debug)]
pub(crate) struct Outputs {
    /// Selects the transmit queue at each port.
    lane: usize,
    /// Indexed by port number.
    batches: Vec<Batch>,
    /// Transmit queues that the lane has taken, indexed by port number.
    own: Vec<Option<OwnTx>>,
    /// Numbers of the ports with packets.
    touched: Vec<DpPort>,
    /// Empty buffer for copies that callers make before they push them.
    pub(crate) copies: Batch,
    /// See [`Outputs::take_too_long`].
    too_long: Vec<(Packet, usize)>,
    /// Chooses packets for sampling actions.
    pub(crate) sampler: Sampler,
    /// The bonds as the thread has seen them last.
    pub(crate) bonds: BondCache,
    /// Empty batches, kept for their memory.
    spare: Vec<Batch>,
}

impl Outputs {
    /// The lane of the thread that sends.
    pub(crate) fn lane(&self) -> usize {
        self.lane
    }

    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            batches: Vec::new(),
            own: Vec::new(),
            touched: Vec::new(),
            copies: Batch::new(),
            too_long: Vec::new(),
            sampler: Sampler::new(Rng::from_entropy()),
            bonds: BondCache::default(),
            spare: Vec::new(),
        }
    }

    /// Returns an empty batch, with memory if one was given back.
    pub(crate) fn spare(&mut self) -> Batch {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a batch back, which loses its packets.
    pub(crate) fn give_spare(&mut self, mut batch: Batch) {
        pool::recycle_all(&mut batch);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(batch);
        }
    }

    /// Queues all of `packets` for port `to`. Returns why some were dropped, if the port does not take them; drops are
    /// counted.
    pub(crate) fn push_all(
        &mut self,
        shared: &SharedState,
        ports: &PortTable,
        from: Option<&Port>,
        to: DpPort,
        packets: &mut Batch,
    ) -> Result<(), DropReason> {
        let mut refused = packets.len();
        let longest = packets.iter().map(Packet::len).max().unwrap_or(0);
        // Translation may use a port that was added after this round read its port table.
        let newer = if ports.port(to).is_none() { newer_table(shared, ports) } else { None };
        let (result, port) = match newer.as_deref().unwrap_or(ports).port(to) {
            None => {
                pool::recycle_all(packets);
                (Err(DropReason::NoPort), None)
            }
            Some(port) if port.fits_len(longest) || packets.iter().all(|p| port.fits(p)) => (Ok(()), Some(port)),
            Some(port) => {
                refused = self.fit(shared, port, packets);
                (if refused > 0 { Err(DropReason::TooBig) } else { Ok(()) }, Some(port))
            }
        };
        if let Err(reason) = result {
            shared.count_drop(from, reason, refused as u64);
        }
        if let Some(port) = port.filter(|_| !packets.is_empty()) {
            self.queue(shared, port, packets);
        }
        result
    }

    /// Makes packets fit a port: segments GSO packets whose segments do not fit, fragments outer packets of tunnels that may be
    /// fragmented, and removes other packets that are too long. Returns the number of removed packets.
    #[cold]
    fn fit(&mut self, shared: &SharedState, port: &Port, packets: &mut Batch) -> usize {
        let mut refused = 0;
        let mut finished = Batch::new();
        for packet in std::mem::take(packets) {
            if port.fits(&packet) {
                packets.push(packet);
            } else if packet.offload.gso.is_none() {
                finished.push(packet);
            } else if let Err(packet) = software::finish(packet, &mut finished) {
                refused += 1;
                pool::recycle(packet);
            }
        }
        for mut packet in finished {
            // The last segment may be shorter.
            if port.fits(&packet) {
                packets.push(packet);
                continue;
            }
            let (outer, len_max) = (packet.outer(), port.len_max(&packet));
            if outer.is_some_and(|outer| outer.may_fragment) {
                let identification = shared.identification.fetch_add(1, Ordering::Relaxed);
                if let Some(fragments) = fragment(&mut packet, len_max, identification) {
                    packets.extend(fragments);
                    pool::recycle(packet);
                    continue;
                }
            }
            refused += 1;
            match outer {
                Some(outer) if !outer.may_fragment => self.too_long.push((packet, len_max)),
                _ => pool::recycle(packet),
            }
        }
        refused
    }

    /// Takes the outer packets that ports have refused because of their length and that may not be fragmented, each with the length that
    /// would fit.
    pub(crate) fn take_too_long(&mut self) -> Vec<(Packet, usize)> {
        std::mem::take(&mut self.too_long)
    }

    /// Counts `n` packets for port `to` as dropped if its device is known to drop them all. Returns whether it is.
    pub(crate) fn refuses(&mut self, shared: &SharedState, to: DpPort, n: usize) -> bool {
        let Some(Some(own)) = self.own.get_mut(to.0 as usize) else { return false };
        let Some(reason) = own.refuses(n) else { return false };
        own.count_drop(reason, n as u64);
        shared.count_drop(None, reason, n as u64);
        true
    }

    /// Appends the packets, at least one, to the port's batch.
    fn queue(&mut self, shared: &SharedState, port: &Port, packets: &mut Batch) {
        let at = port.number.0 as usize;
        if at >= self.batches.len() {
            self.batches.resize_with(at + 1, Batch::new);
            self.own.resize_with(at + 1, || None);
        }
        let batch = &mut self.batches[at];
        if batch.is_empty() {
            self.touched.push(port.number);
            std::mem::swap(batch, packets);
        } else {
            batch.append(packets);
        }
        if batch.len() >= EARLY {
            send(shared, port, self.lane, &mut self.own[at], batch);
            self.touched.retain(|p| *p != port.number);
        }
    }

    /// Gives the transmit queue of a port back, before a port table without that port is taken over.
    pub(crate) fn release(&mut self, number: DpPort) {
        if let Some(own) = self.own.get_mut(number.0 as usize) {
            *own = None;
        }
    }

    /// Sends all batches. Drops by devices are counted in the total and at the sending port.
    pub(crate) fn flush(&mut self, shared: &SharedState, ports: &PortTable) {
        for number in self.touched.drain(..) {
            let at = number.0 as usize;
            let batch = &mut self.batches[at];
            let newer = if ports.port(number).is_none() { newer_table(shared, ports) } else { None };
            match newer.as_deref().unwrap_or(ports).port(number) {
                Some(port) => send(shared, port, self.lane, &mut self.own[at], batch),
                None => {
                    shared.count_drop(None, DropReason::NoPort, batch.len() as u64);
                    pool::recycle_all(batch);
                }
            }
        }
    }
}

/// The current port table, if `ports` is an older one.
#[cold]
fn newer_table(shared: &SharedState, ports: &PortTable) -> Option<Arc<PortTable>> {
    (!shared.is_current(ports)).then(|| shared.ports.load_full())
}

fn send(shared: &SharedState, port: &Port, lane: usize, own: &mut Option<OwnTx>, batch: &mut Batch) {
    let report = if lane == CALLER_LANE {
        // Several threads use the lane, and their batches outlive port tables.
        port.send(&mut port.take_tx(lane), batch)
    } else {
        port.send(own.get_or_insert_with(|| port.take_tx(lane)), batch)
    };
    shared.lanes[lane].count_sent(lane, report.sent);
    for (reason, n) in report.dropped {
        shared.count_drop(None, reason, n);
    }
    // `send_batch` leaves the batch empty by contract; a device that breaks it must not cause a second transmission.
    pool::recycle_all(batch);
}
