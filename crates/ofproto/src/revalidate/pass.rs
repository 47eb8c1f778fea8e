//! One pass over the flows: first what changes ask for, then statistics and what is idle.

use super::Passing;
use super::again::{Job, Outcome};
use super::book::Book;
use super::plan::Changes;
use crate::switch::Switch;
use crate::upcall::used_or;
use dpif::{Dpif, FlowId};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Flows that are taken from the book at once, so that misses need not wait long for it.
const CHUNK: usize = 128;
/// Flows that a pass works through so fast that it need not be left to another thread.
const FEW: usize = if cfg!(test) { 1 } else { 1000 };
/// How soon who waits for a pass looks whether one goes on at all.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How much a pass does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extent {
    /// What has changed since the last pass, and no more.
    Changes,
    /// The same, and then statistics, and the removal of what is idle.
    Round,
    /// The same, and all flows are translated again: what is found wrong without a change to explain it is mended and
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
    pub mended: usize,
}

impl Switch {
    /// One round: whatever changed before the call is dealt with when it returns, statistics are pushed, idle flows
    /// removed. Returns how many flows are left.
    pub fn revalidate(&self) -> usize {
        self.pass(Extent::Round).flows
    }

    /// One pass; see [`Extent`]. For changes alone, it is enough that a pass that goes on deals with them.
    pub fn pass(&self, extent: Extent) -> PassReport {
        let mut report = PassReport::default();
        let Some(dpif) = self.dpif() else { return report };
        let state = &self.revalidation;
        let mut passing = match extent {
            Extent::Changes => match self.wait_for_turn() {
                Some(passing) => passing,
                None => return report,
            },
            Extent::Round | Extent::Full => state.passing.lock(),
        };
        if !state.paused.load(Ordering::SeqCst) {
            let mut seq = self.catch_up(dpif, &mut passing.loosened, &mut report);
            if extent == Extent::Full {
                (passing.since_full, passing.loosened) = (0, false);
                self.verify_all(dpif, &mut seq, &mut passing.loosened, &mut report);
            }
        }
        passing.since_full += u64::from(extent != Extent::Changes);
        drop(passing);
        state.moved.notify_all();
        if extent != Extent::Changes {
            // Changes are dealt with meanwhile.
            let mut counting = state.counting.lock();
            *counting += 1;
            report.flows = self.statistics(dpif, *counting);
        }
        state.counters.add(extent, &report);
        report
    }

    /// Whether all changes until now have been dealt with.
    pub(crate) fn is_settled(&self) -> bool {
        self.revalidation.is_settled()
    }

    /// Whether so few flows are cached that a pass keeps nobody waiting.
    pub(crate) fn has_few_flows(&self) -> bool {
        self.revalidation.book.lock().len() < FEW
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

    /// Runs `meanwhile` on another thread while a pass goes on that only looks whether it is asked for changes.
    #[cfg(test)]
    pub(crate) fn pass_during(&self, meanwhile: impl FnOnce() + Send) {
        let dpif = self.dpif().expect("a datapath");
        let mut passing = self.revalidation.passing.lock();
        std::thread::scope(|scope| {
            let other = scope.spawn(meanwhile);
            while !other.is_finished() {
                if self.revalidation.queue.lock().asked {
                    self.catch_up(dpif, &mut passing.loosened, &mut PassReport::default());
                }
                std::thread::yield_now();
            }
        });
    }

    /// Translates again what the changes since the last time can affect. Returns the number of the last of them.
    fn catch_up(&self, dpif: &Arc<dyn Dpif>, loosened: &mut bool, report: &mut PassReport) -> u64 {
        let state = &self.revalidation;
        let turn = {
            let mut queue = state.queue.lock();
            (queue.begun, queue.asked) = (queue.begun + 1, false);
            queue.begun
        };
        let (changes, seq) = state.take();
        *loosened |= changes.loosened;
        let (candidates, n) = {
            let mut book = state.book.lock();
            book.begin(seq);
            if changes.is_empty() && book.late.is_empty() { Default::default() } else { book.candidates(&changes) }
        };
        report.candidates += n;
        let slow = state.limiter.is_slow();
        for chunk in candidates.chunks(CHUNK) {
            let jobs = jobs(&state.book.lock(), chunk, &changes, seq);
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
        }
        state.done.fetch_max(seq, Ordering::SeqCst);
        state.queue.lock().done = turn;
        state.moved.notify_all();
        seq
    }

    /// Holds all flows against fresh translations. What changes meanwhile is dealt with in between, so that it need not
    /// wait for the end.
    fn verify_all(&self, dpif: &Arc<dyn Dpif>, seq: &mut u64, loosened: &mut bool, report: &mut PassReport) {
        let state = &self.revalidation;
        let ids = state.book.lock().ids();
        for chunk in ids.chunks(CHUNK) {
            if state.seq() != *seq || state.queue.lock().asked {
                *seq = self.catch_up(dpif, loosened, report);
            }
            let jobs: Vec<Job> = {
                let book = state.book.lock();
                chunk.iter().filter_map(|id| Some(Job::of(*id, book.get(*id)?))).collect()
            };
            for job in jobs {
                match self.verify(dpif, &job, *seq) {
                    None => {}
                    Some(Outcome::Widened) => report.widened += 1,
                    Some(_) => report.mended += 1,
                }
            }
        }
    }

    /// Pushes the statistics of all flows, and removes those that are idle, too many or of another generation. Returns
    /// how many are left.
    fn statistics(&self, dpif: &Arc<dyn Dpif>, pass: u64) -> usize {
        let state = &self.revalidation;
        let now = self.clock().now();
        let generation = self.generation();
        let n_flows = state.book.lock().len();
        let patience = state.limiter.patience(n_flows as u64, state.paused.load(Ordering::SeqCst));
        let (mut left, mut doomed) = (0, Vec::new());
        dpif.flow_stats(&mut |id, stats| {
            let mut book = state.book.lock();
            // Gone since, or put there by hand.
            let Some(known) = book.get_mut(id) else { return };
            let (packets, bytes) = known.take(stats);
            (known.seen, known.recent) = (pass, packets);
            let used = used_or(&stats, known.installed);
            if now.since(used) >= patience || known.generation != generation {
                doomed.push(id);
            } else {
                left += 1;
            }
            if packets > 0 {
                let (effects, uses) = (Arc::clone(&known.effects), Arc::clone(&known.uses));
                drop(book);
                self.push(&effects, &uses, packets, bytes, used);
            }
        });
        for id in doomed {
            self.remove_flow(dpif, id);
        }
        let mut book = state.book.lock();
        if book.len() > left {
            let before = base::Millis(now.0.saturating_sub(state.limiter.limits().max_idle_ms));
            book.remove_unseen(pass, before);
        }
        drop(book);
        state.limiter.adapt(n_flows as u64, self.clock().now().since(now), now);
        left
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
        let mut book = self.revalidation.book.lock();
        if book.get(id).is_some() {
            book.late.insert(id);
        }
    }
}

/// Those of `chunk` that have to be translated again, for changes up to `seq`.
fn jobs(book: &Book, chunk: &[(FlowId, bool)], changes: &Changes, seq: u64) -> Vec<Job> {
    let wanted = chunk.iter().filter_map(|(id, certain)| {
        let known = book.get(*id)?;
        let late = book.late.contains(id);
        // One that was translated after all of the changes has seen them.
        (late || known.seq < seq && (*certain || book.affects(*id, changes))).then(|| Job::of(*id, known))
    });
    wanted.collect()
}
