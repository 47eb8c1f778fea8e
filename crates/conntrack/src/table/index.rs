//! The index from hashes to slots: shards of buckets that grow by linear hashing (Litwin, 1980).
//!
//! A shard has `len` buckets; the lowest bits of a hash's tag select one. When the shard becomes too full, it splits one
//! bucket in two, so that no insertion moves more than one bucket's slots. Full buckets continue in overflow buckets, which are reused once
//! they are empty.
//!
//! Writers hold the shard's mutex. Readers hold nothing: a slot appears and disappears by one store, and only splits and
//! reused overflow buckets move slots. The sequence number is odd while that happens. A reader that finds nothing, and sees another sequence number
//! than at its beginning or an odd one, looks again under the mutex. A reader that finds a slot locks its entry and compares
//! the key, and so needs no sequence number.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::{Mutex, MutexGuard};

use super::pieces::Pieces;

/// Number of shards.
pub(super) const SHARDS: usize = 64;
/// Slots of a bucket.
const SLOTS: usize = 7;
/// Slots of a bucket that are in use on average, at most: few, so that hardly any bucket needs an overflow bucket.
const USED: u64 = 2;
/// Buckets of a shard at the beginning: a power of two.
const FIRST_BUCKETS: u32 = 4;

/// Where a hash belongs in the index: its lowest bits, which select a bucket of a shard, and are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    /// These bits. The highest ones of them select the shard.
    pub(super) tag: u32,
}

impl Position {
    #[inline]
    pub(super) fn of(hash: u64) -> Self {
        Self { tag: hash as u32 }
    }

    #[inline]
    pub(super) fn shard(self) -> usize {
        (self.tag >> (u32::BITS - SHARDS.ilog2())) as usize
    }
}

/// A cache line of slots.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// For each slot: the tag in the upper half, the number of the slot plus one in the lower; 0 if it is free.
    slots: [AtomicU64; SLOTS],
    /// Index of the overflow bucket plus one; 0 for none.
    next: AtomicU64,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// A bit for each slot with the tag. A free slot may be among them.
    #[inline]
    fn matches(&self, tag: u32) -> u32 {
        let is_match = |n: usize| u32::from((self.slots[n].load(Ordering::Acquire) >> 32) as u32 == tag) << n;
        (is_match(0) | is_match(1)) | (is_match(2) | is_match(3)) | (is_match(4) | is_match(5)) | is_match(6)
    }

    /// The n-th slot, unless it is free.
    #[inline]
    fn slot(&self, n: u32) -> Option<u32> {
        (self.slots.get(n as usize)?.load(Ordering::Acquire) as u32).checked_sub(1)
    }
}

/// A slot moved while a reader looked for it.
#[derive(Debug)]
pub(super) struct Moved;

/// One of the parts of the index.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    /// Odd during a split.
    sequence: AtomicU32,
    /// Number of buckets in the lower half, and in the upper half the next power of two less one.
    geometry: AtomicU64,
    buckets: Pieces<Bucket>,
    overflow: Pieces<Bucket>,
    writer: Mutex<Writer>,
}

/// What only writers of a shard use.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Writer {
    /// Slots in use.
    used: u32,
    /// Connections whose original direction belongs here.
    pub(super) connections: u32,
    /// Free entries of the slab.
    pub(super) free: Vec<u32>,
    /// Overflow buckets ever used, and those that are free again, by index plus one.
    overflow_len: u32,
    overflow_free: Vec<u32>,
    /// The slots that a split distributes.
    moving: Vec<u64>,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            geometry: AtomicU64::new(u64::from(FIRST_BUCKETS - 1) << 32 | u64::from(FIRST_BUCKETS)),
            buckets: Pieces::default(),
            overflow: Pieces::default(),
            writer: Mutex::default(),
        }
    }
}

impl Shard {
    /// Locks the shard for writing.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    /// The bucket of a tag; `None` before the first insertion.
    #[inline]
    fn bucket(&self, tag: u32) -> Option<&Bucket> {
        self.buckets.get(bucket_of(self.geometry.load(Ordering::Acquire), tag))
    }

