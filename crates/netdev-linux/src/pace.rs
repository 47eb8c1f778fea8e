//! How fast frames come, in windows: whether a queue is worth the memory of a ring, or not any more.

use std::time::{Duration, Instant};

/// Frames after which the clock is looked at.
const WINDOW: u32 = 1024;
/// A window that is not full after so long ends.
const WINDOW_LEN: Duration = Duration::from_secs(1);
/// A ring is worth its memory from so many frames a second on, in so many windows in a row;
const QUICK: (f64, u8) = (20_000.0, 4);
/// and not any more below so many, in all windows of so long a time.
const SLOW: (f64, Duration) = (5_000.0, Duration::from_secs(5));
/// Or from so many batches in a row on that were full, at whatever rate: frames come faster than they are taken.
const FULL: u32 = 16;
/// How long nothing is said where there can be no ring.
const REST: Duration = Duration::from_secs(30);

/// What the last windows have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tempo {
    /// All were quick.
    Quick,
    /// All were slow.
    Slow,
}

/// Counts frames and looks at the clock now and then.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    began: Option<Instant>,
    frames: u32,
    quick: u8,
    full: u32,
    slow_since: Option<Instant>,
    /// Until when nothing is said.
    rests: Option<Instant>,
    resting: bool,
}

impl Pace {
    /// Counts frames; says what the last windows were like when one ends. With none, time alone may end it.
    #[inline]
    pub(crate) fn add(&mut self, frames: usize, now: impl FnOnce() -> Instant) -> Option<Tempo> {
        self.frames += frames as u32;
        if self.frames < WINDOW && frames > 0 { None } else { self.look(now()) }
    }

    /// Takes note of a batch, which had as many frames as it could have or not; says whether so many wait that a ring would
    /// be of use.
    #[inline]
    pub(crate) fn batch(&mut self, full: bool, now: impl FnOnce() -> Instant) -> bool {
        self.full = if full { self.full + 1 } else { 0 };
        if self.full < FULL {
            return false;
        }
        self.full = 0;
        !self.rests_at(now())
    }

    /// Says nothing for a while.
    pub(crate) fn rest(&mut self) {
        *self = Self { resting: true, ..Self::default() };
    }

    fn rests_at(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.resting) {
            self.rests = Some(now + REST);
        }
        self.rests.is_some_and(|until| now < until)
    }

    fn look(&mut self, now: Instant) -> Option<Tempo> {
        let rests = self.rests_at(now);
        let Some(began) = self.began else {
            (self.began, self.frames) = (Some(now), 0);
            return None;
        };
        let took = now.saturating_duration_since(began);
        if self.frames < WINDOW && took < WINDOW_LEN {
            return None;
        }
        let rate = f64::from(self.frames) / took.as_secs_f64().max(1e-9);
        (self.began, self.frames) = (Some(now), 0);
        self.quick = if rate >= QUICK.0 { self.quick.saturating_add(1) } else { 0 };
        self.slow_since = if rate < SLOW.0 { self.slow_since.or(Some(began)) } else { None };
        if rests {
            return None;
        }
        if self.quick >= QUICK.1 {
            Some(Tempo::Quick)
        } else if self.slow_since.is_some_and(|since| now.saturating_duration_since(since) >= SLOW.1) {
            Some(Tempo::Slow)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of 32 at a rate; the first verdict and after how many milliseconds it came.
    fn first(pace: &mut Pace, from: Instant, rate: f64, ms_max: u64) -> Option<(Tempo, u64)> {
        let gap = Duration::from_secs_f64(32.0 / rate);
        let mut now = from;
        while now - from < Duration::from_millis(ms_max) {
            if let Some(tempo) = pace.add(32, || now) {
                return Some((tempo, (now - from).as_millis() as u64));
            }
            now += gap;
        }
        None
    }

    #[test]
    fn many_frames_for_a_while_are_quick() {
        let start = Instant::now();
        let (tempo, ms) = first(&mut Pace::default(), start, 1e6, 1000).expect("a verdict");
        assert_eq!((tempo, ms), (Tempo::Quick, 5));
        let (tempo, ms) = first(&mut Pace::default(), start, 60e3, 1000).expect("a verdict");
        assert!(tempo == Tempo::Quick && (80..100).contains(&ms), "{ms}");
        assert_eq!(first(&mut Pace::default(), start, 15e3, 60_000), None);
        // A burst is over before.
        let mut pace = Pace::default();
        assert!((0..4000 / 32).all(|_| pace.add(32, || start).is_none()));
    }

    #[test]
    fn few_frames_for_seconds_are_slow() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let (tempo, ms) = first(&mut pace, start, 3e3, 60_000).expect("a verdict");
        assert!(tempo == Tempo::Slow && (5_000..5_500).contains(&ms), "{ms}");
        let mut pace = Pace::default();
        assert_eq!(first(&mut pace, start, 6e3, 60_000), None);
        // And none at all, which is asked now and then.
        let mut pace = Pace::default();
        let verdicts: Vec<_> = (0..8).map(|s| pace.add(0, || start + Duration::from_secs(s))).collect();
        assert_eq!(verdicts.iter().position(|v| *v == Some(Tempo::Slow)), Some(5));
        // Often: it is time that counts.
        let mut pace = Pace::default();
        let at = |ms| start + Duration::from_millis(ms);
        let first = (0..).find(|ms| pace.add(0, || at(*ms)).is_some());
        assert_eq!(first, Some(5000));
    }

    #[test]
    fn where_there_is_no_ring_nothing_is_said_for_a_while() {
        let start = Instant::now();
        let mut pace = Pace::default();
        assert!(first(&mut pace, start, 1e6, 1000).is_some());
        pace.rest();
        let (tempo, ms) = first(&mut pace, start, 1e6, 60_000).expect("a verdict");
        assert!(tempo == Tempo::Quick && (30_000..30_010).contains(&ms), "{ms}");
    }

    #[test]
    fn frames_that_wait_are_told_by_full_batches() {
        let now = Instant::now;
        let mut pace = Pace::default();
        // Many short bursts are none.
        assert!((0..1000).all(|n| !pace.batch(n % 16 != 15, now)));
        let mut pace = Pace::default();
        assert_eq!((0..100).position(|_| pace.batch(true, now)), Some(FULL as usize - 1));
        pace.rest();
        assert!((0..1000).all(|_| !pace.batch(true, now)));
    }
}
