//! What a user asks the tracker for, and sets.

use std::sync::atomic::Ordering;

use base::{Millis, coverage};

use super::{SWEEP_INTERVAL_MS, Tracker};
use crate::alg::expect::Expectations;
use crate::conn::Conn;
use crate::limits::Limits;
use crate::table::{ConnGuard, Handle};
use crate::timeout::Policies;

/// Slots that one step of a pass over the table examines.
const STEP: usize = 256;

impl Tracker {
    /// The number of connections, including some that have expired.
    pub fn connections(&self) -> u64 {
        self.table.len()
    }

    /// The maximum number of connections.
    pub fn connections_max(&self) -> u64 {
        self.connections_max.load(Ordering::Relaxed)
    }

    /// Sets the maximum number of connections. More connections than that stay until they end, or are evicted for new ones.
    pub fn set_connections_max(&self, max: u64) {
        self.connections_max.store(max, Ordering::Relaxed);
    }

    /// Whether TCP sequence numbers outside of the window are invalid.
    pub fn checks_sequence(&self) -> bool {
        self.checks_sequence.load(Ordering::Relaxed)
    }

    /// Sets whether they are.
    pub fn set_checks_sequence(&self, on: bool) {
        self.checks_sequence.store(on, Ordering::Relaxed);
    }

    /// The time in which the sweep visits all connections, in milliseconds.
    pub fn sweep_interval_ms(&self) -> u64 {
        self.sweep_interval_ms.load(Ordering::Relaxed)
    }

    /// Sets that time; 0 sets the default.
    pub fn set_sweep_interval_ms(&self, ms: u64) {
        self.sweep_interval_ms.store(if ms == 0 { SWEEP_INTERVAL_MS } else { ms }, Ordering::Relaxed);
    }

    /// Limits of zones.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Timeout policies.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Connections that helpers expect.
    pub fn expectations(&self) -> &Expectations {
        &self.expectations
    }

    /// Passes connections to `each`, in bounded steps: those in a part of the table from `from` on. Returns where the next
    /// part begins, or `None` at the end. Expired connections are left out.
    pub fn visit(&self, from: usize, now: Millis, each: &mut dyn FnMut(&mut ConnGuard<'_>)) -> Option<usize> {
        self.table.visit(from, STEP, &mut |conn| {
            if !conn.life().is_over(now) {
                each(conn);
            }
        })
    }

    /// Removes the connections for which `is_meant` returns true. Returns their number.
    pub fn flush(&self, is_meant: &mut dyn FnMut(&Conn) -> bool) -> u64 {
        let mut removed = 0;
        self.table.flush(is_meant, &mut |handle: Handle, conn: &Conn| {
            self.ended(handle, conn);
            removed += 1;
        });
        removed
    }

    /// Removes expired connections in a part of the table, so that calls at any rate visit all of it once in the interval.
    /// Returns the number of fragments that were dropped because their datagrams stayed incomplete.
    pub fn sweep(&self, now: Millis) -> usize {
        if let Some(mut sweep) = self.sweep.try_lock() {
            let interval = self.sweep_interval_ms().max(1);
            let elapsed = now.since(sweep.last).min(interval);
            let slots = self.table.slots();
            let mut left = (slots as u64 * elapsed).div_ceil(interval) as usize;
            if left > 0 {
                sweep.last = now;
            }
            while left > 0 {
                // No further than to the end of the table, where the next pass begins.
                let step = left.min(STEP).min(slots.saturating_sub(sweep.cursor).max(1));
                left -= step;
                self.table.sweep(&mut sweep.cursor, step, now, &mut |handle, conn| {
                    coverage!(conntrack_expired);
                    self.ended(handle, conn);
                });
            }
        }
        self.sweep_fragments(now)
    }
}
