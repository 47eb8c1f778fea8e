//! The sessions of many ports.
//!
//! Invariant: no two sessions have the same discriminator.

use crate::packet::{self, SOURCE_PORT_MIN};
use crate::session::{Session, SessionStatus};
use crate::settings::SessionSettings;
use base::rng::Rng;
use base::{BridgePort, Millis};
use protocols::{Effect, Frame, PerPort};
use std::collections::{BTreeMap, BTreeSet};

/// BFD on the ports of a switch.
#[derive(Debug)]
pub struct Bfd {
    ports: PerPort<Session>,
    discriminators: BTreeSet<u32>,
    /// How many sessions there have been.
    sessions: u16,
}

impl Default for Bfd {
    fn default() -> Self {
        Self::new(Rng::from_entropy().next_u64(), Millis(0))
    }
}

impl Bfd {
    /// A machine without sessions. The seed determines discriminators and jitter.
    pub fn new(seed: u64, now: Millis) -> Self {
        Self { ports: PerPort::new(seed, now), discriminators: BTreeSet::new(), sessions: 0 }
    }

    /// Makes `settings` the current ones: ports that are not in it lose their sessions, and others keep or get one.
    pub fn configure(&mut self, settings: BTreeMap<BridgePort, SessionSettings>, now: Millis) {
        let gone: Vec<_> =
            self.ports.iter().map(|(port, _)| port).filter(|port| !settings.contains_key(port)).collect();
        gone.into_iter().for_each(|port| self.remove(port));
        settings.into_iter().for_each(|(port, settings)| self.set(port, settings, now));
    }

    /// Gives a port a session with these settings, or changes those of its session.
    pub fn set(&mut self, port: BridgePort, settings: SessionSettings, now: Millis) {
        match self.ports.get(port) {
            Some(session) if session.settings == settings => {}
            Some(_) => self.ports.change(port, now, |session, _| session.configure(settings, now)),
            None => {
                let (discriminator, udp_src) = (self.new_discriminator(), self.new_source_port());
                self.ports.insert(port, Session::new(settings, discriminator, udp_src, now), now);
            }
        }
    }

    /// Ends the session of a port, if it has one.
    pub fn remove(&mut self, port: BridgePort) {
        if let Some(session) = self.ports.remove(port) {
            self.discriminators.remove(&session.discriminator());
        }
    }

    /// A random number that is not 0 and of no other session (RFC 5880 section 6.8.1).
    fn new_discriminator(&mut self) -> u32 {
        loop {
            let discriminator = self.ports.rng().next_u64() as u32;
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
        if let Some(payload) = packet::payload(frame) {
            self.ports.change(port, now, |session, rng| session.receive(payload, now, rng));
        }
    }

    /// The ports whose sessions need reports of received traffic ([`Bfd::traffic`]), to be made about twice a second.
    pub fn traffic_ports(&self) -> impl Iterator<Item = BridgePort> {
        self.ports.iter().filter(|(_, session)| session.wants_traffic()).map(|(port, _)| port)
    }

    /// Takes the number of packets that a port has received so far, control packets included.
    pub fn traffic(&mut self, port: BridgePort, packets: u64, now: Millis) {
        if self.ports.get(port).is_some_and(Session::wants_traffic) {
            self.ports.change(port, now, |session, _| session.traffic(packets, now));
        }
    }

    /// Forces the forwarding state of a port's session, or ends that with `None`.
    pub fn force(&mut self, port: BridgePort, forwarding: Option<bool>, now: Millis) {
        self.ports.change(port, now, |session, _| session.force(forwarding, now));
    }

    /// Processes expired timers, and returns effects for the caller to carry out.
    pub fn poll(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.ports.poll(now, &mut effects);
        effects
    }

    /// The time at which [`Bfd::poll`] may have work next, if any; pending effects are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.ports.next_deadline()
    }

    /// The state of a port's session.
    pub fn status(&self, port: BridgePort) -> Option<SessionStatus> {
        self.ports.get(port).map(Session::status)
    }

    /// The states of all sessions, by port.
    pub fn statuses(&self) -> impl Iterator<Item = (BridgePort, SessionStatus)> {
        self.ports.iter().map(|(port, session)| (port, session.status()))
    }

    /// Returns true if the packets of a port's session are to be marked as OAM in tunnel headers that have such a mark.
    pub fn is_oam(&self, port: BridgePort) -> bool {
        self.ports.get(port).is_some_and(|session| session.settings.oam)
    }

    /// Returns false if a port has a session that advises against forwarding traffic through it.
    pub fn is_forwarding(&self, port: BridgePort) -> bool {
        self.ports.get(port).is_none_or(Session::is_forwarding)
    }
}

impl protocols::Machine for Bfd {
    fn input(&mut self, frame: &Frame, now: Millis) {
        Bfd::input(self, frame.source.port, &frame.bytes, now);
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        self.ports.poll(now, effects);
    }

    fn next_deadline(&self) -> Option<Millis> {
        self.ports.next_deadline()
    }
}

#[cfg(test)]
mod tests;
