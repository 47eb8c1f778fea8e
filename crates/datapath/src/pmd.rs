//! The packet threads of a datapath (PMD threads in Open vSwitch): how they start and end, and which receive queues they own,
//! while packets flow.
//!
//! Without cores to be pinned to ([`ThreadConfig::cpus`]) threads run anywhere, and there are as many as the port with most
//! queues has or as the load asks for ([`scaling`]), but not more than processors. With cores each core has one thread.
//!
//! A queue moves from one thread to another in two steps. The first publishes a table in which the queue has no owner; when
//! all threads use that table, the old owner has processed and sent every packet it took from the queue. The second
//! publishes a table in which the queue has its new owner. So the packets of a queue stay in order, and packets that arrive
//! meanwhile wait in the device. (Misses wait in the upcall queue of their port, whichever thread put them there.)
//!
//! Only the holder of the lock around [`PmdThreads`] publishes tables. It may wait for packet threads, since these never
//! take the lock. ([`rxq`] assigns queues and moves them.)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use dpif::{Cpu, DpifError, QueueUsage, RoundHistory, ThreadConfig, ThreadInfo, ThreadStats, Usage};
use rustix::event::{EventfdFlags, eventfd};

use crate::history::History;
use crate::poll::{self, Control};
use crate::port::{Owner, Port, PortTable};
use crate::shared::{CALLER_LANE, LANES_MAX, SharedState};
use crate::thread::Worker;

mod log;
mod rxq;
mod scaling;

#[derive(Debug)]
struct PacketThread {
    id: u64,
    lane: usize,
    /// Its core, or its number if it is not pinned.
    place: CpuPlacement,
    control: Arc<Control>,
    /// `None` where the caller does the thread's work.
    handle: Option<JoinHandle<()>>,
    began: Instant,
    /// Counters of its lane when it started.
    before: ThreadStats,
    is_isolated: bool,
    /// Queues that it owns.
    n_queues: usize,
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
enum CpuPlacement {
    Core(Cpu),
    Anywhere(usize),
}

impl CpuPlacement {
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

/// All packet threads of a datapath; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct PmdThreads {
    /// Sorted by place.
    threads: Vec<PacketThread>,
    config: ThreadConfig,
    /// Minimum number of threads that run anywhere; 0 if the caller does their work.
    least: usize,
    /// Number of threads that the load asks for, if they run anywhere.
    by_load: usize,
    next_id: u64,
    /// A port was removed since queues were assigned last, and that changes the assignment.
    pub(crate) is_stale: bool,
    /// Intervals since the last check whether to reassign queues.
    ticks: u64,
    /// Warnings about the current assignment that were logged.
    warned: BTreeSet<String>,
    /// The threads that the log reports as PMD threads.
    reported: BTreeSet<CpuPlacement>,
    is_configured: bool,
}

impl PmdThreads {
    /// Starts the first `threads` threads; with 0, registers the caller as the only one.
    pub(crate) fn begin(&mut self, shared: &Arc<SharedState>, threads: usize) -> Result<(), DpifError> {
        self.least = threads;
        if threads > 0 {
            return self.reconcile(shared);
        }
        self.register(shared, CpuPlacement::Anywhere(0), CALLER_LANE + 1, new_control(None, u64::MAX)?);
        Ok(())
    }

    /// The lane of a caller that does the work of the only thread.
    pub(crate) const STEPPED_LANE: usize = CALLER_LANE + 1;

    /// Lanes in use.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = usize> {
        std::iter::once(CALLER_LANE).chain(self.threads.iter().map(|t| t.lane))
    }

