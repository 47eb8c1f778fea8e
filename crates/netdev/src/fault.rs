//! A wrapper around a device that loses, duplicates, reorders and truncates received frames. The faults follow from a
//! seed, so that tests of the layers above are reproducible.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use base::MacAddr;
use base::rng::Rng;
use packet::{Batch, Packet};
use parking_lot::Mutex;

use crate::change::Changes;
use crate::device::{Netdev, NetdevError, Options, Rx, Tx};
use crate::pool;
use crate::status::{LinkStatus, NetdevStats};

/// The rate of each fault, in frames per thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// The frame is lost.
    pub drop: u64,
    /// The frame is delivered twice.
    pub duplicate: u64,
    /// The frame is delivered after its successor.
    pub reorder: u64,
    /// The frame is truncated at any byte, which clears its offload flags.
    pub truncate: u64,
}

/// A device with faults on its receive side; everything else is delegated to the inner device.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Netdev>,
    faults: Faults,
    seed: u64,
    happened: Arc<Mutex<Faults>>,
}

impl Faulty {
    /// Adds faults to `inner`. The same seed and frames give the same faults.
    pub fn new(inner: Arc<dyn Netdev>, faults: Faults, seed: u64) -> Self {
        Self { inner, faults, seed, happened: Arc::default() }
    }

    /// The number of occurrences of each fault.
    pub fn happened(&self) -> Faults {
        *self.happened.lock()
    }
}

impl Netdev for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        self.inner.set_options(options)
    }

    fn n_rxq(&self) -> usize {
        self.inner.n_rxq()
    }

    fn numa_id(&self) -> Option<usize> {
        self.inner.numa_id()
    }

    fn is_pmd(&self) -> bool {
        self.inner.is_pmd()
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        Ok(Box::new(FaultyRx {
            inner: self.inner.open_rx(queue)?,
            faults: self.faults,
            rng: Rng::seeded(self.seed ^ queue as u64),
            happened: self.happened.clone(),
            fresh: Batch::new(),
            held: None,
        }))
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        self.inner.open_tx()
    }

    fn mac(&self) -> MacAddr {
        self.inner.mac()
    }

    fn set_mac(&self, mac: MacAddr) -> Result<(), NetdevError> {
        self.inner.set_mac(mac)
    }

    fn mtu(&self) -> Option<u32> {
        self.inner.mtu()
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError> {
        self.inner.set_mtu(mtu)
    }

    fn set_up(&self, up: bool) -> Result<(), NetdevError> {
        self.inner.set_up(up)
    }

    fn set_promisc(&self, on: bool) -> Result<(), NetdevError> {
        self.inner.set_promisc(on)
    }

    fn is_present(&self) -> bool {
        self.inner.is_present()
    }

    fn status(&self) -> LinkStatus {
        self.inner.status()
    }

    fn has_carrier(&self) -> bool {
        self.inner.has_carrier()
    }

    fn stats(&self) -> NetdevStats {
        self.inner.stats()
    }

    fn kernel_qos(&self) -> Option<&dyn crate::qos::DeviceQos> {
        self.inner.kernel_qos()
    }

    fn queues(&self) -> Vec<u32> {
        self.inner.queues()
    }

    fn changes(&self) -> &Changes {
        self.inner.changes()
    }
}

/// A receive queue with faults. Duplicated frames may make a batch longer than requested.
struct FaultyRx {
    inner: Box<dyn Rx>,
    faults: Faults,
    rng: Rng,
    happened: Arc<Mutex<Faults>>,
    fresh: Batch,
    /// A reordered frame, delivered after the next frame, or when the queue is empty.
    held: Option<Packet>,
}

impl FaultyRx {
    fn happens(&mut self, per_mille: u64) -> bool {
        self.rng.below(1000) < per_mille
    }

    fn pass(&mut self, mut packet: Packet, out: &mut Batch) {
        if self.happens(self.faults.drop) {
            self.happened.lock().drop += 1;
            pool::recycle(packet);
            return;
        }
        if self.happens(self.faults.truncate) {
            self.happened.lock().truncate += 1;
            packet.truncate(self.rng.below(packet.len() as u64) as usize);
        }
        let copy = self.happens(self.faults.duplicate).then(|| packet.clone());
        if self.held.is_none() && self.happens(self.faults.reorder) {
            self.happened.lock().reorder += 1;
            self.held = Some(packet);
        } else {
            out.push(packet);
            out.extend(self.held.take());
        }
        if let Some(copy) = copy {
            self.happened.lock().duplicate += 1;
            out.push(copy);
        }
    }
}

impl Rx for FaultyRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let before = out.len();
        // Returning 0 means that no frame waits, so continue if all frames of a batch were lost.
        while out.len() == before {
            let mut fresh = std::mem::take(&mut self.fresh);
            let result = self.inner.recv_batch(&mut fresh, max);
            for packet in fresh.drain(..) {
                self.pass(packet, out);
            }
            self.fresh = fresh;
            if result? == 0 {
                out.extend(self.held.take());
                break;
            }
        }
        Ok(out.len() - before)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }

    fn ask_within(&self) -> Option<Duration> {
        self.inner.ask_within()
    }

    fn drain(&mut self) -> io::Result<()> {
        self.held = None;
        self.inner.drain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    fn received(faults: Faults, seed: u64) -> (Vec<Vec<u8>>, Faults) {
        let frames: Vec<Packet> = (0..=255).map(|n| Packet::from_slice(&[n; 60])).collect();
        let port = Faulty::new(memory::replay("r", &frames, 4), faults, seed);
        let (mut rx, mut out) = (port.open_rx(0).expect("rx"), Batch::new());
        while rx.recv_batch(&mut out, 3).expect("receive") > 0 {}
        (out.iter().map(|p| p.data().to_vec()).collect(), port.happened())
    }

    #[test]
    fn without_faults_nothing_changes() {
        let (frames, happened) = received(Faults::default(), 1);
        assert_eq!((frames.len(), happened), (1024, Faults::default()));
        assert!(frames.iter().enumerate().all(|(i, f)| *f == [i as u8; 60]));
    }

    #[test]
    fn every_fault_happens_and_is_counted() {
        let faults = Faults { drop: 100, duplicate: 100, reorder: 100, truncate: 100 };
        let (frames, happened) = received(faults, 2);
        assert!(happened.drop > 0 && happened.duplicate > 0 && happened.reorder > 0 && happened.truncate > 0);
        assert_eq!(frames.len() as u64, 1024 - happened.drop + happened.duplicate);
        let short = frames.iter().filter(|f| f.len() < 60).count() as u64;
        assert!(short >= happened.truncate && short <= 2 * happened.truncate);
        assert_eq!(received(faults, 2), (frames, happened), "the same seed gives the same faults");
    }
}
