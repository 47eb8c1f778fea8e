//! The packet threads of a datapath: started and ended, and given their queues, while packets flow.
//!
//! Without cores to be pinned to ([`ThreadConfig::cpus`]) there are as many threads as the port with most queues has, but
//! not more than processors, and they run anywhere. With cores there is one on each.
//!
//! A queue goes from one thread to another in two steps. First a table is published in which nobody has the queue; when
//! all threads use it, the old owner has processed and sent all that it took out of the queue. Then a table is published
//! in which the new owner has it. So the packets of a queue are taken out and sent in their order, and those that come in
//! meanwhile wait in the device. (Packets that no flow covered wait in the queue of their port, whoever put them there.)
//!
//! Whoever holds the lock around a [`Crew`] is the only one who publishes tables, and waits for packet threads, which
//! take that lock never. (Dealing queues, and handing them over, is in `deal`.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dpif::DpifError;
use rustix::event::{EventfdFlags, eventfd};

use crate::assign::Policy;
use crate::history::History;
use crate::poll::{self, Control};
use crate::port::{Owner, Port, PortTable};
use crate::shared::{CALLER_LANE, LANES_MAX, Shared};
use crate::stats::ThreadStats;
use crate::thread::Worker;

mod deal;

/// A processor core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cpu {
    /// Its number in the system.
    pub core: usize,
    /// Its memory node (NUMA).
    pub numa: usize,
}

/// When queues are dealt anew by themselves (`other_config:pmd-auto-lb` and what belongs to it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    /// Minutes between two looks.
    pub interval_mins: u64,
    /// Percent of its time that some thread must be busy.
    pub load_percent: u64,
    /// By how many percent the variance of the threads' loads must fall.
    pub improvement_percent: u64,
}

impl Default for Balance {
    fn default() -> Self {
        Self { interval_mins: 1, load_percent: 95, improvement_percent: 25 }
    }
}

/// How packet threads are to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadConfig {
    /// Cores with a thread each; none for threads that run anywhere.
    pub cpus: BTreeSet<Cpu>,
    /// How queues are assigned to threads.
    pub policy: Policy,
    /// Whether and when that is done anew.
    pub balance: Option<Balance>,
    /// Microseconds that a thread on a core sleeps at most before it asks again, where packets do not wake it; 0 for not
    /// to sleep at all. Threads that run anywhere sleep whenever they have nothing to do.
    pub sleep_us_max: u64,
    /// The same for some cores.
    pub sleep_us_max_of: BTreeMap<usize, u64>,
}

/// A packet thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadInfo {
    /// No other thread of the datapath ever has it.
    pub id: u64,
    /// The core that it is pinned to; if there is none, its number among the threads.
    pub core_id: usize,
    /// The core's memory node.
    pub numa_id: usize,
    /// Whether it is pinned.
    pub is_pinned: bool,
    /// Whether queues that are pinned to it keep others away.
    pub is_isolated: bool,
    /// Microseconds that it sleeps at most where packets do not wake it; `None` for no limit.
    pub sleep_us_max: Option<u64>,
    /// How long it has been there.
    pub age: Duration,
}

/// What a packet thread and its queues did lately.
#[derive(Clone, Debug)]
pub struct Usage {
    /// The thread.
    pub thread: ThreadInfo,
    /// Nanoseconds that this is about: whole intervals of [`crate::INTERVAL_SECS`], 0 before the first is over.
    pub elapsed_ns: u64,
    /// Nanoseconds of these in rounds that moved packets.
    pub busy_ns: u64,
    /// Its queues.
    pub queues: Vec<QueueUsage>,
}

/// What a receive queue cost lately.
#[derive(Clone, Debug)]
pub struct QueueUsage {
    /// Its port's device.
    pub port: String,
    /// Its index there.
    pub queue: usize,
    /// Whether it is asked: after an error of the device a queue rests for a while.
    pub is_enabled: bool,
    /// Nanoseconds of the same time that its packets took.
    pub busy_ns: u64,
}

