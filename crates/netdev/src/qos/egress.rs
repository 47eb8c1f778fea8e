//! Shaping and policing of packets that leave a port, in userspace.
//!
//! `egress-policer` and `trtcm-policer` drop packets where they are sent. They count bytes without the Ethernet header, as
//! ovs-vswitchd.conf.db(5) defines the rates. `linux-htb` queues packets: a thread of the port sends them when the shaper
//! admits them, through a transmit queue of its own. A packet's queue is its `skb_priority`; queues that do not exist stand
//! for queue 0.
//!
//! Invariants: the thread runs from when `linux-htb` is set up until it is replaced by another type and its packets are
//! sent, or the port ends; then it has closed its transmit queue. Queued packets lie in owned memory, so that no device waits for its frames.

use super::QosError;
use super::spec::{HtbSettings, QosReport, QosSpec, QueueCounters, QueueReport, number};
use crate::device::{Netdev, Options, SendReport, Tx};
use crate::pool;
use base::DropReason;
use packet::{Batch, Packet};
use parking_lot::{Condvar, Mutex};
use shaper::policer::Rate;
use shaper::{ClassConfig, ClassStats, Colour, Policer, Shaper, ShaperConfig, TwoRate, TwoRateConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Packets that a queue of the shaper holds, as a kernel device does by default.
const QUEUE_PACKETS: usize = 1000;
/// Packets that the shaper's thread sends at once.
const BATCH: usize = 64;
/// Bytes that rates of policers do not count.
const ETHERNET_HEADER: u64 = 14;

/// What happens to packets of a port that leave.
#[derive(Debug, Default)]
pub(super) struct Egress {
    is_active: AtomicBool,
    shared: Arc<EgressState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct EgressState {
    origin: Instant,
    state: Mutex<State>,
    /// Notified when packets were queued, or the stage is another one.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    spec: Option<QosSpec>,
    stage: Stage,
    /// Packets of a shaper that was removed.
    left: Batch,
    /// Drops since the last report.
    late: SendReport,
    has_thread: bool,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Off,
    Policer(Policer),
    TwoRate(Box<TwoRates>),
    Htb(Box<Htb>),
}

/// A two-rate policer: queues mark without regard to earlier marks, the port marks by theirs.
#[derive(Debug)]
struct TwoRates {
    port: TwoRate,
    queues: BTreeMap<u32, MarkingQueue>,
}

#[derive(Debug)]
struct MarkingQueue {
    marker: TwoRate,
    counters: QueueCounters,
    created: Instant,
}

#[derive(Debug)]
struct Htb {
    settings: HtbSettings,
    shaper: Shaper<Packet>,
    created: BTreeMap<u32, Instant>,
}

impl Default for EgressState {
    fn default() -> Self {
        Self { origin: Instant::now(), state: Mutex::default(), wake: Condvar::new() }
    }
}

impl EgressState {
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stage = Stage::Off;
        pool::recycle_all(&mut state.left);
        drop(state);
        self.shared.wake.notify_all();
        // Its transmit queue keeps the device open. It sends at most one more batch, which does not block.
        if let Some(thread) = self.thread.get_mut().take() {
            let _ = thread.join();
        }
    }
}

impl Egress {
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, spec: Option<&QosSpec>, device: &dyn Netdev) -> Result<(), QosError> {
        let spec = spec.filter(|spec| !spec.kind.is_empty() && spec.kind != "linux-noop");
        let mut state = self.shared.state.lock();
        if state.spec.as_ref() == spec {
            return Ok(());
        }
        let built = spec.map(|spec| stage(spec, device, &mut state, self.shared.now_ns())).transpose();
        let built = built.and_then(|stage| {
            if matches!(stage, Some(Stage::Htb(_))) && !state.has_thread {
                let no_shaper = |problem: String| QosError::NoShaper { port: device.name().to_owned(), problem };
                let tx = device.open_tx().map_err(|error| no_shaper(error.to_string()))?;
                let shared = Arc::clone(&self.shared);
                let thread = std::thread::Builder::new().name("shaper".to_owned());
                let thread = thread.spawn(move || send_shaped(&shared, tx));
                // An earlier one has ended or is about to.
                *self.thread.lock() = Some(thread.map_err(|error| no_shaper(error.to_string()))?);
                state.has_thread = true;
            }
            Ok(stage)
        });
        let (stage, spec, outcome) = match built {
            Ok(stage) => (stage.unwrap_or_default(), spec.cloned(), Ok(())),
            Err(error) => (Stage::Off, None, Err(error)),
        };
        self.is_active.store(!matches!(stage, Stage::Off), Ordering::Relaxed);
        if let Stage::Htb(old) = std::mem::replace(&mut state.stage, stage) {
            state.inherit(*old);
        }
        state.spec = spec;
        self.shared.wake.notify_all();
        outcome
    }

    pub(super) fn send(&self, batch: &mut Batch) -> SendReport {
        let now_ns = self.shared.now_ns();
        let mut state = self.shared.state.lock();
        let report = state.send(now_ns, batch);
        if matches!(state.stage, Stage::Htb(_)) {
            self.shared.wake.notify_all();
        }
        report
    }

    pub(super) fn report(&self) -> Option<QosReport> {
        self.shared.state.lock().report()
    }
}

