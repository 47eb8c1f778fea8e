//! What the settings of all protocols have in common: which interfaces, ports and bridges have which protocols, and which
//! protocols are to be configured again.
//!
//! A feature of a protocol says in its `apply` whether the protocol is enabled on its object ([`Marks`]). Later changes of
//! interfaces mark the protocol, too: they may have other numbers and addresses. Once all bridges are published, each
//! marked protocol is configured as a whole ([`configure`]).

use crate::bridge::Bridge;
use crate::devices::{Devices, Dp};
use crate::features::{bfd, bond, cfm, lacp, lldp, spanning_tree};
use ovsdb::Uuid;
use protocols::{Protocol, ProtocolSet};
use std::collections::{BTreeMap, BTreeSet};

/// The protocols about which features of one object have decided.
#[derive(Clone, Debug, Default)]
pub struct Marks(Vec<(Protocol, bool)>);

impl Marks {
    /// The protocol is enabled on the object, or not. It is configured again in either case.
    pub fn set(&mut self, protocol: Protocol, is_enabled: bool) {
        self.0.push((protocol, is_enabled));
    }
}

/// The protocols of a bridge.
#[derive(Debug, Default)]
pub(crate) struct Enabled {
    interfaces: BTreeMap<Protocol, BTreeSet<String>>,
    ports: BTreeMap<Protocol, BTreeSet<Uuid>>,
    bridge: ProtocolSet,
    changed: ProtocolSet,
    /// Ports may have to be reported once more, as protocols may have ended there.
    is_unreported: bool,
}

impl Enabled {
    /// Takes the decisions of an interface's features.
    pub(crate) fn mark_interface(&mut self, name: &str, marks: &Marks) {
        for (protocol, is_enabled) in &marks.0 {
            self.changed = self.changed.with(*protocol);
            let names = self.interfaces.entry(*protocol).or_default();
            let _ = if *is_enabled { names.insert(name.to_owned()) } else { names.remove(name) };
        }
    }

    /// Takes the decisions of a port's features.
    pub(crate) fn mark_port(&mut self, row: Uuid, marks: &Marks) {
        self.is_unreported |= !marks.0.is_empty();
        for (protocol, is_enabled) in &marks.0 {
            self.changed = self.changed.with(*protocol);
            let rows = self.ports.entry(*protocol).or_default();
            let _ = if *is_enabled { rows.insert(row) } else { rows.remove(&row) };
        }
    }

    /// Takes the decisions of the bridge's features.
    pub(crate) fn mark_bridge(&mut self, marks: &Marks) {
        self.is_unreported |= !marks.0.is_empty();
        for (protocol, is_enabled) in &marks.0 {
            self.changed = self.changed.with(*protocol);
            self.bridge = if *is_enabled { self.bridge.with(*protocol) } else { self.bridge.without(*protocol) };
        }
    }

    /// An interface, which is part of a port, was opened, or may have another number, address or link.
    pub(crate) fn touch(&mut self, interface: &str, port: &Uuid) {
        let of_interface = self.interfaces.iter().filter(|(_, names)| names.contains(interface));
        let of_port = self.ports.iter().filter(|(_, rows)| rows.contains(port));
        let touched = of_interface.map(|(protocol, _)| *protocol).chain(of_port.map(|(protocol, _)| *protocol));
        let touched = touched.fold(self.bridge, ProtocolSet::with);
        self.changed = self.changed.union(touched);
    }

    /// The bridge has another address.
    pub(crate) fn touch_all(&mut self) {
        self.changed = self.changed.union(self.all());
    }

    /// An interface, which was part of a port, is gone.
    pub(crate) fn remove_interface(&mut self, interface: &str, port: &Uuid) {
        self.touch(interface, port);
        self.interfaces.values_mut().for_each(|names| _ = names.remove(interface));
    }

    /// A port is gone.
    pub(crate) fn remove_port(&mut self, row: &Uuid) {
        for (protocol, rows) in &mut self.ports {
            if rows.remove(row) {
                self.changed = self.changed.with(*protocol);
            }
        }
    }

    /// The protocols that are to be configured again.
    pub(crate) fn take_changed(&mut self) -> ProtocolSet {
        std::mem::take(&mut self.changed)
    }

    /// All protocols that are enabled anywhere in the bridge.
    pub(crate) fn all(&self) -> ProtocolSet {
        let interfaces = self.interfaces.iter().filter(|(_, names)| !names.is_empty()).map(|(protocol, _)| *protocol);
        let ports = self.ports.iter().filter(|(_, rows)| !rows.is_empty()).map(|(protocol, _)| *protocol);
        interfaces.chain(ports).fold(self.bridge, ProtocolSet::with)
    }

    /// The names of the interfaces with a protocol.
    pub(crate) fn interfaces(&self, protocol: Protocol) -> impl Iterator<Item = &str> {
        self.interfaces.get(&protocol).into_iter().flatten().map(String::as_str)
    }

    /// The rows of the ports with a protocol.
    pub(crate) fn ports(&self, protocol: Protocol) -> impl Iterator<Item = &Uuid> {
        self.ports.get(&protocol).into_iter().flatten()
    }

    /// Whether ports have a state to report.
    pub(crate) fn has_port_states(&self) -> bool {
        self.is_unreported || !self.bridge.is_empty() || self.ports.values().any(|rows| !rows.is_empty())
    }

    /// The state of all ports was reported.
    pub(crate) fn set_reported(&mut self) {
        self.is_unreported = false;
    }
}

/// Configures these protocols on all datapaths. A new protocol has a line here.
pub(crate) fn configure(changed: ProtocolSet, bridges: &BTreeMap<String, Bridge>, devices: &Devices) {
    if changed.contains(Protocol::LLDP) {
        lldp::configure(bridges, devices);
    }
    if changed.contains(Protocol::BOND) {
        bond::configure(bridges, devices);
    }
    if changed.contains(Protocol::LACP) {
        lacp::configure(bridges, devices);
    }
    if changed.contains(Protocol::STP) {
        spanning_tree::configure(bridges, devices);
    }
    if changed.contains(Protocol::BFD) {
        bfd::configure(bridges, devices);
    }
    if changed.contains(Protocol::CFM) {
        cfm::configure(bridges, devices);
    }
}

/// Starts the thread of protocols of a datapath, unless it runs.
pub(crate) fn start(dp: &Dp) {
    if let Err(e) = dp.switch.start_protocols() {
        tracing::error!(target: "bridge", "could not start the thread of protocols: {e}");
    }
}
