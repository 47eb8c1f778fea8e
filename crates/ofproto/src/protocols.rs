//! Protocols of the switch: the engine that runs them, the paths of punted packets to it and of its frames to ports, and
//! the invalidation of flows by changes of the overlay.
//!
//! - [`hosted`]: a machine with its settings, and how they change;
//! - `lldp` and the other files named after protocols: settings and status of each.

mod bond;
mod connectivity;
pub(crate) mod hosted;
mod lacp;
mod lldp;
mod spanning_tree;

use crate::revalidate::Change;
use crate::switch::Switch;
use ::bfd::Bfd;
use ::cfm::Cfm;
use ::lldp::Lldp;
use base::{BridgePort, Clock, DpPort, DropReason};
use dpif::{DpAction, DpActions, Punt};
use flow::Field;
use hosted::{Host, Hosted};
use lacp::LacpMachine;
use packet::Packet;
use parking_lot::Mutex;
use protocols::{Accepts, Engine, InboxStats, LogLevel, Outlet, Overlay, Ports, Protocol, Refused, Source, TreeState};
use spanning_tree::Trees;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use xlate::translate::Start;
use xlate::{BridgeId, PortOut};

/// Called when the status of a protocol has changed.
pub type OnStatusChange = Box<dyn Fn(Protocol) + Send + Sync>;

/// The protocols of a switch.
pub(crate) struct Protocols {
    pub(crate) engine: Arc<Engine>,
    pub(crate) lldp: Hosted<Lldp>,
    pub(crate) bonds: bond::HostedBonds,
    pub(crate) lacp: Hosted<LacpMachine>,
    pub(crate) trees: Trees,
    pub(crate) cfm: Hosted<Cfm>,
    pub(crate) bfd: Hosted<Bfd>,
    /// The devices of ports with protocols: their last frames leave by these after the bridge has given up the port.
    devices: Mutex<BTreeMap<BridgePort, DpPort>>,
    /// True while the engine's thread runs.
    runs: Mutex<bool>,
    on_status_change: OnceLock<OnStatusChange>,
}

impl Protocols {
    /// Creates the engine with all protocols disabled.
    pub(crate) fn new(clock: &Clock, overlay: Arc<Overlay>, switch: Weak<Switch>) -> Self {
        let engine = Engine::new(clock.clone(), overlay, switch.clone());
        Self {
            lldp: Hosted::new(&engine),
            bonds: bond::HostedBonds::new(&engine, switch),
            lacp: Hosted::new(&engine),
            trees: Trees::new(&engine),
            cfm: Hosted::new(&engine),
            bfd: Hosted::new(&engine),
            engine,
            devices: Mutex::default(),
            runs: Mutex::default(),
            on_status_change: OnceLock::new(),
        }
    }

    /// All machines. A new protocol has a line here.
    fn hosts(&self) -> [&dyn Host; 5] {
        [
            &self.lldp, //
            &self.lacp,
            &self.trees.hosted,
            &self.cfm,
            &self.bfd,
        ]
    }
}

impl std::fmt::Debug for Protocols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Protocols").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Drop for Protocols {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl Switch {
    /// Starts the thread of protocols unless it runs.
    ///
    /// # Errors
    ///
    /// The system cannot start another thread.
    pub fn start_protocols(&self) -> std::io::Result<()> {
        let mut runs = self.protocols.runs.lock();
        if !*runs {
            self.protocols.engine.start()?;
            *runs = true;
        }
        Ok(())
    }

    /// Has `call` called on the protocols' thread whenever the status of a protocol has changed. To be set once.
    pub fn on_status_change(&self, call: OnStatusChange) {
        let _ = self.protocols.on_status_change.set(call);
    }

    /// Has the protocols handle all frames and timers that are due now, before it returns.
    pub fn settle_protocols(&self) {
        self.protocols.engine.settle();
    }

    /// Ends the protocols on a port that is about to be removed from the datapath: they send their last frames out of it.
    /// A configuration without this port has to follow.
    pub fn end_protocols(&self, port: DpPort) {
        let known: Vec<BridgePort> = {
            let devices = self.protocols.devices.lock();
            devices.iter().filter(|(_, device)| **device == port).map(|(port, _)| *port).collect()
        };
        for port in known {
            self.protocols.hosts().into_iter().for_each(|host| host.end(self, port));
        }
    }

    /// Enables punting for `protocol` on exactly these ports.
    pub(crate) fn enable_protocol(&self, protocol: Protocol, ports: &BTreeMap<BridgePort, Accepts>) {
        let overlay = self.protocols.engine.overlay();
        let changed = overlay.enable(protocol, ports);
        self.note_devices(&changed, &overlay.load());
        self.note_liveness(&changed);
        // A port's protocols are part of its bridge's configuration.
        let bridges: BTreeSet<BridgeId> = changed.iter().map(|port| port.bridge).collect();
        self.changed_all(bridges.into_iter().map(Change::Bridge).collect());
    }

    /// Remembers the devices of these ports, as long as they have protocols.
    fn note_devices(&self, ports: &BTreeSet<BridgePort>, overlay: &Ports) {
        let net = self.network();
        let mut devices = self.protocols.devices.lock();
        for port in ports {
            match net.bridges.get(&port.bridge).and_then(|bridge| Some(bridge.ports.get(&port.port)?.out)) {
                Some(PortOut::Device(device)) if overlay.contains_key(port) => _ = devices.insert(*port, device),
                _ => {
                    if !overlay.contains_key(port) {
                        devices.remove(port);
                    }
                }
            }
        }
    }

    /// Returns the counters of the queue of frames for a protocol.
    pub fn protocol_inbox(&self, protocol: Protocol) -> InboxStats {
        self.protocols.engine.inbox(protocol)
    }

    /// Queues a frame for a protocol. Returns the device of the frame that was dropped for it, if any.
    pub(crate) fn punt_to(&self, device: DpPort, punt: &Punt, packet: &Packet) -> Result<Option<DpPort>, DropReason> {
        let source = Source { port: punt.port, device };
        self.protocols.engine.punt(punt.protocol, source, packet.data()).map_err(|refused| match refused {
            Refused::NoProtocol => DropReason::NoProtocol,
            Refused::Full => DropReason::ProtocolQueueFull,
            Refused::TooBig => DropReason::TooBig,
        })
    }
}

