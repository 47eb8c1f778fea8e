//! Ports: a device with its number, its queues opened for the packet threads, and its counters; and the table of them
//! that is published to all threads.
//!
//! A [`Port`] opens everything when it is added, so that a device that cannot be opened is an error to whoever added
//! it. Each receive queue belongs to one thread at most and each thread has its own way to send (a *lane*; one more lane
//! is for callers of `execute`). A packet thread takes what is its own out of the locks, and puts it back when it takes over
//! another table: no lock is taken while packets flow.
//!
//! Invariants: a table never changes. A change publishes a new one with a higher version, in which ports that changed
//! stand as new values that share queues, ways to send and counters with the old ones; a port lives for as long as some
//! thread still uses a table with it. Between two tables in which a queue has different owners there is one in which it
//! has none, and that all threads have taken over ([`crate::crew`]). A port of a published table has an open way to send
//! for the lane of each thread that runs: it is opened before the thread begins, and closed when the thread has ended.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base::drop::DropCounters;
use base::{DpPort, DropReason};
use dpif::DpifError;
use netdev::{Netdev, Rx, SendReport, Tx};
use parking_lot::Mutex;

use crate::history::History;
use crate::shared::{CALLER_LANE, bump, bump_own};

/// Port numbers are below this.
pub const PORTS_MAX: u32 = 0xffff;

/// Ethernet addresses and type, in bytes: what a frame has beside its payload.
const ETHERNET_HEADER: usize = 14;
const VLAN_HEADER: usize = 4;

/// A receive queue, opened.
pub(crate) struct Receiver {
    /// The owning thread takes it out and puts it back when the queue is no longer its own.
    pub(crate) handle: Mutex<Option<Box<dyn Rx>>>,
    /// The device reported an error; the queue rests until somebody clears this.
    pub(crate) broken: AtomicBool,
    /// Nanoseconds that its packets have taken, written by the owner.
    pub(crate) busy_ns: AtomicU64,
    /// The same, lately.
    pub(crate) history: Mutex<History>,
}

/// Which thread asks a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) lane: usize,
    /// By what the thread is shown.
    pub(crate) core_id: usize,
}

/// A receive queue of a port.
#[derive(Clone)]
pub(crate) struct RxQueue {
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) owner: Option<Owner>,
}

impl RxQueue {
    fn open(device: &dyn Netdev, queue: usize) -> Result<Self, DpifError> {
        let handle = Mutex::new(Some(device.open_rx(queue).map_err(failed)?));
        let (broken, busy_ns, history) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
        Ok(Self { receiver: Arc::new(Receiver { handle, broken, busy_ns, history }), owner: None })
    }
}

/// A lane's way to send, with what it has sent and received. Apart from other lanes' cache lines, and written by the lane's
/// thread only, but for the lane that all other callers share.
#[derive(Default)]
#[repr(align(128))]
struct Sender {
    /// Nothing where the lane is nobody's, or while its packet thread has it ([`OwnTx`]).
    handle: Mutex<Option<Box<dyn Tx>>>,
    packets: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    /// What the lane has received.
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
}

/// A lane's way to send, taken out by the lane's thread; put back when this is dropped.
pub(crate) struct OwnTx {
    sender: Arc<Sender>,
    tx: Option<Box<dyn Tx>>,
}

impl Drop for OwnTx {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            *self.sender.handle.lock() = Some(tx);
        }
    }
}

impl fmt::Debug for OwnTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnTx").finish_non_exhaustive()
    }
}

/// Which port, and in which of its number's lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PortId {
    pub(crate) number: DpPort,
    /// The version of the first table that has it.
    pub(crate) since: u64,
}

/// A port of the datapath.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) id: PortId,
    pub(crate) number: DpPort,
    pub(crate) device: Arc<dyn Netdev>,
    pub(crate) rx: Vec<RxQueue>,
    /// Cores that queues are to be asked on.
    pub(crate) affinity: Arc<BTreeMap<usize, usize>>,
    /// A way to send for each lane.
    tx: Vec<Arc<Sender>>,
    mtu: Arc<Mtu>,
    pub(crate) counters: Arc<PortCounters>,
}

/// The largest payload, 0 for no limit, as of `seq`.
struct Mtu {
    bytes: AtomicU32,
    seq: AtomicU64,
}

/// Counters of a port, written by any thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PortCounters {
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

/// A receive queue of a port, as a list of ports shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueInfo {
    /// Which packet thread asks it, by its [`crate::ThreadInfo::core_id`].
    pub core_id: Option<usize>,
    /// Whether it is asked: after an error of the device a queue rests for a while.
    pub enabled: bool,
}

/// How a lane adds to its counters.
pub(crate) fn adder(lane: usize) -> fn(&AtomicU64, u64) {
    if lane == CALLER_LANE { bump } else { bump_own }
}

