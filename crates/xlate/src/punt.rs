//! Protocols of the switch: the packets that they receive, and the restrictions that they put on ports ([`protocols::Overlay`]).
//!
//! A packet from a port with an enabled protocol, whose destination and type are that protocol's, is punted to the protocol
//! before it is sampled or looked up in tables, and not forwarded. The protocols enabled on a port are part of its bridge's
//! configuration, on which each translation depends anyway. Their decisions about the port are a dependency of their own,
//! which is recorded only where a protocol that decides is enabled.

use crate::model::{Bridge, PortOut};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::Dependency;
use base::{DpPort, DropReason, PortNo};
use dpif::DpAction;
use flow::{Field, FlowKey, Reads};
use protocols::{PortState, Protocol, ProtocolSet};

/// Ethernet type of LLDP (IEEE 802.1AB-2016 7.4).
const LLDP: u128 = 0x88cc;

/// Returns the enabled protocol that the packet belongs to. Reads only the fields that decide this.
fn protocol_of(enabled: ProtocolSet, key: &FlowKey, reads: &mut Reads) -> Option<Protocol> {
    // As in Open vSwitch, the destination does not matter.
    if enabled.contains(Protocol::LLDP) {
        reads.note_field(Field::EthType);
        if key.get(Field::EthType) == LLDP {
            return Some(Protocol::LLDP);
        }
    }
    None
}

impl Xlate<'_> {
    /// Admits a packet in the bridge of its ingress port: punts it if it belongs to a protocol, and drops it if protocols
    /// neither forward nor learn from packets of the port. Returns true if it continues in the tables.
    pub(crate) fn admit(&mut self, bridge: &Bridge, in_port: PortNo) -> bool {
        let Some(port) = device(bridge, in_port) else { return true };
        let Some(enabled) = self.overlay.get(&port).map(|entry| entry.enabled) else { return true };
        self.out.dependencies.push(Dependency::Bridge(bridge.id));
        let is_frame = !self.is_l3();
        if let Some(protocol) = protocol_of(enabled, &self.packet.key, &mut self.out.reads).filter(|_| is_frame) {
            self.tracer.enter(NodeKind::Bridge, || format!("bridge(\"{}\")", bridge.name));
            self.tracer.note(NodeKind::Detail, || format!("packet is for protocol {protocol}"));
            self.tracer.leave();
            self.emit(DpAction::Punt(protocol));
            return false;
        }
        let state = self.port_state(port);
        if !state.learning && !state.forwarding {
            self.tracer.enter(NodeKind::Bridge, || format!("bridge(\"{}\")", bridge.name));
            self.tracer.note(NodeKind::Warning, || "port is blocked by a protocol, dropping".into());
            self.tracer.leave();
            self.note_drop(DropReason::PortBlocked);
            return false;
        }
        true
    }

    /// Removes the outputs of the tables if the ingress port learns but does not forward.
    pub(crate) fn restrict(&mut self, bridge: &Bridge, in_port: PortNo) {
        let Some(port) = device(bridge, in_port) else { return };
        if !self.port_state(port).forwarding {
            self.tracer.note(NodeKind::Warning, || "port does not forward by decision of a protocol, dropping".into());
            self.out.actions.clear();
            self.out.drop = Some(DropReason::PortBlocked);
        }
    }

    /// Returns the state that protocols give a port; the translation depends on it from now on if it may change.
    pub(crate) fn port_state(&mut self, port: DpPort) -> PortState {
        match self.overlay.get(&port) {
            Some(entry) if entry.is_decided => {
                let state = entry.state;
                let dependency = Dependency::PortState(port);
                if self.out.dependencies.last() != Some(&dependency) {
                    self.out.dependencies.push(dependency);
                }
                state
            }
            _ => PortState::default(),
        }
    }

    /// Returns the state of a port of the current bridge. Ports without a device have no restrictions.
    pub(crate) fn state_of(&mut self, port: PortNo) -> PortState {
        device(self.pos.bridge, port).map_or_else(PortState::default, |device| self.port_state(device))
    }
}

/// The datapath's number of a port, if it is a device.
fn device(bridge: &Bridge, port: PortNo) -> Option<DpPort> {
    match bridge.ports.get(&port)?.out {
        PortOut::Device(device) => Some(device),
        PortOut::Tunnel(_) | PortOut::Patch(..) | PortOut::Nowhere => None,
    }
}
