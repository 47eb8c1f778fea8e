//! Ports as records describe them.
//!
//! A bridge knows its own ports only: for a packet that came from another bridge through a patch port, records state no
//! ingress port. This is what Open vSwitch does.

use base::{DpPort, PortNo};
use ipfix::{Interface, TunnelKind};
use std::collections::HashMap;
use xlate::BridgeId;

/// The ports of all bridges.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    devices: HashMap<(BridgeId, DpPort), Interface>,
    /// By OpenFlow port, as several tunnels may share a port of the datapath.
    tunnels: HashMap<(BridgeId, PortNo), (Interface, Option<TunnelKind>)>,
    /// The system's numbers of devices.
    indices: HashMap<DpPort, u32>,
}

impl Interfaces {
    pub(super) fn add_device(&mut self, bridge: BridgeId, port: DpPort, interface: Interface) {
        self.indices.insert(port, interface.index);
        self.devices.insert((bridge, port), interface);
    }

    /// Adds a tunnel behind a port of the datapath, with its kind if records can state that.
    pub(super) fn add_tunnel(
        &mut self,
        bridge: BridgeId,
        (no, port): (PortNo, DpPort),
        interface: Interface,
        kind: Option<TunnelKind>,
    ) {
        self.devices.entry((bridge, port)).or_insert_with(|| interface.clone());
        self.tunnels.insert((bridge, no), (interface, kind));
    }

    /// The bridge's port with this device, or its first tunnel behind this port of the datapath.
    pub(crate) fn device(&self, bridge: BridgeId, port: DpPort) -> Interface {
        self.devices.get(&(bridge, port)).cloned().unwrap_or_default()
    }

    /// The system's number of the device at a port of any bridge, 0 without one.
    pub(crate) fn index(&self, port: DpPort) -> u32 {
        self.indices.get(&port).copied().unwrap_or(0)
    }

    /// A tunnel port of the bridge.
    pub(crate) fn tunnel(&self, bridge: BridgeId, port: PortNo) -> (Interface, Option<TunnelKind>) {
        self.tunnels.get(&(bridge, port)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_knows_its_own_ports() {
        let named = |name: &str| Interface { index: 4, name: name.into() };
        let mut all = Interfaces::default();
        all.add_device(1, DpPort(5), named("p"));
        all.add_tunnel(1, (PortNo(3), DpPort(9)), named("a"), Some(TunnelKind::Vxlan));
        all.add_tunnel(1, (PortNo(4), DpPort(9)), named("b"), None);
        assert_eq!((all.device(1, DpPort(5)), all.device(2, DpPort(5))), (named("p"), Interface::default()));
        assert_eq!((all.index(DpPort(5)), all.index(DpPort(6))), (4, 0));
        assert_eq!(all.tunnel(1, PortNo(3)), (named("a"), Some(TunnelKind::Vxlan)));
        assert_eq!(all.tunnel(1, PortNo(4)), (named("b"), None));
        assert_eq!(all.tunnel(2, PortNo(4)), (Interface::default(), None));
        // A packet that did not come through a tunnel, though it states the port (packet-out).
        assert_eq!((all.device(1, DpPort(9)), all.device(2, DpPort(9))), (named("a"), Interface::default()));
    }
}
