//! The maintenance points of many ports.

use crate::point::{Point, PointStatus};
use crate::settings::PointSettings;
use base::rng::Rng;
use base::{BridgePort, Millis};
use protocols::{Effect, Frame, PerPort, PortMachine};
use std::collections::BTreeMap;

/// Continuity checks on the ports of a switch.
#[derive(Debug)]
pub struct Cfm {
    ports: PerPort<Point>,
}

impl Default for Cfm {
    fn default() -> Self {
        Self::new(Rng::from_entropy().next_u64(), Millis(0))
    }
}

impl Cfm {
    /// A machine without maintenance points. The seed determines random VLANs.
    pub fn new(seed: u64, now: Millis) -> Self {
        Self { ports: PerPort::new(seed, now) }
    }

    /// Makes `settings` the current ones: ports that are not in it lose their maintenance points, and others keep or get
    /// one.
    pub fn configure(&mut self, settings: BTreeMap<BridgePort, PointSettings>, now: Millis) {
        let gone: Vec<_> =
            self.ports.iter().map(|(port, _)| port).filter(|port| !settings.contains_key(port)).collect();
        gone.into_iter().for_each(|port| self.remove(port));
        settings.into_iter().for_each(|(port, settings)| self.set(port, settings, now));
    }

    /// Gives a port a maintenance point with these settings, or changes those of its point.
    pub fn set(&mut self, port: BridgePort, settings: PointSettings, now: Millis) {
        match self.ports.get(port) {
            Some(point) if point.settings == settings => {}
            Some(_) => self.ports.change(port, now, |point, _| point.configure(settings, now)),
            None => self.ports.insert(port, Point::new(settings, now), now),
        }
    }

    /// Ends the maintenance point of a port, if it has one.
    pub fn remove(&mut self, port: BridgePort) {
        let _ = self.ports.remove(port);
    }

    /// Takes a frame that a port received. Frames of ports without a maintenance point are ignored.
    pub fn input(&mut self, port: BridgePort, frame: &[u8], now: Millis) {
        self.ports.change(port, now, |point, _| point.receive(frame, now));
    }

    /// The ports in demand mode, whose received traffic is to be reported ([`Cfm::traffic`]) about twice a second.
    pub fn traffic_ports(&self) -> impl Iterator<Item = BridgePort> {
        self.ports.iter().filter(|(_, point)| point.settings.demand).map(|(port, _)| port)
    }

    /// Takes the number of packets that a port has received so far, CCMs included.
    pub fn traffic(&mut self, port: BridgePort, packets: u64, now: Millis) {
        self.ports.change(port, now, |point, _| point.traffic(packets));
    }

    /// Forces a fault of a port's maintenance point or its absence, or ends that with `None`.
    pub fn force(&mut self, port: BridgePort, fault: Option<bool>, now: Millis) {
        self.ports.change(port, now, |point, _| point.force(fault));
    }

    /// Processes expired timers, and returns effects for the caller to carry out.
    pub fn poll(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.ports.poll(now, &mut effects);
        effects
    }

    /// The time at which [`Cfm::poll`] may have work next, if any; pending effects are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.ports.next_deadline()
    }

    /// The state of a port's maintenance point.
    pub fn status(&self, port: BridgePort) -> Option<PointStatus> {
        self.ports.get(port).map(Point::status)
    }

    /// The states of all maintenance points, by port.
    pub fn statuses(&self) -> impl Iterator<Item = (BridgePort, PointStatus)> {
        self.ports.iter().map(|(port, point)| (port, point.status()))
    }

    /// Returns false if a port has a maintenance point with a fault, or whose remote end is operationally down.
    pub fn is_live(&self, port: BridgePort) -> bool {
        self.ports.get(port).is_none_or(Point::is_live)
    }
}

impl protocols::Machine for Cfm {
    fn input(&mut self, frame: &Frame, now: Millis) {
        Cfm::input(self, frame.source.port, &frame.bytes, now);
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