    /// Calls `check` with each slot that has the tag, until it returns something, and returns that.
    #[inline]
    pub(super) fn search<R>(&self, tag: u32, mut check: impl FnMut(u32) -> Option<R>) -> Result<Option<R>, Moved> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let mut bucket = self.bucket(tag);
        while let Some(current) = bucket {
            let mut matches = current.matches(tag);
            while matches != 0 {
                let slot = current.slot(matches.trailing_zeros());
                matches &= matches - 1;
                if let Some(slot) = slot
                    && let Some(found) = check(slot)
                {
                    return Ok(Some(found));
                }
            }
            let next = current.next.load(Ordering::Acquire) as u32;
            if next == 0 {
                break;
            }
            if self.sequence.load(Ordering::Relaxed) != sequence {
                return Err(Moved);
            }
            bucket = self.overflow.get(next - 1);
        }
        if sequence & 1 == 0 && self.sequence.load(Ordering::Relaxed) == sequence { Ok(None) } else { Err(Moved) }
    }

    /// Begins to bring the bucket of a tag into the cache.
    #[inline]
    pub(super) fn prefetch(&self, tag: u32) {
        if let Some(bucket) = self.bucket(tag) {
            prefetch::lines::<1, _>(bucket);
        }
    }

    /// A slot with the tag, which is most often the only one.
    #[inline(always)]
    pub(super) fn candidate(&self, tag: u32) -> Option<u32> {
        let bucket = self.bucket(tag)?;
        let matches = bucket.matches(tag);
        bucket.slot(matches.trailing_zeros())
    }

    /// Adds a slot. Returns false if there is no room for it.
    pub(super) fn add(&self, writer: &mut Writer, tag: u32, slot: u32) -> bool {
        let bucket = self.buckets.get_or_create(bucket_of(self.geometry.load(Ordering::Relaxed), tag));
        if !bucket.is_some_and(|bucket| self.put(writer, bucket, word_of(tag, slot))) {
            return false;
        }
        writer.used += 1;
        let len = self.geometry.load(Ordering::Relaxed) as u32;
        if u64::from(writer.used) > u64::from(len) * USED {
            self.split(writer);
        }
        true
    }

    /// Removes a slot. Returns false if it is not there.
    pub(super) fn remove(&self, writer: &mut Writer, tag: u32, slot: u32) -> bool {
        let word = word_of(tag, slot);
        let mut bucket = self.bucket(tag);
        let mut previous = None;
        while let Some(current) = bucket {
            if let Some(slot) = current.slots.iter().find(|slot| slot.load(Ordering::Relaxed) == word) {
                slot.store(0, Ordering::Release);
                writer.used -= 1;
                if let Some(previous) = previous
                    && current.slots.iter().all(|slot| slot.load(Ordering::Relaxed) == 0)
                {
                    self.unlink(writer, previous, current);
                }
                return true;
            }
            previous = bucket;
            bucket = self.next(current);
        }
        false
    }

    /// Frees an empty overflow bucket, so that chains do not keep the greatest length that they ever had.
    #[cold]
    fn unlink(&self, writer: &mut Writer, previous: &Bucket, empty: &Bucket) {
        let sequence = self.begin_move();
        writer.overflow_free.push(previous.next.load(Ordering::Relaxed) as u32);
        previous.next.store(empty.next.load(Ordering::Relaxed), Ordering::Release);
        empty.next.store(0, Ordering::Release);
        self.end_move(sequence);
    }

    /// Lets readers that find nothing look again under the lock, until [`Self::end_move`].
    fn begin_move(&self) -> u32 {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        sequence
    }

    fn end_move(&self, sequence: u32) {
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// The overflow bucket after a bucket.
    fn next(&self, bucket: &Bucket) -> Option<&Bucket> {
        self.overflow.get((bucket.next.load(Ordering::Acquire) as u32).checked_sub(1)?)
    }

    /// Stores a word in a free slot of a bucket or of its overflow buckets, and adds one of them if all are full.
    fn put(&self, writer: &mut Writer, first: &Bucket, word: u64) -> bool {
        let mut bucket = first;
        loop {
            if let Some(slot) = bucket.slots.iter().find(|slot| slot.load(Ordering::Relaxed) == 0) {
                slot.store(word, Ordering::Release);
                return true;
            }
            match self.next(bucket) {
                Some(next) => bucket = next,
                None => break,
            }
        }
        self.put_overflow(writer, bucket, word)
    }

    #[cold]
    fn put_overflow(&self, writer: &mut Writer, last: &Bucket, word: u64) -> bool {
        let number = writer.overflow_free.pop().unwrap_or_else(|| {
            writer.overflow_len += 1;
            writer.overflow_len
        });
        let Some(bucket) = self.overflow.get_or_create(number - 1) else {
            writer.overflow_len -= 1;
            return false;
        };
        bucket.slots[0].store(word, Ordering::Release);
        last.next.store(u64::from(number), Ordering::Release);
        true
    }

    /// Splits the next bucket in two.
    fn split(&self, writer: &mut Writer) {
        let geometry = self.geometry.load(Ordering::Relaxed);
        let (len, mut mask) = (geometry as u32, (geometry >> 32) as u32);
        if len > mask {
            mask = mask << 1 | 1;
        }
        let half = mask / 2 + 1;
        let (Some(low), Some(high)) = (self.buckets.get_or_create(len - half), self.buckets.get_or_create(len)) else {
            return;
        };
        let sequence = self.begin_move();
        let mut moving = std::mem::take(&mut writer.moving);
        self.drain(writer, low, &mut moving);
        for word in moving.drain(..) {
            let bucket = if (word >> 32) as u32 & half == 0 { low } else { high };
            let is_stored = self.put(writer, bucket, word);
            debug_assert!(is_stored, "a split needs no more overflow buckets than it frees");
        }
        writer.moving = moving;
        self.geometry.store(u64::from(mask) << 32 | u64::from(len + 1), Ordering::Release);
        self.end_move(sequence);
    }

    /// Moves the words of a bucket and of its overflow buckets to `words`, and frees the overflow buckets.
    fn drain(&self, writer: &mut Writer, first: &Bucket, words: &mut Vec<u64>) {
        let mut bucket = first;
        loop {
            for slot in &bucket.slots {
                let word = slot.load(Ordering::Relaxed);
                if word != 0 {
                    words.push(word);
                    slot.store(0, Ordering::Release);
                }
            }
            let Some(next) = self.next(bucket) else { break };
            writer.overflow_free.push(bucket.next.load(Ordering::Relaxed) as u32);
            bucket.next.store(0, Ordering::Release);
            bucket = next;
        }
    }

    /// Bytes of the buckets.
    pub(super) fn bytes(&self) -> usize {
        (self.buckets.capacity() + self.overflow.capacity()) * size_of::<Bucket>()
    }
}

