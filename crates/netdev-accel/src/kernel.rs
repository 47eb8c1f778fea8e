//! The accelerator: maps that all ports share, and a pair of programs for each port.
//!
//! Invariants: an entry of `flows` exists only while its verdict does, and under a mask of its port. Data that
//! programs read changes only when none of them can still be using it: after a removal, and after writing a mask,
//! the accelerator waits until no processor runs a program that began before ([`Maps::settle`]).

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use netdev::accelerate::{
    AcceleratedPort, Accelerator, Capacity, Forwarded, Handle, Network, PLAIN_WORDS, Refusal, Verdict,
};
use netdev::{Netdev, device::errno_text};
use netdev_linux::bpf::{self, Hash, Mapped, Point, ProgramKind};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::program::{
    self, COUNTS_WORDS, FLOWS_MAX, HEADERS, KEY_WORDS, MASKS_MAX, MASKS_WORDS, PORTS_MAX, PROCESSOR_WORDS,
};

/// Polls of a busy processor before another way of waiting.
const SPINS: usize = 4096;
/// Time limit for a processor if the kernel cannot report the end of programs.
const PATIENCE: Duration = Duration::from_millis(100);
/// Length of an Ethernet header, which MTUs exclude.
const ETHERNET_HEADER: u32 = 14;

/// Forwards socket buffers by programs at tcx (Linux 6.6).
#[derive(Debug)]
pub struct Tcx {
    maps: Arc<Maps>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) processors: Mapped<PROCESSOR_WORDS>,
    masks: Mapped<MASKS_WORDS>,
    ports: Mapped<1>,
    counts: Mapped<COUNTS_WORDS>,
    /// By network.
    flows: [Hash; NETWORKS],
    /// Ports whose devices changed since their last inspection.
    changed: Vec<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    ports: Vec<Option<Port>>,
    /// By handle.
    flows: Vec<Option<Flow>>,
    /// Unused places in `flows`.
    free: Vec<Handle>,
    /// Entries in the maps of flows, by network.
    keys: [HashSet<Key>; NETWORKS],
}

/// The key of an entry, padded with zeros behind the words of its network.
type Key = [u64; KEY_WORDS];

const NETWORKS: usize = Network::ALL.len();

#[derive(Debug)]
struct Port {
    device: Arc<dyn Netdev>,
    /// By network.
    masks: [[Mask; MASKS_MAX]; NETWORKS],
    /// The program at tcx, attached until this is closed.
    forwarder: OwnedFd,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mask {
    words: [u64; PLAIN_WORDS],
    /// Number of verdicts under it; 0 for a free entry.
    flows: usize,
}

#[derive(Debug)]
struct Flow {
    from: AcceleratedPort,
    /// By network.
    entries: [Option<Entry>; NETWORKS],
}

/// The position of a verdict among those of a network.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    mask: usize,
    /// The bits of the mask.
    words: [u64; PLAIN_WORDS],
}

impl Maps {
    pub(crate) fn new() -> io::Result<Self> {
        let processors = bpf::processors()?;
        Ok(Self {
            processors: Mapped::new(processors, "flowstone_cpus")?,
            masks: Mapped::new(PORTS_MAX, "flowstone_masks")?,
            ports: Mapped::new(PORTS_MAX, "flowstone_ports")?,
            counts: Mapped::new(processors * FLOWS_MAX, "flowstone_count")?,
            flows: [Self::flows(Network::Ipv4, "flowstone_flow4")?, Self::flows(Network::Ipv6, "flowstone_flow6")?],
            changed: (0..PORTS_MAX).map(|_| AtomicBool::new(false)).collect(),
        })
    }

    fn flows(network: Network, title: &str) -> io::Result<Hash> {
        Hash::new(program::key_words(network), FLOWS_MAX as u32, title)
    }

    /// Removes the entries of a verdict.
    fn remove_entries(&self, entries: &[Option<Entry>; NETWORKS]) {
        for (network, entry) in each(entries) {
            // Fails only for an entry that does not exist.
            let _ = self.flows[network as usize].remove(&entry.key[..program::key_words(network)]);
        }
    }

    pub(crate) fn descriptors(&self) -> program::Maps {
        program::Maps {
            processors: self.processors.descriptor(),
            masks: self.masks.descriptor(),
            ports: self.ports.descriptor(),
            counts: self.counts.descriptor(),
            flows: self.flows.each_ref().map(Hash::descriptor),
        }
    }

