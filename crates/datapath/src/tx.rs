//! Transmit queues of a port: handles of the device to send with, by lane, and each lane's counters.
//!
//! A lane opens its handle when it first sends to the port, so that a port which a lane never sends to costs it no
//! descriptor. The first [`EXCLUSIVE_LANES`] lanes have a handle each, which a packet thread takes out of its lock for as
//! long as it sends there; further lanes share [`SHARED_HANDLES`] handles, each behind a lock that is held for one batch.
//! So a port holds at most `EXCLUSIVE_LANES + SHARED_HANDLES` handles, however many threads there are.
//!
//! A handle that cannot be opened (no descriptor is free, say) is tried again after [`RETRY`]; packets are dropped and
//! counted until then.
//!
//! Invariants: a lane's counters are written by the lane's thread only, but for [`CALLER_LANE`], which all other threads
//! share; counters stay when a lane's thread ends.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base::DropReason;
use base::drop::DropCounters;
use netdev::{Netdev, SendReport, Tx};
use packet::Batch;
use parking_lot::Mutex;

use crate::shared::{CALLER_LANE, LANES_MAX, bump, bump_own, count_drop_in};

/// Lanes with a handle of their own, [`CALLER_LANE`] among them.
pub(crate) const EXCLUSIVE_LANES: usize = 16;
/// Handles that all other lanes share.
pub(crate) const SHARED_HANDLES: usize = 8;
/// How long after a failure a handle is opened again.
const RETRY: Duration = Duration::from_secs(1);
/// Lanes whose counters a port finds without another step: those of [`CALLER_LANE`] and of a few threads.
const NEAR: usize = 8;
/// Lanes of each further step.
const FAR: usize = 64;

/// A device's handle to send with.
#[derive(Default)]
struct Handle {
    tx: Option<Box<dyn Tx>>,
    /// When opening it failed last.
    failed: Option<Instant>,
}

impl Handle {
    /// Sends a batch, and opens the handle before if that has to be done.
    fn send(&mut self, device: &dyn Netdev, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        if self.tx.is_none() && self.failed.is_none_or(|at| at.elapsed() >= RETRY) {
            self.open(device);
        }
        match &mut self.tx {
            Some(tx) => {
                report = tx.send_batch(batch);
                report.merge(&tx.flush());
            }
            None => report.count_dropped(DropReason::OutputError, batch.len() as u64),
        }
        report
    }

    #[cold]
    fn open(&mut self, device: &dyn Netdev) {
        match device.open_tx() {
            Ok(tx) => *self = Self { tx: Some(tx), failed: None },
            Err(error) => {
                // Another try that fails is no news.
                if self.failed.replace(Instant::now()).is_none() {
                    tracing::warn!(port = device.name(), %error, "cannot send");
                }
            }
        }
    }
}

/// What a lane has sent and received at the port, and its handle.
#[derive(Default)]
#[repr(align(128))]
struct LaneTx {
    /// Empty until the lane sends first, while its thread has it ([`OwnTx`]), and where the lane shares one.
    handle: Mutex<Handle>,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_batches: AtomicU64,
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    /// There once the lane has dropped something.
    drops: OnceLock<Box<LaneDrops>>,
}

impl LaneTx {
    fn drops(&self) -> &LaneDrops {
        self.drops.get_or_init(Box::default)
    }
}

/// Drops at a port, counted by one lane.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneDrops {
    /// Packets that came in here.
    rx: DropCounters,
    /// Packets that the device was to send.
    tx: DropCounters,
}

/// Sums over all lanes.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_batches: u64,
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_drops: DropCounters,
    pub(crate) tx_drops: DropCounters,
}

type Lane = OnceLock<Arc<LaneTx>>;

/// See the module's text.
pub(crate) struct TxQueues {
    near: [Lane; NEAR],
    far: [OnceLock<Box<[Lane; FAR]>>; (LANES_MAX - NEAR).div_ceil(FAR)],
    shared: OnceLock<Arc<[Mutex<Handle>; SHARED_HANDLES]>>,
}

impl Default for TxQueues {
    fn default() -> Self {
        let lane = |_| OnceLock::new();
        Self { near: std::array::from_fn(lane), far: std::array::from_fn(|_| OnceLock::new()), shared: OnceLock::new() }
    }
}

/// How a lane adds to its counters.
pub(crate) fn adder(lane: usize) -> fn(&AtomicU64, u64) {
    if lane == CALLER_LANE { bump } else { bump_own }
}

