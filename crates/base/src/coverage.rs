//! Event counters with rates, for `coverage/show`.
//!
//! `coverage!(name)` counts an event at its place in the code. A counter is a static that enters the list of all
//! counters at its first count; [`declare`] makes events known before that. A program shows only events that occurred. Several places may count under one
//! name; their counts are added. Rates come from the totals that [`tick`] samples every five seconds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The time between two samples that [`tick`] expects, in seconds.
pub const TICK_SECONDS: u64 = 5;

/// Samples in a minute and minutes in an hour: the lengths of the two histories.
const TICKS_A_MINUTE: usize = 12;
const MINUTES_AN_HOUR: usize = 60;

/// One counter, created by [`coverage!`](crate::coverage!).
#[derive(Debug)]
pub struct Counter {
    name: &'static str,
    total: AtomicU64,
    registered: AtomicBool,
}

impl Counter {
    /// A counter at zero, not yet in the list.
    pub const fn new(name: &'static str) -> Self {
        Self { name, total: AtomicU64::new(0), registered: AtomicBool::new(false) }
    }

    /// Counts one event.
    pub fn inc(&'static self) {
        self.add(1);
    }

    /// Counts `n` events.
    pub fn add(&'static self, n: u64) {
        self.total.fetch_add(n, Relaxed);
        if !self.registered.load(Relaxed) && !self.registered.swap(true, Relaxed) {
            lock().counters.push(self);
        }
    }
}

/// Counts an event: `coverage!(netdev_received)`, or `coverage!(netdev_received, n)` of them.
#[macro_export]
macro_rules! coverage {
    ($name:ident) => {
        $crate::coverage!($name, 1)
    };
    ($name:ident, $n:expr) => {{
        static COUNTER: $crate::coverage::Counter = $crate::coverage::Counter::new(stringify!($name));
        COUNTER.add($n);
    }};
}

/// Samples of the counters of one name.
#[derive(Debug, Clone)]
struct History {
    sampled: u64,
    ticks: [u64; TICKS_A_MINUTE],
    minutes: [u64; MINUTES_AN_HOUR],
}

impl Default for History {
    fn default() -> Self {
        Self { sampled: 0, ticks: [0; TICKS_A_MINUTE], minutes: [0; MINUTES_AN_HOUR] }
    }
}

#[derive(Debug, Default)]
struct Coverage {
    counters: Vec<&'static Counter>,
    /// Totals of events that others count.
    reported: BTreeMap<&'static str, u64>,
    histories: BTreeMap<&'static str, History>,
    /// Samples taken.
    ticks: usize,
}

static COVERAGE: Mutex<Coverage> =
    Mutex::new(Coverage { counters: Vec::new(), reported: BTreeMap::new(), histories: BTreeMap::new(), ticks: 0 });

fn lock() -> MutexGuard<'static, Coverage> {
    // Nothing below leaves the lists half changed.
    COVERAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Coverage {
    fn totals(&self) -> BTreeMap<&'static str, u64> {
        let mut totals = self.reported.clone();
        for counter in &self.counters {
            let total = totals.entry(counter.name).or_default();
            *total = total.wrapping_add(counter.total.load(Relaxed));
        }
        totals
    }

    fn tick(&mut self) {
        let (tick, minute) = (self.ticks % TICKS_A_MINUTE, self.ticks / TICKS_A_MINUTE % MINUTES_AN_HOUR);
        for (name, total) in self.totals() {
            let history = self.histories.entry(name).or_default();
            let events = total.wrapping_sub(history.sampled);
            history.sampled = total;
            if tick == 0 {
                history.minutes[minute] = 0;
            }
            history.ticks[tick] = events;
            history.minutes[minute] = history.minutes[minute].wrapping_add(events);
        }
        self.ticks = self.ticks.wrapping_add(1);
    }

    fn rates(&self) -> Vec<Rate> {
        let last = self.ticks.wrapping_sub(1) % TICKS_A_MINUTE;
        let rate = |(name, total)| {
            let empty = History::default();
            let history = self.histories.get(name).unwrap_or(&empty);
            Rate {
                name,
                total,
                last_seconds: history.ticks[last] as f64 / TICK_SECONDS as f64,
                last_minute: history.ticks.iter().sum::<u64>() as f64 / 60.0,
                last_hour: history.minutes.iter().sum::<u64>() as f64 / 3600.0,
            }
        };
        self.totals().into_iter().map(rate).collect()
    }

    fn show(&self) -> String {
        let mut hash: u32 = 0;
        let mut never = 0;
        let mut lines = String::new();
        for Rate { name, total, last_seconds, last_minute, last_hour } in self.rates() {
            if total == 0 {
                never += 1;
                continue;
            }
            // Writing to a string does not fail.
            let _ = writeln!(
                lines,
                "{name:<24} {last_seconds:5.1}/sec {last_minute:9.3}/sec {last_hour:13.4}/sec   total: {total}"
            );
            hash =
                name.bytes().fold(hash, |hash, byte| hash.rotate_left(5) ^ u32::from(byte)).wrapping_mul(0x9e37_79b9);
        }
        format!(
            "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n{lines}{never} events never hit\n"
        )
    }
}

/// How often an event happened: in all, and a second.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// The event.
    pub name: &'static str,
    /// Since the program began.
    pub total: u64,
    /// The rate a second in the last [`TICK_SECONDS`].
    pub last_seconds: f64,
    /// The rate a second in the last minute.
    pub last_minute: f64,
    /// The rate a second in the last hour.
    pub last_hour: f64,
}

/// All events that were counted, by name.
pub fn rates() -> Vec<Rate> {
    lock().rates()
}

/// Makes events known that are counted here but may not have occurred yet, so that [`read`] finds them.
pub fn declare(names: &[&'static str]) {
    let mut coverage = lock();
    for name in names {
        coverage.reported.entry(name).or_default();
    }
}

/// Brings in the total of an event that something else counts.
pub fn set(name: &'static str, total: u64) {
    lock().reported.insert(name, total);
}

/// Samples all counters; call it every [`TICK_SECONDS`].
pub fn tick() {
    lock().tick();
}

/// The text of `coverage/show`.
pub fn show() -> String {
    lock().show()
}

/// The total of the counters of that name, for `coverage/read-counter`; `None` if none has counted and it was not declared.
pub fn read(name: &str) -> Option<u64> {
    lock().totals().get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_one_name_add_up() {
        for _ in 0..3 {
            crate::coverage!(test_event);
        }
        crate::coverage!(test_event, 4);
        assert_eq!(read("test_event"), Some(7));
        assert_eq!(read("test_no_event"), None);
        declare(&["test_no_event", "test_event"]);
        assert_eq!((read("test_no_event"), read("test_event")), (Some(0), Some(7)));
        assert!(!show().contains("test_no_event"), "an event that did not occur is not shown");
        assert!(show().contains("\ntest_event "));
    }

    #[test]
    fn rates() {
        static COUNTER: Counter = Counter::new("packets");
        let mut coverage = Coverage::default();
        coverage.counters.push(&COUNTER);
        COUNTER.registered.store(true, Relaxed);
        for _ in 0..14 {
            COUNTER.add(60);
            coverage.tick();
        }
        let text = coverage.show();
        assert!(
            text.contains("packets                   12.0/sec    12.000/sec        0.2333/sec   total: 840\n"),
            "{text}"
        );
        assert!(text.ends_with("\n0 events never hit\n"));
    }
}