/// The bucket of a tag.
#[inline]
fn bucket_of(geometry: u64, tag: u32) -> u32 {
    let (len, mask) = (geometry as u32, (geometry >> 32) as u32);
    let bucket = tag & mask;
    if bucket < len { bucket } else { bucket & (mask >> 1) }
}

fn word_of(tag: u32, slot: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(slot + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::HashMap;

    fn slots_of(shard: &Shard, tag: u32) -> Vec<u32> {
        let mut slots = Vec::new();
        let found = shard.search(tag, |slot| {
            slots.push(slot);
            None::<()>
        });
        assert!(matches!(found, Ok(None)));
        slots
    }

    #[test]
    fn a_shard_finds_what_a_map_finds() {
        let mut rng = Rng::seeded(5);
        let shard = Shard::default();
        let mut twin: HashMap<u32, u32> = HashMap::new();
        let mut cases = 0;
        for slot in 0..60_000 {
            // Few different lowest bits make long chains.
            let tag = (rng.next_u64() as u32) & if slot % 3 == 0 { 0xffff_ff00 } else { u32::MAX };
            let mut writer = shard.lock();
            if let Some(old) = twin.remove(&tag) {
                assert!(shard.remove(&mut writer, tag, old));
                assert!(!shard.remove(&mut writer, tag, old));
            } else if slot % 5 == 0
                && let Some((&tag, &old)) = twin.iter().next()
            {
                assert!(shard.remove(&mut writer, tag, old));
                twin.remove(&tag);
            }
            assert!(shard.add(&mut writer, tag, slot));
            twin.insert(tag, slot);
            assert_eq!(writer.used as usize, twin.len());
            cases += 1;
        }
        for (&tag, &slot) in &twin {
            assert_eq!(slots_of(&shard, tag), [slot]);
            assert!(shard.candidate(tag).is_none_or(|candidate| candidate == slot));
        }
        tally::report!("{cases} slots");
    }

    #[test]
    fn equal_tags_share_a_chain() {
        let shard = Shard::default();
        let mut writer = shard.lock();
        for slot in 0..100 {
            assert!(shard.add(&mut writer, 7, slot));
        }
        let mut slots = slots_of(&shard, 7);
        slots.sort_unstable();
        assert!(slots.into_iter().eq(0..100));
        for slot in 0..100 {
            assert!(shard.remove(&mut writer, 7, slot));
        }
        assert!(slots_of(&shard, 7).is_empty());
        let overflow = writer.overflow_len;
        for slot in 0..100 {
            assert!(shard.add(&mut writer, 7, slot));
        }
        assert_eq!(writer.overflow_len, overflow);
    }

    #[test]
    fn readers_miss_nothing_while_slots_move() {
        const STABLE: u32 = 60;
        let searches = AtomicU64::new(0);
        for round in 0..200 {
            let shard = Shard::default();
            let mut rng = Rng::seeded(round);
            let mut tag = || rng.next_u64() as u32 & if round % 2 == 0 { u32::MAX } else { !6 };
            let stable: Vec<u32> = (0..STABLE).map(|_| tag()).collect();
            let others: Vec<u32> = (0..600).map(|_| tag()).collect();
            let add = |slot: u32, tag: u32| assert!(shard.add(&mut shard.lock(), tag, slot));
            (0..).zip(&others[..200]).for_each(|(n, &tag)| add(STABLE + n, tag));
            (0..).zip(&stable).for_each(|(n, &tag)| add(n, tag));
            let done = std::sync::atomic::AtomicBool::new(false);
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    let mut n = 0;
                    while !done.load(Ordering::Relaxed) {
                        for (slot, &tag) in (0..).zip(&stable) {
                            let search = || shard.search(tag, |found| (found == slot).then_some(()));
                            let found = search().or_else(|Moved| {
                                let _writer = shard.lock();
                                search()
                            });
                            assert!(matches!(found, Ok(Some(()))), "{found:?}");
                            n += 1;
                        }
                    }
                    searches.fetch_add(n, Ordering::Relaxed);
                });
                start.wait();
                (STABLE + 200..).zip(&others[200..]).for_each(|(slot, &tag)| add(slot, tag));
                for (slot, &tag) in (STABLE..).zip(&others) {
                    assert!(shard.remove(&mut shard.lock(), tag, slot));
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        tally::report!("{} searches", searches.load(Ordering::Relaxed));
    }
}
