//! The table of connections: a slab of entries with a lock each, and an index by the hash of their keys.
//!
//! Finding a connection takes no lock but that of its entry, and writes to no memory that connections share. Insertion and
//! removal lock the one or two shards of the connection's keys, in ascending order, and then entries: whoever has locked an
//! entry must not wait for a shard.
//!
//! The keys of a connection are unique: no two connections in the table have a key in common, for any direction.

#![expect(clippy::result_large_err, reason = "a refused connection goes back to its owner without an allocation")]

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

use crate::conn::Conn;
use crate::key::{Direction, Key};
use index::{Position, SHARDS, Shard, Writer};
use slab::Slab;

/// Receives the connections that a function removes. No lock is held meanwhile.
pub type Removed<'a> = &'a mut dyn FnMut(Handle, Conn);

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

/// A concurrent table of connections.
#[derive(Debug)]
pub struct Table {
    seed: u64,
    shards: Box<[Shard; SHARDS]>,
    slab: Slab,
    len: Counter,
    /// Where the next eviction looks.
    evicted: Counter,
}

/// Where the keys of a connection belong in the index.
#[derive(Clone, Copy, Debug)]
struct Positions {
    original: Position,
    /// `None` if it is that of the original direction.
    reply: Option<Position>,
}

/// The locked shards of a connection.
struct Locked<'a> {
    original: MutexGuard<'a, Writer>,
    /// `None` if it is that of the original direction.
    reply: Option<MutexGuard<'a, Writer>>,
}

impl Table {
    /// An empty table. Its hashes depend on `seed`, which should be random.
    pub fn new(seed: u64) -> Self {
        let shards: Box<[Shard]> = std::iter::repeat_with(Shard::default).take(SHARDS).collect();
        let shards = shards.try_into().expect("the iterator yields SHARDS shards");
        Self { seed, shards, slab: Slab::default(), len: Counter::default(), evicted: Counter::default() }
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

    /// Brings the index of a hash into the cache. A batch calls this for each of its packets, then [`Self::touch_entry`],
    /// then [`Self::find`], so that the cache misses overlap; that pays for tables larger than the cache. The result has no
    /// meaning, but should be used, lest the compiler remove the call.
    #[inline]
    pub fn touch(&self, hash: u64) -> u64 {
        let position = Position::of(hash);
        self.shards[position.shard].touch(position.tag)
    }

    /// Brings the entry that a hash most likely belongs to into the cache; see [`Self::touch`].
    #[inline]
    pub fn touch_entry(&self, hash: u64) -> u64 {
        let position = Position::of(hash);
        let slot = self.shards[position.shard].candidate(position.tag);
        slot.and_then(|slot| self.slab.entry(slot)).map_or(0, |entry| entry.touch())
    }

    /// Locks the connection of a key, whose hash the caller knows from [`Self::hash`]. An expired one counts as absent.
    #[inline]
    pub fn find(&self, key: &Key, hash: u64, now: Millis) -> Option<Found<'_>> {
        let position = Position::of(hash);
        let shard = &self.shards[position.shard];
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
    #[inline]
    fn check(&self, slot: u32, key: &Key, now: Millis) -> Option<Found<'_>> {
        let entry = self.slab.entry(slot)?;
        let conn = entry.conn.lock();
        let direction = direction_of(conn.as_ref()?, key)?;
        if entry.life().is_over(now) {
            return None;
        }
        Some(Found { guard: entry.guard(slot, conn)?, direction })
    }

