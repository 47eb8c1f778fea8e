//! Two machines over links that lose, repeat and delay frames, so that they overtake each other.

use super::*;
use base::rng::Rng;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const LINKS: u32 = 3;

/// A frame under way: arrival, order, receiving end, port, bytes.
type UnderWay = (Millis, u64, usize, u32, Vec<u8>);

/// The links between port `n` of one end and port `n` of the other.
struct Links {
    rng: Rng,
    lost_percent: u64,
    repeated_percent: u64,
    delay_max_ms: u64,
    down: BTreeSet<u32>,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    order: u64,
}

impl Links {
    fn new(seed: u64, lost_percent: u64, repeated_percent: u64, delay_max_ms: u64) -> Self {
        let (rng, down, under_way) = (Rng::seeded(seed), BTreeSet::new(), BinaryHeap::new());
        Self { rng, lost_percent, repeated_percent, delay_max_ms, down, under_way, order: 0 }
    }

    fn carry(&mut self, from: usize, number: u32, frame: Vec<u8>, now: Millis) {
        let copies = 1 + usize::from(self.rng.next_u64() % 100 < self.repeated_percent);
        for _ in 0..copies {
            let lost = self.down.contains(&number) || self.rng.next_u64() % 100 < self.lost_percent;
            let delay = self.rng.next_u64() % (self.delay_max_ms + 1);
            self.order += 1;
            if !lost {
                self.under_way.push(Reverse((now.after(delay), self.order, 1 - from, number, frame.clone())));
            }
        }
    }

    /// Runs both ends until `end`. Returns the number of frames that they sent.
    fn run(&mut self, ends: &mut [Lacp; 2], now: &mut Millis, end: Millis) -> usize {
        let mut sent = 0;
        loop {
            for (from, lacp) in ends.iter_mut().enumerate() {
                for (port, frame) in frames(lacp.poll(*now)) {
                    sent += 1;
                    self.carry(from, port.port.0, frame, *now);
                }
            }
            let arrival = self.under_way.peek().map(|Reverse((at, ..))| *at);
            let next = ends.iter().filter_map(Lacp::next_deadline).chain(arrival).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                *now = end;
                return sent;
            };
            *now = next.max(*now);
            while let Some(Reverse((at, ..))) = self.under_way.peek() {
                if *at > *now {
                    break;
                }
                let Some(Reverse((_, _, to, number, frame))) = self.under_way.pop() else { break };
                if !self.down.contains(&number) {
                    ends[to].input(port(number), &frame, *now);
                }
            }
        }
    }
}

fn end(mode: Mode, timeout: Timeout, last_byte: u8) -> BondSettings {
    BondSettings { system: MacAddr([2, 0, 0, 0, 0, last_byte]), ..bond(mode, timeout, 1..=LINKS) }
}

fn ends(modes: [Mode; 2], timeouts: [Timeout; 2], now: Millis) -> [Lacp; 2] {
    [0, 1].map(|n| machine(end(modes[n], timeouts[n], n as u8 + 1), now))
}

fn enabled(lacp: &Lacp) -> Vec<bool> {
    (1..=LINKS).map(|number| lacp.may_enable(port(number)).unwrap()).collect()
}

