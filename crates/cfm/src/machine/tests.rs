//! The machine against a second copy of itself over links that lose, repeat, delay and reorder frames, against a naive
//! twin, and against the log lines and output of Open vSwitch 4.0.0.

use super::*;
use crate::pdu::{Ccm, DESTINATION};
use crate::point::REMOTES_MAX;
use crate::settings::CcmVlan;
use crate::show;
use base::{MacAddr, PortNo};
use std::collections::BTreeSet;

mod link;
mod oracle;

const P1: BridgePort = port(1);
const START: Millis = Millis(1_000_000);

const fn port(number: u32) -> BridgePort {
    BridgePort { bridge: 1, port: PortNo(number) }
}

fn settings(name: &str, mpid: u64) -> PointSettings {
    PointSettings::new(name, MacAddr::from_u64(0xaa55_aa55_000f), mpid)
}

/// A machine with one maintenance point, driven by CCMs that the test writes.
struct Driven {
    cfm: Cfm,
    now: Millis,
    sequence: u32,
    sent: Vec<Vec<u8>>,
    lines: Vec<String>,
    lives: Vec<bool>,
}

impl Driven {
    fn new(settings: PointSettings) -> Self {
        let cfm = Cfm::new(7, START);
        let mut driven = Self { cfm, now: START, sequence: 0, sent: Vec::new(), lines: Vec::new(), lives: Vec::new() };
        driven.set(settings);
        driven
    }

    fn set(&mut self, settings: PointSettings) {
        self.cfm.set(P1, settings, self.now);
        self.poll();
    }

    fn change(&mut self, change: impl FnOnce(&mut PointSettings)) {
        let mut settings = self.cfm.ports.get(P1).unwrap().settings.clone();
        change(&mut settings);
        self.set(settings);
    }

    fn poll(&mut self) {
        for effect in self.cfm.poll(self.now) {
            match effect {
                Effect::Send { frame, .. } => self.sent.push(frame),
                Effect::Log(line) | Effect::Warn(line) => self.lines.push(line),
                Effect::Port { state, .. } => self.lives.push(state.live),
                Effect::Status => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Advances the time, polling whenever that is due.
    fn wait(&mut self, ms: u64) {
        let end = self.now.after(ms);
        while let Some(next) = self.cfm.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.poll();
        }
        self.now = end;
    }

    /// Receives the next CCM of remote point 2.
    fn receive(&mut self, change: impl FnOnce(&mut Ccm)) {
        self.sequence += 1;
        let mut ccm = Ccm {
            rdi: false,
            interval_code: 4,
            sequence: self.sequence,
            mpid: 2,
            extended_interval_ms: 0,
            extended_mpid: 2,
            is_down: false,
        };
        change(&mut ccm);
        self.input(&ccm.frame(MacAddr::from_u64(0x0a00_0000_0001), DESTINATION, 0));
    }

    fn input(&mut self, frame: &[u8]) {
        self.cfm.input(P1, frame, self.now);
        self.poll();
    }

    /// Receives CCMs for some seconds.
    fn keep_up(&mut self, seconds: u64, mut change: impl FnMut(&mut Ccm)) {
        for _ in 0..seconds {
            self.receive(&mut change);
            self.wait(1000);
        }
    }

    fn status(&self) -> PointStatus {
        self.cfm.status(P1).unwrap()
    }

    fn faults(&self) -> String {
        self.status().faults.to_string()
    }

    fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn take_sent(&mut self) -> Vec<Ccm> {
        std::mem::take(&mut self.sent).iter().map(|frame| Ccm::parse(frame).unwrap().0).collect()
    }
}

#[test]
fn ccms_have_exact_intervals() {
    let mut driven = Driven::new(settings("p1", 1));
    driven.wait(10_000);
    let sent = driven.take_sent();
    assert_eq!(sent.len(), 11);
    assert!(sent.iter().enumerate().all(|(n, ccm)| ccm.sequence == n as u32 + 1));
    // The sender hears nobody, which it announces once it has checked that.
    assert_eq!(sent.iter().map(|ccm| ccm.rdi).collect::<Vec<_>>(), [[false; 4].as_slice(), &[true; 7]].concat());
}

#[test]
fn tags_are_fixed_or_random() {
    let mut driven = Driven::new(PointSettings { vlan: CcmVlan::Fixed(5), pcp: 3, ..settings("p1", 1) });
    assert_eq!(driven.sent[0][12..16], [0x81, 0, 0x60, 5]);
    driven.change(|settings| settings.vlan = CcmVlan::Random);
    driven.wait(100_000);
    let vlans: BTreeSet<u16> =
        driven.sent[1..].iter().map(|frame| u16::from_be_bytes([frame[14], frame[15]]) & 0xfff).collect();
    assert!(vlans.len() > 90 && vlans.iter().all(|vlan| (1..4095).contains(vlan)));
}

#[test]
fn remote_points_are_limited() {
    let mut driven = Driven::new(settings("p1", 1));
    for mpid in 2..1000 {
        driven.receive(|ccm| ccm.mpid = mpid);
    }
    assert_eq!(driven.status().remotes.len(), REMOTES_MAX);
    assert_eq!(driven.status().statistics.rx_refused, 998 - REMOTES_MAX as u64);
    assert_eq!(driven.take_lines()[0], "p1: dropped CCM with MPID 258 from MAC 0a:00:00:00:00:01");
}

#[test]
fn traffic_takes_the_place_of_ccms_in_demand_mode() {
    let settings = PointSettings { extended: true, demand: true, interval_ms: 100, ..settings("p1", 1) };
    let mut driven = Driven::new(settings);
    assert_eq!(driven.status().next_check.since(driven.now), 1750);
    let mut packets = 0;
    let mut run = |driven: &mut Driven, ms: u64, data: u64| {
        for _ in 0..ms / 500 {
            packets += data;
            driven.cfm.traffic(P1, packets, driven.now);
            driven.wait(500);
        }
        driven.faults()
    };
    driven.receive(|ccm| ccm.interval_code = 3);
    assert_eq!(run(&mut driven, 9500, 1), "");
    // A CCM is necessary within 100 intervals.
    assert_eq!(run(&mut driven, 3000, 1), "recv");
    driven.receive(|ccm| ccm.interval_code = 3);
    assert_eq!(run(&mut driven, 3500, 1), "");
    assert_eq!(run(&mut driven, 4000, 0), "recv");
    // Several remote points end demand mode.
    driven.receive(|ccm| ccm.interval_code = 3);
    driven.receive(|ccm| (ccm.interval_code, ccm.extended_mpid) = (3, 3));
    assert_eq!(run(&mut driven, 4000, 1), "recv");
}

#[test]
fn a_remote_end_that_is_down_makes_the_port_dead() {
    let mut driven = Driven::new(PointSettings { extended: true, ..settings("p1", 1) });
    driven.keep_up(4, |ccm| ccm.is_down = true);
    let status = driven.status();
    assert!(!status.faults.any() && status.is_remote_down && !driven.cfm.is_live(P1));
    driven.keep_up(4, |_| {});
    assert!(driven.cfm.is_live(P1));
    assert_eq!(driven.lives, [true, false, true]);
}

#[test]
fn a_removed_point_is_gone() {
    let mut cfm = Cfm::new(1, START);
    cfm.configure((0..100).map(|n| (port(n), settings("p", 1))).collect(), START);
    assert_eq!(cfm.statuses().count(), 100);
    cfm.configure(BTreeMap::new(), START);
    cfm.poll(START);
    assert_eq!((cfm.statuses().count(), cfm.next_deadline()), (0, None));
}
