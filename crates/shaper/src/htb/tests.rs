//! The shaper in virtual time: measured rates, and a naive twin.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const MBIT: u64 = 1_000_000;

fn class(min_rate: u64, max_rate: u64, priority: u32) -> ClassConfig {
    ClassConfig { min_rate, max_rate, burst: 12_512, priority }
}

fn config(max_rate: u64, classes: &[ClassConfig]) -> ShaperConfig {
    let classes = classes.iter().enumerate().map(|(id, of)| (id as u32, *of)).collect();
    ShaperConfig { max_rate, burst: 12_512, limit: 100, classes }
}

/// Keeps packets of `lens` waiting in these classes for so long, and returns the rates in bits per second.
fn rates(config: &ShaperConfig, busy: &[u32], lens: &[u32], until: u64) -> BTreeMap<u32, u64> {
    let mut shaper = Shaper::new(config, 0);
    let (mut now, mut n) = (0, 0);
    let mut push = |shaper: &mut Shaper<u32>, id: u32| {
        n += 1;
        let len = lens[n % lens.len()];
        shaper.push(id, len, len).unwrap();
    };
    for id in busy.iter().flat_map(|id| [*id; 3]) {
        push(&mut shaper, id);
    }
    let mut bits: BTreeMap<u32, u64> = busy.iter().map(|id| (*id, 0)).collect();
    while now < until {
        match shaper.pop(now) {
            Some((id, len)) => {
                *bits.get_mut(&id).unwrap() += u64::from(len) * 8;
                push(&mut shaper, id);
            }
            None => now = shaper.next_at().unwrap().max(now + 1),
        }
    }
    bits.into_iter().map(|(id, bits)| (id, bits * SECOND / until)).collect()
}

#[track_caller]
fn assert_near(measured: &BTreeMap<u32, u64>, expected: &[(u32, u64)]) {
    for (id, expected) in expected {
        let error = measured[id].abs_diff(*expected) as f64 / *expected as f64;
        assert!(error < 0.01, "class {id}: {} for {expected}: {measured:?}", measured[id]);
    }
}

#[test]
fn rates_are_within_one_percent() {
    let lens = [1514, 60, 700];
    let alone = config(10 * MBIT, &[class(12_000, 10 * MBIT, 0)]);
    assert_near(&rates(&alone, &[0], &lens, 4 * SECOND), &[(0, 10 * MBIT)]);
    let capped = config(10 * MBIT, &[class(12_000, 10 * MBIT, 0), class(12_000, 3 * MBIT, 0)]);
    assert_near(&rates(&capped, &[1], &lens, 4 * SECOND), &[(1, 3 * MBIT)]);
    assert_near(&rates(&capped, &[0, 1], &lens, 4 * SECOND), &[(0, 7 * MBIT), (1, 3 * MBIT)]);
}

#[test]
fn guaranteed_rates_hold_and_the_smaller_priority_value_borrows_first() {
    let lens = [1514];
    let two = config(10 * MBIT, &[class(2 * MBIT, 10 * MBIT, 5), class(4 * MBIT, 10 * MBIT, 1)]);
    assert_near(&rates(&two, &[0, 1], &lens, 4 * SECOND), &[(0, 2 * MBIT), (1, 8 * MBIT)]);
    // Equal priorities share what is left as their guaranteed rates.
    let equal = config(20 * MBIT, &[class(3 * MBIT, 20 * MBIT, 1), class(MBIT, 20 * MBIT, 1)]);
    assert_near(&rates(&equal, &[0, 1], &lens, 8 * SECOND), &[(0, 15 * MBIT), (1, 5 * MBIT)]);
    // Bandwidth that nobody claims goes to the one that wants it.
    assert_near(&rates(&two, &[0], &lens, 4 * SECOND), &[(0, 10 * MBIT)]);
}

#[test]
fn the_root_holds_if_the_guaranteed_rates_exceed_it() {
    let over = config(4 * MBIT, &[class(4 * MBIT, 4 * MBIT, 0), class(4 * MBIT, 4 * MBIT, 0)]);
    let measured = rates(&over, &[0, 1], &[1514], 4 * SECOND);
    assert_near(&measured, &[(0, 2 * MBIT), (1, 2 * MBIT)]);
}

#[test]
fn large_packets_overdraw_and_are_paid_later() {
    let one = config(8 * MBIT, &[class(12_000, 8 * MBIT, 0)]);
    assert_near(&rates(&one, &[0], &[64_000], 20 * SECOND), &[(0, 8 * MBIT)]);
}

#[test]
fn a_full_queue_returns_the_packet_and_unknown_classes_are_class_0() {
    let mut shaper = Shaper::new(&ShaperConfig { limit: 2, ..config(MBIT, &[class(0, MBIT, 0)]) }, 0);
    assert_eq!(
        [shaper.push(7, 100, 'a'), shaper.push(0, 100, 'b'), shaper.push(0, 100, 'c')],
        [Ok(()), Ok(()), Err('c')]
    );
    assert_eq!(shaper.pop(0), Some((0, 'a')));
    let expected = ClassStats { packets: 1, bytes: 100, dropped: 1, backlog: 1 };
    assert_eq!(shaper.stats().collect::<Vec<_>>(), [(0, expected)]);
    assert_eq!(shaper.drain().collect::<Vec<_>>(), [(0, 'b')]);
    assert_eq!((shaper.pop(SECOND), shaper.next_at()), (None, None));
    let mut none = Shaper::new(&config(MBIT, &[]), 0);
    assert_eq!(none.push(0, 1, ()), Err(()));
}

