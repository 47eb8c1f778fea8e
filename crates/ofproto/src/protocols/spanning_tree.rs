//! Spanning tree: settings and status.
//!
//! A controller may exclude a port by OpenFlow's `NO_STP`: settings keep such a port only as a bystander, until the bit is
//! cleared.

use super::hosted::{Configurable, Hosted};
use crate::switch::Switch;
use base::{BridgePort, Millis};
use parking_lot::Mutex;
use protocols::{Accepts, Engine, Protocol};
use spanning_tree::status::Protocol as Flavour;
use spanning_tree::{BridgeStatus, PortStatus, Settings, SpanningTree};
use std::collections::BTreeMap;

impl Configurable for SpanningTree {
    const PROTOCOL: Protocol = Protocol::STP;
    type Settings = Settings;

    fn configure(&mut self, settings: Settings, now: Millis) {
        SpanningTree::configure(self, settings, now);
    }

    /// BPDUs are also taken from ports that do not take part: a bridge with a spanning tree forwards none.
    fn ports(settings: &Settings) -> BTreeMap<BridgePort, Accepts> {
        let of_bridge = |(number, bridge): (&u32, &spanning_tree::BridgeSettings)| {
            let ports = bridge.ports.keys().chain(&bridge.bystanders);
            ports.map(|port| (BridgePort { bridge: *number, port: *port }, Accepts::ALL)).collect::<Vec<_>>()
        };
        settings.bridges.iter().flat_map(of_bridge).collect()
    }

    fn remove(settings: &mut Settings, port: BridgePort) -> bool {
        let Some(bridge) = settings.bridges.get_mut(&port.bridge) else { return false };
        bridge.bystanders.remove(&port.port) || bridge.ports.remove(&port.port).is_some()
    }
}

/// The machine, and the settings before controllers' port modifications.
#[derive(Debug)]
pub(crate) struct Trees {
    pub(crate) hosted: Hosted<SpanningTree>,
    configured: Mutex<Settings>,
}

impl Trees {
    /// Registers a machine without bridges.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self { hosted: Hosted::new(engine), configured: Mutex::default() }
    }
}

impl Switch {
    /// Runs spanning tree protocols with exactly these settings. The engine's thread has to run
    /// ([`Switch::start_protocols`]).
    pub fn configure_spanning_tree(&self, settings: Settings) {
        let trees = &self.protocols.trees;
        let mut configured = trees.configured.lock();
        let effective = self.without_excluded(settings.clone());
        *configured = settings;
        trees.hosted.configure(self, effective);
    }

    /// Takes changes of `NO_STP` into account.
    pub(crate) fn refresh_spanning_tree(&self) {
        let trees = &self.protocols.trees;
        let configured = trees.configured.lock();
        trees.hosted.configure(self, self.without_excluded(configured.clone()));
    }

    /// Makes bystanders of the ports with `NO_STP`.
    fn without_excluded(&self, mut settings: Settings) -> Settings {
        for (number, bridge) in &mut settings.bridges {
            let Some(ofproto) = self.bridge(*number) else { continue };
            let is_excluded = |port| ofproto.port(port).is_some_and(|port| port.config.no_stp);
            let excluded: Vec<_> = bridge.ports.keys().copied().filter(|port| is_excluded(*port)).collect();
            for port in excluded {
                bridge.ports.remove(&port);
                bridge.bystanders.insert(port);
            }
        }
        settings
    }

    /// Returns the state of all bridges with a spanning tree protocol, by number.
    pub fn spanning_tree_status(&self) -> Vec<BridgeStatus> {
        self.protocols.trees.hosted.lock().status()
    }

    /// Returns the state of a bridge, if it runs a spanning tree protocol.
    pub fn spanning_tree_of(&self, bridge: u32) -> Option<BridgeStatus> {
        self.protocols.trees.hosted.lock().bridge_status(bridge)
    }

    /// Returns the protocol and the state of a port, if a spanning tree protocol runs on it.
    pub fn spanning_tree_port(&self, port: BridgePort) -> Option<(Flavour, PortStatus)> {
        self.protocols.trees.hosted.lock().port_status(port)
    }

    /// Handles a topology change on a bridge that an administrator asks for. Returns false if the bridge runs no spanning
    /// tree protocol.
    pub fn notify_topology_change(&self, bridge: u32) -> bool {
        let trees = &self.protocols.trees.hosted;
        let is_known = trees.lock().notify_topology_change(bridge, self.clock().now());
        self.protocols.engine.poll(Protocol::STP);
        is_known
    }
}
