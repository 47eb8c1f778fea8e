//! Revalidation of the datapath's flows: translates flows again that a change can affect, pushes their
//! statistics to the rules that they were made from, and removes flows that are idle or too many.
//!
//! - [`change`]: the changes; [`translation`]: the dependencies of a verdict; [`ukeys`]: the table of megaflows, indexed by them;
//!   [`lists`]: the lists of actions that they share;
//! - [`pass`]: one pass: changes first, then statistics; [`workers`]: threads that share it; [`retranslate`]: one flow,
//!   translated again;
//! - [`limits`]: the flow limit; [`thread`]: the schedule of passes; [`waiting`]: jobs that wait for a pass; [`check`]: cached
//!   verdicts compared with fresh ones, by their [`normalise`]d actions;
//! - [`status`]: the status that commands show.
//!
//! Every change has a number. A flow is entered into the table of megaflows with the number of the last change before
//! its translation began. A pass takes all changes since the previous one, makes every shard of the table refuse flows that
//! are older than these, and translates again the flows that the shards find for them: no flow that depends on an older state
//! outlives the pass, however the threads interleave. Until then, for some milliseconds, packets may be forwarded as
//! before the change, as if they had arrived a little earlier.

mod change;
mod check;
mod limits;
mod lists;
pub(crate) mod normalise;
mod pass;
mod retranslate;
mod status;
mod thread;
mod translation;
mod ukeys;
mod waiting;
mod workers;

pub use change::{Change, RuleChange};
pub use limits::Limits;
pub use pass::{Extent, PassReport};
pub use status::RevalidatorStatus;

pub(crate) use translation::{Basis, RULES_MAX, Uses};
pub(crate) use ukeys::{Entered, Fresh};
pub use workers::THREADS_MAX as REVALIDATORS_MAX;

use crate::export::netflow::Counted;
use crate::switch::Switch;
use base::Millis;
use dpif::{DpAction, DpFlowStats, FlowId};
use flow::Sparse;
use limits::Limiter;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use translation::Changes;
use ukeys::{Shard, Ukeys};

/// The state of revalidation.
#[derive(Debug)]
pub(crate) struct State {
    ukeys: Ukeys,
    pending: Mutex<Changes>,
    /// The number of the last change.
    seq: AtomicU64,
    /// The last change that a pass has handled completely.
    done: AtomicU64,
    /// Held during the translation part of a pass.
    passing: Mutex<Passing>,
    /// The state of callers that wait for a pass.
    queue: Mutex<Queue>,
    /// Notified when a pass ends, or has handled changes.
    progress: Condvar,
    /// Held while statistics are pushed; the value counts these passes.
    counting: Mutex<u64>,
    limiter: Limiter,
    workers: Arc<workers::Workers>,
    signal: Arc<thread::Signal>,
    /// Wakes the statistics thread.
    counting_signal: Arc<thread::Signal>,
    after_changes: waiting::Jobs,
    after_statistics: waiting::Jobs,
    paused: AtomicBool,
    exact: AtomicBool,
    counters: status::Counters,
}

/// The lock of a shard, held to enter a flow.
pub(crate) struct ShardLock<'a>(MutexGuard<'a, Shard>);

/// The number of times that changes were handled, for callers that wait: a long pass handles changes in between.
#[derive(Debug, Default)]
struct Queue {
    begun: u64,
    done: u64,
    /// True while a caller waits.
    asked: bool,
}

/// State that passes leave for each other.
#[derive(Debug, Default)]
struct Passing {
    /// Rounds since the last full pass.
    since_full: u64,
    /// True if a rule was removed since the last full pass.
    loosened: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            ukeys: Ukeys::default(),
            pending: Mutex::default(),
            seq: AtomicU64::new(1),
            done: AtomicU64::new(1),
            passing: Mutex::default(),
            queue: Mutex::default(),
            progress: Condvar::new(),
            counting: Mutex::default(),
            limiter: Limiter::default(),
            workers: Arc::default(),
            signal: Arc::default(),
            counting_signal: Arc::default(),
            after_changes: waiting::Jobs::default(),
            after_statistics: waiting::Jobs::default(),
            paused: AtomicBool::new(false),
            exact: AtomicBool::new(false),
            counters: status::Counters::default(),
        }
    }
}

