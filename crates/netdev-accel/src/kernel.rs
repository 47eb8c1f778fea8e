//! The accelerator: maps that all ports share, and a program pair for each.
//!
//! Invariants: an entry of `flows` exists only while its verdict is there, and under a mask that its port has. What
//! programs may look at is changed only when none of them can still be at it: after a removal, and after a mask was written,
//! we wait until no processor is within a program that began before ([`Maps::settle`]).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use netdev::accelerate::{AcceleratedPort, Accelerator, Forwarded, Handle, PLAIN_WORDS, Refusal, Room, Verdict};
use netdev::{Netdev, device::errno_text};
use netdev_linux::bpf::{self, Hash, Kind, Mapped, Point};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::program::{
    self, COUNTS_WORDS, FLOWS_MAX, HEADERS, KEY_WORDS, MASKS_MAX, MASKS_WORDS, PORTS_MAX, PROCESSOR_WORDS,
};

/// Looks at a busy processor before it is waited for in another way.
const SPINS: usize = 4096;
/// How long a processor is waited for if the kernel cannot tell when programs have ended.
const PATIENCE: Duration = Duration::from_millis(100);
/// An Ethernet header, which no MTU counts.
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
    flows: Hash<KEY_WORDS>,
    /// Ports whose devices changed since they were looked at.
    changed: Vec<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    ports: Vec<Option<Port>>,
    /// By handle.
    flows: Vec<Option<Flow>>,
    /// Places in `flows` that nobody has.
    free: Vec<Handle>,
    by_key: HashMap<[u64; KEY_WORDS], Handle>,
}

#[derive(Debug)]
struct Port {
    device: Arc<dyn Netdev>,
    masks: [Mask; MASKS_MAX],
    /// The program at tcx, while this is open.
    forwarder: OwnedFd,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mask {
    words: [u64; PLAIN_WORDS],
    /// Verdicts under it; with none the place is free.
    flows: usize,
}

#[derive(Debug)]
struct Flow {
    key: [u64; KEY_WORDS],
    from: AcceleratedPort,
    mask: usize,
}

impl Maps {
    pub(crate) fn new() -> io::Result<Self> {
        let processors = bpf::processors()?;
        Ok(Self {
            processors: Mapped::new(processors, "flowstone_cpus")?,
            masks: Mapped::new(PORTS_MAX, "flowstone_masks")?,
            ports: Mapped::new(PORTS_MAX, "flowstone_ports")?,
            counts: Mapped::new(processors * FLOWS_MAX, "flowstone_count")?,
            flows: Hash::new(FLOWS_MAX as u32, "flowstone_flows")?,
            changed: (0..PORTS_MAX).map(|_| AtomicBool::new(false)).collect(),
        })
    }

    pub(crate) fn descriptors(&self) -> program::Maps {
        program::Maps {
            processors: self.processors.descriptor(),
            masks: self.masks.descriptor(),
            ports: self.ports.descriptor(),
            counts: self.counts.descriptor(),
            flows: self.flows.descriptor(),
        }
    }

