//! The loop of a packet thread: rounds while packets come, sleep when they stop.
//!
//! A thread never waits for the control plane. What changes (ports, flows, the handler) is published, read at the
//! start of a round, and a write to the thread's event descriptor wakes it if it sleeps.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Arc;

use crate::shared::bump_own;
use crate::thread::{Ask, Round, Worker};

/// A queue that rests after an error is asked again after this long.
const RETRY: Duration = Duration::from_secs(1);
/// After a descriptor ended this many sleeps in a row without a packet, the descriptors are not trusted until one comes.
const FUTILE_MAX: u32 = 64;
/// Queues without a descriptor to poll are asked this often.
const ASK_MS: i64 = 1;

/// Rounds with packets after which a thread looks at what it otherwise looks at when it has nothing to do.
const CHORES: u32 = 1024;

/// Runs `worker` until the datapath shuts down; `wake` is its event descriptor.
pub(crate) fn run(mut worker: Worker, wake: &OwnedFd) {
    let (mut empty_rounds, mut busy_rounds, mut futile) = (0, 0, 0);
    let mut cpus = Arc::new(Vec::new());
    let mut since = Instant::now();
    let mut retried = since;
    while !worker.shared.stopping.load(Ordering::Acquire) {
        // To ask a device may cost a system call: in the second round without packets all are asked, then those that are
        // likely to have some.
        let ask = if empty_rounds < 2 { Ask::All } else { Ask::Lively };
        let Round { packets, waited_ns } = round(&mut worker, ask);
        let now = Instant::now();
        let spent_ns = (now - std::mem::replace(&mut since, now)).as_nanos() as u64;
        let lane = &worker.shared.lanes[worker.index];
        lane.count_round(packets as u64, spent_ns.saturating_sub(waited_ns));
        lane.count_round(0, waited_ns);
        if packets > 0 {
            (empty_rounds, futile) = (0, 0);
            busy_rounds += 1;
            if busy_rounds < CHORES {
                continue;
            }
            busy_rounds = 0;
            if now - retried > RETRY {
                retried = now;
                worker.retry_broken();
            }
        }
        let wanted = worker.shared.cpus.load();
        if !Arc::ptr_eq(&wanted, &cpus) {
            cpus = Arc::clone(&wanted);
            pin(worker.index, &cpus);
        }
        drop(wanted);
        if packets > 0 {
            continue;
        }
        empty_rounds += 1;
        if empty_rounds > worker.shared.config.empty_rounds_max {
            empty_rounds = 0;
            if sleep(&worker, wake, futile > FUTILE_MAX) {
                futile += 1;
            }
            worker.slept();
            // What ended the sleep may be packets: the round that moves them has not taken as long as that.
            let woke = Instant::now();
            worker.shared.lanes[worker.index].count_sleep((woke - since).as_nanos() as u64);
            since = woke;
        }
    }
    // Whoever waits for this thread to take over a port table waits no longer.
    worker.shared.saw(worker.index, u64::MAX);
}

/// Pins the calling packet thread, number `index`, to one of `cpus`; lets it go if there are none.
fn pin(index: usize, cpus: &[usize]) {
    let mut set = CpuSet::new();
    match cpus.get(index % cpus.len().max(1)) {
        Some(cpu) if *cpu < CpuSet::MAX_CPU => set.set(*cpu),
        _ => (0..CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu)),
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(thread = index, ?cpus, %error, "cannot pin a packet thread");
    }
}

/// One round. A panic above the seam costs the packets of its batch, not the thread.
fn round(worker: &mut Worker, ask: Ask) -> Round {
    catch_unwind(AssertUnwindSafe(|| worker.round(ask))).unwrap_or_else(|_| {
        let lost = worker.count_lost();
        bump_own(&worker.shared.lanes[worker.index].panics, 1);
        tracing::error!(thread = worker.index, "packet processing panicked; the packets of its batch are lost");
        Round { packets: lost.max(1), waited_ns: 0 }
    })
}

/// Sleeps until a frame waits or somebody wakes us. With `distrust`, descriptors that said again and again that a
/// frame waits where none did are not asked, and the sleep is short. Returns whether a queue's descriptor ended it.
fn sleep(worker: &Worker, wake: &OwnedFd, distrust: bool) -> bool {
    bump_own(&worker.shared.lanes[worker.index].sleeps, 1);
    let handles: Vec<_> = worker.queues.iter().map(|q| &q.port.rx[q.index]).collect();
    let broken = handles.iter().any(|q| q.broken.load(Ordering::Relaxed));
    let sound: Vec<_> = handles.iter().filter(|q| !q.broken.load(Ordering::Relaxed)).map(|q| q.handle.lock()).collect();
    let wake_fd = wake.as_fd();
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(sound.len() + 1);
    fds.push(PollFd::from_borrowed_fd(wake_fd, PollFlags::IN));
    let asked = sound.iter().filter(|_| !distrust).filter_map(|rx| rx.poll_fd());
    fds.extend(asked.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    let timeout_ms = if fds.len() <= sound.len() {
        Some(ASK_MS)
    } else if broken {
        Some(RETRY.as_millis() as i64)
    } else {
        None
    };
    let timeout = timeout_ms.map(|ms| Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 });
    let ready = poll(&mut fds, timeout.as_ref());
    let woken = fds.first().is_some_and(|fd| !fd.revents().is_empty());
    let frames = fds.iter().skip(1).any(|fd| !fd.revents().is_empty());
    drop(fds);
    drop(sound);
    if woken {
        let _ = rustix::io::read(wake, &mut [0u8; 8]);
    }
    if broken && ready == Ok(0) {
        worker.retry_broken();
    }
    frames
}
