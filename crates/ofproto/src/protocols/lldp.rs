//! LLDP: settings and status.

use super::hosted::Configurable;
use crate::switch::Switch;
use base::{BridgePort, Millis};
use lldp::{Lldp, PortStatus, Settings};
use protocols::{Accepts, Protocol};
use std::collections::BTreeMap;

impl Configurable for Lldp {
    const PROTOCOL: Protocol = Protocol::LLDP;
    type Settings = Settings;

    fn configure(&mut self, settings: Settings, now: Millis) {
        Lldp::configure(self, settings, now);
    }

    fn ports(settings: &Settings) -> BTreeMap<BridgePort, Accepts> {
        settings.ports.keys().map(|port| (*port, Accepts::ALL)).collect()
    }

    fn remove(settings: &mut Settings, port: BridgePort) -> bool {
        settings.ports.remove(&port).is_some()
    }
}

impl Switch {
    /// Enables LLDP on exactly these ports. The engine's thread has to run ([`Switch::start_protocols`]).
    pub fn configure_lldp(&self, settings: Settings) {
        self.protocols.lldp.configure(self, settings);
    }

    /// Returns the state of LLDP on its ports, by number.
    pub fn lldp_status(&self) -> Vec<PortStatus> {
        self.protocols.lldp.lock().status()
    }
}
