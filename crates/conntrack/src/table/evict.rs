//! Room in a full table: which connection gives way to a new one.
//!
//! A cursor goes around the table, so that a new connection has time for its handshake until the cursor comes around, and
//! consecutive evictions use memory that lies side by side. A new connection takes the slot of the one that gives way.

use std::sync::atomic::Ordering;

use base::{Millis, coverage};

use super::slab::{ConnGuard, Entry, Handle, Life};
use super::{Locked, Positions, Table};
use crate::conn::Conn;

/// Connections that an eviction compares.
const CANDIDATES: u32 = 8;
/// Slots that an eviction examines: more, as some may be free.
const SLOTS: u32 = 64;
/// Attempts of an eviction while other threads remove connections.
const ATTEMPTS: u32 = 8;

/// A connection that may give way, and its positions in the index.
pub(super) struct Victim<'a> {
    entry: &'a Entry,
    handle: Handle,
    pub(super) positions: Positions,
}

impl Table {
    /// The connection that gives way next; `None` if those that were considered are all assured.
    pub(super) fn victim(&self, now: Millis) -> Option<Victim<'_>> {
        // Another thread may remove it first.
        (0..ATTEMPTS).find_map(|_| {
            let (slot, entry) = self.candidate_at_cursor(now)?;
            let guard = entry.lock(slot)?;
            Some(Victim { entry, handle: guard.handle(), positions: self.positions(&guard.keys()) })
        })
    }

    /// Of the next eight connections from the cursor, an expired one, or else the one that expires first of those that are not
    /// assured. `None` if all of them are assured.
    fn candidate_at_cursor(&self, now: Millis) -> Option<(u32, &Entry)> {
        let len = self.slab.len();
        let start = self.cursor.0.fetch_add(1, Ordering::Relaxed).checked_rem(len.into())? as u32;
        let (mut run, mut first) = (self.slab.run(start, len), start);
        let (mut slots, mut seen, mut free) = (0, 0, 0);
        let (mut best, mut best_end) = (None, Millis(u64::MAX));
        'search: while slots < SLOTS.min(len) {
            for (entry, slot) in run.iter().zip(first..) {
                let life = entry.life();
                slots += 1;
                seen += u32::from(life != Life::NONE);
                free += u32::from(seen == 0);
                if life != Life::NONE && life.expires() < best_end && is_evictable(life, now) {
                    (best, best_end) = (Some((slot, entry)), life.expires());
                }
                if seen == CANDIDATES || slots == SLOTS || best_end <= now {
                    break 'search;
                }
            }
            // A chunk that is being created has no entries.
            slots += 1;
            first += run.len() as u32;
            if first >= len {
                first = 0;
            }
            run = self.slab.run(first, len);
        }
        if best.is_none() {
            // All of these are assured, or free.
            self.cursor.0.fetch_add(slots.into(), Ordering::Relaxed);
            return None;
        }
        if free > 0 {
            // Otherwise the connection behind free slots would give way once for each of them.
            self.cursor.0.fetch_add(free.into(), Ordering::Relaxed);
        }
        best
    }

    /// Removes the connection that gives way, without another one in its place.
    pub(super) fn evict(&self, now: Millis) -> Option<(Handle, Conn)> {
        // Another thread may remove it first.
        for _ in 0..ATTEMPTS {
            let handle = self.victim(now)?.handle;
            if let Some(conn) = self.take(handle, &mut |_, life| is_evictable(life, now)) {
                coverage!(conntrack_evicted);
                return Some((handle, conn));
            }
        }
        None
    }

    /// Replaces a connection by the one that `make` returns, at `positions` of the index. The shards of both are locked. Returns
    /// the new one, locked, and the old one with its handle; `None`, without a change, if the old one must not be replaced any
    /// more, or there is no memory for the index.
    pub(super) fn replace<'a>(
        &'a self,
        mut locked: Locked<'_>,
        victim: &Victim<'a>,
        positions: Positions,
        (expires, now): (Millis, Millis),
        make: impl FnOnce() -> Conn,
    ) -> Option<(ConnGuard<'a>, Handle, Conn)> {
        let slot = victim.handle.slot();
        let entry = victim.entry;
        let mut content = entry.conn.lock();
        let generation = victim.handle.generation().wrapping_add(1);
        let is_same = entry.generation() == victim.handle.generation();
        let may_go = is_same && content.is_some() && is_evictable(entry.life(), now);
        // A slot whose generations are used up retires.
        if !may_go || generation == 0 || !self.link(&mut locked, positions, slot) {
            return None;
        }
        self.unlink(&mut locked, victim.positions, slot);
        drop(locked);
        let old = content.take().expect("the entry was checked above");
        *content = Some(make());
        entry.generation.store(generation, Ordering::Relaxed);
        entry.set_life(Life::until(expires));
        coverage!(conntrack_evicted);
        Some((entry.guard(slot, content)?, victim.handle, old))
    }
}

fn is_evictable(life: Life, now: Millis) -> bool {
    !life.is_assured() || life.is_over(now)
}
