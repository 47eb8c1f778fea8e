//! What there is to be seen of revalidation.

use super::pass::{Extent, PassReport};
use crate::switch::Switch;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures for `upcall/show` and for counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RevalidatorStatus {
    /// Flows now.
    pub flows: u64,
    /// Flows, averaged over passes.
    pub average: u64,
    /// Most flows there were at a pass.
    pub maximum: u64,
    /// Flows at most, at present.
    pub limit: u64,
    /// Milliseconds that the last dump of statistics took.
    pub dump_duration_ms: u64,
    /// Whether the threads are stopped by `revalidator/pause`.
    pub paused: bool,
    /// Whether flows match as little as they can.
    pub megaflows: bool,
    /// Flows of the shards that each revalidator thread is home to.
    pub keys: Vec<u64>,
    /// Passes over all flows' statistics.
    pub rounds: u64,
    /// Passes that held all flows against fresh translations.
    pub full_passes: u64,
    /// Flows that a full pass found wrong with nothing to explain it. Each is an error of this program.
    pub fixed_up: u64,
    /// Flows translated again because a change could affect them.
    pub translated: u64,
    /// Of these, how many got other actions.
    pub changed: u64,
    /// Of these, how many were removed.
    pub removed: u64,
    /// Flows that came to match less closely.
    pub widened: u64,
    /// Packets whose cached verdict was held against a fresh one.
    pub self_checks: u64,
    /// How many of these differed. Each is an error of this program.
    pub self_check_failed: u64,
    /// Different sets of dependencies among the flows.
    pub plans: u64,
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
            base::coverage!(revalidate_flows_mended, report.fixed_up as u64);
        }
    }
}

impl Switch {
    /// How revalidation is doing.
    pub fn revalidator_status(&self) -> RevalidatorStatus {
        let state = &self.revalidation;
        let n_threads = state.workers.n_threads();
        let mut keys = vec![0; n_threads];
        for (number, shard) in state.ukeys.each_shard().enumerate() {
            keys[number % n_threads] += shard.len() as u64;
        }
        let (flows, plans) = (keys.iter().sum(), state.ukeys.n_translations() as u64);
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
            plans,
        }
    }

    /// Bytes that are taken by what is known of flows, roughly. Looks at each of them.
    pub fn remembered_bytes(&self) -> usize {
        self.revalidation.ukeys.bytes()
    }
}
