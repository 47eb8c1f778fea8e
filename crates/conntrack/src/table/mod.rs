//! The table of connections: a slab of entries with a lock each, and an index by the hash of their keys.
//!
//! A full table replaces a connection that is not assured by the new one.
//!
//! Finding a connection takes no lock but that of its entry, and writes to no memory that connections share. Insertion and
//! removal lock the shards of the connections' keys, in ascending order, and then entries: whoever has locked an
//! entry must not wait for a shard.
//!
//! The keys of a connection are unique: no two connections in the table have a key in common, for any direction.

mod evict;
mod index;
mod pieces;
mod slab;
mod walk;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use base::Millis;
use parking_lot::MutexGuard;

pub use slab::{ConnGuard, Handle, Life};

use crate::conn::{Conn, Ends};
use crate::key::{Direction, Key};
use index::{Position, SHARDS, Shard, Writer};
use slab::Slab;

/// Receives the connections that a function removes. It must call no function of the table, as their entries may be locked.
pub type Removed<'a> = &'a mut dyn FnMut(Handle, &Conn);

/// A connection that a packet belongs to.
#[derive(Debug)]
pub struct Found<'a> {
    /// The locked connection.
    pub guard: ConnGuard<'a>,
    /// The direction of the packet.
    pub direction: Direction,
}

/// Why a connection was not inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Another connection has the key of this direction.
    #[error("another connection has the tuple of the {0:?} direction")]
    Taken(Direction),
    /// The table has as many connections as it may.
    #[error("the table of connections is full")]
    Full,
}

/// A counter with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// Attempts of an insertion while other threads change the table.
const INSERT_ATTEMPTS: u32 = 64;

/// A concurrent table of connections.
#[derive(Debug)]
pub struct Table {
    seed: u64,
    shards: Box<[Shard; SHARDS]>,
    slab: Slab,
    len: Counter,
    /// The slot that the next eviction begins with. Threads that evict at the same time may begin with the same one.
    cursor: Counter,
}

/// Where the keys of a connection belong in the index, by [`Direction::index`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Positions([Position; 2]);

impl Positions {
    #[inline]
    fn original(self) -> Position {
        self.0[0]
    }

    /// `None` if it is that of the original direction.
    #[inline]
    fn reply(self) -> Option<Position> {
        let [original, reply] = self.0;
        (reply != original).then_some(reply)
    }

    /// A bit for each shard.
    #[inline]
    fn shards(self) -> u64 {
        self.0.into_iter().fold(0, |shards, position| shards | 1 << position.shard())
    }
}

const _: () = assert!(SHARDS == u64::BITS as usize);

/// The locked shards of one or two connections, with their numbers.
struct Locked<'a>([Option<(usize, MutexGuard<'a, Writer>)>; 4]);

/// The terms of an insertion.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// When the connection ends unless a packet comes.
    pub expires: Millis,
    /// The time.
    pub now: Millis,
    /// The maximum number of connections.
    pub max: u64,
}

impl Table {
    /// An empty table. Its hashes depend on `seed`, which should be random.
    pub fn new(seed: u64) -> Self {
        let shards: Box<[Shard]> = std::iter::repeat_with(Shard::default).take(SHARDS).collect();
        let shards = shards.try_into().expect("the iterator yields SHARDS shards");
        Self { seed, shards, slab: Slab::default(), len: Counter::default(), cursor: Counter::default() }
    }

