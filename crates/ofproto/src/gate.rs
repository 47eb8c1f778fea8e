//! The gate in front of a bridge's tables: nobody on the control thread waits for a long change of them.
//!
//! A change that takes long, such as the commit of a large bundle, runs on a worker thread while it holds the gate
//! exclusively. Tasks of the control thread pass the gate, which they await, before they begin a change of their own, so
//! that they find the lock of the tables free, or held for microseconds by a packet thread.
//!
//! Long answers are written on worker threads, few at a time ([`Workers`]): a hundred controllers that ask for statistics
//! at once must not have a hundred threads compete with the control thread for processors.

use crate::bridge::Ofproto;
use crate::switch::Switch;
use std::sync::Arc;
use std::thread::available_parallelism;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Gate(Arc<RwLock<()>>);

/// Permission to change tables for a short time. To be held across no `await`.
#[derive(Debug)]
pub struct ShortChange {
    _guard: OwnedRwLockReadGuard<()>,
}

/// Permission to change tables for a long time, beside which no task of the control thread begins a change.
#[derive(Debug)]
pub(crate) struct LongChange {
    _guard: OwnedRwLockWriteGuard<()>,
}

/// The worker threads that a switch writes answers on: half as many as there are processors, but at least one.
#[derive(Debug)]
pub(crate) struct Workers {
    /// How many there are.
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
    /// Waits for a worker thread. Requests get theirs in the order in which they asked. `None` if there is no limit.
    pub(crate) async fn one(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}

impl Ofproto {
    /// Waits until no long change of the tables goes on.
    pub async fn short_change(&self) -> ShortChange {
        ShortChange { _guard: Arc::clone(&self.gate.0).read_owned().await }
    }

    /// Waits until no other change goes on, and keeps the control thread from beginning one.
    pub(crate) async fn long_change(&self) -> LongChange {
        LongChange { _guard: Arc::clone(&self.gate.0).write_owned().await }
    }

    /// Whether a long change of the tables goes on or is about to begin. What can wait is tried again later then.
    pub fn is_changing(&self) -> bool {
        self.gate.0.try_read().is_err()
    }
}

impl Switch {
    /// Waits until no long change goes on in any bridge. None begins until the permissions are dropped.
    pub async fn short_changes(&self) -> Vec<ShortChange> {
        let mut all = Vec::new();
        for bridge in self.bridges() {
            all.push(bridge.short_change().await);
        }
        all
    }
}
