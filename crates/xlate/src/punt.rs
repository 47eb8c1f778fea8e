//! Protocols of the switch: which packets are for them, and what they let ports do ([`protocols::Overlay`]).
//!
//! A packet that came in on a port where a protocol is enabled, and whose destination and type are that protocol's, is
//! punted to it before it is sampled or looked up in tables, and goes nowhere else. Which protocols are enabled on a port is
//! configuration of its bridge, which each translation depends on anyway. What they decide about the port is a dependency of
//! its own, recorded only where a protocol that decides is enabled.

use crate::model::{Bridge, PortOut};
use crate::trace::Kind;
use crate::translate::Xlate;
use crate::verdict::Dependency;
use base::{DpPort, DropReason, PortNo};
use dpif::DpAction;
use flow::{Field, FlowKey, Reads};
use protocols::{PortState, Protocol, ProtocolSet};

/// Ethernet type of LLDP (IEEE 802.1AB-2016 7.4).
const LLDP: u128 = 0x88cc;

/// The protocol, of those that are enabled, that a packet is for. Reads only the fields that decide.
fn protocol_of(enabled: ProtocolSet, key: &FlowKey, reads: &mut Reads) -> Option<Protocol> {
    // Any destination will do, as in Open vSwitch.
    if enabled.contains(Protocol::LLDP) {
        reads.note_field(Field::EthType);
        if key.get(Field::EthType) == LLDP {
            return Some(Protocol::LLDP);
        }
    }
    None
}

impl Xlate<'_> {
    /// Begins with a packet in the bridge of its ingress port: punts it if it is for a protocol, and drops it if protocols
    /// neither forward nor learn from packets of the port. Returns true if it goes on to the tables.
    pub(crate) fn admit(&mut self, bridge: &Bridge, in_port: PortNo) -> bool {
        let Some(port) = device(bridge, in_port) else { return true };
        let Some(enabled) = self.overlay.get(&port).map(|entry| entry.enabled) else { return true };
        self.out.dependencies.push(Dependency::Bridge(bridge.id));
        let is_frame = !self.is_l3();
        if let Some(protocol) = protocol_of(enabled, &self.packet.key, &mut self.out.reads).filter(|_| is_frame) {
            self.tracer.enter(Kind::Bridge, || format!("bridge(\"{}\")", bridge.name));
            self.tracer.note(Kind::Detail, || format!("packet is for protocol {protocol}"));
            self.tracer.leave();
            self.emit(DpAction::Punt(protocol));
            return false;
        }
        let state = self.port_state(port);
        if !state.learning && !state.forwarding {
            self.tracer.enter(Kind::Bridge, || format!("bridge(\"{}\")", bridge.name));
            self.tracer.note(Kind::Warning, || "port is blocked by a protocol, dropping".into());
            self.tracer.leave();
            self.note_drop(DropReason::PortBlocked);
            return false;
        }
        true
    }

    /// Takes back what the tables sent if the ingress port learns but does not forward.
    pub(crate) fn restrict(&mut self, bridge: &Bridge, in_port: PortNo) {
        let Some(port) = device(bridge, in_port) else { return };
        if !self.port_state(port).forwarding {
            self.tracer.note(Kind::Warning, || "port does not forward by decision of a protocol, dropping".into());
            self.out.actions.clear();
            self.out.drop = Some(DropReason::PortBlocked);
        }
    }

    /// What protocols let a port do; the translation depends on that from now on if it may change.
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

    /// The same of a port of the current bridge. Ports that are no devices may do anything.
    pub(crate) fn state_of(&mut self, port: PortNo) -> PortState {
        device(self.pos.bridge, port).map_or_else(PortState::default, |device| self.port_state(device))
    }
}

/// The datapath's number of a port, if it is a device.
fn device(bridge: &Bridge, port: PortNo) -> Option<DpPort> {
    match bridge.ports.get(&port)?.out {
        PortOut::Device(device) => Some(device),
        PortOut::Patch(..) | PortOut::Nowhere => None,
    }
}
