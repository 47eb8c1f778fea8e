//! How many flows there may be, and how long they may be idle.
//!
//! The limit follows what a pass over the flows costs (ovs-vswitchd.conf.db(5), `other_config:flow-limit`): the more
//! flows, the longer statistics and changes take to get through them.

use base::Millis;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is configured (Open_vSwitch:other_config).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Flows at most, whatever passes cost (`flow-limit`).
    pub flow_limit: u64,
    /// Milliseconds without a packet until a flow is removed, at least 500 (`max-idle`).
    pub max_idle_ms: u64,
    /// Milliseconds between passes at most, at least 100 (`max-revalidator`).
    pub max_revalidator_ms: u64,
    /// When passes take longer than half of `max_revalidator_ms`, flows that a change can affect are removed instead of
    /// translated again if they have fewer packets a second than this, at least 1 (`min-revalidate-pps`).
    pub min_revalidate_pps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flow_limit: 200_000, max_idle_ms: 10_000, max_revalidator_ms: 500, min_revalidate_pps: 5 }
    }
}

/// The limit at first.
const FIRST: u64 = 10_000;
/// The limit never falls below this, unless less is configured.
const LEAST: u64 = 1000;
/// By how much the limit rises.
const STEP: u64 = 1000;
/// Milliseconds without a packet, when there are more flows than the limit.
const IMPATIENT_MS: u64 = 100;

/// The limits at work.
#[derive(Debug)]
pub(crate) struct Limiter {
    limits: Mutex<Limits>,
    flow_limit: AtomicU64,
    seen: Mutex<Seen>,
}

/// What passes have shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Flows, averaged over passes, each counting as much as all before it.
    pub(crate) average: u64,
    /// Most flows.
    pub(crate) maximum: u64,
    /// Milliseconds that the last pass took for statistics.
    pub(crate) dump_ms: u64,
    /// When it began.
    at: Millis,
    /// Milliseconds between the last two.
    apart_ms: u64,
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

    /// Lets there be so many flows at once, without waiting for passes to show that they can be managed.
    pub(crate) fn allow(&self, flows: u64) {
        self.flow_limit.store(flows, Ordering::Relaxed);
    }

    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    pub(crate) fn seen(&self) -> Seen {
        *self.seen.lock()
    }

    /// Flows at most, at present.
    pub(crate) fn flow_limit(&self) -> u64 {
        self.flow_limit.load(Ordering::Relaxed)
    }

    /// Milliseconds that flows may be idle when there are `flows`; 0 if none of them may stay.
    pub(crate) fn patience(&self, flows: u64, paused: bool) -> u64 {
        let (limit, max_idle_ms) = (self.flow_limit(), self.limits().max_idle_ms);
        if paused {
            u64::MAX
        } else if flows > limit.saturating_mul(2) {
            base::coverage!(upcall_flow_limit_kill);
            0
        } else if flows > limit {
            IMPATIENT_MS.min(max_idle_ms)
        } else {
            max_idle_ms
        }
    }

    /// Learns from a pass over `flows` flows that began at `at` and took `ms`.
    pub(crate) fn adapt(&self, flows: u64, ms: u64, at: Millis) {
        let mut seen = self.seen.lock();
        let ms = ms.max(1);
        *seen = Seen {
            average: u64::midpoint(seen.average, flows),
            maximum: seen.maximum.max(flows),
            dump_ms: ms,
            at,
            apart_ms: at.since(seen.at),
        };
        drop(seen);
        let limit = self.flow_limit();
        let adapted = match ms {
            2001.. => limit / (ms / 1000),
            1301.. => limit * 3 / 4,
            // It is raised while there are few flows for what could be worked through in a second.
            ..1000 if limit < flows.saturating_mul(1000) / ms => limit + STEP,
            _ => limit,
        };
        if adapted < limit {
            base::coverage!(upcall_flow_limit_reduced);
        }
        let most = self.limits().flow_limit;
        self.flow_limit.store(adapted.max(LEAST).min(most), Ordering::Relaxed);
    }

    /// Whether passes take so long that not all flows may be worth one.
    pub(crate) fn is_slow(&self) -> bool {
        self.seen.lock().dump_ms > self.limits().max_revalidator_ms / 2
    }

    /// Whether a flow with so many packets between the last two passes is less used than it takes for being translated
    /// again when passes are slow.
    pub(crate) fn is_seldom_used(&self, packets: u64) -> bool {
        let (apart, limits) = (self.seen.lock().apart_ms, self.limits());
        packets.saturating_mul(1000) < limits.min_revalidate_pps.saturating_mul(apart)
    }

    /// Milliseconds between passes.
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
        // Few flows say nothing about many.
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
        assert_eq!((l.patience(500, false), l.patience(501, false), l.patience(1001, false)), (500, 100, 0));
        assert_eq!(l.patience(1001, true), u64::MAX);
        assert_eq!(l.seen().maximum, 190_000);
    }
}