fn send(tx: Option<&mut (dyn Tx + 'static)>, batch: &mut packet::Batch) -> SendReport {
    let mut report = SendReport::default();
    match tx {
        Some(tx) => {
            report = tx.send_batch(batch);
            report.merge(&tx.flush());
        }
        None => report.count_dropped(DropReason::OutputError, batch.len() as u64),
    }
    report
}

fn failed(error: netdev::NetdevError) -> DpifError {
    DpifError::Device(error.to_string())
}

impl Port {
    /// Opens `device` for the senders of `lanes`. Nobody asks its queues yet.
    pub(crate) fn open(
        id: PortId,
        device: Arc<dyn Netdev>,
        lanes: impl Iterator<Item = usize>,
    ) -> Result<Self, DpifError> {
        let (bytes, seq) = (AtomicU32::new(device.mtu().unwrap_or(0)), AtomicU64::new(device.change_seq()));
        let mtu = Arc::new(Mtu { bytes, seq });
        let (rx, tx) = (Vec::new(), Vec::new());
        let mut port =
            Self { id, number: id.number, device, rx, affinity: Arc::default(), tx, mtu, counters: Arc::default() };
        for lane in lanes {
            port.open_lane(lane)?;
        }
        port.open_queues()?;
        Ok(port)
    }

    /// Opens receive queues that the device has and the port has not, and gives up those that the device has no more.
    pub(crate) fn open_queues(&mut self) -> Result<(), DpifError> {
        let n = self.device.n_rxq();
        self.rx.truncate(n);
        for queue in self.rx.len()..n {
            self.rx.push(RxQueue::open(&*self.device, queue)?);
        }
        Ok(())
    }

    /// Opens a way to send for a lane that is nobody's yet.
    pub(crate) fn open_lane(&mut self, lane: usize) -> Result<(), DpifError> {
        let handle = self.device.open_tx().map_err(failed)?;
        if self.tx.len() <= lane {
            self.tx.resize_with(lane + 1, Arc::default);
        }
        *self.tx[lane].handle.lock() = Some(handle);
        Ok(())
    }

    /// Closes the way to send of a lane whose thread has ended. What was sent there still counts.
    pub(crate) fn close_lane(&self, lane: usize) {
        if let Some(sender) = self.tx.get(lane) {
            *sender.handle.lock() = None;
        }
    }

    /// Whether frames of `len` bytes may leave here whatever else they are.
    #[inline]
    pub(crate) fn fits_len(&self, len: usize) -> bool {
        let mtu = self.mtu.bytes.load(Ordering::Relaxed) as usize;
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
        // Who only sends writes no line that others read.
        if self.mtu.seq.load(Ordering::Relaxed) != seq && self.mtu.seq.swap(seq, Ordering::Relaxed) != seq {
            self.mtu.bytes.store(self.device.mtu().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Takes a lane's way to send for the lane's thread, which is not that of all other callers.
    pub(crate) fn take_tx(&self, lane: usize) -> Option<OwnTx> {
        let sender = self.tx.get(lane).filter(|_| lane != CALLER_LANE)?;
        let tx = sender.handle.lock().take();
        Some(OwnTx { sender: Arc::clone(sender), tx })
    }

    /// Sends a batch through a lane and counts. `own` is what the lane's thread has taken.
    pub(crate) fn send(&self, lane: usize, own: Option<&mut OwnTx>, batch: &mut packet::Batch) -> SendReport {
        let Some(sender) = self.tx.get(lane) else { return SendReport::default() };
        let report = match own {
            Some(own) => send(own.tx.as_deref_mut(), batch),
            None => send(sender.handle.lock().as_deref_mut(), batch),
        };
        let add = adder(lane);
        add(&sender.packets, report.sent);
        add(&sender.bytes, report.sent_bytes);
        add(&sender.batches, 1);
        for (reason, n) in &report.dropped {
            self.counters.tx_drops.add(*reason, *n);
        }
        self.refresh();
        report
    }

    /// Counts packets that a lane has received.
    pub(crate) fn count_received(&self, lane: usize, packets: u64, bytes: u64) {
        if let Some(of) = self.tx.get(lane) {
            let add = adder(lane);
            add(&of.rx_packets, packets);
            add(&of.rx_bytes, bytes);
        }
    }

    /// Counts packets that an accelerator moved from here to another port.
    pub(crate) fn count_below(&self, to: &Self, packets: u64, (received, sent): (u64, u64)) {
        self.count_received(CALLER_LANE, packets, received);
        if let Some(of) = to.tx.get(CALLER_LANE) {
            bump(&of.packets, packets);
            bump(&of.bytes, sent);
        }
    }

    /// The port as a list shows it.
    pub(crate) fn info(&self) -> PortInfo {
        let queue = |q: &RxQueue| QueueInfo {
            core_id: q.owner.map(|owner| owner.core_id),
            enabled: !q.receiver.broken.load(Ordering::Relaxed),
        };
        let queues = self.rx.iter().map(queue).collect();
        PortInfo { number: self.number, device: self.device.clone(), stats: self.stats(), queues }
    }

    pub(crate) fn stats(&self) -> PortStats {
        let c = &self.counters;
        let sum = |counter: fn(&Sender) -> &AtomicU64| {
            self.tx.iter().map(|sender| counter(sender).load(Ordering::Relaxed)).sum()
        };
        PortStats {
            rx_packets: sum(|s| &s.rx_packets),
            rx_bytes: sum(|s| &s.rx_bytes),
            tx_packets: sum(|s| &s.packets),
            tx_bytes: sum(|s| &s.bytes),
            tx_batches: sum(|s| &s.batches),
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

    /// The next table, with each port that `change` has another value for.
    pub(crate) fn map(&self, mut change: impl FnMut(&Port) -> Option<Port>) -> Self {
        let mut by_number = self.by_number.clone();
        for port in by_number.iter_mut().flatten() {
            if let Some(new) = change(port) {
                *port = Arc::new(new);
            }
        }
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
