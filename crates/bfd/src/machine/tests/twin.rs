//! The session against a naive twin: the state table of RFC 5880 section 6.8.6, with times in a list.

use super::*;
use proptest::prelude::*;

/// A remote packet, or a pause in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    Packet { state: State, diagnostic: u8, your: Your, min_tx_ms: u32, multiplier: u8, poll: bool },
    Wait(u64),
}

/// The discriminator by which a packet names the session.
#[derive(Clone, Copy, Debug)]
enum Your {
    Zero,
    Right,
    Wrong,
}

/// Rows: local state; columns: received state (RFC 5880 section 6.2).
fn next(local: State, received: State) -> State {
    use State::*;
    match (local, received) {
        (_, AdminDown) => Down,
        (Down, Down) => Init,
        (Down, Init) => Up,
        (Down, Up) => Down,
        (Init, Down) => Init,
        (Init, _) => Up,
        (Up, Down) => Down,
        (Up, _) => Up,
        (AdminDown, _) => AdminDown,
    }
}

/// Only the rules, without timers: the state is computed anew from the list of accepted packets.
struct Naive {
    state: State,
    forwarding: bool,
    flaps: u64,
    expires: u64,
    remote_diagnostic: u8,
    answers: u64,
}

impl Naive {
    fn step(&mut self, step: Step, now: u64) {
        match step {
            Step::Wait(_) => {
                if self.state > State::Down && now >= self.expires {
                    (self.state, self.remote_diagnostic) = (State::Down, 0);
                }
            }
            Step::Packet { your: Your::Wrong, .. }
            | Step::Packet { your: Your::Zero, state: State::Init | State::Up, .. } => {}
            Step::Packet { state, diagnostic, min_tx_ms, multiplier, poll, .. } => {
                self.answers += u64::from(poll);
                self.remote_diagnostic = diagnostic;
                self.expires = now + u64::from(min_tx_ms.max(200)) * u64::from(multiplier);
                let before = self.state;
                self.state = next(before, state);
                if self.state == State::Down && before != State::Down {
                    self.remote_diagnostic = 0;
                }
            }
        }
        let forwarding = self.state == State::Up && ![5, 6, 8].contains(&self.remote_diagnostic);
        self.flaps += u64::from(forwarding != self.forwarding);
        self.forwarding = forwarding;
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state =
        prop_oneof![1 => Just(State::AdminDown), 1 => Just(State::Down), 3 => Just(State::Init), 4 => Just(State::Up)];
    let your = prop_oneof![1 => Just(Your::Zero), 8 => Just(Your::Right), 1 => Just(Your::Wrong)];
    let packet = (state, 0u8..10, your, 1u32..400, 1u8..5, any::<bool>()).prop_map(
        |(state, diagnostic, your, min_tx_ms, multiplier, poll)| Step::Packet {
            state,
            diagnostic,
            your,
            min_tx_ms,
            multiplier,
            poll,
        },
    );
    prop::collection::vec(prop_oneof![3 => packet, 1 => (0u64..1500).prop_map(Step::Wait)], 1..60)
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sessions_follow_the_state_table(steps in steps()) {
        let mut driven = Driven::new(SessionSettings { min_rx_ms: 200, ..settings("p1") });
        let mut naive =
            Naive { state: State::Down, forwarding: false, flaps: 0, expires: 0, remote_diagnostic: 0, answers: 0 };
        let mut answers = 0;
        for step in steps {
            match step {
                Step::Wait(ms) => driven.wait(ms),
                Step::Packet { state, diagnostic, your, min_tx_ms, multiplier, poll } => driven.receive(|control| {
                    (control.state, control.diagnostic) = (state, Diagnostic(diagnostic));
                    (control.desired_min_tx_us, control.multiplier) = (min_tx_ms * 1000, multiplier);
                    control.flags = if poll { Flags::POLL } else { Flags::NONE };
                    control.your_discriminator = match your {
                        Your::Zero => 0,
                        Your::Right => control.your_discriminator,
                        Your::Wrong => control.your_discriminator ^ 1,
                    };
                }),
            }
            naive.step(step, driven.now.0);
            answers += driven.take_sent().iter().filter(|sent| sent.flags == Flags::FINAL).count() as u64;
            let status = driven.status();
            let seen = (status.state, status.forwarding, status.statistics.flaps, status.remote.diagnostic.0, answers);
            let expected = (naive.state, naive.forwarding, naive.flaps, naive.remote_diagnostic, naive.answers);
            prop_assert_eq!(seen, expected, "after {:?}", step);
        }
    }

    /// Frames of any bytes, or of good ones with one byte changed, leave the machine consistent.
    #[test]
    fn hostile_frames_do_no_harm(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..70), 0usize..66, any::<u8>(), any::<bool>()), 1..50),
    ) {
        let mut driven = Driven::up(settings("p1"));
        for (bytes, at, byte, is_near) in frames {
            let mut near = frame(&driven.control());
            near[at] = byte;
            let before = driven.status();
            let bytes = if is_near { near } else { bytes };
            let is_bfd = packet::payload(&bytes).is_some();
            driven.input(&bytes);
            if !is_bfd {
                prop_assert_eq!(driven.status(), before.clone());
            }
            driven.wait(10);
            let status = driven.status();
            prop_assert!(status.discriminator == before.discriminator && status.tx_interval_ms >= 100);
            prop_assert!(driven.bfd.next_deadline().is_some_and(|next| next > driven.now));
        }
    }
}
