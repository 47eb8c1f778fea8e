//! How many packet threads the load asks for, where threads run anywhere.
//!
//! Threads begin quickly and end slowly: when a thread that has several queues is busy for most of an interval, there are
//! twice as many threads from then on, since nobody knows how much work waits in the devices; a thread ends when the work
//! of a whole minute would have left the others idle for half of their time. There are never more threads than queues or
//! processors, nor fewer than one.

use std::sync::Arc;

use super::{PmdThreads, processors};
use crate::shared::Shared;
use dpif::INTERVALS;

/// A thread that is busy for so many percent of an interval is at its limit.
const BUSY_PERCENT: u64 = 80;
/// The percentage of their time for which the remaining threads would be busy at most when one ends.
const SPARE_PERCENT: u64 = 50;

/// What a thread has done lately, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Queues that it owns.
    queues: usize,
    /// In the last interval.
    busy_ns: u64,
    elapsed_ns: u64,
    /// In the last [`INTERVALS`]; `None` for a thread that is younger.
    busy_ns_of_all: Option<u64>,
    elapsed_ns_of_all: u64,
}

/// How many threads there are to be, with these there now and `most` at most.
fn threads_for(loads: &[Load], most: usize) -> usize {
    let (n, queues) = (loads.len(), loads.iter().map(|load| load.queues).sum::<usize>());
    let is_at_limit = |load: &Load| load.queues > 1 && load.busy_ns * 100 > load.elapsed_ns * BUSY_PERCENT;
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
    /// At the end of an interval: begins or ends threads as the load asks for. Returns whether it did.
    pub(super) fn follow_load(&mut self, shared: &Arc<Shared>) -> bool {
        let load = |thread: &super::PacketThread| Load {
            queues: thread.n_queues,
            busy_ns: thread.busy.over(1),
            elapsed_ns: thread.elapsed.over(1),
            busy_ns_of_all: (thread.elapsed.len() == INTERVALS).then(|| thread.busy.over(INTERVALS)),
            elapsed_ns_of_all: thread.elapsed.over(INTERVALS),
        };
        let loads: Vec<Load> = self.threads.iter().map(load).collect();
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
    fn load(queues: usize, percent: u64, of_all: Option<u64>) -> Load {
        let busy_ns_of_all = of_all.map(|percent| percent * INTERVALS as u64);
        Load {
            queues,
            busy_ns: percent,
            elapsed_ns: 100,
            busy_ns_of_all,
            elapsed_ns_of_all: if of_all.is_some() { 100 * INTERVALS as u64 } else { 100 },
        }
    }

    #[test]
    fn a_thread_at_its_limit_has_their_number_doubled() {
        assert_eq!(threads_for(&[load(10, 95, None)], 8), 2);
        assert_eq!(threads_for(&[load(5, 95, None), load(5, 10, None)], 8), 4);
        assert_eq!(threads_for(&[load(5, 95, None), load(5, 10, None)], 3), 3);
        // There is nothing to share.
        assert_eq!(threads_for(&[load(1, 100, None)], 8), 1);
        assert_eq!(threads_for(&[load(2, 100, None), load(1, 0, None)], 8), 3);
        assert_eq!(threads_for(&[load(10, 80, None)], 8), 1);
        // As many as there are processors, or more, stay.
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
