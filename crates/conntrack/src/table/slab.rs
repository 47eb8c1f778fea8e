//! Storage of connections: entries with a lock each, in chunks that stay where they are.
//!
//! An entry's `life`, `generation` and `tag` are read without its lock, to skip entries; they change only under it.

use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::Millis;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::index::Position;
use super::pieces::Pieces;
use crate::conn::Conn;

/// Entries of a chunk: a power of two.
const CHUNK: u32 = 256;
/// A shard takes few entries at a time while the table is small, so that they stay close together.
const SMALL_BATCH: u32 = 4;
/// Size of a table whose shards take larger batches.
const SMALL: u32 = 4096;
/// Entries that move at once between a shard and the shared pool.
const BATCH: u32 = 32;

const _: () = assert!(CHUNK.is_multiple_of(BATCH) && SMALL.is_multiple_of(BATCH) && BATCH.is_multiple_of(SMALL_BATCH));

/// Names a connection for as long as it is in the table; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub NonZeroU64);

impl Handle {
    /// The handle of a slot; `None` for generation 0, which no connection has.
    #[inline]
    pub(super) fn new(slot: u32, generation: u32) -> Option<Self> {
        if generation == 0 {
            return None;
        }
        NonZeroU64::new(u64::from(generation) << 32 | u64::from(slot)).map(Self)
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.0.get() as u32
    }

    #[inline]
    pub(super) fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }
}

/// When a connection ends, and whether it is assured: established, and thus no candidate for eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life(u64);

impl Life {
    const ASSURED: u64 = 1;
    /// That of an entry without a connection.
    pub(super) const NONE: Self = Self(0);

    /// That of a connection that is not assured.
    pub fn until(expires: Millis) -> Self {
        Self(expires.0.clamp(1, u64::MAX >> 1) << 1)
    }

    /// When the connection ends unless a packet comes.
    #[inline]
    pub fn expires(self) -> Millis {
        Millis(self.0 >> 1)
    }

    /// Returns true if the connection has ended.
    #[inline]
    pub fn is_over(self, now: Millis) -> bool {
        self.expires() <= now
    }

    /// Returns true if the connection is not evicted from a full table.
    #[inline]
    pub fn is_assured(self) -> bool {
        self.0 & Self::ASSURED != 0
    }
}

/// A slot of the slab: three cache lines. Most packets read the first two ([`Conn`]).
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// [`Life`]; 0 without a connection.
    life: AtomicU64,
    /// Generation of the connection, or of the next one; 0 if the slot is never used again.
    pub(super) generation: AtomicU32,
    /// [`Position::tag`] of the original direction.
    tag: AtomicU32,
    pub(super) conn: Mutex<Option<Conn>>,
}

const _: () = assert!(size_of::<Entry>() == 192);
const _: () = assert!(std::mem::offset_of!(Conn, memos) == 40 && std::mem::offset_of!(Conn, reply) == 104);

impl Default for Entry {
    fn default() -> Self {
        Self { life: AtomicU64::new(0), conn: Mutex::new(None), generation: AtomicU32::new(1), tag: AtomicU32::new(0) }
    }
}

