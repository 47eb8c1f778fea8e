//! Waiting for revalidation without blocking a thread.
//!
//! The control thread never runs a pass. At most it looks whether a few changes affect no flow
//! ([`Switch::settles_at_once`]). Otherwise it posts a [`Job`], which the revalidator runs once it has dealt with
//! all changes made before, or which the statistics thread runs once it has pushed all statistics. Jobs run in the order
//! in which they were posted, and all jobs that wait when a pass begins share that pass.
//!
//! Without these threads, as in tests in virtual time, the pass runs on the caller's thread.

use super::Extent;
use crate::switch::Switch;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

/// Work to do after a pass.
type Job = Box<dyn FnOnce() + Send>;

/// Jobs that wait for one kind of pass.
#[derive(Default)]
pub(crate) struct Jobs {
    waiting: Mutex<Vec<Job>>,
    /// The number of jobs posted and not finished yet.
    pending: AtomicU64,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl Jobs {
    fn post(&self, job: Job) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.waiting.lock().push(job);
    }

    /// Takes the jobs that a pass which begins now may finish.
    pub(super) fn take(&self) -> Vec<Job> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Runs jobs after their pass.
    pub(super) fn finish(&self, jobs: Vec<Job>) {
        for job in jobs {
            job();
            self.pending.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns true if no job waits or runs.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }
}

impl Switch {
    /// Runs `job` once cached flows follow all changes made so far, on the revalidator thread.
    pub(crate) fn after_changes(&self, job: impl FnOnce() + Send + 'static) {
        let state = &self.revalidation;
        if state.signal.has_thread() {
            state.after_changes.post(Box::new(job));
            state.signal.wake_urgently();
        } else {
            self.pass(if state.paused.load(Ordering::SeqCst) { Extent::Round } else { Extent::Changes });
            job();
        }
    }

    /// Runs `job` once rules and groups have counted all packets forwarded so far, on the statistics thread.
    pub(crate) fn after_statistics(&self, job: impl FnOnce() + Send + 'static) {
        let state = &self.revalidation;
        if state.counting_signal.has_thread() {
            state.after_statistics.post(Box::new(job));
            state.counting_signal.wake_urgently();
        } else {
            self.revalidate();
            job();
        }
    }

    /// Waits until cached flows follow all changes made before the call. If they do already, it does not wait for the
    /// revalidator, which may have removed rules to free first.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let (done, settled) = oneshot::channel();
        if self.settles_at_once() {
            drop(done);
        } else {
            // The caller may have stopped waiting.
            self.after_changes(move || _ = done.send(()));
        }
        // An error means that there is nothing to wait for, or that the switch was dropped.
        async move { _ = settled.await }
    }

    /// Waits until rules and groups have counted all packets forwarded before the call.
    pub fn counted(&self) -> impl Future<Output = ()> + Send + use<> {
        let (done, counted) = oneshot::channel();
        self.after_statistics(move || _ = done.send(()));
        async move { _ = counted.await }
    }

    /// Returns true if there are threads that revalidate and push statistics.
    pub fn has_revalidator(&self) -> bool {
        self.revalidation.signal.has_thread()
    }
}
