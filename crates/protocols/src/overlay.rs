//! The overlay: the protocols that are enabled on each port and their decisions about it, published beside the
//! network snapshot for translation.
//!
//! A port has an entry while a protocol is enabled on it. A translation that reads the state of an entry depends on
//! that port's state; one that finds no entry, or one whose protocols never set states, depends on nothing, so that
//! such ports share translations as without protocols. Two kinds of change follow, which the caller of [`Overlay`]
//! reports after making them: if an entry is added, removed or gets other protocols ([`Overlay::enable`]), everything
//! that depends on the bridge of the port is invalid; if only the state of an entry changes ([`Overlay::set_state`]),
//! only translations that depend on the state of that port are.
//!
//! Invariant: a translation reads one snapshot of the overlay throughout ([`Overlay::load`]).

use crate::number::{Protocol, ProtocolSet};
use arc_swap::ArcSwap;
use base::{BridgePort, MacAddr};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Which of its frames a protocol receives from a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Accepts {
    /// Only frames to this address; `None` for any address that the protocol uses.
    pub destination: Option<MacAddr>,
    /// Only packets to this IPv4 address.
    pub ip_destination: Option<Ipv4Addr>,
    /// Only packets without a tunnel key, or with key 0.
    pub without_key: bool,
}

impl Accepts {
    /// All frames of the protocol.
    pub const ALL: Self = Self { destination: None, ip_destination: None, without_key: false };
}

/// The actions that protocols permit on a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortState {
    /// Source addresses of received frames are learned.
    pub learning: bool,
    /// The port receives and sends frames; otherwise only frames of protocols.
    pub forwarding: bool,
    /// Groups that watch the port consider it live.
    pub live: bool,
}

impl Default for PortState {
    fn default() -> Self {
        Self { learning: true, forwarding: true, live: true }
    }
}

impl PortState {
    /// The actions that both states permit.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            learning: self.learning && other.learning,
            forwarding: self.forwarding && other.forwarding,
            live: self.live && other.live,
        }
    }
}

/// The entry of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortOverlay {
    /// The protocols that are enabled.
    pub enabled: ProtocolSet,
    /// The actions that all of them permit.
    pub state: PortState,
    /// Whether the state may change as long as these protocols are enabled.
    pub is_decided: bool,
    /// Restrictions of the frames that a protocol receives, unless it receives all of them.
    accepts: Vec<(Protocol, Accepts)>,
    /// The state set by each protocol, unless it permits everything.
    decisions: Vec<(Protocol, PortState)>,
}

impl PortOverlay {
    /// Which frames of an enabled protocol are punted to it.
    pub fn accepts(&self, protocol: Protocol) -> Accepts {
        self.accepts.iter().find(|(of, _)| *of == protocol).map_or(Accepts::ALL, |(_, accepts)| *accepts)
    }

    /// Enables a protocol, or disables it.
    fn set(&mut self, protocol: Protocol, accepts: Option<&Accepts>) {
        self.accepts.retain(|(of, _)| *of != protocol);
        match accepts {
            Some(accepts) => {
                self.enabled = self.enabled.with(protocol);
                if *accepts != Accepts::ALL {
                    self.accepts.push((protocol, *accepts));
                }
            }
            None => {
                self.enabled = self.enabled.without(protocol);
                self.decide(protocol, PortState::default());
            }
        }
        self.is_decided = self.enabled.decides();
    }

    fn decide(&mut self, protocol: Protocol, state: PortState) {
        self.decisions.retain(|(by, _)| *by != protocol);
        if state != PortState::default() {
            self.decisions.push((protocol, state));
        }
        self.state = self.decisions.iter().fold(PortState::default(), |all, (_, one)| all.and(*one));
    }
}

/// The entries, by port.
pub type Ports = HashMap<BridgePort, PortOverlay, RandomState>;

/// The overlay of a switch.
#[derive(Debug, Default)]
pub struct Overlay {
    ports: ArcSwap<Ports>,
    /// Held while a new map is built.
    changing: Mutex<()>,
}

impl Overlay {
    /// The entries as they are now.
    pub fn load(&self) -> Arc<Ports> {
        self.ports.load_full()
    }

    /// Enables `protocol` on exactly these ports. Returns the ports whose entries were added, removed, got other
    /// protocols or accept other frames.
    pub fn enable(&self, protocol: Protocol, on: &BTreeMap<BridgePort, Accepts>) -> BTreeSet<BridgePort> {
        let _changing = self.changing.lock();
        let mut ports = Ports::clone(&self.ports.load());
        let is_enabled = |entry: &PortOverlay| entry.enabled.contains(protocol);
        let ended = |(port, entry): &(&BridgePort, &PortOverlay)| is_enabled(entry) && !on.contains_key(*port);
        let mut changed: BTreeSet<BridgePort> = ports.iter().filter(ended).map(|(port, _)| *port).collect();
        let is_as_before =
            |entry: &PortOverlay, accepts: &Accepts| is_enabled(entry) && entry.accepts(protocol) == *accepts;
        let differs = |(port, accepts): &(&BridgePort, &Accepts)| {
            !ports.get(*port).is_some_and(|entry| is_as_before(entry, accepts))
        };
        changed.extend(on.iter().filter(differs).map(|(port, _)| *port));
        for port in &changed {
            let entry = ports.entry(*port).or_default();
            entry.set(protocol, on.get(port));
            if entry.enabled.is_empty() {
                ports.remove(port);
            }
        }
        if !changed.is_empty() {
            self.ports.store(Arc::new(ports));
        }
        changed
    }

