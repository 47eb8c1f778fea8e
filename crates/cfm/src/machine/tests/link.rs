//! Maintenance points at the ends of a link, and a naive twin.

use super::*;
use base::rng::Rng;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

struct Link {
    ends: [Cfm; 2],
    quality: [Quality; 2],
    frames: BinaryHeap<Reverse<Arrival>>,
    count: u64,
    now: Millis,
    rng: Rng,
}

impl Link {
    fn new(settings: [PointSettings; 2], quality: Quality, seed: u64) -> Self {
        let mut ends = [Cfm::new(seed, START), Cfm::new(seed + 1, START)];
        for (end, settings) in ends.iter_mut().zip(settings) {
            end.set(P1, settings, START);
        }
        let rng = Rng::seeded(seed + 2);
        Self { ends, quality: [quality; 2], frames: BinaryHeap::new(), count: 0, now: START, rng }
    }

    fn run(&mut self, ms: u64) {
        let end = self.now.after(ms);
        loop {
            let frame = self.frames.peek().map(|Reverse((at, ..))| *at);
            let deadlines = self.ends.iter().filter_map(Cfm::next_deadline);
            let next = deadlines.chain(frame).min().unwrap().max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            while self.frames.peek().is_some_and(|Reverse((at, ..))| *at <= next) {
                let Some(Reverse((.., to, frame))) = self.frames.pop() else { break };
                self.ends[to].input(P1, &frame, next);
            }
            for end in 0..2 {
                for effect in self.ends[end].poll(next) {
                    if let Effect::Send { frame, .. } = effect {
                        self.send(end, frame);
                    }
                }
            }
        }
        self.now = end;
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

    fn faults(&self) -> [String; 2] {
        [0, 1].map(|end| self.ends[end].status(P1).unwrap().faults.to_string())
    }
}

#[test]
fn a_one_way_failure_is_a_fault_at_both_ends() {
    let mut link = Link::new([settings("a", 1), settings("b", 2)], PERFECT, 1);
    link.run(60_000);
    assert_eq!(link.faults(), ["", ""]);
    let health = [0, 1].map(|end| link.ends[end].status(P1).unwrap().health);
    assert_eq!(health, [Some(100); 2]);
    link.quality[0] = CUT;
    link.run(12_000);
    assert_eq!(link.faults(), ["rdi", "recv"]);
    link.quality[0] = PERFECT;
    link.run(8000);
    assert_eq!(link.faults(), ["", ""]);
}

/// Each poll visits due points only, so that many of them are cheap.
#[test]
fn a_thousand_points_have_no_faults() {
    let fast = |n: u32| PointSettings { interval_ms: 100, ..settings("p", u64::from(n) + 1) };
    let mut cfm = Cfm::new(5, START);
    cfm.configure((0..1000).map(|n| (port(n), fast(n))).collect(), START);
    let (mut now, mut frames, mut polls) = (START, 0, 0);
    let end = START.after(4000);
    while let Some(next) = cfm.next_deadline().filter(|next| *next <= end) {
        now = now.max(next);
        polls += 1;
        for effect in cfm.poll(now) {
            let Effect::Send { port: from, frame } = effect else { continue };
            frames += 1;
            cfm.input(port(from.port.0 ^ 1), &frame, now);
        }
    }
    assert!(cfm.statuses().all(|(_, status)| !status.faults.any() && status.statistics.flaps == 0));
    assert_eq!(frames, 41_000);
    assert!(polls < 400, "{polls}");
    tally::report!("1000 points, {frames} frames, {polls} polls");
}

/// The last CCM of each remote point, and the faults at checks 3.5 intervals apart.
#[derive(Default)]
struct Naive {
    /// Time, RDI and identifier of each CCM.
    heard: Vec<(u64, bool, u16)>,
}

impl Naive {
    /// The faults after the check at `at`, of a point with an interval of 1000 ms that began at 0.
    fn faults(&self, at: u64) -> String {
        let mut known: BTreeMap<u16, bool> = BTreeMap::new();
        let (mut recv, mut rdi) = (false, false);
        for check in (3500..=at).step_by(3500) {
            let heard = self.heard.iter().filter(|(time, ..)| *time < check && *time >= check - 3500);
            known.clear();
            heard.for_each(|(_, rdi, mpid)| _ = known.insert(*mpid, *rdi));
            (recv, rdi) = (known.is_empty(), known.values().any(|rdi| *rdi));
        }
        [(recv, "recv"), (rdi, "rdi")].iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn faults_agree_with_a_naive_twin(
        steps in prop::collection::vec((0u64..5000, any::<bool>(), 2u16..5), 1..40),
    ) {
        let mut driven = Driven::new(settings("p1", 1));
        let mut naive = Naive::default();
        for (ms, rdi, mpid) in steps {
            driven.wait(ms);
            // A CCM at the time of a check counts for the next one, as the check comes first.
            let at = driven.now.since(START);
            driven.receive(|ccm| (ccm.rdi, ccm.mpid) = (rdi, mpid));
            naive.heard.push((at, rdi, mpid));
            prop_assert_eq!(driven.faults(), naive.faults(at), "at {}", at);
        }
    }

    /// Over any link, faults end once it works again; if it is cut, both ends notice at a check after 3.5 intervals.
    #[test]
    fn ends_agree_with_the_link(
        loss_percent in 0u64..95, repeat_percent in 0u64..40, delay_ms in 0u64..200, spread_ms in 0u64..300,
        code in 2usize..5, seed in 0u64..1 << 32,
    ) {
        let interval_ms = [3, 10, 100, 300, 1000][code];
        let settings = [1, 2].map(|mpid| PointSettings { extended: true, interval_ms, ..settings("p", mpid) });
        let mut link = Link::new(settings, Quality { loss_percent, repeat_percent, delay_ms, spread_ms }, seed);
        link.run(5000);
        link.quality = [PERFECT; 2];
        // Late frames, a check to hear the other end, and one to hear that it hears us.
        link.run(500 + 15 * interval_ms);
        prop_assert_eq!(link.faults(), ["", ""]);
        link.quality = [CUT; 2];
        link.run(8 * interval_ms);
        prop_assert_eq!(link.faults(), ["recv", "recv"]);
    }

    /// Frames of any bytes, or of good ones with one byte changed, leave the machine consistent.
    #[test]
    fn hostile_frames_do_no_harm(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..100), 12usize..89, any::<u8>(), any::<bool>()), 1..50),
    ) {
        let mut driven = Driven::new(settings("p1", 1));
        for (bytes, at, byte, is_near) in frames {
            let ccm = Ccm { rdi: false, interval_code: 4, sequence: 1, mpid: 2, extended_interval_ms: 0, extended_mpid: 0, is_down: false };
            let mut near = ccm.frame(MacAddr::from_u64(1), DESTINATION, 0);
            near[at] = byte;
            let bytes = if is_near { near } else { bytes };
            let before = driven.status();
            driven.input(&bytes);
            if Ccm::parse(&bytes).is_err() {
                let after = driven.status();
                prop_assert_eq!(after.statistics.rx_refused, before.statistics.rx_refused + 1);
                prop_assert_eq!(PointStatus { statistics: before.statistics, ..after }, before);
            }
            driven.wait(100);
            prop_assert!(driven.status().remotes.len() <= REMOTES_MAX);
            prop_assert!(driven.cfm.next_deadline().is_some_and(|next| next > driven.now));
        }
    }
}