    /// Waits until no processor is at a frame that came in before this call.
    fn settle(&self) {
        // What was removed before is not found by a program that makes its processor busy after we look.
        fence(Ordering::SeqCst);
        let busy: Vec<(usize, u64)> = self.busy().filter(|(_, number)| number % 2 == 1).collect();
        let left = || self.busy().any(|now| busy.contains(&now));
        if (0..SPINS).any(|_| !left()) {
            return;
        }
        // Its thread waits for the processor, or nobody took the note: the kernel knows.
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

    /// Takes over what a port's device is like, so that it is sent to, if that is possible.
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

    /// A port's device changed: nothing is sent there until it is looked at.
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

/// The words of a verdict's key or mask as the filter makes them. Ethernet types are not among them: all plain frames have
/// the same.
pub(crate) fn kernel_words([dst, src, addresses, misc, tp]: [u64; PLAIN_WORDS]) -> [u64; PLAIN_WORDS] {
    let mut headers = [0; HEADERS];
    headers[..6].copy_from_slice(&dst.to_be_bytes()[..6]);
    headers[6..12].copy_from_slice(&src.to_be_bytes()[..6]);
    [headers[15], headers[22], headers[23]] = [(misc >> 16) as u8, (misc >> 8) as u8, misc as u8];
    headers[26..34].copy_from_slice(&addresses.to_be_bytes());
    headers[34..38].copy_from_slice(&tp.to_be_bytes()[..4]);
    program::words(&headers, (tp >> 16) as u16 & 0xfff)
}

impl Tcx {
    /// Makes the maps. An error says in a line why the kernel has none.
    pub fn new() -> Result<Self, String> {
        // There, what one frame's programs note for each other another frame's could overwrite.
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
        let filter = bpf::load(Kind::SocketFilter, &program::filter(number, descriptors), "flowstone_take")
            .map_err(failed("BPF program for packet sockets"))?;
        let forwarder = bpf::load(Kind::Tcx, &program::forwarder(descriptors), "flowstone_send")
            .map_err(failed("BPF program for tcx"))?;
        let forwarder = bpf::attach(forwarder.as_fd(), path.ifindex(), Point::TcxIngress)
            .map_err(failed("BPF program at tcx, which needs Linux 6.6"))?;
        // Last, so that there is somebody for each note.
        path.set_filter(Some(filter.as_fd())).map_err(failed("BPF program on packet sockets"))?;
        Ok(Port { device: Arc::clone(device), masks: Default::default(), forwarder })
    }
}

#[cfg(test)]
impl Tcx {
    /// The device of all ports.
    pub(crate) const TEST_IFINDEX: u32 = 1;

    /// With ports for these devices, on which there are no programs.
    pub(crate) fn for_test(maps: Maps, devices: &[Arc<dyn Netdev>]) -> Self {
        let forwarder =
            || bpf::load(Kind::Tcx, &program::forwarder(maps.descriptors()), "flowstone_send").expect("valid");
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
        self.maps.masks.entries()[at][0].store(0, Ordering::SeqCst);
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
        // The filter first, so that there is somebody for each note. A device that is gone has neither.
        if let Some(path) = port.device.kernel_path() {
            let _ = path.set_filter(None);
        }
        self.maps.settle();
        drop(port.forwarder);
    }

    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal> {
        let state = &mut *self.state.lock();
        let words = kernel_words(verdict.mask);
        let from = usize::from(verdict.from);
        let is_there = |number: AcceleratedPort| matches!(state.ports.get(usize::from(number)), Some(Some(_)));
        if !is_there(verdict.to) {
            return Err(Refusal::Failed);
        }
        let Some(Some(port)) = state.ports.get_mut(from) else { return Err(Refusal::Failed) };
        let known = port.masks.iter().position(|mask| mask.flows > 0 && mask.words == words);
        let free = || port.masks.iter().position(|mask| mask.flows == 0);
        let mask = known.or_else(free).ok_or(Refusal::TooManyMasks)?;
        let mut key = [0; KEY_WORDS];
        key[0] = program::first_word(verdict.from, mask);
        key[1..].copy_from_slice(&kernel_words(verdict.key));
        if state.by_key.contains_key(&key) {
            return Err(Refusal::Taken);
        }
        let handle = match state.free.pop() {
            Some(handle) => handle,
            None if state.flows.len() < FLOWS_MAX => {
                state.flows.push(None);
                state.flows.len() as Handle - 1
            }
            None => return Err(Refusal::Full),
        };
        if known.is_none() {
            let entry = &self.maps.masks.entries()[from];
            for (place, word) in entry[1 + mask * PLAIN_WORDS..].iter().zip(words) {
                place.store(word, Ordering::Relaxed);
            }
            entry[0].fetch_max(mask as u64 + 1, Ordering::SeqCst);
            // No program looks for the new flow by a half of the mask and a half of what was there.
            self.maps.settle();
            port.masks[mask] = Mask { words, flows: 0 };
        }
        for words in self.maps.counts(handle) {
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        if self.maps.flows.set(&key, u64::from(handle) | u64::from(verdict.to) << 32).is_err() {
            state.free.push(handle);
            return Err(Refusal::Failed);
        }
        port.masks[mask].flows += 1;
        state.by_key.insert(key, handle);
        state.flows[handle as usize] = Some(Flow { key, from: verdict.from, mask });
        Ok(handle)
    }

    fn remove(&self, handles: &[Handle], told: &mut dyn FnMut(usize, Forwarded)) {
        let state = &mut *self.state.lock();
        let mut removed = Vec::with_capacity(handles.len());
        for (at, handle) in handles.iter().enumerate() {
            let Some(flow) = state.flows.get_mut(*handle as usize).and_then(Option::take) else { continue };
            // Fails only for an entry that is not there.
            let _ = self.maps.flows.remove(&flow.key);
            state.by_key.remove(&flow.key);
            removed.push((at, *handle));
            let Some(Some(port)) = state.ports.get_mut(usize::from(flow.from)) else { continue };
            port.masks[flow.mask].flows -= 1;
            let used = port.masks.iter().rposition(|mask| mask.flows > 0).map_or(0, |last| last + 1);
            self.maps.masks.entries()[usize::from(flow.from)][0].store(used as u64, Ordering::SeqCst);
        }
        if removed.is_empty() {
            return;
        }
        self.maps.settle();
        for (at, handle) in removed {
            told(at, self.maps.forwarded(handle));
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

    fn room(&self) -> Room {
        let state = self.state.lock();
        let masks = state.ports.iter().flatten().flat_map(|port| &port.masks);
        Room {
            flows: state.by_key.len(),
            flows_max: FLOWS_MAX,
            masks: masks.filter(|mask| mask.flows > 0).count(),
            masks_max: MASKS_MAX,
        }
    }
}
