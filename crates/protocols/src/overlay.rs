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
use base::DpPort;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

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
    /// The state set by each protocol, unless it permits everything.
    decisions: Vec<(Protocol, PortState)>,
}

impl PortOverlay {
    fn decide(&mut self, protocol: Protocol, state: PortState) {
        self.decisions.retain(|(by, _)| *by != protocol);
        if state != PortState::default() {
            self.decisions.push((protocol, state));
        }
        self.state = self.decisions.iter().fold(PortState::default(), |all, (_, one)| all.and(*one));
    }
}

/// The entries, by port.
pub type Ports = HashMap<DpPort, PortOverlay, RandomState>;

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

    /// Enables `protocol` on exactly these ports. Returns the ports whose entries were added, removed or got other
    /// protocols.
    pub fn enable(&self, protocol: Protocol, on: &BTreeSet<DpPort>) -> BTreeSet<DpPort> {
        let _changing = self.changing.lock();
        let mut ports = Ports::clone(&self.ports.load());
        let before = |entry: &PortOverlay| entry.enabled.contains(protocol);
        let mut changed: BTreeSet<DpPort> =
            ports.iter().filter(|(port, entry)| before(entry) && !on.contains(port)).map(|(port, _)| *port).collect();
        changed.extend(on.iter().filter(|port| !ports.get(port).is_some_and(before)));
        for port in &changed {
            let entry = ports.entry(*port).or_default();
            if on.contains(port) {
                entry.enabled = entry.enabled.with(protocol);
            } else {
                entry.enabled = entry.enabled.without(protocol);
                entry.decide(protocol, PortState::default());
            }
            entry.is_decided = entry.enabled.decides();
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
    pub fn set_state(&self, protocol: Protocol, states: &[(DpPort, PortState)]) -> BTreeSet<DpPort> {
        debug_assert!(protocol.decides(), "{protocol} decides about ports");
        let _changing = self.changing.lock();
        let old = self.ports.load();
        let mut ports = Ports::clone(&old);
        for (port, state) in states {
            if let Some(entry) = ports.get_mut(port).filter(|entry| entry.enabled.contains(protocol)) {
                entry.decide(protocol, *state);
            }
        }
        let is_changed = |port: &DpPort| ports.get(port).map(|new| new.state) != old.get(port).map(|old| old.state);
        let changed = states.iter().map(|(port, _)| *port).filter(is_changed).collect();
        self.ports.store(Arc::new(ports));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Protocol = Protocol::new(2).unwrap();
    const B: Protocol = Protocol::new(1).unwrap();
    const BLOCKED: PortState = PortState { learning: false, forwarding: false, live: true };
    const DEAD: PortState = PortState { learning: true, forwarding: true, live: false };

    fn set(ports: &[u32]) -> BTreeSet<DpPort> {
        ports.iter().map(|port| DpPort(*port)).collect()
    }

    #[test]
    fn a_port_has_an_entry_while_a_protocol_is_enabled() {
        let overlay = Overlay::default();
        assert_eq!(overlay.enable(A, &set(&[1, 2])), set(&[1, 2]));
        assert_eq!(overlay.enable(A, &set(&[2, 3])), set(&[1, 3]));
        assert_eq!(overlay.enable(A, &set(&[2, 3])), set(&[]));
        assert_eq!(overlay.enable(B, &set(&[2])), set(&[2]));
        assert_eq!(overlay.enable(A, &set(&[])), set(&[2, 3]));
        let ports = overlay.load();
        assert_eq!((ports.len(), ports[&DpPort(2)].enabled), (1, ProtocolSet::EMPTY.with(B)));
    }

    #[test]
    fn lldp_decides_nothing() {
        let overlay = Overlay::default();
        overlay.enable(Protocol::LLDP, &set(&[1, 2]));
        overlay.enable(A, &set(&[2]));
        let decided = |port| overlay.load()[&DpPort(port)].is_decided;
        assert_eq!((decided(1), decided(2)), (false, true));
        overlay.enable(A, &set(&[]));
        assert!(!decided(2));
    }

    #[test]
    fn a_port_state_combines_all_protocols() {
        let overlay = Overlay::default();
        overlay.enable(A, &set(&[1, 2]));
        overlay.enable(B, &set(&[1]));
        let snapshot = overlay.load();
        assert_eq!(overlay.set_state(A, &[(DpPort(1), BLOCKED), (DpPort(9), BLOCKED)]), set(&[1]));
        assert_eq!(overlay.set_state(B, &[(DpPort(1), DEAD), (DpPort(2), DEAD)]), set(&[1]));
        let all = PortState { learning: false, forwarding: false, live: false };
        assert_eq!(overlay.load()[&DpPort(1)].state, all);
        // An equal state is no change, nor is one that another protocol forbids anyway.
        assert_eq!(overlay.set_state(B, &[(DpPort(1), all)]), set(&[]));
        // A protocol that is disabled forbids nothing any more.
        overlay.enable(A, &set(&[]));
        overlay.enable(A, &set(&[1]));
        overlay.set_state(B, &[(DpPort(1), DEAD)]);
        assert_eq!(overlay.load()[&DpPort(1)].state, DEAD);
        assert_eq!(snapshot[&DpPort(1)].state, PortState::default(), "a snapshot stays as it is");
    }
}