#[derive(Debug)]
struct PacketThread {
    id: u64,
    lane: usize,
    /// Its core, or its number if it is not pinned.
    place: Place,
    control: Arc<Control>,
    /// None where the caller is the thread.
    handle: Option<JoinHandle<()>>,
    began: Instant,
    /// What its lane had counted then.
    before: ThreadStats,
    is_isolated: bool,
    elapsed: History,
    busy: History,
}

impl PacketThread {
    fn info(&self) -> ThreadInfo {
        let us = self.control.sleep_us_max.load(Ordering::Relaxed);
        ThreadInfo {
            id: self.id,
            core_id: self.place.core_id(),
            numa_id: self.place.numa().unwrap_or(0),
            is_pinned: self.place.core().is_some(),
            is_isolated: self.is_isolated,
            sleep_us_max: (us != u64::MAX).then_some(us),
            age: self.began.elapsed(),
        }
    }
}

/// Where a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Core(Cpu),
    Anywhere(usize),
}

impl Place {
    fn core_id(self) -> usize {
        match self {
            Self::Core(cpu) => cpu.core,
            Self::Anywhere(number) => number,
        }
    }

    fn core(self) -> Option<usize> {
        match self {
            Self::Core(cpu) => Some(cpu.core),
            Self::Anywhere(_) => None,
        }
    }

    fn numa(self) -> Option<usize> {
        match self {
            Self::Core(cpu) => Some(cpu.numa),
            Self::Anywhere(_) => None,
        }
    }
}

/// The threads; see the module's text.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    /// In order of their places.
    threads: Vec<PacketThread>,
    config: ThreadConfig,
    /// Threads at least, where they run anywhere; 0 if the caller is the only one.
    least: usize,
    next_id: u64,
    /// Ports went since queues were dealt last.
    pub(crate) is_stale: bool,
    /// Intervals since the last look whether to deal anew.
    ticks: u64,
    /// What was said about the assignment, so that it is said once.
    warned: BTreeSet<String>,
}

impl Crew {
    /// Makes the first threads: `threads`, or the caller as the only one if that is 0.
    pub(crate) fn begin(&mut self, shared: &Arc<Shared>, threads: usize) -> Result<(), DpifError> {
        self.least = threads;
        if threads > 0 {
            return self.arrange(shared);
        }
        self.enlist(shared, Place::Anywhere(0), CALLER_LANE + 1, new_control(None, u64::MAX)?);
        Ok(())
    }

    /// The lane of the caller where that is the only thread.
    pub(crate) const STEPPED_LANE: usize = CALLER_LANE + 1;

