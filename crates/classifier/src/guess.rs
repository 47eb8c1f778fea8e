//! Whether a look-up is likely to find something in a tuple, by what became of those before.
//!
//! It decides in which order a tuple's table and its indexes are asked, and nothing else: what is found and what is read
//! does not depend on it.

use std::sync::atomic::{AtomicU8, Ordering};

/// See the top of this file. Of look-ups at the same time, some may not be counted.
#[derive(Debug)]
pub(crate) struct Guess(AtomicU8);

/// Counted up to this.
const SURE: u8 = 3;
/// From this on it is likely.
const LIKELY: u8 = 2;

impl Guess {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(LIKELY))
    }

    /// Whether something will be found.
    pub(crate) fn is_likely(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LIKELY
    }

    /// Takes into account whether something was found.
    pub(crate) fn learn(&self, found: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = if found { SURE.min(before + 1) } else { before.saturating_sub(1) };
        // Mostly it stays as it is, and the line of memory is left to all who read it.
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_twice_is_likely() {
        let guess = Guess::new();
        let mut after = |found| {
            guess.learn(found);
            guess.is_likely()
        };
        assert_eq!(
            [true, true, false, false, false, false, true, true].map(&mut after),
            [true, true, true, false, false, false, false, true]
        );
    }
}