impl Entry {
    #[inline]
    pub(super) fn life(&self) -> Life {
        Life(self.life.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_life(&self, life: Life) {
        self.life.store(life.0, Ordering::Relaxed);
    }

    /// Where the connection's original direction belongs in the index.
    #[inline]
    pub(super) fn position(&self) -> Position {
        Position { tag: self.tag.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(super) fn set_position(&self, position: Position) {
        self.tag.store(position.tag, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Locks the connection, if there is one.
    pub(super) fn lock(&self, slot: u32) -> Option<ConnGuard<'_>> {
        self.guard(slot, self.conn.lock())
    }

    /// A guard from that of the entry, unless the entry is free.
    #[inline]
    pub(super) fn guard<'a>(&'a self, slot: u32, conn: MutexGuard<'a, Option<Conn>>) -> Option<ConnGuard<'a>> {
        let conn = MutexGuard::try_map(conn, Option::as_mut).ok()?;
        Some(ConnGuard { conn, entry: self, slot })
    }
}

/// A locked connection. While a thread has one, it must call no function of the table, or it may wait for itself.
///
/// The keys of the connection must not change.
#[derive(Debug)]
pub struct ConnGuard<'a> {
    conn: MappedMutexGuard<'a, Conn>,
    entry: &'a Entry,
    slot: u32,
}

impl ConnGuard<'_> {
    /// The connection's handle.
    #[inline]
    pub fn handle(&self) -> Handle {
        Handle::new(self.slot, self.entry.generation()).expect("an entry with a connection has a generation")
    }

    /// Where the original direction belongs in the index.
    #[inline]
    pub(super) fn position(&self) -> Position {
        self.entry.position()
    }

    /// The connection's slot.
    #[inline]
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// When the connection ends, and whether it is assured.
    #[inline]
    pub fn life(&self) -> Life {
        self.entry.life()
    }

    /// Sets when the connection ends unless a packet comes. With `assure`, also protects it from eviction.
    #[inline]
    pub fn renew(&mut self, expires: Millis, assure: bool) {
        let assured = (u64::from(assure) * Life::ASSURED) | self.entry.life().0 & Life::ASSURED;
        self.entry.set_life(Life(Life::until(expires).0 | assured));
    }

    /// Ends the connection: look-ups treat it as absent from now on. It is removed by a sweep, or when another connection
    /// needs its keys.
    #[cold]
    pub fn expire(&mut self, now: Millis) {
        self.entry.set_life(Life::until(now));
    }
}

impl Deref for ConnGuard<'_> {
    type Target = Conn;

    #[inline]
    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for ConnGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

type Chunk = OnceLock<Box<[Entry; CHUNK as usize]>>;

/// All entries.
#[derive(Debug, Default)]
pub(super) struct Slab {
    chunks: Pieces<Chunk>,
    /// Slots that shards have taken.
    len: AtomicU32,
    /// Batches of free slots that shards have given back.
    pool: Mutex<Vec<Box<[u32]>>>,
}

impl Slab {
    /// The entry of a slot; `None` for slots that were never used.
    #[inline]
    pub(super) fn entry(&self, slot: u32) -> Option<&Entry> {
        Some(&self.chunks.get(slot / CHUNK)?.get()?[(slot % CHUNK) as usize])
    }

    /// The entries from a slot to the end of its chunk, of the first `len`.
    #[inline]
    pub(super) fn run(&self, from: u32, len: u32) -> &[Entry] {
        let chunk = self.chunks.get(from / CHUNK).and_then(OnceLock::get);
        let end = CHUNK.min(len.saturating_sub(from - from % CHUNK));
        chunk.and_then(|chunk| chunk.get((from % CHUNK) as usize..end as usize)).unwrap_or(&[])
    }

    /// The number of slots, used or free.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// Takes a slot from a shard's free ones, after refilling them if necessary; `None` if there are no more.
    pub(super) fn allocate(&self, free: &mut Vec<u32>) -> Option<u32> {
        if free.is_empty() {
            self.refill(free)?;
        }
        free.pop()
    }

    #[cold]
    fn refill(&self, free: &mut Vec<u32>) -> Option<()> {
        if let Some(batch) = self.pool.lock().pop() {
            free.extend_from_slice(&batch);
            return Some(());
        }
        let limit = Pieces::<Chunk>::MAX_LEN.saturating_mul(CHUNK);
        let advance = |len: u32| (len < limit).then(|| len + batch_of(len));
        let first = self.len.fetch_update(Ordering::AcqRel, Ordering::Acquire, advance).ok()?;
        self.chunks.get_or_create(first / CHUNK)?.get_or_init(new_chunk);
        free.extend((first..first + batch_of(first)).rev());
        Some(())
    }

    /// Gives a slot back to a shard's free ones, and moves some of them to the pool if they are many.
    pub(super) fn release(&self, free: &mut Vec<u32>, slot: u32) {
        free.push(slot);
        let batch = batch_of(self.len.load(Ordering::Relaxed)) as usize;
        if free.len() >= 2 * batch {
            let batch = free.drain(batch..).collect();
            self.pool.lock().push(batch);
        }
    }

    /// Bytes of the entries.
    pub(super) fn bytes(&self) -> usize {
        (self.len() as usize).next_multiple_of(CHUNK as usize) * size_of::<Entry>()
    }
}

/// The number of slots that move at once, for a number of slots.
fn batch_of(len: u32) -> u32 {
    if len < SMALL { SMALL_BATCH } else { BATCH }
}

fn new_chunk() -> Box<[Entry; CHUNK as usize]> {
    let entries: Box<[Entry]> = std::iter::repeat_with(Entry::default).take(CHUNK as usize).collect();
    entries.try_into().expect("the iterator yields CHUNK entries")
}
