//! The maintenance points of many ports.
//!
//! Invariant: each maintenance point has one timer in the wheel, which expires no later than its deadline.

use crate::point::{Column, Point, PointStatus};
use crate::settings::PointSettings;
use base::rng::Rng;
use base::{BridgePort, Millis};
use protocols::{Frame, PortState, Wheel};
use std::collections::BTreeMap;
use std::time::Duration;
use vlog::{Admission, RateLimit};

pub use vlog::Level;

/// Log lines of a maintenance point in a minute, and at once.
const LINES: (u32, u32) = (60, 60);

/// An effect for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send a frame out of a port.
    Send {
        /// The port.
        port: BridgePort,
        /// The frame, without frame check sequence.
        frame: Vec<u8>,
    },
    /// The contents of the status columns of a port have changed.
    Status(BridgePort),
    /// A port may or may not be used to forward traffic any more.
    Live {
        /// The port.
        port: BridgePort,
        /// Whether it may.
        live: bool,
    },
    /// Write a line to the log.
    Log {
        /// Its level.
        level: Level,
        /// The line.
        line: String,
    },
}

/// Continuity checks on the ports of a switch.
#[derive(Debug)]
pub struct Cfm {
    entries: BTreeMap<BridgePort, Entry>,
    wheel: Wheel<BridgePort>,
    /// Draws VLANs.
    rng: Rng,
    /// Effects that the next poll returns.
    effects: Vec<Effect>,
    /// The timers that have expired, kept for its memory.
    due: Vec<BridgePort>,
}

impl Default for Cfm {
    fn default() -> Self {
        Self::new(Rng::from_entropy().next_u64(), Millis(0))
    }
}

#[derive(Debug)]
struct Entry {
    point: Point,
    /// The last reported contents of the status columns.
    column: Option<Column>,
    /// The last reported decision.
    live: Option<bool>,
    limit: RateLimit,
}

impl Entry {
    fn new(point: Point) -> Self {
        Self { point, column: None, live: None, limit: RateLimit::new(LINES.0, LINES.1) }
    }

    /// Appends the effects of the last change.
    fn report(&mut self, port: BridgePort, now: Millis, effects: &mut Vec<Effect>) {
        for (level, line) in self.point.lines.drain(..) {
            let Admission::Pass { dropped } = self.limit.admit(Duration::from_millis(now.0)) else { continue };
            effects.extend(dropped.map(|dropped| Effect::Log { level, line: dropped.to_string() }));
            effects.push(Effect::Log { level, line });
        }
        let live = self.point.is_live();
        if self.live.replace(live) != Some(live) {
            effects.push(Effect::Live { port, live });
        }
        if self.point.note_column(&mut self.column) {
            effects.push(Effect::Status(port));
        }
    }
}

