//! The recent growth of a counter, in intervals.

use dpif::INTERVALS;
use std::collections::VecDeque;

/// The last intervals of a monotonic counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Growth in each interval, the latest last.
    growth: VecDeque<u64>,
    /// The value at the end of the last interval.
    last: u64,
}

impl History {
    /// A history that starts now, with the counter at `total`.
    pub(crate) fn from(total: u64) -> Self {
        Self { growth: VecDeque::new(), last: total }
    }

    /// Ends an interval, with the counter at `total`.
    pub(crate) fn tick(&mut self, total: u64) {
        if self.growth.len() == INTERVALS {
            self.growth.pop_front();
        }
        self.growth.push_back(total.saturating_sub(self.last));
        self.last = total;
    }

    /// Growth in the last `n` complete intervals.
    pub(crate) fn over(&self, n: usize) -> u64 {
        self.growth.iter().rev().take(n).sum()
    }

    /// Growth since the start of the first interval kept, with the counter at `total` now.
    pub(crate) fn up_to(&self, total: u64) -> u64 {
        self.over(INTERVALS) + total.saturating_sub(self.last)
    }

    /// Number of intervals kept.
    pub(crate) fn len(&self) -> usize {
        self.growth.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_covers_a_minute() {
        let mut history = History::from(1000);
        assert_eq!((history.over(12), history.up_to(1003), history.len()), (0, 3, 0));
        let mut total = 1000;
        for n in 1..=20 {
            total += n;
            history.tick(total);
        }
        assert_eq!((history.over(1), history.over(2), history.len()), (20, 39, INTERVALS));
        assert_eq!(history.over(99), (9..=20).sum::<u64>());
        assert_eq!(history.up_to(total + 5), (9..=20).sum::<u64>() + 5);
    }
}
