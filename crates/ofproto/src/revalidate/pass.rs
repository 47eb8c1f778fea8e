//! One pass over the flows: first what changes ask for, then statistics and what is idle.

use super::Passing;
use super::again::{Job, Outcome};
use super::translation::Changes;
use super::ukeys::{Shard, Ukey, Ukeys};
use crate::switch::Switch;
use crate::upcall::used_or;
use base::Millis;
use dpif::{DpFlowStats, Dpif, FlowId};
use parking_lot::{Mutex, MutexGuard};
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Flows that a thread takes at once. As long as it collects them it holds their shard's lock, which misses may wait for.
const CHUNK: usize = if cfg!(test) { 3 } else { 128 };
/// Flows whose statistics are collected before they are pushed.
const STATISTICS_MAX: usize = if cfg!(test) { 64 } else { 1 << 14 };
/// How soon who waits for a pass looks whether one goes on at all.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How much a pass does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extent {
    /// What has changed since the last pass, and no more.
    Changes,
    /// The same, and then statistics, and the removal of what is idle.
    Round,
    /// The same, and all flows are translated again: what is found wrong without a change to explain it is fixed_up and
    /// counted, and what matches more closely than need be is widened.
    Full,
}

/// What a pass did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassReport {
    /// Flows left. (Only of passes with statistics.)
    pub flows: usize,
    /// Flows that rest on something of the kind that changed: that looked into a table, for instance.
    pub candidates: usize,
    /// Flows that were translated again because a change could affect them.
    pub translated: usize,
    /// Flows whose actions became others.
    pub changed: usize,
    /// Flows that were removed: too wide now, or what they were to teach is not known any more.
    pub removed: usize,
    /// Flows that came to match less closely.
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

/// What a pass over statistics does with flows.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The number of the pass.
    pass: u64,
    now: Millis,
    generation: u64,
    /// Milliseconds that flows may be idle.
    patience: u64,
}

impl Switch {
    /// One round: whatever changed before the call is dealt with when it returns, statistics are pushed, idle flows
    /// removed. Returns how many flows are left.
    pub fn revalidate(&self) -> usize {
        self.pass(Extent::Round).flows
    }

    /// One pass; see [`Extent`]. For changes alone, it is enough that a pass that goes on deals with them.
    pub fn pass(&self, extent: Extent) -> PassReport {
        let mut report = self.follow_changes(extent);
        if extent != Extent::Changes {
            // Changes are dealt with meanwhile.
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
        state.moved.notify_all();
        state.counters.add(extent, &report);
        report
    }

    /// The part of a pass that pushes statistics and removes idle flows. Returns how many flows are left.
    pub(super) fn count(&self) -> usize {
        let Some(dpif) = self.dpif() else { return 0 };
        let mut counting = self.revalidation.counting.lock();
        *counting += 1;
        self.revalidation.counters.add_round();
        self.statistics(dpif, *counting)
    }

    /// Whether all changes until now have been dealt with.
    pub(crate) fn is_settled(&self) -> bool {
        self.revalidation.is_settled()
    }

    /// Waits until no pass goes on, or one has dealt with whatever changed before the call: then there is nothing left to
    /// do.
    fn wait_for_turn(&self) -> Option<MutexGuard<'_, Passing>> {
        let state = &self.revalidation;
        let wanted = state.queue.lock().begun + 1;
        loop {
            if let Some(passing) = state.passing.try_lock() {
                return Some(passing);
            }
            let mut queue = state.queue.lock();
            if queue.done >= wanted {
                return None;
            }
            queue.asked = true;
            // It may have ended in between.
            state.moved.wait_for(&mut queue, LOOK_AGAIN);
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

    /// Runs `meanwhile` on another thread while a pass goes on that only looks whether it is asked for changes.
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

    /// Translates again what the changes since the last time can affect. Returns the number of the last of them.
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
        state.moved.notify_all();
        state.after_changes.finish(jobs_after);
        seq
    }

    /// Translates some flows of one shard again, as far as `changes` up to `seq` can affect them.
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
            match self.again(dpif, &job) {
                Outcome::Kept | Outcome::Late => {}
                Outcome::Widened => report.widened += 1,
                Outcome::Changed => report.changed += 1,
                Outcome::Removed => report.removed += 1,
            }
        }
        report
    }

    /// Compares all flows with fresh translations. Changes that come meanwhile are dealt with in between, and do not wait
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

    /// Returns true if something has changed since change `seq`, or a job waits for a pass.
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
                Some(_) => report.fixed_up += 1,
            }
        }
        report
    }

    /// Pushes the statistics of all flows, and removes those that are idle, too many or of another generation. Returns
    /// how many are left.
    fn statistics(&self, dpif: &Arc<dyn Dpif>, pass: u64) -> usize {
        let state = &self.revalidation;
        let now = self.clock().now();
        let n_flows = state.ukeys.len() as u64;
        let patience = state.limiter.patience(n_flows, state.paused.load(Ordering::SeqCst));
        let round = Round { pass, now, generation: self.generation(), patience };
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

    /// Pushes the statistics of some flows of one shard. Returns how many of them stay, and those that are to be removed.
    fn count_some(&self, chunk: &[(FlowId, DpFlowStats)], round: Round) -> (usize, Vec<FlowId>) {
        let (mut stay, mut go, mut pushed) = (0, Vec::new(), Vec::new());
        let [(first, _), ..] = chunk else { return (stay, go) };
        let mut shard = self.revalidation.ukeys.lock(*first);
        for (id, stats) in chunk {
            // A flow that is not known is gone since, or was installed by hand.
            let Some(known) = shard.get_mut(*id) else { continue };
            let (packets, bytes) = known.take(*stats);
            (known.seen, known.recent) = (round.pass, packets);
            let used = used_or(stats, known.installed);
            if round.now.since(used) >= round.patience || known.generation != round.generation {
                go.push(*id);
            } else {
                stay += 1;
            }
            if packets > 0 {
                let Ukey { effects, uses, .. } = known;
                pushed.push((Arc::clone(effects), Arc::clone(uses), packets, bytes, used));
            }
        }
        drop(shard);
        for (effects, uses, packets, bytes, used) in pushed {
            self.push(&effects, &uses, packets, bytes, used);
        }
        (stay, go)
    }

    /// Removes a flow, keeping its statistics. Whether it was there: if not, it is just coming in, or another takes its
    /// place this moment and its last statistics are about to be reported.
    pub(crate) fn remove_flow(&self, dpif: &Arc<dyn Dpif>, id: FlowId) -> bool {
        match dpif.flow_del(id) {
            Ok(stats) => {
                self.forget(id, stats);
                true
            }
            Err(_) => {
                self.come_back(id);
                false
            }
        }
    }

    /// Notes that a flow is to be looked at again, when the datapath has it.
    pub(crate) fn come_back(&self, id: FlowId) {
        let mut shard = self.revalidation.ukeys.lock(id);
        if shard.get(id).is_some() {
            shard.late.insert(id);
        }
    }
}

/// Those of `chunk` that have to be translated again, for changes up to `seq`.
fn jobs(shard: &Shard, chunk: &[(FlowId, bool)], changes: &Changes, seq: u64) -> Vec<Job> {
    let wanted = chunk.iter().filter_map(|(id, certain)| {
        let known = shard.get(*id)?;
        let late = shard.late.contains(id);
        // One that was translated after all of the changes has seen them.
        (late || known.seq < seq && (*certain || shard.affects(*id, changes))).then(|| Job::of(*id, known))
    });
    wanted.collect()
}
