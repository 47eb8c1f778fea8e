//! Where a thread has found the connections of packets lately, by hashes of their ends: packets of few busy connections need not read the index of a
//! large table.

use crate::key::Direction;

/// Number of hashes that are remembered: a power of two.
const SIZE: usize = 8192;
/// The bit of a word that is set for packets of the reply direction, above the slot and 1. The bits above it are of the hash.
const REPLY: u64 = 1 << 32;
/// Batches of a trial, whose second half shows whether the cache is worth its time, and batches without it after a bad one.
const TRIAL: u32 = 256;
const REST: u32 = 2048;

/// The slots of connections, and the directions of packets, by hash. They are hints: the key of the connection in the slot decides. While few packets belong to
/// connections that are remembered, the cache does nothing most of the time.
#[derive(Debug)]
pub struct SlotCache {
    slots: Box<[u64; SIZE]>,
    is_on: bool,
    /// Batches until the trial or the rest ends.
    left: u32,
    /// Packets in the second half of the trial, and those whose slot was known.
    packets: u32,
    known: u32,
}

impl Default for SlotCache {
    fn default() -> Self {
        let slots = vec![0; SIZE].into_boxed_slice().try_into().expect("the length is SIZE");
        Self { slots, is_on: true, left: TRIAL, packets: 0, known: 0 }
    }
}

impl SlotCache {
    /// Records the number of packets of a batch, and of those whose slot was known.
    #[inline]
    pub fn record(&mut self, packets: u32, known: u32) {
        self.left -= 1;
        if self.left < TRIAL / 2 {
            (self.packets, self.known) = (self.packets + packets, self.known + known);
        }
        if self.left == 0 {
            self.decide();
        }
    }

    #[cold]
    fn decide(&mut self) {
        self.is_on = !self.is_on || self.known >= self.packets / 4;
        self.left = if self.is_on { TRIAL } else { REST };
        (self.packets, self.known) = (0, 0);
    }

    /// The slot and the direction that were set last for a hash, unless those of another one have replaced them.
    #[inline(always)]
    pub(super) fn get(&self, hash: u64) -> Option<(u32, Direction)> {
        if !self.is_on {
            return None;
        }
        let word = self.slots[hash as usize % SIZE];
        if (word ^ hash) >> 33 != 0 {
            return None;
        }
        let direction = if word & REPLY == 0 { Direction::Original } else { Direction::Reply };
        (word as u32).checked_sub(1).map(|slot| (slot, direction))
    }

    /// Remembers a slot and a direction.
    #[inline]
    pub(super) fn set(&mut self, hash: u64, slot: u32, direction: Direction) {
        if self.is_on {
            let reply = if direction == Direction::Reply { REPLY } else { 0 };
            self.slots[hash as usize % SIZE] =
                hash & !(REPLY << 1).wrapping_sub(1) | reply | u64::from(slot.wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::HashMap;

    #[test]
    fn a_slot_is_the_last_one_of_its_hash_or_unknown() {
        let (mut rng, mut cache, mut last) = (Rng::seeded(3), SlotCache::default(), HashMap::new());
        assert_eq!((cache.get(0), cache.get(u64::MAX)), (None, None));
        let mut known = 0;
        for _ in 0..100_000 {
            // Several hashes share an index.
            let hash = rng.next_u64() & 0xe_0000_07ff;
            assert!(cache.get(hash).is_none_or(|found| last.get(&hash) == Some(&found)));
            known += usize::from(cache.get(hash).is_some());
            let direction = if rng.below(2) == 0 { Direction::Original } else { Direction::Reply };
            let found = (rng.next_u64() as u32 >> 1, direction);
            cache.set(hash, found.0, found.1);
            assert_eq!(cache.get(hash), Some(found));
            last.insert(hash, found);
        }
        tally::report!("{known} of 100000 known");
        assert!(known > 10_000);
    }

    /// The batches of some thousand in which a cache is on, if so many hashes come by turns.
    fn batches_on(hashes: u64) -> usize {
        let (mut cache, mut rng) = (SlotCache::default(), Rng::seeded(4));
        let seeds: Vec<u64> = (0..hashes).map(|_| rng.next_u64()).collect();
        let mut next = seeds.iter().cycle();
        let is_on = |_: &u32| {
            let mut known = 0;
            for _ in 0..32 {
                let hash = *next.next().expect("an endless iterator");
                known += u32::from(cache.get(hash).is_some());
                cache.set(hash, 1, Direction::Reply);
            }
            cache.record(32, known);
            cache.is_on
        };
        (0..20_000).filter(is_on).count()
    }

    #[test]
    fn the_cache_rests_while_few_packets_are_known() {
        assert_eq!([1, 100, 2000].map(batches_on), [20_000; 3]);
        assert!((1800..3000).contains(&batches_on(100_000)), "{}", batches_on(100_000));
    }
}
