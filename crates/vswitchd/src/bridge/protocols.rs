//! The protocols of a bridge: on which interfaces and ports they are enabled, with their settings.

use super::Bridge;
use crate::feature::Feature;
use crate::features::bond::{Bond, BondSpec};
use crate::features::lacp::{Lacp, LacpSpec, Member, MemberSpec};
use crate::features::lldp::{Lldp, LldpSpec};
use crate::levels::InterfaceLevel;
use ::protocols::Protocol;
use base::BridgePort;
use ovsdb::Uuid;

impl Bridge {
    /// The port of the bridge that an interface is, once it is open and has a number.
    pub fn bridge_port(&self, interface: &str) -> Option<BridgePort> {
        let port = self.running.interfaces.get(interface)?.ofport?;
        Some(BridgePort { bridge: self.running.ofproto.id(), port })
    }

    /// The interfaces with a protocol, and the settings of its feature.
    pub(crate) fn specs<F>(&self, protocol: Protocol) -> impl Iterator<Item = (&str, &F::Spec)>
    where
        F: Feature<Level = InterfaceLevel>,
    {
        let spec = |name: &str| Some(self.interfaces.get(name)?.settings.spec::<F>());
        self.enabled.interfaces(protocol).filter_map(move |name| Some((name, spec(name)?)))
    }

    /// The interfaces with LLDP.
    pub fn lldp(&self) -> impl Iterator<Item = (&str, &LldpSpec)> {
        let spec = |name: &str| Some(self.interfaces.get(name)?.settings.spec::<Lldp>());
        self.enabled.interfaces(Protocol::LLDP).filter_map(move |name| Some((name, spec(name)?)))
    }

    /// The ports with LACP: name, settings and interfaces.
    pub fn lacp(&self) -> impl Iterator<Item = (&str, &LacpSpec, &[String])> {
        let ports = self.enabled.ports(Protocol::LACP).filter_map(|row| self.ports.get(row));
        ports.map(|port| (port.name.as_str(), port.settings.spec::<Lacp>(), port.interfaces.as_slice()))
    }

    /// The settings of LACP of an interface.
    pub fn lacp_member(&self, interface: &str) -> Option<MemberSpec> {
        Some(*self.interfaces.get(interface)?.settings.spec::<Member>())
    }

    /// The bonds: name, settings and interfaces.
    pub fn bonds(&self) -> impl Iterator<Item = (&str, &BondSpec, &[String])> {
        let of = move |row: &Uuid| {
            let port = self.ports.get(row)?;
            Some((port.name.as_str(), port.settings.spec::<Bond>(), port.interfaces.as_slice()))
        };
        self.enabled.ports(Protocol::BOND).filter_map(of)
    }
}
