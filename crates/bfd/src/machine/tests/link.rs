//! Two machines at the ends of a link.

use super::*;
use base::rng::Rng;
use proptest::prelude::*;

/// What a link does to frames.
#[derive(Clone, Copy, Debug)]
struct Quality {
    loss_percent: u64,
    repeat_percent: u64,
    delay_ms: u64,
    /// Each frame is delayed by up to this in addition, so that frames overtake others.
    spread_ms: u64,
}

/// When a frame arrives, its number, the end that it arrives at, and its bytes.
type Arrival = (Millis, u64, usize, Vec<u8>);

const PERFECT: Quality = Quality { loss_percent: 0, repeat_percent: 0, delay_ms: 1, spread_ms: 0 };
const CUT: Quality = Quality { loss_percent: 100, ..PERFECT };

/// Two machines with one session each.
struct Link {
    ends: [Bfd; 2],
    quality: [Quality; 2],
    frames: BinaryHeap<Reverse<Arrival>>,
    count: u64,
    now: Millis,
    rng: Rng,
    downs: [u64; 2],
}

impl Link {
    fn new(settings: [SessionSettings; 2], quality: Quality, seed: u64) -> Self {
        let mut ends = [Bfd::new(seed, START), Bfd::new(seed + 1, START)];
        for (end, settings) in ends.iter_mut().zip(settings) {
            end.set(P1, settings, START);
        }
        let rng = Rng::seeded(seed + 2);
        Self { ends, quality: [quality; 2], frames: BinaryHeap::new(), count: 0, now: START, rng, downs: [0; 2] }
    }

    fn run(&mut self, ms: u64) {
        let end = self.now.after(ms);
        loop {
            let frame = self.frames.peek().map(|Reverse((at, ..))| *at);
            let deadlines = self.ends.iter().filter_map(Bfd::next_deadline);
            let next = deadlines.chain(frame).min().unwrap().max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            while self.frames.peek().is_some_and(|Reverse((at, ..))| *at <= next) {
                let Some(Reverse((.., to, frame))) = self.frames.pop() else { break };
                self.ends[to].input(P1, &frame, next);
            }
            self.poll();
        }
        self.now = end;
    }

