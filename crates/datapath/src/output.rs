//! Per-port transmit batches: packets gather here during a round and leave together at its end.
//!
//! Invariants: a port has a place in `touched` if and only if its batch holds packets; batches are empty whenever
//! their owner takes over another port table.

use base::{DpPort, DropReason};
use netdev::pool;
use packet::{Batch, Packet};

use crate::port::{Port, PortTable};
use crate::shared::Shared;

/// A port's batch of this many leaves before the end of the round, so that flooding does not pile up memory.
const EARLY: usize = 64;

/// The batches of one lane.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// Which of the ports' ways to send is ours.
    lane: usize,
    /// At the port's number.
    batches: Vec<Batch>,
    /// Numbers of the ports with packets.
    touched: Vec<DpPort>,
}

impl Outputs {
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane, ..Self::default() }
    }

    /// Takes a packet for port `to`. Returns why not, if it may not leave there; drops are counted.
    pub(crate) fn push(
        &mut self,
        shared: &Shared,
        ports: &PortTable,
        from: Option<&Port>,
        to: DpPort,
        packet: Packet,
    ) -> Result<(), DropReason> {
        let reason = match ports.port(to) {
            None => DropReason::NoPort,
            Some(port) if !port.fits(&packet) => DropReason::TooBig,
            Some(port) => {
                self.queue(shared, port, packet);
                return Ok(());
            }
        };
        shared.count_drop(from, reason, 1);
        pool::recycle(packet);
        Err(reason)
    }

    /// Takes packets for port `to`, as [`Outputs::push`] does; none are left in `packets`. Returns why one of them may not
    /// leave there, if so.
    pub(crate) fn push_all(
        &mut self,
        shared: &Shared,
        ports: &PortTable,
        from: Option<&Port>,
        to: DpPort,
        packets: &mut Batch,
    ) -> Result<(), DropReason> {
        let Some(port) = ports.port(to).filter(|port| packets.iter().all(|packet| port.fits(packet))) else {
            let pushed = packets.drain(..).map(|packet| self.push(shared, ports, from, to, packet));
            return pushed.fold(Ok(()), Result::and);
        };
        let at = port.number.0 as usize;
        if at >= self.batches.len() {
            self.batches.resize_with(at + 1, Batch::new);
        }
        let batch = &mut self.batches[at];
        if batch.is_empty() && !packets.is_empty() {
            self.touched.push(port.number);
        }
        batch.append(packets);
        if batch.len() >= EARLY {
            send(shared, port, self.lane, batch);
            self.touched.retain(|p| *p != port.number);
        }
        Ok(())
    }

    fn queue(&mut self, shared: &Shared, port: &Port, packet: Packet) {
        let at = port.number.0 as usize;
        if at >= self.batches.len() {
            self.batches.resize_with(at + 1, Batch::new);
        }
        let batch = &mut self.batches[at];
        if batch.is_empty() {
            self.touched.push(port.number);
        }
        batch.push(packet);
        if batch.len() >= EARLY {
            send(shared, port, self.lane, batch);
            self.touched.retain(|p| *p != port.number);
        }
    }

    /// Sends all batches. Drops by devices are counted in total and at the port that was to send.
    pub(crate) fn flush(&mut self, shared: &Shared, ports: &PortTable) {
        for number in self.touched.drain(..) {
            let batch = &mut self.batches[number.0 as usize];
            match ports.port(number) {
                Some(port) => send(shared, port, self.lane, batch),
                None => {
                    shared.count_drop(None, DropReason::NoPort, batch.len() as u64);
                    pool::recycle_all(batch);
                }
            }
        }
    }
}

fn send(shared: &Shared, port: &Port, lane: usize, batch: &mut Batch) {
    for (reason, n) in port.send(lane, batch).dropped {
        shared.drops.add(reason, n);
    }
    // Empty by the contract of send_batch; a device that breaks it must not make us send twice.
    pool::recycle_all(batch);
}
