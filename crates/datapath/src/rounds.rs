//! What the last rounds of a packet thread cost, and its last milliseconds: kept while `pmd-perf-metrics` asks for it.

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::time::Instant;

use dpif::{RoundHistory, RoundSample};
use parking_lot::Mutex;

/// Rounds, and milliseconds, that are kept.
const LEN: usize = 1000;

/// Where milliseconds are counted from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The samples of one thread, which alone adds them.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    rounds: VecDeque<RoundSample>,
    milliseconds: VecDeque<RoundSample>,
    /// The thread's counters at the end of the round before; none before the first round.
    before: Option<Totals>,
}

/// Counters of a thread since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) rounds: u64,
    pub(crate) batches: u64,
    pub(crate) misses: u64,
}

impl Rounds {
    /// Adds a round that ended at `now` and took `ns` for `packets`.
    pub(crate) fn add(&self, totals: Totals, packets: u64, ns: u64, now: Instant) {
        let kept = &mut *self.0.lock();
        let before = kept.before.replace(totals).unwrap_or(totals);
        let sample = RoundSample {
            at: totals.rounds,
            rounds: 1,
            ns,
            packets,
            batches: totals.batches.saturating_sub(before.batches),
            upcalls: totals.misses.saturating_sub(before.misses),
        };
        push(&mut kept.rounds, sample);
        let ms = now.saturating_duration_since(*START).as_millis() as u64;
        match kept.milliseconds.back_mut().filter(|last| last.at == ms) {
            Some(last) => last.merge(sample),
            None => push(&mut kept.milliseconds, RoundSample { at: ms, ..sample }),
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Kept::default();
    }

    /// The newest samples, at most so many rounds and milliseconds, the newest first.
    pub(crate) fn newest(&self, rounds: usize, milliseconds: usize) -> RoundHistory {
        let kept = self.0.lock();
        let newest = |from: &VecDeque<RoundSample>, n| from.iter().rev().take(n).copied().collect();
        RoundHistory { rounds: newest(&kept.rounds, rounds), milliseconds: newest(&kept.milliseconds, milliseconds) }
    }
}

fn push(samples: &mut VecDeque<RoundSample>, sample: RoundSample) {
    if samples.len() == LEN {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rounds_and_milliseconds_are_bounded_and_newest_first() {
        let rounds = Rounds::default();
        let start = *START + Duration::from_millis(5);
        for n in 1..=3000 {
            let totals = Totals { rounds: n, batches: 2 * n, misses: n / 2 };
            rounds.add(totals, 10, 100, start + Duration::from_micros(100 * (n - 1)));
        }
        let found = rounds.newest(2, 2);
        let sample = |at, rounds, upcalls| RoundSample {
            at,
            rounds,
            ns: 100 * rounds,
            packets: 10 * rounds,
            batches: 2 * rounds,
            upcalls,
        };
        assert_eq!(found.rounds, [sample(3000, 1, 1), sample(2999, 1, 0)]);
        assert_eq!(found.milliseconds, [sample(304, 10, 5), sample(303, 10, 5)]);
        let all = rounds.newest(usize::MAX, usize::MAX);
        assert_eq!((all.rounds.len(), all.milliseconds.len()), (LEN, 300));
        // Nothing is known of what went before the first round.
        assert_eq!(all.milliseconds[299].batches, 18);
        rounds.clear();
        assert_eq!(rounds.newest(5, 5), RoundHistory::default());
    }
}
