//! A device that refuses to be set up or down, and passes everything else to the device that it wraps.

use base::MacAddr;
use netdev::{Changes, LinkStatus, Netdev, NetdevError, NetdevStats, Rx, Tx};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct FailingDevice(pub(super) Arc<dyn Netdev>);

impl Netdev for FailingDevice {
    fn set_up(&self, _up: bool) -> Result<(), NetdevError> {
        Err(NetdevError::Unsupported { name: self.name().into(), kind: self.kind(), operation: "be set up or down" })
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        self.0.open_rx(queue)
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        self.0.open_tx()
    }

    fn mac(&self) -> MacAddr {
        self.0.mac()
    }

    fn set_mac(&self, mac: MacAddr) -> Result<(), NetdevError> {
        self.0.set_mac(mac)
    }

    fn mtu(&self) -> Option<u32> {
        self.0.mtu()
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError> {
        self.0.set_mtu(mtu)
    }

    fn status(&self) -> LinkStatus {
        self.0.status()
    }

    fn stats(&self) -> NetdevStats {
        self.0.stats()
    }

    fn changes(&self) -> &Changes {
        self.0.changes()
    }
}
