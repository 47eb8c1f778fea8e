//! The machine against a second copy of itself over links that lose, repeat, delay and reorder frames, against a naive
//! twin, and against the frames, log lines and output of Open vSwitch 4.0.0.

use super::*;
use crate::packet::{Control, Diagnostic, Flags, State};
use crate::session::jittered;
use crate::show;
use base::{MacAddr, PortNo};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

mod link;
mod many;
mod oracle;
mod twin;

const P1: BridgePort = port(1);
const START: Millis = Millis(1_000_000);

const fn port(number: u32) -> BridgePort {
    BridgePort { bridge: 1, port: PortNo(number) }
}

fn settings(name: &str) -> SessionSettings {
    SessionSettings::new(name, MacAddr::from_u64(0xaa55_aa55_000f))
}

/// A machine with one session, driven by packets that the test writes.
struct Driven {
    bfd: Bfd,
    now: Millis,
    sent: Vec<Control>,
    lines: Vec<String>,
    statuses: usize,
    changes: Vec<bool>,
}

impl Driven {
    fn new(settings: SessionSettings) -> Self {
        let mut driven = Self {
            bfd: Bfd::new(7, START),
            now: START,
            sent: Vec::new(),
            lines: Vec::new(),
            statuses: 0,
            changes: Vec::new(),
        };
        driven.set(settings);
        driven
    }

    /// A session that is up, with a remote system at 100 ms.
    fn up(settings: SessionSettings) -> Self {
        let mut driven = Self::new(settings);
        driven.receive(|control| control.state = State::Down);
        driven.receive(|control| control.state = State::Init);
        driven.receive(|_| {});
        assert_eq!(driven.status().state, State::Up);
        driven
    }

    fn set(&mut self, settings: SessionSettings) {
        self.bfd.set(P1, settings, self.now);
        self.poll();
    }

    fn change(&mut self, change: impl FnOnce(&mut SessionSettings)) {
        let mut settings = self.bfd.ports.get(P1).unwrap().settings.clone();
        change(&mut settings);
        self.set(settings);
    }

