//! An array that grows without moving its elements, and that readers index without a lock.
//!
//! Elements live in boxed pieces, four of them for each doubling of the length: a piece is at most a quarter of what is
//! there already, so that creating one is short, and 72 pieces suffice for millions of elements.

use std::sync::OnceLock;

/// Pieces for each doubling, as a power of two.
const PER_DOUBLING_LOG2: u32 = 2;
/// Elements of each of the first pieces, as a power of two.
const SMALLEST_LOG2: u32 = 3;
/// Where the doublings begin: added to an index, it lets one formula find each piece.
const BIAS_LOG2: u32 = PER_DOUBLING_LOG2 + SMALLEST_LOG2;
/// Number of pieces.
const PIECES: usize = 72;

/// A growing array of `T`.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    pieces: [OnceLock<Box<[T]>>; PIECES],
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self { pieces: [const { OnceLock::new() }; PIECES] }
    }
}

impl<T> Pieces<T> {
    /// Number of elements that it can have.
    pub(super) const MAX_LEN: u32 = (1 << (BIAS_LOG2 + PIECES as u32 / (1 << PER_DOUBLING_LOG2))) - (1 << BIAS_LOG2);

    /// The element with an index; `None` if its piece was not yet created.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        // The elements of a small table, without the arithmetic of larger ones.
        if index < 1 << SMALLEST_LOG2 {
            return self.pieces[0].get()?.get(index as usize);
        }
        let (piece, offset, _) = locate(index);
        self.pieces.get(piece)?.get()?.get(offset)
    }

    /// Number of elements in the pieces that were created.
    pub(super) fn capacity(&self) -> usize {
        self.pieces.iter().filter_map(OnceLock::get).map(|piece| piece.len()).sum()
    }
}

impl<T: Default> Pieces<T> {
    /// The element with an index, whose piece is created if necessary; `None` from [`Self::MAX_LEN`] on.
    pub(super) fn get_or_create(&self, index: u32) -> Option<&T> {
        if index >= Self::MAX_LEN {
            return None;
        }
        let (piece, offset, len) = locate(index);
        self.pieces.get(piece)?.get_or_init(|| std::iter::repeat_with(T::default).take(len).collect()).get(offset)
    }
}

/// The piece of an index, the offset in it, and the number of elements of that piece.
#[inline]
fn locate(index: u32) -> (usize, usize, usize) {
    let biased = u64::from(index) + (1 << BIAS_LOG2);
    let doubling = biased.ilog2();
    let len_log2 = doubling - PER_DOUBLING_LOG2;
    let within = (biased >> len_log2) as u32 & ((1 << PER_DOUBLING_LOG2) - 1);
    let piece = (doubling - BIAS_LOG2) << PER_DOUBLING_LOG2 | within;
    (piece as usize, (biased & ((1 << len_log2) - 1)) as usize, 1 << len_log2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_one_another() {
        let (mut piece, mut offset, mut len) = (0, 0, 1 << SMALLEST_LOG2);
        for index in 0..100_000 {
            assert_eq!(locate(index), (piece, offset, len));
            offset += 1;
            if offset == len {
                (piece, offset) = (piece + 1, 0);
                len = locate(index + 1).2;
                assert!(len << PER_DOUBLING_LOG2 <= index as usize + 1 + (1 << BIAS_LOG2));
            }
        }
        assert_eq!(locate(Pieces::<u8>::MAX_LEN - 1).0, PIECES - 1);
        assert_eq!(locate(Pieces::<u8>::MAX_LEN).0, PIECES);
    }

    #[test]
    fn elements_are_created_once_and_stay() {
        let pieces = Pieces::<std::sync::atomic::AtomicU32>::default();
        assert!(pieces.get(40).is_none());
        for index in 0..1000 {
            let element = pieces.get_or_create(index).unwrap();
            assert_eq!(element.swap(index + 1, std::sync::atomic::Ordering::Relaxed), 0);
        }
        assert!((0..1000).all(|n| pieces.get(n).unwrap().load(std::sync::atomic::Ordering::Relaxed) == n + 1));
        assert!(pieces.capacity() < 1300);
        assert!(pieces.get_or_create(Pieces::<u8>::MAX_LEN).is_none());
        assert!(pieces.get(u32::MAX).is_none());
    }
}
