//! Room in a full table: which connection gives way to a new one.
//!
//! A cursor goes around the table, so that a new connection has time for its handshake until the cursor comes around, and
//! consecutive evictions use memory that lies side by side. A new connection takes the slot of the one that gives way.

use std::sync::atomic::Ordering;

use base::{Millis, coverage};

use super::slab::{ConnGuard, Entry, Handle, Life};
use super::{Locked, Positions, Removed, Table};
use crate::conn::Conn;

/// Slots that an eviction examines.
const SLOTS: u32 = 64;
/// How far ahead of an eviction the memory of the next ones is read.
const AHEAD: usize = 3;
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
            Some(Victim { entry, handle: guard.handle(), positions: self.positions(&guard) })
        })
    }

    /// The next connection from the cursor that has expired or is not assured, among the next slots.
    fn candidate_at_cursor(&self, now: Millis) -> Option<(u32, &Entry)> {
        let len = self.slab.len();
        let mut first = self.cursor.0.load(Ordering::Relaxed) as u32;
        let mut slots = 0;
        while slots < SLOTS.min(len) {
            if first >= len {
                first = 0;
            }
            let run = self.slab.run(first, len);
            for (entry, slot) in run.iter().take((SLOTS - slots) as usize).zip(first..) {
                let life = entry.life();
                if life != Life::NONE && is_evictable(life, now) {
                    self.cursor.0.store((slot + 1).into(), Ordering::Relaxed);
                    self.prefetch_after((slot - first) as usize, run);
                    return Some((slot, entry));
                }
            }
            // A chunk that is being created has no entries.
            let examined = (run.len() as u32).clamp(1, SLOTS - slots);
            (first, slots) = (first + examined, slots + examined);
        }
        self.cursor.0.store(first.into(), Ordering::Relaxed);
        None
    }

    /// Reads memory for the evictions after that of an entry of `run`.
    #[inline]
    fn prefetch_after(&self, at: usize, run: &[Entry]) {
        if let Some(next) = run.get(at + 1) {
            let position = next.position();
            self.shards[position.shard()].prefetch(position.tag);
        }
        if let Some(next) = run.get(at + AHEAD) {
            prefetch::lines::<3, _>(next);
        }
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
    /// the new one, locked; `None`, without a change, if the old one must not be replaced any more, or there is no memory for the
    /// index.
    pub(super) fn replace<'a>(
        &'a self,
        mut locked: Locked<'_>,
        victim: &Victim<'a>,
        positions: Positions,
        (expires, now): (Millis, Millis),
        make: impl FnOnce() -> Conn,
        removed: Removed<'_>,
    ) -> Option<ConnGuard<'a>> {
        let slot = victim.handle.slot();
        let entry = victim.entry;
        let mut content = entry.conn.lock();
        let generation = victim.handle.generation().wrapping_add(1);
        let is_same = entry.generation() == victim.handle.generation();
        let old = content.as_mut().filter(|_| is_same && is_evictable(entry.life(), now))?;
        // A slot whose generations are used up retires.
        if generation == 0 || !self.link(&mut locked, positions, slot) {
            return None;
        }
        self.unlink(&mut locked, victim.positions, slot);
        drop(locked);
        removed(victim.handle, old);
        *old = make();
        entry.set_position(positions.original());
        entry.generation.store(generation, Ordering::Relaxed);
        entry.set_life(Life::until(expires));
        coverage!(conntrack_evicted);
        entry.guard(slot, content)
    }
}

fn is_evictable(life: Life, now: Millis) -> bool {
    !life.is_assured() || life.is_over(now)
}