    /// Waits until no processor works on a frame that arrived before this call.
    fn settle(&self) {
        // A program that marks its processor as busy after this check does not find entries that were removed before it.
        fence(Ordering::SeqCst);
        let busy: Vec<(usize, u64)> = self.busy().filter(|(_, number)| number % 2 == 1).collect();
        let left = || self.busy().any(|now| busy.contains(&now));
        if (0..SPINS).any(|_| !left()) {
            return;
        }
        // Its thread waits for the processor, or the note was never taken: ask the kernel.
        if bpf::wait_for_programs().is_err() {
            let since = std::time::Instant::now();
            while left() && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn busy(&self) -> impl Iterator<Item = (usize, u64)> {
        self.processors.entries().iter().map(|words| words[0].load(Ordering::SeqCst)).enumerate()
    }

    /// Reads the state of a port's device, and enables sending to it if possible.
    fn look_at(&self, port: AcceleratedPort, device: &dyn Netdev) {
        let at = usize::from(port);
        self.changed[at].store(false, Ordering::SeqCst);
        let ifindex = device.kernel_path().map_or(0, |path| path.ifindex());
        let usable = device.is_present() && device.status().admin_up;
        let longest = device.mtu().filter(|mtu| *mtu > 0).map_or(u32::MAX, |mtu| mtu.saturating_add(ETHERNET_HEADER));
        let word = if usable { u64::from(ifindex) | u64::from(longest) << 32 } else { 0 };
        self.ports.entries()[at][0].store(word, Ordering::SeqCst);
        if self.changed[at].load(Ordering::SeqCst) {
            self.ports.entries()[at][0].store(0, Ordering::SeqCst);
        }
    }

    /// A port's device changed: disable sending to it until the next inspection.
    fn note_change(&self, port: AcceleratedPort) {
        let at = usize::from(port);
        self.changed[at].store(true, Ordering::SeqCst);
        self.ports.entries()[at][0].store(0, Ordering::SeqCst);
    }

    /// Counts of a verdict by processor.
    fn counts(&self, handle: Handle) -> impl Iterator<Item = &[std::sync::atomic::AtomicU64; COUNTS_WORDS]> {
        self.counts.entries().iter().skip(handle as usize).step_by(FLOWS_MAX)
    }

    fn forwarded(&self, handle: Handle) -> Forwarded {
        let (mut sum, mut used_ns) = (Forwarded::default(), 0);
        for words in self.counts(handle) {
            let [packets, bytes, used, flags] = words.each_ref().map(|word| word.load(Ordering::Acquire));
            sum.packets += packets;
            sum.bytes += bytes;
            sum.tcp_flags |= flags as u16;
            used_ns = used_ns.max(used);
        }
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        sum.idle_ms = now_ns.saturating_sub(used_ns) / 1_000_000;
        sum
    }
}

/// The frame patterns of a verdict, with their networks.
fn each(entries: &[Option<Entry>; NETWORKS]) -> impl Iterator<Item = (Network, &Entry)> {
    Network::ALL.into_iter().zip(entries).filter_map(|(network, entry)| Some((network, entry.as_ref()?)))
}

/// The words of a verdict's key or mask as the filter builds them. They exclude the Ethernet type: all plain frames of a
/// network have the same.
pub(crate) fn kernel_words(
    network: Network,
    [dst, src, misc, tp, addresses @ ..]: [u64; PLAIN_WORDS],
) -> [u64; PLAIN_WORDS] {
    let mut headers = [0; HEADERS];
    headers[..6].copy_from_slice(&dst.to_be_bytes()[..6]);
    headers[6..12].copy_from_slice(&src.to_be_bytes()[..6]);
    let ports = &tp.to_be_bytes()[..4];
    match network {
        Network::Ipv4 => {
            [headers[15], headers[22], headers[23]] = [(misc >> 16) as u8, (misc >> 8) as u8, misc as u8];
            headers[26..34].copy_from_slice(&addresses[0].to_be_bytes());
            headers[34..38].copy_from_slice(ports);
        }
        Network::Ipv6 => {
            let first = (misc >> 16 & 0xff) << 20 | misc >> 32 & 0xf_ffff;
            headers[14..18].copy_from_slice(&(first as u32).to_be_bytes());
            [headers[20], headers[21]] = [misc as u8, (misc >> 8) as u8];
            for (place, word) in headers[22..54].chunks_exact_mut(8).zip(addresses) {
                place.copy_from_slice(&word.to_be_bytes());
            }
            headers[54..58].copy_from_slice(ports);
        }
    }
    program::words(network, &headers, src as u16, (tp >> 16) as u16 & 0xfff)
}

impl Tcx {
    /// Creates the maps. An error is a line that says why the kernel does not support them.
    pub fn new() -> Result<Self, String> {
        // On such a kernel, another frame's programs could overwrite the note that one frame's programs exchange.
        if std::fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1") {
            return Err("not on a kernel with PREEMPT_RT".to_owned());
        }
        let maps = Maps::new().map_err(|e| format!("BPF maps ({})", errno_text(&e)))?;
        Ok(Self { maps: Arc::new(maps), state: Mutex::default() })
    }

    fn install(&self, number: AcceleratedPort, device: &Arc<dyn Netdev>) -> Result<Port, String> {
        let path = device.kernel_path().ok_or_else(|| format!("not for ports of type {}", device.kind()))?;
        let failed = |what: &'static str| move |e: io::Error| format!("{what} ({})", errno_text(&e));
        let descriptors = self.maps.descriptors();
        let filter = bpf::load(ProgramKind::SocketFilter, &program::filter(number, descriptors), "flowstone_take")
            .map_err(failed("BPF program for packet sockets"))?;
        let forwarder = bpf::load(ProgramKind::Tcx, &program::forwarder(descriptors), "flowstone_send")
            .map_err(failed("BPF program for tcx"))?;
        let forwarder = bpf::attach(forwarder.as_fd(), path.ifindex(), Point::TcxIngress)
            .map_err(failed("BPF program at tcx, which needs Linux 6.6"))?;
        // Last, so that each note has a reader.
        path.set_filter(Some(filter.as_fd())).map_err(failed("BPF program on packet sockets"))?;
        Ok(Port { device: Arc::clone(device), masks: Default::default(), forwarder })
    }

    /// Has programs search under the masks of a verdict, adding the missing ones.
    fn write_masks(&self, number: AcceleratedPort, port: &mut Port, entries: &[Option<Entry>; NETWORKS]) {
        let place = &self.maps.masks.entries()[usize::from(number)];
        let mut is_new = false;
        for (network, entry) in each(entries) {
            let mask = &mut port.masks[network as usize][entry.mask];
            if mask.flows > 0 {
                continue;
            }
            *mask = Mask { words: entry.words, flows: 0 };
            for (place, word) in
                place[program::mask_at(network, entry.mask)..].iter().zip(&entry.words[..network.words()])
            {
                place.store(*word, Ordering::Relaxed);
            }
            place[network as usize].fetch_max(entry.mask as u64 + 1, Ordering::SeqCst);
            is_new = true;
        }
        if is_new {
            // No program looks up the new flow by a half-written mask.
            self.maps.settle();
        }
    }
}

impl Port {
    /// The position, among verdicts of a network, of one with this mask (except the words of its key): under an existing mask,
    /// or in a free place.
    fn entry(&self, number: AcceleratedPort, network: Network, words: [u64; PLAIN_WORDS]) -> Option<Entry> {
        let masks = &self.masks[network as usize];
        let known = masks.iter().position(|mask| mask.flows > 0 && mask.words == words);
        let mask = known.or_else(|| masks.iter().position(|mask| mask.flows == 0))?;
        let mut key = [0; KEY_WORDS];
        key[0] = program::first_word(number, mask);
        Some(Entry { key, mask, words })
    }
}

#[cfg(test)]
impl Tcx {
    /// The device of all ports.
    pub(crate) const TEST_IFINDEX: u32 = 1;

