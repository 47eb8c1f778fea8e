//! Passes over the table in bounded steps: expiry, dumps, eviction, flushes. They lock one entry at a time, and read which
//! entries are worth it without a lock.

use std::sync::atomic::Ordering;

use base::Millis;

use super::slab::{ConnGuard, Handle, Life};
use super::{Removed, Table};
use crate::conn::Conn;

/// Connections that an eviction compares.
const EVICTION_CANDIDATES: u32 = 8;
/// Slots that an eviction examines: more, as some may be free.
const EVICTION_SLOTS: u32 = 64;
/// Attempts of an eviction while other threads remove connections.
const EVICTION_ATTEMPTS: u32 = 8;

impl Table {
    /// Examines the next `n` slots from `cursor`, removes the connections that have expired, and advances the cursor.
    /// Returns true at the end of the table, and then the cursor begins again.
    pub fn sweep(&self, cursor: &mut usize, n: usize, now: Millis, removed: Removed<'_>) -> bool {
        let len = self.slab.len() as usize;
        let end = cursor.saturating_add(n).min(len);
        for slot in *cursor..end {
            let slot = slot as u32;
            let Some(entry) = self.slab.entry(slot) else { continue };
            let life = entry.life();
            if life == Life::NONE || !life.is_over(now) {
                continue;
            }
            if let Some(handle) = Handle::new(slot, entry.generation())
                && let Some(conn) = self.take(handle, &mut |_, life| life.is_over(now))
            {
                removed(handle, conn);
            }
        }
        *cursor = if end < len { end } else { 0 };
        end >= len
    }

    /// Calls `each` with the connections in the `n` slots from `from`, including expired ones, and returns where to
    /// continue; `None` at the end. A connection that is in the table during the whole pass is visited exactly once.
    /// `each` must call no function of the table.
    pub fn visit(&self, from: usize, n: usize, each: &mut dyn FnMut(&mut ConnGuard<'_>)) -> Option<usize> {
        let len = self.slab.len() as usize;
        let end = from.saturating_add(n).min(len);
        for slot in from..end {
            let slot = slot as u32;
            let Some(entry) = self.slab.entry(slot) else { continue };
            if entry.life() != Life::NONE
                && let Some(mut guard) = entry.lock(slot)
            {
                each(&mut guard);
            }
        }
        (end < len).then_some(end)
    }

    /// Makes room in a full table: of the next eight connections from a cursor that goes around the table, removes an
    /// expired one, or else the one that expires first of those that are not assured. `None` if all of them are assured.
    ///
    /// The cursor advances by one slot, so that consecutive evictions look at memory that is in the cache already, and a
    /// new connection has time for its handshake until the cursor comes around.
    pub fn evict(&self, now: Millis) -> Option<(Handle, Conn)> {
        // Another thread may remove the candidate first.
        for _ in 0..EVICTION_ATTEMPTS {
            let handle = self.eviction_candidate(now)?;
            if let Some(conn) = self.take(handle, &mut |_, life| is_evictable(life, now)) {
                return Some((handle, conn));
            }
        }
        None
    }

    fn eviction_candidate(&self, now: Millis) -> Option<Handle> {
        let len = self.slab.len();
        let start = self.evicted.0.fetch_add(1, Ordering::Relaxed);
        let mut slot = start.checked_rem(u64::from(len))? as u32;
        let mut best = None;
        let (mut slots, mut seen) = (0, 0);
        while slots < EVICTION_SLOTS.min(len) && seen < EVICTION_CANDIDATES {
            let current = slot;
            slot = if slot + 1 < len { slot + 1 } else { 0 };
            slots += 1;
            let Some(entry) = self.slab.entry(current) else { continue };
            let life = entry.life();
            if life == Life::NONE {
                continue;
            }
            seen += 1;
            if is_evictable(life, now) && best.is_none_or(|(expires, _)| life.expires() < expires) {
                best = Some((life.expires(), Handle::new(current, entry.generation())?));
            }
            if life.is_over(now) {
                break;
            }
        }
        if best.is_none() {
            self.evicted.0.fetch_add(u64::from(slots), Ordering::Relaxed);
        }
        best.map(|(_, handle)| handle)
    }

    /// Removes the connections for which the condition holds, one after the other, each under its
    /// own lock. The condition may be evaluated twice, and must call no function of the table; `removed` may.
    pub fn flush(&self, condition: &mut dyn FnMut(&Conn) -> bool, removed: Removed<'_>) {
        for slot in 0..self.slab.len() {
            let Some(entry) = self.slab.entry(slot) else { continue };
            if entry.life() != Life::NONE
                && let Some(handle) = Handle::new(slot, entry.generation())
                && let Some(conn) = self.take(handle, &mut |conn, _| condition(conn))
            {
                removed(handle, conn);
            }
        }
    }

    /// Removes all connections.
    pub fn clear(&self, removed: Removed<'_>) {
        self.flush(&mut |_| true, removed);
    }
}

fn is_evictable(life: Life, now: Millis) -> bool {
    !life.is_assured() || life.is_over(now)
}
