//! CFM and BFD: settings and status, traffic of ports for them, and their decisions about the liveness of ports.

use super::hosted::Configurable;
use crate::switch::Switch;
use base::{BridgePort, Millis};
use bfd::{Bfd, SessionSettings, SessionStatus};
use cfm::{Cfm, PointSettings, PointStatus, pdu};
use protocols::{Accepts, Protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// The settings of a protocol by port.
type PortSettings<S> = BTreeMap<BridgePort, S>;

impl Configurable for Bfd {
    const PROTOCOL: Protocol = Protocol::BFD;
    type Settings = PortSettings<SessionSettings>;

    fn configure(&mut self, settings: Self::Settings, now: Millis) {
        Bfd::configure(self, settings, now);
    }

    fn ports(settings: &Self::Settings) -> BTreeMap<BridgePort, Accepts> {
        let accepts = |settings: &SessionSettings| Accepts {
            destination: settings.remote_dst_mac,
            // As in Open vSwitch, the default address stands for any.
            ip_destination: Some(settings.src_ip).filter(|ip| *ip != bfd::settings::SOURCE_IP),
            without_key: settings.check_tunnel_key,
        };
        settings.iter().map(|(port, settings)| (*port, accepts(settings))).collect()
    }

    fn remove(settings: &mut Self::Settings, port: BridgePort) -> bool {
        settings.remove(&port).is_some()
    }
}

impl Configurable for Cfm {
    const PROTOCOL: Protocol = Protocol::CFM;
    type Settings = PortSettings<PointSettings>;

    fn configure(&mut self, settings: Self::Settings, now: Millis) {
        Cfm::configure(self, settings, now);
    }

    fn ports(settings: &Self::Settings) -> BTreeMap<BridgePort, Accepts> {
        let accepts = |settings: &PointSettings| Accepts {
            destination: Some(if settings.extended { pdu::EXTENDED_DESTINATION } else { pdu::DESTINATION }),
            without_key: settings.check_tunnel_key,
            ..Accepts::ALL
        };
        settings.iter().map(|(port, settings)| (*port, accepts(settings))).collect()
    }

    fn remove(settings: &mut Self::Settings, port: BridgePort) -> bool {
        settings.remove(&port).is_some()
    }
}

impl Switch {
    /// Gives exactly these ports BFD sessions. The engine's thread has to run ([`Switch::start_protocols`]).
    pub fn configure_bfd(&self, settings: PortSettings<SessionSettings>) {
        let ports = self.bfd_status().into_iter().map(|(port, _)| port).chain(settings.keys().copied()).collect();
        self.protocols.bfd.configure(self, settings);
        self.members_changed(&ports);
    }

    /// Gives exactly these ports CFM maintenance points. The engine's thread has to run ([`Switch::start_protocols`]).
    pub fn configure_cfm(&self, settings: PortSettings<PointSettings>) {
        let ports = self.cfm_status().into_iter().map(|(port, _)| port).chain(settings.keys().copied()).collect();
        self.protocols.cfm.configure(self, settings);
        self.members_changed(&ports);
    }

    /// Returns true if a frame of BFD is to be marked as OAM in the header of a tunnel.
    pub(super) fn is_oam(&self, port: BridgePort, frame: &[u8]) -> bool {
        bfd::packet::payload(frame).is_some() && self.protocols.bfd.lock().is_oam(port)
    }

    /// Returns the states of all BFD sessions, by port.
    pub fn bfd_status(&self) -> Vec<(BridgePort, SessionStatus)> {
        self.protocols.bfd.lock().statuses().collect()
    }

    /// Returns the states of all CFM maintenance points, by port.
    pub fn cfm_status(&self) -> Vec<(BridgePort, PointStatus)> {
        self.protocols.cfm.lock().statuses().collect()
    }

    /// Returns the state of a port's BFD session.
    pub fn bfd_status_of(&self, port: BridgePort) -> Option<SessionStatus> {
        self.protocols.bfd.lock().status(port)
    }

    /// Returns the state of a port's CFM maintenance point.
    pub fn cfm_status_of(&self, port: BridgePort) -> Option<PointStatus> {
        self.protocols.cfm.lock().status(port)
    }

    /// Forces the forwarding state of the BFD sessions of these ports, or ends that with `None`.
    pub fn force_bfd(&self, ports: impl IntoIterator<Item = BridgePort>, forwarding: Option<bool>) {
        let now = self.clock().now();
        let mut bfd = self.protocols.bfd.lock();
        ports.into_iter().for_each(|port| bfd.force(port, forwarding, now));
        drop(bfd);
        self.protocols.engine.poll(Protocol::BFD);
    }

    /// Forces a fault of the CFM maintenance points of these ports or its absence, or ends that with `None`.
    pub fn force_cfm(&self, ports: impl IntoIterator<Item = BridgePort>, fault: Option<bool>) {
        let now = self.clock().now();
        let mut cfm = self.protocols.cfm.lock();
        ports.into_iter().for_each(|port| cfm.force(port, fault, now));
        drop(cfm);
        self.protocols.engine.poll(Protocol::CFM);
    }

    /// Reports to CFM and BFD how many packets their ports have received, where they want to know. Called about twice a
    /// second.
    pub(crate) fn report_traffic(&self) {
        let of_bfd: Vec<BridgePort> = self.protocols.bfd.lock().traffic_ports().collect();
        let of_cfm: Vec<BridgePort> = self.protocols.cfm.lock().traffic_ports().collect();
        let counted = |ports: Vec<BridgePort>| -> Vec<(BridgePort, u64)> {
            ports.into_iter().filter_map(|port| Some((port, self.received(port)?))).collect()
        };
        let (of_bfd, of_cfm) = (counted(of_bfd), counted(of_cfm));
        let now = self.clock().now();
        if !of_cfm.is_empty() {
            let mut cfm = self.protocols.cfm.lock();
            of_cfm.into_iter().for_each(|(port, packets)| cfm.traffic(port, packets, now));
        }
        if !of_bfd.is_empty() {
            let mut bfd = self.protocols.bfd.lock();
            of_bfd.into_iter().for_each(|(port, packets)| bfd.traffic(port, packets, now));
            drop(bfd);
            self.protocols.engine.changed(Protocol::BFD);
        }
    }

    /// The number of packets that a port has received.
    fn received(&self, port: BridgePort) -> Option<u64> {
        let port = self.bridge(port.bridge)?.port(port.port)?;
        match port.spec.device.as_ref().filter(|_| port.spec.tunnel.is_none()) {
            Some(device) => device.stats().rx_packets,
            None => Some(port.counters.rx_packets.load(Ordering::Relaxed)),
        }
    }

    /// Returns true if a port may be used to forward traffic: it is up, its link has a carrier, and neither CFM nor BFD
    /// consider it dead.
    pub fn is_port_live(&self, port: BridgePort) -> bool {
        let overlay = self.protocols.engine.overlay().load();
        let is_alive = overlay.get(&port).is_none_or(|entry| entry.state.live);
        is_alive
            && self.bridge(port.bridge).and_then(|bridge| bridge.port(port.port)).is_some_and(|port| port.is_live())
    }

    /// Reports to controllers which of these ports protocols consider live.
    pub(super) fn note_liveness(&self, ports: &BTreeSet<BridgePort>) {
        let overlay = self.protocols.engine.overlay().load();
        for at in ports {
            let is_dead = overlay.get(at).is_some_and(|entry| !entry.state.live);
            let Some(bridge) = self.bridge(at.bridge) else { continue };
            let Some(port) = bridge.port(at.port) else { continue };
            if port.is_dead.swap(is_dead, Ordering::Relaxed) != is_dead {
                bridge.send_port_state(&port);
            }
        }
    }
}
