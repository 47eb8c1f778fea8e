//! Measures the rate of frames in windows, to decide whether a queue uses a ring.

use std::time::{Duration, Instant};

/// Frames in a window: the clock is read once for this number of frames.
const WINDOW: u32 = 1024;
/// A window ends after this time even if it has fewer frames.
const WINDOW_LEN: Duration = Duration::from_secs(1);
/// A ring is created at this rate in frames per second, reached in this number of consecutive windows,
const HIGH: (f64, u8) = (20_000.0, 4);
/// and closed below this rate in all windows over this time.
const LOW: (f64, Duration) = (5_000.0, Duration::from_secs(5));
/// It is also created after this number of consecutive full batches at any rate: frames arrive faster than they are
/// received.
const FULL: u32 = 16;
/// Time without results after a ring could not be created.
const REST: Duration = Duration::from_secs(30);

/// The result of the last windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// All reached the high rate.
    High,
    /// All were below the low rate.
    Low,
}

/// Counts frames and reads the clock once for each window.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    began: Option<Instant>,
    frames: u32,
    n_high: u8,
    full: u32,
    low_since: Option<Instant>,
    /// No results until this time.
    rests: Option<Instant>,
    resting: bool,
}

impl RateMeter {
    /// Counts frames. At the end of a window, returns the result of the last windows. With 0 frames, only time ends the
    /// window.
    #[inline]
    pub(crate) fn add(&mut self, frames: usize, now: impl FnOnce() -> Instant) -> Option<Level> {
        self.frames += frames as u32;
        if self.frames < WINDOW && frames > 0 { None } else { self.look(now()) }
    }

    /// Counts a batch, full or not; returns whether so many frames wait that a ring would help.
    #[inline]
    pub(crate) fn batch(&mut self, full: bool, now: impl FnOnce() -> Instant) -> bool {
        self.full = if full { self.full + 1 } else { 0 };
        if self.full < FULL {
            return false;
        }
        self.full = 0;
        !self.rests_at(now())
    }

    /// Gives no results for a while.
    pub(crate) fn rest(&mut self) {
        *self = Self { resting: true, ..Self::default() };
    }

    fn rests_at(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.resting) {
            self.rests = Some(now + REST);
        }
        self.rests.is_some_and(|until| now < until)
    }

    fn look(&mut self, now: Instant) -> Option<Level> {
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
        self.n_high = if rate >= HIGH.0 { self.n_high.saturating_add(1) } else { 0 };
        self.low_since = if rate < LOW.0 { self.low_since.or(Some(began)) } else { None };
        if rests {
            return None;
        }
        if self.n_high >= HIGH.1 {
            Some(Level::High)
        } else if self.low_since.is_some_and(|since| now.saturating_duration_since(since) >= LOW.1) {
            Some(Level::Low)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds batches of 32 at a rate; returns the first result and the milliseconds until it came.
    fn first(rate_meter: &mut RateMeter, from: Instant, rate: f64, ms_max: u64) -> Option<(Level, u64)> {
        let gap = Duration::from_secs_f64(32.0 / rate);
        let mut now = from;
        while now - from < Duration::from_millis(ms_max) {
            if let Some(level) = rate_meter.add(32, || now) {
                return Some((level, (now - from).as_millis() as u64));
            }
            now += gap;
        }
        None
    }

    #[test]
    fn a_sustained_high_rate_is_high() {
        let start = Instant::now();
        let (level, ms) = first(&mut RateMeter::default(), start, 1e6, 1000).expect("a verdict");
        assert_eq!((level, ms), (Level::High, 5));
        let (level, ms) = first(&mut RateMeter::default(), start, 60e3, 1000).expect("a verdict");
        assert!(level == Level::High && (80..100).contains(&ms), "{ms}");
        assert_eq!(first(&mut RateMeter::default(), start, 15e3, 60_000), None);
        // A burst ends before that.
        let mut rate_meter = RateMeter::default();
        assert!((0..4000 / 32).all(|_| rate_meter.add(32, || start).is_none()));
    }

    #[test]
    fn a_sustained_low_rate_is_low() {
        let start = Instant::now();
        let mut rate_meter = RateMeter::default();
        let (level, ms) = first(&mut rate_meter, start, 3e3, 60_000).expect("a verdict");
        assert!(level == Level::Low && (5_000..5_500).contains(&ms), "{ms}");
        let mut rate_meter = RateMeter::default();
        assert_eq!(first(&mut rate_meter, start, 6e3, 60_000), None);
        // No frames at all, with a call per second.
        let mut rate_meter = RateMeter::default();
        let verdicts: Vec<_> = (0..8).map(|s| rate_meter.add(0, || start + Duration::from_secs(s))).collect();
        assert_eq!(verdicts.iter().position(|v| *v == Some(Level::Low)), Some(5));
        // With frequent calls, only time counts.
        let mut rate_meter = RateMeter::default();
        let at = |ms| start + Duration::from_millis(ms);
        let first = (0..).find(|ms| rate_meter.add(0, || at(*ms)).is_some());
        assert_eq!(first, Some(5000));
    }

    #[test]
    fn results_pause_after_a_ring_could_not_be_created() {
        let start = Instant::now();
        let mut rate_meter = RateMeter::default();
        assert!(first(&mut rate_meter, start, 1e6, 1000).is_some());
        rate_meter.rest();
        let (level, ms) = first(&mut rate_meter, start, 1e6, 60_000).expect("a verdict");
        assert!(level == Level::High && (30_000..30_010).contains(&ms), "{ms}");
    }

    #[test]
    fn consecutive_full_batches_ask_for_a_ring() {
        let now = Instant::now;
        let mut rate_meter = RateMeter::default();
        // Short bursts do not count.
        assert!((0..1000).all(|n| !rate_meter.batch(n % 16 != 15, now)));
        let mut rate_meter = RateMeter::default();
        assert_eq!((0..100).position(|_| rate_meter.batch(true, now)), Some(FULL as usize - 1));
        rate_meter.rest();
        assert!((0..1000).all(|_| !rate_meter.batch(true, now)));
    }
}
