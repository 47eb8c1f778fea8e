//! Predicts whether a lookup will find a rule in a tuple, from the results of earlier lookups.
//!
//! The prediction only selects the order in which the tuple's table and its indexes are asked. The result and the
//! recorded reads do not depend on it.

use std::sync::atomic::{AtomicU8, Ordering};

/// A saturating counter of hits. Concurrent updates may be lost.
#[derive(Debug)]
pub(crate) struct Guess(AtomicU8);

/// The maximum of the counter.
const SURE: u8 = 3;
/// A hit is predicted from this value on.
const LIKELY: u8 = 2;

impl Guess {
    /// A counter that predicts a hit.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(LIKELY))
    }

    /// Whether a hit is predicted.
    pub(crate) fn is_likely(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LIKELY
    }

    /// Records whether a lookup found a rule.
    pub(crate) fn learn(&self, found: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = if found { SURE.min(before + 1) } else { before.saturating_sub(1) };
        // The value rarely changes. Not writing it then leaves the cache line shared among readers.
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_equal_results_change_the_prediction() {
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
