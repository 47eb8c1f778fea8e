//! The loop of a packet thread: rounds while packets come, sleep when they stop. A thread that is pinned to a core usually
//! has the core for itself, and polls instead of sleeping unless it is configured to sleep.
//!
//! A thread never waits for the control plane. What changes (ports, flows, the handler) is published, read at the
//! start of a round, and a write to the thread's event descriptor wakes it if it sleeps.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netdev::Rx;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::shared::bump_own;
use crate::thread::{PollScope, Queue, Round, Worker};

/// A queue that rests after an error is polled again after this time.
const RETRY: Duration = Duration::from_secs(1);
/// After descriptors ended this many sleeps in a row without a packet, the thread ignores them until a packet comes.
const FUTILE_MAX: u32 = 64;
/// Longest time between two polls of a queue without a descriptor, in microseconds; the configuration may shorten it.
const ASK_US: u64 = 1000;

/// Rounds with packets after which a thread does the housekeeping that it otherwise does when it is idle.
const HOUSEKEEPING_ROUNDS: u32 = 1024;

/// Requests to a packet thread from other threads.
#[derive(Debug)]
pub(crate) struct Control {
    /// The core that it is pinned to.
    pub(crate) core: Option<usize>,
    /// A write here wakes it.
    pub(crate) wake: OwnedFd,
    /// The thread must end.
    pub(crate) end: AtomicBool,
    /// Longest sleep in microseconds while queues have no descriptor to wait for; 0 to poll without sleeping. With
    /// descriptors the thread sleeps until one is readable.
    pub(crate) sleep_us_max: AtomicU64,
}

/// Runs `worker` until `control` ends it or the datapath shuts down.
pub(crate) fn run(mut worker: Worker, control: &Control) {
    let (mut empty_rounds, mut busy_rounds, mut futile) = (0, 0, 0);
    if let Some(core) = control.core {
        pin(core);
    }
    let mut since = Instant::now();
    let mut retried = since;
    while !worker.shared.stopping.load(Ordering::Acquire) && !control.end.load(Ordering::Acquire) {
        // Polling a device may cost a system call: the second round without packets polls all queues, later ones poll the
        // queues that are likely to have some.
        let scope = if empty_rounds < 2 { PollScope::All } else { PollScope::Active };
        let Round { packets, waited_ns } = round(&mut worker, scope, since);
        let now = Instant::now();
        let began = std::mem::replace(&mut since, now);
        let spent_ns = ((now - began).as_nanos() as u64).saturating_sub(waited_ns);
        let lane = &worker.shared.lanes[worker.lane];
        lane.count_round(packets as u64, spent_ns);
        lane.count_round(0, waited_ns);
        if worker.shared.metrics.load(Ordering::Relaxed) {
            lane.remember_round(packets as u64, spent_ns, now, &worker.shared.round_watch.load());
        }
        worker.charge(began, spent_ns);
        if packets > 0 {
            (empty_rounds, futile) = (0, 0);
            busy_rounds += 1;
            if busy_rounds >= HOUSEKEEPING_ROUNDS {
                busy_rounds = 0;
                if now - retried > RETRY {
                    retried = now;
                    worker.retry_broken();
                }
            }
            continue;
        }
        empty_rounds += 1;
        if empty_rounds > worker.shared.config.empty_rounds_max {
            empty_rounds = 0;
            // The next round polls all queues.
            worker.slept();
            let sleep_us_max = control.sleep_us_max.load(Ordering::Relaxed);
            if sleep_us_max == 0 {
                if now - retried > RETRY {
                    retried = now;
                    worker.retry_broken();
                }
                std::hint::spin_loop();
                continue;
            }
            if sleep(&worker, &control.wake, sleep_us_max, futile > FUTILE_MAX) {
                futile += 1;
            }
            // Packets may have ended the sleep: the round that moves them does not include the time asleep.
            let woke = Instant::now();
            worker.shared.lanes[worker.lane].count_sleep((woke - since).as_nanos() as u64);
            since = woke;
        }
    }
    let (shared, lane) = (Arc::clone(&worker.shared), worker.lane);
    // Returns receive and transmit queues before other threads may take them.
    drop(worker);
    // Other threads no longer wait for this thread to take over a port table.
    shared.acknowledge_end(lane);
}

/// Pins the calling packet thread to a core.
fn pin(core: usize) {
    let mut set = CpuSet::new();
    let result = if core < CpuSet::MAX_CPU {
        set.set(core);
        sched_setaffinity(None, &set)
    } else {
        Err(rustix::io::Errno::INVAL)
    };
    if let Err(error) = result {
        tracing::warn!(target: "dpif_netdev", "cannot pin a packet thread to core {core}, it runs anywhere: {error}");
    }
}

/// One round. A panic in the upcall handler loses the packets of its batch, not the thread.
fn round(worker: &mut Worker, scope: PollScope, now: Instant) -> Round {
    catch_unwind(AssertUnwindSafe(|| worker.round(scope, now))).unwrap_or_else(|_| {
        let lost = worker.count_lost();
        bump_own(&worker.shared.lanes[worker.lane].panics, 1);
        tracing::error!(lane = worker.lane, "packet processing panicked; the packets of its batch are lost");
        Round { packets: lost.max(1), waited_ns: 0 }
    })
}

/// Sleeps until a frame waits or another thread wakes this one. With `ignore_fds`, the queues' descriptors are not polled,
/// because they were readable again and again without a frame, and the sleep is short. Returns whether a queue's descriptor
/// ended the sleep.
fn sleep(worker: &Worker, wake: &OwnedFd, us_max: u64, ignore_fds: bool) -> bool {
    bump_own(&worker.shared.lanes[worker.lane].sleeps, 1);
    let is_broken = |queue: &Queue| queue.receiver.broken.load(Ordering::Relaxed);
    let broken = worker.queues.iter().any(is_broken);
    let working: Vec<_> = worker.queues.iter().filter(|queue| !is_broken(queue)).map(Queue::rx).collect();
    let wake_fd = wake.as_fd();
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(working.len() + 1);
    fds.push(PollFd::from_borrowed_fd(wake_fd, PollFlags::IN));
    let polled = working.iter().filter(|_| !ignore_fds).filter_map(|rx| rx.and_then(Rx::poll_fd));
    fds.extend(polled.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    let without_fd = (fds.len() <= working.len()).then(|| Duration::from_micros(us_max.min(ASK_US)));
    let within = working.iter().filter_map(|rx| rx.and_then(Rx::ask_within));
    let timeout = within.chain(without_fd).chain(broken.then_some(RETRY)).min();
    let timeout =
        timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
    let ready = poll(&mut fds, timeout.as_ref());
    let woken = fds.first().is_some_and(|fd| !fd.revents().is_empty());
    let frames = fds.iter().skip(1).any(|fd| !fd.revents().is_empty());
    drop(fds);
    if woken {
        let _ = rustix::io::read(wake, &mut [0u8; 8]);
    }
    if broken && ready == Ok(0) {
        worker.retry_broken();
    }
    frames
}