impl TxQueues {
    fn place(&self, lane: usize) -> &Lane {
        match lane.checked_sub(NEAR) {
            None => &self.near[lane],
            Some(far) => {
                &self.far[far / FAR].get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())))[far % FAR]
            }
        }
    }

    #[inline]
    fn lane(&self, lane: usize) -> &Arc<LaneTx> {
        self.place(lane).get_or_init(Arc::default)
    }

    /// All lanes that ever moved something.
    fn lanes(&self) -> impl Iterator<Item = &LaneTx> {
        let far = self.far.iter().filter_map(OnceLock::get).flat_map(|lanes| lanes.iter());
        self.near.iter().chain(far).filter_map(OnceLock::get).map(|lane| &**lane)
    }

    /// Takes the handle of a lane for the lane's thread, if it has one of its own.
    pub(crate) fn take(&self, lane: usize) -> OwnTx {
        let of = Arc::clone(self.lane(lane));
        let source = if lane == CALLER_LANE {
            Source::Locked
        } else if lane < EXCLUSIVE_LANES {
            let handle = std::mem::take(&mut *of.handle.lock());
            Source::Taken(handle)
        } else {
            let shared = self.shared.get_or_init(|| Arc::new(std::array::from_fn(|_| Mutex::default())));
            Source::Shared(Arc::clone(shared))
        };
        OwnTx { lane, of, source }
    }

    /// Closes the handle of a lane whose thread has ended.
    pub(crate) fn close(&self, lane: usize) {
        if let Some(lane) = self.lanes_at(lane) {
            *lane.handle.lock() = Handle::default();
        }
    }

    fn lanes_at(&self, lane: usize) -> Option<&Arc<LaneTx>> {
        match lane.checked_sub(NEAR) {
            None => self.near[lane].get(),
            Some(far) => self.far.get(far / FAR)?.get()?[far % FAR].get(),
        }
    }

    /// Counts packets that a lane has received.
    #[inline]
    pub(crate) fn count_received(&self, lane: usize, packets: u64, bytes: u64) {
        let (of, add) = (self.lane(lane), adder(lane));
        add(&of.rx_packets, packets);
        add(&of.rx_bytes, bytes);
    }

    /// Counts packets that came in at the port and that a lane dropped.
    pub(crate) fn count_rx_drop(&self, lane: usize, reason: DropReason, n: u64) {
        count_drop_in(&self.lane(lane).drops().rx, lane, reason, n);
    }

    /// Counts packets that an accelerator has sent.
    pub(crate) fn count_sent_below(&self, packets: u64, bytes: u64) {
        let of = self.lane(CALLER_LANE);
        bump(&of.tx_packets, packets);
        bump(&of.tx_bytes, bytes);
    }

    /// What all lanes have sent and received.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for lane in self.lanes() {
            totals.tx_packets += lane.tx_packets.load(Ordering::Relaxed);
            totals.tx_bytes += lane.tx_bytes.load(Ordering::Relaxed);
            totals.tx_batches += lane.tx_batches.load(Ordering::Relaxed);
            totals.rx_packets += lane.rx_packets.load(Ordering::Relaxed);
            totals.rx_bytes += lane.rx_bytes.load(Ordering::Relaxed);
            if let Some(drops) = lane.drops.get() {
                totals.rx_drops.add_all(&drops.rx);
                totals.tx_drops.add_all(&drops.tx);
            }
        }
        totals
    }
}

/// A lane's transmit queue, held by the lane's thread. A handle that was taken goes back when this is dropped.
pub(crate) struct OwnTx {
    lane: usize,
    of: Arc<LaneTx>,
    source: Source,
}

/// Where the handle is.
enum Source {
    /// Here, for as long as the thread has it.
    Taken(Handle),
    /// Behind the lane's lock, as several threads use the lane.
    Locked,
    /// Among those that further lanes share.
    Shared(Arc<[Mutex<Handle>; SHARED_HANDLES]>),
}

impl OwnTx {
    /// Counts packets that the device dropped when it was to send them.
    pub(crate) fn count_drop(&self, reason: DropReason, n: u64) {
        count_drop_in(&self.of.drops().tx, self.lane, reason, n);
    }

    /// Returns why the device would drop the next `n` packets, if it knows already ([`Tx::refuses`]). Only a handle that the
    /// thread has to itself is asked: the others would cost a lock.
    pub(crate) fn refuses(&mut self, n: usize) -> Option<DropReason> {
        match &mut self.source {
            Source::Taken(handle) => handle.tx.as_mut()?.refuses(n),
            Source::Locked | Source::Shared(_) => None,
        }
    }

    /// Sends a batch and counts it.
    pub(crate) fn send(&mut self, device: &dyn Netdev, batch: &mut Batch) -> SendReport {
        let report = match &mut self.source {
            Source::Taken(handle) => handle.send(device, batch),
            Source::Locked => self.of.handle.lock().send(device, batch),
            // Always the same one, so that the lane's packets stay in order.
            Source::Shared(handles) => handles[self.lane % SHARED_HANDLES].lock().send(device, batch),
        };
        self.count(&report);
        adder(self.lane)(&self.of.tx_batches, 1);
        report
    }

    /// Counts packets as sent.
    pub(crate) fn count(&self, report: &SendReport) {
        let add = adder(self.lane);
        add(&self.of.tx_packets, report.sent);
        add(&self.of.tx_bytes, report.sent_bytes);
    }
}

impl Drop for OwnTx {
    fn drop(&mut self) {
        if let Source::Taken(handle) = &mut self.source {
            *self.of.handle.lock() = std::mem::take(handle);
        }
    }
}

impl fmt::Debug for OwnTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnTx").field("lane", &self.lane).finish_non_exhaustive()
    }
}