    /// Applies a new configuration.
    pub(crate) fn configure(&mut self, shared: &Arc<SharedState>, config: &ThreadConfig) -> Result<(), DpifError> {
        let is_first = !std::mem::replace(&mut self.is_configured, true);
        if self.config == *config && !is_first {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.config, config.clone());
        self.log_config((!is_first).then_some(&before));
        if before.balance != config.balance {
            self.ticks = 0;
        }
        for thread in &self.threads {
            let us = self.sleep_us_max(thread.place);
            thread.control.sleep_us_max.store(us, Ordering::Relaxed);
        }
        // Sleeping threads apply the new limit at once.
        self.wake();
        if before.cpus == config.cpus && Self::policy_of(&before) == self.policy() {
            return Ok(());
        }
        self.reconcile(shared)
    }

    /// Starts and ends threads as the published ports and the load demand, and assigns all queues. Returns an error if a
    /// thread cannot be started; the other threads then do its work.
    pub(crate) fn reconcile(&mut self, shared: &Arc<SharedState>) -> Result<(), DpifError> {
        if shared.stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.least == 0 {
            self.rebalance(shared);
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
            // The present threads keep their queues.
            return result;
        }
        let assigned = self.assign_all(shared, &|place| wanted.contains(&place));
        self.end(shared, &|place| !wanted.contains(&place));
        self.log_threads(&assigned.ports);
        self.log_assignment(shared, &assigned);
        result
    }

    /// Gives the queues of a new port to threads without looking at other queues, where that is the right assignment: to the
    /// only thread, or to the threads with the fewest queues if threads run anywhere. Returns false if all queues are to
    /// be assigned anew. (The cost of adding a port does not grow with the number of ports, unless there are PMD ports, as
    /// the log lists the queues of these at each change.)
    pub(crate) fn place(&mut self, port: &mut Port) -> bool {
        if port.device.is_pmd() || !self.reported.is_empty() {
            return false;
        }
        let n_threads = self.threads.len();
        let runs_anywhere = self.threads.iter().all(|thread| thread.place.core().is_none() && !thread.is_isolated);
        let has_enough = self.least == 0 || port.rx.len().min(processors()) <= n_threads;
        let is_only = n_threads == 1 && !self.threads[0].is_isolated;
        if !(is_only || n_threads > 1 && runs_anywhere) || runs_anywhere && !has_enough {
            return false;
        }
        for queue in &mut port.rx {
            if let Some(thread) = self.threads.iter_mut().min_by_key(|thread| thread.n_queues) {
                queue.owner = Some(Owner { lane: thread.lane, core_id: thread.place.core_id() });
                thread.n_queues += 1;
            }
        }
        true
    }

    /// Accounts for a removed port, and notes whether other queues are to be reassigned because of it.
    pub(crate) fn removed(&mut self, port: &Port) {
        for owner in port.rx.iter().filter_map(|queue| queue.owner) {
            if let Some(thread) = self.threads.iter_mut().find(|thread| thread.lane == owner.lane) {
                thread.n_queues = thread.n_queues.saturating_sub(1);
            }
        }
        let is_pinned = !self.config.cpus.is_empty() && (self.threads.len() > 1 || !port.affinity.is_empty());
        self.is_stale |= is_pinned || port.rx.len() > 1 || !self.reported.is_empty();
    }

    fn wanted(&self, ports: &PortTable) -> BTreeSet<CpuPlacement> {
        if !self.config.cpus.is_empty() {
            return self.config.cpus.iter().copied().map(CpuPlacement::Core).collect();
        }
        let queues = ports.iter().map(|port| port.rx.len()).max().unwrap_or(0);
        (0..queues.max(self.by_load).min(processors()).max(self.least)).map(CpuPlacement::Anywhere).collect()
    }

    fn sleep_us_max(&self, place: CpuPlacement) -> u64 {
        match place {
            CpuPlacement::Core(cpu) => *self.config.sleep_us_max_of.get(&cpu.core).unwrap_or(&self.config.sleep_us_max),
            CpuPlacement::Anywhere(_) => u64::MAX,
        }
    }

