//! Mixing of words, for hash functions with secret seeds.

/// Combines both halves of a 128-bit product: each bit of `a` affects bits all over the result, if the factor `b` has
/// bits all over. Not for factors that an attacker may choose: the product with 0 is 0.
#[inline]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Adds a word to a hash, with a key as [`fold`] requires. Nothing is lost if the product is 0.
#[inline]
pub const fn chain(hash: u64, word: u64, key: u64) -> u64 {
    fold(hash ^ word, key).wrapping_add(hash)
}

#[cfg(test)]
mod tests {
    use super::{chain, fold};

    #[test]
    fn both_halves_count() {
        assert_eq!([chain(7, 7, 5), chain(2, 1, 5)], [7, 17]);
        assert_eq!([fold(3, 5), fold(1 << 63, 2), fold(1 << 63, 3)], [15, 1, 1 << 63 ^ 1]);
    }
}
