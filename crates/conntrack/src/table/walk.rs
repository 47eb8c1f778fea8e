//! Passes over the table in bounded steps: expiry, dumps, flushes. They lock one entry at a time, and read which
//! entries are worth it without a lock.

use base::Millis;

use super::slab::{ConnGuard, Handle, Life};
use super::{Removed, Table};
use crate::conn::Conn;

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
                removed(handle, &conn);
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

    /// Removes the connections for which the condition holds, one after the other, each under its
    /// own lock. The condition may be evaluated twice, and must call no function of the table.
    pub fn flush(&self, condition: &mut dyn FnMut(&Conn) -> bool, removed: Removed<'_>) {
        for slot in 0..self.slab.len() {
            let Some(entry) = self.slab.entry(slot) else { continue };
            if entry.life() != Life::NONE
                && let Some(handle) = Handle::new(slot, entry.generation())
                && let Some(conn) = self.take(handle, &mut |conn, _| condition(conn))
            {
                removed(handle, &conn);
            }
        }
    }

    /// Removes all connections.
    pub fn clear(&self, removed: Removed<'_>) {
        self.flush(&mut |_| true, removed);
    }
}
