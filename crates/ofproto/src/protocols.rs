//! Protocols of the switch: the engine that runs them, the paths of punted packets to it and of its frames to ports, and
//! the invalidation of flows by changes of the overlay.

use crate::revalidate::Change;
use crate::switch::Switch;
use base::{Clock, DpPort, DropReason};
use dpif::{DpAction, DpActions};
use lldp::{Lldp, PortStatus};
use packet::Packet;
use parking_lot::Mutex;
use protocols::{Engine, InboxStats, Outlet, Overlay, Protocol, Refused};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use xlate::BridgeId;

/// The protocols of a switch.
#[derive(Debug)]
pub(crate) struct Protocols {
    pub(crate) engine: Arc<Engine>,
    lldp: Arc<Mutex<Lldp>>,
    /// The current settings.
    lldp_settings: Mutex<lldp::Settings>,
    /// True while the engine's thread runs.
    runs: Mutex<bool>,
}

impl Protocols {
    /// Creates the engine with all protocols disabled.
    pub(crate) fn new(clock: &Clock, overlay: Arc<Overlay>, switch: Weak<Switch>) -> Self {
        let engine = Engine::new(clock.clone(), overlay, switch);
        let lldp = Arc::new(Mutex::new(Lldp::new()));
        let machine: Arc<Mutex<Lldp>> = Arc::clone(&lldp);
        engine.register(Protocol::LLDP, machine);
        Self { engine, lldp, lldp_settings: Mutex::default(), runs: Mutex::default() }
    }
}

impl Drop for Protocols {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl Switch {
    /// Enables LLDP on exactly these ports. The engine's thread starts with the first port; fails if it cannot be started.
    pub fn set_lldp(&self, settings: lldp::Settings) -> std::io::Result<()> {
        let mut runs = self.protocols.runs.lock();
        if !*runs && !settings.ports.is_empty() {
            self.protocols.engine.start()?;
            *runs = true;
        }
        self.configure_lldp(settings);
        Ok(())
    }

    /// Does the same without a thread.
    pub(crate) fn configure_lldp(&self, settings: lldp::Settings) {
        let Protocols { engine, lldp, lldp_settings, .. } = &self.protocols;
        let mut current = lldp_settings.lock();
        if *current == settings {
            return;
        }
        current.clone_from(&settings);
        let ports = settings.ports.keys().copied().collect();
        lldp.lock().configure(settings, self.clock().now());
        // Shutdown LLDPDUs leave before the ports can be closed.
        engine.poll(Protocol::LLDP);
        self.enable_protocol(Protocol::LLDP, &ports);
    }

    /// Ends the protocols on a port that is about to be removed from the datapath: they send their last frames out of it.
    /// A configuration without this port has to follow.
    pub fn end_protocols(&self, port: DpPort) {
        let Protocols { engine, lldp, lldp_settings, .. } = &self.protocols;
        let mut current = lldp_settings.lock();
        if current.ports.remove(&port).is_some() {
            lldp.lock().remove(port);
            engine.poll(Protocol::LLDP);
        }
    }

    /// Enables punting for `protocol` on exactly these ports.
    pub(crate) fn enable_protocol(&self, protocol: Protocol, ports: &BTreeSet<DpPort>) {
        let changed = self.protocols.engine.overlay().enable(protocol, ports);
        let net = self.network();
        // A port's protocols are part of its bridge's configuration. A port without a bridge has no flows.
        let bridges: BTreeSet<BridgeId> = changed.iter().filter_map(|port| Some(net.ports.get(port)?.0)).collect();
        self.changed_all(bridges.into_iter().map(Change::Bridge).collect());
    }

    /// Returns the state of LLDP on its ports, by number.
    pub fn lldp_status(&self) -> Vec<PortStatus> {
        self.protocols.lldp.lock().status()
    }

    /// Returns the counters of the queue of frames for a protocol.
    pub fn protocol_inbox(&self, protocol: Protocol) -> InboxStats {
        self.protocols.engine.inbox(protocol)
    }

    /// Queues a frame for a protocol. Returns the port of the frame that was dropped for it, if any.
    pub(crate) fn punt_to(
        &self,
        protocol: Protocol,
        port: DpPort,
        packet: &Packet,
    ) -> Result<Option<DpPort>, DropReason> {
        self.protocols.engine.punt(protocol, port, packet.data()).map_err(|refused| match refused {
            Refused::NoProtocol => DropReason::NoProtocol,
            Refused::Full => DropReason::ProtocolQueueFull,
            Refused::TooBig => DropReason::TooBig,
        })
    }
}

impl Outlet for Switch {
    fn send(&self, port: DpPort, frame: Vec<u8>) {
        let Some(dpif) = self.dpif() else { return };
        // Protocols send on ports that they block for others: past the overlay, and past the tables.
        let actions: DpActions = [DpAction::Output(port)].into();
        if let Err(e) = dpif.execute(DpPort::NONE, Packet::from_slice(&frame), &actions) {
            tracing::debug!(target: "ofproto_dpif", "port {port}: {e}");
        }
    }

    fn ports_changed(&self, ports: &BTreeSet<DpPort>) {
        self.changed_all(ports.iter().copied().map(Change::PortState).collect());
    }

    fn log(&self, protocol: Protocol, line: &str) {
        tracing::info!(target: "ovs_lldp", "{protocol}: {line}");
    }
}