    fn poll(&mut self) {
        for effect in self.bfd.poll(self.now) {
            match effect {
                Effect::Send { frame, .. } => {
                    self.sent.push(Control::parse(packet::payload(&frame).unwrap()).unwrap());
                }
                Effect::Log(line) | Effect::Warn(line) => self.lines.push(line),
                Effect::Status => self.statuses += 1,
                Effect::Port { state, .. } => self.changes.push(state.live),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Advances the time, polling whenever that is due.
    fn wait(&mut self, ms: u64) {
        let end = self.now.after(ms);
        while let Some(next) = self.bfd.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.poll();
        }
        self.now = end;
    }

    /// A packet of a remote system that is up.
    fn control(&self) -> Control {
        Control {
            diagnostic: Diagnostic::NONE,
            state: State::Up,
            flags: Flags::NONE,
            multiplier: 3,
            my_discriminator: 5,
            your_discriminator: self.status().discriminator,
            desired_min_tx_us: 100_000,
            required_min_rx_us: 100_000,
            required_min_echo_rx_us: 0,
        }
    }

    fn receive(&mut self, change: impl FnOnce(&mut Control)) {
        let mut control = self.control();
        change(&mut control);
        self.input(&frame(&control));
    }

    fn input(&mut self, frame: &[u8]) {
        self.bfd.input(P1, frame, self.now);
        self.poll();
    }

    /// Receives packets at an interval for some time.
    fn keep_up(&mut self, ms: u64, interval: u64) {
        for _ in 0..ms / interval {
            self.receive(|_| {});
            self.wait(interval);
        }
    }

    fn status(&self) -> SessionStatus {
        self.bfd.status(P1).unwrap()
    }

    fn take_sent(&mut self) -> Vec<Control> {
        std::mem::take(&mut self.sent)
    }

    fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

fn frame(control: &Control) -> Vec<u8> {
    let addresses = packet::Addresses {
        mac_src: MacAddr::from_u64(1),
        mac_dst: MacAddr::from_u64(2),
        ip_src: std::net::Ipv4Addr::new(169, 254, 1, 0),
        ip_dst: std::net::Ipv4Addr::new(169, 254, 1, 1),
        udp_src: 50000,
    };
    packet::frame(&addresses, control)
}

#[test]
fn the_session_goes_down_after_the_detection_time() {
    let mut driven = Driven::up(SessionSettings { min_rx_ms: 200, ..settings("p1") });
    driven.wait(599);
    assert_eq!(driven.status().state, State::Up);
    driven.wait(1);
    let status = driven.status();
    assert_eq!((status.state, status.diagnostic), (State::Down, Diagnostic::EXPIRED));
    assert_eq!((status.forwarding, status.statistics.flaps), (false, 2));
    assert_eq!(driven.changes, [false, true, false]);
}

#[test]
fn a_poll_is_answered_at_once_even_while_polling() {
    let mut driven = Driven::up(settings("p1"));
    driven.take_sent();
    driven.receive(|control| control.flags = Flags::POLL);
    assert_eq!(driven.take_sent()[0].flags, Flags::FINAL);
    driven.change(|settings| settings.min_rx_ms = 500);
    assert_eq!(driven.take_sent()[0].flags, Flags::POLL);
    driven.receive(|control| control.flags = Flags::POLL);
    assert_eq!(driven.take_sent()[0].flags, Flags::FINAL);
    driven.wait(1000);
    assert!(driven.take_sent().iter().all(|sent| sent.flags == Flags::POLL));
}

#[test]
fn slower_sending_waits_for_the_end_of_a_poll_sequence() {
    let mut driven = Driven::up(settings("p1"));
    driven.keep_up(1000, 100);
    driven.take_sent();
    driven.change(|settings| (settings.min_tx_ms, settings.min_rx_ms) = (400, 500));
    // The packet announces the new intervals, while the old ones are in use.
    let sent = driven.take_sent();
    assert_eq!((sent[0].flags, sent[0].desired_min_tx_us, sent[0].required_min_rx_us), (Flags::POLL, 400_000, 500_000));
    let status = driven.status();
    assert_eq!((status.min_tx_ms, status.min_rx_ms), (100, 1000));
    // Another change waits for the first sequence.
    driven.change(|settings| settings.min_tx_ms = 300);
    driven.receive(|control| control.flags = Flags::FINAL);
    assert_eq!(
        (driven.status().min_tx_ms, driven.status().flags),
        (300, Flags::POLL),
        "the shorter interval is in use"
    );
    assert_eq!(driven.take_sent()[0].desired_min_tx_us, 300_000);
    driven.receive(|control| control.flags = Flags::FINAL);
    let status = driven.status();
    assert_eq!((status.min_tx_ms, status.min_rx_ms, status.flags), (300, 500, Flags::NONE));
    driven.take_sent();
    driven.keep_up(3000, 100);
    assert!((10..=14).contains(&driven.take_sent().len()));
}

#[test]
fn a_session_that_goes_down_ends_its_poll_sequence() {
    let mut driven = Driven::up(settings("p1"));
    driven.change(|settings| settings.min_tx_ms = 300);
    driven.receive(|control| control.state = State::AdminDown);
    let status = driven.status();
    assert_eq!((status.state, status.flags, status.diagnostic), (State::Down, Flags::NONE, Diagnostic::NEIGHBOR_DOWN));
    driven.take_sent();
    driven.wait(1000);
    assert_eq!(driven.take_sent()[0].desired_min_tx_us, 1_000_000);
}

#[test]
fn an_idle_interface_decays() {
    let mut driven = Driven::up(SessionSettings { min_rx_ms: 200, decay_min_rx_ms: 1500, ..settings("p1") });
    let mut packets = 0;
    // Each control packet comes with `data` other packets.
    let mut second = |driven: &mut Driven, data: u64| {
        for _ in 0..10 {
            packets += 1 + data;
            driven.receive(|_| {});
            driven.wait(100);
        }
        let now = driven.now;
        driven.bfd.traffic(P1, packets, now);
        driven.poll();
        driven.status().flags
    };
    let finish = |driven: &mut Driven| driven.receive(|control| control.flags = Flags::FINAL);
    // The first report only sets the count.
    assert_eq!([second(&mut driven, 1), second(&mut driven, 1), second(&mut driven, 1)], [Flags::NONE; 3]);
    assert_eq!(second(&mut driven, 1), Flags::POLL, "no more data than control packets");
    finish(&mut driven);
    assert_eq!(driven.status().min_rx_ms, 1500);
    assert_eq!(second(&mut driven, 3), Flags::NONE);
    assert_eq!(second(&mut driven, 3), Flags::POLL);
    finish(&mut driven);
    assert_eq!(driven.status().min_rx_ms, 200);
}

#[test]
fn traffic_keeps_an_interface_forwarding() {
    let mut driven = Driven::up(SessionSettings { min_rx_ms: 100, forwarding_if_rx: true, ..settings("p1") });
    let mut packets = 0;
    let mut run = |driven: &mut Driven, ms: u64, data: u64| {
        for _ in 0..ms / 500 {
            driven.wait(500);
            packets += data;
            let now = driven.now;
            driven.bfd.traffic(P1, packets, now);
            driven.poll();
        }
        (driven.status().state, driven.status().forwarding)
    };
    assert_eq!(run(&mut driven, 500, 1), (State::Down, false), "the first report only sets the count");
    assert_eq!(run(&mut driven, 5000, 1), (State::Down, true));
    // Control packets alone are no traffic; a control packet is necessary within 100 receive intervals.
    assert_eq!(run(&mut driven, 2500, 0), (State::Down, false));
    driven.receive(|control| control.state = State::AdminDown);
    assert_eq!(run(&mut driven, 9500, 1), (State::Down, true));
    assert_eq!(run(&mut driven, 1000, 1), (State::Down, false));
    assert_eq!(driven.status().statistics.flaps, 6);
}

#[test]
fn a_forced_state_has_no_flaps() {
    let mut driven = Driven::new(settings("p1"));
    let now = driven.now;
    driven.bfd.force(P1, Some(true), now);
    assert!(driven.status().forwarding && driven.bfd.is_forwarding(P1));
    driven.bfd.force(P1, None, now);
    assert!(!driven.bfd.is_forwarding(P1));
    driven.poll();
    assert_eq!((driven.status().statistics.flaps, driven.changes), (0, vec![false, true, false]));
}

#[test]
fn jitter_takes_up_to_a_quarter() {
    let mut rng = Rng::seeded(3);
    for (multiplier, range) in [(1, 750..=900), (2, 750..=1000), (3, 750..=1000)] {
        let drawn: BTreeSet<u64> = (0..2000).map(|_| jittered(1000, multiplier, &mut rng)).collect();
        assert_eq!((drawn.first(), drawn.last()), (Some(range.start()), Some(range.end())), "{multiplier}");
    }
    assert_eq!(jittered(1, 3, &mut rng), 1);
}

#[test]
fn each_session_has_a_discriminator_and_a_port_of_its_own() {
    let mut bfd = Bfd::new(1, START);
    bfd.configure((0..500).map(|n| (port(n), settings("p"))).collect(), START);
    let discriminators: BTreeSet<u32> = bfd.statuses().map(|(_, status)| status.discriminator).collect();
    assert!(discriminators.len() == 500 && !discriminators.contains(&0));
    let frames: BTreeSet<Vec<u8>> = bfd
        .poll(START)
        .into_iter()
        .filter_map(|effect| if let Effect::Send { frame, .. } = effect { Some(frame[34..36].to_vec()) } else { None })
        .collect();
    assert_eq!(frames.len(), 500);
    bfd.configure(BTreeMap::new(), START);
    assert_eq!((bfd.next_deadline(), bfd.discriminators.len()), (None, 0));
}

#[test]
fn the_log_is_limited() {
    let mut driven = Driven::up(settings("p1"));
    for _ in 0..1000 {
        driven.receive(|control| control.multiplier = 0);
    }
    assert!(driven.lines.len() <= 60);
    driven.wait(5000);
    driven.receive(|control| control.multiplier = 0);
    assert!(driven.lines.iter().any(|line| line.starts_with("Dropped 9")), "{:?}", driven.lines.last());
}
