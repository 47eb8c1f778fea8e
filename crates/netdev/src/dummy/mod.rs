//! Open vSwitch's `dummy` interfaces. Their frames come from a control command or from another dummy device over a
//! socket, and the frames that they send go to capture files and sockets.
//!
//! Options: `pcap` (all frames), `rxq_pcap` (frames received), `tx_pcap` (frames sent), `stream` and `pstream`
//! (sockets, see [`stream`]), `ifindex`, and for type `dummy-pmd` also `n_rxq` and `numa_id`. Without a socket, frames
//! count as sent. The administrative state does not stop frames, as in Open vSwitch.
//!
//! The [`Registry`] that opens the devices assigns addresses in sequence, aa:55:aa:55:NN:NN.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};

use base::{DropReason, MacAddr};
use packet::{Batch, Packet};
use parking_lot::Mutex;

use crate::change::Changes;
use crate::device::{Netdev, NetdevError, Options, Rx, SendReport, Tx};
use crate::pool;
use crate::queue::FrameQueue;
use crate::software;
use crate::status::{LinkStatus, NetdevStats, offloads};

pub mod command;
pub mod stream;

use stream::Streams;

/// Maximum number of frames that wait in a receive queue; more are dropped and counted.
const QUEUE_LEN_MAX: usize = 1024;
/// Maximum number of receive queues of a `dummy-pmd` device.
const N_RXQ_MAX: usize = 64;
const ETH_HEADER_LEN: usize = 14;
const VLAN_TAG_LEN: usize = 4;

/// Devices by name. Each removes itself when it is dropped.
type Names = Mutex<BTreeMap<String, Weak<Dummy>>>;

/// The dummy devices of a process, by name.
#[derive(Debug, Default)]
pub struct Registry {
    devices: Arc<Names>,
    next_mac: AtomicU16,
}

impl Registry {
    /// An empty registry. The first device gets the address aa:55:aa:55:00:00.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the device `name`, which exists as long as the `Arc`. `kind` is its interface type: `dummy`,
    /// `dummy-pmd`, or `internal` for the local port of a bridge with `datapath_type=dummy`.
    pub fn open(&self, name: &str, kind: &'static str) -> Result<Arc<Dummy>, NetdevError> {
        let mut devices = self.devices.lock();
        if devices.get(name).is_some_and(|device| device.strong_count() > 0) {
            return Err(NetdevError::Exists { name: name.to_owned() });
        }
        let [high, low] = self.next_mac.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mac = MacAddr([0xaa, 0x55, 0xaa, 0x55, high, low]);
        let device = Arc::new(Dummy::new(name, kind, mac, Arc::clone(&self.devices))?);
        devices.insert(name.to_owned(), Arc::downgrade(&device));
        Ok(device)
    }

    /// The device of this name, if it is open.
    pub fn find(&self, name: &str) -> Option<Arc<Dummy>> {
        self.devices.lock().get(name).and_then(Weak::upgrade)
    }

    /// All open devices, sorted by name.
    pub fn devices(&self) -> Vec<Arc<Dummy>> {
        self.devices.lock().values().filter_map(Weak::upgrade).collect()
    }
}

/// A dummy device.
#[derive(Debug)]
pub struct Dummy {
    name: String,
    kind: &'static str,
    port: Arc<Port>,
    changes: Changes,
    config: Mutex<Config>,
    streams: Mutex<Option<Streams>>,
    /// The registry's devices.
    names: Arc<Names>,
}

impl Drop for Dummy {
    fn drop(&mut self) {
        let mut names = self.names.lock();
        // Another device may have the name by now.
        if names.get(&self.name).is_some_and(|device| device.strong_count() == 0) {
            names.remove(&self.name);
        }
    }
}

#[derive(Debug)]
struct Config {
    mac: MacAddr,
    up: bool,
    ifindex: u32,
    numa_id: usize,
}

/// The state of a dummy device that frames use, shared with its queues and its sockets' thread.
#[derive(Debug)]
pub(crate) struct Port {
    name: String,
    state: Mutex<PortState>,
}