impl State {
    /// Records a change that has been made.
    pub(crate) fn changed(&self, change: Change) {
        let mut pending = self.pending.lock();
        pending.add(change);
        self.seq.fetch_add(1, Ordering::SeqCst);
        drop(pending);
        self.signal.wake();
    }

    /// Has the next pass begin without waiting for the end of a burst of changes.
    pub(crate) fn hurry(&self) {
        self.signal.wake_urgently();
    }

    /// Records several changes, in their order.
    pub(crate) fn changed_all(&self, changes: Vec<Change>) {
        let n = changes.len() as u64;
        let mut pending = self.pending.lock();
        changes.into_iter().for_each(|change| pending.add(change));
        self.seq.fetch_add(n, Ordering::SeqCst);
        drop(pending);
        self.signal.wake();
    }

    /// The number of the last change, to be read before a translation begins.
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::SeqCst)
    }

    /// Locks the shard that a flow belongs to.
    pub(crate) fn lock_shard(&self, id: FlowId) -> ShardLock<'_> {
        ShardLock(self.ukeys.lock(id))
    }

    /// Locks the shard that a flow belongs to, unless another thread holds the lock.
    pub(crate) fn try_lock_shard(&self, id: FlowId) -> Option<ShardLock<'_>> {
        self.ukeys.try_lock(id).map(ShardLock)
    }

    /// Locks the whole table of megaflows.
    #[cfg(test)]
    pub(crate) fn lock_all_shards(&self) -> Vec<ShardLock<'_>> {
        self.ukeys.each_shard().map(ShardLock).collect()
    }

    /// Enters a flow for a packet with `key` that is about to be installed. Returns its actions if it must not be installed,
    /// because it may be out of date already, or because there are too many flows.
    pub(crate) fn remember(
        &self,
        ShardLock(mut shard): ShardLock<'_>,
        id: FlowId,
        key: Sparse,
        fresh: Fresh,
        now: Millis,
    ) -> Result<Entered, Vec<DpAction>> {
        if self.ukeys.len() as u64 >= self.limiter.flow_limit() {
            drop(shard);
            base::coverage!(upcall_flow_limit_hit);
            return Err(fresh.actions);
        }
        shard.enter(id, key, fresh, now)
    }

    /// Ends the threads, if there are any.
    pub(crate) fn stop(&self) {
        self.signal.stop();
        self.counting_signal.stop();
        self.workers.stop();
    }

    /// Returns true if passes have handled all changes, apart from flows that are late.
    fn is_settled(&self) -> bool {
        self.done.load(Ordering::SeqCst) >= self.seq() && self.after_changes.is_empty() && !self.ukeys.has_late()
    }

    /// Returns a copy of the changes that no pass has taken, with the number of the last one, if they are
    /// [few](Changes::are_few).
    fn few_changes(&self, objects_max: usize, rules_max: usize) -> Option<(Changes, u64)> {
        let pending = self.pending.lock();
        pending.are_few(objects_max, rules_max).then(|| (pending.clone(), self.seq()))
    }

    /// Drops the changes that no pass has taken, unless there were more after change `seq`, which returns false.
    fn drop_changes(&self, seq: u64) -> bool {
        let mut pending = self.pending.lock();
        let same = self.seq() == seq;
        if same {
            *pending = Changes::default();
        }
        same
    }

    /// Takes the changes since the last call, with the number of the last one.
    fn take(&self) -> (Changes, u64) {
        let mut pending = self.pending.lock();
        (std::mem::take(&mut *pending), self.seq())
    }
}

impl Switch {
    /// Removes a flow from the table, and pushes its statistics since the last time.
    pub(crate) fn forget(&self, id: FlowId, stats: DpFlowStats) {
        let known = self.revalidation.ukeys.lock(id).remove(id);
        if let Some(mut known) = known {
            let (packets, bytes) = known.take(stats);
            let used = crate::upcall::used_or(&stats, known.installed);
            let counted = Counted { packets, bytes, tcp_flags: stats.tcp_flags, used };
            self.push(&known.effects, &known.uses, counted);
            self.end_for_netflow(&known.effects);
        }
    }