    /// The number of connections, including those that have expired but are not yet removed.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.0.load(Ordering::Relaxed)
    }

    /// The number of slots that passes over the table examine.
    pub fn slots(&self) -> usize {
        self.slab.len() as usize
    }

    /// Returns true if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &Key) -> u64 {
        key.hash(self.seed)
    }

    /// Begins to bring the index of a hash into the cache. A batch calls this for each of its packets, then
    /// [`Self::candidate`], then [`Self::prefetch_slot`], then [`Self::check`] or [`Self::find`], so that the cache misses
    /// overlap.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        let position = Position::of(hash);
        self.shards[position.shard()].prefetch(position.tag);
    }

    /// The slot that a hash most likely belongs to.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let position = Position::of(hash);
        self.shards[position.shard()].candidate(position.tag)
    }

    /// Begins to bring the entry of a slot into the cache; see [`Self::prefetch`].
    #[inline(always)]
    pub fn prefetch_slot(&self, slot: u32) {
        if let Some(entry) = self.slab.entry(slot) {
            prefetch::lines::<3, _>(entry);
        }
    }

    /// Locks the connection of a key, whose hash the caller knows from [`Self::hash`]. An expired one counts as absent.
    pub fn find(&self, key: &Key, hash: u64, now: Millis) -> Option<Found<'_>> {
        let position = Position::of(hash);
        let shard = &self.shards[position.shard()];
        match shard.search(position.tag, |slot| self.check(slot, key, now)) {
            Ok(found) => found,
            Err(index::Moved) => self.find_locked(shard, position.tag, key, now),
        }
    }

    /// The same with the lock of the shard, under which no slot moves.
    #[cold]
    fn find_locked(&self, shard: &Shard, tag: u32, key: &Key, now: Millis) -> Option<Found<'_>> {
        let _writer = shard.lock();
        shard.search(tag, |slot| self.check(slot, key, now)).unwrap_or(None)
    }

    /// Locks the connection of a slot if it has the key and has not expired.
    #[inline(always)]
    pub fn check(&self, slot: u32, key: &Key, now: Millis) -> Option<Found<'_>> {
        let entry = self.slab.entry(slot)?;
        let conn = entry.conn.lock();
        let direction = conn.as_ref()?.direction_of(key)?;
        if entry.life().is_over(now) {
            return None;
        }
        Some(Found { guard: entry.guard(slot, conn)?, direction })
    }

    /// Locks the connection of a slot if packets of a direction have these ends, and it has not expired.
    #[inline(always)]
    pub(crate) fn check_ends(
        &self,
        (slot, direction): (u32, Direction),
        ends: &Ends,
        (zone, proto): (u16, u8),
        now: Millis,
    ) -> Option<ConnGuard<'_>> {
        let entry = self.slab.entry(slot)?;
        let conn = entry.conn.lock();
        if !conn.as_ref()?.has_ends(direction, ends, zone, proto) || entry.life().is_over(now) {
            return None;
        }
        entry.guard(slot, conn)
    }

    /// Locks a connection by its handle; `None` if it was removed. It may have expired.
    pub fn get(&self, handle: Handle) -> Option<ConnGuard<'_>> {
        let entry = self.slab.entry(handle.slot())?;
        if entry.generation() != handle.generation() {
            return None;
        }
        entry.lock(handle.slot()).filter(|guard| guard.handle() == handle)
    }

    /// Inserts a connection that is not assured, unless another has one of its keys. Expired connections with these keys are
    /// removed; in a full table, one that is not assured gives way.
    ///
    /// # Errors
    /// If the connection is not inserted.
    pub fn insert(&self, conn: Conn, terms: &Terms, removed: Removed<'_>) -> Result<Handle, Refused> {
        let keys = conn.keys();
        let hashes = keys.map(|key| self.hash(&key));
        let make = || {
            let mut conn = conn;
            conn.compare_keys();
            conn
        };
        Ok(self.insert_with(keys.each_ref(), hashes, terms, make, removed)?.handle())
    }

    /// As [`Self::insert`], for the connection that `make` returns, which has these keys and hashes ([`Self::hash`]), and has
    /// compared its keys ([`Conn::compare_keys`]). Leaves it locked, so that the caller completes it before others read it; it may
    /// be locked when `removed` is called.
    ///
    /// # Errors
    /// If the connection is not inserted; then `make` is not called.
    pub fn insert_with(
        &self,
        keys: [&Key; 2],
        hashes: [u64; 2],
        terms: &Terms,
        make: impl FnOnce() -> Conn,
        removed: Removed<'_>,
    ) -> Result<ConnGuard<'_>, Refused> {
        debug_assert_eq!(hashes, keys.map(|key| self.hash(key)));
        let Terms { expires, now, max } = *terms;
        let (positions, mut make) = (Positions(hashes.map(Position::of)), Some(make));
        if self.len() > max {
            self.shrink(now, removed);
        }
        for _ in 0..INSERT_ATTEMPTS {
            let is_counted = self.count(max);
            let victim = if is_counted { None } else { self.victim(now) };
            if !is_counted && victim.is_none() {
                self.remove_expired(positions, keys, now, removed)?;
                continue;
            }
            let victims = victim.as_ref().map_or(0, |victim| victim.positions.shards());
            let mut locked = self.lock(positions.shards() | victims);
            if let Some((direction, handle)) = self.clash(positions, keys) {
                drop(locked);
                self.uncount(is_counted);
                match self.remove_clash(handle, now) {
                    Ok(Some(expired)) => removed(handle, &expired),
                    Ok(None) => {}
                    Err(Live) => return Err(Refused::Taken(direction)),
                }
                continue;
            }
            let Some(victim) = victim else {
                let made = || make.take().expect("an attempt that fails makes none")();
                return self.place(&mut locked, positions, expires, made).ok_or_else(|| {
                    self.uncount(true);
                    Refused::Full
                });
            };
            let made = || make.take().expect("an attempt that fails makes none")();
            if let Some(guard) = self.replace(locked, &victim, positions, (expires, now), made, removed) {
                return Ok(guard);
            }
        }
        Err(Refused::Full)
    }

    /// Makes room in a full table by a connection with one of the keys that has expired.
    ///
    /// # Errors
    /// If there is none.
    #[cold]
    fn remove_expired(
        &self,
        positions: Positions,
        keys: [&Key; 2],
        now: Millis,
        removed: Removed<'_>,
    ) -> Result<(), Refused> {
        let locked = self.lock(positions.shards());
        let (_, handle) = self.clash(positions, keys).ok_or(Refused::Full)?;
        drop(locked);
        if let Some(expired) = self.remove_clash(handle, now).map_err(|Live| Refused::Full)? {
            removed(handle, &expired);
        }
        Ok(())
    }

    /// Removes one of the connections that are too many since the maximum was lowered.
    #[cold]
    fn shrink(&self, now: Millis, removed: Removed<'_>) {
        if let Some((handle, conn)) = self.evict(now) {
            removed(handle, &conn);
        }
    }

    /// Counts a connection that is about to be inserted, unless there are `max`.
    #[inline]
    fn count(&self, max: u64) -> bool {
        if self.len() >= max {
            return false;
        }
        let is_counted = self.len.0.fetch_add(1, Ordering::Relaxed) < max;
        self.uncount(!is_counted);
        is_counted
    }

    /// Takes back the count of a connection, if it was counted.
    #[inline]
    fn uncount(&self, is_counted: bool) {
        if is_counted {
            self.len.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A connection that has one of the keys, and the direction of that key. The shards are locked.
    fn clash(&self, positions: Positions, keys: [&Key; 2]) -> Option<(Direction, Handle)> {
        let search = |position: Position, directions: &[Direction]| {
            let check = |slot| {
                let guard = self.slab.entry(slot)?.lock(slot)?;
                let clashes = |direction: &&Direction| guard.direction_of(keys[direction.index()]).is_some();
                directions.iter().find(clashes).map(|direction| (*direction, guard.handle()))
            };
            self.shards[position.shard()].search(position.tag, check).unwrap_or(None)
        };
        match positions.reply() {
            None => search(positions.original(), &[Direction::Original, Direction::Reply]),
            Some(reply) => {
                search(positions.original(), &[Direction::Original]).or_else(|| search(reply, &[Direction::Reply]))
            }
        }
    }

    /// Removes a connection if it has expired; `Ok(None)` if another thread has just removed it.
    #[cold]
    fn remove_clash(&self, handle: Handle, now: Millis) -> Result<Option<Conn>, Live> {
        let mut is_live = false;
        let conn = self.take(handle, &mut |_, life| {
            is_live = !life.is_over(now);
            !is_live
        });
        if is_live { Err(Live) } else { Ok(conn) }
    }

    /// Stores the connection that `make` returns, and adds it to the index. `None` if there is no memory for its slot.
    fn place(
        &self,
        locked: &mut Locked<'_>,
        positions: Positions,
        expires: Millis,
        make: impl FnOnce() -> Conn,
    ) -> Option<ConnGuard<'_>> {
        let shard = positions.original().shard();
        let slot = self.slab.allocate(&mut locked.writer(shard).free)?;
        let entry = self.slab.entry(slot)?;
        let mut content = entry.conn.lock();
        if !self.link(locked, positions, slot) {
            self.slab.release(&mut locked.writer(shard).free, slot);
            return None;
        }
        *content = Some(make());
        entry.set_position(positions.original());
        entry.set_life(Life::until(expires));
        entry.guard(slot, content)
    }

    /// Adds a slot to the index for both keys. Returns false if there is no memory for it.
    fn link(&self, locked: &mut Locked<'_>, positions: Positions, slot: u32) -> bool {
        let original = positions.original();
        let writer = locked.writer(original.shard());
        if !self.shards[original.shard()].add(writer, original.tag, slot) {
            return false;
        }
        writer.connections += 1;
        if let Some(reply) = positions.reply()
            && !self.shards[reply.shard()].add(locked.writer(reply.shard()), reply.tag, slot)
        {
            let writer = locked.writer(original.shard());
            writer.connections -= 1;
            self.shards[original.shard()].remove(writer, original.tag, slot);
            return false;
        }
        true
    }

    /// Removes a slot from the index.
    fn unlink(&self, locked: &mut Locked<'_>, positions: Positions, slot: u32) {
        let original = positions.original();
        let writer = locked.writer(original.shard());
        writer.connections -= 1;
        let mut is_linked = self.shards[original.shard()].remove(writer, original.tag, slot);
        if let Some(reply) = positions.reply() {
            is_linked &= self.shards[reply.shard()].remove(locked.writer(reply.shard()), reply.tag, slot);
        }
        debug_assert!(is_linked, "the keys of a connection do not change");
    }

    /// Removes a connection.
    pub fn remove(&self, handle: Handle) -> Option<Conn> {
        self.take(handle, &mut |_, _| true)
    }

    /// Removes a connection if the condition holds. The keys are read before the shards are locked, as shards come first.
    fn take(&self, handle: Handle, condition: &mut dyn FnMut(&Conn, Life) -> bool) -> Option<Conn> {
        let positions = {
            let guard = self.get(handle)?;
            if !condition(&guard, guard.life()) {
                return None;
            }
            self.positions(&guard)
        };
        let mut locked = self.lock(positions.shards());
        let slot = handle.slot();
        let entry = self.slab.entry(slot)?;
        let mut content = entry.conn.lock();
        if entry.generation() != handle.generation() || !condition(content.as_ref()?, entry.life()) {
            return None;
        }
        let conn = content.take()?;
        entry.set_life(Life::NONE);
        let next = handle.generation().wrapping_add(1);
        entry.generation.store(next, Ordering::Relaxed);
        drop(content);
        self.unlink(&mut locked, positions, slot);
        // A slot whose generations are used up stays free forever.
        if next != 0 {
            self.slab.release(&mut locked.writer(positions.original().shard()).free, slot);
        }
        self.uncount(true);
        Some(conn)
    }

    /// Where the keys of a connection belong in the index.
    #[inline]
    fn positions(&self, conn: &ConnGuard<'_>) -> Positions {
        let original = conn.position();
        // Both directions then have the same hash.
        let is_mirrored = conn.translated.is_mirrored();
        Positions([original, if is_mirrored { original } else { Position::of(self.hash(&conn.reply)) }])
    }

    /// Locks shards, which have a bit each, in ascending order.
    #[inline]
    fn lock(&self, mut shards: u64) -> Locked<'_> {
        let mut locked = [const { None }; 4];
        for one in &mut locked {
            if shards == 0 {
                break;
            }
            let shard = shards.trailing_zeros() as usize % SHARDS;
            shards &= shards - 1;
            *one = Some((shard, self.shards[shard].lock()));
        }
        debug_assert_eq!(shards, 0, "two connections have four keys");
        Locked(locked)
    }

    /// The number of connections in each shard, by their original direction.
    pub fn buckets(&self) -> Vec<u32> {
        self.shards.iter().map(|shard| shard.lock().connections).collect()
    }

    /// Bytes of memory for entries and index, without what connections have on the heap.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of::<[Shard; SHARDS]>()
            + self.slab.bytes()
            + self.shards.iter().map(Shard::bytes).sum::<usize>()
    }
}

/// A connection has not expired.
struct Live;

impl Locked<'_> {
    /// The state of a shard, which is locked.
    #[inline]
    fn writer(&mut self, shard: usize) -> &mut Writer {
        let found = self.0.iter_mut().flatten().find(|(number, _)| *number == shard);
        &mut found.expect("the shards of a connection are locked").1
    }
}