    /// Lanes that are somebody's.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = usize> {
        std::iter::once(CALLER_LANE).chain(self.threads.iter().map(|t| t.lane))
    }

    /// Takes another configuration over.
    pub(crate) fn configure(&mut self, shared: &Arc<Shared>, config: &ThreadConfig) -> Result<(), DpifError> {
        if self.config == *config {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.config, config.clone());
        if before.policy.algorithm != config.policy.algorithm {
            let name = config.policy.algorithm.name();
            tracing::info!(target: "dpif_netdev", "Rxq to PMD assignment mode changed to: '{name}'.");
        }
        if before.balance != config.balance {
            self.ticks = 0;
        }
        for thread in &self.threads {
            let us = self.sleep_us_max(thread.place);
            thread.control.sleep_us_max.store(us, Ordering::Relaxed);
        }
        // A thread that sleeps takes that over at once.
        self.wake();
        if before.cpus == config.cpus && before.policy == config.policy {
            return Ok(());
        }
        self.arrange(shared)
    }

    /// Has the threads that there are to be for the ports that are published, and their queues dealt. If a thread cannot
    /// be started that is an error, and the others do its work.
    pub(crate) fn arrange(&mut self, shared: &Arc<Shared>) -> Result<(), DpifError> {
        if shared.stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.least == 0 {
            self.deal(shared, &|_| true);
            return Ok(());
        }
        let wanted = self.wanted(&shared.ports.load());
        let mut result = Ok(());
        for place in &wanted {
            if !self.threads.iter().any(|t| t.place == *place)
                && let Err(e) = self.start(shared, *place)
            {
                result = Err(e);
            }
        }
        if !self.threads.iter().any(|t| wanted.contains(&t.place)) {
            // Those that are there go on.
            return result;
        }
        self.deal(shared, &|place| wanted.contains(&place));
        self.end(shared, &|place| !wanted.contains(&place));
        result
    }

    /// Gives the queues of a new port to the only thread, where there is one and is to be no other. Whether it could: else
    /// all queues are to be dealt. (Most switches are so, and may have many ports.)
    pub(crate) fn is_simple_for(&self, port: &mut Port) -> bool {
        let [only] = &self.threads[..] else { return false };
        if only.is_isolated || only.place.core().is_none() && self.least > 0 && port.rx.len() > 1 {
            return false;
        }
        let owner = Owner { lane: only.lane, core_id: only.place.core_id() };
        port.rx.iter_mut().for_each(|queue| queue.owner = Some(owner));
        true
    }

    fn wanted(&self, ports: &PortTable) -> BTreeSet<Place> {
        if !self.config.cpus.is_empty() {
            return self.config.cpus.iter().copied().map(Place::Core).collect();
        }
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let queues = ports.iter().map(|port| port.rx.len()).max().unwrap_or(0);
        (0..queues.min(processors).max(self.least)).map(Place::Anywhere).collect()
    }

    fn sleep_us_max(&self, place: Place) -> u64 {
        match place {
            Place::Core(cpu) => *self.config.sleep_us_max_of.get(&cpu.core).unwrap_or(&self.config.sleep_us_max),
            Place::Anywhere(_) => u64::MAX,
        }
    }

    fn enlist(&mut self, shared: &Shared, place: Place, lane: usize, control: Arc<Control>) -> &mut PacketThread {
        shared.lanes.make(lane);
        let before = shared.lanes[lane].thread_stats();
        let thread = PacketThread {
            id: self.next_id,
            lane,
            place,
            control,
            handle: None,
            began: Instant::now(),
            is_isolated: false,
            elapsed: History::default(),
            busy: History::from(before.busy_ns),
            before,
        };
        self.next_id += 1;
        let at = self.threads.partition_point(|t| t.place < place);
        self.threads.insert(at, thread);
        &mut self.threads[at]
    }

    fn start(&mut self, shared: &Arc<Shared>, place: Place) -> Result<(), DpifError> {
        let failed = |e: std::io::Error| DpifError::Device(format!("packet thread: {e}"));
        let used: BTreeSet<usize> = self.lanes().collect();
        let Some(lane) = (0..LANES_MAX).find(|lane| !used.contains(lane)) else {
            return Err(DpifError::Device(format!("packet thread: there are {LANES_MAX} already")));
        };
        let control = new_control(place.core(), self.sleep_us_max(place))?;
        self.open_lane(shared, lane)?;
        let thread = self.enlist(shared, place, lane, Arc::clone(&control));
        shared.saw(lane, 0);
        let worker = Worker::new(Arc::clone(shared), lane);
        let name = format!("packet{}", place.core_id());
        match std::thread::Builder::new().name(name).spawn(move || poll::run(worker, &control)) {
            Ok(handle) => {
                thread.handle = Some(handle);
                if let Place::Core(Cpu { core, numa }) = place {
                    tracing::info!(target: "dpif_netdev", "PMD thread on numa_id: {numa}, core id: {core:2} created.");
                }
                Ok(())
            }
            Err(e) => {
                shared.saw_the_last(lane);
                self.threads.retain(|t| t.lane != lane);
                shared.ports.load().iter().for_each(|port| port.close_lane(lane));
                Err(failed(e))
            }
        }
    }

    /// Opens a way to send for `lane` at each port.
    fn open_lane(&self, shared: &Shared, lane: usize) -> Result<(), DpifError> {
        let ports = shared.ports.load_full();
        let mut failed = None;
        let table = ports.map(|port| {
            let mut port = port.clone();
            match port.open_lane(lane) {
                Ok(()) => Some(port),
                Err(e) => {
                    failed.get_or_insert(e);
                    None
                }
            }
        });
        if let Some(error) = failed {
            table.iter().for_each(|port| port.close_lane(lane));
            return Err(error);
        }
        self.publish(shared, table);
        Ok(())
    }

    /// Ends the threads at places that `leave`, which have no queue.
    fn end(&mut self, shared: &Shared, leave: &dyn Fn(Place) -> bool) {
        let leaving: Vec<PacketThread> = self.threads.extract_if(.., |t| leave(t.place)).collect();
        for thread in &leaving {
            thread.control.end.store(true, Ordering::Release);
            wake(&thread.control);
        }
        let ports = shared.ports.load();
        for thread in leaving {
            let ended = thread.handle.map(JoinHandle::join);
            debug_assert!(ended.is_none_or(|joined| joined.is_ok()), "panics are caught");
            ports.iter().for_each(|port| port.close_lane(thread.lane));
            if let Place::Core(Cpu { core, numa }) = thread.place {
                tracing::info!(target: "dpif_netdev", "PMD thread on numa_id: {numa}, core id: {core:2} destroyed.");
            }
        }
    }

    /// Makes `table` the port table and has threads hear of it.
    pub(crate) fn publish(&self, shared: &Shared, table: PortTable) {
        shared.publish(table);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.threads.iter().for_each(|thread| wake(&thread.control));
    }

    /// Takes all threads out, to be joined without the lock, and tells them to end.
    pub(crate) fn dismiss(&mut self) -> Vec<JoinHandle<()>> {
        self.wake();
        self.threads.drain(..).filter_map(|thread| thread.handle).collect()
    }

    /// All threads with what they have done.
    pub(crate) fn infos(&self, shared: &Shared) -> Vec<(ThreadInfo, ThreadStats)> {
        let one =
            |thread: &PacketThread| (thread.info(), shared.lanes[thread.lane].thread_stats().since(&thread.before));
        self.threads.iter().map(one).collect()
    }

    /// What each thread and its queues did in the last `intervals`.
    pub(crate) fn usage(&self, shared: &Shared, intervals: usize) -> Vec<Usage> {
        let ports = shared.ports.load_full();
        let of = |thread: &PacketThread| {
            let queues = ports.iter().flat_map(|port| port.rx.iter().enumerate().map(move |(i, q)| (port, i, q)));
            let ours = queues.filter(|(.., queue)| queue.owner.is_some_and(|owner| owner.lane == thread.lane));
            let queues = ours.map(|(port, index, queue)| QueueUsage {
                port: port.device.name().to_owned(),
                queue: index,
                is_enabled: !queue.receiver.broken.load(Ordering::Relaxed),
                busy_ns: queue.receiver.history.lock().over(intervals),
            });
            Usage {
                thread: thread.info(),
                elapsed_ns: thread.elapsed.over(intervals),
                busy_ns: thread.busy.over(intervals),
                queues: queues.collect(),
            }
        };
        self.threads.iter().map(of).collect()
    }

    /// The configuration in use.
    pub(crate) fn config(&self) -> &ThreadConfig {
        &self.config
    }
}

fn new_control(core: Option<usize>, sleep_us_max: u64) -> Result<Arc<Control>, DpifError> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let wake = wake.map_err(|e| DpifError::Device(format!("packet thread: {e}")))?;
    let (end, sleep_us_max) = (AtomicBool::new(false), AtomicU64::new(sleep_us_max));
    Ok(Arc::new(Control { core, wake, end, sleep_us_max }))
}

fn wake(control: &Control) {
    // Fails only if the counter is full, and then the thread is awake.
    let _ = rustix::io::write(&control.wake, &1u64.to_ne_bytes());
}
