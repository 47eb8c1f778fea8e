//! A hierarchical timer wheel with a resolution of a millisecond.
//!
//! Level `l` has 64 slots of 64^l milliseconds each. A timer waits at the level where its slot is in the future, and
//! moves down when the time reaches that slot, so that setting, moving and cancelling a timer has the same cost for
//! any number of timers.
//!
//! Invariants: a timer is in one slot; each occupied slot begins after `now` and no later than the deadlines in it.

use base::Millis;
use std::collections::{BTreeMap, BTreeSet};

const LEVELS: usize = 5;
const SLOTS: u64 = 64;
const BITS: u32 = 6;

/// Timers by key.
#[derive(Clone, Debug)]
pub struct Wheel<K> {
    now: Millis,
    levels: [Level<K>; LEVELS],
    /// Deadline and place of each timer.
    timers: BTreeMap<K, (Millis, TimerPosition)>,
    /// Timers that were due when they were set.
    overdue: BTreeSet<K>,
}

#[derive(Clone, Debug)]
struct Level<K> {
    /// Bit `n` is set if slot `n` has timers.
    occupied: u64,
    slots: Vec<BTreeSet<K>>,
}

#[derive(Clone, Copy, Debug)]
enum TimerPosition {
    Slot(usize, usize),
    Overdue,
}

impl<K: Ord + Copy> Wheel<K> {
    /// A wheel without timers.
    pub fn new(now: Millis) -> Self {
        let level = Level { occupied: 0, slots: vec![BTreeSet::new(); SLOTS as usize] };
        Self { now, levels: std::array::from_fn(|_| level.clone()), timers: BTreeMap::new(), overdue: BTreeSet::new() }
    }

    /// Sets the timer of `key`, or moves it.
    pub fn set(&mut self, key: K, deadline: Millis) {
        self.cancel(&key);
        self.place(key, deadline);
    }

    fn place(&mut self, key: K, deadline: Millis) {
        let delta = deadline.since(self.now);
        let place = if delta == 0 {
            self.overdue.insert(key);
            TimerPosition::Overdue
        } else {
            // A timer beyond the last level waits in its last slot, and is placed again from there.
            let level = ((u64::BITS - 1 - delta.leading_zeros()) / BITS).min(LEVELS as u32 - 1) as usize;
            let ticks = deadline.0 >> shift(level);
            let slot = (ticks.min((self.now.0 >> shift(level)) + SLOTS) % SLOTS) as usize;
            self.levels[level].slots[slot].insert(key);
            self.levels[level].occupied |= 1 << slot;
            TimerPosition::Slot(level, slot)
        };
        self.timers.insert(key, (deadline, place));
    }

    /// Cancels the timer of `key`, if it is set.
    pub fn cancel(&mut self, key: &K) {
        let Some((_, place)) = self.timers.remove(key) else { return };
        match place {
            TimerPosition::Overdue => _ = self.overdue.remove(key),
            TimerPosition::Slot(level, slot) => {
                let level = &mut self.levels[level];
                level.slots[slot].remove(key);
                if level.slots[slot].is_empty() {
                    level.occupied &= !(1 << slot);
                }
            }
        }
    }

    /// The deadline of `key`, if its timer is set.
    pub fn deadline(&self, key: &K) -> Option<Millis> {
        self.timers.get(key).map(|(deadline, _)| *deadline)
    }

    /// Returns the time for the next call of [`Wheel::advance`]: no later than the first deadline, and possibly
    /// before it.
    pub fn next(&self) -> Option<Millis> {
        if !self.overdue.is_empty() {
            return Some(self.now);
        }
        (0..LEVELS).filter_map(|level| self.first_slot(level)).map(|(at, _)| at).min()
    }

    /// The first occupied slot of a level: its beginning and number.
    fn first_slot(&self, number: usize) -> Option<(Millis, usize)> {
        let occupied = self.levels[number].occupied;
        if occupied == 0 {
            return None;
        }
        // The following slots first; the current one comes last.
        let position = self.now.0 >> shift(number);
        let ahead = occupied.rotate_right(((position + 1) % SLOTS) as u32).trailing_zeros();
        let tick = position + 1 + u64::from(ahead);
        Some((Millis(tick << shift(number)), (tick % SLOTS) as usize))
    }