/// The twin: it remembers everything that left, and computes each bucket from the beginning when it needs one.
struct Twin {
    config: ShaperConfig,
    /// Packets that wait, in order of arrival: class, length.
    waiting: Vec<(u32, u32)>,
    /// What left: time, class, length, and whether within the guaranteed rate.
    left: Vec<(u64, u32, u32, bool)>,
    turns: Vec<u32>,
    deficits: BTreeMap<u32, u64>,
}

impl Twin {
    fn level(&self, (rate, burst): (u64, u64), counts: impl Fn(&(u64, u32, u32, bool)) -> bool, now: u64) -> i128 {
        let (mut level, mut at) = (i128::from(burst) * 1_000_000_000, 0);
        for entry in self.left.iter().filter(|entry| counts(entry)) {
            level = (level + i128::from(rate) * i128::from(entry.0 - at)).min(i128::from(burst) * 1_000_000_000);
            at = entry.0;
            level -= i128::from(entry.2) * 8 * 1_000_000_000;
        }
        (level + i128::from(rate) * i128::from(now - at)).min(i128::from(burst) * 1_000_000_000)
    }

    fn push(&mut self, id: u32, len: u32) -> bool {
        let id = if self.config.classes.contains_key(&id) { id } else { 0 };
        let n = self.waiting.iter().filter(|(of, _)| *of == id).count();
        if n >= self.config.limit {
            return false;
        }
        if n == 0 {
            self.turns.push(id);
            self.deficits.insert(id, self.quantum(id));
        }
        self.waiting.push((id, len));
        true
    }

    fn quantum(&self, id: u32) -> u64 {
        (self.config.classes[&id].min_rate / 80).clamp(1000, 200_000)
    }

    fn pop(&mut self, now: u64) -> Option<(u32, u32)> {
        if self.level((self.config.max_rate, self.config.burst), |_| true, now) <= 0 {
            return None;
        }
        loop {
            let mut candidates = Vec::new();
            for (turn, id) in self.turns.iter().enumerate() {
                let of = self.config.classes[id];
                let max = self.level((of.max_rate.max(of.min_rate), of.burst), |e| e.1 == *id, now);
                let min = self.level((of.min_rate, of.burst), |e| e.1 == *id && e.3, now);
                if max > 0 {
                    candidates.push((min <= 0, of.priority, turn, *id));
                }
            }
            let (borrows, _, turn, id) = candidates.into_iter().min()?;
            let at = self.waiting.iter().position(|(of, _)| *of == id).unwrap();
            let len = self.waiting[at].1;
            let quantum = self.quantum(id);
            let deficit = self.deficits.get_mut(&id).unwrap();
            if *deficit < u64::from(len) {
                *deficit += quantum;
                self.turns.remove(turn);
                self.turns.push(id);
                continue;
            }
            *deficit -= u64::from(len);
            self.waiting.remove(at);
            self.left.push((now, id, len, !borrows));
            if !self.waiting.iter().any(|(of, _)| *of == id) {
                self.turns.remove(turn);
            }
            return Some((id, len));
        }
    }
}

fn a_class() -> impl Strategy<Value = ClassConfig> {
    (1u64..5_000_000, 1u64..10_000_000, 1u64..50_000, 0u32..3)
        .prop_map(|(min_rate, max_rate, burst, priority)| ClassConfig { min_rate, max_rate, burst, priority })
}

tally::proptest! {
    #[test]
    fn agrees_with_the_naive_twin(
        max_rate in 1u64..10_000_000,
        burst in 1u64..50_000,
        limit in 1usize..6,
        classes in proptest::collection::vec(a_class(), 1..4),
        steps in proptest::collection::vec((0u32..5, 1u32..3_000, 0u64..3_000_000, 0usize..4), 1..60),
    ) {
        let config = ShaperConfig { burst, limit, ..config(max_rate, &classes) };
        let mut shaper = Shaper::new(&config, 0);
        let (turns, deficits) = (Vec::new(), BTreeMap::new());
        let mut twin = Twin { config, waiting: Vec::new(), left: Vec::new(), turns, deficits };
        let mut now = 0;
        for (id, len, wait, pops) in steps {
            prop_assert_eq!(shaper.push(id, len, len).is_ok(), twin.push(id, len));
            now += wait;
            for _ in 0..pops {
                let popped = shaper.pop(now);
                prop_assert_eq!(popped, twin.pop(now));
                if popped.is_none() {
                    break;
                }
            }
        }
        // Whatever waits leaves at the moments that the shaper announces, and not before.
        while let Some(at) = shaper.next_at() {
            prop_assert!(at <= now || shaper.pop(at - 1).is_none());
            now = now.max(at);
            let popped = shaper.pop(now);
            prop_assert!(popped.is_some());
            prop_assert_eq!(popped, twin.pop(now));
        }
        prop_assert!(twin.waiting.is_empty());
    }
}
