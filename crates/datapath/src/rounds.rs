//! What the last rounds of a packet thread cost, and its last milliseconds: kept while `pmd-perf-metrics` asks for it.

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::time::Instant;

use dpif::{RoundHistory, RoundSample, RoundWatch, RoundWatchSettings, SlowRound};
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
    /// A suspicious round, until those after it have passed.
    slow: Option<Slow>,
}

/// A suspicious round, with the first and the last one that are to be logged with it.
#[derive(Clone, Copy, Debug)]
struct Slow {
    at: u64,
    ns: u64,
    first: u64,
    last: u64,
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

    /// Looks whether the newest round is suspicious, and returns a suspicious one once the rounds after it have passed.
    pub(crate) fn watch(&self, watch: &RoundWatch) -> Option<SlowRound> {
        let kept = &mut *self.0.lock();
        let newest = *kept.rounds.back()?;
        if watch.is_suspicious(newest.ns) {
            let RoundWatchSettings { before, after, extends, .. } = watch.settings();
            let last = newest.at.saturating_add(after.into());
            match &mut kept.slow {
                None => {
                    let first = newest.at.saturating_sub(before.into());
                    kept.slow = Some(Slow { at: newest.at, ns: newest.ns, first, last });
                }
                // No more are kept.
                Some(slow) if extends => slow.last = last.min(slow.first.saturating_add(LEN as u64 - 1)),
                Some(_) => {}
            }
        }
        let Slow { at, ns, first, last } = kept.slow.filter(|slow| newest.at >= slow.last)?;
        kept.slow = None;
        let rounds = kept.rounds.iter().rev().filter(|round| (first..=last).contains(&round.at)).copied().collect();
        Some(SlowRound { at, ns, rounds })
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

    /// The log of rounds of which those in `slow` take long: the suspicious round, the first and the last around it.
    fn logged(before: u32, after: u32, extends: bool, slow: &[u64]) -> Vec<(u64, u64, u64)> {
        let watch = RoundWatch::default();
        let settings = RoundWatchSettings { is_on: true, before, after, extends, us_max: 50, queue_max: 0 };
        watch.set(settings);
        let rounds = Rounds::default();
        let mut all = Vec::new();
        for n in 1..=40 {
            let ns = if slow.contains(&n) { 51_000 } else { 50_999 };
            rounds.add(Totals { rounds: n, batches: 0, misses: 0 }, 0, ns, *START);
            all.extend(rounds.watch(&watch).map(|found| {
                assert!(found.rounds.is_sorted_by(|a, b| a.at == b.at + 1), "{found:?}");
                (found.at, found.rounds.last().unwrap().at, found.rounds[0].at)
            }));
        }
        all
    }

    #[test]
    fn suspicious_rounds_are_logged_with_those_around_them() {
        assert_eq!(logged(2, 2, false, &[]), []);
        assert_eq!(logged(2, 3, false, &[10, 20]), [(10, 8, 13), (20, 18, 23)]);
        assert_eq!(logged(0, 0, false, &[10, 11]), [(10, 10, 10), (11, 11, 11)]);
        assert_eq!(logged(2, 3, false, &[10, 12, 15]), [(10, 8, 13), (15, 13, 18)]);
        assert_eq!(logged(2, 3, true, &[10, 12, 15, 30]), [(10, 8, 18), (30, 28, 33)]);
        // Rounds before the first are not known, and those to come are waited for.
        assert_eq!(logged(5, 3, false, &[2, 39]), [(2, 1, 5)]);
    }
}