    /// Locks a connection by its handle; `None` if it was removed. It may have expired.
    pub fn get(&self, handle: Handle) -> Option<ConnGuard<'_>> {
        let entry = self.slab.entry(handle.slot())?;
        if entry.generation() != handle.generation() {
            return None;
        }
        entry.lock(handle.slot()).filter(|guard| guard.handle() == handle)
    }

    /// Inserts a connection that is not assured, unless another has one of its keys, or there are `max` connections.
    /// Expired connections with these keys are removed.
    pub fn insert(
        &self,
        conn: Conn,
        expires: Millis,
        now: Millis,
        max: u64,
        removed: Removed<'_>,
    ) -> Result<Handle, (Refused, Conn)> {
        self.insert_locked(conn, expires, now, max, removed).map(|guard| guard.handle())
    }

    /// As [`Self::insert`], but leaves the connection locked, so that the caller completes it before others read it.
    pub fn insert_locked(
        &self,
        conn: Conn,
        expires: Millis,
        now: Millis,
        max: u64,
        removed: Removed<'_>,
    ) -> Result<ConnGuard<'_>, (Refused, Conn)> {
        if self.len.0.fetch_add(1, Ordering::Relaxed) >= max {
            return Err(self.refuse(Refused::Full, conn));
        }
        let positions = self.positions(&conn.keys);
        let mut locked = loop {
            let locked = self.lock(&positions);
            let Some((direction, handle)) = self.clash(&positions, &conn.keys) else { break locked };
            drop(locked);
            match self.remove_clash(handle, now) {
                Ok(Some(expired)) => removed(handle, expired),
                Ok(None) => {}
                Err(Live) => return Err(self.refuse(Refused::Taken(direction), conn)),
            }
        };
        self.place(&mut locked, &positions, conn, expires).map_err(|conn| self.refuse(Refused::Full, conn))
    }

    /// Takes back the count of a connection that is not inserted.
    #[cold]
    fn refuse(&self, why: Refused, conn: Conn) -> (Refused, Conn) {
        self.len.0.fetch_sub(1, Ordering::Relaxed);
        (why, conn)
    }

    /// A connection that has one of the keys, and the direction of that key. The shards are locked.
    fn clash(&self, positions: &Positions, keys: &[Key; 2]) -> Option<(Direction, Handle)> {
        let search = |position: Position, directions: &[Direction]| {
            let check = |slot| {
                let guard = self.slab.entry(slot)?.lock(slot)?;
                let clashes = |direction: &&Direction| direction_of(&guard, &keys[direction.index()]).is_some();
                directions.iter().find(clashes).map(|direction| (*direction, guard.handle()))
            };
            self.shards[position.shard].search(position.tag, check).unwrap_or(None)
        };
        match positions.reply {
            None => search(positions.original, &[Direction::Original, Direction::Reply]),
            Some(reply) => {
                search(positions.original, &[Direction::Original]).or_else(|| search(reply, &[Direction::Reply]))
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

    /// Stores a connection and adds it to the index. Returns it if there is no memory for its slot.
    fn place(
        &self,
        locked: &mut Locked<'_>,
        positions: &Positions,
        conn: Conn,
        expires: Millis,
    ) -> Result<ConnGuard<'_>, Conn> {
        let Some(slot) = self.slab.allocate(&mut locked.original.free) else { return Err(conn) };
        let Some(entry) = self.slab.entry(slot) else { return Err(conn) };
        let mut content = entry.conn.lock();
        *content = Some(conn);
        if !self.link(locked, positions, slot) {
            self.slab.release(&mut locked.original.free, slot);
            return Err(content.take().expect("the connection was stored above"));
        }
        entry.set_life(Life::until(expires));
        locked.original.connections += 1;
        Ok(entry.guard(slot, content).expect("free slots have a generation, and this one now has a connection"))
    }

    /// Adds a slot to the index for both keys. Returns false if there is no memory for it.
    fn link(&self, locked: &mut Locked<'_>, positions: &Positions, slot: u32) -> bool {
        let original = positions.original;
        if !self.shards[original.shard].add(&mut locked.original, original.tag, slot) {
            return false;
        }
        if let Some(reply) = positions.reply
            && !self.shards[reply.shard].add(locked.for_reply(), reply.tag, slot)
        {
            self.shards[original.shard].remove(&mut locked.original, original.tag, slot);
            return false;
        }
        true
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
            self.positions(&guard.keys)
        };
        let mut locked = self.lock(&positions);
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
        let is_linked =
            self.shards[positions.original.shard].remove(&mut locked.original, positions.original.tag, slot)
                && positions.reply.is_none_or(|at| self.shards[at.shard].remove(locked.for_reply(), at.tag, slot));
        debug_assert!(is_linked, "the keys of a connection do not change");
        // A slot whose generations are used up stays free forever.
        if next != 0 {
            self.slab.release(&mut locked.original.free, slot);
        }
        locked.original.connections -= 1;
        self.len.0.fetch_sub(1, Ordering::Relaxed);
        Some(conn)
    }

    fn positions(&self, keys: &[Key; 2]) -> Positions {
        let original = Position::of(self.hash(&keys[0]));
        if keys[1] == keys[0].reversed() {
            return Positions { original, reply: None };
        }
        let reply = Position::of(self.hash(&keys[1]));
        Positions { original, reply: (reply != original).then_some(reply) }
    }

    /// Locks the shards of a connection, in ascending order.
    fn lock(&self, positions: &Positions) -> Locked<'_> {
        let original = positions.original.shard;
        match positions.reply.map(|reply| reply.shard) {
            Some(reply) if reply < original => {
                let reply = self.shards[reply].lock();
                Locked { original: self.shards[original].lock(), reply: Some(reply) }
            }
            Some(reply) if reply > original => {
                let original = self.shards[original].lock();
                Locked { original, reply: Some(self.shards[reply].lock()) }
            }
            _ => Locked { original: self.shards[original].lock(), reply: None },
        }
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
    /// The shard of the reply direction.
    fn for_reply(&mut self) -> &mut Writer {
        self.reply.as_mut().unwrap_or(&mut self.original)
    }
}

/// The direction of packets with a key, if they belong to the connection. Both keys are compared without branches, as
/// directions follow no pattern.
#[inline]
fn direction_of(conn: &Conn, key: &Key) -> Option<Direction> {
    let is_original = difference(&conn.keys[0], key) == 0;
    let is_reply = difference(&conn.keys[1], key) == 0;
    if !(is_original | is_reply) {
        return None;
    }
    Some(if is_original { Direction::Original } else { Direction::Reply })
}

/// 0 for equal keys.
#[inline]
fn difference(a: &Key, b: &Key) -> u64 {
    let rest = |key: &Key| {
        let ports = u64::from(key.src_port) | u64::from(key.dst_port) << 16;
        ports | u64::from(key.zone) << 32 | u64::from(key.proto) << 48 | u64::from(key.is_v6) << 56
    };
    (a.src[0] ^ b.src[0] | a.src[1] ^ b.src[1]) | (a.dst[0] ^ b.dst[0] | a.dst[1] ^ b.dst[1]) | (rest(a) ^ rest(b))
}
