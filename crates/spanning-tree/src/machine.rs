//! The state machine: all bridges of a switch that run a spanning tree protocol.
//!
//! Invariants: each bridge has one entry in the set of deadlines, if it has a deadline; nothing is due before
//! [`SpanningTree::next_deadline`].

use crate::flush::{Flushes, Scope};
use crate::rstp::Rstp;
use crate::settings::{BridgeSettings, Flavour, Settings};
use crate::status::{BridgeStatus, PortStatus, Protocol, State};
use crate::stp::Stp;
use base::{BridgePort, Millis, PortNo};
use protocols::{PortState, TreeState};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};

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
    /// The protocol no longer runs on a port: it learns and forwards.
    Release(BridgePort),
    /// What [`SpanningTree::status`] returns has changed, apart from times and counters.
    Status,
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

    /// Replaces an earlier state of the port, unless frames were sent since.
    pub(crate) fn state(&mut self, port: PortNo, state: State) {
        let port = self.port(port);
        let sent = self.effects.iter().rposition(|effect| matches!(effect, Effect::Send { .. }));
        let is_earlier = |effect: &Effect| matches!(effect, Effect::State { port: of, .. } if *of == port);
        let earlier = self.effects.iter().skip(sent.map_or(0, |at| at + 1)).position(is_earlier);
        if let Some(earlier) = earlier {
            self.effects.remove(sent.map_or(0, |at| at + 1) + earlier);
        }
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

    fn port_status(&self, number: PortNo) -> Option<PortStatus> {
        let name = &self.settings.ports.get(&number)?.name;
        match &self.tree {
            Tree::Stp(stp) => stp.port_status(number, name),
            Tree::Rstp(rstp) => rstp.port_status(number, name),
        }
    }

    fn protocol(&self) -> Protocol {
        match &self.tree {
            Tree::Stp(_) => Protocol::Stp,
            Tree::Rstp(_) => Protocol::Rstp,
        }
    }

    /// A hash of the status, apart from times and counters.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.tree {
            Tree::Stp(stp) => stp.hash_status(&mut hasher),
            Tree::Rstp(rstp) => rstp.hash_status(&mut hasher),
        }
        hasher.finish()
    }

    /// Returns true if the bridge has reported states of this port.
    fn runs_on(&self, port: PortNo) -> bool {
        self.settings.ports.contains_key(&port)
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
    /// the protocol of the bridge or the number of the port changes. Other ports are released.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        for (number, bridge) in &self.bridges {
            let new = settings.bridges.get(number);
            let stays = |port: &PortNo| new.is_some_and(|new| new.ports.contains_key(port));
            let released = bridge.settings.ports.keys().filter(|port| !stays(port));
            self.effects.extend(released.map(|port| Effect::Release(BridgePort { bridge: *number, port: *port })));
        }
        let before = self.bridges.len();
        self.bridges.retain(|number, _| settings.bridges.contains_key(number));
        self.deadlines.retain(|(_, number)| settings.bridges.contains_key(number));
        if self.bridges.len() != before {
            self.effects.push(Effect::Status);
        }
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
                    self.effects.push(Effect::Status);
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

    /// The state of a bridge.
    pub fn bridge_status(&self, number: u32) -> Option<BridgeStatus> {
        self.bridges.get(&number).map(Bridge::status)
    }

    /// The protocol of a bridge and the state of a port of it, if the protocol runs on the port.
    pub fn port_status(&self, port: BridgePort) -> Option<(Protocol, PortStatus)> {
        let bridge = self.bridges.get(&port.bridge)?;
        Some((bridge.protocol(), bridge.port_status(port.port)?))
    }

    /// Changes a bridge, if it exists, moves its entry in the set of deadlines, and collects its effects.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Bridge)) {
        let Some(bridge) = self.bridges.get_mut(&number) else { return };
        let before = bridge.deadline();
        let fingerprint = bridge.fingerprint();
        change(bridge);
        let after = bridge.deadline();
        self.effects.append(&mut bridge.out.effects);
        if bridge.fingerprint() != fingerprint {
            self.effects.push(Effect::Status);
        }
        if let Some(before) = before {
            self.deadlines.remove(&(before, number));
        }
        if let Some(after) = after {
            self.deadlines.insert((after, number));
        }
    }
}

impl protocols::Machine for SpanningTree {
    fn input(&mut self, frame: &protocols::Frame, now: Millis) {
        SpanningTree::input(self, frame.source.port, &frame.bytes, now);
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<protocols::Effect>) {
        let mut wanted = Vec::new();
        SpanningTree::poll(self, now, &mut wanted);
        for effect in wanted {
            self.convert(effect, effects);
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        SpanningTree::next_deadline(self)
    }
}

impl SpanningTree {
    /// Appends the engine's effects for an effect.
    fn convert(&self, effect: Effect, effects: &mut Vec<protocols::Effect>) {
        match effect {
            Effect::Send { port, frame } => effects.push(protocols::Effect::Send { port, frame }),
            Effect::State { port, state } => {
                // A port of a bridge that was replaced meanwhile may have been released.
                if !self.bridges.get(&port.bridge).is_some_and(|bridge| bridge.runs_on(port.port)) {
                    return;
                }
                let (learning, forwarding) = (state.learns(), state.forwards());
                effects.push(protocols::Effect::Port { port, state: PortState { learning, forwarding, live: true } });
                effects.push(protocols::Effect::Tree { port, state: tree_state(state) });
            }
            Effect::Flush(port) => effects.push(protocols::Effect::Flush(port)),
            Effect::FlushBridge(number) => {
                let Some(bridge) = self.bridges.get(&number) else { return };
                let ports = bridge.settings.ports.keys().chain(&bridge.settings.bystanders);
                let flush = |port: &PortNo| BridgePort { bridge: number, port: *port };
                effects.extend(ports.map(|port| protocols::Effect::Flush(flush(port))));
            }
            Effect::Move { from, to } => effects.push(protocols::Effect::Move { from, to }),
            Effect::Release(port) => {
                effects.push(protocols::Effect::Port { port, state: PortState::default() });
                effects.push(protocols::Effect::Tree { port, state: TreeState::Disabled });
            }
            Effect::Status => effects.push(protocols::Effect::Status),
            Effect::Log(line) => effects.push(protocols::Effect::Log(line)),
        }
    }
}

/// The state of a port as OpenFlow has it, which calls discarding ports of RSTP listening.
fn tree_state(state: State) -> TreeState {
    match state {
        State::Disabled => TreeState::Disabled,
        State::Blocking => TreeState::Blocked,
        State::Listening | State::Discarding => TreeState::Listening,
        State::Learning => TreeState::Learning,
        State::Forwarding => TreeState::Forwarding,
    }
}
