//! What a translation depends on: handles that become stale when an answer changes.
//!
//! A handle is shared between the table that gave the answer and the translations that used it. Checking and touching
//! it takes no lock. The table forgets answers without a handle outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Millis;

#[derive(Debug)]
struct State {
    stale: AtomicBool,
    used_ms: AtomicU64,
}

/// A handle to an answer about a route or a neighbour. A translation keeps it beside what it made of the answer, asks
/// it whether that still holds, and touches it when packets have used it.
#[derive(Clone, Debug)]
pub struct Dependency(Arc<State>);

impl Dependency {
    pub(crate) fn new(now: Millis) -> Self {
        Self(Arc::new(State { stale: AtomicBool::new(false), used_ms: AtomicU64::new(now.0) }))
    }

    /// Whether the answer still holds. Once stale, a handle stays so: the translation asks again.
    #[inline]
    pub fn is_current(&self) -> bool {
        !self.0.stale.load(Ordering::Acquire)
    }

    /// Notes that packets have used the answer at this time, which keeps a neighbour alive.
    #[inline]
    pub fn touch(&self, now: Millis) {
        self.0.used_ms.fetch_max(now.0, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> Millis {
        Millis(self.0.used_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn invalidate(&self) {
        self.0.stale.store(true, Ordering::Release);
    }

    /// Whether a translation holds the handle, besides the table.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
