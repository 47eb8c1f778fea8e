//! Where a thread has found connections lately, by their hashes: packets of few busy connections need not read the index of a
//! large table.

/// Number of hashes that are remembered: a power of two.
const SIZE: usize = 4096;

/// The slots of connections by hash. They are hints: the key of the connection in the slot decides.
#[derive(Debug)]
pub struct SlotCache(Box<[u64; SIZE]>);

impl Default for SlotCache {
    fn default() -> Self {
        Self(vec![0; SIZE].into_boxed_slice().try_into().expect("the length is SIZE"))
    }
}

impl SlotCache {
    /// The slot that was set last for a hash, unless that of another one has replaced it.
    #[inline(always)]
    pub(super) fn get(&self, hash: u64) -> Option<u32> {
        let word = self.0[hash as usize % SIZE];
        if (word ^ hash) >> 32 == 0 { (word as u32).checked_sub(1) } else { None }
    }

    /// Remembers a slot.
    #[inline]
    pub(super) fn set(&mut self, hash: u64, slot: u32) {
        self.0[hash as usize % SIZE] = hash & !u64::from(u32::MAX) | u64::from(slot.wrapping_add(1));
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
            let hash = rng.next_u64() & 0x7_0000_07ff;
            assert!(cache.get(hash).is_none_or(|slot| last.get(&hash) == Some(&slot)));
            known += usize::from(cache.get(hash).is_some());
            let slot = rng.next_u64() as u32 >> 1;
            cache.set(hash, slot);
            assert_eq!(cache.get(hash), Some(slot));
            last.insert(hash, slot);
        }
        tally::report!("{known} of 100000 known");
        assert!(known > 10_000);
    }
}
