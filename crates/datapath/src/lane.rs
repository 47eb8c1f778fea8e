//! The lane of the calling thread: that of its packet thread, or the one that all other threads share.
//!
//! Rare events deep in the call tree, such as drops, find their counters through this instead of an argument.

use std::cell::Cell;

use crate::shared::CALLER_LANE;

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(CALLER_LANE) };
}

/// Returns the calling thread's lane.
#[inline]
pub(crate) fn current() -> usize {
    LANE.get()
}

/// Sets the lane of the calling thread until the guard is dropped.
pub(crate) fn enter(lane: usize) -> Entered {
    Entered { before: LANE.replace(lane) }
}

/// See [`enter`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered {
    before: usize,
}

impl Drop for Entered {
    fn drop(&mut self) {
        LANE.set(self.before);
    }
}
