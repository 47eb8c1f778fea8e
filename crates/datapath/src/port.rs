//! Ports: a device with its number, its queues opened for the packet threads, and its counters; and the table of them
//! that is published to all threads.
//!
//! A [`Port`] opens its receive queues when it is added, so that a device that cannot be opened is an error for the caller
//! that adds it. Each receive queue belongs to at most one thread. Transmit queues are in [`crate::tx`]: a thread opens
//! one when it first sends to the port. A packet thread takes its own queues out of their locks and puts them back when
//! they are no longer its own: it takes no lock while packets flow.
//!
//! A [`PortTable`] is split into chunks, so that a change copies one chunk and the list of chunks, and a thread that takes
//! over a new table visits only the ports that changed ([`PortTable::changes_since`]).
//!
//! Invariants: a table never changes. A change publishes a new one with a higher version, in which changed ports are new
//! values that share queues and counters with the old ones; a port lives for as long as some thread still uses a table
//! with it. Between two tables in which a queue has different owners there is one in which it has none, and which all
//! threads have taken over ([`crate::pmd`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base::{DpPort, DropReason};
use dpif::DpifError;
use dpif::{PortInfo, PortStats, QueueInfo};
use netdev::qos::PortQos;
use netdev::{Netdev, Rx, SendReport};
use packet::segment::longest_frame;
use parking_lot::Mutex;
use tunnel::header::Pop;

use crate::history::History;
use crate::shared::SharedState;
use crate::tx::{OwnTx, TxQueues};

/// Port numbers are below this.
pub const PORTS_MAX: u32 = 0xffff;

/// Ethernet addresses and type, in bytes: what a frame has beside its payload.
const ETHERNET_HEADER: usize = 14;
const VLAN_HEADER: usize = 4;

/// A receive queue, opened.
pub(crate) struct Receiver {
    /// The owning thread takes it out and puts it back when the queue is no longer its own.
    pub(crate) handle: Mutex<Option<Box<dyn Rx>>>,
    /// The device reported an error; the queue is not polled until this is cleared.
    pub(crate) broken: AtomicBool,
    /// Nanoseconds that its packets have taken, written by the owner.
    pub(crate) busy_ns: AtomicU64,
    /// Recent values of `busy_ns`.
    pub(crate) history: Mutex<History>,
}

/// The thread that polls a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) lane: usize,
    /// The id of the thread in output.
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
        let handle = Mutex::new(Some(device.open_rx(queue)?));
        let (broken, busy_ns, history) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
        Ok(Self { receiver: Arc::new(Receiver { handle, broken, busy_ns, history }), owner: None })
    }
}

/// A port number with the version in which the port was added, as numbers are reused.
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
    /// For the port of tunnels: the headers of its packets, and what counts them.
    pub(crate) tunnel: Option<Arc<TunnelPort>>,
    pub(crate) rx: Vec<RxQueue>,
    /// The node of the device when queues were assigned last.
    pub(crate) numa: Option<usize>,
    /// The cores to which queues are pinned.
    pub(crate) affinity: Arc<BTreeMap<usize, usize>>,
    /// Shaping of packets that leave, and policing of packets that come in.
    pub(crate) qos: Arc<PortQos>,
    tx: Arc<TxQueues>,
    mtu: Arc<Mtu>,
}

/// What a port of tunnels has.
pub(crate) struct TunnelPort {
    pub(crate) headers: Pop,
    /// The number of the next header that has one.
    pub(crate) sequence: AtomicU32,
}

/// The MTU as of `seq`, 0 for no limit.
struct Mtu {
    bytes: AtomicU32,
    seq: AtomicU64,
}

impl Port {
    /// Opens the receive queues of `device`. They have no owner yet.
    pub(crate) fn open(id: PortId, device: Arc<dyn Netdev>, headers: Option<Pop>) -> Result<Self, DpifError> {
        let (bytes, seq) = (AtomicU32::new(device.mtu().unwrap_or(0)), AtomicU64::new(device.change_seq()));
        let mtu = Arc::new(Mtu { bytes, seq });
        let (affinity, tx, qos) = (Arc::default(), Arc::default(), Arc::default());
        let numa = device.numa_id();
        let tunnel = headers.map(|headers| Arc::new(TunnelPort { headers, sequence: AtomicU32::new(0) }));
        let mut port = Self { id, number: id.number, device, tunnel, rx: Vec::new(), numa, affinity, qos, tx, mtu };
        port.open_queues()?;
        Ok(port)
    }

