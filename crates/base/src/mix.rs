//! Mixing of words, for hash functions with secret seeds.

/// Both halves of a product of 128 bits, in one: each bit of `a` has a say in bits all over the result, by a factor `b`
/// that has bits all over. Not for factors that others may choose: the product with 0 is 0.
#[inline]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Adds a word to the hash of those before it, by a key as [`fold`] wants it. Nothing is lost where the product is 0.
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