    /// Creates ports for these devices, without programs.
    pub(crate) fn for_test(maps: Maps, devices: &[Arc<dyn Netdev>]) -> Self {
        let forwarder =
            || bpf::load(ProgramKind::Tcx, &program::forwarder(maps.descriptors()), "flowstone_send").expect("valid");
        let port = |device: &Arc<dyn Netdev>| {
            Some(Port { device: Arc::clone(device), masks: Default::default(), forwarder: forwarder() })
        };
        let state = State { ports: devices.iter().map(port).collect(), ..State::default() };
        let tcx = Self { maps: Arc::new(maps), state: Mutex::new(state) };
        (0..devices.len()).for_each(|n| tcx.set_port_for_test(n, u64::from(Self::TEST_IFINDEX) | u64::MAX << 32));
        tcx
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    pub(crate) fn set_port_for_test(&self, port: usize, word: u64) {
        self.maps.ports.entries()[port][0].store(word, Ordering::SeqCst);
    }
}

impl Accelerator for Tcx {
    fn kind(&self) -> &'static str {
        "tcx"
    }

    fn port_add(&self, device: &Arc<dyn Netdev>) -> Result<AcceleratedPort, String> {
        let state = &mut *self.state.lock();
        let at = state.ports.iter().position(Option::is_none).unwrap_or(state.ports.len());
        if at >= PORTS_MAX {
            return Err(format!("more than {PORTS_MAX} ports"));
        }
        let number = at as AcceleratedPort;
        self.maps.masks.entries()[at][..NETWORKS].iter().for_each(|n| n.store(0, Ordering::SeqCst));
        let port = self.install(number, device)?;
        let maps = Arc::downgrade(&self.maps);
        let listener = move || {
            if let Some(maps) = maps.upgrade() {
                maps.note_change(number);
            }
        };
        device.changes().subscribe(Arc::new(listener));
        self.maps.look_at(number, &**device);
        if at == state.ports.len() {
            state.ports.push(None);
        }
        state.ports[at] = Some(port);
        Ok(number)
    }