    /// Opens receive queues that were added to the device, and drops those that it no longer has.
    pub(crate) fn open_queues(&mut self) -> Result<(), DpifError> {
        let n = self.device.n_rxq();
        self.rx.truncate(n);
        for queue in self.rx.len()..n {
            self.rx.push(RxQueue::open(&*self.device, queue)?);
        }
        Ok(())
    }

    /// Closes the transmit queue of a lane whose thread has ended. Its counters stay in the sums.
    pub(crate) fn close_lane(&self, lane: usize) {
        self.tx.close(lane);
    }

    /// Whether any frame of `len` bytes fits.
    #[inline]
    pub(crate) fn fits_len(&self, len: usize) -> bool {
        let mtu = self.mtu.bytes.load(Ordering::Relaxed) as usize;
        mtu == 0 || len <= mtu.saturating_add(ETHERNET_HEADER)
    }

    /// Whether a frame fits the MTU (VLAN tags do not count), or will be segmented. The segments of a packet that has left the host fit
    /// its path; those that have got outer headers here may not fit.
    pub(crate) fn fits(&self, packet: &packet::Packet) -> bool {
        self.fits_mtu(packet) || {
            // The MTU may have grown.
            self.refresh();
            self.fits_mtu(packet)
        }
    }

    fn fits_mtu(&self, packet: &packet::Packet) -> bool {
        let tags = VLAN_HEADER * vlan_tags(packet.data());
        self.fits_len(packet.len() - tags)
            || packet.offload.gso.is_some() && (packet.outer().is_none() || self.fits_len(longest_frame(packet) - tags))
    }

    /// The length of the longest frame with as many VLAN tags as `packet`.
    pub(crate) fn len_max(&self, packet: &packet::Packet) -> usize {
        let mtu = self.mtu.bytes.load(Ordering::Relaxed) as usize;
        mtu.saturating_add(ETHERNET_HEADER + VLAN_HEADER * vlan_tags(packet.data()))
    }