/// The stage that a specification asks for.
fn stage(spec: &QosSpec, device: &dyn Netdev, state: &mut State, now_ns: u64) -> Result<Stage, QosError> {
    let missing = |key| QosError::Missing { port: device.name().to_owned(), kind: spec.kind.clone(), key };
    match spec.kind.as_str() {
        "egress-policer" => {
            let rate = committed(&spec.config).map_err(missing)?;
            Ok(Stage::Policer(Policer::new(Some(rate), None, now_ns)))
        }
        "trtcm-policer" => {
            let port = two_rates(&spec.config).map_err(missing)?;
            let mut queues = BTreeMap::new();
            for (id, config) in &spec.queues {
                queues.insert(*id, two_rates(config).map_err(missing)?);
            }
            queues.entry(0).or_insert(port);
            let queue = |(id, config)| {
                let (marker, counters) = (TwoRate::new(config, now_ns), QueueCounters::default());
                (id, MarkingQueue { marker, counters, created: Instant::now() })
            };
            let queues = queues.into_iter().map(queue).collect();
            Ok(Stage::TwoRate(Box::new(TwoRates { port: TwoRate::new(port, now_ns), queues })))
        }
        "linux-htb" => {
            let settings = HtbSettings::new(spec, device.status().speed, device.mtu());
            Ok(Stage::Htb(Box::new(Htb::new(settings, &state.stage, now_ns))))
        }
        _ => Err(QosError::UnknownType {
            port: device.name().to_owned(),
            kind: spec.kind.clone(),
            port_type: device.kind(),
        }),
    }
}

/// CIR and CBS, in bytes; the key that is missing.
fn committed(config: &Options) -> Result<Rate, &'static str> {
    let needed = |key| number(config, key).filter(|n| *n > 0).ok_or(key);
    Ok(Rate { per_second: needed("cir")?, burst: needed("cbs")? })
}

fn two_rates(config: &Options) -> Result<TwoRateConfig, &'static str> {
    let optional = |key| number(config, key).unwrap_or(0);
    let excess = Rate { per_second: optional("eir"), burst: optional("ebs") };
    Ok(TwoRateConfig { committed: committed(config)?, excess })
}

impl Htb {
    /// A shaper with these settings. Queues that were there before keep their age and counters.
    fn new(settings: HtbSettings, before: &Stage, now_ns: u64) -> Self {
        let bits = |bytes: u64| bytes.saturating_mul(8);
        let class = |(id, class): (&u32, &super::HtbClass)| {
            let config = ClassConfig {
                min_rate: bits(class.min_rate),
                max_rate: bits(class.max_rate),
                burst: bits(class.burst),
                priority: class.priority,
            };
            (*id, config)
        };
        let classes: BTreeMap<u32, ClassConfig> = settings.classes.iter().map(class).collect();
        let burst = classes.values().map(|class| class.burst).max().unwrap_or(0);
        let config = ShaperConfig { max_rate: bits(settings.max_rate), burst, limit: QUEUE_PACKETS, classes };
        let mut shaper = Shaper::new(&config, now_ns);
        let mut created: BTreeMap<u32, Instant> = BTreeMap::new();
        if let Stage::Htb(before) = before {
            created.clone_from(&before.created);
            before.shaper.stats().for_each(|(id, stats)| shaper.continue_stats(id, stats));
        }
        created.retain(|id, _| settings.classes.contains_key(id));
        for id in settings.classes.keys() {
            created.entry(*id).or_insert_with(Instant::now);
        }
        Self { settings, shaper, created }
    }

    fn push(&mut self, class: u32, packet: Packet) -> Result<(), Packet> {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        self.shaper.push(class, len, packet)
    }

    fn report(&self) -> QosReport {
        let stats: BTreeMap<u32, ClassStats> = self.shaper.stats().collect();
        let queue = |(id, class): (&u32, &super::HtbClass)| {
            let stats = stats.get(id).copied().unwrap_or_default();
            let counters = QueueCounters { tx_packets: stats.packets, tx_bytes: stats.bytes, tx_errors: stats.dropped };
            let age = self.created.get(id).map_or(Duration::ZERO, Instant::elapsed);
            (*id, QueueReport { config: class.report(), counters: Some(counters), age })
        };
        let queues = self.settings.classes.iter().map(queue).collect();
        QosReport { kind: "linux-htb".to_owned(), config: self.settings.report(), queues }
    }
}

impl TwoRates {
    fn admits(&mut self, now_ns: u64, packet: &Packet) -> bool {
        let bytes = counted(packet);
        let id = queue_of(packet);
        let id = if self.queues.contains_key(&id) { id } else { 0 };
        let Some(queue) = self.queues.get_mut(&id) else { return true };
        let mark = queue.marker.mark(now_ns, bytes, Colour::Green);
        let admitted = self.port.mark(now_ns, bytes, mark) != Colour::Red;
        if admitted {
            queue.counters.tx_packets += 1;
            queue.counters.tx_bytes += packet.len() as u64;
        } else {
            queue.counters.tx_errors += 1;
        }
        admitted
    }
}

