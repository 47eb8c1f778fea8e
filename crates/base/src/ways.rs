//! A set-associative table from hashes to small numbers, for caches whose entries lie densely in a vector.

/// Assigns numbers below [`Ways::MAX`] to hashes. A number is assigned to another hash when the ways of its set are all in use; so
/// the entry with this number must say which key it is for.
#[derive(Clone, Debug)]
pub struct Ways {
    sets: Box<[Set]>,
    used: u16,
}

/// Hashes that begin alike.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Set {
    tags: [u32; Set::WAYS],
    numbers: [u16; Set::WAYS],
    /// The way that is assigned next.
    next: u8,
}

impl Set {
    const WAYS: usize = 4;
    const NONE: u16 = u16::MAX;
}

impl Ways {
    const BITS: u32 = 11;

    /// Exceeds all numbers.
    pub const MAX: usize = Set::WAYS << Self::BITS;

    /// An empty table.
    pub fn new() -> Self {
        let set = Set { tags: [0; Set::WAYS], numbers: [Set::NONE; Set::WAYS], next: 0 };
        Self { sets: vec![set; 1 << Self::BITS].into(), used: 0 }
    }

    /// The set of a hash, by its most significant bits, and the tag.
    #[inline(always)]
    fn at(hash: u64) -> (usize, u32) {
        ((hash >> (u64::BITS - Self::BITS)) as usize, (hash >> 16) as u32)
    }

    /// The number of a hash, all of whose bits have to be mixed well ([`crate::mix::fold`]).
    #[inline(always)]
    pub fn find(&self, hash: u64) -> Option<usize> {
        let (set, tag) = Self::at(hash);
        let set = self.sets.get(set)?;
        let way = set.tags.iter().position(|known| *known == tag)?;
        Some(usize::from(set.numbers[way])).filter(|number| *number < Self::MAX)
    }

    /// The number of a hash, assigned if it has none: the lowest number that is free, or that of another hash.
    pub fn assign(&mut self, hash: u64) -> usize {
        let (set, tag) = Self::at(hash);
        let set = &mut self.sets[set];
        let known = |way: &usize| set.tags[*way] == tag && set.numbers[*way] != Set::NONE;
        let way = (0..Set::WAYS).find(known).unwrap_or(usize::from(set.next) % Set::WAYS);
        set.next = (way + 1) as u8;
        set.tags[way] = tag;
        if set.numbers[way] == Set::NONE {
            set.numbers[way] = self.used;
            self.used += 1;
        }
        set.numbers[way].into()
    }
}

impl Default for Ways {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn numbers_are_dense_and_stay_until_their_set_is_full() {
        let (mut ways, mut rng) = (Ways::new(), Rng::seeded(8));
        let hashes: Vec<u64> = (0..60_000).map(|_| rng.next_u64()).collect();
        let mut highest = 0;
        for (n, hash) in hashes.iter().enumerate() {
            assert_eq!(ways.find(*hash), None);
            let number = ways.assign(*hash);
            assert_eq!((ways.find(*hash), ways.assign(*hash)), (Some(number), number));
            assert!(number <= highest && number < Ways::MAX, "{number}");
            highest = highest.max(number + 1);
            if n == 1000 {
                let known = hashes[..n].iter().filter(|hash| ways.find(**hash).is_some()).count();
                assert!(known > 990, "{known}");
            }
        }
        assert_eq!(highest, Ways::MAX);
    }

    #[test]
    fn a_tag_of_zero_is_not_known_in_an_empty_set() {
        let mut ways = Ways::new();
        assert_eq!(ways.find(5), None);
        assert_eq!((ways.assign(5), ways.find(5), ways.find(7)), (0, Some(0), Some(0)));
    }
}
