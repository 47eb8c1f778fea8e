//! The sessions of many ports.
//!
//! Invariants: each session has one timer in the wheel, which expires no later than the session's deadline; between two
//! polls a session has at most one [`Effect::Status`] pending for each change.

use crate::packet::{self, SOURCE_PORT_MIN};
use crate::session::{Column, Session, SessionStatus};
use crate::settings::SessionSettings;
use base::rng::Rng;
use base::{BridgePort, Millis};
use protocols::{Frame, PortState, Wheel};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vlog::{Admission, RateLimit};

pub use vlog::Level;

/// Log lines of a session in a minute, and at once.
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
    /// The contents of the status column of a port have changed.
    Status(BridgePort),
    /// A port may or may not be used to forward traffic any more.
    Forwarding {
        /// The port.
        port: BridgePort,
        /// Whether it may.
        forwarding: bool,
    },
    /// Write a line to the log.
    Log {
        /// Its level.
        level: Level,
        /// The line.
        line: String,
    },
}

/// BFD on the ports of a switch.
#[derive(Debug)]
pub struct Bfd {
    entries: BTreeMap<BridgePort, Entry>,
    discriminators: BTreeSet<u32>,
    wheel: Wheel<BridgePort>,
    rng: Rng,
    /// How many sessions there have been.
    sessions: u16,
    /// Effects that the next poll returns.
    effects: Vec<Effect>,
    /// The timers that have expired, kept for its memory.
    due: Vec<BridgePort>,
}

impl Default for Bfd {
    fn default() -> Self {
        Self::new(Rng::from_entropy().next_u64(), Millis(0))
    }
}

#[derive(Debug)]
struct Entry {
    session: Session,
    /// The last reported contents of the status column.
    column: Option<Column>,
    limit: RateLimit,
}

impl Entry {
    fn new(session: Session) -> Self {
        Self { session, column: None, limit: RateLimit::new(LINES.0, LINES.1) }
    }

    /// Appends the effects of the last change.
    fn report(&mut self, port: BridgePort, now: Millis, effects: &mut Vec<Effect>) {
        for (level, line) in self.session.lines.drain(..) {
            let Admission::Pass { dropped } = self.limit.admit(Duration::from_millis(now.0)) else { continue };
            effects.extend(dropped.map(|dropped| Effect::Log { level, line: dropped.to_string() }));
            effects.push(Effect::Log { level, line });
        }
        let column = self.session.column();
        if self.column.map(|column| column.forwarding) != Some(column.forwarding) {
            effects.push(Effect::Forwarding { port, forwarding: column.forwarding });
        }
        if self.column.replace(column) != Some(column) {
            effects.push(Effect::Status(port));
        }
    }
}