#[derive(Debug)]
struct PortState {
    mtu: u32,
    queues: Vec<(Arc<FrameQueue>, Counter)>,
    rx_dropped: u64,
    tx: Counter,
    tx_dropped: u64,
    captures: Captures,
    links: Option<Arc<stream::Links>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    packets: u64,
    bytes: u64,
}

impl Counter {
    fn count(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

/// The capture files of a dummy device. A file that two options name is opened once.
#[derive(Debug, Default)]
struct Captures {
    files: Vec<(PathBuf, crate::pcap::Writer<std::fs::File>)>,
    rx: Option<usize>,
    tx: Option<usize>,
}

impl Captures {
    /// Opens the files that the options name; files that are already open stay open.
    fn set(&mut self, device: &str, options: &Options) {
        let mut old = std::mem::take(self);
        let both = options.get("pcap");
        self.rx = both.or(options.get("rxq_pcap")).and_then(|path| self.open(device, path, &mut old));
        self.tx = both.or(options.get("tx_pcap")).and_then(|path| self.open(device, path, &mut old));
    }

    fn open(&mut self, device: &str, path: &str, old: &mut Self) -> Option<usize> {
        let path = Path::new(path);
        if let Some(at) = self.files.iter().position(|(p, _)| p == path) {
            return Some(at);
        }
        let file = match old.files.iter().position(|(p, _)| p == path) {
            Some(at) => Ok(old.files.swap_remove(at).1),
            None => crate::pcap::Writer::append(path),
        };
        match file {
            Ok(file) => {
                self.files.push((path.to_owned(), file));
                Some(self.files.len() - 1)
            }
            Err(e) => {
                let errno = crate::device::errno_text(&e);
                tracing::warn!(target: "netdev_dummy", "{device}: cannot open capture file {} ({errno})", path.display());
                None
            }
        }
    }

    /// Writes a frame to a file. If that fails, logs a line and closes the file.
    fn write(&mut self, device: &str, at: Option<usize>, frame: &[u8]) {
        let Some((path, file)) = at.and_then(|at| self.files.get_mut(at)) else { return };
        if let Err(e) = file.write(frame) {
            let errno = crate::device::errno_text(&e);
            tracing::warn!(target: "netdev_dummy", "{device}: capture to {} ends ({errno})", path.display());
            for end in [&mut self.rx, &mut self.tx] {
                if *end == at {
                    *end = None;
                }
            }
        }
    }
}

impl Port {
    /// Adds frames to receive queue `queue` at once. Returns whether the queue exists.
    pub(crate) fn receive(&self, packets: impl IntoIterator<Item = Packet>, queue: usize) -> bool {
        let mut state = self.state.lock();
        let PortState { queues, captures, rx_dropped, .. } = &mut *state;
        let Some((frames, counter)) = queues.get_mut(queue) else { return false };
        let mut refused = Batch::new();
        let (mut n, mut bytes) = (0, 0);
        let seen = packets.into_iter().inspect(|packet| {
            captures.write(&self.name, captures.rx, packet.data());
            (n, bytes) = (n + 1, bytes + packet.len() as u64);
        });
        frames.push_all(seen, &mut refused);
        let lost = refused.len() as u64;
        counter.count(n - lost, bytes - refused.iter().map(|packet| packet.len() as u64).sum::<u64>());
        *rx_dropped += lost;
        true
    }

    fn send(&self, packet: &Packet, report: &mut SendReport) {
        let mut state = self.state.lock();
        let frame = packet.data();
        let tagged = matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
        let len_max = state.mtu as usize + ETH_HEADER_LEN + if tagged { VLAN_TAG_LEN } else { 0 };
        let reason = match frame.len() {
            n if n < ETH_HEADER_LEN => Some(DropReason::Malformed),
            n if n > len_max => Some(DropReason::TooBig),
            _ => None,
        };
        if let Some(reason) = reason {
            state.tx_dropped += 1;
            report.count_dropped(reason, 1);
            return;
        }
        state.tx.count(1, frame.len() as u64);
        report.count_sent(frame.len());
        let captures = &mut state.captures;
        captures.write(&self.name, captures.tx, frame);
        if let Some(links) = &state.links {
            links.send(frame);
        }
    }
}

impl Dummy {
    fn new(name: &str, kind: &'static str, mac: MacAddr, names: Arc<Names>) -> Result<Self, NetdevError> {
        let queue =
            FrameQueue::new(QUEUE_LEN_MAX).map_err(|source| NetdevError::Open { name: name.to_owned(), source })?;
        let state = PortState {
            mtu: 1500,
            queues: vec![(Arc::new(queue), Counter::default())],
            rx_dropped: 0,
            tx: Counter::default(),
            tx_dropped: 0,
            captures: Captures::default(),
            links: None,
        };
        Ok(Self {
            name: name.to_owned(),
            kind,
            port: Arc::new(Port { name: name.to_owned(), state: Mutex::new(state) }),
            changes: Changes::default(),
            config: Mutex::new(Config { mac, up: true, ifindex: 0, numa_id: 0 }),
            streams: Mutex::default(),
            names,
        })
    }

    /// Adds a frame to receive queue `queue` as if it had been received. Returns whether the queue exists.
    pub fn receive(&self, packet: Packet, queue: usize) -> bool {
        self.receive_all([packet], queue)
    }

    /// The same for several frames, which a packet thread finds together.
    pub fn receive_all(&self, packets: impl IntoIterator<Item = Packet>, queue: usize) -> bool {
        self.port.receive(packets, queue)
    }

    /// Whether the socket of option `stream` is connected; `None` without that option.
    pub fn connected(&self) -> Option<bool> {
        self.streams.lock().as_ref().and_then(Streams::connected)
    }

    fn set_queues(&self, options: &Options) -> Result<(), NetdevError> {
        if self.kind != "dummy-pmd" {
            return Ok(());
        }
        let text = options.get("n_rxq").map_or("1", String::as_str);
        let n = match text.parse::<usize>() {
            Ok(n) if n <= N_RXQ_MAX => n.max(1),
            _ => {
                let problem = format!("{text:?} is not a number up to {N_RXQ_MAX}");
                return Err(NetdevError::Option { name: self.name.clone(), option: "n_rxq", problem });
            }
        };
        let mut state = self.port.state.lock();
        state.queues.truncate(n);
        while state.queues.len() < n {
            let queue = FrameQueue::new(QUEUE_LEN_MAX)
                .map_err(|source| NetdevError::Open { name: self.name.clone(), source })?;
            state.queues.push((Arc::new(queue), Counter::default()));
        }
        Ok(())
    }

    fn set_streams(&self, options: &Options) -> Result<(), NetdevError> {
        let mut streams = self.streams.lock();
        let (active, passive) = (options.get("stream"), options.get("pstream"));
        if streams.as_ref().is_some_and(|s| s.is_for(active, passive)) {
            return Ok(());
        }
        // Close the old sockets before opening new ones, as they may have the same path.
        self.port.state.lock().links = None;
        *streams = None;
        if active.is_some() || passive.is_some() {
            let new = Streams::start(&self.name, active.cloned(), passive.cloned(), Arc::downgrade(&self.port))?;
            self.port.state.lock().links = Some(new.links());
            *streams = Some(new);
        }
        Ok(())
    }
}

impl Netdev for Dummy {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        let number = |key| options.get(key).and_then(|n| n.parse::<u32>().ok());
        let (ifindex, numa_id) = (number("ifindex").unwrap_or(0), number("numa_id").unwrap_or(0) as usize);
        let mut config = self.config.lock();
        (config.ifindex, config.numa_id) = (ifindex, numa_id);
        drop(config);
        self.port.state.lock().captures.set(&self.name, options);
        self.set_queues(options)?;
        self.set_streams(options)
    }

    fn n_rxq(&self) -> usize {
        self.port.state.lock().queues.len()
    }

    fn numa_id(&self) -> Option<usize> {
        (self.kind == "dummy-pmd").then(|| self.config.lock().numa_id)
    }

    fn is_pmd(&self) -> bool {
        self.kind == "dummy-pmd"
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        let state = self.port.state.lock();
        match state.queues.get(queue) {
            Some((frames, _)) => Ok(Box::new(DummyRx(frames.clone()))),
            None => Err(NetdevError::NoQueue { name: self.name.clone(), queue, n_rxq: state.queues.len() }),
        }
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        Ok(Box::new(DummyTx(self.port.clone())))
    }

    fn mac(&self) -> MacAddr {
        self.config.lock().mac
    }

    fn set_mac(&self, mac: MacAddr) -> Result<(), NetdevError> {
        let changed = std::mem::replace(&mut self.config.lock().mac, mac) != mac;
        if changed {
            self.changes.notify();
        }
        Ok(())
    }

    fn mtu(&self) -> Option<u32> {
        Some(self.port.state.lock().mtu)
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError> {
        let changed = std::mem::replace(&mut self.port.state.lock().mtu, mtu) != mtu;
        if changed {
            self.changes.notify();
        }
        Ok(())
    }

    fn set_up(&self, up: bool) -> Result<(), NetdevError> {
        let changed = std::mem::replace(&mut self.config.lock().up, up) != up;
        if changed {
            self.changes.notify();
        }
        Ok(())
    }

    fn status(&self) -> LinkStatus {
        let config = self.config.lock();
        // Dummies finish frames before they leave, as capture files and peers cannot carry offload flags.
        let details = offloads(&[]).collect();
        LinkStatus {
            admin_up: config.up,
            carrier: config.up,
            ifindex: Some(config.ifindex),
            details,
            ..LinkStatus::default()
        }
    }

    fn stats(&self) -> NetdevStats {
        let state = self.port.state.lock();
        let mut rx = Counter::default();
        let mut custom = Vec::new();
        for (queue, (_, counter)) in state.queues.iter().enumerate() {
            rx.packets += counter.packets;
            rx.bytes += counter.bytes;
            custom.push((format!("rx_q{queue}_packets"), counter.packets));
            custom.push((format!("rx_q{queue}_bytes"), counter.bytes));
        }
        // Open vSwitch's dummy devices have these to test names that drivers choose.
        custom.extend([1, 2].map(|n| (format!("rx_custom_packets_{n}"), rx.packets)));
        custom.push(("tx_q0_packets".to_owned(), state.tx.packets));
        custom.push(("tx_q0_bytes".to_owned(), state.tx.bytes));
        // Open vSwitch's dummy devices do not count drops, so drops are shown only if there are any.
        let nonzero = |n: u64| (n > 0).then_some(n);
        NetdevStats {
            rx_packets: Some(rx.packets),
            rx_bytes: Some(rx.bytes),
            tx_packets: Some(state.tx.packets),
            tx_bytes: Some(state.tx.bytes),
            rx_dropped: nonzero(state.rx_dropped),
            tx_dropped: nonzero(state.tx_dropped),
            custom,
            ..NetdevStats::default()
        }
    }

    fn queues(&self) -> Vec<u32> {
        // Open vSwitch's dummy devices pretend to have one.
        vec![0]
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

struct DummyRx(Arc<FrameQueue>);

impl Rx for DummyRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        Ok(self.0.pop(out, max))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.fd())
    }

    fn drain(&mut self) -> io::Result<()> {
        self.0.clear();
        Ok(())
    }
}

struct DummyTx(Arc<Port>);

impl Tx for DummyTx {
    fn send_batch(&mut self, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        let mut finished = Batch::new();
        for packet in batch.drain(..) {
            if software::is_finished(&packet) {
                self.0.send(&packet, &mut report);
                pool::recycle(packet);
                continue;
            }
            // Capture files and peers cannot carry offload flags, so the work is done here.
            if let Err(packet) = software::finish(packet, &mut finished) {
                report.count_dropped(DropReason::OutputError, 1);
                pool::recycle(packet);
            }
            for packet in &finished {
                self.0.send(packet, &mut report);
            }
            pool::recycle_all(&mut finished);
        }
        report
    }
}

#[cfg(test)]
mod tests;
