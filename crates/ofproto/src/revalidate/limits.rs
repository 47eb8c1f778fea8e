//! The limits on the number of flows and on their idle time.
//!
//! The flow limit depends on the duration of a pass over the flows (ovs-vswitchd.conf.db(5), `other_config:flow-limit`): with
//! more flows, statistics and changes take longer.

use base::Millis;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The configured limits (Open_vSwitch:other_config).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The largest number of flows, whatever the duration of passes (`flow-limit`).
    pub flow_limit: u64,
    /// Milliseconds without a packet until a flow is removed, at least 500 (`max-idle`).
    pub max_idle_ms: u64,
    /// Milliseconds between two passes at most, at least 100 (`max-revalidator`).
    pub max_revalidator_ms: u64,
    /// While passes take longer than half of `max_revalidator_ms`, flows that a change can affect are removed instead of
    /// translated again if they have fewer packets a second than this, at least 1 (`min-revalidate-pps`).
    pub min_revalidate_pps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flow_limit: 200_000, max_idle_ms: 10_000, max_revalidator_ms: 500, min_revalidate_pps: 5 }
    }
}

/// The initial limit.
const FIRST: u64 = 10_000;
/// The smallest limit, unless the configuration has a smaller one.
const LEAST: u64 = 1000;
/// The step by which the limit rises.
const STEP: u64 = 1000;
/// The idle time in milliseconds while there are more flows than the limit.
const OVER_LIMIT_IDLE_MS: u64 = 100;

/// The current limits.
#[derive(Debug)]
pub(crate) struct Limiter {
    limits: Mutex<Limits>,
    flow_limit: AtomicU64,
    seen: Mutex<Measurements>,
}

/// Measurements of passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measurements {
    /// The exponential moving average of the number of flows, with a weight of one half for the last pass.
    pub(crate) average: u64,
    /// The largest number of flows.
    pub(crate) maximum: u64,
    /// The duration of the last pass over statistics, in milliseconds.
    pub(crate) dump_ms: u64,
    /// The time when that pass began.
    at: Millis,
    /// Milliseconds between the last two passes.
    interval_ms: u64,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { limits: Mutex::default(), flow_limit: AtomicU64::new(FIRST), seen: Mutex::default() }
    }
}

impl Limiter {
    pub(crate) fn set(&self, limits: Limits) {
        let limits = Limits {
            flow_limit: limits.flow_limit,
            max_idle_ms: limits.max_idle_ms.max(500),
            max_revalidator_ms: limits.max_revalidator_ms.max(100),
            min_revalidate_pps: limits.min_revalidate_pps.max(1),
        };
        *self.limits.lock() = limits;
        self.flow_limit.fetch_min(limits.flow_limit, Ordering::Relaxed);
    }

    /// Sets the current limit at once, without waiting for measurements of passes.
    pub(crate) fn allow(&self, flows: u64) {
        self.flow_limit.store(flows, Ordering::Relaxed);
    }

    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    pub(crate) fn seen(&self) -> Measurements {
        *self.seen.lock()
    }

    /// The current limit on the number of flows.
    pub(crate) fn flow_limit(&self) -> u64 {
        self.flow_limit.load(Ordering::Relaxed)
    }

    /// The idle time in milliseconds after which flows are removed when there are `flows`; 0 if none of them may stay.
    pub(crate) fn idle_limit_ms(&self, flows: u64, paused: bool) -> u64 {
        let (limit, max_idle_ms) = (self.flow_limit(), self.limits().max_idle_ms);
        if paused {
            u64::MAX
        } else if flows > limit.saturating_mul(2) {
            base::coverage!(upcall_flow_limit_kill);
            0
        } else if flows > limit {
            OVER_LIMIT_IDLE_MS.min(max_idle_ms)
        } else {
            max_idle_ms
        }
    }

    /// Adapts the limit to a pass over `flows` flows that began at `at` and took `ms`.
    pub(crate) fn adapt(&self, flows: u64, ms: u64, at: Millis) {
        let mut seen = self.seen.lock();
        let ms = ms.max(1);
        *seen = Measurements {
            average: u64::midpoint(seen.average, flows),
            maximum: seen.maximum.max(flows),
            dump_ms: ms,
            at,
            interval_ms: at.since(seen.at),
        };
        drop(seen);
        let limit = self.flow_limit();
        let adapted = match ms {
            2001.. => limit / (ms / 1000),
            1301.. => limit * 3 / 4,
            // The limit rises while it is below the number of flows that a pass could process in a second.
            ..1000 if limit < flows.saturating_mul(1000) / ms => limit + STEP,
            _ => limit,
        };
        if adapted < limit {
            base::coverage!(upcall_flow_limit_reduced);
        }
        let most = self.limits().flow_limit;
        self.flow_limit.store(adapted.max(LEAST).min(most), Ordering::Relaxed);
    }

    /// Returns true if passes are so slow that rarely used flows are removed instead of revalidated.
    pub(crate) fn is_slow(&self) -> bool {
        self.seen.lock().dump_ms > self.limits().max_revalidator_ms / 2
    }

    /// Returns true if a flow with this many packets between the last two passes is too rarely used to be translated
    /// again while passes are slow.
    pub(crate) fn is_seldom_used(&self, packets: u64) -> bool {
        let (interval_ms, limits) = (self.seen.lock().interval_ms, self.limits());
        packets.saturating_mul(1000) < limits.min_revalidate_pps.saturating_mul(interval_ms)
    }

    /// The interval of passes in milliseconds.
    pub(crate) fn interval_ms(&self) -> u64 {
        let limits = self.limits();
        limits.max_revalidator_ms.min(limits.max_idle_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_what_a_pass_costs() {
        let l = Limiter::default();
        assert_eq!(l.flow_limit(), 10_000);
        let adapt = |flows, ms| {
            l.adapt(flows, ms, Millis(5));
            l.flow_limit()
        };
        // Few flows give no information about many.
        assert_eq!((adapt(100, 50), adapt(9_000, 50)), (10_000, 11_000));
        assert_eq!((adapt(9_000, 999), adapt(9_000, 1300), adapt(9_000, 1301)), (11_000, 11_000, 8_250));
        assert_eq!((adapt(9_000, 4_100), adapt(9_000, 4_100), adapt(9_000, 4_100)), (2_062, 1_000, 1_000));
        for _ in 0..300 {
            adapt(190_000, 100);
        }
        assert_eq!(l.flow_limit(), 200_000);
        l.set(Limits { flow_limit: 500, max_idle_ms: 1, max_revalidator_ms: 1, min_revalidate_pps: 0 });
        assert_eq!((l.flow_limit(), adapt(400, 1)), (500, 500));
        assert_eq!((l.limits().max_idle_ms, l.interval_ms(), l.limits().min_revalidate_pps), (500, 100, 1));
        assert_eq!(
            (l.idle_limit_ms(500, false), l.idle_limit_ms(501, false), l.idle_limit_ms(1001, false)),
            (500, 100, 0)
        );
        assert_eq!(l.idle_limit_ms(1001, true), u64::MAX);
        assert_eq!(l.seen().maximum, 190_000);
    }
}
