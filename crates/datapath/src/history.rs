//! How much of a counter came up lately: what it grew by in each of the last intervals.

use std::collections::VecDeque;

/// Seconds of an interval, by the clock of whoever calls [`crate::Datapath::tick`].
pub const INTERVAL_SECS: u64 = 5;
/// Intervals that are remembered: a minute.
pub const INTERVALS: usize = 12;

/// The last intervals of a counter that only grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// What it grew by, the latest last.
    growth: VecDeque<u64>,
    /// What it was at the end of the last one.
    last: u64,
}

impl History {
    /// A history that begins now, when the counter is `total`.
    pub(crate) fn from(total: u64) -> Self {
        Self { growth: VecDeque::new(), last: total }
    }

    /// Ends an interval, when the counter is `total`.
    pub(crate) fn tick(&mut self, total: u64) {
        if self.growth.len() == INTERVALS {
            self.growth.pop_front();
        }
        self.growth.push_back(total.saturating_sub(self.last));
        self.last = total;
    }

    /// What it grew by in the last `n` intervals that are over.
    pub(crate) fn over(&self, n: usize) -> u64 {
        self.growth.iter().rev().take(n).sum()
    }

    /// What it grew by since the first interval that is remembered began; the counter is `total` now.
    pub(crate) fn up_to(&self, total: u64) -> u64 {
        self.over(INTERVALS) + total.saturating_sub(self.last)
    }

    /// How many intervals are remembered.
    pub(crate) fn len(&self) -> usize {
        self.growth.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_remembered() {
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
