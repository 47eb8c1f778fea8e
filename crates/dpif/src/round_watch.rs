//! The watch for rounds of packet threads that take suspiciously long (`pmd-perf-log-set`, ovs-vswitchd(8)).

use crate::RoundSample;
use parking_lot::Mutex;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// If more rounds than these around a suspicious one are logged, the numbers of rounds before and after it become those of
/// [`RoundWatchSettings::default`], so that logging itself does not take long.
const ROUNDS_LOGGED_MAX: usize = 100;

/// Which rounds are logged, and with how many around them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundWatchSettings {
    /// Whether rounds are watched.
    pub is_on: bool,
    /// Number of rounds before the suspicious one that are logged with it.
    pub before: u32,
    /// Number of rounds after it.
    pub after: u32,
    /// Whether another suspicious round among the rounds after it extends the log.
    pub extends: bool,
    /// A round that takes more microseconds is suspicious.
    pub us_max: u32,
    /// A round that finds more frames in a vhost queue is suspicious; no port has such a queue yet.
    pub queue_max: u32,
}

impl Default for RoundWatchSettings {
    fn default() -> Self {
        Self { is_on: false, before: 5, after: 5, extends: false, us_max: 250, queue_max: 128 }
    }
}

/// The watch of all datapaths.
#[derive(Debug)]
pub struct RoundWatch {
    settings: Mutex<RoundWatchSettings>,
    /// As in `settings`, for packet threads to look at in each round.
    is_on: AtomicBool,
    us_max: AtomicU64,
    /// Cycles of the time stamp counter in a nanosecond.
    cycles_per_ns: f64,
}

impl Default for RoundWatch {
    fn default() -> Self {
        Self::new(1.0)
    }
}

impl RoundWatch {
    /// A watch that is off. `cycles_per_ns` converts the times of logged rounds to cycles.
    pub fn new(cycles_per_ns: f64) -> Self {
        let settings = RoundWatchSettings::default();
        let (is_on, us_max) = (AtomicBool::new(settings.is_on), AtomicU64::new(settings.us_max.into()));
        Self { settings: Mutex::new(settings), is_on, us_max, cycles_per_ns }
    }

    /// The settings.
    pub fn settings(&self) -> RoundWatchSettings {
        *self.settings.lock()
    }

    /// Replaces the settings.
    pub fn set(&self, settings: RoundWatchSettings) {
        *self.settings.lock() = settings;
        self.us_max.store(settings.us_max.into(), Ordering::Relaxed);
        self.is_on.store(settings.is_on, Ordering::Relaxed);
    }

    /// Returns true if rounds are watched.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns true if a round of `ns` nanoseconds is suspicious.
    pub fn is_suspicious(&self, ns: u64) -> bool {
        ns / 1000 > self.us_max.load(Ordering::Relaxed)
    }

    /// Cycles of the time stamp counter in a time.
    pub fn cycles(&self, ns: u64) -> u64 {
        (ns as f64 * self.cycles_per_ns) as u64
    }

    /// Returns two texts: about a suspicious round, and a table of the rounds around it, the newest first.
    pub fn report(&self, slow: &SlowRound) -> (String, String) {
        if slow.rounds.len() > ROUNDS_LOGGED_MAX {
            let mut settings = self.settings.lock();
            let RoundWatchSettings { before, after, extends, .. } = RoundWatchSettings::default();
            *settings = RoundWatchSettings { before, after, extends, ..*settings };
        }
        let round =
            format!("Suspicious iteration (Excessive total cycles): iter={} duration={} us", slow.at, slow.ns / 1000);
        let mut table = "Neighborhood of suspicious iteration:\n".to_owned();
        rounds_text(&slow.rounds, self.cycles_per_ns, &mut table);
        (round, table.trim_end_matches('\n').to_owned())
    }
}

/// A round that took long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlowRound {
    /// Its number.
    pub at: u64,
    /// Nanoseconds that it took.
    pub ns: u64,
    /// The rounds around it, the newest first.
    pub rounds: Vec<RoundSample>,
}

/// Writes a table of rounds in Open vSwitch's layout. No port has a vhost queue, and handlers spend the time of upcalls, so that both
/// columns are 0.
pub fn rounds_text(rounds: &[RoundSample], cycles_per_ns: f64, out: &mut String) {
    let cycles = |ns: u64| (ns as f64 * cycles_per_ns) as u64;
    let each = |a: u64, b: u64| a.checked_div(b).unwrap_or(0);
    let _ = writeln!(
        out,
        "   {:<17}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}",
        "iter", "cycles", "packets", "cycles/pkt", "pkts/batch", "vhost qlen", "upcalls", "cycles/upcall"
    );
    for s in rounds {
        let _ = writeln!(
            out,
            "   {:<17}   {:<11}  {:<11}  {:<11}  {:<11}  {:<11}  {:<11}  {:<11}",
            s.at,
            cycles(s.ns),
            s.packets,
            each(cycles(s.ns), s.packets),
            each(s.packets, s.batches),
            0,
            s.upcalls,
            0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reports_restore_the_defaults() {
        let watch = RoundWatch::new(2.0);
        let wide = RoundWatchSettings { is_on: true, before: 60, after: 60, extends: true, us_max: 7, queue_max: 9 };
        watch.set(wide);
        assert!(watch.is_on() && watch.is_suspicious(8000) && !watch.is_suspicious(7999));
        let sample = |at| RoundSample { at, rounds: 1, ns: 9000, packets: 32, batches: 1, upcalls: 2 };
        let slow = SlowRound { at: 5, ns: 9000, rounds: vec![sample(6), sample(5)] };
        let (round, table) = watch.report(&slow);
        assert_eq!(round, "Suspicious iteration (Excessive total cycles): iter=5 duration=9 us");
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "Neighborhood of suspicious iteration:");
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["6", "18000", "32", "562", "32", "0", "2", "0"]);
        assert_eq!((lines.len(), watch.settings()), (4, wide));
        watch.report(&SlowRound { rounds: (0..101).map(sample).collect(), ..slow });
        assert_eq!(watch.settings(), RoundWatchSettings { before: 5, after: 5, extends: false, ..wide });
    }
}
