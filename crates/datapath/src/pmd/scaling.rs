//! The number of unpinned packet threads for the current load.
//!
//! Threads start quickly and end slowly. When a thread with several queues is busy for most of an interval, the
//! number of threads doubles, since the amount of work that waits in the devices is unknown. A thread ends when the
//! work of a whole minute would have left the others idle for half of their time. There are never more threads than
//! queues or processors, and never fewer than one.

use std::sync::Arc;

use super::{PmdThreads, processors};
use crate::shared::SharedState;
use dpif::INTERVALS;

/// A thread that is busy for this percentage of an interval is saturated.
const BUSY_PERCENT: u64 = 80;
/// A thread ends only if the remaining threads would be busy for at most this percentage of their time.
const SPARE_PERCENT: u64 = 50;

/// The recent load of a thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadLoad {
    /// Queues that it owns.
    queues: usize,
    /// Busy time in the last interval.
    busy_ns: u64,
    elapsed_ns: u64,
    /// Busy time in the last [`INTERVALS`]; `None` for a younger thread.
    busy_ns_of_all: Option<u64>,
    elapsed_ns_of_all: u64,
}

/// Returns the wanted number of threads, given the load of the present ones, at most `most`.
fn threads_for(loads: &[ThreadLoad], most: usize) -> usize {
    let (n, queues) = (loads.len(), loads.iter().map(|load| load.queues).sum::<usize>());
    let is_at_limit = |load: &ThreadLoad| load.queues > 1 && load.busy_ns * 100 > load.elapsed_ns * BUSY_PERCENT;
    if loads.iter().any(is_at_limit) {
        return (2 * n).min(most).min(queues).max(n);
    }
    let busy_ns: Option<u64> = loads.iter().map(|load| load.busy_ns_of_all).sum();
    let elapsed_ns = loads.iter().map(|load| load.elapsed_ns_of_all).max().unwrap_or(0);
    match busy_ns {
        Some(ns) if n > 1 && ns * 100 < elapsed_ns * SPARE_PERCENT * (n as u64 - 1) => n - 1,
        _ => n,
    }
}

impl PmdThreads {
    /// Starts or ends threads at the end of an interval, as the load demands. Returns whether it did.
    pub(super) fn follow_load(&mut self, shared: &Arc<SharedState>) -> bool {
        let load = |thread: &super::PacketThread| ThreadLoad {
            queues: thread.n_queues,
            busy_ns: thread.busy.over(1),
            elapsed_ns: thread.elapsed.over(1),
            busy_ns_of_all: (thread.elapsed.len() == INTERVALS).then(|| thread.busy.over(INTERVALS)),
            elapsed_ns_of_all: thread.elapsed.over(INTERVALS),
        };
        let loads: Vec<ThreadLoad> = self.threads.iter().map(load).collect();
        self.by_load = threads_for(&loads, processors());
        if self.wanted(&shared.ports.load()).len() == self.threads.len() {
            return false;
        }
        if let Err(error) = self.reconcile(shared) {
            tracing::warn!(target: "dpif_netdev", "{error}");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with `queues` that was busy for `percent` of the last interval and `of_all` percent of the last minute.
    fn load(queues: usize, percent: u64, of_all: Option<u64>) -> ThreadLoad {
        let busy_ns_of_all = of_all.map(|percent| percent * INTERVALS as u64);
        ThreadLoad {
            queues,
            busy_ns: percent,
            elapsed_ns: 100,
            busy_ns_of_all,
            elapsed_ns_of_all: if of_all.is_some() { 100 * INTERVALS as u64 } else { 100 },
        }
    }

    #[test]
    fn a_saturated_thread_doubles_the_number_of_threads() {
        assert_eq!(threads_for(&[load(10, 95, None)], 8), 2);
        assert_eq!(threads_for(&[load(5, 95, None), load(5, 10, None)], 8), 4);
        assert_eq!(threads_for(&[load(5, 95, None), load(5, 10, None)], 3), 3);
        // A single queue cannot be shared.
        assert_eq!(threads_for(&[load(1, 100, None)], 8), 1);
        assert_eq!(threads_for(&[load(2, 100, None), load(1, 0, None)], 8), 3);
        assert_eq!(threads_for(&[load(10, 80, None)], 8), 1);
        // As many threads as processors, or more, stay.
        assert_eq!(threads_for(&[load(10, 95, None)], 1), 1);
    }

    #[test]
    fn a_thread_ends_after_a_minute_in_which_the_others_would_have_been_enough() {
        assert_eq!(threads_for(&[load(5, 10, Some(24)), load(5, 10, Some(25))], 8), 1);
        assert_eq!(threads_for(&[load(5, 10, Some(25)), load(5, 10, Some(25))], 8), 2);
        assert_eq!(threads_for(&[load(5, 0, Some(0)), load(5, 0, None)], 8), 2);
        assert_eq!(threads_for(&[load(5, 0, Some(0))], 8), 1);
        assert_eq!(threads_for(&[load(5, 0, Some(0)); 8], 8), 7);
    }
}