impl Bfd {
    /// A machine without sessions. The seed determines discriminators and jitter.
    pub fn new(seed: u64, now: Millis) -> Self {
        Self {
            entries: BTreeMap::new(),
            discriminators: BTreeSet::new(),
            wheel: Wheel::new(now),
            rng: Rng::seeded(seed),
            sessions: 0,
            effects: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Makes `settings` the current ones: ports that are not in it lose their sessions, and others keep or get one.
    pub fn configure(&mut self, settings: BTreeMap<BridgePort, SessionSettings>, now: Millis) {
        let gone: Vec<_> = self.entries.keys().filter(|port| !settings.contains_key(port)).copied().collect();
        gone.into_iter().for_each(|port| self.remove(port));
        settings.into_iter().for_each(|(port, settings)| self.set(port, settings, now));
    }

    /// Gives a port a session with these settings, or changes those of its session.
    pub fn set(&mut self, port: BridgePort, settings: SessionSettings, now: Millis) {
        match self.entries.get_mut(&port) {
            Some(entry) if entry.session.settings == settings => return,
            Some(entry) => entry.session.configure(settings, now),
            None => {
                let (discriminator, udp_src) = (self.new_discriminator(), self.new_source_port());
                let session = Session::new(settings, discriminator, udp_src, now);
                self.entries.insert(port, Entry::new(session));
            }
        }
        self.settle(port, now);
    }

    /// Ends the session of a port, if it has one.
    pub fn remove(&mut self, port: BridgePort) {
        if let Some(entry) = self.entries.remove(&port) {
            self.discriminators.remove(&entry.session.discriminator());
            self.wheel.cancel(&port);
        }
    }

    /// A random number that is not 0 and of no other session (RFC 5880 section 6.8.1).
    fn new_discriminator(&mut self) -> u32 {
        loop {
            let discriminator = self.rng.next_u64() as u32;
            if discriminator != 0 && self.discriminators.insert(discriminator) {
                return discriminator;
            }
        }
    }

    fn new_source_port(&mut self) -> u16 {
        let count = u16::MAX - SOURCE_PORT_MIN + 1;
        let port = SOURCE_PORT_MIN + self.sessions % count;
        self.sessions = (self.sessions + 1) % count;
        port
    }

    /// Takes a frame that a port received. Frames of ports without a session, and frames without a control packet, are
    /// ignored.
    pub fn input(&mut self, port: BridgePort, frame: &[u8], now: Millis) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        let Some(payload) = packet::payload(frame) else { return };
        entry.session.receive(payload, now, &mut self.rng);
        self.settle(port, now);
    }

    /// The ports whose sessions need reports of received traffic ([`Bfd::traffic`]), to be made about twice a second.
    pub fn traffic_ports(&self) -> impl Iterator<Item = BridgePort> {
        self.entries.iter().filter(|(_, entry)| entry.session.wants_traffic()).map(|(port, _)| *port)
    }

    /// Takes the number of packets that a port has received so far, control packets included.
    pub fn traffic(&mut self, port: BridgePort, packets: u64, now: Millis) {
        let Some(entry) = self.entries.get_mut(&port).filter(|entry| entry.session.wants_traffic()) else { return };
        entry.session.traffic(packets, now);
        self.settle(port, now);
    }

    /// Forces the forwarding state of a port's session, or ends that with `None`.
    pub fn force(&mut self, port: BridgePort, forwarding: Option<bool>, now: Millis) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        entry.session.force(forwarding, now);
        self.settle(port, now);
    }

    /// Collects the effects of a change of a session, and moves its timer forward. A timer is not moved back: it expires
    /// for nothing instead, which is cheaper as each packet moves the detection time back.
    fn settle(&mut self, port: BridgePort, now: Millis) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        entry.report(port, now, &mut self.effects);
        let deadline = entry.session.deadline();
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
            if entry.session.deadline() <= now {
                let frame = entry.session.poll(now, &mut self.rng);
                self.effects.extend(frame.map(|frame| Effect::Send { port, frame }));
            }
            self.settle(port, now);
        }
        self.due = due;
        std::mem::take(&mut self.effects)
    }

    /// The time at which [`Bfd::poll`] may have work next, if any; pending effects are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.effects.is_empty() {
            return Some(Millis(0));
        }
        self.wheel.next()
    }

    /// The state of a port's session.
    pub fn status(&self, port: BridgePort) -> Option<SessionStatus> {
        self.entries.get(&port).map(|entry| entry.session.status())
    }

    /// The states of all sessions, by port.
    pub fn statuses(&self) -> impl Iterator<Item = (BridgePort, SessionStatus)> {
        self.entries.iter().map(|(port, entry)| (*port, entry.session.status()))
    }

    /// Returns true if the packets of a port's session are to be marked as OAM in tunnel headers that have such a mark.
    pub fn is_oam(&self, port: BridgePort) -> bool {
        self.entries.get(&port).is_some_and(|entry| entry.session.settings.oam)
    }

    /// Returns false if a port has a session that advises against forwarding traffic through it.
    pub fn is_forwarding(&self, port: BridgePort) -> bool {
        self.entries.get(&port).is_none_or(|entry| entry.session.is_forwarding())
    }
}

impl protocols::Machine for Bfd {
    fn input(&mut self, frame: &Frame, now: Millis) {
        Bfd::input(self, frame.source.port, &frame.bytes, now);
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<protocols::Effect>) {
        effects.extend(Bfd::poll(self, now).into_iter().map(|effect| match effect {
            Effect::Send { port, frame } => protocols::Effect::Send { port, frame },
            Effect::Status(_) => protocols::Effect::Status,
            Effect::Forwarding { port, forwarding } => {
                protocols::Effect::Port { port, state: PortState { live: forwarding, ..PortState::default() } }
            }
            Effect::Log { level: Level::Warn, line } => protocols::Effect::Warn(line),
            Effect::Log { line, .. } => protocols::Effect::Log(line),
        }));
    }

    fn next_deadline(&self) -> Option<Millis> {
        Bfd::next_deadline(self)
    }
}

#[cfg(test)]
mod tests;
