//! Protocols of the switch: the packets that they receive, and the restrictions that they put on ports ([`protocols::Overlay`]).
//!
//! A packet from a port with an enabled protocol, whose destination and type are that protocol's, is punted to the protocol
//! before it is sampled or looked up in tables, and not forwarded. The protocols enabled on a port are part of its bridge's
//! configuration, on which each translation depends anyway. Their decisions about the port are a dependency of their own,
//! which is recorded only where a protocol that decides is enabled.

use crate::model::Bridge;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::Dependency;
use base::{BridgePort, DropReason, MacAddr, PortNo};
use dpif::{DpAction, Punt};
use flow::extract::{DL_TYPE_NONE, ethertype};
use flow::{Field, Prereq};
use protocols::{PortOverlay, PortState, Protocol};
use std::sync::Arc;

/// Ethernet type of LLDP (IEEE 802.1AB-2016 7.4).
const LLDP: u128 = 0x88cc;
/// Ethernet type of CFM (IEEE 802.1Q-2018 table 21-1).
const CFM: u128 = 0x8902;
/// Ethernet type of slow protocols, LACP among them (IEEE 802.3 annex 57A).
const SLOW: u128 = 0x8809;
/// UDP port of BFD (RFC 5881 section 4).
const BFD: u128 = 3784;

impl Xlate<'_> {
    /// Returns the protocol enabled on the packet's ingress port that receives the packet. Reads only the fields that decide
    /// this.
    fn protocol_of(&mut self, entry: &PortOverlay) -> Option<Protocol> {
        // Each translation reads the Ethernet type.
        let eth_type = self.packet.key.get(Field::EthType);
        let by_type = match eth_type {
            // As in Open vSwitch, the destination does not matter to LLDP and LACP.
            LLDP => Some(Protocol::LLDP),
            SLOW => Some(Protocol::LACP),
            CFM => Some(Protocol::CFM),
            _ if eth_type == u128::from(ethertype::IPV4) => Some(Protocol::BFD),
            _ if eth_type == u128::from(DL_TYPE_NONE) => Some(Protocol::STP),
            _ => None,
        };
        let protocol = by_type.filter(|protocol| entry.enabled.contains(*protocol))?;
        let accepts = entry.accepts(protocol);
        let destination = if protocol == Protocol::STP { Some(MacAddr::STP) } else { accepts.destination };
        let is_accepted = destination.is_none_or(|to| self.read_bits(Field::EthDst, MAC) == to.to_u64().into())
            && (protocol != Protocol::BFD || self.has(Prereq::Udp) && self.read_bits(Field::UdpDst, 0xffff) == BFD)
            && accepts
                .ip_destination
                .is_none_or(|to| self.read_bits(Field::Ipv4Dst, u32::MAX.into()) == u128::from(to.to_bits()))
            && (!accepts.without_key || self.read_bits(Field::TunId, u64::MAX.into()) == 0);
        is_accepted.then_some(protocol)
    }

    /// Admits a packet in the bridge of its ingress port: punts it if it belongs to a protocol, and drops it if protocols
    /// neither forward nor learn from packets of the port. Returns true if it continues in the tables.
    pub(crate) fn admit(&mut self, bridge: &Bridge, in_port: PortNo) -> bool {
        let port = BridgePort { bridge: bridge.id, port: in_port };
        if !self.overlay.contains_key(&port) {
            return true;
        }
        let overlay = Arc::clone(&self.overlay);
        let Some(entry) = overlay.get(&port) else { return true };
        self.out.dependencies.push(Dependency::Bridge(bridge.id));
        if !self.is_l3()
            && let Some(protocol) = self.protocol_of(entry)
        {
            self.tracer.enter(NodeKind::Bridge, || format!("bridge(\"{}\")", bridge.name));
            self.tracer.note(NodeKind::Detail, || format!("packet is for protocol {protocol}"));
            self.tracer.leave();
            self.commit();
            self.emit(DpAction::Punt(Punt { protocol, port }));
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

    /// Whether the port forwards what it receives, as protocols decide.
    pub(crate) fn forwards(&mut self, bridge: &Bridge, port: PortNo) -> bool {
        self.port_state(BridgePort { bridge: bridge.id, port }).forwarding
    }

    /// Removes the outputs of the tables if the ingress port learns but does not forward.
    pub(crate) fn restrict(&mut self, bridge: &Bridge, in_port: PortNo) {
        if !self.forwards(bridge, in_port) {
            self.tracer.note(NodeKind::Warning, || "port does not forward by decision of a protocol, dropping".into());
            self.out.actions.clear();
            self.out.drop = Some(DropReason::PortBlocked);
        }
    }

    /// Returns the state that protocols give a port; the translation depends on it from now on if it may change.
    pub(crate) fn port_state(&mut self, port: BridgePort) -> PortState {
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

    /// Returns the state of a port of the current bridge.
    pub(crate) fn state_of(&mut self, port: PortNo) -> PortState {
        self.port_state(BridgePort { bridge: self.pos.bridge.id, port })
    }
}

/// All bits of an Ethernet address.
const MAC: u128 = 0xffff_ffff_ffff;
