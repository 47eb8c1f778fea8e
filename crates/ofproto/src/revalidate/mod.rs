//! Flows that the datapath remembers, seen from above: those that a change can affect are translated again, their
//! statistics are brought to the rules that made them, and those that are idle or too many are removed.
//!
//! - [`change`]: what can change; [`translation`]: what a verdict rests on; [`ukeys`]: the table of megaflows, found by that;
//! - [`pass`]: one pass: changes first, then statistics; [`workers`]: threads that share it; [`again`]: one flow,
//!   translated again;
//! - [`limits`]: how many flows there may be; [`thread`]: when passes run; [`waiting`]: work that waits for a pass; [`check`]: verdicts held against fresh ones, by their [`essence`];
//! - [`status`]: what there is to be seen of it.
//!
//! Every change has a number. A flow is entered into the table of megaflows with the number of the last change before
//! its translation began. A pass takes all changes since the one before, has every shard of the table refuse flows that
//! are older than these, and translates again what the shards find under them: no flow that depends on something older
//! outlives the pass, however the threads interleave. Until then, for some milliseconds, packets may be forwarded as they
//! were before the change, as they would have been had they come a little earlier.

mod again;
mod change;
mod check;
pub(crate) mod essence;
mod limits;
mod pass;
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

/// Everything that revalidation keeps.
#[derive(Debug)]
pub(crate) struct State {
    ukeys: Ukeys,
    pending: Mutex<Changes>,
    /// The number of the last change.
    seq: AtomicU64,
    /// The last change that a pass has dealt with whole.
    done: AtomicU64,
    /// Held during a pass, its statistics aside.
    passing: Mutex<Passing>,
    /// Who waits for a pass, and for what.
    queue: Mutex<Queue>,
    /// Told when a pass is over, or has dealt with changes.
    moved: Condvar,
    /// Held while statistics are brought to rules: how often that was.
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

/// The lock of a shard, held in order to enter a flow.
pub(crate) struct ShardLock<'a>(MutexGuard<'a, Shard>);

/// How often changes were dealt with, for those who wait for it: a long pass does so in between.
#[derive(Debug, Default)]
struct Queue {
    begun: u64,
    done: u64,
    /// Somebody waits.
    asked: bool,
}

/// What passes know of each other.
#[derive(Debug, Default)]
struct Passing {
    /// Rounds since the last full pass.
    since_full: u64,
    /// A rule has gone since the last full pass.
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
            moved: Condvar::new(),
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
    /// Notes a change that has been made.
    pub(crate) fn changed(&self, change: Change) {
        let mut pending = self.pending.lock();
        pending.add(change);
        self.seq.fetch_add(1, Ordering::SeqCst);
        drop(pending);
        self.signal.wake();
    }

    /// The same of several, in their order.
    pub(crate) fn changed_all(&self, changes: Vec<Change>) {
        let n = changes.len() as u64;
        let mut pending = self.pending.lock();
        changes.into_iter().for_each(|change| pending.add(change));
        self.seq.fetch_add(n, Ordering::SeqCst);
        drop(pending);
        self.signal.wake();
    }

    /// The number of the last change: to be read before a translation begins.
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

    /// Notes that a flow made for a packet with `key` is about to be installed. It may not be if it may be out of date
    /// already, nor if there are too many flows: then its actions come back.
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

    /// Whether passes have dealt with all changes, as far as they can by now.
    fn is_settled(&self) -> bool {
        self.done.load(Ordering::SeqCst) >= self.seq() && self.after_changes.is_empty() && !self.ukeys.has_late()
    }

    /// The changes since the last call, and the number of the last of them.
    fn take(&self) -> (Changes, u64) {
        let mut pending = self.pending.lock();
        (std::mem::take(&mut *pending), self.seq())
    }
}

impl Switch {
    /// Notes that a flow is gone, and pushes what it did since the last time.
    pub(crate) fn forget(&self, id: FlowId, stats: DpFlowStats) {
        let known = self.revalidation.ukeys.lock(id).remove(id);
        if let Some(mut known) = known {
            let (packets, bytes) = known.take(stats);
            let used = crate::upcall::used_or(&stats, known.installed);
            self.push(&known.effects, &known.uses, packets, bytes, used);
        }
    }

    /// The rules that a cached flow comes from, in the order in which they were found, each once; `None` if there is no
    /// such flow, or it was put there by hand.
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

    /// Periodic work of the control thread. Statistics and timeouts have threads of their own, or are part of this without
    /// them.
    pub fn housekeeping(&self) {
        if !self.has_revalidator() {
            self.run_timers();
        }
        let now = self.clock().now();
        self.network().frozen.sweep(now);
        for bridge in self.bridges() {
            bridge.tidy(now);
            bridge.expire_bundles(now, self.bundle_idle_ms());
            bridge.expire_parts(now);
            bridge.see_to_fail_open(now);
        }
    }

    /// Pushes statistics, then removes flows and addresses whose time is over, on this thread.
    pub fn run_timers(&self) {
        let now = self.clock().now();
        self.revalidate();
        self.expire(now);
    }

    /// Removes flows and addresses whose time was over at `now`, up to which statistics have been pushed.
    fn expire(&self, now: Millis) {
        // The flows of a bridge in a long change expire a turn later.
        for bridge in self.bridges().into_iter().filter(|bridge| !bridge.is_changing()) {
            let removed = bridge.expire(now);
            bridge.finish_removal(removed);
        }
    }

    /// Removes all datapath flows, keeping their statistics. No packet that comes in after the call has begun is
    /// forwarded by one of them.
    pub fn purge(&self) {
        self.new_generation();
        self.pass(Extent::Round);
    }

    /// From now on flows match as little as their verdicts rest on (`true`, as it is at first), or the whole key of
    /// their packet. All flows of before are removed.
    pub fn set_megaflows(&self, on: bool) {
        self.revalidation.exact.store(!on, Ordering::SeqCst);
        self.purge();
    }

    /// Whether flows match whole keys.
    pub(crate) fn is_exact(&self) -> bool {
        self.revalidation.exact.load(Ordering::SeqCst)
    }

    /// Flows stay as they are, whatever changes, until [`Switch::resume_revalidators`]. Statistics go on, and
    /// [`Switch::purge`] works.
    pub fn pause_revalidators(&self) {
        self.revalidation.paused.store(true, Ordering::SeqCst);
        // A pass that has begun comes to its end.
        drop(self.revalidation.passing.lock());
    }

    /// Ends [`Switch::pause_revalidators`].
    pub fn resume_revalidators(&self) {
        self.revalidation.paused.store(false, Ordering::SeqCst);
        self.revalidation.signal.wake();
    }

    /// The limits on flows as they are set.
    pub fn limits(&self) -> Limits {
        self.revalidation.limiter.limits()
    }

    /// Sets how many flows there may be, at once: the limit follows what passes cost from there.
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