const TIMEOUTS: [Timeout; 2] = [Timeout::Fast, Timeout::Slow];

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Both ends enable all links, notice a link that fails, and enable it again.
    #[test]
    fn two_ends_agree(seed: u64, passive: bool, timeouts in (0usize..2, 0usize..2)) {
        let mut now = Millis(1_000_000);
        let modes = [Mode::Active, if passive { Mode::Passive } else { Mode::Active }];
        let mut ends = ends(modes, [TIMEOUTS[timeouts.0], TIMEOUTS[timeouts.1]], now);
        let mut links = Links::new(seed, 0, 20, 20);
        let end = now.after(3000);
        links.run(&mut ends, &mut now, end);
        prop_assert_eq!([enabled(&ends[0]), enabled(&ends[1])], [vec![true; 3], vec![true; 3]]);
        links.down.insert(2);
        let end = now.after(93_100);
        links.run(&mut ends, &mut now, end);
        prop_assert_eq!([enabled(&ends[0]), enabled(&ends[1])], [vec![true, false, true], vec![true, false, true]]);
        prop_assert_eq!(ends[0].status()[0].members[1].currency, Currency::Defaulted);
        links.down.clear();
        let end = now.after(31_000);
        links.run(&mut ends, &mut now, end);
        prop_assert_eq!([enabled(&ends[0]), enabled(&ends[1])], [vec![true; 3], vec![true; 3]]);
    }

    /// Whatever a link does to frames, few are sent, and once it delivers them again, both ends enable it.
    #[test]
    fn losses_and_reordering_heal(seed: u64, lost in 0u64..60, timeouts in (0usize..2, 0usize..2)) {
        let mut now = Millis(1_000_000);
        let timeouts = [TIMEOUTS[timeouts.0], TIMEOUTS[timeouts.1]];
        let mut ends = ends([Mode::Active; 2], timeouts, now);
        let mut links = Links::new(seed, lost, 30, 2500);
        let end = now.after(120_000);
        let sent = links.run(&mut ends, &mut now, end);
        // Each member sends once a second at most, and an answer for each frame that contradicts its own state.
        prop_assert!(sent < 6 * 120 * 4, "{}", sent);
        for lacp in &ends {
            prop_assert!(lacp.status()[0].members.iter().all(|member| member.statistics.rx_bad == 0));
        }
        let good = Links::new(seed, 0, 0, 1);
        links.under_way.clear();
        links = Links { order: links.order, ..good };
        let end = now.after(65_000);
        links.run(&mut ends, &mut now, end);
        prop_assert_eq!([enabled(&ends[0]), enabled(&ends[1])], [vec![true; 3], vec![true; 3]]);
        // Then only periodic frames remain: one of each member an interval of its partner.
        let end = now.after(60_000);
        let sent = links.run(&mut ends, &mut now, end);
        let expected: u64 = timeouts.iter().map(|timeout| 3 * 60_000 / timeout.period_ms()).sum();
        prop_assert!((sent as u64).abs_diff(expected) <= 6, "{} instead of {}", sent, expected);
    }
}

#[test]
fn two_passive_ends_are_silent() {
    let mut now = Millis(0);
    let mut ends = ends([Mode::Passive; 2], [Timeout::Fast; 2], now);
    assert_eq!(Links::new(1, 0, 0, 0).run(&mut ends, &mut now, Millis(200_000)), 0);
    assert_eq!(enabled(&ends[0]), [false; 3]);
}

#[test]
fn links_to_another_system_stay_apart() {
    // Links 1 and 2 lead to one system, link 3 to another; its turn comes when the others fail.
    let mut now = Millis(0);
    let mut ends = ends([Mode::Active; 2], [Timeout::Fast; 2], now);
    let mut other = machine(BondSettings { members: [member(3)].into(), ..end(Mode::Active, Timeout::Fast, 9) }, now);
    let mut links = Links::new(1, 0, 0, 0);
    links.down.insert(3);
    for step in 0..400 {
        let end = Millis(step * 100);
        links.run(&mut ends, &mut now, end);
        for (_, frame) in frames(other.poll(now)) {
            ends[0].input(port(3), &frame, now);
        }
        // The links would lose these frames.
        for (to, frame) in frames(ends[0].poll(now)) {
            if to == port(3) {
                other.input(to, &frame, now);
            } else {
                links.carry(0, to.port.0, frame, now);
            }
        }
        match step {
            100 => assert_eq!(enabled(&ends[0]), [true, true, false]),
            200 => links.down.extend([1, 2]),
            300 => assert_eq!(enabled(&ends[0]), [false, false, true]),
            _ => {}
        }
    }
}
