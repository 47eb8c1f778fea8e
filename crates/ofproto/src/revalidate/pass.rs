//! One pass over the flows: first changes, then statistics and idle flows.

use super::Passing;
use super::retranslate::{Job, Outcome};
use super::translation::Changes;
use super::ukeys::{Shard, Ukey, Ukeys};
use crate::export::netflow::Counted;
use crate::switch::Switch;
use crate::upcall::used_or;
use base::Millis;
use dpif::{DpFlowStats, Dpif, FlowId};
use parking_lot::{Mutex, MutexGuard};
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of flows that a thread processes at a time. It holds their shard's lock, which misses may wait for, while it
/// collects them.
const CHUNK: usize = if cfg!(test) { 3 } else { 128 };
/// The number of flows whose statistics are collected before they are pushed.
const STATISTICS_MAX: usize = if cfg!(test) { 64 } else { 1 << 14 };
/// The limits of a look at changes by a caller that must not wait, which takes some microseconds: changed objects, changed rules,
/// and comparisons of rules with translations and flows.
const OBJECTS_AT_ONCE: usize = 64;
const RULES_AT_ONCE: usize = 4;
const COMPARED_AT_ONCE: usize = 64;
/// The interval at which a caller that waits for a pass checks whether one is in progress.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The work of a pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extent {
    /// Handles the changes since the last pass.
    Changes,
    /// Handles changes, pushes statistics, and removes idle flows.
    Round,
    /// As [`Self::Round`], and translates all flows again: corrects and counts flows that are wrong without a change to explain
    /// it, and widens matches that are narrower than necessary.
    Full,
}

/// The results of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassReport {
    /// Flows left. (Passes with statistics only.)
    pub flows: usize,
    /// Flows with a dependency of the kind that changed, as look-ups in a table.
    pub candidates: usize,
    /// Flows that were translated again because a change could affect them.
    pub translated: usize,
    /// Flows whose actions changed.
    pub changed: usize,
    /// Flows that were removed: because they are too wide now, or teach an address that is not in the MAC table any more.
    pub removed: usize,
    /// Flows whose match became wider.
    pub widened: usize,
    /// Flows that a full pass found wrong with no change to explain it.
    pub fixed_up: usize,
}

impl AddAssign for PassReport {
    fn add_assign(&mut self, other: Self) {
        let Self { flows, candidates, translated, changed, removed, widened, fixed_up } = other;
        self.flows += flows;
        self.candidates += candidates;
        self.translated += translated;
        self.changed += changed;
        self.removed += removed;
        self.widened += widened;
        self.fixed_up += fixed_up;
    }
}

/// The parameters of a pass over statistics.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The number of the pass.
    pass: u64,
    now: Millis,
    generation: u64,
    /// The idle time in milliseconds after which flows are removed.
    idle_limit_ms: u64,
}

impl Switch {
    /// One round: handles all changes made before the call, pushes statistics, and removes idle
    /// flows. Returns the number of flows left.
    pub fn revalidate(&self) -> usize {
        self.pass(Extent::Round).flows
    }

    /// One pass; see [`Extent`]. For changes alone, a pass in progress may handle them instead.
    pub fn pass(&self, extent: Extent) -> PassReport {
        let mut report = self.follow_changes(extent);
        if extent != Extent::Changes {
            // Other passes may handle changes meanwhile.
            report.flows = self.count();
        }
        report
    }

    /// The part of a pass that translates flows again.
    pub(super) fn follow_changes(&self, extent: Extent) -> PassReport {
        let mut report = PassReport::default();
        if self.dpif().is_none() {
            return report;
        }
        let state = &self.revalidation;
        let mut passing = match extent {
            Extent::Changes => match self.wait_for_turn() {
                Some(passing) => passing,
                None => return report,
            },
            Extent::Round | Extent::Full => state.passing.lock(),
        };
        if !state.paused.load(Ordering::SeqCst) {
            let mut seq = self.catch_up(&mut passing.loosened, &mut report);
            if extent == Extent::Full {
                (passing.since_full, passing.loosened) = (0, false);
                self.verify_all(&mut seq, &mut passing.loosened, &mut report);
            }
        }
        passing.since_full += u64::from(extent != Extent::Changes);
        drop(passing);
        state.progress.notify_all();
        state.counters.add(extent, &report);
        report
    }