    /// Advances the time and appends the keys of expired timers to `due`, in the order of their deadlines; these
    /// timers are removed.
    pub fn advance(&mut self, now: Millis, due: &mut Vec<K>) {
        for key in std::mem::take(&mut self.overdue) {
            self.timers.remove(&key);
            due.push(key);
        }
        let mut come = BTreeSet::new();
        while let Some(at) = self.next().filter(|at| *at <= now) {
            // Slots of several levels may begin at the same time.
            for level in 0..LEVELS {
                let Some((_, slot)) = self.first_slot(level).filter(|(begin, _)| *begin == at) else { continue };
                self.levels[level].occupied &= !(1 << slot);
                come.append(&mut self.levels[level].slots[slot]);
            }
            self.now = at;
            for key in std::mem::take(&mut come) {
                let (deadline, _) = self.timers.remove(&key).expect("each timer in a slot is set");
                if deadline <= at {
                    due.push(key);
                } else {
                    self.place(key, deadline);
                }
            }
        }
        self.now = self.now.max(now);
    }
}

fn shift(level: usize) -> u32 {
    level as u32 * BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timers_expire_in_order_and_once() {
        let mut wheel = Wheel::new(Millis(1000));
        for (key, deadline) in [(1, 1063), (2, 1064), (3, 5096), (4, 900), (5, 1 << 40)] {
            wheel.set(key, Millis(deadline));
        }
        assert_eq!(wheel.next(), Some(Millis(1000)));
        let mut due = Vec::new();
        wheel.advance(Millis(1063), &mut due);
        assert_eq!(due, [4, 1]);
        wheel.set(2, Millis(9000));
        wheel.cancel(&3);
        wheel.advance(Millis(8999), &mut due);
        assert_eq!((due.len(), wheel.deadline(&2), wheel.deadline(&3)), (2, Some(Millis(9000)), None));
        wheel.advance(Millis((1 << 40) - 1), &mut due);
        assert_eq!(due, [4, 1, 2]);
        wheel.advance(Millis(1 << 40), &mut due);
        assert_eq!((&due[..], wheel.next()), (&[4, 1, 2, 5][..], None));
    }

    tally::proptest! {
        /// As a map of deadlines that is searched each time.
        #[test]
        fn agrees_with_a_naive_twin(
            start in 0u64..100_000,
            steps in prop::collection::vec((0u8..4, 0u16..20, 0u32..31, any::<u64>()), 1..200),
        ) {
            let mut now = Millis(start);
            let mut wheel = Wheel::new(now);
            let mut naive = BTreeMap::new();
            for (what, key, bits, random) in steps {
                let ms = random % (1 << bits);
                if what == 0 {
                    wheel.cancel(&key);
                    naive.remove(&key);
                } else if what < 3 {
                    // Some in the past.
                    let deadline = Millis(now.after(ms).0.saturating_sub(5));
                    wheel.set(key, deadline);
                    naive.insert(key, deadline);
                } else {
                    now = now.after(ms);
                    let mut due = Vec::new();
                    wheel.advance(now, &mut due);
                    due.sort_unstable();
                    let expected: Vec<u16> = naive.extract_if(.., |_, deadline| *deadline <= now).map(|(key, _)| key).collect();
                    prop_assert_eq!(due, expected);
                }
                prop_assert_eq!(wheel.deadline(&key), naive.get(&key).copied());
                let first = naive.values().min();
                prop_assert_eq!(wheel.next().is_some(), first.is_some());
                prop_assert!(wheel.next().is_none_or(|next| next <= (*first.unwrap()).max(now)));
            }
        }

        /// A caller that advances the wheel only at the times that `next` returns misses no deadline, and needs few calls.
        #[test]
        fn next_leads_to_the_deadline(start in 0u64..1 << 40, bits in 0u32..40, random: u64) {
            let deadline = Millis(start + random % (1 << bits));
            let mut wheel = Wheel::new(Millis(start));
            wheel.set((), deadline);
            let (mut due, mut calls) = (Vec::new(), 0);
            while let Some(next) = wheel.next() {
                prop_assert!(next <= deadline);
                wheel.advance(next, &mut due);
                prop_assert_eq!(due.len(), usize::from(next == deadline));
                calls += 1;
            }
            prop_assert!(calls <= LEVELS as u64 + 1 + (deadline.since(Millis(start)) >> shift(LEVELS)), "{}", calls);
        }
    }
}