impl State {
    /// Moves the packets of a shaper to the next one, or to those that leave at once.
    fn inherit(&mut self, mut old: Htb) {
        for (class, packet) in old.shaper.drain() {
            match &mut self.stage {
                Stage::Htb(new) => {
                    if let Err(packet) = new.push(class, packet) {
                        self.late.count_dropped(DropReason::ShaperQueueFull, 1);
                        pool::recycle(packet);
                    }
                }
                _ => self.left.push(packet),
            }
        }
    }

    fn send(&mut self, now_ns: u64, batch: &mut Batch) -> SendReport {
        let mut report = std::mem::take(&mut self.late);
        if matches!(self.stage, Stage::Policer(_) | Stage::TwoRate(_)) {
            super::segment_large(batch);
        }
        let before = batch.len();
        match &mut self.stage {
            Stage::Off => {}
            Stage::Policer(policer) => batch.retain(|packet| policer.admits(now_ns, counted(packet), 1)),
            Stage::TwoRate(rates) => batch.retain(|packet| rates.admits(now_ns, packet)),
            Stage::Htb(htb) => {
                for mut packet in batch.drain(..) {
                    pool::keep(&mut packet);
                    let (class, len) = (queue_of(&packet), packet.len());
                    match htb.push(class, packet) {
                        Ok(()) => report.count_sent(len),
                        Err(packet) => {
                            report.count_dropped(DropReason::ShaperQueueFull, 1);
                            pool::recycle(packet);
                        }
                    }
                }
                return report;
            }
        }
        report.count_dropped(DropReason::EgressPolicing, (before - batch.len()) as u64);
        report
    }

    fn report(&self) -> Option<QosReport> {
        let spec = self.spec.as_ref()?;
        let numbers = |config: &Options, keys: &[&'static str]| -> Vec<(&'static str, u64)> {
            keys.iter().filter_map(|key| Some((*key, number(config, key)?))).collect()
        };
        let kind = spec.kind.clone();
        match &self.stage {
            Stage::Off => None,
            Stage::Policer(_) => {
                Some(QosReport { kind, config: numbers(&spec.config, &["cir", "cbs"]), ..QosReport::default() })
            }
            Stage::TwoRate(rates) => {
                let keys = ["cir", "cbs", "eir", "ebs"];
                let queue = |(id, queue): (&u32, &MarkingQueue)| {
                    let config = numbers(spec.queues.get(id).unwrap_or(&spec.config), &keys);
                    (*id, QueueReport { config, counters: Some(queue.counters), age: queue.created.elapsed() })
                };
                let queues = rates.queues.iter().map(queue).collect();
                Some(QosReport { kind, config: numbers(&spec.config, &keys), queues })
            }
            Stage::Htb(htb) => Some(htb.report()),
        }
    }

    /// Fills `batch` with packets that leave now. Returns the next moment at which there may be more if there are none, or
    /// `None` if the thread is to end.
    fn next(&mut self, now_ns: u64, batch: &mut Batch) -> Next {
        batch.append(&mut self.left);
        let Stage::Htb(htb) = &mut self.stage else {
            if batch.is_empty() {
                self.has_thread = false;
                return Next::End;
            }
            return Next::Send;
        };
        while batch.len() < BATCH {
            match htb.shaper.pop(now_ns) {
                Some((_, packet)) => batch.push(packet),
                None => break,
            }
        }
        if batch.is_empty() { Next::Wait(htb.shaper.next_at()) } else { Next::Send }
    }
}

/// What the shaper's thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Send,
    /// Wait until this moment, or until packets come.
    Wait(Option<u64>),
    End,
}

/// Sends what a port's shaper admits, until there is none any more.
fn send_shaped(shared: &EgressState, mut tx: Box<dyn Tx>) {
    let mut batch = Batch::new();
    loop {
        let mut state = shared.state.lock();
        let now_ns = shared.now_ns();
        match state.next(now_ns, &mut batch) {
            Next::End => return,
            Next::Wait(None) => shared.wake.wait(&mut state),
            Next::Wait(Some(at)) => {
                shared.wake.wait_for(&mut state, Duration::from_nanos(at.saturating_sub(now_ns)));
            }
            Next::Send => {
                drop(state);
                let mut report = tx.send_batch(&mut batch);
                report.merge(&tx.flush());
                pool::recycle_all(&mut batch);
                let late = &mut shared.state.lock().late;
                report.dropped.iter().for_each(|(reason, n)| late.count_dropped(*reason, *n));
            }
        }
    }
}

/// The queue that a packet was put in by `set_queue` or `enqueue`.
fn queue_of(packet: &Packet) -> u32 {
    packet.metadata().map_or(0, |metadata| metadata.skb_priority)
}

/// The bytes of a packet that rates of policers count.
fn counted(packet: &Packet) -> u64 {
    (packet.len() as u64).saturating_sub(ETHERNET_HEADER)
}

#[cfg(test)]
mod tests;