    fn port_del(&self, number: AcceleratedPort) {
        let state = &mut *self.state.lock();
        let Some(port) = state.ports.get_mut(usize::from(number)).and_then(Option::take) else { return };
        debug_assert!(state.flows.iter().flatten().all(|flow| flow.from != number));
        self.maps.ports.entries()[usize::from(number)][0].store(0, Ordering::SeqCst);
        // The filter first, so that each note has a reader. A removed device has neither program.
        if let Some(path) = port.device.kernel_path() {
            let _ = path.set_filter(None);
        }
        self.maps.settle();
        drop(port.forwarder);
    }

    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal> {
        let state = &mut *self.state.lock();
        let is_there = |number: AcceleratedPort| matches!(state.ports.get(usize::from(number)), Some(Some(_)));
        if !is_there(verdict.to) {
            return Err(Refusal::Failed);
        }
        let Some(Some(port)) = state.ports.get_mut(usize::from(verdict.from)) else { return Err(Refusal::Failed) };
        let mut entries = [None; NETWORKS];
        for (network, (entry, frames)) in Network::ALL.into_iter().zip(entries.iter_mut().zip(&verdict.frames)) {
            let Some(frames) = frames else { continue };
            let at = network as usize;
            let found = port.entry(verdict.from, network, kernel_words(network, frames.mask));
            let mut found = found.ok_or(Refusal::TooManyMasks)?;
            found.key[1..].copy_from_slice(&kernel_words(network, frames.key));
            if state.keys[at].contains(&found.key) {
                return Err(Refusal::Taken);
            }
            *entry = Some(found);
        }
        let handle = match state.free.pop() {
            Some(handle) => handle,
            None if state.flows.len() < FLOWS_MAX => {
                state.flows.push(None);
                state.flows.len() as Handle - 1
            }
            None => return Err(Refusal::Full),
        };
        self.write_masks(verdict.from, port, &entries);
        for words in self.maps.counts(handle) {
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        let value = u64::from(handle) | u64::from(verdict.to) << 32 | u64::from(program::tag_word(verdict.tag)) << 48;
        let done = each(&entries).try_for_each(|(network, entry)| {
            self.maps.flows[network as usize].set(&entry.key[..program::key_words(network)], value)
        });
        if done.is_err() {
            // One mask may exist.
            self.maps.remove_entries(&entries);
            self.maps.settle();
            state.free.push(handle);
            return Err(Refusal::Failed);
        }
        for (network, entry) in each(&entries) {
            port.masks[network as usize][entry.mask].flows += 1;
            state.keys[network as usize].insert(entry.key);
        }
        state.flows[handle as usize] = Some(Flow { from: verdict.from, entries });
        Ok(handle)
    }

    fn remove(&self, handles: &[Handle], report: &mut dyn FnMut(usize, Forwarded)) {
        let state = &mut *self.state.lock();
        let mut removed = Vec::with_capacity(handles.len());
        for (at, handle) in handles.iter().enumerate() {
            let Some(flow) = state.flows.get_mut(*handle as usize).and_then(Option::take) else { continue };
            self.maps.remove_entries(&flow.entries);
            removed.push((at, *handle));
            let mut port = state.ports.get_mut(usize::from(flow.from)).and_then(Option::as_mut);
            for (network, entry) in each(&flow.entries) {
                state.keys[network as usize].remove(&entry.key);
                let Some(port) = &mut port else { continue };
                let masks = &mut port.masks[network as usize];
                masks[entry.mask].flows -= 1;
                let used = masks.iter().rposition(|mask| mask.flows > 0).map_or(0, |last| last + 1);
                let words = &self.maps.masks.entries()[usize::from(flow.from)];
                words[network as usize].store(used as u64, Ordering::SeqCst);
            }
        }
        if removed.is_empty() {
            return;
        }
        self.maps.settle();
        for (at, handle) in removed {
            report(at, self.maps.forwarded(handle));
            state.free.push(handle);
        }
    }

    fn forwarded(&self, handle: Handle) -> Forwarded {
        self.maps.forwarded(handle)
    }

    fn refresh(&self) {
        let state = self.state.lock();
        for (number, port) in (0..).zip(&state.ports) {
            if let Some(port) = port
                && self.maps.changed[usize::from(number)].load(Ordering::SeqCst)
            {
                self.maps.look_at(number, &*port.device);
            }
        }
    }

    fn capacity(&self) -> Capacity {
        let state = self.state.lock();
        let masks = state.ports.iter().flatten().flat_map(|port| port.masks.as_flattened());
        Capacity {
            flows: state.flows.len() - state.free.len(),
            flows_max: FLOWS_MAX,
            masks: masks.filter(|mask| mask.flows > 0).count(),
            masks_max: MASKS_MAX,
        }
    }
}
