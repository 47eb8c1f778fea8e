//! Ports: a device with its number, its queues opened for the packet threads, and its counters; and the table of them
//! that is published to all threads.
//!
//! A [`Port`] opens everything when it is added, so that a device that cannot be opened is an error to whoever added
//! it. Each receive queue belongs to one thread and each thread has its own way to send (a *lane*; one more lane is
//! for callers of `execute`). The locks around them are there for the type system: nobody but the owner takes them
//! while packets flow.
//!
//! Invariant: a table never changes. A change publishes a new one with a higher version; a port lives for as long as
//! some thread still uses a table with it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base::drop::DropCounters;
use base::{DpPort, DropReason};
use dpif::DpifError;
use netdev::{Netdev, Rx, SendReport, Tx};
use parking_lot::Mutex;

/// Port numbers are below this.
pub const PORTS_MAX: u32 = 0xffff;

/// Ethernet addresses and type, in bytes: what a frame has beside its payload.
const ETHERNET_HEADER: usize = 14;
const VLAN_HEADER: usize = 4;

/// A receive queue.
pub(crate) struct RxQueue {
    /// Taken by the owning thread only.
    pub(crate) handle: Mutex<Box<dyn Rx>>,
    /// Index of the owning thread.
    pub(crate) thread: usize,
    /// The device reported an error; the queue rests until somebody clears this.
    pub(crate) broken: AtomicBool,
}

/// Which port, and in which of its number's lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PortId {
    pub(crate) number: DpPort,
    /// The version of the first table that has it.
    pub(crate) since: u64,
}

/// A port of the datapath.
pub(crate) struct Port {
    pub(crate) id: PortId,
    pub(crate) number: DpPort,
    pub(crate) device: Arc<dyn Netdev>,
    pub(crate) rx: Vec<RxQueue>,
    /// A way to send for each lane.
    tx: Vec<Mutex<Box<dyn Tx>>>,
    /// The largest payload, 0 for no limit, as of `mtu_seq`.
    mtu: AtomicU32,
    mtu_seq: AtomicU64,
    pub(crate) counters: PortCounters,
}

/// Counters of a port, written by any thread.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) rx_packets: AtomicU64,
    pub(crate) rx_bytes: AtomicU64,
    pub(crate) tx_packets: AtomicU64,
    pub(crate) tx_bytes: AtomicU64,
    pub(crate) tx_batches: AtomicU64,
    /// Drops of packets that came in here.
    pub(crate) rx_drops: DropCounters,
    /// Drops by the device when it was to send.
    pub(crate) tx_drops: DropCounters,
}

/// What a port has moved and dropped so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes in them.
    pub rx_bytes: u64,
    /// Packets that the device took to be sent.
    pub tx_packets: u64,
    /// Bytes in them.
    pub tx_bytes: u64,
    /// Batches that they left in.
    pub tx_batches: u64,
    /// Packets that came in here and were dropped, by reason.
    pub rx_drops: Vec<(DropReason, u64)>,
    /// Packets that the device dropped when it was to send them, by reason.
    pub tx_drops: Vec<(DropReason, u64)>,
}

/// A port, as a list of ports shows it.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// Its number.
    pub number: DpPort,
    /// Its device.
    pub device: Arc<dyn Netdev>,
    /// Its counters.
    pub stats: PortStats,
    /// Its receive queues, in order.
    pub queues: Vec<QueueInfo>,
}

/// A receive queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueInfo {
    /// Which packet thread asks it.
    pub thread: usize,
    /// Whether it is asked: after an error of the device a queue rests for a while.
    pub enabled: bool,
}

impl Port {
    /// Opens `device` for `lanes` senders; `thread_of` says which thread is to own a receive queue.
    pub(crate) fn open(
        id: PortId,
        device: Arc<dyn Netdev>,
        lanes: usize,
        mut thread_of: impl FnMut() -> usize,
    ) -> Result<Self, DpifError> {
        let failed = |e: netdev::NetdevError| DpifError::Device(e.to_string());
        let tx = (0..lanes).map(|_| device.open_tx().map(Mutex::new)).collect::<Result<_, _>>().map_err(failed)?;
        let mut rx = Vec::new();
        for queue in 0..device.n_rxq() {
            let handle = Mutex::new(device.open_rx(queue).map_err(failed)?);
            rx.push(RxQueue { handle, thread: thread_of(), broken: AtomicBool::new(false) });
        }
        let (mtu, mtu_seq) = (AtomicU32::new(device.mtu().unwrap_or(0)), AtomicU64::new(device.change_seq()));
        Ok(Self { id, number: id.number, device, rx, tx, mtu, mtu_seq, counters: PortCounters::default() })
    }

