//! The gate in front of a bridge's tables: the control thread never blocks on a long change of them.
//!
//! A change that takes long, such as the commit of a large bundle, runs on a worker thread while it holds the gate
//! exclusively. Tasks of the control thread await the gate before they begin a change of their own, so
//! that the lock of the tables is free, or held for microseconds by a packet thread.
//!
//! A few worker threads at a time write long replies ([`Workers`]): if a hundred controllers request statistics at once, a
//! hundred threads would compete with the control thread for processors.

use crate::bridge::Ofproto;
use crate::switch::Switch;
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore};

/// The number of flows that a change may concern and still be made on the control thread, which takes some milliseconds
/// at most.
pub(crate) const SHORT_MAX: usize = 2_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Gate(Arc<RwLock<()>>);

/// Permission to change tables for a short time. Must not be held across an `await`.
#[derive(Debug)]
pub struct ShortChange {
    _guard: OwnedRwLockReadGuard<()>,
}

/// Permission to change tables for a long time. Meanwhile no task of the control thread begins a change.
#[derive(Debug)]
pub(crate) struct LongChange {
    _guard: OwnedRwLockWriteGuard<()>,
}

/// The worker threads that write replies for a switch: half as many as there are processors, but at least one.
#[derive(Debug)]
pub(crate) struct Workers {
    /// The number of worker threads.
    #[cfg(test)]
    pub(crate) n: usize,
    free: Arc<Semaphore>,
}

impl Default for Workers {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, std::num::NonZero::get);
        let n = (processors / 2).max(1);
        Self {
            #[cfg(test)]
            n,
            free: Arc::new(Semaphore::new(n)),
        }
    }
}

impl Workers {
    /// Waits for a worker thread, in the order of requests. `None` if there is no limit.
    pub(crate) async fn one(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}

impl Ofproto {
    /// Waits until no long change of the tables is in progress.
    pub async fn short_change(&self) -> ShortChange {
        ShortChange { _guard: Arc::clone(&self.gate.0).read_owned().await }
    }

    /// Waits until no other change is in progress, and keeps the control thread from beginning one.
    pub(crate) async fn long_change(&self) -> LongChange {
        LongChange { _guard: Arc::clone(&self.gate.0).write_owned().await }
    }

    /// Returns permission for a long change if no other change is in progress.
    pub(crate) fn try_long_change(&self) -> Option<LongChange> {
        Arc::clone(&self.gate.0).try_write_owned().ok().map(|guard| LongChange { _guard: guard })
    }

    /// Returns true if a long change of the tables is in progress or about to begin. Callers retry later.
    pub fn is_changing(&self) -> bool {
        self.gate.0.try_read().is_err()
    }
}

impl Switch {
    /// Waits until no long change is in progress in any bridge. None begins until the permissions are dropped.
    pub async fn short_changes(&self) -> Vec<ShortChange> {
        let mut all = Vec::new();
        for bridge in self.bridges() {
            all.push(bridge.short_change().await);
        }
        all
    }
}