    fn register(
        &mut self,
        shared: &SharedState,
        place: CpuPlacement,
        lane: usize,
        control: Arc<Control>,
    ) -> &mut PacketThread {
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
            n_queues: 0,
            elapsed: History::default(),
            busy: History::from(before.busy_ns),
            before,
        };
        self.next_id += 1;
        let at = self.threads.partition_point(|t| t.place < place);
        self.threads.insert(at, thread);
        &mut self.threads[at]
    }

    fn start(&mut self, shared: &Arc<SharedState>, place: CpuPlacement) -> Result<(), DpifError> {
        let failed = |e: std::io::Error| DpifError::Thread(format!("packet thread: {e}"));
        let used: BTreeSet<usize> = self.lanes().collect();
        let Some(lane) = (0..LANES_MAX).find(|lane| !used.contains(lane)) else {
            return Err(DpifError::Thread(format!("packet thread: there are {LANES_MAX} already")));
        };
        let core = place.core().filter(|_| !self.config.dummy_cores);
        let control = new_control(core, self.sleep_us_max(place))?;
        let thread = self.register(shared, place, lane, Arc::clone(&control));
        shared.acknowledge(lane, 0);
        let worker = Worker::new(Arc::clone(shared), lane);
        let name = format!("packet{}", place.core_id());
        match std::thread::Builder::new().name(name).spawn(move || poll::run(worker, &control)) {
            Ok(handle) => {
                thread.handle = Some(handle);
                Ok(())
            }
            Err(e) => {
                shared.acknowledge_end(lane);
                self.threads.retain(|t| t.lane != lane);
                shared.ports.load().iter().for_each(|port| port.close_lane(lane));
                Err(failed(e))
            }
        }
    }

    /// Ends the threads at the places for which `leave` returns true. They own no queue.
    fn end(&mut self, shared: &SharedState, leave: &dyn Fn(CpuPlacement) -> bool) {
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
        }
    }

    /// Publishes `table` and wakes all threads.
    pub(crate) fn publish(&self, shared: &SharedState, table: PortTable) {
        shared.publish(table);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.threads.iter().for_each(|thread| wake(&thread.control));
    }

    /// Wakes all threads and returns their handles, to be joined without the lock. The datapath is stopping.
    pub(crate) fn dismiss(&mut self) -> Vec<JoinHandle<()>> {
        self.wake();
        self.threads.drain(..).filter_map(|thread| thread.handle).collect()
    }

    /// All threads with their counters.
    pub(crate) fn infos(&self, shared: &SharedState) -> Vec<(ThreadInfo, ThreadStats)> {
        let one =
            |thread: &PacketThread| (thread.info(), shared.lanes[thread.lane].thread_stats().since(&thread.before));
        self.threads.iter().map(one).collect()
    }

    /// Forgets the history of all threads' rounds.
    pub(crate) fn forget_rounds(&self, shared: &SharedState) {
        self.threads.iter().for_each(|thread| shared.lanes[thread.lane].last_rounds.clear());
    }

    /// The newest rounds and milliseconds of a thread.
    pub(crate) fn round_history(&self, shared: &SharedState, id: u64, rounds: usize, ms: usize) -> RoundHistory {
        let found = self.threads.iter().find(|thread| thread.info().id == id);
        found.map(|thread| shared.lanes[thread.lane].last_rounds.newest(rounds, ms)).unwrap_or_default()
    }

    /// Load of each thread and its queues in the last `intervals`.
    pub(crate) fn usage(&self, shared: &SharedState, intervals: usize) -> Vec<Usage> {
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

/// Processors that threads may run on.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn new_control(core: Option<usize>, sleep_us_max: u64) -> Result<Arc<Control>, DpifError> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let wake = wake.map_err(|e| DpifError::Thread(format!("packet thread: {e}")))?;
    let (end, sleep_us_max) = (AtomicBool::new(false), AtomicU64::new(sleep_us_max));
    Ok(Arc::new(Control { core, wake, end, sleep_us_max }))
}

fn wake(control: &Control) {
    // Fails only if the counter is full, and then the thread is awake.
    let _ = rustix::io::write(&control.wake, &1u64.to_ne_bytes());
}
