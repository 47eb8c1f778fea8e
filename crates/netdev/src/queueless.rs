//! A device without queues: the datapath's port of a tunnel, whose packets come from and go to other ports.

use base::{DropReason, MacAddr};
use packet::Batch;

use crate::change::Changes;
use crate::device::{Netdev, NetdevError, Rx, SendReport, Tx};
use crate::pool;
use crate::status::{LinkStatus, NetdevStats, offloads};

/// See the module documentation.
#[derive(Debug)]
pub struct Queueless {
    name: String,
    kind: &'static str,
    mac: MacAddr,
    changes: Changes,
}

impl Queueless {
    /// A device of an interface type.
    pub fn new(name: &str, kind: &'static str, mac: MacAddr) -> Self {
        Self { name: name.to_owned(), kind, mac, changes: Changes::default() }
    }

    fn unsupported(&self, operation: &'static str) -> NetdevError {
        NetdevError::Unsupported { name: self.name.clone(), kind: self.kind, operation }
    }
}

impl Netdev for Queueless {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn n_rxq(&self) -> usize {
        0
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        Err(NetdevError::NoQueue { name: self.name.clone(), queue, n_rxq: 0 })
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        Ok(Box::new(NoTx))
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn set_mac(&self, _mac: MacAddr) -> Result<(), NetdevError> {
        Err(self.unsupported("have another Ethernet address"))
    }

    fn mtu(&self) -> Option<u32> {
        None
    }

    fn set_mtu(&self, _mtu: u32) -> Result<(), NetdevError> {
        Err(self.unsupported("have an MTU"))
    }

    fn set_up(&self, _up: bool) -> Result<(), NetdevError> {
        Ok(())
    }

    fn status(&self) -> LinkStatus {
        let details = offloads(&[]).collect();
        LinkStatus { admin_up: true, carrier: true, ifindex: Some(0), details, ..LinkStatus::default() }
    }

    fn stats(&self) -> NetdevStats {
        NetdevStats::default()
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// Drops all frames.
struct NoTx;

impl Tx for NoTx {
    fn send_batch(&mut self, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        report.count_dropped(DropReason::OutputError, batch.len() as u64);
        pool::recycle_all(batch);
        report
    }
}