    /// The rules that a cached flow was made from, in order, each once; `None` if there is no
    /// such flow, or if a command installed it.
    pub fn detrace(&self, id: FlowId) -> Option<Vec<Arc<xlate::Rule>>> {
        let effects = Arc::clone(&self.revalidation.ukeys.lock(id).get(id)?.effects);
        let mut rules: Vec<Arc<xlate::Rule>> = Vec::new();
        for effect in effects.iter() {
            if let xlate::Effect::Lookup { rule: Some(rule), .. } = effect
                && !rules.iter().any(|known| Arc::ptr_eq(known, rule))
            {
                rules.push(Arc::clone(rule));
            }
        }
        Some(rules)
    }

    /// Periodic work of the control thread. With threads of their own, statistics and timeouts are not part of it.
    pub fn housekeeping(&self) {
        if !self.has_revalidator() {
            self.run_timers();
        }
        let now = self.clock().now();
        if let Some(dpif) = self.dpif() {
            dpif.sweep_connections();
        }
        self.network().frozen.sweep(now);
        self.report_traffic();
        for bridge in self.bridges() {
            // The revalidator takes very many removed rules out of their tables, as that takes long.
            if self.has_revalidator() {
                bridge.tidy_some(now);
            } else {
                bridge.tidy(now);
            }
            bridge.expire_bundles(now, self.bundle_idle_ms());
            bridge.log_flow_mods(now);
            bridge.expire_parts(now);
            bridge.run_fail_open(now);
        }
    }

    /// Pushes statistics, then removes expired flows and addresses, on this thread.
    pub fn run_timers(&self) {
        let now = self.clock().now();
        self.revalidate();
        self.expire(now);
    }

    /// Removes flows and addresses that had expired at `now`; statistics up to then have been pushed.
    fn expire(&self, now: Millis) {
        // Flows of a bridge with a long change in progress expire in a later turn.
        for bridge in self.bridges().into_iter().filter(|bridge| !bridge.is_changing()) {
            let removed = bridge.expire(now);
            bridge.finish_removal(removed);
        }
    }

    /// Removes all datapath flows, keeping their statistics. No packet that arrives after the call has begun is
    /// forwarded by one of them.
    pub fn purge(&self) {
        self.new_generation();
        self.pass(Extent::Round);
    }

    /// Enables megaflows (`true`, the default), which match as few bits as possible, or makes flows match the whole key of
    /// their packet. Removes all previous flows.
    pub fn set_megaflows(&self, on: bool) {
        self.revalidation.exact.store(!on, Ordering::SeqCst);
        self.purge();
    }

    /// Returns true if flows match whole keys.
    pub(crate) fn is_exact(&self) -> bool {
        self.revalidation.exact.load(Ordering::SeqCst)
    }

    /// Pauses revalidation: flows stay unchanged until [`Switch::resume_revalidators`]. Statistics and
    /// [`Switch::purge`] still work.
    pub fn pause_revalidators(&self) {
        self.revalidation.paused.store(true, Ordering::SeqCst);
        // Waits for a pass in progress.
        drop(self.revalidation.passing.lock());
    }

    /// Ends [`Switch::pause_revalidators`].
    pub fn resume_revalidators(&self) {
        self.revalidation.paused.store(false, Ordering::SeqCst);
        self.revalidation.signal.wake();
    }

    /// The configured limits on flows.
    pub fn limits(&self) -> Limits {
        self.revalidation.limiter.limits()
    }

    /// Sets the current flow limit at once; passes adapt it from there.
    pub fn set_flow_limit(&self, flows: u64) {
        self.set_limits(Limits { flow_limit: flows, ..self.limits() });
        self.revalidation.limiter.allow(flows);
    }

    /// Sets the limits on flows; see [`Limits`].
    pub fn set_limits(&self, limits: Limits) {
        self.revalidation.limiter.set(limits);
        self.revalidation.signal.wake();
    }
}