    /// Reads the MTU again if the device changed since.
    fn refresh(&self) {
        let seq = self.device.change_seq();
        // A thread that only sends writes no shared cache line.
        if self.mtu.seq.load(Ordering::Relaxed) != seq && self.mtu.seq.swap(seq, Ordering::Relaxed) != seq {
            self.mtu.bytes.store(self.device.mtu().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Takes the transmit queue of `lane` for the lane's thread.
    pub(crate) fn take_tx(&self, lane: usize) -> OwnTx {
        self.tx.take(lane)
    }

    /// Sends a batch as `lane` and counts it. `own` is the transmit queue that the lane's thread has taken.
    pub(crate) fn send(&self, own: &mut OwnTx, batch: &mut packet::Batch) -> SendReport {
        let report = if self.qos.is_shaping() { self.send_shaped(own, batch) } else { own.send(&*self.device, batch) };
        for (reason, n) in &report.dropped {
            own.count_drop(*reason, *n);
        }
        self.refresh();
        report
    }

    /// Passes a batch through the policer or the shaper of the port. The shaper's thread sends what it queues.
    #[cold]
    fn send_shaped(&self, own: &mut OwnTx, batch: &mut packet::Batch) -> SendReport {
        let mut report = self.qos.send(batch);
        own.count(&report);
        if !batch.is_empty() {
            report.merge(&own.send(&*self.device, batch));
        }
        report
    }

    /// Removes packets of `batch`, received by a lane, that exceed the ingress policing, and counts them.
    #[cold]
    pub(crate) fn police(&self, shared: &SharedState, batch: &mut packet::Batch) {
        let dropped = self.qos.police(batch);
        if dropped > 0 {
            shared.count_drop(Some(self), DropReason::IngressPolicing, dropped);
        }
    }

    /// Counts packets that a lane has received.
    pub(crate) fn count_received(&self, lane: usize, packets: u64, bytes: u64) {
        self.tx.count_received(lane, packets, bytes);
    }

    /// Counts packets that were received here and dropped by a lane.
    pub(crate) fn count_rx_drop(&self, lane: usize, reason: DropReason, n: u64) {
        self.tx.count_rx_drop(lane, reason, n);
    }

    /// Counts packets that an accelerator forwarded from here to another port.
    pub(crate) fn count_offloaded(&self, to: &Self, packets: u64, (received, sent): (u64, u64)) {
        self.tx.count_received(crate::shared::CALLER_LANE, packets, received);
        to.tx.count_sent_below(packets, sent);
    }

    /// The port in a list of ports.
    pub(crate) fn info(&self) -> PortInfo {
        let queue = |q: &RxQueue| QueueInfo {
            core_id: q.owner.map(|owner| owner.core_id),
            enabled: !q.receiver.broken.load(Ordering::Relaxed),
        };
        let queues = self.rx.iter().map(queue).collect();
        PortInfo { number: self.number, device: self.device.clone(), stats: self.stats(), queues }
    }

    pub(crate) fn stats(&self) -> PortStats {
        let moved = self.tx.totals();
        PortStats {
            rx_packets: moved.rx_packets,
            rx_bytes: moved.rx_bytes,
            tx_packets: moved.tx_packets,
            tx_bytes: moved.tx_bytes,
            tx_batches: moved.tx_batches,
            rx_drops: moved.rx_drops.nonzero().collect(),
            tx_drops: moved.tx_drops.nonzero().collect(),
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

/// Number of VLAN tags before a frame's Ethernet type, at most two.
fn vlan_tags(frame: &[u8]) -> usize {
    let tag_at = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    [12, 16].into_iter().take_while(|at| tag_at(*at)).count()
}

/// Ports of a chunk of the table: a change copies some √[`PORTS_MAX`] pointers of chunks and as many of ports.
const CHUNK: usize = 256;

/// Neighbouring ports of a table.
#[derive(Clone, Debug)]
struct Chunk {
    ports: Vec<Option<Arc<Port>>>,
    /// Number of ports in the chunk.
    used: usize,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { ports: vec![None; CHUNK], used: 0 }
    }
}

/// All ports at one moment.
#[derive(Debug, Default)]
pub(crate) struct PortTable {
    /// Higher than any earlier table's.
    pub(crate) version: u64,
    /// A port is in chunk `number / CHUNK`, at `number % CHUNK`.
    chunks: Vec<Arc<Chunk>>,
}

fn place_of(number: DpPort) -> (usize, usize) {
    let number = number.0 as usize;
    (number / CHUNK, number % CHUNK)
}

impl PortTable {
    #[inline]
    pub(crate) fn port(&self, number: DpPort) -> Option<&Arc<Port>> {
        let (chunk, at) = place_of(number);
        self.chunks.get(chunk)?.ports.get(at)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.chunks.iter().flat_map(|chunk| chunk.ports.iter().flatten())
    }

    /// The lowest number from 1 that no port has.
    pub(crate) fn free_number(&self) -> Option<DpPort> {
        let full = self.chunks.iter().take_while(|chunk| chunk.used == CHUNK).count();
        let first = (full * CHUNK).max(1) as u32;
        (first..PORTS_MAX).map(DpPort).find(|n| self.port(*n).is_none())
    }

    /// Replaces what is at `number`.
    fn set(&mut self, number: DpPort, port: Option<Arc<Port>>) {
        let (chunk, at) = place_of(number);
        if chunk >= self.chunks.len() {
            if port.is_none() {
                return;
            }
            self.chunks.resize_with(chunk + 1, Arc::default);
        }
        let chunk = Arc::make_mut(&mut self.chunks[chunk]);
        chunk.used += usize::from(port.is_some());
        chunk.used -= usize::from(std::mem::replace(&mut chunk.ports[at], port).is_some());
    }

    fn next(&self) -> Self {
        Self { version: self.version + 1, chunks: self.chunks.clone() }
    }

    /// The next table, with `port` at its number.
    pub(crate) fn with(&self, port: Arc<Port>) -> Self {
        let mut next = self.next();
        next.set(port.number, Some(port));
        next
    }

    /// The next table, in which each port for which `change` returns a new value is replaced by it.
    pub(crate) fn map(&self, mut change: impl FnMut(&Port) -> Option<Port>) -> Self {
        let mut next = self.next();
        for port in self.iter() {
            if let Some(new) = change(port) {
                next.set(port.number, Some(Arc::new(new)));
            }
        }
        next
    }

    /// The next table, without ports.
    pub(crate) fn emptied(&self) -> Self {
        Self { version: self.version + 1, chunks: Vec::new() }
    }

    /// The next table, without the port of this number.
    pub(crate) fn without(&self, number: DpPort) -> Self {
        let mut next = self.next();
        next.set(number, None);
        next
    }

    /// The ports that differ between `old` and this table, each as it was and as it is. Chunks that both tables share are
    /// not visited.
    pub(crate) fn changes_since<'a>(
        &'a self,
        old: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a Arc<Port>>, Option<&'a Arc<Port>>)> {
        let chunks = (0..self.chunks.len().max(old.chunks.len())).filter_map(|chunk| {
            let (was, is) = (old.chunks.get(chunk), self.chunks.get(chunk));
            let shared = matches!((was, is), (Some(was), Some(is)) if Arc::ptr_eq(was, is));
            (!shared).then_some((was, is))
        });
        let ports = chunks.flat_map(|(was, is)| {
            let at = |chunk: Option<&'a Arc<Chunk>>, at: usize| chunk.and_then(|chunk| chunk.ports[at].as_ref());
            (0..CHUNK).map(move |i| (at(was, i), at(is, i)))
        });
        ports.filter(|(was, is)| match (was, is) {
            (Some(was), Some(is)) => !Arc::ptr_eq(was, is),
            (None, None) => false,
            _ => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use netdev::dummy::Registry;

    /// A port of this number with the `n`-th device.
    fn port(registry: &Registry, number: u32, n: u64) -> Arc<Port> {
        let device = registry.open(&format!("p{n}"), "dummy").expect("opens");
        Arc::new(Port::open(PortId { number: DpPort(number), since: 0 }, device, None).expect("opens"))
    }

    #[test]
    fn a_table_agrees_with_a_map_and_lists_what_changed() {
        let (mut rng, rounds) = (Rng::seeded(5), 3000);
        let registry = Registry::new();
        let mut twin: BTreeMap<u32, Arc<Port>> = BTreeMap::new();
        let (mut table, mut before) = (PortTable::default(), (PortTable::default(), twin.clone()));
        for round in 0..rounds {
            let below = if rng.below(2) == 0 { 30 } else { 3 * CHUNK as u64 };
            let number = rng.below(below) as u32;
            match rng.below(4) {
                0 => {
                    table = table.without(DpPort(number));
                    twin.remove(&number);
                }
                1 => {
                    let new = |port: &Port| port.number.0.is_multiple_of(5).then(|| port.clone());
                    table = table.map(new);
                    for (number, port) in &mut twin {
                        if number.is_multiple_of(5) {
                            *port = Arc::clone(table.port(DpPort(*number)).expect("is there"));
                        }
                    }
                }
                _ => {
                    let number = if rng.below(2) == 0 { table.free_number().expect("some").0 } else { number };
                    twin.entry(number).or_insert_with(|| {
                        let new = port(&registry, number, round);
                        table = table.with(Arc::clone(&new));
                        new
                    });
                }
            }
            assert!(table.iter().map(|p| p.number.0).eq(twin.keys().copied()));
            assert_eq!(table.free_number().map(|n| n.0), (1..PORTS_MAX).find(|n| !twin.contains_key(n)));
            if rng.below(8) == 0 {
                let (old, old_twin) = &before;
                let address = |port: &Arc<Port>| Arc::as_ptr(port) as usize;
                let changed: Vec<_> = table
                    .changes_since(old)
                    .map(|(was, is)| (was.or(is).map(|p| p.number.0), was.map(address), is.map(address)))
                    .collect();
                let numbers = old_twin.keys().chain(twin.keys()).copied().collect::<std::collections::BTreeSet<_>>();
                let expected: Vec<_> = numbers
                    .into_iter()
                    .map(|n| (Some(n), old_twin.get(&n).map(address), twin.get(&n).map(address)))
                    .filter(|(_, was, is)| was != is)
                    .collect();
                assert_eq!(changed, expected);
                before = (table.next(), twin.clone());
            }
        }
        tally::report!("{rounds} changes");
    }
}