impl Outlet for Switch {
    fn send(&self, port: BridgePort, frame: Vec<u8>) {
        let Some(dpif) = self.dpif() else { return };
        let out = self.network().bridges.get(&port.bridge).and_then(|bridge| Some(bridge.ports.get(&port.port)?.out));
        let out = out.or_else(|| self.protocols.devices.lock().get(&port).copied().map(PortOut::Device));
        let packet = Packet::from_slice(&frame);
        match out {
            // Protocols send on ports that they block for others: past the overlay, and past the tables.
            Some(PortOut::Device(device)) => {
                let actions: DpActions = [DpAction::Output(device)].into();
                if let Err(e) = dpif.execute(DpPort::NONE, packet, &actions) {
                    tracing::debug!(target: "ofproto_dpif", "port {port}: {e}");
                }
            }
            Some(PortOut::Tunnel(_) | PortOut::Patch(..)) => {
                let Some(bridge) = self.bridge(port.bridge) else { return };
                let mut key = self.key_of(&frame, base::PortNo::NONE);
                if self.is_oam(port, &frame) {
                    key.set(Field::TunFlags, tunnel::flags::OAM.into());
                }
                bridge.execute(&mut bridge.decide(&key, packet, Start::Protocol(port.port)).into_iter().collect());
            }
            Some(PortOut::Nowhere) | None => {}
        }
    }

    fn ports_changed(&self, ports: &BTreeSet<BridgePort>) {
        self.changed_all(ports.iter().copied().map(Change::PortState).collect());
        self.members_changed(ports);
        self.note_liveness(ports);
    }

    fn flush(&self, port: BridgePort) {
        if let Some(bridge) = self.bridge(port.bridge) {
            bridge.flush_port(port.port);
        }
    }

    fn move_addresses(&self, from: BridgePort, to: BridgePort) {
        if let Some(bridge) = self.bridge(from.bridge) {
            bridge.move_macs(from.port, to.port);
        }
    }

    fn tree_changed(&self, port: BridgePort, state: TreeState) {
        if let Some(bridge) = self.bridge(port.bridge) {
            bridge.set_tree_state(port.port, state);
        }
    }

    fn status_changed(&self, protocol: Protocol) {
        if protocol == Protocol::LACP {
            self.lacp_changed();
        }
        if let Some(call) = self.protocols.on_status_change.get() {
            call(protocol);
        }
    }

    fn log(&self, protocol: Protocol, level: LogLevel, line: &str) {
        macro_rules! log {
            ($($protocol:ident $target:literal),*) => {
                match (protocol, level) {
                    $((Protocol::$protocol, LogLevel::Warning) => tracing::warn!(target: $target, "{line}"),
                    (Protocol::$protocol, LogLevel::Info) => tracing::info!(target: $target, "{line}"),)*
                    (_, LogLevel::Warning) => tracing::warn!(target: "ofproto_dpif", "{protocol}: {line}"),
                    (_, LogLevel::Info) => tracing::info!(target: "ofproto_dpif", "{protocol}: {line}"),
                }
            };
        }
        log!(LLDP "ovs_lldp", CFM "cfm", BFD "bfd", LACP "lacp", STP "stp", BOND "bond");
    }
}
