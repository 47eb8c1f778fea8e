//! Tunnels as translations see them: the tunnel ports of all bridges, what the host receives for them, and the way of outer packets.

use crate::model::BridgeId;
use crate::verdict::Resolve;
use arc_swap::ArcSwap;
use base::{DpPort, MacAddr, PortNo};
use flow::{FlowKey, ReceivedOptions};
use parking_lot::RwLock;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use tunnel::TunnelType;
use tunnel::ports::Ports;

/// The tunnels of a datapath. A change of ports or endpoints is made first and reported afterwards ([`crate::Dependency::Tunnels`]).
#[derive(Debug, Default)]
pub struct Tunnels {
    /// The tunnel ports of all bridges, by bridge and OpenFlow port.
    pub ports: RwLock<Ports<(BridgeId, PortNo)>>,
    endpoints: ArcSwap<Vec<Endpoint>>,
    received: ArcSwap<ReceivedOptions>,
    underlay: OnceLock<Arc<dyn Underlay>>,
}

impl Tunnels {
    /// Sets routes, addresses and neighbours, once; without them, no packet leaves through a tunnel.
    pub fn set_underlay(&self, underlay: Arc<dyn Underlay>) {
        _ = self.underlay.set(underlay);
    }

    /// Routes, addresses and neighbours.
    pub fn underlay(&self) -> Option<&Arc<dyn Underlay>> {
        self.underlay.get()
    }

    /// Sets which packets to the host's addresses belong to tunnels.
    pub fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        self.endpoints.store(Arc::new(endpoints));
    }

    /// The packets to the host's addresses that belong to tunnels.
    pub fn endpoints(&self) -> arc_swap::Guard<Arc<Vec<Endpoint>>> {
        self.endpoints.load()
    }

    /// Sets the options that keys of received packets have. Returns whether they are others than before.
    pub fn set_received_options(&self, options: Arc<ReceivedOptions>) -> bool {
        *self.received.swap(Arc::clone(&options)) != *options
    }

    /// The options that keys of received packets have.
    pub fn received_options(&self) -> arc_swap::Guard<Arc<ReceivedOptions>> {
        self.received.load()
    }

    /// The bridge and port that packets with this key from the datapath's port of tunnels belong to.
    pub fn owner(&self, dp_port: DpPort, key: &FlowKey) -> Option<(BridgeId, PortNo)> {
        let packet_type = crate::tunnel::packet_type_of(key);
        self.ports.read().find(dp_port, &crate::tunnel::received(key), packet_type).0.map(|port| port.id)
    }

    /// Returns true for the datapath's port of tunnels.
    pub fn has(&self, port: DpPort) -> bool {
        self.endpoints.load().iter().any(|endpoint| endpoint.dp_port == port)
    }
}

/// Packets to the host's addresses that belong to tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Their IP protocol.
    pub proto: u8,
    /// The type of their interfaces.
    pub tunnel_type: TunnelType,
    /// Their UDP destination port, if the protocol is UDP.
    pub udp_port: Option<u16>,
    /// The datapath's port of their tunnels.
    pub dp_port: DpPort,
}

/// Where an outer packet goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The bridge whose own port sends it, by name.
    pub bridge: Arc<str>,
    /// The source address.
    pub src: IpAddr,
    /// The next hop; `None` if the destination is a neighbour.
    pub gateway: Option<IpAddr>,
}

/// The host's routes, addresses and neighbours. A translation that asks has a dependency on the answer
/// ([`crate::Dependency::Route`], [`crate::Dependency::Neighbour`]); the caller translates anew when it changes.
pub trait Underlay: Debug + Send + Sync {
    /// The route to an address, of packets with a mark of the host (`pkt_mark`). `src` limits the source address.
    fn route(&self, dst: IpAddr, src: Option<IpAddr>, mark: u32) -> Option<Route>;

    /// The Ethernet address of a neighbour at a bridge; `None` while it is unknown.
    fn neighbour(&self, bridge: &str, ip: IpAddr) -> Option<MacAddr>;

    /// Asks for the Ethernet address of a neighbour that packets wait for, unless that was done recently.
    fn resolve(&self, neighbour: &Resolve);

    /// Notes that packets were sent to a neighbour.
    fn used(&self, bridge: &str, ip: IpAddr);

    /// Learns the Ethernet address of a neighbour at a bridge.
    fn learn(&self, bridge: &str, ip: IpAddr, mac: MacAddr);

    /// Returns true for an address of a bridge's own port.
    fn is_local(&self, bridge: &str, ip: IpAddr) -> bool;
}