    /// The part of a pass that pushes statistics and removes idle flows. Returns the number of flows left.
    pub(super) fn count(&self) -> usize {
        let Some(dpif) = self.dpif() else { return 0 };
        let mut counting = self.revalidation.counting.lock();
        *counting += 1;
        self.revalidation.counters.add_round();
        self.statistics(dpif, *counting)
    }

    /// Returns true if all changes so far have been handled.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.revalidation.is_settled()
    }

    /// Returns true if all changes so far have been handled, or if a short look shows that they affect no flow, which handles
    /// them: two threads need not take turns for that.
    pub(crate) fn settles_at_once(&self) -> bool {
        let state = &self.revalidation;
        if state.is_settled() {
            return true;
        }
        if state.paused.load(Ordering::SeqCst) || !state.after_changes.is_empty() {
            return false;
        }
        let Some(mut passing) = state.passing.try_lock() else { return false };
        let Some((changes, seq)) = state.few_changes(OBJECTS_AT_ONCE, RULES_AT_ONCE) else { return false };
        let mut budget = COMPARED_AT_ONCE;
        for mut shard in state.ukeys.each_shard() {
            // If the changes turn out to affect flows, the next pass over them begins once more.
            shard.begin(seq);
            if shard.may_be_affected(&changes, &mut budget) {
                return false;
            }
        }
        if !state.drop_changes(seq) {
            return false;
        }
        passing.loosened |= changes.loosened;
        state.done.fetch_max(seq, Ordering::SeqCst);
        drop(passing);
        state.progress.notify_all();
        true
    }

    /// Waits until no pass is in progress, or one has handled all changes made before the call, and returns `None` then.
    fn wait_for_turn(&self) -> Option<MutexGuard<'_, Passing>> {
        let state = &self.revalidation;
        let target = state.queue.lock().begun + 1;
        loop {
            if let Some(passing) = state.passing.try_lock() {
                return Some(passing);
            }
            let mut queue = state.queue.lock();
            if queue.done >= target {
                return None;
            }
            queue.asked = true;
            // The pass may have ended in between.
            state.progress.wait_for(&mut queue, POLL_INTERVAL);
        }
    }

    /// Keeps passes from translating flows again until the guard is dropped.
    #[cfg(test)]
    pub(crate) fn hold_passes(&self) -> impl Drop {
        self.revalidation.passing.lock()
    }

    /// Keeps passes from pushing statistics until the guard is dropped.
    #[cfg(test)]
    pub(crate) fn hold_statistics(&self) -> impl Drop {
        self.revalidation.counting.lock()
    }

    /// Runs `meanwhile` on another thread during a pass that only checks for requested changes.
    #[cfg(test)]
    pub(crate) fn pass_during(&self, meanwhile: impl FnOnce() + Send) {
        let mut passing = self.revalidation.passing.lock();
        std::thread::scope(|scope| {
            let other = scope.spawn(meanwhile);
            while !other.is_finished() {
                if self.revalidation.queue.lock().asked {
                    self.catch_up(&mut passing.loosened, &mut PassReport::default());
                }
                std::thread::yield_now();
            }
        });
    }

    /// Translates again the flows that changes since the last time can affect. Returns the number of the last change.
    fn catch_up(&self, loosened: &mut bool, report: &mut PassReport) -> u64 {
        let state = &self.revalidation;
        let jobs_after = state.after_changes.take();
        let turn = {
            let mut queue = state.queue.lock();
            (queue.begun, queue.asked) = (queue.begun + 1, false);
            queue.begun
        };
        let (changes, seq) = state.take();
        *loosened |= changes.loosened;
        let mut chunks = Vec::new();
        for (number, mut shard) in state.ukeys.each_shard().enumerate() {
            shard.begin(seq);
            if !changes.is_empty() || !shard.late.is_empty() {
                let (candidates, n) = shard.candidates(&changes);
                report.candidates += n;
                chunks.extend(candidates.chunks(CHUNK).map(|chunk| (number, chunk.to_vec())));
            }
        }
        let slow = state.limiter.is_slow();
        let follow = move |switch: &Self, chunk: &Vec<_>| switch.follow(chunk, &changes, seq, slow);
        state.workers.share(self, chunks, follow).into_iter().for_each(|part| *report += part);
        state.done.fetch_max(seq, Ordering::SeqCst);
        state.queue.lock().done = turn;
        state.progress.notify_all();
        state.after_changes.finish(jobs_after);
        seq
    }

    /// Translates some flows of one shard again if `changes` up to `seq` can affect them.
    fn follow(&self, chunk: &[(FlowId, bool)], changes: &Changes, seq: u64, slow: bool) -> PassReport {
        let (mut report, state) = (PassReport::default(), &self.revalidation);
        let (Some(dpif), [(first, _), ..]) = (self.dpif(), chunk) else { return report };
        let jobs = jobs(&state.ukeys.lock(*first), chunk, changes, seq);
        for job in jobs {
            if slow && state.limiter.is_seldom_used(job.recent) {
                report.removed += usize::from(self.remove_flow(dpif, job.id));
                continue;
            }
            report.translated += 1;
            match self.retranslate(dpif, &job) {
                Outcome::Kept | Outcome::Late => {}
                Outcome::Widened => report.widened += 1,
                Outcome::Changed => report.changed += 1,
                Outcome::Removed | Outcome::OtherOfEqual => report.removed += 1,
            }
        }
        report
    }

    /// Compares all flows with fresh translations. Changes that arrive meanwhile are handled in between, without waiting
    /// for the end.
    fn verify_all(&self, seq: &mut u64, loosened: &mut bool, report: &mut PassReport) {
        let state = &self.revalidation;
        let mut chunks = Vec::new();
        for (number, shard) in state.ukeys.each_shard().enumerate() {
            chunks.extend(shard.ids().chunks(CHUNK).map(|chunk| (number, chunk.to_vec())));
        }
        while !chunks.is_empty() {
            if self.is_behind(*seq) {
                *seq = self.catch_up(loosened, report);
            }
            let (left, before) = (Arc::new(Mutex::new(Vec::new())), *seq);
            let put_off = Arc::clone(&left);
            let verify = move |switch: &Self, chunk: &Vec<FlowId>| {
                if switch.is_behind(before) {
                    put_off.lock().push((chunk.first().map_or(0, |id| Ukeys::shard_of(*id)), chunk.clone()));
                    return PassReport::default();
                }
                switch.verify_some(chunk, before)
            };
            state.workers.share(self, chunks, verify).into_iter().for_each(|part| *report += part);
            chunks = std::mem::take(&mut *left.lock());
        }
    }

    /// Returns true if there was a change after `seq`, or a job waits for a pass.
    fn is_behind(&self, seq: u64) -> bool {
        let state = &self.revalidation;
        state.seq() != seq || state.queue.lock().asked || !state.after_changes.is_empty()
    }

    /// Compares some flows of one shard with fresh translations.
    fn verify_some(&self, chunk: &[FlowId], seq: u64) -> PassReport {
        let mut report = PassReport::default();
        let (Some(dpif), [first, ..]) = (self.dpif(), chunk) else { return report };
        let jobs: Vec<Job> = {
            let shard = self.revalidation.ukeys.lock(*first);
            chunk.iter().filter_map(|id| Some(Job::of(*id, shard.get(*id)?))).collect()
        };
        for job in jobs {
            match self.verify(dpif, &job, seq) {
                None => {}
                Some(Outcome::Widened) => report.widened += 1,
                Some(Outcome::OtherOfEqual) => report.removed += 1,
                Some(_) => report.fixed_up += 1,
            }
        }
        report
    }

    /// Pushes the statistics of all flows, and removes flows that are idle, too many or of another generation. Returns
    /// the number of flows left.
    fn statistics(&self, dpif: &Arc<dyn Dpif>, pass: u64) -> usize {
        let state = &self.revalidation;
        let now = self.clock().now();
        let n_flows = state.ukeys.len() as u64;
        let idle_limit_ms = state.limiter.idle_limit_ms(n_flows, state.paused.load(Ordering::SeqCst));
        let round = Round { pass, now, generation: self.generation(), idle_limit_ms };
        let (mut left, mut doomed) = (0, Vec::new());
        let mut collected: Vec<Vec<(FlowId, DpFlowStats)>> = Vec::new();
        let mut n_collected = 0;
        let mut push = |collected: &mut Vec<Vec<_>>| {
            let shards = collected.iter_mut().enumerate();
            let chunks = shards.flat_map(|(number, flows)| {
                std::mem::take(flows).chunks(CHUNK).map(|chunk| (number, chunk.to_vec())).collect::<Vec<_>>()
            });
            let count = move |switch: &Self, chunk: &Vec<_>| switch.count_some(chunk, round);
            for (stay, go) in state.workers.share(self, chunks.collect(), count) {
                left += stay;
                doomed.extend(go);
            }
        };
        dpif.flow_stats(&mut |id, stats| {
            let number = Ukeys::shard_of(id);
            if collected.len() <= number {
                collected.resize_with(number + 1, Vec::new);
            }
            collected[number].push((id, stats));
            n_collected += 1;
            if n_collected == STATISTICS_MAX {
                push(&mut collected);
                n_collected = 0;
            }
        });
        push(&mut collected);
        let doomed = doomed.chunks(CHUNK).map(|chunk| (0, chunk.to_vec())).collect();
        state.workers.share(self, doomed, |switch: &Self, chunk: &Vec<_>| {
            for id in chunk {
                switch.dpif().into_iter().for_each(|dpif| _ = switch.remove_flow(dpif, *id));
            }
        });
        if state.ukeys.len() > left {
            let before = Millis(now.0.saturating_sub(state.limiter.limits().max_idle_ms));
            state.ukeys.each_shard().for_each(|mut shard| shard.remove_unseen(pass, before));
        }
        state.limiter.adapt(n_flows, self.clock().now().since(now), now);
        left
    }

    /// Pushes the statistics of some flows of one shard. Returns the number of flows that stay, and the flows to remove.
    fn count_some(&self, chunk: &[(FlowId, DpFlowStats)], round: Round) -> (usize, Vec<FlowId>) {
        let (mut stay, mut go, mut pushed) = (0, Vec::new(), Vec::new());
        let [(first, _), ..] = chunk else { return (stay, go) };
        let mut shard = self.revalidation.ukeys.lock(*first);
        for (id, stats) in chunk {
            // An unknown flow was removed meanwhile, or was installed by a command.
            let Some(known) = shard.get_mut(*id) else { continue };
            let (packets, bytes) = known.take(*stats);
            (known.seen, known.recent) = (round.pass, packets);
            let used = used_or(stats, known.installed);
            if round.now.since(used) >= round.idle_limit_ms || known.generation != round.generation {
                go.push(*id);
            } else {
                stay += 1;
            }
            if packets > 0 {
                let Ukey { effects, uses, .. } = known;
                let counted = Counted { packets, bytes, tcp_flags: stats.tcp_flags, used };
                pushed.push((Arc::clone(effects), Arc::clone(uses), counted));
            }
        }
        drop(shard);
        for (effects, uses, counted) in pushed {
            self.push(&effects, &uses, counted);
        }
        (stay, go)
    }

    /// Removes a flow, keeping its statistics. Returns false if the datapath does not have it: it is being installed, or being
    /// replaced, and then its last statistics are about to be reported.
    pub(crate) fn remove_flow(&self, dpif: &Arc<dyn Dpif>, id: FlowId) -> bool {
        match dpif.flow_del(id) {
            Ok(stats) => {
                self.forget(id, stats);
                true
            }
            Err(_) => {
                self.mark_late(id);
                false
            }
        }
    }

    /// Marks a flow to be revalidated again once the datapath has it.
    pub(crate) fn mark_late(&self, id: FlowId) {
        let mut shard = self.revalidation.ukeys.lock(id);
        if shard.get(id).is_some() {
            shard.late.insert(id);
        }
    }
}

/// The flows of `chunk` that have to be translated again, for changes up to `seq`.
fn jobs(shard: &Shard, chunk: &[(FlowId, bool)], changes: &Changes, seq: u64) -> Vec<Job> {
    let jobs = chunk.iter().filter_map(|(id, certain)| {
        let known = shard.get(*id)?;
        let late = shard.late.contains(id);
        // A flow that was translated after all of the changes has seen them.
        (late || known.seq < seq && (*certain || shard.affects(*id, changes))).then(|| Job::of(*id, known))
    });
    jobs.collect()
}
