//! Time. Nothing below the daemons reads the system's clock: it is handed a [`Clock`] or a [`Millis`].
//!
//! A clock can be stopped and moved by hand (`time/stop`, `time/warp`), and a test starts it stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A moment in milliseconds since the clock began, monotonic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds from `earlier` to here; 0 if `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `ms` milliseconds later.
    #[must_use]
    pub fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

#[derive(Debug)]
struct Inner {
    origin: Instant,
    stopped: AtomicBool,
    /// While stopped: its time. While running: the offset of the time since `origin`.
    offset_ms: AtomicU64,
}

/// A shared monotonic clock; cloning returns another handle to the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

impl Clock {
    /// A clock that runs with the system's monotonic clock, starting at 1,000,000 ms so that moments in the near past
    /// can be expressed.
    pub fn real() -> Self {
        Self::new(false)
    }

    /// A stopped clock, moved only by [`Clock::warp`].
    pub fn stopped() -> Self {
        Self::new(true)
    }

    fn new(stopped: bool) -> Self {
        Self(Arc::new(Inner {
            origin: Instant::now(),
            stopped: AtomicBool::new(stopped),
            offset_ms: AtomicU64::new(1_000_000),
        }))
    }

    /// Now, in milliseconds.
    pub fn now(&self) -> Millis {
        if self.is_stopped() {
            return Millis(self.0.offset_ms.load(Ordering::Acquire));
        }
        self.at(Instant::now())
    }

    /// The clock's time at `instant`, for callers that have read the time already. A stopped clock returns
    /// the same time for all instants.
    #[inline]
    pub fn at(&self, instant: Instant) -> Millis {
        let offset = self.0.offset_ms.load(Ordering::Acquire);
        if self.is_stopped() {
            return Millis(offset);
        }
        let since_origin = instant.saturating_duration_since(self.0.origin);
        Millis(offset.wrapping_add(since_origin.as_millis() as u64))
    }

    /// Stops the clock where it is. A stopped clock stays stopped.
    pub fn stop(&self) {
        let now = self.now();
        if !self.0.stopped.swap(true, Ordering::AcqRel) {
            self.0.offset_ms.store(now.0, Ordering::Release);
        }
    }

    /// Whether the clock is stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Advances the clock by `ms` milliseconds.
    pub fn warp(&self, ms: u64) {
        self.0.offset_ms.fetch_add(ms, Ordering::AcqRel);
    }
}

/// The wall clock: milliseconds since 1970-01-01 00:00 UTC.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_clock_moves_only_by_hand() {
        let clock = Clock::stopped();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        clock.warp(1500);
        assert_eq!(clock.now().since(start), 1500);
        assert_eq!(start.since(clock.now()), 0);
    }

    #[test]
    fn stopping_keeps_the_time() {
        let clock = Clock::real();
        let before = clock.now();
        clock.stop();
        let at = clock.now();
        assert!(at >= before && clock.is_stopped());
        assert_eq!(clock.now(), at);
    }
}