    /// Sets the states of ports by `protocol`, which must be one that decides; ports on which it is not enabled are
    /// skipped. Returns the ports whose combined state over all protocols changed.
    pub fn set_state(&self, protocol: Protocol, states: &[(BridgePort, PortState)]) -> BTreeSet<BridgePort> {
        debug_assert!(protocol.decides(), "{protocol} decides about ports");
        let _changing = self.changing.lock();
        let old = self.ports.load();
        let mut ports = Ports::clone(&old);
        for (port, state) in states {
            if let Some(entry) = ports.get_mut(port).filter(|entry| entry.enabled.contains(protocol)) {
                entry.decide(protocol, *state);
            }
        }
        let is_changed = |port: &BridgePort| ports.get(port).map(|new| new.state) != old.get(port).map(|old| old.state);
        let changed = states.iter().map(|(port, _)| *port).filter(is_changed).collect();
        self.ports.store(Arc::new(ports));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;

    const A: Protocol = Protocol::new(12).unwrap();
    const B: Protocol = Protocol::new(11).unwrap();
    const BLOCKED: PortState = PortState { learning: false, forwarding: false, live: true };
    const DEAD: PortState = PortState { learning: true, forwarding: true, live: false };

    const fn port(no: u32) -> BridgePort {
        BridgePort { bridge: 1, port: PortNo(no) }
    }

    fn set(ports: &[u32]) -> BTreeSet<BridgePort> {
        ports.iter().map(|no| port(*no)).collect()
    }

    fn on(ports: &[u32]) -> BTreeMap<BridgePort, Accepts> {
        ports.iter().map(|no| (port(*no), Accepts::ALL)).collect()
    }

    #[test]
    fn a_port_has_an_entry_while_a_protocol_is_enabled() {
        let overlay = Overlay::default();
        assert_eq!(overlay.enable(A, &on(&[1, 2])), set(&[1, 2]));
        assert_eq!(overlay.enable(A, &on(&[2, 3])), set(&[1, 3]));
        assert_eq!(overlay.enable(A, &on(&[2, 3])), set(&[]));
        assert_eq!(overlay.enable(B, &on(&[2])), set(&[2]));
        assert_eq!(overlay.enable(A, &on(&[])), set(&[2, 3]));
        let ports = overlay.load();
        assert_eq!((ports.len(), ports[&port(2)].enabled), (1, ProtocolSet::EMPTY.with(B)));
    }

    #[test]
    fn lldp_decides_nothing() {
        let overlay = Overlay::default();
        overlay.enable(Protocol::LLDP, &on(&[1, 2]));
        overlay.enable(A, &on(&[2]));
        let decided = |no| overlay.load()[&port(no)].is_decided;
        assert_eq!((decided(1), decided(2)), (false, true));
        overlay.enable(A, &on(&[]));
        assert!(!decided(2));
    }

    #[test]
    fn a_port_state_combines_all_protocols() {
        let overlay = Overlay::default();
        overlay.enable(A, &on(&[1, 2]));
        overlay.enable(B, &on(&[1]));
        let snapshot = overlay.load();
        assert_eq!(overlay.set_state(A, &[(port(1), BLOCKED), (port(9), BLOCKED)]), set(&[1]));
        assert_eq!(overlay.set_state(B, &[(port(1), DEAD), (port(2), DEAD)]), set(&[1]));
        let all = PortState { learning: false, forwarding: false, live: false };
        assert_eq!(overlay.load()[&port(1)].state, all);
        // An equal state is no change, nor is one that another protocol forbids anyway.
        assert_eq!(overlay.set_state(B, &[(port(1), all)]), set(&[]));
        // A protocol that is disabled forbids nothing any more.
        overlay.enable(A, &on(&[]));
        overlay.enable(A, &on(&[1]));
        overlay.set_state(B, &[(port(1), DEAD)]);
        assert_eq!(overlay.load()[&port(1)].state, DEAD);
        assert_eq!(snapshot[&port(1)].state, PortState::default(), "a snapshot stays as it is");
    }

    #[test]
    fn a_change_of_the_accepted_frames_is_a_change_of_the_port() {
        let overlay = Overlay::default();
        let to = |last| Accepts { destination: Some(MacAddr([1, 0, 0, 0, 0, last])), ..Accepts::ALL };
        overlay.enable(A, &on(&[1, 2]));
        let mut wanted = on(&[1, 2]);
        wanted.insert(port(2), to(1));
        assert_eq!(overlay.enable(A, &wanted), set(&[2]));
        assert_eq!(overlay.enable(A, &wanted), set(&[]));
        let ports = overlay.load();
        assert_eq!((ports[&port(1)].accepts(A), ports[&port(2)].accepts(A)), (Accepts::ALL, to(1)));
        overlay.enable(A, &on(&[]));
        overlay.enable(A, &on(&[2]));
        assert_eq!(overlay.load()[&port(2)].accepts(A), Accepts::ALL);
    }
}
