//! The state machine: all bridges of a switch that run a spanning tree protocol.
//!
//! Invariants: each bridge has one entry in the set of deadlines, if it has a deadline; nothing is due before
//! [`SpanningTree::next_deadline`].

use crate::flush::{Flushes, Scope};
use crate::rstp::Rstp;
use crate::settings::{BridgeSettings, Flavour, Settings};
use crate::status::{BridgeStatus, State};
use crate::stp::Stp;
use base::{BridgePort, Millis, PortNo};
use std::collections::{BTreeMap, BTreeSet};

/// An effect for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send a frame out of a port.
    Send {
        /// The port.
        port: BridgePort,
        /// The frame, without padding and frame check sequence.
        frame: Vec<u8>,
    },
    /// The state of a port has changed.
    State {
        /// The port.
        port: BridgePort,
        /// The new state.
        state: State,
    },
    /// Forget the addresses learned on a port.
    Flush(BridgePort),
    /// Forget the addresses learned on all ports of a bridge.
    FlushBridge(u32),
    /// Addresses learned on one port are now reached by another one.
    Move {
        /// The former root port.
        from: BridgePort,
        /// The new root port.
        to: BridgePort,
    },
    /// Write a line to the log.
    Log(String),
}

/// The effects of one bridge, in order.
#[derive(Debug)]
pub(crate) struct Outbox {
    bridge: u32,
    effects: Vec<Effect>,
    pub(crate) flushes: Flushes,
}

impl Outbox {
    pub(crate) fn new(bridge: u32) -> Self {
        Self { bridge, effects: Vec::new(), flushes: Flushes::default() }
    }

    fn port(&self, port: PortNo) -> BridgePort {
        BridgePort { bridge: self.bridge, port }
    }

    pub(crate) fn send(&mut self, port: PortNo, frame: Vec<u8>) {
        let port = self.port(port);
        self.effects.push(Effect::Send { port, frame });
    }

    pub(crate) fn state(&mut self, port: PortNo, state: State) {
        let port = self.port(port);
        self.effects.push(Effect::State { port, state });
    }

    pub(crate) fn shift(&mut self, from: PortNo, to: PortNo) {
        let (from, to) = (self.port(from), self.port(to));
        self.effects.push(Effect::Move { from, to });
    }

    pub(crate) fn log(&mut self, line: String) {
        self.effects.push(Effect::Log(line));
    }

    /// Appends the flushes that may happen now.
    fn flush(&mut self, now: Millis) {
        match self.flushes.take(now) {
            Some(Scope::Bridge) => self.effects.push(Effect::FlushBridge(self.bridge)),
            Some(Scope::Ports(ports)) => {
                let flushes: Vec<_> = ports.iter().map(|port| Effect::Flush(self.port(*port))).collect();
                self.effects.extend(flushes);
            }
            None => {}
        }
    }
}

/// The protocol of a bridge.
#[derive(Debug)]
enum Tree {
    Stp(Box<Stp>),
    Rstp(Box<Rstp>),
}

#[derive(Debug)]
struct Bridge {
    settings: BridgeSettings,
    tree: Tree,
    out: Outbox,
}

impl Bridge {
    fn new(number: u32, settings: BridgeSettings, now: Millis) -> Self {
        let tree = match settings.flavour {
            Flavour::Stp(parameters) => Tree::Stp(Box::new(Stp::new(&parameters, now))),
            Flavour::Rstp(parameters) => Tree::Rstp(Box::new(Rstp::new(&parameters))),
        };
        let mut bridge = Self { settings, tree, out: Outbox::new(number) };
        bridge.configure(now);
        bridge
    }

    /// Returns true if the protocol may continue with these settings.
    fn accepts(&self, settings: &BridgeSettings) -> bool {
        matches!((&self.tree, settings.flavour), (Tree::Stp(_), Flavour::Stp(_)) | (Tree::Rstp(_), Flavour::Rstp(_)))
    }

    fn configure(&mut self, now: Millis) {
        let BridgeSettings { name, ports, .. } = &self.settings;
        match (&mut self.tree, self.settings.flavour) {
            (Tree::Stp(stp), Flavour::Stp(parameters)) => stp.configure(name, &parameters, ports, &mut self.out, now),
            (Tree::Rstp(rstp), Flavour::Rstp(parameters)) => rstp.configure(&parameters, ports, &mut self.out, now),
            _ => {}
        }
        self.out.flush(now);
    }