    /// Whether frames of `len` bytes may leave here whatever else they are.
    #[inline]
    pub(crate) fn fits_len(&self, len: usize) -> bool {
        let mtu = self.mtu.load(Ordering::Relaxed) as usize;
        mtu == 0 || len <= mtu.saturating_add(ETHERNET_HEADER)
    }

    /// Whether a frame may leave here: it fits the MTU (VLAN tags do not count), or the device will cut it.
    pub(crate) fn fits(&self, packet: &packet::Packet) -> bool {
        self.fits_mtu(packet) || {
            // Perhaps the MTU has grown.
            self.refresh();
            self.fits_mtu(packet)
        }
    }

    fn fits_mtu(&self, packet: &packet::Packet) -> bool {
        self.fits_len(packet.len())
            || packet.offload.gso.is_some()
            || self.fits_len(packet.len() - VLAN_HEADER * vlan_tags(packet.data()))
    }

    /// Reads the MTU again if the device changed since.
    fn refresh(&self) {
        let seq = self.device.change_seq();
        if self.mtu_seq.swap(seq, Ordering::Relaxed) != seq {
            self.mtu.store(self.device.mtu().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Sends a batch through a lane and counts.
    pub(crate) fn send(&self, lane: usize, batch: &mut packet::Batch) -> SendReport {
        let Some(tx) = self.tx.get(lane) else { return SendReport::default() };
        let mut tx = tx.lock();
        let mut report = tx.send_batch(batch);
        report.merge(&tx.flush());
        drop(tx);
        self.counters.tx_packets.fetch_add(report.sent, Ordering::Relaxed);
        self.counters.tx_bytes.fetch_add(report.sent_bytes, Ordering::Relaxed);
        self.counters.tx_batches.fetch_add(1, Ordering::Relaxed);
        for (reason, n) in &report.dropped {
            self.counters.tx_drops.add(*reason, *n);
        }
        self.refresh();
        report
    }

    /// The port as a list shows it.
    pub(crate) fn info(&self) -> PortInfo {
        let queue = |q: &RxQueue| QueueInfo { thread: q.thread, enabled: !q.broken.load(Ordering::Relaxed) };
        let queues = self.rx.iter().map(queue).collect();
        PortInfo { number: self.number, device: self.device.clone(), stats: self.stats(), queues }
    }

    pub(crate) fn stats(&self) -> PortStats {
        let c = &self.counters;
        PortStats {
            rx_packets: c.rx_packets.load(Ordering::Relaxed),
            rx_bytes: c.rx_bytes.load(Ordering::Relaxed),
            tx_packets: c.tx_packets.load(Ordering::Relaxed),
            tx_bytes: c.tx_bytes.load(Ordering::Relaxed),
            tx_batches: c.tx_batches.load(Ordering::Relaxed),
            rx_drops: c.rx_drops.nonzero().collect(),
            tx_drops: c.tx_drops.nonzero().collect(),
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("number", &self.number)
            .field("device", &self.device.name())
            .finish_non_exhaustive()
    }
}

/// VLAN tags in front of a frame's Ethernet type, two at most.
fn vlan_tags(frame: &[u8]) -> usize {
    let tag_at = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    [12, 16].into_iter().take_while(|at| tag_at(*at)).count()
}

/// All ports at one moment.
#[derive(Debug, Default)]
pub(crate) struct PortTable {
    /// Higher than any table's before it.
    pub(crate) version: u64,
    /// At each port's number.
    by_number: Vec<Option<Arc<Port>>>,
}

impl PortTable {
    pub(crate) fn port(&self, number: DpPort) -> Option<&Arc<Port>> {
        self.by_number.get(number.0 as usize)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.by_number.iter().flatten()
    }

    /// The lowest number from 1 that no port has.
    pub(crate) fn free_number(&self) -> Option<DpPort> {
        (1..PORTS_MAX).map(DpPort).find(|n| self.port(*n).is_none())
    }

    /// The next table, with `port` at its number.
    pub(crate) fn with(&self, port: Arc<Port>) -> Self {
        let at = port.number.0 as usize;
        let mut by_number = self.by_number.clone();
        by_number.resize(by_number.len().max(at + 1), None);
        by_number[at] = Some(port);
        Self { version: self.version + 1, by_number }
    }

    /// The next table, without ports.
    pub(crate) fn emptied(&self) -> Self {
        Self { version: self.version + 1, by_number: Vec::new() }
    }

    /// The next table, without the port of this number.
    pub(crate) fn without(&self, number: DpPort) -> Self {
        let mut by_number = self.by_number.clone();
        if let Some(place) = by_number.get_mut(number.0 as usize) {
            *place = None;
        }
        Self { version: self.version + 1, by_number }
    }
}
