//! Per-port transmit batches: packets gather here during a round and leave together at its end.
//!
//! Invariants: a port has a place in `touched` if and only if its batch holds packets; batches are empty, and ways to send
//! given back, whenever their owner takes over another port table.

use base::rng::Rng;
use base::{DpPort, DropReason};
use netdev::pool;
use packet::{Batch, Packet};

use crate::port::{OwnTx, Port, PortTable};
use crate::shared::Shared;

/// A port's batch of this many leaves before the end of the round, so that flooding does not pile up memory.
const EARLY: usize = 64;

/// The batches of one lane.
#[derive(Debug)]
pub(crate) struct Outputs {
    /// Which of the ports' ways to send is ours.
    lane: usize,
    /// At the port's number.
    batches: Vec<Batch>,
    /// At the port's number, the way to send that we took, if we are a packet thread.
    own: Vec<Option<OwnTx>>,
    /// Numbers of the ports with packets.
    touched: Vec<DpPort>,
    /// Empty, kept for its memory, for who makes copies to push.
    pub(crate) copies: Batch,
    /// For who chooses some of the packets.
    pub(crate) rng: Rng,
}

impl Outputs {
    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            batches: Vec::new(),
            own: Vec::new(),
            touched: Vec::new(),
            copies: Batch::new(),
            rng: Rng::from_entropy(),
        }
    }

    /// Takes all of `packets` for port `to`. Returns why some were dropped, if they may not leave there; drops are
    /// counted.
    pub(crate) fn push_all(
        &mut self,
        shared: &Shared,
        ports: &PortTable,
        from: Option<&Port>,
        to: DpPort,
        packets: &mut Batch,
    ) -> Result<(), DropReason> {
        let before = packets.len();
        let longest = packets.iter().map(Packet::len).max().unwrap_or(0);
        let (result, port) = match ports.port(to) {
            None => {
                pool::recycle_all(packets);
                (Err(DropReason::NoPort), None)
            }
            Some(port) if port.fits_len(longest) || packets.iter().all(|p| port.fits(p)) => (Ok(()), Some(port)),
            Some(port) => {
                packets.retain_mut(|p| port.fits(p) || refuse(p));
                (Err(DropReason::TooBig), Some(port))
            }
        };
        if let Err(reason) = result {
            shared.count_drop(from, reason, (before - packets.len()) as u64);
        }
        if let Some(port) = port.filter(|_| !packets.is_empty()) {
            self.queue(shared, port, packets);
        }
        result
    }

    /// Takes the packets, which are some.
    fn queue(&mut self, shared: &Shared, port: &Port, packets: &mut Batch) {
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

    /// Puts the ways to send back, before another port table is taken over.
    pub(crate) fn release(&mut self) {
        self.own.iter_mut().for_each(|own| *own = None);
    }

    /// Sends all batches. Drops by devices are counted in total and at the port that was to send.
    pub(crate) fn flush(&mut self, shared: &Shared, ports: &PortTable) {
        for number in self.touched.drain(..) {
            let at = number.0 as usize;
            let batch = &mut self.batches[at];
            match ports.port(number) {
                Some(port) => send(shared, port, self.lane, &mut self.own[at], batch),
                None => {
                    shared.count_drop(None, DropReason::NoPort, batch.len() as u64);
                    pool::recycle_all(batch);
                }
            }
        }
    }
}

#[cold]
fn refuse(packet: &mut Packet) -> bool {
    pool::recycle(std::mem::take(packet));
    false
}

fn send(shared: &Shared, port: &Port, lane: usize, own: &mut Option<OwnTx>, batch: &mut Batch) {
    if own.is_none() {
        *own = port.take_tx(lane);
    }
    let report = port.send(lane, own.as_mut(), batch);
    shared.lanes[lane].count_sent(lane, report.sent);
    for (reason, n) in report.dropped {
        shared.drops.add(reason, n);
    }
    // Empty by the contract of send_batch; a device that breaks it must not make us send twice.
    pool::recycle_all(batch);
}