    fn poll(&mut self) {
        for end in 0..2 {
            for effect in self.ends[end].poll(self.now) {
                match effect {
                    Effect::Send { frame, .. } => self.send(end, frame),
                    Effect::Port { state, .. } if !state.live => self.downs[end] += 1,
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, from: usize, frame: Vec<u8>) {
        let quality = self.quality[from];
        let copies = 1 + u64::from(self.rng.below(100) < quality.repeat_percent);
        for _ in 0..copies {
            if self.rng.below(100) >= quality.loss_percent {
                let at = self.now.after(quality.delay_ms + self.rng.below(quality.spread_ms + 1));
                self.count += 1;
                self.frames.push(Reverse((at, self.count, 1 - from, frame.clone())));
            }
        }
    }

    fn states(&self) -> [State; 2] {
        [0, 1].map(|end| self.status(end).state)
    }

    fn status(&self, end: usize) -> SessionStatus {
        self.ends[end].status(P1).unwrap()
    }
}

fn fast(name: &str) -> SessionSettings {
    SessionSettings { min_rx_ms: 100, min_tx_ms: 100, ..settings(name) }
}

#[test]
fn a_session_comes_up_and_negotiates() {
    let slow = SessionSettings { min_rx_ms: 300, min_tx_ms: 500, multiplier: 5, ..settings("b") };
    let mut link = Link::new([fast("a"), slow], PERFECT, 1);
    link.run(4000);
    assert_eq!(link.states(), [State::Up; 2]);
    let [a, b] = [link.status(0), link.status(1)];
    assert_eq!((a.tx_interval_ms, a.rx_interval_ms, a.remote_multiplier), (300, 500, 5));
    assert_eq!((b.tx_interval_ms, b.rx_interval_ms, b.remote_multiplier), (500, 300, 3));
    assert_eq!((a.remote.discriminator, b.remote.discriminator), (b.discriminator, a.discriminator));
    let sent = [a.statistics.tx, b.statistics.tx];
    link.run(30_000);
    let sent = [link.status(0).statistics.tx - sent[0], link.status(1).statistics.tx - sent[1]];
    // Intervals of 75 to 100 percent of 300 and 500 ms.
    assert!((105..=130).contains(&sent[0]) && (63..=78).contains(&sent[1]), "{sent:?}");
    assert_eq!(link.downs, [1, 1], "no session went down after it came up");
}

#[test]
fn the_other_end_learns_of_a_one_way_failure() {
    let mut link = Link::new([fast("a"), fast("b")], PERFECT, 2);
    link.run(4000);
    link.quality[0] = CUT;
    link.run(2000);
    let [a, b] = [link.status(0), link.status(1)];
    assert_eq!((a.state, a.diagnostic), (State::Init, Diagnostic::NEIGHBOR_DOWN));
    assert_eq!((b.state, b.diagnostic), (State::Down, Diagnostic::EXPIRED));
    link.quality[0] = PERFECT;
    link.run(4000);
    assert_eq!(link.states(), [State::Up; 2]);
}

#[test]
fn changed_intervals_bring_no_session_down() {
    let mut link = Link::new([fast("a"), fast("b")], Quality { delay_ms: 20, ..PERFECT }, 3);
    link.run(4000);
    let downs = link.downs;
    for seed in 0..60 {
        let mut rng = Rng::seeded(seed);
        let end = rng.below(2) as usize;
        let mut settings = fast("a");
        (settings.min_rx_ms, settings.min_tx_ms) = (1 + rng.below(600) as u32, 1 + rng.below(600) as u32);
        settings.multiplier = 2 + rng.below(3) as u8;
        let now = link.now;
        link.ends[end].set(P1, settings.clone(), now);
        link.run(rng.below(4000));
        if rng.below(3) == 0 {
            link.run(4000);
            let status = link.status(end);
            assert_eq!(
                (status.min_rx_ms, status.min_tx_ms, status.flags),
                (settings.min_rx_ms, settings.min_tx_ms, Flags::NONE)
            );
        }
    }
    assert_eq!((link.downs, link.states()), (downs, [State::Up; 2]));
}

#[test]
fn a_restarted_end_is_recognised() {
    let mut link = Link::new([fast("a"), fast("b")], PERFECT, 4);
    link.run(4000);
    link.ends[1] = Bfd::new(99, link.now);
    let now = link.now;
    link.ends[1].set(P1, fast("b"), now);
    link.run(6000);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!(link.status(0).remote.discriminator, link.status(1).discriminator);
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Over any link, once it works again, the sessions come up; if it is cut, both ends notice within the detection time.
    #[test]
    fn ends_agree_with_the_link(
        loss_percent in 0u64..95, repeat_percent in 0u64..40, delay_ms in 0u64..200, spread_ms in 0u64..300,
        intervals in prop::array::uniform2((1u32..700, 10u32..700, 1u8..6)), seed in 0u64..1 << 32,
    ) {
        let settings = intervals.map(|(min_rx_ms, min_tx_ms, multiplier)| {
            SessionSettings { min_rx_ms, min_tx_ms, multiplier, ..settings("p") }
        });
        let mut link = Link::new(settings, Quality { loss_percent, repeat_percent, delay_ms, spread_ms }, seed);
        link.run(10_000);
        link.quality = [PERFECT; 2];
        // Late frames of the bad time, then a detection time, then a start at one packet a second.
        link.run(500 + 700 * 6 + 6000);
        prop_assert_eq!(link.states(), [State::Up; 2]);
        let downs = link.downs;
        // At an interval of 1 ms or with a multiplier of 1, the delay of 1 ms is all the tolerance there is.
        if intervals.iter().all(|(.., multiplier)| *multiplier > 1) {
            link.run(5000);
            prop_assert_eq!((link.downs, link.states()), (downs, [State::Up; 2]));
        }
        link.quality = [CUT; 2];
        link.run(2);
        let detection = [link.status(0), link.status(1)].map(|status| {
            u64::from(status.rx_interval_ms) * u64::from(status.remote_multiplier)
        });
        let last = link.now;
        for (end, detection) in detection.iter().enumerate() {
            prop_assert!(link.status(end).state != State::Up || link.status(end).detection.since(last) <= *detection);
        }
        link.run(detection[0].max(detection[1]));
        prop_assert!(link.states().iter().all(|state| *state < State::Up));
    }
}