impl Cfm {
    /// A machine without maintenance points. The seed determines random VLANs.
    pub fn new(seed: u64, now: Millis) -> Self {
        Self {
            entries: BTreeMap::new(),
            wheel: Wheel::new(now),
            rng: Rng::seeded(seed),
            effects: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Makes `settings` the current ones: ports that are not in it lose their maintenance points, and others keep or get
    /// one.
    pub fn configure(&mut self, settings: BTreeMap<BridgePort, PointSettings>, now: Millis) {
        let gone: Vec<_> = self.entries.keys().filter(|port| !settings.contains_key(port)).copied().collect();
        gone.into_iter().for_each(|port| self.remove(port));
        settings.into_iter().for_each(|(port, settings)| self.set(port, settings, now));
    }

    /// Gives a port a maintenance point with these settings, or changes those of its point.
    pub fn set(&mut self, port: BridgePort, settings: PointSettings, now: Millis) {
        match self.entries.get_mut(&port) {
            Some(entry) if entry.point.settings == settings => return,
            Some(entry) => entry.point.configure(settings, now),
            None => _ = self.entries.insert(port, Entry::new(Point::new(settings, now))),
        }
        self.settle(port, now);
    }

    /// Ends the maintenance point of a port, if it has one.
    pub fn remove(&mut self, port: BridgePort) {
        if self.entries.remove(&port).is_some() {
            self.wheel.cancel(&port);
        }
    }

    /// Takes a frame that a port received. Frames of ports without a maintenance point are ignored.
    pub fn input(&mut self, port: BridgePort, frame: &[u8], now: Millis) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        entry.point.receive(frame, now);
        self.settle(port, now);
    }

    /// The ports in demand mode, whose received traffic is to be reported ([`Cfm::traffic`]) about twice a second.
    pub fn traffic_ports(&self) -> impl Iterator<Item = BridgePort> {
        self.entries.iter().filter(|(_, entry)| entry.point.settings.demand).map(|(port, _)| *port)
    }

    /// Takes the number of packets that a port has received so far, CCMs included.
    pub fn traffic(&mut self, port: BridgePort, packets: u64) {
        if let Some(entry) = self.entries.get_mut(&port) {
            entry.point.traffic(packets);
        }
    }

    /// Forces a fault of a port's maintenance point or its absence, or ends that with `None`.
    pub fn force(&mut self, port: BridgePort, fault: Option<bool>, now: Millis) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        entry.point.force(fault);
        self.settle(port, now);
    }

    /// Collects the effects of a change of a maintenance point, and moves its timer forward, never back.
    fn settle(&mut self, port: BridgePort, now: Millis) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        entry.report(port, now, &mut self.effects);
        let deadline = entry.point.deadline();
        if self.wheel.deadline(&port).is_none_or(|set| deadline < set) {
            self.wheel.set(port, deadline);
        }
    }

    /// Processes expired timers, and returns effects for the caller to carry out.
    pub fn poll(&mut self, now: Millis) -> Vec<Effect> {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now, &mut due);
        for port in due.drain(..) {
            let Some(entry) = self.entries.get_mut(&port) else { continue };
            if entry.point.deadline() <= now {
                let frame = entry.point.poll(now, &mut self.rng);
                self.effects.extend(frame.map(|frame| Effect::Send { port, frame }));
            }
            self.settle(port, now);
        }
        self.due = due;
        std::mem::take(&mut self.effects)
    }

    /// The time at which [`Cfm::poll`] may have work next, if any; pending effects are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.effects.is_empty() {
            return Some(Millis(0));
        }
        self.wheel.next()
    }

    /// The state of a port's maintenance point.
    pub fn status(&self, port: BridgePort) -> Option<PointStatus> {
        self.entries.get(&port).map(|entry| entry.point.status())
    }

    /// The states of all maintenance points, by port.
    pub fn statuses(&self) -> impl Iterator<Item = (BridgePort, PointStatus)> {
        self.entries.iter().map(|(port, entry)| (*port, entry.point.status()))
    }

    /// Returns false if a port has a maintenance point with a fault, or whose remote end is operationally down.
    pub fn is_live(&self, port: BridgePort) -> bool {
        self.entries.get(&port).is_none_or(|entry| entry.point.is_live())
    }
}

impl protocols::Machine for Cfm {
    fn input(&mut self, frame: &Frame, now: Millis) {
        Cfm::input(self, frame.source.port, &frame.bytes, now);
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<protocols::Effect>) {
        effects.extend(Cfm::poll(self, now).into_iter().map(|effect| match effect {
            Effect::Send { port, frame } => protocols::Effect::Send { port, frame },
            Effect::Status(_) => protocols::Effect::Status,
            Effect::Live { port, live } => {
                protocols::Effect::Port { port, state: PortState { live, ..PortState::default() } }
            }
            Effect::Log { level: Level::Warn, line } => protocols::Effect::Warn(line),
            Effect::Log { line, .. } => protocols::Effect::Log(line),
        }));
    }

    fn next_deadline(&self) -> Option<Millis> {
        Cfm::next_deadline(self)
    }
}

#[cfg(test)]
mod tests;