    fn input(&mut self, port: PortNo, frame: &[u8], now: Millis) {
        match &mut self.tree {
            Tree::Stp(stp) => stp.input(port, frame, &mut self.out, now),
            Tree::Rstp(rstp) => rstp.input(port, frame, &mut self.out, now),
        }
        self.out.flush(now);
    }

    fn poll(&mut self, now: Millis) {
        match &mut self.tree {
            Tree::Stp(stp) => stp.poll(&mut self.out, now),
            Tree::Rstp(rstp) => rstp.poll(&mut self.out, now),
        }
        self.out.flush(now);
    }

    fn notify_topology_change(&mut self, now: Millis) {
        match &mut self.tree {
            Tree::Stp(stp) => stp.notify_topology_change(&mut self.out, now),
            Tree::Rstp(rstp) => rstp.notify_topology_change(&mut self.out, now),
        }
        self.out.flush(now);
    }

    fn deadline(&self) -> Option<Millis> {
        let tree = match &self.tree {
            Tree::Stp(stp) => stp.deadline(),
            Tree::Rstp(rstp) => rstp.deadline(),
        };
        [tree, self.out.flushes.deadline()].into_iter().flatten().min()
    }

    fn status(&self) -> BridgeStatus {
        match &self.tree {
            Tree::Stp(stp) => stp.status(self.out.bridge, &self.settings),
            Tree::Rstp(rstp) => rstp.status(self.out.bridge, &self.settings),
        }
    }
}

/// STP and RSTP on the bridges of a switch.
#[derive(Debug, Default)]
pub struct SpanningTree {
    bridges: BTreeMap<u32, Bridge>,
    deadlines: BTreeSet<(Millis, u32)>,
    /// Effects that the next poll returns.
    effects: Vec<Effect>,
}

impl SpanningTree {
    /// A machine without bridges.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `settings` the current ones. Bridges and ports that are in both the old and the new keep their state, unless
    /// the protocol of the bridge or the number of the port changes. The effects of the last change of a removed port are
    /// those of the caller: nothing is reported for it any more.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        self.bridges.retain(|number, _| settings.bridges.contains_key(number));
        self.deadlines.retain(|(_, number)| settings.bridges.contains_key(number));
        for (number, settings) in settings.bridges {
            match self.bridges.get_mut(&number) {
                Some(bridge) if bridge.settings == settings => {}
                Some(bridge) if bridge.accepts(&settings) => self.change(number, |bridge| {
                    bridge.settings = settings;
                    bridge.configure(now);
                }),
                _ => {
                    self.deadlines.retain(|(_, other)| *other != number);
                    self.bridges.insert(number, Bridge::new(number, settings, now));
                    self.change(number, |_| {});
                }
            }
        }
    }

    /// Takes a frame that a port received. Frames of other ports are ignored.
    pub fn input(&mut self, port: BridgePort, frame: &[u8], now: Millis) {
        self.change(port.bridge, |bridge| bridge.input(port.port, frame, now));
    }

    /// Handles a topology change that an administrator asks for. Returns false if the bridge is unknown.
    pub fn notify_topology_change(&mut self, number: u32, now: Millis) -> bool {
        self.change(number, |bridge| bridge.notify_topology_change(now));
        self.bridges.contains_key(&number)
    }

    /// Processes expired timers, and appends the effects since the last poll to `effects`.
    pub fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        while let Some(&(_, number)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            self.change(number, |bridge| bridge.poll(now));
        }
        effects.append(&mut self.effects);
    }

    /// The time at which [`SpanningTree::poll`] has work next, if any; pending effects are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.effects.is_empty() {
            return Some(Millis(0));
        }
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The state of all bridges, by number.
    pub fn status(&self) -> Vec<BridgeStatus> {
        self.bridges.values().map(Bridge::status).collect()
    }

    /// Changes a bridge, if it exists, moves its entry in the set of deadlines, and collects its effects.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Bridge)) {
        let Some(bridge) = self.bridges.get_mut(&number) else { return };
        let before = bridge.deadline();
        change(bridge);
        let after = bridge.deadline();
        self.effects.append(&mut bridge.out.effects);
        if let Some(before) = before {
            self.deadlines.remove(&(before, number));
        }
        if let Some(after) = after {
            self.deadlines.insert((after, number));
        }
    }
}
