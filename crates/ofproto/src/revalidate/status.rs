//! The status of revalidation.

use super::pass::{Extent, PassReport};
use crate::switch::Switch;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures for `upcall/show` and for counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RevalidatorStatus {
    /// The current number of flows.
    pub flows: u64,
    /// The average number of flows, over passes.
    pub average: u64,
    /// The largest number of flows at a pass.
    pub maximum: u64,
    /// The current limit on the number of flows.
    pub limit: u64,
    /// The duration of the last dump of statistics, in milliseconds.
    pub dump_duration_ms: u64,
    /// True if `revalidator/pause` stopped the threads.
    pub paused: bool,
    /// True if megaflows are enabled.
    pub megaflows: bool,
    /// For each revalidator thread, the number of flows in its home shards.
    pub keys: Vec<u64>,
    /// Passes over all flows' statistics.
    pub rounds: u64,
    /// Passes that compared all flows with fresh translations.
    pub full_passes: u64,
    /// Flows that a full pass found wrong with no change to explain it. Each is a bug of this program.
    pub fixed_up: u64,
    /// Flows translated again because a change could affect them.
    pub translated: u64,
    /// Among these, flows whose actions changed.
    pub changed: u64,
    /// Among these, flows that were removed.
    pub removed: u64,
    /// Flows whose match became wider.
    pub widened: u64,
    /// Packets whose cached verdict was compared with a fresh one.
    pub self_checks: u64,
    /// The number of these that differed. Each is a bug of this program.
    pub self_check_failed: u64,
    /// The number of different shared translations.
    pub shared_translations: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    rounds: AtomicU64,
    full_passes: AtomicU64,
    fixed_up: AtomicU64,
    translated: AtomicU64,
    changed: AtomicU64,
    removed: AtomicU64,
    widened: AtomicU64,
    pub(crate) self_checks: AtomicU64,
    pub(crate) self_check_failed: AtomicU64,
}

impl Counters {
    /// Counts a pass over all flows' statistics.
    pub(crate) fn add_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, extent: Extent, report: &PassReport) {
        let add = |counter: &AtomicU64, n: usize| _ = counter.fetch_add(n as u64, Ordering::Relaxed);
        add(&self.full_passes, usize::from(extent == Extent::Full));
        add(&self.fixed_up, report.fixed_up);
        add(&self.translated, report.translated);
        add(&self.changed, report.changed);
        add(&self.removed, report.removed);
        add(&self.widened, report.widened);
        base::coverage!(revalidate_flows_translated, report.translated as u64);
        if report.fixed_up > 0 {
            base::coverage!(revalidate_flows_fixed_up, report.fixed_up as u64);
        }
    }
}

impl Switch {
    /// Returns the status of revalidation.
    pub fn revalidator_status(&self) -> RevalidatorStatus {
        let state = &self.revalidation;
        let n_threads = state.workers.n_threads();
        let mut keys = vec![0; n_threads];
        for (number, shard) in state.ukeys.each_shard().enumerate() {
            keys[number % n_threads] += shard.len() as u64;
        }
        let (flows, shared_translations) = (keys.iter().sum(), state.ukeys.n_translations() as u64);
        let (seen, c) = (state.limiter.seen(), &state.counters);
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RevalidatorStatus {
            flows,
            average: seen.average,
            maximum: seen.maximum.max(flows),
            limit: state.limiter.flow_limit(),
            dump_duration_ms: seen.dump_ms,
            paused: state.paused.load(Ordering::Relaxed),
            megaflows: !self.is_exact(),
            keys,
            rounds: of(&c.rounds),
            full_passes: of(&c.full_passes),
            fixed_up: of(&c.fixed_up),
            translated: of(&c.translated),
            changed: of(&c.changed),
            removed: of(&c.removed),
            widened: of(&c.widened),
            self_checks: of(&c.self_checks),
            self_check_failed: of(&c.self_check_failed),
            shared_translations,
        }
    }

    /// The approximate memory of the table of megaflows in bytes. Visits every flow.
    pub fn remembered_bytes(&self) -> usize {
        self.revalidation.ukeys.bytes()
    }
}
